//! Updates: the form in which a publisher sends one (the Mercure draft, section "Publication"), and
//! their ids.

use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use superpoll_http::mercure::selector::LONGEST;

use super::form;
use super::{EARLIEST, PATH};
use crate::channel::cursor::Cursor;
use crate::channel::message::{Draft, Message, Meta, Update};

/// The most topics of an update.
const MOST_TOPICS: usize = 100;

/// The longest id of a publisher, and the longest type of an event, in bytes.
const LONGEST_ID: usize = 512;

/// The beginning of ids that the hub itself gives out, which no publisher may use.
const OWN: char = '#';

/// Returns the id of an update: that of its publisher, or its place in the log as a fragment.
pub(in crate::channel) fn id(message: &Message, epoch: u64) -> String {
    match message.update().and_then(|update| update.id.as_ref()) {
        Some(id) => id.clone(),
        None => place(Cursor { id: message.id, epoch: Some(epoch) }),
    }
}

/// Returns the id of a place in the log.
pub(in crate::channel) fn place(cursor: Cursor) -> String {
    let mut id = OWN.to_string();
    // Writing to memory cannot fail.
    let _ = write!(id, "{cursor}");
    id
}

/// Returns the place that an id names, if it is one that the hub has given out.
pub(in crate::channel) fn parse_place(id: &str) -> Option<Cursor> {
    Cursor::parse(id.strip_prefix(OWN)?).filter(|cursor| cursor.epoch.is_some())
}

/// The reason for which a form is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::channel) enum Refused {
    /// It is wrong, in words.
    Wrong(String),
    /// The data has more bytes than a message may have.
    TooLarge,
    /// A topic is one of those that only the hub itself publishes to.
    Reserved(String),
}

fn wrong<T>(what: impl Into<String>) -> Result<T, Refused> {
    Err(Refused::Wrong(what.into()))
}

/// Checks a text that becomes a field of an event, and has to end with its line.
fn line(what: &str, text: &str, longest: usize) -> Result<(), Refused> {
    if text.len() > longest {
        return wrong(format!("{what} has {} bytes, expected at most {longest}", text.len()));
    }
    if text.chars().any(char::is_control) {
        return wrong(format!("{what} has a control character"));
    }
    Ok(())
}

/// Checks a topic, or a selector, of a client.
///
/// # Errors
///
/// The mistake, in words.
pub(super) fn check_topic(topic: &str) -> Result<(), String> {
    if topic.is_empty() {
        return Err("topic is empty".to_owned());
    }
    line("topic", topic, LONGEST).map_err(|refused| match refused {
        Refused::Wrong(what) => what,
        Refused::TooLarge | Refused::Reserved(_) => unreachable!("a line is right or wrong"),
    })
}

/// Whether a topic is one of those that only the hub itself publishes to, on whatever host.
fn is_reserved(topic: &str) -> bool {
    // By hand: the host of an IRI may be of any script.
    let is_scheme = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    let behind = topic
        .split_once("//")
        .filter(|(scheme, _)| scheme.strip_suffix(':').map_or(scheme.is_empty(), is_scheme));
    let path = behind.and_then(|(_, rest)| rest.get(rest.find(['/', '?', '#'])?..));
    [Some(topic), path].into_iter().flatten().any(|path| {
        let rest = path.strip_prefix(PATH);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
    })
}

/// Reads the form of a publication, whose data may have `limit` bytes.
///
/// # Errors
///
/// The form is refused.
pub(in crate::channel) fn read(body: &[u8], limit: u64) -> Result<Draft, Refused> {
    let mut update = Update::default();
    let (mut data, mut event, mut id, mut retry) = (None, None, None, None);
    for field in form::fields(body) {
        let (name, value) = field.map_err(Refused::Wrong)?;
        let once = match name.as_str() {
            "topic" => {
                check_topic(&value).map_err(Refused::Wrong)?;
                if is_reserved(&value) {
                    return Err(Refused::Reserved(value));
                }
                if update.topics.len() == MOST_TOPICS {
                    return wrong(format!("an update has at most {MOST_TOPICS} topics"));
                }
                update.topics.push(value);
                continue;
            }
            "private" => {
                update.is_private = true;
                continue;
            }
            "data" => &mut data,
            "type" => &mut event,
            "id" => &mut id,
            "retry" => &mut retry,
            // The draft may get further fields.
            _ => continue,
        };
        if once.replace(value).is_some() {
            return wrong(format!("{name} is there more than once"));
        }
    }
    if update.topics.is_empty() {
        return wrong("the form has no topic");
    }
    let data = data.unwrap_or_default();
    if data.len() as u64 > limit {
        return Err(Refused::TooLarge);
    }
    // An empty field is as good as none.
    let [event, id, retry] =
        [event, id, retry].map(|field: Option<String>| field.filter(|text| !text.is_empty()));
    if let Some(event) = &event {
        line("type", event, LONGEST_ID)?;
    }
    if let Some(id) = &id {
        line("id", id, LONGEST_ID)?;
        if id.starts_with(OWN) {
            return wrong("id begins with #, as only the ids of the hub itself do");
        }
        if id == EARLIEST {
            return wrong(format!("id is {EARLIEST}, which stands for all updates"));
        }
    }
    update.id = id;
    if let Some(retry) = retry {
        match retry.parse() {
            Ok(milliseconds) if retry.bytes().all(|byte| byte.is_ascii_digit()) => {
                update.retry = Some(milliseconds);
            }
            _ => return wrong(format!("retry={retry:?}, expected a number of milliseconds")),
        }
    }
    let meta = Meta { event, update: Some(Box::new(update)), ..Meta::default() };
    Ok(Draft { data: Bytes::from(data), is_text: true, meta: Some(Arc::new(meta)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> Refused {
        read(body.as_bytes(), 10).map(drop).unwrap_err()
    }

    #[test]
    fn a_form_is_read() {
        let body = "topic=a&topic=https%3A%2F%2Fb&data=x%0Ay&private=off&id=urn%3Ax&type=t&retry=9";
        let draft = read(body.as_bytes(), 10).unwrap();
        assert_eq!((&*draft.data, draft.is_text), (&b"x\ny"[..], true));
        let meta = draft.meta.unwrap();
        assert_eq!(meta.event.as_deref(), Some("t"));
        let expected = Update {
            topics: vec!["a".to_owned(), "https://b".to_owned()],
            is_private: true,
            id: Some("urn:x".to_owned()),
            retry: Some(9),
        };
        assert_eq!(meta.update.as_deref(), Some(&expected));
        let draft = read(b"topic=a&private&id=&x=1&x=2", 10).unwrap();
        let update = draft.meta.unwrap().update.clone().unwrap();
        assert!(draft.data.is_empty() && update.is_private && update.id.is_none());
    }

    #[test]
    fn mistakes_are_named() {
        for (body, expected) in [
            ("", "the form has no topic"),
            ("data=x", "the form has no topic"),
            ("topic=", "topic is empty"),
            ("topic=a%00", "topic has a control character"),
            ("topic=a&data=%ff", "data is not UTF-8"),
            ("topic=a&data=x&data=y", "data is there more than once"),
            ("topic=a&id=%23x", "id begins with #, as only the ids of the hub itself do"),
            ("topic=a&id=earliest", "id is earliest, which stands for all updates"),
            ("topic=a&id=x%0Adata:y", "id has a control character"),
            ("topic=a&type=x%0D", "type has a control character"),
            ("topic=a&retry=soon", "retry=\"soon\", expected a number of milliseconds"),
            ("topic=a&retry=%2B1", "retry=\"+1\", expected a number of milliseconds"),
        ] {
            assert_eq!(refused(body), Refused::Wrong(expected.to_owned()), "{body}");
        }
        assert_eq!(refused("topic=a&data=12345678901"), Refused::TooLarge);
        let many = "topic=a&".repeat(MOST_TOPICS + 1);
        assert!(matches!(refused(&many), Refused::Wrong(_)));
        let long = format!("topic={}", "x".repeat(LONGEST + 1));
        assert!(matches!(refused(&long), Refused::Wrong(_)));
    }

    /// Otherwise a publisher could report subscriptions that do not exist.
    #[test]
    fn the_hub_alone_publishes_to_its_own_topics() {
        for topic in [
            "/.well-known/mercure",
            "/.well-known/mercure/subscriptions/a/b",
            "https://example.com/.well-known/mercure/subscriptions/a/b",
            "/.well-known/mercure?x",
            "//example.com/.well-known/mercure/subscriptions/a/b",
            "https://ex\u{e4}mple.com/.well-known/mercure/subscriptions/a/b",
        ] {
            assert_eq!(refused(&format!("topic={topic}")), Refused::Reserved(topic.to_owned()));
        }
        for topic in [
            "/.well-known/mercureal",
            "https://example.com/x/.well-known/mercure",
            "/users/?topic=https://example.com/.well-known/mercure",
        ] {
            assert!(read(format!("topic={topic}").as_bytes(), 9).is_ok(), "{topic}");
        }
    }

    #[test]
    fn ids_of_the_hub_are_places() {
        let cursor = Cursor { id: 7, epoch: Some(0xabc) };
        assert_eq!(place(cursor), "#7-abc");
        assert_eq!(parse_place("#7-abc"), Some(cursor));
        for id in ["7-abc", "#7", "#", "", "#7-abc "] {
            assert_eq!(parse_place(id), None, "{id}");
        }
        let message = Message::new(7, "x", true);
        assert_eq!(id(&message, 0xabc), "#7-abc");
    }
}
