//! The state that the connections of one listener on one engine share.

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_rustls::TlsAcceptor;
use hyper::server::conn::{http1, http2};
use superpoll_rt::hyper::{EngineTimer, FuturesIo};
use superpoll_rt::spawn;
use superpoll_rt::time::timeout_at;

use super::connection::Past;
use super::streams::{Spawner, Streams};
use super::worker::Worker;
use super::{connection, connection2, streams};
use crate::exchange::Peer;
use crate::park::{Guest, Parked, Until, Why};
use crate::proxy_protocol::{self, Rest};
use crate::succession::state::Activity;
use crate::transport::{Plain, Transport};

/// The most requests of one HTTP/2 connection at a time.
const STREAMS: u32 = 128;

/// The protocol name of HTTP/2 in ALPN (RFC 9113, section 3.2).
const H2: &[u8] = b"h2";

/// One listener on one engine.
pub(super) struct Home {
    pub worker: Rc<Worker>,
    pub http1: http1::Builder,
    header_bytes: u32,
    tls: Option<TlsAcceptor>,
    proxy_protocol: bool,
}

impl Home {
    pub fn new(worker: Rc<Worker>, tls: Option<TlsAcceptor>, proxy_protocol: bool) -> Home {
        let header_bytes = usize::try_from(worker.limits.get().header_bytes).unwrap_or(usize::MAX);
        let mut http1 = http1::Builder::new();
        // Each connection has its own limits of time, see there. hyper needs room for 8 KiB at
        // least.
        http1
            .header_read_timeout(None)
            .half_close(true)
            .max_header_size(header_bytes)
            .max_buf_size(header_bytes.max(64 * 1024));
        let header_bytes = u32::try_from(header_bytes).unwrap_or(u32::MAX);
        Home { worker, http1, header_bytes, tls, proxy_protocol }
    }

    /// Returns HTTP/2 for a connection of these streams.
    pub fn http2(&self, streams: &Rc<Streams>) -> http2::Builder<Spawner> {
        let mut http2 = http2::Builder::new(Spawner(streams.clone()));
        http2
            .timer(EngineTimer)
            .max_concurrent_streams(STREAMS)
            .max_send_buf_size(streams::BUFFER)
            .max_header_list_size(self.header_bytes);
        http2
    }

    /// Whether connections are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether a proxy connects in the name of clients.
    pub fn is_behind_proxy(&self) -> bool {
        self.proxy_protocol
    }

    /// Begins a connection that has just been accepted.
    pub async fn begin(self: Rc<Home>, mut plain: Plain, mut peer: Peer) {
        let until = Instant::now() + self.worker.timeouts.get().header;
        let mut before = Bytes::new();
        let counters = &self.worker.counters;
        if self.proxy_protocol {
            match timeout_at(until, proxy_protocol::read(&mut plain)).await {
                Ok(Ok(said)) => {
                    before = said.rest;
                    if let Some((client, local)) = said.addresses {
                        (peer.client, peer.local) = (Some(client), Some(local));
                    }
                }
                Ok(Err(_)) => return counters.broken.add(1),
                Err(_) => return counters.timed_out.add(1),
            }
            let address = peer.client.map(|client| client.ip());
            if peer.seat.as_mut().is_some_and(|seat| seat.count(address).is_err()) {
                return counters.refused.add(1);
            }
        }
        let Some(tls) = &self.tls else {
            let past = Past { before, ..Past::default() };
            return connection::serve(self, Transport::Plain(plain), Rc::new(peer), past).await;
        };
        peer.is_encrypted = true;
        let stream = Rest::new(before, plain);
        match timeout_at(until, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let is_h2 = stream.get_ref().1.alpn_protocol() == Some(H2);
                let transport = Transport::Tls(Box::new(FuturesIo::new(stream)));
                if is_h2 {
                    connection2::serve(self, transport, Rc::new(peer)).await;
                } else {
                    connection::serve(self, transport, Rc::new(peer), Past::default()).await;
                }
            }
            Ok(Err(_)) => counters.broken.add(1),
            Err(_) => counters.timed_out.add(1),
        }
    }

    /// Parks a connection between two requests.
    pub fn park(self: Rc<Home>, parked: Parked, limit: Duration) {
        let worker = self.worker.clone();
        // A connection that cannot be parked is closed, as idle connections may be at any time.
        let requests = u32::try_from(parked.token).unwrap_or(u32::MAX);
        let activity = || Some(Activity::Idle { requests });
        drop(worker.lot.park(parked, self, Until::Readable, Some(limit), activity));
    }
}

impl Guest for Home {
    fn called(self: Rc<Home>, parked: Parked, why: Why) {
        let counters = &self.worker.counters;
        match why {
            Why::Ready => {
                let Ok(plain) = Plain::new(parked.socket) else { return };
                let transport = Transport::Plain(plain);
                let requests = u32::try_from(parked.token).unwrap_or(u32::MAX);
                let past = Past { requests, speaks: true, ..Past::default() };
                spawn(connection::serve(self, transport, parked.peer, past)).detach();
            }
            Why::TimedOut => counters.timed_out.add(1),
            Why::Draining => {}
        }
    }
}
