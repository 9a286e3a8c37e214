//! Sleeping, time limits and intervals.
//!
//! Time is `std::time::Instant`'s. Each engine has its timers in a hierarchical wheel with a
//! resolution of 8.2 microseconds, and the poller waits with nanoseconds, so that a sleep of a
//! hundred microseconds takes about that long. Nothing ends early. How late it ends depends on the
//! kernel's timer slack (50 microseconds unless set otherwise), and on the tasks that run before
//! it.
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
mod sleep;
mod timeout;

pub use interval::{Interval, MissedTickBehavior, ZeroPeriod, interval, interval_at};
pub use sleep::{Sleep, sleep, sleep_until};
pub use timeout::{Elapsed, Timeout, timeout, timeout_at};
