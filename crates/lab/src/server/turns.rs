//! Servers that take turns, each with its load generator, and the cost of a request.

use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::error::Result;
use crate::experiment::Figure;
use crate::rivals::Lost;
use crate::server::generator::Load;
use crate::server::rounds::{self, Slice};
use crate::server::{Counts, Server};
use crate::statistics::{self, Ratio};

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
    fn of(slices: &[Slice], busy: &[f64], requests: u64) -> Figures {
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
        let slice = rounds::round(&self.servers, || self.load.go(requests))?;
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
    let connections = runners.iter().map(|runner| runner.load.connections()).max().unwrap_or(1);
    let requests = rounds::share(&request_ns, budget.rounds(ROUNDS), budget.left() * 1e9);
    let requests = requests.max(connections as u64).max(L::LEAST);
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
        let fit = rounds::share(&[runner.request_ns], 1, slot);
        fit.min(most).max(runner.load.connections() as u64)
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
