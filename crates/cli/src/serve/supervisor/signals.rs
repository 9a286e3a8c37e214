//! The signals that a supervisor takes.

use std::io;

use futures_lite::future::or;
use superpoll_rt::signal::{Signal, SignalKind, signal};

use super::Happening;

/// All of them, from the moment that it was made.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    user: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            user: signal(SignalKind::user_defined2())?,
        })
    }

    /// Waits for the next one. Dropped before it is ready, it has taken none.
    pub(super) async fn recv(&mut self) -> io::Result<Happening> {
        let Signals { terminate, interrupt, hang_up, user } = self;
        let ends = async {
            or(terminate.recv(), interrupt.recv()).await?;
            io::Result::Ok(Happening::End)
        };
        let reloads = async {
            hang_up.recv().await?;
            Ok(Happening::Reload)
        };
        let upgrades = async {
            user.recv().await?;
            Ok(Happening::Upgrade)
        };
        or(or(ends, reloads), upgrades).await
    }
}
