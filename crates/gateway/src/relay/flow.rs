//! One direction of a relayed pair: reads first, writes the bytes at once, and holds memory only
//! while the target is slower than the source.
//!
//! A direction that reads full buffers in a row is a bulk transfer and changes to `splice(2)`
//! through a pipe. The pipe is filled only when it is empty, and is emptied completely before it is
//! filled again. So `EAGAIN` from a fill means that the source is empty, and from an emptying that
//! the target is full, without a further call. The pipe is lent for as long as there are bytes to
//! move.

use std::io;
use std::task::{Context, Poll, ready};

use super::calls::{Call, count};
use super::pool::{BUFFER, Buffer, PIPE, Pipe, Unsent};
use super::stream::End;

/// After this many full buffers in a row, 128 KiB, a transfer counts as bulk: the pipe and the
/// smaller messages of most protocols would not pay for the change.
const FULL_READS: u8 = 8;

/// After this many fills in a row of less than a buffer each, it counts as bulk no more: one copy
/// costs less than two splices.
const SMALL_FILLS: u8 = 4;

/// How often a direction moves bytes, and about how many, before the other direction and other
/// tasks have their turn.
const ROUNDS: u32 = 16;
const SHARE: u64 = 2 * PIPE as u64;

/// The end that an error belongs to.
#[derive(Debug)]
pub(super) enum Broken {
    Source(io::Error),
    Target(io::Error),
}

/// The bytes that were moved.
#[derive(Default, Debug)]
pub(super) struct Moved {
    pub read: u64,
    pub written: u64,
    pub spliced: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TransferMode {
    /// After this many full reads in a row.
    Copy(u8),
    /// After this many small fills in a row.
    Splice(u8),
    /// One of the ends cannot be spliced.
    OnlyCopy,
}

/// The state of the target's `TCP_NODELAY`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delay {
    /// Nothing was written: the first write waits for nothing anyway.
    First,
    Second,
    Off,
}

/// The state of a direction.
pub(super) struct Flow {
    /// Bytes that the target has not taken yet.
    unsent: Option<Unsent>,
    pipe: Option<Pipe>,
    in_pipe: u32,
    mode: TransferMode,
    delay: Delay,
    ended: bool,
    /// An error that was found while there were still bytes to write.
    failed: Option<io::Error>,
}

impl Flow {
    /// Creates a direction; `inherits` says that its target has `TCP_NODELAY` already.
    pub(super) fn new(inherits: bool) -> Flow {
        let delay = if inherits { Delay::Off } else { Delay::First };
        Flow {
            unsent: None,
            pipe: None,
            in_pipe: 0,
            mode: TransferMode::Copy(0),
            delay,
            ended: false,
            failed: None,
        }
    }

    /// Moves bytes until there are none to move; ready when the source has ended and all was
    /// written.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &impl End,
        target: &impl End,
        moved: &mut Moved,
    ) -> Poll<Result<(), Broken>> {
        for _ in 0..ROUNDS {
            if self.unsent.is_some() {
                ready!(self.write(cx, target, moved))?;
            } else if self.in_pipe > 0 {
                ready!(self.empty(cx, target, moved))?;
            } else if let Some(error) = self.failed.take() {
                return Poll::Ready(Err(Broken::Source(error)));
            } else if self.ended {
                return Poll::Ready(Ok(()));
            } else if moved.read >= SHARE {
                break;
            } else if matches!(self.mode, TransferMode::Splice(_)) {
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
        source: &impl End,
        moved: &mut Moved,
    ) -> Poll<Result<(), Broken>> {
        let mut buffer = Buffer::take();
        // Asked before the read: an end that is reported after the read may have arrived after it.
        let has_all = source.has_all();
        match source.poll_read(cx, &mut buffer.bytes) {
            Poll::Ready(Ok(count)) if count > 0 => {
                moved.read += count as u64;
                self.mode = match self.mode {
                    TransferMode::Copy(_) if count < BUFFER => TransferMode::Copy(0),
                    TransferMode::Copy(full) if full + 1 >= FULL_READS => TransferMode::Splice(0),
                    TransferMode::Copy(full) => TransferMode::Copy(full + 1),
                    mode => mode,
                };
                (buffer.start, buffer.end) = (0, count as u32);
                if count < BUFFER && has_all {
                    self.ended = true;
                } else if count < BUFFER {
                    self.read_on(cx, source, &mut buffer, moved);
                }
                self.unsent = Some(Unsent::Whole(buffer));
                Poll::Ready(Ok(()))
            }
            outcome => {
                buffer.give_back();
                outcome.map(|outcome| outcome.map(|_| self.ended = true).map_err(Broken::Source))
            }
        }
    }

    /// Reads the bytes that come right after. Usually this is the end, which then goes with the
    /// last bytes.
    fn read_on(
        &mut self,
        cx: &mut Context<'_>,
        source: &impl End,
        buffer: &mut Buffer,
        moved: &mut Moved,
    ) {
        match source.poll_read(cx, &mut buffer.bytes[buffer.end as usize..]) {
            Poll::Pending => {}
            Poll::Ready(Ok(0)) => self.ended = true,
            Poll::Ready(Ok(count)) => {
                moved.read += count as u64;
                buffer.end += count as u32;
            }
            Poll::Ready(Err(error)) => self.failed = Some(error),
        }
    }

    /// Takes the bytes that were read before there was a target, and whether they end the stream.
    pub(super) fn begin_with(&mut self, buffer: Box<Buffer>, ended: bool) {
        self.ended = ended;
        match buffer.used().is_empty() {
            true => buffer.give_back(),
            false => self.unsent = Some(Unsent::Whole(buffer)),
        }
    }

    /// As [`begin_with`](Flow::begin_with), with bytes of any number that do not end the stream.
    pub(super) fn begin_with_bytes(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.unsent = Some(Unsent::Small(bytes.into(), 0));
        }
    }

    /// Creates a direction with an end that cannot be spliced.
    pub(super) fn copying() -> Flow {
        let mut flow = Flow::new(true);
        flow.mode = TransferMode::OnlyCopy;
        flow
    }

    /// Whether there are bytes to write.
    pub(super) fn holds(&self) -> bool {
        self.unsent.is_some()
    }

    fn write(
        &mut self,
        cx: &mut Context<'_>,
        target: &impl End,
        moved: &mut Moved,
    ) -> Poll<Result<(), Broken>> {
        let Some(unsent) = &mut self.unsent else { return Poll::Ready(Ok(())) };
        // The last bytes go with the end, which waits for no further bytes.
        if self.delay == Delay::Second && !self.ended {
            target.set_nodelay();
            self.delay = Delay::Off;
        }
        let outcome = match self.ended {
            true => target.poll_write_last(cx, unsent.used()),
            false => target.poll_write(cx, unsent.used()),
        };
        let Poll::Ready(outcome) = outcome else {
            unsent.shrink();
            return Poll::Pending;
        };
        let written = outcome.map_err(Broken::Target)?;
        moved.written += written as u64;
        if unsent.advance(written)
            && let Some(unsent) = self.unsent.take()
        {
            unsent.give_back();
        }
        if self.delay == Delay::First {
            self.delay = Delay::Second;
        }
        Poll::Ready(Ok(()))
    }

    fn fill(
        &mut self,
        cx: &mut Context<'_>,
        source: &impl End,
        moved: &mut Moved,
    ) -> Poll<Result<(), Broken>> {
        let pipe = match self.pipe.take().map_or_else(Pipe::take, Ok) {
            Ok(pipe) => pipe,
            Err(_) => {
                // There may be no descriptor left: copying needs none.
                self.mode = TransferMode::Copy(0);
                return Poll::Ready(Ok(()));
            }
        };
        match source.poll_fill(cx, &pipe.writer, PIPE) {
            Poll::Ready(Ok(count)) if count > 0 => {
                moved.read += count as u64;
                self.mode = match self.mode {
                    TransferMode::Splice(small) if count < BUFFER && small + 1 >= SMALL_FILLS => {
                        TransferMode::Copy(0)
                    }
                    TransferMode::Splice(small) if count < BUFFER => {
                        TransferMode::Splice(small + 1)
                    }
                    TransferMode::Splice(_) => TransferMode::Splice(0),
                    mode => mode,
                };
                self.in_pipe = count as u32;
                self.pipe = Some(pipe);
                Poll::Ready(Ok(()))
            }
            outcome => {
                pipe.give_back();
                match outcome {
                    Poll::Ready(Err(error)) if is_refused(&error) => {
                        self.mode = TransferMode::OnlyCopy;
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
        target: &impl End,
        moved: &mut Moved,
    ) -> Poll<Result<(), Broken>> {
        let Some(pipe) = &self.pipe else { return Poll::Ready(Ok(())) };
        if self.mode == TransferMode::OnlyCopy {
            // The target has refused the bytes in the pipe.
            let mut buffer = Buffer::take();
            count(Call::Read);
            let count = superpoll::call::read(&pipe.reader, &mut buffer.bytes);
            let count = count.map_err(Broken::Source)?;
            self.in_pipe -= (count as u32).min(self.in_pipe);
            (buffer.start, buffer.end) = (0, count as u32);
            self.unsent = Some(Unsent::Whole(buffer));
        } else {
            match ready!(target.poll_empty(cx, &pipe.reader, self.in_pipe as usize)) {
                Ok(count) => {
                    moved.written += count as u64;
                    moved.spliced += count as u64;
                    self.in_pipe -= count as u32;
                }
                Err(error) if is_refused(&error) => self.mode = TransferMode::OnlyCopy,
                Err(error) => return Poll::Ready(Err(Broken::Target(error))),
            }
        }
        if self.in_pipe == 0
            && !matches!(self.mode, TransferMode::Splice(_))
            && let Some(pipe) = self.pipe.take()
        {
            pipe.give_back();
        }
        Poll::Ready(Ok(()))
    }
}

/// Whether an end cannot be spliced at all, by its nature or by the kernel's.
fn is_refused(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, Unsupported};
    matches!(error.kind(), InvalidInput | Unsupported)
}

impl Drop for Flow {
    /// A direction that has moved no bytes for long has a pipe only while its target is full, and
    /// then the pipe is not empty.
    fn drop(&mut self) {
        if let Some(unsent) = self.unsent.take() {
            unsent.give_back();
        }
        if self.in_pipe == 0
            && let Some(pipe) = self.pipe.take()
        {
            pipe.give_back();
        }
    }
}

#[cfg(test)]
mod tests;
