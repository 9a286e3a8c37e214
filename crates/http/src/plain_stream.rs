//! A stream socket, of TCP or of the Unix domain.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_io::{AsyncRead, AsyncWrite};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use superpoll_rt::net::TcpStream;
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::transfer::poll_sendfile;
use tokio::io::ReadBuf;

use crate::file_region;

/// The most bytes that are copied together to be written in one piece: the kernel takes longer to
/// look at a list of pieces than it takes to copy this little.
const JOINED: usize = 4096;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A stream socket that is registered with no engine.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(std::net::TcpStream),
    /// The Unix domain.
    Unix(std::os::unix::net::UnixStream),
}

/// Makes the kernel find out whether a client lives from which nothing comes, and to which nothing
/// is sent: it asks after a minute, and ends the connection within another one (tcp(7),
/// `TCP_KEEPIDLE`).
pub fn probe_in_silence(socket: impl AsFd) {
    let probes = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(15))
        .with_retries(4);
    // A socket of the Unix domain has no need of it.
    let _ = socket2::SockRef::from(&socket).set_tcp_keepalive(&probes);
}

/// Asks the kernel to accept no more bytes as soon as it holds about this many that it has not sent
/// (`TCP_NOTSENT_LOWAT`). Bytes that are on their way to the client do not count, so a client that
/// reads is sent as much as before. For a client that reads nothing the kernel would take up to 4
/// MiB, of which no limit here knows.
///
/// Sockets of the Unix domain have no such limit; they hold about 200 KiB at most.
#[inline]
pub fn limit_unsent(socket: impl AsFd, bytes: u32) {
    let _ = socket2::SockRef::from(&socket).set_tcp_notsent_lowat(bytes);
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Socket {
    /// Whether the peer has ended its side, or is gone.
    #[inline]
    pub fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(self, PollFlags::RDHUP)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
    }
}

/// A stream socket of an engine.
#[derive(Debug)]
pub enum Plain {
    /// TCP.
    Tcp(TcpStream),
    /// The Unix domain.
    Unix(UnixStream),
}

impl Plain {
    /// Gives a socket, which must be non-blocking, to the engine of this thread.
    ///
    /// # Errors
    ///
    /// The runtime's error.
    pub fn new(socket: Socket) -> io::Result<Plain> {
        match socket {
            Socket::Tcp(stream) => TcpStream::from_std(stream).map(Plain::Tcp),
            Socket::Unix(stream) => UnixStream::from_std(stream).map(Plain::Unix),
        }
    }

    /// Returns the address that the client has connected to; `None` in the Unix domain.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Plain::Tcp(stream) => stream.local_addr().ok(),
            Plain::Unix(_) => None,
        }
    }

    /// Takes the socket from its engine.
    #[must_use]
    pub fn into_socket(self) -> Socket {
        match self {
            Plain::Tcp(stream) => Socket::Tcp(stream.into_std()),
            Plain::Unix(stream) => Socket::Unix(stream.into_std()),
        }
    }
}

/// Calls a method of the stream, of either kind.
macro_rules! of {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match $self.get_mut() {
            Plain::Tcp(stream) => Pin::new(stream).$method($($argument),*),
            Plain::Unix(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl Plain {
    /// Sends bytes, and with the last one the end of the sending side: the kernel keeps the bytes
    /// for more to come, and `shutdown(2)` sends both in one packet. Returns how many it took;
    /// `None` if the usual way has to wait, or to report an error.
    pub fn send_last(&self, bytes: &[u8]) -> Option<usize> {
        let Plain::Tcp(stream) = self else { return None };
        let count = stream.try_write_more(bytes).ok()?;
        if count == bytes.len() {
            // It fails only if the client is gone.
            let _ = stream.shutdown(Shutdown::Write);
        }
        Some(count)
    }

    /// Sends the first parts as usual, and the part after them, if it is a file region, without a
    /// copy. Ready with `None` if there is no region among them.
    fn poll_send_region(
        &self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<Option<usize>>> {
        let Some((index, (region, offset))) = parts
            .iter()
            .enumerate()
            .find_map(|(index, part)| Some((index, file_region::find(part)?)))
        else {
            return Poll::Ready(Ok(None));
        };
        let mut sent = 0;
        for part in parts[..index].iter().filter(|part| !part.is_empty()) {
            // More follows, so that the head does not travel alone.
            let outcome = match self {
                Plain::Tcp(stream) => stream.try_write_more(part),
                Plain::Unix(stream) => stream.try_write(part),
            };
            match outcome {
                Ok(count) if count < part.len() => return Poll::Ready(Ok(Some(sent + count))),
                Ok(count) => sent += count,
                Err(error) if sent == 0 && error.kind() != io::ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(error));
                }
                // The usual way waits for room, and reports the error.
                Err(_) if sent == 0 => return Poll::Ready(Ok(None)),
                Err(_) => return Poll::Ready(Ok(Some(sent))),
            }
        }
        let length = parts[index].len();
        let outcome = match self {
            Plain::Tcp(stream) => poll_sendfile(cx, region.file(), offset, stream, length),
            Plain::Unix(stream) => poll_sendfile(cx, region.file(), offset, stream, length),
        };
        match outcome {
            // The file has become shorter just now: the bytes are still there.
            Poll::Ready(Ok(0)) if sent == 0 => Poll::Ready(Ok(None)),
            Poll::Ready(Ok(count)) if count > 0 && !region.has_same_contents() => {
                Poll::Ready(Err(io::Error::other("the file has changed while it was sent")))
            }
            Poll::Ready(Ok(count)) => Poll::Ready(Ok(Some(sent + count))),
            Poll::Pending if sent == 0 => Poll::Pending,
            Poll::Ready(Err(error)) if sent == 0 => Poll::Ready(Err(error)),
            // The next try shows the error, or the shortage of room.
            _ => Poll::Ready(Ok(Some(sent))),
        }
    }
}

impl AsFd for Plain {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Plain::Tcp(stream) => stream.as_fd(),
            Plain::Unix(stream) => stream.as_fd(),
        }
    }
}

impl AsyncRead for Plain {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        of!(self.poll_read(cx, room))
    }
}

impl AsyncWrite for Plain {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(sent) = ready!(self.poll_send_region(cx, &[IoSlice::new(bytes)]))? {
            return Poll::Ready(Ok(sent));
        }
        of!(self.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(sent) = ready!(self.poll_send_region(cx, parts))? {
            return Poll::Ready(Ok(sent));
        }
        let mut filled = parts.iter().filter(|part| !part.is_empty());
        let (Some(first), second) = (filled.next(), filled.next()) else {
            return of!(self.poll_write(cx, &[]));
        };
        if second.is_none() {
            return of!(self.poll_write(cx, first));
        }
        if parts.iter().map(|part| part.len()).sum::<usize>() > JOINED {
            return of!(self.poll_write_vectored(cx, parts));
        }
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            parts.iter().for_each(|part| scratch.extend_from_slice(part));
            of!(self.poll_write(cx, scratch))
        })
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of!(self.poll_flush(cx))
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of!(self.poll_close(cx))
    }
}

impl tokio::io::AsyncRead for Plain {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        use tokio::io::AsyncRead;
        match self.get_mut() {
            Plain::Tcp(stream) => AsyncRead::poll_read(Pin::new(stream), cx, room),
            Plain::Unix(stream) => AsyncRead::poll_read(Pin::new(stream), cx, room),
        }
    }
}

/// Returns a stream whose socket takes few bytes at a time, and its other end; neither blocks.
#[cfg(test)]
pub(crate) fn narrow() -> (Plain, std::os::unix::net::UnixStream) {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    socket2::SockRef::from(&ours).set_send_buffer_size(1).unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    (Plain::new(Socket::Unix(ours)).unwrap(), theirs)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use superpoll_rt::Runtime;

    use super::*;

    #[test]
    fn the_end_is_sent_behind_the_last_byte_only() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| ((at * 7) >> 3) as u8).collect();
        Runtime::new().unwrap().block_on(async {
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut theirs = listener.accept().unwrap().0;
            socket2::SockRef::from(&ours).set_send_buffer_size(1).unwrap();
            ours.set_nonblocking(true).unwrap();
            theirs.set_nonblocking(true).unwrap();
            let plain = Plain::new(Socket::Tcp(ours)).unwrap();
            let (mut at, mut seen, mut room, mut pieces) = (0, Vec::new(), [0; 10_000], 0);
            while at < bytes.len() {
                match plain.send_last(&bytes[at..]) {
                    Some(count) => (at, pieces) = (at + count, pieces + 1),
                    None => {
                        let Ok(count) = theirs.read(&mut room) else { continue };
                        assert!(count > 0, "the end is behind {} bytes", seen.len());
                        seen.extend_from_slice(&room[..count]);
                    }
                }
            }
            assert!(pieces > 1);
            // The stream is still open: the end was sent with the last byte.
            theirs.set_nonblocking(false).unwrap();
            theirs.read_to_end(&mut seen).unwrap();
            assert!(seen == bytes, "{} of {} bytes", seen.len(), bytes.len());
        });
    }
}
