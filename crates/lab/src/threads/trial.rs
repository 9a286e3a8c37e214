//! The subjects in turn, at each ratio, on one processor and on all.

use serde_json::json;

use crate::budget::Budget;
use crate::channel::{Kind, Pairs};
use crate::error::{Doing, Error, Result};
use crate::record::Record;
use crate::run::Run;
use crate::sweep::Sweep;
use crate::sys::process;
use crate::threads::block::{self, Block, Length, Point, Refusal, Where};
use crate::threads::subject::{self, Entry, Family};
use crate::threads::{Options, Row, figures};
use crate::{limits, options};

/// The ratios that a sweep visits, in addition to a single active descriptor.
const SHARES: [f64; 9] = [0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.7, 0.8, 1.0];

/// Upper bound for the memory of a thread in bytes, including its stack in the kernel.
const THREAD_MEMORY: u64 = 48_000;

/// Rounds of a block, at least and at most.
const ROUNDS: (usize, usize) = (12, 4000);

/// The number of blocks that a block's length leaves room for, unless the options give one.
const BLOCKS: usize = 5;

/// The plan of the measurement, checked against the limits of this process.
#[derive(Debug)]
struct Plan {
    sweep: Sweep,
    runs: Vec<Where>,
    entries: Vec<Entry>,
    notes: Vec<String>,
}

fn plan(options: &Options, processors: usize) -> Result<Plan> {
    let totals = options::numbers("--total", &options.total)?;
    let active = options.active.as_deref();
    let mut sweep = Sweep::new(&options.kind, &options.placement, totals, active, &SHARES)?;
    let mut notes = std::mem::take(&mut sweep.notes);
    let both = [Where::One, Where::All];
    let nowhere = "no choice of --processors";
    let mut runs = options::named(&options.processors, &both, |one| one.name(), |_| true, nowhere)?;
    if processors < 2 {
        notes.push("there is one processor: subjects share it with the writer".to_owned());
        runs = vec![Where::One];
    }
    Ok(Plan { sweep, runs, entries: subject::chosen(options.subjects.as_deref())?, notes })
}

impl Plan {
    /// Returns the subjects that take part there: on one processor, a thread for each processor is
    /// the loop of one thread.
    fn taking(&self, runs: Where) -> Vec<Entry> {
        self.entries.iter().filter(|e| runs == Where::All || !e.spreads).copied().collect()
    }

    /// Lowers totals to the number of threads that the system allows, and says so.
    fn shrink_to_limits(&mut self) {
        if !self.entries.iter().any(|entry| entry.family == Family::Threads) {
            return;
        }
        let rooms = [limits::tasks(), limits::in_memory(THREAD_MEMORY)].into_iter().flatten();
        let Some(room) = rooms.min_by_key(|room| room.most) else { return };
        let most = usize::try_from(room.most).unwrap_or(usize::MAX).max(1);
        for total in self.sweep.totals.clone() {
            if total > most {
                self.notes.push(fewer(total, most, &room.limit));
                self.sweep.lower(total, most);
            }
        }
    }
}

fn fewer(asked: usize, had: usize, why: &str) -> String {
    format!(
        "asked for {asked} threads, there can be {had}: {why}; all subjects have {had} descriptors"
    )
}

/// Runs the experiment.
pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let processors = process::processors();
    let mut plan = plan(options, processors.len())?;
    plan.shrink_to_limits();
    let sizes = plan.sweep.sizes(plan.runs.len());
    let budget = Budget::of_sizes(&options.output, sizes, 25.0, 120.0);
    let subjects: usize = plan.runs.iter().map(|&runs| plan.taking(runs).len()).sum();
    let (notes, blocks) = (std::mem::take(&mut plan.notes), plan.sweep.len() * subjects * BLOCKS);
    let mut run = Run::new("threads", &options.output, notes, blocks, budget);
    let writer = processors.first().copied().unwrap_or(0);
    process::pin(&[writer]).doing(format_args!("moving the writer to processor {writer}"))?;
    let measured = measure_all(&mut plan, &processors, &mut run);
    // If the binding cannot be undone, the following experiments run on one processor.
    let _ = process::pin(&processors);
    let rows = measured?;
    let about = |entry: &Entry| (entry.name.to_owned(), json!(entry.about));
    let own = [
        ("processors", json!(plan.runs.iter().map(|runs| runs.name()).collect::<Vec<_>>())),
        ("writers_processor", json!(writer)),
        ("total_asked", json!(options.total)),
        ("subjects", plan.entries.iter().map(about).collect()),
        ("bytes_verified", json!(true)),
    ];
    Ok(run.record(plan.sweep.parameters().into_iter().chain(own), rows))
}

fn measure_all(plan: &mut Plan, processors: &[usize], run: &mut Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for kind in plan.sweep.kinds.clone() {
        for total in plan.sweep.totals.clone() {
            let (pairs, total) = pairs_for_all(plan, run, kind, total, processors)?;
            for placement in plan.sweep.placements.clone() {
                for &runs in &plan.runs {
                    for active in plan.sweep.points(total) {
                        if !run.budget.point() {
                            continue;
                        }
                        let active = placement.choose(total, active);
                        let point =
                            Point { kind, pairs: &pairs, active: &active, runs, processors };
                        let taking = plan.taking(runs);
                        let (progress, budget) = (&run.progress, &mut run.budget);
                        let blocks = take_turns(point, &taking, budget, |name| {
                            let (active, runs) = (active.len(), runs.name());
                            progress
                                .step(format!("{kind} {active}/{total} {placement} {runs} {name}"));
                        });
                        if let Some(blocks) = run.budget.keep(blocks)? {
                            let at = Row {
                                kind: kind.name().to_owned(),
                                placement: placement.name().to_owned(),
                                processors: runs.name().to_owned(),
                                total,
                                active: active.len(),
                                ..Row::default()
                            };
                            let had_turn = blocks.iter().filter(|own| !own.is_empty()).count();
                            let taking = &taking[..had_turn];
                            rows.extend(figures::rows(&at, taking, &blocks[..had_turn]));
                        }
                    }
                }
            }
        }
    }
    Ok(rows)
}

/// Measures the blocks of all subjects in turn, in the rounds of a point.
fn take_turns(
    point: Point<'_>,
    taking: &[Entry],
    budget: &mut Budget,
    begins: impl Fn(&str),
) -> Result<Vec<Vec<Block>>> {
    // About as much time as for the rounds goes into the set-up.
    let ns = budget.slot(taking.len(), BLOCKS) * 1e9 / 2.0;
    let mut blocks: Vec<Vec<Block>> = vec![Vec::new(); taking.len()];
    while budget.round() {
        for place in budget.turns(taking.len()) {
            let entry = taking[place];
            begins(entry.name);
            match block::measure(entry, point, Length { ns, rounds: ROUNDS })? {
                Ok(block) => blocks[place].push(block),
                Err(refusal) => return Err(late(entry, point.pairs.len(), refusal)),
            }
        }
    }
    Ok(blocks)
}

/// The error for a number of threads that the system allowed a moment ago and refuses now.
fn late(entry: Entry, total: usize, refusal: Refusal) -> Error {
    let doing = format!(
        "starting thread {} of {total} for {}, which it could have before (a smaller --total leaves others room)",
        refusal.had + 1,
        entry.name
    );
    Error::system(doing, refusal.source)
}

/// Opens pairs, as many as there can be threads for; the number is found by trying.
fn pairs_for_all(
    plan: &mut Plan,
    run: &mut Run<'_>,
    kind: Kind,
    total: usize,
    processors: &[usize],
) -> Result<(Pairs, usize)> {
    let pairs = Pairs::open(kind, total)?;
    let threads = plan.entries.iter().find(|entry| entry.family == Family::Threads);
    let Some(&entry) = threads else { return Ok((pairs, total)) };
    let point = Point { kind, pairs: &pairs, active: &[], runs: Where::All, processors };
    let Some(refusal) = block::probe(entry, point)? else { return Ok((pairs, total)) };
    // Leaves some room for other processes, which start threads, too.
    let most = usize::try_from(refusal.had).unwrap_or(0) * 9 / 10;
    if most == 0 {
        return Err(Error::system("starting a thread", refusal.source));
    }
    run.note(fewer(total, most, &refusal.source.to_string()));
    plan.sweep.lower(total, most);
    drop(pairs);
    Ok((Pairs::open(kind, most)?, most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::sweeps;

    #[test]
    fn a_pool_takes_part_where_there_are_processors_for_it() {
        let plan_of = |processors| plan(&Options::default(), processors).unwrap();
        let names = |entries: Vec<Entry>| entries.iter().map(|e| e.name).collect::<Vec<_>>();
        let four = plan_of(4);
        assert_eq!(four.runs, [Where::One, Where::All]);
        assert!(!names(four.taking(Where::One)).contains(&"pool-epoll"));
        assert!(names(four.taking(Where::All)).contains(&"pool-epoll"));
        let single = plan_of(1);
        assert!(single.runs == [Where::One] && single.notes[0].contains("one processor"));
        let error = plan(&Options { processors: "some".to_owned(), ..Options::default() }, 2);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("--processors") && error.contains("one, all"), "{error}");
    }

    #[test]
    fn more_threads_than_there_can_be_are_fewer_and_a_note_says_why() {
        let active = Some("1,60".to_owned());
        let mut plan = plan(&Options { active, ..Options::default() }, 2).unwrap();
        plan.sweep.lower(100, 50);
        assert_eq!(plan.sweep.totals, [50, 1000]);
        assert_eq!((plan.sweep.points(50), plan.sweep.points(1000)), (vec![1, 50], vec![1, 60]));
        let note = fewer(100, 50, "kernel.pid_max is 50");
        assert!(
            note.starts_with("asked for 100 threads, there can be 50: kernel.pid_max"),
            "{note}"
        );
    }

    #[test]
    fn sweeps_differ_by_the_processors_of_the_subjects() {
        let row = |processors: &str, active| Row {
            kind: "pipe".to_owned(),
            placement: "end".to_owned(),
            processors: processors.to_owned(),
            total: 10,
            active,
            ..Row::default()
        };
        let rows = [row("one", 1), row("all", 1), row("one", 10)];
        let found = sweeps(&rows);
        assert_eq!(found[0].0, "pipe 10 end, one processor");
        assert_eq!((found[0].1.len(), found[1].1.len(), found[0].1[1].atr()), (2, 1, 1.0));
    }
}
