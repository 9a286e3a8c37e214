//! The channels of a server by their names: what stays when its configuration changes.

use std::collections::HashMap;
use std::sync::Arc;

use super::hub::Hub;
use crate::config::{Action, Config, Host};

/// The channels of a configuration, by host and path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry(HashMap<(String, String), Arc<Hub>>);

/// What a host is known by; the empty name is that of one without names.
fn names(host: &Host) -> impl Iterator<Item = &str> {
    let unnamed = host.names.is_empty().then_some("");
    host.names.iter().map(String::as_str).chain(unnamed)
}

impl Registry {
    /// The channels of another configuration, of which those that it has in common with this one stay the same.
    pub(crate) fn next(&self, config: &Config) -> Registry {
        let mut next = Registry::default();
        for host in &config.hosts {
            for route in &host.routes {
                let Action::Channel(options) = &route.action else { continue };
                let kept = names(host).find_map(|name| self.find(name, &route.path));
                let hub = kept.cloned().unwrap_or_else(|| Hub::new(options.clone()));
                for name in names(host) {
                    next.0.insert((name.to_owned(), route.path.clone()), hub.clone());
                }
            }
        }
        next
    }

    /// Has the channels do what the configuration says.
    pub(crate) fn apply(&self, config: &Config) {
        for host in &config.hosts {
            for route in &host.routes {
                if let Action::Channel(options) = &route.action
                    && let Some(hub) = self.of(host, &route.path)
                {
                    hub.change(options.clone());
                }
            }
        }
    }

    /// The channel of a route.
    pub(crate) fn of(&self, host: &Host, path: &str) -> Option<&Arc<Hub>> {
        names(host).find_map(|name| self.find(name, path))
    }

    /// The channel that a name has at a path.
    pub(crate) fn find(&self, name: &str, path: &str) -> Option<&Arc<Hub>> {
        self.0.get(&(name.to_owned(), path.to_owned()))
    }
}
