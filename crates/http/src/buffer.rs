//! Buffers that connections have only as long as there is something in them.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_io::AsyncRead;

/// The bytes of a buffer.
pub(crate) const SIZE: usize = 16 << 10;

/// The bytes of a buffer for a large head, or for a long body.
pub(crate) const LARGEST: usize = 64 << 10;

/// The most buffers that a thread keeps while no connection has them.
const MOST_KEPT: usize = 64;

/// The most large buffers that it keeps.
const MOST_KEPT_LARGE: usize = 8;

thread_local! {
    /// The buffers of this thread that no connection has, all of [`SIZE`]. They are made once,
    /// since overwriting one with zeros costs as much as a small request.
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };

    /// Those of [`LARGEST`].
    static KEPT_LARGE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };

    /// The memory of buffers for writing that no connection has.
    static WRITE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Data of fewer bytes is copied.
const LEAST_TAKEN: usize = 4 << 10;

/// The memory of a buffer, which goes back to its thread.
struct Room(Vec<u8>);

impl AsRef<[u8]> for Room {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let room = std::mem::take(&mut self.0);
        let (list, most) = match room.len() {
            SIZE => (&KEPT, MOST_KEPT),
            LARGEST => (&KEPT_LARGE, MOST_KEPT_LARGE),
            _ => return,
        };
        // At the end of a thread it has no list any more.
        let _ = list.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < most {
                kept.push(room);
            }
        });
    }
}

fn new_room() -> Vec<u8> {
    KEPT.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; SIZE])
}

/// Bytes that were read and not used.
#[derive(Default)]
pub struct ReadBuffer {
    /// Empty, or of [`SIZE`], or larger for a time.
    room: Vec<u8>,
    start: usize,
    end: usize,
}

/// A buffer with a copy of bytes that were read elsewhere.
impl From<&[u8]> for ReadBuffer {
    fn from(bytes: &[u8]) -> ReadBuffer {
        let mut buffer = ReadBuffer::default();
        if !bytes.is_empty() {
            buffer.room = new_room();
            buffer.room.resize(bytes.len().max(SIZE), 0);
            buffer.room[..bytes.len()].copy_from_slice(bytes);
            buffer.end = bytes.len();
        }
        buffer
    }
}

impl ReadBuffer {
    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.room[self.start..self.end]
    }

    /// Whether no bytes are left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether there is no room for another byte.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.end - self.start == self.room.len().max(SIZE)
    }

    /// Drops the first bytes. A buffer without bytes goes back to the thread.
    pub fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            self.give_back();
        }
    }

    /// Prepares for so many bytes of a body: an empty buffer gets room for more of them at once.
    pub fn expect(&mut self, bytes: u64) {
        if self.room.is_empty() && bytes >= LARGEST as u64 / 2 {
            let kept = KEPT_LARGE.with_borrow_mut(Vec::pop);
            self.room = kept.unwrap_or_else(|| vec![0; LARGEST]);
        }
    }

    /// Takes data out, and drops the first `used` bytes, among which it is. Long data is not
    /// copied: it takes the buffer along.
    pub fn take(&mut self, data: Range<usize>, used: usize) -> Bytes {
        let rest = self.start + used..self.end;
        if data.len() < LEAST_TAKEN || rest.len() > data.len().min(SIZE) {
            let bytes = Bytes::copy_from_slice(&self.bytes()[data]);
            self.consume(used);
            return bytes;
        }
        let mut room = Vec::new();
        if !rest.is_empty() {
            room = new_room();
            room[..rest.len()].copy_from_slice(&self.room[rest.clone()]);
        }
        let taken = Room(std::mem::replace(&mut self.room, room));
        let data = self.start + data.start..self.start + data.end;
        (self.start, self.end) = (0, rest.len());
        Bytes::from_owner(taken).slice(data)
    }

    fn give_back(&mut self) {
        (self.start, self.end) = (0, 0);
        drop(Room(std::mem::take(&mut self.room)));
    }

    /// Fills the room after the bytes by a function that returns how many it has read. A buffer
    /// that stays empty goes back.
    pub fn fill<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Poll<Result<usize, E>>,
    ) -> Poll<Result<usize, E>> {
        if self.room.is_empty() {
            self.room = new_room();
        } else if self.end == self.room.len() {
            self.room.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        // Nothing read would be taken for the end of the stream.
        debug_assert!(self.end < self.room.len(), "there is room");
        let outcome = read(&mut self.room[self.end..]);
        if let Poll::Ready(Ok(count)) = &outcome {
            self.end += count;
        }
        if self.is_empty() {
            self.give_back();
        }
        outcome
    }

    /// Makes room for more bytes, up to `most` together. They are given back once they are used.
    pub fn make_room(&mut self, most: usize) {
        if self.is_full() && self.room.len() < most {
            self.room.resize((self.room.len() * 4).min(most), 0);
        }
    }

    /// Reads from a stream.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Poll<io::Result<usize>> {
        let count = ready!(self.fill(|room| Pin::new(stream).poll_read(cx, room)))?;
        Poll::Ready(Ok(count))
    }
}

/// The memory of a [`WriteBuffer`] at first.
const WRITTEN: usize = 20 << 10;

/// The most memory of a [`WriteBuffer`] that is kept.
const MOST_WRITTEN: usize = 64 << 10;

/// Bytes to be written, in memory of the thread that many of them share, one after another.
pub struct WriteBuffer(pub Vec<u8>);

impl Default for WriteBuffer {
    /// Returns a buffer without bytes.
    #[inline]
    fn default() -> WriteBuffer {
        let kept = WRITE.with_borrow_mut(Vec::pop);
        WriteBuffer(kept.unwrap_or_else(|| Vec::with_capacity(WRITTEN)))
    }
}

impl Drop for WriteBuffer {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0);
        bytes.clear();
        let _ = WRITE.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < MOST_KEPT && (WRITTEN..=MOST_WRITTEN).contains(&bytes.capacity()) {
                kept.push(bytes);
            }
        });
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        self.give_back();
    }
}

superpoll::debug_fields!(ReadBuffer, it => len: it.bytes().len());

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is read, consumed and taken: the bytes come out once, in their order.
        #[test]
        fn bytes_come_out_as_they_went_in(
            before in 0..20_000_usize,
            steps in prop::collection::vec((0..20_000_usize, 0..20_000_usize, 0..9_usize, any::<bool>()), 1..20)
        ) {
            let before: Vec<u8> = (0..before).map(|byte| byte as u8).collect();
            let mut buffer = ReadBuffer::from(&before[..]);
            let (mut next, mut expected) = (before.len() as u8, 0_u8);
            let mut held = Vec::new();
            for (count, used, skipped, takes) in steps {
                buffer.make_room(LARGEST);
                let _ = buffer.fill(|room| {
                    let count = count.min(room.len());
                    for byte in &mut room[..count] {
                        *byte = next;
                        next = next.wrapping_add(1);
                    }
                    Poll::Ready(Ok::<_, ()>(count))
                });
                let used = used.min(buffer.bytes().len());
                let skipped = skipped.min(used);
                let data = if takes {
                    buffer.take(skipped..used, used)
                } else {
                    let data = Bytes::copy_from_slice(&buffer.bytes()[skipped..used]);
                    buffer.consume(used);
                    data
                };
                let first = expected.wrapping_add(skipped as u8);
                expected = expected.wrapping_add(used as u8);
                held.push((first, data));
            }
            // Later bytes do not change what was taken.
            for (first, data) in held {
                let all = (0..data.len()).all(|at| data[at] == first.wrapping_add(at as u8));
                prop_assert!(all);
            }
        }
    }
}
