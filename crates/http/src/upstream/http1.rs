//! A connection to a server on which HTTP/1.1 is spoken, without a task of its own.
//!
//! The task that waits for something from the connection drives it: the request's task while it
//! waits for the head of the response, then the task of the response's body. No task polls it in
//! the pool; events meanwhile show when it is taken out.
//!
//! ```text
//!            send             head of the response             end of its body
//!   AT REST ------> REQUEST ------------------------> BODY ---------------------> AT REST
//!                    ^    | interim: read over          |
//!                    +----+                             +---> closed, unless both sides stay
//! ```
//!
//! A server may answer before it has read all of a request, and read no more. So the rest of a
//! request is sent while the response is read, and no other request follows before that is done.
//! Heads are read in `forwarder/attempt`, and bodies whose lines are passed on in `forwarder/body`.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_io::AsyncRead;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;
use superpoll_http1::{After, BodyReader, Field, Framing, Limits, Progress, Refusal};
use superpoll_rt::pipe::PipeWriter;
use superpoll_rt::time;
use superpoll_rt::transfer::poll_splice;

use super::fastcgi::{Begun, Exchange, Framed, Records};
use super::http2::StreamReset;
use super::outgoing::{Interrupted, Outgoing};
use crate::buffer::{LARGEST, ReadBuffer};
use crate::message::Message;
use crate::transport::{Plain, Upstream, poll_write_all};

/// The most interim responses before a final one.
pub(super) const MOST_INTERIM: usize = 100;

/// The limits of a response's head.
pub(super) const LIMITS: Limits = Limits { head: LARGEST, ..Limits::DEFAULT };

/// The reason for which there is no response.
pub(super) enum SendFailure {
    /// The connection was over before anything of the request was sent.
    Unsent,
    /// The server has too much to do, and has not begun to work on the request.
    Refused(StreamReset),
    /// The same of a server of FastCGI.
    Overloaded,
    /// The connection broke.
    Broken(Box<dyn Error + Send + Sync>),
    /// The bytes on the connection are not HTTP.
    Malformed(String),
    /// No bytes came for too long.
    TimedOut,
}

impl SendFailure {
    /// The server has ended its side before its response.
    pub(super) fn at_end() -> SendFailure {
        let what = "connection closed before message completed";
        SendFailure::Broken(io::Error::new(io::ErrorKind::UnexpectedEof, what).into())
    }
}

impl From<Refusal> for SendFailure {
    fn from(why: Refusal) -> SendFailure {
        SendFailure::Malformed(why.to_string())
    }
}

/// A connection to a server.
pub(crate) struct Http1Connection {
    stream: Upstream,
    /// The time at which it was opened.
    opened: Instant,
    /// The records around all bytes, if the server speaks FastCGI.
    exchange: Option<Box<Exchange>>,
    /// Bytes of the response that were read and not used.
    pub(super) read: ReadBuffer,
    unsent: Option<Box<Message<Outgoing>>>,
    /// The body of the response.
    pub(super) reader: BodyReader,
    /// The fields that have followed it so far.
    trailers: Option<Box<HeaderMap>>,
    /// Another request may follow, as far as the last one and its response say.
    stays: bool,
}

impl Http1Connection {
    pub(super) fn new(stream: Upstream) -> Http1Connection {
        let (read, reader) = (ReadBuffer::default(), BodyReader::new(Framing::None));
        let (opened, exchange, unsent, trailers) = (time::now(), None, None, None);
        Http1Connection { stream, opened, exchange, read, unsent, reader, trailers, stays: true }
    }

    /// Returns a connection to a server of FastCGI.
    pub(super) fn fastcgi(stream: Upstream) -> Http1Connection {
        let exchange = Some(Box::new(Exchange::new()));
        Http1Connection { exchange, ..Http1Connection::new(stream) }
    }

    /// Whether it has been open for so long.
    pub(super) fn is_older_than(&self, age: Duration) -> bool {
        time::now().saturating_duration_since(self.opened) >= age
    }

    /// Begins a request of FastCGI, if the server speaks that. Its method may be `HEAD`, and its
    /// response may ask for a file. If its body is sent as it comes, it has so many bytes before
    /// it, and of it.
    pub(super) fn begin_exchange(
        &mut self,
        (is_head, may_ask): (bool, bool),
        records: Option<&Records>,
        body: Option<(usize, u64)>,
    ) {
        if let (Some(exchange), Some(records)) = (&mut self.exchange, records) {
            exchange
                .begin(Begun { is_head, may_ask, id: records.id, script: &records.script }, body);
        }
    }

    /// Takes the name of a script, and the text that it has written for the log.
    pub(super) fn take_errors(&mut self) -> Option<(Rc<str>, String)> {
        self.exchange.as_mut()?.take_errors()
    }

    /// Polls for a frame of the response's body.
    pub(super) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let broken = |error: io::Error| Poll::Ready(Some(Err(error)));
        loop {
            let piece = match self.reader.step(self.read.bytes()) {
                Ok(piece) => piece,
                Err(why) => return broken(io::Error::other(why)),
            };
            if let Some(Field { name, value }) = piece.trailer {
                let name = HeaderName::from_bytes(name.as_bytes());
                let value = HeaderValue::from_bytes(value.as_bytes());
                if let (Ok(name), Ok(value)) = (name, value) {
                    self.trailers.get_or_insert_default().append(name, value);
                }
            }
            let (data, used, progress) = (piece.data.clone(), piece.used, piece.progress);
            let data = self.read.take(data, used);
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            match progress {
                Progress::Again => {}
                Progress::Over => {
                    let trailers = self.trailers.take();
                    return Poll::Ready(trailers.map(|it| Ok(Frame::trailers(*it))));
                }
                Progress::More => match ready!(self.poll_read_more(cx)) {
                    Ok(0) => match self.reader.end() {
                        Ok(()) => return Poll::Ready(None),
                        Err(why) => {
                            let kind = io::ErrorKind::UnexpectedEof;
                            return broken(io::Error::new(kind, why));
                        }
                    },
                    Ok(_) => {}
                    Err(error) => return broken(error),
                },
            }
        }
    }

    /// Returns how many bytes of the request were sent, as long as some of it is not; `None` while
    /// the client has not sent more of its body.
    pub(super) fn sent_bytes(&self) -> Option<u64> {
        match &self.unsent {
            Some(unsent) if unsent.waits_for_body() => None,
            unsent => Some(unsent.as_ref().map_or(0, |unsent| unsent.sent_bytes())),
        }
    }

    /// Whether the body of the response was read to its end.
    pub(super) fn has_read_all(&self) -> bool {
        self.reader.is_over() && self.trailers.is_none()
    }

    /// Makes room for much output of a script, which is not spliced.
    pub(super) fn expect_output(&mut self) {
        if self.exchange.is_some() {
            self.read.expect(LARGEST as u64);
        }
    }

    /// Returns how much data of the body follows, if that is known.
    pub(super) fn body_left(&self) -> Option<u64> {
        self.reader.left()
    }

    /// Whether the last request was sent whole and its response read, and no byte is unused.
    pub(super) fn is_at_rest(&self) -> bool {
        let is_read = self.reader.is_over() && self.read.is_empty();
        let exchange = self.exchange.as_ref();
        self.stays && self.unsent.is_none() && is_read && exchange.is_none_or(|it| it.is_at_rest())
    }

    /// Whether another request can be sent, as far as is known: the server has sent nothing that
    /// was not asked for, nor its end.
    pub(super) fn is_reusable(&mut self, cx: &mut Context<'_>) -> bool {
        self.is_at_rest() && Pin::new(&mut self.stream).poll_read(cx, &mut [0]).is_pending()
    }

    /// Sends the rest of a request while the response is read.
    pub(super) fn send_along(&mut self, rest: &[u8]) {
        self.unsent = Some(Box::new(Message::rest(rest.to_vec())));
    }

    /// Begins to send a request.
    pub(super) fn begin(&mut self, message: Box<Message<Outgoing>>) {
        self.unsent = Some(message);
    }

    /// Takes the body of a request of which nothing was sent.
    pub(super) fn take_unused(&mut self) -> Option<Outgoing> {
        let (mut body, data) = self.unsent.take()?.into_body()?;
        body.put_back(data);
        Some(body)
    }

    /// Notes the head of a response whose body follows.
    pub(super) fn begin_body(&mut self, framing: Framing, after: After) {
        self.reader = BodyReader::new(framing);
        // The end of an output is not that of its connection.
        self.stays &= after == After::Stays || self.exchange.is_some();
    }

    /// Sends the rest of a request. After an error there is none any more.
    pub(super) fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(unsent) = &mut self.unsent else { return Poll::Ready(Ok(())) };
        let sent = match &mut self.exchange {
            None => unsent.poll_send(cx, &mut self.stream),
            Some(exchange) => {
                unsent.poll_send(cx, &mut Framed { stream: &mut self.stream, exchange })
            }
        };
        let sent = ready!(sent);
        // Only one that can be put back stays, for the caller.
        if sent.is_ok() || unsent.is_used() {
            self.unsent = None;
        }
        self.stays &= sent.is_ok();
        Poll::Ready(sent)
    }

    /// Reads more bytes of a body.
    fn poll_read_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.read.expect(self.reader.run());
        self.poll_read(cx)
    }

    /// Reads some bytes after those that were read.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self.poll_unsent(cx) {
            // The server waits for the rest of the upload, which does not come.
            Poll::Ready(Err(error)) if is_interrupted(&error) => return Poll::Ready(Err(error)),
            // A server that reads no more may still answer.
            _ => {}
        }
        match &mut self.exchange {
            None => self.read.poll_read(cx, &mut self.stream),
            Some(exchange) => {
                self.read.poll_read(cx, &mut Framed { stream: &mut self.stream, exchange })
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
        let sent = poll_write_all(&mut self.stream, cx, bytes, at);
        self.stays &= !matches!(sent, Poll::Ready(Err(_)));
        sent
    }

    /// Whether bytes can be spliced from it, past those that were read.
    pub(super) fn can_splice(&self) -> bool {
        let is_bare = matches!(self.stream, Upstream::Plain(_)) && self.exchange.is_none();
        self.unsent.is_none() && is_bare
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

    /// Returns the stream and the bytes that were read of it, once the server has agreed to another
    /// protocol.
    pub(super) fn into_stream(self) -> (Upstream, Bytes) {
        (self.stream, Bytes::copy_from_slice(self.read.bytes()))
    }
}

/// Whether the client's upload is the reason for an error.
pub(super) fn is_interrupted(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<Interrupted>())
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
            let mut connection = Http1Connection::new(Upstream::Plain(plain));
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
