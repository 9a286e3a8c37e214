//! The wheel, compared with a list of the expected events, at every level and in random order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::Wake;

use proptest::prelude::*;

use super::*;

mod slack;

const TICK: u128 = 1 << TICK_BITS;
const SECOND: u128 = 1_000_000_000;

/// A waker that writes down its number.
struct Named {
    number: usize,
    log: Arc<Mutex<Vec<usize>>>,
}

impl Wake for Named {
    fn wake(self: Arc<Self>) {
        self.log.lock().unwrap().push(self.number);
    }
}

/// A wheel and its clock, in nanoseconds after its origin.
pub(super) struct Stage {
    pub wheel: Wheel,
    pub origin: Instant,
    pub now: u128,
    log: Arc<Mutex<Vec<usize>>>,
}

impl Stage {
    /// A wheel that asks for a wake-up at each tick with a timer.
    fn new() -> Stage {
        Stage::with_slack(Duration::ZERO)
    }

    pub(super) fn with_slack(slack: Duration) -> Stage {
        let origin = Instant::now();
        Stage { wheel: Wheel::new(origin, slack), origin, now: 0, log: Arc::default() }
    }

    pub(super) fn instant(&self, nanos: u128) -> Instant {
        self.origin + Duration::new((nanos / SECOND) as u64, (nanos % SECOND) as u32)
    }

    fn waker(&self, number: usize) -> Waker {
        Waker::from(Arc::new(Named { number, log: self.log.clone() }))
    }

    pub(super) fn insert(&mut self, number: usize, deadline: u128) -> TimerKey {
        self.wheel.insert(self.instant(deadline), self.waker(number))
    }

    /// Lets time pass until `now`; returns the numbers of the timers that fired, in order.
    pub(super) fn advance(&mut self, now: u128) -> Vec<usize> {
        self.now = now;
        let mut due = Vec::new();
        self.wheel.advance(self.instant(now), &mut due);
        due.into_iter().for_each(Waker::wake);
        mem::take(&mut self.log.lock().unwrap())
    }

    fn next(&self) -> Option<u128> {
        let next = self.wheel.next();
        assert_eq!(next, self.wheel.next_wake(), "without a slack the two are one");
        next.map(|next| next.duration_since(self.origin).as_nanos())
    }
}

#[test]
fn each_boundary_of_each_level_fires_at_its_tick_and_not_before() {
    for level in 0..LEVELS as u32 {
        let unit = 1u128 << (level * LEVEL_BITS);
        for start in [0, 1, 62, 63, 64, unit - 1, unit, 5 * unit + 63] {
            for distance in [unit - 1, unit, unit + 1, 2 * unit, 15 * unit] {
                let tick = start + distance;
                if tick >= u128::from(NEVER) {
                    continue;
                }
                let mut stage = Stage::new();
                assert_eq!(stage.advance(start * TICK), []);
                stage.insert(7, tick * TICK);
                assert_eq!(stage.next(), Some(tick * TICK), "{start} + {distance}");
                if distance > 0 {
                    assert_eq!(stage.advance(tick * TICK - 1), [], "{start} + {distance}");
                    assert_eq!(stage.next(), Some(tick * TICK), "{start} + {distance}");
                }
                assert_eq!(stage.advance(tick * TICK), [7], "{start} + {distance}");
                assert!(stage.wheel.len() == 0 && stage.next().is_none());
            }
        }
    }
}

#[test]
fn a_deadline_within_a_tick_fires_at_its_end() {
    for (deadline, fires) in
        [(0, 0), (1, TICK), (TICK - 1, TICK), (TICK, TICK), (TICK + 1, 2 * TICK)]
    {
        let mut stage = Stage::new();
        stage.insert(1, deadline);
        assert_eq!(stage.next(), Some(fires));
        if fires > 0 {
            assert_eq!(stage.advance(fires - 1), [], "{deadline}");
        }
        assert_eq!(stage.advance(fires), [1], "{deadline}");
    }
}

#[test]
fn one_advance_over_all_levels_keeps_the_order() {
    let mut stage = Stage::new();
    let ticks = (0..60).map(|bit| 1u128 << bit).collect::<Vec<_>>();
    for (number, tick) in ticks.iter().enumerate().rev() {
        stage.insert(number, tick * TICK);
    }
    assert_eq!(stage.advance(ticks[59] * TICK), (0..60).collect::<Vec<_>>());
}

#[test]
fn timers_of_a_tick_fire_in_the_order_of_insertion_at_any_level() {
    let mut stage = Stage::new();
    let deadline = 70_000 * TICK;
    for (number, now) in [0, 1, 4096, 65_536, 69_000, 69_999].into_iter().enumerate() {
        assert_eq!(stage.advance(now * TICK), []);
        stage.insert(number, deadline);
    }
    assert_eq!(stage.advance(deadline), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn the_past_is_due_at_once() {
    let mut stage = Stage::new();
    assert_eq!(stage.advance(100 * SECOND), []);
    stage.insert(0, 5 * SECOND);
    assert!(stage.next().unwrap() <= stage.now);
    stage.insert(1, 3 * SECOND);
    assert_eq!(stage.advance(stage.now), [0, 1]);
}

#[test]
fn time_that_goes_back_does_no_harm() {
    let mut stage = Stage::new();
    stage.advance(64 * TICK);
    stage.insert(0, 70 * TICK);
    assert_eq!(stage.advance(3 * TICK), []);
    stage.insert(1, 4 * TICK);
    assert_eq!(stage.advance(10 * TICK), []);
    assert_eq!(stage.advance(64 * TICK), [1]);
    assert_eq!(stage.advance(70 * TICK - 1), []);
    assert_eq!(stage.advance(70 * TICK), [0]);
}

#[test]
fn a_timer_too_far_away_never_fires_and_can_be_cancelled_and_reset() {
    let mut stage = Stage::new();
    let far = (1 << 62) * SECOND;
    let (first, second) = (stage.insert(0, far), stage.insert(1, far + SECOND));
    let last = stage.insert(2, u128::from(NEVER) * TICK);
    assert_eq!((stage.next(), stage.wheel.len()), (None, 3));
    assert_eq!(stage.advance(far + 2 * SECOND), []);
    assert_eq!((stage.next(), stage.wheel.len()), (None, 3));
    assert!(stage.wheel.cancel(first).is_some());
    assert!(stage.wheel.cancel(last).is_some());
    assert!(stage.wheel.reset(second, stage.instant(SECOND)));
    assert_eq!(stage.advance(stage.now), [1]);
    assert_eq!(stage.wheel.len(), 0);
    // The last tick that is counted.
    let mut stage = Stage::new();
    stage.insert(3, u128::from(NEVER - 1) * TICK);
    assert_eq!(stage.advance(u128::from(NEVER - 1) * TICK - 1), []);
    assert_eq!(stage.advance(u128::from(NEVER - 1) * TICK), [3]);
}

#[test]
fn a_stale_key_touches_nothing() {
    let mut stage = Stage::new();
    let fired = stage.insert(0, SECOND);
    assert_eq!(stage.advance(SECOND + TICK), [0]);
    let cancelled = stage.insert(1, 2 * SECOND);
    assert_ne!(fired, cancelled);
    assert!(stage.wheel.cancel(cancelled).is_some());
    let alive = stage.insert(2, 2 * SECOND);
    assert_eq!(alive.index, cancelled.index, "the entry is used again");
    let other = stage.waker(9);
    for stale in [fired, cancelled, TimerKey { index: 1000, generation: 0 }] {
        assert!(stage.wheel.cancel(stale).is_none());
        assert!(!stage.wheel.reset(stale, stage.origin));
        assert_eq!(stage.wheel.match_waker(stale, &other), WakerMatch::Gone);
        assert!(stage.wheel.replace(stale, other.clone()).will_wake(&other));
    }
    assert_eq!(stage.wheel.len(), 1);
    assert_eq!(stage.advance(2 * SECOND + TICK), [2]);
}

#[test]
fn an_empty_wheel_begins_from_the_front_and_no_key_comes_again() {
    let mut stage = Stage::new();
    let mut known: Vec<TimerKey> = Vec::new();
    for round in 0..3 {
        let mut keys: Vec<TimerKey> =
            (0..10).map(|number| stage.insert(number, SECOND * (1 + number as u128))).collect();
        let places: Vec<u32> = keys.iter().map(|key| key.index).collect();
        assert_eq!(places, (0..10).collect::<Vec<u32>>(), "round {round}");
        // An entry that is freed while other timers are there is the next to be used.
        assert!(stage.wheel.cancel(keys[3]).is_some());
        known.push(keys[3]);
        keys[3] = stage.insert(3, SECOND);
        assert_eq!(keys[3].index, 3);
        for place in [7, 0, 9, 2, 3, 1, 8, 6, 4, 5] {
            assert!(stage.wheel.cancel(keys[place]).is_some());
        }
        assert!(keys.iter().all(|key| !known.contains(key)));
        known.extend(keys);
        assert!(known.iter().all(|&key| stage.wheel.cancel(key).is_none()));
        assert_eq!(stage.wheel.len(), 0);
    }
    assert!(stage.advance(100 * SECOND).is_empty());
}

#[test]
fn the_waker_is_replaced_only_by_another_one() {
    let mut stage = Stage::new();
    let (first, second) = (stage.waker(1), stage.waker(2));
    let key = stage.wheel.insert(stage.instant(SECOND), first.clone());
    assert_eq!(stage.wheel.match_waker(key, &first), WakerMatch::Same);
    assert_eq!(stage.wheel.match_waker(key, &second), WakerMatch::Other);
    assert!(stage.wheel.replace(key, second.clone()).will_wake(&first));
    assert_eq!(stage.wheel.match_waker(key, &second), WakerMatch::Same);
    assert_eq!(stage.advance(SECOND + TICK), [2]);
}

#[test]
fn nothing_is_reached_twice_on_the_way_to_a_timer() {
    let mut stage = Stage::new();
    let deadlines = [40 * SECOND, 30 * SECOND, 86_400 * SECOND, SECOND / 1000];
    for (number, deadline) in deadlines.into_iter().enumerate() {
        stage.insert(number, deadline);
    }
    let mut wakes = 0;
    while let Some(next) = stage.next() {
        stage.advance(next);
        wakes += 1;
    }
    assert_eq!(wakes, deadlines.len(), "one wake-up for each deadline");
}

#[test]
fn a_shortened_wheel_keeps_its_timers_and_no_key_comes_again() {
    let mut stage = Stage::new();
    let keys: Vec<TimerKey> = (0..100).map(|number| stage.insert(number, SECOND)).collect();
    // One entry has been used twice.
    assert!(stage.wheel.cancel(keys[80]).is_some());
    let twice = stage.insert(80, SECOND);
    for (place, &key) in keys.iter().enumerate() {
        assert_eq!(stage.wheel.cancel(key).is_some(), place != 80);
    }
    assert!(stage.wheel.cancel(twice).is_some());
    let kept = [stage.insert(200, SECOND), stage.insert(201, SECOND)];
    assert_eq!(kept.map(|key| key.index), [0, 1]);
    stage.wheel.shrink();
    assert_eq!(stage.wheel.capacity(), 2);
    let again: Vec<TimerKey> = (0..100).map(|number| stage.insert(number, SECOND)).collect();
    assert!(again.iter().all(|key| key.generation > twice.generation && !keys.contains(key)));
    assert!(keys.iter().chain([&twice]).all(|&key| stage.wheel.cancel(key).is_none()));
    // Free entries are used from the front.
    for place in [50, 3, 40] {
        stage.wheel.cancel(again[place]).unwrap();
    }
    stage.wheel.shrink();
    let places: Vec<u32> = (0..3).map(|number| stage.insert(number, SECOND).index).collect();
    assert_eq!(places, [again[3].index, again[40].index, again[50].index]);
    assert_eq!(stage.wheel.len(), 102);
}

#[test]
fn a_timer_that_is_recreated_repeatedly_does_not_keep_the_last_entry() {
    let mut stage = Stage::new();
    let keys: Vec<TimerKey> = (0..1000).map(|number| stage.insert(number, SECOND)).collect();
    for &key in &keys[1..999] {
        stage.wheel.cancel(key).unwrap();
    }
    let mut churn = keys[999];
    stage.wheel.shrink();
    assert_eq!(stage.wheel.capacity(), 1000);
    // There is one timer at any time.
    for number in 0..10 {
        let next = stage.insert(number, SECOND);
        stage.wheel.cancel(churn).unwrap();
        churn = next;
    }
    stage.wheel.shrink();
    assert!(stage.wheel.capacity() <= 4, "{}", stage.wheel.capacity());
    assert_eq!(stage.wheel.len(), 2);
}

/// A step that is done to the wheel. Timers are chosen by number, modulo how many there ever were.
#[derive(Clone, Debug)]
enum Step {
    Insert(u128),
    InsertPast(u128),
    Cancel(usize),
    Reset(usize, u128),
    Update(usize),
    Shorten,
    Advance(u128),
    AdvanceToNext,
}

/// Near or far, with all orders of magnitude alike.
fn distance() -> impl Strategy<Value = u128> {
    (0u32..92, any::<u128>()).prop_map(|(bits, random)| random & ((1 << bits) - 1))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => distance().prop_map(Step::Insert),
        // Multiples of a tick, close together, to meet in a slot.
        4 => (0..200u128).prop_map(|ticks| Step::Insert(ticks * TICK)),
        1 => distance().prop_map(Step::InsertPast),
        3 => any::<usize>().prop_map(Step::Cancel),
        2 => (any::<usize>(), distance()).prop_map(|(which, after)| Step::Reset(which, after)),
        1 => any::<usize>().prop_map(Step::Update),
        1 => Just(Step::Shorten),
        2 => distance().prop_map(Step::Advance),
        2 => (0..100 * TICK).prop_map(Step::Advance),
        3 => Just(Step::AdvanceToNext),
    ]
}

/// The tick at which a timer is due, and the order of insertion.
type Position = (u128, usize);

struct Timer {
    key: TimerKey,
    /// The time of insertion, if the deadline had passed.
    deadline: u128,
    /// Where it is queued, or was when it fired; `None` once it was cancelled.
    position: Option<Position>,
}

/// The wheel, and a sorted list next to it that does the same.
struct Pair {
    stage: Stage,
    /// All timers that there ever were.
    timers: Vec<Timer>,
    /// The numbers of the woken.
    queue: BTreeMap<Position, usize>,
    inserted: usize,
    woken: usize,
    /// Timers were taken out, so that the wheel may ask to be called too early.
    loose: bool,
}

impl Pair {
    fn new() -> Pair {
        let (timers, queue) = (Vec::new(), BTreeMap::new());
        Pair { stage: Stage::new(), timers, queue, inserted: 0, woken: 0, loose: false }
    }

    fn enqueue(&mut self, deadline: u128, number: usize) -> Position {
        self.inserted += 1;
        let tick = deadline.div_ceil(TICK).max(self.stage.now / TICK);
        self.queue.insert((tick, self.inserted), number);
        (tick, self.inserted)
    }

    fn insert(&mut self, deadline: u128) {
        let key = self.stage.insert(self.woken, deadline);
        let position = Some(self.enqueue(deadline, self.woken));
        self.timers.push(Timer { key, deadline: deadline.max(self.stage.now), position });
        self.woken += 1;
    }

    /// Returns the timer that a number means, and the number of its waker if it is alive.
    fn alive(&self, which: usize) -> Option<(usize, Option<usize>)> {
        let which = which.checked_rem(self.timers.len())?;
        let position = self.timers[which].position;
        Some((which, position.and_then(|position| self.queue.get(&position).copied())))
    }

    fn cancel(&mut self, which: usize) {
        let Some((which, number)) = self.alive(which) else { return };
        let waker = self.stage.wheel.cancel(self.timers[which].key);
        assert_eq!(waker.is_some(), number.is_some());
        if let (Some(number), Some(position)) = (number, self.timers[which].position.take()) {
            waker.unwrap().wake();
            assert_eq!(mem::take(&mut *self.stage.log.lock().unwrap()), [number]);
            self.queue.remove(&position);
            self.loose = true;
        }
    }

    fn reset(&mut self, which: usize, deadline: u128) {
        let Some((which, number)) = self.alive(which) else { return };
        let instant = self.stage.instant(deadline);
        assert_eq!(self.stage.wheel.reset(self.timers[which].key, instant), number.is_some());
        if let (Some(number), Some(position)) = (number, self.timers[which].position) {
            self.timers[which].deadline = deadline.max(self.stage.now);
            if position.0 != deadline.div_ceil(TICK).max(self.stage.now / TICK) {
                self.queue.remove(&position);
                self.timers[which].position = Some(self.enqueue(deadline, number));
                self.loose = true;
            }
        }
    }

    fn update(&mut self, which: usize) {
        let Some((which, number)) = self.alive(which) else { return };
        let waker = self.stage.waker(self.woken);
        let key = self.timers[which].key;
        match self.stage.wheel.match_waker(key, &waker) {
            WakerMatch::Same => panic!("it is another waker"),
            WakerMatch::Gone => assert_eq!(number, None),
            WakerMatch::Other => {
                self.stage.wheel.replace(key, waker);
                let position = self.timers[which].position.unwrap();
                assert_eq!(self.queue.insert(position, self.woken), number);
                self.woken += 1;
            }
        }
    }

    fn shrink(&mut self) {
        let wheel = &mut self.stage.wheel;
        wheel.shrink();
        let last = wheel.entries.iter().rposition(|entry| entry.waker.is_some());
        assert_eq!(wheel.entries.len(), last.map_or(0, |last| last + 1));
        assert_eq!(wheel.capacity(), wheel.entries.len());
    }

    fn advance(&mut self, now: u128) {
        let fired = self.stage.advance(now);
        let later = self.queue.split_off(&(now / TICK + 1, 0));
        let expected: Vec<usize> = mem::replace(&mut self.queue, later).into_values().collect();
        assert_eq!(fired, expected);
    }

    fn check(&self) {
        assert_eq!(self.stage.wheel.len(), self.queue.len());
        for Timer { deadline, position, .. } in &self.timers {
            match position.map(|position| self.queue.contains_key(&position)) {
                // Its tick has not ended.
                Some(true) => assert!(self.stage.now < deadline + 2 * TICK),
                Some(false) => assert!(self.stage.now >= *deadline),
                None => {}
            }
        }
        let earliest = self.queue.first_key_value().map(|(&(tick, _), _)| tick * TICK);
        match (self.stage.next(), earliest) {
            (Some(next), Some(earliest)) if self.loose => assert!(next <= earliest),
            (next, earliest) => assert_eq!(next, earliest),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn behaves_as_a_sorted_list_does(steps in prop::collection::vec(step(), 1..120)) {
        let mut pair = Pair::new();
        for step in steps {
            // Short of the end of the range that the wheel counts, so that the list need not know
            // of it.
            let within = |time: u128| time.min(u128::from(NEVER - 1) * TICK);
            let now = pair.stage.now;
            match step {
                Step::Insert(after) => pair.insert(within(now + after)),
                Step::InsertPast(before) => pair.insert(now.saturating_sub(before)),
                Step::Cancel(which) => pair.cancel(which),
                Step::Reset(which, after) => pair.reset(which, within(now + after)),
                Step::Update(which) => pair.update(which),
                Step::Shorten => pair.shrink(),
                Step::Advance(by) => pair.advance(within(now + by)),
                Step::AdvanceToNext => {
                    if let Some(next) = pair.stage.next() {
                        pair.advance(next.max(now));
                    }
                }
            }
            pair.check();
        }
        // A turn for each time that the wheel asks for reaches everything, and takes each timer
        // down a level at least.
        for _ in 0..pair.queue.len() * LEVELS {
            let Some(next) = pair.stage.next() else { break };
            pair.advance(next.max(pair.stage.now));
            pair.check();
        }
        prop_assert!(pair.stage.wheel.len() == 0 && pair.stage.next().is_none());
    }

    #[test]
    fn asks_for_one_turn_per_deadline(after in prop::collection::vec(distance(), 1..80)) {
        let mut stage = Stage::new();
        let mut ticks = std::collections::BTreeSet::new();
        for (number, after) in after.into_iter().enumerate() {
            let deadline = after.min(u128::from(NEVER - 1) * TICK);
            ticks.insert(deadline.div_ceil(TICK));
            stage.insert(number, deadline);
        }
        for tick in ticks {
            prop_assert_eq!(stage.next(), Some(tick * TICK));
            prop_assert!(!stage.advance(tick * TICK).is_empty());
        }
        prop_assert_eq!(stage.next(), None);
    }
}
