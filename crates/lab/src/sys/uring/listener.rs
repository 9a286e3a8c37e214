//! A ring that waits for connections on one listening socket.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use io_uring::{cqueue, opcode, types};

use super::Counted;

/// The most requests that one call submits; thousands of processes have such a ring each.
const REQUESTS: u32 = 8;

/// Marks requests to accept.
const ACCEPT: u64 = 1 << 63;

/// How a descriptor is watched, or a connection requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// A poll, which the kernel wakes with all other polls or alone, and which stays or reports
    /// once.
    Poll {
        /// `EPOLLEXCLUSIVE`: woken alone.
        exclusive: bool,
        /// Stays after it has reported.
        stays: bool,
    },
    /// `IORING_OP_ACCEPT`.
    Accept {
        /// Stays after it has accepted.
        stays: bool,
    },
}

/// An event.
#[derive(Debug)]
pub(crate) enum Happened {
    /// A descriptor is ready; its connection may be gone already.
    Ready,
    /// A connection was accepted.
    Accepted(OwnedFd),
}

/// The ring.
pub(crate) struct Listening {
    ring: Counted,
    request: Request,
}

impl Listening {
    /// Creates a ring with room for the simultaneous reports of so many descriptors.
    pub(crate) fn new(request: Request, descriptors: usize) -> io::Result<Listening> {
        let completions = u32::try_from(descriptors).unwrap_or(u32::MAX >> 1).max(REQUESTS);
        let ring = Counted::new(super::ring(REQUESTS, completions.next_power_of_two())?);
        Ok(Listening { ring, request })
    }

    /// Waits for connections on a descriptor, from the next call of [`wait`](Listening::wait) on.
    pub(crate) fn start(&mut self, fd: RawFd) -> io::Result<()> {
        let (name, file) = (fd as u64, types::Fd(fd));
        let entry = match self.request {
            Request::Poll { exclusive, stays } => {
                let alone = if exclusive { libc::EPOLLEXCLUSIVE } else { 0 };
                let events = (libc::EPOLLIN | alone) as u32;
                opcode::PollAdd::new(file, events).multi(stays).build().user_data(name)
            }
            Request::Accept { stays: true } => opcode::AcceptMulti::new(file)
                .flags(libc::SOCK_CLOEXEC)
                .build()
                .user_data(ACCEPT | name),
            Request::Accept { stays: false } => {
                opcode::Accept::new(file, std::ptr::null_mut(), std::ptr::null_mut())
                    .flags(libc::SOCK_CLOEXEC)
                    .build()
                    .user_data(ACCEPT | name)
            }
        };
        // SAFETY: none of the requests refers to memory: the peer's address is not asked for.
        unsafe { self.ring.push(&entry) }
    }

    /// Waits until something happens, and submits each request again that is over.
    pub(crate) fn wait(&mut self, mut happened: impl FnMut(Happened)) -> io::Result<()> {
        self.ring.enter(1)?;
        loop {
            let Some(completion) = self.ring.inner.completion().next() else { return Ok(()) };
            let (name, result) = (completion.user_data(), completion.result());
            if result < 0 {
                return Err(io::Error::from_raw_os_error(-result));
            }
            if !cqueue::more(completion.flags()) {
                self.start((name & !ACCEPT) as RawFd)?;
            }
            happened(if name & ACCEPT == 0 {
                Happened::Ready
            } else {
                // SAFETY: the kernel has made the descriptor for us, and its number has no other
                // owner.
                Happened::Accepted(unsafe { OwnedFd::from_raw_fd(result) })
            });
        }
    }
}
