//! Asking the engines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use superpoll_rt::{JoinHandle, Stats, TurnWatch, time};

use super::snapshot::{Engine, Snapshot};
use super::subject::Subject;

/// How long engines may take to answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// The answer of an engine, and its time.
type Answer = JoinHandle<Option<(Stats, Instant)>>;

/// The repeated questions to all engines, from the first engine.
pub(super) struct Collector {
    subject: Arc<Subject>,
    /// The questions that are not answered yet.
    asked: Vec<Option<Answer>>,
    last: Vec<Option<Engine>>,
    _watch: TurnWatch,
}

impl Collector {
    pub(super) fn new(subject: Arc<Subject>) -> Collector {
        let engines = subject.handle.engines();
        let _watch = subject.handle.watch_turns();
        let asked = (0..engines).map(|_| None).collect();
        Collector { asked, last: vec![None; engines], subject, _watch }
    }

    /// Asks all engines.
    pub(super) async fn take(&mut self) -> Snapshot {
        let Collector { subject, asked, last, .. } = self;
        let answer = || Stats::current().ok().map(|stats| (stats, Instant::now()));
        for (number, asked) in asked.iter_mut().enumerate() {
            if asked.is_none() {
                // An engine that has ended has no answer any more.
                *asked = subject.handle.spawn_on(number, async move { answer() }).ok();
            }
        }
        let end = Instant::now() + PATIENCE;
        for (number, slot) in asked.iter_mut().enumerate() {
            if let Some(engine) = &mut last[number] {
                engine.answers = false;
            }
            let Some(asked) = slot else { continue };
            let Ok(outcome) = time::timeout_at(end, asked).await else { continue };
            *slot = None;
            if let Ok(Some((stats, at))) = outcome {
                let at = at.saturating_duration_since(subject.started);
                let counters = subject.counters.get(number).map(|counters| &**counters);
                last[number] = Some(Engine::new(number, at, &stats, counters));
            }
        }
        let mut snapshot =
            Snapshot::new(subject.program, subject.backend, subject.started.elapsed());
        snapshot.connections = (subject.connections)();
        snapshot.engines = last.iter().flatten().cloned().collect();
        snapshot
    }
}
