//! What an engine knows of each registered descriptor: its readiness and who waits for it.
//!
//! Readiness is remembered, polling is derived. A direction is *ready* until an operation says that
//! it would block, or that a stream is drained because it gave less than was asked for. While it is
//! ready the kernel is not asked. What the poller is told to watch follows from who waits: a direction
//! is added when somebody begins to wait, and taken away only when it is reported and nobody waits,
//! because most readers come back before anything arrives.
//!
//! Each report advances the source's *tick*. Whoever clears a readiness says which tick it has seen
//! before the operation that failed; if a report came in between, the readiness stays. Otherwise an
//! arrival between the operation and the clear would be lost for ever with an edge trigger.
//!
//! End of stream, hang-up and error stay: every later operation is tried, and says what happened, until
//! one of them would block after all.

use std::io;
use std::mem;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::Waker;

use superpoll::{Event, Interest, Key, Mode, Readiness, Watch};

use crate::fetch::Fetched;
use crate::foreign;

mod ahead;

/// A direction in which an operation may have to wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// Reading, receiving, accepting.
    Read,
    /// Writing, sending, connecting.
    Write,
    /// Exceptional conditions, such as TCP out-of-band data (`POLLPRI`).
    Priority,
}

impl Direction {
    pub(crate) const ALL: [Direction; 3] = [Direction::Read, Direction::Write, Direction::Priority];

    pub(crate) const fn bit(self) -> u8 {
        match self {
            Direction::Read => 1,
            Direction::Write => 2,
            Direction::Priority => 4,
        }
    }

    /// What the poller is asked for on behalf of a waiter. The end of the stream is always asked for
    /// together with data: an edge may tell of both at once.
    pub(crate) const fn interest(self) -> Interest {
        match self {
            Direction::Read => Interest::READABLE.with(Interest::READ_CLOSED),
            Direction::Write => Interest::WRITABLE,
            Direction::Priority => Interest::PRIORITY,
        }
    }
}

/// All directions: the state of a descriptor that nobody has tried.
pub(crate) const ALL_READY: u8 = 7;

/// One more report that nobody acts upon, and it is called spinning.
pub(crate) const SPIN_LIMIT: u16 = 1000;

/// Whom to wake, taken out so that nothing is borrowed while they are woken.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    /// Nearly always the only one.
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl Woken {
    #[inline]
    fn add(&mut self, waker: Waker) {
        if self.first.is_none() {
            self.first = Some(waker);
        } else {
            self.more.push(waker);
        }
    }

    /// Has them woken together with others.
    #[inline]
    pub fn move_to(mut self, others: &mut Vec<Waker>) {
        others.extend(self.first);
        others.append(&mut self.more);
    }

    #[inline]
    pub fn wake(self) {
        if let Some(waker) = self.first {
            foreign::wake(waker);
        }
        if !self.more.is_empty() {
            self.more.into_iter().for_each(foreign::wake);
        }
    }
}

/// Somebody who waits. Who polls by hand has no name ([`NOBODY`]) and waits once per task; each wait of
/// an async function has a name of its own, so that it can be taken back alone.
#[derive(Debug)]
struct Waiter {
    name: u32,
    waker: Waker,
}

/// The name of those who cannot be told apart.
pub(crate) const NOBODY: u32 = 0;

impl Waiter {
    fn is(&self, name: u32, waker: &Waker) -> bool {
        self.name == name && (name != NOBODY || self.waker.will_wake(waker))
    }
}

/// One registered descriptor.
#[derive(Debug)]
pub(crate) struct Source {
    key: Key,
    fd: RawFd,
    /// What the poller was asked for.
    interest: Interest,
    /// What its mode allows to ask for.
    allowed: Interest,
    ready: u8,
    /// Directions in which nothing will ever block again.
    closed: u8,
    /// All that there will ever be to read is there, see [`Source::has_all`].
    has_all: bool,
    /// An urgent byte was reported, and no read has come to the end of what there is since: a read may end at it.
    has_mark: bool,
    tick: u32,
    /// Times it was said to be ready since somebody last tried an operation.
    ignored: u16,
    /// Who waits for each direction: nearly always one task.
    waiters: [Option<Waiter>; 3],
    /// The others.
    more: Vec<(Direction, Waiter)>,
    /// Why the registration has ended, if the kernel refused it.
    refused: Option<Box<io::Error>>,
    /// How many bytes the task wants that waits to read, if they may be read for it, and where to.
    wanted: u16,
    /// How many were asked for in the read that is under way.
    asked: u16,
    /// Whether the engine is going to read.
    is_fetchable: bool,
    /// Whether the engine reads just now.
    reads: bool,
    /// Operations under way that take bytes, or whose bytes nobody has taken yet. What was read ahead meanwhile would
    /// come before them.
    receiving: u16,
    fetched: Option<Arc<Fetched>>,
}

impl Drop for Source {
    fn drop(&mut self) {
        // It has not come to an end with its engine.
        self.end_read();
    }
}

/// What may be asked for in a mode: of exclusive wake-ups the kernel has only two directions.
pub(crate) fn allowed(mode: Mode) -> Interest {
    match mode {
        Mode::Exclusive => Interest::READABLE | Interest::WRITABLE,
        _ => Interest::ALL,
    }
}

/// What a report leads to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub woken: Woken,
    /// Something can be read for who waits, who has not been woken.
    pub is_fetchable: bool,
    /// The interest to tell the poller instead.
    pub narrow: Option<Interest>,
    /// The descriptor, if it has been reported too often while nobody acts upon it.
    pub spinning: Option<RawFd>,
}

/// The sources of an engine, each at its key's index.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    list: Vec<Option<Box<Source>>>,
    len: usize,
}

impl Sources {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds a source. Returns one that was there under an earlier key of the same index, to be dropped when nothing is
    /// borrowed: its descriptor was dropped elsewhere, and the message that says so is still on its way.
    #[must_use]
    pub fn add(&mut self, key: Key, fd: RawFd, watch: Watch, ready: u8) -> Option<Box<Source>> {
        let index = key.index() as usize;
        if self.list.len() <= index {
            self.list.resize_with(index + 1, || None);
        }
        let source = Source {
            key,
            fd,
            interest: watch.interest,
            allowed: allowed(watch.mode),
            ready,
            closed: 0,
            has_all: false,
            has_mark: false,
            tick: 0,
            ignored: 0,
            waiters: Default::default(),
            more: Vec::new(),
            refused: None,
            wanted: 0,
            asked: 0,
            is_fetchable: false,
            reads: false,
            receiving: 0,
            fetched: None,
        };
        let before = self.list[index].replace(Box::new(source));
        self.len += usize::from(before.is_none());
        before
    }

    /// Forgets a source; returns who waited, to be woken or dropped when nothing is borrowed.
    pub fn remove(&mut self, key: Key) -> Option<Box<Source>> {
        let entry = self.list.get_mut(key.index() as usize)?;
        if entry.as_ref()?.key != key {
            return None;
        }
        self.len -= 1;
        entry.take()
    }

    /// How many sources there is room for.
    pub fn places(&self) -> usize {
        self.list.capacity()
    }

    /// Gives the memory back that lies behind the last source.
    pub fn shorten(&mut self) {
        let last = self.list.iter().rposition(Option::is_some);
        self.list.truncate(last.map_or(0, |last| last + 1));
        self.list.shrink_to_fit();
    }

    #[inline]
    pub fn get(&mut self, key: Key) -> Option<&mut Source> {
        match self.list.get_mut(key.index() as usize) {
            Some(Some(source)) if source.key == key => Some(source),
            _ => None,
        }
    }

    /// Everything that is left, at the end of the engine.
    pub fn take_all(&mut self) -> Vec<Option<Box<Source>>> {
        self.len = 0;
        mem::take(&mut self.list)
    }

    /// Notes what the poller reports.
    #[inline]
    pub fn report(&mut self, event: &Event) -> Option<Outcome> {
        self.get(event.key()).map(|source| source.report(event.readiness()))
    }
}

impl Source {
    /// Whether an operation in this direction may be tried, and the tick to clear it with.
    #[inline]
    pub fn try_now(&mut self, direction: Direction) -> Option<u32> {
        self.ignored = 0;
        (self.ready & direction.bit() != 0).then_some(self.tick)
    }

    /// Like [`try_now`](Source::try_now), for a caller who may do nothing about it. The second value
    /// is the descriptor if that has gone on for long.
    pub fn grant(&mut self, direction: Direction) -> Option<(u32, Option<RawFd>)> {
        (self.ready & direction.bit() != 0).then(|| (self.tick, self.ignore()))
    }

    /// Whether the kernel has all that there will ever be to read, up to the end of the stream. This is known only
    /// while [`Interest::PRIORITY`] is watched.
    ///
    /// `READ_CLOSED` says that the peer's `FIN` was taken in, which the kernel does in order: nothing comes behind it,
    /// and all before it is in the queue. After a reset it is said as well, but then with `ERROR` or, once the error
    /// was fetched, with `HANG_UP`. A read of TCP stops in the middle of the queue only at an urgent mark, and as long
    /// as there is one ahead of the reader, `PRIORITY` is reported.
    pub fn has_all(&self) -> bool {
        self.has_all
    }

    /// Somebody made use of what was ready.
    pub fn acted(&mut self) {
        self.ignored = 0;
    }

    fn ignore(&mut self) -> Option<RawFd> {
        self.ignored = self.ignored.saturating_add(1);
        (self.ignored == SPIN_LIMIT).then_some(self.fd)
    }

    /// Whether a read may give less than there is because of an urgent byte. An engine that
    /// [watches](crate::link::ShortReads::Watched) for one knows: what has come since the last report is going to
    /// be reported, and the tick with it.
    #[inline]
    pub fn has_mark(&self) -> bool {
        self.has_mark
    }

    /// A stream has given all it had, or taken all it could.
    #[inline]
    pub fn drained(&mut self, direction: Direction, tick: u32) {
        if self.tick == tick {
            self.ready &= !direction.bit() | self.closed;
        }
    }

    /// An operation would have blocked. What was taken for the end, such as an error that has been
    /// read since, was none then.
    #[inline]
    pub fn clear(&mut self, direction: Direction, tick: u32) {
        self.ignored = 0;
        if self.tick == tick {
            let others = direction != Direction::Read;
            self.has_all &= others;
            self.has_mark &= others;
            self.closed &= !direction.bit();
            self.ready &= !direction.bit();
        }
    }

    /// Somebody waits for a direction, in which something `urgent` is watched too; returns the interest to tell the
    /// poller, if it is another. The poller looks at the descriptor anew then. The waker is taken, and the one that it
    /// replaces is left in its place, to be dropped when nothing is borrowed.
    #[inline]
    pub fn wait(
        &mut self,
        direction: Direction,
        urgent: Interest,
        name: u32,
        waker: &mut Option<Waker>,
    ) -> Option<Interest> {
        if direction == Direction::Read {
            self.wanted = 0;
        }
        if let Some(new) = waker.take() {
            match &mut self.waiters[direction as usize] {
                first @ None => *first = Some(Waiter { name, waker: new }),
                Some(first) if first.is(name, &new) => {
                    *waker = Some(mem::replace(&mut first.waker, new));
                }
                Some(_) => *waker = self.wait_too(direction, name, new),
            }
        }
        // A mark that is known need not be watched for until it is passed.
        let urgent = if self.has_mark { Interest::NONE } else { urgent };
        let wanted = (direction.interest() | urgent) & self.allowed;
        if self.interest.contains(wanted) {
            return None;
        }
        self.interest |= wanted;
        Some(self.interest)
    }

    /// Whether a direction is ready although somebody is about to wait for it: it became so since that one has looked.
    #[inline]
    pub fn is_ready(&self, direction: Direction) -> bool {
        self.ready & direction.bit() != 0
    }

    /// Has more watched for; returns the interest to tell the poller.
    pub fn ask(&mut self, more: Interest) -> Interest {
        self.interest |= more & self.allowed;
        self.interest
    }

    #[cold]
    fn wait_too(&mut self, direction: Direction, name: u32, waker: Waker) -> Option<Waker> {
        let known =
            self.more.iter_mut().find(|(other, who)| *other == direction && who.is(name, &waker));
        match known {
            Some((_, known)) => Some(mem::replace(&mut known.waker, waker)),
            None => {
                self.more.push((direction, Waiter { name, waker }));
                None
            }
        }
    }

    /// The number under which it is registered.
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// Somebody with a name does not wait any more; returns the waker, to be dropped when nothing is
    /// borrowed.
    pub fn give_up(&mut self, direction: Direction, name: u32) -> Option<Waker> {
        let place =
            self.more.iter().position(|(other, who)| *other == direction && who.name == name);
        if let Some(place) = place {
            return Some(self.more.swap_remove(place).1.waker);
        }
        let first = &mut self.waiters[direction as usize];
        let given_up = first.take_if(|first| first.name == name)?;
        if direction == Direction::Read {
            self.wanted = 0;
        }
        // The first one stands for the others, too.
        let next = self.more.iter().position(|(other, _)| *other == direction);
        *first = next.map(|place| self.more.swap_remove(place).1);
        Some(given_up.waker)
    }

    /// What was done at the other end lets this one go on, most likely. Whom to wake, if anybody
    /// waits.
    #[inline]
    pub fn hand_over(&mut self, direction: Direction) -> Option<Woken> {
        self.tick = self.tick.wrapping_add(1);
        self.ready |= direction.bit();
        self.waiters[direction as usize].as_ref()?;
        self.wanted = 0;
        let mut woken = Woken::default();
        self.take_waiters(direction, &mut woken);
        Some(woken)
    }

    /// The kernel refused to watch it. Operations are tried from now on, and who would have to wait
    /// gets the error.
    pub fn refuse(&mut self, error: io::Error) -> Woken {
        self.end_read();
        self.refused = Some(Box::new(error));
        self.closed = ALL_READY;
        self.ready = ALL_READY;
        self.dismiss()
    }

    /// All who wait, in whatever direction: the registration ends, and each has to begin anew.
    pub fn dismiss(&mut self) -> Woken {
        let mut woken = Woken::default();
        for direction in Direction::ALL {
            self.take_waiters(direction, &mut woken);
        }
        woken
    }

    /// The refusal, to be told once.
    pub fn take_refusal(&mut self) -> Option<io::Error> {
        self.refused.take().map(|error| *error)
    }

    #[inline]
    fn take_waiters(&mut self, direction: Direction, woken: &mut Woken) {
        if let Some(waiter) = self.waiters[direction as usize].take() {
            if direction == Direction::Read {
                self.wanted = 0;
            }
            woken.add(waiter.waker);
            if !self.more.is_empty() {
                self.take_others(direction, woken);
            }
        }
    }

    #[cold]
    fn take_others(&mut self, direction: Direction, woken: &mut Woken) {
        for (_, waiter) in self.more.extract_if(.., |(other, _)| *other == direction) {
            woken.more.push(waiter.waker);
        }
    }

    #[inline]
    fn report(&mut self, readiness: Readiness) -> Outcome {
        self.tick = self.tick.wrapping_add(1);
        let mut reported = 0;
        for (condition, direction) in [
            (Readiness::READABLE, Direction::Read),
            (Readiness::WRITABLE, Direction::Write),
            (Readiness::PRIORITY, Direction::Priority),
        ] {
            if readiness.contains(condition) {
                reported |= direction.bit();
            }
        }
        self.has_mark |= readiness.contains(Readiness::PRIORITY);
        if readiness.contains(Readiness::READ_CLOSED) {
            self.closed |= Direction::Read.bit();
        }
        self.has_all = readiness.contains(Readiness::READ_CLOSED)
            && self.interest.contains(Interest::PRIORITY)
            && ![Readiness::HANG_UP, Readiness::ERROR, Readiness::PRIORITY]
                .into_iter()
                .any(|other| readiness.contains(other));
        if readiness.contains(Readiness::HANG_UP) || readiness.contains(Readiness::ERROR) {
            self.closed = ALL_READY;
        }
        reported |= self.closed;
        self.ready |= reported;
        let mut outcome = Outcome { spinning: self.ignore(), ..Outcome::default() };
        if reported == Direction::Read.bit() && self.wanted > 0 && self.more.is_empty() {
            outcome.is_fetchable = !mem::replace(&mut self.is_fetchable, true);
            return outcome;
        }
        let (mut wanted, mut nobody) = (Interest::NONE, false);
        for direction in Direction::ALL {
            let is_reported = reported & direction.bit() != 0;
            if self.waiters[direction as usize].is_some() {
                wanted |= direction.interest() & self.allowed;
                if direction == Direction::Read && !self.has_mark {
                    // What was watched for with it.
                    wanted |= self.interest & Interest::PRIORITY;
                }
                if is_reported {
                    self.take_waiters(direction, &mut outcome.woken);
                }
            } else if is_reported && self.interest.intersects(direction.interest()) {
                nobody = true;
            }
        }
        // Once is no reason: whoever was woken for something else may be about to try.
        if nobody && self.ignored > 1 {
            self.interest = wanted;
            outcome.narrow = Some(wanted);
        }
        outcome
    }
}

#[cfg(test)]
mod tests;
