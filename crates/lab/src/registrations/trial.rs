//! The subjects in turn, with each size of a batch.

use serde_json::json;

use crate::budget::Budget;
use crate::channel::{self, Kind, Pairs};
use crate::error::{Error, Result};
use crate::options;
use crate::random::Random;
use crate::record::Record;
use crate::registrations::round::{self, Round, Runner};
use crate::registrations::{Options, Row, YARDSTICK, subject};
use crate::run::Run;
use crate::second_thread::SecondThread;
use crate::statistics::{self, Ratio};

/// The batches that are measured unless the options name some.
const BATCHES: [usize; 5] = [1, 4, 16, 64, 256];

struct Plan {
    kinds: Vec<Kind>,
    batches: Vec<usize>,
    total: usize,
}

fn plan(options: &Options) -> Result<Plan> {
    let total = options.total;
    channel::check_total(total)?;
    let mut batches = Vec::new();
    let asked = options.batch.as_deref().map(|text| options::numbers("--batch", text));
    let small = || BATCHES.into_iter().filter(|&batch| batch <= total).collect();
    for batch in asked.transpose()?.unwrap_or_else(small) {
        if batch == 0 || batch > total {
            return Err(Error::usage(format!(
                "--batch {batch} is not possible: give 1 to {total}, which is --total"
            )));
        }
        if !batches.contains(&batch) {
            batches.push(batch);
        }
    }
    Ok(Plan { kinds: options::kinds(&options.kind)?, batches, total })
}

/// Runs the experiment.
pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let plan = plan(options)?;
    let (entries, notes) = subject::chosen(options.subjects.as_deref())?;
    let _second = options.output.second_thread.then(SecondThread::start);
    let points = plan.kinds.len() * plan.batches.len();
    let budget = Budget::new(&options.output, points, 10.0, 40.0);
    let mut run = Run::new("registrations", &options.output, notes, points, budget);
    let mut random = Random::new(options.output.seed);
    let mut rows = Vec::new();
    for &kind in &plan.kinds {
        let pairs = Pairs::open(kind, plan.total)?;
        let start = |entry| Runner::start(entry, plan.total);
        let mut runners = entries.iter().map(start).collect::<Result<Vec<_>>>()?;
        for &batch in &plan.batches {
            if !run.budget.point() {
                continue;
            }
            run.progress.step(format!("{kind} in batches of {batch}"));
            let mut take_turns = |budget: &Budget, counts| {
                let sample = round::sample(&mut random, plan.total);
                budget
                    .turns(entries.len())
                    .try_for_each(|place| runners[place].round(&pairs, batch, &sample, counts))
            };
            // The first round touches memory that is not there yet.
            let mut measured = take_turns(&run.budget, false);
            while measured.is_ok() && run.budget.round() {
                measured = take_turns(&run.budget, true);
            }
            if run.budget.keep(measured)?.is_none() {
                continue;
            }
            let mut point: Vec<Row> = runners.iter().map(|r| row(r, kind, batch, &plan)).collect();
            relate(&mut point, &runners);
            rows.extend(point.into_iter().filter(|row| row.rounds > 0));
            runners.iter_mut().for_each(|runner| runner.rounds.clear());
        }
    }
    let own = [
        ("subjects", entries.iter().map(|e| (e.name.to_owned(), json!(e.about))).collect()),
        ("kinds", json!(plan.kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>())),
        ("batches", json!(plan.batches)),
        ("total", json!(plan.total)),
        ("verified_per_part", json!(round::sample(&mut random, plan.total).len())),
    ];
    Ok(run.record(own, rows))
}

/// A figure of a round.
type Of = fn(&Round) -> f64;

const BOTH: Of = |round| round.register.cpu + round.deregister.cpu;

const WALL: Of = |round| round.register.wall + round.deregister.wall;

fn row(runner: &Runner, kind: Kind, batch: usize, plan: &Plan) -> Row {
    let each = |of: Of| -> Vec<f64> {
        runner.rounds.iter().map(|round| of(round) / plan.total as f64).collect()
    };
    let (register, modify) = (each(|r| r.register.cpu), each(|r| r.modify.cpu));
    let (deregister, both) = (each(|r| r.deregister.cpu), each(BOTH));
    Row {
        kind: kind.name().to_owned(),
        batch,
        subject: runner.entry.name.to_owned(),
        total: plan.total,
        register_ns_median: statistics::median(&register),
        register_ns_min: statistics::minimum(&register),
        modify_ns_median: statistics::median(&modify),
        modify_ns_min: statistics::minimum(&modify),
        deregister_ns_median: statistics::median(&deregister),
        deregister_ns_min: statistics::minimum(&deregister),
        both_ns_median: statistics::median(&both),
        both_ns_min: statistics::minimum(&both),
        wall_ns_median: statistics::median(&each(WALL)),
        calls: statistics::median(&each(|r| (r.register.calls + r.deregister.calls) as f64)),
        rounds: runner.rounds.len(),
        ..Row::default()
    }
}

/// Fills in the ratios at one point, round by round: a disturbance of a round hits all registries
/// in it.
fn relate(point: &mut [Row], runners: &[Runner]) {
    let Some(yardstick) = runners.iter().find(|runner| runner.entry.name == YARDSTICK) else {
        return;
    };
    let least = point.iter().find(|row| row.subject == YARDSTICK).map(|row| row.both_ns_min);
    for (row, runner) in point.iter_mut().zip(runners) {
        let ratio = |of: Of| {
            let costs = |runner: &Runner| runner.rounds.iter().map(of).collect::<Vec<f64>>();
            Ratio::of(&costs(runner), &costs(yardstick))
        };
        let both = ratio(BOTH);
        row.ratio = both.map(|ratio| ratio.median);
        row.ratio_low = both.map(|ratio| ratio.low);
        row.ratio_high = both.map(|ratio| ratio.high);
        row.ratio_decile = both.and_then(|ratio| ratio.decile);
        row.ratio_min = least.filter(|ns| *ns > 0.0).map(|least| row.both_ns_min / least);
        let median = |of: Of| ratio(of).map(|ratio| ratio.median);
        row.wall_ratio = median(WALL);
        row.register_ratio = median(|round| round.register.cpu);
        row.modify_ratio = median(|round| round.modify.cpu);
        row.deregister_ratio = median(|round| round.deregister.cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::round::Part;
    use super::*;

    #[test]
    fn batches_are_numbers_up_to_the_total_each_once() {
        let batches = |text: &str, total| {
            let batch = Some(text.to_owned());
            plan(&Options { batch, total, ..Options::default() }).map(|plan| plan.batches)
        };
        let small = Options { total: 20, ..Options::default() };
        assert_eq!(plan(&small).unwrap().batches, [1, 4, 16]);
        assert_eq!(batches("8, 2,8", 8).unwrap(), [8, 2]);
        for (bad, total) in [("0", 8), ("9", 8), ("x", 8), ("", 8)] {
            assert!(batches(bad, total).unwrap_err().to_string().contains("--batch"), "{bad}");
        }
        for total in [0, 10_000_000] {
            assert!(batches("1", total).unwrap_err().to_string().contains("--total"), "{total}");
        }
    }

    #[test]
    fn ratios_are_those_of_each_round() {
        let runner = |name: &str, cpu: [f64; 3]| {
            let entry = *subject::ALL.iter().find(|entry| entry.name == name).unwrap();
            let mut runner = Runner::start(&entry, 2).unwrap();
            runner.rounds = cpu
                .map(|cpu| {
                    let part = |cpu| Part { cpu, wall: 2.0 * cpu, calls: 4 };
                    Round { register: part(cpu), modify: part(7.0), deregister: part(cpu) }
                })
                .to_vec();
            runner
        };
        let runners =
            [runner(YARDSTICK, [100.0, 200.0, 100.0]), runner("epoll", [110.0, 220.0, 300.0])];
        let plan = Plan { kinds: vec![Kind::Pipe], batches: vec![1], total: 2 };
        let mut point: Vec<Row> = runners.iter().map(|r| row(r, Kind::Pipe, 1, &plan)).collect();
        relate(&mut point, &runners);
        assert_eq!((point[0].ratio, point[0].both_ns_median), (Some(1.0), 100.0));
        assert_eq!((point[1].ratio, point[1].ratio_low), (Some(1.1), Some(1.1)));
        assert_eq!((point[1].ratio_high, point[1].ratio_min), (Some(3.0), Some(1.1)));
        assert_eq!((point[1].modify_ratio, point[1].calls), (Some(1.0), 4.0));
        assert_eq!((point[1].wall_ns_median, point[1].rounds), (440.0, 3));
    }
}
