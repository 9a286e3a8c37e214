//! Asking the engines.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use superpoll_http::telemetry::counters::EngineCounters;
use superpoll_http::telemetry::ratio::ActiveRatio;
use superpoll_http::telemetry::traffic::{ChannelName, Processes};
use superpoll_rt::{JoinHandle, Stats, TurnWatch, spawn, time};

use super::snapshot::{Engine, Snapshot};
use super::subject::{Engines, Subject};
use crate::processes::{Answers, Kind};
use crate::telemetry::verdict::WatchingCost;

/// How long engines may take to answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long engines continue timing their turns precisely after a supervisor has asked.
const WATCHED: Duration = Duration::from_secs(5);

/// The answer of an engine, and its time.
type Answer = JoinHandle<Option<(Stats, Instant)>>;

/// The repeated questions to all engines, from the first engine.
pub(super) struct Collector {
    subject: Arc<Subject>,
    /// The questions that are not answered yet.
    asked: Vec<Option<Answer>>,
    last: Vec<Option<Engine>>,
    /// The engines of the last snapshot.
    before: Vec<Engine>,
    processes: Processes,
    /// The channels whose figures a supervisor asks for by name.
    wanted: Vec<ChannelName>,
    /// The requests under way in all processes that have answered, also in those whose engines
    /// are not in the snapshot.
    running: u64,
    _watch: TurnWatch,
}

impl Collector {
    pub(super) fn new(subject: Arc<Subject>) -> Collector {
        let engines = subject.handle.engines();
        let _watch = subject.handle.watch_turns();
        let asked = (0..engines).map(|_| None).collect();
        let (last, processes) = (vec![None; engines], Processes::default());
        Collector {
            asked,
            last,
            before: Vec::new(),
            processes,
            wanted: Vec::new(),
            subject,
            running: 0,
            _watch,
        }
    }

    /// The requests under way in the processes of a server of several, as of the last snapshot.
    pub(super) fn running(&self) -> u64 {
        self.running
    }

    /// Asks all engines.
    pub(super) async fn take_snapshot(&mut self) -> Snapshot {
        let subject = self.subject.clone();
        let mut snapshot =
            Snapshot::new(subject.program, subject.backend, time::now() - subject.started);
        match &subject.engines {
            Engines::Here { counters, connections, overview } => {
                let counted = if overview.is_some() { &**counters } else { &[] };
                self.ask(counted).await;
                snapshot.engines = self.last.iter().flatten().cloned().collect();
                snapshot.connections = connections();
                snapshot.active_ratio =
                    ActiveRatio::read(counters.iter().map(|engine| &engine.ratio));
                // Rates are made of the counts of this moment.
                snapshot.set_uptime(time::now() - subject.started);
                let wanted = &self.wanted;
                if let Some(overview) = overview {
                    snapshot.traffic = Some(overview.traffic(wanted).await);
                }
            }
            Engines::There(workers) => {
                let asked = Kind::Statistics(self.processes.wanted());
                let Answers { all, missing } = workers.ask(asked).await;
                snapshot.set_uptime(time::now() - subject.started);
                snapshot.missing_processes = missing;
                let read = all.iter().filter_map(|answer| {
                    Some((answer.slot, postcard::from_bytes(&answer.bytes).ok()?))
                });
                let read: Vec<(u32, Snapshot)> = read.collect();
                let engines = read.iter().flat_map(|(_, one)| &one.engines);
                let counts = engines.filter_map(|engine| engine.connections);
                self.running = counts.map(|counts| counts.running).sum();
                snapshot.add_all(read, &mut self.processes);
            }
        }
        if let Some(ratio) = &snapshot.active_ratio {
            // A relay watches both ends of a pair.
            let ends = match &subject.engines {
                Engines::Here { overview: None, .. } => 2.0,
                _ => 1.0,
            };
            let (all, now) = (ratio.last_second.connections * ends, &snapshot.engines);
            snapshot.watching = WatchingCost::between(&self.before, now, all);
        }
        self.before = snapshot.engines.clone();
        snapshot
    }

    /// Asks the engines of this process.
    async fn ask(&mut self, counters: &[Arc<EngineCounters>]) {
        let Collector { subject, asked, last, .. } = self;
        let answer = || Stats::current().ok().map(|stats| (stats, time::now()));
        for (number, asked) in asked.iter_mut().enumerate() {
            if asked.is_none() {
                // An engine that has ended has no answer any more.
                *asked = subject.handle.spawn_on(number, async move { answer() }).ok();
            }
        }
        let end = time::now() + PATIENCE;
        for (number, slot) in asked.iter_mut().enumerate() {
            if let Some(engine) = &mut last[number] {
                engine.answers = false;
            }
            let Some(asked) = slot else { continue };
            let Ok(outcome) = time::timeout_at(end, asked).await else { continue };
            *slot = None;
            if let Ok(Some((stats, at))) = outcome {
                let at = at.saturating_duration_since(subject.started);
                let counters = counters.get(number).map(|counters| &**counters);
                last[number] = Some(Engine::new(number, at, &stats, counters));
            }
        }
    }
}

/// A collector that is kept for as long as a supervisor asks now and then.
#[derive(Default)]
pub(crate) struct Kept {
    collector: RefCell<Option<Collector>>,
    asked: Cell<Option<Instant>>,
    is_watched: Cell<bool>,
}

impl Kept {
    /// Asks all engines of this process, with the figures of some channels.
    pub(crate) async fn take_snapshot(
        self: &Rc<Kept>,
        subject: Arc<Subject>,
        wanted: Vec<ChannelName>,
    ) -> Snapshot {
        self.asked.set(Some(time::now()));
        if !self.is_watched.replace(true) {
            let kept = self.clone();
            spawn(async move { kept.drop_later().await }).detach();
        }
        let taken = self.collector.borrow_mut().take();
        let mut collector = taken.unwrap_or_else(|| Collector::new(subject));
        collector.wanted = wanted;
        let snapshot = collector.take_snapshot().await;
        *self.collector.borrow_mut() = Some(collector);
        snapshot
    }

    async fn drop_later(&self) {
        while let Some(asked) = self.asked.get()
            && time::now() - asked < WATCHED
        {
            time::sleep_until(asked + WATCHED).await;
        }
        self.is_watched.set(false);
        self.collector.borrow_mut().take();
    }
}
