//! One engine's way to another configuration.
//!
//! The routes are built some at a time, and the engine serves by the routes before until all are
//! there. Then the routes and the listeners change in one step. If another configuration comes to
//! the engine meanwhile, this one is dropped: the next one would not know the channels that this
//! one has made.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use futures_channel::oneshot;
use superpoll_http::admin_connections::AdminConnections;
use superpoll_http::connection_limits::ConnectionLimits;
use superpoll_http::log::{AccessLogSink, AccessLogWriter, Report};
use superpoll_http::parking_lot::ParkingLot;
use superpoll_http::telemetry::counters::EngineCounters;
use superpoll_hub::channel::ChannelEngine;
use superpoll_rt::{next_turn, spawn};

use super::accepting::{self, Accepting};
use super::listener_context::{ListenerContext, Opening};
use super::local::{LocalServer, SERVERS, local_server};
use super::opening::Part;
use super::router::{Blueprint, BuiltRouter, SLICE};
use super::worker::Worker;
use crate::config::{Limits, Timeouts};

/// The parts of a configuration for one engine.
pub(super) struct EngineChange {
    /// The number of the server.
    pub server: u64,
    /// The number of the configuration.
    pub configuration: u64,
    pub log: Option<Arc<AccessLogSink>>,
    pub timeouts: Timeouts,
    pub limits: Limits,
    pub counters: Arc<EngineCounters>,
    pub connection_limits: Arc<ConnectionLimits>,
    pub admin_connections: Arc<AdminConnections>,
    pub report: Report,
    pub part: Part,
    /// Is told when the engine serves this configuration and has closed the listeners of the one
    /// before; dropped, if a later one has come.
    pub serves: oneshot::Sender<()>,
}

impl EngineChange {
    /// Begins the change, on the engine.
    pub(super) fn begin(mut self, blueprint: Blueprint) {
        let Some(local) = local_server(self.server) else {
            let Some(parking_lot) = self.part.parking_lot.take() else { return };
            let (counters, report) = (self.counters.clone(), self.report.clone());
            let parking_lot = ParkingLot::open(parking_lot, counters, report);
            let channels = ChannelEngine::new(parking_lot.clone());
            // No request waits yet.
            let mut builder = blueprint.begin(&channels, None);
            while !builder.step(usize::MAX) {}
            return self.start(parking_lot, channels, builder.finish());
        };
        local.configuration.set(self.configuration);
        let before = local.worker.router();
        let mut builder = blueprint.begin(&local.worker.channels, Some(&before));
        drop((before, local));
        if builder.step(SLICE) {
            return self.finish(builder.finish());
        }
        let task = async move {
            while self.is_newest() && !builder.step(SLICE) {
                next_turn().await;
            }
            if self.is_newest() {
                self.finish(builder.finish());
            }
        };
        spawn(task).detach();
    }

    /// Serves the first configuration of this engine.
    fn start(self, parking_lot: Rc<ParkingLot>, channels: Rc<ChannelEngine>, router: BuiltRouter) {
        let worker = Worker::new(
            parking_lot,
            channels,
            router,
            self.log.clone().map(AccessLogWriter::new),
            self.counters.clone(),
            self.timeouts,
            self.limits,
        );
        let local = Rc::new(LocalServer {
            worker: Rc::new(worker),
            closed: RefCell::default(),
            accepting: RefCell::default(),
            configuration: Cell::new(self.configuration),
            contexts: RefCell::default(),
        });
        SERVERS.with(|servers| servers.borrow_mut().insert(self.server, local.clone()));
        self.listen(&local);
    }

    /// Whether no other configuration has come to the engine since this one.
    fn is_newest(&self) -> bool {
        local_server(self.server)
            .is_none_or(|local| local.configuration.get() == self.configuration)
    }

    /// Changes from the configuration before to this one.
    fn finish(self, router: BuiltRouter) {
        // The server may have stopped meanwhile.
        let Some(local) = local_server(self.server) else { return };
        let access_log = self.log.clone().map(AccessLogWriter::new);
        local.worker.change(router, access_log, self.timeouts, self.limits);
        self.listen(&local);
    }

    /// Accepts connections at the listeners of this configuration, and at no others.
    fn listen(self, local: &LocalServer) {
        let closed = Rc::new(Cell::new(false));
        local.closed.replace(closed.clone()).set(true);
        local.worker.wake();
        let (mut contexts, mut tasks) = (Vec::new(), Vec::new());
        for opening in self.part.openings {
            let context = Rc::new(ListenerContext::new(local.worker.clone(), &opening));
            let Opening { listener, on, .. } = opening;
            contexts.push((on.clone(), context.clone()));
            let accepting = Accepting {
                local: on.only(),
                on,
                worker: local.worker.clone(),
                context,
                closed: closed.clone(),
                connection_limits: self.connection_limits.clone(),
                admin_connections: self.admin_connections.clone(),
                report: self.report.clone(),
                refusals: accepting::refusals(),
                failures: accepting::refusals(),
            };
            tasks.push(spawn(accepting.run(listener)));
        }
        local.contexts.replace(contexts);
        let former = local.accepting.replace(tasks);
        let tell = async move {
            // The addresses that this configuration does not have are free then.
            for task in former {
                let _ = task.await;
            }
            // The change may have been given up.
            let _ = self.serves.send(());
        };
        spawn(tell).detach();
    }
}
