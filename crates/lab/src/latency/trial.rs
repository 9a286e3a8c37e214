//! The sizes of both experiments, and the subjects in turn with each.

use serde_json::json;

use crate::budget::Budget;
use crate::channel::{Kind, Pairs};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::latency::Row;
use crate::load::Load;
use crate::options::{self, Output};
use crate::progress::Progress;
use crate::random::Random;
use crate::record::Record;
use crate::second_thread::SecondThread;
use crate::subject::Entry;
use crate::sweep::Sweep;
use crate::waking::{self, Busy, QUIET, WakeUp, Writer};
use crate::{atr, mix, say, statistics};

/// The subjects that are measured unless others are named.
const DEFAULTS: [&str; 12] = [
    "raw-poll",
    "raw-epoll-lt",
    "poll",
    "epoll-lt",
    "adaptive",
    "uring",
    "mio",
    "polling",
    "libevent",
    "libev",
    "libuv",
    "adaptive-uring",
];

/// Rounds of the load before the first wake-up of a block, so that placement has happened, and
/// before each.
const BUSY: Busy = Busy { first_adaptive: 400, first: 8, between: 5 };

/// The rounds after which the load of a mix begins again.
const LOAD_ROUNDS: usize = 512;

/// How many wake-ups a subject gets in a row, at least and at most.
const BLOCK: (usize, usize) = (5, 50);

/// The number of rounds that blocks are long for, unless the options give one.
const ROUNDS: usize = 3;

/// The time of a wake-up, including the quiet before it, in seconds: a first guess, for the length
/// of a block.
const GUESS: f64 = 0.008;

/// A set of descriptors and its load before the quiet.
#[derive(Clone, Debug)]
struct Case {
    kind: Kind,
    name: String,
    total: usize,
    hot: usize,
    load: Load,
}

/// Measures over the totals of `superpoll-lab atr`.
pub(super) fn of_atr(options: &atr::Options) -> Result<Record<Row>> {
    options.output.check()?;
    let default = if options.output.quick { "10,1000" } else { "10,100,1000,9900" };
    let totals = options::numbers("--total", options.total.as_deref().unwrap_or(default))?;
    let active = options.active.as_deref().unwrap_or("1");
    let sweep = Sweep::new(&options.kind, &options.placement, totals, Some(active), &[])?;
    let mut cases = Vec::new();
    for &kind in &sweep.kinds {
        for &placement in &sweep.placements {
            for &total in &sweep.totals {
                cases.extend(sweep.points(total).into_iter().map(|hot| {
                    let name = format!("{hot} busy, {placement}");
                    let load = Load::constant(placement.choose(total, hot));
                    Case { kind, name, total, hot, load }
                }));
            }
        }
    }
    measure("atr-latency", options.subjects.as_deref(), &cases, &options.output, sweep.notes)
}

/// Measures over the sizes of `superpoll-lab mix`.
pub(super) fn of_mix(options: &mix::Options) -> Result<Record<Row>> {
    options.output.check()?;
    if !options.load.split(',').any(|load| ["all", "mixed"].contains(&load.trim())) {
        return Err(Error::usage(format!(
            "--latency measures mixed loads, not {}: leave --load out, or give mixed",
            options.load
        )));
    }
    let kinds = options::kinds(&options.kind)?;
    let (sizes, notes) = mix::trial::sizes(options)?;
    let mut cases = Vec::new();
    for &kind in &kinds {
        cases.extend(sizes.iter().map(|&mix| Case {
            kind,
            name: "mixed".to_owned(),
            total: mix.hot + mix.cold,
            hot: mix.hot,
            load: Load::hot_and_cold(mix, 0, LOAD_ROUNDS, options.output.seed),
        }));
    }
    measure("mix-latency", options.subjects.as_deref(), &cases, &options.output, notes)
}

fn measure(
    experiment: &'static str,
    subjects: Option<&str>,
    cases: &[Case],
    output: &Output,
    mut notes: Vec<String>,
) -> Result<Record<Row>> {
    let (entries, left_out) = waking::subjects(subjects, &DEFAULTS)?;
    notes.extend(left_out);
    notes.iter().for_each(|note| say::note(note));
    let mut budget = Budget::new(output, cases.len(), 15.0, 120.0);
    budget.needs(1);
    let progress = Progress::new(experiment, cases.len() * entries.len() * ROUNDS);
    let mut block = BLOCK.1;
    let (mut rows, environment, pinned) = waking::apart(|writers, cores| {
        let (mut rows, mut environment) = (Vec::new(), None);
        for case in cases {
            if !budget.point() {
                continue;
            }
            let pairs = Pairs::open(case.kind, case.total)?;
            let writer = Writer::start(&pairs, writers)?;
            let _second = output.second_thread.then(SecondThread::start);
            // This thread is pinned to one of them by now.
            environment.get_or_insert_with(|| Environment { cores, ..Environment::here() });
            let suitable: Vec<Entry> =
                entries.iter().filter(|entry| entry.suits(&pairs)).copied().collect();
            let mut random = Random::new(output.seed);
            let length = (budget.slot(suitable.len(), ROUNDS) / GUESS) as usize;
            block = length.clamp(BLOCK.0, BLOCK.1);
            let mut targets = |_| (0..block).map(|_| random.below(case.total)).collect();
            let told = |entry: &Entry| {
                progress.step(format!("{} {} {}", case.kind, case.total, entry.name));
            };
            let load = &case.load;
            let all = waking::take_turns(
                &pairs,
                &writer,
                &suitable,
                load,
                BUSY,
                &mut budget,
                &mut targets,
                told,
            );
            let Some(all) = budget.keep(all)? else { continue };
            let had_turn = suitable.iter().zip(&all).filter(|(_, own)| !own.is_empty());
            rows.extend(had_turn.map(|(entry, own)| row(case, entry, own)));
        }
        Ok::<_, Error>((rows, environment, !writers.is_empty()))
    })?;
    drop(progress);
    for row in rows.extract_if(.., |row| row.samples == 0) {
        let note = format!(
            "{} with {} descriptors left out: it never slept while it waited",
            row.subject, row.total
        );
        say::note(&note);
        notes.push(note);
    }
    relate(&mut rows);
    let own = [
        ("subjects", json!(entries.iter().map(|entry| entry.name).collect::<Vec<_>>())),
        ("wake_ups_in_a_row", json!(block)),
        ("warm_up_rounds_adaptive", json!(BUSY.first_adaptive)),
        ("warm_up_rounds", json!(BUSY.first)),
        ("busy_rounds", json!(BUSY.between)),
        ("quiet_ns", json!([QUIET.0, QUIET.0 + QUIET.1])),
        ("writer", json!("a child process that sees the loop asleep before it writes")),
        ("pinned", json!(pinned)),
        ("bytes_verified", json!(true)),
        ("notes", json!(notes)),
    ];
    let parameters = output.parameters().into_iter().chain(own).chain(budget.end());
    Ok(Record::new(experiment, environment.unwrap_or_default(), parameters, rows))
}

fn row(case: &Case, entry: &Entry, all: &[WakeUp]) -> Row {
    let slept: Vec<f64> = all.iter().filter(|one| one.slept).map(|one| one.ns as f64).collect();
    Row {
        kind: case.kind.name().to_owned(),
        load: case.name.clone(),
        total: case.total,
        hot: case.hot,
        subject: entry.name.to_owned(),
        samples: slept.len(),
        awake: all.len() - slept.len(),
        wake_ns_min: statistics::minimum(&slept),
        wake_ns_p50: statistics::median(&slept),
        wake_ns_p90: statistics::quantile(&slept, 0.9),
        wake_ns_p99: statistics::quantile(&slept, 0.99),
        wake_ns_max: statistics::maximum(&slept),
        p50_ratio: None,
        p99_ratio: None,
    }
}

/// Fills in the ratios: each to the better epoll loop with the same descriptors.
fn relate(rows: &mut [Row]) {
    let yardsticks: Vec<Row> = rows
        .iter()
        .filter(|row| ["raw-epoll-lt", "epoll-lt"].contains(&row.subject.as_str()))
        .cloned()
        .collect();
    for row in rows {
        let best = |of: fn(&Row) -> f64| {
            let same = |other: &&Row| {
                (&other.kind, &other.load, other.total) == (&row.kind, &row.load, row.total)
            };
            let best = yardsticks.iter().filter(same).map(of).min_by(f64::total_cmp);
            best.filter(|best| *best > 0.0).map(|best| of(row) / best)
        };
        let ratios = (best(|row| row.wake_ns_p50), best(|row| row.wake_ns_p99));
        (row.p50_ratio, row.p99_ratio) = ratios;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wake_ups(ns: &[u64]) -> Vec<WakeUp> {
        ns.iter().map(|&ns| WakeUp { ns, slept: ns > 10 }).collect()
    }

    #[test]
    fn figures_count_sleeping_loops_only_and_ratios_are_to_the_better_epoll() {
        let load = Load::constant(vec![0]);
        let case = Case { kind: Kind::Pipe, name: "mixed".to_owned(), total: 5, hot: 1, load };
        let named = |name| Entry::named(name).unwrap();
        let mut rows = vec![
            row(&case, &named("raw-epoll-lt"), &wake_ups(&[100, 300, 5, 200])),
            row(&case, &named("epoll-lt"), &wake_ups(&[400, 100, 100])),
            row(&case, &named("poll"), &wake_ups(&[1000, 600, 500])),
        ];
        relate(&mut rows);
        let first = &rows[0];
        assert_eq!((first.samples, first.awake), (3, 1));
        assert_eq!(
            (first.wake_ns_min, first.wake_ns_p50, first.wake_ns_max),
            (100.0, 200.0, 300.0)
        );
        assert_eq!((rows[2].p50_ratio, rows[2].p99_ratio), (Some(6.0), Some(1000.0 / 300.0)));
        let mut alone = vec![rows[2].clone()];
        relate(&mut alone);
        assert_eq!((alone[0].p50_ratio, alone[0].p99_ratio), (None, None));
    }

    #[test]
    fn a_load_that_is_not_mixed_is_refused() {
        let load = "shift,worst".to_owned();
        let error = of_mix(&mix::Options { load, ..mix::Options::default() }).unwrap_err();
        assert!(error.to_string().contains("not shift,worst"), "{error}");
    }
}
