//! Counting without BPF: the counts are the same, and the program continues as it was.

use std::fs;
use std::process::Command;

use superpoll_test_support::{alone, until};
use superpoll_watch::{Counts, Error, Key, Kind, Method, Subject, Watch};

use crate::{Program, attach, counts};

/// Traces, or prints why this machine does not let the tests do so.
fn trace(subject: Subject) -> Option<Watch> {
    match Watch::trace(subject) {
        Ok(watch) => Some(watch),
        Err(error @ (Error::NotTraced { .. } | Error::NoTrace { .. })) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Starts a program in Python that prints a line when it is ready.
fn python(text: &str, arguments: &[&str]) -> Option<Program> {
    let mut program = Program::start(text, arguments)?;
    program.says("ready");
    Some(program)
}

fn sum(watch: &Watch, kind: Kind, count: fn(&Counts) -> u64) -> u64 {
    let all = watch.counts();
    all.iter().filter(|(key, _)| key.kind == kind).map(|(_, counts)| count(counts)).sum()
}

/// Whether no process traces this one.
fn is_free(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    status.lines().any(|line| line.replace('\t', "") == "TracerPid:0")
}

/// Whether a process has been stopped by a signal, and none waits for it.
fn has_stopped(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let has = |name: &str, values: &[&str]| {
        let lines = status.lines().filter_map(|line| line.strip_prefix(name));
        lines.map(str::trim).all(|value| values.iter().any(|one| value.starts_with(one)))
    };
    // A traced process that is stopped is in the state of one that is traced.
    has("State:", &["T", "t"]) && has("ShdPnd:", &["0000000000000000"])
}

#[test]
fn counts_of_a_traced_process_are_those_of_cpython() {
    for (selector, kind) in [
        ("EpollSelector", Kind::Epoll),
        ("PollSelector", Kind::Poll),
        ("SelectSelector", Kind::Select),
    ] {
        let Some(mut program) = python(counts::PYTHON, &[selector, "40", "400"]) else { return };
        let process = program.id();
        let Some(watch) = trace(Subject::Process(process)) else { return };
        assert!(watch.method() == Method::Ptrace && !is_free(process));
        program.tell("go");
        let line = program.line();
        let counted: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let counts = [Counts::waits, Counts::events, Counts::empty];
        assert_eq!(counts.map(|count| sum(&watch, kind, count)), *counted, "{selector}");
        if kind == Kind::Epoll {
            // Now and then two descriptors share a bit.
            let distinct = watch.take_distinct().values().sum::<f64>().round();
            assert!((20.0..=22.0).contains(&distinct), "{distinct}");
        }
        drop(watch);
        until("it is not traced", || is_free(process));
    }
}

/// The words of a set that do not depend on the time.
fn timeless(watch: &Watch) -> Vec<(Key, Vec<u64>)> {
    let counts = [
        Counts::waits,
        Counts::events,
        Counts::looks,
        Counts::empty_looks,
        Counts::timed_out,
        Counts::short_timeouts,
        Counts::failed,
        Counts::full,
        Counts::added,
        Counts::changed,
        Counts::removed,
        Counts::refused,
        Counts::watched,
    ];
    // BPF sees the call fail in which a thread is killed.
    let is_killed = |of: &Counts| of.waits() == of.failed() && of.controls() == 0;
    let all = watch.counts().into_iter();
    let all = all.filter(|(key, of)| key.kind != Kind::Process && !is_killed(of));
    all.map(|(key, of)| {
        let mut words: Vec<u64> = counts.iter().map(|count| count(&of)).collect();
        words.extend(of.histogram());
        (key, words)
    })
    .collect()
}

/// A program with threads, children, and another program is watched in both ways at once.
#[test]
fn counts_of_a_traced_program_are_those_of_bpf() {
    alone(|| {
        let program = r#"
import os, select, socket, threading
pairs = [socket.socketpair() for _ in range(30)]
epoll = select.epoll()
for one, other in pairs:
    epoll.register(one, select.EPOLLIN)
    other.send(b"x")
def wait(times):
    for number in range(times):
        epoll.poll(0, number % 33 + 1)
threads = [threading.Thread(target=wait, args=(50 * n,)) for n in range(4)]
for one in threads: one.start()
for one in threads: one.join()
poll = select.poll()
for one, _ in pairs: poll.register(one, select.POLLIN)
for _ in range(9): poll.poll()
select.select([pairs[0][1]], [], [], 0.002)
epoll.modify(pairs[0][0], 0)
try: epoll.register(pairs[0][0])
except FileExistsError: pass
for one, _ in pairs[3:]: epoll.unregister(one)
child = os.fork()
if child == 0:
    wait(7)
    os.execvp("python3", ["python3", "-c", "import select; [select.epoll().poll(0.001) for _ in range(5)]"])
os.waitpid(child, 0)
# A thread executes another program while the first one waits: that wait never returns.
child = os.fork()
if child == 0:
    program = "import select; [select.epoll().poll(0) for _ in range(6)]"
    other = lambda: os.execvp("python3", ["python3", "-c", program])
    threading.Timer(0.01, other).start()
    select.epoll().poll(60)
os.waitpid(child, 0)
"#;
        let Some(bpf) = attach(Subject::Children) else { return };
        let Some(mut watch) = trace(Subject::Children) else { return };
        let mut command = Command::new("python3");
        let mut child = match watch.start(command.args(["-c", program])) {
            Ok(child) => child,
            Err(error) => return eprintln!("skipped: python3: {error}"),
        };
        bpf.end_of_children();
        until("it has ended", || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            stat.contains(") Z ")
        });
        watch.end();
        assert!(child.wait().unwrap().success());
        let found = timeless(&watch);
        let expected = timeless(&bpf);
        assert_eq!(found.len(), expected.len(), "{found:?} {expected:?}");
        found.iter().zip(&expected).for_each(|(found, expected)| assert_eq!(found, expected));
        assert!(found.len() > 5, "{found:?}");
        assert_eq!(watch.overflow() + watch.compat_calls(), 0);
    });
}

/// Signals, a stop of the whole process and the end of the sample leave the program as it was.
#[test]
fn signals_and_stops_pass_and_the_end_interrupts_nothing() {
    let program = r#"
import os, select, signal, sys, threading
count = 0
def handle(*_):
    global count
    count += 1
signal.signal(signal.SIGUSR1, handle)
def sleep():
    select.epoll().poll(60)
threading.Thread(target=sleep, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    print(count, flush=True)
os._exit(7)
"#;
    let Some(mut program) = python(program, &[]) else { return };
    let process = program.id();
    let Some(watch) = trace(Subject::Process(process)) else { return };
    let signal = |name: &str| {
        let number = process.to_string();
        assert!(Command::new("kill").args(["-s", name, &number]).status().unwrap().success());
    };
    let mut expect = |count: &str| {
        until("the handler has run", || {
            program.tell("count");
            program.line() == count
        });
    };
    signal("USR1");
    expect("1");
    signal("STOP");
    until("it has stopped", || has_stopped(process));
    signal("CONT");
    expect("1");
    signal("USR1");
    expect("2");
    drop(watch);
    until("it is not traced", || is_free(process));
    signal("USR1");
    expect("3");
    let Program { mut child, input, .. } = program;
    drop(input);
    assert_eq!(child.0.wait().unwrap().code(), Some(7));
}

/// A wait that the kernel continues after a stop is one wait, as the program sees it.
#[test]
fn a_wait_that_is_continued_counts_once() {
    let program = r#"
import select, sys
print("ready", flush=True)
sys.stdin.readline()
select.poll().poll(1500)
print("done", flush=True)
sys.stdin.readline()
"#;
    let Some(mut program) = python(program, &[]) else { return };
    let process = program.id();
    let Some(watch) = trace(Subject::Process(process)) else { return };
    program.tell("go");
    let number = process.to_string();
    let signal = |name: &str| {
        assert!(Command::new("kill").args(["-s", name, &number]).status().unwrap().success());
    };
    for _ in 0..3 {
        signal("STOP");
        until("it has stopped", || has_stopped(process));
        signal("CONT");
    }
    program.says("done");
    let counts = [Counts::waits, Counts::failed, Counts::timed_out];
    assert_eq!(counts.map(|count| sum(&watch, Kind::Poll, count)), [1, 0, 1]);
}

/// A wait that the kernel continues after a signal is one wait; with a handler it has failed.
#[test]
#[cfg(target_arch = "x86_64")]
fn interrupted_waits_of_a_traced_program_are_those_of_bpf() {
    let program = r#"
import select, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: None)
poll = select.poll()
poll.register(0, select.POLLIN)
print("ready", flush=True)
for name in ["poll", "select"]:
    sys.stdin.readline()
    if name == "poll":
        poll.poll(3_600_000)
    else:
        select.select([0], [], [], 3_600)
    sys.stdin.readline()
    print("waited", flush=True)
sys.stdin.readline()
"#;
    let Some(mut program) = python(program, &[]) else { return };
    let process = program.id();
    let call = || fs::read_to_string(format!("/proc/{process}/syscall"));
    if let Err(error) = call() {
        return eprintln!("skipped: /proc/{process}/syscall: {error}");
    }
    let is_in = |numbers: &[i64]| {
        let call = call().unwrap();
        numbers.iter().any(|number| call.starts_with(&format!("{number} ")))
    };
    let signal = |name: &str| {
        let number = process.to_string();
        assert!(Command::new("kill").args(["-s", name, &number]).status().unwrap().success());
        let status = || fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        until("the signal has come", || {
            status()
                .lines()
                .filter(|line| line.contains("Pnd:"))
                .all(|line| line.ends_with("\t0000000000000000"))
        });
    };
    let bpf = attach(Subject::Process(process));
    let Some(watch) = trace(Subject::Process(process)) else { return };
    let waits: [(_, &[i64]); 2] =
        [(Kind::Poll, &[libc::SYS_poll]), (Kind::Select, &[libc::SYS_select, libc::SYS_pselect6])];
    for (kind, numbers) in waits {
        program.tell("go");
        until("it waits", || is_in(numbers));
        for _ in 0..3 {
            // It is ignored, and comes nevertheless as the process is traced.
            signal("WINCH");
            until("it waits again", || is_in(numbers) || is_in(&[libc::SYS_restart_syscall]));
        }
        signal("USR1");
        until("it waits after its handler", || is_in(numbers));
        program.tell("go");
        program.says("waited");
        for watch in [Some(&watch), bpf.as_ref()].into_iter().flatten() {
            let found = [Counts::waits, Counts::failed].map(|count| sum(watch, kind, count));
            assert_eq!(found, [2, 1], "{kind:?}, {:?}", watch.method());
        }
    }
}

#[test]
fn what_cannot_be_traced_is_refused() {
    assert!(Watch::trace(Subject::All).is_err());
    assert!(matches!(Watch::trace(Subject::Process(1 << 22 | 1)), Err(Error::NoProcess(_))));
    let Some(program) = python("print('ready', flush=True); input()", &[]) else {
        return;
    };
    let Some(_watch) = trace(Subject::Process(program.id())) else { return };
    let error = Watch::trace(Subject::Process(program.id())).unwrap_err().to_string();
    let own = std::process::id();
    assert!(error.contains("is traced by process") && error.contains(&own.to_string()), "{error}");
    let Some(mut watch) = trace(Subject::Children) else { return };
    let error = watch.start(&mut Command::new("/no/such/program")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}
