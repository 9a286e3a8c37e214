//! The logs: a line for each request, and the events of the server.
//!
//! An engine never waits for a disk. It hands lines over to one thread that writes, lines of
//! requests many at a time. If the thread cannot keep up, lines are left out rather than requests
//! delayed. If it cannot write, because the disk is full or the file system gone, it reports that
//! once in a while and goes on trying. A log that was moved away is begun anew when the
//! configuration is read again, as `logrotate` expects. Frequent events are rate-limited.

mod error_log;
mod event;
mod line;
mod log_level;
mod rate_limited;
mod secrets;
#[cfg(test)]
mod tests;
mod writer;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use superpoll_rt::{Handle, spawn, time};

use crate::config::{AccessLog, LogFormat};
pub use error_log::ErrorLog;
pub use event::{Event, Level};
pub(crate) use line::Record;
pub use log_level::LogLevel;
pub(crate) use rate_limited::{RateLimited, others};
pub(crate) use writer::LogFailure;
use writer::Writer;

/// The most bytes that an engine collects.
const FULL: usize = 32 * 1024;

/// The longest time for which an engine collects.
const PERIOD: Duration = Duration::from_millis(250);

/// Receives each event, on the thread where it happens.
pub(crate) type Report = Arc<dyn Fn(&Event) + Send + Sync>;

/// An access log that is open.
pub(crate) struct Log {
    format: LogFormat,
    writer: Writer,
}

impl Log {
    /// Opens a log and begins to write to it.
    pub(crate) fn open(
        config: &AccessLog,
        report: impl Fn(&LogFailure) + Send + 'static,
    ) -> io::Result<Log> {
        let writer = Writer::open(&config.path, "access log", report)?;
        Ok(Log { format: config.format, writer })
    }
}

/// One engine's part of a log.
pub(crate) struct AccessLogWriter {
    log: Arc<Log>,
    lines: RefCell<Vec<u8>>,
    /// Whether a task will hand over the collected lines.
    is_due: Cell<bool>,
}

impl AccessLogWriter {
    pub(crate) fn new(log: Arc<Log>) -> Rc<AccessLogWriter> {
        Rc::new(AccessLogWriter { log, lines: RefCell::default(), is_due: Cell::new(false) })
    }

    /// Writes a request to the log.
    pub(crate) fn write(self: &Rc<AccessLogWriter>, record: &Record) {
        let mut lines = self.lines.borrow_mut();
        line::write(&mut lines, self.log.format, record);
        // Without an engine there is no task that could hand the lines over later.
        if lines.len() >= FULL || (!self.is_due.get() && Handle::current().is_err()) {
            self.log.writer.hand_over(std::mem::take(&mut *lines));
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
            self.log.writer.hand_over(lines);
        }
    }
}

impl Drop for AccessLogWriter {
    fn drop(&mut self) {
        self.flush();
    }
}
