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
    let score = |stage: &Stage| stage.policy.governors.as_ref().unwrap()[1].rises[0];
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

#[test]
fn an_array_costs_by_what_epoll_has_to_do_besides() {
    let stage = Stage::new(Kind::Pipe, Hint::None);
    let price = |cold, active| array_price(&stage.view(), cold, active);
    assert_eq!((price(0, false), price(0, true)), (84.0, 84.0));
    assert_eq!((price(1, false), price(1, true)), (225.0, 375.0));
    assert_eq!((price(9, false), price(9, true)), (225.0, 375.0));
}

#[test]
fn scans_are_priced_by_the_tick_and_the_clock_may_wrap() {
    let mut stage = Stage::new(Kind::Tcp, Hint::None);
    let governor = stage.policy.governors(&stage.view())[3];
    let mut account = Account { since: 100, ..Account::default() };
    assert_eq!(scans(&account, &governor, 100), 0.0);
    assert_eq!((scans(&account, &governor, 104), scans(&account, &governor, 116)), (37.0, 148.0));
    account.since = u32::MAX - 3;
    assert_eq!(scans(&account, &governor, 4), 74.0);
    account.events = SETTLED + 7;
    assert!(settled(&account) && events(&account) == 7);
    account.events = 7;
    assert!(!settled(&account) && events(&account) == 7);
}

/// An account in the present tick, with this credit and reach.
fn account(credit: f32, reach: f32) -> Account {
    Account { credit, reach, kind: Kind::Pipe, ..Account::default() }
}

impl Stage {
    /// The descriptor on stage has this account.
    fn with(account: Account) -> Stage {
        Stage { account, ..Stage::new(Kind::Pipe, Hint::None) }
    }

    fn governor(&mut self) -> &mut Governor {
        let view = self.view();
        &mut self.policy.governors(&view)[1]
    }

    /// The sums of what was recorded: bursts, lulls of parked and of settled ones, and stays.
    fn recorded(&mut self) -> [f32; 4] {
        let governor = *self.governor();
        let (rises, falls) = (governor.rises.iter().sum(), governor.falls.iter().sum());
        let falls_settled = governor.falls_settled.iter().sum();
        [rises, falls, falls_settled, governor.settles.iter().sum()]
    }

    fn recorded_any(&mut self) -> [bool; 4] {
        self.recorded().map(|sum| sum != 0.0)
    }
}

const NONE: [bool; 4] = [false; 4];
const BURST: [bool; 4] = [true, false, false, false];
const LULL: [bool; 4] = [false, true, false, false];
const LULL_SETTLED: [bool; 4] = [false, false, true, false];

#[test]
fn an_event_in_epoll_is_reckoned_like_this() {
    // After so many passes of 28: credit, reach, trough and events before, and after an event that
    // saves 211; whether it is a candidate, and what is recorded.
    type Row = (u32, [f32; 3], u16, [f32; 3], u16, bool, [bool; 4]);
    let table: [Row; 14] = [
        (0, [0.0, 0.0, 0.0], 5, [211.0, 211.0, 0.0], 5, false, NONE),
        (1, [28.0, 100.0, 0.0], 5, [211.0, 211.0, 0.0], 5, false, BURST),
        (1, [29.0, 100.0, 0.0], 5, [212.0, 212.0, 0.0], 5, false, NONE),
        (1, [29.0, 500.0, 0.0], 5, [212.0, 500.0, 0.0], 5, false, NONE),
        (9, [0.0, 0.0, 0.0], 5, [211.0, 211.0, 0.0], 5, false, NONE),
        // The candidate.
        (0, [408.0, 408.0, 0.0], 5, [619.0, 619.0, 0.0], 5, false, NONE),
        (0, [409.0, 409.0, 0.0], 5, [620.0, 620.0, 0.0], 5, true, NONE),
        // A lull goes on, or is made up for.
        (1, [0.0, 0.0, -212.0], 5, [211.0, 211.0, -240.0], 5, false, NONE),
        (0, [0.0, 0.0, -212.0], 5, [211.0, 211.0, -212.0], 5, false, NONE),
        (0, [0.0, 0.0, -211.0], 5, [211.0, 211.0, 0.0], 0, false, LULL),
        (0, [0.0, 0.0, -211.0], SETTLED, [211.0, 211.0, 0.0], 0, false, LULL_SETTLED),
        // A long burst is recorded at once, once.
        (0, [4749.0, 0.0, 0.0], 5, [4960.0, 4960.0, 0.0], 5, true, NONE),
        (0, [4750.0, 0.0, 0.0], 5, [4961.0, RECORDED, 0.0], 5, true, BURST),
        (0, [19_800.0, RECORDED, 0.0], 5, [19_840.0, RECORDED, 0.0], 5, true, NONE),
    ];
    for row in table {
        let (passes, [credit, reach, trough], events, after, events_after, moves, recorded) = row;
        let mut stage = Stage::with(Account { trough, events, ..account(credit, reach) });
        stage.pass(passes);
        assert_eq!(stage.cold_event(), moves, "{row:?}");
        let now = stage.account;
        assert_eq!([now.credit, now.reach, now.trough], after, "{row:?}");
        assert_eq!((now.events, now.since), (events_after, passes * TICKS), "{row:?}");
        assert_eq!(stage.recorded_any(), recorded, "{row:?}");
    }
}

#[test]
fn what_a_descriptor_needs_beyond_others_is_counted_in_moves() {
    for (theta, credit, moves) in
        [(0.25, 775.0, true), (0.25, 774.0, false), (3.0, 2480.0, true), (3.0, 2479.0, false)]
    {
        let mut stage = Stage::with(Account { theta, ..account(credit - 211.0, 0.0) });
        assert_eq!(stage.cold_event(), moves, "{theta} {credit}");
    }
}

#[test]
fn the_events_of_a_wait_are_added_up_for_the_array() {
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    for (credit, events, wanting, wanted) in
        [(0.0, 1, 0, 0.0), (700.0, 2, 1, 183.0), (0.0, 3, 1, 183.0), (800.0, 4, 2, 366.0)]
    {
        stage.account = account(credit, 0.0);
        stage.cold_event();
        let policy = &stage.policy;
        assert_eq!((policy.cold_events, policy.wanting, policy.wanted), (events, wanting, wanted));
    }
    stage.pass(1);
    let policy = &stage.policy;
    assert_eq!((policy.cold_events, policy.wanting, policy.wanted), (0, 0, 0.0));
}

#[test]
fn candidates_are_admitted_if_they_earn_the_price_of_an_array() {
    // What is wanted by how many, candidates, descriptors and events in epoll.
    let table = [
        // 2.6 * 225 = 585.
        (585.0, 1, 1, 100, 1, true),
        (584.0, 1, 1, 100, 1, false),
        // Two wanted it, one may.
        (1170.0, 2, 1, 100, 1, true),
        (1168.0, 2, 1, 100, 1, false),
        (1170.0, 4, 2, 100, 2, true),
        // Epoll is active for others: 2.6 * 375 = 975.
        (975.0, 1, 1, 100, 2, true),
        (974.0, 1, 1, 100, 2, false),
        // Nothing would be left in epoll: 2.6 * 84 = 218.4.
        (219.0, 1, 1, 1, 1, true),
        (218.0, 1, 1, 1, 1, false),
        (219.0, 1, 1, 0, 1, true),
        (219.0, 2, 2, 3, 2, false),
        // Nobody wanted it; a policy is not asked then.
        (0.0, 0, 1, 1, 0, false),
    ];
    for row in table {
        let (wanted, wanting, candidates, cold, cold_events, admits) = row;
        let mut stage = Stage::new(Kind::Pipe, Hint::None);
        stage.cold = cold;
        let policy = &mut stage.policy;
        (policy.wanted, policy.wanting, policy.cold_events) = (wanted, wanting, cold_events);
        let view = stage.view();
        let admitted = stage.policy.admit(candidates, &view);
        assert_eq!(admitted, if admits { candidates } else { 0 }, "{row:?}");
        // To an array that is open they are, and to one that is being dissolved they are not.
        let view = View { hot: 1, ..view };
        assert_eq!(stage.policy.admit(candidates, &view), candidates);
        stage.policy.dissolving = true;
        assert_eq!(stage.policy.admit(candidates, &view), 0);
    }
}

#[test]
fn the_preferred_trigger_is_that_of_the_kind() {
    let mut stage = Stage { policy: Governed::new(), ..Stage::new(Kind::Pipe, Hint::None) };
    assert!(!stage.policy.prefers_level(Kind::Pipe), "nothing is known yet");
    stage.governor().level = true;
    for kind in [Kind::Unknown, Kind::Pipe, Kind::Unix, Kind::Tcp] {
        assert_eq!(stage.policy.prefers_level(kind), kind == Kind::Pipe, "{kind:?}");
    }
}

#[test]
fn a_stay_begins_where_a_short_lull_has_interrupted_it() {
    // Trough, events and whether epoll keeps it; events after, and what is recorded.
    let table = [
        (0.0, 5, true, 5, NONE),
        (0.0, 5, false, SETTLED | 5, NONE),
        (0.0, SETTLED | 5, true, 5, NONE),
        (-100.0, 5, true, 5, LULL),
        (-100.0, SETTLED | 5, false, SETTLED | 5, LULL_SETTLED),
        // Twice what a settled one costs to move.
        (-2300.0, 5, true, 5, LULL),
        (-2301.0, 5, true, 0, LULL),
        (-2301.0, 5, false, SETTLED, LULL),
    ];
    for row in table {
        let (trough, events, parked, after, recorded) = row;
        let mut stage = Stage::with(Account { trough, events, parked, ..account(700.0, 700.0) });
        stage.pass(2);
        let view = stage.view();
        stage.policy.moved_to_hot(&mut stage.account, &view);
        let expected = Account { since: 16, parked, events: after, ..account(0.0, 700.0) };
        assert_eq!(stage.account, expected, "{row:?}");
        assert_eq!(stage.recorded_any(), recorded, "{row:?}");
    }
}

#[test]
fn an_event_in_the_array_is_reckoned_like_this() {
    // After so many passes of 28: credit, reach, trough and events before, and after an event that
    // saves 211; what is recorded.
    type Row = (u32, [f32; 3], u16, [f32; 3], u16, [bool; 4]);
    let table: [Row; 13] = [
        (0, [0.0, 0.0, 0.0], 0, [0.0, 211.0, 0.0], 1, NONE),
        (1, [0.0, 100.0, 0.0], 1, [0.0, 283.0, 0.0], 2, NONE),
        (0, [-211.0, 100.0, -300.0], 1, [0.0, 100.0, 0.0], 2, LULL),
        (0, [-212.0, 100.0, -300.0], 1, [-1.0, 100.0, -300.0], 2, NONE),
        (1, [-280.0, 100.0, -300.0], 1, [-97.0, 100.0, -308.0], 2, NONE),
        (2, [0.0, 100.0, 0.0], 1, [0.0, 255.0, 0.0], 2, LULL),
        // From a sixteenth of two moves on a lull is recorded: 38.75.
        (0, [-10.0, 100.0, -38.75], 1, [0.0, 301.0, 0.0], 2, NONE),
        (0, [-10.0, 100.0, -38.875], 1, [0.0, 301.0, 0.0], 2, LULL),
        // 71.875 for a settled one.
        (0, [-10.0, 100.0, -72.0], SETTLED, [0.0, 301.0, 0.0], SETTLED + 1, LULL_SETTLED),
        (0, [-10.0, 100.0, -71.0], SETTLED, [0.0, 301.0, 0.0], SETTLED + 1, NONE),
        (0, [0.0, RECORDED, 0.0], 1, [0.0, RECORDED, 0.0], 2, NONE),
        // As many events as there is room for.
        (0, [0.0, 0.0, 0.0], SETTLED - 2, [0.0, 211.0, 0.0], SETTLED - 1, NONE),
        (0, [0.0, 0.0, 0.0], u16::MAX, [0.0, 211.0, 0.0], u16::MAX, NONE),
    ];
    for row in table {
        let (passes, [credit, reach, trough], events, after, events_after, recorded) = row;
        let mut stage = Stage::with(Account { trough, events, ..account(credit, reach) });
        stage.pass(passes);
        stage.hot_event();
        let now = stage.account;
        assert_eq!([now.credit, now.reach, now.trough], after, "{row:?}");
        assert_eq!((now.events, now.since), (events_after, passes * TICKS), "{row:?}");
        assert_eq!(stage.recorded_any(), recorded, "{row:?}");
        assert_eq!(stage.policy.earned, 211.0);
        stage.hot_event();
        assert_eq!(stage.policy.earned, 422.0);
    }
}

#[test]
fn a_look_decides_like_this() {
    // After so many passes of 28: credit, reach, trough and events before; the verdict, reach,
    // trough and events after, and what is recorded.
    type Row = (u32, [f32; 3], u16, Verdict, [f32; 2], u16, [bool; 4]);
    let (stay, demote, settle) = (Verdict::Stay, Verdict::Demote, Verdict::Settle);
    let table: [Row; 14] = [
        (0, [0.0, 0.0, 0.0], 0, stay, [0.0, 0.0], 0, NONE),
        // The patience: 310, and 575 with what is settled.
        (1, [-281.0, 0.0, 0.0], 0, stay, [0.0, 0.0], 0, NONE),
        (1, [-282.0, 0.0, 0.0], 0, demote, [0.0, -310.0], 0, NONE),
        (1, [-282.0, 0.0, -400.0], 0, demote, [0.0, -400.0], 0, NONE),
        (1, [-546.0, 0.0, 0.0], SETTLED, stay, [0.0, 0.0], SETTLED, NONE),
        (1, [-547.0, 0.0, 0.0], SETTLED, demote, [0.0, -575.0], SETTLED, NONE),
        // 20 events and no lull.
        (0, [0.0, 0.0, 0.0], 19, stay, [0.0, 0.0], 19, NONE),
        (0, [0.0, 0.0, 0.0], 20, settle, [0.0, 0.0], SETTLED + 20, NONE),
        (0, [-1.0, 0.0, 0.0], 20, stay, [0.0, 0.0], 20, NONE),
        (0, [0.0, 0.0, 0.0], SETTLED + 20, stay, [0.0, 0.0], SETTLED + 20, NONE),
        // A burst that is long enough: 8 * 620.
        (0, [0.0, 4960.0, 0.0], 0, stay, [4960.0, 0.0], 0, NONE),
        (0, [0.0, 4961.0, 0.0], 0, stay, [RECORDED, 0.0], 0, BURST),
        (0, [0.0, 700.0, 0.0], 0, stay, [700.0, 0.0], 0, NONE),
        (0, [0.0, RECORDED, 0.0], 0, stay, [RECORDED, 0.0], 0, NONE),
    ];
    for row in table {
        let (passes, [credit, reach, trough], events, verdict, after, events_after, recorded) = row;
        let mut stage = Stage::with(Account { trough, events, ..account(credit, reach) });
        stage.pass(passes);
        assert_eq!(stage.review(), verdict, "{row:?}");
        let now = stage.account;
        assert_eq!(([now.reach, now.trough], now.events), (after, events_after), "{row:?}");
        assert_eq!(stage.recorded_any(), recorded, "{row:?}");
        // All go when the array is dissolved; those that were patient leave no lull.
        let mut stage = Stage::with(Account { trough, events, ..account(credit, reach) });
        stage.hot = 1;
        stage.pass(passes);
        stage.policy.dissolving = true;
        assert_eq!(stage.review(), demote, "{row:?}");
        let trough = if verdict == demote { after[1] } else { 0.0 };
        assert_eq!(stage.account.trough, trough, "{row:?}");
    }
}

#[test]
fn a_move_back_closes_the_account_of_a_stay() {
    // Theta, events and reach; theta after and whether a burst is recorded. A stay that is worth it
    // has 8 events.
    let table = [
        (0.0, 7, 0.0, 0.25, false),
        (0.0, 8, 0.0, 0.0, false),
        (4.0, 7, 100.0, 5.25, true),
        (4.0, 8, 100.0, 2.75, true),
        (4.0, SETTLED + 7, RECORDED, 5.25, false),
        (4.0, SETTLED + 8, RECORDED, 2.75, false),
        (10.0, 0, 0.0, 12.0, false),
    ];
    for row in table {
        let (theta, events, reach, after, burst) = row;
        let mut stage = Stage::with(Account { theta, events, ..account(-50.0, reach) });
        stage.account.trough = -60.0;
        stage.pass(3);
        stage.demote();
        let expected =
            Account { theta: after, events, trough: -60.0, since: 24, ..account(0.0, 0.0) };
        assert_eq!(stage.account, expected, "{row:?}");
        let [rises, _, _, settles] = stage.recorded();
        assert_eq!(rises != 0.0, burst, "{row:?}");
        let stayed = f32::from(events & !SETTLED);
        let even = 1260.0 / 65.0;
        // Longer than half of what is even, or not.
        let first = if stayed < even / 2.0 { stayed } else { 1.5 * even };
        assert_eq!(settles, first + 3.0 * stayed, "{row:?}");
    }
    // Nobody's lull ends with a hand-over.
    let mut stage = Stage::with(Account { trough: -60.0, ..account(0.0, 0.0) });
    let view = stage.view();
    stage.policy.moved_to_cold(&mut stage.account, true, &view);
    assert_eq!(stage.account.trough, 0.0);
}

#[test]
fn the_account_of_the_array_is_kept_like_this() {
    // What it had and has earned, slots, descriptors and events in epoll, and what is left.
    let table = [
        // Twice the price, 225, and three scans.
        (0.0, 600.0, 3, 10, 0, 0.0),
        (0.0, 500.0, 3, 10, 0, -34.0),
        (-10.0, 534.0, 3, 10, 0, -10.0),
        (-10.0, 540.0, 3, 10, 0, -4.0),
        // Epoll was active besides, or has nothing.
        (0.0, 0.0, 1, 10, 1, -778.0),
        (0.0, 0.0, 1, 0, 0, -196.0),
        // There was none yet.
        (0.0, 0.0, 0, 10, 0, 0.0),
        (-10.0, 500.0, 0, 10, 0, -10.0),
    ];
    for row in table {
        let (before, earned, hot, cold, cold_ready, after) = row;
        let mut stage = Stage::new(Kind::Pipe, Hint::None);
        (stage.policy.balance, stage.policy.earned) = (before, earned);
        (stage.policy.latest, stage.hot) = (1, 3);
        let tally = Tally { hot, hot_ready: 0, cold, cold_ready };
        stage.policy.pass(tally, &stage.view());
        assert_eq!((stage.policy.balance, stage.policy.earned), (after, 0.0), "{row:?}");
        assert!(!stage.policy.dissolving);
        // Without an array there is no account.
        stage.hot = 0;
        stage.policy.dissolving = true;
        stage.policy.pass(tally, &stage.view());
        assert_eq!((stage.policy.balance, stage.policy.dissolving), (0.0, false), "{row:?}");
    }
}

#[test]
fn a_debt_of_what_opening_would_cost_dissolves_the_array() {
    // 3 + 1 settled ones at 1150; a pass costs 2 * 225 + 3 * 28 = 534.
    for (balance, dissolving) in [(-4066.0, false), (-4067.0, true), (-9000.0, true)] {
        let mut stage = Stage::new(Kind::Pipe, Hint::None);
        (stage.hot, stage.scanned) = (3, 3);
        stage.policy.balance = balance;
        stage.pass(1);
        assert_eq!(stage.policy.dissolving, dissolving, "{balance}");
        // Once begun it goes on, whatever is earned meanwhile.
        (stage.policy.dissolving, stage.policy.earned) = (true, 50_000.0);
        stage.pass(1);
        assert!(stage.policy.dissolving && stage.policy.balance == 0.0);
    }
}

#[test]
fn a_pass_that_blocked_is_priced_by_the_kind_of_the_latest_event() {
    // 8 ticks, and for what blocking costs beyond a scan as many more.
    for (kind, ticks) in [
        (Kind::Unknown, 8 + 90 * 8 / 28),
        (Kind::Pipe, 8 + 90 * 8 / 28),
        (Kind::Unix, 8 + 100 * 8 / 58),
        (Kind::Tcp, 8 + 100 * 8 / 74),
    ] {
        let mut stage = Stage::new(kind, Hint::None);
        stage.hot_event();
        stage.blocks = 1;
        stage.pass(1);
        assert_eq!(stage.policy.ticks, ticks, "{kind:?}");
        stage.pass(2);
        assert_eq!(stage.policy.ticks, ticks + 16, "{kind:?}");
    }
}

#[test]
fn governors_learn_every_64_passes_if_there_is_anything_to_learn_from() {
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    let view = View { scan_factor: 2.0, ..stage.view() };
    for governor in &mut stage.policy.governors(&view)[1..] {
        for _ in 0..100 {
            governor.hot_event(false);
        }
    }
    let scans = |stage: &Stage| stage.policy.governors.as_ref().unwrap().map(|each| each.scan);
    let dearer = |passes| View { scan_factor: 3.0, passes, ..stage.view() };
    let (before, now) = (dearer(63), dearer(64));
    let first = scans(&stage);
    stage.policy.pass(Tally::default(), &before);
    assert_eq!(scans(&stage), first);
    stage.policy.pass(Tally::default(), &now);
    assert_eq!(scans(&stage), [first[0], 84.0, 174.0, 222.0]);
    stage.governor().rises[0] = 1600.0;
    stage.policy.pass(Tally::default(), &now);
    assert_eq!(stage.governor().rises[0], 1500.0);
}

#[test]
fn a_few_stay_and_each_of_more_is_given_the_time_of_a_move() {
    for (kind, each) in [(Kind::Pipe, 1_150), (Kind::Unix, 1_240), (Kind::Tcp, 1_310)] {
        let mut stage = Stage::new(kind, Hint::None);
        stage.hot_event();
        for hot in 1..8 {
            stage.hot = hot;
            let view = stage.view();
            let linger = Quiet::HandOffAfter(Duration::from_nanos(each * hot as u64));
            let expected = if hot <= 4 { Quiet::Stay } else { linger };
            assert_eq!(stage.policy.quiet(&view), expected, "{kind:?} {hot}");
        }
    }
}

#[test]
fn the_hand_looks_at_an_eighth_or_at_all() {
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    for (hot, looks) in [(0, 0), (1, 1), (8, 1), (9, 2), (80, 10)] {
        stage.hot = hot;
        assert_eq!(stage.policy.hand(&stage.view()), looks);
        stage.policy.dissolving = true;
        assert_eq!(stage.policy.hand(&stage.view()), hot);
        stage.policy.dissolving = false;
    }
    assert_eq!(stage.policy.name(), "governed");
}

#[test]
fn a_set_without_a_price_is_not_dissolved() {
    let free = Costs { pass: 0.0, poll_call: 0.0, cold_wait: 0.0, ..COSTS };
    for (costs, dissolving) in [(&COSTS, true), (&free, false)] {
        let mut stage = Stage::new(Kind::Pipe, Hint::None);
        stage.promote();
        let view = View { costs, ..stage.view() };
        let tally = Tally { hot: 100, cold: 100, ..Tally::default() };
        for _ in 0..100 {
            stage.policy.pass(tally, &view);
        }
        assert_eq!(stage.policy.dissolving, dissolving);
    }
}
