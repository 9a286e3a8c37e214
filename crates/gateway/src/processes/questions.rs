//! Questions of a supervisor to all workers at a time.

use std::time::Duration;

use futures_channel::oneshot;
use superpoll_http::admin::Operation;
use superpoll_rt::time;

use super::messages::{Kind, ToWorker};
use super::supervisor::Supervisor;
use super::workers::{Answers, WorkerAnswer};

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
                && member.say(ToWorker::Count { id, kind: kind.clone() });
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
