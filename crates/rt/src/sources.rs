//! The engine's knowledge of each registered descriptor: its readiness and its waiters.
//!
//! Readiness is remembered, polling is derived. A direction is *ready* until an operation shows
//! that it would block, or that a stream is drained because it gave less than was asked for. While
//! the direction is ready the kernel is not asked. The interest that the poller watches follows
//! from the waiters: a direction is added when a wait for it begins. It is taken away only when it
//! is reported while no task waits, because most readers come back before anything arrives.
//!
//! Each report advances the source's *tick*. A caller that clears a readiness passes the tick that
//! it has seen before the operation that failed; if a report came in between, the readiness stays.
//! Otherwise an arrival between the operation and the clear would be lost permanently with an edge
//! trigger.
//!
//! End of stream, hang-up and error stay: every later operation is tried, and returns the outcome,
//! until one of them would block after all.
//!
//! # States
//!
//! Each direction of a source is in one of these states.
//!
//! ```text
//! state   | ready | waiters | in the interest
//! --------+-------+---------+----------------
//! READY   |  yes  |   no    |      maybe
//! IDLE    |  no   |   no    |      maybe
//! WAITING |  no   |   yes   |       yes
//!
//!             clear(), mark_drained()
//!   add      +------------------------+
//!    |       |                        v
//!    +--> READY <-- report() (1) --- IDLE
//!           ^                        |  ^
//!           |           add_waiter() |  | cancel_wait() of the last waiter
//!           |                        v  |
//!           +--- report(), wakes -- WAITING
//! ```
//!
//! 1. The second report in a row that no task acts upon takes the direction out of the interest.
//!
//! A direction is *closed* after the end of the stream (reading), and after a hang-up, an error or
//! [`refuse`](Source::refuse) (all directions). Then `mark_drained` does not end READY; `clear`
//! does. [`assume_ready`](Source::assume_ready) acts like a report, on behalf of the other end of a
//! pipe or socket pair.

use std::io;
use std::mem;
use std::os::fd::RawFd;
use std::task::Waker;

use superpoll::{Event, Interest, Key, Mode, Readiness, Watch};

use crate::wake_list::WakeList;

/// A direction in which an operation may wait.
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

    /// Returns the interest that the poller is asked for on behalf of a waiter. The end of the
    /// stream is always asked for together with data: an edge may report both at once.
    pub(crate) const fn interest(self) -> Interest {
        match self {
            Direction::Read => Interest::READABLE.with(Interest::READ_CLOSED),
            Direction::Write => Interest::WRITABLE,
            Direction::Priority => Interest::PRIORITY,
        }
    }
}

/// All directions: the state of a descriptor that has not been tried.
pub(crate) const ALL_READY: u8 = 7;

/// A descriptor with one more report than this that no task acts upon is called spinning.
pub(crate) const SPIN_LIMIT: u16 = 1000;

/// A wait for a direction. A task that polls by hand has no name ([`UNNAMED`]) and waits once; each
/// wait of an async function has a name of its own, so that it can be taken back alone.
#[derive(Debug)]
struct Waiter {
    name: u32,
    waker: Waker,
}

/// The name of waiters that cannot be told apart.
pub(crate) const UNNAMED: u32 = 0;

impl Waiter {
    fn is(&self, name: u32, waker: &Waker) -> bool {
        self.name == name && (name != UNNAMED || self.waker.will_wake(waker))
    }
}

/// In a source's flags: all bytes that will ever come are there to read, see [`Source::has_eof`].
const HAS_EOF: u8 = 1;

/// In a source's flags: an urgent byte was reported, and no read has come to the end of the
/// bytes that are there since. A read may end at it.
const HAS_MARK: u8 = 2;

/// In a source's flags: an operation was tried since an error or a hang-up was reported.
const TRIED: u8 = 4;

/// In a source's flags: more than one was, so that the first has made use of the report.
const TRIED_AGAIN: u8 = 8;

/// In a source's flags: at the report before, the first operation would have blocked.
const FUTILE: u8 = 16;

/// One registered descriptor.
#[derive(Debug)]
pub(crate) struct Source {
    key: Key,
    fd: RawFd,
    /// The interest that the poller was asked for.
    interest: Interest,
    /// The interest that its mode allows.
    allowed: Interest,
    ready: u8,
    /// Directions in which nothing will ever block again.
    closed: u8,
    /// [`HAS_EOF`] and the flags that follow it, in one byte: each idle connection pays for the
    /// size of a source.
    flags: u8,
    tick: u32,
    /// The number of times that it was reported or granted as ready since a task last tried an
    /// operation.
    ignored: u16,
    /// The first waiter for each direction: nearly always one task.
    waiters: [Option<Waiter>; 3],
    /// The other waiters.
    more: Vec<(Direction, Waiter)>,
    /// Why the registration has ended, if the kernel refused it.
    refused: Option<Box<io::Error>>,
}

/// Returns the interest that a mode allows: for exclusive wake-ups the kernel has only two
/// directions.
pub(crate) fn allowed(mode: Mode) -> Interest {
    match mode {
        Mode::Exclusive => Interest::READABLE | Interest::WRITABLE,
        _ => Interest::ALL,
    }
}

/// The consequences of a report.
#[derive(Debug, Default)]
pub(crate) struct ReportEffects {
    pub wakers: WakeList,
    /// The interest for the poller to watch instead.
    pub narrowed: Option<Interest>,
    /// The descriptor, if it has been reported too often while no task acts upon it.
    pub spinning: Option<RawFd>,
}

/// The sources of an engine, each at its key's index.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    list: Vec<Option<Box<Source>>>,
    len: usize,
}

impl Sources {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a source. Returns a source that was there under an earlier key of the same index, to
    /// drop when nothing is borrowed: its descriptor was dropped elsewhere, and the message about
    /// that is still on its way.
    #[must_use]
    pub(crate) fn add(
        &mut self,
        key: Key,
        fd: RawFd,
        watch: Watch,
        ready: u8,
    ) -> Option<Box<Source>> {
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
            flags: 0,
            tick: 0,
            ignored: 0,
            waiters: Default::default(),
            more: Vec::new(),
            refused: None,
        };
        let before = self.list[index].replace(Box::new(source));
        self.len += usize::from(before.is_none());
        before
    }

    /// Forgets a source; returns it with its waiters, to wake or drop when nothing is borrowed.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Box<Source>> {
        let entry = self.list.get_mut(key.index() as usize)?;
        if entry.as_ref()?.key != key {
            return None;
        }
        self.len -= 1;
        entry.take()
    }

    /// Returns the number of sources that there is room for.
    pub(crate) fn capacity(&self) -> usize {
        self.list.capacity()
    }

    /// Gives back the memory that lies after the last source.
    pub(crate) fn shrink(&mut self) {
        let last = self.list.iter().rposition(Option::is_some);
        self.list.truncate(last.map_or(0, |last| last + 1));
        self.list.shrink_to_fit();
    }

    #[inline]
    pub(crate) fn get(&mut self, key: Key) -> Option<&mut Source> {
        match self.list.get_mut(key.index() as usize) {
            Some(Some(source)) if source.key == key => Some(source),
            _ => None,
        }
    }

    /// Takes all sources that are left, at the end of the engine.
    pub(crate) fn take_all(&mut self) -> Vec<Option<Box<Source>>> {
        self.len = 0;
        mem::take(&mut self.list)
    }

    /// Notes a report of the poller.
    #[inline]
    pub(crate) fn report(&mut self, event: &Event) -> Option<ReportEffects> {
        self.get(event.key()).map(|source| source.report(event.readiness()))
    }
}

impl Source {
    /// Returns the tick to clear a direction with, if an operation in it may be tried.
    #[inline]
    pub(crate) fn try_now(&mut self, direction: Direction) -> Option<u32> {
        self.ignored = 0;
        if self.closed != 0 {
            self.note_try();
        }
        (self.ready & direction.bit() != 0).then_some(self.tick)
    }

    #[cold]
    fn note_try(&mut self) {
        self.flags |= if self.is(TRIED) { TRIED_AGAIN } else { TRIED };
    }

    /// Like [`try_now`](Source::try_now), for a caller that may not act upon it. The second value
    /// is the descriptor if that has gone on for long.
    pub(crate) fn try_now_counted(&mut self, direction: Direction) -> Option<(u32, Option<RawFd>)> {
        if self.closed != 0 {
            self.note_try();
        }
        (self.ready & direction.bit() != 0).then(|| (self.tick, self.ignore()))
    }

    /// Returns whether the kernel has all bytes that will ever come, up to the end of the stream.
    /// This is known only while [`Interest::PRIORITY`] is watched.
    ///
    /// `READ_CLOSED` means that the kernel has taken in the peer's `FIN`, which it does in order:
    /// nothing comes after the `FIN`, and all bytes before it are in the queue. It is reported
    /// after a reset as well, but then with `ERROR` or, once the error was fetched, with `HANG_UP`.
    /// A read of TCP stops in the middle of the queue only at an urgent mark, and as long as there
    /// is a mark ahead of the reader, `PRIORITY` is reported.
    pub(crate) fn has_eof(&self) -> bool {
        self.is(HAS_EOF)
    }

    fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn put_flag(&mut self, flag: u8, on: bool) {
        if on { self.flags |= flag } else { self.flags &= !flag }
    }

    /// Notes that a task made use of the readiness.
    pub(crate) fn mark_used(&mut self) {
        self.ignored = 0;
    }

    fn ignore(&mut self) -> Option<RawFd> {
        self.ignored = self.ignored.saturating_add(1);
        (self.ignored == SPIN_LIMIT).then_some(self.fd)
    }

    /// Returns whether a read may give fewer bytes than there are because of an urgent byte. An
    /// engine that [watches](crate::short_reads::ShortReads::Watched) for urgent bytes knows:
    /// the poller will report bytes that have arrived since the last report, which advances the
    /// tick.
    #[inline]
    pub(crate) fn has_mark(&self) -> bool {
        self.is(HAS_MARK)
    }

    /// Notes that a stream has given all it had, or taken all it could.
    #[inline]
    pub(crate) fn mark_drained(&mut self, direction: Direction, tick: u32) {
        if self.tick == tick {
            self.ready &= !direction.bit() | self.closed;
        }
    }

    /// Notes that an operation would have blocked. A condition that was taken for the end, such as
    /// an error that has been read since, was no end then.
    ///
    /// Returns the descriptor if it is the second report in a row of an error or a hang-up with
    /// which its tasks do nothing.
    #[inline]
    pub(crate) fn clear(&mut self, direction: Direction, tick: u32) -> Option<RawFd> {
        self.ignored = 0;
        let mut spinning = None;
        if self.tick == tick {
            let others = direction != Direction::Read;
            if !others {
                self.flags &= !(HAS_EOF | HAS_MARK);
            }
            if self.closed & direction.bit() != 0 {
                spinning = self.note_false_end();
            }
            self.closed &= !direction.bit();
            self.ready &= !direction.bit();
        }
        spinning
    }

    #[cold]
    fn note_false_end(&mut self) -> Option<RawFd> {
        let is_futile = !self.is(TRIED_AGAIN);
        let is_spinning = is_futile && self.is(FUTILE);
        self.put_flag(FUTILE, is_futile);
        is_spinning.then_some(self.fd)
    }

    /// Begins a wait for a direction, in which something `urgent` is watched too. Returns the
    /// interest that the poller has to watch, if it changes; the poller checks the descriptor again
    /// then. The waker is taken, and the waker that it replaces is left in its place, to drop when
    /// nothing is borrowed.
    #[inline]
    pub(crate) fn add_waiter(
        &mut self,
        direction: Direction,
        urgent: Interest,
        name: u32,
        waker: &mut Option<Waker>,
    ) -> Option<Interest> {
        if let Some(new) = waker.take() {
            match &mut self.waiters[direction as usize] {
                first @ None => *first = Some(Waiter { name, waker: new }),
                Some(first) if first.is(name, &new) => {
                    *waker = Some(mem::replace(&mut first.waker, new));
                }
                Some(_) => *waker = self.add_further_waiter(direction, name, new),
            }
        }
        // A mark that is known need not be watched for until it is passed.
        let urgent = if self.has_mark() { Interest::NONE } else { urgent };
        let wanted = (direction.interest() | urgent) & self.allowed;
        if self.interest.contains(wanted) {
            return None;
        }
        self.interest |= wanted;
        Some(self.interest)
    }

    /// Returns whether a direction is ready although a wait for it is about to begin: it became
    /// ready since the waiter has checked.
    #[inline]
    pub(crate) fn is_ready(&self, direction: Direction) -> bool {
        self.ready & direction.bit() != 0
    }

    /// Adds to the watched interest; returns the interest for the poller to watch.
    pub(crate) fn add_interest(&mut self, more: Interest) -> Interest {
        self.interest |= more & self.allowed;
        self.interest
    }

    #[cold]
    fn add_further_waiter(
        &mut self,
        direction: Direction,
        name: u32,
        waker: Waker,
    ) -> Option<Waker> {
        let known = self
            .more
            .iter_mut()
            .find(|(other, waiter)| *other == direction && waiter.is(name, &waker));
        match known {
            Some((_, known)) => Some(mem::replace(&mut known.waker, waker)),
            None => {
                self.more.push((direction, Waiter { name, waker }));
                None
            }
        }
    }

    /// Ends the wait with this name; returns the waker, to drop when nothing is borrowed.
    pub(crate) fn cancel_wait(&mut self, direction: Direction, name: u32) -> Option<Waker> {
        let place =
            self.more.iter().position(|(other, waiter)| *other == direction && waiter.name == name);
        if let Some(place) = place {
            return Some(self.more.swap_remove(place).1.waker);
        }
        let first = &mut self.waiters[direction as usize];
        let cancelled = first.take_if(|first| first.name == name)?;
        // The first waiter stands for the other waiters, too.
        let next = self.more.iter().position(|(other, _)| *other == direction);
        *first = next.map(|place| self.more.swap_remove(place).1);
        Some(cancelled.waker)
    }

    /// Notes that an operation at the other end most likely lets this end continue. Returns the
    /// wakers to call, if there are any.
    #[inline]
    pub(crate) fn assume_ready(&mut self, direction: Direction) -> Option<WakeList> {
        self.tick = self.tick.wrapping_add(1);
        self.ready |= direction.bit();
        self.waiters[direction as usize].as_ref()?;
        let mut wakers = WakeList::default();
        self.take_waiters(direction, &mut wakers);
        Some(wakers)
    }

    /// Notes that the kernel refused to watch it. Operations are tried from now on, and a caller
    /// that would wait gets the error.
    pub(crate) fn refuse(&mut self, error: io::Error) -> WakeList {
        self.refused = Some(Box::new(error));
        self.closed = ALL_READY;
        self.ready = ALL_READY;
        self.take_all_waiters()
    }

    /// Takes all waiters, in whatever direction: the registration ends, and each has to begin
    /// again.
    pub(crate) fn take_all_waiters(&mut self) -> WakeList {
        let mut wakers = WakeList::default();
        for direction in Direction::ALL {
            self.take_waiters(direction, &mut wakers);
        }
        wakers
    }

    /// Takes the refusal, which is returned once.
    pub(crate) fn take_refusal(&mut self) -> Option<io::Error> {
        self.refused.take().map(|error| *error)
    }

    #[inline]
    fn take_waiters(&mut self, direction: Direction, wakers: &mut WakeList) {
        if let Some(waiter) = self.waiters[direction as usize].take() {
            wakers.push(waiter.waker);
            if !self.more.is_empty() {
                self.take_further_waiters(direction, wakers);
            }
        }
    }

    #[cold]
    fn take_further_waiters(&mut self, direction: Direction, wakers: &mut WakeList) {
        for (_, waiter) in self.more.extract_if(.., |(other, _)| *other == direction) {
            wakers.more.push(waiter.waker);
        }
    }

    #[inline]
    fn report(&mut self, readiness: Readiness) -> ReportEffects {
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
        if readiness.contains(Readiness::PRIORITY) {
            self.flags |= HAS_MARK;
        }
        if readiness.contains(Readiness::READ_CLOSED) {
            self.closed |= Direction::Read.bit();
        }
        let has_eof = readiness.contains(Readiness::READ_CLOSED)
            && self.interest.contains(Interest::PRIORITY)
            && ![Readiness::HANG_UP, Readiness::ERROR, Readiness::PRIORITY]
                .into_iter()
                .any(|other| readiness.contains(other));
        let was_futile = self.flags & FUTILE;
        self.flags &= !(HAS_EOF | TRIED | TRIED_AGAIN | FUTILE);
        self.put_flag(HAS_EOF, has_eof);
        if readiness.contains(Readiness::HANG_UP) || readiness.contains(Readiness::ERROR) {
            self.closed = ALL_READY;
            self.flags |= was_futile;
        }
        reported |= self.closed;
        self.ready |= reported;
        let mut effects = ReportEffects { spinning: self.ignore(), ..ReportEffects::default() };
        let (mut wanted, mut unattended) = (Interest::NONE, false);
        for direction in Direction::ALL {
            let is_reported = reported & direction.bit() != 0;
            if self.waiters[direction as usize].is_some() {
                wanted |= direction.interest() & self.allowed;
                if direction == Direction::Read && !self.has_mark() {
                    // The interest that was watched with it.
                    wanted |= self.interest & Interest::PRIORITY;
                }
                if is_reported {
                    self.take_waiters(direction, &mut effects.wakers);
                }
            } else if is_reported && self.interest.intersects(direction.interest()) {
                unattended = true;
            }
        }
        // Once is no reason: a task that was woken for another event may be about to try.
        if unattended && self.ignored > 1 {
            self.interest = wanted;
            effects.narrowed = Some(wanted);
        }
        effects
    }
}

#[cfg(test)]
mod tests;
