//! Counts are those that the programs have themselves.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use superpoll::{BackendKind, Events, Interest, Poller};
use superpoll_test_support::{alone, start};
use superpoll_watch::{Counts, Kind, Monitor, Subject};

use crate::{Program, attach, of, sum};

/// Pairs whose first end is registered, and rounds in which some of them get a byte.
fn rounds(kind: BackendKind) {
    // A first poller measures the machine, with calls that are in no poller's counts.
    let mut first = Poller::builder().backend(kind).build().unwrap();
    first.wait(&mut Events::with_limit(1), Some(Duration::from_millis(1))).unwrap();
    drop(first);
    let Some(watch) = attach(Subject::Process(std::process::id())) else { return };
    let mut poller = Poller::builder().backend(kind).build().unwrap();
    let mut pairs = Vec::new();
    for _ in 0..40 {
        let (one, other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        poller.register(&one, Interest::READABLE).unwrap();
        pairs.push((one, other));
    }
    let mut events = Events::with_limit(1024);
    let mut reported = 0_u64;
    for round in 0..200 {
        let active = round % 23;
        for (_, other) in pairs.iter().take(active) {
            (&*other).write_all(b"x").unwrap();
        }
        let timeout = if active == 0 { Duration::from_millis(1) } else { Duration::from_secs(30) };
        poller.wait(&mut events, Some(timeout)).unwrap();
        reported += events.len() as u64;
        for (one, _) in pairs.iter().take(active) {
            let mut reader = one;
            assert_eq!(std::io::Read::read(&mut reader, &mut [0; 8]).unwrap(), 1);
        }
        if round % 10 == 9 {
            let error = std::io::Read::read(&mut &pairs[39].0, &mut [0; 8]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        }
    }
    let own = std::process::id();
    let calls = poller.stats().calls;
    let waits = calls.poll + calls.ppoll;
    let arrays = of(&watch, own, Kind::Poll);
    let selects = of(&watch, own, Kind::Select);
    let sets = of(&watch, own, Kind::Epoll);
    assert_eq!(sum(&selects, Counts::waits), calls.select, "{kind}");
    assert_eq!(sum(&arrays, Counts::waits), waits, "{kind}");
    assert_eq!(sum(&sets, Counts::waits), calls.epoll_wait + calls.epoll_pwait2, "{kind}");
    assert_eq!(sum(&sets, Counts::added), calls.epoll_ctl_add, "{kind}");
    assert_eq!(sum(&sets, Counts::changed), calls.epoll_ctl_mod, "{kind}");
    assert_eq!(sum(&sets, Counts::removed), calls.epoll_ctl_del, "{kind}");
    let rings = of(&watch, own, Kind::Ring);
    let entered = sum(&rings, Counts::waits) + sum(&rings, Counts::looks);
    assert_eq!(entered, calls.io_uring_enter, "{kind}: {rings:?}");
    let process = of(&watch, own, Kind::Process);
    let expected = (0..200).map(|round| round % 23).sum::<u64>();
    assert_eq!(sum(&process, Counts::empty_reads), 20, "{kind}");
    // Others are of the test's own files.
    assert!(sum(&process, Counts::reads) >= expected, "{kind}: {process:?}");
    match kind {
        BackendKind::Epoll => {
            assert_eq!(sum(&sets, Counts::events), reported);
            assert_eq!(reported, expected);
            // Edge or level: each active one has its own data. Now and then two share a bit.
            let distinct: f64 = watch.take_distinct().values().sum();
            assert!((20.0..=22.0).contains(&distinct.round()), "{distinct}");
            assert_eq!(watch.take_distinct().values().sum::<f64>(), 0.0);
            let timed_out = sum(&sets, Counts::timed_out);
            assert_eq!(timed_out, sum(&sets, Counts::empty) - sum(&sets, Counts::empty_looks));
            assert_eq!(timed_out, sum(&sets, Counts::short_timeouts));
            assert!(timed_out > 0, "{sets:?}");
        }
        BackendKind::Poll => {
            assert_eq!(sum(&arrays, Counts::events), reported);
            // The waker and the pairs, each time.
            assert!(sum(&arrays, Counts::watched) >= 40 * waits, "{arrays:?}");
        }
        BackendKind::Select => assert_eq!(sum(&selects, Counts::events), reported),
        _ => {}
    }
}

#[test]
fn epoll_counts_are_those_of_our_poller() {
    alone(|| rounds(BackendKind::Epoll));
}

#[test]
fn poll_counts_are_those_of_our_poller() {
    alone(|| rounds(BackendKind::Poll));
}

#[test]
fn select_counts_are_those_of_our_poller() {
    alone(|| rounds(BackendKind::Select));
}

#[test]
fn ring_counts_are_those_of_our_poller() {
    if BackendKind::Uring.is_available() {
        alone(|| rounds(BackendKind::Uring));
    } else {
        eprintln!("skipped: io_uring is not available");
    }
}

#[test]
fn adaptive_counts_are_those_of_our_poller() {
    alone(|| rounds(BackendKind::Adaptive));
}

/// A loop of CPython's that counts what its selector returns, with its name, descriptors and rounds
/// as arguments. It begins and ends at a line, so the window is the same for both counts.
pub(crate) const PYTHON: &str = r#"
import selectors, socket, sys
selector = getattr(selectors, sys.argv[1])()
pairs = [socket.socketpair() for _ in range(int(sys.argv[2]))]
for one, _ in pairs:
    one.setblocking(False)
    selector.register(one, selectors.EVENT_READ)
print("ready", flush=True)
sys.stdin.readline()
waits = events = empty = 0
for round in range(int(sys.argv[3])):
    active = round % 23
    for _, other in pairs[:active]:
        other.send(b"x")
    found = selector.select(0 if round % 2 else 0.001)
    waits += 1
    events += len(found)
    empty += not found
    for key, _ in found:
        key.fileobj.recv(8)
print(waits, events, empty, flush=True)
sys.stdin.readline()
"#;

fn python(selector: &str, kind: Kind) {
    let Some(mut program) = Program::start(PYTHON, &[selector, "100", "3000"]) else { return };
    program.says("ready");
    let Some(watch) = attach(Subject::Process(program.id())) else { return };
    program.tell("go");
    let line = program.line();
    let counted: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
    let counts = of(&watch, program.id(), kind);
    let told = [Counts::waits, Counts::events, Counts::empty].map(|count| sum(&counts, count));
    assert_eq!(told, *counted, "{selector}: {counts:?}");
}

#[test]
fn counts_are_those_of_cpython() {
    python("EpollSelector", Kind::Epoll);
    python("PollSelector", Kind::Poll);
    python("SelectSelector", Kind::Select);
}

#[test]
fn active_ones_are_the_mean_of_seconds_and_no_more_than_there_are() {
    alone(|| {
        let own = std::process::id();
        let Some(watch) = attach(Subject::Process(own)) else { return };
        let mut poller = Poller::builder().backend(BackendKind::Epoll).build().unwrap();
        let mut events = Events::with_limit(64);
        let pairs: Vec<_> = (0..10).map(|_| UnixStream::pair().unwrap()).collect();
        for (one, _) in &pairs {
            one.set_nonblocking(true).unwrap();
            poller.register(one, Interest::READABLE).unwrap();
        }
        let mut monitor = Monitor::new(watch, Some(own));
        let start = monitor.start();
        let mut round = || {
            for (_, other) in &pairs {
                (&*other).write_all(b"x").unwrap();
            }
            poller.wait(&mut events, Some(Duration::from_secs(30))).unwrap();
            assert_eq!(events.len(), 10);
            for (one, _) in &pairs {
                assert_eq!(std::io::Read::read(&mut &*one, &mut [0; 8]).unwrap(), 1);
            }
            monitor.tick()
        };
        round();
        // This tick ends a small part of a second.
        let last = round();
        drop((poller, pairs));
        let report = monitor.report(&start, &last, true);
        let sets = report.processes.iter().flat_map(|process| &process.sets);
        let set = sets.max_by_key(|set| set.counts.events()).unwrap();
        assert_eq!((set.counts.events(), set.active.round()), (20, 10.0), "{report:?}");
        // Its descriptors are gone, and were registered in the second.
        assert!(set.active_ratio() <= 1.0, "{report:?}");
    });
}

/// A loop of Node's, which counts the events of its library's loop (`uv_metrics_info`). Where it
/// reads a line it blocks, so that the window is the same for both counts.
const NODE: &str = r#"
const fs = require("fs"), net = require("net");
const { nodeTiming } = require("perf_hooks").performance;
const tell = (text) => fs.writeSync(1, text + "\n");
const hear = () => fs.readSync(0, Buffer.alloc(8));
const counted = () => nodeTiming.uvMetricsInfo;
if (!counted()) { tell("too old"); process.exit(); }
const path = process.argv[1] + "/socket", clients = [];
const server = net.createServer((socket) => socket.pipe(socket)).listen(path, () => {
  for (let left = 20; left > 0; left--) clients.push(net.connect(path));
  let before, round = 0;
  const step = () => {
    if (round === 0) { tell("ready"); hear(); before = counted(); }
    for (const client of clients.slice(0, round % 7)) client.write("x");
    if (round++ < 300) return setTimeout(step, 1);
    const after = counted();
    tell((after.loopCount - before.loopCount) + " " + (after.events - before.events));
    hear();
    process.exit();
  };
  clients.forEach((client) => client.resume());
  setTimeout(step, 20);
});
"#;

#[test]
fn counts_are_those_of_node() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let Some(mut program) = Program::start_by(["node", "-e"], NODE, &[place]) else { return };
    match &*program.line() {
        "too old" => return eprintln!("skipped: this Node does not tell uv_metrics_info"),
        line => assert_eq!(line, "ready"),
    }
    let Some(watch) = attach(Subject::Process(program.id())) else { return };
    program.tell("go");
    let line = program.line();
    let counted: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
    // Its other threads have loops of their own.
    let sets = of(&watch, program.id(), Kind::Epoll);
    let counts = sets.iter().max_by_key(|counts| counts.events()).unwrap();
    assert_eq!(counts.events(), counted[1], "{sets:?}");
    assert!(counted[1] > 1_000 && counts.waits() >= counted[0], "{counted:?}: {counts:?}");
}

/// Rounds in which some streams get a byte, on a runtime of tokio's with one thread.
async fn rounds_of_tokio() {
    let own = std::process::id();
    let mut pairs = Vec::new();
    for _ in 0..40 {
        let (one, other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        pairs.push((tokio::net::UnixStream::from_std(one).unwrap(), other));
    }
    // Each is reported as writable once.
    for (one, _) in &pairs {
        one.writable().await.unwrap();
    }
    let Some(watch) = attach(Subject::Process(own)) else { return };
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.worker_park_count(0);
    let (mut events, mut nothing) = (0, 0);
    for round in 0..200 {
        let active = 1 + round % 7;
        for (_, other) in &pairs[..active] {
            (&*other).write_all(b"x").unwrap();
        }
        for (one, _) in &pairs[..active] {
            one.readable().await.unwrap();
            events += 1;
            while let Ok(count) = one.try_read(&mut [0; 8]) {
                assert_eq!(count, 1);
            }
            nothing += 1;
        }
    }
    let parked = metrics.worker_park_count(0) - before;
    let sets = of(&watch, own, Kind::Epoll);
    let told = [Counts::waits, Counts::events, Counts::failed].map(|count| sum(&sets, count));
    assert_eq!(told, [parked, events, 0], "{sets:?}");
    assert_eq!(parked, 200, "one for each round");
    let process = of(&watch, own, Kind::Process);
    assert_eq!(sum(&process, Counts::empty_reads), nothing, "{process:?}");
}

#[test]
fn counts_are_those_of_tokio() {
    alone(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(rounds_of_tokio());
    });
}

#[test]
fn processes_that_a_watched_one_starts_are_followed_and_others_are_not() {
    alone(|| {
        let Some(watch) = attach(Subject::Children) else { return };
        // The shell's child makes the waits, after it was forked and has executed another program.
        let script = "import select; [select.epoll().poll(0) for _ in range(17)]";
        let mut shell = Command::new("sh");
        shell.args(["-c", "python3 -c \"$1\"; true", "sh", script]);
        let mut child = start(&mut shell);
        watch.end_of_children();
        let mut other = start(Command::new("python3").args(["-c", script]));
        assert!(child.wait().unwrap().success() && other.wait().unwrap().success());
        let mut waits = std::collections::BTreeMap::new();
        for (key, counts) in watch.counts() {
            assert!(key.process != std::process::id() && key.process != other.id(), "{key:?}");
            if key.kind == Kind::Epoll {
                *waits.entry(key.process).or_insert(0) += counts.waits();
            }
        }
        assert!(!waits.contains_key(&child.id()), "the shell has no set");
        assert_eq!(waits.into_values().collect::<Vec<u64>>(), [17]);
    });
}

#[test]
fn all_processes_but_this_one_can_be_watched() {
    alone(|| {
        let Some(watch) = attach(Subject::All) else { return };
        let script = "import select; [select.epoll().poll(0) for _ in range(19)]";
        let mut child = start(Command::new("python3").args(["-c", script]));
        assert!(child.wait().unwrap().success());
        assert_eq!(sum(&of(&watch, child.id(), Kind::Epoll), Counts::waits), 19);
        assert!(watch.counts().keys().all(|key| key.process != std::process::id()));
        assert_eq!(watch.overflow(), 0);
    });
}

#[test]
fn nothing_is_counted_or_attached_after_the_end() {
    alone(|| {
        let own = std::process::id();
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = descriptors();
        for _ in 0..3 {
            let Some(watch) = attach(Subject::Process(own)) else { return };
            assert!(descriptors() > before);
            drop(watch);
            assert_eq!(descriptors(), before);
        }
    });
}

#[test]
fn registered_descriptors_are_counted_and_closed_ones_are_drift() {
    let program = r#"
import select, socket, sys
pairs = [socket.socketpair() for _ in range(60)]
epoll = select.epoll()
for one, _ in pairs[:30]:
    epoll.register(one, select.EPOLLIN)
print("ready", flush=True)
sys.stdin.readline()
for one, _ in pairs[30:]:
    epoll.register(one, select.EPOLLIN)
for one, _ in pairs[:5]:
    epoll.unregister(one)
for one, _ in pairs[5:12]:
    one.close()
epoll.poll(0)
print("done", flush=True)
sys.stdin.readline()
"#;
    let Some(mut program) = Program::start(program, &[]) else { return };
    program.says("ready");
    let Some(watch) = attach(Subject::Process(program.id())) else { return };
    let mut monitor = Monitor::new(watch, Some(program.id()));
    program.tell("go");
    program.says("done");
    let sample = monitor.tick();
    let report = monitor.report(&monitor.start(), &sample, true);
    let set = &report.processes[0].sets[0];
    assert_eq!(set.registered.as_ref().unwrap().kinds, [("unix".to_owned(), 30)].into());
    assert_eq!((set.counts.added(), set.counts.removed()), (30, 5));
    assert_eq!((set.watched, set.registered_at_end), (55.0, Some(48)));
    assert_eq!(set.present(), 48.0, "closed ones are in no ratio and no verdict");
}
