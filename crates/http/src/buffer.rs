//! Buffers that connections have only as long as there is something in them.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::AsyncRead;

/// The bytes of a buffer.
pub(crate) const SIZE: usize = 16 << 10;

/// The bytes of a buffer for the head of a response that is larger.
pub(crate) const LARGEST: usize = 64 << 10;

/// The most buffers that a thread keeps while no connection has them.
const MOST_KEPT: usize = 64;

thread_local! {
    /// The buffers of this thread that no connection has, all of [`SIZE`]. They are made once,
    /// since overwriting one with zeros costs as much as a small request.
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };

    /// The memory of buffers for writing that no connection has.
    static WRITE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes that were read and not used.
#[derive(Default)]
pub struct ReadBuffer {
    /// Empty, or of [`SIZE`], or larger for a time.
    room: Vec<u8>,
    start: usize,
    end: usize,
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

    fn give_back(&mut self) {
        (self.start, self.end) = (0, 0);
        let room = std::mem::take(&mut self.room);
        if room.len() != SIZE {
            return;
        }
        // At the end of a thread it has no list any more.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < MOST_KEPT {
                kept.push(room);
            }
        });
    }

    /// Fills the room after the bytes by a function that returns how many it has read. A buffer
    /// that stays empty goes back.
    pub fn fill<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Poll<Result<usize, E>>,
    ) -> Poll<Result<usize, E>> {
        if self.room.is_empty() {
            let kept = KEPT.with_borrow_mut(Vec::pop);
            self.room = kept.unwrap_or_else(|| vec![0; SIZE]);
        } else if self.end == self.room.len() {
            self.room.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let outcome = read(&mut self.room[self.end..]);
        if let Poll::Ready(Ok(count)) = &outcome {
            self.end += count;
        }
        if self.is_empty() {
            self.give_back();
        }
        outcome
    }

    /// Makes room for more bytes, up to [`LARGEST`] together.
    pub(crate) fn make_room(&mut self) {
        if self.is_full() && self.room.len() < LARGEST {
            self.room.resize(LARGEST, 0);
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
