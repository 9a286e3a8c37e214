//! Processes that start, end, and leave their numbers to others.

use std::process::Command;

use superpoll_test_support::{alone, start};
use superpoll_watch::{Counts, Kind, Monitor, Subject};

use crate::{Program, attach, of, sum};

/// Makes three waits on an epoll set.
const THREE: &str = "import select; [select.epoll().poll(0) for _ in range(3)]";

#[test]
fn a_process_that_gets_the_number_of_a_watched_one_is_not_counted() {
    const LAST: &str = "/proc/sys/kernel/ns_last_pid";
    alone(|| {
        let Some(watch) = attach(Subject::Children) else { return };
        let mut child = start(Command::new("python3").args(["-c", THREE]));
        watch.end_of_children();
        assert!(child.wait().unwrap().success());
        let number = child.id();
        let waits = |watch| sum(&of(watch, number, Kind::Epoll), Counts::waits);
        assert_eq!(waits(&watch), 3);
        // Another process may be faster.
        for _ in 0..200 {
            if let Err(error) = std::fs::write(LAST, (number - 1).to_string()) {
                return eprintln!("skipped: {LAST}: {error}");
            }
            let mut other = start(Command::new("python3").args(["-c", THREE]));
            let has_number = other.id() == number;
            assert!(other.wait().unwrap().success());
            if has_number {
                return assert_eq!(waits(&watch), 3);
            }
        }
        eprintln!("skipped: no process got the number {number}");
    });
}

/// Starts as many processes as each line says. Each makes a wait.
const STARTS: &str = r#"
import os, select, sys
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        child = os.fork()
        if child == 0:
            select.epoll().poll(0)
            os._exit(0)
        os.waitpid(child, 0)
    print("done", flush=True)
"#;

#[test]
fn processes_that_have_ended_make_room_for_others_and_are_in_the_summary() {
    let Some(mut program) = Program::start(STARTS, &[]) else { return };
    program.says("ready");
    let Some(watch) = attach(Subject::Process(program.id())) else { return };
    let mut monitor = Monitor::new(watch, Some(program.id()));
    let room = monitor.watch().slots();
    // Each has two slots, so there is room for two rounds.
    let round = room / 5;
    let mut started = 0;
    let mut after = |rounds| {
        let mut sample = monitor.tick();
        for _ in 0..rounds {
            program.tell(&round.to_string());
            program.says("done");
            sample = monitor.tick();
            started += round as u64;
        }
        let report = monitor.report(&monitor.start(), &sample, true);
        assert_eq!((report.overflow, report.unfollowed), (0, 0));
        let sets = report.processes.iter().flat_map(|process| &process.sets);
        let waits: u64 = sets.map(|set| set.counts.waits()).sum();
        assert_eq!(waits + report.forgotten, started);
        report
    };
    assert_eq!(after(3).forgotten, 0);
    // The counts of more than 2,000 are not kept.
    assert_ne!(after(9).forgotten, 0);
}

#[test]
fn calls_and_processes_beyond_the_last_slot_are_told() {
    let Some(mut program) = Program::start(STARTS, &[]) else { return };
    program.says("ready");
    let Some(watch) = attach(Subject::Process(program.id())) else { return };
    let room = watch.slots();
    program.tell(&room.to_string());
    program.says("done");
    let counts = watch.counts();
    let sets: Vec<Counts> = counts
        .into_iter()
        .filter(|(key, _)| key.kind == Kind::Epoll)
        .map(|(_, counts)| counts)
        .collect();
    let waits = sum(&sets, Counts::waits);
    // The rest had no slot: one for its wait, the others none at all.
    let (calls, processes) = (watch.overflow(), watch.unfollowed());
    assert!(calls <= 1 && processes > 0, "{calls} {processes}");
    assert_eq!(waits + calls + processes, room as u64);
    // What has ended makes room.
    let mut monitor = Monitor::new(watch, Some(program.id()));
    monitor.tick();
    program.tell("5");
    program.says("done");
    assert_eq!(monitor.watch().unfollowed(), processes);
}

#[test]
fn a_set_that_is_empty_is_not_taken_for_one_that_is_gone() {
    let text = r#"
import os, select, sys
epoll = select.epoll()
print("ready", flush=True)
def add(count):
    sys.stdin.readline()
    pipes = [os.pipe() for _ in range(count)]
    for one, _ in pipes:
        epoll.register(one, select.EPOLLIN)
    return [end for pipe in pipes for end in pipe]
for end in add(5):
    os.close(end)
print("empty", flush=True)
kept = add(2)
print("two", flush=True)
sys.stdin.readline()
"#;
    let Some(mut program) = Program::start(text, &[]) else { return };
    program.says("ready");
    let Some(watch) = attach(Subject::Process(program.id())) else { return };
    program.tell("add five");
    program.says("empty");
    // It sees the set for the first time.
    let mut monitor = Monitor::new(watch, Some(program.id()));
    program.tell("add two");
    program.says("two");
    let sample = monitor.tick();
    let report = monitor.report(&monitor.start(), &sample, true);
    let set = &report.processes[0].sets[0];
    assert_eq!((set.watched, set.registered_at_end), (2.0, Some(2)), "{set:?}");
    assert_eq!(set.registered.as_ref().map(superpoll_watch::Registered::total), Some(0));
}

#[test]
fn a_process_that_has_ended_keeps_its_name_and_its_set() {
    let text = r#"
import os, select, sys
print("ready", flush=True)
sys.stdin.readline()
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.close(writer)
    epoll = select.epoll()
    epoll.register(reader, select.EPOLLIN)
    print("child", flush=True)
    epoll.poll()
    os._exit(0)
sys.stdin.readline()
os.close(writer)
os.waitpid(child, 0)
print(child, flush=True)
sys.stdin.readline()
"#;
    let Some(mut program) = Program::start(text, &[]) else { return };
    program.says("ready");
    let Some(watch) = attach(Subject::Process(program.id())) else { return };
    let mut monitor = Monitor::new(watch, Some(program.id()));
    program.tell("start");
    program.says("child");
    monitor.tick();
    program.tell("end");
    let child: u32 = program.line().parse().unwrap();
    for _ in 0..3 {
        let sample = monitor.tick();
        let report = monitor.report(&monitor.start(), &sample, true);
        let process = report.processes.iter().find(|it| it.process == child).unwrap();
        assert!(process.name.starts_with("python"), "{process:?}");
        let set = &process.sets[0];
        assert_eq!((set.counts.waits(), set.watched, set.registered_at_end), (1, 1.0, None));
    }
}
