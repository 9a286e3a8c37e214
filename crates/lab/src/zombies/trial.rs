//! The servers in turn, round by round, each with every number of zombies at the same time.

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::channel::{self, Kind};
use crate::echo::Ratio;
use crate::echo::subject::Connections;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::http;
use crate::options;
use crate::output;
use crate::progress::Progress;
use crate::record::{self, Record};
use crate::server::generator::{Connection, Generator};
use crate::server::processors::Processors;
use crate::server::rounds::Slice;
use crate::server::turns::{self, Runner};
use crate::server::{Place, Server};
use crate::statistics;
use crate::sys::{process, socket};
use crate::zombies::crowd::{BYTES, Crowd, echo_load};
use crate::zombies::subject::{self, Entry, Work};
use crate::zombies::{Options, Row, gateway};

/// Descriptors that a server needs beside its connections.
const RESERVE: usize = 64;

/// The most silent connections that are there at a time: each takes the kernel some 8 KiB, both ends together.
const TOGETHER: usize = 70_000;

/// Until whoever parks silent connections has done so.
const PARKING_NS: u64 = 2_500_000_000;

/// The size of an echo server's buffer: more than a request has.
const ROOM: usize = 512;

fn points(options: &Options) -> Result<Vec<usize>> {
    let default = if options.output.quick { "0,100,1000" } else { "0,100,1000,9900" };
    let mut points = options::numbers("--zombies", options.zombies.as_deref().unwrap_or(default))?;
    points.push(0);
    points.sort_unstable();
    points.dedup();
    let most = (2 * channel::most_pairs()).saturating_sub(RESERVE + options.active);
    let limit = superpoll::limits::descriptors().1;
    if options.active == 0 || options.active > 1000 {
        let active = options.active;
        return Err(Error::usage(format!("--active {active} is not possible: give 1 to 1000")));
    }
    if let Some(zombies) = points.iter().find(|zombies| **zombies > most) {
        return Err(Error::usage(format!(
            "--zombies {zombies} is not possible: a server may have {most}, which is what the limit of {limit} \
             descriptors leaves"
        )));
    }
    if options.requests == 0 {
        return Err(Error::usage("--requests 0 measures nothing: give 1 or more"));
    }
    Ok(points)
}

pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    options.output.check()?;
    let (families, mut notes) = subject::chosen(options.subjects.as_deref())?;
    let points = points(options)?;
    for note in &notes {
        output::note(note);
    }
    // Before this thread keeps to one processor.
    let environment = Environment::here();
    let processors = Processors::here();
    let repetitions =
        options.output.repetitions.unwrap_or(if options.output.quick { 5 } else { 10 });
    let measured: Result<Vec<Row>> = processors.apart(|processor| {
        let place = Place { processor, second_thread: options.output.second_thread };
        let mut trial = Trial::new(options, &points, &families, repetitions, place);
        let [echo, web] = &families;
        trial.measure(echo, &mut notes, echo_load)?;
        trial.measure(web, &mut notes, http::load::load)?;
        Ok(trial.rows)
    });
    let rows = measured?;
    let all = || families.iter().flatten();
    let parameters: Map<String, Value> = [
        ("subjects", json!(all().map(|e| e.name).collect::<Vec<_>>())),
        ("about", all().map(|e| (e.name.to_owned(), json!(e.about))).collect()),
        ("zombies", json!(points)),
        ("active", json!(options.active)),
        ("requests", json!(options.requests)),
        ("bytes", json!(BYTES)),
        ("rounds", json!(repetitions)),
        ("client_processor", json!(processors.client())),
        ("server_processor", json!(processors.server())),
        ("quick", json!(options.output.quick)),
        ("second_thread", json!(options.output.second_thread)),
        ("bytes_verified", json!(true)),
        ("notes", json!(notes)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into_iter()
    .collect();
    let experiment = "zombies".to_owned();
    Ok(Record { schema: record::SCHEMA, experiment, environment, parameters, rows })
}

/// A server with its zombies and its load.
struct Live<C: Connection> {
    crowd: Crowd,
    runner: Runner<C>,
    /// The folder that it serves.
    folder: Option<TempDir>,
}

/// How connections to a server are made: by its name, from an address, to a port, so many.
type Connect<C> = fn(&'static str, Ipv4Addr, u16, usize) -> Result<Generator<C>>;

struct Trial<'a> {
    options: &'a Options,
    points: &'a [usize],
    repetitions: usize,
    place: Place,
    /// For one server with one number of zombies.
    budget_ns: f64,
    progress: Progress,
    rows: Vec<Row>,
}

impl<'a> Trial<'a> {
    fn new(
        options: &'a Options,
        points: &'a [usize],
        families: &[Vec<Entry>; 2],
        repetitions: usize,
        place: Place,
    ) -> Trial<'a> {
        let entries = families.iter().flatten().count();
        let runs = (entries * points.len()).max(1);
        let budget = options.output.budget(10.0, 300.0);
        let budget_ns = budget * 1e9 / runs as f64;
        let progress = Progress::new("zombies", runs * (repetitions + 1));
        Trial { options, points, repetitions, place, budget_ns, progress, rows: Vec::new() }
    }

    /// Measures the servers of a family, as many at a time as there may be connections, and its yardstick each time.
    fn measure<C: Connection>(
        &mut self,
        entries: &[Entry],
        notes: &mut Vec<String>,
        connect: Connect<C>,
    ) -> Result<()> {
        let Some((&yardstick, others)) = entries.split_first() else { return Ok(()) };
        let each: usize = self.points.iter().sum();
        let at_a_time = (TOGETHER / each.max(1)).clamp(2, 16) - 1;
        let mut groups: Vec<&[Entry]> = others.chunks(at_a_time).collect();
        if groups.is_empty() {
            groups.push(&[]);
        }
        for (number, group) in groups.into_iter().enumerate() {
            let (mut runners, mut about) = (Vec::new(), Vec::new());
            let (mut crowds, mut folders) = (Vec::new(), Vec::new());
            for entry in std::iter::once(yardstick).chain(group.iter().copied()) {
                for &zombies in self.points {
                    self.progress.step(format!("{} gets {zombies} zombies", entry.name));
                    match self.set_up(entry, zombies, connect) {
                        Ok(live) => {
                            runners.push(live.runner);
                            about.push((entry, zombies));
                            crowds.push(live.crowd);
                            folders.extend(live.folder);
                        }
                        Err(Error::Usage(reason)) if entry.is_limited && zombies > 0 => {
                            let name = entry.name;
                            let note = format!("{name} left out at {zombies} zombies: {reason}");
                            output::note(&note);
                            notes.push(note);
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            if group.iter().any(Entry::parks) {
                process::sleep(PARKING_NS);
            }
            let most = self.options.requests.div_ceil(self.repetitions as u64);
            let progress = &self.progress;
            let requests = turns::take_turns_of(
                &mut runners,
                self.repetitions,
                most,
                self.budget_ns,
                |name| {
                    progress.step(name.to_owned());
                },
            )?;
            crowds.iter_mut().try_for_each(Crowd::check)?;
            let mut rows = Vec::new();
            let each = runners.iter_mut().zip(&requests);
            for ((runner, &requests), &(entry, zombies)) in each.zip(&about) {
                rows.push(self.row(runner, entry, zombies, requests)?);
            }
            relate(&mut rows, &runners);
            // The yardstick is reported as it was beside the first ones.
            let skip = if number == 0 { 0 } else { self.points.len() };
            self.rows.extend(rows.into_iter().skip(skip));
            // Connections are to be reset, and not closed by the servers.
            drop(crowds);
        }
        Ok(())
    }

    fn set_up<C: Connection>(
        &self,
        entry: Entry,
        zombies: usize,
        connect: Connect<C>,
    ) -> Result<Live<C>> {
        let (name, place, active) = (entry.name, self.place, self.options.active);
        let work = entry.work()?;
        let (mut server, port, folder) = match work {
            Work::Gateway(backend) => {
                let (server, port, folder) = gateway::start(name, place, backend)?;
                (server, port, Some(folder))
            }
            Work::Echo(_) | Work::Web(_) => {
                let listener = listen()
                    .map_err(|e| Error::system("listening for a server's connections", e))?;
                let port = listener.local_addr().map_or(0, |address| address.port());
                let keeps = vec![listener.as_raw_fd()];
                let total = zombies + active;
                let server =
                    Server::begin(name, entry.counts, place, keeps, |control| match work {
                        Work::Echo(serve) => {
                            let sockets = accept(listener, total)
                                .map_err(|e| Error::system("accepting a connection", e))?;
                            serve(Connections { kind: Kind::Tcp, sockets, room: ROOM }, control)
                        }
                        Work::Web(serve) => {
                            listener
                                .set_nonblocking(true)
                                .map_err(|e| Error::system("setting a listener up", e))?;
                            serve(listener, control)
                        }
                        Work::Gateway(_) => Ok(()),
                    })?;
                (server, port, None)
            }
        };
        let mut crowd = Crowd::gather(name, entry.family(), port, zombies)?;
        let load = connect(name, Ipv4Addr::LOCALHOST, port, active)?;
        if !matches!(work, Work::Gateway(_)) {
            server.until_ready()?;
        }
        crowd.ask()?;
        let runner = Runner::new(server, load)?;
        Ok(Live { crowd, runner, folder })
    }

    fn row<C: Connection>(
        &self,
        runner: &mut Runner<C>,
        entry: Entry,
        zombies: usize,
        requests: u64,
    ) -> Result<Row> {
        let figures = runner.figures(requests)?;
        let clock: Vec<f64> =
            runner.slices().iter().map(|slice| slice.ns as f64 / requests as f64).collect();
        let ns = statistics::median(&clock);
        Ok(Row {
            subject: entry.name.to_owned(),
            family: entry.family().name().to_owned(),
            active: self.options.active,
            zombies,
            requests,
            cpu_ns_per_request_min: figures.cpu_ns_min,
            cpu_ns_per_request_median: figures.cpu_ns_median,
            cpu_spread: figures.cpu_spread,
            ns_per_request_median: ns,
            seconds: ns * self.options.requests as f64 / 1e9,
            generator_busy: figures.generator_busy,
            waits_per_request: figures.waits,
            epoll_ctl_per_request: figures.epoll_ctl,
            rounds: figures.rounds,
            none_ratio: None,
            none_clock_ratio: None,
            raw_epoll_ratio: None,
        })
    }
}

/// A listener whose connections inherit what all servers have alike.
fn listen() -> std::io::Result<TcpListener> {
    let listener = socket::listen(0, false)?;
    channel::plain_congestion(&listener);
    let listener = TcpListener::from(listener);
    listener.set_nonblocking(false)?;
    Ok(listener)
}

fn accept(listener: TcpListener, count: usize) -> std::io::Result<Vec<OwnedFd>> {
    let one = || {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(OwnedFd::from(stream))
    };
    (0..count).map(|_| one()).collect()
}

/// Fills in the ratios within the servers that took turns.
fn relate<C: Connection>(rows: &mut [Row], runners: &[Runner<C>]) {
    let places: Vec<(String, usize)> =
        rows.iter().map(|row| (row.subject.clone(), row.zombies)).collect();
    let requests: Vec<u64> = rows.iter().map(|row| row.requests).collect();
    let of = |subject: &str, zombies: usize| {
        let place =
            places.iter().position(|place| (place.0.as_str(), place.1) == (subject, zombies));
        place.map(|place| (runners[place].slices(), requests[place]))
    };
    let yardstick = places.first().map(|place| place.0.clone()).unwrap_or_default();
    for (row, runner) in rows.iter_mut().zip(runners) {
        let own = (runner.slices(), row.requests);
        if let Some(none) = of(&row.subject, 0) {
            row.none_ratio = ratio(own, none, |slice| slice.cpu_ns);
            row.none_clock_ratio = ratio(own, none, |slice| slice.ns);
        }
        row.raw_epoll_ratio =
            of(&yardstick, row.zombies).and_then(|raw| ratio(own, raw, |slice| slice.cpu_ns));
    }
}

/// Of a request, round by round, because what else the machine does changes with time. Given are the rounds of each
/// server and its requests in a round.
fn ratio(own: (&[Slice], u64), other: (&[Slice], u64), of: fn(&Slice) -> u64) -> Option<Ratio> {
    let share = other.1 as f64 / own.1.max(1) as f64;
    let ratios: Vec<f64> = own
        .0
        .iter()
        .zip(other.0)
        .filter(|(_, other)| of(other) > 0)
        .map(|(own, other)| of(own) as f64 / of(other) as f64 * share)
        .collect();
    let [low, high] = [0.1, 0.9].map(|share| statistics::quantile(&ratios, share));
    (!ratios.is_empty()).then(|| Ratio { median: statistics::median(&ratios), low, high })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_sorted_with_none_and_within_what_a_server_may_have() {
        let of = |zombies: &str, active, requests| {
            let zombies = Some(zombies.to_owned());
            super::points(&Options { zombies, active, requests, ..Options::default() })
        };
        assert_eq!(of("10, 2,10", 10, 1).unwrap(), [0, 2, 10]);
        for (zombies, active, requests, about) in [
            ("x", 10, 1, "--zombies"),
            ("10000000", 10, 1, "--zombies 10000000"),
            ("1", 0, 1, "--active 0"),
            ("1", 5000, 1, "--active 5000"),
            ("1", 1, 0, "--requests 0"),
        ] {
            let error = of(zombies, active, requests).unwrap_err().to_string();
            assert!(error.contains(about), "{error}");
        }
    }

    #[test]
    fn ratios_are_those_of_each_round() {
        let slices = |all: &[u64]| -> Vec<Slice> {
            all.iter().map(|&ns| Slice { cpu_ns: ns, ns: 2 * ns }).collect()
        };
        let (own, other) = (slices(&[50, 300, 110]), slices(&[100, 200, 100]));
        let found = ratio((&own, 8), (&other, 8), |s| s.ns).unwrap();
        assert_eq!(found, Ratio { median: 1.1, low: 0.5, high: 1.5 });
        // With a quarter of the requests.
        let found = ratio((&own, 2), (&other, 8), |s| s.cpu_ns).unwrap();
        assert_eq!(found, Ratio { median: 4.4, low: 2.0, high: 6.0 });
        assert_eq!(ratio((&own, 1), (&[], 1), |s| s.ns), None);
    }
}
