//! Buffers and pipes of a thread, lent to the directions that have something to move just now.

use std::cell::RefCell;
use std::io;

use superpoll_rt::pipe::{PipeReader, PipeWriter, pipe};

/// What is read at a time.
pub(super) const BUFFER: usize = 16 * 1024;

/// What a pipe is to hold: the most that an unprivileged process may ask for (`fs.pipe-max-size`), so that a
/// bulk transfer takes few calls.
pub(super) const PIPE: usize = 1024 * 1024;

/// How many of each a thread keeps: one buffer is in use at a time unless a peer is slow, and more than a few
/// would be memory that a burst leaves behind.
const KEPT: usize = 16;

thread_local! {
    static BUFFERS: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
    static PIPES: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// Takes a buffer of [`BUFFER`] bytes, whatever is in it.
pub(super) fn buffer() -> Box<[u8]> {
    let kept = BUFFERS.try_with(|kept| kept.borrow_mut().pop()).ok().flatten();
    kept.unwrap_or_else(|| vec![0; BUFFER].into_boxed_slice())
}

/// Gives a buffer back.
pub(super) fn give_back(buffer: Box<[u8]>) {
    // While the thread ends there is no pool any more, and the buffer is freed.
    let _ = BUFFERS.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        if kept.len() < KEPT {
            kept.push(buffer);
        }
    });
}

/// A pipe; in the pool it is empty.
pub(super) struct Pipe {
    pub reader: PipeReader,
    pub writer: PipeWriter,
}

impl Pipe {
    /// Takes an empty one.
    pub fn take() -> io::Result<Pipe> {
        if let Some(pipe) = PIPES.try_with(|kept| kept.borrow_mut().pop()).ok().flatten() {
            return Ok(pipe);
        }
        let (reader, writer) = pipe()?;
        // Refused where the administrator or the user's total forbids it; the default of 64 KiB works as well.
        let _ = rustix::pipe::fcntl_setpipe_size(&writer, PIPE);
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
