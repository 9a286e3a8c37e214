//! The loads, and the subjects in turn under each.

use serde_json::json;
use superpoll::backend::policy::CostBased;
use superpoll::diagnostics::{self, Costs};

use crate::budget::Budget;
use crate::channel::{self, Kind, Pairs};
use crate::error::{Error, Result};
use crate::load::{Load, Mix};
use crate::measure::{self, Rounds, Sample};
use crate::mix::{Options, Row};
use crate::record::{self, Record};
use crate::run::Run;
use crate::second_thread::SecondThread;
use crate::subject::{self, Entry};
use crate::{options, rivals, simulator};

/// The subjects that are measured unless others are named.
const DEFAULTS: [&str; 14] = [
    "floor",
    "raw-poll",
    "raw-epoll-lt",
    "raw-epoll-et",
    "poll",
    "epoll-lt",
    "epoll-et",
    "adaptive",
    "adaptive-lt",
    "adaptive-threshold",
    "idle-server",
    "media-server",
    "batch-uring",
    "adaptive-uring",
];

/// A load to measure.
#[derive(Clone, Debug)]
struct Case {
    family: &'static str,
    name: String,
    mix: Mix,
    shift_every: usize,
    chance: f64,
    worst: Option<simulator::Load>,
}

/// The number of rounds that blocks are long for, unless the options give one.
const ROUNDS: usize = 5;

/// The probabilities with which descriptors are active at random.
const CHANCES: [f64; 6] = [0.01, 0.1, 0.25, 0.5, 0.75, 0.95];

/// Families of loads.
const FAMILIES: [&str; 4] = ["mixed", "shift", "random", "worst"];

fn stray(cold: usize) -> usize {
    if cold < 5000 { 2 } else { 5 }
}

fn parse_sizes(text: &str) -> Result<Vec<Mix>> {
    text.split(',')
        .map(|size| {
            let halves = size.trim().split_once('/');
            let parsed =
                halves.and_then(|(hot, cold)| Some((hot.parse().ok()?, cold.parse().ok()?)));
            match parsed {
                Some((hot, cold)) if hot > 0 && cold > 0 => {
                    Ok(Mix { hot, cold, stray: stray(cold) })
                }
                _ => Err(Error::usage(format!(
                    "--size takes busy/idle counts like 50/950 with commas, both above 0, not \
                     {size:?}"
                ))),
            }
        })
        .collect()
}

/// Returns the requested sizes, within the limits of this process, and a note for each that was
/// reduced.
pub(crate) fn sizes(options: &Options) -> Result<(Vec<Mix>, Vec<String>)> {
    let default = if options.output.quick { "50/950" } else { "50/950,200/9600,1000/8800" };
    let mut sizes = parse_sizes(options.size.as_deref().unwrap_or(default))?;
    let mut notes = Vec::new();
    let most = channel::most_pairs();
    for mix in &mut sizes {
        if mix.hot + mix.cold > most {
            if mix.hot >= most {
                return Err(Error::usage(format!(
                    "{}/{} needs {} descriptors and this process may open {}: ask for fewer or \
                     raise the hard limit with ulimit -Hn",
                    mix.hot,
                    mix.cold,
                    (mix.hot + mix.cold) * 2,
                    superpoll::limits::nofile().1
                )));
            }
            notes.push(format!(
                "{}/{} does not fit under the limit of {} descriptors: measuring {}/{}",
                mix.hot,
                mix.cold,
                superpoll::limits::nofile().1,
                mix.hot,
                most - mix.hot
            ));
            mix.cold = most - mix.hot;
        }
    }
    Ok((sizes, notes))
}

fn cases(options: &Options, kind: Kind, notes: &mut Vec<String>) -> Result<Vec<Case>> {
    let (sizes, cut) = sizes(options)?;
    notes.extend(cut);
    let families = options::named(&options.load, &FAMILIES, |name| name, |_| true, "no load")?;
    let shifts = options::numbers("--shift", &options.shift)?;
    if shifts.contains(&0) {
        return Err(Error::usage("--shift 0 never shifts: that is --load mixed"));
    }
    let first = sizes[0];
    let plain = |family, name: String, mix| Case {
        family,
        name,
        mix,
        shift_every: 0,
        chance: 0.0,
        worst: None,
    };
    let mut cases = Vec::new();
    for family in FAMILIES.into_iter().filter(|family| families.contains(family)) {
        match family {
            "mixed" => cases.extend(sizes.iter().map(|&mix| {
                let name = format!("{}/{} and {} strays", mix.hot, mix.cold, mix.stray);
                plain(family, name, mix)
            })),
            "shift" => cases.extend(shifts.iter().map(|&shift_every| {
                let name = format!("{}/{} shifting every {shift_every}", first.hot, first.cold);
                Case { shift_every, ..plain(family, name, first) }
            })),
            "random" => cases.extend(CHANCES.map(|chance| {
                let total = first.hot + first.cold;
                let name = format!("{total} active with probability {chance}");
                let mix = Mix { hot: 0, cold: total, stray: 0 };
                Case { chance, ..plain(family, name, mix) }
            })),
            _ => {
                let worst = worst(kind, options.output.quick, options.output.seed);
                let mix = Mix { hot: 0, cold: worst.total(), stray: 0 };
                let name = format!("worst found by simulation ({worst})");
                cases.push(Case { worst: Some(worst), ..plain(family, name, mix) });
            }
        }
    }
    Ok(cases)
}

/// Returns the load that the default policy likes least, as far as the simulator finds one at the
/// costs of this machine.
fn worst(kind: Kind, quick: bool, seed: u64) -> simulator::Load {
    let kind = match kind {
        Kind::Pipe => diagnostics::Kind::Pipe,
        Kind::Unix => diagnostics::Kind::Unix,
        Kind::Tcp => diagnostics::Kind::Tcp,
    };
    let setting =
        simulator::Setting { costs: *Costs::calibrated(), ..simulator::Setting::new(kind) };
    let effort = if quick { 40 } else { 150 };
    let search = simulator::Search {
        tries: effort,
        climbs: effort,
        rounds: 1000,
        seed,
        ..simulator::Search::default()
    };
    simulator::worst_load(CostBased::default, &setting, &search).load
}

/// Rounds before the measured rounds, for subjects that adapt (their rule has settled by then) and
/// for the rest.
const WARM_UP: (usize, usize) = (400, 8);

impl Case {
    fn rounds(&self, slot_rounds: usize) -> Rounds {
        let least = slot_rounds.clamp(60, 1000);
        match self.shift_every {
            0 => Rounds { warm_up_adaptive: WARM_UP.0, warm_up: WARM_UP.1, measured: least },
            every => Rounds {
                // Both are whole periods, so that a block has its share of shifts.
                warm_up_adaptive: WARM_UP.0.div_ceil(every) * every,
                warm_up: WARM_UP.1,
                measured: least.div_ceil(every) * every,
            },
        }
    }

    fn load(&self, rounds: usize, seed: u64) -> Load {
        if let Some(worst) = &self.worst {
            let mut source = worst.rounds();
            let mut active = Vec::new();
            let some = std::iter::from_fn(|| {
                // A round without activity is skipped: no subject could wait for it.
                for _ in 0..10_000 {
                    active.clear();
                    source.next_round(&mut active);
                    if !active.is_empty() {
                        return Some(active.clone());
                    }
                }
                None
            });
            return Load::from_rounds(some.take(rounds));
        }
        match self.family {
            "random" => Load::random(self.mix.cold, self.chance, rounds, seed),
            _ => Load::hot_and_cold(self.mix, self.shift_every, rounds, seed),
        }
    }
}

/// Runs the experiment.
pub(crate) fn run(options: &Options) -> Result<Record<Row>> {
    let kinds = options::kinds(&options.kind)?;
    let entries = options::subjects(options.subjects.as_deref(), &DEFAULTS)?;
    let mut notes = Vec::new();
    let mut all = Vec::new();
    for &kind in &kinds {
        all.push((kind, cases(options, kind, &mut notes)?));
    }
    if entries.iter().any(|entry| entry.rings) && !superpoll::BackendKind::Uring.is_available() {
        notes.push("io_uring is not available here: leaving its subjects out".to_owned());
    }
    notes.dedup();
    // The rest is the same at each point: starting subjects, and their first rounds.
    let size = |case: &Case| case.mix.hot + case.mix.cold + 500;
    let sizes: Vec<usize> = all.iter().flat_map(|(_, cases)| cases.iter().map(size)).collect();
    let _second = options.output.second_thread.then(SecondThread::start);
    let blocks = sizes.len() * entries.len() * ROUNDS;
    let budget = Budget::of_sizes(&options.output, sizes, 25.0, 90.0);
    let mut run = Run::new("mix", &options.output, notes, blocks, budget);
    let mut rows = Vec::new();
    for (kind, cases) in &all {
        let mut pairs: Option<Pairs> = None;
        for case in cases {
            if !run.budget.point() {
                continue;
            }
            let total = case.mix.hot + case.mix.cold;
            if pairs.as_ref().is_none_or(|pairs| pairs.len() != total) {
                // The old ones are closed before the new ones are opened: both may not fit.
                drop(pairs.take());
            }
            let pairs = match &mut pairs {
                Some(pairs) => pairs,
                none => none.insert(Pairs::open(*kind, total)?),
            };
            let suitable: Vec<Entry> =
                entries.iter().filter(|entry| entry.suits(pairs)).copied().collect();
            let slot = run.budget.slot(suitable.len(), ROUNDS);
            let pilot = case.load(16, options.output.seed);
            let rounds = case.rounds(measure::rounds_in(pairs, &pilot, slot)?);
            let length = rounds.warm_up_adaptive + rounds.measured;
            let load = case.load(length, options.output.seed);
            let Run { budget, lost, progress, .. } = &mut run;
            let told = |entry: &Entry| {
                progress.step(format!("{kind} {} {}", case.name, entry.name));
            };
            let measured = measure::interleave(pairs, &suitable, &load, rounds, budget, lost, told);
            let Some(outcomes) = budget.keep(measured)? else { continue };
            let figures = measure::figures(&outcomes, Sample::Block, record::relate);
            rows.extend(figures.into_iter().map(|(entry, figures)| Row {
                kind: kind.name().to_owned(),
                hot: case.mix.hot,
                cold: case.mix.cold,
                shift_every: case.shift_every,
                subject: entry.name.to_owned(),
                load: case.name.clone(),
                family: case.family.to_owned(),
                mean_active: load.mean_active(),
                figures,
            }));
        }
    }
    let own = [
        ("kinds", json!(kinds.iter().map(|k| k.name()).collect::<Vec<_>>())),
        ("subjects", json!(entries.iter().map(|e| e.name).collect::<Vec<_>>())),
        ("warm_up_rounds_adaptive", json!(WARM_UP.0)),
        ("warm_up_rounds", json!(WARM_UP.1)),
        ("bytes_verified", json!(true)),
        ("rivals", rivals::versions(subject::ALL.iter().map(|entry| entry.name))),
    ];
    Ok(run.record(own, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_refused() {
        assert_eq!(parse_sizes("50/950").unwrap(), [Mix { hot: 50, cold: 950, stray: 2 }]);
        assert_eq!(parse_sizes("1/2, 3/9000").unwrap()[1], Mix { hot: 3, cold: 9000, stray: 5 });
        for bad in ["", "5", "0/5", "5/0", "a/b", "-1/5"] {
            assert!(parse_sizes(bad).unwrap_err().to_string().contains("--size"), "{bad}");
        }
    }

    #[test]
    fn a_shifting_load_is_measured_in_whole_periods() {
        let mix = Mix { hot: 5, cold: 95, stray: 2 };
        let case = |shift_every| Case {
            family: "shift",
            name: String::new(),
            mix,
            shift_every,
            chance: 0.0,
            worst: None,
        };
        for every in [10, 15, 300, 1000] {
            let rounds = case(every).rounds(100);
            assert_eq!((rounds.measured % every, rounds.warm_up_adaptive % every), (0, 0));
            assert!(rounds.measured >= 100 && rounds.warm_up_adaptive >= 400);
        }
        assert_eq!(case(0).rounds(5).measured, 60);
    }

    #[test]
    fn the_worst_load_of_the_simulator_becomes_rounds_that_are_not_empty() {
        let case = Case {
            family: "worst",
            name: String::new(),
            mix: Mix { hot: 0, cold: 8, stray: 0 },
            shift_every: 0,
            chance: 0.0,
            worst: Some(simulator::Load::new(8, simulator::Pattern::Chance(0.1))),
        };
        let load = case.load(50, 1);
        assert_eq!(load.rounds(), 50);
        assert!((0..50).all(|round| !load.round(round).is_empty()));
        assert!((0..50).all(|round| load.round(round).iter().all(|&pair| pair < 8)));
    }
}
