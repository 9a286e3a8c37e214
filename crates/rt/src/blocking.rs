//! Calls that block, on threads of their own.
//!
//! The whole process has one pool of threads. It grows with the queue up to 500 threads
//! (`BLOCKING_MAX_THREADS` in the environment, 1 to 10,000), and idle threads but one end after
//! half a second. The queue has no limit. The pool belongs to no runtime: a call that is running
//! when a runtime ends runs on.
//!
//! Files belong here, as the kernel has no readiness for them. A call that meets a full disk
//! returns that error as its result, as on any thread.

mod hold;
mod pool;

use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use async_task::FallibleTask;

use crate::task::{JoinError, TaskPanic};
use pool::Call;

/// The result of a call on the pool, to be awaited on any thread.
///
/// Dropping it cancels the call if no thread has begun it. A call that has begun cannot be stopped,
/// and its result is dropped. [`detach`](Blocking::detach) lets it run in any case.
///
/// Cancel safe as long as it is kept and awaited again.
#[must_use = "dropping it cancels a call that has not begun; call `detach` to let it run anyway"]
pub struct Blocking<T>(State<T>);

enum State<T> {
    Queued(FallibleTask<Result<T, JoinError>>),
    /// The call will not be run; the error is taken by the first who awaits it.
    Refused(Option<io::Error>),
}

impl<T> Blocking<T> {
    /// Lets the call run although no task waits for it.
    pub fn detach(self) {
        if let State::Queued(task) = self.0 {
            task.detach();
        }
    }
}

impl<T> Future for Blocking<T> {
    type Output = Result<T, JoinError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Queued(task) => {
                let outcome = Pin::new(task).poll(cx);
                outcome.map(|outcome| outcome.unwrap_or(Err(JoinError::Cancelled)))
            }
            State::Refused(error) => {
                let error = error.take().map_or(JoinError::Cancelled, JoinError::NoThread);
                Poll::Ready(Err(error))
            }
        }
    }
}

impl<T> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocking").finish_non_exhaustive()
    }
}

impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> io::Error {
        io::Error::other(error)
    }
}

/// Calls a function that blocks on a thread of the pool. The call is queued at once, not when it is
/// first awaited.
///
/// The result is [`JoinError::Panicked`] if the function panics; the pool's thread survives that.
/// It is [`JoinError::NoThread`] if the pool has no thread and the system refuses one; the function
/// is dropped then. A pool that has threads, but is refused more, runs calls on those.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = superpoll_rt::Runtime::new()?;
/// let hosts = runtime.block_on(async {
///     superpoll_rt::blocking::unblock(|| std::fs::read_to_string("/etc/hosts")).await
/// })?;
/// # drop(hosts);
/// # Ok(())
/// # }
/// ```
pub fn unblock<T, F>(f: F) -> Blocking<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let call = async move {
        catch_unwind(AssertUnwindSafe(f))
            .map_err(|payload| JoinError::Panicked(TaskPanic::new(payload)))
    };
    // The future is never pending, so its task is queued once, and that is below.
    let (run, task) = async_task::spawn(call, |run| drop(pool::submit(Call { run, hold: None })));
    Blocking(match pool::submit(Call { run, hold: hold::of_this_clock() }) {
        Ok(()) => State::Queued(task.fallible()),
        Err(error) => State::Refused(Some(error)),
    })
}
