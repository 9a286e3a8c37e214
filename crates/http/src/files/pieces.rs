//! A body that is read while it is sent.
//!
//! The engine itself reads bytes that the kernel has in memory (`preadv2` with `RWF_NOWAIT`); a
//! thread that may block reads bytes that are on a disk. Buffers are used again when the bytes in
//! them have been sent. HTTP/2 asks for the next buffer before that, as long as its connection has
//! joined less than its bound. But when all buffers in use have more than [`PLENTY`] bytes, a body
//! has one buffer at a time, and a small one.
//!
//! The length of a body has been promised by its head. A file that has become shorter meanwhile
//! ends the body with an error, which closes the connection: a client learns that bytes are missing
//! rather than getting different bytes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use crate::body::PollFrame;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use superpoll_rt::blocking::{Blocking, unblock};

/// The most bytes of one frame: large enough that a system call for each does not matter.
const FRAME: usize = 128 << 10;

/// How many unused buffers a thread keeps.
const KEPT: usize = 8;

/// Above this many bytes in all buffers in use, the next buffers are small, and each body has one
/// at a time: most buffers then wait for clients that do not read.
const PLENTY: usize = 64 << 20;

/// The bytes of a small buffer.
const SMALL: usize = 16 << 10;

thread_local! {
    static BUFFERS: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// The bytes of all buffers in use.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

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

/// A buffer with bytes in it. It goes back to the thread that drops it.
struct LentBuffer {
    buffer: Box<[u8]>,
    length: usize,
    /// Signalled when the buffer is back, if a body waits for that.
    back: Option<Arc<BufferReturn>>,
}

/// The signal that a buffer is back.
#[derive(Default)]
struct BufferReturn(Mutex<(bool, Option<Waker>)>);

impl BufferReturn {
    fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0 {
            return Poll::Ready(());
        }
        state.1 = Some(cx.waker().clone());
        Poll::Pending
    }

    fn notify(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = true;
        let waker = state.1.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl LentBuffer {
    /// Makes room for this many bytes. Buffers for a whole frame are used again.
    fn new(room: usize) -> LentBuffer {
        let kept = if room == FRAME { BUFFERS.with_borrow_mut(Vec::pop) } else { None };
        let buffer = kept.unwrap_or_else(|| vec![0; room].into_boxed_slice());
        IN_USE.fetch_add(buffer.len(), Ordering::Relaxed);
        LentBuffer { buffer, length: 0, back: None }
    }
}

impl AsRef<[u8]> for LentBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        IN_USE.fetch_sub(buffer.len(), Ordering::Relaxed);
        if let Some(back) = self.back.take() {
            back.notify();
        }
        if buffer.len() != FRAME {
            return;
        }
        // A thread that is ending keeps no buffers.
        let _ = BUFFERS.try_with(|buffers| {
            if let Ok(mut buffers) = buffers.try_borrow_mut()
                && buffers.len() < KEPT
            {
                buffers.push(buffer);
            }
        });
    }
}

/// Reads the next bytes that are available at once; `None` if there are none or the kernel cannot
/// tell.
fn read_now(file: &File, start: u64, most: usize, room: usize) -> io::Result<Option<LentBuffer>> {
    let mut lent = LentBuffer::new(room);
    loop {
        let mut parts = [IoSliceMut::new(&mut lent.buffer[..most])];
        match preadv2(file, &mut parts, start, ReadWriteFlags::NOWAIT) {
            Ok(length) => {
                lent.length = length;
                return Ok(Some(lent));
            }
            Err(Errno::INTR) => {}
            // The bytes are not in memory, or the file system or the kernel does not support the
            // question.
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads until a buffer is full or the file ends; returns how many bytes that were.
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

fn read_later(
    file: Arc<File>,
    start: u64,
    most: usize,
    room: usize,
) -> Blocking<io::Result<LentBuffer>> {
    unblock(move || {
        let mut lent = LentBuffer::new(room);
        lent.length = fill(&file, &mut lent.buffer[..most], start)?;
        Ok(lent)
    })
}

/// Pieces, one after another.
pub(crate) struct Pieces {
    pieces: VecDeque<Piece>,
    left: u64,
    reading: Option<Blocking<io::Result<LentBuffer>>>,
    /// The most bytes that are read at a time.
    most: usize,
    /// The buffer that must be back before another buffer is used.
    lent: Option<Arc<BufferReturn>>,
}

impl Pieces {
    pub(super) fn new(pieces: impl Into<VecDeque<Piece>>) -> Pieces {
        let pieces = pieces.into();
        let left = pieces.iter().map(Piece::length).sum();
        Pieces { pieces, left, reading: None, most: FRAME, lent: None }
    }

    /// Returns the first bytes of a file, which is a regular one.
    pub(crate) fn of_file(file: Arc<File>, length: u64) -> Pieces {
        Pieces::new([Piece::File(file, 0..length)])
    }

    /// Limits each read to this many bytes.
    pub(crate) fn limit_reads(&mut self, most: usize) {
        self.most = most.min(FRAME);
    }

    /// Takes the bytes that were read off the first piece, which is a file.
    fn frame(&mut self, mut lent: LentBuffer) -> io::Result<Frame<Bytes>> {
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
        if IN_USE.load(Ordering::Relaxed) > PLENTY {
            let back = Arc::default();
            lent.back = Some(Arc::clone(&back));
            self.lent = Some(back);
        }
        Ok(Frame::data(Bytes::from_owner(lent)))
    }

    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(lent) = &self.lent {
            ready!(lent.poll(cx));
            self.lent = None;
        }
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
                    let is_plenty = IN_USE.load(Ordering::Relaxed) > PLENTY;
                    let room = if is_plenty { self.most.min(SMALL) } else { self.most };
                    let most = room.min(usize::try_from(range.end - range.start).unwrap_or(room));
                    let room = if room == FRAME { FRAME } else { most };
                    match read_now(file, range.start, most, room) {
                        Ok(Some(lent)) => return Poll::Ready(Some(self.frame(lent))),
                        Ok(None) => {
                            self.reading =
                                Some(read_later(Arc::clone(file), range.start, most, room));
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

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PollFrame {
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

/// Returns the first bytes of a file, fewer if it is shorter.
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
