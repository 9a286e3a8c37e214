//! The subjects in turn, block by block.

use serde_json::json;

use crate::budget::Budget;
use crate::channel::{self, Kind};
use crate::error::{Error, Result};
use crate::load::{Load, Placement};
use crate::options::{self, Output};
use crate::record::Record;
use crate::run::Run;
use crate::wake::{Options, Row};
use crate::waking::{self, Busy, Case};
use crate::{rivals, subject};

const DEFAULTS: [&str; 7] =
    ["raw-epoll-lt", "epoll-lt", "poll", "adaptive", "uring", "mio", "polling"];

/// The busy rounds before the wake-ups.
const BUSY: Busy = Busy { first_adaptive: 100, first: 100, between: 20 };

/// Wake-ups of one subject in a row.
const BLOCK: usize = 20;

/// Runs the experiment.
pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let kinds = options::kinds(&options.kind)?;
    let (entries, notes) = waking::subjects(options.subjects.as_deref(), &DEFAULTS)?;
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
        name: String::new(),
        total: options.total,
        hot: options.hot,
        load: load.clone(),
    };
    let cases: Vec<Case> = kinds.into_iter().map(case).collect();
    let budget = Budget::new(&output, cases.len(), 10.0, 60.0);
    let mut run = Run::new("wake", &output, notes, blocks * entries.len() * cases.len(), budget);
    let most = (!is_timed).then_some(samples);
    let measured = waking::measure(&mut run, &cases, &entries, BUSY, most, |_, _| BLOCK)?;
    let rows = measured.rows(&cases, |case, woken, all| Row {
        kind: case.kind.name().to_owned(),
        total: case.total,
        hot: case.hot,
        subject: woken.subject.to_owned(),
        times: woken.times(all),
    });
    let parameters = [
        ("samples", json!(samples)),
        ("rivals", rivals::versions(subject::ALL.iter().map(|entry| entry.name))),
        ("busy_rounds_first", json!(BUSY.first)),
        ("busy_rounds", json!(BUSY.between)),
        ("writer", json!("a child process")),
    ];
    Ok(measured.record(run, parameters, rows))
}
