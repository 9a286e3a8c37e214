//! Every kind of descriptor, interest, mode and back-end against `poll(2)`.
//!
//! By default a share of the product that has every pair. `SUPERPOLL_ORACLE_TURNS=28` runs all of
//! it:
//!
//!     SUPERPOLL_ORACLE_TURNS=28 cargo test -p superpoll-conformance --test oracle -- --nocapture

use superpoll_conformance::bench::{self, Bench};
use superpoll_conformance::{Fault, oracle};

const TURNS: &str = "SUPERPOLL_ORACLE_TURNS";

/// The number of turns unless the environment says otherwise.
const FEW: usize = 4;

/// The most differences that are printed.
const MOST: usize = 6;

fn turns() -> usize {
    let Ok(turns) = std::env::var(TURNS) else { return FEW };
    turns.parse().unwrap_or_else(|_| panic!("{TURNS} is {turns:?}, not a number of turns"))
}

fn named(name: &str) -> Option<Bench> {
    bench::every().into_iter().find(|bench| bench.name() == name)
}

/// Examines a back-end. Each begins with another turn, so that different back-ends are examined
/// with different turns.
fn agrees_with_poll(name: &str, first: usize) {
    let Some(bench) = named(name) else {
        eprintln!("skipped: {name} is not available here");
        return;
    };
    let findings = oracle::examine(&bench, first, turns(), MOST).unwrap();
    println!("{name}: {findings}");
    for (kind, reason) in &findings.skipped {
        eprintln!("skipped: {kind} on {name}: {reason}");
    }
    assert!(findings.differences.is_empty(), "{name}: {findings}");
}

#[test]
fn select_agrees() {
    agrees_with_poll("select", 0);
}

#[test]
fn poll_agrees() {
    agrees_with_poll("poll", 1);
}

#[test]
fn epoll_agrees() {
    agrees_with_poll("epoll", 2);
}

#[test]
fn uring_agrees() {
    agrees_with_poll("uring", 3);
}

#[test]
fn adaptive_agrees() {
    agrees_with_poll("adaptive-cost-based", 4);
}

#[test]
fn adaptive_with_everything_in_the_array_agrees() {
    agrees_with_poll("adaptive-hot", 5);
}

#[test]
fn adaptive_with_everything_in_epoll_agrees() {
    agrees_with_poll("adaptive-cold", 6);
}

#[test]
fn adaptive_with_a_babysitting_thread_agrees() {
    agrees_with_poll("adaptive-thread", 7);
}

#[test]
fn adaptive_with_a_babysitting_process_agrees() {
    agrees_with_poll("adaptive-process", 8);
}

/// Bugs that it must find, each planted in a back-end.
const PLANTED: &[(Fault, &str)] = &[
    (Fault::EdgeAsLevel, "epoll"),
    (Fault::LevelAsEdge, "poll"),
    (Fault::OneShotNotDisarmed, "select"),
    (Fault::OneShotNotRearmed, "epoll"),
    (Fault::ReadClosedMasked, "poll"),
    (Fault::ReadClosedUnasked, "epoll"),
    (Fault::PriorityAloneMasked, "epoll"),
    (Fault::PriorityInvented, "adaptive-hot"),
    (Fault::HangUpDropped, "adaptive-cold"),
    (Fault::ErrorDropped, "poll"),
    (Fault::ModifyIgnored, "epoll"),
    (Fault::EventTwice, "select"),
    (Fault::AwayLost, "adaptive-thread"),
    (Fault::AwayLost, "adaptive-process"),
    (Fault::FilesReportedOnce, "epoll"),
    (Fault::WritableHidden, "poll"),
];

#[test]
fn planted_bugs_are_found() {
    let mut missed = Vec::new();
    for &(fault, name) in PLANTED {
        let bench = named(name).unwrap_or_else(|| panic!("no back-end is called {name}"));
        let bench = bench.with_fault(fault);
        let found = (0..oracle::TURNS).any(|turn| {
            let findings = oracle::examine(&bench, turn, 1, 1).unwrap();
            !findings.differences.is_empty()
        });
        println!("{fault:?} in {name}: {}", if found { "found" } else { "MISSED" });
        if !found {
            missed.push((fault, name));
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
