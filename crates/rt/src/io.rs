//! Reading and writing as streams: `futures-io` for every descriptor that `std` can read and write.
//!
//! A stream that gave less than was asked for is drained, and a stream that took less than was
//! offered is full. The next operation in that direction then waits without having been tried,
//! which saves the refused call that a request-reply protocol would make. That is right for pipes
//! and stream sockets (`epoll(7)`, question 9), with two exceptions that the peer chooses: a read
//! of a socket ends at an urgent byte, and a pipe whose writer has `O_DIRECT` gives one packet at a
//! time. The engine knows of both ([`ShortReads`](crate::short_reads::ShortReads)). It is not
//! right for terminals, message sockets and files, where a short count says nothing, so it is a
//! property of the type.
//!
//! Reads and writes of no bytes never wait: they are done whatever the readiness. A read gives zero
//! bytes. A write is left to the kernel, which reports that the stream has ended.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};
use socket2::SockRef;
use superpoll::call;

use crate::async_fd::AsyncFd;
use crate::calls::{Call, count};
use crate::io_registration::IoRegistration;
use crate::short_reads::{IoState, total_len};
use crate::sources::Direction;

/// The meaning of a short count for a type of descriptor.
pub trait ShortCounts {
    /// Whether a short read or write means that the next one would block.
    const SHORT_MEANS_BLOCKED: bool;

    /// Whether the bytes read may be packets (a pipe with `O_DIRECT`), so that a short read may
    /// mean only the end of a packet. Then the next read waits without having been tried only where
    /// the poller reports the remaining bytes again.
    const MAY_BE_PACKETS: bool = false;

    /// Reads with an inlined system call, if that is all that the type's `Read` does; `None` if it
    /// does more. [`superpoll::call`] says how much that saves.
    fn read_inline(&self, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        let _ = buffer;
        None
    }

    /// Writes in the same way.
    fn write_inline(&self, buffer: &[u8]) -> Option<io::Result<usize>> {
        let _ = buffer;
        None
    }
}

impl<T> ShortCounts for &T
where
    T: ShortCounts,
{
    const SHORT_MEANS_BLOCKED: bool = T::SHORT_MEANS_BLOCKED;
    const MAY_BE_PACKETS: bool = T::MAY_BE_PACKETS;
    #[inline(always)]
    fn read_inline(&self, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        T::read_inline(self, buffer)
    }
    #[inline(always)]
    fn write_inline(&self, buffer: &[u8]) -> Option<io::Result<usize>> {
        T::write_inline(self, buffer)
    }
}

macro_rules! drains {
    ($($type:ty: $drains:literal, $packets:literal, $write:ident $counted:ident);* $(;)?) => {$(
        impl ShortCounts for $type {
            const SHORT_MEANS_BLOCKED: bool = $drains;
            const MAY_BE_PACKETS: bool = $packets;
            #[inline(always)]
            fn read_inline(&self, buffer: &mut [u8]) -> Option<io::Result<usize>> {
                count(Call::Read);
                Some(call::read(self, buffer))
            }
            #[inline(always)]
            fn write_inline(&self, buffer: &[u8]) -> Option<io::Result<usize>> {
                count(Call::$counted);
                Some(call::$write(self, buffer))
            }
        }
    )*};
}

drains! {
    std::io::PipeReader: true, true, write Write;
    std::io::PipeWriter: true, false, write Write;
    std::net::TcpStream: true, false, send Send;
    // A read ends where descriptors came along, whether or not bytes are after them.
    std::os::unix::net::UnixStream: false, false, send Send;
    std::fs::File: false, false, write Write;
    std::process::ChildStdin: true, false, write Write;
    std::process::ChildStdout: true, true, write Write;
    std::process::ChildStderr: true, true, write Write;
}

#[inline]
fn state_after<T: ShortCounts>(done: usize, requested: usize) -> IoState {
    if T::SHORT_MEANS_BLOCKED { IoState::after(done, requested) } else { IoState::Ready }
}

#[inline]
fn state_after_read<T: ShortCounts>(done: usize, requested: usize) -> IoState {
    match T::SHORT_MEANS_BLOCKED && T::MAY_BE_PACKETS {
        true => IoState::after_pipe_read(done, requested),
        false => state_after::<T>(done, requested),
    }
}

#[inline(always)]
fn read_from<T: ShortCounts>(io: &T, buffer: &mut [u8]) -> io::Result<(usize, IoState)>
where
    for<'a> &'a T: Read,
{
    let mut reader = io;
    let done = match io.read_inline(buffer) {
        Some(outcome) => outcome,
        None => reader.read(buffer),
    }?;
    Ok((done, state_after_read::<T>(done, buffer.len())))
}

#[inline(always)]
fn write_to<T: ShortCounts>(io: &T, buffer: &[u8]) -> io::Result<(usize, IoState)>
where
    for<'a> &'a T: Write,
{
    let mut writer = io;
    let done = match io.write_inline(buffer) {
        Some(outcome) => outcome,
        None => writer.write(buffer),
    }?;
    Ok((done, state_after::<T>(done, buffer.len())))
}

impl<T: AsFd> AsyncFd<T> {
    /// Sends to a stream socket, with an inlined call.
    pub(crate) fn poll_send_vectored(
        &self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let requested = total_len(buffers.iter().map(|buffer| buffer.len()));
        let send = |socket: &T| {
            count(Call::SendParts);
            call::send_vectored(socket, buffers)
        };
        if requested == 0 {
            return IoRegistration::poll_empty(cx, || send(self.get_ref()));
        }
        self.poll_with(cx, Direction::Write, |socket| {
            send(socket).map(|done| (done, IoState::after(done, requested)))
        })
    }

    /// Sends to a stream socket, without waiting; more bytes follow.
    pub(crate) fn try_send_more(&self, buffer: &[u8]) -> io::Result<usize> {
        let flags = libc::MSG_MORE | libc::MSG_NOSIGNAL;
        self.registration().try_io(self.get_ref().as_fd(), Direction::Write, || {
            count(Call::Send);
            let sent = SockRef::from(self.get_ref()).send_with_flags(buffer, flags);
            sent.map(|done| (done, IoState::after(done, buffer.len())))
        })
    }
}

impl<T: AsFd + ShortCounts> AsyncFd<T>
where
    for<'a> &'a T: Read,
{
    #[inline]
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if buffer.is_empty() {
            return IoRegistration::poll_empty(cx, || Ok(0));
        }
        self.poll_with(cx, Direction::Read, |io| read_from(io, buffer))
    }

    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.registration()
            .try_io(self.get_ref().as_fd(), Direction::Read, || read_from(self.get_ref(), buffer))
    }

    pub(crate) fn poll_read_vectored(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let requested = total_len(buffers.iter().map(|buffer| buffer.len()));
        if requested == 0 {
            return IoRegistration::poll_empty(cx, || Ok(0));
        }
        self.poll_with(cx, Direction::Read, |mut io| {
            count(Call::ReadParts);
            io.read_vectored(buffers).map(|done| (done, state_after_read::<T>(done, requested)))
        })
    }
}

impl<T: AsFd + ShortCounts> AsyncFd<T>
where
    for<'a> &'a T: Write,
{
    #[inline]
    pub(crate) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        if buffer.is_empty() {
            return IoRegistration::poll_empty(cx, || Ok(write_to(self.get_ref(), buffer)?.0));
        }
        self.poll_with(cx, Direction::Write, |io| write_to(io, buffer))
    }

    pub(crate) fn try_write(&self, buffer: &[u8]) -> io::Result<usize> {
        self.registration()
            .try_io(self.get_ref().as_fd(), Direction::Write, || write_to(self.get_ref(), buffer))
    }

    pub(crate) fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let requested = total_len(buffers.iter().map(|buffer| buffer.len()));
        let write = |mut io: &T| {
            count(Call::WriteParts);
            io.write_vectored(buffers)
        };
        if requested == 0 {
            return IoRegistration::poll_empty(cx, || write(self.get_ref()));
        }
        self.poll_with(cx, Direction::Write, |io| {
            write(io).map(|done| (done, state_after::<T>(done, requested)))
        })
    }
}

macro_rules! delegate {
    ($type:ty) => {
        impl<T: AsFd + ShortCounts> AsyncRead for $type
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

        impl<T: AsFd + ShortCounts> AsyncWrite for $type
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
