//! The load of a server: its publisher, and the processes of its subscribers.

use crate::error::Result;
use crate::fanout::service::Publisher;
use crate::server::crowd::{self, Crowd, Order};
use crate::server::web;
use crate::server::wire::message;
use crate::sys::process;

/// Between two looks at the states of a server's threads.
const PAUSE_NS: u64 = 500_000;

/// A server sleeps when it has been seen asleep this many times in a row.
const LOOKS: usize = 3;

/// A server that does not sleep for this long is not waited for any longer.
const PATIENCE_NS: u64 = 500_000_000;

/// Messages to a server before its pace is measured, and messages to measure its pace by.
const WARM_UP: u64 = 5;

/// A server's publisher and subscribers.
pub(super) struct Load {
    /// The processes of the subscribers.
    pub crowds: Vec<Crowd>,
    publisher: Publisher,
    /// The processes of the server.
    pids: Vec<i32>,
    bytes: usize,
    /// The number of the last message.
    last: u64,
    /// The times until all subscribers had a message, for each call of `go`.
    times: Vec<Vec<f64>>,
    busy_ns: u64,
}

impl Load {
    /// Creates the load of a server with these processes, without subscribers.
    pub(super) fn new(
        publisher: Publisher,
        crowds: Vec<Crowd>,
        pids: Vec<i32>,
        bytes: usize,
    ) -> Load {
        Load { crowds, publisher, pids, bytes, last: 0, times: Vec::new(), busy_ns: 0 }
    }

    /// Connects so many subscribers of a process, and waits until the server sleeps.
    pub(super) fn connect(&mut self, crowd: usize, count: usize) -> Result<()> {
        self.crowds[crowd].ask(&Order::Open { count, at_once: count })?;
        until_asleep(&self.pids);
        Ok(())
    }

    /// Publishes a message. Returns the nanoseconds until all subscribers had it.
    fn deliver(&mut self) -> Result<f64> {
        self.last += 1;
        for crowd in &mut self.crowds {
            crowd.order(&Order::Receive { number: self.last, listen_ms: 0 })?;
        }
        let (begun, text) = (process::now(), message(self.last, self.bytes));
        self.publisher.publish(&text)?;
        let mut last_ns = begun;
        for crowd in &mut self.crowds {
            let received = crowd.done()?;
            last_ns = last_ns.max(received.last_ns);
            self.busy_ns += received.cpu_ns;
        }
        Ok((last_ns - begun) as f64)
    }

    /// Returns the times until all subscribers had a message, over the last so many rounds.
    pub(super) fn times(&self, rounds: usize) -> Vec<f64> {
        let first = self.times.len().saturating_sub(rounds);
        self.times[first..].concat()
    }
}

impl web::Load for Load {
    /// So that a hundred messages tell the slowest one in eleven rounds.
    const LEAST: u64 = 10;

    /// One message is under way.
    fn under_way(&self) -> usize {
        1
    }

    fn go(&mut self, messages: u64) -> Result<u64> {
        let begun = process::now();
        self.busy_ns = 0;
        let mut times = Vec::new();
        for _ in 0..messages {
            times.push(self.deliver()?);
            // Long-polls are there again, and the next message finds a server at rest.
            until_asleep(&self.pids);
        }
        self.times.push(times);
        crowd::ask_all(&mut self.crowds, &Order::Check)?;
        Ok(process::now() - begun)
    }

    fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// A message takes so long that a few are enough.
    fn pilot(&mut self) -> Result<f64> {
        self.go(WARM_UP)?;
        Ok(self.go(WARM_UP)? as f64 / WARM_UP as f64)
    }
}

/// Waits until no thread of these processes runs. Processor time would not tell: the kernel
/// accounts that of a running thread at its next tick.
fn until_asleep(pids: &[i32]) {
    let begun = process::now();
    let mut looks = 0;
    while looks < LOOKS && process::now() - begun < PATIENCE_NS {
        process::sleep(PAUSE_NS);
        looks = if pids.iter().any(|&pid| is_running(pid)) { 0 } else { looks + 1 };
    }
}

/// Whether a thread of a process runs, or would if it had a processor.
fn is_running(pid: i32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.map(|thread| thread.path().join("stat")).any(|file| {
        std::fs::read_to_string(file).is_ok_and(|stat| {
            stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('R'))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_runs_is_seen() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(is_running(pid) && !is_running(-1));
        let child = process::fork(|| process::sleep(60_000_000_000)).unwrap();
        until_asleep(&[child.pid()]);
        assert!(!is_running(child.pid()));
    }
}
