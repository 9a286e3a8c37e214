//! The work: timers that are cancelled, and timers that end, with the proof that they existed.

use std::fmt::Display;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::random::Random;
use crate::sys::process;

/// The time within which ending timers end.
pub(super) const WINDOW: Duration = Duration::from_millis(500);

/// The time before the first ending timer ends, long enough to set them all.
const BEFORE: Duration = Duration::from_millis(100);

/// Timers that will be cancelled have at least this much time left.
const FAR: Duration = Duration::from_secs(60);

/// The timers, the same for all runtimes.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The delays of the timers that are cancelled: between one and two minutes.
    pub far: Vec<Duration>,
    /// The delays of the timers that end, from a common start.
    pub near: Vec<Duration>,
    /// The order in which they are cancelled, unless it is that in which they were made.
    pub shuffled: Vec<u32>,
}

impl Plan {
    /// Draws `timers` timers from a seed.
    pub(crate) fn new(timers: usize, seed: u64) -> Plan {
        let mut random = Random::new(seed);
        let mut drawn = |below: Duration| -> Vec<Duration> {
            let below = below.as_nanos() as usize;
            (0..timers).map(|_| Duration::from_nanos(random.below(below) as u64)).collect()
        };
        let far = drawn(FAR).into_iter().map(|more| FAR + more).collect();
        let near = drawn(WINDOW).into_iter().map(|more| BEFORE + more).collect();
        Plan { far, near, shuffled: random.permutation(timers) }
    }
}

crate::by_name::named! {
    /// The order in which timers are cancelled.
    pub(crate) enum Order {
        /// All are set, and then cancelled in the order in which they were made.
        AsMade = "in order",
        /// All are set, and then cancelled in a random order.
        Shuffled = "shuffled",
        /// Each is cancelled before the next is set.
        OneByOne = "one by one",
    }
}

/// The measurements of timers that were cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// How many.
    pub timers: u64,
    /// Processor time to set them.
    pub insert_ns: u64,
    /// Processor time to cancel them.
    pub cancel_ns: u64,
    /// Timers that were pending on their first poll.
    pub waited: u64,
    /// Timers that held the waker, once all were set.
    pub held: u64,
    /// Timers that held the waker after all were cancelled.
    pub left: u64,
    /// How often a waker was called.
    pub woken: u64,
}

impl Taken {
    /// Adds the measurements of later timers.
    pub(crate) fn add(&mut self, other: &Taken) {
        self.timers += other.timers;
        self.insert_ns += other.insert_ns;
        self.cancel_ns += other.cancel_ns;
    }

    /// Checks that every timer was set and cancelled.
    pub(crate) fn check(&self, plan: &Plan) -> Result<(), String> {
        let all = plan.far.len() as u64;
        let found = (self.timers, self.waited, self.held, self.left, self.woken);
        if found == (all, all, all, 0, 0) {
            return Ok(());
        }
        Err(format!(
            "of {all} timers {} waited, {} were held, {} were left after all were taken back, and {} \
             ended",
            self.waited, self.held, self.left, self.woken
        ))
    }
}

/// Counts wake-ups; the number of references to it is the number of timers.
#[derive(Debug, Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sets timers and cancels them, on the thread of the runtime, which does nothing else meanwhile.
pub(super) fn take_back<S: Future<Output = ()>>(
    plan: &Plan,
    order: Order,
    sleep: impl Fn(Duration) -> S,
) -> Taken {
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut cx = Context::from_waker(&waker);
    let mut taken = Taken { timers: plan.far.len() as u64, ..Taken::default() };
    // Two references are not timers: `count` and `waker`.
    let held = || Arc::strong_count(&count) as u64 - 2;
    if order == Order::OneByOne {
        let start = process::processor_time();
        for &far in &plan.far {
            let mut timer = pin!(sleep(far));
            taken.waited += u64::from(timer.as_mut().poll(&mut cx).is_pending());
            taken.held += held();
        }
        taken.insert_ns = process::processor_time() - start;
    } else {
        let mut timers: Vec<Option<Pin<Box<S>>>> = Vec::with_capacity(plan.far.len());
        let start = process::processor_time();
        for &far in &plan.far {
            let mut timer = Box::pin(sleep(far));
            taken.waited += u64::from(timer.as_mut().poll(&mut cx).is_pending());
            timers.push(Some(timer));
        }
        let set = process::processor_time();
        taken.insert_ns = set - start;
        taken.held = held();
        let set = process::processor_time();
        if order == Order::Shuffled {
            for &place in &plan.shuffled {
                timers[place as usize] = None;
            }
        } else {
            for timer in &mut timers {
                *timer = None;
            }
        }
        taken.cancel_ns = process::processor_time() - set;
    }
    taken.left = held();
    taken.woken = count.0.load(Ordering::Relaxed) as u64;
    taken
}

/// Checks that every timer ended, and none early, from how late each was. Returns that in
/// nanoseconds.
pub(crate) fn check_ends(plan: &Plan, found: &[Late]) -> Result<Vec<f64>, String> {
    let late: Vec<f64> = found.iter().flatten().map(|late| late.as_nanos() as f64).collect();
    let (all, early) = (plan.near.len(), found.len() - late.len());
    if (late.len(), early) == (all, 0) {
        return Ok(late);
    }
    Err(format!("of {all} timers {} ended in time and {early} early", late.len()))
}

/// How late a timer ended; none if it was early.
pub(crate) type Late = Option<Duration>;

/// Starts a task for each ending timer, which waits until a time, and waits for all of them.
pub(super) async fn let_end<T, E>(plan: &Plan, start: impl Fn(Instant) -> T) -> Result<Vec<Late>>
where
    T: Future<Output = Result<Late, E>>,
    E: Display,
{
    let begun = Instant::now();
    let tasks: Vec<T> = plan.near.iter().map(|&near| start(begun + near)).collect();
    let mut found = Vec::with_capacity(tasks.len());
    for task in tasks {
        found.push(task.await.map_err(|error| Error::usage(error.to_string()))?);
    }
    Ok(found)
}

/// Returns how late it is, if it is not early.
pub(super) fn lateness(deadline: Instant) -> Late {
    Instant::now().checked_duration_since(deadline)
}

/// A future that does some work when it is first polled, in place of a task.
pub(super) async fn within<R>(work: impl FnOnce() -> R) -> R {
    let mut work = Some(work);
    std::future::poll_fn(move |_| match work.take() {
        Some(work) => Poll::Ready(work()),
        None => Poll::Pending,
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds a waker as a timer does, and loses it on command.
    struct Fake {
        waker: Option<Waker>,
        keeps: bool,
    }

    impl Future for Fake {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            self.waker = self.keeps.then(|| cx.waker().clone());
            Poll::Pending
        }
    }

    #[test]
    fn timers_that_are_not_set_and_timers_that_stay_are_found() {
        let plan = Plan::new(50, 1);
        for order in [Order::AsMade, Order::Shuffled, Order::OneByOne] {
            let good = take_back(&plan, order, |_| Fake { waker: None, keeps: true });
            assert_eq!(good.check(&plan), Ok(()));
            let lost = take_back(&plan, order, |_| Fake { waker: None, keeps: false });
            assert!(lost.check(&plan).unwrap_err().contains(" 0 were held"));
            let left = take_back(&plan, order, |_| {
                let mut leaked = false;
                std::future::poll_fn(move |cx: &mut Context<'_>| {
                    if !std::mem::replace(&mut leaked, true) {
                        std::mem::forget(cx.waker().clone());
                    }
                    Poll::Pending
                })
            });
            assert!(left.check(&plan).is_err(), "{left:?}");
            let over = take_back(&plan, order, |_| std::future::ready(()));
            assert!(over.check(&plan).unwrap_err().contains(" 0 waited"));
        }
    }

    #[test]
    fn early_and_missing_ends_are_found() {
        let plan = Plan::new(2, 1);
        let late = Some(Duration::from_micros(3));
        assert_eq!(check_ends(&plan, &[late, late]), Ok(vec![3000.0, 3000.0]));
        assert!(check_ends(&plan, &[late]).is_err());
        assert!(check_ends(&plan, &[late, None]).unwrap_err().contains("1 early"));
        assert_eq!(lateness(Instant::now() + Duration::from_secs(60)), None);
    }

    #[test]
    fn plans_are_drawn_from_the_seed_and_lie_where_they_should() {
        let (plan, same) = (Plan::new(1000, 5), Plan::new(1000, 5));
        assert_eq!((&plan.far, &plan.near), (&same.far, &same.near));
        assert!(plan.far.iter().all(|far| (FAR..2 * FAR).contains(far)));
        assert!(plan.near.iter().all(|near| (BEFORE..BEFORE + WINDOW).contains(near)));
        assert_ne!(plan.shuffled, Plan::new(1000, 6).shuffled);
    }
}
