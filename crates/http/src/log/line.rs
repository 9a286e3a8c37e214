//! A line of the access log, in the formats that analysers read.

use std::borrow::Cow;
use std::io::Write;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use futures_rustls::rustls::CipherSuite;
use http::HeaderValue;

use super::record::{ClientEnd, RelayRecord, RequestRecord, UpstreamEnd};
use super::secrets::leave_out_of_target;
use super::secrets::{self, quote, string, word};
use superpoll_config::Field;

/// The longest method that is logged whole.
const LONGEST_METHOD: usize = 64;

/// The value of a field in JSON.
enum Value<'a> {
    /// The line does not have the field.
    Absent,
    Text(Cow<'a, [u8]>),
    Number(u64),
    Seconds(Duration),
    Flag(bool),
}

impl<'a> Value<'a> {
    fn text(text: &'a str) -> Value<'a> {
        Value::Text(Cow::Borrowed(text.as_bytes()))
    }

    fn from_text(text: String) -> Value<'a> {
        Value::Text(Cow::Owned(text.into_bytes()))
    }

    fn some(value: Option<Value<'a>>) -> Value<'a> {
        value.unwrap_or(Value::Absent)
    }

    fn header(value: &'a Option<HeaderValue>) -> Value<'a> {
        let text = value.as_ref().map(|value| Value::Text(Cow::Borrowed(value.as_bytes())));
        Value::some(text)
    }

    /// Appends the value.
    fn write(&self, out: &mut Vec<u8>) {
        // Writing to a vector cannot fail.
        let _ = match self {
            Value::Absent => Ok(()),
            Value::Text(text) => {
                string(out, text);
                Ok(())
            }
            Value::Number(number) => write!(out, "{number}"),
            Value::Flag(flag) => write!(out, "{flag}"),
            Value::Seconds(took) => {
                let (whole, micros) = (took.as_secs(), took.subsec_micros());
                write!(out, "{whole}.{micros:06}")
            }
        };
    }
}

/// Adds a line of JSON.
fn json<'a>(out: &mut Vec<u8>, fields: &[Field], value: impl Fn(Field) -> Value<'a>) {
    out.push(b'{');
    let mut separator: &[u8] = b"";
    for field in fields {
        let value = value(*field);
        if matches!(value, Value::Absent) {
            continue;
        }
        out.extend_from_slice(separator);
        separator = b",";
        // Writing to a vector cannot fail.
        let _ = write!(out, "\"{}\":", field.name());
        value.write(out);
    }
    out.extend_from_slice(b"}\n");
}

/// Returns the version of TLS and a cipher suite by its registered name; `None` for 0.
pub(crate) fn cipher_suite(number: u16) -> Option<(&'static str, String)> {
    let suite = match number {
        0 => return None,
        number => CipherSuite::from(number),
    };
    // The suites of TLS 1.3 have numbers of their own (RFC 8446, appendix B.4).
    let version = if number >> 8 == 0x13 { "TLSv1.3" } else { "TLSv1.2" };
    let name = match suite.as_str() {
        Some(name) => name.replacen("TLS13_", "TLS_", 1),
        None => format!("0x{number:04X}"),
    };
    Some((version, name))
}

/// Returns an address as text. Proxies need not name the port of a client.
fn with_port(address: SocketAddr) -> String {
    match address.port() {
        0 => address.ip().to_string(),
        _ => address.to_string(),
    }
}

/// Returns the value of a field that requests and relayed connections have.
fn shared<'a>(
    field: Field,
    at: SystemTime,
    client: &'a ClientEnd,
    upstream: Option<&'a UpstreamEnd>,
) -> Value<'a> {
    let seconds = |of: fn(&UpstreamEnd) -> Option<Duration>| {
        Value::some(upstream.and_then(of).map(Value::Seconds))
    };
    Value::some(match field {
        Field::Time => Some(Value::from_text(humantime::format_rfc3339_millis(at).to_string())),
        Field::Client => client.address().map(|client| Value::from_text(with_port(client))),
        Field::Proxy => client.proxy().map(|proxy| Value::from_text(with_port(proxy))),
        Field::TlsVersion => cipher_suite(client.cipher).map(|(version, _)| Value::text(version)),
        Field::TlsCipher => cipher_suite(client.cipher).map(|(_, name)| Value::from_text(name)),
        Field::Sni => client.server_name.as_deref().map(Value::text),
        Field::Upstream => upstream.and_then(|end| end.name.as_deref()).map(Value::text),
        Field::UpstreamServer => upstream.and_then(|end| end.server.as_deref()).map(Value::text),
        Field::UpstreamTries => upstream.map(|end| Value::Number(u64::from(end.tries))),
        Field::UpstreamConnectSeconds => Some(seconds(|end| end.connect)),
        Field::UpstreamFirstByteSeconds => Some(seconds(|end| end.first_byte)),
        Field::UpstreamSeconds => Some(seconds(|end| end.total)),
        _ => None,
    })
}

/// Adds the line of a request in JSON.
pub(super) fn object(out: &mut Vec<u8>, fields: &[Field], record: &RequestRecord, took: Duration) {
    let RequestRecord { at, client, upstream, raw, .. } = record;
    let raw = raw.as_deref().map(|raw| parts(raw));
    let upstream = upstream.as_deref();
    let value = |field| match (field, raw) {
        (Field::Method, Some([method, _, _])) => Value::Text(Cow::Borrowed(method)),
        (Field::Target, Some([_, target, _])) => Value::Text(leave_out_of_target(target)),
        (Field::Protocol, Some([_, _, protocol])) => Value::Text(Cow::Borrowed(protocol)),
        (Field::Method, None) => Value::Text(Cow::Borrowed(method(record))),
        (Field::Target, None) => Value::from_text(target(record)),
        (Field::Protocol, None) => Value::from_text(format!("{:?}", record.version)),
        (Field::Host, _) => {
            let name = record.host.as_ref().map(|name| host(name.as_bytes()));
            Value::some(name.map(|name| Value::Text(Cow::Borrowed(name))))
        }
        (Field::Status, _) => Value::Number(u64::from(record.status)),
        (Field::Bytes, _) => Value::Number(record.bytes),
        (Field::Complete, _) => Value::Flag(record.is_whole && record.broken_by.is_none()),
        (Field::Seconds, _) => Value::Seconds(took),
        (Field::Referer, _) => Value::header(&record.referer),
        (Field::UserAgent, _) => Value::header(&record.agent),
        (Field::FirstByteSeconds, _) => Value::some(record.first_byte.map(Value::Seconds)),
        (Field::BytesIn, _) => Value::Number(record.bytes_in),
        (Field::HeadBytesIn, _) if record.head_bytes_in == 0 => Value::Absent,
        (Field::HeadBytesIn, _) => Value::Number(u64::from(record.head_bytes_in)),
        (Field::RequestNumber, _) if record.number == 0 => Value::Absent,
        (Field::RequestNumber, _) => Value::Number(u64::from(record.number)),
        (Field::Parked, _) => Value::Flag(record.was_parked),
        (Field::BrokenBy, _) => Value::some(record.broken_by.map(|by| Value::text(by.name()))),
        (Field::Route, _) if record.route.is_empty() => Value::Absent,
        (Field::Route, _) => Value::text(&record.route),
        (Field::User, _) => Value::some(record.user.as_deref().map(Value::text)),
        (Field::UpstreamReused, _) => {
            let tried = upstream.filter(|end| end.server.is_some());
            Value::some(tried.map(|end| Value::Flag(end.is_reused)))
        }
        (Field::RequestId, _) => {
            Value::some(record.trace.as_ref().and_then(|trace| trace.id()).map(Value::from_text))
        }
        (Field::TraceId, _) => Value::some(
            record.trace.as_ref().and_then(|trace| trace.trace_id()).map(Value::from_text),
        ),
        (Field::UpstreamStatus, _) => {
            let status = upstream.and_then(|end| end.status);
            Value::some(status.map(|status| Value::Number(u64::from(status))))
        }
        (field, _) => shared(field, *at, client, upstream),
    };
    json(out, fields, value);
}

/// Adds the line of a relayed connection in JSON.
pub(super) fn relay_object(
    out: &mut Vec<u8>,
    fields: &[Field],
    record: &RelayRecord,
    took: Duration,
) {
    let upstream = record.upstream.as_deref();
    json(out, fields, |field| match field {
        Field::Relay => Value::text(&record.relay),
        Field::Bytes => Value::Number(record.down),
        Field::BytesIn => Value::Number(record.up),
        Field::Seconds => Value::Seconds(took),
        Field::Complete => Value::Flag(record.broken_by.is_none()),
        Field::BrokenBy => Value::some(record.broken_by.map(|by| Value::text(by.name()))),
        field => shared(field, record.at, &record.client, upstream),
    });
}

/// Returns the method, or the beginning of one that no program has.
fn method(record: &RequestRecord) -> &[u8] {
    let method = record.method.as_str().as_bytes();
    &method[..method.len().min(LONGEST_METHOD)]
}

/// Returns the target of a request that was understood.
fn target(record: &RequestRecord) -> String {
    let target = record.uri.to_string();
    match target.rsplit_once('@') {
        // An authority alone, as `CONNECT` has it, may begin with a user and a password.
        Some((_, host)) if !target.contains('/') => host.to_owned(),
        _ => target,
    }
}

/// Returns a host without the user and the password that may be before it.
fn host(host: &[u8]) -> &[u8] {
    host.rsplit(|byte| *byte == b'@').next().unwrap_or(host)
}

/// Returns the place of the target in a line that is no request.
fn target_of(line: &[u8]) -> Range<usize> {
    let first = line.iter().position(|byte| *byte == b' ');
    // No method has a query, and a query may have a secret.
    let method = first.filter(|&at| !line[..at].contains(&b'?'));
    let start = method.map_or(0, |at| at + 1);
    let last = line[start..].iter().rposition(|byte| *byte == b' ').map(|at| start + at);
    let version = last.filter(|&at| line[at..].starts_with(b" HTTP/"));
    start..version.unwrap_or(line.len())
}

/// Returns the parts that may be the method, the target and the version, for a line that is no
/// request.
fn parts(line: &[u8]) -> [&[u8]; 3] {
    let Range { start, end } = target_of(line);
    let method = &line[..start.saturating_sub(1)];
    let version = line.get(end + 1..).unwrap_or_default();
    [method, &line[start..end], version]
}

/// Returns a line that is no request without the secrets in it.
fn without_secrets(line: &[u8]) -> Vec<u8> {
    let Range { start, end } = target_of(line);
    [&line[..start], &*leave_out_of_target(&line[start..end]), &line[end..]].concat()
}

/// Returns the date in the Common Log Format, `22/Nov/2026:04:20:11 +0000`.
fn date(at: SystemTime) -> String {
    let date = httpdate::fmt_http_date(at);
    let mut parts = date.split(' ').skip(1);
    let mut next = || parts.next().unwrap_or("-");
    let (day, month, year, time) = (next(), next(), next(), next());
    format!("{day}/{month}/{year}:{time} +0000")
}

/// Adds the first fields of a line in the Combined Log Format, up to the quote before the request.
fn begin_combined(out: &mut Vec<u8>, client: &ClientEnd, user: Option<&str>, at: SystemTime) {
    // Writing to a vector cannot fail.
    let _ = match client.address() {
        Some(client) => write!(out, "{} - ", client.ip()),
        None => write!(out, "unix: - "),
    };
    match user {
        None | Some("") => out.push(b'-'),
        Some(user) => secrets::field(out, user.as_bytes()),
    }
    let _ = write!(out, " [{}] \"", date(at));
}

/// Adds the line of a request in the Combined Log Format.
pub(super) fn combined(out: &mut Vec<u8>, record: &RequestRecord) {
    begin_combined(out, &record.client, record.user.as_deref(), record.at);
    match &record.raw {
        Some(raw) => quote(out, &without_secrets(raw)),
        None => {
            quote(out, method(record));
            out.push(b' ');
            quote(out, target(record).as_bytes());
            // Writing to a vector cannot fail.
            let _ = write!(out, " {:?}", record.version);
        }
    }
    let _ = write!(out, "\" {} {}", record.status, record.bytes);
    for field in [&record.referer, &record.agent] {
        out.extend_from_slice(b" \"");
        quote(out, field.as_ref().map_or(b"-", HeaderValue::as_bytes));
        out.push(b'"');
    }
    out.push(b'\n');
}

/// Adds the line of a relayed connection in the Combined Log Format: as a request to connect to the
/// server, which analysers know.
pub(super) fn relay_combined(out: &mut Vec<u8>, record: &RelayRecord) {
    begin_combined(out, &record.client, None, record.at);
    out.extend_from_slice(b"CONNECT ");
    let upstream = record.upstream.as_deref();
    word(out, upstream.and_then(|end| end.server.as_deref()).unwrap_or("-").as_bytes());
    let status = if record.is_connected { 200 } else { 503 };
    // Writing to a vector cannot fail.
    let _ = writeln!(out, " TCP\" {status} {} \"-\" \"-\"", record.down);
}
