//! The errors of a server, and whether they are too many (`ejection`).

use std::collections::VecDeque;
use std::time::Duration;

use superpoll_config::Ejection;

/// The longest ejection, as a multiple of the first one.
const MOST_TIMES: u32 = 10;

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The last errors of a server, and its ejections.
#[derive(Default, Debug)]
pub(super) struct ErrorRecord {
    /// The time of each error, and the number of outcomes until then.
    recent: VecDeque<(u64, u64)>,
    /// Ejections in a row.
    times: u32,
    /// The end of the last ejection.
    until: u64,
}

impl ErrorRecord {
    /// Notes an error, the last of so many outcomes. Returns whether the server is to be ejected.
    pub(super) fn note(&mut self, rule: &Ejection, now: u64, outcomes: u64) -> bool {
        let most = rule.errors.get() as usize;
        if self.recent.len() == most {
            self.recent.pop_front();
        }
        self.recent.push_back((now, outcomes));
        let Some(&(first, outcomes_then)) = self.recent.front() else { return false };
        // Engines may note their outcomes in another order than they have counted them.
        let answers = outcomes.saturating_sub(outcomes_then) + 1;
        let share = u64::from(rule.share.hundredths());
        self.recent.len() == most
            && now.saturating_sub(first) <= millis(rule.within)
            && most as u64 * 100 >= answers.saturating_mul(share)
    }

    /// Begins an ejection. Returns its end.
    pub(super) fn eject(&mut self, rule: &Ejection, now: u64) -> u64 {
        let is_soon = self.until > 0 && now.saturating_sub(self.until) <= millis(rule.duration);
        self.times = if is_soon { (self.times + 1).min(MOST_TIMES) } else { 1 };
        self.until = now.saturating_add(millis(rule.duration).saturating_mul(self.times.into()));
        self.recent.clear();
        self.until
    }
}
