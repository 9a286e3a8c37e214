//! A round of one registry, and the proof that it did its work.

use std::time::Instant;

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::random::Random;
use crate::registrations::registry::Registry;
use crate::registrations::subject::Entry;
use crate::sys::epoll::Change;
use crate::sys::{descriptor, poll, process};

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
    pub entry: Entry,
    /// The counted rounds.
    pub rounds: Vec<Round>,
    registry: Box<dyn Registry>,
    found: Vec<usize>,
}

impl Runner {
    /// Starts a registry for `total` pairs.
    pub(super) fn start(entry: &Entry, total: usize) -> Result<Runner> {
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
    use crate::registrations::subject::{self, ALL};

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
            assert_eq!(calls, if entry.rings { 3 } else { 301 }, "{}", entry.name);
        }
    }

    #[test]
    fn a_poll_that_is_about_to_report_is_taken_back_all_the_same() {
        let pairs = Pairs::open(Kind::Pipe, 2).unwrap();
        let named = Some("ring-poll,ring-poll-remove");
        for entry in subject::chosen(named).unwrap().0.iter().filter(|entry| entry.rings) {
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
            let mut runner = Runner::start(&ALL[0], 8).unwrap();
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
