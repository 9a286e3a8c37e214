//! The activity of all engines at one moment.
//!
//! A task on each engine reads that engine's counters, so that no other thread reads the values
//! that the engine writes. An overview costs each engine one task, and no thread takes a lock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use serde::Serialize;
use superpoll::diagnostics::{Costs, Kind};
use superpoll_rt::{Handle, Stats};

use super::broker::BrokerState;
use super::counters::EngineCounters;
use crate::acme::RenewalCounters;
use crate::certificates::CertificateStatus;
use crate::channel::{Registry, RouteState};
use crate::connection_limits::ConnectionLimits;

/// Where the page is.
pub(crate) const PAGE: &str = "/_superpoll/";

/// The sources of the status.
pub(crate) struct Overview {
    handle: Handle,
    backend: &'static str,
    engines: Vec<Arc<EngineCounters>>,
    connection_limits: Arc<ConnectionLimits>,
    renewals: Arc<RenewalCounters>,
    pub(super) channels: Mutex<Registry>,
    certificates: Arc<CertificateStatus>,
    started: Instant,
    since: SystemTime,
    ending: AtomicBool,
}

/// The work of everything that watches descriptors on one engine.
#[derive(Debug, Serialize)]
pub(super) struct EngineState {
    pub(super) accepted: u64,
    pub(super) refused: u64,
    pub(super) active: u64,
    pub(super) parked: u64,
    pub(super) away: u64,
    pub(super) leavings: u64,
    pub(super) returns: u64,
    pub(super) parkings: u64,
    pub(super) responses: [u64; 5],
    pub(super) lane: u64,
    pub(super) running: u64,
    pub(super) body_bytes: u64,
    pub(super) timed_out: u64,
    pub(super) broken: u64,
    pub(super) tasks: usize,
    pub(super) polls: u64,
    pub(super) turns: u64,
    pub(super) longest_turn_seconds: f64,
    pub(super) sources: usize,
    pub(super) timers: usize,
    pub(super) fetched: u64,
    pub(super) waits: u64,
    pub(super) events: u64,
    pub(super) unwanted: u64,
    pub(super) slots_scanned: u64,
    pub(super) changes_saved: u64,
    pub(super) moves_to_hot: u64,
    pub(super) moves_to_cold: u64,
    pub(super) handoffs: u64,
    pub(super) hot: SetState,
    pub(super) cold: SetState,
    /// System calls of the poller, by name.
    pub(super) calls: Vec<(&'static str, u64)>,
}

#[derive(Debug, Serialize)]
pub(super) struct SetState {
    pub(super) len: usize,
    pub(super) watched: u64,
    pub(super) active: u64,
}

/// The costs of watching a kind of descriptor, in nanoseconds, and the ratio at which poll and
/// epoll cost the same.
#[derive(Debug, Serialize)]
pub(super) struct Price {
    pub(super) kind: &'static str,
    pub(super) scan: f32,
    pub(super) ready: f32,
    pub(super) block: f32,
    pub(super) event: f32,
    pub(super) wake: f32,
    pub(super) add: f32,
    pub(super) modify: f32,
    pub(super) delete: f32,
    pub(super) break_even: f32,
    pub(super) break_even_with_writers: f32,
}

/// The status at one moment.
#[derive(Debug, Serialize)]
pub(super) struct Snapshot {
    pub(super) version: &'static str,
    pub(super) backend: &'static str,
    pub(super) started_seconds: u64,
    pub(super) uptime_seconds: f64,
    pub(super) connections: u32,
    pub(super) engines: Vec<EngineState>,
    /// Attempts to get a certificate, by outcome.
    #[serde(skip)]
    pub(super) renewals: [(&'static str, u64); 2],
    #[serde(skip)]
    pub(super) channels: Vec<RouteState>,
    #[serde(skip)]
    pub(super) broker: Option<BrokerState>,
    /// The end of each certificate in seconds since 1970, by name.
    #[serde(skip)]
    pub(super) certificate_ends: BTreeMap<String, u64>,
    #[serde(skip)]
    pub(super) certificate_failures: u64,
    /// `None` if the back-end does not know costs.
    pub(super) prices: Option<Vec<Price>>,
    pub(super) measured: bool,
}

fn prices(costs: &Costs) -> Vec<Price> {
    let price = |kind: Kind| {
        let of = costs.of(kind);
        let even = costs.break_even(kind);
        Price {
            kind: kind.name(),
            scan: of.scan,
            ready: of.ready,
            block: of.block,
            event: of.event,
            wake: of.wake,
            add: of.add,
            modify: of.modify,
            delete: of.delete,
            break_even: even.own,
            break_even_with_writers: even.with_writers,
        }
    };
    Kind::MEASURED.into_iter().map(price).collect()
}

impl EngineState {
    fn new(engine: &EngineCounters, stats: &Stats) -> EngineState {
        let poller = &stats.poller;
        let set = |set: &superpoll::diagnostics::SetStats| SetState {
            len: set.len,
            watched: set.watched,
            active: set.active,
        };
        EngineState {
            accepted: engine.accepted.get(),
            refused: engine.refused.get(),
            active: engine.active.get(),
            parked: engine.parked.get(),
            away: engine.away.get(),
            leavings: engine.leavings.get(),
            returns: engine.returns.get(),
            parkings: engine.parkings.get(),
            responses: std::array::from_fn(|class| engine.responses[class].get()),
            lane: engine.lane.get(),
            running: engine.running.get(),
            body_bytes: engine.body_bytes.get(),
            timed_out: engine.timed_out.get(),
            broken: engine.broken.get(),
            tasks: stats.tasks,
            polls: stats.polls,
            turns: stats.turns,
            longest_turn_seconds: stats.longest_turn.as_secs_f64(),
            sources: stats.sources,
            timers: stats.timers,
            fetched: stats.reads_ahead,
            waits: poller.waits,
            events: poller.events,
            unwanted: poller.unwanted,
            slots_scanned: poller.slots_scanned,
            changes_saved: poller.changes_saved,
            moves_to_hot: poller.moves_to_hot,
            moves_to_cold: poller.moves_to_cold,
            handoffs: poller.handoffs,
            hot: set(&poller.hot),
            cold: set(&poller.cold),
            calls: poller.calls.by_name().filter(|(_, count)| *count > 0).collect(),
        }
    }
}

impl Overview {
    pub(crate) fn new(
        handle: Handle,
        backend: &'static str,
        engines: Vec<Arc<EngineCounters>>,
        connection_limits: Arc<ConnectionLimits>,
        renewals: Arc<RenewalCounters>,
    ) -> Overview {
        let (started, since) = (Instant::now(), SystemTime::now());
        let ending = AtomicBool::new(false);
        let (channels, certificates) = (Mutex::default(), Arc::default());
        Overview {
            handle,
            backend,
            engines,
            connection_limits,
            renewals,
            channels,
            certificates,
            started,
            since,
            ending,
        }
    }

    /// Replaces the channels that are described.
    pub(crate) fn describe(&self, channels: Registry) {
        *self.channels.lock().unwrap_or_else(PoisonError::into_inner) = channels;
    }

    /// Returns the state of the certificates.
    pub(crate) fn certificates(&self) -> &Arc<CertificateStatus> {
        &self.certificates
    }

    /// Tells pages that the server is about to end.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Asks all engines.
    pub(super) async fn collect(&self) -> Snapshot {
        let mut asked = Vec::new();
        for engine in 0..self.engines.len() {
            asked.push(self.handle.spawn_on(engine, async { Stats::current() }));
        }
        let mut engines = Vec::new();
        let mut costs = None;
        for (engine, asked) in self.engines.iter().zip(asked) {
            // An engine that has ended gives no answer.
            let Ok(task) = asked else { continue };
            let Ok(Ok(stats)) = task.await else { continue };
            engines.push(EngineState::new(engine, &stats));
            costs = costs.or(stats.costs);
        }
        let channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let epoch = self.since.duration_since(SystemTime::UNIX_EPOCH);
        Snapshot {
            version: env!("CARGO_PKG_VERSION"),
            backend: self.backend,
            started_seconds: epoch.map_or(0, |epoch| epoch.as_secs()),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            connections: self.connection_limits.in_use(),
            engines,
            renewals: self.renewals.by_result(),
            channels: channels.states(),
            broker: channels.broker().map(|broker| BrokerState::of(broker)),
            certificate_ends: self.certificates.ends(),
            certificate_failures: self.certificates.failures(),
            prices: costs.as_ref().map(prices),
            measured: costs.is_some_and(|costs| costs.measured),
        }
    }
}
