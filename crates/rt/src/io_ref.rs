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
pub trait AsIoRef {
    /// Borrows the descriptor and the registration.
    fn as_io_ref(&self) -> IoRef<'_>;
}
