//! Messages with control data: descriptors that travel, and facts that a plain read does not
//! report.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// The most descriptors that one message carries (`SCM_MAX_FD` of the kernel).
pub(crate) const MOST: usize = 253;

const FD: usize = size_of::<RawFd>();

// SAFETY: it only computes.
const CONTROL: usize = unsafe { libc::CMSG_SPACE((MOST * FD) as u32) } as usize;

/// Room for control data, aligned as `cmsg(3)` wants it.
#[repr(C)]
union Control {
    header: libc::cmsghdr,
    bytes: [MaybeUninit<u8>; CONTROL],
}

/// The length to claim for control data with this many descriptors.
fn control_length(count: usize) -> usize {
    // SAFETY: it only computes.
    unsafe { libc::CMSG_LEN((count * FD) as u32) as usize }
}

/// A message without anything in it.
fn empty() -> libc::msghdr {
    // SAFETY: all zero is a msghdr whose pointers are null and whose lengths are zero.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn outcome(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The outcome of one receive.
#[derive(Debug)]
pub(crate) struct Received {
    pub length: usize,
    /// The message was longer than the buffers (`MSG_TRUNC`).
    pub truncated: bool,
    /// There was control data for which there was no room (`MSG_CTRUNC`).
    pub control_truncated: bool,
    pub fds: Vec<OwnedFd>,
    /// Something came along, either descriptors or credentials: a read of a stream ends where that
    /// changes.
    pub has_control: bool,
}

/// Reads from a stream; returns whether there were descriptors with the bytes, which are lost. At
/// such a place the kernel ends a read, however much there is.
pub(crate) fn read(
    fd: BorrowedFd<'_>,
    buffers: &mut [IoSliceMut<'_>],
) -> io::Result<(usize, bool)> {
    let (length, flags) = superpoll::call::receive_vectored(fd, buffers)?;
    Ok((length, flags & libc::MSG_CTRUNC != 0))
}

/// Receives bytes and at most `limit` descriptors, which are closed on exec (`MSG_CMSG_CLOEXEC`,
/// Linux 2.6.23).
pub(crate) fn receive(
    fd: BorrowedFd<'_>,
    buffers: &mut [IoSliceMut<'_>],
    limit: usize,
) -> io::Result<Received> {
    let mut control = MaybeUninit::<Control>::uninit();
    let mut message = empty();
    message.msg_iov = buffers.as_mut_ptr().cast();
    message.msg_iovlen = buffers.len() as _;
    if limit > 0 {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = control_length(limit.min(MOST)) as _;
    }
    // SAFETY: as in `read`; the control data is at least as long as the message says.
    let result = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let length = outcome(result)?;
    let mut fds = Vec::new();
    // SAFETY: the kernel has filled the control data and set its length in the message.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    let has_control = !header.is_null();
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give headers that lie within the control data.
        let (level, kind, long) =
            unsafe { ((*header).cmsg_level, (*header).cmsg_type, (*header).cmsg_len as usize) };
        if level == libc::SOL_SOCKET && kind == libc::SCM_RIGHTS {
            for at in 0..(long - control_length(0)) / FD {
                // SAFETY: the data that follows a header of SCM_RIGHTS is descriptors; it may be
                // unaligned. The kernel has made each of them for this process, and no other code
                // knows them.
                let fd = unsafe {
                    let data = libc::CMSG_DATA(header).cast::<RawFd>();
                    OwnedFd::from_raw_fd(ptr::read_unaligned(data.add(at)))
                };
                fds.push(fd);
            }
        }
        // SAFETY: as for CMSG_FIRSTHDR.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok(Received {
        length,
        truncated: message.msg_flags & libc::MSG_TRUNC != 0,
        control_truncated: message.msg_flags & libc::MSG_CTRUNC != 0,
        fds,
        has_control,
    })
}

/// Sends bytes and at most [`MOST`] descriptors. The receiver gets duplicates of them.
pub(crate) fn send(
    fd: BorrowedFd<'_>,
    buffers: &[IoSlice<'_>],
    fds: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    debug_assert!(fds.len() <= MOST, "the caller sees to it");
    let mut control = MaybeUninit::<Control>::zeroed();
    let mut message = empty();
    // The kernel only reads them.
    message.msg_iov = buffers.as_ptr().cast_mut().cast();
    message.msg_iovlen = buffers.len() as _;
    if !fds.is_empty() {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = control_length(fds.len()) as _;
        // SAFETY: there is room for a header and MOST descriptors, all of it initialized, and
        // aligned for the header; a BorrowedFd is a descriptor in memory.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = control_length(fds.len()) as _;
            ptr::copy_nonoverlapping(
                fds.as_ptr().cast::<u8>(),
                libc::CMSG_DATA(header),
                fds.len() * FD,
            );
        }
    }
    // SAFETY: IoSlice is an iovec in memory, and each describes memory that may be read; the
    // control data is as long as the message says. Everything lives for the length of the call.
    let result = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    outcome(result)
}

/// Returns the process that was at the other end when the connection was made (`SO_PEERCRED`).
pub(crate) fn peer(fd: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option's value is a ucred, of the given length.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    outcome(result as isize).map(|_| peer)
}
