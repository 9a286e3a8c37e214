//! Requests that wait for their response while their connection is parked.

use std::rc::Rc;

use bytes::Bytes;
use http::Response;

use super::ParkedConnection;
use crate::body::Body;
use crate::log::Entry;
use crate::peer::RequestForm;
use crate::trace::RequestTrace;

/// The sender of the response to a waiting request, which then continues with the connection.
pub trait Responder {
    /// Sends the response, and continues with the connection.
    fn answer(
        self: Rc<Self>,
        parked: ParkedConnection,
        pending: PendingRequest,
        response: Response<Body>,
    );

    /// Notes that the request is answered with 200 and a body that another task sends.
    fn begin_response(&self, entry: Option<&Entry>);
}

/// The parts of a request that its response needs once the request is gone.
#[derive(Default)]
pub struct Note {
    /// The request's line of the access log, if there is a log.
    pub entry: Option<Rc<Entry>>,
    /// The id of the request and its trace, if requests are followed.
    pub trace: Option<Rc<RequestTrace>>,
}

/// The parts of a waiting request that its response depends on.
pub struct PendingRequest {
    /// The part of the server that will answer.
    pub by: Rc<dyn Responder>,
    /// The parts of the request that the response depends on.
    pub form: RequestForm,
    /// Bytes that were read of the requests that follow; rarely any.
    pub before: Option<Box<Bytes>>,
    /// Requests of the connection so far.
    pub requests: u32,
    /// The rest, if there is any.
    pub note: Option<Box<Note>>,
}

/// A request whose answer may take long, without a task.
pub struct WaitingRequest {
    /// The connection, to be parked until the client hangs up or there is an answer.
    pub parked: ParkedConnection,
}

impl WaitingRequest {
    /// Whether its client speaks HTTP/1.0.
    pub fn is_1_0(&self) -> bool {
        self.parked.pending.as_ref().is_some_and(|pending| pending.form.is_1_0)
    }

    /// Answers the request; the connection continues after that.
    pub fn answer(mut self, response: Response<Body>) {
        if let Some(pending) = self.parked.pending.take() {
            pending.by.clone().answer(self.parked, pending, response);
        }
    }
}
