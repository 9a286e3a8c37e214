//! Work that one operation does repeatedly.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, ready};

use superpoll::operation::{Gain, Operation, Progress};

use crate::operations::{UnderWay, is_to_be_repeated};
use crate::tie::Tie;

/// An operation that is started when a task first waits for it, and again after it had to stop,
/// either because no task took its results or because its engine has ended.
#[derive(Default)]
pub(super) struct Many {
    under_way: Option<UnderWay>,
    /// The kernel does not know this operation.
    refused: bool,
}

/// The next step.
pub(super) enum Next {
    Gain(Gain),
    Failed(io::Error),
    /// The work has to be done in another way here.
    ByReadiness,
}

impl Many {
    pub fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        tie: Tie<'_>,
        operation: impl Fn() -> Operation,
    ) -> Poll<Next> {
        loop {
            let Some(under_way) = &self.under_way else {
                if self.refused {
                    return Poll::Ready(Next::ByReadiness);
                }
                match UnderWay::start(tie, operation()) {
                    Ok(under_way) => self.under_way = Some(under_way),
                    Err(_) => return Poll::Ready(Next::ByReadiness),
                }
                continue;
            };
            let Some(Progress { last, outcome, .. }) = ready!(under_way.poll_next(cx)) else {
                self.under_way = None;
                continue;
            };
            if last {
                self.under_way = None;
            }
            match outcome {
                Ok(gain) => return Poll::Ready(Next::Gain(gain)),
                Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => {}
                // Before Linux 6.0 a receive completes only once.
                Err(error)
                    if error.raw_os_error() == Some(libc::EINVAL) || is_to_be_repeated(&error) =>
                {
                    self.refused = true;
                }
                Err(error) => return Poll::Ready(Next::Failed(error)),
            }
        }
    }

    /// Ends the operation and takes the results that no task has taken.
    pub fn take_rest(&mut self) -> VecDeque<Progress> {
        self.under_way.take().map(|under_way| under_way.take_rest()).unwrap_or_default()
    }
}
