//! Several channels on one connection: `GET /rooms/1?also=/rooms/2&also=/news`.
//!
//! Such a connection is a subscriber of each of its channels (`joined.rs`). One task writes the
//! messages as events, or as frames of `superpoll.v1`. Each message names its channel, so both have
//! the same JSON.
//!
//! The position of such a reader is that of each channel, in the order of the URL ([`position`]).
//! Each event has the whole position as its id, so that a browser that connects again by the same
//! URL continues in every channel. A client of `superpoll.v1` puts it together from the last frame
//! of each channel.
//!
//! The rights are checked for each channel before any of them is joined, and the first refusal is
//! the answer. The connection ends as soon as one of its channels ends it, or one of the grants: a
//! client has all of its channels or none. It is never parked, and it continues with no other
//! server: its bytes depend on the order in which the messages of several channels were written.

mod position;

use std::rc::Rc;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use superpoll_http::body::Body;
use superpoll_http::cors;
use superpoll_http::exchange::Exchange;
use superpoll_http::grant::Use;
use superpoll_http::reply;
use superpoll_http::upload::Upload;

use super::events;
use super::foreign_page::{self, ForeignPage};
use super::joined::{Invitation, Start};
use super::local_route::LocalRoute;
use super::pattern::NameError;
use super::response::no_channel;
use super::rights::Admitted;
use super::socket;
use super::unread::Unread;

/// The most channels of a connection.
const MOST_CHANNELS: usize = 100;

/// The parameter of the URL with a further channel.
const PARAMETER: &str = "also=";

/// The further channels of a request: paths, with the route of each if it has channels.
pub struct Also {
    paths: Vec<(String, Option<Rc<LocalRoute>>)>,
    /// The number of paths in the URL; only the first of them are looked at.
    count: usize,
}

impl Also {
    /// Finds the further channels in the query of a URL; `None` if there are none. `route` finds
    /// the route of a path on the same host, if it has channels.
    pub fn find(
        query: Option<&str>,
        route: impl Fn(&str) -> Option<Rc<LocalRoute>>,
    ) -> Option<Also> {
        let pairs = query?.split('&');
        let mut values = pairs.filter_map(|pair| pair.strip_prefix(PARAMETER)).peekable();
        values.peek()?;
        let mut also = Also { paths: Vec::new(), count: 0 };
        for value in values {
            also.count += 1;
            if also.paths.len() < MOST_CHANNELS {
                let path = percent_decode_str(value).decode_utf8_lossy().into_owned();
                let route = route(&path);
                also.paths.push((path, route));
            }
        }
        Some(also)
    }
}

fn wrong(text: impl Into<String>) -> Box<Response<Body>> {
    let mut text = text.into();
    text.push('\n');
    Box::new(reply::text(StatusCode::BAD_REQUEST, text))
}

/// A channel that a client asks for.
type Asked = (Rc<LocalRoute>, Arc<str>);

impl LocalRoute {
    /// Answers a request for a channel of this route and further ones, perhaps the page of another
    /// site.
    pub(super) async fn respond_with_several(
        self: Rc<LocalRoute>,
        request: Request<Upload>,
        exchange: &Exchange,
        page: Option<&ForeignPage>,
        also: Also,
    ) -> Response<Body> {
        let is_socket = exchange.can_take_over() && socket::is_asked_for(request.headers());
        if let Some(refused) = refuse_form(&request, is_socket) {
            return *refused;
        }
        let asked = match self.channels_of(&request, also) {
            Ok(asked) => asked,
            Err(response) => return *response,
        };
        let starts = match position::asked(request.uri(), request.headers(), asked.len()) {
            Ok(starts) => starts,
            Err(what) => return reply::text(StatusCode::BAD_REQUEST, what),
        };
        let mut admitted = Vec::with_capacity(asked.len());
        for (route, name) in asked {
            let options = route.channels.options();
            let allows = |page: &ForeignPage| {
                page.origin.to_str().is_ok_and(|origin| options.origins.allow(origin))
            };
            if let Some(page) = page.filter(|page| !allows(page)) {
                let asked = cors::asked_site(request.headers(), request.uri());
                return foreign_page::refuse(&name, &page.origin, asked);
            }
            let rights = route.rights();
            let one = match is_socket {
                true => rights.admit_socket(&name, &request, exchange).await,
                false => rights.admit(Use::Subscribe, &name, &request, exchange).await,
            };
            match one {
                Ok(one) => admitted.push((route, name, one)),
                Err(refusal) => return refusal,
            }
        }
        // A client without one of the rights does not even make a channel.
        let mut invitations = Vec::with_capacity(admitted.len());
        for ((route, name, Admitted { grant, user }), after) in admitted.into_iter().zip(starts) {
            let hub = match route.channels.locate(&name).await {
                Ok(hub) => hub,
                Err(error) => return no_channel(error),
            };
            let subscribers = route.subscribers(&hub);
            if subscribers.is_retired() {
                return reply::status(StatusCode::SERVICE_UNAVAILABLE);
            }
            let start = Start::before(&hub.since(after));
            invitations.push(Invitation { subscribers, grant, user, start });
        }
        let (head, body) = request.into_parts();
        if !is_socket {
            return events::stream_of_several(exchange, invitations, Unread::new(body));
        }
        match socket::accept(&head.headers, exchange, invitations) {
            Ok(fields) => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                response.headers_mut().extend(fields);
                response
            }
            Err(refused) => *refused,
        }
    }

    /// Returns the channels that a request is for, this route's first.
    fn channels_of(
        self: Rc<LocalRoute>,
        request: &Request<Upload>,
        also: Also,
    ) -> Result<Vec<Asked>, Box<Response<Body>>> {
        let count = also.count + 1;
        if count > MOST_CHANNELS {
            let what = format!("a connection has at most {MOST_CHANNELS} channels");
            return Err(wrong(format!("{what}, and this URL names {count}")));
        }
        let own = (request.uri().path().to_owned(), Some(self));
        let mut asked: Vec<Asked> = Vec::with_capacity(count);
        for (path, route) in std::iter::once(own).chain(also.paths) {
            let name = route.as_ref().map(|route| route.channels.name(&path));
            let (name, route) = match (name, route) {
                (Some(Ok(name)), Some(route)) => (name, route),
                (Some(Err(NameError::Elsewhere)), _) if asked.is_empty() => {
                    return Err(Box::new(reply::status(StatusCode::NOT_FOUND)));
                }
                (Some(Err(NameError::Elsewhere)) | None, _) | (_, None) => {
                    return Err(wrong(format!(
                        "also={path:?} in the URL: no channel has this path"
                    )));
                }
                (Some(Err(error)), _) => {
                    return Err(wrong(format!("{path:?} in the URL: {error}")));
                }
            };
            if asked.iter().any(|(_, other)| *other == name) {
                return Err(wrong(format!("the URL names the channel {name:?} twice")));
            }
            asked.push((route, name));
        }
        Ok(asked)
    }
}

/// Refuses a request that cannot be answered with several channels.
fn refuse_form(request: &Request<Upload>, is_socket: bool) -> Option<Box<Response<Body>>> {
    let headers = request.headers();
    if *request.method() != Method::GET {
        return Some(wrong("only a subscriber may name further channels (also)"));
    }
    if is_socket && !socket::speaks_json(headers) {
        return Some(wrong(
            "a WebSocket has several channels (also) only with the subprotocol superpoll.v1",
        ));
    }
    let is_question = request.uri().query().unwrap_or("").split('&').any(|pair| pair == "info=1");
    if is_question || (!is_socket && !events::are_asked_for(headers)) {
        return Some(wrong(
            "several channels (also) are for server-sent events, and for WebSockets with the \
             subprotocol superpoll.v1",
        ));
    }
    None
}

#[cfg(test)]
mod tests;
