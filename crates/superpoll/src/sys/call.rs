//! System calls in line: reads, writes and waits without the C library in between, and with a cheap
//! way back.
//!
//! The function of the C library is one more return that the processor may mispredict after the
//! system call. Where all such returns are expensive, `returns.rs` makes them cheap. The runtime's
//! streams use these functions; a loop around [`Poller::wait`](crate::Poller::wait) may use them as
//! well. They behave like those of `std`, errors included, on any descriptor, and do not repeat a
//! call that a signal has interrupted.
//!
//! Only for 64-bit x86 are the instructions spelt out; elsewhere the C library makes the call.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use crate::sys::returns::pairs;

/// The kernel refuses more buffers than this in one call (`IOV_MAX`); the rest is left out.
const MOST_BUFFERS: usize = 1024;

/// Up to this many bytes in several buffers are copied to one place rather than sent from there:
/// the head of an answer and its short body.
const TOGETHER: usize = 512;

/// Reads into a buffer (`read(2)`). Zero bytes are the end, or an empty buffer.
///
/// # Errors
///
/// The errors of `read(2)`, `Interrupted` included.
#[inline(always)]
pub fn read(fd: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    read_with(pairs(), fd, buffer)
}

/// Reads into memory that need not be initialised (`read(2)`); returns the part that now is.
///
/// # Errors
///
/// As [`read`].
#[inline(always)]
pub fn read_to(fd: impl AsFd, room: &mut [MaybeUninit<u8>]) -> io::Result<&mut [u8]> {
    let (start, length) = (room.as_mut_ptr().cast::<u8>(), room.len());
    let arguments = [fd.as_fd().as_raw_fd() as usize, start as usize, length, 0, 0, 0];
    // SAFETY: the kernel writes into the room at most as many bytes as it has.
    let done = result(unsafe { call(libc::SYS_read, arguments) })?;
    // SAFETY: this many bytes of it were written.
    Ok(unsafe { std::slice::from_raw_parts_mut(start, done) })
}

/// Receives from a socket, without waiting (`recv(2)` with `MSG_DONTWAIT`), into memory that need
/// not be initialised; returns the number of bytes that now are.
#[inline(always)]
pub(super) fn receive_to(fd: impl AsFd, room: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
    let (start, length) = (room.as_mut_ptr() as usize, room.len());
    let fd = fd.as_fd().as_raw_fd() as usize;
    let arguments = [fd, start, length, libc::MSG_DONTWAIT as usize, 0, 0];
    // SAFETY: the kernel writes into the room at most as many bytes as it has; no address is asked
    // for.
    result(unsafe { call(libc::SYS_recvfrom, arguments) })
}

/// Reads into the capacity of a vector, from its front (`read(2)`), and sets its length to the
/// bytes read.
#[inline(always)]
pub(crate) fn read_to_vec(fd: impl AsFd, buffer: &mut Vec<u8>) -> io::Result<usize> {
    buffer.clear();
    let count = read_to(fd, buffer.spare_capacity_mut())?.len();
    // SAFETY: this many bytes at its front were written.
    unsafe { buffer.set_len(count) };
    Ok(count)
}

/// The same from a socket, without waiting (`recv(2)` with `MSG_DONTWAIT`), at most this many
/// bytes.
#[inline(always)]
pub(crate) fn receive_to_vec(fd: impl AsFd, buffer: &mut Vec<u8>) -> io::Result<usize> {
    buffer.clear();
    let count = receive_to(fd, buffer.spare_capacity_mut())?;
    // SAFETY: this many bytes at its front were written.
    unsafe { buffer.set_len(count) };
    Ok(count)
}

/// Reads into several buffers in order (`readv(2)`).
///
/// # Errors
///
/// As [`read`].
#[inline(always)]
pub fn read_vectored(fd: impl AsFd, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let fd = fd.as_fd().as_raw_fd() as usize;
    let count = buffers.len().min(MOST_BUFFERS);
    let arguments = [fd, buffers.as_mut_ptr() as usize, count, 0, 0, 0];
    // SAFETY: an `IoSliceMut` is an `iovec`, which `std` guarantees; the kernel writes into them
    // only.
    result(unsafe { call(libc::SYS_readv, arguments) })
}

/// Writes from a buffer (`write(2)`), perhaps only a part of it. A program that does not ignore
/// `SIGPIPE` gets one if no reader is left; use [`send`] for sockets.
///
/// # Errors
///
/// The errors of `write(2)`, `Interrupted` included.
#[inline(always)]
pub fn write(fd: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    write_with(pairs(), fd, bytes)
}

/// Writes from several buffers in order (`writev(2)`), as [`write()`].
///
/// # Errors
///
/// As [`write()`].
#[inline(always)]
pub fn write_vectored(fd: impl AsFd, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
    let fd = fd.as_fd().as_raw_fd() as usize;
    let count = buffers.len().min(MOST_BUFFERS);
    let arguments = [fd, buffers.as_ptr() as usize, count, 0, 0, 0];
    // SAFETY: an `IoSlice` is an `iovec`, which `std` guarantees; the kernel reads them only.
    result(unsafe { call(libc::SYS_writev, arguments) })
}

/// Writes to a socket (`send(2)` with `MSG_NOSIGNAL`), perhaps only a part of the buffer.
///
/// # Errors
///
/// The errors of `send(2)`, `Interrupted` included; `BrokenPipe` if no reader is left.
#[inline(always)]
pub fn send(fd: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let fd = fd.as_fd().as_raw_fd() as usize;
    let arguments = [fd, bytes.as_ptr() as usize, bytes.len(), libc::MSG_NOSIGNAL as usize, 0, 0];
    // SAFETY: the kernel reads as many bytes as there are; no address is given.
    result(unsafe { call(libc::SYS_sendto, arguments) })
}

/// Writes to a socket from several buffers in order (`sendmsg(2)` with `MSG_NOSIGNAL`), as
/// [`send`]. A few hundred bytes are put together first, which costs less than making the kernel go
/// through several buffers.
///
/// # Errors
///
/// As [`send`].
#[inline]
pub fn send_vectored(fd: impl AsFd, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut together = [MaybeUninit::uninit(); TOGETHER];
    if let Some(bytes) = join(buffers, &mut together) {
        return send(fd, bytes);
    }
    let mut message = empty_message();
    message.msg_iov = buffers.as_ptr().cast_mut().cast();
    message.msg_iovlen = buffers.len().min(MOST_BUFFERS) as _;
    let fd = fd.as_fd().as_raw_fd() as usize;
    let arguments = [fd, &raw const message as usize, libc::MSG_NOSIGNAL as usize, 0, 0, 0];
    // SAFETY: the message outlives the call, and so do its buffers, which the kernel reads only; an
    // `IoSlice` is an `iovec`, which `std` guarantees.
    result(unsafe { call(libc::SYS_sendmsg, arguments) })
}

/// Copies several buffers to one place, if they fit.
fn join<'a>(
    buffers: &[IoSlice<'_>],
    together: &'a mut [MaybeUninit<u8>; TOGETHER],
) -> Option<&'a [u8]> {
    if buffers.len() < 2 || buffers.len() > MOST_BUFFERS {
        return None;
    }
    let mut filled = 0;
    for buffer in buffers {
        let place = together.get_mut(filled..filled + buffer.len())?;
        // SAFETY: any byte is a byte that may be uninitialised; the two are of one length and
        // apart.
        unsafe {
            std::ptr::copy_nonoverlapping(
                buffer.as_ptr(),
                place.as_mut_ptr().cast::<u8>(),
                buffer.len(),
            );
        }
        filled += buffer.len();
    }
    // SAFETY: this many bytes were copied to the front.
    Some(unsafe { std::slice::from_raw_parts(together.as_ptr().cast::<u8>(), filled) })
}

/// Receives from a socket into several buffers in order (`recvmsg(2)`), without room for control
/// data. Returns the number of bytes and the message's flags: `MSG_TRUNC`, or `MSG_CTRUNC` if there
/// was control data, which is lost.
///
/// # Errors
///
/// The errors of `recvmsg(2)`, `Interrupted` included.
#[inline(always)]
pub fn receive_vectored(
    fd: impl AsFd,
    buffers: &mut [IoSliceMut<'_>],
) -> io::Result<(usize, libc::c_int)> {
    let mut message = empty_message();
    message.msg_iov = buffers.as_mut_ptr().cast();
    message.msg_iovlen = buffers.len().min(MOST_BUFFERS) as _;
    let fd = fd.as_fd().as_raw_fd() as usize;
    let flags = libc::MSG_CMSG_CLOEXEC as usize;
    let arguments = [fd, &raw mut message as usize, flags, 0, 0, 0];
    // SAFETY: the message outlives the call, and so do its buffers, to which the kernel writes; an
    // `IoSliceMut` is an `iovec`, which `std` guarantees.
    let done = result(unsafe { call(libc::SYS_recvmsg, arguments) })?;
    // The kernel repeats the caller's flag.
    Ok((done, message.msg_flags & !libc::MSG_CMSG_CLOEXEC))
}

/// Whether the next byte of a stream socket is an urgent one (`SIOCATMARK`, `tcp(7)`). A read that
/// comes to such a byte ends before it, whatever is behind it, and the next read leaves the byte
/// out and continues; `splice(2)` of TCP does not continue until something has been read. A
/// descriptor without urgent bytes is never at one.
#[must_use]
pub fn is_at_mark(fd: impl AsFd) -> bool {
    const SIOCATMARK: libc::c_ulong = 0x8905;
    let mut is_there: libc::c_int = 0;
    // SAFETY: the kernel writes one integer, which outlives the call; a descriptor without marks is
    // refused.
    unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), SIOCATMARK as _, &raw mut is_there) };
    is_there != 0
}

/// A message without address, buffers and control data.
#[inline(always)]
fn empty_message() -> libc::msghdr {
    // SAFETY: zeros are null pointers and lengths of zero.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Turns the kernel's convention into a result.
#[inline(always)]
pub(crate) fn result(answer: isize) -> io::Result<usize> {
    if answer < 0 { Err(failure(answer)) } else { Ok(answer as usize) }
}

#[cold]
fn failure(answer: isize) -> io::Error {
    io::Error::from_raw_os_error(answer.unsigned_abs() as i32)
}

#[inline(always)]
pub(super) fn read_with(pairs: u32, fd: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let fd = fd.as_fd().as_raw_fd() as usize;
    let arguments = [fd, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0];
    // SAFETY: the kernel writes into the buffer at most as many bytes as it has.
    result(unsafe { call_with(pairs, libc::SYS_read, arguments) })
}

#[inline(always)]
pub(super) fn write_with(pairs: u32, fd: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let fd = fd.as_fd().as_raw_fd() as usize;
    let arguments = [fd, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0];
    // SAFETY: the kernel reads as many bytes as there are.
    result(unsafe { call_with(pairs, libc::SYS_write, arguments) })
}

/// Makes a system call; the answer is negative for a failure, with its number.
///
/// # Safety
///
/// The number must be one that takes these arguments, and the memory that they point to must be
/// valid for the call's use of it.
#[inline(always)]
pub(super) unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> isize {
    // SAFETY: as the caller promises.
    unsafe { call_with(pairs(), number, arguments) }
}

/// A directive for the unwind tables. Code that is compiled to abort on a panic may have none
/// (`-C force-unwind-tables=no`), where the assembler refuses directives for them.
#[cfg(all(target_arch = "x86_64", target_pointer_width = "64", panic = "unwind"))]
macro_rules! unwind {
    ($directive:literal) => {
        $directive
    };
}
#[cfg(all(target_arch = "x86_64", target_pointer_width = "64", not(panic = "unwind")))]
macro_rules! unwind {
    ($directive:literal) => {
        ""
    };
}

/// As [`call`], with this many pairs of entries for the return stack.
///
/// While return addresses are on the stack, a debugger or profiler could not find the caller by the
/// unwind rules of this function, which count from the stack pointer in most functions and from the
/// frame pointer in the rest. So the tables describe the few instructions between the first `call`
/// and the `add` as a function of their own: its return address is the one that the first `call`
/// pushed, and it has changed no register. A backtrace taken there shows this function twice.
#[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
#[inline(always)]
unsafe fn call_with(pairs: u32, number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [one, two, three, four, five, six] = arguments;
    let answer: isize;
    // SAFETY: the kernel's calling convention; the caller promises that the memory behind the
    // arguments is valid. The calls after it enter nothing: each puts its return address, at which
    // there is only a trap, on the processor's return stack and on ours, from which it is dropped.
    // The answer is written before the number of pairs is read, so the two must not share a
    // register even where the compiler knows that number and pairs are equal: `inout`, not
    // `inlateout`.
    unsafe {
        std::arch::asm!(
            "syscall",
            "mov ecx, {pairs:e}",
            "test ecx, ecx",
            "jz 5f",
            "2:",
            "call 3f",
            "int3",
            "3:",
            unwind!(".cfi_remember_state"),
            unwind!(".cfi_def_cfa rsp, 8"),
            unwind!(".cfi_offset rip, -8"),
            unwind!(".cfi_same_value rbx"),
            unwind!(".cfi_same_value rbp"),
            unwind!(".cfi_same_value r12"),
            unwind!(".cfi_same_value r13"),
            unwind!(".cfi_same_value r14"),
            unwind!(".cfi_same_value r15"),
            "call 4f",
            "int3",
            "4:",
            unwind!(".cfi_def_cfa_offset 16"),
            "add rsp, 16",
            unwind!(".cfi_restore_state"),
            "dec ecx",
            "jnz 2b",
            "5:",
            pairs = in(reg) pairs,
            inout("rax") number as isize => answer,
            in("rdi") one, in("rsi") two, in("rdx") three,
            in("r10") four, in("r8") five, in("r9") six,
            out("rcx") _, out("r11") _,
        );
    }
    answer
}

/// As [`call`].
#[cfg(not(all(target_arch = "x86_64", target_pointer_width = "64")))]
unsafe fn call_with(_pairs: u32, number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [one, two, three, four, five, six] = arguments;
    // SAFETY: as the caller promises.
    let answer = unsafe { libc::syscall(number, one, two, three, four, five, six) };
    let failed = || io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
    if answer < 0 { -(failed() as isize) } else { answer as isize }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn calls_behave_like_those_of_std() {
        let (reader, writer) = io::pipe().unwrap();
        assert_eq!(write(&writer, b"abc").unwrap(), 3);
        let parts = [IoSlice::new(b"de"), IoSlice::new(b""), IoSlice::new(b"fgh")];
        assert_eq!(write_vectored(&writer, &parts).unwrap(), 5);
        let mut one = [0; 2];
        assert_eq!(read(&reader, &mut one).unwrap(), 2);
        let (mut two, mut three) = ([0; 1], [0; 10]);
        let mut buffers = [IoSliceMut::new(&mut two), IoSliceMut::new(&mut three)];
        assert_eq!(read_vectored(&reader, &mut buffers).unwrap(), 6);
        assert_eq!((&one, &two, &three[..5]), (b"ab", b"c", &b"defgh"[..]));
        drop(writer);
        assert_eq!(read(&reader, &mut three).unwrap(), 0);
        assert_eq!(read(&reader, &mut []).unwrap(), 0);
        assert_eq!(write(&reader, b"x").unwrap_err().raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn a_peer_that_is_gone_is_an_error_and_no_signal() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(send(&server, b"hello ").unwrap(), 6);
        let parts = [IoSlice::new(b"wor"), IoSlice::new(b"ld")];
        assert_eq!(send_vectored(&server, &parts).unwrap(), 5);
        let mut text = [0; 11];
        io::Read::read_exact(&mut &client, &mut text).unwrap();
        assert_eq!(&text, b"hello world");
        server.shutdown(std::net::Shutdown::Write).unwrap();
        let gone = [send(&server, b"x"), send_vectored(&server, &parts)];
        for outcome in gone {
            assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        }
    }

    #[test]
    fn several_buffers_arrive_in_order_whether_they_are_put_together_or_not() {
        use std::os::unix::net::UnixStream;
        let (one, other) = UnixStream::pair().unwrap();
        for lengths in [&[3, 0, 4][..], &[511, 1], &[511, 2], &[512, 0], &[513], &[0, 0], &[]] {
            let bytes: Vec<Vec<u8>> = (0u8..)
                .zip(lengths)
                .map(|(place, &length)| (0..length).map(|at| place ^ at as u8).collect())
                .collect();
            let parts: Vec<_> = bytes.iter().map(|part| IoSlice::new(part)).collect();
            let all = bytes.concat();
            assert_eq!(send_vectored(&one, &parts).unwrap(), all.len());
            let (mut first, mut second) = ([0; 5], [0; 600]);
            let mut room = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
            if !all.is_empty() {
                assert_eq!(receive_vectored(&other, &mut room).unwrap(), (all.len(), 0));
                let arrived = [&first[..], &second[..]].concat();
                assert_eq!(arrived[..all.len()], all);
            }
        }
    }

    #[test]
    fn only_bytes_that_were_read_are_initialised() {
        let (reader, writer) = io::pipe().unwrap();
        write(&writer, b"abc").unwrap();
        let mut room = [MaybeUninit::uninit(); 10];
        assert_eq!(read_to(&reader, &mut room).unwrap(), b"abc");
        drop(writer);
        assert_eq!(read_to(&reader, &mut room).unwrap(), b"");
    }

    #[test]
    fn more_buffers_than_the_kernel_takes_are_left_for_the_next_call() {
        let (reader, writer) = io::pipe().unwrap();
        let parts = [IoSlice::new(b"x"); MOST_BUFFERS + 1];
        assert_eq!(write_vectored(&writer, &parts).unwrap(), MOST_BUFFERS);
        let mut bytes = [[0; 1]; MOST_BUFFERS + 1];
        let mut buffers: Vec<_> = bytes.iter_mut().map(|byte| IoSliceMut::new(byte)).collect();
        assert_eq!(read_vectored(&reader, &mut buffers).unwrap(), MOST_BUFFERS);
    }
}
