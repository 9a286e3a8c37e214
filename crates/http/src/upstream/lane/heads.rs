//! Writing the heads that are passed on.
//!
//! No byte is copied unchecked: names are tokens and values have no control characters, which
//! httparse has seen to, and everything else is written again. The fields that are left out and
//! added are those of the way through hyper (`fields`).

use std::cell::RefCell;
use std::io::Write;
use std::time::SystemTime;

use http::header::STRICT_TRANSPORT_SECURITY;
use http::{HeaderValue, Version};
use superpoll_config::HeaderChanges;

use super::body::Length;
use super::request::RequestHead;
use super::response::ResponseHead;
use crate::answers::{self, Additions};
use crate::peer::Peer;
use crate::trace::RequestTrace;
use crate::upstream::fields::{About, about, of_certificate};

/// The facts that servers are told about a client, which are the same for all requests of its
/// connection.
#[derive(Debug)]
pub struct ClientFacts {
    address: Option<String>,
    proto: &'static str,
    /// The fields about the client's certificate.
    certificate: Vec<u8>,
}

impl ClientFacts {
    /// Returns the facts about a client.
    pub fn from_peer(peer: &Peer) -> ClientFacts {
        let mut certificate = Vec::new();
        for (name, text) in peer.certificate().into_iter().flat_map(of_certificate) {
            field(name.as_str().as_bytes(), text.as_bytes(), &mut certificate);
        }
        ClientFacts {
            // A listener on all addresses sees IPv4 clients as IPv6 clients.
            address: peer.client.map(|client| client.ip().to_canonical().to_string()),
            proto: if peer.is_encrypted { "https" } else { "http" },
            certificate,
        }
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
    pub(crate) fields: Option<(&'a HeaderChanges, &'a [u8])>,
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

fn value(value: &[u8], to: &mut Vec<u8>) {
    to.extend_from_slice(b": ");
    to.extend_from_slice(value);
    to.extend_from_slice(b"\r\n");
}

fn field(name: &[u8], text: &[u8], to: &mut Vec<u8>) {
    to.extend_from_slice(name);
    value(text, to);
}

/// The fields about the client that a request has from a proxy before.
#[derive(Default)]
struct Believed {
    addresses: Vec<u8>,
    has_addresses: bool,
    has_proto: bool,
    has_host: bool,
}

impl Believed {
    /// Looks at a field, and returns whether it is passed on as it is.
    fn passes(
        &mut self,
        name: &[u8],
        value: &[u8],
        (client, changes): (&ClientFacts, Changes<'_>),
    ) -> bool {
        match name {
            b"x-forwarded-prefix" if changes.prefix.is_some() => return false,
            b"x-forwarded-for" if client.address.is_some() => {
                // A value that is no text is left out.
                if value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~')) {
                    if self.has_addresses {
                        self.addresses.extend_from_slice(b", ");
                    }
                    self.addresses.extend_from_slice(value);
                    self.has_addresses = true;
                }
                return false;
            }
            b"x-forwarded-proto" => self.has_proto = true,
            b"x-forwarded-host" => self.has_host = true,
            _ => {}
        }
        true
    }
}

/// Appends the head of a request.
pub(crate) fn request(
    head: &RequestHead<'_, '_>,
    client: &ClientFacts,
    changes: Changes<'_>,
    to: &mut Vec<u8>,
) {
    to.extend_from_slice(head.method.as_str().as_bytes());
    to.push(b' ');
    let taken_off = changes.prefix.and_then(|prefix| head.target.strip_prefix(prefix));
    let target = taken_off.unwrap_or(head.target);
    if !target.starts_with('/') {
        to.push(b'/');
    }
    to.extend_from_slice(target.as_bytes());
    to.extend_from_slice(b" HTTP/1.1\r\n");
    field(b"host", changes.host.map_or(head.host, HeaderValue::as_bytes), to);
    let mut believed = Believed::default();
    let passes_all = changes.fields.is_none() && changes.trace.is_none();
    for (name, value) in head.fields.iter().map(|one| (head.names.lower(one), one.value)) {
        // The host is there already, and the length follows.
        let passes = match about(name) {
            About::Cookie | About::Other => true,
            About::Asker => changes.trusts && believed.passes(name, value, (client, changes)),
            _ => false,
        };
        if passes && (passes_all || changes.passes(name)) {
            field(name, value, to);
        }
    }
    match head.length {
        Length::None => {}
        Length::Known(length) => {
            let _ = write!(to, "content-length: {length}\r\n");
        }
        Length::Chunked => to.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
    if let Some(address) = client.address.as_ref().filter(|_| changes.keeps(b"x-forwarded-for")) {
        to.extend_from_slice(b"x-forwarded-for: ");
        if !believed.addresses.is_empty() {
            to.extend_from_slice(&believed.addresses);
            to.extend_from_slice(b", ");
        }
        to.extend_from_slice(address.as_bytes());
        to.extend_from_slice(b"\r\n");
    }
    if !believed.has_proto && changes.keeps(b"x-forwarded-proto") {
        field(b"x-forwarded-proto", client.proto.as_bytes(), to);
    }
    if !believed.has_host && changes.keeps(b"x-forwarded-host") {
        field(b"x-forwarded-host", head.host, to);
    }
    match changes.fields.is_some() {
        true => kept_lines(&client.certificate, |name| changes.keeps(name), to),
        false => to.extend_from_slice(&client.certificate),
    }
    if let Some(prefix) = changes.prefix.filter(|_| changes.keeps(b"x-forwarded-prefix")) {
        field(b"x-forwarded-prefix", prefix.as_bytes(), to);
    }
    if let Some(trace) = changes.trace {
        let mut lines = Vec::with_capacity(256);
        trace.write_forwarded(&mut lines);
        kept_lines(&lines, |name| changes.keeps(name), to);
    }
    if let Some((_, added)) = changes.fields {
        to.extend_from_slice(added);
    }
    to.extend_from_slice(b"\r\n");
}

/// Appends the head of a response, which `is_last` makes the connection's last.
pub(crate) fn response(
    head: &ResponseHead<'_, '_>,
    additions: &Additions,
    is_last: bool,
    to: &mut Vec<u8>,
) {
    to.extend_from_slice(b"HTTP/1.1 ");
    to.extend_from_slice(head.status.as_str().as_bytes());
    to.push(b' ');
    to.extend_from_slice(head.status.canonical_reason().unwrap_or_default().as_bytes());
    to.extend_from_slice(b"\r\n");
    let mut hsts = additions.hsts.as_ref();
    let passes_all = additions.keep_all();
    for (name, value) in head.fields.iter().map(|one| (head.names.lower(one), one.value)) {
        if !matches!(about(name), About::Asker | About::Cookie | About::Other) {
            continue;
        }
        if name == STRICT_TRANSPORT_SECURITY.as_str().as_bytes() {
            hsts = None;
        }
        if passes_all || additions.passes(name) {
            field(name, value, to);
        }
    }
    match (head.length, head.said) {
        (Length::Chunked, _) => to.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        (_, Some(length)) => field(b"content-length", length, to),
        (_, None) => {}
    }
    if let Some(trace) = additions.trace.as_ref().filter(|_| additions.keeps(b"via")) {
        trace.write_via(Version::HTTP_11, to);
    }
    end(additions, hsts, (head.has_date, is_last), to);
}

/// Appends the head of a response with a file, whose fields are `lines`.
pub(crate) fn file(lines: &[u8], additions: &Additions, is_last: bool, to: &mut Vec<u8>) {
    to.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    match additions.rules.is_some() {
        true => kept_lines(lines, |name| additions.keeps(name), to),
        false => to.extend_from_slice(lines),
    }
    end(additions, additions.hsts.as_ref(), (false, is_last), to);
}

/// Appends the lines of fields that stay, by their names.
#[inline(never)]
fn kept_lines(lines: &[u8], keeps: impl Fn(&[u8]) -> bool, to: &mut Vec<u8>) {
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let name = line.split(|byte| *byte == b':').next().unwrap_or(line);
        if keeps(name) {
            to.extend_from_slice(line);
        }
    }
}

/// Appends the fields that are ours, and the end of a head.
fn end(
    additions: &Additions,
    hsts: Option<&HeaderValue>,
    (has_date, is_last): (bool, bool),
    to: &mut Vec<u8>,
) {
    if let Some(link) = additions.link.as_ref().filter(|_| additions.keeps(b"link")) {
        field(b"link", link.as_bytes(), to);
    }
    if let Some(hsts) = hsts.filter(|_| additions.keeps(b"strict-transport-security")) {
        field(b"strict-transport-security", hsts.as_bytes(), to);
    }
    match &additions.trace {
        None if additions.rules.is_some() => to.extend_from_slice(additions.lines()),
        None => {}
        Some(trace) => {
            kept_lines(additions.lines(), |name| !trace.replaces(name), to);
            trace.write_mark(to);
        }
    }
    if !has_date {
        date(to);
    }
    if is_last {
        to.extend_from_slice(b"connection: close\r\n");
    }
    to.extend_from_slice(b"\r\n");
}

/// Appends the time, which is written once a second.
fn date(to: &mut Vec<u8>) {
    thread_local! {
        static LAST: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
    }
    let now = SystemTime::now();
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    LAST.with_borrow_mut(|(at, text)| {
        if *at != seconds || text.is_empty() {
            (*at, *text) = (seconds, httpdate::fmt_http_date(now));
        }
        to.extend_from_slice(b"date: ");
        to.extend_from_slice(text.as_bytes());
        to.extend_from_slice(b"\r\n");
    });
}
