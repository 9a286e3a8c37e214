//! The subjects in turn, at each ratio, on one processor and on all.

use serde_json::json;

use crate::budget::Budget;
use crate::channel::Pairs;
use crate::error::{Doing, Error, Result};
use crate::record::Record;
use crate::run::Run;
use crate::statistics::{self, Ratio};
use crate::sweep::{self, Sweep};
use crate::sys::process;
use crate::threads::block::{self, Block, Point, Refusal, Where};
use crate::threads::subject::{self, Entry, Family};
use crate::threads::{Options, Row};
use crate::{environment, options};

/// The ratios that a sweep visits, in addition to a single active descriptor.
const SHARES: [f64; 9] = [0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.7, 0.8, 1.0];

/// Upper bound for the memory of a thread in bytes, including its stack in the kernel.
const THREAD_MEMORY: u64 = 48_000;

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

    /// Lowers totals to the number of threads that there can be, and says so: first to what the
    /// limits say, then to what a trial finds.
    fn shrink_to_limits(&mut self, processors: &[usize]) -> Result<()> {
        let threads = self.entries.iter().find(|entry| entry.family == Family::Threads);
        let Some(&entry) = threads else { return Ok(()) };
        let rooms = [environment::tasks(), environment::in_memory(THREAD_MEMORY)];
        let room = rooms.into_iter().flatten().min_by_key(|room| room.most);
        for asked in self.sweep.totals.clone() {
            let mut total = asked;
            if let Some(room) = room.as_ref().filter(|room| room.most < total as u64) {
                total = (room.most as usize).max(1);
                self.lower(asked, total, &room.limit);
            }
            let (kind, runs) = (self.sweep.kinds[0], Where::All);
            let pairs = Pairs::open(kind, total)?;
            let point = Point { kind, pairs: &pairs, active: &[], runs, processors };
            if let Some(refusal) = block::probe(entry, point)? {
                // Leaves some room for other processes, which start threads, too.
                let most = usize::try_from(refusal.had).unwrap_or(0) * 9 / 10;
                if most == 0 {
                    return Err(Error::system("starting a thread", refusal.source));
                }
                self.lower(total, most, &refusal.source.to_string());
            }
        }
        Ok(())
    }

    fn lower(&mut self, total: usize, to: usize, why: &str) {
        self.notes.push(format!(
            "asked for {total} threads, there can be {to}: {why}; all subjects have {to} descriptors"
        ));
        self.sweep.lower(total, to);
    }
}

/// Runs the experiment.
pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let processors = process::processors();
    let mut plan = plan(options, processors.len())?;
    plan.shrink_to_limits(&processors)?;
    let sizes = plan.sweep.sizes().repeat(plan.runs.len());
    let budget = Budget::of_sizes(&options.output, sizes, 25.0, 120.0);
    let subjects: usize = plan.runs.iter().map(|&runs| plan.taking(runs).len()).sum();
    let (notes, blocks) = (std::mem::take(&mut plan.notes), plan.sweep.len() * subjects * BLOCKS);
    let mut run = Run::new("threads", &options.output, notes, blocks, budget);
    let writer = processors.first().copied().unwrap_or(0);
    process::pin(&[writer]).doing(format_args!("moving the writer to processor {writer}"))?;
    let measured = measure_all(&plan, &processors, &mut run);
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

fn measure_all(plan: &Plan, processors: &[usize], run: &mut Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &runs in &plan.runs {
        let taking = plan.taking(runs);
        let all = |_: &mut Run<'_>, _: &Pairs| Ok(Some(()));
        plan.sweep.visit(run, all, |run, at, ()| {
            let sweep::Point { kind, placement, total, active, pairs, ref load } = *at;
            let point = Point { kind, pairs, active: load.round(0), runs, processors };
            let (progress, budget) = (&run.progress, &mut run.budget);
            let blocks = take_turns(point, &taking, budget, |name| {
                let runs = runs.name();
                progress.step(format!("{kind} {active}/{total} {placement} {runs} {name}"));
            })?;
            let at = Row {
                kind: kind.name().to_owned(),
                placement: placement.name().to_owned(),
                processors: runs.name().to_owned(),
                total,
                active,
                ..Row::default()
            };
            let had_turn = blocks.iter().filter(|own| !own.is_empty()).count();
            rows.extend(figures_of(&at, &taking[..had_turn], &blocks[..had_turn]));
            Ok(())
        })?;
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
            match block::measure(entry, point, ns)? {
                Ok(block) => blocks[place].push(block),
                Err(Refusal { had, source }) => {
                    let doing = format!(
                        "starting thread {} of {} for {}, which it could have before (a smaller \
                         --total leaves others room)",
                        had + 1,
                        point.pairs.len(),
                        entry.name
                    );
                    return Err(Error::system(doing, source));
                }
            }
        }
    }
    Ok(blocks)
}

// Rows from blocks: medians, and ratios to the best loop over events, turn by turn.

/// A figure of a block.
type Account = fn(&Block) -> f64;

/// Processor time for an event, including the writer's share. If waiting seems to make a write
/// cheaper, that is noise, and no subject gets credit for it.
fn cost(block: &Block) -> f64 {
    block.cpu_ns + block.write_ns.max(0.0)
}

fn clock(block: &Block) -> f64 {
    block.clock_ns
}

/// Returns the rows of a point, named by `at`, whose subjects have the same number of blocks each.
pub(super) fn figures_of(at: &Row, entries: &[Entry], blocks: &[Vec<Block>]) -> Vec<Row> {
    let best = [clock as Account, cost].map(|of| best(entries, blocks, of));
    let rows = entries.iter().zip(blocks);
    rows.map(|(entry, own)| {
        let all = |of: Account| own.iter().map(of).collect::<Vec<f64>>();
        let middle = |of: Account| statistics::median(&all(of));
        let ratios = |of: Account, best: Option<&[Block]>| {
            Ratio::of(&all(of), &best?.iter().map(of).collect::<Vec<f64>>())
        };
        let [clock_ratio, cost_ratio] = [ratios(clock, best[0]), ratios(cost, best[1])];
        Row {
            subject: entry.name.to_owned(),
            family: entry.family.name().to_owned(),
            threads: own.iter().map(|block| block.threads).max().unwrap_or(0),
            blocks: own.len(),
            rounds: own.iter().map(|block| block.rounds).sum(),
            clock_ns_per_round: middle(clock),
            cpu_ns_per_event: middle(|block| block.cpu_ns),
            write_ns_per_event: middle(|block| block.write_ns),
            cost_ns_per_event: middle(cost),
            cost_ns_per_event_low: statistics::minimum(&all(cost)),
            clock_ratio,
            cost_ratio,
            voluntary_switches_per_event: middle(|block| block.voluntary),
            ..at.clone()
        }
    })
    .collect()
}

/// Returns the blocks of the event loop that is best by `of`.
fn best<'a>(entries: &[Entry], blocks: &'a [Vec<Block>], of: Account) -> Option<&'a [Block]> {
    let middle = |own: &[Block]| statistics::median(&own.iter().map(of).collect::<Vec<_>>());
    let loops = entries.iter().zip(blocks).filter(|(entry, _)| entry.family == Family::Events);
    let owns = loops.map(|(_, own)| own.as_slice()).filter(|own| middle(own) > 0.0);
    owns.min_by(|a, b| middle(a).total_cmp(&middle(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::{subject, sweeps};

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
        plan.lower(100, 50, "kernel.pid_max is 50");
        assert_eq!(plan.sweep.totals, [50, 1000]);
        assert_eq!((plan.sweep.points(50), plan.sweep.points(1000)), (vec![1, 50], vec![1, 60]));
        let note = &plan.notes[0];
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

    #[test]
    fn ratios_are_of_the_same_turn_to_the_loop_that_is_best_by_each_account() {
        let at = Row { total: 10, active: 5, ..Row::default() };
        let entries = subject::chosen(Some("thread-per-descriptor,raw-poll,raw-epoll-lt")).unwrap();
        let block = |clock_ns, cpu_ns, write_ns| Block {
            clock_ns,
            cpu_ns,
            write_ns,
            rounds: 4,
            threads: 11,
            ..Block::default()
        };
        let blocks = [
            vec![block(100.0, 30.0, 20.0), block(90.0, 30.0, 30.0), block(160.0, 30.0, 0.0)],
            // The quicker event loop by the clock, and the more expensive one by processor time.
            vec![block(50.0, 40.0, -3.0), block(60.0, 40.0, -3.0), block(40.0, 40.0, 1.0)],
            vec![block(80.0, 10.0, 10.0), block(80.0, 10.0, 10.0), block(80.0, 10.0, 10.0)],
        ];
        let rows = figures_of(&at, &entries, &blocks);
        let threads = &rows[0];
        assert_eq!((threads.threads, threads.blocks, threads.rounds), (11, 3, 12));
        let [clock, cost] = [threads.clock_ratio, threads.cost_ratio].map(Option::unwrap);
        assert_eq!([clock.low, clock.median, clock.high], [1.5, 2.0, 4.0]);
        assert_eq!([cost.low, cost.median, cost.high], [1.5, 2.5, 3.0]);
        // A write that seems cheaper is no credit.
        let median = |ratio: Option<Ratio>| ratio.map(|ratio| ratio.median);
        assert_eq!((rows[1].cost_ns_per_event_low, median(rows[1].cost_ratio)), (40.0, Some(2.0)));
        let best = (median(rows[1].clock_ratio), median(rows[2].cost_ratio));
        assert_eq!(best, (Some(1.0), Some(1.0)));
        assert_eq!((threads.family.as_str(), rows[1].family.as_str()), ("threads", "events"));
        let alone = figures_of(&at, &entries[..1], &blocks[..1]);
        assert_eq!((alone[0].clock_ratio, alone[0].cost_ratio), (None, None));
    }
}
