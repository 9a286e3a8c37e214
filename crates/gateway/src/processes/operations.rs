//! The operations of operators on a server of several processes.
//!
//! The supervisor has the settings of operators. It checks a change, sends the settings to all workers,
//! and then asks the workers for the answer, on the same connections: a worker that answers has the
//! settings already. Everything else is asked of all workers, and merged.

use std::cell::RefCell;
use std::sync::Arc;

use superpoll_rt::Handle;

use super::messages::Kind;
use super::supervisor::Supervisor;
use crate::admin::{
    LogReport, Operation, Outcome, Refusal, Report, ServerChange, Settings, Upstreams, merge,
};
use crate::config::Config;
use crate::log::LogLevel;
use crate::telemetry::socket::{CommandSender, Subject};

/// The supervisor's part of them.
#[derive(Default)]
pub(super) struct Operations {
    settings: RefCell<Settings>,
    upstreams: RefCell<Upstreams>,
    /// The level of the supervisor's own log.
    log: RefCell<Option<LogLevel>>,
    /// For the operations that come by the admin listener of a worker.
    subject: RefCell<Option<Arc<Subject>>>,
}

impl Operations {
    pub(super) fn new(settings: Settings) -> Operations {
        Operations { settings: RefCell::new(settings), ..Operations::default() }
    }

    pub(super) fn settings(&self) -> Settings {
        self.settings.borrow().clone()
    }

    pub(super) fn subject(&self) -> Option<Arc<Subject>> {
        self.subject.borrow().clone()
    }

    /// Knows the upstreams of another configuration.
    pub(super) fn change(&self, config: &Config) {
        let upstreams = Upstreams::of(config);
        self.settings.borrow_mut().retain(&upstreams);
        *self.upstreams.borrow_mut() = upstreams;
    }
}

/// Carries out the operation of a client of a worker's admin listener. Returns the outcome in JSON.
pub(super) async fn answer(subject: Option<Arc<Subject>>, operation: &[u8]) -> Vec<u8> {
    let outcome = match (subject, serde_json::from_slice::<Operation>(operation)) {
        (Some(subject), Ok(operation)) => subject.operate(operation).await,
        (None, _) => Err(Refusal::unavailable("the server is about to begin")),
        (_, Err(error)) => Err(Refusal::invalid(error.to_string())),
    };
    // These types have no map with other keys than texts.
    serde_json::to_vec(&outcome).unwrap_or_default()
}

/// Leaves the server that was changed.
fn only(change: &ServerChange, outcome: Outcome) -> Outcome {
    let mut report = outcome?;
    if let Report::Upstreams(upstreams) = &mut report {
        upstreams.retain(|upstream| upstream.name == change.upstream);
    }
    Ok(report)
}

impl Supervisor {
    /// Takes operations from now on: with the commands of a queue, and the level of this process' log.
    pub fn administer(
        &self,
        backend: &'static str,
        handle: Handle,
        commands: CommandSender,
        log: LogLevel,
    ) {
        log.set(self.operations.settings.borrow().log);
        *self.operations.log.borrow_mut() = Some(log);
        let subject = self.subject(backend, handle).with_commands(commands);
        *self.operations.subject.borrow_mut() = Some(Arc::new(subject));
    }

    /// Carries out an operation.
    pub(super) async fn operate(&self, operation: Operation) -> Outcome {
        let operations = &self.operations;
        match operation {
            Operation::SetServer(change) => {
                let upstreams = operations.upstreams.borrow().clone();
                operations.settings.borrow_mut().change(&change, &upstreams)?;
                self.send_settings();
                only(&change, self.ask(&Operation::Upstreams).await)
            }
            Operation::SetLog(level) => {
                operations.settings.borrow_mut().log = level;
                if let Some(log) = &*operations.log.borrow() {
                    log.set(level);
                }
                self.send_settings();
                self.log_report()
            }
            Operation::Log => self.log_report(),
            operation => self.ask(&operation).await,
        }
    }

    fn log_report(&self) -> Outcome {
        match &*self.operations.log.borrow() {
            Some(log) => {
                Ok(Report::Log(LogReport { level: log.get(), configured: log.configured() }))
            }
            None => Err(Refusal::unavailable("the server is about to begin")),
        }
    }

    /// Makes all workers carry out an operation.
    async fn ask(&self, operation: &Operation) -> Outcome {
        let bytes =
            serde_json::to_vec(operation).map_err(|error| Refusal::invalid(error.to_string()))?;
        let answers = self.collect(Kind::Operation(bytes)).await;
        // A worker that has just begun answers with no bytes.
        let answers = answers.iter().filter_map(|(_, bytes)| serde_json::from_slice(bytes).ok());
        merge(operation, answers.collect())
    }
}
