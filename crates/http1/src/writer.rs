//! Writing heads and bodies.
//!
//! ```text
//!   Writer::request  \                                   / piece ... piece, end
//!                     > field ... field, body -> BodyWriter
//!   Writer::response /         \                         \ dropped: the connection closes
//!                               interim
//! ```
//!
//! The fields of the framing and the host are the writer's own: whatever else a caller copies from
//! a head that was read, there is one host, and the message ends where the body's writer ends it.

use http::StatusCode;

use crate::field::{Field, FieldName, FieldValue};
use crate::head::{After, Framing, Version};
use crate::lines::{FieldLines, line};
use crate::request::Method;
use crate::response::Asked;
use crate::target::{Form, Target};

/// A writer of one head.
#[derive(Debug)]
#[must_use = "a head without its end is no message"]
pub struct Writer<'v> {
    to: &'v mut Vec<u8>,
    kind: Kind,
}

/// The kind of the message, as far as its framing depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Request,
    Response {
        /// The version of the client.
        version: Version,
        body: MayHaveBody,
    },
}

/// Whether a response may have a body (RFC 9112, section 6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MayHaveBody {
    Yes,
    /// It has none, and says how long the body of another one would be.
    LengthOnly,
    /// It has none, and may not say a length either.
    No,
}

impl<'v> Writer<'v> {
    /// Begins a request of HTTP/1.1 to a host, which each such request has to name (RFC 9112,
    /// section 3.2).
    #[inline]
    pub fn request(
        to: &'v mut Vec<u8>,
        method: Method<'_>,
        target: Target<'_>,
        host: FieldValue<'_>,
    ) -> Writer<'v> {
        to.extend_from_slice(method.as_str().as_bytes());
        to.push(b' ');
        // The path may have lost its beginning to a route.
        if target.form() == Form::Origin && !target.as_str().starts_with('/') {
            to.push(b'/');
        }
        to.extend_from_slice(target.as_str().as_bytes());
        to.extend_from_slice(b" HTTP/1.1\r\nhost: ");
        to.extend_from_slice(host.as_bytes());
        to.extend_from_slice(b"\r\n");
        Writer { to, kind: Kind::Request }
    }

    /// Begins a response to a client of a version. The reason phrase is that of the standard unless
    /// another one is given.
    pub fn response(
        to: &'v mut Vec<u8>,
        version: Version,
        status: StatusCode,
        reason: Option<FieldValue<'_>>,
        asked: Asked,
    ) -> Writer<'v> {
        let body = match status {
            _ if status.is_informational() || status == StatusCode::NO_CONTENT => MayHaveBody::No,
            _ if asked.is_connect && status.is_success() => MayHaveBody::No,
            _ if asked.is_head || status == StatusCode::NOT_MODIFIED => MayHaveBody::LengthOnly,
            _ => MayHaveBody::Yes,
        };
        if (version, status, reason) == (Version::Http11, StatusCode::OK, None) {
            to.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        } else {
            to.extend_from_slice(version.as_bytes());
            to.push(b' ');
            to.extend_from_slice(status.as_str().as_bytes());
            to.push(b' ');
            let standard = status.canonical_reason().unwrap_or_default().as_bytes();
            to.extend_from_slice(reason.map_or(standard, FieldValue::as_bytes));
            to.extend_from_slice(b"\r\n");
        }
        Writer { to, kind: Kind::Response { version, body } }
    }

    /// Writes a field. The writer's own fields are left out: `Content-Length` and
    /// `Transfer-Encoding`, which [`body`](Writer::body) writes, and `Host` in a request.
    #[inline]
    pub fn field(&mut self, name: FieldName<'_>, value: FieldValue<'_>) {
        let bytes = name.as_bytes();
        // Few names have one of these lengths.
        let is_own = match bytes.len() {
            4 => self.kind == Kind::Request && bytes.eq_ignore_ascii_case(b"host"),
            14 => bytes.eq_ignore_ascii_case(b"content-length"),
            17 => bytes.eq_ignore_ascii_case(b"transfer-encoding"),
            _ => false,
        };
        if !is_own {
            line(name, value, self.to);
        }
    }

    /// Writes fields that were formatted before.
    #[inline]
    pub fn lines(&mut self, lines: &FieldLines) {
        self.to.extend_from_slice(lines.as_bytes());
    }

    /// Writes a field whose value is the elements of a list, joined by a separator.
    pub fn joined<'e>(
        &mut self,
        name: FieldName<'_>,
        elements: impl IntoIterator<Item = FieldValue<'e>>,
        separator: FieldValue<'_>,
    ) {
        let mut is_first = true;
        for element in elements {
            if std::mem::take(&mut is_first) {
                self.to.extend_from_slice(name.as_bytes());
                self.to.extend_from_slice(b": ");
            } else {
                self.to.extend_from_slice(separator.as_bytes());
            }
            self.to.extend_from_slice(element.as_bytes());
        }
        if !is_first {
            self.to.extend_from_slice(b"\r\n");
        }
    }

    /// Ends the head of an interim response, or of one that changes protocols. A client of HTTP/1.0
    /// gets no interim response (RFC 9110, section 15.2); that is for the caller to see to.
    pub fn interim(self) {
        self.to.extend_from_slice(b"\r\n");
    }

    /// Ends the head, and returns the writer of its body.
    ///
    /// A body of unknown length is written in chunks, or until the connection closes to a client of
    /// HTTP/1.0. A response that has [no body](Framing::None) but could have one says
    /// `content-length: 0`. A response to `HEAD` and a 304 say a known length; the data of these,
    /// and of all others that may have no body, is dropped.
    #[inline]
    pub fn body(self, framing: Framing, after: After) -> BodyWriter {
        let Writer { to, kind } = self;
        let framing = match (kind, framing) {
            (Kind::Request, Framing::UntilClose) => Framing::Chunked,
            (Kind::Response { version: Version::Http10, .. }, Framing::Chunked) => {
                Framing::UntilClose
            }
            (Kind::Response { body: MayHaveBody::Yes, .. }, Framing::None) => Framing::Length(0),
            (_, framing) => framing,
        };
        let body = match kind {
            Kind::Request => MayHaveBody::Yes,
            Kind::Response { body, .. } => body,
        };
        let after = match (framing, body) {
            (Framing::UntilClose, MayHaveBody::Yes) => After::Closes,
            _ => after,
        };
        match (framing, body) {
            (Framing::Length(length), MayHaveBody::Yes | MayHaveBody::LengthOnly) => {
                to.extend_from_slice(b"content-length: ");
                digits(length, 10, to);
                to.extend_from_slice(b"\r\n");
            }
            (Framing::Chunked, MayHaveBody::Yes) => {
                to.extend_from_slice(b"transfer-encoding: chunked\r\n");
            }
            _ => {}
        }
        match (kind, after) {
            (Kind::Response { version: Version::Http10, .. }, After::Stays) => {
                to.extend_from_slice(b"connection: keep-alive\r\n");
            }
            (Kind::Response { version: Version::Http10, .. }, After::Closes)
            | (_, After::Stays) => {}
            (_, After::Closes) => to.extend_from_slice(b"connection: close\r\n"),
        }
        to.extend_from_slice(b"\r\n");
        let framing = if body == MayHaveBody::Yes { framing } else { Framing::None };
        BodyWriter { framing, after, is_in_chunk: false }
    }
}

/// Whether a field may not follow a body, since it is about the end, the routing or the meaning of
/// the message (RFC 9110, section 6.5.1).
fn is_forbidden_trailer(name: &[u8]) -> bool {
    const FORBIDDEN: [&[u8]; 14] = [
        b"authorization",
        b"cache-control",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"content-range",
        b"content-type",
        b"expect",
        b"host",
        b"max-forwards",
        b"set-cookie",
        b"te",
        b"trailer",
        b"transfer-encoding",
    ];
    FORBIDDEN.iter().any(|forbidden| name.eq_ignore_ascii_case(forbidden))
}

/// Appends a chunk of the data that a function appends. Without data this is the end of the body.
pub fn chunk(to: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = to.len();
    write(to);
    let (data, mut size) = ((to.len() - start) as u64, Vec::new());
    digits(data, 16, &mut size);
    size.extend_from_slice(b"\r\n");
    to.extend_from_slice(b"\r\n");
    to.splice(start..start, size);
}

/// Appends a number.
fn digits(mut number: u64, base: u64, to: &mut Vec<u8>) {
    // 2^64 has 20 decimal digits.
    let mut room = [0; 20];
    let mut start = room.len();
    loop {
        start -= 1;
        room[start] = b"0123456789abcdef"[(number % base) as usize];
        number /= base;
        if number == 0 {
            break;
        }
    }
    to.extend_from_slice(&room[start..]);
}

/// More data than the length of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong;

impl std::fmt::Display for TooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the body is longer than its length")
    }
}

impl std::error::Error for TooLong {}

/// A writer of one body. If it is dropped before [`end`](BodyWriter::end), the message is
/// incomplete, and the caller closes the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "only the end of the body tells whether the connection stays"]
pub struct BodyWriter {
    framing: Framing,
    after: After,
    /// The line end after a chunk's data is still to be written.
    is_in_chunk: bool,
}

impl BodyWriter {
    /// Returns a writer of a body with this length, whose head was written otherwise.
    pub const fn of_length(length: u64) -> BodyWriter {
        BodyWriter { framing: Framing::Length(length), after: After::Stays, is_in_chunk: false }
    }

    /// Returns a writer of a body whose end is told otherwise, and whose head was written so.
    pub const fn of_unknown() -> BodyWriter {
        BodyWriter { framing: Framing::UntilClose, after: After::Stays, is_in_chunk: false }
    }

    /// Returns how much data may still be written; `None` if any amount may.
    #[must_use]
    pub const fn left(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(left) => Some(left),
            Framing::None => Some(0),
            Framing::Chunked | Framing::UntilClose => None,
        }
    }

    /// Whether data is dropped, as the message has no body.
    #[must_use]
    pub const fn drops_data(&self) -> bool {
        matches!(self.framing, Framing::None)
    }

    /// Returns the connection's fate if the body ends here.
    #[must_use]
    pub const fn after(&self) -> After {
        match self.framing {
            Framing::Length(left) if left > 0 => After::Closes,
            _ => self.after,
        }
    }

    /// Appends a piece of data.
    ///
    /// # Errors
    ///
    /// If the data exceeds the length. Then nothing is written.
    #[inline]
    pub fn piece(&mut self, data: &[u8], to: &mut Vec<u8>) -> Result<(), TooLong> {
        if data.is_empty() || self.drops_data() {
            return Ok(());
        }
        self.begin_piece(data.len() as u64, to)?;
        to.extend_from_slice(data);
        to.extend_from_slice(self.end_piece());
        Ok(())
    }

    /// Appends the beginning of a piece with so many bytes of data, which the caller sends by
    /// itself, from a file for example. [`end_piece`](BodyWriter::end_piece) follows.
    ///
    /// # Errors
    ///
    /// If the data exceeds the length, or is [dropped](BodyWriter::drops_data). Then nothing is
    /// written.
    #[inline]
    pub fn begin_piece(&mut self, length: u64, to: &mut Vec<u8>) -> Result<(), TooLong> {
        to.extend_from_slice(self.end_piece());
        match &mut self.framing {
            Framing::Length(left) => *left = left.checked_sub(length).ok_or(TooLong)?,
            // A chunk without data would end the body.
            Framing::Chunked if length > 0 => {
                digits(length, 16, to);
                to.extend_from_slice(b"\r\n");
                self.is_in_chunk = true;
            }
            Framing::None if length > 0 => return Err(TooLong),
            Framing::None | Framing::Chunked | Framing::UntilClose => {}
        }
        Ok(())
    }

    /// Returns the end of a piece, which the caller sends after its data. Without this call the
    /// next piece or the end of the body has it.
    #[must_use]
    #[inline]
    pub fn end_piece(&mut self) -> &'static [u8] {
        if std::mem::take(&mut self.is_in_chunk) { b"\r\n" } else { b"" }
    }

    /// Ends the body. Returns the connection's fate, which is to close if the body is shorter than
    /// its length.
    pub fn end(self, to: &mut Vec<u8>) -> After {
        self.end_with([], to)
    }

    /// Ends the body with trailers, which the recipient has asked for (RFC 9110, section 6.5.1).
    ///
    /// They are left out if the body is not in chunks. Fields about the framing, the routing or the
    /// meaning of the message are left out always.
    pub fn end_with<'t>(
        mut self,
        trailers: impl IntoIterator<Item = Field<'t>>,
        to: &mut Vec<u8>,
    ) -> After {
        to.extend_from_slice(self.end_piece());
        if self.framing == Framing::Chunked {
            to.extend_from_slice(b"0\r\n");
            for Field { name, value } in trailers {
                if !is_forbidden_trailer(name.as_bytes()) {
                    line(name, value, to);
                }
            }
            to.extend_from_slice(b"\r\n");
        }
        self.after()
    }
}
