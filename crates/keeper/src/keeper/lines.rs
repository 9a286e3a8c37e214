//! Lines as such: accepting and refusing them, sending on them, and the packets that wait for room.

use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};

use super::{Ending, Keeper, LISTENER, Member, UNSENT_PACKET, Whose, is_later, token};
use crate::happening::Happening;
use crate::line::Listener;
use crate::protocol::{Notice, encode, encode_first};

/// How long no lines are accepted after the process had no descriptor left for one.
const PAUSE: Duration = Duration::from_millis(10);

impl Keeper {
    /// Sets whether the epoll set watches the listener.
    pub(super) fn set_accepting(&mut self, accepts: bool) {
        let flags = if accepts { EventFlags::IN } else { EventFlags::empty() };
        if let Some(listener) = &self.listener {
            let data = EventData::new_u64(LISTENER);
            let _ = epoll::modify(self.registrations.epoll(), listener, data, flags);
        }
    }

    /// Accepts lines.
    pub(super) fn accept(&mut self) {
        while let Some(accepted) = self.listener.as_ref().map(Listener::accept) {
            let line = match accepted {
                Ok(line) => line,
                Err(error) if is_later(&error) => return,
                Err(error) => {
                    // Without a spare descriptor no client can be answered. The listener stays
                    // readable; to avoid spinning, it is left alone for a moment.
                    let why = error.to_string();
                    (self.report)(&Happening::Refused { peer: None, why });
                    self.set_accepting(false);
                    self.accepts_at = Some(Instant::now() + PAUSE);
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
                    let why = format!("only user {own} may speak to this keeper");
                    let _ = line.send(&encode_first(&Notice::Refused(&why)), &[]);
                    (self.report)(&Happening::Refused { peer: peer.ok(), why });
                }
            }
        }
    }

    /// Sends a packet, now or as soon as there is room. Returns false if the other side has gone.
    pub(super) fn say(&mut self, index: usize, packet: Vec<u8>) -> bool {
        let Some(member) = self.members.get_mut(index) else { return false };
        if let Some(handing) = &mut member.handing {
            // Between the packets of a transfer it would not be read.
            handing.say_later(packet);
            return true;
        }
        if !member.unsent.is_empty() {
            member.keep_for_later(packet);
            self.set_interest(index);
            return true;
        }
        match member.line.send(&packet, &[]) {
            Ok(()) => true,
            Err(error) if is_later(&error) => {
                member.keep_for_later(packet);
                self.set_interest(index);
                true
            }
            // The epoll set reports that the other side has gone.
            Err(_) => false,
        }
    }

    /// Sends the packets that there was no room for.
    pub(super) fn catch_up(&mut self, index: usize) {
        let Some(member) = self.members.get_mut(index) else { return };
        while let Some(packet) = member.unsent.front() {
            match member.line.send(packet, &[]) {
                Err(error) if is_later(&error) => break,
                _ => {
                    member.unsent_bytes -= packet.len() + UNSENT_PACKET;
                    member.unsent.pop_front();
                }
            }
        }
        self.set_interest(index);
        self.go_on_handing(index);
    }

    /// Sets the events that the epoll set waits for on a line.
    pub(super) fn set_interest(&mut self, index: usize) {
        let Some(member) = self.members.get_mut(index) else { return };
        let is_sent = member.handing.as_ref().is_some_and(|handing| handing.wants_room());
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, member.is_heard());
        flags.set(EventFlags::OUT, is_sent || !member.unsent.is_empty());
        if flags != member.flags {
            member.flags = flags;
            let _ = epoll::modify(self.registrations.epoll(), &member.line, token(index), flags);
        }
    }

    /// Sends the reason why a line is of no use, and ends the line.
    pub(super) fn refuse(&mut self, index: usize, why: &str) {
        let Some(member) = self.members.get(index) else { return };
        let notice = Notice::Refused(why);
        let is_first = member.whose == Whose::Unknown;
        let packet = if is_first { encode_first(&notice) } else { encode(&notice) };
        let _ = member.line.send(&packet, &[]);
        let peer = member.peer;
        (self.report)(&Happening::Refused { peer, why: why.to_owned() });
        self.lose(index, Ending::Ours);
    }
}

impl Member {
    fn keep_for_later(&mut self, packet: Vec<u8>) {
        self.unsent_bytes += packet.len() + UNSENT_PACKET;
        self.unsent.push_back(packet);
    }
}
