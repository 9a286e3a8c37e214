//! Questions to the servers of a group, on behalf of the gateway itself.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use http::header::{HeaderName, VIA};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body::Body as _;
use superpoll_http1::{Asked, Framing};

use super::attempt::{Answer, Out};
use super::lost::LimitTimer;
use super::{Forwarder, client_head};
use crate::answers::Additions;
use crate::exchange::Exchange;
use crate::peer::Peer;
use crate::progress::{Passed, Progress};
use crate::trace::RequestTrace;
use crate::upstream::client::Apart;
use crate::upstream::fields;
use crate::upstream::heads::{self, Changes, ClientFacts};
use crate::upstream::incoming::Relayed;
use crate::upstream::request::ServerRequest;

/// The most bytes of a body that are read. The connection of a longer one is closed.
const LONGEST_BODY: usize = 64 << 10;

/// The response of a server to a question.
#[derive(Debug)]
pub struct ServerAnswer {
    /// The head.
    pub head: Parts,
    /// The body; `None` if it has more than 64 KiB, or broke off.
    pub body: Option<Bytes>,
}

impl Forwarder {
    /// Asks a server something about a client's request, by `GET` of a path with these fields in
    /// addition to those that all forwarded requests have.
    ///
    /// # Errors
    ///
    /// No server answers; the reason was reported.
    pub async fn ask<B>(
        &self,
        path: &str,
        mut headers: HeaderMap,
        about: &Request<B>,
        exchange: &Exchange,
    ) -> Result<ServerAnswer, StatusCode> {
        let trace = exchange.trace.clone();
        if let Some(trace) = &trace {
            if trace.is_loop() {
                self.pool.group.came_back(&self.route, trace);
                return Err(StatusCode::LOOP_DETECTED);
            }
            for name in [VIA, HeaderName::from_static("tracestate")] {
                for value in about.headers().get_all(&name) {
                    headers.append(name.clone(), value.clone());
                }
            }
        }
        let (mut head, ()) = Request::new(()).into_parts();
        head.headers = headers;
        let host = fields::host(about.uri(), about.headers());
        self.send(path, (head, &[]), (host.as_ref(), exchange.peer()), trace).await
    }

    /// Tells a server something, by `POST` of a path with these fields and this body.
    ///
    /// # Errors
    ///
    /// No server answers; the reason was reported.
    pub async fn tell(
        &self,
        path: &str,
        headers: HeaderMap,
        body: &[u8],
    ) -> Result<ServerAnswer, StatusCode> {
        let (mut head, ()) = Request::new(()).into_parts();
        (head.method, head.headers) = (Method::POST, headers);
        self.send(path, (head, body), (None, &Peer::default()), None).await
    }

    async fn send(
        &self,
        path: &str,
        (head, body): (http::request::Parts, &[u8]),
        (host, peer): (Option<&HeaderValue>, &Peer),
        trace: Option<Rc<RequestTrace>>,
    ) -> Result<ServerAnswer, StatusCode> {
        let client = peer.client.map(|client| client.ip());
        let framing = match head.method {
            Method::GET => Framing::None,
            _ => Framing::Length(body.len() as u64),
        };
        let facts = ClientFacts::new(client, peer.is_encrypted, peer.certificate());
        let changes = Changes { trace: trace.as_deref(), ..Changes::default() };
        let about = (path, host, None);
        let of_client =
            client_head(&head, about, (framing, false)).ok_or(StatusCode::BAD_GATEWAY)?;
        let mut bytes = Vec::new();
        let _ = heads::request(&of_client, &facts, changes, &mut bytes);
        let len = bytes.len();
        bytes.extend_from_slice(body);
        let mut request = ServerRequest {
            body: body.len() as u64,
            repeats: true,
            lacks_host: host.is_none(),
            addresses: self.addresses_of(peer),
            ..ServerRequest::new(bytes, len, Asked::default(), Rc::default())
        };
        // It is a request of the gateway's own, and has no line of the access log.
        let (additions, progress) =
            (Additions { trace, ..Additions::default() }, Progress::default());
        let (mut out, mut timer) = (Out::default(), LimitTimer::default());
        let (way, outcome) = ((&mut request, &additions, &progress), (&mut out, &mut timer));
        let found = self.find(way, &mut Apart::default(), client, outcome).await;
        let (response, lease) = match (found, out.answer) {
            (Ok(lease), Some(Answer::Given(response))) => (response, lease),
            (Err(Passed::Answered(response)), _) => return Err(response.status()),
            _ => return Err(StatusCode::BAD_GATEWAY),
        };
        let (head, incoming) = response.into_parts();
        // The connection can be used again if the body is read to its end.
        let body = read(Relayed::new(incoming, lease, self.body)).await;
        Ok(ServerAnswer { head, body })
    }
}

/// Reads a body to its end, unless it is too long or breaks off.
async fn read(mut body: Relayed) -> Option<Bytes> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        // Trailers are no part of it.
        let Ok(data) = frame.ok()?.into_data() else { continue };
        if data.len() > LONGEST_BODY - bytes.len() {
            return None;
        }
        bytes.extend_from_slice(&data);
    }
    Some(bytes.freeze())
}
