//! A recording is played as the simulator plays the pattern that was recorded.

use std::fs::File;
use std::io::BufReader;
use std::process::Command;

use superpoll_test_support::{alone, start};
use superpoll_watch::{Error, Kind, Recorder, RecordingWriter, Subject, Watch};
use tempfile::TempDir;

use super::*;
use crate::random::Random;
use crate::simulator::{Load, Outcome, Pattern};

const PRICES: Prices = Prices { costs: Costs::ASSUMED, ring: None };

const KEY: Key = Key { process: 7, kind: Kind::Epoll, id: 5 };

fn replay(bytes: &[u8]) -> Vec<Play> {
    let (end, _) = end(RecordingReader::new(bytes).unwrap()).unwrap();
    play(RecordingReader::new(bytes).unwrap(), &end, &PRICES).unwrap()
}

fn spent(play: &Play, name: &str) -> Spent {
    play.ways().iter().find(|way| way.name == name).unwrap().spent
}

fn is_close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs())
}

/// Checks that a replay is the simulation of a load, with the registrations added.
fn agrees(play: &Play, load: &Load, rounds: u32, policy: fn() -> Box<dyn Policy>, name: &str) {
    let setting = Setting { read: 0.0, ..Setting::new(play.kind) };
    let outcome: Outcome = crate::simulator::play(policy(), load, rounds, &setting);
    let adds = load.total() as f64 * f64::from(setting.costs.of(play.kind).add);
    assert_eq!(play.events, outcome.events, "{load}");
    for (name, expected) in [
        (name, outcome.policy.total() + adds),
        ("poll", outcome.poll),
        ("epoll, edge-triggered", outcome.edge + adds),
        ("epoll, level-triggered", outcome.level + adds),
    ] {
        let found = spent(play, name).total();
        assert!(is_close(found, expected), "{load}: {name}: {found} {expected}");
    }
}

/// Records a load as waits that find at once what is ready, or nothing for a millisecond.
fn recording(load: &Load, rounds: u32, kind: CostKind) -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), 1 << 30).unwrap();
    writer.set(KEY, 0).unwrap();
    (0..load.total() as u32).for_each(|member| writer.join(0, member).unwrap());
    for (round, ready) in load.rounds().take(rounds as usize).enumerate() {
        let took_ns = Some(if ready.is_empty() { 1_000_000 } else { 900 });
        let at_ns = round as u64 * 2_000_000;
        writer.wait(&Wait { set: 0, at_ns, took_ns, timeout_ns: -1, ready }).unwrap();
    }
    writer.end(&End { kinds: vec![kind], ..End::default() }).unwrap()
}

#[test]
fn a_replay_is_the_simulation_of_the_recorded_pattern() {
    for kind in CostKind::MEASURED {
        for load in [
            Load::new(5, Pattern::Steady).and(95, Pattern::Idle),
            Load::new(100, Pattern::Chance(0.4)),
            Load::new(3, Pattern::Chance(0.1)),
            Load::new(50, Pattern::Bursts { on: 20, off: 60, jitter: 10 })
                .and(200, Pattern::Chance(0.01)),
        ] {
            let plays = replay(&recording(&load, 1_000, kind));
            assert_eq!((plays.len(), plays[0].waits, plays[0].kind), (1, 1_000, kind));
            agrees(&plays[0], &load, 1_000, || Box::new(CostBased::new()), "adaptive");
            let media =
                || -> Box<dyn Policy> { Box::new(RatioPolicy::new(Thresholds::MEDIA_SERVER)) };
            agrees(&plays[0], &load, 1_000, media, "adaptive, media-server");
        }
    }
}

/// The program makes the pattern; what comes out of the kernel, the file and the simulator is the
/// simulation of it.
#[test]
fn a_replay_of_a_program_is_the_simulation_of_its_pattern() {
    alone(|| {
        let (watch, records) = match Watch::attach_to_record(Subject::Children) {
            Ok(attached) => attached,
            Err(error @ (Error::NotPermitted(_) | Error::NoBpf { .. } | Error::Namespace)) => {
                return eprintln!("skipped: {error}");
            }
            Err(error) => panic!("{error}"),
        };
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("recording");
        let recorder = Recorder::start(records, Recorder::open(&path).unwrap(), 1 << 20).unwrap();
        // The first 6 of 40 are ready in each wait, and all waits are looks.
        let program = "import select, socket\n\
                       pairs = [socket.socketpair() for _ in range(40)]\n\
                       epoll = select.epoll()\n\
                       for one, _ in pairs: epoll.register(one, select.EPOLLIN)\n\
                       for _ in range(500):\n\
                       \u{20}for _, other in pairs[:6]: other.send(b'x')\n\
                       \u{20}epoll.poll(0)\n\
                       \u{20}for one, _ in pairs[:6]: one.recv(8)\n";
        let mut child = start(Command::new("python3").args(["-c", program]));
        watch.end_of_children();
        assert!(child.wait().unwrap().success());
        drop(watch);
        let end = recorder.end().unwrap();
        let reader = || RecordingReader::new(BufReader::new(File::open(&path).unwrap())).unwrap();
        assert_eq!(super::end(reader()).unwrap(), (end.clone(), false));
        let plays = play(reader(), &end, &PRICES).unwrap();
        assert_eq!((plays.len(), plays[0].waits), (1, 500));
        let load = Load::new(6, Pattern::Steady).and(34, Pattern::Idle);
        agrees(&plays[0], &load, 500, || Box::new(CostBased::new()), "adaptive");
    });
}

/// Plays of descriptors that come and go: no account may be of one that has left.
#[test]
fn descriptors_come_and_go_at_the_cost_of_their_registrations() {
    let mut random = Random::new(3);
    let mut writer = RecordingWriter::new(Vec::new(), 1 << 30).unwrap();
    writer.set(KEY, 0).unwrap();
    let (mut members, mut joins, mut leaves) = (Vec::<bool>::new(), 0.0, 0.0);
    for round in 0..3_000 {
        for _ in 0..random.below(4) {
            let member = random.below(members.len() + 1);
            let busy = members.iter().filter(|is_there| **is_there).count();
            match members.get_mut(member) {
                None if busy < 300 => {
                    members.push(true);
                    writer.join(0, member as u32).unwrap();
                    joins += 1.0;
                }
                None => {}
                Some(is_there @ true) if random.chance(0.3) => {
                    *is_there = false;
                    writer.leave(0, member as u32).unwrap();
                    leaves += 1.0;
                }
                Some(true) => {}
                Some(is_there) => {
                    *is_there = true;
                    writer.join(0, member as u32).unwrap();
                    joins += 1.0;
                }
            }
        }
        let mut ready: Vec<u32> = (0..members.len() as u32).collect();
        ready
            .retain(|member| members[*member as usize] && (member % 3 == 0 || random.chance(0.02)));
        let took_ns = Some(random.between(0, 100_000));
        let timeout_ns = if random.chance(0.2) { 0 } else { -1 };
        if random.chance(0.1) {
            ready.clear();
        }
        writer.wait(&Wait { set: 0, at_ns: round, took_ns, timeout_ns, ready }).unwrap();
    }
    let plays = replay(&writer.end(&End { kinds: vec![CostKind::Tcp], ..End::default() }).unwrap());
    let (play, costs) = (&plays[0], Costs::ASSUMED.tcp);
    let expected = joins * f64::from(costs.add) + leaves * f64::from(costs.delete);
    assert!(leaves > 500.0 && play.blocked > 500, "{leaves} {}", play.blocked);
    for way in ["epoll, edge-triggered", "epoll, level-triggered"] {
        assert!(is_close(spent(play, way).upkeep, expected), "{way} {expected}");
    }
    assert_eq!(spent(play, "poll").upkeep, 0.0);
    let best = ["poll", "epoll, edge-triggered", "epoll, level-triggered"]
        .map(|way| spent(play, way).total())
        .into_iter()
        .fold(f64::INFINITY, f64::min);
    let adaptive = spent(play, "adaptive").total();
    assert!(adaptive < 1.3 * best && adaptive > 0.3 * best, "{adaptive} {best}");
}

#[test]
fn a_wait_that_sleeps_costs_an_array_more_than_one_that_finds_all_at_once() {
    let play = |took_ns: u64, timeout_ns| {
        let mut writer = RecordingWriter::new(Vec::new(), 1 << 20).unwrap();
        writer.set(KEY, 0).unwrap();
        (0..10).for_each(|member| writer.join(0, member).unwrap());
        let ready = vec![3];
        let wait = Wait { set: 0, at_ns: 0, took_ns: Some(took_ns), timeout_ns, ready };
        writer.wait(&wait).unwrap();
        let bytes = writer.end(&End { kinds: vec![CostKind::Pipe], ..End::default() }).unwrap();
        spent(&replay(&bytes)[0], "poll").wait
    };
    let costs = Costs::ASSUMED;
    let once = f64::from(costs.poll_call + 10.0 * costs.pipe.scan + costs.pipe.ready);
    assert_eq!(play(1_000, -1), once);
    assert_eq!(play(100_000, 0), once, "a look does not sleep, however long it takes");
    let slept = once + f64::from(10.0 * (costs.pipe.scan + costs.pipe.block));
    assert_eq!(play(100_000, -1), slept);
}

#[test]
fn a_pass_over_a_long_array_is_no_sleep() {
    let key = Key { kind: Kind::Poll, ..KEY };
    let mut writer = RecordingWriter::new(Vec::new(), 1 << 20).unwrap();
    writer.set(key, 0).unwrap();
    (0..400).for_each(|member| writer.join(0, member).unwrap());
    let costs = Costs::ASSUMED;
    let scan = (400.0 * costs.unix.scan) as u64;
    for took_ns in [scan, 3 * scan / 2, 10 * scan] {
        let ready = (0..20).collect();
        let wait = Wait { set: 0, at_ns: 0, took_ns: Some(took_ns), timeout_ns: 1_000, ready };
        writer.wait(&wait).unwrap();
    }
    let end = End { kinds: vec![CostKind::Unix], ..End::default() };
    let plays = replay(&writer.end(&end).unwrap());
    assert_eq!((plays[0].waits, plays[0].blocked), (3, 1));
}

/// Sets of which nothing but their record is there cost their record's memory.
#[test]
fn a_set_without_waits_has_no_play_and_changes_between_waits_are_counted() {
    let mut writer = RecordingWriter::new(Vec::new(), 1 << 20).unwrap();
    for _ in 0..1_000 {
        writer.set(KEY, 0).unwrap();
    }
    writer.join(500, 0).unwrap();
    for ready in [0, 1, 0] {
        writer.wait(&Wait { ready: vec![ready], ..wait_at_once(500) }).unwrap();
        writer.join(500, 1 - ready).unwrap();
        writer.leave(500, ready).unwrap();
    }
    let plays = replay(&writer.end(&End::default()).unwrap());
    assert_eq!((plays.len(), plays[0].waits, plays[0].changes), (1, 3, 6));
}

fn wait_at_once(set: u32) -> Wait {
    Wait { set, at_ns: 0, took_ns: Some(900), timeout_ns: 0, ready: Vec::new() }
}

/// The watch was killed: what is there is played, up to the last whole record.
#[test]
fn a_recording_that_was_cut_off_ends_with_its_last_wait() {
    let whole = recording(&Load::new(5, Pattern::Steady), 10, CostKind::Tcp);
    for length in [18, whole.len() / 2, whole.len() - 1] {
        let bytes = &whole[..length];
        let (end, is_cut_off) = end(RecordingReader::new(bytes).unwrap()).unwrap();
        let plays = replay(bytes);
        let waits = plays.first().map_or(0, |play| play.waits);
        assert!(is_cut_off && (length < 19) == (waits == 0) && waits <= 10, "{length} {waits}");
        assert_eq!(end.duration_ns, waits.saturating_sub(1) * 2_000_000);
    }
}

#[test]
fn a_ring_costs_what_was_measured_of_it() {
    let Ok(ring) = RingCosts::calibrated() else {
        return eprintln!("skipped: io_uring is not available");
    };
    let mut writer = RecordingWriter::new(Vec::new(), 1 << 20).unwrap();
    writer.set(KEY, 0).unwrap();
    (0..30).for_each(|member| writer.join(0, member).unwrap());
    writer.leave(0, 29).unwrap();
    for ready in [(0..25).collect(), vec![], vec![1]] {
        writer.wait(&Wait { set: 0, at_ns: 0, took_ns: Some(9), timeout_ns: 0, ready }).unwrap();
    }
    let bytes = writer.end(&End { kinds: vec![CostKind::Unix], ..End::default() }).unwrap();
    let prices = Prices { ring: Some(*ring), ..PRICES };
    let (end, _) = end(RecordingReader::new(&bytes[..]).unwrap()).unwrap();
    let plays = play(RecordingReader::new(&bytes[..]).unwrap(), &end, &prices).unwrap();
    let (found, of) = (spent(&plays[0], "uring"), ring.unix);
    // Two calls for 25, as a call works off 20; one each for none and for one.
    let (enter, event) = (f64::from(ring.enter), f64::from(of.event));
    assert!(is_close(found.wait, 4.0 * enter + 26.0 * event), "{found:?}");
    assert!(is_close(found.writes, 26.0 * f64::from(of.wake)), "{found:?}");
    let expected = 30.0 * f64::from(of.arm) + f64::from(of.cancel) + enter;
    assert!(is_close(found.upkeep, expected), "{found:?}");
}
