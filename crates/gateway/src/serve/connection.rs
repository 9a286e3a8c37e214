//! The life of a connection, from its acceptance to its end: which part of the server has it, and
//! the events that pass it on. This module begins connections, parks those that are between two
//! requests, and resumes them.
//!
//! ```text
//!        accepted                                   left by another server
//!            |                                                |
//!            v                                                v
//!        BEGINNING                                         ADOPTED
//!            |                                                |
//!            | HTTP/2                      bytes do not match |
//!            +---------> MULTIPLEXED -+       closed <--------+
//!            |            ^  ^        | no stream             |
//!            |            |  +-PARKED-+                       |
//!            | HTTP/1     |   as below                        |
//!            v            | HTTP/2 after all, without TLS     |
//!   +---> SERVED ---------+                                   |
//!   |        |       101 Switching Protocols                  |
//!   |        +-------------------------> TAKEN OVER           |
//!   |        |                               |                |
//!   |        | between two requests,         | an idle        |
//!   |        | or a long-poll waits          | WebSocket      |
//!   |        v                               v                v
//!   |   +-----------------------------------------------------------+
//!   |   |                          PARKED                           |
//!   |   +-----------------------------------------------------------+
//!   |        |            |                    |            |
//!   +--------+            | time over,         |            | a WebSocket with work
//!    readable, or the     | hang-up            |            | for more than a turn
//!    response of a        v                    |            v
//!    long-poll          closed                 |        TAKEN OVER
//!                                              |
//!                                              | another server takes over
//!                                              v
//!                                         HANDED OVER ---> SERVED or TAKEN OVER, if the
//!                                              |           keeper gives it back (reclaim_rest)
//!                                              | drop_handed_over
//!                                              v
//!                                         closed here, ADOPTED there
//! ```
//!
//! Every state may also end in *closed*: the client goes, breaks the protocol or runs out of time.
//!
//! | state | held by | code |
//! |---|---|---|
//! | beginning | a task | [`ListenerContext::begin`] |
//! | served | a task | [`http1::serve`], limits of time in `clock` |
//! | multiplexed | a task | [`http2::begin`], with all of its requests |
//! | taken over | a task | `channel::socket`, `upstream::tunnel`, `telemetry::page` |
//! | parked | the engine's parking lot; no task | [`ParkingLot`](superpoll_http::parking_lot::ParkingLot) |
//! | handed over | the parking lot, which leaves it alone | `ParkingLot::hand_over` |
//! | adopted | the engine that it is dealt to | `adoption` |
//!
//! Each parked connection has a [`ConnectionOwner`], which resumes it. The listener resumes a
//! connection between two requests as served.
//! [`LocalSubscribers`](superpoll_hub::channel::LocalSubscribers) answers a long-poll, which makes
//! the connection served, and writes messages to a parked WebSocket without resuming it as long as
//! the socket has room. When the server ends (`Worker::drain`), every parked connection is resumed
//! with [`ResumeReason::Draining`]: idle ones are closed, long-polls are answered and WebSockets
//! closed with a reason.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures_rustls::rustls::ServerConnection;
use superpoll_http::certificates::{ACME_TLS, ClientCertificate};
use superpoll_http::connection_state::Activity;
use superpoll_http::parking_lot::{ConnectionOwner, ParkedConnection, ResumeReason, WakeOn};
use superpoll_http::peer::{Peer, ShownByClient};
use superpoll_http::proxy_protocol;
use superpoll_http::tls::{self, Accepted};
use superpoll_http::transport::{Plain, Transport};
use superpoll_rt::spawn;
use superpoll_rt::time::{self, timeout_at};

use super::http1::InitialState;
use super::listener_context::ListenerContext;
use super::{http1, http2};

impl ListenerContext {
    /// Begins a connection that has just been accepted.
    pub(super) async fn begin(self: Rc<ListenerContext>, mut plain: Plain, mut peer: Peer) {
        let until = time::now() + self.worker.timeouts.get().header;
        let mut before = Bytes::new();
        let counters = &self.worker.counters;
        if self.is_behind_proxy {
            match Box::pin(timeout_at(until, proxy_protocol::read(&mut plain))).await {
                Ok(Ok(header)) => {
                    before = header.rest;
                    if let Some((client, local)) = header.addresses {
                        (peer.client, peer.local) = (Some(client), Some(local));
                    }
                }
                Ok(Err(_)) => return counters.broken.add(1),
                Err(_) => return counters.timed_out.add(1),
            }
            let address = peer.client.map(|client| client.ip());
            if peer.permit.count(address).is_err() {
                return counters.refused.add(1);
            }
        }
        let Some(tls) = &self.tls else {
            let initial = InitialState { before, ..InitialState::default() };
            return http1::serve(self, Transport::Plain(plain), Rc::new(peer), initial).await;
        };
        peer.is_encrypted = true;
        let (mut is_challenge, mut cipher) = (false, 0);
        let mut shown = ShownByClient::default();
        let logs_names = self.worker.logs_server_names();
        let notice = |session: &ServerConnection| {
            is_challenge = session.alpn_protocol() == Some(ACME_TLS);
            cipher = tls::cipher_of(session);
            shown.certificate = ClientCertificate::shown(session.peer_certificates());
            let name = session.server_name().filter(|_| logs_names);
            shown.server_name = name.map(Into::into);
        };
        // A connection without encryption has a smaller future.
        let handshake = Box::pin(timeout_at(until, tls::accept(tls, plain, before, notice)));
        let accepted = handshake.await;
        peer.cipher = cipher;
        let has_some = shown.certificate.is_some() || shown.server_name.is_some();
        peer.shown = has_some.then(|| Box::new(shown));
        match accepted {
            // The handshake was all that the certificate authority wanted.
            Ok(Ok(_)) if is_challenge => {}
            Ok(Ok(Accepted::Http2(stream))) => {
                let initial = http2::InitialState::default();
                http2::begin(self, stream.into(), Rc::new(peer), initial);
            }
            Ok(Ok(Accepted::Http1(stream))) => {
                let initial = InitialState::default();
                http1::serve(self, stream.into(), Rc::new(peer), initial).await;
            }
            Ok(Err(_)) => counters.broken.add(1),
            Err(_) => counters.timed_out.add(1),
        }
    }

    /// Parks a connection between two requests.
    pub(super) fn park(self: Rc<ListenerContext>, parked: ParkedConnection, limit: Duration) {
        let worker = self.worker.clone();
        // A connection that cannot be parked is closed, as idle connections may be at any time.
        let requests = parked.token;
        let activity = || Some(Activity::Idle { requests });
        drop(worker.parking_lot.park(parked, self, WakeOn::Readable, Some(limit), activity));
    }
}

impl ConnectionOwner for ListenerContext {
    fn resume(self: Rc<ListenerContext>, parked: ParkedConnection, why: ResumeReason) {
        let counters = &self.worker.counters;
        match why {
            ResumeReason::Ready => {
                let Ok(transport) = parked.stream.resume() else { return };
                let requests = parked.token;
                let initial = InitialState { requests, speaks: true, ..InitialState::default() };
                spawn(http1::serve(self, transport, parked.peer, initial)).detach();
            }
            ResumeReason::TimedOut => {
                counters.timed_out.add(1);
                parked.stream.close();
            }
            ResumeReason::Draining | ResumeReason::Refused => parked.stream.close(),
        }
    }
}
