//! The supervisor of several worker processes: it starts them, starts others in the place of those
//! that end, and passes signals on.
//!
//! Each worker has a place, its slot. A slot has one worker, or two while one replaces the other:
//!
//! ```text
//!          start           Ready                  asked to end, or replaced
//! (none) --------> Starting -----> Serving ----------------------> Leaving ---> (none)
//!    ^                |               |                                ends
//!    |  ends          |  ends         |
//!    +----------------+---------------+   at once after a second of service, else after a pause
//! ```
//!
//! - SIGTERM, SIGINT: all are asked to end; another one ends them at once.
//! - SIGHUP: the configuration is checked here first. Then the listeners are opened, and the workers
//!   read it.
//! - SIGUSR2: the program is replaced by execve(2), with the listeners and the log of channels. The
//!   new one replaces the workers, one after the other. If a new one fails, the one before stays.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::future::pending;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::process::CommandExt;
use std::process::ExitStatus;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_lite::future::or;
use rustix::process::Signal;
use sd_notify::NotifyState;
use superpoll_gateway::processes::{Left, Supervisor, WorkerEvent};
use superpoll_gateway::serve::Server;
use superpoll_gateway::{Address, Config, ErrorLog, Event, Inherited, Level};
use superpoll_rt::signal::{SignalKind, signal};
use superpoll_rt::{JoinSet, time};

use super::worker_process::{self, replacement};
use super::{
    Options, announce, change_log, hide_keys, keeper_of_worker, keeper_socket, notify,
    notify_reloading, raise_limit, reloaded, report_warnings, runtime, statistics_stay,
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

/// How long workers may take to read a configuration.
const RELOAD: Duration = Duration::from_secs(30);

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
    /// Why it is about to end.
    error: Option<String>,
}

/// What the supervisor waits for.
enum Happening {
    End,
    Reload,
    Upgrade,
    Worker(WorkerEvent),
    /// A process has ended.
    Ended(u32, io::Result<ExitStatus>),
    /// The pause of a slot is over.
    Due(u32),
    /// A process that was asked to end has had its time.
    Late(u32),
    /// The workers have had their time to read the configuration of that number.
    ReloadLate(u64),
    /// The program for an upgrade was checked.
    Checked(Result<(), String>),
}

/// A configuration that workers are about to read.
struct Reload {
    number: u64,
    waits_for: Vec<u32>,
    refusal: Option<String>,
}

struct Supervision<'a> {
    options: &'a Options,
    error_log: &'a ErrorLog,
    supervisor: Rc<Supervisor>,
    /// The addresses of the sockets that a service manager has passed on.
    passed: Vec<Address>,
    config: Config,
    slots: u32,
    children: Vec<Child>,
    /// How often in a row the worker of a slot has ended early.
    failures: BTreeMap<u32, u32>,
    happenings: JoinSet<Happening>,
    statistics: stats::Kept,
    backend: &'static str,
    handle: superpoll_rt::Handle,
    /// A worker has served.
    has_served: bool,
    is_ending: bool,
    is_upgrading: bool,
    /// The slots whose workers are still of the program before.
    to_replace: VecDeque<u32>,
    reload: Option<Reload>,
    reloads: u64,
}

/// Supervises until SIGTERM or SIGINT.
pub(super) fn run(
    options: &Options,
    config: Config,
    processes: NonZeroUsize,
    inherited: Inherited,
    mut left: Option<Left>,
    error_log: &Arc<ErrorLog>,
) -> Result<(), Box<dyn Error>> {
    raise_limit(error_log);
    if let Some(socket) = keeper_socket(&config) {
        keeper_of_worker(socket, 0)?;
    }
    // It only answers workers. The back-end is theirs, so that statistics name it.
    let runtime = runtime(options, &config, NonZeroUsize::MIN)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut user = signal(SignalKind::user_defined2())?;
    let mut passed = options.passed.clone();
    passed.extend(inherited.addresses()?);
    let before = left.as_mut().map(|left| std::mem::take(&mut left.workers));
    let supervisor = match left {
        Some(left) => {
            let supervisor = Supervisor::resume(left)?;
            if let Err(error) = supervisor.change(&config) {
                // The workers of the program before go on.
                let message = format!("{error}; the listeners stay as they were");
                error_log.write(&Event::new(Level::Error, "upgrade-failed", message));
            }
            supervisor
        }
        None => Supervisor::new(&config, inherited)?,
    };
    let supervisor = Rc::new(supervisor);
    let warn = |what: String| error_log.write(&Event::new(Level::Warning, "no-statistics", what));
    let place = options.stats.as_ref().unwrap_or(&config.server.stats).clone();
    let socket = stats::bind(&place, before.is_some(), warn)?;
    let (backend, handle) = (runtime.backend(), runtime.handle());
    let statistics = stats::open(socket, supervisor.subject(backend, handle.clone()), warn);
    let mut supervision = Supervision {
        options,
        error_log,
        supervisor: supervisor.clone(),
        passed,
        config,
        slots: u32::try_from(processes.get()).unwrap_or(u32::MAX),
        children: Vec::new(),
        failures: BTreeMap::new(),
        happenings: JoinSet::new(),
        statistics: stats::Kept::new(place, statistics),
        backend,
        handle,
        has_served: before.is_some(),
        is_ending: false,
        is_upgrading: false,
        to_replace: VecDeque::new(),
        reload: None,
        reloads: 0,
    };
    runtime.try_block_on(async move {
        supervisor.start()?;
        supervision.begin(before);
        loop {
            let ends = async {
                or(terminate.recv(), interrupt.recv()).await?;
                io::Result::Ok(Happening::End)
            };
            let reloads = async {
                hang_up.recv().await?;
                Ok(Happening::Reload)
            };
            let upgrades = async {
                user.recv().await?;
                Ok(Happening::Upgrade)
            };
            let signals = or(or(ends, reloads), upgrades);
            let workers = async { Ok(Happening::Worker(supervisor.event().await)) };
            let others = async {
                match supervision.happenings.join_next().await {
                    Some(Ok(happening)) => Ok(happening),
                    Some(Err(error)) => Err(io::Error::other(error)),
                    None => pending().await,
                }
            };
            // What a worker says comes before its end.
            let happening = or(signals, or(workers, others)).await?;
            supervision.take(happening)?;
            if supervision.children.is_empty() && supervision.is_ending {
                return Ok(());
            }
        }
    })?
}

impl Supervision<'_> {
    fn log(&self, level: Level, name: &'static str, message: impl Into<String>) {
        self.error_log.write(&Event::new(level, name, message));
    }

    /// Starts the first worker, or goes on with those of the program before.
    fn begin(&mut self, before: Option<Vec<(u32, u32)>>) {
        let Some(before) = before else { return self.start(0) };
        for (slot, process) in before {
            // Of two in a slot, the second has replaced the first.
            let earlier = self.children.iter_mut().filter(|child| child.slot == slot);
            earlier.for_each(|child| child.state = State::Leaving);
            self.watch(slot, process, State::Serving);
        }
        for slot in 0..self.slots {
            match self.has_worker(slot) {
                true => self.to_replace.push_back(slot),
                false => self.start(slot),
            }
        }
        self.end_superfluous();
        self.replace_next();
    }

    fn watch(&mut self, slot: u32, process: u32, state: State) {
        let since = Instant::now();
        self.children.push(Child { slot, process, state, since, is_stale: false, error: None });
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
        let place = self.supervisor.place(slot);
        match worker_process::start(&place, &self.passed, upgrades) {
            Ok(process) => self.watch(slot, process, State::Starting),
            Err(error) => {
                let message = format!("starting the process of worker {slot}: {error}");
                self.log(Level::Error, "worker-failed", message);
                self.start_later(slot);
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
            Happening::End => self.end(),
            Happening::Reload => self.reload(),
            Happening::Upgrade => self.check_upgrade(),
            Happening::Checked(outcome) => {
                self.is_upgrading = false;
                let failed = outcome.and_then(|()| self.upgrade());
                if let Err(error) = failed {
                    self.log(Level::Error, "upgrade-failed", format!("not upgrading: {error}"));
                }
            }
            Happening::Worker(event) => self.heard(event)?,
            Happening::Ended(process, status) => self.ended(process, status)?,
            Happening::Due(slot) => {
                if !self.is_ending && slot < self.slots && !self.has_worker(slot) {
                    self.start(slot);
                }
            }
            Happening::Late(process) => {
                let late =
                    |child: &&Child| child.process == process && child.state == State::Leaving;
                if let Some(child) = self.children.iter().find(late) {
                    let message = format!(
                        "worker {} (process {process}) does not end: killing it",
                        child.slot
                    );
                    self.log(Level::Error, "worker-killed", message);
                    worker_process::signal(process, Signal::KILL);
                }
            }
            Happening::ReloadLate(number) => {
                if let Some(reload) = self.reload.take_if(|reload| reload.number == number) {
                    let late: Vec<String> = reload.waits_for.iter().map(u32::to_string).collect();
                    let what = format!("no answer of process {}", late.join(", "));
                    self.finish_reload(Reload { refusal: Some(what), ..reload });
                }
            }
        }
        Ok(())
    }

    /// Asks all workers to end.
    fn end(&mut self) {
        if !self.is_ending {
            notify(self.error_log, &[NotifyState::Stopping]);
        }
        self.is_ending = true;
        for index in 0..self.children.len() {
            self.dismiss(index);
        }
    }

    /// Asks a worker to end; one that was asked before, to end at once.
    fn dismiss(&mut self, index: usize) {
        let child = &mut self.children[index];
        child.state = State::Leaving;
        let process = child.process;
        worker_process::signal(process, Signal::TERM);
        self.await_end(process);
    }

    /// Kills a worker if it takes too long to end.
    fn await_end(&mut self, process: u32) {
        self.later(self.config.timeouts.drain + GRACE, Happening::Late(process));
    }

    /// Asks the workers to end whose slots the configuration does not have any more.
    fn end_superfluous(&mut self) {
        for index in 0..self.children.len() {
            let Child { slot, state, .. } = self.children[index];
            if slot >= self.slots && state != State::Leaving {
                self.dismiss(index);
            }
        }
    }

    fn heard(&mut self, event: WorkerEvent) -> Result<(), Box<dyn Error>> {
        let (WorkerEvent::Ready { process, .. }
        | WorkerEvent::Failed { process, .. }
        | WorkerEvent::Reloaded { process, .. }) = event;
        let found = self.children.iter_mut().find(|child| child.process == process);
        // A process that is none of its children is told nothing.
        let Some(child) = found else { return Ok(()) };
        match event {
            WorkerEvent::Failed { error, .. } => child.error = Some(error),
            WorkerEvent::Reloaded { outcome, .. } => self.has_reloaded(process, outcome),
            WorkerEvent::Ready { .. } if child.state != State::Starting => {}
            WorkerEvent::Ready { fronts, roots, .. } => {
                child.state = State::Serving;
                child.since = Instant::now();
                let (slot, is_stale) = (child.slot, std::mem::take(&mut child.is_stale));
                if is_stale {
                    worker_process::signal(process, Signal::HUP);
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
                self.replaced(slot, process);
            }
        }
        Ok(())
    }

    /// Ends the worker before in a slot, whose successor serves.
    fn replaced(&mut self, slot: u32, by: u32) {
        let leaves_to_keeper = keeper_socket(&self.config).is_some();
        for index in 0..self.children.len() {
            let child = &mut self.children[index];
            if child.slot != slot || child.process == by || child.state == State::Leaving {
                continue;
            }
            if leaves_to_keeper {
                // It has yielded, and ends by itself. A signal would end its busy connections.
                child.state = State::Leaving;
                let process = child.process;
                self.await_end(process);
            } else {
                self.dismiss(index);
            }
        }
        if self.to_replace.front() == Some(&slot) {
            self.to_replace.pop_front();
            if self.to_replace.is_empty() {
                let message = "upgraded: all workers are of the new program";
                self.log(Level::Notice, "upgraded", message);
            }
            self.replace_next();
        }
    }

    /// Starts a worker in the place of one of the program before.
    fn replace_next(&mut self) {
        let has_keeper = keeper_socket(&self.config).is_some();
        if let (Some(&slot), false) = (self.to_replace.front(), self.is_ending) {
            self.start_with(slot, has_keeper);
        }
    }

    fn ended(
        &mut self,
        process: u32,
        status: io::Result<ExitStatus>,
    ) -> Result<(), Box<dyn Error>> {
        let index = self.children.iter().position(|child| child.process == process);
        let Some(index) = index else { return Ok(()) };
        let Child { slot, state, since, error, .. } = self.children.swap_remove(index);
        self.has_reloaded(process, Ok(()));
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
            self.to_replace.clear();
            let message = format!("worker {slot}: {why}; the workers before go on");
            self.log(Level::Error, "upgrade-failed", message);
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

    /// Checks the configuration, opens its listeners, and makes the workers read it.
    fn reload(&mut self) {
        let Some(path) = &self.options.config else { return };
        if self.is_ending {
            return;
        }
        notify_reloading(self.error_log);
        let outcome =
            Config::read(path).map_err(|error| error.to_string()).and_then(|mut config| {
                self.options.set_keeper(&mut config)?;
                let processes = self.options.processes(&config)?;
                Server::check(&config).map_err(|error| error.to_string())?;
                hide_keys(self.options, &config)?;
                self.supervisor.change(&config).map_err(|error| error.to_string())?;
                Ok((config, processes))
            });
        self.reloads += 1;
        let mut reload = Reload { number: self.reloads, waits_for: Vec::new(), refusal: None };
        let (config, processes) = match outcome {
            Ok(read) => read,
            Err(error) => return self.finish_reload(Reload { refusal: Some(error), ..reload }),
        };
        change_log(self.error_log, &config);
        report_warnings(self.error_log, &config);
        let place = self.options.stats.as_ref().unwrap_or(&config.server.stats).clone();
        let subject = self.supervisor.subject(self.backend, self.handle.clone());
        if let Err(error) = self.statistics.change(place, subject) {
            self.error_log.write(&statistics_stay(&*error));
        }
        self.config = config;
        for child in &mut self.children {
            match child.state {
                // It does not listen to signals yet, and may have read the file before.
                State::Starting => child.is_stale = true,
                State::Serving => {
                    worker_process::signal(child.process, Signal::HUP);
                    reload.waits_for.push(child.process);
                }
                State::Leaving => {}
            }
        }
        self.later(RELOAD, Happening::ReloadLate(reload.number));
        self.set_slots(u32::try_from(processes.get()).unwrap_or(u32::MAX));
        // An answer to a reload before counts for this one, which the worker has read as well.
        self.reload = Some(reload);
        self.has_reloaded(0, Ok(()));
    }

    /// Starts or ends workers until there are so many.
    fn set_slots(&mut self, slots: u32) {
        let more = self.slots..slots;
        self.slots = slots;
        let replacing = self.to_replace.front().copied();
        self.to_replace.retain(|slot| *slot < slots);
        if self.to_replace.front() != replacing.as_ref() {
            self.replace_next();
        }
        if self.has_served {
            for slot in more {
                if !self.has_worker(slot) {
                    self.start(slot);
                }
            }
        }
        self.end_superfluous();
    }

    /// Notes that a process has read the configuration, or has ended.
    fn has_reloaded(&mut self, process: u32, outcome: Result<(), String>) {
        let Some(reload) = &mut self.reload else {
            // One that was late.
            if let (Err(_), Some(path)) = (&outcome, &self.options.config) {
                self.error_log.write(&reloaded(path, &outcome));
            }
            return;
        };
        if let Err(error) = outcome {
            reload.refusal = Some(error);
        }
        reload.waits_for.retain(|other| *other != process);
        if let Some(reload) = self.reload.take_if(|reload| reload.waits_for.is_empty()) {
            self.finish_reload(reload);
        }
    }

    fn finish_reload(&mut self, reload: Reload) {
        notify(self.error_log, &[NotifyState::Ready]);
        if let Some(path) = &self.options.config {
            let outcome = reload.refusal.map_or(Ok(()), Err);
            self.error_log.write(&reloaded(path, &outcome));
        }
    }

    /// Checks whether the program can be replaced.
    fn check_upgrade(&mut self) {
        if self.is_ending {
            return;
        }
        if self.is_upgrading || !self.to_replace.is_empty() {
            let why = "not upgrading: an upgrade is under way";
            return self.log(Level::Error, "upgrade-refused", why);
        }
        self.is_upgrading = true;
        let passed = self.passed.clone();
        let checks =
            async move { Happening::Checked(worker_process::check_replacement(&passed).await) };
        self.happenings.spawn(checks);
    }

    /// Replaces the program in this process. Returns only if that fails.
    fn upgrade(&self) -> Result<(), String> {
        if self.is_ending {
            return Ok(());
        }
        let mut command = replacement(&self.passed)?;
        let program = command.get_program().display().to_string();
        let mut workers: Vec<&Child> = self.children.iter().collect();
        workers.sort_by_key(|child| child.state != State::Leaving);
        let workers = workers.into_iter().map(|child| (child.slot, child.process)).collect();
        let left = self.supervisor.leave(workers);
        let left = left.map_err(|error| format!("writing down what stays: {error}"))?;
        let (name, value) = left.variable();
        self.log(Level::Notice, "upgrading", format!("upgrading: {program} takes over"));
        // The thread that writes the log ends with the program.
        self.error_log.close();
        let error = command.env(name, value).exec();
        change_log(self.error_log, &self.config);
        Err(format!("running {program}: {error}"))
    }
}
