//! `DATA` of the client: windows, lengths, padding, and the places of data.
//!
//! All that is judged is judged before the first byte is passed on: windows by the frame's head,
//! and the length of the body as soon as the length of the padding is known.

use crate::connection::{Connection, Reading};
use crate::error::{ConnectionError, ErrorCode, StreamError};
use crate::event::Event;
use crate::frame::{self, FrameHead, flag};
use crate::limits::{EMPTY_DATA, SMALL_DATA, WINDOW_OF_SMALL_DATA};
use crate::streams::StreamKey;

impl Connection {
    /// Counts the payload of `DATA` against the connection's window.
    #[inline]
    pub(crate) fn receive_data(&mut self, head: &FrameHead) -> Result<(), ConnectionError> {
        match self.receive.receive(head.length) {
            true => Ok(()),
            false => Err(ConnectionError::WindowExceeded),
        }
    }

    /// Judges `DATA` when the length of its padding is known.
    pub(crate) fn begin_data(
        &mut self,
        head: FrameHead,
        padding: Option<u8>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'static>>, ConnectionError> {
        let overhead = padding.map_or(0, |length| 1 + u32::from(length));
        let data = head.length.checked_sub(overhead).ok_or(ConnectionError::Padding)?;
        let is_over = head.has(flag::END_STREAM);
        let skipped = head.length - u32::from(padding.is_some());
        self.reading = match skipped {
            0 => Reading::Frame,
            left => Reading::Skip(left),
        };
        let Some(key) = self.streams.find(head.stream) else {
            self.give_back(head.length, out);
            let is_remembered = self.streams.remembers(head.stream);
            // The client has sent an upload up to its window before it learned of the reset.
            if !is_remembered || (head.length as usize) < SMALL_DATA {
                self.count_useless(1)?;
            }
            if !is_remembered {
                frame::put_reset(head.stream, ErrorCode::STREAM_CLOSED, out);
                if !self.counts.add_error() {
                    return Err(ConnectionError::TooManyErrors);
                }
            } else if is_over {
                self.streams.forget(head.stream);
            }
            return Ok(None);
        };
        let Some(stream) = self.streams.get(key) else { return Ok(None) };
        let is_length = stream.left.is_none_or(|left| match is_over {
            true => left == u64::from(data),
            false => left >= u64::from(data),
        });
        let error = match () {
            () if !stream.is_receiving() => Some(StreamError::Ended),
            () if !stream.receive.receive(head.length) => Some(StreamError::StreamWindowExceeded),
            () if !is_length => Some(StreamError::BodyLength),
            () => None,
        };
        if let Some(error) = error {
            // What the stream holds of it is given back with the stream.
            let counted = match error {
                StreamError::BodyLength => 0,
                _ => head.length,
            };
            self.give_back(counted, out);
            let event = self.fail(key, error, out)?;
            if is_over {
                self.streams.forget(head.stream);
            }
            return Ok(Some(event));
        }
        stream.left = stream.left.map(|left| left - u64::from(data));
        let is_small = data > 0 && (data as usize) < SMALL_DATA && !is_over;
        if is_small {
            stream.small_frames += 1;
            self.small_frames += 1;
            if self.small_frames > self.config.connection_window / WINDOW_OF_SMALL_DATA {
                return Err(ConnectionError::TooManySmallFrames);
            }
        }
        if data > 0 {
            self.counts.was_useful();
        } else if !is_over {
            self.count_useless(EMPTY_DATA)?;
        }
        self.release_some(key, overhead, out);
        let padding = overhead.saturating_sub(1);
        if data == 0 && padding == 0 {
            return Ok(is_over.then(|| self.end_of_data(key, out)));
        }
        self.reading = Reading::Data { stream: Some(key), left: data, padding, is_over };
        Ok(None)
    }

    fn end_of_data(&mut self, stream: StreamKey, out: &mut Vec<u8>) -> Event<'static> {
        self.end_request(stream, out);
        Event::Data { stream, data: 0..0, is_over: true }
    }

    /// Reads data and its padding.
    #[inline]
    pub(crate) fn read_data(
        &mut self,
        rest: &[u8],
        used: &mut usize,
        out: &mut Vec<u8>,
    ) -> Option<Event<'static>> {
        let Reading::Data { stream, left, padding, is_over } = self.reading else { return None };
        let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let count = left.min(length);
        let skipped = match left - count {
            0 => padding.min(length - count),
            _ => 0,
        };
        let start = *used;
        *used += (count + skipped) as usize;
        let (left, padding) = (left - count, padding - skipped);
        let ends = left + padding == 0;
        self.reading = match ends {
            true => Reading::Frame,
            false => Reading::Data { stream, left, padding, is_over },
        };
        // The caller may have reset it.
        let key = stream.filter(|key| self.streams.get(*key).is_some());
        let Some(key) = key else {
            if ends
                && is_over
                && let Some(key) = stream
            {
                self.streams.forget(key.id());
            }
            return None;
        };
        let is_over = is_over && ends;
        if is_over {
            self.end_request(key, out);
        }
        let data = start..start + count as usize;
        (count > 0 || is_over).then_some(Event::Data { stream: key, data, is_over })
    }
}
