//! The server's own log: the events of the server, a line each.

use std::io::{self, Write, stderr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use serde::Serializer;
use serde_json::Value;
use superpoll_config::{self, Level, LogPlace, MessageFormat};
use superpoll_rt::blocking;

use super::event::Event;
use super::log_level::LogLevel;
use super::syslog::{Header, Severity};
use super::writer::{Completion, FormerLogs, LogFailure, LogKind, Reopening, Writer};
use crate::admin::ReopenedLogs;

/// The log of events, which any thread can write to without waiting for a disk.
pub struct ErrorLog {
    open: RwLock<Option<Open>>,
    former: Mutex<FormerLogs>,
    level: LogLevel,
}

struct Open {
    place: LogPlace,
    writer: Writer,
    form: Arc<Form>,
}

/// The form of a line.
enum Form {
    /// For people who read it at once, and need no message that all is well.
    Terminal,
    Text,
    Json,
    /// Text for a syslog server.
    SyslogText(Header),
    /// JSON for a syslog server.
    SyslogJson(Header),
}

/// Reports on standard error, as the last resort. A syslog server, which may be read on another
/// machine, gets the report as soon as it takes lines again.
fn report_failure(failure: &LogFailure, form: &Form) -> Vec<u8> {
    let text = failure.to_string();
    let _ = stderr().write_all(format!("superpoll: {text}\n").as_bytes());
    match (failure.has_recovered(), form) {
        (true, Form::SyslogText(_) | Form::SyslogJson(_)) => {
            line(form, SystemTime::now(), &Event::new(Level::Warning, "log-failed", text))
        }
        _ => Vec::new(),
    }
}

fn line(form: &Form, at: SystemTime, event: &Event) -> Vec<u8> {
    let mut out = Vec::new();
    let time = humantime::format_rfc3339_millis(at);
    let begin = |out: &mut Vec<u8>, header: &Header| {
        header.write(out, Severity::from(event.level()), at, event.name());
    };
    if let Form::SyslogJson(header) = form {
        begin(&mut out, header);
    }
    if matches!(form, Form::Json | Form::SyslogJson(_)) {
        let own = [
            ("time", Value::from(time.to_string())),
            ("level", Value::from(event.level().name())),
            ("event", Value::from(event.name())),
            ("message", Value::from(event.to_string())),
        ];
        let all = own.iter().chain(event.fields()).map(|(key, value)| (key, value));
        // Neither a vector nor these types refuse.
        let _ = serde_json::Serializer::new(&mut out).collect_map(all);
        out.push(b'\n');
        return out;
    }
    for part in event.to_string().lines() {
        // Text from other machines must not reach a terminal as anything but text.
        let part = part.replace(char::is_control, "\u{fffd}");
        let _ = match form {
            Form::Terminal => writeln!(out, "superpoll: {part}"),
            Form::SyslogText(header) => {
                begin(&mut out, header);
                writeln!(out, "{part}")
            }
            _ => writeln!(out, "{time} {} {part}", event.level().name()),
        };
    }
    out
}

impl Open {
    /// Opens a log in the place of the one before.
    fn new(config: &superpoll_config::Log, before: Option<Arc<Completion>>) -> io::Result<Open> {
        let place = config.place();
        let form = Arc::new(match (config.format, &place) {
            (MessageFormat::Json, LogPlace::Syslog(syslog)) => {
                Form::SyslogJson(Header::new(syslog))
            }
            (MessageFormat::Text, LogPlace::Syslog(syslog)) => {
                Form::SyslogText(Header::new(syslog))
            }
            (MessageFormat::Json, _) => Form::Json,
            (MessageFormat::Text, LogPlace::Stderr) => Form::Terminal,
            (MessageFormat::Text, LogPlace::File(_)) => Form::Text,
        });
        let lines = form.clone();
        let report = move |failure: &LogFailure| report_failure(failure, &lines);
        let writer = Writer::open(place.clone(), LogKind::Events, before, report)?;
        Ok(Open { place, writer, form })
    }

    /// Returns the level from which on events are logged.
    fn level(&self, config: &superpoll_config::Log) -> Level {
        let usual = if matches!(*self.form, Form::Terminal) { Level::Notice } else { Level::Info };
        config.level.unwrap_or(usual)
    }
}

impl ErrorLog {
    /// Opens the log that a configuration names.
    ///
    /// # Errors
    ///
    /// It cannot be opened or created.
    pub fn open(config: &superpoll_config::Log) -> io::Result<ErrorLog> {
        let open = Open::new(config, None)?;
        let level = LogLevel::new(open.level(config));
        Ok(ErrorLog { open: RwLock::new(Some(open)), former: Mutex::default(), level })
    }

    /// Writes to the log that a configuration names from now on; the file is begun again if it was
    /// moved away. Waits for no line of the log before: its thread continues until it has written
    /// them.
    ///
    /// # Errors
    ///
    /// It cannot be opened or created; the current log then continues.
    pub fn change(&self, config: &superpoll_config::Log) -> io::Result<()> {
        let current = self.open.read().unwrap_or_else(PoisonError::into_inner);
        // Lines of one file stay in order.
        let before = current.as_ref().filter(|open| open.place == config.place());
        let before = before.map(|open| open.writer.completion());
        drop(current);
        let open = Open::new(config, before)?;
        self.level.configure(open.level(config));
        self.replace(Some(open));
        Ok(())
    }

    /// Writes to another log, or to none, and keeps the thread of the one before.
    fn replace(&self, open: Option<Open>) {
        let mut current = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, open);
        // Each event of each engine needs it.
        drop(current);
        if let Some(Open { writer, .. }) = before {
            self.former.lock().unwrap_or_else(PoisonError::into_inner).add(writer.thread());
        }
    }

    /// Writes an event to the log.
    pub fn write(&self, event: &Event) {
        if event.level() < self.level.get() {
            return;
        }
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let Some(Open { writer, form, .. }) = &*open else { return };
        writer.hand_over(line(form, SystemTime::now(), event));
    }

    /// Returns the way to open the log's file again; `None` if it has none, or is closed.
    pub fn reopening(&self) -> Option<Reopening> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.as_ref()?.writer.reopening()
    }

    /// Whether the log is not closed.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Returns the level from which on events are logged, which an operator may change.
    #[must_use]
    pub fn level(&self) -> LogLevel {
        self.level.clone()
    }

    /// Waits until all lines are written, for at most about two seconds: lines that a stuck log has
    /// not taken by then may be lost. Later lines are lost.
    pub fn close(&self) {
        self.replace(None);
        let mut former = self.former.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = std::mem::take(&mut *former);
        drop(former);
        drop(waiting);
    }
}

impl Drop for ErrorLog {
    fn drop(&mut self) {
        self.close();
    }
}

superpoll::debug_fields!(ErrorLog);

// Opening all logs of a process again, after their files were moved away.

/// Opens some logs again, on a thread that may wait for a disk. The outcome is reported as well:
/// a signal has no other answer.
pub async fn reopen(logs: Vec<Reopening>, report: impl Fn(&Event)) -> ReopenedLogs {
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

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::path::Path;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::*;

    /// Protects from waiting indefinitely. No outcome depends on it.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Runs an operation of a log in a thread of its own; it must return.
    fn returns(log: &Arc<ErrorLog>, what: &str, run: impl FnOnce(&ErrorLog) + Send + 'static) {
        let (log, (sender, ended)) = (log.clone(), mpsc::channel());
        std::thread::spawn(move || {
            run(&log);
            let _ = sender.send(());
        });
        assert!(ended.recv_timeout(PATIENCE).is_ok(), "{what} does not return");
    }

    fn event() -> Event {
        Event::new(Level::Warning, "upstream-failed", "it is\nlate \x1b[1m").with("status", 504)
    }

    #[test]
    fn each_form_has_its_lines() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_321_211);
        let text = |form| String::from_utf8(line(&form, at, &event())).unwrap();
        let expected = "superpoll: it is\nsuperpoll: late \u{fffd}[1m\n";
        assert_eq!(text(Form::Terminal), expected);
        let first = text(Form::Text).lines().next().unwrap().to_owned();
        assert_eq!(first, "2026-11-22T04:20:11.000Z warning it is");
        let json = text(Form::Json);
        assert_eq!(json.matches('\n').count(), 1);
        let value: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["time"], "2026-11-22T04:20:11.000Z");
        assert_eq!((&value["level"], &value["status"]), (&"warning".into(), &504.into()));
        assert_eq!(value["event"], "upstream-failed");
        assert_eq!(value["message"], "it is\nlate \x1b[1m");
    }

    #[test]
    fn a_log_goes_on_elsewhere_and_ends() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let log = |path: &Path| superpoll_config::Log {
            path: path.to_owned(),
            syslog: None,
            format: MessageFormat::Json,
            level: None,
        };
        let error_log = ErrorLog::open(&log(&at("a"))).unwrap();
        error_log.write(&Event::new(Level::Info, "one", "1"));
        assert!(error_log.change(&log(&at("no/such"))).is_err());
        error_log.write(&event());
        error_log.change(&log(&at("b"))).unwrap();
        error_log.write(&event());
        error_log.close();
        error_log.write(&event());
        let lines = |name| std::fs::read_to_string(at(name)).unwrap().lines().count();
        assert_eq!((lines("a"), lines("b")), (2, 1));
    }

    #[test]
    fn events_below_the_level_of_the_operator_or_the_configuration_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = |level| superpoll_config::Log {
            path: path.clone(),
            syslog: None,
            format: MessageFormat::Text,
            level,
        };
        let error_log = ErrorLog::open(&log(Some(Level::Warning))).unwrap();
        let write = |text: &str| {
            for level in Level::ALL {
                error_log.write(&Event::new(level, "e", format!("{text} {}", level.name())));
            }
        };
        write("configured");
        error_log.level().set(Some(Level::Error));
        write("set");
        // The operator's level outlives another configuration.
        error_log.change(&log(None)).unwrap();
        write("still");
        assert_eq!(error_log.level().configured(), Level::Info);
        error_log.level().set(None);
        write("usual");
        error_log.close();
        let text = std::fs::read_to_string(&path).unwrap();
        let told: Vec<_> = text.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap()).collect();
        assert_eq!(
            told,
            [
                "configured warning",
                "configured error",
                "set error",
                "still error",
                "usual info",
                "usual notice",
                "usual warning",
                "usual error",
            ]
        );
    }

    #[test]
    fn a_stuck_log_holds_up_neither_a_change_nor_an_event_nor_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let next = folder.path().join("next");
        let log = |path: &Path| superpoll_config::Log {
            path: path.to_owned(),
            ..superpoll_config::Log::default()
        };
        let (mut reader, writer) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let error_log = Arc::new(ErrorLog::open(&log(Path::new(&path))).unwrap());
        drop(writer);
        // More than a pipe takes. The thread is in the middle of it once a byte has arrived.
        error_log.write(&Event::new(Level::Error, "long", "x".repeat(1 << 20)));
        reader.read_exact(&mut [0]).unwrap();
        error_log.write(&Event::new(Level::Error, "accepted", "accepted"));
        let config = log(&next);
        returns(&error_log, "change", move |log| log.change(&config).unwrap());
        returns(&error_log, "write", |log| log.write(&Event::new(Level::Error, "e", "later")));
        returns(&error_log, "close", ErrorLog::close);
        // The end waits for it only for some time.
        let end = Instant::now() + PATIENCE;
        while !std::fs::read_to_string(&next).unwrap().ends_with(" error later\n") {
            assert!(Instant::now() < end, "the line does not come");
            std::thread::sleep(Duration::from_millis(5));
        }
        // The log takes lines again, and gets all that it had accepted.
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert!(rest.len() > 1 << 20 && rest.ends_with(" error accepted\n"));
        assert_eq!(rest.lines().count(), 2);
    }
}
