//! Our own buffer for monoio: it lends memory to the kernel, and monoio's traits make the buffer
//! promise that this is sound.

use monoio::buf::{IoVecBuf, IoVecBufMut};

use crate::ring::course::MOST;

/// Some bytes on the heap, and the single entry that describes a part of them.
pub(super) struct Block {
    bytes: Box<[u8; MOST]>,
    entry: Box<libc::iovec>,
}

impl Block {
    pub(super) fn new() -> Block {
        let mut bytes = Box::new([0; MOST]);
        let entry = Box::new(libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: MOST });
        Block { bytes, entry }
    }

    /// Returns the block with an entry for its first `count` bytes.
    pub(super) fn of(mut self, count: usize) -> Block {
        self.entry.iov_len = count.min(self.bytes.len());
        self
    }
}

// SAFETY: entry and bytes are on the heap, so neither moves with the block, and both live as long
// as the block. The entry describes no more than the bytes.
unsafe impl IoVecBuf for Block {
    fn read_iovec_ptr(&self) -> *const libc::iovec {
        &raw const *self.entry
    }
    fn read_iovec_len(&self) -> usize {
        1
    }
}

// SAFETY: as above; all bytes are initialised from the beginning.
unsafe impl IoVecBufMut for Block {
    fn write_iovec_ptr(&mut self) -> *mut libc::iovec {
        &raw mut *self.entry
    }
    fn write_iovec_len(&mut self) -> usize {
        1
    }
    unsafe fn set_init(&mut self, _pos: usize) {}
}
