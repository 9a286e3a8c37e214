//! Calls that are refused, interrupted or made in unusual ways count as the program sees them.

use std::fs::{self, File};
use std::io::Read;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use superpoll::{BackendKind, Events, Poller};
use superpoll_test_support::{alone, until};
use superpoll_watch::{Counts, Kind, Monitor, Subject};

use crate::{Program, attach, of, sum};

/// Waits by the C library until the input is readable, and tells the results.
const INTERRUPTED: &str = r#"
import ctypes, os, select, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
signal.signal(signal.SIGUSR1, lambda *_: None)
class Pollfd(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]
def wait():
    fds, bits = Pollfd(0, 1, 0), (ctypes.c_ulong * 16)(1)
    if sys.argv[1] == "poll":
        return libc.poll(ctypes.byref(fds), ctypes.c_ulong(1), int(sys.argv[2]))
    if sys.argv[1] == "ppoll":
        return libc.ppoll(ctypes.byref(fds), ctypes.c_ulong(1), None, None)
    return libc.select(1, ctypes.byref(bits), None, None, None)
print("ready", flush=True)
sys.stdin.readline()
while (found := wait()) < 0:
    print(found, ctypes.get_errno(), flush=True)
print(found, flush=True)
sys.stdin.readline()
"#;

/// Whether a process sleeps in a wait, or in one that the kernel continues.
fn waits(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let call = fs::read_to_string(format!("/proc/{process}/syscall")).unwrap();
    let number = call.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(-1);
    let waits = [
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select,
        libc::SYS_ppoll,
        libc::SYS_pselect6,
        libc::SYS_restart_syscall,
    ];
    stat.contains(") S ") && waits.contains(&number)
}

fn send(signal: &str, process: u32) {
    assert!(Command::new("kill").args([signal, &process.to_string()]).status().unwrap().success());
}

/// Stops a process that waits, and lets it continue.
fn stop(process: u32) {
    until("it waits", || waits(process));
    send("-STOP", process);
    let stat = || fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    until("it has stopped", || stat().contains(") T "));
    send("-CONT", process);
    until("it waits again", || waits(process));
}

fn interrupt(name: &str, kind: Kind) {
    let Some(mut program) = Program::start(INTERRUPTED, &[name, "-1"]) else { return };
    program.says("ready");
    let process = program.id();
    let Some(watch) = attach(Subject::Process(process)) else { return };
    program.tell("go");
    stop(process);
    stop(process);
    let counts = of(&watch, process, kind);
    assert_eq!(sum(&counts, Counts::waits), 0, "{name} is one call: {counts:?}");
    send("-USR1", process);
    program.says("-1 4");
    stop(process);
    program.tell("readable");
    program.says("1");
    let counts = of(&watch, process, kind);
    let told = [Counts::waits, Counts::failed, Counts::events, Counts::sleeps];
    assert_eq!(told.map(|count| sum(&counts, count)), [2, 1, 1, 2], "{name}: {counts:?}");
}

#[test]
fn a_wait_that_a_signal_interrupts_is_one_wait() {
    interrupt("poll", Kind::Poll);
    interrupt("ppoll", Kind::Poll);
    interrupt("select", Kind::Select);
}

#[test]
fn a_wait_that_was_continued_ends_by_its_own_timeout() {
    let Some(mut program) = Program::start(INTERRUPTED, &["poll", "1500"]) else { return };
    program.says("ready");
    let process = program.id();
    let Some(watch) = attach(Subject::Process(process)) else { return };
    program.tell("go");
    stop(process);
    program.says("0");
    let counts = of(&watch, process, Kind::Poll);
    let told = [Counts::waits, Counts::timed_out, Counts::failed, Counts::sleeps];
    assert_eq!(told.map(|count| sum(&counts, count)), [1, 1, 0, 1], "{counts:?}");
    assert!(sum(&counts, Counts::asleep_ns) >= 1_500_000_000, "{counts:?}");
}

#[test]
fn a_wait_that_began_before_the_watch_and_is_continued_is_one_wait() {
    let Some(mut program) = Program::start(INTERRUPTED, &["poll", "-1"]) else { return };
    program.says("ready");
    program.tell("go");
    let process = program.id();
    until("it waits", || waits(process));
    let Some(watch) = attach(Subject::Process(process)) else { return };
    stop(process);
    program.tell("readable");
    program.says("1");
    let counts = of(&watch, process, Kind::Poll);
    let told = [Counts::waits, Counts::failed, Counts::events];
    assert_eq!(told.map(|count| sum(&counts, count)), [1, 0, 1], "{counts:?}");
}

#[test]
fn reads_and_accepts_that_are_refused_found_nothing() {
    alone(|| {
        let own = std::process::id();
        let mut folder = File::open("/").unwrap();
        let socket = TcpListener::from(OwnedFd::from(UnixStream::pair().unwrap().0));
        let Some(watch) = attach(Subject::Process(own)) else { return };
        for _ in 0..1000 {
            assert!(folder.read(&mut [0; 8]).is_err() && socket.accept().is_err());
        }
        let process = of(&watch, own, Kind::Process);
        let told = [Counts::accepts, Counts::empty_reads, Counts::empty_accepts];
        assert_eq!(told.map(|count| sum(&process, count)), [0, 0, 0], "{process:?}");
        assert!(sum(&process, Counts::reads) < 1000, "others are of the test itself: {process:?}");
    });
}

#[test]
fn numbers_of_calls_that_are_refused_are_in_no_mean() {
    let text = r#"
import ctypes, select, sys
libc = ctypes.CDLL(None)
epoll = select.epoll()
room = ctypes.create_string_buffer(1000)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(3):
    libc.poll(room, ctypes.c_ulong(2**64 - 1), 0)
    libc.select(-1, None, None, None, None)
epoll.poll(0, 7)
libc.epoll_wait(epoll.fileno(), room, -1, 0)
print("done", flush=True)
sys.stdin.readline()
"#;
    let Some(mut program) = Program::start(text, &[]) else { return };
    program.says("ready");
    let Some(watch) = attach(Subject::Process(program.id())) else { return };
    let mut monitor = Monitor::new(watch, Some(program.id()));
    program.tell("go");
    program.says("done");
    let sample = monitor.tick();
    let report = monitor.report(&monitor.start(), &sample, true);
    let mut failed = 0;
    for set in &report.processes[0].sets {
        failed += set.counts.failed();
        assert_eq!((set.watched, set.counts.watched()), (0.0, 0), "{set:?}");
        assert!(set.key.kind != Kind::Epoll || set.counts.room() == 7, "{set:?}");
    }
    assert_eq!(failed, 7, "{report:?}");
}

#[test]
fn rings_that_threads_have_registered_are_told_apart() {
    if !BackendKind::Uring.is_available() {
        return eprintln!("skipped: io_uring is not available");
    }
    alone(|| {
        let own = std::process::id();
        let Some(watch) = attach(Subject::Process(own)) else { return };
        let wait = |times: u64| {
            let mut poller = Poller::builder().backend(BackendKind::Uring).build().unwrap();
            poller.stay_on_thread();
            for _ in 0..times {
                let timeout = Some(Duration::from_millis(1));
                poller.wait(&mut Events::with_limit(8), timeout).unwrap();
            }
            poller.stats().calls.io_uring_enter
        };
        // What they try for the first time is tried now.
        wait(1);
        let before = watch.counts();
        let own_counts: Vec<u64> = std::thread::scope(|scope| {
            let threads = [20, 30].map(|times| scope.spawn(move || wait(times)));
            threads.map(|thread| thread.join().unwrap()).into()
        });
        let rings = watch.counts().into_iter().filter(|(key, counts)| {
            key.kind == Kind::RegisteredRing && before.get(key) != Some(counts)
        });
        let rings: Vec<_> = rings.collect();
        if rings.is_empty() {
            return eprintln!("skipped: the kernel registers no rings");
        }
        let mut told: Vec<u64> =
            rings.iter().map(|(_, counts)| counts.waits() + counts.looks()).collect();
        told.sort_unstable();
        assert_eq!(told, own_counts, "{rings:?}");
        let (thread, _) = rings[0].0.registration();
        assert!(thread > own, "{rings:?}");
    });
}
