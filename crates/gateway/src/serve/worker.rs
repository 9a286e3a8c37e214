//! An engine's part of the server: its parking lot, its routes, and the tasks that are at work on
//! it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_lite::future::or;
use slab::Slab;
use superpoll_http::admin::{Protocol, Settings};
use superpoll_http::certificates::TicketSecrets;
use superpoll_http::exchange::LocalFuture;
use superpoll_http::log::AccessLogWriter;
use superpoll_http::parking_lot::ParkingLot;
use superpoll_http::peer::Peer;
use superpoll_http::telemetry::counters::{ActiveTask, EngineCounters};
use superpoll_hub::channel::ChannelEngine;

use super::operations::ServerOperations;
use super::router::{BuiltRouter, Router};
use crate::config::{Limits, Timeouts};
use crate::control::{Kept, Subject};
use crate::processes::{Counters, Question, Source};
use crate::telemetry::overview::Overview;

/// One engine's part of a server.
pub(super) struct Worker {
    pub parking_lot: Rc<ParkingLot>,
    pub channels: Rc<ChannelEngine>,
    pub counters: Arc<EngineCounters>,
    /// Exchanged as a whole when the configuration is read again; a request keeps the router that
    /// it began with.
    router: RefCell<Rc<Router>>,
    /// The access log, if there is one.
    access_log: RefCell<Option<Rc<AccessLogWriter>>>,
    pub timeouts: Cell<Timeouts>,
    pub limits: Cell<Limits>,
    draining: Cell<bool>,
    /// Whether connections come to rest at once.
    is_parking_at_once: Cell<bool>,
    /// The tasks of connections and listeners, to be woken when the server changes or is about to
    /// end.
    tasks: RefCell<Slab<Task>>,
}

/// A task, and the connection that it has.
struct Task {
    waker: Waker,
    connection: Option<TaskConnection>,
}

/// A connection with a task, as it is listed.
pub(super) struct TaskConnection {
    pub peer: Rc<Peer>,
    pub protocol: Protocol,
    /// The task is to close the connection.
    is_closed: bool,
}

/// A task that is woken by changes.
pub(super) struct TaskRegistration {
    worker: Rc<Worker>,
    index: usize,
}

/// A connection with a task.
pub(super) struct ActiveConnection {
    waits: TaskRegistration,
    _counted: ActiveTask,
}

impl Worker {
    pub(super) fn new(
        parking_lot: Rc<ParkingLot>,
        channels: Rc<ChannelEngine>,
        router: BuiltRouter,
        access_log: Option<Rc<AccessLogWriter>>,
        counters: Arc<EngineCounters>,
    ) -> Worker {
        let router = router.put_to_use();
        let config = router.config();
        Worker {
            parking_lot,
            channels,
            counters,
            timeouts: Cell::new(config.timeouts),
            limits: Cell::new(config.limits),
            router: RefCell::new(Rc::new(router)),
            access_log: RefCell::new(access_log),
            draining: Cell::new(false),
            is_parking_at_once: Cell::new(false),
            tasks: RefCell::default(),
        }
    }

    pub(super) fn router(&self) -> Rc<Router> {
        self.router.borrow().clone()
    }

    pub(super) fn access_log(&self) -> Option<Rc<AccessLogWriter>> {
        self.access_log.borrow().clone()
    }

    /// Whether the access log has the server names that clients ask for.
    pub(super) fn logs_server_names(&self) -> bool {
        self.access_log.borrow().as_ref().is_some_and(|log| log.log().has_server_names())
    }

    /// Serves requests by another configuration from now on.
    pub(super) fn change(&self, router: BuiltRouter, access_log: Option<Rc<AccessLogWriter>>) {
        let before = self.access_log.replace(access_log.clone());
        if let (Some(before), Some(next)) = (before, access_log) {
            // Requests under way have it.
            before.change(next.log());
            self.access_log.replace(Some(before));
        }
        let new = Rc::new(router.put_to_use());
        self.timeouts.set(new.config().timeouts);
        self.limits.set(new.config().limits);
        superpoll_http::upstream::limit_spooled_bytes(new.config().limits.spool_bytes);
        // The parts of the old router end only after the new one is in its place.
        let old = self.router.replace(new.clone());
        old.retire(Some(&new));
    }

    /// How often a connection's task looks at the time.
    pub(super) fn tick(&self) -> Duration {
        let timeouts = self.timeouts.get();
        let shortest = timeouts.park.min(timeouts.idle).min(timeouts.header).min(timeouts.body);
        (shortest / 4).clamp(Duration::from_millis(5), Duration::from_secs(1))
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Closes idle connections, and busy connections as soon as they have answered.
    pub(super) fn drain(&self) {
        self.draining.set(true);
        self.router().retire(None);
        self.parking_lot.drain();
        self.wake();
    }

    /// Parks idle connections at once: they are about to belong to another server.
    pub(super) fn park_idle_connections(&self) {
        let timeouts = self.timeouts.get();
        self.timeouts.set(Timeouts { park: Duration::ZERO, ..timeouts });
        self.is_parking_at_once.set(true);
        self.wake();
    }

    /// Leaves idle connections to another server; clients that are answered from here on are told
    /// to connect again.
    pub(super) fn hand_over(&self) {
        self.parking_lot.hand_over();
        self.draining.set(true);
        self.wake();
    }

    pub(super) fn is_parking_at_once(&self) -> bool {
        self.is_parking_at_once.get()
    }

    /// Makes all tasks check for changes.
    pub(super) fn wake(&self) {
        let wakers: Vec<Waker> =
            self.tasks.borrow().iter().map(|(_, task)| task.waker.clone()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Counts a task in.
    pub(super) fn wait(self: &Rc<Worker>) -> TaskRegistration {
        self.register(None)
    }

    fn register(self: &Rc<Worker>, connection: Option<TaskConnection>) -> TaskRegistration {
        let task = Task { waker: Waker::noop().clone(), connection };
        let index = self.tasks.borrow_mut().insert(task);
        TaskRegistration { worker: self.clone(), index }
    }

    /// Counts a connection that has a task.
    pub(super) fn begin(
        self: &Rc<Worker>,
        peer: &Rc<Peer>,
        protocol: Protocol,
    ) -> ActiveConnection {
        let connection = TaskConnection { peer: peer.clone(), protocol, is_closed: false };
        let waits = self.register(Some(connection));
        ActiveConnection { waits, _counted: ActiveTask::begin(&self.counters) }
    }

    /// Looks at connections that have a task, from a place on and at some places. Returns the place
    /// to continue at, if there are further ones.
    pub(super) fn visit(
        &self,
        from: usize,
        most: usize,
        mut look: impl FnMut(&TaskConnection),
    ) -> Option<usize> {
        let tasks = self.tasks.borrow();
        let end = from.saturating_add(most);
        let all = (from..end).filter_map(|index| tasks.get(index));
        all.filter_map(|task| task.connection.as_ref()).for_each(&mut look);
        (end < tasks.capacity()).then_some(end)
    }

    /// Closes the connections with a task that are chosen, and returns how many.
    pub(super) fn close(&self, choose: impl Fn(&Peer) -> bool) -> u64 {
        let mut wakers = Vec::new();
        for (_, task) in self.tasks.borrow_mut().iter_mut() {
            let Some(connection) = &mut task.connection else { continue };
            if !connection.is_closed && choose(&connection.peer) {
                connection.is_closed = true;
                wakers.push(task.waker.clone());
            }
        }
        let count = wakers.len() as u64;
        wakers.into_iter().for_each(Waker::wake);
        count
    }
}

impl TaskRegistration {
    /// Remembers a task, to be woken by the next change. Returns whether it is to close its
    /// connection.
    pub(super) fn remember(&self, waker: &Waker) -> bool {
        let mut tasks = self.worker.tasks.borrow_mut();
        let Some(known) = tasks.get_mut(self.index) else { return false };
        if !known.waker.will_wake(waker) {
            known.waker = waker.clone();
        }
        known.connection.as_ref().is_some_and(|connection| connection.is_closed)
    }
}

impl ActiveConnection {
    /// As [`TaskRegistration::remember`].
    pub(super) fn remember(&self, waker: &Waker) -> bool {
        self.waits.remember(waker)
    }

    /// Runs the protocol for which the connection has left HTTP, until it ends or an operator
    /// closes the connection.
    pub(super) async fn run_upgraded(&self, upgraded: LocalFuture) {
        if let Some(task) = self.waits.worker.tasks.borrow_mut().get_mut(self.waits.index)
            && let Some(connection) = &mut task.connection
        {
            connection.protocol = Protocol::Upgraded;
        }
        let closed = poll_fn(|cx| match self.remember(cx.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        });
        or(closed, upgraded).await;
    }
}

impl Drop for TaskRegistration {
    fn drop(&mut self) {
        // The peer may end with it, and with the peer what it holds.
        let task = self.worker.tasks.borrow_mut().remove(self.index);
        drop(task);
    }
}

// The parts of a server that its supervisor asks about, if it is one of several processes.

/// The parts of a server that the supervisor asks about.
pub(super) struct ServerSource {
    // Not all of `Shared`, which has the connection to the supervisor, and so this.
    pub(super) overview: Arc<Overview>,
    pub(super) tickets: Arc<TicketSecrets>,
    pub(super) statistics: Arc<Subject>,
    pub(super) operations: Arc<ServerOperations>,
}

impl Source for ServerSource {
    fn tickets(&self) -> &Arc<TicketSecrets> {
        &self.tickets
    }

    fn set(&self, settings: Settings) {
        self.operations.set(settings);
    }

    fn counters(&self) -> Counters {
        let (overview, statistics) = (self.overview.clone(), self.statistics.clone());
        let kept = Rc::new(Kept::default());
        Rc::new(move |question| {
            let (overview, statistics, kept) = (overview.clone(), statistics.clone(), kept.clone());
            Box::pin(async move {
                match question {
                    Question::Overview => overview.encoded().await,
                    Question::Engines => overview.encoded_engines().await,
                    Question::Traffic(channels) => overview.encoded_traffic(&channels).await,
                    Question::Statistics(channels) => {
                        postcard::to_allocvec(&kept.take_snapshot(statistics, channels).await).ok()
                    }
                    Question::Operation(operation) => {
                        Some(statistics.carry_out_json(&operation).await.0)
                    }
                }
            })
        })
    }
}
