//! The default rule: each descriptor earns its place, and the past says how much it must earn.
//!
//! In the poll array a descriptor costs a scan in each pass; in epoll it costs an event and the
//! writer's wake-up whenever it is active. A descriptor in epoll gathers credit: each event adds
//! what it would have saved in the array, each pass takes away a scan, down to zero. When the
//! credit reaches a threshold it becomes a candidate for the array. There its credit runs from
//! zero downwards, scans against events, and when patience is exhausted the clock hand sends it
//! back. Both thresholds are the [`governor`]'s, who learns them, for each kind of descriptor,
//! from the bursts and lulls of all of them.
//!
//! A move leaves the descriptor *parked* in epoll, which makes the way back cheap and each event a
//! little dearer. When parking has cost as much as forgetting would have, the descriptor is
//! *settled*: removed from epoll. That is at most twice what the better choice would have cost.
//!
//! The array itself has a price per pass, whatever is in it. It is opened only when the candidates
//! of one wait would earn that price together, and dissolved when it has run up a debt of what
//! dissolving and opening it again would cost. It has to earn a multiple of the price, because most
//! of what it earns falls to the writers: with two or three active descriptors the loop would pay
//! for what only they gain.
//!
//! Time is counted in ticks, eight to a pass; a pass that blocked with the array counts for as
//! many more as joining and leaving the wait queues costs more than a scan.

mod governor;

use std::time::Duration;

use crate::costs::Kind;
use crate::interest::Hint;
use crate::policy::{Account, Place, Policy, Quiet, Tally, Verdict, View};
use governor::{FADE_PASSES, Governor};

/// Ticks to a pass.
const TICKS: u32 = 8;

/// A loop that goes quiet keeps an array of up to this many descriptors: they delay a wake-up by
/// less than a tenth, and handing them over delays what comes next.
const FEW: usize = 4;

/// How much more evidence a descriptor needs that the caller expects to be idle.
const IDLE_THETA: f32 = 3.0;

/// The bit of an account's events that says that the stay is, or was, settled.
const SETTLED: u16 = 1 << 15;

/// A descriptor that comes back from a lull of less than this many times the price of moving it
/// had better not left: its next stay goes on where the last one ended.
const SAME_STAY: f32 = 2.0;

/// What a stay that lost and one that gained does to the evidence that the descriptor needs beyond
/// what others need, and the most it can need, in multiples of the price of two moves.
const LOSS: f32 = 1.25;
const GAIN: f32 = 0.75;
const MOST: f32 = 12.0;

/// A burst that comes to this many times the price of two moves is recorded without waiting for its
/// end, lest those that never end say nothing.
const STEADY: f32 = 8.0;

/// The reach of a burst that is recorded: nothing that is added to it makes it count again.
const RECORDED: f32 = f32::NEG_INFINITY;

/// Credit beyond this many times the price of two moves says nothing more.
const CAP: f32 = 32.0;

/// How many times its price the array must earn to be opened, and to stay: more than half of what
/// it earns falls to the writers, but the price is the loop's alone.
const OPENING: f32 = 2.6;
const STAYING: f32 = 2.0;

/// Credit per descriptor, with thresholds learned from all of them.
#[derive(Clone, Debug, Default)]
pub struct Governed {
    /// By kind; empty until the costs are known.
    governors: Option<[Governor; 4]>,
    ticks: u32,
    /// `View::blocks` when the last wait was over.
    blocks: u32,
    /// What the candidates of this wait would earn in the array, and how many they are.
    wanted: f32,
    wanting: u32,
    /// Events of this wait in epoll.
    cold_events: u32,
    /// What the array has earned in this wait, before its price.
    earned: f32,
    /// What the array has lost in the last waits; zero or below.
    balance: f32,
    dissolving: bool,
    /// The kind of the last event in the array.
    latest: usize,
}

impl Governed {
    /// The rule, knowing nothing of the past.
    pub fn new() -> Governed {
        Governed::default()
    }

    #[inline]
    fn governors(&mut self, view: &View<'_>) -> &mut [Governor; 4] {
        self.governors.get_or_insert_with(|| governors(view))
    }
}

#[cold]
fn governors(view: &View<'_>) -> [Governor; 4] {
    let make = |costs| Governor::new(costs, view.scan_factor);
    let costs = view.costs;
    [make(&costs.pipe), make(&costs.pipe), make(&costs.unix), make(&costs.tcp)]
}

/// What the scans since the account's last event cost, or would have cost.
#[inline]
fn scans(account: &Account, governor: &Governor, ticks: u32) -> f32 {
    governor.scan / TICKS as f32 * ticks.wrapping_sub(account.since) as f32
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

/// What a pass costs more because there is an array, its slots not counted. Where epoll has nothing
/// to watch, `poll` does not watch epoll.
fn array_price(view: &View<'_>, cold: usize, cold_active: bool) -> f32 {
    let costs = view.costs;
    match (cold, cold_active) {
        (0, _) => costs.poll_call - costs.cold_wait,
        (_, false) => costs.pass,
        (_, true) => costs.pass + costs.cold_wait,
    }
}

impl Policy for Governed {
    fn name(&self) -> &'static str {
        "governed"
    }

    fn start(&mut self, account: &mut Account, hint: Hint, view: &View<'_>) -> Place {
        self.governors(view);
        account.since = self.ticks;
        account.theta = 0.0;
        match hint {
            Hint::Busy => return Place::Hot,
            Hint::Idle => account.theta = IDLE_THETA,
            Hint::None => {}
        }
        Place::Cold
    }

    #[inline]
    fn cold_event(&mut self, account: &mut Account, view: &View<'_>) -> bool {
        let ticks = self.ticks;
        let governor = &mut self.governors(view)[account.kind as usize];
        let gain = governor.cold_event(in_a_row(account, ticks));
        let scans = scans(account, governor, ticks);
        let mut credit = account.credit - scans;
        if credit <= 0.0 {
            if account.reach > 0.0 {
                governor.burst(account.reach);
            }
            account.reach = 0.0;
            if account.trough < 0.0 {
                account.trough += credit;
            }
            credit = 0.0;
        }
        credit = (credit + gain).min(governor.parked * CAP);
        if credit + account.trough >= 0.0 && account.trough < 0.0 {
            governor.lull(-account.trough, settled(account));
            account.events = 0;
            account.trough = 0.0;
        }
        account.credit = credit;
        if account.reach >= 0.0 {
            account.reach = account.reach.max(credit);
            if credit > governor.parked * STEADY {
                governor.burst(credit);
                account.reach = RECORDED;
            }
        }
        account.since = ticks;
        let moves = credit >= governor.rise + account.theta * governor.parked;
        if moves {
            self.wanted += gain - governor.scan;
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
        self.governors.as_ref().is_some_and(|governors| governors[kind as usize].level)
    }

    fn moved_to_hot(&mut self, account: &mut Account, view: &View<'_>) {
        let ticks = self.ticks;
        let governor = &mut self.governors(view)[account.kind as usize];
        if account.trough < 0.0 {
            governor.lull(-account.trough, settled(account));
            if account.trough < -SAME_STAY * governor.settled {
                account.events = 0;
            }
            account.trough = 0.0;
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
        let governor = &mut self.governors(view)[account.kind as usize];
        let gain = governor.hot_event(in_a_row(account, ticks));
        let low = account.credit - scans(account, governor, ticks);
        let credit = low + gain;
        account.trough = account.trough.min(low);
        account.reach += credit.max(0.0);
        account.credit = credit.min(0.0);
        account.since = ticks;
        account.events += u16::from(events(account) < SETTLED - 1);
        if credit >= 0.0 {
            if account.trough < -governor.shallow() {
                governor.lull(-account.trough, settled(account));
            }
            account.trough = 0.0;
        }
        self.earned += gain;
    }

    fn review(&mut self, account: &mut Account, view: &View<'_>) -> Verdict {
        let (ticks, dissolving) = (self.ticks, self.dissolving);
        let governor = &mut self.governors(view)[account.kind as usize];
        let depth = scans(account, governor, ticks) - account.credit;
        let patience = if settled(account) { governor.fall_settled } else { governor.fall };
        if depth >= patience {
            account.trough = account.trough.min(-depth);
            Verdict::Demote
        } else if dissolving {
            account.trough = 0.0;
            Verdict::Demote
        } else if !settled(account) && account.events >= governor.settle && account.credit >= 0.0 {
            account.events |= SETTLED;
            Verdict::Settle
        } else if account.reach > governor.parked * STEADY {
            governor.burst(account.reach);
            account.reach = RECORDED;
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
        let governor = &mut self.governors(view)[account.kind as usize];
        if account.reach > 0.0 {
            governor.burst(account.reach);
        }
        governor.stay(events(account));
        if handed_off {
            account.trough = 0.0;
        }
        if events(account) < governor.worth {
            account.theta = (account.theta * LOSS + LOSS - 1.0).min(MOST);
        } else {
            account.theta = (account.theta * GAIN + GAIN - 1.0).max(0.0);
        }
        account.credit = 0.0;
        account.reach = 0.0;
        account.since = ticks;
    }

    fn pass(&mut self, tally: Tally, view: &View<'_>) {
        let latest = self.latest;
        let governor = &self.governors(view)[latest];
        let (scan, settled) = (governor.scan, governor.settled);
        self.ticks = self.ticks.wrapping_add(TICKS);
        if view.blocks != self.blocks {
            self.blocks = view.blocks;
            let kind = [&view.costs.pipe, &view.costs.pipe, &view.costs.unix, &view.costs.tcp];
            let more = kind[latest].block / scan;
            self.ticks = self.ticks.wrapping_add((more * TICKS as f32) as u32);
        }
        if tally.hot > 0 {
            let price = array_price(view, tally.cold, tally.cold_ready > 0);
            let cost = STAYING * price + tally.hot as f32 * scan;
            self.balance = (self.balance + self.earned - cost).min(0.0);
            let debt = settled * (tally.hot + 1) as f32;
            self.dissolving |= self.balance < -debt;
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
            for (governor, costs) in self.governors(view).iter_mut().zip(kinds) {
                if governor.is_idle() {
                    continue;
                }
                governor.reprice(costs, factor);
                governor.learn();
            }
        }
    }

    fn quiet(&mut self, view: &View<'_>) -> Quiet {
        if view.hot <= FEW {
            return Quiet::Stay;
        }
        let latest = self.latest;
        let each = self.governors(view)[latest].settled;
        Quiet::HandOffAfter(Duration::from_nanos((each * view.hot as f32) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::{Costs, Kind};

    /// A policy, one descriptor, and the passes around them.
    struct Stage {
        policy: Governed,
        account: Account,
        passes: u32,
        blocks: u32,
        hot: usize,
        cold: usize,
        /// Slots that the passes scan besides the one on stage, whose events nobody counts.
        scanned: usize,
    }

    const COSTS: Costs = Costs::ASSUMED;

    impl Stage {
        fn new(kind: Kind, hint: Hint) -> Stage {
            let mut stage = Stage {
                policy: Governed::new(),
                account: Account { kind, ..Account::default() },
                passes: 0,
                blocks: 0,
                hot: 0,
                cold: 100,
                scanned: 0,
            };
            let view = stage.view();
            stage.policy.start(&mut stage.account, hint, &view);
            stage
        }

        fn view(&self) -> View<'static> {
            View {
                costs: &COSTS,
                scan_factor: 1.0,
                passes: self.passes,
                blocks: self.blocks,
                hot: self.hot,
                cold: self.cold,
            }
        }

        fn pass(&mut self, times: u32) {
            for _ in 0..times {
                self.passes += 1;
                let tally = Tally { hot: self.scanned, cold: self.cold, ..Tally::default() };
                self.policy.pass(tally, &self.view());
            }
        }

        fn cold_event(&mut self) -> bool {
            let view = self.view();
            self.policy.cold_event(&mut self.account, &view)
        }

        fn promote(&mut self) {
            (self.hot, self.account.parked) = (100, true);
            let view = self.view();
            self.policy.moved_to_hot(&mut self.account, &view);
        }

        fn hot_event(&mut self) {
            let view = self.view();
            self.policy.hot_event(&mut self.account, &view);
        }

        fn review(&mut self) -> Verdict {
            let view = self.view();
            self.policy.review(&mut self.account, &view)
        }

        fn demote(&mut self) {
            (self.hot, self.account.parked) = (0, false);
            let view = self.view();
            self.policy.moved_to_cold(&mut self.account, false, &view);
        }
    }

    #[test]
    fn credit_is_events_less_scans_and_never_below_zero() {
        let mut stage = Stage::new(Kind::Pipe, Hint::None);
        // A pipe: an event saves 89 + 124 - 2, a pass costs 28, two moves cost 620.
        assert!(!stage.cold_event());
        assert_eq!(stage.account.credit, 211.0);
        stage.pass(1);
        assert!(!stage.cold_event());
        assert_eq!(stage.account.credit, 394.0);
        stage.pass(3);
        assert!(!stage.cold_event());
        assert_eq!(stage.account.credit, 521.0);
        stage.pass(2);
        assert!(stage.cold_event());
        assert_eq!((stage.account.credit, stage.account.reach), (676.0, 676.0));
        stage.pass(100);
        assert!(!stage.cold_event());
        assert_eq!((stage.account.credit, stage.account.reach), (211.0, 211.0));
    }

    #[test]
    fn each_kind_has_its_own_prices() {
        let candidate_after = |kind| {
            let mut stage = Stage::new(kind, Hint::None);
            let mut events = 1;
            while !stage.cold_event() {
                stage.pass(1);
                events += 1;
            }
            events
        };
        assert_eq!(candidate_after(Kind::Pipe), 4);
        assert_eq!(candidate_after(Kind::Unix), 3);
        assert_eq!(candidate_after(Kind::Tcp), 3);
    }

    #[test]
    fn hints_choose_the_place_or_ask_for_more_evidence() {
        let mut stage = Stage::new(Kind::Pipe, Hint::None);
        let view = stage.view();
        let mut account = Account::default();
        assert_eq!(stage.policy.start(&mut account, Hint::Busy, &view), Place::Hot);
        assert_eq!(stage.policy.start(&mut account, Hint::None, &view), Place::Cold);
        assert_eq!(stage.policy.start(&mut account, Hint::Idle, &view), Place::Cold);
        stage.account = Account { kind: Kind::Pipe, ..account };
        let mut events = 1;
        while !stage.cold_event() {
            stage.pass(1);
            events += 1;
        }
        // 28 + 183 n >= 4 * 620
        assert_eq!(events, 14);
    }

    #[test]
    fn patience_ends_when_scans_have_cost_half_of_the_moves() {
        let mut stage = Stage::new(Kind::Pipe, Hint::None);
        stage.cold_event();
        stage.promote();
        stage.pass(1);
        stage.hot_event();
        assert_eq!((stage.account.credit, stage.account.events), (0.0, 1));
        // 11 * 28 = 308 < 310 <= 12 * 28
        stage.pass(11);
        assert_eq!(stage.review(), Verdict::Stay);
        stage.pass(1);
        assert_eq!(stage.review(), Verdict::Demote);
        assert_eq!(stage.account.trough, -336.0);
        // An event in between earns patience back, as much as it saves.
        stage.hot_event();
        assert_eq!(stage.account.credit, -125.0);
        stage.pass(6);
        assert_eq!(stage.review(), Verdict::Stay);
        stage.pass(1);
        assert_eq!(stage.review(), Verdict::Demote);
    }

    #[test]
    fn a_stay_is_settled_when_parking_has_cost_as_much() {
        let mut stage = Stage::new(Kind::Pipe, Hint::None);
        stage.cold_event();
        stage.promote();
        // (730 + 840 - 310) / 65 = 19.4 events.
        for _ in 0..19 {
            stage.pass(1);
            stage.hot_event();
            assert_eq!(stage.review(), Verdict::Stay);
        }
        stage.pass(1);
        stage.hot_event();
        assert_eq!(stage.review(), Verdict::Settle);
        stage.account.parked = false;
        assert_eq!(stage.review(), Verdict::Stay);
        // The way back is dearer now: half of 840 + 310.
        stage.pass(20);
        assert_eq!(stage.review(), Verdict::Stay);
        stage.pass(1);
        assert_eq!(stage.review(), Verdict::Demote);
    }

    #[test]
    fn a_burst_is_recorded_once_at_its_end_or_when_it_is_long() {
        let score = |stage: &Stage| stage.policy.governors.as_ref().unwrap()[1].rise_scores()[0];
        let mut stage = Stage::new(Kind::Pipe, Hint::None);
        // 28 + 183 n > 8 * 620 at n = 27; in epoll.
        for _ in 0..26 {
            stage.cold_event();
            stage.pass(1);
        }
        assert_eq!((score(&stage), stage.account.reach), (0.0, 28.0 + 26.0 * 183.0));
        stage.cold_event();
        let once = score(&stage);
        assert!(once != 0.0);
        assert_eq!(stage.account.reach, RECORDED);
        stage.pass(1);
        stage.cold_event();
        stage.promote();
        stage.hot_event();
        stage.demote();
        assert_eq!((score(&stage), stage.account.reach), (once, 0.0));
        // The same in the array, where what came before counts.
        stage.cold_event();
        stage.promote();
        for _ in 0..26 {
            stage.pass(1);
            stage.hot_event();
        }
        assert_eq!(stage.account.reach, 211.0 + 26.0 * 183.0);
        stage.account.events = SETTLED;
        assert_eq!((stage.review(), stage.account.reach), (Verdict::Stay, RECORDED));
        assert_eq!(score(&stage), 2.0 * once);
        stage.demote();
        // The end of one in epoll leaves nothing behind.
        stage.account.reach = RECORDED;
        stage.pass(500);
        stage.cold_event();
        assert_eq!(stage.account.reach, 211.0);
    }

    #[test]
    fn events_in_a_row_are_those_of_consecutive_passes() {
        let mut account = Account { since: 100, ..Account::default() };
        assert!(in_a_row(&account, 108) && in_a_row(&account, 100) && !in_a_row(&account, 109));
        account.since = u32::MAX;
        assert!(in_a_row(&account, 7) && !in_a_row(&account, 8));
    }

    #[test]
    fn a_lull_is_not_the_time_to_settle() {
        let mut stage = Stage::new(Kind::Pipe, Hint::None);
        stage.promote();
        stage.account.events = 30;
        stage.account.credit = -1.0;
        assert_eq!(stage.review(), Verdict::Stay);
        stage.account.credit = 0.0;
        assert_eq!(stage.review(), Verdict::Settle);
    }

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
        // Others are active in epoll: 2.6 * (225 + 149).
        assert_eq!((admit(5, 100, 1), admit(6, 100, 1)), (0, 6));
        // Nothing would be left in epoll: 2.6 * (234 - 150).
        assert_eq!((admit(1, 1, 0), admit(2, 2, 0)), (0, 2));
        let mut stage = Stage::new(Kind::Pipe, Hint::None);
        stage.hot = 1;
        let view = stage.view();
        assert_eq!(stage.policy.admit(7, &view), 7);
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
    fn a_pass_that_blocked_counts_for_more() {
        let mut stage = Stage::new(Kind::Pipe, Hint::None);
        stage.promote();
        stage.hot_event();
        stage.blocks += 1;
        stage.pass(1);
        // 8 ticks, and 90 / 28 of 8 more.
        assert_eq!(stage.policy.ticks, 8 + 25);
        stage.pass(1);
        assert_eq!(stage.policy.ticks, 8 + 25 + 8);
    }

    #[test]
    fn stays_that_lose_make_a_descriptor_wait_longer_and_gains_undo_it() {
        let mut stage = Stage::new(Kind::Pipe, Hint::None);
        for expected in [0.25, 0.5625] {
            stage.promote();
            stage.demote();
            assert_eq!(stage.account.theta, expected);
        }
        stage.promote();
        // (620 + 310) / (211 - 28 - 65) = 7.9
        stage.account.events = 8;
        stage.demote();
        assert_eq!(stage.account.theta, 0.75 * 1.5625 - 1.0);
        for _ in 0..5 {
            stage.promote();
            stage.account.events = 8;
            stage.demote();
        }
        assert_eq!(stage.account.theta, 0.0);
        for _ in 0..100 {
            stage.promote();
            stage.account.events = 0;
            stage.demote();
        }
        assert_eq!(stage.account.theta, MOST);
    }

    #[test]
    fn short_bursts_teach_to_wait_and_long_ones_to_move_at_once() {
        let mut stage = Stage::new(Kind::Pipe, Hint::None);
        for _ in 0..200 {
            for _ in 0..4 {
                stage.cold_event();
                stage.pass(1);
            }
            stage.pass(40);
        }
        let after_short = stage.policy.governors.as_ref().unwrap()[1].rise;
        assert!(after_short >= 2.0 * 620.0, "{after_short}");
        for _ in 0..200 {
            for _ in 0..40 {
                stage.cold_event();
                stage.pass(1);
            }
            stage.pass(400);
        }
        assert_eq!(stage.policy.governors.as_ref().unwrap()[1].rise, 0.0);
    }

    #[test]
    fn a_lull_goes_on_in_epoll_until_it_is_made_up_for() {
        let mut stage = Stage::new(Kind::Pipe, Hint::None);
        stage.cold_event();
        stage.promote();
        stage.pass(12);
        assert_eq!(stage.review(), Verdict::Demote);
        stage.demote();
        assert_eq!(stage.account.trough, -336.0);
        stage.pass(10);
        stage.cold_event();
        assert_eq!(stage.account.trough, -616.0);
        for _ in 0..3 {
            stage.pass(1);
            stage.cold_event();
        }
        // 211 + 3 * 183 = 760 > 616
        assert_eq!((stage.account.credit, stage.account.trough), (760.0, 0.0));
    }

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
    fn dearer_scans_are_taken_over_and_nothing_overflows() {
        let mut stage = Stage::new(Kind::Tcp, Hint::None);
        stage.account.events = SETTLED - 1;
        stage.account.since = u32::MAX;
        stage.promote();
        stage.account.events = SETTLED - 2;
        stage.hot_event();
        stage.hot_event();
        assert_eq!(stage.account.events, SETTLED - 1);
        stage.passes = FADE_PASSES - 1;
        let view = View { scan_factor: 2.0, ..stage.view() };
        let view = View { passes: FADE_PASSES, ..view };
        stage.policy.pass(Tally::default(), &view);
        assert_eq!(stage.policy.governors.as_ref().unwrap()[3].scan, 148.0);
    }

    #[test]
    fn an_account_is_small() {
        assert_eq!(size_of::<Account>(), 24);
    }
}
