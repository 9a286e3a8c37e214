//! A load played to a policy and to the yardsticks.

use std::time::Duration;

use superpoll::Hint;
use superpoll::backend::policy::{Policy, Set};
use superpoll::diagnostics::{Costs, Kind, KindCosts, RingCosts, RingKindCosts};

use crate::random::Random;
use crate::simulator::machine::{COSTS, Group, Load, Machine, Pattern, Spent, read_cost};

/// The costs in a simulation, and how the descriptors are watched.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Kind of all descriptors.
    pub kind: Kind,
    /// The costs of watching.
    pub costs: Costs,
    /// The cost of a read, in nanoseconds.
    pub read: f64,
    /// The factor by which scans cost more than in `costs`.
    pub scan_factor: f32,
    /// How long a wait without events blocks.
    pub pause: Duration,
    /// Whether descriptors in epoll are level-triggered; otherwise the back-end may choose.
    pub level: bool,
}

impl Setting {
    /// Creates a setting with assumed costs, for one kind.
    pub fn new(kind: Kind) -> Setting {
        Setting {
            kind,
            costs: COSTS,
            read: read_cost(kind),
            scan_factor: 1.0,
            pause: Duration::from_millis(1),
            level: false,
        }
    }
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The cost of the policy.
    pub policy: Spent,
    /// The total cost of the cheapest pure back-end.
    pub pure: f64,
    /// The loop's own cost with the back-end that is cheapest by that measure.
    pub pure_own: f64,
    /// The cost with all descriptors in `poll`.
    pub poll: f64,
    /// The cost with all descriptors in edge-triggered epoll.
    pub edge: f64,
    /// The cost with all descriptors in level-triggered epoll.
    pub level: f64,
    /// A cost that no schedule can beat: reads, one empty wait per round, and the best schedule for
    /// each descriptor alone.
    pub hindsight: f64,
    /// Moves in either direction.
    pub moves: u64,
    /// Changes of the trigger in epoll.
    pub triggers: u64,
    /// Events.
    pub events: u64,
    /// Descriptors in the array at the end.
    pub hot: usize,
}

impl Outcome {
    /// Returns the policy's cost as a multiple of the best pure back-end's.
    pub fn ratio(&self) -> f64 {
        self.policy.total() / self.pure
    }

    /// Returns the same ratio, counting only the loop's own time.
    pub fn ratio_own(&self) -> f64 {
        self.policy.own() / self.pure_own
    }

    /// Returns the policy's cost as a multiple of the best schedule's in hindsight.
    pub fn regret(&self) -> f64 {
        self.policy.total() / self.hindsight
    }
}

struct Play<P> {
    machine: Machine<P>,
    pure: Pure,
    hindsight: Hindsight,
    rounds: u32,
    events: u64,
}

impl<P: Policy> Play<P> {
    fn new(policy: P, setting: &Setting, total: usize) -> Play<P> {
        Play {
            machine: Machine::new(policy, setting, total, Hint::None),
            pure: Pure::new(setting, total),
            hindsight: Hindsight::new(setting, total),
            rounds: 0,
            events: 0,
        }
    }

    fn round(&mut self, active: &[u32]) {
        self.machine.round(active);
        self.pure.round(active);
        self.hindsight.round(active);
        self.rounds += 1;
        self.events += active.len() as u64;
    }

    fn outcome(&self, setting: &Setting) -> Outcome {
        Outcome {
            policy: self.machine.spent(),
            pure: self.pure.best(),
            pure_own: self.pure.best_own(),
            poll: self.pure.poll.total(),
            edge: self.pure.edge.total(),
            level: self.pure.level.total(),
            hindsight: self.hindsight.total()
                + self.machine.spent().reads
                + f64::from(self.rounds) * f64::from(setting.costs.cold_wait),
            moves: self.machine.moves(),
            triggers: self.machine.triggers(),
            events: self.events,
            hot: self.machine.hot(),
        }
    }
}

/// Plays a load, from a start without experience.
pub fn play(policy: impl Policy, load: &Load, rounds: u32, setting: &Setting) -> Outcome {
    let mut play = Play::new(policy, setting, load.total());
    let (mut script, mut active) = (load.rounds(), Vec::new());
    for _ in 0..rounds {
        script.next_round(&mut active);
        play.round(&active);
    }
    play.outcome(setting)
}

/// Plays an adversary, which sees after each round where each descriptor is watched.
pub fn play_adversary(
    policy: impl Policy,
    adversary: &mut Adversary,
    rounds: u32,
    setting: &Setting,
) -> Outcome {
    let mut play = Play::new(policy, setting, adversary.total());
    let mut active = Vec::new();
    for _ in 0..rounds {
        adversary.next_round(|index| play.machine.place(index), &mut active);
        play.round(&active);
    }
    play.outcome(setting)
}

// The search for the load that a policy likes least.
//
// Random loads of one or two groups, then small changes to the worst ones, kept when they make it
// worse. The result is a load, so it can be played on real descriptors.

/// How to search.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// Random loads to try first.
    pub tries: u32,
    /// Changes to the worst of them.
    pub climbs: u32,
    /// Rounds that each load is played.
    pub rounds: u32,
    /// The fewest descriptors of a group.
    pub smallest: usize,
    /// The most.
    pub largest: usize,
    /// The seed of the search.
    pub seed: u64,
}

impl Default for Search {
    fn default() -> Search {
        Search { tries: 300, climbs: 300, rounds: 2000, smallest: 50, largest: 1000, seed: 1 }
    }
}

/// The worst load found.
#[derive(Clone, Debug)]
pub struct Worst {
    /// The load.
    pub load: Load,
    /// Its outcome.
    pub outcome: Outcome,
}

/// Searches for the load with the highest cost relative to the best pure back-end.
pub fn worst_load<P: Policy>(policy: impl Fn() -> P, setting: &Setting, search: &Search) -> Worst {
    let mut random = Random::new(search.seed);
    let evaluate = |load: Load| {
        let outcome = play(policy(), &load, search.rounds, setting);
        Worst { load, outcome }
    };
    let mut worst = evaluate(invent(&mut random, search));
    for _ in 1..search.tries {
        let next = evaluate(invent(&mut random, search));
        if next.outcome.ratio() > worst.outcome.ratio() {
            worst = next;
        }
    }
    for _ in 0..search.climbs {
        let next = evaluate(change(&worst.load, &mut random, search));
        if next.outcome.ratio() > worst.outcome.ratio() {
            worst = next;
        }
    }
    worst
}

/// Returns a number from 1 to `end` with an evenly distributed order of magnitude.
fn magnitude(random: &mut Random, end: u64) -> u64 {
    let exponent = random.unit() * ((end + 1) as f64).ln();
    (exponent.exp() as u64).clamp(1, end)
}

fn invent(random: &mut Random, search: &Search) -> Load {
    let groups = random.between(1, 2);
    let groups = (0..groups).map(|_| invent_group(random, search)).collect();
    Load { groups, seed: random.bits() }
}

fn invent_group(random: &mut Random, search: &Search) -> Group {
    let size = magnitude(random, search.largest as u64).max(search.smallest as u64) as usize;
    let pattern = match random.below(8) {
        0 => Pattern::Idle,
        1 => Pattern::Steady,
        2 => Pattern::Chance(random.unit()),
        3 => Pattern::Few(magnitude(random, size as u64) as usize),
        4 | 5 => {
            let every = magnitude(random, 300) as u32;
            let active = magnitude(random, size as u64) as usize;
            Pattern::Rotating { active, every, jitter: random.below(every as usize) as u32 }
        }
        _ => {
            let (on, off) = (magnitude(random, 300) as u32, magnitude(random, 300) as u32);
            Pattern::Bursts { on, off, jitter: random.below(on as usize) as u32 }
        }
    };
    Group { size, pattern }
}

fn nudge(random: &mut Random, number: u64, end: u64) -> u64 {
    let factor = 0.7 + 0.6 * random.unit();
    let step = random.between(0, 2);
    ((number as f64 * factor) as u64 + step).saturating_sub(1).clamp(1, end.max(1))
}

fn change(load: &Load, random: &mut Random, search: &Search) -> Load {
    let mut load = load.clone();
    let place = random.below(load.groups.len());
    if random.chance(0.1) {
        load.groups[place] = invent_group(random, search);
        return load;
    }
    let group = &mut load.groups[place];
    if random.chance(0.3) {
        let size = nudge(random, group.size as u64, search.largest as u64) as usize;
        group.size = size.max(search.smallest);
    }
    let size = group.size as u64;
    match &mut group.pattern {
        Pattern::Idle | Pattern::Steady => {}
        Pattern::Chance(chance) => {
            *chance = (*chance + (random.unit() - 0.5) * 0.2).clamp(0.0, 1.0);
        }
        Pattern::Few(few) => *few = nudge(random, *few as u64, size) as usize,
        Pattern::Rotating { active, every, jitter } => {
            *active = nudge(random, *active as u64, size) as usize;
            *every = nudge(random, (*every).into(), 400) as u32;
            *jitter = random.below(*jitter as usize + 2) as u32;
        }
        Pattern::Bursts { on, off, jitter } => {
            *on = nudge(random, (*on).into(), 400) as u32;
            *off = nudge(random, (*off).into(), 400) as u32;
            *jitter = random.below(*jitter as usize + 2) as u32;
        }
    }
    load
}

// Loads made up on the spot, by an adversary that sees where each descriptor is watched.
//
// The cruellest thing to do to a placement rule is to stop a descriptor as soon as it has been
// moved to the array and to wake it as soon as it is back. No rule can do well against that; a
// good rule bounds its loss.

/// The tactic of an adversary.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Tactic {
    /// Active exactly while in epoll.
    Contrary,
    /// Like `Contrary`, but after a move it stays active for so many rounds, or keeps still for so
    /// many.
    Delayed(u32),
    /// Like `Contrary`, but in each round it does the opposite with this probability.
    Careless(f64),
}

/// An adversary that makes a policy lose.
#[derive(Clone, Debug)]
pub struct Adversary {
    tactic: Tactic,
    random: Random,
    places: Vec<Set>,
    since: Vec<u32>,
}

impl Adversary {
    /// Creates an adversary with this many descriptors.
    pub fn new(tactic: Tactic, total: usize, seed: u64) -> Adversary {
        Adversary {
            tactic,
            random: Random::new(seed),
            places: vec![Set::Cold; total],
            since: vec![u32::MAX; total],
        }
    }

    /// Returns its number of descriptors.
    pub fn total(&self) -> usize {
        self.places.len()
    }

    /// Chooses the descriptors that are active next, from where each is watched.
    pub fn next_round(&mut self, place: impl Fn(u32) -> Set, active: &mut Vec<u32>) {
        active.clear();
        for index in 0..self.places.len() {
            let now = place(index as u32);
            let since = &mut self.since[index];
            *since = if now == self.places[index] { since.saturating_add(1) } else { 0 };
            self.places[index] = now;
            let contrary = now == Set::Cold;
            let is_active = match self.tactic {
                Tactic::Contrary => contrary,
                Tactic::Delayed(rounds) => contrary == (*since >= rounds),
                Tactic::Careless(chance) => contrary != self.random.chance(chance),
            };
            if is_active {
                active.push(index as u32);
            }
        }
    }
}

// The yardsticks for a policy: one back-end for everything, and perfect knowledge.

/// The pure back-ends.
#[derive(Clone, Debug)]
pub struct Pure {
    setting: Setting,
    total: usize,
    /// `poll` with everything in the array.
    pub poll: Spent,
    /// Level-triggered epoll.
    pub level: Spent,
    /// Edge-triggered epoll.
    pub edge: Spent,
    /// Whether each descriptor was active in the last round.
    last: Vec<u32>,
    round: u32,
    active_last: usize,
}

impl Pure {
    /// Creates the yardstick for this many descriptors.
    pub fn new(setting: &Setting, total: usize) -> Pure {
        Pure {
            setting: *setting,
            total,
            poll: Spent::default(),
            level: Spent::default(),
            edge: Spent::default(),
            last: vec![0; total],
            round: 1,
            active_last: 0,
        }
    }

    /// Registers a descriptor.
    pub fn join(&mut self, index: u32) {
        self.last.resize(self.last.len().max(index as usize + 1), 0);
        self.last[index as usize] = 0;
        self.total += 1;
        let add = f64::from(self.setting.costs.of(self.setting.kind).add);
        self.level.upkeep += add;
        self.edge.upkeep += add;
    }

    /// Ends the registration of a descriptor.
    pub fn leave(&mut self, index: u32) {
        // It is on the ready list no more.
        self.active_last -= usize::from(self.last[index as usize] == self.round);
        self.total -= 1;
        let delete = f64::from(self.setting.costs.of(self.setting.kind).delete);
        self.level.upkeep += delete;
        self.edge.upkeep += delete;
    }

    /// One wait, in which these descriptors turn out to be ready. Without any it blocks.
    pub fn round(&mut self, active: &[u32]) {
        self.wait(active, active.is_empty());
    }

    /// One wait that returns these descriptors, and had to wait for them, or in vain, if it
    /// `blocked`.
    pub fn wait(&mut self, active: &[u32], blocked: bool) {
        let (costs, setting) = (self.setting.costs.of(self.setting.kind), &self.setting);
        let factor = f64::from(setting.scan_factor);
        let count = active.len() as f64;
        self.round += 1;
        let mut again = 0;
        for &index in active {
            let is_queued = self.last[index as usize] == self.round - 1 && !blocked;
            again += usize::from(is_queued);
            self.last[index as usize] = self.round;
        }
        let gone = self.active_last - again;
        self.active_last = active.len();

        let base = f64::from(setting.costs.cold_wait);
        let scan = self.total as f64 * f64::from(costs.scan) * factor;
        // A wait that finds nothing at first looks twice and joins each wait queue.
        let blocking = if blocked { 1.0 } else { 0.0 };
        self.poll.wait += f64::from(setting.costs.poll_call)
            + scan
            + blocking * (scan + self.total as f64 * f64::from(costs.block))
            + count * f64::from(costs.ready) * factor;
        self.edge.wait += base + count * f64::from(costs.event);
        self.level.wait += base
            + count * f64::from(costs.event + costs.level)
            + gone as f64 * f64::from(costs.recheck);
        self.edge.writes += count * f64::from(costs.wake);
        // One that was reported in the last wait is still on the ready list.
        self.level.writes += again as f64 * f64::from(costs.queued_wake)
            + (active.len() - again) as f64 * f64::from(costs.wake);
        for pure in [&mut self.poll, &mut self.level, &mut self.edge] {
            pure.reads += count * setting.read;
        }
    }

    /// Returns the total of the cheapest back-end.
    pub fn best(&self) -> f64 {
        self.poll.total().min(self.level.total()).min(self.edge.total())
    }

    /// Returns the loop's own time with the back-end that is cheapest by that measure.
    pub fn best_own(&self) -> f64 {
        self.poll.own().min(self.level.own()).min(self.edge.own())
    }
}

/// All descriptors in an io_uring, by polls that stay: each event is a completion.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    costs: RingKindCosts,
    enter: f64,
    read: f64,
    /// The cost so far.
    pub spent: Spent,
}

/// Completions that a call works off, unless more are waited for (`IO_LOCAL_TW_DEFAULT_MAX`).
const AT_ONCE: usize = 20;

impl Ring {
    /// Creates the yardstick, by the costs of a ring.
    pub fn new(setting: &Setting, costs: &RingCosts) -> Ring {
        Ring {
            costs: *costs.of(setting.kind),
            enter: f64::from(costs.enter),
            read: setting.read,
            spent: Spent::default(),
        }
    }

    /// Registers a descriptor, by an entry that the next wait submits.
    pub fn join(&mut self) {
        self.spent.upkeep += f64::from(self.costs.arm);
    }

    /// Ends the registration of a descriptor, by a call of its own: the ring would hold the file
    /// open.
    pub fn leave(&mut self) {
        self.spent.upkeep += f64::from(self.costs.cancel) + self.enter;
    }

    /// One wait that returns so many descriptors.
    pub fn wait(&mut self, active: usize) {
        let (calls, count) = (active.div_ceil(AT_ONCE).max(1) as f64, active as f64);
        self.spent.wait += calls * self.enter + count * f64::from(self.costs.event);
        self.spent.writes += count * f64::from(self.costs.wake);
        self.spent.reads += count * self.read;
    }
}

/// The cheapest schedule for each descriptor alone, knowing the future: in epoll, in the array and
/// parked, or in the array and settled. The cost of the sets as such is left out. In epoll each
/// event has the trigger that is cheaper for it, without paying for a change or a second look. So
/// no policy can do better.
#[derive(Clone, Debug)]
pub struct Hindsight {
    costs: KindCosts,
    scan: f64,
    ready: f64,
    /// The lowest cost of ending in each state, just after the last event of each descriptor.
    states: Vec<[f64; 3]>,
    last: Vec<u32>,
    round: u32,
}

impl Hindsight {
    /// Creates the yardstick for this many descriptors, which all start in epoll.
    pub fn new(setting: &Setting, total: usize) -> Hindsight {
        let costs = *setting.costs.of(setting.kind);
        let mut start = [0.0, f64::INFINITY, f64::INFINITY];
        relax(&mut start, &costs);
        Hindsight {
            costs,
            scan: f64::from(costs.scan * setting.scan_factor),
            ready: f64::from(costs.ready * setting.scan_factor),
            states: vec![start; total],
            last: vec![0; total],
            round: 0,
        }
    }

    /// One wait, in which these descriptors turn out to be ready.
    pub fn round(&mut self, active: &[u32]) {
        self.round += 1;
        let costs = self.costs;
        for &index in active {
            let states = &mut self.states[index as usize];
            let last = std::mem::replace(&mut self.last[index as usize], self.round);
            let idle = f64::from(self.round - last - 1);
            let wake = if last > 0 && last == self.round - 1 {
                costs.wake.min(costs.level + costs.queued_wake)
            } else {
                costs.wake
            };
            // The best time for a move during a lull is one of its ends.
            states[1] += idle * self.scan;
            states[2] += idle * self.scan;
            relax(states, &costs);
            states[0] += f64::from(costs.event + wake);
            states[1] += self.scan + self.ready + f64::from(costs.parked_wake);
            states[2] += self.scan + self.ready;
            relax(states, &costs);
        }
    }

    /// Returns the cost of the best schedules, of waiting, moving and writing.
    pub fn total(&self) -> f64 {
        // Whatever happens after the last event, being in epoll costs nothing more.
        self.states.iter().map(|states| states[0].min(states[1]).min(states[2])).sum()
    }
}

fn relax([cold, parked, settled]: &mut [f64; 3], costs: &KindCosts) {
    *cold = cold.min(*parked + f64::from(costs.modify)).min(*settled + f64::from(costs.add));
    *parked = parked.min(*cold + f64::from(costs.modify));
    *settled = settled.min(*parked + f64::from(costs.delete));
}

#[cfg(test)]
mod tests {
    use superpoll::diagnostics::Kind;

    use super::*;

    const BUSY: &[u32] = &[0];
    const IDLE: &[u32] = &[];

    fn hindsight(rounds: &[&[u32]]) -> f64 {
        let mut hindsight = Hindsight::new(&Setting::new(Kind::Pipe), 1);
        for active in rounds {
            hindsight.round(active);
        }
        hindsight.total()
    }

    #[test]
    fn hindsight_moves_only_where_it_pays() {
        assert_eq!(hindsight(&[IDLE; 9]), 0.0);
        assert_eq!(hindsight(&[BUSY]), 213.0);
        assert_eq!(hindsight(&[BUSY, IDLE, IDLE, BUSY]), 2.0 * 213.0);
        // There and parked: 310 and 95 a round; no way back at the end.
        assert_eq!(hindsight(&[BUSY; 10]), 310.0 + 10.0 * 95.0);
        // Settled: 1040 and 30 a round.
        assert_eq!(hindsight(&[BUSY; 100]), 1040.0 + 100.0 * 30.0);
        // In epoll the first event of a row costs 213, the following ones, level-triggered, 158. A
        // lull of ten rounds is worth waiting for; a lull of twenty is not, nor are the rounds
        // before.
        let lull = |rounds| [vec![BUSY; 5], vec![IDLE; rounds], vec![BUSY; 5]].concat();
        assert_eq!(hindsight(&[BUSY; 3]), 213.0 + 2.0 * 158.0);
        assert_eq!(hindsight(&lull(10)), 310.0 + 10.0 * 95.0 + 10.0 * 28.0);
        assert_eq!(hindsight(&lull(20)), 213.0 + 4.0 * 158.0 + 310.0 + 5.0 * 95.0);
    }

    #[test]
    fn a_level_is_looked_at_again_only_where_it_has_gone() {
        let setting = Setting::new(Kind::Pipe);
        let mut pure = Pure::new(&setting, 3);
        pure.round(&[0, 1]);
        pure.round(&[1]);
        assert_eq!(pure.edge.wait, 2.0 * 150.0 + 3.0 * 89.0);
        assert_eq!(pure.level.wait, 2.0 * 150.0 + 3.0 * 96.0 + 44.0);
        assert_eq!(pure.poll.wait, 2.0 * (234.0 + 3.0 * 28.0) + 3.0 * 2.0);
        // One write found its descriptor on the ready list.
        assert_eq!((pure.poll.writes, pure.edge.writes), (0.0, 3.0 * 124.0));
        assert_eq!(pure.level.writes, 2.0 * 124.0 + 62.0);
        assert_eq!(pure.best(), pure.poll.total());
    }
}
