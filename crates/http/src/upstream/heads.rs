//! Writing the heads that are passed on.
//!
//! Every request for a server is written here from the head that its client has sent, whether that
//! lies where it was read or is a map of fields. What happens to the fields on their way is decided
//! here and in `fields`. A server of HTTP/2 gets the same lines, as a map (`request`).
//!
//! So are responses whose lines are passed on to a client of HTTP/1. All others of servers of
//! HTTP/1 become a map of the same fields, and from those of HTTP/2 the rest is removed in their
//! map (`fields::response`).

use std::net::IpAddr;

use http::header::STRICT_TRANSPORT_SECURITY;
use http::{HeaderName, HeaderValue, Version};
use superpoll_config::HeaderChanges;
use superpoll_http1::{
    After, Asked, BodyWriter, Field, FieldLines, FieldName, FieldValue, Framing, Method,
    RequestHead, ResponseHead, Target, Version as Http1Version, Writer,
};

use super::fields::{About, Named, about, passes_back};
use crate::answers::{self, Additions, lines};
use crate::certificates::ClientCertificate;
use crate::head::Fields;
use crate::peer::Peer;
use crate::trace::RequestTrace;

const CONNECTION: FieldName<'_> = FieldName::from_static("connection");
const FORWARDED_FOR: FieldName<'_> = FieldName::from_static("x-forwarded-for");
const FORWARDED_HOST: FieldName<'_> = FieldName::from_static("x-forwarded-host");
const FORWARDED_PREFIX: FieldName<'_> = FieldName::from_static("x-forwarded-prefix");
const FORWARDED_PROTO: FieldName<'_> = FieldName::from_static("x-forwarded-proto");
const SET_COOKIE: FieldName<'_> = FieldName::from_static("set-cookie");
const TE: FieldName<'_> = FieldName::from_static("te");
const UPGRADE: FieldName<'_> = FieldName::from_static("upgrade");
/// The client's certificate (RFC 9440), and its subject.
const CLIENT_CERT: FieldName<'_> = FieldName::from_static("client-cert");
const CLIENT_SUBJECT: FieldName<'_> = FieldName::from_static("x-client-subject");

/// Between the elements of joined fields.
const COMMA: FieldValue<'_> = FieldValue::from_static(", ");
const SEMICOLON: FieldValue<'_> = FieldValue::from_static("; ");

/// The facts that servers are told about a client, which are the same for all requests of its
/// connection.
#[derive(Debug)]
pub struct ClientFacts {
    address: Option<String>,
    proto: FieldValue<'static>,
    /// The fields of these two, unless a proxy before is believed.
    usual: FieldLines,
    /// The fields about the client's certificate.
    certificate: FieldLines,
}

impl ClientFacts {
    /// Returns the facts about the client of a connection.
    pub fn from_peer(peer: &Peer) -> ClientFacts {
        let address = peer.client.map(|client| client.ip());
        ClientFacts::new(address, peer.is_encrypted, peer.certificate())
    }

    /// Returns the facts about a client at an address.
    pub(super) fn new(
        address: Option<IpAddr>,
        is_encrypted: bool,
        certificate: Option<&ClientCertificate>,
    ) -> ClientFacts {
        let mut shown = FieldLines::new();
        if let Some(certificate) = certificate {
            let fields =
                [(CLIENT_CERT, certificate.field()), (CLIENT_SUBJECT, certificate.subject())];
            for (name, value) in fields {
                value.iter().for_each(|value| shown.push(name, value.into()));
            }
        }
        // A listener on all addresses sees IPv4 clients as IPv6 clients.
        let address = address.map(|address| address.to_canonical().to_string());
        let proto = match is_encrypted {
            true => const { FieldValue::from_static("https") },
            false => const { FieldValue::from_static("http") },
        };
        let mut usual = FieldLines::new();
        address.iter().for_each(|address| usual.push(FORWARDED_FOR, text(address)));
        usual.push(FORWARDED_PROTO, proto);
        ClientFacts { address, proto, usual, certificate: shown }
    }
}

/// The head of a request as its client has sent it.
#[derive(Clone, Copy, Debug)]
pub struct ClientHead<'a> {
    pub(crate) method: Method<'a>,
    pub(crate) version: Version,
    /// The target without scheme and host.
    pub(crate) target: Target<'a>,
    /// The host that was asked for. Only HTTP/1.0 allows that there is none.
    pub(crate) host: Option<FieldValue<'a>>,
    pub(crate) fields: Fields<'a>,
    /// The extent of the body as the server gets it.
    pub(crate) framing: Framing,
    /// Fields may follow the body.
    pub(crate) may_have_trailers: bool,
    /// The client reads fields that follow the body of the response.
    pub(crate) takes_trailers: bool,
    /// The client waits for an invitation to send the body.
    pub(crate) continues: bool,
    /// `Connection` may name fields.
    pub(crate) names_fields: bool,
    /// The protocols that it asks for instead of HTTP.
    pub(crate) upgrade: Option<FieldValue<'a>>,
}

impl<'a> From<&RequestHead<'a>> for ClientHead<'a> {
    #[inline]
    fn from(head: &RequestHead<'a>) -> ClientHead<'a> {
        ClientHead {
            method: head.method,
            version: match head.version {
                Http1Version::Http10 => Version::HTTP_10,
                Http1Version::Http11 => Version::HTTP_11,
            },
            target: head.target.to_origin(head.method),
            host: head.host.map(|host| host.to_value()),
            fields: Fields::Lines(head.fields),
            framing: head.framing,
            may_have_trailers: head.framing == Framing::Chunked,
            takes_trailers: head.wants.trailers,
            continues: head.wants.continues,
            names_fields: head.names_fields,
            upgrade: head.wants.upgrade,
        }
    }
}

impl<'a> ClientHead<'a> {
    /// Returns a head of HTTP/2. The request may be over with it.
    #[must_use]
    pub fn of_http2(head: &superpoll_http2::RequestHead<'a>, is_over: bool) -> ClientHead<'a> {
        let framing = match head.length {
            Some(length) => Framing::Length(length),
            None if is_over => Framing::None,
            None => Framing::Chunked,
        };
        ClientHead {
            method: head.method,
            version: Version::HTTP_2,
            target: head.target,
            host: Some(head.host.to_value()).filter(|host| !host.as_bytes().is_empty()),
            fields: Fields::Lines(head.fields),
            framing,
            may_have_trailers: framing == Framing::Chunked,
            takes_trailers: head.wants.trailers,
            continues: head.wants.continues,
            // No field of the connection is read.
            names_fields: false,
            upgrade: None,
        }
    }
}

/// The changes that a route makes in requests.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Changes<'a> {
    /// The host that replaces the client's.
    pub(crate) host: Option<&'a HeaderValue>,
    /// The path that is taken off.
    pub(crate) prefix: Option<&'a str>,
    /// The existing fields about clients are believed.
    pub(crate) trusts: bool,
    /// The changes of fields in the configuration, and the fields that they add, as lines.
    pub(crate) fields: Option<(&'a HeaderChanges, &'a FieldLines)>,
    /// The fields that they add with values that depend on the request.
    pub(crate) filled: &'a [(HeaderName, HeaderValue)],
    /// The id of the request and its trace.
    pub(crate) trace: Option<&'a RequestTrace>,
}

impl Changes<'_> {
    /// Whether a field of the client, whose name is in lower case, is passed on.
    #[inline(never)]
    fn passes(&self, name: &[u8]) -> bool {
        self.keeps(name) && self.trace.is_none_or(|trace| trace.passes(name))
    }

    /// Whether a field, whose name is in lower case, stays in requests.
    #[inline]
    fn keeps(&self, name: &[u8]) -> bool {
        self.fields.is_none_or(|(fields, _)| answers::keep(fields, name))
    }
}

/// Whether a name with an underscore stands for an important field to a server.
fn is_disguised(name: &[u8]) -> bool {
    let plain = || name.iter().map(|byte| if *byte == b'_' { b'-' } else { *byte });
    name.contains(&b'_') && about(&plain().collect::<Vec<_>>()) != About::Other
}

/// Returns the fields that `Connection` names, if it may name any.
#[inline]
fn named(names_fields: bool, fields: Fields<'_>) -> Named {
    if names_fields { Named::of(fields) } else { Named::default() }
}

/// Returns a value that was text before.
fn text(value: &str) -> FieldValue<'_> {
    FieldValue::new(value.as_bytes()).unwrap_or(FieldValue::from_static(""))
}

/// The fields about the client that a request has from a proxy before.
#[derive(Default)]
struct Believed {
    has_proto: bool,
    has_host: bool,
}

impl Believed {
    /// Looks at a field, and returns whether it is passed on as it is.
    fn passes(&mut self, name: &[u8], client: &ClientFacts, changes: Changes<'_>) -> bool {
        match name {
            b"x-forwarded-prefix" => return changes.prefix.is_none(),
            // They are joined.
            b"x-forwarded-for" => return client.address.is_none(),
            b"x-forwarded-proto" => self.has_proto = true,
            b"x-forwarded-host" => self.has_host = true,
            _ => {}
        }
        true
    }
}

/// The fields of a request on their way.
struct Passing<'a, 'v> {
    head: &'a ClientHead<'a>,
    client: &'a ClientFacts,
    changes: Changes<'a>,
    writer: Writer<'v>,
    believed: Believed,
    has_cookie: bool,
}

impl Passing<'_, '_> {
    /// Writes those of the client that are passed on.
    #[inline]
    fn pass<'f>(&mut self, fields: impl Iterator<Item = Field<'f>>) {
        let Passing { head, client, changes, writer, believed, has_cookie } = self;
        let passes_all = changes.fields.is_none() && changes.trace.is_none();
        let has_underscore = head.fields.may_have_underscore();
        let named = named(head.names_fields, head.fields);
        let is_named = |name: &[u8]| named.has(name);
        for Field { name, value } in fields {
            let text = name.as_bytes();
            let subject = about(text);
            let passes = match subject {
                About::Other => {
                    let is_disguised = has_underscore && is_disguised(text);
                    !is_disguised && !is_named(text)
                }
                About::Cookie => !std::mem::replace(has_cookie, true) && !is_named(text),
                About::Asker => changes.trusts && believed.passes(text, client, *changes),
                About::Trailer => head.may_have_trailers,
                // The host is there already.
                _ => false,
            };
            if !passes || !(passes_all || changes.passes(text)) {
                continue;
            }
            match subject {
                // HTTP/2 may split them, so that they compress better (RFC 9113, section 8.2.3).
                // Servers of HTTP/1.1 read one field, or join several by a comma, which no cookie
                // survives.
                About::Cookie => writer.joined(name, head.fields.checked("cookie"), SEMICOLON),
                _ => writer.field(name, value),
            }
        }
    }
}

/// Appends the head of a request, and returns the writer of its body.
pub(crate) fn request(
    head: &ClientHead<'_>,
    client: &ClientFacts,
    changes: Changes<'_>,
    to: &mut Vec<u8>,
) -> BodyWriter {
    let target = head.target;
    let taken_off = changes.prefix.and_then(|prefix| target.without_prefix(prefix));
    let host = changes.host.map(FieldValue::from).or(head.host);
    let host = host.unwrap_or(const { FieldValue::from_static("") });
    let writer = Writer::request(to, head.method, taken_off.unwrap_or(target), host);
    let believed = Believed::default();
    let mut passing = Passing { head, client, changes, writer, believed, has_cookie: false };
    match head.fields {
        Fields::Lines(lines) => passing.pass(lines.iter()),
        Fields::Map(map) => {
            passing.pass(
                map.iter().map(|(name, value)| Field { name: name.into(), value: value.into() }),
            );
        }
    }
    let Passing { mut writer, believed, .. } = passing;
    if head.takes_trailers {
        // TE is a field of the connection, and `Connection` has to name it (RFC 9110, section
        // 10.1.4).
        writer.field(TE, FieldValue::from_static("trailers"));
        writer.field(CONNECTION, FieldValue::from_static("te"));
    }
    if let Some(protocol) = head.upgrade {
        writer.field(CONNECTION, FieldValue::from_static("upgrade"));
        writer.field(UPGRADE, protocol);
    }
    if changes.trusts {
        if let Some(address) = client.address.as_ref().filter(|_| changes.keeps(b"x-forwarded-for"))
        {
            // A value that is no text is left out.
            let is_text = |value: &FieldValue<'_>| {
                let is_text = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~');
                !value.as_bytes().is_empty() && value.as_bytes().iter().all(is_text)
            };
            let before = head.fields.checked("x-forwarded-for").filter(is_text);
            writer.joined(FORWARDED_FOR, before.chain([text(address)]), COMMA);
        }
        if !believed.has_proto && changes.keeps(b"x-forwarded-proto") {
            writer.field(FORWARDED_PROTO, client.proto);
        }
    } else {
        lines::kept(
            &client.usual,
            changes.fields.is_none(),
            |name| changes.keeps(name),
            &mut writer,
        );
    }
    if let Some(host) = head.host
        && !believed.has_host
        && changes.keeps(b"x-forwarded-host")
    {
        writer.field(FORWARDED_HOST, host);
    }
    lines::kept(
        &client.certificate,
        changes.fields.is_none(),
        |name| changes.keeps(name),
        &mut writer,
    );
    if let Some(prefix) = changes.prefix.filter(|_| changes.keeps(b"x-forwarded-prefix")) {
        writer.field(FORWARDED_PREFIX, text(prefix));
    }
    if let Some(trace) = changes.trace {
        trace.forwarded(|name, value| {
            if changes.keeps(name.as_str().as_bytes()) {
                writer.field(name.into(), value.into());
            }
        });
    }
    if let Some((_, added)) = changes.fields {
        writer.lines(added);
    }
    for (name, value) in changes.filled {
        writer.field(name.into(), value.into());
    }
    writer.body(head.framing, After::Stays)
}

/// Appends the head of an interim response.
pub(crate) fn interim(head: &ResponseHead<'_>, additions: &Additions, to: &mut Vec<u8>) {
    let mut writer = begin(head, (Http1Version::Http11, Asked::default()), to);
    passed(head, additions, false, &mut writer);
    writer.interim();
}

/// The form of a response for a client.
pub(crate) struct Shape<'a> {
    pub(crate) version: Http1Version,
    pub(crate) asked: Asked,
    pub(crate) takes_trailers: bool,
    /// It is the last one on its connection.
    pub(crate) is_last: bool,
    /// The cookie by which the client comes back to the server.
    pub(crate) cookie: Option<&'a HeaderValue>,
}

/// Appends the head of a response, and returns the writer of its body.
pub(crate) fn response(
    head: &ResponseHead<'_>,
    additions: &Additions,
    shape: Shape<'_>,
    to: &mut Vec<u8>,
) -> BodyWriter {
    let Shape { version, asked, takes_trailers, is_last, cookie } = shape;
    let mut writer = begin(head, (version, asked), to);
    let Passed { has_date, has_hsts } = passed(head, additions, takes_trailers, &mut writer);
    if let Some(cookie) = cookie.filter(|_| additions.keeps(b"set-cookie")) {
        writer.field(SET_COOKIE, cookie.into());
    }
    if let Some(trace) = additions.trace.as_ref().filter(|_| additions.keeps(b"via")) {
        let version = match head.version {
            Http1Version::Http10 => Version::HTTP_10,
            Http1Version::Http11 => Version::HTTP_11,
        };
        trace.via_of_response(version, |name, value| {
            writer.field(name.into(), value.into());
        });
    }
    let hsts = additions.hsts.as_ref().filter(|_| !has_hsts);
    lines::add(additions, hsts, has_date, &mut writer);
    let framing = match (head.framing, head.length) {
        (Framing::None, Some(length)) if asked.is_head => Framing::Length(length),
        // It is not said how long a body is that nobody knows, or needs to know.
        (Framing::None | Framing::UntilClose, _) => Framing::Chunked,
        (framing, _) => framing,
    };
    writer.body(framing, if is_last { After::Closes } else { After::Stays })
}

/// Begins a response with the status of another one.
fn begin<'v>(
    head: &ResponseHead<'_>,
    (version, asked): (Http1Version, Asked),
    to: &'v mut Vec<u8>,
) -> Writer<'v> {
    let reason = Some(head.reason).filter(|reason| !reason.as_bytes().is_empty());
    let is_usual =
        head.status.canonical_reason().map(str::as_bytes) == reason.map(FieldValue::as_bytes);
    Writer::response(to, version, head.status, reason.filter(|_| !is_usual), asked)
}

/// The fields of a server's response that this server would write otherwise.
struct Passed {
    has_date: bool,
    has_hsts: bool,
}

/// Returns the fields of a response that its client gets, which may read fields that follow the
/// body.
pub(crate) fn passed_back<'f>(
    head: &ResponseHead<'f>,
    reads_trailers: bool,
) -> impl Iterator<Item = Field<'f>> {
    let named = named(head.names_fields, Fields::Lines(head.fields));
    let is_chunked = head.framing == Framing::Chunked;
    let (mut has_date, mut has_length) = (false, is_chunked);
    head.fields.iter().filter(move |Field { name, .. }| {
        let name = name.as_bytes();
        passes_back(name, &named, reads_trailers && is_chunked)
            && match name {
                // One is enough, and the first is the nearest to the origin.
                b"date" => !std::mem::replace(&mut has_date, true),
                // They are the same, and chunks have none.
                b"content-length" => !std::mem::replace(&mut has_length, true),
                _ => true,
            }
    })
}

/// Writes the fields of a response that are passed on.
fn passed(
    head: &ResponseHead<'_>,
    additions: &Additions,
    takes_trailers: bool,
    writer: &mut Writer<'_>,
) -> Passed {
    let passes_all = additions.keep_all();
    let mut found = Passed { has_date: false, has_hsts: false };
    for Field { name, value } in passed_back(head, takes_trailers) {
        let text = name.as_bytes();
        found.has_date |= text == b"date";
        found.has_hsts |= text == STRICT_TRANSPORT_SECURITY.as_str().as_bytes();
        if passes_all || additions.passes(text) {
            writer.field(name, value);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use http::uri::PathAndQuery;
    use proptest::prelude::*;
    use superpoll_http1::{Limits, Room, request as read, response as read_response};

    use super::*;
    use crate::message::{header_map, to_request};
    use crate::trace::TraceRules;
    use crate::upstream::fields::{self, host};
    use crate::upstream::request::ServerRequest;

    const CLIENT: &str = "[::ffff:192.0.2.7]:80";

    const PLAIN: Changes<'_> =
        Changes { host: None, prefix: None, trusts: false, fields: None, filled: &[], trace: None };

    /// The first line of a head, and its fields in the order of their names.
    type Written = (String, Vec<(String, String)>);

    fn parsed(lines: &[u8]) -> Written {
        let text: String = lines.iter().map(|byte| char::from(*byte)).collect();
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap().to_owned();
        let fields = lines.take_while(|line| !line.is_empty());
        let mut fields: Vec<_> = fields
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        fields.sort();
        (first, fields)
    }

    /// Returns what a server gets of a request: the same of a head where it was read, of a map of
    /// fields, and by HTTP/2 but for the fields that HTTP/2 does not have.
    fn forwarded(text: &str, client: &ClientFacts, changes: Changes<'_>) -> Option<Written> {
        let mut scratch = Vec::new();
        let mut room = Room::new(&mut scratch);
        let read = read(text.as_bytes(), &Limits::DEFAULT, &mut room).ok()??;
        let head = ClientHead::from(&read);
        let mut lines = Vec::new();
        let writer = request(&head, client, changes, &mut lines);
        let made = to_request(&read, text.as_bytes(), ()).unwrap();
        let host = host(made.uri(), made.headers());
        let of_map = ClientHead {
            host: host.as_ref().map(FieldValue::from),
            fields: Fields::Map(made.headers()),
            names_fields: made.headers().contains_key("connection"),
            ..head
        };
        let mut whole = Vec::new();
        let its_writer = request(&of_map, client, changes, &mut whole);
        let (written, by_map) = (parsed(&lines), parsed(&whole));
        assert_eq!(written, by_map, "{text}");
        assert_eq!(writer, its_writer);
        let len = whole.len();
        let whole = ServerRequest::new(whole, len, Asked::default(), Default::default());
        let by_h2 = whole.to_h2(true).unwrap();
        let target = by_h2.uri().path_and_query().map_or("", PathAndQuery::as_str);
        assert_eq!(written.0, format!("{} {target} HTTP/1.1", by_h2.method()));
        assert_eq!(by_h2.uri().scheme_str(), Some("https"));
        let value =
            |value: &HeaderValue| value.as_bytes().iter().map(|it| char::from(*it)).collect();
        let fields = by_h2.headers().iter().map(|(name, it)| (name.to_string(), value(it)));
        let host = ("host".to_owned(), by_h2.uri().authority().unwrap().to_string());
        let mut fields: Vec<(String, String)> = fields.chain([host]).collect();
        fields.sort();
        let is_gone = |name: &str| ["connection", "transfer-encoding", "upgrade"].contains(&name);
        let left = written.1.iter().filter(|(name, _)| !is_gone(name));
        // A value ends with no blank there (RFC 9113, section 8.2.1).
        let left = left.map(|(name, value)| (name.clone(), value.trim_end().to_owned()));
        assert_eq!(fields, left.collect::<Vec<_>>(), "{text}");
        Some(written)
    }

    fn facts(is_encrypted: bool) -> ClientFacts {
        let client = Some(CLIENT.parse().unwrap());
        ClientFacts::from_peer(&Peer { client, is_encrypted, ..Peer::default() })
    }

    /// Returns the fields of a forwarded GET with these fields.
    fn fields_of(fields: &str, changes: Changes<'_>) -> Vec<(String, String)> {
        let text = format!("GET / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n\r\n");
        forwarded(&text, &facts(true), changes).unwrap().1
    }

    fn values(fields: &[(String, String)], name: &str) -> Vec<String> {
        let of_name = fields.iter().filter(|(one, _)| one == name);
        of_name.map(|(_, value)| value.clone()).collect()
    }

    #[test]
    fn fields_of_the_connection_stay_there() {
        let fields = [
            "Content-Length: 3",
            "Connection: close, X-Own , host, content-length",
            "X-Own: 1",
            "Close: stays",
            "Keep-Alive: timeout=5",
            "TE: gzip, trailers",
            "Upgrade: websocket",
            "Proxy: http://evil",
            "X_Forwarded_For: 6.6.6.6",
            "Content_Length: 9",
            "My_Field: stays",
            "X-Real-IP: 6.6.6.6",
            "X-Forwarded-Ssl: on",
            "Front-End-Https: on",
            "x_forwarded_ssl: on",
            "True-Client-IP: 6.6.6.6",
        ];
        let fields = fields_of(&fields.join("\r\n"), PLAIN);
        let expected = [
            ("close", "stays"),
            ("connection", "te"),
            ("content-length", "3"),
            ("host", "a.example"),
            ("my_field", "stays"),
            ("te", "trailers"),
            ("x-forwarded-for", "192.0.2.7"),
            ("x-forwarded-host", "a.example"),
            ("x-forwarded-proto", "https"),
        ];
        assert_eq!(fields, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn nobody_forges_the_certificate_of_a_client() {
        for trusts in [true, false] {
            let names = ["Client-Cert", "Client-Cert-Chain", "X-Client-Subject", "client_cert"];
            let lines = names.map(|name| format!("{name}: :AAAA:\r\n")).concat();
            let fields = fields_of(&(lines + "X-Other: stays"), Changes { trusts, ..PLAIN });
            assert!(fields.iter().all(|(name, _)| !name.contains("client")), "{fields:?}");
            assert_eq!(values(&fields, "x-other"), ["stays"]);
        }
    }

    #[test]
    fn cookies_are_joined_as_servers_read_them() {
        for (fields, joined) in [
            (&["a=1"][..], &["a=1"][..]),
            (&["a=1", "b=2", "c=3"], &["a=1; b=2; c=3"]),
            (&["a=1; b=2", "c=\"x,y\""], &["a=1; b=2; c=\"x,y\""]),
            (&[], &[]),
        ] {
            let cookies = fields.iter().map(|value| format!("\r\nCookie: {value}"));
            let lines = "Accept: a\r\nAccept: b".to_owned() + &cookies.collect::<String>();
            let fields = fields_of(&lines, PLAIN);
            assert_eq!(values(&fields, "cookie"), joined);
            // The parts of list fields other than `cookie` stay apart.
            assert_eq!(values(&fields, "accept"), ["a", "b"]);
        }
    }

    #[test]
    fn trusted_forwarding_fields_are_extended() {
        let lines = "X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-Proto: http\r\n\
            Forwarded: for=1.1.1.1\r\nX-Forwarded-For: 2.2.2.2";
        let fields = fields_of(lines, Changes { trusts: true, ..PLAIN });
        assert_eq!(values(&fields, "x-forwarded-for"), ["1.1.1.1, 2.2.2.2, 192.0.2.7"]);
        assert_eq!(values(&fields, "x-forwarded-proto"), ["http"]);
        assert_eq!(values(&fields, "forwarded"), ["for=1.1.1.1"]);
        let fields = fields_of(lines, PLAIN);
        assert_eq!(values(&fields, "x-forwarded-for"), ["192.0.2.7"]);
        assert_eq!(values(&fields, "x-forwarded-proto"), ["https"]);
        assert!(values(&fields, "forwarded").is_empty());
    }

    #[test]
    fn a_path_is_taken_off() {
        for (target, prefix, expected) in [
            ("/a/b?c", None, "/a/b?c"),
            ("http://x/a/b?c", None, "/a/b?c"),
            ("http://x", None, "/"),
            ("http://x?c", None, "/?c"),
            ("/a/b?c", Some("/a"), "/b?c"),
            ("/a?c", Some("/a"), "/?c"),
            ("/a", Some("/a"), "/"),
        ] {
            let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            let (first, _) = forwarded(&text, &facts(true), Changes { prefix, ..PLAIN }).unwrap();
            assert_eq!(first, format!("GET {expected} HTTP/1.1"));
        }
    }

    /// A request of HTTP/1.0 may name no host, and HTTP/1.1 requires one.
    #[test]
    fn a_server_is_the_host_where_none_was_named() {
        let (headers, address) = (http::HeaderMap::new(), "127.0.0.1:80".parse().unwrap());
        let own = HeaderValue::from_static("own");
        for (said, set, expected) in [
            (None, None, "host: 127.0.0.1:80"),
            (Some("b"), None, "host: b"),
            (None, Some(&own), "host: own"),
        ] {
            let head = ClientHead {
                method: Method::Get,
                version: Version::HTTP_10,
                target: Target::new(Method::Get, "/").unwrap(),
                host: said.map(FieldValue::from_static),
                fields: Fields::Map(&headers),
                framing: Framing::None,
                may_have_trailers: false,
                takes_trailers: false,
                continues: false,
                names_fields: false,
                upgrade: None,
            };
            let changes = Changes { host: set, ..PLAIN };
            let mut lines = Vec::new();
            let _ = request(&head, &facts(false), changes, &mut lines);
            let (len, lacks_host) = (lines.len(), set.is_none() && said.is_none());
            let own = ServerRequest::new(lines, len, Asked::default(), Default::default());
            let mut request = ServerRequest { lacks_host, ..own };
            // The second of two attempts may have another server.
            request.name_server(&"10.0.0.1:8080".parse().unwrap());
            request.name_server(&address);
            assert_eq!(request.head, request.bytes.len());
            let lines = String::from_utf8(request.bytes).unwrap();
            assert_eq!(lines.lines().nth(1), Some(expected));
            assert_eq!(lines.contains("x-forwarded-host"), said.is_some());
        }
    }

    const NAMES: [&str; 34] = [
        "Accept",
        "Cookie",
        "cookie",
        "Connection",
        "connection",
        "TE",
        "Trailer",
        "Upgrade",
        "Keep-Alive",
        "Proxy",
        "Proxy-Connection",
        "Expect",
        "X-Own",
        "X-Other",
        "x_own",
        "Close",
        "X-Forwarded-For",
        "x-forwarded-for",
        "X-Forwarded-Proto",
        "X-Forwarded-Host",
        "Forwarded",
        "X-Forwarded-Prefix",
        "X-Real-IP",
        "X_Forwarded_For",
        "x_client_ip",
        "content_length",
        "Client-Cert",
        "x_client_subject",
        "Via",
        "traceparent",
        "tracestate",
        "X-Request-Id",
        "x_request_id",
        "Gone",
    ];

    const VALUES: [&str; 17] = [
        "",
        "a",
        "a, b",
        "close",
        "keep-alive, X-Own",
        "close, x-own ,cookie",
        "x_own",
        "host, te",
        "trailers",
        "gzip, trailers",
        "1.2.3.4",
        "\u{e9}",
        "https",
        "1.1 gate",
        "x-forwarded-for",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "websocket",
    ];

    fn a_field() -> impl Strategy<Value = String> {
        let (names, values) = (prop::sample::select(&NAMES[..]), prop::sample::select(&VALUES[..]));
        (names, values).prop_map(|(name, value)| format!("{name}: {value}\r\n"))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// A head means the same where it was read and as a map of fields.
        #[test]
        fn a_request_is_forwarded_alike_from_lines_and_from_a_map(
            fields in prop::collection::vec(a_field(), 0..9),
            target in prop::sample::select(vec!["/p/a?b", "/a", "http://b/p?x", "http://b?x", "/p"]),
            version in prop::sample::select(vec!["1.0", "1.1"]),
            body in prop::sample::select(vec![
                "",
                "Content-Length: 3\r\n",
                "Transfer-Encoding: chunked\r\n",
            ]),
            (trusts, has_prefix, has_host) in any::<(bool, bool, bool)>(),
            (has_changes, has_trace, is_encrypted) in any::<(bool, bool, bool)>(),
        ) {
            let text = format!(
                "POST {target} HTTP/{version}\r\nHost: h\r\n{body}{}\r\n",
                fields.concat()
            );
            let config = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\n\
                redirect = { to = \"/\" }\n[tracing]\n\
                request_id = true\ntrace = true\nvia = \"gate\"\n";
            let config = superpoll_config::Config::parse("test", config).unwrap();
            let none = http::HeaderMap::new();
            let rules = TraceRules::new(&config.tracing);
            let trace = has_trace.then(|| rules.begin(None, Version::HTTP_11, (&none).into()));
            let fields = HeaderChanges {
                removed: ["gone", "x-forwarded-host"].map(HeaderName::from_static).into(),
                added: vec![(HeaderName::from_static("gone"), HeaderValue::from_static("new"))],
                templates: Vec::new(),
            };
            let filled = [(HeaderName::from_static("made"), HeaderValue::from_static("here"))];
            let added = answers::lines(&fields);
            let host = HeaderValue::from_static("own");
            let changes = Changes {
                host: has_host.then_some(&host),
                prefix: has_prefix.then_some("/p"),
                trusts,
                fields: has_changes.then_some((&fields, &added)),
                filled: if has_changes { &filled } else { &[] },
                trace: trace.as_deref(),
            };
            forwarded(&text, &facts(is_encrypted), changes);
        }

        /// So does the head of a response.
        #[test]
        fn a_response_is_passed_on_alike_from_lines_and_from_a_map(
            fields in prop::collection::vec(a_field(), 0..9),
            body in prop::sample::select(vec![
                "",
                "Content-Length: 3\r\nContent-Length: 3\r\n",
                "Transfer-Encoding: chunked\r\n",
                "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
            ]),
            takes_trailers in any::<bool>(),
        ) {
            let fields = fields.concat();
            let text = format!("HTTP/1.1 200 OK\r\nDate: 1\r\nDate: 2\r\n{body}{fields}\r\n");
            let (mut scratch, asked) = (Vec::new(), Asked::default());
            let mut room = Room::new(&mut scratch);
            let read = read_response(text.as_bytes(), asked, &Limits::DEFAULT, &mut room);
            let read = read.unwrap().unwrap();
            let (version, additions) = (Http1Version::Http11, Additions::default());
            let shape = Shape { version, asked, takes_trailers, is_last: false, cookie: None };
            let mut lines = Vec::new();
            let _ = response(read.head(), &additions, shape, &mut lines);
            let (mut parts, ()) = http::Response::new(()).into_parts();
            parts.headers = header_map(read.head().fields.iter(), text.as_bytes());
            fields::response(&mut parts, (takes_trailers, false)).unwrap();
            let value = |value: &HeaderValue| value.as_bytes().iter().map(|it| char::from(*it)).collect();
            // A client that gets a map gets these at once.
            let passed = passed_back(read.head(), takes_trailers);
            prop_assert_eq!(&header_map(passed, text.as_bytes()), &parts.headers);
            let by_map = parts.headers.iter().map(|(name, it)| (name.to_string(), value(it)));
            let mut by_map: Vec<(String, String)> = by_map.collect();
            by_map.sort();
            let mut by_lines = parsed(&lines).1;
            // The connection with the client has framing of its own.
            let is_framing = |name: &str| ["content-length", "transfer-encoding"].contains(&name);
            by_map.retain(|(name, _)| !is_framing(name));
            by_lines.retain(|(name, _)| !is_framing(name));
            prop_assert_eq!(values(&by_map, "date"), ["1"]);
            prop_assert_eq!(by_lines, by_map, "{}", text);
        }
    }
}
