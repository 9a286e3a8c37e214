//! What an application says in its response about the connection that it is for.
//!
//! The instructions are fields of the response (`Grip-Hold` and others), or a document in its place
//! (`application/grip-instruct`). The client sees neither.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::{Map, Value};
use superpoll_http::held::{FrameKind, HeldChannel, KeepAlive, NextLink, filter};

use super::item;

/// The most channels of a connection. Further ones are left out.
pub(super) const MOST_CHANNELS: usize = 20;

/// How long a long-poll waits if nothing else is said, and at least.
const USUAL_WAIT: Duration = Duration::from_secs(55);
const LEAST_WAIT: Duration = Duration::from_secs(5);

/// The longest time of a long-poll.
pub(in crate::channel) const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// The seconds of silence if nothing else is said.
const USUAL_SILENCE: u32 = 55;

/// The seconds after which the next part of a stream is asked for if nothing else is said.
const USUAL_LINK: u32 = 120;

/// The longest content for silence, the most values of a connection, and the longest of them.
const LONGEST_CONTENT: usize = 4096;
const MOST_VALUES: usize = 32;
const LONGEST_VALUE: usize = 1024;

/// The longest name of a channel.
const LONGEST_NAME: usize = 1024;

/// The kinds of documents with instructions.
const DOCUMENT: &str = "application/grip-instruct";

/// The purpose of a held connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    Stream,
    Response,
}

/// The instructions of a response.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Instructions {
    pub hold: Option<Hold>,
    pub channels: Vec<HeldChannel>,
    pub wait: Option<Duration>,
    pub keep_alive: Option<KeepAlive>,
    pub meta: Vec<(Box<str>, Box<str>)>,
    pub next: Option<NextLink>,
    pub gone: Option<Box<str>>,
}

/// Whether a response has instructions, or fields that the client must not see.
pub(super) fn are_in(response: &HeaderMap) -> bool {
    response.keys().any(|name| name.as_str().starts_with("grip-")) || is_document(response)
}

/// Whether the instructions are a document in place of the response.
pub(super) fn is_document(fields: &HeaderMap) -> bool {
    let kind = fields.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    kind.split(';').next().unwrap_or("").trim().eq_ignore_ascii_case(DOCUMENT)
}

impl Instructions {
    /// Returns how long a long-poll waits.
    pub(super) fn wait(&self) -> Duration {
        self.wait.unwrap_or(USUAL_WAIT).clamp(LEAST_WAIT, LONGEST_WAIT)
    }

    /// Takes the instructions out of the head of a response. Links are relative to `base`.
    ///
    /// # Errors
    ///
    /// The mistake, in words.
    pub(super) fn take<B>(response: &mut Response<B>, base: &str) -> Result<Instructions, String> {
        let fields = response.headers_mut();
        let is_own = |name: &&HeaderName| name.as_str().starts_with("grip-");
        let names: Vec<HeaderName> = fields.keys().filter(is_own).cloned().collect();
        let mut told = HeaderMap::new();
        for name in names {
            for value in fields.get_all(&name) {
                told.append(name.clone(), value.clone());
            }
            fields.remove(&name);
        }
        let text = |name: &str| -> Result<Option<&str>, String> {
            let Some(value) = told.get(name) else { return Ok(None) };
            value.to_str().map(Some).map_err(|_| format!("{} is no text", title(name)))
        };
        let hold = match text("grip-hold")?.map(str::trim) {
            None => None,
            Some("stream") => Some(Hold::Stream),
            Some("response") => Some(Hold::Response),
            Some(_) => {
                return Err("Grip-Hold must be set to either 'response' or 'stream'".to_owned());
            }
        };
        let mut instructions = Instructions { hold, ..Instructions::default() };
        for value in told.get_all("grip-channel") {
            for part in split(&text_of(value), ',') {
                instructions.add(channel(part)?);
            }
        }
        if let Some(wait) = text("grip-timeout")? {
            instructions.wait = Some(seconds(wait).ok_or("failed to parse Grip-Timeout")?);
        }
        if let Some(keep_alive) = text("grip-keep-alive")? {
            instructions.keep_alive = Some(read_keep_alive(keep_alive)?);
        }
        for value in told.get_all("grip-set-meta") {
            for part in split(&text_of(value), ',') {
                let (name, value) = part.split_once('=').ok_or("failed to parse Grip-Set-Meta")?;
                instructions.set_value(name.trim(), &unquoted(value))?;
            }
        }
        for value in told.get_all("grip-link") {
            let value = value.to_str().map_err(|_| "Grip-Link is no text".to_owned())?;
            for part in split(value, ',') {
                instructions.link(part, base)?;
            }
        }
        if let Some(status) = text("grip-status")? {
            let number = status.trim().split(' ').next().unwrap_or("");
            let status = StatusCode::from_bytes(number.as_bytes()).ok();
            let status = status.filter(|status| status.as_u16() >= 200);
            *response.status_mut() = status.ok_or("Grip-Status contains invalid status code")?;
        }
        if let Some(exposed) = text("grip-expose-headers")? {
            let names: Vec<&str> = exposed.split(',').map(str::trim).collect();
            let is_hidden = |name: &&HeaderName| {
                !names.iter().any(|known| name.as_str().eq_ignore_ascii_case(known))
            };
            let hidden: Vec<HeaderName> =
                response.headers().keys().filter(is_hidden).cloned().collect();
            hidden.iter().for_each(|name| drop(response.headers_mut().remove(name)));
        }
        Ok(instructions)
    }

    /// Reads the instructions in a document, and the response in it.
    ///
    /// # Errors
    ///
    /// The mistake, in words.
    pub(super) fn read(body: &[u8]) -> Result<(Instructions, Response<Bytes>), String> {
        let json: Value = serde_json::from_slice(body)
            .map_err(|_| "failed to parse application/grip-instruct content as JSON".to_owned())?;
        let document = json.as_object().ok_or("the instructions are not an object")?;
        let mut instructions = Instructions::default();
        if let Some(hold) = object(document, "hold")? {
            instructions.read_hold(hold)?;
        }
        let mut response = Response::new(Bytes::new());
        if let Some(said) = object(document, "response")? {
            if let Some(code) = said.get("code") {
                let code = code.as_u64().and_then(|code| u16::try_from(code).ok());
                let status = code.and_then(|code| StatusCode::from_u16(code).ok());
                let status = status.filter(|status| status.as_u16() >= 200);
                *response.status_mut() = status.ok_or("response has an invalid code")?;
            }
            let fields = said.get("headers").map(item::fields).transpose()?.unwrap_or_default();
            for (name, value) in fields {
                let name = HeaderName::from_bytes(name.as_bytes());
                if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&value))
                    && !name.as_str().starts_with("grip-")
                {
                    response.headers_mut().append(name, value);
                }
            }
            response.headers_mut().remove(CONTENT_LENGTH);
            *response.body_mut() = content(said, "body")?.map_or_else(Bytes::new, |it| it.0);
        }
        Ok((instructions, response))
    }

    fn read_hold(&mut self, hold: &Map<String, Value>) -> Result<(), String> {
        self.hold = Some(match text(hold, "mode")? {
            None | Some("response") => Hold::Response,
            Some("stream") => Hold::Stream,
            Some(_) => return Err("hold must set mode to either 'response' or 'stream'".to_owned()),
        });
        let channels =
            hold.get("channels").map_or(Some(&[][..]), |all| all.as_array().map(|all| &all[..]));
        for one in channels.ok_or("hold contains 'channels' with wrong type")? {
            let one = one.as_object().ok_or("a channel is not an object")?;
            let name = text(one, "name")?.ok_or("a channel does not contain 'name'")?;
            let mut channel = named(name)?;
            channel.previous = text(one, "prev-id")?.filter(|id| !id.is_empty()).map(Into::into);
            let filters = one.get("filters").and_then(Value::as_array);
            for name in filters.into_iter().flatten().filter_map(Value::as_str) {
                channel.filters |= filter_of(name);
            }
            self.add(channel);
        }
        let seconds_of = |object: &Map<String, Value>| match object.get("timeout") {
            None => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or("timeout is no number of seconds"),
        };
        self.wait = seconds_of(hold)?.map(Duration::from_secs);
        if let Some(said) = object(hold, "keep-alive")? {
            let seconds = seconds_of(said)?;
            if let Some((content, kind)) = content(said, "content")? {
                self.keep_alive = Some(keep_alive(content, kind, seconds, text(said, "mode")?)?);
            }
        }
        for (name, value) in object(hold, "meta")?.into_iter().flatten() {
            let value = value.as_str().ok_or("hold contains 'meta' with wrong type")?;
            self.set_value(name, value)?;
        }
        Ok(())
    }

    /// Adds a channel, unless it is there already or there are as many as there may be.
    fn add(&mut self, channel: HeldChannel) {
        let is_known = self.channels.iter().any(|known| known.name == channel.name);
        if !is_known && self.channels.len() < MOST_CHANNELS {
            self.channels.push(channel);
        }
    }

    fn set_value(&mut self, name: &str, value: &str) -> Result<(), String> {
        set_value(&mut self.meta, name, value)
    }

    fn link(&mut self, text: &str, base: &str) -> Result<(), String> {
        let (address, rest) = head_of(text);
        let parts = split(rest, ';');
        let address = address.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
        let target = address.and_then(|address| relative_to(base, address));
        let target = target.ok_or("failed to parse Grip-Link value")?;
        let (mut relation, mut seconds) = (String::new(), USUAL_LINK);
        for part in parts {
            match part.split_once('=') {
                Some(("rel", value)) => relation = unquoted(value),
                Some(("timeout", value)) => {
                    let said = unquoted(value).parse().ok();
                    seconds = said.ok_or("failed to parse Grip-Link value")?;
                }
                _ => {}
            }
        }
        match relation.as_str() {
            "next" => self.next = Some(NextLink { target: target.into(), seconds: seconds.max(1) }),
            "gone" => self.gone = Some(target.into()),
            _ => {}
        }
        Ok(())
    }
}

/// Returns the text of a field: UTF-8, or Latin-1 as many servers of applications write it.
pub(super) fn text_of(value: &HeaderValue) -> Cow<'_, str> {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => text.into(),
        Err(_) => value.as_bytes().iter().copied().map(char::from).collect::<String>().into(),
    }
}

/// Sets a value of a connection; an empty one removes it.
pub(super) fn set_value(
    meta: &mut Vec<(Box<str>, Box<str>)>,
    name: &str,
    value: &str,
) -> Result<(), String> {
    meta.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
    if value.is_empty() || name.is_empty() {
        return Ok(());
    }
    if meta.len() >= MOST_VALUES || name.len() > LONGEST_VALUE || value.len() > LONGEST_VALUE {
        return Err(format!(
            "more than {MOST_VALUES} values, or one of more than {LONGEST_VALUE} bytes"
        ));
    }
    meta.push((name.into(), value.into()));
    Ok(())
}

/// Returns a link as the path and query on the application's servers, which is all that is asked:
/// a host in it is left out.
fn relative_to(base: &str, address: &str) -> Option<String> {
    if !address.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let rest = match address.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            match rest.find(['/', '?']) {
                None => "/",
                Some(at) if rest[at..].starts_with('/') => &rest[at..],
                Some(at) => return Some(format!("/{}", without_fragment(&rest[at..]))),
            }
        }
        _ => address,
    };
    let rest = without_fragment(rest);
    let (base, _) = base.split_once('?').unwrap_or((base, ""));
    match rest.bytes().next() {
        None => Some(base.to_owned()),
        Some(b'/') => Some(rest.to_owned()),
        Some(b'?') => Some(format!("{base}{rest}")),
        Some(_) => Some(format!("{}{rest}", &base[..base.rfind('/').map_or(0, |at| at + 1)])),
    }
}

fn without_fragment(text: &str) -> &str {
    text.split('#').next().unwrap_or("")
}

/// Returns the part of a value before its parameters, and these.
fn head_of(text: &str) -> (&str, &str) {
    let (mut quoted, mut escaped) = (false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ';' if !quoted => return (text[..at].trim(), &text[at + 1..]),
            _ => {}
        }
    }
    (text.trim(), "")
}

/// Splits a field where a separator is not quoted.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if letter == separator && !quoted => {
                parts.push(text[start..at].trim());
                start = at + separator.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// Returns a value without the quotes around it.
fn unquoted(text: &str) -> String {
    let text = text.trim();
    let inner = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let Some(inner) = inner else { return text.to_owned() };
    let (mut value, mut escaped) = (String::new(), false);
    for letter in inner.chars() {
        match letter {
            '\\' if !escaped => escaped = true,
            _ => {
                escaped = false;
                value.push(letter);
            }
        }
    }
    value
}

fn seconds(text: &str) -> Option<Duration> {
    text.trim().parse().ok().map(Duration::from_secs)
}

/// Returns a channel without filters.
pub(super) fn named(name: &str) -> Result<HeldChannel, String> {
    if name.is_empty() || name.len() > LONGEST_NAME || name.contains('\0') {
        return Err(format!("a channel has a name of 1 to {LONGEST_NAME} bytes"));
    }
    Ok(HeldChannel { name: name.into(), filters: 0, previous: None })
}

/// Returns the bit of a filter; a filter that is not known does nothing.
pub(super) fn filter_of(name: &str) -> u8 {
    filter::NAMES.iter().find(|(known, _)| *known == name).map_or(0, |(_, bit)| *bit)
}

fn channel(text: &str) -> Result<HeldChannel, String> {
    let (name, rest) = head_of(text);
    let parts = split(rest, ';');
    let mut channel = named(&unquoted(name))?;
    for part in parts {
        match part.split_once('=').map(|(name, value)| (name.trim(), unquoted(value))) {
            Some(("prev-id", id)) if !id.is_empty() => channel.previous = Some(id.into()),
            Some(("filter", name)) => channel.filters |= filter_of(&name),
            _ => {}
        }
    }
    Ok(channel)
}

/// Returns the content that is sent in silence.
pub(super) fn keep_alive(
    content: Bytes,
    kind: FrameKind,
    seconds: Option<u64>,
    mode: Option<&str>,
) -> Result<KeepAlive, String> {
    let is_interval = match mode {
        None | Some("idle") => false,
        Some("interval") => true,
        Some(mode) => return Err(format!("no such Grip-Keep-Alive mode '{mode}'")),
    };
    if content.len() > LONGEST_CONTENT {
        return Err(format!("Grip-Keep-Alive has more than {LONGEST_CONTENT} bytes"));
    }
    let seconds = seconds.map_or(USUAL_SILENCE, |it| u32::try_from(it).unwrap_or(u32::MAX));
    Ok(KeepAlive { content, kind, seconds: seconds.max(1), is_interval })
}

fn read_keep_alive(text: &str) -> Result<KeepAlive, String> {
    let (data, rest) = head_of(text);
    let parts = split(rest, ';');
    let data = unquoted_once(data);
    if data.is_empty() {
        return Err("Grip-Keep-Alive cannot be empty".to_owned());
    }
    let (mut format, mut limit, mut mode) = ("raw".to_owned(), None, None);
    for part in parts {
        match part.split_once('=').map(|(name, value)| (name.trim(), unquoted(value))) {
            Some(("format", said)) => format = said,
            Some(("timeout", said)) => {
                limit = Some(said.parse().map_err(|_| "failed to parse Grip-Keep-Alive timeout")?);
            }
            Some(("mode", said)) => mode = Some(said),
            _ => {}
        }
    }
    let content = match format.as_str() {
        "raw" => data.as_bytes().to_vec(),
        "cstring" => c_string(data).ok_or("failed to parse Grip-Keep-Alive cstring format")?,
        "base64" => {
            let bytes = BASE64.decode(data.as_bytes());
            bytes.map_err(|_| "failed to parse Grip-Keep-Alive base64 format")?
        }
        other => return Err(format!("no such Grip-Keep-Alive format '{other}'")),
    };
    keep_alive(content.into(), FrameKind::Binary, limit, mode.as_deref())
}

/// Takes quotes off without reading escapes, which belong to the format.
fn unquoted_once(text: &str) -> &str {
    let inner = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or(text)
}

fn c_string(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (&escaped, after) = rest.split_first()?;
        rest = after;
        bytes.push(match escaped {
            b'\\' => b'\\',
            b'r' => b'\r',
            b'n' => b'\n',
            b'x' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                rest = &rest[2..];
                u8::from_str_radix(digits, 16).ok()?
            }
            _ => return None,
        });
    }
    Some(bytes)
}

fn object<'a>(
    of: &'a Map<String, Value>,
    key: &str,
) -> Result<Option<&'a Map<String, Value>>, String> {
    match of.get(key) {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(format!("the instructions contain '{key}' with wrong type")),
    }
}

fn text<'a>(of: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, String> {
    match of.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("the instructions contain '{key}' with wrong type")),
    }
}

/// Returns content that is a text, or bytes in base64, and its kind.
pub(super) fn content(
    of: &Map<String, Value>,
    key: &str,
) -> Result<Option<(Bytes, FrameKind)>, String> {
    let binary = format!("{key}-bin");
    if let Some(said) = text(of, &binary)? {
        let bytes = BASE64.decode(said.as_bytes());
        let bytes = bytes.map_err(|_| format!("'{binary}' is no base64"))?;
        return Ok(Some((bytes.into(), FrameKind::Binary)));
    }
    let said = text(of, key)?;
    Ok(said.map(|said| (Bytes::copy_from_slice(said.as_bytes()), FrameKind::Text)))
}

fn title(name: &str) -> String {
    let part = |part: &str| match part.split_at_checked(1) {
        Some((first, rest)) => first.to_ascii_uppercase() + rest,
        None => String::new(),
    };
    name.split('-').map(part).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_may_have_letters_of_any_language() {
        // In UTF-8, as PHP writes fields, and in Latin-1, as Django and Node do.
        for (channel, user) in [
            (&b"r\xc3\xa4ume"[..], &b"user=\"Jos\xc3\xa9\""[..]),
            (b"r\xe4ume", b"user=\"Jos\xe9\""),
        ] {
            let mut response = Response::new(());
            let fields = response.headers_mut();
            fields.insert("grip-hold", HeaderValue::from_static("stream"));
            fields.insert("grip-channel", HeaderValue::from_bytes(channel).unwrap());
            fields.insert("grip-set-meta", HeaderValue::from_bytes(user).unwrap());
            let read = Instructions::take(&mut response, "/").unwrap();
            assert_eq!(&*read.channels[0].name, "räume");
            assert_eq!(read.meta, [("user".into(), "José".into())]);
        }
    }
}
