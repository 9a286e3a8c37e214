//! A keeper that a test plays itself, word by word.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::Instant;

use superpoll_keeper::{KeeperLink, Notice, Request};

use super::PATIENCE;

/// A message of a poller that borrows nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// Keys and states.
    Watch(Vec<(u64, Vec<u8>)>),
    Forget(Vec<u64>),
    Sync(u64),
    Bye,
    /// The link has ended.
    Nothing,
}

/// The other end of a poller's link.
pub(crate) struct Played {
    link: KeeperLink,
    heard: VecDeque<Said>,
    /// The files that came with the packets.
    pub files: Vec<OwnedFd>,
}

impl Played {
    pub(crate) fn new() -> (KeeperLink, Played) {
        let (link, theirs) = KeeperLink::pair().unwrap();
        (link, Played { link: theirs, heard: VecDeque::new(), files: Vec::new() })
    }

    /// The same, and the file that shows whether the link is void.
    pub(crate) fn revocable() -> (KeeperLink, Played, File) {
        let (link, played) = Played::new();
        let (link, revocation) = link.with_revocation().unwrap();
        (link, played, File::from(revocation))
    }

    /// Takes the next thing from the link, if there is any.
    fn receive(&mut self) -> Option<Said> {
        let mut room = Vec::new();
        let received = self.link.receive(&mut room, &mut self.files);
        let Ok(received) = received else { return None };
        if received.length == 0 {
            return Some(Said::Nothing);
        }
        Some(match Request::decode(&room).unwrap() {
            Request::Watch(all) => {
                Said::Watch(all.iter().map(|one| (one.key, one.state.to_vec())).collect())
            }
            Request::Forget(all) => Said::Forget(all),
            Request::Sync(number) => Said::Sync(number),
            Request::Bye => Said::Bye,
            other => panic!("that is not for a loop to ask: {other:?}"),
        })
    }

    /// The messages since the last call.
    pub(crate) fn all(&mut self) -> Vec<Said> {
        let mut all = Vec::from(std::mem::take(&mut self.heard));
        while let Some(said) = self.receive() {
            let is_last = said == Said::Nothing;
            all.push(said);
            if is_last {
                break;
            }
        }
        all
    }

    /// The next thing, for which there is some time.
    pub(crate) fn next(&mut self) -> Said {
        if let Some(said) = self.heard.pop_front() {
            return said;
        }
        assert!(self.link.wait(false, Instant::now() + PATIENCE).unwrap(), "nothing is said");
        self.receive().unwrap()
    }

    /// The registrations to watch, in one list.
    pub(crate) fn watched(&mut self) -> Vec<(u64, Vec<u8>)> {
        let lists = self.all().into_iter().map(|said| match said {
            Said::Watch(all) => all,
            _ => Vec::new(),
        });
        lists.flatten().collect()
    }

    pub(crate) fn send(&self, notice: &Notice<'_>) {
        let packet = notice.encode();
        self.link.send_until(Instant::now() + PATIENCE, &packet, &[]).unwrap();
    }

    /// Sends a message for which there may be no reader any more; false in that case.
    pub(crate) fn try_send(&self, notice: &Notice<'_>) -> bool {
        let packet = notice.encode();
        self.link.send_until(Instant::now() + PATIENCE, &packet, &[]).is_ok()
    }

    /// Sends bytes that are no message.
    pub(crate) fn mumble(&self) {
        self.link.send(b"\xff\xff\xff", &[]).unwrap();
    }
}
