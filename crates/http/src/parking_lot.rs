//! The parking lot: connections on which nothing happens.
//!
//! A parked connection is a descriptor, the addresses of its peer, and a few bytes of state. It
//! owns no task, no buffer and no object of a protocol; those are made again when the connection
//! becomes readable. Each engine has one parking lot, which is a poller nested in the engine's
//! poller. Ten thousand idle connections are one descriptor to the engine, and cost it nothing
//! while they are idle.
//!
//! Memory follows a moment later. Each peer is moved into the lot's own table: left where it was
//! made, among the buffers of its connection, each peer would keep a page of the heap. And when
//! many connections have been parked, the allocator is told, once a second, to give back the free
//! memory of their buffers, which it would otherwise keep for as long as the process runs.
//!
//! A thread or a keeper process may watch the parked connections instead. The process has the
//! connections as well, and gives them to the next server if this server ends (`succession`). The
//! poller manages the keeper by itself.
//!
//! The owner of a parked connection is its [`ConnectionOwner`]. The owner gets the connection back,
//! once, when the peer has sent something or has hung up, or when its time is over. Time is kept in
//! seconds, so that a deadline is four bytes and no timer. `serve/connection.rs` has a diagram of
//! all states of a connection.

mod handing_over;
mod listing;
mod refused;
mod waiting;

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use superpoll::backend::{KeeperStatus, Topology};
use superpoll::{BackendKind, Events, Interest, Key, Mode, Poller, Watch};
use superpoll_rt::{AsyncFd, JoinHandle, spawn, time};

use crate::admin::Protocol;
use crate::connection_state::{Activity, ConnectionRecord};
use crate::log::{Event, Level, Report};
use crate::memory;
use crate::parked_stream::ParkedStream;
use crate::peer::Peer;
use crate::sys;
use crate::sys::send_ring::{SendRing, Sent};
use crate::telemetry::counters::{ActiveTask, EngineCounters};
use crate::transport::Socket;
use refused::RefusedEntries;

pub use waiting::{Note, PendingRequest, Responder, WaitingRequest};

/// The most connections that are called back in one go before other tasks have their turn.
const BATCH: usize = 256;

/// How many times a second connections that are due are left to the keeper.
const PARTS: u32 = 4;

/// Memory is given back when this many more connections are parked than before: it is some
/// milliseconds of work.
const FLOOD: usize = 256;

/// This many are enough when no further connections come.
const SOME: usize = 16;

/// A peer is moved into the table when so many other connections have been parked after its own:
/// the task of that one has ended by then, as a rule.
const LATER: usize = 16;

/// The reason for which a connection is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResumeReason {
    /// The connection is readable, or the peer has hung up; a read tells which.
    Ready,
    /// The connection's time is over.
    TimedOut,
    /// The server is about to end.
    Draining,
    /// The kernel does not watch the connection any more, so nothing would end its stay but time.
    Refused,
}

/// The owner of parked connections.
pub trait ConnectionOwner {
    /// Takes a connection back.
    fn resume(self: Rc<Self>, parked: ParkedConnection, why: ResumeReason);

    /// Returns the protocol of its connections, as they are listed.
    fn protocol(&self) -> Protocol {
        Protocol::Http1
    }
}

/// The event that ends a stay, in addition to time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WakeOn {
    /// Bytes, or a hang-up.
    Readable,
    /// A hang-up; bytes stay unread. Bytes of an encrypted connection may say that it ends, so they
    /// end the stay as well.
    HungUp,
}

/// A connection as it is parked.
pub struct ParkedConnection {
    /// The stream; it is non-blocking.
    pub stream: ParkedStream,
    /// The peer of the connection.
    pub peer: Rc<Peer>,
    /// The owner's identifier of the connection.
    pub token: u32,
    /// Where the connection continues with HTTP, if it does.
    pub pending: Option<PendingRequest>,
}

/// The peer of a connection: shared, as the lot got it, or owned by the table once the lot is the
/// only owner.
enum PeerRef {
    Shared(Rc<Peer>),
    Owned(Peer),
}

struct ParkedEntry {
    stream: ParkedStream,
    peer: PeerRef,
    token: u32,
    pending: Option<PendingRequest>,
    owner: Rc<dyn ConnectionOwner>,
    key: Key,
    /// In seconds since the lot was opened; zero: none.
    deadline: u32,
}

impl ParkedEntry {
    /// Moves the peer into the table, if it is not shared, so that it no longer pins memory
    /// elsewhere.
    fn own_peer(self) -> ParkedEntry {
        let peer = match self.peer {
            PeerRef::Shared(peer) => {
                Rc::try_unwrap(peer).map_or_else(PeerRef::Shared, PeerRef::Owned)
            }
            owned @ PeerRef::Owned(_) => owned,
        };
        ParkedEntry { peer, ..self }
    }

    fn peer(&self) -> &Peer {
        match &self.peer {
            PeerRef::Shared(peer) => peer,
            PeerRef::Owned(peer) => peer,
        }
    }

    fn into_parked(self) -> ParkedConnection {
        let peer = match self.peer {
            PeerRef::Shared(peer) => peer,
            PeerRef::Owned(peer) => Rc::new(peer),
        };
        ParkedConnection { stream: self.stream, peer, token: self.token, pending: self.pending }
    }
}

/// A lot that is not on an engine yet.
#[derive(Debug)]
pub struct PreparedLot {
    poller: Poller,
    nested: OwnedFd,
    outlives: bool,
    is_kept: bool,
    leaves_keys: bool,
}

/// The connections that are parked on one engine.
pub struct ParkingLot {
    poller: RefCell<Poller>,
    entries: RefCell<Vec<Option<ParkedEntry>>>,
    parked: Cell<usize>,
    /// The connections that have arrived since memory was last looked after.
    fresh: RefCell<Vec<u32>>,
    /// The number of connections when memory was last given back, or the lowest number since.
    given_back_at: Cell<usize>,
    /// Whether connections may continue with another server.
    outlives: bool,
    /// Whether a keeper watches the connections.
    is_kept: bool,
    /// Whether the keys of encrypted connections are left as well.
    leaves_keys: bool,
    /// Whether the loss of the keeper has been reported.
    has_reported_loss: Cell<bool>,
    report: Report,
    counters: Arc<EngineCounters>,
    opened: Instant,
    /// The earliest deadline, or an earlier one that is out of date; zero: none.
    soonest: Cell<u32>,
    draining: Cell<bool>,
    /// The tasks end with the lot, and hold only a weak reference to it while they wait.
    tasks: RefCell<Vec<JoinHandle<()>>>,
    /// The connections that continue with another server, until they are closed here.
    handed_over: RefCell<Vec<ParkedEntry>>,
    refused: RefusedEntries,
}

impl ParkingLot {
    /// Creates everything that can fail, on any thread. With `leaves_keys`, encrypted connections
    /// continue with another server as plain ones do.
    ///
    /// # Errors
    ///
    /// The kernel's error for another epoll object, or for another thread.
    pub fn prepare(topology: Topology, leaves_keys: bool) -> io::Result<PreparedLot> {
        let outlives = matches!(topology, Topology::Process(..));
        let is_kept = !matches!(topology, Topology::Nested);
        let builder = match topology {
            Topology::Nested => Poller::builder().backend(BackendKind::Epoll),
            topology => Poller::builder().topology(topology),
        };
        let mut poller = builder.build()?;
        let nested = poller.nest()?.try_clone_to_owned()?;
        Ok(PreparedLot { poller, nested, outlives, is_kept, leaves_keys })
    }

    /// Opens a lot on the engine of this thread, which counts the connections in it.
    #[must_use]
    pub fn open(
        prepared: PreparedLot,
        counters: Arc<EngineCounters>,
        report: Report,
    ) -> Rc<ParkingLot> {
        let PreparedLot { poller, nested, outlives, is_kept, leaves_keys } = prepared;
        let parking_lot = Rc::new(ParkingLot {
            poller: RefCell::new(poller),
            entries: RefCell::default(),
            parked: Cell::new(0),
            fresh: RefCell::default(),
            given_back_at: Cell::new(0),
            outlives,
            is_kept,
            leaves_keys,
            has_reported_loss: Cell::new(false),
            report,
            counters,
            opened: time::now(),
            soonest: Cell::new(0),
            draining: Cell::new(false),
            tasks: RefCell::default(),
            handed_over: RefCell::default(),
            refused: RefusedEntries::default(),
        });
        let watches =
            spawn(ParkingLot::watch(Rc::downgrade(&parking_lot), AsyncFd::nonblocking(nested)));
        let keeps_time = spawn(ParkingLot::keep_time(Rc::downgrade(&parking_lot)));
        *parking_lot.tasks.borrow_mut() = vec![watches, keeps_time];
        parking_lot
    }

    /// Counts a task that continues with a connection.
    #[inline]
    pub fn task(&self) -> ActiveTask {
        ActiveTask::begin(&self.counters)
    }

    /// Notes that bytes have moved on a connection that has a task.
    #[inline]
    pub fn note_active(&self, peer: &Peer) {
        peer.note_active(&self.counters.ratio);
    }

    /// Counts bytes of a response that is sent to a parked connection.
    #[inline]
    pub fn count_body(&self, bytes: u64) {
        self.counters.body_bytes.add(bytes);
    }

    /// Returns how many connections are parked here.
    #[inline]
    pub fn parked(&self) -> usize {
        self.parked.get()
    }

    fn now(&self) -> u32 {
        u32::try_from((time::now() - self.opened).as_secs()).unwrap_or(u32::MAX)
    }

    /// Parks a connection. After `limit`, rounded up to seconds, it is given back in any case.
    /// `activity` tells another server how to continue with the connection; without it the
    /// connection ends with this server.
    ///
    /// # Errors
    ///
    /// The connection, if it cannot be watched.
    pub fn park(
        &self,
        parked: ParkedConnection,
        owner: Rc<dyn ConnectionOwner>,
        until: WakeOn,
        limit: Option<Duration>,
        activity: impl FnOnce() -> Option<Activity>,
    ) -> Result<Key, (ParkedConnection, io::Error)> {
        let interest = match until {
            // An encrypted connection ends with a record.
            WakeOn::HungUp if !parked.stream.is_encrypted() => Interest::READ_CLOSED,
            WakeOn::Readable | WakeOn::HungUp => Interest::READABLE,
        };
        self.enter(parked, owner, interest, limit, |parked| self.record(parked, limit, activity))
    }

    /// Whether a connection may continue with another server as far as its keys are concerned.
    #[must_use]
    pub fn leaves(&self, stream: &ParkedStream) -> bool {
        self.leaves_keys || !stream.is_encrypted()
    }

    /// Returns the state of a connection for a successor, if it may continue there.
    fn record(
        &self,
        parked: &mut ParkedConnection,
        limit: Option<Duration>,
        activity: impl FnOnce() -> Option<Activity>,
    ) -> Option<ConnectionRecord> {
        let ParkedConnection { stream, peer, .. } = parked;
        let is_encrypted = stream.is_encrypted();
        // A successor could not verify the client's certificate again.
        if !self.leaves(stream) || (is_encrypted && peer.certificate().is_some()) {
            return None;
        }
        let activity = activity()?;
        let seconds =
            limit.map_or(0, |limit| u32::try_from(limit.as_secs()).unwrap_or(u32::MAX).max(1));
        let keys = if is_encrypted { Some(stream.keys_record()?) } else { None };
        let Socket::Tcp(socket) = stream.socket() else { return None };
        ConnectionRecord::new(peer, seconds, socket, activity, keys)
    }

    /// Enters a connection, with its state for a successor. Without one the connection ends with
    /// this server.
    fn enter(
        &self,
        mut parked: ParkedConnection,
        owner: Rc<dyn ConnectionOwner>,
        interest: Interest,
        limit: Option<Duration>,
        record: impl FnOnce(&mut ParkedConnection) -> Option<ConnectionRecord>,
    ) -> Result<Key, (ParkedConnection, io::Error)> {
        if self.draining.get() {
            return Err((parked, io::Error::other("the server is about to end")));
        }
        let mut poller = self.poller.borrow_mut();
        let key = match poller.register(&parked.stream, Watch::new(interest).mode(Mode::Level)) {
            Ok(key) => key,
            Err(error) => return Err((parked, error.into())),
        };
        // The kernel has been asked already, and a refusal has ended the registration. The next
        // wait says why. This changes nothing in a registration that has not ended.
        if poller.modify(key, interest).is_err() {
            return Err((parked, io::Error::other("the kernel refuses to watch the connection")));
        }
        if self.outlives
            && let Some(record) = record(&mut parked)
        {
            let _ = poller.leave_state(key, &record.encode());
        }
        let deadline = match limit {
            None => 0,
            Some(limit) => {
                let seconds = limit.as_secs().saturating_add(u64::from(limit.subsec_nanos() > 0));
                let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
                self.now().saturating_add(seconds).saturating_add(1)
            }
        };
        if deadline > 0 && (self.soonest.get() == 0 || deadline < self.soonest.get()) {
            self.soonest.set(deadline);
        }
        let mut entries = self.entries.borrow_mut();
        let index = key.index() as usize;
        if entries.len() <= index {
            entries.resize_with(index + 1, || None);
        }
        let ParkedConnection { stream, peer, token, pending } = parked;
        let peer = PeerRef::Shared(peer);
        let entry = ParkedEntry { stream, peer, token, pending, owner, key, deadline };
        // The poller gives an index again when it has refused the registration before.
        let refused = entries[index].replace(entry);
        let mut fresh = self.fresh.borrow_mut();
        fresh.push(key.index());
        if let Some(&before) = fresh.iter().nth_back(LATER) {
            own_peer(&mut entries, before);
        }
        self.count(self.parked.get() + usize::from(refused.is_none()));
        self.refused.push(refused);
        self.counters.parkings.add(1);
        Ok(key)
    }

    /// Takes a connection back; `None` if it has been given back already.
    #[inline]
    pub fn take(&self, key: Key) -> Option<ParkedConnection> {
        self.remove(key).map(ParkedEntry::into_parked)
    }

    /// Sends to a parked connection's stream; `None` if it has been given back already.
    pub fn with_stream<R>(&self, key: Key, at: impl FnOnce(&mut ParkedStream) -> R) -> Option<R> {
        let mut entries = self.entries.borrow_mut();
        let entry = entries.get_mut(key.index() as usize).and_then(Option::as_mut);
        match entry.filter(|entry| entry.key == key) {
            Some(entry) => {
                entry.peer().note_active(&self.counters.ratio);
                Some(at(&mut entry.stream))
            }
            None => self.refused.with_stream(key, at),
        }
    }

    /// Sends bytes to parked connections, at most [`MOST`](crate::sys::send_ring::MOST), as much as
    /// each has room for now. `None` for a connection that has been given back already, or that was
    /// not tried.
    pub fn send_all(&self, ring: &mut SendRing, batch: &[(Key, Bytes)]) -> Sent {
        let entries = self.entries.borrow();
        let mut outgoing = Vec::with_capacity(batch.len());
        let mut places = Vec::with_capacity(batch.len());
        for (place, (key, bytes)) in batch.iter().enumerate() {
            let entry = entries.get(key.index() as usize).and_then(Option::as_ref);
            if let Some(entry) = entry.filter(|entry| entry.key == *key) {
                entry.peer().note_active(&self.counters.ratio);
                outgoing.push((entry.stream.as_fd(), &bytes[..]));
                places.push(place);
            }
        }
        let sent = ring.send(&outgoing);
        let mut outcomes: Vec<_> = batch.iter().map(|_| None).collect();
        for (place, outcome) in places.into_iter().zip(sent.outcomes) {
            outcomes[place] = outcome;
        }
        Sent { outcomes, is_broken: sent.is_broken }
    }

    fn count(&self, parked: usize) {
        self.parked.set(parked);
        self.counters.parked.set(parked as u64);
    }

    fn remove(&self, key: Key) -> Option<ParkedEntry> {
        let mut entries = self.entries.borrow_mut();
        let slot = entries.get_mut(key.index() as usize)?;
        if slot.as_ref().is_none_or(|entry| entry.key != key) {
            return self.refused.remove(key);
        }
        let entry = slot.take()?;
        self.count(self.parked.get() - 1);
        // Fails only if the poller has refused the registration.
        let _ = self.poller.borrow_mut().deregister(key);
        Some(entry)
    }

    fn resume(&self, key: Key, why: ResumeReason) {
        if let Some(entry) = self.remove(key) {
            entry.owner.clone().resume(entry.into_parked(), why);
        }
    }

    /// Gives every connection back, and takes no new ones.
    pub fn drain(&self) {
        self.draining.set(true);
        let keys: Vec<Key> =
            self.entries.borrow().iter().flatten().map(|entry| entry.key).collect();
        for key in keys {
            self.resume(key, ResumeReason::Draining);
        }
        self.resume_refused(Vec::new());
    }

    async fn watch(parking_lot: Weak<ParkingLot>, nested: AsyncFd<OwnedFd>) {
        let mut events = Events::with_limit(BATCH);
        loop {
            let Ok(ready) = nested.readable().await else { return };
            let Some(parking_lot) = parking_lot.upgrade() else { return };
            if parking_lot.wake_ready(&mut events) < BATCH {
                // Level-triggered by epoll's own rule: later events are reported again.
                ready.clear();
            }
            drop(parking_lot);
            superpoll_rt::yield_now().await;
        }
    }

    async fn keep_time(parking_lot: Weak<ParkingLot>) {
        loop {
            for part in 1..=PARTS {
                time::sleep(Duration::from_secs(1) / PARTS).await;
                // At most one batch of connections leaves at a time, so that other tasks have their
                // turn in between.
                while parking_lot
                    .upgrade()
                    .is_some_and(|parking_lot| parking_lot.is_kept && parking_lot.service_keeper())
                {
                    superpoll_rt::yield_now().await;
                }
                let Some(parking_lot) = parking_lot.upgrade() else { return };
                if part == PARTS {
                    parking_lot.counters.ratio.end_second();
                    parking_lot.return_memory();
                    let EngineCounters { active, running, parked, .. } = &*parking_lot.counters;
                    memory::check(active.get() + running.get() + parked.get());
                    parking_lot.resume_expired();
                }
            }
        }
    }

    /// Leaves some of the connections that are due to the keeper, and reports its loss if it is
    /// gone. Returns whether any have left, in which case more may follow.
    fn service_keeper(&self) -> bool {
        let poller = self.poller.borrow_mut();
        if let KeeperStatus::Lost(why) = poller.keeper_status()
            && !self.has_reported_loss.replace(true)
        {
            let message = format!(
                "the keeper is lost ({why}); idle connections are watched here from now on"
            );
            (self.report)(&Event::new(Level::Error, "keeper-lost", message));
        }
        drop(poller);
        // Each wait continues with the search for connections that are due to leave.
        let before = self.counters.leavings.get();
        self.wake_ready(&mut Events::with_limit(BATCH));
        self.counters.leavings.get() > before
    }

    /// Resumes every parked connection that is readable or hung up, and those that the kernel
    /// refuses to watch. Returns how many there were of the former.
    fn wake_ready(&self, events: &mut Events) -> usize {
        let mut poller = self.poller.borrow_mut();
        let outcome = poller.wait(events, Some(Duration::ZERO));
        if self.is_kept {
            let stats = poller.stats();
            self.counters.away.set(stats.away.len as u64);
            self.counters.leavings.set(stats.moves_away);
            self.counters.returns.set(stats.moves_back);
        }
        drop(poller);
        // First: the poller may give their indices to connections that are parked now.
        self.resume_refused(events.take_refusals());
        for event in &*events {
            self.resume(event.key(), ResumeReason::Ready);
        }
        // After a failure no connection was called; the next look may succeed.
        outcome.unwrap_or(0)
    }

    /// Gives back the connections whose time is over.
    fn resume_expired(&self) {
        let now = self.now();
        if self.soonest.get() == 0 || self.soonest.get() > now {
            return;
        }
        // Bytes that have arrived take precedence over a time that is over: the process may have
        // been stopped for a while.
        let mut events = Events::with_limit(BATCH);
        for _ in 0..=self.parked.get() / BATCH {
            if self.wake_ready(&mut events) < BATCH {
                break;
            }
        }
        let mut due = Vec::new();
        let mut soonest = 0;
        for entry in self.entries.borrow().iter().flatten() {
            if entry.deadline > 0 && entry.deadline <= now {
                due.push(entry.key);
            } else if entry.deadline > 0 && (soonest == 0 || entry.deadline < soonest) {
                soonest = entry.deadline;
            }
        }
        self.soonest.set(soonest);
        for key in due {
            self.resume(key, ResumeReason::TimedOut);
        }
    }

    /// See the top of this module.
    fn return_memory(&self) {
        let fresh = self.fresh.take();
        let enough = if fresh.is_empty() { SOME } else { FLOOD };
        let mut entries = self.entries.borrow_mut();
        for index in fresh {
            own_peer(&mut entries, index);
        }
        drop(entries);
        let (now, before) = (self.parked.get(), self.given_back_at.get());
        if now >= before.saturating_add(enough) {
            self.given_back_at.set(now);
            sys::give_memory_back();
        } else {
            self.given_back_at.set(before.min(now));
        }
    }
}

/// Moves a peer into the table. The connection may have been given back since it was parked, or be
/// a new one in the same place, to which this does no harm.
fn own_peer(entries: &mut [Option<ParkedEntry>], index: u32) {
    if let Some(slot) = entries.get_mut(index as usize) {
        *slot = slot.take().map(ParkedEntry::own_peer);
    }
}

impl Drop for ParkingLot {
    fn drop(&mut self) {
        for task in self.tasks.get_mut() {
            task.abort();
        }
    }
}

superpoll::debug_fields!(ParkingLot, it => parked: it.parked.get());
