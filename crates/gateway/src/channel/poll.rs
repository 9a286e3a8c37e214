//! Subscribing by long-poll.

use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body::Body as _;
use superpoll_rt::time::timeout;

use super::cursor::Asked;
use super::history::Since;
use super::local_subscribers::{At, Desk, Place};
use super::mailbox::Mailbox;
use super::message::Message;
use super::publish;
use super::replay::{self, Replay};
use super::unread::Unread;
use crate::body::Body;
use crate::exchange::Exchange;
use crate::parking_lot::{Parked, Until, Waiting, Why};
use crate::succession::state::Activity;

/// Returns a response of JSON.
pub(super) fn found(json: impl Into<Body>) -> Response<Body> {
    let body = json.into();
    let length = body.size_hint().exact();
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl Desk {
    /// Answers with the messages that are there, or waits for one.
    pub(super) async fn poll(
        self: Rc<Desk>,
        asked: &Asked,
        exchange: &Exchange,
        mut unread: Unread,
    ) -> Response<Body> {
        let since = self.hub.since(asked.after);
        let last = since.last;
        if since.missed || !since.messages.is_empty() {
            return self.found_since(&since);
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
        exchange.end_with_client();
        let since = self.hub.join(self.outlet, Some(self.cursor(last)));
        let mailbox = Rc::new(Mailbox::default());
        let member = self.enter(since.last, At::Task(mailbox.clone()));
        if since.missed || !since.messages.is_empty() {
            return self.found_since(&since);
        }
        let some = poll_fn(|cx| {
            mailbox.remember(cx);
            if !mailbox.is_empty() || mailbox.ended().is_some() {
                return Poll::Ready(None);
            }
            unread.poll_failed(cx).map(Some)
        });
        if let Ok(Some(error)) = timeout(wait, some).await {
            return publish::failed(&error);
        }
        drop(member);
        let messages: Vec<Message> = std::iter::from_fn(|| mailbox.take(&self.hub)).collect();
        match messages.last() {
            None => self.in_vain(last),
            Some(message) => {
                // Of a burst that is larger than the backlog, the oldest messages are left out.
                let missed = messages[0].id > last + 1;
                let last = message.id;
                if replay::is_large(&messages) {
                    let replay = Replay::given(&self.hub, messages.into(), missed, last);
                    return found(Body::stream(replay));
                }
                found(replay::json(&messages, missed, self.cursor(last)))
            }
        }
    }

    /// Answers with the messages that are there.
    fn found_since(&self, since: &Since) -> Response<Body> {
        if replay::is_large(&since.messages) {
            return found(Body::stream(Replay::of(&self.hub, since)));
        }
        found(replay::json(&since.messages, since.missed, self.cursor(since.last)))
    }

    /// Returns the answer if no message came in all this time.
    fn in_vain(&self, last: u64) -> Response<Body> {
        let mut response = self.nothing(StatusCode::NO_CONTENT, last);
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.is_retired() {
            // The client's next request comes on another connection, where there may be another
            // server.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Parks a request that has read all messages up to `last`.
    pub(crate) fn park_poll(self: Rc<Desk>, waiting: Waiting, last: u64, wait: Duration) {
        let Waiting { mut parked } = waiting;
        let since = self.hub.join(self.outlet, Some(self.cursor(last)));
        if since.missed || !since.messages.is_empty() {
            self.hub.leave(self.outlet);
            return Waiting { parked }.answer(self.found_since(&since));
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
    pub(super) fn answer_poll(parked: Parked, json: Bytes) {
        Waiting { parked }.answer(found(json));
    }

    /// Answers a parked request without a message. It counts as not having read messages that it
    /// was not given, even if they were published.
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
