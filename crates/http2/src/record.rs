//! The record of a parked connection.
//!
//! Between two requests a connection is about 40 bytes, and the client's table if it has one. A
//! stream that is held has 9 bytes more. A connection that is made of its record continues as if it
//! had never been parked; frames of a parked connection are handled so.

use std::error::Error;
use std::fmt;

use crate::connection::{Connection, Reading};
use crate::hpack::{Decoder, Table};
use crate::limits::{Counts, FAIR_TURN, LARGEST_TABLE, LARGEST_WINDOW, MOST_REMEMBERED};
use crate::priority::Priority;
use crate::settings::{ClientSettings, Config};
use crate::shutdown::Shutdown;
use crate::streams::{State, Stream};
use crate::window::{ReceiveWindow, SendWindow};

/// The first byte of a record.
const VERSION: u8 = 1;

/// The flags of a connection.
mod flag {
    pub(super) const HAS_SAID_NO_TABLE: u8 = 1;
    pub(super) const IS_ASKED: u8 = 2;
    pub(super) const HAS_EARLY_PRIORITY: u8 = 4;
}

/// The flags of a stream, above its priority.
mod stream_flag {
    pub(super) const HAS_HEAD: u8 = 0x10;
    pub(super) const HAS_WRITTEN: u8 = 0x20;
    pub(super) const IS_RECEIVING: u8 = 0x40;
    pub(super) const IS_SENDING: u8 = 0x80;
}

/// The places of the connection's send window and of the count of useless frames.
pub(crate) const SEND_WINDOW: usize = 11;
pub(crate) const USELESS: usize = 31;

/// The place of the fields that not every record has.
const OPTIONS: usize = 41;

/// Returns the place of the send window of a stream in a record.
pub(crate) fn stream_window(record: &[u8], id: u32) -> Option<usize> {
    let early = if record.get(1)? & flag::HAS_EARLY_PRIORITY > 0 { 5 } else { 0 };
    let remembered = OPTIONS + early;
    let count = remembered + 1 + 4 * usize::from(*record.get(remembered)?);
    let streams = u16::from_be_bytes(*record.get(count..)?.first_chunk()?);
    let mut place = count + 2;
    for _ in 0..streams {
        let head: &[u8; 9] = record.get(place..)?.first_chunk()?;
        if head[..4] == id.to_be_bytes() {
            return Some(place + 4);
        }
        place += 9 + if head[8] & stream_flag::IS_RECEIVING > 0 { 12 } else { 0 };
    }
    None
}

/// The record is not one of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidRecord;

impl fmt::Display for InvalidRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the record of a connection is malformed")
    }
}

impl Error for InvalidRecord {}

impl Connection {
    /// Whether the connection can be parked: the client has sent whole frames and whole blocks of
    /// fields, all data was released, and each open stream is one that the caller
    /// [holds](Connection::set_held) and that has nothing to write. Bytes that were appended for
    /// the client are the caller's.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let is_quiet = |it: &Stream| it.is_held && !it.is_ready;
        self.is_between() && self.streams.iter().all(|(_, stream)| is_quiet(stream))
    }

    /// Whether the connection is between frames, and no stream holds bytes of its own.
    fn is_between(&self) -> bool {
        self.reading == Reading::Frame
            && self.partial.is_empty()
            && self.block.is_none()
            && self.has_settings
            && self.failed.is_none()
            && self.shutdown == Shutdown::No
            && self.receive.held() == 0
    }

    /// Whether the rest of a frame other than `DATA`, of a block of fields, or of the beginning of
    /// the connection is awaited.
    #[must_use]
    pub fn is_in_frame(&self) -> bool {
        !self.partial.is_empty() || self.block.is_some() || !self.has_settings
    }

    /// Appends the record of a connection that [is quiet](Connection::is_quiet).
    pub fn to_record(&self, to: &mut Vec<u8>) {
        let flags = bits([
            (self.has_said_no_table, flag::HAS_SAID_NO_TABLE),
            (self.asked_table.is_some(), flag::IS_ASKED),
            (self.early_priority.is_some(), flag::HAS_EARLY_PRIORITY),
        ]);
        let turn = (self.streams.turn % u64::from(FAIR_TURN)) as u8;
        to.extend_from_slice(&[VERSION, flags, turn]);
        for number in [
            self.last_stream,
            self.begun,
            u32::try_from(self.send.left()).unwrap_or(0),
            self.receive.left(),
            self.config.stream_window,
            self.client.initial_window,
        ] {
            to.extend_from_slice(&number.to_be_bytes());
        }
        let Counts { errors, early_resets, useless } = self.counts;
        for number in [
            errors,
            early_resets,
            useless,
            self.asked_table.unwrap_or(0),
            short(self.client.table as usize),
            short(self.decoder.limit()),
            short(self.decoder.table.limit()),
        ] {
            to.extend_from_slice(&number.to_be_bytes());
        }
        if let Some((id, priority)) = self.early_priority {
            to.extend_from_slice(&id.to_be_bytes());
            to.push(priority.to_byte());
        }
        let remembered = self.streams.remembered();
        to.push(remembered.len() as u8);
        remembered.iter().for_each(|id| to.extend_from_slice(&id.to_be_bytes()));
        let mut streams: Vec<&Stream> = self.streams.iter().map(|(_, stream)| stream).collect();
        streams.sort_by_key(|stream| (stream.turn, stream.id));
        to.extend_from_slice(&short(streams.len()).to_be_bytes());
        streams.into_iter().for_each(|stream| put_stream(stream, to));
        self.decoder.table.to_record(to);
    }

    /// Returns the connection of a record. The keys of its streams are those of
    /// [`keys`](Connection::keys), in new slots.
    ///
    /// # Errors
    ///
    /// If the record is malformed.
    pub fn from_record(config: Config, record: &[u8]) -> Result<Connection, InvalidRecord> {
        let mut rest = Rest(record);
        let [version, flags, turn] = rest.bytes::<3>()?;
        if version != VERSION || u32::from(turn) >= FAIR_TURN {
            return Err(InvalidRecord);
        }
        let has = |flag: u8| flags & flag > 0;
        let [last_stream, begun] = [rest.number()?, rest.number()?];
        let [send, left] = [rest.window()?, rest.window()?];
        let [stream_window, initial_window] = [rest.window()?, rest.window()?];
        let counts =
            Counts { errors: rest.short()?, early_resets: rest.short()?, useless: rest.short()? };
        let [asked, table] = [rest.short()?, rest.short()?];
        let [limit, size] = [rest.short()?, rest.short()?].map(usize::from);
        if limit.max(size) > LARGEST_TABLE {
            return Err(InvalidRecord);
        }
        let config = Config { stream_window, ..config }.bounded();
        let mut connection = Connection {
            has_settings: true,
            has_said_no_table: has(flag::HAS_SAID_NO_TABLE),
            asked_table: has(flag::IS_ASKED).then_some(asked),
            client: ClientSettings { initial_window, table: u32::from(table) },
            send: SendWindow::new(i64::from(send)),
            receive: ReceiveWindow::with_left(config.connection_window, left),
            last_stream,
            begun,
            counts,
            decoder: Decoder::new(size, limit),
            ..Connection::with_config(config)
        };
        if has(flag::HAS_EARLY_PRIORITY) {
            let (id, [byte]) = (rest.number()?, rest.bytes::<1>()?);
            connection.early_priority = Some((id, Priority::from_byte(byte)));
        }
        let [remembered] = rest.bytes::<1>()?;
        if usize::from(remembered) > MOST_REMEMBERED {
            return Err(InvalidRecord);
        }
        for _ in 0..remembered {
            connection.streams.remember(rest.number()?);
        }
        let count = rest.short()?;
        if count > config.streams.max(1) {
            return Err(InvalidRecord);
        }
        // The turns keep their order, and their place in the cycle.
        let mut last = 0;
        for _ in 0..count {
            let mut stream = rest.stream(&config)?;
            let is_number = stream.id % 2 == 1 && stream.id <= last_stream;
            if connection.streams.find(stream.id).is_some() || !is_number {
                return Err(InvalidRecord);
            }
            if stream.turn > 0 {
                last += 1;
                stream.turn = last;
            }
            connection.streams.insert(stream);
        }
        connection.streams.turn = last.next_multiple_of(u64::from(FAIR_TURN)) + u64::from(turn);
        let table: &mut Table = &mut connection.decoder.table;
        table.extend_from_record(rest.0).map_err(|_| InvalidRecord)?;
        Ok(connection)
    }
}

/// Returns the flags that are set.
fn bits<const N: usize>(flags: [(bool, u8); N]) -> u8 {
    flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag)
}

fn put_stream(stream: &Stream, to: &mut Vec<u8>) {
    let flags = bits([
        (stream.has_head, stream_flag::HAS_HEAD),
        (stream.turn > 0, stream_flag::HAS_WRITTEN),
        (stream.is_receiving(), stream_flag::IS_RECEIVING),
        (stream.is_sending(), stream_flag::IS_SENDING),
    ]);
    to.extend_from_slice(&stream.id.to_be_bytes());
    to.extend_from_slice(&(stream.send.left() as i32).to_be_bytes());
    to.push(flags | stream.priority.to_byte());
    if stream.is_receiving() {
        to.extend_from_slice(&stream.receive.left().to_be_bytes());
        to.extend_from_slice(&stream.left.unwrap_or(u64::MAX).to_be_bytes());
    }
}

/// Returns a number that is small enough.
fn short(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

/// The rest of a record.
struct Rest<'r>(&'r [u8]);

impl Rest<'_> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], InvalidRecord> {
        let (bytes, rest) = self.0.split_first_chunk::<N>().ok_or(InvalidRecord)?;
        self.0 = rest;
        Ok(*bytes)
    }

    fn short(&mut self) -> Result<u16, InvalidRecord> {
        self.bytes().map(u16::from_be_bytes)
    }

    fn number(&mut self) -> Result<u32, InvalidRecord> {
        self.bytes().map(u32::from_be_bytes)
    }

    fn window(&mut self) -> Result<u32, InvalidRecord> {
        self.number().ok().filter(|size| *size <= LARGEST_WINDOW).ok_or(InvalidRecord)
    }

    fn stream(&mut self, config: &Config) -> Result<Stream, InvalidRecord> {
        let id = self.number()?;
        let send = self.bytes().map(i32::from_be_bytes)?;
        let [flags] = self.bytes::<1>()?;
        let has = |flag: u8| flags & flag > 0;
        let state = match (has(stream_flag::IS_RECEIVING), has(stream_flag::IS_SENDING)) {
            (true, true) => State::Open,
            (false, true) => State::RequestIsOver,
            (true, false) => State::ResponseIsOver,
            (false, false) => return Err(InvalidRecord),
        };
        let (window, left) = match state {
            State::RequestIsOver => (config.stream_window, u64::MAX),
            _ => (self.window()?, self.bytes().map(u64::from_be_bytes)?),
        };
        Ok(Stream {
            id,
            state,
            has_head: has(stream_flag::HAS_HEAD),
            is_ready: false,
            is_held: true,
            priority: Priority::from_byte(flags),
            send: SendWindow::new(i64::from(send)),
            receive: ReceiveWindow::with_left(config.stream_window, window),
            left: Some(left).filter(|left| *left != u64::MAX),
            small_frames: 0,
            turn: u64::from(has(stream_flag::HAS_WRITTEN)),
        })
    }
}
