//! Timers that are late after a pause.
//!
//! A thread can be stopped at any moment: by `SIGSTOP`, with its virtual machine, or because a task
//! has computed for long. When it runs again, timers are due *and* bytes have arrived that those
//! timers were set to limit the wait for. Firing the timers first would throw away the bytes that
//! have arrived: an interrupted wait has reported nothing, a wait reports only a limited number of
//! events, and the bytes that one task has read may still have to pass through other tasks.
//!
//! So a late timer is held back until the loop has caught up: until a wait that began after the
//! loop noticed the lateness has reported all that is ready, and the tasks that were due then have
//! run. That is done twice, for tasks that are woken by tasks. Everything here is bounded, so that
//! a loop that is always busy fires its timers too: the number of waits by the number of
//! descriptors, and the tasks by how many were due.

use std::time::Duration;

/// A timer that fires this long after its deadline is late. A busy machine usually stays below it.
pub(crate) const LATE_AFTER: Duration = Duration::from_millis(10);

/// The number of times that the tasks that are due run before late timers fire.
const PASSES: u8 = 2;

/// The number of waits that may find as much as a wait can report, plus one wait for every
/// [`SOURCES_PER_POLL`] descriptors.
const MAX_POLLS: usize = 64;
const SOURCES_PER_POLL: usize = 32;

/// The state of the loop after one of its waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopState {
    /// The number of the turn.
    pub turn: u64,
    /// Whether there may be more to report, or to read, than the wait has brought.
    pub has_more: bool,
    /// How often a task has run so far.
    pub polls: u64,
    /// The number of tasks that are due.
    pub queued: usize,
    /// Whether the future that the thread blocks on is due. It runs before the next turn.
    pub is_root_due: bool,
    /// The number of registered descriptors.
    pub sources: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum Step {
    /// Waits until a wait has reported everything.
    Poll { left: usize },
    /// Waits until tasks were run this many times.
    RunTasks { until: u64 },
    #[default]
    Fire,
}

/// Whether late timers may fire.
#[derive(Debug, Default)]
pub(crate) struct LateTimers {
    step: Step,
    passes: u8,
    /// The turn of the last call.
    turn: u64,
}

impl LateTimers {
    /// Returns whether timers that are late may fire now, after a turn's wait. Ask in each turn, as
    /// long as any are.
    pub(crate) fn may_fire(&mut self, state: LoopState) -> bool {
        let goes_on = state.turn == self.turn + 1 && !matches!(self.step, Step::Fire);
        self.turn = state.turn;
        if !goes_on {
            // The wait that has just ended may have ended before the pause.
            self.step = Step::Poll { left: MAX_POLLS + state.sources / SOURCES_PER_POLL };
            self.passes = PASSES;
            return false;
        }
        if let Step::RunTasks { until } = self.step
            && state.polls < until
        {
            return false;
        }
        match &mut self.step {
            Step::Poll { left } if state.has_more && *left > 0 => *left -= 1,
            _ if self.passes > 0 && (state.queued > 0 || state.is_root_due) => {
                self.passes -= 1;
                self.step = Step::RunTasks { until: state.polls + state.queued as u64 };
            }
            _ => self.step = Step::Fire,
        }
        matches!(self.step, Step::Fire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_rest(turn: u64) -> LoopState {
        LoopState { turn, has_more: false, polls: 0, queued: 0, is_root_due: false, sources: 0 }
    }

    /// A loop that asks in each of its turns. Returns the number of turns that it took.
    fn turns(late: &mut LateTimers, from: u64, mut state: impl FnMut(u64, &mut LoopState)) -> u64 {
        for nth in 0.. {
            let mut now = LoopState { turn: from + nth, ..at_rest(from) };
            state(nth, &mut now);
            if late.may_fire(now) {
                return nth;
            }
            assert!(nth < 10_000, "late timers fire after all");
        }
        unreachable!()
    }

    #[test]
    fn with_nothing_to_do_one_more_wait_is_enough() {
        let mut late = LateTimers::default();
        assert_eq!(turns(&mut late, 7, |_, _| {}), 1);
        assert_eq!(turns(&mut late, 9, |_, _| {}), 1, "each pause has a wait of its own");
    }

    #[test]
    fn tasks_run_that_a_wait_has_woken_and_those_that_they_wake() {
        // 300 tasks at 128 a turn, each of which wakes another task.
        let (mut polls, mut queued) = (0, 300);
        let took = turns(&mut LateTimers::default(), 1, |nth, state| {
            if nth > 0 {
                let ran = queued.min(128);
                polls += ran;
                queued += if polls <= 300 { 0 } else { ran };
                queued -= ran;
            }
            (state.polls, state.queued) = (polls, queued as usize);
        });
        assert!(polls >= 300 && took >= 3, "{polls} in {took}");
    }

    #[test]
    fn a_loop_that_never_rests_fires_its_timers() {
        let mut polls = 0;
        let took = turns(&mut LateTimers::default(), 1, |_, state| {
            polls += 128;
            *state = LoopState { has_more: true, polls, queued: 128, sources: 3200, ..*state };
        });
        assert!(took <= (MAX_POLLS + 3200 / SOURCES_PER_POLL) as u64 + 4, "{took}");
    }

    #[test]
    fn a_pause_that_was_over_without_a_timer_is_forgotten() {
        let mut late = LateTimers::default();
        assert!(!late.may_fire(at_rest(3)));
        assert!(!late.may_fire(at_rest(20)), "another pause, with a wait of its own");
        assert!(late.may_fire(at_rest(21)));
    }

    #[test]
    fn the_future_that_the_thread_blocks_on_runs_like_a_task() {
        let mut late = LateTimers::default();
        let took = turns(&mut late, 1, |nth, state| state.is_root_due = nth == 1);
        assert_eq!(took, 2);
        let took = turns(&mut late, 9, |_, state| state.is_root_due = true);
        assert_eq!(took, 1 + u64::from(PASSES), "it is not waited for without end");
    }
}
