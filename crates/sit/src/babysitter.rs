//! The babysitter's loop: one thread, one epoll set, and a line to each loop that it works for.
//!
//! A loop gives it descriptors and is told which of them stir, all of one wait in one packet. Such a descriptor is out
//! of its hands then: the loop that wants it watched again says so again. That leaves nothing to agree about between
//! two sides that do not wait for each other.
//!
//! Lines belong to sessions. A session is a server, with a line for each of its loops and one for itself, its
//! *control*. When a line ends without a word its descriptors become orphans, which are watched for hang-ups only. A
//! control may ask for them. Those of a loop whose server is still there after a while are forgotten: it has given that
//! line up, and watches them itself. While there is another server with a control, that one is told to yield first, and is
//! waited for. Orphans that were handed over are kept until the successor says that it is settled or has left them
//! here again, so that they survive it as well; what was left again is recognised by its open file.
//!
//! The end of a line says nothing about the process: a server that has lost its lines may go on, and writes to its
//! connections. So nothing of a server's is handed to another one unless that server has said that it yielded or its
//! process has ended (`sessions`). And what a server could not take back, because the line had no room for it, is void as
//! soon as the server says so by another way ([`Line::revoke`]).
//!
//! The babysitter never waits for one line: a line that is full is caught up with when it has room, and a successor is
//! sent what it is handed as it reads (`handing`). What is kept for a line is bounded. While more than [`UNSENT`] bytes
//! are, nothing is read from that line; on top of that come at most 16 bytes for each descriptor that is watched for it.

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

/// What the epoll set knows the listener by; lines come below it, and descriptors from zero on.
const LISTENER: u64 = u64::MAX;
const LINES: u64 = 1 << 63;
/// Processes come above the lines.
const PROCESSES: u64 = 3 << 62;

/// How many events are taken from a wait.
const EVENTS: usize = 1024;

/// For how long a server may take to yield, and one that is handed something to receive it.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many keys go into a packet.
const KEYS: usize = PACKET / 32;

/// How many packets are taken from a line, or sent to a successor, before others have their turn.
const TURN: usize = 64;

/// The bytes that are kept for a line without room, with some for each packet, above which nothing is read from it.
const UNSENT: usize = 4 << 20;
const UNSENT_PACKET: usize = 64;

/// How a babysitter behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// For how long orphans are kept when there is no server.
    pub orphans: Duration,
    /// Whether it ends when there is no line and no orphan left; one that listens for itself, as a service, does not.
    pub ends: bool,
    /// For how long the lines of a process that ends may outlive each other. What was left on one of which the server is
    /// still there after that is the server's again.
    pub grace: Duration,
}

impl Default for Options {
    /// A minute for orphans, an end when there is nothing left to do, and five seconds of grace.
    fn default() -> Options {
        Options { orphans: Duration::from_secs(60), ends: true, grace: Duration::from_secs(5) }
    }
}

/// Who is on a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whose {
    /// Nobody has said.
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
    /// What there was no room for, and how many bytes that is.
    unsent: VecDeque<Vec<u8>>,
    unsent_bytes: usize,
    /// What it is being handed.
    handing: Option<Box<Handing>>,
    /// What the epoll set was told to wait for on the line.
    flags: EventFlags,
    /// By which its server says that all that it left is void.
    revocation: Option<OwnedFd>,
    /// What stirred in this wait.
    ready: Vec<(u64, u32)>,
    /// Its length is counted by [`Registrations::count`].
    sums: Sums,
    /// It has said that it leaves nothing, or has left what it will.
    is_through: bool,
    /// It was handed what others had left, if anything: it is the server at work, and the records are its own.
    is_heir: bool,
}

/// A server that waits for another to yield or to end.
#[derive(Debug)]
struct Succession {
    successor: usize,
    /// The line of the one that is to yield; none: processes are to end of which the lines have ended.
    before: Option<usize>,
    until: Instant,
}

/// How a line ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// The other side has closed it, or announced that it will.
    Theirs,
    /// The babysitter closes it, while the process at its other end goes on.
    Ours,
}

/// What tells when the process at the other end of a line has ended: it is readable then.
type Identify = Box<dyn Fn(Peer) -> io::Result<OwnedFd> + Send>;

/// Who watches what is idle.
pub struct Babysitter {
    options: Options,
    listener: Option<Listener>,
    members: Slab<Member>,
    sessions: Slab<Session>,
    registrations: Registrations,
    records: Records,
    /// For what is received.
    room: Vec<u8>,
    /// The places of those that are being told.
    told: Vec<usize>,
    succession: Option<Succession>,
    /// The server that was handed something and has not settled yet.
    handed_to: Option<usize>,
    /// Sessions of which a loop's line has ended, and when it is asked whether their server has.
    doubtful: Vec<(u64, Instant)>,
    /// When lines are taken in again, after there was no descriptor for one.
    accepts_at: Option<Instant>,
    identify: Identify,
    /// Since when something has been left and there is no server.
    alone_since: Option<Instant>,
    /// Who has never had anything to do ends after a while, too.
    opened: Instant,
    had_work: bool,
    report: Box<dyn FnMut(&Happening) + Send>,
}

impl fmt::Debug for Babysitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Babysitter")
            .field("lines", &self.members.len())
            .field("orphans", &self.registrations.orphans())
            .finish_non_exhaustive()
    }
}

/// Whether an attempt is to be made again when there is room.
fn is_later(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

fn token(member: usize) -> EventData {
    EventData::new_u64(LINES | member as u64)
}

impl Babysitter {
    /// One without anybody to work for. `report` is told what is worth to be told.
    ///
    /// # Errors
    ///
    /// What `epoll_create1(2)` says.
    pub fn new(
        options: Options,
        report: impl FnMut(&Happening) + Send + 'static,
    ) -> io::Result<Babysitter> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Babysitter {
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

    /// Takes lines that come in there.
    ///
    /// # Errors
    ///
    /// What `epoll_ctl(2)` says.
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
    /// What `epoll_ctl(2)` says.
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

    /// Works until there is nobody left to work for, if that is to be its end.
    ///
    /// # Errors
    ///
    /// What `epoll_wait(2)` says.
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
                // Rounded up by what the kernel's clock may be early.
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
                // Nothing is known of what has come, and this process may have been stopped for longer than any of
                // its deadlines: before the time counts, another wait looks.
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

    /// When something is due that nobody asks for.
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
        // Nobody is told anything who has gone.
        for event in others() {
            let flags = event.flags;
            if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                self.hear_the_end(event.data.u64());
            }
        }
        // Descriptors before the lines: what is said there may put others into their places.
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

    /// Tells what has stirred, and returns how many events were of descriptors.
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
            // Who has gone without hearing of it leaves it to the next.
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

    /// Tells a loop what has stirred, and counts.
    fn tell_ready(&mut self, index: usize) -> bool {
        let Some(member) = self.members.get_mut(index) else { return false };
        member.sums.watched += self.registrations.count(index);
        let ready = std::mem::take(&mut member.ready);
        member.sums.active += ready.len() as u64;
        let mut some = ready.chunks(KEYS);
        some.all(|some| self.say(index, encode(&Notice::Ready(some.to_vec()))))
    }

    /// Takes what has come on a line; not all of it, if there is much.
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

    /// Takes what was said last on a line of which the other side has gone.
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
            // Of a server that has yielded.
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

    /// Looks what is ready now, and says so before it answers.
    fn sync(&mut self, index: usize, number: u64) {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            let found = epoll::wait(self.registrations.epoll(), room, Some(&now)).unwrap_or(0);
            let stirred = self.stir(&events);
            // What is left is lines, which are level-triggered and stay in the way.
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
    /// Whether what comes on its line is read: not while it has so much to read itself.
    fn is_heard(&self) -> bool {
        self.handing.is_none() && self.unsent_bytes <= UNSENT
    }
}
