//! Signals, awaited.
//!
//! Each [`Signal`] has a counter in the kernel (`eventfd(2)`) that the handler adds to. However
//! many signals arrive before a task reads the counter, they are one number: a storm costs no
//! memory, and a waiting task is woken at least once after the last of them. The handler itself is
//! the `signal-hook-registry` crate's, and calls the handler that was installed before it.
//!
//! A handler can only count for a `Signal` that exists. A program that drops one and makes the next
//! would lose the arrivals in between, sometimes: the kernel runs the handler on whatever thread it
//! likes, at once or once the next `Signal` is there. So while no `Signal` of a kind lives, a
//! *deputy* of it notes whether the signal has arrived. The deputy is there before the last
//! `Signal` leaves, and leaves after the next has arrived. Each of these changes returns only when
//! the handlers that began before it are done, so no arrival falls between the two.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use signal_hook_registry::SigId;

use crate::async_fd::AsyncFd;
use crate::error;
use crate::sources::Direction;
use crate::sys;

/// A kind of signal; see `signal(7)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SignalKind(i32);

impl SignalKind {
    /// Returns a signal by its number; a real-time signal, for example.
    pub const fn from_raw(number: i32) -> SignalKind {
        SignalKind(number)
    }

    /// Returns its number.
    pub const fn as_raw(self) -> i32 {
        self.0
    }

    /// `SIGINT`: the user pressed Ctrl-C.
    pub const fn interrupt() -> SignalKind {
        SignalKind(libc::SIGINT)
    }

    /// `SIGTERM`: end in order.
    pub const fn terminate() -> SignalKind {
        SignalKind(libc::SIGTERM)
    }

    /// `SIGHUP`: the terminal is gone; by convention, read the configuration again.
    pub const fn hangup() -> SignalKind {
        SignalKind(libc::SIGHUP)
    }

    /// `SIGQUIT`: the user pressed Ctrl-\.
    pub const fn quit() -> SignalKind {
        SignalKind(libc::SIGQUIT)
    }

    /// `SIGUSR1`.
    pub const fn user_defined1() -> SignalKind {
        SignalKind(libc::SIGUSR1)
    }

    /// `SIGUSR2`.
    pub const fn user_defined2() -> SignalKind {
        SignalKind(libc::SIGUSR2)
    }

    /// `SIGCHLD`: a child process stopped or ended. [`process`](crate::process) does not need it.
    pub const fn child() -> SignalKind {
        SignalKind(libc::SIGCHLD)
    }

    /// `SIGWINCH`: the terminal has another size.
    pub const fn window_change() -> SignalKind {
        SignalKind(libc::SIGWINCH)
    }

    /// `SIGALRM`: a timer of the process has fired.
    pub const fn alarm() -> SignalKind {
        SignalKind(libc::SIGALRM)
    }

    /// `SIGIO`: a descriptor with `O_ASYNC` is ready.
    pub const fn io() -> SignalKind {
        SignalKind(libc::SIGIO)
    }
}

/// The `Signal`s of a kind, once there has been one.
#[derive(Debug, Default)]
struct Signals {
    /// How many there are.
    living: usize,
    /// The registration of the deputy, while there are none.
    deputy: Option<SigId>,
    /// Whether an arrival waits for the next one.
    has_missed: Arc<AtomicBool>,
}

/// The kinds that are caught. No handler takes this lock.
static SIGNALS: Mutex<BTreeMap<i32, Signals>> = Mutex::new(BTreeMap::new());

fn signals() -> MutexGuard<'static, BTreeMap<i32, Signals>> {
    SIGNALS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Signals {
    /// Notes that there is one more, whose counter counts from now on.
    fn enter(&mut self, counter: &OwnedFd) {
        self.living += 1;
        if let Some(deputy) = self.deputy.take() {
            signal_hook_registry::unregister(deputy);
        }
        if self.has_missed.swap(false, Ordering::Relaxed) {
            sys::signal::add(counter);
        }
    }

    /// Ends the registration of one. The last one leaves its unread arrivals to the next.
    fn leave(&mut self, kind: SignalKind, counter: &OwnedFd, registration: SigId) {
        self.living -= 1;
        let is_last = self.living == 0;
        if is_last {
            // The kind is caught already, so there is nothing left that could be refused.
            self.deputy = sys::signal::note(kind.0, self.has_missed.clone()).ok();
        }
        signal_hook_registry::unregister(registration);
        if is_last && sys::signal::take(counter).is_ok() {
            self.has_missed.store(true, Ordering::Relaxed);
        }
    }
}

/// Arrivals of one signal, from the moment it was made. Each of several of the same kind gets all
/// arrivals.
///
/// After the last `Signal` of a kind is dropped, the signal is still caught: its default action
/// does not come back. The next `Signal` of that kind gets the arrivals since then, and those that
/// the last one was dropped with, as one.
pub struct Signal {
    counter: AsyncFd<Arc<OwnedFd>>,
    kind: SignalKind,
    registration: SigId,
}

/// Catches a signal from now on, instead of its default action. It needs no runtime yet.
///
/// # Errors
///
/// `InvalidInput` for a signal that cannot be caught (`SIGKILL`, `SIGSTOP`), and for a number that
/// is no signal. `InvalidInput` also for a signal that means that the program is broken (`SIGILL`,
/// `SIGFPE`, `SIGSEGV`), from whose handler nothing sensible can be done. Otherwise any error of
/// `eventfd(2)` or `sigaction(2)`.
pub fn signal(kind: SignalKind) -> io::Result<Signal> {
    let refuse = |why: &str| {
        let text = format!("catching signal {}: {why}", kind.0);
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    };
    if matches!(kind.0, libc::SIGKILL | libc::SIGSTOP) {
        return refuse("no process can catch SIGKILL or SIGSTOP; catch SIGTERM or SIGTSTP");
    }
    if signal_hook_registry::FORBIDDEN.contains(&kind.0) {
        return refuse("it means that the program is broken, and cannot be awaited");
    }
    if !(1..=libc::SIGRTMAX()).contains(&kind.0) {
        return refuse("there is no such signal");
    }
    let counter =
        Arc::new(sys::signal::counter().map_err(|error| error::limit("catching a signal", error))?);
    let mut signals = signals();
    let registration = sys::signal::count(kind.0, counter.clone()).map_err(|error| {
        io::Error::new(error.kind(), format!("catching signal {}: {error}", kind.0))
    })?;
    signals.entry(kind.0).or_default().enter(&counter);
    drop(signals);
    Ok(Signal { counter: AsyncFd::nonblocking(counter), kind, registration })
}

impl Signal {
    /// Waits until the signal has arrived since the last call, or since the start. Many arrivals
    /// may be reported as one.
    ///
    /// Cancel safe: dropped before it is ready, it has taken no arrival.
    ///
    /// # Errors
    ///
    /// Without a runtime on this thread, or if the counter cannot be watched.
    pub async fn recv(&mut self) -> io::Result<()> {
        self.counter.perform(Direction::Read, |counter| sys::signal::take(counter)).await
    }

    /// Returns the kind of signal.
    pub fn kind(&self) -> SignalKind {
        self.kind
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        let mut signals = signals();
        let of_its_kind = signals.entry(self.kind.0).or_default();
        of_its_kind.leave(self.kind, self.counter.get_ref(), self.registration);
    }
}

superpoll::debug_fields!(Signal, it => kind: it.kind);

/// Waits for Ctrl-C (`SIGINT`), from the first poll on. Afterwards the signal no longer ends the
/// process: if a second Ctrl-C should end it, make a [`Signal`] and count.
///
/// Cancel safe: the next call, or the next [`Signal`], gets a signal that arrives after the first
/// poll and before the next call.
///
/// # Errors
///
/// The same errors as [`signal`] and [`Signal::recv`].
pub async fn ctrl_c() -> io::Result<()> {
    signal(SignalKind::interrupt())?.recv().await
}
