//! Direct calls of the C library and the kernel, and the only `unsafe` code of the gateway.

pub mod send_ring;

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

/// States of a TCP connection whose peer has sent its end (`tcp_states.h` in the kernel).
const TCP_TIME_WAIT: u8 = 6;
const TCP_CLOSE_WAIT: u8 = 8;
const TCP_LAST_ACK: u8 = 9;
const TCP_CLOSING: u8 = 11;

/// Makes the allocator give memory back to the kernel that it keeps without need: glibc's allocator
/// keeps all free memory below a block that is in use, for as long as the process runs.
pub fn give_memory_back() {
    // SAFETY: the call takes a number and may be made at any time, on any thread.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Asks the kernel for the state of descriptors, without waiting. A number that is no descriptor
/// any more is reported as such.
pub fn poll_now(descriptors: &mut [libc::pollfd]) -> io::Result<()> {
    let count = libc::nfds_t::try_from(descriptors.len()).unwrap_or(0);
    // SAFETY: the kernel reads and writes `count` entries, which are the slice's.
    let done = unsafe { libc::poll(descriptors.as_mut_ptr(), count, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes a descriptor that the program before has left open in this process.
///
/// # Errors
///
/// If there is no descriptor of this number.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes a number, and fails if it is no descriptor's.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open. Nobody else has it: its number was chosen by the program
    // before, which ended when it ran this one, and is taken once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Makes the number of a descriptor mean another file, as a test's fault.
#[cfg(test)]
pub(crate) fn exchange(number: impl AsFd, file: impl AsFd) -> io::Result<()> {
    let (number, file) = (number.as_fd().as_raw_fd(), file.as_fd().as_raw_fd());
    // SAFETY: both are open, and the number stays the descriptor of its owner.
    if unsafe { libc::dup2(file, number) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns the bytes of a page of memory.
pub(crate) fn page_size() -> usize {
    // SAFETY: the call takes a number and returns one.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Returns the allocator's free memory, in bytes, whether or not it is resident.
pub(crate) fn free_memory() -> usize {
    // SAFETY: the call takes nothing, returns numbers and may be made at any time, on any thread.
    #[cfg(target_env = "gnu")]
    let free = unsafe { libc::mallinfo() }.fordblks;
    #[cfg(not(target_env = "gnu"))]
    let free: libc::c_int = 0;
    // The number wraps at 4 GiB, so that it may be too small. `mallinfo2` does not wrap, but older
    // systems lack it.
    free.cast_unsigned() as usize
}

/// Returns the kernel's counters of a TCP connection (`TCP_INFO`, Linux 4.1).
fn info(socket: impl AsFd) -> io::Result<libc::tcp_info> {
    // SAFETY: all zeros are a value of this structure of numbers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of_val(&info)).unwrap_or(0);
    let fd = socket.as_fd().as_raw_fd();
    let (info_at, length_at) = ((&raw mut info).cast(), &raw mut length);
    // SAFETY: the kernel writes at most `length` bytes to `info`, and their number to `length`.
    let done =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, info_at, length_at) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(info) }
}

/// Returns how many bytes are in one of a TCP connection's queues (`tcp(7)`): the written bytes
/// that were not acknowledged (`TIOCOUTQ`), sent or not, or the received bytes that were not read
/// (`FIONREAD`).
fn queued(socket: impl AsFd, queue: libc::Ioctl) -> io::Result<u64> {
    let mut count: libc::c_int = 0;
    // SAFETY: either request writes one number.
    let done = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), queue, &raw mut count) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(count.max(0).cast_unsigned().into()) }
}

/// Returns the number of bytes in the send queue of a stream socket: for TCP those that the peer
/// has not acknowledged, in the Unix domain those that the peer has not read, together with the
/// memory that the kernel needs to keep them.
pub fn unsent(socket: impl AsFd) -> io::Result<u64> {
    queued(socket, libc::TIOCOUTQ)
}

/// Returns how many bytes have ever been written to a TCP connection, by whichever process, except
/// for a constant of the connection.
pub(crate) fn written(socket: impl AsFd) -> io::Result<u64> {
    let mut before = info(&socket)?.tcpi_bytes_acked;
    loop {
        let rest = queued(&socket, libc::TIOCOUTQ)?;
        // An acknowledgement in between would be missing in both numbers.
        let after = info(&socket)?.tcpi_bytes_acked;
        if after == before {
            return Ok(before + rest);
        }
        before = after;
    }
}

/// Returns how many bytes have ever been read from a TCP connection, by whichever process, except
/// for a constant of the connection. While urgent data waits in the connection the number may be
/// too large, and is never the number of before.
pub(crate) fn read(socket: impl AsFd) -> io::Result<u64> {
    let counted = |info: libc::tcp_info| {
        // The end that the peer has sent counts as a byte, which is in no queue.
        let ends = [TCP_CLOSE_WAIT, TCP_LAST_ACK, TCP_CLOSING, TCP_TIME_WAIT];
        info.tcpi_bytes_received - u64::from(ends.contains(&info.tcpi_state))
    };
    let mut before = counted(info(&socket)?);
    loop {
        let rest = queued(&socket, libc::FIONREAD)?;
        let after = counted(info(&socket)?);
        if after == before {
            return Ok(before.wrapping_sub(rest));
        }
        before = after;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_count_of_read_bytes_excludes_unread_ones() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        let before = read(&server).unwrap();
        let came = |count: usize| {
            let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while queued(&server, libc::FIONREAD).unwrap() < count as u64 {
                assert!(std::time::Instant::now() < end, "it does not come");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        };
        client.write_all(b"hello").unwrap();
        came(5);
        assert_eq!(read(&server).unwrap(), before);
        server.peek(&mut [0; 5]).unwrap();
        assert_eq!(read(&server).unwrap(), before);
        server.try_clone().unwrap().read_exact(&mut [0; 2]).unwrap();
        assert_eq!(read(&server).unwrap() - before, 2);
        // The end does not count as read, whether or not there are bytes left to read.
        client.write_all(b", world").unwrap();
        came(10);
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while info(&server).unwrap().tcpi_state != TCP_CLOSE_WAIT {
            assert!(std::time::Instant::now() < end, "it does not end");
        }
        assert_eq!(read(&server).unwrap() - before, 2);
        server.read_exact(&mut [0; 10]).unwrap();
        assert_eq!(read(&server).unwrap() - before, 12);
        assert_eq!(server.read(&mut [0]).unwrap(), 0);
        assert_eq!(read(&server).unwrap() - before, 12);
        assert!(read(&UnixStream::pair().unwrap().0).is_err());
    }

    #[test]
    fn the_unsent_bytes_shrink_when_the_peer_reads() {
        let (one, mut other) = UnixStream::pair().unwrap();
        assert_eq!(unsent(&one).unwrap(), 0);
        (&one).write_all(&[0; 5000]).unwrap();
        (&one).write_all(&[0; 5000]).unwrap();
        let all = unsent(&one).unwrap();
        assert!(all >= 10_000);
        other.read_exact(&mut [0; 5000]).unwrap();
        let half = unsent(&one).unwrap();
        assert!(half >= 5000 && half < all);
        other.read_exact(&mut [0; 5000]).unwrap();
        assert_eq!(unsent(&one).unwrap(), 0);
        assert!(unsent(std::fs::File::open("/proc/self/stat").unwrap()).is_err());
    }

    #[test]
    fn the_count_of_written_bytes_does_not_depend_on_reads() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        for (mut one, mut other) in [
            (server.try_clone().unwrap(), client.try_clone().unwrap()),
            (client.try_clone().unwrap(), server.try_clone().unwrap()),
        ] {
            let before = written(&one).unwrap();
            one.write_all(b"hello").unwrap();
            assert_eq!(written(&one).unwrap() - before, 5);
            other.read_exact(&mut [0; 5]).unwrap();
            assert_eq!(written(&one).unwrap() - before, 5);
        }
        // Until there is no room, with a peer that reads some of it.
        server.set_nonblocking(true).unwrap();
        let before = written(&server).unwrap();
        let mut sent = 0;
        while let Ok(count) = server.write(&[0; 50_000]) {
            sent += count as u64;
            if sent < 500_000 {
                client.read_exact(&mut vec![0; count]).unwrap();
            }
        }
        assert_eq!(written(&server).unwrap() - before, sent);
        assert!(written(&UnixStream::pair().unwrap().0).is_err());
    }
}
