//! What a configuration makes: one value, which never changes.
//!
//! ```text
//!   configuration --prepare--> PreparedConfig --listeners--> Generation --routes--> Router
//!                  any thread                  the server                 each engine
//! ```
//!
//! A [`Preparation`] opens and makes everything that a configuration names, apart from its
//! listeners, on a thread that serves no requests: it reads files, and takes long for many routes
//! or certificates. Parts that have not changed since the generation before are taken from there,
//! so that connections, counts and rates continue.
//!
//! Once the listeners are open as well, nothing can fail any more, and the generation takes the
//! place of the one before. Each engine builds its routes from it, some at a time, and changes over
//! in one step (`engine_change`). When all have done so, the generation before is freed, on a
//! thread that serves no requests. A request keeps the routes that it began with, and these keep
//! the parts that they need: what an old request uses is freed with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_rustls::rustls::ServerConfig;
use superpoll_http::certificates::{
    self, CertificateStore, KnownCertificates, TicketSecrets, Watch,
};
use superpoll_http::files::{Embedded, Folder};
use superpoll_http::log::{AccessLogSink, Event, Level, LogFailure, Report};
use superpoll_http::rules::HostRules;
use superpoll_http::telemetry::durations::{RequestCounts, RequestDurations};
use superpoll_http::upstream::Group;
use superpoll_hub::broker::Brokers;
use superpoll_hub::channel::{Channels, GripKey, Registry, SharedRights};
use superpoll_rt::blocking;

use super::broker;
use super::error::Error;
use super::shared::Shared;
use crate::acme::{Automatic, Plan};
use crate::config::{self, Address, Config};
use crate::telemetry::overview::Overview;

/// What a configuration makes. The default is that of a server that has not begun.
#[derive(Default)]
pub(super) struct Generation {
    /// How many configurations there were before this one.
    pub number: u64,
    pub config: Arc<Config>,
    pub groups: BTreeMap<String, Arc<Group>>,
    /// Of all channels, in the order of the configuration.
    pub rights: Vec<Arc<SharedRights>>,
    /// The keys by which applications hold connections, each once.
    pub grip_keys: Vec<Arc<GripKey>>,
    /// Of all hosts, in the order of the configuration.
    pub rules: Arc<[HostRules]>,
    pub requests: RequestCounts,
    /// Of all listeners, in the order of the configuration.
    pub encryptions: Vec<Option<Encryption>>,
    /// The certificates that were read, for the next configuration.
    pub certificates: Arc<KnownCertificates>,
    pub log: Option<Arc<AccessLogSink>>,
    pub channels: Registry,
    /// The encrypted listeners: their addresses in the configuration, and their ports.
    pub encrypted: Vec<(Address, u16)>,
}

impl Generation {
    /// Returns the key of a table of the configuration, and its log of items.
    pub(super) fn grip(&self, grip: &config::Grip) -> Option<(Arc<GripKey>, Arc<Channels>)> {
        let key = self.grip_keys.iter().find(|key| key.is_of(grip))?;
        Some((key.clone(), self.channels.log_of(grip)?.clone()))
    }

    /// Completes this generation, whose listeners are open, to be the one after `former`.
    pub(super) fn after(
        self,
        former: &Generation,
        encrypted: Vec<(Address, u16)>,
        brokers: Brokers,
    ) -> Generation {
        let channels = former.channels.next_with(&self.config, brokers);
        Generation { number: former.number + 1, encrypted, channels, ..self }
    }
}

/// Frees a generation, if it is used no more, on another thread: its thousands of routes or
/// certificates would take an engine long.
pub(super) fn free(generation: Arc<Generation>) {
    blocking::unblock(move || drop(generation)).detach();
}

/// The certificates of a listener, and the part that does its handshakes.
pub(super) type Encryption = (Arc<CertificateStore>, Arc<ServerConfig>);

/// Everything that the preparation of a configuration needs of a server. It can be moved to a
/// thread that may wait for disks.
pub struct Preparation {
    pub(super) shared: Arc<Shared>,
    pub(super) former: Arc<Generation>,
    pub(super) brokers: Brokers,
}

/// A configuration that was found right, and the parts that it needs apart from its listeners: its
/// files are read, and its tables are made.
pub struct PreparedConfig {
    pub(super) generation: Generation,
    /// The parts of each engine.
    pub(super) tables: Vec<EngineTables>,
    /// For the certificates that the server gets by itself.
    pub(super) plans: Vec<Plan>,
    /// How often the logs had been reopened when that of this configuration was opened.
    pub(super) reopenings: u64,
    /// The watch over the files of certificates.
    pub(super) watch: Watch,
    /// The engines that keep the messages of channels that other processes have as well.
    pub(super) brokers: Brokers,
}

/// The parts of an engine that are made on another thread.
#[derive(Default)]
pub(super) struct EngineTables {
    /// In the order in which the configuration names them.
    pub folders: Vec<Folder>,
    /// For each route in the order of the configuration, and last for requests without a route.
    pub durations: Vec<Arc<RequestDurations>>,
}

impl Preparation {
    /// Opens and makes the parts that a configuration needs. The running server does not notice.
    /// It reads files, connects to a broker that is new, and takes long for many routes or
    /// certificates: call it on a thread that serves no requests.
    ///
    /// # Errors
    ///
    /// A part that the configuration names cannot be opened.
    pub fn prepare(self, config: Config) -> Result<PreparedConfig, Error> {
        let Preparation { shared, former, brokers } = &self;
        let (config, report) = (Arc::new(config), &shared.report);
        let reopenings = shared.operations.reopenings();
        let brokers = broker::open(brokers, &config, shared)?;
        let groups = self.groups(&config)?;
        let rights = SharedRights::all(&config, report)?;
        let grip_keys = GripKey::all(&config)?;
        let rules = HostRules::all(&config, &former.rules)?;
        let engines = shared.engines.len();
        let requests = Overview::requests_of(&config, engines, &former.requests);
        let mut tables = Vec::new();
        for engine in 0..engines {
            let folders = folders(&config)?;
            tables.push(EngineTables { folders, durations: requests.of_engine(engine) });
        }
        let mut watch = Watch::after(former.certificates.clone());
        for (files, store) in groups.values().filter_map(|group| group.identity()) {
            watch.load_files(files, store)?;
        }
        let log = config.access_log.as_ref().map(|wanted| self.open_access_log(wanted));
        let log = log.transpose()?;
        let (mut encryptions, mut plans) = (Vec::new(), Vec::new());
        for asked in &config.listeners {
            encryptions.push(self.encryption(&config, asked, &mut watch, &mut plans)?);
        }
        let generation = Generation {
            config,
            groups,
            rights,
            grip_keys,
            rules,
            requests,
            encryptions,
            certificates: Arc::new(watch.known()),
            log,
            ..Generation::default()
        };
        Ok(PreparedConfig { generation, tables, plans, reopenings, watch, brokers })
    }

    fn open_access_log(&self, wanted: &config::AccessLog) -> Result<Arc<AccessLogSink>, Error> {
        let report = self.shared.report.clone();
        let told = move |failure: &LogFailure| {
            report(&Event::new(Level::Error, "log-failed", failure.to_string()));
        };
        let opened = AccessLogSink::open(wanted, self.former.log.as_deref(), told);
        let cannot = |source| Error::AccessLog { path: wanted.place().to_string().into(), source };
        opened.map(Arc::new).map_err(cannot)
    }

    /// Returns the groups of servers: existing ones, where nothing has changed, and new ones.
    fn groups(&self, config: &Config) -> Result<BTreeMap<String, Arc<Group>>, Error> {
        let groups = config.upstreams.iter().map(|(name, upstream)| {
            let before = self.former.groups.get(name);
            let group = match before.filter(|group| group.config() == upstream) {
                Some(group) => group.clone(),
                None => group(name, upstream, before.map(|group| &**group), &self.shared.report)?,
            };
            Ok((name.clone(), group))
        });
        groups.collect()
    }

    /// Returns the certificates of a listener, and the part that does its handshakes. `None` if it
    /// is not encrypted.
    fn encryption(
        &self,
        config: &Config,
        asked: &config::Listener,
        watch: &mut Watch,
        plans: &mut Vec<Plan>,
    ) -> Result<Option<Encryption>, Error> {
        let Some(tls) = &asked.tls else { return Ok(None) };
        let (is_relay, tickets) = (asked.relay.is_some(), &self.shared.tickets);
        let Some(automatic) = &tls.automatic else {
            return tls_of(tls, is_relay, watch, tickets).map(Some);
        };
        let hosts = asked.certified(&config.hosts);
        let (store, plan) =
            Automatic::open(&self.shared.challenges, automatic, &hosts, &asked.address)?;
        plans.extend(plan);
        let parameters = certificates::server_config(tls, is_relay, store.clone(), tickets)?;
        Ok(Some((store, Arc::new(parameters))))
    }
}

superpoll::debug_fields!(Preparation);

impl PreparedConfig {
    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.generation.config
    }
}

superpoll::debug_fields!(PreparedConfig);

/// Checks that everything that a configuration names can be opened, without listening.
pub(super) fn check(config: &Config) -> Result<(), Error> {
    folders(config)?;
    HostRules::all(config, &[])?;
    let report: Report = Arc::new(|_: &Event| {});
    SharedRights::all(config, &report)?;
    for (name, upstream) in &config.upstreams {
        group(name, upstream, None, &report)?;
    }
    for listener in &config.listeners {
        let Some(tls) = &listener.tls else { continue };
        match &tls.automatic {
            Some(automatic) => {
                let hosts = listener.certified(&config.hosts);
                Automatic::check(automatic, &hosts, &listener.address)?;
            }
            None => {
                let is_relay = listener.relay.is_some();
                let watch = &mut Watch::after(Arc::default());
                drop(tls_of(tls, is_relay, watch, &Arc::default())?);
            }
        }
    }
    Ok(())
}

/// Opens the folders that a configuration names.
fn folders(config: &Config) -> Result<Vec<Folder>, Error> {
    let mut folders = Vec::new();
    for route in config.hosts.iter().flat_map(|host| &host.routes) {
        if route.action == config::Action::Demo {
            drop(Embedded::demo().map_err(Error::Demonstration)?);
        }
        for root in route.action.folders() {
            let cannot = |source| Error::Folder { path: root.clone(), source };
            folders.push(Folder::open(root).map_err(cannot)?);
        }
    }
    Ok(folders)
}

fn group(
    name: &str,
    upstream: &config::Upstream,
    before: Option<&Group>,
    report: &Report,
) -> Result<Arc<Group>, Error> {
    let made = Group::new(name, upstream, before, report.clone());
    made.map_err(|source| Error::Upstream { name: name.to_owned(), source })
}

/// Returns the certificates of a listener, and the part that does its handshakes.
fn tls_of(
    tls: &config::Tls,
    is_relay: bool,
    watch: &mut Watch,
    tickets: &Arc<TicketSecrets>,
) -> Result<Encryption, Error> {
    let store = CertificateStore::new(None);
    watch.load(tls, &store)?;
    let parameters = certificates::server_config(tls, is_relay, store.clone(), tickets)?;
    Ok((store, Arc::new(parameters)))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use superpoll_rt::{Runtime, time};
    use superpoll_test_support::PATIENCE;

    use super::*;
    use crate::serve::Server;

    /// More routes than an engine builds in one turn, so that a change can be given up.
    fn config(routes: usize) -> Config {
        let mut text = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n".to_owned();
        for route in 0..routes {
            text += &format!(
                "[[hosts.routes]]\npath = \"/{route}\"\nredirect = {{ to = \"/\", status = 307 }}\n"
            );
        }
        Config::parse("test.toml", &text).unwrap()
    }

    #[test]
    fn a_generation_is_freed_when_all_engines_serve_the_next() {
        let runtime = Runtime::builder().workers(NonZeroUsize::new(2).unwrap()).build().unwrap();
        let mut server = Server::start(&runtime, &config(1000), |_| {}).unwrap();
        let mut former = Vec::new();
        for routes in [1000, 1, 1000, 1000, 1] {
            former.push(Arc::downgrade(&server.current));
            server.change(&runtime, &config(routes)).unwrap();
        }
        // The first engine runs on this thread.
        let freed = runtime.block_on(async {
            let frees = async {
                while former.iter().any(|one| one.strong_count() > 0) {
                    time::sleep(Duration::from_millis(1)).await;
                }
            };
            time::timeout(PATIENCE, frees).await
        });
        assert!(freed.is_ok(), "a former generation is not freed");
        assert_eq!(server.current.number, 6);
        drop(server);
    }
}
