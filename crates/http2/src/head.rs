//! The head of a request (RFC 9113, section 8.3).

use superpoll_http1::{Authority, Fields, Form, Method, Refusal, Target};

use crate::error::StreamError;
use crate::hpack::Name;
use crate::priority::Priority;
use crate::section::{Section, Text};

/// The things that a client wants in addition to a response.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Wants {
    /// A 100 (Continue) before it sends the body (RFC 9110, section 10.1.1).
    pub continues: bool,
    /// The fields that follow the response's body (RFC 9110, section 10.1.4).
    pub trailers: bool,
}

/// The head of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'b> {
    /// The method.
    pub method: Method<'b>,
    /// The target: a path with an optional query, `*` for `OPTIONS`, or the host of a `CONNECT`
    /// without a protocol.
    pub target: Target<'b>,
    /// The scheme; only a `CONNECT` without a protocol has none.
    pub scheme: Option<&'b str>,
    /// The host with its port, of `:authority` or `Host`.
    pub host: Authority<'b>,
    /// The protocol that a `CONNECT` asks for (RFC 8441).
    pub protocol: Option<&'b str>,
    /// All fields in their order, several cookies as one at the end. `Host` is among them only if
    /// the client has sent it.
    pub fields: Fields<'b>,
    /// The length that the body must have.
    pub length: Option<u64>,
    /// The priority of the response, if the client has named one.
    pub priority: Option<Priority>,
    /// The things that the client wants in addition.
    pub wants: Wants,
}

/// Reads a section as the head of a request. A protocol may be asked for only if the server has
/// said so.
pub(crate) fn request(
    section: &Section,
    connect_protocol: bool,
) -> Result<RequestHead<'_>, StreamError> {
    let [method, scheme, authority, path, protocol] =
        [Name::Method, Name::Scheme, Name::Authority, Name::Path, Name::Protocol]
            .map(|name| section.pseudo(name));
    let missing = StreamError::PseudoMissing;
    let method = section.text(method.ok_or(missing)?).and_then(Method::new);
    let method = method.ok_or(StreamError::Head(Refusal::Method))?;
    let is_connect = method == Method::Connect;
    let is_complete = match is_connect && protocol.is_none() {
        true => scheme.is_none() && path.is_none() && authority.is_some(),
        false => scheme.is_some() && path.is_some(),
    };
    if !is_complete || (protocol.is_some() && !(is_connect && connect_protocol)) {
        return Err(missing);
    }
    let target = section.text(path.or(authority).ok_or(missing)?);
    let target = target.ok_or(StreamError::Head(Refusal::Target))?;
    if target.len() > section.limits().target {
        return Err(StreamError::TargetTooLong);
    }
    // The target of a `CONNECT` with a protocol is a path.
    let form = if protocol.is_some() { Method::Get } else { method };
    let target = Target::new(form, target).map_err(StreamError::Head)?;
    if target.form() == Form::Absolute {
        return Err(StreamError::Head(Refusal::TargetForm));
    }
    let named = |text: Option<Text>, is: fn(&str) -> bool| match text {
        None => Ok(None),
        Some(text) => {
            section.text(text).filter(|text| is(text)).map(Some).ok_or(StreamError::Scheme)
        }
    };
    let scheme = named(scheme, is_scheme)?;
    let protocol = named(protocol, |text| Method::new(text).is_some())?;
    let named = section.host.map(|place| section.value(place));
    let host = match authority.map(|text| section.bytes(text)) {
        Some(authority) if named.is_some_and(|host| !host.eq_ignore_ascii_case(authority)) => {
            return Err(StreamError::HostsDiffer);
        }
        authority => authority.or(named).ok_or(StreamError::Head(Refusal::HostMissing))?,
    };
    let host = Authority::new(host);
    Ok(RequestHead {
        method,
        target,
        scheme,
        host: host.ok_or(StreamError::Head(Refusal::HostInvalid))?,
        protocol,
        fields: section.fields().ok_or(StreamError::FieldValue)?,
        length: section.length,
        priority: section.priority.map(|place| Priority::new(section.value(place))),
        wants: Wants { continues: section.continues, trailers: section.takes_trailers },
    })
}

/// Whether a text is a scheme in lower case (RFC 3986, section 3.1).
fn is_scheme(text: &str) -> bool {
    let is_of_scheme = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'+' | b'-' | b'.');
    matches!(text, "https" | "http")
        || text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.bytes().all(is_of_scheme)
}
