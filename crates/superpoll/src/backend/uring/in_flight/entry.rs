//! One operation, and the request that the kernel receives for it.

use std::os::fd::RawFd;

use crate::backend::uring::names::NOWHERE;
use crate::operation::Operation;
use crate::sys::uring::loan::{Loan, Request};

/// The known state of the end of a stream that a receive reads again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The kernel will report it, as far as is known.
    Ahead,
    /// It may have come, and must be checked.
    Doubted,
    /// It has come. The remaining bytes are received bit by bit.
    There,
}

/// An operation under way, or about to be.
pub(super) struct Entry {
    /// The registration's index; `None` after the registration has ended.
    pub owner: Option<u32>,
    /// The entries of the same registration before and after this one.
    pub before: u32,
    pub after: u32,
    pub fd: RawFd,
    pub token: u64,
    request: Request,
    /// Its memory; the kernel has it from the submission to the last answer.
    pub loan: Loan,
    pub cancelled: bool,
    /// For a receive that goes on by itself: its progress with the end of the stream.
    pub end: End,
    /// The kernel's answer to the first part of a linked pair.
    pub first: Option<i32>,
}

/// The request that an operation stands for.
pub(super) fn request(operation: &Operation) -> Request {
    let blocks = true;
    match *operation {
        Operation::Accept => Request::Accept,
        Operation::AcceptMany => Request::AcceptMany,
        Operation::Connect(_) => Request::Connect,
        Operation::Receive(_) => Request::Receive { most: u32::MAX, blocks },
        Operation::ReceiveAtMost { most, .. } => Request::Receive { most: at_most(most), blocks },
        Operation::ReceiveMany => Request::ReceiveMany,
        Operation::Send { from, .. } => Request::Send { from, blocks },
        Operation::SendAll { from, .. } => Request::SendAll { from },
        Operation::SendAllAndShutdown { from, .. } => Request::SendAllAndShutdown { from },
        Operation::Read(_) => Request::Read { blocks },
        Operation::Write { from, .. } => Request::Write { from, blocks },
    }
}

/// A limit as the kernel takes it; it moves no more bytes at a time in any case.
#[inline]
pub(in crate::backend::uring) fn at_most(most: usize) -> u32 {
    most.try_into().unwrap_or(u32::MAX)
}

impl Entry {
    /// An entry that the kernel has not received, before another one of the same registration.
    pub(super) fn new(
        owner: u32,
        after: u32,
        fd: RawFd,
        operation: Operation,
        token: u64,
    ) -> Entry {
        let request = request(&operation);
        let loan = match operation {
            Operation::Accept => Loan::of_room(),
            Operation::Connect(address) => Loan::of_address(address),
            operation => Loan::of(operation.into_memory().unwrap_or_default()),
        };
        Entry {
            owner: Some(owner),
            before: NOWHERE,
            after,
            fd,
            token,
            request,
            loan,
            cancelled: false,
            end: End::Ahead,
            first: None,
        }
    }

    /// The kind of operation.
    pub(super) fn kind(&self) -> Request {
        self.request
    }

    /// The request to submit now.
    pub(super) fn request(&self) -> Request {
        match self.request {
            Request::ReceiveMany if self.end == End::There => Request::ReceiveProvided,
            request => request,
        }
    }

    /// The number of bytes to send.
    pub(super) fn length(&self) -> usize {
        match self.request {
            Request::Send { from, .. }
            | Request::SendAll { from }
            | Request::SendAllAndShutdown { from }
            | Request::Write { from, .. } => self.loan.length(from),
            _ => 0,
        }
    }

    /// Takes out the memory that the operation was given, if any: with the bytes that were read and
    /// no more, or as it was given.
    pub(super) fn into_memory(mut self, is_filled: bool) -> Option<Vec<u8>> {
        use Request::*;
        let has_memory = !matches!(self.request, Accept | AcceptMany | Connect | ReceiveMany);
        let mut memory = has_memory.then(|| self.loan.take())?;
        if !is_filled && self.request.fills() {
            memory.clear();
        }
        Some(memory)
    }
}
