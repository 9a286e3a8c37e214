//! Opening the listeners of a configuration, before the running server notices: either all of them
//! are available, or nothing happens. An address that is open is a [`Frontend`].

use std::sync::Arc;

use futures_rustls::rustls::ServerConfig;
use superpoll_http::certificates::CertificateStore;
use superpoll_http::listen::{Bound, Listener};
use superpoll_http::log::{Event, Level};
use superpoll_http::parking_lot;
use superpoll_rt::Runtime;

use super::Server;
use super::error::Error;
use super::generation::Generation;
use super::listener_context::Opening;
use crate::config::{self, Address, RelayEnd};
use crate::relay::{self, Destination, Relay, Routes};

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

/// The last step for a relay, once the whole configuration has been found right.
pub(super) enum Relayed {
    /// The relay accepts clients.
    Open(Arc<Relay>, Vec<Listener>),
    /// The relay changes its settings.
    Change(Arc<Relay>, Box<relay::Settings>),
}

impl Relayed {
    /// Begins to relay, on these engines.
    pub(super) fn begin(self, engines: &relay::Engines) -> Result<(), Error> {
        match self {
            Relayed::Change(relay, settings) => relay.change(*settings),
            Relayed::Open(relay, listeners) => {
                let address = relay.listening().clone();
                let cannot = |source| Error::Listen { address, source };
                relay.open(engines, listeners).map_err(cannot)?;
            }
        }
        Ok(())
    }
}

impl Server {
    /// Opens the listeners of a configuration. The running server does not notice.
    pub(super) fn open(&self, runtime: &Runtime, generation: &Generation) -> Result<Opened, Error> {
        let config = &generation.config;
        let mut parts = Vec::new();
        for _ in &self.shared.engines {
            // Each engine has its own parking lot from the start on.
            let parking_lot = match self.fronts.is_empty() {
                true => Some(self.parking_lot(config)?),
                false => None,
            };
            parts.push(Part { parking_lot, openings: Vec::new() });
        }
        let engines = relay::Engines::new(runtime.handle(), runtime.backend());
        let engines = engines.counted(self.shared.engines.clone());
        let (mut fronts, mut relayed) = (Vec::new(), Vec::new());
        // The fronts of before that continue.
        let mut taken = Vec::new();
        for (asked, encryption) in config.listeners.iter().zip(&generation.encryptions) {
            let (certificates, tls) = encryption.clone().unzip();
            let relay = match &asked.relay {
                Some(relay) => {
                    let settings = self.settings(generation, asked, relay, tls.clone())?;
                    Some(settings.logged_in(generation.log.as_ref(), &asked.address))
                }
                None => None,
            };
            let kept = kept(&self.fronts, asked, &config.listeners, &taken);
            taken.extend(kept);
            let kept = kept.map(|place| &self.fronts[place]);
            let front = self.front((asked, kept), relay, &engines, &mut relayed)?;
            if let Kind::Http(bound) = &front.kind {
                let cannot = |source| Error::Listen { address: asked.address.clone(), source };
                let client = asked.tls.as_ref().and_then(|tls| tls.client.as_ref());
                let requires_certificate = client.is_some_and(|client| client.is_required);
                for part in &mut parts {
                    let shared = &self.shared;
                    let is_shared = shared.engines.len() > 1 || shared.worker.is_some();
                    let exclusive = is_shared && shared.is_on_epoll();
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
        let cannot = |source| Error::Listen { address: address.clone(), source };
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
                let report = self.shared.report.clone();
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
        generation: &Generation,
        asked: &config::Listener,
        relay: &config::Relay,
        tls: Option<Arc<ServerConfig>>,
    ) -> Result<relay::Settings, Error> {
        let destination = |to: &RelayEnd| match to {
            RelayEnd::Address(address) => Ok(Destination::Address(address.clone())),
            RelayEnd::Upstream(name) => {
                let group = generation.groups.get(name).cloned().map(Destination::Group);
                group.ok_or_else(|| Error::UnknownUpstream(name.clone()))
            }
        };
        let mut routes = Vec::new();
        for route in &relay.routes {
            let to = destination(&route.to)?;
            routes.extend(route.server_names.iter().map(|name| (name.clone(), to.clone())));
        }
        let timeouts = &generation.config.timeouts;
        let options = relay::Options {
            connect_timeout: timeouts.connect,
            idle_timeout: relay.idle,
            ..relay::Options::default()
        };
        let rules = relay::Rules {
            connection_limits: self.shared.connection_limits.clone(),
            header: asked.proxy_protocol.then_some(timeouts.header),
            announces: relay.proxy_protocol,
            tls,
            routes: Arc::new(Routes::new(routes)),
            greeting: timeouts.header,
            access_log: None,
        };
        let to = relay.to.as_ref().map(destination).transpose()?;
        relay::Settings::new(to, options, rules)
            .map_err(|source| Error::Relay { relay: relay.to_string(), source })
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
