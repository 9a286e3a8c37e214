//! Questions of a supervisor to all workers at a time.

use std::sync::Arc;
use std::time::Duration;

use futures_channel::{mpsc, oneshot};
use superpoll_rt::time;

use super::messages::{Kind, ToWorker};
use super::supervisor::Supervisor;
use crate::admin::{Operate, Operation, Outcome, Refusal};
use crate::exchange::LocalFuture;

/// How long workers may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The most questions that a worker has not answered; it is asked no more until it answers.
/// Operators come on top, and viewers that ask each second leave room for them.
const UNANSWERED: u32 = 64;

/// Returns the same limit for an operation. Lists leave room for closing connections.
pub(super) fn most_unanswered(operation: &Operation) -> u32 {
    match operation {
        Operation::Close(_) => 2 * UNANSWERED,
        _ => UNANSWERED + UNANSWERED / 2,
    }
}

/// A question to all workers, and the answers until now.
pub(super) struct Asked {
    /// The connections of those that have not answered.
    missing: Vec<u64>,
    answers: Vec<WorkerAnswer>,
    waker: Option<oneshot::Sender<()>>,
}

impl Supervisor {
    /// Notes the answer of a worker, or that there will be none.
    pub(super) fn answered(&self, id: u64, member: u64, answer: Option<WorkerAnswer>) {
        let mut asked = self.asked.borrow_mut();
        let Some(question) = asked.get_mut(&id) else { return };
        let Some(index) = question.missing.iter().position(|other| *other == member) else {
            return;
        };
        question.missing.swap_remove(index);
        question.answers.extend(answer);
        if question.missing.is_empty()
            && let Some(waker) = question.waker.take()
        {
            // Who waits may have given up.
            let _ = waker.send(());
        }
    }

    /// Asks all workers for their counters.
    pub(super) async fn collect(&self, kind: Kind) -> Answers {
        self.collect_up_to(kind, UNANSWERED).await
    }

    /// Asks all workers that have fewer than `most` questions to answer.
    pub(super) async fn collect_up_to(&self, kind: Kind, most: u32) -> Answers {
        let id = self.next_id();
        let (waker, done) = oneshot::channel();
        let (mut missing, mut processes) = (Vec::new(), self.serving.borrow().clone());
        for (connection, member) in self.members.borrow().iter() {
            processes.push(member.process);
            let is_asked = member.unanswered.get() < most
                && member
                    .outgoing
                    .unbounded_send(ToWorker::Count { id, kind: kind.clone() })
                    .is_ok();
            if is_asked {
                member.unanswered.set(member.unanswered.get() + 1);
                missing.push(*connection);
            }
        }
        let mut all = Vec::new();
        if !missing.is_empty() {
            let question = Asked { missing, answers: Vec::new(), waker: Some(waker) };
            self.asked.borrow_mut().insert(id, question);
            let _ = time::timeout(PATIENCE, done).await;
            let asked = self.asked.borrow_mut().remove(&id);
            all = asked.map_or_else(Vec::new, |question| question.answers);
        }
        all.sort_by_key(|answer| answer.slot);
        let mut missing = processes;
        missing.sort_unstable();
        missing.dedup();
        missing.retain(|process| all.iter().all(|answer| answer.process != *process));
        // Those that have ended meanwhile have nothing.
        missing.retain(|process| self.is_known(*process));
        Answers { all, missing }
    }

    fn is_known(&self, process: u32) -> bool {
        self.has_member(process) || self.serving.borrow().contains(&process)
    }
}

// The workers of a supervisor, for those who ask them from other tasks and threads.

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
