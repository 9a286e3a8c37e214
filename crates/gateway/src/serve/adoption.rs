//! Taking over the connections of another server, and leaving connections to a next server.
//!
//! The state that is left with the keeper, and the reason for which it is enough, are described in
//! `succession`. This module has the tasks. The thread that starts a server takes the connections
//! from the keeper and deals them out to the engines. Each engine parks its part as if it had
//! served those connections itself. The server reports to the keeper that it has adopted all
//! connections when the last engine has left its part with the keeper again.
//!
//! A server that is to yield accepts no more connections, gives busy connections a moment to come
//! to rest, and closes its channels to publishers. Then each engine leaves its parked connections,
//! all at once, so that it sends nothing to any client from then on. Only when the keeper has
//! heard that this was all does the server close the descriptors.

use std::collections::HashMap;
use std::fmt;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_lite::future::or;
use superpoll::backend::Topology;

use superpoll_rt::{AsyncFd, spawn, time, yield_now};

use super::{Error, Frontend, Kind, Local, Server, failed, local};
use crate::channel::{Form, LocatedChannel};
use crate::config::{Config, Keeper};
use crate::connection_limits::ConnectionLimits;
use crate::log::{Event, Level};
use crate::parking_lot::{
    ParkedConnection, ParkingLot, PendingRequest, PreparedLot, WaitingRequest,
};
use crate::peer::Peer;
use crate::succession::Succession;
use crate::succession::records::RecordStore;
use crate::succession::state::{Activity, ConnectionRecord};
use crate::transport::Socket;

/// How long busy connections may take to come to rest before the idle ones are left.
const REST: Duration = Duration::from_millis(50);

/// How long engines may take to leave their connections.
const LEAVING: Duration = Duration::from_secs(5);

/// The time between two checks.
const NAP: Duration = Duration::from_millis(1);

/// The most connections that an engine takes over before other tasks have their turn.
const TOGETHER: usize = 32;

/// The time between two checks of a line that waits for something other than room.
const BEHIND: Duration = Duration::from_millis(10);

/// The result for the connections of a server that another server has taken over from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandedOver {
    /// Connections that the other server goes on with.
    pub elsewhere: u64,
    /// Connections that end in this process.
    pub here: u64,
}

/// The connections that are dealt out to an engine.
type EngineShare = Vec<(OwnedFd, ConnectionRecord)>;

impl Server {
    /// Returns the parking lot of an engine.
    pub(super) fn parking_lot(&self, config: &Config) -> Result<PreparedLot, Error> {
        let cannot = |error: &dyn fmt::Display| {
            failed(format!("creating the poller of idle connections: {error}"))
        };
        let tuning = config.keeper.as_ref().map(Keeper::tuning);
        let topology = match (&self.succession, tuning) {
            (_, None) => Topology::Nested,
            (None, Some(tuning)) => Topology::Thread(tuning),
            (Some(succession), Some(tuning)) => match succession.line() {
                Ok(Some(line)) => Topology::Process(line, tuning),
                // The keeper is lost already, which was reported.
                Ok(None) => Topology::Nested,
                Err(error) => return Err(cannot(&error)),
            },
        };
        ParkingLot::prepare(topology).map_err(|error| cannot(&error))
    }

    /// Leaves the listeners with the keeper, so that no client is refused however this server
    /// ends.
    pub(super) fn hold(&self, fronts: &[Frontend]) {
        let Some(succession) = &self.succession else { return };
        // A key for each position in the configuration.
        for key in fronts.len()..self.fronts.len() {
            succession.release(key as u64);
        }
        for (key, front) in fronts.iter().enumerate() {
            match front.kind.bound() {
                Some(bound) => succession.hold(key as u64, bound),
                None => succession.release(key as u64),
            }
        }
    }

    /// Deals out connections that another server has left to the engines; `lost` more were lost on
    /// the way.
    pub(super) fn adopt(&self, connections: EngineShare, lost: usize) {
        let Some(succession) = &self.succession else { return };
        let engines = self.engines.len();
        let mut hands: Vec<EngineShare> = (0..engines).map(|_| Vec::new()).collect();
        let all = connections.len() + lost;
        for (index, connection) in connections.into_iter().enumerate() {
            hands[index % engines].push(connection);
        }
        let (busy, adopting) = (Arc::new(AtomicUsize::new(engines)), self.adopting.clone());
        let by_space = Arc::new(self.channels.by_space());
        adopting.store(true, Ordering::Release);
        let closed = Arc::new(AtomicUsize::new(lost));
        for (engine, share) in hands.into_iter().enumerate() {
            let (number, connection_limits) = (self.number, self.connection_limits.clone());
            let (succession, report) = (succession.clone(), self.report.clone());
            let (busy, adopting) = (busy.clone(), adopting.clone());
            let (all_closed, closed) = (closed.clone(), closed.clone());
            let channels = self.channels.clone();
            let settles = async move {
                if busy.fetch_sub(1, Ordering::AcqRel) > 1 {
                    return;
                }
                succession.report_adopted();
                // Before the keeper has these records, it may hand the connections over as the
                // other server had left them.
                while !succession.has_room() {
                    time::sleep(BEHIND).await;
                }
                channels.finish_gathering();
                adopting.store(false, Ordering::Release);
                if all > 0 {
                    let closed = all_closed.load(Ordering::Relaxed);
                    let kept = all - closed;
                    let message = format!(
                        "took over {kept} connections of another server; closed {closed} that it could not take over"
                    );
                    let event = Event::new(Level::Notice, "adopted", message);
                    report(&event.with("connections", kept as u64).with("closed", closed as u64));
                }
            };
            let (succession, by_space) = (self.succession.clone(), by_space.clone());
            let adopt = move || {
                let adopts = async move {
                    if let (Some(local), Some(succession)) = (local(number), succession) {
                        let lost =
                            local.adopt(share, &connection_limits, &by_space, &succession).await;
                        closed.fetch_add(lost, Ordering::Relaxed);
                    }
                    settles.await;
                };
                spawn(adopts).detach();
            };
            // An engine that has ended serves no client.
            let _ = self.handle.call_on(engine, adopt);
        }
    }

    /// Waits until another server wants to go on with the connections of this one; indefinitely, if
    /// there is no keeper between the two.
    ///
    /// # Cancel safety
    ///
    /// Cancelling loses nothing.
    pub async fn asked_to_yield(&self) {
        if let Some(succession) = &self.succession
            && let Some(control_socket) = succession.control_socket()
        {
            let control_socket = AsyncFd::nonblocking(control_socket);
            let listens = async {
                while let Ok(ready) = control_socket.readable().await {
                    ready.clear();
                    if succession.should_yield() {
                        return true;
                    }
                    if succession.control_socket().is_none() {
                        break;
                    }
                }
                false
            };
            let sends = async {
                loop {
                    succession.is_behind().await;
                    let Ok(ready) = control_socket.writable().await else { return false };
                    ready.clear();
                    if !succession.has_room() {
                        time::sleep(BEHIND).await;
                    }
                }
            };
            if or(listens, sends).await {
                return;
            }
        }
        std::future::pending().await
    }

    /// Leaves the listeners, the channels and all idle connections to the server that wants to go
    /// on with them. Returns how many connections go on there and how many are left here. The
    /// latter are busy, or cannot go on elsewhere; [`stop`](Server::stop) and
    /// [`drained`](Server::drained) are for them.
    pub async fn hand_over(&mut self) -> HandedOver {
        let Some(succession) = self.succession.clone() else {
            return HandedOver { elsewhere: 0, here: self.connections() };
        };
        // Connections that this server has not taken over yet could not go on anywhere.
        let end = Instant::now() + LEAVING;
        while self.adopting.load(Ordering::Acquire) && Instant::now() < end {
            time::sleep(NAP).await;
        }
        self.has_yielded = true;
        for front in &mut self.fronts {
            front.kind.bound().into_iter().for_each(|bound| bound.own(false));
            if let Kind::Relay(_, relay) = std::mem::replace(&mut front.kind, Kind::Closed) {
                relay.stop();
            }
        }
        self.on_engines(|local| {
            local.closed.borrow().set(true);
            local.worker.park_idle_connections();
        });
        let end = Instant::now() + REST;
        while self.engines.iter().any(|engine| engine.active.get() > 0) && Instant::now() < end {
            time::sleep(NAP).await;
        }
        self.channels.hand_over();
        let left = self.on_engines(|local| local.worker.hand_over());
        let end = Instant::now() + LEAVING;
        while left.load(Ordering::Acquire) > 0 && Instant::now() < end {
            time::sleep(NAP).await;
        }
        succession.report_yielded();
        let elsewhere = Arc::new(AtomicUsize::new(0));
        let counted = elsewhere.clone();
        let busy = self.on_engines(move |local| {
            counted.fetch_add(local.worker.parking_lot.drop_handed_over(), Ordering::AcqRel);
        });
        // Only then does the other server alone count them.
        let end = Instant::now() + LEAVING;
        while busy.load(Ordering::Acquire) > 0 && Instant::now() < end {
            time::sleep(NAP).await;
        }
        let elsewhere = elsewhere.load(Ordering::Acquire) as u64;
        HandedOver { elsewhere, here: self.connections() }
    }

    /// Runs a function on each engine; returns the number of engines that have not run it yet.
    fn on_engines(&self, act: impl Fn(&Local) + Clone + Send + 'static) -> Arc<AtomicUsize> {
        let busy = Arc::new(AtomicUsize::new(self.engines.len()));
        for engine in 0..self.engines.len() {
            let (number, act, done) = (self.number, act.clone(), busy.clone());
            let call = move || {
                if let Some(local) = local(number) {
                    act(&local);
                }
                done.fetch_sub(1, Ordering::AcqRel);
            };
            if self.handle.call_on(engine, call).is_err() {
                // The engine has ended, and has no connections.
                busy.fetch_sub(1, Ordering::AcqRel);
            }
        }
        busy
    }
}

impl Local {
    /// Takes over connections, with turns for new ones in between; returns how many could not go
    /// on.
    async fn adopt(
        &self,
        share: EngineShare,
        connection_limits: &Arc<ConnectionLimits>,
        by_space: &HashMap<u64, LocatedChannel>,
        succession: &Succession,
    ) -> usize {
        let all = share.len();
        let (mut adopted, mut share) = (0, share.into_iter());
        while share.len() > 0 {
            let some = share.by_ref().take(TOGETHER).filter_map(|(descriptor, left)| {
                self.adopt_one(TcpStream::from(descriptor), left, connection_limits, by_space)
            });
            adopted += some.count();
            yield_now().await;
        }
        if all > 0 && succession.control_socket().is_some() {
            self.worker.parking_lot.move_all_to_keeper();
        }
        all - adopted
    }

    /// Takes over one connection, if the bytes that were written to it since it was left can be
    /// explained.
    fn adopt_one(
        &self,
        stream: TcpStream,
        left: ConnectionRecord,
        connection_limits: &Arc<ConnectionLimits>,
        by_space: &HashMap<u64, LocatedChannel>,
    ) -> Option<()> {
        let sent = left.sent_since(&stream)?;
        let address = stream.local_addr().ok()?;
        let context = self.context(address)?;
        let permit = connection_limits.acquire(left.client.map(|client| client.ip())).ok()?;
        let (client, local) = (left.client, left.local);
        let is_proxied = context.is_behind_proxy();
        let permit = Some(permit);
        let peer = Peer { client, local, is_proxied, permit, ..Peer::default() };
        let peer = Rc::new(peer);
        let mut parked =
            ParkedConnection { stream: Socket::Tcp(stream).into(), peer, token: 0, pending: None };
        let limit = Duration::from_secs(left.seconds.into());
        let subscribers = |space| self.worker.router().local_subscribers(by_space.get(&space)?);
        let (activity, sub) = left.activity.unnamed();
        match activity {
            // A name has no name.
            Activity::Named { .. } => return None,
            // A response was under way when the other server ended.
            Activity::Idle { .. } | Activity::Poll { .. } if sent > 0 => return None,
            Activity::Idle { requests } => {
                parked.token = requests;
                context.park(parked, limit);
            }
            Activity::Poll { space, last, grant, form, requests, before } => {
                let local_subscribers = subscribers(space)?;
                let before = (!before.is_empty()).then(|| Box::new(Bytes::from(before)));
                parked.pending =
                    Some(PendingRequest { by: context, form, before, requests, note: None });
                local_subscribers.park_poll(WaitingRequest { parked }, last, limit, grant);
            }
            Activity::Socket { space, last, offset, grant, pinged } => {
                let (of, rights) = ((last, offset, pinged), (grant, None));
                subscribers(space)?.adopt_named(parked, Form::WebSocket, of, rights, sent, sub)?;
            }
            Activity::JsonSocket { space, last, offset, grant, pinged } => {
                let (of, rights) = ((last, offset, pinged), (grant, None));
                subscribers(space)?.adopt_named(parked, Form::Json, of, rights, sent, sub)?;
            }
            Activity::Events { space, last, offset, grant, pinged } => {
                let (of, rights) = ((last, offset, pinged), (grant, None));
                subscribers(space)?.adopt_named(parked, Form::Events, of, rights, sent, sub)?;
            }
            Activity::Mercure { space, last, grant, pinged, reader } => {
                let (of, rights) = ((last, None, pinged), (grant, Some(reader)));
                subscribers(space)?.adopt_named(parked, Form::Mercure, of, rights, sent, sub)?;
            }
        }
        Some(())
    }
}
