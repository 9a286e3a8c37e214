//! The requests of clients: reading packets from their links, and carrying them out.

use std::os::fd::OwnedFd;

use rustix::event::Timespec;
use rustix::event::epoll::{self, Event};
use zeroize::Zeroize;

use super::{ClientKind, ClosedBy, EVENTS, Keeper, LINKS, PROCESSES, TURN, is_later};
use crate::event::KeeperEvent;
use crate::protocol::{
    Notice, PACKET, Request, Role, Sums, Watching, decode, decode_first, encode, encode_first,
};
use crate::registrations::Handle;

impl Keeper {
    /// Handles the packets that have arrived on a link, up to a limit.
    pub(super) fn receive(&mut self, index: usize) {
        let mut room = std::mem::take(&mut self.room);
        room.resize(PACKET, 0);
        let mut descriptors = Vec::new();
        for _ in 0..TURN {
            let Some(client) = self.clients.get(index).filter(|client| client.accepts_packets())
            else {
                break;
            };
            descriptors.clear();
            let received = match client.link.receive_into(&mut room, &mut descriptors) {
                Ok(received) if received.length > 0 => received,
                Ok(_) => {
                    self.disconnect(index, ClosedBy::Peer);
                    break;
                }
                Err(error) if is_later(&error) => break,
                Err(error) => {
                    self.refuse(index, &format!("receiving on the link: {error}"));
                    break;
                }
            };
            let packet = &room[..received.length];
            let request = match client.kind {
                ClientKind::Unknown => decode_first(packet),
                _ => decode(packet).map_err(|error| error.to_string()),
            };
            match request {
                Ok(request) => self.handle(index, request, &mut descriptors, received.cut_off),
                Err(why) => self.refuse(index, &why),
            }
            // There may be keys in it.
            room[..received.length].zeroize();
        }
        self.room = room;
    }

    /// Handles the last packets of a link whose other side has gone.
    pub(super) fn receive_last_packets(&mut self, link: u64) {
        if link >= PROCESSES {
            return;
        }
        let index = (link & !LINKS) as usize;
        self.stop_sending(index);
        self.receive(index);
    }

    fn handle(
        &mut self,
        index: usize,
        request: Request<'_>,
        descriptors: &mut Vec<OwnedFd>,
        cut_off: bool,
    ) {
        let Some(client) = self.clients.get_mut(index) else { return };
        match (request, client.kind) {
            (Request::Hello { role, session }, ClientKind::Unknown) => {
                client.revocation = descriptors.pop();
                self.handle_hello(index, role, session);
            }
            (_, ClientKind::Unknown) => self.refuse(index, "a link begins with a greeting"),
            (Request::Watch(all), _) => self.watch(index, &all, descriptors, cut_off),
            (Request::Forget(keys), _) => keys.into_iter().for_each(|key| {
                self.registrations.forget(index, key);
            }),
            (Request::Sync(number), _) => self.sync(index, number),
            (Request::PutRecord(record), ClientKind::Control(_)) if !client.has_finished => {
                self.records.keep(&record);
            }
            (Request::TrimRecords { space, below }, ClientKind::Control(_))
                if !client.has_finished =>
            {
                self.records.trim(space, below);
            }
            (Request::Adopt { upgrades }, ClientKind::Control(session)) => {
                self.adopt(index, session, upgrades);
            }
            (Request::ListHeld, ClientKind::Control(_)) => self.show(index),
            (Request::Yielded, ClientKind::Control(_)) => self.yielded(index),
            (Request::Settled, ClientKind::Control(_)) => {
                self.handed_to = None;
                self.registrations.forget_handed_over();
            }
            (Request::Bye, kind) => self.handle_bye(index, kind),
            // Requests of a server that has yielded are ignored.
            (Request::PutRecord(_) | Request::TrimRecords { .. }, ClientKind::Control(_)) => {}
            (_, _) => self.refuse(index, "that is not for this kind of link to ask"),
        }
    }

    fn handle_hello(&mut self, index: usize, role: Role, session: u64) {
        if let Err(why) = self.join_session(index, role, session) {
            return self.refuse(index, &why);
        }
        let Some(client) = self.clients.get_mut(index) else { return };
        self.had_work = true;
        client.kind = match role {
            Role::Loop => ClientKind::Loop(session),
            Role::Control => ClientKind::Control(session),
        };
        if let (Role::Control, Some(peer)) = (role, client.peer) {
            (self.report)(&KeeperEvent::Connected { peer });
        }
        let orphans = self.registrations.orphans() as u64;
        self.send(index, encode_first(&Notice::Welcome { orphans }));
    }

    fn watch(
        &mut self,
        index: usize,
        all: &[Watching<'_>],
        descriptors: &mut Vec<OwnedFd>,
        cut_off: bool,
    ) {
        let Some(client) = self.clients.get(index) else { return };
        let (kind, has_finished) = (client.kind, client.has_finished);
        let session = match kind {
            ClientKind::Loop(session) | ClientKind::Control(session) => session,
            ClientKind::Thread | ClientKind::Unknown => 0,
        };
        if kind != ClientKind::Thread && !cut_off && descriptors.len() != all.len() {
            return self
                .refuse(index, "a request to watch must carry as many descriptors as it names");
        }
        let mut files = descriptors.drain(..);
        let mut returned = Vec::new();
        for watching in all {
            let given = match kind {
                ClientKind::Thread => Some(Handle::Number(watching.number)),
                _ => files.next().map(Handle::File),
            };
            self.registrations.forget(index, watching.key);
            let outcome = match given {
                _ if has_finished => Err(rustix::io::Errno::SHUTDOWN.into()),
                None => Err(rustix::io::Errno::MFILE.into()),
                Some(given) => self.registrations.insert(index, session, watching, given),
            };
            if let Err(error) = outcome {
                returned.push((watching.key, error.raw_os_error().unwrap_or(0)));
            }
        }
        if let Some(&(_, error)) = returned.first() {
            (self.report)(&KeeperEvent::Returned { descriptors: returned.len(), error });
            self.send(index, encode(&Notice::Returned(returned)));
        }
    }

    /// Checks which descriptors are ready now, and notifies their loops before it answers.
    fn sync(&mut self, index: usize, number: u64) {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            let found = epoll::wait(self.registrations.epoll(), room, Some(&now)).unwrap_or(0);
            let handled = self.report_ready(&events);
            // Only events of links are left. Links are level-triggered and keep filling the buffer.
            if found < EVENTS || handled == 0 {
                break;
            }
        }
        let sums = self.clients.get(index).map_or(Sums::default(), |client| client.sums);
        let sums = Sums { len: self.registrations.count(index), ..sums };
        self.send(index, encode(&Notice::Synced(number, sums)));
    }
}
