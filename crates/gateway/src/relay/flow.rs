//! One direction of a relayed pair: reads first, writes at once what was read, and holds memory only while the
//! target is slower than the source.
//!
//! A direction that reads full buffers in a row is a bulk transfer and goes over to `splice(2)` through a pipe.
//! The pipe is filled only when it is empty, and emptied whole before it is filled again: `EAGAIN` can then only
//! mean that the source is empty, or that the target is full. It is lent for as long as there are bytes to move.

use std::io;
use std::task::{Context, Poll, ready};

use futures_io::AsyncRead;

use super::pool::{self, BUFFER, PIPE, Pipe};
use super::stream::Stream;

/// After so many full buffers in a row, 128 KiB, a transfer is taken for bulk: the pipe and the smaller messages
/// of most protocols would not pay for the change.
const FULL_READS: u8 = 8;

/// After so many fills in a row of less than a buffer each, it is bulk no more: one copy costs less than two splices.
const SMALL_FILLS: u8 = 4;

/// How often a direction moves something before the other one, and other tasks, have their turn.
const ROUNDS: u32 = 8;

/// Which end an error is of.
#[derive(Debug)]
pub(super) enum Broken {
    Source(io::Error),
    Target(io::Error),
}

/// What was moved.
#[derive(Default, Debug)]
pub(super) struct Moved {
    pub read: u64,
    pub written: u64,
    pub spliced: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// With so many full reads in a row.
    Copy(u8),
    /// With so many small fills in a row.
    Splice(u8),
    /// One of the ends cannot be spliced.
    OnlyCopy,
}

/// Bytes that the target has not taken yet.
struct Held {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

/// How far the target's `TCP_NODELAY` is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delay {
    /// Nothing was written: the first write waits for nothing anyway.
    First,
    Second,
    Off,
}

/// The state of a direction.
pub(super) struct Flow {
    held: Option<Held>,
    pipe: Option<Pipe>,
    in_pipe: usize,
    way: Way,
    delay: Delay,
    ended: bool,
}

impl Flow {
    /// A direction; `inherits` says that its target has `TCP_NODELAY` already.
    pub fn new(inherits: bool) -> Flow {
        let delay = if inherits { Delay::Off } else { Delay::First };
        Flow { held: None, pipe: None, in_pipe: 0, way: Way::Copy(0), delay, ended: false }
    }

    /// Moves bytes until there is nothing to move; ready when the source has ended and all was written.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &Stream,
        target: &Stream,
        moved: &mut Moved,
    ) -> Poll<Result<(), Broken>> {
        for _ in 0..ROUNDS {
            if self.held.is_some() {
                ready!(self.write(cx, target, moved))?;
            } else if self.in_pipe > 0 {
                ready!(self.empty(cx, target, moved))?;
            } else if self.ended {
                return Poll::Ready(Ok(()));
            } else if matches!(self.way, Way::Splice(_)) {
                ready!(self.fill(cx, source, moved))?;
            } else {
                ready!(self.read(cx, source, moved))?;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn read(
        &mut self,
        cx: &mut Context<'_>,
        source: &Stream,
        moved: &mut Moved,
    ) -> Poll<Result<(), Broken>> {
        let mut buffer = pool::buffer();
        let outcome = source.poll_read(cx, &mut buffer);
        match outcome {
            Poll::Ready(Ok(count)) if count > 0 => {
                moved.read += count as u64;
                self.way = match self.way {
                    Way::Copy(_) if count < BUFFER => Way::Copy(0),
                    Way::Copy(full) if full + 1 >= FULL_READS => Way::Splice(0),
                    Way::Copy(full) => Way::Copy(full + 1),
                    way => way,
                };
                self.held = Some(Held { buffer, start: 0, end: count });
                Poll::Ready(Ok(()))
            }
            outcome => {
                pool::give_back(buffer);
                outcome.map(|outcome| outcome.map(|_| self.ended = true).map_err(Broken::Source))
            }
        }
    }

    fn write(
        &mut self,
        cx: &mut Context<'_>,
        target: &Stream,
        moved: &mut Moved,
    ) -> Poll<Result<(), Broken>> {
        let Some(held) = &mut self.held else { return Poll::Ready(Ok(())) };
        if self.delay == Delay::Second {
            target.set_nodelay();
            self.delay = Delay::Off;
        }
        let written = ready!(target.poll_write(cx, &held.buffer[held.start..held.end]));
        let written = written.map_err(Broken::Target)?;
        moved.written += written as u64;
        held.start += written;
        if held.start == held.end
            && let Some(held) = self.held.take()
        {
            pool::give_back(held.buffer);
        }
        if self.delay == Delay::First {
            self.delay = Delay::Second;
        }
        Poll::Ready(Ok(()))
    }

    fn fill(
        &mut self,
        cx: &mut Context<'_>,
        source: &Stream,
        moved: &mut Moved,
    ) -> Poll<Result<(), Broken>> {
        let pipe = match self.pipe.take().map_or_else(Pipe::take, Ok) {
            Ok(pipe) => pipe,
            Err(_) => {
                // Out of descriptors, perhaps: there is another way.
                self.way = Way::Copy(0);
                return Poll::Ready(Ok(()));
            }
        };
        match source.poll_fill(cx, &pipe.writer, PIPE) {
            Poll::Ready(Ok(count)) if count > 0 => {
                moved.read += count as u64;
                self.way = match self.way {
                    Way::Splice(small) if count < BUFFER && small + 1 >= SMALL_FILLS => {
                        Way::Copy(0)
                    }
                    Way::Splice(small) if count < BUFFER => Way::Splice(small + 1),
                    Way::Splice(_) => Way::Splice(0),
                    way => way,
                };
                self.in_pipe = count;
                self.pipe = Some(pipe);
                Poll::Ready(Ok(()))
            }
            outcome => {
                pipe.give_back();
                match outcome {
                    Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => {
                        self.way = Way::OnlyCopy;
                        Poll::Ready(Ok(()))
                    }
                    outcome => outcome
                        .map(|outcome| outcome.map(|_| self.ended = true).map_err(Broken::Source)),
                }
            }
        }
    }

    fn empty(
        &mut self,
        cx: &mut Context<'_>,
        target: &Stream,
        moved: &mut Moved,
    ) -> Poll<Result<(), Broken>> {
        let Some(pipe) = &mut self.pipe else { return Poll::Ready(Ok(())) };
        if self.way == Way::OnlyCopy {
            // The target has refused what is in the pipe.
            let mut buffer = pool::buffer();
            let reader = std::pin::Pin::new(&mut pipe.reader);
            let count = ready!(reader.poll_read(cx, &mut buffer)).map_err(Broken::Source)?;
            self.in_pipe -= count.min(self.in_pipe);
            self.held = Some(Held { buffer, start: 0, end: count });
        } else {
            match ready!(target.poll_empty(cx, &pipe.reader, self.in_pipe)) {
                Ok(count) => {
                    moved.written += count as u64;
                    moved.spliced += count as u64;
                    self.in_pipe -= count;
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    self.way = Way::OnlyCopy;
                }
                Err(error) => return Poll::Ready(Err(Broken::Target(error))),
            }
        }
        if self.in_pipe == 0
            && !matches!(self.way, Way::Splice(_))
            && let Some(pipe) = self.pipe.take()
        {
            pipe.give_back();
        }
        Poll::Ready(Ok(()))
    }
}
