//! Listening for TCP connections.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::task::{Context, Poll, ready};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::accept::Acceptor;
use super::address::{self, ToSocketAddrs};
use super::tcp_stream::TcpStream;
use crate::error;
use crate::sys;

/// How a listener is made.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use superpoll_rt::net::ListenOptions;
/// let listener = ListenOptions::new().backlog(64).bind_addr("127.0.0.1:0".parse()?)?;
/// assert_ne!(listener.local_addr()?.port(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ListenOptions {
    backlog: u32,
    reuse_port: bool,
    only_v6: Option<bool>,
    shed_load: bool,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions { backlog: 4096, reuse_port: false, only_v6: None, shed_load: true }
    }
}

impl ListenOptions {
    /// The defaults: a queue of 4096, shedding load, no shared port.
    pub fn new() -> ListenOptions {
        ListenOptions::default()
    }

    /// How many connections may wait to be accepted (`listen(2)`). The kernel lowers it to
    /// `net.core.somaxconn`, without a word.
    #[must_use]
    pub fn backlog(mut self, backlog: u32) -> ListenOptions {
        self.backlog = backlog;
        self
    }

    /// Whether further listeners of the same user may bind to the same port, among which the kernel
    /// spreads the connections by a hash of their addresses (`SO_REUSEPORT`, Linux 3.9).
    #[must_use]
    pub fn reuse_port(mut self, reuse: bool) -> ListenOptions {
        self.reuse_port = reuse;
        self
    }

    /// Whether an IPv6 listener leaves IPv4 to others (`IPV6_V6ONLY`); unless it is said here,
    /// `net.ipv6.bindv6only` decides.
    #[must_use]
    pub fn only_v6(mut self, only: bool) -> ListenOptions {
        self.only_v6 = Some(only);
        self
    }

    /// Whether to shed load (the default) when there are no descriptors left, see
    /// [`TcpListener`]. If not, accepting fails with `EMFILE` or `ENFILE`, and no descriptor is kept
    /// in reserve.
    #[must_use]
    pub fn shed_load(mut self, shed: bool) -> ListenOptions {
        self.shed_load = shed;
        self
    }

    /// Binds to the first address that can be had and listens.
    ///
    /// Cancel safe: nothing stays bound.
    ///
    /// # Errors
    ///
    /// What looking up the name says, or, of the last address, what `socket(2)`, `bind(2)` or
    /// `listen(2)` says.
    pub async fn bind(&self, address: impl ToSocketAddrs) -> io::Result<TcpListener> {
        let mut last = None;
        for address in address::resolve(&address).await? {
            match self.bind_addr(address) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()))
    }

    /// Binds to an address and listens. It does not block and needs no runtime.
    ///
    /// # Errors
    ///
    /// What `socket(2)`, `bind(2)` or `listen(2)` says.
    pub fn bind_addr(&self, address: SocketAddr) -> io::Result<TcpListener> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM.nonblocking(),
            Some(Protocol::TCP),
        )
        .map_err(|error| error::limit("making a TCP listener", error))?;
        if let (Some(only), SocketAddr::V6(_)) = (self.only_v6, address) {
            socket.set_only_v6(only)?;
        }
        // Connections of the listener's predecessor may linger in TIME_WAIT.
        socket.set_reuse_address(true)?;
        if self.reuse_port {
            socket.set_reuse_port(true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(self.backlog.min(i32::MAX as u32) as i32)?;
        Ok(TcpListener { acceptor: Acceptor::new(socket.into(), self.shed_load)? })
    }
}

/// A listening TCP socket (`tcp(7)`).
///
/// # Out of descriptors
///
/// A listener keeps a descriptor in reserve, open on `/dev/null`. When accepting meets the limit of
/// the process (`EMFILE`) or the system (`ENFILE`), it uses the reserve to accept and close, one by
/// one, the connections that wait, and then waits for new ones: their clients learn at once that they
/// are not served, and no loop spins. [`shed`](TcpListener::shed) counts them.
/// [`ListenOptions::shed_load`] turns that off.
pub struct TcpListener {
    acceptor: Acceptor<std::net::TcpListener>,
}

impl TcpListener {
    /// Binds to the first address that can be had, with `SO_REUSEADDR`, and listens. Port 0 lets the
    /// kernel choose. [`ListenOptions`] has more to choose from.
    ///
    /// Cancel safe: nothing stays bound.
    ///
    /// # Errors
    ///
    /// As [`ListenOptions::bind`].
    pub async fn bind(address: impl ToSocketAddrs) -> io::Result<TcpListener> {
        ListenOptions::new().bind(address).await
    }

    /// Takes a listener from elsewhere and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// What `fcntl(2)` says, or opening `/dev/null` for the reserve.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<TcpListener> {
        sys::descriptor::set_nonblocking(&listener)?;
        Ok(TcpListener { acceptor: Acceptor::new(listener, true)? })
    }

    /// Gives the listener back, open and non-blocking.
    pub fn into_std(self) -> std::net::TcpListener {
        self.acceptor.listener.into_inner()
    }

    /// Accepts a connection (`accept4(2)`, Linux 2.6.28). One that was lost while it waited in the
    /// queue is passed over.
    ///
    /// Cancel safe: dropped before it is ready, it has taken no connection.
    ///
    /// # Errors
    ///
    /// What `accept(2)` says of the listener; being out of descriptors is no error, see the type.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        accepted(self.acceptor.accept().await?)
    }

    /// As [`accept`](TcpListener::accept), for what implements `Future` by hand. Without descriptors
    /// and with the reserve lost to another thread it fails with `EMFILE` or `ENFILE`: call it again,
    /// but not at once.
    ///
    /// # Errors
    ///
    /// What `accept(2)` says.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        Poll::Ready(accepted(ready!(self.acceptor.poll_accept(cx))?))
    }

    /// The same listener under another descriptor.
    pub(crate) fn duplicate(&self) -> io::Result<TcpListener> {
        let listener = self.acceptor.listener.get_ref().try_clone();
        TcpListener::from_std(
            listener.map_err(|error| error::limit("duplicating a TCP listener", error))?,
        )
    }

    /// The same listener, for several engines of which one is to be woken.
    pub(crate) fn exclusive(self) -> TcpListener {
        TcpListener { acceptor: self.acceptor.exclusive() }
    }

    /// Goes to the end of the line of those that wait for exclusive wake-ups.
    pub(crate) fn requeue(&self) {
        self.acceptor.listener.leave();
    }

    /// How many connections were accepted only to be closed, for lack of descriptors.
    pub fn shed(&self) -> u64 {
        self.acceptor.shed()
    }

    /// The address it listens on.
    ///
    /// # Errors
    ///
    /// What `getsockname(2)` says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.acceptor.listener.get_ref().local_addr()
    }
}

fn accepted((socket, address): (Socket, SockAddr)) -> io::Result<(TcpStream, SocketAddr)> {
    let address = address.as_socket().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "accepting: the peer's address is not of IP")
    })?;
    Ok((TcpStream::nonblocking(socket.into()), address))
}

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.acceptor.listener.as_fd()
    }
}

impl AsRawFd for TcpListener {
    fn as_raw_fd(&self) -> RawFd {
        self.acceptor.listener.as_raw_fd()
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TcpListener").field(&self.acceptor.listener.get_ref()).finish()
    }
}
