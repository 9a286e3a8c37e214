//! Subscribing by long-poll.

use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION};
use http::{HeaderValue, Response, StatusCode};
use superpoll_http::body::Body;
use superpoll_http::connection_state::Activity;
use superpoll_http::exchange::{Exchange, Waited};
use superpoll_http::grant::Grant;
use superpoll_http::parking_lot::{ParkedConnection, ResumeReason, WaitingRequest, WakeOn};
use superpoll_http::reply;
use superpoll_rt::time::timeout;

use super::cursor::SubscribeRequest;
use super::history::Since;
use super::local_subscribers::{LocalSubscribers, Subscriber, SubscriberState};
use super::mailbox::Mailbox;
use super::message::Message;
use super::publish;
use super::replay::{self, Replay};
use super::unread::Unread;

impl LocalSubscribers {
    /// Answers with the messages that are there, or waits for one.
    pub(super) async fn poll(
        self: Rc<LocalSubscribers>,
        asked: &SubscribeRequest,
        exchange: &Exchange,
        unread: Unread,
        grant: Grant,
    ) -> Response<Body> {
        let since = self.hub.since(asked.after);
        let last = since.last;
        if !self.have_given(grant) {
            // The rights changed while the application decided: the client has to come again.
            return self.no_content(last);
        }
        if since.missed || since.messages.iter().any(|message| !message.is_expired()) {
            return self.respond_since(&since);
        }
        let longest = self.hub.options().poll;
        let wait = asked.wait.map_or(longest, |wait| Duration::from_secs(wait).min(longest));
        let wait = grant.limit(wait);
        if wait.is_zero() || self.is_retired() {
            return self.no_content(last);
        }
        if exchange.can_wait() {
            exchange.wait(move |waiting| self.park_poll(waiting, last, wait, grant));
            return pending().await;
        }
        exchange.end_with_client();
        let mut response = self.poll_in_task(last, wait, unread, grant).await;
        response.extensions_mut().insert(Waited);
        response
    }

    /// Waits for a message after `last` in the task of the request.
    async fn poll_in_task(
        self: Rc<LocalSubscribers>,
        last: u64,
        wait: Duration,
        mut unread: Unread,
        grant: Grant,
    ) -> Response<Body> {
        let since = self.hub.join(self.queue_id, Some(self.cursor(last)));
        let mailbox = Rc::new(Mailbox::default());
        let subscription = self.add(since.last, grant, SubscriberState::Task(mailbox.clone()));
        if mailbox.ended().is_none() && (since.missed || !since.messages.is_empty()) {
            return self.respond_since(&since);
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
        drop(subscription);
        let messages: Vec<Message> =
            std::iter::from_fn(|| mailbox.take(&self.hub)).map(|taken| taken.message).collect();
        match messages.last() {
            None => self.no_content(last),
            Some(message) => {
                // Of a burst that is larger than the backlog, the oldest messages are left out.
                let missed = messages[0].id > last + 1;
                let last = message.id;
                if replay::is_large(&messages) {
                    let replay = Replay::given(&self.hub, messages.into(), missed, last);
                    return reply::json(Body::stream(replay));
                }
                reply::json(replay::json(&messages, missed, self.cursor(last)))
            }
        }
    }

    /// Answers with the messages that are there.
    pub(super) fn respond_since(&self, since: &Since) -> Response<Body> {
        if replay::is_large(&since.messages) {
            return reply::json(Body::stream(Replay::from_history(&self.hub, since)));
        }
        reply::json(replay::json(&since.messages, since.missed, self.cursor(since.last)))
    }

    /// Returns the answer if no message came in all this time.
    fn no_content(&self, last: u64) -> Response<Body> {
        let mut response = self.empty_response(StatusCode::NO_CONTENT, last);
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
    pub fn park_poll(
        self: Rc<LocalSubscribers>,
        waiting: WaitingRequest,
        last: u64,
        wait: Duration,
        grant: Grant,
    ) {
        let WaitingRequest { mut parked } = waiting;
        if grant.is_over() || !self.have_given(grant) {
            return self.end_poll(parked, last, ResumeReason::TimedOut);
        }
        let wait = grant.limit(wait);
        let since = self.hub.join(self.queue_id, Some(self.cursor(last)));
        if since.missed || !since.messages.is_empty() {
            self.hub.leave(self.queue_id);
            return self.answer_waiting(WaitingRequest { parked }, self.respond_since(&since));
        }
        let index = self.subscribers.borrow().vacant_key();
        parked.token = u32::try_from(index).unwrap_or(u32::MAX);
        let pending = parked.pending.as_ref();
        let form = pending.map(|pending| (pending.form, pending.requests, pending.before.clone()));
        let activity = || {
            let (form, requests, before) = form?;
            let before = before.map_or(Vec::new(), |before| before.to_vec());
            Some(Activity::Poll { space: self.hub.space()?, last, grant, form, requests, before })
        };
        match self.parking_lot.park(parked, self.clone(), WakeOn::HungUp, Some(wait), activity) {
            Ok(key) => {
                self.subscribers.borrow_mut().insert(Subscriber {
                    last,
                    grant,
                    delivery: SubscriberState::Poll(key),
                });
            }
            Err((parked, _)) => {
                self.hub.leave(self.queue_id);
                self.end_poll(parked, last, ResumeReason::Draining);
            }
        }
    }

    /// Answers a request that was parked.
    pub(super) fn answer_poll(&self, parked: ParkedConnection, json: Bytes) {
        self.answer_waiting(WaitingRequest { parked }, reply::json(json));
    }

    /// Answers a parked request without a message. It counts as not having read messages that it
    /// was not given, even if they were published.
    pub(super) fn end_poll(&self, parked: ParkedConnection, last: u64, why: ResumeReason) {
        match why {
            // The client has gone.
            ResumeReason::Ready => {}
            ResumeReason::TimedOut => {
                self.answer_waiting(WaitingRequest { parked }, self.no_content(last));
            }
            ResumeReason::Draining | ResumeReason::Refused => {
                let mut response = self.no_content(last);
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
                self.answer_waiting(WaitingRequest { parked }, response);
            }
        }
    }
}
