//! The place up to which a subscriber has read a channel.

use std::fmt;

use http::{HeaderMap, Uri};
use percent_encoding::percent_decode_str;

/// An id, and its epoch.
///
/// It is written `ID-EPOCH`, the epoch in hexadecimal digits, or `ID` alone if the epoch is not
/// known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// The last message that was read; zero: none.
    pub id: u64,
    /// The hub's epoch, if it is known.
    pub epoch: Option<u64>,
}

impl Cursor {
    /// Parses the output of [`Display`](fmt::Display).
    #[must_use]
    pub fn parse(text: &str) -> Option<Cursor> {
        let digits = |text: &str| !text.is_empty() && !text.starts_with('+');
        let (id, epoch) = match text.split_once('-') {
            None => (text, None),
            Some((id, epoch)) if digits(epoch) => (id, Some(u64::from_str_radix(epoch, 16).ok()?)),
            Some(_) => return None,
        };
        digits(id).then_some(())?;
        Some(Cursor { id: id.parse().ok()?, epoch })
    }

    /// Returns the cursor of a reader that claims to have read a message that never existed.
    pub(super) const fn foreign() -> Cursor {
        Cursor { id: u64::MAX, epoch: None }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.epoch {
            None => write!(f, "{}", self.id),
            Some(epoch) => write!(f, "{}-{epoch:x}", self.id),
        }
    }
}

/// A question about a channel.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Question {
    /// Whether the users who are there are to be listed.
    pub lists_members: bool,
    /// The user after whom the list begins.
    pub after_user: Option<String>,
}

/// The parameters of a subscriber's request.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct SubscribeRequest {
    /// The place to begin after; without it, the subscriber gets messages from now on.
    pub after: Option<Cursor>,
    /// The seconds for which it waits.
    pub wait: Option<u64>,
    /// It asks about the channel, and not for its messages.
    pub question: Option<Question>,
}

impl SubscribeRequest {
    /// Reads a request; the error says why it is wrong.
    pub(super) fn read(uri: &Uri, headers: &HeaderMap) -> Result<SubscribeRequest, String> {
        let mut request = SubscribeRequest::default();
        let (mut is_question, mut question) = (false, Question::default());
        for pair in uri.query().unwrap_or("").split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8_lossy();
            let wrong = |expected: &str| format!("{name}={value:?} in the URL: {expected}\n");
            match name {
                "after" => {
                    let cursor = Cursor::parse(&value);
                    let cursor = cursor.ok_or_else(|| wrong("the id of a message is expected"))?;
                    request.after = Some(cursor);
                }
                "wait" => {
                    let seconds = value.parse();
                    let seconds = seconds.map_err(|_| wrong("seconds are expected"))?;
                    request.wait = Some(seconds);
                }
                "info" | "members" if value != "1" => return Err(wrong("1 is expected")),
                "info" => is_question = true,
                "members" => question.lists_members = true,
                "after_user" => question.after_user = Some(value.into_owned()),
                _ => {}
            }
        }
        request.question = is_question.then_some(question);
        // A client that connects again asks by the same URL as before: the field has the last id
        // that it has read meanwhile. It is not the client's fault if another server has given the
        // id out.
        if let Some(last) = headers.get("last-event-id").filter(|last| !last.is_empty()) {
            let cursor = last.to_str().ok().and_then(Cursor::parse);
            request.after = Some(cursor.unwrap_or(Cursor::foreign()));
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn cursors_round_trip() {
        for cursor in [
            Cursor { id: 0, epoch: None },
            Cursor { id: 17, epoch: Some(0xabc) },
            Cursor { id: u64::MAX, epoch: Some(u64::MAX) },
        ] {
            assert_eq!(Cursor::parse(&cursor.to_string()), Some(cursor));
        }
        for text in ["", "-", "1-", "-1", "+1", "1-+2", "1-xyz", "99999999999999999999", "1 "] {
            assert_eq!(Cursor::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_field_counts_more_than_the_url() {
        let uri = Uri::from_static("/c?x=1&after=3%2d1f&wait=20");
        let request = SubscribeRequest::read(&uri, &HeaderMap::new()).unwrap();
        let after = Some(Cursor { id: 3, epoch: Some(0x1f) });
        let expected = SubscribeRequest { after, wait: Some(20), question: None };
        assert_eq!(request, expected);
        let question = SubscribeRequest::read(&Uri::from_static("/c?info=1"), &HeaderMap::new());
        assert_eq!(question.unwrap().question, Some(Question::default()));
        let read = |uri| SubscribeRequest::read(&Uri::from_static(uri), &HeaderMap::new());
        let listed = read("/c?after_user=a%20b&info=1&members=1").unwrap().question;
        let after_user = Some("a b".to_owned());
        assert_eq!(listed, Some(Question { lists_members: true, after_user }));
        assert!(read("/c?info=1&members=yes").unwrap_err().contains("1 is expected"));
        let mut headers = HeaderMap::new();
        headers.insert("last-event-id", HeaderValue::from_static("9"));
        let request = SubscribeRequest::read(&uri, &headers).unwrap();
        assert_eq!(request.after, Some(Cursor { id: 9, epoch: None }));
        headers.insert("last-event-id", HeaderValue::from_static("of another server"));
        let request = SubscribeRequest::read(&uri, &headers).unwrap();
        assert_eq!(request.after, Some(Cursor::foreign()));
    }

    #[test]
    fn mistakes_in_the_url_are_named() {
        let read = |uri| SubscribeRequest::read(&Uri::from_static(uri), &HeaderMap::new());
        let error = read("/?after=now").unwrap_err();
        assert_eq!(error, "after=\"now\" in the URL: the id of a message is expected\n");
        let error = read("/?wait=-1").unwrap_err();
        assert_eq!(error, "wait=\"-1\" in the URL: seconds are expected\n");
        assert_eq!(read("/?info=yes").unwrap_err(), "info=\"yes\" in the URL: 1 is expected\n");
        assert_eq!(read("/?afterwards=1&"), Ok(SubscribeRequest::default()));
    }
}
