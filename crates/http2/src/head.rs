//! The head of a request (RFC 9113, section 8.3).

use superpoll_http1::{Authority, Fields, Form, Method, Refusal, Target};

use crate::error::StreamError;
use crate::priority::Priority;
use crate::section::{Pseudo, Section};

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
    /// All fields in their order, cookies as one at the end. `Host` is among them only if the
    /// client has sent it.
    pub fields: Fields<'b>,
    /// The length that the body must have.
    pub length: Option<u64>,
    /// The priority of the response, if the client has named one.
    pub priority: Option<Priority>,
    /// The things that the client wants in addition.
    pub wants: Wants,
}

/// Reads a section as the head of a request.
pub(crate) fn request(section: &Section) -> Result<RequestHead<'_>, StreamError> {
    let Pseudo { method, scheme, authority, path, protocol } = section.pseudo;
    let missing = StreamError::PseudoMissing;
    let text = |place| str::from_utf8(section.value(place)).ok();
    let name = method.ok_or(missing)?;
    let method = text(name).and_then(Method::new).ok_or(StreamError::Head(Refusal::Method))?;
    let is_connect = method == Method::Connect;
    let is_tunnel = is_connect && protocol.is_none();
    let is_complete = match is_tunnel {
        true => scheme.is_none() && path.is_none() && authority.is_some(),
        false => scheme.is_some() && path.is_some(),
    };
    if !is_complete || (protocol.is_some() && !is_connect) {
        return Err(missing);
    }
    let target = path.or(authority).ok_or(missing)?;
    if section.value(target).len() > section.limits().target {
        return Err(StreamError::TargetTooLong);
    }
    let target = text(target).ok_or(StreamError::Head(Refusal::Target))?;
    // The target of a `CONNECT` with a protocol is a path.
    let form = if protocol.is_some() { Method::Get } else { method };
    let target = Target::new(form, target).map_err(StreamError::Head)?;
    if target.form() == Form::Absolute {
        return Err(StreamError::Head(Refusal::TargetForm));
    }
    let named = |place: Option<usize>, is: fn(&str) -> bool| match place {
        None => Ok(None),
        Some(place) => text(place).filter(|text| is(text)).map(Some).ok_or(StreamError::Scheme),
    };
    let scheme = named(scheme, is_scheme)?;
    let protocol = named(protocol, |text| Method::new(text).is_some())?;
    let host = match (authority, section.host) {
        (None, None) => return Err(StreamError::Head(Refusal::HostMissing)),
        (Some(authority), Some(host)) => {
            let same = section.value(authority).eq_ignore_ascii_case(section.value(host));
            if !same {
                return Err(StreamError::HostsDiffer);
            }
            authority
        }
        (Some(place), None) | (None, Some(place)) => place,
    };
    let host = Authority::new(section.value(host));
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
    text.starts_with(|first: char| first.is_ascii_lowercase()) && text.bytes().all(is_of_scheme)
}
