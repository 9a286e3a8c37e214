//! The channels of a server by their names: channels that both configurations have stay when the
//! configuration changes.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use superpoll_config::{Action, Config, Grip, Host};

use super::counters::Figures;
use super::grip::{self, GripKey};
use super::hub::Hub;
use super::pattern::Pattern;
use super::route::{Channels, SharedRoute};
use crate::broker::Brokers;
use crate::succession::records::{CALLBACKS, CallbackRecord, MemberRecords, RecordStore};
use crate::succession::{self, Succession};

/// A channel, with the route that it belongs to.
pub type LocatedChannel = (Arc<Channels>, Arc<Hub>);

/// How a route of channels is used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RouteState {
    /// The place of the process that says so among the workers, if there are several.
    pub process: Option<u32>,
    /// The host's names, separated by commas.
    pub host: String,
    /// The path as the configuration has it.
    pub path: String,
    /// How many channels the route has.
    pub channels: usize,
    /// How many subscribers they have.
    pub subscribers: usize,
    /// Messages that were refused because their client publishes too fast.
    pub refused: u64,
    /// The counts of the other messages.
    pub messages: Figures,
    /// Messages that the logs of its channels are known to have, and that are not read yet.
    pub lag: u64,
}

/// The channels of a configuration, by their route's host and path.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    routes: HashMap<(String, String), Arc<Channels>>,
    /// Channels of another server that no route has taken up yet.
    restored: Vec<Restored>,
    /// The events of another server that applications are still to be told, and whether they may
    /// lack the last one of each channel.
    callbacks: Vec<(u64, CallbackRecord)>,
    crashed: bool,
    /// The engines that keep the messages of channels that other processes have as well.
    brokers: Brokers,
}

/// A channel of another server.
#[derive(Clone, Debug)]
struct Restored {
    hosts: Vec<String>,
    is_hub: bool,
    hub: Arc<Hub>,
    members: MemberRecords,
}

impl Restored {
    /// Returns the channel, and its members.
    fn parts(&self) -> (Arc<Hub>, MemberRecords) {
        (self.hub.clone(), self.members.clone())
    }
}

/// Returns the names of a host; the empty name is that of a host without names.
fn names(host: &Host) -> impl Iterator<Item = &str> {
    let unnamed = host.names.is_empty().then_some("");
    host.names.iter().map(String::as_str).chain(unnamed)
}

impl Registry {
    /// Restores the channels that another server had.
    ///
    /// `callbacks` are the events that applications are still to be told; if the other server has
    /// `crashed`, they may lack the last one of each channel.
    pub fn restore(
        channels: Vec<succession::Channel>,
        (callbacks, crashed): (Vec<(u64, CallbackRecord)>, bool),
        by: &Arc<Succession>,
    ) -> Registry {
        let mut restored = Vec::new();
        for channel in channels {
            let Some((_, path)) = channel.names.first() else { continue };
            let hub = Hub::restore_at(
                path.as_str().into(),
                channel.epoch,
                channel.messages,
                channel.offsets,
            );
            hub.continue_in(by.clone(), channel.space);
            let hosts = channel.names.into_iter().map(|(host, _)| host).collect();
            restored.push(Restored {
                hosts,
                is_hub: channel.is_hub,
                hub,
                members: channel.members,
            });
        }
        Registry { restored, callbacks, crashed, ..Registry::default() }
    }

    /// Returns the engines that keep the messages of channels that other processes have as well.
    pub fn brokers(&self) -> &Brokers {
        &self.brokers
    }

    /// Whether the logs of all channels are read that are always there.
    pub fn is_ready(&self) -> bool {
        self.routes.values().all(|channels| channels.is_ready())
    }

    /// Notes that all subscribers that another server had are here.
    pub fn finish_gathering(&self) {
        self.routes.values().for_each(|channels| channels.finish_gathering());
    }

    /// Returns each of the routes once.
    fn each(&self) -> Vec<&Arc<Channels>> {
        let mut routes: Vec<&Arc<Channels>> = Vec::new();
        for channels in self.routes.values() {
            if !routes.iter().any(|other| Arc::ptr_eq(other, channels)) {
                routes.push(channels);
            }
        }
        routes
    }

    /// Records the channels for another server, in place of the channels of the configuration
    /// before.
    pub fn record_in(&self, before: &Registry, by: &Arc<Succession>) {
        let routes = self.each();
        for gone in before.each() {
            if !routes.iter().any(|channels| Arc::ptr_eq(channels, gone)) {
                gone.stop_recording();
            }
        }
        for Restored { hub, .. } in &before.restored {
            // No route has it any more, unless that has taken it up.
            let is_here = || routes.iter().any(|channels| channels.has(hub));
            if !is_here()
                && let Some(space) = hub.stop_recording()
            {
                by.forget_channel(space);
            }
        }
        for (record, kept) in &before.callbacks {
            // No route has it any more.
            if !routes.iter().any(|channels| channels.callbacks().is_of(kept)) {
                by.keep(CALLBACKS, *record, &[]);
            }
        }
        for channels in routes {
            let hosts = self.routes.iter().filter(|(_, other)| Arc::ptr_eq(other, channels));
            channels.record_in(by, hosts.map(|((host, _), _)| host.clone()).collect());
        }
    }

    /// Ends the channels here: another server continues with them.
    pub fn hand_over(&self) {
        self.routes.values().for_each(|channels| channels.hand_over());
    }

    /// Returns the channels of another configuration; those that it has in common with this one
    /// stay the same. A channel and a hub of Mercure have nothing in common: a subscriber of a
    /// channel gets all of it.
    pub fn next_with(&self, config: &Config, brokers: Brokers) -> Registry {
        let mut next = Registry { brokers, ..Registry::default() };
        for grip in config.grips() {
            let (path, options) = (GripKey::path(&grip.key), grip.log());
            let shared = next.brokers.for_channel(&options).cloned();
            let shared = shared.map(|broker| SharedRoute { broker, host: grip::HOST.to_owned() });
            let known = self.route(grip::HOST, &path);
            let kept = known.filter(|channels| channels.are_shared_like(shared.as_ref()));
            let channels = kept.cloned().or_else(|| {
                let pattern = Pattern::parse(&path).ok()?;
                let is_log = |restored: &&Restored| {
                    restored.hosts.iter().any(|host| host == grip::HOST)
                        && **restored.hub.name() == *path
                };
                let restored = self.restored.iter().filter(is_log).map(Restored::parts);
                Some(Channels::new(path.clone(), pattern, options, restored, shared))
            });
            if let Some(channels) = channels {
                next.routes.insert((grip::HOST.to_owned(), path), channels);
            }
        }
        for host in &config.hosts {
            for route in &host.routes {
                let Action::Channel(options) = &route.action else { continue };
                let is_hub = options.mercure.is_some();
                let known = names(host).find_map(|name| self.route(name, &route.path));
                let host_name = host.names.first().cloned().unwrap_or_default();
                let shared = next.brokers.for_channel(options).cloned();
                let shared = shared.map(|broker| SharedRoute { broker, host: host_name });
                let kept = known.filter(|channels| {
                    channels.is_hub() == is_hub && channels.are_shared_like(shared.as_ref())
                });
                let channels = kept.cloned().or_else(|| {
                    // The check of the configuration has accepted the pattern.
                    let pattern = Pattern::parse(&route.path).ok()?;
                    let restored = self.restored_for(host, &pattern, is_hub);
                    let name = format!("{}{}", host.names.first().map_or("", |it| it), route.path);
                    let options = options.clone();
                    let channels = Channels::new(name, pattern, options, restored, shared.clone());
                    channels.callbacks().restore(&self.callbacks);
                    if self.crashed && shared.is_none() {
                        channels.all().iter().for_each(|hub| hub.tell_last_again());
                    }
                    Some(channels)
                });
                let Some(channels) = channels else { continue };
                for name in names(host) {
                    next.routes.insert((name.to_owned(), route.path.clone()), channels.clone());
                }
            }
        }
        next
    }

    /// The same without a broker.
    #[cfg(test)]
    fn next(&self, config: &Config) -> Registry {
        self.next_with(config, Brokers::default())
    }

    /// Returns the channels of another server that belong to a route.
    fn restored_for(
        &self,
        host: &Host,
        pattern: &Pattern,
        is_hub: bool,
    ) -> Vec<(Arc<Hub>, MemberRecords)> {
        let restored = self.restored.iter().filter(|restored| {
            let has = |name: &str| restored.hosts.iter().any(|had| had == name);
            restored.is_hub == is_hub && pattern.has(restored.hub.name()) && names(host).any(has)
        });
        restored.map(Restored::parts).collect()
    }

    /// Applies the configuration to the channels.
    pub fn apply(&self, config: &Config) {
        for host in &config.hosts {
            for route in &host.routes {
                if let Action::Channel(options) = &route.action
                    && let Some(channels) = self.channels_at(host, &route.path)
                {
                    channels.change(options.clone());
                }
            }
        }
    }

    /// Returns the log of the items of a key, by which applications hold connections.
    pub fn log_of(&self, grip: &Grip) -> Option<&Arc<Channels>> {
        self.route(grip::HOST, &GripKey::path(&grip.key))
    }

    /// Returns the channels of a route.
    pub fn channels_at(&self, host: &Host, path: &str) -> Option<&Arc<Channels>> {
        names(host).find_map(|name| self.route(name, path))
    }

    /// Returns the channels that a host's name has at the path of a route.
    fn route(&self, name: &str, path: &str) -> Option<&Arc<Channels>> {
        self.routes.get(&(name.to_owned(), path.to_owned()))
    }

    /// Returns the channels of all routes, each once.
    pub fn routes(&self) -> Vec<Arc<Channels>> {
        self.each().into_iter().cloned().collect()
    }

    /// Returns the channels of all routes, each once, with the names of their hosts.
    pub fn routes_by_host(&self) -> Vec<(Arc<str>, Arc<Channels>)> {
        let named = self.by_host().into_iter();
        named.map(|(hosts, _, channels)| (hosts.into(), channels.clone())).collect()
    }

    /// Returns the channels of each route once, with the names of the host, separated by commas,
    /// and the path in the configuration.
    pub(super) fn by_host(&self) -> Vec<(String, String, &Arc<Channels>)> {
        let named = |channels| {
            let of = self.routes.iter().filter(|(_, other)| Arc::ptr_eq(other, channels));
            let mut hosts: Vec<&str> = of.clone().map(|((host, _), _)| host.as_str()).collect();
            hosts.sort_unstable();
            let path = of.map(|((_, path), _)| path.clone()).next().unwrap_or_default();
            (hosts.join(","), path, channels)
        };
        self.each().into_iter().map(named).collect()
    }

    /// Returns how each of the routes is used, in the order of their hosts and paths.
    pub fn states(&self, process: Option<u32>) -> Vec<RouteState> {
        let mut states = Vec::new();
        for (host, path, channels) in self.by_host() {
            let hubs = channels.all();
            let subscribers = hubs.iter().map(|hub| hub.subscribers()).sum();
            let refused = channels.publish_limits().refused();
            let lags = hubs.iter().filter_map(|hub| hub.shared()).map(|shared| shared.lag());
            let (messages, lag) = (channels.figures(), lags.sum());
            let channels = hubs.len();
            states.push(RouteState {
                process,
                host,
                path,
                channels,
                subscribers,
                refused,
                messages,
                lag,
            });
        }
        states.sort_unstable_by(|one, next| (&one.host, &one.path).cmp(&(&next.host, &next.path)));
        states
    }

    /// Returns the channel that a host's name has at a path.
    pub fn find(&self, name: &str, path: &str) -> Option<Arc<Hub>> {
        let of_host = self.routes.iter().filter(|((host, _), _)| host == name);
        let mut channels = of_host.filter_map(|(_, channels)| {
            let name = channels.name(path).ok()?;
            channels.find(&name)
        });
        channels.next()
    }

    /// Returns all channels with the number of the space in which they are recorded.
    pub fn by_space(&self) -> HashMap<u64, LocatedChannel> {
        let mut found = HashMap::new();
        for channels in self.each() {
            for hub in channels.all() {
                if let Some(space) = hub.space() {
                    found.insert(space, (channels.clone(), hub));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::thread::JoinHandle;
    use std::time::Duration;

    use superpoll_config::Channel;
    use superpoll_keeper::{Control, Error, Keeper, Listener, Options};

    use super::*;
    use crate::channel::Offsets;
    use crate::channel::message::Message;
    use crate::succession::records::{CHANNELS, ChannelRecord};

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
        assert!(Arc::ptr_eq(&x, &first.find("b", "/x").unwrap()));
        assert!(!Arc::ptr_eq(&x, &y));
        assert_eq!(first.routes().len(), 2);
        let next = first.next(&config("\"b\", \"c\"", &["/x", "/z"]));
        assert!(Arc::ptr_eq(&x, &next.find("c", "/x").unwrap()));
        assert!(next.find("b", "/y").is_none() && next.find("a", "/x").is_none());
        assert!(next.find("c", "/z").is_some());
        let other = next.next(&config("\"d\"", &["/x"]));
        assert!(!Arc::ptr_eq(&x, &other.find("d", "/x").unwrap()));
    }

    /// A server with a keeper, which ends with its heir.
    fn succession(path: &Path) -> (Arc<Succession>, JoinHandle<io::Result<()>>) {
        let mut keeper = Keeper::new(Options::default(), |_| {}).unwrap();
        keeper.listen(Listener::bind(path).unwrap()).unwrap();
        let thread = std::thread::spawn(|| keeper.run());
        let by = Succession::begin(path, Box::new(|error| panic!("{error}"))).unwrap();
        (Arc::new(by), thread)
    }

    #[test]
    fn the_records_of_a_channel_are_removed_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sit");
        let (by, thread) = succession(&path);
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
        drop((hub, by));
        drop((first, next));
        // The server counts as alive while another test that starts a program has a copy of its
        // link.
        let heir = || {
            let mut heir = Control::connect(&path, 1).unwrap();
            match heir.adopt(false) {
                Ok(adopted) => Some((heir, adopted.records)),
                Err(Error::Refused { .. }) => {
                    std::thread::sleep(Duration::from_millis(10));
                    None
                }
                Err(error) => panic!("{error}"),
            }
        };
        let (heir, records) = (0..3000).find_map(|_| heir()).expect("the server has ended");
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

    /// A subscriber of a channel gets all of it; a hub has private updates.
    #[test]
    fn a_channel_never_goes_on_as_a_hub_of_mercure_or_the_other_way_round() {
        const PATH: &str = "/.well-known/mercure";
        let of = |is_hub: bool| {
            let action = if is_hub { "mercure = {}" } else { "channel = { history = 9 }" };
            let text = format!(
                "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\nnames = [\"a\"]\n\
                 [[hosts.routes]]\npath = {PATH:?}\n{action}\n"
            );
            Config::parse("test.toml", &text).unwrap_or_else(|error| panic!("{error}"))
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sit");
        let (by, thread) = succession(&path);
        for (was, is) in [true, false].into_iter().flat_map(|one| [(one, true), (one, false)]) {
            // After a change of the configuration.
            let first = Registry::default().next(&of(was));
            let hub = first.find("a", PATH).unwrap();
            let next = first.next(&of(is)).find("a", PATH).unwrap();
            assert_eq!(Arc::ptr_eq(&hub, &next), was == is, "{was} {is}");
            // With another server.
            let channel = succession::Channel {
                space: 1,
                epoch: 7,
                names: vec![("a".to_owned(), PATH.to_owned())],
                is_hub: was,
                messages: vec![Message::new(1, "message", true)],
                offsets: Offsets::default(),
                members: Vec::new(),
            };
            let restored = Registry::restore(vec![channel], Default::default(), &by).next(&of(is));
            assert_eq!(restored.find("a", PATH).unwrap().last(), u64::from(was == is));
        }
        by.end();
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn options_change_with_the_configuration() {
        let config = config("\"a\"", &["/x"]);
        let registry = Registry::default().next(&config);
        let hub = registry.find("a", "/x").unwrap();
        hub.change(Channel::default());
        registry.apply(&config);
        assert_eq!(hub.options().history, 1);
    }
}
