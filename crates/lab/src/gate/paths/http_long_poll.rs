//! A request that waits for a message in the parking lot, without a task, and is answered when a
//! message arrives.

use superpoll_gateway::Config;
use superpoll_rt::yield_now;

use super::http;
use crate::error::Result;
use crate::gate::paths::work::{Work, in_tasks, said, wrong};

const CONFIGURATION: &str = "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
     [[hosts]]\n[[hosts.routes]]\npath = \"/news\"\n[hosts.routes.channel]\nhistory = 1\n";

const REQUEST: &[u8] = b"GET /news HTTP/1.1\r\nhost: localhost\r\n\r\n";

pub(super) fn set_up() -> Result<Box<dyn Work>> {
    let config = Config::parse("long-poll", CONFIGURATION).map_err(said)?;
    let (runtime, server, connection) = http::start(&config)?;
    let Some(hub) = server.channel("", "/news") else {
        return wrong("http-long-poll", "there is no channel");
    };
    in_tasks(runtime, connection, "waiting for a message", move |mut connection, count| {
        let _ = &server;
        let hub = hub.clone();
        async move {
            for _ in 0..count {
                connection.ask(REQUEST).await?;
                while hub.subscribers() == 0 {
                    yield_now().await;
                }
                hub.publish(&b"tick"[..]);
                connection.hear(b"\"}\n").await?;
            }
            Ok(connection)
        }
    })
}
