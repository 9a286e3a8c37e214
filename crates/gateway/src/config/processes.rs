//! The number of processes that serve, and the settings that only a single one can have.

use std::num::NonZeroUsize;

use serde::de::Deserializer;

use super::acme::Automatic;
use super::model::{Action, Config};
use super::workers::{CountText, processors};

/// The most processes. Each has an engine at least; processes beyond the number of processors only
/// share the processors.
const MOST_PROCESSES: usize = 1024;

fn expected() -> String {
    format!("expected 1 to {MOST_PROCESSES}, or \"auto\" for one for each processor")
}

/// Reads a number of processes: digits, or `auto` for the number of processors that this process
/// may use.
///
/// # Errors
///
/// The mistake, and the expected value.
pub fn parse_processes(text: &str) -> Result<NonZeroUsize, String> {
    if text == "auto" {
        return Ok(processors());
    }
    let number = text.parse::<NonZeroUsize>().ok().filter(|one| one.get() <= MOST_PROCESSES);
    number.ok_or_else(|| format!("{text:?} is no number of processes, {}", expected()))
}

pub(super) fn processes<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<NonZeroUsize, D::Error> {
    deserializer.deserialize_any(CountText { what: "processes", parse: parse_processes })
}

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
            let has_subscriptions = channel.mercure.as_ref().is_some_and(|hub| hub.subscriptions);
            let setting = match channel.presence {
                true => "presence",
                false if has_subscriptions => "subscriptions",
                false => continue,
            };
            return Some(format!(
                "a process knows only its own subscribers, expected one process, or no {setting} at {path}"
            ));
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

    #[test]
    fn numbers_of_processes() {
        assert_eq!(parse_processes("4").unwrap().get(), 4);
        assert!(parse_processes("auto").unwrap().get() >= 1);
        for wrong in ["0", "1025", "-1", "many", ""] {
            let error = parse_processes(wrong).unwrap_err();
            assert!(error.contains("expected 1 to 1024"), "{error}");
        }
    }

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
        let presence = "channel = { presence = true }";
        assert!(parse("1", presence).is_ok());
        let error = parse("2", presence).unwrap_err();
        let expected = "a.toml:2:13: a process knows only its own subscribers, expected one process, or no presence \
                        at /c";
        assert_eq!(error, expected);
        let hub = "mercure = { subscriptions = true, anonymous = true }";
        let error = parse("2", hub).unwrap_err();
        assert!(error.contains("or no subscriptions at /c"), "{error}");
    }
}
