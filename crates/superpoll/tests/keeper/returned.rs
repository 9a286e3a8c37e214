//! Many that come back at once.

use superpoll_keeper::Sums;

use super::played::{Played, Said};
use super::*;

#[test]
fn many_that_come_back_one_by_one_are_one_question_to_the_kernel() {
    let _one = one_at_a_time();
    const COUNT: usize = 200;
    let (link, mut played) = Played::new();
    let mut poller = poller(Topology::Process(link, RESTLESS));
    let mut all = Connections::new(&mut poller, COUNT);
    leave(&mut poller, COUNT);
    let watched = played.watched();
    assert_eq!(watched.len(), COUNT);
    for (theirs, (key, _)) in all.theirs.iter_mut().zip(watched) {
        theirs.write_all(b"x").unwrap();
        played.send(&Notice::Ready(vec![(key, 1)]));
    }
    let before = poller.stats().calls;
    let mut events = Events::with_limit(COUNT);
    assert_eq!(poller.wait(&mut events, ZERO).unwrap(), COUNT);
    let calls = poller.stats().calls.since(&before);
    // The wait, and one for those that have come back.
    assert_eq!(calls.waits(), 2, "{calls}");
    assert_eq!((calls.recvmsg, calls.epoll_ctl_add), (COUNT as u64 + 1, COUNT as u64));
    drop(all.mine);
}

#[test]
fn a_keeper_that_never_stops_sending_is_given_up() {
    let _one = one_at_a_time();
    let (link, played) = Played::new();
    let mut poller = poller(Topology::Process(link, RESTLESS));
    let mut all = Connections::new(&mut poller, 1);
    let talks = std::thread::spawn(move || {
        // No descriptor is away, and no question was asked.
        while played.try_send(&Notice::Ready(vec![(7, 1); 100]))
            && played.try_send(&Notice::Synced(u64::MAX, Sums::default()))
        {}
    });
    for _ in 0..100 {
        let count = poller.wait(&mut Events::with_limit(8), ZERO).unwrap();
        assert_eq!(count, 0);
    }
    // It leaves, is called back, and is not mentioned: a call that waits for an answer gives up.
    assert_eq!(poller.stats().keeper_lost, 0);
    poller.flush();
    assert_eq!((poller.stats().keeper_lost, poller.stats().away.len), (1, 0));
    all.assert_reported(&mut poller, [0].into_iter());
    talks.join().unwrap();
}

/// A keeper lets go of a file after it has reported that the file stirs.
#[test]
fn a_keeper_may_hold_a_returned_file_until_a_flush() {
    patiently(|| {
        let _one = one_at_a_time();
        let (link, mut played) = Played::new();
        let mut poller = poller(Topology::Process(link, RESTLESS));
        let mut all = Connections::new(&mut poller, 1);
        leave(&mut poller, 1);
        let watched = played.watched();
        all.theirs[0].write_all(b"x").unwrap();
        played.send(&Notice::Ready(vec![(watched[0].0, 1)]));
        assert_eq!(poller.wait(&mut Events::with_limit(8), ZERO).unwrap(), 1);
        poller.deregister(all.keys[0]).unwrap();
        drop(all.mine.remove(0));
        let lets_go = std::thread::spawn(move || {
            let said = played.next();
            played.files.clear();
            if let Said::Sync(number) = said {
                played.send(&Notice::Synced(number, Sums::default()));
            }
            (said, played)
        });
        poller.flush();
        all.theirs[0].set_nonblocking(true).unwrap();
        let seen = all.theirs[0].read(&mut [0]).map_err(|error| error.kind());
        // It was closed with unread bytes.
        assert_eq!(seen, Err(std::io::ErrorKind::ConnectionReset));
        let before = poller.stats().calls.sendmsg;
        poller.flush();
        assert_eq!(poller.stats().calls.sendmsg, before, "there is nothing more to wait for");
        drop(poller);
        assert!(matches!(lets_go.join().unwrap().0, Said::Sync(_)));
    });
}
