//! The common start of all tests: readers of every make, streams of every kind, and bytes that tell
//! their place.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use superpoll::BackendKind;
use superpoll::batch::{Arrivals, BatchReader};

use super::sys;

pub(crate) const NOW: Option<Duration> = Some(Duration::ZERO);

/// The size of their buffers.
pub(crate) const BUFFER: usize = 64;

/// Readers of every make, with their names.
pub(crate) fn readers<T: AsFd>() -> Vec<(String, BatchReader<T>)> {
    let make = |kind| BatchReader::with_backend(kind).unwrap().buffer_size(BUFFER);
    let mut all = Vec::new();
    for kind in BackendKind::available() {
        all.push((kind.name().to_owned(), make(kind)));
    }
    if BackendKind::Uring.is_available() {
        let uring = || make(BackendKind::Uring);
        all.push(("uring, watching".to_owned(), uring().without_speculation()));
        for (how, together) in [("together", true), ("by calls", false)] {
            all.push((format!("uring, {how}"), uring().reads_together(together)));
            let watching = uring().reads_together(together).without_speculation();
            all.push((format!("uring, watching, {how}"), watching));
        }
    }
    all
}

pub(crate) fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    (ours, theirs)
}

pub(crate) fn pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = std::io::pipe().unwrap();
    sys::unblock(&reader);
    sys::unblock(&writer);
    (reader.into(), writer.into())
}

pub(crate) fn tcp() -> (OwnedFd, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    theirs.set_nonblocking(true).unwrap();
    // A byte is not kept back until the one before is acknowledged.
    theirs.set_nodelay(true).unwrap();
    (listener.accept().unwrap().0.into(), theirs.into())
}

/// The reading end and the writing end of a stream of one of three kinds.
pub(crate) fn stream(kind: usize) -> (OwnedFd, OwnedFd) {
    match kind {
        0 => pipe(),
        1 => tcp(),
        _ => {
            let (ours, theirs) = pair();
            (ours.into(), theirs.into())
        }
    }
}

/// Writes as many bytes as there is room for. Returns that number.
pub(crate) fn write(fd: &OwnedFd, bytes: &[u8]) -> usize {
    superpoll::call::write(fd, bytes).unwrap_or(0)
}

/// The byte at a place of a stream, which differs from stream to stream.
pub(crate) fn byte(stream: usize, place: usize) -> u8 {
    (place * 7 + stream * 31 + place / 256) as u8
}

/// A generator of numbers, from a seed.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// Keeps each of them busy for long enough that it is read in every wait, in the cheapest way.
pub(crate) fn keep_busy(reader: &mut BatchReader<OwnedFd>, writers: &[OwnedFd], rounds: usize) {
    let mut arrivals = Arrivals::with_limit(1000);
    for round in 0..rounds {
        for writer in writers {
            assert_eq!(write(writer, &[round as u8]), 1);
        }
        let mut got = 0;
        while got < writers.len() {
            reader.wait(&mut arrivals, None).unwrap();
            for arrival in &arrivals {
                let bytes = arrival.bytes().unwrap();
                assert!(bytes.iter().all(|&byte| byte == round as u8));
                got += bytes.len();
            }
        }
    }
}
