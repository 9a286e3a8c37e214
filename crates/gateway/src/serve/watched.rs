//! A client's transport that records how it is used: which bytes are read and not used, whether all
//! was flushed, whether a write found no room. The limits of time and parking go by that.
//!
//! While a request is answered nothing is read, so a client that goes is not seen. The connection's
//! task flushes with each turn, though, and then the transport checks for a hang-up when a task has
//! asked for it. The end of the client's side is no hang-up: the client may well wait for its
//! answer.
//!
//! A client at the speed of the loopback would keep the engine. The transport therefore limits the
//! bytes of each run of a task ([`SHARE`](superpoll_http::io_activity::SHARE)). At the limit it
//! reports that it is not ready, and wakes the task, which runs again after the other tasks.
//!
//! A request that may take indefinitely is nevertheless given up with the end of the client's side,
//! if its service says so
//! ([`Exchange::end_with_client`](superpoll_http::exchange::Exchange::end_with_client)): for such a
//! request the transport is read with each flush. The bytes that it finds are kept for the next
//! read, and nothing more is read then.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use futures_io::AsyncRead;
use hyper::rt::{Read, ReadBufCursor, Write};
use superpoll_http::io_activity::IoActivity;
use superpoll_http::plain_stream::limit_unsent;
use superpoll_http::sys;
use superpoll_http::transport::{Plain, Transport, poll_write_all};
use superpoll_rt::pipe::PipeReader;
use superpoll_rt::transfer::poll_splice;

/// A transport, the bytes that were read of it before, and the events on it.
#[derive(Debug)]
pub(super) struct Watched {
    pub transport: Transport,
    pub before: Bytes,
    pub io_activity: std::rc::Rc<IoActivity>,
}

/// The most bytes that are read in search of the end: few, since the room for them is cleared each
/// time.
const PROBE: usize = 128;

impl Watched {
    /// Whether the client has ended its side, and has sent nothing before that.
    fn has_ended(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.before.is_empty() {
            return false;
        }
        let mut room = [0; PROBE];
        match AsyncRead::poll_read(Pin::new(&mut self.transport), cx, &mut room) {
            Poll::Pending => false,
            Poll::Ready(Ok(0) | Err(_)) => true,
            Poll::Ready(Ok(count)) => {
                self.before = Bytes::copy_from_slice(&room[..count]);
                self.io_activity.unused.set(true);
                self.io_activity.read(count);
                false
            }
        }
    }

    /// Flushes, which tells whether the client is gone if a task has asked for that.
    ///
    /// # Errors
    ///
    /// Those of the transport; the client is gone.
    pub(super) fn poll_flush_io(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match Pin::new(self).poll_flush(cx) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => Ok(()),
        }
    }

    /// Notes that bytes which were read before have been passed on.
    fn take_before(&mut self, count: usize) {
        self.before.advance(count);
        self.io_activity.unused.set(true);
        self.io_activity.waits.set(false);
    }

    /// Reads by a function that returns the number of bytes, unless the task has had its share.
    fn poll_read_by(
        &mut self,
        cx: &mut Context<'_>,
        read: impl FnOnce(&mut Transport, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.io_activity.has_read_enough(cx) {
            // There may be more.
            self.io_activity.waits.set(false);
            return Poll::Pending;
        }
        let outcome = read(&mut self.transport, cx);
        self.io_activity.waits.set(outcome.is_pending());
        if outcome.is_pending() {
            self.look_at_records();
        }
        if let Poll::Ready(Ok(count)) = outcome {
            // An end counts as well: it is no longer idle.
            self.io_activity.unused.set(true);
            self.io_activity.is_part.set(false);
            self.io_activity.read(count);
        }
        outcome
    }

    /// Records whether an encrypted connection can be parked. If some of a record has arrived, the
    /// client is sending: the limits of a request hold, not those of idleness, until the record
    /// turns out to be none of data.
    fn look_at_records(&mut self) {
        let io_activity = &self.io_activity;
        io_activity.is_busy.set(!self.transport.is_quiet());
        let has_part = self.transport.has_part();
        if has_part && !io_activity.unused.get() {
            io_activity.unused.set(true);
            io_activity.is_part.set(true);
        } else if !has_part && io_activity.is_part.take() {
            io_activity.unused.set(false);
        }
    }

    /// Records how much the kernel has still to send, if there is no room and the clock has asked
    /// for it.
    fn look_at_queue<T>(&self, outcome: &Poll<io::Result<T>>) {
        if outcome.is_pending() && self.io_activity.asks_queued.take() {
            self.io_activity.queued.set(self.transport.unsent());
        }
    }
}

impl Read for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut room: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.before.is_empty() {
            let count = this.before.len().min(room.remaining());
            room.put_slice(&this.before[..count]);
            this.take_before(count);
            return Poll::Ready(Ok(()));
        }
        let read = |transport: &mut Transport, cx: &mut Context<'_>| {
            sys::read_counted(room, |room| Read::poll_read(Pin::new(transport), cx, room))
        };
        this.poll_read_by(cx, read).map_ok(|_| ())
    }
}

/// For HTTP/1, whose buffers are initialised: a TLS stream would clear those of hyper each time.
impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !this.before.is_empty() {
            let count = this.before.len().min(room.len());
            room[..count].copy_from_slice(&this.before[..count]);
            this.take_before(count);
            return Poll::Ready(Ok(count));
        }
        this.poll_read_by(cx, |transport, cx| AsyncRead::poll_read(Pin::new(transport), cx, room))
    }
}

impl Write for Watched {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.io_activity.has_written_enough(cx) {
            return Poll::Pending;
        }
        let outcome = Pin::new(&mut this.transport).poll_write(cx, bytes);
        this.io_activity.wrote(&outcome);
        this.look_at_queue(&outcome);
        outcome
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.io_activity.has_written_enough(cx) {
            return Poll::Pending;
        }
        let outcome = Pin::new(&mut this.transport).poll_write_vectored(cx, parts);
        this.io_activity.wrote(&outcome);
        this.look_at_queue(&outcome);
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.io_activity.doubted.take() && this.transport.is_gone() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if this.io_activity.watches() && this.has_ended(cx) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if let Some(bytes) = this.io_activity.unsent_limit.take()
            && let Some(plain) = this.transport.plain()
        {
            limit_unsent(plain, bytes);
        }
        let outcome = Pin::new(&mut this.transport).poll_flush(cx);
        this.io_activity.flushed(&outcome);
        this.look_at_queue(&outcome);
        outcome
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().transport).poll_shutdown(cx)
    }
}

impl Watched {
    /// Whether bytes may go to its socket as they are.
    pub(super) fn can_splice(&self) -> bool {
        matches!(self.transport, Transport::Plain(_))
    }

    /// Moves bytes out of a pipe, up to `length`.
    pub(super) fn poll_splice(
        &mut self,
        cx: &mut Context<'_>,
        from: &PipeReader,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        if self.io_activity.has_written_enough(cx) {
            return Poll::Pending;
        }
        let outcome = match &self.transport {
            Transport::Plain(Plain::Tcp(stream)) => poll_splice(cx, from, stream, length),
            Transport::Plain(Plain::Unix(stream)) => poll_splice(cx, from, stream, length),
            Transport::Tls(_) | Transport::Stream(_) => {
                Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
            }
        };
        self.io_activity.wrote(&outcome);
        self.look_at_queue(&outcome);
        outcome
    }

    /// Writes the last bytes of a connection after the position `at`, which it moves. The end of
    /// the sending side goes with the last byte, where one packet can have both.
    pub(super) fn poll_write_last(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        at: &mut usize,
    ) -> Poll<io::Result<()>> {
        while let Transport::Plain(plain) = &self.transport {
            if self.io_activity.has_written_enough(cx) {
                return Poll::Pending;
            }
            let Some(count) = plain.send_last(&bytes[*at..]) else { break };
            *at += count;
            self.io_activity.wrote(&Poll::Ready(Ok(count)));
            if *at == bytes.len() {
                // Flushing would find that both sides have ended, which is no failure here.
                self.io_activity.flushed(&Poll::Ready(Ok(())));
                return Poll::Ready(Ok(()));
            }
        }
        poll_write_all(self, cx, bytes, at)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;

    use hyper::rt::ReadBuf;
    use superpoll_http::io_activity::SHARE;
    use superpoll_http::transport::Socket;
    use superpoll_rt::{Runtime, spawn};

    use super::*;

    /// The most bytes that a test reads or writes at a time.
    const PIECE: usize = 4096;

    fn pair() -> (Watched, UnixStream) {
        let (one, other) = UnixStream::pair().unwrap();
        for socket in [&one, &other] {
            socket.set_nonblocking(true).unwrap();
        }
        let transport = Transport::Plain(Plain::new(Socket::Unix(one)).unwrap());
        (Watched { transport, before: Bytes::new(), io_activity: Rc::default() }, other)
    }

    fn read(watched: &mut Watched, cx: &mut Context<'_>) -> Poll<usize> {
        let mut room = [0; PIECE];
        let mut room = ReadBuf::new(&mut room);
        let outcome = Read::poll_read(Pin::new(watched), cx, room.unfilled());
        outcome.map(|outcome| outcome.map(|()| room.filled().len()).unwrap())
    }

    fn write(watched: &mut Watched, cx: &mut Context<'_>) -> Poll<usize> {
        Pin::new(watched).poll_write(cx, &[7; PIECE]).map(Result::unwrap)
    }

    /// Moves bytes as long as the transport allows it, over and over. Returns the bytes of each
    /// time, and how often another task was run in between.
    fn moved(
        mut watched: Watched,
        step: fn(&mut Watched, &mut Context<'_>) -> Poll<usize>,
    ) -> impl Future<Output = (Vec<usize>, Vec<u32>)> {
        let runs: Rc<Cell<u32>> = Rc::default();
        let counted = runs.clone();
        // It is always due, like a loud connection.
        let other = spawn(poll_fn(move |cx| {
            counted.set(counted.get() + 1);
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        let (mut times, mut seen) = (Vec::new(), Vec::new());
        poll_fn(move |cx| {
            let _ = &other;
            seen.push(runs.get());
            watched.io_activity.begin_turn();
            let mut count = 0;
            while let Poll::Ready(some) = step(&mut watched, cx) {
                count += some;
            }
            times.push(count);
            // In the end there are no bytes to read, or there is no room.
            if count >= SHARE {
                assert!(!watched.io_activity.waits.get() && !watched.io_activity.stuck.get());
                return Poll::Pending;
            }
            assert!(watched.io_activity.waits.get() || watched.io_activity.stuck.get());
            Poll::Ready((std::mem::take(&mut times), std::mem::take(&mut seen)))
        })
    }

    #[test]
    fn the_kernel_is_told_of_a_limit_with_the_next_flush() {
        Runtime::new().unwrap().block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (socket, _) = listener.accept().unwrap();
            socket.set_nonblocking(true).unwrap();
            let same = socket.try_clone().unwrap();
            let limit = || socket2::SockRef::from(&same).tcp_notsent_lowat().unwrap();
            let unlimited = limit();
            let transport = Transport::Plain(Plain::new(Socket::Tcp(socket)).unwrap());
            let mut watched =
                Watched { transport, before: Bytes::new(), io_activity: Rc::default() };
            for (set, expected) in [(None, unlimited), (Some(5000), 5000), (None, 5000)] {
                watched.io_activity.unsent_limit.set(set);
                poll_fn(|cx| Pin::new(&mut watched).poll_flush(cx)).await.unwrap();
                assert_eq!(limit(), expected);
            }
        });
    }

    #[test]
    fn a_task_moves_its_share_and_then_yields() {
        for is_read in [true, false] {
            Runtime::new().unwrap().block_on(async {
                let (watched, mut other) = pair();
                let mut expected = 0;
                if is_read {
                    while let Ok(count) = other.write(&[7; PIECE]) {
                        expected += count;
                    }
                }
                let (times, seen) = moved(watched, if is_read { read } else { write }).await;
                if !is_read {
                    let mut room = [0; PIECE];
                    while let Ok(count @ 1..) = other.read(&mut room) {
                        expected += count;
                    }
                }
                assert!(expected > 2 * SHARE, "{expected}");
                assert_eq!(times.iter().sum::<usize>(), expected);
                let (last, full) = times.split_last().unwrap();
                assert!(
                    full.iter().all(|count| (SHARE..SHARE + PIECE).contains(count)),
                    "{times:?}"
                );
                assert!(*last < SHARE);
                assert!(seen.is_sorted_by(|before, after| before < after), "{seen:?}");
            });
        }
    }
}
