//! Memory that belongs to the kernel while a request is under way in a ring.
//!
//! A [`Loan`] owns the memory of one request from before its submission until every entry of it was
//! answered. Until then the memory cannot be taken out, and dropping the loan leaks the memory,
//! because the kernel may still use it.

use std::io;
use std::mem::forget;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use io_uring::{opcode, squeue, types};

use super::address::Room;
use super::provided::GROUP;
use super::{Completion, Ring};
use crate::stats::Calls;

/// The most bytes that one call moves (`MAX_RW_COUNT` of the kernel).
const MOST: usize = 0x7fff_f000;

/// The file that a request is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum File {
    /// By the number of its descriptor, which the kernel looks up when it carries the request out.
    Descriptor(RawFd),
    /// By its place in the [table](Ring::keep_file) of the ring.
    Kept(u32),
}

/// A request to the kernel. Its bytes are in the [`Loan`]. A request that does not block fails
/// where it would.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// `accept4(2)` of a non-blocking connection, with the peer's address.
    Accept,
    /// The same again and again, without addresses.
    AcceptMany,
    /// `connect(2)` to the address of the loan.
    Connect,
    /// `recv(2)` of at most this many bytes.
    Receive { most: u32, blocks: bool },
    /// `recv(2)` into provided buffers, again and again.
    ReceiveMany,
    /// `recv(2)` into one provided buffer.
    ReceiveProvided,
    /// `send(2)` of the bytes from an offset on.
    Send { from: usize, blocks: bool },
    /// The same to the last byte (`MSG_WAITALL`).
    SendAll { from: usize },
    /// The same, and then `shutdown(2)` of the writing direction.
    SendAllAndShutdown { from: usize },
    /// `read(2)`.
    Read { blocks: bool },
    /// `write(2)` of the bytes from an offset on.
    Write { from: usize, blocks: bool },
}

impl Request {
    /// Whether the kernel writes to the bytes of the loan.
    pub(crate) const fn fills(self) -> bool {
        matches!(self, Request::Receive { .. } | Request::Read { .. })
    }

    /// The opcodes that the request takes.
    pub(crate) fn opcodes(self) -> &'static [u8] {
        match self {
            Request::Accept | Request::AcceptMany => &[opcode::Accept::CODE],
            Request::Connect => &[opcode::Connect::CODE],
            Request::Receive { .. } | Request::ReceiveMany | Request::ReceiveProvided => {
                &[opcode::Recv::CODE]
            }
            Request::Send { .. } | Request::SendAll { .. } => &[opcode::Send::CODE],
            Request::SendAllAndShutdown { .. } => &[opcode::Send::CODE, opcode::Shutdown::CODE],
            Request::Read { .. } => &[opcode::Read::CODE],
            Request::Write { .. } => &[opcode::Write::CODE],
        }
    }
}

/// The opcode by which a request is cancelled.
pub(crate) const CANCEL: u8 = opcode::AsyncCancel::CODE;

/// The memory of a request, and how far the kernel is with it.
#[derive(Default)]
pub(crate) struct Loan {
    bytes: Vec<u8>,
    /// In memory of its own, whose place is fixed.
    address: Option<Box<Room>>,
    /// How many answers are to come that are the last of their entry.
    due: u8,
    /// Whether the kernel fills the bytes, and how many it has filled.
    fills: bool,
    filled: u32,
}

impl std::fmt::Debug for Loan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loan").field("due", &self.due).finish_non_exhaustive()
    }
}

impl Loan {
    /// A loan of bytes: those to send, or the room to fill.
    #[inline]
    pub(crate) fn of(bytes: Vec<u8>) -> Loan {
        Loan { bytes, address: None, due: 0, fills: false, filled: 0 }
    }

    /// A loan of room for the address of a peer.
    pub(crate) fn of_room() -> Loan {
        Loan::of_boxed(Room::empty())
    }

    /// A loan of an address to connect to.
    pub(crate) fn of_address(address: SocketAddr) -> Loan {
        Loan::of_boxed(Room::of(address))
    }

    fn of_boxed(address: Room) -> Loan {
        let mut loan = Loan::default();
        loan.address = Some(Box::new(address));
        loan
    }

    /// Whether the kernel has the memory.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.due > 0
    }

    /// The bytes, for a call that is made instead of the request; none while the kernel has them.
    pub(crate) fn room(&mut self) -> Option<&mut Vec<u8>> {
        self.fills = false;
        (self.due == 0).then_some(&mut self.bytes)
    }

    /// The number of bytes from an offset on.
    pub(crate) fn length(&self, from: usize) -> usize {
        self.bytes.len() - self.bytes.len().min(from)
    }

    /// The address that the kernel has written, if it is one of IP.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        if self.due > 0 { None } else { self.address.as_ref()?.address() }
    }

    /// Takes the bytes out: those that the kernel has filled and no more, or as they were given.
    /// None while the kernel has them.
    #[inline]
    pub(crate) fn take(&mut self) -> Vec<u8> {
        if self.due > 0 {
            return Vec::new();
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        if self.fills {
            let filled = (self.filled as usize).min(bytes.capacity());
            // SAFETY: the kernel has written this many bytes from the front, and there is room for
            // them.
            unsafe { bytes.set_len(filled) };
        }
        bytes
    }

    /// Queues the entries of a request for the next call, under `name` and, where the request takes
    /// two, `second`. The error is `EBUSY` if completions must be fetched first.
    pub(crate) fn submit(
        &mut self,
        calls: &mut Calls,
        ring: &mut Ring,
        file: File,
        request: Request,
        (name, second): (u64, u64),
    ) -> io::Result<()> {
        let (first, last) = self.entries(file, request);
        // A chain ends where a call does.
        ring.make_room(calls, 1 + usize::from(last.is_some()))?;
        // SAFETY: the memory is the loan's, which keeps it in place until the last answer.
        unsafe { ring.push(calls, &first.user_data(name)) }?;
        self.due = 1;
        if let Some(last) = last {
            // SAFETY: it refers to no memory.
            unsafe { ring.push(calls, &last.user_data(second)) }?;
            self.due = 2;
        }
        Ok(())
    }

    /// Notes an answer to the request, which the caller knows by its name.
    #[inline]
    pub(crate) fn answered(&mut self, completion: Completion) {
        if !completion.armed {
            self.due = self.due.saturating_sub(1);
        }
        if self.fills && completion.answer > 0 {
            self.filled = completion.answer as u32;
        }
    }

    /// Takes the memory back without an answer. For a request that does not wait, whose ring is
    /// gone: the kernel is done with such a request when the call that submits it returns, and
    /// nothing submits it any more. Also for the copy of a loan in a child process, which the
    /// kernel does not know of.
    pub(crate) fn recall(&mut self) {
        self.due = 0;
        self.filled = 0;
    }

    /// The entries for the kernel: one, or a pair in which the second begins when the first is done
    /// to the end.
    #[inline]
    fn entries(&mut self, file: File, request: Request) -> (squeue::Entry, Option<squeue::Entry>) {
        let (fd, kept) = match file {
            File::Descriptor(fd) => (types::Fd(fd), squeue::Flags::empty()),
            File::Kept(place) => (types::Fd(place as RawFd), squeue::Flags::FIXED_FILE),
        };
        (self.fills, self.filled) = (request.fills(), 0);
        let new = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // Where the file is at; pipes have no other place.
        let here = u64::MAX;
        let capped = |length: usize| length.min(MOST) as u32;
        let (memory, room) = (self.bytes.as_mut_ptr(), capped(self.bytes.capacity()));
        let bytes = &self.bytes;
        let rest = |from: usize| {
            let rest = &bytes[from.min(bytes.len())..];
            (rest.as_ptr(), capped(rest.len()))
        };
        let unless = |blocks, flag| if blocks { 0 } else { flag };
        let send = |from, flags| {
            let (start, length) = rest(from);
            opcode::Send::new(fd, start, length).flags(libc::MSG_NOSIGNAL | flags).build()
        };
        let entry = match request {
            Request::Accept => {
                let (address, length) = match &mut self.address {
                    Some(room) => (&raw mut room.address, &raw mut room.length),
                    None => (std::ptr::null_mut(), std::ptr::null_mut()),
                };
                opcode::Accept::new(fd, address.cast(), length).flags(new).build()
            }
            Request::AcceptMany => opcode::AcceptMulti::new(fd).flags(new).build(),
            Request::Connect => {
                let (address, length) = match &self.address {
                    Some(room) => (&raw const room.address, room.length),
                    None => (std::ptr::null(), 0),
                };
                opcode::Connect::new(fd, address.cast(), length).build()
            }
            Request::Receive { most, blocks } => opcode::Recv::new(fd, memory, room.min(most))
                .flags(unless(blocks, libc::MSG_DONTWAIT))
                .build(),
            Request::ReceiveProvided => {
                let receive = opcode::Recv::new(fd, std::ptr::null_mut(), 0).buf_group(GROUP);
                receive.build().flags(squeue::Flags::BUFFER_SELECT)
            }
            Request::ReceiveMany => opcode::RecvMulti::new(fd, GROUP).build(),
            Request::Send { from, blocks } => send(from, unless(blocks, libc::MSG_DONTWAIT)),
            Request::SendAll { from } => send(from, libc::MSG_WAITALL),
            Request::SendAllAndShutdown { from } => {
                let first = send(from, libc::MSG_WAITALL);
                if self.length(from) > MOST {
                    // More bytes than one call can send, so they are not all.
                    return (first, None);
                }
                let second = opcode::Shutdown::new(fd, libc::SHUT_WR).build();
                return (first.flags(squeue::Flags::IO_LINK), Some(second));
            }
            Request::Read { blocks } => opcode::Read::new(fd, memory, room)
                .offset(here)
                .rw_flags(unless(blocks, libc::RWF_NOWAIT))
                .build(),
            Request::Write { from, blocks } => {
                let (start, length) = rest(from);
                let flags = unless(blocks, libc::RWF_NOWAIT);
                opcode::Write::new(fd, start, length).offset(here).rw_flags(flags).build()
            }
        };
        (entry.flags(kept), None)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if self.due > 0 {
            forget((std::mem::take(&mut self.bytes), self.address.take()));
        }
    }
}

impl Ring {
    /// Queues requests of one entry each, as many as there is room for. The iterator is advanced
    /// only when there is room for its next request.
    #[inline]
    pub(crate) fn fill<'a>(
        &mut self,
        mut next: impl FnMut() -> Option<(&'a mut Loan, File, Request, u64)>,
    ) -> io::Result<()> {
        self.check_forks()?;
        let mut queue = self.ring.submission();
        while !queue.is_full() {
            let Some((loan, file, request, name)) = next() else { break };
            let (entry, _) = loan.entries(file, request);
            loan.due = 1;
            // SAFETY: the memory is the loan's, which keeps it in place until the last answer. It
            // cannot fail, there is room.
            let _ = unsafe { queue.push(&entry.user_data(name)) };
            self.pushed = self.pushed.wrapping_add(1);
        }
        Ok(())
    }
}

impl Completion {
    /// The connection that an accept has made, or its error. The kernel has made the descriptor for
    /// this process, and only this answer tells its number, so it is taken once.
    pub(crate) fn into_socket(self) -> io::Result<OwnedFd> {
        if self.answer < 0 {
            return Err(io::Error::from_raw_os_error(-self.answer));
        }
        // SAFETY: as above.
        Ok(unsafe { OwnedFd::from_raw_fd(self.answer) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: Completion = Completion { answer: 2, ..Completion::NONE };

    #[test]
    fn memory_is_taken_when_the_last_answer_has_come() {
        let mut loan = Loan::of(Vec::with_capacity(4));
        loan.entries(File::Descriptor(0), Request::Receive { most: 4, blocks: true });
        loan.due = 2;
        loan.answered(Completion { armed: true, ..ANSWER });
        loan.answered(ANSWER);
        assert!(loan.is_due());
        assert_eq!(loan.take().capacity(), 0, "the kernel has it");
        loan.answered(Completion { answer: -libc::ENOTCONN, ..ANSWER });
        assert!(!loan.is_due());
        let taken = loan.take();
        assert!(taken.len() == 2 && taken.capacity() >= 4);
    }

    #[test]
    fn bytes_to_send_come_back_as_they_were() {
        let mut loan = Loan::of(vec![1, 2, 3]);
        assert_eq!((loan.length(1), loan.length(7)), (2, 0));
        loan.entries(File::Descriptor(0), Request::Send { from: 0, blocks: false });
        loan.due = 1;
        loan.answered(ANSWER);
        assert_eq!(loan.take(), [1, 2, 3]);
    }

    #[test]
    fn a_request_that_is_recalled_has_filled_nothing() {
        let mut loan = Loan::of(vec![1, 2, 3]);
        loan.entries(File::Kept(3), Request::Read { blocks: false });
        loan.due = 1;
        loan.recall();
        assert_eq!(loan.take(), []);
    }
}
