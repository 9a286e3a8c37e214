//! The reasons for which a request has failed on a server, for operators.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use http::StatusCode;

use super::own_lack::{OwnLack, way_out};

/// The number of kinds.
pub(super) const KINDS: usize = 6;

/// A failure of a request.
#[derive(Debug)]
pub(super) enum Fault {
    /// No connection could be made.
    Connect(io::Error),
    /// The connection was closed or reset before the response.
    Broken(Box<dyn Error + Send + Sync>),
    /// There was no response in time.
    Silent(Duration),
    /// The bytes are not a response that can be passed on.
    Head(String),
    /// The body of the response has ended too early.
    Body(io::Error),
}

impl Fault {
    /// Returns the lack of this machine that is the reason, if one is.
    pub(super) fn own_lack(&self) -> Option<OwnLack> {
        match self {
            Fault::Connect(error) | Fault::Body(error) => OwnLack::of(error),
            Fault::Broken(error) => OwnLack::of(&**error),
            Fault::Silent(_) | Fault::Head(_) => None,
        }
    }

    /// Returns its number among the kinds, and its name.
    pub(super) fn kind(&self) -> (usize, &'static str) {
        match self {
            _ if self.own_lack().is_some() => (5, "own-lack"),
            Fault::Connect(error) if error.kind() == io::ErrorKind::TimedOut => (0, "timeout"),
            Fault::Connect(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                (0, "refused")
            }
            Fault::Connect(_) => (0, "connect"),
            Fault::Broken(error) if is_reset(&**error) => (1, "reset"),
            Fault::Broken(_) => (1, "closed"),
            Fault::Silent(_) => (2, "timeout"),
            Fault::Head(_) => (3, "bad-head"),
            Fault::Body(error) if error.kind() == io::ErrorKind::TimedOut => (4, "body-timeout"),
            Fault::Body(_) => (4, "body"),
        }
    }
}

/// Returns the system's error behind an error, which may be that itself.
fn io_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    let mut source = Some(error);
    while let Some(cause) = source {
        if let Some(found) = cause.downcast_ref() {
            return Some(found);
        }
        source = cause.source();
    }
    None
}

fn is_reset(error: &(dyn Error + 'static)) -> bool {
    io_error(error).is_some_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Connect(error) if error.kind() == io::ErrorKind::TimedOut => {
                f.write_str("connecting: no answer in time")
            }
            Fault::Connect(error) => write!(f, "connecting: {error}{}", way_out(error)),
            Fault::Broken(error) => match io_error(&**error) {
                Some(cause) => write!(f, "waiting for the response: {cause}{}", way_out(cause)),
                None => write!(f, "waiting for the response: {error}"),
            },
            Fault::Silent(limit) => {
                let limit = humantime::format_duration(*limit);
                write!(f, "waiting for the response: it did not come within {limit}")
            }
            Fault::Head(what) => write!(f, "reading the head of the response: {what}"),
            Fault::Body(error) if error.kind() == io::ErrorKind::TimedOut => {
                f.write_str("passing the body of the response on: no more of it came in time")
            }
            Fault::Body(error) => write!(f, "passing the body of the response on: {error}"),
        }
    }
}

/// The consequence for the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The request is sent again.
    Retried,
    /// The client gets a status.
    Answered(StatusCode),
    /// The client sees that its response is incomplete.
    CutOff,
}
