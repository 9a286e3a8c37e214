//! A recording has the registrations and the waits of the program, in order.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufReader;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use superpoll::diagnostics::Kind as CostKind;
use superpoll_test_support::{alone, start};
use superpoll_watch::{
    End, Entry, Error, Key, Kind, Recorder, RecordingReader, RecordingWriter, Subject, Watch,
};
use tempfile::TempDir;

use crate::Program;

/// Records a program of Python's, and returns the records.
fn record(program: &str, limit: u64) -> Option<Vec<Entry>> {
    let (watch, records) = match Watch::attach_to_record(Subject::Children) {
        Ok(attached) => attached,
        Err(error @ (Error::NotPermitted(_) | Error::NoBpf { .. } | Error::Namespace)) => {
            assert!(!error.to_string().contains("processed"), "{error}");
            eprintln!("skipped: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("recording");
    // It is for its owner alone from now on.
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let recorder = Recorder::start(records, Recorder::open(&path).unwrap(), limit).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut child = start(Command::new("python3").args(["-c", program]));
    watch.end_of_children();
    assert!(child.wait().unwrap().success());
    drop(watch);
    let end = recorder.end().unwrap();
    let entries = read(&path);
    assert_eq!(entries.last(), Some(&Entry::End(end)));
    assert!(fs::metadata(&path).unwrap().len() <= limit);
    Some(entries)
}

fn read(path: &Path) -> Vec<Entry> {
    let mut reader = RecordingReader::new(BufReader::new(File::open(path).unwrap())).unwrap();
    let mut entries = Vec::new();
    while let Some(entry) = reader.entry().unwrap() {
        entries.push(entry);
    }
    entries
}

/// The members of the only set of a kind, before each of its waits, and the ready ones.
fn waits(entries: &[Entry], kind: Kind) -> Vec<(usize, Vec<u32>, i64)> {
    waits_of(entries, |key| key.kind == kind)
}

/// The same of the sets that are wanted.
fn waits_of(entries: &[Entry], is_wanted: impl Fn(&Key) -> bool) -> Vec<(usize, Vec<u32>, i64)> {
    let mut sets = Vec::new();
    let mut members: Vec<BTreeSet<u32>> = Vec::new();
    let mut found = Vec::new();
    for entry in entries {
        match entry {
            Entry::Set { key, .. } => {
                sets.push(is_wanted(key));
                members.push(BTreeSet::new());
            }
            Entry::Join { set, member } => assert!(members[*set as usize].insert(*member)),
            Entry::Leave { set, member } => assert!(members[*set as usize].remove(member)),
            Entry::Wait(wait) if sets[wait.set as usize] => {
                let length = members[wait.set as usize].len();
                found.push((length, wait.ready.clone(), wait.timeout_ns));
            }
            Entry::Wait(_) | Entry::End(_) => {}
        }
    }
    found
}

fn end(entries: &[Entry]) -> &End {
    match entries.last() {
        Some(Entry::End(end)) => end,
        other => panic!("{other:?}"),
    }
}

/// The pattern of the programs below: of 40 descriptors, `round % 7` are ready; the last ones
/// leave and come again.
const ROUNDS: usize = 300;

const PROGRAM: &str = r#"
import select, socket
pairs = [socket.socketpair() for _ in range(40)]
def play(add, remove, wait):
    for one, _ in pairs:
        add(one)
    for round in range(300):
        for _, other in pairs[:round % 7]:
            other.send(b"x")
        wait()
        for one, _ in pairs[:round % 7]:
            one.recv(8)
        if round % 50 == 10:
            remove(pairs[39][0])
        if round % 50 == 20:
            add(pairs[39][0])
"#;

/// The expected waits: how many members there are, and the ready ones.
fn expected() -> Vec<(usize, Vec<u32>, i64)> {
    let wait = |round: usize| {
        let is_away = (11..21).contains(&(round % 50));
        (40 - usize::from(is_away), (0..(round % 7) as u32).collect(), 0)
    };
    (0..ROUNDS).map(wait).collect()
}

#[test]
fn an_epoll_set_is_recorded() {
    alone(|| {
        let program = format!(
            "{PROGRAM}\nepoll = select.epoll()\n\
             play(lambda one: epoll.register(one, select.EPOLLIN), epoll.unregister, \
             lambda: epoll.poll(0))"
        );
        let Some(entries) = record(&program, 1 << 20) else { return };
        assert_eq!(waits(&entries, Kind::Epoll), expected());
        let end = end(&entries);
        assert_eq!((end.lost_waits, end.lost_changes, end.cut_waits), (0, 0, 0));
        assert!(!end.is_full && end.duration_ns > 0);
    });
}

/// A process that was there before: its set is read from `/proc`, and then follows the changes.
#[test]
fn the_descriptors_of_before_are_in_a_recording() {
    let program = r#"
import select, socket, sys
pairs = [socket.socketpair() for _ in range(12)]
epoll = select.epoll()
for one, _ in pairs[:10]:
    epoll.register(one, select.EPOLLIN)
print("ready", flush=True)
sys.stdin.readline()
pairs[3][1].send(b"x")
epoll.poll(0)
epoll.unregister(pairs[3][0])
epoll.register(pairs[10][0], select.EPOLLIN)
epoll.register(pairs[11][0], select.EPOLLIN)
pairs[11][1].send(b"x")
epoll.poll(0)
print("done", flush=True)
sys.stdin.readline()
"#;
    let Some(entries) = record_running(program, Subject::Process) else { return };
    assert_eq!(waits(&entries, Kind::Epoll), [(10, vec![3], 0), (11, vec![10], 0)]);
    assert_eq!(end(&entries).kinds, [CostKind::Unix]);
}

/// With all processes, a set is known by its first record: here the one of another descriptor.
#[test]
fn the_descriptors_of_before_are_in_a_recording_of_all_processes() {
    alone(|| {
        let program = r#"
import select, socket, sys
pairs = [socket.socketpair() for _ in range(31)]
epoll = select.epoll()
for one, _ in pairs[:30]:
    epoll.register(one, select.EPOLLIN)
print("ready", flush=True)
sys.stdin.readline()
epoll.register(pairs[30][0], select.EPOLLIN)
pairs[3][1].send(b"x")
epoll.poll(0)
print("done", flush=True)
sys.stdin.readline()
"#;
        let mut process = 0;
        let all = |number| {
            process = number;
            Subject::All
        };
        let Some(entries) = record_running(program, all) else { return };
        let found = waits_of(&entries, |key| key.process == process && key.kind == Kind::Epoll);
        assert_eq!(found, [(31, vec![3], 0)]);
    });
}

/// Records a program that runs, from its line "ready" to its line "done".
fn record_running(program: &str, subject: impl FnOnce(u32) -> Subject) -> Option<Vec<Entry>> {
    let mut program = Program::start(program, &[])?;
    program.says("ready");
    let (watch, records) = match Watch::attach_to_record(subject(program.id())) {
        Ok(attached) => attached,
        Err(error) => {
            eprintln!("skipped: {error}");
            return None;
        }
    };
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("recording");
    let recorder = Recorder::start(records, Recorder::open(&path).unwrap(), 1 << 26).unwrap();
    program.tell("go");
    program.says("done");
    drop(watch);
    recorder.end().unwrap();
    Some(read(&path))
}

/// A set that is closed is over, though another gets its number.
#[test]
fn a_new_set_of_the_same_number_has_no_earlier_descriptors() {
    alone(|| {
        let program = "import select, socket\n\
                       pairs = [socket.socketpair() for _ in range(5)]\n\
                       def wait(count):\n\
                       \u{20}epoll = select.epoll()\n\
                       \u{20}for one, _ in pairs[:count]: epoll.register(one, select.EPOLLIN)\n\
                       \u{20}epoll.poll(0)\n\
                       \u{20}number = epoll.fileno()\n\
                       \u{20}epoll.close()\n\
                       \u{20}return number\n\
                       numbers = {wait(5), wait(2), wait(3)}\n\
                       assert len(numbers) == 1, numbers\n";
        let Some(entries) = record(program, 1 << 20) else { return };
        let found = waits(&entries, Kind::Epoll);
        assert_eq!(found, [5, 2, 3].map(|members| (members, vec![], 0)));
    });
}

/// The child's first record adds a descriptor to a set that it has from its parent.
#[test]
fn a_set_of_before_a_fork_has_its_descriptors_in_the_child() {
    let program = r#"
import os, select, socket, sys
pairs = [socket.socketpair() for _ in range(5)]
epoll = select.epoll()
for one, _ in pairs[:4]:
    epoll.register(one, select.EPOLLIN)
print("ready", flush=True)
sys.stdin.readline()
if os.fork() == 0:
    epoll.register(pairs[4][0], select.EPOLLIN)
    epoll.poll(0)
    print("done", flush=True)
    sys.stdin.readline()
    os._exit(0)
os.wait()
"#;
    let Some(entries) = record_running(program, Subject::Process) else { return };
    assert_eq!(waits(&entries, Kind::Epoll), [(5, vec![], 0)]);
}

#[test]
fn arrays_of_poll_and_select_are_recorded() {
    alone(|| {
        let poll = format!(
            "{PROGRAM}\npoll = select.poll()\n\
             play(lambda one: poll.register(one, select.POLLIN), poll.unregister, \
             lambda: poll.poll(0))"
        );
        let Some(entries) = record(&poll, 1 << 20) else { return };
        assert_eq!(waits(&entries, Kind::Poll), expected());
        let select = format!(
            "{PROGRAM}\nwatched = []\n\
             play(watched.append, watched.remove, lambda: select.select(watched, [], [], 0))"
        );
        let Some(entries) = record(&select, 1 << 20) else { return };
        assert_eq!(waits(&entries, Kind::Select), expected());
        assert_eq!(end(&entries).lost_waits, 0);
    });
}

#[test]
fn a_recording_ends_at_its_size() {
    alone(|| {
        let program = "import select\nepoll = select.epoll()\nfor _ in range(5000): epoll.poll(0)";
        let Some(entries) = record(program, 2_000) else { return };
        assert!(end(&entries).is_full);
        let waits = waits(&entries, Kind::Epoll).len();
        assert!((100..5000).contains(&waits), "{waits}");
    });
}

/// What is lost as the ring is full is counted: nobody reads it while the program waits.
#[test]
fn lost_waits_are_counted() {
    alone(|| {
        let (watch, records) = match Watch::attach_to_record(Subject::Children) {
            Ok(attached) => attached,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        // 64 bytes and 12 for each of 200 events: 3,400 waits fill the ring.
        let program = "import select, socket\n\
                       pairs = [socket.socketpair() for _ in range(200)]\n\
                       epoll = select.epoll()\n\
                       for one, other in pairs:\n\
                       \u{20}epoll.register(one, select.EPOLLIN)\n\
                       \u{20}other.send(b'x')\n\
                       for _ in range(6000): epoll.poll(0, 200)";
        let mut child = start(Command::new("python3").args(["-c", program]));
        watch.end_of_children();
        assert!(child.wait().unwrap().success());
        let folder = TempDir::new().unwrap();
        let file = Recorder::open(&folder.path().join("recording")).unwrap();
        drop(watch);
        let end = Recorder::start(records, file, 1 << 26).unwrap().end().unwrap();
        assert!((1_000..5_000).contains(&end.lost_waits), "{end:?}");
    });
}

#[test]
fn a_recording_replaces_a_recording_and_nothing_else() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("file");
    let file = Recorder::open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    RecordingWriter::new(file, 1_000).unwrap().end(&End::default()).unwrap();
    let before = fs::read(&path).unwrap();
    drop(Recorder::open(&path).unwrap());
    assert_eq!(fs::read(&path).unwrap(), before, "it is kept until the recording starts");
    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    let error = Recorder::open(&link).unwrap_err().to_string();
    assert!(error.contains("symbolic link"), "{error}");
    match chown(&path, Some(65_534), None) {
        Ok(()) => {
            let error = Recorder::open(&path).unwrap_err().to_string();
            assert!(error.contains("another user"), "{error}");
        }
        Err(error) => eprintln!("skipped: a file of another user: {error}"),
    }
    fs::remove_file(&path).unwrap();
    fs::write(&path, "notes of mine").unwrap();
    let error = Recorder::open(&path).unwrap_err().to_string();
    assert!(error.contains("another kind of file"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"notes of mine");
    assert!(Recorder::open(folder.path()).is_err());
    let error = Recorder::open("/dev/null".as_ref()).unwrap_err().to_string();
    assert!(error.contains("regular file"), "{error}");
}
