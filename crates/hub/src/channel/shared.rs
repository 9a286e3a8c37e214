//! A channel whose messages are in a log that several servers read.
//!
//! The hub of such a channel is a copy of the end of the log: it has the log's epoch, and its
//! messages have the log's numbers. Only the reader of the log appends to it, each message once and
//! in order. Publishers append to the log, and their message comes back as all messages do.
//!
//! ```text
//!                 next number            +------------------+
//!   entry ------------------------------>| hub of the epoch |--> subscribers
//!     |                                  +------------------+
//!     | another epoch, or a gap                  | replaced: its subscribers move on
//!     |                                  +------------------+
//!     +--------------------------------->| a new hub        |  those that lack messages are told
//!                                        +------------------+
//! ```
//!
//! A log begins again when its messages are gone: its database was emptied, or a copy without its
//! last entries has taken over. Its epoch is another one then, so is the hub, and the subscribers
//! of the old hub learn that they have missed something. The same happens if the log has dropped
//! messages before they were read.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_channel::oneshot;

use super::counters;
use super::hub::{Hub, NotPublished, Published};
use super::message::{Draft, Meta};
use super::presence::{Listed, PAGE, User, listed};
use crate::broker::{
    Append, Appended, Attend, Attendance, Attended, Attendee, Broker, Content, Entry, Follower,
    Key, LogOptions, LogPosition, Looked, Members, MembersAsked, Payload, Position, Refusal,
    Unpublished, digest,
};

/// The route of a channel, as the channel's log sees it.
pub(super) trait LogRoute: Send + Sync {
    /// Returns how the log of a channel is kept.
    fn log_options(&self, key: &Arc<str>) -> LogOptions;

    /// Puts another hub in the place of a channel's, after a message of an epoch. `None` if the
    /// channel is not here any more.
    fn replace(&self, old: &Arc<Hub>, place: (u64, u64)) -> Option<Arc<Hub>>;
}

/// A channel's log, and how far it was read.
pub(crate) struct SharedChannel {
    broker: Arc<Broker>,
    key: Arc<str>,
    name: Arc<str>,
    route: Weak<dyn LogRoute>,
    state: Mutex<State>,
    /// Something that is wrong was reported, and nothing else was looked at since.
    is_reported: AtomicBool,
    /// The broker is about to be told of users.
    attends: AtomicBool,
    /// The number under which the broker knows the users who are here. Another one makes it forget
    /// them, when their time is over.
    server: AtomicU64,
    own: Weak<SharedChannel>,
}

struct State {
    hub: Weak<Hub>,
    /// As the route had them when it was asked last.
    options: LogOptions,
    place: LogPosition,
    /// The last entry that the log is known to have.
    target: Position,
    /// Tasks that wait until everything up to there is read.
    waiting: Vec<Waker>,
}

/// A publication under way.
pub(super) struct Publishing {
    outcome: oneshot::Receiver<Result<Appended, Unpublished>>,
    /// Counts the message.
    hub: Weak<Hub>,
}

impl Future for Publishing {
    type Output = Result<Published, NotPublished>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match Pin::new(&mut self.outcome).poll(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(outcome) => outcome,
        };
        let published =
            |at: Position, is_repeated| Ok(Published { id: at.id, epoch: at.epoch, is_repeated });
        Poll::Ready(match outcome {
            Ok(Ok(Appended::Here(at))) => {
                if let Some(hub) = self.hub.upgrade() {
                    counters::count(&hub.counters().published, 1);
                }
                published(at, false)
            }
            Ok(Ok(Appended::Before(at))) => published(at, true),
            Ok(Ok(Appended::OtherWithKey)) => Err(NotPublished::OtherWithKey),
            Ok(Err(why)) => Err(NotPublished::Unshared(why)),
            // The server ends, and may have sent it.
            Err(oneshot::Canceled) => Err(NotPublished::Unshared(Unpublished::Unknown)),
        })
    }
}

/// Returns a message as its publisher has sent it.
fn draft(payload: Payload) -> Option<Draft> {
    let Payload { data, is_text, meta } = payload;
    let meta = match meta {
        None => None,
        Some(json) => serde_json::from_slice::<Meta>(&json).ok()?.shared(),
    };
    Some(Draft { data, is_text, meta })
}

fn payload(draft: Draft) -> Payload {
    let Draft { data, is_text, meta } = draft;
    // Texts and numbers can always be written.
    let meta = meta.and_then(|meta| serde_json::to_vec(&*meta).ok()).map(Bytes::from);
    Payload { data, is_text, meta }
}

impl SharedChannel {
    /// Returns the log of a channel that has read it up to a place. It is read from there on with
    /// [`follow`](SharedChannel::follow).
    pub(super) fn new(
        broker: Arc<Broker>,
        key: Arc<str>,
        hub: &Arc<Hub>,
        route: Weak<dyn LogRoute>,
        (place, target): (LogPosition, Position),
    ) -> Arc<SharedChannel> {
        let name = hub.name().clone();
        let history = hub.options().history as u64;
        let options = LogOptions { key: key.clone(), history, idle: None };
        let hub = Arc::downgrade(hub);
        let state = State { hub, options, place, target, waiting: Vec::new() };
        let (state, is_reported) = (Mutex::new(state), AtomicBool::new(false));
        Arc::new_cyclic(|own| SharedChannel {
            broker,
            key,
            name,
            route,
            state,
            is_reported,
            attends: AtomicBool::new(false),
            server: AtomicU64::new(number()),
            own: own.clone(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the log from now on, as long as there is a hub.
    pub(super) fn follow(self: &Arc<SharedChannel>, largest: u64) {
        let follower: Weak<SharedChannel> = Arc::downgrade(self);
        self.broker.follow(follower, largest);
    }

    /// Begins to publish a message.
    pub(super) fn begin(&self, draft: Draft) -> Publishing {
        let log = self.options();
        let meta = draft.meta.as_deref();
        let key = meta.and_then(|meta| meta.key.clone()).map(|text| {
            // As `Message::is_of` compares: the time to live begins with each repetition.
            let event = meta.and_then(|meta| meta.event.as_deref()).unwrap_or("");
            let parts = [&[u8::from(draft.is_text)][..], event.as_bytes(), &draft.data];
            Key { text, content: digest(&parts) }
        });
        let (place, token) = (self.state().place, self.broker.token());
        let payload = payload(draft);
        let hub = self.state().hub.clone();
        let outcome = self.broker.publish(Append { log, place, token, key, payload });
        Publishing { outcome, hub }
    }

    /// Tells the broker soon of the users who have come to this server, or have left it.
    pub(super) fn attend(&self) {
        if let Some(own) = self.own.upgrade()
            && !self.attends.swap(true, Ordering::Relaxed)
        {
            self.broker.attend(own);
        }
    }

    /// Returns the users of all servers, in the order of their names and after one of them.
    pub(super) async fn members(&self, after: Option<&str>) -> Result<Listed, Unpublished> {
        let (key, after) = (self.key.clone(), after.map(Arc::from));
        let Members { last, users, mut page } =
            self.broker.members(MembersAsked { key, after, count: PAGE }).await?;
        let has_more = page.len() > PAGE;
        page.truncate(PAGE);
        let members = page.iter().map(|(name, info)| listed(name, info.as_deref())).collect();
        Ok(Listed { last, users, members, has_more })
    }

    /// Whether everything is read that the log is known to have.
    pub(super) fn is_caught_up(&self) -> bool {
        let state = self.state();
        state.place.at >= state.target
    }

    /// Returns how many messages the log is known to have that are not read yet.
    pub(super) fn lag(&self) -> u64 {
        let State { place, target, .. } = &*self.state();
        match target.epoch == place.at.epoch {
            true => target.id.saturating_sub(place.at.id),
            false if target.epoch > place.at.epoch => target.id,
            false => 0,
        }
    }

    /// Ready when everything is read that the log is known to have.
    pub(super) fn poll_caught_up(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.place.at >= state.target {
            return Poll::Ready(());
        }
        state.waiting.retain(|waker| !waker.will_wake(cx.waker()));
        state.waiting.push(cx.waker().clone());
        Poll::Pending
    }

    /// Puts another hub in the place of the one that there is.
    fn restart(&self, hub: &Arc<Hub>, at: Position) -> Option<Arc<Hub>> {
        self.broker.counters().restarts.fetch_add(1, Ordering::Relaxed);
        self.server.store(number(), Ordering::Relaxed);
        let new = self.route.upgrade()?.replace(hub, (at.epoch, at.id))?;
        self.state().hub = Arc::downgrade(&new);
        Some(new)
    }

    /// Takes one entry; `None` if the channel takes no more.
    fn take_one(&self, hub: Arc<Hub>, place: &mut LogPosition, entry: Entry) -> Option<Arc<Hub>> {
        let Entry { at, token, content } = entry;
        let is_beginning = content == Content::Begin && at.id == 0;
        let message = match content {
            Content::Message(payload) => draft(payload),
            Content::Begin | Content::Unreadable => None,
        };
        let hub = match message {
            None => {
                if !is_beginning {
                    self.broker.counters().unreadable.fetch_add(1, Ordering::Relaxed);
                    self.report(&format!(
                        "its entry {at} was written by no server; it is left out"
                    ));
                }
                // Whoever is behind has missed whatever it was.
                self.restart(&hub, at)?
            }
            Some(draft) => {
                let next = Position { epoch: place.at.epoch, id: place.at.id + 1 };
                let before = Position { id: at.id.saturating_sub(1), ..at };
                let hub = if at == next { hub } else { self.restart(&hub, before)? };
                if !hub.apply(draft, token.is_some_and(|token| self.broker.has_made(token))) {
                    return None;
                }
                hub
            }
        };
        *place = LogPosition { at, token };
        Some(hub)
    }

    /// Reports something that is wrong with the log, once until all is well again.
    fn report(&self, what: &str) {
        if !self.is_reported.swap(true, Ordering::Relaxed) {
            self.broker.warn(format!("the log {} of the channel {}: {what}", self.key, self.name));
        }
    }
}

impl Follower for SharedChannel {
    fn key(&self) -> &Arc<str> {
        &self.key
    }

    fn options(&self) -> LogOptions {
        let known = self.route.upgrade().map(|route| route.log_options(&self.key));
        let mut state = self.state();
        if let Some(known) = known {
            state.options = known;
        }
        state.options.clone()
    }

    fn place(&self) -> Option<LogPosition> {
        let state = self.state();
        let hub = state.hub.upgrade()?;
        let place = state.place;
        drop(state);
        (!hub.is_closed()).then_some(place)
    }

    fn room(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let hub = self.state().hub.upgrade();
        Box::pin(async move {
            if let Some(hub) = hub.filter(|hub| !hub.has_room()) {
                hub.room().await;
            }
        })
    }

    fn apply_entries(&self, entries: Vec<Entry>) {
        let (mut hub, mut place) = {
            let state = self.state();
            (state.hub.upgrade(), state.place)
        };
        self.broker.counters().read.fetch_add(entries.len() as u64, Ordering::Relaxed);
        for entry in entries {
            let Some(here) = hub.take() else { break };
            hub = self.take_one(here, &mut place, entry);
        }
        let mut state = self.state();
        state.place = place;
        let is_caught_up = state.place.at >= state.target;
        let waiting = if is_caught_up { std::mem::take(&mut state.waiting) } else { Vec::new() };
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    fn note(&self, looked: &Looked) {
        let hub = self.state().hub.upgrade();
        if hub.is_some_and(|hub| hub.options().presence) {
            // Users who are with this server stay, and those of servers that have gone leave.
            self.attend();
        }
        let mut state = self.state();
        // A log that begins again has a greater epoch. Until it is read, this channel is not ready.
        state.target = looked.last;
        let own = state.options.history;
        drop(state);
        if own.max(1) < looked.history {
            return self.report(&format!(
                "another server keeps {} messages and this one {own}; the log keeps the larger \
                 number",
                looked.history
            ));
        }
        self.is_reported.store(false, Ordering::Relaxed);
    }

    fn refuse(&self, what: &str) {
        self.report(&format!("{what}; it is not read"));
    }
}

/// Returns a number that no other channel of a server has.
fn number() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // The only randomness of the standard library.
    RandomState::new().hash_one(std::process::id())
}

/// The most changes of users that the broker is told of at a time, and the most users of servers
/// that have gone.
const CHANGES: usize = 100;
const SPARE: usize = 20;

impl Attendee for SharedChannel {
    fn next_attend(&self) -> Option<Attend> {
        // What changes from now on is told after this.
        self.attends.store(false, Ordering::Relaxed);
        let hub = self.state().hub.upgrade()?;
        let (changes, users) = hub.changes(CHANGES)?;
        let change = |(User { name: user, info }, is_here)| Attendance {
            user,
            info,
            is_here,
            token: self.broker.token(),
        };
        let changes = changes.into_iter().map(change).collect();
        let (log, place) = (self.options(), self.state().place);
        let spare = (0..SPARE).map(|_| self.broker.token()).collect();
        let server = self.server.load(Ordering::Relaxed);
        Some(Attend { log, place, server, changes, users, spare })
    }

    fn attended(&self, sent: &Attend, outcome: &Result<Attended, Refusal>) -> bool {
        let Some(hub) = self.state().hub.upgrade() else { return false };
        let Attended { is_complete, has_more } = match outcome {
            Ok(attended) => *attended,
            Err(Refusal::Later(_)) => return true,
            Err(refusal) => {
                // With the next look at the log it is tried again.
                self.report(&format!("{refusal}; the broker is not told who is here"));
                return false;
            }
        };
        if sent.server != self.server.load(Ordering::Relaxed) {
            return true;
        }
        if !is_complete {
            self.server.store(number(), Ordering::Relaxed);
        }
        let changes = sent.changes.iter().map(|change| (&change.user, change.is_here));
        hub.are_known(changes, is_complete) || has_more
    }
}

#[cfg(test)]
mod tests;

superpoll::debug_fields!(SharedChannel, it => key: it.key, at: it.state().place.at);
