//! The settings of operators, apart from the configuration.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use superpoll_config::Config;

use super::operation::{ServerChange, ServerState, WeightChange};
use super::report::Refusal;
use crate::log::Level;

/// The setting of an operator for a server of an upstream.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ServerSetting {
    pub(crate) state: ServerState,
    /// The weight in place of the configuration's.
    pub(crate) weight: Option<NonZeroU32>,
}

/// The upstreams of a configuration: the addresses of the servers, by the name of the upstream.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Upstreams(BTreeMap<String, Vec<String>>);

impl Upstreams {
    /// Returns the groups of a configuration.
    pub fn from_config(config: &Config) -> Upstreams {
        let all = config.upstreams.iter().map(|(name, upstream)| {
            let servers = upstream.servers.iter().map(|server| server.address.to_string());
            (name.clone(), servers.collect())
        });
        Upstreams(all.collect())
    }

    fn has(&self, upstream: &str, server: &str) -> bool {
        self.0.get(upstream).is_some_and(|servers| servers.iter().any(|one| one == server))
    }

    /// Returns why there is no such server.
    fn missing(&self, upstream: &str, server: &str) -> Option<Refusal> {
        let Some(servers) = self.0.get(upstream) else {
            return Some(Refusal::no_upstream(upstream, self.0.keys().map(String::as_str)));
        };
        let is_known = servers.iter().any(|one| one == server);
        let what = || {
            let known = servers.join(", ");
            format!("the upstream {upstream:?} has no server {server:?}, expected one of {known}")
        };
        (!is_known).then(|| Refusal::not_found(what()))
    }
}

/// The settings of all operators.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// By the upstream's name and the server's address; only servers with a setting are there.
    servers: BTreeMap<String, BTreeMap<String, ServerSetting>>,
    /// The level from which on events are logged, in place of the configuration's.
    pub log: Option<Level>,
}

impl Settings {
    /// Returns the setting of a server.
    pub(crate) fn server(&self, upstream: &str, server: &str) -> ServerSetting {
        let found = self.servers.get(upstream).and_then(|servers| servers.get(server));
        found.copied().unwrap_or_default()
    }

    /// Changes the setting of a server of these upstreams.
    ///
    /// # Errors
    ///
    /// If there is no such server, or the change is none. Nothing has changed then.
    pub fn change(&mut self, change: &ServerChange, upstreams: &Upstreams) -> Result<(), Refusal> {
        let ServerChange { upstream, server, state, weight } = change;
        if let Some(refusal) = upstreams.missing(upstream, server) {
            return Err(refusal);
        }
        let mut setting = self.server(upstream, server);
        setting.state = state.unwrap_or(setting.state);
        setting.weight = match weight {
            None if state.is_none() => {
                let what = "there is nothing to change, expected a state or a weight";
                return Err(Refusal::invalid(what));
            }
            None => setting.weight,
            Some(WeightChange::Configured) => None,
            Some(WeightChange::Number(number)) => match NonZeroU32::new(*number) {
                Some(number) => Some(number),
                None => {
                    let what = "the weight is 0, expected 1 or more, or the state \"down\"";
                    return Err(Refusal::invalid(what));
                }
            },
        };
        let servers = self.servers.entry(upstream.clone()).or_default();
        match setting == ServerSetting::default() {
            true => drop(servers.remove(server)),
            false => drop(servers.insert(server.clone(), setting)),
        }
        self.servers.retain(|_, servers| !servers.is_empty());
        Ok(())
    }

    /// Forgets the settings of servers that are not among these upstreams any more.
    pub fn retain(&mut self, upstreams: &Upstreams) {
        for (upstream, servers) in &mut self.servers {
            servers.retain(|server, _| upstreams.has(upstream, server));
        }
        self.servers.retain(|_, servers| !servers.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::RefusalReason;
    use super::*;

    fn upstreams(text: &str) -> Upstreams {
        let listener = "[[listeners]]\naddress = \":1\"\nrelay = { to = \":2\" }\n";
        Upstreams::from_config(&Config::parse("test", &format!("{listener}{text}")).unwrap())
    }

    fn change(state: Option<ServerState>, weight: Option<WeightChange>) -> ServerChange {
        ServerChange { upstream: "a".to_owned(), server: "x:1".to_owned(), state, weight }
    }

    #[test]
    fn settings_change_one_by_one_and_are_forgotten_with_their_server() {
        let known = upstreams(
            "[upstreams.a]\nservers = [{ address = \"x:1\" }, { address = \"y:1\" }]\n\
             [upstreams.b]\nservers = [{ address = \"x:1\" }]\n",
        );
        let mut settings = Settings::default();
        settings.change(&change(Some(ServerState::Down), None), &known).unwrap();
        settings.change(&change(None, Some(WeightChange::Number(7))), &known).unwrap();
        let setting = settings.server("a", "x:1");
        assert_eq!((setting.state, setting.weight), (ServerState::Down, NonZeroU32::new(7)));
        assert_eq!(settings.server("b", "x:1"), ServerSetting::default());
        let bytes = postcard::to_allocvec(&settings).unwrap();
        assert_eq!(postcard::from_bytes::<Settings>(&bytes).unwrap(), settings);
        let before = settings.clone();
        for (wrong, reason, said) in [
            (change(None, None), RefusalReason::Invalid, "nothing to change"),
            (change(None, Some(WeightChange::Number(0))), RefusalReason::Invalid, "weight is 0"),
            (
                ServerChange { upstream: "c".to_owned(), ..change(None, None) },
                RefusalReason::NotFound,
                "no upstream \"c\", expected one of a, b",
            ),
            (
                ServerChange { server: "z:1".to_owned(), ..change(None, None) },
                RefusalReason::NotFound,
                "no server \"z:1\", expected one of x:1, y:1",
            ),
        ] {
            let refusal = settings.change(&wrong, &known).unwrap_err();
            assert_eq!(refusal.reason, reason);
            assert!(refusal.message.contains(said), "{}", refusal.message);
            assert_eq!(settings, before);
        }
        let same = upstreams("[upstreams.a]\nservers = [{ address = \"x:1\", weight = 2 }]\n");
        settings.retain(&same);
        assert_eq!(settings, before);
        settings.retain(&upstreams("[upstreams.a]\nservers = [{ address = \"y:1\" }]\n"));
        assert_eq!(settings, Settings::default());
        // A setting that is taken back leaves nothing behind.
        settings.change(&change(Some(ServerState::Drain), None), &known).unwrap();
        settings.change(&change(Some(ServerState::Up), None), &known).unwrap();
        assert_eq!(settings, Settings::default());
    }
}
