//! Those who have asked once.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use crate::channel;
use crate::echo;
use crate::error::{Error, Result};
use crate::http;
use crate::server::clients::Clients;
use crate::server::generator::{Connection, Generator};
use crate::sys::{descriptor, socket};
use crate::zombies::subject::Family;

/// The most connections of one process and one address.
const EACH: usize = 5000;

/// The length of a request to an echo server.
pub const BYTES: usize = 64;

/// What a process of zombies is told.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Order {
    /// Connect.
    Appear,
    /// Ask, and be answered.
    Ask,
    /// See whether all is silent and nobody was closed.
    Check,
}

/// The zombies of one server; they end when this is dropped.
#[derive(Debug)]
pub struct Crowd {
    processes: Vec<Clients>,
}

impl Crowd {
    /// Connects so many to a port.
    ///
    /// # Errors
    ///
    /// Why one could not connect.
    pub fn gather(
        subject: &'static str,
        family: Family,
        port: u16,
        zombies: usize,
    ) -> Result<Crowd> {
        let mut processes = Vec::new();
        let mut left = zombies;
        for number in 2u8.. {
            let count = left.min(EACH);
            if count == 0 {
                break;
            }
            left -= count;
            let from = Ipv4Addr::new(127, 0, 0, number);
            processes.push(match family {
                Family::Echo => start(subject, move || echo_load(subject, from, port, count)),
                Family::Web => start(subject, move || http::load::load(subject, from, port, count)),
            }?);
        }
        let mut crowd = Crowd { processes };
        crowd.tell(Order::Appear)?;
        Ok(crowd)
    }

    /// Has each ask once.
    ///
    /// # Errors
    ///
    /// What was wrong with an answer.
    pub fn ask(&mut self) -> Result<()> {
        self.tell(Order::Ask)
    }

    /// Sees whether all are there still, and were told nothing.
    ///
    /// # Errors
    ///
    /// What has become of one.
    pub fn check(&mut self) -> Result<()> {
        self.tell(Order::Check)
    }

    fn tell(&mut self, order: Order) -> Result<()> {
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
        (Order::Ask, Some(zombies)) => zombies.go(zombies.connections() as u64).map(drop),
        (Order::Check, Some(zombies)) => zombies.check_silence(),
        (_, None) => Err(Error::usage("zombies were told to ask before they appeared")),
    })
}

/// Connections to an echo server.
///
/// # Errors
///
/// [`Error::System`] if the kernel refuses one.
pub fn echo_load(
    subject: &'static str,
    from: Ipv4Addr,
    port: u16,
    count: usize,
) -> Result<Generator<echo::load::Connection>> {
    let connect = || -> std::io::Result<OwnedFd> {
        let stream = std::net::TcpStream::from(socket::connect_from(from, port)?);
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let socket = OwnedFd::from(stream);
        descriptor::reset_on_close(&socket)?;
        channel::plain_congestion(&socket);
        Ok(socket)
    };
    let sockets: std::io::Result<Vec<OwnedFd>> = (0..count).map(|_| connect()).collect();
    let sockets =
        sockets.map_err(|e| Error::system(format!("connecting {count} times to {subject}"), e))?;
    echo::load::load(subject, sockets, BYTES)
}
