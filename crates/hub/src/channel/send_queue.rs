//! Whether a client reads, as the send queue of its socket shows it.
//!
//! A pong says that a client lives, but a ping stands after everything that was sent before it. A
//! client that reads slowly cannot answer until it has read all of that. Its sign of life is that
//! bytes leave the send queue: TCP takes a byte out when the peer's kernel has acknowledged it, a
//! Unix socket when the peer has read it.
//!
//! Bytes that are written are no such sign, and the queue grows with them. So they are added to the
//! length at the last check, and the queue is compared with the sum. If no bytes waited at the last
//! check, none has to leave: the peer's kernel also acknowledges small messages for a process that
//! has stopped. But if a task had more to write than the socket took, and the queue was empty when
//! the task came to look, the peer's kernel has taken all of it in between. That counts as reading,
//! at most as often as the peer's buffer can be filled.

use std::num::NonZeroU32;
use std::os::fd::AsFd;

use superpoll_http::sys;

/// The length that a socket's send queue has if no bytes have left it since the last check; zero if
/// it was empty then. It is kept with one added, so that an `Option` of it is no larger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SendQueue(NonZeroU32);

impl Default for SendQueue {
    fn default() -> SendQueue {
        SendQueue(NonZeroU32::MIN)
    }
}

impl SendQueue {
    fn plus(self, count: usize) -> SendQueue {
        SendQueue(self.0.saturating_add(u32::try_from(count).unwrap_or(u32::MAX)))
    }

    fn is_empty(self) -> bool {
        self == SendQueue::default()
    }

    /// Checks the queue. It counts as empty if the kernel does not report its length.
    pub(super) fn measure(socket: impl AsFd) -> SendQueue {
        let waiting = sys::unsent(socket).unwrap_or(0);
        SendQueue::default().plus(usize::try_from(waiting).unwrap_or(usize::MAX))
    }

    /// Adds bytes that were written since the last check.
    pub(super) fn wrote(&mut self, count: usize) {
        if !self.is_empty() {
            *self = self.plus(count);
        }
    }

    /// Whether bytes waited at the last check, and none of them has left.
    pub(super) fn is_stuck(self, socket: impl AsFd) -> bool {
        !self.is_empty() && !self.has_moved(socket)
    }

    /// Whether the peer has read since the last check. If the queue was empty then, it has read if
    /// output of the task waited for room (`has_waited`) and some of it was written since
    /// (`has_written`).
    pub(super) fn is_read(self, socket: impl AsFd, has_waited: bool, has_written: bool) -> bool {
        let was_full = has_waited && has_written;
        if self.is_empty() { was_full } else { self.has_moved(socket) }
    }

    /// Whether some of the bytes that waited at the last check, or were written since, have left.
    pub(super) fn has_moved(self, socket: impl AsFd) -> bool {
        SendQueue::measure(socket).0 < self.0
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Writes until there is no room, and returns how many bytes that were.
    fn fill(mut socket: impl Write) -> usize {
        let mut count = 0;
        while let Ok(step) = socket.write(&[b'x'; 4096]) {
            count += step;
        }
        count
    }

    fn check<S: Read + Write + AsFd>(mut server: S, mut client: S)
    where
        for<'a> &'a S: Write,
    {
        let empty = SendQueue::measure(&server);
        assert_eq!(empty, SendQueue::default());
        let written = fill(&server);
        assert!(!empty.has_moved(&server) && !empty.is_stuck(&server), "nothing waited");
        let mut queue = SendQueue::measure(&server);
        // TCP moves the bytes that still fit at the other end.
        let end = Instant::now() + PATIENCE;
        while queue.has_moved(&server) || queue == SendQueue::default() {
            assert!(Instant::now() < end, "the queue still moves");
            std::thread::sleep(Duration::from_millis(20));
            queue = SendQueue::measure(&server);
        }
        assert!(!queue.has_moved(&server) && queue.is_stuck(&server), "the peer has read nothing");
        // Bytes that are read have left, though new bytes come in their place.
        client.read_exact(&mut vec![0; written / 2]).unwrap();
        while !queue.has_moved(&server) {
            assert!(Instant::now() < end, "nothing moves");
            std::thread::yield_now();
        }
        queue.wrote(server.write(&[b'x'; 4096]).unwrap());
        assert!(queue.has_moved(&server) && !queue.is_stuck(&server));
    }

    #[test]
    fn bytes_that_are_read_have_left_and_bytes_that_are_written_have_not() {
        let (server, client) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        check(server, client);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        server.set_nonblocking(true).unwrap();
        check(server, client);
    }

    /// A task may be kept from running after it has filled the socket, and look when all has left.
    #[test]
    fn a_peer_that_has_emptied_a_full_queue_has_read() {
        let (mut server, mut client) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let written = fill(&server);
        client.read_exact(&mut vec![0; written]).unwrap();
        let mut queue = SendQueue::measure(&server);
        assert_eq!(queue, SendQueue::default());
        queue.wrote(server.write(b"more").unwrap());
        assert!(queue.is_read(&server, true, true));
        // Nothing waited, or nothing of it was written.
        assert!(!queue.is_read(&server, false, true) && !queue.is_read(&server, true, false));
        // From now on the peer stands still, whatever is written.
        let mut queue = SendQueue::measure(&server);
        queue.wrote(fill(&server));
        assert!(!queue.is_read(&server, true, true));
    }

    #[test]
    fn written_bytes_alone_do_not_count() {
        let (mut server, _client) = UnixStream::pair().unwrap();
        server.write_all(b"waits").unwrap();
        let mut queue = SendQueue::measure(&server);
        assert_ne!(queue, SendQueue::default());
        queue.wrote(server.write(b"more").unwrap());
        assert!(!queue.has_moved(&server));
    }
}
