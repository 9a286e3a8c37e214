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
//! The article wants "the poll-ATR fairly low so that they get sent over more often" where most
//! connections are idle. With the rule above, which is the article's own, it is the other way
//! round: the lower that threshold, the longer idle descriptors stay in the array. We keep the
//! rule, so a server with idle connections has high thresholds, and one that sends without a pause
//! low ones.
//!
//! A ratio of a whole set says nothing about any member: fifty busy descriptors among ten thousand
//! idle ones never lift epoll's ratio above any threshold worth having. That is why this is not the
//! default; it is here to be tuned and compared.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::interest::Hint;
use crate::policy::{Account, PassCounts, Policy, Quiet, Set, Verdict, View};

/// Passes that a ratio is taken over, unless set.
const WINDOW: usize = 16;

/// Passes for which epoll's ratio must have been high, unless set.
const HOLD: u32 = 32;

/// The break-even that *superpoll* measured.
const ATR: f64 = 0.6;

/// The thresholds of a [`RatioPolicy`].
///
/// ```
/// use superpoll::backend::policy::{RatioPolicy, Thresholds};
///
/// let thresholds = Thresholds::new(0.3, 0.8, 100)?;
/// let poller = superpoll::Poller::builder().policy(RatioPolicy::new(thresholds)).build()?;
/// assert!(Thresholds::new(60.0, 0.8, 100).is_err());
/// # drop(poller);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Thresholds {
    hot_atr: f64,
    cold_atr: f64,
    hold: u32,
}

// Neither ratio is NaN.
impl Eq for Thresholds {}

/// Thresholds that are none.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum ThresholdError {
    /// A threshold is not from 0 to 1.
    NoRatio {
        /// Which of them.
        name: &'static str,
        /// Its value.
        value: f64,
    },
    /// `hot_atr` is above `cold_atr`.
    Inverted {
        /// The value of `hot_atr`.
        hot_atr: f64,
        /// The value of `cold_atr`.
        cold_atr: f64,
    },
}

impl fmt::Display for ThresholdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThresholdError::NoRatio { name, value } => {
                write!(f, "setting {name} to {value}: a ratio is a number from 0 to 1, such as 0.6")
            }
            ThresholdError::Inverted { hot_atr, cold_atr } => write!(
                f,
                "setting hot_atr to {hot_atr} and cold_atr to {cold_atr}: descriptors that leave \
                 epoll would come back at once, so hot_atr is at most cold_atr"
            ),
        }
    }
}

impl std::error::Error for ThresholdError {}

impl Thresholds {
    /// For connections that are idle most of the time: they leave the array as soon as a twentieth
    /// of it is idle, and nothing leaves epoll unless nearly all of it is active for long.
    pub const IDLE_SERVER: Thresholds = Thresholds { hot_atr: 0.95, cold_atr: 0.95, hold: 1024 };

    /// For connections that are busy most of the time: they go to the array soon, and stay there
    /// unless hardly any is active.
    pub const MEDIA_SERVER: Thresholds = Thresholds { hot_atr: 0.1, cold_atr: 0.3, hold: 4 };

    /// Sets all three: the active/total ratio of the poll array below which its idle descriptors go
    /// to epoll; the ratio of the epoll set above which its active descriptors go to the array; and
    /// for how many passes in a row it must have been above before any does.
    ///
    /// # Errors
    ///
    /// If one is not from 0 to 1, or if `hot_atr` is above `cold_atr`.
    pub fn new(hot_atr: f64, cold_atr: f64, hold: u32) -> Result<Thresholds, ThresholdError> {
        for (name, value) in [("hot_atr", hot_atr), ("cold_atr", cold_atr)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(ThresholdError::NoRatio { name, value });
            }
        }
        if hot_atr > cold_atr {
            return Err(ThresholdError::Inverted { hot_atr, cold_atr });
        }
        Ok(Thresholds { hot_atr, cold_atr, hold })
    }
}

impl Default for Thresholds {
    /// Both ratios 0.6, held for 32 passes.
    fn default() -> Thresholds {
        Thresholds { hot_atr: ATR, cold_atr: ATR, hold: HOLD }
    }
}

impl fmt::Display for Thresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Thresholds { hot_atr, cold_atr, hold } = self;
        write!(f, "hot_atr={hot_atr},cold_atr={cold_atr},hold={hold}")
    }
}

impl FromStr for Thresholds {
    type Err = String;

    /// Reads them as they are shown: `hot_atr=0.6,cold_atr=0.6,hold=32`. One that is left out has
    /// its default.
    fn from_str(text: &str) -> Result<Thresholds, String> {
        let Thresholds { mut hot_atr, mut cold_atr, mut hold } = Thresholds::default();
        let mut given = Vec::new();
        for part in text.split(',') {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let no_number = || format!("{name}={value} is no number");
            let name = name.trim();
            if given.contains(&name) {
                return Err(format!("{name} is given twice"));
            }
            given.push(name);
            match name {
                "hot_atr" => hot_atr = value.trim().parse().map_err(|_| no_number())?,
                "cold_atr" => cold_atr = value.trim().parse().map_err(|_| no_number())?,
                "hold" => hold = value.trim().parse().map_err(|_| no_number())?,
                _ => return Err(format!("{part:?} is none of hot_atr, cold_atr and hold")),
            }
        }
        Thresholds::new(hot_atr, cold_atr, hold).map_err(|error| error.to_string())
    }
}

/// Moves descriptors when the active/total ratio of their set crosses a threshold.
#[derive(Clone, Debug)]
pub struct RatioPolicy {
    thresholds: Thresholds,
    hot: RecentPasses,
    cold: RecentPasses,
    /// Passes since epoll's ratio rose above the threshold.
    high: u32,
    /// This pass compacts the array.
    compacting: bool,
}

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

impl Default for RatioPolicy {
    fn default() -> RatioPolicy {
        RatioPolicy::new(Thresholds::default())
    }
}

impl RatioPolicy {
    /// Moves descriptors at these thresholds, with ratios over 16 passes.
    pub fn new(thresholds: Thresholds) -> RatioPolicy {
        RatioPolicy {
            thresholds,
            hot: RecentPasses::new(WINDOW),
            cold: RecentPasses::new(WINDOW),
            high: 0,
            compacting: false,
        }
    }

    /// How many passes a ratio is taken over; at least one.
    #[must_use]
    pub fn window(self, passes: usize) -> RatioPolicy {
        RatioPolicy { hot: RecentPasses::new(passes), cold: RecentPasses::new(passes), ..self }
    }
}

impl Policy for RatioPolicy {
    fn name(&self) -> &'static str {
        match self.thresholds {
            Thresholds::IDLE_SERVER => "idle-server",
            Thresholds::MEDIA_SERVER => "media-server",
            _ => "threshold",
        }
    }

    fn start(&mut self, account: &mut Account, hint: Hint, view: &View<'_>) -> Set {
        account.since = view.passes;
        if hint == Hint::Busy { Set::Hot } else { Set::Cold }
    }

    fn cold_event(&mut self, _account: &mut Account, _view: &View<'_>) -> bool {
        self.high > self.thresholds.hold
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
        if self.high > self.thresholds.hold && counts.cold_ready > 0 {
            // The active descriptors have just been moved; the next ones need evidence of their
            // own.
            self.high = 0;
            self.cold.clear();
        }
        self.high = match self.cold.atr() {
            Some(atr) if atr > self.thresholds.cold_atr => self.high.saturating_add(1),
            _ => 0,
        };
        self.compacting = self.hot.atr().is_some_and(|atr| atr < self.thresholds.hot_atr);
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

    fn held(hold: u32) -> RatioPolicy {
        RatioPolicy::new(Thresholds::new(ATR, ATR, hold).unwrap())
    }

    #[test]
    fn thresholds_out_of_range_or_inverted_are_refused() {
        for value in [-0.1, 1.1, 60.0, f64::NAN, f64::INFINITY] {
            assert!(Thresholds::new(value, 1.0, 0).is_err(), "{value}");
            assert!(Thresholds::new(0.0, value, 0).is_err(), "{value}");
        }
        for (hot, cold) in [(0.0, 0.0), (0.0, 1.0), (0.6, 0.6), (1.0, 1.0)] {
            assert!(Thresholds::new(hot, cold, u32::MAX).is_ok(), "{hot} {cold}");
        }
        let error = Thresholds::new(0.6, 60.0, 1).unwrap_err();
        assert!(error.to_string().starts_with("setting cold_atr to 60:"), "{error}");
        let error = Thresholds::new(0.7, 0.6, 1).unwrap_err();
        assert!(error.to_string().starts_with("setting hot_atr to 0.7 and cold_atr to 0.6:"));
    }

    #[test]
    fn thresholds_are_read_as_they_are_shown() {
        let both = [Thresholds::default(), Thresholds::IDLE_SERVER, Thresholds::MEDIA_SERVER];
        for thresholds in both {
            assert_eq!(thresholds.to_string().parse(), Ok(thresholds));
            let Thresholds { hot_atr, cold_atr, hold } = thresholds;
            assert_eq!(Thresholds::new(hot_atr, cold_atr, hold), Ok(thresholds));
        }
        assert_eq!(" hold = 7".parse(), Ok(Thresholds { hold: 7, ..Thresholds::default() }));
        for (text, expected) in [
            ("", "\"\" is none of"),
            ("warm_atr=0.5", "is none of hot_atr, cold_atr and hold"),
            ("hot_atr=much", "hot_atr=much is no number"),
            ("hot_atr=0.5,hold=-1", "hold=-1 is no number"),
            ("hot_atr=NaN", "a number from 0 to 1"),
            ("hot_atr=0.7", "hot_atr is at most cold_atr"),
        ] {
            let error = text.parse::<Thresholds>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
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
        let mut policy = held(3).window(2);
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
        let mut policy = held(0).window(1);
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
        let mut policy = RatioPolicy::default().window(2);
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
        let mut policy = RatioPolicy::default();
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
            let Thresholds { hot_atr, cold_atr, hold } = policy.thresholds;
            (hot_atr, cold_atr, hold, policy.hot.length, policy.cold.length)
        };
        let policy = RatioPolicy::default();
        assert_eq!(knobs(&policy), (0.6, 0.6, 32, 16, 16));
        let policy = RatioPolicy::new(Thresholds::new(0.25, 0.75, 7).unwrap());
        assert_eq!(knobs(&policy), (0.25, 0.75, 7, 16, 16));
        let policy = policy.window(3);
        assert_eq!(knobs(&policy), (0.25, 0.75, 7, 3, 3));
        assert_eq!(policy.name(), "threshold");
        assert_eq!(RatioPolicy::new(Thresholds::IDLE_SERVER).name(), "idle-server");
        assert_eq!(RatioPolicy::new(Thresholds::MEDIA_SERVER).name(), "media-server");
    }

    #[test]
    fn active_descriptors_are_promoted_after_the_hold_and_later_ones_need_new_evidence() {
        // How long the ratio has been high, and whether a candidate may go; with a hold of 3.
        let mut account = Account::default();
        for (high, out) in [(0, false), (2, false), (3, false), (4, true), (5, true)] {
            let mut policy = RatioPolicy { high, ..held(3).window(1) };
            assert_eq!(policy.cold_event(&mut account, &view(1, 0)), out, "{high}");
            // Nothing was active, so nothing went.
            policy.pass(counts(0, 0, 10, 0), &view(1, 0));
            assert_eq!((policy.high, policy.cold.passes.len()), (0, 1), "{high}");
            // Something was, so the window starts afresh if it did go.
            let mut policy = RatioPolicy { high, ..held(3).window(1) };
            policy.pass(counts(0, 0, 10, 9), &view(1, 0));
            let (after, passes) = if out { (0, 0) } else { (high + 1, 1) };
            assert_eq!((policy.high, policy.cold.passes.len()), (after, passes), "{high}");
        }
        // High, and nothing active in this pass: it stays high over a longer window.
        let mut policy = RatioPolicy { high: 4, ..held(3).window(2) };
        policy.cold.push(10, 10);
        policy.pass(counts(0, 0, 1, 0), &view(1, 0));
        assert_eq!((policy.high, policy.cold.passes.len()), (5, 2));
    }

    #[test]
    fn accounts_remember_the_last_pass_that_found_them_ready() {
        let mut policy = RatioPolicy::default();
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
            let mut policy = RatioPolicy::default().window(1);
            policy.pass(counts(10, ready, 0, 0), &view(1, 10));
            assert_eq!(policy.compacting, compacts, "{ready}");
            assert_eq!(policy.hot.passes.len(), usize::from(!compacts));
        }
    }
}
