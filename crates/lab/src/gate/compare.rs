//! Decides whether a path has become more expensive, by comparing the counts with the stored
//! figures.
//!
//! A path has become more expensive if it takes more instructions than the tolerance allows, or
//! more system calls of any one name; a call that has become rarer does not make up for it. Lower
//! figures fail nothing. They are reported all the same, so that the gain is written down and
//! cannot be lost unnoticed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::gate::stored::{self, Figures};

/// The share by which system calls may increase, and the increase for each operation where there
/// are hardly any calls: a check of a file once a second does not belong to the operation.
const CALLS_TOLERANCE: f64 = 0.01;
const CALLS_SLACK: f64 = 0.02;

/// A figure that has moved by more than its tolerance.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    /// The path.
    pub path: &'static str,
    /// The name of the figure: instructions, or a system call and the counter that saw it.
    pub what: String,
    /// The stored value for each operation.
    pub stored: f64,
    /// The value counted now, for each operation.
    pub now: f64,
    /// The share by which it may move.
    pub tolerance: f64,
}

impl Change {
    /// Whether the value has increased.
    pub(super) fn is_regression(&self) -> bool {
        self.now > self.stored
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { path, what, stored, now, tolerance } = self;
        write!(f, "{path}: {} instead of {} {what}", digits(*now), digits(*stored))?;
        if *stored > 0.0 {
            let percent = 100.0 * (now - stored) / stored;
            write!(f, " ({percent:+.1} %, {} % may pass)", stored::digits(100.0 * tolerance))?;
        }
        Ok(())
    }
}

fn digits(figure: f64) -> String {
    if figure < 100.0 { stored::digits(figure) } else { format!("{figure:.0}") }
}

/// Returns the figures that have moved by more than their tolerance. Figures of another compiler
/// may differ by `widened`, if that is more.
pub(super) fn changes(
    path: &'static str,
    stored: &Figures,
    now: &Figures,
    widened: Option<f64>,
) -> Vec<Change> {
    let mut changes = Vec::new();
    if let (Some(stored_count), Some(count)) = (stored.instructions, now.instructions) {
        let own = stored.tolerance.unwrap_or(stored::TOLERANCE);
        let tolerance = widened.map_or(own, |widened| widened.max(own));
        if (count - stored_count).abs() > stored_count * tolerance {
            let what = "instructions".to_owned();
            changes.push(Change { path, what, stored: stored_count, now: count, tolerance });
        }
    }
    let mut told = BTreeSet::new();
    let none = BTreeMap::new();
    let by_kernel = stored.calls.as_ref().zip(now.calls.as_ref()).unwrap_or((&none, &none));
    for (whose, (stored, now)) in
        [("", by_kernel), (" by our own counters", (&stored.counted, &now.counted))]
    {
        let names: BTreeSet<&String> = stored.keys().chain(now.keys()).collect();
        for name in names {
            let of = |counts: &BTreeMap<String, f64>| counts.get(name).copied().unwrap_or(0.0);
            let (stored, now) = (of(stored), of(now));
            let may = (stored * CALLS_TOLERANCE).max(CALLS_SLACK);
            // A change that the kernel's count shows as well is reported once.
            if (now - stored).abs() > may && told.insert(name.clone()) {
                let what = format!("{name}{whose}");
                changes.push(Change { path, what, stored, now, tolerance: CALLS_TOLERANCE });
            }
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(instructions: f64, calls: &[(&str, f64)]) -> Figures {
        let calls: BTreeMap<_, _> =
            calls.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
        Figures {
            instructions: Some(instructions),
            calls: Some(calls.clone()),
            counted: calls,
            tolerance: None,
        }
    }

    fn told(stored: &Figures, now: &Figures, widened: Option<f64>) -> Vec<String> {
        changes("wait", stored, now, widened).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn instructions_may_move_by_the_tolerance_in_both_directions() {
        let stored = figures(1000.0, &[]);
        for within in [980.0, 1000.0, 1020.0] {
            assert_eq!(told(&stored, &figures(within, &[]), None), [""; 0]);
        }
        let line = "wait: 1021 instead of 1000 instructions (+2.1 %, 2 % may pass)";
        assert_eq!(told(&stored, &figures(1021.0, &[]), None), [line]);
        let cheaper = &changes("wait", &stored, &figures(979.0, &[]), None)[0];
        assert!(!cheaper.is_regression());
        let own = Figures { tolerance: Some(0.05), ..stored.clone() };
        assert_eq!(told(&own, &figures(1050.0, &[]), None), [""; 0]);
        assert_eq!(told(&own, &figures(1051.0, &[]), None).len(), 1);
    }

    #[test]
    fn figures_of_another_compiler_may_differ_by_more_but_not_by_anything() {
        let stored = figures(1000.0, &[]);
        assert_eq!(told(&stored, &figures(1099.0, &[]), Some(0.1)), [""; 0]);
        let lines = told(&stored, &figures(1101.0, &[]), Some(0.1));
        assert!(lines[0].contains("10 % may pass"), "{lines:?}");
        // Nor does it narrow the tolerance that a path sets itself.
        let own = Figures { tolerance: Some(0.2), ..stored };
        assert_eq!(told(&own, &figures(1150.0, &[]), Some(0.1)), [""; 0]);
        // System calls are the same with any compiler.
        let calls =
            told(&figures(1.0, &[("read", 1.0)]), &figures(1.0, &[("read", 1.1)]), Some(0.1));
        assert_eq!(calls.len(), 1);
    }

    #[test]
    fn one_more_call_is_a_regression_even_if_another_is_gone() {
        let stored = figures(1000.0, &[("epoll_wait", 1.0), ("read", 1.0)]);
        let now = figures(1000.0, &[("epoll_wait", 2.0), ("recvfrom", 1.0)]);
        let changes = changes("wait", &stored, &now, None);
        let regressions: Vec<_> =
            changes.iter().map(|one| (one.what.as_str(), one.is_regression())).collect();
        assert_eq!(regressions, [("epoll_wait", true), ("read", false), ("recvfrom", true)]);
        assert_eq!(
            changes[0].to_string(),
            "wait: 2 instead of 1 epoll_wait (+100.0 %, 1 % may pass)"
        );
        assert_eq!(changes[2].to_string(), "wait: 1 instead of 0 recvfrom");
    }

    #[test]
    fn counts_of_our_own_counters_only_are_reported_as_theirs() {
        let stored = figures(1.0, &[("epoll_ctl", 2.0)]);
        let now = Figures { calls: None, ..figures(1.0, &[("epoll_ctl", 3.0)]) };
        let lines = told(&stored, &now, None);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains("3 instead of 2 epoll_ctl by our own counters"), "{lines:?}");
    }

    #[test]
    fn rare_calls_are_not_reported() {
        let stored = figures(1.0, &[]);
        assert_eq!(told(&stored, &figures(1.0, &[("statx", 0.019)]), None), [""; 0]);
        assert_eq!(told(&stored, &figures(1.0, &[("statx", 0.021)]), None).len(), 1);
        let often = figures(1.0, &[("read", 100.0)]);
        assert_eq!(told(&often, &figures(1.0, &[("read", 100.9)]), None), [""; 0]);
        assert_eq!(told(&often, &figures(1.0, &[("read", 101.1)]), None).len(), 1);
    }

    #[test]
    fn missing_figures_are_not_compared() {
        let stored = figures(1000.0, &[("read", 1.0)]);
        let now = Figures { instructions: None, calls: None, ..stored.clone() };
        assert_eq!(told(&stored, &now, None), [""; 0]);
    }
}
