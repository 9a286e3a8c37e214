//! Reads and writes of no bytes: they never wait, on every back-end and for every type of stream,
//! because the kernel does not wait for them either.

use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Write};
use std::net::Shutdown;
use std::pin::Pin;
use std::task::Poll;

use futures_io::{AsyncRead, AsyncWrite};
use futures_lite::future::{poll_once, zip};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::hyper::FuturesIo;
use superpoll_rt::net::unix::{UnixSeqpacket, UnixStream};
use superpoll_rt::net::{StreamSocket, TcpListener, TcpStream, UdpSocket};
use superpoll_rt::pipe::pipe;
use superpoll_rt::tokio::Compat;
use superpoll_rt::transfer::{sendfile, splice};
use superpoll_rt::{AsyncFd, BackendKind, Runtime, yield_now};

fn each<F: Future<Output = io::Result<()>>>(test: impl Fn() -> F) {
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

/// Polls an operation once.
async fn at_once<T>(what: &str, operation: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    poll_once(operation).await.unwrap_or_else(|| panic!("{what} of no bytes waits"))
}

/// Reads nothing in each way, while there is nothing to read.
async fn read_nothing(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    for _ in 0..2 {
        assert_eq!(at_once("a read", reader.read(&mut [])).await?, 0);
        at_once("a whole read", reader.read_exact(&mut [])).await?;
        assert_eq!(at_once("a vectored read", reader.read_vectored(&mut [])).await?, 0);
        let (mut one, mut other) = ([], []);
        let mut buffers = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut other)];
        assert_eq!(at_once("a vectored read", reader.read_vectored(&mut buffers)).await?, 0);
        // From now on the engine knows that there is nothing, and watches for it.
        assert!(poll_once(reader.read(&mut [0])).await.is_none(), "there is something to read");
    }
    yield_now().await;
    Ok(())
}

/// Writes nothing in each way, and returns the last outcome.
async fn write_nothing(writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<usize> {
    at_once("a write", writer.write(&[])).await?;
    at_once("a vectored write", writer.write_vectored(&[])).await?;
    let buffers = [IoSlice::new(&[]), IoSlice::new(&[])];
    at_once("a vectored write", writer.write_vectored(&buffers)).await
}

/// Writes until the kernel takes no more, and then nothing.
async fn write_nothing_to_full(writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let bytes = vec![7; 1 << 16];
    while let Some(written) = poll_once(writer.write(&bytes)).await {
        assert!(written? > 0);
        yield_now().await;
    }
    assert_eq!(write_nothing(writer).await?, 0);
    yield_now().await;
    Ok(())
}

/// Both directions of a stream, as itself, by reference and in halves.
macro_rules! check_stream {
    ($stream:ident, $peer:ident, $type:ty) => {
        read_nothing(&mut $stream).await?;
        read_nothing(&mut &$stream).await?;
        assert_eq!($stream.try_read(&mut [])?, 0);
        write_nothing_to_full(&mut $stream).await?;
        write_nothing_to_full(&mut &$stream).await?;
        assert_eq!($stream.try_write(&[])?, 0);
        let (mut reader, mut writer) = $stream.split();
        read_nothing(&mut reader).await?;
        write_nothing_to_full(&mut writer).await?;
        let (mut reader, mut writer) = $stream.into_split();
        read_nothing(&mut reader).await?;
        write_nothing_to_full(&mut writer).await?;
        let mut $stream: $type = reader.reunite(writer).unwrap();
        // Nothing was taken, and nothing is overlooked afterwards.
        $peer.write_all(b"x").await?;
        let mut byte = [0];
        $stream.read_exact(&mut byte).await?;
        assert_eq!(&byte, b"x");
        read_nothing(&mut $stream).await?;
        // As the kernel does, which looks at the stream first.
        $stream.shutdown(Shutdown::Write)?;
        let refused = write_nothing(&mut $stream).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
    };
}

#[test]
fn nothing_is_read_and_written_at_once_on_streams() {
    each(|| async {
        let (mut stream, mut peer) = connected().await?;
        assert_eq!(at_once("a peek", stream.peek(&mut [])).await?, 0);
        assert!(poll_once(stream.peek(&mut [0])).await.is_none());
        assert_eq!(at_once("a peek", stream.peek(&mut [])).await?, 0);
        check_stream!(stream, peer, TcpStream);
        let (mut stream, mut peer) = UnixStream::pair()?;
        check_stream!(stream, peer, UnixStream);
        Ok(())
    });
}

#[test]
fn nothing_is_read_and_written_at_once_on_other_descriptors() {
    each(|| async {
        let (mut reader, mut writer) = pipe()?;
        read_nothing(&mut reader).await?;
        read_nothing(&mut &reader).await?;
        write_nothing_to_full(&mut writer).await?;
        write_nothing_to_full(&mut &writer).await?;
        drop(reader);
        assert_eq!(write_nothing(&mut writer).await?, 0, "so does write(2) without a reader");

        let (one, other) = std::os::unix::net::UnixStream::pair()?;
        let (mut one, _other) = (AsyncFd::new(one)?, other);
        read_nothing(&mut one).await?;
        write_nothing_to_full(&mut one).await
    });
}

/// Reads nothing through hyper's and tokio's traits.
async fn read_nothing_adapted<S>(stream: &mut S) -> io::Result<()>
where
    S: hyper::rt::Read + tokio::io::AsyncRead + Unpin,
{
    for _ in 0..2 {
        let mut none = hyper::rt::ReadBuf::new(&mut []);
        let read = poll_fn(|cx| hyper::rt::Read::poll_read(Pin::new(stream), cx, none.unfilled()));
        at_once("a read of hyper", read).await?;
        let mut none = tokio::io::ReadBuf::new(&mut []);
        let read = poll_fn(|cx| tokio::io::AsyncRead::poll_read(Pin::new(stream), cx, &mut none));
        at_once("a read of tokio", read).await?;
        // From now on the engine watches.
        let mut room = [0];
        let mut some = tokio::io::ReadBuf::new(&mut room);
        let read = poll_fn(|cx| tokio::io::AsyncRead::poll_read(Pin::new(stream), cx, &mut some));
        assert!(poll_once(read).await.is_none());
    }
    Ok(())
}

/// Writes nothing through hyper's and tokio's traits.
async fn write_nothing_adapted<S>(stream: &mut S) -> io::Result<()>
where
    S: hyper::rt::Write + tokio::io::AsyncWrite + Unpin,
{
    let write = poll_fn(|cx| hyper::rt::Write::poll_write(Pin::new(stream), cx, &[]));
    assert_eq!(at_once("a write of hyper", write).await?, 0);
    let write = poll_fn(|cx| tokio::io::AsyncWrite::poll_write(Pin::new(stream), cx, &[]));
    assert_eq!(at_once("a write of tokio", write).await?, 0);
    let write = poll_fn(|cx| tokio::io::AsyncWrite::poll_write_vectored(Pin::new(stream), cx, &[]));
    assert_eq!(at_once("a vectored write of tokio", write).await?, 0);
    Ok(())
}

#[test]
fn nothing_is_read_and_written_at_once_through_adapters() {
    each(|| async {
        let (mut tcp, _peer) = connected().await?;
        read_nothing_adapted(&mut tcp).await?;
        write_nothing_to_full(&mut tcp).await?;
        write_nothing_adapted(&mut tcp).await?;

        let (mut unix, _peer) = UnixStream::pair()?;
        read_nothing_adapted(&mut unix).await?;
        write_nothing_to_full(&mut unix).await?;
        write_nothing_adapted(&mut unix).await?;

        let (raw, _peer) = std::os::unix::net::UnixStream::pair()?;
        let mut raw = AsyncFd::new(raw)?;
        read_nothing_adapted(&mut raw).await?;
        write_nothing_to_full(&mut raw).await?;
        write_nothing_adapted(&mut raw).await?;

        // A stream through both wrappers and back.
        let (stream, _peer) = connected().await?;
        let mut wrapped = FuturesIo::new(FuturesIo::new(Compat::new(Compat::new(stream))));
        read_nothing(&mut wrapped).await?;
        write_nothing_to_full(&mut wrapped).await
    });
}

#[test]
fn nothing_is_moved_at_once_within_the_kernel() {
    each(|| async {
        let (stream, _peer) = connected().await?;
        let (_reader, mut writer) = pipe()?;
        assert_eq!(at_once("a splice", splice(&stream, &writer, 0)).await?, 0);
        assert!(poll_once(splice(&stream, &writer, 1)).await.is_none());
        assert_eq!(at_once("a splice", splice(&stream, &writer, 0)).await?, 0);

        let mut file = tempfile::tempfile()?;
        file.write_all(b"bytes")?;
        write_nothing_to_full(&mut writer).await?;
        assert_eq!(at_once("a send of a file", sendfile(&file, 0, &writer, 0)).await?, 0);
        assert!(poll_once(sendfile(&file, 0, &writer, 1)).await.is_none());
        assert_eq!(at_once("a send of a file", sendfile(&file, 0, &writer, 0)).await?, 0);
        Ok(())
    });
}

/// A message is taken even without room for it, so such a receive does wait.
#[test]
fn a_receive_without_room_takes_a_message() {
    each(|| async {
        let (to, from) = UnixSeqpacket::pair()?;
        let (udp, peer) =
            (UdpSocket::bind("127.0.0.1:0").await?, UdpSocket::bind("127.0.0.1:0").await?);
        assert!(poll_once(from.recv(&mut [])).await.is_none());
        assert!(poll_once(udp.recv(&mut [])).await.is_none());
        for message in [&b"first"[..], b"2"] {
            to.send(message).await?;
            peer.send_to(message, udp.local_addr()?).await?;
        }
        let mut room = [0; 9];
        assert_eq!((from.recv(&mut []).await?, from.recv(&mut room).await?), (0, 1));
        assert_eq!((udp.recv(&mut []).await?, udp.recv(&mut room).await?), (0, 1));
        Ok(())
    });
}

/// A task that reads nothing again and again lets other tasks run.
#[test]
fn reads_of_nothing_are_part_of_the_budget() {
    each(|| async {
        let (stream, _peer) = UnixStream::pair()?;
        let mut reads = 0;
        let reading = poll_fn(|cx| {
            while let Poll::Ready(read) = StreamSocket::poll_read(&stream, cx, &mut []) {
                assert_eq!(read.unwrap(), 0);
                reads += 1;
                assert!(reads < 100_000, "no other task ever runs");
            }
            Poll::Pending::<()>
        });
        assert!(poll_once(reading).await.is_none());
        Ok(())
    });
}

#[test]
fn nothing_is_read_and_written_at_once_without_an_engine() -> io::Result<()> {
    let (stream, _peer) = std::os::unix::net::UnixStream::pair()?;
    futures_lite::future::block_on(async {
        let mut stream = UnixStream::from_std(stream)?;
        read_nothing_outside(&mut stream).await?;
        assert_eq!(write_nothing(&mut stream).await?, 0);
        Ok(())
    })
}

async fn read_nothing_outside(reader: &mut UnixStream) -> io::Result<()> {
    assert_eq!(at_once("a read", reader.read(&mut [])).await?, 0);
    assert!(poll_once(reader.read(&mut [0])).await.is_none());
    assert_eq!(at_once("a read", reader.read(&mut [])).await?, 0);
    Ok(())
}
