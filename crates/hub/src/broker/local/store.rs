//! The logs themselves, in memory: what Redis does by scripts for several machines, for one
//! process.
//!
//! A log remembers its last position apart from its entries, so that it continues without gaps when
//! it keeps none. The store keeps at most [`Store::new`]'s number of bytes: a log drops its own
//! oldest entries for a new one, and refuses it if that is not enough. The beginnings of logs are
//! not refused: there are as many logs as the workers have channels. Of each publication it keeps
//! for a while where it is, so that a repeated one is found; at most `RECORDS` of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use superpoll_rt::time;

use crate::broker::log::{
    Append, Appended, Attend, Attendance, Attended, Content, Entry, Key, LEASE, LogOptions,
    LogPosition, Look, Looked, Members, MembersAsked, Payload, Position, Refusal, Token,
};

/// How long a publication is known, in milliseconds.
const KNOWN: u64 = 5 * 60 * 1000;

/// The most publications that are known.
const RECORDS: usize = 1 << 20;

/// How long the log of a channel without a time to live stays that no worker uses. Workers look at
/// the logs of their channels every few seconds, so that the configuration has no such channel any
/// more.
const UNUSED: Duration = Duration::from_secs(60 * 60);

/// About the memory that an entry takes in addition to its bytes.
const ENTRY: u64 = 128;

/// The log of a channel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Stream {
    entries: VecDeque<Entry>,
    /// The last entry, whether it is kept or not.
    last: Option<LogPosition>,
    /// When the log was last used, in milliseconds, and after which time without use it is removed.
    used: u64,
    idle: Option<Duration>,
}

/// The users of a channel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Users {
    all: BTreeMap<Arc<str>, Option<Arc<str>>>,
    /// Those who are with a server, and until when its word counts, in milliseconds.
    servers: BTreeMap<u64, (u64, BTreeSet<Arc<str>>)>,
}

impl Users {
    /// Whether no server has a user.
    fn have_lost(&self, user: &Arc<str>) -> bool {
        !self.servers.values().any(|(_, users)| users.contains(user))
    }
}

/// A publication that is known.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    at: Position,
    token: Token,
    content: String,
    /// In milliseconds, of the monotonic clock.
    until: u64,
}

/// The name of a publication: that of its log, and its key or its token.
type Name = (Arc<str>, String);

/// The logs of all channels.
#[derive(Clone, Debug, Serialize, Deserialize, Default)]
pub struct Store {
    streams: HashMap<Arc<str>, Stream>,
    /// The users of channels that have some.
    users: HashMap<Arc<str>, Users>,
    records: HashMap<Name, Record>,
    /// The names of the records, the oldest first.
    order: VecDeque<Name>,
    /// The largest epoch that there was.
    epoch: u64,
    bytes: u64,
    most_bytes: u64,
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The monotonic clock, which the next program of the process has as well. A clock that is set must
/// not make logs or publications look old. A runtime whose clock is ahead, in tests, is followed.
fn millis() -> u64 {
    let real = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
    let time = real + time::now().saturating_duration_since(Instant::now());
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn cost(entry: &Entry) -> u64 {
    let bytes = match &entry.content {
        Content::Message(payload) => {
            payload.data.len() + payload.meta.as_ref().map_or(0, |meta| meta.len())
        }
        Content::Begin | Content::Unreadable => 0,
    };
    bytes as u64 + ENTRY
}

impl Store {
    /// Creates a store that keeps at most this many bytes.
    pub fn new(most_bytes: u64) -> Store {
        Store { most_bytes, ..Store::default() }
    }

    /// Keeps at most this many bytes from now on; existing ones stay until they are replaced.
    pub fn limit(&mut self, most_bytes: u64) {
        self.most_bytes = most_bytes;
    }

    /// Returns the last position of a log after the one that the server knows, and whether it has
    /// to begin again: it is not the log that the server knows.
    fn last(&mut self, log: &LogOptions, known: LogPosition) -> (Position, bool) {
        let stream = self.streams.entry(log.key.clone()).or_default();
        (stream.used, stream.idle) = (millis(), log.idle);
        let holds = stream.last.filter(|last| {
            // The token of the entry that is there, as far as it is known.
            let there = match last.at == known.at {
                true => Some(last.token),
                false => {
                    let index = stream.entries.binary_search_by_key(&known.at, |entry| entry.at);
                    index.ok().map(|index| stream.entries[index].token)
                }
            };
            let is_other = known.token.is_some() && there.is_some_and(|token| token != known.token);
            last.at >= known.at && !is_other
        });
        match holds {
            Some(last) => (last.at, false),
            None => {
                let clock = u64::try_from(now().as_micros()).unwrap_or(u64::MAX);
                self.epoch = clock.max(known.at.epoch + 1).max(self.epoch + 1);
                (Position { epoch: self.epoch, id: 0 }, true)
            }
        }
    }

    /// Adds an entry after the last one, in the place of the oldest ones.
    fn add(&mut self, log: &LogOptions, entry: Entry) -> Result<(), Refusal> {
        let Some(stream) = self.streams.get_mut(&log.key) else { return Err(Refusal::Full) };
        let most = usize::try_from(log.history.max(1)).unwrap_or(usize::MAX);
        let cost_of_new = cost(&entry);
        let surplus = (stream.entries.len() + 1).saturating_sub(most);
        let mut freed: u64 = stream.entries.iter().take(surplus).map(cost).sum();
        let mut gone = surplus;
        while entry.content != Content::Begin && self.bytes - freed + cost_of_new > self.most_bytes
        {
            let Some(oldest) = stream.entries.get(gone) else { return Err(Refusal::Full) };
            freed += cost(oldest);
            gone += 1;
        }
        stream.entries.drain(..gone);
        self.bytes = self.bytes - freed + cost_of_new;
        stream.last = Some(LogPosition { at: entry.at, token: entry.token });
        stream.entries.push_back(entry);
        Ok(())
    }

    /// Appends a message, unless it is there already.
    pub(crate) fn append(&mut self, message: &Append) -> Result<Appended, Refusal> {
        let Append { log, place, token, key, payload } = message;
        let (name, content) = match key {
            Some(Key { text, content }) => (format!("k{text}"), content.clone()),
            None => (format!("t{token}"), String::new()),
        };
        let name = (log.key.clone(), name);
        let time = millis();
        self.forget(time);
        if let Some(known) = self.records.get(&name) {
            return Ok(match () {
                () if known.token == *token => Appended::Here(known.at),
                () if known.content == content => Appended::Before(known.at),
                () => Appended::OtherWithKey,
            });
        }
        let (last, _) = self.last(log, *place);
        let at = Position { id: last.id + 1, ..last };
        let entry = Entry { at, token: Some(*token), content: Content::Message(payload.clone()) };
        self.add(log, entry)?;
        self.order.push_back(name.clone());
        self.records.insert(name, Record { at, token: *token, content, until: time + KNOWN });
        Ok(Appended::Here(at))
    }

    /// Looks at a log. One that there is not yet begins.
    pub(crate) fn look(&mut self, look: &Look) -> Result<Looked, Refusal> {
        let (last, is_new) = self.last(&look.log, look.place.unwrap_or_default());
        if is_new {
            self.add(&look.log, Entry { at: last, token: None, content: Content::Begin })?;
        }
        let entries = self.streams.get(&look.log.key).map(|stream| &stream.entries);
        let mut entries = entries.into_iter().flatten();
        let first = entries.find(|entry| entry.at.epoch == last.epoch && entry.at.id > 0);
        let first = first.map_or(last.id + 1, |entry| entry.at.id);
        Ok(Looked { last, first, history: look.log.history })
    }

    /// Notes which users are with a server, see [`MessageLog::attend`](super::MessageLog::attend).
    pub(crate) fn attend(&mut self, attend: &Attend) -> Result<Attended, Refusal> {
        self.attend_at(attend, millis())
    }

    fn attend_at(&mut self, attend: &Attend, time: u64) -> Result<Attended, Refusal> {
        let key = &attend.log.key;
        let mut users = self.users.remove(key).unwrap_or_default();
        let attended = self.change_users(attend, &mut users, time);
        users.servers.retain(|_, (until, users)| *until >= time || !users.is_empty());
        if !users.servers.is_empty() {
            self.users.insert(key.clone(), users);
        }
        attended
    }

    fn change_users(
        &mut self,
        attend: &Attend,
        of_log: &mut Users,
        time: u64,
    ) -> Result<Attended, Refusal> {
        let Attend { log, place, server, changes, users, spare } = attend;
        let (mut last, _) = self.last(log, *place);
        let lease = u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
        let own = of_log.servers.entry(*server).or_default();
        // A server that was not heard of itself cannot tell who has gone.
        let was_heard = std::mem::replace(&mut own.0, time.saturating_add(lease)) >= time;
        for Attendance { user, info, is_here, token } in changes {
            let (_, own) = of_log.servers.entry(*server).or_default();
            if *is_here {
                own.insert(user.clone());
                if !of_log.all.contains_key(user) {
                    let about = (user, info, of_log.all.len() + 1);
                    self.tell((log, &mut last), "join", about, *token)?;
                    of_log.all.insert(user.clone(), info.clone());
                }
            } else {
                own.remove(user);
                self.lose((log, &mut last), of_log, user, *token)?;
            }
        }
        let gone = |users: &Users| {
            let mut gone = users.servers.iter().filter(|(_, (until, _))| *until < time);
            gone.find_map(|(server, (_, users))| Some((*server, users.first()?.clone())))
        };
        for token in spare.iter().filter(|_| was_heard) {
            let Some((server, user)) = gone(of_log) else { break };
            if let Some((_, users)) = of_log.servers.get_mut(&server) {
                users.remove(&user);
            }
            self.lose((log, &mut last), of_log, &user, *token)?;
        }
        let known = of_log.servers.get(server).map_or(0, |(_, users)| users.len() as u64);
        let has_more = was_heard && gone(of_log).is_some();
        Ok(Attended { is_complete: known == *users, has_more })
    }

    /// Removes a user whom no server has.
    fn lose(
        &mut self,
        at: (&LogOptions, &mut Position),
        of_log: &mut Users,
        user: &Arc<str>,
        token: Token,
    ) -> Result<(), Refusal> {
        if of_log.have_lost(user) && of_log.all.contains_key(user) {
            self.tell(at, "leave", (user, &None, of_log.all.len() - 1), token)?;
            of_log.all.remove(user);
        }
        Ok(())
    }

    /// Adds the message that tells of a user.
    fn tell(
        &mut self,
        (log, last): (&LogOptions, &mut Position),
        event: &str,
        (user, info, users): (&Arc<str>, &Option<Arc<str>>, usize),
        token: Token,
    ) -> Result<(), Refusal> {
        let name = serde_json::Value::from(&**user);
        let info = info.as_ref().filter(|_| event == "join");
        let info = info.map_or(String::new(), |info| format!(",\"info\":{info}"));
        let data = format!("{{\"user\":{name}{info},\"users\":{users}}}").into();
        let meta = Some(format!("{{\"event\":\"{event}\"}}").into());
        let content = Content::Message(Payload { data, is_text: true, meta });
        let at = Position { id: last.id + 1, ..*last };
        self.add(log, Entry { at, token: Some(token), content })?;
        *last = at;
        Ok(())
    }

    /// Returns users of a log, and one more than was asked for if there are more.
    pub(crate) fn members(&self, asked: &MembersAsked) -> Result<Members, Refusal> {
        let last = self.streams.get(&asked.key).and_then(|stream| stream.last);
        let last = last.map_or(0, |last| last.at.id);
        let Some(users) = self.users.get(&asked.key) else {
            return Ok(Members { last, ..Members::default() });
        };
        let from = asked.after.as_deref().map_or(Unbounded, Excluded);
        let page = users.all.range::<str, _>((from, Unbounded)).take(asked.count + 1);
        let page = page.map(|(user, info)| (user.clone(), info.clone())).collect();
        Ok(Members { last, users: users.all.len() as u64, page })
    }

    /// Returns the first entries after a position, at most `count`.
    pub(crate) fn read(&mut self, key: &str, behind: Position, count: usize) -> Vec<Entry> {
        let Some(stream) = self.streams.get_mut(key) else { return Vec::new() };
        stream.used = millis();
        let from = stream.entries.partition_point(|entry| entry.at <= behind);
        stream.entries.range(from..).take(count).cloned().collect()
    }

    /// Removes logs that are not used any more.
    pub fn sweep(&mut self) {
        self.sweep_at(millis());
    }

    fn sweep_at(&mut self, time: u64) {
        let bytes = &mut self.bytes;
        self.streams.retain(|_, stream| {
            let idle = stream.idle.unwrap_or(UNUSED).as_millis();
            let idle = u64::try_from(idle).unwrap_or(u64::MAX);
            let is_idle = stream.used.saturating_add(idle) < time;
            if is_idle {
                *bytes -= stream.entries.iter().map(cost).sum::<u64>();
            }
            !is_idle
        });
        self.users.retain(|key, users| {
            let is_heard = users.servers.values().any(|(until, _)| *until >= time);
            is_heard || self.streams.contains_key(key)
        });
        self.forget(time);
    }

    /// Forgets publications that are no longer repeated.
    fn forget(&mut self, time: u64) {
        while let Some(oldest) = self.order.front() {
            let is_over = self.records.get(oldest).is_none_or(|record| record.until <= time);
            if !is_over && self.order.len() < RECORDS {
                break;
            }
            self.records.remove(oldest);
            self.order.pop_front();
        }
    }

    /// Returns the entries of a log that are kept.
    #[cfg(test)]
    pub(crate) fn entries(&self, key: &str) -> Vec<Entry> {
        self.streams.get(key).map_or(Vec::new(), |stream| stream.entries.iter().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::broker::tests::toy::Toy;

    fn options(history: u64) -> LogOptions {
        LogOptions { key: "a".into(), history, idle: None }
    }

    fn message(history: u64, token: u128, bytes: usize) -> Append {
        Append {
            log: options(history),
            place: LogPosition::default(),
            token: Token(token),
            key: None,
            payload: Payload { data: vec![b'x'; bytes].into(), is_text: true, meta: None },
        }
    }

    #[test]
    fn a_log_goes_on_without_gaps_when_it_keeps_nothing() {
        let mut store = Store::new(10_000);
        let ids = |store: &mut Store, tokens: std::ops::Range<u128>, history| -> Vec<u64> {
            let appended = tokens.map(|token| store.append(&message(history, token, 10)));
            let id = |one| match one {
                Ok(Appended::Here(at)) => at.id,
                other => panic!("{other:?}"),
            };
            appended.map(id).collect()
        };
        assert_eq!(ids(&mut store, 0..5, 3), [1, 2, 3, 4, 5]);
        assert_eq!(store.entries("a").len(), 3);
        assert_eq!(store.bytes, 3 * (10 + ENTRY));
        assert_eq!(ids(&mut store, 5..7, 0), [6, 7]);
        assert_eq!(store.entries("a").len(), 1);
        // A repeated publication is found, also when its entry is gone.
        assert_eq!(ids(&mut store, 0..2, 3), [1, 2]);
    }

    #[test]
    fn bytes_are_bounded_by_the_log_itself() {
        let mut store = Store::new(1000);
        let here = |one: &Result<Appended, Refusal>| matches!(one, Ok(Appended::Here(_)));
        for token in 0..20 {
            assert!(here(&store.append(&message(100, token, 100))));
            assert!(store.bytes <= 1000);
        }
        assert_eq!(store.append(&message(100, 99, 1000)), Err(Refusal::Full));
        // The log is as it was, and continues.
        let last = store.entries("a").last().unwrap().at;
        assert_eq!((last.id, store.entries("a").len()), (20, 4));
        assert!(here(&store.append(&message(100, 99, 100))));
        assert_eq!(store.entries("a").last().unwrap().at.id, 21);
    }

    #[test]
    fn a_log_that_is_not_the_known_one_begins_anew_with_a_greater_epoch() {
        let mut store = Store::new(10_000);
        let first = store.look(&Look { log: options(9), place: None }).unwrap();
        assert_eq!((first.last.id, first.first), (0, 1));
        let appended = store.append(&message(9, 1, 1)).unwrap();
        let Appended::Here(at) = appended else { panic!("{appended:?}") };
        assert_eq!(at, Position { id: 1, ..first.last });
        let look = |store: &mut Store, at, token| {
            store
                .look(&Look { log: options(9), place: Some(LogPosition { at, token }) })
                .unwrap()
                .last
        };
        assert_eq!(look(&mut store, at, Some(Token(1))), at);
        assert_eq!(look(&mut store, Position { id: 0, ..at }, None), at);
        // Another entry is there; the log is behind; the log is an older one.
        let mut last = at;
        for (at, token) in
            [(at, Some(Token(2))), (Position { epoch: at.epoch + 1_000_000_000_000, id: 5 }, None)]
        {
            let anew = look(&mut store, at, token);
            assert!(anew.epoch > last.epoch && anew.epoch > at.epoch && anew.id == 0);
            last = anew;
        }
        assert_eq!(store.read("a", at, 9).len(), 2, "both beginnings");
    }

    #[test]
    fn idle_logs_are_removed_and_a_new_one_has_a_greater_epoch() {
        let mut store = Store::new(10_000);
        let mut one = message(9, 1, 1);
        one.log.idle = Some(Duration::ZERO);
        let Ok(Appended::Here(at)) = store.append(&one) else { panic!("not appended") };
        std::thread::sleep(Duration::from_millis(2));
        store.sweep();
        assert_eq!((store.streams.len(), store.bytes), (0, 0));
        one.token = Token(2);
        let Ok(Appended::Here(again)) = store.append(&one) else { panic!("not appended") };
        assert!(again.epoch > at.epoch && again.id == 1);
    }

    #[test]
    fn a_log_without_a_time_to_live_goes_when_no_worker_has_its_channel() {
        let mut store = Store::new(10_000);
        assert!(store.append(&message(9, 1, 1)).is_ok());
        let unused = u64::try_from(UNUSED.as_millis()).unwrap();
        let used = store.streams["a"].used;
        for (since, expected) in [(unused, 1), (unused + 1, 0)] {
            store.sweep_at(used + since);
            assert_eq!(store.streams.len(), expected, "after {since} ms");
        }
        assert_eq!(store.bytes, 0);
    }

    proptest! {
        /// The store and the few lines that tests take for Redis answer the same, except for the
        /// numbers of epochs, which both only let grow.
        #[test]
        fn the_store_answers_as_the_simple_log_does(
            steps in proptest::collection::vec(any::<(u8, u8, u8, u8)>(), 1..80),
        ) {
            let (mut store, toy) = (Store::new(u64::MAX), Toy::default());
            // The epochs of the toy's by those of the store, and the entries that were seen.
            let mut epochs: HashMap<u64, u64> = HashMap::from([(0, 0)]);
            let mut seen: Vec<LogPosition> = vec![LogPosition::default()];
            let pair = |epochs: &mut HashMap<u64, u64>, one: Position, other: Position| {
                let known = *epochs.entry(one.epoch).or_insert(other.epoch);
                prop_assert_eq!((known, one.id), (other.epoch, other.id));
                Ok(())
            };
            let as_toy = |epochs: &HashMap<u64, u64>, place: LogPosition| {
                LogPosition { at: Position { epoch: epochs[&place.at.epoch], ..place.at }, ..place }
            };
            for (kind, which, token, history) in steps {
                let log = options(u64::from(history % 4));
                let mut place = seen[usize::from(which) % seen.len()];
                if kind & 0x40 != 0 {
                    // The place of another log: an entry with another token, or one that is not
                    // there yet.
                    place.token = place.token.map(|Token(token)| Token(token + 1000));
                    place.at.id += u64::from(kind & 0x80 != 0);
                }
                let toys = as_toy(&epochs, place);
                if kind % 3 == 0 {
                    let one = store.look(&Look { log: log.clone(), place: Some(place) }).unwrap();
                    let other = toy.look(&Look { log, place: Some(toys) });
                    pair(&mut epochs, one.last, other.last)?;
                    prop_assert_eq!((one.first, one.history), (other.first, other.history));
                    seen.push(LogPosition { at: one.last, token: None });
                    continue;
                }
                let key = (kind % 3 == 1).then(|| Key {
                    text: (token % 8).to_string(),
                    content: (token % 3).to_string(),
                });
                let payload = Payload { data: vec![token].into(), is_text: true, meta: None };
                let token = Token(u128::from(token % 32));
                let append = Append { log, place, token, key, payload };
                let one = store.append(&append).unwrap();
                let other = toy.append(&Append { place: toys, ..append });
                match (one, other) {
                    (Appended::Here(one), Appended::Here(other))
                    | (Appended::Before(one), Appended::Before(other)) => {
                        pair(&mut epochs, one, other)?;
                        seen.push(LogPosition { at: one, token: Some(token) });
                    }
                    (one, other) => prop_assert_eq!(one, other),
                }
                let read = |all: Vec<Entry>| -> Vec<(u64, Option<Token>, Content)> {
                    all.into_iter().map(|one| (one.at.id, one.token, one.content)).collect()
                };
                prop_assert_eq!(read(store.entries("a")), read(toy.entries("a")));
            }
        }
    }

    /// Returns what is told of a user, with the number of users.
    fn told(store: &Store) -> Vec<String> {
        let entries = store.entries("a").into_iter();
        let text = entries.filter_map(|entry| match entry.content {
            Content::Message(Payload { data, meta, .. }) => {
                let (data, meta) = (data.to_vec(), meta.unwrap().to_vec());
                Some([meta, data].map(|part| String::from_utf8(part).unwrap()).concat())
            }
            _ => None,
        });
        text.collect()
    }

    #[test]
    fn users_leave_with_their_last_server_and_with_one_that_is_not_heard_of() {
        let mut store = Store::new(100_000);
        let lease = u64::try_from(LEASE.as_millis()).unwrap();
        let mut token = 0;
        let mut attend = |server: u64, changes: &[(&str, bool)], users, time| {
            let mut next = || {
                token += 1;
                Token(token)
            };
            let change = |(user, is_here): &(&str, bool)| {
                let (info, token) = (Some("[1]".into()), next());
                Attendance { user: (*user).into(), info, is_here: *is_here, token }
            };
            let changes = changes.iter().map(change).collect();
            let (log, place, spare) = (options(100), LogPosition::default(), vec![next(), next()]);
            let attend = Attend { log, place, server, changes, users, spare };
            let Attended { is_complete, has_more } = store.attend_at(&attend, time).unwrap();
            (is_complete, has_more, told(&store).len())
        };
        assert_eq!(attend(1, &[("ann", true), ("b\"b", true)], 2, 0), (true, false, 2));
        assert_eq!(attend(2, &[("ann", true), ("cid", true)], 2, 0), (true, false, 3));
        // A repeated change changes nothing, and a wrong number is noticed.
        assert_eq!(attend(2, &[("cid", true)], 3, 0), (false, false, 3));
        assert_eq!(attend(1, &[("ann", false)], 1, 0), (true, false, 3), "the other one has her");
        assert_eq!(attend(3, &[("dan", true), ("eve", true), ("fay", true)], 3, 0).2, 6);
        // All were cut off for too long. The first one to come back ends nobody's lease.
        let late = lease + 1;
        assert_eq!(attend(1, &[], 1, late), (true, false, 6));
        assert_eq!(attend(2, &[], 2, late), (true, false, 6));
        // The third one does not come back; each call tells of as many as it has tokens for.
        assert_eq!(attend(1, &[], 1, late + 1), (true, true, 8));
        assert_eq!(attend(1, &[], 1, late + 1), (true, false, 9));
        let expected = [
            "{\"event\":\"join\"}{\"user\":\"ann\",\"info\":[1],\"users\":1}",
            "{\"event\":\"join\"}{\"user\":\"b\\\"b\",\"info\":[1],\"users\":2}",
            "{\"event\":\"join\"}{\"user\":\"cid\",\"info\":[1],\"users\":3}",
        ];
        assert_eq!(told(&store)[..3], expected);
        let mut left = told(&store).split_off(6);
        left.sort();
        let leave = |user, users| {
            format!("{{\"event\":\"leave\"}}{{\"user\":\"{user}\",\"users\":{users}}}")
        };
        assert_eq!(left, [leave("dan", 5), leave("eve", 4), leave("fay", 3)]);
        let asked = MembersAsked { key: "a".into(), after: Some("ann".into()), count: 1 };
        let members = store.members(&asked).unwrap();
        let names: Vec<&str> = members.page.iter().map(|(name, _)| &**name).collect();
        assert_eq!((names, members.users, members.last), (vec!["b\"b", "cid"], 3, 9));
    }

    #[test]
    fn a_store_comes_back_from_its_bytes() {
        let mut store = Store::new(10_000);
        let mut keyed = message(9, 1, 5);
        keyed.key = Some(Key { text: "k".into(), content: "c".into() });
        keyed.payload.meta = Some(Bytes::from_static(b"{}"));
        let first = store.append(&keyed).unwrap();
        let bytes = postcard::to_allocvec(&store).unwrap();
        let mut again: Store = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(again.entries("a"), store.entries("a"));
        assert_eq!(again.append(&keyed), Ok(first));
        keyed.token = Token(2);
        let Appended::Here(at) = first else { panic!("{first:?}") };
        assert_eq!(again.append(&keyed), Ok(Appended::Before(at)));
        keyed.key = Some(Key { text: "k".into(), content: "other".into() });
        assert_eq!(again.append(&keyed), Ok(Appended::OtherWithKey));
    }
}
