//! The number of operations that a task may complete before it has to let other tasks run.

use std::task::{Context, Poll};

use crate::engine::{self, Engine};

/// Whether the running task may complete another operation before it has to let others run.
///
/// If not, the next operation of the runtime is pending although it may be ready, and wakes the
/// task at once. Only a caller that draws a conclusion from an operation that is *not* ready needs
/// to know. It is true outside of a runtime.
#[must_use]
pub fn has_budget_remaining() -> bool {
    engine::with(Engine::has_budget).unwrap_or(true)
}

/// Lets other tasks run first, if this one has done enough.
pub(crate) fn poll_budget(cx: &mut Context<'_>) -> Poll<()> {
    if engine::with(Engine::spend_budget) == Some(false) {
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    Poll::Ready(())
}
