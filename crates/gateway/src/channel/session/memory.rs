//! The memory that tungstenite reads and writes in place of a socket.

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use bytes::{Buf, Bytes};

use crate::channel::frames::Track;

/// The stream below tungstenite.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) input: Bytes,
    /// No bytes follow the input.
    pub(super) has_ended: bool,
    /// The bytes to be sent before the output: large messages, which all subscribers share, and the
    /// bytes before them.
    pub(super) pieces: VecDeque<Bytes>,
    pub(super) output: Vec<u8>,
    /// How many bytes of the output were taken, after all pieces before it.
    pub(super) taken: usize,
    pub(super) track: Track,
}

impl Read for Memory {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.input.is_empty() {
            return if self.has_ended { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        let count = room.len().min(self.input.len());
        room[..count].copy_from_slice(&self.input[..count]);
        self.track.follow(&self.input[..count]);
        self.input.advance(count);
        Ok(count)
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
