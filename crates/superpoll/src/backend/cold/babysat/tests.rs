//! A babysitter that the tests play, without a poller around the cold set.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use superpoll_sit::Notice;

use super::*;
use crate::backend::cold::process::Process;
use crate::backend::cold::tuning::Rule;
use crate::backend::stage::Stage;
use crate::interest::Interest;

fn babysat(idle: Duration) -> (Babysat<Process>, Line) {
    let (line, theirs) = Line::pair().unwrap();
    let rule = Rule::Regret { within: 4, doublings: 6 };
    let tuning = Tuning { idle, batch: 1, rule, stated_only: false };
    (Babysat::new(Process, line, tuning).unwrap(), theirs)
}

/// Registers one end.
fn add(stage: &mut Stage, babysat: &mut Babysat<Process>, pair: &(UnixStream, UnixStream)) -> u32 {
    let index = stage.add(pair.0.as_raw_fd(), Interest::READABLE).index();
    let change = Change::Watch(Interest::READABLE, Mode::Level);
    babysat.change(&mut stage.cx(), index, change).unwrap();
    index
}

#[test]
fn who_is_lost_is_lost_once_and_it_is_told_why() {
    let (mut babysat, theirs) = babysat(Duration::ZERO);
    let mut stage = Stage::new(8);
    let pair = UnixStream::pair().unwrap();
    let index = add(&mut stage, &mut babysat, &pair);
    // Two messages to send, in the middle of a move, and no reader for the first.
    babysat.over.push(7);
    babysat.candidates.push(index);
    drop(theirs);
    babysat.stays.begin_pass();
    babysat.leave(&mut stage.cx(), None);
    assert_eq!(stage.stats.sitter_lost, 1);
    let why = babysat.lost.as_ref().map(io::Error::kind);
    assert_eq!(why, Some(io::ErrorKind::BrokenPipe));
}

#[test]
fn a_file_that_is_exchanged_right_after_it_was_sent_is_recalled() {
    let (mut babysat, _theirs) = babysat(Duration::ZERO);
    let mut stage = Stage::new(8);
    let (pair, other) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
    let index = add(&mut stage, &mut babysat, &pair);
    let key = babysat.stays.next_key(index);
    assert!(babysat.is_of_its_file(&mut stage.cx(), index));
    // As if another thread had put another file under the number.
    sys::eventfd::replace(pair.0.as_fd(), other.0.into()).unwrap();
    assert!(!babysat.is_of_its_file(&mut stage.cx(), index));
    babysat.gone(&mut stage.cx(), index);
    assert_eq!(babysat.over, [key]);
    assert!(babysat.stays.is_kept(index) && babysat.away == 0);
}

#[test]
fn who_comes_after_a_long_pause_is_not_taken_for_idle() {
    let (mut babysat, _theirs) = babysat(Duration::from_secs(100));
    let mut stage = Stage::new(8);
    let pairs = [UnixStream::pair().unwrap(), UnixStream::pair().unwrap()];
    let before = add(&mut stage, &mut babysat, &pairs[0]);
    babysat.began -= Duration::from_secs(1000);
    let after = add(&mut stage, &mut babysat, &pairs[1]);
    babysat.stays.begin_pass();
    babysat.set_time();
    assert!(babysat.stays.is_due(before) && !babysat.stays.is_due(after));
}

#[test]
fn no_more_is_heard_at_once_than_was_said_to() {
    let (mut babysat, theirs) = babysat(Duration::ZERO);
    let mut stage = Stage::new(8);
    let heard = |babysat: &mut Babysat<Process>, stage: &mut Stage, most| {
        babysat.listen_to_all(&mut stage.cx(), most)
    };
    assert_eq!(heard(&mut babysat, &mut stage, 2), 0);
    for _ in 0..3 {
        theirs.send(&Notice::Ready(Vec::new()).encode(), &[]).unwrap();
    }
    assert_eq!(heard(&mut babysat, &mut stage, 2), 2);
    assert_eq!(heard(&mut babysat, &mut stage, 2), 1);
    assert_eq!(stage.stats.sitter_lost, 0);
    // That it is lost is something.
    drop(theirs);
    assert_eq!(heard(&mut babysat, &mut stage, 2), 1);
    assert_eq!(stage.stats.sitter_lost, 1);
}
