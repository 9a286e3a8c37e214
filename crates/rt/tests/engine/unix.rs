//! Sockets of the Unix domain, on every back-end.

use std::future::Future;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_lite::future::{poll_once, zip};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::net::unix::{
    UnixDatagram, UnixListener, UnixSeqpacket, UnixSeqpacketListener, UnixStream,
};
use superpoll_rt::{AsyncFd, BackendKind, Runtime, spawn, yield_now};
use superpoll_test_support::no_child_starts;

fn each<F: Future<Output = io::Result<()>>>(test: impl Fn() -> F) {
    let _no_child_starts = no_child_starts();
    for backend in BackendKind::available() {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        runtime.block_on(test()).unwrap_or_else(|error| panic!("{backend}: {error}"));
    }
}

async fn some_turns() {
    for _ in 0..5 {
        yield_now().await;
    }
}

/// Returns a name of the abstract namespace that no other socket has.
fn fresh() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("superpoll-test-{}-{number}", std::process::id());
    SocketAddr::from_abstract_name(name).unwrap()
}

/// Returns whether all writing ends of a pipe are closed.
fn is_ended(mut reader: io::PipeReader) -> bool {
    // This makes it non-blocking.
    drop(AsyncFd::new(reader.try_clone().unwrap()).unwrap());
    matches!(reader.read(&mut [0; 1]), Ok(0))
}

#[test]
fn a_stream_echoes_and_knows_its_peer() {
    each(|| async {
        let address = fresh();
        let listener = UnixListener::bind_addr(&address)?;
        assert_eq!(listener.local_addr()?.as_abstract_name(), address.as_abstract_name());
        let server = spawn(async move {
            let (mut stream, peer) = listener.accept().await?;
            assert!(peer.is_unnamed());
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await?;
            stream.write_all(&bytes).await?;
            io::Result::Ok(())
        });
        let mut client = UnixStream::connect_addr(&address).await?;
        assert_eq!(client.peer_addr()?.as_abstract_name(), address.as_abstract_name());
        assert!(client.local_addr()?.is_unnamed());
        assert_eq!(client.peer_credentials()?.pid, std::process::id() as i32);
        let sent: Vec<u8> = (0..1_000_000u32).map(|at| (at / 7) as u8).collect();
        client.write_all(&sent).await?;
        client.close().await?;
        let mut received = Vec::new();
        client.read_to_end(&mut received).await?;
        assert!(received == sent);
        server.await.unwrap()
    });
}

#[test]
fn a_path_is_bound_and_connected_to() {
    each(|| async {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("socket");
        let error = UnixStream::connect(&path).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let listener = UnixListener::bind(&path)?;
        assert_eq!(UnixListener::bind(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        let (client, accepted) = zip(UnixStream::connect(&path), listener.accept()).await;
        assert_eq!(client?.peer_addr()?.as_pathname(), Some(&*path));
        drop((accepted?, listener));
        let error = UnixStream::connect(&path).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let error = UnixStream::connect_addr(&SocketAddr::from_pathname("")?).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        Ok(())
    });
}

#[test]
fn connecting_waits_while_the_queue_is_full() {
    each(|| async {
        let address = fresh();
        let inner = std::os::unix::net::UnixListener::bind_addr(&address)?;
        socket2::SockRef::from(&inner).listen(0)?;
        let listener = UnixListener::from_std(inner)?;
        let first = UnixStream::connect_addr(&address).await?;
        let mut second = std::pin::pin!(UnixStream::connect_addr(&address));
        assert!(poll_once(second.as_mut()).await.is_none());
        drop((first, listener.accept().await?));
        let (second, accepted) = zip(second, listener.accept()).await;
        drop((second?, accepted?));
        Ok(())
    });
}

#[test]
fn a_pair_hands_over_without_the_kernel() {
    for backend in BackendKind::available() {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        let rounds = runtime
            .block_on(async {
                let (mut one, mut other) = UnixStream::pair()?;
                let echo = spawn(async move {
                    let mut byte = [0; 1];
                    while other.read(&mut byte).await? > 0 {
                        other.write_all(&byte).await?;
                    }
                    io::Result::Ok(())
                });
                let mut byte = [0; 1];
                for number in 0..200u8 {
                    one.write_all(&[number]).await?;
                    one.read_exact(&mut byte).await?;
                    assert_eq!(byte[0], number);
                }
                drop(one);
                echo.await.unwrap()?;
                io::Result::Ok(200)
            })
            .unwrap();
        let peer_wakes = runtime.stats()[0].peer_wakes;
        assert!(peer_wakes >= rounds, "{backend}: {peer_wakes}");
    }
}

#[test]
fn halves_of_a_pair_in_two_tasks() {
    each(|| async {
        let (one, mut other) = UnixStream::pair()?;
        let (mut reader, mut writer) = one.into_split();
        let writing = spawn(async move { writer.write_all(&[9; 500_000]).await });
        let reading = spawn(async move {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).await.map(|_| bytes)
        });
        let mut received = Vec::new();
        other.read_to_end(&mut received).await?;
        assert_eq!(received.len(), 500_000, "the dropped half has ended the stream");
        other.write_all(b"bye").await?;
        drop(other);
        writing.await.unwrap()?;
        assert_eq!(reading.await.unwrap()?, b"bye");
        Ok(())
    });
}

#[test]
fn tries_do_not_wait() {
    each(|| async {
        let (one, other) = UnixStream::pair()?;
        let mut buffer = [0; 4];
        assert_eq!(one.try_read(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        let mut readable = Box::pin(one.readable());
        assert!(poll_once(readable.as_mut()).await.is_none());
        other.writable().await?;
        assert_eq!(other.try_write(b"abcd")?, 4);
        readable.await?;
        assert_eq!(one.try_read(&mut buffer)?, 4);
        let chunk = [0; 4096];
        while other.try_write(&chunk).is_ok() {}
        assert_eq!(other.try_write(&chunk).unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(one);
        assert_eq!(other.try_write(&chunk).unwrap_err().kind(), ErrorKind::BrokenPipe);
        Ok(())
    });
}

#[test]
fn descriptors_travel_on_a_stream() {
    each(|| async {
        let (one, mut other) = UnixStream::pair()?;
        let (mut reader, writer) = io::pipe()?;
        let (second_reader, second_writer) = io::pipe()?;
        let mut waiting = Box::pin(async {
            let mut buffer = [0; 16];
            other.recv_with_fds(&mut buffer, 4).await.map(|received| (received, buffer))
        });
        assert!(poll_once(waiting.as_mut()).await.is_none());
        let fds = [writer.as_fd(), second_writer.as_fd()];
        assert_eq!(one.send_with_fds(b"two ends", &fds).await?, 8);
        let (received, buffer) = waiting.await?;
        drop((writer, second_writer));
        assert_eq!(&buffer[..received.length], b"two ends");
        assert!(!received.truncated);
        let [first, second] = <[OwnedFd; 2]>::try_from(received.fds).unwrap();
        drop(second);
        assert!(is_ended(second_reader));
        let mut first = io::PipeWriter::from(first);
        first.write_all(b"through").unwrap();
        drop(first);
        let mut text = String::new();
        reader.read_to_string(&mut text)?;
        assert_eq!(text, "through");
        // The end.
        drop(one);
        let mut buffer = [0; 4];
        let received = other.recv_with_fds(&mut buffer, 4).await?;
        assert_eq!((received.length, received.fds.len()), (0, 0));
        assert_eq!(other.read(&mut buffer).await?, 0);
        Ok(())
    });
}

#[test]
fn unexpected_descriptors_are_an_error_and_do_not_leak() {
    each(|| async {
        let (one, other) = UnixStream::pair()?;
        for limit in [0, 1, 2] {
            let (reader, writer) = io::pipe()?;
            let fds = [writer.as_fd(); 3];
            one.send_with_fds(b"three", &fds).await?;
            let error = other.recv_with_fds(&mut [0; 8], limit).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData);
            assert!(error.to_string().contains(&format!("the {limit} expected")), "{error}");
            drop(writer);
            assert!(is_ended(reader), "limit {limit}: a duplicate of the writing end is left");
        }
        let error = one.send_with_fds(b"", &[one.as_fd()]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let many = [one.as_fd(); 254];
        assert_eq!(
            one.send_with_fds(b"x", &many).await.unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        one.send_with_fds(b"x", &many[..253]).await?;
        assert_eq!(other.recv_with_fds(&mut [0; 1], 253).await?.fds.len(), 253);
        Ok(())
    });
}

/// The kernel ends a read where descriptors came along: the short count says nothing.
#[test]
fn bytes_behind_unexpected_descriptors_are_read() {
    each(|| async {
        let (one, mut other) = UnixStream::pair()?;
        let (reader, writer) = io::pipe()?;
        let mut buffer = [0; 16];
        for _ in 0..3 {
            assert!(poll_once(other.read(&mut buffer)).await.is_none());
            one.send_with_fds(b"first", &[writer.as_fd()]).await?;
            (&one).write_all(b"second").await?;
            some_turns().await;
            assert_eq!(other.read(&mut buffer).await?, 5);
            assert_eq!(other.read(&mut buffer).await?, 6);
            assert_eq!(&buffer[..6], b"second");
        }
        for _ in 0..3 {
            assert!(poll_once(other.recv_with_fds(&mut buffer, 1)).await.is_none());
            one.send_with_fds(b"first", &[writer.as_fd()]).await?;
            one.send_with_fds(b"second", &[writer.as_fd()]).await?;
            some_turns().await;
            for length in [5, 6] {
                let received = other.recv_with_fds(&mut buffer, 1).await?;
                assert_eq!((received.length, received.fds.len()), (length, 1));
            }
        }
        drop(writer);
        assert!(is_ended(reader));
        Ok(())
    });
}

/// The same on a socket of `std`, in an `AsyncFd`.
#[test]
fn bytes_behind_descriptors_are_read_from_a_socket_of_std() {
    each(|| async {
        let (one, other) = std::os::unix::net::UnixStream::pair()?;
        let (one, mut other) = (UnixStream::from_std(one)?, AsyncFd::new(other)?);
        let mut buffer = [0; 16];
        for _ in 0..3 {
            assert!(poll_once(other.read(&mut buffer)).await.is_none());
            one.send_with_fds(b"first", &[one.as_fd()]).await?;
            (&one).write_all(b"second").await?;
            some_turns().await;
            assert_eq!(other.read(&mut buffer).await?, 5);
            let mut turns = 0;
            let second = loop {
                if let Some(second) = poll_once(other.read(&mut buffer)).await {
                    break second?;
                }
                turns += 1;
                assert!(turns < 100, "the bytes behind are there, and no report comes");
                yield_now().await;
            };
            assert_eq!(second, 6);
        }
        Ok(())
    });
}

#[test]
fn datagrams_keep_their_boundaries() {
    each(|| async {
        let (one, other) = UnixDatagram::pair()?;
        let mut buffer = [0; 8];
        assert!(poll_once(other.recv(&mut buffer)).await.is_none());
        for text in [&b"one"[..], b"", b"three", b"a long one"] {
            assert_eq!(one.send(text).await?, text.len());
        }
        for length in [3, 0, 5, 8] {
            assert_eq!(other.recv(&mut buffer).await?, length);
        }
        assert_eq!(&buffer, b"a long o");
        assert_eq!(other.peer_credentials()?.pid, std::process::id() as i32);
        one.send(b"a long one").await?;
        let received = other.recv_with_fds(&mut buffer, 0).await?;
        assert_eq!((received.length, received.truncated), (8, true));
        one.send_with_fds(b"", &[one.as_fd(), other.as_fd()]).await?;
        assert_eq!(other.recv_with_fds(&mut buffer, 2).await?.fds.len(), 2);
        Ok(())
    });
}

#[test]
fn datagrams_find_addresses() {
    each(|| async {
        let folder = tempfile::tempdir()?;
        let (path, address) = (folder.path().join("socket"), fresh());
        let (server, client) = (UnixDatagram::bind(&path)?, UnixDatagram::bind_addr(&address)?);
        client.send_to(b"ping", &path).await?;
        let mut buffer = [0; 8];
        let (length, peer) = server.recv_from(&mut buffer).await?;
        assert_eq!((length, peer.as_abstract_name()), (4, address.as_abstract_name()));
        server.send_to_addr(b"pong!", &peer).await?;
        client.connect(&path)?;
        assert_eq!(client.peer_addr()?.as_pathname(), Some(&*path));
        assert_eq!(client.recv(&mut buffer).await?, 5);
        drop(server);
        assert_eq!(client.send(b"x").await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let alone = UnixDatagram::unbound()?;
        let missing = folder.path().join("missing");
        assert_eq!(alone.send_to(b"x", missing).await.unwrap_err().kind(), ErrorKind::NotFound);
        Ok(())
    });
}

/// The kernel does not tell a sender when there is room at a receiver that it is not connected to.
#[test]
fn a_sender_waits_for_room_in_a_foreign_queue() {
    each(|| async {
        let address = fresh();
        let (server, client) = (UnixDatagram::bind_addr(&address)?, UnixDatagram::unbound()?);
        let mut sent = 0;
        while poll_once(client.send_to_addr(b"x", &address)).await.transpose()?.is_some() {
            sent += 1;
            assert!(sent < 1_000_000, "the queue is bounded");
        }
        let mut last = std::pin::pin!(client.send_to_addr(b"last", &address));
        assert!(poll_once(last.as_mut()).await.is_none());
        let mut buffer = [0; 8];
        for _ in 0..sent {
            assert_eq!(server.recv(&mut buffer).await?, 1);
        }
        let (sent, received) = zip(last, server.recv(&mut buffer)).await;
        assert_eq!((sent?, received?), (4, 4));
        Ok(())
    });
}

#[test]
fn a_connected_sender_waits_for_room() {
    each(|| async {
        let (one, other) = UnixDatagram::pair()?;
        let sending = spawn(async move {
            for number in 0..2000u32 {
                one.send(&number.to_be_bytes()).await?;
            }
            io::Result::Ok(())
        });
        let mut buffer = [0; 4];
        for number in 0..2000u32 {
            assert_eq!(other.recv(&mut buffer).await?, 4);
            assert_eq!(u32::from_be_bytes(buffer), number);
        }
        sending.await.unwrap()
    });
}

#[test]
fn sequenced_packets_keep_boundaries_on_a_connection() {
    each(|| async {
        let address = fresh();
        let listener = UnixSeqpacketListener::bind_addr(&address)?;
        let (client, accepted) =
            zip(UnixSeqpacket::connect_addr(&address), listener.accept()).await;
        let (client, (server, _)) = (client?, accepted?);
        assert_eq!(client.peer_addr()?.as_abstract_name(), address.as_abstract_name());
        assert_eq!(server.peer_credentials()?.pid, std::process::id() as i32);
        let mut buffer = [0; 6];
        assert!(poll_once(server.recv(&mut buffer)).await.is_none());
        client.send(b"one").await?;
        client.send(b"twelve chars").await?;
        let (reader, writer) = io::pipe()?;
        client.send_with_fds(b"and a pipe", &[writer.as_fd()]).await?;
        assert_eq!(server.recv(&mut buffer).await?, 3);
        assert_eq!(server.recv(&mut buffer).await?, 6);
        assert_eq!(&buffer, b"twelve");
        let received = server.recv_with_fds(&mut buffer, 1).await?;
        assert_eq!((received.length, received.truncated, received.fds.len()), (6, true, 1));
        drop((received, writer));
        assert!(is_ended(reader));
        let client = UnixSeqpacket::from_fd(client.into_fd())?;
        drop(client);
        assert_eq!(server.recv(&mut buffer).await?, 0);
        assert_eq!(server.send(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        let (stream, _) = std::os::unix::net::UnixStream::pair()?;
        let error = UnixSeqpacket::from_fd(stream.into()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        Ok(())
    });
}

#[test]
fn a_pair_of_sequenced_packets() {
    each(|| async {
        let (one, other) = UnixSeqpacket::pair()?;
        let echo = spawn(async move {
            let mut buffer = [0; 64];
            loop {
                let length = other.recv(&mut buffer).await?;
                if length == 0 {
                    return io::Result::Ok(());
                }
                other.send(&buffer[..length]).await?;
            }
        });
        let mut buffer = [0; 64];
        for length in 1..=60 {
            let message = vec![length as u8; length];
            one.send(&message).await?;
            assert_eq!(one.recv(&mut buffer).await?, length);
            assert_eq!(&buffer[..length], message);
        }
        one.shutdown(std::net::Shutdown::Write)?;
        echo.await.unwrap()
    });
}
