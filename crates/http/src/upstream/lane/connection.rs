//! A connection to a server on which HTTP/1.1 is spoken without hyper.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use futures_io::AsyncRead;
use superpoll_rt::pipe::PipeWriter;
use superpoll_rt::time::{Sleep, sleep_until};
use superpoll_rt::transfer::poll_splice;

use super::buffer::ReadBuffer;
use crate::transport::{Plain, Upstream, poll_write_all};

/// A connection to a server.
pub(crate) struct RawConnection {
    stream: Upstream,
    /// Bytes of the response that were read and not used.
    pub(super) read: ReadBuffer,
    /// The rest of a request whose response came before it was sent.
    unsent: Option<(Vec<u8>, usize)>,
}

impl RawConnection {
    pub(crate) fn new(stream: Upstream) -> RawConnection {
        RawConnection { stream, read: ReadBuffer::default(), unsent: None }
    }

    /// Returns the stream, the bytes that were read of it, and the rest of a request that is still
    /// to be sent.
    pub(crate) fn into_parts(self) -> (Upstream, ReadBuffer, Option<Vec<u8>>) {
        (self.stream, self.read, self.unsent.map(|(rest, at)| rest[at..].to_vec()))
    }

    /// Whether the last request was sent whole, and no byte is unused.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.unsent.is_none() && self.read.is_empty()
    }

    /// Whether another request can be sent, as far as is known: the server has sent nothing that
    /// was not asked for, nor its end.
    pub(crate) fn is_reusable(&mut self, cx: &mut Context<'_>) -> bool {
        self.is_at_rest() && Pin::new(&mut self.stream).poll_read(cx, &mut [0]).is_pending()
    }

    /// Sends the rest of a request while the response is read.
    pub(super) fn send_along(&mut self, rest: &[u8]) {
        self.unsent = Some((rest.to_vec(), 0));
    }

    /// Reads some bytes after those that were read.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Some((rest, mut at)) = self.unsent.take() {
            // A server that reads no more may still answer.
            if self.poll_send(cx, &rest, &mut at).is_pending() {
                self.unsent = Some((rest, at));
            }
        }
        self.read.poll_read(cx, &mut self.stream)
    }

    /// Whether bytes can be spliced from it, past those that were read.
    pub(super) fn can_splice(&self) -> bool {
        self.unsent.is_none() && matches!(self.stream, Upstream::Plain(_))
    }

    /// Moves bytes into a pipe that is empty, up to `length`, past those that were read.
    pub(super) fn poll_splice(
        &mut self,
        cx: &mut Context<'_>,
        to: &PipeWriter,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        match &self.stream {
            Upstream::Plain(Plain::Tcp(stream)) => poll_splice(cx, stream, to, length),
            Upstream::Plain(Plain::Unix(stream)) => poll_splice(cx, stream, to, length),
            Upstream::Tls(_) | Upstream::Stream(_) => {
                Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
            }
        }
    }

    /// Sends bytes from the position `at` on, which it moves; see [`poll_write_all`].
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        at: &mut usize,
    ) -> Poll<io::Result<()>> {
        poll_write_all(&mut self.stream, cx, bytes, at)
    }
}

// The ends of a response before its last byte, and the time limit that may be one.

/// A timer for one limit after another. It is set again only when it has ended, or would end too
/// late: most limits are over long before.
#[derive(Default)]
pub struct LimitTimer(Option<Sleep>);

impl LimitTimer {
    /// Ready after a time.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, due: Instant) -> Poll<()> {
        let timer = self.0.get_or_insert_with(|| sleep_until(due));
        if timer.deadline() > due {
            timer.reset(due);
        }
        while timer.deadline() <= due {
            ready!(Pin::new(&mut *timer).poll(cx));
            if timer.deadline() == due {
                return Poll::Ready(());
            }
            timer.reset(due);
        }
        Poll::Pending
    }
}

/// The end of an exchange before its time.
pub(super) enum Lost {
    Client,
    Server(io::Error),
}

impl Lost {
    /// The server has ended its side.
    pub(super) fn at_end() -> Lost {
        let what = "end of file before message length reached";
        Lost::Server(io::Error::new(io::ErrorKind::UnexpectedEof, what))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{Read, Write};

    use superpoll_rt::Runtime;

    use super::*;
    use crate::plain_stream::narrow;

    /// A server may answer a request before it has read all of it: the rest is sent while the
    /// response is read, and no other request is sent before that.
    #[test]
    fn an_early_response_leaves_nothing_of_its_request_behind() {
        let request: Vec<u8> = (0..200_000_u32).map(|at| ((at * 7) >> 3) as u8).collect();
        Runtime::new().unwrap().block_on(async {
            let (plain, mut theirs) = narrow();
            let mut connection = RawConnection::new(Upstream::Plain(plain));
            let mut at = 0;
            let sent = poll_fn(|cx| Poll::Ready(connection.poll_send(cx, &request, &mut at))).await;
            assert!(sent.is_pending() && at < request.len(), "{at}");
            theirs.write_all(b"early").unwrap();
            connection.send_along(&request[at..]);
            let (mut seen, mut room) = (Vec::new(), [0; 3000]);
            poll_fn(|cx| {
                while connection.poll_read(cx).is_ready() {}
                connection.read.consume(connection.read.bytes().len());
                if connection.is_reusable(cx) {
                    return Poll::Ready(());
                }
                if let Ok(count) = theirs.read(&mut room) {
                    seen.extend_from_slice(&room[..count]);
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            while let Ok(count @ 1..) = theirs.read(&mut room) {
                seen.extend_from_slice(&room[..count]);
            }
            assert!(seen == request, "{} of {} bytes", seen.len(), request.len());
        });
    }
}
