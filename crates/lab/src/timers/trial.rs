//! The runtimes in turn, with each number of timers.

use serde_json::json;
use superpoll_rt::time::{sleep, sleep_until};
use superpoll_rt::{BackendKind, Runtime, spawn};

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::record::Record;
use crate::run::Run;
use crate::second_thread::SecondThread;
use crate::server::subject::{self, Entry, names, parameters, rival};
use crate::statistics::{self, ToTokio};
use crate::sys::process;
use crate::timers::load::{self, Late, Order, Plan, Taken};
use crate::timers::{Options, Row};
use crate::{options, table};

#[cfg(feature = "rivals-rt")]
use crate::timers::tokio;

/// The most timers at once: tokio's take 200 bytes each.
const MOST_TIMERS: usize = 10_000_000;

/// The most ending timers: with tens for each microsecond, only the queue would be measured.
const MOST_ENDING: usize = 1_000_000;

/// The least number of timers that a round sets; smaller groups are set several times.
const LEAST_IN_A_ROUND: usize = 100_000;

fn sizes(options: &Options) -> Result<Vec<usize>> {
    let default = if options.output.quick { "10000,1000000" } else { "1000,10000,100000,1000000" };
    let sizes = options::numbers("--timers", options.timers.as_deref().unwrap_or(default))?;
    sizes.iter().try_for_each(|&size| options::within("--timers", size, 1..=MOST_TIMERS))?;
    options::within("--ending", options.ending, 1..=MOST_ENDING)?;
    Ok(table::distinct(sizes))
}

/// A runtime and its measurements under the present load.
struct Runner {
    entry: Subject,
    timers: Box<dyn Timers>,
    /// Of each round, the costs, and how late timers ended if that was waited for, in nanoseconds.
    rounds: Vec<(Taken, Vec<f64>)>,
}

/// The load that is measured.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// The order in which timers are cancelled; none if they end.
    order: Option<Order>,
    timers: usize,
}

impl Load {
    fn name(self) -> &'static str {
        self.order.map_or("ending", Order::name)
    }
}

fn loads(sizes: &[usize], ending: usize) -> Vec<Load> {
    let of = |order, timers| Load { order, timers };
    let most = sizes.iter().copied().max().unwrap_or(1);
    let orders = [Order::AsMade, Order::Shuffled].map(Some);
    let all_at_once = sizes.iter().flat_map(|&size| orders.map(|order| of(order, size)));
    all_at_once.chain([of(Some(Order::OneByOne), most), of(None, ending)]).collect()
}

/// Runs the experiment.
pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let sizes = sizes(options)?;
    let entries = chosen(options.subjects.as_deref())?;
    let loads = loads(&sizes, options.ending);
    let _second = options.output.second_thread.then(SecondThread::start);
    let in_a_round = loads.iter().map(|load| load.timers.max(LEAST_IN_A_ROUND)).collect();
    let budget = Budget::of_sizes(&options.output, in_a_round, 10.0, 45.0);
    let blocks = loads.len() * entries.len() * 10;
    let mut run = Run::new("timers", &options.output, Vec::new(), blocks, budget);
    let mut runners = Vec::new();
    for &entry in &entries {
        let started = run.lost.keep(entry.name, (entry.start)())?;
        runners.extend(started.map(|timers| Runner { entry, timers, rounds: Vec::new() }));
    }
    let mut rows = Vec::new();
    for load in loads {
        if !run.budget.point() {
            continue;
        }
        let plan = Plan::new(load.timers, options.output.seed);
        let mut take_turns = |run: &mut Run<'_>, counts| -> Result<()> {
            for place in run.budget.turns(runners.len()) {
                let runner = &mut runners[place];
                let name = runner.entry.name;
                if !run.lost.has(name) {
                    run.progress.step(format!("{name} {} {}", load.timers, load.name()));
                    run.lost.keep(name, runner.round(load, &plan, counts))?;
                }
            }
            Ok(())
        };
        // The first round touches memory that the allocator does not have yet.
        take_turns(&mut run, false)?;
        while run.budget.round() {
            take_turns(&mut run, true)?;
        }
        runners.retain(|runner| !run.lost.has(runner.entry.name));
        let measured = runners.iter_mut().filter(|one| !one.rounds.is_empty());
        let mut point: Vec<Row> = measured.map(|runner| runner.row(load)).collect();
        relate(&mut point);
        rows.extend(point);
    }
    let own = [
        ("timers", json!(sizes)),
        ("ending", json!(options.ending)),
        ("ending_within_ns", json!(load::WINDOW.as_nanos())),
        ("timers_verified", json!(true)),
    ];
    let common = parameters(&entries, names(ALL));
    Ok(run.record(common.into_iter().chain(own), rows))
}

impl Runner {
    fn round(&mut self, load: Load, plan: &Plan, counts: bool) -> Result<()> {
        let wrong = |found| Error::Work { subject: self.entry.name, found };
        let round = match load.order {
            Some(order) => {
                let times = LEAST_IN_A_ROUND.div_ceil(load.timers);
                let mut sum = Taken::default();
                for _ in 0..times {
                    let taken = self.timers.take_back(plan, order)?;
                    taken.check(plan).map_err(wrong)?;
                    sum.add(&taken);
                }
                (sum, Vec::new())
            }
            None => {
                let before = process::processor_time();
                let found = self.timers.let_end(plan)?;
                let insert_ns = process::processor_time() - before;
                let late = load::check_ends(plan, &found).map_err(wrong)?;
                (Taken { timers: load.timers as u64, insert_ns, ..Taken::default() }, late)
            }
        };
        if counts {
            self.rounds.push(round);
        }
        Ok(())
    }

    fn row(&mut self, load: Load) -> Row {
        let rounds = std::mem::take(&mut self.rounds);
        let each = |of: fn(&Taken) -> u64| -> Vec<f64> {
            rounds.iter().map(|(sum, _)| of(sum) as f64 / sum.timers.max(1) as f64).collect()
        };
        let (inserts, cancels) = (each(|taken| taken.insert_ns), each(|taken| taken.cancel_ns));
        let apart = matches!(load.order, Some(Order::AsMade | Order::Shuffled));
        let only_apart = |value: f64| apart.then_some(value);
        let timers = each(|taken| taken.insert_ns + taken.cancel_ns);
        let late: Vec<f64> = rounds.iter().flat_map(|(_, late)| late).copied().collect();
        let lateness = |share| (!late.is_empty()).then(|| statistics::quantile(&late, share));
        Row {
            subject: self.entry.name.to_owned(),
            load: load.name().to_owned(),
            timers: load.timers,
            insert_ns_median: only_apart(statistics::median(&inserts)),
            insert_ns_min: only_apart(statistics::minimum(&inserts)),
            cancel_ns_median: only_apart(statistics::median(&cancels)),
            cancel_ns_min: only_apart(statistics::minimum(&cancels)),
            timer_ns_median: statistics::median(&timers),
            timer_ns_min: statistics::minimum(&timers),
            timer_ns_spread: statistics::maximum(&timers) - statistics::minimum(&timers),
            late_ns_p50: lateness(0.5),
            late_ns_p99: lateness(0.99),
            late_ns_max: lateness(1.0),
            rounds: timers.len(),
            timer_ns: timers,
            ..Row::default()
        }
    }
}

/// Fills in the ratios under one load.
fn relate(point: &mut [Row]) {
    let Some(tokio) = point.iter().find(|row| row.subject == "tokio").cloned() else { return };
    for row in point {
        row.to_tokio = ToTokio::of(&row.timer_ns, &tokio.timer_ns);
    }
}

// The runtimes, by name.

/// A runtime with timers.
pub(crate) trait Timers {
    /// Sets timers that are far ahead and cancels them.
    fn take_back(&mut self, plan: &Plan, order: Order) -> Result<Taken>;

    /// Makes a task wait for each of some timers, and waits for all; returns how late each was.
    fn let_end(&mut self, plan: &Plan) -> Result<Vec<Late>>;
}

/// Starts a runtime.
pub(crate) type Start = fn() -> Result<Box<dyn Timers>>;

/// A runtime.
pub(crate) type Subject = subject::Subject<Start>;

/// All runtimes.
pub(crate) const ALL: &[Entry<Start>] = &[
    Entry::new("superpoll-rt", "our runtime, one engine", start),
    rival!("rivals-rt", "tokio", "tokio's current_thread runtime", tokio::start as Start),
];

/// Returns the requested runtimes, each once; all that are built in if none was requested.
pub(crate) fn chosen(names: Option<&str>) -> Result<Vec<Subject>> {
    Ok(subject::chosen(ALL, names, "no runtime with timers")?.0)
}

// Our runtime. The wheel is the same with every back-end; epoll is as precise as any.

pub(super) fn start() -> Result<Box<dyn Timers>> {
    Ok(Box::new(Runtime::builder().backend(BackendKind::Epoll).build()?))
}

impl Timers for Runtime {
    fn take_back(&mut self, plan: &Plan, order: Order) -> Result<Taken> {
        self.try_block_on(load::within(|| load::take_back(plan, order, sleep))).map_err(Error::from)
    }

    fn let_end(&mut self, plan: &Plan) -> Result<Vec<Late>> {
        let start = |end| {
            spawn(async move {
                sleep_until(end).await;
                load::lateness(end)
            })
        };
        self.try_block_on(load::let_end(plan, start))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_of_timers_each_once() {
        let of = |timers: Option<&str>, ending| {
            let timers = timers.map(str::to_owned);
            sizes(&Options { timers, ending, ..Options::default() })
        };
        assert_eq!(of(None, 1).unwrap().last(), Some(&1_000_000));
        assert_eq!(of(Some("5, 70,5"), 1).unwrap(), [5, 70]);
        for bad in ["0", "10000001", "x", ""] {
            assert!(of(Some(bad), 1).unwrap_err().to_string().contains("--timers"), "{bad}");
        }
        for bad in [0, 1_000_001] {
            assert!(of(None, bad).unwrap_err().to_string().contains("--ending"), "{bad}");
        }
    }

    #[test]
    fn each_size_is_taken_back_in_two_orders() {
        let names: Vec<_> =
            loads(&[10, 99], 7).iter().map(|load| (load.name(), load.timers)).collect();
        let both = |size| [("in order", size), ("shuffled", size)];
        let rest = [("one by one", 99), ("ending", 7)];
        assert_eq!(names, [&both(10)[..], &both(99), &rest].concat());
    }

    #[test]
    fn every_runtime_sets_takes_back_and_lets_end_every_timer() {
        for entry in chosen(None).unwrap() {
            let mut timers = (entry.start)().unwrap();
            for count in [1, 3, 700] {
                let plan = Plan::new(count, 1);
                for order in [Order::AsMade, Order::Shuffled, Order::OneByOne] {
                    let taken = timers.take_back(&plan, order).unwrap();
                    assert_eq!(taken.check(&plan), Ok(()), "{} {order:?}", entry.name);
                }
            }
            let plan = Plan::new(200, 2);
            let ended = load::check_ends(&plan, &timers.let_end(&plan).unwrap());
            assert!(ended.is_ok(), "{}: {ended:?}", entry.name);
        }
    }

    #[test]
    fn each_is_chosen_once_and_only_by_its_name() {
        let built_in = 1 + usize::from(cfg!(feature = "rivals-rt"));
        assert_eq!(chosen(None).unwrap().len(), built_in);
        assert_eq!(chosen(Some("superpoll-rt,all")).unwrap().len(), built_in);
        let error = chosen(Some("superpoll-rt,libuv")).unwrap_err().to_string();
        assert!(error.contains("\"libuv\"") && error.contains("superpoll-rt, tokio"), "{error}");
        if let Err(error) = chosen(Some("tokio")) {
            assert!(error.to_string().contains("--features rivals-rt"), "{error}");
        }
    }
}
