//! The WebSocket subprotocol `superpoll.v1`: frames of JSON, with fields that plain frames lack.
//!
//! Each frame that the server sends names the channel and a position in it, as an id and an epoch.
//! A frame with `data` (or `base64`, if the message is not text) is the message at that position. A
//! frame without them tells the position before the next message; it comes first, and with
//! `"missed":true` after messages that were left out. A client that comes back asks for the
//! messages after the last position that it has read.
//!
//! A client publishes with an object of `data` or `base64`, and perhaps `event`, `key` and `ttl`,
//! and `channel` if its connection has several (`several`). With a `key` it gets
//! `{"published":ID,"key":KEY}`, and `{"error":TEXT}` for a refusal. A binary frame is a binary
//! message.

use bytes::Bytes;
use data_encoding::BASE64;
use serde::Deserialize;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Data, OpCode};

use super::message::{Draft, Message};
use super::publication::{self, Wanted};

/// The name of the subprotocol.
pub(super) const PROTOCOL: &str = "superpoll.v1";

/// The bytes of a frame in addition to its message, the channel's name and the type of the event.
const AROUND: usize = 128;

/// The channel that messages come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Source<'a> {
    pub epoch: u64,
    pub name: &'a str,
}

/// For channels whose name does not matter.
impl From<u64> for Source<'static> {
    fn from(epoch: u64) -> Source<'static> {
        Source { epoch, name: "" }
    }
}

/// Returns the most bytes of a client's frame. A client may escape some characters, and base64
/// needs a third more.
pub(super) fn longest(message_bytes: u64) -> u64 {
    message_bytes.saturating_mul(2).saturating_add(1024)
}

/// Returns about as many bytes as a message needs.
pub(super) fn room(message: &Message, source: Source<'_>) -> usize {
    let length = message.data.len();
    let data = if message.is_text { length } else { BASE64.encode_len(length) };
    AROUND + source.name.len() + message.event().map_or(0, str::len) + data
}

/// Appends a text as a string of JSON.
fn string(text: &str, to: &mut Vec<u8>) {
    // Neither the text nor the memory can refuse it.
    let _ = serde_json::to_writer(to, text);
}

/// Appends a frame with a text.
fn frame(text: &[u8], to: &mut Vec<u8>) {
    let header = FrameHeader { opcode: OpCode::Data(Data::Text), ..FrameHeader::default() };
    // Writing to memory cannot fail.
    let _ = header.format(text.len() as u64, to);
    to.extend_from_slice(text);
}

/// Begins an object with a position.
fn position(id: u64, source: Source<'_>) -> Vec<u8> {
    let mut json = format!("{{\"id\":{id},\"epoch\":\"{:x}\",\"channel\":", source.epoch).into();
    string(source.name, &mut json);
    json
}

/// Returns a message as JSON.
pub(super) fn message_json(message: &Message, source: Source<'_>) -> Vec<u8> {
    let mut json = position(message.id, source);
    json.reserve(room(message, source));
    if let Some(event) = message.event() {
        json.extend_from_slice(b",\"event\":");
        string(event, &mut json);
    }
    match std::str::from_utf8(&message.data) {
        Ok(text) if message.is_text => {
            json.extend_from_slice(b",\"data\":");
            string(text, &mut json);
        }
        _ => {
            json.extend_from_slice(b",\"base64\":\"");
            json.extend_from_slice(BASE64.encode(&message.data).as_bytes());
            json.push(b'"');
        }
    }
    json.push(b'}');
    json
}

/// Appends a message as a frame.
pub(super) fn message(message: &Message, source: Source<'_>, to: &mut Vec<u8>) {
    frame(&message_json(message, source), to);
}

/// Returns the position before the next message as JSON.
pub(super) fn place_json(id: u64, missed: bool, source: Source<'_>) -> Vec<u8> {
    let mut json = position(id, source);
    json.extend_from_slice(if missed { b",\"missed\":true}" } else { b"}" });
    json
}

/// Appends a frame with the position before the next message.
pub(super) fn place(id: u64, missed: bool, source: Source<'_>, to: &mut Vec<u8>) {
    frame(&place_json(id, missed, source), to);
}

/// Appends the answer to a publication with a key.
pub(super) fn published(id: u64, key: &str, to: &mut Vec<u8>) {
    let mut json = format!("{{\"published\":{id},\"key\":").into();
    string(key, &mut json);
    json.push(b'}');
    frame(&json, to);
}

/// Appends the reason for which something was refused.
pub(super) fn error(text: &str, to: &mut Vec<u8>) {
    let mut json = b"{\"error\":".to_vec();
    string(text, &mut json);
    json.push(b'}');
    frame(&json, to);
}

/// A publication as a client writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Publication {
    /// The channel, if the connection has several.
    pub channel: Option<String>,
    data: Option<String>,
    base64: Option<String>,
    event: Option<String>,
    key: Option<String>,
    ttl: Option<u64>,
}

/// Returns the reason for which a publication to another channel is refused.
pub(super) fn elsewhere(name: &str) -> String {
    format!("this connection does not have the channel {name:?}")
}

impl Publication {
    /// Reads a publication.
    ///
    /// # Errors
    ///
    /// The reason for which it is refused.
    pub(super) fn read(text: &str) -> Result<Publication, String> {
        serde_json::from_str(text).map_err(|error| format!("this is no publication: {error}"))
    }

    /// Returns the message, of at most this many bytes of data.
    ///
    /// # Errors
    ///
    /// The reason for which it is refused.
    pub(super) fn draft(self, limit: u64) -> Result<Draft, String> {
        let (data, is_text) = match (self.data, self.base64) {
            (Some(data), None) => (Bytes::from(data), true),
            (None, Some(data)) => {
                let data = BASE64.decode(data.as_bytes());
                (data.map_err(|error| format!("base64 cannot be read: {error}"))?.into(), false)
            }
            _ => {
                return Err("this is no publication: it has data or base64, one of both".to_owned());
            }
        };
        if data.len() as u64 > limit {
            return Err(publication::too_large(limit));
        }
        let wanted = Wanted { event: self.event, key: self.key, ttl: self.ttl };
        Ok(Draft { meta: wanted.check(is_text)?, data, is_text })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::super::message::Meta;
    use super::*;

    const SOURCE: Source<'static> = Source { epoch: 0xbee, name: "/rooms/\"a\" ä" };

    /// The text of a frame of fewer than 126 or of fewer than 65,536 bytes.
    fn read(frame: &[u8]) -> Value {
        assert_eq!(frame[0], 0x81);
        let (start, length) = match frame[1] {
            126 => (4, usize::from(u16::from_be_bytes([frame[2], frame[3]]))),
            length => (2, usize::from(length)),
        };
        assert_eq!(frame.len(), start + length);
        serde_json::from_slice(&frame[start..]).unwrap()
    }

    #[test]
    fn frames_are_json_with_everything_that_is_known() {
        let mut to = Vec::new();
        let event = Some("added".to_owned());
        let meta = Some(Arc::new(Meta { event, ..Meta::default() }));
        let text = Message { meta, ..Message::new(7, "\"\u{0}\n", true) };
        message(&text, SOURCE, &mut to);
        let expected = json!({"id": 7, "epoch": "bee", "channel": SOURCE.name, "event": "added", "data": "\"\u{0}\n"});
        assert_eq!(read(&to), expected);
        to.clear();
        message(&Message::new(8, vec![0xff; 100], false), SOURCE, &mut to);
        assert_eq!(read(&to)["base64"], BASE64.encode(&[0xff; 100]));
        to.clear();
        place(8, true, SOURCE, &mut to);
        let expected = json!({"id": 8, "epoch": "bee", "channel": SOURCE.name, "missed": true});
        assert_eq!(read(&to), expected);
        to.clear();
        place(8, false, SOURCE, &mut to);
        assert_eq!(read(&to).get("missed"), None);
        to.clear();
        published(9, "k\"", &mut to);
        assert_eq!(read(&to), json!({"published": 9, "key": "k\""}));
    }

    fn draft(text: &str, limit: u64) -> Result<Draft, String> {
        Publication::read(text)?.draft(limit)
    }

    #[test]
    fn publications_are_read_and_mistakes_are_named() {
        let read = draft(r#"{"data":"x","event":"added","key":"k"}"#, 9).unwrap();
        assert_eq!((&read.data[..], read.is_text), (&b"x"[..], true));
        let meta = read.meta.unwrap();
        assert_eq!((meta.event.as_deref(), meta.key.as_deref()), (Some("added"), Some("k")));
        let read = draft(r#"{"base64":"/w==","channel":"/c"}"#, 9).unwrap();
        assert_eq!((&read.data[..], read.is_text, read.meta), (&b"\xff"[..], false, None));
        for (text, expected) in [
            ("hello", "this is no publication: "),
            (r#"{"data":"x","to":1}"#, "this is no publication: unknown field `to`"),
            (r#"{}"#, "this is no publication: it has data or base64, one of both"),
            (r#"{"data":"x","base64":""}"#, "this is no publication: it has data or base64"),
            (r#"{"base64":"!"}"#, "base64 cannot be read: "),
            (r#"{"data":"0123456789"}"#, "a message of this channel has 9 bytes at most"),
            (r#"{"data":"x","event":"missed"}"#, "the event type \"missed\" has a meaning"),
        ] {
            let error = draft(text, 9).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
