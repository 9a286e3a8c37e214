//! The processes of a ramp: servers, each filled before the next, and their clients.

use std::net::Ipv4Addr;
use std::path::Path;

use tempfile::TempDir;

use crate::channel;
use crate::error::{Error, Result};
use crate::headroom;
use crate::idle::clients::{self, Order};
use crate::idle::service::{self, Service};
use crate::idle::subject::{Entry, Kind};
use crate::idle::tls::Certificate;
use crate::idle::trial::{Arrival, RESERVE};
use crate::server::clients::Clients;
use crate::server::{ProcessOptions, memory};

/// The most connections of one process of clients.
const EACH: usize = 5000;

/// Descriptors that a process of clients needs in addition to its connections.
const CLIENTS_RESERVE: usize = 32;

/// Returns how many connections a server process may have, and the limit that forbids more.
pub(super) fn capacity(kind: Kind) -> (usize, &'static str) {
    let descriptors = (2 * channel::most_pairs()).saturating_sub(RESERVE) / 8 * 7;
    match kind {
        // A relay has two descriptors for each, and all its connections to the origin come from one
        // address.
        Kind::Relay if headroom::ports() < descriptors / 2 => (headroom::ports().max(1), "ports"),
        Kind::Relay => ((descriptors / 2).max(1), "descriptors"),
        _ => (descriptors.max(1), "descriptors"),
    }
}

/// How many connections a process of clients may have.
pub(super) fn at_clients() -> usize {
    let descriptors = (2 * channel::most_pairs()).saturating_sub(CLIENTS_RESERVE);
    EACH.min(descriptors).min(headroom::ports()).max(1)
}

struct Host {
    // Declared before the server, so that the clients reset their connections before the server
    // closes them.
    clients: Vec<Clients>,
    service: Service,
    connections: usize,
}

/// All processes.
pub(super) struct Hosts<'a> {
    entry: Entry,
    arrival: Arrival,
    process: ProcessOptions,
    certificate: &'a Certificate,
    folder: &'a Path,
    hosts: Vec<Host>,
    // The files that servers have written live as long as the servers.
    folders: Vec<TempDir>,
    /// The servers' own memory before they had connections, in bytes.
    pub start: u64,
}

impl<'a> Hosts<'a> {
    /// Creates no process yet.
    pub(super) fn new(
        entry: Entry,
        arrival: Arrival,
        process: ProcessOptions,
        certificate: &'a Certificate,
        folder: &'a Path,
    ) -> Hosts<'a> {
        let (hosts, folders) = (Vec::new(), Vec::new());
        Hosts { entry, arrival, process, certificate, folder, hosts, folders, start: 0 }
    }

    /// Returns how many connections there are.
    pub(super) fn connections(&self) -> usize {
        self.hosts.iter().map(|host| host.connections).sum()
    }

    /// Returns how many processes the server has.
    pub(super) fn servers(&self) -> usize {
        self.hosts.len()
    }

    /// Returns the process numbers of the server.
    pub(super) fn pids(&self) -> Vec<i32> {
        self.hosts.iter().map(|host| host.service.server.pid()).collect()
    }

    /// Starts enough servers for `connections` connections, and notes their memory without any.
    pub(super) fn prepare(&mut self, connections: usize) -> Result<()> {
        let (capacity, _) = capacity(self.entry.kind);
        let before = self.hosts.len();
        while self.hosts.len() * capacity < connections {
            let own = tempfile::tempdir_in(self.folder)
                .map_err(|e| Error::system("making a folder for a server", e))?;
            let service = service::start(self.entry, self.process, own.path(), self.certificate)?;
            self.folders.push(own);
            self.hosts.push(Host { clients: Vec::new(), service, connections: 0 });
        }
        if self.hosts.len() > before {
            self.start += memory::at_rest(&self.pids()[before..], 0)?.user;
        }
        Ok(())
    }

    /// Adds connections, up to `connections` in total, as long as `goes_on` returns true; it is
    /// called before every few thousand. The servers must be there.
    pub(super) fn grow(&mut self, connections: usize, goes_on: impl Fn() -> bool) -> Result<()> {
        let (capacity, _) = capacity(self.entry.kind);
        let most = at_clients();
        let mut left = connections.saturating_sub(self.connections());
        for host in &mut self.hosts {
            let mut own = left.min(capacity - host.connections);
            left -= own;
            while own > 0 {
                if !goes_on() {
                    return Ok(());
                }
                let count = own.min(most);
                let number = 2 + host.clients.len() as u32;
                let from = Ipv4Addr::from_bits(Ipv4Addr::new(127, 0, 0, 0).to_bits() + number);
                let mut clients =
                    clients::start(self.entry, from, host.service.port, self.certificate)?;
                clients.send(&self.arrival.order(count))?;
                host.clients.push(clients);
                host.connections += count;
                own -= count;
            }
        }
        Ok(())
    }

    /// Checks that all connections are there, and silent, and then closes them.
    pub(super) fn close(&mut self) -> Result<()> {
        for order in [Order::Check, Order::Close] {
            let mut clients = self.hosts.iter_mut().flat_map(|host| &mut host.clients);
            clients.try_for_each(|clients| clients.send(&order))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_has_two_descriptors_for_each() {
        let (plain, limit) = capacity(Kind::KeepAlive);
        assert_eq!(limit, "descriptors");
        assert!(capacity(Kind::Relay).0 <= plain / 2 && plain > 1 && at_clients() <= EACH);
    }
}
