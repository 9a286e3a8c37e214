//! The state of the broker: its figures, and whether the server is ready without it.

use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Response, StatusCode};
use prometheus_client::encoding::DescriptorEncoder;
use serde::{Deserialize, Serialize};
use superpoll_http::body::Body;
use superpoll_http::families;
use superpoll_http::reply;
use superpoll_http::telemetry::families::{self, Figure, Labels};
use superpoll_hub::broker::{Broker, Brokers, Counters};

use super::overview::Overview;

/// A counter, which only grows.
type Counter = (&'static str, &'static str, fn(&Counters) -> &AtomicU64);

const COUNTERS: &[Counter] = &[
    ("broker_published", "Messages that this server has appended to logs", |all| &all.published),
    ("broker_publish_failures", "Messages that were not appended, as far as is known", |all| {
        &all.failed
    }),
    ("broker_entries_read", "Entries of logs that were read", |all| &all.read),
    ("broker_entries_unreadable", "Entries of logs that no server has written", |all| {
        &all.unreadable
    }),
    (
        "broker_log_restarts",
        "Times a log began anew, or lacked entries before they were read",
        |all| &all.restarts,
    ),
    ("broker_connection_failures", "Connections to the broker that failed", |all| &all.failures),
];

/// The state of the broker at one moment.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BrokerState {
    is_up: bool,
    counts: Vec<u64>,
}

families! {
    const IS_UP: BrokerState = [
        Gauge broker_up "Whether messages can be appended to all logs, and all logs are read",
            |broker| broker.is_up.into();
    ];
}

impl BrokerState {
    /// Returns the state of the engine that other machines use, or else of that of the processes.
    pub(super) fn read(brokers: &Brokers) -> Option<BrokerState> {
        let broker: &Broker = brokers.all().next()?;
        let count = |(_, _, of): &Counter| of(broker.counters()).load(Ordering::Relaxed);
        let counts = COUNTERS.iter().map(count).collect();
        Some(BrokerState { is_up: broker.is_up(), counts })
    }

    /// Adds the state that another process has.
    pub(super) fn add(&mut self, other: &BrokerState) {
        self.is_up &= other.is_up;
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
    }

    /// Writes the families of the broker.
    pub(super) fn write(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        families::write(IS_UP, &[(Labels::new(), self)], encoder)?;
        for ((name, help, _), count) in COUNTERS.iter().zip(&self.counts) {
            let family = (*name, *help, Figure::Counter(|count: &u64| *count));
            families::write(&[family], &[(Labels::new(), count)], encoder)?;
        }
        Ok(())
    }
}

impl Overview {
    /// Answers whether the server is ready for requests: 200, or 503 and why not.
    pub(crate) fn readiness(&self) -> Response<Body> {
        let channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let what = if self.is_ending() {
            "the server is about to end\n"
        } else if channels.brokers().all().any(|broker| !broker.is_up()) {
            "the broker is away: channels get no messages and take none\n"
        } else if !channels.is_ready() {
            "the messages of some channels are still to be read\n"
        } else {
            return reply::text(StatusCode::OK, "ready\n");
        };
        reply::text(StatusCode::SERVICE_UNAVAILABLE, what)
    }
}
