//! The default rule: each descriptor earns its place, and the past decides how much it must earn.
//!
//! In the poll array a descriptor costs a scan in each pass; in epoll it costs an event and the
//! writer's wake-up whenever it is active. A descriptor in epoll gathers credit: each event adds
//! its saving in the array, each pass takes away a scan, down to zero. When the credit reaches a
//! threshold it becomes a candidate for the array. There its credit runs from zero downwards, scans
//! against events, and when patience is exhausted the clock hand sends it back. Both thresholds
//! come from the [`kind_model`], which learns them, for each kind of descriptor, from the bursts
//! and lulls of all descriptors.
//!
//! A move leaves the descriptor *parked* in epoll, which makes the way back cheap and each event a
//! little more expensive. When parking has cost as much as forgetting would have, the descriptor is
//! *settled*: removed from epoll. That is at most twice the cost of the better choice.
//!
//! The array itself has a price per pass, however many slots it has. It is opened only when the
//! candidates of one wait would earn that price together, and dissolved when its debt reaches the
//! cost of dissolving and opening it again. It must earn a multiple of the price, because most of
//! its earnings fall to the writers: with two or three active descriptors the loop would pay for
//! gains of the writers alone.
//!
//! Time is counted in ticks, eight to a pass; a pass that blocked with the array counts for as
//! many more as joining and leaving the wait queues costs more than a scan.

mod kind_model;

use std::time::Duration;

use crate::costs::Kind;
use crate::interest::Hint;
use crate::policy::{Account, PassCounts, PlacementCosts, Policy, Quiet, Set, Verdict, View};
use kind_model::{FADE_PASSES, KindModel};

/// Ticks to a pass.
const TICKS: u32 = 8;

/// A loop that goes quiet keeps an array of up to this many descriptors: they delay a wake-up by
/// less than a tenth, and handing them over delays the work that comes next.
const FEW: usize = 4;

/// How much more evidence a descriptor needs that the caller expects to be idle.
const IDLE_PENALTY: f32 = 3.0;

/// The bit of an account's events for a stay that is, or was, settled.
const SETTLED: u16 = 1 << 15;

/// A descriptor that comes back from a lull of less than this many times the price of moving it
/// should have stayed: its next stay continues where the last one ended.
const SAME_STAY: f32 = 2.0;

/// The effect of a stay that lost, and of one that gained, on the extra evidence that the
/// descriptor needs, and the most extra evidence, in multiples of the price of two moves.
const LOSS: f32 = 1.25;
const GAIN: f32 = 0.75;
const MOST: f32 = 12.0;

/// A burst that comes to this many times the price of two moves is recorded without waiting for its
/// end, so that bursts that never end are counted too.
const STEADY: f32 = 8.0;

/// The reach of a burst that is recorded: nothing that is added to it makes it count again.
const RECORDED: f32 = f32::NEG_INFINITY;

/// Credit beyond this many times the price of two moves says nothing more.
const CAP: f32 = 32.0;

/// How many times its price the array must earn to be opened, and to stay: more than half of its
/// earnings falls to the writers, but the price is the loop's alone.
const OPENING: f32 = 2.6;
const STAYING: f32 = 2.0;

/// Credit per descriptor, with thresholds learned from all of them.
#[derive(Clone, Debug, Default)]
pub struct CostBased {
    /// By kind; empty until the costs are known.
    models: Option<[KindModel; 4]>,
    ticks: u32,
    /// `View::blocks` when the last wait was over.
    blocks: u32,
    /// The earnings of this wait's candidates if they were in the array, and their number.
    wanted: f32,
    wanting: u32,
    /// Events of this wait in epoll.
    cold_events: u32,
    /// The earnings of the array in this wait, before its price.
    earned: f32,
    /// The losses of the array in the last waits; zero or below.
    balance: f32,
    dissolving: bool,
    /// The kind of the last event in the array.
    latest: usize,
}

impl CostBased {
    /// The rule without any knowledge of the past.
    pub fn new() -> CostBased {
        CostBased::default()
    }

    #[inline]
    fn models(&mut self, view: &View<'_>) -> &mut [KindModel; 4] {
        self.models.get_or_insert_with(|| models(view))
    }
}

#[cold]
fn models(view: &View<'_>) -> [KindModel; 4] {
    let make = |costs| KindModel::new(costs, view.scan_factor);
    let costs = view.costs;
    [make(&costs.pipe), make(&costs.pipe), make(&costs.unix), make(&costs.tcp)]
}

/// The cost of the scans since the account's last event, made or avoided.
#[inline]
fn scans(account: &Account, model: &KindModel, ticks: u32) -> f32 {
    model.scan / TICKS as f32 * ticks.wrapping_sub(account.since) as f32
}

/// Whether an event now is in the wait after the descriptor's last.
#[inline]
fn in_a_row(account: &Account, ticks: u32) -> bool {
    ticks.wrapping_sub(account.since) <= TICKS
}

/// The events of the stay that an account is in or has ended last.
#[inline]
fn events(account: &Account) -> u16 {
    account.events & !SETTLED
}

/// Whether epoll has forgotten the descriptor in this stay.
#[inline]
fn settled(account: &Account) -> bool {
    account.events & SETTLED != 0
}

/// The extra cost of a pass because there is an array, its slots not counted. Where epoll has
/// nothing to watch, `poll` does not watch epoll.
fn array_price(view: &View<'_>, cold: usize, cold_active: bool) -> f32 {
    let costs = view.costs;
    match (cold, cold_active) {
        (0, _) => costs.poll_call - costs.cold_wait,
        (_, false) => costs.pass,
        (_, true) => costs.pass + costs.cold_wait,
    }
}

impl Policy for CostBased {
    fn name(&self) -> &'static str {
        "adaptive"
    }

    fn start(&mut self, account: &mut Account, hint: Hint, view: &View<'_>) -> Set {
        self.models(view);
        account.since = self.ticks;
        account.penalty = 0.0;
        match hint {
            Hint::Busy => return Set::Hot,
            Hint::Idle => account.penalty = IDLE_PENALTY,
            Hint::None => {}
        }
        Set::Cold
    }

    // Each event of the cold set comes here, and the calls alone would be 5 % of a wait.
    #[inline(always)]
    fn cold_event(&mut self, account: &mut Account, view: &View<'_>) -> bool {
        let ticks = self.ticks;
        let model = &mut self.models(view)[account.kind as usize];
        let gain = model.cold_event(in_a_row(account, ticks));
        let scans = scans(account, model, ticks);
        let mut credit = account.credit - scans;
        if credit <= 0.0 {
            if account.burst_peak > 0.0 {
                model.burst(account.burst_peak);
            }
            account.burst_peak = 0.0;
            if account.lull_depth < 0.0 {
                account.lull_depth += credit;
            }
            credit = 0.0;
        }
        credit = (credit + gain).min(model.parked * CAP);
        if credit + account.lull_depth >= 0.0 && account.lull_depth < 0.0 {
            model.lull(-account.lull_depth, settled(account));
            account.events = 0;
            account.lull_depth = 0.0;
        }
        account.credit = credit;
        if account.burst_peak >= 0.0 {
            account.burst_peak = account.burst_peak.max(credit);
            if credit > model.parked * STEADY {
                model.burst(credit);
                account.burst_peak = RECORDED;
            }
        }
        account.since = ticks;
        let moves = credit >= model.rise + account.penalty * model.parked;
        if moves {
            self.wanted += gain - model.scan;
            self.wanting += 1;
        }
        self.cold_events += 1;
        moves
    }

    fn admit(&mut self, candidates: usize, view: &View<'_>) -> usize {
        if self.dissolving {
            return 0;
        }
        if view.hot > 0 {
            return candidates;
        }
        let worth = self.wanted * candidates as f32 / self.wanting.max(1) as f32;
        let others = view.cold - candidates.min(view.cold);
        let price = array_price(view, others, self.cold_events as usize > candidates);
        if worth >= OPENING * price { candidates } else { 0 }
    }

    fn prefers_level(&self, kind: Kind) -> bool {
        self.models.as_ref().is_some_and(|models| models[kind as usize].level)
    }

    fn placement_costs(&self, kind: Kind) -> Option<PlacementCosts> {
        let model = &self.models.as_ref()?[kind as usize];
        let KindModel { scan, gain, parked: round_trip, rise, fall, .. } = *model;
        Some(PlacementCosts { scan, gain, round_trip, rise, fall })
    }

    fn moved_to_hot(&mut self, account: &mut Account, view: &View<'_>) {
        let ticks = self.ticks;
        let model = &mut self.models(view)[account.kind as usize];
        if account.lull_depth < 0.0 {
            model.lull(-account.lull_depth, settled(account));
            if account.lull_depth < -SAME_STAY * model.settled {
                account.events = 0;
            }
            account.lull_depth = 0.0;
        }
        account.events &= !SETTLED;
        if !account.parked {
            account.events |= SETTLED;
        }
        account.credit = 0.0;
        account.since = ticks;
    }

    #[inline]
    fn hot_event(&mut self, account: &mut Account, view: &View<'_>) {
        let ticks = self.ticks;
        self.latest = account.kind as usize;
        let model = &mut self.models(view)[account.kind as usize];
        let gain = model.hot_event(in_a_row(account, ticks));
        let low = account.credit - scans(account, model, ticks);
        let credit = low + gain;
        account.lull_depth = account.lull_depth.min(low);
        account.burst_peak += credit.max(0.0);
        account.credit = credit.min(0.0);
        account.since = ticks;
        account.events += u16::from(events(account) < SETTLED - 1);
        if credit >= 0.0 {
            if account.lull_depth < -model.shallow() {
                model.lull(-account.lull_depth, settled(account));
            }
            account.lull_depth = 0.0;
        }
        self.earned += gain;
    }

    fn review(&mut self, account: &mut Account, view: &View<'_>) -> Verdict {
        let (ticks, dissolving) = (self.ticks, self.dissolving);
        let model = &mut self.models(view)[account.kind as usize];
        let depth = scans(account, model, ticks) - account.credit;
        let patience = if settled(account) { model.fall_settled } else { model.fall };
        if depth >= patience {
            account.lull_depth = account.lull_depth.min(-depth);
            Verdict::Demote
        } else if dissolving {
            account.lull_depth = 0.0;
            Verdict::Demote
        } else if !settled(account) && account.events >= model.settle && account.credit >= 0.0 {
            account.events |= SETTLED;
            Verdict::Settle
        } else if account.burst_peak > model.parked * STEADY {
            model.burst(account.burst_peak);
            account.burst_peak = RECORDED;
            Verdict::Stay
        } else {
            Verdict::Stay
        }
    }

    fn hand(&self, view: &View<'_>) -> usize {
        if self.dissolving { view.hot } else { view.hot.div_ceil(8) }
    }

    fn moved_to_cold(&mut self, account: &mut Account, handed_off: bool, view: &View<'_>) {
        let ticks = self.ticks;
        let model = &mut self.models(view)[account.kind as usize];
        if account.burst_peak > 0.0 {
            model.burst(account.burst_peak);
        }
        model.stay(events(account));
        if handed_off {
            account.lull_depth = 0.0;
        }
        if events(account) < model.worth {
            account.penalty = (account.penalty * LOSS + LOSS - 1.0).min(MOST);
        } else {
            account.penalty = (account.penalty * GAIN + GAIN - 1.0).max(0.0);
        }
        account.credit = 0.0;
        account.burst_peak = 0.0;
        account.since = ticks;
    }

    fn pass(&mut self, counts: PassCounts, view: &View<'_>) {
        let latest = self.latest;
        let model = &self.models(view)[latest];
        let (scan, settled) = (model.scan, model.settled);
        self.ticks = self.ticks.wrapping_add(TICKS);
        if view.blocks != self.blocks {
            self.blocks = view.blocks;
            let kind = [&view.costs.pipe, &view.costs.pipe, &view.costs.unix, &view.costs.tcp];
            let more = kind[latest].block / scan;
            self.ticks = self.ticks.wrapping_add((more * TICKS as f32) as u32);
        }
        if counts.hot > 0 {
            let price = array_price(view, counts.cold, counts.cold_ready > 0);
            let cost = STAYING * price + counts.hot as f32 * scan;
            self.balance = (self.balance + self.earned - cost).min(0.0);
            let debt = settled * (counts.hot + 1) as f32;
            // An array without a price of its own saves nothing by being dissolved.
            self.dissolving |= price != 0.0 && self.balance < -debt;
        }
        if view.hot == 0 {
            self.dissolving = false;
            self.balance = 0.0;
        }
        self.earned = 0.0;
        self.wanted = 0.0;
        self.wanting = 0;
        self.cold_events = 0;
        if view.passes.is_multiple_of(FADE_PASSES) {
            let costs = view.costs;
            let factor = view.scan_factor;
            let kinds = [&costs.pipe, &costs.pipe, &costs.unix, &costs.tcp];
            for (model, costs) in self.models(view).iter_mut().zip(kinds) {
                if model.is_idle() {
                    continue;
                }
                model.reprice(costs, factor);
                model.learn();
            }
        }
    }

    fn quiet(&mut self, view: &View<'_>) -> Quiet {
        if view.hot <= FEW {
            return Quiet::Stay;
        }
        let latest = self.latest;
        let each = self.models(view)[latest].settled;
        Quiet::HandOffAfter(Duration::from_nanos((each * view.hot as f32) as u64))
    }
}

#[cfg(test)]
mod tests;
