//! A babysitter without reason: it does what the protocol allows, at moments that have none.
//!
//! It returns what it could have kept, says that descriptors stir that do not, repeats what is long over, names some
//! that nobody has given to it, and talks of things that no loop has to do with. One of the second kind ends without
//! a word, or says what is no message, in the midst of all that. No event may be lost or doubled by any of it. What it
//! does follows from the seed and from what it is told.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use superpoll_sit::{Line, Notice, Request, Sums};

use crate::sys;

#[derive(Debug)]
struct Moody {
    line: Line,
    state: u64,
    /// Whether it may end without being asked to.
    may_end: bool,
    held: BTreeMap<u64, (OwnedFd, i16)>,
    /// Keys of stays that are over.
    past: Vec<u64>,
}

/// What becomes of it.
enum Mood {
    Stays,
    Ends,
}

impl Moody {
    /// A number below `bound` (xorshift).
    fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 33) % bound
    }

    fn say(&self, notice: &Notice<'_>) {
        let packet = postcard::to_stdvec(notice).expect("a notice can be written");
        // Nobody reads more than it has room for, and who does not read has gone.
        let _ = self.line.send(&packet, &[]);
    }

    fn end(&mut self, key: u64) {
        if self.held.remove(&key).is_some() {
            self.past.push(key);
        }
    }

    /// Says that these stir, in packets of its own choice.
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

    /// What comes over it.
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
                // Of one that is here again under another name, rather than of one that has gone.
                let is_back = |past: &&u64| held.iter().any(|&key| key as u32 == **past as u32);
                let place = self.below(self.past.len() as u64) as usize;
                let key = *self.past.iter().rev().find(is_back).unwrap_or(&self.past[place]);
                self.say(&Notice::Ready(vec![(key, 1), (key, 4)]));
                self.say(&Notice::Returned(vec![(key, libc::EMFILE)]));
            }
            3 => {
                let key = self.below(1 << 20) << 32 | self.below(1 << 8);
                // Of what it has, the loop has to believe it.
                if !self.held.contains_key(&key) {
                    self.say(&Notice::Ready(vec![(key, 1), (u64::MAX, 1), (0, 1)]));
                }
            }
            4 => {
                self.say(&Notice::Yield);
                self.say(&Notice::Left(vec![b"nothing that was asked for"]));
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

    /// Ends where an answer is waited for: nothing is under way then, and what it has is closed before anybody knows.
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
            let Ok(request) = postcard::from_bytes(&room) else { return Mood::Ends };
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
pub(crate) fn start(seed: u64, may_end: bool) -> Line {
    let (line, theirs) = Line::pair().expect("a pair of sockets can be made");
    let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let moody = Moody { line: theirs, state, may_end, held: BTreeMap::new(), past: Vec::new() };
    std::thread::spawn(|| moody.run());
    line
}
