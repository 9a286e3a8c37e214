//! A subject in a process of its own.
//!
//! A runtime that starts threads makes every descriptor lookup of its process more expensive, and a
//! thousand pipes for each subject would not fit into one table of descriptors. So each subject
//! lives in a child, forked while there is one thread, and takes its turn on command: one line
//! orders a number of laps, one line returns the measurements. The parent sleeps meanwhile, as do
//! all the other subjects.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;

use serde::{Deserialize, Serialize};
use superpoll::BackendKind;

use crate::error::{Doing, Error, Result};
use crate::ring::course::Course;
use crate::ring::stage::{Slice, Stage};
use crate::ring::subject::Subject;
use crate::second_thread::SecondThread;
use crate::sys::{descriptor, process};

/// A line from the child.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Ready,
    Done(Slice),
    /// The child cannot do the work.
    Failed(String),
    /// The child did not do the work.
    Wrong(String),
}

impl From<Error> for Answer {
    fn from(error: Error) -> Answer {
        match error {
            Error::Work { found, .. } => Answer::Wrong(found),
            other => Answer::Failed(other.to_string()),
        }
    }
}

const GONE: &str = "its process ended without an answer";

/// The parent's end.
#[derive(Debug)]
pub(super) struct Remote {
    /// The subject.
    pub entry: Subject,
    _child: process::Child,
    commands: File,
    answers: BufReader<File>,
}

impl Remote {
    /// Forks the child and makes it set the subject up.
    pub(super) fn start(
        entry: Subject,
        course: &Course,
        backend: BackendKind,
        second_thread: bool,
    ) -> Result<Remote> {
        let failed = |source| Error::system("starting a subject's process", source);
        let (orders, commands) = descriptor::pipe().map_err(failed)?;
        let (answers, replies) = descriptor::pipe().map_err(failed)?;
        for end in [&orders, &commands, &answers, &replies] {
            descriptor::set_blocking(end.as_raw_fd(), true).map_err(failed)?;
        }
        let child = process::fork(|| {
            descriptor::close_all_but(&mut [orders.as_raw_fd(), replies.as_raw_fd()]);
            process::survive_broken_pipes();
            let _second = second_thread.then(SecondThread::start);
            serve(entry, course, backend, &orders.into(), &replies.into());
        })
        .map_err(failed)?;
        let mut remote = Remote {
            entry,
            _child: child,
            commands: commands.into(),
            answers: BufReader::new(answers.into()),
        };
        remote.answer()?;
        Ok(remote)
    }

    /// Makes the subject take all bytes round `laps` times.
    pub(super) fn go(&mut self, laps: u64) -> Result<Slice> {
        writeln!(self.commands, "{laps}")
            .doing(format_args!("asking {} for laps", self.entry.name))?;
        self.answer()?.ok_or_else(|| self.wrong(GONE))
    }

    /// Reads a line: the measurements, or none if the child is ready.
    fn answer(&mut self) -> Result<Option<Slice>> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        match (read, serde_json::from_str(&line)) {
            (Ok(1..), Ok(Answer::Ready)) => Ok(None),
            (Ok(1..), Ok(Answer::Done(slice))) => Ok(Some(slice)),
            (Ok(1..), Ok(Answer::Failed(reason))) => Err(Error::Usage(reason)),
            (Ok(1..), Ok(Answer::Wrong(found))) => Err(self.wrong(found)),
            _ => Err(self.wrong(GONE)),
        }
    }

    fn wrong(&self, found: impl Into<String>) -> Error {
        Error::Work { subject: self.entry.name, found: found.into() }
    }
}

/// The child's part: runs until there are no more commands, or no reader for the answers.
fn serve(entry: Subject, course: &Course, backend: BackendKind, orders: &File, mut replies: &File) {
    let mut reply = |answer: &Answer| {
        let line = serde_json::to_string(answer).unwrap_or_default();
        writeln!(replies, "{line}").is_ok()
    };
    process::watch(entry.name);
    let mut stage = match Stage::set_up(entry, course.clone(), backend) {
        Ok(stage) => stage,
        Err(error) => {
            reply(&error.into());
            return;
        }
    };
    process::unwatch();
    if !reply(&Answer::Ready) {
        return;
    }
    for line in BufReader::new(orders).lines() {
        let Some(laps) = line.ok().and_then(|line| line.parse().ok()) else { return };
        process::watch(entry.name);
        let answer = match stage.go(laps) {
            Ok(slice) => Answer::Done(slice),
            Err(error) => error.into(),
        };
        process::unwatch();
        if !reply(&answer) {
            return;
        }
    }
}
