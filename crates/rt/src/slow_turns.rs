//! How long turns of the loop take, and the work of the slowest turns.
//!
//! A turn is the time from the end of one wait to the beginning of the next, in which the engine
//! asks about no descriptor. It is always measured, with the kernel's coarse clock, which costs
//! next to nothing and moves in steps of a few milliseconds: a turn of a microsecond in which it
//! moves seems to have taken a whole step. Turns are therefore noted only if the clock has moved
//! twice. While a [`TurnWatch`](crate::TurnWatch) lives, the precise clock is read instead, and
//! every turn counts.
//!
//! Eight turns are kept since the start, and eight for each window of ten seconds, the present
//! window and the one before. A turn that is not among the slowest costs two comparisons.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use crate::sys::clock;
use crate::trace;

/// The number of turns that are kept of each period.
const KEPT: usize = 8;

/// The length of a window.
const WINDOW: Duration = Duration::from_secs(10);

/// A turn of an engine's loop that took long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SlowTurn {
    /// From the end of a wait to the beginning of the next.
    pub took: Duration,
    /// The step of the clock that it was measured with: the truth is less than this away.
    pub step: Duration,
    /// How long ago it began.
    pub ago: Duration,
    /// The number of times that a task was run.
    pub tasks: u64,
    /// The number of events that the wait before it had brought.
    pub events: u64,
    /// The number of timers that ended.
    pub timers: u64,
}

/// The work done so far, by the counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkDone {
    pub polls: u64,
    pub timers: u64,
}

/// The slowest turns of one engine.
#[derive(Debug, Default)]
pub(crate) struct SlowTurns {
    /// When the last wait ended, by the clock in use.
    since: Cell<Option<Duration>>,
    is_precise: Cell<bool>,
    /// The work that had been done by then.
    before: Cell<WorkDone>,
    longest: Cell<Duration>,
    /// A turn that took no longer than this is none of the slowest.
    threshold: Cell<Duration>,
    /// When the present window ends.
    end: Cell<Duration>,
    kept: RefCell<SlowTurnLists>,
}

#[derive(Debug, Default)]
struct SlowTurnLists {
    /// The step of the coarse clock, once it is known.
    step: Option<Duration>,
    ever: Slowest,
    now: Slowest,
    before: Slowest,
}

/// The slowest turns of a period, the slowest first. `ago` is the time at which they began. They
/// are kept in place, as a loop that has warmed up allocates nothing, however slow a turn of it is.
#[derive(Debug, Default)]
struct Slowest {
    turns: [SlowTurn; KEPT],
    count: usize,
}

impl Slowest {
    fn turns(&self) -> &[SlowTurn] {
        &self.turns[..self.count]
    }

    /// Returns the time that a turn has to exceed to be kept.
    fn threshold(&self) -> Duration {
        if self.count < KEPT { Duration::ZERO } else { self.turns[KEPT - 1].took }
    }

    fn note(&mut self, turn: SlowTurn) {
        if self.count == KEPT && turn.took <= self.threshold() {
            return;
        }
        let at = self.turns().partition_point(|kept| kept.took >= turn.took);
        self.count = (self.count + 1).min(KEPT);
        // The last turn, or an empty entry if there was room, comes round to the place and is
        // replaced.
        self.turns[at..self.count].rotate_right(1);
        self.turns[at] = turn;
    }
}

impl SlowTurns {
    /// Notes that the engine is about to wait. `events` is the number of events of the wait before.
    #[inline]
    pub(crate) fn begin_wait(&self, done: WorkDone, events: u64) {
        let Some(since) = self.since.get() else { return };
        let now = self.now();
        let took = now.saturating_sub(since);
        if took > self.threshold.get() || now >= self.end.get() {
            self.note(now, since, done, events);
        }
    }

    /// Notes that the engine has waited.
    #[inline]
    pub(crate) fn end_wait(&self, done: WorkDone, is_precise: bool) {
        if is_precise != self.is_precise.get() {
            self.is_precise.set(is_precise);
            self.update_threshold(&mut self.kept.borrow_mut());
        }
        self.before.set(done);
        self.since.set(Some(self.now()));
    }

    pub(crate) fn longest(&self) -> Duration {
        self.longest.get()
    }

    #[inline]
    fn now(&self) -> Duration {
        if self.is_precise.get() { clock::precise() } else { clock::coarse() }
    }

    #[cold]
    fn note(&self, now: Duration, since: Duration, done: WorkDone, events: u64) {
        let took = now.saturating_sub(since);
        if took > self.longest.get() {
            self.longest.set(took);
            if took > trace::LONG_TURN {
                trace::long_turn(took);
            }
        }
        let mut kept = self.kept.borrow_mut();
        self.rotate_window(&mut kept, now);
        if took > self.shortest_measurable(&mut kept) {
            let before = self.before.get();
            let step = if self.is_precise.get() { Duration::ZERO } else { kept.step() };
            let (tasks, timers) = (done.polls - before.polls, done.timers - before.timers);
            let turn = SlowTurn { took, step, ago: since, tasks, events, timers };
            kept.ever.note(turn);
            kept.now.note(turn);
        }
        self.update_threshold(&mut kept);
    }

    /// Returns the shortest time that the clock in use can tell to be a turn.
    fn shortest_measurable(&self, kept: &mut SlowTurnLists) -> Duration {
        if self.is_precise.get() { Duration::ZERO } else { kept.step() * 3 / 2 }
    }

    /// Moves on to the present window.
    fn rotate_window(&self, kept: &mut SlowTurnLists, now: Duration) {
        let end = self.end.get();
        if now < end {
            return;
        }
        let last = std::mem::take(&mut kept.now);
        kept.before = if now < end + WINDOW { last } else { Slowest::default() };
        self.end.set(now + WINDOW);
    }

    /// Sets the bar above which a turn is one of the slowest.
    fn update_threshold(&self, kept: &mut SlowTurnLists) {
        let slowest =
            kept.ever.threshold().min(kept.now.threshold()).max(self.shortest_measurable(kept));
        self.threshold.set(slowest.min(self.longest.get()));
    }

    /// Returns the slowest turns since the start, and those of the last ten to twenty seconds.
    pub(crate) fn slowest(&self) -> (Vec<SlowTurn>, Vec<SlowTurn>) {
        let mut kept = self.kept.borrow_mut();
        let now = clock::precise();
        self.rotate_window(&mut kept, now);
        self.update_threshold(&mut kept);
        let with_age = |turn: &SlowTurn| SlowTurn { ago: now.saturating_sub(turn.ago), ..*turn };
        let mut lately = Slowest::default();
        kept.now.turns().iter().chain(kept.before.turns()).for_each(|turn| lately.note(*turn));
        (
            kept.ever.turns().iter().map(with_age).collect(),
            lately.turns().iter().map(with_age).collect(),
        )
    }
}

impl SlowTurnLists {
    fn step(&mut self) -> Duration {
        *self.step.get_or_insert_with(clock::coarse_step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(millis: u64) -> SlowTurn {
        SlowTurn { took: Duration::from_millis(millis), ..SlowTurn::default() }
    }

    #[test]
    fn of_all_turns_the_slowest_are_kept_in_order() {
        let mut slowest = Slowest::default();
        for millis in [5, 1, 9, 3, 7, 2, 8, 6, 4, 10, 1, 11] {
            slowest.note(turn(millis));
        }
        let took: Vec<u128> = slowest.turns().iter().map(|turn| turn.took.as_millis()).collect();
        assert_eq!(took, [11, 10, 9, 8, 7, 6, 5, 4]);
        assert_eq!(slowest.threshold(), Duration::from_millis(4));
    }

    /// Turns whose clock is set by hand.
    fn note(turns: &SlowTurns, at: Duration, took: Duration, tasks: u64) {
        let done = turns.before.get();
        let done = WorkDone { polls: done.polls + tasks, timers: done.timers + 1 };
        turns.note(at + took, at, done, 3);
        turns.before.set(done);
    }

    #[test]
    fn a_window_ends_and_the_slowest_turns_stay() {
        let turns = SlowTurns::default();
        turns.is_precise.set(true);
        let start = clock::precise() - 3 * WINDOW;
        note(&turns, start, Duration::from_millis(50), 7);
        for nth in 1..=20 {
            note(&turns, start + Duration::from_millis(100 * nth), Duration::from_micros(nth), 1);
        }
        // The bar is that of the window and of the start, which are the same so far.
        assert_eq!(turns.threshold.get(), Duration::from_micros(14));
        note(&turns, start + WINDOW * 2, Duration::from_micros(2), 1);
        assert_eq!(turns.threshold.get(), Duration::ZERO, "a window begins with all of its turns");
        note(&turns, clock::precise(), Duration::from_micros(3), 2);
        let (ever, lately) = turns.slowest();
        assert_eq!((ever.len(), ever[0].took), (KEPT, Duration::from_millis(50)));
        assert_eq!((ever[0].tasks, ever[0].events, ever[0].timers), (7, 3, 1));
        assert!(ever[0].ago >= WINDOW * 3 && ever[0].step == Duration::ZERO);
        let took: Vec<Duration> = lately.iter().map(|turn| turn.took).collect();
        assert_eq!(took, [Duration::from_micros(3), Duration::from_micros(2)]);
        assert_eq!(turns.longest(), Duration::from_millis(50));
    }

    #[test]
    fn one_step_of_the_coarse_clock_says_nothing_and_two_do() {
        let turns = SlowTurns::default();
        let (step, start) = (clock::coarse_step(), clock::coarse());
        assert!(step > Duration::ZERO && step <= Duration::from_millis(10), "{step:?}");
        note(&turns, start, step, 1);
        assert_eq!(turns.slowest().0, []);
        assert_eq!(turns.longest(), step);
        note(&turns, start, step * 2, 1);
        let (ever, lately) = turns.slowest();
        assert_eq!((ever.len(), lately.len(), ever[0].step), (1, 1, step));
        assert!(ever[0].took == step * 2 && turns.threshold.get() >= step);
    }
}
