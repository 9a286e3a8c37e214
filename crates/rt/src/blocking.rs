//! Calls that block, on threads of their own.
//!
//! The threads are the `blocking` crate's. The whole process has one pool, which grows with the
//! queue up to 500 threads (`BLOCKING_MAX_THREADS` in the environment, 1 to 10,000), and whose idle
//! threads end after half a second. The queue has no limit. The pool belongs to no runtime: a call
//! that is running when a runtime ends runs on.
//!
//! Files belong here, as the kernel has no readiness for them. A call that meets a full disk
//! returns that error as its result, as on any thread.

use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::task::{JoinError, TaskPanic};

/// The result of a call on the pool, to be awaited on any thread.
///
/// Dropping it cancels the call if no thread has begun it. A call that has begun cannot be stopped,
/// and its result is dropped. [`detach`](Blocking::detach) lets it run in any case.
///
/// Cancel safe as long as it is kept and awaited again.
#[must_use = "dropping it cancels a call that has not begun; call `detach` to let it run anyway"]
pub struct Blocking<T>(::blocking::Task<Result<T, JoinError>>);

impl<T> Blocking<T> {
    /// Lets the call run although no task waits for it.
    pub fn detach(self) {
        self.0.detach();
    }
}

impl<T> Future for Blocking<T> {
    type Output = Result<T, JoinError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<T> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocking").finish_non_exhaustive()
    }
}

impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> io::Error {
        io::Error::other(error.to_string())
    }
}

/// Calls a function that blocks on a thread of the pool. The call is queued at once, not when it is
/// first awaited.
///
/// The result is [`JoinError::Panicked`] if the function panics; the pool's thread survives that.
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
    Blocking(::blocking::unblock(move || {
        catch_unwind(AssertUnwindSafe(f))
            .map_err(|payload| JoinError::Panicked(TaskPanic::new(payload)))
    }))
}
