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

use std::io::Write;
use std::net::IpAddr;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderName, MAX_FORWARDS, TE, TRANSFER_ENCODING,
    UPGRADE,
};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, HeaderValue};

use super::strict;
use crate::certificates::ClientCertificate;
use crate::head::Fields;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// The client's certificate (RFC 9440), and its subject.
const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
const CLIENT_SUBJECT: HeaderName = HeaderName::from_static("x-client-subject");
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// More than the longest text of an IP address needs.
const LONGEST_ADDRESS: usize = 64;

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

/// Removes the fields that must not be passed on. `has_trailers` says whether fields that follow
/// the body are passed on.
fn strip(headers: &mut HeaderMap, trusts: bool, has_trailers: bool) {
    let mut gone: Vec<HeaderName> = Vec::new();
    let mut has_cookies = false;
    for name in headers.keys() {
        let text = name.as_str();
        let leave = match about(text.as_bytes()) {
            About::Connection | About::Certificate => true,
            About::Asker => !trusts,
            About::Message => false,
            About::Trailer => !has_trailers,
            About::Cookie => {
                has_cookies = true;
                false
            }
            About::Other => {
                text.contains('_') && about(text.replace('_', "-").as_bytes()) != About::Other
            }
        };
        if leave {
            gone.push(name.clone());
        }
    }
    if gone.contains(&CONNECTION) {
        for field in headers.get_all(CONNECTION) {
            let tokens = field.as_bytes().split(|&byte| byte == b',');
            // Nearly all fields have one of these tokens, which name no field.
            let is_common = |token: &&[u8]| {
                token.eq_ignore_ascii_case(b"keep-alive") || token.eq_ignore_ascii_case(b"close")
            };
            let tokens = tokens.map(<[u8]>::trim_ascii).filter(|token| !is_common(token));
            let names = tokens.filter_map(|token| HeaderName::from_bytes(token).ok());
            gone.extend(names.filter(|name| {
                matches!(about(name.as_str().as_bytes()), About::Other | About::Cookie)
            }));
        }
    }
    for name in gone {
        headers.remove(name);
    }
    if has_cookies {
        join_cookies(headers);
    }
}

/// Removes the fields about a client's certificate from those that follow a request's body: some
/// servers add these to the fields of the head.
pub(super) fn trailers(trailers: &mut HeaderMap) {
    let is_forged = |name: &&HeaderName| {
        about(name.as_str().replace('_', "-").as_bytes()) == About::Certificate
    };
    let forged: Vec<HeaderName> = trailers.keys().filter(is_forged).cloned().collect();
    forged.into_iter().for_each(|name| drop(trailers.remove(name)));
}

/// Joins several `cookie` fields with `; ` (RFC 9113, section 8.2.3).
///
/// HTTP/2 clients send each cookie in a field of its own, so that it compresses better. Servers of
/// HTTP/1.1 read one field, or join several with a comma, which no cookie survives.
fn join_cookies(headers: &mut HeaderMap) {
    let mut fields = headers.get_all(COOKIE).into_iter();
    let (Some(first), Some(second)) = (fields.next(), fields.next()) else { return };
    let mut whole = first.as_bytes().to_vec();
    for field in std::iter::once(second).chain(fields) {
        whole.extend_from_slice(b"; ");
        whole.extend_from_slice(field.as_bytes());
    }
    // Values that are valid each are valid when joined.
    if let Ok(whole) = HeaderValue::from_maybe_shared(Bytes::from(whole)) {
        headers.insert(COOKIE, whole);
    }
}

fn has_token(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    let mut tokens = headers.get_all(name).into_iter().flat_map(elements);
    tokens.any(|said| said.eq_ignore_ascii_case(token.as_bytes()))
}

/// Returns the protocol that a request asks for instead of HTTP, if it may.
pub(super) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut fields = headers.get_all(UPGRADE).into_iter();
    let field = fields.next()?;
    let is_h2 = field.as_bytes().to_ascii_lowercase().windows(2).any(|two| two == b"h2");
    let is_one = fields.next().is_none() && !field.is_empty() && !is_h2;
    (is_one && has_token(headers, CONNECTION, "upgrade")).then(|| field.clone())
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

/// The client, and the parts of its request that servers are told about.
pub(super) struct Asker<'a> {
    pub address: Option<IpAddr>,
    pub is_encrypted: bool,
    /// The verified certificate of the client.
    pub certificate: Option<&'a ClientCertificate>,
    /// The host that was asked for.
    pub host: Option<HeaderValue>,
    /// The path that was taken off.
    pub prefix: Option<&'a HeaderValue>,
    /// Whether the existing fields of this kind are believed.
    pub trusts: bool,
    /// Whether fields may follow the body.
    pub has_trailers: bool,
    pub upgrade: Option<HeaderValue>,
}

/// Changes a request's fields to those of the forwarded request, except for the host.
pub(super) fn request(headers: &mut HeaderMap, asker: Asker<'_>) {
    let takes_trailers = takes_trailers(headers);
    let before = match asker.trusts {
        true => chain(headers),
        false => String::new(),
    };
    strip(headers, asker.trusts, asker.has_trailers);
    if let Some(address) = asker.address {
        headers.insert(FORWARDED_FOR, chained(before, address));
    }
    let proto = HeaderValue::from_static(if asker.is_encrypted { "https" } else { "http" });
    if asker.trusts {
        headers.entry(FORWARDED_PROTO).or_insert(proto);
        if let Some(host) = asker.host {
            headers.entry(FORWARDED_HOST).or_insert(host);
        }
    } else {
        headers.insert(FORWARDED_PROTO, proto);
        if let Some(host) = asker.host {
            headers.insert(FORWARDED_HOST, host);
        }
    }
    headers.extend(asker.certificate.into_iter().flat_map(of_certificate));
    if let Some(prefix) = asker.prefix {
        headers.insert(FORWARDED_PREFIX, prefix.clone());
    }
    if takes_trailers {
        // TE is a field of the connection, and `Connection` has to name it (RFC 9110, section
        // 10.1.4).
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    if let Some(protocol) = asker.upgrade {
        headers.append(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
}

/// Returns the fields about a client's certificate.
pub(super) fn of_certificate(
    certificate: &ClientCertificate,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let field = certificate.field().map(|field| (CLIENT_CERT, field));
    let subject = certificate.subject().map(|subject| (CLIENT_SUBJECT, subject));
    field.into_iter().chain(subject)
}

/// Whether a client reads fields that follow a body of HTTP/1.1.
pub(super) fn takes_trailers(headers: &HeaderMap) -> bool {
    headers.contains_key(TE) && has_token(headers, TE, "trailers")
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

/// Returns the whole value of `X-Forwarded-For` so far.
fn chain(headers: &HeaderMap) -> String {
    let fields = headers.get_all(FORWARDED_FOR).into_iter();
    let texts = fields.filter_map(|field| field.to_str().ok());
    let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
    texts.join(", ")
}

fn chained(before: String, address: IpAddr) -> HeaderValue {
    // A listener on all addresses sees IPv4 clients as IPv6 clients.
    let address = address.to_canonical();
    let text = if before.is_empty() {
        let mut room = [0; LONGEST_ADDRESS];
        let mut rest = &mut room[..];
        let _ = write!(rest, "{address}");
        let left = rest.len();
        HeaderValue::from_bytes(&room[..LONGEST_ADDRESS - left])
    } else {
        HeaderValue::from_str(&format!("{before}, {address}"))
    };
    text.unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

/// Changes a response's fields to those of the response that is passed on.
///
/// # Errors
///
/// If it is unknown where its body ends.
pub(super) fn response(headers: &mut HeaderMap, has_trailers: bool) -> Result<(), &'static str> {
    if headers.contains_key(TRANSFER_ENCODING) {
        if !strict::has_plain_coding(headers) {
            return Err("the server's response has a coding that is not chunked");
        }
        headers.remove(CONTENT_LENGTH);
    }
    one_length(headers)?;
    strip(headers, true, has_trailers);
    Ok(())
}

/// Leaves one field with the length of a response. The codec reads the lengths of those that have a
/// body, and not those of answers to HEAD and of 304, whose length could otherwise not be passed
/// on.
///
/// # Errors
///
/// If they are not the same, or no numbers (RFC 9110, section 8.6).
fn one_length(headers: &mut HeaderMap) -> Result<(), &'static str> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).into_iter();
    let Some(first) = lengths.next() else { return Ok(()) };
    let is_number = !first.is_empty() && first.as_bytes().iter().all(u8::is_ascii_digit);
    let number = first.to_str().ok().and_then(|text| text.parse::<u64>().ok());
    if !is_number || number.is_none() {
        return Err("the length in the server's response is no number");
    }
    let mut is_repeated = false;
    for length in lengths {
        if length != first {
            return Err("the server's response has different lengths");
        }
        is_repeated = true;
    }
    if is_repeated {
        let first = first.clone();
        headers.insert(CONTENT_LENGTH, first);
    }
    Ok(())
}

/// Returns the target of a request without the parts that the server does not get: scheme and host,
/// and the path that is taken off.
pub(super) fn target(uri: &Uri, prefix: Option<&str>) -> Option<Uri> {
    let whole = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let rest = match prefix {
        Some(prefix) => whole.strip_prefix(prefix).unwrap_or(whole),
        None => {
            uri.authority()?;
            whole
        }
    };
    // A URI may have a query behind its host, and what is left of a path may begin with one.
    match rest.starts_with('/') {
        true => rest.parse().ok(),
        false => format!("/{rest}").parse().ok(),
    }
}

/// Returns the host that a request is for, as its server is told.
pub(super) fn host(uri: &Uri, headers: &HeaderMap) -> Option<HeaderValue> {
    match uri.authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str()).ok(),
        None => headers.get(HOST).filter(|host| !host.is_empty()).cloned(),
    }
}

/// Whether an earlier proxy says that the client's connection to it was encrypted.
pub(super) fn was_encrypted(fields: Fields<'_>) -> bool {
    // The first of several proxies is the one next to the client.
    let said = fields.value("x-forwarded-proto").and_then(|said| std::str::from_utf8(said).ok());
    let first = said.and_then(|said| said.split(',').next());
    first.is_some_and(|first| first.trim().eq_ignore_ascii_case("https"))
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

    fn asker(trusts: bool) -> Asker<'static> {
        Asker {
            address: Some("::ffff:192.0.2.7".parse().unwrap()),
            is_encrypted: true,
            certificate: None,
            host: Some(HeaderValue::from_static("a.example")),
            prefix: None,
            trusts,
            has_trailers: true,
            upgrade: None,
        }
    }

    #[test]
    fn fields_of_the_connection_stay_there() {
        let mut headers = of(&[
            ("host", "a.example"),
            ("content-length", "3"),
            ("connection", "close, X-Own , host, content-length"),
            ("x-own", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "gzip, trailers"),
            ("upgrade", "websocket"),
            ("proxy", "http://evil"),
            ("x_forwarded_for", "6.6.6.6"),
            ("content_length", "9"),
            ("my_field", "stays"),
            ("x-real-ip", "6.6.6.6"),
            ("x-forwarded-ssl", "on"),
            ("front-end-https", "on"),
            ("x_forwarded_ssl", "on"),
            ("true-client-ip", "6.6.6.6"),
        ]);
        request(&mut headers, asker(false));
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let expected = [
            "connection",
            "content-length",
            "host",
            "my_field",
            "te",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
        ];
        assert_eq!(names, expected);
        assert_eq!(
            (&headers["te"], &headers["connection"]),
            (&"trailers".parse().unwrap(), &"te".parse().unwrap())
        );
        assert_eq!(headers["x-forwarded-for"], "192.0.2.7");
    }

    #[test]
    fn nobody_forges_the_certificate_of_a_client() {
        for trusts in [true, false] {
            let mut headers = of(&[
                ("client-cert", ":AAAA:"),
                ("client-cert-chain", ":AAAA:"),
                ("x-client-subject", "CN=root"),
                ("client_cert", ":AAAA:"),
                ("x_client-subject", "CN=root"),
                ("x-other", "stays"),
            ]);
            let mut follows = headers.clone();
            trailers(&mut follows);
            assert_eq!(follows.keys().collect::<Vec<_>>(), ["x-other"]);
            request(&mut headers, asker(trusts));
            let about_client = headers.keys().filter(|name| name.as_str().contains("client"));
            assert_eq!(about_client.collect::<Vec<_>>(), [] as [&HeaderName; 0]);
            assert!(headers.contains_key("x-other"));
        }
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
    fn names_of_trailers_go_with_the_trailers() {
        for has_trailers in [true, false] {
            let mut headers = of(&[("trailer", "x-sum"), ("connection", "trailer")]);
            response(&mut headers, has_trailers).unwrap();
            assert_eq!(headers.contains_key("trailer"), has_trailers);
        }
    }

    #[test]
    fn cookies_are_joined_as_servers_read_them() {
        for (fields, joined) in [
            (&["a=1"][..], Some("a=1")),
            (&["a=1", "b=2", "c=3"], Some("a=1; b=2; c=3")),
            (&["a=1; b=2", "c=\"x,y\""], Some("a=1; b=2; c=\"x,y\"")),
            (&[], None),
        ] {
            let mut headers = HeaderMap::new();
            headers.append("accept", HeaderValue::from_static("a"));
            headers.append("accept", HeaderValue::from_static("b"));
            for field in fields {
                headers.append(COOKIE, HeaderValue::from_static(field));
            }
            request(&mut headers, asker(false));
            let found: Vec<_> = headers.get_all(COOKIE).iter().collect();
            assert_eq!(found, joined.into_iter().collect::<Vec<_>>(), "{fields:?}");
            // The parts of list fields other than `cookie` stay apart.
            assert_eq!(headers.get_all("accept").iter().count(), 2);
        }
    }

    #[test]
    fn trusted_forwarding_fields_are_extended() {
        let said = [
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-proto", "http"),
            ("forwarded", "for=1.1.1.1"),
        ];
        let mut headers = of(&said);
        headers.append("x-forwarded-for", HeaderValue::from_static("2.2.2.2"));
        let mut replaced = headers.clone();
        request(&mut headers, asker(true));
        assert_eq!(headers["x-forwarded-for"], "1.1.1.1, 2.2.2.2, 192.0.2.7");
        assert_eq!(headers.get_all("x-forwarded-for").iter().count(), 1);
        assert_eq!(headers["x-forwarded-proto"], "http");
        assert!(headers.contains_key("forwarded"));
        request(&mut replaced, asker(false));
        assert_eq!(replaced["x-forwarded-for"], "192.0.2.7");
        assert_eq!(replaced["x-forwarded-proto"], "https");
        assert!(!replaced.contains_key("forwarded"));
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

    #[test]
    fn a_path_is_taken_off() {
        let target = |uri: &str, prefix| {
            let uri: Uri = uri.parse().unwrap();
            target(&uri, prefix).unwrap_or(uri).to_string()
        };
        assert_eq!(target("/a/b?c", None), "/a/b?c");
        assert_eq!(target("http://x/a/b?c", None), "/a/b?c");
        assert_eq!(target("http://x", None), "/");
        assert_eq!(target("http://x?c", None), "/?c");
        assert_eq!(target("/a/b?c", Some("/a")), "/b?c");
        assert_eq!(target("/a?c", Some("/a")), "/?c");
        assert_eq!(target("/a", Some("/a")), "/");
    }
}
