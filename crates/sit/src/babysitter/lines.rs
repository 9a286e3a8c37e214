//! Lines as such: who is let in, what is said, and what there was no room for.

use std::time::Duration;

use rustix::event::epoll::{self, EventFlags};

use super::{Babysitter, Whose, is_later, token};
use crate::happening::Happening;
use crate::line::Listener;
use crate::protocol::{Notice, encode, encode_first};

impl Babysitter {
    /// Takes lines in.
    pub(super) fn accept(&mut self) {
        while let Some(accepted) = self.listener.as_ref().map(Listener::accept) {
            let line = match accepted {
                Ok(line) => line,
                Err(error) if is_later(&error) => return,
                Err(error) => {
                    // Without a descriptor to spare nobody can be answered. The listener stays readable, so that
                    // this is tried again as soon as something else has happened; not to spin, that is left alone
                    // for a moment.
                    let why = error.to_string();
                    (self.report)(&Happening::Refused { peer: None, why });
                    std::thread::sleep(Duration::from_millis(10));
                    return;
                }
            };
            let own = rustix::process::geteuid().as_raw();
            match line.peer() {
                Ok(peer) if peer.user == own || peer.user == 0 => {
                    if let Err(error) = self.join(line, Whose::Unknown, Some(peer)) {
                        let why = error.to_string();
                        (self.report)(&Happening::Refused { peer: Some(peer), why });
                    }
                }
                peer => {
                    let why = format!("only user {own} may speak to this babysitter");
                    let _ = line.send(&encode_first(&Notice::Refused(&why)), &[]);
                    (self.report)(&Happening::Refused { peer: peer.ok(), why });
                }
            }
        }
    }

    /// Says something, at once or as soon as there is room; false if there is nobody to hear it.
    pub(super) fn say(&mut self, index: usize, packet: Vec<u8>) -> bool {
        let Some(member) = self.members.get_mut(index) else { return false };
        if !member.unsent.is_empty() {
            member.unsent.push_back(packet);
            return true;
        }
        match member.line.send(&packet, &[]) {
            Ok(()) => true,
            Err(error) if is_later(&error) => {
                member.unsent.push_back(packet);
                let flags = EventFlags::IN | EventFlags::OUT;
                let _ =
                    epoll::modify(self.registrations.epoll(), &member.line, token(index), flags);
                true
            }
            // That it has gone is heard.
            Err(_) => false,
        }
    }

    /// Says what there was no room for.
    pub(super) fn catch_up(&mut self, index: usize) {
        let Some(member) = self.members.get_mut(index) else { return };
        while let Some(packet) = member.unsent.front() {
            match member.line.send(packet, &[]) {
                Err(error) if is_later(&error) => return,
                _ => drop(member.unsent.pop_front()),
            }
        }
        let flags = EventFlags::IN;
        let _ = epoll::modify(self.registrations.epoll(), &member.line, token(index), flags);
    }

    /// Says why a line is of no use, and ends it.
    pub(super) fn refuse(&mut self, index: usize, why: &str) {
        let Some(member) = self.members.get(index) else { return };
        let notice = Notice::Refused(why);
        let is_first = member.whose == Whose::Unknown;
        let packet = if is_first { encode_first(&notice) } else { encode(&notice) };
        let _ = member.line.send(&packet, &[]);
        let peer = member.peer;
        (self.report)(&Happening::Refused { peer, why: why.to_owned() });
        self.lose(index);
    }
}
