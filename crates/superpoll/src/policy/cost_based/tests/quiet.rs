//! When nothing is ready: which descriptors stay in the array, how long, and how many the hand
//! looks at.

use super::*;

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
    assert_eq!(stage.policy.name(), "adaptive");
}
