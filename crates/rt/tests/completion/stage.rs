//! The setup of the tests of operations: an engine on each back-end, and connections made by
//! operations.

use std::future::Future;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_lite::future::{yield_now, zip};
use superpoll_rt::completion::{accept, connect, send_all};
use superpoll_rt::net::{TcpListener, TcpStream};
use superpoll_rt::{BackendKind, Runtime};

use crate::without_io_uring;

mod sys {
    use std::net::TcpStream;
    use std::os::fd::AsRawFd;

    /// Returns the number of bytes that the peer's kernel has not acknowledged.
    pub(crate) fn unacknowledged(stream: &TcpStream) -> i32 {
        let mut count = 0;
        // SAFETY: the kernel writes one number.
        let done = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
        assert_eq!(done, 0);
        count
    }
}

pub(crate) fn runtime(kind: BackendKind) -> Runtime {
    Runtime::builder().backend(kind).build().unwrap()
}

/// Runs the same on each back-end.
pub(crate) fn everywhere<F: Future<Output = io::Result<()>>>(run: impl Fn(BackendKind) -> F) {
    in_each(BackendKind::available(), run);
}

/// Runs the same on each of these back-ends.
pub(crate) fn in_each<F: Future<Output = io::Result<()>>>(
    kinds: impl IntoIterator<Item = BackendKind>,
    run: impl Fn(BackendKind) -> F,
) {
    let _no_child_starts = without_io_uring::STARTS.read().unwrap();
    for kind in kinds {
        let runtime = runtime(kind);
        let outcome = runtime.block_on(run(kind));
        assert!(outcome.is_ok(), "{kind}: {outcome:?}");
        assert_eq!(runtime.stats()[0].operations, 0, "{kind}");
    }
}

/// Several turns, in which everything that can happen on this machine happens.
pub(crate) async fn some_turns() {
    for _ in 0..4 {
        yield_now().await;
    }
}

/// Connects, and waits until the listener has the connection: the last packet of a handshake may
/// reach it after `connect` has returned. It has the connection before it has the byte that is sent
/// here.
pub(crate) fn arrived(address: SocketAddr) -> io::Result<std::net::TcpStream> {
    let mut client = std::net::TcpStream::connect(address)?;
    client.write_all(b"x")?;
    let start = Instant::now();
    while sys::unacknowledged(&client) > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "the listener has no connection");
        std::thread::yield_now();
    }
    Ok(client)
}

/// The two ends of a connection, in which the peer's address is checked.
pub(crate) async fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (client, server) = zip(connect(address), accept(&listener)).await;
    let (server, peer) = server?;
    let client = client?;
    assert_eq!(client.local_addr()?, peer);
    Ok((client, server))
}

/// Returns the byte at a place of a stream, which differs from stream to stream.
pub(crate) fn byte(stream: usize, place: usize) -> u8 {
    (place * 7 + place / 256 + stream) as u8
}

/// Sends `bytes` bytes of a stream in chunks, and lets other tasks go first now and then.
pub(crate) async fn send_chunks(sender: TcpStream, stream: usize, bytes: usize, chunk: usize) {
    let bytes: Vec<u8> = (0..bytes).map(|place| byte(stream, place)).collect();
    for chunk in bytes.chunks(chunk) {
        send_all(&sender, chunk.to_vec()).await.0.unwrap();
        if chunk[0] % 16 == 0 {
            yield_now().await;
        }
    }
}

/// Returns the number of descriptors that this process has open.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
