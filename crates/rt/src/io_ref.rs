//! A borrowed descriptor together with its registration, for code that works on several types.

use std::os::fd::{AsFd, BorrowedFd};

use crate::async_fd::AsyncFd;
use crate::io_registration::IoRegistration;
use crate::net::TcpStream;
use crate::net::unix::UnixStream;

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

impl<T: AsFd> AsIoRef for AsyncFd<T> {
    fn as_io_ref(&self) -> IoRef<'_> {
        IoRef { fd: self.as_fd(), registration: self.registration() }
    }
}

impl AsIoRef for TcpStream {
    fn as_io_ref(&self) -> IoRef<'_> {
        self.async_fd().as_io_ref()
    }
}

impl AsIoRef for UnixStream {
    fn as_io_ref(&self) -> IoRef<'_> {
        self.async_fd().as_io_ref()
    }
}
