//! Requests for channels: which channel a request is for, and whether it publishes or subscribes.

use std::rc::Rc;

use http::header::CACHE_CONTROL;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use superpoll_http::body::Body;
use superpoll_http::cors;
use superpoll_http::exchange::Exchange;
use superpoll_http::grant::Use;
use superpoll_http::reply;
use superpoll_http::upload::Upload;

use super::cursor::{Question, SubscribeRequest};
use super::events::StreamRequest;
use super::foreign_page::{self, ForeignPage, METHODS, preflight};
use super::hub::Hub;
use super::local_route::LocalRoute;
use super::pattern::NameError;
use super::response::{add_position, no_channel};
use super::rights::Admitted;
use super::route::NoChannel;
use super::several::Also;
use super::unread::Unread;
use super::{events, publish, socket};

/// How many subscribers a channel has.
const SUBSCRIBERS: HeaderName = HeaderName::from_static("channel-subscribers");

impl LocalRoute {
    /// Answers a request for a channel, if its client has the right.
    pub async fn answer(
        self: Rc<LocalRoute>,
        request: Request<Upload>,
        exchange: &Exchange,
        also: Option<Also>,
    ) -> Response<Body> {
        let foreign = cors::of_another_site(request.headers(), request.uri());
        let mut response = match foreign.map(Option::<&HeaderValue>::cloned) {
            Ok(None) => self.respond(request, exchange, None, also).await,
            Ok(Some(origin)) => self.respond_cross_origin(origin, request, exchange, also).await,
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
        also: Option<Also>,
    ) -> Response<Body> {
        let options = self.channels.options();
        if !origin.to_str().is_ok_and(|origin| options.origins.allow(origin)) {
            let asked = cors::asked_site(request.headers(), request.uri());
            return foreign_page::refuse("this channel", &origin, asked);
        }
        let page = ForeignPage { origin, has_cookies: self.rights().takes_cookies() };
        let mut response = self.respond(request, exchange, Some(&page), also).await;
        page.allow(response.headers_mut());
        response
    }

    async fn respond(
        self: Rc<LocalRoute>,
        request: Request<Upload>,
        exchange: &Exchange,
        page: Option<&ForeignPage>,
        also: Option<Also>,
    ) -> Response<Body> {
        if self.is_hub() {
            return self.respond_as_hub(request, exchange, page).await;
        }
        if let Some(also) = also
            && request.method() != Method::OPTIONS
        {
            // Rare and large: the futures of other requests have no room for it.
            return Box::pin(self.respond_with_several(request, exchange, page, also)).await;
        }
        let name = match self.channels.name(request.uri().path()) {
            Ok(name) => name,
            Err(NameError::Elsewhere) => return reply::status(StatusCode::NOT_FOUND),
            Err(error) => return reply::text(StatusCode::BAD_REQUEST, format!("{error}\n")),
        };
        let is_socket = exchange.can_take_over() && socket::is_asked_for(request.headers());
        let rights = self.rights();
        // A client without the right does not even make a channel.
        let admitted = match *request.method() {
            Method::OPTIONS => return preflight(),
            Method::POST => rights.admit(Use::Publish, &name, &request, exchange).await,
            Method::GET if is_socket => rights.admit_socket(&name, &request, exchange).await,
            Method::GET | Method::HEAD => {
                rights.admit(Use::Subscribe, &name, &request, exchange).await
            }
            _ => return reply::refused(request.method(), METHODS),
        };
        let Admitted { grant, user } = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => return refusal,
        };
        let (head, body) = request.into_parts();
        if head.method == Method::POST {
            // Before the message is read, and before a channel is made for it: a flood is not even
            // received.
            let publisher = self.publisher(exchange.peer());
            let known = || self.channels.find(&name);
            if let Err(response) = publish::check_rate(&publisher, &name, known) {
                return *response;
            }
            return match self.channels.locate(&name).await {
                Ok(hub) => publish::publish(&hub, &head, body).await,
                Err(error) => no_channel(error),
            };
        }
        let asked = match SubscribeRequest::read(&head.uri, &head.headers) {
            Ok(asked) => asked,
            Err(what) => return reply::text(StatusCode::BAD_REQUEST, what),
        };
        let is_head = head.method == Method::HEAD;
        if is_head || asked.question.is_some() {
            // A question makes no channel.
            return match self.channels.find(&name) {
                Some(hub) => info(&hub, is_head, asked.question.unwrap_or_default()).await,
                None => reply::status(StatusCode::NOT_FOUND),
            };
        }
        let subscribers = match self.channels.locate(&name).await {
            Ok(hub) => self.subscribers(&hub),
            Err(error) => return no_channel(error),
        };
        if is_socket {
            return subscribers.accept(&head.headers, &asked, exchange, grant, user);
        }
        if events::are_asked_for(&head.headers) {
            let (after, page) = (asked.after, page.cloned());
            let asked = StreamRequest { after, grant, user, page, mercure: None };
            return subscribers.stream(asked, exchange, Unread::new(body)).await;
        }
        // The answer to another site has fields of its own, which are not kept with a request that
        // is parked.
        let can_wait = exchange.can_wait && page.is_none();
        let exchange = Exchange { can_wait, ..exchange.clone() };
        subscribers.poll(&asked, &exchange, Unread::new(body), grant).await
    }
}

/// Returns the information about a channel.
async fn info(hub: &Hub, is_head: bool, question: Question) -> Response<Body> {
    let (last, subscribers) = (hub.last(), hub.subscribers());
    let mut response = if is_head {
        Response::new(Body::empty())
    } else {
        let users = match hub.members(question.after_user.as_deref()).await {
            Ok(users) => users,
            Err(error) => return no_channel(NoChannel::Unshared(error)),
        };
        if users.is_none() && question.lists_members {
            let what = "members=1 in the URL: this channel does not count users (presence)\n";
            return reply::text(StatusCode::BAD_REQUEST, what);
        }
        reply::json(format!("{}\n", hub.describe(&question, users)))
    };
    add_position(response.headers_mut(), last, hub.epoch());
    response.headers_mut().insert(SUBSCRIBERS, subscribers.into());
    response
}
