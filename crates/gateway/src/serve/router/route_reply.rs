//! The answer of a route, at once or later.

use http::{Response, StatusCode};

use crate::answers::Additions;
use crate::body::Body;
use crate::exchange::LocalFuture;
use crate::reply;

/// A response, or a future of one. Most are of the first kind, and cost no future.
pub(in crate::serve) enum Reply {
    Now(Response<Body>),
    Later(LocalFuture<Response<Body>>),
}

impl Reply {
    /// Changes the response.
    pub(super) fn map(
        self,
        change: impl FnOnce(Response<Body>) -> Response<Body> + 'static,
    ) -> Reply {
        match self {
            Reply::Now(response) => Reply::Now(change(response)),
            Reply::Later(response) => Reply::Later(Box::pin(async { change(response.await) })),
        }
    }

    /// Adds fields to the response, or puts a page in its place.
    pub(super) fn with(self, additions: Additions) -> Reply {
        match additions.are_none() {
            true => self,
            false => self.map(|response| additions.to(response)),
        }
    }

    /// Waits for the response.
    pub(super) async fn into_response(self) -> Response<Body> {
        match self {
            Reply::Now(response) => response,
            Reply::Later(response) => response.await,
        }
    }
}

impl From<Response<Body>> for Reply {
    fn from(response: Response<Body>) -> Reply {
        Reply::Now(response)
    }
}

impl From<StatusCode> for Reply {
    fn from(status: StatusCode) -> Reply {
        Reply::Now(reply::status(status))
    }
}
