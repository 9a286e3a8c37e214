//! Subscribing by long-poll.

use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use superpoll_rt::time::timeout;

use super::cursor::{Asked, Cursor};
use super::desk::{At, Desk, Place};
use super::hub::{Message, Since};
use super::mailbox::Mailbox;
use crate::body::Body;
use crate::exchange::Exchange;
use crate::park::{Parked, Until, Waiting, Why};
use crate::succession::state::Activity;

/// Messages as JSON, and where their reader is then.
pub(super) fn json(messages: &[Message], missed: bool, next: Cursor) -> Bytes {
    let mut json = Vec::from(&b"{\"messages\":["[..]);
    for (index, message) in messages.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        json.extend_from_slice(format!("{comma}{{\"id\":{},", message.id).as_bytes());
        match std::str::from_utf8(&message.data) {
            Ok(text) if message.is_text => {
                json.extend_from_slice(b"\"data\":");
                // Neither the text nor the memory can refuse it.
                let _ = serde_json::to_writer(&mut json, text);
            }
            _ => {
                json.extend_from_slice(b"\"base64\":\"");
                json.extend_from_slice(BASE64.encode(&message.data).as_bytes());
                json.push(b'"');
            }
        }
        json.push(b'}');
    }
    let missed = if missed { ",\"missed\":true" } else { "" };
    let epoch = next.epoch.unwrap_or(0);
    let end = format!("],\"next\":{},\"epoch\":\"{epoch:x}\"{missed}}}\n", next.id);
    json.extend_from_slice(end.as_bytes());
    json.into()
}

/// A response of JSON.
fn found(json: Bytes) -> Response<Body> {
    let length = json.len();
    let mut response = Response::new(Body::from(json));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, length.into());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl Desk {
    /// Answers with what there is, or waits for something.
    pub(super) async fn poll(self: Rc<Desk>, asked: &Asked, exchange: &Exchange) -> Response<Body> {
        let Since { messages, missed, last } = self.hub.since(asked.after);
        if missed || !messages.is_empty() {
            return found(json(&messages, missed, self.cursor(last)));
        }
        let longest = self.hub.options().poll;
        let wait = asked.wait.map_or(longest, |wait| Duration::from_secs(wait).min(longest));
        if wait.is_zero() || self.is_retired() {
            return self.in_vain(last);
        }
        if exchange.can_wait() {
            exchange.wait(move |waiting| self.park_poll(waiting, last, wait));
            return pending().await;
        }
        let since = self.hub.join(self.outlet, Some(self.cursor(last)));
        let mailbox = Rc::new(Mailbox::default());
        let member = self.enter(since.last, At::Task(mailbox.clone()));
        if since.missed || !since.messages.is_empty() {
            return found(json(&since.messages, since.missed, self.cursor(since.last)));
        }
        let some = poll_fn(|cx| {
            mailbox.remember(cx);
            if mailbox.is_empty() && mailbox.ended().is_none() {
                return Poll::Pending;
            }
            Poll::Ready(())
        });
        let _ = timeout(wait, some).await;
        drop(member);
        let messages: Vec<Message> = std::iter::from_fn(|| mailbox.take()).collect();
        match messages.last() {
            None => self.in_vain(last),
            Some(message) => {
                // Of a burst that is more than may wait, the oldest are left out.
                let missed = messages[0].id > last + 1;
                found(json(&messages, missed, self.cursor(message.id)))
            }
        }
    }

    /// There was nothing in all this time.
    fn in_vain(&self, last: u64) -> Response<Body> {
        let mut response = self.nothing(StatusCode::NO_CONTENT, last);
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.is_retired() {
            // Who asks again does so on another connection, where there may be another server.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Has a request wait that has read all up to `last`.
    pub(crate) fn park_poll(self: Rc<Desk>, waiting: Waiting, last: u64, wait: Duration) {
        let Waiting { mut parked } = waiting;
        let since = self.hub.join(self.outlet, Some(self.cursor(last)));
        if since.missed || !since.messages.is_empty() {
            self.hub.leave(self.outlet);
            let json = json(&since.messages, since.missed, self.cursor(since.last));
            return self.answer_poll(parked, json);
        }
        let index = self.places.borrow().vacant_key();
        parked.token = index as u64;
        let resume = parked.resume.as_ref();
        let form = resume.map(|resume| (resume.form, resume.requests, resume.before.clone()));
        let activity = || {
            let (form, requests, before) = form?;
            let before = before.map_or(Vec::new(), |before| before.to_vec());
            Some(Activity::Poll { space: self.hub.space()?, last, form, requests, before })
        };
        match self.lot.park(parked, self.clone(), Until::HungUp, Some(wait), activity) {
            Ok(key) => {
                self.places.borrow_mut().insert(Place { last, at: At::Poll(key) });
            }
            Err((parked, _)) => {
                self.hub.leave(self.outlet);
                self.end_poll(parked, last, Why::Draining);
            }
        }
    }

    /// Answers a request that was parked.
    pub(super) fn answer_poll(&self, parked: Parked, json: Bytes) {
        Waiting { parked }.answer(found(json));
    }

    /// Answers a request that was parked in vain. What it was not given it has not read, though it was published.
    pub(super) fn end_poll(&self, parked: Parked, last: u64, why: Why) {
        match why {
            // The client has gone.
            Why::Ready => {}
            Why::TimedOut => Waiting { parked }.answer(self.in_vain(last)),
            Why::Draining => {
                let mut response = self.in_vain(last);
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
                Waiting { parked }.answer(response);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_can_be_said_can_be_said_in_json() {
        let message = |id, data: &'static [u8], is_text| Message { id, data: data.into(), is_text };
        let messages = [
            message(7, "\"\u{0}\n\u{1f600}".as_bytes(), true),
            message(8, b"\xff", false),
            message(9, b"text", false),
        ];
        let next = Cursor { id: 9, epoch: Some(0xbee) };
        let json = json(&messages, true, next);
        let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let expected = serde_json::json!({
            "messages": [
                {"id": 7, "data": "\"\u{0}\n\u{1f600}"},
                {"id": 8, "base64": "/w=="},
                {"id": 9, "base64": "dGV4dA=="},
            ],
            "next": 9,
            "epoch": "bee",
            "missed": true,
        });
        assert_eq!(value, expected);
    }
}
