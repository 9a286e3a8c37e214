//! One operation after the other: the effect of each, its failures, and the fate of an operation
//! that is given up.

use std::io::{self, Read};
use std::net::{Ipv4Addr, Shutdown};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::time::Duration;

use futures_lite::future::{or, poll_once, yield_now, zip};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::completion::{accept, connect, read, recv, send, send_all, write};
use superpoll_rt::net::unix::{UnixListener, UnixStream};
use superpoll_rt::net::{ListenOptions, TcpListener, TcpStream};
use superpoll_rt::time::sleep;
use superpoll_rt::transfer::splice;
use superpoll_rt::{BackendKind, Runtime, pipe, spawn};

use crate::child_process;
use crate::stage::{
    arrived, byte, descriptors, everywhere, runtime, send_chunks, some_turns, tcp_pair,
};

fn room(capacity: usize) -> Vec<u8> {
    Vec::with_capacity(capacity)
}

#[test]
fn bytes_go_back_and_forth() {
    everywhere(|_| async {
        let (one, other) = tcp_pair().await?;
        let (here, there) = UnixStream::pair()?;
        for round in 0..20 {
            let text = vec![round; 100 + usize::from(round)];
            let (received, sent) = zip(recv(&other, room(1000)), send(&one, text.clone())).await;
            assert_eq!((sent.0?, &sent.1), (text.len(), &text));
            assert_eq!((received.0?, &received.1), (text.len(), &text));
            let (sent, received) = zip(send_all(&here, text.clone()), recv(&there, room(50))).await;
            assert_eq!((sent.0?, received.0?), (text.len(), 50));
            let (rest, bytes) = read(&there, room(1000)).await;
            assert_eq!((rest?, bytes), (text.len() - 50, text[50..].to_vec()));
        }
        let (count, buffer) = recv(&one, Vec::new()).await;
        assert_eq!((count?, buffer.len()), (0, 0));
        assert_eq!(send(&one, Vec::new()).await.0?, 0);
        assert_eq!(send_all(&one, Vec::new()).await.0?, 0);
        Ok(())
    });
}

#[test]
fn a_receive_replaces_the_bytes_of_its_buffer_and_the_end_stays() {
    everywhere(|_| async {
        let (one, other) = UnixStream::pair()?;
        send(&one, b"hello".to_vec()).await.0?;
        let mut buffer = b"some old text".to_vec();
        buffer.reserve(100);
        let capacity = buffer.capacity();
        let (count, buffer) = recv(&other, buffer).await;
        assert_eq!((count?, &buffer[..], buffer.capacity()), (5, &b"hello"[..], capacity));
        drop(one);
        for _ in 0..2 {
            let (count, rest) = recv(&other, buffer.clone()).await;
            assert_eq!((count?, rest.len()), (0, 0));
        }
        Ok(())
    });
}

#[test]
fn pipes_are_read_and_written() {
    everywhere(|_| async {
        let (reader, writer) = pipe::pipe()?;
        let (bytes, written) =
            zip(read(&reader, room(10)), write(&writer, b"hello".to_vec())).await;
        assert_eq!((bytes.0?, bytes.1, written.0?), (5, b"hello".to_vec(), 5));
        // Until it is full.
        let mut written = 0;
        loop {
            let writing = async { Some(write(&writer, vec![1; 4096]).await.0) };
            let patience = async {
                some_turns().await;
                None
            };
            let Some(count) = or(writing, patience).await else { break };
            written += count?;
        }
        drop(writer);
        let mut all = 0;
        loop {
            match read(&reader, room(5000)).await.0? {
                0 => break,
                count => all += count,
            }
        }
        assert!(all > 0 && all == written);
        let (reader, writer) = pipe::pipe()?;
        drop(reader);
        let (refused, bytes) = write(&writer, b"x".to_vec()).await;
        assert_eq!(
            (refused.unwrap_err().kind(), &bytes[..]),
            (io::ErrorKind::BrokenPipe, &b"x"[..])
        );
        Ok(())
    });
}

#[test]
fn a_long_send_waits_for_room_to_its_last_byte() {
    everywhere(|_| async {
        let (one, other) = tcp_pair().await?;
        let bytes: Vec<u8> = (0..5_000_000u32).map(|n| (n / 11) as u8).collect();
        let expected = bytes.clone();
        let receiver = spawn(async move {
            let (mut all, mut buffer) = (Vec::new(), room(100_000));
            loop {
                let (count, bytes) = recv(&other, buffer).await;
                if count? == 0 {
                    return io::Result::Ok(all);
                }
                all.extend_from_slice(&bytes);
                buffer = bytes;
            }
        });
        let (sent, bytes) = send_all(&one, bytes).await;
        assert_eq!((sent?, bytes.len()), (expected.len(), expected.len()));
        drop(one);
        assert!(receiver.await.unwrap()? == expected);
        Ok(())
    });
}

#[test]
fn failures_are_the_same() {
    everywhere(|_| async {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        drop(listener);
        assert_eq!(connect(address).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);

        let (one, other) = tcp_pair().await?;
        send(&one, b"unread".to_vec()).await.0?;
        socket2::SockRef::from(&one).set_linger(Some(Duration::ZERO))?;
        drop(one);
        let mut kinds = Vec::new();
        for _ in 0..3 {
            kinds.push(recv(&other, room(100)).await.0.map_err(|error| error.kind()));
        }
        // The kernel reports a failure once.
        assert_eq!(kinds, [Ok(6), Err(io::ErrorKind::ConnectionReset), Ok(0)]);
        assert_eq!(
            send(&other, b"x".to_vec()).await.0.unwrap_err().kind(),
            io::ErrorKind::BrokenPipe
        );
        let (failed, bytes) = send_all(&other, b"text".to_vec()).await;
        assert_eq!(
            (failed.unwrap_err().kind(), bytes),
            (io::ErrorKind::BrokenPipe, b"text".to_vec())
        );

        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        let unconnected = TcpStream::from_std(socket.into())?;
        let (failed, _) = recv(&unconnected, room(10)).await;
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::NotConnected);

        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        let listener = TcpListener::from_std(socket.into())?;
        let failed = accept(&listener).await.unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(libc::EINVAL));
        Ok(())
    });
}

#[test]
fn accepting_says_where_connections_come_from() {
    everywhere(|_| async {
        let listener = TcpListener::bind("[::1]:0").await?;
        let client = std::net::TcpStream::connect(listener.local_addr()?)?;
        let (stream, peer) = accept(&listener).await?;
        assert_eq!(peer, client.local_addr()?);
        assert_eq!(stream.peer_addr()?, peer);

        let folder = tempfile::tempdir()?;
        let listener = UnixListener::bind(folder.path().join("socket"))?;
        let address = listener.local_addr()?;
        let (client, accepted) = zip(UnixStream::connect_addr(&address), accept(&listener)).await;
        let (stream, peer) = accepted?;
        assert!(peer.is_unnamed());
        send(&client?, b"hello".to_vec()).await.0?;
        assert_eq!(recv(&stream, room(9)).await.1, b"hello");

        // Listeners that take turns accept by readiness.
        let listener = ListenOptions::new().exclusive(true).bind("127.0.0.1:0").await?;
        let _client = std::net::TcpStream::connect(listener.local_addr()?)?;
        accept(&listener).await?;
        Ok(())
    });
}

#[test]
fn an_idle_operation_does_not_block_other_operations() {
    everywhere(|kind| async move {
        let (one, other) = tcp_pair().await?;
        let waiting = spawn(async move { recv(&one, room(10)).await.0 });
        for _ in 0..10 {
            sleep(Duration::from_micros(100)).await;
        }
        assert!(!waiting.is_finished(), "{kind}");
        drop(other);
        assert_eq!(waiting.await.unwrap()?, 0);
        Ok(())
    });
}

/// A read of each kind finds the bytes of a receive that was given up.
#[test]
fn nothing_is_lost_when_a_receive_is_cancelled() {
    everywhere(|kind| async move {
        for way in 0..9 {
            let (mut stream, other) = UnixStream::pair()?;
            for _ in 0..20 {
                {
                    let mut receiving = pin!(recv(&stream, room(100)));
                    assert!(poll_once(receiving.as_mut()).await.is_none());
                    yield_now().await;
                    (&mut &other).write_all(b"hello").await?;
                    // The engine may have received it by now.
                    if way % 2 == 0 {
                        some_turns().await;
                    }
                }
                let mut text = [0; 5];
                match way {
                    0 => assert_eq!(recv(&stream, room(5)).await.1, b"hello"),
                    1 => stream.read_exact(&mut text).await?,
                    2 => {
                        stream.readable().await?;
                        assert_eq!(stream.try_read(&mut text)?, 5);
                    }
                    3 => assert_eq!(stream.recv_with_fds(&mut text, 1).await?.length, 5),
                    4 => {
                        let mut rooms =
                            [io::IoSliceMut::new(&mut []), io::IoSliceMut::new(&mut text)];
                        assert_eq!(stream.read_vectored(&mut rooms).await?, 5);
                    }
                    5 => {
                        let (reader, writer) = pipe::pipe()?;
                        assert_eq!(splice(&stream, &writer, 100).await?, 5);
                        assert_eq!(read(&reader, room(100)).await.1, b"hello");
                    }
                    6 => {
                        let mut read = superpoll_rt::hyper::FuturesIo::new(&mut stream);
                        read.get_mut().read_exact(&mut text).await?;
                    }
                    7 => {
                        let (first, second) =
                            (recv(&stream, room(2)).await, recv(&stream, room(9)).await);
                        assert_eq!([first.1, second.1].concat(), b"hello");
                    }
                    _ => {
                        let (socket, mut rest) = stream.into_parts();
                        socket.set_nonblocking(false)?;
                        rest.resize(5, 0);
                        if rest == [0; 5] {
                            (&socket).read_exact(&mut rest)?;
                        }
                        assert_eq!(rest, b"hello", "{kind}");
                        stream = UnixStream::from_std(socket)?;
                    }
                }
                if (1..5).contains(&way) && way != 2 || way == 6 {
                    assert_eq!(&text, b"hello", "{kind}, {way}");
                }
            }
        }
        Ok(())
    });
}

#[test]
fn streams_stay_whole_while_receives_are_cancelled_continually() {
    everywhere(|kind| async move {
        const BYTES: usize = 30_000;
        let mut tasks = Vec::new();
        for place in 0..12 {
            let (receiver, sender) = tcp_pair().await?;
            tasks.push(spawn(send_chunks(sender, place, BYTES, 1 + place * 37)));
            tasks.push(spawn(async move {
                let mut receiver = receiver;
                let (mut got, mut cancelled) = (0, 0u32);
                while got < BYTES {
                    let most = 1 + (got * 31 + place) % 700;
                    let received = if got % 5 == 0 {
                        let mut bytes = vec![0; most];
                        let count = receiver.read(&mut bytes).await.unwrap();
                        bytes.truncate(count);
                        Some(bytes)
                    } else {
                        let receive = async {
                            let (count, bytes) = recv(&receiver, room(most)).await;
                            assert_eq!(count.unwrap(), bytes.len());
                            Some(bytes)
                        };
                        let patience = async {
                            match (got + cancelled as usize) % 3 {
                                0 => yield_now().await,
                                1 => some_turns().await,
                                _ => sleep(Duration::from_micros(30)).await,
                            }
                            None
                        };
                        or(receive, patience).await
                    };
                    let Some(bytes) = received else {
                        cancelled += 1;
                        continue;
                    };
                    assert!(!bytes.is_empty(), "{kind}: connection {place} ends after {got}");
                    for (n, &found) in (got..).zip(&bytes) {
                        assert_eq!(found, byte(place, n), "{kind}: connection {place}, byte {n}");
                    }
                    got += bytes.len();
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
fn a_connection_of_a_cancelled_accept_goes_to_the_next_accept() {
    everywhere(|kind| async move {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        for way in 0..30 {
            let client;
            {
                let mut accepting = pin!(accept(&listener));
                assert!(poll_once(accepting.as_mut()).await.is_none());
                yield_now().await;
                client = std::net::TcpStream::connect(address)?;
                if way % 2 == 0 {
                    some_turns().await;
                }
            }
            let (_, peer) =
                if way % 3 == 0 { accept(&listener).await? } else { listener.accept().await? };
            assert_eq!(peer, client.local_addr()?, "{kind}");
        }
        // A task that waits in another way is woken for it.
        let listener = std::rc::Rc::new(listener);
        let other = listener.clone();
        let waiting = spawn(async move { other.accept().await.map(|(_, peer)| peer) });
        let client;
        {
            let mut accepting = pin!(accept(&*listener));
            assert!(poll_once(accepting.as_mut()).await.is_none());
            some_turns().await;
            client = std::net::TcpStream::connect(address)?;
            yield_now().await;
        }
        assert_eq!(waiting.await.unwrap()?, client.local_addr()?);
        Ok(())
    });
}

#[test]
fn connections_are_given_out_with_the_listener() {
    everywhere(|kind| async move {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let client;
        {
            let mut accepting = pin!(accept(&listener));
            assert!(poll_once(accepting.as_mut()).await.is_none());
            yield_now().await;
            client = arrived(listener.local_addr()?)?;
            some_turns().await;
        }
        let (listener, kept) = listener.into_parts();
        assert_eq!(kept.len(), usize::from(kind == BackendKind::Uring));
        let accepted = match kept.into_iter().next() {
            Some(stream) => stream.peer_addr()?,
            None => listener.accept()?.1,
        };
        assert_eq!(accepted, client.local_addr()?);
        Ok(())
    });
}

#[test]
fn attempts_and_sends_can_be_cancelled() {
    everywhere(|_| async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        for _ in 0..20 {
            let mut connecting = pin!(connect(address));
            let _ = poll_once(connecting.as_mut()).await;
        }
        let (one, other) = UnixStream::pair()?;
        for _ in 0..20 {
            let mut sending = pin!(send_all(&one, vec![7; 300_000]));
            assert!(poll_once(sending.as_mut()).await.is_none());
            yield_now().await;
        }
        // All bytes that were sent come from the given buffers.
        one.shutdown(Shutdown::Write)?;
        let mut all = Vec::new();
        (&mut &other).read_to_end(&mut all).await?;
        assert!(all.iter().all(|&byte| byte == 7));
        Ok(())
    });
}

#[test]
fn a_future_goes_on_in_another_engine() {
    for kind in BackendKind::available() {
        let (first, second) = (runtime(kind), runtime(kind));
        let (one, other) = first.block_on(tcp_pair()).unwrap();
        let listener = first.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let mut receiving = Box::pin(recv(&one, room(100)));
        let mut accepting = Box::pin(accept(&listener));
        let begin = async {
            assert!(poll_once(&mut receiving).await.is_none());
            assert!(poll_once(&mut accepting).await.is_none());
            some_turns().await;
        };
        first.block_on(begin);
        drop(first);
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        second
            .block_on(async {
                let (received, sent) = zip(receiving, send(&other, b"hello".to_vec())).await;
                assert_eq!((received.0?, received.1, sent.0?), (5, b"hello".to_vec(), 5));
                assert_eq!(accepting.await?.1, client.local_addr()?);
                io::Result::Ok(())
            })
            .unwrap();
    }
}

#[test]
fn a_future_of_an_engine_that_runs_no_more_is_polled_elsewhere_or_dropped() {
    for kind in BackendKind::available() {
        let (first, second) = (runtime(kind), runtime(kind));
        let (one, other) = first.block_on(tcp_pair()).unwrap();
        let mut receiving = Box::pin(recv(&one, room(100)));
        first.block_on(async {
            assert!(poll_once(&mut receiving).await.is_none());
            yield_now().await;
            send(&other, b"hello".to_vec()).await.0.unwrap();
        });
        // The first one is still there, and may have received it.
        let received = second.block_on(&mut receiving);
        assert_eq!((received.0.unwrap(), received.1), (5, b"hello".to_vec()));
        let mut receiving = Box::pin(recv(&one, room(100)));
        second.block_on(async {
            assert!(poll_once(&mut receiving).await.is_none());
            yield_now().await;
            send(&other, b"again".to_vec()).await.0.unwrap();
            some_turns().await;
        });
        drop(receiving);
        let received = first.block_on(recv(&one, room(100)));
        assert_eq!(received.1, b"again");
    }
}

#[test]
fn one_that_is_forgotten_ends_with_its_stream() {
    everywhere(|_| async {
        let (one, other) = UnixStream::pair()?;
        let mut receiving = Box::pin(recv(&one, room(100)));
        assert!(poll_once(&mut receiving).await.is_none());
        some_turns().await;
        std::mem::forget(receiving);
        drop(one);
        // The operation under way does not hold the file.
        assert_eq!(recv(&other, room(10)).await.0?, 0);
        some_turns().await;
        Ok(())
    });
}

#[test]
fn without_a_runtime_operations_go_by_readiness() {
    let runtime = Runtime::new().unwrap();
    let (one, mut other) = runtime.block_on(tcp_pair()).unwrap();
    let mut receiving = Box::pin(recv(&one, room(10)));
    assert!(futures_lite::future::block_on(poll_once(&mut receiving)).is_none());
    futures_lite::future::block_on(other.write_all(b"text")).unwrap();
    let (received, bytes) = futures_lite::future::block_on(receiving);
    assert_eq!((received.unwrap(), &bytes[..]), (4, &b"text"[..]));
}

/// Open descriptors are counted in a process in which nothing else runs.
#[test]
fn everything_is_closed_in_the_end() {
    if !child_process::is_child() {
        return child_process::run_under(
            "ulimit -n 256",
            "single::everything_is_closed_in_the_end",
        );
    }
    let round = |kind| {
        let runtime = runtime(kind);
        let forgotten = runtime
            .block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let address = listener.local_addr()?;
                let (one, other) = tcp_pair().await?;
                let (here, there) = UnixStream::pair()?;
                spawn(async move { recv(&one, room(10)).await.0 }).detach();
                spawn(async move { accept(&listener).await.map(drop) }).detach();
                some_turns().await;
                // Accepted when no task is left to take them.
                let clients: io::Result<Vec<_>> =
                    (0..3).map(|_| std::net::TcpStream::connect(address)).collect();
                let mut sending = Box::pin(send_all(&here, vec![1; 1_000_000]));
                assert!(poll_once(&mut sending).await.is_none());
                drop(sending);
                some_turns().await;
                io::Result::Ok((clients?, other, here, there))
            })
            .unwrap();
        drop(runtime);
        let fds: OwnedFd = forgotten.2.into_std().into();
        drop(fds);
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

#[test]
fn without_descriptors_load_is_shed() {
    if !child_process::is_child() {
        return child_process::run_under(
            "ulimit -n 64",
            "single::without_descriptors_load_is_shed",
        );
    }
    everywhere(|kind| async move {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let client = std::net::TcpStream::connect(address)?;
        let mut taken = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            taken.push(file);
        }
        let waiting = or(async { Some(accept(&listener).await) }, async {
            while listener.shed() == 0 {
                yield_now().await;
            }
            None
        });
        assert!(waiting.await.is_none(), "{kind}");
        drop((client, taken));
        let client = std::net::TcpStream::connect(address)?;
        assert_eq!(accept(&listener).await?.1, client.local_addr()?);
        Ok(())
    });
}
