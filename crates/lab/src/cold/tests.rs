//! The contract suite over each cold set, and the traps of each.

use std::io::{Read, Write, pipe};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use superpoll::backend::policy::{CostBased, Fixed, Policy, Set};
use superpoll::diagnostics::Costs;
use superpoll::{Event, Events};
use superpoll_conformance::chaos::Chaos;
use superpoll_conformance::sequence::{Step, compare, decode};
use superpoll_conformance::subject::Kind::{Pipe, Sockets};
use superpoll_conformance::subject::poller::RigEngine;
use superpoll_conformance::subject::real::Real;
use superpoll_conformance::sys::fork_and_wait;
use superpoll_conformance::{Bench, Capabilities, checks};
use superpoll_test_support::alone;

use super::*;
use crate::random::Random;
use crate::sys::signal::{limit_queue, queue_limit};
use crate::sys::{aio, libkqueue};

/// Checks that a cold set here does not pass, as `docs/placement.md` says.
const NOT_PASSED: [&str; 2] = [
    // It has notes of its own for each descriptor.
    "memory_per_descriptor_is_small",
    // A look at the descriptors that are due is a further call of poll.
    "short_timeouts_are_not_rounded_up",
];

/// The random sequences of each test, and the same for Linux AIO, whose contexts take long to end.
const SEQUENCES: [u32; 2] = [600, 100];

/// A bound for events that must come. Only a failing test waits that long.
const LONGEST: Duration = Duration::from_secs(30);

/// The capabilities of the adaptive back-end over a kind of cold set.
fn capabilities(kind: Kind) -> Capabilities {
    Capabilities {
        // The calls of a wait are not those of epoll.
        moves_at_random: true,
        registers_with_epoll: false,
        holds_files: kind != Kind::Signals,
        // A flush makes the next wait see everything, as with a keeper.
        is_kept: kind == Kind::Aio,
        ..Capabilities::ADAPTIVE
    }
}

fn poller(kind: Kind, policy: impl Policy + 'static) -> Poller {
    kind.placed_by(policy, Costs::ASSUMED, 1024).unwrap().build().unwrap()
}

fn bench<P: Policy + 'static>(kind: Kind, name: &str, policy: impl Fn() -> P + 'static) -> Bench {
    let make = move || poller(kind, policy());
    Bench::new(format!("adaptive-{kind}-{name}"), capabilities(kind), make)
}

/// The cold sets that are here.
fn kinds() -> impl Iterator<Item = Kind> {
    let missing = |kind| match kind {
        Kind::Signals => None,
        Kind::Aio => aio::missing(),
        Kind::Kqueue => libkqueue::missing(),
    };
    let is_here = move |&kind: &Kind| {
        let missing = missing(kind);
        if let Some(reason) = &missing {
            println!("skipped: {kind}: {reason}");
        }
        missing.is_none()
    };
    Kind::ALL.into_iter().filter(is_here)
}

fn checked(_: Kind, bench: &Bench) {
    let mut failures = Vec::new();
    for check in checks::CHECKS {
        if !(check.applies)(&bench.capabilities()) || NOT_PASSED.contains(&check.name) {
            continue;
        }
        if let Err(problem) = (check.run)(bench) {
            failures.push(format!("{}: {problem}", check.name));
        }
    }
    assert!(failures.is_empty(), "{} fails on\n  {}", bench.name(), failures.join("\n  "));
}

/// The step, or another one where this kind of set does not keep the contract.
fn kept(kind: Kind, step: Step) -> Step {
    match (kind, step) {
        // It sends no signal for a shutdown of the watched end itself.
        (Kind::Signals, Step::Shutdown(which, _)) => Step::Drain(which),
        // A peer learns of a close some milliseconds late.
        (Kind::Aio, Step::Close(which)) => Step::Deregister(which),
        // The library takes the pending error of a socket away.
        (Kind::Kqueue, Step::Open(Sockets)) => Step::Open(Pipe),
        (Kind::Kqueue, Step::OpenAndRegister(Sockets, watch)) => Step::OpenAndRegister(Pipe, watch),
        (_, step) => step,
    }
}

/// Compares random sequences with the model, the same in each run.
fn agrees(kind: Kind, bench: &Bench) {
    let mut random = Random::new(kind as u64 + 1);
    for _ in 0..SEQUENCES[usize::from(kind == Kind::Aio)] {
        let length = 3 * random.below(40);
        let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        let steps: Vec<Step> = decode(&bytes).into_iter().map(|step| kept(kind, step)).collect();
        let mut subject = Real::new(RigEngine::new(bench));
        if let Err(difference) = compare(&mut subject, bench.capabilities(), &steps) {
            let steps: Vec<String> = steps.iter().map(|step| format!("    {step:?}")).collect();
            panic!("{}: {difference}; the steps are\n{}", bench.name(), steps.join("\n"));
        }
    }
}

/// Lets a function judge a cold set under each policy, if it is here.
fn each(kind: Kind, judge: fn(Kind, &Bench)) {
    if kinds().all(|here| here != kind) {
        return;
    }
    judge(kind, &bench(kind, "cost-based", CostBased::default));
    judge(kind, &bench(kind, "cold", || Fixed::new(Set::Cold)));
    for seed in 1..=3 {
        judge(kind, &bench(kind, "chaos", move || Chaos::new(seed)));
    }
}

macro_rules! contract {
    ($($module:ident: $kind:ident;)+) => {$(
        mod $module {
            use super::*;

            /// In a process of its own, because checks count descriptors.
            #[test]
            fn passes_the_checks() {
                alone(|| each(Kind::$kind, checked));
            }

            #[test]
            fn agrees_with_the_model() {
                alone(|| each(Kind::$kind, agrees));
            }
        }
    )+};
}

contract! {
    by_signals: Signals;
    by_aio: Aio;
    by_kqueue: Kqueue;
}

/// Pipes whose reading ends a poller watches.
struct Pipes {
    poller: Poller,
    events: Events,
    pipes: Vec<(io::PipeReader, io::PipeWriter, Key)>,
}

impl Pipes {
    fn new(mut poller: Poller, count: usize, mode: Mode) -> Pipes {
        let watch = Watch::new(Interest::READABLE).mode(mode);
        let open = |_| {
            let (reader, writer) = pipe().unwrap();
            let key = poller.register(&reader, watch).unwrap();
            (reader, writer, key)
        };
        let pipes = (0..count).map(open).collect();
        let mut pipes = Pipes { poller, events: Events::with_limit(64), pipes };
        pipes.poller.wait(&mut pipes.events, Some(Duration::ZERO)).unwrap();
        assert!(pipes.events.is_empty());
        pipes
    }

    /// How many of them the watcher has.
    fn away(&self) -> usize {
        self.pipes.iter().filter(|(_, _, key)| self.poller.is_away(*key)).count()
    }

    fn write_all(&mut self) {
        for (_, writer, _) in &mut self.pipes {
            writer.write_all(&[1]).unwrap();
        }
    }

    /// Reads a byte of each, as it is reported.
    fn read_all(&mut self) {
        let mut left = self.pipes.len();
        while left > 0 {
            self.poller.wait(&mut self.events, Some(LONGEST)).unwrap();
            assert!(!self.events.is_empty(), "{left} of {} are not reported", self.pipes.len());
            for event in &self.events {
                let one = self.pipes.iter_mut().find(|(_, _, key)| *key == event.key()).unwrap();
                one.0.read_exact(&mut [0]).unwrap();
                left -= 1;
            }
        }
    }
}

/// The keys of the events of a wait that finds something.
fn keys(poller: &mut Poller) -> Vec<Key> {
    let mut events = Events::with_limit(64);
    poller.wait(&mut events, Some(LONGEST)).unwrap();
    let mut keys: Vec<Key> = events.iter().map(Event::key).collect();
    keys.sort_unstable_by_key(bits);
    keys
}

#[test]
fn the_watcher_has_what_is_idle_and_the_array_what_is_busy() {
    alone(|| {
        for kind in kinds() {
            for mode in [Mode::Level, Mode::Auto, Mode::OneShot] {
                let pipes = Pipes::new(poller(kind, Fixed::new(Set::Cold)), 20, mode);
                assert_eq!(pipes.away(), 20, "{kind} {mode:?}");
            }
            let pipes = Pipes::new(poller(kind, Fixed::new(Set::Hot)), 20, Mode::Auto);
            assert_eq!(pipes.away(), 0, "{kind}");
        }
    });
}

/// The limit is the process's, and so is the count of the user's signals against it.
#[test]
fn with_a_full_queue_of_signals_no_event_of_any_poller_is_lost() {
    alone(|| {
        let room = queue_limit();
        for mode in [Mode::Level, Mode::Auto] {
            let cold = || poller(Kind::Signals, Fixed::new(Set::Cold));
            let mut both = [Pipes::new(cold(), 20, mode), Pipes::new(cold(), 20, mode)];
            for round in 0..30 {
                limit_queue(round % 4);
                both.iter_mut().for_each(Pipes::write_all);
                both.iter_mut().for_each(Pipes::read_all);
            }
            limit_queue(room);
        }
    });
}

#[test]
fn a_poller_that_moves_to_another_thread_gets_its_signals_there() {
    alone(|| {
        let mut pipes = Pipes::new(poller(Kind::Signals, Fixed::new(Set::Cold)), 20, Mode::Auto);
        for _ in 0..5 {
            pipes.write_all();
            let there = std::thread::spawn(move || {
                pipes.read_all();
                pipes.write_all();
                pipes.read_all();
                pipes
            });
            pipes = there.join().unwrap();
            pipes.write_all();
            pipes.read_all();
        }
    });
}

#[test]
fn a_file_with_two_numbers_is_reported_under_both() {
    alone(|| {
        for kind in kinds() {
            let mut poller = poller(kind, Fixed::new(Set::Cold));
            let (reader, mut writer) = pipe().unwrap();
            let other = reader.try_clone().unwrap();
            let watch = Watch::new(Interest::READABLE).mode(Mode::Level);
            let both = [&reader, &other].map(|one| poller.register(one, watch).unwrap());
            writer.write_all(&[1]).unwrap();
            poller.flush();
            assert_eq!(keys(&mut poller), both, "{kind}");
            // Signals can be asked for of a file once.
            let away = both.map(|key| poller.is_away(key));
            assert_eq!(away, [true, kind != Kind::Signals], "{kind}");
            poller.deregister(both[0]).unwrap();
            drop(reader);
            assert_eq!(keys(&mut poller), [both[1]], "{kind}");
        }
    });
}

/// A signal names a number. Once the number means another file, it is no event of that.
#[test]
fn a_signal_of_a_closed_file_is_no_event_of_its_successor() {
    alone(|| {
        let mut poller = poller(Kind::Signals, Fixed::new(Set::Cold));
        let watch = Watch::new(Interest::READABLE).mode(Mode::Auto);
        let (reader, mut writer) = pipe().unwrap();
        let _alive = reader.try_clone().unwrap();
        let key = poller.register(&reader, watch).unwrap();
        poller.flush();
        let number = reader.as_raw_fd();
        poller.deregister_for_close(key).unwrap();
        drop(reader);
        let (successor, mut its_writer) = pipe().unwrap();
        assert_eq!(successor.as_raw_fd(), number);
        let successor = OwnedFd::from(successor);
        let key = poller.register(&successor, watch).unwrap();
        poller.flush();
        assert!(poller.is_away(key));
        writer.write_all(&[1]).unwrap();
        let mut events = Events::with_limit(8);
        poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty());
        its_writer.write_all(&[1]).unwrap();
        assert_eq!(keys(&mut poller), [key]);
    });
}

#[test]
fn polls_beyond_the_room_and_files_that_aio_refuses_stay_in_epoll() {
    alone(|| {
        let builder = Kind::Aio.placed_by(Fixed::new(Set::Cold), Costs::ASSUMED, 3).unwrap();
        let mut pipes = Pipes::new(builder.build().unwrap(), 10, Mode::Level);
        assert_eq!(pipes.away(), 3);
        for _ in 0..5 {
            pipes.write_all();
            pipes.read_all();
        }
        // A FIFO that is open to read and write has two queues of waiters.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut fifo = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let mut poller = poller(Kind::Aio, Fixed::new(Set::Cold));
        let key = poller.register(&fifo, Interest::READABLE).unwrap();
        poller.flush();
        assert!(!poller.is_away(key));
        fifo.write_all(&[1]).unwrap();
        assert_eq!(keys(&mut poller), [key]);
    });
}

/// A child that continues with its parent's poller has none of the parent's watchers, and takes
/// nothing from the parent.
#[test]
fn after_a_fork_each_process_has_its_own_events() {
    alone(|| {
        for kind in kinds() {
            let mut pipes = Pipes::new(poller(kind, Fixed::new(Set::Cold)), 5, Mode::Level);
            let child = |pipes: &mut Pipes| {
                pipes.poller.after_fork().unwrap();
                pipes.write_all();
                let found = keys(&mut pipes.poller).len();
                assert_eq!((found, pipes.away()), (5, 0));
                true
            };
            let status = fork_and_wait(&mut pipes, child, |_| {}).unwrap();
            assert_eq!(status, 0, "{kind}");
            pipes.read_all();
            assert_eq!(pipes.away(), 5);
            pipes.write_all();
            pipes.read_all();
        }
    });
}
