//! In the place of Redis and Valkey, where the feature `redis` is off. A configuration with a
//! broker is refused when it is read, and one that a program has made itself is refused here.

use std::sync::Arc;

use superpoll_rt::Handle;

use super::{Broker, WITHOUT_REDIS};

/// Refuses a broker.
///
/// # Errors
///
/// Always, with the advice to build it with the feature.
pub async fn check(_config: &superpoll_config::Broker) -> Result<(), String> {
    Err(WITHOUT_REDIS.to_owned())
}

pub(super) fn start(
    _broker: &Arc<Broker>,
    _config: &superpoll_config::Broker,
    _handle: &Handle,
) -> Result<(), String> {
    Err(WITHOUT_REDIS.to_owned())
}
