//! The workers of a supervisor, for those who ask them from other tasks and threads.

use std::sync::Arc;

use futures_channel::{mpsc, oneshot};
use superpoll_http::admin::{Operate, Operation, Outcome, Refusal};
use superpoll_http::exchange::LocalFuture;

use super::messages::Kind;

/// A question for the workers, from any thread.
pub(super) enum Question {
    Count(Kind, oneshot::Sender<Answers>),
    Operate(Operation, oneshot::Sender<Outcome>),
}

/// The answer of a worker.
#[derive(Debug)]
pub(crate) struct WorkerAnswer {
    /// Its place among the workers.
    pub slot: u32,
    /// The number of its process.
    pub process: u32,
    /// The answer; empty if the worker has just begun.
    pub bytes: Vec<u8>,
}

/// The answers of all workers to a question.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// In the order of their places.
    pub all: Vec<WorkerAnswer>,
    /// The processes of the workers that have not answered in time.
    pub missing: Vec<u32>,
}

/// The workers, for those who want their counters, and operations on them.
#[derive(Clone, Debug)]
pub(crate) struct Workers(pub(super) mpsc::UnboundedSender<Question>);

impl Workers {
    /// Returns the counters of all workers, and which of them have not answered in time.
    pub(crate) async fn ask(&self, kind: Kind) -> Answers {
        let (answer, answered) = oneshot::channel();
        // A supervisor that is about to end answers nothing.
        let _ = self.0.unbounded_send(Question::Count(kind, answer));
        answered.await.unwrap_or_default()
    }
}

impl Operate for Workers {
    fn operate(self: Arc<Workers>, operation: Operation) -> LocalFuture<Outcome> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            // As for counters.
            let _ = self.0.unbounded_send(Question::Operate(operation, answer));
            let ends = |_| Err(Refusal::unavailable("the server is about to end"));
            answered.await.unwrap_or_else(ends)
        })
    }
}
