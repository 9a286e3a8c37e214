//! Waits that gather events.

use std::io::{Read, Write, pipe};
use std::thread;
use std::time::{Duration, Instant};

use superpoll::{BackendKind, Error, Events, Interest, Poller};

/// A wait that takes half of it has waited for what does not come.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_gathering_wait_returns_with_one_event_however_little_of_its_time_is_left() {
    for kind in BackendKind::available() {
        let mut poller = Poller::builder().backend(kind).build().unwrap();
        let (mut reader, mut writer) = pipe().unwrap();
        poller.register(&reader, Interest::READABLE).unwrap();
        let mut events = Events::with_limit(8);
        // Most of these waits begin within the last microsecond, or right after it.
        for (nanoseconds, rounds) in [(500, 200), (2_000, 2_000), (4_000, 2_000), (100_000, 50)] {
            poller.gather(Duration::from_nanos(nanoseconds)).unwrap();
            for round in 0..rounds {
                writer.write_all(b"x").unwrap();
                let begun = Instant::now();
                assert_eq!(poller.wait(&mut events, Some(LONG)).unwrap(), 1, "{kind} {round}");
                assert!(begun.elapsed() < LONG / 2, "{kind}, {nanoseconds} ns, {round}");
                reader.read_exact(&mut [0]).unwrap();
            }
        }
    }
}

#[test]
fn gathering_is_switched_off_and_limited() {
    for kind in BackendKind::available() {
        let mut poller = Poller::builder().backend(kind).build().unwrap();
        let (mut reader, mut writer) = pipe().unwrap();
        poller.register(&reader, Interest::READABLE).unwrap();
        let mut events = Events::with_limit(8);
        let error = poller.gather(Duration::from_millis(1_001)).unwrap_err();
        assert!(matches!(error, Error::GatherTooLong { .. }), "{error}");
        // A time that no test would wait for, if it were still in force.
        poller.gather(Duration::from_secs(1)).unwrap();
        let mut once = |poller: &mut Poller| {
            writer.write_all(b"x").unwrap();
            assert_eq!(poller.wait(&mut events, Some(LONG)).unwrap(), 1, "{kind}");
            reader.read_exact(&mut [0]).unwrap();
        };
        once(&mut poller);
        once(&mut poller);
        poller.gather(Duration::ZERO).unwrap();
        let sleeps = poller.stats().calls.nanosleep;
        let begun = Instant::now();
        for _ in 0..100 {
            once(&mut poller);
        }
        // A hundred waits that gather would take a hundred seconds.
        assert!(begun.elapsed() < LONG, "{kind}");
        assert_eq!(poller.stats().calls.nanosleep, sleeps, "{kind}");
    }
}

#[test]
fn waits_gather_only_while_several_events_come_in_the_time() {
    const TIME: Duration = Duration::from_millis(20);
    for kind in BackendKind::available() {
        let mut poller = Poller::builder().backend(kind).build().unwrap();
        let mut pipes: Vec<_> = (0..2).map(|_| pipe().unwrap()).collect();
        for (reader, _) in &pipes {
            poller.register(reader, Interest::READABLE).unwrap();
        }
        poller.gather(TIME).unwrap();
        let mut events = Events::with_limit(8);
        // Returns whether a wait, with so many events that are there, has taken the time.
        let mut gathers = |count: usize| {
            for (_, writer) in &mut pipes[..count] {
                writer.write_all(b"x").unwrap();
            }
            let begun = Instant::now();
            assert_eq!(poller.wait(&mut events, Some(LONG)).unwrap(), count, "{kind}");
            for (reader, _) in &mut pipes[..count] {
                reader.read_exact(&mut [0]).unwrap();
            }
            begun.elapsed()
        };
        // A pause of this thread between two waits is a lull, so a burst is tried again.
        let mut burst = || {
            let begun = Instant::now();
            gathers(1);
            gathers(1);
            let is_burst = begun.elapsed() < TIME;
            let waited = gathers(2);
            // The time counts from the end of the wait before.
            is_burst && waited > TIME / 2
        };
        let until = Instant::now() + LONG;
        while !burst() {
            assert!(Instant::now() < until, "{kind}: no burst is gathered");
        }
        // It goes on while there are several, and ends with one.
        while gathers(2) < TIME / 2 {
            assert!(Instant::now() < until, "{kind}");
        }
        gathers(1);
        let sleeps = |poller: &Poller| poller.stats().calls.nanosleep;
        let before = sleeps(&poller);
        for _ in 0..3 {
            thread::sleep(2 * TIME);
            pipes[0].1.write_all(b"x").unwrap();
            poller.wait(&mut events, Some(LONG)).unwrap();
            pipes[0].0.read_exact(&mut [0]).unwrap();
        }
        assert_eq!(sleeps(&poller), before, "{kind}: a lull between each two");
    }
}

#[test]
fn a_waker_and_a_timeout_end_a_gathering_wait() {
    for kind in BackendKind::available() {
        let mut poller = Poller::builder().backend(kind).build().unwrap();
        let waker = poller.waker().unwrap();
        let (mut reader, mut writer) = pipe().unwrap();
        poller.register(&reader, Interest::READABLE).unwrap();
        let mut events = Events::with_limit(8);
        poller.gather(Duration::from_millis(5)).unwrap();
        writer.write_all(b"x").unwrap();
        poller.wait(&mut events, Some(LONG)).unwrap();
        reader.read_exact(&mut [0]).unwrap();
        assert_eq!(poller.wait(&mut events, Some(Duration::from_millis(1))).unwrap(), 0, "{kind}");
        let waking = thread::spawn(move || waker.wake().unwrap());
        let begun = Instant::now();
        assert_eq!(poller.wait(&mut events, None).unwrap(), 0, "{kind}");
        assert!(events.woken() && begun.elapsed() < LONG, "{kind}");
        waking.join().unwrap();
    }
}
