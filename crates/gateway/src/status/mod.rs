//! The activity of the server, for operators: as counters for Prometheus, and as a page.
//!
//! A task on each engine reads that engine's counters, so that no other thread reads the values
//! that the engine writes; a look costs every engine one task and no thread a lock.

mod figures;
pub(crate) mod guard;
mod page;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use http::{HeaderMap, Request, Response};
use serde::Serialize;
use superpoll::diagnostics::{Costs, Kind};
use superpoll_rt::{Handle, Stats};

use crate::body::Body;
use crate::exchange::{Exchange, LocalFuture};
use crate::metrics::Engine;
use crate::seats::Seats;
use crate::upload::Upload;

/// Where the page is.
pub(crate) const PAGE: &str = "/_superpoll/";

/// The sources of the status.
pub(crate) struct Overview {
    handle: Handle,
    backend: &'static str,
    engines: Vec<Arc<Engine>>,
    seats: Arc<Seats>,
    started: Instant,
    since: SystemTime,
    ending: AtomicBool,
}

/// The work of everything that watches descriptors on one engine.
#[derive(Debug, Serialize)]
struct EngineState {
    accepted: u64,
    refused: u64,
    active: u64,
    parked: u64,
    away: u64,
    leavings: u64,
    returns: u64,
    parkings: u64,
    responses: [u64; 5],
    running: u64,
    body_bytes: u64,
    timed_out: u64,
    broken: u64,
    tasks: usize,
    polls: u64,
    turns: u64,
    longest_turn_seconds: f64,
    sources: usize,
    timers: usize,
    fetched: u64,
    waits: u64,
    events: u64,
    unwanted: u64,
    slots_scanned: u64,
    changes_saved: u64,
    moves_to_hot: u64,
    moves_to_cold: u64,
    handoffs: u64,
    hot: SetState,
    cold: SetState,
    /// System calls of the poller, by name.
    calls: Vec<(&'static str, u64)>,
}

#[derive(Debug, Serialize)]
struct SetState {
    len: usize,
    watched: u64,
    active: u64,
}

/// The costs of watching a kind of descriptor, in nanoseconds, and the ratio at which poll and
/// epoll cost the same.
#[derive(Debug, Serialize)]
struct Price {
    kind: &'static str,
    scan: f32,
    ready: f32,
    block: f32,
    event: f32,
    wake: f32,
    add: f32,
    modify: f32,
    delete: f32,
    break_even: f32,
    break_even_with_writers: f32,
}

/// The status at one moment.
#[derive(Debug, Serialize)]
struct Snapshot {
    version: &'static str,
    backend: &'static str,
    started_seconds: u64,
    uptime_seconds: f64,
    connections: u32,
    engines: Vec<EngineState>,
    /// `None` if the back-end does not know costs.
    prices: Option<Vec<Price>>,
    measured: bool,
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
    fn new(engine: &Engine, stats: &Stats) -> EngineState {
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
        engines: Vec<Arc<Engine>>,
        seats: Arc<Seats>,
    ) -> Overview {
        let (started, since) = (Instant::now(), SystemTime::now());
        let ending = AtomicBool::new(false);
        Overview { handle, backend, engines, seats, started, since, ending }
    }

    /// Tells pages that the server is about to end.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Asks all engines.
    async fn look(&self) -> Snapshot {
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
        let epoch = self.since.duration_since(SystemTime::UNIX_EPOCH);
        Snapshot {
            version: env!("CARGO_PKG_VERSION"),
            backend: self.backend,
            started_seconds: epoch.map_or(0, |epoch| epoch.as_secs()),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            connections: self.seats.taken(),
            engines,
            prices: costs.as_ref().map(prices),
            measured: costs.is_some_and(|costs| costs.measured),
        }
    }

    /// Answers a request for the counters.
    pub(crate) fn figures(self: &Arc<Self>, headers: &HeaderMap) -> LocalFuture<Response<Body>> {
        let (overview, is_open) = (self.clone(), figures::wants_open_metrics(headers));
        Box::pin(async move { figures::response(overview.look().await, is_open) })
    }

    /// Answers a request below [`PAGE`].
    pub(crate) async fn page(
        self: Arc<Self>,
        request: Request<Upload>,
        exchange: &Exchange,
    ) -> Response<Body> {
        page::respond(self, request, exchange).await
    }
}
