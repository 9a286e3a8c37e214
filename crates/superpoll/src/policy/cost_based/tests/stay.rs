//! A descriptor's stay in the array: how it begins, how much its events earn, how the clock hand
//! decides, and how it ends.

use super::*;

#[test]
fn a_stay_begins_where_a_short_lull_has_interrupted_it() {
    // Trough, events and whether epoll keeps it; events after, and the recorded lull.
    let table = [
        (0.0, 5, true, 5, NONE),
        (0.0, 5, false, SETTLED | 5, NONE),
        (0.0, SETTLED | 5, true, 5, NONE),
        (-100.0, 5, true, 5, LULL),
        (-100.0, SETTLED | 5, false, SETTLED | 5, LULL_SETTLED),
        // Twice the cost of moving a settled one.
        (-2300.0, 5, true, 5, LULL),
        (-2301.0, 5, true, 0, LULL),
        (-2301.0, 5, false, SETTLED, LULL),
    ];
    for row in table {
        let (lull_depth, events, parked, after, recorded) = row;
        let mut stage =
            Stage::with(Account { lull_depth, events, parked, ..account(700.0, 700.0) });
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
    // After this many passes of 28: credit, reach, lull_depth and events before, and after an event
    // that saves 211; the recorded burst and lull.
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
        let (passes, [credit, burst_peak, lull_depth], events, after, events_after, recorded) = row;
        let mut stage = Stage::with(Account { lull_depth, events, ..account(credit, burst_peak) });
        stage.pass(passes);
        stage.hot_event();
        let now = stage.account;
        assert_eq!([now.credit, now.burst_peak, now.lull_depth], after, "{row:?}");
        assert_eq!((now.events, now.since), (events_after, passes * TICKS), "{row:?}");
        assert_eq!(stage.recorded_any(), recorded, "{row:?}");
        assert_eq!(stage.policy.earned, 211.0);
        stage.hot_event();
        assert_eq!(stage.policy.earned, 422.0);
    }
}

#[test]
fn a_look_decides_like_this() {
    // After this many passes of 28: credit, reach, lull_depth and events before; the verdict,
    // reach, lull_depth and events after, and the recorded burst and lull.
    type Row = (u32, [f32; 3], u16, Verdict, [f32; 2], u16, [bool; 4]);
    let (stay, demote, settle) = (Verdict::Stay, Verdict::Demote, Verdict::Settle);
    let table: [Row; 14] = [
        (0, [0.0, 0.0, 0.0], 0, stay, [0.0, 0.0], 0, NONE),
        // The patience: 310, and 575 for settled descriptors.
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
        let (
            passes,
            [credit, burst_peak, lull_depth],
            events,
            verdict,
            after,
            events_after,
            recorded,
        ) = row;
        let mut stage = Stage::with(Account { lull_depth, events, ..account(credit, burst_peak) });
        stage.pass(passes);
        assert_eq!(stage.review(), verdict, "{row:?}");
        let now = stage.account;
        assert_eq!(
            ([now.burst_peak, now.lull_depth], now.events),
            (after, events_after),
            "{row:?}"
        );
        assert_eq!(stage.recorded_any(), recorded, "{row:?}");
        // All go when the array is dissolved; those that were patient leave no lull.
        let mut stage = Stage::with(Account { lull_depth, events, ..account(credit, burst_peak) });
        stage.hot = 1;
        stage.pass(passes);
        stage.policy.dissolving = true;
        assert_eq!(stage.review(), demote, "{row:?}");
        let lull_depth = if verdict == demote { after[1] } else { 0.0 };
        assert_eq!(stage.account.lull_depth, lull_depth, "{row:?}");
    }
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
    assert_eq!(stage.account.lull_depth, -336.0);
    // An event in between earns patience back, as much as its saving.
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
    // The way back is more expensive now: half of 840 + 310.
    stage.pass(20);
    assert_eq!(stage.review(), Verdict::Stay);
    stage.pass(1);
    assert_eq!(stage.review(), Verdict::Demote);
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
fn a_move_back_closes_the_account_of_a_stay() {
    // Theta, events and reach; penalty after and whether a burst is recorded. A stay that is worth
    // it has 8 events.
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
        let (penalty, events, burst_peak, after, burst) = row;
        let mut stage = Stage::with(Account { penalty, events, ..account(-50.0, burst_peak) });
        stage.account.lull_depth = -60.0;
        stage.pass(3);
        stage.demote();
        let expected =
            Account { penalty: after, events, lull_depth: -60.0, since: 24, ..account(0.0, 0.0) };
        assert_eq!(stage.account, expected, "{row:?}");
        let [rises, _, _, settles] = stage.recorded();
        assert_eq!(rises != 0.0, burst, "{row:?}");
        let stayed = f32::from(events & !SETTLED);
        let even = 1260.0 / 65.0;
        // Longer than half of the even point, or not.
        let first = if stayed < even / 2.0 { stayed } else { 1.5 * even };
        assert_eq!(settles, first + 3.0 * stayed, "{row:?}");
    }
    // No lull ends with a hand-over.
    let mut stage = Stage::with(Account { lull_depth: -60.0, ..account(0.0, 0.0) });
    let view = stage.view();
    stage.policy.moved_to_cold(&mut stage.account, true, &view);
    assert_eq!(stage.account.lull_depth, 0.0);
}

#[test]
fn stays_that_lose_make_a_descriptor_wait_longer_and_gains_undo_it() {
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    for expected in [0.25, 0.5625] {
        stage.promote();
        stage.demote();
        assert_eq!(stage.account.penalty, expected);
    }
    stage.promote();
    // (620 + 310) / (211 - 28 - 65) = 7.9
    stage.account.events = 8;
    stage.demote();
    assert_eq!(stage.account.penalty, 0.75 * 1.5625 - 1.0);
    for _ in 0..5 {
        stage.promote();
        stage.account.events = 8;
        stage.demote();
    }
    assert_eq!(stage.account.penalty, 0.0);
    for _ in 0..100 {
        stage.promote();
        stage.account.events = 0;
        stage.demote();
    }
    assert_eq!(stage.account.penalty, MOST);
}
