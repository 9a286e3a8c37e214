//! The model kernel: computes the events that a poller must report, without a poller.
//!
//! Open files are kept apart from the numbers that name them, and counted, so that a duplicate
//! keeps a file open and the last close hangs up the peer. Each file knows its state as `poll(2)`
//! would report it. Each operation wakes the registrations of a file with the same key of `POLL*`
//! bits as Linux does (`pipe_write`, `unix_stream_sendmsg`, `eventfd_write` and their kin). A
//! registration is an `epitem`: whether it is on the ready list is all the memory that edge
//! triggering needs. The kernel learns of changes at the next wait, as the contract says.
//!
//! The model is itself tested: against `epoll(7)` and `poll(2)` with the same random sequences.

use std::collections::{BTreeMap, VecDeque};

use superpoll::{Hint, Interest, Mode, Readiness, Watch};

use super::{Expectation, How, Kind, Number, Op, Reply, Tag};
use crate::bench::Capabilities;

const IN: i16 = libc::POLLIN;
const OUT: i16 = libc::POLLOUT;
const HUP: i16 = libc::POLLHUP;
const ERR: i16 = libc::POLLERR;
const RDHUP: i16 = libc::POLLRDHUP;
/// A wake-up that names no condition wakes every registration.
const ANY: i16 = 0;
/// The key with which `sock_def_readable` wakes.
const DATA: i16 = libc::POLLIN | libc::POLLPRI;

/// The buffer of a pipe is one page, in one slot.
const PAGE: usize = 4096;
const RECEIVE: u8 = 1;
const SEND: u8 = 2;

type Id = usize;

#[derive(Debug, Default)]
struct PipeBuffer {
    /// Where unread bytes start and end in the one page; nothing is unread if they are equal.
    start: usize,
    end: usize,
    readers: bool,
    writers: bool,
}

#[derive(Debug)]
enum File {
    PipeReader(Id),
    PipeWriter(Id),
    Socket {
        peer: Id,
        alive: bool,
        /// The lengths of the unread messages.
        queue: VecDeque<usize>,
        /// The peer has filled the queue until it would block.
        full: bool,
        shutdown: u8,
        error: bool,
    },
    Eventfd(u64),
    Regular,
}

#[derive(Debug)]
struct Registration {
    tag: Tag,
    file: Id,
    watch: Watch,
    told: Option<(Interest, Mode)>,
    /// On the ready list.
    ready: bool,
    /// Whether an edge that was reported may come again.
    lenient: bool,
    /// The readiness that the caller told.
    marked_ready: Readiness,
}

/// A world in pure Rust.
#[derive(Debug)]
pub struct Model {
    capabilities: Capabilities,
    pipes: Vec<PipeBuffer>,
    files: Vec<(File, usize)>,
    numbers: BTreeMap<Number, Id>,
    registered: BTreeMap<Number, Registration>,
    next_tag: Tag,
    woken: bool,
}

impl Model {
    /// Creates an empty world, watched by a subject with these capabilities.
    pub fn new(capabilities: Capabilities) -> Model {
        Model {
            capabilities,
            pipes: Vec::new(),
            files: Vec::new(),
            numbers: BTreeMap::new(),
            registered: BTreeMap::new(),
            next_tag: 1,
            woken: false,
        }
    }

    /// Returns the capabilities of the watching subject.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Returns the lowest numbers that are free.
    pub fn free(&self, count: usize) -> Vec<Number> {
        (0..).filter(|number| !self.numbers.contains_key(number)).take(count).collect()
    }

    /// Returns the open numbers.
    pub fn open(&self) -> Vec<Number> {
        self.numbers.keys().copied().collect()
    }

    /// Returns the numbers that are registered.
    pub fn registered(&self) -> Vec<Number> {
        self.registered.keys().copied().collect()
    }

    /// Returns the interest and mode of a registered number.
    pub fn watch(&self, number: Number) -> Watch {
        self.registered.get(&number).map_or(Watch::default(), |one| one.watch)
    }

    /// Whether the caller has told a registration to be ready since the last wait.
    pub fn is_told(&self, number: Number) -> bool {
        self.registered.get(&number).is_some_and(|one| !one.marked_ready.is_empty())
    }

    /// Returns a tag for a new registration.
    pub fn tag(&mut self) -> Tag {
        self.next_tag += 1;
        self.next_tag
    }

    fn file(&self, number: Number) -> Option<&File> {
        self.numbers.get(&number).map(|&id| &self.files[id].0)
    }

    /// Whether bytes can be written to a number, at all and as the model follows them.
    pub fn writes(&self, number: Number) -> Option<usize> {
        match self.file(number)? {
            File::PipeWriter(_) => Some(PAGE),
            // Few small messages: the number of large ones that fit is up to the kernel.
            File::Socket { peer, .. } => match &self.files[*peer].0 {
                File::Socket { queue, full: false, .. } if queue.len() < 20 => Some(100),
                _ => None,
            },
            File::Eventfd(_) => Some(8),
            File::PipeReader(_) | File::Regular => None,
        }
    }

    /// Whether bytes can be read from a number, and the most that one read may take; zero means
    /// that the read must take all.
    pub fn reads(&self, number: Number) -> Option<usize> {
        match self.file(number)? {
            File::PipeReader(_) => Some(PAGE),
            File::Socket { full, .. } => Some(if *full { 0 } else { 4096 }),
            File::Eventfd(_) => Some(8),
            File::PipeWriter(_) | File::Regular => None,
        }
    }

    /// Whether a number is a socket.
    pub fn is_socket(&self, number: Number) -> bool {
        matches!(self.file(number), Some(File::Socket { .. }))
    }

    /// Returns the state of a file as `poll(2)` reports it.
    fn state(&self, id: Id) -> i16 {
        let bit = |bits: i16, on: bool| if on { bits } else { 0 };
        match &self.files[id].0 {
            File::PipeReader(pipe) => {
                let pipe = &self.pipes[*pipe];
                bit(IN, pipe.start != pipe.end) | bit(HUP, !pipe.writers)
            }
            File::PipeWriter(pipe) => {
                let pipe = &self.pipes[*pipe];
                bit(OUT, pipe.start == pipe.end) | bit(ERR, !pipe.readers)
            }
            File::Socket { peer, queue, full, shutdown, error, .. } => {
                let blocked = matches!(&self.files[*peer].0, File::Socket { full: true, .. });
                let closed = *shutdown & RECEIVE != 0;
                bit(IN, closed || *full || !queue.is_empty())
                    | bit(OUT, !blocked)
                    | bit(RDHUP, closed)
                    | bit(HUP, *shutdown == RECEIVE | SEND)
                    | bit(ERR, *error)
            }
            File::Eventfd(count) => bit(IN, *count > 0) | OUT,
            File::Regular => IN | OUT,
        }
    }

    fn seen(&self, registration: &Registration) -> Readiness {
        Readiness::from_poll_bits(self.state(registration.file)).masked(registration.watch.interest)
    }

    /// Whether the watching subject can see any part of a state.
    fn visible(&self, registration: &Registration, state: Readiness) -> bool {
        let interest = registration.watch.interest;
        let seen = |bits: i16| {
            let bits = Readiness::from_poll_bits(bits);
            state != Readiness::NONE && intersects(state, bits)
        };
        self.capabilities.read_closed_alone
            || (interest.contains(Interest::READABLE) && seen(IN | HUP | ERR))
            || (interest.contains(Interest::WRITABLE) && seen(OUT | ERR))
    }

    /// Puts the registrations of a file on the ready list, if the key concerns them.
    fn wake(&mut self, id: Id, key: i16) {
        for registration in self.registered.values_mut().filter(|one| one.file == id) {
            let Some((interest, mode)) = registration.told else { continue };
            let fired = mode == Mode::OneShot && interest.is_empty();
            if !fired && (key == ANY || key & (interest.poll_bits() | HUP | ERR) != 0) {
                registration.ready = true;
            }
        }
    }

    fn wake_pipe(&mut self, pipe: Id, reader: Option<i16>, writer: Option<i16>) {
        for id in 0..self.files.len() {
            let key = match self.files[id].0 {
                File::PipeReader(other) if other == pipe => reader,
                File::PipeWriter(other) if other == pipe => writer,
                _ => None,
            };
            if let Some(key) = key {
                self.wake(id, key);
            }
        }
    }

    /// Carries out an operation.
    pub fn apply(&mut self, op: &Op) -> Reply {
        match op {
            Op::Open(kind, numbers) => self.make(*kind, numbers),
            Op::Duplicate(old, new) => {
                let id = self.numbers[old];
                self.files[id].1 += 1;
                self.numbers.insert(*new, id);
            }
            Op::Close(number) => {
                let registered = self.registered.contains_key(number);
                self.close(*number);
                self.ended(registered);
            }
            Op::Register(number, tag, watch) => {
                let registration = Registration {
                    tag: *tag,
                    file: self.numbers[number],
                    watch: *watch,
                    told: None,
                    ready: false,
                    lenient: false,
                    marked_ready: Readiness::NONE,
                };
                self.registered.insert(*number, registration);
            }
            Op::Modify(number, watch) => {
                if let Some(registration) = self.registered.get_mut(number) {
                    registration.watch = Watch { hint: Hint::None, ..*watch };
                    // Files are reported for a change even if it is undone before the wait.
                    registration.lenient |=
                        matches!(self.files[registration.file].0, File::Regular);
                }
            }
            Op::Deregister(number) => {
                let registered = self.registered.remove(number).is_some();
                self.ended(registered);
            }
            Op::Write(number, count) => return Reply::Bytes(self.write(*number, *count)),
            Op::Read(number, count) => return Reply::Bytes(self.read(*number, *count)),
            Op::Fill(number) => self.fill(*number),
            Op::Drain(number) => self.drain(*number),
            Op::Shutdown(number, how) => self.shut_down(*number, *how),
            Op::Tell(number, readiness) => {
                if let Some(registration) = self.registered.get_mut(number) {
                    registration.marked_ready |= *readiness;
                }
            }
            Op::Wake => self.woken = true,
        }
        Reply::Done
    }

    fn add(&mut self, file: File, number: Number) -> Id {
        self.files.push((file, 1));
        self.numbers.insert(number, self.files.len() - 1);
        self.files.len() - 1
    }

    fn make(&mut self, kind: Kind, numbers: &[Number]) {
        match kind {
            Kind::Pipe => {
                let pipe = self.pipes.len();
                self.pipes.push(PipeBuffer { readers: true, writers: true, ..Default::default() });
                self.add(File::PipeReader(pipe), numbers[0]);
                self.add(File::PipeWriter(pipe), numbers[1]);
            }
            Kind::Sockets => {
                let first = self.files.len();
                for (number, peer) in [(numbers[0], first + 1), (numbers[1], first)] {
                    let socket = File::Socket {
                        peer,
                        alive: true,
                        queue: VecDeque::new(),
                        full: false,
                        shutdown: 0,
                        error: false,
                    };
                    self.add(socket, number);
                }
            }
            Kind::Eventfd => {
                self.add(File::Eventfd(0), numbers[0]);
            }
            Kind::File => {
                self.add(File::Regular, numbers[0]);
            }
        }
    }

    fn close(&mut self, number: Number) {
        self.registered.remove(&number);
        let Some(id) = self.numbers.remove(&number) else { return };
        self.files[id].1 -= 1;
        if self.files[id].1 > 0 {
            return;
        }
        match &mut self.files[id].0 {
            &mut File::PipeReader(pipe) => {
                self.pipes[pipe].readers = false;
                self.wake_pipe(pipe, Some(ANY), Some(ANY));
            }
            &mut File::PipeWriter(pipe) => {
                self.pipes[pipe].writers = false;
                self.wake_pipe(pipe, Some(ANY), Some(ANY));
            }
            File::Socket { peer, alive, queue, full, .. } => {
                let unread = *full || !queue.is_empty();
                let peer = *peer;
                *alive = false;
                *full = false;
                queue.clear();
                if let File::Socket { shutdown, error, alive: true, .. } = &mut self.files[peer].0 {
                    *shutdown = RECEIVE | SEND;
                    *error |= unread;
                    self.wake(peer, ANY);
                    if unread {
                        self.wake(peer, OUT);
                    }
                }
            }
            File::Eventfd(_) | File::Regular => {}
        }
    }

    fn write(&mut self, number: Number, count: usize) -> Result<usize, i32> {
        let id = self.numbers[&number];
        match &mut self.files[id].0 {
            &mut File::PipeWriter(pipe) => {
                let buffer = &mut self.pipes[pipe];
                let outcome = if !buffer.readers {
                    Err(libc::EPIPE)
                } else if buffer.start == buffer.end {
                    (buffer.start, buffer.end) = (0, count);
                    Ok(count)
                } else if !count.is_multiple_of(PAGE) && buffer.end + count <= PAGE {
                    buffer.end += count;
                    Ok(count)
                } else {
                    Err(libc::EAGAIN)
                };
                // In any case: a pipe that was ever polled wakes its readers.
                self.wake_pipe(pipe, Some(IN), None);
                outcome
            }
            File::Socket { shutdown, peer, .. } => {
                if *shutdown & SEND != 0 {
                    return Err(libc::EPIPE);
                }
                let peer = *peer;
                if let File::Socket { queue, .. } = &mut self.files[peer].0 {
                    queue.push_back(count);
                }
                self.wake(peer, DATA);
                Ok(count)
            }
            File::Eventfd(value) => {
                *value += 1;
                self.wake(id, IN);
                Ok(8)
            }
            File::PipeReader(_) | File::Regular => Err(libc::EBADF),
        }
    }

    fn read(&mut self, number: Number, count: usize) -> Result<usize, i32> {
        let id = self.numbers[&number];
        match &mut self.files[id].0 {
            &mut File::PipeReader(pipe) => {
                let buffer = &mut self.pipes[pipe];
                let got = count.min(buffer.end - buffer.start);
                if got == 0 {
                    return if buffer.writers { Err(libc::EAGAIN) } else { Ok(0) };
                }
                buffer.start += got;
                self.wake_pipe(pipe, None, Some(OUT));
                Ok(got)
            }
            File::Socket { queue, shutdown, error, peer, .. } => {
                let mut got = 0;
                let mut consumed = false;
                while let Some(first) = queue.front_mut() {
                    let part = (*first).min(count - got);
                    got += part;
                    *first -= part;
                    if *first > 0 {
                        break;
                    }
                    queue.pop_front();
                    consumed = true;
                }
                let peer = *peer;
                if got == 0 {
                    return match (std::mem::take(error), *shutdown & RECEIVE) {
                        (true, _) => Err(libc::ECONNRESET),
                        (false, 0) => Err(libc::EAGAIN),
                        (false, _) => Ok(0),
                    };
                }
                if consumed {
                    self.wake(peer, OUT);
                }
                Ok(got)
            }
            File::Eventfd(value) => {
                if std::mem::take(value) == 0 {
                    return Err(libc::EAGAIN);
                }
                self.wake(id, OUT);
                Ok(8)
            }
            File::PipeWriter(_) | File::Regular => Err(libc::EBADF),
        }
    }

    fn fill(&mut self, number: Number) {
        let id = self.numbers[&number];
        if let File::Socket { peer, shutdown, .. } = self.files[id].0 {
            if shutdown & SEND != 0 {
                return;
            }
            if let File::Socket { full, .. } = &mut self.files[peer].0
                && !std::mem::replace(full, true)
            {
                self.wake(peer, DATA);
            }
        }
    }

    fn drain(&mut self, number: Number) {
        let id = self.numbers[&number];
        if let File::Socket { full, queue, peer, .. } = &mut self.files[id].0
            && *full
        {
            *full = false;
            queue.clear();
            let peer = *peer;
            self.wake(peer, OUT);
        }
        while matches!(self.read(number, PAGE), Ok(1..)) {}
    }

    fn shut_down(&mut self, number: Number, how: How) {
        let id = self.numbers[&number];
        let (mine, theirs) = match how {
            How::Read => (RECEIVE, SEND),
            How::Write => (SEND, RECEIVE),
            How::Both => (RECEIVE | SEND, RECEIVE | SEND),
        };
        if let File::Socket { shutdown, peer, .. } = &mut self.files[id].0 {
            *shutdown |= mine;
            let peer = *peer;
            self.wake(id, ANY);
            if let File::Socket { shutdown, .. } = &mut self.files[peer].0 {
                *shutdown |= theirs;
                self.wake(peer, ANY);
            }
        }
    }

    /// Handles the end of a registration. A subject that holds files tells the kernel at once,
    /// together with all other changes.
    fn ended(&mut self, registered: bool) {
        if registered && self.capabilities.holds_files {
            self.flush();
        }
    }

    /// Tells the kernel all changes, as before a wait.
    pub fn flush(&mut self) {
        for number in self.registered() {
            let registration = &self.registered[&number];
            let watch = registration.watch;
            if registration.told == Some((watch.interest, watch.mode)) {
                continue;
            }
            let ready = !self.seen(registration).is_empty();
            if let Some(registration) = self.registered.get_mut(&number) {
                registration.told = Some((watch.interest, watch.mode));
                registration.ready |= ready;
            }
        }
    }

    /// Returns the events that the next wait must and may report.
    pub fn expectation(&self) -> Expectation {
        let mut expectation = Expectation::default();
        for registration in self.registered.values() {
            let state = self.seen(registration);
            let told = registration.marked_ready.masked(registration.watch.interest);
            if !told.is_empty() {
                expectation.told.insert(registration.tag, told);
            }
            let watch = registration.watch;
            let armed = watch.mode == Mode::Auto && !watch.interest.is_empty();
            if self.capabilities.reports_arrivals && armed && registration.ready {
                expectation.arrivals.insert(registration.tag);
            }
            if state.is_empty() {
                continue;
            }
            let must = match registration.watch.mode {
                Mode::Edge => registration.ready,
                Mode::Auto => registration.ready && self.visible(registration, state),
                _ => self.visible(registration, state),
            };
            let may =
                must || registration.lenient || !matches!(registration.watch.mode, Mode::Edge);
            if may {
                expectation.state.insert(registration.tag, state);
            }
            if must {
                let once = match registration.watch.mode {
                    Mode::OneShot => true,
                    Mode::Edge => !registration.lenient,
                    _ => false,
                };
                expectation.must.insert(registration.tag, once);
            }
        }
        expectation
    }

    /// Notes that a wait has reported everything it had to, and perhaps more.
    pub fn reported(&mut self, tags: &BTreeMap<Tag, usize>) {
        for registration in self.registered.values_mut() {
            registration.ready = false;
            registration.lenient = false;
            registration.marked_ready = Readiness::NONE;
            if tags.contains_key(&registration.tag) && registration.watch.mode == Mode::OneShot {
                registration.watch.interest = Interest::NONE;
                registration.told = Some((Interest::NONE, Mode::OneShot));
            }
        }
    }

    /// Whether the subject was woken since the last call.
    pub fn take_wake(&mut self) -> bool {
        std::mem::take(&mut self.woken)
    }

    /// Allows edges that were reported to be reported once more.
    pub fn forgive(&mut self) {
        for registration in self.registered.values_mut() {
            registration.lenient = true;
        }
    }
}

fn intersects(left: Readiness, right: Readiness) -> bool {
    [
        Readiness::READABLE,
        Readiness::WRITABLE,
        Readiness::PRIORITY,
        Readiness::READ_CLOSED,
        Readiness::HANG_UP,
        Readiness::ERROR,
    ]
    .into_iter()
    .any(|bit| left.contains(bit) && right.contains(bit))
}
