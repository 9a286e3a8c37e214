//! Learns from the past when moves pay: one model for each kind of descriptor.
//!
//! A move to the poll array is an investment. Waiting for much evidence before it is safe and slow;
//! moving at the first event is quick and loses on everything that was a single event. Which is
//! right depends on how long bursts of activity last, and that can be seen: each burst, wherever
//! the descriptor was watched meanwhile, ends with a *reach*, the evidence that the burst amounted
//! to in total. For each threshold on a ladder the model adds up the earnings that a move at
//! that threshold would have had in the bursts of the last thousand passes or so, and uses the
//! best. A threshold that is not in use is judged as well as the one in use, so the model
//! recovers from being too careful as fast as from being too rash.
//!
//! The way back is the same question asked of lulls. A lull has a *depth*, the cost of its scans
//! until the descriptor earned them back. A patience that is exceeded costs itself and, if the
//! descriptor does come back, the two moves and the evidence for the second.
//!
//! With constant thresholds this is the classical online rule, within a constant of the best
//! schedule in hindsight; the ladders are bounded on both sides, so that the constant remains.

/// Evidence before a move to the array, in multiples of a move there and back.
const RISE: [f32; 6] = [0.0, 0.5, 1.0, 2.0, 4.0, 8.0];

/// Patience before a move back, in multiples of a move back and there again.
const FALL: [f32; 6] = [0.0625, 0.25, 0.5, 1.0, 2.0, 4.0];

/// Where a model starts that has seen nothing: the classical thresholds.
const RISE_FIRST: usize = 2;
const FALL_FIRST: usize = 2;
const SETTLE_FIRST: usize = 1;

/// Events before a parked descriptor is settled, in multiples of the number after which parking
/// has cost as much as settling.
const SETTLE: [f32; 4] = [0.5, 1.0, 3.0, 10.0];

/// The part of a score that remains after [`FADE_PASSES`] passes.
const FADE: f32 = 15.0 / 16.0;

/// How often scores fade, in passes.
pub(super) const FADE_PASSES: u32 = 64;

/// This many recent events in epoll suffice to choose the trigger.
const ENOUGH: f32 = 64.0;

/// By how much the share of events in a row must be beyond the even point to change the trigger.
const HYSTERESIS: f32 = 0.05;

/// How many passes a lull lasts, in the mean, between running out of patience and the clock hand.
const LATE: f32 = 4.0;

/// The assumed cost of a move there and back in a judgement of the past, as a multiple of its
/// system calls: a move costs some bookkeeping and cold caches as well.
const MARGIN: f32 = 1.5;

use crate::costs::KindCosts;

/// Prices and thresholds for one kind of descriptor, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct KindModel {
    /// One idle slot in one pass.
    pub scan: f32,
    /// The saving of an event in the array, if epoll has forgotten the descriptor.
    pub gain: f32,
    /// The same for an event in the wait after another of the same descriptor: epoll can have that
    /// cheaper.
    pub gain_in_a_row: f32,
    /// Events of a stay after which the cost of parking has reached the cost of forgetting.
    pub settle: u16,
    /// Events from which a stay is not a loss.
    pub worth: u16,
    /// The evidence that a move to the array takes at present.
    pub rise: f32,
    /// The patience with a parked descriptor at present.
    pub fall: f32,
    /// The patience with a settled descriptor.
    pub fall_settled: f32,
    /// The cost of moving a parked descriptor back, and there again.
    pub parked: f32,
    /// The cost of moving a settled descriptor back, and there again.
    pub settled: f32,
    /// Whether a level trigger is cheaper for descriptors that are active in epoll.
    pub level: bool,
    /// Events in epoll, and how many of them came in the wait after another of the same descriptor;
    /// both fade.
    cold_events: f32,
    in_a_row: f32,
    /// The same of events anywhere, and whether a level trigger would be cheaper for them if they
    /// were all in epoll.
    all_events: f32,
    all_in_a_row: f32,
    level_for_all: bool,
    /// The share of events in a row from which on a level trigger is cheaper.
    level_share: f32,
    /// The cost of settling.
    delete: f32,
    /// The earnings of a burst in the array while the descriptor is parked, as a share of its
    /// reach.
    share: f32,
    /// The saving of an event in a row less its scan, and the part of that which the writer of a
    /// parked descriptor takes.
    dense: f32,
    parked_wake: f32,
    /// The saving of an event in a row less its scan while the descriptor is parked.
    net: f32,
    /// The earnings that each threshold would have had, and the cost that each patience would have
    /// had.
    pub rises: [f32; RISE.len()],
    pub falls: [f32; FALL.len()],
    pub falls_settled: [f32; FALL.len()],
    pub settles: [f32; SETTLE.len()],
    rise_at: usize,
    fall_at: usize,
    fall_settled_at: usize,
    settle_at: usize,
    /// Events after which parking has cost as much as settling.
    even: f32,
}

impl KindModel {
    pub(super) fn new(costs: &KindCosts, scan_factor: f32) -> KindModel {
        let mut model = KindModel {
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
        model.reprice(costs, scan_factor);
        model
    }

    /// Takes over prices; learned values stay.
    pub(super) fn reprice(&mut self, costs: &KindCosts, scan_factor: f32) {
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
    pub(super) fn is_idle(&self) -> bool {
        self.all_events < 0.5
    }

    /// Lets the past fade and uses the thresholds that would have served best.
    pub(super) fn learn(&mut self) {
        let scores = self.rises.iter_mut().chain(&mut self.falls);
        for score in scores.chain(&mut self.falls_settled).chain(&mut self.settles) {
            *score *= FADE;
        }
        self.cold_events *= FADE;
        self.in_a_row *= FADE;
        self.all_events *= FADE;
        self.all_in_a_row *= FADE;
        let share = self.level_share;
        self.level = level(self.level, share, self.cold_events, self.in_a_row);
        self.level_for_all = level(self.level_for_all, share, self.all_events, self.all_in_a_row);
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

    /// Notes an event in epoll, in the wait after another event of the same descriptor or not.
    /// Returns the saving that it would have had in the array.
    #[inline]
    pub(super) fn cold_event(&mut self, in_a_row: bool) -> f32 {
        self.cold_events += 1.0;
        self.in_a_row += f32::from(in_a_row);
        self.hot_event(in_a_row)
    }

    /// The same for an event in the array.
    #[inline]
    pub(super) fn hot_event(&mut self, in_a_row: bool) -> f32 {
        self.all_events += 1.0;
        self.all_in_a_row += f32::from(in_a_row);
        if in_a_row { self.gain_in_a_row } else { self.gain }
    }

    /// Notes that a stay in the array has ended after this many events.
    pub(super) fn stay(&mut self, events: u16) {
        let events = f32::from(events);
        for (level, cost) in SETTLE.iter().zip(&mut self.settles) {
            let settled_at = level * self.even;
            *cost += if events < settled_at { events } else { settled_at + self.even };
        }
    }

    /// Notes that a burst has ended, or the descriptor has come to stay, with this reach.
    // For the reason of `CostBased::cold_event`.
    #[inline(always)]
    pub(super) fn burst(&mut self, burst_peak: f32) {
        let late = LATE * self.scan;
        let price = self.parked * MARGIN + self.fall + late;
        let events = f32::from(self.settle);
        let price_settled = (self.settled + self.delete) * MARGIN
            + self.fall_settled
            + late
            + events * self.parked_wake;
        for (level, score) in RISE.iter().zip(&mut self.rises) {
            let earned = burst_peak - level * self.parked;
            if earned <= 0.0 {
                break;
            }
            let settles = earned >= events * self.dense;
            *score += if settles { earned - price_settled } else { earned * self.share - price };
        }
    }

    /// Notes that a lull has ended that went down to `depth`, of a descriptor that was settled or
    /// not. A patience is charged for the cost beyond the lull's depth; a patience that was not
    /// exceeded would have cost just the depth.
    pub(super) fn lull(&mut self, depth: f32, settled: bool) {
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

    /// The depth, in nanoseconds, from which a lull is worth recording.
    pub(super) fn shallow(&self) -> f32 {
        FALL[0] * self.parked
    }
}

/// Whether a level trigger is cheaper, given whether it was in use before; `share` is the even
/// point.
fn level(before: bool, share: f32, events: f32, in_a_row: f32) -> bool {
    let margin = if before { -HYSTERESIS } else { HYSTERESIS };
    if events < ENOUGH { before } else { in_a_row > (share + margin) * events }
}

#[cfg(test)]
mod tests;
