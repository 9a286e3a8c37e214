//! The commands on their way from the statistics socket to the program, and the facts on theirs
//! back.
//!
//! ```text
//! client --line--> statistics socket --Call--> CommandQueue (the program)
//!        <--Reply--                 <--Answer-- Call::succeed, Call::refuse
//! ```
//!
//! The program takes one call after another next to its signals, so that a command does just what
//! the signal does. A client that goes leaves its call in the queue: the program carries it out, and
//! its answer is for no one. There are at most as many calls as the socket has clients.
//!
//! A process that is about to end, or to be replaced by another program, waits until the answers that
//! it has given are [written](CommandQueue::written).

use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_channel::{mpsc, oneshot};
use futures_lite::StreamExt;
use superpoll_rt::time;

use super::command::{Answer, Command, Facts, Outcome};

/// How long a program that ends waits for clients to take their answers.
const PATIENCE: Duration = Duration::from_secs(1);

/// The time between two looks at the answers that are not written yet.
const LOOK: Duration = Duration::from_millis(1);

/// An answer on its way to a client, which counts until it is dropped.
pub(super) struct Unwritten {
    count: Arc<AtomicUsize>,
}

impl Unwritten {
    fn new(count: &Arc<AtomicUsize>) -> Unwritten {
        count.fetch_add(1, Ordering::AcqRel);
        Unwritten { count: count.clone() }
    }
}

impl Drop for Unwritten {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A command that waits for its answer. If it is dropped, the client is told that the server ends.
pub struct Call {
    /// The command.
    pub command: Command,
    answer: oneshot::Sender<(Answer, Unwritten)>,
    unwritten: Arc<AtomicUsize>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("command", &self.command).finish_non_exhaustive()
    }
}

impl Call {
    /// Says that the command was carried out.
    pub fn succeed(self, outcome: Outcome) {
        self.answer(Answer::Done(outcome));
    }

    /// Says why the command was not carried out.
    pub fn refuse(self, error: impl Into<String>) {
        self.answer(Answer::Error(error.into()));
    }

    fn answer(self, answer: Answer) {
        // The client may have gone.
        let _ = self.answer.send((answer, Unwritten::new(&self.unwritten)));
    }
}

/// The commands of clients, for the program of the server, which tells them its facts.
pub struct CommandQueue {
    calls: mpsc::UnboundedReceiver<Call>,
    sender: CommandSender,
}

impl fmt::Debug for CommandQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandQueue").field("sender", &self.sender).finish_non_exhaustive()
    }
}

impl Default for CommandQueue {
    fn default() -> Self {
        let (sender, calls) = mpsc::unbounded();
        let sender =
            CommandSender { calls: sender, facts: Arc::default(), unwritten: Arc::default() };
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
    pub async fn next(&mut self) -> Call {
        match self.calls.next().await {
            Some(call) => call,
            // This has a sender itself.
            None => pending().await,
        }
    }

    /// Changes the facts that `status` reports.
    pub fn note(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut self.sender.facts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits until the answers that were given are written, or their clients have gone; for a second
    /// at most.
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
    calls: mpsc::UnboundedSender<Call>,
    facts: Arc<Mutex<Facts>>,
    unwritten: Arc<AtomicUsize>,
}

impl fmt::Debug for CommandSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandSender").finish_non_exhaustive()
    }
}

impl CommandSender {
    /// Gives the program a command, and returns its answer; `None` if the program ends.
    pub(super) async fn call(&self, command: Command) -> Option<(Answer, Unwritten)> {
        let (answer, answered) = oneshot::channel();
        let call = Call { command, answer, unwritten: self.unwritten.clone() };
        self.calls.unbounded_send(call).ok()?;
        answered.await.ok()
    }

    pub(super) fn facts(&self) -> Facts {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
