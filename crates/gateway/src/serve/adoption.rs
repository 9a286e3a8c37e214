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
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_lite::future::or;
use superpoll::Key;
use superpoll::backend::Topology;

use superpoll_http::connection_limits::ConnectionLimits;
use superpoll_http::connection_state::{Activity, ConnectionRecord, LeftConnection};
use superpoll_http::listen;
use superpoll_http::log::{Event, Level, Report};
use superpoll_http::parking_lot::{
    ConnectionOwner, ParkedConnection, ParkingLot, PendingRequest, PreparedLot, ResumeReason,
    WaitingRequest,
};
use superpoll_http::peer::{Peer, Permit};
use superpoll_http::tls::KeysRecord;
use superpoll_http::transport::Socket;
use superpoll_hub::channel::carrier::{self, LeftCarrier, LeftStream};
use superpoll_hub::channel::{LeftSubscriber, LocatedChannel, Registry};
use superpoll_hub::succession::records::{RecordStore, WriteIntent};
use superpoll_hub::succession::{PredecessorState, Succession};
use superpoll_rt::{AsyncFd, spawn, time, yield_now};

use super::Server;
use super::error::Error;
use super::generation::Generation;
use super::http2;
use super::local::{LocalServer, local_server};
use super::opening::{Frontend, Kind};
use crate::config::{Config, Keeper};

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
    /// Connections that the other server continues with.
    pub elsewhere: u64,
    /// Connections that end in this process.
    pub here: u64,
}

/// The connections that another server has left.
#[derive(Default)]
pub(super) struct Predecessor {
    pub connections: EngineShare,
    /// So many more were lost on the way.
    pub lost: usize,
    /// The other server came to rest, and has said so.
    pub is_orderly: bool,
    /// The write intents of some of them, and the first number of a stay here.
    pub intents: HashMap<u64, WriteIntent>,
    pub first_stay: u64,
}

/// The connections that are dealt out to an engine.
pub(super) type EngineShare = Vec<(OwnedFd, ConnectionRecord)>;

impl Server {
    /// Returns the parking lot of an engine.
    pub(super) fn parking_lot(&self, config: &Config) -> Result<PreparedLot, Error> {
        let tuning = config.keeper.as_ref().map(Keeper::tuning);
        let topology = match (&self.succession, tuning) {
            (_, None) => Topology::Nested,
            (None, Some(tuning)) => Topology::Thread(tuning),
            (Some(succession), Some(tuning)) => match succession.line() {
                Ok(Some(line)) => Topology::Process(line, tuning),
                // The keeper is lost already, which was reported.
                Ok(None) => Topology::Nested,
                Err(error) => return Err(Error::ParkingLot(io::Error::other(error))),
            },
        };
        let leaves_keys = config.keeper.as_ref().is_some_and(|keeper| keeper.tls);
        ParkingLot::prepare(topology, leaves_keys).map_err(Error::ParkingLot)
    }

    /// Takes over what another server has left, if there is a keeper: its channels, tickets and
    /// settings. Its connections are for [`adopt`](Server::adopt).
    pub(super) fn inherit(
        &mut self,
        config: &Config,
        upgrades: bool,
    ) -> Result<Predecessor, Error> {
        let Some(succession) = &self.succession else {
            return Ok(Predecessor { is_orderly: true, ..Predecessor::default() });
        };
        Server::check(config)?;
        let state = succession.inherit(upgrades)?;
        let PredecessorState { connections, lost, is_orderly, .. } = state;
        let PredecessorState { channels, callbacks, tickets, settings, intents, .. } = state;
        self.shared.tickets.adopt(&tickets);
        // A supervisor has those of its workers.
        if self.shared.worker.is_none() {
            self.shared.operations.set(settings);
            self.shared.operations.keep_in(succession.clone());
        }
        let channels = Registry::restore(channels, (callbacks, !is_orderly), succession);
        self.current = Arc::new(Generation { channels, ..Generation::default() });
        let stay = |(_, left): &(OwnedFd, ConnectionRecord)| left.stay();
        let stays = connections.iter().filter_map(stay).chain(intents.keys().copied());
        let first_stay = stays.max().map_or(0, |last| last + 1);
        // Before any client is served: a new connection must not have the number of one of these.
        carrier::begin_stays_at(first_stay);
        Ok(Predecessor { connections, lost, is_orderly, intents, first_stay })
    }

    /// Leaves the listeners with the keeper, so that no client is refused however this server
    /// ends. A supervisor has them in any case.
    pub(super) fn hold(&self, fronts: &[Frontend]) {
        let Some(succession) = self.succession.as_ref().filter(|_| self.shared.worker.is_none())
        else {
            return;
        };
        // A key for each position in the configuration.
        for key in fronts.len()..self.fronts.len() {
            succession.release(key as u64);
        }
        for (key, front) in fronts.iter().enumerate() {
            match front.kind.bound() {
                Some(bound) => {
                    let chosen = listen::name_of_chosen(&front.asked.address, front.asked.is_admin);
                    succession.hold(key as u64, bound, chosen.as_deref());
                }
                None => succession.release(key as u64),
            }
        }
    }

    /// Deals out connections that another server has left to the engines.
    pub(super) fn adopt(&self, predecessor: Predecessor) {
        let Some(succession) = &self.succession else { return };
        let Predecessor { connections, lost, is_orderly, intents, first_stay } = predecessor;
        let engines = self.shared.engines.len();
        let mut hands: Vec<EngineShare> = (0..engines).map(|_| Vec::new()).collect();
        let all = connections.len() + lost;
        for (index, connection) in connections.into_iter().enumerate() {
            hands[index % engines].push(connection);
        }
        self.adopting.store(true, Ordering::Release);
        let adoption = Arc::new(Adoption {
            succession: succession.clone(),
            channels: self.current.channels.clone(),
            by_space: self.current.channels.by_space(),
            connection_limits: self.shared.connection_limits.clone(),
            report: self.shared.report.clone(),
            is_orderly,
            intents,
            first_stay,
            all,
            closed: AtomicUsize::new(lost),
            arriving: AtomicUsize::new(engines),
            is_settled: AtomicBool::new(false),
            going_on: AtomicUsize::new(engines),
            adopting: self.adopting.clone(),
        });
        for (engine, share) in hands.into_iter().enumerate() {
            let (number, adoption) = (self.shared.number, adoption.clone());
            let adopt = move || spawn(adoption.run(number, share)).detach();
            // An engine that has ended serves no client.
            let _ = self.shared.handle.call_on(engine, adopt);
        }
    }

    /// Waits until another server wants to continue with the connections of this one; indefinitely,
    /// if there is no keeper between the two.
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

    /// Leaves the listeners, the channels and all idle connections to the server that wants to
    /// continue with them. Returns how many connections continue there and how many are left here.
    /// The latter are busy, or cannot continue elsewhere; [`stop`](Server::stop) and
    /// [`drained`](Server::drained) are for them.
    pub async fn hand_over(&mut self) -> HandedOver {
        let Some(succession) = self.succession.clone() else {
            return HandedOver { elsewhere: 0, here: self.connections() };
        };
        // Connections that this server has not taken over yet could not continue anywhere.
        let end = time::now() + LEAVING;
        while self.adopting.load(Ordering::Acquire) && time::now() < end {
            time::sleep(NAP).await;
        }
        self.has_yielded = true;
        if self.shared.worker.is_none() {
            self.shared.operations.yield_settings();
        }
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
        let end = time::now() + REST;
        while self.shared.engines.iter().any(|engine| engine.active.get() > 0) && time::now() < end
        {
            time::sleep(NAP).await;
        }
        self.current.channels.hand_over();
        let left = self.on_engines(|local| local.worker.hand_over());
        let end = time::now() + LEAVING;
        while left.load(Ordering::Acquire) > 0 && time::now() < end {
            time::sleep(NAP).await;
        }
        if left.load(Ordering::Acquire) > 0 {
            // An engine does not answer, and may write to its connections later on.
            succession.abandon();
        } else {
            // What is still held is as a server left it that may not have come to rest.
            succession.report_yielded(!self.adopting.load(Ordering::Acquire));
        }
        let elsewhere = Arc::new(AtomicUsize::new(0));
        let counted = elsewhere.clone();
        let busy = self.on_engines(move |local| {
            counted.fetch_add(local.worker.parking_lot.drop_handed_over(), Ordering::AcqRel);
        });
        // Only then does the other server alone count them.
        let end = time::now() + LEAVING;
        while busy.load(Ordering::Acquire) > 0 && time::now() < end {
            time::sleep(NAP).await;
        }
        let elsewhere = elsewhere.load(Ordering::Acquire) as u64;
        HandedOver { elsewhere, here: self.connections() }
    }

    /// Runs a function on each engine; returns the number of engines that have not run it yet.
    fn on_engines(&self, act: impl Fn(&LocalServer) + Clone + Send + 'static) -> Arc<AtomicUsize> {
        let busy = Arc::new(AtomicUsize::new(self.shared.engines.len()));
        for engine in 0..self.shared.engines.len() {
            let (number, act, done) = (self.shared.number, act.clone(), busy.clone());
            let call = move || {
                if let Some(local) = local_server(number) {
                    act(&local);
                }
                done.fetch_sub(1, Ordering::AcqRel);
            };
            if self.shared.handle.call_on(engine, call).is_err() {
                // The engine has ended, and has no connections.
                busy.fetch_sub(1, Ordering::AcqRel);
            }
        }
        busy
    }
}

/// The connections of another server, on their way to all engines.
struct Adoption {
    succession: Arc<Succession>,
    channels: Registry,
    by_space: HashMap<u64, LocatedChannel>,
    connection_limits: Arc<ConnectionLimits>,
    report: Report,
    /// The other server came to rest, and has said so.
    is_orderly: bool,
    /// The write intents of some of them, and the first number of a stay here.
    intents: HashMap<u64, WriteIntent>,
    first_stay: u64,
    /// How many connections there were, and how many of them were closed.
    all: usize,
    closed: AtomicUsize,
    /// The engines that have not left their connections with the keeper yet.
    arriving: AtomicUsize,
    /// The keeper has nothing any more that the other server had left.
    is_settled: AtomicBool,
    /// The engines that have not gone on with their encrypted connections yet.
    going_on: AtomicUsize,
    adopting: Arc<AtomicBool>,
}

/// An encrypted connection that has not been touched since another server left it: its key in the
/// parking lot, and the state that it was left with.
type UntouchedConnection = (Key, ConnectionRecord);

/// The owner of connections that are held. One that hangs up meanwhile is closed.
struct Nobody;

impl ConnectionOwner for Nobody {
    fn resume(self: Rc<Self>, _: ParkedConnection, _: ResumeReason) {}
}

impl Adoption {
    /// Takes over the share of an engine.
    async fn run(self: Arc<Adoption>, number: u64, share: EngineShare) {
        let local = local_server(number);
        let mut held = Vec::new();
        match &local {
            Some(local) => held = self.arrive(local, share).await,
            None => self.count_closed(share.len()),
        }
        if self.arriving.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.succession.report_adopted();
            // Before the keeper has these records, it may hand the connections over as the other
            // server had left them.
            while !self.succession.has_room() {
                time::sleep(BEHIND).await;
            }
            self.is_settled.store(true, Ordering::Release);
        }
        while !self.is_settled.load(Ordering::Acquire) {
            time::sleep(NAP).await;
        }
        if let Some(local) = &local {
            self.go_on(local, held).await;
        }
        if self.going_on.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.finish();
        }
    }

    fn count_closed(&self, count: usize) {
        self.closed.fetch_add(count, Ordering::Relaxed);
    }

    /// Leaves connections with the keeper, with turns for new ones in between. Encrypted ones are
    /// left as they came, and returned.
    async fn arrive(&self, local: &LocalServer, share: EngineShare) -> Vec<UntouchedConnection> {
        let (all, mut adopted) = (share.len(), 0);
        let (mut held, mut share) = (Vec::new(), share.into_iter());
        while share.len() > 0 {
            for (descriptor, left) in share.by_ref().take(TOGETHER) {
                let stream = TcpStream::from(descriptor);
                if left.keys.is_some() || left.stay().is_some() {
                    held.extend(self.hold(local, stream, left));
                } else {
                    adopted += usize::from(local.adopt_one(self, stream, left).is_some());
                }
            }
            yield_now().await;
        }
        self.count_closed(all - adopted - held.len());
        if all > 0 && self.succession.control_socket().is_some() {
            local.worker.parking_lot.move_all_to_keeper();
        }
        held
    }

    /// Leaves an encrypted connection as it came. What is written to it is not a number of whole
    /// messages, as a successor takes it to be, before its state is left again; and that state must
    /// not be there twice.
    fn hold(
        &self,
        local: &LocalServer,
        stream: TcpStream,
        left: ConnectionRecord,
    ) -> Option<UntouchedConnection> {
        let is_fit = left.keys.as_ref().is_none_or(KeysRecord::outlives_crashes);
        if !self.is_orderly && !is_fit {
            return None;
        }
        let (peer, stream) = (Rc::default(), Socket::Tcp(stream).into());
        let parked = ParkedConnection { stream, peer, token: 0, pending: None };
        let key = local.worker.parking_lot.hold(parked, Rc::new(Nobody), &left)?;
        Some((key, left))
    }

    /// Continues with encrypted connections, which no other server can be given any more as they
    /// were left.
    async fn go_on(&self, local: &LocalServer, held: Vec<UntouchedConnection>) {
        let mut held = held.into_iter();
        while held.len() > 0 {
            for (key, left) in held.by_ref().take(TOGETHER) {
                // The keeper forgets it before it is touched.
                let parked = local.worker.parking_lot.take(key);
                let adopted = parked.and_then(|parked| match parked.stream.into_socket() {
                    Socket::Tcp(stream) => local.adopt_one(self, stream, left),
                    Socket::Unix(_) => None,
                });
                self.count_closed(usize::from(adopted.is_none()));
            }
            yield_now().await;
        }
        if self.succession.control_socket().is_some() {
            local.worker.parking_lot.move_all_to_keeper();
        }
    }

    fn finish(&self) {
        self.succession.forget_intents(self.first_stay);
        self.channels.finish_gathering();
        self.adopting.store(false, Ordering::Release);
        if self.all > 0 {
            let closed = self.closed.load(Ordering::Relaxed);
            let kept = self.all - closed;
            let message = format!(
                "took over {kept} connections of another server; closed {closed} that it could not take over"
            );
            let event = Event::new(Level::Notice, "adopted", message);
            (self.report)(&event.with("connections", kept as u64).with("closed", closed as u64));
        }
    }
}

impl LocalServer {
    /// Takes over one connection, if the bytes that were written to it since it was left can be
    /// explained.
    fn adopt_one(
        &self,
        adoption: &Adoption,
        stream: TcpStream,
        mut record: ConnectionRecord,
    ) -> Option<()> {
        let sent = record.sent_since(&stream)?;
        let address = stream.local_addr().ok()?;
        let keys = record.keys.take();
        let is_encrypted = keys.is_some();
        let context = self.context(address, is_encrypted)?;
        // Connections of the admin listener come to rest no more.
        if context.requires_certificate || context.is_admin {
            return None;
        }
        let (client, local) = (record.client, record.local);
        let permit = adoption.connection_limits.acquire(client.map(|client| client.ip())).ok()?;
        let is_proxied = context.is_behind_proxy;
        let permit = Permit::Client(permit);
        let peer = Peer { client, local, is_encrypted, is_proxied, permit, ..Peer::default() };
        let (peer, stream) = (Rc::new(peer), Socket::Tcp(stream).into());
        let parked = ParkedConnection { stream, peer, token: 0, pending: None };
        let left = LeftConnection { parked, sent, keys, is_orderly: adoption.is_orderly };
        let limit = Duration::from_secs(record.seconds.into());
        let subscribers =
            |space| self.worker.router().local_subscribers(adoption.by_space.get(&space)?);
        match record.activity {
            // A response was under way when the other server ended.
            Activity::Idle { .. } | Activity::Poll { .. } | Activity::Http2 { .. } if sent > 0 => {
                None
            }
            Activity::Idle { requests } => {
                let parked = left.go_on(0, None)?;
                context.park(ParkedConnection { token: requests, ..parked }, limit);
                Some(())
            }
            Activity::Http2 { requests, record } => {
                let parked = ParkedConnection { token: requests, ..left.go_on(0, None)? };
                http2::park(context, parked, record.into(), limit);
                Some(())
            }
            Activity::Http2Streams { requests, number, record, streams } => {
                let streams = streams.into_iter().map(|left| LeftStream::of(left, subscribers));
                let streams = streams.collect::<Option<_>>()?;
                let (record, intent) = (record.into(), adoption.intents.get(&number).cloned());
                let connection = LeftCarrier { requests, record, intent, streams };
                carrier::adopt(context, left, connection)
            }
            Activity::Poll { space, last, grant, form, requests, before } => {
                let local_subscribers = subscribers(space)?;
                let before = (!before.is_empty()).then(|| Box::new(Bytes::from(before)));
                let pending = PendingRequest { by: context, form, before, requests, note: None };
                let pending = Some(pending);
                let parked = ParkedConnection { pending, ..left.go_on(0, None)? };
                local_subscribers.park_poll(WaitingRequest { parked }, last, limit, grant);
                Some(())
            }
            Activity::HeldPoll { poll, held } => {
                let Activity::Poll { space, last, form, requests, before, .. } = *poll else {
                    return None;
                };
                if sent > 0 {
                    return None;
                }
                let local_subscribers = subscribers(space)?;
                let before = (!before.is_empty()).then(|| Box::new(Bytes::from(before)));
                let pending = PendingRequest { by: context, form, before, requests, note: None };
                let pending = Some(pending);
                let parked = ParkedConnection { pending, ..left.go_on(0, None)? };
                local_subscribers.adopt_held(*held, WaitingRequest { parked }, last, limit);
                Some(())
            }
            activity => {
                let (space, subscriber) = LeftSubscriber::of(activity)?;
                subscribers(space)?.adopt(left, subscriber)
            }
        }
    }
}
