//! The servers in turn, round by round, each with every number of zombies at the same time.

use std::iter;

use serde_json::json;

use crate::environment::Headroom;
use crate::error::{Error, Result};
use crate::record::Record;
use crate::run::Run;
use crate::server::clients;
use crate::server::crowd::{self, Order};
use crate::server::subject::names;
use crate::server::trial::{self, Figures, Plan, Trial};
use crate::server::web::Connection;
use crate::server::wire::ECHO;
use crate::statistics::{self, Ratio};
use crate::sys::process;
use crate::zombies::fleet::{self, Connect, Family, Subject, echo_load};
use crate::zombies::{Options, Row, machines};
use crate::{channel, http, options};

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

/// Servers of a family that take turns, each with every number of zombies of some points.
struct Group<'a> {
    points: &'a [Point],
    subjects: Vec<Subject>,
    /// Whether it is the first of its family at these points.
    is_first: bool,
}

/// Twelve numbers of silent connections, as in the text that this experiment repeats; and as many
/// for each busy connection as the last of these.
const ALL_ZOMBIES: &str = "0,10,20,40,80,160,320,640,1280,2560,5120,10240,102400";

/// Those of a quick run.
const FEW_ZOMBIES: &str = "0,10,100,1000";

pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    if options.program.is_some() {
        return machines::serve(options);
    }
    let (families, mut notes) = fleet::chosen(options.subjects.as_deref())?;
    let (points, cut) = groups(options)?;
    notes.extend(cut);
    let mut groups = Vec::new();
    for points in &points {
        let is_shared = points.iter().any(|point| point.workers > 1);
        for family in &families {
            let mut own = family.clone();
            if is_shared && options.subjects.is_none() {
                own.retain(|subject| SHARED.contains(&subject.name));
            }
            for (number, subjects) in divided(points, &own).into_iter().enumerate() {
                groups.push(Group { points, subjects, is_first: number == 0 });
            }
        }
    }
    let subjects = families.concat();
    let seconds = 300.0 / groups.len().max(1) as f64;
    let mut plan = Plan::new("zombies", &options.output, &subjects, groups.len(), seconds);
    let runs: usize = groups.iter().map(|group| group.points.len() * group.subjects.len()).sum();
    (plan.all, plan.notes, plan.steps) = (names(fleet::ALL), notes, runs * (trial::ROUNDS + 1));
    let own = [
        ("zombies", json!(points.iter().flatten().map(|p| p.zombies).collect::<Vec<_>>())),
        ("workers", json!(points.iter().flatten().map(|p| p.workers).collect::<Vec<_>>())),
        ("active", json!(options.active)),
        ("requests", json!(options.requests)),
        ("bytes", json!(ECHO)),
    ];
    plan.run(&groups, own, |trial, group| match group.subjects[0].start.family() {
        Family::Echo => measure(options, trial, group, echo_load),
        Family::Web => measure(options, trial, group, http::raw_epoll::load),
    })
}

/// Measures the servers of a group.
fn measure<C: Connection>(
    options: &Options,
    trial: &mut Trial<'_>,
    Group { points, subjects, is_first }: &Group<'_>,
    connect: Connect<C>,
) -> Result<Vec<Row>> {
    // The clients, which come last here, must reset the connections before the servers close them.
    let (mut folders, mut runners) = (Vec::new(), Vec::new());
    let (mut about, mut crowds) = (Vec::new(), Vec::new());
    for &subject in subjects {
        for &point in *points {
            let (name, zombies) = (subject.name, point.zombies);
            if trial.run.lost.has(name) || trial.run.budget.is_over() {
                continue;
            }
            trial.run.progress.step(format!("{name} gets {zombies} zombies"));
            match fleet::set_up(subject, point, options.active, trial.process, connect) {
                Ok(live) => {
                    runners.push(live.runner);
                    about.push((subject, point, live.kernel_bytes_per_zombie));
                    crowds.push(live.crowds);
                    folders.extend(live.folders);
                }
                Err(Error::Usage(reason)) if subject.start.is_limited() && zombies > 0 => {
                    trial.run.note(format!("{name} left out at {zombies} zombies: {reason}"));
                }
                Err(error) => {
                    trial.run.lost.keep(name, Err::<(), _>(error))?;
                }
            }
        }
    }
    if subjects.iter().any(|subject| subject.start.parks()) {
        process::sleep(PARKING_NS);
    }
    let Run { budget, lost, progress, .. } = &mut trial.run;
    let most = options.requests.div_ceil(budget.rounds(trial::ROUNDS) as u64);
    let begins = |name: &str| progress.step(name.to_owned());
    let requests = trial::take_turns_of(&mut runners, budget, most, lost, begins)?;
    let mut rows = trial::rows(&mut runners, lost, |place, runner| {
        let (subject, point, kernel_bytes_per_zombie) = about[place];
        crowd::ask_all(&mut crowds[place], &Order::Check)?;
        let figures = runner.figures(requests[place])?;
        Ok(Row { kernel_bytes_per_zombie, ..Row::new(options, &subject, point, figures) })
    })?;
    relate(&mut rows);
    // The report has the yardstick as it was next to the first servers.
    let skip = if *is_first { 0 } else { points.len() };
    Ok(rows.into_iter().skip(skip).collect())
}

/// Returns the servers of a family in groups that fit under the limit of connections, each with the
/// yardstick in front.
fn divided(points: &[Point], subjects: &[Subject]) -> Vec<Vec<Subject>> {
    let Some((&yardstick, others)) = subjects.split_first() else { return Vec::new() };
    let each: usize = points.iter().map(|point| point.zombies).sum();
    let at_a_time = (TOGETHER / each.max(1)).clamp(2, 16) - 1;
    let with_yardstick = |group: &[Subject]| [&[yardstick][..], group].concat();
    match others {
        [] => vec![vec![yardstick]],
        others => others.chunks(at_a_time).map(with_yardstick).collect(),
    }
}

impl Row {
    /// Creates the row of a server's figures at a point, without ratios.
    pub(super) fn new(options: &Options, subject: &Subject, point: Point, figures: Figures) -> Row {
        Row {
            subject: subject.name.to_owned(),
            family: subject.start.family().name().to_owned(),
            active: options.active,
            workers: point.workers,
            zombies: point.zombies,
            seconds: statistics::median(&figures.clock_ns) * options.requests as f64 / 1e9,
            figures,
            ..Row::default()
        }
    }
}

/// Fills in the ratios within the servers that took turns, the yardstick first.
pub(super) fn relate(rows: &mut [Row]) {
    let all = rows.to_vec();
    let of = |subject: &str, workers: usize, zombies: usize| -> Option<&Figures> {
        let wanted = (subject, workers, zombies);
        let row = all.iter().find(|row| (&*row.subject, row.workers, row.zombies) == wanted);
        row.map(|row| &row.figures)
    };
    let Some(yardstick) = all.first() else { return };
    for row in rows {
        let own = &row.figures;
        if let Some(none) = of(&row.subject, row.workers, 0) {
            row.none_ratio = own.ratio(none);
            row.none_clock_ratio = Ratio::of(&own.clock_ns, &none.clock_ns);
        }
        let raw = of(&yardstick.subject, row.workers, row.zombies);
        row.raw_epoll_ratio = raw.and_then(|raw| own.ratio(raw));
    }
}

// How many zombies a server gets, and in how many processes it serves them.
//
// The number of descriptors of a process is limited. Several processes of the same server, its
// workers, share more zombies than that; each has a listener of its own. Their time is the sum
// over all workers, and more workers wait more often for the same requests. So such a point comes
// with a second one, with the same number of workers and no zombies, and is compared with that.

/// Descriptors that a server needs in addition to its connections.
const RESERVE: usize = 64;

/// The share of its descriptors that a worker uses for connections, in eighths: one worker may need
/// more than another for itself.
const USED: usize = 7;

/// The most zombies that the options may request.
const MOST: usize = 1_000_000;

/// The memory of a connection on this machine, both ends together, in bytes: more than was ever
/// measured.
const BYTES_EACH: u64 = 16 << 10;

/// The number of servers that have their zombies at the same time: one, and the yardstick.
const SERVERS_AT_A_TIME: usize = 2;

/// A server's zombies and its processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Point {
    /// Processes of the server.
    pub workers: usize,
    /// Its zombies.
    pub zombies: usize,
}

/// One worker's part of a number that is dealt out to several workers in turn.
pub(super) fn share(all: usize, workers: usize, worker: usize) -> usize {
    all / workers.max(1) + usize::from(worker < all % workers.max(1))
}

/// Returns the requested points, in groups that are measured together: those of one process, then
/// each of several; all with the same server without zombies. Also returns notes on points with
/// fewer zombies than requested.
pub(super) fn groups(options: &Options) -> Result<(Vec<Vec<Point>>, Vec<String>)> {
    options::within("--active", options.active, 1..=1000)?;
    if options.requests == 0 {
        return Err(Error::usage("--requests 0 measures nothing: give 1 or more"));
    }
    let default = if options.output.quick { FEW_ZOMBIES } else { ALL_ZOMBIES };
    let mut asked = options::numbers("--zombies", options.zombies.as_deref().unwrap_or(default))?;
    asked.sort_unstable();
    asked.dedup();
    if let Some(zombies) = asked.iter().find(|zombies| **zombies > MOST) {
        return Err(Error::usage(format!(
            "--zombies {zombies} is not possible: give up to {MOST}"
        )));
    }
    let most = (2 * channel::most_pairs()).saturating_sub(RESERVE + options.active);
    if most == 0 {
        return Err(Error::usage(format!(
            "the limit of {} descriptors leaves a server none for zombies: raise it (ulimit -n)",
            superpoll::limits::nofile().1
        )));
    }
    Ok(in_groups(&asked, most, &Headroom::here()))
}

/// Divides the requested numbers by the capacity of one process, within the room that the machine
/// has left.
fn in_groups(asked: &[usize], most: usize, here: &Headroom) -> (Vec<Vec<Point>>, Vec<String>) {
    let alone = |zombies: &usize| *zombies <= most;
    let some = asked.iter().copied().filter(|zombies| *zombies > 0 && alone(zombies));
    let first: Vec<Point> =
        iter::once(0).chain(some).map(|zombies| Point { workers: 1, zombies }).collect();
    let each = (most / 8 * USED).max(1);
    let (possible, limit) = here.connections(BYTES_EACH, each, clients::most());
    let possible = possible / SERVERS_AT_A_TIME;
    let (mut groups, mut notes) = (Vec::new(), Vec::new());
    // The group with only zero zombies is measured only if nothing else was requested.
    if first.len() > 1 || asked.iter().all(alone) || asked.contains(&0) {
        groups.push(first);
    }
    for &wanted in asked.iter().filter(|zombies| !alone(zombies)) {
        let zombies = wanted.min(possible);
        if zombies < wanted {
            notes.push(format!(
                "--zombies {wanted}: measuring {zombies}, the most that {limit} leaves for two servers at a time"
            ));
        }
        let workers = zombies.div_ceil(each).max(1);
        let group = [0, zombies].map(|zombies| Point { workers, zombies });
        if zombies > 0 && !groups.contains(&group.to_vec()) {
            groups.push(group.to_vec());
        }
    }
    (groups, notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_each_round_to_none_and_to_the_yardstick() {
        let row = |subject: &str, zombies, cpu_ns: &[f64]| {
            let clock_ns = cpu_ns.iter().map(|ns| ns * (1 + zombies) as f64).collect();
            let figures = Figures { cpu_ns: cpu_ns.to_vec(), clock_ns, ..Figures::default() };
            Row { subject: subject.to_owned(), workers: 1, zombies, figures, ..Row::default() }
        };
        let mut rows = [
            row("raw-epoll", 0, &[50.0, 50.0, 55.0]),
            row("raw-epoll", 1, &[25.0, 150.0, 55.0]),
            row("ours", 0, &[100.0, 200.0, 100.0]),
            row("ours", 1, &[50.0, 300.0, 110.0]),
            Row { workers: 2, ..row("ours", 1, &[1.0, 1.0, 1.0]) },
        ];
        relate(&mut rows);
        let of_turns = |found: Option<Ratio>| found.map(|r| (r.low, r.median, r.high));
        assert_eq!(of_turns(rows[3].none_ratio), Some((0.5, 1.1, 1.5)));
        assert_eq!(rows[3].none_ratio.unwrap().headline().value, 0.5);
        assert_eq!(of_turns(rows[3].none_clock_ratio), Some((1.0, 2.2, 3.0)));
        assert_eq!(of_turns(rows[3].raw_epoll_ratio), Some((2.0, 2.0, 2.0)));
        assert_eq!((rows[2].none_ratio.unwrap().median, rows[4].none_ratio), (1.0, None));
        assert_eq!(rows[4].raw_epoll_ratio, None);
    }

    fn point(workers: usize, zombies: usize) -> Point {
        Point { workers, zombies }
    }

    #[test]
    fn points_are_sorted_with_none_and_refused_where_they_make_no_sense() {
        let of = |zombies: &str, active, requests| {
            let zombies = Some(zombies.to_owned());
            super::groups(&Options { zombies, active, requests, ..Options::default() })
        };
        let (groups, notes) = of("10, 2,10", 10, 1).unwrap();
        assert_eq!((groups, notes.len()), (vec![vec![point(1, 0), point(1, 2), point(1, 10)]], 0));
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
    fn connections_beyond_one_process_are_shared_and_compared_with_as_many_processes() {
        let here = Headroom::here();
        let (groups, notes) = in_groups(&[0, 50, 250], 80, &here);
        let shared = vec![point(4, 0), point(4, 250)];
        assert_eq!(
            (groups, notes.len()),
            (vec![vec![point(1, 0), point(1, 50)], shared.clone()], 0)
        );
        assert_eq!(in_groups(&[250], 80, &here).0, [shared]);
        let dealt: Vec<usize> = (0..4).map(|worker| share(250, 4, worker)).collect();
        assert_eq!(dealt, [63, 63, 62, 62]);
    }

    #[test]
    fn connections_beyond_the_machine_are_lowered_with_a_note() {
        let (groups, notes) = in_groups(&[usize::MAX / 4], 20_000, &Headroom::here());
        let found = groups[0][1].zombies;
        assert!(found < 1 << 32 && notes[0].contains(&format!("measuring {found}")), "{notes:?}");
    }
}
