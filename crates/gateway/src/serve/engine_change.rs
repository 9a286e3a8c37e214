//! One engine's way to another generation.
//!
//! The routes are built some at a time, and the engine serves by the routes before until all are
//! there. Then the routes and the listeners change in one step. If another generation comes to the
//! engine meanwhile, this one is dropped: the next one would not know the channels that this one
//! has made.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use futures_channel::oneshot;
use superpoll_http::log::AccessLogWriter;
use superpoll_http::parking_lot::ParkingLot;
use superpoll_hub::channel::ChannelEngine;
use superpoll_rt::{next_turn, spawn};

use super::accepting::{self, Accepting};
use super::generation::{EngineTables, Generation};
use super::listener_context::{ListenerContext, Opening};
use super::local::{LocalServer, SERVERS, local_server};
use super::opening::Part;
use super::router::{BuiltRouter, RouterBuilder, SLICE};
use super::shared::Shared;
use super::worker::Worker;

/// A generation for one engine.
pub(super) struct EngineChange {
    pub shared: Arc<Shared>,
    pub generation: Arc<Generation>,
    /// The number of the engine.
    pub engine: usize,
    pub tables: EngineTables,
    pub part: Part,
    /// Is told when the engine serves this generation and has closed the listeners of the one
    /// before; dropped, if a later one has come.
    pub serves: oneshot::Sender<()>,
}

impl EngineChange {
    /// Begins the change, on the engine.
    pub(super) fn begin(mut self) {
        let tables = std::mem::take(&mut self.tables);
        let Some(local) = local_server(self.shared.number) else {
            let Some(parking_lot) = self.part.parking_lot.take() else { return };
            let counters = self.shared.engines[self.engine].clone();
            let parking_lot = ParkingLot::open(parking_lot, counters, self.shared.report.clone());
            let channels = ChannelEngine::new(parking_lot.clone());
            // No request waits yet.
            let (shared, generation) = (&self.shared, &self.generation);
            let mut builder = RouterBuilder::new(shared, generation, tables, &channels, None);
            while !builder.step(usize::MAX) {}
            return self.start(parking_lot, channels, builder.finish());
        };
        local.generation.set(self.generation.number);
        let (channels, before) = (&local.worker.channels, local.worker.router());
        let (shared, generation) = (&self.shared, &self.generation);
        let mut builder = RouterBuilder::new(shared, generation, tables, channels, Some(&before));
        drop((before, local));
        if builder.step(SLICE) {
            return self.finish(builder.finish());
        }
        let task = async move {
            while self.is_newest() && !builder.step(SLICE) {
                next_turn().await;
            }
            if self.is_newest() {
                return self.finish(builder.finish());
            }
            drop(self);
            builder.give_up();
        };
        spawn(task).detach();
    }

    /// Serves the first generation of this engine.
    fn start(self, parking_lot: Rc<ParkingLot>, channels: Rc<ChannelEngine>, router: BuiltRouter) {
        let access_log = self.access_log();
        let counters = self.shared.engines[self.engine].clone();
        let worker = Worker::new(parking_lot, channels, router, access_log, counters);
        let local = Rc::new(LocalServer {
            worker: Rc::new(worker),
            closed: RefCell::default(),
            accepting: RefCell::default(),
            generation: Cell::new(self.generation.number),
            contexts: RefCell::default(),
        });
        SERVERS.with(|servers| servers.borrow_mut().insert(self.shared.number, local.clone()));
        self.listen(&local);
    }

    fn access_log(&self) -> Option<Rc<AccessLogWriter>> {
        self.generation.log.clone().map(AccessLogWriter::new)
    }

    /// Whether no other generation has come to the engine since this one.
    fn is_newest(&self) -> bool {
        local_server(self.shared.number)
            .is_none_or(|local| local.generation.get() == self.generation.number)
    }

    /// Changes from the generation before to this one.
    fn finish(self, router: BuiltRouter) {
        // The server may have stopped meanwhile.
        let Some(local) = local_server(self.shared.number) else { return };
        local.worker.change(router, self.access_log());
        self.listen(&local);
    }

    /// Accepts connections at the listeners of this generation, and at no others.
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
                shared: self.shared.clone(),
                refusals: accepting::refusals(),
                failures: accepting::refusals(),
            };
            tasks.push(spawn(accepting.run(listener)));
        }
        local.contexts.replace(contexts);
        let former = local.accepting.replace(tasks);
        let tell = async move {
            // The addresses that this generation does not have are free then.
            for task in former {
                let _ = task.await;
            }
            // The change may have been given up.
            let _ = self.serves.send(());
        };
        spawn(tell).detach();
    }
}
