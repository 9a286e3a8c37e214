//! A babysitter that is given up on, but lives.

use super::played::{Played, Said};
use super::*;

#[test]
fn who_is_given_up_on_is_told_to_forget() {
    let _one = one_at_a_time();
    let (line, mut played) = Played::new();
    let mut poller = poller(Topology::Process(line, RESTLESS));
    let mut all = Connections::new(&mut poller, 3);
    leave(&mut poller, 3);
    assert_eq!(played.watched().len(), 3);
    played.mumble();
    assert_eq!(poller.wait(&mut Events::with_limit(8), ZERO).unwrap(), 0);
    assert_eq!((poller.stats().sitter_lost, poller.stats().away.len), (1, 0));
    assert_eq!(played.all(), [Said::Bye, Said::Nothing]);
    all.are_heard(&mut poller, 0..3);
}

#[test]
fn who_does_not_answer_is_told_to_forget() {
    let _one = one_at_a_time();
    let (line, mut played) = Played::new();
    let mut poller = poller(Topology::Process(line, RESTLESS));
    let mut all = Connections::new(&mut poller, 1);
    leave(&mut poller, 1);
    played.watched();
    poller.flush();
    assert!(matches!(poller.babysitting(), Babysitting::Lost(_)));
    let said = played.all();
    assert!(matches!(said[..], [Said::Sync(_), Said::Bye, Said::Nothing]), "{said:?}");
    all.are_heard(&mut poller, [0].into_iter());
}

#[test]
fn a_babysitter_that_lives_closes_what_its_loop_takes_back() {
    let _one = one_at_a_time();
    let sitter = Sitter::start(None);
    let control = sitter.control(1);
    let idle = descriptors_of(sitter.child.id());
    let mut poller = poller(Topology::Process(control.line().unwrap(), RESTLESS));
    let mut all = Connections::new(&mut poller, 5);
    leave(&mut poller, 5);
    poller.flush();
    sitter.signal(libc::SIGSTOP);
    let state = format!("/proc/{}/stat", sitter.child.id());
    until("it does not stop", || std::fs::read_to_string(&state).unwrap().contains(") T "));
    poller.flush();
    assert_eq!((poller.stats().sitter_lost, poller.stats().away.len), (1, 0));
    sitter.signal(libc::SIGCONT);
    until("it keeps what it was to forget", || descriptors_of(sitter.child.id()) == idle);
    all.are_heard(&mut poller, 0..5);
    // Its peer sees the end, for nobody else has the file.
    all.theirs[0].set_read_timeout(Some(PATIENCE)).unwrap();
    poller.deregister(all.keys[0]).unwrap();
    drop(all.mine.remove(0));
    assert_eq!(all.theirs[0].read(&mut [0]).unwrap(), 0);
}
