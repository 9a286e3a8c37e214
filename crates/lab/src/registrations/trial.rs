//! The subjects in turn, with each size of a batch.

use std::time::Instant;

use serde_json::json;

use crate::budget::Budget;
use crate::channel::{self, Kind, Pairs};
use crate::error::{Error, Result};
use crate::options;
use crate::random::Random;
use crate::record::Record;
use crate::registrations::subject::{self, Registry, Start};
use crate::registrations::{Options, Row, YARDSTICK};
use crate::run::Run;
use crate::second_thread::SecondThread;
use crate::server::subject::Subject;
use crate::statistics::{self, Ratio};
use crate::sys::epoll::Change;
use crate::sys::{descriptor, poll, process};

/// The batches that are measured: those that do not exceed the total.
const BATCHES: [usize; 5] = [1, 4, 16, 64, 256];

struct Plan {
    kinds: Vec<Kind>,
    batches: Vec<usize>,
    total: usize,
}

fn plan(options: &Options) -> Result<Plan> {
    let total = options.total;
    channel::check_total(total)?;
    let batches = BATCHES.into_iter().filter(|&batch| batch <= total).collect();
    Ok(Plan { kinds: options::kinds(&options.kind)?, batches, total })
}

/// Runs the experiment.
pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let plan = plan(options)?;
    let (entries, notes) = subject::chosen(options.subjects.as_deref())?;
    let _second = options.output.second_thread.then(SecondThread::start);
    let points = plan.kinds.len() * plan.batches.len();
    let budget = Budget::new(&options.output, points, 10.0, 40.0);
    let mut run = Run::new("registrations", &options.output, notes, points, budget);
    let mut random = Random::new(options.output.seed);
    let mut rows = Vec::new();
    for &kind in &plan.kinds {
        let pairs = Pairs::open(kind, plan.total)?;
        let start = |entry| Runner::start(entry, plan.total);
        let mut runners = entries.iter().map(start).collect::<Result<Vec<_>>>()?;
        for &batch in &plan.batches {
            if !run.budget.point() {
                continue;
            }
            run.progress.step(format!("{kind} in batches of {batch}"));
            let mut take_turns = |budget: &Budget, counts| {
                let sample = sample(&mut random, plan.total);
                budget
                    .turns(entries.len())
                    .try_for_each(|place| runners[place].round(&pairs, batch, &sample, counts))
            };
            // The first round touches memory that is not there yet.
            let mut measured = take_turns(&run.budget, false);
            while measured.is_ok() && run.budget.round() {
                measured = take_turns(&run.budget, true);
            }
            if run.budget.keep(measured)?.is_none() {
                continue;
            }
            let mut point: Vec<Row> = runners.iter().map(|r| row(r, kind, batch, &plan)).collect();
            relate(&mut point, &runners);
            rows.extend(point.into_iter().filter(|row| row.rounds > 0));
            runners.iter_mut().for_each(|runner| runner.rounds.clear());
        }
    }
    let own = [
        ("subjects", entries.iter().map(|e| (e.name.to_owned(), json!(e.about))).collect()),
        ("kinds", json!(plan.kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>())),
        ("batches", json!(plan.batches)),
        ("total", json!(plan.total)),
        ("verified_per_part", json!(sample(&mut random, plan.total).len())),
    ];
    Ok(run.record(own, rows))
}

/// A figure of a round.
type Of = fn(&Round) -> f64;

const BOTH: Of = |round| round.register.cpu + round.deregister.cpu;

const WALL: Of = |round| round.register.wall + round.deregister.wall;

fn row(runner: &Runner, kind: Kind, batch: usize, plan: &Plan) -> Row {
    let each = |of: Of| -> Vec<f64> {
        runner.rounds.iter().map(|round| of(round) / plan.total as f64).collect()
    };
    let (register, modify) = (each(|r| r.register.cpu), each(|r| r.modify.cpu));
    let (deregister, both) = (each(|r| r.deregister.cpu), each(BOTH));
    Row {
        kind: kind.name().to_owned(),
        batch,
        subject: runner.entry.name.to_owned(),
        total: plan.total,
        register_ns_median: statistics::median(&register),
        modify_ns_median: statistics::median(&modify),
        deregister_ns_median: statistics::median(&deregister),
        both_ns_median: statistics::median(&both),
        both_ns_min: statistics::minimum(&both),
        wall_ns_median: statistics::median(&each(WALL)),
        calls: statistics::median(&each(|r| (r.register.calls + r.deregister.calls) as f64)),
        rounds: runner.rounds.len(),
        ..Row::default()
    }
}

/// Fills in the ratios at one point, round by round: a disturbance of a round hits all registries
/// in it.
fn relate(point: &mut [Row], runners: &[Runner]) {
    let Some(yardstick) = runners.iter().find(|runner| runner.entry.name == YARDSTICK) else {
        return;
    };
    for (row, runner) in point.iter_mut().zip(runners) {
        let ratio = |of: Of| {
            let costs = |runner: &Runner| runner.rounds.iter().map(of).collect::<Vec<f64>>();
            Ratio::of(&costs(runner), &costs(yardstick))
        };
        row.ratio = ratio(BOTH);
        let median = |of: Of| ratio(of).map(|ratio| ratio.median);
        row.wall_ratio = median(WALL);
        row.register_ratio = median(|round| round.register.cpu);
        row.modify_ratio = median(|round| round.modify.cpu);
        row.deregister_ratio = median(|round| round.deregister.cpu);
    }
}

// A round of one registry, and the proof that it did its work.

/// The most descriptors that are checked after each part.
const SAMPLE: usize = 4;

/// One part of a round, over all descriptors.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    /// Processor time in nanoseconds.
    pub cpu: f64,
    /// Time in nanoseconds.
    pub wall: f64,
    /// System calls.
    pub calls: u64,
}

/// The measurements of a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// To register all.
    pub register: Part,
    /// To change all.
    pub modify: Part,
    /// To deregister all.
    pub deregister: Part,
}

/// The pairs to check in a round: some, each once.
pub(super) fn sample(random: &mut Random, total: usize) -> Vec<usize> {
    let mut sample = Vec::new();
    while sample.len() < SAMPLE.min(total) {
        let pair = random.below(total);
        if !sample.contains(&pair) {
            sample.push(pair);
        }
    }
    sample
}

/// A registry at work.
pub(super) struct Runner {
    /// The registry's entry.
    pub entry: Subject<Start>,
    /// The counted rounds.
    pub rounds: Vec<Round>,
    registry: Box<dyn Registry>,
    found: Vec<usize>,
}

impl Runner {
    /// Starts a registry for `total` pairs.
    pub(super) fn start(entry: &Subject<Start>, total: usize) -> Result<Runner> {
        let registry = (entry.start)(total)?;
        Ok(Runner { entry: *entry, rounds: Vec::new(), registry, found: Vec::new() })
    }

    /// Runs a round with batches of this size, and notes its measurements if it counts.
    pub(super) fn round(
        &mut self,
        pairs: &Pairs,
        batch: usize,
        sample: &[usize],
        counts: bool,
    ) -> Result<()> {
        process::watch(self.entry.name);
        let register = self.part(pairs, batch, Change::Add)?;
        self.is_deaf(pairs, sample)?;
        let modify = self.part(pairs, batch, Change::Modify)?;
        self.hears(pairs, sample)?;
        let deregister = self.part(pairs, batch, Change::Delete)?;
        self.is_deaf(pairs, sample)?;
        process::unwatch();
        if counts {
            self.rounds.push(Round { register, modify, deregister });
        }
        Ok(())
    }

    fn part(&mut self, pairs: &Pairs, batch: usize, change: Change) -> Result<Part> {
        let calls = self.registry.calls();
        let (cpu, start) = (process::processor_time(), Instant::now());
        let mut first = 0;
        while first < pairs.len() {
            let some = first..(first + batch).min(pairs.len());
            first = some.end;
            self.registry.change(pairs, some, change)?;
        }
        self.registry.look(&mut self.found)?;
        let part = Part {
            wall: start.elapsed().as_nanos() as f64,
            cpu: (process::processor_time() - cpu) as f64,
            calls: self.registry.calls() - calls,
        };
        match self.found.pop() {
            Some(pair) => self.wrong(format!("pair {pair} is reported though it has nothing")),
            None => Ok(part),
        }
    }

    fn wrong<T>(&self, found: String) -> Result<T> {
        Err(Error::Work { subject: self.entry.name, found })
    }

    fn write(pairs: &Pairs, sample: &[usize]) -> Result<()> {
        for &pair in sample {
            if !descriptor::write_byte(pairs.writers()[pair], pair as u8) {
                return Err(Error::last(format!("writing to pair {pair}")));
            }
        }
        Ok(())
    }

    fn answer(pairs: &Pairs, sample: &[usize]) -> Result<()> {
        pairs.answer(&sample.iter().map(|&pair| pair as u32).collect::<Vec<_>>())
    }

    /// Checks that a byte to each of some descriptors is reported, by these alone.
    fn hears(&mut self, pairs: &Pairs, sample: &[usize]) -> Result<()> {
        Runner::write(pairs, sample)?;
        let mut left = sample.to_vec();
        // The network may be late; the watch finds a lost registration.
        while !left.is_empty() {
            self.registry.look(&mut self.found)?;
            for pair in std::mem::take(&mut self.found) {
                if !sample.contains(&pair) {
                    return self.wrong(format!("pair {pair} is reported instead of {sample:?}"));
                }
                if descriptor::read_byte(pairs.readers()[pair]) == Some(pair as u8) {
                    left.retain(|&other| other != pair);
                }
            }
        }
        Runner::answer(pairs, sample)
    }

    /// Checks that a byte to each of some descriptors is there and is not reported.
    fn is_deaf(&mut self, pairs: &Pairs, sample: &[usize]) -> Result<()> {
        Runner::write(pairs, sample)?;
        for &pair in sample {
            let fd = pairs.readers()[pair];
            while poll::wait(&mut [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }]) != 1 {}
        }
        self.registry.look(&mut self.found)?;
        if let Some(pair) = self.found.pop() {
            return self.wrong(format!("pair {pair} is reported without being registered"));
        }
        for &pair in sample {
            if descriptor::read_byte(pairs.readers()[pair]) != Some(pair as u8) {
                return self.wrong(format!("the byte of pair {pair} is gone"));
            }
        }
        Runner::answer(pairs, sample)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::channel::Kind;
    use crate::registrations::subject;

    #[test]
    fn batches_do_not_exceed_the_total() {
        let of = |total| plan(&Options { total, ..Options::default() });
        assert_eq!(of(20).unwrap().batches, [1, 4, 16]);
        for total in [0, 10_000_000] {
            assert!(of(total).err().unwrap().to_string().contains("--total"), "{total}");
        }
    }

    #[test]
    fn ratios_are_those_of_each_round() {
        let runner = |name: &str, cpu: [f64; 3]| {
            let (found, _) = subject::chosen(Some(name)).unwrap();
            let entry = *found.iter().find(|entry| entry.name == name).unwrap();
            let mut runner = Runner::start(&entry, 2).unwrap();
            runner.rounds = cpu
                .map(|cpu| {
                    let part = |cpu| Part { cpu, wall: 2.0 * cpu, calls: 4 };
                    Round { register: part(cpu), modify: part(7.0), deregister: part(cpu) }
                })
                .to_vec();
            runner
        };
        let runners =
            [runner(YARDSTICK, [100.0, 200.0, 100.0]), runner("epoll", [110.0, 220.0, 300.0])];
        let plan = Plan { kinds: vec![Kind::Pipe], batches: vec![1], total: 2 };
        let mut point: Vec<Row> = runners.iter().map(|r| row(r, Kind::Pipe, 1, &plan)).collect();
        relate(&mut point, &runners);
        let [first, second] = [0, 1].map(|place| point[place].ratio.unwrap());
        assert_eq!((first.median, point[0].both_ns_median), (1.0, 100.0));
        assert_eq!((second.median, second.low, second.high), (1.1, 1.1, 3.0));
        assert_eq!((point[1].modify_ratio, point[1].calls), (Some(1.0), 4.0));
        assert_eq!((point[1].wall_ns_median, point[1].rounds), (440.0, 3));
    }

    #[test]
    fn every_registry_does_rounds_of_every_batch_on_every_kind() {
        for kind in Kind::ALL {
            let pairs = Pairs::open(kind, 40).unwrap();
            let (entries, _) = subject::chosen(None).unwrap();
            let mut runners: Vec<_> =
                entries.iter().map(|entry| Runner::start(entry, 40).unwrap()).collect();
            let mut random = Random::new(3);
            for (round, batch) in [1, 7, 40, 3].into_iter().enumerate() {
                let sample = sample(&mut random, 40);
                for runner in &mut runners {
                    runner.round(&pairs, batch, &sample, round > 0).unwrap();
                }
            }
            for runner in runners {
                assert_eq!(runner.rounds.len(), 3);
                for round in &runner.rounds {
                    for part in [round.register, round.modify, round.deregister] {
                        assert!(part.cpu > 0.0 && part.wall > 0.0 && part.calls > 0);
                    }
                }
            }
        }
    }

    #[test]
    fn a_batch_larger_than_the_ring_takes_several_calls() {
        let pairs = Pairs::open(Kind::Pipe, 300).unwrap();
        for entry in subject::chosen(Some("ring-epoll-ctl,ring-poll,ring-poll-remove")).unwrap().0 {
            let mut runner = Runner::start(&entry, 300).unwrap();
            runner.round(&pairs, 300, &[0, 255, 256, 299], true).unwrap();
            let calls = runner.rounds[0].register.calls;
            // Two batches and a check, or a call for each.
            assert_eq!(
                calls,
                if entry.name.starts_with("ring-") { 3 } else { 301 },
                "{}",
                entry.name
            );
        }
    }

    #[test]
    fn a_poll_that_is_about_to_report_is_taken_back_all_the_same() {
        let pairs = Pairs::open(Kind::Pipe, 2).unwrap();
        let named = Some("ring-poll,ring-poll-remove");
        for entry in subject::chosen(named).unwrap().0.iter().skip(1) {
            let mut registry = (entry.start)(2).unwrap();
            registry.change(&pairs, 0..2, Change::Add).unwrap();
            registry.change(&pairs, 0..2, Change::Modify).unwrap();
            assert!(descriptor::write_byte(pairs.writers()[1], 7));
            registry.change(&pairs, 0..2, Change::Delete).unwrap();
            // Reports before this point count; after it there are none.
            registry.look(&mut Vec::new()).unwrap();
            assert_eq!(descriptor::read_byte(pairs.readers()[1]), Some(7));
            assert!(descriptor::write_byte(pairs.writers()[1], 8));
            let mut found = Vec::new();
            registry.look(&mut found).unwrap();
            assert!(found.is_empty(), "{}", entry.name);
            assert_eq!(descriptor::read_byte(pairs.readers()[1]), Some(8));
        }
    }

    /// Does everything except one thing.
    struct Lazy {
        inner: Box<dyn Registry>,
        forgets: Option<Change>,
        mistakes: usize,
    }

    impl Registry for Lazy {
        fn change(&mut self, pairs: &Pairs, batch: Range<usize>, change: Change) -> Result<()> {
            if self.forgets == Some(change) {
                return Ok(());
            }
            self.inner.change(pairs, batch, change)
        }
        fn look(&mut self, found: &mut Vec<usize>) -> Result<()> {
            self.inner.look(found)?;
            found.iter_mut().for_each(|pair| *pair += self.mistakes);
            Ok(())
        }
        fn calls(&self) -> u64 {
            self.inner.calls()
        }
    }

    #[test]
    fn missing_work_is_detected() {
        let pairs = Pairs::open(Kind::Unix, 8).unwrap();
        let outcome = |forgets, mistakes| {
            let mut runner =
                Runner::start(&subject::chosen(Some(YARDSTICK)).unwrap().0[0], 8).unwrap();
            let inner = runner.registry;
            runner.registry = Box::new(Lazy { inner, forgets, mistakes });
            let outcome = runner.round(&pairs, 3, &[2, 5], true).map_err(|e| e.to_string());
            for &fd in pairs.readers() {
                while descriptor::read_byte(fd).is_some() {}
            }
            process::unwatch();
            outcome
        };
        assert_eq!(outcome(None, 0), Ok(()));
        assert!(outcome(Some(Change::Delete), 0).unwrap_err().contains("without being registered"));
        assert!(outcome(Some(Change::Add), 0).unwrap_err().contains("changing an epoll set"));
        assert!(outcome(None, 1).unwrap_err().contains("is reported instead of [2, 5]"));
    }
}
