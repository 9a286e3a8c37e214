//! The streams that a batch reader can read.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::costs::Kind;
use crate::error::{Error, Result};
use crate::stats::Calls;
use crate::sys::descriptor;

/// A stream that can be read until it would block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// As it is priced.
    pub kind: Kind,
    /// Each read gives one record.
    pub in_records: bool,
}

/// The kind of stream that the descriptor is.
pub(super) fn of(io: BorrowedFd<'_>) -> Result<Stream> {
    let fd = io.as_raw_fd();
    let calls = &mut Calls::default();
    let refused = |what, instead| Err(Error::NotAStream { fd, what, instead });
    if !descriptor::can_wait(calls, fd) {
        return refused("a file, which is always ready", "read it directly");
    }
    let kind = descriptor::kind(calls, fd);
    if kind == Kind::Pipe {
        let flags = descriptor::flags(io)
            .map_err(|source| Error::system("asking for the flags", Some(fd), source))?;
        if flags & libc::O_NONBLOCK == 0 {
            return refused("blocking", "set O_NONBLOCK first");
        }
        if flags & libc::O_ACCMODE == libc::O_WRONLY {
            return refused("open for writing only", "register the end that is read");
        }
        return Ok(Stream { kind, in_records: false });
    }
    let option = |option| {
        descriptor::socket_option(fd, option)
            .map_err(|source| Error::system("asking for the type of a socket", Some(fd), source))
    };
    if option(libc::SO_ACCEPTCONN)? != 0 {
        return refused("a listening socket", "accept from it, and register the connections");
    }
    match option(libc::SO_TYPE)? {
        libc::SOCK_STREAM => Ok(Stream { kind, in_records: false }),
        libc::SOCK_SEQPACKET => Ok(Stream { kind, in_records: true }),
        _ => refused("a datagram socket", "watch it with a Poller, and receive from it"),
    }
}
