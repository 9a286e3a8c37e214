//! A body that is read while it is sent.
//!
//! What the kernel has in memory is read by the engine itself (`preadv2` with `RWF_NOWAIT`); what is on a disk is read
//! by a thread that may block. There is at most one buffer under way for each body: who asks for the next frame has
//! sent the last. Buffers are used again when what was read into them has been sent.
//!
//! The length of a body has been promised by its head. A file that has become shorter meanwhile ends the body with an
//! error, which closes the connection: a client is told that something is missing rather than given something else.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use superpoll_rt::blocking::{Blocking, unblock};

/// The most bytes of one frame: large enough that a system call for each does not matter.
const FRAME: usize = 128 << 10;

/// How many unused buffers a thread keeps.
const KEPT: usize = 8;

thread_local! {
    static BUFFERS: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A part of a body.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    /// Bytes of a file, which is a regular one.
    File(Arc<File>, Range<u64>),
    /// Bytes in memory.
    Memory(Bytes),
}

impl Piece {
    pub(super) fn length(&self) -> u64 {
        match self {
            Piece::File(_, range) => range.end - range.start,
            Piece::Memory(bytes) => bytes.len() as u64,
        }
    }
}

/// A buffer with something in it. It goes back to the thread that drops it.
struct Lent {
    buffer: Box<[u8]>,
    length: usize,
}

impl Lent {
    fn new() -> Lent {
        let kept = BUFFERS.with_borrow_mut(Vec::pop);
        Lent { buffer: kept.unwrap_or_else(|| vec![0; FRAME].into_boxed_slice()), length: 0 }
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        // A thread that is ending has no place for it.
        let _ = BUFFERS.try_with(|buffers| {
            if let Ok(mut buffers) = buffers.try_borrow_mut()
                && buffers.len() < KEPT
            {
                buffers.push(buffer);
            }
        });
    }
}

/// What of the next bytes can be had at once; none where that cannot be told or is nothing.
fn read_now(file: &File, start: u64, most: usize) -> io::Result<Option<Lent>> {
    let mut lent = Lent::new();
    loop {
        let mut parts = [IoSliceMut::new(&mut lent.buffer[..most])];
        match preadv2(file, &mut parts, start, ReadWriteFlags::NOWAIT) {
            Ok(length) => {
                lent.length = length;
                return Ok(Some(lent));
            }
            Err(Errno::INTR) => {}
            // Not in memory, or a file system or a kernel that does not know the question.
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads until a buffer is full or the file ends, and tells how much that was.
pub(super) fn fill(file: &File, buffer: &mut [u8], start: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], start + filled as u64) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn read_later(file: Arc<File>, start: u64, most: usize) -> Blocking<io::Result<Lent>> {
    unblock(move || {
        let mut lent = Lent::new();
        lent.length = fill(&file, &mut lent.buffer[..most], start)?;
        Ok(lent)
    })
}

/// Pieces, one after another.
pub(super) struct Pieces {
    pieces: VecDeque<Piece>,
    left: u64,
    reading: Option<Blocking<io::Result<Lent>>>,
}

impl Pieces {
    pub(super) fn new(pieces: impl Into<VecDeque<Piece>>) -> Pieces {
        let pieces = pieces.into();
        let left = pieces.iter().map(Piece::length).sum();
        Pieces { pieces, left, reading: None }
    }

    /// Takes what was read off the first piece, which is a file.
    fn frame(&mut self, lent: Lent) -> io::Result<Frame<Bytes>> {
        if lent.length == 0 {
            let what = "a file has become shorter while it was sent";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        if let Some(Piece::File(_, range)) = self.pieces.front_mut() {
            range.start += lent.length as u64;
            if range.is_empty() {
                self.pieces.pop_front();
            }
        }
        self.left -= lent.length as u64;
        Ok(Frame::data(Bytes::from_owner(lent)))
    }

    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            if let Some(reading) = &mut self.reading {
                let lent = ready!(Pin::new(reading).poll(cx));
                self.reading = None;
                let lent = lent.map_err(io::Error::from).and_then(|lent| lent);
                return Poll::Ready(Some(lent.and_then(|lent| self.frame(lent))));
            }
            match self.pieces.front_mut() {
                None => return Poll::Ready(None),
                Some(Piece::Memory(bytes)) => {
                    let bytes = std::mem::take(bytes);
                    self.pieces.pop_front();
                    self.left -= bytes.len() as u64;
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Some(Piece::File(file, range)) => {
                    let most = FRAME.min(usize::try_from(range.end - range.start).unwrap_or(FRAME));
                    match read_now(file, range.start, most) {
                        Ok(Some(lent)) => return Poll::Ready(Some(self.frame(lent))),
                        Ok(None) => {
                            self.reading = Some(read_later(Arc::clone(file), range.start, most));
                        }
                        Err(error) => return Poll::Ready(Some(Err(error))),
                    }
                }
            }
        }
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let frame = ready!(this.next(cx));
        if matches!(frame, Some(Err(_))) {
            this.pieces.clear();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// The first bytes of a file, fewer where it has fewer.
pub(super) async fn read_all(file: &Arc<File>, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        let mut parts = [IoSliceMut::new(&mut bytes[filled..])];
        match preadv2(file, &mut parts, filled as u64, ReadWriteFlags::NOWAIT) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(_) => {
                let file = Arc::clone(file);
                return unblock(move || {
                    filled += fill(&file, &mut bytes[filled..], filled as u64)?;
                    bytes.truncate(filled);
                    Ok(bytes)
                })
                .await?;
            }
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}
