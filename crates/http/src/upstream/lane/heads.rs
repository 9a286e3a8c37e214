//! Writing the heads that are passed on.
//!
//! The fields that are left out and added are those of other requests (`fields`).

use http::header::STRICT_TRANSPORT_SECURITY;
use http::{HeaderValue, StatusCode, Version};
use superpoll_config::HeaderChanges;
use superpoll_http1::{
    After, Asked, BodyWriter, Field, FieldLines, FieldName, FieldValue, Fields, Framing,
    RequestHead, ResponseHead, Version as Http1Version, Writer,
};

use crate::answers::{self, Additions};
use crate::message::write_date;
use crate::peer::Peer;
use crate::trace::RequestTrace;
use crate::upstream::fields::{About, about, of_certificate};

const CONNECTION: FieldName<'_> = FieldName::from_static("connection");
const FORWARDED_FOR: FieldName<'_> = FieldName::from_static("x-forwarded-for");
const FORWARDED_HOST: FieldName<'_> = FieldName::from_static("x-forwarded-host");
const FORWARDED_PREFIX: FieldName<'_> = FieldName::from_static("x-forwarded-prefix");
const FORWARDED_PROTO: FieldName<'_> = FieldName::from_static("x-forwarded-proto");
const LINK: FieldName<'_> = FieldName::from_static("link");
const SET_COOKIE: FieldName<'_> = FieldName::from_static("set-cookie");
const TE: FieldName<'_> = FieldName::from_static("te");

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
    /// Returns the facts about a client.
    pub fn from_peer(peer: &Peer) -> ClientFacts {
        let certificate = peer.certificate().into_iter().flat_map(of_certificate);
        let mut lines = FieldLines::new();
        certificate.for_each(|(name, text)| lines.push((&name).into(), (&text).into()));
        // A listener on all addresses sees IPv4 clients as IPv6 clients.
        let address = peer.client.map(|client| client.ip().to_canonical().to_string());
        let proto = match peer.is_encrypted {
            true => const { FieldValue::from_static("https") },
            false => const { FieldValue::from_static("http") },
        };
        let mut usual = FieldLines::new();
        address.iter().for_each(|address| usual.push(FORWARDED_FOR, text(address)));
        usual.push(FORWARDED_PROTO, proto);
        ClientFacts { address, proto, usual, certificate: lines }
    }
}

/// The changes that a route makes in requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changes<'a> {
    /// The host that replaces the client's.
    pub(crate) host: Option<&'a HeaderValue>,
    /// The path that is taken off.
    pub(crate) prefix: Option<&'a str>,
    /// The existing fields about clients are believed.
    pub(crate) trusts: bool,
    /// The changes of fields in the configuration, and the fields that they add, as lines.
    pub(crate) fields: Option<(&'a HeaderChanges, &'a FieldLines)>,
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

/// Whether `Connection` names a field, which belongs to the connection then. It cannot remove a
/// field that a message needs to be understood (`fields`).
#[cold]
fn is_named(fields: Fields<'_>, name: &[u8]) -> bool {
    let mut values = fields.values("connection");
    values.any(|value| value.elements().any(|option| option.eq_ignore_ascii_case(name)))
}

/// Whether a name with an underscore stands for an important field to a server.
fn is_disguised(name: &[u8]) -> bool {
    let plain = || name.iter().map(|byte| if *byte == b'_' { b'-' } else { *byte });
    name.contains(&b'_') && about(&plain().collect::<Vec<_>>()) != About::Other
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

/// Appends the head of a request, and returns the writer of its body.
pub(crate) fn request(
    head: &RequestHead<'_>,
    client: &ClientFacts,
    changes: Changes<'_>,
    to: &mut Vec<u8>,
) -> BodyWriter {
    let target = head.target.to_origin(head.method);
    let taken_off = changes.prefix.and_then(|prefix| target.without_prefix(prefix));
    let asked_for = head.host.map_or(const { FieldValue::from_static("") }, |host| host.to_value());
    let host = changes.host.map_or(asked_for, FieldValue::from);
    let mut writer = Writer::request(to, head.method, taken_off.unwrap_or(target), host);
    let mut believed = Believed::default();
    let passes_all = changes.fields.is_none() && changes.trace.is_none();
    let is_named = |name: &[u8]| head.names_fields && is_named(head.fields, name);
    let mut has_cookie = false;
    for Field { name, value } in head.fields.iter() {
        let text = name.as_bytes();
        let subject = about(text);
        let passes = match subject {
            About::Other => {
                let is_disguised = head.fields.has_underscore() && is_disguised(text);
                !is_disguised && !is_named(text)
            }
            About::Cookie => !std::mem::replace(&mut has_cookie, true) && !is_named(text),
            About::Asker => changes.trusts && believed.passes(text, client, changes),
            About::Trailer => head.framing == Framing::Chunked,
            // The host is there already.
            _ => false,
        };
        if !passes || !(passes_all || changes.passes(text)) {
            continue;
        }
        match subject {
            // Servers read one field, or join several by a comma, which no cookie survives.
            About::Cookie => writer.joined(name, head.fields.values("cookie"), SEMICOLON),
            _ => writer.field(name, value),
        }
    }
    if head.wants.trailers {
        // TE is a field of the connection, and `Connection` has to name it (RFC 9110, section
        // 10.1.4).
        writer.field(TE, FieldValue::from_static("trailers"));
        writer.field(CONNECTION, FieldValue::from_static("te"));
    }
    if changes.trusts {
        if let Some(address) = client.address.as_ref().filter(|_| changes.keeps(b"x-forwarded-for"))
        {
            // A value that is no text is left out.
            let is_text = |value: &FieldValue<'_>| {
                let is_text = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~');
                !value.as_bytes().is_empty() && value.as_bytes().iter().all(is_text)
            };
            let before = head.fields.values("x-forwarded-for").filter(is_text);
            writer.joined(FORWARDED_FOR, before.chain([text(address)]), COMMA);
        }
        if !believed.has_proto && changes.keeps(b"x-forwarded-proto") {
            writer.field(FORWARDED_PROTO, client.proto);
        }
    } else {
        kept(&client.usual, changes.fields.is_none(), |name| changes.keeps(name), &mut writer);
    }
    if !believed.has_host && changes.keeps(b"x-forwarded-host") {
        writer.field(FORWARDED_HOST, asked_for);
    }
    kept(&client.certificate, changes.fields.is_none(), |name| changes.keeps(name), &mut writer);
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
    add(additions, hsts, has_date, &mut writer);
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

/// Writes the fields of a response that are passed on.
fn passed(
    head: &ResponseHead<'_>,
    additions: &Additions,
    takes_trailers: bool,
    writer: &mut Writer<'_>,
) -> Passed {
    let passes_all = additions.keep_all();
    let is_named = |name: &[u8]| head.names_fields && is_named(head.fields, name);
    let mut found = Passed { has_date: false, has_hsts: false };
    for Field { name, value } in head.fields.iter() {
        let text = name.as_bytes();
        let passes = match about(text) {
            About::Cookie | About::Other => !is_named(text),
            About::Asker => true,
            About::Message => text == b"host",
            About::Trailer => takes_trailers && head.framing == Framing::Chunked,
            _ => false,
        };
        if !passes {
            continue;
        }
        match text {
            // One is enough, and the first is the nearest to the origin.
            b"date" if std::mem::replace(&mut found.has_date, true) => continue,
            _ if text == STRICT_TRANSPORT_SECURITY.as_str().as_bytes() => found.has_hsts = true,
            _ => {}
        }
        if passes_all || additions.passes(text) {
            writer.field(name, value);
        }
    }
    found
}

/// Appends the head of a response with so many bytes, whose fields are `lines`.
pub(crate) fn ready(
    (status, lines, length): (StatusCode, &FieldLines, u64),
    additions: &Additions,
    (version, asked, is_last): (Http1Version, Asked, bool),
    to: &mut Vec<u8>,
) -> BodyWriter {
    let mut writer = Writer::response(to, version, status, None, asked);
    kept(lines, additions.rules.is_none(), |name| additions.keeps(name), &mut writer);
    add(additions, additions.hsts.as_ref(), false, &mut writer);
    let framing = match status {
        // It need not be told.
        StatusCode::NOT_MODIFIED => Framing::None,
        _ => Framing::Length(length),
    };
    writer.body(framing, if is_last { After::Closes } else { After::Stays })
}

/// Writes the fields of some lines that stay, by their names.
#[inline]
fn kept(
    lines: &FieldLines,
    keeps_all: bool,
    keeps: impl Fn(&[u8]) -> bool,
    writer: &mut Writer<'_>,
) {
    if keeps_all {
        return writer.lines(lines);
    }
    for Field { name, value } in lines.iter().filter(|field| keeps(field.name.as_bytes())) {
        writer.field(name, value);
    }
}

/// Writes the fields of a response that are ours.
fn add(additions: &Additions, hsts: Option<&HeaderValue>, has_date: bool, to: &mut Writer<'_>) {
    if let Some(link) = additions.link.as_ref().filter(|_| additions.keeps(b"link")) {
        to.field(LINK, link.into());
    }
    if let Some(hsts) = hsts.filter(|_| additions.keeps(b"strict-transport-security")) {
        to.field((&STRICT_TRANSPORT_SECURITY).into(), hsts.into());
    }
    if let Some(lines) = additions.lines() {
        let replaces = |name: &[u8]| additions.trace.as_ref().is_some_and(|it| it.replaces(name));
        kept(lines, additions.trace.is_none(), |name| !replaces(name), to);
    }
    if let Some(trace) = &additions.trace {
        trace.mark_of_response(|name, value| to.field(name.into(), value.into()));
    }
    if !has_date {
        write_date(to);
    }
}
