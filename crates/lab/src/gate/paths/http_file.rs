//! A file of 1 KiB from the web server, over a keep-alive connection.

use std::path::Path;

use superpoll_gateway::config::Listener;
use superpoll_gateway::{Address, Config};

use super::http::{self, BODY, REQUEST};
use crate::error::{Error, Result};
use crate::gate::paths::work::{Work, in_tasks};
use crate::sys::process;

/// The age of the file at the first request, in nanoseconds.
const AGE: u64 = 2_100_000_000;

pub(super) fn set_up() -> Result<Box<dyn Work>> {
    let failed = |e| Error::system("making a folder to be served", e);
    let folder = tempfile::tempdir().map_err(failed)?;
    std::fs::write(folder.path().join("small.txt"), BODY).map_err(failed)?;
    // A file that has just changed may change again within the resolution of its time stamp, so the
    // server reads it anew each second.
    process::sleep(AGE);
    let config = configuration(folder.path());
    let (runtime, server, connection) = http::start(&config)?;
    in_tasks(runtime, connection, "asking for a file", move |mut connection, count| {
        let _ = (&server, &folder);
        async move {
            for _ in 0..count {
                connection.ask(REQUEST).await?;
                connection.hear(BODY).await?;
            }
            Ok(connection)
        }
    })
}

fn configuration(folder: &Path) -> Config {
    let mut config = Config::folder(folder);
    let address = Address::Tcp { host: Some("127.0.0.1".to_owned()), port: 0 };
    config.listeners = vec![Listener::plain(address)];
    config
}
