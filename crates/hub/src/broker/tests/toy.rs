//! A broker in memory, which tests take for Redis: the same answers from a few lines that can be
//! seen to be right. It can lose everything, go back to an earlier state, and break connections.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use superpoll_rt::time::{self, sleep};

use crate::broker::log::{
    Append, Appended, Attend, Attendance, Attended, Connect, Content, Entry, Failure, LEASE,
    LogOptions, LogPosition, Look, Looked, Members, MembersAsked, MessageLog, Payload, Position,
    Refusal, Token,
};

/// How long servers only look after a change of the process.
const GRACE: Duration = Duration::from_millis(300);

#[derive(Clone, Default)]
struct Stream {
    entries: Vec<Entry>,
    top: u64,
}

impl Stream {
    fn last(&self) -> Option<Position> {
        self.entries.last().map(|entry| entry.at)
    }
}

/// A user of a log.
#[derive(Clone, Default)]
struct Present {
    info: Option<Arc<str>>,
    servers: BTreeSet<u64>,
}

/// The database.
#[derive(Clone, Default)]
struct Data {
    streams: HashMap<Arc<str>, Stream>,
    /// The servers of each user by the logs, with the ends of their leases.
    users: HashMap<Arc<str>, BTreeMap<Arc<str>, Present>>,
    /// The ends of the leases of servers by the logs.
    leases: HashMap<(Arc<str>, u64), Instant>,
    /// Each known publication.
    records: HashMap<String, (Position, Token, String)>,
}

#[derive(Default)]
pub(crate) struct World {
    data: Data,
    /// An earlier state.
    saved: Data,
    clock: u64,
    /// Changes with the process; its connections end.
    run: u64,
    since: Option<Instant>,
}

/// A broker in memory.
#[derive(Clone, Default)]
pub(crate) struct Toy(pub Arc<Mutex<World>>);

impl Toy {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    /// Removes everything.
    pub(crate) fn flush(&self) {
        self.world().data = Data::default();
    }

    /// Keeps the state for [`go_back`](Toy::go_back).
    pub(crate) fn save(&self) {
        let mut world = self.world();
        world.saved = world.data.clone();
    }

    /// Another process takes over, which has the kept state.
    pub(crate) fn go_back(&self) {
        let mut world = self.world();
        world.data = world.saved.clone();
        (world.run, world.since) = (world.run + 1, Some(time::now()));
    }

    /// Appends a message.
    pub(crate) fn append(&self, message: &Append) -> Appended {
        self.world().append(message)
    }

    /// Looks at a log.
    pub(crate) fn look(&self, look: &Look) -> Looked {
        self.world().look(look)
    }

    /// Returns the messages of a log.
    pub(crate) fn entries(&self, key: &str) -> Vec<Entry> {
        self.world().data.streams.get(key).map_or(Vec::new(), |stream| stream.entries.clone())
    }
}

impl World {
    /// Returns the last position of a log, and whether it has to begin again.
    fn last(&mut self, log: &LogOptions, known: LogPosition) -> (Position, bool) {
        self.clock += 1;
        let clock = self.clock;
        let stream = self.data.streams.entry(log.key.clone()).or_default();
        let is_known = |entry: &Entry| entry.at == known.at;
        let holds = stream.last().filter(|last| {
            let there = stream.entries.iter().find(|entry| is_known(entry));
            *last >= known.at
                && there.is_none_or(|entry| known.token.is_none() || entry.token == known.token)
        });
        match holds {
            Some(last) => (last, false),
            None => {
                let epoch = clock.max(known.at.epoch + 1).max(stream.top + 1);
                (Position { epoch, id: 0 }, true)
            }
        }
    }

    fn add(&mut self, log: &LogOptions, entry: Entry) {
        let stream = self.data.streams.entry(log.key.clone()).or_default();
        stream.top = entry.at.epoch;
        stream.entries.push(entry);
        let surplus = stream.entries.len().saturating_sub(log.history.max(1) as usize);
        stream.entries.drain(..surplus);
    }

    fn append(&mut self, message: &Append) -> Appended {
        let Append { log, place, token, key, payload } = message;
        let record = match key {
            Some(key) => format!("{} {}", log.key, key.text),
            None => format!("{} {token}", log.key),
        };
        let content = key.as_ref().map_or(String::new(), |key| key.content.clone());
        if let Some((at, by, known)) = self.data.records.get(&record) {
            return match () {
                () if by == token => Appended::Here(*at),
                () if *known == content => Appended::Before(*at),
                () => Appended::OtherWithKey,
            };
        }
        let (last, _) = self.last(log, *place);
        let at = Position { id: last.id + 1, ..last };
        self.data.records.insert(record, (at, *token, content));
        let content = Content::Message(payload.clone());
        self.add(log, Entry { at, token: Some(*token), content });
        Appended::Here(at)
    }

    fn look(&mut self, look: &Look) -> Looked {
        let (last, is_new) = self.last(&look.log, look.place.unwrap_or_default());
        if is_new {
            self.add(&look.log, Entry { at: last, token: None, content: Content::Begin });
        }
        let entries = &self.data.streams[&look.log.key].entries;
        let first = entries.iter().find(|entry| entry.at.epoch == last.epoch && entry.at.id > 0);
        let first = first.map_or(last.id + 1, |entry| entry.at.id);
        Looked { last, first, history: look.log.history }
    }
}

impl World {
    fn attend(&mut self, attend: &Attend) -> Attended {
        let Attend { log, place, server, changes, users, spare } = attend;
        let (mut last, _) = self.last(log, *place);
        let (key, now) = (log.key.clone(), time::now());
        let lease = self.data.leases.insert((key.clone(), *server), now + LEASE);
        let mut all = self.data.users.remove(&key).unwrap_or_default();
        let mut steps: Vec<(u64, Attendance)> =
            changes.iter().map(|change| (*server, change.clone())).collect();
        let mut has_more = false;
        if lease.is_some_and(|until| until >= now) {
            let is_gone = |server: &u64| self.data.leases[&(key.clone(), *server)] < now;
            let gone = all.iter().flat_map(|(user, present)| {
                let servers = present.servers.iter().filter(|server| is_gone(server));
                servers.map(|server| (*server, user.clone()))
            });
            let gone: Vec<(u64, Arc<str>)> = gone.collect();
            has_more = gone.len() > spare.len();
            for ((server, user), token) in gone.into_iter().zip(spare) {
                let change = Attendance { user, info: None, is_here: false, token: *token };
                steps.push((server, change));
            }
        }
        for (server, Attendance { user, info, is_here, token }) in steps {
            let was_here = all.contains_key(&user);
            if is_here {
                let present = all.entry(user.clone()).or_default();
                present.servers.insert(server);
                if !was_here {
                    present.info = info.clone();
                }
            } else if let Some(present) = all.get_mut(&user) {
                present.servers.remove(&server);
                if present.servers.is_empty() {
                    all.remove(&user);
                }
            }
            if all.contains_key(&user) == was_here {
                continue;
            }
            let mut data = serde_json::json!({ "user": *user, "users": all.len() });
            if let Some(info) = info.filter(|_| is_here) {
                data["info"] = serde_json::from_str(&info).unwrap();
            }
            let event = serde_json::json!({ "event": if is_here { "join" } else { "leave" } });
            let (data, meta) = (data.to_string().into(), Some(event.to_string().into()));
            let content = Content::Message(Payload { data, is_text: true, meta });
            last.id += 1;
            self.add(log, Entry { at: last, token: Some(token), content });
        }
        let known = all.values().filter(|present| present.servers.contains(server)).count();
        self.data.users.insert(key, all);
        Attended { is_complete: known as u64 == *users, has_more }
    }

    fn members(&self, MembersAsked { key, after, count }: &MembersAsked) -> Members {
        let last = self.data.streams.get(key).and_then(Stream::last).map_or(0, |last| last.id);
        let none = BTreeMap::new();
        let all = self.data.users.get(key).unwrap_or(&none);
        let later = all.iter().filter(|(user, _)| after.as_ref().is_none_or(|it| *user > it));
        let page = later.take(count + 1).map(|(user, it)| (user.clone(), it.info.clone()));
        Members { last, users: all.len() as u64, page: page.collect() }
    }
}

/// A connection to it.
pub(crate) struct ToyLog {
    toy: Toy,
    run: u64,
    name: i64,
}

impl ToyLog {
    fn use_it<T>(&self, by: impl FnOnce(&mut World) -> T) -> Result<T, Failure> {
        let mut world = self.toy.world();
        if world.run != self.run {
            return Err(Failure::passing("another process"));
        }
        Ok(by(&mut world))
    }
}

impl MessageLog for ToyLog {
    async fn append(&self, messages: &[Append]) -> Result<Vec<Result<Appended, Refusal>>, Failure> {
        self.use_it(|world| messages.iter().map(|message| Ok(world.append(message))).collect())
    }

    async fn look(&self, looks: &[Look]) -> Result<Vec<Result<Looked, Refusal>>, Failure> {
        self.use_it(|world| looks.iter().map(|look| Ok(world.look(look))).collect())
    }

    async fn attend(&self, all: &[Attend]) -> Result<Vec<Result<Attended, Refusal>>, Failure> {
        self.use_it(|world| all.iter().map(|attend| Ok(world.attend(attend))).collect())
    }

    async fn members(&self, asked: &MembersAsked) -> Result<Result<Members, Refusal>, Failure> {
        self.use_it(|world| Ok(world.members(asked)))
    }

    async fn read(
        &self,
        places: &[(Arc<str>, Position)],
        count: usize,
    ) -> Result<Vec<(usize, Vec<Entry>)>, Failure> {
        for _ in 0..20 {
            let found = self.use_it(|world| {
                let mut found = Vec::new();
                for (index, (key, at)) in places.iter().enumerate() {
                    let entries = world.data.streams.get(key).map_or(&[][..], |one| &one.entries);
                    let behind = entries.iter().filter(|entry| entry.at > *at);
                    let some: Vec<Entry> = behind.take(count).cloned().collect();
                    if !some.is_empty() {
                        found.push((index, some));
                    }
                }
                found
            })?;
            if !found.is_empty() {
                return Ok(found);
            }
            sleep(Duration::from_millis(1)).await;
        }
        Ok(Vec::new())
    }

    async fn settling(&self) -> Result<Duration, Failure> {
        self.use_it(|world| {
            world.since.map_or(Duration::ZERO, |since| GRACE.saturating_sub(time::now() - since))
        })
    }

    fn name(&self) -> i64 {
        self.name
    }

    async fn interrupt(&self, _: i64) -> Result<(), Failure> {
        Ok(())
    }

    async fn closed(&self) {
        while self.use_it(|_| ()).is_ok() {
            sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Connect for Toy {
    type Log = ToyLog;

    async fn connect(&self) -> Result<ToyLog, Failure> {
        static NAMES: AtomicU64 = AtomicU64::new(1);
        let name = NAMES.fetch_add(1, Ordering::Relaxed) as i64;
        Ok(ToyLog { toy: self.clone(), run: self.world().run, name })
    }
}

/// Connections to a broker that fail now and then: before a call, or after it, so that its
/// outcome is unknown.
pub(crate) struct Faulty<C> {
    pub inner: C,
    /// Of a thousand calls so many fail.
    pub often: Arc<AtomicU64>,
    pub random: Arc<Mutex<u64>>,
}

pub(crate) struct FaultyLog<L> {
    inner: L,
    often: Arc<AtomicU64>,
    random: Arc<Mutex<u64>>,
    is_broken: Rc<RefCell<bool>>,
}

/// Returns the next number of a sequence (Marsaglia's xorshift).
pub(crate) fn next(random: &Mutex<u64>) -> u64 {
    let mut state = random.lock().unwrap();
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

impl<L> FaultyLog<L> {
    fn fault(&self) -> Result<(), Failure> {
        let often = self.often.load(Ordering::Relaxed);
        if *self.is_broken.borrow() || next(&self.random) % 1000 < often {
            *self.is_broken.borrow_mut() = true;
            return Err(Failure::passing("cut"));
        }
        Ok(())
    }
}

impl<L: MessageLog> MessageLog for FaultyLog<L> {
    async fn append(&self, messages: &[Append]) -> Result<Vec<Result<Appended, Refusal>>, Failure> {
        self.fault()?;
        let outcome = self.inner.append(messages).await;
        self.fault()?;
        outcome
    }

    async fn look(&self, looks: &[Look]) -> Result<Vec<Result<Looked, Refusal>>, Failure> {
        self.fault()?;
        let outcome = self.inner.look(looks).await;
        self.fault()?;
        outcome
    }

    async fn attend(&self, all: &[Attend]) -> Result<Vec<Result<Attended, Refusal>>, Failure> {
        self.fault()?;
        let outcome = self.inner.attend(all).await;
        self.fault()?;
        outcome
    }

    async fn members(&self, asked: &MembersAsked) -> Result<Result<Members, Refusal>, Failure> {
        self.fault()?;
        self.inner.members(asked).await
    }

    async fn read(
        &self,
        places: &[(Arc<str>, Position)],
        count: usize,
    ) -> Result<Vec<(usize, Vec<Entry>)>, Failure> {
        self.fault()?;
        let outcome = self.inner.read(places, count).await;
        self.fault()?;
        outcome
    }

    async fn settling(&self) -> Result<Duration, Failure> {
        self.inner.settling().await
    }

    fn name(&self) -> i64 {
        self.inner.name()
    }

    async fn interrupt(&self, name: i64) -> Result<(), Failure> {
        self.fault()?;
        self.inner.interrupt(name).await
    }

    async fn closed(&self) {
        self.inner.closed().await;
    }
}

impl<C: Connect> Connect for Faulty<C> {
    type Log = FaultyLog<C::Log>;

    async fn connect(&self) -> Result<FaultyLog<C::Log>, Failure> {
        let inner = self.inner.connect().await?;
        let (often, random) = (self.often.clone(), self.random.clone());
        Ok(FaultyLog { inner, often, random, is_broken: Rc::default() })
    }
}
