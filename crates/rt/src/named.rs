//! Names of tasks, for `tracing`.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::trace::{self, InSpan};

/// Gives a future a name for `tracing`: it runs in a span `task` whose field `name` is this name,
/// and all events from within are in that span, even that of its panic. It works with every
/// function that spawns. Without the feature `tracing` it does nothing and costs nothing.
///
/// ```
/// # superpoll_rt::Runtime::new()?.block_on(async {
/// superpoll_rt::spawn(superpoll_rt::named("cleaner", async { /* ... */ })).detach();
/// # });
/// # Ok::<(), superpoll_rt::Error>(())
/// ```
pub fn named<F: Future>(name: &str, future: F) -> Named<F> {
    Named { future: trace::in_span(name, future) }
}

pin_project! {
    /// A future with a name; see [`named`].
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is awaited or spawned"]
    pub struct Named<F> {
        #[pin]
        future: InSpan<F>,
    }
}

impl<F: Future> Future for Named<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let future = self.project().future;
        let _panic = trace::name_panic(&future);
        future.poll(cx)
    }
}
