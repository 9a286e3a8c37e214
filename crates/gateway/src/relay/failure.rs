//! The failures of a relay while it runs, and the rate at which they are reported.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use superpoll_http::upstream::way_out;

use crate::config::Address;

/// The shortest time between two reports of the same kind of failure. Failures in between are
/// counted.
const SILENCE: Duration = Duration::from_secs(1);

/// After this time without a report of one kind, its count is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// A failure while a relay runs. The relay continues.
///
/// Of each kind and reason, one failure per second is reported; `left_out` counts the failures
/// since the last report.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The upstream could not be reached; the client was closed.
    #[error("connecting to {to}: {error}{}", and_more(*.left_out))]
    Connect {
        /// The upstream.
        to: Address,
        /// The error of the last attempt.
        #[source]
        error: io::Error,
        /// The number of failures like this one that were not reported.
        left_out: u64,
    },
    /// A server of an upstream could not be reached.
    #[error(
        "connecting to {server} of {upstream}: {error}{}; {}{}",
        way_out(.error),
        if *.is_retried { "the next server is tried" } else { "the client was closed" },
        and_more(*.left_out)
    )]
    Server {
        /// The name of the upstream.
        upstream: String,
        /// The server.
        server: Address,
        /// The error of the last address of the server.
        #[source]
        error: io::Error,
        /// Whether another server is tried. If not, the client was closed.
        is_retried: bool,
        /// The number of failures like this one that were not reported.
        left_out: u64,
    },
    /// No server of an upstream was up; the client was closed.
    #[error(
        "connecting to {upstream}: no server is up; the client was closed{}",
        and_more(*.left_out)
    )]
    NoneUp {
        /// The name of the upstream.
        upstream: String,
        /// The number of failures like this one that were not reported.
        left_out: u64,
    },
    /// The name of the upstream could not be looked up. The addresses that were found last are used
    /// on.
    #[error("looking up {to}: {error}; its last addresses are used on{}", and_more(*.left_out))]
    LookUp {
        /// The upstream.
        to: Address,
        /// The error of the resolver.
        #[source]
        error: io::Error,
        /// The number of failures like this one that were not reported.
        left_out: u64,
    },
    /// There was no descriptor left for a client, which was closed.
    #[error(
        "accepting on {on}: no descriptor is left, and the client was closed; raise the limit \
         (ulimit -n) or allow fewer connections{}",
        and_more(*.left_out)
    )]
    Shed {
        /// Where the relay listens.
        on: String,
        /// The number of failures like this one that were not reported.
        left_out: u64,
    },
    /// Lines of the access log are lost.
    #[error("{what}")]
    AccessLog {
        /// The reason, and how many lines are lost.
        what: String,
    },
    /// Accepting has failed. It is tried again.
    #[error("accepting on {on}: {error}{}", and_more(*.left_out))]
    Accept {
        /// Where the relay listens.
        on: String,
        /// The error from the kernel.
        #[source]
        error: io::Error,
        /// The number of failures like this one that were not reported.
        left_out: u64,
    },
}

/// Returns the number of failures that were not reported, in words.
fn and_more(left_out: u64) -> String {
    match left_out {
        0 => String::new(),
        more => format!(" (and {more} more since the last report)"),
    }
}

/// A kind of failure, its reason, and a number of the server that it is about.
type Kind = (u8, Option<i32>, u64);

/// The failures that were reported lately.
#[derive(Debug, Default)]
pub(super) struct ReportLimiter(Mutex<Vec<(Kind, Instant, u64)>>);

impl ReportLimiter {
    /// Returns the number of failures since the last report, if this failure is to report.
    pub(super) fn admit(&self, kind: Kind, now: Instant) -> Option<u64> {
        let mut reports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match reports.iter_mut().find(|(other, ..)| *other == kind) {
            None => {
                // Servers that are found by names come and go, each with a number of its own.
                reports.retain(|(_, last, _)| now.duration_since(*last) < FORGOTTEN);
                reports.push((kind, now, 0));
                Some(0)
            }
            Some((_, last, left_out)) if now.duration_since(*last) < SILENCE => {
                *left_out += 1;
                None
            }
            Some((_, last, left_out)) => {
                *last = now;
                Some(std::mem::take(left_out))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_of_a_kind_per_second_is_reported_and_the_rest_are_counted() {
        let reports = ReportLimiter::default();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(reports.admit((0, Some(111), 0), at(0)), Some(0));
        assert_eq!(reports.admit((0, Some(111), 0), at(1)), None);
        assert_eq!(reports.admit((0, Some(110), 0), at(2)), Some(0));
        assert_eq!(reports.admit((0, Some(111), 0), at(999)), None);
        assert_eq!(reports.admit((0, Some(111), 0), at(1000)), Some(2));
        assert_eq!(reports.admit((0, Some(111), 0), at(2500)), Some(0));
    }

    #[test]
    fn a_failure_names_the_attempt_and_the_number_left_out() {
        let to: Address = "127.0.0.1:1".parse().unwrap();
        let error = || io::Error::from_raw_os_error(111);
        let one = Failure::Connect { to: to.clone(), error: error(), left_out: 0 }.to_string();
        assert!(one.starts_with("connecting to 127.0.0.1:1: ") && !one.contains("more"), "{one}");
        let many = Failure::Connect { to, error: error(), left_out: 7 }.to_string();
        assert!(many.ends_with("(and 7 more since the last report)"), "{many}");
        let shed = Failure::Shed { on: "[::]:80".to_owned(), left_out: 0 }.to_string();
        assert!(shed.contains("[::]:80") && shed.contains("ulimit -n"), "{shed}");
    }
}
