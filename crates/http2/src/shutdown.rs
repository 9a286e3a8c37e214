//! The end of a connection (RFC 9113, section 6.8), and its state for the caller.

use crate::connection::Connection;
use crate::error::ErrorCode;
use crate::frame::{self, kind};
use crate::limits::{LARGEST_TABLE, LARGEST_WINDOW};
use crate::settings;
use crate::streams::StreamKey;

/// The payload of the `PING` whose answer shows that the client knows of the end.
pub(crate) const END_PING: [u8; 8] = *b"shutdown";

/// The progress of the end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shutdown {
    No,
    /// The client was told that the end is near, and may send streams that it had begun before.
    Announced,
    /// The client was told the last stream.
    Last(u32),
}

impl Connection {
    /// Returns the number that `GOAWAY` names.
    pub(crate) fn last_known(&self) -> u32 {
        match self.shutdown {
            Shutdown::Last(last) => last,
            Shutdown::No | Shutdown::Announced => self.last_stream,
        }
    }

    /// Tells the client that the connection will end: it should begin no more streams. Those that
    /// are under way are still accepted, until the client has answered or
    /// [`finish_shutdown`](Connection::finish_shutdown) is called (RFC 9113, section 6.8).
    pub fn begin_shutdown(&mut self, out: &mut Vec<u8>) {
        if self.shutdown == Shutdown::No {
            self.shutdown = Shutdown::Announced;
            frame::put_go_away(LARGEST_WINDOW, ErrorCode::NO_ERROR, out);
            frame::put(kind::PING, 0, 0, &END_PING, out);
        }
    }

    /// Tells the client the last stream that is answered, unless it was told. Requests after it are
    /// dropped. Returns whether it is told now.
    pub fn finish_shutdown(&mut self, out: &mut Vec<u8>) -> bool {
        let is_new = !matches!(self.shutdown, Shutdown::Last(_));
        self.go_away(ErrorCode::NO_ERROR, out);
        is_new
    }

    /// Tells the client the last stream that is answered, and a reason. The second call does
    /// nothing.
    pub fn go_away(&mut self, code: ErrorCode, out: &mut Vec<u8>) {
        if !matches!(self.shutdown, Shutdown::Last(_)) {
            frame::put_go_away(self.last_stream, code, out);
            self.shutdown = Shutdown::Last(self.last_stream);
        }
    }

    /// Whether the end was told and all streams have ended, so that the connection can be closed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.failed.is_some()
            || (matches!(self.shutdown, Shutdown::Last(_)) && self.streams.len() == 0)
    }

    /// Returns the number of open streams.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns the keys of the open streams.
    pub fn keys(&self) -> impl Iterator<Item = StreamKey> {
        self.streams.iter().map(|(key, _)| key)
    }

    /// Returns the number of requests that have begun.
    #[must_use]
    pub const fn requests(&self) -> u32 {
        self.begun
    }

    /// Asks the client for another size of its table for compression, at most [`LARGEST_TABLE`].
    /// Returns false while the client has not accepted the settings before.
    pub fn set_table(&mut self, size: u16, out: &mut Vec<u8>) -> bool {
        let is_free = self.asked_table.is_none();
        if is_free {
            let size = size.min(LARGEST_TABLE as u16);
            settings::put_table_size(size, out);
            self.asked_table = Some(size);
        }
        is_free
    }

    /// Whether the client may use a table for compression, or may do so as soon as it has accepted
    /// the settings.
    #[must_use]
    pub fn allows_table(&self) -> bool {
        self.asked_table.map_or(self.decoder.limit(), usize::from) > 0
    }

    /// Returns the bytes of the client's table for compression.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.decoder.table.size()
    }
}
