//! What an application says to the gateway in the messages of a WebSocket.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};
use superpoll_http::held::{FrameKind, HeldChannel, KeepAlive};

use super::instruct;

/// A message for the gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Control {
    Subscribe(HeldChannel),
    Unsubscribe(String),
    /// The application is to hear no more of the client, which stays.
    Detach,
    KeepAlive(Option<KeepAlive>),
    SetMeta(String, String),
    SendDelayed(FrameKind, Bytes, Duration),
    FlushDelayed,
}

/// Reads a message for the gateway; `None`: it is not understood.
pub(super) fn read(json: &[u8]) -> Option<Control> {
    let json: Value = serde_json::from_slice(json).ok()?;
    let fields = json.as_object()?;
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    match text("type")? {
        "subscribe" => {
            let mut channel = instruct::named(text("channel")?).ok()?;
            let filters = fields.get("filters").and_then(Value::as_array);
            for name in filters.into_iter().flatten().filter_map(Value::as_str) {
                channel.filters |= instruct::filter_of(name);
            }
            Some(Control::Subscribe(channel))
        }
        "unsubscribe" => Some(Control::Unsubscribe(text("channel")?.to_owned())),
        "detach" => Some(Control::Detach),
        "keep-alive" => {
            let Some((content, kind)) = message(fields)? else {
                return Some(Control::KeepAlive(None));
            };
            let seconds = fields.get("timeout").and_then(Value::as_u64);
            let keep_alive = instruct::keep_alive(content, kind, seconds, text("mode"));
            Some(Control::KeepAlive(Some(keep_alive.ok()?)))
        }
        "set-meta" => {
            let value = text("value").unwrap_or("").to_owned();
            Some(Control::SetMeta(text("name")?.to_owned(), value))
        }
        "send-delayed" => {
            let (content, kind) = message(fields)??;
            let seconds = fields.get("timeout").and_then(Value::as_u64)?;
            Some(Control::SendDelayed(kind, content, Duration::from_secs(seconds)))
        }
        "flush-delayed" => Some(Control::FlushDelayed),
        _ => None,
    }
}

/// Returns the content of a message for the client and its kind, if there is content; `None`: it is
/// malformed.
fn message(fields: &Map<String, Value>) -> Option<Option<(Bytes, FrameKind)>> {
    let Some((content, kind)) = instruct::content(fields, "content").ok()? else {
        return Some(None);
    };
    let kind = match fields.get("message-type").map(Value::as_str) {
        None => kind,
        Some(Some("text")) => FrameKind::Text,
        Some(Some("binary")) => FrameKind::Binary,
        Some(Some("ping")) => FrameKind::Ping,
        Some(Some("pong")) => FrameKind::Pong,
        Some(_) => return None,
    };
    Some(Some((content, kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_for_the_gateway_are_read_and_others_do_nothing() {
        let subscribe = read(br#"{"type":"subscribe","channel":"a","filters":["skip-self","x"]}"#);
        let Some(Control::Subscribe(channel)) = subscribe else { panic!("{subscribe:?}") };
        assert_eq!((&*channel.name, channel.filters), ("a", 1));
        assert_eq!(read(br#"{"type":"keep-alive"}"#), Some(Control::KeepAlive(None)));
        let Some(Control::KeepAlive(Some(keep_alive))) =
            read(br#"{"type":"keep-alive","content":"ka","timeout":2,"message-type":"ping"}"#)
        else {
            panic!()
        };
        assert_eq!((keep_alive.seconds, keep_alive.kind), (2, FrameKind::Ping));
        let delayed = Control::SendDelayed(FrameKind::Text, "late".into(), Duration::from_secs(1));
        let text = br#"{"type":"send-delayed","content":"late","timeout":1}"#;
        assert_eq!(read(text), Some(delayed));
        for text in [
            "",
            "[]",
            "{}",
            r#"{"type":"nonsense"}"#,
            r#"{"type":"subscribe"}"#,
            r#"{"type":"subscribe","channel":""}"#,
            r#"{"type":"subscribe","channel":1}"#,
            r#"{"type":"send-delayed","content":"x"}"#,
            r#"{"type":"send-delayed","timeout":1}"#,
            r#"{"type":"keep-alive","content-bin":"?"}"#,
            r#"{"type":"keep-alive","content":"x","message-type":"odd"}"#,
        ] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
    }
}
