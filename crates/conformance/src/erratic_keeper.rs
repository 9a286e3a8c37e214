//! An erratic keeper: it does anything that the protocol allows, at random moments.
//!
//! It returns descriptors that it could have kept, reports idle ones as ready, repeats reports that
//! are long over, names descriptors that it was never given, and sends notices that concern no
//! loop. With `may_end`, it also ends without notice, or sends an invalid message, in the midst of
//! all that. None of it may lose or double an event. Its behaviour follows from the seed and from
//! the requests that it receives.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use superpoll_keeper::{KeeperLink, Notice, Request, Sums};

use crate::sys;

#[derive(Debug)]
struct ErraticKeeper {
    link: KeeperLink,
    state: u64,
    /// Whether it may end without being asked to.
    may_end: bool,
    held: BTreeMap<u64, (OwnedFd, i16)>,
    /// Keys of stays that are over.
    past: Vec<u64>,
}

/// The outcome of a step.
enum Step {
    Continues,
    Ends,
}

impl ErraticKeeper {
    /// Returns a number below `bound` (xorshift).
    fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 33) % bound
    }

    fn send(&self, notice: &Notice<'_>) {
        let packet = notice.encode();
        // The loop reads no more than it has room for, and a loop that does not read has gone.
        let _ = self.link.send(&packet, &[]);
    }

    fn end(&mut self, key: u64) {
        if self.held.remove(&key).is_some() {
            self.past.push(key);
        }
    }

    /// Reports these keys as ready, in packets of random sizes.
    fn report_ready(&mut self, keys: Vec<u64>) {
        let mut rest = &keys[..];
        while !rest.is_empty() {
            let count = 1 + self.below(rest.len() as u64) as usize;
            let some = rest[..count].iter().map(|&key| (key, 1)).collect();
            rest = &rest[count..];
            self.send(&Notice::Ready(some));
        }
        keys.into_iter().for_each(|key| self.end(key));
    }

    /// Does something at random.
    fn act_at_random(&mut self) {
        let held: Vec<u64> = self.held.keys().copied().collect();
        match self.below(8) {
            0 if !held.is_empty() => {
                let key = held[self.below(held.len() as u64) as usize];
                self.send(&Notice::Returned(vec![(key, libc::ENOMEM)]));
                self.end(key);
            }
            1 if !held.is_empty() => {
                let key = held[self.below(held.len() as u64) as usize];
                self.report_ready(vec![key]);
            }
            2 if !self.past.is_empty() => {
                // Prefers a key that is here again with another generation to one that has gone.
                let is_back = |past: &&u64| held.iter().any(|&key| key as u32 == **past as u32);
                let place = self.below(self.past.len() as u64) as usize;
                let key = *self.past.iter().rev().find(is_back).unwrap_or(&self.past[place]);
                self.send(&Notice::Ready(vec![(key, 1), (key, 4)]));
                self.send(&Notice::Returned(vec![(key, libc::EMFILE)]));
            }
            3 => {
                let key = self.below(1 << 20) << 32 | self.below(1 << 8);
                // The loop would have to believe a report on a descriptor that the keeper has.
                if !self.held.contains_key(&key) {
                    self.send(&Notice::Ready(vec![(key, 1), (u64::MAX, 1), (0, 1)]));
                }
            }
            4 => {
                self.send(&Notice::Yield);
                self.send(&Notice::Orphans(vec![b"nothing that was asked for"]));
                self.send(&Notice::Synced(0, Sums::default()));
                self.send(&Notice::Ready(Vec::new()));
            }
            _ => {}
        }
    }

    fn ready(&mut self) -> Vec<u64> {
        let mut slots: Vec<_> = self
            .held
            .values()
            .map(|(file, events)| libc::pollfd {
                fd: file.as_raw_fd(),
                events: *events,
                revents: 0,
            })
            .collect();
        let _ = sys::poll(&mut slots, 0);
        let ready = self.held.keys().zip(slots).filter(|(_, slot)| slot.revents != 0);
        ready.map(|(&key, _)| key).collect()
    }

    fn handle(&mut self, request: Request<'_>, files: Vec<OwnedFd>) -> Step {
        match request {
            Request::Watch(all) => {
                for (one, file) in all.iter().zip(files) {
                    if self.below(4) == 0 {
                        self.send(&Notice::Returned(vec![(one.key, libc::EMFILE)]));
                    } else {
                        self.held.insert(one.key, (file, one.events as i16));
                    }
                }
            }
            Request::Forget(all) => all.into_iter().for_each(|key| self.end(key)),
            Request::Sync(number) => {
                if self.may_end && self.below(20) == 0 {
                    return self.end_without_notice();
                }
                self.act_at_random();
                let ready = self.ready();
                self.report_ready(ready);
                self.send(&Notice::Synced(number, Sums::default()));
            }
            _ => return Step::Ends,
        }
        self.act_at_random();
        Step::Continues
    }

    /// Ends while the loop waits for an answer: nothing is under way then, and its descriptors are
    /// closed before the loop learns of the end.
    fn end_without_notice(&mut self) -> Step {
        self.held.clear();
        match self.below(3) {
            0 => {}
            1 => self.send(&Notice::Refused("it has had enough")),
            _ => drop(self.link.send(b"\xff\xff\xff", &[])),
        }
        Step::Ends
    }

    fn receive(&mut self) -> Step {
        let mut packet = Vec::new();
        loop {
            let mut files = Vec::new();
            match self.link.receive(&mut packet, &mut files) {
                Ok(received) if received.length > 0 => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return Step::Continues;
                }
                _ => return Step::Ends,
            }
            let Ok(request) = Request::decode(&packet) else { return Step::Ends };
            if matches!(self.handle(request, files), Step::Ends) {
                return Step::Ends;
            }
        }
    }

    fn run(mut self) {
        loop {
            let slot = |fd, events| libc::pollfd { fd, events, revents: 0 };
            let mut slots = vec![slot(self.link.as_fd().as_raw_fd(), libc::POLLIN)];
            slots.extend(self.held.values().map(|(file, events)| slot(file.as_raw_fd(), *events)));
            if sys::poll(&mut slots, -1).is_err() {
                continue;
            }
            if slots[0].revents != 0 {
                if matches!(self.receive(), Step::Ends) {
                    return;
                }
            } else {
                let ready = self.ready();
                self.report_ready(ready);
            }
        }
    }
}

/// Starts one, and returns the link to it. It ends with its link.
pub(crate) fn start(seed: u64, may_end: bool) -> KeeperLink {
    let (link, theirs) = KeeperLink::pair().expect("a pair of sockets can be made");
    let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let erratic_keeper =
        ErraticKeeper { link: theirs, state, may_end, held: BTreeMap::new(), past: Vec::new() };
    std::thread::spawn(|| erratic_keeper.run());
    link
}
