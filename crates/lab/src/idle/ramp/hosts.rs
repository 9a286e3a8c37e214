//! The processes of a ramp: servers, each filled before the next, and their clients.

use tempfile::TempDir;

use crate::channel;
use crate::error::Result;
use crate::headroom;
use crate::idle::clients::{Order, start};
use crate::idle::service::{self, Service};
use crate::idle::subject::{Kind, Subject};
use crate::idle::tls::Certificate;
use crate::idle::trial::{Arrival, RESERVE};
use crate::server::clients::{self, Clients};
use crate::server::{ProcessOptions, memory, program};

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

struct Host {
    // Declared before the server, so that the clients reset their connections before the server
    // closes them.
    clients: Vec<Clients>,
    service: Service,
    connections: usize,
}

/// All processes.
pub(super) struct Hosts<'a> {
    subject: Subject,
    arrival: Arrival,
    process: ProcessOptions,
    certificate: &'a Certificate,
    hosts: Vec<Host>,
    // The files that servers have written live as long as the servers.
    folders: Vec<TempDir>,
    /// The servers' own memory before they had connections, in bytes.
    pub start: u64,
}

impl<'a> Hosts<'a> {
    /// Creates no process yet.
    pub(super) fn new(
        subject: Subject,
        arrival: Arrival,
        process: ProcessOptions,
        certificate: &'a Certificate,
    ) -> Hosts<'a> {
        let (hosts, folders) = (Vec::new(), Vec::new());
        Hosts { subject, arrival, process, certificate, hosts, folders, start: 0 }
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
        let (capacity, _) = capacity(self.subject.start.kind);
        let before = self.hosts.len();
        while self.hosts.len() * capacity < connections {
            let own = program::folder(self.subject.name)?;
            let service = service::start(self.subject, self.process, own.path(), self.certificate)?;
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
        let (capacity, _) = capacity(self.subject.start.kind);
        let most = clients::most();
        let mut left = connections.saturating_sub(self.connections());
        for host in &mut self.hosts {
            let mut own = left.min(capacity - host.connections);
            left -= own;
            while own > 0 {
                if !goes_on() {
                    return Ok(());
                }
                let count = own.min(most);
                let from = clients::address(host.clients.len());
                let mut clients = start(self.subject, from, host.service.port, self.certificate)?;
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
        assert!(capacity(Kind::Relay).0 <= plain / 2 && plain > 1 && clients::most() <= plain);
    }
}
