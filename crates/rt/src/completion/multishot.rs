//! Work that one operation does repeatedly.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, ready};

use superpoll::operation::{Gain, Operation, Progress};

use crate::io_ref::IoRef;
use crate::operation_handle::{OperationHandle, should_retry};

/// An operation that is started when a task first waits for it, and again after it had to stop,
/// either because no task took its results or because its engine has ended.
#[derive(Default)]
pub(super) struct Multishot {
    handle: Option<OperationHandle>,
    /// The kernel does not know this operation.
    refused: bool,
}

/// The next step.
pub(super) enum Next {
    Gain(Gain),
    Failed(io::Error),
    /// The work must be done in another way here.
    ByReadiness,
}

impl Multishot {
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        io_ref: IoRef<'_>,
        operation: impl Fn() -> Operation,
    ) -> Poll<Next> {
        loop {
            let Some(handle) = &self.handle else {
                if self.refused {
                    return Poll::Ready(Next::ByReadiness);
                }
                match OperationHandle::start(io_ref, operation()) {
                    Ok(handle) => self.handle = Some(handle),
                    Err(_) => return Poll::Ready(Next::ByReadiness),
                }
                continue;
            };
            let Some(Progress { last, outcome, .. }) = ready!(handle.poll_next(cx)) else {
                self.handle = None;
                continue;
            };
            if last {
                self.handle = None;
            }
            match outcome {
                Ok(gain) => return Poll::Ready(Next::Gain(gain)),
                Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => {}
                // Before Linux 6.0 a receive completes only once.
                Err(error)
                    if error.raw_os_error() == Some(libc::EINVAL) || should_retry(&error) =>
                {
                    self.refused = true;
                }
                Err(error) => return Poll::Ready(Next::Failed(error)),
            }
        }
    }

    /// Ends the operation and takes the results that no task has taken.
    pub(super) fn cancel_and_take(&mut self) -> VecDeque<Progress> {
        self.handle.take().map(|handle| handle.cancel_and_take()).unwrap_or_default()
    }
}
