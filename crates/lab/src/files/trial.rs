//! The servers in turn, round by round; then their calls.

use std::path::Path;
use std::rc::Rc;

use serde_json::json;

use crate::error::{Error, Result};
use crate::files::load::{Connection, load};
use crate::files::subject::{self, Entry, Kind};
use crate::files::{NAME, Options, Row, nginx, ours};
use crate::random::Random;
use crate::record::Record;
use crate::relay::peers::Folder;
use crate::relay::strace::{self, Trace};
use crate::rivals::Lost;
use crate::server::generator::check_connections;
use crate::server::rounds::{Slice, ratio};
use crate::server::trial::{Plan, Trial};
use crate::server::turns::{self, Figures, Runner};
use crate::server::{ProcessOptions, Server, program};
use crate::{channel, options, say};

/// The longest file: one server holds it in memory, and so does the generator.
const LONGEST: usize = 64 << 20;

/// A file and the number of connections that request it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Point {
    bytes: usize,
    connections: usize,
}

fn points(options: &Options, servers: usize) -> Result<Vec<Point>> {
    let lengths = options::numbers("--bytes", &options.bytes)?;
    let numbers = options::numbers("--connections", &options.connections)?;
    if let Some(bytes) = lengths.iter().find(|bytes| !(1..=LONGEST).contains(*bytes)) {
        let text = format!("--bytes {bytes} is not possible: give 1 to {LONGEST}");
        return Err(Error::usage(text));
    }
    for &connections in &numbers {
        check_connections(connections, servers)?;
    }
    let mut points = Vec::new();
    for bytes in lengths {
        for &connections in &numbers {
            let point = Point { bytes, connections };
            if !points.contains(&point) {
                points.push(point);
            }
        }
    }
    Ok(points)
}

/// Returns the contents of a file of this length: the same in every run with the same seed, without
/// repetition inside the file.
fn contents(bytes: usize, seed: u64) -> Rc<[u8]> {
    let mut random = Random::new(seed ^ bytes as u64);
    let words = std::iter::repeat_with(|| random.bits().to_ne_bytes());
    words.take(bytes.div_ceil(8)).flatten().take(bytes).collect()
}

pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    options.output.check()?;
    let (entries, mut notes) = subject::chosen(options.subjects.as_deref())?;
    let points = points(options, entries.len())?;
    notes.extend(channel::plain_network());
    notes.iter().for_each(|note| say::note(note));
    let output = &options.output;
    let plan = Plan { name: "files", output, seconds: 30.0, servers: entries.len() };
    let done = plan
        .run(Lost::default(), &points, |trial, point| measure(options, &entries, trial, point))?;
    let more = [("congestion_control", json!(channel::default_congestion()))];
    let servers = entries.iter().map(|entry| (entry.name, entry.about));
    Ok(done.record(servers, subject::ALL.iter().map(|entry| entry.name), notes, more))
}

fn measure(
    options: &Options,
    entries: &[Entry],
    trial: &mut Trial,
    point: Point,
) -> Result<Vec<Row>> {
    let about = format!("{} bytes, {} connections", point.bytes, point.connections);
    let root = Folder::new("files")?;
    let file = contents(point.bytes, options.output.seed);
    let path = root.path().join(NAME);
    std::fs::write(&path, &file)
        .map_err(|e| Error::system(format!("writing {}", path.display()), e))?;
    let process = trial.process;
    let begun = trial.set_up(
        entries.iter().copied(),
        |entry| entry.name,
        &about,
        |entry| {
            let folder = Folder::new(entry.name)?;
            let (server, port) = start(entry, process, folder.path(), root.path())?;
            Ok((Runner::new(server, load(entry.name, port, point.connections, &file)?)?, folder))
        },
    )?;
    let (mut runners, folders): (Vec<_>, Vec<_>) = begun.into_iter().unzip();
    let Trial { budget, lost, progress, .. } = trial;
    let requests = turns::take_turns(&mut runners, budget, lost, |server| {
        progress.step(format!("{server}: {about}"));
    })?;
    let (mut together, runners) = turns::rows(runners, lost, |place, runner| {
        progress.step(format!("{}: {about}: calls", runner.name()));
        row(runner, &folders[place], point, requests, options.output.quick)
    })?;
    relate(&mut together, &runners);
    Ok(together)
}

/// Starts a server with a folder. Returns its port.
fn start(entry: Entry, process: ProcessOptions, own: &Path, root: &Path) -> Result<(Server, u16)> {
    match entry.kind {
        Kind::Ours(backend) => {
            let port = program::free_port()?;
            let server = Server::start(entry.name, true, process, Vec::new(), |control| {
                ours::serve(backend, root, port, control)
            })?;
            Ok((server, port))
        }
        Kind::Nginx(sendfile) => {
            let port = program::free_port()?;
            Ok((nginx::start(entry.name, process, own, root, port, sendfile)?, port))
        }
        Kind::Hyper => Server::accepting(entry.name, false, process, |listener, control| {
            hyper(listener, root, control)
        }),
    }
}

#[cfg(feature = "http")]
use crate::files::tokio::serve as hyper;

#[cfg(not(feature = "http"))]
fn hyper(_: std::net::TcpListener, _: &Path, _: &mut crate::server::Control) -> Result<()> {
    Err(Error::usage("hyper is not built in: build with --features http"))
}

/// Returns the time of a request and the system calls made for it.
fn row(
    runner: &mut Runner<Connection>,
    folder: &Folder,
    point: Point,
    requests: u64,
    quick: bool,
) -> Result<Row> {
    let figures = runner.figures(requests)?;
    let counted = runner.count(requests)?;
    let by_request = |count: u64| count as f64 / requests as f64;
    let mut row = Row {
        subject: runner.name().to_owned(),
        bytes: point.bytes,
        connections: point.connections,
        figures: Figures {
            waits_per_request: counted.map(|counts| by_request(counts.waits)),
            epoll_ctl_per_request: counted.map(|counts| by_request(counts.epoll_ctl)),
            ..figures
        },
        ..Row::default()
    };
    if let Some(trace) = Trace::begin(runner.pid(), folder) {
        let traced = strace::most(quick);
        runner.ask(traced)?;
        if let Some(calls) = trace.end() {
            let each = |count: u64| count as f64 / traced as f64;
            row.traced = traced;
            row.strace_calls_per_request = Some(each(calls.values().sum()));
            row.strace_calls = calls.into_iter().map(|(name, count)| (name, each(count))).collect();
        }
    }
    Ok(row)
}

/// Fills in the ratios within a point.
fn relate(rows: &mut [Row], runners: &[Runner<Connection>]) {
    let of = |name: &str| -> Option<&[Slice]> {
        runners.iter().find(|runner| runner.name() == name).map(Runner::slices)
    };
    for (row, runner) in rows.iter_mut().zip(runners) {
        row.nginx_ratio = of("nginx").and_then(|other| ratio(runner.slices(), other));
        row.hyper_ratio = of("hyper-tokio").and_then(|other| ratio(runner.slices(), other));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_limited_by_memory_and_descriptors() {
        let of = |bytes: &str, connections: &str| {
            let (bytes, connections) = (bytes.to_owned(), connections.to_owned());
            let options = Options { bytes, connections, ..Options::default() };
            points(&options, 6)
        };
        let all = of("10, 20,10", "1,2").unwrap();
        let all: Vec<_> = all.into_iter().map(|point| (point.bytes, point.connections)).collect();
        assert_eq!(all, [(10, 1), (10, 2), (20, 1), (20, 2)]);
        assert_eq!(points(&Options::default(), 6).unwrap().len(), 2);
        for (bytes, connections, about) in [
            ("0", "1", "--bytes 0"),
            ("1,100000000", "1", "--bytes 100000000"),
            ("x", "1", "--bytes"),
            ("1", "0", "--connections 0"),
            ("1", "1,10000000", "--connections 10000000"),
        ] {
            let error = of(bytes, connections).unwrap_err().to_string();
            assert!(error.contains(about), "{error}");
        }
    }

    #[test]
    fn files_are_as_long_as_they_should_be_and_differ_by_length_and_seed() {
        let file = contents(1001, 1);
        assert_eq!((file.len(), &file), (1001, &contents(1001, 1)));
        assert!(file[..] != contents(1001, 2)[..] && file[..8] != contents(1000, 1)[..8]);
        assert!(file[..500] != file[500..1000]);
    }
}
