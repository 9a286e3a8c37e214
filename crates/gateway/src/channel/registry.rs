//! The channels of a server by their names: channels that both configurations have stay when the
//! configuration changes.

use std::collections::HashMap;
use std::sync::Arc;

use super::hub::Hub;
use crate::config::{Action, Channel, Config, Host};
use crate::succession::records::ChannelRecord;
use crate::succession::{self, Succession};

/// The channels of a configuration, by host and path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry(HashMap<(String, String), Arc<Hub>>);

/// Returns the names of a host; the empty name is that of a host without names.
fn names(host: &Host) -> impl Iterator<Item = &str> {
    let unnamed = host.names.is_empty().then_some("");
    host.names.iter().map(String::as_str).chain(unnamed)
}

impl Registry {
    /// Restores the channels that another server had.
    pub(crate) fn restore(channels: Vec<succession::Channel>, by: &Arc<Succession>) -> Registry {
        let mut restored = Registry::default();
        for channel in channels {
            let hub = Hub::restore(Channel::default(), channel.epoch, channel.messages);
            hub.continue_in(by.clone(), channel.space);
            restored.0.extend(channel.names.into_iter().map(|name| (name, hub.clone())));
        }
        restored
    }

    /// Notes that all subscribers that another server had are here.
    pub(crate) fn finish_gathering(&self) {
        self.0.values().for_each(|hub| hub.finish_gathering());
    }

    /// Returns each of the channels once.
    fn hubs(&self) -> Vec<&Arc<Hub>> {
        let mut hubs: Vec<&Arc<Hub>> = Vec::new();
        for hub in self.0.values() {
            if !hubs.iter().any(|other| Arc::ptr_eq(other, hub)) {
                hubs.push(hub);
            }
        }
        hubs
    }

    /// Records the channels for another server, in place of the channels of the configuration
    /// before.
    pub(crate) fn record_in(&self, before: &Registry, by: &Arc<Succession>) {
        let hubs = self.hubs();
        for gone in before.hubs() {
            if !hubs.iter().any(|hub| Arc::ptr_eq(hub, gone))
                && let Some(space) = gone.stop_recording()
            {
                by.forget_channel(space);
            }
        }
        for hub in hubs {
            let names = self.0.iter().filter(|(_, other)| Arc::ptr_eq(other, hub));
            let names = names.map(|(name, _)| name.clone()).collect();
            let known = hub.space();
            let space = known.unwrap_or_else(|| by.new_space());
            by.keep_channel(space, &ChannelRecord { names, epoch: hub.epoch() });
            if known.is_none() {
                hub.record_in(by.clone(), space);
            }
        }
    }

    /// Ends the channels here: another server goes on with them.
    pub(crate) fn hand_over(&self) {
        self.0.values().for_each(|hub| hub.hand_over());
    }

    /// Returns the channels of another configuration; those that it has in common with this one
    /// stay the same.
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

    /// Applies the configuration to the channels.
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

    /// Returns the channel of a route.
    pub(crate) fn of(&self, host: &Host, path: &str) -> Option<&Arc<Hub>> {
        names(host).find_map(|name| self.find(name, path))
    }

    /// Returns all channels, with the host's name and the path; those of a host with several names
    /// come once for each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str, &Arc<Hub>)> {
        self.0.iter().map(|((name, path), hub)| (name.as_str(), path.as_str(), hub))
    }

    /// Returns the channel that a name has at a path.
    pub(crate) fn find(&self, name: &str, path: &str) -> Option<&Arc<Hub>> {
        self.0.get(&(name.to_owned(), path.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use superpoll_keeper::{Control, Keeper, Listener, Options};

    use super::*;
    use crate::succession::records::CHANNELS;

    fn config(names: &str, paths: &[&str]) -> Config {
        let mut text = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n".to_owned();
        text += &format!("names = [{names}]\n");
        for path in paths {
            text += &format!("[[hosts.routes]]\npath = {path:?}\nchannel = {{ history = 1 }}\n");
        }
        Config::parse("test.toml", &text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_channel_is_the_same_as_long_as_a_name_of_its_host_is() {
        let first = Registry::default().next(&config("\"a\", \"b\"", &["/x", "/y"]));
        let (x, y) = (first.find("a", "/x").unwrap(), first.find("b", "/y").unwrap());
        assert!(Arc::ptr_eq(x, first.find("b", "/x").unwrap()));
        assert!(!Arc::ptr_eq(x, y));
        assert_eq!(first.iter().count(), 4);
        let next = first.next(&config("\"b\", \"c\"", &["/x", "/z"]));
        assert!(Arc::ptr_eq(x, next.find("c", "/x").unwrap()));
        assert!(next.find("b", "/y").is_none() && next.find("a", "/x").is_none());
        assert!(next.find("c", "/z").is_some());
        let other = next.next(&config("\"d\"", &["/x"]));
        assert!(!Arc::ptr_eq(x, other.find("d", "/x").unwrap()));
    }

    #[test]
    fn the_records_of_a_channel_are_removed_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sit");
        let mut keeper = Keeper::new(Options::default(), |_| {}).unwrap();
        keeper.listen(Listener::bind(&path).unwrap()).unwrap();
        let thread = std::thread::spawn(|| keeper.run());
        let by = Arc::new(Succession::begin(&path, Box::new(|error| panic!("{error}"))).unwrap());
        let first = Registry::default().next(&config("\"a\"", &["/x", "/y"]));
        first.record_in(&Registry::default(), &by);
        let next = first.next(&config("\"a\"", &["/y", "/z"]));
        let published = |registry: &Registry, path: &str| {
            let hub = registry.find("a", path).unwrap();
            hub.change(Channel { history: 9, ..Channel::default() });
            for _ in 0..9 {
                hub.publish("message").unwrap();
            }
        };
        published(&first, "/x");
        published(&first, "/y");
        next.record_in(&first, &by);
        published(&next, "/z");
        // A channel that keeps fewer messages keeps fewer in the record store as well.
        let hub = next.find("a", "/z").unwrap();
        hub.change(Channel { history: 2, ..Channel::default() });
        drop(by);
        drop((first, next));
        let mut heir = Control::connect(&path, 1).unwrap();
        let records = heir.adopt(false).unwrap().records;
        let of = |space: u64| records.iter().filter(move |record| record.0 == space);
        let mut found: Vec<(String, usize)> = Vec::new();
        for (_, space, bytes) in of(CHANNELS) {
            let channel = ChannelRecord::decode(bytes).unwrap();
            found.push((channel.names[0].1.clone(), of(*space).count()));
        }
        found.sort_unstable();
        assert_eq!(found, [("/y".to_owned(), 9), ("/z".to_owned(), 2)]);
        assert_eq!(records.len(), 2 + 9 + 2);
        heir.bye().unwrap();
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn options_change_with_the_configuration() {
        let config = config("\"a\"", &["/x"]);
        let registry = Registry::default().next(&config);
        let hub = registry.find("a", "/x").unwrap();
        hub.change(crate::config::Channel::default());
        registry.apply(&config);
        assert_eq!(hub.options().history, 1);
    }
}
