//! Asking a server whether a client may have what it asks for, before a route answers: as
//! `auth_request` of nginx and `forward_auth` of Caddy.
//!
//! The server gets a `GET` with the fields of the request, and fields about it. 2xx lets the
//! request pass, with the fields of the answer that the route names. Any other answer up to 499 is
//! the client's, such as a redirect to a login, with its body of up to 64 KiB: a page that asks for
//! a password is of no use without its text. An error or silence is answered with 503: nothing
//! passes because a server is down.
//!
//! Where the route allows it, an answer that lets a request pass is known for a while, by the
//! fields that tell who the client is. A request without any of these is asked about each time. At
//! most 4,096 answers of a route are known on an engine.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, SET_COOKIE, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use superpoll_http::body::Body;
use superpoll_http::exchange::Exchange;
use superpoll_http::reply;
use superpoll_http::upload::Upload;
use superpoll_http::upstream::{Forwarder, Group, ServerAnswer};
use superpoll_rt::time::{self, timeout};

use crate::config::{self, Proxy, Timeouts};

/// The most answers that are known.
const MOST_KNOWN: usize = 4096;

/// The fields about a request that its server is told.
const ABOUT_METHOD: [HeaderName; 2] =
    [HeaderName::from_static("x-original-method"), HeaderName::from_static("x-forwarded-method")];
const ABOUT_TARGET: [HeaderName; 2] =
    [HeaderName::from_static("x-original-uri"), HeaderName::from_static("x-forwarded-uri")];

/// Fields of a request that are about its body or its connection.
const NOT_ASKED: [HeaderName; 9] = [
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    EXPECT,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Fields of an answer that are about how long its body is.
const ABOUT_LENGTH: [HeaderName; 3] = [CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING];

/// Fields of an answer that are about a body which is not passed on.
const ABOUT_BODY: [HeaderName; 3] = [CONTENT_ENCODING, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS];

/// An answer that is known.
struct Known {
    until: Instant,
    fields: Vec<(HeaderName, HeaderValue)>,
}

/// The server that is asked about the requests of a route, on one engine.
pub(super) struct AuthRequest {
    forwarder: Rc<Forwarder>,
    rule: Arc<config::AuthRequest>,
    known: RefCell<HashMap<Vec<u8>, Known>>,
}

impl AuthRequest {
    pub(super) fn new(
        group: &Arc<Group>,
        rule: &Arc<config::AuthRequest>,
        timeouts: &Timeouts,
    ) -> AuthRequest {
        let proxy = Proxy::to(&*rule.upstream);
        let forwarder = Rc::new(Forwarder::new(group, &proxy, &rule.path, timeouts));
        AuthRequest { forwarder, rule: rule.clone(), known: RefCell::default() }
    }

    /// Asks about a request. It has the fields of the answer then that the route names, and no
    /// others of these names. Returns the cookies that its response gets in addition.
    ///
    /// # Errors
    ///
    /// The client gets this response.
    pub(super) async fn ask(
        &self,
        request: &mut Request<Upload>,
        exchange: &Exchange,
    ) -> Result<Vec<HeaderValue>, Response<Body>> {
        let key = self.key(request);
        self.remove_copies(request.headers_mut());
        if let Some(key) = &key
            && let Some(known) = self.known.borrow().get(key)
            && time::now() < known.until
        {
            for (name, value) in &known.fields {
                request.headers_mut().append(name.clone(), value.clone());
            }
            return Ok(Vec::new());
        }
        let fields = question(request);
        let asked = self.forwarder.ask(&self.rule.path, fields, &*request, exchange);
        let Ok(Ok(answer)) = timeout(self.rule.timeout, asked).await else {
            return Err(reply::unavailable(1));
        };
        if !answer.head.status.is_success() {
            return Err(refusal(answer));
        }
        let answer = answer.head;
        let mut fields = Vec::new();
        for name in &self.rule.copy {
            for value in answer.headers.get_all(name) {
                request.headers_mut().append(name.clone(), value.clone());
                fields.push((name.clone(), value.clone()));
            }
        }
        if let (Some(key), Some(time)) = (key, self.rule.cache) {
            let (known, now) = (&mut *self.known.borrow_mut(), time::now());
            if known.len() >= MOST_KNOWN {
                known.retain(|_, known| now < known.until);
            }
            if known.len() < MOST_KNOWN {
                known.insert(key, Known { until: now + time, fields });
            }
        }
        Ok(answer.headers.get_all(SET_COOKIE).into_iter().cloned().collect())
    }

    /// Removes the fields that only the server may set. Some programs take an underscore for a
    /// hyphen.
    fn remove_copies(&self, headers: &mut HeaderMap) {
        let is_copy = |name: &HeaderName| {
            let plain = name.as_str().replace('_', "-");
            self.rule.copy.iter().any(|copy| copy.as_str().replace('_', "-") == plain)
        };
        let copies: Vec<_> = headers.keys().filter(|name| is_copy(name)).cloned().collect();
        copies.iter().for_each(|name| drop(headers.remove(name)));
    }

    /// Returns what an answer is known by: the host, and the values of the fields that tell who
    /// the client is.
    fn key(&self, request: &Request<Upload>) -> Option<Vec<u8>> {
        self.rule.cache?;
        let (headers, mut has_any) = (request.headers(), false);
        let mut key = request.uri().host().unwrap_or_default().as_bytes().to_vec();
        for name in [&HOST].into_iter().chain(&self.rule.cache_by) {
            // No value has these bytes.
            key.push(b'\n');
            for value in headers.get_all(name) {
                has_any |= *name != HOST;
                key.push(0);
                key.extend_from_slice(value.as_bytes());
            }
        }
        has_any.then_some(key)
    }
}

/// Returns the fields of the question about a request.
fn question(request: &Request<Upload>) -> HeaderMap {
    let mut fields = request.headers().clone();
    NOT_ASKED.iter().for_each(|name| drop(fields.remove(name)));
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    for (names, value) in [(ABOUT_METHOD, request.method().as_str()), (ABOUT_TARGET, target)] {
        for name in names {
            match HeaderValue::from_str(value) {
                Ok(value) => drop(fields.insert(name, value)),
                Err(_) => drop(fields.remove(name)),
            }
        }
    }
    fields
}

/// Returns the response to a client whose request may not pass.
fn refusal(ServerAnswer { head, body }: ServerAnswer) -> Response<Body> {
    if head.status.is_server_error() {
        return reply::unavailable(1);
    }
    let body = body.filter(|body| !body.is_empty());
    let left_out = if body.is_some() { &[][..] } else { &ABOUT_BODY };
    let mut response = match body {
        Some(body) => {
            let length = body.len().into();
            let mut response = Response::new(Body::from(body));
            *response.status_mut() = head.status;
            response.headers_mut().insert(CONTENT_LENGTH, length);
            response
        }
        // The text of the status.
        None => reply::status(head.status),
    };
    let mut last = None;
    for (name, value) in head.headers {
        last = name.or(last);
        let is_kept = |name: &&HeaderName| !ABOUT_LENGTH.contains(name) && !left_out.contains(name);
        if let Some(name) = last.as_ref().filter(is_kept) {
            response.headers_mut().append(name, value);
        }
    }
    response
}
