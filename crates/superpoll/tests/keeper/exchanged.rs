//! Registrations whose file was closed and whose number means another file now: that file is sent
//! to no other process.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use super::played::Played;
use super::*;

/// The inodes of descriptors, in order.
fn inodes<F: AsFd>(all: impl IntoIterator<Item = F>) -> Vec<u64> {
    use std::os::unix::fs::MetadataExt;
    let of = |fd: F| std::fs::File::from(fd.as_fd().try_clone_to_owned().unwrap()).metadata();
    let mut all: Vec<u64> = all.into_iter().map(|fd| of(fd).unwrap().ino()).collect();
    all.sort_unstable();
    all
}

fn exchange(is_duplicated: bool, leaves: impl Fn(&mut Poller, usize)) {
    let (link, mut played) = Played::new();
    let mut poller = poller(Topology::Process(link, RESTLESS));
    let all = Connections::new(&mut poller, 6);
    // The kernel receives the first files before they are exchanged.
    poller.flush();
    // With a duplicate the kernel still watches the first file under the number.
    let duplicates = all.mine.iter().map(|mine| mine.try_clone().unwrap());
    let duplicates: Vec<UnixStream> = duplicates.take(if is_duplicated { 6 } else { 0 }).collect();
    let strangers = [UnixStream::pair().unwrap(), UnixStream::pair().unwrap()];
    // One in the middle of a packet, and the last one.
    for (place, stranger) in [2, 5].into_iter().zip(&strangers) {
        sys::replace(&stranger.0, all.mine[place].as_raw_fd());
    }
    // A number that means a duplicate of its own file again may leave.
    let kept = all.mine[0].try_clone().unwrap();
    sys::replace(&strangers[0].1, all.mine[0].as_raw_fd());
    sys::replace(&kept, all.mine[0].as_raw_fd());
    leaves(&mut poller, 4);
    assert_eq!(played.watched().len(), 4);
    let expected = [0, 1, 3, 4].map(|place| &all.mine[place]);
    assert_eq!(inodes(&played.files), inodes(expected), "a stranger's file was sent");
    for place in [2, 5] {
        assert!(!poller.is_away(all.keys[place]));
    }
    assert_eq!(poller.stats().keeper_lost, 0);
    drop(duplicates);
}

#[test]
fn a_file_that_was_exchanged_under_its_number_is_not_sent() {
    let _one = one_at_a_time();
    for is_duplicated in [false, true] {
        exchange(is_duplicated, leave);
        // Such a registration is not tried again with each wait.
        exchange(is_duplicated, |poller, wanted| {
            leave(poller, wanted);
            let before = poller.stats().calls;
            for _ in 0..5 {
                poller.wait(&mut Events::with_limit(8), ZERO).unwrap();
            }
            assert_eq!(poller.stats().calls.since(&before).epoll_ctl_mod, 0);
        });
    }
}

#[test]
fn a_registration_that_keeps_its_descriptor_open_leaves_without_a_question() {
    let _one = one_at_a_time();
    let (link, mut played) = Played::new();
    let mut poller = poller(Topology::Process(link, RESTLESS));
    let (mine, _theirs) = UnixStream::pair().unwrap();
    let mine: Arc<OwnedFd> = Arc::new(mine.into());
    let watch = Watch::new(Interest::READABLE).mode(Mode::Level);
    poller.share(&mine, watch).unwrap();
    let before = poller.stats().calls;
    leave(&mut poller, 1);
    assert_eq!(poller.stats().calls.since(&before).epoll_ctl_mod, 0);
    assert_eq!(played.watched().len(), 1);
    assert_eq!(inodes(&played.files), inodes([mine.as_fd()]));
}
