//! What a publisher may say of a message: the type of its event, a key that makes a repeated
//! publication the same message, and how long it is given to subscribers that come.

use std::sync::Arc;

use http::HeaderMap;
use superpoll_http::unix_time::seconds_now;

use super::message::Meta;

/// The field with the type of the event.
const EVENT: &str = "channel-event";

/// The field with the key (draft-ietf-httpapi-idempotency-key-header).
const KEY: &str = "idempotency-key";

/// The field with the seconds for which the message is given to subscribers that come.
const TTL: &str = "channel-ttl";

/// The longest type of an event, and the longest key, in bytes.
const LONGEST: usize = 128;

/// The types of events that have a meaning of their own.
const RESERVED: [&str; 2] = ["missed", "base64"];

/// The properties that a publisher gives a message, unchecked.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Wanted {
    pub event: Option<String>,
    pub key: Option<String>,
    pub ttl: Option<u64>,
}

/// Returns the reason for which a message is refused that is too large.
pub(super) fn too_large(limit: u64) -> String {
    format!("a message of this channel has {limit} bytes at most")
}

/// Checks a text of a publisher.
fn text(what: &str, text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > LONGEST {
        return Err(format!("the {what} has 1 to {LONGEST} bytes, not {}", text.len()));
    }
    if text.chars().any(char::is_control) {
        return Err(format!("the {what} has a control character"));
    }
    Ok(())
}

impl Wanted {
    /// Reads the fields of a request.
    ///
    /// # Errors
    ///
    /// The mistake, in words.
    pub(super) fn read(headers: &HeaderMap) -> Result<Wanted, String> {
        let field = |name: &str| {
            let mut fields = headers.get_all(name).into_iter();
            let Some(field) = fields.next() else { return Ok(None) };
            if fields.next().is_some() {
                return Err(format!("{name} is there more than once"));
            }
            let text = std::str::from_utf8(field.as_bytes());
            text.map(|text| Some(text.to_owned())).map_err(|_| format!("{name} is not UTF-8"))
        };
        let ttl = field(TTL)?.map(|text| {
            text.parse().map_err(|_| format!("{TTL}: {text:?}, expected a number of seconds"))
        });
        Ok(Wanted { event: field(EVENT)?, key: field(KEY)?, ttl: ttl.transpose()? })
    }

    /// Returns it as it is kept with a message.
    ///
    /// # Errors
    ///
    /// The mistake, in words.
    pub(super) fn check(self, is_text: bool) -> Result<Option<Arc<Meta>>, String> {
        if let Some(event) = &self.event {
            text("event type", event)?;
            if RESERVED.contains(&event.as_str()) {
                return Err(format!("the event type {event:?} has a meaning of its own"));
            }
            if !is_text {
                return Err("a message with an event type is text, which is UTF-8".to_owned());
            }
        }
        if let Some(key) = &self.key {
            text("key", key)?;
        }
        if self.ttl == Some(0) {
            return Err("a message is kept for at least a second".to_owned());
        }
        let expires = self.ttl.map(|ttl| seconds_now().saturating_add(ttl));
        Ok(Meta { event: self.event, key: self.key, expires, update: None }.shared())
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(fields: &[(&'static str, &'static str)]) -> Result<Option<Arc<Meta>>, String> {
        let mut headers = HeaderMap::new();
        for &(name, value) in fields {
            headers.append(name, HeaderValue::from_static(value));
        }
        Wanted::read(&headers)?.check(true)
    }

    #[test]
    fn fields_are_read_and_mistakes_are_named() {
        assert_eq!(read(&[]), Ok(None));
        let meta = read(&[(EVENT, "added"), (KEY, "\"k\""), (TTL, "60")]).unwrap().unwrap();
        assert_eq!((meta.event.as_deref(), meta.key.as_deref()), (Some("added"), Some("\"k\"")));
        assert!(meta.expires.unwrap() >= seconds_now() + 50);
        for (field, expected) in [
            ((EVENT, ""), "the event type has 1 to 128 bytes, not 0"),
            ((EVENT, "a\tb"), "the event type has a control character"),
            ((EVENT, "base64"), "the event type \"base64\" has a meaning of its own"),
            ((TTL, "soon"), "channel-ttl: \"soon\", expected a number of seconds"),
            ((TTL, "0"), "a message is kept for at least a second"),
        ] {
            assert_eq!(read(&[field]), Err(expected.to_owned()));
        }
        let twice = read(&[(KEY, "a"), (KEY, "b")]);
        assert_eq!(twice, Err("idempotency-key is there more than once".to_owned()));
        let event = Some("added".to_owned());
        assert!(Wanted { event, ..Wanted::default() }.check(false).is_err());
    }
}
