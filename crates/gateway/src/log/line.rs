//! A line of the access log, in the formats that analysers read.

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderValue, Method, Uri, Version};
use serde::Serialize;

use super::secrets;
use crate::config::LogFormat;

/// A request and its result.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) at: SystemTime,
    pub(crate) client: Option<SocketAddr>,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    pub(crate) host: Option<HeaderValue>,
    pub(crate) referer: Option<HeaderValue>,
    pub(crate) agent: Option<HeaderValue>,
    pub(crate) status: u16,
    /// Bytes of the body that were sent.
    pub(crate) bytes: u64,
    /// Whether all of the body was sent.
    pub(crate) is_whole: bool,
    pub(crate) took: Duration,
    /// The first line as it came, for a request that was refused before it was understood. Method,
    /// target and version mean nothing then.
    pub(crate) raw: Option<Bytes>,
    /// The id of the request and the number of its trace, if requests are followed.
    pub(crate) request_id: Option<String>,
    pub(crate) trace_id: Option<String>,
}

/// The fields of the line in JSON.
#[derive(Serialize)]
struct Object<'a> {
    time: String,
    client: Option<String>,
    method: &'a str,
    host: Option<String>,
    target: String,
    protocol: String,
    status: u16,
    bytes: u64,
    complete: bool,
    seconds: f64,
    referer: Option<String>,
    user_agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<&'a str>,
}

/// Appends text from a client, without the secrets of URLs in it, and without any byte that ends a field or a line, or that a terminal
/// obeys.
fn quote(out: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in secrets::leave_out(bytes).iter() {
        match byte {
            b'"' | b'\\' | 0..=0x1f | 0x7f.. => {
                // Writing to a vector cannot fail.
                let _ = write!(out, "\\x{byte:02X}");
            }
            _ => out.push(byte),
        }
    }
}

fn text(value: &Option<HeaderValue>) -> Option<String> {
    value.as_ref().map(|value| readable(value.as_bytes()))
}

/// Returns text from a client, without the secrets of URLs in it.
fn readable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&secrets::leave_out(bytes)).into_owned()
}

/// Returns the date in the Common Log Format, `22/Nov/2026:04:20:11 +0000`.
fn date(at: SystemTime) -> String {
    let date = httpdate::fmt_http_date(at);
    let mut parts = date.split(' ').skip(1);
    let mut next = || parts.next().unwrap_or("-");
    let (day, month, year, time) = (next(), next(), next(), next());
    format!("{day}/{month}/{year}:{time} +0000")
}

/// Adds a line.
pub(super) fn write(out: &mut Vec<u8>, format: LogFormat, record: &Record) {
    match format {
        LogFormat::Combined => combined(out, record),
        LogFormat::Json => {
            let raw = record.raw.as_ref().map(|raw| readable(raw));
            let (method, target, protocol) = match &raw {
                Some(raw) => parts(raw),
                None => (record.method.as_str(), "", ""),
            };
            let object = Object {
                time: humantime::format_rfc3339_millis(record.at).to_string(),
                client: record.client.map(|client| client.to_string()),
                method,
                host: text(&record.host),
                target: match raw {
                    Some(_) => target.to_owned(),
                    None => readable(record.uri.to_string().as_bytes()),
                },
                protocol: match raw {
                    Some(_) => protocol.to_owned(),
                    None => format!("{:?}", record.version),
                },
                status: record.status,
                bytes: record.bytes,
                complete: record.is_whole,
                seconds: record.took.as_secs_f64(),
                referer: text(&record.referer),
                user_agent: text(&record.agent),
                request_id: record.request_id.as_deref(),
                trace_id: record.trace_id.as_deref(),
            };
            // Neither a vector nor these types refuse.
            let _ = serde_json::to_writer(&mut *out, &object);
            out.push(b'\n');
        }
    }
}

/// Returns the parts that may be the method, the target and the version, for a line that is no
/// request.
fn parts(line: &str) -> (&str, &str, &str) {
    let (method, rest) = line.split_once(' ').unwrap_or(("", line));
    let (target, protocol) = rest.rsplit_once(' ').unwrap_or((rest, ""));
    (method, target, protocol)
}

fn combined(out: &mut Vec<u8>, record: &Record) {
    // Writing to a vector cannot fail.
    let _ = match record.client {
        Some(client) => write!(out, "{}", client.ip()),
        None => write!(out, "unix:"),
    };
    let _ = write!(out, " - - [{}] \"", date(record.at));
    match &record.raw {
        Some(raw) => quote(out, raw),
        None => {
            let _ = write!(out, "{} ", record.method);
            quote(out, record.uri.to_string().as_bytes());
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
