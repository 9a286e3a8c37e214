//! The admin listener: the metrics, readiness, the live page, and the [API](crate::control) for
//! operators.
//!
//! A client that reaches it controls the server, so that these requests are refused first:
//!
//! - a client or user whom the configuration does not allow. Connections of a client that is not
//!   allowed are closed when they are accepted, see `accepting`; a request of one is from before a
//!   change;
//! - a host that is neither `localhost`, nor an IP address, nor a name of the configuration: a site
//!   whose name is made to resolve to this machine (DNS rebinding) has another name there, which no
//!   script can change. Nothing resolves to a Unix socket, so that any host is right there;
//! - an origin that is another site, `null` included: browsers send it with each request of a page
//!   that may change something;
//! - a change by a page of another site, as browsers say in `Sec-Fetch-Site`;
//! - a body that is not JSON: no page may send that to another site without asking first.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use superpoll_http::admin::Operation;
use superpoll_http::authority;
use superpoll_http::body::Body;
use superpoll_http::cors;
use superpoll_http::exchange::Exchange;
use superpoll_http::head::{Fields, Head};
use superpoll_http::peer::Peer;
use superpoll_http::reply;
use superpoll_http::rules::{Admission, RouteRules};
use superpoll_http::upload::Upload;
use superpoll_hub::channel::{Channels, GripKey, publish_items};

use super::router::Reply;
use super::shared::Shared;
use crate::config;
use crate::control::{self, Answer, Call, refuse};
use crate::telemetry::overview::PAGE;

/// The paths beside those of the API, for people.
const PATHS: &str = "\
GET    /metrics
GET    /healthz
GET    /readyz
GET    /_superpoll/
POST   /publish/
";

/// The reason for which a request is refused, with its status.
type Mistake = (StatusCode, String);

/// The answers of the admin listener on one engine.
pub(super) struct AdminService {
    hosts: Vec<String>,
    rules: Option<Arc<RouteRules>>,
    /// The logs that applications publish items to, with their keys.
    logs: Vec<(Arc<GripKey>, Arc<Channels>)>,
    shared: Arc<Shared>,
}

impl AdminService {
    pub(super) fn new(
        config: &config::Admin,
        rules: Option<Arc<RouteRules>>,
        logs: Vec<(Arc<GripKey>, Arc<Channels>)>,
        shared: Arc<Shared>,
    ) -> AdminService {
        AdminService { hosts: config.hosts.clone(), rules, logs, shared }
    }

    /// Whether the rules allow a client at this address.
    pub(super) fn admits(&self, client: Option<IpAddr>) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.allows(client))
    }

    /// Answers a request. A refusal closes the connection.
    pub(super) fn respond(
        self: Rc<AdminService>,
        request: Request<Upload>,
        exchange: Exchange,
    ) -> Reply {
        let client = exchange.peer().client.map(|client| client.ip());
        let admission = match &self.rules {
            None => Admission::Allowed,
            Some(rules) => rules.admit(client, Fields::Map(request.headers())),
        };
        let verification = match admission {
            Admission::Allowed => None,
            Admission::Refused(refused) => return Reply::Now(closing(refused.response)),
            Admission::Verifies(verification) => Some(verification),
        };
        if let Err((status, what)) = self.check(&request, exchange.peer()) {
            return Reply::Now(closing(refuse(status, what).map(Body::from)));
        }
        Reply::Later(Box::pin(async move {
            if let (Some(verification), Some(rules)) = (verification, &self.rules)
                && let Err(refused) = rules.verify(verification).await
            {
                return closing(refused.response);
            }
            let _admitted = exchange.peer().permit.begin_request();
            self.answer(request, &exchange).await
        }))
    }

    /// Checks whether a request comes from a program or a page of this listener.
    fn check<B>(&self, request: &Request<B>, peer: &Peer) -> Result<(), Mistake> {
        self.check_host(request, peer)?;
        let headers = request.headers();
        match cors::of_another_site(headers, request.uri()) {
            Ok(None) => {}
            Ok(Some(origin)) => {
                let origin = origin.to_str().unwrap_or("another site");
                let what =
                    format!("the request comes from a page of {origin}, which may not use this");
                return Err((StatusCode::FORBIDDEN, what));
            }
            Err(status) => {
                return Err((status, "the request has several fields Origin".to_owned()));
            }
        }
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        if !is_read && is_of_another_site(headers) {
            let what =
                "the request comes from a page of another site, which may not change anything";
            return Err((StatusCode::FORBIDDEN, what.to_owned()));
        }
        Ok(())
    }

    fn check_host<B>(&self, request: &Request<B>, peer: &Peer) -> Result<(), Mistake> {
        let host = match authority::of_request(Head::from(request), false) {
            Ok(host) => host,
            Err(status) => {
                let what = "the host of the request is missing or wrong";
                return Err((status, what.to_owned()));
            }
        };
        // No site can make a browser name no host.
        let Some(host) = host.filter(|_| peer.client.is_some()) else { return Ok(()) };
        let name = host.host.trim_end_matches('.').to_ascii_lowercase();
        let is_own = host.is_loopback() || host.address().is_some() || self.hosts.contains(&name);
        if is_own {
            return Ok(());
        }
        let what = format!("{name:?} is no host of this listener");
        let expected = "expected localhost, an IP address, or a name of hosts in [admin]";
        Err((StatusCode::MISDIRECTED_REQUEST, format!("{what}, {expected}")))
    }

    async fn answer(&self, request: Request<Upload>, exchange: &Exchange) -> Response<Body> {
        let path = request.uri().path();
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        if path.starts_with(PAGE) {
            return self.shared.overview.clone().page(request, exchange).await;
        }
        match path {
            "/metrics" | "/readyz" | "/healthz" if !is_read => {
                control::not_allowed("GET, HEAD").map(Body::from)
            }
            "/metrics" => self.shared.overview.prometheus(request.headers()).await,
            "/readyz" => self.shared.overview.readiness(),
            "/publish" | "/publish/" if !self.logs.is_empty() => {
                publish_items(&self.logs, request).await
            }
            // It answers: that is all.
            "/healthz" => reply::text(StatusCode::OK, "ok\n"),
            _ => self.answer_api(request).await.unwrap_or_else(|refused| refused).map(Body::from),
        }
    }

    /// Answers a request of the API.
    async fn answer_api(&self, request: Request<Upload>) -> Result<Answer, Answer> {
        let (head, body) = request.into_parts();
        let body = read(body).await?;
        let (operation, only) = match control::route(&head, &body).map_err(|refused| *refused)? {
            Call::Index => return Ok(control::index(PATHS)),
            Call::Operate(operation) => (operation, None),
            Call::Upstream(name) => (Operation::Upstreams, Some(name)),
            Call::Snapshots(_) | Call::FollowedDrain => {
                let what =
                    "only the statistics socket has streams, expected one of the other paths";
                return Ok(refuse(StatusCode::NOT_FOUND, what));
            }
        };
        let outcome = self.shared.admin_operations.operate(operation.clone()).await;
        Ok(control::answer(&operation, only.as_deref(), outcome))
    }
}

/// Reads the body of a request.
async fn read(mut body: Upload) -> Result<Bytes, Answer> {
    body.limit(control::LARGEST);
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(data)) => all.extend_from_slice(&data),
            // Trailers have no meaning here.
            Ok(Err(_)) => {}
            Err(error) => return Err(refuse(error.status(), error.to_string())),
        }
    }
    Ok(all.freeze())
}

/// Makes a response of HTTP/1, which the admin listener speaks, the last one of its connection.
fn closing(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Whether a browser says that the request is one of a page of another site.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let mut said = headers.get_all("sec-fetch-site").into_iter();
    said.any(|said| matches!(said.as_bytes(), b"cross-site" | b"same-site"))
}
