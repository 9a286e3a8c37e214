//! A small file from the web server, over a keep-alive connection.

use std::path::Path;

use superpoll_gateway::config::Listener;
use superpoll_gateway::serve::Server;
use superpoll_gateway::{Address, Config};
use superpoll_rt::{Runtime, spawn};
use tempfile::TempDir;

use super::http::{self, Connection};
use crate::error::{Error, Result};
use crate::gate::counted::{self, Counted};
use crate::gate::paths::work::{Work, said, wrong};
use crate::http::BODY;
use crate::sys::process;

const REQUEST: &[u8] = b"GET /hello.txt HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// The age of the file at the first request, in nanoseconds.
const AGE: u64 = 2_100_000_000;

struct Files {
    connection: Option<Connection>,
    _server: Server,
    runtime: Runtime,
    _folder: TempDir,
}

pub(super) fn set_up() -> Result<Box<dyn Work>> {
    let failed = |e| Error::system("making a folder to be served", e);
    let folder = tempfile::tempdir().map_err(failed)?;
    std::fs::write(folder.path().join("hello.txt"), BODY).map_err(failed)?;
    // A file that has just changed may change again within the resolution of its time stamp, so the
    // server reads it anew each second.
    process::sleep(AGE);
    let config = configuration(folder.path());
    let (runtime, server, connection) = http::start(&config)?;
    let connection = Some(connection);
    Ok(Box::new(Files { connection, _server: server, runtime, _folder: folder }))
}

fn configuration(folder: &Path) -> Config {
    let mut config = Config::folder(folder);
    let address = Address::Tcp { host: Some("127.0.0.1".to_owned()), port: 0 };
    config.listeners = vec![Listener::plain(address)];
    config
}

impl Work for Files {
    fn operate(&mut self, count: u64) -> Result<()> {
        let Some(mut connection) = self.connection.take() else {
            return wrong("http-file", "the connection is broken");
        };
        let ask = async move {
            for _ in 0..count {
                connection.ask(REQUEST).await?;
                connection.hear(BODY).await?;
            }
            Ok(connection)
        };
        let asked = self.runtime.block_on(async { spawn(ask).await }).map_err(said)?;
        let asked: std::io::Result<_> = asked.map_err(said)?;
        self.connection = Some(asked.map_err(|e| Error::system("asking for a file", e))?);
        Ok(())
    }

    fn counted(&self) -> Counted {
        counted::of_runtime(&self.runtime)
    }
}
