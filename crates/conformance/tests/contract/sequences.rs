//! Random operation sequences: the model against the kernel, and every back-end against the model.

use superpoll::{Interest, Mode, Watch};
use superpoll_conformance::sequence::{CASES, Limits, Step, compare, decode, explore};
use superpoll_conformance::subject::Kind;
use superpoll_conformance::subject::poller::RigEngine;
use superpoll_conformance::subject::raw_epoll::RawEpoll;
use superpoll_conformance::subject::raw_poll::RawPoll;
use superpoll_conformance::subject::real::Real;
use superpoll_conformance::{Bench, Capabilities, bench};

use crate::numbers;

fn agrees(bench: &Bench, limits: Limits) {
    let _small = numbers::small(bench);
    let make = || Real::new(RigEngine::new(bench));
    let outcome = explore(bench.capabilities(), limits, CASES, make);
    if let Err(difference) = outcome {
        panic!("{difference}");
    }
}

/// Checks that one sequence ends as the model says.
fn follows(bench: &Bench, steps: &[Step]) {
    let _small = numbers::small(bench);
    let mut subject = Real::new(RigEngine::new(bench));
    if let Err(difference) = compare(&mut subject, bench.capabilities(), steps) {
        panic!("{}: {difference}", bench.name());
    }
}

fn named(name: &str) -> Bench {
    bench::every().into_iter().find(|bench| bench.name() == name).unwrap()
}

#[test]
fn the_model_agrees_with_raw_epoll() {
    let outcome = explore(
        Capabilities { tell_and_wake: false, ..Capabilities::EPOLL },
        Limits::Ample,
        4 * CASES,
        || Real::new(RawEpoll::new().unwrap()),
    );
    if let Err(difference) = outcome {
        panic!("{difference}");
    }
}

#[test]
fn the_model_agrees_with_raw_poll() {
    let outcome = explore(
        Capabilities { tell_and_wake: false, ..Capabilities::POLL },
        Limits::Ample,
        2 * CASES,
        || Real::new(RawPoll::default()),
    );
    if let Err(difference) = outcome {
        panic!("{difference}");
    }
}

macro_rules! agreement {
    ($($test:ident: $name:literal;)+) => {$(
        mod $test {
            use super::*;

            #[test]
            fn agrees_with_the_model() {
                agrees(&named($name), Limits::Ample);
            }

            #[test]
            fn agrees_with_the_model_when_waits_are_cut_off() {
                agrees(&named($name), Limits::Tight);
            }
        }
    )+};
}

agreement! {
    select: "select";
    poll: "poll";
    epoll: "epoll";
    adaptive_cost_based: "adaptive-cost-based";
    adaptive_threshold: "adaptive-threshold";
    adaptive_fixed_cold: "adaptive-cold";
    adaptive_fixed_hot: "adaptive-hot";
    adaptive_with_a_thread: "adaptive-thread";
    adaptive_with_a_process: "adaptive-process";
}

#[test]
fn adaptive_with_random_moves_agrees_with_the_model() {
    for seed in 1..=8 {
        agrees(&bench::chaotic(seed), Limits::Ample);
    }
}

#[test]
fn adaptive_with_random_moves_agrees_with_the_model_when_waits_are_cut_off() {
    for seed in 1..=8 {
        agrees(&bench::chaotic(seed), Limits::Tight);
    }
}

#[test]
fn random_moves_to_a_keeper_and_back_agree_with_the_model() {
    for seed in 1..=4 {
        agrees(&bench::chaotic_with_keeper(seed), Limits::Ample);
        agrees(&bench::chaotic_with_keeper(seed), Limits::Tight);
    }
}

#[test]
fn a_keeper_without_reason_loses_and_doubles_nothing() {
    for seed in 1..=4 {
        agrees(&bench::chaotic_with_erratic_keeper(seed, false), Limits::Ample);
        agrees(&bench::chaotic_with_erratic_keeper(seed, false), Limits::Tight);
    }
}

#[test]
fn a_keeper_that_ends_at_any_time_loses_and_doubles_nothing() {
    for seed in 1..=4 {
        agrees(&bench::chaotic_with_erratic_keeper(seed, true), Limits::Ample);
        agrees(&bench::chaotic_with_erratic_keeper(seed, true), Limits::Tight);
    }
}

/// A hang-up waits for its turn while the readiness that the caller told for the same registration
/// has had one.
#[test]
fn marked_readiness_and_kernel_events_take_separate_turns() {
    let read_write = Interest::READABLE | Interest::WRITABLE;
    let watch = |interest, mode| Watch::new(interest).mode(mode);
    let level = || watch(Interest::READABLE, Mode::Level);
    let steps = [
        Step::OpenAndRegister(Kind::File, level()),
        Step::OpenAndRegister(Kind::Pipe, level()),
        Step::OpenAndRegister(Kind::Sockets, watch(read_write, Mode::Auto)),
        Step::OpenAndRegister(Kind::Pipe, watch(read_write, Mode::Auto)),
        Step::OpenAndRegister(Kind::Pipe, level()),
        Step::Duplicate(50),
        Step::Reregister(246, level()),
        Step::Register(0, level()),
        Step::OpenAndRegister(Kind::Sockets, watch(read_write, Mode::Level)),
        Step::OpenAndRegister(Kind::Sockets, watch(Interest::ALL, Mode::Edge)),
        Step::Close(171),
        Step::Modify(132, watch(read_write, Mode::Level)),
        Step::Duplicate(30),
        Step::Modify(8, watch(Interest::READABLE, Mode::Edge)),
        Step::Reregister(91, level()),
        Step::Wait(64, false),
        Step::Wait(3, false),
        Step::Wait(1, false),
        Step::Close(71),
        Step::Close(63),
        Step::Tell(10, Interest::READABLE),
        Step::Wait(4, false),
        Step::Wait(64, false),
    ];
    for bench in bench::all() {
        follows(&bench, &steps);
    }
}

/// A registration that waits for its turn is checked again in its turn, though the told readiness
/// left room for more.
#[test]
fn an_interest_that_was_changed_while_it_waited_for_its_turn_is_kept() {
    let level = |interest| Watch::new(interest).mode(Mode::Level);
    let read_write = Interest::READABLE | Interest::WRITABLE;
    let steps = [
        Step::OpenAndRegister(Kind::Pipe, level(Interest::READABLE)),
        Step::Close(71),
        Step::OpenAndRegister(Kind::Sockets, level(Interest::ALL)),
        Step::OpenAndRegister(Kind::Sockets, level(read_write)),
        Step::OpenAndRegister(Kind::Sockets, level(read_write)),
        Step::Wait(2, false),
        Step::Modify(38, level(Interest::READABLE | Interest::READ_CLOSED)),
        Step::Close(36),
        Step::Tell(7, Interest::READABLE),
        Step::Wait(2, false),
        Step::Wait(64, false),
    ];
    for bench in bench::all() {
        follows(&bench, &steps);
    }
}

/// Sequences that a fuzzer found, in its own notation, each with the bench it failed on.
#[test]
fn defects_that_fuzzing_found_stay_fixed() {
    let found: [(&str, &[u8]); 2] = [
        (
            "adaptive-chaos-3",
            b"\x02\xa9\xa9\x6f\x60\xa9\xa9\xab\x26\x02\xf0\xf0\xf0\xf0\xf0\x25\x3b\x3d\
          \x00\x00\x00\x00\x00\x00\x00\x10\x3d\x25\xa9\x02\xa9\xa9\x6f\xf2\xf2\xf2\
          \xf2\x98\xf2\xf2\xf2\xf2\xf2\xf2\xf2\xf2\xf2\x93",
        ),
        (
            "adaptive-chaos-2",
            b"\x13\x01\x3d\x02\x01\x02\x01\x01\x02\x02\xec\xec\x12\x13\xdb\x01\x4f\x20\
          \xdb\xec\x00\xdb\xdb\xdb\x28\xdb\xdb\xdb\xdb\xec",
        ),
    ];
    for (name, bytes) in found {
        follows(&named(name), &decode(bytes));
    }
}
