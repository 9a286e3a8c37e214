//! The rounds of servers that take turns, each with a load generator on another processor.

use crate::error::Result;
use crate::server::Server;
use crate::statistics;
use crate::sys::process;

/// Requests on each connection before all other requests.
const WARM_UP: u64 = 20;

/// How long requests are sent before the server's pace is measured: the first requests are slow.
const PILOT_NS: u64 = 20_000_000;

/// A round takes no longer than this, whatever the time.
const LONGEST_NS: f64 = 5e9;

/// The time that a server gets to fall asleep after the last request of a round.
const SETTLING_NS: u64 = 2_000_000;

/// The times of one round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slice {
    /// From the first request to the last answer.
    pub ns: u64,
    /// The processor time of the server's processes.
    pub cpu_ns: u64,
}

/// Sends a server enough requests to measure its pace reliably; returns how long a request takes,
/// in nanoseconds.
pub(crate) fn pilot(connections: usize, mut go: impl FnMut(u64) -> Result<u64>) -> Result<f64> {
    let requests = WARM_UP * connections as u64;
    // Not believed, however long it takes.
    go(requests)?;
    pace(requests, PILOT_NS, go)
}

/// Sends requests, twice as many each time, until they take long enough; returns how long one takes
/// then, in nanoseconds.
pub(crate) fn pace(
    mut requests: u64,
    least_ns: u64,
    mut go: impl FnMut(u64) -> Result<u64>,
) -> Result<f64> {
    let mut ns = go(requests)?;
    while ns < least_ns {
        requests *= 2;
        ns = go(requests)?;
    }
    Ok(ns as f64 / requests as f64)
}

/// Returns how many requests each server gets in a round, the same for all, so that all rounds fit
/// into the time.
pub(crate) fn share(request_ns: &[f64], rounds: usize, budget_ns: f64) -> u64 {
    let sum: f64 = request_ns.iter().sum();
    let slowest = statistics::maximum(request_ns).max(1.0);
    let requests = budget_ns / (rounds as f64 * sum.max(1.0));
    requests.min(LONGEST_NS / slowest).max(1.0) as u64
}

/// Runs one round of a server, in one process or several.
pub(crate) fn round(servers: &[Server], go: impl FnOnce() -> Result<u64>) -> Result<Slice> {
    let processor_time = || servers.iter().map(Server::processor_time).sum::<Result<u64>>();
    let before = processor_time()?;
    let ns = go()?;
    // For a running process, the kernel reports the time used up to the last tick of the clock,
    // which may be milliseconds ago; for a sleeping one, all of its time.
    process::sleep(SETTLING_NS);
    Ok(Slice { ns, cpu_ns: processor_time()? - before })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_fit_into_the_time() {
        assert_eq!(share(&[1000.0, 3000.0], 10, 4e6), 100);
        assert_eq!(share(&[1e6], 1, 1e12), 5000);
        assert_eq!(share(&[1e9], 5, 1.0), 1);
    }

    #[test]
    fn the_first_requests_are_not_believed() {
        let mut cold = true;
        let ns = pilot(10, |requests| {
            Ok(requests * if std::mem::take(&mut cold) { 5_000_000 } else { 200_000 })
        });
        assert_eq!(ns.unwrap(), 200_000.0);
    }

    #[test]
    fn a_pace_is_believed_after_a_while() {
        let mut asked = Vec::new();
        let ns = pilot(3, |requests| {
            asked.push(requests);
            Ok(requests * 100_000)
        });
        assert_eq!((ns.unwrap(), &asked[..]), (100_000.0, &[60, 60, 120, 240][..]));
    }
}
