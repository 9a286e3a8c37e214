//! A message of HTTP/1 on its way: the lines, and a body that is made while it is sent.
//!
//! ```text
//!   body -> frame -> line before a chunk | data | line end -> one write of all three
//! ```
//!
//! A frame is taken only when all before it was written, so a slow reader holds one frame. Short
//! ones are the exception: they are gathered with the lines, so that a write is worth its system
//! call. Data is never copied otherwise; the bytes of a file stay those that the kernel can send by
//! itself.

use std::cell::RefCell;
use std::error::Error;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version};
use http_body::Body;
use superpoll_config::encode_target;
use superpoll_http1::{
    After, Asked, BodyWriter, Field, FieldLines, FieldName, FieldValue, Framing, RequestHead,
    Version as Http1Version, Writer,
};
use tokio::io::AsyncWrite;

const DATE: FieldName<'_> = FieldName::from_static("date");

/// Data of fewer bytes is gathered with the lines.
const SHORT: usize = 1 << 10;

/// Nothing more is gathered once there are so many bytes.
const GATHERED: usize = 16 << 10;

/// The last chunk of a body, behind the data of the one before.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

/// The reason phrase of a response, where it is not that of the standard: an extension of
/// [`http::Response`].
#[derive(Clone, Debug)]
pub struct ReasonPhrase(pub Bytes);

/// The part of a message that is still to be sent.
pub struct Message<B> {
    /// Lines, from the position `at` on.
    lines: Vec<u8>,
    at: usize,
    /// The data after them.
    data: Bytes,
    /// The end of the chunk after that, and maybe of the body.
    tail: &'static [u8],
    /// Where the rest of the body comes from.
    body: Option<B>,
    /// How the rest is written; `None` behind its end.
    writer: Option<BodyWriter>,
    /// The recipient reads fields that follow the body.
    takes_trailers: bool,
    /// The fate of the connection, once the end is written.
    after: After,
    /// Data in the lines.
    gathered: usize,
    /// The bytes that were sent.
    sent: u64,
    /// Why the body has no end; told once all before it was sent.
    failure: Option<io::Error>,
    /// The body cannot be sent again.
    is_spoilt: bool,
    /// The caller takes the body back if nothing was sent.
    is_put_back: bool,
}

impl<B> Message<B> {
    /// Returns lines that are sent as they are, behind the beginning of their message.
    pub(crate) fn rest(lines: Vec<u8>) -> Message<B> {
        Message {
            lines,
            at: 0,
            data: Bytes::new(),
            tail: b"",
            body: None,
            writer: None,
            takes_trailers: false,
            after: After::Stays,
            gathered: 0,
            sent: 0,
            failure: None,
            is_spoilt: true,
            is_put_back: false,
        }
    }

    /// Makes sure that the body can be taken back as long as nothing was sent.
    pub(crate) fn put_back(mut self) -> Message<B> {
        self.is_put_back = true;
        self
    }

    /// Returns a message that begins with the lines of its head.
    pub fn new(lines: Vec<u8>, writer: BodyWriter, body: B, takes_trailers: bool) -> Message<B> {
        let (body, writer) = (Some(body), Some(writer));
        let is_spoilt = false;
        Message { body, writer, takes_trailers, is_spoilt, ..Message::rest(lines) }
    }

    /// Whether all that there was of it so far was sent.
    pub(crate) fn waits_for_body(&self) -> bool {
        let is_written = self.lines.is_empty() && self.data.is_empty() && self.tail.is_empty();
        is_written && self.writer.is_some()
    }

    /// Returns how many bytes of it were sent.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent
    }

    /// Whether there is nothing that could be put back.
    pub(crate) fn is_used(&self) -> bool {
        self.sent > 0 || self.is_spoilt
    }

    /// Returns the body, as far as it is there.
    pub fn body_mut(&mut self) -> Option<&mut B> {
        self.body.as_mut()
    }

    /// Returns the fate of the connection: known once the message was sent.
    #[must_use]
    pub fn after(&self) -> After {
        self.after
    }

    /// Returns the bytes of data that were taken from the body and not sent.
    #[must_use]
    pub fn unsent(&self) -> u64 {
        (self.data.len() + self.gathered.min(self.lines.len() - self.at)) as u64
    }

    /// Returns the body and the data that was taken from it last, if nothing was sent.
    pub(crate) fn into_body(self) -> Option<(B, Bytes)> {
        let is_used = self.is_used();
        Some((self.body.filter(|_| !is_used)?, self.data))
    }
}

impl<B> Message<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Sends as much as the stream takes and the body has; ready when all was sent and flushed.
    ///
    /// # Errors
    ///
    /// Those of the stream, and with the kind `Other` those of the body, which may be shorter or
    /// longer than its length.
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        loop {
            // Data goes with the lines around it.
            while self.data.is_empty() && self.tail.is_empty() && self.writer.is_some() {
                match self.poll_more(cx) {
                    Poll::Pending if self.lines.is_empty() => {
                        // A stream may be idle for long.
                        if self.lines.capacity() > 2 * SHORT {
                            self.lines = Vec::new();
                        }
                        ready!(Pin::new(stream).poll_flush(cx))?;
                        return Poll::Pending;
                    }
                    Poll::Pending => break,
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(why)) if self.is_put_back => return Poll::Ready(Err(why)),
                    // The reader gets what there is, and then misses the rest.
                    Poll::Ready(Err(why)) => {
                        (self.failure, self.writer) = (Some(why), None);
                        break;
                    }
                }
                self.gather(stream.is_write_vectored());
            }
            if self.lines.is_empty() && self.data.is_empty() && self.tail.is_empty() {
                ready!(Pin::new(stream).poll_flush(cx))?;
                return Poll::Ready(self.failure.take().map_or(Ok(()), Err));
            }
            let parts = [&self.lines[self.at..], &self.data, self.tail].map(IoSlice::new);
            let count = ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &parts))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.note_sent(count);
            let is_last = self.lines.is_empty() && self.data.is_empty();
            if is_last && !stream.is_write_vectored() {
                // It needs no record of its own if more data is there.
                self.lines.extend_from_slice(std::mem::take(&mut self.tail));
            }
        }
    }

    /// Notes that bytes were sent.
    fn note_sent(&mut self, count: usize) {
        self.sent += count as u64;
        let of_lines = count.min(self.lines.len() - self.at);
        self.at += of_lines;
        let of_data = (count - of_lines).min(self.data.len());
        self.skip_data(of_data);
        self.tail = &self.tail[count - of_lines - of_data..];
        if self.at == self.lines.len() {
            self.lines.clear();
            (self.at, self.gathered) = (0, 0);
        }
    }

    /// Drops data that is not needed any more. Its memory may be awaited by the body.
    fn skip_data(&mut self, count: usize) {
        self.data.advance(count);
        if self.data.is_empty() {
            self.data = Bytes::new();
        }
    }

    /// Joins short data with the lines; of an encrypted stream, which has a record for each write,
    /// as much as one record has room for. Data that may be put back stays as it is.
    fn gather(&mut self, is_vectored: bool) {
        let room = GATHERED.saturating_sub(self.lines.len());
        let count = match (is_vectored, self.data.len()) {
            _ if self.is_put_back && self.sent == 0 => return,
            (true, length) if length > SHORT => return,
            (_, length) => length.min(room),
        };
        self.lines.extend_from_slice(&self.data[..count]);
        self.gathered += count;
        self.skip_data(count);
        if self.data.is_empty() {
            self.lines.extend_from_slice(std::mem::take(&mut self.tail));
        }
    }

    /// Takes the next piece of the body, or its end.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (Some(body), Some(writer)) = (&mut self.body, &mut self.writer) else {
            return Poll::Ready(Ok(()));
        };
        if writer.left() == Some(0) {
            return Poll::Ready(self.end(&HeaderMap::new()));
        }
        let frame = match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            Some(Ok(frame)) => frame.into_data(),
            None => return Poll::Ready(self.end(&HeaderMap::new())),
            Some(Err(why)) => {
                // What follows could be taken for the end of the body.
                self.is_spoilt = true;
                return Poll::Ready(Err(io::Error::other(why)));
            }
        };
        match frame {
            Ok(data) => {
                let is_last = body.is_end_stream();
                let begun = writer.begin_piece(data.len() as u64, &mut self.lines);
                self.is_spoilt |= begun.is_err();
                begun.map_err(io::Error::other)?;
                (self.data, self.tail) = (data, writer.end_piece());
                if is_last && !self.tail.is_empty() {
                    self.after = self.writer.take().map_or(After::Closes, |it| it.after());
                    self.tail = LAST_CHUNK;
                }
                Poll::Ready(Ok(()))
            }
            Err(frame) => {
                let ended = self.end(&frame.into_trailers().unwrap_or_default());
                self.is_spoilt = true;
                Poll::Ready(ended)
            }
        }
    }

    fn end(&mut self, trailers: &HeaderMap) -> io::Result<()> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let is_short = writer.left().is_some_and(|left| left > 0);
        let trailers = trailers.iter().filter(|_| self.takes_trailers);
        let fields = trailers.map(|(name, value)| Field { name: name.into(), value: value.into() });
        self.after = writer.end_with(fields, &mut self.lines);
        if is_short {
            self.is_spoilt = true;
            return Err(io::Error::other("the body is shorter than its length"));
        }
        Ok(())
    }
}

thread_local! {
    /// Maps of fields that no message has. One that is used again costs no allocation.
    static MAPS: RefCell<Vec<HeaderMap>> = const { RefCell::new(Vec::new()) };
}

/// The most maps that a thread keeps, and the most fields that one of them has room for.
const MOST_MAPS: usize = 16;
const MOST_ROOM: usize = 48;

/// Keeps the memory of a map of fields for the next message.
pub fn recycle(mut map: HeaderMap) {
    if !(1..=MOST_ROOM).contains(&map.capacity()) {
        return;
    }
    map.clear();
    let _ = MAPS.try_with(|maps| {
        let mut maps = maps.borrow_mut();
        if maps.len() < MOST_MAPS {
            maps.push(map);
        }
    });
}

/// Returns fields of a head as a map, whose values share one copy of the head.
pub(crate) fn header_map<'f>(fields: impl Iterator<Item = Field<'f>>, head: &[u8]) -> HeaderMap {
    map_of(fields, head, &Bytes::copy_from_slice(head))
}

/// Returns the head of a request as handlers get it; `head` are its bytes. Bytes of the target that
/// [`Uri`] does not take are encoded, as the client should have done; `None` if the target is too
/// long then.
pub fn to_request<B>(read: &RequestHead<'_>, head: &[u8], body: B) -> Option<Request<B>> {
    let copy = Bytes::copy_from_slice(head);
    let mut request = Request::new(body);
    *request.method_mut() = Method::from(read.method);
    *request.version_mut() = match read.version {
        Http1Version::Http10 => Version::HTTP_10,
        Http1Version::Http11 => Version::HTTP_11,
    };
    *request.headers_mut() = map_of(read.fields.iter(), head, &copy);
    let target = read.target.as_str();
    let uri = match shared(target.as_bytes(), head, &copy) {
        Some(target) => Uri::from_maybe_shared(target).ok(),
        None => target.parse().ok(),
    };
    *request.uri_mut() = match uri {
        Some(uri) => uri,
        None => encode_target(target).parse().ok()?,
    };
    Some(request)
}

/// Returns the head of a request of HTTP/2 as handlers get it; `None` if its target is too long.
pub fn to_request_of_http2<B>(
    read: &superpoll_http2::RequestHead<'_>,
    body: B,
) -> Option<Request<B>> {
    let mut request = Request::new(body);
    *request.method_mut() = Method::from(read.method);
    *request.version_mut() = Version::HTTP_2;
    // The values share one copy.
    let mut copy =
        BytesMut::with_capacity(read.fields.iter().map(|it| it.value.as_bytes().len()).sum());
    read.fields.iter().for_each(|field| copy.extend_from_slice(field.value.as_bytes()));
    let mut copy = copy.freeze();
    let mut map = MAPS.with_borrow_mut(Vec::pop).unwrap_or_default();
    map.reserve(read.fields.len());
    for Field { name, value } in read.fields.iter() {
        let value = HeaderValue::from_maybe_shared(copy.split_to(value.as_bytes().len()));
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), value) {
            map.append(name, value);
        }
    }
    *request.headers_mut() = map;
    let (target, host) = (read.target.as_str(), read.host.as_str());
    let target = match read.scheme {
        Some(scheme) if target.starts_with('/') => format!("{scheme}://{host}{target}"),
        _ => target.to_owned(),
    };
    *request.uri_mut() = match Uri::from_maybe_shared(Bytes::from(target)) {
        Ok(uri) => uri,
        Err(_) => encode_target(read.target.as_str()).parse().ok()?,
    };
    Some(request)
}

/// Returns a part of a head as a part of its copy; `None` if it is elsewhere, as the head of a
/// newer version was copied before.
fn shared(part: &[u8], head: &[u8], copy: &Bytes) -> Option<Bytes> {
    let start = part.as_ptr().addr().wrapping_sub(head.as_ptr().addr());
    let is_here = start < copy.len() && start + part.len() <= copy.len();
    is_here.then(|| copy.slice(start..start + part.len()))
}

fn map_of<'f>(fields: impl Iterator<Item = Field<'f>>, head: &[u8], copy: &Bytes) -> HeaderMap {
    let mut map = MAPS.with_borrow_mut(Vec::pop).unwrap_or_default();
    map.reserve(fields.size_hint().1.unwrap_or_default());
    for Field { name, value } in fields {
        let value = match shared(value.as_bytes(), head, copy) {
            Some(value) => HeaderValue::from_maybe_shared(value),
            None => HeaderValue::from_bytes(value.as_bytes()),
        };
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), value) {
            map.append(name, value);
        }
    }
    map
}

/// Returns the head of a response with these fields, whose body comes in chunks, and
/// which is the last one on its connection.
#[must_use]
pub fn last_chunked_head(status: StatusCode, fields: &HeaderMap) -> Vec<u8> {
    let (mut lines, asked) = (Vec::new(), Asked::default());
    let mut writer = Writer::response(&mut lines, Http1Version::Http11, status, None, asked);
    fields.iter().for_each(|(name, value)| writer.field(name.into(), value.into()));
    write_date(&mut writer);
    let _ = writer.body(Framing::Chunked, After::Closes);
    lines
}

/// Passes on the time as a field has it.
pub fn date(to: impl FnOnce(&HeaderValue)) {
    with_date(|lines| {
        let value =
            lines.iter().next().map(|field| HeaderValue::from_bytes(field.value.as_bytes()));
        if let Some(Ok(value)) = value {
            to(&value);
        }
    });
}

/// Writes the time.
pub fn write_date(to: &mut Writer<'_>) {
    with_date(|lines| to.lines(lines));
}

/// Passes on the line of the time, which is formatted once a second.
pub(crate) fn with_date(to: impl FnOnce(&FieldLines)) {
    thread_local! {
        static LAST: RefCell<(u64, FieldLines)> = const { RefCell::new((0, FieldLines::new())) };
    }
    let now = SystemTime::now();
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    LAST.with_borrow_mut(|(at, lines)| {
        if *at != seconds || lines.is_empty() {
            (*at, *lines) = (seconds, FieldLines::new());
            let text = httpdate::fmt_http_date(now);
            let value = FieldValue::new(text.as_bytes());
            value.into_iter().for_each(|value| lines.push(DATE, value));
        }
        to(lines);
    });
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Waker;

    use super::*;
    use http_body::{Frame, SizeHint};

    /// Takes some bytes at a time, and no more than it may in all.
    struct Narrow {
        taken: Vec<u8>,
        most: usize,
        is_vectored: bool,
    }

    impl AsyncWrite for Narrow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let count = bytes.len().min(7).min(self.most - self.taken.len());
            if count == 0 {
                return Poll::Pending;
            }
            self.taken.extend_from_slice(&bytes[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            parts: &[io::IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let part = parts.iter().find(|part| !part.is_empty());
            self.poll_write(cx, part.map_or(&[], |part| part))
        }

        fn is_write_vectored(&self) -> bool {
            self.is_vectored
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    struct Frames(VecDeque<io::Result<Frame<Bytes>>>);

    impl Body for Frames {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
            Poll::Ready(self.0.pop_front())
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_empty()
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::default()
        }
    }

    fn of_body<B>(body: B, framing: Framing) -> Message<B> {
        let mut lines = Vec::new();
        let (version, asked) = (Http1Version::Http11, superpoll_http1::Asked::default());
        let writer = Writer::response(&mut lines, version, http::StatusCode::OK, None, asked);
        let writer = writer.body(framing, After::Stays);
        Message::new(lines, writer, body, true)
    }

    fn chunked(frames: Vec<io::Result<Frame<Bytes>>>) -> Message<Frames> {
        of_body(Frames(frames.into()), Framing::Chunked)
    }

    fn data(text: &'static str) -> io::Result<Frame<Bytes>> {
        Ok(Frame::data(Bytes::from_static(text.as_bytes())))
    }

    const HEAD: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

    /// The reader gets all that there was before an error, and no end.
    #[test]
    fn a_body_that_breaks_off_is_sent_as_far_as_it_goes() {
        for is_vectored in [true, false] {
            let mut to = Narrow { taken: Vec::new(), most: usize::MAX, is_vectored };
            let broken = Err(io::Error::other("gone"));
            let mut message = chunked(vec![data("abc"), data("de"), broken]);
            let cx = &mut Context::from_waker(Waker::noop());
            let outcome = message.poll_send(cx, &mut to);
            assert!(matches!(outcome, Poll::Ready(Err(error)) if error.to_string() == "gone"));
            let expected = format!("{HEAD}3\r\nabc\r\n2\r\nde\r\n");
            assert_eq!(String::from_utf8(to.taken).unwrap(), expected, "{is_vectored}");
        }
    }

    /// The memory of a frame, which says when it is free.
    struct Lent(Vec<u8>, Arc<AtomicBool>);

    impl AsRef<[u8]> for Lent {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Drop for Lent {
        fn drop(&mut self) {
            self.1.store(true, Ordering::Relaxed);
        }
    }

    /// A body with one buffer for all frames, as that of a file is where memory is short.
    struct Sparing(usize, Arc<AtomicBool>, usize);

    impl Body for Sparing {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
            if self.0 == 0 {
                return Poll::Ready(None);
            }
            if !self.1.swap(false, Ordering::Relaxed) {
                return Poll::Pending;
            }
            self.0 -= 1;
            let lent = Lent(vec![b'x'; self.2], self.1.clone());
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(lent)))))
        }
    }

    /// The buffer of a frame is free once the frame was sent.
    #[test]
    fn a_body_gets_its_buffer_back_before_its_next_frame() {
        for is_vectored in [true, false] {
            for length in [1, SHORT, SHORT + 1, GATHERED, 3 * GATHERED] {
                let mut to = Narrow { taken: Vec::new(), most: usize::MAX, is_vectored };
                let body = Sparing(4, Arc::new(AtomicBool::new(true)), length);
                let mut message = of_body(body, Framing::Length(4 * length as u64));
                let cx = &mut Context::from_waker(Waker::noop());
                assert!(message.poll_send(cx, &mut to).is_ready(), "{is_vectored} {length}");
                let data = to.taken.iter().filter(|byte| **byte == b'x').count();
                assert_eq!(data, 4 * length);
            }
        }
    }

    /// However much a stream takes: the bytes are the same, and it is known how much data is left.
    #[test]
    fn data_that_was_not_sent_is_counted() {
        let whole = format!("{HEAD}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
        for is_vectored in [true, false] {
            for most in 0..=whole.len() {
                let mut to = Narrow { taken: Vec::new(), most, is_vectored };
                let mut message = chunked(vec![data("abc"), data("de")]);
                let cx = &mut Context::from_waker(Waker::noop());
                let is_over = message.poll_send(cx, &mut to).is_ready();
                assert_eq!(is_over, most == whole.len());
                assert_eq!(to.taken, whole.as_bytes()[..most]);
                let polled = 5 - message.body_mut().map_or(0, |body| {
                    let data = body.0.iter().filter_map(|frame| frame.as_ref().ok()?.data_ref());
                    data.map(Bytes::len).sum::<usize>()
                });
                let sent = to.taken.iter().skip(HEAD.len()).filter(|it| b"abcde".contains(it));
                let left = polled.saturating_sub(sent.count()) as u64;
                // Data and its lines are not told apart where both are gathered.
                let most = if message.unsent() == 0 { 0 } else { left + 5 };
                assert!((left..=most.max(left)).contains(&message.unsent()), "{most} {left}");
            }
        }
    }
}
