//! Reading the head of a request.

use std::fmt;
use std::ops::Range;

use httparse::{Error, Status};
use memchr::memchr;

use crate::authority::Authority;
use crate::facts::Facts;
use crate::field::{FieldValue, Fields, is_token};
use crate::head::{
    After, Framing, Limits, MOST_FIELDS, Named, Room, Version, as_http11, named_version,
};
use crate::refusal::Refusal;
use crate::target::Target;

/// The method of a request (RFC 9110, section 9). Unlike `http::Method` it borrows unknown names,
/// so that no request makes it allocate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Method<'b> {
    /// `GET`.
    Get,
    /// `HEAD`.
    Head,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `PATCH`.
    Patch,
    /// `DELETE`.
    Delete,
    /// `OPTIONS`.
    Options,
    /// `CONNECT`.
    Connect,
    /// `TRACE`.
    Trace,
    /// Another one.
    Other(OtherMethod<'b>),
}

/// The name of a method that is none of those of RFC 9110 or RFC 5789: a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OtherMethod<'b>(&'b str);

impl<'b> Method<'b> {
    /// Returns the method of a name, in which case counts; `None` if the name is not a token.
    #[must_use]
    pub fn new(name: &'b str) -> Option<Method<'b>> {
        is_token(name.as_bytes()).then(|| Method::from_token(name))
    }

    fn from_token(name: &'b str) -> Method<'b> {
        match name {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "PATCH" => Method::Patch,
            "DELETE" => Method::Delete,
            "OPTIONS" => Method::Options,
            "CONNECT" => Method::Connect,
            "TRACE" => Method::Trace,
            other => Method::Other(OtherMethod(other)),
        }
    }

    /// Returns the name of the method.
    #[must_use]
    pub const fn as_str(self) -> &'b str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
            Method::Connect => "CONNECT",
            Method::Trace => "TRACE",
            Method::Other(OtherMethod(name)) => name,
        }
    }
}

impl From<Method<'_>> for http::Method {
    fn from(method: Method<'_>) -> http::Method {
        match method {
            Method::Get => http::Method::GET,
            Method::Head => http::Method::HEAD,
            Method::Post => http::Method::POST,
            // Both take all tokens.
            method => http::Method::from_bytes(method.as_str().as_bytes()).unwrap_or_default(),
        }
    }
}

impl fmt::Display for Method<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The things that a client wants in addition to a response.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Wants<'b> {
    /// A `100 Continue` before it sends the body (RFC 9110, section 10.1.1).
    pub continues: bool,
    /// Another protocol: the value of the only `Upgrade`, which `Connection` names (RFC 9110,
    /// section 7.8).
    pub upgrade: Option<FieldValue<'b>>,
    /// The fields that follow the response's body (RFC 9110, section 10.1.4).
    pub trailers: bool,
}

/// The head of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'b> {
    /// The method.
    pub method: Method<'b>,
    /// The target.
    pub target: Target<'b>,
    /// The version.
    pub version: Version,
    /// The host with its port: the target's if it has one (RFC 9112, section 3.2.2), or that of
    /// `Host`. Only a request of HTTP/1.0 has none.
    pub host: Option<Authority<'b>>,
    /// All fields in their order, `Host` and those of the framing among them.
    pub fields: Fields<'b>,
    /// The extent of the body.
    pub framing: Framing,
    /// Whether the client wants another response on the connection.
    pub after: After,
    /// Whether `Connection` has other options than `close` and `keep-alive`: names of fields that
    /// are not passed on (RFC 9110, section 7.6.1).
    pub names_fields: bool,
    /// The things that the client wants in addition.
    pub wants: Wants<'b>,
    /// The bytes of the head, to the end of its empty line.
    pub len: usize,
}

/// Reads the head of a request at the beginning of some bytes; `None` if more bytes are needed.
///
/// Empty lines before a request belong to its head (RFC 9112, section 2.2). The outcome does not
/// depend on the pieces in which the bytes arrive.
///
/// # Errors
///
/// The reason for which the request is refused. The caller answers with its
/// status, and closes the connection.
pub fn request<'b>(
    bytes: &'b [u8],
    limits: &Limits,
    room: &'b mut Room<'b>,
) -> Result<Option<RequestHead<'b>>, Refusal> {
    // No byte after the limit counts, so that more of them at once make no difference.
    let view = &bytes[..bytes.len().min(limits.head)];
    let Room { headers, spare, scratch } = room;
    scratch.clear();
    let most = limits.fields.min(MOST_FIELDS);
    let mut parsed = httparse::Request::new(&mut []);
    let error = match parsed.parse_with_uninit_headers(view, &mut headers[..most]) {
        Ok(Status::Complete(len)) => {
            scratch.extend_from_slice(&view[..len]);
            return finish(parsed, &view[..len], scratch, limits);
        }
        Ok(Status::Partial) => return partial(view, limits),
        Err(error) => error,
    };
    if error != Error::Version {
        return Err(refusal(error, parsed.method.is_some()));
    }
    let minor = match named_version(view, line_parts(view).1.end + 1) {
        Named::Malformed => return Err(Refusal::Version),
        Named::Unsupported => return Err(Refusal::VersionUnsupported),
        Named::Partial => return partial(view, limits),
        Named::Newer(minor) => minor,
    };
    let (view, lower) = as_http11(view, minor, scratch);
    let mut parsed = httparse::Request::new(&mut []);
    match parsed.parse_with_uninit_headers(view, &mut spare[..most]) {
        Ok(Status::Complete(len)) => finish(parsed, &view[..len], &mut lower[..len], limits),
        Ok(Status::Partial) => partial(view, limits),
        Err(error) => Err(refusal(error, true)),
    }
}

/// Returns the places of the method and the target in a line that may be partial.
fn line_parts(view: &[u8]) -> (Range<usize>, Range<usize>) {
    let start = view.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(view.len());
    let word = |start: usize| {
        let rest = view.get(start..).unwrap_or_default();
        start..start + memchr(b' ', rest).unwrap_or(rest.len())
    };
    let method = word(start);
    let target = word(method.end + 1);
    (method, target)
}

/// Waits for the rest of a head, unless it is too long already.
fn partial<T>(view: &[u8], limits: &Limits) -> Result<Option<T>, Refusal> {
    if view.len() < limits.head {
        return Ok(None);
    }
    Err(match line_parts(view).1.len() > limits.target {
        true => Refusal::TargetTooLong,
        false => Refusal::HeadTooLarge,
    })
}

/// Returns the reason for which httparse refuses a request.
fn refusal(error: Error, has_method: bool) -> Refusal {
    match error {
        Error::Token if has_method => Refusal::Target,
        Error::Token => Refusal::Method,
        Error::Version => Refusal::Version,
        Error::NewLine | Error::Status => Refusal::LineEnd,
        Error::HeaderName => Refusal::FieldName,
        Error::HeaderValue => Refusal::FieldValue,
        Error::TooManyHeaders => Refusal::TooManyFields,
    }
}

/// Judges a head that httparse has read.
fn finish<'b>(
    parsed: httparse::Request<'b, 'b>,
    head: &'b [u8],
    lower: &'b mut [u8],
    limits: &Limits,
) -> Result<Option<RequestHead<'b>>, Refusal> {
    let (name, text) = (parsed.method.unwrap_or_default(), parsed.path.unwrap_or_default());
    let version = Version::from_minor(parsed.version);
    let method = Method::from_token(name);
    if text.len() > limits.target {
        return Err(Refusal::TargetTooLong);
    }
    let target = Target::from_visible(method, text)?;
    let fields = Fields::new(head, parsed.headers, lower);
    let mut facts = Facts::default();
    for field in fields.iter() {
        facts.add(field)?;
    }
    if facts.has_more_hosts {
        return Err(Refusal::HostRepeated);
    }
    let host = match facts.host {
        None if version == Version::Http11 => return Err(Refusal::HostMissing),
        None => None,
        Some(host) => Some(Authority::new(host.as_bytes()).ok_or(Refusal::HostInvalid)?),
    };
    let framing = match (facts.is_chunked(version)?, facts.length) {
        // Servers in front or behind may go by the other one.
        (true, Some(_)) => return Err(Refusal::LengthAndCoding),
        (true, None) => Framing::Chunked,
        (false, Some(length)) => Framing::Length(length),
        (false, None) => Framing::None,
    };
    if facts.has_other_expectation {
        return Err(Refusal::Expectation);
    }
    // HTTP/1.0 knows neither interim responses nor other protocols (RFC 9110, sections 7.8 and
    // 10.1.1).
    let is_new = version == Version::Http11;
    let wants = Wants {
        continues: facts.continues && is_new,
        upgrade: facts.upgrade().filter(|_| is_new),
        trailers: facts.takes_trailers && is_new,
    };
    Ok(Some(RequestHead {
        method,
        target,
        version,
        host: target.authority().or(host),
        fields,
        framing,
        after: facts.after(version),
        names_fields: facts.names_fields,
        wants,
        len: head.len(),
    }))
}
