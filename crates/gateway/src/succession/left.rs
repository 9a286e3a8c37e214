//! A connection that another server has left, before it is known how far that server came.

use crate::parked_stream::ParkedStream;
use crate::parking_lot::ParkedConnection;
use crate::tls::{Cut, KeysRecord, ParkedKeys, PooledKeys};

/// A connection that another server has left.
pub(crate) struct LeftConnection {
    /// The connection, without its keys.
    pub parked: ParkedConnection,
    /// The bytes that were written to it since it was left.
    pub sent: u64,
    /// The keys, if it is encrypted.
    pub keys: Option<KeysRecord>,
    /// The other server came to rest, and has said so.
    pub is_orderly: bool,
}

impl LeftConnection {
    /// Returns by how many bytes a record is longer than the message in it; zero if the connection
    /// is not encrypted.
    pub(crate) fn overhead(&self) -> u64 {
        self.keys.as_ref().map_or(0, KeysRecord::overhead)
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.keys.is_some()
    }

    /// Goes on with the connection behind so many messages, and some of another one. `None` if its
    /// keys do not fit that.
    pub(crate) fn go_on(self, messages: u64, cut: Option<Cut<'_>>) -> Option<ParkedConnection> {
        let LeftConnection { mut parked, keys, is_orderly, .. } = self;
        if let Some(record) = keys {
            let keys = ParkedKeys::adopt(&record, messages, cut, is_orderly)?;
            let ParkedConnection { stream, .. } = parked;
            let stream = ParkedStream::new(stream.into_socket(), Some(PooledKeys::new(keys)));
            parked = ParkedConnection { stream, ..parked };
        }
        Some(parked)
    }
}
