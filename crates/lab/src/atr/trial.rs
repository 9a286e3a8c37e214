//! The subjects in turn, at each ratio, and the short mixed load that follows.

use serde_json::json;

use crate::atr::{Options, Row};
use crate::channel::{self, Pairs};
use crate::environment::Environment;
use crate::error::Result;
use crate::load::Load;
use crate::measure::{self, Rounds, Sample};
use crate::options::{self, Output};
use crate::pace::{self, Pace};
use crate::progress::Progress;
use crate::random::Random;
use crate::record::{self, Record};
use crate::rivals::{self, Lost};
use crate::subject::{self, Entry};
use crate::sweep::Sweep;
use crate::{mix, say};

/// The subjects that are measured unless others are named.
const DEFAULTS: [&str; 16] = [
    "floor",
    "raw-poll",
    "raw-epoll-lt",
    "raw-epoll-et",
    "select",
    "poll",
    "epoll-lt",
    "epoll-et",
    "adaptive",
    "adaptive-lt",
    "adaptive-uring",
    "mio",
    "polling",
    "libevent",
    "libev",
    "libuv",
];

/// The ratios that a sweep visits in addition to a single active descriptor.
const SHARES: [f64; 12] = [0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

/// The rounds of a subject before its measured rounds. A subject that adapts has its placement
/// after about forty rounds, and that placement is stable some time later. The other subjects only
/// need warm caches and branch predictors; where many descriptors are active, fewer rounds do.
const WARM_UP: (usize, usize) = (96, 8);

/// Caches and branch predictors are warm after this many events and two rounds.
const WARM_EVENTS: usize = 4096;

/// The default number of descriptors.
const TOTAL: &str = "1000";

/// The number of totals that "random" draws.
const RANDOM_TOTALS: usize = 5;

/// The measurements to make, checked against the limits of this process.
#[derive(Debug)]
struct Plan {
    sweep: Sweep,
    entries: Vec<Entry>,
    repetitions: usize,
    /// Seconds.
    budget: f64,
}

fn plan(options: &Options) -> Result<Plan> {
    options.output.check()?;
    let asked = options.total.as_deref().unwrap_or(TOTAL);
    let totals = if asked == "random" {
        let mut random = Random::new(options.output.seed);
        let most = channel::most_pairs().min(10_000);
        let mut totals: Vec<usize> =
            (0..RANDOM_TOTALS).map(|_| 100 + random.below(most.saturating_sub(99))).collect();
        totals.sort_unstable();
        totals
    } else {
        options::numbers("--total", asked)?
    };
    let active = options.active.as_deref();
    Ok(Plan {
        sweep: Sweep::new(&options.kind, &options.placement, totals, active, &SHARES)?,
        entries: options::subjects(options.subjects.as_deref(), &DEFAULTS)?,
        repetitions: options.output.repetitions.unwrap_or(if options.output.quick { 3 } else { 5 }),
        budget: options.output.budget(15.0, 26.0),
    })
}

/// Runs the experiment.
///
/// # Errors
///
/// [`Error::Usage`](crate::Error::Usage) for options that make no sense,
/// [`Error::Work`](crate::Error::Work) if a subject did not do its work,
/// [`Error::System`](crate::Error::System) if the kernel refuses something.
pub fn run(options: &Options) -> Result<Record<Row>> {
    let plan = plan(options)?;
    let sweep = &plan.sweep;
    for note in &sweep.notes {
        say::note(note);
    }
    let uring = superpoll::BackendKind::Uring.is_available();
    if !uring && plan.entries.iter().any(|entry| entry.rings) {
        say::note("io_uring is not available here: leaving its subjects out");
    }
    let _second = options.output.second_thread.then(crate::second_thread::SecondThread::start);
    let environment = Environment::here();
    let all_points = sweep.len();
    let blocks = all_points * plan.entries.len() * plan.repetitions;
    let progress = Progress::new("atr", blocks);
    let slot = plan.budget / blocks.max(1) as f64;
    let promised = options.output.paced || options.output.seconds.is_none();
    let mut pace = Pace::new(all_points, plan.budget, promised, options.output.quick);
    let mut left_out = 0;
    let mut rows = Vec::new();
    let mut lost = Lost::default();
    for &kind in &sweep.kinds {
        for &total in &sweep.totals {
            let pairs = Pairs::open(kind, total)?;
            let suitable: Vec<Entry> =
                plan.entries.iter().filter(|entry| entry.suits(&pairs)).copied().collect();
            // Named by the user, it is missed; a default is not.
            let unfit = plan.entries.iter().find(|entry| !entry.rings && !entry.suits(&pairs));
            if let Some(entry) = unfit.filter(|_| options.subjects.is_some()) {
                say::note(&format!(
                    "subject {} cannot watch {total} descriptors (numbers of 1024 and above): \
                     leaving it out there",
                    entry.name
                ));
            }
            for &placement in &sweep.placements {
                for active in sweep.points(total) {
                    let Some(repetitions) = pace.next(plan.repetitions) else {
                        left_out += 1;
                        continue;
                    };
                    let load = Load::constant(placement.choose(total, active));
                    let rounds = Rounds {
                        warm_up_adaptive: WARM_UP.0,
                        warm_up: WARM_EVENTS.div_ceil(active).clamp(2, WARM_UP.1),
                        measured: measure::rounds_in(&pairs, &load, slot)?,
                    };
                    let outcomes = measure::interleave(
                        &pairs,
                        &suitable,
                        &load,
                        rounds,
                        repetitions,
                        &mut lost,
                        |entry| {
                            progress.step(format!(
                                "{kind} {active}/{total} {placement} {}",
                                entry.name
                            ));
                        },
                    )?;
                    let figures = measure::figures(&outcomes, Sample::Round, record::relate);
                    rows.extend(outcomes.iter().zip(figures).map(|(outcome, figures)| Row {
                        kind: kind.name().to_owned(),
                        placement: placement.name().to_owned(),
                        total,
                        active,
                        subject: outcome.entry.name.to_owned(),
                        figures,
                    }));
                }
            }
        }
    }
    drop(progress);
    pace::say_left_out(left_out);
    let parameters = [
        ("kinds", json!(sweep.kinds.iter().map(|k| k.name()).collect::<Vec<_>>())),
        ("placements", json!(sweep.placements.iter().map(|p| p.name()).collect::<Vec<_>>())),
        ("total_asked", json!(options.total.as_deref().unwrap_or(TOTAL))),
        ("totals", json!(sweep.totals)),
        ("subjects", json!(plan.entries.iter().map(|e| e.name).collect::<Vec<_>>())),
        ("repetitions", json!(plan.repetitions)),
        ("warm_up_rounds_adaptive", json!(WARM_UP.0)),
        ("warm_up_rounds", json!(WARM_UP.1)),
        ("warm_up_events", json!(WARM_EVENTS)),
        ("seconds", json!(plan.budget)),
        ("quick", json!(options.output.quick)),
        ("second_thread", json!(options.output.second_thread)),
        ("seed", json!(options.output.seed)),
        ("bytes_verified", json!(true)),
        ("rivals", rivals::versions(subject::ALL.iter().map(|entry| entry.name))),
        ("notes", json!(sweep.notes.iter().cloned().chain(lost.notes()).collect::<Vec<_>>())),
        ("points_left_out", json!(left_out)),
    ];
    Ok(Record::new("atr", environment, parameters, rows))
}

/// Runs the short mixed load that follows a sweep. The sweep shows where either poller is better;
/// this load is one on which neither is. The pairs of the sweep are closed by now.
pub fn appendix(options: &Options) -> Result<Option<Record<mix::Row>>> {
    if options.no_mix || options.subjects.is_some() || channel::most_pairs() < 1000 {
        return Ok(None);
    }
    let output =
        Output { seconds: Some(options.output.budget(1.5, 3.0)), ..options.output.clone() };
    mix::trial::run(&mix::Options {
        size: Some("50/950".to_owned()),
        load: "mixed".to_owned(),
        kind: options.kind.clone(),
        output,
        ..mix::Options::default()
    })
    .map(Some)
}
