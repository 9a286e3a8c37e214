//! A future with a time limit.

use std::error::Error;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;

use super::sleep::{Sleep, sleep, sleep_until};

/// Awaits a future, but for no longer than a duration, counted from this call. The future is always
/// polled first: if it is ready and the time is over, its result counts.
///
/// At the end of the time the future is no longer polled. It is dropped with the [`Timeout`],
/// unless it is lent as `&mut` or taken out by [`Timeout::into_inner`].
///
/// Cancel safety: the timer has nothing to lose. The effects of dropping the future before its end,
/// also because the time is over, depend on the future.
///
/// # Panics
///
/// Awaiting it panics where no runtime runs, if the future is not ready.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use superpoll_rt::time::timeout;
///
/// let runtime = superpoll_rt::Runtime::new()?;
/// runtime.block_on(async {
///     let never = std::future::pending::<()>();
///     assert!(timeout(Duration::from_millis(1), never).await.is_err());
///     assert_eq!(timeout(Duration::ZERO, async { 7 }).await, Ok(7));
/// });
/// # Ok::<(), superpoll_rt::Error>(())
/// ```
#[inline]
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout { future: future.into_future(), sleep: sleep(duration) }
}

/// Like [`timeout`], but until a point in time.
///
/// # Panics
///
/// Panics like [`timeout`].
#[inline]
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout { future: future.into_future(), sleep: sleep_until(deadline) }
}

pin_project! {
    /// The future of [`timeout`] and [`timeout_at`].
    #[derive(Debug)]
    #[must_use = "a timeout does nothing unless it is awaited"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        sleep: Sleep,
    }
}

impl<F> Timeout<F> {
    /// Returns the future.
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// Returns the future, to change it.
    pub fn get_mut(&mut self) -> &mut F {
        &mut self.future
    }

    /// Takes the future out.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        // The limit must hold for a future that spends the task's whole budget each time.
        this.sleep.poll_end(cx, false).map(|()| Err(Elapsed(())))
    }
}

/// The time limit was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed(());

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time limit was reached")
    }
}

impl Error for Elapsed {}

impl From<Elapsed> for io::Error {
    fn from(elapsed: Elapsed) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, elapsed)
    }
}
