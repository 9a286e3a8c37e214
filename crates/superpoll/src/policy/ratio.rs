//! One active/total ratio per set, with hysteresis: Zed Shaw's *superpoll* as he described it.
//!
//! Each set measures its own ratio over the last passes; there is no global one. When the ratio of
//! the poll array falls below `hot_atr`, it is compacted: descriptors that were not ready in the
//! last pass go to epoll. When the ratio of the epoll set has been above `cold_atr` for long
//! enough, its active descriptors go to the array. The time for which it must have been is the knob
//! that makes it hard to get out of epoll. After either the window of the set that was left starts
//! afresh, so that a decision is never taken twice on the same evidence. When things go quiet
//! everything is handed to epoll.
//!
//! A ratio of a whole set says nothing about any member: fifty busy descriptors among ten thousand
//! idle ones never lift epoll's ratio above any threshold worth having. That is why this is not the
//! default; it is here to be tuned and compared.

use std::fmt;
use std::time::Duration;

use crate::interest::Hint;
use crate::policy::{Account, PassCounts, Policy, Quiet, Set, Verdict, View};

/// Passes that a ratio is taken over, unless set.
const WINDOW: usize = 16;

/// Passes for which epoll's ratio must have been high, unless set.
const HOLD: u32 = 32;

/// The break-even that *superpoll* measured.
const ATR: f64 = 0.6;

/// Moves descriptors when the active/total ratio of their set crosses a threshold.
///
/// ```
/// use superpoll::backend::policy::RatioPolicy;
///
/// let policy = RatioPolicy::new().hot_atr(0.3)?.cold_atr(0.8)?.hold(100);
/// assert!(RatioPolicy::new().hot_atr(60.0).is_err());
/// # Ok::<(), superpoll::backend::policy::RatioError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RatioPolicy {
    hot_atr: f64,
    cold_atr: f64,
    hold: u32,
    hot: RecentPasses,
    cold: RecentPasses,
    /// Passes since epoll's ratio rose above the threshold.
    high: u32,
    /// This pass compacts the array.
    compacting: bool,
}

/// A threshold that is no ratio.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RatioError {
    name: &'static str,
    value: f64,
}

impl fmt::Display for RatioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RatioError { name, value } = self;
        write!(f, "setting {name} to {value}: a ratio is a number from 0 to 1, such as 0.6")
    }
}

impl std::error::Error for RatioError {}

/// Sums over the last passes.
#[derive(Clone, Debug)]
struct RecentPasses {
    passes: Vec<(u32, u32)>,
    next: usize,
    length: usize,
    total: u64,
    active: u64,
}

impl RecentPasses {
    fn new(length: usize) -> RecentPasses {
        let length = length.max(1);
        RecentPasses { passes: Vec::with_capacity(length), next: 0, length, total: 0, active: 0 }
    }

    fn push(&mut self, total: usize, active: usize) {
        let pass = (total as u32, active as u32);
        if self.passes.len() < self.length {
            self.passes.push(pass);
        } else {
            let (total, active) = std::mem::replace(&mut self.passes[self.next], pass);
            self.total -= u64::from(total);
            self.active -= u64::from(active);
            self.next = (self.next + 1) % self.length;
        }
        self.total += u64::from(pass.0);
        self.active += u64::from(pass.1);
    }

    fn clear(&mut self) {
        self.passes.clear();
        (self.next, self.total, self.active) = (0, 0, 0);
    }

    /// The ratio; `None` until the window is full, and for an empty set.
    fn atr(&self) -> Option<f64> {
        let known = self.passes.len() == self.length && self.total > 0;
        known.then(|| self.active as f64 / self.total as f64)
    }
}

fn ratio(name: &'static str, value: f64) -> Result<f64, RatioError> {
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(RatioError { name, value }) }
}

impl Default for RatioPolicy {
    fn default() -> RatioPolicy {
        RatioPolicy {
            hot_atr: ATR,
            cold_atr: ATR,
            hold: HOLD,
            hot: RecentPasses::new(WINDOW),
            cold: RecentPasses::new(WINDOW),
            high: 0,
            compacting: false,
        }
    }
}

impl RatioPolicy {
    /// Both thresholds at 0.6, over 16 passes, and 32 passes to get out of epoll.
    pub fn new() -> RatioPolicy {
        RatioPolicy::default()
    }

    /// Below which ratio of the poll array its idle descriptors go to epoll.
    ///
    /// # Errors
    ///
    /// If it is not from 0 to 1.
    pub fn hot_atr(self, value: f64) -> Result<RatioPolicy, RatioError> {
        Ok(RatioPolicy { hot_atr: ratio("hot_atr", value)?, ..self })
    }

    /// Above which ratio of the epoll set its active descriptors go to the poll array.
    ///
    /// # Errors
    ///
    /// If it is not from 0 to 1.
    pub fn cold_atr(self, value: f64) -> Result<RatioPolicy, RatioError> {
        Ok(RatioPolicy { cold_atr: ratio("cold_atr", value)?, ..self })
    }

    /// How many passes a ratio is taken over; at least one.
    #[must_use]
    pub fn window(self, passes: usize) -> RatioPolicy {
        RatioPolicy { hot: RecentPasses::new(passes), cold: RecentPasses::new(passes), ..self }
    }

    /// For how many passes in a row epoll's ratio must have been above its threshold before
    /// anything gets out.
    #[must_use]
    pub fn hold(self, passes: u32) -> RatioPolicy {
        RatioPolicy { hold: passes, ..self }
    }
}

impl Policy for RatioPolicy {
    fn name(&self) -> &'static str {
        "threshold"
    }

    fn start(&mut self, account: &mut Account, hint: Hint, view: &View<'_>) -> Set {
        account.since = view.passes;
        if hint == Hint::Busy { Set::Hot } else { Set::Cold }
    }

    fn cold_event(&mut self, _account: &mut Account, _view: &View<'_>) -> bool {
        self.high > self.hold
    }

    fn moved_to_hot(&mut self, account: &mut Account, view: &View<'_>) {
        account.since = view.passes;
    }

    fn hot_event(&mut self, account: &mut Account, view: &View<'_>) {
        account.since = view.passes;
    }

    fn review(&mut self, account: &mut Account, view: &View<'_>) -> Verdict {
        if self.compacting && account.since != view.passes {
            Verdict::Demote
        } else if account.parked {
            Verdict::Settle
        } else {
            Verdict::Stay
        }
    }

    fn hand(&self, view: &View<'_>) -> usize {
        if self.compacting { view.hot } else { view.hot.div_ceil(16) }
    }

    fn moved_to_cold(&mut self, _account: &mut Account, _handed_off: bool, _view: &View<'_>) {}

    fn pass(&mut self, counts: PassCounts, _view: &View<'_>) {
        self.hot.push(counts.hot, counts.hot_ready);
        self.cold.push(counts.cold, counts.cold_ready);
        if self.high > self.hold && counts.cold_ready > 0 {
            // The active descriptors have just been moved; the next ones need evidence of their
            // own.
            self.high = 0;
            self.cold.clear();
        }
        self.high = match self.cold.atr() {
            Some(atr) if atr > self.cold_atr => self.high.saturating_add(1),
            _ => 0,
        };
        self.compacting = self.hot.atr().is_some_and(|atr| atr < self.hot_atr);
        if self.compacting {
            self.hot.clear();
        }
    }

    fn quiet(&mut self, view: &View<'_>) -> Quiet {
        let handing = view.costs.pipe.add * view.hot as f32;
        Quiet::HandOffAfter(Duration::from_nanos(handing as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Costs;

    fn view(passes: u32, hot: usize) -> View<'static> {
        let costs = &Costs::ASSUMED;
        View { costs, scan_factor: 1.0, passes, blocks: 0, hot, cold: 10 }
    }

    fn counts(hot: usize, hot_ready: usize, cold: usize, cold_ready: usize) -> PassCounts {
        PassCounts { hot, hot_ready, cold, cold_ready }
    }

    #[test]
    fn a_ratio_outside_its_range_is_refused() {
        for value in [-0.1, 1.1, 60.0, f64::NAN, f64::INFINITY] {
            assert!(RatioPolicy::new().hot_atr(value).is_err(), "{value}");
            assert!(RatioPolicy::new().cold_atr(value).is_err(), "{value}");
        }
        for value in [0.0, 0.6, 1.0] {
            assert!(RatioPolicy::new().hot_atr(value).unwrap().cold_atr(value).is_ok());
        }
        let error = RatioPolicy::new().cold_atr(60.0).unwrap_err();
        assert!(error.to_string().starts_with("setting cold_atr to 60:"), "{error}");
    }

    #[test]
    fn a_window_slides() {
        let mut window = RecentPasses::new(2);
        window.push(10, 10);
        assert_eq!(window.atr(), None);
        window.push(10, 5);
        assert_eq!(window.atr(), Some(0.75));
        window.push(20, 0);
        assert_eq!(window.atr(), Some(5.0 / 30.0));
        window.push(0, 0);
        window.push(0, 0);
        assert_eq!(window.atr(), None);
        window.clear();
        window.push(1, 1);
        assert_eq!(window.atr(), None);
        window.push(1, 0);
        assert_eq!(window.atr(), Some(0.5));
    }

    #[test]
    fn it_is_hard_to_get_out_of_epoll() {
        let mut policy = RatioPolicy::new().window(2).hold(3);
        let mut account = Account::default();
        for pass in 0..5 {
            assert!(!policy.cold_event(&mut account, &view(pass, 0)), "{pass}");
            policy.pass(counts(0, 0, 10, 7), &view(pass, 0));
        }
        // Full after two passes, high for four.
        assert!(policy.cold_event(&mut account, &view(5, 0)));
        policy.pass(counts(0, 0, 10, 7), &view(5, 0));
        assert!(!policy.cold_event(&mut account, &view(6, 0)));
    }

    #[test]
    fn exactly_the_threshold_moves_nothing() {
        let mut policy = RatioPolicy::new().window(1).hold(0);
        let mut account = Account::default();
        policy.pass(counts(10, 6, 10, 6), &view(1, 10));
        assert!(!policy.cold_event(&mut account, &view(2, 10)));
        assert_eq!(policy.review(&mut account, &view(2, 10)), Verdict::Stay);
        policy.pass(counts(10, 5, 10, 7), &view(2, 10));
        assert!(policy.cold_event(&mut account, &view(3, 10)));
        assert_eq!(policy.review(&mut account, &view(3, 10)), Verdict::Demote);
    }

    #[test]
    fn compaction_demotes_descriptors_that_were_not_ready_in_the_last_pass() {
        let mut policy = RatioPolicy::new().window(2);
        let (mut busy, mut idle) = (Account::default(), Account::default());
        policy.moved_to_hot(&mut busy, &view(0, 2));
        policy.moved_to_hot(&mut idle, &view(0, 2));
        for pass in 1..=2 {
            assert_eq!(policy.hand(&view(pass, 40)), 3);
            policy.hot_event(&mut busy, &view(pass, 2));
            policy.pass(counts(2, 1, 10, 0), &view(pass, 2));
        }
        assert_eq!(policy.hand(&view(2, 40)), 40);
        assert_eq!(policy.review(&mut busy, &view(2, 2)), Verdict::Stay);
        assert_eq!(policy.review(&mut idle, &view(2, 2)), Verdict::Demote);
        // The window starts afresh.
        policy.pass(counts(1, 0, 10, 0), &view(3, 1));
        assert_eq!(policy.review(&mut busy, &view(3, 1)), Verdict::Stay);
    }

    #[test]
    fn a_promoted_descriptor_is_settled_and_hints_are_heeded() {
        let mut policy = RatioPolicy::new();
        let mut account = Account { parked: true, ..Account::default() };
        assert_eq!(policy.review(&mut account, &view(0, 1)), Verdict::Settle);
        assert_eq!(policy.start(&mut account, Hint::Busy, &view(0, 0)), Set::Hot);
        assert_eq!(policy.start(&mut account, Hint::Idle, &view(0, 0)), Set::Cold);
        assert_eq!(policy.start(&mut account, Hint::None, &view(0, 0)), Set::Cold);
        let quiet = policy.quiet(&view(0, 10));
        assert_eq!(quiet, Quiet::HandOffAfter(Duration::from_nanos(8_400)));
    }

    #[test]
    fn a_window_is_the_sum_of_its_passes() {
        let passes =
            [(10, 1), (20, 7), (30, 3), (5, 5), (0, 0), (40, 39), (7, 2), (100, 1), (3, 3)];
        for length in 1..=4 {
            let mut window = RecentPasses::new(length);
            for end in 1..=passes.len() {
                window.push(passes[end - 1].0, passes[end - 1].1);
                let seen = &passes[end.saturating_sub(length)..end];
                let total: usize = seen.iter().map(|pass| pass.0).sum();
                let active: usize = seen.iter().map(|pass| pass.1).sum();
                assert_eq!((window.total, window.active), (total as u64, active as u64));
                let full = end >= length && total > 0;
                assert_eq!(window.atr(), full.then(|| active as f64 / total as f64));
            }
            window.clear();
            assert_eq!((window.total, window.active, window.atr()), (0, 0, None));
            (0..length).for_each(|_| window.push(8, 2));
            assert_eq!(window.atr(), Some(0.25));
            window.push(16, 16);
            assert_eq!(
                (window.total, window.active),
                (8 * length as u64 + 8, 2 * length as u64 + 14)
            );
        }
        assert_eq!(RecentPasses::new(0).length, 1);
    }

    #[test]
    fn each_knob_sets_itself_and_nothing_else() {
        let knobs = |policy: &RatioPolicy| {
            (policy.hot_atr, policy.cold_atr, policy.hold, policy.hot.length, policy.cold.length)
        };
        let policy = RatioPolicy::new();
        assert_eq!(knobs(&policy), (0.6, 0.6, 32, 16, 16));
        let policy = policy.hot_atr(0.25).unwrap();
        assert_eq!(knobs(&policy), (0.25, 0.6, 32, 16, 16));
        let policy = policy.cold_atr(0.75).unwrap();
        assert_eq!(knobs(&policy), (0.25, 0.75, 32, 16, 16));
        let policy = policy.hold(7);
        assert_eq!(knobs(&policy), (0.25, 0.75, 7, 16, 16));
        let policy = policy.window(3);
        assert_eq!(knobs(&policy), (0.25, 0.75, 7, 3, 3));
        assert_eq!(policy.name(), "threshold");
    }

    #[test]
    fn active_descriptors_are_promoted_after_the_hold_and_later_ones_need_new_evidence() {
        // How long the ratio has been high, and whether a candidate may go; with a hold of 3.
        let mut account = Account::default();
        for (high, out) in [(0, false), (2, false), (3, false), (4, true), (5, true)] {
            let mut policy = RatioPolicy { high, ..RatioPolicy::new().window(1).hold(3) };
            assert_eq!(policy.cold_event(&mut account, &view(1, 0)), out, "{high}");
            // Nothing was active, so nothing went.
            policy.pass(counts(0, 0, 10, 0), &view(1, 0));
            assert_eq!((policy.high, policy.cold.passes.len()), (0, 1), "{high}");
            // Something was, so the window starts afresh if it did go.
            let mut policy = RatioPolicy { high, ..RatioPolicy::new().window(1).hold(3) };
            policy.pass(counts(0, 0, 10, 9), &view(1, 0));
            let (after, passes) = if out { (0, 0) } else { (high + 1, 1) };
            assert_eq!((policy.high, policy.cold.passes.len()), (after, passes), "{high}");
        }
        // High, and nothing active in this pass: it stays high over a longer window.
        let mut policy = RatioPolicy { high: 4, ..RatioPolicy::new().window(2).hold(3) };
        policy.cold.push(10, 10);
        policy.pass(counts(0, 0, 1, 0), &view(1, 0));
        assert_eq!((policy.high, policy.cold.passes.len()), (5, 2));
    }

    #[test]
    fn accounts_remember_the_last_pass_that_found_them_ready() {
        let mut policy = RatioPolicy::new();
        let mut account = Account::default();
        policy.start(&mut account, Hint::None, &view(3, 0));
        assert_eq!(account.since, 3);
        policy.moved_to_hot(&mut account, &view(4, 1));
        assert_eq!(account.since, 4);
        policy.hot_event(&mut account, &view(5, 1));
        assert_eq!(account.since, 5);
        // Whether this pass compacts, the pass, whether it is parked, and the verdict.
        for (compacting, pass, parked, verdict) in [
            (false, 5, false, Verdict::Stay),
            (false, 6, false, Verdict::Stay),
            (false, 6, true, Verdict::Settle),
            (true, 5, false, Verdict::Stay),
            (true, 5, true, Verdict::Settle),
            (true, 6, false, Verdict::Demote),
            (true, 6, true, Verdict::Demote),
        ] {
            (policy.compacting, account.parked) = (compacting, parked);
            assert_eq!(policy.review(&mut account, &view(pass, 40)), verdict);
            assert_eq!(policy.hand(&view(pass, 40)), if compacting { 40 } else { 3 });
        }
    }

    #[test]
    fn the_array_is_compacted_below_its_threshold() {
        for (ready, compacts) in [(5, true), (6, false), (7, false)] {
            let mut policy = RatioPolicy::new().window(1);
            policy.pass(counts(10, ready, 0, 0), &view(1, 10));
            assert_eq!(policy.compacting, compacts, "{ready}");
            assert_eq!(policy.hot.passes.len(), usize::from(!compacts));
        }
    }
}
