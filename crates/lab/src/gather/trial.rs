//! The back-ends in turn, with each time for which waits gather, under each load.

use std::time::Duration;

use serde_json::json;
use superpoll::BackendKind;

use super::load::{self, Outcome, Plan, Subject};
use super::{Options, Row};
use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::record::Record;
use crate::run::Run;
use crate::statistics::{self, Ratio};
use crate::{options, table};

/// The length of a round.
const ROUND: Duration = Duration::from_millis(250);

/// A load by its name.
type Load = (&'static str, fn(Subject, &Plan) -> Result<Outcome>);

const LOADS: [Load; 2] = [("fan-in", load::fan_in), ("relay", load::relay)];

/// A subject and its rounds at the present point.
struct Runner {
    subject: Subject,
    rounds: Vec<Outcome>,
}

impl Runner {
    /// The processor time of a message in each round.
    fn costs(&self) -> Vec<f64> {
        let cost = |one: &Outcome| one.processor_ns as f64 / one.late.len().max(1) as f64;
        self.rounds.iter().map(cost).collect()
    }

    fn row(&self, load: &str, plan: &Plan, without: &[f64]) -> Row {
        let (costs, Subject { backend, gather }) = (self.costs(), self.subject);
        let late: Vec<f64> = self.rounds.iter().flat_map(|one| one.late.iter().copied()).collect();
        let waits = self.rounds.iter().map(|one| one.waits as f64).sum::<f64>();
        Row {
            load: load.to_owned(),
            interval: plan.interval.as_micros() as usize,
            subject: backend.name().to_owned(),
            gather: gather.as_micros() as usize,
            descriptors: plan.descriptors,
            message_ns_median: statistics::median(&costs),
            message_ns_decile: statistics::lowest_decile(&costs),
            waits: waits / late.len().max(1) as f64,
            late_ns_p50: statistics::quantile(&late, 0.5),
            late_ns_p99: statistics::quantile(&late, 0.99),
            rounds: costs.len(),
            ratio: if gather.is_zero() { None } else { Ratio::of(&costs, without) },
        }
    }
}

fn subjects(options: &Options) -> Result<Vec<Subject>> {
    let mut gathers = options::numbers("--gather", &options.gather)?;
    gathers.iter().try_for_each(|&time| options::within("--gather", time, 0..=1_000_000))?;
    gathers.insert(0, 0);
    let mut subjects = Vec::new();
    for name in options.subjects.split(',') {
        let backend: BackendKind = name.trim().parse().map_err(Error::Poller)?;
        if !backend.is_available() {
            return Err(Error::usage(format!("--subjects {name}: it does not work here")));
        }
        let of = |time: &usize| Subject { backend, gather: Duration::from_micros(*time as u64) };
        subjects.extend(gathers.iter().map(of));
    }
    Ok(table::distinct(subjects))
}

/// Runs the experiment.
pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let subjects = subjects(options)?;
    let loads = options::named(&options.load, &LOADS, |load| load.0, |_| true, "no load")?;
    let intervals = options::numbers("--interval", &options.interval)?;
    intervals.iter().try_for_each(|&one| options::within("--interval", one, 1..=100_000))?;
    options::within("--descriptors", options.descriptors, 1..=4000)?;
    // A relayed connection has four sockets here.
    crate::channel::check_total(2 * options.descriptors)?;
    let points = loads.len() * intervals.len();
    let budget = Budget::new(&options.output, points, 20.0, 90.0);
    let blocks = points * subjects.len() * 5;
    let mut run = Run::new("gather", &options.output, Vec::new(), blocks, budget);
    let mut rows = Vec::new();
    for (name, measure) in loads {
        for &interval in &intervals {
            if !run.budget.point() {
                continue;
            }
            let interval = Duration::from_micros(interval as u64);
            let messages = (ROUND.as_nanos() / interval.as_nanos()).max(10) as usize;
            let (descriptors, seed) = (options.descriptors, options.output.seed);
            let plan = Plan { descriptors, interval, messages, seed };
            let of = |&subject: &Subject| Runner { subject, rounds: Vec::new() };
            let mut runners: Vec<Runner> = subjects.iter().map(of).collect();
            while run.budget.round() {
                for place in run.budget.turns(runners.len()) {
                    let Subject { backend, gather } = runners[place].subject;
                    run.progress.step(format!("{name} {backend} {gather:?} every {interval:?}"));
                    let outcome = measure(runners[place].subject, &plan)?;
                    runners[place].rounds.push(outcome);
                }
            }
            let measured = runners.iter().filter(|one| !one.rounds.is_empty());
            rows.extend(measured.map(|runner| {
                let alike = |other: &&Runner| {
                    let Subject { backend, gather } = other.subject;
                    gather.is_zero() && backend == runner.subject.backend
                };
                let without = runners.iter().find(alike).map(Runner::costs);
                runner.row(name, &plan, &without.unwrap_or_default())
            }));
        }
    }
    let own = [
        ("intervals_us", json!(intervals)),
        ("gather_us", json!(options.gather)),
        ("descriptors", json!(options.descriptors)),
        ("messages_verified", json!(true)),
    ];
    Ok(run.record(own, rows))
}
