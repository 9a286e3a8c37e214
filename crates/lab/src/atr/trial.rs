//! The subjects in turn, at each ratio.

use std::collections::BTreeSet;

use serde_json::json;
use superpoll::BackendKind;

use crate::atr::Options;
use crate::budget::Budget;
use crate::channel::{self, Pairs};
use crate::error::Result;
use crate::options;
use crate::random::Random;
use crate::record::{self, Record};
use crate::run::Run;
use crate::second_thread::SecondThread;
use crate::subject::{self, Entry};
use crate::sweep::{Row, Sweep};
use crate::{rivals, say};

/// The subjects that are measured unless others are named.
const DEFAULTS: [&str; 17] = [
    "floor",
    "raw-poll",
    "raw-epoll-lt",
    "raw-epoll-et",
    "select",
    "poll",
    "epoll-lt",
    "epoll-et",
    "adaptive",
    "adaptive-lt",
    "adaptive-uring",
    "mio",
    "polling",
    "libevent",
    "libev",
    "libuv",
    "libkqueue",
];

/// The ratios that a sweep visits in addition to a single active descriptor.
const SHARES: [f64; 12] = [0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

/// The rounds of a subject before its measured rounds. A subject that adapts has its placement
/// after about forty rounds, and that placement is stable some time later. The other subjects only
/// need warm caches and branch predictors; where many descriptors are active, fewer rounds do.
const WARM_UP: (usize, usize) = (96, 8);

/// Caches and branch predictors are warm after this many events and two rounds.
const WARM_EVENTS: usize = 4096;

/// The default number of descriptors.
const TOTAL: &str = "1000";

/// The number of totals that "random" draws, and the largest of them.
const RANDOM_TOTALS: usize = 5;
const RANDOM_MOST: usize = 10_000;

/// The same where time is short, so that each total has its points.
const SHORT_MOST: usize = 1000;

/// The ratios that such a sweep visits.
const SHORT_SHARES: [f64; 4] = [0.2, 0.6, 0.8, 1.0];

/// The measurements to make, checked against the limits of this process.
#[derive(Debug)]
struct Plan {
    sweep: Sweep,
    entries: Vec<Entry>,
}

fn plan(options: &Options) -> Result<Plan> {
    let asked = options.total.as_deref().unwrap_or(TOTAL);
    let is_random = asked == "random";
    let is_short =
        options.output.quick || (options.output.seconds.is_some() && !options.output.paced);
    let (most, shares): (_, &[f64]) = match is_random && is_short {
        true => (SHORT_MOST, &SHORT_SHARES),
        false => (RANDOM_MOST, &SHARES),
    };
    let totals = match is_random {
        true => random_totals(options.output.seed, channel::most_pairs().min(most)),
        false => options::numbers("--total", asked)?,
    };
    let active = options.active.as_deref();
    Ok(Plan {
        sweep: Sweep::new(&options.kind, &options.placement, totals, active, shares)?,
        entries: options::subjects(options.subjects.as_deref(), &DEFAULTS)?,
    })
}

/// Draws different totals up to the largest, ascending.
fn random_totals(seed: u64, most: usize) -> Vec<usize> {
    let (mut random, least) = (Random::new(seed), 100.min(most / 2));
    let mut totals = BTreeSet::new();
    while totals.len() < RANDOM_TOTALS.min(most - least) {
        totals.insert(least + random.below(most - least));
    }
    totals.into_iter().collect()
}

/// Runs the experiment.
///
/// # Errors
///
/// [`Error::Usage`](crate::error::Error::Usage) for options that make no sense,
/// [`Error::Work`](crate::error::Error::Work) if a subject did not do its work,
/// [`Error::System`](crate::error::Error::System) if the kernel refuses something.
pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let Plan { mut sweep, entries } = plan(options)?;
    if !BackendKind::Uring.is_available() && entries.iter().any(|entry| entry.rings) {
        say::note("io_uring is not available here: leaving its subjects out");
    }
    let _second = options.output.second_thread.then(SecondThread::start);
    let budget = Budget::of_sizes(&options.output, sweep.sizes(), 15.0, 26.0);
    let (notes, blocks) = (std::mem::take(&mut sweep.notes), sweep.len() * entries.len() * 5);
    let mut run = Run::new("atr", &options.output, notes, blocks, budget);
    let mut rows = Vec::new();
    let suitable = |_: &mut Run<'_>, pairs: &Pairs| {
        // Named by the user, it is missed; a default is not.
        let unfit = entries.iter().find(|entry| !entry.rings && !entry.suits(pairs));
        if let Some(entry) = unfit.filter(|_| options.subjects.is_some()) {
            say::note(&format!(
                "subject {} cannot watch {} descriptors (numbers of 1024 and above): leaving it \
                 out there",
                entry.name,
                pairs.len()
            ));
        }
        let entries = entries.iter().filter(|entry| entry.suits(pairs));
        Ok(Some(entries.copied().collect::<Vec<Entry>>()))
    };
    sweep.visit(&mut run, suitable, |run, point, entries| {
        let warm_up = (WARM_UP.0, WARM_EVENTS.div_ceil(point.active).clamp(2, WARM_UP.1));
        rows.extend(point.rows(run, entries, warm_up, record::relate)?);
        Ok(())
    })?;
    let own = [
        ("total_asked", json!(options.total.as_deref().unwrap_or(TOTAL))),
        ("subjects", json!(entries.iter().map(|e| e.name).collect::<Vec<_>>())),
        ("warm_up_rounds_adaptive", json!(WARM_UP.0)),
        ("warm_up_rounds", json!(WARM_UP.1)),
        ("warm_up_events", json!(WARM_EVENTS)),
        ("bytes_verified", json!(true)),
        ("rivals", rivals::versions(subject::ALL.iter().map(|entry| entry.name))),
    ];
    Ok(run.record(sweep.parameters().into_iter().chain(own), rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_totals_are_five_and_different_whatever_the_length_of_the_run() {
        for arguments in [&["--quick"][..], &["--seconds", "3"], &[]] {
            let words = ["", "--total", "random"].iter().chain(arguments);
            let matches = <Options as clap::Args>::augment_args(clap::Command::new(""));
            let matches = matches.get_matches_from(words);
            let options = clap::FromArgMatches::from_arg_matches(&matches).unwrap();
            let sweep = plan(&options).unwrap().sweep;
            assert_eq!(sweep.totals.len(), 5, "{arguments:?}");
            let most = if arguments.is_empty() { RANDOM_MOST } else { SHORT_MOST };
            assert!(sweep.totals.iter().all(|total| (100..most).contains(total)));
            assert!(sweep.points(sweep.totals[0]).len() >= 5);
        }
        assert_eq!(random_totals(7, 4).len(), 2);
    }
}
