//! A listener without descriptors sheds load: in a process of its own, whose limit is lowered.

use std::fs::File;
use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futures_lite::AsyncWriteExt;
use futures_lite::future::poll_once;
use superpoll_rt::net::{ListenOptions, TcpListener};
use superpoll_rt::time::timeout;
use superpoll_rt::{BackendKind, Runtime, yield_now};
use superpoll_test_support::Alone;

/// Long enough for a loop that spins to turn some thousand times.
const QUIET: Duration = Duration::from_millis(100);

const LONG: Duration = Duration::from_secs(20);

fn few_descriptors<F: FnOnce()>(test: F) {
    Alone::default().under("ulimit -n 64").run(test);
}

/// Opens files until there are no descriptors left.
fn fill() -> Vec<File> {
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
        assert!(files.len() < 64, "the limit is in force");
    }
    files
}

#[test]
fn load_is_shed_without_a_spin() {
    few_descriptors(|| {
        for backend in BackendKind::available() {
            let runtime = Runtime::builder().backend(backend).build().unwrap();
            let listener = runtime
                .block_on(async {
                    let listener = TcpListener::bind("127.0.0.1:0").await?;
                    assert!(poll_once(listener.accept()).await.is_none());
                    io::Result::Ok(listener)
                })
                .unwrap();
            let address = listener.local_addr().unwrap();
            let connect = || TcpStream::connect(address).unwrap();
            let mut clients: Vec<_> = (0..10).map(|_| connect()).collect();
            let mut files = fill();
            let turns = |runtime: &Runtime| runtime.stats()[0].turns;
            // The number of turns until all are shed depends on the network: the last packet of a
            // handshake may reach the listener after its client's `connect()` has returned.
            let shed = runtime.try_block_on(async {
                let mut accept = std::pin::pin!(listener.accept());
                while listener.shed() < 10 {
                    assert!(poll_once(accept.as_mut()).await.is_none());
                    yield_now().await;
                }
            });
            shed.unwrap();
            // No client connects and no loop spins. The pause is a timer, not a thread that sleeps:
            // a thread keeps the runtime's waker, and with it a descriptor, for a moment after it
            // has woken the runtime. If that is after the next runtime's files were opened there is
            // room, and nothing is shed.
            let before = turns(&runtime);
            let accepted = runtime.block_on(timeout(QUIET, listener.accept()));
            assert!(accepted.is_err(), "{backend}: {accepted:?}");
            let turned = turns(&runtime) - before;
            assert!(turned < 50, "{backend}: {turned} turns while nothing happened");
            assert_eq!(listener.shed(), 10);
            // The clients have been told.
            for client in &mut clients {
                assert!(matches!(client.read(&mut [0; 1]), Ok(0) | Err(_)));
            }
            // With room again, connections are served.
            files.truncate(files.len() - 4);
            drop(clients);
            let mut client = connect();
            runtime
                .block_on(async {
                    let (mut stream, _) = listener.accept().await?;
                    stream.write_all(b"welcome").await
                })
                .unwrap();
            let mut text = [0; 7];
            client.read_exact(&mut text).unwrap();
            assert_eq!(&text, b"welcome");
            assert_eq!(listener.shed(), 10);
        }
    });
}

#[test]
fn without_shedding_the_limit_is_an_error() {
    few_descriptors(|| {
        let runtime = Runtime::new().unwrap();
        let listener =
            ListenOptions::new().shed_load(false).bind_addr(([127, 0, 0, 1], 0).into()).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let files = fill();
        let error = runtime.block_on(listener.accept()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
        drop(files);
        runtime.block_on(listener.accept()).unwrap();
        assert_eq!(listener.shed(), 0);
    });
}

/// Another thread takes the room that the reserve makes whenever it can.
#[test]
fn a_reserve_lost_to_another_thread_is_restored() {
    few_descriptors(|| {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
        let files = fill();
        let (stop, stopped) = mpsc::channel::<()>();
        let thief = thread::spawn(move || {
            let mut files = files;
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                files.extend(File::open("/dev/null").ok());
            }
        });
        runtime
            .block_on(async {
                let mut accept = Box::pin(listener.accept());
                for _ in 0..1000 {
                    assert!(
                        poll_once(accept.as_mut()).await.is_none(),
                        "all descriptors are in use"
                    );
                    yield_now().await;
                }
                stop.send(()).unwrap();
                thief.join().unwrap();
                // Connections that could not be shed are still there, or another client connects.
                let another = TcpStream::connect(address)?;
                accept.await?;
                drop(another);
                io::Result::Ok(())
            })
            .unwrap();
        drop(clients);
    });
}

/// The room of its reserve is taken once, for good. Only this listener is woken for its clients.
#[test]
fn a_listener_whose_reserve_is_taken_sheds_with_that_of_another_one() {
    few_descriptors(|| {
        let runtime = Runtime::new().unwrap();
        let listen = || runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        for _ in 0..1000 {
            let (listener, _other) = (listen(), listen());
            let address = listener.local_addr().unwrap();
            let mut clients: Vec<_> =
                (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
            let files = fill();
            let (stop, stopped) = mpsc::channel::<()>();
            let thief = thread::spawn(move || {
                while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    if let Ok(file) = File::open("/dev/null") {
                        return Some(file);
                    }
                }
                None
            });
            let told = thread::spawn(move || {
                for client in &mut clients {
                    client.set_read_timeout(Some(LONG)).unwrap();
                    let outcome = client.read(&mut [0; 1]);
                    let waits = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
                    assert!(!outcome.is_err_and(|error| waits(&error)), "a client is not told");
                }
                clients
            });
            runtime.block_on(async {
                let mut accept = Box::pin(listener.accept());
                while !told.is_finished() {
                    assert!(
                        poll_once(accept.as_mut()).await.is_none(),
                        "all descriptors are in use"
                    );
                    yield_now().await;
                }
            });
            let clients = told.join().unwrap();
            drop(stop);
            let taken = thief.join().unwrap();
            drop(clients);
            // The lost one is in its place again as soon as there is room.
            drop(files);
            let _client = TcpStream::connect(address).unwrap();
            runtime.block_on(listener.accept()).unwrap();
            if taken.is_some() {
                return;
            }
        }
        panic!("the room of no reserve could be taken");
    });
}
