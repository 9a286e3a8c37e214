//! The clients that have sent one request and are silent.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use crate::echo;
use crate::error::{Doing, Error, Result};
use crate::http;
use crate::server::client;
use crate::server::clients::{self, Clients};
use crate::server::generator::{Connection, Generator, Load};
use crate::zombies::subject::Family;

/// The length of a request to an echo server.
pub(super) const BYTES: usize = 64;

/// The commands for a process of zombies.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Order {
    /// Connect.
    Appear,
    /// Send one request and read the answer, on one connection.
    Begin,
    /// Send a request and read the answer.
    Ask,
    /// Check that all connections are silent and none was closed.
    Check,
}

/// The zombies of one server; they end when this value is dropped.
#[derive(Debug)]
pub(super) struct Crowd {
    processes: Vec<Clients>,
}

impl Crowd {
    /// Makes the given number of connections to each of these ports. Each port has the addresses to
    /// itself: 127.0.0.2 and up, one for each process.
    pub(super) fn gather(
        subject: &'static str,
        family: Family,
        ports: &[(u16, usize)],
    ) -> Result<Crowd> {
        let mut processes = Vec::new();
        let each = clients::most();
        for &(port, zombies) in ports {
            for (number, first) in (0..zombies).step_by(each).enumerate() {
                let count = each.min(zombies - first);
                let from = clients::address(number);
                let to = [port];
                processes.push(match family {
                    Family::Echo => start(subject, move || echo_load(subject, from, &to, count)),
                    Family::Web => {
                        start(subject, move || http::load::load(subject, from, &to, count))
                    }
                }?);
            }
        }
        let mut crowd = Crowd { processes };
        crowd.send(Order::Appear)?;
        Ok(crowd)
    }

    /// Makes each zombie send one request, one of each process before all the remaining ones. A
    /// server that reads a file for its first answer then has it in memory, and needs no
    /// descriptors for it when all zombies send at the same time.
    pub(super) fn ask(&mut self) -> Result<()> {
        self.send(Order::Begin)?;
        self.send(Order::Ask)
    }

    /// Checks that all zombies are still connected and have received nothing.
    pub(super) fn check(&mut self) -> Result<()> {
        self.send(Order::Check)
    }

    fn send(&mut self, order: Order) -> Result<()> {
        self.processes.iter_mut().try_for_each(|process| process.order(&order))?;
        self.processes.iter_mut().try_for_each(Clients::done)
    }
}

fn start<C: Connection>(
    subject: &'static str,
    connect: impl Fn() -> Result<Generator<C>>,
) -> Result<Clients> {
    let mut zombies = None;
    Clients::start(subject, move |order: Order| match (order, &mut zombies) {
        (Order::Appear, _) => {
            zombies = Some(connect()?);
            Ok(())
        }
        (Order::Begin, Some(zombies)) => zombies.go(1).map(drop),
        (Order::Ask, Some(zombies)) => zombies.go(zombies.connections() as u64).map(drop),
        (Order::Check, Some(zombies)) => zombies.check_silence(),
        (_, None) => Err(Error::usage("zombies were asked for requests before they appeared")),
    })
}

/// Connections to an echo server, to each of its ports in turn.
pub(super) fn echo_load(
    subject: &'static str,
    from: Ipv4Addr,
    ports: &[u16],
    count: usize,
) -> Result<Generator<echo::load::Connection>> {
    let ports = ports.iter().cycle().take(count);
    let sockets: std::io::Result<Vec<OwnedFd>> =
        ports.map(|&port| client::connect(from, port)).collect();
    let sockets = sockets.doing(format_args!("connecting {count} times to {subject}"))?;
    echo::load::load(subject, sockets, BYTES)
}
