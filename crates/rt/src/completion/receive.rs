//! Receiving into memory that goes along with the operation.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use superpoll::operation::{Gain, Operation};

use super::socket::{Socket, Source, state_after_read};
use crate::async_fd;
use crate::budget::yield_if_spent;
use crate::io_ref::IoRef;
use crate::io_registration::IoRegistration;
use crate::operation_handle::{OperationHandle, should_retry};
use crate::sources::Direction;
use crate::sys::buffer;

/// Receives the bytes that are there, at least one (`recv(2)`; on `uring` `IORING_OP_RECV`), as
/// [`read`] does.
///
/// # Errors
///
/// Any error of `recv(2)`.
pub async fn recv(socket: &impl Socket, buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
    read(socket, buffer).await
}

/// Reads the bytes that are there, at least one (`read(2)`; on `uring` `IORING_OP_READ`, for
/// sockets `IORING_OP_RECV`).
///
/// The read fills the buffer's *capacity* from its front, whatever was in it. The buffer comes back
/// with exactly the bytes that were read. Zero bytes are the end of the stream, or a buffer without
/// capacity.
///
/// Cancel safe: if this is dropped after bytes have been read for it, they go to the next read of
/// the same stream, of whatever kind. They come before all that can be read from the descriptor
/// itself.
///
/// # Errors
///
/// Any error of `read(2)`; the buffer comes back empty.
pub async fn read<S: Source>(source: &S, mut buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
    buffer.clear();
    if buffer.capacity() == 0 {
        return (Ok(0), buffer);
    }
    yield_if_spent().await;
    let io_ref = source.as_io_ref();
    if let Some(outcome) = take_read_ahead(io_ref.registration, &mut buffer) {
        return (outcome, buffer);
    }
    let capacity = buffer.capacity();
    let operation = if S::SOCKET { Operation::Receive(buffer) } else { Operation::Read(buffer) };
    let mut buffer = match OperationHandle::start(io_ref, operation) {
        Ok(handle) => {
            let receiving = Receiving { registration: io_ref.registration, handle };
            let Some(progress) = poll_fn(|cx| receiving.handle.poll_next(cx)).await else {
                return (Err(io::ErrorKind::Interrupted.into()), Vec::with_capacity(capacity));
            };
            let buffer = progress.memory.unwrap_or_else(|| Vec::with_capacity(capacity));
            match progress.outcome {
                Ok(Gain::Count(count)) => return (Ok(count), buffer),
                Err(error) if !should_retry(&error) => return (Err(error), buffer),
                _ => buffer,
            }
        }
        Err(operation) => operation.into_memory().unwrap_or_default(),
    };
    let outcome = by_readiness::<S>(io_ref, &mut buffer).await;
    (outcome, buffer)
}

/// Bytes that came for a receive that was given up, if there are any.
fn take_read_ahead(
    registration: &IoRegistration,
    buffer: &mut Vec<u8>,
) -> Option<io::Result<usize>> {
    let read_ahead = registration.read_ahead()?;
    let room = buffer.capacity();
    let (outcome, spent) = read_ahead.consume_with(|bytes| {
        let count = bytes.len().min(room);
        buffer.extend_from_slice(&bytes[..count]);
        Ok(count)
    })?;
    if let Some(spent) = spent {
        crate::engine::with(|engine| engine.recycle(spent));
    }
    Some(outcome)
}

async fn by_readiness<S: Source>(io_ref: IoRef<'_>, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let requested = buffer.capacity();
    async_fd::wait(io_ref.registration, Direction::Read, |cx| {
        // Another receive may have been given up meanwhile.
        if let Some(outcome) = take_read_ahead(io_ref.registration, buffer) {
            return Poll::Ready(outcome);
        }
        io_ref.registration.poll(cx, io_ref.fd, Direction::Read, || {
            let done = buffer::read_to_vec(io_ref.fd, buffer)?;
            Ok((done, state_after_read::<S>(done, requested)))
        })
    })
    .await
}

/// A receive under way. Bytes that it has brought when it is given up go to the stream.
struct Receiving<'a> {
    registration: &'a IoRegistration,
    handle: OperationHandle,
}

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        for progress in self.handle.cancel_and_take() {
            match (progress.outcome, progress.memory) {
                (Ok(Gain::Count(1..)), Some(bytes)) => self.registration.put_back(Ok(bytes)),
                // The next read finds the end by itself, but not a failure, which the kernel
                // reports once.
                (Err(error), _) if !should_retry(&error) => self.registration.put_back(Err(error)),
                _ => {}
            }
        }
    }
}
