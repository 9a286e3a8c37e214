//! Tasks: spawning, joining, giving way.
//!
//! A task lives on the engine it was spawned on and is run by no other thread, so its future need
//! not be `Send`. The task's memory, its state and its waker are those of the `async-task` crate. A
//! guard around the future catches a panic, which then concerns only the caller that joins. The
//! guard also removes the task from the engine's list when the future is dropped, however it ends.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use async_task::{FallibleTask, Runnable};
use pin_project_lite::pin_project;

use crate::counters::count;
use crate::engine;
use crate::error::Error;
use crate::remote::{Message, Remote};
use crate::trace;

/// The payload of a task that panicked, as `std::thread::Result` has it.
type Panic = Box<dyn Any + Send>;

/// The reason why a task has no result.
pub enum JoinError {
    /// It was aborted, or its engine ended before it did.
    Cancelled,
    /// It panicked.
    Panicked(TaskPanic),
    /// A call that [blocks](crate::blocking) was not run, because the system refused a thread for
    /// it.
    NoThread(io::Error),
}

/// The payload of a task that panicked.
pub struct TaskPanic {
    message: Option<String>,
    /// Never locked: a mutex makes it shareable between threads, as errors should be.
    payload: Mutex<Panic>,
}

impl TaskPanic {
    pub(crate) fn new(payload: Panic) -> TaskPanic {
        let text = payload.downcast_ref::<&'static str>().map(|text| (*text).to_owned());
        let message = text.or_else(|| payload.downcast_ref::<String>().cloned());
        TaskPanic { message, payload: Mutex::new(payload) }
    }

    /// Returns the text of the panic, if it has one.
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// Returns the payload, for example to continue with the panic
    /// ([`resume_unwind`](std::panic::resume_unwind)).
    pub fn into_payload(self) -> Box<dyn Any + Send> {
        self.payload.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JoinError {
    /// Returns the text of the panic, if it was one and has one.
    pub fn panic_message(&self) -> Option<&str> {
        match self {
            JoinError::Panicked(panic) => panic.message(),
            JoinError::Cancelled | JoinError::NoThread(_) => None,
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Cancelled => f.write_str("Cancelled"),
            JoinError::Panicked(_) => {
                f.debug_tuple("Panicked").field(&self.panic_message()).finish()
            }
            JoinError::NoThread(error) => f.debug_tuple("NoThread").field(error).finish(),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.panic_message()) {
            (JoinError::Cancelled, _) => f.write_str("the task was cancelled before it ended"),
            (JoinError::NoThread(error), _) => {
                write!(f, "no thread could be started for a call that blocks: {error}")
            }
            (_, Some(message)) => write!(f, "the task panicked: {message}"),
            (_, None) => f.write_str("the task panicked"),
        }
    }
}

impl std::error::Error for JoinError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            JoinError::NoThread(error) => Some(error),
            JoinError::Cancelled | JoinError::Panicked(_) => None,
        }
    }
}

/// A task's result; await it on any thread. Dropping it lets the task run on.
///
/// Cancel safety: a future that awaits it may be dropped and awaited again, as long as the handle
/// is kept.
#[must_use = "dropping the handle detaches the task; call `detach` if that is intended"]
pub struct JoinHandle<T>(Option<FallibleTask<Result<T, Panic>>>);

impl<T> JoinHandle<T> {
    /// Ends the task as soon as its engine gets to it; awaiting it then gives
    /// [`JoinError::Cancelled`]. A task that has ended stays as it is, but its result is dropped.
    pub fn abort(&mut self) {
        self.0 = None;
    }

    /// Lets the task run on without a waiter, which dropping the handle does as well.
    ///
    /// ```
    /// # superpoll_rt::Runtime::new()?.block_on(async {
    /// superpoll_rt::spawn(async { println!("on my own") }).detach();
    /// # });
    /// # Ok::<(), superpoll_rt::Error>(())
    /// ```
    pub fn detach(self) {
        drop(self);
    }

    /// Returns whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.0.as_ref().is_none_or(FallibleTask::is_finished)
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.detach();
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(task) = &mut self.0 else { return Poll::Ready(Err(JoinError::Cancelled)) };
        Pin::new(task).poll(cx).map(|outcome| match outcome {
            None => Err(JoinError::Cancelled),
            Some(Err(payload)) => Err(JoinError::Panicked(TaskPanic::new(payload))),
            Some(Ok(result)) => Ok(result),
        })
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("is_finished", &self.is_finished()).finish()
    }
}

/// The task's place among those of its engine; dropped with the future, on the engine's thread.
struct Entry {
    remote: Arc<Remote>,
    /// Given when it first runs.
    number: Option<usize>,
}

impl Entry {
    fn new(remote: Arc<Remote>) -> Entry {
        remote.tasks.fetch_add(1, Ordering::Relaxed);
        Entry { remote, number: None }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.remote.tasks.fetch_sub(1, Ordering::Relaxed);
        if let Some(number) = self.number {
            engine::with(|engine| engine.remove_task(number));
        }
    }
}

pin_project! {
    struct Guarded<F> {
        #[pin]
        future: Option<F>,
        // Last, so that the task is taken off the list when its future is gone.
        entry: Entry,
    }

    impl<F> PinnedDrop for Guarded<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut future = this.project().future;
            // There is no caller to tell here, so a panic in a future's destructor is the future's
            // own affair; the other tasks are dropped all the same.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| future.set(None))) {
                // It may panic when it is dropped.
                std::mem::forget(payload);
            }
        }
    }
}

impl<F> Guarded<F> {
    fn new(future: F, remote: Arc<Remote>) -> Guarded<F> {
        Guarded { future: Some(future), entry: Entry::new(remote) }
    }
}

impl<F: Future> Future for Guarded<F> {
    type Output = Result<F::Output, Panic>;
    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if this.entry.number.is_none() {
            this.entry.number = engine::with(|engine| engine.add_task(cx.waker().clone()));
        }
        let polled = catch_unwind(AssertUnwindSafe(|| {
            // The future is there until it has its result, after which no code polls it.
            let future = this.future.as_mut().as_pin_mut()?;
            let polled = future.poll(cx);
            if polled.is_ready() {
                this.future.set(None);
            }
            Some(polled)
        }));
        match polled {
            Ok(Some(Poll::Ready(result))) => Poll::Ready(Ok(result)),
            Ok(_) => Poll::Pending,
            Err(payload) => {
                engine::with(|engine| count(&engine.counters.panicked));
                trace::task_panicked();
                Poll::Ready(Err(payload))
            }
        }
    }
}

/// Puts a task that was woken where it will run.
#[inline]
fn schedule(remote: &Arc<Remote>, runnable: Runnable) {
    let mut runnable = Some(runnable);
    engine::with(|engine| {
        if engine.remote.id == remote.id
            && let Some(runnable) = runnable.take()
        {
            engine.schedule(runnable);
        }
    });
    if let Some(runnable) = runnable {
        // An engine that has ended has no tasks left to run.
        let _ = remote.send(Message::Run(runnable));
    }
}

/// Spawns a future that may be sent to another thread, on any engine.
pub(crate) fn spawn_anywhere<F>(remote: &Arc<Remote>, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let guarded = Guarded::new(future, remote.clone());
    let remote = remote.clone();
    let (runnable, task) = async_task::spawn(guarded, move |runnable| schedule(&remote, runnable));
    runnable.schedule();
    JoinHandle(Some(task.fallible()))
}

/// Spawns a task on the engine of this thread, where it stays. It first runs in the engine's next
/// turn. While the runtime shuts down the task is cancelled at once.
///
/// # Panics
///
/// If no runtime runs on this thread; [`Handle::current`](crate::Handle::current) reports that
/// without a panic.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let Some(remote) = engine::with(|engine| engine.remote.clone()) else {
        panic!("superpoll_rt::spawn: {}", Error::NoRuntime)
    };
    let guarded = Guarded::new(future, remote.clone());
    let (runnable, task) =
        async_task::spawn_local(guarded, move |runnable| schedule(&remote, runnable));
    runnable.schedule();
    JoinHandle(Some(task.fallible()))
}

/// Lets the other tasks that are due, and the descriptors that are ready, have their turn.
///
/// Cancel safe: it holds nothing.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Lets this task continue in the next turn of the event loop: after all tasks that are due, and
/// after the poller has reported the descriptors that are ready, for which it does not block.
/// [`yield_now`] may come back in the same turn.
///
/// Cancel safe: it holds nothing.
///
/// ```
/// # superpoll_rt::Runtime::new()?.block_on(async {
/// superpoll_rt::next_turn().await;
/// # });
/// # Ok::<(), superpoll_rt::Error>(())
/// ```
pub async fn next_turn() {
    let mut put_off = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut put_off, true) {
            return Poll::Ready(());
        }
        // Cloned with nothing borrowed: cloning is foreign code.
        let waker = cx.waker().clone();
        if engine::with(|engine| engine.wake_next_turn(waker)).is_none() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
}
