//! A thread that writes, for threads that must not wait for a disk.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many pieces may wait to be written.
const WAITING: usize = 64;

/// The time between two reports of a failure.
const REMINDER: Duration = Duration::from_secs(60);

/// A failure of a log that goes on.
#[derive(Debug)]
pub(crate) struct LogFailure {
    what: &'static str,
    path: PathBuf,
    error: Option<io::Error>,
    lost: u64,
}

impl fmt::Display for LogFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "writing the {} {}: ", self.what, self.path.display())?;
        match &self.error {
            Some(error) => error.fmt(f)?,
            None => f.write_str("it is too slow")?,
        }
        write!(f, "; {} lines are lost so far", self.lost)
    }
}

/// The destination of lines.
enum Sink {
    File(File),
    Stderr,
}

/// Whether a path stands for standard error.
pub(super) fn is_stderr(path: &Path) -> bool {
    path.as_os_str() == "stderr"
}

impl Sink {
    fn open(path: &Path) -> io::Result<Sink> {
        if is_stderr(path) {
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

/// The thread that writes a log, for the threads that may wait for a disk. Dropping the last
/// reference waits until all lines are written.
pub(crate) struct WriterThread(Option<JoinHandle<()>>);

impl Drop for WriterThread {
    fn drop(&mut self) {
        // The thread panics only if `report` panics.
        let _ = self.0.take().map(JoinHandle::join);
    }
}

impl fmt::Debug for WriterThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WriterThread").finish()
    }
}

/// A log that is open. Dropping it closes the log, and waits until all lines are written unless its
/// thread is kept.
pub(super) struct Writer {
    // Dropped before the thread, which ends when it is closed.
    sender: SyncSender<Vec<u8>>,
    thread: Arc<WriterThread>,
    lost: Arc<AtomicU64>,
}

impl Writer {
    /// Opens a log, which messages call `what`, and begins to write to it. `report` receives
    /// failures, on the thread that writes.
    pub(super) fn open(
        path: &Path,
        what: &'static str,
        report: impl Fn(&LogFailure) + Send + 'static,
    ) -> io::Result<Writer> {
        let mut sink = Sink::open(path)?;
        let (sender, receiver): (_, Receiver<Vec<u8>>) = sync_channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let (path, losing) = (path.to_path_buf(), lost.clone());
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
                    report(&LogFailure { what, path: path.clone(), error, lost });
                }
            }
        };
        let thread = std::thread::Builder::new().name(what.to_owned()).spawn(write)?;
        let thread = Arc::new(WriterThread(Some(thread)));
        Ok(Writer { sender, thread, lost })
    }

    /// Returns the thread, so that the log can be dropped without waiting for it.
    pub(super) fn thread(&self) -> Arc<WriterThread> {
        self.thread.clone()
    }

    /// Hands lines over to be written; they are lost if too many wait already.
    pub(super) fn hand_over(&self, bytes: Vec<u8>) {
        if let Err(TrySendError::Full(bytes) | TrySendError::Disconnected(bytes)) =
            self.sender.try_send(bytes)
        {
            self.lost.fetch_add(lines(&bytes), Ordering::Relaxed);
        }
    }
}
