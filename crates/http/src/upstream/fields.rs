//! The fields of forwarded heads: which are left out, and which are added.
//!
//! Fields of the connection are not those of the message, and go no further (RFC 9110, section
//! 7.6.1): the fields of the connection that are known, and the fields that `Connection` names.
//! `Connection` cannot remove a field that a message needs to be understood.
//!
//! A server learns about the client from `X-Forwarded-For`, `X-Forwarded-Proto`, `X-Forwarded-Host`
//! and, where a path was taken off, `X-Forwarded-Prefix`. Any client can write them, so the values
//! that came with the request are replaced, and so are further fields that servers believe
//! (`Forwarded`, `X-Real-IP`), unless the configuration trusts the proxy in front. `Via`, the id of
//! a request and its trace are those of `trace`.

use http::header::{
    CONNECTION, CONTENT_LENGTH, DATE, HOST, HeaderName, MAX_FORWARDS, TRANSFER_ENCODING, UPGRADE,
};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Uri, Version};
use superpoll_http1::FieldValue;

use crate::head::Fields;

/// The subject of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum About {
    /// The connection.
    Connection,
    /// The client.
    Asker,
    /// The client's certificate. Servers take the client for its owner, so only this server may
    /// write these fields, whatever proxy is trusted; responses have none (RFC 9440, section 2.2).
    Certificate,
    /// The message itself.
    Message,
    /// The names of fields that follow the body.
    Trailer,
    /// The cookies, which HTTP/2 may split into several fields.
    Cookie,
    /// Anything else.
    Other,
}

/// Returns the subject of a field, whose name is in lower case.
pub(super) fn about(name: &[u8]) -> About {
    // Most names begin otherwise, and need no comparison.
    if !matches!(name, [b'c' | b'e' | b'f' | b'h' | b'k' | b'p' | b't' | b'u' | b'x', ..]) {
        return About::Other;
    }
    match name {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"te" | b"transfer-encoding"
        | b"upgrade" | b"http2-settings" | b"expect"
        // CGI would make `HTTP_PROXY` of it, which programs take for their own setting.
        | b"proxy" => About::Connection,
        b"x-forwarded-for" | b"x-forwarded-proto" | b"x-forwarded-host" | b"x-forwarded-port"
        | b"x-forwarded-server" | b"x-forwarded-prefix" | b"x-forwarded-scheme" | b"x-real-ip"
        | b"forwarded"
        // Because of these, too, servers take a client for encrypted, or for another client.
        | b"x-forwarded-ssl" | b"x-forwarded-protocol" | b"front-end-https" | b"x-url-scheme"
        | b"x-client-ip" | b"true-client-ip" | b"x-cluster-client-ip" => About::Asker,
        b"client-cert" | b"client-cert-chain" | b"x-client-subject" => About::Certificate,
        b"host" | b"content-length" => About::Message,
        b"trailer" => About::Trailer,
        b"cookie" => About::Cookie,
        _ => About::Other,
    }
}

/// The fields that `Connection` names, which belong to the connection then. It cannot remove a
/// field that a message needs to be understood. `close` is no name of a field.
#[derive(Default)]
pub(super) struct Named(Vec<Vec<u8>>);

impl Named {
    /// Returns those of a message. They are sorted: there may be thousands, and each field of the
    /// message is looked for among them.
    #[cold]
    pub(super) fn of(fields: Fields<'_>) -> Named {
        let elements = fields.checked("connection").flat_map(FieldValue::elements);
        let elements = elements.filter(|element| !element.is_empty());
        let mut named: Vec<Vec<u8>> = elements.map(<[u8]>::to_ascii_lowercase).collect();
        named.sort_unstable();
        Named(named)
    }

    /// Whether a field is one of them, by its name in lower case.
    #[inline]
    pub(super) fn has(&self, name: &[u8]) -> bool {
        !self.0.is_empty()
            && name != b"close"
            && self.0.binary_search_by(|one| one.as_slice().cmp(name)).is_ok()
    }
}

/// Whether a field of a response is passed on to the client. `Connection` may name fields of the
/// response, and fields may follow its body for the client.
#[inline]
pub(super) fn passes_back(name: &[u8], named: &Named, has_trailers: bool) -> bool {
    match about(name) {
        About::Cookie | About::Other => !named.has(name),
        About::Asker | About::Message => true,
        About::Trailer => has_trailers,
        About::Connection | About::Certificate => false,
    }
}

/// Removes the fields about a client's certificate from those that follow a request's body, as some
/// servers add these to the fields of the head; and those about the client's connection, which
/// HTTP/2 does not allow.
pub(super) fn trailers(trailers: &mut HeaderMap) {
    let is_removed = |name: &&HeaderName| {
        let name = name.as_str().replace('_', "-");
        matches!(about(name.as_bytes()), About::Certificate | About::Connection)
    };
    let removed: Vec<HeaderName> = trailers.keys().filter(is_removed).cloned().collect();
    removed.into_iter().for_each(|name| drop(trailers.remove(name)));
}

/// Returns the protocol that a request asks for instead of HTTP, if it may.
pub(super) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut fields = headers.get_all(UPGRADE).into_iter();
    let field = fields.next()?;
    let is_h2 = field.as_bytes().to_ascii_lowercase().windows(2).any(|two| two == b"h2");
    let is_one = fields.next().is_none() && !field.is_empty() && !is_h2;
    (is_one && Fields::Map(headers).has_element(CONNECTION.as_str(), b"upgrade"))
        .then(|| field.clone())
}

/// Returns the protocols that a server changes to, if its request has asked for each of them (RFC
/// 9110, section 7.8).
///
/// Protocols are the same if their names and versions are, in any case: `foo/2` is not `foo/1`.
pub(super) fn agreed(asked: &HeaderValue, answer: &HeaderMap) -> Option<HeaderValue> {
    let mut fields = answer.get_all(UPGRADE).into_iter();
    let (Some(answer), None) = (fields.next(), fields.next()) else { return None };
    let was_asked_for = |protocol: &[u8]| {
        let mut asked = elements(asked);
        !protocol.is_empty() && asked.any(|asked| asked.eq_ignore_ascii_case(protocol))
    };
    elements(answer).all(was_asked_for).then(|| answer.clone())
}

/// Returns the elements of a list, without the blanks around them.
fn elements(field: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    field.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// Counts down the number of times that a request of OPTIONS may be forwarded (RFC 9110, section
/// 7.6.2). Returns whether the request must be answered here.
pub(super) fn ends_here(headers: &mut HeaderMap) -> bool {
    let Some(field) = headers.get(MAX_FORWARDS) else { return false };
    let is_number = field.as_bytes().iter().all(u8::is_ascii_digit);
    let left = field.to_str().ok().filter(|_| is_number).and_then(|text| text.parse::<u64>().ok());
    match left {
        Some(0) => return true,
        Some(left) => drop(headers.insert(MAX_FORWARDS, HeaderValue::from(left - 1))),
        // A value that is not a number limits nothing.
        None => {}
    }
    false
}

/// Changes a response's fields to those of the response that is passed on. `reads_trailers` says
/// whether the client reads fields that follow the body, and `is_h2` whether it does so by HTTP/2,
/// where they may follow any body that comes by HTTP/2.
///
/// # Errors
///
/// If it is unknown where its body ends.
pub(super) fn response(
    head: &mut Parts,
    (reads_trailers, is_h2): (bool, bool),
) -> Result<(), &'static str> {
    let headers = &mut head.headers;
    let is_chunked = headers.contains_key(TRANSFER_ENCODING);
    if is_chunked {
        headers.remove(CONTENT_LENGTH);
    }
    one_length(headers)?;
    let may_follow = is_chunked
        || (head.version == Version::HTTP_2 && (is_h2 || !headers.contains_key(CONTENT_LENGTH)));
    let named = match headers.contains_key(CONNECTION) {
        true => Named::of(Fields::Map(headers)),
        false => Named::default(),
    };
    let has_trailers = reads_trailers && may_follow;
    let passes = |name: &&HeaderName| passes_back(name.as_str().as_bytes(), &named, has_trailers);
    let gone: Vec<HeaderName> = headers.keys().filter(|name| !passes(name)).cloned().collect();
    for name in gone {
        headers.remove(name);
    }
    // One is enough, and the first is the nearest to the origin.
    if let Some(date) = headers.get(DATE).cloned() {
        headers.insert(DATE, date);
    }
    Ok(())
}

/// Leaves one field with the length of a response.
///
/// # Errors
///
/// If they are not the same, or no numbers (RFC 9110, section 8.6).
fn one_length(headers: &mut HeaderMap) -> Result<(), &'static str> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).into_iter();
    let Some(first) = lengths.next().cloned() else { return Ok(()) };
    if lengths.any(|length| length != first) {
        return Err("the server's response has different lengths");
    }
    let is_number = first.as_bytes().iter().all(u8::is_ascii_digit);
    if !is_number || first.to_str().ok().and_then(|text| text.parse::<u64>().ok()).is_none() {
        return Err("the length in the server's response is no number");
    }
    headers.insert(CONTENT_LENGTH, first);
    Ok(())
}

/// Returns the host that a request is for, as its server is told.
pub(super) fn host(uri: &Uri, headers: &HeaderMap) -> Option<HeaderValue> {
    match uri.authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str()).ok(),
        None => headers.get(HOST).filter(|host| !host.is_empty()).cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let fields = fields
            .iter()
            .map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        fields.collect()
    }

    #[test]
    fn a_limit_of_forwarding_is_counted_down() {
        for (said, ends, then) in [
            (None, false, None),
            (Some("0"), true, Some("0")),
            (Some("1"), false, Some("0")),
            (Some("70"), false, Some("69")),
            (Some("x"), false, Some("x")),
            (Some("+1"), false, Some("+1")),
            (Some("-1"), false, Some("-1")),
        ] {
            let said = said.map(|said| (MAX_FORWARDS, HeaderValue::from_static(said)));
            let mut headers: HeaderMap = said.into_iter().collect();
            assert_eq!(ends_here(&mut headers), ends, "{headers:?}");
            let left = headers.get(MAX_FORWARDS).map(|left| left.to_str().unwrap());
            assert_eq!(left, then);
        }
    }

    #[test]
    fn nobody_forges_the_certificate_in_trailers() {
        let fields = ["client-cert", "x-client-subject", "client_cert", "x_client-subject"];
        let fields = fields.map(|name| (name, ":AAAA:"));
        let mut headers = of(&[&fields[..], &[("x-other", "stays")]].concat());
        trailers(&mut headers);
        assert_eq!(headers.keys().collect::<Vec<_>>(), ["x-other"]);
    }

    fn passed(
        version: Version,
        fields: &[(&'static str, &'static str)],
        client: (bool, bool),
    ) -> HeaderMap {
        let (mut head, ()) = http::Response::new(()).into_parts();
        head.version = version;
        fields.iter().for_each(|(name, value)| {
            _ = head.headers.append(*name, HeaderValue::from_static(value));
        });
        response(&mut head, client).unwrap();
        head.headers
    }

    #[test]
    fn names_of_trailers_go_with_the_trailers() {
        let (coding, length) = (("transfer-encoding", "chunked"), ("content-length", "3"));
        for (version, field, client, follow) in [
            (Version::HTTP_11, coding, (true, false), true),
            (Version::HTTP_11, coding, (true, true), true),
            (Version::HTTP_11, coding, (false, false), false),
            (Version::HTTP_11, length, (true, false), false),
            (Version::HTTP_11, length, (true, true), false),
            // Its body ends with its connection.
            (Version::HTTP_11, ("server", "a"), (true, false), false),
            (Version::HTTP_2, length, (true, false), false),
            (Version::HTTP_2, length, (true, true), true),
            (Version::HTTP_2, ("server", "a"), (true, false), true),
        ] {
            let fields = [("trailer", "x-sum"), ("connection", "trailer"), field];
            let headers = passed(version, &fields, client);
            assert_eq!(headers.contains_key("trailer"), follow, "{version:?} {field:?} {client:?}");
        }
    }

    #[test]
    fn a_response_keeps_its_fields_but_for_those_of_the_connection() {
        let fields = [
            ("connection", "X-Own, close"),
            ("x-own", "1"),
            ("close", "x"),
            ("upgrade", "h2c"),
            ("client-cert", ":AAAA:"),
            ("x-forwarded-for", "1"),
            ("x_forwarded_for", "2"),
            ("cookie", "a"),
            ("cookie", "b"),
            ("date", "first"),
            ("date", "second"),
            ("content-length", "3"),
            ("content-length", "3"),
        ];
        let headers = passed(Version::HTTP_11, &fields, (false, false));
        let values = |name| headers.get_all(name).iter().collect::<Vec<_>>();
        assert_eq!(headers.keys_len(), 6, "{headers:?}");
        assert_eq!(values("cookie"), ["a", "b"]);
        assert_eq!(values("date"), ["first"]);
        assert_eq!(values("content-length"), ["3"]);
        assert_eq!(values("x-forwarded-for"), ["1"]);
        assert_eq!(values("x_forwarded_for"), ["2"]);
        assert_eq!(values("close"), ["x"]);
    }

    #[test]
    fn an_upgrade_is_one_protocol_that_is_not_http() {
        let asks = |protocol| of(&[("connection", "keep-alive, Upgrade"), ("upgrade", protocol)]);
        assert_eq!(upgrade(&asks("websocket")).unwrap(), "websocket");
        assert_eq!(upgrade(&asks("h2c")), None);
        assert_eq!(upgrade(&asks("websocket, H2C")), None);
        assert_eq!(upgrade(&of(&[("upgrade", "websocket")])), None);
    }

    #[test]
    fn a_server_changes_to_protocols_that_were_asked_for() {
        for (asked, answer, agrees) in [
            ("websocket", &["websocket"][..], true),
            ("websocket", &["WebSocket"], true),
            ("a, b/1 ,c", &["B/1"], true),
            ("a, b/1, c", &["c, a"], true),
            ("websocket", &["foo"], false),
            ("websocket", &["websocket, foo"], false),
            ("websocket", &["websockets"], false),
            ("websocket", &["web"], false),
            ("b/1", &["b/2"], false),
            ("b/1", &["b"], false),
            ("b", &["b/1"], false),
            ("a, ,b", &[""], false),
            ("a, ,b", &["a,"], false),
            ("a", &["a", "foo"], false),
            ("a", &["a", "a"], false),
            ("a", &[], false),
        ] {
            let asked_for = HeaderValue::from_static(asked);
            let fields = answer.iter().map(|said| (UPGRADE, HeaderValue::from_static(said)));
            let mut headers = HeaderMap::new();
            fields.for_each(|(name, value)| _ = headers.append(name, value));
            let expected = agrees.then(|| HeaderValue::from_static(answer[0]));
            assert_eq!(agreed(&asked_for, &headers), expected, "{asked:?} {answer:?}");
        }
    }
}
