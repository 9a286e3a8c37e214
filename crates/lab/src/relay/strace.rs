//! System calls as the kernel sees them, by `strace -c`, where that is installed and allowed.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

use crate::error::Result;
use crate::rivals;
use crate::server::Calls;
use crate::sys::process;

/// If strace has not attached by then, it is not going to.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most requests that are traced; a traced process is slow.
pub(crate) fn most(quick: bool) -> u64 {
    if quick { 500 } else { 2_000 }
}

/// Returns the system calls of a process by name while something is done, and the outcome of that;
/// `None` if strace is not installed or not permitted.
pub(crate) fn count<T>(pid: i32, work: impl FnOnce() -> Result<T>) -> Result<Option<(Calls, T)>> {
    let Some(trace) = Trace::begin(pid) else { return Ok(None) };
    let done = work()?;
    Ok(trace.end().map(|calls| (calls, done)))
}

/// Returns calls per request, by name and all together; nothing if they were not counted.
pub(crate) fn by_request(
    calls: Option<Calls>,
    requests: u64,
) -> (BTreeMap<String, f64>, Option<f64>) {
    let Some(calls) = calls else { return (BTreeMap::new(), None) };
    let all: u64 = calls.values().sum();
    let each = |count: u64| count as f64 / requests as f64;
    (calls.into_iter().map(|(name, count)| (name, each(count))).collect(), Some(each(all)))
}

/// A trace of a process and its threads, until its result is read.
#[derive(Debug)]
struct Trace {
    strace: Child,
    table: NamedTempFile,
}

impl Trace {
    /// Attaches to a process; `None` if strace is not installed or not permitted.
    fn begin(pid: i32) -> Option<Trace> {
        let table = NamedTempFile::new().ok()?;
        let said = NamedTempFile::new().ok()?;
        let mut strace = Command::new(rivals::find("strace")?);
        strace.args(["-c", "-f", "-o"]).arg(table.path()).args(["-p", &pid.to_string()]);
        strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.reopen().ok()?);
        let mut trace = Trace { strace: strace.spawn().ok()?, table };
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            // The kernel names the tracer (TracerPid) as soon as strace has seized a process, which
            // then goes on with calls that nobody counts until strace interrupts it. strace says
            // that it has attached once it has done both to all threads.
            if std::fs::read_to_string(said.path()).is_ok_and(|said| said.contains(" attached")) {
                // Each call stops twice until the tracer has run. To wake the tracer on another,
                // sleeping processor takes ten times as long on some virtual machines. If it cannot
                // be moved, counting takes longer.
                let _ = i32::try_from(trace.strace.id()).map(|id| process::follow(id, pid));
                return Some(trace);
            }
            if trace.strace.try_wait().is_ok_and(|ended| ended.is_some()) {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// Ends the trace and returns the calls by name.
    fn end(mut self) -> Option<Calls> {
        // strace writes its table when it is interrupted.
        let pid = self.strace.id().to_string();
        Command::new("kill").args(["-INT", &pid]).status().ok()?;
        self.strace.wait().ok()?;
        Some(read(&std::fs::read_to_string(self.table.path()).ok()?))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // A process that has already ended need not be killed.
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}

/// Reads the lines of the table that are calls: share, seconds, microseconds, calls, perhaps
/// errors, name.
fn read(table: &str) -> Calls {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (name, count) = (*fields.last()?, fields.get(3)?);
        fields[0].parse::<f64>().ok()?;
        (name != "total").then_some((name.to_owned(), count.parse().ok()?))
    };
    table.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_table_is_read_with_and_without_errors() {
        let table = "% time     seconds  usecs/call     calls    errors syscall\n\
                     ------ ----------- ----------- --------- --------- ----------------\n \
                     60.00    0.000100           2        50           sendto\n \
                     40.00    0.000050           1        40         3 accept4\n\
                     ------ ----------- ----------- --------- --------- ----------------\n\
                     100.00    0.000150           1        90         3 total\n";
        let calls = read(table);
        assert_eq!(
            calls.into_iter().collect::<Vec<_>>(),
            [("accept4".to_owned(), 40), ("sendto".to_owned(), 50)]
        );
    }

    #[test]
    fn calls_are_divided_by_requests() {
        let calls = Calls::from([("read".to_owned(), 40), ("close".to_owned(), 20)]);
        let (calls, all) = by_request(Some(calls), 10);
        assert_eq!((calls["read"], all), (4.0, Some(6.0)));
        assert_eq!(by_request(None, 10), (BTreeMap::new(), None));
    }
}
