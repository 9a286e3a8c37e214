//! A server in a process of its own, and the line to it.
//!
//! The parent opens the listener and forks while it has one thread. The child moves to its processor and
//! says that it is ready, or why it cannot be; after that it hears a byte on the line only if it is a
//! server that counts, and answers with its counters. What a server takes is read off its process' clock
//! from outside.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};

use crate::channel;
use crate::error::{Error, Result};
use crate::http::subject::Entry;
use crate::second_thread::SecondThread;
use crate::sys::{descriptor, process, socket};

/// What a server has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Times its poller waited.
    pub waits: u64,
    /// Calls of `epoll_ctl`.
    pub epoll_ctl: u64,
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
pub struct Control {
    line: UnixStream,
}

impl Control {
    /// Says that connections are welcome.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if nobody hears it.
    pub fn ready(&mut self) -> Result<()> {
        self.say(&Answer::Ready)
    }

    /// Answers a question.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if nobody hears it.
    pub fn counted(&mut self, counts: &Counts) -> Result<()> {
        self.say(&Answer::Counted(*counts))
    }

    /// Where a byte arrives for each question.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if there are no descriptors left.
    pub fn questions(&self) -> Result<UnixStream> {
        self.line.try_clone().map_err(|e| Error::system("duplicating the line to a server", e))
    }

    fn say(&mut self, answer: &Answer) -> Result<()> {
        let line = serde_json::to_string(answer).unwrap_or_default() + "\n";
        self.line
            .write_all(line.as_bytes())
            .map_err(|e| Error::system("reporting to the parent", e))
    }
}

/// The parent's end: a server that runs until it is dropped.
#[derive(Debug)]
pub struct Server {
    entry: Entry,
    child: process::Child,
    line: BufReader<UnixStream>,
    port: u16,
}

impl Server {
    /// Forks the child, which serves on one processor.
    ///
    /// # Errors
    ///
    /// What the server says, or [`Error::System`] if no child can be had.
    pub fn start(entry: Entry, processor: Option<usize>, second_thread: bool) -> Result<Server> {
        let failed = |source| Error::system("starting a server's process", source);
        let listener = socket::listen(0, false).map_err(failed)?;
        // What it accepts inherits this.
        channel::plain_congestion(&listener);
        let port = socket::port(&listener).map_err(failed)?;
        let (line, theirs) = UnixStream::pair().map_err(failed)?;
        let child = process::fork(|| {
            descriptor::close_all_but(listener.as_raw_fd(), theirs.as_raw_fd());
            process::survive_broken_pipes();
            let mut control = Control { line: theirs };
            if let Err(error) = serve(entry, listener, &mut control, processor, second_thread) {
                // If nobody hears it the parent is gone.
                let _ = control.say(&Answer::Failed(error.to_string()));
            }
        })
        .map_err(failed)?;
        let mut server = Server { entry, child, line: BufReader::new(line), port };
        match server.answer()? {
            Answer::Failed(reason) => Err(Error::Usage(reason)),
            _ => Ok(server),
        }
    }

    /// The subject.
    pub fn entry(&self) -> Entry {
        self.entry
    }

    /// Where it listens, on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The processor time that its process has used, in nanoseconds.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the process is no more.
    pub fn processor_time(&self) -> Result<u64> {
        let name = self.entry.name;
        self.child
            .processor_time()
            .map_err(|e| Error::system(format!("reading the processor time of {name}"), e))
    }

    /// What it has done so far, if it counts.
    ///
    /// # Errors
    ///
    /// Why it does not answer.
    pub fn counts(&mut self) -> Result<Option<Counts>> {
        if !self.entry.counts {
            return Ok(None);
        }
        let asking = |e| Error::system(format!("asking {} for its counters", self.entry.name), e);
        self.line.get_mut().write_all(b"?").map_err(asking)?;
        match self.answer()? {
            Answer::Counted(counts) => Ok(Some(counts)),
            Answer::Failed(reason) => Err(Error::Usage(reason)),
            Answer::Ready => Err(self.gone()),
        }
    }

    fn answer(&mut self) -> Result<Answer> {
        let mut line = String::new();
        let read = self.line.read_line(&mut line);
        match (read, serde_json::from_str(&line)) {
            (Ok(1..), Ok(answer)) => Ok(answer),
            _ => Err(self.gone()),
        }
    }

    fn gone(&self) -> Error {
        let found = "its process ended without an answer".to_owned();
        Error::Work { subject: self.entry.name, found }
    }
}

fn serve(
    entry: Entry,
    listener: OwnedFd,
    control: &mut Control,
    processor: Option<usize>,
    second_thread: bool,
) -> Result<()> {
    if let Some(processor) = processor {
        process::pin(&[processor])
            .map_err(|e| Error::system(format!("moving a server to processor {processor}"), e))?;
    }
    let _second = second_thread.then(SecondThread::start);
    (entry.serve)(TcpListener::from(listener), control)
}
