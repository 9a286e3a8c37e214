//! hyper and httparse as specifications of the codec, for arbitrary bytes.
//!
//! If the codec accepts a message, hyper must read the same head, body and trailers from the same
//! bytes, and find the end at the same byte. If the codec refuses it, hyper must refuse it, too, or
//! the reason is one of the intended differences ([`is_intended_request`],
//! [`is_intended_response`]). If the codec waits for more, so must hyper. The codec accepts two
//! things that hyper refuses: later minor versions, and some unencoded bytes in targets; hyper gets
//! them in a form that it knows.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, pending};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Version as TheirVersion};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;
use superpoll_http1::{Asked, Framing, Refusal, Version};

use crate::message::{
    Answer, Body, Kind, Pairs, Request, WIDE, read_body, read_request, read_response,
};

/// One end of a pipe in memory, with bytes that come in pieces.
struct Pipe {
    bytes: Bytes,
    piece: usize,
    /// There is nothing to read before something was written.
    is_open: bool,
    /// The pipe ends after the bytes.
    closes: bool,
}

impl Read for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut room: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_open || (self.bytes.is_empty() && !self.closes) {
            return Poll::Pending;
        }
        let count = self.piece.min(room.remaining()).min(self.bytes.len());
        room.put_slice(&self.bytes.split_to(count));
        cx.waker().wake_by_ref();
        Poll::Ready(Ok(()))
    }
}

impl Write for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_open = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A body without data.
struct Empty;

impl http_body::Body for Empty {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(0)
    }
}

/// Shows the bytes of a comparison that fails.
struct Shown<'b>(&'b [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the bytes are \"{}\"", self.0.escape_ascii());
        }
    }
}

/// How a reader ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Accepted,
    Waits,
    Refused,
}

/// A message as hyper reads it.
#[derive(Debug)]
struct Theirs<H> {
    head: Option<H>,
    data: Vec<u8>,
    trailers: Pairs,
    end: End,
    /// The bytes after the message.
    rest: Option<Vec<u8>>,
}

impl<H> Theirs<H> {
    fn new() -> Theirs<H> {
        Theirs { head: None, data: Vec::new(), trailers: Vec::new(), end: End::Waits, rest: None }
    }

    /// Reads the rest of a body, as far as it has arrived. Returns whether the body has ended.
    fn take(&mut self, body: &mut Incoming, cx: &mut Context<'_>) -> bool {
        loop {
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.data.extend_from_slice(&data),
                    Err(frame) => {
                        self.trailers.extend(pairs(frame.trailers_ref().expect("trailers")));
                    }
                },
                Poll::Ready(Some(Err(_))) => {
                    self.end = End::Refused;
                    return true;
                }
                Poll::Ready(None) => {
                    self.end = End::Accepted;
                    return true;
                }
                Poll::Pending => return false,
            }
        }
    }
}

/// Returns fields in the order of their names; among those of one name the order counts.
fn pairs(headers: &HeaderMap) -> Pairs {
    let owned = headers
        .iter()
        .map(|(name, value)| (name.as_str().as_bytes().to_vec(), value.as_bytes().to_vec()));
    sorted(owned.collect())
}

fn sorted(mut pairs: Pairs) -> Pairs {
    pairs.sort_by(|one, other| one.0.cmp(&other.0));
    pairs
}

/// Removes repeated lengths; hyper keeps the first.
fn with_one_length(pairs: &Pairs) -> Pairs {
    let mut has_length = false;
    let keep = |pair: &&(Vec<u8>, Vec<u8>)| {
        pair.0 != b"content-length" || !std::mem::replace(&mut has_length, true)
    };
    pairs.iter().filter(keep).cloned().collect()
}

/// More turns than any bytes here need.
const TURNS: usize = 4096;

fn hyper_request(bytes: &[u8], piece: usize) -> Theirs<http::Request<Incoming>> {
    let pipe = Pipe { bytes: Bytes::copy_from_slice(bytes), piece, is_open: true, closes: false };
    let seen: Rc<RefCell<Option<http::Request<Incoming>>>> = Rc::default();
    let service = service_fn(|request: http::Request<Incoming>| {
        assert!(seen.replace(Some(request)).is_none(), "a second request");
        // So that hyper reads no further.
        pending::<Result<http::Response<Empty>, Infallible>>()
    });
    let mut connection = hyper::server::conn::http1::Builder::new()
        .header_read_timeout(None)
        .serve_connection(pipe, service);
    let mut cx = Context::from_waker(Waker::noop());
    let mut theirs = Theirs::new();
    for _ in 0..TURNS {
        let is_over = connection.poll_without_shutdown(&mut cx).is_ready();
        theirs.head = theirs.head.or_else(|| seen.take());
        if let Some(mut request) = theirs.head.take() {
            let has_ended = theirs.take(request.body_mut(), &mut cx);
            theirs.head = Some(request);
            if has_ended {
                break;
            }
        }
        if is_over {
            theirs.end = End::Refused;
            return theirs;
        }
    }
    let parts = connection.into_parts();
    theirs.rest = Some([&parts.read_buf[..], &parts.io.bytes[..]].concat());
    theirs
}

/// Whether the codec refuses, on purpose, a request that hyper accepts.
fn is_intended_request(refusal: Refusal, theirs: &http::Request<Incoming>) -> bool {
    match refusal {
        // hyper leaves these to its caller.
        Refusal::HostMissing
        | Refusal::HostRepeated
        | Refusal::HostInvalid
        | Refusal::Expectation
        // hyper cuts a fragment off, takes any form with any method, and schemes that are unknown.
        | Refusal::Fragment
        | Refusal::TargetForm
        // hyper goes by the last coding, and ignores the others and the length.
        | Refusal::CodingUnsupported
        | Refusal::LengthAndCoding
        // hyper reads over control characters in extensions.
        | Refusal::ChunkExtension
        // hyper takes sizes up to 2^64, and counts other bytes as extensions.
        | Refusal::ChunkTooLarge
        | Refusal::ExtraTooLarge
        // hyper takes bare line feeds between trailers.
        | Refusal::Trailer => true,
        Refusal::LengthInvalid | Refusal::LengthsDiffer => {
            let length = theirs.headers().get(CONTENT_LENGTH);
            let number = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
            // hyper ignores a length with a coding, and takes lengths up to 2^64.
            theirs.headers().contains_key(TRANSFER_ENCODING)
                || number.is_some_and(|number| number > i64::MAX as u64)
        }
        _ => false,
    }
}

/// Returns a request in the form that hyper knows: as HTTP/1.1, with encoded bytes in the target.
fn known(bytes: &[u8], head: &Request) -> (Vec<u8>, Request) {
    let (mut bytes, mut head) = (bytes.to_vec(), head.clone());
    let replace = |byte: u8| if b"\"<>`".contains(&byte) { b'x' } else { byte };
    let replaced = |text: &str| String::from_utf8(text.bytes().map(replace).collect()).unwrap();
    let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap();
    let target = start + head.method.len() + 1;
    let end = target + head.target.len();
    bytes[target..end].iter_mut().for_each(|byte| *byte = replace(*byte));
    // "HTTP/1.x".
    let minor = &mut bytes[end + 8];
    if (b'2'..=b'9').contains(minor) {
        *minor = b'1';
    }
    (head.path, head.query) = (replaced(&head.path), head.query.as_deref().map(replaced));
    (bytes, head)
}

fn assert_httparse(bytes: &[u8], head: &Request) {
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut parsed = httparse::Request::new(&mut headers);
    assert_eq!(parsed.parse(bytes), Ok(httparse::Status::Complete(head.len)));
    assert_eq!(parsed.method, Some(&*head.method));
    let theirs = parsed
        .headers
        .iter()
        .map(|header| (header.name.to_ascii_lowercase().into_bytes(), header.value.to_vec()));
    assert_eq!(theirs.collect::<Pairs>(), head.fields);
}

/// Reads a request by the codec and by hyper. Returns the outcome of the codec.
pub(crate) fn compare_request(bytes: &[u8], piece: usize) -> End {
    let (piece, _shown) = (piece.max(1), Shown(bytes));
    let ours = read_request(bytes, &WIDE).and_then(|head| {
        let Some(head) = head else { return Ok(None) };
        let body = read_body(head.framing, &bytes[head.len..], piece, false)?;
        Ok(Some((head, body)))
    });
    let (head, body) = match ours {
        Ok(None) => {
            let theirs = hyper_request(&as_http11(bytes), piece);
            assert_eq!((theirs.end, theirs.head.is_some()), (End::Waits, false), "{theirs:?}");
            return End::Waits;
        }
        Err(refusal) => {
            let mut theirs = hyper_request(bytes, piece);
            if theirs.end == End::Waits && theirs.head.is_none() {
                // hyper looks at a head that came in pieces only when it is whole.
                theirs = hyper_request(&[bytes, b"\r\n\r\n"].concat(), piece);
            }
            if theirs.end != End::Refused {
                let request = theirs.head.as_ref().expect("hyper reads a request");
                assert!(is_intended_request(refusal, request), "{refusal:?}: {theirs:?}");
            }
            return End::Refused;
        }
        Ok(Some(ours)) => ours,
    };
    let (bytes, head) = known(bytes, &head);
    assert_httparse(&bytes, &head);
    let theirs = hyper_request(&bytes, piece);
    let request = theirs.head.as_ref().expect("hyper reads a request");
    let version = match head.version {
        Version::Http10 => TheirVersion::HTTP_10,
        Version::Http11 => TheirVersion::HTTP_11,
    };
    assert_eq!((request.method().as_str(), request.version()), (&*head.method, version));
    let uri = request.uri();
    assert_eq!((uri.path(), uri.query()), (&*head.path, head.query.as_deref()));
    assert_eq!(uri.authority().map(|text| text.as_str()), head.authority.as_deref());
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    assert_eq!(head.host.as_deref(), head.authority.as_deref().or(host));
    assert_eq!(pairs(request.headers()), with_one_length(&sorted(head.fields)));
    assert_body(&body, &theirs, &bytes[head.len..]);
    if body.end.is_some() { End::Accepted } else { End::Waits }
}

/// Returns a request whose head is partial, as HTTP/1.1.
fn as_http11(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(0);
    let mut blanks = (start..bytes.len()).filter(|at| bytes[*at] == b' ');
    if let Some(at) = blanks.nth(1) {
        set_http11(&mut bytes[at + 1..]);
    }
    bytes
}

/// Changes a later version of HTTP/1, and the beginning of any, to HTTP/1.1.
fn set_http11(version: &mut [u8]) {
    if version.len() < 8
        && let Some(major @ b'0'..=b'9') = version.get_mut(5)
    {
        *major = b'1';
    }
    if version.starts_with(b"HTTP/1.")
        && let Some(minor @ b'2'..=b'9') = version.get_mut(7)
    {
        *minor = b'1';
    }
}

fn assert_body<H>(ours: &Body, theirs: &Theirs<H>, bytes: &[u8]) {
    assert_eq!((&ours.data, ours.end.is_some()), (&theirs.data, theirs.end == End::Accepted));
    if let Some(end) = ours.end {
        assert_eq!(sorted(ours.trailers.clone()), sorted(theirs.trailers.clone()));
        if let Some(rest) = &theirs.rest {
            assert_eq!(rest, &bytes[end..], "the next message begins elsewhere");
        }
    }
}

fn hyper_response(
    bytes: &[u8],
    asked: Asked,
    piece: usize,
    closes: bool,
) -> Theirs<http::Response<Incoming>> {
    let pipe = Pipe { bytes: Bytes::copy_from_slice(bytes), piece, is_open: false, closes };
    let mut cx = Context::from_waker(Waker::noop());
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder.max_buf_size(1 << 20).allow_spaces_after_header_name_in_responses(true);
    let Poll::Ready(opened) = pin!(builder.handshake(pipe)).poll(&mut cx) else { unreachable!() };
    let (mut sender, mut connection) = opened.unwrap();
    let (method, uri) = match asked {
        Asked { is_connect: true, .. } => (Method::CONNECT, "a:443"),
        Asked { is_head: true, .. } => (Method::HEAD, "/"),
        _ => (Method::GET, "/"),
    };
    let request = http::Request::builder().method(method).uri(uri).header(HOST, "a").body(Empty);
    let mut sent = pin!(sender.send_request(request.unwrap()));
    let mut theirs = Theirs::new();
    let mut is_sent = false;
    for _ in 0..TURNS {
        let _ = connection.poll_without_shutdown(&mut cx);
        if !is_sent && let Poll::Ready(outcome) = sent.as_mut().poll(&mut cx) {
            is_sent = true;
            match outcome {
                Ok(response) => theirs.head = Some(response),
                Err(_) => {
                    theirs.end = End::Refused;
                    return theirs;
                }
            }
        }
        if let Some(mut response) = theirs.head.take() {
            let has_ended = theirs.take(response.body_mut(), &mut cx);
            theirs.head = Some(response);
            if has_ended {
                break;
            }
        }
    }
    theirs
}

/// Whether the codec refuses, on purpose, a response that hyper accepts.
fn is_intended_response(refusal: Refusal, bytes: &[u8], theirs: &http::Response<Incoming>) -> bool {
    let status = theirs.status();
    match refusal {
        // hyper reads over empty lines before a response.
        Refusal::StatusLine => {
            let mut rest = bytes;
            while let Ok(Some(answer)) = read_response(rest, Asked::default(), &WIDE) {
                rest = &rest[answer.len..];
            }
            rest.starts_with(b"\r\n") || rest.starts_with(b"\n")
        }
        // hyper takes a list of equal lengths, and does not look at lengths and codings where there
        // is no body, or at a length where there is a coding.
        Refusal::LengthInvalid
        | Refusal::LengthsDiffer
        | Refusal::CodingInOldVersion
        // hyper reads until the end of the connection.
        | Refusal::CodingNotChunked
        // hyper takes the last coding for the only one.
        | Refusal::CodingUnsupported
        // hyper reads over interim responses, whatever they say.
        | Refusal::InterimBody
        | Refusal::ChunkExtension
        | Refusal::ChunkTooLarge
        | Refusal::ExtraTooLarge
        | Refusal::Trailer => true,
        Refusal::UpgradeUnasked => status.as_u16() == 101,
        _ => false,
    }
}

/// Reads the responses to a request up to the final one.
fn read_answer(
    bytes: &[u8],
    asked: Asked,
    piece: usize,
    closes: bool,
) -> Result<Option<(usize, Answer, Body)>, Refusal> {
    let mut start = 0;
    loop {
        let Some(answer) = read_response(&bytes[start..], asked, &WIDE)? else {
            return if closes { Err(Refusal::Incomplete) } else { Ok(None) };
        };
        let end = start + answer.len;
        if answer.kind != Kind::Interim {
            let body = match answer.kind {
                Kind::Switches => Body { end: Some(0), ..Body::default() },
                _ => read_body(answer.framing, &bytes[end..], piece, closes)?,
            };
            return Ok(Some((start, answer, body)));
        }
        start = end;
    }
}

/// Reads responses by the codec and by hyper. Returns the outcome of the codec.
pub(crate) fn compare_response(bytes: &[u8], asked: Asked, closes: bool, piece: usize) -> End {
    let (piece, _shown) = (piece.max(1), Shown(bytes));
    let (start, answer, body) = match read_answer(bytes, asked, piece, closes) {
        Ok(None) => {
            let theirs = hyper_response(&newest(bytes), asked, piece, closes);
            assert_eq!((theirs.end, theirs.head.is_some()), (End::Waits, false), "{theirs:?}");
            return End::Waits;
        }
        Err(refusal) => {
            let mut theirs = hyper_response(bytes, asked, piece, closes);
            if theirs.end == End::Waits && theirs.head.is_none() {
                let whole = [bytes, b"\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"].concat();
                theirs = hyper_response(&whole, asked, piece, closes);
            }
            if theirs.end != End::Refused {
                let response = theirs.head.as_ref().expect("hyper reads a response");
                let is_intended = is_intended_response(refusal, bytes, response);
                assert!(is_intended, "{refusal:?}: {theirs:?}");
            }
            return End::Refused;
        }
        Ok(Some(ours)) => ours,
    };
    let bytes = newest(bytes);
    let theirs = hyper_response(&bytes, asked, piece, closes);
    let response = theirs.head.as_ref().expect("hyper reads a response");
    assert_eq!(response.status().as_u16(), answer.status);
    let version = match answer.version {
        Version::Http10 => TheirVersion::HTTP_10,
        Version::Http11 => TheirVersion::HTTP_11,
    };
    assert_eq!(response.version(), version);
    assert_eq!(pairs(response.headers()), sorted(answer.fields.clone()));
    let reason = response.extensions().get::<hyper::ext::ReasonPhrase>();
    let standard = response.status().canonical_reason().unwrap_or_default().as_bytes();
    assert_eq!(reason.map_or(standard, |reason| reason.as_bytes()), answer.reason);
    if answer.kind == Kind::Final {
        assert_body(&body, &theirs, &bytes[start + answer.len..]);
        assert!(answer.framing != Framing::UntilClose || body.end.is_some() == closes);
    }
    if body.end.is_some() { End::Accepted } else { End::Waits }
}

/// Returns responses of later minor versions as HTTP/1.1, which hyper knows.
fn newest(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut start = 0;
    loop {
        set_http11(&mut bytes[start..]);
        match read_response(&bytes[start..], Asked::default(), &WIDE) {
            Ok(Some(answer)) if answer.kind == Kind::Interim => start += answer.len,
            _ => return bytes,
        }
    }
}
