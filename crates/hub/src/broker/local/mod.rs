//! Logs in another process of the same server: its supervisor, which lives longer than the workers.
//!
//! The [`store`] has the logs, [`service`] answers the workers, and this is the side of a
//! worker: one request at a time on each connection, as the tasks that use it make them. A read
//! that waits is interrupted through the publisher's connection, by its name.
//!
//! There is nothing to settle: the supervisor of an upgrade has all the logs of the one before, and
//! one that was killed has no logs, which therefore begin again.

pub mod service;
pub mod store;

use std::borrow::Cow;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use superpoll_http::ipc::{self, Purpose};
use superpoll_rt::net::unix::UnixStream;

use super::log::{
    Append, Appended, Attend, Attended, Connect, Entry, Failure, Look, Looked, Members,
    MembersAsked, MessageLog, Position, Refusal,
};

/// A request of a worker.
#[derive(Serialize, Deserialize)]
enum Request<'a> {
    Append(Cow<'a, [Append]>),
    Look(Cow<'a, [Look]>),
    Attend(Cow<'a, [Attend]>),
    Members(Cow<'a, MembersAsked>),
    Read { places: Cow<'a, [(Arc<str>, Position)]>, count: usize },
    Interrupt(i64),
}

/// The entries after some places, with the numbers of the places.
type Found = Vec<(usize, Vec<Entry>)>;

/// Opens connections to the log of a supervisor.
#[derive(Clone, Debug)]
pub struct Connector {
    /// The supervisor's name.
    pub name: Arc<str>,
}

/// A connection to the log.
pub(crate) struct LocalLog {
    stream: Rc<UnixStream>,
    name: i64,
}

fn broken(error: io::Error) -> Failure {
    Failure::passing(format!("the log of the processes: {error}"))
}

impl Connect for Connector {
    type Log = LocalLog;

    async fn connect(&self) -> Result<LocalLog, Failure> {
        let stream = ipc::connect(&self.name, Purpose::Log).await.map_err(broken)?;
        let name = ipc::receive(&stream).await.map_err(broken)?;
        let name = name.ok_or_else(|| broken(io::ErrorKind::UnexpectedEof.into()))?;
        Ok(LocalLog { stream: Rc::new(stream), name })
    }
}

impl LocalLog {
    async fn ask<T: DeserializeOwned>(&self, request: Request<'_>) -> Result<T, Failure> {
        ipc::send(&self.stream, &request).await.map_err(broken)?;
        let answer = ipc::receive(&self.stream).await.map_err(broken)?;
        answer.ok_or_else(|| broken(io::ErrorKind::UnexpectedEof.into()))
    }
}

impl MessageLog for LocalLog {
    async fn append(&self, messages: &[Append]) -> Result<Vec<Result<Appended, Refusal>>, Failure> {
        self.ask(Request::Append(messages.into())).await
    }

    async fn look(&self, looks: &[Look]) -> Result<Vec<Result<Looked, Refusal>>, Failure> {
        self.ask(Request::Look(looks.into())).await
    }

    async fn attend(&self, all: &[Attend]) -> Result<Vec<Result<Attended, Refusal>>, Failure> {
        self.ask(Request::Attend(all.into())).await
    }

    async fn members(&self, asked: &MembersAsked) -> Result<Result<Members, Refusal>, Failure> {
        self.ask(Request::Members(Cow::Borrowed(asked))).await
    }

    async fn read(&self, places: &[(Arc<str>, Position)], count: usize) -> Result<Found, Failure> {
        self.ask(Request::Read { places: places.into(), count }).await
    }

    async fn settling(&self) -> Result<Duration, Failure> {
        Ok(Duration::ZERO)
    }

    fn name(&self) -> i64 {
        self.name
    }

    async fn interrupt(&self, name: i64) -> Result<(), Failure> {
        self.ask(Request::Interrupt(name)).await
    }

    async fn closed(&self) {
        // Between two requests nothing comes but the end. A stream is readable until a read finds
        // nothing, so readiness alone says nothing.
        let is_open = |outcome: io::Result<usize>| {
            outcome.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        while self.stream.readable().await.is_ok() && is_open(self.stream.try_read(&mut [0])) {}
    }
}
