//! Looks for urgent bytes, on a poller that cannot report them.
//!
//! A read of a stream that gives less than it has room for has drained the stream, or has ended at an
//! urgent byte with more bytes behind it. On a ring each arrival looks like an urgent byte
//! ([`ShortReads::Checked`](crate::short_reads::ShortReads::Checked)), so the engine has to ask the
//! socket. A call after each short read takes 280 ns where the read itself takes 650 (AMD EPYC, Linux
//! 6.18), for an answer that hardly ever says yes.
//!
//! So the engine takes the stream for drained, remembers it, and asks about all such streams together,
//! with one `poll`, at most once in [`PERIOD`]: a stream that was read a hundred times in between is
//! asked about once. An engine that has not asked for that long asks before it sleeps. Otherwise it
//! sets a timer, once for all sleeps of a period: a limit of its own for each of them would cost more
//! than the call that is saved.
//!
//! So bytes behind an urgent byte come up to [`PERIOD`] late, and nothing is lost. If more bytes arrive
//! earlier, the arrival makes the task read them all.

use std::cell::{Cell, RefCell};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use superpoll::{Interest, Key, Mode, Watch};

use super::Engine;
use crate::sources::{Direction, Source};
use crate::sys;
use crate::sys::timer::Timer;

/// The time between two checks.
const PERIOD: Duration = Duration::from_millis(10);

/// An engine that does not sleep considers a check after this many turns.
const TURNS: u32 = 64;

/// A longer list is not kept for its room.
const KEPT: usize = 1024;

/// The streams that have been read and not checked.
#[derive(Debug, Default)]
pub(super) struct UncheckedStreams {
    keys: RefCell<Vec<Key>>,
    last_check: Cell<Option<Instant>>,
    turns: Cell<u32>,
    timer: RefCell<Option<(Timer, Key)>>,
    is_armed: Cell<bool>,
}

/// The next step before a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NextStep {
    Nothing,
    Check,
    SetTimer,
}

impl UncheckedStreams {
    #[inline]
    fn is_empty(&self) -> bool {
        self.keys.borrow().is_empty()
    }

    /// Returns what to do about the streams before a wait, which may block or not.
    fn next_step(&self, blocks: bool, now: impl FnOnce() -> Instant) -> NextStep {
        let turns = self.turns.get() + 1;
        if self.is_armed.get() || (!blocks && turns < TURNS) {
            self.turns.set(turns.min(TURNS));
            return NextStep::Nothing;
        }
        self.turns.set(0);
        let now = now();
        let is_due = |last| now.saturating_duration_since(last) >= PERIOD;
        if self.last_check.get().is_none_or(is_due) {
            self.last_check.set(Some(now));
            return NextStep::Check;
        }
        NextStep::SetTimer
    }

    /// Gives the list back for its room, unless a burst has made it long.
    fn give_back(&self, mut keys: Vec<Key>) {
        keys.clear();
        let mut now = self.keys.borrow_mut();
        if now.is_empty() && keys.capacity() <= KEPT {
            *now = keys;
        }
    }
}

impl Engine {
    /// Remembers that a read of a stream may have ended at an urgent byte.
    #[inline]
    pub(crate) fn check_mark_later(&self, key: Key) {
        self.unchecked.keys.borrow_mut().push(key);
    }

    /// Checks the streams before a wait that blocks or not, or makes sure that the wait ends in time.
    /// Returns whether tasks may have been woken.
    #[inline]
    pub(super) fn check_marks_before_wait(&self, blocks: bool) -> bool {
        if self.unchecked.is_empty() {
            return false;
        }
        match self.unchecked.next_step(blocks, Instant::now) {
            NextStep::Nothing => return false,
            NextStep::SetTimer if self.set_check_timer() => return false,
            NextStep::Check | NextStep::SetTimer => self.check_marks(),
        }
        true
    }

    /// Sets the timer of the next check. Returns false if there is no descriptor for it.
    #[cold]
    fn set_check_timer(&self) -> bool {
        let mut timer = self.unchecked.timer.borrow_mut();
        if timer.is_none() {
            *timer = Timer::new().ok().and_then(|made| {
                let watch = Watch::new(Interest::READABLE).mode(Mode::Auto);
                let key = self.poller.borrow_mut().register(&made, watch).ok()?;
                Some((made, key))
            });
        }
        let is_set = timer.as_ref().is_some_and(|(timer, _)| timer.set(PERIOD).is_ok());
        self.unchecked.is_armed.set(is_set);
        is_set
    }

    /// Checks the streams if this event is that of the timer.
    #[cold]
    pub(super) fn handle_check_timer(&self, key: Key) {
        let is_it = self.unchecked.timer.borrow().as_ref().is_some_and(|&(_, own)| own == key);
        if is_it && self.unchecked.is_armed.replace(false) {
            self.unchecked.last_check.set(Some(Instant::now()));
            self.check_marks();
        }
    }

    /// Asks about all streams, and wakes the tasks that wait for bytes behind an urgent byte.
    #[cold]
    fn check_marks(&self) {
        let mut keys = self.unchecked.keys.take();
        let mut fds: Vec<RawFd> = Vec::with_capacity(keys.len());
        // A stream that is ready will be read anyway, and one that has ended has nothing to read.
        keys.retain(|&key| {
            let fd = self.source(key, Source::end_check).flatten();
            fds.extend(fd);
            fd.is_some()
        });
        let is_at_mark = sys::descriptor::are_at_mark(&fds);
        for (&key, _) in keys.iter().zip(is_at_mark).filter(|&(_, is_at_mark)| is_at_mark) {
            let wakers = self.source(key, |source| source.assume_ready(Direction::Read)).flatten();
            wakers.unwrap_or_default().wake();
        }
        self.unchecked.give_back(keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_checked_at_once_after_a_pause_and_by_a_timer_before() {
        let unchecked = UncheckedStreams::default();
        let start = Instant::now();
        let step = |blocks, after| unchecked.next_step(blocks, || start + after);
        assert_eq!(step(true, Duration::ZERO), NextStep::Check, "it is the first");
        assert_eq!(step(true, PERIOD / 2), NextStep::SetTimer);
        unchecked.is_armed.set(true);
        assert_eq!(step(true, PERIOD * 2), NextStep::Nothing, "the timer is set");
        unchecked.is_armed.set(false);
        assert_eq!(step(true, PERIOD), NextStep::Check);
        assert_eq!(step(true, PERIOD * 2 - Duration::from_nanos(1)), NextStep::SetTimer);
    }

    #[test]
    fn an_engine_that_never_sleeps_considers_it_now_and_then() {
        let unchecked = UncheckedStreams::default();
        for _ in 0..3 {
            for _ in 1..TURNS {
                let no_clock = || panic!("the clock is not read in each turn");
                assert_eq!(unchecked.next_step(false, no_clock), NextStep::Nothing);
            }
            let later = Instant::now() + PERIOD;
            unchecked.last_check.set(None);
            assert_eq!(unchecked.next_step(false, || later), NextStep::Check);
        }
        unchecked.is_armed.set(true);
        for _ in 0..TURNS * 2 {
            let no_clock = || panic!("the timer is set");
            assert_eq!(unchecked.next_step(false, no_clock), NextStep::Nothing);
        }
    }

    #[test]
    fn the_list_is_kept_for_its_room_unless_it_was_long() {
        let unchecked = UncheckedStreams::default();
        unchecked.give_back(Vec::with_capacity(1000));
        assert_eq!(unchecked.keys.borrow().capacity(), 1000);
        let unchecked = UncheckedStreams::default();
        unchecked.give_back(Vec::with_capacity(2000));
        assert_eq!(unchecked.keys.borrow().capacity(), 0);
    }
}
