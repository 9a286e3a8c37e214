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
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures_io::{AsyncRead, AsyncWrite};
use hyper::rt::{self, Executor, Read, ReadBuf, ReadBufCursor, Write};
use pin_project_lite::pin_project;

use crate::adapt::{CLEARED, our_streams, poll_read_to, read_by, wrapper, write_through};
use crate::async_fd::AsyncFd;
use crate::net;
use crate::sys;
use crate::time::{self, Sleep};

#[cfg(feature = "hyper-util")]
mod connector;
#[cfg(feature = "hyper-util")]
pub(crate) mod serve;

#[cfg(feature = "hyper-util")]
pub use connector::{Connecting, Connector};

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

wrapper!(FuturesIo);

read_by!([T: AsyncRead] FuturesIo<T>: Read, ReadBufCursor<'_>, |wrapper, cx, room| {
    let io = wrapper.project().io;
    sys::buffer::read_initialised(room, CLEARED, |room| io.poll_read(cx, room))
});

write_through!(
    [T: AsyncWrite] FuturesIo<T>: AsyncWrite, poll_close => Write, poll_shutdown,
    |wrapper| wrapper.project().io, vectored |wrapper| wrapper.vectored
);

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

write_through!(
    [T: Write] FuturesIo<T>: Write, poll_shutdown => AsyncWrite, poll_close,
    |wrapper| wrapper.project().io
);

our_streams! {
    Read, ReadBufCursor<'_>, sys::buffer::read_to_cursor, sys::buffer::read_initialised;
    Write, poll_shutdown
}

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
