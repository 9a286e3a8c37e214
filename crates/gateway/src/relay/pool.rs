//! Buffers and pipes of a thread, lent to the directions that have something to move just now.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use super::calls::{Call, count};

/// What is read at a time.
pub(super) const BUFFER: usize = 16 * 1024;

/// What a pipe is to hold: the most that an unprivileged process may ask for (`fs.pipe-max-size`), so that a
/// bulk transfer takes few calls.
pub(super) const PIPE: usize = 1024 * 1024;

/// How many of each a thread keeps: one buffer is in use at a time unless a peer is slow, and more than a few
/// would be memory that a burst leaves behind.
const KEPT: usize = 16;

thread_local! {
    static BUFFERS: RefCell<Vec<Box<Buffer>>> = const { RefCell::new(Vec::new()) };
    static PIPES: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// Memory, of which the part from `start` to `end` is in use.
pub(super) struct Buffer {
    pub start: u32,
    pub end: u32,
    pub bytes: [u8; BUFFER],
}

impl Buffer {
    /// Takes one, whatever is in it.
    pub fn take() -> Box<Buffer> {
        let kept = BUFFERS.try_with(|kept| kept.borrow_mut().pop()).ok().flatten();
        kept.unwrap_or_else(|| Box::new(Buffer { start: 0, end: 0, bytes: [0; BUFFER] }))
    }

    /// Takes one that holds these bytes, of which it takes as many as there is room for.
    pub fn holding(bytes: &[u8]) -> Box<Buffer> {
        let mut buffer = Buffer::take();
        let count = bytes.len().min(BUFFER);
        buffer.bytes[..count].copy_from_slice(&bytes[..count]);
        (buffer.start, buffer.end) = (0, count as u32);
        buffer
    }

    /// Gives it back.
    pub fn give_back(self: Box<Buffer>) {
        // While the thread ends there is no pool any more, and the buffer is freed.
        let _ = BUFFERS.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT {
                kept.push(self);
            }
        });
    }

    /// What is in use.
    pub fn used(&self) -> &[u8] {
        &self.bytes[self.start as usize..self.end as usize]
    }
}

/// A pipe; in the pool it is empty.
pub(super) struct Pipe {
    pub reader: OwnedFd,
    pub writer: OwnedFd,
}

impl Pipe {
    /// Takes an empty one.
    pub fn take() -> io::Result<Pipe> {
        if let Some(pipe) = PIPES.try_with(|kept| kept.borrow_mut().pop()).ok().flatten() {
            return Ok(pipe);
        }
        count(Call::Pipe);
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        count(Call::Control);
        // Refused where the administrator or the user's total forbids it; the default of 64 KiB works as well.
        let _ = fcntl_setpipe_size(&writer, PIPE);
        Ok(Pipe { reader, writer })
    }

    /// Gives it back, empty.
    pub fn give_back(self) {
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
