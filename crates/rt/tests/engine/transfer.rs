//! Bytes that move within the kernel, on every back-end.

use std::future::Future;
use std::io::{self, ErrorKind, Write};
use std::net::Shutdown;

use futures_lite::future::{poll_once, zip};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use socket2::SockRef;
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::net::{TcpListener, TcpStream};
use superpoll_rt::pipe::{PipeWriter, pipe};
use superpoll_rt::transfer::{copy, sendfile, splice};
use superpoll_rt::{BackendKind, Runtime, spawn, yield_now};
use superpoll_test_support::no_child_starts;

fn each<F: Future<Output = io::Result<()>>>(test: impl Fn() -> F) {
    let _no_child_starts = no_child_starts();
    for backend in BackendKind::available() {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        runtime.block_on(test()).unwrap_or_else(|error| panic!("{backend}: {error}"));
    }
}

async fn connected() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (client, server) = zip(TcpStream::connect(listener.local_addr()?), listener.accept()).await;
    Ok((client?, server?.0))
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

/// From a connection through a pipe to another connection, each side at its own pace.
#[test]
fn a_splice_forwards_every_byte() {
    const LENGTH: usize = 3 << 20;
    each(|| async {
        let (mut client, incoming) = connected().await?;
        let (outgoing, mut sink) = connected().await?;
        let sent = pattern(LENGTH);
        let forward = spawn(async move {
            let (reader, writer) = pipe()?;
            loop {
                let mut held = splice(&incoming, &writer, 1 << 20).await?;
                if held == 0 {
                    return io::Result::Ok(());
                }
                while held > 0 {
                    held -= splice(&reader, &outgoing, held).await?;
                }
            }
        });
        let mut received = Vec::new();
        let send = async {
            client.write_all(&sent).await?;
            client.close().await
        };
        let (sending, receiving) = zip(send, sink.read_to_end(&mut received)).await;
        sending?;
        receiving?;
        forward.await.unwrap()?;
        assert!(received == sent, "{} bytes of {LENGTH}", received.len());
        Ok(())
    });
}

/// Both directions at once, in pieces of random sizes, with a client that reads late.
#[test]
fn a_copy_forwards_every_byte_of_both_directions() {
    const LENGTH: usize = 2 << 20;
    each(|| async {
        let (mut client, incoming) = connected().await?;
        let (outgoing, mut server) = connected().await?;
        let forward = spawn(async move {
            let there = async {
                let copied = copy(&incoming, &outgoing).await?;
                outgoing.shutdown(Shutdown::Write)?;
                io::Result::Ok(copied)
            };
            let back = async {
                let copied = copy(&outgoing, &incoming).await?;
                incoming.shutdown(Shutdown::Write)?;
                io::Result::Ok(copied)
            };
            let (there, back) = zip(there, back).await;
            io::Result::Ok((there?, back?))
        });
        let sent = pattern(LENGTH);
        let echo = spawn(async move {
            let mut buffer = vec![0; 10_000];
            let mut all = Vec::new();
            loop {
                match server.read(&mut buffer[..1 + all.len() % 9_999]).await? {
                    0 => break,
                    count => all.extend_from_slice(&buffer[..count]),
                }
            }
            server.write_all(&all).await?;
            server.close().await
        });
        let mut rest = sent.as_slice();
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(rest.len().min(1 + rest.len() % 70_001));
            client.write_all(piece).await?;
            rest = more;
        }
        client.shutdown(Shutdown::Write)?;
        let mut received = Vec::new();
        client.read_to_end(&mut received).await?;
        echo.await.unwrap()?;
        assert!(received == sent, "{} bytes of {LENGTH}", received.len());
        assert_eq!(forward.await.unwrap()?, (LENGTH as u64, LENGTH as u64));
        Ok(())
    });
}

#[test]
fn a_copy_ends_with_the_error_of_its_target() {
    each(|| async {
        let (mut client, incoming) = UnixStream::pair()?;
        let (outgoing, server) = UnixStream::pair()?;
        drop(server);
        client.write_all(b"for nobody").await?;
        let error = copy(&incoming, &outgoing).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        Ok(())
    });
}

/// Two tasks fill and drain the pipe at the same time, so that both of its ends block.
#[test]
fn both_sides_of_a_splice_may_block() {
    const LENGTH: usize = 2 << 20;
    each(|| async {
        let (mut one, source) = UnixStream::pair()?;
        let (target, mut other) = UnixStream::pair()?;
        let (reader, writer) = pipe()?;
        let fill = spawn(async move {
            while splice(&source, &writer, 100_000).await? > 0 {}
            io::Result::Ok(())
        });
        let drain = spawn(async move {
            while splice(&reader, &target, 70_000).await? > 0 {}
            io::Result::Ok(())
        });
        let sent = pattern(LENGTH);
        let mut received = Vec::new();
        let send = async {
            one.write_all(&sent).await?;
            drop(one);
            io::Result::Ok(())
        };
        let (sending, receiving) = zip(send, other.read_to_end(&mut received)).await;
        sending?;
        receiving?;
        fill.await.unwrap()?;
        drain.await.unwrap()?;
        assert!(received == sent);
        Ok(())
    });
}

/// `splice(2)` stops before an urgent byte. The bytes after it are moved all the same, none of them
/// before the target has room for it, and the stream can still be taken out with all the rest.
#[test]
fn a_splice_passes_over_an_urgent_byte_and_loses_nothing() {
    each(|| async {
        for length in [1, 3, 100] {
            let (mut client, stream) = connected().await?;
            let (mut reader, mut writer) = pipe()?;
            client.write_all(b"abc").await?;
            let mut expected = b"abc".to_vec();
            let mut moved = Vec::new();
            for (round, urgent) in [b"!", b"?"].into_iter().enumerate() {
                SockRef::from(&client).send_out_of_band(urgent)?;
                let more = if round == 0 { &b"defgh"[..] } else { b"" };
                client.write_all(more).await?;
                expected.extend_from_slice(more);
                while moved.len() < expected.len() {
                    let count = splice(&stream, &writer, length).await?;
                    assert!((1..=length).contains(&count), "{count} of {length} bytes");
                    let start = moved.len();
                    moved.resize(start + count, 0);
                    reader.read_exact(&mut moved[start..]).await?;
                }
                assert_eq!(moved, expected);
            }
            // An urgent byte with nothing after it, and then the end.
            client.close().await?;
            assert_eq!(splice(&stream, &writer, length).await?, 0);

            // The target is full when the mark is reached.
            let (mut client, stream) = connected().await?;
            SockRef::from(&client).send_out_of_band(b"!")?;
            client.write_all(b"rest").await?;
            client.close().await?;
            fill(&mut writer).await?;
            assert!(poll_once(splice(&stream, &writer, length)).await.is_none());
            let mut rest = TcpStream::from_std(stream.into_std())?;
            let mut all = String::new();
            rest.read_to_string(&mut all).await?;
            assert_eq!(all, "rest", "what no target has taken is in the socket");
        }
        Ok(())
    });
}

/// Writes until there is no more room.
async fn fill(writer: &mut PipeWriter) -> io::Result<()> {
    while let Some(written) = poll_once(writer.write(&[7; 4096])).await {
        written?;
        yield_now().await;
    }
    Ok(())
}

#[test]
fn an_empty_source_and_a_full_target_are_distinguished() {
    each(|| async {
        let (reader, mut writer) = pipe()?;
        let (next_reader, next_writer) = pipe()?;
        let mut next_reader = next_reader;
        let mut moving = Box::pin(splice(&reader, &next_writer, 4096));
        assert!(poll_once(&mut moving).await.is_none(), "the source is empty");
        for _ in 0..5 {
            yield_now().await;
        }
        assert!(poll_once(&mut moving).await.is_none(), "the source is still empty");
        writer.write_all(b"bytes").await?;
        assert_eq!(moving.await?, 5);
        // Fill the target, with bytes left in the source.
        let mut held = 5;
        loop {
            writer.write_all(&[1; 4096]).await?;
            match poll_once(splice(&reader, &next_writer, 4096)).await {
                Some(moved) => held += moved?,
                None => break,
            }
        }
        let mut moving = Box::pin(splice(&reader, &next_writer, 4096));
        assert!(poll_once(&mut moving).await.is_none(), "the target is full");
        let mut bytes = vec![0; held];
        next_reader.read_exact(&mut bytes).await?;
        assert_eq!(moving.await?, 4096);
        // And the transfers that were cancelled before have moved nothing.
        drop((writer, next_writer));
        let mut rest = Vec::new();
        next_reader.read_to_end(&mut rest).await?;
        assert_eq!(rest.len(), 4096);
        Ok(())
    });
}

#[test]
fn a_splice_between_two_sockets_is_refused() {
    each(|| async {
        let (mut one, other) = connected().await?;
        one.write_all(b"x").await?;
        let error = splice(&other, &one, 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let (reader, writer) = pipe()?;
        drop(reader);
        let error = splice(&other, &writer, 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        Ok(())
    });
}

#[test]
fn a_file_is_sent_from_any_offset() {
    const LENGTH: usize = 3 << 20;
    each(|| async {
        let bytes = pattern(LENGTH);
        let mut file = tempfile::tempfile()?;
        file.write_all(&bytes)?;
        for skip in [0, 12_345, LENGTH as u64 - 1] {
            let (client, mut server) = connected().await?;
            let send = async {
                let mut offset = skip;
                loop {
                    let sent = sendfile(&file, offset, &client, usize::MAX).await?;
                    if sent == 0 {
                        drop(client);
                        return io::Result::Ok(offset);
                    }
                    offset += sent as u64;
                }
            };
            let mut received = Vec::new();
            let (end, receiving) = zip(send, server.read_to_end(&mut received)).await;
            receiving?;
            assert_eq!(end?, LENGTH as u64);
            assert!(received == bytes[skip as usize..]);
        }
        Ok(())
    });
}

#[test]
fn a_file_that_waits_for_room_has_sent_nothing() {
    each(|| async {
        let mut file = tempfile::tempfile()?;
        file.write_all(&pattern(1 << 20))?;
        let (one, mut other) = UnixStream::pair()?;
        let mut sent = 0;
        while let Some(outcome) = poll_once(sendfile(&file, sent, &one, 1 << 16)).await {
            sent += outcome? as u64;
        }
        assert!(sent < 1 << 20, "a socket's buffer is bounded");
        for _ in 0..3 {
            assert!(poll_once(sendfile(&file, sent, &one, 1 << 16)).await.is_none());
        }
        drop(one);
        let mut received = Vec::new();
        other.read_to_end(&mut received).await?;
        assert!(received == pattern(sent as usize));
        let error = sendfile(&file, u64::MAX, &other, 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        Ok(())
    });
}
