//! `superpoll serve`'s server with a folder, in a process of its own, which reports its poller's
//! counters.

use std::path::Path;

use superpoll::BackendKind;
use superpoll_gateway::config::Listener;
use superpoll_gateway::serve::Server;
use superpoll_gateway::{Address, Config};

use crate::error::{Error, Result};
use crate::server::{Control, runtime};

/// A connection may be silent during the turns of all other servers.
const SILENCE: std::time::Duration = std::time::Duration::from_secs(3600);

/// Serves a folder on a port indefinitely, as without a configuration: no access log, one engine.
pub(super) fn serve(
    backend: BackendKind,
    root: &Path,
    port: u16,
    control: &mut Control,
) -> Result<()> {
    let mut config = Config::folder(root);
    let address = Address::Tcp { host: Some("127.0.0.1".to_owned()), port };
    config.listeners = vec![Listener::plain(address)];
    config.timeouts.idle = SILENCE;
    runtime::serve(backend, control, |runtime| {
        // A client that is not served gets no answer, which the load generator notices.
        Server::start(runtime, &config, |_| {}).map_err(|error| Error::usage(error.to_string()))
    })
}
