//! The servers of an engine.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;

use superpoll_rt::JoinHandle;

use super::listener_context::ListenerContext;
use super::worker::Worker;

use crate::config::Address;

/// The parts of one server that an engine keeps.
pub(super) struct LocalServer {
    pub(super) worker: Rc<Worker>,
    /// If it is set to true, the tasks that accept end.
    pub(super) closed: RefCell<Rc<Cell<bool>>>,
    /// The tasks that accept for the generation in use.
    pub(super) accepting: RefCell<Vec<JoinHandle<()>>>,
    /// The number of the newest generation, by the order in which they came.
    pub(super) generation: Cell<u64>,
    /// The listeners that speak HTTP.
    pub(super) contexts: RefCell<Vec<(Address, Rc<ListenerContext>)>>,
}

impl LocalServer {
    /// Returns the listener that a connection to an address belongs to, encrypted or not.
    pub(super) fn context(
        &self,
        to: SocketAddr,
        is_encrypted: bool,
    ) -> Option<Rc<ListenerContext>> {
        let contexts = self.contexts.borrow();
        let mut alike =
            contexts.iter().filter(|(_, context)| context.is_encrypted() == is_encrypted);
        alike.find(|(address, _)| address.covers(to)).map(|(_, context)| context.clone())
    }
}

thread_local! {
    pub(super) static SERVERS: RefCell<HashMap<u64, Rc<LocalServer>>> = RefCell::default();
}

/// Returns the engine's parts of a server.
pub(super) fn local_server(server: u64) -> Option<Rc<LocalServer>> {
    SERVERS.with(|servers| servers.borrow().get(&server).cloned())
}
