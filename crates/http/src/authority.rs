//! The host and port that a request is for.
//!
//! An authority comes from the `Host` field, from a target in absolute form, from the `:authority`
//! of HTTP/2 and from `CONNECT`. [`Authority`] reads each of them, and those of the configuration,
//! by the same rules.

use http::{StatusCode, Version};
use superpoll_config::Authority;

use crate::head::Head;

/// Returns the authority of a request; `None` for a request of HTTP/1.0 that names no host.
///
/// The authority of the target comes first: HTTP/2 has it there, and so do requests to a proxy (RFC
/// 9112, section 3.2.2).
///
/// # Errors
///
/// 400 if the host is missing, malformed, or told by several fields (RFC 9112, section 3.2); 421 if
/// the target is one of `https` and `is_secured` is not set (RFC 9110, section 7.4): the client's
/// connection is neither encrypted nor that of a proxy that may have decrypted it.
pub fn of_request(head: Head<'_>, is_secured: bool) -> Result<Option<Authority<'_>>, StatusCode> {
    let parsed = field(head)?.map(Authority::parse);
    let field = parsed.map(|parsed| parsed.ok_or(StatusCode::BAD_REQUEST)).transpose()?;
    let target = of_target(head, is_secured)?;
    match target.or(field) {
        None if head.version >= Version::HTTP_2 => Err(StatusCode::BAD_REQUEST),
        authority => Ok(authority),
    }
}

/// Returns the authority of a request's target, if the target has one.
fn of_target(head: Head<'_>, is_secured: bool) -> Result<Option<Authority<'_>>, StatusCode> {
    match head.scheme {
        None | Some("http") => {}
        Some("https") if is_secured => {}
        Some("https") => return Err(StatusCode::MISDIRECTED_REQUEST),
        Some(_) => return Err(StatusCode::BAD_REQUEST),
    }
    match head.authority.map(|authority| Authority::parse(authority.as_bytes())) {
        None => Ok(None),
        Some(None) => Err(StatusCode::BAD_REQUEST),
        Some(authority) => Ok(authority),
    }
}

/// Returns the one `Host` field, which HTTP/1.1 must have.
pub fn field(head: Head<'_>) -> Result<Option<&[u8]>, StatusCode> {
    if let (Some(host), None) = (head.host, head.authority) {
        // The codec lets no other field through.
        return Ok(Some(host.as_bytes()));
    }
    let mut fields = head.fields.values("host");
    let field = fields.next();
    if fields.next().is_some() || (field.is_none() && head.version == Version::HTTP_11) {
        return Err(StatusCode::BAD_REQUEST);
    }
    Ok(field)
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http::header::HOST;

    use super::*;

    #[test]
    fn a_request_names_one_host() {
        let of = |version, uri: &str, fields: &[&str], is_encrypted| {
            let mut request = Request::new(());
            *request.version_mut() = version;
            *request.uri_mut() = uri.parse().unwrap();
            for field in fields {
                request.headers_mut().append(HOST, field.parse().unwrap());
            }
            of_request(Head::from(&request), is_encrypted)
                .map(|authority| authority.map(|authority| authority.host.to_owned()))
                .map_err(|status| status.as_u16())
        };
        let (old, new, h2) = (Version::HTTP_10, Version::HTTP_11, Version::HTTP_2);
        for (version, uri, fields, is_encrypted, expected) in [
            (new, "/", &["a"][..], false, Ok(Some("a"))),
            (new, "/", &[], false, Err(400)),
            (new, "/", &[""], false, Err(400)),
            (new, "/", &["a", "a"], false, Err(400)),
            (new, "http://b/", &["a"], false, Ok(Some("b"))),
            (new, "http://b/", &["u@a"], false, Err(400)),
            (new, "http://b/", &["a", "b"], false, Err(400)),
            (new, "http://u@b/", &["b"], false, Err(400)),
            (new, "http://b:99999/", &["b"], false, Err(400)),
            (new, "https://b/", &["b"], false, Err(421)),
            (new, "https://b/", &["b"], true, Ok(Some("b"))),
            (new, "ftp://b/", &["b"], true, Err(400)),
            (new, "u@b:80", &["b"], false, Err(400)),
            (old, "/", &[], false, Ok(None)),
            (old, "/", &[""], false, Err(400)),
            (old, "http://b/", &[], false, Ok(Some("b"))),
            (h2, "https://b/", &[], true, Ok(Some("b"))),
            (h2, "https://b/", &["a"], true, Ok(Some("b"))),
            (h2, "https://u:p@b/", &[], true, Err(400)),
            (h2, "https://b:99999/", &[], true, Err(400)),
            (h2, "/", &["a"], true, Ok(Some("a"))),
            (h2, "/", &[], true, Err(400)),
        ] {
            let found = of(version, uri, fields, is_encrypted);
            let found = found.as_ref().map(|host| host.as_deref()).map_err(|status| *status);
            assert_eq!(found, expected, "{version:?} {uri} {fields:?}");
        }
    }
}
