//! Listening for TCP connections.
//!
//! A listener may be shared with other processes, each with a runtime of its own. A parent binds,
//! forks or spawns, and each child adopts the listener that it inherited. (A descriptor that should
//! stay open across `exec` must not have `FD_CLOEXEC`. A parent forks before its threads accept,
//! since a child has no thread that would give back a lock which was held in that moment.)
//! [`ListenOptions::adopt`] shows the ways in which they can wait. A process cannot hand a
//! connection over to a less busy process: that would take passing descriptors. Within a process
//! [`Listeners`](super::Listeners) does it with [`Spread::HandOff`](super::Spread::HandOff).

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::accept::Acceptor;
use super::address::{self, ToSocketAddrs};
use super::tcp_stream::TcpStream;
use crate::error;
use crate::net::descriptor::descriptor;
use crate::sys;

/// The options with which a listener is made.
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
    exclusive: bool,
    longest_turn: u32,
}

/// The number of connections in a row after which an exclusive waiter lets the next in line go
/// first.
const LONGEST_TURN: u32 = 16;

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions {
            backlog: 4096,
            reuse_port: false,
            only_v6: None,
            shed_load: true,
            exclusive: false,
            longest_turn: LONGEST_TURN,
        }
    }
}

impl ListenOptions {
    /// Returns the defaults: a queue of 4096, shedding load, no shared port, no exclusive wake-ups.
    pub fn new() -> ListenOptions {
        ListenOptions::default()
    }

    /// Sets how many connections may wait to be accepted (`listen(2)`). The kernel silently lowers
    /// the number to `net.core.somaxconn`.
    #[must_use]
    pub fn backlog(mut self, backlog: u32) -> ListenOptions {
        self.backlog = backlog;
        self
    }

    /// Sets whether further listeners of the same user may bind to the same port. The kernel
    /// spreads the connections among them by a hash of the addresses (`SO_REUSEPORT`, Linux 3.9).
    #[must_use]
    pub fn reuse_port(mut self, reuse: bool) -> ListenOptions {
        self.reuse_port = reuse;
        self
    }

    /// Sets whether an IPv6 listener leaves IPv4 to other sockets (`IPV6_V6ONLY`); unless it is set
    /// here, `net.ipv6.bindv6only` decides.
    #[must_use]
    pub fn only_v6(mut self, only: bool) -> ListenOptions {
        self.only_v6 = Some(only);
        self
    }

    /// Sets whether to shed load (the default) when there are no descriptors left, see
    /// [`TcpListener`]. If not, accepting fails with `EMFILE` or `ENFILE`, and no descriptor is
    /// kept in reserve.
    #[must_use]
    pub fn shed_load(mut self, shed: bool) -> ListenOptions {
        self.shed_load = shed;
        self
    }

    /// Sets whether a connection wakes only one of the engines or processes that wait exclusively
    /// for this socket (`EPOLLEXCLUSIVE`, Linux 4.5), instead of all. Those that wait for it in
    /// another way are woken as well. It needs a back-end on epoll: with another back-end,
    /// accepting fails with `Unsupported` as soon as it has to wait.
    #[must_use]
    pub fn exclusive(mut self, exclusive: bool) -> ListenOptions {
        self.exclusive = exclusive;
        self
    }

    /// Sets how many connections in a row an exclusive waiter may accept before it goes to the end
    /// of the line; 16 by default, never if zero. Its turn is over anyway when no connection waits
    /// any more. The kernel wakes the first sleeping waiter in line, so without turns one process
    /// gets all connections of a machine that has time to spare. With turns, connections that come
    /// one after the other are spread evenly. The end of a turn costs two calls of `epoll_ctl`,
    /// about two microseconds.
    #[must_use]
    pub fn longest_turn(mut self, connections: u32) -> ListenOptions {
        self.longest_turn = connections;
        self
    }

    /// Adopts an existing listener, inherited from a parent process for example, and makes it
    /// non-blocking. Only those options apply that do not belong to the socket:
    /// [`shed_load`](ListenOptions::shed_load), [`exclusive`](ListenOptions::exclusive) and
    /// [`longest_turn`](ListenOptions::longest_turn).
    ///
    /// Processes that share a listener choose among three ways to wait for it. Without more options
    /// each connection wakes all of them, and one process gets it. With
    /// [`exclusive`](ListenOptions::exclusive) it wakes one process, and the processes take turns.
    /// Or each process binds a socket of its own to the same address with
    /// [`reuse_port`](ListenOptions::reuse_port), and the kernel spreads connections over them.
    ///
    /// # Errors
    ///
    /// Any error of `fcntl(2)`, or of `eventfd(2)`, which makes the reserve.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use superpoll_rt::net::ListenOptions;
    ///
    /// // In the parent; children inherit it.
    /// let inherited = std::net::TcpListener::bind("127.0.0.1:0")?;
    ///
    /// // In each child.
    /// let address = inherited.local_addr()?;
    /// let listener = ListenOptions::new().exclusive(true).adopt(inherited)?;
    /// # let client = std::net::TcpStream::connect(address)?;
    /// let runtime = superpoll_rt::Runtime::new()?;
    /// let (_stream, peer) = runtime.block_on(listener.accept())?;
    /// # assert_eq!(peer, client.local_addr()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn adopt(&self, listener: std::net::TcpListener) -> io::Result<TcpListener> {
        sys::descriptor::set_nonblocking(&listener)?;
        self.wrap(listener)
    }

    fn wrap(&self, listener: std::net::TcpListener) -> io::Result<TcpListener> {
        let acceptor = Acceptor::new(listener, self.shed_load)?;
        let acceptor =
            if self.exclusive { acceptor.exclusive(self.longest_turn) } else { acceptor };
        Ok(TcpListener { acceptor })
    }

    /// Binds to the first available address and listens.
    ///
    /// Cancel safe: nothing stays bound.
    ///
    /// # Errors
    ///
    /// Any error of the name look-up, or, for the last address, of `socket(2)`, `bind(2)` or
    /// `listen(2)`.
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
    /// Any error of `socket(2)`, `bind(2)` or `listen(2)`.
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
        self.wrap(socket.into())
    }
}

/// A listening TCP socket (`tcp(7)`).
///
/// # Out of descriptors
///
/// A process keeps a descriptor in reserve for each listener. When accepting
/// meets the limit of the process (`EMFILE`) or the system (`ENFILE`), the listener uses a reserve
/// to accept and close each waiting connection in turn, and then waits for new connections. Their
/// clients learn at once that they are not served, and no loop spins. Where another thread has
/// taken the room of a reserve meanwhile, the reserve is restored before further connections are
/// served. [`shed`](TcpListener::shed) counts those that are closed.
/// [`ListenOptions::shed_load`] turns that off.
pub struct TcpListener {
    acceptor: Acceptor<std::net::TcpListener>,
}

impl TcpListener {
    /// Binds to the first available address, with `SO_REUSEADDR`, and listens. Port 0 lets the
    /// kernel choose. [`ListenOptions`] offers more options.
    ///
    /// Cancel safe: nothing stays bound.
    ///
    /// # Errors
    ///
    /// The same errors as [`ListenOptions::bind`].
    pub async fn bind(address: impl ToSocketAddrs) -> io::Result<TcpListener> {
        ListenOptions::new().bind(address).await
    }

    /// Adopts an existing listener and makes it non-blocking; [`ListenOptions::adopt`] offers more
    /// options.
    ///
    /// # Errors
    ///
    /// Any error of `fcntl(2)`, or opening `/dev/null` for the reserve.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<TcpListener> {
        ListenOptions::new().adopt(listener)
    }

    /// Returns the listener, open and non-blocking.
    pub fn into_std(self) -> std::net::TcpListener {
        self.acceptor.listener.into_inner()
    }

    fn accepted(socket: Socket, address: &SockAddr) -> io::Result<(TcpStream, SocketAddr)> {
        let address = address.as_socket().ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "accepting: the peer's address is not of IP")
        })?;
        Ok((TcpStream::nonblocking(socket.into()), address))
    }

    /// Accepts a connection (`accept4(2)`, Linux 2.6.28). A connection that was lost while it
    /// waited in the queue is passed over.
    ///
    /// Cancel safe: dropped before it is ready, it has taken no connection.
    ///
    /// # Errors
    ///
    /// Any error of `accept(2)` that concerns the listener; being out of descriptors is no error,
    /// see the type.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (socket, address) = self.acceptor.accept().await?;
        TcpListener::accepted(socket, &address)
    }

    /// Like [`accept`](TcpListener::accept), for futures written by hand. Without descriptors and
    /// with the reserve lost to another thread it fails with `EMFILE` or `ENFILE`: call it again,
    /// but not at once.
    ///
    /// # Errors
    ///
    /// Any error of `accept(2)`.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let (socket, address) = ready!(self.acceptor.poll_accept(cx))?;
        Poll::Ready(TcpListener::accepted(socket, &address))
    }

    /// Returns the same listener under another descriptor.
    pub(crate) fn duplicate(&self, options: &ListenOptions) -> io::Result<TcpListener> {
        let listener = self.acceptor.listener.get_ref().try_clone();
        options.wrap(listener.map_err(|error| error::limit("duplicating a TCP listener", error))?)
    }

    /// Returns the number of connections that were closed unserved for a shortage of descriptors.
    pub fn shed(&self) -> u64 {
        self.acceptor.shed()
    }

    /// Returns the address that it listens on.
    ///
    /// # Errors
    ///
    /// Any error of `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.acceptor.listener.get_ref().local_addr()
    }
}

descriptor!(TcpListener: acceptor.listener, named);
