//! Sleeping, time limits and intervals.
//!
//! Time is `std::time::Instant`'s; a test can [`pause`] it. Each engine has its timers in a
//! hierarchical wheel with a resolution of 8.2 microseconds, and the poller waits with nanoseconds.
//! Nothing ends early. How late it ends depends on three things:
//!
//! - the slack of the engine's timers, one millisecond unless
//!   [`Builder::timer_slack`](crate::Builder::timer_slack) sets another;
//! - the kernel's timer slack (50 microseconds unless set otherwise);
//! - the tasks that run before it.
//!
//! The slack lets one wake-up of the engine serve several timers: timers wake an engine at most
//! once per slack. A timer that comes alone, at least a slack after the last wake-up for a timer,
//! does not wait for it, so a sleep of a hundred microseconds takes about that long. A loop of such
//! sleeps takes a millisecond each. With a slack of zero each timer has its own wake-up. The
//! schedule of an [`Interval`] does not shift, however late its ticks are.
//!
//! After a pause of the thread (`SIGSTOP`, a virtual machine that was suspended, a task that
//! computes for long) bytes and events that have arrived go before timers: timers that are more
//! than 10 milliseconds late fire when the loop has asked about all descriptors and has run the
//! tasks that were due then.
//!
//! A timer belongs to no engine until it is polled and has to wait; then it belongs to the engine
//! of the task that polls it, until a task of another engine does. A timer that is not needed when
//! it is first polled never touches the wheel, for example when a request is answered before its
//! time limit is polled. You can therefore create a timer anywhere, outside of a runtime too.
//!
//! A time that lies too far ahead for the clock to count, such as `Duration::MAX` from now, means
//! never.

mod interval;
mod pause;
mod sleep;
mod timeout;

pub use interval::{Interval, MissedTickBehavior, ZeroPeriod, interval, interval_at};
pub use pause::{advance, now, pause, resume};
pub use sleep::{Sleep, sleep, sleep_until};
pub use timeout::{Elapsed, Timeout, timeout, timeout_at};
