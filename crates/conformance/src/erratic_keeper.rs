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
    line: KeeperLink,
    state: u64,
    /// Whether it may end without being asked to.
    may_end: bool,
    held: BTreeMap<u64, (OwnedFd, i16)>,
    /// Keys of stays that are over.
    past: Vec<u64>,
}

/// The outcome of a step.
enum Mood {
    Stays,
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

    fn say(&self, notice: &Notice<'_>) {
        let packet = notice.encode();
        // The loop reads no more than it has room for, and a loop that does not read has gone.
        let _ = self.line.send(&packet, &[]);
    }

    fn end(&mut self, key: u64) {
        if self.held.remove(&key).is_some() {
            self.past.push(key);
        }
    }

    /// Reports these keys as ready, in packets of random sizes.
    fn tell_ready(&mut self, keys: Vec<u64>) {
        let mut rest = &keys[..];
        while !rest.is_empty() {
            let count = 1 + self.below(rest.len() as u64) as usize;
            let some = rest[..count].iter().map(|&key| (key, 1)).collect();
            rest = &rest[count..];
            self.say(&Notice::Ready(some));
        }
        keys.into_iter().for_each(|key| self.end(key));
    }

    /// Does something at random.
    fn whim(&mut self) {
        let held: Vec<u64> = self.held.keys().copied().collect();
        match self.below(8) {
            0 if !held.is_empty() => {
                let key = held[self.below(held.len() as u64) as usize];
                self.say(&Notice::Returned(vec![(key, libc::ENOMEM)]));
                self.end(key);
            }
            1 if !held.is_empty() => {
                let key = held[self.below(held.len() as u64) as usize];
                self.tell_ready(vec![key]);
            }
            2 if !self.past.is_empty() => {
                // Prefers a key that is here again with another generation to one that has gone.
                let is_back = |past: &&u64| held.iter().any(|&key| key as u32 == **past as u32);
                let place = self.below(self.past.len() as u64) as usize;
                let key = *self.past.iter().rev().find(is_back).unwrap_or(&self.past[place]);
                self.say(&Notice::Ready(vec![(key, 1), (key, 4)]));
                self.say(&Notice::Returned(vec![(key, libc::EMFILE)]));
            }
            3 => {
                let key = self.below(1 << 20) << 32 | self.below(1 << 8);
                // The loop would have to believe a report on a descriptor that the keeper has.
                if !self.held.contains_key(&key) {
                    self.say(&Notice::Ready(vec![(key, 1), (u64::MAX, 1), (0, 1)]));
                }
            }
            4 => {
                self.say(&Notice::Yield);
                self.say(&Notice::Orphans(vec![b"nothing that was asked for"]));
                self.say(&Notice::Synced(0, Sums::default()));
                self.say(&Notice::Ready(Vec::new()));
            }
            _ => {}
        }
    }

    fn look(&mut self) -> Vec<u64> {
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

    fn obey(&mut self, request: Request<'_>, files: Vec<OwnedFd>) -> Mood {
        match request {
            Request::Watch(all) => {
                for (one, file) in all.iter().zip(files) {
                    if self.below(4) == 0 {
                        self.say(&Notice::Returned(vec![(one.key, libc::EMFILE)]));
                    } else {
                        self.held.insert(one.key, (file, one.events as i16));
                    }
                }
            }
            Request::Forget(all) => all.into_iter().for_each(|key| self.end(key)),
            Request::Sync(number) => {
                if self.may_end && self.below(20) == 0 {
                    return self.leave();
                }
                self.whim();
                let ready = self.look();
                self.tell_ready(ready);
                self.say(&Notice::Synced(number, Sums::default()));
            }
            _ => return Mood::Ends,
        }
        self.whim();
        Mood::Stays
    }

    /// Ends while the loop waits for an answer: nothing is under way then, and its descriptors are
    /// closed before the loop learns of the end.
    fn leave(&mut self) -> Mood {
        self.held.clear();
        match self.below(3) {
            0 => {}
            1 => self.say(&Notice::Refused("it has had enough")),
            _ => drop(self.line.send(b"\xff\xff\xff", &[])),
        }
        Mood::Ends
    }

    fn hear(&mut self) -> Mood {
        let mut room = Vec::new();
        loop {
            let mut files = Vec::new();
            match self.line.receive(&mut room, &mut files) {
                Ok(received) if received.length > 0 => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Mood::Stays,
                _ => return Mood::Ends,
            }
            let Ok(request) = Request::decode(&room) else { return Mood::Ends };
            if matches!(self.obey(request, files), Mood::Ends) {
                return Mood::Ends;
            }
        }
    }

    fn run(mut self) {
        loop {
            let slot = |fd, events| libc::pollfd { fd, events, revents: 0 };
            let mut slots = vec![slot(self.line.as_fd().as_raw_fd(), libc::POLLIN)];
            slots.extend(self.held.values().map(|(file, events)| slot(file.as_raw_fd(), *events)));
            if sys::poll(&mut slots, -1).is_err() {
                continue;
            }
            if slots[0].revents != 0 {
                if matches!(self.hear(), Mood::Ends) {
                    return;
                }
            } else {
                let ready = self.look();
                self.tell_ready(ready);
            }
        }
    }
}

/// Starts one, and returns the line to it. It ends with its line.
pub(crate) fn start(seed: u64, may_end: bool) -> KeeperLink {
    let (line, theirs) = KeeperLink::pair().expect("a pair of sockets can be made");
    let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let erratic_keeper =
        ErraticKeeper { line: theirs, state, may_end, held: BTreeMap::new(), past: Vec::new() };
    std::thread::spawn(|| erratic_keeper.run());
    line
}
