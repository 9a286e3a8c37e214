//! The keeper's loop: one thread, one epoll set, and a line to each loop that it works for.
//!
//! A loop gives descriptors to the keeper and is told which of them become ready, all those of
//! one wait in one packet. The keeper no longer watches such a descriptor: a loop that wants it
//! watched again says so again. That leaves nothing to agree about between two sides that do not
//! wait for each other.
//!
//! Lines belong to sessions. A session is a server, with a line for each of its loops and one for
//! itself, its *control*. When a line ends without notice its descriptors become orphans, which are
//! watched for hang-ups only. A control may ask for the orphans. If the server of a lost loop line
//! is still there after a while, the orphans of that line are forgotten: the server has given the
//! line up, and watches the descriptors itself. If another server with a control is present, the
//! keeper first tells that server to yield, and waits for it. Orphans that were handed over are
//! kept until the successor says that it is settled or has left them here again, so that they
//! survive the successor as well. A descriptor that was left again is recognised by its open file.
//!
//! The end of a line says nothing about the process: a server that has lost its lines may go on,
//! and write to its connections. So the descriptors of a server are handed to another server only
//! after the first has said that it yielded, or its process has ended (`sessions`). Descriptors
//! that a server could not take back, because the line had no room for the request, are void as
//! soon as the server says so by another way ([`Line::revoke`]).
//!
//! The keeper never waits for one line. A line that is full is caught up with when it has room,
//! and a successor is sent the orphans at the speed at which it reads (`handing`). The memory that
//! is kept for a line is bounded. While more than [`UNSENT`] bytes are kept, nothing is read from
//! that line; on top of that come at most 16 bytes for each descriptor that is watched for it.

mod endings;
mod handing;
mod lines;
#[cfg(test)]
mod model;
#[cfg(test)]
mod random;
mod sessions;
mod succession;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use slab::Slab;

use crate::happening::Happening;
use crate::line::{Line, Listener, Peer};
use crate::protocol::{
    Notice, PACKET, Request, Role, Sums, Watching, decode, decode_first, encode, encode_first,
};
use crate::records::Records;
use crate::registrations::{Given, Registrations, Stirred};
use handing::Handing;
use sessions::Session;

/// The token of the listener in the epoll set. Lines have tokens below it, and descriptors count
/// from zero.
const LISTENER: u64 = u64::MAX;
const LINES: u64 = 1 << 63;
/// Tokens of processes come above those of the lines.
const PROCESSES: u64 = 3 << 62;

/// The most events that are taken from one wait.
const EVENTS: usize = 1024;

/// The time that a server may take to yield, and that a successor may take to receive a packet.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most keys of a packet.
const KEYS: usize = PACKET / 32;

/// The most packets that are taken from a line, or sent to a successor, before the next line has
/// its turn.
const TURN: usize = 64;

/// The limit on bytes that are kept for a line without room, with some for each packet. Above it,
/// nothing is read from that line.
const UNSENT: usize = 4 << 20;
const UNSENT_PACKET: usize = 64;

/// Configures a keeper.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long orphans are kept while there is no server.
    pub orphans: Duration,
    /// Whether the keeper ends when there is no line and no orphan left. One that listens for
    /// itself, as a service, does not.
    pub ends: bool,
    /// The time within which all lines of a process that ends have to end. If the server is still
    /// there after that, the descriptors left on a lost line are the server's again.
    pub grace: Duration,
}

impl Default for Options {
    /// Returns one minute for orphans, an end when there is nothing left to do, and five seconds of
    /// grace.
    fn default() -> Options {
        Options { orphans: Duration::from_secs(60), ends: true, grace: Duration::from_secs(5) }
    }
}

/// The kind of client on a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whose {
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
struct Member {
    line: Line,
    whose: Whose,
    peer: Option<Peer>,
    /// The packets that there was no room for, and their total size in bytes.
    unsent: VecDeque<Vec<u8>>,
    unsent_bytes: usize,
    /// The transfer to this line that is under way.
    handing: Option<Box<Handing>>,
    /// The events that the epoll set waits for on the line.
    flags: EventFlags,
    /// The descriptor by which the server declares all that it left void.
    revocation: Option<OwnedFd>,
    /// The descriptors that became ready in this wait.
    ready: Vec<(u64, u32)>,
    /// Its length is counted by [`Registrations::count`].
    sums: Sums,
    /// The server has said that it leaves nothing, or has left everything that it will.
    is_through: bool,
    /// The server was handed all orphans, if there were any: it is the server at work, and owns the
    /// records.
    is_heir: bool,
}

/// A server that waits for another to yield or to end.
#[derive(Debug)]
struct Succession {
    successor: usize,
    /// The line of the server that must yield. `None`: processes must end whose lines have ended.
    before: Option<usize>,
    until: Instant,
}

/// How a line ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// The other side has closed it, or announced that it will.
    Theirs,
    /// The keeper closes it, while the process at its other end goes on.
    Ours,
}

/// Opens a descriptor that becomes readable when the process at the other end of a line has ended.
type Identify = Box<dyn Fn(Peer) -> io::Result<OwnedFd> + Send>;

/// A loop that watches idle descriptors for other loops.
pub struct Keeper {
    options: Options,
    listener: Option<Listener>,
    members: Slab<Member>,
    sessions: Slab<Session>,
    registrations: Registrations,
    records: Records,
    /// A buffer for received packets.
    room: Vec<u8>,
    /// The places of the descriptors whose loops are being notified.
    told: Vec<usize>,
    succession: Option<Succession>,
    /// The server that has received the orphans and has not settled yet.
    handed_to: Option<usize>,
    /// Sessions that have lost a loop's line, and when to check whether their server has ended.
    doubtful: Vec<(u64, Instant)>,
    /// When to accept lines again, after the process had no descriptor left for one.
    accepts_at: Option<Instant>,
    identify: Identify,
    /// Since when orphans or records have been here without a server.
    alone_since: Option<Instant>,
    /// When the keeper was created. One that has never had any work ends after a while, too.
    opened: Instant,
    had_work: bool,
    report: Box<dyn FnMut(&Happening) + Send>,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper")
            .field("lines", &self.members.len())
            .field("orphans", &self.registrations.orphans())
            .finish_non_exhaustive()
    }
}

/// Whether to try again when there is room.
fn is_later(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

fn token(member: usize) -> EventData {
    EventData::new_u64(LINES | member as u64)
}

impl Keeper {
    /// Creates a keeper without any line. `report` is called with every event worth reporting.
    ///
    /// # Errors
    ///
    /// The errors of `epoll_create1(2)`.
    pub fn new(
        options: Options,
        report: impl FnMut(&Happening) + Send + 'static,
    ) -> io::Result<Keeper> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Keeper {
            options,
            listener: None,
            members: Slab::new(),
            sessions: Slab::new(),
            registrations: Registrations::new(epoll),
            records: Records::default(),
            room: Vec::new(),
            told: Vec::new(),
            succession: None,
            handed_to: None,
            doubtful: Vec::new(),
            accepts_at: None,
            identify: Box::new(sessions::identify),
            alone_since: None,
            opened: Instant::now(),
            had_work: false,
            report: Box::new(report),
        })
    }

    /// Accepts the lines that come in on a listener.
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
    pub fn work_for(&mut self, line: Line) -> io::Result<()> {
        self.had_work = true;
        self.join(line, Whose::Thread, None)
    }

    fn join(&mut self, line: Line, whose: Whose, peer: Option<Peer>) -> io::Result<()> {
        let place = self.members.vacant_entry();
        let data = token(place.key());
        epoll::add(self.registrations.epoll(), &line, data, EventFlags::IN)?;
        place.insert(Member {
            line,
            whose,
            peer,
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            handing: None,
            flags: EventFlags::IN,
            revocation: None,
            ready: Vec::new(),
            sums: Sums::default(),
            is_through: false,
            is_heir: false,
        });
        Ok(())
    }

    /// Runs until there is no line and no orphan left, if [`Options::ends`] is set.
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
            self.turn(&events);
        }
    }

    fn is_over(&self) -> bool {
        let is_empty = self.registrations.orphans() == 0 && self.records.len() == 0;
        let is_alone = self.members.is_empty() && is_empty;
        let is_in_vain = || self.opened.elapsed() >= self.options.orphans;
        self.options.ends && is_alone && (self.had_work || is_in_vain())
    }

    /// Returns the time of the next action that no packet triggers.
    fn deadline(&self) -> Option<Instant> {
        let orphans = self.alone_since.map(|since| since + self.options.orphans);
        let yields = self.succession.as_ref().map(|succession| succession.until);
        let in_vain =
            (self.options.ends && !self.had_work).then(|| self.opened + self.options.orphans);
        let doubtful = self.doubtful.iter().map(|&(_, until)| until).min();
        let handed = self.members.iter().filter_map(|(_, member)| member.handing.as_ref());
        let handed = handed.map(|handing| handing.deadline()).min();
        let all = [orphans, yields, in_vain, doubtful, handed, self.accepts_at];
        all.into_iter().flatten().min()
    }

    fn turn(&mut self, events: &[Event]) {
        let others = || events.iter().filter(|event| event.data.u64() >= LINES);
        // Lines that have ended come first: nothing is sent to them any more.
        for event in others() {
            let flags = event.flags;
            if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                self.hear_the_end(event.data.u64());
            }
        }
        // Descriptors come before the lines: a packet on a line may put new descriptors into their
        // places.
        self.stir(events);
        for event in others() {
            match event.data.u64() {
                LISTENER => self.accept(),
                process if process >= PROCESSES => {
                    self.process_ended((process & !PROCESSES) as usize);
                }
                line => {
                    let (index, flags) = ((line & !LINES) as usize, event.flags);
                    if flags.contains(EventFlags::OUT) {
                        self.catch_up(index);
                    }
                    if flags.contains(EventFlags::IN) {
                        self.hear(index);
                    }
                }
            }
        }
        self.look_at_the_time();
    }

    /// Notifies the loops of ready descriptors, and returns how many events were of descriptors.
    fn stir(&mut self, events: &[Event]) -> usize {
        let mut count = 0;
        let mut told = std::mem::take(&mut self.told);
        for event in events.iter().filter(|event| event.data.u64() < LINES) {
            count += 1;
            let (index, flags) = (event.data.u64() as usize, event.flags);
            if let Stirred::Tell(line, key) = self.registrations.stir(index, flags) {
                told.push(index);
                if let Some(member) = self.members.get_mut(line) {
                    member.ready.push((key, flags.bits()));
                }
            }
        }
        let mut lost = Vec::new();
        for index in self.member_indices() {
            if !self.tell_ready(index) {
                lost.push(index);
            }
        }
        for index in told.drain(..) {
            // A descriptor whose loop has gone without being told is kept for the next server.
            match self.registrations.line(index) {
                Some(line) if lost.contains(&line) => self.registrations.keep(index),
                _ => self.registrations.remove(index),
            }
        }
        self.told = told;
        count
    }

    fn member_indices(&self) -> Vec<usize> {
        self.members.iter().map(|(index, _)| index).collect()
    }

    fn look_at_the_time(&mut self) {
        let now = Instant::now();
        self.end_succession(now);
        while let Some(at) = self.doubtful.iter().position(|&(_, until)| until <= now) {
            let (session, _) = self.doubtful.swap_remove(at);
            self.settle_doubt(session);
        }
        self.look_at_handings(now);
        if self.accepts_at.take_if(|at| *at <= now).is_some() {
            self.set_accepting(true);
        }
        let has_server =
            self.members.iter().any(|(_, member)| matches!(member.whose, Whose::Control(_)));
        let is_empty = self.registrations.orphans() == 0 && self.records.len() == 0;
        if has_server || is_empty {
            self.alone_since = None;
            return;
        }
        let since = *self.alone_since.get_or_insert(now);
        if since + self.options.orphans <= now {
            self.alone_since = None;
            let orphans = self.registrations.orphans();
            self.registrations.forget_orphans();
            self.records.clear();
            (self.report)(&Happening::Dropped { orphans });
        }
    }

    /// Notifies a loop of its ready descriptors, and counts.
    fn tell_ready(&mut self, index: usize) -> bool {
        let Some(member) = self.members.get_mut(index) else { return false };
        member.sums.watched += self.registrations.count(index);
        let ready = std::mem::take(&mut member.ready);
        member.sums.active += ready.len() as u64;
        let mut some = ready.chunks(KEYS);
        some.all(|some| self.say(index, encode(&Notice::Ready(some.to_vec()))))
    }

    /// Handles the packets that have come on a line, up to a limit.
    fn hear(&mut self, index: usize) {
        let mut room = std::mem::take(&mut self.room);
        room.resize(PACKET, 0);
        let mut descriptors = Vec::new();
        for _ in 0..TURN {
            let Some(member) = self.members.get(index).filter(|member| member.is_heard()) else {
                break;
            };
            descriptors.clear();
            let received = match member.line.receive_into(&mut room, &mut descriptors) {
                Ok(received) if received.length > 0 => received,
                Ok(_) => {
                    self.lose(index, Ending::Theirs);
                    break;
                }
                Err(error) if is_later(&error) => break,
                Err(error) => {
                    self.refuse(index, &format!("receiving on the line: {error}"));
                    break;
                }
            };
            let packet = &room[..received.length];
            let request = match member.whose {
                Whose::Unknown => decode_first(packet),
                _ => decode(packet).map_err(|error| error.to_string()),
            };
            match request {
                Ok(request) => self.obey(index, request, &mut descriptors, received.cut_off),
                Err(why) => self.refuse(index, &why),
            }
        }
        self.room = room;
    }

    /// Handles the last packets of a line whose other side has gone.
    fn hear_the_end(&mut self, line: u64) {
        if line >= PROCESSES {
            return;
        }
        let index = (line & !LINES) as usize;
        self.stop_sending(index);
        self.hear(index);
    }

    fn obey(
        &mut self,
        index: usize,
        request: Request<'_>,
        descriptors: &mut Vec<OwnedFd>,
        cut_off: bool,
    ) {
        let Some(member) = self.members.get_mut(index) else { return };
        match (request, member.whose) {
            (Request::Hello { role, session }, Whose::Unknown) => {
                member.revocation = descriptors.pop();
                self.greet(index, role, session);
            }
            (_, Whose::Unknown) => self.refuse(index, "a line begins with a greeting"),
            (Request::Watch(all), _) => self.watch(index, &all, descriptors, cut_off),
            (Request::Forget(keys), _) => keys.into_iter().for_each(|key| {
                self.registrations.forget(index, key);
            }),
            (Request::Sync(number), _) => self.sync(index, number),
            (Request::Keep(record), Whose::Control(_)) if !member.is_through => {
                self.records.keep(&record);
            }
            (Request::Trim { space, below }, Whose::Control(_)) if !member.is_through => {
                self.records.trim(space, below);
            }
            (Request::Adopt { upgrades }, Whose::Control(session)) => {
                self.adopt(index, session, upgrades);
            }
            (Request::Show, Whose::Control(_)) => self.show(index),
            (Request::Yielded, Whose::Control(_)) => self.yielded(index),
            (Request::Settled, Whose::Control(_)) => {
                self.handed_to = None;
                self.registrations.forget_handed_over();
            }
            (Request::Bye, whose) => self.part(index, whose),
            // Requests of a server that has yielded are ignored.
            (Request::Keep(_) | Request::Trim { .. }, Whose::Control(_)) => {}
            (_, _) => self.refuse(index, "that is not for this kind of line to ask"),
        }
    }

    fn greet(&mut self, index: usize, role: Role, session: u64) {
        if let Err(why) = self.enroll(index, role, session) {
            return self.refuse(index, &why);
        }
        let Some(member) = self.members.get_mut(index) else { return };
        self.had_work = true;
        member.whose = match role {
            Role::Loop => Whose::Loop(session),
            Role::Control => Whose::Control(session),
        };
        if let (Role::Control, Some(peer)) = (role, member.peer) {
            (self.report)(&Happening::Came { peer });
        }
        let orphans = self.registrations.orphans() as u64;
        self.say(index, encode_first(&Notice::Welcome { orphans }));
    }

    fn watch(
        &mut self,
        index: usize,
        all: &[Watching<'_>],
        descriptors: &mut Vec<OwnedFd>,
        cut_off: bool,
    ) {
        let Some(member) = self.members.get(index) else { return };
        let (whose, is_through) = (member.whose, member.is_through);
        let session = match whose {
            Whose::Loop(session) | Whose::Control(session) => session,
            Whose::Thread | Whose::Unknown => 0,
        };
        if whose != Whose::Thread && !cut_off && descriptors.len() != all.len() {
            return self.refuse(index, "as many descriptors have to come as are to be watched");
        }
        let mut files = descriptors.drain(..);
        let mut returned = Vec::new();
        for watching in all {
            let given = match whose {
                Whose::Thread => Some(Given::Number(watching.number)),
                _ => files.next().map(Given::File),
            };
            self.registrations.forget(index, watching.key);
            let outcome = match given {
                _ if is_through => Err(rustix::io::Errno::SHUTDOWN.into()),
                None => Err(rustix::io::Errno::MFILE.into()),
                Some(given) => self.registrations.insert(index, session, watching, given),
            };
            if let Err(error) = outcome {
                returned.push((watching.key, error.raw_os_error().unwrap_or(0)));
            }
        }
        if let Some(&(_, error)) = returned.first() {
            (self.report)(&Happening::Returned { descriptors: returned.len(), error });
            self.say(index, encode(&Notice::Returned(returned)));
        }
    }

    /// Checks which descriptors are ready now, and notifies their loops before it answers.
    fn sync(&mut self, index: usize, number: u64) {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            let found = epoll::wait(self.registrations.epoll(), room, Some(&now)).unwrap_or(0);
            let stirred = self.stir(&events);
            // Only events of lines are left. Lines are level-triggered and keep filling the buffer.
            if found < EVENTS || stirred == 0 {
                break;
            }
        }
        let sums = self.members.get(index).map_or(Sums::default(), |member| member.sums);
        let sums = Sums { len: self.registrations.count(index), ..sums };
        self.say(index, encode(&Notice::Synced(number, sums)));
    }
}

impl Member {
    /// Whether packets of its line are read. They are not while it has too many unread packets
    /// itself.
    fn is_heard(&self) -> bool {
        self.handing.is_none() && self.unsent_bytes <= UNSENT
    }
}
