//! Questions to the servers of a group, on behalf of the gateway itself.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::Bytes;
use http::header::{HeaderName, VIA};
use http::response::Parts;
use http::{HeaderMap, Request, StatusCode};
use http_body::Body as _;

use super::{Changes, ClientFacts, Forwarder, Outgoing, Relayed, RequestContext, fields};
use crate::exchange::Exchange;

/// The most bytes that are read of a body that nobody needs, so that its connection can be used
/// again.
const SMALL_BODY: usize = 16 << 10;

impl Forwarder {
    /// Asks a server something about a client's request, by `GET` of a path with these fields in
    /// addition to those that all forwarded requests have. Returns the head of the response.
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
    ) -> Result<Parts, StatusCode> {
        let peer = exchange.peer();
        let client = peer.client.map(|client| client.ip());
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
        head.uri = path.parse().map_err(|_| StatusCode::BAD_GATEWAY)?;
        head.headers = headers;
        let host = fields::host(about.uri(), about.headers());
        let facts = ClientFacts::new(client, peer.is_encrypted, peer.certificate());
        let changes = Changes { trace: trace.as_deref(), ..Changes::default() };
        let request = self
            .request_for((&head, host.as_ref(), None), &facts, changes, Outgoing::empty())
            .ok_or(StatusCode::BAD_GATEWAY)?;
        // It is a request of the gateway's own, and has no line of the access log.
        let context = RequestContext {
            repeats: true,
            addresses: self.addresses_of(peer),
            client,
            trace,
            ..RequestContext::default()
        };
        let answered = self.forward(&mut Some(request), &context).await;
        let (response, lease) = answered.map_err(|response| response.status())?;
        let (head, incoming) = response.into_parts();
        // The connection can be used again if the body is read to its end.
        let mut body = Relayed::new(incoming, lease, self.body);
        let mut left = SMALL_BODY;
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(length) else { break };
            left = rest;
        }
        Ok(head)
    }
}
