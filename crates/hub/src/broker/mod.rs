//! Messages that several servers share: the logs of channels in an engine that exists already.
//!
//! A channel whose route says `broker = true` has its log in Redis or Valkey, and every server is a
//! reader of it. The engine numbers the messages. A server publishes by one call that appends to
//! the log, and learns of the message as of any other: when it reads it. So all servers have the
//! same messages in the same order, and the path from the log to a subscriber is the one that a
//! server alone has (`channel/hub.rs`).
//!
//! ```text
//! POST, WebSocket --> queue --> publisher ==> log ==> reader --> follower --> hub --> subscribers
//! (all engines)                 (engine 0)            (engine 0, one by shard)
//! ```
//!
//! `log` is the interface of an engine, `redis` implements it (a feature of the build), and so
//! does [`local`] for the processes of one server. The `publisher` has one connection for
//! messages and questions. Each `shard` of logs has one for reading (`reader`). All of them run
//! on the first engine of the runtime, as tasks. A connection that fails is opened again without
//! end; the first failure of a time is reported, and that all is well again.
//!
//! While the broker is away, subscribers stay and publishing fails. Nothing is accepted here to be
//! appended later: it would be behind messages that other servers have published meanwhile, and its
//! publisher would know neither its number nor whether it is safe.

pub mod local;
mod log;
mod publisher;
mod queue;
mod reader;
#[cfg_attr(not(feature = "redis"), path = "without_redis.rs")]
pub mod redis;
mod shard;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_channel::oneshot;
use ring::rand::{SecureRandom, SystemRandom};
use superpoll_config::{self, Channel};
use superpoll_http::log::{Event, Level, RateLimited, Report, others};
use superpoll_rt::{Handle, spawn, time};

#[cfg(test)]
pub(crate) use self::log::LEASE;
pub(crate) use self::log::{
    Append, Appended, Attend, Attendance, Attended, Content, Entry, Key, LogOptions, LogPosition,
    Look, Looked, Members, MembersAsked, Payload, Position, Refusal, Token, digest,
};
use self::log::{Connect, Failure};
pub(crate) use self::queue::{Attendee, Unpublished};
use self::queue::{Command, MembersQuestion, Question, Queue};
pub(crate) use self::shard::Follower;
use self::shard::{LOGS, Shard};

/// The mistake of a configuration with a broker, in a build without the feature `redis`.
pub const WITHOUT_REDIS: &str = "this superpoll was built without Redis and Valkey, \
     expected no [broker], or a build with the feature redis: \
     cargo install --path crates/cli --features redis";

/// The most connections that read.
const MOST_SHARDS: usize = 16;

/// The counters since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Messages that this server has appended.
    pub published: AtomicU64,
    /// Messages that were not published, or for which that is not known.
    pub failed: AtomicU64,
    /// Entries that were read.
    pub read: AtomicU64,
    /// Entries that no server has written.
    pub unreadable: AtomicU64,
    /// Times a log was not the one that was known, or lacked entries.
    pub restarts: AtomicU64,
    /// Connections that failed.
    pub failures: AtomicU64,
}

/// Begins to read a shard.
type Begin = Box<dyn Fn(Arc<Shard>) + Send>;

/// Opens connections on any thread.
pub(crate) trait Connector: Connect + Send + Sync {}

impl<C: Connect + Send + Sync> Connector for C {}

/// Where the logs of a server are.
#[derive(Clone, Debug)]
pub enum Engine {
    /// In an engine for several machines.
    Redis(superpoll_config::Broker),
    /// In the supervisor, which this process shares with other workers.
    Supervisor(local::Connector),
}

/// The engines of a server.
#[derive(Clone, Debug, Default)]
pub struct Brokers {
    /// That of the configuration, which other machines use as well.
    pub shared: Option<Arc<Broker>>,
    /// That of the processes of this server, if there are several.
    pub local: Option<Arc<Broker>>,
}

impl Brokers {
    /// Returns the engine that has the messages of a channel; `None`: this process has them alone.
    pub(crate) fn for_channel(&self, channel: &Channel) -> Option<&Arc<Broker>> {
        match channel.broker {
            true => self.shared.as_ref(),
            false => self.local.as_ref(),
        }
    }

    /// Returns all of them.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Broker>> {
        self.shared.iter().chain(&self.local)
    }
}

/// How long a publication is tried with a supervisor, which may be about to be replaced.
const LOCAL_PUBLISH: Duration = Duration::from_secs(5);

/// The engine that keeps the messages, as a server sees it.
pub struct Broker {
    engine: Engine,
    queue: Queue,
    shards: Mutex<Vec<Arc<Shard>>>,
    /// Begins to read a shard, once there is a runtime.
    begin: Mutex<Option<Begin>>,
    report: Report,
    counters: Counters,
    is_connected: AtomicBool,
    /// The failure of this time was reported.
    is_reported: AtomicBool,
    /// The largest message of the channels here, in bytes.
    largest: AtomicU64,
    /// The random half of the tokens of this server, and how many there were.
    tokens: (u64, AtomicU64),
}

impl Broker {
    /// Returns the connection to a log, which begins with the first channel.
    pub fn new(engine: Engine, report: Report) -> Arc<Broker> {
        let mut random = [0; 8];
        // Without it tokens of two servers are the same only if they start in the same nanosecond.
        if SystemRandom::new().fill(&mut random).is_err() {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let nanos = now.map_or(0, |now| now.as_nanos());
            random = u64::try_from(nanos).unwrap_or(u64::MAX).to_le_bytes();
        }
        Arc::new(Broker {
            engine,
            queue: Queue::default(),
            shards: Mutex::default(),
            begin: Mutex::default(),
            report,
            counters: Counters::default(),
            is_connected: AtomicBool::new(false),
            is_reported: AtomicBool::new(false),
            largest: AtomicU64::new(1),
            tokens: (u64::from_le_bytes(random), AtomicU64::new(0)),
        })
    }

    /// Returns the settings of Redis or Valkey, if that is the engine.
    pub fn config(&self) -> Option<&superpoll_config::Broker> {
        match &self.engine {
            Engine::Redis(config) => Some(config),
            Engine::Supervisor(_) => None,
        }
    }

    /// Returns how long a publication is tried.
    pub(crate) fn patience(&self) -> Duration {
        self.config().map_or(LOCAL_PUBLISH, |config| config.publish)
    }

    /// Begins to work with the engine, as `start` does.
    ///
    /// # Errors
    ///
    /// The mistake in words; or the runtime has ended.
    pub fn open(self: &Arc<Broker>, handle: &Handle) -> Result<(), String> {
        let started = match &self.engine {
            Engine::Redis(config) => redis::start(self, config, handle),
            Engine::Supervisor(connector) => {
                self.start(handle, connector.clone()).map_err(|error| error.to_string())
            }
        };
        started.map_err(|error| format!("starting to read from {self}: {error}"))
    }

    /// Returns the counts of this connection.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Begins to work on the first engine of a runtime.
    ///
    /// # Errors
    ///
    /// If the runtime has ended.
    pub(crate) fn start<C: Connector>(
        self: &Arc<Broker>,
        handle: &Handle,
        connector: C,
    ) -> superpoll_rt::Result<()> {
        let connector = Arc::new(connector);
        let (broker, again, reader) = (self.clone(), connector.clone(), handle.clone());
        handle.call_on(0, move || spawn(publisher::run(broker, connector)).detach())?;
        let by = Arc::downgrade(self);
        let begin = move |shard: Arc<Shard>| {
            let (by, connector) = (by.clone(), again.clone());
            // An engine that has ended reads nothing.
            let _ = reader.call_on(0, move || {
                if let Some(by) = by.upgrade() {
                    spawn(reader::run(by, shard, connector)).detach();
                }
            });
        };
        let shards = self.shards();
        shards.iter().cloned().for_each(&begin);
        *self.begin.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(begin));
        drop(shards);
        Ok(())
    }

    fn shards(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Shard>>> {
        // No code that can panic runs under the lock.
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the key of a channel's log.
    pub(crate) fn key(&self, host: &str, name: &str) -> Arc<str> {
        let prefix = self.config().map_or("", |config| &config.prefix);
        format!("{prefix}{{{host}{name}}}").into()
    }

    /// Returns a token that no other publication has.
    pub(crate) fn token(&self) -> Token {
        let number = self.tokens.1.fetch_add(1, Ordering::Relaxed);
        Token(u128::from(self.tokens.0) << 64 | u128::from(number))
    }

    /// Whether a token is one of this server.
    pub(crate) fn has_made(&self, token: Token) -> bool {
        token.0 >> 64 == u128::from(self.tokens.0)
    }

    /// Appends a message. The outcome comes within the time that the configuration gives to a
    /// publication, give or take an attempt; not at all if the server ends before.
    pub(crate) fn publish(
        &self,
        append: Append,
    ) -> oneshot::Receiver<Result<Appended, Unpublished>> {
        self.queue.publish(append, time::now() + self.patience())
    }

    /// Looks at a log, which begins if there is none.
    ///
    /// # Errors
    ///
    /// If the broker is away, or refuses it.
    pub(crate) async fn look(&self, look: Look) -> Result<Looked, Unpublished> {
        let (answer, looked) = oneshot::channel();
        let until = time::now() + self.patience();
        self.queue.push(Command::Look(Question { look, until, answer }));
        looked.await.unwrap_or(Err(Unpublished::Away))
    }

    /// Tells the broker soon of the users of a channel who have come or left.
    pub(crate) fn attend(&self, attendee: Arc<dyn Attendee>) {
        self.queue.push(Command::Attend(attendee));
    }

    /// Returns users of a log, and one more than was asked for if there are more.
    ///
    /// # Errors
    ///
    /// If the broker is away, or refuses it.
    pub(crate) async fn members(&self, asked: MembersAsked) -> Result<Members, Unpublished> {
        let (answer, members) = oneshot::channel();
        let until = time::now() + self.patience();
        self.queue.push(Command::Members(MembersQuestion { asked, until, answer }));
        members.await.unwrap_or(Err(Unpublished::Away))
    }

    /// Reads a log from now on, as long as its follower is there. Messages of its channel have at
    /// most this many bytes.
    pub(crate) fn follow(&self, follower: Weak<dyn Follower>, largest: u64) {
        self.allow(largest);
        let mut shards = self.shards();
        let with_room = shards.iter().find(|shard| shard.len() < LOGS);
        let shard = match with_room {
            Some(shard) => shard.clone(),
            None if shards.len() < MOST_SHARDS => {
                let shard: Arc<Shard> = Arc::default();
                shards.push(shard.clone());
                let begin = self.begin.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(begin) = &*begin {
                    begin(shard.clone());
                }
                shard
            }
            None => match shards.iter().min_by_key(|shard| shard.len()) {
                Some(shard) => shard.clone(),
                None => return,
            },
        };
        drop(shards);
        if shard.add(follower) {
            self.queue.push(Command::Interrupt(shard));
        }
    }

    /// Expects messages of at most this many bytes.
    pub(crate) fn allow(&self, largest: u64) {
        self.largest.fetch_max(largest, Ordering::Relaxed);
    }

    fn largest(&self) -> u64 {
        self.largest.load(Ordering::Relaxed)
    }

    /// Whether messages can be published, and all logs are read.
    pub fn is_up(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
            && self.shards().iter().all(|shard| shard.is_up() || shard.len() == 0)
    }

    /// Ends the connections, and with them everything that waits for an answer.
    pub fn end(&self) {
        self.queue.close();
        self.shards().iter().for_each(|shard| shard.close());
    }

    fn is_connected(&self, is_connected: bool) {
        self.is_connected.store(is_connected, Ordering::Relaxed);
        self.recovers();
    }

    /// Reports that all is well again, if it was not.
    fn recovers(&self) {
        if self.is_up() && self.is_reported.swap(false, Ordering::Relaxed) {
            let text = format!("{self} is back");
            (self.report)(&Event::new(Level::Notice, "broker-up", text));
        }
    }

    /// Notes that a connection failed. The first failure of a time is reported.
    fn failed(&self, doing: &str, failure: &Failure) {
        self.counters.failures.fetch_add(1, Ordering::Relaxed);
        if doing == "publishing" {
            self.is_connected(false);
        }
        if !self.is_reported.swap(true, Ordering::Relaxed) {
            let Failure { what, .. } = failure;
            let text = format!(
                "{self}, {doing}: {what}; trying again, and until then nothing is published"
            );
            (self.report)(&Event::new(Level::Warning, "broker-down", text));
        }
    }

    /// Reports something that is wrong with a log.
    pub(crate) fn warn(&self, text: String) {
        (self.report)(&Event::new(Level::Warning, "broker-log", text));
    }

    /// Counts the outcome of a publication, and reports a refusal now and then.
    fn count(&self, key: &str, outcome: &Result<Appended, Unpublished>) {
        static REFUSALS: RateLimited = RateLimited::new(Duration::from_secs(10));
        let Err(why) = outcome else {
            self.counters.published.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
        let what = match why {
            Unpublished::Full => "the broker has no memory left",
            Unpublished::Refused(what) => what,
            Unpublished::NotReplicated => "too few replicas have it in time",
            Unpublished::Away | Unpublished::Unknown | Unpublished::Busy => return,
        };
        if let Some(left_out) = REFUSALS.admit() {
            let more = others(left_out);
            self.warn(format!("a message for the log {key} was not published: {what}{more}"));
        }
    }
}

impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.engine {
            Engine::Redis(config) => write!(f, "the broker {}", config.url),
            Engine::Supervisor(_) => f.write_str("the log of the processes"),
        }
    }
}

superpoll::debug_fields!(Broker, it => engine: it.engine, is_up: it.is_up());
