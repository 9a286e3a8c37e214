//! A long-poll that an application holds.
//!
//! It waits as those of channels do: parked with its connection, with its stream of HTTP/2, or in a
//! task. An item answers it, or is the reason to ask the application again, which may hold it once
//! more.

use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};
use http::{HeaderValue, Response, StatusCode};
use superpoll_http::body::Body;
use superpoll_http::connection_state::Activity;
use superpoll_http::exchange::{Exchange, LocalFuture, Waited};
use superpoll_http::held::{HeldFor, HeldRecord};
use superpoll_http::parking_lot::{ParkedConnection, ResumeReason, WaitingRequest, WakeOn};
use superpoll_http::peer::Peer;
use superpoll_http::reply;
use superpoll_rt::time::{self, timeout};

use super::filters;
use super::hold::{HeldFrom, Outcome, ToHold, timeout_response};
use super::item::{Item, ResponseFormat};
use super::route::HeldRoute;
use crate::channel::local_subscribers::{LocalSubscribers, Subscriber, SubscriberState};
use crate::channel::mailbox::Mailbox;
use crate::channel::poll::WaitingPoll;

/// The effect of an item on a long-poll.
enum Answer {
    Response(Response<Body>),
    /// The application is asked again.
    Ask,
}

/// Returns the effect of an item on a long-poll.
fn answer_by(held: &HeldRecord, item: &Item) -> Answer {
    let known = held.channel(&item.channel).and_then(|channel| channel.previous.as_ref());
    let is_gap = known.is_some() && item.previous.is_some() && known != item.previous.as_ref();
    let (HeldFor::Response { timeout, .. }, Some(format)) = (&held.purpose, &item.response) else {
        return Answer::Ask;
    };
    let ResponseFormat::Response { status, fields, body } = &**format else { return Answer::Ask };
    if is_gap {
        return Answer::Ask;
    }
    let mut response = timeout_response(timeout);
    *response.status_mut() = StatusCode::from_u16(*status).unwrap_or(StatusCode::OK);
    let mut known = Vec::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes());
        let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) else { continue };
        if [CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION].contains(&name) {
            continue;
        }
        if !known.contains(&name) {
            response.headers_mut().remove(&name);
            known.push(name.clone());
        }
        response.headers_mut().append(name, value);
    }
    *response.body_mut() = body.clone().into();
    Answer::Response(response)
}

/// Returns the answer for the end of the time.
fn late(held: &HeldRecord) -> Response<Body> {
    match &held.purpose {
        HeldFor::Response { timeout, .. } => timeout_response(timeout),
        _ => reply::status(StatusCode::NO_CONTENT),
    }
}

impl LocalSubscribers {
    /// Holds a long-poll.
    pub(super) async fn hold_response(
        self: Rc<LocalSubscribers>,
        route: &Rc<HeldRoute>,
        hold: ToHold,
        exchange: &Exchange,
    ) -> Response<Body> {
        let may_have_hsts = route.has_hsts(exchange.peer());
        if exchange.can_wait() {
            exchange.wait(move |mut waiting| {
                if let Some(pending) = &mut waiting.parked.pending {
                    pending.form.may_have_hsts = may_have_hsts;
                }
                self.park_held(hold, waiting);
            });
            return pending().await;
        }
        exchange.end_with_client();
        if exchange.can_rest() && !self.is_retired() {
            let until = time::now() + hold.wait;
            let (subscription, mailbox) = self.enter_held(&hold);
            let last = self.last_given(subscription.index);
            let peer = exchange.peer().clone();
            let mut waiting = WaitingPoll::new(subscription, mailbox, last, until, peer);
            waiting.may_have_hsts = may_have_hsts;
            exchange.rest(waiting);
            return pending().await;
        }
        let mut response = self.wait_in_task(hold, exchange.peer().clone()).await;
        response.extensions_mut().insert(Waited);
        response
    }

    /// Parks a long-poll.
    pub(super) fn park_held(self: Rc<LocalSubscribers>, hold: ToHold, waiting: WaitingRequest) {
        let WaitingRequest { parked } = waiting;
        let since = hold.join(&self);
        let held = hold.record;
        if let Some(message) = since.messages.first()
            && let Some(item) = Item::of(message)
        {
            self.hub.leave(self.queue_id);
            return self.answer_held(&held, WaitingRequest { parked }, (message.id, &item));
        }
        self.park_held_record(held, since.last, hold.wait, parked);
    }

    /// Parks a long-poll that has had the items up to one.
    fn park_held_record(
        self: Rc<LocalSubscribers>,
        held: HeldRecord,
        last: u64,
        wait: Duration,
        mut parked: ParkedConnection,
    ) {
        let index = self.subscribers.borrow().vacant_key();
        parked.token = u32::try_from(index).unwrap_or(u32::MAX);
        let pending = parked.pending.as_ref();
        let form = pending.map(|pending| (pending.form, pending.requests, pending.before.clone()));
        let grant = self.admitted();
        let activity = || {
            let (form, requests, before) = form?;
            let before = before.map_or(Vec::new(), |before| before.to_vec());
            let space = self.hub.space()?;
            let poll = Activity::Poll { space, last, grant, form, requests, before };
            let (poll, held) = (Box::new(poll), Box::new(held.clone()));
            Some(Activity::HeldPoll { poll, held })
        };
        match self.parking_lot.park(parked, self.clone(), WakeOn::HungUp, Some(wait), activity) {
            Ok(key) => {
                let delivery = SubscriberState::Poll(key);
                let subscriber = Subscriber { last, grant, delivery };
                let index = self.subscribers.borrow_mut().insert(subscriber);
                self.read_as(index, held, true);
            }
            Err((parked, _)) => {
                self.hub.leave(self.queue_id);
                self.end_held_poll(&held, parked, ResumeReason::Draining);
            }
        }
    }

    /// Continues a long-poll that another server has left after an item.
    pub fn adopt_held(
        self: Rc<LocalSubscribers>,
        held: HeldRecord,
        waiting: WaitingRequest,
        last: u64,
        wait: Duration,
    ) {
        let floors = vec![last; held.channels.len()];
        let from = HeldFrom { floors, missing: None };
        let response = Response::new(bytes::Bytes::new());
        self.park_held(ToHold { record: held, from, response, wait }, waiting);
    }

    /// Answers a long-poll by an item.
    pub(in crate::channel) fn answer_held(
        &self,
        held: &HeldRecord,
        waiting: WaitingRequest,
        (number, item): (u64, &Item),
    ) {
        let route = self.route_of(held);
        match (answer_by(held, item), route) {
            (Answer::Response(response), _) => self.answer_waiting_held(held, waiting, response),
            (Answer::Ask, Some(route)) => route.ask_again(held, waiting, number),
            (Answer::Ask, None) => self.answer_waiting_held(held, waiting, late(held)),
        }
    }

    fn answer_waiting_held(
        &self,
        held: &HeldRecord,
        waiting: WaitingRequest,
        mut response: Response<Body>,
    ) {
        let pending = waiting.parked.pending.as_ref();
        let may_have_hsts = pending.is_some_and(|pending| pending.form.may_have_hsts);
        if let Some(route) = self.route_of(held) {
            route.change_fields(response.headers_mut(), may_have_hsts);
        }
        waiting.answer(response);
    }

    /// Ends a long-poll that no item has come for.
    pub(in crate::channel) fn end_held_poll(
        &self,
        held: &HeldRecord,
        parked: ParkedConnection,
        why: ResumeReason,
    ) {
        let mut response = late(held);
        match why {
            // The client has gone.
            ResumeReason::Ready => return,
            ResumeReason::TimedOut => {}
            ResumeReason::Draining | ResumeReason::Refused => {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
        }
        self.answer_waiting_held(held, WaitingRequest { parked }, response);
    }

    /// Holds a long-poll in this task.
    async fn wait_in_task(
        self: Rc<LocalSubscribers>,
        hold: ToHold,
        peer: Rc<Peer>,
    ) -> Response<Body> {
        let mut hold = hold;
        loop {
            if self.is_retired() {
                return late(&hold.record);
            }
            let (subscription, mailbox) = self.enter_held(&hold);
            let item = timeout(hold.wait, next_item(&self, &mailbox)).await.unwrap_or(None);
            drop(subscription);
            let Some((number, item)) = item else { return late(&hold.record) };
            if let Answer::Response(response) = answer_by(&hold.record, &item) {
                return response;
            }
            let Some(route) = self.route_of(&hold.record) else { return late(&hold.record) };
            match route.asked_again(&hold.record, &peer, number).await {
                Outcome::Pass(response) => return response,
                Outcome::Hold(next) => match next.record.purpose {
                    HeldFor::Response { .. } => hold = *next,
                    _ => return self.held_stream(*next),
                },
            }
        }
    }

    /// Returns the answer to a long-poll on a stream of HTTP/2, whose mailbox has an item, or whose
    /// time is over.
    pub(in crate::channel) fn held_answer(
        self: &Rc<LocalSubscribers>,
        held: &HeldRecord,
        mailbox: &Mailbox,
        peer: &Rc<Peer>,
    ) -> Result<Response<Body>, LocalFuture<Response<Body>>> {
        let taken = std::iter::from_fn(|| mailbox.take(&self.hub));
        let item = taken
            .filter_map(|taken| Some((taken.message.id, Item::of(&taken.message)?)))
            .find(|(_, item)| filters::let_through(held, item));
        let Some((number, item)) = item else { return Ok(late(held)) };
        match (answer_by(held, &item), self.route_of(held)) {
            (Answer::Response(response), _) => Ok(response),
            (Answer::Ask, None) => Ok(late(held)),
            (Answer::Ask, Some(route)) => {
                let (by, held, peer) = (self.clone(), held.clone(), peer.clone());
                Err(Box::pin(async move {
                    match route.asked_again(&held, &peer, number).await {
                        Outcome::Pass(response) => response,
                        Outcome::Hold(next) => match next.record.purpose {
                            HeldFor::Response { .. } => by.wait_in_task(*next, peer).await,
                            _ => by.held_stream(*next),
                        },
                    }
                }))
            }
        }
    }
}

/// Waits for the next item; `None`: there is none any more.
async fn next_item(by: &LocalSubscribers, mailbox: &Mailbox) -> Option<(u64, Item)> {
    poll_fn(|cx| {
        mailbox.remember(cx);
        match mailbox.take(&by.hub) {
            Some(taken) => {
                let item = Item::of(&taken.message);
                Poll::Ready(item.map(|item| (taken.message.id, item)))
            }
            None if mailbox.ended().is_some() => Poll::Ready(None),
            None => Poll::Pending,
        }
    })
    .await
}
