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
//! The lane reads heads and bodies of responses by itself, and writes them to the client.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_io::AsyncRead;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use http_body::Frame;
use hyper::client::conn::TrySendError;
use superpoll_http1::{
    After, Asked, BodyReader, Field, Framing, Limits, Progress, Refusal, Response as ReadResponse,
    ResponseHead, Room, Version as Http1Version, response,
};
use superpoll_rt::pipe::PipeWriter;
use superpoll_rt::time::{self, Sleep, sleep};
use superpoll_rt::transfer::poll_splice;

use super::form::{ServerHead, ServerRequest};
use super::outgoing::{Interrupted, Outgoing, UploadProgress};
use crate::buffer::{LARGEST, ReadBuffer, WriteBuffer};
use crate::interim::InterimResponses;
use crate::message::{Message, ReasonPhrase, header_map};
use crate::transport::{Plain, Upstream, poll_write_all};

/// The most interim responses before a final one.
pub(super) const MOST_INTERIM: usize = 100;

/// The limits of a response's head.
pub(super) const LIMITS: Limits = Limits { head: LARGEST, ..Limits::DEFAULT };

/// The reason for which there is no response.
pub(super) enum SendFailure {
    /// The connection was over before anything of the request was sent.
    Unsent,
    /// The connection broke.
    Broken(Box<dyn Error + Send + Sync>),
    /// The bytes on the connection are not HTTP.
    Malformed(String),
    /// No bytes came for too long.
    TimedOut,
}

impl SendFailure {
    /// Classifies an error of HTTP/2; the body of a request that was not sent goes back to its
    /// place.
    pub(super) fn new(
        mut error: TrySendError<Request<Outgoing>>,
        slot: &mut Option<Outgoing>,
    ) -> SendFailure {
        if let Some(unsent) = error.take_message() {
            *slot = Some(unsent.into_body());
            return SendFailure::Unsent;
        }
        match error.into_error() {
            error if error.is_parse() => SendFailure::Malformed(error.to_string()),
            error => SendFailure::Broken(error.into()),
        }
    }

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

/// A limit on the time that the head of a response may take, from the end of the request.
pub(super) struct ResponseTimer {
    limit: Duration,
    timer: Option<Sleep>,
    report: Option<Rc<UploadProgress>>,
    frames: u64,
    was_over: bool,
}

impl ResponseTimer {
    pub(super) fn new(limit: Duration, report: Option<Rc<UploadProgress>>) -> ResponseTimer {
        ResponseTimer { limit, timer: None, report, frames: 0, was_over: false }
    }

    /// Lets the time begin with the next poll.
    fn restart(&mut self) {
        self.timer = None;
    }

    /// Ready when the time is over.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(report) = &self.report {
            // The time runs from the last frame that was sent.
            let (frames, is_over) = (report.frames.get(), report.is_over.get());
            if (frames, is_over) != (self.frames, self.was_over) {
                (self.frames, self.was_over) = (frames, is_over);
                if let Some(timer) = &mut self.timer {
                    timer.reset(time::now() + self.limit);
                }
            }
        }
        Pin::new(self.timer.get_or_insert_with(|| sleep(self.limit))).poll(cx)
    }
}

/// A connection to a server.
pub(crate) struct Http1Connection {
    stream: Upstream,
    /// Bytes of the response that were read and not used.
    pub(super) read: ReadBuffer,
    unsent: Option<Box<Message<Outgoing>>>,
    /// The body of the response.
    reader: BodyReader,
    /// The fields that have followed it so far.
    trailers: Option<Box<HeaderMap>>,
    /// Another request may follow, as far as the last one and its response say.
    stays: bool,
}

impl Http1Connection {
    pub(super) fn new(stream: Upstream) -> Http1Connection {
        let (read, reader) = (ReadBuffer::default(), BodyReader::new(Framing::None));
        Http1Connection { stream, read, unsent: None, reader, trailers: None, stays: true }
    }

    /// Sends a request and waits for the head of its response; its body is that of the connection.
    ///
    /// The request is taken from its place. It is there again after a failure if nothing of it was
    /// sent, or if it `repeats` and its body is in memory. Interim responses are shown to the
    /// client, if it is one that understands them.
    pub(super) async fn send(
        &mut self,
        slot: &mut Option<ServerRequest>,
        repeats: bool,
        limit: Duration,
        shown: Option<&InterimResponses>,
    ) -> Result<Response<()>, SendFailure> {
        let Some(ServerRequest { head, body }) = slot.take() else {
            return Err(SendFailure::Unsent);
        };
        let mut timer = ResponseTimer::new(limit, body.report());
        let spare = if repeats { body.again() } else { None };
        let ServerHead { lines, writer, asked, .. } = &head;
        let message = Message::new(lines.clone(), writer.clone(), body, true);
        self.unsent = Some(Box::new(message.put_back()));
        let mut interim = 0;
        let answered = poll_fn(|cx| {
            let sent = self.poll_unsent(cx);
            // The client has to take one interim response before the next.
            while !shown.is_some_and(InterimResponses::is_pending) {
                let may_show = shown.filter(|_| interim < MOST_INTERIM);
                match self.head(*asked, may_show) {
                    Ok(Some(response)) if is_interim(&response) => {
                        interim += 1;
                        if interim > MOST_INTERIM {
                            let what = "too many interim responses".to_owned();
                            return Poll::Ready(Err(SendFailure::Malformed(what)));
                        }
                        continue;
                    }
                    Ok(Some(response)) => return Poll::Ready(Ok(response)),
                    Ok(None) => {}
                    Err(why) => return Poll::Ready(Err(why.into())),
                }
                match self.read.poll_read(cx, &mut self.stream) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(SendFailure::at_end())),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(error)) => {
                        return Poll::Ready(Err(SendFailure::Broken(error.into())));
                    }
                    Poll::Pending => break,
                }
            }
            if let Poll::Ready(Err(error)) = sent {
                return Poll::Ready(Err(SendFailure::Broken(error.into())));
            }
            if shown.is_some_and(InterimResponses::is_pending) {
                // The client takes its time, and not the server.
                timer.restart();
                return Poll::Pending;
            }
            timer.poll(cx).map(|()| Err(SendFailure::TimedOut))
        })
        .await;
        let failure = match answered {
            Ok(response) => return Ok(response),
            Err(failure) => failure,
        };
        self.stays = false;
        let body = self.unsent.take().and_then(|unsent| unsent.into_body());
        let body = body.map(|(mut body, data)| {
            body.put_back(data);
            body
        });
        let is_unsent = body.is_some();
        *slot = body.or(spare).map(|body| ServerRequest { head, body });
        Err(if is_unsent { SendFailure::Unsent } else { failure })
    }

    /// Reads the head of a response, if it is there.
    fn head(
        &mut self,
        asked: Asked,
        shown: Option<&InterimResponses>,
    ) -> Result<Option<Response<()>>, Refusal> {
        let bytes = self.read.bytes();
        if bytes.is_empty() {
            return Ok(None);
        }
        let mut names = WriteBuffer::default();
        let mut room = Room::new(&mut names.0);
        let Some(response) = response(bytes, asked, &LIMITS, &mut room)? else {
            self.read.make_room(LARGEST);
            return Ok(None);
        };
        let head = response.head();
        let is_final = !matches!(response, ReadResponse::Interim(_));
        let (answer, len) = (to_response(head, bytes, is_final), head.len);
        if let (false, Some(shown)) = (is_final || head.status == StatusCode::CONTINUE, shown) {
            // The client was told by this server to continue.
            shown.push(head);
        }
        if is_final {
            self.reader = BodyReader::new(head.framing);
            self.stays &= head.after == After::Stays;
        }
        self.read.consume(len);
        Ok(Some(answer))
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

    /// Returns how much data of the body follows, if that is known.
    pub(super) fn body_left(&self) -> Option<u64> {
        self.reader.left()
    }

    /// Whether the last request was sent whole and its response read, and no byte is unused.
    pub(super) fn is_at_rest(&self) -> bool {
        self.stays && self.unsent.is_none() && self.reader.is_over() && self.read.is_empty()
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

    /// Takes a request of which nothing was sent.
    pub(super) fn take_unused(&mut self) -> Option<Box<Message<Outgoing>>> {
        self.unsent.take().filter(|unsent| !unsent.is_used())
    }

    /// Sends the rest of a request. After an error there is none any more.
    pub(super) fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(unsent) = &mut self.unsent else { return Poll::Ready(Ok(())) };
        let sent = ready!(unsent.poll_send(cx, &mut self.stream));
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
        self.read.poll_read(cx, &mut self.stream)
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

    /// Returns the stream and the bytes that were read of it, once the server has agreed to another
    /// protocol.
    pub(super) fn into_stream(self) -> (Upstream, Bytes) {
        (self.stream, Bytes::copy_from_slice(self.read.bytes()))
    }
}

/// Makes one exchange on a connection of its own. The body of the response has at most `most`
/// bytes.
///
/// # Errors
///
/// The exchange broke, took longer than `limit` for the head, or its response is malformed or too
/// large.
pub async fn exchange(
    stream: Upstream,
    request: Request<Bytes>,
    limit: Duration,
    most: usize,
) -> Result<Response<Bytes>, String> {
    let mut connection = Http1Connection::new(stream);
    let request = request.map(|bytes| Outgoing::Memory { bytes, trailers: None });
    let request = ServerRequest::own(request).map_err(|why| why.to_string())?;
    let sent = connection.send(&mut Some(request), false, limit, None).await;
    let response = sent.map_err(|failure| match failure {
        SendFailure::Unsent => "the connection was closed at once".to_owned(),
        SendFailure::Broken(error) => error.to_string(),
        SendFailure::Malformed(what) => what,
        SendFailure::TimedOut => format!("no answer within {limit:?}"),
    })?;
    let mut body = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| connection.poll_body(cx)).await {
        let data = frame.map_err(|error| error.to_string())?.into_data().unwrap_or_default();
        if data.len() > most - body.len() {
            return Err(format!("its body has more than {most} bytes"));
        }
        body.extend_from_slice(&data);
    }
    Ok(response.map(|()| body.freeze()))
}

/// Whether the client's upload is the reason for an error.
pub(super) fn is_interrupted(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<Interrupted>())
}

/// Whether another response to the same request follows.
fn is_interim(response: &Response<()>) -> bool {
    let status = response.status();
    status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS
}

/// Returns the head of a response, which was read at the beginning of some bytes.
fn to_response(head: &ResponseHead<'_>, bytes: &[u8], is_final: bool) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = head.status;
    if !is_final {
        return response;
    }
    *response.version_mut() = match head.version {
        Http1Version::Http10 => Version::HTTP_10,
        Http1Version::Http11 => Version::HTTP_11,
    };
    *response.headers_mut() = header_map(head.fields, &bytes[..head.len]);
    let reason = head.reason.as_bytes();
    let usual = head.status.canonical_reason().unwrap_or_default();
    if !reason.is_empty() && reason != usual.as_bytes() {
        response.extensions_mut().insert(ReasonPhrase(Bytes::copy_from_slice(reason)));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use futures_lite::future::zip;
    use http::header::{HOST, UPGRADE};
    use http_body::Body as _;
    use proptest::prelude::*;
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

    fn post(body: Outgoing) -> Option<ServerRequest> {
        ServerRequest::own(Request::post("/a").header(HOST, "a").body(body).unwrap()).ok()
    }

    fn memory(bytes: &[u8], trailers: Option<HeaderMap>) -> Outgoing {
        let bytes = Bytes::copy_from_slice(bytes);
        Outgoing::Memory { bytes, trailers: trailers.map(Box::new) }
    }

    async fn frames(body: &mut Outgoing) -> (Vec<u8>, Option<HeaderMap>) {
        let (mut data, mut trailers) = (Vec::new(), None);
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
            match frame.unwrap().into_data() {
                Ok(piece) => data.extend_from_slice(&piece),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        (data, trailers)
    }

    /// Nothing of a request went to a server that is gone: it can be sent to another one, whole.
    #[test]
    fn a_request_that_was_not_sent_comes_back_whole() {
        let trailers: HeaderMap = [(UPGRADE, HeaderValue::from_static("b"))].into_iter().collect();
        Runtime::new().unwrap().block_on(async {
            for (data, trailers) in [(&b""[..], None), (b"abc", None), (b"abc", Some(trailers))] {
                let (plain, theirs) = narrow();
                drop(theirs);
                let mut connection = Http1Connection::new(Upstream::Plain(plain));
                let mut slot = post(memory(data, trailers.clone()));
                let sent = connection.send(&mut slot, false, Duration::MAX, None).await;
                assert!(matches!(sent, Err(SendFailure::Unsent)));
                let mut again = slot.unwrap();
                assert!(again.head.lines.starts_with(b"POST /a HTTP/1.1\r\nhost: a\r\n"));
                assert!(again.head.lines.ends_with(b"\r\n\r\n"));
                assert_eq!(frames(&mut again.body).await, (data.to_vec(), trailers));
                assert!(!connection.is_at_rest());
            }
        });
    }

    /// One that was sent comes back only if it may be sent again.
    #[test]
    fn a_request_that_may_have_arrived_comes_back_if_it_repeats() {
        Runtime::new().unwrap().block_on(async {
            for repeats in [false, true] {
                let (plain, mut theirs) = narrow();
                let mut connection = Http1Connection::new(Upstream::Plain(plain));
                let mut slot = post(memory(b"abc", None));
                let ended = async {
                    let mut room = [0; 100];
                    while theirs.read(&mut room).is_err() {
                        superpoll_rt::next_turn().await;
                    }
                    drop(theirs);
                };
                let send = connection.send(&mut slot, repeats, Duration::MAX, None);
                let (sent, ()) = zip(send, ended).await;
                assert!(matches!(sent, Err(SendFailure::Broken(_))));
                assert_eq!(slot.is_some(), repeats);
            }
        });
    }

    /// The server has answered and reads no more: it has seen a part of a request.
    #[test]
    fn a_connection_with_a_request_that_was_cut_is_not_used_again() {
        Runtime::new().unwrap().block_on(async {
            let (plain, mut theirs) = narrow();
            let mut connection = Http1Connection::new(Upstream::Plain(plain));
            let mut slot = post(memory(&[b'x'; 200_000], None));
            let answer = async {
                let mut room = [0; 9000];
                while theirs.read(&mut room).is_err() {
                    superpoll_rt::next_turn().await;
                }
                // There is room for more of the request when the answer comes.
                while theirs.read(&mut room).is_ok() {}
                theirs.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
                theirs.shutdown(std::net::Shutdown::Read).unwrap();
            };
            let send = connection.send(&mut slot, false, Duration::MAX, None);
            let (sent, ()) = zip(send, answer).await;
            assert_eq!(sent.ok().unwrap().status(), StatusCode::OK);
            poll_fn(|cx| connection.poll_unsent(cx)).await.unwrap_or_default();
            assert!(connection.has_read_all() && !connection.is_at_rest());
        });
    }

    /// The framing of a response.
    #[derive(Clone, Copy, Debug)]
    enum Shape {
        Length,
        Chunks { size: usize, has_trailers: bool },
        UntilClose,
        NoContent,
    }

    fn shapes() -> impl Strategy<Value = Shape> {
        prop_oneof![
            Just(Shape::Length),
            (5..5000_usize, any::<bool>())
                .prop_map(|(size, has_trailers)| Shape::Chunks { size, has_trailers }),
            Just(Shape::UntilClose),
            Just(Shape::NoContent),
        ]
    }

    fn written(shape: Shape, data: &[u8], interim: usize) -> Vec<u8> {
        let mut bytes = b"HTTP/1.1 102 Processing\r\nX: y\r\n\r\n".repeat(interim);
        let mut text = |text: &str| bytes.extend_from_slice(text.as_bytes());
        match shape {
            Shape::Length => {
                text(&format!("HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: {}\r\n\r\n", data.len()));
                bytes.extend_from_slice(data);
            }
            Shape::Chunks { size, has_trailers } => {
                text("HTTP/1.1 200 OK\r\na:b\r\nTransfer-Encoding: chunked\r\n\r\n");
                for piece in data.chunks(size) {
                    bytes.extend_from_slice(format!("{:x};x=y\r\n", piece.len()).as_bytes());
                    bytes.extend_from_slice(piece);
                    bytes.extend_from_slice(b"\r\n");
                }
                bytes.extend_from_slice(b"0\r\n");
                bytes.extend_from_slice(if has_trailers { b"T: u\r\n\r\n" } else { b"\r\n" });
            }
            Shape::UntilClose => {
                text("HTTP/1.0 200 Fine\r\nA: b\r\n\r\n");
                bytes.extend_from_slice(data);
            }
            Shape::NoContent => text("HTTP/1.1 204 No Content\r\nA: b\r\n\r\n"),
        }
        bytes
    }

    /// Reads what has come, and writes a piece.
    async fn serve(theirs: &mut UnixStream, pieces: &[&[u8]], seen: &mut Vec<u8>) {
        let mut room = [0; 9000];
        for piece in pieces {
            let mut at = 0;
            while at < piece.len() {
                while let Ok(count @ 1..) = theirs.read(&mut room) {
                    seen.extend_from_slice(&room[..count]);
                }
                // An answer before the request would be no answer.
                if !seen.is_empty() {
                    at += theirs.write(&piece[at..]).unwrap_or(0);
                }
                superpoll_rt::next_turn().await;
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Whatever the pieces are in which a response comes, while the request is still sent or
        /// behind it: the body is the server's, and the server's request is ours.
        #[test]
        fn requests_and_responses_come_whole(
            upload in prop::collection::vec(any::<u8>(), 0..30_000),
            data in prop::collection::vec(any::<u8>(), 0..40_000),
            shape in shapes(),
            interim in 0..3_usize,
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let bytes = written(shape, &data, interim);
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|two| &bytes[two[0]..two[1]]).collect();
            Runtime::new().unwrap().block_on(async {
                let (plain, mut theirs) = narrow();
                let mut connection = Http1Connection::new(Upstream::Plain(plain));
                let mut seen = Vec::new();
                let ours = async {
                    let mut slot = post(memory(&upload, None));
                    let sent = connection.send(&mut slot, false, Duration::MAX, None).await;
                    let response = sent.ok().expect("there is a response");
                    let (mut body, mut trailers) = (Vec::new(), HeaderMap::new());
                    while let Some(frame) = poll_fn(|cx| connection.poll_body(cx)).await {
                        match frame.unwrap().into_data() {
                            Ok(piece) => body.extend_from_slice(&piece),
                            Err(frame) => trailers = frame.into_trailers().unwrap(),
                        }
                    }
                    (response, body, trailers)
                };
                let served = async {
                    serve(&mut theirs, &pieces, &mut seen).await;
                    if matches!(shape, Shape::UntilClose) {
                        theirs.shutdown(std::net::Shutdown::Write).unwrap();
                    }
                };
                let ((response, body, trailers), ()) = zip(ours, served).await;
                let is_empty = matches!(shape, Shape::NoContent);
                assert_eq!(response.headers()["a"], "b");
                assert!(body == if is_empty { &[][..] } else { &data[..] });
                let has_trailers = matches!(shape, Shape::Chunks { has_trailers: true, .. });
                assert_eq!(trailers.contains_key("t"), has_trailers);
                // The rest of the request goes on, and then another request may follow.
                let mut room = [0; 9000];
                let head = format!("POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", upload.len());
                let whole = match upload.is_empty() {
                    true => b"POST /a HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(),
                    false => [head.as_bytes(), &upload].concat(),
                };
                while seen.len() < whole.len() {
                    poll_fn(|cx| {
                        let _ = connection.poll_unsent(cx);
                        Poll::Ready(())
                    })
                    .await;
                    superpoll_rt::next_turn().await;
                    if let Ok(count) = theirs.read(&mut room) {
                        seen.extend_from_slice(&room[..count]);
                    }
                }
                assert!(seen == whole, "{} of {} bytes", seen.len(), whole.len());
                let stays = !matches!(shape, Shape::UntilClose);
                let is_reusable = poll_fn(|cx| {
                    let _ = connection.poll_unsent(cx);
                    Poll::Ready((connection.is_at_rest(), connection.is_reusable(cx)))
                });
                assert_eq!(is_reusable.await, (stays, stays));
            });
        }
    }
}
