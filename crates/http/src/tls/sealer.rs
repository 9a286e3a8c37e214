//! The writing half of a connection's records.

use super::keys::Direction;
use super::keys::Suite;
use super::records::{Alert, HEADER, Kind, MOST_TEXT, NEAR_THE_LIMIT, VERSION, Violation};

/// The message that says that the keys of writing change, without its last byte.
const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];

/// The key of writing of a connection.
#[derive(Debug)]
pub(super) struct Sealer {
    suite: Suite,
    tx: Direction,
    /// The key must be changed before anything is sealed.
    must_change: bool,
}

impl Sealer {
    pub(super) fn new(suite: Suite, tx: Direction) -> Sealer {
        Sealer { suite, tx, must_change: false }
    }

    /// Makes the first record say that the key changes (TLS 1.3).
    pub(super) fn changing(self, must_change: bool) -> Sealer {
        Sealer { must_change: must_change && self.suite.is_tls13, ..self }
    }

    /// Whether the first record has to say that the key changes.
    pub(super) fn must_change(&self) -> bool {
        self.must_change
    }

    /// Changes the key, if that must be the first record.
    fn begin(&mut self, to: &mut Vec<u8>) -> Result<(), Violation> {
        if self.must_change { self.update(to) } else { Ok(()) }
    }

    pub(super) fn suite(&self) -> Suite {
        self.suite
    }

    pub(super) fn direction(&self) -> &Direction {
        &self.tx
    }

    /// Seals data in as few records as it needs, and appends them.
    pub(super) fn seal(&mut self, data: &[u8], to: &mut Vec<u8>) -> Result<(), Violation> {
        self.begin(to)?;
        for text in data.chunks(MOST_TEXT) {
            self.seal_one(Kind::Data, text, to)?;
        }
        Ok(())
    }

    /// As [`seal`](Sealer::seal), with new keys when those at hand have sealed nearly as many
    /// records as they may.
    pub(super) fn seal_with_new_keys(
        &mut self,
        data: &[u8],
        to: &mut Vec<u8>,
    ) -> Result<(), Violation> {
        self.begin(to)?;
        for text in data.chunks(MOST_TEXT) {
            if self.tx.left() <= NEAR_THE_LIMIT && self.suite.is_tls13 {
                self.update(to)?;
            }
            self.seal_one(Kind::Data, text, to)?;
        }
        Ok(())
    }

    /// Seals an alert, and appends it.
    pub(super) fn alert(&mut self, alert: Alert, to: &mut Vec<u8>) -> Result<(), Violation> {
        self.begin(to)?;
        let is_warning = matches!(alert, Alert::CloseNotify | Alert::NoRenegotiation);
        self.seal_one(Kind::Alert, &[if is_warning { 1 } else { 2 }, alert as u8], to)
    }

    /// Changes the keys of writing (TLS 1.3), without asking the peer to change its own.
    pub(super) fn update(&mut self, to: &mut Vec<u8>) -> Result<(), Violation> {
        self.must_change = false;
        let [kind, high, middle, low] = KEY_UPDATE;
        self.seal_one(Kind::Handshake, &[kind, high, middle, low, 0], to)?;
        self.tx.update();
        Ok(())
    }

    /// Continues with the next key, without a word.
    #[cfg(test)]
    pub(super) fn change_keys(&mut self) {
        self.tx.update();
    }

    /// Seals a record.
    pub(super) fn seal_one(
        &mut self,
        kind: Kind,
        text: &[u8],
        to: &mut Vec<u8>,
    ) -> Result<(), Violation> {
        const FAILED: Violation =
            Violation::Broken(Alert::InternalError, "the key has sealed as many records as it may");
        if self.tx.left() == 0 {
            return Err(FAILED);
        }
        let start = to.len();
        let body_len = text.len() + self.suite.overhead();
        let outer = if self.suite.is_tls13 { Kind::Data } else { kind };
        // A record's text is at most 2^14 bytes.
        let [high, low] = (body_len as u16).to_be_bytes();
        let header = [outer as u8, VERSION[0], VERSION[1], high, low];
        to.reserve(HEADER + body_len);
        to.extend_from_slice(&header);
        to.resize(to.len() + self.suite.explicit_nonce(), 0);
        to.extend_from_slice(text);
        if self.suite.is_tls13 {
            to.push(kind as u8);
        }
        let Ok(tag) = self.tx.seal(header, &mut to[start + HEADER..]) else {
            to.truncate(start);
            return Err(FAILED);
        };
        to.extend_from_slice(tag.as_ref());
        Ok(())
    }
}
