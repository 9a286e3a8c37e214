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

/// Descriptors that leave and come back together; the last number is the most in a packet.
const BATCHES: [usize; 3] = [1, 16, 253];

/// Requests to each loop in a round, and its wake-ups.
const REQUESTS: u64 = 10_000;
const SAMPLES: usize = 100;

/// Descriptors that a server, or a keeper, needs in addition to its connections.
const RESERVE: usize = 256;

/// How often a batch leaves in a round.
const MOVES: usize = 20;

/// The checked options.
struct Plan {
    parts: Vec<Stage>,
    batches: Vec<usize>,
    idle: usize,
    /// Descriptors of the loops of the part `wake`.
    watched: usize,
    notes: Vec<String>,
}

fn plan(options: &Options) -> Result<Plan> {
    let name = |one: &Stage| one.name();
    let parts = options::named(&options.parts, &Stage::ALL, name, |_| true, "no part")?;
    if options.idle.is_some_and(|idle| idle < 2) {
        return Err(Error::usage("--idle is too few to measure anything: give 2 or more"));
    }
    let asked = options.idle.unwrap_or(if options.output.quick { 1000 } else { 9000 });
    // The parent has both ends of these pairs for a moment. No process has both ends of a server's
    // connection.
    let pairs = channel::most_pairs();
    let watched = WATCHED.min(pairs);
    let limit = superpoll::limits::nofile().1;
    let (batches, large): (Vec<_>, Vec<_>) =
        BATCHES.into_iter().partition(|batch| *batch <= watched);
    let is_shared = parts.contains(&Stage::Busy);
    let most = (if is_shared { pairs } else { 2 * pairs }).saturating_sub(RESERVE).max(2);
    let mut notes = Vec::new();
    if asked > most {
        notes.push(format!(
            "{most} idle connections instead of {asked}: the limit of {limit} descriptors leaves no more"
        ));
    }
    if parts.contains(&Stage::Move) && !large.is_empty() {
        notes.push(format!(
            "batches of {large:?} descriptors left out: the limit of {limit} leaves room for {watched} pairs"
        ));
    }
    Ok(Plan { parts, batches, idle: asked.min(most), watched, notes })
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
    let (notes, blocks) = (plan.notes.clone(), Kind::ALL.len() * 15 + 6);
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
    let own = [
        ("parts", json!(plan.parts.iter().map(|part| part.name()).collect::<Vec<_>>())),
        ("topologies", json!(Kind::ALL.map(Kind::name))),
        ("batch", json!(plan.batches)),
        ("idle", json!(plan.idle)),
        ("active", json!(ACTIVE)),
        ("requests", json!(REQUESTS)),
        ("samples", json!(SAMPLES)),
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
        Kind::ALL.iter().map(start).collect()
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
                    let times = SAMPLES;
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
                let figures = pair.measure(REQUESTS)?;
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

    #[test]
    fn options_are_checked() {
        let of = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            plan(&options).map(|plan| (plan.parts, plan.idle))
        };
        let chosen = of(|options| options.parts = "wake,move,wake".to_owned()).unwrap();
        assert_eq!(chosen.0, [Stage::Wake, Stage::Move]);
        assert_eq!(of(|options| options.idle = Some(7)).unwrap().1, 7);
        assert!(of(|options| options.idle = Some(10_000_000)).unwrap().1 < 10_000_000);
        for (change, about) in [
            ((|o| o.parts = "sleep".to_owned()) as fn(&mut Options), "\"sleep\""),
            (|o| o.idle = Some(1), "--idle"),
        ] {
            let error = of(change).unwrap_err().to_string();
            assert!(error.contains(about), "{error}");
        }
    }
}
