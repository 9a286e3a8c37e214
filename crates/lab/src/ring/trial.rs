//! The subjects in turn, round by round.

use serde_json::json;

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::record::Record;
use crate::ring::course::{self, Course};
use crate::ring::stage::{Remote, Slice};
use crate::ring::subject::{self, Subject};
use crate::ring::{Options, Row};
use crate::run::Run;
use crate::server::subject::{names, parameters};
use crate::server::trial;
use crate::statistics::{self, ToTokio};
use crate::{channel, options, table};

/// The points of a sweep in addition to its first.
const SWEPT_TOTALS: [usize; 4] = [2, 10, 100, 4900];

const SWEPT_SHARES: [f64; 4] = [0.01, 0.1, 0.5, 1.0];

/// The number of rounds that laps are shared out for, unless the options give one.
const ROUNDS: usize = 7;

/// Bytes in flight from a number (`5`) or a share of the pipes (`0.5`).
fn in_flight(text: &str, total: usize) -> Result<usize> {
    let text = text.trim();
    let refuse = || {
        Error::usage(format!(
            "--in-flight takes numbers from 1 or shares like 0.1 of the pipes with commas, not {text:?}"
        ))
    };
    let count = if text.contains('.') {
        let share: f64 = text.parse().map_err(|_| refuse())?;
        if !(share > 0.0 && share <= 1.0) {
            return Err(refuse());
        }
        ((share * total as f64).round() as usize).max(1)
    } else {
        text.parse().map_err(|_| refuse())?
    };
    if count == 0 {
        return Err(refuse());
    }
    if count > total {
        return Err(Error::usage(format!(
            "--in-flight {count} is more than the {total} pipes of --total: give at most as many"
        )));
    }
    Ok(count)
}

/// The points to measure: pipes and bytes in flight.
fn points(options: &Options) -> Result<Vec<(usize, usize)>> {
    let totals = options::numbers("--total", &options.total)?;
    let most = channel::most_pairs();
    totals.iter().try_for_each(|&total| channel::fits("--total", total, 2..=most))?;
    let mut points = Vec::new();
    for &total in &totals {
        for text in options.in_flight.split(',') {
            points.push((total, in_flight(text, total)?));
        }
    }
    if options.sweep {
        let (total, bytes) = points[0];
        points.extend(SWEPT_TOTALS.iter().filter(|&&t| t <= most).map(|&t| (t, bytes)));
        points.extend(SWEPT_SHARES.map(|share| (total, (share * total as f64).round() as usize)));
    }
    Ok(table::distinct(points))
}

/// A subject with its process, and its measurements.
struct Runner {
    remote: Remote,
    laps: u64,
    /// A lap in nanoseconds, from the pilot.
    lap_ns: f64,
    slices: Vec<Slice>,
}

/// Runs the experiment.
pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let points = points(options)?;
    let (entries, notes) = subject::chosen(options.subjects.as_deref())?;
    if entries.is_empty() {
        return Err(Error::usage(format!("nothing is left to measure: {}", notes.join("; "))));
    }
    let full = 20.0 + 15.0 * points.len() as f64;
    let budget = Budget::new(&options.output, points.len(), 20.0, full);
    let blocks = points.len() * entries.len() * (ROUNDS + 1);
    let mut run = Run::new("ring", &options.output, notes, blocks, budget);
    let (mut rows, mut refusals) = (Vec::new(), Vec::new());
    for &(total, bytes) in &points {
        if !run.budget.point() {
            continue;
        }
        let course = Course::new(total, bytes);
        let mut runners = Vec::new();
        for &entry in &entries {
            if run.lost.has(entry.name) || run.budget.is_over() {
                continue;
            }
            run.progress.step(format!("{} sets {total} pipes up", entry.name));
            match set_up(entry, &course, options.output.second_thread) {
                Ok(runner) => runners.push(runner),
                // A subject that does not do the work, or ends, has not refused it.
                Err(error @ Error::Work { .. }) => {
                    run.lost.keep(entry.name, Err::<(), _>(error))?;
                }
                Err(error) => refusals.push((entry.name, total, error)),
            }
        }
        // All get the same time: a slow subject does fewer laps.
        let slot = run.budget.slot(runners.len(), ROUNDS) * 1e9;
        for runner in &mut runners {
            runner.laps = trial::share(&[runner.lap_ns], 1, slot);
        }
        while run.budget.round() {
            for place in run.budget.turns(runners.len()) {
                let runner = &mut runners[place];
                let name = runner.remote.entry.name;
                if run.lost.has(name) {
                    continue;
                }
                run.progress.step(format!("{name} {bytes} of {total}"));
                let slice = runner.remote.go(runner.laps);
                runner.slices.extend(run.lost.keep(name, slice)?);
            }
        }
        runners.retain(|one| !one.slices.is_empty() && !run.lost.has(one.remote.entry.name));
        let mut point: Vec<Row> = runners.iter().map(|runner| row(runner, total, bytes)).collect();
        relate(&mut point);
        rows.extend(point);
    }
    let mut took_no_part = Vec::new();
    for (subject, total, error) in refusals {
        if rows.is_empty() {
            return Err(error);
        }
        run.note(format!("{subject} takes no part with {total} pipes: {error}"));
        let reason = error.to_string();
        took_no_part.push(json!({"subject": subject, "total": total, "reason": reason}));
    }
    let own = [
        ("points", json!(points)),
        ("most_bytes_per_read", json!(course::MOST)),
        ("bytes_verified", json!(true)),
        ("took_no_part", json!(took_no_part)),
    ];
    let common = parameters(&entries, names(subject::ALL));
    Ok(run.record(common.into_iter().chain(own), rows))
}

/// Starts a subject and makes it go round: the first lap lets it register its descriptors, those
/// after it show how long a lap takes.
fn set_up(entry: Subject, course: &Course, second_thread: bool) -> Result<Runner> {
    let mut remote = Remote::start(entry, course, second_thread)?;
    remote.go(1)?;
    let lap_ns = trial::pace(1, trial::PILOT_NS, |laps| Ok(remote.go(laps)?.ns))?;
    Ok(Runner { remote, laps: 1, lap_ns, slices: Vec::new() })
}

fn row(runner: &Runner, total: usize, in_flight: usize) -> Row {
    let mut sum = runner.slices[0];
    runner.slices[1..].iter().for_each(|slice| sum.add(slice));
    let hops = sum.hops.max(1) as f64;
    let per_hop = |of: fn(&Slice) -> u64| -> Vec<f64> {
        runner.slices.iter().map(|slice| of(slice) as f64 / slice.hops.max(1) as f64).collect()
    };
    let (times, cpu) = (per_hop(|slice| slice.ns), per_hop(|slice| slice.cpu_ns));
    let median = statistics::median(&times);
    let counted = sum.kernel_reads.zip(sum.kernel_writes).map(|(reads, writes)| reads + writes);
    Row {
        subject: runner.remote.entry.name.to_owned(),
        total,
        in_flight,
        laps: runner.laps,
        ns_per_hop_min: statistics::minimum(&times),
        ns_per_hop_median: median,
        ns_per_hop_spread: statistics::maximum(&times) - statistics::minimum(&times),
        cpu_ns_per_hop_min: statistics::minimum(&cpu),
        // Where the kernel does not count, each read that returned something had its write.
        syscalls_per_hop: sum
            .calls
            .map(|calls| (calls + counted.unwrap_or(2 * sum.reads)) as f64 / hops),
        reads_per_hop: sum.kernel_reads.map(|reads| reads as f64 / hops),
        bytes_per_read: hops / sum.reads.max(1) as f64,
        hops_per_second: if median > 0.0 { 1e9 / median } else { 0.0 },
        rounds: runner.slices.len(),
        ns_per_hop: times,
        ..Row::default()
    }
}

/// Fills in the ratios within a point.
fn relate(point: &mut [Row]) {
    let of = |name: &str| {
        let found = point.iter().find(|row| row.subject == name);
        found.map_or_else(Vec::new, |row| row.ns_per_hop.clone())
    };
    let (tokio, raw_epoll) = (of("tokio"), of("raw-epoll-lt"));
    for row in point {
        row.to_tokio = ToTokio::of(&row.ns_per_hop, &tokio);
        let ToTokio { tokio_ratio, tokio_decile } = ToTokio::of(&row.ns_per_hop, &raw_epoll);
        (row.raw_epoll_ratio, row.raw_epoll_decile) = (tokio_ratio, tokio_decile);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_flight_are_numbers_or_shares() {
        assert_eq!(in_flight("1", 50).unwrap(), 1);
        assert_eq!(in_flight(" 50", 50).unwrap(), 50);
        assert_eq!(in_flight("1.0", 50).unwrap(), 50);
        assert_eq!(in_flight("0.1", 50).unwrap(), 5);
        assert_eq!(in_flight("0.001", 50).unwrap(), 1);
        for bad in ["0", "51", "-1", "1.5", "0.0", "x", ""] {
            assert!(in_flight(bad, 50).unwrap_err().to_string().contains("--in-flight"), "{bad}");
        }
    }

    #[test]
    fn points_are_the_product_of_both_lists_or_a_sweep() {
        let (total, in_flight) = ("10,20".to_owned(), "1,0.5,0.1".to_owned());
        let product = Options { total, in_flight, ..Options::default() };
        assert_eq!(points(&product).unwrap(), [(10, 1), (10, 5), (20, 1), (20, 10), (20, 2)]);
        let sweep = points(&Options { sweep: true, ..Options::default() }).unwrap();
        assert_eq!(sweep[0], (1000, 1));
        assert!(sweep.contains(&(2, 1)) && sweep.contains(&(1000, 500)));
        for bad in ["0", "1", "1000000", "x"] {
            let options = Options { total: bad.to_owned(), ..Options::default() };
            let error = points(&options).unwrap_err().to_string();
            assert!(error.contains("--total"), "{error}");
        }
    }

    #[test]
    fn ratios_are_within_a_point_and_absent_without_a_yardstick() {
        let row = |subject: &str, ns_per_hop| Row {
            subject: subject.to_owned(),
            ns_per_hop: vec![ns_per_hop],
            ..Row::default()
        };
        let mut point = [row("tokio", 200.0), row("superpoll-rt-epoll", 100.0)];
        relate(&mut point);
        assert_eq!((point[1].to_tokio.tokio_ratio, point[1].raw_epoll_ratio), (Some(0.5), None));
        assert_eq!(point[0].to_tokio.tokio_ratio, Some(1.0));
    }
}
