//! A load played to a policy and to the yardsticks.

use std::time::Duration;

use superpoll::Hint;
use superpoll::backend::policy::Policy;
use superpoll::diagnostics::{Costs, Kind};

use crate::simulator::machine::{COSTS, Load, Machine, Spent, read_cost};
use crate::simulator::search::Adversary;
use crate::simulator::yardstick::{Hindsight, Pure};

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
