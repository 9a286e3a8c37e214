//! A server in a process of its own, and the line to it.
//!
//! The parent forks while it has one thread. The child keeps the descriptors that it serves and the
//! line, moves to its processor, and reports that it is ready, or why it cannot be. After that it
//! receives a byte on the line only if it is a server that counts, and answers with its counters. A
//! server's processor time is read from its process' clock from outside, round by round. A load
//! generator on a processor of its own asks the servers in turn. `subject.rs` has the servers by
//! name, `program.rs` starts those that are programs (`caddy.rs` is one of them), and `trial.rs`
//! has the frame of an experiment with servers. `web.rs` has clients that ask for the same again
//! and again, `crowd.rs` thousands that are mostly silent, `wire.rs` the bytes that these receive,
//! and `http.rs` a client that asks once. `tls.rs` encrypts connections, and `http2.rs` puts
//! requests into frames. `fleet.rs` has our own server as a user starts it, with a keeper.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::second_thread::SecondThread;
use crate::sys::{descriptor, process, socket};

pub(crate) mod caddy;
pub(crate) mod clients;
pub(crate) mod crowd;
pub(crate) mod fleet;
pub(crate) mod http;
pub(crate) mod http2;
pub(crate) mod memory;
pub(crate) mod program;
pub(crate) mod subject;
pub(crate) mod tls;
pub(crate) mod trial;
pub(crate) mod web;
pub(crate) mod wire;

/// A child that reports nothing for this long never will.
const PATIENCE: Duration = Duration::from_secs(60);

/// System calls by name.
pub(crate) type Calls = BTreeMap<String, u64>;

/// The counters of a server since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Times its poller waited.
    pub waits: u64,
    /// Calls of `epoll_ctl`.
    pub epoll_ctl: u64,
    /// All system calls, if it counts them by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: Calls,
}

impl Counts {
    /// Adds those of another process.
    fn add(&mut self, other: Counts) {
        self.waits += other.waits;
        self.epoll_ctl += other.epoll_ctl;
        for (name, count) in other.calls {
            *self.calls.entry(name).or_default() += count;
        }
    }

    /// Returns the counters since a time before, without calls that were not made.
    pub(crate) fn since(mut self, before: &Counts) -> Counts {
        self.waits -= before.waits;
        self.epoll_ctl -= before.epoll_ctl;
        for (name, count) in &before.calls {
            self.calls.entry(name.clone()).and_modify(|own| *own -= count);
        }
        self.calls.retain(|_, count| *count > 0);
        self
    }
}

/// A line of the child's.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Ready,
    Counted(Counts),
    Failed(String),
}

/// The server's end of the line.
#[derive(Debug)]
pub(crate) struct Control {
    line: UnixStream,
}

impl Control {
    /// Creates the control of a server that answers on this line.
    pub(crate) fn new(line: UnixStream) -> Control {
        Control { line }
    }

    /// Reports that connections are welcome.
    pub(crate) fn ready(&mut self) -> Result<()> {
        self.say(&Answer::Ready)
    }

    /// Answers a question.
    pub(crate) fn counted(&mut self, counts: Counts) -> Result<()> {
        self.say(&Answer::Counted(counts))
    }

    /// Returns a stream on which a byte arrives for each question.
    pub(crate) fn questions(&self) -> Result<UnixStream> {
        self.line.try_clone().doing("duplicating the line to a server")
    }

    fn say(&mut self, answer: &Answer) -> Result<()> {
        let line = serde_json::to_string(answer).unwrap_or_default() + "\n";
        self.line.write_all(line.as_bytes()).doing("reporting to the parent")
    }
}

/// Where and how a server runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessOptions {
    /// Its only processor, if it is to have one.
    pub processor: Option<usize>,
    /// Whether its process has an idle thread in addition to the one that serves.
    pub second_thread: bool,
}

/// The parent's end: a server that runs until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    name: &'static str,
    counts: bool,
    child: process::Child,
    /// The line; `None` to a separate program.
    line: Option<BufReader<UnixStream>>,
}

impl Server {
    /// Forks the child, which keeps these descriptors and serves them. The parent requests counters
    /// only if it `counts`.
    pub(crate) fn start(
        name: &'static str,
        counts: bool,
        process: ProcessOptions,
        keeps: Vec<RawFd>,
        serve: impl FnOnce(&mut Control) -> Result<()>,
    ) -> Result<Server> {
        let mut server = Server::begin(name, counts, process, keeps, serve)?;
        server.until_ready()?;
        Ok(server)
    }

    /// Like [`start`](Server::start), for a server that accepts its connections. Returns the port
    /// as well.
    pub(crate) fn accepting(
        name: &'static str,
        counts: bool,
        process: ProcessOptions,
        serve: impl FnOnce(TcpListener, &mut Control) -> Result<()>,
    ) -> Result<(Server, u16)> {
        let failed = |source| Error::system("listening for a server's connections", source);
        let listener = socket::listen(0, false).map_err(failed)?;
        let port = socket::port(&listener).map_err(failed)?;
        let keeps = vec![listener.as_raw_fd()];
        let server = Server::start(name, counts, process, keeps, |control| {
            serve(TcpListener::from(listener), control)
        })?;
        Ok((server, port))
    }

    /// Like [`start`](Server::start), without waiting until connections are welcome.
    pub(crate) fn begin(
        name: &'static str,
        counts: bool,
        process: ProcessOptions,
        mut keeps: Vec<RawFd>,
        serve: impl FnOnce(&mut Control) -> Result<()>,
    ) -> Result<Server> {
        let failed = |source| Error::system("starting a server's process", source);
        let (line, theirs) = UnixStream::pair().map_err(failed)?;
        line.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        keeps.push(theirs.as_raw_fd());
        let child = process::fork(|| {
            descriptor::close_all_but(&mut keeps);
            process::survive_broken_pipes();
            let mut control = Control::new(theirs);
            if let Err(error) = run(process, &mut control, serve) {
                // If sending it fails, the parent is gone.
                let _ = control.say(&Answer::Failed(error.to_string()));
            }
        })
        .map_err(failed)?;
        Ok(Server { name, counts, child, line: Some(BufReader::new(line)) })
    }

    /// Takes a program that runs already, and that cannot be asked for anything.
    pub(crate) fn of_program(name: &'static str, child: process::Child) -> Server {
        Server { name, counts: false, child, line: None }
    }

    /// Waits until it reports that it is ready.
    pub(crate) fn until_ready(&mut self) -> Result<()> {
        match self.answer()? {
            Answer::Failed(reason) => Err(Error::Usage(reason)),
            _ => Ok(()),
        }
    }

    /// Returns whether its process has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.child.has_ended()
    }

    /// Returns the subject's name.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the number of its process.
    pub(crate) fn pid(&self) -> i32 {
        self.child.pid()
    }

    /// Returns the processor time that its process has used, in nanoseconds.
    pub(crate) fn processor_time(&self) -> Result<u64> {
        let name = self.name;
        self.child.processor_time().doing(format_args!("reading the processor time of {name}"))
    }

    /// Whether it can be asked for its counters.
    pub(crate) fn is_counting(&self) -> bool {
        self.counts
    }

    /// Returns its counters so far, if it counts.
    pub(crate) fn counts(&mut self) -> Result<Option<Counts>> {
        if !self.counts {
            return Ok(None);
        }
        let asking = |e| Error::system(format!("asking {} for its counters", self.name), e);
        if let Some(line) = &mut self.line {
            line.get_mut().write_all(b"?").map_err(asking)?;
        }
        match self.answer()? {
            Answer::Counted(counts) => Ok(Some(counts)),
            Answer::Failed(reason) => Err(Error::Usage(reason)),
            Answer::Ready => Err(self.gone()),
        }
    }

    fn answer(&mut self) -> Result<Answer> {
        let mut line = String::new();
        let read = self.line.as_mut().map(|own| own.read_line(&mut line));
        match (read, serde_json::from_str(&line)) {
            (Some(Ok(1..)), Ok(answer)) => Ok(answer),
            (Some(Err(error)), _) if error.kind() == ErrorKind::WouldBlock => {
                let found = format!("its process did not answer in {} s", PATIENCE.as_secs());
                Err(Error::Work { subject: self.name, found })
            }
            _ => Err(self.gone()),
        }
    }

    fn gone(&self) -> Error {
        let found = "its process ended without an answer".to_owned();
        Error::Work { subject: self.name, found }
    }
}

fn run(
    process: ProcessOptions,
    control: &mut Control,
    serve: impl FnOnce(&mut Control) -> Result<()>,
) -> Result<()> {
    if let Some(processor) = process.processor {
        process::pin(&[processor])
            .doing(format_args!("moving a server to processor {processor}"))?;
    }
    let _second = process.second_thread.then(SecondThread::start);
    serve(control)
}
