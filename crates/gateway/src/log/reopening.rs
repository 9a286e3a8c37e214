//! Opening all logs of a process again, after their files were moved away.

use superpoll_rt::blocking;

use super::writer::Reopening;
use super::{Event, Level};
use crate::admin::ReopenedLogs;

/// Opens some logs again, on a thread that may wait for a disk. The outcome is reported as well:
/// a signal has no other answer.
pub(crate) async fn reopen(logs: Vec<Reopening>, report: impl Fn(&Event)) -> ReopenedLogs {
    let run = move || {
        let mut reopened = ReopenedLogs::default();
        for log in logs {
            match log.run() {
                Ok(path) => reopened.paths.push(path),
                Err(why) => reopened.failures.push(why),
            }
        }
        reopened
    };
    let reopened = blocking::unblock(run).await.unwrap_or_else(|error| {
        let failures = vec![format!("reopening the logs: {error}")];
        ReopenedLogs { failures, ..ReopenedLogs::default() }
    });
    for path in &reopened.paths {
        let message = format!("reopened the log {}", path.display());
        report(&Event::new(Level::Info, "log-reopened", message));
    }
    for failure in &reopened.failures {
        report(&Event::new(Level::Error, "log-failed", failure.as_str()));
    }
    reopened
}
