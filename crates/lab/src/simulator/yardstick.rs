//! The yardsticks for a policy: one back-end for everything, and perfect knowledge.

use superpoll::diagnostics::KindCosts;

use crate::simulator::machine::Spent;
use crate::simulator::run::Setting;

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

    /// One wait, in which these descriptors turn out to be ready.
    pub fn round(&mut self, active: &[u32]) {
        let (costs, setting) = (self.setting.costs.of(self.setting.kind), &self.setting);
        let factor = f64::from(setting.scan_factor);
        let count = active.len() as f64;
        self.round += 1;
        let mut again = 0;
        for &index in active {
            again += usize::from(self.last[index as usize] == self.round - 1);
            self.last[index as usize] = self.round;
        }
        let gone = self.active_last - again;
        self.active_last = active.len();

        let base = f64::from(setting.costs.cold_wait);
        let scan = self.total as f64 * f64::from(costs.scan) * factor;
        // A wait that finds nothing looks twice and joins each wait queue.
        let blocking = if active.is_empty() { 1.0 } else { 0.0 };
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
    use super::*;
    use superpoll::diagnostics::Kind;

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
