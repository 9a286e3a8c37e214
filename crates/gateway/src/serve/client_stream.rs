//! The stream of HTTP/1 with a client.
//!
//! It notes the bytes that move, and whether a write found no room: the limits of time go by that,
//! and by the phase of the connection (`clock`).
//!
//! While a request is answered nothing is read, so a client that goes is not seen. The connection's
//! task flushes with each turn, though, and then the stream checks for a hang-up when a task has
//! asked for it. The end of the client's side is no hang-up: the client may well wait for its
//! answer.
//!
//! A client at the speed of the loopback would keep the engine. The stream therefore limits the
//! bytes of each run of a task ([`SHARE`](superpoll_http::io_activity::SHARE)). At the limit it
//! reports that it is not ready, and wakes the task, which runs again after the other tasks.
//!
//! A request that may take indefinitely is nevertheless given up with the end of the client's side,
//! if its service says so
//! ([`Exchange::end_with_client`](superpoll_http::exchange::Exchange::end_with_client)): for such a
//! request the stream is read with each flush. The bytes that it finds are kept for the next read,
//! and nothing more is read then.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use futures_io::AsyncRead;
use superpoll_http::io_activity::IoActivity;
use superpoll_http::plain_stream::limit_unsent;
use superpoll_http::transport::{Plain, Transport, poll_write_all};
use superpoll_rt::pipe::PipeReader;
use superpoll_rt::transfer::poll_splice;
use tokio::io::AsyncWrite;

/// A transport, the bytes that were read of it before, and the events on it.
#[derive(Debug)]
pub(super) struct ClientStream {
    pub transport: Transport,
    pub before: Bytes,
    /// The stream is read for the rest of a request's body, which finds the end of the client's
    /// side as well.
    pub expects_body: bool,
    io_activity: Rc<IoActivity>,
}

/// The most bytes that are read in search of the end: few, since the room for them is cleared each
/// time.
const PROBE: usize = 128;

impl ClientStream {
    pub(super) fn new(
        transport: Transport,
        before: Bytes,
        io_activity: Rc<IoActivity>,
    ) -> ClientStream {
        ClientStream { transport, before, expects_body: false, io_activity }
    }

    /// Whether the client has sent something that the last read has not returned, or may have: the
    /// part of a record, or bytes after the task's share.
    #[inline]
    pub(super) fn has_more(&self) -> bool {
        !self.before.is_empty() || self.transport.has_part() || self.io_activity.has_read_share()
    }

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
                self.io_activity.read(count);
                false
            }
        }
    }

    /// Writes by a function that returns the number of bytes, unless the task has had its share.
    #[inline]
    fn poll_write_by(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut Transport, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.io_activity.has_written_enough(cx) {
            return Poll::Pending;
        }
        let outcome = write(&mut self.transport, cx);
        self.io_activity.wrote(&outcome, || self.transport.unsent());
        outcome
    }
}

/// The buffers of HTTP/1 are initialised, so a TLS stream need not clear them.
impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !this.before.is_empty() {
            let count = this.before.len().min(room.len());
            room[..count].copy_from_slice(&this.before[..count]);
            this.before.advance(count);
            return Poll::Ready(Ok(count));
        }
        if this.io_activity.has_read_enough(cx) {
            return Poll::Pending;
        }
        let outcome = AsyncRead::poll_read(Pin::new(&mut this.transport), cx, room);
        if let Poll::Ready(Ok(count)) = outcome {
            this.io_activity.read(count);
        }
        outcome
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_by(cx, |transport, cx| Pin::new(transport).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = |transport: &mut Transport, cx: &mut Context<'_>| {
            Pin::new(transport).poll_write_vectored(cx, parts)
        };
        self.get_mut().poll_write_by(cx, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    /// Flushes, which tells whether the client is gone if a task has asked for that.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.io_activity.doubted.take() && this.transport.is_gone() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let watches = this.io_activity.ends_with_client.get() && !this.expects_body;
        if watches && this.has_ended(cx) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if let Some(bytes) = this.io_activity.unsent_limit.take()
            && let Some(plain) = this.transport.plain()
        {
            limit_unsent(plain, bytes);
        }
        let outcome = Pin::new(&mut this.transport).poll_flush(cx);
        this.io_activity.note_room(outcome.is_ready(), || this.transport.unsent());
        outcome
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().transport).poll_shutdown(cx)
    }
}

impl ClientStream {
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
        self.poll_write_by(cx, |transport, cx| match transport {
            Transport::Plain(Plain::Tcp(stream)) => poll_splice(cx, from, stream, length),
            Transport::Plain(Plain::Unix(stream)) => poll_splice(cx, from, stream, length),
            Transport::Tls(_) | Transport::Stream(_) => {
                Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
            }
        })
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
            self.io_activity.wrote(&Poll::Ready(Ok(count)), || None);
            if *at == bytes.len() {
                // Flushing would find that both sides have ended, which is no failure here.
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

    use superpoll_http::io_activity::SHARE;
    use superpoll_http::transport::Socket;
    use superpoll_rt::{Runtime, spawn};

    use super::*;

    /// The most bytes that a test reads or writes at a time.
    const PIECE: usize = 4096;

    fn pair() -> (ClientStream, UnixStream) {
        let (one, other) = UnixStream::pair().unwrap();
        for socket in [&one, &other] {
            socket.set_nonblocking(true).unwrap();
        }
        let transport = Transport::Plain(Plain::new(Socket::Unix(one)).unwrap());
        (ClientStream::new(transport, Bytes::new(), Rc::default()), other)
    }

    fn read(stream: &mut ClientStream, cx: &mut Context<'_>) -> Poll<usize> {
        AsyncRead::poll_read(Pin::new(stream), cx, &mut [0; PIECE]).map(Result::unwrap)
    }

    fn write(stream: &mut ClientStream, cx: &mut Context<'_>) -> Poll<usize> {
        Pin::new(stream).poll_write(cx, &[7; PIECE]).map(Result::unwrap)
    }

    /// Moves bytes as long as the transport allows it, over and over. Returns the bytes of each
    /// time, and how often another task was run in between.
    fn moved(
        mut stream: ClientStream,
        is_read: bool,
    ) -> impl Future<Output = (Vec<usize>, Vec<u32>)> {
        let step = if is_read { read } else { write };
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
            stream.io_activity.begin_turn();
            let mut count = 0;
            while let Poll::Ready(some) = step(&mut stream, cx) {
                count += some;
            }
            times.push(count);
            let (has_more, is_stuck) = (stream.has_more(), stream.io_activity.stuck.get());
            if count >= SHARE {
                assert!(has_more == is_read && !is_stuck);
                return Poll::Pending;
            }
            // In the end there are no bytes to read, or there is no room.
            assert!(!has_more && is_stuck != is_read);
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
            let mut stream = ClientStream::new(transport, Bytes::new(), Rc::default());
            for (set, expected) in [(None, unlimited), (Some(5000), 5000), (None, 5000)] {
                stream.io_activity.unsent_limit.set(set);
                poll_fn(|cx| Pin::new(&mut stream).poll_flush(cx)).await.unwrap();
                assert_eq!(limit(), expected);
            }
        });
    }

    #[test]
    fn a_task_moves_its_share_and_then_yields() {
        for is_read in [true, false] {
            Runtime::new().unwrap().block_on(async {
                let (stream, mut other) = pair();
                let mut expected = 0;
                if is_read {
                    while let Ok(count) = other.write(&[7; PIECE]) {
                        expected += count;
                    }
                }
                let (times, seen) = moved(stream, is_read).await;
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
