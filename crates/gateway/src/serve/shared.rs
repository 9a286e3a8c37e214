//! The parts of a server that all its configurations have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use superpoll_http::admin_connections::AdminConnections;
use superpoll_http::certificates::TicketSecrets;
use superpoll_http::connection_limits::ConnectionLimits;
use superpoll_http::log::Report;
use superpoll_http::telemetry::counters::EngineCounters;
use superpoll_rt::{Handle, Runtime};

use super::operations::{AdminOperations, OnConnections, ServerOperations};
use crate::acme::{Automatic, Challenges};
use crate::processes::SupervisorLink;
use crate::telemetry::overview::Overview;

/// The parts of a server that stay the same whatever its configuration says. All engines have them.
pub(super) struct Shared {
    /// The number of the server among those of the process.
    pub number: u64,
    pub handle: Handle,
    pub backend: &'static str,
    /// The counters of each engine.
    pub engines: Vec<Arc<EngineCounters>>,
    pub connection_limits: Arc<ConnectionLimits>,
    /// The connections of the admin listener, apart from those of clients.
    pub admin_connections: Arc<AdminConnections>,
    pub overview: Arc<Overview>,
    pub operations: Arc<ServerOperations>,
    pub admin_operations: Arc<AdminOperations>,
    /// The answers to certificate authorities that verify a name.
    pub challenges: Arc<Challenges>,
    /// The secrets of the tickets of all listeners.
    pub tickets: Arc<TicketSecrets>,
    /// The connection to the supervisor, if this process is one of several.
    pub worker: Option<Arc<SupervisorLink>>,
    pub report: Report,
}

impl Shared {
    pub(super) fn new(
        runtime: &Runtime,
        automatic: &Automatic,
        worker: Option<Arc<SupervisorLink>>,
        report: Report,
        on_connections: OnConnections,
    ) -> Shared {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (number, handle) = (NEXT.fetch_add(1, Ordering::Relaxed), runtime.handle());
        let connection_limits: Arc<ConnectionLimits> = Arc::default();
        let counters = || Arc::new(EngineCounters::new(connection_limits.clone()));
        let engines: Vec<_> = std::iter::repeat_with(counters).take(handle.engines()).collect();
        let overview = Arc::new(Overview::new(
            handle.clone(),
            runtime.backend(),
            engines.clone(),
            connection_limits.clone(),
            automatic.counters.clone(),
        ));
        let operations = ServerOperations::new(
            number,
            handle.clone(),
            overview.clone(),
            report.clone(),
            on_connections,
        );
        if let Some(worker) = &worker {
            operations.set(worker.settings());
        }
        Shared {
            number,
            handle,
            backend: runtime.backend(),
            engines,
            connection_limits,
            admin_connections: Arc::default(),
            overview,
            operations: Arc::new(operations),
            admin_operations: Arc::default(),
            challenges: automatic.challenges.clone(),
            tickets: Arc::default(),
            worker,
            report,
        }
    }

    /// Whether the kernel wakes engines by epoll for a new connection.
    pub(super) fn is_on_epoll(&self) -> bool {
        matches!(self.backend, "epoll" | "adaptive" | "uring")
    }
}
