//! Accepting connections, of any address family.
//!
//! `accept4(2)` gives a connection that is non-blocking and closed on exec in one call. It may fail
//! for reasons that concern only one connection, which is gone then. The acceptor passes over such
//! a connection.
//!
//! When the process (`EMFILE`) or the system (`ENFILE`) is out of descriptors, the connection stays
//! in the kernel's queue and the listener stays readable. A loop that goes back to wait would spin,
//! and clients would hang until descriptors are free. So a listener has a descriptor kept in
//! [reserve](super::reserve). It accepts a connection into the room of the reserve, and closes the
//! connection, whose client learns that no server takes it. It repeats this until the queue is
//! empty, and counts the connections that it sheds. If all reserves are lost to other threads, the
//! listener can only let some time pass.
//!
//! Several engines or processes may wait exclusively for one socket (`EPOLLEXCLUSIVE`, Linux 4.5).
//! The kernel wakes the first sleeping waiter in line, and the woken waiter keeps its place: on a
//! quiet machine the first would get every connection. So a listener that has had its turn
//! registers again, which puts it at the end of the line. It does so when the queue is empty and it
//! would sleep anyway, or after some connections in a row, since it is busy enough with those. A
//! connecting client pays for neither the length of the line nor how often it moves. The listener
//! pays two calls of `epoll_ctl` for a turn, a tenth of the least that a server can do for a
//! connection. The more connections arrive at a time, the less it pays for each.
//!
//! Turns of a fixed number of connections are no alternative on a machine with time to spare. While
//! one listener has not yet gone to sleep and the next is woken, these two share the arriving
//! connections, and the longer the turns, the longer all other listeners wait. With turns that grow
//! with the number of connections that a listener has had, such a start would last indefinitely.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{SockAddr, SockRef, Socket};

use crate::async_fd::AsyncFd;
use crate::calls::{Call, count};
use crate::error;
use crate::io_registration::IoRegistration;
use crate::net::reserve::{Reserve, is_limit};
use crate::short_reads::IoState;
use crate::sources::Direction;
use crate::time;

/// The number of connections that may be passed over before other tasks have their turn.
const ROUND: u32 = 64;

/// How long to wait when there is no descriptor left, and no reserve to shed with either.
const PAUSE: Duration = Duration::from_millis(10);

/// A listening socket.
pub(crate) struct Acceptor<L: AsFd> {
    pub listener: AsyncFd<L>,
    /// `None` if the listener does not shed load.
    reserve: Option<Reserve>,
    shed: Cell<u64>,
    turns: Turns,
}

/// Errors of a connection that was lost while it was in the queue, see `accept(2)`.
fn is_lost(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::EPROTO
                | libc::ENETDOWN
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
        )
    )
}

fn accept(listener: &impl AsFd) -> io::Result<(Socket, SockAddr)> {
    count(Call::Accept);
    SockRef::from(listener).accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)
}

impl<L: AsFd> Acceptor<L> {
    /// Takes a listener that does not block.
    pub(crate) fn new(listener: L, sheds: bool) -> io::Result<Acceptor<L>> {
        let kept = |error| error::limit("keeping a descriptor in reserve for a listener", error);
        let reserve = if sheds { Some(Reserve::new().map_err(kept)?) } else { None };
        Ok(Acceptor {
            listener: AsyncFd::nonblocking(listener),
            reserve,
            shed: Cell::new(0),
            turns: Turns::default(),
        })
    }

    /// The same, registered so that the kernel wakes only one of several waiters for the socket.
    /// After a turn of at most `longest_turn` connections the listener goes to the end of the line;
    /// never, if that is zero.
    pub(crate) fn exclusive(self, longest_turn: u32) -> Acceptor<L> {
        let listener =
            AsyncFd::with_registration(self.listener.into_inner(), IoRegistration::exclusive());
        Acceptor { listener, turns: Turns { longest: longest_turn, ..Turns::default() }, ..self }
    }

    pub(crate) fn shed(&self) -> u64 {
        self.shed.get()
    }

    pub(crate) async fn accept(&self) -> io::Result<(Socket, SockAddr)> {
        loop {
            match self.listener.wait(Direction::Read, |cx| self.poll_accept(cx)).await {
                // Only time helps.
                Err(error) if self.reserve.is_some() && is_limit(&error) => {
                    time::sleep(PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }

    pub(crate) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Socket, SockAddr)>> {
        let mut round = 0;
        let accepted = ready!(self.listener.poll_with(cx, Direction::Read, |listener| {
            let outcome = self.accept_or_pass(listener);
            match &outcome {
                Ok(None) if round < ROUND => {
                    // Whoever has room may be next in line.
                    self.turns.count();
                    round += 1;
                    Err(io::ErrorKind::Interrupted.into())
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.turns.end() => {
                    self.listener.deregister();
                    outcome.map(|accepted| (accepted, IoState::Ready))
                }
                _ => outcome.map(|accepted| (accepted, IoState::Ready)),
            }
        }))?;
        match accepted {
            Some(accepted) => {
                if self.turns.end_with_this() {
                    self.listener.deregister();
                }
                Poll::Ready(Ok(accepted))
            }
            None => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Accepts once; `None` if a connection was lost or shed.
    fn accept_or_pass(&self, listener: &L) -> io::Result<Option<(Socket, SockAddr)>> {
        match (accept(listener), &self.reserve) {
            (Ok(accepted), _) => Ok(self.admit(accepted)),
            (Err(error), _) if is_lost(&error) => Ok(None),
            (Err(error), Some(reserve)) if is_limit(&error) => {
                match reserve.shed(|| accept(listener)) {
                    Ok(()) => self.shed.set(self.shed.get() + 1),
                    Err(error) if is_lost(&error) => {}
                    Err(error) => return Err(error),
                }
                Ok(None)
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Returns an accepted connection; `None` if it was shed because a reserve was lost.
    fn admit(&self, connection: (Socket, SockAddr)) -> Option<(Socket, SockAddr)> {
        let Some(reserve) = &self.reserve else { return Some(connection) };
        let admitted = reserve.admit(connection);
        if admitted.is_none() {
            self.shed.set(self.shed.get() + 1);
        }
        admitted
    }
}

/// Decides when the turn of another waiter comes.
#[derive(Debug, Default)]
struct Turns {
    /// Never, if zero.
    longest: u32,
    in_a_row: Cell<u32>,
}

impl Turns {
    fn count(&self) {
        self.in_a_row.set(self.in_a_row.get().saturating_add(1));
    }

    /// Counts a connection; returns whether the turn is over.
    fn end_with_this(&self) -> bool {
        self.count();
        self.in_a_row.get() >= self.longest && self.end()
    }

    /// Notes that nothing is left to accept; returns whether that ends a turn.
    fn end(&self) -> bool {
        self.in_a_row.replace(0) > 0 && self.longest > 0
    }
}

impl<L: AsFd + fmt::Debug> fmt::Debug for Acceptor<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor")
            .field("listener", &self.listener)
            .field("shed", &self.shed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_with_the_last_connection_or_after_the_most() {
        let turns = Turns { longest: 3, ..Turns::default() };
        // A listener that was woken without need keeps its place.
        assert!(!turns.end());
        assert!(!turns.end_with_this() && turns.end());
        let ends: Vec<bool> = (0..6).map(|_| turns.end_with_this()).collect();
        assert_eq!(ends, [false, false, true, false, false, true]);
        assert!(!turns.end());
        // Connections that were shed count as well.
        turns.count();
        assert!(turns.end());
        let stays = Turns::default();
        assert!((0..100).all(|_| !stays.end_with_this()) && !stays.end());
    }
}
