//! Panics of a server: events in its log.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::sync::{Arc, Weak};
use std::thread;

use superpoll_gateway::{ErrorLog, Event, Level};

/// Hands panics over to the log from now on, as long as the log is open. The hook of the standard
/// library writes to standard error itself, and an engine would wait for a pipe that is full.
pub(super) fn log_panics(error_log: &Arc<ErrorLog>) {
    let error_log: Weak<ErrorLog> = Arc::downgrade(error_log);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        match error_log.upgrade().filter(|error_log| error_log.is_open()) {
            Some(error_log) => error_log.write(&event(panic)),
            None => usual(panic),
        }
    }));
}

/// Returns the text that a panic has.
fn text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}

fn event(panic: &PanicHookInfo<'_>) -> Event {
    let thread = thread::current();
    let name = thread.name().unwrap_or("without a name");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let mut message = format!("the thread {name} panicked at {place}: {}", text(panic.payload()));
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        message.push_str(&format!("\n{backtrace}"));
    }
    Event::new(Level::Error, "panicked", message).with("location", place)
}

#[cfg(test)]
mod tests {
    use superpoll_gateway::config::Log;

    use super::*;

    #[test]
    fn a_panic_is_an_event_as_long_as_the_log_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = Log { path: path.clone(), ..Log::default() };
        let error_log = Arc::new(ErrorLog::open(&log).unwrap());
        log_panics(&error_log);
        let fails = || {
            let panics = || panic!("{} failed", "it");
            thread::Builder::new().name("planned".into()).spawn(panics).unwrap().join().unwrap_err()
        };
        fails();
        // The hook of the standard library writes the others. This one is no event that waits.
        error_log.close();
        fails();
        error_log.change(&log).unwrap();
        // A thread of another test may be writing to it.
        let dropped = Arc::downgrade(&error_log);
        drop(error_log);
        while dropped.strong_count() > 0 {
            thread::yield_now();
        }
        fails();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| line.contains("thread planned")).collect();
        let [line] = lines[..] else { panic!("{text}") };
        assert!(line.contains(" error the thread planned panicked at "), "{text}");
        assert!(line.contains("panics.rs:") && line.ends_with(": it failed"), "{text}");
    }
}
