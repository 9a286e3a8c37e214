//! The settings of operators for the servers of a group, and the reports for operators.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::group::{Group, ServerList};
use super::server::GroupServer;
use crate::admin::{ServerReport, ServerState, Settings, UpstreamReport};
use crate::log::{Event, Level};

impl Group {
    /// Applies the settings of operators, and reports the servers for which that is another
    /// setting.
    pub fn set(&self, settings: &Settings) {
        // The list cannot change between the two: `install` has its lock.
        let list = self.listed();
        *lock(&self.settings) = settings.clone();
        self.apply_settings(&list.list);
    }

    /// Applies the settings to the servers of a list.
    pub(super) fn apply_settings(&self, list: &ServerList) {
        let settings = lock(&self.settings);
        for member in list.iter() {
            let setting = settings.server(self.name(), &self.configured_address(member));
            if member.operator.set(setting) {
                let (name, state) = (self.name(), setting.state.name());
                let (server, weight) = (member.address.to_string(), member.weight());
                let what = format!("the server {server} of {name} to {state}, weight {weight}");
                let message = format!("an operator has set {what}");
                let event = Event::new(Level::Notice, "upstream-set", message);
                let event = event.with("upstream", name).with("server", server);
                (self.report)(&event.with("state", state).with("weight", weight));
            }
        }
    }

    /// Returns the address that the configuration has for a server.
    fn configured_address(&self, server: &GroupServer) -> String {
        let configured = self.config().servers.get(server.slot());
        configured.map_or_else(String::new, |configured| configured.address.to_string())
    }

    /// Whether a server continues with clients that are bound to it: it is healthy, and is up or
    /// drains.
    pub(super) fn takes_bound(&self, server: &GroupServer) -> bool {
        server.operator.state() != ServerState::Down && server.is_healthy(self.clock.now())
    }

    /// Returns the state of the servers.
    pub fn describe(&self) -> UpstreamReport {
        let members = self.members();
        let servers = members.iter().map(|member| {
            let healthy = member.is_healthy(self.clock.now());
            let (address, configured) =
                (member.address.to_string(), self.configured_address(member));
            ServerReport {
                name: (configured != address).then_some(configured),
                address,
                state: member.operator.state(),
                healthy,
                healthy_in: u32::from(healthy),
                processes: 1,
                weight: member.weight(),
                configured_weight: member.configured_weight(),
                active: member.active.load(Ordering::Relaxed),
                requests: member.requests.load(Ordering::Relaxed),
                failures: member.failures.load(Ordering::Relaxed),
                idle_connections: member.idle.load(Ordering::Relaxed),
            }
        });
        UpstreamReport { name: self.name().to_owned(), servers: servers.collect() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
