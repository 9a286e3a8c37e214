//! The array as a whole: when it opens, its costs and earnings, and when it is dissolved.

use super::*;

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
    // Epoll is active for more descriptors: 2.6 * (225 + 149).
    assert_eq!((admit(5, 100, 1), admit(6, 100, 1)), (0, 6));
    // Nothing would be left in epoll: 2.6 * (234 - 150).
    assert_eq!((admit(1, 1, 0), admit(2, 2, 0)), (0, 2));
    let mut stage = Stage::new(Kind::Pipe, Hint::None);
    stage.hot = 1;
    let view = stage.view();
    assert_eq!(stage.policy.admit(7, &view), 7);
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
    // The earnings and number of those that want the array, candidates, descriptors and events in
    // epoll.
    let table = [
        // 2.6 * 225 = 585.
        (585.0, 1, 1, 100, 1, true),
        (584.0, 1, 1, 100, 1, false),
        // Two wanted it, one may.
        (1170.0, 2, 1, 100, 1, true),
        (1168.0, 2, 1, 100, 1, false),
        (1170.0, 4, 2, 100, 2, true),
        // Epoll is active for more descriptors: 2.6 * 375 = 975.
        (975.0, 1, 1, 100, 2, true),
        (974.0, 1, 1, 100, 2, false),
        // Nothing would be left in epoll: 2.6 * 84 = 218.4.
        (219.0, 1, 1, 1, 1, true),
        (218.0, 1, 1, 1, 1, false),
        (219.0, 1, 1, 0, 1, true),
        (219.0, 2, 2, 3, 2, false),
        // No descriptor wanted it; a policy is not asked then.
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
fn the_price_of_an_array_depends_on_the_other_work_of_epoll() {
    let stage = Stage::new(Kind::Pipe, Hint::None);
    let price = |cold, active| array_price(&stage.view(), cold, active);
    assert_eq!((price(0, false), price(0, true)), (84.0, 84.0));
    assert_eq!((price(1, false), price(1, true)), (225.0, 375.0));
    assert_eq!((price(9, false), price(9, true)), (225.0, 375.0));
}

#[test]
fn the_account_of_the_array_is_kept_like_this() {
    // The balance before and the earnings, slots, descriptors and events in epoll, and the balance
    // after.
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
        let counts = PassCounts { hot, hot_ready: 0, cold, cold_ready };
        stage.policy.pass(counts, &stage.view());
        assert_eq!((stage.policy.balance, stage.policy.earned), (after, 0.0), "{row:?}");
        assert!(!stage.policy.dissolving);
        // Without an array there is no account.
        stage.hot = 0;
        stage.policy.dissolving = true;
        stage.policy.pass(counts, &stage.view());
        assert_eq!((stage.policy.balance, stage.policy.dissolving), (0.0, false), "{row:?}");
    }
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
fn a_debt_as_large_as_the_cost_of_opening_dissolves_the_array() {
    // 3 + 1 settled ones at 1150; a pass costs 2 * 225 + 3 * 28 = 534.
    for (balance, dissolving) in [(-4066.0, false), (-4067.0, true), (-9000.0, true)] {
        let mut stage = Stage::new(Kind::Pipe, Hint::None);
        (stage.hot, stage.scanned) = (3, 3);
        stage.policy.balance = balance;
        stage.pass(1);
        assert_eq!(stage.policy.dissolving, dissolving, "{balance}");
        // Once begun it continues, whatever the earnings meanwhile.
        (stage.policy.dissolving, stage.policy.earned) = (true, 50_000.0);
        stage.pass(1);
        assert!(stage.policy.dissolving && stage.policy.balance == 0.0);
    }
}

#[test]
fn a_set_without_a_price_is_not_dissolved() {
    let free = Costs { pass: 0.0, poll_call: 0.0, cold_wait: 0.0, ..COSTS };
    for (costs, dissolving) in [(&COSTS, true), (&free, false)] {
        let mut stage = Stage::new(Kind::Pipe, Hint::None);
        stage.promote();
        let view = View { costs, ..stage.view() };
        let counts = PassCounts { hot: 100, cold: 100, ..PassCounts::default() };
        for _ in 0..100 {
            stage.policy.pass(counts, &view);
        }
        assert_eq!(stage.policy.dissolving, dissolving);
    }
}
