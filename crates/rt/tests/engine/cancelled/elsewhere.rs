//! Streams on which a read was given up, and which then go to another thread while their first
//! engine runs on.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futures_lite::AsyncReadExt;
use futures_lite::future::{poll_fn, poll_once};
use superpoll_rt::net::{StreamSocket, TcpListener, TcpStream};
use superpoll_rt::{BackendKind, Runtime, time, yield_now};

use super::{Random, bytes, number};

/// Streams that move together.
const TOGETHER: usize = 8;

/// Bytes of each.
const LENGTH: u64 = 10;

/// Takes all bytes of a stream, on a thread that has a runtime or has none.
async fn take(mut stream: TcpStream, way: u64) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    while (all.len() as u64) < LENGTH {
        let mut room = [0; 3];
        let count = match way {
            0 => stream.read(&mut room).await?,
            1 => match stream.try_read(&mut room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    stream.readable().await?;
                    continue;
                }
                outcome => outcome?,
            },
            _ => {
                stream = TcpStream::from_std(stream.into_std())?;
                stream.read(&mut room).await?
            }
        };
        all.extend_from_slice(&room[..count]);
    }
    Ok(all)
}

#[test]
fn a_stream_moved_to_another_thread_is_read_only_there() {
    let rounds = number("SUPERPOLL_CANCELLED_ROUNDS").unwrap_or(60_000) / 600;
    for backend in BackendKind::available() {
        let (streams, arriving) = mpsc::channel::<(TcpStream, u64)>();
        let (results, taken) = mpsc::channel();
        let other = thread::spawn(move || {
            let runtime = Runtime::builder().backend(backend).build().unwrap();
            for (stream, way) in arriving {
                let limit = Duration::from_secs(30);
                let all = runtime.block_on(time::timeout(limit, take(stream, way)));
                results.send((way, all)).unwrap();
            }
        });
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        let mut random = Random::new(rounds);
        let run = async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            for round in 0..rounds {
                let mut list = Vec::new();
                for _ in 0..TOGETHER {
                    let client =
                        std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                    client.set_nodelay(true).unwrap();
                    let (stream, _) = listener.accept().await.unwrap();
                    let mut room = [0; 4];
                    let read = poll_fn(|cx| stream.poll_read(cx, &mut room));
                    assert!(poll_once(read).await.is_none());
                    list.push((stream, client));
                }
                yield_now().await;
                let mut clients = Vec::new();
                for (_, client) in &mut list {
                    client.write_all(&bytes(0, LENGTH)).unwrap();
                }
                // When they go, the engine has seen the bytes of some.
                for _ in 0..random.below(3) {
                    time::sleep(Duration::ZERO).await;
                }
                for (stream, client) in list {
                    clients.push(client);
                    streams.send((stream, random.below(3))).unwrap();
                }
                for _ in 0..TOGETHER {
                    let (way, all) = loop {
                        match taken.try_recv() {
                            Ok(result) => break result,
                            Err(_) => time::sleep(Duration::from_micros(10)).await,
                        }
                    };
                    let all = all.unwrap_or_else(|_| panic!("{backend:?}, way {way}: it stalls"));
                    assert_eq!(all.unwrap(), bytes(0, LENGTH), "{backend:?}, {round}, way {way}");
                }
            }
        };
        runtime.block_on(run);
        drop(streams);
        other.join().unwrap();
    }
}

/// Connections with bytes, on each of which a read was given up before.
async fn given_up(turns: u64) -> Vec<(TcpStream, std::net::TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut list = Vec::new();
    for _ in 0..TOGETHER {
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut room = [0; 4];
        assert!(poll_once(poll_fn(|cx| stream.poll_read(cx, &mut room))).await.is_none());
        list.push((stream, client));
    }
    yield_now().await;
    for (_, client) in &mut list {
        client.write_all(&bytes(0, LENGTH)).unwrap();
    }
    for _ in 0..turns {
        yield_now().await;
    }
    list
}

/// Calls a function on another thread, while the engine of this one stands still.
fn elsewhere<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(f).join().unwrap())
}

#[test]
fn a_socket_that_was_taken_out_elsewhere_keeps_all_its_bytes() {
    for backend in BackendKind::available() {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        for turns in 0..5 {
            let run = async {
                let mut taken = Vec::new();
                for (stream, client) in given_up(turns).await {
                    taken.push((elsewhere(|| stream.into_std()), client));
                }
                for _ in 0..4 {
                    yield_now().await;
                }
                for (mut socket, client) in taken {
                    drop(client);
                    let mut all = Vec::new();
                    socket.set_nonblocking(false).unwrap();
                    socket.read_to_end(&mut all).unwrap();
                    assert_eq!(all, bytes(0, LENGTH), "{backend:?}, after {turns} turns");
                }
            };
            runtime.block_on(run);
        }
    }
}

#[test]
fn nothing_is_read_of_a_stranger_that_has_the_number_of_a_stream_which_was_dropped_elsewhere() {
    for backend in BackendKind::available() {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        let mut same = 0;
        for turns in 0..5 {
            let run = async {
                let (mut strangers, mut kept) = (Vec::new(), Vec::new());
                for (stream, client) in given_up(turns).await {
                    let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
                    (&other).write_all(b"0123456789").unwrap();
                    let number = stream.as_raw_fd();
                    elsewhere(|| {
                        drop(stream);
                        // Another test may be faster, and get the number.
                        strangers.push(one.try_clone().unwrap());
                    });
                    same += u32::from(strangers.last().unwrap().as_raw_fd() == number);
                    kept.push((client, one, other));
                }
                for _ in 0..4 {
                    yield_now().await;
                }
                drop(kept);
                for mut stranger in strangers {
                    let mut all = String::new();
                    stranger.read_to_string(&mut all).unwrap();
                    assert_eq!(all, "0123456789", "{backend:?}, after {turns} turns");
                }
            };
            runtime.block_on(run);
        }
        eprintln!("{backend:?}: {same} strangers had the number of a stream");
    }
}
