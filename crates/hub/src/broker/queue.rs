//! Commands for the broker: messages, questions and interruptions, from all engines to the
//! task that publishes.
//!
//! The queue holds at most [`MOST`] publications and [`MOST_BYTES`] bytes of them. Beyond that a
//! publication is refused at once: a broker that is slower than the publishers of this server would
//! otherwise take all its memory.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Instant;

use futures_channel::oneshot;

use super::log::{
    Append, Appended, Attend, Attended, Look, Looked, Members, MembersAsked, Refusal,
};
use super::shard::Shard;

/// The most publications that wait for the broker, or are on their way to it.
const MOST: usize = 10_000;

/// The most bytes that they have.
const MOST_BYTES: u64 = 64 << 20;

/// The reason for which a message was not published, or for which that is not known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unpublished {
    /// The broker could not be reached in time. Nothing was sent to it.
    Away,
    /// The message was sent, and no answer came in time.
    Unknown,
    /// Too many messages wait for the broker.
    Busy,
    /// The broker has no memory left.
    Full,
    /// The broker has the message, and too few of its replicas.
    NotReplicated,
    /// The broker refuses it.
    Refused(String),
}

/// A message on its way.
pub(super) struct Publication {
    pub append: Append,
    pub until: Instant,
    /// It was sent at least once.
    pub was_sent: bool,
    /// The broker has it, and too few of its replicas.
    pub lacks_copies: bool,
    pub answer: oneshot::Sender<Result<Appended, Unpublished>>,
}

/// A question on its way.
pub(super) struct Question {
    pub look: Look,
    pub until: Instant,
    pub answer: oneshot::Sender<Result<Looked, Unpublished>>,
}

/// A question for users on its way.
pub(super) struct MembersQuestion {
    pub asked: MembersAsked,
    pub until: Instant,
    pub answer: oneshot::Sender<Result<Members, Unpublished>>,
}

/// A channel whose users have changed.
pub(crate) trait Attendee: Send + Sync {
    /// Returns what the log is to know now; `None` if it is of no more use.
    fn next_attend(&self) -> Option<Attend>;

    /// Learns that the log knows it, or why not. Returns whether there is more.
    fn attended(&self, sent: &Attend, outcome: &Result<Attended, Refusal>) -> bool;
}

/// Something that the broker is to do.
pub(super) enum Command {
    Attend(Arc<dyn Attendee>),
    Members(MembersQuestion),
    Publish(Publication),
    Look(Question),
    /// A connection that reads is to look which logs there are.
    Interrupt(Arc<Shard>),
}

#[derive(Default)]
struct QueueState {
    commands: VecDeque<Command>,
    /// Publications that were not answered yet, and their bytes.
    publications: usize,
    bytes: u64,
    waker: Option<Waker>,
    is_closed: bool,
}

/// The commands that wait.
#[derive(Default)]
pub(super) struct Queue(Mutex<QueueState>);

fn cost(append: &Append) -> u64 {
    let meta = append.payload.meta.as_ref().map_or(0, bytes::Bytes::len);
    (append.payload.data.len() + meta + size_of::<Publication>()) as u64
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        // No code that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a command.
    pub(super) fn push(&self, command: Command) {
        let mut state = self.state();
        if state.is_closed {
            // Its answer is that there will be none.
            return;
        }
        state.commands.push_back(command);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Adds a publication, and returns where its outcome comes.
    pub(super) fn publish(
        &self,
        append: Append,
        until: Instant,
    ) -> oneshot::Receiver<Result<Appended, Unpublished>> {
        let (answer, outcome) = oneshot::channel();
        let mut state = self.state();
        let bytes = cost(&append);
        if state.publications >= MOST || state.bytes.saturating_add(bytes) > MOST_BYTES {
            drop(state);
            // The receiver is here.
            let _ = answer.send(Err(Unpublished::Busy));
            return outcome;
        }
        if !state.is_closed {
            (state.publications, state.bytes) = (state.publications + 1, state.bytes + bytes);
        }
        drop(state);
        self.push(Command::Publish(Publication {
            append,
            until,
            was_sent: false,
            lacks_copies: false,
            answer,
        }));
        outcome
    }

    /// Answers a publication.
    pub(super) fn answer(&self, publication: Publication, outcome: Result<Appended, Unpublished>) {
        let mut state = self.state();
        state.publications = state.publications.saturating_sub(1);
        state.bytes = state.bytes.saturating_sub(cost(&publication.append));
        drop(state);
        // A publisher that has gone wants no answer.
        let _ = publication.answer.send(outcome);
    }

    /// Takes the first commands, at most this many and with at most this many bytes, but at least
    /// one.
    pub(super) fn take(&self, most: usize, most_bytes: u64) -> Vec<Command> {
        let mut state = self.state();
        let (mut count, mut bytes) = (0, 0);
        for command in state.commands.iter().take(most) {
            if let Command::Publish(publication) = command {
                bytes += cost(&publication.append);
            }
            if count > 0 && bytes > most_bytes {
                break;
            }
            count += 1;
        }
        state.commands.drain(..count).collect()
    }

    /// Ready when there is a command, or when the queue is closed.
    pub(super) async fn filled(&self) {
        poll_fn(|cx| {
            let mut state = self.state();
            if !state.commands.is_empty() || state.is_closed {
                return Poll::Ready(());
            }
            state.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Accepts no more commands; those that wait get no answer.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let (commands, waker) = (std::mem::take(&mut state.commands), state.waker.take());
        drop(state);
        drop(commands);
        waker.into_iter().for_each(Waker::wake);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().is_closed
    }
}
