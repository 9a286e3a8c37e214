//! Work that one operation does repeatedly, and operations in an order that the kernel keeps:
//! chunks of a stream, connections of a listener, and the end behind the last byte.

use std::io;
use std::net::Shutdown;
use std::pin::pin;
use std::time::Duration;

use futures_lite::future::{or, poll_once, yield_now, zip};
use futures_lite::{AsyncBufReadExt, AsyncReadExt, StreamExt};
use superpoll_rt::completion::{
    Chunk, Chunks, Incoming, accept, recv, send, send_all, send_all_and_shutdown,
};
use superpoll_rt::net::unix::{UnixListener, UnixStream};
use superpoll_rt::net::{TcpListener, TcpStream};
use superpoll_rt::time::sleep;
use superpoll_rt::{BackendKind, spawn};

use crate::child_process;
use crate::stage::{
    arrived, byte, descriptors, everywhere, in_each, runtime, send_chunks, some_turns, tcp_pair,
};

#[test]
fn chunks_come_until_the_end() {
    everywhere(|_| async {
        let (one, other) = tcp_pair().await?;
        let bytes: Vec<u8> = (0..2_000_000).map(|n| byte(0, n)).collect();
        let expected = bytes.clone();
        let sender = spawn(async move { send_all_and_shutdown(&one, bytes).await.0.map(|_| one) });
        let mut chunks = Chunks::new(&other);
        let mut all = Vec::new();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk?;
            assert!((1..=4096).contains(&chunk.len()));
            all.extend_from_slice(&chunk);
        }
        assert!(all == expected);
        assert!(chunks.next().await.is_none());
        let one = sender.await.unwrap()?;
        // The other direction goes on.
        send(&other, b"bye".to_vec()).await.0?;
        assert_eq!(recv(&one, Vec::with_capacity(9)).await.1, b"bye");
        Ok(())
    });
}

#[test]
fn lines_are_lent_from_chunks() {
    everywhere(|_| async {
        let (one, other) = UnixStream::pair()?;
        let text: String = (0..3000).map(|n| format!("line {n}\n")).collect();
        let sender = spawn(async move {
            for piece in text.as_bytes().chunks(700) {
                send_all(&one, piece.to_vec()).await.0.unwrap();
                yield_now().await;
            }
        });
        let mut chunks = Chunks::new(&other);
        for n in 0..1000 {
            let mut line = String::new();
            chunks.read_line(&mut line).await?;
            assert_eq!(line, format!("line {n}\n"));
        }
        // The rest of the chunk goes to the stream, and to its next reader.
        drop(chunks);
        let mut byte = [0; 5];
        (&mut &other).read_exact(&mut byte).await?;
        assert_eq!(&byte, b"line ");
        let mut chunks = Chunks::new(&other);
        let mut lines = (&mut chunks).lines();
        assert_eq!(lines.next().await.unwrap()?, "1000");
        let mut count = 1001;
        while let Some(line) = lines.next().await {
            assert_eq!(line?, format!("line {count}"));
            count += 1;
        }
        assert_eq!(count, 3000);
        sender.await.unwrap();
        Ok(())
    });
}

#[test]
fn an_idle_stream_owns_no_buffer_and_a_slow_reader_takes_only_its_own() {
    everywhere(|kind| async move {
        // Enough bytes for a task that does not read to take all buffers for itself.
        let (flood, slow) = tcp_pair().await?;
        let mut slow_chunks = Chunks::new(&slow);
        assert!(poll_once(pin!(slow_chunks.next())).await.is_none());
        let flooding = spawn(async move {
            let bytes = (0..10_000_000).map(|n| byte(1, n)).collect();
            send_all_and_shutdown(&flood, bytes).await.0
        });
        let (one, other) = tcp_pair().await?;
        let mut chunks = Chunks::new(&other);
        for n in 0..100 {
            some_turns().await;
            send(&one, vec![n; 10]).await.0?;
            assert_eq!(chunks.next().await.unwrap()?[..], [n; 10], "{kind}");
        }
        let mut got = 0;
        while let Some(chunk) = slow_chunks.next().await {
            for &found in &chunk?[..] {
                assert_eq!(found, byte(1, got), "{kind}, byte {got}");
                got += 1;
            }
        }
        assert_eq!((got, flooding.await.unwrap()?), (10_000_000, 10_000_000));
        Ok(())
    });
}

#[test]
fn more_streams_than_buffers() {
    // In a process of its own: other tests could not open descriptors that `select` can watch.
    if !child_process::is_child() {
        return child_process::run_under("ulimit -n 4096", "multishot::more_streams_than_buffers");
    }
    let kinds = BackendKind::available();
    in_each(kinds.into_iter().filter(|&kind| kind != BackendKind::Select), |kind| async move {
        const STREAMS: usize = 1100;
        let pairs: io::Result<Vec<_>> = (0..STREAMS).map(|_| UnixStream::pair()).collect();
        let pairs = pairs?;
        let mut streams: Vec<_> = pairs.iter().map(|(one, _)| Chunks::new(one)).collect();
        for (place, (_, other)) in pairs.iter().enumerate() {
            send(other, place.to_ne_bytes().to_vec()).await.0?;
        }
        // Each stream keeps its chunk until no buffer is left.
        let mut kept: Vec<Option<Chunk>> = Vec::new();
        kept.resize_with(STREAMS, || None);
        for _ in 0..20 {
            for (chunks, kept) in streams.iter_mut().zip(&mut kept) {
                if kept.is_none() {
                    *kept = poll_once(pin!(chunks.next())).await.flatten().transpose()?;
                }
            }
            some_turns().await;
        }
        let most = if kind == BackendKind::Uring { 1024 } else { STREAMS };
        assert_eq!(kept.iter().flatten().count(), most, "{kind}");
        let check = |place: usize, chunk: &Chunk| {
            assert_eq!(chunk[..], place.to_ne_bytes(), "{kind}");
        };
        for (place, kept) in kept.iter_mut().enumerate() {
            if let Some(chunk) = kept.take() {
                check(place, &chunk);
                // Nothing more comes from those streams.
                let mut next = pin!(streams[place].next());
                assert!(poll_once(next.as_mut()).await.is_none());
            } else {
                check(place, &streams[place].next().await.unwrap()?);
            }
        }
        Ok(())
    });
}

#[test]
fn chunks_are_cancelled_continually() {
    everywhere(|kind| async move {
        const BYTES: usize = 60_000;
        let mut tasks = Vec::new();
        for place in 0..10 {
            let (receiver, sender) = tcp_pair().await?;
            tasks.push(spawn(send_chunks(sender, place, BYTES, 1 + place * 57)));
            tasks.push(spawn(async move {
                let (mut got, mut rounds) = (0, 0);
                let mut check = |found: &[u8]| {
                    for (n, &found) in (got..).zip(found) {
                        assert_eq!(found, byte(place, n), "{kind}: stream {place}, byte {n}");
                    }
                    got += found.len();
                    got
                };
                while check(&[]) < BYTES {
                    rounds += 1;
                    let mut chunks = Chunks::new(&receiver);
                    let some = async {
                        for _ in 0..rounds % 7 {
                            match rounds % 2 {
                                0 => match chunks.next().await {
                                    Some(chunk) => check(&chunk.unwrap()),
                                    None => return assert_eq!(check(&[]), BYTES),
                                },
                                _ => {
                                    let mut bytes = [0; 99];
                                    let count = chunks.read(&mut bytes).await.unwrap();
                                    check(&bytes[..count])
                                }
                            };
                        }
                    };
                    let patience = async {
                        match rounds % 3 {
                            0 => some_turns().await,
                            _ => sleep(Duration::from_micros(40)).await,
                        }
                    };
                    or(some, patience).await;
                    drop(chunks);
                    if rounds % 4 == 0 && check(&[]) < BYTES {
                        let (_, bytes) = recv(&receiver, Vec::with_capacity(300)).await;
                        assert_ne!(bytes.len(), 0);
                        check(&bytes);
                    }
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        Ok(())
    });
}

#[test]
fn a_failure_is_returned_once_and_ends_nothing_else() {
    everywhere(|kind| async move {
        let (one, other) = tcp_pair().await?;
        let mut chunks = Chunks::new(&other);
        assert!(poll_once(pin!(chunks.next())).await.is_none());
        some_turns().await;
        socket2::SockRef::from(&one).set_linger(Some(Duration::ZERO))?;
        drop(one);
        let failed = chunks.next().await.unwrap().unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::ConnectionReset, "{kind}");
        assert!(chunks.next().await.is_none());
        Ok(())
    });
}

#[test]
fn connections_come_in_one_after_the_other() {
    everywhere(|kind| async move {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut incoming = Incoming::new(&listener);
        assert!(poll_once(pin!(incoming.next())).await.is_none());
        some_turns().await;
        // More connections than are accepted ahead.
        let clients: io::Result<Vec<_>> = (0..100).map(|_| arrived(address)).collect();
        let clients = clients?;
        some_turns().await;
        for client in &clients[..50] {
            let stream = incoming.next().await?;
            assert_eq!(stream.peer_addr()?, client.local_addr()?, "{kind}");
        }
        drop(incoming);
        for client in &clients[50..60] {
            assert_eq!(accept(&listener).await?.1, client.local_addr()?, "{kind}");
        }
        for client in &clients[60..70] {
            assert_eq!(listener.accept().await?.1, client.local_addr()?, "{kind}");
        }
        let mut incoming = Incoming::new(&listener);
        for client in &clients[70..] {
            let stream = StreamExt::next(&mut incoming).await.unwrap()?;
            assert_eq!(stream.peer_addr()?, client.local_addr()?, "{kind}");
        }
        assert!(poll_once(pin!(incoming.next())).await.is_none());
        Ok(())
    });
}

#[test]
fn unix_connections_come_in_as_well() {
    everywhere(|_| async {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path)?;
        let mut incoming = Incoming::new(&listener);
        for round in 0..20u8 {
            let (server, client) = zip(incoming.next(), UnixStream::connect(&path)).await;
            send(&client?, vec![round]).await.0?;
            assert_eq!(recv(&server?, Vec::with_capacity(4)).await.1, [round]);
        }
        Ok(())
    });
}

#[test]
fn no_connection_is_lost_while_accepts_are_cancelled() {
    everywhere(|kind| async move {
        const CLIENTS: usize = 200;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let clients = std::thread::spawn(move || {
            let connect = |n: usize| {
                if n.is_multiple_of(9) {
                    std::thread::sleep(Duration::from_micros(300));
                }
                arrived(address).unwrap()
            };
            (0..CLIENTS).map(connect).collect::<Vec<_>>()
        });
        let mut accepted = Vec::new();
        let mut round = 0usize;
        while accepted.len() < CLIENTS {
            round += 1;
            let taken = or(
                async {
                    match round % 3 {
                        0 => Some(accept(&listener).await.unwrap().0),
                        1 => Some(Incoming::new(&listener).next().await.unwrap()),
                        _ => Some(listener.accept().await.unwrap().0),
                    }
                },
                async {
                    match round % 2 {
                        0 => yield_now().await,
                        _ => sleep(Duration::from_micros(50)).await,
                    }
                    None
                },
            );
            accepted.extend(taken.await);
        }
        let mut expected = Vec::new();
        for client in clients.join().unwrap() {
            expected.push(client.local_addr()?);
        }
        let found: io::Result<Vec<_>> = accepted.iter().map(TcpStream::peer_addr).collect();
        assert_eq!(found?, expected, "{kind}");
        Ok(())
    });
}

#[test]
fn the_end_comes_behind_the_last_byte() {
    everywhere(|kind| async move {
        for length in [0, 1, 3000, 4_000_000] {
            let (one, other) = tcp_pair().await?;
            let bytes: Vec<u8> = (0..length).map(|n| byte(3, n)).collect();
            let expected = bytes.clone();
            let receiver = spawn(async move {
                let mut all = Vec::new();
                (&mut &other).read_to_end(&mut all).await.map(|_| all)
            });
            let (sent, bytes) = send_all_and_shutdown(&one, bytes).await;
            assert_eq!((sent?, bytes.len()), (length, length), "{kind}");
            assert!(receiver.await.unwrap()? == expected);
            let failed = send(&one, b"x".to_vec()).await.0.unwrap_err();
            assert_eq!(failed.kind(), io::ErrorKind::BrokenPipe, "{kind}");
        }
        let (one, other) = UnixStream::pair()?;
        drop(other);
        let (failed, bytes) = send_all_and_shutdown(&one, b"text".to_vec()).await;
        let failed = failed.unwrap_err().kind();
        assert_eq!((failed, &bytes[..]), (io::ErrorKind::BrokenPipe, &b"text"[..]), "{kind}");

        // When it is given up, it may have sent all or a part, and may have ended the stream only
        // after all.
        for _ in 0..10 {
            let (one, other) = UnixStream::pair()?;
            {
                let mut sending = pin!(send_all_and_shutdown(&one, vec![7; 1_000_000]));
                assert!(poll_once(sending.as_mut()).await.is_none());
                some_turns().await;
            }
            one.shutdown(Shutdown::Write)?;
            let mut all = Vec::new();
            (&mut &other).read_to_end(&mut all).await?;
            assert!(all.len() < 1_000_000 && all.iter().all(|&byte| byte == 7));
        }
        Ok(())
    });
}

#[test]
fn they_go_on_in_another_engine() {
    for kind in BackendKind::available() {
        let engines = [runtime(kind), runtime(kind)];
        let (one, other) = engines[0].block_on(tcp_pair()).unwrap();
        let listener = engines[0].block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let mut chunks = Chunks::new(&one);
        let mut incoming = Incoming::new(&listener);
        let mut clients = Vec::new();
        let (mut sent, mut got, mut accepted) = (0, 0, 0);
        for round in 0..20 {
            let engine = &engines[round % 2];
            clients.push(arrived(address).unwrap());
            let turn = async {
                // More than is taken, so that some bytes are left to the other engine.
                let bytes: Vec<u8> = (sent..sent + 6000).map(|n| byte(5, n)).collect();
                sent += send_all(&other, bytes).await.0?;
                let mut chunk = chunks.next().await.unwrap()?;
                loop {
                    for &found in &chunk[..] {
                        assert_eq!(found, byte(5, got), "{kind}, byte {got}");
                        got += 1;
                    }
                    if got + 3000 >= sent {
                        break;
                    }
                    chunk = chunks.next().await.unwrap()?;
                }
                if round % 3 > 0 {
                    let stream = incoming.next().await?;
                    assert_eq!(stream.peer_addr()?, clients[accepted].local_addr()?);
                    accepted += 1;
                }
                drop(chunk);
                some_turns().await;
                io::Result::Ok(())
            };
            engine.block_on(turn).unwrap();
        }
        drop(engines);
        // Their engines are gone, and the bytes that they had brought belong to the stream.
        drop((chunks, incoming));
        let rest = async {
            for client in &clients[accepted..] {
                assert_eq!(listener.accept().await?.1, client.local_addr()?);
            }
            let mut bytes = vec![0; sent - got];
            (&mut &one).read_exact(&mut bytes).await?;
            assert!((got..).zip(bytes).all(|(n, found)| found == byte(5, n)));
            io::Result::Ok(())
        };
        runtime(kind).block_on(rest).unwrap();
    }
}

/// Open descriptors are counted in a process in which nothing else runs.
#[test]
fn everything_is_closed_in_the_end() {
    if !child_process::is_child() {
        return child_process::run_under(
            "ulimit -n 512",
            "multishot::everything_is_closed_in_the_end",
        );
    }
    let round = |kind| {
        let runtime = runtime(kind);
        runtime
            .block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let address = listener.local_addr()?;
                let (one, other) = tcp_pair().await?;
                // Streams and listeners that are dropped while something is under way, and tasks
                // that end with the engine.
                let (here, there) = tcp_pair().await?;
                let mut chunks = Box::pin(Chunks::new(&here));
                assert!(poll_once(pin!(chunks.next())).await.is_none());
                some_turns().await;
                send(&there, vec![1; 10_000]).await.0?;
                some_turns().await;
                drop(chunks);
                spawn(async move {
                    let mut chunks = Chunks::new(&one);
                    while let Some(Ok(_)) = chunks.next().await {}
                })
                .detach();
                spawn(async move {
                    let mut incoming = Incoming::new(&listener);
                    let first = incoming.next().await;
                    sleep(Duration::from_secs(1000)).await;
                    drop(first);
                })
                .detach();
                some_turns().await;
                let clients: io::Result<Vec<_>> =
                    (0..40).map(|_| std::net::TcpStream::connect(address)).collect();
                some_turns().await;
                send(&other, vec![1; 100]).await.0?;
                let mut sending = Box::pin(send_all_and_shutdown(&other, vec![1; 1_000_000]));
                let _ = poll_once(&mut sending).await;
                yield_now().await;
                drop(sending);
                clients.map(drop)
            })
            .unwrap();
    };
    for kind in BackendKind::available() {
        round(kind);
        let before = descriptors();
        for _ in 0..10 {
            round(kind);
        }
        assert_eq!(descriptors(), before, "{kind}");
    }
}
