//! Sending memory that goes along with the operation.

use std::future::poll_fn;
use std::io;

use superpoll::call;
use superpoll::operation::{Gain, Operation};

use super::socket::{Sink, Socket};
use crate::async_fd;
use crate::budget::yield_if_spent;
use crate::io_ref::IoRef;
use crate::net::stream::close_writing;
use crate::operation_handle::{OperationHandle, should_retry};
use crate::short_reads::IoState;
use crate::sources::Direction;

/// Sends the bytes in the buffer, perhaps only a part (`send(2)` with `MSG_NOSIGNAL`; on `uring`
/// `IORING_OP_SEND`), and returns how many.
///
/// Not cancel safe: a dropped send may have been made, and its count is lost.
///
/// # Errors
///
/// Any error of `send(2)`; `BrokenPipe` once the peer has closed.
pub async fn send(socket: &impl Socket, bytes: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
    write(socket, bytes).await
}

/// Writes the bytes in the buffer, perhaps only a part (`write(2)`; on `uring` `IORING_OP_WRITE`),
/// and returns how many. On a socket it is [`send`].
///
/// Not cancel safe: a dropped write may have been made, and its count is lost.
///
/// # Errors
///
/// Any error of `write(2)`; `BrokenPipe` once no reader is left.
pub async fn write<S: Sink>(sink: &S, bytes: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
    if bytes.is_empty() {
        return (Ok(0), bytes);
    }
    yield_if_spent().await;
    let make = |bytes| match S::SOCKET {
        true => Operation::Send { bytes, from: 0 },
        false => Operation::Write { bytes, from: 0 },
    };
    match send_once(sink.as_io_ref(), make(bytes)).await {
        SendOutcome::Done(outcome, bytes) => (outcome, bytes),
        SendOutcome::Retry(bytes) => (by_readiness::<S>(sink.as_io_ref(), &bytes).await, bytes),
    }
}

/// Sends all bytes in the buffer (`send(2)` with `MSG_NOSIGNAL`; on `uring` `IORING_OP_SEND` with
/// `MSG_WAITALL`, which comes back when all is sent, Linux 5.19), and returns how many those are.
///
/// Not cancel safe: a dropped send may have sent all, a part or nothing.
///
/// # Errors
///
/// Any error of `send(2)`; a part may have been sent.
pub async fn send_all<S: Socket>(socket: &S, bytes: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
    send_from(socket, bytes, 0).await
}

/// Sends all bytes in the buffer and ends the writing direction (`send(2)` and `shutdown(2)`; on
/// `uring` `IORING_OP_SEND` linked with `IORING_OP_SHUTDOWN`, which the kernel begins when all is
/// sent and not before, without coming back in between). Nothing is ended if sending fails. A
/// connection that is gone by then has no direction to end, which is no error.
///
/// Not cancel safe: a dropped send may have sent all, a part or nothing. The direction may have
/// ended only if all was sent.
///
/// # Errors
///
/// Any error of `send(2)`; a part may have been sent.
pub async fn send_all_and_shutdown<S: Socket>(
    socket: &S,
    mut bytes: Vec<u8>,
) -> (io::Result<usize>, Vec<u8>) {
    let all = bytes.len();
    let mut sent = 0;
    if all > 0 {
        yield_if_spent().await;
        let operation = Operation::SendAllAndShutdown { bytes, from: 0 };
        match send_once(socket.as_io_ref(), operation).await {
            SendOutcome::Done(Ok(count), memory) if count < all => (sent, bytes) = (count, memory),
            SendOutcome::Done(outcome, memory) => return (outcome, memory),
            SendOutcome::Retry(memory) => bytes = memory,
        }
    }
    match send_from(socket, bytes, sent).await {
        (Ok(_), bytes) => (close_writing(socket).map(|()| all), bytes),
        failed => failed,
    }
}

/// Sends all bytes from an offset on.
async fn send_from<S: Socket>(
    socket: &S,
    mut bytes: Vec<u8>,
    mut sent: usize,
) -> (io::Result<usize>, Vec<u8>) {
    let all = bytes.len();
    let mut completes = true;
    while sent < all {
        yield_if_spent().await;
        let outcome;
        if completes {
            match send_once(socket.as_io_ref(), Operation::SendAll { bytes, from: sent }).await {
                SendOutcome::Done(done, memory) => (outcome, bytes) = (done, memory),
                SendOutcome::Retry(memory) => {
                    (bytes, completes) = (memory, false);
                    continue;
                }
            }
        } else {
            outcome = by_readiness::<S>(socket.as_io_ref(), &bytes[sent..]).await;
        }
        match outcome {
            Ok(0) => return (Err(io::ErrorKind::WriteZero.into()), bytes),
            Ok(count) => sent += count,
            Err(error) => return (Err(error), bytes),
        }
    }
    (Ok(all), bytes)
}

/// The outcome of an operation.
enum SendOutcome {
    Done(io::Result<usize>, Vec<u8>),
    /// Nothing was sent, and the send must be repeated in another way.
    Retry(Vec<u8>),
}

async fn send_once(io_ref: IoRef<'_>, operation: Operation) -> SendOutcome {
    let handle = match OperationHandle::start(io_ref, operation) {
        Ok(handle) => Sending(handle),
        Err(operation) => return SendOutcome::Retry(operation.into_memory().unwrap_or_default()),
    };
    let progress = poll_fn(|cx| handle.0.poll_next(cx)).await;
    let lost = || Err(io::Error::from_raw_os_error(libc::ECANCELED));
    match progress.map(|progress| (progress.outcome, progress.memory)) {
        Some((Ok(Gain::Count(count)), Some(bytes))) => SendOutcome::Done(Ok(count), bytes),
        Some((Err(error), Some(bytes))) if should_retry(&error) => SendOutcome::Retry(bytes),
        Some((Err(error), bytes)) => SendOutcome::Done(Err(error), bytes.unwrap_or_default()),
        // The number of sent bytes is unknown, so the send is not repeated.
        _ => SendOutcome::Done(lost(), Vec::new()),
    }
}

async fn by_readiness<S: Sink>(io_ref: IoRef<'_>, bytes: &[u8]) -> io::Result<usize> {
    async_fd::wait(io_ref.registration, Direction::Write, |cx| {
        io_ref.registration.poll(cx, io_ref.fd, Direction::Write, || {
            let done = if S::SOCKET {
                call::send(io_ref.fd, bytes)
            } else {
                call::write(io_ref.fd, bytes)
            }?;
            Ok((done, IoState::after(done, bytes.len())))
        })
    })
    .await
}

/// A send under way, which ends before its memory is given up.
struct Sending(OperationHandle);

impl Drop for Sending {
    fn drop(&mut self) {
        drop(self.0.cancel_and_take());
    }
}
