//! The system calls with which the adaptive back-end carries out a policy's decisions.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use superpoll::backend::policy::{
    Account, CostBased, PassCounts, Policy, Quiet, Set, Verdict, View,
};
use superpoll::diagnostics::{Calls, Costs, Kind};
use superpoll::{Events, Hint, Interest, Mode, Owned, Poller, Watch};
use superpoll_test_support::Waiter;

/// A policy that follows the test's orders.
#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    promote: bool,
    level: bool,
    admit: Option<usize>,
    verdict: Option<Verdict>,
    linger: Option<Duration>,
    tallies: Vec<PassCounts>,
    /// The scan factor that the last pass saw.
    scan_factor: f32,
}

impl Scripted {
    fn set(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.0.lock().unwrap());
    }
}

impl Policy for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }
    fn start(&mut self, _: &mut Account, hint: Hint, _: &View<'_>) -> Set {
        if hint == Hint::Busy { Set::Hot } else { Set::Cold }
    }
    fn cold_event(&mut self, _: &mut Account, _: &View<'_>) -> bool {
        self.0.lock().unwrap().promote
    }
    fn admit(&mut self, candidates: usize, _: &View<'_>) -> usize {
        self.0.lock().unwrap().admit.unwrap_or(candidates)
    }
    fn prefers_level(&self, kind: Kind) -> bool {
        // Of a pipe that was no candidate yet the kind is not known.
        assert!(matches!(kind, Kind::Unknown | Kind::Pipe), "{kind:?}");
        self.0.lock().unwrap().level
    }
    fn moved_to_hot(&mut self, _: &mut Account, _: &View<'_>) {}
    fn hot_event(&mut self, _: &mut Account, _: &View<'_>) {}
    fn review(&mut self, account: &mut Account, _: &View<'_>) -> Verdict {
        match self.0.lock().unwrap().verdict {
            Some(Verdict::Settle) if !account.parked => Verdict::Stay,
            verdict => verdict.unwrap_or(Verdict::Stay),
        }
    }
    fn hand(&self, view: &View<'_>) -> usize {
        view.hot
    }
    fn moved_to_cold(&mut self, _: &mut Account, _: bool, _: &View<'_>) {}
    fn pass(&mut self, tally: PassCounts, view: &View<'_>) {
        let mut script = self.0.lock().unwrap();
        script.tallies.push(tally);
        script.scan_factor = view.scan_factor;
    }
    fn quiet(&mut self, _: &View<'_>) -> Quiet {
        match self.0.lock().unwrap().linger {
            Some(linger) => Quiet::HandOffAfter(linger),
            None => Quiet::Stay,
        }
    }
}

struct Bench {
    poller: Poller,
    script: Scripted,
    pipes: Vec<(Owned<PipeReader>, PipeWriter)>,
    events: Events,
}

impl Bench {
    fn new(count: usize, watch: Watch) -> Bench {
        Bench::with_costs(count, watch, Costs::ASSUMED)
    }

    fn with_costs(count: usize, watch: Watch, costs: Costs) -> Bench {
        let script = Scripted::default();
        let mut poller = Poller::builder().policy(script.clone()).costs(costs).build().unwrap();
        let pipes = pipes(&mut poller, count, watch);
        let mut bench = Bench { poller, script, pipes, events: Events::with_limit(1000) };
        assert_eq!(bench.look(), 0);
        bench
    }

    fn look(&mut self) -> usize {
        self.poller.wait(&mut self.events, Some(Duration::ZERO)).unwrap()
    }

    /// The calls that a piece of work makes.
    fn calls(&mut self, work: impl FnOnce(&mut Bench)) -> Calls {
        let before = self.poller.stats().calls;
        work(self);
        self.poller.stats().calls.since(&before)
    }

    fn write(&mut self, places: impl IntoIterator<Item = usize>) {
        for place in places {
            self.pipes[place].1.write_all(b"x").unwrap();
        }
    }

    /// Reads a byte from each pipe that the last wait reported.
    fn read_reported(&mut self) {
        for event in &self.events {
            assert!(event.is_readable());
            let pipe = self.pipes.iter_mut().find(|(reader, _)| reader.key() == event.key());
            pipe.unwrap().0.get_mut().read_exact(&mut [0]).unwrap();
        }
    }

    fn lengths(&self) -> (usize, usize) {
        let stats = self.poller.stats();
        (stats.hot.len, stats.cold.len)
    }

    /// Moves all pipes to the array.
    fn heat(&mut self) {
        let count = self.pipes.len();
        self.script.set(|script| script.promote = true);
        self.write(0..count);
        assert_eq!(self.look(), count);
        self.read_reported();
        self.script.set(|script| script.promote = false);
        assert_eq!(self.lengths().0, count);
    }
}

fn pipes(poller: &mut Poller, count: usize, watch: Watch) -> Vec<(Owned<PipeReader>, PipeWriter)> {
    (0..count)
        .map(|_| {
            let (reader, writer) = std::io::pipe().unwrap();
            (poller.own(reader, watch).unwrap(), writer)
        })
        .collect()
}

fn level() -> Watch {
    Watch::new(Interest::READABLE)
}

#[test]
fn with_an_empty_array_a_wait_is_one_epoll_wait() {
    let mut bench = Bench::new(3, level());
    bench.write([1]);
    let calls = bench.calls(|bench| assert_eq!(bench.look(), 1));
    assert_eq!((calls.epoll_wait, calls.total()), (1, 1));
}

#[test]
fn with_an_empty_array_the_kernel_gives_out_turns() {
    let mut bench = Bench::new(0, level());
    bench.events = Events::with_limit(1);
    bench.pipes = pipes(&mut bench.poller, 50, level());
    bench.write(0..50);
    let mut keys: Vec<_> = (0..50)
        .map(|_| {
            assert_eq!(bench.look(), 1);
            bench.events.iter().next().unwrap().key()
        })
        .collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 50);
    // It is never asked for more than one, so there is no room for fifty.
    assert!(bench.poller.memory().mirrors < 50 * 12, "{:?}", bench.poller.memory());
}

#[test]
fn a_promotion_parks_and_a_demotion_modifies() {
    let mut bench = Bench::new(4, level());
    let calls = bench.calls(Bench::heat);
    assert_eq!((calls.epoll_ctl_mod, calls.epoll_ctl()), (4, 4), "{calls}");
    assert_eq!(bench.lengths(), (4, 0));

    // Nothing in epoll may report, so it is not even looked at.
    let calls = bench.calls(|bench| {
        bench.write(0..4);
        assert_eq!(bench.look(), 4);
        bench.read_reported();
    });
    assert_eq!((calls.poll, calls.total()), (1, 1), "{calls}");

    bench.script.set(|script| script.verdict = Some(Verdict::Demote));
    let calls = bench.calls(|bench| assert_eq!(bench.look(), 0));
    assert_eq!((calls.epoll_ctl_mod, calls.epoll_ctl()), (4, 4), "{calls}");
    assert_eq!(bench.lengths(), (0, 4));
    let stats = bench.poller.stats();
    assert_eq!((stats.moves_to_hot, stats.moves_to_cold, stats.compactions), (4, 4, 1));
}

#[test]
fn a_settled_descriptor_is_removed_once_and_added_again() {
    let mut bench = Bench::new(3, level());
    bench.heat();
    bench.script.set(|script| script.verdict = Some(Verdict::Settle));
    let calls = bench.calls(|bench| {
        bench.look();
        bench.look();
    });
    assert_eq!((calls.epoll_ctl_del, calls.epoll_ctl()), (3, 3), "{calls}");
    bench.script.set(|script| script.verdict = Some(Verdict::Demote));
    let calls = bench.calls(|bench| assert_eq!(bench.look(), 0));
    assert_eq!((calls.epoll_ctl_add, calls.epoll_ctl()), (3, 3), "{calls}");
}

#[test]
fn an_arrival_on_the_way_is_found_on_either_side() {
    for watch in [level(), level().mode(Mode::Auto), level().mode(Mode::OneShot)] {
        for settled in [false, true] {
            let mut bench = Bench::new(2, watch);
            bench.heat();
            if watch.mode == Mode::OneShot {
                for place in 0..2 {
                    let key = bench.pipes[place].0.key();
                    bench.poller.modify(key, Interest::READABLE).unwrap();
                }
            }
            if settled {
                bench.script.set(|script| script.verdict = Some(Verdict::Settle));
                assert_eq!(bench.look(), 0);
            }
            // Demoted in the same wait in which nothing was ready; the byte comes right after.
            bench.script.set(|script| script.verdict = Some(Verdict::Demote));
            assert_eq!(bench.look(), 0);
            bench.write([0]);
            assert_eq!(bench.look(), 1, "{watch:?} settled {settled}");
            assert_eq!(bench.lengths().0, 0);
        }
    }
    // Ready when it is demoted: the event was delivered from the array, and is again from epoll.
    let mut bench = Bench::new(2, level().mode(Mode::Auto));
    bench.heat();
    bench.write([0]);
    bench.script.set(|script| script.verdict = Some(Verdict::Demote));
    assert_eq!(bench.look(), 1);
    assert_eq!(bench.lengths(), (0, 2));
    assert_eq!(bench.look(), 1);
    assert_eq!(bench.look(), 0);
}

#[test]
fn auto_comes_back_with_the_trigger_that_is_preferred() {
    for prefers_level in [false, true] {
        let mut bench = Bench::new(2, level().mode(Mode::Auto));
        bench.heat();
        bench.script.set(|script| {
            (script.verdict, script.level) = (Some(Verdict::Demote), prefers_level);
        });
        assert_eq!(bench.look(), 0);
        bench.write([0]);
        let calls = bench.calls(|bench| assert_eq!(bench.look(), 1));
        assert_eq!(calls.epoll_ctl(), 0, "{calls}");
        assert_eq!(bench.look(), usize::from(prefers_level), "reported again only by level");
    }
}

#[test]
fn auto_changes_its_trigger_with_an_event() {
    let mut bench = Bench::new(2, level().mode(Mode::Auto));
    bench.script.set(|script| script.level = true);
    bench.write([0, 1]);
    let calls = bench.calls(|bench| assert_eq!(bench.look(), 2));
    assert_eq!((calls.epoll_ctl_mod, calls.epoll_ctl()), (2, 2), "{calls}");
    let calls = bench.calls(|bench| assert_eq!(bench.look(), 2, "still ready"));
    assert_eq!(calls.epoll_ctl(), 0, "{calls}");
    // Back to an edge only where there is an array, which the other kind of descriptor is for.
    bench.script.set(|script| script.level = false);
    let calls = bench.calls(|bench| assert_eq!(bench.look(), 2));
    assert_eq!(calls.epoll_ctl(), 0, "{calls}");
    bench.script.set(|script| (script.promote, script.admit) = (true, Some(1)));
    assert_eq!(bench.look(), 2);
    assert_eq!(bench.lengths(), (1, 1));
    bench.script.set(|script| script.promote = false);
    let calls = bench.calls(|bench| assert_eq!(bench.look(), 2));
    assert_eq!((calls.epoll_ctl_mod, calls.epoll_ctl()), (1, 1), "{calls}");
}

/// A pipe is hung up while it has no writer, and can get another one. The policy would have it in
/// the array, or in epoll with a level.
#[test]
fn a_hang_up_that_lasts_keeps_a_descriptor_out_of_the_array_and_without_a_level() {
    for (promote, level_in_epoll) in [(true, false), (true, true), (false, true)] {
        let mut bench = Bench::new(2, level().mode(Mode::Auto));
        bench.script.set(|script| (script.promote, script.level) = (promote, level_in_epoll));
        for _ in 0..3 {
            bench.write([0]);
            assert_eq!(bench.look(), 1);
            bench.read_reported();
        }
        let home = if promote { (1, 1) } else { (0, 2) };
        assert_eq!(bench.lengths(), home);
        for round in 0..3 {
            bench.pipes[0].1 = std::io::pipe().unwrap().1;
            let reports: usize = (0..8).map(|_| bench.look()).sum();
            // By the level, and once as an edge.
            assert_eq!(reports, 4, "{round}");
            assert_eq!((bench.lengths(), bench.look()), ((0, 2), 0));
            let number = bench.pipes[0].0.as_raw_fd();
            let path = format!("/proc/self/fd/{number}");
            let writer = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            bench.pipes[0].1 = OwnedFd::from(writer).into();
            for left in (0..3).rev() {
                bench.write([0]);
                assert_eq!(bench.look(), 1);
                assert_eq!(bench.lengths() == home && promote, left == 0 && promote);
                bench.read_reported();
            }
            assert_eq!(bench.lengths(), home);
            bench.write([0]);
            let again = [bench.look(), bench.look()];
            assert_eq!(again, [1, 1], "by its level again");
            bench.read_reported();
        }
    }
}

#[test]
fn a_candidate_that_is_turned_down_stays_with_a_level() {
    let mut bench = Bench::new(1, level().mode(Mode::Auto));
    bench.script.set(|script| (script.promote, script.admit) = (true, Some(0)));
    bench.write([0]);
    let calls = bench.calls(|bench| assert_eq!(bench.look(), 1));
    assert_eq!((calls.epoll_ctl_mod, calls.epoll_ctl()), (1, 1), "{calls}");
    let calls = bench.calls(|bench| assert_eq!(bench.look(), 1, "still ready"));
    assert_eq!(calls.epoll_ctl(), 0, "{calls}");
}

#[test]
fn a_hang_up_of_a_parked_descriptor_is_reported_by_the_array_alone() {
    let mut bench = Bench::new(2, level());
    bench.heat();
    let key = bench.pipes[0].0.key();
    let (reader, writer) = bench.pipes.remove(0);
    drop(writer);
    for _ in 0..3 {
        assert_eq!(bench.look(), 1);
        let event = bench.events.iter().next().unwrap();
        assert!(event.key() == key && event.is_hang_up());
    }
    drop(reader);
    assert_eq!(bench.look(), 0);
    assert_eq!(bench.poller.stats().stale, 0);
}

#[test]
fn a_hot_one_shot_is_armed_and_disarmed_without_a_system_call() {
    let mut bench = Bench::new(2, level().mode(Mode::OneShot));
    bench.heat();
    let keys: Vec<_> = bench.pipes.iter().map(|(reader, _)| reader.key()).collect();
    let calls = bench.calls(|bench| {
        for _ in 0..5 {
            for &key in &keys {
                bench.poller.modify(key, Interest::READABLE).unwrap();
            }
            bench.write(0..2);
            assert_eq!(bench.look(), 2);
            bench.read_reported();
            bench.write([0]);
            assert_eq!(bench.look(), 0);
            bench.pipes[0].0.get_mut().read_exact(&mut [0]).unwrap();
        }
    });
    assert_eq!((calls.poll, calls.total()), (10, 10), "{calls}");
}

#[test]
fn edge_and_exclusive_registrations_stay_in_epoll() {
    for mode in [Mode::Edge, Mode::Exclusive] {
        let mut bench = Bench::new(2, level().mode(mode).hint(Hint::Busy));
        bench.script.set(|script| script.promote = true);
        bench.write(0..2);
        assert_eq!(bench.look(), 2);
        assert_eq!(bench.lengths(), (0, 2), "{mode:?}");
    }
    // A change to such a mode takes a hot one back.
    let mut bench = Bench::new(2, level().hint(Hint::Busy));
    assert_eq!(bench.lengths(), (2, 0));
    let key = bench.pipes[0].0.key();
    bench.poller.modify_watch(key, level().mode(Mode::Edge)).unwrap();
    bench.write(0..2);
    assert_eq!(bench.look(), 2);
    assert_eq!(bench.lengths(), (1, 1));
    assert_eq!(bench.look(), 1);
}

#[test]
fn a_busy_hint_starts_in_the_array_without_a_call_for_epoll() {
    let mut bench = Bench::new(0, level());
    bench.pipes = pipes(&mut bench.poller, 5, level().hint(Hint::Busy));
    let calls = bench.calls(|bench| assert_eq!(bench.look(), 0));
    assert_eq!((calls.epoll_ctl(), calls.poll, calls.fstat), (0, 1, 5), "{calls}");
    assert_eq!(bench.lengths(), (5, 0));
}

#[test]
fn the_policy_bounds_how_many_candidates_move() {
    let mut bench = Bench::new(5, level());
    bench.script.set(|script| (script.promote, script.admit) = (true, Some(2)));
    bench.write(0..5);
    assert_eq!(bench.look(), 5);
    assert_eq!(bench.lengths(), (2, 3));
}

#[test]
fn each_pass_is_counted() {
    let mut bench = Bench::new(5, level());
    bench.script.set(|script| (script.promote, script.admit) = (true, Some(2)));
    bench.write(0..5);
    bench.look();
    bench.script.set(|script| (script.promote, script.tallies) = (false, Vec::new()));
    bench.look();
    bench.script.set(|script| {
        assert_eq!(script.tallies, [PassCounts { hot: 2, hot_ready: 2, cold: 3, cold_ready: 3 }]);
    });
    let stats = bench.poller.stats();
    assert_eq!((stats.hot.watched, stats.hot.active), (2, 2));
    assert_eq!((stats.cold.watched, stats.cold.active), (5 + 5 + 3, 5 + 3));
}

/// Six pipes in the array, a wait with a short linger time, and the calls of that wait.
fn goes_quiet(is_wakeable: bool) -> (Bench, Calls) {
    let mut wait = Duration::from_millis(2);
    loop {
        let mut bench = Bench::new(6, level());
        let _waker = is_wakeable.then(|| bench.poller.waker().unwrap());
        bench.heat();
        bench.script.set(|script| script.linger = Some(Duration::from_micros(10)));
        let calls = bench.calls(|bench| {
            assert_eq!(bench.poller.wait(&mut bench.events, Some(wait)).unwrap(), 0);
        });
        // If this thread was stopped until the time was over, there was nothing to linger for.
        if bench.poller.stats().handoffs > 0 || wait > Duration::from_secs(5) {
            return (bench, calls);
        }
        wait *= 2;
    }
}

#[test]
fn a_loop_that_goes_quiet_hands_the_array_to_epoll() {
    let (mut bench, calls) = goes_quiet(false);
    assert_eq!(bench.lengths(), (0, 6));
    assert_eq!((calls.poll, calls.ppoll, calls.epoll_ctl_mod), (1, 1, 6), "{calls}");
    assert_eq!(bench.poller.stats().handoffs, 1);
    let wait = Some(Duration::from_millis(2));
    let calls = bench.calls(|bench| {
        assert_eq!(bench.poller.wait(&mut bench.events, wait).unwrap(), 0);
    });
    assert_eq!(calls.epoll_pwait2 + calls.epoll_wait, calls.total(), "{calls}");
    bench.write([3]);
    assert_eq!(bench.look(), 1);
}

#[test]
fn a_hand_over_does_not_keep_a_wakeable_poller_awake() {
    let (_, calls) = goes_quiet(true);
    assert_eq!((calls.poll, calls.ppoll, calls.epoll_ctl_mod), (1, 1, 6), "{calls}");
    assert_eq!(calls.epoll_pwait2 + calls.epoll_wait, 1, "sleeps once: {calls}");
}

#[test]
fn an_event_during_the_linger_time_keeps_the_array() {
    let mut bench = Bench::new(6, level());
    bench.heat();
    bench.script.set(|script| script.linger = Some(Duration::from_secs(20)));
    let mut writer = bench.pipes[0].1.try_clone().unwrap();
    let waiter = Waiter::this_thread();
    let writing = std::thread::spawn(move || {
        waiter.until_it_sleeps();
        writer.write_all(b"x").unwrap();
    });
    assert_eq!(bench.poller.wait(&mut bench.events, None).unwrap(), 1);
    writing.join().unwrap();
    assert_eq!((bench.lengths(), bench.poller.stats().handoffs), ((6, 0), 0));
}

#[test]
fn a_short_wait_is_not_worth_a_hand_over() {
    let mut bench = Bench::new(6, level());
    bench.heat();
    bench.script.set(|script| script.linger = Some(Duration::from_millis(50)));
    let wait = Some(Duration::from_micros(50));
    assert_eq!(bench.poller.wait(&mut bench.events, wait).unwrap(), 0);
    assert_eq!(bench.lengths(), (6, 0));
    assert_eq!(bench.poller.stats().handoffs, 0);
}

#[test]
fn both_sets_are_seen_by_one_blocking_wait() {
    let mut bench = Bench::new(2, level());
    bench.heat();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let cold = bench.poller.own(reader, level()).unwrap();
    assert_eq!(bench.look(), 0);
    assert_eq!(bench.lengths(), (2, 1));
    let waiter = Waiter::this_thread();
    let writing = std::thread::spawn(move || {
        waiter.until_it_sleeps();
        writer.write_all(b"x").unwrap();
        writer
    });
    assert_eq!(bench.poller.wait(&mut bench.events, None).unwrap(), 1);
    assert_eq!(bench.events.iter().next().unwrap().key(), cold.key());
    writing.join().unwrap();
}

#[test]
fn the_array_is_put_into_order_every_64_passes() {
    let mut bench = Bench::new(3, level());
    bench.script.set(|script| script.promote = true);
    let keys: Vec<_> = bench.pipes.iter().map(|(reader, _)| reader.key()).collect();
    for place in [2, 0, 1] {
        bench.write([place]);
        assert!(bench.look() > 0);
    }
    let order = |bench: &mut Bench| -> Vec<_> {
        assert_eq!(bench.look(), 3);
        bench.events.iter().map(|event| event.key()).collect()
    };
    // One pass to begin with, three to heat them, and 61 more.
    for _ in 4..65 {
        assert_eq!(order(&mut bench), [keys[2], keys[0], keys[1]]);
    }
    assert_eq!(order(&mut bench), keys);
}

#[test]
fn a_timed_pass_corrects_the_cost_of_a_scan() {
    let mut costs = Costs::ASSUMED;
    // However long a pass takes, it is taken for half of that.
    costs.pipe.scan = 1e12;
    let mut bench = Bench::with_costs(16, level(), costs);
    bench.heat();
    let factor_after = |bench: &mut Bench, passes: u32| {
        (0..passes).for_each(|_| assert_eq!(bench.look(), 0));
        let mut factor = 0.0;
        bench.script.set(|script| factor = script.scan_factor);
        factor
    };
    // The fourth pass is timed, and then each fourth.
    assert_eq!(factor_after(&mut bench, 1), 1.0);
    assert_eq!(factor_after(&mut bench, 1), 0.9375);
    assert_eq!(factor_after(&mut bench, 3), 0.9375);
    assert_eq!(factor_after(&mut bench, 1), 0.9375 - 0.4375 / 8.0);
}

#[test]
fn a_child_has_an_epoll_set_of_its_own() {
    let mut bench = Bench::new(3, level());
    let _waker = bench.poller.waker().unwrap();
    bench.heat();
    let (reader, writer) = std::io::pipe().unwrap();
    bench.pipes.push((bench.poller.own(reader, level()).unwrap(), writer));
    assert_eq!(bench.look(), 0);
    let calls = bench.calls(|bench| bench.poller.after_fork().unwrap());
    assert_eq!((calls.epoll_create, calls.eventfd), (1, 1), "{calls}");
    // Only the waker so far; the registrations follow with the next wait.
    assert_eq!((calls.epoll_ctl_add, calls.total()), (1, 3), "{calls}");
    bench.write(0..4);
    assert_eq!(bench.look(), 4);
    assert_eq!(bench.lengths(), (3, 1));
    // In the array they are not parked any more, so there is nothing to remove.
    bench.script.set(|script| script.verdict = Some(Verdict::Settle));
    let calls = bench.calls(|bench| assert_eq!(bench.look(), 4));
    assert_eq!(calls.epoll_ctl(), 0, "{calls}");
}

#[test]
fn a_number_that_is_reused_starts_anew() {
    for settled in [false, true] {
        let mut bench = Bench::new(1, level());
        bench.heat();
        if settled {
            bench.script.set(|script| script.verdict = Some(Verdict::Settle));
            bench.look();
        }
        let old = bench.pipes[0].0.key();
        let reader = bench.pipes.remove(0).0;
        let reader = bench.poller.disown(reader);
        let again = bench.poller.own(reader, level()).unwrap();
        assert_ne!(again.key(), old);
        assert_eq!(bench.look(), 1, "the writer is gone, which is readable");
        let event = *bench.events.iter().next().unwrap();
        assert_eq!(event.key(), again.key());
        assert_eq!(bench.lengths(), (0, 1));
    }
}

#[test]
fn descriptors_that_are_always_active_stay_in_the_array() {
    let builder = Poller::builder().policy(CostBased::default()).costs(Costs::ASSUMED);
    let mut poller = builder.build().unwrap();
    let mut pipes = pipes(&mut poller, 100, level());
    let mut events = Events::with_limit(200);
    let mut round = |poller: &mut Poller| {
        for (_, writer) in &mut pipes {
            writer.write_all(b"x").unwrap();
        }
        let mut left = pipes.len();
        while left > 0 {
            left -= poller.wait(&mut events, None).unwrap();
            for event in &events {
                let pipe = pipes.iter_mut().find(|(reader, _)| reader.key() == event.key());
                pipe.unwrap().0.get_mut().read_exact(&mut [0]).unwrap();
            }
        }
    };
    for _ in 0..200 {
        round(&mut poller);
    }
    let before = poller.stats();
    for _ in 0..100 {
        round(&mut poller);
    }
    let after = poller.stats();
    assert_eq!(after.hot.len, 100, "{after:#?}");
    assert_eq!(after.calls.since(&before.calls).total(), 100, "{after:#?}");
}
