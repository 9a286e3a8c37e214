//! What depends on prices, with prices that are given.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::*;

#[test]
fn a_busy_source_is_read_without_being_watched_and_still_wakes_a_wait_that_blocks() {
    if !BackendKind::Uring.is_available() {
        eprintln!("skipped: uring is not available here");
        return;
    }
    for together in [true, false] {
        let reader = BatchReader::with_backend(BackendKind::Uring).unwrap();
        let mut reader = reader.reads_together(together);
        reader.speculation = Some(Speculation::new(prices::ASSUMED.terms()));
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
        assert_eq!(reader.stats().hot.len, 0, "nobody would wake the wait for one of them");
        drop(thread.join().unwrap());
        assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 1);
        assert!(matches!(arrivals.iter().next().unwrap().outcome(), Outcome::End));
    }
}
