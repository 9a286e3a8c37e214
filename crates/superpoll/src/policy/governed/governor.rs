//! What the past says about moving: one governor for each kind of descriptor.
//!
//! A move to the poll array is an investment. Waiting for much evidence before it is safe and
//! slow; moving at the first event is quick and loses on everything that was a single event.
//! Which is right depends on how long bursts of activity last, and that can be seen: each burst,
//! wherever the descriptor was watched meanwhile, ends with a *reach*, the evidence it amounted to
//! in total. For each threshold on a ladder the governor sums up what moving at that threshold
//! would have earned in the bursts of the last thousand passes or so, and uses the best. A
//! threshold that nobody moves at is judged as well as the one in use, so the governor recovers
//! from being too careful as fast as from being too rash.
//!
//! The way back is the same question asked of lulls. A lull has a *depth*, what the scans cost
//! until the descriptor earned them back; a patience that is exceeded costs itself, and if the
//! descriptor does come back the two moves and the evidence for the second.
//!
//! With constant thresholds this is the classical online rule, within a constant of the best
//! schedule in hindsight; the ladders are bounded on both sides, so that the constant remains.

/// Evidence before a move to the array, in multiples of a move there and back.
const RISE: [f32; 6] = [0.0, 0.5, 1.0, 2.0, 4.0, 8.0];

/// Patience before a move back, in multiples of a move back and there again.
const FALL: [f32; 6] = [0.0625, 0.25, 0.5, 1.0, 2.0, 4.0];

/// Where a governor starts that has seen nothing: the classical thresholds.
const RISE_FIRST: usize = 2;
const FALL_FIRST: usize = 2;
const SETTLE_FIRST: usize = 1;

/// Events before a parked descriptor is settled, in multiples of the number after which parking
/// has cost as much as settling.
const SETTLE: [f32; 4] = [0.5, 1.0, 3.0, 10.0];

/// What is left of a score after [`FADE_PASSES`] passes.
const FADE: f32 = 15.0 / 16.0;

/// How often scores fade, in passes.
pub(super) const FADE_PASSES: u32 = 64;

/// So many recent events in epoll say something about the trigger.
const ENOUGH: f32 = 64.0;

/// By how much the share of events in a row must be beyond the even point to change the trigger.
const HYSTERESIS: f32 = 0.05;

/// How many passes a lull lasts, in the mean, between running out of patience and the clock hand.
const LATE: f32 = 4.0;

/// What a move there and back is taken to cost in a judgement of the past, as a multiple of its
/// system calls: it costs some bookkeeping and cold caches as well.
const MARGIN: f32 = 1.5;

use crate::costs::KindCosts;

/// Prices and thresholds for one kind of descriptor, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Governor {
    /// One idle slot in one pass.
    pub scan: f32,
    /// What an event saves in the array, if epoll has forgotten the descriptor.
    pub gain: f32,
    /// The same for an event in the wait after another of the same descriptor: epoll can have that
    /// cheaper.
    pub gain_in_a_row: f32,
    /// Events of a stay after which parking has cost what forgetting would have.
    pub settle: u16,
    /// Events from which a stay is not a loss.
    pub worth: u16,
    /// The evidence that a move to the array takes at present.
    pub rise: f32,
    /// The patience with a parked descriptor at present.
    pub fall: f32,
    /// The patience with a settled one.
    pub fall_settled: f32,
    /// Moving a parked descriptor back, and there again.
    pub parked: f32,
    /// Moving a settled descriptor back, and there again.
    pub settled: f32,
    /// Whether a level trigger is the cheaper one for what is active in epoll.
    pub level: bool,
    /// Events in epoll, and how many of them came in the wait after another of the same descriptor;
    /// both fade.
    cold_events: f32,
    in_a_row: f32,
    /// The same of events anywhere, and whether a level trigger would be the cheaper one for them
    /// if they were all in epoll.
    all_events: f32,
    all_in_a_row: f32,
    level_for_all: bool,
    /// The share of events in a row from which a level trigger is the cheaper one.
    level_share: f32,
    /// Settling.
    delete: f32,
    /// What a burst earns in the array while the descriptor is parked, as a share of its reach.
    share: f32,
    /// What an event in a row and its scan save, and what the writer of a parked one takes of that.
    dense: f32,
    parked_wake: f32,
    /// What an event and its scan save while the descriptor is parked.
    net: f32,
    rises: [f32; RISE.len()],
    falls: [f32; FALL.len()],
    falls_settled: [f32; FALL.len()],
    settles: [f32; SETTLE.len()],
    rise_at: usize,
    fall_at: usize,
    fall_settled_at: usize,
    settle_at: usize,
    /// Events after which parking has cost as much as settling.
    even: f32,
}

impl Governor {
    pub fn new(costs: &KindCosts, scan_factor: f32) -> Governor {
        let mut governor = Governor {
            scan: 0.0,
            gain: 0.0,
            gain_in_a_row: 0.0,
            settle: 0,
            worth: 0,
            dense: 0.0,
            parked_wake: 0.0,
            net: 0.0,
            rise: 0.0,
            fall: 0.0,
            fall_settled: 0.0,
            parked: 0.0,
            settled: 0.0,
            level: false,
            cold_events: 0.0,
            in_a_row: 0.0,
            all_events: 0.0,
            all_in_a_row: 0.0,
            level_for_all: false,
            level_share: 1.0,
            delete: 0.0,
            share: 0.0,
            rises: [0.0; RISE.len()],
            falls: [0.0; FALL.len()],
            falls_settled: [0.0; FALL.len()],
            settles: [0.0; SETTLE.len()],
            rise_at: RISE_FIRST,
            fall_at: FALL_FIRST,
            fall_settled_at: FALL_FIRST,
            settle_at: SETTLE_FIRST,
            even: 0.0,
        };
        governor.reprice(costs, scan_factor);
        governor
    }

    /// Takes over prices; what was learned stays.
    pub fn reprice(&mut self, costs: &KindCosts, scan_factor: f32) {
        let ready = costs.ready * scan_factor;
        self.scan = (costs.scan * scan_factor).max(1.0);
        // An event in a row saves its writer part of the wake-up; any other is looked at once more.
        let saved = (costs.wake - costs.queued_wake).max(0.0);
        self.level_share = (costs.level + costs.recheck) / (saved + costs.recheck).max(1.0);
        let gain = costs.event + costs.wake - ready;
        self.gain = gain.max(1.0);
        let cheaper = if self.level_for_all { (saved - costs.level).max(0.0) } else { 0.0 };
        self.gain_in_a_row = (gain - cheaper).max(1.0);
        self.parked = (2.0 * costs.modify).max(1.0);
        self.settled = (costs.add + costs.modify).max(1.0);
        self.delete = costs.delete;
        let forgetting = (costs.delete + costs.add - costs.modify).max(0.0);
        self.even = (forgetting / costs.parked_wake.max(1.0)).clamp(1.0, 5_000.0);
        self.parked_wake = costs.parked_wake;
        let dense = self.gain_in_a_row - self.scan;
        self.dense = dense.max(1.0);
        self.net = (dense - costs.parked_wake).max(1.0);
        self.share = ((dense - costs.parked_wake) / dense.max(1.0)).clamp(0.0, 1.0);
        self.choose();
    }

    /// Whether there is nothing to learn from: no event for long.
    pub fn is_idle(&self) -> bool {
        self.all_events < 0.5
    }

    /// Lets the past fade and uses the thresholds that would have served best.
    pub fn learn(&mut self) {
        let scores = self.rises.iter_mut().chain(&mut self.falls);
        for score in scores.chain(&mut self.falls_settled).chain(&mut self.settles) {
            *score *= FADE;
        }
        self.cold_events *= FADE;
        self.in_a_row *= FADE;
        self.all_events *= FADE;
        self.all_in_a_row *= FADE;
        let share = self.level_share;
        let cheaper = |level: bool, events: f32, in_a_row: f32| {
            let margin = if level { -HYSTERESIS } else { HYSTERESIS };
            if events < ENOUGH { level } else { in_a_row > (share + margin) * events }
        };
        self.level = cheaper(self.level, self.cold_events, self.in_a_row);
        self.level_for_all = cheaper(self.level_for_all, self.all_events, self.all_in_a_row);
        let margin = self.parked;
        for level in 0..RISE.len() {
            if self.rises[level] > self.rises[self.rise_at] + margin {
                self.rise_at = level;
            }
        }
        for level in 0..FALL.len() {
            if self.falls[level] + self.parked < self.falls[self.fall_at] {
                self.fall_at = level;
            }
            if self.falls_settled[level] + self.settled < self.falls_settled[self.fall_settled_at] {
                self.fall_settled_at = level;
            }
        }
        for level in 0..SETTLE.len() {
            if self.settles[level] + self.even < self.settles[self.settle_at] {
                self.settle_at = level;
            }
        }
        self.choose();
    }

    fn choose(&mut self) {
        self.rise = RISE[self.rise_at] * self.parked;
        self.fall = FALL[self.fall_at] * self.parked;
        self.fall_settled = FALL[self.fall_settled_at] * self.settled;
        let price = self.parked + self.fall;
        self.worth = (price / self.net).ceil().min(1_000.0) as u16;
        self.settle = (SETTLE[self.settle_at] * self.even).ceil() as u16;
    }

    /// An event in epoll, in the wait after another of the same descriptor or not. Returns what it
    /// would have saved in the array.
    #[inline]
    pub fn cold_event(&mut self, in_a_row: bool) -> f32 {
        self.cold_events += 1.0;
        self.in_a_row += f32::from(in_a_row);
        self.hot_event(in_a_row)
    }

    /// An event in the array; the same.
    #[inline]
    pub fn hot_event(&mut self, in_a_row: bool) -> f32 {
        self.all_events += 1.0;
        self.all_in_a_row += f32::from(in_a_row);
        if in_a_row { self.gain_in_a_row } else { self.gain }
    }

    /// A stay in the array has ended after so many events.
    pub fn stay(&mut self, events: u16) {
        let events = f32::from(events);
        for (level, cost) in SETTLE.iter().zip(&mut self.settles) {
            let settled_at = level * self.even;
            *cost += if events < settled_at { events } else { settled_at + self.even };
        }
    }

    /// A burst has ended, or the descriptor has come to stay, with this reach.
    pub fn burst(&mut self, reach: f32) {
        let late = LATE * self.scan;
        let price = self.parked * MARGIN + self.fall + late;
        let events = f32::from(self.settle);
        let price_settled = (self.settled + self.delete) * MARGIN
            + self.fall_settled
            + late
            + events * self.parked_wake;
        for (level, score) in RISE.iter().zip(&mut self.rises) {
            let earned = reach - level * self.parked;
            if earned <= 0.0 {
                break;
            }
            let settles = earned >= events * self.dense;
            *score += if settles { earned - price_settled } else { earned * self.share - price };
        }
    }

    /// A lull has ended that went down to `depth`, of a descriptor that was settled or not. What
    /// counts is how much more than its depth a lull would have cost; a patience that was not
    /// exceeded would have cost just that.
    pub fn lull(&mut self, depth: f32, settled: bool) {
        let (costs, price, back) = if settled {
            (&mut self.falls_settled, self.settled, self.settled + self.delete + self.rise)
        } else {
            (&mut self.falls, self.parked, self.parked + self.rise)
        };
        for (level, cost) in FALL.iter().zip(costs) {
            let patience = level * price;
            if depth <= patience {
                break;
            }
            *cost += patience + back - depth;
        }
    }

    #[cfg(test)]
    pub fn rise_scores(&self) -> [f32; RISE.len()] {
        self.rises
    }

    /// The depth, in nanoseconds, from which a lull is worth recording.
    pub fn shallow(&self) -> f32 {
        FALL[0] * self.parked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Costs;

    fn pipe() -> Governor {
        Governor::new(&Costs::ASSUMED.pipe, 1.0)
    }

    #[test]
    fn prices_follow_from_costs() {
        let governor = pipe();
        assert_eq!((governor.scan, governor.gain), (28.0, 211.0));
        assert_eq!((governor.parked, governor.settled), (620.0, 1150.0));
        assert_eq!((governor.rise, governor.fall, governor.fall_settled), (620.0, 310.0, 575.0));
        assert_eq!((governor.settle, governor.worth), (20, 8));
        assert_eq!((governor.share, governor.shallow()), (118.0 / 183.0, 38.75));
        assert_eq!((governor.dense, governor.net, governor.gain_in_a_row), (183.0, 118.0, 211.0));
        // 7 + 44 more to pay for an event that stays alone, 62 less and 44 for one that does not.
        assert_eq!(governor.level_share, 51.0 / 106.0);
    }

    #[test]
    fn nonsense_prices_do_no_harm() {
        let mut costs = Costs::ASSUMED.pipe;
        (costs.scan, costs.event, costs.wake, costs.modify) = (0.0, 0.0, 0.0, 0.0);
        (costs.parked_wake, costs.add, costs.delete) = (0.0, 0.0, 0.0);
        let governor = Governor::new(&costs, 1.0);
        for price in [governor.scan, governor.gain, governor.parked, governor.settled] {
            assert_eq!(price, 1.0);
        }
        assert_eq!((governor.gain_in_a_row, governor.level_share), (1.0, 51.0 / 44.0));
        assert!(governor.rise.is_finite() && governor.settle >= 1 && governor.share == 0.0);
    }

    #[test]
    fn a_burst_is_judged_at_each_threshold_below_its_reach() {
        let mut governor = pipe();
        governor.burst(1000.0);
        let share = 118.0 / 183.0;
        let price = 1.5 * 620.0 + 310.0 + 4.0 * 28.0;
        let expected = [1000.0, 690.0, 380.0].map(|left| left * share - price);
        assert_eq!(governor.rises[..3], expected);
        assert_eq!(governor.rises[3..], [0.0; 3]);
    }

    #[test]
    fn a_long_burst_pays_for_settling_and_no_more_for_parking() {
        let mut governor = pipe();
        // From 20 * 183 on: two moves and the removal, patience, and 20 events parked.
        let price = 1.5 * (1150.0 + 730.0) + 575.0 + 4.0 * 28.0 + 20.0 * 65.0;
        let parked = 1.5 * 620.0 + 310.0 + 4.0 * 28.0;
        governor.burst(3970.0);
        let share = 118.0 / 183.0;
        assert_eq!(governor.rises[..2], [3970.0 - price, 3660.0 - price]);
        assert_eq!(governor.rises[2], 3350.0 * share - parked);
        assert_eq!(governor.rises[4..], [1490.0 * share - parked, 0.0]);
    }

    #[test]
    fn an_event_in_a_row_saves_less_where_a_level_would_serve() {
        let mut governor = pipe();
        assert_eq!((governor.hot_event(true), governor.hot_event(false)), (211.0, 211.0));
        for _ in 0..200 {
            governor.hot_event(true);
        }
        governor.learn();
        governor.reprice(&Costs::ASSUMED.pipe, 1.0);
        // 62 less for the wake-up, 7 more for the event.
        assert_eq!((governor.gain, governor.gain_in_a_row), (211.0, 156.0));
        assert_eq!((governor.cold_event(true), governor.cold_event(false)), (156.0, 211.0));
        assert_eq!((governor.dense, governor.net), (128.0, 63.0));
        assert_eq!((governor.share, governor.worth), (63.0 / 128.0, 15));
        // Nothing of that was in epoll, where the trigger is changed for what is there.
        assert!(governor.level_for_all && !governor.level);
        assert_eq!((governor.cold_events, governor.in_a_row), (2.0, 1.0));
    }

    #[test]
    fn a_level_that_saves_nothing_changes_no_price() {
        let costs = KindCosts { queued_wake: 120.0, ..Costs::ASSUMED.pipe };
        let mut governor = Governor::new(&costs, 1.0);
        assert_eq!(governor.level_share, 51.0 / 48.0);
        for _ in 0..200 {
            governor.cold_event(true);
        }
        governor.learn();
        assert!(!governor.level && !governor.level_for_all);
        governor.level_for_all = true;
        governor.reprice(&costs, 1.0);
        assert_eq!(governor.gain_in_a_row, 211.0);
    }

    #[test]
    fn the_trigger_changes_beyond_the_even_share_and_not_on_a_few_events() {
        let after = |level: bool, in_a_row: u32, alone: u32| {
            let mut governor = pipe();
            governor.level = level;
            for n in 0..in_a_row + alone {
                governor.cold_event(n < in_a_row);
            }
            governor.learn();
            assert_eq!(governor.in_a_row, in_a_row as f32 * FADE);
            assert_eq!(governor.cold_events, (in_a_row + alone) as f32 * FADE);
            governor.level
        };
        // 51 / 106 = 0.481, more or less by 0.05; 68 events fade to 63.75.
        assert_eq!((after(false, 53, 47), after(false, 54, 46)), (false, true));
        assert_eq!((after(true, 43, 57), after(true, 44, 56)), (false, true));
        assert_eq!((after(false, 68, 0), after(false, 69, 0)), (false, true));
        assert_eq!((after(true, 0, 68), after(true, 0, 69)), (true, false));
    }

    #[test]
    fn a_lull_costs_its_depth_or_the_patience_and_the_way_back() {
        let mut governor = pipe();
        governor.lull(400.0, false);
        let back = 620.0 + 620.0;
        let expected = [38.75, 155.0, 310.0].map(|patience| patience + back - 400.0);
        assert_eq!((&governor.falls[..3], governor.falls[3..].iter().sum()), (&expected[..], 0.0));
        assert_eq!(governor.falls_settled, [0.0; 6]);
        governor.lull(400.0, true);
        let back = 1150.0 + 730.0 + 620.0;
        assert_eq!(governor.falls_settled[0], 71.875 + back - 400.0);
        assert_eq!(governor.falls_settled[2..], [0.0; 4]);
    }

    #[test]
    fn a_stay_costs_its_events_parked_or_settling() {
        let mut governor = pipe();
        governor.stay(30);
        let even = governor.even;
        assert_eq!(governor.settles, [1.5 * even, 2.0 * even, 30.0, 30.0]);
    }

    #[test]
    fn what_would_have_served_best_is_used_and_the_past_fades() {
        let mut governor = pipe();
        for _ in 0..10 {
            governor.burst(300.0);
            governor.lull(5_000.0, false);
            governor.lull(2_000.0, true);
            governor.stay(30);
        }
        for _ in 0..5 {
            governor.burst(3_000.0);
        }
        governor.learn();
        assert_eq!((governor.rise, governor.fall), (310.0, 38.75));
        assert_eq!(governor.fall_settled, 2300.0);
        assert_eq!(governor.settle, (0.5 * governor.even).ceil() as u16);
        let before = governor.rises[0];
        governor.learn();
        assert_eq!(governor.rises[0], before * FADE);
        assert_eq!(governor.rise, 310.0);
    }

    #[test]
    fn a_small_difference_changes_nothing() {
        let mut governor = pipe();
        governor.rises[0] = 500.0;
        governor.falls[2] = 500.0;
        governor.settles[1] = governor.even;
        governor.learn();
        assert_eq!((governor.rise, governor.fall, governor.settle), (620.0, 310.0, 20));
    }
}
