//! Data of a parked connection, written by its record alone.
//!
//! A parked connection with subscribers on its streams is its record. A message for one of them
//! needs the head of a frame, and room in two windows, whose places in the record are known. So no
//! connection is made of the record for each message, and the record is that of the connection
//! after the message: the next server counts the bytes that were written, and makes the same of
//! the record that was left with it.

use crate::error::NotWritten;
use crate::frame::{FrameHead, kind};
use crate::limits::USEFUL;
use crate::record::{SEND_WINDOW, USELESS, stream_window};

/// The record of a connection that is parked, on whose held streams data can be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record(Box<[u8]>);

impl From<Box<[u8]>> for Record {
    fn from(bytes: Box<[u8]>) -> Record {
        Record(bytes)
    }
}

impl AsRef<[u8]> for Record {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Record {
    /// Returns the most bytes of data that may be written to a stream in a frame of its own; zero
    /// if there is no such stream.
    #[must_use]
    pub fn capacity(&self, stream: u32) -> usize {
        let own = stream_window(&self.0, stream).and_then(|place| self.window(place));
        let window = own.unwrap_or(0).min(self.window(SEND_WINDOW).unwrap_or(0));
        usize::try_from(window).unwrap_or(0)
    }

    /// Writes the head of a frame of data, which the caller writes after it.
    ///
    /// # Errors
    ///
    /// If there is no such stream, or the data is larger than its
    /// [capacity](Record::capacity). Nothing is changed then.
    pub fn data_head(
        &mut self,
        stream: u32,
        length: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), NotWritten> {
        let place = stream_window(&self.0, stream).ok_or(NotWritten::Gone)?;
        if length > self.capacity(stream) {
            return Err(NotWritten::Window);
        }
        for window in [SEND_WINDOW, place] {
            let left = self.window(window).unwrap_or(0) - length as i32;
            self.0[window..window + 4].copy_from_slice(&left.to_be_bytes());
        }
        // As for all data that is written.
        if length > 0
            && let Some([high, low]) = self.0.get_mut(USELESS..).and_then(<[u8]>::first_chunk_mut)
        {
            let useless = u16::from_be_bytes([*high, *low]).saturating_sub(USEFUL);
            [*high, *low] = useless.to_be_bytes();
        }
        let head = FrameHead { length: length as u32, kind: kind::DATA, flags: 0, stream };
        out.extend_from_slice(&head.to_bytes());
        Ok(())
    }

    fn window(&self, place: usize) -> Option<i32> {
        self.0.get(place..)?.first_chunk().map(|bytes| i32::from_be_bytes(*bytes))
    }
}
