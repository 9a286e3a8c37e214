//! Requests for channels: which channel a request is for, and whether it publishes or subscribes.

use std::rc::Rc;

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ALLOW, CACHE_CONTROL, RETRY_AFTER, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};

use super::cursor::SubscribeRequest;
use super::hub::Hub;
use super::local_route::LocalRoute;
use super::pattern::NameError;
use super::route::TooMany;
use super::unread::Unread;
use super::{events, publish, socket};
use crate::body::Body;
use crate::cors;
use crate::exchange::Exchange;
use crate::reply;
use crate::upload::Upload;

/// The last message that its reader has.
const NEXT: HeaderName = HeaderName::from_static("channel-next");

/// The epoch of that message.
const EPOCH: HeaderName = HeaderName::from_static("channel-epoch");

/// The methods of a channel.
const METHODS: &str = "GET, HEAD, OPTIONS, POST";

/// The fields of responses that a page of another site may read.
const EXPOSED: &str = "channel-next, channel-epoch";

impl LocalRoute {
    /// Answers a request for a channel.
    pub(crate) async fn answer(
        self: Rc<LocalRoute>,
        request: Request<Upload>,
        exchange: &Exchange,
    ) -> Response<Body> {
        let foreign = cors::of_another_site(request.headers(), request.uri());
        let mut response = match foreign.map(Option::<&HeaderValue>::cloned) {
            Ok(None) => self.respond(request, exchange, None).await,
            Ok(Some(origin)) => self.respond_cross_origin(origin, request, exchange).await,
            Err(status) => reply::status(status),
        };
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    /// Answers the page of another site, if it may use the channel.
    async fn respond_cross_origin(
        self: Rc<LocalRoute>,
        origin: HeaderValue,
        request: Request<Upload>,
        exchange: &Exchange,
    ) -> Response<Body> {
        let options = self.channels.options();
        if !origin.to_str().is_ok_and(|origin| options.origins.allow(origin)) {
            let text = "pages of other sites may use this channel if its origins name them\n";
            return reply::text(StatusCode::FORBIDDEN, text);
        }
        let mut response = self.respond(request, exchange, Some(&origin)).await;
        allow_origin(response.headers_mut(), origin);
        response
    }

    async fn respond(
        self: Rc<LocalRoute>,
        request: Request<Upload>,
        exchange: &Exchange,
        origin: Option<&HeaderValue>,
    ) -> Response<Body> {
        let (head, body) = request.into_parts();
        let name = match self.channels.name(head.uri.path()) {
            Ok(name) => name,
            Err(NameError::Elsewhere) => return reply::status(StatusCode::NOT_FOUND),
            Err(error) => return reply::text(StatusCode::BAD_REQUEST, format!("{error}\n")),
        };
        if head.method == Method::OPTIONS {
            return preflight();
        }
        if ![Method::GET, Method::HEAD, Method::POST].contains(&head.method) {
            return reply::not_allowed(METHODS);
        }
        if head.method == Method::POST {
            return match self.channels.channel(&name) {
                Ok(hub) => publish::publish(&hub, &head, body).await,
                Err(error) => too_many(error),
            };
        }
        let asked = match SubscribeRequest::read(&head.uri, &head.headers) {
            Ok(asked) => asked,
            Err(what) => return reply::text(StatusCode::BAD_REQUEST, what),
        };
        if head.method == Method::HEAD {
            // A question makes no channel.
            return match self.channels.find(&name) {
                Some(hub) => empty_response(&hub, StatusCode::OK, hub.last()),
                None => reply::status(StatusCode::NOT_FOUND),
            };
        }
        let subscribers = match self.channels.channel(&name) {
            Ok(hub) => self.subscribers(&hub),
            Err(error) => return too_many(error),
        };
        if exchange.can_take_over() && socket::is_asked_for(&head.headers) {
            return subscribers.accept(&head.headers, &asked, exchange);
        }
        if events::are_asked_for(&head.headers) {
            return subscribers.stream(asked, exchange, Unread::new(body), origin.cloned()).await;
        }
        // The answer to another site has fields of its own, which are not kept with a request that
        // is parked.
        let can_wait = exchange.can_wait() && origin.is_none();
        let exchange = Exchange { can_wait, ..exchange.clone() };
        subscribers.poll(&asked, &exchange, Unread::new(body)).await
    }
}

/// Returns a response without a body that names its reader's place in a channel.
pub(super) fn empty_response(hub: &Hub, status: StatusCode, last: u64) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    add_position(hub, response.headers_mut(), last);
    response
}

/// Adds the fields that name a reader's place in a channel.
fn add_position(hub: &Hub, headers: &mut HeaderMap, last: u64) {
    headers.insert(NEXT, last.into());
    if let Ok(epoch) = HeaderValue::from_str(&format!("{:x}", hub.epoch())) {
        headers.insert(EPOCH, epoch);
    }
}

/// Lets the page of another site read a response.
pub(super) fn allow_origin(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    headers.insert(VARY, HeaderValue::from_static("origin"));
}

/// Names the permitted requests, which browsers ask for before they send more than a form could.
fn preflight() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let fields = HeaderValue::from_static("content-type, last-event-id");
    headers.insert(ALLOW, HeaderValue::from_static(METHODS));
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, fields);
    response
}

/// Returns the answer for a new channel that there is no room for.
fn too_many(TooMany(most): TooMany) -> Response<Body> {
    let text = format!(
        "there are {most} channels here, and no more may be; try again when some have been idle\n"
    );
    let mut response = reply::text(StatusCode::SERVICE_UNAVAILABLE, text);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("10"));
    response
}
