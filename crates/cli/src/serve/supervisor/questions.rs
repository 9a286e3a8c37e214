//! Questions to all workers at a time.

use std::sync::Arc;
use std::time::Duration;

use futures_channel::{mpsc, oneshot};
use futures_lite::future::BoxedLocal;
use superpoll_gateway::processes::{Answers, Question, ToWorker, WorkerAnswer, Workers};
use superpoll_http::admin::{Operate, Operation, Outcome, Refusal};
use superpoll_rt::time;

use super::service::WorkerService;

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

/// A call of the API, from any thread.
pub(super) enum ServiceCall {
    Ask(Question, oneshot::Sender<Answers>),
    Operate(Operation, oneshot::Sender<Outcome>),
}

/// The workers, for the API.
pub(super) struct ServiceCalls(pub mpsc::UnboundedSender<ServiceCall>);

impl Workers for ServiceCalls {
    fn ask(&self, question: Question) -> BoxedLocal<Answers> {
        let (answer, answered) = oneshot::channel();
        // A supervisor that is about to end answers nothing.
        let _ = self.0.unbounded_send(ServiceCall::Ask(question, answer));
        Box::pin(async { answered.await.unwrap_or_default() })
    }
}

impl Operate for ServiceCalls {
    fn operate(self: Arc<ServiceCalls>, operation: Operation) -> BoxedLocal<Outcome> {
        let (answer, answered) = oneshot::channel();
        // As for questions.
        let _ = self.0.unbounded_send(ServiceCall::Operate(operation, answer));
        let ends = |_| Err(Refusal::unavailable("the server is about to end"));
        Box::pin(async move { answered.await.unwrap_or_else(ends) })
    }
}

/// A question to all workers, and the answers until now.
pub(super) struct Asked {
    /// The connections of those that have not answered.
    missing: Vec<u64>,
    answers: Vec<WorkerAnswer>,
    waker: Option<oneshot::Sender<()>>,
}

impl WorkerService {
    /// Answers a call of the API.
    pub(super) async fn respond(&self, call: ServiceCall) {
        // The caller may have gone.
        match call {
            ServiceCall::Ask(question, answer) => {
                let _ = answer.send(self.collect(question).await);
            }
            ServiceCall::Operate(operation, answer) => {
                let _ = answer.send(self.operate(operation).await);
            }
        }
    }

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

    /// Asks all workers that answer.
    pub(super) async fn collect(&self, question: Question) -> Answers {
        self.collect_up_to(question, UNANSWERED).await
    }

    /// Asks all workers that have fewer than `most` questions to answer.
    pub(super) async fn collect_up_to(&self, question: Question, most: u32) -> Answers {
        let id = self.next_id();
        let (waker, done) = oneshot::channel();
        let (mut missing, mut processes) = (Vec::new(), self.serving.borrow().clone());
        for (connection, member) in self.members.borrow().iter() {
            processes.push(member.process);
            let is_asked = member.unanswered.get() < most
                && member.say(ToWorker::Ask { id, question: question.clone() });
            if is_asked {
                member.unanswered.set(member.unanswered.get() + 1);
                missing.push(*connection);
            }
        }
        let mut all = Vec::new();
        if !missing.is_empty() {
            let asked = Asked { missing, answers: Vec::new(), waker: Some(waker) };
            self.asked.borrow_mut().insert(id, asked);
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
