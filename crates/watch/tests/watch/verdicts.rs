//! Small programs, each with one planted waste, and good ones: the verdict names each, and nothing
//! else.
//!
//! The programs run until their input ends, and print a line once they are at work. They wait as
//! real ones do, so the number of waits depends on the machine; the verdict must not.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use superpoll::diagnostics::Costs;
use superpoll::{BackendKind, Events, Interest, Poller};
use superpoll_test_support::{Running, alone, find, start};
use superpoll_watch::{Finding, Monitor, Subject, Waste, findings};

use crate::attach;

/// The beginning of each program: `work()` is called until the input ends.
const FRAME: &str = r#"
import os, select, socket, sys, threading, time

def pairs(count):
    made = [socket.socketpair() for _ in range(count)]
    for one, _ in made:
        one.setblocking(False)
    return made

def run(work):
    ended = threading.Event()
    def follow():
        sys.stdin.read()
        ended.set()
    threading.Thread(target=follow, daemon=True).start()
    for _ in range(3):
        work()
    print("at work", flush=True)
    while not ended.is_set():
        work()
    os._exit(0)
"#;

/// Returns the findings about a program, once it was watched long enough for `enough` to hold of
/// the waits that it has made.
fn judge(program: &str, enough: u64) -> Option<Vec<Finding>> {
    let mut command = Command::new("python3");
    command.args(["-c", &format!("{FRAME}\n{program}")]);
    let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = match started {
        Ok(child) => Running(child),
        Err(error) => {
            eprintln!("skipped: python3: {error}");
            return None;
        }
    };
    let mut line = String::new();
    BufReader::new(child.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "at work\n");
    let process = child.0.id();
    let mut monitor = Monitor::new(attach(Subject::Process(process))?, Some(process));
    let report = find("the program has waited often enough", || {
        let sample = monitor.tick();
        let report = monitor.report(&monitor.start(), &sample, false);
        let waits = |set: &superpoll_watch::SetReport| set.counts.waits();
        let waits: u64 = report.processes.iter().flat_map(|it| &it.sets).map(waits).sum();
        // A share of the processor is told in hundredths of a second.
        (waits >= enough && report.seconds > 0.5).then_some(report)
    });
    // The costs of a machine would make the tests of another.
    let found = findings(&report, &Costs::ASSUMED);
    drop(child);
    Some(found)
}

/// Checks that the first finding, which is the greatest, is this one.
fn names(program: &str, enough: u64, waste: Waste) {
    let Some(found) = judge(program, enough) else { return };
    assert_eq!(found.first().map(|finding| finding.waste), Some(waste), "{found:#?}");
}

fn has_nothing_to_gain(program: &str, enough: u64) {
    let Some(found) = judge(program, enough) else { return };
    assert_eq!(found, [], "{found:#?}");
}

#[test]
fn a_poll_of_many_with_few_active_is_named() {
    let program = r#"
import resource
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
all = pairs(min(2000, limit // 2 - 50))
poll = select.poll()
for one, _ in all:
    poll.register(one, select.POLLIN)
def work():
    for _, other in all[:3]:
        other.send(b"x")
    for number, _ in poll.poll():
        os.read(number, 64)
run(work)
"#;
    names(program, 500, Waste::Scan);
}

#[test]
fn changes_after_each_event_are_named() {
    let program = r#"
all = pairs(50)
epoll = select.epoll()
for one, _ in all:
    epoll.register(one, select.EPOLLIN | select.EPOLLONESHOT)
def work():
    for _, other in all[:10]:
        other.send(b"x")
    for number, _ in epoll.poll():
        os.read(number, 64)
        epoll.modify(number, select.EPOLLIN | select.EPOLLONESHOT)
run(work)
"#;
    names(program, 500, Waste::Changes);
}

#[test]
fn a_timeout_of_a_millisecond_is_named() {
    let program = r#"
all = pairs(10)
epoll = select.epoll()
for one, _ in all:
    epoll.register(one, select.EPOLLIN)
def work():
    epoll.poll(0.001)
run(work)
"#;
    names(program, 200, Waste::EmptyWaits);
}

#[test]
fn room_for_one_event_is_named() {
    let program = r#"
all = pairs(200)
epoll = select.epoll()
for one, _ in all:
    epoll.register(one, select.EPOLLIN)
def work():
    for _, other in all[:20]:
        other.send(b"x")
    for _ in range(20):
        for number, _ in epoll.poll(-1, 1):
            os.read(number, 64)
run(work)
"#;
    names(program, 2000, Waste::Room);
}

#[test]
fn reads_until_there_is_nothing_are_named() {
    let program = r#"
all = pairs(200)
epoll = select.epoll()
for one, _ in all:
    epoll.register(one, select.EPOLLIN)
def work():
    for _, other in all[:20]:
        other.send(b"x")
    for number, _ in epoll.poll():
        try:
            while True:
                os.read(number, 64)
        except BlockingIOError:
            pass
run(work)
"#;
    names(program, 500, Waste::EmptyReads);
}

#[test]
fn a_herd_is_named() {
    // The connections come from the program itself; that thread makes no wait.
    let program = r#"
import ctypes
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(64)
listener.setblocking(False)
def serve():
    # With its parent.
    ctypes.CDLL(None).prctl(1, 9)
    epoll = select.epoll()
    epoll.register(listener, select.EPOLLIN)
    while True:
        epoll.poll()
        # As if it did something first: meanwhile the kernel wakes all others.
        time.sleep(0.001)
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            pass
for _ in range(8):
    if os.fork() == 0:
        serve()
def work():
    socket.create_connection(listener.getsockname()).close()
    time.sleep(0.002)
run(work)
"#;
    // The children are there before the first line, so they are watched from the start.
    alone(|| {
        let Some(watch) = attach(Subject::Children) else { return };
        let mut command = Command::new("python3");
        command.args(["-c", &format!("{FRAME}\n{program}")]);
        let mut child = Running(start(command.stdin(Stdio::piped()).stdout(Stdio::piped())));
        watch.end_of_children();
        let mut line = String::new();
        BufReader::new(child.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let mut monitor = Monitor::new(watch, Some(child.0.id()));
        // Without the time in which the programs start.
        let start = monitor.tick();
        let report = find("the program has accepted often enough", || {
            let sample = monitor.tick();
            let report = monitor.report(&start, &sample, false);
            let accepts: u64 = report.processes.iter().map(|it| it.calls.accepts()).sum();
            (accepts >= 300).then_some(report)
        });
        let found = findings(&report, &Costs::ASSUMED);
        drop(child);
        let is_named = found.iter().any(|finding| finding.waste == Waste::Herd);
        assert!(is_named, "{found:#?}\n{report:#?}");
    });
}

#[test]
fn a_program_that_takes_what_is_there_has_nothing_to_gain() {
    let program = r#"
all = pairs(200)
epoll = select.epoll()
for one, _ in all:
    epoll.register(one, select.EPOLLIN)
def work():
    for _, other in all[:20]:
        other.send(b"x")
    for number, _ in epoll.poll():
        os.read(number, 64)
run(work)
"#;
    has_nothing_to_gain(program, 500);
}

#[test]
fn a_program_that_sleeps_has_nothing_to_gain() {
    let program = r#"
all = pairs(40)
epoll = select.epoll()
for one, _ in all:
    epoll.register(one, select.EPOLLIN)
def send():
    while True:
        time.sleep(0.02)
        all[7][1].send(b"x")
threading.Thread(target=send, daemon=True).start()
def work():
    for number, _ in epoll.poll(0.5):
        os.read(number, 64)
run(work)
"#;
    has_nothing_to_gain(program, 20);
}

/// One thread waits for many streams, and another sends a byte a moment after the last was read. So
/// each wait sleeps and gets one event, and the sender keeps the process busy.
#[test]
fn one_event_for_each_of_many_waits_is_named() {
    alone(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let read = Arc::new(AtomicU64::new(0));
        let pairs: Vec<_> = (0..16).map(|_| UnixStream::pair().unwrap()).collect();
        let (ends, senders): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let Some(watch) = attach(Subject::Process(std::process::id())) else { return };
        let (has_ended, counted) = (stop.clone(), read.clone());
        let waiter = std::thread::spawn(move || {
            let mut poller = Poller::builder().backend(BackendKind::Epoll).build().unwrap();
            for end in &ends {
                end.set_nonblocking(true).unwrap();
                poller.register(end, Interest::READABLE).unwrap();
            }
            let mut events = Events::with_limit(64);
            while !has_ended.load(Ordering::Relaxed) {
                poller.wait(&mut events, Some(Duration::from_millis(20))).unwrap();
                if !events.is_empty() && (&ends[0]).read(&mut [0; 8]).is_ok() {
                    counted.fetch_add(1, Ordering::Release);
                }
            }
            // The sender may be about to write.
            ends
        });
        let (has_ended, counted) = (stop.clone(), read.clone());
        let sender = std::thread::spawn(move || {
            let mut sent = 0;
            while !has_ended.load(Ordering::Relaxed) {
                if counted.load(Ordering::Acquire) == sent {
                    // The other thread falls asleep meanwhile.
                    let until = Instant::now() + Duration::from_micros(8);
                    while Instant::now() < until {}
                    (&senders[0]).write_all(b"x").unwrap();
                    sent += 1;
                }
            }
        });
        let mut monitor = Monitor::new(watch, Some(std::process::id()));
        let mut earlier = monitor.tick();
        let mut fastest = 0.0_f64;
        let bound = Instant::now() + Duration::from_secs(30);
        let mut found = Vec::new();
        while Instant::now() < bound && found.iter().all(|it: &Finding| it.waste != Waste::Trickle)
        {
            std::thread::sleep(Duration::from_millis(300));
            let sample = monitor.tick();
            let report = monitor.report(&earlier, &sample, false);
            let sets = report.processes.iter().flat_map(|process| &process.sets);
            let waits: u64 = sets.map(|set| set.counts.waits()).sum();
            fastest = fastest.max(waits as f64 / report.seconds);
            found = findings(&report, &Costs::ASSUMED);
            earlier = sample;
        }
        stop.store(true, Ordering::Relaxed);
        let _ends = waiter.join().unwrap();
        sender.join().unwrap();
        let is_named = found.iter().any(|it| it.waste == Waste::Trickle);
        if !is_named && fastest < 25_000.0 {
            return eprintln!("skipped: at most {fastest:.0} waits a second on this machine");
        }
        assert!(is_named, "{fastest} {found:#?}");
    });
}
