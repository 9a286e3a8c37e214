//! A future that waits until a point in time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::current_engine::{is_far, now};
use crate::deadline::after;
use crate::engine::{self, Engine};
use crate::remote::{Message, Remote};
use crate::timer_wheel::{TimerKey, WakerMatch};

/// Waits for a duration, counted from this call and not from the first poll.
///
/// A duration that the clock cannot count, such as `Duration::MAX`, never ends.
///
/// Cancel safety: dropping it takes the timer out; it can be polled again where it was left.
///
/// # Panics
///
/// Awaiting it panics, as long as its time has not arrived, where no runtime runs.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let runtime = superpoll_rt::Runtime::new()?;
/// let start = Instant::now();
/// runtime.block_on(superpoll_rt::time::sleep(Duration::from_micros(200)));
/// assert!(start.elapsed() >= Duration::from_micros(200));
/// # Ok::<(), superpoll_rt::Error>(())
/// ```
#[inline]
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(after(now(), duration))
}

/// Waits until a point in time. If that has passed, it does not wait.
///
/// Cancel safety and panics are those of [`sleep`].
#[inline]
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, timer: None }
}

/// An entry in the wheel of an engine, taken out on drop.
struct Timer {
    remote: Arc<Remote>,
    key: TimerKey,
}

impl Timer {
    /// Calls a function with the engine that it belongs to, if that is this thread's.
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&Engine) -> R) -> Option<R> {
        engine::with(|engine| (engine.remote.id == self.remote.id).then(|| f(engine))).flatten()
    }

    /// Moves it to another deadline. Its waiter is woken then, or earlier.
    fn reset(&self, deadline: Instant) -> bool {
        let key = self.key;
        self.with(|engine| engine.timers(|wheel| wheel.reset(key, deadline))).unwrap_or_else(|| {
            // A task that waits for it over there has to find out, and to begin again.
            let wake = move || {
                let waker = engine::with(|engine| engine.timers(|wheel| wheel.cancel(key)));
                waker.flatten().into_iter().for_each(Waker::wake);
            };
            // An engine that has ended has no waiters.
            let _ = self.remote.send(Message::Call(Box::new(wake)));
            false
        })
    }
}

impl Drop for Timer {
    #[inline]
    fn drop(&mut self) {
        let cancel = |engine: &Engine| {
            engine.note_slot(self.key.index());
            engine.timers(|wheel| wheel.cancel(self.key))
        };
        match self.with(cancel) {
            Some(waker) => drop(waker),
            // An engine that has ended has no timers.
            None => drop(self.remote.send(Message::CancelTimer(self.key))),
        }
    }
}

/// The future of [`sleep`] and [`sleep_until`].
///
/// It may be sent to another thread, also after it has been polled, and be awaited there.
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep {
    deadline: Instant,
    timer: Option<Timer>,
}

/// The outcome of a poll.
enum SleepState {
    Over,
    /// It is over, but the task has to let other tasks run first.
    BudgetSpent,
    Pending,
}

impl Sleep {
    /// Returns the time at which it ends.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns whether its time has arrived.
    pub fn is_elapsed(&self) -> bool {
        now() >= self.deadline
    }

    /// Makes it end at another time, whether it has ended before or not. A task that waits for it
    /// does not have to poll it again. In its engine this costs less than a new sleep.
    pub fn reset(&mut self, deadline: Instant) {
        self.deadline = deadline;
        if let Some(timer) = &self.timer
            && !timer.reset(deadline)
        {
            self.timer = None;
        }
    }

    /// Polls it. If it is `fair`, its end counts as an operation that the task completes, and has
    /// to wait if the task has completed too many.
    #[inline]
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>, fair: bool) -> Poll<()> {
        match engine::with(|engine| self.poll_timer(engine, cx.waker(), fair)) {
            Some(SleepState::Pending) => Poll::Pending,
            Some(SleepState::Over) => {
                self.timer = None;
                Poll::Ready(())
            }
            Some(SleepState::BudgetSpent) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None if self.is_elapsed() => Poll::Ready(()),
            None => no_runtime(),
        }
    }

    #[inline]
    fn poll_timer(&mut self, engine: &Engine, waker: &Waker, fair: bool) -> SleepState {
        let here = self.timer.as_ref().filter(|timer| timer.remote.id == engine.remote.id);
        let over = match here {
            Some(timer) => match engine.timers(|wheel| wheel.match_waker(timer.key, waker)) {
                WakerMatch::Same => return SleepState::Pending,
                WakerMatch::Other => {
                    // Cloned and dropped with nothing borrowed. Timers fire between two tasks only.
                    let waker = waker.clone();
                    let spare = engine.timers(|wheel| wheel.replace(timer.key, waker));
                    drop(spare);
                    return SleepState::Pending;
                }
                WakerMatch::Gone => true,
            },
            None => !is_far(self.deadline) && self.is_elapsed(),
        };
        if !over {
            let waker = waker.clone();
            let key = engine.timers(|wheel| wheel.insert(self.deadline, waker));
            engine.note_slot(key.index());
            // A timer of another engine ends here.
            self.timer = Some(Timer { remote: engine.remote.clone(), key });
            SleepState::Pending
        } else if !fair || engine.spend_budget() {
            SleepState::Over
        } else {
            SleepState::BudgetSpent
        }
    }
}

#[cold]
fn no_runtime() -> ! {
    panic!(
        "awaiting a timer: no runtime runs on this thread; await it inside Runtime::block_on or in a task"
    )
}

impl Future for Sleep {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_end(cx, true)
    }
}

superpoll::debug_fields!(Sleep, it => deadline: it.deadline);
