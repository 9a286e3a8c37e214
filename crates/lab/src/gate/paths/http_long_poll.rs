//! A request that waits for a message in the parking lot, without a task, and is answered when a
//! message arrives.

use std::sync::Arc;

use superpoll_gateway::Config;
use superpoll_gateway::channel::Hub;
use superpoll_gateway::serve::Server;
use superpoll_rt::{Runtime, spawn, yield_now};

use super::http::{self, Connection};
use crate::error::{Error, Result};
use crate::gate::counted::{self, Counted};
use crate::gate::paths::work::{Work, said, wrong};

const CONFIGURATION: &str = "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
     [[hosts]]\n[[hosts.routes]]\npath = \"/news\"\n[hosts.routes.channel]\nhistory = 1\n";

const REQUEST: &[u8] = b"GET /news HTTP/1.1\r\nhost: localhost\r\n\r\n";

struct LongPoll {
    connection: Option<Connection>,
    hub: Arc<Hub>,
    _server: Server,
    runtime: Runtime,
}

pub(super) fn set_up() -> Result<Box<dyn Work>> {
    let config = Config::parse("long-poll", CONFIGURATION).map_err(said)?;
    let (runtime, server, connection) = http::start(&config)?;
    let Some(hub) = server.channel("", "/news").cloned() else {
        return wrong("http-long-poll", "there is no channel");
    };
    let connection = Some(connection);
    Ok(Box::new(LongPoll { connection, hub, _server: server, runtime }))
}

impl Work for LongPoll {
    fn operate(&mut self, count: u64) -> Result<()> {
        let Some(mut connection) = self.connection.take() else {
            return wrong("http-long-poll", "the connection is broken");
        };
        let hub = self.hub.clone();
        let ask = async move {
            for _ in 0..count {
                connection.ask(REQUEST).await?;
                while hub.subscribers() == 0 {
                    yield_now().await;
                }
                hub.publish(&b"tick"[..]);
                connection.hear(b"\"}\n").await?;
            }
            Ok(connection)
        };
        let asked = self.runtime.block_on(async { spawn(ask).await }).map_err(said)?;
        let asked: std::io::Result<_> = asked.map_err(said)?;
        self.connection = Some(asked.map_err(|e| Error::system("waiting for a message", e))?);
        Ok(())
    }

    fn counted(&self) -> Counted {
        counted::of_runtime(&self.runtime)
    }
}
