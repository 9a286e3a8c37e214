//! The access log: a line for each request.
//!
//! An engine never waits for a disk. It collects lines and hands them over, many at a time, to one thread that
//! writes; if that cannot keep up, lines are left out rather than requests delayed, and if it cannot write, because
//! the disk is full or the file system gone, it says so once in a while and goes on trying. A log that was moved away
//! is begun anew when the configuration is read again, as `logrotate` expects.

mod line;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use superpoll_rt::{Handle, spawn, time};

use crate::config::{AccessLog, LogFormat};
pub(crate) use line::Record;

/// How much an engine collects at most.
const FULL: usize = 32 * 1024;

/// For how long an engine collects at most.
const PERIOD: Duration = Duration::from_millis(250);

/// How many such collections may wait to be written.
const WAITING: usize = 64;

/// How often a failure is told.
const REMINDER: Duration = Duration::from_secs(60);

/// What went wrong with a log that goes on.
#[derive(Debug)]
pub struct LogFailure {
    path: PathBuf,
    error: Option<io::Error>,
    lost: u64,
}

impl fmt::Display for LogFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "writing the access log {}: ", self.path.display())?;
        match &self.error {
            Some(error) => error.fmt(f)?,
            None => f.write_str("it is too slow")?,
        }
        write!(f, "; {} lines are lost so far", self.lost)
    }
}

/// Who is told of failures, on the thread that writes.
pub(crate) type Report = Arc<dyn Fn(&LogFailure) + Send + Sync>;

/// A log that is open.
pub(crate) struct Log {
    format: LogFormat,
    /// None while it is being closed.
    sender: Option<SyncSender<Vec<u8>>>,
    writer: Option<JoinHandle<()>>,
    lost: Arc<AtomicU64>,
}

/// Where lines go.
enum Sink {
    File(File),
    Stderr,
}

impl Sink {
    fn open(path: &Path) -> io::Result<Sink> {
        if path.as_os_str() == "stderr" {
            return Ok(Sink::Stderr);
        }
        OpenOptions::new().append(true).create(true).open(path).map(Sink::File)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Sink::File(file) => file.write_all(bytes),
            Sink::Stderr => io::stderr().write_all(bytes),
        }
    }
}

fn lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

impl Log {
    /// Opens a log and begins to write to it.
    pub(crate) fn open(config: &AccessLog, report: Report) -> io::Result<Log> {
        let mut sink = Sink::open(&config.path)?;
        let (sender, receiver): (_, Receiver<Vec<u8>>) = sync_channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let (path, losing) = (config.path.clone(), lost.clone());
        let mut told: Option<Instant> = None;
        let mut told_lost = 0;
        let write = move || {
            for bytes in receiver {
                let error = sink.write(&bytes).err();
                if error.is_some() {
                    losing.fetch_add(lines(&bytes), Ordering::Relaxed);
                }
                let lost = losing.load(Ordering::Relaxed);
                let is_due = told.is_none_or(|at| at.elapsed() >= REMINDER);
                if lost > told_lost && is_due {
                    told = Some(Instant::now());
                    told_lost = lost;
                    report(&LogFailure { path: path.clone(), error, lost });
                }
            }
        };
        let writer = std::thread::Builder::new().name("access log".to_owned()).spawn(write)?;
        Ok(Log { format: config.format, sender: Some(sender), writer: Some(writer), lost })
    }

    fn hand_over(&self, bytes: Vec<u8>) {
        let Some(sender) = &self.sender else { return };
        if let Err(TrySendError::Full(bytes) | TrySendError::Disconnected(bytes)) =
            sender.try_send(bytes)
        {
            self.lost.fetch_add(lines(&bytes), Ordering::Relaxed);
        }
    }
}

impl Drop for Log {
    /// Waits until all is written.
    fn drop(&mut self) {
        self.sender = None;
        if let Some(writer) = self.writer.take() {
            // It panics only with what it was told to report to.
            let _ = writer.join();
        }
    }
}

/// One engine's part of a log.
pub(crate) struct Pad {
    log: Arc<Log>,
    lines: RefCell<Vec<u8>>,
    /// Whether a task will hand over what there is.
    is_due: Cell<bool>,
}

impl Pad {
    pub(crate) fn new(log: Arc<Log>) -> Rc<Pad> {
        Rc::new(Pad { log, lines: RefCell::default(), is_due: Cell::new(false) })
    }

    /// Writes a request down.
    pub(crate) fn write(self: &Rc<Pad>, record: &Record) {
        let mut lines = self.lines.borrow_mut();
        line::write(&mut lines, self.log.format, record);
        // What ends with its engine has no later.
        if lines.len() >= FULL || (!self.is_due.get() && Handle::current().is_err()) {
            self.log.hand_over(std::mem::take(&mut *lines));
        } else if !self.is_due.replace(true) {
            let pad = self.clone();
            let later = async move {
                time::sleep(PERIOD).await;
                pad.is_due.set(false);
                pad.flush();
            };
            spawn(later).detach();
        }
    }

    fn flush(&self) {
        let lines = self.lines.take();
        if !lines.is_empty() {
            self.log.hand_over(lines);
        }
    }
}

impl Drop for Pad {
    fn drop(&mut self) {
        self.flush();
    }
}
