//! A process that serves: the only one, or a worker of a supervisor.

use std::error::Error;
use std::future::pending;
use std::io;
use std::path::Path;
use std::sync::Arc;

use futures_lite::future::or;
use sd_notify::NotifyState;
use superpoll::{BackendKind, limits};
use superpoll_gateway::config::KeeperKind;
use superpoll_gateway::control::{
    CommandCall, CommandQueue, ServerPhase, SocketPath, UpgradeState,
};
use superpoll_gateway::processes::{Worker, WorkerDrain, WorkerPlace};
use superpoll_gateway::serve::{HandedOver, Server};
use superpoll_gateway::{Config, ErrorLog, Event, Inherited, Level, prepare};
use superpoll_rt::Runtime;

use super::reload::{self, Reloads};
use super::signals::{Request, Signals};
use super::upgrade::Upgrade;
use super::{
    Options, announce, change_log, commands, hide_keys, keeper_of_worker, keeper_socket, notify,
    notify_reloading, raise_limit, reloaded, report_warnings, runtime, statistics_stay,
};
use crate::{keep, quantity, stats};

/// The request that a signal, a command, a successor or the supervisor has made of the process.
enum Asked {
    /// By a signal, or by a command that waits for its outcome.
    Request(Request, Option<CommandCall>),
    Yield,
    /// The successor does not take over, for this reason.
    UpgradeFailed(String),
    /// A configuration was read again.
    Read(Box<reload::Outcome>),
    /// There is no supervisor any more.
    Orphaned,
}

/// Tells the supervisor why this worker ends.
pub(super) fn report_failure(place: &WorkerPlace, error: &str) {
    // Without a runtime the supervisor sees only that the process has ended.
    if let Ok(runtime) = Runtime::builder().backend(BackendKind::Epoll).build() {
        let _ = runtime.try_block_on(Worker::report_failure(place, error));
    }
}

/// Returns the text of the configuration that the supervisor has read.
pub(super) fn configuration(place: &WorkerPlace) -> Result<String, Box<dyn Error>> {
    let runtime = Runtime::builder().backend(BackendKind::Epoll).build()?;
    let told = runtime.try_block_on(Worker::configuration(place))?;
    Ok(told.map_err(|error| format!("joining the supervisor: {error}"))?.1)
}

/// Begins to read the configuration again, with the listeners of the supervisor, if there is one.
async fn begin_reload(
    reloads: &mut Reloads,
    (path, options): (&Path, &Options),
    worker: Option<&Worker>,
    server: &Server,
) {
    let (path, is_dumpable) = (path.to_owned(), options.dumpable);
    let (mut number, mut text) = (0, Ok(None));
    if let Some((worker, place)) = worker.zip(options.worker.as_ref()) {
        let cannot = |error: io::Error| format!("asking the supervisor: {error}");
        match Worker::configuration(place).await {
            Ok(told) => {
                number = told.0;
                text = worker.refresh(server).await.map(|()| Some(told.1)).map_err(cannot);
            }
            Err(error) => text = Err(cannot(error)),
        }
    }
    reloads.begin(number, server.preparation(), move || {
        let config = match text? {
            Some(text) => prepare::parse_file(&path, &text),
            None => prepare::read(&path),
        };
        let config = config.map_err(|error| error.to_string())?;
        hide_keys(is_dumpable, &config)?;
        Ok(config)
    });
}

/// Starts a keeper, if the configuration has one of its own process and none is there.
fn start_keeper(
    options: &Options,
    config: &Config,
    error_log: &ErrorLog,
) -> Result<(), Box<dyn Error>> {
    if let Some(socket) = keeper_socket(config)
        && keep::start(socket, options.dumpable)?
    {
        let message = format!("started a keeper at {}", socket.display());
        error_log.write(&Event::new(Level::Notice, "keeper-started", message));
    }
    Ok(())
}

/// Gives a worker a keeper of its own.
fn share_keeper(config: &mut Config, place: &WorkerPlace) -> Result<(), String> {
    if let Some(keeper) = &mut config.keeper
        && let KeeperKind::Process { socket } = &mut keeper.kind
    {
        *socket = keeper_of_worker(socket, place.slot)?;
    }
    Ok(())
}

/// Serves until SIGTERM or SIGINT, until a successor has taken over, or until the supervisor has
/// ended.
pub(super) fn run(
    options: &Options,
    config: &mut Config,
    mut inherited: Inherited,
    error_log: &Arc<ErrorLog>,
) -> Result<(), Box<dyn Error>> {
    if let Some(place) = &options.worker {
        share_keeper(config, place)?;
        // The supervisor reports a low limit.
        let _ = limits::raise_descriptors();
    } else {
        raise_limit(error_log);
    }
    let config = &*config;
    let processes = options.processes.unwrap_or(config.server.processes);
    let workers = options.workers.unwrap_or(config.server.workers);
    let runtime = runtime(options, config, workers.count(processes))?;
    let mut signals = Signals::new()?;
    let mut worker = None;
    if let Some(place) = &options.worker {
        let joined = runtime.try_block_on(Worker::join(place))?;
        let joined = joined.map_err(|error| format!("joining the supervisor: {error}"))?;
        worker = Some(joined.0);
        inherited = joined.1;
    }
    let (told, slot) = (error_log.clone(), options.worker.as_ref().map(|place| place.slot));
    let report = move |event: &Event| match slot {
        Some(slot) => told.write(&event.clone().with("worker", slot)),
        None => told.write(event),
    };
    start_keeper(options, config, error_log)?;
    if options.upgrade {
        inherited = inherited.by_upgrade();
    }
    let warn = |what: String| error_log.write(&Event::new(Level::Warning, "no-statistics", what));
    let place_of = |config: &Config| match &options.worker {
        // The supervisor's shows all workers.
        Some(_) => SocketPath::Off,
        None => options.stats.as_ref().unwrap_or(&config.server.stats).clone(),
    };
    let place = place_of(config);
    let socket = stats::bind(&place, options.upgrade, warn)?;
    let mut server = Server::start_with(&runtime, config, inherited, report.clone())?;
    let mut queue = CommandQueue::default();
    let mut facts = commands::facts(options, config, ServerPhase::Serving);
    facts.listeners = server.fronts().collect();
    // The one before has found it to be a good one.
    facts.upgrade = options.upgrade.then_some(UpgradeState::Done);
    queue.note(|noted| *noted = facts);
    let subject = server.subject().with_commands(queue.sender());
    server.accept_operations(queue.sender(), error_log);
    let statistics = stats::open(socket, subject, warn);
    let mut statistics = stats::Kept::new(place, statistics);
    match &worker {
        Some(worker) => worker.report_ready(&server),
        None => {
            announce(error_log, server.fronts(), server.roots())?;
            report_warnings(error_log, config);
        }
    }
    let mut drain = config.timeouts.drain;
    let left = runtime.try_block_on(async {
        notify(error_log, &[NotifyState::Ready]);
        if options.upgrade {
            // The service manager knows the process from which this one has taken over.
            notify(error_log, &[NotifyState::MainPid(std::process::id())]);
            // A request to the process before, while this one had opened them already.
            server.reopen_logs();
        }
        let (mut upgrade, mut has_yielded) = (Upgrade::default(), false);
        let mut reloads = Reloads::default();
        let (mut drain_call, mut handed, mut is_orphaned) = (None, None, false);
        loop {
            let signalled =
                async { io::Result::Ok(Asked::Request(signals.recv().await?, None)) };
            let commanded = async {
                let call = queue.next().await;
                Ok(Asked::Request(commands::request(call.command), Some(call)))
            };
            let yields = async {
                server.asked_to_yield().await;
                Ok(Asked::Yield)
            };
            let orphaned = async {
                match &mut worker {
                    Some(worker) => worker.lost().await,
                    None => pending().await,
                }
                Ok(Asked::Orphaned)
            };
            let fails = async { Ok(Asked::UpgradeFailed(upgrade.failed().await)) };
            let reads = async { Ok(Asked::Read(Box::new(reloads.outcome().await))) };
            let others = or(or(yields, fails), or(orphaned, reads));
            match or(or(signalled, commanded), others).await? {
                Asked::Request(Request::End, call) => {
                    drain_call = call;
                    upgrade.give_up();
                    reloads.give_up(commands::ENDING);
                    break;
                }
                Asked::Request(Request::Reload, call) => {
                    let Some(path) = &options.config else {
                        commands::refuse(call, commands::NO_FILE);
                        continue;
                    };
                    if reloads.ask(call) {
                        notify_reloading(error_log);
                        let from = (path.as_path(), options);
                        begin_reload(&mut reloads, from, worker.as_ref(), &server).await;
                    }
                }
                Asked::Read(read) => {
                    let reload::Outcome { number, calls, prepared } = *read;
                    let Some(path) = &options.config else { continue };
                    let outcome = match prepared {
                        Ok(prepared) => {
                            let config = prepared.config().clone();
                            let taken_on = server.take_on(&runtime, prepared).await;
                            taken_on.map(|()| config).map_err(|error| error.to_string())
                        }
                        Err(error) => Err(error),
                    };
                    if !reloads.is_due() {
                        notify(error_log, &[NotifyState::Ready]);
                    }
                    match &outcome {
                        Ok(config) => {
                            change_log(error_log, config);
                            drain = config.timeouts.drain;
                            let subject = server.subject().with_commands(queue.sender());
                            if let Err(error) = statistics.change(place_of(config), subject) {
                                error_log.write(&statistics_stay(&*error));
                            }
                        }
                        // Whoever has moved the files away has done so in any case.
                        Err(_) => server.reopen_logs(),
                    }
                    if let (Ok(config), None) = (&outcome, &worker) {
                        report_warnings(error_log, config);
                        warn_of_processes(options, config, error_log);
                    }
                    reload::conclude(calls, path, &outcome);
                    let outcome = outcome.map(drop);
                    server.note_reload(outcome.is_ok());
                    commands::note_reload(&queue, &outcome);
                    queue.note(|facts| facts.listeners = server.fronts().collect());
                    match &worker {
                        Some(worker) => worker.report_reload(number, outcome),
                        None => error_log.write(&reloaded(path, &outcome)),
                    }
                    if reloads.is_due() {
                        let from = (path.as_path(), options);
                        begin_reload(&mut reloads, from, worker.as_ref(), &server).await;
                    }
                }
                Asked::Request(Request::ReopenLogs, _) => server.reopen_logs(),
                Asked::Request(Request::Upgrade, _) if worker.is_some() => {
                    let why = "not upgrading: this process is one of several; send SIGUSR2 to their supervisor";
                    report(&Event::new(Level::Error, "upgrade-refused", why));
                }
                Asked::Request(Request::Upgrade, call) if keeper_socket(config).is_none() => {
                    let why = "not upgrading: there is no keeper process; \
                               name one with --keeper, or in [keeper] of the configuration";
                    error_log.write(&Event::new(Level::Error, "upgrade-refused", why));
                    commands::refuse(call, why);
                }
                Asked::Request(Request::Upgrade, call) => match upgrade.begin(call, error_log) {
                    Ok(()) => queue.note(|facts| facts.upgrade = Some(UpgradeState::UnderWay)),
                    Err(why) => error_log.write(&Event::new(Level::Error, "upgrade-refused", why)),
                },
                // It was logged when it happened.
                Asked::UpgradeFailed(why) => {
                    queue.note(|facts| facts.upgrade = Some(UpgradeState::Failed(why)));
                }
                Asked::Yield => {
                    has_yielded = true;
                    // The successor has read the configuration.
                    reloads.give_up(commands::TAKEN_OVER);
                    if let Some(worker) = &worker {
                        worker.report_yield();
                    }
                    // The manager might look for the process before the successor has named it.
                    if let Some(number) = upgrade.successor() {
                        notify(error_log, &[NotifyState::MainPid(number)]);
                    }
                    // The supervisor logs the sum over all workers.
                    let level = if worker.is_some() { Level::Info } else { Level::Notice };
                    let outcome =
                        hand_over(&mut server, level, "another server takes over", &report).await;
                    upgrade.succeed(quantity::handed_over(outcome.elsewhere, outcome.here));
                    handed = Some(outcome);
                    break;
                }
                Asked::Orphaned => {
                    is_orphaned = true;
                    reloads.give_up(commands::ENDING);
                    if keeper_socket(config).is_some() {
                        let why = "the supervisor has ended, and idle connections wait for the next one";
                        let _ = hand_over(&mut server, Level::Notice, why, &report).await;
                    } else {
                        let why = "the supervisor has ended, and so does this worker";
                        report(&Event::new(Level::Error, "supervisor-lost", why));
                    }
                    break;
                }
            }
        }
        // For a service manager, a server that a successor continues has not stopped.
        if !has_yielded {
            notify(error_log, &[NotifyState::Stopping]);
        }
        // A supervisor that is there logs the sum over all workers.
        let usual = if worker.is_some() && !is_orphaned { Level::Info } else { Level::Notice };
        let (connections, requests) = (server.connections(), server.requests());
        let work = quantity::open_work(connections, Some(requests));
        let event = Event::new(usual, "draining", format!("draining: {work}"));
        report(&event.with("connections", connections).with("requests", requests));
        if let Some(worker) = &worker {
            let (elsewhere, here) =
                handed.map_or((0, connections), |handed| (handed.elsewhere, handed.here));
            worker.report_drain(WorkerDrain { elsewhere, connections: here, requests });
        }
        commands::begin_drain(drain_call, &work);
        server.stop();
        queue.note(|facts| facts.state = ServerPhase::Draining);
        // A second signal ends the process at once. A worker gets SIGTERM from its supervisor and
        // from a service manager, which may send it to all processes.
        let asked = async {
            let _ = signals.end_of_drain(worker.is_some(), || server.reopen_logs()).await;
            server.connections()
        };
        let why = match has_yielded {
            true => commands::TAKEN_OVER,
            false => commands::ENDING,
        };
        let drains = or(server.drained(drain), asked);
        let work = || quantity::open_work(server.connections(), Some(server.requests()));
        let left = or(drains, commands::answer_at_the_end(&mut queue, why, work)).await;
        queue.written().await;
        if let Some(worker) = &worker {
            worker.written().await;
        }
        io::Result::Ok((left, usual))
    })??;
    report(&ended(left));
    Ok(())
}

/// Returns the event of the end of a process with so many connections.
fn ended((left, usual): (u64, Level)) -> Event {
    let event = match left {
        0 => Event::new(usual, "ended", "ended"),
        left => {
            let connections = quantity::count(left, "connection");
            let message = format!("closing {connections} that did not end in time");
            Event::new(Level::Warning, "ended", message)
        }
    };
    event.with("connections", left)
}

/// Leaves idle connections with the keeper, and logs how many continue with the next server.
async fn hand_over(
    server: &mut Server,
    level: Level,
    why: &str,
    report: &impl Fn(&Event),
) -> HandedOver {
    let handed = server.hand_over().await;
    let (elsewhere, here) = (handed.elsewhere, handed.here);
    let message = format!("{why}: {}", quantity::handed_over(elsewhere, here));
    let event = Event::new(level, "handed-over", message);
    report(&event.with("connections", here).with("elsewhere", elsewhere));
    handed
}

/// Logs a note if a configuration wants several processes of a server that has one.
fn warn_of_processes(options: &Options, config: &Config, error_log: &ErrorLog) {
    if options.processes.unwrap_or(config.server.processes).get() > 1 {
        let message =
            "processes: a server of one process goes on as one; end it and start it for several";
        error_log.write(&Event::new(Level::Warning, "configuration-warning", message));
    }
}
