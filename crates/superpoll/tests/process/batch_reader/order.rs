//! Each byte once and in order, whatever the order of reports, and each stream in its turn.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use superpoll::batch::{Arrivals, BatchReader, Outcome};
use superpoll::{Error, Key};

use super::stage::{BUFFER, NOW, Random, byte, pair, readers, stream, write};

/// The bytes that one end has written and the other has received.
struct Line {
    key: Option<Key>,
    writer: Option<OwnedFd>,
    written: usize,
    got: usize,
    paused: bool,
}

#[test]
fn each_byte_comes_once_and_in_order() {
    // The last one has descriptors that are due and read in each wait at once, with little room.
    for seed in [1, 2, 3, 1_795_302_476_112_477_666] {
        for (name, reader) in readers() {
            run(&format!("{name}, seed {seed}"), reader, seed);
        }
    }
}

#[test]
fn each_byte_comes_once_and_in_order_for_random_seeds() {
    // As many as there is time for; each run tests different seeds, which the message names.
    let begin = Instant::now();
    let mut seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    while begin.elapsed() < Duration::from_secs(3) {
        for (name, reader) in readers().into_iter().filter(|(name, _)| name.contains("uring")) {
            run(&format!("{name}, seed {seed}"), reader, seed);
        }
        seed += 1;
    }
}

/// Random writes, waits, pauses, closes and deregistrations, with a busy part of the lines,
/// compared with the expected bytes.
fn run(name: &str, mut reader: BatchReader<OwnedFd>, seed: u64) {
    let mut random = Random(seed);
    let mut lines: Vec<Line> = Vec::new();
    let mut by_key = HashMap::new();
    let mut arrivals = Arrivals::with_limit(1);
    let mut ended = 0;
    for step in 0..2500 {
        let open = lines.len() < 40 || random.below(60) == 0;
        if open && lines.len() < 100 {
            let (ours, theirs) = stream(random.below(3));
            let key = reader.register(ours).map_err(|refused| refused.error).unwrap();
            assert!(by_key.insert(key, lines.len()).is_none(), "{name}: {key:?} twice");
            let writer = Some(theirs);
            lines.push(Line { key: Some(key), writer, written: 0, got: 0, paused: false });
        }
        for (number, line) in lines.iter_mut().enumerate() {
            // A fifth of them is busy.
            let busy = number % 5 == 0;
            let writes = if busy { random.below(8) > 0 } else { random.below(50) == 0 };
            if let (true, Some(writer)) = (writes, &line.writer) {
                let most = if random.below(20) == 0 { 3000 } else { 40 };
                let places = line.written..line.written + 1 + random.below(most);
                let bytes: Vec<u8> = places.map(|place| byte(number, place)).collect();
                line.written += write(writer, &bytes);
            }
        }
        let which = random.below(lines.len());
        match random.below(40) {
            0 => lines[which].writer = None,
            1 => {
                if let Some(key) = lines[which].key {
                    reader.pause(key).unwrap();
                    lines[which].paused = true;
                }
            }
            2 => {
                if let Some(key) = lines[which].key.take() {
                    drop(reader.deregister(key).unwrap());
                    assert!(matches!(reader.deregister(key), Err(Error::StaleKey { .. })));
                }
            }
            _ => {}
        }
        for line in lines.iter_mut().filter(|line| line.paused) {
            if random.below(10) == 0
                && let Some(key) = line.key
            {
                reader.resume(key).unwrap();
                line.paused = false;
            }
        }
        let limit = [1, 2, 3, 7, 64, 500][random.below(6)];
        if arrivals.limit() != limit {
            arrivals = Arrivals::with_limit(limit);
        }
        if random.below(300) == 0 {
            reader = std::thread::scope(|scope| {
                let wait = || {
                    reader.wait(&mut arrivals, NOW).unwrap();
                    reader
                };
                scope.spawn(wait).join().unwrap()
            });
        } else {
            reader.wait(&mut arrivals, NOW).unwrap();
        }
        assert!(arrivals.len() <= limit, "{name}: {} arrivals, limit {limit}", arrivals.len());
        ended += take(name, step, &arrivals, &by_key, &mut lines);
    }
    for line in &mut lines {
        line.writer = None;
        if let (true, Some(key)) = (line.paused, line.key) {
            reader.resume(key).unwrap();
            line.paused = false;
        }
    }
    let left = lines.iter().filter(|line| line.key.is_some()).count();
    let deadline = Instant::now() + Duration::from_secs(20);
    let all = lines.len();
    while reader_has(&lines) && Instant::now() < deadline {
        reader.wait(&mut arrivals, Some(Duration::from_millis(200))).unwrap();
        ended += take(name, usize::MAX, &arrivals, &by_key, &mut lines);
    }
    assert!(!reader_has(&lines), "{name}: {ended} of {left} ends of {all} lines have come");
    assert_eq!(reader.wait(&mut arrivals, NOW).unwrap(), 0, "{name}: something after the ends");
}

fn reader_has(lines: &[Line]) -> bool {
    lines.iter().any(|line| line.key.is_some() && line.got != usize::MAX)
}

/// Compares arrivals with the bytes that were written. Returns how many ends there were.
fn take(
    name: &str,
    step: usize,
    arrivals: &Arrivals,
    by_key: &HashMap<Key, usize>,
    lines: &mut [Line],
) -> usize {
    let mut ends = 0;
    let mut seen = HashSet::new();
    for arrival in arrivals {
        let number = by_key[&arrival.key()];
        let line = &mut lines[number];
        let context = format!("{name}, step {step}, line {number}");
        assert!(seen.insert(number), "{context}: twice in a wait");
        assert_eq!(line.key, Some(arrival.key()), "{context}: deregistered");
        assert!(!line.paused, "{context}: paused");
        match arrival.outcome() {
            Outcome::Bytes(bytes) => {
                assert!(
                    !bytes.is_empty() && bytes.len() <= BUFFER,
                    "{context}: {} bytes",
                    bytes.len()
                );
                for &got in bytes {
                    assert_eq!(got, byte(number, line.got), "{context}, place {}", line.got);
                    line.got += 1;
                }
                assert!(line.got <= line.written, "{context}");
            }
            Outcome::End => {
                assert!(line.writer.is_none(), "{context}: an end of an open stream");
                assert_eq!(line.got, line.written, "{context}: an end before the last byte");
                line.got = usize::MAX;
                ends += 1;
            }
            other => panic!("{context}: {other:?}"),
        }
    }
    ends
}

#[test]
fn no_ready_source_waits_longer_than_its_turn() {
    for (name, mut reader) in readers() {
        let lines: Vec<_> = (0..30).map(|_| pair()).collect();
        let mut writers = Vec::new();
        for (ours, theirs) in lines {
            reader.register(ours).map_err(|refused| refused.error).unwrap();
            writers.push(theirs);
        }
        let mut arrivals = Arrivals::with_limit(4);
        let mut waits = HashMap::<Key, usize>::new();
        for round in 0..300 {
            for writer in &mut writers {
                let _ = writer.write(&[7; 64]);
            }
            assert!(reader.wait(&mut arrivals, NOW).unwrap() > 0, "{name}");
            for arrival in &arrivals {
                let last = waits.insert(arrival.key(), round).unwrap_or(0);
                // Those that are watched and those that are not have half of the limit each.
                assert!(round - last <= 2 * 30_usize.div_ceil(4) + 2, "{name}: {last} to {round}");
            }
        }
        assert_eq!(waits.len(), 30, "{name}");
        assert!(waits.values().all(|&last| last >= 300 - 18), "{name}: {waits:?}");
    }
}
