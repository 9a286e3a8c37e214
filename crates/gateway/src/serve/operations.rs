//! Operations on a server: on its groups, its channels, and the connections of its engines.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use superpoll_http::admin::{
    ClientFilter, ConnectionQuery, LogReport, Operate, Operation, OperationReport, Outcome,
    Refusal, ReopenedLogs, Report, Settings, Upstreams, UserCommand, merge,
};
use superpoll_http::exchange::LocalFuture;
use superpoll_http::log::{AccessLogSink, ErrorLog, Report as ReportEvent, reopen};
use superpoll_http::upstream::Group;
use superpoll_hub::succession::Succession;
use superpoll_rt::Handle;

use crate::config::Config;
use crate::control::Subject;
use crate::processes::SupervisorLink;
use crate::telemetry::overview::Overview;
use crate::telemetry::upstreams::ReplacedRequests;

/// Lists or closes connections of an engine of a server, on that engine.
pub(super) type OnConnections = fn(u64, ConnectionsOperation) -> Listing;

/// A future of their report.
pub(super) type Listing = Pin<Box<dyn Future<Output = Report> + Send>>;

/// An operation on connections.
#[derive(Clone)]
pub(super) enum ConnectionsOperation {
    List(ConnectionQuery),
    Close(ClientFilter),
    EndUser(UserCommand),
}

/// The parts of a server that operations use.
pub(crate) struct ServerOperations {
    server: u64,
    handle: Handle,
    overview: Arc<Overview>,
    state: Mutex<OperationsState>,
    /// How often the logs were reopened.
    reopenings: AtomicU64,
    report: ReportEvent,
    /// The engines know their connections, and are above this.
    on_connections: OnConnections,
}

#[derive(Default)]
struct OperationsState {
    settings: Settings,
    upstreams: Upstreams,
    groups: BTreeMap<String, Arc<Group>>,
    log: Option<Arc<ErrorLog>>,
    /// The server waits for its lines when it ends.
    access_log: Weak<AccessLogSink>,
    /// Keeps the settings for a successor.
    succession: Option<Arc<Succession>>,
    /// The successor has the settings, and a change of those of this server would be lost.
    has_yielded: bool,
}

impl OperationsState {
    fn apply(&self) {
        if let Some(succession) = &self.succession {
            succession.keep_settings(&self.settings);
        }
        self.groups.values().for_each(|group| group.set(&self.settings));
        if let Some(log) = &self.log {
            log.level().set(self.settings.log);
        }
    }

    /// Returns the servers of all upstreams, or of one.
    fn upstreams(&self, name: Option<&str>, replaced: &ReplacedRequests) -> Report {
        let groups = self.groups.iter().filter(|(known, _)| name.is_none_or(|name| name == *known));
        let described = groups.map(|(_, group)| {
            let mut report = group.describe();
            for server in &mut report.servers {
                let place = (report.name.clone(), server.address.clone());
                server.active += replaced.get(&place).copied().unwrap_or(0);
            }
            report
        });
        Report::Upstreams(described.collect())
    }

    fn log(&self) -> Result<Report, Refusal> {
        match self.log.as_ref().map(|log| log.level()) {
            Some(log) => {
                Ok(Report::Log(LogReport { level: log.get(), configured: log.configured() }))
            }
            None => Err(Refusal::unavailable("the server's log has no level that can be set")),
        }
    }
}

impl ServerOperations {
    pub(super) fn new(
        server: u64,
        handle: Handle,
        overview: Arc<Overview>,
        report: ReportEvent,
        on_connections: OnConnections,
    ) -> ServerOperations {
        let (state, reopenings) = (Mutex::default(), AtomicU64::new(0));
        ServerOperations { server, handle, overview, state, reopenings, report, on_connections }
    }

    fn state(&self) -> MutexGuard<'_, OperationsState> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the settings of operators, in place of those before.
    pub(crate) fn set(&self, settings: Settings) {
        let mut state = self.state();
        state.settings = settings;
        state.apply();
    }

    /// Keeps the settings for a successor from the next [`change`](ServerOperations::change) on.
    pub(super) fn keep_in(&self, succession: Arc<Succession>) {
        self.state().succession = Some(succession);
    }

    /// Leaves the settings to the successor: changes are refused from now on.
    pub(super) fn yield_settings(&self) {
        let mut state = self.state();
        state.succession = None;
        state.has_yielded = true;
    }

    /// Takes on the groups of another configuration. Settings of servers that it does not have any
    /// more are forgotten.
    pub(super) fn change(
        &self,
        config: &Config,
        groups: &BTreeMap<String, Arc<Group>>,
        access_log: Option<&Arc<AccessLogSink>>,
    ) {
        let mut state = self.state();
        state.access_log = access_log.map(Arc::downgrade).unwrap_or_default();
        state.upstreams = Upstreams::from_config(config);
        let upstreams = state.upstreams.clone();
        state.settings.retain(&upstreams);
        state.groups = groups.clone();
        state.apply();
    }

    /// Sets the level of this log, and reopens it, from now on.
    pub(super) fn set_log(&self, log: Arc<ErrorLog>) {
        let mut state = self.state();
        log.level().set(state.settings.log);
        state.log = Some(log);
    }

    /// Opens the files of the logs that are in use again, and reports the outcome.
    pub(super) fn reopen_logs(&self) -> impl Future<Output = ReopenedLogs> + use<> {
        self.reopenings.fetch_add(1, Ordering::Relaxed);
        let state = self.state();
        let access_log = state.access_log.upgrade().and_then(|log| log.reopening());
        let log = state.log.as_ref().and_then(|log| log.reopening());
        drop(state);
        // The outcome is then in the new file.
        let all = log.into_iter().chain(access_log).collect();
        let report = self.report.clone();
        reopen(all, move |event| report(event))
    }

    /// Returns how often the logs were reopened.
    pub(super) fn reopenings(&self) -> u64 {
        self.reopenings.load(Ordering::Relaxed)
    }

    /// Opens the file of a log again that is not in use yet.
    pub(super) fn reopen_prepared(&self, log: &AccessLogSink) -> impl Future<Output = ()> + use<> {
        let (all, report) = (log.reopening().into_iter().collect(), self.report.clone());
        async move { drop(reopen(all, move |event| report(event)).await) }
    }

    /// Carries out an operation that needs no engine; `None`: it needs all of them.
    fn operate_at_once(&self, operation: &Operation) -> Option<Result<Report, Refusal>> {
        // It may take long, and needs no setting.
        if let Operation::Channels(query) = operation {
            return Some(Ok(Report::Channels(self.overview.channels().list(query))));
        }
        let replaced = self.overview.replaced_requests();
        let mut state = self.state();
        Some(match operation {
            Operation::Upstreams => Ok(state.upstreams(None, &replaced)),
            Operation::SetServer(_) | Operation::SetLog(_) if state.has_yielded => {
                let what = "another server has taken over, and has the settings of operators";
                Err(Refusal::unavailable(format!("{what}; make the change there")))
            }
            Operation::SetServer(change) => {
                let upstreams = state.upstreams.clone();
                state.settings.change(change, &upstreams).map(|()| {
                    state.apply();
                    state.upstreams(Some(&change.upstream), &replaced)
                })
            }
            Operation::Log => state.log(),
            Operation::SetLog(level) if state.log.is_some() => {
                state.settings.log = *level;
                state.apply();
                state.log()
            }
            Operation::SetLog(_) => state.log(),
            Operation::Command(_) | Operation::Status | Operation::Snapshot => {
                Err(Refusal::unavailable("this is no operation here"))
            }
            Operation::Channels(_)
            | Operation::Connections(_)
            | Operation::Close(_)
            | Operation::EndUser(_)
            | Operation::ReopenLogs => {
                return None;
            }
        })
    }

    /// Asks all engines, and merges their answers.
    async fn ask(
        &self,
        operation: Operation,
        of_engine: ConnectionsOperation,
    ) -> Result<Report, Refusal> {
        let mut asked = Vec::new();
        for engine in 0..self.handle.engines() {
            let report = (self.on_connections)(self.server, of_engine.clone());
            // An engine that has ended has no connections.
            asked.extend(self.handle.spawn_on(engine, report));
        }
        let mut reports = Vec::new();
        for engine in asked {
            reports.extend(engine.await.ok().map(Ok));
        }
        merge(&operation, reports)
    }
}

impl Operate for ServerOperations {
    fn operate(self: Arc<ServerOperations>, operation: Operation) -> LocalFuture<Outcome> {
        Box::pin(async move {
            if let Some(outcome) = self.operate_at_once(&operation) {
                return outcome.map(OperationReport::from);
            }
            let outcome = match operation.clone() {
                Operation::Connections(query) => {
                    self.ask(operation, ConnectionsOperation::List(query)).await
                }
                Operation::Close(client) => {
                    self.ask(operation, ConnectionsOperation::Close(client)).await
                }
                Operation::EndUser(command) => {
                    self.ask(operation, ConnectionsOperation::EndUser(command)).await
                }
                Operation::ReopenLogs => Ok(Report::Reopened(self.reopen_logs().await)),
                _ => Err(Refusal::invalid("this is no operation on connections")),
            };
            outcome.map(OperationReport::from)
        })
    }
}

// The way of operations from the admin listener to the server, or to the supervisor of several.

/// The way of operations from the admin listener.
#[derive(Default)]
pub(crate) struct AdminOperations {
    subject: RwLock<Option<Arc<Subject>>>,
    /// The connection to the supervisor, if this process is one of several.
    link: OnceLock<Weak<SupervisorLink>>,
}

impl AdminOperations {
    /// Gives operations to this subject from now on.
    pub(crate) fn serve(&self, subject: Subject) {
        let mut known = self.subject.write().unwrap_or_else(PoisonError::into_inner);
        *known = Some(Arc::new(subject));
    }

    /// Gives operations to the supervisor.
    pub(crate) fn join(&self, link: &Arc<SupervisorLink>) {
        // A server joins one supervisor, once.
        let _ = self.link.set(Arc::downgrade(link));
    }

    /// Carries out an operation.
    pub(crate) async fn operate(&self, operation: Operation) -> Outcome {
        if let Some(link) = self.link.get() {
            return match link.upgrade() {
                Some(link) => link.operate(&operation).await,
                None => Err(Refusal::unavailable("the server is about to end")),
            };
        }
        let subject = self.subject.read().unwrap_or_else(PoisonError::into_inner).clone();
        match subject {
            Some(subject) => subject.operate(operation).await,
            None => Err(Refusal::unavailable("the server is about to begin")),
        }
    }
}
