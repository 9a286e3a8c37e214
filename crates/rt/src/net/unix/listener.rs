//! Listening in the Unix domain.

use std::io;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::task::{Context, Poll, ready};

use socket2::{Domain, SockRef, Socket, Type};

use super::address;
use super::seqpacket::UnixSeqpacket;
use super::stream::UnixStream;
use crate::error;
use crate::net::accept::Acceptor;
use crate::net::descriptor::descriptor;
use crate::sys;

/// The number of connections that may wait to be accepted; the kernel lowers it to
/// `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

fn listening(kind: Type, address: &SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, kind.nonblocking(), None)
        .map_err(|error| error::limit("making a Unix listener", error))?;
    socket.bind(&address::to_socket2(address)?)?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// A listening socket for [`UnixStream`]s. Without descriptors it sheds load as a
/// [`TcpListener`](crate::net::TcpListener#out-of-descriptors) does.
pub struct UnixListener {
    acceptor: Acceptor<std::os::unix::net::UnixListener>,
}

/// A listening socket for [`UnixSeqpacket`]s. Without descriptors it sheds load as a
/// [`TcpListener`](crate::net::TcpListener#out-of-descriptors) does.
pub struct UnixSeqpacketListener {
    acceptor: Acceptor<Socket>,
}

macro_rules! listener {
    ($type:ident, $stream:ident, $kind:expr) => {
        impl $type {
            /// Makes a socket file and listens on it. The file must not exist, and it stays when
            /// the listener is dropped.
            ///
            /// # Errors
            ///
            /// Any error of `bind(2)`, such as `AddrInUse` if there is a file already.
            pub fn bind(path: impl AsRef<Path>) -> io::Result<$type> {
                $type::bind_addr(&SocketAddr::from_pathname(path)?)
            }

            /// Like `bind`, on a path or an abstract name.
            ///
            /// # Errors
            ///
            /// Any error of `bind(2)`; `InvalidInput` for an address without a name.
            pub fn bind_addr(address: &SocketAddr) -> io::Result<$type> {
                let socket = listening($kind, address)?;
                Ok($type { acceptor: Acceptor::new(socket.into(), true)? })
            }

            /// Accepts a connection (`accept4(2)`) and returns where it comes from: mostly from a
            /// socket without a name.
            ///
            /// Cancel safe: dropped before it is ready, it has taken no connection.
            ///
            /// # Errors
            ///
            /// Any error of `accept(2)` that concerns the listener; being out of descriptors is no
            /// error.
            pub async fn accept(&self) -> io::Result<($stream, SocketAddr)> {
                let (socket, address) = self.acceptor.accept().await?;
                Ok(($stream::nonblocking(socket.into()), address::to_std(&address)?))
            }

            /// Like `accept`, for futures written by hand. Without descriptors and with the reserve
            /// lost to another thread it fails with `EMFILE` or `ENFILE`: call it again, but not at
            /// once.
            ///
            /// # Errors
            ///
            /// Any error of `accept(2)`.
            pub fn poll_accept(
                &self,
                cx: &mut Context<'_>,
            ) -> Poll<io::Result<($stream, SocketAddr)>> {
                let (socket, address) = ready!(self.acceptor.poll_accept(cx))?;
                let address = address::to_std(&address)?;
                Poll::Ready(Ok(($stream::nonblocking(socket.into()), address)))
            }

            /// Returns the number of connections that were closed unserved for a shortage of
            /// descriptors.
            pub fn shed(&self) -> u64 {
                self.acceptor.shed()
            }

            /// Returns the address that it listens on.
            ///
            /// # Errors
            ///
            /// Any error of `getsockname(2)`.
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                address::to_std(&SockRef::from(&self.acceptor.listener).local_addr()?)
            }
        }

        descriptor!($type: acceptor.listener, named);
    };
}

listener!(UnixListener, UnixStream, Type::STREAM);
listener!(UnixSeqpacketListener, UnixSeqpacket, Type::SEQPACKET);

impl UnixListener {
    /// Adopts an existing listener and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// Any error of `fcntl(2)`, or of `eventfd(2)`, which makes the reserve.
    pub fn from_std(listener: std::os::unix::net::UnixListener) -> io::Result<UnixListener> {
        sys::descriptor::set_nonblocking(&listener)?;
        Ok(UnixListener { acceptor: Acceptor::new(listener, true)? })
    }

    /// Returns the listener, open and non-blocking.
    pub fn into_std(self) -> std::os::unix::net::UnixListener {
        self.acceptor.listener.into_inner()
    }
}
