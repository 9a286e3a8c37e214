//! One address for all engines.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::net::{Listeners, Spread};
use superpoll_rt::{BackendKind, Handle, Runtime};

mod watches;

fn runtime(kind: BackendKind, engines: usize) -> Runtime {
    Runtime::builder().backend(kind).workers(NonZeroUsize::new(engines).unwrap()).build().unwrap()
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Connects once after the other, and returns what each connection was told: the engine.
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

fn serve(runtime: &Runtime, spread: Spread) -> std::io::Result<Listeners> {
    Listeners::serve(&runtime.handle(), any(), spread, |mut stream, _| async move {
        let engine = Handle::current().unwrap().engine().unwrap();
        stream.write_all(&[engine as u8]).await.unwrap();
    })
}

/// Drives a runtime while a thread makes connections; returns what that told.
fn drive<R: Send + 'static>(runtime: &Runtime, work: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    let (over, is_over) = mpsc::channel::<std::task::Waker>();
    let thread = thread::spawn(move || {
        let waker = is_over.recv().unwrap();
        sender.send(work()).unwrap();
        waker.wake();
    });
    let mut first = true;
    let result = runtime
        .block_on(std::future::poll_fn(|cx| {
            if std::mem::take(&mut first) {
                over.send(cx.waker().clone()).unwrap();
            }
            receiver.try_recv().map_or(std::task::Poll::Pending, std::task::Poll::Ready)
        }))
        .unwrap();
    thread.join().unwrap();
    result
}

#[test]
fn every_connection_is_served_and_counted_where_it_was() {
    for kind in BackendKind::ALL {
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
            let told = drive(&runtime, move || connect(address, 120));
            let mut counts = vec![0u64; 3];
            for engine in told {
                counts[usize::from(engine)] += 1;
            }
            assert_eq!(listeners.accepted(), counts, "{kind} {spread}");
            assert!(listeners.take_error().is_none() && listeners.shed() == 0);
            eprintln!("{kind} {spread}: {counts:?}, fairness {:.2}", listeners.fairness());
            if spread == Spread::Exclusive {
                // The kernel chooses; without the rotation it would always choose the same.
                let most = counts.iter().max().unwrap();
                assert!(*most < 120, "{kind} {spread}: {counts:?}");
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
                match TcpStream::connect(address) {
                    // A connection that was in the queue when that was closed is reset.
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
                    Err(error) => return error.kind(),
                    Ok(_) => {}
                }
                assert!(Instant::now() < end, "still listening");
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
            // Half of them before there is a future.
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
        let panicked: u64 = runtime.stats().iter().map(|stats| stats.panicked).sum();
        assert_eq!(panicked, PANICS as u64, "{spread}");
    }
}

/// The number of the socket that listens on this port.
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
            while watches::of(inode) != expected {
                assert!(Instant::now() < end, "{spread}: {:?}", watches::of(inode));
                thread::yield_now();
            }
        });
    }
}
