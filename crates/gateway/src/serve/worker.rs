//! An engine's part of the server: its parking lot, its routes, and the tasks that are at work on
//! it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use slab::Slab;

use crate::channel::ChannelEngine;
use crate::config::{Limits, Timeouts};
use crate::log::AccessLogWriter;
use crate::parking_lot::ParkingLot;
use crate::telemetry::counters::{ActiveTask, EngineCounters};

use super::router::Router;

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
    tasks: RefCell<Slab<Waker>>,
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
        router: Router,
        access_log: Option<Rc<AccessLogWriter>>,
        counters: Arc<EngineCounters>,
        timeouts: Timeouts,
        limits: Limits,
    ) -> Worker {
        Worker {
            parking_lot,
            channels,
            counters,
            router: RefCell::new(Rc::new(router)),
            access_log: RefCell::new(access_log),
            timeouts: Cell::new(timeouts),
            limits: Cell::new(limits),
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

    /// Serves requests by another configuration from now on.
    pub(super) fn change(
        &self,
        router: Router,
        access_log: Option<Rc<AccessLogWriter>>,
        timeouts: Timeouts,
        limits: Limits,
    ) {
        let _old = self.access_log.replace(access_log);
        self.timeouts.set(timeouts);
        self.limits.set(limits);
        let new = Rc::new(router);
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
            self.tasks.borrow().iter().map(|(_, waker)| waker.clone()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Counts a task in.
    pub(super) fn wait(self: &Rc<Worker>) -> TaskRegistration {
        let index = self.tasks.borrow_mut().insert(Waker::noop().clone());
        TaskRegistration { worker: self.clone(), index }
    }

    /// Counts a connection that has a task.
    pub(super) fn begin(self: &Rc<Worker>) -> ActiveConnection {
        ActiveConnection { waits: self.wait(), _counted: ActiveTask::begin(&self.counters) }
    }
}

impl TaskRegistration {
    /// Remembers a task, to be woken by the next change.
    pub(super) fn remember(&self, waker: &Waker) {
        if let Some(known) = self.worker.tasks.borrow_mut().get_mut(self.index)
            && !known.will_wake(waker)
        {
            *known = waker.clone();
        }
    }
}

impl ActiveConnection {
    /// As [`TaskRegistration::remember`].
    pub(super) fn remember(&self, waker: &Waker) {
        self.waits.remember(waker);
    }
}

impl Drop for TaskRegistration {
    fn drop(&mut self) {
        self.worker.tasks.borrow_mut().remove(self.index);
    }
}
