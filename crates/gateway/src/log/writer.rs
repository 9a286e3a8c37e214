//! A thread that writes, for threads that must not wait for a disk.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// How many pieces may wait to be written.
const WAITING: usize = 64;

/// The time between two reports of a failure.
const REMINDER: Duration = Duration::from_secs(60);

/// The longest time for which the end of a log waits for lines to be written.
const PATIENCE: Duration = Duration::from_secs(2);

/// The reason for `ENXIO`.
const UNREAD: &str = "it is a FIFO that no process reads, or a socket";

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
        // Otherwise opening a FIFO would wait for a process that reads it.
        let flag = OFlags::NONBLOCK;
        let mut options = OpenOptions::new();
        options.append(true).create(true).custom_flags(flag.bits().cast_signed());
        let file = options.open(path).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NXIO) => io::Error::new(error.kind(), UNREAD),
            _ => error,
        })?;
        // The thread that writes may wait.
        fcntl_setfl(&file, fcntl_getfl(&file)? - flag)?;
        Ok(Sink::File(file))
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

/// Whether a thread has written all lines of its log, which is closed.
#[derive(Debug, Default)]
pub(super) struct Completion {
    is_complete: Mutex<bool>,
    changed: Condvar,
}

impl Completion {
    fn is_complete(&self) -> bool {
        *self.is_complete.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn complete(&self) {
        *self.is_complete.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits until all lines are written, at most until `end`. Returns whether they are.
    fn wait(&self, end: Instant) -> bool {
        let is_complete = self.is_complete.lock().unwrap_or_else(PoisonError::into_inner);
        let patience = end.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(is_complete, patience, |is| !*is);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Completes when it is dropped, after a panic as well.
struct Completes(Arc<Completion>);

impl Drop for Completes {
    fn drop(&mut self) {
        self.0.complete();
    }
}

/// The thread that writes a log, for the threads that may wait for a disk. Dropping the last
/// reference waits until all lines are written, for at most about two seconds. A thread that is
/// stuck longer is left alone, and its lines may be lost.
pub(crate) struct WriterThread {
    thread: Option<JoinHandle<()>>,
    completion: Arc<Completion>,
    is_given_up: AtomicBool,
}

impl WriterThread {
    /// Whether the log is closed and all of its lines are written.
    fn is_complete(&self) -> bool {
        self.completion.is_complete()
    }

    /// Waits until all lines are written, at most until `end`. Nothing waits for the thread after
    /// that.
    fn wait(&self, end: Instant) {
        if !self.completion.wait(end) {
            self.is_given_up.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        if !self.is_given_up.load(Ordering::Relaxed) {
            self.wait(Instant::now() + PATIENCE);
        }
        if self.is_complete() {
            // The thread panics only if `report` panics.
            let _ = self.thread.take().map(JoinHandle::join);
        }
    }
}

impl fmt::Debug for WriterThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriterThread").field("completion", &self.completion).finish_non_exhaustive()
    }
}

/// The threads of earlier logs, some of which still write. Dropping it waits for all of them, for
/// at most about two seconds; those that engines use are waited for there.
#[derive(Debug, Default)]
pub(crate) struct FormerLogs(Vec<Arc<WriterThread>>);

impl FormerLogs {
    /// Adds the thread of a log that has another one in its place, without waiting.
    pub(crate) fn add(&mut self, thread: Arc<WriterThread>) {
        self.0.retain(|thread| !thread.is_complete());
        self.0.push(thread);
    }
}

impl Drop for FormerLogs {
    fn drop(&mut self) {
        let end = Instant::now() + PATIENCE;
        self.0.iter().filter(|thread| Arc::strong_count(thread) == 1).for_each(|it| it.wait(end));
    }
}

/// A log that is open. Dropping it closes the log, and waits until all lines are written, for at
/// most about two seconds, unless its thread is kept.
pub(super) struct Writer {
    // Dropped before the thread, which ends when it is closed.
    sender: SyncSender<Vec<u8>>,
    thread: Arc<WriterThread>,
    lost: Arc<AtomicU64>,
}

impl Writer {
    /// Opens a log, which messages call `what`, and begins to write to it. `report` receives
    /// failures, on the thread that writes. The lines come after those of the log before, which may
    /// be of the same file, unless that one is stuck.
    pub(super) fn open(
        path: &Path,
        what: &'static str,
        mut before: Option<Arc<Completion>>,
        report: impl Fn(&LogFailure) + Send + 'static,
    ) -> io::Result<Writer> {
        let sink = Sink::open(path)?;
        let (sender, receiver): (_, Receiver<Vec<u8>>) = sync_channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let (path, losing) = (path.to_path_buf(), lost.clone());
        let mut told: Option<Instant> = None;
        let mut told_lost = 0;
        let completion: Arc<Completion> = Arc::default();
        let completes = Completes(completion.clone());
        let write = move || {
            // The file is closed before the thread counts as complete: closing may last, too.
            let (_completes, mut sink) = (completes, sink);
            for bytes in receiver {
                if let Some(before) = before.take() {
                    // Less than the end of this log waits.
                    before.wait(Instant::now() + PATIENCE / 2);
                }
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
        let is_given_up = AtomicBool::new(false);
        let thread = Arc::new(WriterThread { thread: Some(thread), completion, is_given_up });
        Ok(Writer { sender, thread, lost })
    }

    /// Returns the thread, so that the log can be dropped without waiting for it.
    pub(super) fn thread(&self) -> Arc<WriterThread> {
        self.thread.clone()
    }

    /// Returns whether all lines are written, for the log that comes in its place.
    pub(super) fn completion(&self) -> Arc<Completion> {
        self.thread.completion.clone()
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
