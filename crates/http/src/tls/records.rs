//! The records of a connection whose handshake is over, without its socket.

use std::ops::Range;

use super::keys::Direction;
use super::keys::Suite;
use super::sealer::Sealer;

/// The bytes of a record's header.
pub(super) const HEADER: usize = 5;

/// The most bytes of text in a record.
pub const MOST_TEXT: usize = 1 << 14;

/// The most bytes of a record of TLS 1.3 after its header; TLS 1.2 allows more, which no cipher of
/// ours uses.
const MOST_BODY: usize = MOST_TEXT + 256;

/// The bytes of the longest record.
pub(super) const LONGEST: usize = HEADER + MOST_BODY;

/// The most records without data in a row, the most changes of keys without data in between, and
/// the most warnings.
const MOST_EMPTY: u8 = 32;
const MOST_UPDATES: u8 = 32;
const MOST_WARNINGS: u8 = 4;

/// A connection with fewer records left of its key changes the key (TLS 1.3) when it writes next.
/// So a parked one has some left.
pub(super) const NEAR_THE_LIMIT: u64 = 1 << 16;

/// The version in every record's header.
pub(super) const VERSION: [u8; 2] = [3, 3];

/// The kind of a record (RFC 8446, section 5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    Alert = 21,
    Handshake = 22,
    Data = 23,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        [Kind::Alert, Kind::Handshake, Kind::Data].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The kind of the records that are never encrypted, which none is behind the handshake.
const FIRST_KIND: u8 = 20;

/// The messages of a handshake that come after it.
const CLIENT_HELLO: u8 = 1;
const KEY_UPDATE: u8 = 24;

/// An alert (RFC 8446, section 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Alert {
    CloseNotify = 0,
    UnexpectedMessage = 10,
    BadRecordMac = 20,
    RecordOverflow = 22,
    IllegalParameter = 47,
    DecodeError = 50,
    InternalError = 80,
    UserCanceled = 90,
    NoRenegotiation = 100,
}

/// The reason for which a connection cannot continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    /// The peer has broken the protocol, and is told so.
    Broken(Alert, &'static str),
    /// The peer has ended the connection by an alert with this number.
    Told(u8),
}

/// The content of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Record {
    /// Data, at this place in the record.
    Data(Range<usize>),
    /// The peer sends no more.
    Closed,
    /// It has no data.
    Control,
}

/// The keys of a connection, and the counts that limit what its peer may do.
#[derive(Debug)]
pub(crate) struct Records {
    sealer: Sealer,
    rx: Direction,
    empty: u8,
    updates: u8,
    warnings: u8,
    /// The beginning of a message of the handshake, of which there is one with five bytes.
    begun: Vec<u8>,
    /// An answer to the peer's change of keys may still be unwritten. One answer is enough for any
    /// number of changes (RFC 8446, section 4.6.3).
    has_answered: bool,
    has_refused: bool,
    /// Nothing may be written any more.
    has_closed: bool,
}

/// The counts that limit what a peer may do without sending data. They continue while a connection
/// is parked, which each record ends.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counts {
    pub empty: u8,
    pub updates: u8,
    pub warnings: u8,
    pub has_refused: bool,
}

/// Returns the length of the record that bytes begin with, once its header is there.
pub(super) fn length(bytes: &[u8]) -> Result<Option<usize>, Violation> {
    let Some(header) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
    if header[1..3] != VERSION || !(FIRST_KIND..=Kind::Data as u8).contains(&header[0]) {
        return Err(Violation::Broken(Alert::DecodeError, "a record without a header of TLS"));
    }
    let body = usize::from(u16::from_be_bytes([header[3], header[4]]));
    if body > MOST_BODY {
        return Err(Violation::Broken(Alert::RecordOverflow, "a record that is too long"));
    }
    Ok(Some(HEADER + body))
}

impl Records {
    pub(super) fn new(sealer: Sealer, rx: Direction) -> Records {
        Records {
            sealer,
            rx,
            empty: 0,
            updates: 0,
            warnings: 0,
            begun: Vec::new(),
            has_answered: false,
            has_refused: false,
            has_closed: false,
        }
    }

    /// Continues with the counts of a connection that was parked.
    pub(super) fn counting(mut self, counts: Counts) -> Records {
        let Counts { empty, updates, warnings, has_refused } = counts;
        (self.empty, self.updates, self.warnings) = (empty, updates, warnings);
        self.has_refused = has_refused;
        self
    }

    /// Whether the next record that is written has to say that the key changes.
    pub(super) fn must_change(&self) -> bool {
        self.sealer.must_change()
    }

    /// Returns the counts.
    pub(super) fn counts(&self) -> Counts {
        let Records { empty, updates, warnings, has_refused, .. } = *self;
        Counts { empty, updates, warnings, has_refused }
    }

    /// Answers nothing from here on: the peer was told that no more bytes follow.
    pub(super) fn close(&mut self) {
        self.has_closed = true;
    }

    /// Whether some of a message of the handshake has arrived, and not the rest.
    pub(super) fn has_part(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Returns the suite, and the directions of writing and reading.
    pub(super) fn directions(&self) -> (Suite, &Direction, &Direction) {
        (self.sealer.suite(), self.sealer.direction(), &self.rx)
    }

    /// Whether the connection is between two messages, and everything that was answered is written.
    pub(super) fn is_quiet(&self) -> bool {
        self.begun.is_empty() && !self.has_answered
    }

    /// Notes that everything that was sealed has been written.
    pub(super) fn flushed(&mut self) {
        self.has_answered = false;
    }

    /// Returns the key of writing.
    pub(super) fn sealer(&mut self) -> &mut Sealer {
        &mut self.sealer
    }

    /// Opens a whole record in place. What the record demands to be answered is appended to `to`.
    pub(super) fn open(
        &mut self,
        record: &mut [u8],
        to: &mut Vec<u8>,
    ) -> Result<Record, Violation> {
        let Some((header, body)) = record.split_first_chunk_mut::<HEADER>() else {
            return Err(Violation::Broken(Alert::DecodeError, "a record without a header"));
        };
        let suite = self.sealer.suite();
        let mut kind = Kind::from_byte(header[0]);
        if kind.is_none() || suite.is_tls13 && kind != Some(Kind::Data) {
            return Err(Violation::Broken(Alert::UnexpectedMessage, "an unencrypted record"));
        }
        let Ok(mut text_len) = self.rx.open(*header, body) else {
            return Err(Violation::Broken(Alert::BadRecordMac, "a record that is not genuine"));
        };
        if suite.is_tls13 {
            if text_len > MOST_TEXT + 1 {
                return Err(Violation::Broken(Alert::RecordOverflow, "a text that is too long"));
            }
            // Padding stands after the kind.
            let end = body[..text_len].iter().rposition(|byte| *byte != 0);
            let Some(end) = end else {
                return Err(Violation::Broken(Alert::UnexpectedMessage, "a record of padding"));
            };
            (kind, text_len) = (Kind::from_byte(body[end]), end);
        } else if text_len > MOST_TEXT {
            return Err(Violation::Broken(Alert::RecordOverflow, "a text that is too long"));
        }
        if kind != Some(Kind::Handshake) && !self.begun.is_empty() {
            let what = "a record within a message of the handshake";
            return Err(Violation::Broken(Alert::UnexpectedMessage, what));
        }
        match kind {
            Some(Kind::Data) => self.take_data(text_len),
            Some(Kind::Alert) => self.take_alert(&body[..text_len]),
            Some(Kind::Handshake) => self.take_handshake(&body[..text_len], to),
            None => Err(Violation::Broken(Alert::UnexpectedMessage, "a record of an unknown kind")),
        }
    }

    fn take_data(&mut self, length: usize) -> Result<Record, Violation> {
        if length > 0 {
            (self.empty, self.updates) = (0, 0);
            return Ok(Record::Data(HEADER..HEADER + length));
        }
        self.empty += 1;
        if self.empty > MOST_EMPTY {
            let what = "too many empty records";
            return Err(Violation::Broken(Alert::UnexpectedMessage, what));
        }
        Ok(Record::Control)
    }

    fn take_alert(&mut self, text: &[u8]) -> Result<Record, Violation> {
        let &[level, number] = text else {
            return Err(Violation::Broken(Alert::DecodeError, "an alert of another length"));
        };
        if number == Alert::CloseNotify as u8 {
            return Ok(Record::Closed);
        }
        // TLS 1.3 has no warnings but these two.
        let is_warning = match self.sealer.suite().is_tls13 {
            true => number == Alert::UserCanceled as u8,
            false => level == 1,
        };
        self.warnings += u8::from(is_warning);
        match is_warning {
            true if self.warnings <= MOST_WARNINGS => Ok(Record::Control),
            true => Err(Violation::Broken(Alert::UnexpectedMessage, "too many warnings")),
            false => Err(Violation::Told(number)),
        }
    }

    fn take_handshake(&mut self, text: &[u8], to: &mut Vec<u8>) -> Result<Record, Violation> {
        let unexpected = |what| Err(Violation::Broken(Alert::UnexpectedMessage, what));
        if !self.sealer.suite().is_tls13 {
            if text.first() != Some(&CLIENT_HELLO) || self.has_refused {
                return unexpected("a message of the handshake after its end");
            }
            self.has_refused = true;
            if !self.has_closed {
                self.sealer.alert(Alert::NoRenegotiation, to)?;
            }
            return Ok(Record::Control);
        }
        // The message may come in parts, but ends with its record: the keys change after it.
        const MESSAGE: usize = 5;
        if text.is_empty() || self.begun.len() + text.len() > MESSAGE {
            return unexpected("a message of the handshake after its end");
        }
        self.begun.extend_from_slice(text);
        let head = [KEY_UPDATE, 0, 0, 1];
        if !head.starts_with(&self.begun[..self.begun.len().min(head.len())]) {
            return unexpected("a message of the handshake after its end");
        }
        let asks = match self.begun[..] {
            [_, _, _, _, asks @ (0 | 1)] => asks == 1,
            [_, _, _, _, _] => {
                let what = "a change of keys that says neither yes nor no";
                return Err(Violation::Broken(Alert::IllegalParameter, what));
            }
            _ => return Ok(Record::Control),
        };
        self.begun = Vec::new();
        self.updates += 1;
        if self.updates > MOST_UPDATES {
            return unexpected("too many changes of keys");
        }
        self.rx.update();
        if asks && !self.has_answered && !self.has_closed {
            self.has_answered = true;
            self.sealer.update(to)?;
        }
        Ok(Record::Control)
    }
}
