//! All topologies in turn, round by round.

use serde_json::json;

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::findings::{Findings, Row};
use crate::keep::busy::{ACTIVE, Pair};
use crate::keep::moves::{self, KeeperProcess, Kind, Order, WATCHED};
use crate::keep::restart::{RestartKind, Site};
use crate::keep::{Options, Stage};
use crate::record::Record;
use crate::server::program::Processors;
use crate::{channel, options, run, statistics};

/// The most descriptors in a packet.
const MOST: usize = 253;

/// Descriptors that a server, or a keeper, needs in addition to its connections.
const RESERVE: usize = 256;

/// How often a batch leaves in a round.
const MOVES: usize = 20;

/// The checked options.
struct Plan {
    parts: Vec<Stage>,
    topologies: Vec<Kind>,
    batches: Vec<usize>,
    idle: usize,
    /// Descriptors of the loops of the part `wake`.
    watched: usize,
    note: Option<String>,
}

fn plan(options: &Options) -> Result<Plan> {
    let here = |_: &_| true;
    let parts = options::named(&options.parts, &Stage::ALL, |one| one.name(), here, "no part")?;
    let named = &options.topologies;
    let topologies = options::named(named, &Kind::ALL, |one| one.name(), |_| true, "no topology")?;
    let mut batches = options::numbers("--batch", &options.batch)?;
    batches.sort_unstable();
    batches.dedup();
    if batches.iter().any(|batch| !(1..=MOST).contains(batch)) {
        let text = &options.batch;
        return Err(Error::usage(format!(
            "--batch {text} is not possible: give numbers from 1 to {MOST}, the most that fit into a message"
        )));
    }
    for (name, value) in [
        ("--requests", options.requests),
        ("--samples", options.samples as u64),
        ("--idle", options.idle.unwrap_or(2) as u64 / 2),
    ] {
        if value == 0 {
            return Err(Error::usage(format!("{name} is too few to measure anything: give more")));
        }
    }
    let asked = options.idle.unwrap_or(if options.output.quick { 1000 } else { 9000 });
    // The parent has both ends of these pairs for a moment. No process has both ends of a server's
    // connection.
    let pairs = channel::most_pairs();
    let watched = WATCHED.min(pairs);
    let limit = superpoll::limits::nofile().1;
    batches.iter().try_for_each(|&batch| channel::fits("--batch", batch, 1..=watched))?;
    let is_shared = parts.contains(&Stage::Busy);
    let most = (if is_shared { pairs } else { 2 * pairs }).saturating_sub(RESERVE).max(2);
    let note = (asked > most).then(|| {
        format!("{most} idle connections instead of {asked}: the limit of {limit} descriptors leaves no more")
    });
    Ok(Plan { parts, topologies, batches, idle: asked.min(most), watched, note })
}

pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let plan = plan(options)?;
    let processors = Processors::here();
    let (main, other) = (processors.server(), processors.client());
    let has = |part| plan.parts.contains(&part);
    let moves = has(Stage::Move) || has(Stage::Wake);
    // About the seconds of a round with its set-up.
    let sizes = [(moves, 4), (has(Stage::Busy), 3), (has(Stage::Restart), 10)];
    let sizes = sizes.into_iter().filter_map(|(has, size)| has.then_some(size)).collect();
    let mut budget = Budget::of_sizes(&options.output, sizes, 30.0, 150.0);
    budget.needs(1);
    let (notes, blocks) = (plan.note.iter().cloned().collect(), plan.topologies.len() * 15 + 6);
    let frame = run::Run::new("sit", &options.output, notes, blocks, budget);
    let findings = Findings::default();
    let mut run = Run { options, plan: &plan, main, other, frame, findings };
    let parts: [(bool, Measure); 3] = [
        (moves, |run| run.move_and_wake()),
        (has(Stage::Busy), |run| run.busy()),
        (has(Stage::Restart), |run| run.restart()),
    ];
    for (_, measure) in parts.into_iter().filter(|(is_chosen, _)| *is_chosen) {
        if run.frame.budget.point() {
            let measured = measure(&mut run);
            run.frame.budget.keep(measured)?;
        }
    }
    let names = |all: &[Kind]| all.iter().map(|one| one.name()).collect::<Vec<_>>();
    let own = [
        ("parts", json!(plan.parts.iter().map(|part| part.name()).collect::<Vec<_>>())),
        ("topologies", json!(names(&plan.topologies))),
        ("batch", json!(plan.batches)),
        ("idle", json!(plan.idle)),
        ("active", json!(ACTIVE)),
        ("requests", json!(options.requests)),
        ("samples", json!(options.samples)),
        ("moves", json!(MOVES)),
        ("main_processor", json!(main)),
        ("client_processor", json!(other)),
    ];
    Ok(run.frame.record(own, run.findings.rows()))
}

/// Measures a part.
type Measure = fn(&mut Run<'_>) -> Result<()>;

/// A run under way.
struct Run<'a> {
    options: &'a Options,
    plan: &'a Plan,
    /// The processor of the main loops.
    main: Option<usize>,
    /// That of their peers.
    other: Option<usize>,
    frame: run::Run<'a>,
    findings: Findings,
}

impl Run<'_> {
    /// Starts a loop of each topology; each keeper must end after its loop.
    fn start<T>(
        &self,
        of: impl Fn(Kind, Option<&KeeperProcess>) -> Result<T>,
    ) -> Result<Vec<(Kind, T, Option<KeeperProcess>)>> {
        let start = |&kind: &Kind| {
            let keeper = (kind == Kind::Process).then(KeeperProcess::start).transpose()?;
            Ok((kind, of(kind, keeper.as_ref())?, keeper))
        };
        self.plan.topologies.iter().map(start).collect()
    }

    fn move_and_wake(&mut self) -> Result<()> {
        let plan = self.plan;
        let mut loops = self.start(|kind, keeper| {
            moves::start(kind, keeper, self.main, self.other, plan.watched)
        })?;
        while self.frame.budget.round() {
            for place in self.frame.budget.turns(loops.len()) {
                let (kind, one, _) = &mut loops[place];
                let subject = kind.name();
                self.frame.progress.step(format!("{subject} moves"));
                for &batch in plan.batches.iter().filter(|_| plan.parts.contains(&Stage::Move)) {
                    let all: Vec<f64> = one.ask(&Order::Move { batch, times: MOVES })?;
                    let names = ["leave, main", "leave, keeper", "back, main", "back, keeper"];
                    let named = names.into_iter().zip(all).map(|(name, ns)| (name, "ns", ns));
                    let of = (Stage::Move.name(), subject, batch);
                    self.findings.note(of, &named.collect::<Vec<_>>());
                }
                if plan.parts.contains(&Stage::Wake) {
                    self.frame.progress.step(format!("{subject} wakes up"));
                    let seed = self.options.output.seed + self.frame.budget.number() as u64;
                    let times = self.options.samples;
                    let all: Vec<f64> = one.ask(&Order::Wake { times, seed })?;
                    let of = |share| statistics::quantile(&all, share);
                    let figures = [("p50", "ns", of(0.5)), ("p99", "ns", of(0.99))];
                    self.findings.note((Stage::Wake.name(), subject, plan.watched), &figures);
                }
            }
        }
        Ok(())
    }

    fn busy(&mut self) -> Result<()> {
        let idle = self.plan.idle;
        let mut pairs =
            self.start(|kind, keeper| Pair::start(kind, keeper, idle, self.main, self.other))?;
        while self.frame.budget.round() {
            for place in self.frame.budget.turns(pairs.len()) {
                let (kind, pair, _) = &mut pairs[place];
                self.frame.progress.step(format!("{} serves", kind.name()));
                let figures = pair.measure(self.options.requests)?;
                self.findings.note((Stage::Busy.name(), kind.name(), idle), &figures);
            }
        }
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        while self.frame.budget.round() {
            let mut site = Site::start(self.plan.idle)?;
            for kind in RestartKind::ALL {
                self.frame.progress.step(kind.name().to_owned());
                let figures = site.follow(kind)?;
                let of = (Stage::Restart.name(), kind.name(), self.plan.idle);
                self.findings.note(of, &figures);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Output;

    #[test]
    fn options_are_checked() {
        let of = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            plan(&options).map(|plan| (plan.parts, plan.batches, plan.idle))
        };
        let (parts, batches, _) = of(|options| {
            options.parts = "wake,move,wake".to_owned();
            options.batch = "16, 1,16".to_owned();
        })
        .unwrap();
        assert_eq!((parts, batches), (vec![Stage::Wake, Stage::Move], vec![1, 16]));
        assert_eq!(of(|options| options.idle = Some(7)).unwrap().2, 7);
        assert!(of(|options| options.idle = Some(10_000_000)).unwrap().2 < 10_000_000);
        for (change, about) in [
            ((|o| o.parts = "sleep".to_owned()) as fn(&mut Options), "\"sleep\""),
            (|o| o.topologies = "forest".to_owned(), "nested, thread, process"),
            (|o| o.batch = "0".to_owned(), "--batch 0"),
            (|o| o.batch = "254".to_owned(), "1 to 253"),
            (|o| o.requests = 0, "--requests"),
            (|o| o.samples = 0, "--samples"),
            (|o| o.idle = Some(1), "--idle"),
        ] {
            let error = of(change).unwrap_err().to_string();
            assert!(error.contains(about), "{error}");
        }
    }

    #[test]
    fn every_topology_moves_wakes_up_and_serves() {
        let options = Options {
            parts: "move,wake,busy".to_owned(),
            batch: "1,7".to_owned(),
            idle: Some(30),
            requests: 200,
            samples: 5,
            output: Output { repetitions: Some(1), no_report: true, ..Output::default() },
            ..Options::default()
        };
        let record = run(&options).unwrap();
        let of = |part: &str, subject: &str, descriptors: usize, figure: &str| {
            let found = record.rows.iter().find(|row| {
                (&*row.part, &*row.subject, row.number, &*row.figure)
                    == (part, subject, descriptors, figure)
            });
            found.unwrap_or_else(|| panic!("{part} {subject} {figure}")).median
        };
        for kind in Kind::ALL {
            for batch in [1, 7] {
                assert!(of("move", kind.name(), batch, "back, main") > 0.0);
                let keeper = of("move", kind.name(), batch, "back, keeper");
                assert_eq!(keeper > 0.0, kind != Kind::Nested, "{kind:?}");
            }
            assert!(of("wake", kind.name(), WATCHED, "p50") > 0.0);
            assert!(of("busy", kind.name(), 30, "p99") >= of("busy", kind.name(), 30, "p50"));
            assert!(of("busy", kind.name(), 30, "main") > 0.0);
            let away = of("busy", kind.name(), 30, "away");
            assert_eq!(away, if kind == Kind::Nested { 0.0 } else { 30.0 }, "{kind:?}");
        }
    }
}
