//! Bytes in buffers that the engine provides when they arrive.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_io::{AsyncBufRead, AsyncRead};
use superpoll::operation::{Gain, Operation, Provided};

use super::multishot::{Multishot, Next};
use super::socket::{Socket, state_after_read};
use crate::budget::poll_budget;
use crate::engine::{self, Engine};
use crate::operation_handle::should_retry;
use crate::read_ahead::READ_AHEAD_BYTES;
use crate::sources::Direction;
use crate::sys::buffer;

/// The bytes of a stream socket as they arrive, in chunks of at most 4096 (`recv(2)`; on `uring`
/// one `IORING_OP_RECV` for all of them, multishot, into buffers registered with
/// `IORING_REGISTER_PBUF_RING`, Linux 6.0).
///
/// A stream on which nothing arrives owns no buffer: the kernel, or the engine, takes one when
/// there is something to put into it. It is a stream of chunks, and an [`AsyncBufRead`] that lends
/// them without a copy. An engine has at most 1024 buffers on `uring`. Copy the bytes that you
/// keep: while all buffers are in use, no stream of the engine receives anything until a chunk is
/// dropped, and the bytes wait in the sockets.
///
/// On `uring` the kernel receives ahead of the task that takes the chunks, at most some dozens,
/// while this lives.
///
/// Cancel safe: bytes that no task has taken when it is dropped go to the next read of the same
/// stream, of whatever kind. The same goes for [`next`](Chunks::next) and for reading through the
/// traits.
///
/// ```
/// use superpoll_rt::completion::{Chunks, send};
/// use superpoll_rt::net::unix::UnixStream;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// superpoll_rt::Runtime::new()?.block_on(async {
///     let (one, other) = UnixStream::pair()?;
///     send(&one, b"hello".to_vec()).await.0?;
///     drop(one);
///     let mut chunks = Chunks::new(&other);
///     while let Some(chunk) = chunks.next().await {
///         assert_eq!(&chunk?[..], b"hello");
///     }
///     std::io::Result::Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
pub struct Chunks<'a, S: Socket> {
    socket: &'a S,
    many: Multishot,
    /// The chunk lent through `AsyncBufRead`, with bytes in it.
    current: Option<Chunk>,
    ended: bool,
}

/// Some bytes of a stream, in a buffer that goes back to the kernel, or to the engine, when this is
/// dropped. It stays on its thread.
pub struct Chunk {
    bytes: Bytes,
    taken: usize,
    stays: PhantomData<*const ()>,
}

enum Bytes {
    Provided(Provided),
    Own(Vec<u8>),
}

impl Chunk {
    fn new(bytes: Bytes) -> Chunk {
        Chunk { bytes, taken: 0, stays: PhantomData }
    }

    /// Takes `count` bytes off its front, or all if there are fewer.
    pub fn advance(&mut self, count: usize) {
        self.taken += count.min(self.len());
    }
}

impl Deref for Chunk {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.bytes {
            Bytes::Provided(bytes) => bytes,
            Bytes::Own(bytes) => bytes,
        };
        &all[self.taken..]
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk").field("length", &self.len()).finish_non_exhaustive()
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let Bytes::Own(memory) = &mut self.bytes {
            let memory = std::mem::take(memory);
            engine::with(|engine| engine.recycle(memory));
        }
    }
}

impl<'a, S: Socket> Chunks<'a, S> {
    /// Receives the chunks of this stream.
    pub fn new(socket: &'a S) -> Chunks<'a, S> {
        Chunks { socket, many: Multishot::default(), current: None, ended: false }
    }

    /// Returns the next chunk, which is not empty; `None` at the end of the stream.
    ///
    /// Cancel safe: see the type.
    ///
    /// # Errors
    ///
    /// Any error of `recv(2)`.
    pub async fn next(&mut self) -> Option<io::Result<Chunk>> {
        poll_fn(|cx| self.poll_chunk(cx)).await
    }

    /// Like [`next`](Chunks::next), for futures written by hand.
    ///
    /// # Errors
    ///
    /// Any error of `recv(2)`.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Chunk>>> {
        if let Some(chunk) = self.current.take() {
            return Poll::Ready(Some(Ok(chunk)));
        }
        let io_ref = self.socket.as_io_ref();
        loop {
            let read_ahead = io_ref.registration.read_ahead();
            if let Some(outcome) = read_ahead.and_then(|read_ahead| read_ahead.pop_front()) {
                return Poll::Ready(Some(outcome.map(|bytes| Chunk::new(Bytes::Own(bytes)))));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            ready!(poll_budget(cx));
            match ready!(self.many.poll_next(cx, io_ref, || Operation::ReceiveMany)) {
                Next::Gain(Gain::Bytes(bytes)) => {
                    return Poll::Ready(Some(Ok(Chunk::new(Bytes::Provided(bytes)))));
                }
                Next::Gain(Gain::Nothing) => self.ended = true,
                Next::Gain(_) => {}
                Next::Failed(error) => return Poll::Ready(Some(Err(error))),
                // The stream has left another engine, which had read ahead.
                Next::ByReadiness if io_ref.registration.read_ahead().is_some() => {}
                Next::ByReadiness => return self.poll_by_readiness(cx),
            }
        }
    }

    fn poll_by_readiness(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Chunk>>> {
        let io_ref = self.socket.as_io_ref();
        let outcome = ready!(io_ref.registration.poll(cx, io_ref.fd, Direction::Read, || {
            let memory = engine::with(Engine::memory);
            let mut memory = memory.unwrap_or_else(|| Vec::with_capacity(READ_AHEAD_BYTES));
            let requested = memory.capacity();
            let done = buffer::read_to_vec(io_ref.fd, &mut memory);
            let chunk = Chunk::new(Bytes::Own(memory));
            let done = done?;
            Ok((chunk, state_after_read::<S>(done, requested)))
        }));
        self.ended = matches!(&outcome, Ok(chunk) if chunk.is_empty());
        Poll::Ready((!self.ended).then_some(outcome))
    }
}

impl<S: Socket> Stream for Chunks<'_, S> {
    type Item = io::Result<Chunk>;
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_chunk(cx)
    }
}

impl<S: Socket> AsyncBufRead for Chunks<'_, S> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        if this.current.is_none() {
            this.current = ready!(this.poll_chunk(cx)).transpose()?;
        }
        Poll::Ready(Ok(this.current.as_deref().unwrap_or(&[])))
    }

    fn consume(self: Pin<&mut Self>, count: usize) {
        let this = self.get_mut();
        if let Some(chunk) = &mut this.current {
            chunk.advance(count);
        }
        this.current.take_if(|chunk| chunk.is_empty());
    }
}

impl<S: Socket> AsyncRead for Chunks<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let bytes = ready!(self.as_mut().poll_fill_buf(cx))?;
        let count = bytes.len().min(room.len());
        room[..count].copy_from_slice(&bytes[..count]);
        self.consume(count);
        Poll::Ready(Ok(count))
    }
}

impl<S: Socket> Drop for Chunks<'_, S> {
    fn drop(&mut self) {
        let registration = self.socket.as_io_ref().registration;
        let rest = self.many.cancel_and_take();
        if let Some(chunk) = self.current.take() {
            registration.put_back_first(chunk.to_vec());
        }
        for progress in rest {
            match progress.outcome {
                Ok(Gain::Bytes(bytes)) => registration.put_back(Ok(bytes.to_vec())),
                // The next read finds the end by itself, but not a failure, which the kernel
                // reports once.
                Err(error) if !should_retry(&error) => registration.put_back(Err(error)),
                _ => {}
            }
        }
    }
}

impl<S: Socket> fmt::Debug for Chunks<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunks").field("ended", &self.ended).finish_non_exhaustive()
    }
}
