//! An echo with the TCP relay in between, on the same engine.

use superpoll_gateway::relay::{Options, Relay};

use super::echo;
use crate::error::Result;
use crate::gate::paths::work::{Work, said};

pub(super) fn set_up() -> Result<Box<dyn Work>> {
    echo::through(|runtime, origin| {
        let listen = "127.0.0.1:0".parse().map_err(said)?;
        let to = origin.to_string().parse().map_err(said)?;
        // If the relay fails, the client fails.
        let relay = Relay::start(runtime, &listen, &to, Options::default(), |_| {});
        let relay = relay.map_err(said)?;
        let listening = relay.listening().to_string().parse().map_err(said)?;
        Ok((listening, relay))
    })
}
