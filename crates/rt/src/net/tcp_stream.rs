//! TCP connections.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::address::{self, ToSocketAddrs};
use super::split::{self, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use super::stream::{StreamSocket, futures_io, sealed};
use crate::async_fd::AsyncFd;
use crate::calls::{Call, Closing, count};
use crate::error;
use crate::net::descriptor::descriptor;
use crate::sources::Direction;
use crate::sys;

/// A TCP connection (`tcp(7)`).
///
/// It reads and writes through the traits of `futures-io`, on the stream, on a reference to it, or on a
/// half of it. Each read and each write is cancel safe; `write_all` and `read_exact` are not, because a
/// part may have been done. Closing (`poll_close`) ends the writing direction, so that the peer sees the
/// end of the stream; dropping closes the socket.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use futures_lite::{AsyncReadExt, AsyncWriteExt};
/// use superpoll_rt::net::{TcpListener, TcpStream};
///
/// superpoll_rt::Runtime::new()?.block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let mut client = TcpStream::connect(listener.local_addr()?).await?;
///     let (mut server, _) = listener.accept().await?;
///     client.write_all(b"hello").await?;
///     client.close().await?;
///     let mut text = String::new();
///     server.read_to_string(&mut text).await?;
///     assert_eq!(text, "hello");
///     std::io::Result::Ok(())
/// })??;
/// # Ok(())
/// # }
/// ```
pub struct TcpStream {
    fd: AsyncFd<std::net::TcpStream>,
    closing: Closing,
}

impl TcpStream {
    pub(crate) fn nonblocking(stream: std::net::TcpStream) -> TcpStream {
        TcpStream { fd: AsyncFd::stream(stream), closing: Closing }
    }

    /// Connects to the first address that accepts, one after the other.
    ///
    /// Cancel safe: an attempt that is under way is given up.
    ///
    /// # Errors
    ///
    /// What looking up the name says, or what the last attempt said.
    pub async fn connect(address: impl ToSocketAddrs) -> io::Result<TcpStream> {
        let mut last = None;
        for address in address::resolve(&address).await? {
            match TcpStream::connect_addr(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()))
    }

    /// Connects to an address (`connect(2)`).
    ///
    /// Cancel safe: an attempt that is under way is given up.
    ///
    /// # Errors
    ///
    /// What `socket(2)` and `connect(2)` say: `ConnectionRefused`, `TimedOut`, `NetworkUnreachable`.
    pub async fn connect_addr(address: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::unconnected(address)?;
        stream.connect_to(address).await?;
        Ok(stream)
    }

    /// A socket for connections to such an address.
    pub(crate) fn unconnected(address: SocketAddr) -> io::Result<TcpStream> {
        let domain = Domain::for_address(address);
        count(Call::Socket);
        let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))
            .map_err(|error| error::limit("connecting a TCP socket", error))?;
        Ok(TcpStream::nonblocking(socket.into()))
    }

    /// Connects it, or goes on with an attempt that has begun.
    pub(crate) async fn connect_to(&self, address: SocketAddr) -> io::Result<()> {
        let target = address.into();
        count(Call::Connect);
        match SockRef::from(&self.fd).connect(&target) {
            Ok(()) => return Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::EISCONN) => return Ok(()),
                // An interrupted attempt goes on as well.
                Some(libc::EINPROGRESS | libc::EALREADY | libc::EINTR) => {}
                _ => return Err(error),
            },
        }
        // Neither direction is worth a try, and the peer speaks last of all.
        self.fd.link().clear(Direction::Write, 0);
        self.fd.link().clear(Direction::Read, 0);
        self.fd
            .perform(Direction::Write, |stream| {
                // The second call tells how the first one ended.
                count(Call::Connect);
                match SockRef::from(stream).connect(&target) {
                    Err(error) => match error.raw_os_error() {
                        Some(libc::EISCONN) => Ok(()),
                        Some(libc::EALREADY | libc::EINPROGRESS) => {
                            Err(io::ErrorKind::WouldBlock.into())
                        }
                        _ => Err(error),
                    },
                    Ok(()) => Ok(()),
                }
            })
            .await
    }

    /// Takes a connected socket from elsewhere and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// What `fcntl(2)` says.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<TcpStream> {
        sys::descriptor::set_nonblocking(&stream)?;
        Ok(TcpStream::nonblocking(stream))
    }

    /// Gives the socket back, open and non-blocking. Where a read of this stream was pending and given up, its
    /// bytes may have been read already: use [`into_parts`](TcpStream::into_parts) then.
    pub fn into_std(self) -> std::net::TcpStream {
        self.closing.keep_open();
        self.fd.into_inner()
    }

    /// Gives the socket back, with what was read of it for a read that was given up; nothing, as a rule. That
    /// comes before all that can be read from the socket.
    pub fn into_parts(self) -> (std::net::TcpStream, Vec<u8>) {
        let rest = self.fd.link().take_fetched();
        self.closing.keep_open();
        (self.fd.into_inner(), rest)
    }

    /// The peer's address.
    ///
    /// # Errors
    ///
    /// What `getpeername(2)` says.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.fd.get_ref().peer_addr()
    }

    /// The own address.
    ///
    /// # Errors
    ///
    /// What `getsockname(2)` says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        count(Call::GetName);
        self.fd.get_ref().local_addr()
    }

    /// Whether small writes are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// What `getsockopt(2)` says.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.fd.get_ref().nodelay()
    }

    /// Whether small writes are to be sent at once, rather than joined while earlier ones are
    /// unacknowledged (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// What `setsockopt(2)` says.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        count(Call::SetOption);
        self.fd.get_ref().set_nodelay(nodelay)
    }

    /// The time to live of packets sent (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// What `getsockopt(2)` says.
    pub fn ttl(&self) -> io::Result<u32> {
        self.fd.get_ref().ttl()
    }

    /// Sets the time to live of packets sent (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// What `setsockopt(2)` says.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.fd.get_ref().set_ttl(ttl)
    }

    /// How long closing takes care of what is unsent (`SO_LINGER`).
    ///
    /// # Errors
    ///
    /// What `getsockopt(2)` says.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        SockRef::from(&self.fd).linger()
    }

    /// Sets how long closing takes care of what is unsent (`SO_LINGER`, in whole seconds). With zero,
    /// closing resets the connection; with more, dropping the stream *blocks* the engine for so long.
    ///
    /// # Errors
    ///
    /// What `setsockopt(2)` says.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        SockRef::from(&self.fd).set_linger(linger)
    }

    /// Ends one direction or both (`shutdown(2)`).
    ///
    /// # Errors
    ///
    /// `NotConnected` if the connection is gone already.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        count(Call::Shutdown);
        self.fd.get_ref().shutdown(how)
    }

    /// Takes the error that is pending on the socket (`SO_ERROR`).
    ///
    /// # Errors
    ///
    /// What `getsockopt(2)` says.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.fd.get_ref().take_error()
    }

    /// Reads without taking (`MSG_PEEK`): the same bytes come with the next read. Zero bytes are the
    /// end of the stream.
    ///
    /// Cancel safe: it takes nothing.
    ///
    /// # Errors
    ///
    /// What `recv(2)` says.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let link = self.fd.link();
        self.fd
            .wait(Direction::Read, |cx| {
                match link.fetched().and_then(|fetched| fetched.peek(buffer)) {
                    Some(count) => Poll::Ready(Ok(count)),
                    None => self.fd.poll_perform(cx, Direction::Read, |stream| stream.peek(buffer)),
                }
            })
            .await
    }

    /// Waits until there is something to read, or the end of the stream, most likely: use
    /// [`try_read`](TcpStream::try_read), which may still say `WouldBlock`.
    ///
    /// Cancel safe: it holds nothing.
    ///
    /// # Errors
    ///
    /// Without a runtime on this thread, or if the socket cannot be watched.
    pub async fn readable(&self) -> io::Result<()> {
        self.fd.readable().await.map(drop)
    }

    /// Waits until there is room to write, most likely: use [`try_write`](TcpStream::try_write), which
    /// may still say `WouldBlock`.
    ///
    /// Cancel safe: it holds nothing.
    ///
    /// # Errors
    ///
    /// As [`readable`](TcpStream::readable).
    pub async fn writable(&self) -> io::Result<()> {
        self.fd.writable().await.map(drop)
    }

    /// Reads what there is, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is nothing, or what `recv(2)` says.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.fd.link().fetched().and_then(|fetched| self.fd.link().give(fetched, buffer)) {
            Some(outcome) => outcome,
            None => self.fd.try_read(buffer),
        }
    }

    /// Writes what there is room for, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room, or what `send(2)` says.
    pub fn try_write(&self, buffer: &[u8]) -> io::Result<usize> {
        self.fd.try_write(buffer)
    }

    /// Its two directions, borrowed.
    pub fn split(&mut self) -> (ReadHalf<'_, TcpStream>, WriteHalf<'_, TcpStream>) {
        split::borrowed(self)
    }

    /// Its two directions, for two tasks of this engine (see [`split`](super::split)). Dropping the
    /// writing half ends the writing direction.
    pub fn into_split(self) -> (OwnedReadHalf<TcpStream>, OwnedWriteHalf<TcpStream>) {
        split::owned(self)
    }

    pub(crate) fn async_fd(&self) -> &AsyncFd<std::net::TcpStream> {
        &self.fd
    }
}

impl sealed::Sealed for TcpStream {}

impl StreamSocket for TcpStream {
    #[inline]
    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.fd.poll_fetched_read(cx, buffer)
    }

    fn poll_read_vectored(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(fetched) = self.fd.link().fetched() {
            let first = buffers.iter_mut().find(|buffer| !buffer.is_empty());
            let room = first.map_or(&mut [][..], |buffer| &mut buffer[..]);
            if let Some(outcome) = self.fd.link().give(fetched, room) {
                return Poll::Ready(outcome);
            }
        }
        self.fd.poll_read_vectored(cx, buffers)
    }

    #[inline]
    fn poll_write(&self, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        self.fd.poll_write(cx, buffer)
    }

    fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.fd.poll_send_vectored(cx, buffers)
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        TcpStream::shutdown(self, how)
    }
}

futures_io!([] TcpStream, read |stream| stream);
futures_io!([] TcpStream, write |stream| stream);
futures_io!(['a] &'a TcpStream, read |stream| *stream);
futures_io!(['a] &'a TcpStream, write |stream| *stream);

descriptor!(TcpStream: fd, plain);
