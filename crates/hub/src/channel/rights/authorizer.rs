//! The servers of the application that decide about clients.
//!
//! They are asked by a request of their own before the client's request continues, as nginx's
//! `auth_request` does: `GET` with the fields that tell who the client is, and fields about its
//! request. 2xx allows, 401 and 403 refuse, and anything else, silence included, is no answer: the
//! client is refused then with 503. An answer that allows may say in JSON who the client is, and
//! more ([`Verdict`]). The time of the whole is bounded, and so are the bytes that are read of the
//! answer.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, ORIGIN, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;
use superpoll_config::{AuthorizeRule, Proxy, Timeouts};
use superpoll_http::exchange::Exchange;
use superpoll_http::grant::Use;
use superpoll_http::upstream::{Forwarder, Group, ServerAnswer};
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
    ) -> Result<Verdict, Refusal> {
        let mut fields = question(using, name, request);
        if !has_cookies {
            fields.remove(COOKIE);
        }
        let asked = self.forwarder.ask(&self.path, fields, request, exchange);
        let Ok(Ok(answer)) = timeout(self.timeout, asked).await else {
            return Err(Refusal::NoAnswer);
        };
        match answer.head.status {
            status if status.is_success() => Verdict::read(&answer),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                let challenge = answer.head.headers.get(WWW_AUTHENTICATE).cloned();
                Err(Refusal::Application(status, challenge))
            }
            _ => Err(Refusal::NoAnswer),
        }
    }
}

/// What a server says of a client that it allows. All of it may be missing.
#[derive(Default, Deserialize)]
pub(super) struct Verdict {
    /// The name of the client's user.
    pub user: Option<String>,
    /// What other users may know of it.
    pub info: Option<Value>,
    /// Whether a WebSocket that may subscribe may publish, too.
    pub publish: Option<bool>,
    /// The second since 1970 after which the client has to come again.
    pub expires: Option<u64>,
}

impl Verdict {
    /// Reads the answer of a server, which says nothing unless it is JSON.
    fn read(answer: &ServerAnswer) -> Result<Verdict, Refusal> {
        let kind = answer.head.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        if !kind.eq_ignore_ascii_case(b"application/json") {
            return Ok(Verdict::default());
        }
        let bad = |what: String| Refusal::BadAnswer(what);
        let body = answer.body.as_ref().ok_or_else(|| bad("it is not whole".to_owned()))?;
        serde_json::from_slice(body).map_err(|error| bad(error.to_string()))
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
