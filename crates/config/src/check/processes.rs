//! The settings that only a single process can have.

use crate::acme::Automatic;
use crate::model::{Action, Config};

impl Config {
    /// Returns the setting that only a single process can have, and why, if there is one.
    #[must_use]
    pub fn conflict_with_processes(&self) -> Option<String> {
        let routes = self.hosts.iter().flat_map(|host| &host.routes);
        let channels = routes.filter_map(|route| match &route.action {
            Action::Channel(channel) => Some((channel, &route.path)),
            _ => None,
        });
        for (channel, path) in channels {
            if channel.mercure.as_ref().is_some_and(|hub| hub.subscriptions) {
                return Some(format!(
                    "a process knows only its own subscribers, expected one process, or no subscriptions at {path}"
                ));
            }
        }
        let has_acme = self.listeners.iter().any(|listener| {
            let automatic = listener.tls.as_ref().and_then(|tls| tls.automatic.as_ref());
            matches!(automatic, Some(Automatic::Acme(_)))
        });
        has_acme.then(|| {
            "the authority's question about a name may reach any of the processes, expected one process, or no acme"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(processes: &str, more: &str) -> Result<Config, String> {
        let text = format!(
            "[server]\nprocesses = {processes}\n[[listeners]]\naddress = \"127.0.0.1:0\"\n\
             [[hosts]]\n[[hosts.routes]]\npath = \"/c\"\n{more}\n"
        );
        Config::parse("a.toml", &text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_may_have_several_processes_unless_a_setting_forbids_it() {
        let plain = "channel = {}";
        assert_eq!(parse("3", plain).unwrap().server.processes.get(), 3);
        assert!(parse("\"auto\"", plain).is_ok());
        for wrong in ["0", "1025", "-1", "\"some\""] {
            let error = parse(wrong, plain).unwrap_err();
            assert!(error.starts_with("a.toml:2:13: "), "{error}");
            assert!(error.contains("expected 1 to 1024"), "{error}");
        }
        let hub = "mercure = { subscriptions = true, anonymous = true }";
        let error = parse("2", hub).unwrap_err();
        let expected = "a process knows only its own subscribers, expected one process, or no subscriptions at /c";
        assert!(error.contains(expected), "{error}");
    }
}
