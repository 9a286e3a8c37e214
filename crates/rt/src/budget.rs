//! The number of operations that a task may complete before it has to let other tasks run.

use std::task::{Context, Poll};

use crate::engine::{self, Engine};

/// Lets other tasks run first, if this one has done enough.
pub(crate) fn poll_budget(cx: &mut Context<'_>) -> Poll<()> {
    if engine::with(Engine::spend_budget) == Some(false) {
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    Poll::Ready(())
}
