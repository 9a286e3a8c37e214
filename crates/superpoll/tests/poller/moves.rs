//! Pollers that are used and dropped on other threads than their first one, which lives on.

use std::collections::HashSet;
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use superpoll::{BackendKind, Events, Interest, Key, Mode, Poller, Readiness, Watch};
use superpoll_test_support::alone;

const NOW: Option<Duration> = Some(Duration::ZERO);
const LONG: Option<Duration> = Some(Duration::from_secs(20));

/// More changes than a ring takes at a time.
const MANY: usize = 400;

fn poller(kind: BackendKind) -> Poller {
    Poller::builder().backend(kind).build().unwrap()
}

fn found(poller: &mut Poller) -> HashSet<Key> {
    let mut events = Events::with_limit(2 * MANY);
    poller.wait(&mut events, NOW).unwrap();
    assert!(events.refusals().is_empty(), "{:?}", events.refusals());
    events.iter().map(|event| event.key()).collect()
}

/// Waits until nothing holds the reader open, on a thread whose other pollers are not touched.
/// That may take a moment: a poller of another test, which still asks for a descriptor that was
/// closed, holds the file that got its number for as long as its system call takes.
fn wait_until_reader_is_closed(writer: &PipeWriter, of: &str) {
    let mut poller = poller(BackendKind::Poll);
    poller.register(writer, Interest::PRIORITY).unwrap();
    let mut events = Events::with_limit(1);
    poller.wait(&mut events, LONG).unwrap();
    assert!(events.iter().any(|event| event.is_error()), "{of}: the reader stays open");
}

/// The fate of a poller and of the descriptor that it watches, on the second thread.
type Fate = fn(Poller, Key, PipeReader) -> Option<Poller>;

fn dropped(poller: Poller, _: Key, reader: PipeReader) -> Option<Poller> {
    drop((poller, reader));
    None
}

fn deregistered_at_once(mut poller: Poller, key: Key, reader: PipeReader) -> Option<Poller> {
    poller.deregister(key).unwrap();
    drop(reader);
    Some(poller)
}

fn deregistered_after_a_wait(mut poller: Poller, key: Key, reader: PipeReader) -> Option<Poller> {
    assert!(found(&mut poller).is_empty());
    poller.deregister_for_close(key).unwrap();
    drop(reader);
    Some(poller)
}

fn waited_with_and_dropped(mut poller: Poller, _: Key, reader: PipeReader) -> Option<Poller> {
    assert!(found(&mut poller).is_empty());
    dropped(poller, Key::from_bits(0), reader)
}

#[test]
fn a_file_released_on_another_thread_is_closed_while_the_first_thread_lives() {
    let fates: [(&str, Fate); 4] = [
        ("dropped", dropped),
        ("deregistered at once", deregistered_at_once),
        ("deregistered after a wait", deregistered_after_a_wait),
        ("waited with and dropped", waited_with_and_dropped),
    ];
    for kind in BackendKind::available() {
        for mode in [Mode::Level, Mode::Auto] {
            for (name, fate) in fates {
                let (reader, writer) = pipe().unwrap();
                let mut poller = poller(kind);
                let watch = Watch::new(Interest::READABLE).mode(mode);
                let key = poller.register(&reader, watch).unwrap();
                assert!(found(&mut poller).is_empty());
                let kept = thread::spawn(move || fate(poller, key, reader)).join().unwrap();
                wait_until_reader_is_closed(&writer, &format!("{kind}, {mode:?}, {name}"));
                drop(kept);
            }
        }
    }
}

#[test]
fn any_number_of_changes_before_the_first_wait_on_another_thread_is_applied() {
    // Otherwise the descriptors of other tests get numbers that are too large for `select`.
    alone(|| {
        for kind in BackendKind::available() {
            for (with_another, ends_one) in [(false, false), (true, false), (true, true)] {
                let mut moved = poller(kind);
                let (first, _writer) = pipe().unwrap();
                let first_key = moved.register(&first, Interest::READABLE).unwrap();
                assert!(found(&mut moved).is_empty());
                thread::spawn(move || {
                    let mut other = poller(kind);
                    let (theirs, mut writer) = pipe().unwrap();
                    let their_key = other.register(&theirs, Interest::READABLE).unwrap();
                    if with_another {
                        other.stay_on_thread();
                        assert!(found(&mut other).is_empty());
                    }
                    let pipes: Vec<_> = (0..MANY).map(|_| pipe().unwrap()).collect();
                    let mut keys = HashSet::new();
                    for (number, (reader, writer)) in pipes.iter().enumerate() {
                        (&*writer).write_all(b"x").unwrap();
                        let key = moved.register(reader, Interest::READABLE).unwrap();
                        keys.insert(key);
                        if number % 4 == 0 {
                            moved.modify(key, Interest::READABLE | Interest::PRIORITY).unwrap();
                        }
                    }
                    // Nothing that would take the poller to this thread before the wait.
                    if ends_one {
                        moved.deregister(first_key).unwrap();
                    }
                    assert_eq!(found(&mut moved), keys, "{kind}, with another: {with_another}");
                    // Nothing of it went to the other poller.
                    assert!(found(&mut other).is_empty());
                    writer.write_all(b"x").unwrap();
                    assert_eq!(found(&mut other), HashSet::from([their_key]));
                })
                .join()
                .unwrap();
            }
        }
    });
}

#[test]
fn changes_made_on_a_thread_without_kernel_calls_are_applied_on_the_first() {
    for kind in BackendKind::available() {
        let mut poller = poller(kind);
        let pipes: Vec<(PipeReader, PipeWriter)> = (0..3).map(|_| pipe().unwrap()).collect();
        let told = poller.register(&pipes[0].0, Interest::READABLE).unwrap();
        let ended = poller.register(&pipes[1].0, Interest::READABLE).unwrap();
        assert!(found(&mut poller).is_empty());
        let (mut poller, new) = thread::scope(|scope| {
            let there = scope.spawn(|| {
                poller.modify(ended, Interest::NONE).unwrap();
                let new = poller.register(&pipes[2].0, Interest::READABLE).unwrap();
                // As much as the wait may report, so it asks for no more.
                poller.mark_ready(told, Readiness::READABLE).unwrap();
                let mut events = Events::with_limit(1);
                assert_eq!(poller.wait(&mut events, LONG).unwrap(), 1);
                (poller, new)
            });
            there.join().unwrap()
        });
        let [_told, (reader, writer), (_new, mut new_writer)] = pipes.try_into().unwrap();
        new_writer.write_all(b"x").unwrap();
        assert_eq!(found(&mut poller), HashSet::from([new]), "{kind}");
        poller.deregister_for_close(ended).unwrap();
        drop(reader);
        wait_until_reader_is_closed(&writer, &kind.to_string());
    }
}

#[test]
fn a_poller_outlives_the_thread_that_used_it_first() {
    for kind in BackendKind::available() {
        for used_before_its_end in [false, true] {
            let (give, take) = mpsc::channel();
            let (end, ended) = mpsc::channel::<()>();
            let first = thread::spawn(move || {
                let mut poller = poller(kind);
                let (reader, writer) = pipe().unwrap();
                let key = poller.register(&reader, Interest::READABLE).unwrap();
                assert!(found(&mut poller).is_empty());
                give.send((poller, key, reader, writer)).unwrap();
                let _ = ended.recv();
            });
            let (mut poller, key, _reader, mut writer) = take.recv().unwrap();
            if used_before_its_end {
                assert!(found(&mut poller).is_empty());
            }
            drop(end);
            first.join().unwrap();
            let waker = poller.waker().unwrap();
            writer.write_all(b"x").unwrap();
            assert_eq!(found(&mut poller), HashSet::from([key]), "{kind}");
            waker.wake().unwrap();
            let mut events = Events::with_limit(4);
            poller.deregister(key).unwrap();
            poller.wait(&mut events, LONG).unwrap();
            assert!(events.woken());
        }
    }
}
