//! The stored figures: read from TOML, and written as TOML whose changes are easy to review.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::path::Path as File;

use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::gate::paths;
use crate::sys::process;

/// The figures of the checkout that this program was built from.
pub(super) const BUILT_IN: &str = include_str!("../../gate.toml");

/// The path of the figures, from the root of a checkout.
pub(super) const PLACE: &str = "crates/lab/gate.toml";

/// The tolerated increase of an operation's cost, as a share, unless its path sets another.
pub(super) const TOLERANCE: f64 = 0.02;

/// The tolerance for figures of another compiler or C library, if it is larger.
pub(super) const OTHER_TOLERANCE: f64 = 0.10;

/// The tools that the figures were made with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Made {
    /// The compiler.
    pub rustc: String,
    /// The target that it compiled for.
    pub target: String,
    /// The kind of build: `gate` (`.cargo/gate.toml`), `dist`, `release` or `debug`.
    pub profile: String,
    /// The C library, whose `memcpy` and `malloc` are counted with ours.
    pub libc: String,
}

impl Made {
    /// The tools that this program is made with.
    pub(super) fn here() -> Made {
        Made {
            rustc: crate::environment::RUSTC.to_owned(),
            target: env!("LAB_TARGET").to_owned(),
            profile: crate::environment::PROFILE.to_owned(),
            libc: process::libc_version(),
        }
    }

    /// The kind of processor.
    pub(super) fn processor(&self) -> &str {
        self.target.split('-').next().unwrap_or_default()
    }
}

/// The cost of one operation of a path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figures {
    /// The tolerated increase, as a share, if it differs from the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// Instructions of the process, without the kernel's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<f64>,
    /// System calls by name, as the kernel sees them (`strace`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<BTreeMap<String, f64>>,
    /// System calls by name, by our own counters: those of the engine and the relay.
    #[serde(default)]
    pub counted: BTreeMap<String, f64>,
}

/// A file of figures.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored {
    /// The tools that the figures were made with.
    pub made: Made,
    /// The figures by path.
    #[serde(default)]
    pub paths: BTreeMap<String, Figures>,
}

impl Stored {
    /// Reads figures from a text, which errors call `name`.
    pub(super) fn parse(name: &str, text: &str) -> Result<Stored> {
        let stored: Stored = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start).min(text.len());
            let line = 1 + text.as_bytes()[..start].iter().filter(|&&byte| byte == b'\n').count();
            let what = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            Error::usage(format!("the stored figures {name}, line {line}: {what}"))
        })?;
        for (path, figures) in &stored.paths {
            let wrong = |what: &str, value: f64| {
                Err(Error::usage(format!(
                    "the stored figures {name}: {what} of {path} cannot be {value}"
                )))
            };
            if let Some(tolerance) = figures.tolerance.filter(|share| !(0.0..1.0).contains(share)) {
                return wrong("the tolerance", tolerance);
            }
            let calls = figures.calls.iter().flatten().chain(&figures.counted);
            let all = calls.map(|(_, count)| count).chain(&figures.instructions);
            if let Some(&count) =
                all.into_iter().find(|count| !(count.is_finite() && **count >= 0.0))
            {
                return wrong("a count", count);
            }
        }
        Ok(stored)
    }

    /// Reads a file.
    pub(super) fn read(file: &File) -> Result<Stored> {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file)
            .doing(format_args!("reading the stored figures {name}"))?;
        Stored::parse(&name, &text)
    }

    /// Replaces the figures of a path by the counted ones; a tolerance of the path stays.
    pub(super) fn update(&mut self, path: &str, figures: Figures) {
        let known = self.paths.get(path).and_then(|known| known.tolerance);
        let tolerance = known.or(figures.tolerance);
        self.paths.insert(path.to_owned(), Figures { tolerance, ..figures });
    }

    /// Renders the text of a file, with the paths in their order.
    pub(super) fn to_text(&self) -> String {
        let Made { rustc, target, profile, libc } = &self.made;
        let mut text = format!(
            "# What an operation of each core path takes. Written by `superpoll-lab gate --update`; CONTRIBUTING.md says\n\
             # when that is right. A path may have `tolerance`, by which share it may get more expensive (usually {TOLERANCE}).\n\n\
             [made]\nrustc = {rustc:?}\ntarget = {target:?}\nprofile = {profile:?}\nlibc = {libc:?}\n"
        );
        for path in paths::ALL {
            let Some(figures) = self.paths.get(path.name) else { continue };
            // Writing to a string does not fail.
            let _ = write!(text, "\n# {}\n[paths.{}]\n", path.operation, path.name);
            if let Some(tolerance) = figures.tolerance {
                let _ = writeln!(text, "tolerance = {tolerance}");
            }
            if let Some(instructions) = figures.instructions {
                let _ = writeln!(text, "instructions = {instructions:.1}");
            }
            if let Some(calls) = &figures.calls {
                let _ = writeln!(text, "calls = {}", inline(calls));
            }
            let _ = writeln!(text, "counted = {}", inline(&figures.counted));
        }
        text
    }
}

fn inline(calls: &BTreeMap<String, f64>) -> String {
    if calls.is_empty() {
        return "{}".to_owned();
    }
    let calls: Vec<_> =
        calls.iter().map(|(name, &count)| format!("{name} = {}", digits(count))).collect();
    format!("{{ {} }}", calls.join(", "))
}

/// Formats a count with at most three digits after the point.
pub(super) fn digits(count: f64) -> String {
    // A sum of nothing is negative zero.
    let text = format!("{:.3}", count + 0.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

// Decides whether a path has become more expensive, by comparing the counts with the stored
// figures.
//
// A path has become more expensive if it takes more instructions than the tolerance allows, or
// more system calls of any one name; a call that has become rarer does not make up for it. Lower
// figures fail nothing. They are reported all the same, so that the gain is written down and
// cannot be lost unnoticed.

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
        write!(f, "{path}: {} instead of {} {what}", shown(*now), shown(*stored))?;
        if *stored > 0.0 {
            let percent = 100.0 * (now - stored) / stored;
            write!(f, " ({percent:+.1} %, {} % may pass)", digits(100.0 * tolerance))?;
        }
        Ok(())
    }
}

fn shown(figure: f64) -> String {
    if figure < 100.0 { digits(figure) } else { format!("{figure:.0}") }
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
        let own = stored.tolerance.unwrap_or(TOLERANCE);
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

    fn stored() -> Stored {
        let figures = Figures {
            tolerance: None,
            instructions: Some(512.25),
            calls: Some([("read".to_owned(), 1.0), ("write".to_owned(), 0.125)].into()),
            counted: BTreeMap::new(),
        };
        let mut stored = Stored { made: Made::here(), ..Stored::default() };
        stored.update("wait-epoll", figures.clone());
        stored.update("wake", Figures { instructions: None, calls: None, ..figures });
        stored
    }

    #[test]
    fn stored_figures_are_read_back_in_the_order_of_the_paths() {
        let mut stored = stored();
        let text = stored.to_text();
        assert!(text.contains("calls = { read = 1, write = 0.125 }\ncounted = {}\n"), "{text}");
        assert!(text.find("[paths.wait-epoll]") < text.find("[paths.wake]"), "{text}");
        stored.paths.get_mut("wait-epoll").unwrap().instructions = Some(512.2);
        assert_eq!(Stored::parse("x", &text).unwrap(), stored);
    }

    #[test]
    fn digits_are_those_that_say_something() {
        assert_eq!([0.0, -0.0, 1.0, 0.0236, 12.5].map(digits), ["0", "0", "1", "0.024", "12.5"]);
    }

    #[test]
    fn an_update_keeps_the_tolerance_and_the_other_paths() {
        let mut stored = stored();
        stored.paths.get_mut("wake").unwrap().tolerance = Some(0.05);
        stored.update("wake", Figures { instructions: Some(1.0), ..Figures::default() });
        assert_eq!(stored.paths["wake"].tolerance, Some(0.05));
        assert_eq!(stored.paths["wake"].instructions, Some(1.0));
        assert!(stored.to_text().contains("tolerance = 0.05\n") && stored.paths.len() == 2);
    }

    #[test]
    fn an_error_names_its_line() {
        let made = "[made]\nrustc = \"r\"\ntarget = \"t\"\nprofile = \"p\"\nlibc = \"l\"\n";
        let parse = |rest: &str| Stored::parse("a.toml", &format!("{made}{rest}")).unwrap_err();
        for (rest, line) in [
            ("[paths.wake]\ninstructions = many\n", "a.toml, line 7"),
            ("[paths.wake]\ninstructions = \"many\"\n", "a.toml, line 7"),
            ("[paths.wake]\ncounted = {}\nticks = 3\n", "a.toml, line 8"),
            ("[paths.wake]\n[paths.wake]\n", "a.toml, line 7"),
            ("[paths.wake\n", "a.toml, line 6"),
            ("[paths.wake]\ninstructions = -1\n", "a count of wake cannot be -1"),
            ("[paths.wake]\ncounted = { read = nan }\n", "a count of wake cannot be NaN"),
            ("[paths.wake]\ntolerance = 2\n", "the tolerance of wake cannot be 2"),
        ] {
            let error = parse(rest).to_string();
            assert!(error.contains(line) && error.lines().count() == 1, "{rest}: {error}");
        }
        let error = Stored::parse("a.toml", "[made]\nrustc = \"r\"\n").unwrap_err().to_string();
        assert!(error.contains("a.toml, line 1") && error.contains("target"), "{error}");
    }

    #[test]
    fn the_built_in_figures_are_valid_and_have_every_path() {
        let stored = Stored::parse(PLACE, BUILT_IN).unwrap();
        for path in paths::ALL {
            assert!(stored.paths.contains_key(path.name), "{} is not in {PLACE}", path.name);
        }
        assert_eq!(stored.paths.len(), paths::ALL.len());
        assert_eq!(stored.made.profile, "gate");
    }

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
