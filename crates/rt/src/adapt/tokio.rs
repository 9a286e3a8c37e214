//! tokio's I/O traits (feature `tokio`), without tokio's runtime.
//!
//! Streams of this crate implement [`tokio::io::AsyncRead`] and [`tokio::io::AsyncWrite`].
//! [`Compat`] does it for everything else that is read and written through futures-io, and the
//! reverse for streams that have tokio's traits only. Code that a library builds on the traits
//! alone works then: codecs, framed protocols, `tokio::io::copy`. Code that asks for tokio's
//! reactor, timer or `tokio::spawn` needs the feature `tokio-context` as well, and
//! `Runtime::builder().tokio(true)`.
//!
//! ```
//! use superpoll_rt::{AsyncFd, Runtime};
//! use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (one, other) = std::os::unix::net::UnixStream::pair()?;
//! Runtime::new()?.block_on(async {
//!     AsyncFd::new(one)?.write_all(b"first\nsecond\n").await?;
//!     let mut lines = BufReader::new(AsyncFd::new(other)?).lines();
//!     assert_eq!(lines.next_line().await?.as_deref(), Some("first"));
//!     assert_eq!(lines.next_line().await?.as_deref(), Some("second"));
//!     assert_eq!(lines.next_line().await?, None);
//!     Ok(())
//! })
//! # }
//! ```

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::adapt::{CLEARED, our_streams, poll_read_to, read_by, wrapper, write_through};
use crate::async_fd::AsyncFd;
use crate::net;
use crate::sys;

pin_project! {
    /// Implements tokio's I/O traits for a stream that has those of futures-io, and the reverse.
    #[derive(Clone, Copy, Debug)]
    pub struct Compat<T> {
        #[pin]
        io: T,
        vectored: bool,
    }
}

wrapper!(Compat);

/// Makes `read` fill the front of the buffer, at most `limit` bytes, which are initialised first.
/// `read` returns how many bytes it has filled.
fn read_initialised(
    buffer: &mut ReadBuf<'_>,
    limit: usize,
    read: impl FnOnce(&mut [u8]) -> Poll<io::Result<usize>>,
) -> Poll<io::Result<()>> {
    let room = buffer.initialize_unfilled_to(limit.min(buffer.remaining()));
    let done = ready!(read(room))?;
    buffer.advance(done);
    Poll::Ready(Ok(()))
}

read_by!([T: futures_io::AsyncRead] Compat<T>: AsyncRead, &mut ReadBuf<'_>, |wrapper, cx, room| {
    let io = wrapper.project().io;
    read_initialised(room, CLEARED, |room| io.poll_read(cx, room))
});

write_through!(
    [T: futures_io::AsyncWrite] Compat<T>: futures_io::AsyncWrite, poll_close => AsyncWrite, poll_shutdown,
    |wrapper| wrapper.project().io, vectored |wrapper| wrapper.vectored
);

impl<T: AsyncRead> futures_io::AsyncRead for Compat<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(self.project().io.poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }
}

write_through!(
    [T: AsyncWrite] Compat<T>: AsyncWrite, poll_shutdown => futures_io::AsyncWrite, poll_close,
    |wrapper| wrapper.project().io
);

our_streams! {
    AsyncRead, &mut ReadBuf<'_>, sys::buffer::read_to_buf, read_initialised;
    AsyncWrite, poll_shutdown
}
