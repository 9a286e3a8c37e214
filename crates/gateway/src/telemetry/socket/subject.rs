//! The process that a statistics socket reports on.

use std::sync::Arc;
use std::time::Instant;

use superpoll_http::admin::command::{CommandAnswer, ServerCommand};
use superpoll_http::admin::{Operate, Operation, Outcome, Refusal, Report};
use superpoll_http::telemetry::counters::EngineCounters;
use superpoll_rt::{Handle, time};

use super::answer;
use super::queue::{CommandSender, CountGuard};
use crate::processes::Workers;
use crate::telemetry::overview::Overview;

/// The engines that statistics are about, and further facts about their process.
pub struct Subject {
    pub(super) program: &'static str,
    pub(super) backend: &'static str,
    pub(super) handle: Handle,
    pub(super) started: Instant,
    pub(super) engines: Engines,
    pub(super) commands: Option<CommandSender>,
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
    There(Workers),
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

    /// Creates the subject of a supervisor: the engines of its workers.
    pub(crate) fn of_workers(
        program: &'static str,
        backend: &'static str,
        handle: Handle,
        workers: Workers,
    ) -> Subject {
        let operate = Arc::new(workers.clone());
        let engines = Engines::There(workers);
        Subject::with_engines(program, backend, handle, engines).operated_by(operate)
    }

    fn with_engines(
        program: &'static str,
        backend: &'static str,
        handle: Handle,
        engines: Engines,
    ) -> Subject {
        let (started, commands, operate) = (time::now(), None, None);
        Subject { program, backend, handle, started, engines, commands, operate }
    }

    /// Gives operations to a server. Without this they are refused.
    #[must_use]
    pub(crate) fn operated_by(self, operate: Arc<dyn Operate>) -> Subject {
        Subject { operate: Some(operate), ..self }
    }

    /// Gives a command to the program, and returns its answer. The guard of an answer that the
    /// program has given is kept until the answer is written.
    pub(super) async fn command(
        self: &Arc<Subject>,
        command: ServerCommand,
    ) -> Result<(CommandAnswer, Option<CountGuard>), Refusal> {
        if command == ServerCommand::Status {
            return Ok((CommandAnswer::Status(Box::new(answer::status(self).await)), None));
        }
        let Some(commands) = &self.commands else {
            return Err(Refusal::unavailable("this program takes no commands"));
        };
        let answered = commands.call(command).await;
        let (answer, unwritten) =
            answered.ok_or_else(|| Refusal::unavailable("the server is about to end"))?;
        Ok((answer, Some(unwritten)))
    }

    /// Carries out an operation.
    pub(crate) async fn operate(self: &Arc<Subject>, operation: Operation) -> Outcome {
        match operation {
            Operation::Command(command) => {
                let (answer, _) = self.command(command).await?;
                Ok(Report::Command(answer).into())
            }
            operation => match &self.operate {
                Some(operate) => operate.clone().operate(operation).await,
                None => {
                    let what = "this program has no upstreams, channels or connections to list";
                    Err(Refusal::unavailable(what))
                }
            },
        }
    }

    /// Shows the figures of requests, servers and channels as well.
    #[must_use]
    pub(crate) fn with_traffic(mut self, source: Arc<Overview>) -> Subject {
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

/// Carries out an operation in JSON, which another process has asked for. Returns the outcome in
/// JSON.
pub(crate) async fn carry_out(subject: Option<Arc<Subject>>, operation: &[u8]) -> Vec<u8> {
    let outcome = match (subject, serde_json::from_slice::<Operation>(operation)) {
        (Some(subject), Ok(operation)) => subject.operate(operation).await,
        (None, _) => Err(Refusal::unavailable("the server is about to begin")),
        (_, Err(error)) => Err(Refusal::invalid(error.to_string())),
    };
    // These types have no map with other keys than texts.
    serde_json::to_vec(&outcome).unwrap_or_default()
}

superpoll::debug_fields!(Subject, it => program: it.program, engines: it.handle.engines());
