//! A connection: its state, and the bytes of the client as frames.
//!
//! ```text
//!   PREFACE --> FRAME --head of DATA--> PAD LENGTH --> DATA --> PADDING --> FRAME
//!               ^  |
//!               |  +--head of another frame--> collected until it is whole, or SKIP
//!               +--------------------------------------------------------------+
//! ```
//!
//! A frame is judged by its head as soon as that is there, and by its payload when it is whole. So
//! the pieces in which bytes arrive make no difference. Only the data of bodies passes as it comes.

use crate::error::ConnectionError;
use crate::event::{Event, Scratch, Step};
use crate::frame::{self, FrameHead, HEAD, LONGEST_FRAME, PREFACE, flag, kind};
use crate::hpack::Decoder;
use crate::limits::{Counts, FIRST_WINDOW, LARGEST_TABLE, MOST_UNSENT};
use crate::priority::Priority;
use crate::settings::{ClientSettings, Config};
use crate::shutdown::Shutdown;
use crate::streams::{StreamKey, Streams};
use crate::window::{ReceiveWindow, SendWindow};

/// A collected frame with more memory than this gives it back.
const KEPT: usize = 256;

/// The place in the bytes of the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    /// After so many bytes of the preface.
    Preface(usize),
    /// Before or within a frame that is collected.
    Frame,
    /// Before the length of the padding of `DATA`.
    PadLength(FrameHead),
    /// Within the data of a stream; `None` if it is dropped.
    Data { stream: Option<StreamKey>, left: u32, padding: u32, is_over: bool },
    /// Within a payload that is not looked at.
    Skip(u32),
}

/// A block of fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    pub(crate) id: u32,
    pub(crate) is_over: bool,
    /// The stream is said to depend on itself.
    pub(crate) is_own_parent: bool,
    pub(crate) continuations: usize,
}

/// The outcome of a frame.
#[expect(clippy::large_enum_variant, reason = "one lives on the stack, for one event")]
pub(crate) enum Outcome {
    Event(Event<'static>),
    /// A block of fields is decoded.
    Block(Block),
}

/// The server side of a connection.
///
/// It is fed with the bytes of the client, and appends bytes for the client to a vector of the
/// caller. After an error it is of no more use.
#[derive(Debug)]
pub struct Connection {
    pub(crate) config: Config,
    pub(crate) reading: Reading,
    /// The frame that is collected, from its head on.
    pub(crate) partial: Vec<u8>,
    /// The block of fields that has begun, and its bytes.
    pub(crate) block: Option<Block>,
    pub(crate) block_bytes: Vec<u8>,
    pub(crate) decoder: Decoder,
    pub(crate) streams: Streams,
    pub(crate) client: ClientSettings,
    pub(crate) has_settings: bool,
    /// The size of the client's table in the settings that the client has not accepted yet.
    pub(crate) asked_table: Option<u16>,
    /// The client's table for our fields is known to be empty for good.
    pub(crate) has_said_no_table: bool,
    pub(crate) send: SendWindow,
    pub(crate) receive: ReceiveWindow,
    pub(crate) last_stream: u32,
    /// The number of streams that have begun.
    pub(crate) begun: u32,
    pub(crate) counts: Counts,
    pub(crate) small_frames: u32,
    pub(crate) shutdown: Shutdown,
    /// The latest priority of a stream that has not begun (RFC 9218, section 7.1).
    pub(crate) early_priority: Option<(u32, Priority)>,
    /// Bytes of answers that may not be sent yet.
    pub(crate) unsent: usize,
    pub(crate) failed: Option<ConnectionError>,
}

impl Connection {
    /// Returns a connection that expects the preface, and appends the settings of the server.
    #[must_use]
    pub fn new(config: Config, out: &mut Vec<u8>) -> Connection {
        let config = config.bounded();
        config.put(out);
        Connection { reading: Reading::Preface(0), ..Connection::with_config(config) }
    }

    pub(crate) fn with_config(config: Config) -> Connection {
        Connection {
            config,
            reading: Reading::Frame,
            partial: Vec::new(),
            block: None,
            block_bytes: Vec::new(),
            decoder: Decoder::new(LARGEST_TABLE, LARGEST_TABLE),
            streams: Streams::default(),
            client: ClientSettings::FIRST,
            has_settings: false,
            asked_table: Some(config.table),
            has_said_no_table: false,
            send: SendWindow::new(i64::from(FIRST_WINDOW)),
            receive: ReceiveWindow::new(config.connection_window),
            last_stream: 0,
            begun: 0,
            counts: Counts::default(),
            small_frames: 0,
            shutdown: Shutdown::No,
            early_priority: None,
            unsent: 0,
            failed: None,
        }
    }

    /// Reads bytes of the client up to the next event, and appends the protocol's answers.
    ///
    /// `unsent` is the number of bytes that were appended before and not sent yet. The outcome does
    /// not depend on the pieces in which the bytes arrive.
    ///
    /// # Errors
    ///
    /// The reason for which the connection ends. `GOAWAY` was appended; the caller sends it and
    /// closes the connection. All streams have ended.
    #[inline]
    pub fn receive<'s>(
        &mut self,
        bytes: &[u8],
        unsent: usize,
        scratch: &'s mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Step<'s>, ConnectionError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.unsent = self.unsent.min(unsent);
        let start = out.len();
        let mut used = 0;
        let outcome = match self.advance(bytes, &mut used, (start, scratch), out) {
            Ok(Outcome::Event(event)) => Ok(event),
            Ok(Outcome::Block(block)) => self.finish_block(block, &mut scratch.section, out),
            Err(error) => Err(error),
        };
        self.unsent += out.len() - start;
        match outcome {
            Ok(event) => Ok(Step { used, event }),
            Err(error) => {
                self.failed = Some(error);
                self.streams = Streams::default();
                frame::put_go_away(self.last_known(), error.code(), out);
                Err(error)
            }
        }
    }

    fn advance(
        &mut self,
        bytes: &[u8],
        used: &mut usize,
        (start, scratch): (usize, &mut Scratch),
        out: &mut Vec<u8>,
    ) -> Result<Outcome, ConnectionError> {
        loop {
            let rest = &bytes[*used..];
            if rest.is_empty() {
                return Ok(Outcome::Event(Event::Nothing));
            }
            match self.reading {
                Reading::Preface(seen) => {
                    let left = &PREFACE[seen..];
                    let count = left.len().min(rest.len());
                    if left[..count] != rest[..count] {
                        return Err(ConnectionError::Preface);
                    }
                    *used += count;
                    self.reading = match seen + count {
                        all if all == PREFACE.len() => Reading::Frame,
                        seen => Reading::Preface(seen),
                    };
                }
                Reading::Frame => {
                    if self.unsent + (out.len() - start) > MOST_UNSENT {
                        return Ok(Outcome::Event(Event::Full));
                    }
                    if let Some(outcome) = self.read_frame(rest, used, scratch, out)? {
                        return Ok(outcome);
                    }
                }
                Reading::PadLength(head) => {
                    *used += 1;
                    let event = self.begin_data(head, Some(rest[0]), out)?;
                    if let Some(event) = event {
                        return Ok(Outcome::Event(event));
                    }
                }
                Reading::Data { .. } => {
                    if let Some(event) = self.read_data(rest, used, out) {
                        return Ok(Outcome::Event(event));
                    }
                }
                Reading::Skip(left) => {
                    let count = left.min(u32::try_from(rest.len()).unwrap_or(u32::MAX));
                    *used += count as usize;
                    self.reading = match left - count {
                        0 => Reading::Frame,
                        left => Reading::Skip(left),
                    };
                }
            }
        }
    }

    /// Reads a frame's head, and the frame if it is whole then. A frame that is not is collected.
    #[inline]
    fn read_frame(
        &mut self,
        rest: &[u8],
        used: &mut usize,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Option<Outcome>, ConnectionError> {
        if !self.partial.is_empty() {
            return self.collect(rest, used, scratch, out);
        }
        let Some((bytes, after)) = rest.split_first_chunk::<HEAD>() else {
            self.partial.extend_from_slice(rest);
            *used += rest.len();
            return Ok(None);
        };
        let head = FrameHead::parse(*bytes);
        self.check(&head)?;
        if !head.is_collected() {
            *used += HEAD;
            return self.begin_payload(head, out);
        }
        let Some(payload) = after.get(..head.length as usize) else {
            self.partial.extend_from_slice(rest);
            *used += rest.len();
            return Ok(None);
        };
        *used += HEAD + payload.len();
        self.handle(head, payload, scratch, out)
    }

    /// Reads more of a frame of which the beginning was kept.
    #[cold]
    fn collect(
        &mut self,
        rest: &[u8],
        used: &mut usize,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Option<Outcome>, ConnectionError> {
        let has_head = self.partial.len() >= HEAD;
        let length = match self.partial.first_chunk::<HEAD>() {
            Some(bytes) => HEAD + FrameHead::parse(*bytes).length as usize,
            None => HEAD,
        };
        let count = rest.len().min(length - self.partial.len());
        self.partial.extend_from_slice(&rest[..count]);
        *used += count;
        let Some(bytes) = self.partial.first_chunk::<HEAD>() else { return Ok(None) };
        let head = FrameHead::parse(*bytes);
        if !has_head {
            self.check(&head)?;
            if !head.is_collected() {
                self.partial.clear();
                return self.begin_payload(head, out);
            }
        }
        if self.partial.len() < HEAD + head.length as usize {
            return Ok(None);
        }
        let mut frame = std::mem::take(&mut self.partial);
        let outcome = self.handle(head, &frame[HEAD..], scratch, out);
        frame.clear();
        if frame.capacity() <= KEPT {
            self.partial = frame;
        }
        outcome
    }

    /// Begins a payload that is not collected.
    fn begin_payload(
        &mut self,
        head: FrameHead,
        out: &mut Vec<u8>,
    ) -> Result<Option<Outcome>, ConnectionError> {
        if head.kind == kind::DATA {
            let event = match head.has(flag::PADDED) {
                true => {
                    self.receive_data(&head)?;
                    self.reading = Reading::PadLength(head);
                    None
                }
                false => {
                    self.receive_data(&head)?;
                    self.begin_data(head, None, out)?
                }
            };
            return Ok(event.map(Outcome::Event));
        }
        if head.length > 0 {
            self.reading = Reading::Skip(head.length);
        }
        self.count_useless(1)?;
        Ok(None)
    }

    /// Judges a frame by its head.
    #[inline]
    fn check(&self, head: &FrameHead) -> Result<(), ConnectionError> {
        let FrameHead { length, kind, flags: _, stream } = *head;
        if length as usize > LONGEST_FRAME {
            return Err(ConnectionError::FrameTooLong);
        }
        if !self.has_settings && (kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(ConnectionError::SettingsMissing);
        }
        let is_next = |block: Block| kind == kind::CONTINUATION && stream == block.id;
        if self.block.is_some_and(|block| !is_next(block)) {
            return Err(ConnectionError::BlockInterrupted);
        }
        match kind {
            kind::PUSH_PROMISE => Err(ConnectionError::Push),
            kind::CONTINUATION if self.block.is_none() => Err(ConnectionError::BlockInterrupted),
            _ if !head.has_valid_stream() => Err(ConnectionError::StreamId),
            kind::DATA | kind::RST_STREAM | kind::WINDOW_UPDATE if stream > self.last_stream => {
                Err(ConnectionError::StreamIdle)
            }
            _ if !head.has_valid_size() => Err(ConnectionError::FrameSize),
            _ => Ok(()),
        }
    }

    /// Appends a piece to the block of fields, and decodes it if it is whole then.
    pub(crate) fn read_block(
        &mut self,
        mut block: Block,
        fragment: &[u8],
        is_last: bool,
        scratch: &mut Scratch,
    ) -> Result<Option<Outcome>, ConnectionError> {
        let limits = self.config.limits;
        let is_first = block.continuations == 0;
        if (!is_last && block.continuations > limits.continuations())
            || self.block_bytes.len() + fragment.len() > limits.block()
        {
            return Err(ConnectionError::BlockTooLong);
        }
        if !is_last {
            self.block_bytes.extend_from_slice(fragment);
            block.continuations += 1;
            self.block = Some(block);
            return Ok(None);
        }
        let Scratch { texts, section } = scratch;
        section.clear(limits);
        if is_first {
            self.decoder.decode(fragment, texts, section)?;
        } else {
            let mut bytes = std::mem::take(&mut self.block_bytes);
            bytes.extend_from_slice(fragment);
            self.block = None;
            self.decoder.decode(&bytes, texts, section)?;
        }
        Ok(Some(Outcome::Block(block)))
    }

    pub(crate) fn count_useless(&mut self, points: u16) -> Result<(), ConnectionError> {
        match self.counts.add_useless(points) {
            true => Ok(()),
            false => Err(ConnectionError::TooManyUselessFrames),
        }
    }
}
