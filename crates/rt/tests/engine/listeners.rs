//! One address for all engines, and one listener for several processes.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::future::poll_once;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::net::{ListenOptions, Listeners, Spread};
use superpoll_rt::{BackendKind, Handle, Runtime};
use superpoll_test_support::start;

use crate::{answered, epoll_watches};

fn runtime(kind: BackendKind, engines: usize) -> Runtime {
    Runtime::builder().backend(kind).workers(NonZeroUsize::new(engines).unwrap()).build().unwrap()
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Connects `times` times in turn, and returns the number that each connection received: the
/// engine's.
fn connect(address: SocketAddr, times: usize) -> Vec<u8> {
    (0..times)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            let mut told = Vec::new();
            stream.read_to_end(&mut told).unwrap();
            assert_eq!(told.len(), 1);
            told[0]
        })
        .collect()
}

/// Returns the threads of the engines, as folders that show their state.
fn threads(runtime: &Runtime) -> Vec<PathBuf> {
    let handle = runtime.handle();
    let (sender, receiver) = mpsc::channel();
    for engine in 0..handle.engines() {
        let sender = sender.clone();
        let tell = move || {
            let thread = std::fs::read_link("/proc/thread-self").unwrap();
            sender.send(PathBuf::from("/proc").join(thread)).unwrap();
        };
        handle.call_on(engine, tell).unwrap();
    }
    let count = handle.engines();
    drive(runtime, move || receiver.iter().take(count).collect())
}

/// Like [`connect`], but the next client comes only when all waiting engines are asleep: otherwise
/// an engine that is still awake is quicker than the next in line.
fn connect_to_sleepers(address: SocketAddr, times: usize, waiting: &[PathBuf]) -> Vec<u8> {
    let told = (0..times).flat_map(|_| {
        for folder in waiting {
            loop {
                let stat = std::fs::read_to_string(folder.join("stat")).unwrap();
                if stat.rsplit_once(") ").unwrap().1.starts_with('S') {
                    break;
                }
                thread::sleep(Duration::from_micros(50));
            }
        }
        connect(address, 1)
    });
    told.collect()
}

fn serve(runtime: &Runtime, spread: Spread) -> std::io::Result<Listeners> {
    Listeners::serve(&runtime.handle(), any(), spread, |mut stream, _| async move {
        let engine = Handle::current().unwrap().engine().unwrap();
        stream.write_all(&[engine as u8]).await.unwrap();
    })
}

/// Drives a runtime while a thread makes connections; returns the thread's result.
fn drive<R: Send + 'static>(runtime: &Runtime, work: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    let (over, is_over) = mpsc::channel::<std::task::Waker>();
    let thread = thread::spawn(move || {
        let waker = is_over.recv().unwrap();
        sender.send(work()).unwrap();
        waker.wake();
    });
    let mut first = true;
    let result = runtime.block_on(std::future::poll_fn(|cx| {
        if std::mem::take(&mut first) {
            over.send(cx.waker().clone()).unwrap();
        }
        receiver.try_recv().map_or(std::task::Poll::Pending, std::task::Poll::Ready)
    }));
    thread.join().unwrap();
    result
}

#[test]
fn every_connection_is_served_and_counted_where_it_was() {
    for kind in BackendKind::available() {
        for spread in Spread::ALL {
            let runtime = runtime(kind, 3);
            let listeners = match serve(&runtime, spread) {
                Ok(listeners) => listeners,
                Err(error) => {
                    assert_eq!(spread, Spread::Exclusive, "{kind}: {error}");
                    assert!(matches!(kind, BackendKind::Select | BackendKind::Poll));
                    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
                    assert!(error.to_string().contains(kind.name()), "{error}");
                    continue;
                }
            };
            let address = listeners.local_addr();
            let waiting = threads(&runtime);
            let told = drive(&runtime, move || connect_to_sleepers(address, 120, &waiting));
            let mut counts = vec![0u64; 3];
            for engine in told {
                counts[usize::from(engine)] += 1;
            }
            assert_eq!(listeners.accepted(), counts, "{kind} {spread}");
            assert!(listeners.take_error().is_none() && listeners.shed() == 0);
            eprintln!("{kind} {spread}: {counts:?}, fairness {:.2}", listeners.fairness());
            if matches!(spread, Spread::Exclusive | Spread::HandOff) {
                assert!(listeners.fairness() >= 0.9, "{kind} {spread}: {counts:?}");
            }
        }
    }
}

#[test]
fn connections_that_stay_are_handed_out_evenly() {
    let runtime = runtime(BackendKind::Adaptive, 3);
    let serve = |mut stream: superpoll_rt::net::TcpStream, _| async move {
        stream.write_all(b"x").await.unwrap();
        let _ = stream.read(&mut [0]).await;
    };
    let listeners = Listeners::serve(&runtime.handle(), any(), Spread::HandOff, serve).unwrap();
    let address = listeners.local_addr();
    let held = drive(&runtime, move || {
        let connections = (0..30).map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            // By then its task counts.
            stream.read_exact(&mut [0]).unwrap();
            stream
        });
        connections.collect::<Vec<_>>()
    });
    assert_eq!(listeners.accepted(), [10, 10, 10]);
    assert_eq!(listeners.fairness(), 1.0);
    drop(held);
}

#[test]
fn a_busy_engine_is_handed_nothing() {
    let runtime = runtime(BackendKind::Adaptive, 3);
    let handle = runtime.handle();
    let held: Vec<_> =
        (0..50).map(|_| handle.spawn_on(1, std::future::pending::<()>()).unwrap()).collect();
    let listeners = serve(&runtime, Spread::HandOff).unwrap();
    let address = listeners.local_addr();
    drive(&runtime, move || connect(address, 40));
    let accepted = listeners.accepted();
    assert_eq!((accepted[1], accepted[0] + accepted[2]), (0, 40), "{accepted:?}");
    drop(held);
}

#[test]
fn dropping_the_listeners_closes_the_address() {
    for spread in Spread::ALL {
        let runtime = runtime(BackendKind::Epoll, 2);
        let listeners = serve(&runtime, spread).unwrap();
        let address = listeners.local_addr();
        drive(&runtime, move || connect(address, 4));
        drop(listeners);
        let refused = drive(&runtime, move || {
            let end = Instant::now() + Duration::from_secs(20);
            loop {
                match TcpStream::connect(address).map_err(|error| error.kind()) {
                    // It arrived just as the last of several sockets was closed.
                    Err(std::io::ErrorKind::ConnectionReset) => {}
                    Err(kind) => return kind,
                    Ok(_) => assert!(Instant::now() < end, "still listening"),
                }
            }
        });
        assert_eq!(refused, std::io::ErrorKind::ConnectionRefused, "{spread}");
    }
}

#[test]
fn an_address_in_use_is_refused() {
    let runtime = runtime(BackendKind::Epoll, 2);
    let listeners = serve(&runtime, Spread::Shared).unwrap();
    let again = Listeners::serve(
        &runtime.handle(),
        listeners.local_addr(),
        Spread::HandOff,
        |_, _| async {},
    );
    assert_eq!(again.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    assert!(format!("{listeners:?}").contains("Shared"));
}

#[test]
fn a_panic_while_serving_costs_that_connection() {
    const PANICS: usize = 6;
    for spread in Spread::ALL {
        let runtime = runtime(BackendKind::Epoll, 2);
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let serve = move |mut stream: superpoll_rt::net::TcpStream, _| {
            // Half of the calls panic before there is a future.
            let call = counted.fetch_add(1, Ordering::Relaxed);
            assert!(call >= PANICS || call.is_multiple_of(2), "{spread} before");
            async move {
                assert!(call >= PANICS, "{spread} in the future");
                stream.write_all(b"x").await.unwrap();
            }
        };
        let listeners = Listeners::serve(&runtime.handle(), any(), spread, serve).unwrap();
        let address = listeners.local_addr();
        let told: Vec<usize> = drive(&runtime, move || {
            let connections = (0..PANICS + 8).map(|_| {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                let mut told = Vec::new();
                // A connection that was not read to its end may be reset.
                stream.read_to_end(&mut told).map_or(0, |length| length)
            });
            connections.collect()
        });
        let expected = [[0; PANICS].as_slice(), &[1; 8]].concat();
        assert_eq!(told, expected, "{spread}");
        assert_eq!(listeners.accepted().iter().sum::<u64>(), PANICS as u64 + 8);
        assert!(listeners.take_error().is_none());
        let panicked: u64 = answered::stats(&runtime, 2).iter().map(|stats| stats.panicked).sum();
        assert_eq!(panicked, PANICS as u64, "{spread}");
    }
}

/// Returns the inode of the socket that listens on this port.
fn inode(port: u16) -> u64 {
    let sockets = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let address = format!("0100007F:{port:04X}");
    let mut sockets = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // A state of 0A is listening.
    let listening = sockets.find(|socket| socket.get(1) == Some(&&*address) && socket[3] == "0A");
    listening.unwrap()[9].parse().unwrap()
}

#[test]
fn exclusive_wake_ups_are_asked_of_the_kernel() {
    for (spread, expected) in [(Spread::Exclusive, (3, 0)), (Spread::Shared, (0, 3))] {
        let runtime = runtime(BackendKind::Epoll, 3);
        let listeners = serve(&runtime, spread).unwrap();
        let inode = inode(listeners.local_addr().port());
        // An engine registers when it waits for the first time.
        drive(&runtime, move || {
            let end = Instant::now() + Duration::from_secs(20);
            while epoll_watches::count(inode) != expected {
                assert!(Instant::now() < end, "{spread}: {:?}", epoll_watches::count(inode));
                thread::yield_now();
            }
        });
    }
}
/// Variables that give a process of this test its task: its number, and the options with which it
/// listens.
const NUMBER: &str = "SUPERPOLL_TEST_LISTENER";
const WAY: &str = "SUPERPOLL_TEST_LISTENER_WAY";
const PORT: &str = "SUPERPOLL_TEST_LISTENER_PORT";

/// The work of a process that got its listener from its parent, as standard input, or binds its
/// own: it prints its port and tells every client its number.
fn work(number: u8) -> ! {
    let way = std::env::var(WAY).unwrap();
    let options = ListenOptions::new().reuse_port(way == "reuseport").exclusive(way == "exclusive");
    let listener = if way == "reuseport" {
        let port = std::env::var(PORT).unwrap().parse().unwrap();
        options.bind_addr(SocketAddr::from(([127, 0, 0, 1], port))).unwrap()
    } else {
        let inherited = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
        options.adopt(TcpListener::from(inherited)).unwrap()
    };
    let runtime = Runtime::builder().backend(BackendKind::Adaptive).build().unwrap();
    let serve = async {
        let mut first = std::pin::pin!(listener.accept());
        // From here on it waits.
        let accepted = poll_once(first.as_mut()).await;
        println!("\nport {}", listener.local_addr().unwrap().port());
        std::io::stdout().flush().unwrap();
        let mut accepted = match accepted {
            Some(accepted) => accepted,
            None => first.await,
        };
        loop {
            let (mut stream, _) = accepted.unwrap();
            stream.write_all(&[number]).await.unwrap();
            drop(stream);
            accepted = listener.accept().await;
        }
    };
    runtime.block_on(serve)
}

/// A process that runs this test again as a server; ended when dropped.
struct Worker {
    child: Child,
    port: u16,
}

impl Worker {
    fn start(number: u8, way: &str, listener: Option<&TcpListener>, port: u16) -> Worker {
        let inherited = match listener {
            Some(listener) => Stdio::from(OwnedFd::from(listener.try_clone().unwrap())),
            None => Stdio::null(),
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "listeners::processes_share_a_listener",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(NUMBER, number.to_string())
            .env(WAY, way)
            .env(PORT, port.to_string())
            .stdin(inherited)
            .stdout(Stdio::piped());
        let mut child = start(&mut command);
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut lines = said.lines().map(Result::unwrap);
        let port = lines.find_map(|line| line.strip_prefix("port ")?.parse().ok()).unwrap();
        Worker { child, port }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn processes_share_a_listener() {
    if let Some(number) = std::env::var_os(NUMBER) {
        work(number.to_str().unwrap().parse().unwrap());
    }
    for way in ["shared", "exclusive", "reuseport"] {
        let listener = (way != "reuseport").then(|| TcpListener::bind(any()).unwrap());
        let mut port = 0;
        let mut workers = Vec::new();
        for number in 0..3 {
            workers.push(Worker::start(number, way, listener.as_ref(), port));
            port = workers[0].port;
        }
        let tasks =
            |worker: &Worker| std::fs::read_dir(format!("/proc/{}/task", worker.child.id()));
        let waiting: Vec<PathBuf> = workers
            .iter()
            .flat_map(|worker| tasks(worker).unwrap().map(|task| task.unwrap().path()))
            .collect();
        let mut counts = [0; 3];
        for number in connect_to_sleepers(([127, 0, 0, 1], port).into(), 150, &waiting) {
            counts[usize::from(number)] += 1;
        }
        eprintln!("{way}: {counts:?}");
        if way == "exclusive" {
            let squares: u32 = counts.iter().map(|count| count * count).sum();
            assert!(f64::from(150 * 150) / f64::from(3 * squares) >= 0.9, "{counts:?}");
        }
    }
}

#[test]
fn tasks_that_accept_from_one_exclusive_listener_all_go_on_when_it_takes_turns() {
    let options = ListenOptions::new().exclusive(true).longest_turn(1);
    let listener = options.bind_addr(any()).unwrap();
    let address = listener.local_addr().unwrap();
    let listener = Rc::new(listener);
    let served: Rc<[Cell<u32>; 3]> = Rc::default();
    let runtime = runtime(BackendKind::Epoll, 1);
    runtime.block_on(async {
        for task in 0..3 {
            let (listener, served) = (listener.clone(), served.clone());
            superpoll_rt::spawn(async move {
                loop {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    served[task].set(served[task].get() + 1);
                    stream.write_all(&[task as u8]).await.unwrap();
                }
            })
            .detach();
        }
    });
    let told = drive(&runtime, move || connect(address, 60));
    let counts: Vec<u32> = served.iter().map(Cell::get).collect();
    for (task, &count) in counts.iter().enumerate() {
        assert_eq!(
            told.iter().filter(|&&teller| usize::from(teller) == task).count() as u32,
            count
        );
    }
    assert_eq!(counts.iter().sum::<u32>(), 60);
}

#[test]
fn waiting_exclusively_without_epoll_is_refused() {
    let listener = ListenOptions::new().exclusive(true).bind_addr(any()).unwrap();
    let error = runtime(BackendKind::Poll, 1).block_on(listener.accept()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
    assert!(error.to_string().contains("exclusive"), "{error}");
}
