//! The workers of a supervisor, as the API asks them.

use futures_lite::future::BoxedLocal;
use superpoll_http::admin::Operate;

use super::messages::Question;

/// The answer of a worker.
#[derive(Debug)]
pub struct WorkerAnswer {
    /// Its place among the workers.
    pub slot: u32,
    /// The number of its process.
    pub process: u32,
    /// The answer; empty if the worker has just begun.
    pub bytes: Vec<u8>,
}

/// The answers of all workers to a question.
#[derive(Debug, Default)]
pub struct Answers {
    /// In the order of their places.
    pub all: Vec<WorkerAnswer>,
    /// The processes of the workers that have not answered in time.
    pub missing: Vec<u32>,
}

/// The workers of a supervisor, whose figures and operations are those of the whole server. See
/// [`Subject::of_workers`](crate::control::Subject::of_workers).
pub trait Workers: Operate {
    /// Asks all workers, in a task of an engine. If the future is dropped, the answers are lost.
    fn ask(&self, question: Question) -> BoxedLocal<Answers>;
}
