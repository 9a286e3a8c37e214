//! The parts of a server that its user can observe, and tells it for the metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use superpoll_http::log::ErrorLog;
use superpoll_http::telemetry::counters::EngineCounters;
use superpoll_http::upstream::Group;
use superpoll_rt::spawn;

use super::Server;
use crate::control::{CommandSender, Subject};

impl Server {
    /// Returns the groups of servers that requests are forwarded to, by name.
    #[must_use]
    pub fn upstreams(&self) -> &BTreeMap<String, Arc<Group>> {
        &self.current.groups
    }

    /// Returns the counters of each engine.
    #[must_use]
    pub fn engines(&self) -> &[Arc<EngineCounters>] {
        &self.shared.engines
    }

    /// Returns how many connections there are, parked ones included.
    #[must_use]
    pub fn connections(&self) -> u64 {
        // Connections that are relayed have permits, too.
        u64::from(self.shared.connection_limits.in_use())
    }

    /// Returns how many requests are under way: those whose response is not complete. A connection
    /// that has left HTTP, as a WebSocket has, has none.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.shared.engines.iter().map(|engine| engine.running.get()).sum()
    }

    /// Returns the subject for a statistics socket.
    #[must_use]
    pub fn subject(&self) -> Subject {
        let shared = &self.shared;
        let connection_limits = shared.connection_limits.clone();
        let connections = move || u64::from(connection_limits.in_use());
        let (handle, engines) = (shared.handle.clone(), shared.engines.clone());
        let subject = Subject::new("serve", shared.backend, handle, engines, connections);
        subject.with_traffic(shared.overview.clone()).operated_by(shared.operations.clone())
    }

    /// Takes the commands of the admin listener into a queue from now on, and lets operators set
    /// the level of this log and reopen it. Without this, such commands are refused.
    pub fn accept_operations(&self, commands: CommandSender, log: &Arc<ErrorLog>) {
        self.shared.operations.set_log(log.clone());
        self.shared.admin_operations.serve(self.subject().with_commands(commands));
    }

    /// Opens the files of the logs that are in use again, which may have been moved away. Does not
    /// wait for that; the outcome is logged. Call it on an engine.
    pub fn reopen_logs(&self) {
        let reopens = self.shared.operations.reopen_logs();
        spawn(async move { drop(reopens.await) }).detach();
    }

    /// Notes the outcome of an attempt to take on another configuration, for the metrics. A file
    /// that cannot be read never comes to [`change`](Server::change), so its reader says so.
    pub fn note_reload(&self, is_successful: bool) {
        self.shared.overview.note_reload(is_successful);
    }
}
