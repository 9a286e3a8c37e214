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
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::Waker;

use superpoll::{Event, Interest, Key, Mode, Readiness, Watch};

use crate::fetch::Fetched;

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
pub(crate) const SPIN_LIMIT: u32 = 1000;

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

    #[inline]
    pub fn wake(self) {
        if let Some(waker) = self.first {
            waker.wake();
        }
        if !self.more.is_empty() {
            for waker in self.more {
                waker.wake();
            }
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
    tick: u32,
    /// Times it was said to be ready since somebody last tried an operation.
    ignored: u32,
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
    fetched: Option<Arc<Fetched>>,
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

    pub fn add(&mut self, key: Key, fd: RawFd, watch: Watch, ready: u8) {
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
            tick: 0,
            ignored: 0,
            waiters: Default::default(),
            more: Vec::new(),
            refused: None,
            wanted: 0,
            asked: 0,
            is_fetchable: false,
            fetched: None,
        };
        if self.list[index].replace(Box::new(source)).is_none() {
            self.len += 1;
        }
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
        std::mem::take(&mut self.list)
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

    /// As [`try_now`](Source::try_now), for a caller who may do nothing about it. The second value
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
            self.has_all &= direction != Direction::Read;
            self.closed &= !direction.bit();
            self.ready &= !direction.bit();
        }
    }

    /// Somebody waits for a direction; returns the interest to tell the poller, if it is another.
    #[inline]
    pub fn wait(&mut self, direction: Direction, name: u32, waker: &Waker) -> Option<Interest> {
        if direction == Direction::Read {
            self.wanted = 0;
        }
        match &mut self.waiters[direction as usize] {
            first @ None => *first = Some(Waiter { name, waker: waker.clone() }),
            Some(first) if first.is(name, waker) => first.waker.clone_from(waker),
            Some(_) => self.wait_too(direction, name, waker),
        }
        let wanted = direction.interest() & self.allowed;
        if self.interest.contains(wanted) {
            return None;
        }
        self.interest |= wanted;
        Some(self.interest)
    }

    /// Has more watched for; returns the interest to tell the poller.
    pub fn ask(&mut self, more: Interest) -> Interest {
        self.interest |= more & self.allowed;
        self.interest
    }

    #[cold]
    fn wait_too(&mut self, direction: Direction, name: u32, waker: &Waker) {
        let known =
            self.more.iter_mut().find(|(other, who)| *other == direction && who.is(name, waker));
        match known {
            Some((_, known)) => known.waker.clone_from(waker),
            None => self.more.push((direction, Waiter { name, waker: waker.clone() })),
        }
    }

    /// Who waits to read wants so many bytes, and has them read by the engine.
    pub fn want(&mut self, bytes: u16, fetched: &Arc<Fetched>) {
        self.wanted = bytes;
        if self.fetched.is_none() {
            self.fetched = Some(fetched.clone());
        }
    }

    /// How many bytes to read now for who waits; or whom to wake, if it is somebody else now.
    #[inline]
    pub fn fetch(&mut self) -> Result<u16, Woken> {
        self.is_fetchable = false;
        self.asked = self.wanted;
        if self.wanted > 0 { Ok(self.wanted) } else { Err(self.leave_read()) }
    }

    /// Who waits had better read: whom to wake.
    pub fn leave_read(&mut self) -> Woken {
        self.is_fetchable = false;
        let mut woken = Woken::default();
        self.take_waiters(Direction::Read, &mut woken);
        woken
    }

    /// What was read for who waits, and whom to wake. An outcome of less than was wanted says that there was no
    /// more then.
    pub fn put(&mut self, outcome: Result<Vec<u8>, io::Error>) -> Woken {
        let (tick, wanted) = (self.tick, self.asked as usize);
        match &outcome {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Somebody has read it meanwhile, and waits on.
                self.clear(Direction::Read, tick);
                return Woken::default();
            }
            // What waits for the end finds it by itself.
            Ok(bytes) if bytes.is_empty() => return self.leave_read(),
            Ok(bytes) if bytes.len() < wanted => self.drained(Direction::Read, tick),
            _ => {}
        }
        if let Some(fetched) = &self.fetched {
            fetched.put(outcome);
        }
        self.leave_read()
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
            outcome.is_fetchable = !std::mem::replace(&mut self.is_fetchable, true);
            return outcome;
        }
        let (mut wanted, mut nobody) = (Interest::NONE, false);
        for direction in Direction::ALL {
            let is_reported = reported & direction.bit() != 0;
            if self.waiters[direction as usize].is_some() {
                wanted |= direction.interest() & self.allowed;
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
mod tests {
    use super::*;
    use superpoll::{Events, Poller};

    fn waker() -> Waker {
        Waker::noop().clone()
    }

    /// A source that waits to be read, as a first wait makes it.
    fn source(mode: Mode) -> Source {
        let mut poller = Poller::new().unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        let watch = Watch::new(Direction::Read.interest() & allowed(mode)).mode(mode);
        let key = poller.register(&reader, watch).unwrap();
        let mut sources = Sources::default();
        sources.add(key, 7, watch, ALL_READY & !Direction::Read.bit());
        assert_eq!(sources.len(), 1);
        *sources.remove(key).unwrap()
    }

    const READ: Direction = Direction::Read;
    const WRITE: Direction = Direction::Write;

    #[test]
    fn a_report_makes_ready_and_wakes_who_waits_for_it() {
        let mut source = source(Mode::Auto);
        assert_eq!(source.try_now(READ), None);
        assert_eq!(source.wait(READ, NOBODY, &waker()), None, "it is watched already");
        let wider = Interest::READABLE | Interest::READ_CLOSED | Interest::WRITABLE;
        assert_eq!(source.wait(WRITE, NOBODY, &waker()), Some(wider));
        let outcome = source.report(Readiness::READABLE);
        assert!(outcome.woken.first.is_some() && outcome.woken.more.is_empty());
        assert!(
            source.waiters[READ as usize].is_none() && source.waiters[WRITE as usize].is_some()
        );
        assert_eq!(outcome.narrow, None);
        assert_eq!(source.try_now(READ), Some(1));
        source.clear(READ, 1);
        assert_eq!(source.try_now(READ), None);
    }

    #[test]
    fn a_clear_that_is_older_than_the_last_report_has_no_effect() {
        let mut source = source(Mode::Auto);
        source.report(Readiness::READABLE);
        let tick = source.try_now(READ).unwrap();
        source.report(Readiness::READABLE);
        source.clear(READ, tick);
        source.drained(READ, tick);
        let now = source.try_now(READ).unwrap();
        assert_ne!(now, tick);
        source.drained(READ, now);
        assert_eq!(source.try_now(READ), None);
    }

    #[test]
    fn the_end_outlasts_a_short_count_but_not_a_refused_operation() {
        for (readiness, directions) in [
            (Readiness::READ_CLOSED, vec![READ]),
            (Readiness::HANG_UP, vec![READ, WRITE]),
            (Readiness::ERROR, vec![READ, WRITE]),
        ] {
            let mut source = source(Mode::Auto);
            source.report(readiness);
            for direction in directions {
                let tick = source.try_now(direction).unwrap();
                source.drained(direction, tick);
                assert_eq!(source.try_now(direction), Some(tick), "{readiness:?}");
                source.clear(direction, tick);
                assert_eq!(source.try_now(direction), None, "{readiness:?}");
            }
        }
    }

    #[test]
    fn all_is_there_once_a_clean_end_was_reported_and_nothing_urgent() {
        let end = Readiness::READABLE | Readiness::READ_CLOSED;
        let mut plain = source(Mode::Auto);
        plain.report(end);
        assert!(!plain.has_all(), "nobody has looked for urgent bytes");
        let asking = || {
            let mut source = source(Mode::Auto);
            assert!(
                source.ask(Interest::PRIORITY).contains(Interest::PRIORITY | Interest::READABLE)
            );
            source
        };
        for (readiness, has_all) in [
            (Readiness::READABLE, false),
            (end, true),
            (end | Readiness::WRITABLE, true),
            (end | Readiness::PRIORITY, false),
            (end | Readiness::ERROR, false),
            (end | Readiness::HANG_UP, false),
        ] {
            let mut source = asking();
            source.report(readiness);
            assert_eq!(source.has_all(), has_all, "{readiness:?}");
        }
        let mut source = asking();
        source.report(end);
        source.drained(READ, 1);
        assert!(source.has_all(), "an end stays");
        source.clear(READ, 1);
        assert!(!source.has_all(), "it was none");
        // What is urgent and nobody's is not watched for ever, and from then on nothing is sure.
        let mut source = asking();
        source.wait(READ, NOBODY, &waker());
        source.report(Readiness::PRIORITY);
        let narrow = source.report(Readiness::PRIORITY).narrow;
        assert_eq!(narrow, Some(Interest::READABLE | Interest::READ_CLOSED));
        source.report(end);
        assert!(!source.has_all());
    }

    #[test]
    fn a_direction_is_given_up_when_it_was_reported_twice_to_nobody() {
        let mut source = source(Mode::Auto);
        source.wait(READ, NOBODY, &waker());
        let read = Interest::READABLE | Interest::READ_CLOSED;
        source.wait(WRITE, NOBODY, &waker());
        source.report(Readiness::WRITABLE);
        assert_eq!(source.report(Readiness::WRITABLE).narrow, Some(read));
        assert_eq!(source.wait(WRITE, NOBODY, &waker()), Some(read | Interest::WRITABLE));
        // Tried in between: somebody takes care of it.
        source.report(Readiness::READABLE);
        source.try_now(READ);
        assert_eq!(source.report(Readiness::READABLE).narrow, None);
        assert_eq!(source.report(Readiness::READABLE).narrow, Some(Interest::WRITABLE));
        source.report(Readiness::HANG_UP);
        assert_eq!(source.report(Readiness::HANG_UP).narrow, Some(Interest::NONE));
    }

    #[test]
    fn an_exclusive_registration_asks_for_nothing_the_kernel_refuses() {
        let mut source = source(Mode::Exclusive);
        assert_eq!(source.wait(READ, NOBODY, &waker()), None);
        let both = Interest::READABLE | Interest::WRITABLE;
        assert_eq!(source.wait(WRITE, NOBODY, &waker()), Some(both));
        source.report(Readiness::READABLE);
        assert_eq!(source.report(Readiness::READABLE).narrow, Some(Interest::WRITABLE));
    }

    #[test]
    fn a_refusal_is_told_once_and_wakes_all() {
        let mut source = source(Mode::Auto);
        source.wait(READ, NOBODY, &waker());
        source.wait(WRITE, NOBODY, &waker());
        let woken = source.refuse(io::ErrorKind::StorageFull.into());
        assert_eq!((woken.first.is_some(), woken.more.len()), (true, 1));
        assert!(source.try_now(READ).is_some() && source.try_now(WRITE).is_some());
        assert_eq!(source.take_refusal().unwrap().kind(), io::ErrorKind::StorageFull);
        assert!(source.take_refusal().is_none());
    }

    #[test]
    fn a_hand_over_wakes_who_waits_and_is_remembered_for_who_does_not() {
        let mut source = source(Mode::Auto);
        assert!(source.hand_over(READ).is_none());
        let tick = source.try_now(READ).unwrap();
        source.clear(READ, tick);
        source.wait(READ, NOBODY, &waker());
        assert!(source.hand_over(READ).unwrap().first.is_some());
        assert!(source.hand_over(READ).is_none(), "nobody is left");
    }

    #[test]
    fn who_gives_up_leaves_the_others_waiting() {
        for (gone, left) in [(1, 2), (2, 1)] {
            let mut source = source(Mode::Auto);
            // Two waits of one task, and somebody by hand, twice.
            for name in [1, 2, NOBODY] {
                source.wait(READ, name, &waker());
                source.wait(READ, name, &waker());
            }
            source.wait(WRITE, gone, &waker());
            assert_eq!(source.more.len(), 2);
            assert!(source.give_up(READ, gone).is_some());
            assert!(source.give_up(READ, gone).is_none());
            let mut names: Vec<_> = source.more.iter().map(|(_, who)| who.name).collect();
            names.extend(source.waiters[READ as usize].as_ref().map(|who| who.name));
            names.sort_unstable();
            assert_eq!(names, [NOBODY, left]);
            let woken = source.report(Readiness::READABLE).woken;
            assert_eq!((woken.first.is_some(), woken.more.len()), (true, 1));
            assert!(source.waiters[WRITE as usize].is_some());
            assert!(source.give_up(WRITE, gone).is_some());
            assert!(source.waiters[WRITE as usize].is_none());
        }
    }

    /// A source whose reader wants ten bytes and has them read.
    fn wanting(name: u32) -> (Source, Arc<Fetched>) {
        let mut source = source(Mode::Auto);
        let fetched = Arc::default();
        source.wait(READ, name, &waker());
        source.want(10, &fetched);
        (source, fetched)
    }

    #[test]
    fn who_waits_for_bytes_has_them_read_and_is_woken_then() {
        let blocked = || Err(io::ErrorKind::WouldBlock.into());
        for (bytes, is_ready) in [(10, true), (9, false)] {
            let (mut source, fetched) = wanting(NOBODY);
            let outcome = source.report(Readiness::READABLE);
            assert!(outcome.is_fetchable && outcome.woken.first.is_none());
            assert!(!source.report(Readiness::READABLE).is_fetchable, "it is noted already");
            assert_eq!(source.fetch().ok(), Some(10));
            assert!(source.put(Ok(vec![0; bytes])).first.is_some());
            assert_eq!(fetched.take_all().len(), bytes);
            assert_eq!(source.try_now(READ).is_some(), is_ready, "{bytes}");
        }
        // Read by somebody else meanwhile: there is nothing to be woken for.
        let (mut source, fetched) = wanting(NOBODY);
        source.report(Readiness::READABLE);
        assert_eq!(source.fetch().ok(), Some(10));
        assert!(source.put(blocked()).first.is_none() && !fetched.is_full());
        assert!(source.try_now(READ).is_none() && source.waiters[READ as usize].is_some());
        assert!(source.report(Readiness::READABLE).is_fetchable, "the next arrival is heard of");
        // The end is found by who waits, and so is what is more than bytes.
        assert_eq!(source.fetch().ok(), Some(10));
        assert!(source.put(Ok(Vec::new())).first.is_some() && !fetched.is_full());
        let (mut source, _) = wanting(NOBODY);
        let both = Readiness::READABLE | Readiness::HANG_UP;
        source.report(Readiness::READABLE);
        assert!(source.report(both).woken.first.is_some(), "woken at once");
        assert!(source.fetch().is_err_and(|woken| woken.first.is_none()), "nobody is left");
    }

    #[test]
    fn who_waits_for_less_than_bytes_is_woken_instead() {
        let (mut source, _) = wanting(1);
        source.report(Readiness::READABLE);
        source.wait(READ, 2, &waker());
        assert!(source.fetch().is_err_and(|woken| woken.more.len() == 1), "both");
        let (mut source, _) = wanting(1);
        source.report(Readiness::READABLE);
        source.wait(READ, 2, &waker());
        source.want(5, &Arc::default());
        source.give_up(READ, 1);
        assert!(source.fetch().is_err_and(|woken| woken.first.is_some()), "who is left");
    }

    #[test]
    fn a_key_of_another_generation_finds_nothing() {
        let mut poller = Poller::new().unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        let mut sources = Sources::default();
        let old = poller.register(&reader, Interest::READABLE).unwrap();
        sources.add(old, 1, Watch::new(Interest::READABLE), 0);
        assert!(sources.remove(old).is_some() && sources.remove(old).is_none());
        poller.deregister(old).unwrap();
        let mut events = Events::with_limit(1);
        poller.wait(&mut events, Some(std::time::Duration::ZERO)).unwrap();
        let new = poller.register(&reader, Interest::READABLE).unwrap();
        assert!(new != old && new.index() == old.index());
        sources.add(new, 1, Watch::new(Interest::READABLE), 0);
        assert!(sources.get(old).is_none() && sources.remove(old).is_none());
        assert!(sources.get(new).is_some() && sources.len() == 1);
        assert_eq!(sources.take_all().iter().flatten().count(), 1);
        assert_eq!(sources.len(), 0);
    }
}
