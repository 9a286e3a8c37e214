//! A stream of a connection, from its request until all of its response was written.
//!
//! ```text
//!               the head is written                     all is written
//!   ANSWERING -------------+--------> SENDING ------+------------------> over, or UPLOADING
//!       |  |               |                        |                    until the handler has
//!       |  +--> WAITING ---+                        |                    read the request
//!       |       for news, as a long-poll            |
//!       +-----------------------------> TUNNEL -----+
//!          it has left HTTP (RFC 8441)
//! ```

use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use superpoll_http::exchange::RestingAnswer;
use superpoll_http::http2_stream::StreamPipe;
use superpoll_http::interim::InterimResponses;
use superpoll_http::parking_lot::Note;
use superpoll_http::upload::RequestBody;
use superpoll_http2::StreamKey;
use superpoll_hub::channel::carrier::{RestingStream, RestingWork};

use super::arriving::ArrivingBody;
use crate::serve::answer::{Answer, Running, Serving};
use crate::serve::handshake::Handshake;

/// A stream of a connection.
pub(super) struct Stream {
    pub key: StreamKey,
    pub work: Work,
    /// The body of the request, until the handler has all of it.
    pub arriving: Option<ArrivingBody>,
    /// All of the request has arrived.
    pub is_received: bool,
    /// All of the response was written.
    pub is_sent: bool,
    /// Data that was taken of the response's body and not written.
    pub rest: Bytes,
    /// It waits for its window, or for other streams to write, before it takes more of the body.
    pub is_starved: bool,
    /// Some data was written since the last check.
    pub has_moved: bool,
    /// When it was last seen to move, or to have nothing to write.
    pub since: Option<Instant>,
}

/// The state of a stream's response.
pub(super) enum Work {
    /// It is not known yet.
    Answering(Answering),
    /// It is not known yet, and the handler has left it to an answer that waits for news.
    Waiting(Waiting),
    /// Its head was written, and its body is being sent.
    Sending(Sending),
    /// The stream has left HTTP. It counts as a request until it is closed.
    Tunnel(Rc<StreamPipe>, #[expect(dead_code, reason = "it counts while it is held")] Running),
    /// Its body is over. The handler may still read the request.
    Uploading,
}

/// A response that is not known yet.
pub(super) struct Answering {
    pub serving: Serving,
    /// Its interim responses.
    pub interim: Rc<InterimResponses>,
    /// The request asks for a WebSocket.
    pub handshake: Option<Box<Handshake>>,
    /// The request is a call of gRPC.
    pub is_grpc: bool,
    /// The bytes of the client before the answer: they are no body, and have no other reader.
    pub _unread: Option<RequestBody>,
}

/// A request that waits for news.
pub(super) struct Waiting {
    pub answer: Box<dyn RestingAnswer>,
    pub running: Running,
    pub note: Note,
}

/// A body that is being sent.
pub(super) struct Sending {
    pub answer: Answer,
    /// The bytes of the body that were announced and not taken yet, if its length was announced.
    pub left: Option<u64>,
}

impl Stream {
    pub(super) fn new(key: StreamKey, work: Work, arriving: Option<ArrivingBody>) -> Stream {
        let is_received = arriving.is_none();
        Stream {
            key,
            work,
            arriving,
            is_received,
            is_sent: false,
            rest: Bytes::new(),
            is_starved: false,
            has_moved: false,
            since: None,
        }
    }

    /// Whether the stream has nothing to do until there is news for it, and can be parked.
    pub(super) fn can_rest(&self) -> bool {
        let is_received = self.is_received && self.arriving.is_none();
        let rests = match &self.work {
            Work::Sending(Sending { answer, left: None }) => is_received && answer.can_rest(),
            Work::Waiting(waiting) => is_received && waiting.answer.can_rest(),
            Work::Tunnel(pipe, _) => !self.is_received && pipe.can_rest(),
            _ => false,
        };
        rests && self.rest.is_empty()
    }

    /// Asks the protocol of a stream that has left HTTP to rest.
    pub(super) fn ask_to_rest(&self) {
        if let Work::Tunnel(pipe, _) = &self.work {
            pipe.ask_to_rest();
        }
    }

    /// Takes the subscriber that rests on the stream.
    pub(super) fn take_resting(mut self) -> Option<RestingStream> {
        let work = match std::mem::replace(&mut self.work, Work::Uploading) {
            Work::Sending(Sending { answer, .. }) => {
                let (body, entry) = answer.into_resting();
                RestingWork::Body(body, entry)
            }
            Work::Waiting(Waiting { answer, note, .. }) => RestingWork::Answer(answer, note),
            Work::Tunnel(pipe, _) => RestingWork::Socket(pipe.take_resting()?),
            _ => return None,
        };
        Some(RestingStream { stream: self.key.id(), work })
    }

    /// Notes that all of the response was written, or that the stream has ended.
    pub(super) fn end(&mut self, has_ended: bool) {
        self.work = Work::Uploading;
        self.is_sent = true;
        if has_ended {
            (self.is_received, self.arriving) = (true, None);
        }
    }

    /// Whether the stream has left HTTP, and its protocol goes on.
    pub(super) fn is_in_tunnel(&self) -> bool {
        matches!(&self.work, Work::Tunnel(pipe, _) if !pipe.is_dropped())
    }

    /// Whether all data of the response was taken, and is in `rest`.
    pub(super) fn is_last(&self) -> bool {
        match &self.work {
            Work::Sending(sending) => {
                sending.left.is_none_or(|left| left == 0)
                    && http_body::Body::is_end_stream(&sending.answer)
            }
            _ => false,
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        match &mut self.work {
            Work::Sending(sending) => sending.answer.cut(self.rest.len() as u64),
            Work::Tunnel(pipe, _) => pipe.end(),
            Work::Answering(_) | Work::Waiting(_) | Work::Uploading => {}
        }
    }
}
