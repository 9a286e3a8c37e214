//! The batch reader while other threads write: it blocks, and never with bytes in a stream that it
//! watches.
//!
//! Threads write bursts to streams of all kinds and pause, which lets the reader block; the streams
//! that are busy change all the time. Half of the streams are written to only when everything
//! before was read, so that a report that is lost is not made good by the next arrival: the stream
//! would stand still until the end, when it is looked for. `SUPERPOLL_SOAK` is for how many seconds
//! to go on with other numbers of chance.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use superpoll::Key;
use superpoll::batch::{Arrivals, BatchReader, Outcome};

use super::stage::{BUFFER, Random, byte, readers, stream};
use super::{stage, sys};

const STREAMS: usize = 48;
const WRITERS: usize = 3;

/// A reader that sleeps for this long with everything written has lost something; no test that
/// passes depends on this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// The bytes that were written to each stream, and read from it.
struct Counters {
    written: [AtomicUsize; STREAMS],
    read: [AtomicUsize; STREAMS],
    done: AtomicBool,
}

/// Writes bursts to every third stream, most of them to a few that are busy for a while.
fn write(counters: &Counters, first: usize, streams: &[OwnedFd], bursts: usize, seed: u64) {
    let mut random = Random(seed + first as u64);
    for burst in 0..bursts {
        let busy = burst / 100 * 5 + random.below(4);
        let place = if random.below(8) > 0 { busy } else { random.below(streams.len()) };
        let place = place % streams.len();
        let number = first + place * WRITERS;
        let written = counters.written[number].load(Ordering::Relaxed);
        if number.is_multiple_of(2) && counters.read[number].load(Ordering::Relaxed) < written {
            std::thread::yield_now();
            continue;
        }
        let length = match random.below(40) {
            0 => 2000,
            1..4 => BUFFER,
            4..6 => BUFFER * 2,
            6..10 => 1 + random.below(4 * BUFFER),
            10..20 => 1,
            _ => 1 + random.below(30),
        };
        let bytes: Vec<u8> = (written..written + length).map(|at| byte(number, at)).collect();
        // Before, so that no thread reads more than was written.
        counters.written[number].store(written + length, Ordering::Relaxed);
        let count = stage::write(&streams[place], &bytes);
        counters.written[number].store(written + count, Ordering::Relaxed);
        match random.below(400) {
            0 => std::thread::sleep(Duration::from_millis(2)),
            1..10 => std::thread::sleep(Duration::from_micros(random.below(300) as u64)),
            10..60 => std::thread::yield_now(),
            _ => {}
        }
    }
}

fn run(name: &str, mut reader: BatchReader<OwnedFd>, bursts: usize, seed: u64) {
    let counters = Arc::new(Counters {
        written: [const { AtomicUsize::new(0) }; STREAMS],
        read: [const { AtomicUsize::new(0) }; STREAMS],
        done: AtomicBool::new(false),
    });
    let mut ends: [Vec<OwnedFd>; WRITERS] = [const { Vec::new() }; WRITERS];
    let mut keys = Vec::new();
    let mut numbers = HashMap::<Key, usize>::new();
    for number in 0..STREAMS {
        let (ours, theirs) = stream(number % 3);
        sys::unblock(&ours);
        keys.push(reader.register(ours).map_err(|refused| refused.error).unwrap());
        numbers.insert(keys[number], number);
        ends[number % WRITERS].push(theirs);
    }
    let mut random = Random(seed);
    let mut arrivals = Arrivals::with_limit(STREAMS);
    std::thread::scope(|scope| {
        let waker = reader.waker().unwrap();
        let writers: Vec<_> = (0..)
            .zip(&ends)
            .map(|(first, streams)| {
                let counters = counters.clone();
                scope.spawn(move || write(&counters, first, streams, bursts, seed))
            })
            .collect();
        let last = counters.clone();
        scope.spawn(move || {
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            last.done.store(true, Ordering::Release);
            waker.wake().unwrap();
        });
        loop {
            let done = counters.done.load(Ordering::Acquire);
            let left = |number: usize| {
                let read = counters.read[number].load(Ordering::Relaxed);
                counters.written[number].load(Ordering::Relaxed) - read
            };
            if done && (0..STREAMS).all(|number| left(number) == 0) {
                break;
            }
            if random.below(50) == 0 {
                arrivals = Arrivals::with_limit([1, 2, 5, STREAMS][random.below(4)]);
            }
            let some = reader.wait(&mut arrivals, Some(PATIENCE)).unwrap();
            if some == 0 && done && !arrivals.woken() {
                let lost: Vec<_> = (0..STREAMS)
                    .filter(|&number| left(number) > 0)
                    .map(|number| {
                        (number, left(number), sys::waiting(reader.get(keys[number]).unwrap()))
                    })
                    .collect();
                panic!("{name}, seed {seed}: asleep with {lost:?}: {:?}", reader.stats());
            }
            for arrival in &arrivals {
                let number = numbers[&arrival.key()];
                let Some(bytes) = arrival.bytes() else {
                    panic!("{name}, seed {seed}, stream {number}: {arrival:?}")
                };
                let from = counters.read[number].load(Ordering::Relaxed);
                for (place, &got) in (from..).zip(bytes) {
                    assert_eq!(got, byte(number, place), "{name}, seed {seed}, stream {number}");
                }
                counters.read[number].store(from + bytes.len(), Ordering::Relaxed);
            }
        }
    });
    drop(ends);
    let mut ended = 0;
    while ended < STREAMS {
        let some = reader.wait(&mut arrivals, Some(PATIENCE)).unwrap();
        // The wake-up at the end of the writers may still be under way.
        if some == 0 && arrivals.woken() {
            continue;
        }
        assert!(some > 0, "{name}, seed {seed}: {ended} of {STREAMS} ends were reported");
        let ends = arrivals.iter().filter(|one| matches!(one.outcome(), Outcome::End)).count();
        assert_eq!(ends, some, "{name}, seed {seed}: {arrivals:?}");
        ended += ends;
    }
}

#[test]
fn a_reader_never_sleeps_with_bytes_in_a_stream() {
    let soak = std::env::var("SUPERPOLL_SOAK").ok().and_then(|seconds| seconds.parse().ok());
    let soak = Duration::from_secs(soak.unwrap_or(0));
    let begin = Instant::now();
    let mut seed = 7;
    loop {
        for (name, reader) in readers() {
            run(&name, reader, 1500, seed);
        }
        if begin.elapsed() >= soak {
            return;
        }
        seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    }
}
