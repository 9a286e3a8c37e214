//! The process that the API is about: a [`Subject`], which carries out operations, and the
//! [`Collector`] of its figures.
//!
//! A collector asks each engine from a task on the first one. An engine that does not answer in
//! time is shown as it was when it last answered, and is not asked again before it has answered.
//! As long as there is a collector, engines time their turns
//! [precisely](superpoll_rt::Handle::watch_turns).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use superpoll_http::admin::{
    CommandOutcome, DrainProgress, Operate, Operation, Outcome, Refusal, Report, ServerCommand,
    ServerFacts, ServerPhase, ServerStatus,
};
use superpoll_http::telemetry::counters::EngineCounters;
use superpoll_http::telemetry::ratio::ActiveRatio;
use superpoll_http::telemetry::snapshot::{Engine, Snapshot};
use superpoll_http::telemetry::traffic::{ChannelName, Processes, Traffic};
use superpoll_http::telemetry::verdict::WatchingCost;
use superpoll_http::unix_time::seconds_now;
use superpoll_rt::{Handle, JoinHandle, Runtime, Stats, TurnWatch, spawn, time};

use super::queue::{CommandSender, CountGuard};
use crate::processes::{Answers, Question, Workers};
use crate::relay::Relay;
use crate::telemetry::overview::Overview;

/// The engines of a process, and its parts that carry out operations.
pub struct Subject {
    program: &'static str,
    backend: &'static str,
    pub(super) handle: Handle,
    started: Instant,
    /// The same in seconds since 1970.
    started_seconds: u64,
    pub(super) engines: Engines,
    commands: Option<CommandSender>,
    operate: Option<Arc<dyn Operate>>,
}

/// Where the engines are.
pub(super) enum Engines {
    /// In this process.
    Here {
        /// The counters on each engine; those of a relay count only active pairs.
        counters: Vec<Arc<EngineCounters>>,
        connections: Box<dyn Fn() -> u64 + Send + Sync>,
        /// The source of the figures of requests, if the program counts any.
        overview: Option<Arc<Overview>>,
    },
    /// In the processes of workers.
    There(Arc<dyn Workers>),
}

impl Subject {
    pub(crate) fn new(
        program: &'static str,
        backend: &'static str,
        handle: Handle,
        counters: Vec<Arc<EngineCounters>>,
        connections: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Subject {
        let connections = Box::new(connections);
        let engines = Engines::Here { counters, connections, overview: None };
        Subject::with_engines(program, backend, handle, engines)
    }

    /// Creates the subject of a server of several processes: the engines of its workers, which have
    /// this back-end, in a supervisor with this runtime.
    #[must_use]
    pub fn of_workers(backend: &'static str, handle: Handle, workers: Arc<dyn Workers>) -> Subject {
        let engines = Engines::There(workers.clone());
        Subject::with_engines("serve", backend, handle, engines).operated_by(workers)
    }

    fn with_engines(
        program: &'static str,
        backend: &'static str,
        handle: Handle,
        engines: Engines,
    ) -> Subject {
        let (started, started_seconds) = (time::now(), seconds_now());
        let (commands, operate) = (None, None);
        Subject { program, backend, handle, started, started_seconds, engines, commands, operate }
    }

    /// Gives operations to a server. Without this they are refused.
    #[must_use]
    pub(crate) fn operated_by(self, operate: Arc<dyn Operate>) -> Subject {
        Subject { operate: Some(operate), ..self }
    }

    /// Gives a command to the program, and returns its outcome. The guard of an answer that the
    /// program has given is kept until the answer is written.
    pub(super) async fn command(
        &self,
        command: ServerCommand,
    ) -> (Result<CommandOutcome, Refusal>, Option<CountGuard>) {
        match &self.commands {
            Some(commands) => commands.call(command).await,
            None => (Err(Refusal::unavailable("this program takes no commands")), None),
        }
    }

    /// Carries out an operation, as [`command`](Subject::command) does.
    pub(super) async fn carry_out(
        self: &Arc<Subject>,
        operation: Operation,
    ) -> (Outcome, Option<CountGuard>) {
        let report = match operation {
            Operation::Command(command) => {
                let (outcome, unwritten) = self.command(command).await;
                return (outcome.map(|outcome| Report::Command(outcome).into()), unwritten);
            }
            Operation::Status => Report::Status(Box::new(self.status().await)),
            Operation::Snapshot => {
                let mut snapshot = self.snapshot().await;
                snapshot.traffic.iter_mut().for_each(Traffic::limit);
                Report::Snapshot(Box::new(snapshot))
            }
            operation => match &self.operate {
                Some(operate) => return (operate.clone().operate(operation).await, None),
                None => {
                    let what = "this program has no upstreams, channels or connections to list";
                    return (Err(Refusal::unavailable(what)), None);
                }
            },
        };
        (Ok(report.into()), None)
    }

    /// Carries out an operation in JSON, which another process has asked for. Returns the outcome
    /// in JSON, with a guard of the answer that the program may wait for
    /// ([`CommandQueue::written`](super::CommandQueue::written)): drop it when the answer is sent.
    /// If the future is dropped, the operation may have had its effect or not.
    pub async fn carry_out_json(
        self: &Arc<Subject>,
        operation: &[u8],
    ) -> (Vec<u8>, Option<CountGuard>) {
        let (outcome, unwritten) = match serde_json::from_slice(operation) {
            Ok(operation) => self.carry_out(operation).await,
            Err(error) => (Err(Refusal::invalid(error.to_string())), None),
        };
        // These types have no map with other keys than texts.
        (serde_json::to_vec(&outcome).unwrap_or_default(), unwritten)
    }

    /// Carries out an operation, for an answer that the program does not wait for.
    pub(crate) async fn operate(self: &Arc<Subject>, operation: Operation) -> Outcome {
        self.carry_out(operation).await.0
    }

    async fn snapshot(self: &Arc<Subject>) -> Snapshot {
        Collector::new(self.clone()).take_snapshot().await
    }

    async fn status(self: &Arc<Subject>) -> ServerStatus {
        let unknown = || ServerFacts { state: ServerPhase::Serving, ..ServerFacts::default() };
        let snapshot = Snapshot { traffic: None, ..self.snapshot().await };
        let facts = self.commands.as_ref().map_or_else(unknown, CommandSender::facts);
        ServerStatus { facts, snapshot }
    }

    /// Returns the connections and requests that a drain waits for.
    pub(super) async fn drain_progress(self: &Arc<Subject>) -> DrainProgress {
        match &self.engines {
            Engines::Here { connections, counters, overview } => {
                let running = counters.iter().map(|engine| engine.running.get()).sum();
                DrainProgress {
                    connections: connections(),
                    requests: overview.is_some().then_some(running),
                    missing_processes: Vec::new(),
                }
            }
            Engines::There(_) => {
                let mut collector = Collector::new(self.clone());
                let Snapshot { connections, missing_processes, .. } =
                    collector.take_snapshot().await;
                let requests = Some(collector.running());
                DrainProgress { connections, requests, missing_processes }
            }
        }
    }

    /// Shows the figures of requests, servers and channels as well.
    #[must_use]
    pub(crate) fn with_traffic(mut self, source: Arc<Overview>) -> Subject {
        // The server may be described anew, and is as old as before.
        (self.started, self.started_seconds) = source.began();
        if let Engines::Here { overview, .. } = &mut self.engines {
            *overview = Some(source);
        }
        self
    }

    /// Passes the commands of clients on. Without this they are refused.
    #[must_use]
    pub fn with_commands(self, commands: CommandSender) -> Subject {
        Subject { commands: Some(commands), ..self }
    }
}

impl Relay {
    /// Returns the subject for a statistics socket: the relay, and the runtime that it was started
    /// on.
    #[must_use]
    pub fn subject(&self, runtime: &Runtime) -> Subject {
        let totals = self.totals();
        let connections = move || totals.read().active;
        let counters = self.engine_counters().to_vec();
        Subject::new("proxy", runtime.backend(), runtime.handle(), counters, connections)
    }
}

superpoll::debug_fields!(Subject, it => program: it.program, engines: it.handle.engines());

// The figures of its engines.

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
        let (began, uptime) = (subject.started_seconds, time::now() - subject.started);
        let mut snapshot = Snapshot::new(subject.program, subject.backend, began, uptime);
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
                let asked = Question::Statistics(self.processes.wanted());
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
