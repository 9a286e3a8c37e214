//! Buffers that the kernel takes when something has arrived, and not before
//! (`IORING_REGISTER_PBUF_RING`).
//!
//! They lie in [slabs](crate::sys::uring::provided), which are added as long as all buffers are in
//! use, up to a limit. The kernel takes a buffer for a completion, which has the buffer's number.
//! From then on the buffer belongs to its [`Provided`] alone, until that is dropped.

use std::io;

use crate::operation::Provided;
use crate::stats::Calls;
use crate::sys::uring::Ring;
use crate::sys::uring::provided::{MOST, SIZE, SLAB, Slabs};

/// The buffers of one ring.
#[derive(Debug)]
pub(super) struct Buffers {
    slabs: Slabs,
    total: u16,
    /// How many buffers the kernel has not taken, as far as completions show.
    available: u16,
}

impl Buffers {
    /// Buffers for a ring that has none.
    pub(super) fn new(calls: &mut Calls, ring: &mut Ring) -> io::Result<Buffers> {
        let slabs = Slabs::new(calls, ring)?;
        let mut buffers = Buffers { slabs, total: 0, available: 0 };
        buffers.grow();
        Ok(buffers)
    }

    /// Adds some buffers. Returns whether there could be more.
    pub(super) fn grow(&mut self) -> bool {
        if self.total >= MOST {
            return false;
        }
        self.slabs.add();
        let first = self.total;
        self.total += SLAB;
        self.provide(first..self.total);
        true
    }

    /// Provides the returned buffers to the kernel again.
    #[inline]
    pub(super) fn take_back(&mut self) {
        if let Some(mut returned) = self.slabs.take_returned() {
            self.provide(returned.drain(..));
            self.slabs.keep_room(returned);
        }
    }

    fn provide(&mut self, numbers: impl Iterator<Item = u16>) {
        for number in numbers {
            self.slabs.provide(number);
            self.available += 1;
        }
        self.slabs.publish();
    }

    /// Whether no buffer is in use, and the kernel has taken none whose completion is still
    /// missing.
    pub(super) fn is_whole(&self) -> bool {
        self.available == self.total
    }

    /// How many the kernel may have left.
    pub(super) fn available(&self) -> u16 {
        self.available
    }

    /// Takes the bytes that the kernel has put into a buffer, which the kernel must not know any
    /// more.
    pub(super) fn taken(&mut self, number: u16, length: usize) -> Provided {
        self.available = self.available.saturating_sub(1);
        self.slabs.taken(number, length)
    }

    /// Makes the kernel forget the buffers. Nothing may be under way that uses them.
    pub(super) fn forget(self, calls: &mut Calls, ring: &mut Ring) {
        self.slabs.forget(calls, ring);
    }

    /// Leaves all memory to a kernel that may still write to it.
    pub(super) fn leak(self) {
        self.slabs.leak();
    }

    /// Heap in use.
    pub(super) fn memory(&self) -> usize {
        usize::from(self.total) * SIZE + Slabs::SHARED
    }
}
