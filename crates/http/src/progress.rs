//! A response on its way to a client of HTTP/1, as far as its connection has to know.

use std::cell::Cell;
use std::rc::Rc;

use http::Response;

use crate::body::Body;
use crate::log::Entry;

/// The outcome of a request.
pub enum Passed {
    /// Its response was passed on, to the end.
    Whole,
    /// Its response has broken off, or its client is gone, maybe before there was a response.
    Cut,
    /// It is answered with this.
    Answered(Response<Body>),
}

/// The state of an answer on its way to the client.
#[derive(Default)]
pub struct Progress {
    /// The client's connection is to end with the response.
    pub is_last: Cell<bool>,
    /// The head of the response says so.
    pub says_close: Cell<bool>,
    /// The status of the response that is on its way to the client, or 0.
    pub status: Cell<u16>,
    /// The bytes of its body so far.
    pub body: Cell<u64>,
    /// The request's line of the access log, if there is a log.
    pub entry: Option<Rc<Entry>>,
}
