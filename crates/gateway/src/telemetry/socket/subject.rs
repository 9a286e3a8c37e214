//! The process that a statistics socket reports on.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use superpoll_rt::Handle;

use super::queue::CommandSender;
use crate::processes::Workers;
use crate::telemetry::counters::EngineCounters;
use crate::telemetry::overview::Overview;

/// The engines that statistics are about, and further facts about their process.
pub struct Subject {
    pub(super) program: &'static str,
    pub(super) backend: &'static str,
    pub(super) handle: Handle,
    pub(super) started: Instant,
    pub(super) engines: Engines,
    pub(super) commands: Option<CommandSender>,
}

/// Where the engines are.
pub(super) enum Engines {
    /// In this process.
    Here {
        /// The gateway's counters on each engine; empty for a program that does not count by engine.
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
        Subject { program, backend, handle, started: Instant::now(), engines, commands: None }
    }

    /// Creates the subject of a supervisor: the engines of its workers.
    pub(crate) fn of_workers(
        program: &'static str,
        backend: &'static str,
        handle: Handle,
        workers: Workers,
    ) -> Subject {
        let engines = Engines::There(workers);
        Subject { program, backend, handle, started: Instant::now(), engines, commands: None }
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

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engines = self.handle.engines();
        let mut fields = f.debug_struct("Subject");
        fields.field("program", &self.program).field("engines", &engines).finish_non_exhaustive()
    }
}
