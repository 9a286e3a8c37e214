//! TCP connections.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::address::{self, ToSocketAddrs};
use super::stream::{StreamSocket, stream_socket};
use crate::async_fd::AsyncFd;
use crate::calls::{Call, Closing, count};
use crate::error;
use crate::io_registration::IoRegistration;
use crate::sources::Direction;

/// A TCP connection (`tcp(7)`).
///
/// It reads and writes through the traits of `futures-io`, on the stream, on a reference to it, or
/// on a half of it. Each read and each write is cancel safe; `write_all` and `read_exact` are not,
/// because a part may have been done. Closing (`poll_close`) ends the writing direction, so that
/// the peer sees the end of the stream; dropping closes the socket.
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
/// })?;
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
    /// Any error of the name look-up, or the error of the last attempt.
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
    /// Any error of `socket(2)` and `connect(2)`, such as `ConnectionRefused`, `TimedOut` or
    /// `NetworkUnreachable`.
    pub async fn connect_addr(address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::unconnected(address)?.connect_to(address).await
    }

    /// Makes a non-blocking socket for a connection to such an address.
    ///
    /// # Errors
    ///
    /// Any error of `socket(2)`; where no descriptor is left, with the limit and how to raise it.
    pub fn unconnected(address: SocketAddr) -> io::Result<TcpStream> {
        let domain = Domain::for_address(address);
        count(Call::Socket);
        let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))
            .map_err(|error| error::limit("connecting a TCP socket", error))?;
        Ok(TcpStream::nonblocking(socket.into()))
    }

    /// Connects the socket, or continues with an attempt that has begun. The future owns the
    /// stream, so that it is `Send` as the stream is: a reference to a stream is not.
    pub(crate) async fn connect_to(self, address: SocketAddr) -> io::Result<TcpStream> {
        if self.begin_connect(address)? {
            return Ok(self);
        }
        let mut connecting = Some(self);
        poll_fn(move |cx| {
            let stream = connecting.as_ref().expect("polled after it was ready");
            ready!(stream.poll_connected(cx, address))?;
            Poll::Ready(Ok(connecting.take().expect("it was there")))
        })
        .await
    }

    /// Begins to connect; returns whether the connection is made.
    fn begin_connect(&self, address: SocketAddr) -> io::Result<bool> {
        count(Call::Connect);
        match SockRef::from(&self.fd).connect(&address.into()) {
            Ok(()) => return Ok(true),
            Err(error) => match error.raw_os_error() {
                Some(libc::EISCONN) => return Ok(true),
                // An interrupted attempt continues as well.
                Some(libc::EINPROGRESS | libc::EALREADY | libc::EINTR) => {}
                _ => return Err(error),
            },
        }
        // Neither direction is worth a try yet: before the connection is made there is no room to
        // write, and the peer cannot have sent anything.
        self.fd.registration().clear(Direction::Write, 0);
        self.fd.registration().clear(Direction::Read, 0);
        Ok(false)
    }

    /// Waits until the attempt has succeeded or failed.
    fn poll_connected(&self, cx: &mut Context<'_>, address: SocketAddr) -> Poll<io::Result<()>> {
        self.fd.poll_perform(cx, Direction::Write, |stream| {
            // The second call returns the outcome of the first.
            count(Call::Connect);
            match SockRef::from(stream).connect(&address.into()) {
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
    }

    /// Returns the socket, open and non-blocking.
    pub fn into_std(self) -> std::net::TcpStream {
        self.closing.keep_open();
        self.fd.into_inner()
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    ///
    /// Any error of `getpeername(2)`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.fd.get_ref().peer_addr()
    }

    /// Returns the socket's own address.
    ///
    /// # Errors
    ///
    /// Any error of `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        count(Call::GetName);
        self.fd.get_ref().local_addr()
    }

    /// Returns whether small writes are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// Any error of `getsockopt(2)`.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.fd.get_ref().nodelay()
    }

    /// Sets whether the kernel sends small writes at once, rather than joining them while earlier
    /// writes are unacknowledged (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// Any error of `setsockopt(2)`.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        count(Call::SetOption);
        self.fd.get_ref().set_nodelay(nodelay)
    }

    /// Returns the time to live of sent packets (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// Any error of `getsockopt(2)`.
    pub fn ttl(&self) -> io::Result<u32> {
        self.fd.get_ref().ttl()
    }

    /// Sets the time to live of sent packets (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// Any error of `setsockopt(2)`.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.fd.get_ref().set_ttl(ttl)
    }

    /// Returns how long closing waits for unsent bytes (`SO_LINGER`).
    ///
    /// # Errors
    ///
    /// Any error of `getsockopt(2)`.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        SockRef::from(&self.fd).linger()
    }

    /// Sets how long closing waits for unsent bytes (`SO_LINGER`, in whole seconds). With zero,
    /// closing resets the connection; with more, dropping the stream *blocks* the engine for that
    /// long.
    ///
    /// # Errors
    ///
    /// Any error of `setsockopt(2)`.
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
    /// Any error of `getsockopt(2)`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.fd.get_ref().take_error()
    }

    /// Reads without consuming (`MSG_PEEK`): the next read returns the same bytes. Zero bytes are
    /// the end of the stream, or an empty buffer.
    ///
    /// Cancel safe: it consumes nothing.
    ///
    /// # Errors
    ///
    /// Any error of `recv(2)`.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fd
            .wait(Direction::Read, |cx| match buffer.is_empty() {
                true => IoRegistration::poll_empty(cx, || Ok(0)),
                false => self.fd.poll_perform(cx, Direction::Read, |stream| stream.peek(buffer)),
            })
            .await
    }

    /// Reads the bytes that are there, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is nothing, or any error of `recv(2)`.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fd.try_read(buffer)
    }

    /// Writes as many bytes as there is room for, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room, or any error of `send(2)`.
    pub fn try_write(&self, buffer: &[u8]) -> io::Result<usize> {
        self.fd.try_write(buffer)
    }

    /// Like [`try_write`](TcpStream::try_write), if more bytes follow (`MSG_MORE`): the kernel
    /// keeps bytes that fill no packet, until the next write, the [end](TcpStream::shutdown) of the
    /// direction, which travels in the same packet then, or 200 ms have gone by.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room, or any error of `send(2)`.
    pub fn try_write_more(&self, buffer: &[u8]) -> io::Result<usize> {
        self.fd.try_send_more(buffer)
    }
}

stream_socket!(TcpStream, std::net::TcpStream);

impl StreamSocket for TcpStream {
    #[inline]
    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.fd.poll_read(cx, buffer)
    }

    fn poll_read_vectored(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
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
