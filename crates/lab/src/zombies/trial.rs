//! The servers in turn, round by round, each with every number of zombies at the same time.

use serde_json::json;

use crate::budget::Budget;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::http;
use crate::progress::Progress;
use crate::record::Record;
use crate::rivals::{self, Lost};
use crate::say;
use crate::server::ProcessOptions;
use crate::server::generator::Connection;
use crate::server::processors::Processors;
use crate::server::rounds::Slice;
use crate::server::turns::{self, Runner};
use crate::statistics::{self, Ratio};
use crate::sys::process;
use crate::zombies::crowd::{BYTES, echo_load};
use crate::zombies::fleet::{self, Connect};
use crate::zombies::point::{self, Point};
use crate::zombies::subject::{self, Entry};
use crate::zombies::{Options, Row};

/// The most silent connections that exist at a time where one process has them: each takes the
/// kernel some 8 KiB, both ends together.
const TOGETHER: usize = 70_000;

/// How long it takes until a server that parks silent connections has parked them.
const PARKING_NS: u64 = 2_500_000_000;

/// The servers that are measured with several processes, unless the options name servers: it takes
/// a while until that many zombies have connected.
const SHARED: [&str; 8] = [
    "raw-epoll",
    "superpoll-poll",
    "superpoll-rt-epoll",
    "superpoll-rt-adaptive",
    "tokio",
    "raw-epoll-http",
    "gateway-epoll",
    "gateway-adaptive",
];

pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    options.output.check()?;
    let (families, mut notes) = subject::chosen(options.subjects.as_deref())?;
    let (groups, cut) = point::groups(options)?;
    notes.extend(cut);
    for note in &notes {
        say::note(note);
    }
    // Taken before this thread binds itself to one processor.
    let environment = Environment::here();
    let processors = Processors::here();
    // The servers of each group of points.
    let plan: Vec<(&[Point], [Vec<Entry>; 2])> = groups
        .iter()
        .map(|points| {
            let is_shared = points.iter().any(|point| point.workers > 1);
            let mut own = families.clone();
            if is_shared && options.subjects.is_none() {
                own.iter_mut().for_each(|family| family.retain(|e| SHARED.contains(&e.name)));
            }
            (points.as_slice(), own)
        })
        .collect();
    let mut lost = Lost::default();
    let measured: Result<_> = processors.apart(|processor| {
        let process = ProcessOptions { processor, second_thread: options.output.second_thread };
        let mut trial = Trial::new(options, &plan, process);
        for (points, [echo, web]) in &plan {
            trial.measure(points, echo, &mut notes, &mut lost, echo_load)?;
            trial.measure(points, web, &mut notes, &mut lost, http::load::load)?;
        }
        Ok((trial.rows, trial.budget))
    });
    let (rows, budget) = measured?;
    notes.extend(lost.notes());
    let all = || families.iter().flatten();
    let own = [
        ("subjects", json!(all().map(|e| e.name).collect::<Vec<_>>())),
        ("about", all().map(|e| (e.name.to_owned(), json!(e.about))).collect()),
        ("zombies", json!(groups.iter().flatten().map(|p| p.zombies).collect::<Vec<_>>())),
        ("workers", json!(groups.iter().flatten().map(|p| p.workers).collect::<Vec<_>>())),
        ("active", json!(options.active)),
        ("requests", json!(options.requests)),
        ("bytes", json!(BYTES)),
        ("client_processor", json!(processors.client())),
        ("server_processor", json!(processors.server())),
        ("bytes_verified", json!(true)),
        ("rivals", rivals::versions(subject::ALL.iter().map(|entry| entry.name))),
        ("notes", json!(notes)),
    ];
    let parameters = options.output.parameters().into_iter().chain(own).chain(budget.end());
    Ok(Record::new("zombies", environment, parameters, rows))
}

struct Trial<'a> {
    options: &'a Options,
    process: ProcessOptions,
    budget: Budget,
    progress: Progress,
    rows: Vec<Row>,
}

impl<'a> Trial<'a> {
    fn new(
        options: &'a Options,
        plan: &[(&[Point], [Vec<Entry>; 2])],
        process: ProcessOptions,
    ) -> Trial<'a> {
        let runs = |(points, families): &(&[Point], [Vec<Entry>; 2])| {
            points.len() * families.iter().flatten().count()
        };
        let runs = plan.iter().map(runs).sum::<usize>().max(1);
        let groups = |(points, families): &(&[Point], [Vec<Entry>; 2])| -> usize {
            families.iter().map(|entries| groups(points, entries).len()).sum()
        };
        let budget = Budget::new(&options.output, plan.iter().map(groups).sum(), 10.0, 300.0);
        let progress = Progress::new("zombies", runs * (turns::ROUNDS + 1));
        Trial { options, process, budget, progress, rows: Vec::new() }
    }

    /// Measures the servers of a family, as many at a time as the limit of connections allows, and
    /// its yardstick each time.
    fn measure<C: Connection>(
        &mut self,
        points: &[Point],
        entries: &[Entry],
        notes: &mut Vec<String>,
        lost: &mut Lost,
        connect: Connect<C>,
    ) -> Result<()> {
        for (number, group) in groups(points, entries).into_iter().enumerate() {
            if !self.budget.point() {
                continue;
            }
            let (mut runners, mut about) = (Vec::new(), Vec::new());
            let (mut crowds, mut folders) = (Vec::new(), Vec::new());
            for &entry in &group {
                for &point in points {
                    let (name, zombies) = (entry.name, point.zombies);
                    if lost.has(entry.name) || self.budget.is_over() {
                        continue;
                    }
                    self.progress.step(format!("{name} gets {zombies} zombies"));
                    match fleet::set_up(entry, point, self.options.active, self.process, connect) {
                        Ok(live) => {
                            runners.push(live.runner);
                            about.push((entry, point, live.kernel_bytes_per_zombie));
                            crowds.push(live.crowd);
                            folders.extend(live.folders);
                        }
                        Err(Error::Usage(reason)) if entry.is_limited && zombies > 0 => {
                            let note = format!("{name} left out at {zombies} zombies: {reason}");
                            say::note(&note);
                            notes.push(note);
                        }
                        Err(error) => {
                            lost.keep(entry.name, Err::<(), _>(error))?;
                        }
                    }
                }
            }
            if group.iter().any(Entry::parks) {
                process::sleep(PARKING_NS);
            }
            let most = self.options.requests.div_ceil(self.budget.rounds(turns::ROUNDS) as u64);
            let progress = &self.progress;
            let requests =
                turns::take_turns_of(&mut runners, &mut self.budget, most, lost, |name| {
                    progress.step(name.to_owned());
                })?;
            let (mut rows, runners) = turns::rows(runners, lost, |place, runner| {
                let (entry, point, bytes) = about[place];
                crowds[place].check()?;
                let row = self.row(runner, entry, point, requests[place])?;
                Ok(Row { kernel_bytes_per_zombie: bytes, ..row })
            })?;
            relate(&mut rows, &runners);
            // The report has the yardstick as it was next to the first servers.
            let skip = if number == 0 { 0 } else { points.len() };
            self.rows.extend(rows.into_iter().skip(skip));
            // The clients must reset the connections before the servers close them.
            drop(crowds);
        }
        Ok(())
    }

    fn row<C: Connection>(
        &self,
        runner: &mut Runner<C>,
        entry: Entry,
        point: Point,
        requests: u64,
    ) -> Result<Row> {
        let clock: Vec<f64> =
            runner.slices().iter().map(|slice| slice.ns as f64 / requests as f64).collect();
        let ns = statistics::median(&clock);
        Ok(Row {
            subject: entry.name.to_owned(),
            family: entry.family().name().to_owned(),
            active: self.options.active,
            workers: point.workers,
            zombies: point.zombies,
            figures: runner.figures(requests)?,
            ns_per_request_median: ns,
            seconds: ns * self.options.requests as f64 / 1e9,
            ..Row::default()
        })
    }
}

/// Returns the servers of a family in groups that fit under the limit of connections, each with the
/// yardstick in front.
fn groups(points: &[Point], entries: &[Entry]) -> Vec<Vec<Entry>> {
    let Some((&yardstick, others)) = entries.split_first() else { return Vec::new() };
    let each: usize = points.iter().map(|point| point.zombies).sum();
    let at_a_time = (TOGETHER / each.max(1)).clamp(2, 16) - 1;
    let with_yardstick = |group: &[Entry]| [&[yardstick][..], group].concat();
    match others {
        [] => vec![vec![yardstick]],
        others => others.chunks(at_a_time).map(with_yardstick).collect(),
    }
}

/// Fills in the ratios within the servers that took turns.
fn relate<C: Connection>(rows: &mut [Row], runners: &[Runner<C>]) {
    let places: Vec<(String, usize, usize)> =
        rows.iter().map(|row| (row.subject.clone(), row.workers, row.zombies)).collect();
    let requests: Vec<u64> = rows.iter().map(|row| row.figures.requests).collect();
    let of = |subject: &str, workers: usize, zombies: usize| {
        let wanted = (subject, workers, zombies);
        let place = places.iter().position(|place| (place.0.as_str(), place.1, place.2) == wanted);
        place.map(|place| (runners[place].slices(), requests[place]))
    };
    let yardstick = places.first().map(|place| place.0.clone()).unwrap_or_default();
    for (row, runner) in rows.iter_mut().zip(runners) {
        let own = (runner.slices(), row.figures.requests);
        if let Some(none) = of(&row.subject, row.workers, 0) {
            row.none_ratio = ratio(own, none, |slice| slice.cpu_ns);
            row.none_clock_ratio = ratio(own, none, |slice| slice.ns);
        }
        row.raw_epoll_ratio = of(&yardstick, row.workers, row.zombies)
            .and_then(|raw| ratio(own, raw, |slice| slice.cpu_ns));
    }
}

/// The ratio per request. The arguments are the rounds of each server and its requests in a round.
fn ratio(own: (&[Slice], u64), other: (&[Slice], u64), of: fn(&Slice) -> u64) -> Option<Ratio> {
    let costs = |(slices, requests): (&[Slice], u64)| -> Vec<f64> {
        slices.iter().map(|slice| of(slice) as f64 / requests.max(1) as f64).collect()
    };
    Ratio::of(&costs(own), &costs(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_each_round() {
        let slices = |all: &[u64]| -> Vec<Slice> {
            all.iter().map(|&ns| Slice { cpu_ns: ns, ns: 2 * ns }).collect()
        };
        let (own, other) = (slices(&[50, 300, 110]), slices(&[100, 200, 100]));
        let of_turns = |found: Option<Ratio>| found.map(|r| (r.low, r.median, r.high));
        let found = ratio((&own, 8), (&other, 8), |s| s.ns);
        assert_eq!(of_turns(found), Some((0.5, 1.1, 1.5)));
        assert_eq!(found.unwrap().headline().value, 0.5);
        // With a quarter of the requests.
        assert_eq!(of_turns(ratio((&own, 2), (&other, 8), |s| s.cpu_ns)), Some((2.0, 4.4, 6.0)));
        assert_eq!(ratio((&own, 1), (&[], 1), |s| s.ns), None);
    }
}
