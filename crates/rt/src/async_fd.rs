//! Any descriptor, awaited.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::task::{Context, Poll};

use crate::engine::{self, Engine};
use crate::io_ref::{AsIoRef, IoRef};
use crate::io_registration::IoRegistration;
use crate::outside;
use crate::short_reads::IoState;
use crate::sources::{Direction, UNNAMED};
use crate::sys;

/// A descriptor whose readiness can be awaited: any that `poll(2)` can watch.
///
/// Nothing is registered until an operation would block, and the kernel is not asked about
/// readiness that is already known. The engine on which the descriptor was last awaited watches it.
/// You may send it to another engine. You may not use it from two threads at a time, or register it
/// twice on one engine (a second wait for the same descriptor number is refused).
///
/// `T` keeps the descriptor open. If its number is closed all the same, operations fail with
/// `EBADF`, and so does a wait that begins afterwards. A wait that has already begun fails where
/// the back-end is an array (`select`, `poll`); epoll silently forgets the descriptor, and the wait
/// never ends.
///
/// Several tasks of an engine may wait for the same direction: all are woken, and one of them gets
/// there first.
pub struct AsyncFd<T: AsFd> {
    // Fields are dropped in this order: the engine forgets the descriptor before it is closed.
    registration: IoRegistration,
    io: T,
}

impl<T: AsFd> AsyncFd<T> {
    /// Takes a descriptor and makes it non-blocking, which affects all its duplicates.
    ///
    /// # Errors
    ///
    /// Any error of `fcntl(2)`.
    pub fn new(io: T) -> io::Result<AsyncFd<T>> {
        sys::descriptor::set_nonblocking(io.as_fd())?;
        Ok(AsyncFd::nonblocking(io))
    }

    /// Takes a descriptor that is non-blocking already. Operations on a blocking descriptor block
    /// the whole engine.
    pub fn nonblocking(io: T) -> AsyncFd<T> {
        AsyncFd { registration: IoRegistration::default(), io }
    }

    /// Like [`nonblocking`](AsyncFd::nonblocking), for a stream socket.
    pub(crate) fn stream(io: T) -> AsyncFd<T> {
        AsyncFd { registration: IoRegistration::default().stream(), io }
    }

    /// Like [`nonblocking`](AsyncFd::nonblocking), for a TCP socket on which
    /// [`has_eof`](AsyncFd::has_eof) will be called.
    pub fn detecting_eof(io: T) -> AsyncFd<T> {
        let mut registration = IoRegistration::default();
        registration.detect_eof();
        AsyncFd { registration, io }
    }

    /// Returns whether the poller has reported that the peer has ended the stream in good order,
    /// and that no urgent byte is among the rest. Then all bytes that will ever be read are there,
    /// and a read that gives less than there is room for has reached the end: the read that would
    /// give nothing is unnecessary. This holds for TCP, and for reads that begin after this call.
    ///
    /// Returns false where the answer is not known: for a descriptor that was not [made for
    /// it](AsyncFd::detecting_eof) or has not been waited for, and on `select`, which does not
    /// report it.
    pub fn has_eof(&self) -> bool {
        self.registration.has_eof()
    }

    pub(crate) fn with_registration(io: T, registration: IoRegistration) -> AsyncFd<T> {
        AsyncFd { registration, io }
    }

    /// Ends the registration; the next wait makes another. Other waiters are woken to do so.
    pub(crate) fn deregister(&self) {
        self.registration.deregister();
    }

    /// Returns the descriptor.
    pub fn get_ref(&self) -> &T {
        &self.io
    }

    /// Returns the descriptor, to change it: to read or write through `&mut`. It must stay the same
    /// open file. If it is exchanged for another one, the old file is closed without the knowledge
    /// of the engine. Waits may then end for any file that gets its number.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.io
    }

    /// Ends the registration, if there is one, and returns the descriptor, open and non-blocking.
    pub fn into_inner(self) -> T {
        let AsyncFd { registration, io } = self;
        registration.release();
        io
    }

    /// Closes two descriptors at once, as dropping both does, but with one call (`close_range(2)`)
    /// where their numbers are neighbours. The kernel gives out the lowest free numbers first, so
    /// the numbers of an accepted connection and of the connection opened for it usually are.
    /// Returns whether they were.
    pub fn close_both<U>(self, other: AsyncFd<U>) -> bool
    where
        T: Into<OwnedFd>,
        U: AsFd + Into<OwnedFd>,
    {
        let (AsyncFd { registration, io }, AsyncFd { registration: other_registration, io: other }) =
            (self, other);
        // The engine forgets them before they are closed.
        drop((registration, other_registration));
        sys::descriptor::close_both(io.into(), other.into())
    }

    /// Waits until the descriptor is thought to be readable. See [`ReadyGuard`] for the next step.
    ///
    /// Cancel safe: it holds nothing.
    ///
    /// # Errors
    ///
    /// Without a runtime on this thread, or if the descriptor cannot be watched.
    pub async fn readable(&self) -> io::Result<ReadyGuard<'_, T>> {
        self.ready(Direction::Read).await
    }

    /// Waits until the descriptor is thought to be writable, see [`readable`](AsyncFd::readable).
    ///
    /// Cancel safe: it holds nothing.
    ///
    /// # Errors
    ///
    /// The same errors as [`readable`](AsyncFd::readable).
    pub async fn writable(&self) -> io::Result<ReadyGuard<'_, T>> {
        self.ready(Direction::Write).await
    }

    /// Waits for a direction, see [`readable`](AsyncFd::readable).
    ///
    /// Cancel safe: it holds nothing.
    ///
    /// # Errors
    ///
    /// The same errors as [`readable`](AsyncFd::readable).
    pub async fn ready(&self, direction: Direction) -> io::Result<ReadyGuard<'_, T>> {
        self.wait(direction, |cx| self.poll_ready(cx, direction)).await
    }

    /// Like [`ready`](AsyncFd::ready), for futures written by hand.
    ///
    /// # Errors
    ///
    /// The same errors as [`readable`](AsyncFd::readable).
    pub fn poll_ready(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
    ) -> Poll<io::Result<ReadyGuard<'_, T>>> {
        let tick = std::task::ready!(self.registration.poll_ready(cx, self.io.as_fd(), direction))?;
        Poll::Ready(Ok(ReadyGuard { fd: self, direction, tick }))
    }

    /// Carries out an operation as soon as it does not block: calls `operation` again after each
    /// wait as long as it fails with `WouldBlock`.
    ///
    /// Cancel safe: dropped before it is ready, it has done nothing that `operation` did not do.
    ///
    /// # Errors
    ///
    /// Any error of `operation`, or the same errors as [`readable`](AsyncFd::readable).
    pub async fn perform<R>(
        &self,
        direction: Direction,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.wait(direction, |cx| self.poll_perform(cx, direction, &mut operation)).await
    }

    /// Like [`perform`](AsyncFd::perform), for futures written by hand.
    ///
    /// # Errors
    ///
    /// The same errors as [`perform`](AsyncFd::perform).
    pub fn poll_perform<R>(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.poll_with(cx, direction, |io| operation(io).map(|result| (result, IoState::Ready)))
    }

    /// Tries an operation now, without waiting.
    ///
    /// # Errors
    ///
    /// Any error of `operation`; `WouldBlock` clears the readiness, so that the next wait does
    /// wait.
    pub fn try_perform<R>(
        &self,
        direction: Direction,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.registration.try_io(self.io.as_fd(), direction, || {
            operation(&self.io).map(|result| (result, IoState::Ready))
        })
    }

    pub(crate) fn registration(&self) -> &IoRegistration {
        &self.registration
    }

    /// Polls something that waits for a direction, for an async function. A future that is dropped
    /// before it is ready stops waiting: its waker is taken back. Otherwise the wakers of
    /// short-lived tasks would pile up in a descriptor on which nothing happens.
    pub(crate) async fn wait<R>(
        &self,
        direction: Direction,
        poll: impl FnMut(&mut Context<'_>) -> Poll<R>,
    ) -> R {
        wait(&self.registration, direction, poll).await
    }

    /// Like [`poll_perform`](AsyncFd::poll_perform), where the operation also returns the state in
    /// which it leaves the stream.
    #[inline]
    pub(crate) fn poll_with<R>(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        mut operation: impl FnMut(&T) -> io::Result<(R, IoState)>,
    ) -> Poll<io::Result<R>> {
        self.registration.poll(cx, self.io.as_fd(), direction, || operation(&self.io))
    }
}

impl<T: AsFd> Deref for AsyncFd<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.io
    }
}

impl<T: AsFd> AsFd for AsyncFd<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

impl<T: AsFd> AsIoRef for AsyncFd<T> {
    fn as_io_ref(&self) -> IoRef<'_> {
        IoRef { fd: self.as_fd(), registration: self.registration() }
    }
}

impl<T: AsFd> AsRawFd for AsyncFd<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.io.as_fd().as_raw_fd()
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for AsyncFd<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncFd").field(&self.io).finish()
    }
}

/// Like [`AsyncFd::wait`], for a caller that has the registration.
pub(crate) async fn wait<R>(
    registration: &IoRegistration,
    direction: Direction,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<R>,
) -> R {
    let mut waiting = Waiting { registration, direction, name: UNNAMED, waited: false };
    poll_fn(|cx| waiting.poll(|| poll(cx))).await
}

/// A place among the waiters for a direction.
struct Waiting<'a> {
    registration: &'a IoRegistration,
    direction: Direction,
    name: u32,
    waited: bool,
}

impl Waiting<'_> {
    fn poll<R>(&mut self, poll: impl FnOnce() -> Poll<R>) -> Poll<R> {
        if self.name == UNNAMED {
            self.name =
                engine::with(Engine::next_wait_name).unwrap_or_else(outside::next_wait_name);
        }
        self.registration.set_waiter(self.name);
        // The name is taken back also if the operation panics: code that polls by hand afterwards
        // has no name.
        let named = Named(self.registration);
        let polled = poll();
        drop(named);
        self.waited |= polled.is_pending();
        polled
    }
}

/// While this value lives, polls of the registration wait under a name.
struct Named<'a>(&'a IoRegistration);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        self.0.set_waiter(UNNAMED);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.waited {
            self.registration.cancel_wait(self.direction, self.name);
        }
    }
}

/// A direction of a descriptor that is thought to be ready. It stays ready until an operation
/// returns `WouldBlock`. Use [`try_io`](ReadyGuard::try_io) or [`clear`](ReadyGuard::clear), or the
/// next wait is over at once. A report that arrives in between is not lost.
pub struct ReadyGuard<'a, T: AsFd> {
    fd: &'a AsyncFd<T>,
    direction: Direction,
    tick: u32,
}

/// The descriptor was not ready after all; wait again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotReady;

impl<T: AsFd> ReadyGuard<'_, T> {
    /// Notes that an operation would have blocked.
    pub fn clear(self) {
        self.fd.registration.clear(self.direction, self.tick);
    }

    /// Tries an operation, and clears the readiness if it returns `WouldBlock`.
    ///
    /// # Errors
    ///
    /// [`NotReady`] if it would have blocked; inside, any error of the operation.
    pub fn try_io<R>(
        self,
        operation: impl FnOnce(&T) -> io::Result<R>,
    ) -> Result<io::Result<R>, NotReady> {
        match operation(&self.fd.io) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.clear();
                Err(NotReady)
            }
            outcome => {
                self.fd.registration.mark_used();
                Ok(outcome)
            }
        }
    }
}

impl<T: AsFd> fmt::Debug for ReadyGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyGuard").field("direction", &self.direction).finish_non_exhaustive()
    }
}
