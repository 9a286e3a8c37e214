//! What depends on prices, with prices that are given.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::*;
use crate::sys::descriptor::set_nonblocking;

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
        reader.speculation = Some(Speculation::new(prices::ASSUMED.terms(), looking));
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
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            late.write_all(b"late").unwrap();
            late
        });
        assert_eq!(reader.wait(&mut arrivals, Some(Duration::from_secs(20))).unwrap(), 1);
        assert_eq!(arrivals.iter().next().unwrap().bytes(), Some(&b"late"[..]));
        let stats = reader.stats();
        assert!(stats.moves_to_cold >= 20, "nobody would wake the wait for one of them: {stats:?}");
        drop(thread.join().unwrap());
        assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 1);
        assert!(matches!(arrivals.iter().next().unwrap().outcome(), Outcome::End));
    }
}

#[test]
fn where_reads_are_in_vain_a_look_comes_first() {
    if !BackendKind::Uring.is_available() {
        eprintln!("skipped: uring is not available here");
        return;
    }
    let mut reader = BatchReader::with_backend(BackendKind::Uring).unwrap();
    let looking = prices::ASSUMED.terms_of_looking(&Costs::ASSUMED);
    reader.speculation = Some(Speculation::new(prices::ASSUMED.terms(), looking));
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
    assert!(looks[0] == 0 && looks[1] > 500 && looks[2] < 50, "{looks:?}");
}
