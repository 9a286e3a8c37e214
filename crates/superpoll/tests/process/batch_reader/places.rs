//! Descriptors that are refused or given back while they are busy, and the later ones that get
//! their place.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use superpoll::batch::{Arrivals, BatchReader};
use superpoll::{BackendKind, Error};

use super::stage::{NOW, keep_busy, pair, pipe, readers, tcp};
use super::sys::{self, Numbered};

/// A wait that takes this long is one that does not end.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn a_refused_descriptor_keeps_its_key_and_frees_its_slot() {
    for kind in [BackendKind::Epoll, BackendKind::Uring] {
        if !kind.is_available() {
            continue;
        }
        let name = kind.name();
        let mut reader = BatchReader::with_backend(kind).unwrap();
        let (gone, _theirs) = pair();
        let duplicate = Numbered::duplicate(&gone, 950);
        let number = duplicate.0;
        let lost = reader.register(duplicate).map_err(|refused| refused.error).unwrap();
        sys::close(number);
        let mut arrivals = Arrivals::with_limit(10);
        assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 0, "{name}");
        assert_eq!(arrivals.refusals().len(), 1, "{name}");
        assert_eq!(arrivals.refusals()[0].0, lost, "{name}");
        assert!(reader.is_empty(), "{name}");

        let (ours, mut theirs) = pair();
        let number = ours.as_raw_fd();
        let key = reader.register(Numbered(number)).map_err(|refused| refused.error).unwrap();
        assert_eq!(key.index(), lost.index(), "{name}: the place is given to another");
        assert_eq!(reader.len(), 1, "{name}");
        assert!(reader.pause(lost).is_err() && reader.get(lost).is_some(), "{name}");
        assert_eq!(reader.get(key).unwrap().0, number, "{name}");
        assert!(reader.deregister(lost).unwrap().0 >= 950, "{name}");
        assert!(matches!(reader.deregister(lost), Err(Error::StaleKey { .. })), "{name}");
        theirs.write_all(b"x").unwrap();
        assert_eq!(reader.wait(&mut arrivals, None).unwrap(), 1, "{name}");
        assert_eq!(arrivals.iter().next().unwrap().bytes(), Some(&b"x"[..]), "{name}");
    }
}

#[test]
fn a_busy_descriptor_that_is_given_back_is_closed_for_its_peer_at_once() {
    for (name, mut reader) in readers() {
        let lines: Vec<_> =
            (0..40).map(|place| if place % 2 == 0 { tcp() } else { pipe() }).collect();
        let (ours, writers): (Vec<_>, Vec<_>) = lines.into_iter().unzip();
        let keys: Vec<_> = ours.into_iter().map(|fd| reader.register(fd).unwrap()).collect();
        keep_busy(&mut reader, &writers, 60);
        for (key, writer) in keys.into_iter().zip(&writers) {
            drop(reader.deregister(key).unwrap());
            assert!(sys::becomes_readable(writer), "{name}");
        }
    }
}

#[test]
fn a_descriptor_in_the_slot_of_a_refused_busy_one_is_read_instead() {
    if !BackendKind::Uring.is_available() {
        return;
    }
    let reader = BatchReader::with_backend(BackendKind::Uring).unwrap();
    let mut reader = reader.reads_together(true);
    let mut arrivals = Arrivals::with_limit(100);
    // A descriptor that is read so often that the ring keeps its file, among enough more to make
    // that worth it.
    let (old, mut to_old) = pair();
    let duplicate = Numbered::duplicate(&old, 1000);
    let number = duplicate.0;
    let lost = reader.register(duplicate).map_err(|refused| refused.error).unwrap();
    let others: Vec<_> = (0..20).map(|_| pair()).collect();
    for (ours, _) in &others {
        reader.register(Numbered(ours.as_raw_fd())).map_err(|refused| refused.error).unwrap();
    }
    let (mut rounds, end) = (0, Instant::now() + PATIENCE);
    while rounds < 200 || reader.stats().hot.len < 21 {
        assert!(Instant::now() < end, "it does not pay to read all of them: {:?}", reader.stats());
        rounds += 1;
        to_old.write_all(b"x").unwrap();
        for (_, theirs) in &others {
            (&*theirs).write_all(b"x").unwrap();
        }
        let mut got = 0;
        while got < 21 {
            got += reader.wait(&mut arrivals, None).unwrap();
        }
    }
    sys::close(number);
    // A wait that would block asks the kernel to watch it again, which the kernel refuses.
    assert_eq!(reader.wait(&mut arrivals, Some(PATIENCE)).unwrap(), 0);
    assert_eq!(arrivals.refusals().len(), 1);
    assert_eq!(arrivals.refusals()[0].0, lost);
    let (new, mut to_new) = pair();
    let key = reader.register(Numbered(new.as_raw_fd())).map_err(|refused| refused.error).unwrap();
    assert_eq!(key.index(), lost.index(), "the place is given to another");
    to_old.write_all(b"a stranger's").unwrap();
    for (_, theirs) in &others[..3] {
        (&*theirs).write_all(b"x").unwrap();
    }
    to_new.write_all(b"its own").unwrap();
    let mut got = Vec::new();
    for _ in 0..4 {
        reader.wait(&mut arrivals, NOW).unwrap();
        for arrival in arrivals.iter().filter(|arrival| arrival.key() == key) {
            got.extend_from_slice(arrival.bytes().unwrap());
        }
    }
    assert_eq!(String::from_utf8_lossy(&got), "its own");
}
