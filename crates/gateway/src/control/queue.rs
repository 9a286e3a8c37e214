//! The commands on their way from the API to the program, and the facts on theirs back.
//!
//! ```text
//! client --request--> statistics socket or --CommandCall--> CommandQueue (the program)
//!        <-response--   admin listener     <---outcome----- CommandCall::succeed or refuse
//! ```
//!
//! The program takes one call after another next to its signals, so that a command does just what
//! the signal does. A client that goes leaves its call behind: the program carries it out, and its
//! answer is dropped. There are at most [`CALLS`] of them; further ones are refused.
//!
//! A process that is about to end, or to be replaced by another program, waits until the answers
//! that it has given are [written](CommandQueue::written).

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_channel::{mpsc, oneshot};
use futures_lite::StreamExt;
use superpoll_http::admin::{CommandOutcome, Refusal, ServerCommand, ServerFacts};
use superpoll_rt::time;

/// The most calls that the program has not answered.
const CALLS: usize = 64;

/// How long a program that ends waits for clients to take their answers.
const PATIENCE: Duration = Duration::from_secs(1);

/// The time between two looks at the answers that are not written yet.
const LOOK: Duration = Duration::from_millis(1);

/// One of several, such as an answer that is on its way ([`CommandQueue::written`]), which counts
/// until it is dropped.
#[derive(Debug)]
pub struct CountGuard(Arc<AtomicUsize>);

impl CountGuard {
    fn new(count: &Arc<AtomicUsize>) -> CountGuard {
        count.fetch_add(1, Ordering::AcqRel);
        CountGuard(count.clone())
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A command that waits for its answer. If it is dropped, the client is told that the server ends.
pub struct CommandCall {
    /// The command.
    pub command: ServerCommand,
    answer: oneshot::Sender<(Result<CommandOutcome, Refusal>, CountGuard)>,
    unwritten: Arc<AtomicUsize>,
    _unanswered: CountGuard,
}

superpoll::debug_fields!(CommandCall, it => command: it.command);

impl CommandCall {
    /// Says that the command was carried out.
    pub fn succeed(self, outcome: CommandOutcome) {
        self.answer(Ok(CommandOutcome { process: std::process::id(), ..outcome }));
    }

    /// Says why the command was not carried out.
    pub fn refuse(self, error: impl Into<String>) {
        self.answer(Err(Refusal::refused(error)));
    }

    fn answer(self, answer: Result<CommandOutcome, Refusal>) {
        // The client may have gone.
        let _ = self.answer.send((answer, CountGuard::new(&self.unwritten)));
    }
}

/// The commands of clients, for the program of the server, which tells them its facts.
pub struct CommandQueue {
    calls: mpsc::UnboundedReceiver<CommandCall>,
    sender: CommandSender,
}

superpoll::debug_fields!(CommandQueue, it => sender: it.sender);

impl Default for CommandQueue {
    fn default() -> Self {
        let (sender, calls) = mpsc::unbounded();
        let sender = CommandSender {
            calls: sender,
            facts: Arc::default(),
            unanswered: Arc::default(),
            unwritten: Arc::default(),
        };
        CommandQueue { calls, sender }
    }
}

impl CommandQueue {
    /// Returns the socket's end, for [`Subject::with_commands`](super::Subject::with_commands).
    #[must_use]
    pub fn sender(&self) -> CommandSender {
        self.sender.clone()
    }

    /// Waits for the next command.
    ///
    /// # Cancel safety
    ///
    /// Cancelling loses nothing.
    pub async fn next(&mut self) -> CommandCall {
        match self.calls.next().await {
            Some(call) => call,
            // This has a sender itself.
            None => pending().await,
        }
    }

    /// Changes the facts that `status` reports.
    pub fn note(&self, change: impl FnOnce(&mut ServerFacts)) {
        change(&mut self.sender.facts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits until the answers that were given are written, or their clients have gone; for a
    /// second at most.
    pub async fn written(&self) {
        let wait = async {
            while self.sender.unwritten.load(Ordering::Acquire) > 0 {
                time::sleep(LOOK).await;
            }
        };
        let _ = time::timeout(PATIENCE, wait).await;
    }
}

/// The socket's end of a [`CommandQueue`].
#[derive(Clone)]
pub struct CommandSender {
    calls: mpsc::UnboundedSender<CommandCall>,
    facts: Arc<Mutex<ServerFacts>>,
    /// How many calls the program has not answered.
    unanswered: Arc<AtomicUsize>,
    /// How many answers are on their way to clients.
    unwritten: Arc<AtomicUsize>,
}

superpoll::debug_fields!(CommandSender);

impl CommandSender {
    /// Gives the program a command, and returns its answer. The guard counts until the answer is
    /// written.
    pub(super) async fn call(
        &self,
        command: ServerCommand,
    ) -> (Result<CommandOutcome, Refusal>, Option<CountGuard>) {
        let _unanswered = CountGuard::new(&self.unanswered);
        if self.unanswered.load(Ordering::Acquire) > CALLS {
            let error = format!("{CALLS} commands wait already, expected to be tried again later");
            return (Err(Refusal::unavailable(error)), None);
        }
        let (answer, answered) = oneshot::channel();
        let call = CommandCall { command, answer, unwritten: self.unwritten.clone(), _unanswered };
        let answer = match self.calls.unbounded_send(call) {
            Ok(()) => answered.await.ok(),
            Err(_) => None,
        };
        match answer {
            Some((answer, unwritten)) => (answer, Some(unwritten)),
            None => (Err(Refusal::unavailable("the server is about to end")), None),
        }
    }

    pub(super) fn facts(&self) -> ServerFacts {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use futures_lite::future::{or, poll_once};
    use superpoll_rt::Runtime;

    use super::*;

    #[test]
    fn calls_have_a_bound_also_if_their_clients_go_and_answers_count_until_they_are_written() {
        Runtime::new().unwrap().block_on(async {
            let mut queue = CommandQueue::default();
            let sender = queue.sender();
            for _ in 0..CALLS {
                // The client goes.
                let mut call = std::pin::pin!(sender.call(ServerCommand::Reload));
                assert!(poll_once(call.as_mut()).await.is_none());
            }
            let (Err(refusal), _) = sender.call(ServerCommand::Reload).await else {
                panic!("there are more calls than there may be")
            };
            assert!(refusal.message.contains("64 commands wait already"), "{refusal:?}");
            queue.next().await.refuse("no");
            let mut call = std::pin::pin!(sender.call(ServerCommand::Drain));
            assert!(poll_once(call.as_mut()).await.is_none());
            for _ in 1..CALLS {
                drop(queue.next().await);
            }
            let given = queue.next().await;
            assert_eq!(given.command, ServerCommand::Drain);
            given.succeed(CommandOutcome::default());
            let (answer, written) = call.await;
            assert_eq!(answer.unwrap().process, std::process::id());
            assert!(poll_once(queue.written()).await.is_none());
            drop(written);
            queue.written().await;
            // A call that is dropped has no answer.
            let drops = async {
                drop(queue.next().await);
                std::future::pending().await
            };
            let (refused, _) = or(sender.call(ServerCommand::Upgrade), drops).await;
            assert!(refused.unwrap_err().message.contains("about to end"));
        });
    }
}
