//! The supervisor of several worker processes: it starts them, replaces workers that end, and
//! passes signals on.
//!
//! Each worker has a place, its slot. A slot has one worker, or two while one replaces the other:
//!
//! ```text
//!          start           Ready            asked to end, replaced, or yields
//! (none) --------> Starting -----> Serving ----------------------> Leaving ---> (none)
//!    ^                |               |                                ends
//!    |  ends          |  ends         |
//!    +----------------+---------------+   at once after a second of service, else after a pause
//! ```
//!
//! - SIGTERM, SIGINT: all are asked to end; another one ends them at once.
//! - SIGHUP: the configuration is checked here first. Then the listeners are opened, and the
//!   workers read it.
//! - SIGUSR1: all processes open the files of their logs again.
//! - SIGUSR2: the program is replaced by execve(2), with the listeners and the log of channels. The
//!   new one replaces the workers, one after the other. If a new one fails, the one before stays.

mod drain;
mod operations;
mod questions;
mod reload;
mod service;
mod state;
#[cfg(test)]
mod tests;
mod upgrade;

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::future::pending;
use std::io;
use std::num::NonZeroUsize;
use std::process::ExitStatus;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_channel::mpsc;
use futures_lite::StreamExt;
use futures_lite::future::or;
use rustix::process::Signal;
use sd_notify::NotifyState;
use superpoll_gateway::control::{
    CommandCall, CommandOutcome, CommandQueue, ServerCommand, ServerPhase, Subject, UpgradeState,
    WorkerStatus,
};
use superpoll_gateway::processes::WorkerNews;
use superpoll_gateway::{Address, Config, ErrorLog, Event, Inherited, Level};
use superpoll_rt::{BackendKind, JoinSet, Runtime, spawn, time};

use drain::{Drains, Wait};
use questions::ServiceCalls;
use service::{ProcessNews, WorkerService};
pub(super) use state::SupervisorState;

use super::signals::{Request, Signals};
use super::worker_process;
use super::{
    Options, announce, commands, keeper_socket, notify, raise_limit, report_warnings, runtime,
};
use crate::stats;

/// A worker that has served for that long is replaced at once when it ends.
const SERVICE: Duration = Duration::from_secs(1);

/// The pause before a worker is started again that has not served for long; it doubles.
const PAUSE: Duration = Duration::from_millis(100);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How much longer than its connections may take to end a worker may take.
const GRACE: Duration = Duration::from_secs(5);

/// How long a worker may take to begin.
const START: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Starting,
    Serving,
    Leaving,
}

/// A worker.
struct Child {
    slot: u32,
    process: u32,
    state: State,
    /// When it began to serve.
    since: Instant,
    /// The configuration has changed since it was started.
    is_stale: bool,
    /// The files of the logs may have been moved away since it was started.
    has_former_logs: bool,
    /// Why it is about to end.
    error: Option<String>,
    /// It has ended, and its last message may be on its way.
    has_ended: bool,
}

impl Child {
    /// Sends a signal, unless the process has ended: its number may be another one's.
    fn signal(&self, signal: Signal) {
        if !self.has_ended {
            worker_process::signal(self.process, signal);
        }
    }
}

/// An event that the supervisor waits for.
enum Happening {
    Signal(Request),
    /// A command of a client of the statistics socket, which waits for its outcome.
    Command(CommandCall),
    Worker(ProcessNews),
    /// A process has ended.
    Ended(u32, io::Result<ExitStatus>),
    /// The pause of a slot is over.
    Due(u32),
    /// A process has had its time to begin.
    Hung(u32),
    /// A process that was asked to end has had its time.
    Late(u32),
    /// The workers have had their time to read the configuration of that number.
    ReloadLate(u64),
    /// Workers that drain have had their time to report.
    ReportsLate(Wait),
    /// A configuration was read and checked.
    Read(Box<reload::Read>),
    /// The program for an upgrade was checked.
    Checked(Result<(), String>),
}

/// A configuration that workers are about to read.
struct Reload {
    number: u64,
    waits_for: Vec<u32>,
    /// A worker has refused it, or does not answer.
    is_refused: bool,
    /// Another one was refused meanwhile.
    is_followed: bool,
    /// The commands that wait for the outcome, those of a reload that this one has overtaken, too.
    calls: Vec<CommandCall>,
    /// The outcome for them, if no worker refuses it.
    told: CommandOutcome,
    /// The reasons of the workers that have refused it.
    errors: Vec<String>,
}

struct Supervision<'a> {
    options: &'a Options,
    error_log: &'a ErrorLog,
    service: Rc<WorkerService>,
    news: mpsc::UnboundedReceiver<ProcessNews>,
    /// The addresses of the sockets that a service manager has passed on.
    passed: Vec<Address>,
    config: Config,
    slots: u32,
    children: Vec<Child>,
    /// How often in a row the worker of a slot has ended early.
    failures: BTreeMap<u32, u32>,
    happenings: JoinSet<Happening>,
    statistics: stats::Kept,
    subject: Arc<Subject>,
    /// A worker has served.
    has_served: bool,
    is_ending: bool,
    is_upgrading: bool,
    /// The program for an upgrade is a good one, and is to replace this one now.
    is_checked: bool,
    /// The slots whose workers are still of the program before.
    to_replace: VecDeque<u32>,
    reload: Option<Reload>,
    /// The commands that wait for the configuration which is being read, if one is.
    reading: Option<Vec<CommandCall>>,
    /// The commands that wait for the next reading, if there will be one.
    next_reading: Option<Vec<CommandCall>>,
    queue: CommandQueue,
    /// The command that waits for the upgrade that is under way.
    upgrade_call: Option<CommandCall>,
    /// The reports of the workers that are asked to end.
    ending: Option<Drains>,
    /// Those of the workers that are replaced by an upgrade.
    replacing: Option<Drains>,
    /// The connections at the moment at which the server began to end, in words.
    drained: Option<String>,
    /// The commands that wait for that.
    drain_calls: Vec<CommandCall>,
}

/// Supervises until SIGTERM or SIGINT.
pub(super) fn run(
    options: &Options,
    (config, text): (Config, Option<String>),
    processes: NonZeroUsize,
    inherited: Inherited,
    mut left: Option<SupervisorState>,
    error_log: &Arc<ErrorLog>,
) -> Result<(), Box<dyn Error>> {
    raise_limit(error_log);
    // It only answers workers. The back-end is theirs, so that statistics name it.
    let runtime = match runtime(options, &config, NonZeroUsize::MIN) {
        // The workers of the program before continue.
        Err(_) if left.is_some() => Runtime::builder().backend(BackendKind::Epoll).build()?,
        outcome => outcome?,
    };
    let mut signals = Signals::new()?;
    // Since the program before was replaced.
    crate::block_signals(false);
    let mut passed = options.passed.clone();
    passed.extend(inherited.addresses()?);
    let before = left.as_mut().map(|left| std::mem::take(&mut left.workers));
    let queue = CommandQueue::default();
    let (calls, called) = mpsc::unbounded();
    let (backend, handle) = (runtime.backend(), runtime.handle());
    let subject = Subject::of_workers(backend, handle, Arc::new(ServiceCalls(calls)));
    let subject = Arc::new(subject.with_commands(queue.sender()));
    let (told, news) = mpsc::unbounded();
    let service = left
        .map_or_else(SupervisorState::new, Ok)
        .and_then(|state| WorkerService::new(state, error_log.clone(), subject.clone(), told))
        .map_err(|error| format!("listening for workers: {error}"))?;
    match service.change(&config, inherited) {
        Err(error) if before.is_some() => {
            // The workers of the program before continue.
            let message = format!("{error}; the listeners stay as they were");
            error_log.write(&Event::new(Level::Error, "upgrade-failed", message));
        }
        outcome => outcome?,
    }
    text.into_iter().for_each(|text| service.set_configuration(text));
    let warn = |what: String| error_log.write(&Event::new(Level::Warning, "no-statistics", what));
    let place = options.stats.as_ref().unwrap_or(&config.server.stats).clone();
    let socket = match stats::bind(&place, before.is_some(), warn) {
        Err(error) if before.is_some() => {
            warn(error.to_string());
            None
        }
        outcome => outcome?,
    };
    queue.note(|facts| {
        *facts = commands::facts(options, &config, ServerPhase::Starting);
        facts.upgrade = before.as_ref().map(|_| UpgradeState::UnderWay);
    });
    let statistics = stats::open(socket, subject.clone(), warn);
    let mut supervision = Supervision {
        options,
        error_log,
        service: Rc::new(service),
        news,
        passed,
        config,
        slots: u32::try_from(processes.get()).unwrap_or(u32::MAX),
        children: Vec::new(),
        failures: BTreeMap::new(),
        happenings: JoinSet::new(),
        statistics: stats::Kept::new(place, statistics),
        subject,
        has_served: before.is_some(),
        is_ending: false,
        is_upgrading: false,
        is_checked: false,
        to_replace: VecDeque::new(),
        reload: None,
        reading: None,
        next_reading: None,
        queue,
        upgrade_call: None,
        ending: None,
        replacing: None,
        drained: None,
        drain_calls: Vec::new(),
    };
    runtime.try_block_on(async move {
        supervision.service.start(called)?;
        supervision.begin(before);
        loop {
            supervision.note_facts();
            let happening = supervision.next(&mut signals).await?;
            supervision.take(happening)?;
            if std::mem::take(&mut supervision.is_checked) {
                supervision.upgrade(&mut signals).await?;
            }
            if supervision.children.is_empty() && supervision.is_ending {
                supervision.queue.written().await;
                supervision.log_end();
                return Ok(());
            }
        }
    })?
}

impl Supervision<'_> {
    /// Waits for the next event. Dropped before it is ready, it has taken none.
    async fn next(&mut self, signals: &mut Signals) -> io::Result<Happening> {
        let signalled = async { Ok(Happening::Signal(signals.recv().await?)) };
        let commanded = async { Ok(Happening::Command(self.queue.next().await)) };
        let workers = async {
            match self.news.next().await {
                Some(news) => Ok(Happening::Worker(news)),
                // The service has a sender.
                None => pending().await,
            }
        };
        let others = async {
            match self.happenings.join_next().await {
                Some(Ok(happening)) => Ok(happening),
                Some(Err(error)) => Err(io::Error::other(error)),
                None => pending().await,
            }
        };
        // What a worker says comes before its end.
        or(or(signalled, commanded), or(workers, others)).await
    }

    /// Notes the state of the server for `superpoll status`.
    fn note_facts(&self) {
        let state = match (self.is_ending, self.has_served) {
            (true, _) => ServerPhase::Draining,
            (false, true) => ServerPhase::Serving,
            (false, false) => ServerPhase::Starting,
        };
        let worker = |child: &Child| WorkerStatus {
            slot: child.slot,
            process: child.process,
            state: match child.state {
                State::Starting => ServerPhase::Starting,
                State::Serving => ServerPhase::Serving,
                State::Leaving => ServerPhase::Draining,
            },
        };
        let serving = self.children.iter().filter(|child| child.state == State::Serving);
        self.service.set_serving(serving.map(|child| child.process));
        self.queue.note(|facts| {
            facts.state = state;
            facts.listeners = self.service.fronts(&self.config);
            facts.keeper = keeper_socket(&self.config).cloned();
            facts.processes = self.children.iter().map(worker).collect();
            facts.processes.sort_by_key(|worker| (worker.slot, worker.process));
        });
    }

    fn note_upgrade(&self, state: UpgradeState) {
        self.queue.note(|facts| facts.upgrade = Some(state));
    }

    fn log(&self, level: Level, name: &'static str, message: impl Into<String>) {
        self.error_log.write(&Event::new(level, name, message));
    }

    /// Starts the first worker, or continues with those of the program before.
    fn begin(&mut self, before: Option<Vec<(u32, u32)>>) {
        let Some(before) = before else { return self.start(0) };
        // The program before may have been about to read a configuration.
        notify(self.error_log, &[NotifyState::Ready]);
        for (slot, process) in before {
            // Of two in a slot, the second has replaced the first.
            for index in 0..self.children.len() {
                if self.children[index].slot == slot && self.children[index].state != State::Leaving
                {
                    self.dismiss(index);
                }
            }
            self.watch(slot, process, State::Serving);
        }
        for slot in 0..self.slots {
            match self.has_worker(slot) {
                true => self.to_replace.push_back(slot),
                false => self.start(slot),
            }
        }
        // Those that are about to end have reported to the program before, which they do once.
        let of_before = self
            .children
            .iter()
            .filter(|child| child.state != State::Leaving && self.to_replace.contains(&child.slot));
        self.replacing = Some(Drains::of(of_before.map(|child| child.process)));
        self.end_superfluous();
        self.replace_next();
    }

    fn watch(&mut self, slot: u32, process: u32, state: State) {
        let since = Instant::now();
        self.children.push(Child {
            slot,
            process,
            state,
            since,
            is_stale: false,
            has_former_logs: false,
            error: None,
            has_ended: false,
        });
        let ends = async move { Happening::Ended(process, worker_process::ended(process).await) };
        self.happenings.spawn(ends);
    }

    fn later(&mut self, pause: Duration, happening: Happening) {
        self.happenings.spawn(async move {
            time::sleep(pause).await;
            happening
        });
    }

    fn start(&mut self, slot: u32) {
        self.start_with(slot, false);
    }

    fn start_with(&mut self, slot: u32, upgrades: bool) {
        let place = self.service.place(slot);
        match worker_process::start(&place, &self.passed, upgrades) {
            Ok(process) => {
                self.watch(slot, process, State::Starting);
                self.later(START, Happening::Hung(process));
            }
            Err(error) => {
                let message = format!("starting the process of worker {slot}: {error}");
                self.log(Level::Error, "worker-failed", message);
                if self.to_replace.front() == Some(&slot) {
                    self.give_up_upgrade(slot, "it was not started");
                }
                if !self.has_worker(slot) {
                    self.start_later(slot);
                }
            }
        }
    }

    /// Starts the worker of a slot after a pause.
    fn start_later(&mut self, slot: u32) {
        let failures = self.failures.entry(slot).or_default();
        let pause = PAUSE.saturating_mul(1 << (*failures).min(16)).min(LONGEST_PAUSE);
        *failures += 1;
        self.later(pause, Happening::Due(slot));
    }

    /// Whether a slot has a worker that is not about to end.
    fn has_worker(&self, slot: u32) -> bool {
        self.children.iter().any(|child| child.slot == slot && child.state != State::Leaving)
    }

    fn take(&mut self, happening: Happening) -> Result<(), Box<dyn Error>> {
        match happening {
            Happening::Signal(Request::End) => self.end(),
            Happening::Signal(Request::Reload) => self.reload(None),
            Happening::Signal(Request::ReopenLogs) => self.reopen_logs(),
            Happening::Signal(Request::Upgrade) => self.check_upgrade(None),
            Happening::Command(call) => match call.command {
                ServerCommand::Drain => {
                    // A second one waits as the first one does.
                    if !self.is_ending {
                        self.end();
                    }
                    self.answer_drain(call);
                }
                ServerCommand::Reload => self.reload(Some(call)),
                ServerCommand::Upgrade => self.check_upgrade(Some(call)),
            },
            // A worker that starts does not listen to signals yet.
            Happening::Checked(Ok(())) if self.is_busy() => {
                self.later(PAUSE, Happening::Checked(Ok(())));
            }
            Happening::Read(read) => self.has_read(*read),
            Happening::Checked(Ok(())) => self.is_checked = true,
            Happening::Checked(Err(error)) => self.upgrade_failed(&error),
            Happening::ReportsLate(wait) => self.reports_are_late(wait),
            Happening::Worker((process, news)) => self.heard(process, news)?,
            Happening::Ended(process, status) if self.may_report(process) => {
                self.later_ended(process, status);
            }
            Happening::Ended(process, status) => {
                self.reported(process, None);
                self.ended(process, status)?;
            }
            Happening::Due(slot) => {
                if !self.is_ending && slot < self.slots && !self.has_worker(slot) {
                    self.start(slot);
                }
            }
            Happening::Hung(process) => {
                let mut starting =
                    self.children.iter_mut().filter(|child| child.state == State::Starting);
                if let Some(child) = starting.find(|child| child.process == process) {
                    let what = || format!("it does not serve within {} s", START.as_secs());
                    child.error.get_or_insert_with(what);
                    child.signal(Signal::KILL);
                }
            }
            Happening::Late(process) => {
                let late =
                    |child: &&Child| child.process == process && child.state == State::Leaving;
                let found = self.children.iter().find(late).filter(|child| !child.has_ended);
                if let Some(child) = found {
                    let message = format!(
                        "worker {} (process {process}) does not end: killing it",
                        child.slot
                    );
                    self.log(Level::Error, "worker-killed", message);
                    child.signal(Signal::KILL);
                }
            }
            Happening::ReloadLate(number) => {
                if let Some(reload) = self.reload.take_if(|reload| reload.number == number) {
                    let late: Vec<String> = reload.waits_for.iter().map(u32::to_string).collect();
                    let what =
                        format!("process {} does not read the configuration", late.join(", "));
                    self.log(Level::Error, "reload-refused", &what);
                    let mut reload = Reload { is_refused: true, ..reload };
                    reload.errors.push(what);
                    self.finish_reload(reload);
                }
            }
        }
        Ok(())
    }

    /// Makes all processes open the files of their logs again.
    fn reopen_logs(&mut self) {
        let starting = |child: &&mut Child| child.state == State::Starting;
        // It cannot be asked yet.
        let children = self.children.iter_mut().filter(starting);
        children.for_each(|child| child.has_former_logs = true);
        let service = self.service.clone();
        spawn(async move { service.reopen_logs().await }).detach();
    }

    /// Takes the news of a process, or the reason for which it ends.
    fn heard(
        &mut self,
        process: u32,
        news: Result<WorkerNews, String>,
    ) -> Result<(), Box<dyn Error>> {
        let found = self.children.iter_mut().find(|child| child.process == process);
        // A process that is none of its children is told nothing.
        let Some(child) = found else { return Ok(()) };
        match news {
            Err(error) => child.error = Some(error),
            Ok(WorkerNews::Drains(drain)) => self.reported(process, Some(drain)),
            Ok(WorkerNews::Reloaded { number, outcome }) => {
                self.has_reloaded(process, number, outcome);
            }
            Ok(WorkerNews::Yields) if child.state != State::Serving => {}
            Ok(WorkerNews::Yields) => {
                child.state = State::Leaving;
                let slot = child.slot;
                self.await_end(process);
                // The one that has taken over may have ended since.
                if !self.is_ending && slot < self.slots && !self.has_worker(slot) {
                    self.start(slot);
                }
            }
            Ok(WorkerNews::Ready { .. }) if child.state != State::Starting => {}
            Ok(WorkerNews::Ready { fronts, roots }) => {
                child.state = State::Serving;
                child.since = Instant::now();
                let (slot, is_stale) = (child.slot, std::mem::take(&mut child.is_stale));
                let has_former_logs = std::mem::take(&mut child.has_former_logs);
                if is_stale {
                    child.signal(Signal::HUP);
                }
                let message = format!("worker {slot} serves, process {process}");
                self.log(Level::Info, "worker-started", message);
                if !self.has_served {
                    self.has_served = true;
                    let roots = roots.iter().map(std::path::PathBuf::as_path);
                    announce(self.error_log, fronts.into_iter(), roots)?;
                    report_warnings(self.error_log, &self.config);
                    notify(self.error_log, &[NotifyState::Ready]);
                    (1..self.slots).for_each(|slot| self.start(slot));
                }
                if has_former_logs {
                    self.reopen_logs();
                }
                self.replaced(slot, process);
            }
        }
        Ok(())
    }

    fn ended(
        &mut self,
        process: u32,
        status: io::Result<ExitStatus>,
    ) -> Result<(), Box<dyn Error>> {
        let index = self.children.iter().position(|child| child.process == process);
        let Some(index) = index else { return Ok(()) };
        let Child { slot, state, since, error, .. } = self.children.swap_remove(index);
        self.has_reloaded(process, self.service.configuration_number(), Ok(()));
        let is_success = status.as_ref().is_ok_and(ExitStatus::success);
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let why = error.unwrap_or_else(|| format!("it has ended: {status}"));
        // One that has yielded may have ended before its successor says that it serves.
        let has_yielded = state == State::Serving && is_success && self.has_worker(slot);
        if self.is_ending || state == State::Leaving || has_yielded {
            let message = format!("worker {slot}, process {process}, has ended: {status}");
            self.log(Level::Info, "worker-ended", message);
            return Ok(());
        }
        if !self.has_served {
            return Err(why.into());
        }
        let is_replacing = self.to_replace.front() == Some(&slot);
        if state == State::Starting && is_replacing {
            self.give_up_upgrade(slot, &why);
            if self.has_worker(slot) {
                return Ok(());
            }
        }
        let message = format!("worker {slot}, process {process}: {why}; starting another one");
        let event = Event::new(Level::Error, "worker-ended", message);
        self.error_log.write(&event.with("worker", slot).with("process", process));
        if self.has_worker(slot) || slot >= self.slots {
            return Ok(());
        }
        if !is_replacing {
            // Its successor is of this program in any case.
            self.to_replace.retain(|other| *other != slot);
        }
        if state == State::Serving && since.elapsed() >= SERVICE {
            self.failures.remove(&slot);
            self.start(slot);
        } else {
            self.start_later(slot);
        }
        Ok(())
    }
}
