//! Tasks that are joined as they end.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::stream::FuturesUnordered;

use crate::task::{JoinError, JoinHandle, spawn};

/// A set of tasks whose results come in the order in which the tasks end. Dropping the set aborts
/// the tasks that are left.
///
/// ```
/// use superpoll_rt::{JoinSet, Runtime};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let sum = Runtime::new()?.block_on(async {
///     let mut tasks = JoinSet::new();
///     for number in 1..=4 {
///         tasks.spawn(async move { number * 10 });
///     }
///     let mut sum = 0;
///     while let Some(result) = tasks.join_next().await {
///         sum += result?;
///     }
///     Ok::<_, superpoll_rt::JoinError>(sum)
/// })?;
/// assert_eq!(sum, 100);
/// # Ok(())
/// # }
/// ```
pub struct JoinSet<T>(FuturesUnordered<JoinHandle<T>>);

impl<T> JoinSet<T> {
    /// Makes an empty set.
    pub fn new() -> JoinSet<T> {
        JoinSet(FuturesUnordered::new())
    }

    /// Spawns a task on the engine of this thread, and adds it.
    ///
    /// # Panics
    ///
    /// If no runtime runs on this thread.
    pub fn spawn(&mut self, future: impl Future<Output = T> + 'static)
    where
        T: 'static,
    {
        self.add(spawn(future));
    }

    /// Adds a task, for example of [`Handle::spawn`](crate::Handle::spawn).
    pub fn add(&mut self, task: JoinHandle<T>) {
        self.0.push(task);
    }

    /// Waits for the next task that ends, and takes it out; `None` if the set is empty.
    ///
    /// Cancel safe: a task that has ended stays in the set until its result is returned.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|cx| self.poll_join_next(cx)).await
    }

    /// Like [`join_next`](JoinSet::join_next), for futures written by hand.
    pub fn poll_join_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        Pin::new(&mut self.0).poll_next(cx)
    }

    /// Returns the number of tasks whose results were not returned yet.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Aborts all tasks; their results are [`JoinError::Cancelled`].
    pub fn abort_all(&mut self) {
        self.0.iter_mut().for_each(JoinHandle::abort);
    }

    /// Empties the set and lets its tasks run on.
    pub fn detach_all(&mut self) {
        // A handle detaches its task when it is dropped.
        drop(std::mem::take(&mut self.0));
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> JoinSet<T> {
        JoinSet::new()
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.abort_all();
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.len()).finish()
    }
}
