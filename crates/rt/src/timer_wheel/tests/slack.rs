//! The wake-ups that the wheel asks for with a slack, compared with a plain list of the timers, in
//! a loop whose clock the test moves.

use proptest::prelude::*;

use super::super::*;
use super::{SECOND, Stage, TICK};

const MS: u128 = SECOND / 1000;

/// The tick that ends last within a slack of one millisecond.
const SLACK: u128 = MS / TICK * TICK;

fn at(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap())
}

fn tick_after(time: u128) -> u128 {
    time.div_ceil(TICK) * TICK
}

fn next_wake(stage: &Stage) -> Option<u128> {
    stage.wheel.next_wake().map(|wake| wake.duration_since(stage.origin).as_nanos())
}

/// Wakes up whenever the wheel asks for it. Returns when, and the timers that fired then.
fn run(stage: &mut Stage) -> Vec<(u128, Vec<usize>)> {
    let mut wakes = Vec::new();
    while let Some(wake) = next_wake(stage) {
        wakes.push((wake, stage.advance(wake)));
    }
    wakes
}

#[test]
fn a_timer_alone_is_on_time_and_those_of_the_slack_after_it_fire_together() {
    let mut stage = Stage::with_slack(at(MS));
    let first = tick_after(5 * MS);
    for (number, after) in [0, TICK, MS / 2, SLACK, SLACK + TICK, 3 * MS].into_iter().enumerate() {
        stage.insert(number, first + after);
    }
    let expected = [
        (first, vec![0]),
        (first + SLACK, vec![1, 2, 3]),
        (first + 2 * SLACK, vec![4]),
        (tick_after(first + 3 * MS), vec![5]),
    ];
    assert_eq!(run(&mut stage), expected);
}

#[test]
fn an_interval_of_the_slack_is_on_time_even_if_the_thread_is_not() {
    let mut stage = Stage::with_slack(at(MS));
    for number in 1..100 {
        stage.insert(number as usize, number * MS);
        assert_eq!(next_wake(&stage), Some(tick_after(number * MS)), "tick {number}");
        assert_eq!(stage.advance(number * MS + 60_000), [number as usize]);
    }
}

#[test]
fn a_turn_for_another_reason_fires_what_is_due_and_puts_off_nothing() {
    let mut stage = Stage::with_slack(at(MS));
    stage.insert(0, TICK);
    assert_eq!(stage.advance(TICK), [0]);
    stage.insert(1, 10 * TICK);
    stage.insert(2, 50 * TICK);
    assert_eq!(next_wake(&stage), Some(TICK + SLACK));
    assert_eq!(stage.advance(20 * TICK), [1]);
    assert_eq!(next_wake(&stage), Some(TICK + SLACK), "not a slack after that turn");
    assert_eq!(stage.advance(TICK + SLACK), [2]);
}

#[test]
fn a_slack_of_less_than_two_ticks_is_none() {
    for slack in [0, 1, TICK, 2 * TICK - 1] {
        let mut stage = Stage::with_slack(at(slack));
        assert_eq!(stage.wheel.slack(), Duration::ZERO);
        let ticks = [1, 2, 3, 5].map(|tick| tick * TICK);
        for (number, deadline) in ticks.into_iter().enumerate() {
            stage.insert(number, deadline);
        }
        let wakes: Vec<u128> = run(&mut stage).into_iter().map(|(wake, _)| wake).collect();
        assert_eq!(wakes, ticks, "{slack}");
    }
}

#[test]
fn the_longest_slack_waits_for_other_events() {
    let mut stage = Stage::with_slack(Duration::MAX);
    stage.insert(0, MS);
    stage.insert(1, 2 * MS);
    assert_eq!(stage.advance(next_wake(&stage).unwrap()), [0]);
    assert!(next_wake(&stage).is_none_or(|wake| wake > 1_000_000_000 * SECOND));
    assert_eq!(stage.advance(3 * MS), [1]);
}

#[test]
fn the_slack_outlives_the_timers() {
    let mut stage = Stage::with_slack(at(MS));
    stage.insert(0, SECOND);
    assert_eq!(stage.wheel.take_all().len(), 1);
    assert_eq!(stage.wheel.slack(), at(SLACK));
}

/// A step of the loop. Timers are chosen by number, modulo how many there ever were.
#[derive(Clone, Debug)]
enum Step {
    Insert(u128),
    /// Sets a timer whose time is over.
    InsertPast(u128),
    Cancel(usize),
    Reset(usize, u128),
    ResetPast(usize, u128),
    /// Waits, and is woken by an event so much later.
    Event(u128),
    /// Waits, and runs so much later than it was woken by a timer.
    Delay(u128),
    /// Runs tasks for so long before it waits again.
    Busy(u128),
}

fn distance() -> impl Strategy<Value = u128> {
    prop_oneof![
        4 => 0..3 * MS,
        2 => (0..40u128).prop_map(|ticks| ticks * TICK),
        2 => 0..100 * MS,
        1 => 0..1_000_000 * MS,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => distance().prop_map(Step::Insert),
        1 => distance().prop_map(Step::InsertPast),
        3 => any::<usize>().prop_map(Step::Cancel),
        3 => (any::<usize>(), distance()).prop_map(|(which, after)| Step::Reset(which, after)),
        1 => (any::<usize>(), distance()).prop_map(|(which, ago)| Step::ResetPast(which, ago)),
        4 => distance().prop_map(Step::Event),
        1 => (0..200_000u128).prop_map(Step::Delay),
        1 => distance().prop_map(Step::Busy),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Timer {
    key: TimerKey,
    /// Its deadline, or when it was set if that is later.
    due: u128,
    /// Whether it has neither fired nor been cancelled.
    is_set: bool,
    /// The number of timers that were set before it.
    order: usize,
}

/// A loop with a wheel, and a list of its timers.
struct Loop {
    stage: Stage,
    slack: u128,
    timers: Vec<Timer>,
    /// How often a timer was set, first or again.
    set: usize,
    /// How long the next wake-up for a timer takes.
    delay: u128,
    /// The times for which wake-ups for timers were asked.
    wakes: Vec<u128>,
}

impl Loop {
    fn new(slack: u128) -> Loop {
        let stage = Stage::with_slack(at(slack));
        Loop { stage, slack, timers: Vec::new(), set: 0, delay: 0, wakes: Vec::new() }
    }

    /// The most that a timer may be late if the loop can run.
    fn bound(&self) -> u128 {
        self.slack.max(TICK)
    }

    fn insert(&mut self, deadline: u128) {
        let number = self.timers.len();
        let key = self.stage.insert(number, deadline);
        let due = deadline.max(self.stage.now);
        self.timers.push(Timer { key, due, is_set: true, order: self.set });
        self.set += 1;
    }

    fn cancel(&mut self, which: usize) {
        let Some(which) = which.checked_rem(self.timers.len()) else { return };
        let timer = &mut self.timers[which];
        assert_eq!(self.stage.wheel.cancel(timer.key).is_some(), timer.is_set);
        timer.is_set = false;
    }

    fn reset(&mut self, which: usize, deadline: u128) {
        let Some(which) = which.checked_rem(self.timers.len()) else { return };
        let timer = self.timers[which];
        let instant = self.stage.instant(deadline);
        assert_eq!(self.stage.wheel.reset(timer.key, instant), timer.is_set);
        let due = deadline.max(self.stage.now);
        // A timer that stays in its tick keeps its place among those of the tick.
        let moves = tick_after(due) != tick_after(timer.due);
        let order = if moves { self.set } else { timer.order };
        self.timers[which] = Timer { due, order, ..timer };
        self.set += 1;
    }

    /// The loop runs at `now`, and could last have run at `could`.
    fn turn(&mut self, now: u128, could: u128) {
        let fired = self.stage.advance(now);
        for &number in &fired {
            let timer = &mut self.timers[number];
            assert!(timer.is_set, "{number} fires once, and not if it was cancelled");
            timer.is_set = false;
            assert!(timer.due <= now, "{number} is {} ns early", timer.due - now);
            let late = could.saturating_sub(self.timers[number].due);
            assert!(late <= self.bound(), "{number} is {late} ns late");
        }
        let tick = |number: &usize| self.timers[*number].due.div_ceil(TICK);
        assert!(fired.iter().map(tick).is_sorted(), "{fired:?} by their deadlines");
        let left = self.timers.iter().filter(|timer| timer.is_set);
        let due = left.filter(|timer| tick_after(timer.due) <= now).count();
        assert_eq!(due, 0, "a turn leaves no timer that is due");
    }

    /// Notes a wake-up for timers.
    fn note(&mut self, wake: u128) {
        // Less than two ticks are no slack.
        if let Some(last) = self.wakes.last().filter(|_| self.slack >= 2 * TICK) {
            assert!(wake + TICK > last + self.slack, "{} ns after the last", wake - last);
        }
        self.wakes.push(wake);
    }

    /// The wheel asks for no wake-up later than it may, nor than it has to.
    fn check(&self) {
        let left = self.timers.iter().filter(|timer| timer.is_set);
        let earliest = left.map(|timer| tick_after(timer.due)).min();
        let Some(earliest) = earliest else { return };
        let hold = self.wakes.last().map_or(0, |last| last + self.slack);
        let wake = next_wake(&self.stage).expect("a timer is set");
        assert!(wake <= earliest.max(hold), "{wake}, {earliest}, {hold}");
    }

    /// Lets the loop wait, until an event comes at `end`.
    fn wait(&mut self, end: u128) {
        while let Some(wake) = next_wake(&self.stage).filter(|&wake| wake <= end) {
            let could = self.stage.now.max(wake);
            self.note(wake);
            let delay = mem::take(&mut self.delay);
            self.turn(could + delay, could);
            self.check();
        }
        if end > self.stage.now {
            self.turn(end, end);
        }
    }

    /// Lets tasks run until `end`, after which the loop looks for events without a wait.
    fn be_busy(&mut self, end: u128) {
        let could = self.stage.now;
        if let Some(wake) = next_wake(&self.stage).filter(|&wake| wake <= end) {
            self.note(wake);
            self.turn(end, could.max(wake));
        } else {
            self.turn(end, end);
        }
    }

    fn step(&mut self, step: Step) {
        let now = self.stage.now;
        match step {
            Step::Insert(after) => self.insert(now + after),
            Step::InsertPast(ago) => self.insert(now.saturating_sub(ago)),
            Step::Cancel(which) => self.cancel(which),
            Step::Reset(which, after) => self.reset(which, now + after),
            Step::ResetPast(which, ago) => self.reset(which, now.saturating_sub(ago)),
            Step::Event(after) => self.wait(now + after),
            Step::Delay(time) => self.delay = time,
            Step::Busy(time) => self.be_busy(now + time),
        }
    }
}

fn slack() -> impl Strategy<Value = u128> {
    prop_oneof![
        2 => Just(0),
        1 => 0..4 * TICK,
        4 => Just(MS),
        2 => 0..50 * MS,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn none_is_early_none_later_than_the_slack_and_wake_ups_are_few(
        slack in slack(),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut tested = Loop::new(slack);
        for step in steps {
            tested.step(step);
            tested.check();
        }
        tested.wait(1 << 80);
        prop_assert_eq!(tested.stage.wheel.len(), 0);
        prop_assert!(tested.wakes.len() <= tested.set, "each has a timer, or one that was moved");
    }

    #[test]
    fn many_timers_take_one_wake_up_for_each_slack(
        slack in MS / 4..20 * MS,
        span in MS..500 * MS,
        timers in 1..2000usize,
        seed in any::<u64>(),
    ) {
        let mut tested = Loop::new(slack);
        let mut random = u128::from(seed | 1);
        for _ in 0..timers {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1) % (1 << 64);
            tested.insert(100 * MS + (random >> 16) % span);
        }
        tested.wait(1 << 80);
        let most = span / (slack / TICK * TICK) + 2;
        prop_assert!(tested.wakes.len() as u128 <= most, "{} of {most}", tested.wakes.len());
    }
}
