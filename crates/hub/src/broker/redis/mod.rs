//! Logs in Redis or Valkey: a stream for each channel.
//!
//! The id of an entry in the stream is its position. Redis gives ids out by its clock unless it is
//! told one, and compares them as two numbers, as positions are compared: a reader that is
//! blocked after the last entry of a stream that is then removed and written again sees the first
//! entry of the new one. Both scripts take the next position from the last entry, so no other key
//! has to keep step with the stream.
//!
//! A server that has restarted, or a replica that was promoted, may lack the last entries of a
//! stream. Each of our servers notices when it looks, as long as no other one has appended in their
//! place. So the first server that connects to another process of Redis notes the time, and for a
//! moment from then on all servers only look (`settle.lua`).
//!
//! Next to the stream `PREFIX{NAME}` there are `PREFIX{NAME}:history`, the number of entries that
//! the server wants that wants the most, and `PREFIX{NAME}:KEY` for each publication of the last
//! minutes, with its position: a repeated one is found there. A channel with users has
//! `PREFIX{NAME}:users`, `:names` and `:servers`, and `:users:SERVER` with those of each server,
//! which expire with the servers. The braces put all of them in one slot of a cluster.
//!
//! The connection is that of the crate `redis`, on our streams by tokio's I/O traits. Limits on
//! time are ours: the crate's need a runtime of tokio.

mod connect;
mod reply;

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, ServerErrorKind, Value, cmd};
use superpoll_http::upstream;
use superpoll_rt::{Handle, JoinHandle};

use super::log::{
    Append, Appended, Attend, Attendance, Attended, BLOCK, Entry, Failure, LEASE, LogOptions,
    LogPosition, Look, Looked, Members, MembersAsked, MessageLog, Position, Refusal, digest,
};
use super::{Broker, publisher};
use connect::Connector;

const APPEND: &str = concat!(include_str!("common.lua"), include_str!("append.lua"));
const SETTLE: &str = include_str!("settle.lua");
const ATTEND: &str = concat!(include_str!("common.lua"), include_str!("attend.lua"));
const MEMBERS: &str = include_str!("members.lua");
const LOOK: &str = concat!(include_str!("common.lua"), include_str!("look.lua"));

/// How long a publication is known by its client's key.
const KNOWN: Duration = Duration::from_secs(300);

/// How much longer than it is tried a publication without a key is known.
const LATE: Duration = Duration::from_secs(10);

/// How long the number of entries that a server wants counts. Servers say it again in less time.
const WANTED: Duration = Duration::from_secs(60);

/// The time in which all servers look at the logs before any of them appends or reads, after the
/// process of Redis has changed. They try to connect at least twice in it.
const GRACE: Duration = Duration::from_millis(1500);

/// How long an attempt waits for replicas to have a message; less than
/// [`LAST_ATTEMPT`](super::publisher::LAST_ATTEMPT).
const REPLICATION: Duration = Duration::from_millis(200);

/// Returns the connector of a configuration.
///
/// # Errors
///
/// The mistake in words, if the certificates cannot be read.
pub(crate) fn connector(config: &superpoll_config::Broker) -> Result<Connector, String> {
    let tls = config.ca.as_deref().map(|ca| upstream::client_tls(ca, &[])).transpose();
    let tls = tls.map_err(|error| error.to_string())?;
    let (url, prefix) = (config.url.clone(), config.prefix.clone());
    let (replicas, publish) = (config.replicas, config.publish);
    Ok(Connector { url, tls, replicas, publish, prefix })
}

/// Connects once, to find out whether the broker can be used. A broker that is away is no error.
///
/// # Errors
///
/// The setting that has to change, in words.
pub async fn check(config: &superpoll_config::Broker) -> Result<(), String> {
    match publisher::connect(&connector(config)?, publisher::CONNECT).await {
        Err(failure) if failure.is_lasting => {
            Err(format!("the broker {}: {}", config.url, failure.what))
        }
        _ => Ok(()),
    }
}

/// Begins to work with the broker of a configuration.
///
/// # Errors
///
/// The mistake in words; or the runtime has ended.
pub(super) fn start(
    broker: &Arc<Broker>,
    config: &superpoll_config::Broker,
    handle: &Handle,
) -> Result<(), String> {
    broker.start(handle, connector(config)?).map_err(|error| error.to_string())
}

/// The scripts, which a connection loads.
#[derive(Clone, Debug)]
struct Scripts {
    append: String,
    look: String,
    attend: String,
    members: String,
    settle: String,
}

/// A connection to a server of Redis or Valkey.
pub(crate) struct RedisLog {
    connection: MultiplexedConnection,
    /// Moves the bytes as long as the connection is used.
    driver: Driver,
    scripts: Scripts,
    name: i64,
    replicas: u32,
    /// How long a publication without a key is known.
    retried: Duration,
    /// The process of the server.
    run: String,
    /// The keys of the process that was there last, and of when it came.
    keys: (String, String),
}

/// The task that moves the bytes of a connection. It ends with the connection, even if an answer is
/// still to come.
struct Driver(RefCell<JoinHandle<()>>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.get_mut().abort();
    }
}

fn millis(time: Option<Duration>) -> u64 {
    time.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1))
}

/// Adds the last entry that the server has.
fn add_place(command: &mut Cmd, place: LogPosition) {
    let token = place.token.map_or(String::new(), |token| token.to_string());
    command.arg(place.at.epoch).arg(place.at.id).arg(token);
}

/// Returns the key of the number of entries that are kept.
fn length_key(log: &LogOptions) -> String {
    format!("{}:history", log.key)
}

/// Returns the keys of the users of a log, of their names in order, and of the servers that have
/// them.
fn user_keys(key: &str) -> [String; 3] {
    ["users", "names", "servers"].map(|name| format!("{key}:{name}"))
}

/// Returns a failure of a connection.
fn broken(error: &RedisError) -> Failure {
    Failure::passing(reply::words(error))
}

impl RedisLog {
    async fn all(&self, pipeline: &Pipeline) -> Result<Vec<Value>, Failure> {
        let mut connection = self.connection.clone();
        let replies = connection.send_packed_commands(pipeline, 0, pipeline.len()).await;
        replies.map_err(|error| broken(&error))
    }

    async fn one(&self, command: &Cmd) -> Result<Value, Failure> {
        let mut connection = self.connection.clone();
        connection.send_packed_command(command).await.map_err(|error| broken(&error))
    }

    fn append_command(&self, message: &Append) -> Cmd {
        let Append { log, place, token, key, payload } = message;
        // A client's key may have any character, and no stream has a name that ends in a digest.
        let (record, known) = match key {
            Some(key) => (format!("{}:key:{}", log.key, digest(&[key.text.as_bytes()])), KNOWN),
            None => (format!("{}:{token}", log.key), self.retried),
        };
        let content = key.as_ref().map_or("", |key| &key.content);
        let mut command = cmd("EVALSHA");
        command.arg(&self.scripts.append).arg(3);
        command.arg(&*log.key).arg(record).arg(length_key(log));
        command.arg(log.history.max(1)).arg(millis(log.idle)).arg(millis(Some(known)));
        command.arg(token.to_string()).arg(content);
        add_place(&mut command, *place);
        command.arg("d").arg(&payload.data[..]).arg("k").arg(token.to_string());
        if payload.is_text {
            command.arg("t").arg(1);
        }
        if let Some(meta) = &payload.meta {
            command.arg("m").arg(&meta[..]);
        }
        command
    }
}

impl RedisLog {
    fn attend_command(&self, attend: &Attend) -> Cmd {
        let Attend { log, place, server, changes, users, spare } = attend;
        let mut command = cmd("EVALSHA");
        command.arg(&self.scripts.attend).arg(5).arg(&*log.key).arg(length_key(log));
        for key in user_keys(&log.key) {
            command.arg(key);
        }
        command.arg(log.history.max(1)).arg(millis(log.idle));
        add_place(&mut command, *place);
        command.arg(format!("{server:016x}")).arg(millis(Some(LEASE))).arg(users);
        command.arg(spare.len());
        for token in spare {
            command.arg(token.to_string());
        }
        for Attendance { user, info, is_here, token } in changes {
            let info = info.as_deref().unwrap_or("");
            command.arg(u8::from(*is_here)).arg(&**user).arg(info).arg(token.to_string());
        }
        command
    }
}

/// Returns the reply to a script, or why it was refused.
///
/// # Errors
///
/// A server that has forgotten the scripts, or is a replica now, is of no use any more.
fn checked(reply: Value) -> Result<Result<Vec<Value>, Refusal>, Failure> {
    let error = match reply {
        Value::Array(values) => return Ok(Ok(values)),
        Value::ServerError(error) => error,
        other => return Err(Failure::passing(format!("an answer of another kind: {other:?}"))),
    };
    let details = error.details().unwrap_or("").to_owned();
    let what = format!("{} {details}", error.code()).trim_end().to_owned();
    if error.code() == "OOM" || details.contains("OOM ") {
        return Ok(Err(Refusal::Full));
    }
    match error.kind() {
        Some(
            ServerErrorKind::NoScript
            | ServerErrorKind::ReadOnly
            | ServerErrorKind::MasterDown
            | ServerErrorKind::BusyLoading,
        ) => Err(Failure::passing(what)),
        // A script reports an error of a command by its own.
        _ if details.contains("READONLY") || error.code() == "UNBLOCKED" => {
            Err(Failure::passing(what))
        }
        _ if ["BUSY", "MISCONF", "NOREPLICAS", "TRYAGAIN", "CLUSTERDOWN"]
            .contains(&error.code()) =>
        {
            Ok(Err(Refusal::Later(what)))
        }
        _ => Ok(Err(Refusal::Wrong(what))),
    }
}

impl MessageLog for RedisLog {
    async fn append(&self, messages: &[Append]) -> Result<Vec<Result<Appended, Refusal>>, Failure> {
        let mut pipeline = Pipeline::with_capacity(messages.len() + 1);
        for message in messages {
            pipeline.add_command(self.append_command(message));
        }
        if self.replicas > 0 {
            pipeline.cmd("WAIT").arg(self.replicas).arg(millis(Some(REPLICATION)));
        }
        let mut replies = self.all(&pipeline).await?.into_iter();
        let mut outcomes = Vec::with_capacity(messages.len());
        for reply in replies.by_ref().take(messages.len()) {
            outcomes.push(match checked(reply)? {
                Ok(values) => Ok(reply::appended(&values)?),
                Err(refusal) => Err(refusal),
            });
        }
        if self.replicas > 0 {
            let copies = match replies.next() {
                Some(Value::Int(copies)) => copies,
                other => return Err(Failure::passing(format!("the answer to WAIT: {other:?}"))),
            };
            if copies < i64::from(self.replicas) {
                for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
                    *outcome = Err(Refusal::NotReplicated);
                }
            }
        }
        Ok(outcomes)
    }

    async fn look(&self, looks: &[Look]) -> Result<Vec<Result<Looked, Refusal>>, Failure> {
        let mut pipeline = Pipeline::with_capacity(looks.len());
        for Look { log, place } in looks {
            let mut command = cmd("EVALSHA");
            command.arg(&self.scripts.look).arg(2).arg(&*log.key).arg(length_key(log));
            command.arg(log.history.max(1)).arg(millis(log.idle)).arg(millis(Some(WANTED)));
            add_place(&mut command, place.unwrap_or_default());
            pipeline.add_command(command);
        }
        let mut outcomes = Vec::with_capacity(looks.len());
        for reply in self.all(&pipeline).await? {
            outcomes.push(match checked(reply)? {
                Ok(values) => Ok(reply::looked(&values)?),
                Err(refusal) => Err(refusal),
            });
        }
        Ok(outcomes)
    }

    async fn attend(&self, all: &[Attend]) -> Result<Vec<Result<Attended, Refusal>>, Failure> {
        let mut pipeline = Pipeline::with_capacity(all.len());
        for attend in all {
            pipeline.add_command(self.attend_command(attend));
        }
        let mut outcomes = Vec::with_capacity(all.len());
        for reply in self.all(&pipeline).await? {
            outcomes.push(match checked(reply)? {
                Ok(values) => Ok(reply::attended(&values)?),
                Err(refusal) => Err(refusal),
            });
        }
        Ok(outcomes)
    }

    async fn members(&self, asked: &MembersAsked) -> Result<Result<Members, Refusal>, Failure> {
        let MembersAsked { key, after, count } = asked;
        let [users, names, _] = user_keys(key);
        let mut command = cmd("EVALSHA");
        command.arg(&self.scripts.members).arg(3).arg(&**key).arg(users).arg(names);
        command.arg(after.as_deref().unwrap_or("")).arg(count + 1);
        match checked(self.one(&command).await?)? {
            Ok(values) => Ok(Ok(reply::members(values)?)),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    async fn read(
        &self,
        places: &[(Arc<str>, Position)],
        count: usize,
    ) -> Result<Vec<(usize, Vec<Entry>)>, Failure> {
        let mut command = cmd("XREAD");
        command.arg("COUNT").arg(count).arg("BLOCK").arg(millis(Some(BLOCK))).arg("STREAMS");
        for (key, _) in places {
            command.arg(&**key);
        }
        for (_, position) in places {
            command.arg(position.to_string());
        }
        match self.one(&command).await? {
            Value::Nil => Ok(Vec::new()),
            Value::Array(streams) => reply::entries(streams, places),
            Value::ServerError(error) => {
                Err(Failure::passing(format!("{} {}", error.code(), error.details().unwrap_or(""))))
            }
            other => Err(Failure::passing(format!("an answer of another kind: {other:?}"))),
        }
    }

    async fn settling(&self) -> Result<Duration, Failure> {
        let mut command = cmd("EVALSHA");
        command.arg(&self.scripts.settle).arg(2).arg(&self.keys.0).arg(&self.keys.1);
        command.arg(&self.run);
        let values = match checked(self.one(&command).await?)? {
            Ok(values) => values,
            Err(refusal) => return Err(Failure::passing(refusal.to_string())),
        };
        let since = Duration::from_micros(reply::number(values.first())?);
        Ok(GRACE.saturating_sub(since))
    }

    fn name(&self) -> i64 {
        self.name
    }

    async fn interrupt(&self, name: i64) -> Result<(), Failure> {
        let mut command = cmd("CLIENT");
        command.arg("UNBLOCK").arg(name);
        match self.one(&command).await? {
            Value::ServerError(error) => Err(Failure::lasting(format!(
                "CLIENT UNBLOCK: {} {}",
                error.code(),
                error.details().unwrap_or("")
            ))),
            _ => Ok(()),
        }
    }

    async fn closed(&self) {
        let ended = |cx: &mut Context<'_>| Pin::new(&mut *self.driver.0.borrow_mut()).poll(cx);
        // Whether it has panicked makes no difference.
        let _ = poll_fn(ended).await;
    }
}
