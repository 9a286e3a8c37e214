//! The responses, and the windows as the caller sees them.

use http::StatusCode;
use superpoll_http1::{FieldName, FieldValue};

use crate::connection::Connection;
use crate::error::{ErrorCode, NotWritten};
use crate::frame::{self, FrameHead, HEAD, LONGEST_FRAME, flag, kind};
use crate::hpack::{put_field, put_status, put_table_size_zero};
use crate::limits::LARGEST_PIECE;
use crate::streams::{State, StreamKey};

/// Fields that are written to many heads, and encoded once. They fit all connections, as the
/// encoder has no state.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PreparedFields(Vec<u8>);

impl PreparedFields {
    /// Returns no fields.
    #[must_use]
    pub const fn new() -> PreparedFields {
        PreparedFields(Vec::new())
    }

    /// Appends a field. Fields about the connection are left out (RFC 9113, section 8.2.2).
    pub fn push(&mut self, name: FieldName<'_>, value: FieldValue<'_>) {
        put_field(name.as_bytes(), value.as_bytes(), &mut self.0);
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The part of a response that a writer writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Interim,
    Head { is_over: bool },
    Trailers,
}

/// A writer of one head, or of trailers. Without [`finish`](HeadWriter::finish) nothing is written.
#[derive(Debug)]
#[must_use = "a head that is not finished is not written"]
pub struct HeadWriter<'w> {
    connection: &'w mut Connection,
    out: &'w mut Vec<u8>,
    stream: StreamKey,
    start: usize,
    part: Part,
    /// The block begins with the change of the table's size.
    says_no_table: bool,
    is_finished: bool,
}

impl HeadWriter<'_> {
    /// Writes a field. Fields about the connection are left out (RFC 9113, section 8.2.2).
    #[inline]
    pub fn field(&mut self, name: FieldName<'_>, value: FieldValue<'_>) {
        put_field(name.as_bytes(), value.as_bytes(), self.out);
    }

    /// Writes fields that were encoded before.
    #[inline]
    pub fn prepared(&mut self, fields: &PreparedFields) {
        self.out.extend_from_slice(&fields.0);
    }

    /// Ends the head.
    pub fn finish(mut self) {
        self.is_finished = true;
        self.connection.has_said_no_table |= self.says_no_table;
        let is_over = matches!(self.part, Part::Head { is_over: true } | Part::Trailers);
        let flags = if is_over { flag::END_STREAM } else { 0 };
        let id = self.stream.id();
        let length = self.out.len() - self.start - HEAD;
        if length <= LONGEST_FRAME {
            let length = length as u32;
            let flags = flags | flag::END_HEADERS;
            let head = FrameHead { length, kind: kind::HEADERS, flags, stream: id };
            self.out[self.start..self.start + HEAD].copy_from_slice(&head.to_bytes());
        } else {
            self.split(flags);
        }
        if self.part != Part::Interim
            && let Some(stream) = self.connection.streams.get(self.stream)
        {
            stream.has_head = true;
        }
        if is_over {
            self.connection.end_response(self.stream, self.out);
        }
    }

    /// Writes a block that is too long for a frame as several.
    #[cold]
    fn split(&mut self, flags: u8) {
        let block = self.out.split_off(self.start + HEAD);
        self.out.truncate(self.start);
        let mut pieces = block.chunks(LONGEST_FRAME).peekable();
        let (mut kind, mut flags) = (kind::HEADERS, flags);
        while let Some(piece) = pieces.next() {
            if pieces.peek().is_none() {
                flags |= flag::END_HEADERS;
            }
            frame::put(kind, flags, self.stream.id(), piece, self.out);
            (kind, flags) = (kind::CONTINUATION, 0);
        }
    }
}

impl Drop for HeadWriter<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.out.truncate(self.start);
        }
    }
}

impl Connection {
    /// Begins an interim response (RFC 9110, section 15.2).
    ///
    /// # Errors
    ///
    /// If the stream has ended, or has the head of its response.
    pub fn interim<'w>(
        &'w mut self,
        stream: StreamKey,
        status: StatusCode,
        out: &'w mut Vec<u8>,
    ) -> Result<HeadWriter<'w>, NotWritten> {
        self.begin(stream, Part::Interim, Some(status), out)
    }

    /// Begins the head of the response. A response without a body `is_over` with it.
    ///
    /// # Errors
    ///
    /// If the stream has ended, or has the head of its response.
    pub fn respond<'w>(
        &'w mut self,
        stream: StreamKey,
        status: StatusCode,
        is_over: bool,
        out: &'w mut Vec<u8>,
    ) -> Result<HeadWriter<'w>, NotWritten> {
        self.begin(stream, Part::Head { is_over }, Some(status), out)
    }

    /// Begins the fields after the data, with which the response is over.
    ///
    /// # Errors
    ///
    /// If the stream has ended, or has no head yet.
    pub fn trailers<'w>(
        &'w mut self,
        stream: StreamKey,
        out: &'w mut Vec<u8>,
    ) -> Result<HeadWriter<'w>, NotWritten> {
        self.begin(stream, Part::Trailers, None, out)
    }

    fn begin<'w>(
        &'w mut self,
        stream: StreamKey,
        part: Part,
        status: Option<StatusCode>,
        out: &'w mut Vec<u8>,
    ) -> Result<HeadWriter<'w>, NotWritten> {
        let has_head = self.sending(stream)?;
        if has_head != (part == Part::Trailers) {
            return Err(NotWritten::Order);
        }
        let start = out.len();
        out.extend_from_slice(&[0; HEAD]);
        let says_no_table = self.needs_table_change();
        if says_no_table {
            put_table_size_zero(out);
        }
        if let Some(status) = status {
            put_status(status, out);
        }
        let connection = self;
        Ok(HeadWriter { connection, out, stream, start, part, says_no_table, is_finished: false })
    }

    /// Whether a stream has the head of its response.
    #[inline]
    fn sending(&mut self, stream: StreamKey) -> Result<bool, NotWritten> {
        let stream = self.streams.get(stream).filter(|stream| stream.is_sending());
        Ok(stream.ok_or(NotWritten::Gone)?.has_head)
    }

    /// Returns the most bytes that may be written in the next piece of a response's data: at most
    /// 16 KiB, and no more than both windows have room for.
    #[must_use]
    pub fn capacity(&mut self, stream: StreamKey) -> usize {
        let connection = self.send.left();
        let stream = self.streams.get(stream).filter(|stream| stream.is_sending());
        let window = stream.map_or(0, |stream| stream.send.left()).min(connection);
        usize::try_from(window).unwrap_or(0).min(LARGEST_PIECE)
    }

    /// Writes data up to the [capacity](Connection::capacity), and returns its number of bytes. The
    /// response is over with the last of them if the caller says so.
    ///
    /// # Errors
    ///
    /// If the stream has ended, or has no head yet.
    pub fn data(
        &mut self,
        stream: StreamKey,
        data: &[u8],
        is_over: bool,
        out: &mut Vec<u8>,
    ) -> Result<usize, NotWritten> {
        let count = data.len().min(self.capacity(stream));
        if count == 0 && (!data.is_empty() || !is_over) {
            return self.sending(stream).and_then(|has_head| match has_head {
                true => Ok(0),
                false => Err(NotWritten::Order),
            });
        }
        self.data_head(stream, count, is_over && count == data.len(), out)?;
        out.extend_from_slice(&data[..count]);
        Ok(count)
    }

    /// Writes the head of a frame of data, which the caller sends after it by other means.
    ///
    /// # Errors
    ///
    /// If the stream has ended or has no head yet, or the data is larger than the
    /// [capacity](Connection::capacity).
    #[inline]
    pub fn data_head(
        &mut self,
        stream: StreamKey,
        length: usize,
        is_over: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), NotWritten> {
        if !self.sending(stream)? {
            return Err(NotWritten::Order);
        }
        if length > 0 && length > self.capacity(stream) {
            return Err(NotWritten::Window);
        }
        if let Some(stream) = self.streams.get(stream) {
            stream.send.take(length);
        }
        self.send.take(length);
        if length > 0 {
            self.counts.was_useful();
        }
        let flags = if is_over { flag::END_STREAM } else { 0 };
        let head =
            FrameHead { length: length as u32, kind: kind::DATA, flags, stream: stream.id() };
        out.extend_from_slice(&head.to_bytes());
        if is_over {
            self.end_response(stream, out);
        }
        Ok(())
    }

    fn end_response(&mut self, stream: StreamKey, out: &mut Vec<u8>) {
        self.counts.has_responded();
        match self.streams.get(stream) {
            Some(stream) if stream.state == State::Open => stream.state = State::ResponseIsOver,
            _ => self.remove(stream, false, out),
        }
    }

    /// Ends a stream at once. Its client may be told that an early response is all there is, by
    /// [`ErrorCode::NO_ERROR`] (RFC 9113, section 8.1).
    ///
    /// # Errors
    ///
    /// If the stream has ended.
    pub fn reset(
        &mut self,
        stream: StreamKey,
        code: ErrorCode,
        out: &mut Vec<u8>,
    ) -> Result<(), NotWritten> {
        self.streams.get(stream).ok_or(NotWritten::Gone)?;
        frame::put_reset(stream.id(), code, out);
        self.remove(stream, true, out);
        Ok(())
    }

    /// Releases data of a request that the caller no longer holds, so that the client may send
    /// more. The data of a stream that has ended is released with its end.
    pub fn release(&mut self, stream: StreamKey, count: usize, out: &mut Vec<u8>) {
        self.release_some(stream, u32::try_from(count).unwrap_or(u32::MAX), out);
    }

    pub(crate) fn release_some(&mut self, key: StreamKey, count: u32, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get(key) else { return };
        let count = count.min(stream.receive.held());
        if count == 0 {
            return;
        }
        let increment = stream.receive.release(count).filter(|_| stream.is_receiving());
        if stream.receive.held() == 0 {
            self.small_frames -= std::mem::take(&mut stream.small_frames);
        }
        if let Some(increment) = increment {
            frame::put_window_update(key.id(), increment, out);
        }
        self.give_back(count, out);
    }

    /// Says whether the caller has data of a response to write, so that the stream takes part in
    /// [`next_writable`](Connection::next_writable).
    pub fn set_ready(&mut self, stream: StreamKey, is_ready: bool) {
        if let Some(stream) = self.streams.get(stream) {
            stream.is_ready = is_ready;
        }
    }

    /// Returns the stream whose turn it is to write a piece of data, with its capacity. The order
    /// is that of the client's priorities (RFC 9218); none of the streams starves.
    pub fn next_writable(&mut self) -> Option<(StreamKey, usize)> {
        if self.send.left() <= 0 {
            return None;
        }
        let stream = self.streams.next_writable()?;
        Some((stream, self.capacity(stream)))
    }

    /// Says whether the connection may be parked while a stream is open: a subscriber that waits
    /// for the next message, for example.
    pub fn set_held(&mut self, stream: StreamKey, is_held: bool) {
        if let Some(stream) = self.streams.get(stream) {
            stream.is_held = is_held;
        }
    }
}
