//! Reading and writing as streams: `futures-io` for every descriptor that `std` can read and write.
//!
//! A stream that gave less than was asked for is drained, and one that took less than was offered is
//! full. The next operation in that direction then waits without having been tried, which saves the
//! refused call that it would be in a request-reply protocol. That is right for pipes and stream sockets
//! (`epoll(7)`, question 9). It is not for terminals, message sockets and files, where a short count says
//! nothing, so it is a property of the type.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};

use crate::async_fd::AsyncFd;
use crate::link::After;
use crate::sources::Direction;

/// What a short count means for a type of descriptor.
pub trait Drains {
    /// Whether a short read or write means that the next one would block.
    const SHORT_MEANS_BLOCKED: bool;
}

impl<T> Drains for &T
where
    T: Drains,
{
    const SHORT_MEANS_BLOCKED: bool = T::SHORT_MEANS_BLOCKED;
}

macro_rules! drains {
    ($($type:ty: $drains:literal),* $(,)?) => {$(
        impl Drains for $type {
            const SHORT_MEANS_BLOCKED: bool = $drains;
        }
    )*};
}

drains! {
    std::io::PipeReader: true,
    std::io::PipeWriter: true,
    std::net::TcpStream: true,
    // A read ends where descriptors came along, whatever is behind them.
    std::os::unix::net::UnixStream: false,
    std::fs::File: false,
    std::process::ChildStdin: true,
    std::process::ChildStdout: true,
    std::process::ChildStderr: true,
}

#[inline]
fn after<T: Drains>(done: usize, asked: usize) -> After {
    if T::SHORT_MEANS_BLOCKED { After::of(done, asked) } else { After::Ready }
}

impl<T: AsFd + Drains> AsyncFd<T>
where
    for<'a> &'a T: Read,
{
    #[inline]
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(cx, Direction::Read, |mut io| {
            io.read(buffer).map(|done| (done, after::<T>(done, buffer.len())))
        })
    }

    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.link().attempt(Direction::Read, || {
            let mut io = self.get_ref();
            io.read(buffer).map(|done| (done, after::<T>(done, buffer.len())))
        })
    }

    pub(crate) fn poll_read_vectored(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let asked = buffers.iter().map(|buffer| buffer.len()).sum();
        self.poll_with(cx, Direction::Read, |mut io| {
            io.read_vectored(buffers).map(|done| (done, after::<T>(done, asked)))
        })
    }
}

impl<T: AsFd + Drains> AsyncFd<T>
where
    for<'a> &'a T: Write,
{
    #[inline]
    pub(crate) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(cx, Direction::Write, |mut io| {
            io.write(buffer).map(|done| (done, after::<T>(done, buffer.len())))
        })
    }

    pub(crate) fn try_write(&self, buffer: &[u8]) -> io::Result<usize> {
        self.link().attempt(Direction::Write, || {
            let mut io = self.get_ref();
            io.write(buffer).map(|done| (done, after::<T>(done, buffer.len())))
        })
    }

    pub(crate) fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let asked = buffers.iter().map(|buffer| buffer.len()).sum();
        self.poll_with(cx, Direction::Write, |mut io| {
            io.write_vectored(buffers).map(|done| (done, after::<T>(done, asked)))
        })
    }
}

macro_rules! delegate {
    ($type:ty) => {
        impl<T: AsFd + Drains> AsyncRead for $type
        where
            for<'a> &'a T: Read,
        {
            #[inline]
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                AsyncFd::poll_read(&self, cx, buffer)
            }
            fn poll_read_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffers: &mut [IoSliceMut<'_>],
            ) -> Poll<io::Result<usize>> {
                AsyncFd::poll_read_vectored(&self, cx, buffers)
            }
        }

        impl<T: AsFd + Drains> AsyncWrite for $type
        where
            for<'a> &'a T: Write,
        {
            #[inline]
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &[u8],
            ) -> Poll<io::Result<usize>> {
                AsyncFd::poll_write(&self, cx, buffer)
            }
            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffers: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                AsyncFd::poll_write_vectored(&self, cx, buffers)
            }
            fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }
            fn poll_close(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }
        }
    };
}

delegate!(AsyncFd<T>);
delegate!(&AsyncFd<T>);
