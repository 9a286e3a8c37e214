//! The logs: a line for each request, and the events of the server.
//!
//! An engine never waits for a disk. It hands lines over to one thread that writes, lines of
//! requests many at a time. If the thread cannot keep up, lines are left out rather than requests
//! delayed. If it cannot write, because the disk is full or the file system gone, it reports that
//! once in a while and continues trying; lost lines are counted and reported to the last one. The
//! end of a log waits a bounded time for it. A log that was moved away is opened again by SIGUSR1,
//! as `logrotate` expects, apart from the configuration: a mistake there must not cost lines.
//! Frequent events are rate-limited.

mod entry;
mod error_log;
mod event;
mod line;
mod log_level;
mod rate_limited;
mod record;
mod secrets;
mod syslog;
#[cfg(test)]
mod tests;
mod writer;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use superpoll_rt::{Handle, spawn, time};

pub use entry::{Entry, RelayEntry};
pub use error_log::ErrorLog;
pub use error_log::reopen;
pub use event::Event;
pub(crate) use line::cipher_suite;
pub use log_level::LogLevel;
pub use rate_limited::{RateLimited, others};
pub use record::{BrokenBy, ClientEnd, RelayRecord, RequestRecord, UpstreamEnd};
use superpoll_config::{AccessLog, LogFormat, LogPlace};
pub use superpoll_config::{Field, Level};
use syslog::{Header, Severity};
pub use writer::{FormerLogs, LogFailure, Reopening, WriterThread, lost_lines};
use writer::{LogKind, Writer};

/// The most bytes that an engine collects.
const FULL: usize = 32 * 1024;

/// The longest time for which an engine collects.
const PERIOD: Duration = Duration::from_millis(250);

/// Receives each event, on the thread where it happens.
pub type Report = Arc<dyn Fn(&Event) + Send + Sync>;

/// The access log that a server has now, for those who have an earlier one.
#[derive(Default)]
struct Latest {
    version: AtomicU64,
    log: Mutex<Weak<AccessLogSink>>,
}

/// An access log that is open.
pub struct AccessLogSink {
    format: LogFormat,
    fields: Vec<Field>,
    /// The beginning of each line for a syslog server.
    header: Option<Header>,
    writer: Writer,
    latest: Arc<Latest>,
    version: AtomicU64,
}

impl AccessLogSink {
    /// Opens a log, perhaps in the place of another one, once it has [begun](AccessLogSink::begin).
    pub fn open(
        config: &AccessLog,
        before: Option<&AccessLogSink>,
        report: impl Fn(&LogFailure) + Send + 'static,
    ) -> io::Result<AccessLogSink> {
        let place = config.place();
        let header = match &place {
            LogPlace::Syslog(syslog) => Some(Header::new(syslog)),
            LogPlace::Stderr | LogPlace::File(_) => None,
        };
        // Nothing but lines of requests is in it.
        let told = move |failure: &LogFailure| {
            report(failure);
            Vec::new()
        };
        let writer = Writer::open(place, LogKind::Access, None, told)?;
        let latest = before.map_or_else(Arc::default, |before| before.latest.clone());
        let (format, fields) = (config.format, config.fields.clone());
        Ok(AccessLogSink { format, fields, header, writer, latest, version: AtomicU64::new(0) })
    }

    /// Takes the place of the log before: lines of requests that have begun under that one come
    /// here as well. A log that was moved away gets no line after the change.
    pub fn begin(self: &Arc<AccessLogSink>) {
        let mut latest = self.latest.log.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = Arc::downgrade(self);
        let version = self.latest.version.load(Ordering::Relaxed) + 1;
        self.version.store(version, Ordering::Relaxed);
        self.latest.version.store(version, Ordering::Release);
    }

    /// Returns the log that is in the place of this one, if there is one.
    fn successor(&self) -> Option<Arc<AccessLogSink>> {
        let latest = self.latest.version.load(Ordering::Acquire);
        if self.version.load(Ordering::Relaxed) == latest {
            return None;
        }
        self.latest.log.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// Returns the thread that writes. As long as it is kept, no engine that drops the log waits
    /// for the disk.
    pub fn thread(&self) -> Arc<WriterThread> {
        self.writer.thread()
    }

    /// Returns the way to open the log's file again; `None` if it has none.
    pub fn reopening(&self) -> Option<Reopening> {
        self.writer.reopening()
    }

    /// Whether lines have the server names that clients ask for.
    pub fn has_server_names(&self) -> bool {
        self.format == LogFormat::Json && self.fields.contains(&Field::Sni)
    }
}

superpoll::debug_fields!(AccessLogSink, it => format: it.format);

/// One engine's part of a log.
pub struct AccessLogWriter {
    log: RefCell<Arc<AccessLogSink>>,
    /// Lines for this log.
    lines: RefCell<Vec<u8>>,
    /// Whether a task will hand over the collected lines.
    is_due: Cell<bool>,
}

impl AccessLogWriter {
    /// Returns an engine's writer to a log.
    pub fn new(log: Arc<AccessLogSink>) -> Rc<AccessLogWriter> {
        let log = RefCell::new(log);
        Rc::new(AccessLogWriter { log, lines: RefCell::default(), is_due: Cell::new(false) })
    }

    /// Returns the log.
    pub fn log(&self) -> Arc<AccessLogSink> {
        self.log.borrow().clone()
    }

    /// Writes to another log from now on.
    pub fn change(&self, log: Arc<AccessLogSink>) {
        self.flush();
        self.log.replace(log);
    }

    /// Writes a request to the log that is over after `took`.
    fn write(self: &Rc<AccessLogWriter>, record: &RequestRecord, took: Duration) {
        self.add(|lines, log| match log.format {
            LogFormat::Combined => line::combined(lines, record),
            LogFormat::Json => line::object(lines, &log.fields, record, took),
        });
    }

    /// Writes a relayed connection to the log that is over after `took`.
    fn write_relay(self: &Rc<AccessLogWriter>, record: &RelayRecord, took: Duration) {
        self.add(|lines, log| match log.format {
            LogFormat::Combined => line::relay_combined(lines, record),
            LogFormat::Json => line::relay_object(lines, &log.fields, record, took),
        });
    }

    /// Adds a line, and makes sure that it is handed over.
    fn add(self: &Rc<AccessLogWriter>, line: impl FnOnce(&mut Vec<u8>, &AccessLogSink)) {
        let successor = self.log.borrow().successor();
        if let Some(successor) = successor {
            self.change(successor);
        }
        let log = self.log.borrow();
        let mut lines = self.lines.borrow_mut();
        if let Some(header) = &log.header {
            header.write(&mut lines, Severity::Info, SystemTime::now(), "access");
        }
        line(&mut lines, &log);
        // Without an engine there is no task that could hand the lines over later.
        if lines.len() >= FULL || (!self.is_due.get() && Handle::current().is_err()) {
            log.writer.hand_over(std::mem::take(&mut *lines));
        } else if !self.is_due.replace(true) {
            let access_log = self.clone();
            let later = async move {
                time::sleep(PERIOD).await;
                access_log.is_due.set(false);
                access_log.flush();
            };
            spawn(later).detach();
        }
    }

    fn flush(&self) {
        let lines = self.lines.take();
        if !lines.is_empty() {
            self.log.borrow().writer.hand_over(lines);
        }
    }
}

impl Drop for AccessLogWriter {
    fn drop(&mut self) {
        self.flush();
    }
}
