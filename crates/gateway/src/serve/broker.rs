//! The broker of a server, which another configuration may change.

use std::sync::Arc;

use superpoll_rt::{BackendKind, Runtime};

use super::{Error, Server, failed};
use crate::broker::Broker;
use crate::config::{self, Config};

/// Finds out whether a broker can be used. This takes a runtime of its own: the caller may be a task of
/// the server's.
fn check(wanted: &config::Broker) -> Result<(), String> {
    let connects = || {
        let runtime = Runtime::builder().backend(BackendKind::Epoll).build();
        let runtime = runtime.map_err(|error| format!("looking at the broker: {error}"))?;
        runtime.block_on(Broker::check(wanted))
    };
    std::thread::scope(|scope| scope.spawn(connects).join())
        .unwrap_or_else(|_| Err("looking at the broker has failed".to_owned()))
}

impl Server {
    /// Returns the broker of a configuration, which is the one that there is if nothing about it
    /// changes. A broker that cannot be used at all is an error; one that is away is none.
    pub(super) fn open_broker(&self, config: &Config) -> Result<Option<Arc<Broker>>, Error> {
        let Some(wanted) = &config.broker else { return Ok(None) };
        if let Some(broker) = self.broker.as_ref().filter(|broker| broker.config() == wanted) {
            return Ok(Some(broker.clone()));
        }
        check(wanted).map_err(failed)?;
        Ok(Some(Broker::new(wanted, self.report.clone())))
    }

    /// Begins to work with the broker of a configuration, and ends the one before.
    pub(super) fn take_on_broker(&mut self, broker: Option<Arc<Broker>>) -> Result<(), Error> {
        let is_same = match (&self.broker, &broker) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        if is_same {
            return Ok(());
        }
        if let Some(broker) = &broker {
            let connector = Broker::connector(broker.config()).map_err(failed)?;
            broker
                .start(&self.handle, connector)
                .map_err(|error| failed(format!("starting to read from the broker: {error}")))?;
        }
        if let Some(before) = std::mem::replace(&mut self.broker, broker) {
            before.end();
        }
        Ok(())
    }
}
