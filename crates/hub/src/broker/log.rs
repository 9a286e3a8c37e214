//! The log of a channel, wherever it is: the trait that an engine for messages implements, its
//! requests and its answers.
//!
//! An entry has a [`Position`]: the epoch of the log, then an id from 1 without gaps. A log that
//! begins again, because its entries are gone, has a greater epoch. So positions only grow, and a
//! reader that waits behind any of them sees each new entry, whatever has happened to the log.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

/// A place in a log.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
pub(crate) struct Position {
    /// When the log began, in microseconds since 1970; zero: never.
    pub epoch: u64,
    /// The number of an entry, from 1; zero: before the first.
    pub id: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.id)
    }
}

/// Names one publication, whose repetitions have the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Token(pub u128);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The last entry that a reader has. A log that has another one there is not the log that it was.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct LogPosition {
    pub at: Position,
    /// `None`: not known, or there is no entry at that position.
    pub token: Option<Token>,
}

/// A log, and how it is kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct LogOptions {
    pub key: Arc<str>,
    /// The number of entries that are kept, as far as this server is concerned.
    pub history: u64,
    /// A log without publications and readers is removed after this time; `None`: never.
    pub idle: Option<Duration>,
}

/// A message as its publisher has sent it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Payload {
    pub data: Bytes,
    pub is_text: bool,
    /// The message's type, key and time to live, in JSON.
    pub meta: Option<Bytes>,
}

/// The content of an entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Content {
    /// The log began here.
    Begin,
    Message(Payload),
    /// No server has written this.
    Unreadable,
}

/// An entry of a log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub at: Position,
    pub token: Option<Token>,
    pub content: Content,
}

/// A message for the end of a log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Append {
    pub log: LogOptions,
    /// The last entry that the server has.
    pub place: LogPosition,
    pub token: Token,
    /// The publisher's key: no two publications with the same one are appended.
    pub key: Option<Key>,
    pub payload: Payload,
}

/// The key of a publication, and a digest of everything that a repetition has as well.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Key {
    pub text: String,
    /// Hexadecimal digits.
    pub content: String,
}

/// Returns a digest of some parts in hexadecimal digits: the first half of their SHA-256.
pub(crate) fn digest(parts: &[&[u8]]) -> String {
    let mut all = Context::new(&SHA256);
    for part in parts {
        all.update(&(part.len() as u64).to_le_bytes());
        all.update(part);
    }
    data_encoding::HEXLOWER.encode(&all.finish().as_ref()[..16])
}

/// A message that is in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Appended {
    /// By this publication, now or when it was tried before.
    Here(Position),
    /// By another publication with the same key and content.
    Before(Position),
    /// The key belongs to another message.
    OtherWithKey,
}

/// A log that a server looks at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Look {
    pub log: LogOptions,
    /// The last entry that the server has, if it has any. If the log is not that log any more, it
    /// begins again.
    pub place: Option<LogPosition>,
}

/// The state of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Looked {
    /// The last entry.
    pub last: Position,
    /// The first entry of the same epoch that is kept; the next one, if none is.
    pub first: u64,
    /// The number of entries that are kept, by the server that keeps the most.
    pub history: u64,
}

/// A user who has come to a server, or has left it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Attendance {
    pub user: Arc<str>,
    /// What others may know of the user, in JSON.
    pub info: Option<Arc<str>>,
    pub is_here: bool,
    /// Names the message that tells of it, if one does.
    pub token: Token,
}

/// The users of a log who are with one server, as far as they have changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Attend {
    pub log: LogOptions,
    /// The last entry that the server has.
    pub place: LogPosition,
    /// The number under which the server tells of them, which no other one has.
    pub server: u64,
    /// In order. Those that the log has already change nothing.
    pub changes: Vec<Attendance>,
    /// The number of users who are with the server then.
    pub users: u64,
    /// Name the messages that tell of users whose servers have gone.
    pub spare: Vec<Token>,
}

/// The users of a log after such a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Attended {
    /// Whether the log knows just the users of the server. If not, it has lost something, and the
    /// server tells of all of them again, under another number.
    pub is_complete: bool,
    /// Whether there are more users whose servers have gone than the tokens were enough for.
    pub has_more: bool,
}

/// A question for the users of a log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct MembersAsked {
    pub key: Arc<str>,
    /// The user after whom the list begins.
    pub after: Option<Arc<str>>,
    pub count: usize,
}

/// Users of a log, in the order of their names.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Members {
    /// The last entry of the log, whose users they are.
    pub last: u64,
    /// The number of all of them.
    pub users: u64,
    /// The name of each, and what others may know of it.
    pub page: Vec<(Arc<str>, Option<Arc<str>>)>,
}

/// How long the word of a server about its users counts. Servers say it again in less time
/// ([`reader`](super::reader)).
pub(crate) const LEASE: Duration = Duration::from_secs(20);

/// The reason for which a log refuses something. The connection is in order.
#[derive(Clone, PartialEq, Eq, thiserror::Error, Debug, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// It has no memory left.
    #[error("its memory is full")]
    Full,
    /// It may be possible soon.
    #[error("{0}")]
    Later(String),
    /// The message is in the log, and not yet in enough of its copies.
    #[error("too few replicas have the message")]
    NotReplicated,
    /// Something is wrong with this log, or with the rights of the server.
    #[error("{0}")]
    Wrong(String),
}

/// The reason for which a connection cannot be used, or not any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    pub what: String,
    /// Waiting does not help: someone has to change something.
    pub is_lasting: bool,
}

impl Failure {
    /// Returns a failure that may be over soon.
    pub(crate) fn passing(what: impl Into<String>) -> Failure {
        Failure { what: what.into(), is_lasting: false }
    }

    /// Returns a failure that is over only when someone has changed something.
    #[cfg(feature = "redis")]
    pub(crate) fn lasting(what: impl Into<String>) -> Failure {
        Failure { what: what.into(), is_lasting: true }
    }
}

/// How long a read waits for an entry.
pub(crate) const BLOCK: Duration = Duration::from_secs(5);

/// A connection to an engine that keeps logs. After an error it is not used again.
pub(crate) trait MessageLog: 'static {
    /// Appends messages in order. After a failure any of them may have been appended.
    async fn append(&self, messages: &[Append]) -> Result<Vec<Result<Appended, Refusal>>, Failure>;

    /// Looks at logs. One that there is not yet begins.
    async fn look(&self, looks: &[Look]) -> Result<Vec<Result<Looked, Refusal>>, Failure>;

    /// Notes which users are with a server. The first server that has a user, and the last one
    /// that loses it, make a message of the log with that, in one step. Users whose servers have
    /// not said for [`LEASE`] that they are there leave, unless it was the asking server that was
    /// not heard of.
    async fn attend(&self, all: &[Attend]) -> Result<Vec<Result<Attended, Refusal>>, Failure>;

    /// Returns users of a log, and one more than was asked for if there are more.
    async fn members(&self, asked: &MembersAsked) -> Result<Result<Members, Refusal>, Failure>;

    /// Reads the entries after positions, in order and at most `count` of each log, with the
    /// numbers of their logs. Waits for a while if there are none.
    async fn read(
        &self,
        places: &[(Arc<str>, Position)],
        count: usize,
    ) -> Result<Vec<(usize, Vec<Entry>)>, Failure>;

    /// Returns how long to wait before messages are appended or read. After a change of the
    /// engine's process its logs may lack their last entries, and every server is to look at them
    /// first.
    async fn settling(&self) -> Result<Duration, Failure>;

    /// Returns the name by which [`interrupt`](MessageLog::interrupt) knows the connection.
    fn name(&self) -> i64;

    /// Ends the wait of another connection's [`read`](MessageLog::read), if it waits.
    async fn interrupt(&self, name: i64) -> Result<(), Failure>;

    /// Ready when the connection is closed.
    async fn closed(&self);
}

/// Opens connections.
pub(crate) trait Connect: 'static {
    type Log: MessageLog;

    async fn connect(&self) -> Result<Self::Log, Failure>;
}
