//! Choices that depend on prices, with prices that are given.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::*;
use crate::sys::descriptor::set_nonblocking;

/// Waits until a thread sleeps in a call of a ring. Where the kernel does not tell, that takes some
/// time, after which a thread that has nothing else to do sleeps.
fn until_it_sleeps_in_a_ring(thread: &Path) {
    let end = Instant::now() + Duration::from_secs(8);
    // Of a thread that runs, or is ready to, the kernel names no call.
    let call = format!("{} ", libc::SYS_io_uring_enter);
    let sleeps = || {
        std::fs::read_to_string(thread.join("syscall")).is_ok_and(|said| said.starts_with(&call))
    };
    while !sleeps() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_busy_source_is_read_without_being_watched_and_still_wakes_a_wait_that_blocks() {
    if !BackendKind::Uring.is_available() {
        eprintln!("skipped: uring is not available here");
        return;
    }
    for together in [true, false] {
        let reader = BatchReader::with_backend(BackendKind::Uring).unwrap();
        let mut reader = reader.reads_together(together);
        let looking = prices::ASSUMED.terms_of_looking(&Costs::ASSUMED);
        let terms = prices::ASSUMED.terms(Some(together));
        reader.speculation = Some(Speculation::new(terms, looking));
        let mut writers = Vec::new();
        for _ in 0..20 {
            let (ours, theirs) = UnixStream::pair().unwrap();
            reader.register(ours).map_err(|refused| refused.error).unwrap();
            writers.push(theirs);
        }
        let mut arrivals = Arrivals::with_limit(100);
        for _ in 0..400 {
            for writer in &mut writers {
                writer.write_all(b"x").unwrap();
            }
            let mut got = 0;
            while got < 20 {
                got += reader.wait(&mut arrivals, None).unwrap();
            }
        }
        let stats = reader.stats();
        assert_eq!(stats.hot.len, 20, "{stats:?}");
        assert!(stats.hot.atr() > 0.9, "{stats:?}");
        // One call a wait, which carries the reads if they are together.
        assert!(stats.calls.io_uring_enter < 900, "{stats:?}");
        let mut late = writers.remove(7);
        let waiting = Path::new("/proc").join(std::fs::read_link("/proc/thread-self").unwrap());
        let thread = std::thread::spawn(move || {
            until_it_sleeps_in_a_ring(&waiting);
            late.write_all(b"late").unwrap();
            late
        });
        assert_eq!(reader.wait(&mut arrivals, Some(Duration::from_secs(20))).unwrap(), 1);
        assert_eq!(arrivals.iter().next().unwrap().bytes(), Some(&b"late"[..]));
        let stats = reader.stats();
        assert!(
            stats.moves_to_cold >= 20,
            "no event would wake the wait for one of them: {stats:?}"
        );
        drop(thread.join().unwrap());
        assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 1);
        assert!(matches!(arrivals.iter().next().unwrap().outcome(), Outcome::End));
    }
}

#[test]
fn the_rule_uses_the_prices_of_the_chosen_read_method() {
    if !BackendKind::Uring.is_available() {
        eprintln!("skipped: uring is not available here");
        return;
    }
    let prices = Prices::calibrated();
    let in_force = |reader: &BatchReader<_>| reader.speculation.as_ref().unwrap().terms();
    let mut reader = BatchReader::with_backend(BackendKind::Uring).unwrap();
    assert_eq!(in_force(&reader), prices.terms(None));
    for together in [true, false] {
        reader = reader.reads_together(together);
        assert_eq!(in_force(&reader), prices.terms(Some(together)));
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let key = reader.register(ours).map_err(|refused| refused.error).unwrap();
        // Not while there is something to reckon with by the old prices.
        reader = reader.reads_together(!together);
        assert_eq!(in_force(&reader), prices.terms(Some(together)));
        theirs.write_all(b"x").unwrap();
        let mut arrivals = Arrivals::with_limit(1);
        assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 1);
        drop(reader.deregister(key).unwrap());
    }
    assert!(reader.without_speculation().reads_together(true).speculation.is_none());
}

#[test]
fn where_reads_are_in_vain_a_look_comes_first() {
    if !BackendKind::Uring.is_available() {
        eprintln!("skipped: uring is not available here");
        return;
    }
    let mut reader = BatchReader::with_backend(BackendKind::Uring).unwrap();
    let looking = prices::ASSUMED.terms_of_looking(&Costs::ASSUMED);
    reader.speculation = Some(Speculation::new(prices::ASSUMED.terms(None), looking));
    let mut writers = Vec::new();
    for _ in 0..20 {
        let (ours, theirs) = std::io::pipe().unwrap();
        set_nonblocking(ours.as_fd()).unwrap();
        reader.register(ours).map_err(|refused| refused.error).unwrap();
        writers.push(theirs);
    }
    let mut arrivals = Arrivals::with_limit(100);
    // All in each wait, then one half and the other, then all again.
    let mut looks = Vec::new();
    for (rounds, halves) in [(300, false), (600, true), (300, false)] {
        let before = reader.stats().calls.poll;
        for round in 0..rounds {
            let active = |&(place, _): &(usize, _)| !halves || place % 2 == round % 2;
            let mut written = 0;
            for (_, writer) in writers.iter_mut().enumerate().filter(active) {
                writer.write_all(b"x").unwrap();
                written += 1;
            }
            while written > 0 {
                written -= reader.wait(&mut arrivals, None).unwrap();
            }
        }
        looks.push(reader.stats().calls.poll - before);
        assert_eq!(reader.stats().hot.len, 20, "{looks:?}");
    }
    // Until the sources are hot, one call in each wait asks whether their short reads have left
    // something.
    assert!(looks[0] < 50 && looks[1] > 500 && looks[2] < 50, "{looks:?}");
}

/// A reader of one source, which each report makes hot and each look makes cold again: its reads
/// that find nothing are expensive compared with a move, and its events much more so.
fn changes_its_mind_each_time() -> Option<(BatchReader<UnixStream>, UnixStream)> {
    if !BackendKind::Uring.is_available() {
        eprintln!("skipped: uring is not available here");
        return None;
    }
    let reader = BatchReader::with_backend(BackendKind::Uring).unwrap();
    let mut reader = reader.reads_together(false).buffer_size(8);
    let mut terms = prices::ASSUMED.terms(Some(false));
    let unix = &mut terms.unix;
    (unix.scan, unix.ready, unix.event, unix.add, unix.modify) = (2e3, -2e3, 2e4, 1e3, 1e3);
    let looking = prices::ASSUMED.terms_of_looking(&Costs::ASSUMED);
    reader.speculation = Some(Speculation::new(terms, looking));
    let (ours, theirs) = UnixStream::pair().unwrap();
    reader.register(ours).map_err(|refused| refused.error).unwrap();
    Some((reader, theirs))
}

#[test]
fn remaining_bytes_of_a_source_that_was_briefly_hot_are_read() {
    let Some((mut reader, mut theirs)) = changes_its_mind_each_time() else { return };
    let mut arrivals = Arrivals::with_limit(10);
    for round in 0..3 {
        theirs.write_all(b"more than eight").unwrap();
        assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 1);
        assert_eq!(arrivals.iter().next().unwrap().bytes(), Some(&b"more tha"[..]));
        let stats = reader.stats();
        assert_eq!(
            (stats.hot.len, stats.moves_to_hot, stats.moves_to_cold),
            (0, round + 1, round + 1)
        );
        let late = reader.wait(&mut arrivals, Some(Duration::from_secs(10))).unwrap();
        assert_eq!(late, 1, "the rest is in the socket and nothing says so any more");
        assert_eq!(arrivals.iter().next().unwrap().bytes(), Some(&b"n eight"[..]));
    }
}

#[test]
fn the_end_of_a_source_that_was_briefly_hot_is_reported() {
    let Some((mut reader, mut theirs)) = changes_its_mind_each_time() else { return };
    let mut arrivals = Arrivals::with_limit(10);
    theirs.write_all(b"last").unwrap();
    drop(theirs);
    assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 1);
    assert_eq!(arrivals.iter().next().unwrap().bytes(), Some(&b"last"[..]));
    assert_eq!(reader.stats().moves_to_cold, 1);
    assert_eq!(reader.wait(&mut arrivals, Some(Duration::from_secs(10))).unwrap(), 1);
    assert!(matches!(arrivals.iter().next().unwrap().outcome(), Outcome::End));
}

/// The ring keeps the files of busy sources. `get_mut` lets the caller take such a file out, and
/// its new owner reads all its bytes.
#[test]
fn nothing_is_read_of_a_file_that_was_taken_out_of_a_busy_source() {
    if !BackendKind::Uring.is_available() {
        eprintln!("skipped: uring is not available here");
        return;
    }
    // Enough sources that they are read by the ring.
    const SOURCES: usize = 4;
    let reader = BatchReader::with_backend(BackendKind::Uring).unwrap();
    let mut reader = reader.reads_together(true);
    let mut arrivals = Arrivals::with_limit(2 * SOURCES);
    let (mut keys, mut peers) = (Vec::new(), Vec::new());
    for _ in 0..SOURCES {
        let (ours, theirs) = UnixStream::pair().unwrap();
        keys.push(reader.register(ours).map_err(|refused| refused.error).unwrap());
        peers.push(theirs);
    }
    let read_all = |reader: &mut BatchReader<UnixStream>, arrivals: &mut Arrivals, count: usize| {
        let mut arrived = Vec::new();
        while arrived.len() < count {
            reader.wait(arrivals, Some(Duration::from_secs(30))).unwrap();
            arrived.extend(arrivals.iter().map(Arrival::key));
        }
        arrived
    };
    // Their files are kept with the next reads.
    keys.iter().for_each(|key| reader.stays(key.index()));
    peers.iter_mut().for_each(|peer| peer.write_all(b"x").unwrap());
    assert_eq!(read_all(&mut reader, &mut arrivals, SOURCES).len(), SOURCES);

    let (other, _peer) = UnixStream::pair().unwrap();
    let mut taken_out = std::mem::replace(reader.get_mut(keys[0]).unwrap(), other);
    peers.iter_mut().for_each(|peer| peer.write_all(b"secret").unwrap());
    let arrived = read_all(&mut reader, &mut arrivals, SOURCES - 1);
    assert!(!arrived.contains(&keys[0]), "it was read although it is not the reader's");
    taken_out.set_nonblocking(true).unwrap();
    let mut got = [0; 6];
    taken_out.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"secret");
}
