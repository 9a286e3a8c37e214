//! What the C library and the kernel have to be told or asked directly, and the only `unsafe` code of the gateway.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Has the allocator give back to the kernel what it keeps without need: glibc's keeps whatever lies below something
/// that is in use, for as long as the process runs.
pub(crate) fn give_memory_back() {
    // SAFETY: the call takes a number and may be made at any time, on any thread.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// What of a TCP connection's bytes the peer has acknowledged (`tcpi_bytes_acked`, Linux 4.1).
fn acknowledged(socket: impl AsFd) -> io::Result<u64> {
    // SAFETY: all zeros are a value of this structure of numbers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of_val(&info)).unwrap_or(0);
    let fd = socket.as_fd().as_raw_fd();
    let (info_at, length_at) = ((&raw mut info).cast(), &raw mut length);
    // SAFETY: the kernel writes at most `length` bytes to `info`, and how many there are to `length`.
    let done =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, info_at, length_at) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(info.tcpi_bytes_acked) }
}

/// What of them it has not (`SIOCOUTQ`, `tcp(7)`), sent or not.
fn on_the_way(socket: impl AsFd) -> io::Result<u64> {
    let mut count: libc::c_int = 0;
    // SAFETY: this request, which `tcp(7)` calls SIOCOUTQ, writes one number.
    let done = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(count.max(0).cast_unsigned().into()) }
}

/// How many bytes have ever been written to a TCP connection, by whichever process, but for a constant of the
/// connection.
pub(crate) fn written(socket: impl AsFd) -> io::Result<u64> {
    let mut before = acknowledged(&socket)?;
    loop {
        let rest = on_the_way(&socket)?;
        // An acknowledgement in between would be missing in one and the other.
        let after = acknowledged(&socket)?;
        if after == before {
            return Ok(before + rest);
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
    fn what_was_written_is_known_whoever_has_read_of_it() {
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
        // Until there is no room, with somebody who reads some of it.
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
