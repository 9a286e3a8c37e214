//! Buffers and pipes of a thread, lent to the directions that have bytes to move just now.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use superpoll_http::sys;

use super::calls::{Call, count};

/// The most bytes that are read at a time.
pub(super) const BUFFER: usize = 16 * 1024;

/// The capacity of a pipe: the most that an unprivileged process may ask for (`fs.pipe-max-size`),
/// so that a bulk transfer takes few calls.
pub(super) const PIPE: usize = 1024 * 1024;

/// The buffers and the pipes that a thread keeps. One buffer is in use at a time unless a peer is
/// slow, and more than a few would be memory that a burst leaves behind.
const KEPT: usize = 16;

/// After this many buffers were freed, 4 MiB, and when few are lent, the allocator is asked to give
/// them back: they lay between the small blocks of other pairs, and it would keep them
/// indefinitely. It takes some milliseconds.
const FREED: u32 = 256;

/// Bytes that wait for their target are copied out of their buffer if there are no more than this:
/// usually a request that waits for its upstream to be connected.
const SMALL: usize = BUFFER / 8;

thread_local! {
    static BUFFERS: RefCell<Vec<Box<Buffer>>> = const { RefCell::new(Vec::new()) };
    /// The number of buffers that are lent, and of those that were freed since memory was given
    /// back.
    static LENT: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    static PIPES: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// A buffer, whose part from `start` to `end` is in use.
pub(super) struct Buffer {
    pub start: u32,
    pub end: u32,
    pub bytes: [u8; BUFFER],
}

impl Buffer {
    /// Takes a buffer, with arbitrary content.
    pub(super) fn take() -> Box<Buffer> {
        let _ = LENT.try_with(|counts| counts.set((counts.get().0 + 1, counts.get().1)));
        let kept = BUFFERS.try_with(|kept| kept.borrow_mut().pop()).ok().flatten();
        kept.unwrap_or_else(|| Box::new(Buffer { start: 0, end: 0, bytes: [0; BUFFER] }))
    }

    /// Takes a buffer that holds these bytes, as many as there is room for.
    pub(super) fn holding(bytes: &[u8]) -> Box<Buffer> {
        let mut buffer = Buffer::take();
        let count = bytes.len().min(BUFFER);
        buffer.bytes[..count].copy_from_slice(&bytes[..count]);
        (buffer.start, buffer.end) = (0, count as u32);
        buffer
    }

    /// Gives the buffer back.
    pub(super) fn give_back(self: Box<Buffer>) {
        // While the thread ends there is no pool any more, and the buffer is freed.
        let freed = BUFFERS.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT {
                kept.push(self);
                return false;
            }
            drop(self);
            true
        });
        let _ = LENT.try_with(|counts| {
            let (lent, freed_before) = counts.get();
            // A buffer goes back to the thread that it was taken on: a pair never changes engines.
            let (lent, freed) =
                (lent.saturating_sub(1), freed_before + u32::from(freed == Ok(true)));
            let gives = freed >= FREED && lent as usize <= KEPT;
            counts.set((lent, if gives { 0 } else { freed }));
            if gives {
                sys::give_memory_back();
            }
        });
    }

    /// Returns the part that is in use.
    pub(super) fn used(&self) -> &[u8] {
        &self.bytes[self.start as usize..self.end as usize]
    }
}

/// Bytes that wait for their target.
pub(super) enum Unsent {
    Whole(Box<Buffer>),
    /// The bytes from this position on.
    Small(Box<[u8]>, u32),
}

impl Unsent {
    pub(super) fn used(&self) -> &[u8] {
        match self {
            Unsent::Whole(buffer) => buffer.used(),
            Unsent::Small(bytes, start) => &bytes[*start as usize..],
        }
    }

    /// Removes the bytes that were written; returns whether those were all.
    pub(super) fn advance(&mut self, count: usize) -> bool {
        match self {
            Unsent::Whole(buffer) => buffer.start += count as u32,
            Unsent::Small(_, start) => *start += count as u32,
        }
        self.used().is_empty()
    }

    /// Prepares for a wait: gives up memory beyond the unsent bytes.
    pub(super) fn shrink(&mut self) {
        if matches!(self, Unsent::Whole(_)) && self.used().len() <= SMALL {
            let small = Unsent::Small(self.used().into(), 0);
            std::mem::replace(self, small).give_back();
        }
    }

    /// Gives back the buffer that was lent.
    pub(super) fn give_back(self) {
        if let Unsent::Whole(buffer) = self {
            buffer.give_back();
        }
    }
}

/// A pipe; it is empty while it is in the pool.
pub(super) struct Pipe {
    pub reader: OwnedFd,
    pub writer: OwnedFd,
}

impl Pipe {
    /// Takes an empty pipe.
    pub(super) fn take() -> io::Result<Pipe> {
        if let Some(pipe) = PIPES.try_with(|kept| kept.borrow_mut().pop()).ok().flatten() {
            return Ok(pipe);
        }
        count(Call::Pipe);
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        count(Call::Control);
        // Refused where the administrator or the user's total forbids it; the default of 64 KiB
        // works as well.
        let _ = fcntl_setpipe_size(&writer, PIPE);
        Ok(Pipe { reader, writer })
    }

    /// Gives the pipe back, empty.
    pub(super) fn give_back(self) {
        let _ = PIPES.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT {
                kept.push(self);
            }
        });
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        count(Call::Close);
        count(Call::Close);
    }
}
