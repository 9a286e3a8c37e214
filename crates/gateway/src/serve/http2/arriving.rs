//! The body of a request of HTTP/2 on its way to a handler.
//!
//! It waits here until the handler asks for it, and counts against the windows of the stream and
//! of the connection as long as it does.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;
use superpoll_http::upload::{RequestBody, UploadSlot};
use superpoll_http1::Fields;

/// The most bytes that a handler is given at a time.
const PIECE: usize = 64 << 10;

/// The body of a request on its way to the handler.
pub(super) struct ArrivingBody {
    slot: Rc<UploadSlot>,
    /// The data that the handler has not asked for.
    data: BytesMut,
    trailers: Option<Box<HeaderMap>>,
    /// The data that the handler was not given, if the length is known.
    left: Option<u64>,
    /// All has arrived.
    is_whole: bool,
    /// The handler was told the end.
    is_over: bool,
    /// The client waits for an invitation to send it.
    is_invited: bool,
}

/// The outcome of a look at a body.
pub(super) enum Fed {
    /// The handler has not asked for more, or there is none yet.
    Nothing,
    /// The client must be invited to send the body.
    Invites,
    /// The handler was given so many bytes.
    Some(usize),
}

impl ArrivingBody {
    /// Returns a body with so much data, if that is known, and the handler's part of it.
    pub(super) fn new(length: Option<u64>, continues: bool) -> (ArrivingBody, RequestBody) {
        let slot = UploadSlot::new(length);
        let body = RequestBody::Arriving(slot.clone());
        let arriving = ArrivingBody {
            slot,
            data: BytesMut::new(),
            trailers: None,
            left: length,
            is_whole: false,
            is_over: false,
            is_invited: !continues,
        };
        (arriving, body)
    }

    /// Takes data of the client, and whether it is the last. Returns how many bytes nobody will
    /// ask for.
    pub(super) fn push(&mut self, data: &[u8], is_last: bool) -> usize {
        self.is_whole |= is_last;
        if self.slot.is_given_up() {
            return data.len() + std::mem::take(&mut self.data).len();
        }
        self.data.extend_from_slice(data);
        0
    }

    /// Takes the fields after the data.
    pub(super) fn push_trailers(&mut self, fields: Fields<'_>) {
        self.is_whole = true;
        let mut trailers = HeaderMap::with_capacity(fields.len());
        for field in fields.iter() {
            let name = HeaderName::from_bytes(field.name.as_bytes());
            let value = HeaderValue::from_bytes(field.value.as_bytes());
            if let (Ok(name), Ok(value)) = (name, value) {
                trailers.append(name, value);
            }
        }
        self.trailers = Some(Box::new(trailers));
    }

    /// Drops the data if the handler reads no further, and returns how much that was.
    pub(super) fn drop_unread(&mut self) -> usize {
        match self.slot.is_given_up() {
            true => std::mem::take(&mut self.data).len(),
            false => 0,
        }
    }

    /// Whether nothing of it is left to do.
    pub(super) fn is_over(&self) -> bool {
        self.is_over || self.slot.is_given_up()
    }

    /// Gives the handler the next frame, if it waits for one.
    pub(super) fn feed(&mut self, cx: &Context<'_>) -> Fed {
        if self.is_over || !self.slot.is_wanted(cx) {
            return Fed::Nothing;
        }
        let mut given = 0;
        if !self.data.is_empty() {
            let data = self.data.split_to(self.data.len().min(PIECE)).freeze();
            given = data.len();
            self.left = self.left.map(|left| left.saturating_sub(given as u64));
            self.is_over = self.is_whole && self.data.is_empty() && self.trailers.is_none();
            if self.data.is_empty() {
                self.data = BytesMut::new();
            }
            self.slot.fill(Frame::data(data), self.left, self.is_over);
        } else if let Some(trailers) = self.trailers.take() {
            self.is_over = true;
            self.slot.fill(Frame::trailers(*trailers), Some(0), true);
        } else if self.is_whole {
            self.is_over = true;
            self.slot.end(None);
        } else {
            return match std::mem::replace(&mut self.is_invited, true) {
                true => Fed::Nothing,
                false => Fed::Invites,
            };
        }
        self.slot.wake(cx);
        Fed::Some(given)
    }

    /// Returns how many bytes wait here.
    pub(super) fn len(&self) -> usize {
        self.data.len()
    }

    /// Takes all data, for a stream that leaves HTTP.
    pub(super) fn into_data(mut self) -> (BytesMut, bool) {
        self.is_over = true;
        (std::mem::take(&mut self.data), self.is_whole)
    }
}

impl ArrivingBody {
    /// Gives the handler the rest of a body that has arrived, as it asks for it.
    pub(super) async fn finish(mut self) {
        poll_fn(|cx| {
            while matches!(self.feed(cx), Fed::Some(_)) {}
            if self.is_over() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Drop for ArrivingBody {
    /// A handler that still waits learns that no more comes.
    fn drop(&mut self) {
        if !self.is_over() {
            self.slot.end(Some("the client has ended the stream".into()));
            self.slot.wake(&Context::from_waker(Waker::noop()));
        }
    }
}
