//! Writing the heads that are passed on.
//!
//! No byte is copied unchecked: names are tokens and values have no control characters, which
//! httparse has seen to, and everything else is written anew. The fields that are left out and added
//! are those of the way through hyper (`fields`).

use std::cell::RefCell;
use std::io::Write;
use std::net::IpAddr;
use std::time::SystemTime;

use http::HeaderValue;

use super::request::RequestHead;
use super::response::{Length, ResponseHead};
use crate::upstream::fields::{About, about};

/// The facts that servers are told about a client, which are the same for all requests of its
/// connection.
pub(crate) fn forwarded(client: Option<IpAddr>, is_encrypted: bool) -> Vec<u8> {
    let mut fields = Vec::with_capacity(96);
    if let Some(client) = client {
        // A listener on all addresses sees IPv4 clients as IPv6 clients.
        let _ = write!(fields, "x-forwarded-for: {}\r\n", client.to_canonical());
    }
    fields.extend_from_slice(match is_encrypted {
        true => b"x-forwarded-proto: https\r\n",
        false => b"x-forwarded-proto: http\r\n",
    });
    fields
}

/// Appends a name in lower case and returns its subject.
fn name(name: &str, to: &mut Vec<u8>) -> About {
    let start = to.len();
    to.extend_from_slice(name.as_bytes());
    to[start..].make_ascii_lowercase();
    // A token is ASCII.
    std::str::from_utf8(&to[start..]).map_or(About::Connection, about)
}

fn value(value: &[u8], to: &mut Vec<u8>) {
    to.extend_from_slice(b": ");
    to.extend_from_slice(value);
    to.extend_from_slice(b"\r\n");
}

/// Appends the head of a request. `host` takes the place of the client's.
pub(crate) fn request(
    head: &RequestHead<'_, '_>,
    forwarded: &[u8],
    host: Option<&HeaderValue>,
    to: &mut Vec<u8>,
) {
    to.extend_from_slice(if head.is_head { b"HEAD " } else { b"GET " });
    to.extend_from_slice(head.target.as_bytes());
    to.extend_from_slice(b" HTTP/1.1\r\nhost");
    value(host.map_or(head.host, HeaderValue::as_bytes), to);
    for field in head.fields {
        let start = to.len();
        match name(field.name, to) {
            About::Cookie | About::Other => value(field.value, to),
            // The host is there already, and a body is not.
            _ => to.truncate(start),
        }
    }
    to.extend_from_slice(forwarded);
    to.extend_from_slice(b"x-forwarded-host");
    value(head.host, to);
    to.extend_from_slice(b"\r\n");
}

/// Appends the head of a response, which `is_last` makes the connection's last.
pub(crate) fn response(head: &ResponseHead<'_, '_>, is_last: bool, to: &mut Vec<u8>) {
    to.extend_from_slice(b"HTTP/1.1 ");
    to.extend_from_slice(head.status.as_str().as_bytes());
    to.push(b' ');
    to.extend_from_slice(head.status.canonical_reason().unwrap_or_default().as_bytes());
    to.extend_from_slice(b"\r\n");
    for field in head.fields {
        let start = to.len();
        match name(field.name, to) {
            About::Asker | About::Cookie | About::Other => value(field.value, to),
            _ => to.truncate(start),
        }
    }
    match (head.length, head.said) {
        (Length::Chunked, _) => to.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        (_, Some(length)) => {
            let _ = write!(to, "content-length: {length}\r\n");
        }
        (_, None) => {}
    }
    if !head.has_date {
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
