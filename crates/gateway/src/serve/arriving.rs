//! The body of a request of HTTP/1 on its way to a handler, or to a server.
//!
//! ```text
//!           the handler asks         bytes come
//!   head ----------------> WANTED ------------> a frame for the handler ----> over
//!     ^                                            |
//!     +--------------------------------------------+----> given up: thrown away
//! ```
//!
//! `100 Continue` is sent when the handler asks for the body for the first time, and never after
//! the response has begun. What has come with the head is there before the handler asks. If it
//! reads no further, the rest is thrown away as far as it has arrived.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use futures_io::AsyncRead;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;
use superpoll_http::buffer::ReadBuffer;
use superpoll_http::transport::poll_write_all;
use superpoll_http::upload::{RequestBody, UploadSlot};
use superpoll_http::upstream::{Client, LinesClient};
use superpoll_http1::{BodyReader, Framing, Progress, Refusal, RequestHead};
use superpoll_rt::pipe::PipeReader;
use tokio::io::AsyncWrite;

use super::answer::ConnectionState;
use super::client_stream::ClientStream;

/// Tells a client to send the body of its request.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The body of a request on its way to the handler.
pub(super) struct ArrivingBody {
    /// `None` if there is no body.
    slot: Option<Rc<UploadSlot>>,
    reader: BodyReader,
    /// The client has ended its side, or sent something else than the body.
    is_broken: bool,
    /// The bytes that were sent of the invitation that the client waits for.
    invitation: Option<usize>,
    trailers: Option<Box<HeaderMap>>,
}

impl Default for ArrivingBody {
    fn default() -> ArrivingBody {
        ArrivingBody::none()
    }
}

impl ArrivingBody {
    /// Returns the body behind a head, and the handler's part of it.
    pub(super) fn new(head: &RequestHead<'_>) -> (ArrivingBody, RequestBody) {
        ArrivingBody::of_framing(head.framing, head.wants.continues)
    }

    fn of_framing(framing: Framing, continues: bool) -> (ArrivingBody, RequestBody) {
        let reader = BodyReader::new(framing);
        let slot = (!reader.is_over()).then(|| UploadSlot::new(reader.left()));
        let body = slot.clone().map_or(RequestBody::Empty, RequestBody::Arriving);
        let invitation = continues.then_some(0);
        (ArrivingBody { slot, reader, is_broken: false, invitation, trailers: None }, body)
    }

    /// Returns the body of a request that has none.
    pub(super) fn none() -> ArrivingBody {
        ArrivingBody::of_framing(Framing::None, false).0
    }

    pub(super) fn is_over(&self) -> bool {
        self.reader.is_over()
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.is_broken || self.slot.as_ref().is_none_or(|slot| slot.is_given_up())
    }

    /// Whether the handler may still ask for some.
    pub(super) fn continues(&self) -> bool {
        !self.is_over() && !self.is_given_up()
    }

    /// Whether the client may still be sending, or has sent what nobody has read.
    pub(super) fn is_followed(&self, io: &ClientStream, read: &ReadBuffer) -> bool {
        !self.is_over() || !read.is_empty() || !io.before.is_empty()
    }

    /// Gives the handler the part that has come with the head, before it asks.
    pub(super) fn offer(&mut self, read: &mut ReadBuffer) {
        if let (Some(slot), None) = (self.slot.clone(), self.invitation) {
            self.fill(&slot, read);
        }
    }

    /// Puts the next frame or the end of the body in its slot; whether there was one.
    fn fill(&mut self, slot: &UploadSlot, read: &mut ReadBuffer) -> bool {
        loop {
            let piece = match self.reader.step(read.bytes()) {
                Ok(piece) => piece,
                Err(why) => {
                    self.is_broken = true;
                    slot.end(Some(why.into()));
                    return true;
                }
            };
            if let Some(field) = piece.trailer {
                let name = HeaderName::from_bytes(field.name.as_bytes());
                let value = HeaderValue::from_bytes(field.value.as_bytes());
                if let (Ok(name), Ok(value)) = (name, value) {
                    self.trailers.get_or_insert_default().append(name, value);
                }
            }
            let (data, used, progress) = (piece.data.clone(), piece.used, piece.progress);
            let data = read.take(data, used);
            if !data.is_empty() {
                slot.fill(Frame::data(data), self.reader.left(), self.is_over());
                return true;
            }
            match progress {
                Progress::Again => {}
                Progress::More => return false,
                Progress::Over => {
                    match self.trailers.take() {
                        Some(trailers) => slot.fill(Frame::trailers(*trailers), Some(0), true),
                        None => slot.end(None),
                    }
                    return true;
                }
            }
        }
    }

    /// Gives the handler a frame, if it waits for one.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut ClientStream,
        read: &mut ReadBuffer,
        is_answered: bool,
    ) -> Poll<io::Result<()>> {
        let Some(slot) = self.slot.clone() else { return Poll::Pending };
        if !self.continues() || !slot.is_wanted(cx) {
            return Poll::Pending;
        }
        if !is_answered {
            ready!(self.poll_invite(cx, io))?;
        }
        while !self.fill(&slot, read) {
            read.expect(self.reader.run());
            let why = match ready!(poll_read(cx, io, read)) {
                Ok(1..) => continue,
                Ok(0) => io::Error::new(io::ErrorKind::UnexpectedEof, Refusal::Incomplete),
                Err(error) => error,
            };
            self.is_broken = true;
            slot.end(Some(why.into()));
            break;
        }
        slot.wake(cx);
        Poll::Ready(Ok(()))
    }

    /// Invites the client to send the body, if it waits for that.
    fn poll_invite(&mut self, cx: &mut Context<'_>, io: &mut ClientStream) -> Poll<io::Result<()>> {
        if let Some(at) = &mut self.invitation {
            ready!(poll_write_all(io, cx, CONTINUE, at))?;
            self.invitation = None;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes the rest of an invitation that has begun, and then an interim response of a server;
    /// whether there was one.
    pub(super) fn poll_begun(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut ClientStream,
        state: &ConnectionState,
    ) -> Poll<io::Result<bool>> {
        ready!(self.poll_finish_invitation(cx, io))?;
        state.interim.poll_show(cx, io)
    }

    /// Writes the rest of an invitation that has begun.
    fn poll_finish_invitation(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut ClientStream,
    ) -> Poll<io::Result<()>> {
        match self.invitation {
            Some(1..) => self.poll_invite(cx, io),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Throws the rest away as far as it has arrived, if the handler reads no further.
    pub(super) fn drop_rest(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut ClientStream,
        read: &mut ReadBuffer,
    ) {
        while !self.is_over() && self.is_given_up() && !self.is_broken {
            let (used, progress) = match self.reader.step(read.bytes()) {
                Ok(piece) => (piece.used, piece.progress),
                Err(_) => {
                    self.is_broken = true;
                    return;
                }
            };
            read.consume(used);
            if progress == Progress::More {
                match poll_read(cx, io, read) {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Pending => return,
                    Poll::Ready(_) => self.is_broken = true,
                }
            }
        }
    }

    /// The same at the end of the response.
    pub(super) async fn end(&mut self, io: &mut ClientStream, read: &mut ReadBuffer) {
        poll_fn(|cx| {
            self.drop_rest(cx, io, read);
            Poll::Ready(())
        })
        .await;
    }
}

/// Reads some bytes after those that were read.
pub(super) fn poll_read(
    cx: &mut Context<'_>,
    io: &mut ClientStream,
    read: &mut ReadBuffer,
) -> Poll<io::Result<usize>> {
    read.fill(|room| AsyncRead::poll_read(Pin::new(io), cx, room))
}

/// The client's side of a request that is passed on: its stream and the request's body.
pub(super) struct Session<'a> {
    pub io: &'a mut ClientStream,
    pub read: &'a mut ReadBuffer,
    pub arriving: &'a mut ArrivingBody,
}

impl Client for Session<'_> {
    const TAKES_LINES: bool = true;

    fn stream(&mut self) -> &mut (impl AsyncWrite + Unpin) {
        &mut *self.io
    }

    fn poll_feed(&mut self, cx: &mut Context<'_>, gets: bool) -> Poll<io::Result<()>> {
        let fed = self.arriving.poll_fill(cx, self.io, self.read, gets);
        self.io.expects_body = self.arriving.continues();
        fed
    }

    fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.arriving.poll_finish_invitation(cx, self.io)
    }
}

impl LinesClient for Session<'_> {
    fn can_splice(&self) -> bool {
        self.io.can_splice()
    }

    fn poll_splice(
        &mut self,
        cx: &mut Context<'_>,
        from: &PipeReader,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        self.io.poll_splice(cx, from, length)
    }

    fn poll_write_last(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        at: &mut usize,
    ) -> Poll<io::Result<()>> {
        self.io.poll_write_last(cx, bytes, at)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use bytes::Bytes;
    use http_body::Body as _;
    use superpoll_http::transport::{Plain, Socket, Transport};
    use superpoll_http::upload::Upload;
    use superpoll_http1::{Limits, Room, request};
    use superpoll_rt::Runtime;

    use super::*;

    /// An invitation within a response would be taken for a part of it.
    #[test]
    fn a_client_that_gets_a_response_is_not_invited() {
        Runtime::new().unwrap().block_on(async {
            for gets in [true, false] {
                let (one, mut other) = UnixStream::pair().unwrap();
                for socket in [&one, &other] {
                    socket.set_nonblocking(true).unwrap();
                }
                let transport = Transport::Plain(Plain::new(Socket::Unix(one)).unwrap());
                let mut io = ClientStream::new(transport, Bytes::new(), Rc::default());
                let (mut read, mut scratch) = (ReadBuffer::default(), Vec::new());
                let mut room = Room::new(&mut scratch);
                let head = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\
                             Content-Length: 5\r\n\r\n";
                let head = request(head, &Limits::DEFAULT, &mut room).unwrap().unwrap();
                let (mut arriving, body) = ArrivingBody::new(&head);
                let mut upload = Upload::new(body, 10, Duration::from_secs(60));
                poll_fn(|cx| {
                    // It is asked for.
                    assert!(Pin::new(&mut upload).poll_frame(cx).is_pending());
                    let arriving = &mut arriving;
                    let mut session = Session { io: &mut io, read: &mut read, arriving };
                    assert!(session.poll_feed(cx, gets).is_pending());
                    Poll::Ready(())
                })
                .await;
                let mut seen = [0; 100];
                assert_eq!(other.read(&mut seen).unwrap_or(0) == CONTINUE.len(), !gets);
            }
        });
    }
}
