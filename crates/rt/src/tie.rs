//! A descriptor together with its tie to an engine, for code that works on several types.

use std::os::fd::{AsFd, BorrowedFd};

use crate::async_fd::AsyncFd;
use crate::link::Link;
use crate::net::TcpStream;
use crate::net::unix::UnixStream;

/// A descriptor and its tie to an engine.
#[derive(Clone, Copy)]
pub struct Tie<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) link: &'a Link,
}

/// A type that has a tie.
pub trait Tied {
    /// Returns the descriptor and the tie.
    fn tie(&self) -> Tie<'_>;
}

impl<T: AsFd> Tied for AsyncFd<T> {
    fn tie(&self) -> Tie<'_> {
        Tie { fd: self.as_fd(), link: self.link() }
    }
}

impl Tied for TcpStream {
    fn tie(&self) -> Tie<'_> {
        self.async_fd().tie()
    }
}

impl Tied for UnixStream {
    fn tie(&self) -> Tie<'_> {
        self.async_fd().tie()
    }
}
