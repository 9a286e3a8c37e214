//! The statistics socket of a server or a proxy.

use std::error::Error;

use superpoll_gateway::statistics::{Place, Socket, Statistics, Subject};

/// Listens at a place. Where that is nobody's choice a process goes on without; `warn` is told why.
///
/// # Errors
///
/// If a place that was chosen cannot be had.
pub fn bind(
    place: &Place,
    takes_over: bool,
    warn: impl FnOnce(String),
) -> Result<Option<Socket>, Box<dyn Error>> {
    match Socket::bind(place, takes_over) {
        Err(error) if *place == Place::Usual => {
            warn(format!("{error}; `superpoll top` cannot show this process"));
            Ok(None)
        }
        outcome => Ok(outcome?),
    }
}

/// Begins to answer. A process that is at work goes on without, if that fails; `warn` is told why.
pub fn open(
    socket: Option<Socket>,
    subject: Subject,
    warn: impl FnOnce(String),
) -> Option<Statistics> {
    socket?.open(subject).map_err(|error| warn(error.to_string())).ok()
}

/// The socket of a server, which a new configuration may have elsewhere.
pub struct Kept {
    place: Place,
    /// Closed, and its file removed, on drop.
    _at_work: Option<Statistics>,
}

impl Kept {
    /// One that is at work.
    pub fn new(place: Place, at_work: Option<Statistics>) -> Kept {
        Kept { place, _at_work: at_work }
    }

    /// Goes on at another place, unless it is the same.
    ///
    /// # Errors
    ///
    /// If that cannot be had; all is as before then.
    pub fn change(&mut self, place: Place, subject: Subject) -> Result<(), Box<dyn Error>> {
        if place == self.place {
            return Ok(());
        }
        let socket = Socket::bind(&place, false)?;
        let at_work = socket.map(|socket| socket.open(subject)).transpose()?;
        *self = Kept::new(place, at_work);
        Ok(())
    }
}
