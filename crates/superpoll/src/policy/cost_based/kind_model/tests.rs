//! Prices, ladders and judgements, with exact numbers.

use super::*;
use crate::costs::Costs;

fn pipe() -> KindModel {
    KindModel::new(&Costs::ASSUMED.pipe, 1.0)
}

#[test]
fn prices_follow_from_costs() {
    let model = pipe();
    assert_eq!((model.scan, model.gain), (28.0, 211.0));
    assert_eq!((model.parked, model.settled), (620.0, 1150.0));
    assert_eq!((model.rise, model.fall, model.fall_settled), (620.0, 310.0, 575.0));
    assert_eq!((model.settle, model.worth), (20, 8));
    assert_eq!((model.share, model.shallow()), (118.0 / 183.0, 38.75));
    assert_eq!((model.dense, model.net, model.gain_in_a_row), (183.0, 118.0, 211.0));
    // 7 + 44 more to pay for an event that stays alone, 62 less and 44 for one that does not.
    assert_eq!(model.level_share, 51.0 / 106.0);
}

#[test]
fn nonsense_prices_do_no_harm() {
    let mut costs = Costs::ASSUMED.pipe;
    (costs.scan, costs.event, costs.wake, costs.modify) = (0.0, 0.0, 0.0, 0.0);
    (costs.parked_wake, costs.add, costs.delete) = (0.0, 0.0, 0.0);
    let model = KindModel::new(&costs, 1.0);
    for price in [model.scan, model.gain, model.parked, model.settled] {
        assert_eq!(price, 1.0);
    }
    assert_eq!((model.gain_in_a_row, model.level_share), (1.0, 51.0 / 44.0));
    assert!(model.rise.is_finite() && model.settle >= 1 && model.share == 0.0);
}

#[test]
fn a_burst_is_judged_at_each_threshold_below_its_reach() {
    let mut model = pipe();
    model.burst(1000.0);
    let share = 118.0 / 183.0;
    let price = 1.5 * 620.0 + 310.0 + 4.0 * 28.0;
    let expected = [1000.0, 690.0, 380.0].map(|left| left * share - price);
    assert_eq!(model.rises[..3], expected);
    assert_eq!(model.rises[3..], [0.0; 3]);
}

#[test]
fn a_long_burst_pays_for_settling_and_no_more_for_parking() {
    let mut model = pipe();
    // From 20 * 183 on: two moves and the removal, patience, and 20 events parked.
    let price = 1.5 * (1150.0 + 730.0) + 575.0 + 4.0 * 28.0 + 20.0 * 65.0;
    let parked = 1.5 * 620.0 + 310.0 + 4.0 * 28.0;
    model.burst(3970.0);
    let share = 118.0 / 183.0;
    assert_eq!(model.rises[..2], [3970.0 - price, 3660.0 - price]);
    assert_eq!(model.rises[2], 3350.0 * share - parked);
    assert_eq!(model.rises[4..], [1490.0 * share - parked, 0.0]);
}

#[test]
fn an_event_in_a_row_saves_less_where_a_level_would_serve() {
    let mut model = pipe();
    assert_eq!((model.hot_event(true), model.hot_event(false)), (211.0, 211.0));
    for _ in 0..200 {
        model.hot_event(true);
    }
    model.learn();
    model.reprice(&Costs::ASSUMED.pipe, 1.0);
    // 62 less for the wake-up, 7 more for the event.
    assert_eq!((model.gain, model.gain_in_a_row), (211.0, 156.0));
    assert_eq!((model.cold_event(true), model.cold_event(false)), (156.0, 211.0));
    assert_eq!((model.dense, model.net), (128.0, 63.0));
    assert_eq!((model.share, model.worth), (63.0 / 128.0, 15));
    // None of that was in epoll, where the trigger is chosen by the events in epoll.
    assert!(model.level_for_all && !model.level);
    assert_eq!((model.cold_events, model.in_a_row), (2.0, 1.0));
}

#[test]
fn a_level_that_saves_nothing_changes_no_price() {
    let costs = KindCosts { queued_wake: 120.0, ..Costs::ASSUMED.pipe };
    let mut model = KindModel::new(&costs, 1.0);
    assert_eq!(model.level_share, 51.0 / 48.0);
    for _ in 0..200 {
        model.cold_event(true);
    }
    model.learn();
    assert!(!model.level && !model.level_for_all);
    model.level_for_all = true;
    model.reprice(&costs, 1.0);
    assert_eq!(model.gain_in_a_row, 211.0);
}

#[test]
fn the_trigger_changes_beyond_the_even_share_and_not_on_a_few_events() {
    let after = |level: bool, in_a_row: u32, alone: u32| {
        let mut model = pipe();
        model.level = level;
        for n in 0..in_a_row + alone {
            model.cold_event(n < in_a_row);
        }
        model.learn();
        assert_eq!(model.in_a_row, in_a_row as f32 * FADE);
        assert_eq!(model.cold_events, (in_a_row + alone) as f32 * FADE);
        model.level
    };
    // 51 / 106 = 0.481, more or less by 0.05; 68 events fade to 63.75.
    assert_eq!((after(false, 53, 47), after(false, 54, 46)), (false, true));
    assert_eq!((after(true, 43, 57), after(true, 44, 56)), (false, true));
    assert_eq!((after(false, 68, 0), after(false, 69, 0)), (false, true));
    assert_eq!((after(true, 0, 68), after(true, 0, 69)), (true, false));
}

#[test]
fn a_lull_costs_its_depth_or_the_patience_and_the_way_back() {
    let mut model = pipe();
    model.lull(400.0, false);
    let back = 620.0 + 620.0;
    let expected = [38.75, 155.0, 310.0].map(|patience| patience + back - 400.0);
    assert_eq!((&model.falls[..3], model.falls[3..].iter().sum()), (&expected[..], 0.0));
    assert_eq!(model.falls_settled, [0.0; 6]);
    model.lull(400.0, true);
    let back = 1150.0 + 730.0 + 620.0;
    assert_eq!(model.falls_settled[0], 71.875 + back - 400.0);
    assert_eq!(model.falls_settled[2..], [0.0; 4]);
}

#[test]
fn a_stay_costs_its_events_parked_or_settling() {
    let mut model = pipe();
    model.stay(30);
    let even = model.even;
    assert_eq!(model.settles, [1.5 * even, 2.0 * even, 30.0, 30.0]);
}

#[test]
fn what_would_have_served_best_is_used_and_the_past_fades() {
    let mut model = pipe();
    for _ in 0..10 {
        model.burst(300.0);
        model.lull(5_000.0, false);
        model.lull(2_000.0, true);
        model.stay(30);
    }
    for _ in 0..5 {
        model.burst(3_000.0);
    }
    model.learn();
    assert_eq!((model.rise, model.fall), (310.0, 38.75));
    assert_eq!(model.fall_settled, 2300.0);
    assert_eq!(model.settle, (0.5 * model.even).ceil() as u16);
    let before = model.rises[0];
    model.learn();
    assert_eq!(model.rises[0], before * FADE);
    assert_eq!(model.rise, 310.0);
}

#[test]
fn a_small_difference_changes_nothing() {
    let mut model = pipe();
    model.rises[0] = 500.0;
    model.falls[2] = 500.0;
    model.settles[1] = model.even;
    model.learn();
    assert_eq!((model.rise, model.fall, model.settle), (620.0, 310.0, 20));
}

/// Prices that give round sums: 600 parked, 1200 settled, even after 15 events.
const ROUND: KindCosts = KindCosts {
    scan: 10.0,
    ready: 4.0,
    block: 90.0,
    event: 100.0,
    level: 7.0,
    recheck: 40.0,
    wake: 120.0,
    queued_wake: 50.0,
    parked_wake: 60.0,
    add: 900.0,
    modify: 300.0,
    delete: 300.0,
};

#[test]
fn dearer_scans_and_a_level_for_all_change_what_an_event_saves() {
    let mut model = KindModel::new(&ROUND, 1.5);
    // 100 + 120 - 6, less 15 for the scan.
    assert_eq!((model.scan, model.gain, model.gain_in_a_row), (15.0, 214.0, 214.0));
    assert_eq!((model.dense, model.net), (199.0, 139.0));
    assert_eq!((model.share, model.worth), (139.0 / 199.0, 7));
    model.level_for_all = true;
    model.reprice(&ROUND, 1.5);
    // 120 - 50 less for the wake-up, 7 more for the event.
    assert_eq!((model.gain, model.gain_in_a_row), (214.0, 151.0));
    assert_eq!((model.dense, model.net), (136.0, 76.0));
    assert_eq!((model.share, model.worth), (76.0 / 136.0, 12));
    assert_eq!(model.level_share, 47.0 / 110.0);
    assert_eq!((model.parked, model.settled, model.delete), (600.0, 1200.0, 300.0));
    assert_eq!((model.even, model.settle), (15.0, 15));
    assert_eq!((model.rise, model.fall, model.fall_settled), (600.0, 300.0, 600.0));
}

#[test]
fn the_thresholds_are_rungs_of_the_ladders() {
    let mut model = KindModel::new(&ROUND, 1.0);
    for (rise_at, rise) in [0.0, 300.0, 600.0, 1200.0, 2400.0, 4800.0].into_iter().enumerate() {
        model.rise_at = rise_at;
        model.choose();
        assert_eq!(model.rise, rise);
    }
    // The patience, settled, and the events that pay for it and a move, at 146 each.
    let falls = [
        (37.5, 75.0, 5),
        (150.0, 300.0, 6),
        (300.0, 600.0, 7),
        (600.0, 1200.0, 9),
        (1200.0, 2400.0, 13),
        (2400.0, 4800.0, 21),
    ];
    for (at, (fall, settled, worth)) in falls.into_iter().enumerate() {
        (model.fall_at, model.fall_settled_at) = (at, at);
        model.choose();
        assert_eq!((model.fall, model.fall_settled), (fall, settled));
        assert_eq!(model.worth, worth);
    }
    for (at, settle) in [8, 15, 45, 150].into_iter().enumerate() {
        model.settle_at = at;
        model.choose();
        assert_eq!(model.settle, settle);
    }
}

#[test]
fn half_an_event_is_something_to_learn_from() {
    let mut model = pipe();
    assert!(model.is_idle());
    model.all_events = 0.5;
    assert!(!model.is_idle());
    model.all_events = 0.25;
    assert!(model.is_idle());
    model.all_events = 7.0;
    assert!(!model.is_idle());
}

#[test]
fn what_was_counted_fades_by_a_sixteenth() {
    let mut model = pipe();
    (model.cold_events, model.in_a_row) = (16.0, 32.0);
    (model.all_events, model.all_in_a_row) = (48.0, 64.0);
    (model.rises[1], model.falls[1]) = (1600.0, 320.0);
    (model.falls_settled[1], model.settles[1]) = (160.0, 80.0);
    model.learn();
    assert_eq!((model.cold_events, model.in_a_row), (15.0, 30.0));
    assert_eq!((model.all_events, model.all_in_a_row), (45.0, 60.0));
    assert_eq!((model.rises[1], model.falls[1]), (1500.0, 300.0));
    assert_eq!((model.falls_settled[1], model.settles[1]), (150.0, 75.0));
}

#[test]
fn a_trigger_is_kept_on_few_events_and_near_the_even_point() {
    let table = [
        // Before, events, in a row, after; the even point is a half.
        (false, 63.0, 63.0, false),
        (true, 63.0, 0.0, true),
        (false, 64.0, 64.0, true),
        (true, 64.0, 0.0, false),
        (false, 1000.0, 549.0, false),
        (false, 1000.0, 551.0, true),
        (true, 1000.0, 451.0, true),
        (true, 1000.0, 449.0, false),
    ];
    for (before, events, in_a_row, after) in table {
        assert_eq!(level(before, 0.5, events, in_a_row), after, "{before} {in_a_row}");
    }
    let exactly = (0.5 + HYSTERESIS) * 1000.0;
    assert!(!level(false, 0.5, 1000.0, exactly), "it has to be beyond");
}

#[test]
fn another_threshold_must_be_better_by_more_than_a_move() {
    // 640 fades to 600, the price of a move; 1280 to 1200; 16 to 15.
    let after = |change: fn(&mut KindModel)| {
        let mut model = KindModel::new(&ROUND, 1.0);
        change(&mut model);
        model.learn();
        let KindModel { rise_at, fall_at, fall_settled_at, settle_at, .. } = model;
        (rise_at, fall_at, fall_settled_at, settle_at)
    };
    assert_eq!(after(|model| model.rises[4] = 640.0), (2, 2, 2, 1));
    assert_eq!(after(|model| model.rises[4] = 641.0), (4, 2, 2, 1));
    assert_eq!(after(|model| model.rises = [-640.0; 6]), (2, 2, 2, 1));
    assert_eq!(after(|model| model.rises[2] = -641.0), (0, 2, 2, 1));
    assert_eq!(after(|model| model.falls[2] = 640.0), (2, 2, 2, 1));
    assert_eq!(after(|model| model.falls[2] = 641.0), (2, 0, 2, 1));
    assert_eq!(after(|model| model.falls_settled[2] = 1280.0), (2, 2, 2, 1));
    assert_eq!(after(|model| model.falls_settled[2] = 1281.0), (2, 2, 0, 1));
    assert_eq!(after(|model| model.settles[1] = 16.0), (2, 2, 2, 1));
    assert_eq!(after(|model| model.settles[1] = 16.5), (2, 2, 2, 0));
    // The best of several.
    let best = |model: &mut KindModel| {
        model.rises = [0.0, 700.0, 0.0, 1400.0, 2800.0, 0.0];
        model.falls = [2100.0, 1400.0, 2800.0, 0.0, 700.0, 0.0];
    };
    assert_eq!(after(best), (4, 3, 2, 1));
}

#[test]
fn judgements_add_up_and_are_strict_at_a_rung() {
    let mut model = KindModel::new(&ROUND, 1.0);
    assert_eq!((model.dense, model.net), (206.0, 146.0));
    let parked = 1.5 * 600.0 + 300.0 + 4.0 * 10.0;
    let share = 146.0 / 206.0;
    for times in [1.0, 2.0] {
        model.burst(600.0);
        let expected = [600.0, 300.0].map(|earned| times * (earned * share - parked));
        assert_eq!((&model.rises[..2], model.rises[2]), (&expected[..], 0.0));
        // A patience of 300 would have been just enough.
        model.lull(300.0, false);
        let expected = [37.5, 150.0].map(|patience| times * (patience + 1200.0 - 300.0));
        assert_eq!((&model.falls[..2], model.falls[2]), (&expected[..], 0.0));
        model.lull(600.0, true);
        let back = 1200.0 + 300.0 + 600.0;
        let expected = [75.0, 300.0].map(|patience| times * (patience + back - 600.0));
        assert_eq!(model.falls_settled[..2], expected);
        assert_eq!(model.falls_settled[2], 0.0);
        model.stay(15);
        assert_eq!(model.settles, [22.5, 30.0, 15.0, 15.0].map(|cost| times * cost));
    }
    // A burst that comes to 15 events in a row is judged as settled.
    let mut model = KindModel::new(&ROUND, 1.0);
    model.burst(15.0 * 206.0);
    let price = 1.5 * (1200.0 + 300.0) + 600.0 + 4.0 * 10.0 + 15.0 * 60.0;
    assert_eq!(model.rises[0], 15.0 * 206.0 - price);
    assert_eq!(model.rises[1], (15.0 * 206.0 - 300.0) * share - parked);
}

#[test]
fn events_are_counted_by_place_and_by_what_came_before() {
    let mut model = pipe();
    for (in_a_row, counted) in
        [(false, [1.0, 0.0, 2.0, 0.0]), (true, [2.0, 1.0, 4.0, 2.0]), (true, [3.0, 2.0, 6.0, 4.0])]
    {
        model.cold_event(in_a_row);
        model.hot_event(in_a_row);
        let KindModel { cold_events, in_a_row, all_events, all_in_a_row, .. } = model;
        assert_eq!([cold_events, in_a_row, all_events, all_in_a_row], counted);
    }
}
