//! Connections, one after the other.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use superpoll::operation::{Gain, Operation};

use super::accept::{Listener, keep};
use super::multishot::{Multishot, Next};
use crate::budget::poll_budget;
use crate::io_ref::AsIoRef;
use crate::net::accept::is_lost;

/// The connections of a listener, without their addresses (`accept4(2)`; on `uring` one
/// `IORING_OP_ACCEPT` for all of them, multishot, Linux 5.19). It is a stream that never ends.
///
/// On `uring` the kernel accepts ahead of the task that takes the connections, at most some dozens,
/// while this lives. Without descriptors load is
/// [shed](crate::net::TcpListener#out-of-descriptors).
///
/// Cancel safe: connections that no task has taken when it is dropped come with the next accept of
/// the same listener, of whatever kind. The same goes for [`next`](Incoming::next).
///
/// ```
/// use superpoll_rt::completion::{Incoming, recv, send};
/// use superpoll_rt::net::{TcpListener, TcpStream};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// superpoll_rt::Runtime::new()?.block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let client = TcpStream::connect(listener.local_addr()?).await?;
///     let mut incoming = Incoming::new(&listener);
///     let server = incoming.next().await?;
///     send(&client, b"hello".to_vec()).await.0?;
///     assert_eq!(recv(&server, Vec::with_capacity(9)).await.1, b"hello");
///     std::io::Result::Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
pub struct Incoming<'a, L: Listener> {
    listener: &'a L,
    many: Multishot,
    /// Stays set until a connection or an error comes.
    by_readiness: bool,
}

impl<'a, L: Listener> Incoming<'a, L> {
    /// Accepts the connections of this listener.
    pub fn new(listener: &'a L) -> Incoming<'a, L> {
        Incoming { listener, many: Multishot::default(), by_readiness: false }
    }

    /// Returns the next connection. A connection that was lost while it waited in the queue is
    /// passed over.
    ///
    /// Cancel safe: see the type.
    ///
    /// # Errors
    ///
    /// Any error of `accept(2)` that concerns the listener; being out of descriptors is no error.
    pub async fn next(&mut self) -> io::Result<L::Stream> {
        let listener = self.listener;
        listener.acceptor().accept_with(|cx| self.poll_accept(cx)).await
    }

    /// Like [`next`](Incoming::next), for futures written by hand. Without descriptors and with the
    /// reserve lost to another thread it fails with `EMFILE` or `ENFILE`: call it again, but not at
    /// once.
    ///
    /// # Errors
    ///
    /// Any error of `accept(2)`.
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<L::Stream>> {
        let acceptor = self.listener.acceptor();
        loop {
            if let Some((socket, _)) = acceptor.take_kept() {
                return Poll::Ready(Ok(self.listener.stream(socket)));
            }
            if self.by_readiness {
                let outcome = ready!(acceptor.poll_accept(cx));
                self.by_readiness = false;
                return Poll::Ready(outcome.map(|(socket, _)| self.listener.stream(socket)));
            }
            ready!(poll_budget(cx));
            match ready!(
                self.many.poll_next(cx, acceptor.listener.as_io_ref(), || Operation::AcceptMany)
            ) {
                Next::Gain(Gain::Socket(socket, _)) => {
                    if let Some(socket) = acceptor.admit(socket) {
                        return Poll::Ready(Ok(self.listener.stream(socket.into())));
                    }
                }
                Next::Gain(_) => {}
                Next::Failed(error) if is_lost(&error) => {}
                // Accepting by readiness returns the same error, sheds load, or waits.
                Next::Failed(_) | Next::ByReadiness => self.by_readiness = true,
            }
        }
    }
}

impl<L: Listener> Stream for Incoming<'_, L> {
    type Item = io::Result<L::Stream>;
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_accept(cx).map(Some)
    }
}

impl<L: Listener> Drop for Incoming<'_, L> {
    fn drop(&mut self) {
        keep(self.listener.acceptor(), self.many.cancel_and_take());
    }
}

impl<L: Listener> fmt::Debug for Incoming<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").finish_non_exhaustive()
    }
}
