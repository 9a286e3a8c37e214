//! The engines that keep the messages of a server, which another configuration may change.

use superpoll_hub::broker::{Broker, Brokers, Engine, redis};
use superpoll_rt::{BackendKind, Runtime};

use super::error::Error;
use super::shared::Shared;
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

/// Returns the engines of a configuration: those that there are, where nothing changes. A broker
/// that cannot be used at all is an error; one that is away is none.
pub(super) fn open(former: &Brokers, config: &Config, server: &Shared) -> Result<Brokers, Error> {
    let local = former.local.clone().or_else(|| {
        let engine = Engine::Supervisor(server.worker.as_ref()?.log());
        Some(Broker::new(engine, server.report.clone()))
    });
    let Some(wanted) = &config.broker else { return Ok(Brokers { shared: None, local }) };
    let known = former.shared.as_ref();
    if let Some(broker) = known.filter(|broker| broker.config() == Some(wanted)) {
        return Ok(Brokers { shared: Some(broker.clone()), local });
    }
    check(wanted).map_err(Error::Broker)?;
    let broker = Broker::new(Engine::Redis(wanted.clone()), server.report.clone());
    Ok(Brokers { shared: Some(broker), local })
}
