//! Opening everything that a configuration needs, before the running server notices: either all of
//! it is available, or nothing happens. An address that is open is a [`Frontend`].

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_rustls::rustls::ServerConfig;
use superpoll_http::certificates::{
    self, CertificateStore, ChallengeCertificates, KnownCertificates, TicketSecrets, Watch,
};
use superpoll_http::files::Folder;
use superpoll_http::listen::{self, Bound, Listener};
use superpoll_http::log::{AccessLogSink, Event, Level, LogFailure, Report};
use superpoll_http::parking_lot;
use superpoll_http::rules::HostRules;
use superpoll_http::telemetry::durations::{RequestCounts, RequestDurations};
use superpoll_http::upstream::Group;
use superpoll_hub::channel::SharedRights;
use superpoll_rt::Runtime;

use super::listener_context::Opening;
use super::{Error, Server, failed};
use crate::acme::{Automatic, Challenges, Plan};
use crate::config::{self, Address, Config, RelayEnd};
use crate::relay::{self, Destination, Relay, Routes};
use crate::telemetry::overview::Overview;

/// Everything that the preparation of a configuration needs of a server. It can be moved to a
/// thread that may wait for disks.
pub struct Preparation {
    groups: Arc<BTreeMap<String, Arc<Group>>>,
    rules: Arc<[HostRules]>,
    requests: RequestCounts,
    certificates: Arc<KnownCertificates>,
    challenges: Arc<Challenges>,
    tickets: Arc<TicketSecrets>,
    access_log: Option<Arc<AccessLogSink>>,
    /// How often the logs were reopened so far.
    reopenings: u64,
    engines: usize,
    report: Report,
}

/// A configuration that was found right, and the parts that it needs apart from its listeners: its
/// files are read, and its tables are made.
pub struct PreparedConfig {
    pub(super) config: Arc<Config>,
    pub(super) groups: Arc<BTreeMap<String, Arc<Group>>>,
    /// Of all channels, in the order of the configuration.
    pub(super) rights: Arc<[Arc<SharedRights>]>,
    /// Of all hosts, in the order of the configuration.
    pub(super) rules: Arc<[HostRules]>,
    pub(super) requests: RequestCounts,
    /// The parts of each engine.
    pub(super) engines: Vec<EngineTables>,
    /// Of all listeners, in the order of the configuration.
    pub(super) encryptions: Vec<Option<Encryption>>,
    /// For the certificates that the server gets by itself.
    pub(super) plans: Vec<Plan>,
    pub(super) log: Option<Arc<AccessLogSink>>,
    /// How often the logs had been reopened when this one was opened.
    pub(super) reopenings: u64,
    pub(super) watch: Watch,
    pub(super) certificates: KnownCertificates,
}

/// The parts of an engine that are made on another thread.
pub(super) struct EngineTables {
    /// In the order in which the configuration names them.
    pub folders: Vec<Folder>,
    /// For each route in the order of the configuration, and last for requests without a route.
    pub durations: Vec<Arc<RequestDurations>>,
}

/// The listeners of a configuration, opened.
pub(super) struct Opened {
    pub parts: Vec<Part>,
    pub engines: relay::Engines,
    pub fronts: Vec<Frontend>,
    pub relayed: Vec<Relayed>,
}

/// An engine's part of them.
pub(super) struct Part {
    /// For an engine that has no parking lot yet.
    pub parking_lot: Option<parking_lot::PreparedLot>,
    pub openings: Vec<Opening>,
}

/// An address that is served.
pub(super) struct Frontend {
    pub(super) asked: config::Listener,
    pub(super) listening: Address,
    pub(super) kind: Kind,
    /// The certificates, if connections are encrypted.
    pub(super) certificates: Option<Arc<CertificateStore>>,
}

impl Frontend {
    /// Returns the listener's address in the configuration and its port, if it speaks HTTPS.
    pub(super) fn encrypted_port(&self) -> Option<(Address, u16)> {
        match (&self.certificates, &self.listening) {
            (Some(_), Address::Tcp { port, .. }) if self.asked.relay.is_none() => {
                Some((self.asked.address.clone(), *port))
            }
            _ => None,
        }
    }
}

#[derive(Clone)]
pub(super) enum Kind {
    Http(Arc<Bound>),
    Relay(Arc<Bound>, Arc<Relay>),
    /// No task listens there any more.
    Closed,
}

impl Kind {
    pub(super) fn bound(&self) -> Option<&Arc<Bound>> {
        match self {
            Kind::Http(bound) | Kind::Relay(bound, _) => Some(bound),
            Kind::Closed => None,
        }
    }
}

/// The certificates of a listener, and the part that does its handshakes.
pub(super) type Encryption = (Arc<CertificateStore>, Arc<ServerConfig>);

/// The last step for a relay, once the whole configuration has been found right.
pub(super) enum Relayed {
    /// The relay accepts clients.
    Open(Arc<Relay>, Vec<Listener>),
    /// The relay changes its settings.
    Change(Arc<Relay>, Box<relay::Settings>),
}

impl Preparation {
    /// Opens and makes the parts that a configuration needs. The running server does not notice.
    /// It reads files, and takes long for many routes or certificates: call it on a thread that
    /// serves no requests.
    ///
    /// # Errors
    ///
    /// A part that the configuration names cannot be opened.
    pub fn prepare(self, config: Config) -> Result<PreparedConfig, Error> {
        let config = Arc::new(config);
        let groups = self.groups(&config)?;
        let rights = SharedRights::all(&config, &self.report).map_err(failed)?.into();
        let rules = HostRules::all(&config, &self.rules).map_err(failed)?;
        let requests = Overview::requests_of(&config, self.engines, &self.requests);
        let mut engines = Vec::new();
        for engine in 0..self.engines {
            let folders = super::router::open(&config).map_err(failed)?;
            engines.push(EngineTables { folders, durations: requests.of_engine(engine) });
        }
        let mut watch = Watch::after(self.certificates.clone());
        for (files, store) in groups.values().filter_map(|group| group.identity()) {
            let loaded = watch.load_files(files, store);
            loaded.map_err(|error| failed(error.to_string()))?;
        }
        let log = config.access_log.as_ref().map(|wanted| self.open_access_log(wanted));
        let log = log.transpose()?;
        let (mut encryptions, mut plans) = (Vec::new(), Vec::new());
        for asked in &config.listeners {
            encryptions.push(self.encryption(&config, asked, &mut watch, &mut plans)?);
        }
        let certificates = watch.known();
        Ok(PreparedConfig {
            config,
            groups: Arc::new(groups),
            rights,
            rules,
            requests,
            engines,
            encryptions,
            plans,
            log,
            reopenings: self.reopenings,
            watch,
            certificates,
        })
    }

    fn open_access_log(&self, wanted: &config::AccessLog) -> Result<Arc<AccessLogSink>, Error> {
        let report = self.report.clone();
        let told = move |failure: &LogFailure| {
            report(&Event::new(Level::Error, "log-failed", failure.to_string()));
        };
        let path = wanted.path.display();
        let opened = AccessLogSink::open(wanted, self.access_log.as_deref(), told);
        opened
            .map(Arc::new)
            .map_err(|error| failed(format!("opening the access log {path}: {error}")))
    }

    /// Returns the groups of servers: existing ones, where nothing has changed, and new ones.
    fn groups(&self, config: &Config) -> Result<BTreeMap<String, Arc<Group>>, Error> {
        let groups = config.upstreams.iter().map(|(name, upstream)| {
            let before = self.groups.get(name);
            let group = match before.filter(|group| group.config() == upstream) {
                Some(group) => group.clone(),
                None => {
                    let before = before.map(|group| &**group);
                    Group::new(name, upstream, before, self.report.clone()).map_err(failed)?
                }
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
        let is_relay = asked.relay.is_some();
        let Some(automatic) = &tls.automatic else {
            return tls_of(tls, is_relay, None, watch, &self.tickets).map(Some);
        };
        let hosts = asked.certified(&config.hosts);
        let opened = Automatic::open(&self.challenges, automatic, &hosts, &asked.address);
        let (store, plan) = opened.map_err(failed)?;
        plans.extend(plan);
        Ok(Some((store.clone(), parameters(tls, is_relay, store, &self.tickets)?)))
    }
}

superpoll::debug_fields!(Preparation);

impl PreparedConfig {
    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }
}

superpoll::debug_fields!(PreparedConfig);

impl Server {
    /// Returns the state of the server that the preparation of another configuration begins with.
    /// Prepare one at a time, each from the state after the one before: a configuration that was
    /// prepared earlier does not continue with what another one has brought since.
    #[must_use]
    pub fn preparation(&self) -> Preparation {
        Preparation {
            groups: self.groups.clone(),
            rules: self.rules.clone(),
            requests: self.overview.requests(),
            certificates: self.certificates.clone(),
            challenges: self.automatic.challenges.clone(),
            tickets: self.tickets.clone(),
            access_log: self.access_log.clone(),
            reopenings: self.operations.reopenings(),
            engines: self.engines.len(),
            report: self.report.clone(),
        }
    }

    /// Opens the listeners of a configuration. The running server does not notice.
    pub(super) fn open(
        &self,
        runtime: &Runtime,
        prepared: &PreparedConfig,
    ) -> Result<Opened, Error> {
        let PreparedConfig { config, groups, log, .. } = prepared;
        let mut parts = Vec::new();
        for _ in &self.engines {
            // Each engine has its own parking lot from the start on.
            let parking_lot = match self.fronts.is_empty() {
                true => Some(self.parking_lot(config)?),
                false => None,
            };
            parts.push(Part { parking_lot, openings: Vec::new() });
        }
        let engines = relay::Engines::new(runtime.handle(), runtime.backend());
        let engines = engines.counted(self.engines.clone());
        let (mut fronts, mut relayed) = (Vec::new(), Vec::new());
        // The fronts of before that continue.
        let mut taken = Vec::new();
        for (asked, encryption) in config.listeners.iter().zip(&prepared.encryptions) {
            let (certificates, tls) = encryption.clone().unzip();
            let relay = match &asked.relay {
                Some(relay) => {
                    let settings = self.settings(config, asked, relay, tls.clone(), groups)?;
                    Some(settings.logged_in(log.as_ref(), &asked.address))
                }
                None => None,
            };
            let kept = kept(&self.fronts, asked, &config.listeners, &taken);
            taken.extend(kept);
            let kept = kept.map(|place| &self.fronts[place]);
            let front = self.front((asked, kept), relay, &engines, &mut relayed)?;
            if let Kind::Http(bound) = &front.kind {
                let cannot = |error| failed(listen::cannot_listen(&asked.address, &error));
                let client = asked.tls.as_ref().and_then(|tls| tls.client.as_ref());
                let requires_certificate = client.is_some_and(|client| client.is_required);
                for part in &mut parts {
                    let is_shared = self.engines.len() > 1 || self.worker.is_some();
                    let exclusive = is_shared && self.on_epoll;
                    part.openings.push(Opening {
                        listener: bound.listener(exclusive).map_err(cannot)?,
                        on: front.listening.clone(),
                        address: asked.address.clone(),
                        tls: tls.clone(),
                        requires_certificate,
                        proxy_protocol: asked.proxy_protocol,
                        is_admin: asked.is_admin,
                    });
                }
            }
            fronts.push(Frontend { certificates, ..front });
        }
        Ok(Opened { parts, engines, fronts, relayed })
    }

    /// Returns the front of a listener, on the socket of `kept` or on another one, with the
    /// settings of its relay if it is one.
    fn front(
        &self,
        (asked, kept): (&config::Listener, Option<&Frontend>),
        settings: Option<relay::Settings>,
        engines: &relay::Engines,
        relayed: &mut Vec<Relayed>,
    ) -> Result<Frontend, Error> {
        let address = &asked.address;
        let cannot = |error| failed(listen::cannot_listen(address, &error));
        let kept = kept.and_then(|front| Some((front, front.kind.bound()?)));
        let (listening, bound) = match kept {
            Some((front, bound)) => (front.listening.clone(), bound.clone()),
            None => {
                let mut inherited = self.inherited.borrow_mut();
                let known = inherited.at(address);
                let known = known.or_else(|| inherited.chosen_for(address, asked.is_admin));
                let bound = match known {
                    Some(bound) => bound,
                    None => Bound::new(address, asked.mode).map_err(cannot)?,
                };
                (bound.address(address).map_err(cannot)?, Arc::new(bound))
            }
        };
        let Some(settings) = settings else {
            let kind = Kind::Http(bound);
            return Ok(Frontend { asked: asked.clone(), listening, kind, certificates: None });
        };
        let relay = match kept.map(|(front, _)| &front.kind) {
            Some(Kind::Relay(_, relay)) => {
                relayed.push(Relayed::Change(relay.clone(), Box::new(settings)));
                relay.clone()
            }
            _ => {
                let report = self.report.clone();
                let report = move |failure: &relay::Failure| report(&event_of(failure));
                let relay = Relay::on(bound.clone(), listening.clone(), settings, report);
                let relay = Arc::new(relay);
                let listeners = relay.listeners(engines).map_err(cannot)?;
                relayed.push(Relayed::Open(relay.clone(), listeners));
                relay
            }
        };
        let kind = Kind::Relay(bound, relay);
        Ok(Frontend { asked: asked.clone(), listening, kind, certificates: None })
    }

    /// Returns the settings of a relay in a configuration.
    fn settings(
        &self,
        config: &Config,
        asked: &config::Listener,
        relay: &config::Relay,
        tls: Option<Arc<ServerConfig>>,
        groups: &BTreeMap<String, Arc<Group>>,
    ) -> Result<relay::Settings, Error> {
        let destination = |to: &RelayEnd| match to {
            RelayEnd::Address(address) => Ok(Destination::Address(address.clone())),
            RelayEnd::Upstream(name) => {
                let group = groups.get(name).cloned().map(Destination::Group);
                group.ok_or_else(|| failed(format!("the upstream {name} is not defined")))
            }
        };
        let mut routes = Vec::new();
        for route in &relay.routes {
            let to = destination(&route.to)?;
            routes.extend(route.server_names.iter().map(|name| (name.clone(), to.clone())));
        }
        let options = relay::Options {
            connect_timeout: config.timeouts.connect,
            idle_timeout: relay.idle,
            ..relay::Options::default()
        };
        let rules = relay::Rules {
            connection_limits: self.connection_limits.clone(),
            header: asked.proxy_protocol.then_some(config.timeouts.header),
            announces: relay.proxy_protocol,
            tls,
            routes: Arc::new(Routes::new(routes)),
            greeting: config.timeouts.header,
            access_log: None,
        };
        let to = relay.to.as_ref().map(destination).transpose()?;
        relay::Settings::new(to, options, rules)
            .map_err(|error| failed(format!("relaying to {relay}: {error}")))
    }
}

/// Returns the place of the front whose socket a listener continues with. No two continue with the
/// same.
fn kept(
    fronts: &[Frontend],
    asked: &config::Listener,
    all: &[config::Listener],
    taken: &[usize],
) -> Option<usize> {
    let first = |fits: &dyn Fn(&Frontend) -> bool| {
        let mut free = fronts.iter().enumerate().filter(|(place, _)| !taken.contains(place));
        free.find(|(_, front)| fits(front)).map(|(place, _)| place)
    };
    // A port that the kernel has chosen may be asked for by its number.
    first(&|front| front.listening == asked.address).or_else(|| {
        first(&|front| {
            // One that is still to be chosen is not that of the hosts for the admin listener, or
            // the other way round, and not one that another listener asks for by its number.
            let is_alike = front.asked.is_admin == asked.is_admin;
            is_alike
                && front.asked.address == asked.address
                && !all.iter().any(|other| other.address == front.listening)
        })
    })
}

/// Returns the event of a relay's failure.
fn event_of(failure: &relay::Failure) -> Event {
    let event = Event::new(Level::Warning, "relay-failed", failure.to_string());
    match failure {
        relay::Failure::Server { upstream, server, .. } => {
            event.with("upstream", upstream.as_str()).with("server", server.to_string())
        }
        relay::Failure::NoneUp { upstream, .. } => event.with("upstream", upstream.as_str()),
        _ => event,
    }
}

/// Returns the certificates of a listener, and the part that does its handshakes.
pub(super) fn tls_of(
    tls: &config::Tls,
    is_relay: bool,
    challenges: Option<Arc<ChallengeCertificates>>,
    watch: &mut Watch,
    secrets: &Arc<TicketSecrets>,
) -> Result<Encryption, Error> {
    let wrong = |error: certificates::CertificateError| failed(error.to_string());
    let store = CertificateStore::new(challenges);
    watch.load(tls, &store).map_err(wrong)?;
    Ok((store.clone(), parameters(tls, is_relay, store, secrets)?))
}

/// Returns the parameters of the handshakes of a listener.
fn parameters(
    tls: &config::Tls,
    is_relay: bool,
    store: Arc<CertificateStore>,
    secrets: &Arc<TicketSecrets>,
) -> Result<Arc<ServerConfig>, Error> {
    let parameters = certificates::server_config(tls, is_relay, store, secrets);
    Ok(Arc::new(parameters.map_err(|error| failed(error.to_string()))?))
}
