//! Who is in a channel (`presence`): users, not connections.
//!
//! A user has a name, the subject of a token or the answer of the application, and is in a channel
//! with the first subscriber by WebSocket or server-sent events that has it. The last one that ends
//! begins a time of grace (`presence_grace`), in which a page that connects again changes nothing.
//! Subscribers without a name are counted and nothing else; a long-poll ends with each message, and
//! is neither.
//!
//! ```text
//!            first connection: join                last connection ends
//!   absent -------------------------> connected <-----------------------> leaving
//!     ^                                          connects again              |
//!     +---------------------------- leave -----------------------------------+
//!                                              the grace is over
//! ```
//!
//! Each change is told by a message of the channel, with the type `join` or `leave`, so all
//! subscribers get it in one order with all other messages, parked or not. The table of members
//! changes under the lock under which its message is appended: the list of members belongs to the
//! channel's last message. While the engines have no room (`queue_bytes`), a change waits; a user
//! who has come and gone meanwhile is not told of. So a flood takes no more memory than there are
//! members.
//!
//! Each member has a record in the channel's space of the record store. A successor, after a crash
//! as well, knows from these who was told of, and takes all of them for leaving until their
//! connections are here. What a server did between a message and its record follows from the
//! message, see [`Presence::restore`].

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::message::{Draft, Message, Meta};
use super::moment::Moment;
use crate::succession::records::{MemberRecord, MemberRecords, RecordStore, member_id};

/// The longest name of a user, in bytes.
const LONGEST_NAME: usize = 256;

/// The longest information about a user, in bytes of JSON.
const LONGEST_INFO: usize = 1024;

/// The most ends of connections that a channel remembers as times of grace. Beyond them the oldest
/// is over.
const MOST_LEAVING: usize = 1 << 16;

/// The most members in an answer.
pub(super) const PAGE: usize = 1000;

/// The reason for which a publication with one of the types of presence is refused.
pub(super) const RESERVED: &str =
    "only the server publishes events of the types \"join\" and \"leave\" here (presence)";

/// A user of a channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct User {
    pub name: Arc<str>,
    /// What all subscribers may know of the user, in JSON.
    pub info: Option<Arc<str>>,
}

/// The reason for which a name or the information about a user cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error, Debug)]
pub(super) enum UserError {
    #[error("the name of the user is empty or has more than {LONGEST_NAME} bytes")]
    Name,
    #[error("the information about the user (info) has more than {LONGEST_INFO} bytes")]
    Info,
}

impl User {
    /// Returns a user; `None` without a name.
    pub(super) fn new(name: Option<&str>, info: Option<&Value>) -> Result<Option<User>, UserError> {
        let Some(name) = name else { return Ok(None) };
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Err(UserError::Name);
        }
        let info = info.filter(|info| !info.is_null()).map(Value::to_string);
        if info.as_ref().is_some_and(|info| info.len() > LONGEST_INFO) {
            return Err(UserError::Info);
        }
        Ok(Some(User { name: name.into(), info: info.map(Arc::from) }))
    }
}

/// Which way a member has gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Join,
    Leave,
}

impl Change {
    /// Returns the type of the event.
    pub(super) const fn event(self) -> &'static str {
        match self {
            Change::Join => "join",
            Change::Leave => "leave",
        }
    }

    /// Returns the change that a type of event tells of.
    fn of(event: &str) -> Option<Change> {
        [Change::Join, Change::Leave].into_iter().find(|change| change.event() == event)
    }
}

/// Whether a publisher uses the type of an event that only the server may use.
pub(super) fn is_reserved(draft: &Draft) -> bool {
    let event = draft.meta.as_ref().and_then(|meta| meta.event.as_deref());
    event.and_then(Change::of).is_some()
}

/// The data of an event.
#[derive(Serialize, Deserialize)]
struct EventData {
    user: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    info: Option<Value>,
    /// The number of members after the change.
    users: usize,
}

/// Users of a channel, for one who asks.
#[derive(Default, Debug)]
pub(super) struct Listed {
    /// The message up to which they were told of.
    pub last: u64,
    /// The number of all of them.
    pub users: u64,
    /// The first of them, at most [`PAGE`], in JSON.
    pub members: Vec<Value>,
    pub has_more: bool,
}

/// Returns a member in JSON.
pub(super) fn listed(name: &str, info: Option<&str>) -> Value {
    let mut one = serde_json::json!({ "user": name });
    if let Some(info) = info {
        one["info"] = serde_json::from_str(info).unwrap_or_default();
    }
    one
}

/// A user who is in a channel, or was a moment ago.
#[derive(Debug)]
pub(super) struct Member {
    pub info: Option<Arc<str>>,
    pub connections: u32,
    /// The end of the grace, if no connection is left.
    pub until: Option<Moment>,
    /// Whether the last event about the user is a `join`.
    pub is_told: bool,
    /// Whether the user is in the list of those who are to be told of.
    is_listed: bool,
    /// The number of the member's record.
    slot: u32,
}

impl Member {
    pub(super) fn is_here(&self) -> bool {
        self.connections > 0 || self.until.is_some()
    }
}

/// The members of a channel.
#[derive(Default)]
pub(super) struct Presence {
    pub members: BTreeMap<Arc<str>, Member>,
    /// How many of them the subscribers were told of.
    pub told: usize,
    /// Those whose state may not be the one that was told, the first change first.
    untold: VecDeque<Arc<str>>,
    /// The ends of graces, the first one first. One that is not the member's any more means
    /// nothing.
    leaving: VecDeque<(Moment, Arc<str>)>,
    /// The numbers of records that are free below the first one that was never used.
    free: Vec<u32>,
    next_slot: u32,
    records: Option<(Arc<dyn RecordStore>, u64)>,
    /// Whether the channel is in the list of [`Unsettled`] channels.
    pub is_listed: bool,
}

impl Presence {
    /// Adds a connection of a user.
    pub(super) fn arrive(&mut self, user: User) {
        let member = self.member(user);
        member.connections = member.connections.saturating_add(1);
        member.until = None;
    }

    /// Adds a connection that continues from another server, which has told of it.
    pub(super) fn continue_with(&mut self, name: &Arc<str>) {
        let is_new = !self.members.contains_key(name);
        self.arrive(User { name: name.clone(), info: None });
        if is_new && let Some(member) = self.members.get_mut(name) {
            member.is_told = true;
            self.told += 1;
            self.keep(name, 0);
        }
    }

    /// Returns the member of a name, who is about to be told of unless it is here already.
    fn member(&mut self, User { name, info }: User) -> &mut Member {
        let (free, next, untold) = (&mut self.free, &mut self.next_slot, &mut self.untold);
        let member = self.members.entry(name.clone()).or_insert_with(|| {
            let slot = free.pop().unwrap_or_else(|| {
                *next += 1;
                *next - 1
            });
            Member { info, connections: 0, until: None, is_told: false, is_listed: false, slot }
        });
        if !member.is_told && !std::mem::replace(&mut member.is_listed, true) {
            untold.push_back(name);
        }
        member
    }

    /// Removes a connection of a user, whose grace ends then if it was the last one.
    pub(super) fn depart(&mut self, name: &Arc<str>, until: Moment) {
        let Some(member) = self.members.get_mut(name) else { return };
        member.connections = member.connections.saturating_sub(1);
        if member.connections > 0 {
            return;
        }
        member.until = Some(until);
        self.leaving.push_back((until, name.clone()));
        while self.leaving.len() > MOST_LEAVING {
            self.end_first_grace();
        }
    }

    /// Gives everyone without a connection a grace that ends then, unless they have one.
    pub(super) fn begin_graces(&mut self, until: Moment) {
        let absent = self.members.iter_mut().filter(|(_, member)| !member.is_here());
        let mut begun: Vec<Arc<str>> = Vec::new();
        for (name, member) in absent {
            member.until = Some(until);
            begun.push(name.clone());
        }
        self.leaving.extend(begun.into_iter().map(|name| (until, name)));
    }

    /// Makes those leave whose grace is over.
    pub(super) fn end_graces(&mut self, now: Instant) {
        while self.leaving.front().is_some_and(|(until, _)| until.instant() <= now) {
            self.end_first_grace();
        }
    }

    fn end_first_grace(&mut self) {
        let Some((until, name)) = self.leaving.pop_front() else { return };
        let Some(member) = self.members.get_mut(&name) else { return };
        if member.until.is_some_and(|of_member| of_member.instant() == until.instant()) {
            member.until = None;
            if !std::mem::replace(&mut member.is_listed, true) {
                self.untold.push_back(name);
            }
        }
    }

    /// Returns the first user whose state is not the one that was told, and the change to tell.
    pub(super) fn next_untold(&mut self) -> Option<(Arc<str>, Change)> {
        while let Some(name) = self.untold.front() {
            let Some(member) = self.members.get(name) else {
                self.untold.pop_front();
                continue;
            };
            match (member.is_told, member.is_here()) {
                (false, true) => return Some((name.clone(), Change::Join)),
                (true, false) => return Some((name.clone(), Change::Leave)),
                _ => self.settle_first(),
            }
        }
        None
    }

    /// Returns the message that tells of a change.
    pub(super) fn event(&self, name: &Arc<str>, change: Change) -> Draft {
        let (info, users) = match change {
            Change::Join => {
                let info = self.members.get(name).and_then(|member| member.info.as_deref());
                (info.and_then(|info| serde_json::from_str(info).ok()), self.told + 1)
            }
            Change::Leave => (None, self.told - 1),
        };
        // No field can be refused.
        let data = serde_json::to_vec(&EventData { user: name.clone(), info, users });
        let event = Some(change.event().to_owned());
        let meta = Some(Arc::new(Meta { event, ..Meta::default() }));
        Draft { data: data.unwrap_or_default().into(), is_text: true, meta }
    }

    /// Notes that the first change was told, by the message with this number.
    pub(super) fn was_told(&mut self, change: Change, id: u64) {
        let Some(name) = self.untold.front().cloned() else { return };
        let Some(member) = self.members.get_mut(&name) else { return };
        member.is_told = change == Change::Join;
        match change {
            Change::Join => {
                self.told += 1;
                self.keep(&name, id);
            }
            Change::Leave => self.told -= 1,
        }
        self.settle_first();
    }

    /// Returns the first changes that the broker is to know, at most this many, and the number of
    /// users after them.
    pub(super) fn changes(&mut self, most: usize) -> (Vec<(User, bool)>, u64) {
        let _ = self.next_untold();
        let (mut changes, mut users) = (Vec::new(), self.told as u64);
        for name in &self.untold {
            let Some(member) = self.members.get(name) else { continue };
            let is_here = member.is_here();
            if is_here == member.is_told {
                continue;
            }
            if changes.len() == most {
                break;
            }
            users = if is_here { users + 1 } else { users - 1 };
            changes.push((User { name: name.clone(), info: member.info.clone() }, is_here));
        }
        (changes, users)
    }

    /// Notes that the broker knows a change.
    pub(super) fn is_known(&mut self, name: &Arc<str>, is_here: bool) {
        let Some(member) = self.members.get_mut(name) else { return };
        if std::mem::replace(&mut member.is_told, is_here) == is_here {
            return;
        }
        // The user may have come back while the broker was told of the end.
        if member.is_here() != is_here && !std::mem::replace(&mut member.is_listed, true) {
            self.untold.push_back(name.clone());
        }
        match is_here {
            true => {
                self.told += 1;
                self.keep(name, 0);
            }
            false => self.told -= 1,
        }
    }

    /// Makes all users untold: whoever knew of them has lost some.
    pub(super) fn tell_again(&mut self) {
        self.told = 0;
        for (name, member) in &mut self.members {
            member.is_told = false;
            if !std::mem::replace(&mut member.is_listed, true) {
                self.untold.push_back(name.clone());
            }
        }
    }

    /// Returns the members as those of another channel in the place of this one: nobody is here
    /// yet, and all have a grace that ends then.
    pub(super) fn moved(mut self, until: Moment) -> Presence {
        self.records = None;
        self.is_listed = false;
        self.tell_again();
        for member in self.members.values_mut() {
            (member.connections, member.until) = (0, None);
        }
        self.leaving.clear();
        self.begin_graces(until);
        self
    }

    /// Takes the first user off the list, and forgets one who is neither here nor told of.
    fn settle_first(&mut self) {
        let Some(name) = self.untold.pop_front() else { return };
        let Some(member) = self.members.get_mut(&name) else { return };
        member.is_listed = false;
        if !member.is_here() && !member.is_told {
            self.forget(&name);
        }
    }

    fn forget(&mut self, name: &Arc<str>) {
        let Some(member) = self.members.remove(name) else { return };
        if let Some((records, space)) = &self.records {
            records.keep(*space, member_id(member.slot), &[]);
        }
        self.free.push(member.slot);
        if self.members.is_empty() {
            (self.free, self.next_slot) = (Vec::new(), 0);
        }
    }

    /// Whether a grace or an untold change is still to come.
    pub(super) fn is_unsettled(&self) -> bool {
        !self.leaving.is_empty() || !self.untold.is_empty()
    }

    /// Returns members in the order of their names, after one of them, that were told of up to a
    /// message.
    pub(super) fn page(&self, after: Option<&str>, last: u64) -> Listed {
        let from = after.map_or(Unbounded, Excluded);
        let told = self.members.range::<str, _>((from, Unbounded)).filter(|(_, it)| it.is_told);
        let mut told = told.map(|(name, member)| listed(name, member.info.as_deref()));
        let members = told.by_ref().take(PAGE).collect();
        Listed { last, users: self.told as u64, members, has_more: told.next().is_some() }
    }

    // Records.

    /// Records the members from now on, those that were told of at once.
    pub(super) fn record_in(&mut self, records: Arc<dyn RecordStore>, space: u64) {
        self.records = Some((records, space));
        let told = self.members.iter().filter(|(_, member)| member.is_told);
        let names: Vec<Arc<str>> = told.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.keep(name, 0));
    }

    /// The same for members that come from that space.
    pub(super) fn continue_in(&mut self, records: Arc<dyn RecordStore>, space: u64) {
        self.records = Some((records, space));
    }

    /// Records no members any more.
    pub(super) fn stop_recording(&mut self) {
        self.records = None;
    }

    /// Removes the records of all members.
    pub(super) fn forget_all(&mut self) {
        let names: Vec<Arc<str>> = self.members.keys().cloned().collect();
        names.iter().for_each(|name| self.forget(name));
    }

    /// Records a member of whom the message with this number tells.
    fn keep(&self, name: &Arc<str>, at: u64) {
        let (Some((records, space)), Some(member)) = (&self.records, self.members.get(name)) else {
            return;
        };
        let record = MemberRecord { name: name.clone(), info: member.info.clone(), at };
        records.keep(*space, member_id(member.slot), &record.encode());
    }

    /// Returns the members that another server has left, none of whom is here yet. The server may
    /// have ended between a message about a user and the change of the user's record: then the
    /// message is the later one, and counts. `messages` are those of this server alone.
    pub(super) fn restore(messages: &[Message], records: MemberRecords) -> Option<Box<Presence>> {
        let mut presence = Presence::default();
        let mut known: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        for (slot, MemberRecord { name, info, at }) in records {
            presence.next_slot = presence.next_slot.max(slot + 1);
            known.insert(name.clone(), at);
            let (until, is_told, is_listed) = (None, true, false);
            let member = Member { info, connections: 0, until, is_told, is_listed, slot };
            presence.members.insert(name, member);
        }
        let used: BTreeSet<u32> = presence.members.values().map(|member| member.slot).collect();
        presence.free = (0..presence.next_slot).filter(|slot| !used.contains(slot)).collect();
        for message in messages {
            let change = message.event().and_then(Change::of);
            let data = serde_json::from_slice::<EventData>(&message.data).ok();
            let (Some(change), Some(EventData { user: name, info, .. })) = (change, data) else {
                continue;
            };
            if known.get(&name).is_some_and(|at| *at >= message.id) {
                continue;
            }
            match change {
                Change::Join => {
                    let info = info.map(|info| info.to_string().into());
                    presence.member(User { name: name.clone(), info }).is_told = true;
                    known.insert(name, message.id);
                }
                Change::Leave => drop(presence.members.remove(&name)),
            }
        }
        presence.untold.clear();
        presence.members.values_mut().for_each(|member| member.is_listed = false);
        presence.told = presence.members.len();
        (presence.told > 0).then(|| Box::new(presence))
    }
}

/// A channel in which a grace or an untold change is still to come.
pub(super) trait Unsettle: Send + Sync {
    /// Makes those leave whose grace is over, and tells what can be told.
    fn end_graces(self: Arc<Self>, now: Instant);
}

/// Such channels of a route.
#[derive(Default)]
pub(super) struct Unsettled(Mutex<Vec<Weak<dyn Unsettle>>>);

impl Unsettled {
    /// Enters a channel, which sees to it that it does so once.
    pub(super) fn enter(&self, channel: Weak<dyn Unsettle>) {
        // No code that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(channel);
    }

    /// Settles in all channels what can be settled now. Those with more to come enter again.
    pub(super) fn settle(&self, now: Instant) {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        all.iter().filter_map(Weak::upgrade).for_each(|channel| channel.end_graces(now));
    }
}

/// The users of one engine's subscribers, by the index of these. Without `presence` it takes no
/// memory.
#[derive(Default)]
pub(super) struct LocalPresence(RefCell<Vec<Option<Arc<str>>>>);

impl LocalPresence {
    /// Enters the user of a subscriber.
    pub(super) fn insert(&self, index: usize, name: Arc<str>) {
        let mut names = self.0.borrow_mut();
        if names.len() <= index {
            names.resize(index + 1, None);
        }
        names[index] = Some(name);
    }

    /// Removes the user of a subscriber, if it has one.
    pub(super) fn remove(&self, index: usize) -> Option<Arc<str>> {
        self.0.borrow_mut().get_mut(index)?.take()
    }

    /// Returns the user of a subscriber.
    pub(super) fn name(&self, index: usize) -> Option<Arc<str>> {
        self.0.borrow().get(index)?.clone()
    }
}
