//! Memory after a spike of registrations: it follows the numbers of descriptors, which the tests of
//! a process have in common, so each of these is alone.

use std::io::{PipeReader, PipeWriter, Write};
use std::time::Duration;

use superpoll::{BackendKind, Error, Events, Interest, Key, Poller};
use superpoll_test_support::alone;

const NOW: Option<Duration> = Some(Duration::ZERO);

/// This many registrations are a spike. Their descriptors are duplicates of one.
const SPIKE: usize = 600;

fn bytes(poller: &Poller) -> usize {
    let memory = poller.memory();
    memory.own + memory.mirrors
}

struct Stage {
    poller: Poller,
    events: Events,
    reader: PipeReader,
    writer: PipeWriter,
}

impl Stage {
    fn new(kind: BackendKind) -> Stage {
        // Spikes may be more than a process may open at first.
        superpoll::limits::raise_descriptors().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let poller = Poller::builder().backend(kind).build().unwrap();
        Stage { poller, events: Events::with_limit(16), reader, writer }
    }

    fn wait(&mut self) {
        self.poller.wait(&mut self.events, NOW).unwrap();
    }

    /// Registers many, has all of them watched, and ends them; returns their keys.
    fn spike(&mut self) -> Vec<Key> {
        let spike: Vec<_> = (0..SPIKE)
            .map(|_| self.poller.own(self.reader.try_clone().unwrap(), Interest::READABLE).unwrap())
            .collect();
        self.wait();
        let keys = spike.iter().map(|owned| owned.key()).collect();
        drop(spike);
        keys
    }

    /// Whether these are stale, and a descriptor that is registered now is found ready under
    /// another key.
    fn check(&mut self, known: &[Key]) {
        for &key in known {
            let outcome = self.poller.modify(key, Interest::READABLE);
            assert!(matches!(outcome, Err(Error::StaleKey { .. })));
        }
        let reader = self.reader.try_clone().unwrap();
        let owned = self.poller.own(reader, Interest::READABLE).unwrap();
        assert!(!known.contains(&owned.key()));
        self.writer.write_all(b"x").unwrap();
        self.poller.wait(&mut self.events, None).unwrap();
        assert!(self.events.find(owned.key()).is_some());
        std::io::Read::read_exact(&mut self.reader, &mut [0]).unwrap();
    }
}

fn kinds() -> impl Iterator<Item = BackendKind> {
    // `select` has a table of fixed size for all numbers below 1024, and this program may have
    // more.
    BackendKind::available().into_iter().filter(|&kind| kind != BackendKind::Select)
}

#[test]
fn a_flush_after_a_spike_gives_its_memory_back() {
    alone(|| {
        for kind in kinds() {
            let mut stage = Stage::new(kind);
            let mut known = Vec::new();
            for round in 0..3 {
                let spike = stage.spike();
                assert!(spike.iter().all(|key| !known.contains(key)), "{kind} {round}");
                known.extend(spike);
                let peak = bytes(&stage.poller);
                stage.poller.flush();
                let left = bytes(&stage.poller);
                assert!(left < peak / 8, "{kind} {round}: {left} of {peak} bytes are left");
                stage.check(&known);
            }
        }
    });
}

#[test]
fn a_poller_that_goes_on_gives_memory_back_by_itself() {
    alone(|| {
        for kind in kinds() {
            let mut stage = Stage::new(kind);
            let known = stage.spike();
            stage.wait();
            let peak = bytes(&stage.poller);
            let mut rounds = 0;
            while bytes(&stage.poller) > peak / 8 {
                assert!(rounds < 10_000, "{kind}: {} of {peak} bytes", bytes(&stage.poller));
                rounds += 1;
                let key = stage.poller.register(&stage.reader, Interest::READABLE).unwrap();
                stage.wait();
                stage.poller.deregister(key).unwrap();
                stage.wait();
            }
            assert!(
                rounds > 100,
                "{kind}: not after {rounds} rounds, or it would do that again and again"
            );
            stage.check(&known);
        }
    });
}

#[test]
fn a_registrar_goes_on_while_the_table_is_shortened() {
    alone(|| {
        for kind in kinds() {
            let mut stage = Stage::new(kind);
            let registrar = stage.poller.registrar().unwrap();
            let mut known = stage.spike();
            let reader = stage.reader.try_clone().unwrap();
            // Named while the slots are still there, and carried out afterwards.
            stage.wait();
            let owned = registrar.own(reader, Interest::READABLE).unwrap();
            stage.poller.flush();
            assert!(!known.contains(&owned.key()));
            known.push(owned.key());
            drop(owned);
            stage.poller.flush();
            stage.check(&known);
            let again =
                registrar.own(stage.reader.try_clone().unwrap(), Interest::READABLE).unwrap();
            assert!(!known.contains(&again.key()));
            drop(again);
            stage.wait();
        }
    });
}
