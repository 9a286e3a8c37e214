//! A reader that goes on in another thread, and one in a child process.

use superpoll::Error;
use superpoll::batch::Arrivals;

use super::stage::{NOW, keep_busy, pipe, readers, tcp, write};
use super::sys;

#[test]
fn a_reader_goes_on_in_another_thread_and_back() {
    for (name, mut reader) in readers() {
        let (ours, writers): (Vec<_>, Vec<_>) = (0..30).map(|_| tcp()).unzip();
        for fd in ours {
            reader.register(fd).unwrap();
        }
        keep_busy(&mut reader, &writers, 60);
        for _ in 0..3 {
            // Sources that are hot here are hot there, and bytes that were written before the move
            // are read after it.
            reader = std::thread::scope(|scope| {
                let work = || {
                    keep_busy(&mut reader, &writers, 40);
                    reader
                };
                scope.spawn(work).join().unwrap()
            });
            keep_busy(&mut reader, &writers, 40);
        }
        let mut arrivals = Arrivals::with_limit(100);
        assert_eq!(reader.wait(&mut arrivals, NOW).unwrap(), 0, "{name}");
    }
}

#[test]
fn a_wait_in_a_forked_child_is_refused() {
    for (name, mut reader) in readers() {
        let (ours, theirs) = pipe();
        let key = reader.register(ours).unwrap();
        keep_busy(&mut reader, std::slice::from_ref(&theirs), 60);
        assert_eq!(write(&theirs, b"parent"), 6, "{name}");
        let mut arrivals = Arrivals::with_limit(10);
        let is_told = sys::child_says_yes(|| {
            matches!(reader.wait(&mut arrivals, NOW), Err(Error::System { .. }))
        });
        assert!(is_told, "{name}");
        assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 1, "{name}");
        let arrival = arrivals.iter().next().unwrap();
        assert_eq!((arrival.key(), arrival.bytes()), (key, Some(&b"parent"[..])), "{name}");
    }
}
