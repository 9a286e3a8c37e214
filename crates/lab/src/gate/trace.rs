//! System calls between two marks, read from strace's output.
//!
//! The start of a process is not the same each time: the engine tries out how to make its calls,
//! which takes a varying time. So the process marks the beginning and the end of its operations
//! with a call that is made nowhere else.

use std::collections::BTreeMap;

use crate::error::{Error, Result};

/// The call that serves as the mark.
const MARK: &str = "getppid";

/// The format of strace's output: one call in each line with its process, and with plain numbers,
/// which is fast.
pub(super) const OPTIONS: [&str; 4] = ["-f", "-q", "-e", "raw=all"];

/// Marks a place in the trace of this process.
pub(super) fn mark() {
    // The call itself is the mark; its result is not used.
    let _ = std::os::unix::process::parent_id();
}

/// The calls between the marks, by name, of all threads and processes but `uncounted`.
pub(super) fn read(trace: &str, uncounted: Option<i32>) -> Result<BTreeMap<String, u64>> {
    let mut calls = BTreeMap::new();
    let mut marks = 0;
    for (process, name) in trace.lines().filter_map(begun) {
        if Some(process) == uncounted {
            continue;
        }
        if name == MARK {
            marks += 1;
        } else if marks == 1 {
            *calls.entry(name.to_owned()).or_default() += 1;
        }
    }
    match marks {
        2 => Ok(calls),
        _ => Err(Error::usage(format!("strace saw {marks} calls of {MARK} instead of 2"))),
    }
}

/// The process and the call that begins in a line; none for a line about a signal, an end, or a
/// call that began before.
fn begun(line: &str) -> Option<(i32, &str)> {
    let (process, rest) = line.split_once(' ')?;
    let process = process.parse().ok()?;
    let (name, _) = rest.trim_start().split_once('(')?;
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some((process, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_between_the_marks_are_counted_once_each() {
        let trace = "7  read(0x3, 0x7ffc, 0x8) = 0x8\n\
                     7  getppid() = 0x6\n\
                     7  write(0x4, 0x7ffc, 0x1) = 0x1\n\
                     7  epoll_wait(0x5, 0x5581, 0x40, 0xffffffffffffffff <unfinished ...>\n\
                     8  futex(0x7f, 0x80, 0, 0, 0, 0xffffffff) = -1 EAGAIN (Resource temporarily unavailable)\n\
                     7  <... epoll_wait resumed>) = 0x1\n\
                     7  --- SIGALRM {si_signo=SIGALRM, si_code=SI_KERNEL} ---\n\
                     7  write(0x4, 0x7ffc, 0x1) = 0x1\n\
                     7  getppid() = 0x6\n\
                     7  exit_group(0) = ?\n\
                     7  +++ exited with 0 +++\n";
        let calls: Vec<_> = read(trace, None).unwrap().into_iter().collect();
        let calls: Vec<_> = calls.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(calls, [("epoll_wait", 1), ("futex", 1), ("write", 2)]);
    }

    #[test]
    fn calls_and_marks_of_an_uncounted_process_are_left_out() {
        let trace = "9  getppid() = 0x7\n7  getppid() = 0x6\n9  read(0x3, 0, 0x8) = 0x8\n\
                     7  write(0x4, 0, 0x1) = 0x1\n7  getppid() = 0x6\n";
        let calls = read(trace, Some(9)).unwrap();
        assert_eq!(calls, [("write".to_owned(), 1)].into());
    }

    #[test]
    fn a_trace_without_its_end_is_refused() {
        let error =
            read("7 getppid() = 0x6\n7 read(0x3, 0, 0) = 0\n", None).unwrap_err().to_string();
        assert!(error.contains("1 calls of getppid"), "{error}");
    }
}
