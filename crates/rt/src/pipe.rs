//! Pipes whose two ends wake each other (see `peer_wake.rs`).

use std::io;
use std::os::fd::OwnedFd;

use crate::async_fd::AsyncFd;
use crate::error;
use crate::io_registration::IoRegistration;
use crate::peer_wake;
use crate::sys;

/// The reading end of a pipe. At the end of the stream, when all writers are gone, a read gives
/// zero bytes.
///
/// Reading is cancel safe: a read that has not returned bytes has taken none.
pub type PipeReader = AsyncFd<std::io::PipeReader>;

/// The writing end of a pipe. When the reader is gone a write fails with `BrokenPipe`.
///
/// A single write is cancel safe; `write_all` is not: it may have written a part.
pub type PipeWriter = AsyncFd<std::io::PipeWriter>;

/// Returns the two ends of a pipe (`pipe2(2)`). As long as both ends are awaited on the same
/// engine, an operation at one end wakes a task that waits at the other end without asking the
/// kernel. Ends that are duplicated or passed on work as well.
///
/// # Errors
///
/// Any error of `pipe2(2)`; at the limit of descriptors, the error says how many there may be
/// ([`superpoll::Error::DescriptorLimit`] inside).
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = std::io::pipe().map_err(|error| error::limit("making a pipe", error))?;
    sys::descriptor::set_nonblocking(&reader)?;
    sys::descriptor::set_nonblocking(&writer)?;
    let (one, other) = peer_wake::pair();
    Ok((
        AsyncFd::with_registration(reader, IoRegistration::paired(one).packets()),
        AsyncFd::with_registration(writer, IoRegistration::paired(other)),
    ))
}

/// Adopts an existing reading end of a pipe, from a child process for example; its other end is not
/// known.
///
/// # Errors
///
/// The same errors as [`AsyncFd::new`].
pub fn reader_from(end: impl Into<OwnedFd>) -> io::Result<PipeReader> {
    let end = std::io::PipeReader::from(end.into());
    sys::descriptor::set_nonblocking(&end)?;
    Ok(AsyncFd::with_registration(end, IoRegistration::default().packets()))
}

/// Adopts an existing writing end of a pipe, see [`reader_from`].
///
/// # Errors
///
/// The same errors as [`AsyncFd::new`].
pub fn writer_from(end: impl Into<OwnedFd>) -> io::Result<PipeWriter> {
    AsyncFd::new(std::io::PipeWriter::from(end.into()))
}
