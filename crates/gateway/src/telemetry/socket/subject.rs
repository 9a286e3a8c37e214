//! The process that a statistics socket reports on.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use superpoll_rt::Handle;

use crate::telemetry::counters::EngineCounters;

/// The engines that statistics are about, and further facts about their process.
pub struct Subject {
    pub(super) program: &'static str,
    pub(super) backend: &'static str,
    pub(super) handle: Handle,
    pub(super) started: Instant,
    /// The gateway's counters on each engine; empty for a program that does not count by engine.
    pub(super) counters: Vec<Arc<EngineCounters>>,
    pub(super) connections: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl Subject {
    pub(crate) fn new(
        program: &'static str,
        backend: &'static str,
        handle: Handle,
        counters: Vec<Arc<EngineCounters>>,
        connections: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Subject {
        let started = Instant::now();
        Subject { program, backend, handle, started, counters, connections: Box::new(connections) }
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engines = self.handle.engines();
        let mut fields = f.debug_struct("Subject");
        fields.field("program", &self.program).field("engines", &engines).finish_non_exhaustive()
    }
}
