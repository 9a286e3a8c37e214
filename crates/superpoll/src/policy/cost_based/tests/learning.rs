//! The events that the models learn of bursts, and their use of them.

use super::*;

#[test]
fn a_burst_is_recorded_once_at_its_end_or_when_it_is_long() {
    let score = |stage: &Stage| stage.policy.models.as_ref().unwrap()[1].rises[0];
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    // 28 + 183 n > 8 * 620 at n = 27; in epoll.
    for _ in 0..26 {
        stage.cold_event();
        stage.pass(1);
    }
    assert_eq!((score(&stage), stage.account.burst_peak), (0.0, 28.0 + 26.0 * 183.0));
    stage.cold_event();
    let once = score(&stage);
    assert!(once != 0.0);
    assert_eq!(stage.account.burst_peak, RECORDED);
    stage.pass(1);
    stage.cold_event();
    stage.promote();
    stage.hot_event();
    stage.demote();
    assert_eq!((score(&stage), stage.account.burst_peak), (once, 0.0));
    // The same in the array, where the evidence from before the move counts.
    stage.cold_event();
    stage.promote();
    for _ in 0..26 {
        stage.pass(1);
        stage.hot_event();
    }
    assert_eq!(stage.account.burst_peak, 211.0 + 26.0 * 183.0);
    stage.account.events = SETTLED;
    assert_eq!((stage.review(), stage.account.burst_peak), (Verdict::Stay, RECORDED));
    assert_eq!(score(&stage), 2.0 * once);
    stage.demote();
    // The end of one in epoll leaves nothing behind.
    stage.account.burst_peak = RECORDED;
    stage.pass(500);
    stage.cold_event();
    assert_eq!(stage.account.burst_peak, 211.0);
}

#[test]
fn short_bursts_teach_to_wait_and_long_ones_to_move_at_once() {
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    for _ in 0..200 {
        for _ in 0..4 {
            stage.cold_event();
            stage.pass(1);
        }
        stage.pass(40);
    }
    let after_short = stage.policy.models.as_ref().unwrap()[1].rise;
    assert!(after_short >= 2.0 * 620.0, "{after_short}");
    for _ in 0..200 {
        for _ in 0..40 {
            stage.cold_event();
            stage.pass(1);
        }
        stage.pass(400);
    }
    assert_eq!(stage.policy.models.as_ref().unwrap()[1].rise, 0.0);
}

#[test]
fn governors_learn_every_64_passes_if_there_is_anything_to_learn_from() {
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    let view = View { scan_factor: 2.0, ..stage.view() };
    for model in &mut stage.policy.models(&view)[1..] {
        for _ in 0..100 {
            model.hot_event(false);
        }
    }
    let scans = |stage: &Stage| stage.policy.models.as_ref().unwrap().map(|each| each.scan);
    let dearer = |passes| View { scan_factor: 3.0, passes, ..stage.view() };
    let (before, now) = (dearer(63), dearer(64));
    let first = scans(&stage);
    stage.policy.pass(PassCounts::default(), &before);
    assert_eq!(scans(&stage), first);
    stage.policy.pass(PassCounts::default(), &now);
    assert_eq!(scans(&stage), [first[0], 84.0, 174.0, 222.0]);
    stage.model().rises[0] = 1600.0;
    stage.policy.pass(PassCounts::default(), &now);
    assert_eq!(stage.model().rises[0], 1500.0);
}

#[test]
fn the_preferred_trigger_is_that_of_the_kind() {
    let mut stage = Stage { policy: CostBased::new(), ..Stage::new(Kind::Pipe, Hint::None) };
    assert!(!stage.policy.prefers_level(Kind::Pipe), "nothing is known yet");
    stage.model().level = true;
    for kind in [Kind::Unknown, Kind::Pipe, Kind::Unix, Kind::Tcp] {
        assert_eq!(stage.policy.prefers_level(kind), kind == Kind::Pipe, "{kind:?}");
    }
}

#[test]
fn what_it_goes_by_is_known_once_something_was_registered() {
    assert_eq!(CostBased::new().placement_costs(Kind::Tcp), None);
    let stage = Stage::new(Kind::Tcp, Hint::None);
    let [pipe, tcp] =
        [Kind::Pipe, Kind::Tcp].map(|kind| stage.policy.placement_costs(kind).unwrap());
    assert_eq!(stage.policy.placement_costs(Kind::Unknown), Some(pipe));
    assert_eq!(tcp.scan, COSTS.tcp.scan);
    assert!(pipe.scan < tcp.scan && tcp.rise > 0.0 && tcp.fall > 0.0, "{tcp:?}");
    assert!(tcp.round_trip > tcp.scan && tcp.break_even() < 1.0, "{tcp:?}");
}
