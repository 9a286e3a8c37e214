//! A borrowed descriptor together with its registration, for code that works on several types.

use std::os::fd::BorrowedFd;

use crate::io_registration::IoRegistration;

/// A descriptor and its registration.
#[derive(Clone, Copy)]
pub struct IoRef<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) registration: &'a IoRegistration,
}

/// A type that owns a descriptor and its registration.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no stream, pipe or `AsyncFd`",
    label = "no source or target that can be waited for",
    note = "for a file use `transfer::sendfile`; for another descriptor that can be polled wrap it in `AsyncFd`"
)]
pub trait AsIoRef {
    /// Borrows the descriptor and the registration.
    fn as_io_ref(&self) -> IoRef<'_>;
}
