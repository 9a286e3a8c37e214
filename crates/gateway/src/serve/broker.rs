//! The engines that keep the messages of a server, which another configuration may change.

use std::sync::Arc;

use superpoll_hub::broker::{Broker, Brokers, Engine, redis};
use superpoll_rt::{BackendKind, Runtime};

use super::{Error, Server, failed};
use crate::config::{self, Config};

/// Finds out whether a broker can be used. This takes a runtime of its own: the caller may be a
/// task of the server's.
fn check(wanted: &config::Broker) -> Result<(), String> {
    let connects = || {
        let runtime = Runtime::builder().backend(BackendKind::Epoll).build();
        let runtime = runtime.map_err(|error| format!("looking at the broker: {error}"))?;
        runtime.block_on(redis::check(wanted))
    };
    std::thread::scope(|scope| scope.spawn(connects).join())
        .unwrap_or_else(|_| Err("looking at the broker has failed".to_owned()))
}

impl Server {
    /// Returns the engines of a configuration: those that there are, where nothing changes. A
    /// broker that cannot be used at all is an error; one that is away is none.
    pub(super) fn open_brokers(&self, config: &Config) -> Result<Brokers, Error> {
        let local = self.brokers.local.clone().or_else(|| {
            let engine = Engine::Supervisor(self.worker.as_ref()?.log());
            Some(Broker::new(engine, self.report.clone()))
        });
        let Some(wanted) = &config.broker else { return Ok(Brokers { shared: None, local }) };
        let known = self.brokers.shared.as_ref();
        if let Some(broker) = known.filter(|broker| broker.config() == Some(wanted)) {
            return Ok(Brokers { shared: Some(broker.clone()), local });
        }
        check(wanted).map_err(failed)?;
        let broker = Broker::new(Engine::Redis(wanted.clone()), self.report.clone());
        Ok(Brokers { shared: Some(broker), local })
    }

    /// Begins to work with the engines of a configuration, and ends those before.
    pub(super) fn take_on_brokers(&mut self, brokers: Brokers) -> Result<(), Error> {
        let has = |all: &Brokers, one: &Arc<Broker>| all.all().any(|it| Arc::ptr_eq(it, one));
        for broker in brokers.all().filter(|broker| !has(&self.brokers, broker)) {
            broker.open(&self.handle).map_err(failed)?;
        }
        let before = std::mem::replace(&mut self.brokers, brokers);
        before.all().filter(|broker| !has(&self.brokers, broker)).for_each(|broker| broker.end());
        Ok(())
    }
}
