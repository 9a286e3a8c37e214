//! The herds, one after the other.

use std::os::fd::OwnedFd;

use serde_json::json;
use superpoll::BackendKind;

use crate::budget::Budget;
use crate::environment::{self, Room};
use crate::error::{Error, Result};
use crate::herd::crowd::Crowd;
use crate::herd::method::{self, Method};
use crate::herd::{MOST_PROCESSES, Options, Row, jain};
use crate::record::Record;
use crate::run::Run;
use crate::sys::{descriptor, process, socket};
use crate::{channel, options, statistics, table};

/// The most engines of our runtime: each is a thread with descriptors of its own.
const MOST_ENGINES: usize = 256;

/// Connections to a herd in one block, at least and at most, unless the options give a number.
const CONNECTS: (usize, usize) = (40, 500);

/// In one block of a large herd, at least: each waiter must be found asleep between two
/// connections.
const CONNECTS_OF_LARGE: usize = 10;

/// The number of herds of each method that connections are shared out for, unless the options give
/// one.
const HERDS: usize = 3;

/// A herd of more processes than this is large, as is a herd that waits in more places than that.
const LARGE: (usize, usize) = (4096, 500_000);

/// Upper bounds in bytes for the memory of a process, and of a descriptor that it waits for: the
/// kernel's part and, with our runtime, a task for each.
const MEMORY: (u64, u64) = (450_000, 1_500);

/// The best value of Jain's index: each of `waiters` gets the same number, give or take one.
fn jain_best(connects: u64, waiters: usize) -> f64 {
    let waiters = waiters.max(1) as u64;
    let more = connects % waiters;
    let counts = (0..waiters).map(|waiter| connects / waiters + u64::from(waiter < more));
    jain(&counts.collect::<Vec<_>>())
}

/// Herds of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Point {
    processes: usize,
    dups: usize,
    of_pipe: bool,
}

impl Point {
    /// Returns the size for a budget. A part of the time is the same for all herds: each connection
    /// waits until the herd sleeps.
    fn size(&self) -> usize {
        256 + self.processes + self.processes * self.dups / 20
    }

    /// Whether gathering such a herd takes longer than measuring it.
    fn is_large(&self) -> bool {
        self.processes > LARGE.0 || self.processes * (self.dups + 1) > LARGE.1
    }
}

/// Returns the herds to measure, and notes on deviations from the options.
fn points(options: &Options) -> Result<(Vec<Point>, Vec<String>)> {
    let default = if options.output.quick { "1,16,64" } else { "1,16,256,1024,4096,16384" };
    let mut sizes =
        options::numbers("--processes", options.processes.as_deref().unwrap_or(default))?;
    sizes.iter().try_for_each(|&size| options::within("--processes", size, 1..=MOST_PROCESSES))?;
    let bytes = MEMORY.0.saturating_add(MEMORY.1.saturating_mul(options.dups as u64));
    let rooms = [environment::tasks(), environment::in_memory(bytes)].into_iter().flatten();
    let notes =
        rooms.min_by_key(|room| room.most).map_or_else(Vec::new, |room| shrink(&mut sizes, &room));
    // One descriptor for each, and some for everything else.
    channel::fits("--dups", options.dups, 0..=channel::most_pairs() * 2)?;
    let of: &[bool] = if options.dups > 0 { &[false, true] } else { &[false] };
    let points = of.iter().flat_map(|&of_pipe| {
        sizes.iter().map(move |&processes| Point { processes, dups: options.dups, of_pipe })
    });
    Ok((table::distinct(points), notes))
}

/// Lowers sizes to the available room, and says so.
fn shrink(sizes: &mut [usize], room: &Room) -> Vec<String> {
    let most = usize::try_from(room.most).unwrap_or(usize::MAX).max(1);
    let too_large = sizes.iter_mut().filter(|size| **size > most);
    too_large.map(|size| fewer(std::mem::replace(size, most), most, &room.limit)).collect()
}

fn fewer(asked: usize, had: usize, why: &str) -> String {
    format!("asked for {asked} processes, had {had}: {why}")
}

/// Returns the requested methods, and the reasons for leaving some of them out.
fn subjects(text: Option<&str>) -> Result<(Vec<Method>, Vec<String>)> {
    let text = text.unwrap_or("all");
    let chosen =
        options::named(text, method::ALL, |method| method.name, |_| true, "no way to wait")?;
    let (chosen, notes) = without_refused(chosen, BackendKind::Uring.is_available());
    if chosen.is_empty() {
        return Err(Error::usage(format!("nothing is left to measure: {}", notes.join("; "))));
    }
    Ok((chosen, notes))
}

fn without_refused(chosen: Vec<Method>, rings: bool) -> (Vec<Method>, Vec<String>) {
    options::without_rings(chosen, rings, |method| method.name, |method| method.rings)
}

fn takes_part(method: &Method, point: Point) -> bool {
    point.dups <= method.most_dups && (method.engines.is_none() || point.processes <= MOST_ENGINES)
}

/// The results of the herds of one method and size.
#[derive(Debug, Default)]
struct Measured {
    /// Waiters in each herd; none before the first herd.
    size: Option<usize>,
    times: Vec<f64>,
    woken: u64,
    accepts: Vec<u64>,
}

/// Runs the experiment.
pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let (points, mut notes) = points(options)?;
    let (methods, absent) = subjects(options.subjects.as_deref())?;
    notes.extend(absent);
    if options.connects == Some(0) {
        return Err(Error::usage("--connects 0 measures nothing: give 1 or more"));
    }
    if !points.iter().any(|&point| methods.iter().any(|method| takes_part(method, point))) {
        return Err(Error::usage(
            "none of --subjects can wait for so many: ask for fewer --dups or --processes",
        ));
    }
    let sizes = points.iter().map(Point::size).collect();
    let budget = Budget::of_sizes(&options.output, sizes, 15.0, 90.0);
    // A record with duplicates has its own name: both records belong in one report.
    let name = if options.dups > 0 { "herd-dups" } else { "herd" };
    let blocks = points.len() * methods.len() * HERDS;
    let mut run = Run::new(name, &options.output, notes, blocks, budget);
    let mut rows = Vec::new();
    for &point in &points {
        if point.is_large() {
            run.budget.needs(1);
        }
        if !run.budget.point() {
            continue;
        }
        let taking: Vec<Method> =
            methods.iter().filter(|method| takes_part(method, point)).copied().collect();
        let mut measured: Vec<Measured> = taking.iter().map(|_| Measured::default()).collect();
        let slot = run.budget.slot(taking.len(), HERDS) * 1e9;
        while run.budget.round() {
            for place in run.budget.turns(taking.len()) {
                run.progress.step(format!("{} processes {}", point.processes, taking[place].name));
                let own = &mut measured[place];
                let measured = measure(taking[place], point, options.connects, slot, own);
                if let Some(note) = run.budget.keep(measured)?.flatten() {
                    run.note(note);
                }
            }
        }
        let herds = taking.iter().zip(&measured).filter(|(_, measured)| !measured.times.is_empty());
        rows.extend(herds.map(|(method, measured)| row(method, point, measured)));
    }
    relate(&mut rows);
    let own = [
        ("subjects", json!(methods.iter().map(|method| method.name).collect::<Vec<_>>())),
        ("processes", json!(points.iter().map(|point| point.processes).collect::<Vec<_>>())),
        ("dups", json!(options.dups)),
        ("connects", json!(options.connects)),
        ("most_engines", json!(MOST_ENGINES)),
    ];
    Ok(run.record(own, rows))
}

/// Measures one herd: gathers it, connects until the time is over, and lets it go. Reports if the
/// herd is smaller than it should be; the results of larger herds of its method are then discarded.
fn measure(
    method: Method,
    point: Point,
    connects: Option<usize>,
    slot_ns: f64,
    measured: &mut Measured,
) -> Result<Option<String>> {
    let start = process::now();
    let asked = measured.size.unwrap_or(point.processes);
    if asked == 0 {
        return Ok(None);
    }
    let crowd = Crowd::gather(method, asked, point.dups, point.of_pipe)?;
    let (size, shortage) = crowd.size();
    let note = (size < asked)
        .then(|| format!("{}: {}", method.name, fewer(asked, size, shortage.unwrap_or("no more"))));
    if measured.size != Some(size) {
        *measured = Measured { size: Some(size), ..Measured::default() };
    }
    if size == 0 {
        return Ok(note);
    }
    let failed = |source| Error::system(format!("connecting to a herd of {}", method.name), source);
    // The first connection finds everything cold.
    for warm in 1..=2 {
        let (_, client) = connect(&crowd).map_err(failed)?;
        crowd.wait_for_accepts(warm)?;
        drop(client);
    }
    let before = (crowd.sleeps()?, crowd.accepts());
    let least = if point.is_large() { CONNECTS_OF_LARGE } else { CONNECTS.0 };
    let (least, most) = connects.map_or((least, CONNECTS.1), |connects| (connects, connects));
    let mut made = 0;
    while made < most && (made < least || ((process::now() - start) as f64) < slot_ns) {
        process::watch(method.name);
        let (took, client) = connect(&crowd).map_err(failed)?;
        measured.times.push(took as f64);
        made += 1;
        crowd.wait_for_accepts(2 + made as u64)?;
        drop(client);
    }
    process::unwatch();
    measured.woken += crowd.sleeps()? - before.0;
    let accepts = crowd.accepts();
    measured.accepts.resize(accepts.len(), 0);
    for (sum, (after, before)) in measured.accepts.iter_mut().zip(accepts.iter().zip(before.1)) {
        *sum += after - before;
    }
    Ok(note)
}

/// Connects and returns the time of the call in nanoseconds. The connection is reset when it is
/// dropped.
fn connect(crowd: &Crowd) -> std::io::Result<(u64, OwnedFd)> {
    let client = socket::client()?;
    descriptor::reset_on_close(&client)?;
    let start = process::now();
    socket::connect(&client, crowd.port())?;
    Ok((process::now() - start, client))
}

fn row(method: &Method, point: Point, measured: &Measured) -> Row {
    let connects = measured.times.len();
    let accepts = &measured.accepts;
    Row {
        subject: method.name.to_owned(),
        processes: measured.size.unwrap_or(point.processes),
        asked: point.processes,
        dups: point.dups,
        dups_of: if point.of_pipe { "pipe" } else { "listener" }.to_owned(),
        connects,
        connect_ns_min: statistics::minimum(&measured.times),
        connect_ns_median: statistics::median(&measured.times),
        connect_ns_p99: statistics::quantile(&measured.times, 0.99),
        woken_per_connect: measured.woken as f64 / connects.max(1) as f64,
        accepts_max: accepts.iter().copied().max().unwrap_or(0),
        accepting: accepts.iter().filter(|&&count| count > 0).count(),
        jain: jain(accepts),
        jain_best: jain_best(connects as u64, accepts.len()),
        ..Row::default()
    }
}

/// Fills in the ratios to the smallest herd of the same method, and to one waiter among as many
/// processes.
fn relate(rows: &mut [Row]) {
    for place in 0..rows.len() {
        let row = &rows[place];
        let to = |other: Option<&Row>| {
            let median = other.map(|other| other.connect_ns_median).filter(|median| *median > 0.0);
            median.map(|median| row.connect_ns_median / median)
        };
        let of_method =
            |other: &&Row| (&other.subject, &other.dups_of) == (&row.subject, &row.dups_of);
        let alone = |other: &&Row| {
            other.subject == method::ALONE
                && (other.asked, &other.dups_of) == (row.asked, &row.dups_of)
        };
        let median_ratio = to(rows.iter().filter(of_method).min_by_key(|other| other.processes));
        let alone_ratio = to(rows.iter().find(alone));
        (rows[place].median_ratio, rows[place].alone_ratio) = (median_ratio, alone_ratio);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(processes: &str, dups: usize) -> Options {
        Options { processes: Some(processes.to_owned()), dups, ..Options::default() }
    }

    #[test]
    fn jains_index() {
        assert_eq!(jain(&[5, 5, 5, 5]), 1.0);
        assert_eq!(jain(&[8, 0, 0, 0]), 0.25);
        assert_eq!((jain(&[0, 0]), jain(&[])), (1.0, 1.0));
        assert!((jain(&[1, 2, 3]) - 36.0 / 42.0).abs() < 1e-12);
        assert_eq!((jain_best(100, 10), jain_best(5, 10), jain_best(0, 10)), (1.0, 0.5, 1.0));
    }

    #[test]
    fn a_herd_is_large_by_its_processes_or_by_the_places_where_they_wait() {
        let large = |processes, dups| Point { processes, dups, of_pipe: false }.is_large();
        assert!(!large(4096, 0) && large(4097, 0));
        assert!(!large(256, 1019) && large(1024, 1019));
    }

    #[test]
    fn points_are_sizes_and_their_control() {
        let (plain, notes) = points(&of("1,8,1", 0)).unwrap();
        assert!(plain.len() == 2 && notes.is_empty());
        let both = [false, true].map(|of_pipe| Point { processes: 2, dups: 10, of_pipe });
        assert_eq!(points(&of("2", 10)).unwrap().0, both);
        for bad in ["0", "16385", "x"] {
            let error = points(&of(bad, 0)).unwrap_err();
            assert!(error.to_string().contains("--processes"), "{error}");
        }
        let error = points(&of("1", 10_000_000));
        assert!(error.unwrap_err().to_string().contains("--dups"));
    }

    #[test]
    fn sizes_beyond_the_limits_are_lowered_with_a_note() {
        let room = Room { most: 11_000, limit: "ulimit -u is 11200".to_owned() };
        let mut sizes = [16, 16_384];
        let notes = shrink(&mut sizes, &room);
        assert_eq!(sizes, [16, 11_000]);
        assert_eq!(notes, ["asked for 16384 processes, had 11000: ulimit -u is 11200"]);
        // A need for more memory than any machine has leads to one process, not to an error.
        let (herds, notes) = points(&of("9000,16384", channel::most_pairs() * 2)).unwrap();
        assert!(!herds.is_empty() && herds.iter().all(|point| point.processes >= 1));
        assert!(notes.iter().all(|note| note.contains("asked for")), "{notes:?}");
    }

    #[test]
    fn methods_that_cannot_watch_enough_are_left_out() {
        let part = |name: &str, processes, dups| {
            takes_part(
                method::ALL.iter().find(|method| method.name == name).unwrap(),
                Point { processes, dups, of_pipe: false },
            )
        };
        assert!(part("select", 4096, 1019) && !part("select", 1, 1020));
        assert!(part("accept", 4096, 0) && !part("accept", 1, 1));
        assert!(part("engines-shared", 256, 0) && !part("engines-shared", 257, 0));
        assert!(part("superpoll-rt-exclusive", 4096, 1019));
        assert!(part("uring-poll", 4096, 1019) && !part("uring-accept", 1, 1));
        let error = subjects(Some("poll,wait")).unwrap_err().to_string();
        assert!(error.contains("\"wait\"") && error.contains("reuseport"), "{error}");
    }

    #[test]
    fn rings_are_left_out_with_a_reason_without_io_uring() {
        let (kept, notes) = without_refused(method::ALL.to_vec(), false);
        assert_eq!(kept.len(), 14);
        assert!(notes[0].starts_with("uring-poll, uring-exclusive, "), "{notes:?}");
        assert!(notes.len() == 1 && notes[0].contains("engines-uring-exclusive left out: "));
        let (kept, notes) = without_refused(method::ALL.to_vec(), true);
        assert!(kept == method::ALL && notes.is_empty());
        let rings = BackendKind::Uring.is_available();
        assert_eq!(subjects(None).unwrap().0.len(), if rings { method::ALL.len() } else { 14 });
    }

    #[test]
    fn ratios_are_to_the_smallest_herd_of_the_same_method() {
        let row = |subject: &str, processes, dups_of: &str, connect_ns_median| Row {
            subject: subject.to_owned(),
            processes,
            asked: processes,
            dups_of: dups_of.to_owned(),
            connect_ns_median,
            ..Row::default()
        };
        let mut rows = [
            row("poll", 16, "listener", 300.0),
            row("poll", 1, "listener", 100.0),
            row("poll", 16, "pipe", 400.0),
            row("epoll", 16, "listener", 500.0),
            row(method::ALONE, 16, "listener", 150.0),
        ];
        relate(&mut rows);
        let ratios: Vec<_> = rows.iter().map(|row| row.median_ratio.unwrap()).collect();
        assert_eq!(ratios, [3.0, 1.0, 1.0, 1.0, 1.0]);
        let alone: Vec<_> = rows.iter().map(|row| row.alone_ratio).collect();
        assert_eq!((alone[0], alone[1], alone[2], alone[4]), (Some(2.0), None, None, Some(1.0)));
    }
}
