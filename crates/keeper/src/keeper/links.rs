//! Links as such: accepting and refusing them, sending on them, and the packets that wait for room.

use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};

use super::{Client, ClientKind, ClosedBy, Keeper, LISTENER, UNSENT_PACKET, is_later, token};
use crate::event::KeeperEvent;
use crate::link::Listener;
use crate::protocol::{Notice, encode, encode_first};

/// How long no links are accepted after the process had no descriptor left for one.
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

    /// Accepts links.
    pub(super) fn accept(&mut self) {
        while let Some(accepted) = self.listener.as_ref().map(Listener::accept) {
            let link = match accepted {
                Ok(link) => link,
                Err(error) if is_later(&error) => return,
                Err(error) => {
                    // Without a spare descriptor no client can be answered. The listener stays
                    // readable; to avoid spinning, it is left alone for a moment.
                    let why = error.to_string();
                    (self.report)(&KeeperEvent::Refused { peer: None, why });
                    self.set_accepting(false);
                    self.accepts_again_at = Some(Instant::now() + PAUSE);
                    return;
                }
            };
            let own = rustix::process::geteuid().as_raw();
            match link.peer() {
                Ok(peer) if peer.user == own || peer.user == 0 => {
                    if let Err(error) = self.add_client(link, ClientKind::Unknown, Some(peer)) {
                        let why = error.to_string();
                        (self.report)(&KeeperEvent::Refused { peer: Some(peer), why });
                    }
                }
                peer => {
                    let why = format!("only user {own} may speak to this keeper");
                    let _ = link.send(&encode_first(&Notice::Refused(&why)), &[]);
                    (self.report)(&KeeperEvent::Refused { peer: peer.ok(), why });
                }
            }
        }
    }

    /// Sends a packet, now or as soon as there is room. Returns false if the other side has gone.
    pub(super) fn send(&mut self, index: usize, packet: Vec<u8>) -> bool {
        let Some(client) = self.clients.get_mut(index) else { return false };
        if let Some(transfer) = &mut client.transfer {
            // Between the packets of a transfer it would not be read.
            transfer.send_later(packet);
            return true;
        }
        if !client.unsent.is_empty() {
            client.keep_for_later(packet);
            self.set_interest(index);
            return true;
        }
        match client.link.send(&packet, &[]) {
            Ok(()) => true,
            Err(error) if is_later(&error) => {
                client.keep_for_later(packet);
                self.set_interest(index);
                true
            }
            // The epoll set reports that the other side has gone.
            Err(_) => false,
        }
    }

    /// Sends the packets that there was no room for.
    pub(super) fn catch_up(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else { return };
        while let Some(packet) = client.unsent.front() {
            match client.link.send(packet, &[]) {
                Err(error) if is_later(&error) => break,
                _ => {
                    client.unsent_bytes -= packet.len() + UNSENT_PACKET;
                    client.unsent.pop_front();
                }
            }
        }
        self.set_interest(index);
        self.continue_transfer(index);
    }

    /// Sets the events that the epoll set waits for on a link.
    pub(super) fn set_interest(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let is_sent = client.transfer.as_ref().is_some_and(|transfer| transfer.wants_room());
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, client.accepts_packets());
        flags.set(EventFlags::OUT, is_sent || !client.unsent.is_empty());
        if flags != client.flags {
            client.flags = flags;
            let _ = epoll::modify(self.registrations.epoll(), &client.link, token(index), flags);
        }
    }

    /// Sends the reason why a link is of no use, and ends the link.
    pub(super) fn refuse(&mut self, index: usize, why: &str) {
        let Some(client) = self.clients.get(index) else { return };
        let notice = Notice::Refused(why);
        let is_first = client.kind == ClientKind::Unknown;
        let packet = if is_first { encode_first(&notice) } else { encode(&notice) };
        let _ = client.link.send(&packet, &[]);
        let peer = client.peer;
        (self.report)(&KeeperEvent::Refused { peer, why: why.to_owned() });
        self.disconnect(index, ClosedBy::Keeper);
    }
}

impl Client {
    fn keep_for_later(&mut self, packet: Vec<u8>) {
        self.unsent_bytes += packet.len() + UNSENT_PACKET;
        self.unsent.push_back(packet);
    }
}
