//! Timers on a real engine. No test depends on how late a timer is.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use superpoll_rt::time::{
    self, Interval, Sleep, Timeout, interval, interval_at, sleep, sleep_until, timeout, timeout_at,
};
use superpoll_rt::{Runtime, spawn, yield_now};

mod paused;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

fn run<F: Future>(future: F) -> F::Output {
    Runtime::new().unwrap().block_on(future)
}

fn two_engines() -> Runtime {
    Runtime::builder().workers(NonZeroUsize::new(2).unwrap()).build().unwrap()
}

/// Counts how often it wakes, and how many other clones there are.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn poll_with(sleep: &mut Sleep, count: &Arc<Count>) -> Poll<()> {
    let waker = Waker::from(count.clone());
    Pin::new(sleep).poll(&mut Context::from_waker(&waker))
}

/// Lets turns pass until something has happened.
async fn until(mut happened: impl FnMut() -> bool) {
    while !happened() {
        yield_now().await;
    }
}

#[test]
fn a_sleep_never_ends_early() {
    run(async {
        for micros in [0, 1, 7, 8, 9, 50, 100, 999, 1000, 5000, 60_000] {
            let duration = Duration::from_micros(micros);
            let start = Instant::now();
            let sleep = sleep(duration);
            let deadline = sleep.deadline();
            assert!(deadline >= start + duration);
            sleep.await;
            assert!(Instant::now() >= deadline, "{micros} us");
        }
    });
}

#[test]
fn a_sleep_costs_a_few_turns_however_long_it_is() {
    let runtime = Runtime::new().unwrap();
    let turns = || runtime.stats()[0].turns;
    for millis in [1, 3, 40, 150] {
        let before = turns();
        runtime.block_on(sleep(millis * MS));
        let took = turns() - before;
        assert!(took <= 4, "{took} turns for {millis} ms");
    }
}

#[test]
fn timers_that_end_within_the_slack_share_a_turn() {
    let slack = 5 * MS;
    for workers in [1, 2] {
        let workers = NonZeroUsize::new(workers).unwrap();
        let runtime = Runtime::builder().workers(workers).timer_slack(slack).build().unwrap();
        let all = async move {
            let start = Instant::now() + 20 * MS;
            let sleeps = (0..1000).map(|number| async move {
                let deadline = start + number * MS / 10;
                sleep_until(deadline).await;
                assert!(Instant::now() >= deadline);
            });
            let tasks: Vec<_> = sleeps.map(spawn).collect();
            for task in tasks {
                task.await.unwrap();
            }
        };
        let task = runtime.handle().spawn_on(workers.get() - 1, all).unwrap();
        runtime.block_on(task).unwrap();
        let stats = runtime.stats().pop().unwrap();
        // Some 22 wake-ups for timers, and the turns in which the tasks were spawned.
        assert!(stats.turns <= 150, "{} turns, {workers} engines", stats.turns);
    }
}

#[test]
fn a_timer_alone_does_not_wait_for_the_slack() {
    let runtime = Runtime::builder().timer_slack(HOUR).build().unwrap();
    runtime.block_on(sleep(MS));
    // Nor does a timer whose engine another event wakes.
    runtime.block_on(async {
        let deadline = Instant::now() + MS;
        let ended = spawn(sleep_until(deadline));
        until(|| ended.is_finished()).await;
        assert!(Instant::now() >= deadline);
    });
}

#[test]
fn timers_can_be_sent_and_moved() {
    fn check<T: Send + Sync + Unpin>() {}
    check::<Sleep>();
    check::<Interval>();
    check::<Timeout<Sleep>>();
}

#[test]
fn many_sleeps_end_in_the_order_of_their_deadlines() {
    run(async {
        let start = Instant::now() + 20 * MS;
        let waiting = Rc::new(Cell::new(0));
        let ended = Rc::new(RefCell::new(Vec::new()));
        let mut tasks = Vec::new();
        let mut random = 1u32;
        for _ in 0..500 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Further apart than the timers' resolution.
            let number = random >> 22;
            let (waiting, ended) = (waiting.clone(), ended.clone());
            tasks.push(spawn(async move {
                waiting.set(waiting.get() + 1);
                let deadline = start + Duration::from_micros(20) * number;
                sleep_until(deadline).await;
                assert!(Instant::now() >= deadline);
                ended.borrow_mut().push(number);
            }));
        }
        // All are in the wheel before the first is due; otherwise their order would not come from
        // the wheel.
        until(|| waiting.get() == 500).await;
        let all_waited = Instant::now() < start;
        for task in tasks {
            task.await.unwrap();
        }
        let ended = ended.take();
        assert_eq!(ended.len(), 500);
        assert!(!all_waited || ended.is_sorted());
    });
}

#[test]
fn a_past_deadline_is_ready_at_once_repeatedly_and_without_a_runtime() {
    let count = Arc::new(Count::default());
    let now = Instant::now();
    let mut past = sleep_until(now);
    assert!(past.is_elapsed());
    assert_eq!(poll_with(&mut past, &count), Poll::Ready(()));
    run(async {
        for _ in 0..3 {
            assert_eq!(poll_with(&mut past, &count), Poll::Ready(()));
        }
        let mut ended = sleep(MS);
        (&mut ended).await;
        assert!(ended.is_elapsed());
        assert_eq!(poll_with(&mut ended, &count), Poll::Ready(()));
    });
    assert_eq!(count.get(), 0);
}

#[test]
#[should_panic(expected = "no runtime runs on this thread")]
fn waiting_without_a_runtime_panics() {
    let _ = poll_with(&mut sleep(HOUR), &Arc::default());
}

#[test]
fn a_deadline_too_far_ahead_never_comes() {
    run(async {
        let count = Arc::new(Count::default());
        let mut sleep = sleep(Duration::MAX);
        assert!(!sleep.is_elapsed());
        assert!(sleep.deadline() > Instant::now() + HOUR * 24 * 365 * 1_000_000);
        assert_eq!(poll_with(&mut sleep, &count), Poll::Pending);
        time::sleep(MS).await;
        assert_eq!(poll_with(&mut sleep, &count), Poll::Pending);
        assert_eq!(count.get(), 0);
        sleep.reset(Instant::now());
        until(|| count.get() > 0).await;
        assert_eq!(timeout(Duration::MAX, async { 3 }).await, Ok(3));
    });
}

#[test]
fn a_dropped_sleep_drops_its_waker_and_wakes_no_task() {
    run(async {
        let count = Arc::new(Count::default());
        let mut dropped = sleep(HOUR);
        assert_eq!(poll_with(&mut dropped, &count), Poll::Pending);
        assert_eq!(Arc::strong_count(&count), 2);
        dropped.reset(Instant::now() + MS);
        drop(dropped);
        assert_eq!(Arc::strong_count(&count), 1);
        sleep(2 * MS).await;
        assert_eq!(count.get(), 0);
    });
}

#[test]
fn only_the_last_waker_is_woken() {
    run(async {
        let (first, second) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let mut sleep = sleep(MS);
        // The first poll may come too late on a machine that is busy.
        if poll_with(&mut sleep, &first).is_pending() && poll_with(&mut sleep, &second).is_pending()
        {
            assert_eq!(Arc::strong_count(&first), 1);
            until(|| second.get() == 1).await;
            assert_eq!(first.get(), 0);
        }
    });
}

#[test]
fn a_reset_moves_the_deadline_of_a_waiting_task() {
    run(async {
        let count = Arc::new(Count::default());
        // Earlier, without another poll.
        let mut sleep = sleep(HOUR);
        assert_eq!(poll_with(&mut sleep, &count), Poll::Pending);
        let deadline = Instant::now() + MS;
        sleep.reset(deadline);
        assert_eq!(sleep.deadline(), deadline);
        until(|| count.get() > 0).await;
        assert!(Instant::now() >= deadline);
        assert_eq!(poll_with(&mut sleep, &count), Poll::Ready(()));
        // Later.
        sleep.reset(Instant::now() + MS);
        let _ = poll_with(&mut sleep, &count);
        sleep.reset(Instant::now() + HOUR);
        let woken = count.get();
        time::sleep(2 * MS).await;
        assert_eq!(count.get(), woken);
        assert_eq!(poll_with(&mut sleep, &count), Poll::Pending);
        // After it has fired, but before that was seen.
        sleep.reset(Instant::now() + MS);
        until(|| count.get() > woken).await;
        sleep.reset(Instant::now() + HOUR);
        assert_eq!(poll_with(&mut sleep, &count), Poll::Pending);
    });
}

#[test]
fn a_sleep_dropped_on_another_thread_leaves_its_engine() {
    run(async {
        let count = Arc::new(Count::default());
        let mut sleep = sleep(HOUR);
        assert_eq!(poll_with(&mut sleep, &count), Poll::Pending);
        assert_eq!(Arc::strong_count(&count), 2);
        std::thread::spawn(move || drop(sleep)).join().unwrap();
        until(|| Arc::strong_count(&count) == 1).await;
        assert_eq!(count.get(), 0);
    });
}

#[test]
fn a_sleep_outlives_its_runtime() {
    let count = Arc::new(Count::default());
    let mut left = sleep(HOUR);
    run(async {
        assert_eq!(poll_with(&mut left, &count), Poll::Pending);
    });
    assert_eq!(Arc::strong_count(&count), 1, "the engine's timers ended with it");
    assert_eq!(count.get(), 1, "the waiting task begins anew, on any engine");
    left.reset(Instant::now() + MS);
    run(left);
    assert_eq!(count.get(), 1);
}

#[test]
fn a_sleep_that_was_polled_moves_to_another_engine() {
    let runtime = two_engines();
    let handle = runtime.handle();
    let count = Arc::new(Count::default());
    runtime.block_on(async {
        let mut sleep = sleep(20 * MS);
        let deadline = sleep.deadline();
        let _ = poll_with(&mut sleep, &count);
        let other = 1 - handle.engine().unwrap();
        let ended = handle.spawn_on(other, async move {
            sleep.await;
            Instant::now()
        });
        assert!(ended.unwrap().await.unwrap() >= deadline);
        until(|| Arc::strong_count(&count) == 1).await;
    });
}

#[test]
fn a_reset_from_another_thread_reaches_the_waiting_task() {
    let runtime = two_engines();
    let handle = runtime.handle();
    runtime.block_on(async {
        let shared = Arc::new(Mutex::new(sleep(HOUR)));
        let (sender, polled) = mpsc::channel();
        let waiting = shared.clone();
        let other = 1 - handle.engine().unwrap();
        let task = handle.spawn_on(
            other,
            poll_fn(move |cx| {
                let poll = Pin::new(&mut *waiting.lock().unwrap()).poll(cx);
                // The receiver is gone after the first.
                let _ = sender.send(());
                poll
            }),
        );
        polled.recv().unwrap();
        shared.lock().unwrap().reset(Instant::now() + MS);
        task.unwrap().await.unwrap();
    });
}

#[test]
fn timeout_polls_the_future_first_and_ends_a_slow_one() {
    run(async {
        let past = Instant::now();
        assert_eq!(timeout(Duration::ZERO, async { 1 }).await, Ok(1));
        assert_eq!(timeout_at(past, async { 2 }).await, Ok(2));
        assert_eq!(timeout(HOUR, sleep(MS)).await, Ok(()));

        let start = Instant::now();
        let elapsed = timeout(3 * MS, pending::<()>()).await.unwrap_err();
        assert!(start.elapsed() >= 3 * MS);
        assert_eq!(elapsed.to_string(), "the time limit was reached");
        assert_eq!(std::io::Error::from(elapsed).kind(), std::io::ErrorKind::TimedOut);
    });
}

#[test]
fn timeout_drops_the_late_future_or_leaves_it_to_its_owner() {
    run(async {
        let token = Rc::new(());
        let held = token.clone();
        let owned = async move {
            let _held = held;
            pending::<()>().await
        };
        assert!(timeout(MS, owned).await.is_err());
        assert_eq!(Rc::strong_count(&token), 1);

        let start = Instant::now();
        let mut lent = sleep(10 * MS);
        while timeout(MS, &mut lent).await.is_err() {}
        assert!(start.elapsed() >= 10 * MS);
    });
}

#[test]
fn timeout_holds_for_a_future_that_spends_the_whole_budget() {
    run(async {
        let greedy = async {
            loop {
                sleep_until(Instant::now()).await;
            }
        };
        assert!(timeout(5 * MS, greedy).await.is_err());
    });
}

#[test]
fn elapsed_sleeps_let_other_tasks_run() {
    run(async {
        let others = Rc::new(Cell::new(false));
        let ran = others.clone();
        spawn(async move { ran.set(true) }).detach();
        until_over(&others).await;
    });
}

/// Ends when another task has set the flag, though it never waits by itself.
async fn until_over(flag: &Cell<bool>) {
    let past = Instant::now();
    while !flag.get() {
        sleep_until(past).await;
    }
}

#[test]
fn an_interval_ticks_at_once_and_then_on_schedule() {
    run(async {
        let start = Instant::now();
        let mut interval = interval(2 * MS).unwrap();
        let first = interval.tick().await;
        assert!(first >= start);
        for number in 1..5 {
            let scheduled = interval.tick().await;
            assert_eq!(scheduled, first + number * 2 * MS);
            assert!(Instant::now() >= scheduled);
        }
        assert_eq!(interval.period(), 2 * MS);
    });
}

#[test]
fn a_cancelled_tick_is_not_lost() {
    run(async {
        let start = Instant::now();
        let mut interval = interval_at(start + 10 * MS, HOUR).unwrap();
        while timeout(MS, interval.tick()).await.is_err() {}
        assert!(Instant::now() >= start + 10 * MS);
        assert!(timeout(MS, interval.tick()).await.is_err(), "there is one only");
    });
}

#[test]
fn an_interval_can_be_reset() {
    run(async {
        let mut interval = interval(2 * MS).unwrap();
        interval.tick().await;
        let before = Instant::now();
        interval.reset();
        assert!(interval.tick().await >= before + 2 * MS);
        let start = Instant::now() + 5 * MS;
        interval.reset_at(start);
        assert_eq!(interval.tick().await, start);
        assert_eq!(interval.tick().await, start + 2 * MS);
    });
}

#[test]
fn a_waker_that_drops_sleeps_may_be_dropped_with_a_timer() {
    /// A waker that owns a sleep, like the waker of a task inside a task.
    struct Owner(#[allow(dead_code, reason = "owned to be dropped")] Mutex<Option<Sleep>>);

    impl Wake for Owner {
        fn wake(self: Arc<Self>) {}
    }

    fn owner() -> Waker {
        let mut owned = sleep(HOUR);
        assert_eq!(poll_with(&mut owned, &Arc::default()), Poll::Pending);
        Waker::from(Arc::new(Owner(Mutex::new(Some(owned)))))
    }

    run(async {
        // Cancelled.
        let mut outer = sleep(HOUR);
        assert!(Pin::new(&mut outer).poll(&mut Context::from_waker(&owner())).is_pending());
        drop(outer);
        // Replaced.
        let mut outer = sleep(HOUR);
        assert!(Pin::new(&mut outer).poll(&mut Context::from_waker(&owner())).is_pending());
        assert!(poll_with(&mut outer, &Arc::default()).is_pending());
        // Cancelled from elsewhere.
        let mut outer = sleep(HOUR);
        let count = Arc::new(Count::default());
        let mut after = sleep(HOUR);
        assert!(Pin::new(&mut outer).poll(&mut Context::from_waker(&owner())).is_pending());
        assert!(poll_with(&mut after, &count).is_pending());
        std::thread::spawn(move || drop((outer, after))).join().unwrap();
        until(|| Arc::strong_count(&count) == 1).await;
        // Fired.
        let mut outer = sleep(MS);
        let _ = Pin::new(&mut outer).poll(&mut Context::from_waker(&owner()));
        sleep(2 * MS).await;
        // Left to the end of the engine.
        let mut outer = sleep(HOUR);
        assert!(Pin::new(&mut outer).poll(&mut Context::from_waker(&owner())).is_pending());
        std::mem::forget(outer);
    });
}
