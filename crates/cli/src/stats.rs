//! The statistics socket of this process, a server or a proxy.

use std::error::Error;
use std::sync::Arc;

use superpoll_gateway::control::{Socket, SocketPath, Statistics, Subject};

/// Listens at a place. If that place is only the default, a process continues without a socket and
/// passes the error to `warn`.
///
/// # Errors
///
/// A place that was chosen explicitly and is not available.
pub(crate) fn bind(
    place: &SocketPath,
    takes_over: bool,
    warn: impl FnOnce(String),
) -> Result<Option<Socket>, Box<dyn Error>> {
    match Socket::bind(place, takes_over) {
        Err(error) if *place == SocketPath::Default => {
            warn(format!("{error}; `superpoll top` cannot show this process"));
            Ok(None)
        }
        outcome => Ok(outcome?),
    }
}

/// Begins to answer. If that fails, a process that is at work continues without; `warn` receives
/// the error.
pub(crate) fn open(
    socket: Option<Socket>,
    subject: impl Into<Arc<Subject>>,
    warn: impl FnOnce(String),
) -> Option<Statistics> {
    socket?.open(subject).map_err(|error| warn(error.to_string())).ok()
}

/// The statistics socket of a server, whose place a new configuration may change.
pub(crate) struct Kept {
    place: SocketPath,
    /// Closed, and its file removed, on drop.
    _at_work: Option<Statistics>,
}

impl Kept {
    /// Wraps a socket that is at work.
    pub(crate) fn new(place: SocketPath, at_work: Option<Statistics>) -> Kept {
        Kept { place, _at_work: at_work }
    }

    /// Moves the socket to another place, unless it is the same.
    ///
    /// # Errors
    ///
    /// A place that is not available; nothing has changed then.
    pub(crate) fn change(
        &mut self,
        place: SocketPath,
        subject: impl Into<Arc<Subject>>,
    ) -> Result<(), Box<dyn Error>> {
        if place == self.place {
            return Ok(());
        }
        let socket = Socket::bind(&place, false)?;
        let at_work = socket.map(|socket| socket.open(subject)).transpose()?;
        *self = Kept::new(place, at_work);
        Ok(())
    }
}
