//! Reads that an engine makes for its tasks, all with one call, where the back-end can. Each test
//! is left out where there is no io_uring.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::io::{IoSliceMut, Read, Write};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use futures_lite::future::{or, poll_fn, poll_once};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_conformance::sys;
use superpoll_rt::completion::recv;
use superpoll_rt::net::{TcpListener, TcpStream};
use superpoll_rt::time::sleep;
use superpoll_rt::transfer::splice;
use superpoll_rt::{BackendKind, Error, Runtime, pipe, spawn, yield_now};

fn runtime() -> Option<Runtime> {
    if !BackendKind::Uring.is_available() {
        eprintln!("skipped: uring is not available here");
        return None;
    }
    Some(Runtime::builder().backend(BackendKind::Uring).build().unwrap())
}

type Client = std::net::TcpStream;

async fn connections(count: usize) -> io::Result<Vec<(TcpStream, Client)>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let mut list = Vec::new();
    for _ in 0..count {
        let client = Client::connect(address)?;
        client.set_nodelay(true)?;
        list.push((listener.accept().await?.0, client));
    }
    Ok(list)
}

/// Returns connections that have each had a read begun and given up, and have had `text` read
/// since.
async fn cancelled_reads(
    count: usize,
    text: &[u8],
    room: usize,
) -> io::Result<Vec<(TcpStream, Client)>> {
    let mut list = connections(count).await?;
    for (stream, _) in &mut list {
        let mut buffer = vec![0; room];
        // Without an owner to take its waker back.
        let pending = poll_once(poll_fn(|cx| {
            futures_io::AsyncRead::poll_read(Pin::new(&mut *stream), cx, &mut buffer)
        }));
        assert!(pending.await.is_none());
    }
    yield_now().await;
    for (_, client) in &mut list {
        client.write_all(text)?;
    }
    // The loopback interface delivers within the write.
    for _ in 0..3 {
        yield_now().await;
    }
    Ok(list)
}

#[test]
fn many_that_wait_are_read_with_one_call() {
    let Some(runtime) = runtime() else { return };
    runtime
        .block_on(async {
            let list = connections(50).await?;
            let mut clients = Vec::new();
            for (mut stream, client) in list {
                clients.push(client);
                spawn(async move {
                    let mut buffer = [0; 100];
                    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                        stream.write_all(&buffer[..count]).await.unwrap();
                    }
                })
                .detach();
            }
            for round in 0..100u8 {
                for client in &mut clients {
                    client.write_all(&[round; 20])?;
                }
                for _ in 0..4 {
                    yield_now().await;
                }
                for client in &mut clients {
                    let mut reply = [0; 20];
                    client.set_nonblocking(true)?;
                    let outcome = loop {
                        match client.read(&mut reply) {
                            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                                yield_now().await;
                            }
                            outcome => break outcome,
                        }
                    };
                    client.set_nonblocking(false)?;
                    assert_eq!((outcome?, reply), (20, [round; 20]));
                }
            }
            io::Result::Ok(())
        })
        .unwrap();
    let stats = &runtime.stats()[0];
    assert!(stats.reads_ahead >= 4000, "{stats:?}");
}

#[test]
fn bytes_of_a_cancelled_read_go_to_the_next_read() {
    let Some(runtime) = runtime() else { return };
    runtime
        .block_on(async {
            let mut list = cancelled_reads(8, b"hello world", 64).await?;
            let mut next = || list.pop().unwrap();
            let mut text = [0; 64];

            let (mut stream, mut client) = next();
            client.write_all(b", again")?;
            drop(client);
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await?;
            assert_eq!(all, b"hello world, again");

            let (stream, _client) = next();
            stream.readable().await?;
            assert_eq!(stream.try_read(&mut text[..5])?, 5);
            assert_eq!(stream.try_read(&mut text[5..])?, 6);
            assert_eq!(&text[..11], b"hello world");
            let refused = stream.try_read(&mut text).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);

            let (mut stream, _client) = next();
            assert_eq!(stream.peek(&mut text[..4]).await?, 4);
            assert_eq!(stream.peek(&mut text).await?, 11);
            assert_eq!(stream.read(&mut text).await?, 11);

            let (mut stream, _client) = next();
            let (mut one, mut two) = ([0; 0], [0; 20]);
            let mut room = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
            assert_eq!(stream.read_vectored(&mut room).await?, 11);
            assert_eq!(&two[..11], b"hello world");

            let (stream, mut client) = next();
            client.write_all(b"!")?;
            let (mut reader, writer) = pipe::pipe()?;
            assert_eq!(splice(&stream, &writer, 6).await?, 6);
            assert_eq!(splice(&stream, &writer, 100).await?, 5);
            assert_eq!(splice(&stream, &writer, 100).await?, 1);
            reader.read_exact(&mut text[..12]).await?;
            assert_eq!(&text[..12], b"hello world!");

            let (stream, mut client) = next();
            client.write_all(b"!")?;
            let (mut socket, rest) = stream.into_parts();
            assert_eq!(rest, b"hello world");
            assert_eq!(socket.read(&mut text)?, 1);

            // On another engine.
            let (mut stream, mut client) = next();
            client.write_all(b"!")?;
            let elsewhere = std::thread::spawn(move || {
                Runtime::new().unwrap().try_block_on(async move {
                    let mut text = [0; 12];
                    stream.read_exact(&mut text).await.map(|()| text)
                })
            });
            assert_eq!(&elsewhere.join().unwrap().unwrap()?, b"hello world!");

            let (stream, _client) = next();
            drop(stream);
            io::Result::Ok(())
        })
        .unwrap();
    let stats = &runtime.stats()[0];
    assert_eq!(stats.reads_ahead, 8, "{stats:?}");
}

#[test]
fn no_more_is_read_than_was_asked_for() {
    let Some(runtime) = runtime() else { return };
    runtime
        .block_on(async {
            for (stream, _client) in cancelled_reads(12, b"hello world", 3).await? {
                let (mut socket, rest) = stream.into_parts();
                assert_eq!(rest, b"hel");
                let mut text = [0; 20];
                assert_eq!(socket.read(&mut text)?, 8);
            }
            io::Result::Ok(())
        })
        .unwrap();
}

#[test]
fn nothing_is_read_ahead_for_a_wait_for_readiness() {
    let Some(runtime) = runtime() else { return };
    runtime
        .block_on(async {
            let mut list = connections(12).await?;
            for (stream, _) in &mut list {
                let mut buffer = [0; 8];
                assert!(poll_once(stream.read(&mut buffer)).await.is_none());
                // The same task waits for another event now.
                assert!(poll_once(pin!(stream.readable())).await.is_none());
            }
            yield_now().await;
            for (_, client) in &mut list {
                client.write_all(b"x")?;
            }
            for (stream, _) in list {
                stream.readable().await?;
                let (_, rest) = stream.into_parts();
                assert_eq!(rest, b"");
            }
            io::Result::Ok(())
        })
        .unwrap();
}

#[test]
fn ends_and_failures_come_through() {
    let Some(runtime) = runtime() else { return };
    runtime
        .block_on(async {
            let mut tasks = Vec::new();
            let mut clients = Vec::new();
            for (place, (mut stream, client)) in connections(40).await?.into_iter().enumerate() {
                clients.push(client);
                tasks.push(spawn(async move {
                    let mut all = Vec::new();
                    let outcome = stream.read_to_end(&mut all).await;
                    (place, all, outcome.map_err(|error| error.kind()))
                }));
            }
            yield_now().await;
            for (place, client) in clients.into_iter().enumerate() {
                let mut client = client;
                if place % 3 > 0 {
                    client.write_all(&[place as u8; 50])?;
                }
                if place % 4 == 0 {
                    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO))?;
                }
            }
            for task in tasks {
                let (place, all, outcome) = task.await.unwrap();
                if place % 4 == 0 {
                    assert_eq!(outcome, Err(io::ErrorKind::ConnectionReset), "{place}");
                } else {
                    let expected = vec![place as u8; if place % 3 > 0 { 50 } else { 0 }];
                    assert_eq!((all, outcome), (expected.clone(), Ok(expected.len())), "{place}");
                }
            }
            io::Result::Ok(())
        })
        .unwrap();
}

#[test]
fn streams_stay_whole_while_reads_are_cancelled_continually() {
    let Some(runtime) = runtime() else { return };
    const BYTES: usize = 20_000;
    const FIRST: &[u8] = b"first";
    let byte = |place: usize, n: usize| match FIRST.get(n) {
        Some(&byte) => byte,
        None => (n * 7 + n / 256 + place) as u8,
    };
    runtime
        .block_on(async {
            let mut tasks = Vec::new();
            let mut threads = Vec::new();
            // The first bytes reach all connections at once, so at least those are fetched however
            // the threads are scheduled.
            let list = cancelled_reads(24, FIRST, 100).await?;
            for (place, (mut stream, mut client)) in list.into_iter().enumerate() {
                threads.push(std::thread::spawn(move || {
                    let bytes: Vec<u8> = (FIRST.len()..BYTES).map(|n| byte(place, n)).collect();
                    for chunk in bytes.chunks(1 + place * 13) {
                        client.write_all(chunk).unwrap();
                        if chunk[0] % 16 == 0 {
                            std::thread::yield_now();
                        }
                    }
                }));
                tasks.push(spawn(async move {
                    let mut got = 0;
                    let mut buffer = vec![0; 1 + place * 11];
                    while got < BYTES {
                        let read = async { Some(stream.read(&mut buffer).await) };
                        let cancelled = async {
                            if got % 3 == 0 {
                                yield_now().await
                            } else {
                                sleep(Duration::from_micros(20)).await
                            }
                            None
                        };
                        let Some(count) = or(read, cancelled).await else { continue };
                        let count = count.unwrap();
                        assert!(count > 0, "connection {place} ends after {got}");
                        for (n, &received) in (got..).zip(&buffer[..count]) {
                            assert_eq!(received, byte(place, n), "{place}, byte {n}");
                        }
                        got += count;
                    }
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
            for thread in threads {
                thread.join().unwrap();
            }
            io::Result::Ok(())
        })
        .unwrap();
    let stats = &runtime.stats()[0];
    assert!(stats.reads_ahead > 0, "{stats:?}");
}

#[test]
fn a_receive_is_not_overtaken_by_a_read_cancelled_just_before() {
    let Some(runtime) = runtime() else { return };
    let run = async {
        let mut clients = Vec::new();
        let mut tasks = Vec::new();
        for (mut stream, client) in connections(8).await? {
            clients.push(client);
            tasks.push(spawn(async move {
                let mut byte = [0];
                let read = async { stream.read(&mut byte).await };
                let limit = async {
                    sleep(Duration::from_millis(1)).await;
                    io::Result::Ok(0)
                };
                // After a long pause of the thread, bytes that are there win against the limit.
                let count = or(limit, read).await?;
                let mut all = byte[..count].to_vec();
                while all.len() < 10 {
                    let (count, buffer) = recv(&stream, Vec::with_capacity(100)).await;
                    assert!(count? > 0);
                    all.extend_from_slice(&buffer);
                }
                io::Result::Ok(all)
            }));
        }
        yield_now().await;
        for client in &mut clients {
            client.write_all(b"0123456789")?;
        }
        // The engine finds the bytes and the end of the patience at once.
        std::thread::sleep(Duration::from_millis(5));
        for task in tasks {
            assert_eq!(task.await.unwrap()?, b"0123456789");
        }
        io::Result::Ok(())
    };
    runtime.block_on(run).unwrap();
}

/// A waker that takes streams apart when it is called.
struct TakesApart {
    streams: Mutex<Vec<TcpStream>>,
    found: Mutex<Vec<Vec<u8>>>,
}

impl Wake for TakesApart {
    fn wake(self: Arc<Self>) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let (socket, mut bytes) = stream.into_parts();
            let mut rest = [0; 100];
            match (&socket).read(&mut rest) {
                Ok(count) => bytes.extend_from_slice(&rest[..count]),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            self.found.lock().unwrap().push(bytes);
        }
    }
}

#[test]
fn a_waker_finds_all_reads_of_its_batch_done() {
    let Some(runtime) = runtime() else { return };
    runtime
        .block_on(async {
            let list = connections(20).await?;
            let (mut streams, mut clients): (Vec<_>, Vec<_>) = list.into_iter().unzip();
            let wakes = Arc::new(TakesApart { streams: Mutex::default(), found: Mutex::default() });
            let waker = Waker::from(wakes.clone());
            let mut cx = Context::from_waker(&waker);
            for stream in &mut streams {
                let mut room = [0; 100];
                let read = futures_io::AsyncRead::poll_read(Pin::new(stream), &mut cx, &mut room);
                assert!(read.is_pending());
            }
            yield_now().await;
            *wakes.streams.lock().unwrap() = streams;
            for client in &mut clients {
                client.write_all(b"hello")?;
            }
            while wakes.found.lock().unwrap().is_empty() {
                yield_now().await;
            }
            assert_eq!(*wakes.found.lock().unwrap(), vec![b"hello".to_vec(); 20]);
            io::Result::Ok(())
        })
        .unwrap();
}

thread_local! {
    /// Given up by the next call of a [`GivesUp`].
    static RECEIVE: RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>> = const { RefCell::new(None) };
}

/// A waker that gives a receive up when it is called.
struct GivesUp;

impl Wake for GivesUp {
    fn wake(self: Arc<Self>) {
        drop(RECEIVE.take());
    }
}

#[test]
fn a_receive_cancelled_by_the_waker_of_another_read_loses_nothing() {
    let Some(runtime) = runtime() else { return };
    runtime
        .block_on(async {
            let mut list = connections(21).await?;
            let (received, mut sender) = list.pop().unwrap();
            let received = Rc::new(received);
            let waker = Waker::from(Arc::new(GivesUp));
            let mut cx = Context::from_waker(&waker);
            for (stream, _) in &mut list {
                let mut room = [0; 100];
                let read = futures_io::AsyncRead::poll_read(Pin::new(stream), &mut cx, &mut room);
                assert!(read.is_pending());
            }
            let stream = received.clone();
            let mut receive: Pin<Box<dyn Future<Output = ()>>> =
                Box::pin(async move { drop(recv(&*stream, Vec::with_capacity(100)).await) });
            assert!(poll_once(receive.as_mut()).await.is_none());
            RECEIVE.set(Some(receive));
            yield_now().await;
            for (_, client) in &mut list {
                client.write_all(b"hello")?;
            }
            // This many readable streams are read by the next wait, which brings this event, too.
            yield_now().await;
            sender.write_all(b"kept")?;
            sender.shutdown(std::net::Shutdown::Write)?;
            while Rc::strong_count(&received) > 1 {
                yield_now().await;
            }
            let mut bytes = Vec::new();
            (&*received).read_to_end(&mut bytes).await?;
            assert_eq!(bytes, b"kept");
            io::Result::Ok(())
        })
        .unwrap();
}

#[test]
fn a_wait_that_fails_holds_up_no_thread_that_has_a_stream_of_its_engine() {
    if !BackendKind::Uring.is_available() {
        eprintln!("skipped: uring is not available here");
        return;
    }
    // The filter stays for the life of a thread.
    let failing = thread::spawn(|| {
        let runtime = runtime().unwrap();
        let (streams, arriving) = mpsc::channel();
        let failed = runtime.try_block_on(async {
            let mut list = connections(8).await.unwrap();
            for (stream, client) in &mut list {
                let mut room = [0; 64];
                let read = poll_fn(|cx| {
                    futures_io::AsyncRead::poll_read(Pin::new(&mut *stream), cx, &mut room)
                });
                assert!(poll_once(read).await.is_none());
                client.write_all(b"hello").unwrap();
            }
            // The wait of this turn finds them readable, and the next one is going to read.
            yield_now().await;
            sys::refuse_use_of_rings(libc::EIO).unwrap();
            streams.send(list).unwrap();
            std::future::pending::<()>().await;
        });
        assert!(matches!(&failed, Err(Error::Poller(_))), "{failed:?}");
        let (done, ended) = mpsc::channel();
        thread::spawn(move || {
            let mut list = arriving.recv().unwrap();
            let (mut stream, _client) = list.pop().unwrap();
            let other = Runtime::builder().backend(BackendKind::Epoll).build().unwrap();
            let read = other.block_on(stream.read(&mut [0; 64]));
            let (apart, _client) = list.pop().unwrap();
            let lost = apart.try_read(&mut [0; 64]).map_err(|error| error.kind());
            drop(list);
            done.send((read.map_err(|error| error.kind()), lost)).unwrap();
        });
        let ended = ended.recv_timeout(Duration::from_secs(20));
        let (read, tried) = ended.expect("a thread waits for a read that will never be made");
        // Whether the kernel has read is not known, so no bytes are passed over in silence.
        assert!(read.is_err() && tried.is_err(), "{read:?} {tried:?}");
        let again = runtime.try_block_on(yield_now());
        assert!(
            matches!(&again, Err(Error::Poller(_))),
            "it goes on without its streams: {again:?}"
        );
    });
    failing.join().unwrap();
}
