//! The clock of the rule: passes, passes that blocked, and the prices of the scans between two
//! events.

use super::*;

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
fn a_pass_that_blocked_is_priced_by_the_kind_of_the_latest_event() {
    // 8 ticks, and as many more as blocking costs beyond a scan.
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
fn events_in_a_row_are_those_of_consecutive_passes() {
    let mut account = Account { since: 100, ..Account::default() };
    assert!(in_a_row(&account, 108) && in_a_row(&account, 100) && !in_a_row(&account, 109));
    account.since = u32::MAX;
    assert!(in_a_row(&account, 7) && !in_a_row(&account, 8));
}

#[test]
fn scans_are_priced_by_the_tick_and_the_clock_may_wrap() {
    let mut stage = Stage::new(Kind::Tcp, Hint::None);
    let model = stage.policy.models(&stage.view())[3];
    let mut account = Account { since: 100, ..Account::default() };
    assert_eq!(scans(&account, &model, 100), 0.0);
    assert_eq!((scans(&account, &model, 104), scans(&account, &model, 116)), (37.0, 148.0));
    account.since = u32::MAX - 3;
    assert_eq!(scans(&account, &model, 4), 74.0);
    account.events = SETTLED + 7;
    assert!(settled(&account) && events(&account) == 7);
    account.events = 7;
    assert!(!settled(&account) && events(&account) == 7);
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
    stage.policy.pass(PassCounts::default(), &view);
    assert_eq!(stage.policy.models.as_ref().unwrap()[3].scan, 148.0);
}

#[test]
fn an_account_is_small() {
    assert_eq!(size_of::<Account>(), 24);
}
