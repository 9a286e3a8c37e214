//! Operations are carried out on the file that they were started for, and on no other that has its
//! number since. Each test is left out where there is no io_uring.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use superpoll::operation::Operation;
use superpoll::{BackendKind, Error, Events, Interest, Key, Poller};

// Other tests use the rest of it.
#[allow(dead_code)]
mod sys;

const NOW: Option<Duration> = Some(Duration::ZERO);
const LONG: Option<Duration> = Some(Duration::from_secs(20));
const TEXT: &[u8] = b"for the pipe alone";

fn poller() -> Option<Poller> {
    if !BackendKind::Uring.is_available() {
        eprintln!("skipped: uring is not available here");
        return None;
    }
    Some(Poller::builder().backend(BackendKind::Uring).build().unwrap())
}

/// Starts a write; the memory comes back with a refusal.
fn write(poller: &mut Poller, key: Key, blocks: bool) -> Result<(), (Error, Vec<u8>)> {
    let write = Operation::Write { bytes: TEXT.to_vec(), from: 0 };
    let started = match blocks {
        true => poller.start(key, write, 1),
        false => poller.start_nonblocking(key, write, 1),
    };
    started.map(drop).map_err(|(error, write)| (error, write.into_memory().unwrap()))
}

#[test]
fn nothing_is_begun_under_a_registration_that_does_not_keep_its_descriptor_open() {
    let Some(mut poller) = poller() else { return };
    for blocks in [false, true] {
        let (_reader, writer) = io::pipe().unwrap();
        let number = writer.as_raw_fd();
        let key = poller.register(&writer, Interest::NONE).unwrap();
        let refused = |outcome: Result<(), (Error, Vec<u8>)>| {
            let (error, memory) = outcome.unwrap_err();
            assert!(matches!(error, Error::NotOwned { fd } if fd == number), "{blocks}: {error}");
            assert_eq!(memory, TEXT);
        };
        refused(write(&mut poller, key, blocks));
        poller.deregister(key).unwrap();
        // A promise for one registration does not hold for the next.
        let key = sys::register(&mut poller, &writer);
        poller.deregister(key).unwrap();
        let owned = poller.own(writer, Interest::NONE).unwrap();
        refused(write(&mut poller, owned.key(), blocks));
        drop(owned);
        poller.flush();
    }
}

#[test]
fn a_shared_descriptor_stays_open_until_its_registration_has_ended() {
    for blocks in [false, true] {
        let Some(mut poller) = poller() else { return };
        poller.wait(&mut Events::with_limit(1), NOW).unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let (number, writer) = (writer.as_raw_fd(), Arc::new(writer));
        let key = poller.share(&writer, Interest::NONE).unwrap();
        write(&mut poller, key, blocks).unwrap();
        drop(writer);
        let strangers: Vec<UnixStream> =
            (0..8).flat_map(|_| <[_; 2]>::from(UnixStream::pair().unwrap())).collect();
        assert!(strangers.iter().all(|stranger| stranger.as_raw_fd() != number), "{blocks}");
        let mut events = Events::with_limit(4);
        let mut done = 0;
        while done == 0 {
            poller.wait(&mut events, LONG).unwrap();
            done = events.progress().count();
        }
        let mut got = [0; TEXT.len()];
        reader.read_exact(&mut got).unwrap();
        assert_eq!(got, TEXT);
        // The last one that keeps it open.
        poller.deregister(key).unwrap();
        poller.flush();
        assert_eq!(reader.read(&mut got).unwrap(), 0, "{blocks}");
    }
}

#[test]
fn a_shared_descriptor_is_released_with_the_poller_and_by_a_refusal() {
    let (mut reader, writer) = io::pipe().unwrap();
    let writer = Arc::new(writer);
    for kind in BackendKind::available() {
        let mut poller = Poller::builder().backend(kind).build().unwrap();
        poller.share(&writer, Interest::NONE).unwrap();
        assert!(poller.share(&writer, Interest::NONE).is_err());
        assert_eq!(Arc::strong_count(&writer), 2, "{kind}");
        drop(poller);
        assert_eq!(Arc::strong_count(&writer), 1, "{kind}");
    }
    drop(writer);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_shutdown_behind_a_send_never_reaches_another_file() {
    let Some(mut poller) = poller() else { return };
    let mut events = Events::with_limit(4);
    let mut peer_read = vec![0; 1 << 20];
    let capacity = {
        let (one, _peer) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        (&one).write(&peer_read).unwrap()
    };
    for round in 0..100 {
        let (one, mut peer) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        peer.set_nonblocking(true).unwrap();
        let key = sys::register(&mut poller, &one);
        // A little more than fits, so that the rest goes in one piece.
        let bytes = vec![1; capacity + 500];
        poller.start(key, Operation::SendAllAndShutdown { bytes, from: 0 }, 1).unwrap();
        poller.wait(&mut events, NOW).unwrap();
        // The send comes to its end at the very moment at which the registration ends.
        while matches!(peer.read(&mut peer_read), Ok(1..)) {}
        if round % 2 == 0 {
            // With the kernel's own thread, which looks the number up when it gets round to it.
            poller.flush();
        }
        poller.deregister(key).unwrap();
        // Closes the file, and puts another one in its place in the same moment.
        let (stranger, mut friend) = UnixStream::pair().unwrap();
        sys::replace(stranger, one.as_raw_fd());
        let mut stranger = one;
        for _ in 0..3 {
            poller.wait(&mut events, NOW).unwrap();
            stranger.write_all(b"x").unwrap_or_else(|error| panic!("round {round}: {error}"));
            friend.read_exact(&mut [0]).unwrap();
        }
    }
}
