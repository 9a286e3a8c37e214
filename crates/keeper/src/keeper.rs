//! The keeper's loop: one thread, one epoll set, and a link to each loop that it works for.
//!
//! A loop gives descriptors to the keeper and is told which of them become ready, all those of
//! one wait in one packet. The keeper no longer watches such a descriptor: a loop that wants it
//! watched again says so again. That leaves nothing to agree about between two sides that do not
//! wait for each other.
//!
//! Links belong to sessions. A session is a server, with a link for each of its loops and one for
//! itself, its *control*. When a link ends without notice its descriptors become orphans, which are
//! watched for hang-ups only. A control may ask for the orphans. If the server of a lost loop link
//! is still there after a while, the orphans of that link are forgotten: the server has given the
//! link up, and watches the descriptors itself. If another server with a control is present, the
//! keeper first tells that server to yield, and waits for it. Orphans that were handed over are
//! kept until the successor says that it is settled or has left them here again, so that they
//! survive the successor as well. A descriptor that was left again is recognised by its open file.
//!
//! The end of a link says nothing about the process: a server that has lost its links may continue,
//! and write to its connections. So the descriptors of a server are handed to another server only
//! after the first has said that it yielded, or its process has ended (`sessions`). Descriptors
//! that a server could not take back, because the link had no room for the request, are void as
//! soon as the server says so by another way ([`KeeperLink::revoke`]).
//!
//! The keeper never waits for one link. A link that is full is caught up with when it has room,
//! and a successor is sent the orphans at the speed at which it reads (`transfer`). The memory that
//! is kept for a link is bounded. While more than [`UNSENT`] bytes are kept, nothing is read from
//! that link; on top of that come at most 16 bytes for each descriptor that is watched for it.

mod disconnect;
mod links;
mod requests;
mod sessions;
mod succession;
#[cfg(test)]
mod tests;
mod transfer;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use slab::Slab;

use crate::event::KeeperEvent;
use crate::link::{KeeperLink, Listener, Peer};
use crate::protocol::{Notice, PACKET, Sums, encode};
use crate::records::Records;
use crate::registrations::{Registrations, Wakeup};
use sessions::Session;
use transfer::Transfer;

/// The token of the listener in the epoll set. Links have tokens below it, and descriptors count
/// from zero.
const LISTENER: u64 = u64::MAX;
const LINKS: u64 = 1 << 63;
/// Tokens of processes come above those of the links.
const PROCESSES: u64 = 3 << 62;

/// The most events that are taken from one wait.
const EVENTS: usize = 1024;

/// The time that a server may take to yield, and that a successor may take to receive a packet.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most keys of a packet.
const KEYS: usize = PACKET / 32;

/// The most packets that are taken from a link, or sent to a successor, before the next link has
/// its turn.
const TURN: usize = 64;

/// The limit on bytes that are kept for a link without room, with some for each packet. Above it,
/// nothing is read from that link.
const UNSENT: usize = 4 << 20;
const UNSENT_PACKET: usize = 64;

/// Configures a keeper.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long orphans are kept while there is no server.
    pub orphans: Duration,
    /// Whether the keeper ends when there is no link and no orphan left. One that listens for
    /// itself, as a service, does not.
    pub ends: bool,
    /// The time within which all links of a process that ends have to end. If the server is still
    /// there after that, the descriptors left on a lost link are the server's again.
    pub grace: Duration,
}

impl Default for Options {
    /// Returns one minute for orphans, an end when there is nothing left to do, and five seconds of
    /// grace.
    fn default() -> Options {
        Options { orphans: Duration::from_secs(60), ends: true, grace: Duration::from_secs(5) }
    }
}

/// The kind of client on a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ClientKind {
    /// The client has not introduced itself.
    Unknown,
    /// A loop in this process.
    Thread,
    /// A loop of another process, and its session.
    Loop(u64),
    /// A server, and its session.
    Control(u64),
}

#[derive(Debug)]
struct Client {
    link: KeeperLink,
    kind: ClientKind,
    peer: Option<Peer>,
    /// The packets that there was no room for, and their total size in bytes.
    unsent: VecDeque<Vec<u8>>,
    unsent_bytes: usize,
    /// The transfer to this link that is under way.
    transfer: Option<Box<Transfer>>,
    /// The events that the epoll set waits for on the link.
    flags: EventFlags,
    /// The descriptor by which the server declares all that it left void.
    revocation: Option<OwnedFd>,
    /// The descriptors that became ready in this wait.
    ready: Vec<(u64, u32)>,
    /// Its length is counted by [`Registrations::count`].
    sums: Sums,
    /// The server has said that it leaves nothing, or has left everything that it will.
    has_finished: bool,
    /// The server was handed all orphans, if there were any: it is the server at work, and owns the
    /// records.
    is_successor: bool,
}

/// A server that waits for another to yield or to end.
#[derive(Debug)]
struct Succession {
    successor: usize,
    /// The link of the server that must yield. `None`: processes must end whose links have ended.
    before: Option<usize>,
    until: Instant,
}

/// How a link ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ClosedBy {
    /// The other side has closed it, or announced that it will.
    Peer,
    /// The keeper closes it, while the process at its other end continues.
    Keeper,
}

/// Opens a descriptor that becomes readable when the process at the other end of a link has ended.
type OpenPidfd = Box<dyn Fn(Peer) -> io::Result<OwnedFd> + Send>;

/// A loop that watches idle descriptors for other loops.
pub struct Keeper {
    options: Options,
    listener: Option<Listener>,
    clients: Slab<Client>,
    sessions: Slab<Session>,
    registrations: Registrations,
    records: Records,
    /// A buffer for received packets.
    room: Vec<u8>,
    /// The places of the descriptors whose loops are being notified.
    reported: Vec<usize>,
    succession: Option<Succession>,
    /// The server that has received the orphans and has not settled yet.
    handed_to: Option<usize>,
    /// Sessions that have lost a loop's link, and when to check whether their server has ended.
    doubtful: Vec<(u64, Instant)>,
    /// When to accept links again, after the process had no descriptor left for one.
    accepts_again_at: Option<Instant>,
    open_pidfd: OpenPidfd,
    /// A mistake for the model.
    #[cfg(test)]
    lets_yielded_overtake: bool,
    /// Since when orphans or records have been here without a server.
    without_server_since: Option<Instant>,
    /// When the keeper was created. One that has never had any work ends after a while, too.
    opened: Instant,
    had_work: bool,
    report: Box<dyn FnMut(&KeeperEvent) + Send>,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper")
            .field("links", &self.clients.len())
            .field("orphans", &self.registrations.orphans())
            .finish_non_exhaustive()
    }
}

/// Whether to try again when there is room.
fn is_later(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

fn token(client: usize) -> EventData {
    EventData::new_u64(LINKS | client as u64)
}

impl Keeper {
    /// Creates a keeper without any link. `report` is called with every event worth reporting.
    ///
    /// # Errors
    ///
    /// The errors of `epoll_create1(2)`.
    pub fn new(
        options: Options,
        report: impl FnMut(&KeeperEvent) + Send + 'static,
    ) -> io::Result<Keeper> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Keeper {
            options,
            listener: None,
            clients: Slab::new(),
            sessions: Slab::new(),
            registrations: Registrations::new(epoll),
            records: Records::default(),
            room: Vec::new(),
            reported: Vec::new(),
            succession: None,
            handed_to: None,
            doubtful: Vec::new(),
            accepts_again_at: None,
            open_pidfd: Box::new(sessions::open_pidfd),
            #[cfg(test)]
            lets_yielded_overtake: false,
            without_server_since: None,
            opened: Instant::now(),
            had_work: false,
            report: Box::new(report),
        })
    }

    /// Accepts the links that come in on a listener.
    ///
    /// # Errors
    ///
    /// The errors of `epoll_ctl(2)`.
    pub fn listen(&mut self, listener: Listener) -> io::Result<()> {
        let data = EventData::new_u64(LISTENER);
        epoll::add(self.registrations.epoll(), &listener, data, EventFlags::IN)?;
        self.listener = Some(listener);
        Ok(())
    }

    /// Works for a loop of this process, which names its descriptors by number.
    ///
    /// # Errors
    ///
    /// The errors of `epoll_ctl(2)`.
    pub fn work_for(&mut self, link: KeeperLink) -> io::Result<()> {
        self.had_work = true;
        self.add_client(link, ClientKind::Thread, None)
    }

    fn add_client(
        &mut self,
        link: KeeperLink,
        kind: ClientKind,
        peer: Option<Peer>,
    ) -> io::Result<()> {
        let place = self.clients.vacant_entry();
        let data = token(place.key());
        epoll::add(self.registrations.epoll(), &link, data, EventFlags::IN)?;
        place.insert(Client {
            link,
            kind,
            peer,
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            transfer: None,
            flags: EventFlags::IN,
            revocation: None,
            ready: Vec::new(),
            sums: Sums::default(),
            has_finished: false,
            is_successor: false,
        });
        Ok(())
    }

    /// Runs until there is no link and no orphan left, if [`Options::ends`] is set.
    ///
    /// # Errors
    ///
    /// The errors of `epoll_wait(2)`.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            if self.is_over() {
                // A server that has connected meanwhile is not turned away.
                self.accept();
                if self.is_over() {
                    return Ok(());
                }
            }
            let timeout = self.deadline().map(|deadline| {
                let left = deadline.saturating_duration_since(Instant::now());
                // Rounded up by the amount that the kernel's clock may be early.
                let left = left + Duration::from_millis(1);
                Timespec {
                    tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: i64::from(left.subsec_nanos()),
                }
            });
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(self.registrations.epoll(), room, timeout.as_ref()) {
                Ok(_) => {}
                // The events that have arrived are unknown, and this process may have been stopped
                // for longer than any of its deadlines. Another wait fetches the events before the
                // time counts.
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            self.handle_events(&events);
        }
    }

    fn is_over(&self) -> bool {
        let is_empty = self.registrations.orphans() == 0 && self.records.len() == 0;
        let is_alone = self.clients.is_empty() && is_empty;
        let is_in_vain = || self.opened.elapsed() >= self.options.orphans;
        self.options.ends && is_alone && (self.had_work || is_in_vain())
    }

    /// Returns the time of the next action that no packet triggers.
    fn deadline(&self) -> Option<Instant> {
        let orphans = self.without_server_since.map(|since| since + self.options.orphans);
        let yields = self.succession.as_ref().map(|succession| succession.until);
        let in_vain =
            (self.options.ends && !self.had_work).then(|| self.opened + self.options.orphans);
        let doubtful = self.doubtful.iter().map(|&(_, until)| until).min();
        let handed = self.clients.iter().filter_map(|(_, client)| client.transfer.as_ref());
        let handed = handed.map(|transfer| transfer.deadline()).min();
        let all = [orphans, yields, in_vain, doubtful, handed, self.accepts_again_at];
        all.into_iter().flatten().min()
    }

    fn handle_events(&mut self, events: &[Event]) {
        let others = || events.iter().filter(|event| event.data.u64() >= LINKS);
        // Links that have ended come first: nothing is sent to them any more.
        for event in others() {
            let flags = event.flags;
            if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                self.receive_last_packets(event.data.u64());
            }
        }
        // Descriptors come before the links: a packet on a link may put new descriptors into their
        // places.
        self.report_ready(events);
        for event in others() {
            match event.data.u64() {
                LISTENER => self.accept(),
                process if process >= PROCESSES => {
                    self.process_ended((process & !PROCESSES) as usize);
                }
                link => {
                    let (index, flags) = ((link & !LINKS) as usize, event.flags);
                    if flags.contains(EventFlags::OUT) {
                        self.catch_up(index);
                    }
                    if flags.contains(EventFlags::IN) {
                        self.receive(index);
                    }
                }
            }
        }
        self.check_deadlines();
    }

    /// Notifies the loops of ready descriptors, and returns how many events were of descriptors.
    fn report_ready(&mut self, events: &[Event]) -> usize {
        let mut count = 0;
        let mut reported = std::mem::take(&mut self.reported);
        for event in events.iter().filter(|event| event.data.u64() < LINKS) {
            count += 1;
            let (index, flags) = (event.data.u64() as usize, event.flags);
            if let Wakeup::Report(link, key) = self.registrations.handle_event(index, flags) {
                reported.push(index);
                if let Some(client) = self.clients.get_mut(link) {
                    client.ready.push((key, flags.bits()));
                }
            }
        }
        let mut lost = Vec::new();
        for index in self.client_indices() {
            if !self.send_ready(index) {
                lost.push(index);
            }
        }
        for index in reported.drain(..) {
            // A descriptor whose loop has gone without being told is kept for the next server.
            match self.registrations.link(index) {
                Some(link) if lost.contains(&link) => self.registrations.put_back(index),
                _ => self.registrations.remove(index),
            }
        }
        self.reported = reported;
        count
    }

    fn client_indices(&self) -> Vec<usize> {
        self.clients.iter().map(|(index, _)| index).collect()
    }

    fn check_deadlines(&mut self) {
        let now = Instant::now();
        self.end_succession(now);
        while let Some(at) = self.doubtful.iter().position(|&(_, until)| until <= now) {
            let (session, _) = self.doubtful.swap_remove(at);
            self.resolve_doubt(session);
        }
        self.check_transfers(now);
        if self.accepts_again_at.take_if(|at| *at <= now).is_some() {
            self.set_accepting(true);
        }
        let has_server =
            self.clients.iter().any(|(_, client)| matches!(client.kind, ClientKind::Control(_)));
        let is_empty = self.registrations.orphans() == 0 && self.records.len() == 0;
        if has_server || is_empty {
            self.without_server_since = None;
            return;
        }
        let since = *self.without_server_since.get_or_insert(now);
        if since + self.options.orphans <= now {
            self.without_server_since = None;
            let orphans = self.registrations.orphans();
            self.registrations.forget_orphans();
            self.records.clear();
            (self.report)(&KeeperEvent::Dropped { orphans });
        }
    }

    /// Notifies a loop of its ready descriptors, and counts.
    fn send_ready(&mut self, index: usize) -> bool {
        let Some(client) = self.clients.get_mut(index) else { return false };
        client.sums.watched += self.registrations.count(index);
        let ready = std::mem::take(&mut client.ready);
        client.sums.active += ready.len() as u64;
        let mut some = ready.chunks(KEYS);
        some.all(|some| self.send(index, encode(&Notice::Ready(some.to_vec()))))
    }
}

impl Client {
    /// Whether packets of its link are read. They are not while it has too many unread packets
    /// itself.
    fn accepts_packets(&self) -> bool {
        self.transfer.is_none() && self.unsent_bytes <= UNSENT
    }
}
