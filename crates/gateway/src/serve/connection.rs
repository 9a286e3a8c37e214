//! A connection from its acceptance to the protocol that is spoken on it, and from the parking lot
//! back to that protocol.

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use superpoll_rt::hyper::FuturesIo;
use superpoll_rt::spawn;
use superpoll_rt::time::timeout_at;

use super::http1::InitialState;
use super::listener_context::ListenerContext;
use super::{http1, http2};
use crate::parking_lot::{ConnectionOwner, ParkedConnection, ResumeReason, WakeOn};
use crate::peer::Peer;
use crate::proxy_protocol::{self, Rest};
use crate::succession::state::Activity;
use crate::transport::{Plain, Transport};

/// The protocol name of HTTP/2 in ALPN (RFC 9113, section 3.2).
const H2: &[u8] = b"h2";

impl ListenerContext {
    /// Begins a connection that has just been accepted.
    pub async fn begin(self: Rc<ListenerContext>, mut plain: Plain, mut peer: Peer) {
        let until = Instant::now() + self.worker.timeouts.get().header;
        let mut before = Bytes::new();
        let counters = &self.worker.counters;
        if self.is_behind_proxy() {
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
            if peer.permit.as_mut().is_some_and(|permit| permit.count(address).is_err()) {
                return counters.refused.add(1);
            }
        }
        let Some(tls) = &self.tls else {
            let initial = InitialState { before, ..InitialState::default() };
            return http1::serve(self, Transport::Plain(plain), Rc::new(peer), initial).await;
        };
        peer.is_encrypted = true;
        let stream = Rest::new(before, plain);
        match timeout_at(until, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let is_h2 = stream.get_ref().1.alpn_protocol() == Some(H2);
                let transport = Transport::Tls(Box::new(FuturesIo::new(stream)));
                if is_h2 {
                    http2::serve(self, transport, Rc::new(peer)).await;
                } else {
                    http1::serve(self, transport, Rc::new(peer), InitialState::default()).await;
                }
            }
            Ok(Err(_)) => counters.broken.add(1),
            Err(_) => counters.timed_out.add(1),
        }
    }

    /// Parks a connection between two requests.
    pub fn park(self: Rc<ListenerContext>, parked: ParkedConnection, limit: Duration) {
        let worker = self.worker.clone();
        // A connection that cannot be parked is closed, as idle connections may be at any time.
        let requests = u32::try_from(parked.token).unwrap_or(u32::MAX);
        let activity = || Some(Activity::Idle { requests });
        drop(worker.parking_lot.park(parked, self, WakeOn::Readable, Some(limit), activity));
    }
}

impl ConnectionOwner for ListenerContext {
    fn resume(self: Rc<ListenerContext>, parked: ParkedConnection, why: ResumeReason) {
        let counters = &self.worker.counters;
        match why {
            ResumeReason::Ready => {
                let Ok(plain) = Plain::new(parked.socket) else { return };
                let transport = Transport::Plain(plain);
                let requests = u32::try_from(parked.token).unwrap_or(u32::MAX);
                let initial = InitialState { requests, speaks: true, ..InitialState::default() };
                spawn(http1::serve(self, transport, parked.peer, initial)).detach();
            }
            ResumeReason::TimedOut => counters.timed_out.add(1),
            ResumeReason::Draining => {}
        }
    }
}
