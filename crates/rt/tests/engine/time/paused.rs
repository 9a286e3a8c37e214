//! A paused clock. All times here are exact, as no time passes but by the clock.

use std::cell::RefCell;
use std::future::{Future, pending};
use std::io::Write;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::AsyncReadExt;
use superpoll_rt::blocking::unblock;
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::time::{
    MissedTickBehavior, advance, interval, interval_at, now, pause, resume, sleep, sleep_until,
    timeout, timeout_at,
};
use superpoll_rt::{Error, Runtime, spawn};

use super::{Count, HOUR, MS, poll_with, run};

fn paused<F: Future>(future: F) -> F::Output {
    Runtime::builder().start_paused(true).build().unwrap().block_on(future)
}

/// Returns the message of a panic.
fn panic_of(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).unwrap_err();
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap()
}

#[test]
fn hours_pass_as_soon_as_all_tasks_wait_and_to_the_nanosecond() {
    let start = Instant::now();
    paused(async {
        let begun = now();
        for nanos in [1, 999, 1_000_001, 3_600_000_000_000, 7_000_000_000_000_003] {
            let (before, wait) = (now(), Duration::from_nanos(nanos));
            sleep(wait).await;
            assert_eq!(now() - before, wait);
        }
        assert!(now() - begun > 1900 * HOUR);
    });
    assert!(start.elapsed() < HOUR);
}

#[test]
fn two_runs_are_the_same() {
    let run = || {
        paused(async {
            let (start, order) = (now(), Rc::new(RefCell::new(Vec::new())));
            let mut random = 7_u64;
            let tasks: Vec<_> = (0..200)
                .map(|task| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let (order, wait) = (order.clone(), Duration::from_nanos(random >> 30));
                    spawn(async move {
                        for _ in 0..5 {
                            sleep(wait).await;
                            order.borrow_mut().push((task, now() - start));
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            order.take()
        })
    };
    let order = run();
    assert!(order.is_sorted_by_key(|&(_, at)| at), "{order:?}");
    assert_eq!(run(), order);
}

#[test]
fn a_timer_ends_at_its_very_time_when_the_clock_is_moved() {
    paused(async {
        let count = Arc::new(Count::default());
        let mut sleeping = sleep(MS);
        for _ in 0..4 {
            assert!(poll_with(&mut sleeping, &count).is_pending());
            assert_eq!(count.get(), 0);
            advance(MS / 4).await;
        }
        assert_eq!(count.get(), 1);
        assert!(poll_with(&mut sleeping, &count).is_ready());

        for micros in [51_592, 3_141_592, 1] {
            let before = now();
            advance(Duration::from_micros(micros)).await;
            assert_eq!(now() - before, Duration::from_micros(micros));
        }
        advance(Duration::ZERO).await;
    });
}

#[test]
fn tasks_whose_time_has_come_run_before_the_end_of_a_move_and_see_the_new_time() {
    paused(async {
        let (start, seen) = (now(), Rc::new(RefCell::new(Vec::new())));
        let tasks: Vec<_> = [3, 1, 2, 9]
            .map(|minutes: u32| {
                let seen = seen.clone();
                spawn(async move {
                    sleep_until(start + minutes * 60_000 * MS).await;
                    seen.borrow_mut().push((minutes, now() - start));
                })
            })
            .into();
        // They begin to wait.
        advance(Duration::ZERO).await;
        advance(5 * 60_000 * MS).await;
        let at = 5 * 60_000 * MS;
        assert_eq!(*seen.borrow(), [(1, at), (2, at), (3, at)], "in the order of their deadlines");
        // A sleep lets each run at its own time.
        sleep(HOUR).await;
        assert_eq!(seen.borrow()[3], (9, 9 * 60_000 * MS));
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn a_limit_is_reached_when_nothing_else_can_happen_and_not_before() {
    paused(async {
        let start = now();
        assert!(timeout(HOUR, pending::<()>()).await.is_err());
        assert_eq!(now() - start, HOUR);
        assert_eq!(timeout(HOUR, sleep(HOUR / 2)).await, Ok(()));
        assert_eq!(now() - start, HOUR + HOUR / 2);
        assert!(timeout_at(start + 2 * HOUR, sleep(HOUR)).await.is_err());
        assert_eq!(now() - start, 2 * HOUR);
        // Both at once: the future is polled first.
        assert_eq!(timeout(HOUR, sleep(HOUR)).await, Ok(()));
        assert_eq!(timeout(Duration::MAX, async { 7 }).await, Ok(7));
    });
}

#[test]
fn a_test_lets_time_pass_for_clients_outside_of_the_runtime() {
    Runtime::new().unwrap().block_on(async {
        let elapse = async |duration| {
            pause();
            sleep(duration).await;
            resume();
        };
        let (mut server, client) = UnixStream::pair().unwrap();
        let mut client = client.into_std();
        let served = spawn(async move {
            let mut bytes = Vec::new();
            let mut room = [0];
            while let Ok(count) = timeout(HOUR, server.read(&mut room)).await {
                bytes.push(room[0]);
                assert_eq!(count.unwrap(), 1);
            }
            bytes
        });
        for byte in 0..4 {
            client.write_all(&[byte]).unwrap();
            elapse(HOUR / 10 * 9).await;
            assert!(!served.is_finished());
        }
        elapse(HOUR / 10).await;
        assert_eq!(served.await.unwrap(), [0, 1, 2, 3]);
        // Outside of that the clock runs as the system's does.
        let (begun, at) = (Instant::now(), now());
        sleep(MS).await;
        assert!(now() - at >= MS && now() - at <= begun.elapsed());
    });
}

#[test]
fn ticks_keep_their_schedule() {
    paused(async {
        let start = now();
        let mut ticks = interval_at(start, 300 * MS).unwrap();
        assert_eq!(ticks.tick().await, start);
        advance(100 * MS).await;
        assert_eq!(ticks.tick().await, start + 300 * MS);
        assert_eq!(now(), start + 300 * MS, "on time without a move");
        advance(700 * MS).await;
        for tick in 2..4 {
            assert_eq!(ticks.tick().await, start + tick * 300 * MS, "a burst");
            assert_eq!(now(), start + 1000 * MS);
        }
        assert_eq!(ticks.tick().await, start + 1200 * MS);

        let missed = |behavior| async move {
            let start = now();
            let mut ticks = interval(10 * MS).unwrap();
            ticks.set_missed_tick_behavior(behavior);
            assert_eq!(ticks.missed_tick_behavior(), behavior);
            ticks.tick().await;
            advance(57 * MS).await;
            let mut due = Vec::new();
            for _ in 0..3 {
                due.push((ticks.tick().await - start).as_millis());
            }
            due
        };
        assert_eq!(missed(MissedTickBehavior::Burst).await, [10, 20, 30]);
        assert_eq!(missed(MissedTickBehavior::Delay).await, [10, 67, 77]);
        assert_eq!(missed(MissedTickBehavior::Skip).await, [10, 60, 70]);
    });
}

#[test]
fn bytes_that_have_arrived_are_read_before_the_clock_moves() {
    paused(async {
        let start = now();
        let (mut reader, writer) = UnixStream::pair().unwrap();
        let mut writer = std::os::unix::net::UnixStream::from(
            std::os::fd::AsFd::as_fd(&writer).try_clone_to_owned().unwrap(),
        );
        let reads = spawn(async move {
            let mut seen = Vec::new();
            for _ in 0..3 {
                reader.read_exact(&mut [0]).await.unwrap();
                seen.push(now() - start);
            }
            seen
        });
        // The reader waits for each of them.
        for _ in 0..3 {
            sleep(HOUR).await;
            writer.write_all(b"x").unwrap();
        }
        assert_eq!(reads.await.unwrap(), [HOUR, 2 * HOUR, 3 * HOUR]);
    });
}

#[test]
fn a_blocking_call_stops_the_clock_for_as_long_as_it_runs() {
    paused(async {
        for round in 0..50 {
            let start = now();
            let (told, waits) = mpsc::channel();
            let call = unblock(move || waits.recv().unwrap());
            let teller = thread::spawn(move || {
                for _ in 0..round {
                    thread::yield_now();
                }
                told.send(round).unwrap();
            });
            assert_eq!(timeout(HOUR, call).await.unwrap().unwrap(), round);
            assert_eq!(now(), start, "the task of the call runs before the clock moves");
            teller.join().unwrap();
            // Calls that no task waits for, that were dropped and that have panicked do not stop it
            // for good.
            let kept = unblock(|| 7);
            drop(unblock(|| 8));
            unblock(|| drop(catch_unwind(|| panic!("on purpose")))).detach();
            sleep(HOUR).await;
            assert_eq!(now() - start, HOUR);
            assert_eq!(kept.await.unwrap(), 7);
        }
    });
}

#[test]
fn a_call_that_began_before_the_pause_stops_the_clock_too() {
    run(async {
        for _ in 0..50 {
            let (told, waits) = mpsc::channel();
            let call = unblock(move || waits.recv().unwrap());
            pause();
            let start = now();
            let teller = thread::spawn(move || {
                thread::sleep(MS);
                told.send(7).unwrap();
            });
            assert_eq!(timeout(HOUR, call).await.unwrap().unwrap(), 7);
            assert_eq!(now(), start);
            teller.join().unwrap();
            // It stops the clock no longer.
            sleep(HOUR).await;
            assert_eq!(now() - start, HOUR);
            resume();
        }
    });
}

#[test]
fn timers_that_wait_already_keep_their_times_when_the_clock_is_paused() {
    run(async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let waits = [5, 3_600_000, 1_000, 86_400_000, 60];
        let tasks = waits.map(|millis: u32| {
            let order = order.clone();
            spawn(async move {
                sleep(millis * MS).await;
                order.borrow_mut().push(millis);
            })
        });
        let mut never = sleep(Duration::MAX);
        assert!(poll_with(&mut never, &Arc::default()).is_pending());
        let before = Instant::now();
        superpoll_rt::next_turn().await;
        pause();
        let start = now();
        assert!(start >= before, "it stops at the system's time");
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.borrow(), [5, 60, 1_000, 3_600_000, 86_400_000]);
        let tick = Duration::from_micros(9);
        let took = now() - start;
        assert!(took <= 24 * HOUR + tick, "{took:?}");
        assert!(poll_with(&mut never, &Arc::default()).is_pending());
    });
}

#[test]
fn a_clock_that_goes_on_takes_time_again() {
    paused(async {
        let start = now();
        sleep(HOUR).await;
        let stood = now();
        assert_eq!(stood - start, HOUR);
        resume();
        let resumed = Instant::now();
        assert!(now() >= stood);
        sleep(2 * MS).await;
        assert!(resumed.elapsed() >= 2 * MS);
        assert!(now() >= stood + 2 * MS);
        pause();
        let stands = now();
        assert!(stands >= stood + 2 * MS);
        sleep(HOUR).await;
        assert_eq!(now(), stands + HOUR);
    });
}

#[test]
fn without_timers_it_waits_for_other_threads_like_any_runtime() {
    paused(async {
        let start = now();
        let (told, waits) = async_channel::bounded(1);
        let teller = thread::spawn(move || {
            for _ in 0..100 {
                thread::yield_now();
            }
            told.send_blocking(7).unwrap();
        });
        assert_eq!(waits.recv().await, Ok(7));
        assert_eq!(now(), start);
        teller.join().unwrap();
    });
}

#[test]
fn the_clocks_of_other_threads_stay_the_systems() {
    paused(async {
        sleep(1000 * HOUR).await;
        let other = thread::spawn(|| {
            assert!(now().elapsed() < HOUR, "no runtime");
            run(async {
                let (start, system) = (now(), Instant::now());
                sleep(2 * MS).await;
                assert!(system.elapsed() >= 2 * MS && start - system < HOUR);
                pause();
            });
        });
        other.join().unwrap();
    });
    assert!(now().elapsed() < HOUR);
}

#[test]
fn a_runtime_ends_by_its_own_clock() {
    let runtime = Runtime::builder().start_paused(true).build().unwrap();
    runtime.block_on(async {
        for seconds in 1..4 {
            spawn(sleep(seconds * 1000 * MS)).detach();
        }
    });
    assert_eq!(runtime.shutdown(2500 * MS).unwrap(), 1);
}

#[test]
fn what_cannot_be_paused_or_moved_says_so() {
    let outside = "no runtime runs on this thread; call it inside Runtime::block_on";
    assert_eq!(panic_of(pause), format!("time::pause: {outside}"));
    assert_eq!(panic_of(resume), format!("time::resume: {outside}"));
    let twice = panic_of(|| paused(async { pause() }));
    assert_eq!(twice, "time::pause: the clock is paused already");
    let running = panic_of(|| run(async { resume() }));
    assert_eq!(running, "time::resume: the clock is not paused");
    let running = panic_of(|| run(advance(MS)));
    assert_eq!(running, "time::advance: the clock is not paused; pause it first");
    let far = panic_of(|| paused(advance(Duration::MAX)));
    assert!(far.starts_with("advancing a clock beyond its end"), "{far}");

    let two = || Runtime::builder().workers(NonZeroUsize::new(2).unwrap());
    let several = panic_of(|| two().build().unwrap().block_on(async { pause() }));
    assert!(several.contains("the runtime has 2 engines"), "{several}");
    let refused = two().start_paused(true).build().unwrap_err();
    assert!(matches!(refused, Error::PausedEngines { engines: 2 }));
    assert!(refused.to_string().contains("leave out Builder::start_paused or Builder::workers"));
    assert!(two().start_paused(false).build().is_ok());
}

#[superpoll_rt::test(start_paused = true)]
async fn the_attribute_has_the_option() {
    let start = now();
    sleep(HOUR).await;
    assert_eq!(now() - start, HOUR);
}
