//! hyper as the specification of the lane, for arbitrary bytes.
//!
//! If the lane takes a request, hyper's server must read the same method, target and fields from
//! the same bytes, the same body, and the same start of the next request. If it takes a response,
//! hyper's client must read the same status, fields and body, and find its end at the same byte.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, pending};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body::Body as _;
use httparse::Header;
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;

use super::body::{self, Length, Rest, Step};
use super::request::{self, Parsed, room};
use super::response;
use crate::body::Body;

/// One end of a pipe in memory, with bytes that come in pieces.
struct Pipe {
    bytes: Bytes,
    piece: usize,
    /// There is nothing to read before something was written.
    is_open: bool,
}

impl Read for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut room: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_open || self.bytes.is_empty() {
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

/// More turns than any bytes here need.
const TURNS: usize = 4096;

/// Compares fields, whose order counts among those of one name.
fn assert_same(fields: &[Header<'_>], headers: &HeaderMap) {
    assert_eq!(fields.len(), headers.len(), "{fields:?} {headers:?}");
    for name in headers.keys() {
        let of_name = |field: &&Header<'_>| field.name.eq_ignore_ascii_case(name.as_str());
        let ours: Vec<&[u8]> = fields.iter().filter(of_name).map(|field| field.value).collect();
        let theirs: Vec<&[u8]> =
            headers.get_all(name).iter().map(|value| value.as_bytes()).collect();
        assert_eq!(ours, theirs, "{name}");
    }
}

/// Reads a request by the lane and by hyper. Returns whether the lane takes it.
pub(crate) fn compare_request(bytes: &[u8], piece: usize) -> bool {
    let original = bytes;
    let (mut room, mut lower) = (room(), Vec::new());
    let Parsed::Regular(head) = request::parse(bytes, &mut room, &mut lower) else { return false };
    let mut ours = Vec::new();
    let behind = &bytes[head.len..];
    let end = match body::whole(head.length, behind, |data| ours.extend_from_slice(data)) {
        Parsed::Regular(taken) => head.len + taken,
        Parsed::Partial | Parsed::Irregular => return false,
    };
    // hyper refuses some of these bytes of a target, which the lane passes.
    let known = |byte: u8| if request::is_unencoded(byte) { b'x' } else { byte };
    let target = String::from_utf8(head.target.bytes().map(known).collect()).unwrap();
    let mut bytes = bytes.to_vec();
    let start = head.target.as_ptr().addr() - original.as_ptr().addr();
    bytes[start..][..target.len()].copy_from_slice(target.as_bytes());
    let pipe = Pipe { bytes: Bytes::copy_from_slice(&bytes), piece: piece.max(1), is_open: true };
    let seen: Rc<RefCell<Option<Request<Incoming>>>> = Rc::default();
    let service = service_fn(|request: Request<Incoming>| {
        assert!(seen.replace(Some(request)).is_none(), "a second request");
        // So that hyper reads no further.
        pending::<Result<Response<Body>, Infallible>>()
    });
    let mut connection = hyper::server::conn::http1::Builder::new()
        .header_read_timeout(None)
        .serve_connection(pipe, service);
    let mut cx = Context::from_waker(Waker::noop());
    let (mut request, mut theirs, mut is_over) = (None, Vec::new(), false);
    for _ in 0..TURNS {
        if let Poll::Ready(outcome) = connection.poll_without_shutdown(&mut cx) {
            panic!("hyper ends the connection: {outcome:?}");
        }
        request = request.or_else(|| seen.take());
        let Some(request) = &mut request else { continue };
        let body = request.body_mut();
        is_over = body.is_end_stream();
        while !is_over {
            match Pin::new(&mut *body).poll_frame(&mut cx) {
                Poll::Ready(Some(frame)) => {
                    theirs.extend_from_slice(&frame.unwrap().into_data().expect("no trailers"));
                }
                Poll::Ready(None) => is_over = true,
                Poll::Pending => break,
            }
        }
        if is_over {
            break;
        }
    }
    let request = request.expect("hyper reads a request");
    assert_eq!(*request.method(), head.method);
    assert_eq!(request.version(), http::Version::HTTP_11);
    assert_eq!(request.uri().to_string(), target);
    assert_eq!(request.uri().path(), &target[..head.path().len()]);
    assert_same(head.fields, request.headers());
    assert_eq!(request.headers()["host"].as_bytes(), head.host);
    assert_eq!((is_over, &theirs), (true, &ours));
    let has_none = matches!(head.length, Length::None | Length::Known(0));
    assert_eq!(
        request.body().is_end_stream() && ours.is_empty() && head.length != Length::Chunked,
        has_none
    );
    let parts = connection.into_parts();
    let rest = [&parts.read_buf[..], &parts.io.bytes[..]].concat();
    assert_eq!(rest, &bytes[end..], "the next request begins elsewhere");
    true
}

/// The outcome of a body.
#[derive(PartialEq, Eq, Debug)]
enum End {
    Over,
    More,
}

/// Reads a response by the lane and by hyper. Returns whether the lane takes all of it.
pub(crate) fn compare_response(bytes: &[u8], is_head: bool, piece: usize) -> bool {
    let (mut room, mut lower) = (room(), Vec::new());
    let Parsed::Regular(head) = response::parse(bytes, is_head, &mut room, &mut lower) else {
        return false;
    };
    let mut rest = Rest::from_length(head.length);
    let (mut body, mut at) = (Vec::new(), head.len);
    // The bytes come in pieces here as well.
    let mut upto = head.len;
    let end = loop {
        let (used, step) = rest.step(&bytes[at..upto], |data| body.extend_from_slice(data));
        at += used;
        match step {
            Step::Over => break End::Over,
            Step::Irregular => return false,
            Step::Again => {}
            Step::More if upto == bytes.len() => break End::More,
            Step::More => upto = (upto + piece.max(1)).min(bytes.len()),
        }
    };
    let pipe = Pipe { bytes: Bytes::copy_from_slice(bytes), piece: piece.max(1), is_open: false };
    let mut cx = Context::from_waker(Waker::noop());
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder.max_buf_size(1 << 20);
    let Poll::Ready(opened) = pin!(builder.handshake(pipe)).poll(&mut cx) else { unreachable!() };
    let (mut sender, mut connection) = opened.unwrap();
    let method = if is_head { Method::HEAD } else { Method::GET };
    let request = Request::builder().method(method).header("host", "a").body(Body::empty());
    let mut sent = pin!(sender.send_request(request.unwrap()));
    let mut response = None;
    let mut theirs = Vec::new();
    let mut is_over = false;
    for _ in 0..TURNS {
        let _ = connection.poll_without_shutdown(&mut cx);
        match &mut response {
            None => {
                if let Poll::Ready(outcome) = sent.as_mut().poll(&mut cx) {
                    response = Some(outcome.expect("hyper reads a response"));
                }
            }
            Some(response) => match Pin::new(response.body_mut()).poll_frame(&mut cx) {
                Poll::Ready(Some(frame)) => {
                    let Ok(frame) = frame else {
                        // hyper does not wait for the end of a line that is wrong at its beginning.
                        assert_eq!(end, End::More, "{frame:?}");
                        return false;
                    };
                    // Trailers are not passed on.
                    frame.data_ref().into_iter().for_each(|data| theirs.extend_from_slice(data));
                }
                Poll::Ready(None) => {
                    is_over = true;
                    break;
                }
                Poll::Pending => {}
            },
        }
    }
    let response = response.expect("hyper reads a head");
    assert_eq!(response.status(), head.status);
    assert_eq!(response.version(), http::Version::HTTP_11);
    assert!(response.extensions().get::<hyper::ext::ReasonPhrase>().is_none());
    assert_same(head.fields, response.headers());
    assert_eq!((is_over, &theirs), (end == End::Over, &body));
    end == End::Over
}
