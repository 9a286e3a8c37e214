//! The rule, step by step with exact numbers.

use super::*;
use crate::costs::{Costs, Kind};

/// A policy, one descriptor, and the passes around them.
struct Stage {
    policy: Governed,
    account: Account,
    passes: u32,
    blocks: u32,
    hot: usize,
    cold: usize,
    /// Slots that the passes scan besides the one on stage, whose events nobody counts.
    scanned: usize,
}

const COSTS: Costs = Costs::ASSUMED;

impl Stage {
    fn new(kind: Kind, hint: Hint) -> Stage {
        let mut stage = Stage {
            policy: Governed::new(),
            account: Account { kind, ..Account::default() },
            passes: 0,
            blocks: 0,
            hot: 0,
            cold: 100,
            scanned: 0,
        };
        let view = stage.view();
        stage.policy.start(&mut stage.account, hint, &view);
        stage
    }

    fn view(&self) -> View<'static> {
        View {
            costs: &COSTS,
            scan_factor: 1.0,
            passes: self.passes,
            blocks: self.blocks,
            hot: self.hot,
            cold: self.cold,
        }
    }

    fn pass(&mut self, times: u32) {
        for _ in 0..times {
            self.passes += 1;
            let tally = Tally { hot: self.scanned, cold: self.cold, ..Tally::default() };
            self.policy.pass(tally, &self.view());
        }
    }

    fn cold_event(&mut self) -> bool {
        let view = self.view();
        self.policy.cold_event(&mut self.account, &view)
    }

    fn promote(&mut self) {
        (self.hot, self.account.parked) = (100, true);
        let view = self.view();
        self.policy.moved_to_hot(&mut self.account, &view);
    }

    fn hot_event(&mut self) {
        let view = self.view();
        self.policy.hot_event(&mut self.account, &view);
    }

    fn review(&mut self) -> Verdict {
        let view = self.view();
        self.policy.review(&mut self.account, &view)
    }

    fn demote(&mut self) {
        (self.hot, self.account.parked) = (0, false);
        let view = self.view();
        self.policy.moved_to_cold(&mut self.account, false, &view);
    }
}

#[test]
fn credit_is_events_less_scans_and_never_below_zero() {
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    // A pipe: an event saves 89 + 124 - 2, a pass costs 28, two moves cost 620.
    assert!(!stage.cold_event());
    assert_eq!(stage.account.credit, 211.0);
    stage.pass(1);
    assert!(!stage.cold_event());
    assert_eq!(stage.account.credit, 394.0);
    stage.pass(3);
    assert!(!stage.cold_event());
    assert_eq!(stage.account.credit, 521.0);
    stage.pass(2);
    assert!(stage.cold_event());
    assert_eq!((stage.account.credit, stage.account.reach), (676.0, 676.0));
    stage.pass(100);
    assert!(!stage.cold_event());
    assert_eq!((stage.account.credit, stage.account.reach), (211.0, 211.0));
}

#[test]
fn each_kind_has_its_own_prices() {
    let candidate_after = |kind| {
        let mut stage = Stage::new(kind, Hint::None);
        let mut events = 1;
        while !stage.cold_event() {
            stage.pass(1);
            events += 1;
        }
        events
    };
    assert_eq!(candidate_after(Kind::Pipe), 4);
    assert_eq!(candidate_after(Kind::Unix), 3);
    assert_eq!(candidate_after(Kind::Tcp), 3);
}

#[test]
fn hints_choose_the_place_or_ask_for_more_evidence() {
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    let view = stage.view();
    let mut account = Account::default();
    assert_eq!(stage.policy.start(&mut account, Hint::Busy, &view), Place::Hot);
    assert_eq!(stage.policy.start(&mut account, Hint::None, &view), Place::Cold);
    assert_eq!(stage.policy.start(&mut account, Hint::Idle, &view), Place::Cold);
    stage.account = Account { kind: Kind::Pipe, ..account };
    let mut events = 1;
    while !stage.cold_event() {
        stage.pass(1);
        events += 1;
    }
    // 28 + 183 n >= 4 * 620
    assert_eq!(events, 14);
}

#[test]
fn patience_ends_when_scans_have_cost_half_of_the_moves() {
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    stage.cold_event();
    stage.promote();
    stage.pass(1);
    stage.hot_event();
    assert_eq!((stage.account.credit, stage.account.events), (0.0, 1));
    // 11 * 28 = 308 < 310 <= 12 * 28
    stage.pass(11);
    assert_eq!(stage.review(), Verdict::Stay);
    stage.pass(1);
    assert_eq!(stage.review(), Verdict::Demote);
    assert_eq!(stage.account.trough, -336.0);
    // An event in between earns patience back, as much as it saves.
    stage.hot_event();
    assert_eq!(stage.account.credit, -125.0);
    stage.pass(6);
    assert_eq!(stage.review(), Verdict::Stay);
    stage.pass(1);
    assert_eq!(stage.review(), Verdict::Demote);
}

#[test]
fn a_stay_is_settled_when_parking_has_cost_as_much() {
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    stage.cold_event();
    stage.promote();
    // (730 + 840 - 310) / 65 = 19.4 events.
    for _ in 0..19 {
        stage.pass(1);
        stage.hot_event();
        assert_eq!(stage.review(), Verdict::Stay);
    }
    stage.pass(1);
    stage.hot_event();
    assert_eq!(stage.review(), Verdict::Settle);
    stage.account.parked = false;
    assert_eq!(stage.review(), Verdict::Stay);
    // The way back is dearer now: half of 840 + 310.
    stage.pass(20);
    assert_eq!(stage.review(), Verdict::Stay);
    stage.pass(1);
    assert_eq!(stage.review(), Verdict::Demote);
}

#[test]
fn a_burst_is_recorded_once_at_its_end_or_when_it_is_long() {
    let score = |stage: &Stage| stage.policy.governors.as_ref().unwrap()[1].rise_scores()[0];
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    // 28 + 183 n > 8 * 620 at n = 27; in epoll.
    for _ in 0..26 {
        stage.cold_event();
        stage.pass(1);
    }
    assert_eq!((score(&stage), stage.account.reach), (0.0, 28.0 + 26.0 * 183.0));
    stage.cold_event();
    let once = score(&stage);
    assert!(once != 0.0);
    assert_eq!(stage.account.reach, RECORDED);
    stage.pass(1);
    stage.cold_event();
    stage.promote();
    stage.hot_event();
    stage.demote();
    assert_eq!((score(&stage), stage.account.reach), (once, 0.0));
    // The same in the array, where what came before counts.
    stage.cold_event();
    stage.promote();
    for _ in 0..26 {
        stage.pass(1);
        stage.hot_event();
    }
    assert_eq!(stage.account.reach, 211.0 + 26.0 * 183.0);
    stage.account.events = SETTLED;
    assert_eq!((stage.review(), stage.account.reach), (Verdict::Stay, RECORDED));
    assert_eq!(score(&stage), 2.0 * once);
    stage.demote();
    // The end of one in epoll leaves nothing behind.
    stage.account.reach = RECORDED;
    stage.pass(500);
    stage.cold_event();
    assert_eq!(stage.account.reach, 211.0);
}

#[test]
fn events_in_a_row_are_those_of_consecutive_passes() {
    let mut account = Account { since: 100, ..Account::default() };
    assert!(in_a_row(&account, 108) && in_a_row(&account, 100) && !in_a_row(&account, 109));
    account.since = u32::MAX;
    assert!(in_a_row(&account, 7) && !in_a_row(&account, 8));
}

#[test]
fn a_lull_is_not_the_time_to_settle() {
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    stage.promote();
    stage.account.events = 30;
    stage.account.credit = -1.0;
    assert_eq!(stage.review(), Verdict::Stay);
    stage.account.credit = 0.0;
    assert_eq!(stage.review(), Verdict::Settle);
}

#[test]
fn the_array_opens_for_as_many_as_pay_for_it() {
    let admit = |candidates: usize, cold: usize, others: usize| {
        let mut stage = Stage::new(Kind::Pipe, Hint::None);
        stage.cold = cold;
        for _ in 0..others {
            stage.cold_event();
            stage.account.credit = 0.0;
        }
        for _ in 0..candidates {
            stage.account.credit = 10_000.0;
            assert!(stage.cold_event());
        }
        let view = stage.view();
        stage.policy.admit(candidates, &view)
    };
    // 183 each; 2.6 * 225 = 585.
    assert_eq!((admit(3, 100, 0), admit(4, 100, 0)), (0, 4));
    // Others are active in epoll: 2.6 * (225 + 149).
    assert_eq!((admit(5, 100, 1), admit(6, 100, 1)), (0, 6));
    // Nothing would be left in epoll: 2.6 * (234 - 150).
    assert_eq!((admit(1, 1, 0), admit(2, 2, 0)), (0, 2));
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    stage.hot = 1;
    let view = stage.view();
    assert_eq!(stage.policy.admit(7, &view), 7);
}

#[test]
fn an_array_that_does_not_earn_its_price_is_dissolved() {
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    stage.promote();
    (stage.hot, stage.scanned) = (2, 2);
    let mut passes = 0;
    while stage.review() != Verdict::Demote {
        stage.hot_event();
        stage.policy.hot_event(&mut Account::default(), &stage.view());
        stage.pass(1);
        passes += 1;
        assert!(passes < 1_000);
    }
    // Each pass loses 2 * 225 + 2 * 28 - 2 * 211 = 84, until 3 * 1150 are exceeded.
    assert_eq!(passes, 42);
    let view = stage.view();
    assert_eq!((stage.policy.hand(&view), stage.policy.admit(5, &view)), (2, 0));
    stage.demote();
    stage.pass(1);
    assert!(!stage.policy.dissolving);
}

#[test]
fn an_array_of_three_busy_ones_stays() {
    let mut stage = Stage::new(Kind::Unix, Hint::None);
    stage.promote();
    (stage.hot, stage.scanned) = (3, 3);
    for _ in 0..1_000 {
        for _ in 0..3 {
            stage.hot_event();
        }
        stage.pass(1);
        assert_ne!(stage.review(), Verdict::Demote);
    }
}

#[test]
fn a_pass_that_blocked_counts_for_more() {
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    stage.promote();
    stage.hot_event();
    stage.blocks += 1;
    stage.pass(1);
    // 8 ticks, and 90 / 28 of 8 more.
    assert_eq!(stage.policy.ticks, 8 + 25);
    stage.pass(1);
    assert_eq!(stage.policy.ticks, 8 + 25 + 8);
}

#[test]
fn stays_that_lose_make_a_descriptor_wait_longer_and_gains_undo_it() {
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    for expected in [0.25, 0.5625] {
        stage.promote();
        stage.demote();
        assert_eq!(stage.account.theta, expected);
    }
    stage.promote();
    // (620 + 310) / (211 - 28 - 65) = 7.9
    stage.account.events = 8;
    stage.demote();
    assert_eq!(stage.account.theta, 0.75 * 1.5625 - 1.0);
    for _ in 0..5 {
        stage.promote();
        stage.account.events = 8;
        stage.demote();
    }
    assert_eq!(stage.account.theta, 0.0);
    for _ in 0..100 {
        stage.promote();
        stage.account.events = 0;
        stage.demote();
    }
    assert_eq!(stage.account.theta, MOST);
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
    let after_short = stage.policy.governors.as_ref().unwrap()[1].rise;
    assert!(after_short >= 2.0 * 620.0, "{after_short}");
    for _ in 0..200 {
        for _ in 0..40 {
            stage.cold_event();
            stage.pass(1);
        }
        stage.pass(400);
    }
    assert_eq!(stage.policy.governors.as_ref().unwrap()[1].rise, 0.0);
}

#[test]
fn a_lull_goes_on_in_epoll_until_it_is_made_up_for() {
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    stage.cold_event();
    stage.promote();
    stage.pass(12);
    assert_eq!(stage.review(), Verdict::Demote);
    stage.demote();
    assert_eq!(stage.account.trough, -336.0);
    stage.pass(10);
    stage.cold_event();
    assert_eq!(stage.account.trough, -616.0);
    for _ in 0..3 {
        stage.pass(1);
        stage.cold_event();
    }
    // 211 + 3 * 183 = 760 > 616
    assert_eq!((stage.account.credit, stage.account.trough), (760.0, 0.0));
}

#[test]
fn quiet_hands_over_all_but_a_few() {
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    stage.hot = 4;
    let view = stage.view();
    assert_eq!(stage.policy.quiet(&view), Quiet::Stay);
    stage.hot = 200;
    let view = stage.view();
    let linger = Duration::from_nanos(200 * 1_150);
    assert_eq!(stage.policy.quiet(&view), Quiet::HandOffAfter(linger));
    assert_eq!(stage.policy.hand(&view), 25);
}

#[test]
fn dearer_scans_are_taken_over_and_nothing_overflows() {
    let mut stage = Stage::new(Kind::Tcp, Hint::None);
    stage.account.events = SETTLED - 1;
    stage.account.since = u32::MAX;
    stage.promote();
    stage.account.events = SETTLED - 2;
    stage.hot_event();
    stage.hot_event();
    assert_eq!(stage.account.events, SETTLED - 1);
    stage.passes = FADE_PASSES - 1;
    let view = View { scan_factor: 2.0, ..stage.view() };
    let view = View { passes: FADE_PASSES, ..view };
    stage.policy.pass(Tally::default(), &view);
    assert_eq!(stage.policy.governors.as_ref().unwrap()[3].scan, 148.0);
}

#[test]
fn an_account_is_small() {
    assert_eq!(size_of::<Account>(), 24);
}
