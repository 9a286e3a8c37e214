//! The sizes of both experiments, and the subjects in turn with each.

use serde_json::json;

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::latency::Row;
use crate::load::Load;
use crate::options::{self, Output};
use crate::record::Record;
use crate::run::Run;
use crate::sweep::Sweep;
use crate::waking::{self, Busy, Case};
use crate::{atr, mix, statistics};

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
    measure("atr-latency", options.subjects.as_deref(), &cases, &options.output, sweep.notes)
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
    let mut budget = Budget::new(output, cases.len(), 15.0, 120.0);
    budget.needs(1);
    let blocks = cases.len() * entries.len() * ROUNDS;
    let mut run = Run::new(experiment, output, notes, blocks, budget);
    let mut block = BLOCK.1;
    let measured =
        waking::measure(&mut run, cases, &entries, BUSY, None, |budget: &Budget, subjects| {
            let length = (budget.slot(subjects, ROUNDS) / GUESS) as usize;
            block = length.clamp(BLOCK.0, BLOCK.1);
            block
        })?;
    let p99 = |ns: &[f64]| statistics::quantile(ns, 0.99);
    let rows = measured.rows(cases, |case, woken, all| Row {
        kind: case.kind.name().to_owned(),
        load: case.name.clone(),
        total: case.total,
        hot: case.hot,
        subject: woken.subject.to_owned(),
        times: woken.times(all),
        awake: woken.awake,
        wake_ns_p99: p99(&woken.ns),
        wake_ns_max: statistics::maximum(&woken.ns),
        p99_ratio: woken.ratio(all, p99),
    });
    let parameters = [
        ("subjects", json!(entries.iter().map(|entry| entry.name).collect::<Vec<_>>())),
        ("wake_ups_in_a_row", json!(block)),
        ("warm_up_rounds_adaptive", json!(BUSY.first_adaptive)),
        ("warm_up_rounds", json!(BUSY.first)),
        ("busy_rounds", json!(BUSY.between)),
        ("writer", json!("a child process that sees the loop asleep before it writes")),
        ("bytes_verified", json!(true)),
    ];
    Ok(measured.record(run, parameters, rows))
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
