//! From the response of an application to a held connection.

use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use superpoll_http::body::Body;
use superpoll_http::exchange::Exchange;
use superpoll_http::held::{HeldChannel, HeldFor, HeldRecord, HeldRequest, TimeoutResponse};
use superpoll_http::parking_lot::WaitingRequest;
use superpoll_http::peer::Peer;
use superpoll_http::reply;
use superpoll_http::upload::Upload;
use superpoll_rt::spawn;

use super::app_socket::has_events;
use super::filters;
use super::instruct::{self, Hold, Instructions};
use super::item::Item;
use super::route::{HeldRoute, KEPT_BODY, clean, collect, in_memory, kept, map_of};
use crate::channel::history::Since;
use crate::channel::hub::Hub;
use crate::channel::local_subscribers::LocalSubscribers;
use crate::channel::message::Message;
use crate::channel::publish;
use crate::channel::response::no_channel;
use crate::channel::socket;

/// A request for which a connection may be held.
pub(super) struct Asked {
    pub request: HeldRequest,
    /// It wants no body.
    pub is_head: bool,
}

/// A connection to be held.
pub(super) struct ToHold {
    pub record: HeldRecord,
    pub from: HeldFrom,
    /// The head of a stream's response, and the beginning of its body.
    pub response: Response<Bytes>,
    pub wait: Duration,
}

/// The consequence of a response.
pub(super) enum Outcome {
    /// It is the client's.
    Pass(Response<Body>),
    /// The connection is held.
    Hold(Box<ToHold>),
}

impl HeldRoute {
    /// Answers a request, or holds its connection.
    pub async fn answer(
        self: Rc<HeldRoute>,
        request: Request<Upload>,
        exchange: Exchange,
    ) -> Response<Body> {
        if socket::is_asked_for(request.headers()) {
            return self.open(request, exchange).await;
        }
        let (mut head, body) = request.into_parts();
        clean(&mut head.headers);
        if has_events(&head.headers) {
            // Only the gateway makes events, which are signed.
            return reply::status(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        let is_short = body.size_hint().upper().is_some_and(|length| length <= KEPT_BODY);
        let (body, copy) = match (body.is_end_stream(), is_short) {
            (true, _) => (body, Some(Bytes::new())),
            (false, false) => (body, None),
            (false, true) => match publish::collect(body, KEPT_BODY).await {
                Ok(copy) => (in_memory(copy.clone()), Some(copy)),
                Err(response) => return response,
            },
        };
        let asked = Asked { request: kept(&head, copy), is_head: head.method == Method::HEAD };
        let response = self.forward(head, body, &exchange).await;
        if !instruct::are_in(response.headers()) {
            return response;
        }
        let outcome = self.outcome(&asked, response, 0).await;
        match self.complete(outcome, exchange.peer()).await {
            Outcome::Pass(response) => response,
            Outcome::Hold(hold) => self.hold(*hold, &exchange).await,
        }
    }

    /// Reads what an application has answered. Items up to this number are no reason to ask it
    /// again.
    async fn outcome(&self, asked: &Asked, response: Response<Body>, seen: u64) -> Outcome {
        let read = self.read(asked, response, seen).await;
        read.unwrap_or_else(|what| {
            self.report(&what);
            let text = format!("Failed to parse accept instructions: {what}\n");
            Outcome::Pass(reply::text(StatusCode::BAD_GATEWAY, text))
        })
    }

    async fn read(
        &self,
        asked: &Asked,
        mut response: Response<Body>,
        seen: u64,
    ) -> Result<Outcome, String> {
        let is_document = instruct::is_document(response.headers());
        let base = self.base_of(&asked.request);
        let mut instructions = Instructions::take(&mut response, base)?;
        let (hub, after) = match self.position().await {
            Ok(position) => position,
            Err(response) => return Ok(Outcome::Pass(*response)),
        };
        if is_document {
            let body = collect(response.into_body()).await?;
            let (document, said) = Instructions::read(&body)?;
            let (next, gone) = (instructions.next, instructions.gone);
            instructions = Instructions { next, gone, ..document };
            response = said.map(Body::from);
        }
        let status = response.status();
        let is_empty = status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
        let is_held = instructions.hold.is_some() || instructions.next.is_some();
        // Nothing can follow a head alone.
        let may_wait = instructions.hold == Some(Hold::Response) || !is_empty;
        if !is_held || asked.is_head || !may_wait {
            return Ok(Outcome::Pass(response));
        }
        let is_stream = instructions.hold != Some(Hold::Response);
        if is_stream && instructions.next.is_none() {
            let counted = |channel: &&HeldChannel| channel.previous.is_some();
            if let Some(channel) = instructions.channels.iter().find(counted) {
                let name = &channel.name;
                return Err(format!("channel '{name}' specifies prev-id, but no next link found"));
            }
        }
        let (head, body) = response.into_parts();
        let mut response = Response::from_parts(head, collect(body).await?);
        let fields = response.headers_mut();
        // The date is that of its end.
        [CONTENT_LENGTH, TRANSFER_ENCODING, DATE].iter().for_each(|name| drop(fields.remove(name)));
        let wait = instructions.wait();
        let from = HeldFrom::of(&instructions.channels, &hub, after, seen);
        let mut record = self.record(asked, instructions, &response);
        if let HeldFor::Stream { is_open, .. } = &mut record.purpose {
            // What is missing comes by its link.
            *is_open &= from.missing.is_none();
        }
        Ok(Outcome::Hold(Box::new(ToHold { record, from, response, wait })))
    }

    /// Returns the log, and the last item in it.
    async fn position(&self) -> Result<(Arc<Hub>, u64), Box<Response<Body>>> {
        let channels = self.log.channels();
        match channels.locate(&channels.own_name()).await {
            Ok(hub) => {
                let last = hub.last();
                Ok((hub, last))
            }
            Err(error) => Err(Box::new(no_channel(error))),
        }
    }

    fn record(
        &self,
        asked: &Asked,
        instructions: Instructions,
        response: &Response<Bytes>,
    ) -> HeldRecord {
        let host = asked.request.fields.first().map_or(&[][..], |(_, host)| host);
        let host = String::from_utf8_lossy(host);
        let purpose = match instructions.hold {
            Some(Hold::Response) => HeldFor::Response {
                request: Box::new(asked.request.clone()),
                timeout: Box::new(TimeoutResponse {
                    status: response.status().as_u16(),
                    fields: response
                        .headers()
                        .iter()
                        .map(|(name, value)| (name.as_str().into(), value.as_bytes().into()))
                        .collect(),
                    body: Bytes::copy_from_slice(response.body()),
                }),
            },
            Some(Hold::Stream) | None => HeldFor::Stream {
                // Without a hold it follows at once.
                is_open: instructions.hold.is_some(),
                next: instructions.next.map(Box::new),
                gone: instructions.gone,
                host: host.into(),
            },
        };
        HeldRecord {
            route: self.name(),
            channels: instructions.channels,
            meta: instructions.meta,
            keep_alive: instructions.keep_alive.map(Arc::new),
            purpose,
        }
    }

    /// Returns the subscribers of the log on this engine.
    pub(super) async fn subscribers(&self) -> Option<Rc<LocalSubscribers>> {
        let (hub, _) = self.position().await.ok()?;
        Some(self.log.subscribers(&hub))
    }

    /// Holds the connection of a request.
    async fn hold(self: Rc<HeldRoute>, hold: ToHold, exchange: &Exchange) -> Response<Body> {
        let Some(subscribers) = self.subscribers().await else {
            return reply::unavailable(1);
        };
        if matches!(hold.record.purpose, HeldFor::Response { .. }) {
            return subscribers.hold_response(&self, hold, exchange).await;
        }
        if exchange.can_wait() && exchange.can_take_over() {
            let may_have_hsts = self.has_hsts(exchange.peer());
            exchange.wait(move |waiting| {
                subscribers.begin_held(&self, hold, waiting, may_have_hsts);
            });
            return pending().await;
        }
        subscribers.held_body(hold, exchange)
    }

    /// Asks the application again about a request that waits without a task.
    pub(in crate::channel) fn ask_again(
        self: Rc<HeldRoute>,
        held: &HeldRecord,
        waiting: WaitingRequest,
        because_of: u64,
    ) {
        let (held, peer) = (held.clone(), waiting.parked.peer.clone());
        let goes_on = async move {
            match self.asked_again(&held, &peer, because_of).await {
                Outcome::Pass(mut response) => {
                    let pending = waiting.parked.pending.as_ref();
                    let may_have_hsts = pending.is_some_and(|pending| pending.form.may_have_hsts);
                    self.change_fields(response.headers_mut(), may_have_hsts);
                    waiting.answer(response);
                }
                Outcome::Hold(hold) => match self.subscribers().await {
                    None => waiting.answer(reply::unavailable(1)),
                    Some(subscribers) => match hold.record.purpose {
                        HeldFor::Response { .. } => {
                            subscribers.park_held(*hold, waiting);
                        }
                        // The client of an old version reads until the end of the connection.
                        _ if waiting.is_1_0() => waiting.answer(subscribers.held_stream(*hold)),
                        _ => {
                            let may_have_hsts = self.has_hsts(&peer);
                            subscribers.begin_held(&self, *hold, waiting, may_have_hsts);
                        }
                    },
                },
            }
        };
        spawn(goes_on).detach();
    }

    /// Asks the application again about a request, because of an item: that one is never a reason
    /// again.
    pub(super) async fn asked_again(
        &self,
        held: &HeldRecord,
        peer: &Rc<Peer>,
        because_of: u64,
    ) -> Outcome {
        let outcome = self.asked_once(held, peer, because_of).await;
        let mut outcome = self.complete(outcome, peer).await;
        if let Outcome::Hold(hold) = &mut outcome {
            let floors = &mut hold.from.floors;
            floors.iter_mut().for_each(|floor| *floor = (*floor).max(because_of));
        }
        outcome
    }

    /// Asks the application again about a long-poll as long as items are missing at its hold. Each
    /// further time needs a further item.
    async fn complete(&self, mut outcome: Outcome, peer: &Rc<Peer>) -> Outcome {
        loop {
            let Outcome::Hold(hold) = &outcome else { return outcome };
            let HeldFor::Response { request, .. } = &hold.record.purpose else { return outcome };
            let (Some(number), Some(_)) = (hold.from.missing, &request.body) else {
                return outcome;
            };
            outcome = self.asked_once(&hold.record, peer, number).await;
        }
    }

    async fn asked_once(&self, held: &HeldRecord, peer: &Rc<Peer>, seen: u64) -> Outcome {
        let HeldFor::Response { request, timeout } = &held.purpose else {
            return Outcome::Pass(reply::status(StatusCode::BAD_GATEWAY));
        };
        // A body that was too large to be kept cannot be sent again.
        if request.body.is_none() {
            return Outcome::Pass(timeout_response(timeout));
        }
        let asked = Asked { is_head: *request.method == *"HEAD", request: (**request).clone() };
        match self.repeat(&asked.request, last_items(&held.channels), peer).await {
            Ok(response) if instruct::are_in(response.headers()) => {
                self.outcome(&asked, response, seen).await
            }
            Ok(response) => Outcome::Pass(response),
            Err(_) => Outcome::Pass(reply::unavailable(1)),
        }
    }
}

/// Returns the response of an application for the end of the time.
pub(super) fn timeout_response(timeout: &TimeoutResponse) -> Response<Body> {
    let mut response = Response::new(Body::from(timeout.body.clone()));
    *response.status_mut() = StatusCode::from_u16(timeout.status).unwrap_or(StatusCode::OK);
    *response.headers_mut() = map_of(&timeout.fields);
    response
}

/// Returns the fields that tell an application the last items of a connection.
pub(super) fn last_items(channels: &[HeldChannel]) -> Vec<HeaderValue> {
    let last = |channel: &HeldChannel| {
        let id = channel.previous.as_ref()?;
        HeaderValue::from_str(&format!("{}; last-id={id}", channel.name)).ok()
    };
    channels.iter().filter_map(last).collect()
}

/// Where a connection begins in the log.
#[derive(Default)]
pub(super) struct HeldFrom {
    /// The positions behind which items are news, by channel.
    pub floors: Vec<u64>,
    /// The last item of a channel in which others are missing that only the application has.
    pub missing: Option<u64>,
}

impl HeldFrom {
    /// Returns it for what an application says when the log has items up to `last`: behind the item
    /// that it names, if that is kept, and else behind the last one. In that case items are missing
    /// if the channel has one that was not seen: it is not the one that the application names.
    pub(super) fn of(channels: &[HeldChannel], hub: &Hub, last: u64, seen: u64) -> HeldFrom {
        let mut from = HeldFrom::default();
        for HeldChannel { name, previous, .. } in channels {
            let floor = previous.as_ref().map(|id| hub.number_of_key(&Item::key(name, id)));
            if floor == Some(None) {
                let latest = hub.last_of_keys(&Item::key(name, ""));
                from.missing = from.missing.max(latest.filter(|number| *number > seen));
            }
            from.floors.push(floor.flatten().unwrap_or(last));
        }
        from
    }
}

impl ToHold {
    /// Enters the connection at the log, and returns the items that it lacks.
    pub(super) fn join(&self, subscribers: &LocalSubscribers) -> Since {
        let last = subscribers.hub.last();
        let floors = &self.from.floors;
        let first = floors.iter().copied().min().unwrap_or(last);
        let mut since = subscribers.hub.join(subscribers.queue_id, Some(subscribers.cursor(first)));
        let is_news = |message: &Message| {
            let item = Item::of(message);
            item.is_some_and(|item| {
                let channels = self.record.channels.iter().zip(floors);
                let mut own = channels.filter(|(channel, _)| channel.name == item.channel);
                own.any(|(_, floor)| message.id > *floor)
                    && filters::let_through(&self.record, &item)
            })
        };
        since.messages.retain(is_news);
        // The application has said what the client has.
        since.missed = false;
        since
    }
}
