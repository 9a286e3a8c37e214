//! Watching this process and others. Tests that need BPF, or permission to trace, are skipped with
//! a printed reason where the kernel does not give it.

mod calls;
mod counts;
mod processes;
mod record;
mod servers;
mod trace;
mod verdicts;

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use superpoll_test_support::{Running, start};
use superpoll_watch::{Counts, Error, Kind, Subject, Watch};

/// Attaches, or prints why this machine does not let the tests do so.
fn attach(subject: Subject) -> Option<Watch> {
    match Watch::attach(subject) {
        Ok(watch) => Some(watch),
        Err(error @ (Error::NotPermitted(_) | Error::NoBpf { .. } | Error::Namespace)) => {
            // A program that the verifier refuses is a mistake of ours.
            assert!(!error.to_string().contains("processed"), "{error}");
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Returns the counts of a process of one kind, all sets or lengths together.
fn of(watch: &Watch, process: u32, kind: Kind) -> Vec<Counts> {
    let all = watch.counts();
    all.into_iter()
        .filter(|(key, _)| key.process == process && key.kind == kind)
        .map(|(_, counts)| counts)
        .collect()
}

fn sum(counts: &[Counts], count: fn(&Counts) -> u64) -> u64 {
    counts.iter().map(count).sum()
}

/// A program in Python or for Node that a test talks to, line by line.
struct Program {
    child: Running,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts it in Python, or prints that there is none here.
    fn start(text: &str, arguments: &[&str]) -> Option<Program> {
        Program::start_by(["python3", "-c"], text, arguments)
    }

    /// Starts it by an interpreter with an option for the text, or prints that there is none here.
    fn start_by(by: [&str; 2], text: &str, arguments: &[&str]) -> Option<Program> {
        let [interpreter, option] = by;
        if let Err(error) = Command::new(interpreter).arg("--version").output() {
            eprintln!("skipped: {interpreter}: {error}");
            return None;
        }
        let mut command = Command::new(interpreter);
        command.args([option, text]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Running(start(&mut command));
        let input = child.0.stdin.take().unwrap();
        let output = BufReader::new(child.0.stdout.take().unwrap());
        Some(Program { child, input, output })
    }

    fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// Waits for this line of it.
    fn says(&mut self, expected: &str) {
        assert_eq!(self.line(), expected);
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn tell(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}
