//! Items: what an application publishes to the connections that it holds.
//!
//! An item belongs to a channel and has up to three formats, one for each kind of held connection.
//! In the log it is a message whose data is the item in postcard. So the log, its records for a
//! successor and the broker know nothing of items.

use bytes::Bytes;
use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use superpoll_http::held::FrameKind;

use crate::channel::message::{Draft, Message, Meta};

/// The longest name of a channel, and the longest id, in bytes.
const LONGEST: usize = 1024;

/// The content for a stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::channel) enum StreamFormat {
    /// More of its body.
    Content(Bytes),
    /// Its end.
    Close,
    /// Its link is asked for.
    Hint,
}

/// The answer to a long-poll.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::channel) enum ResponseFormat {
    /// A response. Its fields take the place of those of the response for the end of the time.
    Response { status: u16, fields: Fields, body: Bytes },
    /// The application is asked again.
    Hint,
}

/// A message for a WebSocket.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::channel) enum SocketFormat {
    /// A message.
    Message { kind: FrameKind, content: Bytes },
    /// The end.
    Close { code: u16, reason: Box<str> },
}

/// An item.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(in crate::channel) struct Item {
    pub channel: Box<str>,
    /// Its id, and that of the item before it, if the application counts items.
    pub id: Option<Box<str>>,
    pub previous: Option<Box<str>>,
    /// The user that has sent it, and those that are not to get it.
    pub sender: Option<Box<str>>,
    pub skip_users: Vec<Box<str>>,
    /// A channel that connections need in addition.
    pub require_sub: Option<Box<str>>,
    pub stream: Option<StreamFormat>,
    pub response: Option<Box<ResponseFormat>>,
    pub socket: Option<SocketFormat>,
}

/// An item as it was published.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::channel) struct Published {
    pub item: Item,
    /// Whether it waits for the item before it, if that is still to come.
    pub waits: bool,
}

impl Item {
    /// Returns the item of a message.
    pub(in crate::channel) fn of(message: &Message) -> Option<Item> {
        postcard::from_bytes(&message.data).ok()
    }

    /// Returns about the memory that it takes.
    pub(super) fn cost(&self) -> usize {
        let stream = match &self.stream {
            Some(StreamFormat::Content(content)) => content.len(),
            _ => 0,
        };
        let response = match self.response.as_deref() {
            Some(ResponseFormat::Response { fields, body, .. }) => {
                let each = fields.iter().map(|(name, value)| name.len() + value.len());
                each.sum::<usize>() + body.len()
            }
            _ => 0,
        };
        let socket = match &self.socket {
            Some(SocketFormat::Message { content, .. }) => content.len(),
            _ => 0,
        };
        size_of::<Item>() + stream + response + socket
    }

    /// Returns the key of an item of a channel, by which a repeated one is noticed. Names of
    /// channels have no such byte.
    pub(in crate::channel) fn key(channel: &str, id: &str) -> String {
        format!("{channel}\0{id}")
    }

    /// Returns it as a message before it is published.
    pub(in crate::channel) fn draft(&self) -> Draft {
        let key = self.id.as_ref().map(|id| Item::key(&self.channel, id));
        let meta = Meta { key, ..Meta::default() }.shared();
        // No field can be refused.
        let data = postcard::to_stdvec(self).unwrap_or_default().into();
        Draft { data, is_text: false, meta }
    }
}

/// Reads the body of a publication.
///
/// # Errors
///
/// The mistake, in words.
pub(super) fn read(body: &[u8]) -> Result<Vec<Published>, String> {
    let json: Value =
        serde_json::from_slice(body).map_err(|_| "Body is not valid JSON.".to_owned())?;
    let wrong = |what: String| format!("Invalid format: {what}");
    let Value::Object(object) = json else { return Err("Invalid format.".to_owned()) };
    match object.get("items") {
        None => Err(wrong("object does not contain 'items'".to_owned())),
        Some(Value::Array(items)) => items.iter().map(|item| one(item).map_err(wrong)).collect(),
        Some(_) => Err(wrong("object contains 'items' with wrong type".to_owned())),
    }
}

/// An object of the publication, and its name for mistakes.
#[derive(Clone, Copy)]
struct Part<'a> {
    name: &'static str,
    fields: &'a Map<String, Value>,
}

impl<'a> Part<'a> {
    fn of(name: &'static str, value: &'a Value) -> Result<Part<'a>, String> {
        let fields = value.as_object().ok_or_else(|| format!("{name} is not an object"))?;
        Ok(Part { name, fields })
    }

    fn wrong_type<T>(&self, key: &str) -> Result<T, String> {
        Err(format!("{} contains '{key}' with wrong type", self.name))
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, String> {
        match self.fields.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => self.wrong_type(key),
        }
    }

    fn number(&self, key: &str, most: u64) -> Result<Option<u64>, String> {
        match self.fields.get(key) {
            None => Ok(None),
            Some(Value::Number(number)) => match number.as_u64().filter(|it| *it <= most) {
                Some(number) => Ok(Some(number)),
                None => Err(format!("{} contains '{key}' with invalid value", self.name)),
            },
            Some(_) => self.wrong_type(key),
        }
    }

    /// Returns a name or id.
    fn name(&self, key: &str) -> Result<Option<Box<str>>, String> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        if text.is_empty() || text.len() > LONGEST || text.contains('\0') {
            return Err(format!("{} contains '{key}' with invalid value", self.name));
        }
        Ok(Some(text.into()))
    }

    /// Returns content that is a text, or bytes in base64, and whether it is a text.
    fn content(&self, key: &str) -> Result<Option<(Bytes, bool)>, String> {
        let binary = format!("{key}-bin");
        if let Some(text) = self.text(&binary)? {
            let bytes = BASE64.decode(text.as_bytes());
            let bytes = bytes.or_else(|_| self.wrong_type::<Vec<u8>>(&binary))?;
            return Ok(Some((bytes.into(), false)));
        }
        Ok(self.text(key)?.map(|text| (Bytes::copy_from_slice(text.as_bytes()), true)))
    }

    /// Returns an action other than sending, if there is one.
    fn action(&self, known: &[&str]) -> Result<Option<&'a str>, String> {
        match self.text("action")? {
            None | Some("send") => Ok(None),
            Some(action) if known.contains(&action) => Ok(Some(action)),
            Some(action) => Err(format!("{} has the unknown action '{action}'", self.name)),
        }
    }
}

fn one(value: &Value) -> Result<Published, String> {
    const NAME: &str = "publish item object";
    let part = Part::of(NAME, value)?;
    let Some(channel) = part.name("channel")? else {
        return Err(format!("{NAME} does not contain 'channel'"));
    };
    // Old publishers have the formats in the item itself.
    let formats = match part.fields.get("formats") {
        None => part,
        Some(value) => Part::of("'formats'", value)?,
    };
    let is_format = |name: &&String| formats.fields.get(*name).is_some_and(Value::is_object);
    if formats.fields.keys().find(is_format).is_none() {
        return Err("no formats specified".to_owned());
    }
    let meta = part.fields.get("meta").map(|meta| Part::of("'meta'", meta)).transpose()?;
    let said = |key: &str| meta.map_or(Ok(None), |meta| meta.text(key));
    let skipped = said("skip_users")?.unwrap_or("").split(',').map(str::trim);
    let format = |name: &'static str| formats.fields.get(name);
    let item = Item {
        channel,
        id: part.name("id")?,
        previous: part.name("prev-id")?,
        sender: said("sender")?.map(Into::into),
        skip_users: skipped.filter(|user| !user.is_empty()).map(Into::into).collect(),
        require_sub: said("require_sub")?.map(Into::into),
        stream: format("http-stream").map(stream).transpose()?,
        response: format("http-response").map(response).transpose()?.map(Box::new),
        socket: format("ws-message").map(socket).transpose()?,
    };
    let waits = match part.fields.get("no-seq") {
        None => true,
        Some(Value::Bool(no)) => !no,
        Some(_) => return part.wrong_type("no-seq"),
    };
    Ok(Published { item, waits })
}

fn stream(value: &Value) -> Result<StreamFormat, String> {
    let part = Part::of("'http-stream'", value)?;
    match part.action(&["close", "hint"])? {
        Some("close") => return Ok(StreamFormat::Close),
        Some(_) => return Ok(StreamFormat::Hint),
        None => {}
    }
    match part.content("content")? {
        Some((content, _)) => Ok(StreamFormat::Content(content)),
        None => Err("'http-stream' does not contain 'content' or 'content-bin'".to_owned()),
    }
}

fn response(value: &Value) -> Result<ResponseFormat, String> {
    let part = Part::of("'http-response'", value)?;
    if part.action(&["hint"])?.is_some() {
        return Ok(ResponseFormat::Hint);
    }
    if part.fields.contains_key("body-patch") {
        return Err("'http-response' contains 'body-patch', which this server lacks".to_owned());
    }
    let Some((body, _)) = part.content("body")? else {
        return Err("'http-response' does not contain 'body' or 'body-bin'".to_owned());
    };
    let status = part.number("code", 999)?.unwrap_or(200);
    let status = u16::try_from(status).ok().filter(|status| (200..=999).contains(status));
    let status = status.ok_or("'http-response' contains 'code' with invalid value")?;
    let fields = part.fields.get("headers").map(fields).transpose()?.unwrap_or_default();
    Ok(ResponseFormat::Response { status, fields, body })
}

/// Fields of a head, by their names.
pub(in crate::channel) type Fields = Vec<(Box<str>, Box<str>)>;

/// Reads fields, as an object or as a list of pairs.
pub(super) fn fields(value: &Value) -> Result<Fields, String> {
    let wrong = || "'headers' is not an object or a list of pairs of strings".to_owned();
    let pair = |name: &str, value: &Value| -> Option<(Box<str>, Box<str>)> {
        http::HeaderName::from_bytes(name.as_bytes()).ok()?;
        let value = value.as_str()?;
        http::HeaderValue::from_str(value).ok()?;
        Some((name.into(), value.into()))
    };
    let read = match value {
        Value::Object(object) => object.iter().map(|(name, value)| pair(name, value)).collect(),
        Value::Array(pairs) => pairs
            .iter()
            .map(|one| match one.as_array().map(Vec::as_slice) {
                Some([Value::String(name), value]) => pair(name, value),
                _ => None,
            })
            .collect(),
        _ => None,
    };
    read.ok_or_else(wrong)
}

fn socket(value: &Value) -> Result<SocketFormat, String> {
    let part = Part::of("'ws-message'", value)?;
    if part.action(&["close"])?.is_some() {
        let code = part.number("code", u64::from(u16::MAX))?.unwrap_or(0);
        let code = close_code(u16::try_from(code).unwrap_or(0));
        let reason = part.text("reason")?.unwrap_or("");
        return Ok(SocketFormat::Close { code, reason: shortened(reason).into() });
    }
    let content = part.content("content")?;
    let kind = match part.text("type")? {
        None if content.as_ref().is_some_and(|(_, is_text)| !is_text) => FrameKind::Binary,
        None | Some("text") => FrameKind::Text,
        Some("binary") => FrameKind::Binary,
        Some("ping") => FrameKind::Ping,
        Some("pong") => FrameKind::Pong,
        Some(other) => return Err(format!("'ws-message' has the unknown type '{other}'")),
    };
    let is_control = matches!(kind, FrameKind::Ping | FrameKind::Pong);
    let content = match content {
        Some((content, _)) => content,
        None if is_control => Bytes::new(),
        None => {
            return Err("'ws-message' does not contain 'content' or 'content-bin'".to_owned());
        }
    };
    if is_control && content.len() > LONGEST_CONTROL {
        return Err(format!(
            "'ws-message' has more than {LONGEST_CONTROL} bytes of a ping or pong"
        ));
    }
    if kind == FrameKind::Text && std::str::from_utf8(&content).is_err() {
        return Err("'ws-message' is a text that is not UTF-8".to_owned());
    }
    Ok(SocketFormat::Message { kind, content })
}

/// The longest content of a control frame (RFC 6455, section 5.5).
pub(super) const LONGEST_CONTROL: usize = 125;

/// Returns a code that may be sent with the end of a WebSocket (RFC 6455, section 7.4). Libraries
/// send zero for none.
pub(super) fn close_code(code: u16) -> u16 {
    match code {
        1000..=1003 | 1007..=1014 | 3000..=4999 => code,
        _ => 1000,
    }
}

/// Returns as much of a reason for an end as fits into a frame.
pub(super) fn shortened(reason: &str) -> &str {
    let mut end = reason.len().min(LONGEST_CONTROL - 2);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}

#[cfg(test)]
pub(in crate::channel) mod tests {
    use superpoll_http::held::{HeldFor, HeldRecord, HeldRequest, HeldSocket};

    use super::*;
    use crate::channel::form::Form;
    use crate::channel::grip::instruct::named;

    /// An item for streams and WebSockets.
    pub(in crate::channel) fn item(channel: &str, content: Bytes) -> Item {
        Item {
            channel: channel.into(),
            stream: Some(StreamFormat::Content(content.clone())),
            socket: Some(SocketFormat::Message { kind: FrameKind::Text, content }),
            ..Item::default()
        }
    }

    /// A connection that gets the items of some channels.
    pub(in crate::channel) fn held(form: Form, channels: &[&str]) -> HeldRecord {
        let purpose = match form {
            Form::HeldSocket => HeldFor::Socket {
                request: Box::new(HeldRequest {
                    method: "POST".into(),
                    target: "/".into(),
                    rewritten: None,
                    user: None,
                    fields: Vec::new(),
                    body: None,
                }),
                socket: Box::new(HeldSocket {
                    id: [7; 16],
                    prefix: Some("m:".into()),
                    is_detached: false,
                    call_seconds: None,
                }),
            },
            _ => {
                HeldFor::Stream { is_open: true, next: None, gone: None, host: "a.example".into() }
            }
        };
        HeldRecord {
            route: "a.example /".into(),
            channels: channels.iter().map(|name| named(name).unwrap()).collect(),
            meta: Vec::new(),
            keep_alive: None,
            purpose,
        }
    }

    fn items(text: &str) -> Result<Vec<Item>, String> {
        Ok(read(text.as_bytes())?.into_iter().map(|published| published.item).collect())
    }

    #[test]
    fn items_have_a_format_for_each_kind_of_connection() {
        let found = items(
            r#"{"items":[{"channel":"c","id":"2","prev-id":"1","meta":{"sender":"u","skip_users":"a, b"},
                "formats":{"http-stream":{"content":"s\n"},
                "http-response":{"code":201,"reason":"Made","headers":{"X-A":"1"},"body-bin":"AP9B"},
                "ws-message":{"content-bin":"AQI="}}}]}"#,
        );
        let expected = Item {
            channel: "c".into(),
            id: Some("2".into()),
            previous: Some("1".into()),
            sender: Some("u".into()),
            skip_users: vec!["a".into(), "b".into()],
            require_sub: None,
            stream: Some(StreamFormat::Content(
                "s
"
                .into(),
            )),
            response: Some(Box::new(ResponseFormat::Response {
                status: 201,
                fields: vec![("X-A".into(), "1".into())],
                body: Bytes::from_static(b"\0\xffA"),
            })),
            socket: Some(SocketFormat::Message {
                kind: FrameKind::Binary,
                content: Bytes::from_static(b"\x01\x02"),
            }),
        };
        assert_eq!(found, Ok(vec![expected.clone()]));
        let message = Message::new(1, expected.draft().data, false);
        assert_eq!(Item::of(&message), Some(expected));
    }

    #[test]
    fn old_publishers_have_the_formats_in_the_item() {
        let found = items(r#"{"items":[{"channel":"c","http-stream":{"content":"old"}}]}"#);
        let stream = found.unwrap().remove(0).stream;
        assert_eq!(stream, Some(StreamFormat::Content("old".into())));
    }

    #[test]
    fn ends_and_hints_need_no_content() {
        let found = items(
            r#"{"items":[{"channel":"c","formats":{"http-stream":{"action":"close"},
                "http-response":{"action":"hint"},"ws-message":{"action":"close","code":0}}}]}"#,
        );
        let item = found.unwrap().remove(0);
        assert_eq!(item.stream, Some(StreamFormat::Close));
        assert_eq!(item.response, Some(Box::new(ResponseFormat::Hint)));
        // No client would take a code of zero.
        let end = SocketFormat::Close { code: 1000, reason: "".into() };
        assert_eq!(item.socket, Some(end));
    }

    #[test]
    fn mistakes_are_named() {
        let wrong = |item: &str| items(&format!(r#"{{"items":[{item}]}}"#)).unwrap_err();
        for (text, what) in [
            ("not json", "Body is not valid JSON."),
            ("[]", "Invalid format."),
            ("{}", "Invalid format: object does not contain 'items'"),
            (r#"{"items":{}}"#, "Invalid format: object contains 'items' with wrong type"),
        ] {
            assert_eq!(items(text).unwrap_err(), what);
        }
        for (text, what) in [
            (r#"{"channel":"x"}"#, "no formats specified"),
            (r#"{"channel":"x","formats":{}}"#, "no formats specified"),
            (r#"{"formats":{"http-stream":{"content":"x"}}}"#, "does not contain 'channel'"),
            (r#"{"channel":"","formats":{}}"#, "contains 'channel' with invalid value"),
            (r#"{"channel":"x","formats":{"http-stream":{}}}"#, "'content' or 'content-bin'"),
            (
                r#"{"channel":"x","formats":{"http-stream":{"action":"zzz"}}}"#,
                "unknown action 'zzz'",
            ),
            (r#"{"channel":"x","formats":{"http-response":{}}}"#, "'body' or 'body-bin'"),
            (r#"{"channel":"x","formats":{"http-response":{"body-patch":[]}}}"#, "server lacks"),
            (
                r#"{"channel":"x","formats":{"http-response":{"body":"","code":99}}}"#,
                "'code' with invalid value",
            ),
            (
                r#"{"channel":"x","formats":{"http-response":{"body":"","headers":{"a":"\n"}}}}"#,
                "'headers' is not an object or a list",
            ),
            (r#"{"channel":"x","formats":{"ws-message":{}}}"#, "'content' or 'content-bin'"),
            (
                r#"{"channel":"x","formats":{"ws-message":{"content-bin":"/w==","type":"text"}}}"#,
                "a text that is not UTF-8",
            ),
            (
                r#"{"channel":"x","id":5,"formats":{"http-stream":{"content":"x"}}}"#,
                "publish item object contains 'id' with wrong type",
            ),
        ] {
            let found = wrong(text);
            assert!(found.contains(what), "{text}: {found}");
        }
        assert_eq!(items(r#"{"items":[]}"#), Ok(Vec::new()));
        // A format that is not known is for others.
        let unknown = r#"{"items":[{"channel":"x","formats":{"unknown":{"content":"x"}}}]}"#;
        assert_eq!(items(unknown).map(|all| all.len()), Ok(1));
    }
}
