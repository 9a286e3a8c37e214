//! Accepting connections.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use socket2::{SockAddr, Socket};
use superpoll::operation::{Gain, Operation, Progress};

use crate::budget::yield_if_spent;
use crate::io_ref::AsIoRef;
use crate::net::accept::{Acceptor, is_lost};
use crate::net::unix::{UnixListener, UnixStream};
use crate::net::{TcpListener, TcpStream};
use crate::operation_handle::OperationHandle;

mod sealed {
    use std::io;
    use std::os::fd::AsFd;

    use socket2::{SockAddr, Socket};

    use crate::net::accept::Acceptor;

    /// A listener, as this module sees it.
    pub trait Accepts {
        /// The socket that listens.
        type Inner: AsFd;
        /// A connection.
        type Stream;
        /// The address that a connection comes from.
        type Address;
        /// Returns the acceptor.
        fn acceptor(&self) -> &Acceptor<Self::Inner>;
        /// Makes a connection, with the address that it comes from.
        fn accepted(
            &self,
            socket: Socket,
            address: &SockAddr,
        ) -> io::Result<(Self::Stream, Self::Address)>;
        /// Makes a connection alone.
        fn stream(&self, socket: Socket) -> Self::Stream;
    }
}

pub(super) use sealed::Accepts;

/// A source of connections: [`TcpListener`] or [`UnixListener`].
pub trait Listener: Accepts {}

impl Accepts for TcpListener {
    type Inner = std::net::TcpListener;
    type Stream = TcpStream;
    type Address = SocketAddr;
    fn acceptor(&self) -> &Acceptor<Self::Inner> {
        TcpListener::acceptor(self)
    }
    fn accepted(&self, socket: Socket, address: &SockAddr) -> io::Result<(TcpStream, SocketAddr)> {
        TcpListener::accepted(socket, address)
    }
    fn stream(&self, socket: Socket) -> TcpStream {
        TcpStream::nonblocking(socket.into())
    }
}

impl Accepts for UnixListener {
    type Inner = std::os::unix::net::UnixListener;
    type Stream = UnixStream;
    type Address = std::os::unix::net::SocketAddr;
    fn acceptor(&self) -> &Acceptor<Self::Inner> {
        UnixListener::acceptor(self)
    }
    fn accepted(
        &self,
        socket: Socket,
        address: &SockAddr,
    ) -> io::Result<(UnixStream, std::os::unix::net::SocketAddr)> {
        UnixListener::accepted(socket, address)
    }
    fn stream(&self, socket: Socket) -> UnixStream {
        UnixStream::nonblocking(socket.into())
    }
}

impl Listener for TcpListener {}
impl Listener for UnixListener {}

/// Accepts a connection (`accept4(2)`; on `uring` `IORING_OP_ACCEPT`) and returns where it comes
/// from. A connection that was lost while it waited in the queue is passed over, and without
/// descriptors load is [shed](TcpListener#out-of-descriptors), as the listener's own `accept` does.
///
/// Cancel safe: if this is dropped after a connection has been accepted for it, any next accept of
/// the same listener returns that connection.
///
/// # Errors
///
/// Any error of `accept(2)` that concerns the listener; being out of descriptors is no error.
pub async fn accept<L: Listener>(listener: &L) -> io::Result<(L::Stream, L::Address)> {
    let acceptor = listener.acceptor();
    loop {
        yield_if_spent().await;
        if let Some((socket, address)) = acceptor.take_kept() {
            return listener.accepted(socket, &address);
        }
        let Ok(handle) = OperationHandle::start(acceptor.listener.as_io_ref(), Operation::Accept)
        else {
            break;
        };
        let accepting = Accepting { acceptor, handle };
        let progress = poll_fn(|cx| accepting.handle.poll_next(cx)).await;
        match progress.map(|progress| progress.outcome) {
            Some(Ok(Gain::Socket(socket, address))) => {
                let Some(socket) = acceptor.admit(Socket::from(socket)) else { continue };
                match address.map_or_else(|| socket.peer_addr(), |address| Ok(address.into())) {
                    Ok(address) => return listener.accepted(socket, &address),
                    // Its peer has gone, and its address with it.
                    Err(_) => continue,
                }
            }
            Some(Err(error)) if is_lost(&error) => {}
            // Whatever the error is, accepting by readiness returns the same, sheds load, or waits.
            _ => break,
        }
    }
    let (socket, address) = acceptor.accept().await?;
    listener.accepted(socket, &address)
}

/// An accept under way. A connection that it has brought when it is given up goes to the listener.
struct Accepting<'a, L: AsFd> {
    acceptor: &'a Acceptor<L>,
    handle: OperationHandle,
}

impl<L: AsFd> Drop for Accepting<'_, L> {
    fn drop(&mut self) {
        keep(self.acceptor, self.handle.cancel_and_take());
    }
}

/// Gives connections that no caller has taken to the listener.
pub(super) fn keep<L: AsFd>(acceptor: &Acceptor<L>, rest: impl IntoIterator<Item = Progress>) {
    for progress in rest {
        if let Ok(Gain::Socket(socket, address)) = progress.outcome {
            acceptor.keep(socket.into(), address.map(SockAddr::from));
        }
    }
}
