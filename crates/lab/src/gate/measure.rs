//! Counting a path: instructions by callgrind, system calls by strace and by our own counters.
//!
//! Under callgrind a path is run twice, the second time with twice as many operations. The cost of
//! an operation is the difference between the two counts, divided by the difference in operations:
//! the work to start a process and to set the path up is in both counts and cancels out. strace
//! writes down the calls between two marks (`trace.rs`). Each run is a process of its own with next
//! to no environment. Its C library is restricted to the instructions of every x86-64 processor
//! (`GLIBC_TUNABLES`); otherwise the count might include a `memcpy` that another machine does not
//! have.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::error::{Doing, Error, Result};
use crate::gate::child::Answer;
use crate::gate::paths::Path;
use crate::gate::stored::Figures;
use crate::gate::trace;
use crate::programs;
use crate::record;

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
            let Some(program) = programs::find(name) else {
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
                command.args(trace::OPTIONS).arg("-o").arg(&file).arg(&self.command);
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
                Some(Onlooker::Strace) => trace::read(&record::read(&file)?, uncounted)?,
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

#[cfg(test)]
mod tests {
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
}
