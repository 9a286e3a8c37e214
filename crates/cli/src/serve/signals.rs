//! The signals that a server takes.

use std::io;

use futures_lite::future::or;
use superpoll_rt::signal::{Signal, SignalKind, signal};

/// The request that a signal makes.
pub(super) enum Request {
    /// SIGTERM or SIGINT.
    End,
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGUSR1: open the files of the logs again.
    ReopenLogs,
    /// SIGUSR2: let another program take over.
    Upgrade,
}

/// All of them, from the moment that it was made.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    reopen: Signal,
    upgrade: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
            upgrade: signal(SignalKind::user_defined2())?,
        })
    }

    /// Waits for the next signal. A future that is dropped before it is ready has taken no signal.
    pub(super) async fn recv(&mut self) -> io::Result<Request> {
        let Signals { terminate, interrupt, hang_up, reopen, upgrade } = self;
        let ends = async {
            or(terminate.recv(), interrupt.recv()).await?;
            io::Result::Ok(Request::End)
        };
        let reloads = async {
            hang_up.recv().await?;
            Ok(Request::Reload)
        };
        let upgrades = async {
            upgrade.recv().await?;
            Ok(Request::Upgrade)
        };
        let reopens = async {
            reopen.recv().await?;
            Ok(Request::ReopenLogs)
        };
        or(or(ends, reopens), or(reloads, upgrades)).await
    }

    /// Waits for SIGINT, and for SIGTERM too in a process that is no worker. Calls `reopen` for
    /// each SIGUSR1 meanwhile.
    pub(super) async fn end_of_drain(
        &mut self,
        is_worker: bool,
        reopen: impl Fn(),
    ) -> io::Result<()> {
        let Signals { terminate, interrupt, reopen: moved, .. } = self;
        let ends = async {
            match is_worker {
                true => interrupt.recv().await,
                false => or(terminate.recv(), interrupt.recv()).await,
            }
        };
        let reopens = async {
            loop {
                moved.recv().await?;
                reopen();
            }
        };
        or(ends, reopens).await
    }
}
