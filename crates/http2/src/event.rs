//! The events of a connection, one at a time.

use std::ops::Range;

use superpoll_http1::Fields;

use crate::error::{ErrorCode, StreamError};
use crate::head::RequestHead;
use crate::hpack::Texts;
use crate::section::Section;
use crate::streams::StreamKey;

/// Room for one decoded head. One serves all connections of a thread.
#[derive(Default, Debug)]
pub struct Scratch {
    pub(crate) texts: Texts,
    pub(crate) section: Section,
}

impl Scratch {
    /// Returns room that takes no memory yet.
    #[must_use]
    pub fn new() -> Scratch {
        Scratch::default()
    }
}

/// The next event, and the bytes that belong to it.
#[derive(Debug)]
pub struct Step<'b> {
    /// The bytes that were used. The next step begins after them; only [`Event::Full`] leaves bytes
    /// that must not be offered at once.
    pub used: usize,
    /// The event.
    pub event: Event<'b>,
}

/// An event of a connection.
#[derive(Debug)]
pub enum Event<'b> {
    /// Nothing for the caller. If all bytes were used, more are needed.
    Nothing,
    /// So many answers wait to be sent that no further frame is read until some were.
    Full,
    /// A request has begun.
    Request {
        /// Its stream.
        stream: StreamKey,
        /// Its head.
        head: RequestHead<'b>,
        /// Whether there is no body.
        is_over: bool,
    },
    /// A request was answered with an error's status, or its stream was reset, before the caller
    /// got to know it.
    Refused {
        /// The number of its stream.
        id: u32,
        /// The reason.
        error: StreamError,
    },
    /// A part of a body.
    Data {
        /// Its stream.
        stream: StreamKey,
        /// The place of the data in the bytes of the step; it may be empty. It counts against the
        /// windows until it is [released](crate::Connection::release).
        data: Range<usize>,
        /// Whether the request is over.
        is_over: bool,
    },
    /// The fields after a body, with which the request is over. They are for handlers that asked
    /// for trailers, and must not be merged into the fields of the head (RFC 9110, section 6.5.1).
    Trailers {
        /// The stream.
        stream: StreamKey,
        /// The fields.
        fields: Fields<'b>,
    },
    /// The client has reset a stream.
    Reset {
        /// The stream, which has ended.
        stream: StreamKey,
        /// The client's reason.
        code: ErrorCode,
    },
    /// The connection has reset a stream, as its client broke the protocol.
    Failed {
        /// The stream, which has ended.
        stream: StreamKey,
        /// The reason.
        error: StreamError,
    },
    /// A window that was used up is open: that of a stream, or of the connection or several streams
    /// if none is named.
    WindowOpened {
        /// The stream.
        stream: Option<StreamKey>,
    },
    /// The client will begin no more streams.
    GoAway {
        /// The client's reason.
        code: ErrorCode,
    },
}
