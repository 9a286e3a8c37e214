//! Wakers are foreign code. Whatever a waker does when it is cloned, called or dropped, the engine
//! goes on and no other waiter loses an event, a timer or a message. Runtimes end in unusual
//! places.

use std::cell::RefCell;
use std::future::Future;
use std::io::Write;
use std::os::unix::net::UnixStream as Pair;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::future::{pending, poll_fn, poll_once};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::time::{sleep, timeout};
use superpoll_rt::{
    AsyncFd, BackendKind, Handle, JoinError, Runtime, Stats, pipe, spawn, yield_now,
};
use sys::{Hooks, Moment};

/// A waker that does as it is told at its next clone, call or end.
mod sys {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};
    use std::task::{RawWaker, RawWakerVTable, Waker};

    /// The moments at which a waker acts.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum Moment {
        Clone,
        Wake,
        Drop,
    }

    type Action = (Moment, Box<dyn FnOnce() + Send>);

    #[derive(Default)]
    pub(crate) struct Hooks {
        action: Mutex<Option<Action>>,
        pub acted: AtomicUsize,
    }

    impl Hooks {
        /// Makes the waker run this action the next time that the moment comes, once.
        pub(crate) fn at(&self, moment: Moment, action: impl FnOnce() + Send + 'static) {
            *self.action.lock().unwrap() = Some((moment, Box::new(action)));
        }

        fn reach(&self, moment: Moment) {
            let action = self.action.lock().unwrap().take_if(|(at, _)| *at == moment);
            if let Some((_, action)) = action {
                self.acted.fetch_add(1, Ordering::Relaxed);
                action();
            }
        }
    }

    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop);

    fn raw(hooks: Arc<Hooks>) -> RawWaker {
        RawWaker::new(Arc::into_raw(hooks).cast(), &TABLE)
    }

    unsafe fn clone(data: *const ()) -> RawWaker {
        // SAFETY: the data of all wakers with this table come from `raw`; the one that is cloned
        // stays.
        let hooks = unsafe {
            Arc::increment_strong_count(data.cast::<Hooks>());
            Arc::from_raw(data.cast::<Hooks>())
        };
        hooks.reach(Moment::Clone);
        raw(hooks)
    }

    unsafe fn wake(data: *const ()) {
        // SAFETY: as in `clone`; the waker is consumed.
        let hooks = unsafe { Arc::from_raw(data.cast::<Hooks>()) };
        hooks.reach(Moment::Wake);
        hooks.reach(Moment::Drop);
    }

    unsafe fn wake_by_ref(data: *const ()) {
        // SAFETY: as in `clone`; the waker that is lent outlives the call.
        unsafe { &*data.cast::<Hooks>() }.reach(Moment::Wake);
    }

    unsafe fn drop(data: *const ()) {
        // SAFETY: as in `clone`; the waker is consumed.
        let hooks = unsafe { Arc::from_raw(data.cast::<Hooks>()) };
        hooks.reach(Moment::Drop);
    }

    pub(crate) fn waker(hooks: &Arc<Hooks>) -> Waker {
        // SAFETY: the functions of the table keep the contract of `RawWaker` with counted
        // references.
        unsafe { Waker::from_raw(raw(hooks.clone())) }
    }
}

const LONG: Duration = Duration::from_secs(20);

fn each(test: impl Fn(&Runtime)) {
    for kind in BackendKind::available() {
        eprintln!("back-end {kind}");
        test(&Runtime::builder().backend(kind).build().unwrap());
    }
}

/// A number that several threads increment.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn add(&self, more: usize) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns a descriptor that is known to have no bytes to read.
fn drained() -> (AsyncFd<Pair>, Pair) {
    let (one, other) = Pair::pair().unwrap();
    let fd = AsyncFd::new(one).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    if let Poll::Ready(Ok(guard)) = pin!(fd.readable()).poll(&mut cx) {
        guard.clear();
    }
    (fd, other)
}

/// Uses the engine in each way that borrows something of it.
fn use_the_engine() {
    let mut cx = Context::from_waker(Waker::noop());
    spawn(async {}).detach();
    Stats::current().unwrap();
    Handle::current().unwrap().call_on(0, || ()).unwrap();
    // Waits that begin and are given up, of a descriptor and of a timer.
    let (fd, other) = drained();
    assert!(pin!(fd.readable()).poll(&mut cx).is_pending());
    let mut timer = sleep(LONG);
    assert!(pin!(&mut timer).poll(&mut cx).is_pending());
    timer.reset(Instant::now() + LONG / 2);
    drop((timer, fd, other));
    // Two ends that wake each other.
    let (mut reader, mut writer) = pipe::pipe().unwrap();
    assert!(pin!(reader.read(&mut [0])).poll(&mut cx).is_pending());
    assert!(pin!(writer.write(b"x")).poll(&mut cx).is_ready());
    // Another runtime, which may not run here, but may end here.
    let runtime = Runtime::builder().backend(BackendKind::Poll).build().unwrap();
    assert!(runtime.try_block_on(async {}).is_err());
    drop(runtime);
}

type Waiting = Pin<Box<dyn Future<Output = ()>>>;

const KINDS: [&str; 5] = ["descriptor", "stream", "timer", "pipe", "task"];

/// Returns a future that waits, and a function that ends the wait.
fn waiting(kind: &str) -> (Waiting, Box<dyn FnOnce()>) {
    let ends = |mut other: Pair| Box::new(move || other.write_all(b"x").unwrap());
    let stream = || {
        let (one, other) = Pair::pair().unwrap();
        (UnixStream::from_std(one).unwrap(), other)
    };
    match kind {
        "descriptor" => {
            let (fd, other) = drained();
            (Box::pin(async move { fd.readable().await.unwrap().clear() }), ends(other))
        }
        "stream" => {
            let (mut stream, other) = stream();
            let read = async move { assert_eq!(stream.read(&mut [0]).await.unwrap(), 1) };
            (Box::pin(read), ends(other))
        }
        "pipe" => {
            let (mut reader, mut writer) = pipe::pipe().unwrap();
            let read = async move { assert_eq!(reader.read(&mut [0]).await.unwrap(), 1) };
            let end = move || {
                let mut cx = Context::from_waker(Waker::noop());
                assert!(pin!(writer.write(b"x")).poll(&mut cx).is_ready());
            };
            (Box::pin(read), Box::new(end))
        }
        "task" => {
            let (mut stream, other) = stream();
            let task = spawn(async move { stream.read(&mut [0]).await.unwrap() });
            (Box::pin(async move { assert_eq!(task.await.unwrap(), 1) }), ends(other))
        }
        _ => {
            let timer = Rc::new(RefCell::new(sleep(LONG)));
            // The timer ends with the future alone.
            let weak = Rc::downgrade(&timer);
            let fires = poll_fn(move |cx| pin!(&mut *timer.borrow_mut()).poll(cx));
            let end = move || {
                let soon = Instant::now() + Duration::from_millis(1);
                weak.upgrade().unwrap().borrow_mut().reset(soon);
            };
            (Box::pin(fires), Box::new(end))
        }
    }
}

/// Lets the engine turn until something holds.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONG, "{what}");
        sleep(Duration::from_micros(100)).await;
    }
}

#[test]
fn a_waker_may_use_the_engine_when_it_is_cloned_called_or_dropped() {
    each(|runtime| {
        runtime.block_on(async {
            for kind in KINDS {
                for moment in [Moment::Clone, Moment::Wake, Moment::Drop] {
                    eprintln!("{kind}, {moment:?}");
                    let hooks = Arc::<Hooks>::default();
                    let acted = || hooks.acted.load(Ordering::Relaxed) == 1;
                    let (mut future, end) = waiting(kind);
                    if kind == "task" {
                        yield_now().await;
                    }
                    if moment == Moment::Clone {
                        hooks.at(moment, use_the_engine);
                    }
                    let waker = sys::waker(&hooks);
                    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                    // From here on the engine has the last clone.
                    drop(waker);
                    match moment {
                        Moment::Clone => assert!(acted()),
                        Moment::Wake => {
                            hooks.at(moment, use_the_engine);
                            end();
                            until("the waker is called", acted).await;
                            assert!(poll_once(future).await.is_some());
                            continue;
                        }
                        Moment::Drop => {
                            hooks.at(moment, use_the_engine);
                            // Another waker takes its place, or waits next to it.
                            assert!(poll_once(&mut future).await.is_none());
                            end();
                            future.await;
                            assert!(acted());
                            continue;
                        }
                    }
                    drop(future);
                }
            }
            assert_eq!(Stats::current().unwrap().panicked, 0);
        });
    });
}

#[test]
fn a_cancelled_wait_may_make_its_waker_use_the_engine() {
    each(|runtime| {
        runtime.block_on(async {
            for kind in KINDS {
                let hooks = Arc::<Hooks>::default();
                let (mut future, _end) = waiting(kind);
                let waker = sys::waker(&hooks);
                assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                drop(waker);
                hooks.at(Moment::Drop, use_the_engine);
                drop(future);
                // A task keeps the waker of the task that joined it until it ends.
                until(kind, || kind == "task" || hooks.acted.load(Ordering::Relaxed) == 1).await;
            }
            assert_eq!(Stats::current().unwrap().panicked, 0);
        });
    });
}

#[test]
fn a_panicking_waker_costs_no_other_task_its_event() {
    const WAITING: usize = 9;
    each(|runtime| {
        runtime.block_on(async {
            // A task's waker that panics ends the process.
            for (kinds, kind) in KINDS[..4].iter().enumerate() {
                let called = Count::default();
                let mut futures: Vec<_> = (0..WAITING)
                    .map(|number| {
                        let (mut future, end) = waiting(kind);
                        let hooks = Arc::<Hooks>::default();
                        let called = called.clone();
                        hooks.at(Moment::Wake, move || {
                            called.add(1);
                            if number % 4 == 1 {
                                resume_unwind(Box::new("of a waker"));
                            }
                        });
                        let waker = sys::waker(&hooks);
                        let mut cx = Context::from_waker(&waker);
                        assert!(future.as_mut().poll(&mut cx).is_pending());
                        (future, Some(end))
                    })
                    .collect();
                for (_, end) in &mut futures {
                    end.take().unwrap()();
                }
                until(kind, || called.get() == WAITING).await;
                for (future, _) in futures {
                    future.await;
                }
                let panicked = Stats::current().unwrap().panicked;
                assert_eq!(panicked, 2 * (kinds as u64 + 1), "{kind}");
            }
        });
    });
}

#[test]
fn a_panicking_waker_costs_no_other_task_its_message() {
    each(|runtime| {
        let called = Count::default();
        let handle = runtime.handle();
        runtime.block_on(async {
            let hooks = Arc::<Hooks>::default();
            let waker = sys::waker(&hooks);
            let mut timer = Box::pin(sleep(LONG));
            assert!(timer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            drop(waker);
            hooks.at(Moment::Drop, || resume_unwind(Box::new("of a waker")));
            let theirs = called.clone();
            // The engine sees both messages at once, as it is blocked until they are sent.
            thread::spawn(move || {
                drop(timer);
                handle.call_on(0, move || theirs.add(1)).unwrap();
            })
            .join()
            .unwrap();
            until("the call", || called.get() == 1).await;
            assert_eq!(Stats::current().unwrap().panicked, 1);
        });
    });
}

#[test]
fn a_waiter_on_an_engine_that_ends_is_woken_and_goes_on_elsewhere() {
    for kind in BackendKind::available() {
        for what in ["descriptor", "stream", "timer", "operation"] {
            let first = Runtime::builder().backend(kind).build().unwrap();
            let hooks = Arc::<Hooks>::default();
            let woken = Count::default();
            let theirs = woken.clone();
            hooks.at(Moment::Wake, move || {
                theirs.add(1);
                // Nothing comes of it, but it does no harm.
                spawn(pending::<()>()).detach();
            });
            let (future, end) = first.block_on(async {
                let (mut future, end) = waiting(what);
                let waker = sys::waker(&hooks);
                assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                (future, end)
            });
            drop(first);
            assert_eq!(woken.get(), 1, "{kind} {what}");
            let second = Runtime::builder().backend(kind).build().unwrap();
            second.block_on(async {
                end();
                future.await;
            });
        }
    }
}

thread_local! {
    /// A runtime of the thread's own, which ends with it.
    static OWN: RefCell<Option<Runtime>> = const { RefCell::new(None) };
}

#[test]
fn a_runtime_in_a_thread_local_ends_with_its_thread() {
    struct Ends(mpsc::Sender<bool>);
    impl Drop for Ends {
        fn drop(&mut self) {
            // It is used while the thread's variables are destroyed.
            spawn(async {}).detach();
            self.0.send(Handle::current().is_ok()).unwrap();
        }
    }
    for kind in BackendKind::available() {
        let (sender, receiver) = mpsc::channel();
        let thread = thread::spawn(move || {
            OWN.with_borrow_mut(|own| {
                let runtime = own.insert(Runtime::builder().backend(kind).build().unwrap());
                runtime.block_on(async {
                    let ends = Ends(sender);
                    let (mut stream, other) = UnixStream::pair().unwrap();
                    spawn(async move {
                        let _kept = (ends, other);
                        let mut byte = [0];
                        timeout(LONG, stream.read(&mut byte)).await.unwrap_err();
                    })
                    .detach();
                    yield_now().await;
                    yield_now().await;
                });
            });
        });
        thread.join().unwrap();
        assert!(receiver.recv_timeout(LONG).unwrap(), "{kind}");
    }
}

/// Unparks a thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future without a runtime, for at most `limit`.
fn block_for<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (start, mut future) = (Instant::now(), pin!(future));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        thread::park_timeout(limit.checked_sub(start.elapsed())?);
    }
}

/// Counts that it was dropped.
struct Counted(Count);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.add(1);
    }
}

/// More rounds with `SUPERPOLL_ROUNDS`; the order of all steps is checked by the model in
/// `inbox.rs`.
#[test]
fn work_that_races_with_the_end_of_a_runtime_is_done_or_refused() {
    const SPAWNED: usize = 30;
    let rounds = std::env::var("SUPERPOLL_ROUNDS").map_or(300, |rounds| rounds.parse().unwrap());
    for round in 0..rounds {
        let runtime = Runtime::builder().backend(BackendKind::Poll).build().unwrap();
        let (handle, start) = (runtime.handle(), Arc::new(Barrier::new(2)));
        let (dropped, called) = (Count::default(), Count::default());
        let (theirs, drops, calls) = (start.clone(), dropped.clone(), called.clone());
        let sender = thread::spawn(move || {
            theirs.wait();
            let mut accepted = 0;
            let tasks: Vec<_> = (0..SPAWNED)
                .map(|_| {
                    let calls = calls.clone();
                    let call = move || calls.add(1);
                    accepted += usize::from(handle.call_on(0, call).is_ok());
                    let counted = Counted(drops.clone());
                    handle.spawn(async move { drop(counted) })
                })
                .collect();
            for task in tasks {
                let joined = block_for(LONG, task).expect("the handle is resolved");
                assert!(matches!(joined, Err(JoinError::Cancelled)), "no engine runs it");
            }
            accepted
        });
        start.wait();
        for _ in 0..round % 30 * 40 {
            std::hint::spin_loop();
        }
        drop(runtime);
        let accepted = sender.join().unwrap();
        assert_eq!(dropped.get(), SPAWNED, "futures are dropped");
        assert_eq!(called.get(), accepted, "a call that was accepted is made");
    }
}
