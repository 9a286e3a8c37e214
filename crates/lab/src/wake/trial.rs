//! The descriptors of each experiment, and the subjects in turn with each.

use serde_json::{Value, json};

use crate::budget::Budget;
use crate::channel::{self, Kind};
use crate::error::{Error, Result};
use crate::load::{Load, Placement};
use crate::options::{self, Output};
use crate::record::Record;
use crate::run::Run;
use crate::sweep::Sweep;
use crate::wake::{Options, Row};
use crate::waking::{self, Busy, Case};
use crate::{atr, mix, rivals, statistics, subject};

/// The subjects of `superpoll-lab wake` unless the options name some.
const DEFAULTS: [&str; 7] =
    ["raw-epoll-lt", "epoll-lt", "poll", "adaptive", "uring", "mio", "polling"];

/// The busy rounds of `superpoll-lab wake` before the wake-ups.
const BUSY: Busy = Busy { first_adaptive: 100, first: 100, between: 20 };

/// Wake-ups of one subject in a row in `superpoll-lab wake`.
const BLOCK: usize = 20;

/// The subjects of the two `--latency` experiments unless the options name some.
const OVER_SIZES: [&str; 12] = [
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

/// Their rounds of the load before the first wake-up of a block, so that placement has happened,
/// and before each.
const BUSY_PLACED: Busy = Busy { first_adaptive: 400, first: 8, between: 5 };

/// The rounds after which the load of a mix begins again.
const LOAD_ROUNDS: usize = 512;

/// How many wake-ups a subject gets in a row, at least and at most.
const BLOCKS: (usize, usize) = (5, 50);

/// The number of rounds that blocks are long for, unless the options give one.
const ROUNDS: usize = 3;

/// The time of a wake-up, including the quiet before it, in seconds: a first guess, for the length
/// of a block.
const GUESS: f64 = 0.008;

/// Measures with one number of descriptors.
pub(super) fn of_wake(options: &Options) -> Result<Record<Row>> {
    let kinds = options::kinds(&options.kind)?;
    channel::check_total(options.total)?;
    if options.hot > options.total {
        return Err(Error::usage(format!(
            "--hot {} is more than --total {}: give at most as many",
            options.hot, options.total
        )));
    }
    let samples = options.samples.unwrap_or(if options.output.quick { 80 } else { 300 });
    if samples == 0 {
        return Err(Error::usage("--samples 0 measures nothing: give 1 or more"));
    }
    let blocks = samples.div_ceil(BLOCK);
    // A number of samples is kept unless only a time was asked for.
    let is_timed = options.samples.is_none() && options.output.seconds.is_some();
    let repetitions = options.output.repetitions.or((!is_timed).then_some(blocks));
    let output = Output { repetitions, ..options.output.clone() };
    let load = Load::constant(Placement::Spread.choose(options.total, options.hot));
    let case = |kind: Kind| Case {
        kind,
        name: Placement::Spread.to_string(),
        total: options.total,
        hot: options.hot,
        load: load.clone(),
    };
    let cases: Vec<Case> = kinds.into_iter().map(case).collect();
    let plan = Plan {
        experiment: "wake",
        subjects: options.subjects.as_deref(),
        defaults: &DEFAULTS,
        busy: BUSY,
        blocks,
        most: (!is_timed).then_some(samples),
    };
    let budget = Budget::new(&output, cases.len(), 10.0, 60.0);
    measure(plan, &cases, &output, Vec::new(), budget, |_, _| BLOCK, [("samples", json!(samples))])
}

/// Measures over the totals of `superpoll-lab atr`.
pub(super) fn of_atr(options: &atr::Options) -> Result<Record<Row>> {
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
    over_sizes("atr-latency", options.subjects.as_deref(), &cases, &options.output, sweep.notes)
}

/// Measures over the sizes of `superpoll-lab mix`.
pub(super) fn of_mix(options: &mix::Options) -> Result<Record<Row>> {
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
    over_sizes("mix-latency", options.subjects.as_deref(), &cases, &options.output, notes)
}

fn over_sizes(
    experiment: &'static str,
    subjects: Option<&str>,
    cases: &[Case],
    output: &Output,
    notes: Vec<String>,
) -> Result<Record<Row>> {
    let plan = Plan {
        experiment,
        subjects,
        defaults: &OVER_SIZES,
        busy: BUSY_PLACED,
        blocks: ROUNDS,
        most: None,
    };
    let mut budget = Budget::new(output, cases.len(), 15.0, 120.0);
    budget.needs(1);
    let length = |budget: &Budget, subjects| {
        ((budget.slot(subjects, ROUNDS) / GUESS) as usize).clamp(BLOCKS.0, BLOCKS.1)
    };
    measure(plan, cases, output, notes, budget, length, [])
}

/// How an experiment wakes its subjects up.
struct Plan<'a> {
    experiment: &'static str,
    subjects: Option<&'a str>,
    defaults: &'a [&'a str],
    busy: Busy,
    /// The blocks of a subject with the descriptors of a case, as far as that is known beforehand.
    blocks: usize,
    /// The wake-ups of each subject, unless time alone limits them.
    most: Option<usize>,
}

/// Measures; `length` returns the wake-ups of a block from the number of subjects.
fn measure(
    plan: Plan<'_>,
    cases: &[Case],
    output: &Output,
    mut notes: Vec<String>,
    budget: Budget,
    length: impl Fn(&Budget, usize) -> usize,
    own: impl IntoIterator<Item = (&'static str, Value)>,
) -> Result<Record<Row>> {
    let (entries, left_out) = waking::subjects(plan.subjects, plan.defaults)?;
    notes.extend(left_out);
    let blocks = plan.blocks * entries.len() * cases.len();
    let mut run = Run::new(plan.experiment, output, notes, blocks, budget);
    let mut block = 0;
    let length = |budget: &Budget, subjects| {
        block = length(budget, subjects);
        block
    };
    let measured = waking::measure(&mut run, cases, &entries, plan.busy, plan.most, length)?;
    let p99 = |ns: &[f64]| statistics::quantile(ns, 0.99);
    let rows = measured.rows(cases, |case, woken, all| Row {
        kind: case.kind.name().to_owned(),
        load: case.name.clone(),
        total: case.total,
        hot: case.hot,
        subject: woken.subject.to_owned(),
        times: woken.times(all),
        awake: Some(woken.awake),
        wake_ns_p99: Some(p99(&woken.ns)),
        wake_ns_max: Some(statistics::maximum(&woken.ns)),
        p99_ratio: woken.ratio(all, p99),
    });
    let names: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
    let parameters = [
        ("subjects", json!(names)),
        ("wake_ups_in_a_row", json!(block)),
        ("warm_up_rounds_adaptive", json!(plan.busy.first_adaptive)),
        ("warm_up_rounds", json!(plan.busy.first)),
        ("busy_rounds", json!(plan.busy.between)),
        ("writer", json!("a child process that sees the loop asleep before it writes")),
        ("bytes_verified", json!(true)),
        ("rivals", rivals::versions(subject::ALL.iter().map(|entry| entry.name))),
    ];
    Ok(measured.record(run, own.into_iter().chain(parameters), rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_is_not_mixed_is_refused() {
        let load = "shift,worst".to_owned();
        let error = of_mix(&mix::Options { load, ..mix::Options::default() }).unwrap_err();
        assert!(error.to_string().contains("not shift,worst"), "{error}");
    }
}
