//! Tasks, engines, and how they end.

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::answered;
use futures_lite::future::pending;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::time::sleep;
use superpoll_rt::{
    BackendKind, Error, Handle, JoinError, Runtime, next_turn, pipe, spawn, yield_now,
};

const LONG: Duration = Duration::from_secs(20);

fn workers(count: usize) -> Runtime {
    Runtime::builder().workers(NonZeroUsize::new(count).unwrap()).build().unwrap()
}

fn each(test: impl Fn(&Runtime)) {
    for kind in BackendKind::available() {
        eprintln!("back-end {kind}");
        let runtime = Runtime::builder().backend(kind).build().unwrap();
        assert_eq!(runtime.backend(), kind.name());
        test(&runtime);
    }
}

#[test]
fn tasks_run_in_the_order_of_their_spawning() {
    each(|runtime| {
        let order = Rc::new(RefCell::new(Vec::new()));
        let sum: u32 = runtime.block_on(async {
            let tasks: Vec<_> = (0..5u32)
                .map(|number| {
                    let order = order.clone();
                    spawn(async move {
                        order.borrow_mut().push(number);
                        yield_now().await;
                        order.borrow_mut().push(number + 10);
                        number
                    })
                })
                .collect();
            let mut sum = 0;
            for task in tasks {
                sum += task.await.unwrap();
            }
            sum
        });
        assert_eq!(sum, 10);
        assert_eq!(*order.borrow(), [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]);
    });
}

#[test]
fn the_next_turn_begins_behind_due_tasks_and_ready_descriptors() {
    each(|runtime| {
        runtime.block_on(async {
            let (reader, mut writer) =
                std::io::pipe().map(|(r, w)| (pipe::reader_from(r).unwrap(), w)).unwrap();
            let order = Rc::new(RefCell::new(Vec::new()));
            let note = |what| {
                let order = order.clone();
                move || order.borrow_mut().push(what)
            };
            let (read, yielded, next) = (note("read"), note("yielded"), note("next turn"));
            let reading = spawn(async move {
                let mut reader = reader;
                reader.read_exact(&mut [0]).await.unwrap();
                read();
            });
            yield_now().await;
            // The reader waits, and only the poller can tell it about the byte.
            std::io::Write::write_all(&mut writer, b"1").unwrap();
            let putting_off = spawn(async move {
                next_turn().await;
                next();
            });
            let yielding = spawn(async move {
                for _ in 0..3 {
                    yield_now().await;
                }
                yielded();
            });
            reading.await.unwrap();
            yielding.await.unwrap();
            putting_off.await.unwrap();
            assert_eq!(*order.borrow(), ["yielded", "read", "next turn"]);
        });
        // It does not keep an engine from ending.
        runtime.block_on(async {
            spawn(async {
                loop {
                    next_turn().await;
                }
            })
            .detach();
            next_turn().await;
        });
    });
}

#[test]
fn a_panic_reaches_only_the_caller_that_joins() {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let fine = spawn(async {
            for _ in 0..10 {
                yield_now().await;
            }
            7
        });
        let text = spawn(async {
            yield_now().await;
            panic!("number {}", 3)
        });
        let error: JoinError = text.await.unwrap_err();
        assert_eq!(error.panic_message(), Some("number 3"));
        assert_eq!(error.to_string(), "the task panicked: number 3");
        let payload = spawn(async { std::panic::panic_any(5u8) });
        let error = payload.await.unwrap_err();
        fn shareable(_: &(impl std::error::Error + Send + Sync + 'static)) {}
        shareable(&error);
        assert_eq!((error.panic_message(), error.to_string()), (None, "the task panicked".into()));
        let JoinError::Panicked(panic) = error else { panic!("{error}") };
        assert_eq!(panic.into_payload().downcast_ref::<u8>(), Some(&5));
        let detached = spawn(async { panic!("nobody listens") });
        drop(detached);
        assert_eq!(fine.await.unwrap(), 7);
        yield_now().await;
    });
    let stats = &runtime.stats()[0];
    assert_eq!((stats.panicked, stats.spawned, stats.tasks), (3, 4, 0));
}

/// Tells when it is dropped, and on which thread.
struct Told(mpsc::Sender<thread::ThreadId>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.send(thread::current().id()).unwrap();
    }
}

#[test]
fn an_aborted_task_is_dropped_and_has_no_result() {
    let runtime = Runtime::new().unwrap();
    let (sender, dropped) = mpsc::channel();
    runtime.block_on(async {
        let told = Told(sender);
        let mut task = spawn(async move {
            let _told = told;
            pending::<()>().await
        });
        yield_now().await;
        assert!(!task.is_finished());
        task.abort();
        yield_now().await;
        assert_eq!(dropped.try_recv(), Ok(thread::current().id()));
        assert!(matches!((&mut task).await, Err(JoinError::Cancelled)) && task.is_finished());
        let mut ended = spawn(async { 1 });
        yield_now().await;
        assert!(ended.is_finished());
        ended.abort();
        assert!(ended.await.is_err());
    });
}

#[test]
fn a_dropped_handle_lets_the_task_run_on() {
    let runtime = Runtime::new().unwrap();
    let done = Rc::new(Cell::new(false));
    let theirs = done.clone();
    runtime.block_on(async {
        spawn(async move {
            yield_now().await;
            theirs.set(true);
        })
        .detach();
    });
    assert!(!done.get(), "block_on returns with its own future");
    runtime.block_on(async {
        while !done.get() {
            yield_now().await;
        }
    });
}

#[test]
fn blocking_inside_a_runtime_is_refused() {
    let runtime = Runtime::new().unwrap();
    let other = Runtime::new().unwrap();
    runtime.block_on(async {
        for inner in [&runtime, &other] {
            let error = inner.try_block_on(async {}).unwrap_err();
            assert!(matches!(error, Error::Nested) && error.to_string().contains("await"));
        }
    });
    runtime.block_on(async {});
}

#[test]
fn a_runtime_is_built_and_dropped_in_a_task_of_another() {
    each(|outer| {
        for count in [1, 3] {
            let (sender, dropped) = mpsc::channel();
            let result = outer.block_on(async {
                let task = spawn(async move {
                    let inner = workers(count);
                    assert!(matches!(inner.try_block_on(async {}), Err(Error::Nested)));
                    let handle = inner.handle();
                    for engine in 0..count {
                        let told = Told(sender.clone());
                        let task = handle.spawn_on(engine, async move {
                            let _told = told;
                            pending::<()>().await
                        });
                        task.unwrap().detach();
                    }
                    drop(sender);
                    // An engine with a thread of its own needs no `block_on`.
                    if count > 1 {
                        let task = handle.spawn_on(1, async { 7 }).unwrap();
                        assert_eq!(task.await.unwrap(), 7);
                    }
                    drop(inner);
                    // The engine of this task goes on.
                    sleep(Duration::from_millis(1)).await;
                    spawn(async { Handle::current().unwrap().engines() }).await.unwrap()
                });
                task.await.unwrap()
            });
            assert_eq!(result, 1);
            assert_eq!(dropped.iter().count(), count);
        }
    });
}

#[test]
fn a_runtime_dropped_with_live_tasks_drops_them_on_their_threads() {
    for count in [1, 3] {
        let (sender, dropped) = mpsc::channel();
        let runtime = workers(count);
        let handle = runtime.handle();
        assert_eq!(handle.engines(), count);
        let mut tasks = Vec::new();
        for engine in 0..count {
            let told = Told(sender.clone());
            let task = handle.spawn_on(engine, async move {
                let _told = told;
                pending::<()>().await
            });
            tasks.push(task.unwrap());
        }
        // A task that never ran, and a task that is about to run.
        let never = Told(sender.clone());
        tasks.push(handle.spawn(async move { drop(never) }));
        drop(sender);
        drop(runtime);
        let threads: Vec<_> = dropped.iter().collect();
        assert_eq!(threads.len(), count + 1);
        let here = threads.iter().filter(|&&thread| thread == thread::current().id()).count();
        assert!(here >= 1, "engine 0 is this thread's");
        let mut distinct = threads.clone();
        distinct.sort_by_key(|id| format!("{id:?}"));
        distinct.dedup();
        assert_eq!(distinct.len(), count);
        let rest = Runtime::new().unwrap();
        rest.block_on(async {
            for task in tasks {
                match task.await {
                    Ok(()) | Err(JoinError::Cancelled) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            let late = handle.spawn(async { 1 });
            assert!(matches!(late.await, Err(JoinError::Cancelled)), "the runtime has ended");
            assert!(matches!(handle.call_on(0, || ()), Err(Error::Ended)));
        });
    }
}

#[test]
fn a_destructor_that_panics_or_spawns_does_not_keep_other_tasks_alive() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("in a destructor");
        }
    }
    struct Spawns(mpsc::Sender<thread::ThreadId>);
    impl Drop for Spawns {
        fn drop(&mut self) {
            let told = Told(self.0.clone());
            spawn(async move {
                let _told = told;
                pending::<()>().await
            })
            .detach();
        }
    }
    let (sender, dropped) = mpsc::channel();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let spawns = Spawns(sender.clone());
        let told = Told(sender);
        spawn(async move {
            let _panics = Panics;
            pending::<()>().await
        })
        .detach();
        spawn(async move {
            let _spawns = spawns;
            pending::<()>().await
        })
        .detach();
        spawn(async move {
            let _told = told;
            pending::<()>().await
        })
        .detach();
        yield_now().await;
    });
    drop(runtime);
    assert_eq!(dropped.iter().count(), 2);
}

#[test]
fn shutdown_lets_tasks_finish_and_ends_those_that_do_not() {
    let runtime = workers(2);
    let done = Arc::new(AtomicUsize::new(0));
    let handle = runtime.handle();
    for engine in [0, 1, 0, 1] {
        let done = done.clone();
        drop(handle.spawn_on(engine, async move {
            for _ in 0..100 {
                yield_now().await;
            }
            done.fetch_add(1, Ordering::Relaxed);
        }));
    }
    assert_eq!(runtime.shutdown(LONG).unwrap(), 0);
    assert_eq!(done.load(Ordering::Relaxed), 4);

    let runtime = workers(2);
    drop(runtime.handle().spawn_on(1, pending::<()>()));
    drop(runtime.handle().spawn_on(0, pending::<()>()));
    assert_eq!(runtime.shutdown(Duration::ZERO).unwrap(), 2);
}

#[test]
fn engines_are_numbered_and_refused_beyond() {
    let runtime = workers(2);
    let handle = runtime.handle();
    assert!(matches!(Handle::current(), Err(Error::NoRuntime)));
    assert_eq!(handle.engine(), None);
    runtime.block_on(async {
        assert_eq!(Handle::current().unwrap().engine(), Some(0));
        let other = handle.spawn_on(1, async { Handle::current().unwrap().engine() });
        assert_eq!(other.unwrap().await.unwrap(), Some(1));
        let error = handle.spawn_on(2, async {}).unwrap_err();
        assert_eq!(error.to_string(), "there is no engine 2: the runtime has 2, numbered from 0");
    });
}

#[test]
fn new_tasks_go_to_the_engine_that_has_the_fewest() {
    let runtime = workers(3);
    let handle = runtime.handle();
    let held: Vec<_> = (0..30).map(|_| handle.spawn(pending::<()>())).collect();
    runtime.block_on(async {
        // A task that ends everywhere after the other tasks have begun.
        for engine in 0..3 {
            handle.spawn_on(engine, async {}).unwrap().await.unwrap();
        }
    });
    let stats = answered::stats(&runtime, 3);
    assert_eq!(stats.iter().map(|stats| stats.tasks).collect::<Vec<_>>(), [10, 10, 10]);
    drop(held);
}

#[test]
fn a_task_is_woken_and_joined_across_threads() {
    let runtime = workers(2);
    let handle = runtime.handle();
    let total = runtime.block_on(async {
        let mut total = 0;
        for round in 0..200u64 {
            total += handle.spawn_on(1, async move { round }).unwrap().await.unwrap();
        }
        total
    });
    assert_eq!(total, 199 * 200 / 2);
}

#[test]
fn a_future_that_is_not_send_is_made_on_its_engine() {
    let runtime = workers(2);
    let handle = runtime.handle();
    let (sender, answer) = mpsc::channel();
    handle
        .call_on(1, move || {
            spawn(async move {
                let own = Rc::new(5);
                yield_now().await;
                sender.send(*own).unwrap();
            })
            .detach();
        })
        .unwrap();
    assert_eq!(answer.recv_timeout(LONG), Ok(5));
}

#[test]
fn a_call_that_panics_harms_no_task() {
    let runtime = workers(2);
    let handle = runtime.handle();
    handle.call_on(1, || panic!("in a call")).unwrap();
    let (sender, answer) = mpsc::channel();
    handle.call_on(1, move || sender.send(7).unwrap()).unwrap();
    assert_eq!(answer.recv_timeout(LONG), Ok(7));
    assert_eq!(answered::stats(&runtime, 2)[1].panicked, 1);
}

#[test]
fn a_busy_task_starves_no_other_task() {
    each(|runtime| {
        runtime.block_on(async {
            let (mut reader, mut writer) = pipe::pipe().unwrap();
            let (mut other_reader, mut other_writer) = pipe::pipe().unwrap();
            let rounds = Rc::new(Cell::new(0u32));
            let counted = rounds.clone();
            // Its own operations never block, so it would never wait.
            let mut busy = spawn(async move {
                loop {
                    writer.write_all(b"x").await.unwrap();
                    reader.read_exact(&mut [0]).await.unwrap();
                    counted.set(counted.get() + 1);
                }
            });
            let late = spawn(async move {
                let mut byte = [0];
                other_reader.read_exact(&mut byte).await.unwrap();
                byte[0]
            });
            yield_now().await;
            yield_now().await;
            let before = rounds.get();
            other_writer.write_all(b"y").await.unwrap();
            assert_eq!(late.await.unwrap(), b'y');
            let during = rounds.get() - before;
            assert!(during <= 1000, "{during} rounds while another task was ready");
            busy.abort();
        });
        assert!(runtime.stats()[0].budget_spent > 0);
    });
}

#[test]
fn a_task_that_never_gives_way_shows_in_the_longest_turn() {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        yield_now().await;
        thread::sleep(Duration::from_millis(50));
        yield_now().await;
    });
    let longest = runtime.stats()[0].longest_turn;
    assert!(longest >= Duration::from_millis(40), "{longest:?}");
}

#[test]
fn the_root_future_is_polled_only_when_it_was_woken() {
    let runtime = Runtime::new().unwrap();
    let polls = Cell::new(0);
    let (sender, receiver) = mpsc::channel::<std::task::Waker>();
    let waking = thread::spawn(move || {
        let waker = receiver.recv().unwrap();
        thread::sleep(Duration::from_millis(5));
        waker.wake();
    });
    runtime.block_on(std::future::poll_fn(|cx| {
        polls.set(polls.get() + 1);
        if polls.get() == 1 {
            sender.send(cx.waker().clone()).unwrap();
            spawn(async {
                for _ in 0..10 {
                    yield_now().await;
                }
            })
            .detach();
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(())
    }));
    assert_eq!(polls.get(), 2);
    waking.join().unwrap();
}

#[test]
fn spinning_finds_early_events_and_stops_when_there_are_none() {
    let runtime = Runtime::builder().spin(Duration::from_millis(2)).build().unwrap();
    runtime.block_on(async {
        let (mut reader, writer) =
            std::io::pipe().map(|(r, w)| (pipe::reader_from(r).unwrap(), w)).unwrap();
        let (ask, asked) = mpsc::channel();
        let answering = thread::spawn(move || {
            use std::io::Write;
            let mut writer = writer;
            while asked.recv().is_ok() {
                writer.write_all(b"x").unwrap();
            }
        });
        for _ in 0..200 {
            ask.send(()).unwrap();
            reader.read_exact(&mut [0]).await.unwrap();
        }
        drop(ask);
        answering.join().unwrap();
        assert_eq!(reader.read(&mut [0]).await.unwrap(), 0);
    });
    let stats = &runtime.stats()[0];
    assert!(stats.spin_polls >= stats.spin_hits, "{stats:?}");
}

#[test]
fn an_engine_that_is_stuck_stops_no_other() {
    let runtime = workers(3);
    let handle = runtime.handle();
    let (release, released) = mpsc::channel::<()>();
    let (sender, stuck) = mpsc::channel();
    let never_yields = async move {
        // From the first wait on, turns are measured.
        sleep(Duration::from_millis(1)).await;
        sender.send(()).unwrap();
        released.recv().unwrap();
    };
    let task = handle.spawn_on(1, never_yields).unwrap();
    stuck.recv_timeout(LONG).unwrap();
    runtime.block_on(async {
        for engine in [0, 2, 0, 2] {
            let other = async {
                sleep(Duration::from_millis(1)).await;
                yield_now().await;
            };
            handle.spawn_on(engine, other).unwrap().await.unwrap();
        }
        assert!(!task.is_finished());
    });
    // It is asked for its counters for a second, and left out.
    assert_eq!(answered::stats(&runtime, 2).len(), 2);
    release.send(()).unwrap();
    runtime.block_on(task).unwrap();
    let stats = answered::stats(&runtime, 3);
    assert_eq!(stats.len(), 3);
    assert!(stats[1].longest_turn >= Duration::from_millis(900), "{:?}", stats[1].longest_turn);
}

#[test]
fn a_panic_of_the_root_future_goes_up_and_the_tasks_go_on() {
    each(|runtime| {
        let rounds = Rc::new(Cell::new(0));
        let counted = rounds.clone();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            runtime.try_block_on(async {
                spawn(async move {
                    for _ in 0..1000 {
                        counted.set(counted.get() + 1);
                        yield_now().await;
                    }
                })
                .detach();
                yield_now().await;
                panic!("at the root")
            })
        }));
        let payload = outcome.map(|_: superpoll_rt::Result<()>| ()).unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"at the root"));
        assert!((1..1000).contains(&rounds.get()), "{rounds:?}");
        assert!(Handle::current().is_err(), "the thread has left the runtime");
        runtime.block_on(async {
            while rounds.get() < 1000 {
                yield_now().await;
            }
        });
    });
}
