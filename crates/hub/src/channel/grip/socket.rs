//! The handshake of a WebSocket whose application is called by requests of HTTP.

use std::rc::Rc;

use http::header::{
    ACCEPT, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderName, SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_PROTOCOL, SERVER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use ring::rand::{SecureRandom, SystemRandom};
use superpoll_http::body::Body;
use superpoll_http::exchange::Exchange;
use superpoll_http::held::{HeldFor, HeldRecord, HeldRequest, HeldSocket};
use superpoll_http::reply;
use superpoll_http::upload::Upload;

use super::app_socket::{Answered, AppSocket, CONNECTION_ID, INTERVAL, Step, has_events, uuid};
use super::events::{self, Event, MEDIA_TYPE};
use super::instruct::Instructions;
use super::route::{HeldRoute, Way, clean, collect, fields_of, kept};
use crate::channel::joined::JoinedChannels;
use crate::channel::local_subscribers::{LocalSubscribers, SubscriberState};
use crate::channel::mailbox::Mailbox;
use crate::channel::socket::{self, SocketSession};

/// Fields of an application's first answer that are not the handshake's.
const NOT_PASSED: [HeaderName; 10] = [
    CONTENT_TYPE,
    CONTENT_LENGTH,
    TRANSFER_ENCODING,
    CONNECTION,
    UPGRADE,
    DATE,
    SERVER,
    SEC_WEBSOCKET_EXTENSIONS,
    INTERVAL,
    HeaderName::from_static("content-bytes-accepted"),
];

/// Returns a number that no other connection has, as UUIDs of version 4 are.
fn new_id() -> [u8; 16] {
    let mut id = [0; 16];
    // Without random numbers nothing here would be encrypted either.
    let _ = SystemRandom::new().fill(&mut id);
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    id
}

/// Returns the beginning of messages for the client, if the application tells them apart from those
/// for the gateway.
fn prefix(fields: &HeaderMap) -> Option<Box<str>> {
    let value = fields.get(SEC_WEBSOCKET_EXTENSIONS)?.to_str().ok()?;
    let mut parts = value.split(',').find_map(|one| {
        let mut parts = one.split(';').map(str::trim);
        (parts.next() == Some("grip")).then_some(parts)
    })?;
    let said = parts.find_map(|part| part.strip_prefix("message-prefix="));
    Some(said.map_or("m:", |said| said.trim_matches('"')).into())
}

impl HeldRoute {
    /// Answers a handshake as the application does.
    pub(super) async fn open(
        self: Rc<HeldRoute>,
        request: Request<Upload>,
        exchange: Exchange,
    ) -> Response<Body> {
        let (mut head, _) = request.into_parts();
        clean(&mut head.headers);
        head.headers.remove(SEC_WEBSOCKET_EXTENSIONS);
        let mut agreed = match socket::handshake(&head.headers) {
            Ok(fields) => fields,
            Err(response) => return *response,
        };
        agreed.remove(SEC_WEBSOCKET_PROTOCOL);
        if !exchange.can_take_over() {
            return reply::status(StatusCode::BAD_REQUEST);
        }
        let request = HeldRequest { method: "POST".into(), ..kept(&head, None) };
        let (id, mut body) = (new_id(), Vec::new());
        Event::Open.write(&mut body);
        let mut fields = fields_of(&request);
        for (name, value) in [
            (ACCEPT, HeaderValue::from_static(MEDIA_TYPE)),
            (CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE)),
            (SEC_WEBSOCKET_EXTENSIONS, HeaderValue::from_static("grip")),
        ] {
            fields.insert(name, value);
        }
        if let Ok(id) = HeaderValue::from_str(&uuid(id)) {
            fields.insert(CONNECTION_ID, id);
        }
        let target = request.target.clone();
        let peer = exchange.peer().clone();
        let way = Way { rewritten: request.rewritten.clone(), user: request.user.clone() };
        let parts = (fields, body.into());
        let sent = self.send((Method::POST, &target), parts, (&peer, Some(way))).await;
        let Ok(mut response) = sent else { return reply::unavailable(1) };
        if response.status() != StatusCode::OK || !has_events(response.headers()) {
            // The client's handshake is rejected.
            if let Err(what) = Instructions::take(&mut response, &target) {
                self.report(&what);
            }
            // The extension is between the application and the gateway.
            response.headers_mut().remove(SEC_WEBSOCKET_EXTENSIONS);
            return response;
        }
        let (head, body) = response.into_parts();
        let read = collect(body).await;
        let events = read.as_ref().ok().and_then(events::read);
        let opens = |events: &Vec<Event>| match events.first() {
            Some(first) => *first == Event::Open,
            None => head.headers.contains_key(INTERVAL),
        };
        let (Some(events), Some(subscribers)) = (events.filter(opens), self.subscribers().await)
        else {
            self.report("the answer to a handshake does not begin with OPEN");
            return reply::text(StatusCode::BAD_GATEWAY, "Error while proxying to origin.\n");
        };
        let socket = Box::new(HeldSocket {
            id,
            prefix: prefix(&head.headers),
            is_detached: false,
            call_seconds: None,
        });
        let purpose = HeldFor::Socket { request: Box::new(request), socket };
        let record = HeldRecord {
            route: self.name(),
            channels: Vec::new(),
            meta: Vec::new(),
            keep_alive: None,
            purpose,
        };
        let is_passed = |name: &HeaderName| {
            let text = name.as_str();
            !NOT_PASSED.contains(name)
                && !text.starts_with("set-meta-")
                && !text.starts_with("grip-")
        };
        for (name, value) in head.headers.iter().filter(|(name, _)| is_passed(name)) {
            agreed.append(name.clone(), value.clone());
        }
        let mut app = AppSocket::new(&record, &peer);
        let steps = app.follow(Answered { fields: head.headers, events });
        subscribers.accept_held(app, steps, &exchange);
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = agreed;
        response
    }
}

impl LocalSubscribers {
    /// Continues a connection as a WebSocket, from the application's first answer on.
    fn accept_held(
        self: Rc<LocalSubscribers>,
        app: AppSocket,
        steps: Vec<Step>,
        exchange: &Exchange,
    ) {
        let (peer, entry) = (exchange.peer().clone(), exchange.entry.clone());
        exchange.limit_unsent(self.hub.options().unsent_bytes);
        // The items from here on are the client's.
        let since = self.hub.join(self.queue_id, None);
        let mailbox = Rc::new(Mailbox::new(since.clone(), &self.hub.options()));
        let delivery = SubscriberState::Task(mailbox.clone());
        let subscription = self.add(since.last, self.admitted(), delivery);
        self.read_as(subscription.index, app.record.clone(), true);
        exchange.take_over(move |transport, read| {
            Box::pin(async move {
                let channels = JoinedChannels::one(subscription, mailbox);
                SocketSession::begin_held(channels, app, steps, peer, entry, read)
                    .run(transport)
                    .await;
            })
        });
    }
}
