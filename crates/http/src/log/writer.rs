//! A thread that writes, for threads that must not wait for a disk.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use superpoll_config::LogPlace;

use super::syslog::SyslogSocket;

/// How many pieces may wait to be written.
const WAITING: usize = 64;

/// The time between two reports of a failure.
const REMINDER: Duration = Duration::from_secs(60);

/// How long no line must have been lost before the lost lines are reported.
const SETTLED: Duration = Duration::from_secs(1);

/// The longest time for which reopening a log waits for a line that is being written.
const REOPENING: Duration = Duration::from_secs(5);

/// How long a line must not have got longer before it counts as cut.
const UNDER_WAY: Duration = Duration::from_millis(20);

/// The longest time for which the end of a log waits for lines to be written.
const PATIENCE: Duration = Duration::from_secs(2);

superpoll::named! {
    /// The logs that a server has.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(super) enum LogKind {
        /// The log of events.
        Events = "log",
        /// The log of requests.
        Access = "access log",
    }
}

/// The lines that all logs of a kind have lost in this process, which a metric counts: each reload
/// opens other logs.
static LOST: [AtomicU64; LogKind::ALL.len()] = [const { AtomicU64::new(0) }; LogKind::ALL.len()];

/// Returns the lines that the logs of this process have lost: of the log of events and of the
/// access log, by the names of their tables in the configuration.
#[must_use]
pub fn lost_lines() -> [(&'static str, u64); 2] {
    let lost = |kind: LogKind| LOST[kind as usize].load(Ordering::Relaxed);
    [("log", lost(LogKind::Events)), ("access_log", lost(LogKind::Access))]
}

/// The reason for `ENXIO`.
const UNREAD: &str = "it is a FIFO that no process reads, or a socket";

/// Lines of a log that were lost.
#[derive(Debug)]
pub struct LogFailure {
    kind: LogKind,
    place: LogPlace,
    state: FailureState,
    lost: u64,
}

/// The state of a log that has lost lines.
#[derive(Debug)]
enum FailureState {
    Failing(io::Error),
    TooSlow,
    /// Lines are written again.
    Recovered,
    /// The log is closed; with the last error, if it was failing.
    Closed(Option<io::Error>),
}

impl LogFailure {
    /// Whether no further line is lost.
    fn is_over(&self) -> bool {
        matches!(self.state, FailureState::Recovered | FailureState::Closed(_))
    }

    /// Whether lines are written again.
    pub(super) fn has_recovered(&self) -> bool {
        matches!(self.state, FailureState::Recovered)
    }
}

impl fmt::Display for LogFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "writing the {} {}: ", self.kind.name(), self.place)?;
        let is_over = self.is_over();
        match &self.state {
            FailureState::Failing(error) | FailureState::Closed(Some(error)) => error.fmt(f)?,
            FailureState::TooSlow => f.write_str("it is too slow")?,
            FailureState::Recovered => f.write_str("lines are written again")?,
            FailureState::Closed(None) => f.write_str("it was too slow")?,
        }
        let (verb, when) = if is_over { ("were", "in all") } else { ("are", "so far") };
        write!(f, "; {} lines {verb} lost {when}", self.lost)
    }
}

/// The destination of lines.
enum Sink {
    File(File),
    Stderr,
    Syslog(SyslogSocket),
}

impl Sink {
    fn open(place: &LogPlace) -> io::Result<Sink> {
        match place {
            LogPlace::Stderr => Ok(Sink::Stderr),
            LogPlace::File(path) => Sink::open_file(path),
            LogPlace::Syslog(config) => Ok(Sink::Syslog(SyslogSocket::new(config.server.clone()))),
        }
    }

    fn open_file(path: &Path) -> io::Result<Sink> {
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

    /// Returns the length of a file whose last byte is known, and ends no line.
    fn length_within_a_line(&self) -> Option<u64> {
        let Sink::File(file) = self else { return None };
        let length = file.metadata().ok().filter(Metadata::is_file)?.len();
        // The log itself cannot be read; its path may have another file by now.
        let readable = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        let mut last = [0];
        readable.read_exact_at(&mut last, length.checked_sub(1)?).ok()?;
        (last != *b"\n").then_some(length)
    }

    /// Whether a file ends within a line that does not get longer.
    fn ends_within_a_line(&self) -> bool {
        let length = self.length_within_a_line();
        length.is_some() && {
            // Another process may be in the middle of its lines.
            std::thread::sleep(UNDER_WAY);
            self.length_within_a_line() == length
        }
    }

    /// Writes all bytes. An error comes with the number of bytes that were written before it.
    fn write(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        let Sink::File(file) = self else {
            return io::stderr().write_all(bytes).map_err(|error| (0, error));
        };
        let mut written = 0;
        while written < bytes.len() {
            match file.write(&bytes[written..]) {
                Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err((written, error)),
            }
        }
        Ok(())
    }
}

/// A line whose start is in a file that took no more, as when the disk is full.
struct CutLine {
    /// The device and the number of the file.
    file: (u64, u64),
    /// The offset of the end of the start; `None` in a file without offsets, such as a FIFO.
    end: Option<u64>,
    rest: Vec<u8>,
}

impl CutLine {
    /// Returns the line whose start was the last that was written to a file.
    fn new(sink: &mut Sink, rest: &[u8]) -> io::Result<CutLine> {
        let Sink::File(file) = sink else { return Err(io::ErrorKind::Unsupported.into()) };
        let metadata = file.metadata()?;
        // Not the length: other processes may append to the same log.
        let end = metadata.is_file().then(|| file.stream_position()).transpose()?;
        Ok(CutLine { file: (metadata.dev(), metadata.ino()), end, rest: rest.to_vec() })
    }

    /// Whether the last bytes of a file are the start of the line. They are not in another file, in
    /// one that was truncated, and in one that another process has appended to since.
    fn is_last_of(&self, sink: &Sink) -> bool {
        let Sink::File(file) = sink else { return false };
        file.metadata().is_ok_and(|metadata| {
            let is_same = self.file == (metadata.dev(), metadata.ino());
            is_same && self.end.is_none_or(|end| end == metadata.len())
        })
    }
}

/// The file of a log, which gets whole lines: one that was cut is completed before the next one.
struct Output {
    sink: Sink,
    /// No line was written to the file yet.
    is_new: bool,
    cut: Option<CutLine>,
    lost: Arc<LostLines>,
}

impl Output {
    /// Writes lines. Those that are not written are counted as lost.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Sink::Syslog(socket) = &mut self.sink {
            return socket.send(bytes).map_err(|(lost, error)| {
                self.lost.add(lost);
                error
            });
        }
        if let Err(error) = self.complete().and_then(|()| self.begin()) {
            self.lose(bytes);
            return Err(error);
        }
        let Err((written, error)) = self.sink.write(bytes) else { return Ok(()) };
        let (whole, mut rest) = bytes.split_at(written);
        if whole.last().is_some_and(|last| *last != b'\n') {
            let end = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
            if let Ok(cut) = CutLine::new(&mut self.sink, &rest[..end]) {
                (self.cut, rest) = (Some(cut), &rest[end..]);
            }
        }
        self.lose(rest);
        Err(error)
    }

    /// Ends the last line of a new file: another log may have left the start of one there, as at a
    /// crash.
    fn begin(&mut self) -> io::Result<()> {
        if self.is_new && self.sink.ends_within_a_line() {
            self.sink.write(b"\n").map_err(|(_, error)| error)?;
        }
        self.is_new = false;
        Ok(())
    }

    /// Writes the rest of the line that was cut, if there is one. It is lost if nothing can follow
    /// its start any more.
    fn complete(&mut self) -> io::Result<()> {
        let Some(mut cut) = self.cut.take() else { return Ok(()) };
        if !cut.is_last_of(&self.sink) {
            self.lose(&cut.rest);
            return Ok(());
        }
        self.sink.write(&cut.rest).map_err(|(written, error)| {
            cut.rest.drain(..written);
            cut.end = cut.end.map(|end| end + written as u64);
            self.cut = Some(cut);
            error
        })
    }

    fn lose(&self, bytes: &[u8]) {
        self.lost.add(lines(bytes));
    }

    /// Completes the line that was cut, at the end of the log; it is lost if this fails.
    fn close(&mut self) -> io::Result<()> {
        let completed = self.complete();
        if let Some(cut) = self.cut.take() {
            self.lose(&cut.rest);
        }
        completed
    }
}

/// The file that a thread is to write to in the place of the one before.
#[derive(Default)]
struct Exchange {
    state: Mutex<ExchangeState>,
    changed: Condvar,
}

#[derive(Default)]
struct ExchangeState {
    next: Option<Sink>,
    /// The thread has ended.
    has_ended: bool,
}

impl Exchange {
    /// Puts the next file, if there is one, in the place of `sink`. Returns whether it did.
    fn take_into(&self, sink: &mut Sink) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(next) = state.next.take() else { return false };
        let former = std::mem::replace(sink, next);
        drop(state);
        // Closing may last, and whoever waits may compress the file as soon as it is closed.
        drop(former);
        self.changed.notify_all();
        true
    }

    fn end(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.next, state.has_ended) = (None, true);
        drop(state);
        self.changed.notify_all();
    }
}

/// A log that is to be opened again at its path: the file was moved away.
pub struct Reopening {
    kind: LogKind,
    path: PathBuf,
    exchange: Arc<Exchange>,
    sender: SyncSender<Vec<u8>>,
}

impl Reopening {
    /// Opens the file, and waits until the former one gets no further line. This may wait for a
    /// disk.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, and the log continues with the former one; or that one takes no
    /// lines, and the log changes as soon as it does. In words.
    pub(crate) fn run(self) -> Result<PathBuf, String> {
        let Reopening { kind, path, exchange, sender } = self;
        let what = kind.name();
        let failed =
            |why: &dyn fmt::Display| format!("reopening the {what} {}: {why}", path.display());
        let sink = Sink::open_file(&path).map_err(|error| failed(&error))?;
        let mut state = exchange.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.next = Some(sink);
        drop(state);
        // A thread with lines to write looks by itself.
        let _ = sender.try_send(Vec::new());
        // The log can end while this waits.
        drop(sender);
        let state = exchange.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |state: &mut ExchangeState| state.next.is_some() && !state.has_ended;
        let waited = exchange.changed.wait_timeout_while(state, REOPENING, waits);
        match waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
            false => Ok(path),
            true => Err(failed(&"the former file takes no lines, and is left as soon as it does")),
        }
    }
}

/// The lines that a log has lost.
#[derive(Debug)]
pub(super) struct LostLines {
    kind: LogKind,
    count: AtomicU64,
}

impl LostLines {
    fn add(&self, lines: u64) {
        self.count.fetch_add(lines, Ordering::AcqRel);
        LOST[self.kind as usize].fetch_add(lines, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }
}

/// The count of the lines that a log has lost, and of those that were reported.
struct Losses<F> {
    lost: Arc<LostLines>,
    report: F,
    place: LogPlace,
    told: u64,
    told_at: Option<Instant>,
    /// The last report was of a log that fails or is too slow.
    is_failing: bool,
    seen: u64,
    seen_at: Instant,
    /// The error of the last write, if it failed.
    error: Option<io::Error>,
}

impl<F: Fn(&LogFailure) -> Vec<u8>> Losses<F> {
    /// Whether something is to be reported soon although no further line comes.
    fn is_due(&self) -> bool {
        self.error.is_none() && (self.is_failing || self.lost.get() > self.told)
    }

    /// Reports lost lines: of a log that fails or is too slow now and then, of one that has
    /// recovered once. Returns the lines about it for the log itself.
    fn look(&mut self) -> Vec<u8> {
        let lost = self.lost.get();
        if lost != self.seen {
            (self.seen, self.seen_at) = (lost, Instant::now());
        }
        let has_more = lost > self.told;
        if !has_more && !self.is_failing {
            return Vec::new();
        }
        let reminds = has_more && self.told_at.is_none_or(|at| at.elapsed() >= REMINDER);
        let state = match self.error.take() {
            Some(error) if reminds => FailureState::Failing(error),
            None if self.seen_at.elapsed() >= SETTLED => FailureState::Recovered,
            None if reminds => FailureState::TooSlow,
            error => {
                self.error = error;
                return Vec::new();
            }
        };
        self.tell(state, lost)
    }

    /// Reports the lines that were not reported yet, at the end of the log.
    fn close(&mut self) {
        let lost = self.lost.get();
        if lost > self.told {
            let state = FailureState::Closed(self.error.take());
            self.tell(state, lost);
        }
    }

    fn tell(&mut self, state: FailureState, lost: u64) -> Vec<u8> {
        (self.told, self.told_at) = (lost, Some(Instant::now()));
        self.is_failing = matches!(state, FailureState::Failing(_) | FailureState::TooSlow);
        let (kind, place) = (self.lost.kind, self.place.clone());
        let failure = LogFailure { kind, place, state, lost };
        let lines = (self.report)(&failure);
        // As long as no line is written it fails.
        if let FailureState::Failing(error) = failure.state {
            self.error = Some(error);
        }
        lines
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
pub struct WriterThread {
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

superpoll::debug_fields!(WriterThread, it => completion: it.completion);

/// The threads of earlier logs, some of which still write. Dropping it waits for all of them, for
/// at most about two seconds; those that engines use are waited for there.
#[derive(Debug, Default)]
pub struct FormerLogs(Vec<Arc<WriterThread>>);

impl FormerLogs {
    /// Adds the thread of a log that has another one in its place, without waiting.
    pub fn add(&mut self, thread: Arc<WriterThread>) {
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
    lost: Arc<LostLines>,
    place: LogPlace,
    exchange: Arc<Exchange>,
}

impl Writer {
    /// Opens a log, and begins to write to it. `report` receives failures, on the thread that
    /// writes, and returns lines about them for the log itself. The lines come after those of the
    /// log before, which may be of the same file, unless that one is stuck.
    pub(super) fn open(
        place: LogPlace,
        kind: LogKind,
        mut before: Option<Arc<Completion>>,
        report: impl Fn(&LogFailure) -> Vec<u8> + Send + 'static,
    ) -> io::Result<Writer> {
        let sink = Sink::open(&place)?;
        let (sender, receiver): (_, Receiver<Vec<u8>>) = sync_channel(WAITING);
        let lost = Arc::new(LostLines { kind, count: AtomicU64::new(0) });
        let output = Output { sink, is_new: true, cut: None, lost: lost.clone() };
        let mut losses = Losses {
            lost: lost.clone(),
            report,
            place: place.clone(),
            told: 0,
            told_at: None,
            is_failing: false,
            seen: 0,
            seen_at: Instant::now(),
            error: None,
        };
        let completion: Arc<Completion> = Arc::default();
        let completes = Completes(completion.clone());
        let exchange: Arc<Exchange> = Arc::default();
        let next = exchange.clone();
        let write = move || {
            // The file is closed before the thread counts as complete: closing may last, too.
            let (_completes, mut output) = (completes, output);
            loop {
                let received = match losses.is_due() {
                    true => receiver.recv_timeout(SETTLED),
                    false => receiver.recv().map_err(RecvTimeoutError::from),
                };
                let bytes = match received {
                    Ok(bytes) => bytes,
                    Err(RecvTimeoutError::Timeout) => Vec::new(),
                    Err(RecvTimeoutError::Disconnected) => break,
                };
                // The former file may have room for its last line again.
                let completed = output.complete();
                output.is_new |= next.take_into(&mut output.sink);
                if !bytes.is_empty() {
                    if let Some(before) = before.take() {
                        // Less than the end of this log waits.
                        before.wait(Instant::now() + PATIENCE / 2);
                    }
                    losses.error = output.write(&bytes).err();
                } else if let Err(error) = completed {
                    losses.error = Some(error);
                }
                let note = losses.look();
                if !note.is_empty() {
                    losses.error = output.write(&note).err();
                }
            }
            if let Err(error) = output.close() {
                losses.error = Some(error);
            }
            losses.close();
            next.end();
        };
        let thread = std::thread::Builder::new().name(kind.name().to_owned()).spawn(write)?;
        let is_given_up = AtomicBool::new(false);
        let thread = Arc::new(WriterThread { thread: Some(thread), completion, is_given_up });
        Ok(Writer { sender, thread, lost, place, exchange })
    }

    /// Returns the way to open the file again; `None`: standard error is no file, and a syslog
    /// server is found again without being asked for.
    pub(super) fn reopening(&self) -> Option<Reopening> {
        let LogPlace::File(path) = &self.place else { return None };
        let (path, exchange) = (path.clone(), self.exchange.clone());
        Some(Reopening { kind: self.lost.kind, path, exchange, sender: self.sender.clone() })
    }

    /// Returns the thread, so that the log can be dropped without waiting for it.
    pub(super) fn thread(&self) -> Arc<WriterThread> {
        self.thread.clone()
    }

    /// Returns whether all lines are written, for the log that comes in its place.
    pub(super) fn completion(&self) -> Arc<Completion> {
        self.thread.completion.clone()
    }

    /// Returns how many lines are lost.
    #[cfg(test)]
    pub(super) fn lost(&self) -> u64 {
        self.lost.get()
    }

    /// Hands lines over to be written; they are lost if too many wait already.
    pub(super) fn hand_over(&self, bytes: Vec<u8>) {
        if let Err(TrySendError::Full(bytes) | TrySendError::Disconnected(bytes)) =
            self.sender.try_send(bytes)
        {
            self.lost.add(lines(&bytes));
            // The thread may have written all that waits since, and then reports these.
            let _ = self.sender.try_send(Vec::new());
        }
    }
}
