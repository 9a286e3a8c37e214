//! The bytes for the client that are not written yet.
//!
//! All writes of the streams in a turn of the connection's task are joined, and go to the transport
//! at the end of the turn: a record of TLS and a call of the kernel for all of it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::AsyncWrite;
use superpoll_http::buffer::WriteBuffer;
use superpoll_http::io_activity::IoActivity;
use superpoll_http::transport::Transport;
use superpoll_rt::has_budget_remaining;

/// No more data of bodies is joined once there are so many bytes.
pub(super) const MOST_DATA: usize = 48 << 10;

/// No more frames of the client are read while there are so many bytes.
pub(super) const MOST: usize = 96 << 10;

/// The bytes for the client that are not written yet.
#[derive(Default)]
pub(super) struct Output {
    buffer: Option<WriteBuffer>,
    at: usize,
    /// The transport may hold bytes that it has accepted.
    is_unflushed: bool,
}

impl Output {
    /// Returns the bytes, to append to.
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.buffer.get_or_insert_default().0
    }

    /// Continues with a transport that may hold bytes already, and with further ones.
    pub(super) fn resume(&mut self, bytes: &[u8]) {
        self.is_unflushed = true;
        if !bytes.is_empty() {
            self.bytes().extend_from_slice(bytes);
        }
    }

    /// Returns how many there are.
    pub(super) fn len(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.0.len() - self.at)
    }

    /// Whether all was written and flushed.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0 && !self.is_unflushed
    }

    /// Writes and flushes the bytes. Ready when all of them are on their way.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        activity: &IoActivity,
    ) -> Poll<io::Result<()>> {
        if let Some(buffer) = &mut self.buffer {
            while self.at < buffer.0.len() {
                if activity.has_written_enough(cx) {
                    return Poll::Pending;
                }
                // Without an operation left it would look as if there were no room.
                if !has_budget_remaining() {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let outcome = Pin::new(&mut *transport).poll_write(cx, &buffer.0[self.at..]);
                activity.wrote(&outcome, || transport.unsent());
                match outcome? {
                    Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(count) => self.at += count,
                    Poll::Pending => {
                        // Otherwise the memory would grow with all that is ever appended.
                        buffer.0.drain(..std::mem::take(&mut self.at));
                        return Poll::Pending;
                    }
                }
                self.is_unflushed = true;
            }
            (self.buffer, self.at) = (None, 0);
        }
        if self.is_unflushed {
            let outcome = Pin::new(&mut *transport).poll_flush(cx);
            activity.note_room(outcome.is_ready(), || transport.unsent());
            ready!(outcome)?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use superpoll_http::transport::{Plain, Socket};
    use superpoll_rt::Runtime;

    use super::*;

    /// A reader takes some now and then, and the next bytes come meanwhile.
    #[test]
    fn bytes_leave_whole_and_in_their_order() {
        Runtime::new().unwrap().block_on(async {
            let (one, mut other) = UnixStream::pair().unwrap();
            for socket in [&one, &other] {
                socket.set_nonblocking(true).unwrap();
            }
            let mut transport = Transport::Plain(Plain::new(Socket::Unix(one)).unwrap());
            let (mut output, activity) = (Output::default(), IoActivity::default());
            let (mut sent, mut read, mut was_stuck) = (0_usize, Vec::new(), 0);
            let mut room = vec![0; 50_000];
            while was_stuck < 20 || !output.is_empty() {
                if was_stuck < 20 && output.len() < MOST {
                    let more = (sent..sent + 30_000).map(|place| (place / 251) as u8);
                    output.bytes().extend(more);
                    sent += 30_000;
                }
                activity.begin_turn();
                let written =
                    poll_fn(|cx| Poll::Ready(output.poll_write(cx, &mut transport, &activity)));
                if written.await.is_pending() {
                    was_stuck += 1;
                    assert!(output.bytes().capacity() <= 4 * MOST);
                    if let Ok(count) = other.read(&mut room) {
                        read.extend_from_slice(&room[..count]);
                    }
                    superpoll_rt::yield_now().await;
                }
            }
            while let Ok(count @ 1..) = other.read(&mut room) {
                read.extend_from_slice(&room[..count]);
            }
            assert_eq!(read.len(), sent);
            assert!((0..sent).all(|place| read[place] == (place / 251) as u8));
        });
    }
}
