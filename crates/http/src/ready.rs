//! Answers that are there when the head of a request was read: files in memory, and statuses.
//!
//! They are made into responses only where a handler or HTTP/2 needs one. Otherwise their lines are
//! written as they are (`upstream::lane`).

use std::rc::Rc;

use http::{Response, StatusCode};

use crate::body::Body;
use crate::files::Representation;
use crate::reply;

/// An answer that needs no waiting.
pub enum Ready {
    /// A status with its text.
    Status(StatusCode),
    /// All of a file, which is in memory unless the request was `HEAD`.
    File(Rc<Representation>),
    /// The client has this version of a file.
    NotModified(Rc<Representation>),
    /// Another response.
    Response(Box<Response<Body>>),
}

impl Ready {
    /// Returns the response.
    #[must_use]
    pub fn into_response(self, is_head: bool) -> Response<Body> {
        match self {
            Ready::Status(status) => reply::status(status),
            Ready::File(file) => file.whole(is_head),
            Ready::NotModified(file) => file.refusal(StatusCode::NOT_MODIFIED),
            Ready::Response(response) => *response,
        }
    }
}

impl From<Response<Body>> for Ready {
    fn from(response: Response<Body>) -> Ready {
        Ready::Response(Box::new(response))
    }
}

impl From<StatusCode> for Ready {
    fn from(status: StatusCode) -> Ready {
        Ready::Status(status)
    }
}
