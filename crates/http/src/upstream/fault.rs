//! The reasons for which a request has failed on a server, for operators.

use std::error::Error;
use std::time::Duration;
use std::{fmt, io};

use http::{Response, StatusCode};

use super::http1::SendFailure;
use super::http2::StreamReset;
use super::local_shortage::{LocalShortage, way_out};
use crate::body::Body;
use crate::reply;

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
    /// Returns the shortage of this machine that is the reason, if one is.
    pub(super) fn local_shortage(&self) -> Option<LocalShortage> {
        match self {
            Fault::Connect(error) | Fault::Body(error) => LocalShortage::from_error(error),
            Fault::Broken(error) => LocalShortage::from_error(&**error),
            Fault::Silent(_) | Fault::Head(_) => None,
        }
    }

    /// Returns the reset of the request's stream, if that is the fault.
    pub(super) fn stream_reset(&self) -> Option<StreamReset> {
        match self {
            Fault::Broken(error) => error.downcast_ref().copied(),
            _ => None,
        }
    }

    /// Returns its number among the kinds, and its name.
    pub(super) fn kind(&self) -> (usize, &'static str) {
        match self {
            _ if self.local_shortage().is_some() => (5, "own-lack"),
            Fault::Connect(error) if error.kind() == io::ErrorKind::TimedOut => (0, "timeout"),
            Fault::Connect(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                (0, "refused")
            }
            Fault::Connect(_) => (0, "connect"),
            Fault::Broken(error) if is_reset(&**error) || self.stream_reset().is_some() => {
                (1, "reset")
            }
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

// An attempt to get an answer from a server that has failed.

/// The reason for which a server did not answer a request.
pub(super) struct FailedAttempt {
    pub fault: Fault,
    /// The connection was idle before, so that its failure says little about the server.
    pub was_idle: bool,
    /// The request may be sent to another server.
    pub may_go_on: bool,
}

/// Returns the response to a client whose request has failed on the last server that was tried. A
/// shortage of this machine may end with the next connection that does. The reset of a stream is
/// among its extensions.
pub(super) fn response(status: StatusCode, fault: &Fault) -> Response<Body> {
    let mut response = match status {
        StatusCode::SERVICE_UNAVAILABLE => reply::unavailable(1),
        status => reply::status(status),
    };
    if let Some(reset) = fault.stream_reset() {
        response.extensions_mut().insert(reset);
    }
    response
}

impl FailedAttempt {
    pub(super) fn unsent(error: io::Error) -> FailedAttempt {
        FailedAttempt { fault: Fault::Connect(error), was_idle: false, may_go_on: true }
    }

    pub(super) fn lost(lost: SendFailure, was_idle: bool, limit: Duration) -> FailedAttempt {
        let (fault, may_go_on) = match lost {
            SendFailure::Unsent => (Fault::Connect(io::ErrorKind::ConnectionAborted.into()), true),
            SendFailure::Malformed(what) => (Fault::Head(what), false),
            // It was there, whether the connection is new or not.
            SendFailure::Refused(reset) => {
                let fault = Fault::Broken(reset.into());
                return FailedAttempt { fault, was_idle: false, may_go_on: true };
            }
            SendFailure::Overloaded => {
                let fault = Fault::Broken("the server says that it is overloaded".into());
                return FailedAttempt { fault, was_idle: false, may_go_on: true };
            }
            SendFailure::Broken(error) => (Fault::Broken(error), true),
            SendFailure::TimedOut => (Fault::Silent(limit), false),
        };
        FailedAttempt { fault, was_idle: was_idle && may_go_on, may_go_on }
    }

    /// Returns the status for the client.
    pub(super) fn status(&self) -> StatusCode {
        match &self.fault {
            fault if fault.local_shortage().is_some() => StatusCode::SERVICE_UNAVAILABLE,
            Fault::Silent(_) => StatusCode::GATEWAY_TIMEOUT,
            Fault::Connect(error) if error.kind() == io::ErrorKind::TimedOut => {
                StatusCode::GATEWAY_TIMEOUT
            }
            _ => StatusCode::BAD_GATEWAY,
        }
    }
}
