//! The load generator: connections to one server, with one request under way on each.
//!
//! It shares a machine with the server, so it does no more than it must: an epoll set, one read for
//! an answer, one write for the next request. The connection defines a request and its correct
//! answer.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use crate::channel;
use crate::error::{Doing, Error, Result};
use crate::server::rounds;
use crate::sys::{epoll, process};

/// A server that does not answer for this long has lost a request.
const PATIENCE_MS: i32 = 10_000;

/// The most events that are taken from a wait.
const EVENTS: usize = 1024;

/// A connection to a server.
pub(crate) trait Connection {
    /// Memory that all connections of a generator share: room to put a request together, and to
    /// read an answer.
    type Room;

    /// Sends a request.
    fn ask(&mut self, room: &mut Self::Room) -> std::result::Result<(), String>;

    /// Reads once; returns whether an answer is complete.
    fn read(&mut self, room: &mut Self::Room) -> std::result::Result<bool, String>;
}

/// Clients of one server, which know its right answers.
pub(crate) trait Load {
    /// The fewest requests in a round, however short the time.
    const LEAST: u64;

    /// Returns how many connections there are, each with one request under way.
    fn connections(&self) -> usize;

    /// Sends this many requests in total, over all connections, and returns the nanoseconds from
    /// the first request to the last answer.
    fn go(&mut self, requests: u64) -> Result<u64>;

    /// Returns the processor time that the clients used in the last [`go`](Load::go).
    fn busy_ns(&self) -> u64;

    /// Measures how long a request takes, in nanoseconds.
    fn pilot(&mut self) -> Result<f64> {
        rounds::pilot(self.connections(), |requests| self.go(requests))
    }
}

/// The connections to one server.
pub(crate) struct Generator<C: Connection> {
    subject: &'static str,
    set: OwnedFd,
    connections: Vec<C>,
    events: Vec<epoll::Raw>,
    room: C::Room,
    busy_ns: u64,
}

impl<C: Connection> Generator<C> {
    /// Makes the connections; each adds itself to the epoll set with its number.
    pub(crate) fn new(
        subject: &'static str,
        count: usize,
        room: C::Room,
        mut connect: impl FnMut(&OwnedFd, u64) -> Result<C>,
    ) -> Result<Generator<C>> {
        let set = epoll::create().doing("creating an epoll set")?;
        let connections =
            (0..count as u64).map(|number| connect(&set, number)).collect::<Result<Vec<C>>>()?;
        let events = vec![epoll::Raw { events: 0, u64: 0 }; count.clamp(1, EVENTS)];
        Ok(Generator { subject, set, connections, events, room, busy_ns: 0 })
    }

    /// Checks that the server has sent nothing since the last answer, and has closed no connection.
    pub(crate) fn check_silence(&mut self) -> Result<()> {
        let subject = self.subject;
        let wrong = |found: String| Error::Work { subject, found };
        loop {
            let ready = epoll::wait_for(self.set.as_raw_fd(), &mut self.events, 0);
            let Ok(ready @ 1..) = usize::try_from(ready) else { return Ok(()) };
            for event in &self.events[..ready] {
                // An edge may be reported for bytes that were read already.
                if self.connections[event.u64 as usize].read(&mut self.room).map_err(wrong)? {
                    return Err(wrong("an answer arrived without a request".to_owned()));
                }
            }
        }
    }
}

impl<C: Connection> Load for Generator<C> {
    /// A virtual machine may account no processor time for a few requests.
    const LEAST: u64 = 100;

    fn connections(&self) -> usize {
        self.connections.len()
    }

    fn go(&mut self, requests: u64) -> Result<u64> {
        let subject = self.subject;
        let wrong = |found: String| Error::Work { subject, found };
        let (begun, cpu) = (Instant::now(), process::thread_time());
        let first = self.connections.len().min(usize::try_from(requests).unwrap_or(usize::MAX));
        for connection in &mut self.connections[..first] {
            connection.ask(&mut self.room).map_err(wrong)?;
        }
        let (mut unasked, mut unanswered) = (requests - first as u64, requests);
        while unanswered > 0 {
            let ready = epoll::wait_for(self.set.as_raw_fd(), &mut self.events, PATIENCE_MS);
            let ready = match usize::try_from(ready) {
                Ok(0) => return Err(wrong(format!("{unanswered} answers did not come in 10 s"))),
                Ok(ready) => ready,
                Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {
                    continue;
                }
                Err(_) => return Err(Error::last("waiting for answers")),
            };
            for event in &self.events[..ready] {
                let connection = &mut self.connections[event.u64 as usize];
                if connection.read(&mut self.room).map_err(wrong)? {
                    unanswered = unanswered
                        .checked_sub(1)
                        .ok_or_else(|| wrong("an answer arrived without a request".to_owned()))?;
                    if unasked > 0 {
                        unasked -= 1;
                        connection.ask(&mut self.room).map_err(wrong)?;
                    }
                }
            }
        }
        self.busy_ns = process::thread_time() - cpu;
        Ok(begun.elapsed().as_nanos() as u64)
    }

    fn busy_ns(&self) -> u64 {
        self.busy_ns
    }
}

/// Refuses a number of connections to each of some servers that the limit of descriptors does not
/// allow.
pub(crate) fn check_connections(connections: usize, servers: usize) -> Result<()> {
    // One process holds the generator's ends of all connections, and while it starts a server, that
    // server's ends too.
    let most = 2 * channel::most_pairs() / (servers + 1);
    if connections == 0 || connections > most {
        return Err(Error::usage(format!(
            "--connections {connections} is not possible: give 1 to {most}, as the limit of {} \
             descriptors leaves with {servers} servers",
            superpoll::limits::nofile().1
        )));
    }
    Ok(())
}
