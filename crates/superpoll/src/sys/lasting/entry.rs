//! One operation, and the entries that the kernel receives for it.

use std::os::fd::RawFd;

use io_uring::{opcode, squeue, types};

use super::NOWHERE;
use super::address::Room;
use crate::operation::Operation;
use crate::sys::buffers::GROUP;

/// The most bytes that one call moves (`MAX_RW_COUNT` of the kernel).
const MOST: usize = 0x7fff_f000;

/// The known state of the end of a stream that a receive reads again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The kernel will report it, as far as is known.
    Ahead,
    /// It may have come, and must be checked.
    Doubted,
    /// It has come. The remaining bytes are received bit by bit.
    There,
}

/// An operation under way, or about to be.
pub struct Entry {
    /// The registration's index; `None` after the registration has ended.
    pub owner: Option<u32>,
    /// The entries of the same registration before and after this one.
    pub before: u32,
    pub after: u32,
    fd: RawFd,
    pub token: u64,
    pub operation: Operation,
    /// In memory of its own, whose place is fixed.
    pub room: Vec<Room>,
    /// How many completions are to come that are the last of their part.
    pub due: u8,
    pub cancelled: bool,
    /// For a receive that goes on by itself: its progress with the end of the stream.
    pub end: End,
    /// The kernel's answer to the first part of a linked pair.
    pub first: Option<i32>,
}

/// The opcodes an operation takes.
pub fn opcodes(operation: &Operation) -> &'static [u8] {
    match operation {
        Operation::Accept | Operation::AcceptMany => &[opcode::Accept::CODE],
        Operation::Connect(_) => &[opcode::Connect::CODE],
        Operation::Receive(_) | Operation::ReceiveMany => &[opcode::Recv::CODE],
        Operation::Send { .. } | Operation::SendAll { .. } => &[opcode::Send::CODE],
        Operation::SendAllAndShutdown { .. } => &[opcode::Send::CODE, opcode::Shutdown::CODE],
        Operation::Read(_) => &[opcode::Read::CODE],
        Operation::Write { .. } => &[opcode::Write::CODE],
    }
}

impl Entry {
    /// An entry that the kernel has not received, before another one of the same registration.
    pub fn new(owner: u32, after: u32, fd: RawFd, operation: Operation, token: u64) -> Entry {
        let room = match &operation {
            Operation::Accept => vec![Room::empty()],
            Operation::Connect(address) => vec![Room::of(*address)],
            _ => Vec::new(),
        };
        Entry {
            owner: Some(owner),
            before: NOWHERE,
            after,
            fd,
            token,
            operation,
            room,
            due: 0,
            cancelled: false,
            end: End::Ahead,
            first: None,
        }
    }

    /// The number of its descriptor.
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// The number of bytes to send.
    pub fn length(&self) -> usize {
        match &self.operation {
            Operation::Send { bytes, from }
            | Operation::SendAll { bytes, from }
            | Operation::SendAllAndShutdown { bytes, from }
            | Operation::Write { bytes, from } => bytes.len() - bytes.len().min(*from),
            _ => 0,
        }
    }

    /// The submissions for the kernel: one entry, or a pair in which the second begins when the
    /// first is done to the end.
    pub fn submissions(&mut self) -> (squeue::Entry, Option<squeue::Entry>) {
        let fd = types::Fd(self.fd);
        let new = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // Where the file is at; pipes have no other place.
        let here = u64::MAX;
        let long = self.length() > MOST;
        let most = |length: usize| length.min(MOST) as u32;
        let place = self.room.as_mut_ptr();
        let send = |bytes: &Vec<u8>, from: usize, flags| {
            let rest = &bytes[from.min(bytes.len())..];
            opcode::Send::new(fd, rest.as_ptr(), most(rest.len()))
                .flags(libc::MSG_NOSIGNAL | flags)
                .build()
        };
        let entry = match &mut self.operation {
            Operation::Accept => {
                // SAFETY: the room is there; nothing is read or written.
                let (address, length) =
                    unsafe { (&raw mut (*place).address, &raw mut (*place).length) };
                opcode::Accept::new(fd, address.cast(), length).flags(new).build()
            }
            Operation::AcceptMany => opcode::AcceptMulti::new(fd).flags(new).build(),
            Operation::Connect(_) => {
                // SAFETY: the room is there; its length was written when it was made.
                let (address, length) = unsafe { (&raw const (*place).address, (*place).length) };
                opcode::Connect::new(fd, address.cast(), length).build()
            }
            Operation::Receive(memory) => {
                opcode::Recv::new(fd, memory.as_mut_ptr(), most(memory.capacity())).build()
            }
            Operation::ReceiveMany if self.end == End::There => {
                let receive = opcode::Recv::new(fd, std::ptr::null_mut(), 0).buf_group(GROUP);
                receive.build().flags(squeue::Flags::BUFFER_SELECT)
            }
            Operation::ReceiveMany => opcode::RecvMulti::new(fd, GROUP).build(),
            Operation::Send { bytes, from } => send(bytes, *from, 0),
            Operation::SendAll { bytes, from } => send(bytes, *from, libc::MSG_WAITALL),
            Operation::SendAllAndShutdown { bytes, from } => {
                let first = send(bytes, *from, libc::MSG_WAITALL);
                if long {
                    // More bytes than one call can send, so they are not all.
                    return (first, None);
                }
                let second = opcode::Shutdown::new(fd, libc::SHUT_WR).build();
                return (first.flags(squeue::Flags::IO_LINK), Some(second));
            }
            Operation::Read(memory) => {
                let room = most(memory.capacity());
                opcode::Read::new(fd, memory.as_mut_ptr(), room).offset(here).build()
            }
            Operation::Write { bytes, from } => {
                let rest = &bytes[(*from).min(bytes.len())..];
                opcode::Write::new(fd, rest.as_ptr(), most(rest.len())).offset(here).build()
            }
        };
        (entry, None)
    }
}
