//! The targets and the bounds, asserted on simulated costs.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use superpoll::Hint;
use superpoll::backend::policy::{
    Account, CostBased, Fixed, PassCounts, Policy, Quiet, RatioPolicy, Set, Verdict, View,
};
use superpoll::diagnostics::Kind;

use crate::simulator::{
    Adversary, Load, Machine, Outcome, Pattern, Search, Setting, Tactic, play, play_adversary,
    worst_load,
};

const ROUNDS: u32 = 2000;

fn governed(load: &Load, kind: Kind) -> Outcome {
    play(CostBased::new(), load, ROUNDS, &Setting::new(kind))
}

/// Checks that a load costs no more than this share of the best pure back-end's cost.
fn within(most: f64, load: &Load, kind: Kind) {
    let ratio = governed(load, kind).ratio();
    assert!(ratio <= most, "{kind:?} {load}: {ratio}");
}

fn rotating(every: u32) -> Load {
    Load::new(1000, Pattern::Rotating { active: 50, every, jitter: 0 })
}

/// Returns the bound of the proof (docs/placement.md): no stay in the array costs more than the way
/// there and back, the longest patience and the clock hand's turn; for a settled descriptor, the
/// same plus the settling over the events before it. Each stay has an event, and parking burdens
/// each event. An event in epoll changes the trigger at most once, and with a level it is looked at
/// once more.
fn proven(setting: &Setting) -> f64 {
    let costs = setting.costs.of(setting.kind);
    let event = f64::from(costs.event + costs.wake) + setting.read;
    let trigger = f64::from(costs.modify + costs.level + costs.recheck);
    let moves = f64::from(2.0 * costs.modify);
    let settling = f64::from(costs.modify + costs.add + costs.delete);
    let forgetting = f64::from(costs.delete + costs.add - costs.modify);
    let late = 9.0 * f64::from(costs.scan);
    let parked = 4.0 * moves + moves + late;
    let longest = 4.0 * f64::from(costs.add + costs.modify);
    let settled = (longest + settling + late) / (forgetting / f64::from(costs.parked_wake) / 2.0);
    1.0 + (trigger + f64::from(costs.parked_wake) + parked.max(settled)) / event
}

/// Returns whether an outcome keeps the bound proven against edge-triggered epoll.
fn within_proof(outcome: &Outcome, setting: &Setting, rounds: u32, total: usize) {
    let array = f64::from(setting.costs.pass + setting.costs.cold_wait) * f64::from(rounds);
    let costs = setting.costs.of(setting.kind);
    // One stay of each descriptor may be under way.
    let rest = total as f64 * f64::from(costs.modify + costs.delete + costs.scan * 1000.0);
    let bound = proven(setting) * outcome.edge + array + rest;
    assert!(outcome.policy.total() <= bound, "{outcome:?} > {bound}");
    // Hindsight starts in epoll, pure poll does not.
    let entry = total as f64 * f64::from(costs.modify + costs.delete);
    assert!(outcome.hindsight <= outcome.pure + entry, "{outcome:?}");
    assert!(outcome.policy.total() >= outcome.hindsight * 0.999_999, "{outcome:?}");
}

#[test]
fn an_outcome_is_the_same_each_time() {
    let load = Load::new(100, Pattern::Chance(0.3))
        .and(100, Pattern::Bursts { on: 9, off: 20, jitter: 5 });
    let run = || format!("{:?}", governed(&load, Kind::Tcp));
    assert_eq!(run(), run());
    let search = Search { tries: 10, climbs: 10, rounds: 200, ..Search::default() };
    let search = || worst_load(CostBased::new, &Setting::new(Kind::Pipe), &search);
    assert_eq!(search().load, search().load);
}

#[test]
fn a_policy_that_never_moves_costs_as_much_as_the_pure_back_ends() {
    let load = Load::new(60, Pattern::Chance(0.4)).and(40, Pattern::Steady);
    for kind in Kind::MEASURED {
        let setting = Setting::new(kind);
        let cold = play(Fixed::new(Set::Cold), &load, 500, &setting);
        assert!((cold.policy.total() / cold.edge - 1.0).abs() < 1e-9, "{cold:?}");
        let level = Setting { level: true, ..setting };
        let cold = play(Fixed::new(Set::Cold), &load, 500, &level);
        assert!((cold.policy.total() / cold.level - 1.0).abs() < 1e-9, "{cold:?}");
        let hot = play(Fixed::new(Set::Hot), &load, 500, &setting);
        assert!((hot.policy.total() / hot.poll - 1.0).abs() < 1e-9, "{hot:?}");
    }
}

#[test]
fn costs_of_one_descriptor_by_hand() {
    // Four events in a row make a pipe a candidate, but for it alone no array is opened: it stays
    // in epoll, level-triggered from then on.
    let setting = Setting::new(Kind::Pipe);
    let mut machine = Machine::new(CostBased::new(), &setting, 9, Hint::None);
    for _ in 0..10 {
        machine.round(&[0]);
    }
    let spent = machine.spent();
    assert_eq!(spent.wait, 10.0 * (150.0 + 89.0) + 6.0 * 7.0);
    assert_eq!(spent.writes, 4.0 * 124.0 + 6.0 * 62.0);
    assert_eq!((spent.upkeep, spent.reads), (310.0, 10.0 * 327.0));
    assert_eq!(machine.triggers(), 1);
    // The wait after its last event looks at it once more, and finds it again if it stays active.
    machine.round(&[]);
    machine.round(&[]);
    machine.round(&[0]);
    let rest = machine.spent();
    assert_eq!(rest.wait - spent.wait, 3.0 * 150.0 + 44.0 + 89.0 + 7.0);
    assert_eq!(rest.writes - spent.writes, 124.0);
    // Hinted, it is scanned from the start; epoll has nothing else.
    let mut machine = Machine::new(CostBased::new(), &setting, 1, Hint::Busy);
    assert_eq!((machine.place(0), machine.hot()), (Set::Hot, 1));
    machine.round(&[0]);
    assert_eq!((machine.spent().wait, machine.spent().writes), (234.0 + 28.0 + 2.0, 0.0));
}

#[test]
fn a_pass_that_sleeps_scans_the_array_three_times_in_two_calls() {
    let setting = Setting::new(Kind::Pipe);
    let mut machine = Machine::new(Fixed::new(Set::Hot), &setting, 30, Hint::None);
    machine.round(&[0]);
    let before = machine.spent().wait;
    machine.round(&[]);
    let (costs, of) = (setting.costs, setting.costs.pipe);
    let expected = 2.0 * costs.poll_call + 30.0 * (3.0 * of.scan + of.block);
    assert_eq!(machine.spent().wait - before, f64::from(expected));
}

/// A policy that gives the decisions that the test has set.
#[derive(Debug)]
struct Told<'a> {
    level: &'a AtomicBool,
    promote: &'a AtomicBool,
    demote: &'a AtomicBool,
}

impl Policy for Told<'_> {
    fn name(&self) -> &'static str {
        "told"
    }
    fn start(&mut self, _: &mut Account, _: Hint, _: &View<'_>) -> Set {
        Set::Cold
    }
    fn cold_event(&mut self, _: &mut Account, _: &View<'_>) -> bool {
        self.promote.load(Relaxed)
    }
    fn prefers_level(&self, _: Kind) -> bool {
        self.level.load(Relaxed)
    }
    fn moved_to_hot(&mut self, _: &mut Account, _: &View<'_>) {}
    fn hot_event(&mut self, _: &mut Account, _: &View<'_>) {}
    fn review(&mut self, _: &mut Account, _: &View<'_>) -> Verdict {
        if self.demote.load(Relaxed) { Verdict::Demote } else { Verdict::Stay }
    }
    fn hand(&self, view: &View<'_>) -> usize {
        view.hot
    }
    fn moved_to_cold(&mut self, _: &mut Account, _: bool, _: &View<'_>) {}
    fn pass(&mut self, _: PassCounts, _: &View<'_>) {}
    fn quiet(&mut self, _: &View<'_>) -> Quiet {
        Quiet::Stay
    }
}

#[test]
fn triggers_change_with_an_event_and_leave_the_descriptor_on_the_ready_list() {
    let [level, promote, demote] = [(); 3].map(|()| AtomicBool::new(false));
    let policy = Told { level: &level, promote: &promote, demote: &demote };
    let mut machine = Machine::new(policy, &Setting::new(Kind::Pipe), 9, Hint::None);
    let mut spent = machine.spent();
    let mut step = |machine: &mut Machine<Told<'_>>, active: &[u32]| {
        machine.round(active);
        let before = std::mem::replace(&mut spent, machine.spent());
        (spent.wait - before.wait, spent.writes - before.writes, spent.upkeep - before.upkeep)
    };
    let edge = 150.0 + 89.0;
    assert_eq!(step(&mut machine, &[0]), (edge, 124.0, 0.0));
    level.store(true, Relaxed);
    assert_eq!(step(&mut machine, &[0]), (edge, 124.0, 310.0));
    assert_eq!(step(&mut machine, &[0]), (edge + 7.0, 62.0, 0.0));
    // With no array open it stays as it is.
    level.store(false, Relaxed);
    assert_eq!(step(&mut machine, &[0]), (edge + 7.0, 62.0, 0.0));
    // Another descriptor opens the array; the look at the first finds nothing.
    promote.store(true, Relaxed);
    assert_eq!(step(&mut machine, &[1]), (edge + 44.0, 124.0, 310.0));
    promote.store(false, Relaxed);
    let array = 150.0 + 225.0 + 28.0;
    assert_eq!(step(&mut machine, &[1]), (array + 2.0, 65.0, 0.0));
    // With an array it goes back to an edge, and is looked at once more for the change.
    assert_eq!(step(&mut machine, &[0]), (array + edge + 7.0, 124.0, 310.0));
    assert_eq!(step(&mut machine, &[1]), (array + 2.0 + 44.0, 65.0, 0.0));
    assert_eq!(step(&mut machine, &[0]), (array + edge, 124.0, 0.0));
    assert_eq!(machine.triggers(), 2);
    // A descriptor that comes from the array has the trigger that is preferred by then.
    level.store(true, Relaxed);
    demote.store(true, Relaxed);
    assert_eq!(step(&mut machine, &[1]), (array + 2.0, 65.0, 310.0));
    assert_eq!(step(&mut machine, &[1]), (edge + 7.0, 124.0, 0.0));
    // A descriptor that is promoted from a level is found on the list no more than once.
    promote.store(true, Relaxed);
    demote.store(false, Relaxed);
    assert_eq!(step(&mut machine, &[1]), (edge + 7.0, 62.0, 310.0));
    assert_eq!(step(&mut machine, &[1]), (array + 2.0 + 44.0, 65.0, 0.0));
    assert_eq!(step(&mut machine, &[1]), (array + 2.0, 65.0, 0.0));
}

#[test]
fn uniform_loads_cost_as_much_as_the_better_back_end() {
    for kind in Kind::MEASURED {
        for active in [0, 1, 2, 3, 4, 5, 8, 16, 50, 100, 250, 500, 750, 1000] {
            let load = Load::new(active, Pattern::Steady).and(1000 - active, Pattern::Idle);
            let outcome = governed(&load, kind);
            assert!(outcome.ratio() <= 1.01, "{kind:?} {load}: {}", outcome.ratio());
            assert!(outcome.ratio_own() <= 1.05, "{kind:?} {load}: {}", outcome.ratio_own());
        }
    }
}

#[test]
fn one_or_two_busy_pipes_stay_in_epoll_and_five_do_not() {
    for (active, hot) in [(1, 0), (2, 0), (5, 5)] {
        let load = Load::new(active, Pattern::Steady).and(100, Pattern::Idle);
        assert_eq!(governed(&load, Kind::Pipe).hot, hot);
    }
}

#[test]
fn mixed_loads_gain() {
    for (kind, target) in [(Kind::Pipe, 0.78), (Kind::Unix, 0.90), (Kind::Tcp, 0.86)] {
        for (hot, cold) in [(50, 950), (200, 9_600), (1_000, 8_800)] {
            let load = Load::new(hot, Pattern::Steady).and(cold, Pattern::Few(5));
            let outcome = play(CostBased::new(), &load, 1000, &Setting::new(kind));
            assert!(outcome.ratio() <= target, "{kind:?} {load}: {}", outcome.ratio());
        }
    }
}

#[test]
fn hot_sets_may_rotate() {
    for kind in Kind::MEASURED {
        for every in [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 50] {
            within(1.04, &rotating(every), kind);
        }
        let slow = if kind == Kind::Pipe { 0.82 } else { 0.92 };
        for every in [100, 200, 1000] {
            within(slow, &rotating(every), kind);
        }
    }
}

#[test]
fn chance_settles_on_the_better_side() {
    for kind in Kind::MEASURED {
        for chance in [0.01, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 0.9] {
            within(1.06, &Load::new(1000, Pattern::Chance(chance)), kind);
        }
    }
}

#[test]
fn jitter_and_bursts_are_no_worse() {
    for kind in Kind::MEASURED {
        for load in [
            Load::new(1000, Pattern::Rotating { active: 50, every: 15, jitter: 10 }),
            Load::new(1000, Pattern::Rotating { active: 50, every: 40, jitter: 39 }),
            Load::new(500, Pattern::Bursts { on: 20, off: 200, jitter: 10 }),
            Load::new(500, Pattern::Bursts { on: 100, off: 100, jitter: 50 }),
        ] {
            within(1.06, &load, kind);
        }
    }
}

#[test]
fn the_proven_bound_holds_on_random_loads_and_is_far_away() {
    for kind in Kind::MEASURED {
        let setting = Setting::new(kind);
        for seed in 1..=4 {
            let search = Search { tries: 25, climbs: 25, rounds: 600, seed, ..Search::default() };
            let worst = worst_load(CostBased::new, &setting, &search);
            within_proof(&worst.outcome, &setting, search.rounds, worst.load.total());
            let ratio = worst.outcome.ratio();
            assert!(ratio <= 1.35, "{kind:?} {}: {ratio}", worst.load);
        }
    }
}

#[test]
fn adversaries_gain_a_bounded_amount() {
    let tactics = [
        Tactic::Contrary,
        Tactic::Delayed(1),
        Tactic::Delayed(3),
        Tactic::Delayed(10),
        Tactic::Careless(0.05),
        Tactic::Careless(0.2),
    ];
    for kind in Kind::MEASURED {
        let setting = Setting::new(kind);
        for tactic in tactics {
            for seed in 1..4 {
                let mut adversary = Adversary::new(tactic, 100, seed);
                let outcome = play_adversary(CostBased::new(), &mut adversary, ROUNDS, &setting);
                within_proof(&outcome, &setting, ROUNDS, 100);
                let ratio = outcome.ratio();
                assert!(ratio <= 1.75, "{kind:?} {tactic:?}: {ratio}");
            }
        }
    }
}

#[test]
fn a_set_ratio_cannot_see_a_busy_few() {
    let load = Load::new(50, Pattern::Steady).and(950, Pattern::Few(5));
    let setting = Setting::new(Kind::Pipe);
    let threshold = play(RatioPolicy::default(), &load, ROUNDS, &setting);
    assert_eq!((threshold.moves, threshold.hot), (0, 0));
    let busy = Load::new(100, Pattern::Steady).and(60, Pattern::Idle);
    let threshold = play(RatioPolicy::default(), &busy, ROUNDS, &setting);
    assert_eq!(threshold.hot, 100);
    assert!(threshold.ratio() < 1.0, "{}", threshold.ratio());
}

#[test]
fn a_quiet_loop_hands_its_array_over() {
    let setting = Setting::new(Kind::Pipe);
    let mut machine = Machine::new(CostBased::new(), &setting, 100, Hint::None);
    let all: Vec<u32> = (0..100).collect();
    for _ in 0..50 {
        machine.round(&all);
    }
    assert_eq!(machine.hot(), 100);
    machine.round(&[]);
    assert_eq!(machine.hot(), 0);
    // A wait shorter than the cost of handing over leaves the array.
    let short = Setting { pause: std::time::Duration::from_micros(20), ..setting };
    let mut machine = Machine::new(CostBased::new(), &short, 100, Hint::None);
    for _ in 0..50 {
        machine.round(&all);
    }
    machine.round(&[]);
    assert_eq!(machine.hot(), 100);
}

#[test]
fn expensive_scans_are_taken_into_account() {
    for kind in Kind::MEASURED {
        let setting = Setting { scan_factor: 1.7, ..Setting::new(kind) };
        for load in [rotating(20), Load::new(1000, Pattern::Chance(0.5)), rotating(100)] {
            let outcome = play(CostBased::new(), &load, ROUNDS, &setting);
            assert!(outcome.ratio() <= 1.06, "{kind:?} {load}: {}", outcome.ratio());
        }
    }
}
