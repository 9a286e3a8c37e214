//! The frames of the client other than `DATA`, each by its type.

use superpoll_http1::Fields;

use crate::connection::{Block, Connection, Outcome};
use crate::error::{ConnectionError, ErrorCode, StreamError};
use crate::event::{Event, Scratch};
use crate::frame::{self, FrameHead, flag, kind};
use crate::head;
use crate::hpack::{put_status, put_table_size_zero};
use crate::limits::LARGEST_TABLE;
use crate::priority::Priority;
use crate::section::Section;
use crate::shutdown::{END_PING, Shutdown};
use crate::streams::{State, Stream, StreamKey};
use crate::window::{ReceiveWindow, SendWindow};

/// Whether a stream is said to depend on itself.
fn is_own_parent(head: &FrameHead, priority: &[u8]) -> bool {
    priority.len() >= 4 && number(priority) & (u32::MAX >> 1) == head.stream
}

impl Connection {
    /// Handles a whole frame.
    pub(crate) fn handle(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Option<Outcome>, ConnectionError> {
        let event = match head.kind {
            kind::HEADERS => return self.read_headers(head, payload, scratch),
            kind::CONTINUATION => {
                let block = self.block.ok_or(ConnectionError::BlockInterrupted)?;
                let is_last = head.has(flag::END_HEADERS);
                return self.read_block(block, payload, is_last, scratch);
            }
            kind::PRIORITY => {
                self.count_useless(1)?;
                match (payload.len(), self.streams.find(head.stream)) {
                    (5, key) if is_own_parent(&head, payload) => {
                        let key = key.ok_or(ConnectionError::OwnParent)?;
                        Some(self.fail(key, StreamError::OwnParent, out)?)
                    }
                    (5, _) => None,
                    (_, Some(key)) => Some(self.fail(key, StreamError::PrioritySize, out)?),
                    (_, None) => return Err(ConnectionError::FrameSize),
                }
            }
            kind::RST_STREAM => self.read_reset(head.stream, number(payload), out)?,
            kind::SETTINGS if head.has(flag::ACK) => {
                let size = self.asked_table.take().ok_or(ConnectionError::Acknowledgement)?;
                self.decoder.set_limit(usize::from(size));
                None
            }
            kind::SETTINGS => self.read_settings(payload, out)?,
            kind::PING if head.has(flag::ACK) => {
                if self.shutdown == Shutdown::Announced && payload == END_PING {
                    self.finish_shutdown(out);
                }
                None
            }
            kind::PING => {
                frame::put(kind::PING, flag::ACK, 0, payload, out);
                None
            }
            kind::GOAWAY => {
                let code = ErrorCode(number(payload.get(4..).unwrap_or_default()));
                Some(Event::GoAway { code })
            }
            kind::WINDOW_UPDATE => {
                // The first bit is reserved.
                self.open_window(head.stream, number(payload) & (u32::MAX >> 1), out)?
            }
            _ => self.read_priority(payload)?,
        };
        Ok(event.map(Outcome::Event))
    }

    fn read_headers(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        scratch: &mut Scratch,
    ) -> Result<Option<Outcome>, ConnectionError> {
        let mut fragment = payload;
        let mut padding = 0;
        if head.has(flag::PADDED) {
            let (first, rest) = payload.split_first().ok_or(ConnectionError::FrameSize)?;
            (padding, fragment) = (usize::from(*first), rest);
        }
        let mut depends = false;
        if head.has(flag::PRIORITY) {
            // Its meaning is gone with RFC 7540.
            depends = is_own_parent(&head, fragment);
            fragment = fragment.get(5..).ok_or(ConnectionError::FrameSize)?;
        }
        let length = fragment.len().checked_sub(padding).ok_or(ConnectionError::Padding)?;
        let is_over = head.has(flag::END_STREAM);
        let block = Block { id: head.stream, is_over, is_own_parent: depends, continuations: 0 };
        self.read_block(block, &fragment[..length], head.has(flag::END_HEADERS), scratch)
    }

    /// Judges a block of fields that was decoded.
    #[inline]
    pub(crate) fn finish_block<'s>(
        &mut self,
        block: Block,
        section: &'s mut Section,
        out: &mut Vec<u8>,
    ) -> Result<Event<'s>, ConnectionError> {
        let Block { id, is_over, .. } = block;
        if id <= self.last_stream {
            return self.finish_trailers(block, section, out);
        }
        self.last_stream = id;
        if matches!(self.shutdown, Shutdown::Last(_)) {
            if !is_over {
                self.streams.remember(id);
            }
            self.count_useless(1)?;
            return Ok(Event::Nothing);
        }
        self.begun += 1;
        self.counts.was_useful();
        let verdict = match self.streams.len() >= usize::from(self.config.streams) {
            true => Err(StreamError::TooManyStreams),
            false if block.is_own_parent => Err(StreamError::OwnParent),
            false => section.finish(),
        };
        let section: &'s Section = section;
        let connects = self.config.connect_protocol;
        let head = match verdict.and_then(|()| head::request(section, connects)) {
            Ok(head) if is_over && head.length.is_some_and(|length| length > 0) => {
                return self.refuse(id, is_over, StreamError::BodyLength, out);
            }
            Ok(head) => head,
            Err(error) => return self.refuse(id, is_over, error, out),
        };
        let early = self.early_priority.take_if(|(early, _)| *early <= id);
        let early = early.filter(|(early, _)| *early == id).map(|(_, priority)| priority);
        let stream = self.streams.insert(Stream {
            id,
            state: if is_over { State::RequestIsOver } else { State::Open },
            has_head: false,
            is_ready: false,
            is_held: false,
            // A frame is later than the field, or was sent in its place.
            priority: early.or(head.priority).unwrap_or_default(),
            send: SendWindow::new(i64::from(self.client.initial_window)),
            receive: ReceiveWindow::new(self.config.stream_window),
            left: head.length,
            small_frames: 0,
            turn: 0,
        });
        Ok(Event::Request { stream, head, is_over })
    }

    /// Judges a block of fields of a stream that has begun before.
    fn finish_trailers<'s>(
        &mut self,
        Block { id, is_over, .. }: Block,
        section: &'s mut Section,
        out: &mut Vec<u8>,
    ) -> Result<Event<'s>, ConnectionError> {
        let Some(key) = self.streams.find(id) else {
            if !self.streams.remembers(id) {
                // If no number was left out, the stream has begun.
                return Err(match u64::from(self.last_stream) < 2 * u64::from(self.begun) {
                    true => ConnectionError::StreamReused,
                    false => ConnectionError::StreamIdDecreases,
                });
            }
            self.count_useless(1)?;
            if is_over {
                self.streams.forget(id);
            }
            return Ok(Event::Nothing);
        };
        let stream = self.streams.get(key);
        let (is_receiving, left) = stream.map_or((false, None), |it| (it.is_receiving(), it.left));
        let verdict = match section.finish() {
            _ if !is_receiving => Err(StreamError::Ended),
            _ if !is_over || section.has_pseudo() => Err(StreamError::Trailers),
            Ok(()) if left.is_some_and(|left| left > 0) => Err(StreamError::BodyLength),
            outcome => outcome,
        };
        let fields: Option<Fields<'s>> = section.fields();
        match (verdict, fields) {
            (Ok(()), Some(fields)) => {
                self.end_request(key, out);
                Ok(Event::Trailers { stream: key, fields })
            }
            (verdict, _) => {
                let error = verdict.err().unwrap_or(StreamError::FieldValue);
                let event = self.fail(key, error, out)?;
                if is_over {
                    self.streams.forget(id);
                }
                Ok(event)
            }
        }
    }

    /// Answers a request that does not become a stream.
    fn refuse(
        &mut self,
        id: u32,
        is_over: bool,
        error: StreamError,
        out: &mut Vec<u8>,
    ) -> Result<Event<'static>, ConnectionError> {
        if let Some(status) = error.status() {
            let mut block = Vec::with_capacity(8);
            if self.needs_table_change() {
                put_table_size_zero(&mut block);
                self.has_said_no_table = true;
            }
            put_status(status, &mut block);
            let flags = flag::END_HEADERS | flag::END_STREAM;
            frame::put(kind::HEADERS, flags, id, &block, out);
        }
        if error.status().is_none() || !is_over {
            frame::put_reset(id, error.code(), out);
        }
        if !is_over {
            self.streams.remember(id);
        }
        match self.counts.add_error() {
            true => Ok(Event::Refused { id, error }),
            false => Err(ConnectionError::TooManyErrors),
        }
    }

    /// Resets a stream whose client broke the protocol.
    pub(crate) fn fail(
        &mut self,
        key: StreamKey,
        error: StreamError,
        out: &mut Vec<u8>,
    ) -> Result<Event<'static>, ConnectionError> {
        // A head that is refused as trailers has no status.
        let code = match error.code() {
            ErrorCode::NO_ERROR => ErrorCode::PROTOCOL_ERROR,
            code => code,
        };
        frame::put_reset(key.id(), code, out);
        self.remove(key, true, out);
        match self.counts.add_error() {
            true => Ok(Event::Failed { stream: key, error }),
            false => Err(ConnectionError::TooManyErrors),
        }
    }

    /// Frees the slot of a stream. The bytes of it that the caller holds no longer count.
    pub(crate) fn remove(&mut self, key: StreamKey, remembers: bool, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get(key) else { return };
        let (held, small_frames) = (stream.receive.held(), stream.small_frames);
        self.small_frames -= small_frames;
        self.streams.remove(key, remembers);
        self.give_back(held, out);
    }

    /// Gives bytes of the connection's window back to the client.
    pub(crate) fn give_back(&mut self, count: u32, out: &mut Vec<u8>) {
        if count > 0
            && let Some(increment) = self.receive.release(count)
        {
            frame::put_window_update(0, increment, out);
        }
    }

    /// Notes the end of a request.
    pub(crate) fn end_request(&mut self, key: StreamKey, out: &mut Vec<u8>) {
        match self.streams.get(key) {
            Some(stream) if stream.state == State::Open => stream.state = State::RequestIsOver,
            Some(_) => self.remove(key, false, out),
            None => {}
        }
    }

    fn read_reset(
        &mut self,
        id: u32,
        code: u32,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'static>>, ConnectionError> {
        let Some(key) = self.streams.find(id) else {
            self.streams.forget(id);
            self.count_useless(1)?;
            return Ok(None);
        };
        let is_early = self.streams.get(key).is_some_and(|stream| !stream.has_head);
        self.remove(key, false, out);
        if is_early && !self.counts.add_early_reset(self.config.streams) {
            return Err(ConnectionError::TooManyResets);
        }
        Ok(Some(Event::Reset { stream: key, code: ErrorCode(code) }))
    }

    fn read_settings(
        &mut self,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'static>>, ConnectionError> {
        self.has_settings = true;
        let before = self.client.initial_window;
        self.client.read(payload)?;
        let change = i64::from(self.client.initial_window) - i64::from(before);
        let mut opens = false;
        // A new value applies to all streams (RFC 9113, section 6.9.2).
        if change != 0 {
            for stream in self.streams.iter_mut() {
                let was_closed = stream.send.left() <= 0;
                if !stream.send.change(change) {
                    return Err(ConnectionError::InitialWindow);
                }
                opens |= was_closed && stream.send.left() > 0;
            }
        }
        frame::put(kind::SETTINGS, flag::ACK, 0, &[], out);
        Ok(opens.then_some(Event::WindowOpened { stream: None }))
    }

    fn open_window(
        &mut self,
        id: u32,
        increment: u32,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'static>>, ConnectionError> {
        self.count_useless(1)?;
        let by = i64::from(increment);
        if id == 0 {
            let was_closed = self.send.left() <= 0;
            return match (increment, self.send.change(by)) {
                (0, _) => Err(ConnectionError::WindowIncrement),
                (_, false) => Err(ConnectionError::WindowOverflow),
                (_, true) => Ok(was_closed.then_some(Event::WindowOpened { stream: None })),
            };
        }
        // It may have ended before the client knew.
        let Some(key) = self.streams.find(id) else { return Ok(None) };
        let Some(stream) = self.streams.get(key) else { return Ok(None) };
        let was_closed = stream.send.left() <= 0;
        match (increment, stream.send.change(by)) {
            (0, _) => self.fail(key, StreamError::StreamWindowIncrement, out).map(Some),
            (_, false) => self.fail(key, StreamError::StreamWindowOverflow, out).map(Some),
            (_, true) => {
                let opens = was_closed && stream.send.left() > 0;
                Ok(opens.then_some(Event::WindowOpened { stream: Some(key) }))
            }
        }
    }

    /// Reads `PRIORITY_UPDATE` (RFC 9218, section 7.1).
    fn read_priority(&mut self, payload: &[u8]) -> Result<Option<Event<'static>>, ConnectionError> {
        self.count_useless(1)?;
        let id = number(payload) & (u32::MAX >> 1);
        if id.is_multiple_of(2) {
            return Err(ConnectionError::StreamId);
        }
        let priority = Priority::new(payload.get(4..).unwrap_or_default());
        if id > self.last_stream {
            self.early_priority = Some((id, priority));
        } else if let Some(key) = self.streams.find(id)
            && let Some(stream) = self.streams.get(key)
        {
            stream.priority = priority;
        }
        Ok(None)
    }

    /// Whether the next block of fields has to begin with the change of the table's size to nothing
    /// (RFC 7541, section 4.2). After that, no change is ever needed.
    pub(crate) const fn needs_table_change(&self) -> bool {
        !self.has_said_no_table && (self.client.table as usize) < LARGEST_TABLE
    }
}

/// Reads the number at the beginning of a payload.
fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
