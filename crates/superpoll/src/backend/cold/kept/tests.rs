//! A keeper that the tests play, without a poller around the cold set.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use superpoll_keeper::{Notice, Sums};

use super::*;
use crate::backend::cold::process::Process;
use crate::backend::cold::tuning::Rule;
use crate::backend::tests::stage::Stage;
use crate::interest::Interest;

fn kept(idle: Duration) -> (Kept<Process>, KeeperLink) {
    let (link, theirs) = KeeperLink::pair().unwrap();
    let rule = Rule::Regret { within: 4, doublings: 6 };
    let tuning = Tuning { idle, batch: 1, rule, only_with_state: false };
    (Kept::new(Process, link, tuning).unwrap(), theirs)
}

/// Registers one end.
fn add(stage: &mut Stage, kept: &mut Kept<Process>, pair: &(UnixStream, UnixStream)) -> u32 {
    let index = stage.add(pair.0.as_raw_fd(), Interest::READABLE).index();
    let change = Change::Watch(Interest::READABLE, Mode::Level);
    kept.change(&mut stage.cx(), index, change).unwrap();
    index
}

#[test]
fn a_lost_keeper_is_counted_once_and_the_error_is_kept() {
    let (mut kept, theirs) = kept(Duration::ZERO);
    let mut stage = Stage::new(8);
    let pair = UnixStream::pair().unwrap();
    let index = add(&mut stage, &mut kept, &pair);
    // Two messages to send, in the middle of a move, and no reader for the first.
    kept.recalled.push(7);
    kept.candidates.push(index);
    drop(theirs);
    kept.eviction.begin_pass();
    kept.move_candidates(&mut stage.cx(), None);
    assert_eq!(stage.stats.keeper_lost, 1);
    let why = kept.lost.as_ref().map(io::Error::kind);
    assert_eq!(why, Some(io::ErrorKind::BrokenPipe));
}

#[test]
fn a_file_that_is_exchanged_right_after_it_was_sent_is_recalled() {
    let (mut kept, _theirs) = kept(Duration::ZERO);
    let mut stage = Stage::new(8);
    let (pair, other) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
    let index = add(&mut stage, &mut kept, &pair);
    let key = kept.eviction.next_key(index);
    assert!(kept.is_of_its_file(&mut stage.cx(), index));
    // As if another thread had put another file under the number.
    sys::eventfd::replace(pair.0.as_fd(), other.0.into()).unwrap();
    assert!(!kept.is_of_its_file(&mut stage.cx(), index));
    kept.note_moved(&mut stage.cx(), index);
    assert_eq!(kept.recalled, [key]);
    assert!(kept.eviction.is_pinned(index) && kept.away == 0);
}

#[test]
fn a_registration_after_a_long_pause_is_not_idle() {
    let (mut kept, _theirs) = kept(Duration::from_secs(100));
    let mut stage = Stage::new(8);
    let pairs = [UnixStream::pair().unwrap(), UnixStream::pair().unwrap()];
    let before = add(&mut stage, &mut kept, &pairs[0]);
    kept.began -= Duration::from_secs(1000);
    let after = add(&mut stage, &mut kept, &pairs[1]);
    kept.eviction.begin_pass();
    kept.set_time();
    assert!(kept.eviction.is_due(before) && !kept.eviction.is_due(after));
}

#[test]
fn one_call_reads_at_most_the_given_number_of_notices() {
    let (mut kept, theirs) = kept(Duration::ZERO);
    let mut stage = Stage::new(8);
    let received =
        |kept: &mut Kept<Process>, stage: &mut Stage, most| kept.receive_all(&mut stage.cx(), most);
    assert_eq!(received(&mut kept, &mut stage, 2), 0);
    for _ in 0..3 {
        theirs.send(&Notice::Ready(Vec::new()).encode(), &[]).unwrap();
    }
    assert_eq!(received(&mut kept, &mut stage, 2), 2);
    assert_eq!(received(&mut kept, &mut stage, 2), 1);
    assert_eq!(stage.stats.keeper_lost, 0);
    // That it is lost is something.
    drop(theirs);
    assert_eq!(received(&mut kept, &mut stage, 2), 1);
    assert_eq!(stage.stats.keeper_lost, 1);
}

#[test]
fn an_answer_that_is_there_counts_although_time_is_over() {
    let (mut kept, theirs) = kept(Duration::ZERO);
    let mut stage = Stage::new(8);
    // As if the loop had been stopped right after its question.
    for notice in [Notice::Ready(Vec::new()), Notice::Synced(1, Sums::default())] {
        theirs.send(&notice.encode(), &[]).unwrap();
    }
    kept.sync_and_wait(&mut stage.cx(), Instant::now()).unwrap();
    let error = kept.sync_and_wait(&mut stage.cx(), Instant::now()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}
