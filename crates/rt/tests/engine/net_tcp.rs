//! TCP streams, on every back-end.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::time::Duration;

use futures_lite::future::{or, poll_once, zip};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::net::{ListenOptions, TcpListener, TcpStream, lookup_host};
use superpoll_rt::{BackendKind, Runtime, spawn, yield_now};
use superpoll_test_support::no_child_starts;

/// Runs a test on every back-end.
fn each<F: Future<Output = io::Result<()>>>(test: impl Fn() -> F) {
    let _no_child_starts = no_child_starts();
    for backend in BackendKind::available() {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        runtime.block_on(test()).unwrap_or_else(|error| panic!("{backend}: {error}"));
    }
}

/// Two ends of a connection.
async fn connected() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (client, accepted) = zip(TcpStream::connect(address), listener.accept()).await;
    let (client, (server, peer)) = (client?, accepted?);
    assert_eq!(client.local_addr()?, peer);
    assert_eq!(client.peer_addr()?, address);
    assert_eq!(server.local_addr()?, address);
    Ok((client, server))
}

/// Lets other tasks and the poller have some turns.
async fn some_turns() {
    for _ in 0..5 {
        yield_now().await;
    }
}

/// Returns bytes that tell where they belong.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

#[test]
fn calls_on_sockets_are_counted_by_name() {
    let calls = || superpoll_rt::Stats::current().unwrap().calls;
    each(|| async {
        let (mut client, mut server) = connected().await?;
        let before = calls();
        client.write_all(b"question").await?;
        let mut buffer = [0; 16];
        assert_eq!(server.read(&mut buffer).await?, 8);
        let after = calls();
        assert_eq!(after.sendto - before.sendto, 1);
        // Once in vain, if the read began before the bytes had arrived.
        assert!(after.read - before.read <= 2, "{after:?}");
        assert_eq!(server.try_write_more(b"ans")?, 3);
        assert_eq!(server.try_write_more(b"wer")?, 3);
        assert_eq!(calls().sendto - after.sendto, 2);
        server.set_nodelay(true)?;
        server.shutdown(Shutdown::Write)?;
        drop(server);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await?;
        assert_eq!(answer, "answer");
        let socket = client.into_std();
        let end = calls();
        let differences = [
            end.setsockopt - after.setsockopt,
            end.shutdown - after.shutdown,
            end.close - after.close,
        ];
        assert_eq!(differences, [1, 1, 1]);
        drop(socket);
        assert_eq!(calls().close, end.close);
        Ok(())
    });
}

#[test]
fn echo() {
    each(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server = spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            let mut buffer = [0; 16];
            let mut rounds = 0;
            loop {
                let done = stream.read(&mut buffer).await?;
                if done == 0 {
                    return io::Result::Ok(rounds);
                }
                stream.write_all(&buffer[..done]).await?;
                rounds += 1;
            }
        });
        let mut client = TcpStream::connect(address).await?;
        for number in 0..100u32 {
            client.write_all(&number.to_be_bytes()).await?;
            let mut answer = [0; 4];
            client.read_exact(&mut answer).await?;
            assert_eq!(u32::from_be_bytes(answer), number);
        }
        drop(client);
        assert_eq!(server.await.unwrap()?, 100);
        Ok(())
    });
}

#[test]
fn half_close_lets_the_other_direction_go_on() {
    each(|| async {
        let (mut client, mut server) = connected().await?;
        client.write_all(b"question").await?;
        client.close().await?;
        let mut question = Vec::new();
        server.read_to_end(&mut question).await?;
        assert_eq!(question, b"question");
        server.write_all(b"answer").await?;
        drop(server);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await?;
        assert_eq!(answer, b"answer");
        Ok(())
    });
}

#[test]
fn a_shutdown_wakes_a_reader_of_the_same_stream() {
    each(|| async {
        let (client, _server) = connected().await?;
        let (mut reader, writer) = client.into_split();
        let waiting = spawn(async move { reader.read(&mut [0; 8]).await });
        some_turns().await;
        assert!(!waiting.is_finished());
        writer.shutdown(Shutdown::Read)?;
        assert_eq!(waiting.await.unwrap()?, 0);
        Ok(())
    });
}

#[test]
fn dropping_the_writing_half_ends_the_stream() {
    each(|| async {
        let (client, mut server) = connected().await?;
        let (mut reader, mut writer) = client.into_split();
        writer.write_all(b"last words").await?;
        drop(writer);
        let mut words = String::new();
        server.read_to_string(&mut words).await?;
        assert_eq!(words, "last words");
        server.write_all(b"heard").await?;
        drop(server);
        let mut answer = String::new();
        reader.read_to_string(&mut answer).await?;
        assert_eq!(answer, "heard");
        Ok(())
    });
}

#[test]
fn dropping_the_reading_half_ends_nothing() {
    each(|| async {
        let (client, mut server) = connected().await?;
        let (reader, mut writer) = client.into_split();
        drop(reader);
        server.write_all(b"to nobody").await?;
        some_turns().await;
        writer.write_all(b"still here").await?;
        let mut buffer = [0; 10];
        server.read_exact(&mut buffer).await?;
        assert_eq!(&buffer, b"still here");
        Ok(())
    });
}

#[test]
fn a_forgotten_writing_half_leaves_the_direction_open() {
    each(|| async {
        let (client, mut server) = connected().await?;
        let (reader, writer) = client.into_split();
        writer.forget();
        let mut buffer = [0; 1];
        some_turns().await;
        assert!(poll_once(server.read(&mut buffer)).await.is_none(), "no end of the stream");
        drop(reader);
        assert_eq!(server.read(&mut buffer).await?, 0);
        Ok(())
    });
}

#[test]
fn halves_are_reunited_only_with_their_own() {
    each(|| async {
        let (one, mut server) = connected().await?;
        let (other, _peer) = connected().await?;
        let (reader, writer) = one.into_split();
        let (foreign_reader, foreign_writer) = other.into_split();
        let error = reader.reunite(foreign_writer).unwrap_err();
        assert!(error.to_string().contains("not of the same stream"));
        let mut stream = error.0.reunite(writer).unwrap();
        foreign_reader.reunite(error.1).unwrap();
        stream.write_all(b"whole").await?;
        let mut buffer = [0; 5];
        server.read_exact(&mut buffer).await?;
        assert_eq!(&buffer, b"whole");
        Ok(())
    });
}

#[test]
fn both_directions_at_once_carry_every_byte() {
    const LENGTH: usize = 4 << 20;
    each(|| async {
        let (mut client, server) = connected().await?;
        let sent = pattern(LENGTH);
        let (mut reader, mut writer) = server.into_split();
        let echo = spawn(async move {
            let mut buffer = vec![0; 60_000];
            loop {
                let done = reader.read(&mut buffer).await?;
                if done == 0 {
                    return io::Result::Ok(());
                }
                writer.write_all(&buffer[..done]).await?;
            }
        });
        let mut received = Vec::new();
        {
            let (mut reader, mut writer) = client.split();
            let send = async {
                writer.write_all(&sent).await?;
                writer.close().await
            };
            let (sending, receiving) = zip(send, reader.read_to_end(&mut received)).await;
            sending?;
            receiving?;
        }
        echo.await.unwrap()?;
        assert!(received == sent, "{} bytes came back of {LENGTH}", received.len());
        Ok(())
    });
}

#[test]
fn vectored_operations_keep_the_order() {
    each(|| async {
        let (mut client, mut server) = connected().await?;
        let parts =
            [io::IoSlice::new(b"one "), io::IoSlice::new(b"two "), io::IoSlice::new(b"three")];
        assert_eq!(client.write_vectored(&parts).await?, 13);
        drop(client);
        let (mut first, mut second) = ([0; 5], [0; 64]);
        let mut slots = [io::IoSliceMut::new(&mut first), io::IoSliceMut::new(&mut second)];
        assert_eq!(server.read_vectored(&mut slots).await?, 13);
        assert_eq!((&first, &second[..8]), (b"one t", &b"wo three"[..]));
        Ok(())
    });
}

#[test]
fn a_cancelled_read_takes_nothing() {
    each(|| async {
        let (mut client, mut server) = connected().await?;
        for round in 0..3 {
            let mut buffer = [0; 8];
            assert!(poll_once(server.read(&mut buffer)).await.is_none());
            some_turns().await;
            assert!(poll_once(server.read(&mut buffer)).await.is_none());
            client.write_all(&[round; 3]).await?;
            some_turns().await;
            let mut exactly = [0; 3];
            server.read_exact(&mut exactly).await?;
            assert_eq!(exactly, [round; 3]);
        }
        Ok(())
    });
}

#[test]
fn peek_leaves_the_bytes() {
    each(|| async {
        let (mut client, mut server) = connected().await?;
        client.write_all(b"abc").await?;
        let mut buffer = [0; 8];
        assert_eq!(server.peek(&mut buffer).await?, 3);
        assert_eq!(server.peek(&mut buffer).await?, 3);
        assert_eq!(server.read(&mut buffer).await?, 3);
        assert_eq!(&buffer[..3], b"abc");
        assert!(poll_once(server.peek(&mut buffer)).await.is_none());
        Ok(())
    });
}

#[test]
fn readiness_and_tries() {
    each(|| async {
        let (client, server) = connected().await?;
        let mut buffer = [0; 8];
        let error = server.try_read(&mut buffer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        for _ in 0..3 {
            let write = async {
                client.writable().await?;
                assert_eq!(client.try_write(b"12345678")?, 8);
                io::Result::Ok(())
            };
            let read = async {
                loop {
                    server.readable().await?;
                    match server.try_read(&mut buffer) {
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                        outcome => return outcome,
                    }
                }
            };
            let (written, read) = zip(write, read).await;
            written?;
            assert_eq!(read?, 8);
        }
        // Bytes that are there can be read without having been reported.
        client.try_write(b"9")?;
        let mut tries = 0;
        while let Err(error) = server.try_read(&mut buffer) {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            tries += 1;
            assert!(tries < 1_000_000, "loopback delivers at once");
        }
        Ok(())
    });
}

#[test]
fn a_writer_waits_for_room_and_goes_on() {
    each(|| async {
        let (client, mut server) = connected().await?;
        let chunk = pattern(64 << 10);
        let mut sent = 0;
        loop {
            match client.try_write(&chunk) {
                Ok(done) => sent += done,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let writer = spawn(async move {
            let mut client = client;
            client.write_all(&[7; 1000]).await
        });
        some_turns().await;
        let mut received = Vec::new();
        server.read_to_end(&mut received).await?;
        assert_eq!(received.len(), sent + 1000);
        assert!(received.ends_with(&[7; 1000]));
        writer.await.unwrap()
    });
}

#[test]
fn writing_to_a_closed_peer_fails() {
    each(|| async {
        let (mut client, server) = connected().await?;
        server.set_linger(Some(Duration::ZERO))?;
        drop(server);
        let mut buffer = [0; 1];
        let error = client.read(&mut buffer).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let error = client.write(b"x").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        client.close().await
    });
}

#[test]
fn refused_connections_say_so() {
    each(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let gone = listener.local_addr()?;
        drop(listener);
        let error = TcpStream::connect(gone).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        // The next address is tried.
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let both = [gone, listener.local_addr()?];
        let (client, server) = zip(TcpStream::connect(both), listener.accept()).await;
        assert_eq!(client?.peer_addr()?, both[1]);
        drop(server?);
        Ok(())
    });
}

#[test]
fn names_are_looked_up() {
    each(|| async {
        let addresses = lookup_host(("localhost", 80)).await?;
        assert!(addresses.iter().all(|address| address.port() == 80 && address.ip().is_loopback()));
        let listener = TcpListener::bind(("localhost", 0)).await?;
        let port = listener.local_addr()?.port();
        let client = TcpStream::connect(format!("localhost:{port}")).await?;
        assert_eq!(client.peer_addr()?.port(), port);
        let error = TcpStream::connect("no port here").await.unwrap_err();
        assert!(error.to_string().contains("\"no port here\""), "{error}");
        let error = TcpStream::connect(&[][..] as &[std::net::SocketAddr]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        Ok(())
    });
}

#[test]
fn options_are_set() {
    each(|| async {
        let (client, _server) = connected().await?;
        client.set_nodelay(true)?;
        client.set_ttl(33)?;
        client.set_linger(Some(Duration::from_secs(3)))?;
        assert!(client.nodelay()?);
        assert_eq!(client.ttl()?, 33);
        assert_eq!(client.linger()?, Some(Duration::from_secs(3)));
        assert!(client.take_error()?.is_none());
        client.set_linger(None)?;
        let std_stream = client.into_std();
        let client = TcpStream::from_std(std_stream)?;
        assert_eq!(client.ttl()?, 33);
        Ok(())
    });
}

#[test]
fn a_listener_is_built_with_options() {
    each(|| async {
        let options = ListenOptions::new().reuse_port(true).backlog(16).shed_load(false);
        let one = options.bind("127.0.0.1:0").await?;
        let two = options.bind(one.local_addr()?).await?;
        assert_eq!(one.local_addr()?, two.local_addr()?);
        let error = TcpListener::bind(one.local_addr()?).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let client = TcpStream::connect(one.local_addr()?).await?;
        let (mut server, peer) = or(one.accept(), two.accept()).await?;
        assert_eq!(client.local_addr()?, peer);
        drop(client);
        assert_eq!(server.read(&mut [0; 1]).await?, 0);
        Ok(())
    });
}

/// The accepting side must not stop at the first of many.
#[test]
fn many_connections_are_accepted_in_one_go() {
    each(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut pending = std::pin::pin!(listener.accept());
        assert!(poll_once(pending.as_mut()).await.is_none());
        let clients: Vec<_> =
            (0..100).map(|_| std::net::TcpStream::connect(address)).collect::<io::Result<_>>()?;
        let mut peers = vec![pending.await?.1];
        while peers.len() < clients.len() {
            peers.push(listener.accept().await?.1);
        }
        for client in &clients {
            assert!(peers.contains(&client.local_addr()?));
        }
        assert_eq!(listener.shed(), 0);
        Ok(())
    });
}

#[test]
fn a_stream_moves_to_another_engine() {
    for backend in BackendKind::available() {
        let runtime = Runtime::builder()
            .backend(backend)
            .workers(NonZeroUsize::new(2).unwrap())
            .build()
            .unwrap();
        let handle = runtime.handle();
        runtime
            .block_on(async move {
                let (mut client, mut server) = connected().await?;
                let mut byte = [0; 1];
                // It is registered here first.
                assert!(poll_once(server.read(&mut byte)).await.is_none());
                let echo = handle
                    .spawn_on(1, async move {
                        let mut byte = [0; 1];
                        for _ in 0..50 {
                            server.read_exact(&mut byte).await?;
                            server.write_all(&byte).await?;
                        }
                        io::Result::Ok(server)
                    })
                    .unwrap();
                for number in 0..50 {
                    client.write_all(&[number]).await?;
                    client.read_exact(&mut byte).await?;
                    assert_eq!(byte[0], number);
                }
                // And back again.
                let mut server = echo.await.unwrap()?;
                let back = spawn(async move {
                    server.read_exact(&mut [0; 1]).await?;
                    server.write_all(b"!").await
                });
                some_turns().await;
                client.write_all(b"?").await?;
                client.read_exact(&mut byte).await?;
                assert_eq!(&byte, b"!");
                back.await.unwrap()
            })
            .unwrap_or_else(|error: io::Error| panic!("{backend}: {error}"));
    }
}

/// A stream that is dropped on another thread, where no runtime is, must not be reported any more,
/// nor the next one with its number.
#[test]
fn a_stream_is_dropped_on_a_foreign_thread() {
    each(|| async {
        for _ in 0..20 {
            let (mut client, mut server) = connected().await?;
            assert!(poll_once(server.read(&mut [0; 1])).await.is_none());
            let (sender, receiver) = mpsc::channel();
            std::thread::spawn(move || {
                drop(server);
                sender.send(()).unwrap();
            });
            receiver.recv().unwrap();
            assert_eq!(client.read(&mut [0; 1]).await?, 0);
        }
        Ok(())
    });
}

/// A task that connects can be spawned from any thread, by [`superpoll_rt::Handle::spawn`].
#[test]
fn a_future_that_connects_is_send() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for backend in BackendKind::available() {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        let peers = runtime.block_on(async {
            let connecting = async move { TcpStream::connect(address).await?.peer_addr() };
            runtime.handle().spawn(connecting).await.unwrap()
        });
        assert_eq!(peers.unwrap(), address, "{backend}");
    }
}
