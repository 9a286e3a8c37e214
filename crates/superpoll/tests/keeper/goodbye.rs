//! A keeper that the poller says goodbye to, although it lives.

use super::played::{Played, Said};
use super::*;

#[test]
fn a_keeper_that_sends_garbage_gets_a_goodbye() {
    let _one = one_at_a_time();
    let (link, mut played) = Played::new();
    let mut poller = poller(Topology::Process(link, RESTLESS));
    let mut all = Connections::new(&mut poller, 3);
    leave(&mut poller, 3);
    assert_eq!(played.watched().len(), 3);
    played.mumble();
    assert_eq!(poller.wait(&mut Events::with_limit(8), ZERO).unwrap(), 0);
    assert_eq!((poller.stats().keeper_lost, poller.stats().away.len), (1, 0));
    assert_eq!(played.all(), [Said::Bye, Said::Nothing]);
    all.assert_reported(&mut poller, 0..3);
}

#[test]
fn a_keeper_that_does_not_answer_gets_a_goodbye() {
    let _one = one_at_a_time();
    let (link, mut played) = Played::new();
    let mut poller = poller(Topology::Process(link, RESTLESS));
    let mut all = Connections::new(&mut poller, 1);
    leave(&mut poller, 1);
    played.watched();
    poller.flush();
    assert!(matches!(poller.keeper_status(), KeeperStatus::Lost(_)));
    let said = played.all();
    assert!(matches!(said[..], [Said::Sync(_), Said::Bye, Said::Nothing]), "{said:?}");
    all.assert_reported(&mut poller, [0].into_iter());
}

#[test]
fn a_live_keeper_closes_descriptors_that_its_loop_takes_back() {
    let _one = one_at_a_time();
    let keeper = KeeperHandle::start(None);
    let control = keeper.control(1);
    let idle = descriptors_of(keeper.child.id());
    let mut poller = poller(Topology::Process(control.link().unwrap(), RESTLESS));
    let mut all = Connections::new(&mut poller, 5);
    leave(&mut poller, 5);
    poller.flush();
    keeper.signal(libc::SIGSTOP);
    let state = format!("/proc/{}/stat", keeper.child.id());
    until("it does not stop", || std::fs::read_to_string(&state).unwrap().contains(") T "));
    poller.flush();
    assert_eq!((poller.stats().keeper_lost, poller.stats().away.len), (1, 0));
    keeper.signal(libc::SIGCONT);
    until("it keeps forgotten descriptors", || descriptors_of(keeper.child.id()) == idle);
    all.assert_reported(&mut poller, 0..5);
    // Its peer sees the end, because no other process has the file.
    all.theirs[0].set_read_timeout(Some(PATIENCE)).unwrap();
    poller.deregister(all.keys[0]).unwrap();
    drop(all.mine.remove(0));
    assert_eq!(all.theirs[0].read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_descriptor_that_cannot_be_recalled_is_void_before_its_next_use() {
    let _one = one_at_a_time();
    // A user may have as many descriptors in flight as one process may have open.
    superpoll::limits::raise_descriptors().unwrap();
    let (link, mut played, mut revocation) = Played::revocable();
    let mut poller = poller(Topology::Process(link, RESTLESS));
    let mut all = Connections::new(&mut poller, 100);
    leave(&mut poller, 100);
    let mut events = Events::with_limit(64);
    // Some are called back and away again, until the link is full.
    let read_write = Interest::READABLE | Interest::WRITABLE;
    until("the link is never full", || {
        for &key in &all.keys[92..] {
            poller.modify(key, read_write).unwrap();
        }
        assert_eq!(poller.wait(&mut events, Some(PATIENCE)).unwrap(), 8);
        for &key in &all.keys[92..] {
            poller.modify(key, Interest::READABLE).unwrap();
        }
        assert_eq!(poller.wait(&mut events, ZERO).unwrap(), 0);
        poller.stats().keeper_full > 0
    });
    assert_eq!(poller.stats().keeper_lost, 0);
    let mut count = [0; 8];
    let error = revocation.read(&mut count).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "it is void too early");
    // The owner of each writes to it from then on, and of one the keeper has not heard.
    while matches!(poller.keeper_status(), KeeperStatus::Present) {
        let error = revocation.read(&mut count).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "it is void too early");
        poller.deregister(all.keys.remove(0)).unwrap();
        drop((all.mine.remove(0), all.theirs.remove(0)));
    }
    assert!(!played.all().contains(&Said::Bye), "there was room for it");
    assert_eq!(revocation.read(&mut count).unwrap(), 8, "the revocation is not signalled");
    assert!(matches!(poller.keeper_status(), KeeperStatus::Lost(_)));
    // The remaining descriptors are watched here.
    let left = all.keys.len();
    assert!(left > 8, "there was room for all of them");
    all.assert_reported(&mut poller, 0..left);
}

#[test]
fn a_dropped_poller_revokes_its_link_even_without_a_reader() {
    let _one = one_at_a_time();
    let (link, played, mut revocation) = Played::revocable();
    let mut poller = poller(Topology::Process(link, RESTLESS));
    let _all = Connections::new(&mut poller, 1);
    leave(&mut poller, 1);
    drop(played);
    drop(poller);
    assert_eq!(revocation.read(&mut [0; 8]).unwrap(), 8);
}
