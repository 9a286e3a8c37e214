//! The keeper's lines on standard output and standard error.
//!
//! A thread of its own writes them. The keeper serves all its servers in one thread, and a write to
//! a pipe that is full lasts until something reads from the pipe.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The most lines that wait to be written. The lines after them are dropped and counted.
const MOST: usize = 256;

/// Where a line goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stream {
    Output,
    Errors,
}

#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<(Stream, String)>,
    /// Lines dropped since the last line that was queued.
    dropped: u64,
    /// A line has left the queue and is being written.
    is_writing: bool,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics while it is locked.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a line; returns it and counts it as being written.
    fn next(&self) -> (Stream, String) {
        let mut queue = self.lock();
        loop {
            if let Some(next) = queue.lines.pop_front() {
                queue.is_writing = true;
                return next;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A bounded queue of lines and the thread that writes them.
#[derive(Clone, Debug)]
pub(super) struct Log(Arc<Shared>);

impl Log {
    /// Starts the thread.
    pub(super) fn start(
        mut output: impl Write + Send + 'static,
        mut errors: impl Write + Send + 'static,
    ) -> io::Result<Log> {
        let shared: Arc<Shared> = Arc::default();
        let log = Log(shared.clone());
        let write = move || {
            loop {
                let (stream, line) = shared.next();
                // The reader may have gone. The keeper continues without one.
                let _ = match stream {
                    Stream::Output => output.write_all(line.as_bytes()),
                    Stream::Errors => errors.write_all(line.as_bytes()),
                };
                shared.lock().is_writing = false;
                shared.changed.notify_all();
            }
        };
        thread::Builder::new().name("log".to_owned()).spawn(write)?;
        Ok(log)
    }

    /// Queues a line without waiting. A line that finds the queue full is dropped; the next line
    /// that is queued tells how many were.
    pub(super) fn say(&self, stream: Stream, text: impl std::fmt::Display) {
        let mut queue = self.0.lock();
        if queue.lines.len() >= MOST {
            queue.dropped += 1;
            return;
        }
        let line = match std::mem::take(&mut queue.dropped) {
            0 => format!("superpoll: {text}\n"),
            dropped => {
                format!("superpoll: {text} ({dropped} lines before this one were dropped)\n")
            }
        };
        queue.lines.push_back((stream, line));
        self.0.changed.notify_all();
    }

    /// Waits until all lines are written, at most for so long. Returns whether they are.
    pub(super) fn flush(&self, patience: Duration) -> bool {
        let mut queue = self.0.lock();
        if queue.dropped > 0 {
            let line = format!("superpoll: {} lines before this one were dropped\n", queue.dropped);
            queue.dropped = 0;
            queue.lines.push_back((Stream::Errors, line));
            self.0.changed.notify_all();
        }
        let is_busy = |queue: &mut Queue| queue.is_writing || !queue.lines.is_empty();
        let waited = self.0.changed.wait_timeout_while(queue, patience, is_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, sink};
    use std::sync::mpsc;

    use super::*;

    /// Writes a line only when it may.
    struct Slow {
        may_write: mpsc::Receiver<()>,
        written: mpsc::Sender<String>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.may_write.recv();
            let line = String::from_utf8_lossy(bytes).trim_end().to_owned();
            self.written.send(line).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_are_not_read_are_counted_and_hold_up_only_their_own_thread() {
        let (permit, may_write) = mpsc::channel();
        let (written, lines) = mpsc::channel();
        let log = Log::start(sink(), Slow { may_write, written }).unwrap();
        log.say(Stream::Errors, "first");
        // The thread is in the middle of that line.
        while !log.0.lock().is_writing {
            thread::yield_now();
        }
        for number in 0..MOST + 3 {
            log.say(Stream::Errors, number);
        }
        assert!(!log.flush(Duration::ZERO), "a line is being written");
        // The count became a line beyond the limit, and more are dropped.
        log.say(Stream::Errors, "dropped");
        for _ in 0..3 {
            permit.send(()).unwrap();
        }
        for expected in ["superpoll: first", "superpoll: 0", "superpoll: 1"] {
            assert_eq!(lines.recv().unwrap(), expected);
        }
        // There is room again once the thread has taken the next line.
        while log.0.lock().lines.len() >= MOST {
            thread::yield_now();
        }
        log.say(Stream::Errors, "next");
        drop(permit);
        let rest: Vec<String> = (2..=MOST + 1).map(|_| lines.recv().unwrap()).collect();
        assert_eq!(rest[rest.len() - 3], format!("superpoll: {}", MOST - 1));
        assert_eq!(rest[rest.len() - 2], "superpoll: 3 lines before this one were dropped");
        assert_eq!(rest[rest.len() - 1], "superpoll: next (1 lines before this one were dropped)");
        assert!(log.flush(Duration::from_secs(60)));
    }

    #[test]
    fn each_line_goes_to_its_stream_and_a_reader_that_has_gone_is_no_failure() {
        let (reader, writer) = io::pipe().unwrap();
        let (gone, errors) = io::pipe().unwrap();
        drop(gone);
        let log = Log::start(writer, errors).unwrap();
        log.say(Stream::Errors, "unread");
        log.say(Stream::Output, "read");
        assert!(log.flush(Duration::from_secs(60)));
        let mut line = String::new();
        BufReader::new(reader).read_line(&mut line).unwrap();
        assert_eq!(line, "superpoll: read\n");
    }
}
