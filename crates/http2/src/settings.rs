//! Settings of both sides (RFC 9113, section 6.5).

use crate::error::ConnectionError;
use crate::frame::{self, LONGEST_FRAME, kind};
use crate::limits::{FIRST_WINDOW, LARGEST_TABLE, LARGEST_WINDOW, Limits};

/// The names of settings.
mod name {
    pub(super) const HEADER_TABLE_SIZE: u16 = 0x1;
    pub(super) const ENABLE_PUSH: u16 = 0x2;
    pub(super) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub(super) const INITIAL_WINDOW_SIZE: u16 = 0x4;
    pub(super) const MAX_FRAME_SIZE: u16 = 0x5;
    pub(super) const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    /// RFC 8441, section 3.
    pub(super) const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
    /// RFC 9218, section 2.1.
    pub(super) const NO_RFC7540_PRIORITIES: u16 = 0x9;
}

/// The choices of a server for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The limits of a head.
    pub limits: Limits,
    /// The most streams at a time, at least 1.
    pub streams: u16,
    /// The bytes of bodies that the connection may hold, at least 65,535.
    pub connection_window: u32,
    /// The bytes of one body that the connection may hold, at least 65,535.
    pub stream_window: u32,
    /// The size of the table that the client may use for compression, at most [`LARGEST_TABLE`].
    pub table: u16,
    /// Whether `CONNECT` may ask for a protocol (RFC 8441).
    pub connect_protocol: bool,
}

impl Config {
    /// 128 streams, 1 MiB for all bodies and half of that for one: so other bodies
    /// continue while one is not read.
    pub const DEFAULT: Config = Config {
        limits: Limits::DEFAULT,
        streams: 128,
        connection_window: 1 << 20,
        stream_window: 512 << 10,
        table: LARGEST_TABLE as u16,
        connect_protocol: true,
    };

    /// Returns the choices within the bounds that each has.
    pub(crate) fn bounded(self) -> Config {
        let window = |size: u32| size.clamp(FIRST_WINDOW, LARGEST_WINDOW);
        Config {
            streams: self.streams.max(1),
            connection_window: window(self.connection_window),
            stream_window: window(self.stream_window),
            table: self.table.min(LARGEST_TABLE as u16),
            ..self
        }
    }

    /// Appends `SETTINGS` with these choices, and opens the connection's window.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let head = u32::try_from(self.limits.head).unwrap_or(u32::MAX);
        let mut payload = Vec::with_capacity(36);
        for (name, value, is_said) in [
            (name::HEADER_TABLE_SIZE, u32::from(self.table), self.table != LARGEST_TABLE as u16),
            (name::MAX_CONCURRENT_STREAMS, u32::from(self.streams), true),
            (name::INITIAL_WINDOW_SIZE, self.stream_window, self.stream_window != FIRST_WINDOW),
            (name::MAX_HEADER_LIST_SIZE, head, true),
            (name::ENABLE_CONNECT_PROTOCOL, 1, self.connect_protocol),
            (name::NO_RFC7540_PRIORITIES, 1, true),
        ] {
            if is_said {
                put_setting(name, value, &mut payload);
            }
        }
        frame::put(kind::SETTINGS, 0, 0, &payload, out);
        if self.connection_window > FIRST_WINDOW {
            frame::put_window_update(0, self.connection_window - FIRST_WINDOW, out);
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config::DEFAULT
    }
}

fn put_setting(name: u16, value: u32, to: &mut Vec<u8>) {
    to.extend_from_slice(&name.to_be_bytes());
    to.extend_from_slice(&value.to_be_bytes());
}

/// Appends `SETTINGS` with another size of the client's table.
pub(crate) fn put_table_size(size: u16, out: &mut Vec<u8>) {
    let mut payload = Vec::with_capacity(6);
    put_setting(name::HEADER_TABLE_SIZE, u32::from(size), &mut payload);
    frame::put(kind::SETTINGS, 0, 0, &payload, out);
}

/// The settings of a client that matter here. Frames are never longer than each client accepts, and
/// no response is pushed, so others are only checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClientSettings {
    pub(crate) initial_window: u32,
    /// The smallest table that the client has asked for since the last block of fields.
    pub(crate) table: u32,
}

impl ClientSettings {
    pub(crate) const FIRST: ClientSettings =
        ClientSettings { initial_window: FIRST_WINDOW, table: LARGEST_TABLE as u32 };

    /// Reads the payload of `SETTINGS`.
    pub(crate) fn read(&mut self, payload: &[u8]) -> Result<(), ConnectionError> {
        for setting in payload.chunks_exact(6) {
            let [a, b, rest @ ..] = setting else { continue };
            let value = rest.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
            match u16::from_be_bytes([*a, *b]) {
                name::HEADER_TABLE_SIZE => self.table = self.table.min(value),
                name::ENABLE_PUSH | name::ENABLE_CONNECT_PROTOCOL | name::NO_RFC7540_PRIORITIES
                    if value > 1 =>
                {
                    return Err(ConnectionError::SettingValue);
                }
                name::INITIAL_WINDOW_SIZE if value > LARGEST_WINDOW => {
                    return Err(ConnectionError::InitialWindow);
                }
                name::INITIAL_WINDOW_SIZE => self.initial_window = value,
                name::MAX_FRAME_SIZE if !(LONGEST_FRAME..1 << 24).contains(&(value as usize)) => {
                    return Err(ConnectionError::SettingValue);
                }
                _ => {}
            }
        }
        Ok(())
    }
}
