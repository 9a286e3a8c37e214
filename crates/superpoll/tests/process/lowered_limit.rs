//! The limit of descriptors is lowered below the number of those that are watched, as an operator
//! can do to a process that runs (`prlimit(2)`). The limit is that of the process, so this test has
//! one of its own.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use superpoll::backend::policy::{Fixed, Set};
use superpoll::{BackendKind, Events, Interest, Key, Owned, Poller, Waker};
use superpoll_test_support::alone;

use crate::sys;

const COUNT: usize = 40;

type Pipe = (Owned<PipeReader>, PipeWriter);

fn ready(poller: &mut Poller, timeout: Option<Duration>) -> Vec<Key> {
    let mut events = Events::with_limit(COUNT);
    poller.wait(&mut events, timeout).unwrap();
    let mut keys: Vec<_> = events.iter().map(|event| event.key()).collect();
    keys.sort();
    keys
}

fn check(name: &str, (poller, waker): (&mut Poller, &Waker), pipes: &mut [Pipe], limit: u64) {
    sys::limit_descriptors(limit);
    // Nothing comes, and no wait ends early.
    let timeout = Duration::from_millis(12);
    let begun = Instant::now();
    assert_eq!(ready(poller, Some(timeout)), [], "{name}, {limit}");
    assert!(begun.elapsed() >= timeout, "{name}, {limit}");
    let some = [0, COUNT / 2, COUNT - 1];
    let keys = some.map(|index| pipes[index].0.key());
    for wait in [Some(Duration::ZERO), Some(Duration::from_secs(60)), None] {
        for index in some {
            pipes[index].1.write_all(b"x").unwrap();
        }
        assert_eq!(ready(poller, wait), keys, "{name}, {limit}");
        for index in some {
            (&*pipes[index].0).read_exact(&mut [0]).unwrap();
        }
    }
    // A byte that comes during a wait.
    thread::scope(|scope| {
        let (last, writer) = &mut pipes[COUNT - 1];
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(12));
            writer.write_all(b"x").unwrap();
        });
        assert_eq!(ready(poller, None), [last.key()], "{name}, {limit}");
        (&**last).read_exact(&mut [0]).unwrap();
    });
    // So does a waker.
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(12));
            waker.wake().unwrap();
        });
        assert_eq!(ready(poller, None), [], "{name}, {limit}");
    });
}

#[test]
fn what_is_watched_already_is_watched_on() {
    alone(|| {
        let (before, _) = superpoll::limits::nofile();
        let hot = Poller::builder().policy(Fixed::new(Set::Hot)).build().unwrap();
        let all = BackendKind::available()
            .into_iter()
            .map(|kind| (kind.name(), Poller::builder().backend(kind).build().unwrap()));
        for (name, mut poller) in all.into_iter().chain([("adaptive, all hot", hot)]) {
            let waker = poller.waker().unwrap();
            let mut pipes: Vec<Pipe> = Vec::new();
            for _ in 0..COUNT {
                let (reader, writer) = std::io::pipe().unwrap();
                pipes.push((poller.own(reader, Interest::READABLE).unwrap(), writer));
            }
            poller.flush();
            for limit in [COUNT as u64, 20, 3, 1] {
                check(name, (&mut poller, &waker), &mut pipes, limit);
            }
            sys::limit_descriptors(before);
        }
    });
}
