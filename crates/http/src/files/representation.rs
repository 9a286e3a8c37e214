//! A representation: one sequence of bytes that may be sent for a path, and the fields that
//! describe it.
//!
//! The fields of its response are made once. A full response has a copy of them, and every other
//! kind of response has the same fields less some.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    ETAG, LAST_MODIFIED, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use superpoll_http1::FieldLines;
use superpoll_http2::PreparedFields;

use super::condition::{Validators, has_conditions};
use super::pieces::{Piece, Pieces};
use super::range::{self, Wanted};
use super::version::OnDisk;
use crate::body::Body;
use crate::encoding::Coding;
use crate::head::{Fields, Head};
use crate::ready::Ready;
use crate::reply;

/// The location of the bytes.
#[derive(Debug)]
pub(super) enum Source {
    Memory(Bytes),
    Disk(OnDisk),
}

impl Source {
    pub(super) fn length(&self) -> u64 {
        match self {
            Source::Memory(bytes) => bytes.len() as u64,
            Source::Disk(file) => file.length(),
        }
    }
}

/// A source that parts of a body are cut from.
trait Cut {
    fn part(&self, part: Range<u64>) -> Piece;
    fn whole(self, length: u64) -> Body;
}

impl Cut for Bytes {
    fn part(&self, part: Range<u64>) -> Piece {
        // The part is in bounds, and bytes in memory are no longer than an address.
        Piece::Memory(self.slice(part.start as usize..part.end as usize))
    }

    fn whole(self, _: u64) -> Body {
        Body::from(self)
    }
}

impl Cut for Arc<File> {
    fn part(&self, part: Range<u64>) -> Piece {
        Piece::File(Arc::clone(self), part)
    }

    fn whole(self, length: u64) -> Body {
        Body::file(Pieces::new([Piece::File(self, 0..length)]))
    }
}

/// The parts of a representation.
pub(super) struct Parts<'a> {
    pub(super) source: Source,
    pub(super) kind: &'a HeaderValue,
    pub(super) coding: Option<Coding>,
    /// The inner part of its ETag.
    pub(super) tag: &'a str,
    /// Whether another representation with the same tag may differ in bytes, though not in content.
    /// Such a representation is not sent in parts.
    pub(super) is_weak: bool,
    pub(super) modified: Option<SystemTime>,
    /// Whether the path has representations in other codings.
    pub(super) varies: bool,
    pub(super) max_age: Option<&'a HeaderValue>,
}

/// One sequence of bytes that may be sent for a path.
#[derive(Debug)]
pub struct Representation {
    source: Source,
    validators: Validators,
    /// The fields of a full response.
    fields: HeaderMap,
    /// The same without the length, as HTTP/1.1 writes them.
    lines: FieldLines,
    /// The same with the length, as HTTP/2 writes them.
    prepared: OnceCell<PreparedFields>,
    /// Those of a response that says that the client has this version.
    lines_of_version: FieldLines,
    has_parts: bool,
}

/// The decision about a request for a representation.
enum Verdict {
    Whole,
    Parts(Vec<Range<u64>>),
    Refused(StatusCode),
}

/// Returns the fields that name a version, and those that it depends on.
fn of_version<'a>(
    fields: &'a HeaderMap,
) -> impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)> + use<'a> {
    static NAMES: [HeaderName; 5] =
        [ETAG, LAST_MODIFIED, VARY, CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS];
    NAMES.iter().filter_map(|name| Some((name, fields.get(name)?)))
}

/// Sets a field if its value is made of visible characters; leaves it out otherwise.
fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

impl Representation {
    /// Returns `None` if the tag has a character that no ETag has.
    pub(super) fn new(parts: Parts<'_>) -> Option<Representation> {
        let weak = if parts.is_weak { "W/" } else { "" };
        let tag = format!("{weak}\"{}\"", parts.tag);
        let (etag, modified) = (tag.parse().ok()?, parts.modified);
        let validators = Validators { etag, text: tag.clone(), modified };
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, parts.kind.clone());
        fields.insert(CONTENT_LENGTH, HeaderValue::from(parts.source.length()));
        if let Some(coding) = parts.coding {
            fields.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        }
        set(&mut fields, ETAG, &tag);
        if let Some(modified) = parts.modified {
            // A date in the future would be a lie by RFC 9110, section 8.8.2.1.
            let date = httpdate::fmt_http_date(modified.min(SystemTime::now()));
            set(&mut fields, LAST_MODIFIED, &date);
        }
        if !parts.is_weak {
            fields.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        }
        if parts.varies {
            fields.insert(VARY, HeaderValue::from_static("accept-encoding"));
        }
        if let Some(age) = parts.max_age {
            fields.insert(CACHE_CONTROL, age.clone());
        }
        fields.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        let (source, has_parts, lines) = (parts.source, !parts.is_weak, fields.iter().collect());
        let lines_of_version = of_version(&fields).collect();
        let prepared = OnceCell::new();
        Some(Representation {
            source,
            validators,
            fields,
            lines,
            prepared,
            lines_of_version,
            has_parts,
        })
    }

    /// Returns the fields of a full response without its length, as HTTP/1.1 writes them.
    pub fn lines(&self) -> &FieldLines {
        &self.lines
    }

    /// Returns the fields of a full response with its length, as HTTP/2 writes them.
    pub fn prepared(&self) -> &PreparedFields {
        self.prepared.get_or_init(|| {
            let mut prepared = PreparedFields::new();
            let fields = &self.fields;
            fields.iter().for_each(|(name, value)| prepared.push(name.into(), value.into()));
            prepared
        })
    }

    /// Returns the fields of a response that says that the client has this version.
    pub fn lines_of_version(&self) -> &FieldLines {
        &self.lines_of_version
    }

    /// Returns all bytes, if they are in memory.
    pub fn in_memory(&self) -> Option<&Bytes> {
        match &self.source {
            Source::Memory(bytes) => Some(bytes),
            Source::Disk(_) => None,
        }
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    /// Returns how many bytes of memory the representation takes.
    pub(super) fn bytes(&self) -> usize {
        match &self.source {
            Source::Memory(bytes) => bytes.len(),
            Source::Disk(_) => 0,
        }
    }

    /// Returns the number of bytes.
    pub fn length(&self) -> u64 {
        self.source.length()
    }

    /// Answers a GET or HEAD, if that needs no file to be opened.
    pub(super) fn answer_now(self: &Rc<Self>, head: Head<'_>) -> Option<Ready> {
        let is_here = head.is_head() || self.in_memory().is_some();
        Some(match self.verdict(head) {
            Verdict::Whole if is_here => Ready::File(self.clone()),
            Verdict::Parts(parts) => {
                let bytes = self.in_memory()?.clone();
                self.parts(parts, bytes).into()
            }
            Verdict::Whole => return None,
            Verdict::Refused(StatusCode::NOT_MODIFIED) => Ready::NotModified(self.clone()),
            Verdict::Refused(status) => self.refusal(status).into(),
        })
    }

    /// Answers a GET or HEAD; `None` if the file has been replaced.
    pub(super) async fn respond(self: &Rc<Self>, head: Head<'_>) -> Option<Response<Body>> {
        match (self.answer_now(head), &self.source) {
            (None, Source::Disk(file)) => {
                let file = file.open().await?;
                Some(match self.verdict(head) {
                    Verdict::Parts(parts) => self.parts(parts, file),
                    _ => self.with_body(file.whole(self.length())),
                })
            }
            (answer, _) => Some(answer?.into_response(head.is_head())),
        }
    }

    /// Decides about a GET or HEAD.
    fn verdict(&self, head: Head<'_>) -> Verdict {
        if !has_conditions(head.fields) {
            return Verdict::Whole;
        }
        if let Some(status) = self.validators.condition(head.fields) {
            return Verdict::Refused(status);
        }
        match if head.is_head() { Wanted::Whole } else { self.wanted(head.fields) } {
            Wanted::Whole => Verdict::Whole,
            Wanted::Parts(parts) => Verdict::Parts(parts),
            Wanted::Unsatisfiable => Verdict::Refused(StatusCode::RANGE_NOT_SATISFIABLE),
        }
    }

    /// Returns a full response, for which the bytes are in memory unless it is one to `HEAD`.
    pub(crate) fn whole(&self, is_head: bool) -> Response<Body> {
        let bytes = self.in_memory().filter(|bytes| !is_head && !bytes.is_empty());
        self.with_body(bytes.map_or_else(Body::empty, |bytes| Body::from(bytes.clone())))
    }

    fn with_body(&self, body: Body) -> Response<Body> {
        let mut response = Response::new(body);
        *response.headers_mut() = self.fields.clone();
        response
    }

    /// Returns the parts that are asked for: all, if If-Range names another version.
    fn wanted(&self, fields: Fields<'_>) -> Wanted {
        match fields.value("range").map(std::str::from_utf8) {
            Some(Ok(field)) if self.has_parts && self.validators.range_is_of_this(fields) => {
                range::wanted(field, self.length())
            }
            _ => Wanted::Whole,
        }
    }

    /// Returns a response without the bytes: 304, 412 or 416. It names the version that it refers
    /// to, and the fields that it depends on.
    pub(crate) fn refusal(&self, status: StatusCode) -> Response<Body> {
        let mut response = if status == StatusCode::NOT_MODIFIED {
            Response::new(Body::empty())
        } else {
            reply::status(status)
        };
        *response.status_mut() = status;
        let headers = response.headers_mut();
        for (name, value) in of_version(&self.fields) {
            headers.insert(name.clone(), value.clone());
        }
        if status != StatusCode::NOT_MODIFIED {
            headers.remove(CACHE_CONTROL);
        }
        if status == StatusCode::RANGE_NOT_SATISFIABLE {
            set(headers, CONTENT_RANGE, &format!("bytes */{}", self.length()));
        }
        response
    }

    fn parts(&self, mut parts: Vec<Range<u64>>, from: impl Cut) -> Response<Body> {
        let length = self.length();
        let mut fields = self.fields.clone();
        let content_range =
            |part: &Range<u64>| format!("bytes {}-{}/{length}", part.start, part.end - 1);
        let mut pieces = VecDeque::new();
        if parts.len() == 1 {
            let part = parts.remove(0);
            set(&mut fields, CONTENT_RANGE, &content_range(&part));
            pieces.push_back(from.part(part));
        } else {
            let kind = fields.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
            let boundary = boundary();
            for part in parts {
                let range = content_range(&part);
                let text = format!(
                    "\r\n--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: {range}\r\n\r\n"
                );
                pieces.push_back(Piece::Memory(text.into()));
                pieces.push_back(from.part(part));
            }
            pieces.push_back(Piece::Memory(format!("\r\n--{boundary}--\r\n").into()));
            let kind = format!("multipart/byteranges; boundary={boundary}");
            set(&mut fields, CONTENT_TYPE, &kind);
        }
        let sum: u64 = pieces.iter().map(Piece::length).sum();
        fields.insert(CONTENT_LENGTH, HeaderValue::from(sum));
        let body = match pieces.make_contiguous() {
            [Piece::Memory(bytes)] => Body::from(std::mem::take(bytes)),
            _ => Body::file(Pieces::new(pieces)),
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        *response.headers_mut() = fields;
        response
    }
}

/// Returns a boundary that no author of the file could know: the standard library's hasher has a
/// random key.
fn boundary() -> String {
    use std::hash::{BuildHasher, RandomState};

    format!("{:016x}{:016x}", RandomState::new().hash_one(0), RandomState::new().hash_one(1))
}
