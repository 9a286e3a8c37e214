//! Counting a path: instructions by callgrind, system calls by strace and by our own counters.
//!
//! Under callgrind a path is run twice, the second time with twice as many operations. The cost of
//! an operation is the difference between the two counts, divided by the difference in operations:
//! the work to start a process and to set the path up is in both counts and cancels out. strace
//! writes down the calls between two marks. Each run is a process of its own with next
//! to no environment. Its C library is restricted to the instructions of every x86-64 processor
//! (`GLIBC_TUNABLES`); otherwise the count might include a `memcpy` that another machine does not
//! have.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use superpoll::Poller;
use superpoll_rt::Runtime;

use crate::error::{Doing, Error, Result};
use crate::gate::paths::Path;
use crate::gate::stored::Figures;
use crate::relay::kernel_name;
use crate::sys::process;
use crate::{record, rivals};

/// A call that is made less than once in this many operations is made because time passes, or by
/// chance.
const RARELY: f64 = 50.0;

/// How often a run is repeated if its engine has found the other way of making calls to be cheaper.
const RUNS: usize = 3;

/// The processor features that the C library must not use even if the processor has them.
const TUNABLES: &str = "glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-ERMS,-FSRM";

/// The tools that count from outside the process.
#[derive(Debug)]
pub(super) struct Tools {
    command: PathBuf,
    valgrind: Option<PathBuf>,
    strace: Option<PathBuf>,
}

/// The tool that observes a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Onlooker {
    Callgrind,
    Strace,
}

/// One run.
struct Run {
    answer: Answer,
    instructions: u64,
    calls: BTreeMap<String, u64>,
}

impl Tools {
    /// Finds the tools that are installed; the notes name the missing ones.
    pub(super) fn here() -> Result<(Tools, Vec<String>)> {
        let command = std::env::current_exe().doing("looking for this program's own file")?;
        let mut notes = Vec::new();
        let mut tried = |name: &'static str, trial: &[&str], what: &str| {
            let Some(program) = rivals::find(name) else {
                notes.push(format!("skipped: {what}, for which {name} is not installed"));
                return None;
            };
            let mut command = Command::new(&program);
            command.args(trial).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if command.status().is_ok_and(|status| status.success()) {
                return Some(program);
            }
            notes.push(format!("skipped: {what}: {name} does not work here"));
            None
        };
        let valgrind = tried("valgrind", &["--version"], "the count of instructions");
        // strace may be installed but not be allowed to trace.
        let trial = ["-o", "/dev/null", "true"];
        let strace = tried(
            "strace",
            &trial,
            "the kernel's count of system calls, all but our own counters'",
        );
        Ok((Tools { command, valgrind, strace }, notes))
    }

    /// Whether both instructions and system calls can be counted.
    pub(super) fn are_complete(&self) -> bool {
        self.valgrind.is_some() && self.strace.is_some()
    }

    /// Counts the cost of one operation of a path.
    pub(super) fn count(&self, path: Path) -> Result<Figures> {
        let mut figures = Figures { tolerance: path.tolerance, ..Figures::default() };
        if self.valgrind.is_some() {
            let less = self.run(path, path.operations, Some(Onlooker::Callgrind))?;
            let more = self.run(path, 2 * path.operations, Some(Onlooker::Callgrind))?;
            let more = more.instructions as f64 - less.instructions as f64;
            figures.instructions = Some(more / path.operations as f64);
        }
        let onlooker = self.strace.as_ref().map(|_| Onlooker::Strace);
        let run = self.run(path, path.operations, onlooker)?;
        let by_operation = |calls: BTreeMap<String, u64>| {
            let calls = calls.into_iter().map(|(name, count)| (name, count as f64));
            let calls = calls.map(|(name, count)| (name, count / path.operations as f64));
            calls.filter(|&(_, count)| count * RARELY >= 1.0).collect()
        };
        figures.calls = onlooker.map(|_| by_operation(run.calls));
        figures.counted = by_operation(run.answer.counted);
        Ok(figures)
    }

    fn run(&self, path: Path, operations: u64, onlooker: Option<Onlooker>) -> Result<Run> {
        for _ in 0..RUNS {
            let run = self.run_once(path, operations, onlooker)?;
            // The choice is about nanoseconds, and callgrind does not measure time.
            if onlooker != Some(Onlooker::Callgrind) || !run.answer.uses_return_stack_refill {
                return Ok(run);
            }
        }
        let found = "system calls were found to be cheaper another way under callgrind".to_owned();
        Err(Error::Work { subject: path.name, found })
    }

    fn run_once(&self, path: Path, operations: u64, onlooker: Option<Onlooker>) -> Result<Run> {
        let folder = tempfile::tempdir().doing("making a folder")?;
        let file = folder.path().join("counts");
        let mut command = match (onlooker, &self.valgrind, &self.strace) {
            (Some(Onlooker::Callgrind), Some(valgrind), _) => {
                let mut command = Command::new(valgrind);
                command.args(["--tool=callgrind", "--quiet", "--vgdb=no"]);
                command.arg(format!("--callgrind-out-file={}", file.display()));
                command.arg(&self.command);
                command
            }
            (Some(Onlooker::Strace), _, Some(strace)) => {
                let mut command = Command::new(strace);
                command.args(OPTIONS).arg("-o").arg(&file).arg(&self.command);
                command
            }
            _ => Command::new(&self.command),
        };
        command.args(["gate", "--operate", path.name, "--operations"]);
        command.arg(operations.to_string()).stdin(Stdio::null());
        command.env_clear().env("GLIBC_TUNABLES", TUNABLES);
        for kept in ["TMPDIR", "VALGRIND_LIB"] {
            command.envs(std::env::var_os(kept).map(|value| (kept, value)));
        }
        let output = command.output().doing(format_args!("running the path {}", path.name))?;
        let answer =
            serde_json::from_slice(&output.stdout).ok().filter(|_| output.status.success());
        let Some::<Answer>(answer) = answer else {
            return Err(Error::usage(complaint(path, onlooker, &output.stderr)));
        };
        let uncounted = answer.uncounted;
        Ok(Run {
            answer,
            instructions: match onlooker {
                Some(Onlooker::Callgrind) => total(&record::read(&file)?).ok_or_else(|| {
                    Error::usage(format!("callgrind gave no total for the path {}", path.name))
                })?,
                _ => 0,
            },
            calls: match onlooker {
                Some(Onlooker::Strace) => read(&record::read(&file)?, uncounted)?,
                _ => BTreeMap::new(),
            },
        })
    }
}

/// Finds the line with the totals in callgrind's output file.
fn total(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok())
}

/// The last line that a failed process printed.
fn complaint(path: Path, onlooker: Option<Onlooker>, errors: &[u8]) -> String {
    let under = match onlooker {
        Some(Onlooker::Callgrind) => " under callgrind",
        Some(Onlooker::Strace) => " under strace",
        None => "",
    };
    let text = String::from_utf8_lossy(errors);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    let line = line.map(|line| line.strip_prefix("superpoll-lab: ").unwrap_or(line));
    format!("the path {}{under}: {}", path.name, line.unwrap_or("it ended without a word"))
}

// The counted process: it carries out a number of operations of one path and prints the system
// calls that our own counters saw.

/// Operations before the counted ones: by then, tables have grown and caches are filled.
const BEFORE: u64 = 768;

/// The answer that the process prints at its end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    /// System calls of the operations, by our own counters.
    pub counted: Counted,
    /// Whether the engine makes calls in the way that it measured to be cheaper; which way that is
    /// depends on timing.
    pub uses_return_stack_refill: bool,
    /// The number of a process that took part and whose calls do not count.
    pub uncounted: Option<i32>,
}

/// Carries out `operations` operations and prints the calls that they made on standard output.
pub(super) fn operate(path: Path, operations: u64) -> Result<()> {
    // A process that hangs is ended, so that the parent does not wait indefinitely.
    process::watch(path.name);
    let mut work = path.set_up()?;
    work.operate(BEFORE)?;
    let before = work.counted();
    mark();
    work.operate(operations)?;
    mark();
    let mut counted = work.counted();
    for (name, count) in &mut counted {
        *count -= before.get(name).copied().unwrap_or(0).min(*count);
    }
    let answer = Answer {
        counted,
        uses_return_stack_refill: superpoll::diagnostics::uses_return_stack_refill(),
        uncounted: work.uncounted(),
    };
    let text = serde_json::to_string(&answer)
        .map_err(|error| Error::usage(format!("writing what {} called: {error}", path.name)))?;
    crate::say!("{text}")
}

// System calls between two marks, read from strace's output.
//
// The start of a process is not the same each time: the engine tries out how to make its calls,
// which takes a varying time. So the process marks the beginning and the end of its operations
// with a call that is made nowhere else.

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

// System calls by our own counters, under the kernel's names.

/// Calls by name.
pub(super) type Counted = BTreeMap<String, u64>;

/// An engine that counts its system calls.
pub(super) trait Counts {
    /// Adds the calls that it has made.
    fn add_to(&self, calls: &mut Counted);
}

fn add(to: &mut Counted, calls: impl Iterator<Item = (&'static str, u64)>) {
    for (counter, count) in calls.filter(|&(_, count)| count > 0) {
        *to.entry(kernel_name(counter).to_owned()).or_default() += count;
    }
}

impl Counts for Poller {
    fn add_to(&self, calls: &mut Counted) {
        add(calls, self.stats().calls.by_name());
    }
}

impl Counts for [Poller; 2] {
    fn add_to(&self, calls: &mut Counted) {
        self.iter().for_each(|poller| poller.add_to(calls));
    }
}

/// The calls that its engines have made for their pollers and on their sockets, and the calls of
/// this process's relays on their sockets.
impl Counts for Runtime {
    fn add_to(&self, calls: &mut Counted) {
        for engine in self.stats() {
            add(calls, engine.poller.calls.by_name());
            add(calls, engine.calls.by_name());
        }
        add(calls, superpoll_gateway::relay::calls().by_name());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use superpoll::{BackendKind, Events, Interest};

    use super::*;

    #[test]
    fn the_total_is_read_off_a_file_of_callgrind() {
        let text =
            "# callgrind format\nevents: Ir\nsummary: 11\n\nfn=(1) main\n16 400\ntotals: 4223\n";
        assert_eq!(total(text), Some(4223));
        assert_eq!(total("events: Ir\n"), None);
    }

    #[test]
    fn the_output_of_a_failed_child_is_quoted() {
        let path = Path::named("wake").unwrap();
        let line = complaint(path, Some(Onlooker::Strace), b"superpoll-lab: a wake was lost\n\n");
        assert_eq!(line, "the path wake under strace: a wake was lost");
        let line = complaint(path, None, b"");
        assert_eq!(line, "the path wake: it ended without a word");
    }

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

    #[test]
    fn calls_have_the_names_that_strace_gives_them() {
        let mut poller = Poller::builder().backend(BackendKind::Epoll).build().unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        poller.register(&reader, Interest::READABLE).unwrap();
        poller.wait(&mut Events::with_limit(1), Some(Duration::ZERO)).unwrap();
        let mut calls = Counted::new();
        poller.add_to(&mut calls);
        assert_eq!((calls["epoll_wait"], calls["epoll_ctl"]), (1, 1), "{calls:?}");
    }
}
