//! An attempt to get an answer from a server that has failed.

use std::io;
use std::time::Duration;

use http::{Response, StatusCode};

use super::fault::Fault;
use super::http1::SendFailure;
use crate::body::Body;
use crate::reply;

/// The reason for which a server did not answer a request.
pub(super) struct FailedAttempt {
    pub fault: Fault,
    /// The connection was idle before, so that its failure says little about the server.
    pub was_idle: bool,
    /// The request may be sent to another server.
    pub may_go_on: bool,
}

/// Returns the response to a client whose request has failed on the last server that was tried. A
/// shortage of this machine may end with the next connection that does.
pub(super) fn response(status: StatusCode) -> Response<Body> {
    match status {
        StatusCode::SERVICE_UNAVAILABLE => reply::unavailable(1),
        status => reply::status(status),
    }
}

impl FailedAttempt {
    pub(super) fn unsent(error: io::Error) -> FailedAttempt {
        FailedAttempt { fault: Fault::Connect(error), was_idle: false, may_go_on: true }
    }

    pub(super) fn lost(lost: SendFailure, was_idle: bool, limit: Duration) -> FailedAttempt {
        let (fault, may_go_on) = match lost {
            SendFailure::Unsent => (Fault::Connect(io::ErrorKind::ConnectionAborted.into()), true),
            SendFailure::Malformed(error) => (Fault::Head(error.to_string()), false),
            SendFailure::Broken(error) => (Fault::Broken(error), true),
            SendFailure::TimedOut => (Fault::Silent(limit), false),
        };
        FailedAttempt { fault, was_idle: was_idle && may_go_on, may_go_on }
    }

    /// Returns the status for the client.
    pub(super) fn status(&self) -> StatusCode {
        match &self.fault {
            fault if fault.own_lack().is_some() => StatusCode::SERVICE_UNAVAILABLE,
            Fault::Silent(_) => StatusCode::GATEWAY_TIMEOUT,
            Fault::Connect(error) if error.kind() == io::ErrorKind::TimedOut => {
                StatusCode::GATEWAY_TIMEOUT
            }
            _ => StatusCode::BAD_GATEWAY,
        }
    }
}
