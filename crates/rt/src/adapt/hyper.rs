//! hyper's servers and clients on this runtime (feature `hyper`).
//!
//! Streams of this crate implement [`hyper::rt::Read`] and [`hyper::rt::Write`], so hyper takes
//! them without a wrapper. [`FuturesIo`] wraps everything else that is read and written through
//! futures-io. HTTP/2 needs an executor: [`EngineExecutor`]. Time limits need a timer:
//! [`EngineTimer`].
//!
//! Connections live on the engine that serves them: neither a service nor its futures nor its
//! bodies need be `Send`.
//!
//! ```
//! use std::convert::Infallible;
//! use std::rc::Rc;
//!
//! use http_body_util::{BodyExt, Full};
//! use hyper::body::{Bytes, Incoming};
//! use hyper::service::service_fn;
//! use hyper::{Request, Response};
//! use superpoll_rt::hyper::{EngineExecutor, EngineTimer};
//! use superpoll_rt::{AsyncFd, Runtime, spawn};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (client, server) = std::os::unix::net::UnixStream::pair()?;
//! Runtime::new()?.block_on(async {
//!     let greeting = Rc::new("hello".to_owned());
//!     let service = service_fn(move |_: Request<Incoming>| {
//!         let text = Bytes::from((*greeting).clone());
//!         async move { Ok::<_, Infallible>(Response::new(Full::new(text))) }
//!     });
//!     let server = hyper::server::conn::http2::Builder::new(EngineExecutor)
//!         .timer(EngineTimer)
//!         .serve_connection(AsyncFd::new(server)?, service);
//!     spawn(server).detach();
//!
//!     let client = AsyncFd::new(client)?;
//!     let (mut requests, connection) =
//!         hyper::client::conn::http2::handshake(EngineExecutor, client).await?;
//!     spawn(connection).detach();
//!     let request = Request::get("http://localhost/").body(Full::<Bytes>::default())?;
//!     let body = requests.send_request(request).await?.into_body().collect().await?;
//!     assert_eq!(body.to_bytes(), "hello");
//!     Ok(())
//! })
//! # }
//! ```

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures_io::{AsyncRead, AsyncWrite};
use hyper::rt::{self, Executor, Read, ReadBuf, ReadBufCursor, Write};
use pin_project_lite::pin_project;

use crate::async_fd::AsyncFd;
use crate::calls::{Call, count};
use crate::io_registration::IoRegistration;
use crate::net;
use crate::short_reads::IoState;
use crate::sources::Direction;
use crate::sys;
use crate::time::{self, Sleep};

#[cfg(feature = "hyper-util")]
mod connector;
#[cfg(feature = "hyper-util")]
pub(crate) mod serve;

#[cfg(feature = "hyper-util")]
pub use connector::{Connecting, Connector};

/// The largest number of bytes to ask a wrapped reader for at a time. They are cleared first, and
/// hyper lends up to 400 KiB, where a TLS record fills 16 KiB.
const CLEARED: usize = 32 * 1024;

pin_project! {
    /// Implements hyper's I/O traits for a stream that has those of futures-io, and the reverse.
    ///
    /// The reverse is of use after an upgrade: hyper's `Upgraded`, wrapped, is a futures-io stream.
    ///
    /// Vectored writes are passed on. A stream that has none of its own writes the first buffer
    /// only; for such a stream [`without_vectored_writes`](FuturesIo::without_vectored_writes)
    /// makes hyper join small buffers before it writes.
    #[derive(Clone, Copy, Debug)]
    pub struct FuturesIo<T> {
        #[pin]
        io: T,
        vectored: bool,
    }
}

impl<T> FuturesIo<T> {
    /// Wraps a stream.
    pub const fn new(io: T) -> FuturesIo<T> {
        FuturesIo { io, vectored: true }
    }

    /// Tells hyper that vectored writes do not pay.
    #[must_use]
    pub fn without_vectored_writes(mut self) -> FuturesIo<T> {
        self.vectored = false;
        self
    }

    /// Returns the stream.
    pub const fn get_ref(&self) -> &T {
        &self.io
    }

    /// Returns the stream, to change it.
    pub const fn get_mut(&mut self) -> &mut T {
        &mut self.io
    }

    /// Returns the stream. Nothing is buffered here.
    pub fn into_inner(self) -> T {
        self.io
    }
}

impl<T: AsyncRead> Read for FuturesIo<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let io = self.project().io;
        sys::buffer::read_initialised(&mut buffer, CLEARED, |room| io.poll_read(cx, room))
    }
}

impl<T: AsyncWrite> Write for FuturesIo<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.project().io.poll_write(cx, buffer)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().io.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().io.poll_close(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.vectored
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.project().io.poll_write_vectored(cx, buffers)
    }
}

impl<T: Read> AsyncRead for FuturesIo<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(self.project().io.poll_read(cx, buffer.unfilled()))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }
}

impl<T: Write> AsyncWrite for FuturesIo<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.project().io.poll_write(cx, buffer)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.project().io.poll_write_vectored(cx, buffers)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().io.poll_flush(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().io.poll_shutdown(cx)
    }
}

macro_rules! read_straight {
    ($($type:ty: |$stream:ident| $fd:expr),* $(,)?) => {$(
        impl Read for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                mut buffer: ReadBufCursor<'_>,
            ) -> Poll<io::Result<()>> {
                let $stream = &*self;
                let requested = buffer.remaining();
                if requested == 0 {
                    return IoRegistration::poll_empty(cx, || Ok(0)).map_ok(drop);
                }
                $fd.poll_with(cx, Direction::Read, |io| {
                    count(Call::Read);
                    let done = sys::buffer::read_to_cursor(io.as_fd(), &mut buffer)?;
                    Ok(((), IoState::after(done, requested)))
                })
            }
        }
    )*};
}

macro_rules! read_cleared {
    ($($type:ty),* $(,)?) => {$(
        impl Read for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                mut buffer: ReadBufCursor<'_>,
            ) -> Poll<io::Result<()>> {
                sys::buffer::read_initialised(&mut buffer, CLEARED, |room| {
                    AsyncRead::poll_read(self, cx, room)
                })
            }
        }
    )*};
}

macro_rules! write_through {
    ($($type:ty),* $(,)?) => {$(
        impl Write for $type {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &[u8],
            ) -> Poll<io::Result<usize>> {
                AsyncWrite::poll_write(self, cx, buffer)
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                AsyncWrite::poll_flush(self, cx)
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                AsyncWrite::poll_close(self, cx)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffers: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                AsyncWrite::poll_write_vectored(self, cx, buffers)
            }
        }
    )*};
}

read_straight! {
    net::TcpStream: |stream| stream.async_fd(),
    AsyncFd<TcpStream>: |stream| stream,
}

// Only these streams' own reading can interpret a short read: descriptors may come along.
read_cleared!(net::unix::UnixStream, AsyncFd<UnixStream>);

write_through!(net::TcpStream, net::unix::UnixStream, AsyncFd<TcpStream>, AsyncFd<UnixStream>);

/// Spawns hyper's tasks on the engine of the thread that hyper runs on. They need not be `Send`.
///
/// # Panics
///
/// Outside of a runtime, like [`spawn`](crate::spawn).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EngineExecutor;

impl<F> Executor<F> for EngineExecutor
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        crate::spawn(future).detach();
    }
}

/// hyper's time limits on this runtime's timers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EngineTimer;

impl rt::Sleep for Sleep {}

impl rt::Timer for EngineTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(time::sleep(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(time::sleep_until(deadline))
    }

    fn now(&self) -> Instant {
        crate::time::now()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Sleep>() {
            Some(mut ours) => ours.reset(deadline),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}
