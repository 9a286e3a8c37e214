//! Subscribing by long-poll.
//!
//! A request that waits is parked with its connection if it is alone there. On a stream of HTTP/2
//! it is a [`WaitingPoll`], which is parked with the other streams (`carrier.rs`). If neither can
//! be, as for a request with a body or from a page of another site, it waits in its task.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION};
use http::{HeaderValue, Response, StatusCode};
use superpoll_http::body::Body;
use superpoll_http::connection_state::Activity;
use superpoll_http::exchange::{Exchange, LocalFuture, RestingAnswer, Waited};
use superpoll_http::grant::Grant;
use superpoll_http::parking_lot::{ParkedConnection, ResumeReason, WaitingRequest, WakeOn};
use superpoll_http::peer::Peer;
use superpoll_http::reply;
use superpoll_rt::time::{self, Sleep};

use super::cursor::SubscribeRequest;
use super::history::Since;
use super::local_subscribers::{LocalSubscribers, Subscriber, SubscriberState, Subscription};
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
        let mut waiting = match self.wait_for_message(last, wait, grant, exchange.peer()) {
            Ok(waiting) => waiting,
            Err(response) => return *response,
        };
        if exchange.can_rest() {
            waiting.may_have_hsts = exchange.may_have_hsts;
            exchange.rest(waiting);
            return pending().await;
        }
        let mut unread = unread;
        let mut response = poll_fn(|cx| {
            let answer = waiting.poll_answer(cx);
            if answer.is_ready() {
                return answer;
            }
            unread.poll_failed(cx).map(|error| publish::failed(&error))
        })
        .await;
        response.extensions_mut().insert(Waited);
        response
    }

    /// Waits for a message after `last`, or answers with those that came meanwhile.
    fn wait_for_message(
        self: &Rc<LocalSubscribers>,
        last: u64,
        wait: Duration,
        grant: Grant,
        peer: &Rc<Peer>,
    ) -> Result<WaitingPoll, Box<Response<Body>>> {
        let since = self.hub.join(self.queue_id, Some(self.cursor(last)));
        let mailbox = Rc::new(Mailbox::default());
        let subscription = self.add(since.last, grant, SubscriberState::Task(mailbox.clone()));
        if mailbox.ended().is_none() && (since.missed || !since.messages.is_empty()) {
            return Err(self.respond_since(&since).into());
        }
        let until = time::now() + wait;
        Ok(WaitingPoll::new(subscription, mailbox, last, until, peer.clone()))
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

/// A request on a stream of HTTP/2, or in a task, that waits for a message.
pub(super) struct WaitingPoll {
    pub subscription: Subscription,
    pub mailbox: Rc<Mailbox>,
    /// The last message that it has read.
    pub last: u64,
    peer: Rc<Peer>,
    /// Whether its answer may have `Strict-Transport-Security`, if the router does not add that.
    pub may_have_hsts: bool,
    /// For the end of its time.
    timer: Sleep,
    /// The answer of an application that is asked again.
    again: Option<LocalFuture<Response<Body>>>,
}

impl WaitingPoll {
    pub(super) fn new(
        subscription: Subscription,
        mailbox: Rc<Mailbox>,
        last: u64,
        until: Instant,
        peer: Rc<Peer>,
    ) -> WaitingPoll {
        let timer = time::sleep_until(until);
        WaitingPoll { subscription, mailbox, last, peer, may_have_hsts: false, timer, again: None }
    }

    /// Returns when its time is over.
    pub(super) fn until(&self) -> Instant {
        self.timer.deadline()
    }

    /// Whether there is an answer, as there is at the end of its rights.
    fn has_news(&self) -> bool {
        let Subscription { local_subscribers, index, .. } = &self.subscription;
        !self.mailbox.is_empty()
            || self.mailbox.ended().is_some()
            || local_subscribers.grant(*index).is_over()
    }

    /// Returns the answer without the fields that its route adds, once there is a message or its
    /// time is over.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        if let Some(again) = &mut self.again {
            return again.as_mut().poll(cx);
        }
        self.mailbox.remember(cx);
        if !self.has_news() && Pin::new(&mut self.timer).poll(cx).is_pending() {
            return Poll::Pending;
        }
        let by = &self.subscription.local_subscribers;
        let reader = by.reader(self.subscription.index);
        let Some(held) = reader.as_ref().and_then(|reader| reader.held()) else {
            return Poll::Ready(self.answer());
        };
        match by.held_answer(held, &self.mailbox, &self.peer) {
            Ok(response) => Poll::Ready(response),
            Err(again) => self.again.insert(again).as_mut().poll(cx),
        }
    }

    fn answer(&self) -> Response<Body> {
        let by = &self.subscription.local_subscribers;
        let messages: Vec<Message> =
            std::iter::from_fn(|| self.mailbox.take(&by.hub)).map(|taken| taken.message).collect();
        let Some(newest) = messages.last().map(|message| message.id) else {
            return by.no_content(self.last);
        };
        // Of a burst that is larger than the backlog, the oldest messages are left out.
        let missed = messages[0].id > self.last + 1;
        if replay::is_large(&messages) {
            let replay = Replay::given(&by.hub, messages.into(), missed, newest);
            return reply::json(Body::stream(replay));
        }
        reply::json(replay::json(&messages, missed, by.cursor(newest)))
    }
}

impl RestingAnswer for WaitingPoll {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        let by = self.subscription.local_subscribers.clone();
        let reader = by.reader(self.subscription.index);
        let route = reader.and_then(|reader| by.route_of(reader.held()?));
        self.poll_answer(cx).map(|mut response| {
            match route {
                Some(route) => route.change_fields(response.headers_mut(), self.may_have_hsts),
                None => by.change_fields(response.headers_mut(), self.may_have_hsts),
            }
            response
        })
    }

    fn can_rest(&self) -> bool {
        !self.has_news() && !self.timer.is_elapsed() && self.again.is_none()
    }
}
