//! Descriptors that cannot be sent, now or ever.

use std::os::fd::{AsFd, AsRawFd};

use superpoll_keeper::Sums;

use super::played::{Played, Said};
use super::*;

/// As many descriptors may be open, and so as many may be under way.
const LIMIT: usize = 100;

/// Runs a test in a process that may have few descriptors, of a user who may not send as many as it
/// likes.
fn within_a_limit(test: &str, run: impl Fn()) {
    if std::env::var_os(LISTENS).is_some() {
        return patiently(run);
    }
    let _one = one_at_a_time();
    let mut command = again(test, Some(LIMIT));
    // The first user may send as many as it likes.
    if std::fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt;
        own.uid() == 0
    }) {
        command.uid(65534).gid(65534);
    }
    let output = command.env(LISTENS, "nowhere").output();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            eprintln!("skipped: another user may not run {:?}", std::env::current_exe());
            return;
        }
        output => output.unwrap(),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    if complained.contains("Permission denied") && !said.contains("running") {
        eprintln!("skipped: another user may not run this program: {complained}");
        return;
    }
    assert!(output.status.success() && said.contains("1 passed"), "{said}{complained}");
}

#[test]
fn as_many_are_under_way_as_may_be() {
    within_a_limit("limits::as_many_are_under_way_as_may_be", || {
        let (link, theirs) = KeeperLink::pair().unwrap();
        let mut poller = poller(Topology::Process(link, RESTLESS));
        let mut all = Connections::new(&mut poller, 20);
        let mut events = Events::with_limit(64);
        until("there is no limit", || {
            for &key in &all.keys {
                poller.modify(key, Interest::READABLE | Interest::WRITABLE).unwrap();
            }
            assert_eq!(poller.wait(&mut events, Some(PATIENCE)).unwrap(), 20);
            for &key in &all.keys {
                poller.modify(key, Interest::READABLE).unwrap();
            }
            assert_eq!(poller.wait(&mut events, ZERO).unwrap(), 0);
            poller.stats().keeper_limit > 0
        });
        let stats = poller.stats();
        assert!(stats.moves_away >= LIMIT as u64 && stats.keeper_lost == 0, "{stats:?}");
        assert_eq!(stats.away.len, 0, "descriptors that could not leave are here");
        // Their events are reported where they are.
        for place in [0, 19] {
            all.theirs[place].write_all(b"x").unwrap();
            assert_eq!(poller.wait(&mut events, Some(PATIENCE)).unwrap(), 1);
            all.mine[place].read_exact(&mut [0]).unwrap();
        }
        // Once there is room again, they leave.
        let (mut room, mut descriptors) = (Vec::new(), Vec::new());
        while theirs.receive(&mut room, &mut descriptors).is_ok() {
            descriptors.clear();
        }
        leave(&mut poller, 20);
        assert_eq!(poller.stats().keeper_lost, 0);
    });
}

/// Puts as many descriptors under way as may be, on a link of their own.
fn crowd(busy: &KeeperLink) {
    let (reader, _writer) = std::io::pipe().unwrap();
    let some = [reader.as_fd(); 60];
    let error = loop {
        if let Err(error) = busy.send(b"x", &some) {
            break error;
        }
    };
    assert_eq!(error.raw_os_error(), Some(libc::ETOOMANYREFS), "{error}");
}

#[test]
fn a_hand_over_waits_until_descriptors_in_transit_have_arrived() {
    within_a_limit("limits::a_hand_over_waits_until_descriptors_in_transit_have_arrived", || {
        let (link, mut played) = Played::new();
        let mut poller = poller(Topology::Process(link, RESTLESS));
        let _some = Connections::new(&mut poller, 2);
        leave(&mut poller, 2);
        let _more = Connections::new(&mut poller, 8);
        let (busy, arrives) = KeeperLink::pair().unwrap();
        crowd(&busy);
        let plays = std::thread::spawn(move || {
            let (mut watched, mut is_crowded) = (0, true);
            loop {
                match played.next() {
                    Said::Watch(all) => watched += all.len(),
                    Said::Sync(number) => {
                        // The poller has tried, or it would not ask.
                        assert_eq!(watched > 2, !is_crowded);
                        let mut room = Vec::new();
                        while arrives.receive(&mut room, &mut Vec::new()).is_ok() {}
                        is_crowded = false;
                        played.send(&Notice::Synced(number, Sums::default()));
                    }
                    _ => return watched,
                }
            }
        });
        assert_eq!(poller.move_all_to_keeper(), 0);
        let stats = poller.stats();
        assert_eq!((stats.keeper_limit, stats.keeper_lost), (1, 0));
        drop(poller);
        assert_eq!(plays.join().unwrap(), 10);
    });
}

#[test]
fn a_hand_over_does_not_wait_indefinitely() {
    within_a_limit("limits::a_hand_over_does_not_wait_indefinitely", || {
        let (link, mut played) = Played::new();
        let mut poller = poller(Topology::Process(link, RESTLESS));
        let mut all = Connections::new(&mut poller, 8);
        let (busy, _arrives) = KeeperLink::pair().unwrap();
        crowd(&busy);
        let plays = std::thread::spawn(move || {
            while let Said::Sync(number) = played.next() {
                played.send(&Notice::Synced(number, Sums::default()));
            }
        });
        assert_eq!(poller.move_all_to_keeper(), 8);
        let stats = poller.stats();
        assert!(stats.keeper_limit > 1 && stats.keeper_lost == 0, "{stats:?}");
        // They are not on their way, so their events are reported here.
        all.assert_reported(&mut poller, [0, 7].into_iter());
        drop(poller);
        plays.join().unwrap();
    });
}

#[cfg(feature = "uring")]
#[test]
fn a_descriptor_that_may_not_be_sent_stays_and_is_not_retried() {
    let _one = one_at_a_time();
    // The kernel does not let rings travel (since Linux 6.8).
    let Ok(ring) = io_uring::IoUring::new(4) else {
        eprintln!("skipped: there is no io_uring here");
        return;
    };
    let (link, mut played) = Played::new();
    let mut poller = poller(Topology::Process(link, RESTLESS));
    let some = Connections::new(&mut poller, 3);
    let key = poller.register_raw(ring.as_raw_fd(), Interest::READABLE).unwrap();
    let mut more = Connections::new(&mut poller, 3);
    let mut events = Events::with_limit(8);
    until("the other descriptors do not leave", || {
        assert_eq!(poller.wait(&mut events, ZERO).unwrap(), 0);
        poller.stats().away.len >= 6
    });
    assert_eq!(poller.stats().keeper_lost, 0);
    if poller.is_away(key) {
        eprintln!("skipped: rings may travel here");
        return;
    }
    assert_eq!(played.watched().len(), 6);
    let before = poller.stats().calls.sendmsg;
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(poller.wait(&mut events, ZERO).unwrap(), 0);
    }
    assert_eq!(poller.stats().calls.sendmsg, before);
    // Another one in its place may leave.
    poller.deregister(key).unwrap();
    drop(ring);
    let (mine, theirs) = UnixStream::pair().unwrap();
    more.keys.push(poller.register(&mine, Interest::READABLE).unwrap());
    more.mine.push(mine);
    more.theirs.push(theirs);
    assert_eq!(more.keys[3].index(), key.index());
    leave(&mut poller, 7);
    drop(some);
}
