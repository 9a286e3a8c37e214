//! A simulation: pairs in histories of several moods, and the calls that a rule costs compared with
//! the better of the two fixed choices.

use super::*;
use std::collections::VecDeque;

/// The pairs of a history.
const PAIRS: u32 = 20_000;

/// Costs in quarters of a call: watching a pair takes two calls, and a look at it a part of one.
const WATCH: u64 = 8;
const LOOK: u64 = 2;

/// A rule that decides for each pair, and learns of its own pairs only.
trait Rule {
    fn admits(&self) -> bool;
    fn record(&self, hit: bool);
}

impl Rule for Deferral {
    fn admits(&self) -> bool {
        Deferral::admits(self, After::Up)
    }

    fn record(&self, hit: bool) {
        Deferral::record(self, After::Up, hit);
    }
}

/// The rule that this one has replaced: a score that each outcome moves by an eighth, and one probe
/// in 64 pairs while the score is low.
struct Score(Cell<u8>, Cell<u8>);

impl Rule for Score {
    fn admits(&self) -> bool {
        self.1.set((self.1.get() + 1) % 64);
        self.0.get() >= 80 || self.1.get() == 0
    }

    fn record(&self, hit: bool) {
        let hits = self.0.get();
        self.0.set(if hit { hits + (u8::MAX - hits).div_ceil(8) } else { hits - hits.div_ceil(8) });
    }
}

/// Whether each pair of a history is a hit, if it is put off.
type Mood = fn(u32) -> bool;

/// The most that the rule may cost relative to the better fixed choice. With outcomes that come in
/// batches, each longer than a trial, a rule that learns from the past knows least.
const BOUND: f64 = 1.05;
const BOUND_IN_BATCHES: f64 = 1.15;

/// Returns whether something of this chance, in percent, happens to a pair. It depends on nothing
/// but the pair.
fn by_chance(pair: u32, percent: u32) -> bool {
    let mut mixed = pair.wrapping_mul(0x9e37_79b9) ^ 0x5bd1_e995;
    for _ in 0..3 {
        mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x85eb_ca6b);
    }
    (mixed >> 8) % 100 < percent
}

const MOODS: [(&str, Mood); 12] = [
    ("always early", |_| true),
    ("always late", |_| false),
    ("six in ten", |pair| by_chance(pair, 60)),
    ("as good as not", |pair| by_chance(pair, 33)),
    ("nine in ten", |pair| by_chance(pair, 90)),
    ("one in ten", |pair| by_chance(pair, 10)),
    ("streaks of early ones", |pair| pair % 120 < 90),
    ("streaks of late ones", |pair| pair % 2000 < 100),
    ("batches, six in ten", |pair| by_chance(pair / 32, 60)),
    ("batches, nine in ten", |pair| by_chance(pair / 32, 90)),
    ("batches, one in ten", |pair| by_chance(pair / 32, 10)),
    ("changing", |pair| pair / 2500 % 2 == 0),
];

fn cost(deferred: bool, hit: bool) -> u64 {
    u64::from(deferred) * LOOK + u64::from(!(deferred && hit)) * WATCH
}

/// Returns the cost of a rule that learns of each outcome when so many further pairs have begun.
fn cost_of(rule: &impl Rule, mood: Mood, delay: usize) -> u64 {
    let mut under_way = VecDeque::new();
    (0..PAIRS)
        .map(|pair| {
            let (deferred, hit) = (rule.admits(), mood(pair));
            under_way.push_back(deferred.then_some(hit));
            if under_way.len() > delay
                && let Some(hit) = under_way.pop_front().flatten()
            {
                rule.record(hit);
            }
            cost(deferred, hit)
        })
        .sum()
}

/// Returns a rule's cost relative to the better of the fixed choices.
fn relative_cost(rule: &impl Rule, mood: Mood, delay: usize) -> f64 {
    let fixed = |deferred| (0..PAIRS).map(|pair| cost(deferred, mood(pair))).sum::<u64>();
    cost_of(rule, mood, delay) as f64 / fixed(true).min(fixed(false)) as f64
}

/// The numbers of pairs that are under way at a time.
const DELAYS: [usize; 4] = [0, 4, 32, 128];

#[test]
fn in_every_mood_a_rule_by_trials_costs_hardly_more_than_the_better_fixed_choice() {
    for (name, mood) in MOODS {
        for delay in DELAYS {
            let cost = relative_cost(&Deferral::default(), mood, delay);
            let bound = if name.starts_with("batches") { BOUND_IN_BATCHES } else { BOUND };
            assert!(cost < bound, "{name}, {delay} under way: {cost:.3}");
        }
    }
}

#[test]
fn a_score_with_rare_probes_does_not_converge() {
    let worst = |mood: Mood| {
        let costs = DELAYS
            .map(|delay| relative_cost(&Score(Cell::new(u8::MAX / 2), Cell::new(0)), mood, delay));
        costs.into_iter().fold(0.0, f64::max)
    };
    let of = |name| MOODS.iter().find(|(other, _)| *other == name).unwrap().1;
    for (name, at_least) in [("six in ten", 1.2), ("streaks of early ones", 1.7)] {
        let cost = worst(of(name));
        assert!(cost > at_least, "{name}: {cost:.3}");
    }
}

#[test]
fn pauses_double_up_to_a_bound_and_a_success_ends_them() {
    let rule = Deferral::default();
    // A trial, and the pause after it, which the first pair of the next trial ends.
    let pause_after = |begun: u32, hit: bool| {
        (begun..TRIAL).for_each(|_| assert!(Rule::admits(&rule)));
        (0..TRIAL).for_each(|_| Rule::record(&rule, hit));
        (0..).take_while(|_| !Rule::admits(&rule)).count() as u32
    };
    assert_eq!(pause_after(0, true), 0);
    let pauses = [false; 10].map(|hit| pause_after(1, hit) / TRIAL);
    assert_eq!(pauses, [0, 0, 1, 2, 4, 8, 16, 32, 32, 32]);
    assert_eq!(pause_after(1, true), 0);
    assert_eq!([false; 3].map(|hit| pause_after(1, hit) / TRIAL), [0, 0, 1]);
    // Other situations have trials of their own.
    assert!((0..TRIAL).all(|_| rule.admits(After::End)));
    // A trial admits no more pairs until it is judged.
    assert!(!rule.admits(After::End));
}
