//! A shared descriptor stays open for as long as its registration needs it, and no longer.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use superpoll::{BackendKind, Events, Interest, Poller};

const NOW: Option<Duration> = Some(Duration::ZERO);

#[test]
fn a_shared_descriptor_stays_open_until_its_registration_has_ended() {
    for kind in BackendKind::available() {
        let mut poller = Poller::builder().backend(kind).build().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let (number, writer) = (writer.as_raw_fd(), Arc::new(writer));
        let key = poller.share(&writer, Interest::WRITABLE).unwrap();
        drop(writer);
        let strangers: Vec<UnixStream> =
            (0..8).flat_map(|_| <[_; 2]>::from(UnixStream::pair().unwrap())).collect();
        assert!(strangers.iter().all(|stranger| stranger.as_raw_fd() != number), "{kind}");
        let mut events = Events::with_limit(4);
        poller.wait(&mut events, NOW).unwrap();
        assert!(events.find(key).is_some_and(|event| event.is_writable()), "{kind}");
        // The last one that keeps it open.
        poller.deregister(key).unwrap();
        poller.flush();
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "{kind}");
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
