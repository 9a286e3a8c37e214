//! The beginning of held connections: their places among the subscribers, and the responses of
//! streams.

use std::rc::Rc;

use http::{Response, StatusCode};
use superpoll_http::body::Body;
use superpoll_http::exchange::Exchange;
use superpoll_http::grant::Grant;
use superpoll_http::message::last_chunked_head;
use superpoll_http::parking_lot::WaitingRequest;
use superpoll_http::plain_stream::{limit_unsent, probe_in_silence};
use superpoll_http::reply;
use superpoll_http1::chunk;

use super::hold::ToHold;
use super::route::HeldRoute;
use crate::channel::events::{EventWriter, EventsBody};
use crate::channel::events_session::EventsSession;
use crate::channel::form::Form;
use crate::channel::joined::JoinedChannels;
use crate::channel::local_subscribers::{LocalSubscribers, SubscriberState, Subscription};
use crate::channel::mailbox::Mailbox;
use crate::channel::parked::Backlog;
use crate::channel::unread::Unread;

impl LocalSubscribers {
    /// Returns the rights of a client that an application has admitted.
    pub(super) fn admitted(&self) -> Grant {
        let log = self.route.upgrade();
        log.map_or(Grant::unlimited(false), |log| log.rights().of_admitted())
    }

    /// Enters a connection, and returns the items that it lacks.
    pub(super) fn enter_held(
        self: &Rc<LocalSubscribers>,
        hold: &ToHold,
    ) -> (Subscription, Rc<Mailbox>) {
        let since = hold.join(self);
        let last = since.last;
        let mailbox = Rc::new(Mailbox::new(since, &self.hub.options()));
        let delivery = SubscriberState::Task(mailbox.clone());
        let subscription = self.add(last, self.admitted(), delivery);
        self.read_as(subscription.index, hold.record.clone(), true);
        (subscription, mailbox)
    }

    /// Begins a stream without a task of HTTP.
    pub(super) fn begin_held(
        self: Rc<LocalSubscribers>,
        route: &HeldRoute,
        hold: ToHold,
        waiting: WaitingRequest,
        may_have_hsts: bool,
    ) {
        if self.is_retired() {
            return waiting.answer(reply::status(StatusCode::SERVICE_UNAVAILABLE));
        }
        let mut parked = waiting.parked;
        limit_unsent(&parked.stream, self.hub.options().unsent_bytes);
        let (subscription, mailbox) = self.enter_held(&hold);
        if let Some(pending) = parked.pending.take() {
            let entry = pending.note.and_then(|note| note.entry);
            pending.by.begin_response(entry.as_deref());
            self.keep_entry(subscription.index, entry);
        }
        let (head, content) = hold.response.into_parts();
        let mut fields = head.headers;
        route.change_fields(&mut fields, may_have_hsts);
        let mut rest = Vec::new();
        if !content.is_empty() {
            chunk(&mut rest, |to| to.extend_from_slice(&content));
        }
        let backlog = Backlog { rest: rest.into(), mailbox };
        // Nothing else may ever show that a client has gone.
        probe_in_silence(&parked.stream);
        let session = EventsSession::new(subscription, parked.peer, Form::Held, backlog);
        let session = session.begin_after(hold.from.floors);
        session.with_head(last_chunked_head(head.status, &fields)).start(parked.stream);
    }

    /// Answers with a stream that is a usual body.
    pub(super) fn held_body(
        self: Rc<LocalSubscribers>,
        hold: ToHold,
        exchange: &Exchange,
    ) -> Response<Body> {
        exchange.end_with_client();
        exchange.limit_unsent(self.hub.options().unsent_bytes);
        self.held_stream(hold)
    }

    /// Returns the response with a stream as its body.
    pub(super) fn held_stream(self: Rc<LocalSubscribers>, hold: ToHold) -> Response<Body> {
        if self.is_retired() {
            return reply::status(StatusCode::SERVICE_UNAVAILABLE);
        }
        let (subscription, mailbox) = self.enter_held(&hold);
        let mut writer =
            EventWriter::new(JoinedChannels::one(subscription, mailbox), Form::Held, false);
        writer.begin_after(hold.from.floors);
        let (head, content) = hold.response.into_parts();
        let body = EventsBody::of_held(writer, Unread::default(), content.into());
        Response::from_parts(head, Body::resting(body))
    }
}
