//! The servers of the application that decide about clients.
//!
//! They are asked by a request of their own before the client's request continues, as nginx's
//! `auth_request` does: `GET` with the fields that tell who the client is, and fields about its
//! request. 2xx allows, 401 and 403 refuse, and anything else, silence included, is no answer: the
//! client is refused then with 503. The time of the whole is bounded, and so are the bytes that are
//! read of the answer.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, COOKIE, ORIGIN, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use superpoll_config::{AuthorizeRule, Proxy, Timeouts};
use superpoll_http::exchange::Exchange;
use superpoll_http::grant::Use;
use superpoll_http::upstream::{Forwarder, Group};
use superpoll_rt::time::timeout;

use super::refusal::Refusal;

const METHOD: HeaderName = HeaderName::from_static("x-original-method");
const TARGET: HeaderName = HeaderName::from_static("x-original-uri");
const CHANNEL: HeaderName = HeaderName::from_static("x-channel");
const ACTION: HeaderName = HeaderName::from_static("x-channel-action");

/// The bytes of a name that no field can have, in addition to those that are not ASCII.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ');

/// The servers that decide about the clients of a route, on one engine.
pub(super) struct Authorizer {
    forwarder: Rc<Forwarder>,
    path: String,
    timeout: Duration,
}

impl Authorizer {
    pub(super) fn new(group: &Arc<Group>, rule: &AuthorizeRule, timeouts: &Timeouts) -> Authorizer {
        let proxy = Proxy::to(&*rule.upstream);
        let forwarder = Rc::new(Forwarder::new(group, &proxy, &rule.path, timeouts));
        Authorizer { forwarder, path: rule.path.clone(), timeout: rule.timeout }
    }

    /// Asks whether a client may do something with a channel. `has_cookies` says whether its
    /// cookies count: a browser sends them for the page of any site.
    ///
    /// # Errors
    ///
    /// It may not, or there is no answer.
    pub(super) async fn ask<B>(
        &self,
        using: Use,
        name: &str,
        request: &Request<B>,
        has_cookies: bool,
        exchange: &Exchange,
    ) -> Result<(), Refusal> {
        let mut fields = question(using, name, request);
        if !has_cookies {
            fields.remove(COOKIE);
        }
        let asked = self.forwarder.ask(&self.path, fields, request, exchange);
        let Ok(Ok(answer)) = timeout(self.timeout, asked).await else {
            return Err(Refusal::NoAnswer);
        };
        let answer = answer.head;
        match answer.status {
            status if status.is_success() => Ok(()),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                let challenge = answer.headers.get(WWW_AUTHENTICATE).cloned();
                Err(Refusal::Application(status, challenge))
            }
            _ => Err(Refusal::NoAnswer),
        }
    }
}

/// Returns the fields of the request to a server, except those that all forwarded requests have.
fn question<B>(using: Use, name: &str, request: &Request<B>) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for name in [AUTHORIZATION, COOKIE, ORIGIN] {
        for value in request.headers().get_all(&name) {
            fields.append(name.clone(), value.clone());
        }
    }
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let channel = utf8_percent_encode(name, ESCAPED).to_string();
    for (name, value) in [
        (METHOD, request.method().as_str()),
        (TARGET, target),
        (CHANNEL, &channel),
        (ACTION, using.name()),
    ] {
        if let Ok(value) = HeaderValue::from_str(value) {
            fields.insert(name, value);
        }
    }
    fields
}
