//! Answers that are there when the head of a request was read: files in memory, and statuses.
//!
//! They are made into responses only where a handler needs one. Otherwise their fields are written
//! as they are: by [`pass_on`], and by [`begin_stream`] for HTTP/2.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Response, StatusCode};
use superpoll_http1::{
    After, Asked, BodyWriter, FieldLines, Framing, Version as Http1Version, Writer,
};
use superpoll_http2::{Connection, StreamKey};
use tokio::io::AsyncWrite;

use crate::answers::{Additions, lines};
use crate::body::Body;
use crate::buffer::WriteBuffer;
use crate::files::Representation;
use crate::progress::{Passed, Progress};
use crate::reply;

/// Bytes up to so many go with their head in one record of TLS, which has room for 16 KiB.
const SHORT: usize = 15 << 10;

/// An answer that needs no waiting.
pub enum Ready {
    /// A status with its text.
    Status(StatusCode),
    /// All of a file, which is in memory unless the request was `HEAD`.
    File(Rc<Representation>),
    /// The client has this version of a file.
    NotModified(Rc<Representation>),
    /// Another response.
    Response(Box<Response<Body>>),
}

impl Ready {
    /// Whether it can be written as it is.
    #[must_use]
    pub fn is_plain(&self, additions: &Additions) -> bool {
        match self {
            Ready::Response(_) => false,
            Ready::Status(_) => !additions.has_pages(),
            Ready::File(_) | Ready::NotModified(_) => true,
        }
    }

    /// Returns the response.
    #[must_use]
    pub fn into_response(self, is_head: bool) -> Response<Body> {
        match self {
            Ready::Status(status) => reply::status(status),
            Ready::File(file) => file.whole(is_head),
            Ready::NotModified(file) => file.refusal(StatusCode::NOT_MODIFIED),
            Ready::Response(response) => *response,
        }
    }
}

impl From<Response<Body>> for Ready {
    fn from(response: Response<Body>) -> Ready {
        Ready::Response(Box::new(response))
    }
}

impl From<StatusCode> for Ready {
    fn from(status: StatusCode) -> Ready {
        Ready::Status(status)
    }
}

/// Gives an answer that is there: the lines of its fields, and its bytes unless the request was
/// `HEAD`.
pub async fn pass_on(
    ready: &Ready,
    (version, asked): (Http1Version, Asked),
    additions: &Additions,
    progress: &Progress,
    client: &mut (impl AsyncWrite + Unpin),
) -> Passed {
    let mut out = WriteBuffer::default();
    let is_last = progress.is_last.get();
    progress.says_close.set(is_last);
    let shape = (version, asked, is_last);
    let text;
    let (status, body, bytes) = match ready {
        Ready::File(file) => {
            let lines = (StatusCode::OK, file.lines(), file.length());
            let body = head(lines, additions, shape, &mut out.0);
            (StatusCode::OK, body, file.in_memory().map_or(&[][..], |bytes| bytes))
        }
        Ready::NotModified(file) => {
            let lines = (StatusCode::NOT_MODIFIED, file.lines_of_version(), 0);
            (lines.0, head(lines, additions, shape, &mut out.0), &[][..])
        }
        Ready::Status(status) => {
            text = reply::text_of(*status);
            let length = text.len() as u64;
            let body = reply::with_lines(|lines| {
                head((*status, lines, length), additions, shape, &mut out.0)
            });
            (*status, body, text.as_bytes())
        }
        Ready::Response(_) => return Passed::Cut,
    };
    progress.status.set(status.as_u16());
    let (length, mut bytes) = (out.0.len(), if body.drops_data() { &[] } else { bytes });
    // An encrypted client gets a record for each write.
    if !client.is_write_vectored() && bytes.len() <= SHORT {
        out.0.extend_from_slice(std::mem::take(&mut bytes));
    }
    let (head, mut at) = (&out.0, 0);
    let written = poll_fn(|cx| {
        while at < head.len() + bytes.len() {
            // The transport joins short pieces, and sends a file region without a copy.
            let parts = [
                IoSlice::new(head.get(at..).unwrap_or_default()),
                IoSlice::new(&bytes[at.saturating_sub(head.len())..]),
            ];
            let parts = if at < head.len() { &parts[..] } else { &parts[1..] };
            match ready!(Pin::new(&mut *client).poll_write_vectored(cx, parts))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => at += count,
            }
            progress.body.set(at.saturating_sub(length) as u64);
        }
        Pin::new(&mut *client).poll_flush(cx)
    })
    .await;
    match written {
        Ok(()) => Passed::Whole,
        Err(_) => Passed::Cut,
    }
}

/// Begins such an answer on a stream of HTTP/2. Returns its status and its bytes, which the caller
/// writes; `None` if it cannot be written. The response is over if there are none.
pub fn begin_stream(
    ready: &Ready,
    additions: &Additions,
    connection: &mut Connection,
    stream: StreamKey,
    to: &mut Vec<u8>,
) -> Option<(StatusCode, Bytes)> {
    let (status, bytes) = match ready {
        Ready::File(file) => (StatusCode::OK, file.in_memory().cloned().unwrap_or_default()),
        Ready::NotModified(_) => (StatusCode::NOT_MODIFIED, Bytes::new()),
        Ready::Status(status) => (*status, reply::text_of(*status).into()),
        Ready::Response(_) => return None,
    };
    let length = bytes.len();
    let bytes = if additions.is_head { Bytes::new() } else { bytes };
    let mut writer = connection.respond(stream, status, bytes.is_empty(), to).ok()?;
    let keeps_all = additions.rules.is_none();
    let keeps = |name: &[u8]| additions.keeps(name);
    match ready {
        Ready::File(file) if keeps_all => writer.prepared(file.prepared()),
        Ready::File(file) => {
            lines::kept(file.lines(), false, keeps, &mut writer);
            writer.field((&CONTENT_LENGTH).into(), (&HeaderValue::from(file.length())).into());
        }
        Ready::NotModified(file) => {
            lines::kept(file.lines_of_version(), keeps_all, keeps, &mut writer);
        }
        _ => {
            reply::with_lines(|fields| lines::kept(fields, keeps_all, keeps, &mut writer));
            writer.field((&CONTENT_LENGTH).into(), (&HeaderValue::from(length)).into());
        }
    }
    lines::add(additions, additions.hsts.as_ref(), false, &mut writer);
    writer.finish();
    Some((status, bytes))
}

/// Appends the head of a response with so many bytes, with these fields.
fn head(
    (status, fields, length): (StatusCode, &FieldLines, u64),
    additions: &Additions,
    (version, asked, is_last): (Http1Version, Asked, bool),
    to: &mut Vec<u8>,
) -> BodyWriter {
    let mut writer = Writer::response(to, version, status, None, asked);
    lines::kept(fields, additions.rules.is_none(), |name| additions.keeps(name), &mut writer);
    lines::add(additions, additions.hsts.as_ref(), false, &mut writer);
    let framing = match status {
        // It need not be told.
        StatusCode::NOT_MODIFIED => Framing::None,
        _ => Framing::Length(length),
    };
    writer.body(framing, if is_last { After::Closes } else { After::Stays })
}
