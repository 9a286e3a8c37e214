//! Redis, the servers, the subscribers and the publishers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tempfile::TempDir;

use crate::cluster::crowd::{self, Report};
use crate::cluster::gateway::Gateway;
use crate::cluster::namespace::Namespace;
use crate::cluster::publisher::{Order, Publishers};
use crate::cluster::redis::Redis;
use crate::cluster::sentinel::Watched;
use crate::cluster::{Fault, SERVERS};
use crate::error::{Error, Result};
use crate::server::clients::{Clients, most};
use crate::server::program;

/// The log of the channel.
#[derive(Debug)]
pub(super) enum Broker {
    /// A single server.
    Single(Redis),
    /// A master with a replica.
    Watched(Watched),
}

/// All programs and processes of a fault.
#[derive(Debug)]
pub(super) struct Site {
    /// The publishers.
    pub publishers: Publishers,
    /// The processes of the subscribers.
    pub crowds: Vec<Clients>,
    /// The servers.
    pub gateways: Vec<Gateway>,
    /// The log.
    pub broker: Broker,
    _folder: TempDir,
}

impl Site {
    /// Starts the programs that this fault needs, without subscribers.
    pub(super) fn start(fault: Fault, subscribers: usize) -> Result<Site> {
        let mut namespaces: Vec<Option<Namespace>> = Vec::new();
        for number in 0..SERVERS {
            let is_apart = fault == Fault::Partition;
            namespaces.push(is_apart.then(|| Namespace::new(number as u8)).transpose()?);
        }
        let addresses = namespaces.iter().map(address).collect::<Result<Vec<_>>>()?;
        // Processes are forked before there is anything that they could inherit.
        let publishers = Publishers::start(addresses.clone())?;
        let crowds = (0..processes(subscribers))
            .map(|_| crowd::start(addresses.clone()))
            .collect::<Result<Vec<_>>>()?;
        let folder = program::folder("cluster")?;
        let words = bind(&namespaces);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let broker = match fault {
            Fault::Promote => Broker::Watched(Watched::start(folder.path())?),
            _ => Broker::Single(Redis::start(folder.path(), &words)?),
        };
        let mut gateways = Vec::new();
        for (address, namespace) in addresses.iter().zip(namespaces) {
            let url = match (&broker, &namespace) {
                (Broker::Watched(watched), _) => watched.url(),
                (Broker::Single(redis), Some(own)) => {
                    format!("redis://{}:{}", own.outside, redis.port)
                }
                (Broker::Single(redis), None) => format!("redis://127.0.0.1:{}", redis.port),
            };
            gateways.push(Gateway::start(folder.path(), *address, &url, namespace)?);
        }
        let site = Site { publishers, crowds, gateways, broker, _folder: folder };
        site.gateways.iter().try_for_each(Gateway::until_ready)?;
        Ok(site)
    }

    /// Connects subscribers, behind a first message that is published for this.
    pub(super) fn connect(&mut self, subscribers: usize) -> Result<()> {
        let first = self.publishers.ask(&Order::One("begin".to_owned()))?;
        let Some(first) = first.confirmed.first() else {
            let reasons = first.failures;
            return Err(Error::usage(format!("the first message was not confirmed: {reasons:?}")));
        };
        let processes = self.crowds.len();
        let share = |place: usize| subscribers * place / processes;
        for (place, crowd) in self.crowds.iter_mut().enumerate() {
            let (from, to) = (share(place), share(place + 1));
            crowd.order(&crowd::Order::Connect(from, to, first.position))?;
        }
        for crowd in &mut self.crowds {
            crowd.answer::<Report>()?;
        }
        Ok(())
    }
}

/// Returns how many processes these subscribers need.
fn processes(subscribers: usize) -> usize {
    subscribers.div_ceil(most()).max(1)
}

/// Returns the address of a server.
fn address(namespace: &Option<Namespace>) -> Result<SocketAddr> {
    let host = namespace.as_ref().map_or(Ipv4Addr::LOCALHOST, |namespace| namespace.inside);
    Ok(SocketAddr::new(IpAddr::V4(host), program::free_port()?))
}

/// Returns the options with which Redis listens where servers in namespaces reach it.
fn bind(namespaces: &[Option<Namespace>]) -> Vec<String> {
    let own = namespaces.iter().flatten().map(|namespace| namespace.outside.to_string());
    ["--bind".to_owned(), "127.0.0.1".to_owned()].into_iter().chain(own).collect()
}
