//! The states with which descriptors leave.

use superpoll_keeper::Sums;

use super::played::{Played, Said};
use super::*;

const STATED: Tuning = Tuning { only_with_state: true, ..RESTLESS };

fn state(place: usize) -> Vec<u8> {
    format!("state {place}").into_bytes()
}

/// Connections that have a state each.
fn stated(poller: &mut Poller, count: usize) -> Connections {
    let all = Connections::new(poller, count);
    for (place, &key) in all.keys.iter().enumerate() {
        poller.leave_state(key, &state(place)).unwrap();
    }
    all
}

fn look(poller: &mut Poller) {
    assert_eq!(poller.wait(&mut Events::with_limit(64), ZERO).unwrap(), 0);
}

/// Makes all leave, and takes the messages: the registrations to watch, and the last question.
fn leave_all(poller: &mut Poller, played: &mut Played) -> (Vec<(u64, Vec<u8>)>, Option<u64>) {
    look(poller);
    let (mut watched, mut question) = (Vec::new(), None);
    for said in played.all() {
        match said {
            Said::Watch(all) => watched.extend(all),
            Said::Sync(number) => question = Some(number),
            Said::Forget(_) => {}
            said => panic!("{said:?}"),
        }
    }
    (watched, question)
}

#[test]
fn returned_descriptors_leave_again_with_their_states() {
    patiently(|| {
        let _one = one_at_a_time();
        let (link, mut played) = Played::new();
        let mut poller = poller(Topology::Process(link, STATED));
        let mut all = stated(&mut poller, 3);
        let (watched, _) = leave_all(&mut poller, &mut played);
        let states: Vec<_> = watched.iter().map(|(_, state)| state.clone()).collect();
        assert_eq!(states, [state(0), state(1), state(2)]);
        let returned = watched[1..].iter().map(|&(key, _)| (key, libc::EMFILE)).collect();
        played.send(&Notice::Returned(returned));
        look(&mut poller);
        assert_eq!((poller.stats().moves_back, poller.stats().away.len), (2, 1));
        // One of them has a newer one now.
        poller.leave_state(all.keys[2], b"newer").unwrap();
        let asks = std::thread::spawn(move || {
            let mut watched = Vec::new();
            loop {
                match played.next() {
                    Said::Watch(all) => watched.extend(all.into_iter().map(|(_, state)| state)),
                    Said::Sync(number) => played.send(&Notice::Synced(number, Sums::default())),
                    _ => return watched,
                }
            }
        });
        assert_eq!(poller.move_all_to_keeper(), 0);
        // Descriptors that have left now were not refused, and no poller has a state of them any
        // more.
        all.assert_reported(&mut poller, std::iter::empty());
        drop(poller);
        assert_eq!(asks.join().unwrap(), [state(1), b"newer".to_vec()]);
    });
}

#[test]
fn a_keeper_with_room_again_gets_the_descriptors_that_it_returned() {
    patiently(|| {
        let _one = one_at_a_time();
        let keeper = KeeperHandle::start(Some(40));
        let mut control = keeper.control(1);
        let mut poller = poller(Topology::Process(control.link().unwrap(), STATED));
        let all = stated(&mut poller, 60);
        let here = poller.move_all_to_keeper();
        assert!((20..60).contains(&here), "{here} stay");
        // Those that it has go.
        let (gone, rest): (Vec<_>, Vec<_>) =
            all.keys.iter().copied().enumerate().partition(|&(_, key)| poller.is_away(key));
        for &(_, key) in &gone {
            poller.deregister(key).unwrap();
        }
        let most = 20;
        for &(_, key) in &rest[most..] {
            poller.deregister(key).unwrap();
        }
        assert_eq!(poller.move_all_to_keeper(), 0);
        control.yielded().unwrap();
        drop(poller);
        let orphans = keeper.control(2).adopt(false).unwrap().orphans;
        let mut states: Vec<_> = orphans.into_iter().map(|orphan| orphan.state.to_vec()).collect();
        states.sort();
        let mut wanted: Vec<_> = rest[..most].iter().map(|&(place, _)| state(place)).collect();
        wanted.sort();
        assert_eq!(states, wanted);
    });
}

#[test]
fn a_descriptor_that_stays_away_costs_no_memory_for_its_state() {
    let _one = one_at_a_time();
    let (link, mut played) = Played::new();
    let mut poller = poller(Topology::Process(link, STATED));
    const COUNT: usize = 500;
    let all = Connections::new(&mut poller, COUNT);
    look(&mut poller);
    let without = poller.memory().own;
    for &key in &all.keys {
        poller.leave_state(key, &[7; 100]).unwrap();
    }
    let with = poller.memory().own;
    assert!(with >= without + COUNT * 100);
    until("they do not leave", || {
        look(&mut poller);
        poller.stats().away.len == COUNT
    });
    let (watched, question) = leave_all(&mut poller, &mut played);
    assert_eq!(watched.len(), COUNT);
    let question = question.expect("it asks whether they were taken");
    assert!(poller.memory().own >= without + COUNT * 100, "until then they may come back");
    // An answer to another question says nothing.
    played.send(&Notice::Synced(question - 1, Sums::default()));
    look(&mut poller);
    assert!(poller.memory().own >= without + COUNT * 100 / 2);
    played.send(&Notice::Synced(question, Sums::default()));
    look(&mut poller);
    let after = poller.memory().own;
    assert!(after <= without + COUNT * 8, "{after} after {without}");
    // One question is enough, and there is nothing more to be asked.
    look(&mut poller);
    assert_eq!(played.all(), []);
    drop(poller);
}

#[test]
fn an_end_takes_the_state_with_it() {
    let _one = one_at_a_time();
    let (link, mut played) = Played::new();
    let mut poller = poller(Topology::Process(link, STATED));
    let (_mine, _theirs) = UnixStream::pair().unwrap();
    let before = poller.memory().own;
    // The keeper has not learnt of it when it ends.
    for _ in 0..100 {
        let (mine, _theirs) = UnixStream::pair().unwrap();
        let key = poller.register(&mine, Interest::READABLE).unwrap();
        poller.leave_state(key, &[7; STATE]).unwrap();
        poller.deregister(key).unwrap();
        assert!(poller.memory().own < before + STATE, "{}", poller.memory().own);
    }
    // The next one in its place has none.
    let all = Connections::new(&mut poller, 1);
    look(&mut poller);
    assert_eq!(played.watched(), []);
    // It ends while it is under way, and a later message about it has no effect.
    poller.leave_state(all.keys[0], b"state").unwrap();
    look(&mut poller);
    let watched = played.watched();
    poller.deregister(all.keys[0]).unwrap();
    let key = poller.register(&all.mine[0], Interest::READABLE).unwrap();
    assert_eq!(key.index(), all.keys[0].index());
    played.send(&Notice::Returned(vec![(watched[0].0, libc::EMFILE)]));
    look(&mut poller);
    look(&mut poller);
    assert_eq!((played.watched(), poller.stats().stale), (vec![], 1));
}

#[test]
fn a_new_state_for_a_descriptor_that_is_away_replaces_its_old_state() {
    let _one = one_at_a_time();
    let (link, mut played) = Played::new();
    let mut poller = poller(Topology::Process(link, STATED));
    let mut all = stated(&mut poller, 2);
    let (watched, question) = leave_all(&mut poller, &mut played);
    played.send(&Notice::Synced(question.unwrap(), Sums::default()));
    look(&mut poller);
    poller.leave_state(all.keys[1], b"newer").unwrap();
    look(&mut poller);
    let said = played.all();
    assert_eq!(said[0], Said::Forget(vec![watched[1].0]));
    let Said::Watch(again) = &said[1] else { panic!("{said:?}") };
    assert!(again.len() == 1 && again[0].0 != watched[1].0 && again[0].1 == b"newer");
    assert!(poller.is_away(all.keys[0]) && poller.is_away(all.keys[1]));
    // Later ones go on without a state.
    played.send(&Notice::Ready(vec![(again[0].0, 1)]));
    all.assert_reported(&mut poller, [1].into_iter());
    look(&mut poller);
    assert!(!poller.is_away(all.keys[1]));
}
