//! Tests the suite itself: the check that is named for a planted bug must catch it.
//!
//! `cargo test -p superpoll-conformance --test contract mutants -- --nocapture` prints the table.

use superpoll_conformance::bench::{Bench, all, chaotic};
use superpoll_conformance::rig::FAULTS;
use superpoll_conformance::sequence::{Limits, explore};
use superpoll_conformance::subject::poller::RigEngine;
use superpoll_conformance::subject::real::Real;
use superpoll_conformance::{Fault, checks};

use crate::numbers;

/// Each fault with the check that catches it, and the back-end it is planted in.
const TRIALS: &[(Fault, &str, &str)] = &[
    (Fault::EdgeAsLevel, "edge_is_reported_once_for_each_arrival", "epoll"),
    (Fault::LevelAsEdge, "level_is_reported_until_read", "epoll"),
    (Fault::LevelAsEdge, "level_is_reported_until_read", "select"),
    (Fault::AutoAsLevel, "a_lasting_error_costs_nothing", "poll"),
    (Fault::AutoAsLevel, "a_lasting_hang_up_costs_nothing", "adaptive-cost-based"),
    (Fault::DeafInTrouble, "a_lasting_error_costs_nothing", "select"),
    (Fault::DeafInTrouble, "a_lasting_hang_up_costs_nothing", "poll"),
    (Fault::EdgeOnlyOnChange, "edge_counts_an_arrival_while_still_readable", "epoll"),
    (Fault::OneShotNotDisarmed, "one_shot_is_reported_once_until_modified", "poll"),
    (Fault::OneShotNotDisarmed, "hang_up_after_one_shot_does_not_spin", "adaptive-hot"),
    (Fault::OneShotNotRearmed, "one_shot_is_reported_once_until_modified", "epoll"),
    (Fault::ReadClosedMasked, "read_closed_is_reported_if_asked_for", "poll"),
    (Fault::ReadClosedUnasked, "read_closed_is_reported_if_asked_for", "epoll"),
    (Fault::PriorityAloneMasked, "priority_needs_no_readable", "epoll"),
    (Fault::PriorityInvented, "priority_needs_no_readable", "poll"),
    (Fault::HangUpDropped, "hang_up_alone_reaches_an_idle_descriptor", "adaptive-cold"),
    (Fault::ErrorDropped, "error_rings_while_armed_and_only_then", "epoll"),
    (Fault::ModifyIgnored, "level_reports_directions_asked_for", "poll"),
    (Fault::ModifyAdds, "level_reports_directions_asked_for", "epoll"),
    (Fault::DisarmLeavesHangUp, "hang_up_of_the_disarmed_does_not_spin", "poll"),
    (Fault::StaleEvent, "no_event_after_deregister", "epoll"),
    (Fault::GenerationIgnored, "a_reused_number_after_drop_is_a_stranger", "epoll"),
    (Fault::DeleteOvertaken, "a_removal_is_not_overtaken", "epoll"),
    (Fault::CloseNotDetaching, "no_event_after_drop", "epoll"),
    (Fault::CloseNotDetaching, "a_reused_number_after_drop_is_a_stranger", "poll"),
    (Fault::LostWake, "a_wake_ends_a_wait", "epoll"),
    (Fault::EarlyWakeForgotten, "a_wake_before_a_wait_counts", "select"),
    (Fault::WakeRepeated, "a_wake_does_not_repeat", "poll"),
    (Fault::EarlyReturn, "a_timeout_is_never_early", "epoll"),
    (Fault::SpuriousReturn, "a_timeout_is_never_early", "adaptive-cost-based"),
    (Fault::LimitIgnored, "the_limit_is_kept", "epoll"),
    (Fault::CutOffLost, "edges_survive_the_limit", "epoll"),
    (Fault::CutOffLost, "one_shots_survive_the_limit", "poll"),
    (Fault::UnfairOrder, "each_is_reported_within_its_share_of_waits", "poll"),
    (Fault::EventTwice, "the_limit_is_kept", "poll"),
    (Fault::MoveLosesEdge, "moves_lose_no_edge", "adaptive-chaos-1"),
    (Fault::AwayLost, "hang_up_alone_reaches_an_idle_descriptor", "adaptive-thread"),
    (Fault::AwayLost, "moves_lose_no_edge", "adaptive-process"),
    (Fault::ZeroLimitAccepted, "zero_limit_is_refused", "epoll"),
    (Fault::DuplicateReplaces, "duplicate_registration_is_refused", "epoll"),
    (Fault::StaleKeyAccepted, "stale_key_is_refused", "poll"),
    (Fault::AbsentRemovesFirst, "absent_key_removes_nothing", "poll"),
    (Fault::ToldReadyForgotten, "marked_readiness_is_delivered", "epoll"),
    (Fault::FilesReportedOnce, "regular_files_are_always_ready", "epoll"),
    (Fault::WritableHidden, "level_reports_directions_asked_for", "epoll"),
];

/// Faults that the random sequences must find without being told where to look.
const FOUND_AT_RANDOM: &[(Fault, &str)] = &[
    (Fault::EdgeAsLevel, "epoll"),
    (Fault::LevelAsEdge, "epoll"),
    (Fault::EdgeOnlyOnChange, "epoll"),
    (Fault::OneShotNotDisarmed, "poll"),
    (Fault::OneShotNotRearmed, "epoll"),
    (Fault::ReadClosedMasked, "epoll"),
    (Fault::ReadClosedUnasked, "poll"),
    (Fault::HangUpDropped, "poll"),
    (Fault::ErrorDropped, "epoll"),
    (Fault::ModifyIgnored, "select"),
    (Fault::ModifyAdds, "epoll"),
    (Fault::DisarmLeavesHangUp, "poll"),
    (Fault::StaleEvent, "epoll"),
    (Fault::GenerationIgnored, "epoll"),
    (Fault::LimitIgnored, "epoll"),
    (Fault::CutOffLost, "poll"),
    (Fault::UnfairOrder, "poll"),
    (Fault::EventTwice, "epoll"),
    (Fault::FilesReportedOnce, "epoll"),
    (Fault::WritableHidden, "poll"),
    (Fault::MoveLosesEdge, "adaptive-chaos-1"),
    (Fault::AwayLost, "adaptive-thread"),
    (Fault::AwayLost, "adaptive-process"),
];

fn named(name: &str) -> Bench {
    all()
        .into_iter()
        .chain([chaotic(1)])
        .find(|bench| bench.name() == name)
        .unwrap_or_else(|| panic!("no back-end is called {name}"))
}

#[test]
fn each_planted_bug_is_caught_by_its_check() {
    let mut missed = Vec::new();
    println!("{:<22} {:<18} {:<46} outcome", "planted", "in", "check");
    for &(fault, name, backend) in TRIALS {
        let check = checks::find(name).unwrap_or_else(|| panic!("no check is called {name}"));
        let _small = numbers::small(&named(backend));
        let sound = (check.run)(&named(backend));
        assert!(sound.is_ok(), "{name} fails on a sound {backend}: {sound:?}");
        let outcome = (check.run)(&named(backend).with_fault(fault));
        let caught = outcome.is_err();
        let said = if caught { "caught" } else { "MISSED" };
        println!("{:<22} {backend:<18} {name:<46} {said}", format!("{fault:?}"));
        if !caught {
            missed.push(fault);
        }
    }
    println!("{} planted, {} caught", TRIALS.len(), TRIALS.len() - missed.len());
    assert!(missed.is_empty(), "not caught: {missed:?}");
}

#[test]
fn each_fault_has_a_trial() {
    for fault in FAULTS {
        assert!(TRIALS.iter().any(|trial| trial.0 == *fault), "{fault:?} is not tried");
    }
}

#[test]
fn random_sequences_find_planted_bugs() {
    let mut missed = Vec::new();
    for backend in
        ["select", "poll", "epoll", "adaptive-chaos-1", "adaptive-thread", "adaptive-process"]
    {
        let bench = named(backend);
        let _small = numbers::small(&bench);
        let make = || Real::new(RigEngine::new(&bench));
        let sound = explore(bench.capabilities(), Limits::Tight, 200, make);
        assert_eq!(sound, Ok(()), "a sound {backend} is found guilty");
    }
    for &(fault, backend) in FOUND_AT_RANDOM {
        let bench = named(backend).with_fault(fault);
        let _small = numbers::small(&bench);
        let make = || Real::new(RigEngine::new(&bench));
        if explore(bench.capabilities(), Limits::Tight, 200, make).is_ok() {
            missed.push(fault);
        }
    }
    let (planted, caught) = (FOUND_AT_RANDOM.len(), FOUND_AT_RANDOM.len() - missed.len());
    println!("at random: {planted} planted, {caught} caught");
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn the_whole_suite_names_the_check_that_failed() {
    let _many = numbers::many();
    let bench = named("poll").with_fault(Fault::ZeroLimitAccepted);
    let failure = superpoll_conformance::check_bench(&bench).unwrap_err();
    assert_eq!(failure.check, "zero_limit_is_refused");
    assert!(failure.to_string().starts_with("zero_limit_is_refused: a limit of zero"));
    let bench = named("poll").with_fault(Fault::WritableHidden);
    let failure = superpoll_conformance::check_bench(&bench).unwrap_err();
    assert_eq!(failure.check, "level_reports_directions_asked_for");
}

#[test]
fn the_whole_suite_reports_the_checks_and_sequences_that_ran() {
    let _many = numbers::many();
    let report = superpoll_conformance::check_bench(&named("poll")).unwrap();
    assert_eq!(report.passed.len() + report.skipped.len(), checks::CHECKS.len());
    assert!(report.passed.len() > 70 && report.sequences > 100);
    assert!(report.to_string().contains("checks passed"), "{report}");
}
