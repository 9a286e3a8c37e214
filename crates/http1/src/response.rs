//! Reading the head of a response.

use http::StatusCode;
use httparse::{Error, ParserConfig, Status};

use crate::facts::Facts;
use crate::field::{FieldValue, Fields};
use crate::head::{
    After, Framing, Limits, MOST_FIELDS, Named, Room, Version, as_http11, named_version,
};
use crate::refusal::Refusal;

/// The facts of a request that its response is read and written by.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Asked {
    /// The method was `HEAD`: the response has no body.
    pub is_head: bool,
    /// The method was `CONNECT`: a successful response begins a tunnel.
    pub is_connect: bool,
    /// The request had an `Upgrade`: the response may change protocols.
    pub has_upgrade: bool,
}

/// The head of a response.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'b> {
    /// The status.
    pub status: StatusCode,
    /// The reason phrase; empty if it is missing or not ASCII.
    pub reason: FieldValue<'b>,
    /// The version.
    pub version: Version,
    /// All fields in their order, those of the framing among them.
    pub fields: Fields<'b>,
    /// The extent of the body.
    pub framing: Framing,
    /// The value of `Content-Length`, which a response without a body may have as well (RFC 9110,
    /// section 8.6).
    pub length: Option<u64>,
    /// Whether another request may be sent on the connection.
    pub after: After,
    /// Whether `Connection` has other options than `close` and `keep-alive`: names of fields that
    /// are not passed on (RFC 9110, section 7.6.1).
    pub names_fields: bool,
    /// The bytes of the head, to the end of its empty line.
    pub len: usize,
}

/// The kind of a response. They are told apart by the type, so that no interim response is taken
/// for the final one.
#[derive(Clone, Copy, Debug)]
pub enum Response<'b> {
    /// Another response to the same request follows (RFC 9110, section 15.2).
    Interim(ResponseHead<'b>),
    /// All further bytes are those of another protocol, or of a tunnel (RFC 9110, sections 7.8 and
    /// 9.3.6).
    Switches(ResponseHead<'b>),
    /// The answer to the request, with its body.
    Final(ResponseHead<'b>),
}

impl<'b> Response<'b> {
    /// Returns the head, whatever the kind.
    #[must_use]
    pub const fn head(&self) -> &ResponseHead<'b> {
        match self {
            Response::Interim(head) | Response::Switches(head) | Response::Final(head) => head,
        }
    }
}

/// Reads the head of a response at the beginning of some bytes; `None` if more bytes are needed.
///
/// The outcome does not depend on the pieces in which the bytes arrive.
///
/// # Errors
///
/// The reason for which the response is refused. The connection cannot be used any more.
pub fn response<'b>(
    bytes: &'b [u8],
    asked: Asked,
    limits: &Limits,
    room: &'b mut Room<'b>,
) -> Result<Option<Response<'b>>, Refusal> {
    let view = &bytes[..bytes.len().min(limits.head)];
    // Empty lines are tolerated before requests only (RFC 9112, section 2.2). Before a response
    // they are the rest of something else.
    if view.first().is_some_and(|first| *first != b'H') {
        return Err(Refusal::StatusLine);
    }
    let Room { headers, spare, scratch } = room;
    scratch.clear();
    let most = limits.fields.min(MOST_FIELDS);
    let mut config = ParserConfig::default();
    // A proxy removes these blanks (RFC 9112, section 5.1).
    config.allow_spaces_after_header_name_in_responses(true);
    let mut parsed = httparse::Response::new(&mut []);
    let headers = &mut headers[..most];
    let error = match config.parse_response_with_uninit_headers(&mut parsed, view, headers) {
        Ok(Status::Complete(len)) => {
            scratch.extend_from_slice(&view[..len]);
            return finish(parsed, &view[..len], scratch, asked);
        }
        Ok(Status::Partial) => return partial(view, limits),
        Err(error) => error,
    };
    if error != Error::Version {
        return Err(refusal(error));
    }
    let minor = match named_version(view, 0) {
        Named::Malformed => return Err(Refusal::StatusLine),
        Named::Unsupported => return Err(Refusal::VersionUnsupported),
        Named::Partial => return partial(view, limits),
        Named::Newer(minor) => minor,
    };
    let (view, lower) = as_http11(view, minor, scratch);
    let mut parsed = httparse::Response::new(&mut []);
    let headers = &mut spare[..most];
    match config.parse_response_with_uninit_headers(&mut parsed, view, headers) {
        Ok(Status::Complete(len)) => finish(parsed, &view[..len], &mut lower[..len], asked),
        Ok(Status::Partial) => partial(view, limits),
        Err(error) => Err(refusal(error)),
    }
}

fn partial<T>(view: &[u8], limits: &Limits) -> Result<Option<T>, Refusal> {
    if view.len() < limits.head { Ok(None) } else { Err(Refusal::HeadTooLarge) }
}

/// Returns the reason for which httparse refuses a response.
fn refusal(error: Error) -> Refusal {
    match error {
        Error::Token | Error::Version | Error::Status => Refusal::StatusLine,
        Error::NewLine => Refusal::LineEnd,
        Error::HeaderName => Refusal::FieldName,
        Error::HeaderValue => Refusal::FieldValue,
        Error::TooManyHeaders => Refusal::TooManyFields,
    }
}

/// Judges a head that httparse has read.
fn finish<'b>(
    parsed: httparse::Response<'b, 'b>,
    head: &'b [u8],
    lower: &'b mut [u8],
    asked: Asked,
) -> Result<Option<Response<'b>>, Refusal> {
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or(Refusal::StatusLine)?;
    let version = Version::from_minor(parsed.version);
    let fields = Fields::new(head, parsed.headers, lower);
    let mut facts = Facts::default();
    for field in fields.iter() {
        facts.add(field)?;
    }
    let is_chunked = facts.is_chunked(version)?;
    let has_body_sign = is_chunked || facts.length.is_some_and(|length| length > 0);
    let mut head = ResponseHead {
        status,
        reason: FieldValue::from_checked(parsed.reason.unwrap_or_default().as_bytes()),
        version,
        fields,
        framing: Framing::None,
        length: facts.length,
        after: facts.after(version),
        names_fields: facts.names_fields,
        len: head.len(),
    };
    if status == StatusCode::SWITCHING_PROTOCOLS {
        head.after = After::Closes;
        return match asked.has_upgrade {
            true => Ok(Some(Response::Switches(head))),
            false => Err(Refusal::UpgradeUnasked),
        };
    }
    if status.is_informational() {
        // A reader that believes the length would take the final response for a body.
        return match has_body_sign {
            true => Err(Refusal::InterimBody),
            false => Ok(Some(Response::Interim(head))),
        };
    }
    if asked.is_connect && status.is_success() {
        head.after = After::Closes;
        return Ok(Some(Response::Switches(head)));
    }
    head.framing = match (is_chunked, facts.length) {
        _ if asked.is_head || status == StatusCode::NOT_MODIFIED => Framing::None,
        _ if status == StatusCode::NO_CONTENT => {
            if has_body_sign {
                head.after = After::Closes;
            }
            Framing::None
        }
        (true, _) => Framing::Chunked,
        (false, Some(length)) => Framing::Length(length),
        (false, None) => Framing::UntilClose,
    };
    // The server may mean either of the two, so no other response is read after this one (RFC
    // 9112, section 6.3).
    if head.framing == Framing::UntilClose || (is_chunked && facts.length.is_some()) {
        head.after = After::Closes;
    }
    Ok(Some(Response::Final(head)))
}
