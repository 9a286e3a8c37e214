//! A trial of servers: at each point the participating servers are set up and take turns, on a
//! processor of their own.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::experiment::Figure;
use crate::options::Output;
use crate::record::Record;
use crate::rivals::Lost;
use crate::run::Run;
use crate::server::program::Processors;
use crate::server::subject::{self, Subject};
use crate::server::web::Load;
use crate::server::{Counts, ProcessOptions, Server};
use crate::statistics::{self, Ratio};
use crate::sys::process;

/// The parameters of a trial that are known beforehand.
pub(crate) struct Plan<'a, Start> {
    /// The experiment.
    pub name: &'static str,
    /// The options that all experiments have.
    pub output: &'a Output,
    /// The servers that take part.
    pub subjects: &'a [Subject<Start>],
    /// The names of all servers, for the versions of the rivals among them.
    pub all: Vec<&'static str>,
    /// The time.
    pub budget: Budget,
    /// The rivals that have failed already.
    pub lost: Lost,
    /// What is left out or made smaller, and why.
    pub notes: Vec<String>,
    /// How many steps are shown.
    pub steps: usize,
}

/// A trial under way.
pub(crate) struct Trial<'a> {
    /// Its time, its progress and the rivals that have failed.
    pub run: Run<'a>,
    /// Where servers are started.
    pub process: ProcessOptions,
}

impl<'a, Start> Plan<'a, Start> {
    /// Creates the plan of servers that take turns at this many points, with `seconds` for each
    /// unless the options set a time.
    pub(crate) fn new(
        name: &'static str,
        output: &'a Output,
        subjects: &'a [Subject<Start>],
        points: usize,
        seconds: f64,
    ) -> Plan<'a, Start> {
        Plan {
            name,
            output,
            subjects,
            all: Vec::new(),
            budget: Budget::new(output, points, 10.0, seconds * points as f64),
            lost: Lost::default(),
            notes: Vec::new(),
            steps: points * subjects.len() * (ROUNDS + 2),
        }
    }

    /// Measures at each point, as long as there is time, and returns the record, with the
    /// experiment's own parameters.
    pub(crate) fn run<Point, Row>(
        self,
        points: &[Point],
        own: impl IntoIterator<Item = (&'static str, Value)>,
        mut measure: impl FnMut(&mut Trial<'_>, &Point) -> Result<Vec<Row>>,
    ) -> Result<Record<Row>> {
        let Plan { name, output, subjects, all, budget, lost, notes, steps } = self;
        // Before this thread keeps to one processor.
        let mut run = Run::new(name, output, notes, steps, budget);
        run.lost = lost;
        let processors = Processors::here();
        let (run, rows) = processors.apart(|processor| {
            let process = ProcessOptions { processor, second_thread: output.second_thread };
            let mut trial = Trial { run, process };
            let mut rows = Vec::new();
            for point in points {
                if trial.run.budget.point() {
                    let measured = measure(&mut trial, point);
                    rows.extend(trial.run.budget.keep(measured)?.into_iter().flatten());
                }
            }
            Ok::<_, Error>((trial.run, rows))
        })?;
        let here = [
            ("client_processor", json!(processors.client())),
            ("server_processor", json!(processors.server())),
            ("bytes_verified", json!(true)),
        ];
        let own = own.into_iter().chain(here).chain(subject::parameters(subjects, all));
        Ok(run.record(own, rows))
    }
}

impl Trial<'_> {
    /// Starts something for each of these servers that has not failed yet, as long as there is
    /// time. `about` is shown with each.
    pub(crate) fn start_each<Start: Copy, T>(
        &mut self,
        subjects: impl IntoIterator<Item = Subject<Start>>,
        about: &str,
        mut start: impl FnMut(Subject<Start>, ProcessOptions) -> Result<T>,
    ) -> Result<Vec<T>> {
        let Trial { run: Run { budget, lost, progress, .. }, process } = self;
        let mut all = Vec::new();
        for subject in subjects {
            let name = subject.name;
            // Without time, the point is left out.
            if budget.is_over() {
                break;
            }
            if !lost.has(name) {
                progress.step(format!("{name} begins: {about}"));
                all.extend(lost.keep(name, start(subject, *process))?);
            }
        }
        Ok(all)
    }

    /// Sets up the servers that have not failed yet, lets them take turns, and returns a row of
    /// each. `set_up` also returns what has to live as long as the server; `row` gets that, and the
    /// figures of the rounds. `about` is shown with each step.
    pub(crate) fn take_turns<Start: Copy, L: Load, Kept, Row>(
        &mut self,
        subjects: impl IntoIterator<Item = Subject<Start>>,
        about: &str,
        set_up: impl FnMut(Subject<Start>, ProcessOptions) -> Result<(Runner<L>, Kept)>,
        row: impl FnMut(&mut Runner<L>, &mut Kept, Figures) -> Result<Row>,
    ) -> Result<Vec<Row>> {
        let all = self.start_each(subjects, about, set_up)?;
        // The servers end before what they need.
        let (mut kept, mut runners) = (Vec::new(), Vec::new());
        for (runner, own) in all {
            runners.push(runner);
            kept.push(own);
        }
        self.figures(&mut runners, &mut kept, about, row)
    }

    /// Lets servers take turns that are set up, each with something that `row` gets.
    pub(crate) fn figures<L: Load, Kept, Row>(
        &mut self,
        runners: &mut [Runner<L>],
        kept: &mut [Kept],
        about: &str,
        mut row: impl FnMut(&mut Runner<L>, &mut Kept, Figures) -> Result<Row>,
    ) -> Result<Vec<Row>> {
        let Run { budget, lost, progress, .. } = &mut self.run;
        let begins = |name| progress.step(format!("{name}: {about}"));
        let requests = take_turns(runners, budget, lost, begins)?;
        rows(runners, lost, |place, runner| {
            progress.step(format!("{}: {about}: figures", runner.name()));
            let figures = runner.figures(requests)?;
            row(runner, &mut kept[place], figures)
        })
    }
}

// Servers that take turns, each with its load generator, and the cost of a request.

/// A server, its load generator, and its results.
pub(crate) struct Runner<L> {
    // Before the server, so that its connections are reset and not closed by the other side.
    load: L,
    /// Its processes, one unless it has workers.
    servers: Vec<Server>,
    name: &'static str,
    /// A request in nanoseconds, from the pilot.
    request_ns: f64,
    before: Option<Counts>,
    slices: Vec<Slice>,
    /// The share of its processor that the generator used, round by round.
    busy: Vec<f64>,
    /// Whether it no longer takes part.
    is_lost: bool,
}

/// The figures of a server, which are part of a row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Figures {
    /// Requests in a round, over all connections.
    pub requests: u64,
    /// Processor time of the server's processes per request, in the cheapest round.
    pub cpu_ns_per_request_min: f64,
    /// The same in the median round.
    pub cpu_ns_per_request_median: f64,
    /// The most expensive round less the cheapest.
    pub cpu_spread: f64,
    /// Answers per second, in the median round. The figure depends on the load generator, too.
    pub requests_per_second: f64,
    /// The share of its processor that the load generator used, in the median round.
    pub generator_busy: f64,
    /// Waits of the poller, if the server counts them.
    pub waits_per_request: Option<f64>,
    /// Calls of `epoll_ctl`, if the server counts them.
    pub epoll_ctl_per_request: Option<f64>,
    /// Rounds measured.
    pub rounds: usize,
    /// Processor time per request in each round, while the point is measured.
    #[serde(skip)]
    pub cpu_ns: Vec<f64>,
    /// Time on the clock per request in each round, likewise.
    #[serde(skip)]
    pub clock_ns: Vec<f64>,
}

impl Figures {
    /// Returns the figures of some rounds with the same number of requests each, and of how busy
    /// the load generator was in them.
    pub(crate) fn of(slices: &[Slice], busy: &[f64], requests: u64) -> Figures {
        let each = |of: fn(&Slice) -> u64| -> Vec<f64> {
            slices.iter().map(|slice| of(slice) as f64 / requests as f64).collect()
        };
        let (times, cpu) = (each(|slice| slice.ns), each(|slice| slice.cpu_ns));
        Figures {
            requests,
            cpu_ns_per_request_min: statistics::minimum(&cpu),
            cpu_ns_per_request_median: statistics::median(&cpu),
            cpu_spread: statistics::maximum(&cpu) - statistics::minimum(&cpu),
            requests_per_second: 1e9 / statistics::median(&times).max(1.0),
            generator_busy: statistics::median(busy),
            waits_per_request: None,
            epoll_ctl_per_request: None,
            rounds: slices.len(),
            cpu_ns: cpu,
            clock_ns: times,
        }
    }

    /// Returns the figures with these counters of so many requests.
    pub(crate) fn with(self, counts: Option<Counts>, requests: u64) -> Figures {
        let each = |of: fn(&Counts) -> u64| Some(of(counts.as_ref()?) as f64 / requests as f64);
        Figures {
            waits_per_request: each(|counts| counts.waits),
            epoll_ctl_per_request: each(|counts| counts.epoll_ctl),
            ..self
        }
    }

    /// Returns the ratio of the processor time of a request to that of another server that took
    /// turns with this one.
    pub(crate) fn ratio(&self, other: &Figures) -> Option<Ratio> {
        Ratio::of(&self.cpu_ns, &other.cpu_ns)
    }

    /// Returns the processor time as a figure, for the comparison with another report.
    pub(crate) fn compared(&self, at: String) -> Figure {
        let (least, median) = (self.cpu_ns_per_request_min, self.cpu_ns_per_request_median);
        Figure::of_cost(at, "processor time by request, ns", least, median)
    }
}

impl<L: Load> Runner<L> {
    /// Creates the runner, and measures how long a request takes.
    pub(crate) fn new(server: Server, load: L) -> Result<Runner<L>> {
        Runner::of_workers(server.name(), vec![server], load)
    }

    /// Like [`new`](Runner::new), for a server that shares its connections among several processes.
    /// Its cost is the sum over all of them.
    pub(crate) fn of_workers(
        name: &'static str,
        servers: Vec<Server>,
        mut load: L,
    ) -> Result<Runner<L>> {
        let request_ns = load.pilot()?;
        let (slices, busy) = (Vec::new(), Vec::new());
        Ok(Runner { load, servers, name, request_ns, before: None, slices, busy, is_lost: false })
    }

    /// Returns the server's name.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the number of the server's process, the first if it has several.
    pub(crate) fn pid(&self) -> i32 {
        self.servers.first().map_or(0, Server::pid)
    }

    /// Returns the counters of all its processes together, if they count.
    fn counts(&mut self) -> Result<Option<Counts>> {
        let mut sum = Some(Counts::default());
        for server in &mut self.servers {
            sum = sum.zip(server.counts()?).map(|(mut sum, own)| {
                sum.add(own);
                sum
            });
        }
        Ok(sum)
    }

    /// Sends this many requests in total, outside of any round.
    pub(crate) fn ask(&mut self, requests: u64) -> Result<()> {
        self.load.go(requests).map(drop)
    }

    /// Whether all its processes can be asked for their counters.
    pub(crate) fn is_counting(&self) -> bool {
        self.servers.iter().all(Server::is_counting)
    }

    /// Sends this many requests, and returns the server's counters over them, if it counts.
    pub(crate) fn count(&mut self, requests: u64) -> Result<Option<Counts>> {
        let before = self.counts()?;
        self.ask(requests)?;
        Ok(self.counts()?.zip(before).map(|(now, before)| now.since(&before)))
    }

    /// Returns its load.
    pub(crate) fn load(&self) -> &L {
        &self.load
    }

    fn round(&mut self, requests: u64) -> Result<()> {
        let slice = round(&self.servers, || self.load.go(requests))?;
        self.busy.push(self.load.busy_ns() as f64 / slice.ns.max(1) as f64);
        self.slices.push(slice);
        Ok(())
    }

    /// Returns the cost of a request, in rounds of this many requests.
    pub(crate) fn figures(&mut self, requests: u64) -> Result<Figures> {
        let counted = self.counts()?.zip(self.before.as_ref());
        let counted = counted.map(|(now, before)| now.since(before));
        let figures = Figures::of(&self.slices, &self.busy, requests);
        Ok(figures.with(counted, requests * self.slices.len() as u64))
    }
}

/// The number of rounds that requests are shared out for, unless the options give one.
pub(crate) const ROUNDS: usize = 11;

/// Lets the servers take turns, in the rounds of a point. `begins` is called with the server whose
/// turn it is. Returns how many requests each got in a round. A rival that fails is lost, and the
/// remaining servers go on.
pub(crate) fn take_turns<L: Load>(
    runners: &mut [Runner<L>],
    budget: &mut Budget,
    lost: &mut Lost,
    mut begins: impl FnMut(&'static str),
) -> Result<u64> {
    let request_ns: Vec<f64> = runners.iter().map(|runner| runner.request_ns).collect();
    let under_way = runners.iter().map(|runner| runner.load.under_way()).max().unwrap_or(1);
    let requests = share(&request_ns, budget.rounds(ROUNDS), budget.left() * 1e9);
    let requests = requests.max(under_way as u64).max(L::LEAST);
    let same = vec![requests; runners.len()];
    in_turn(runners, budget, &same, lost, &mut begins)?;
    Ok(requests)
}

/// Like [`take_turns`], but each server gets `most` requests in a round, or as many as fit into the
/// time of one server: a slow server does not reduce the requests of the rest. Returns how many
/// each got.
pub(crate) fn take_turns_of<L: Load>(
    runners: &mut [Runner<L>],
    budget: &mut Budget,
    most: u64,
    lost: &mut Lost,
    mut begins: impl FnMut(&'static str),
) -> Result<Vec<u64>> {
    let slot = budget.slot(runners.len(), ROUNDS) * 1e9;
    let of = |runner: &Runner<L>| {
        let fit = share(&[runner.request_ns], 1, slot);
        fit.min(most).max(runner.load.under_way() as u64)
    };
    let requests: Vec<u64> = runners.iter().map(of).collect();
    in_turn(runners, budget, &requests, lost, &mut begins)?;
    Ok(requests)
}

fn in_turn<L: Load>(
    runners: &mut [Runner<L>],
    budget: &mut Budget,
    requests: &[u64],
    lost: &mut Lost,
    begins: &mut impl FnMut(&'static str),
) -> Result<()> {
    for runner in &mut *runners {
        let counts = runner.counts();
        runner.before = lost.keep(runner.name(), counts)?.flatten();
        runner.is_lost = lost.has(runner.name());
    }
    while budget.round() {
        for place in budget.turns(runners.len()) {
            let runner = &mut runners[place];
            if runner.is_lost {
                continue;
            }
            begins(runner.name());
            let done = runner.round(requests[place]);
            runner.is_lost = lost.keep(runner.name(), done)?.is_none();
        }
    }
    Ok(())
}

/// Returns the row of each server that is still there, by its place among all. A rival that fails
/// now is lost too.
pub(crate) fn rows<L: Load, Row>(
    runners: &mut [Runner<L>],
    lost: &mut Lost,
    mut row: impl FnMut(usize, &mut Runner<L>) -> Result<Row>,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (place, runner) in runners.iter_mut().enumerate() {
        if !runner.is_lost && !runner.slices.is_empty() {
            let row = row(place, runner);
            rows.extend(lost.keep(runner.name(), row)?);
        }
    }
    Ok(rows)
}

/// Fills in the ratios within a point. `of` returns the server of a row and its figures; `fill`
/// gets the ratio of a row's processor time to that of a server.
pub(crate) fn relate<Row>(
    rows: &mut [Row],
    of: fn(&Row) -> (&str, &Figures),
    fill: impl Fn(&mut Row, &dyn Fn(&str) -> Option<Ratio>),
) {
    let all: Vec<(String, Figures)> =
        rows.iter().map(|row| (of(row).0.to_owned(), of(row).1.clone())).collect();
    for (row, (_, own)) in rows.iter_mut().zip(&all) {
        fill(row, &|server| {
            let (_, other) = all.iter().find(|(name, _)| name == server)?;
            own.ratio(other)
        });
    }
}

// The rounds of servers that take turns, each with a load generator on another processor.

/// Requests on each connection before all other requests.
const WARM_UP: u64 = 20;

/// How long requests are sent before the server's pace is measured: the first requests are slow.
pub(crate) const PILOT_NS: u64 = 20_000_000;

/// A round takes no longer than this, whatever the time.
const LONGEST_NS: f64 = 5e9;

/// The time that a server gets to fall asleep after the last request of a round.
const SETTLING_NS: u64 = 2_000_000;

/// The times of one round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slice {
    /// From the first request to the last answer.
    pub ns: u64,
    /// The processor time of the server's processes.
    pub cpu_ns: u64,
}

/// Sends a server enough requests to measure its pace reliably; returns how long a request takes,
/// in nanoseconds.
pub(crate) fn pilot(connections: usize, mut go: impl FnMut(u64) -> Result<u64>) -> Result<f64> {
    let requests = WARM_UP * connections as u64;
    // Not believed, however long it takes.
    go(requests)?;
    pace(requests, PILOT_NS, go)
}

/// Sends requests, twice as many each time, until they take long enough; returns how long one takes
/// then, in nanoseconds.
pub(crate) fn pace(
    mut requests: u64,
    least_ns: u64,
    mut go: impl FnMut(u64) -> Result<u64>,
) -> Result<f64> {
    let mut ns = go(requests)?;
    while ns < least_ns {
        requests *= 2;
        ns = go(requests)?;
    }
    Ok(ns as f64 / requests as f64)
}

/// Returns how many requests each server gets in a round, the same for all, so that all rounds fit
/// into the time.
pub(crate) fn share(request_ns: &[f64], rounds: usize, budget_ns: f64) -> u64 {
    let sum: f64 = request_ns.iter().sum();
    let slowest = statistics::maximum(request_ns).max(1.0);
    let requests = budget_ns / (rounds as f64 * sum.max(1.0));
    requests.min(LONGEST_NS / slowest).max(1.0) as u64
}

/// Runs one round of a server, in one process or several.
pub(crate) fn round(servers: &[Server], go: impl FnOnce() -> Result<u64>) -> Result<Slice> {
    let processor_time = || servers.iter().map(Server::processor_time).sum::<Result<u64>>();
    let before = processor_time()?;
    let ns = go()?;
    // For a running process, the kernel reports the time used up to the last tick of the clock,
    // which may be milliseconds ago; for a sleeping one, all of its time.
    process::sleep(SETTLING_NS);
    Ok(Slice { ns, cpu_ns: processor_time()? - before })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_fit_into_the_time() {
        assert_eq!(share(&[1000.0, 3000.0], 10, 4e6), 100);
        assert_eq!(share(&[1e6], 1, 1e12), 5000);
        assert_eq!(share(&[1e9], 5, 1.0), 1);
    }

    #[test]
    fn the_first_requests_are_not_believed() {
        let mut cold = true;
        let ns = pilot(10, |requests| {
            Ok(requests * if std::mem::take(&mut cold) { 5_000_000 } else { 200_000 })
        });
        assert_eq!(ns.unwrap(), 200_000.0);
    }

    #[test]
    fn a_pace_is_believed_after_a_while() {
        let mut asked = Vec::new();
        let ns = pilot(3, |requests| {
            asked.push(requests);
            Ok(requests * 100_000)
        });
        assert_eq!((ns.unwrap(), &asked[..]), (100_000.0, &[60, 60, 120, 240][..]));
    }
}
