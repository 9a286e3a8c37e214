//! The worth of a descriptor's events in epoll, and when they make it a candidate for the array.

use super::*;

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
    assert_eq!((stage.account.credit, stage.account.burst_peak), (676.0, 676.0));
    stage.pass(100);
    assert!(!stage.cold_event());
    assert_eq!((stage.account.credit, stage.account.burst_peak), (211.0, 211.0));
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
    assert_eq!(stage.policy.start(&mut account, Hint::Busy, &view), Set::Hot);
    assert_eq!(stage.policy.start(&mut account, Hint::None, &view), Set::Cold);
    assert_eq!(stage.policy.start(&mut account, Hint::Idle, &view), Set::Cold);
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
fn an_event_in_epoll_is_reckoned_like_this() {
    // After this many passes of 28: credit, reach, lull_depth and events before, and after an event
    // that saves 211; whether it is a candidate, and the recorded burst and lull.
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
        // A lull continues, or is made up for.
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
        let (
            passes,
            [credit, burst_peak, lull_depth],
            events,
            after,
            events_after,
            moves,
            recorded,
        ) = row;
        let mut stage = Stage::with(Account { lull_depth, events, ..account(credit, burst_peak) });
        stage.pass(passes);
        assert_eq!(stage.cold_event(), moves, "{row:?}");
        let now = stage.account;
        assert_eq!([now.credit, now.burst_peak, now.lull_depth], after, "{row:?}");
        assert_eq!((now.events, now.since), (events_after, passes * TICKS), "{row:?}");
        assert_eq!(stage.recorded_any(), recorded, "{row:?}");
    }
}

#[test]
fn the_extra_credit_that_a_descriptor_needs_is_counted_in_moves() {
    for (penalty, credit, moves) in
        [(0.25, 775.0, true), (0.25, 774.0, false), (3.0, 2480.0, true), (3.0, 2479.0, false)]
    {
        let mut stage = Stage::with(Account { penalty, ..account(credit - 211.0, 0.0) });
        assert_eq!(stage.cold_event(), moves, "{penalty} {credit}");
    }
}

#[test]
fn a_lull_goes_on_in_epoll_until_it_is_made_up_for() {
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    stage.cold_event();
    stage.promote();
    stage.pass(12);
    assert_eq!(stage.review(), Verdict::Demote);
    stage.demote();
    assert_eq!(stage.account.lull_depth, -336.0);
    stage.pass(10);
    stage.cold_event();
    assert_eq!(stage.account.lull_depth, -616.0);
    for _ in 0..3 {
        stage.pass(1);
        stage.cold_event();
    }
    // 211 + 3 * 183 = 760 > 616
    assert_eq!((stage.account.credit, stage.account.lull_depth), (760.0, 0.0));
}
