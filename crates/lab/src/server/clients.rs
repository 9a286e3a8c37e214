//! Clients in a process of their own: they carry out orders and report when an order is done.
//!
//! A process may have only so many descriptors, and a server alone may have as many connections;
//! their other ends live here. The experiment defines the client and the orders that it takes.

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Doing, Error, Result};
use crate::sys::{descriptor, process};
use crate::{channel, environment};

/// The most connections of one process and one address.
const EACH: usize = 5000;

/// Descriptors that a process of clients needs in addition to its connections.
const RESERVE: usize = 32;

/// Returns the most connections of a process of clients: its limit of descriptors and the ports of
/// its address allow no more.
pub(crate) fn most() -> usize {
    let descriptors = (2 * channel::most_pairs()).saturating_sub(RESERVE);
    EACH.min(descriptors).min(environment::ports()).max(1)
}

/// Returns the address of one of several such processes, from 127.0.0.2 on: each has all ports to
/// itself.
pub(crate) fn address(process: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 0, 0, 2).to_bits() + process as u32)
}

/// The parent's end: clients that live until this is dropped.
#[derive(Debug)]
pub(crate) struct Clients {
    subject: &'static str,
    // Killed when dropped.
    _child: process::Child,
    line: BufReader<UnixStream>,
}

impl Clients {
    /// Forks the child, which carries `out` each order.
    pub(crate) fn start<Order: DeserializeOwned, Answer: Serialize>(
        subject: &'static str,
        out: impl FnMut(Order) -> Result<Answer>,
    ) -> Result<Clients> {
        Clients::keeping(subject, Vec::new(), out)
    }

    /// Like [`start`](Clients::start), with these descriptors of the parent's, which the child
    /// owns.
    pub(crate) fn keeping<Order: DeserializeOwned, Answer: Serialize>(
        subject: &'static str,
        mut keeps: Vec<RawFd>,
        mut out: impl FnMut(Order) -> Result<Answer>,
    ) -> Result<Clients> {
        let failed = |source| Error::system("starting a process for clients", source);
        let (line, theirs) = UnixStream::pair().map_err(failed)?;
        keeps.push(theirs.as_raw_fd());
        let child = process::fork(|| {
            descriptor::close_all_but(&mut keeps);
            process::survive_broken_pipes();
            let mut line = BufReader::new(theirs);
            let mut order = String::new();
            while let Ok(1..) = line.read_line(&mut order) {
                // Whether the work was wrong, and what was found or failed.
                let outcome = match serde_json::from_str(&order) {
                    Ok(order) => out(order).map_err(|error| match error {
                        Error::Work { found, .. } => (true, found),
                        other => (false, other.to_string()),
                    }),
                    Err(error) => Err((false, format!("an order was not understood: {error}"))),
                };
                let answer = serde_json::to_string(&outcome).unwrap_or_default() + "\n";
                if line.get_mut().write_all(answer.as_bytes()).is_err() {
                    // The parent is gone.
                    return;
                }
                order.clear();
            }
        })
        .map_err(failed)?;
        Ok(Clients { subject, _child: child, line: BufReader::new(line) })
    }

    /// Gives an order, without waiting until it was carried out.
    pub(crate) fn order<Order: Serialize>(&mut self, order: &Order) -> Result<()> {
        let text = serde_json::to_string(order).unwrap_or_default() + "\n";
        self.line
            .get_mut()
            .write_all(text.as_bytes())
            .doing(format_args!("sending an order to the clients of {}", self.subject))
    }

    /// Waits until the last order was carried out, and returns the answer.
    pub(crate) fn answer<Answer: DeserializeOwned>(&mut self) -> Result<Answer> {
        let mut text = String::new();
        let read = self.line.read_line(&mut text);
        let wrong = |found| Error::Work { subject: self.subject, found };
        match (read, serde_json::from_str::<Result<Answer, (bool, String)>>(&text)) {
            (Ok(1..), Ok(Ok(answer))) => Ok(answer),
            (Ok(1..), Ok(Err((true, found)))) => Err(wrong(found)),
            (Ok(1..), Ok(Err((false, reason)))) => Err(Error::Usage(reason)),
            _ => Err(wrong("its process, or that of its clients, ended by itself".to_owned())),
        }
    }

    /// Gives an order and waits for the answer.
    pub(crate) fn ask<Order: Serialize, Answer: DeserializeOwned>(
        &mut self,
        order: &Order,
    ) -> Result<Answer> {
        self.order(order)?;
        self.answer()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_carried_out_one_by_one_and_failures_reported() {
        let mut sum = 0;
        let mut clients = Clients::start("absent", |order: u32| {
            sum += order;
            if sum > 5 { Err(Error::usage(format!("{sum} is too much"))) } else { Ok(()) }
        })
        .unwrap();
        clients.ask::<_, ()>(&2).unwrap();
        clients.ask::<_, ()>(&3).unwrap();
        assert_eq!(clients.ask::<_, ()>(&1).unwrap_err().to_string(), "6 is too much");
        let error = clients.ask::<_, ()>(&"one").unwrap_err().to_string();
        assert!(error.contains("not understood"), "{error}");
    }

    #[test]
    fn clients_that_end_by_themselves_are_noticed() {
        // Not by a panic: another test may have held the lock of its message when this one forked.
        let mut clients =
            Clients::start("absent", |(): ()| -> Result<()> { std::process::abort() }).unwrap();
        let error = clients.ask::<_, ()>(&()).unwrap_err().to_string();
        assert!(error.contains("absent") && error.contains("ended by itself"), "{error}");
    }
}
