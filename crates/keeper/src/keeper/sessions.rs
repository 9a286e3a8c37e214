//! Servers as processes.
//!
//! A process that is killed closes its links before it is gone, in any order. A process may also
//! lose its links and live: its descriptors were closed by mistake, or the keeper refused a
//! packet. Only the kernel knows whether a server still acts on its connections: a descriptor of
//! the process (`pidfd_open(2)`, Linux 5.3) is readable once no thread of it runs any more.
//!
//! The descriptors and records that a server left are in one of these states:
//!
//! ```text
//! at work --Yielded--------------------------------------------> free for a successor
//!    |----the process ends-------------------------------------> free for a successor
//!    |----its control ends, the process lives--> in doubt
//!    |                                            |--the process ends--> free for a successor
//!    |                                            '--Options::grace----> void: forgotten
//!    '----Bye, revoked, or its link refused--------------------> void: forgotten
//! ```

use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::process::{Pid, PidfdFlags};

use super::{Client, ClientKind, ClosedBy, Keeper, PATIENCE, PROCESSES, Succession, TURN};
use crate::link::{Peer, is_readable};
use crate::protocol::Role;

/// A server and its process.
#[derive(Debug)]
pub(super) struct Session {
    number: u64,
    peer: Peer,
    /// A descriptor that is readable when the process has ended.
    ended: OwnedFd,
    links: usize,
    /// The revocations of its links that have ended: a server may find out late that it has lost a
    /// link, and revokes it all the same.
    revocations: Vec<OwnedFd>,
    /// Whether it was handed the orphans of other servers, if there were any.
    is_successor: bool,
    has_yielded: bool,
    /// Whether everything that it left is void, so that no other server may have it.
    is_void: bool,
}

/// Opens a descriptor of the process at the other end of a link. If that process has ended and
/// another one has got its number, nothing is handed over as long as the new process lives. The
/// link has ended then, and the descriptors that were left on it are forgotten after
/// [`Options::grace`](super::Options::grace).
pub(super) fn open_pidfd(peer: Peer) -> io::Result<OwnedFd> {
    let process = Pid::from_raw(peer.process).ok_or(rustix::io::Errno::SRCH)?;
    Ok(rustix::process::pidfd_open(process, PidfdFlags::empty())?)
}

impl Keeper {
    fn session(&mut self, number: u64) -> Option<&mut Session> {
        self.sessions.iter_mut().map(|(_, one)| one).find(|one| one.number == number)
    }

    /// Adds a link to the session of a server.
    pub(super) fn join_session(
        &mut self,
        index: usize,
        role: Role,
        number: u64,
    ) -> Result<(), String> {
        // A link between two threads has no process but this one at its other end.
        let Some(peer) = self.clients.get(index).and_then(|client| client.peer) else {
            return Ok(());
        };
        if let Some(known) = self.session(number) {
            if known.peer.process != peer.process {
                return Err(format!("session {number:x} is that of {}", known.peer));
            }
            known.links += 1;
            return Ok(());
        }
        let cannot = |error: io::Error| {
            format!("finding out when {peer} ends, as the {role:?} of a server: {error}")
        };
        let ended = (self.open_pidfd)(peer).map_err(cannot)?;
        let place = self.sessions.vacant_entry();
        let data = EventData::new_u64(PROCESSES | place.key() as u64);
        epoll::add(self.registrations.epoll(), &ended, data, EventFlags::IN)
            .map_err(|error| cannot(error.into()))?;
        place.insert(Session {
            number,
            peer,
            ended,
            links: 1,
            revocations: Vec::new(),
            is_successor: false,
            has_yielded: false,
            is_void: false,
        });
        Ok(())
    }

    /// Notes that a server was handed the orphans of other servers.
    pub(super) fn mark_successor(&mut self, number: u64) {
        self.session(number).into_iter().for_each(|session| session.is_successor = true);
    }

    /// Notes that a server will not touch again the descriptors that it has left.
    pub(super) fn has_yielded(&mut self, number: u64) {
        self.session(number).into_iter().for_each(|session| session.has_yielded = true);
    }

    /// Makes void everything that a server has left, or will leave: no other server is given it.
    pub(super) fn void(&mut self, number: u64, with_records: bool) {
        self.registrations.forget_session(number);
        if with_records {
            self.records.clear();
        }
        self.session(number).into_iter().for_each(|session| session.is_void = true);
    }

    pub(super) fn is_void(&mut self, number: u64) -> bool {
        self.session(number).is_some_and(|session| session.is_void)
    }

    /// Removes a link from its session. The session is remembered as long as its descriptors may
    /// not be handed over.
    pub(super) fn leave_session(&mut self, number: u64, revocation: Option<OwnedFd>) {
        let Some(session) = self.session(number) else { return };
        session.revocations.extend(revocation);
        session.links -= session.links.min(1);
        if session.links > 0 {
            return;
        }
        let is_decided = session.has_yielded || session.is_void;
        if is_decided || !(session.is_successor || self.registrations.has_any_of(number)) {
            self.forget_sessions(number);
        }
    }

    fn forget_sessions(&mut self, number: u64) {
        self.sessions.retain(|_, session| session.number != number);
        self.doubtful.retain(|&(doubtful, _)| doubtful != number);
    }

    fn links_of(&self, number: u64) -> Vec<usize> {
        let is_its_own = |client: &Client| matches!(client.kind, ClientKind::Loop(other) | ClientKind::Control(other) if other == number);
        let all = self.clients.iter().filter(|(_, client)| is_its_own(client));
        all.map(|(index, _)| index).collect()
    }

    /// Handles the packets that have arrived on the links of a server.
    pub(super) fn receive_from_session(&mut self, number: u64) {
        self.links_of(number).into_iter().for_each(|index| self.receive(index));
    }

    /// Handles all packets that have arrived on the links of a server's loops. What was left on a
    /// link that has more is forgotten: some of it may have been taken back.
    pub(super) fn receive_from_loops(&mut self, number: u64) {
        #[cfg(test)]
        if self.lets_yielded_overtake {
            return;
        }
        for index in self.links_of(number) {
            let has_more = |keeper: &Keeper| {
                let client = keeper.clients.get(index);
                client.is_some_and(|client| {
                    client.kind == ClientKind::Loop(number) && is_readable(&client.link)
                })
            };
            // A link holds fewer packets than that.
            for _ in 0..TURN {
                if has_more(self) {
                    self.receive(index);
                }
            }
            if has_more(self) {
                self.registrations.forget_link(index);
            }
        }
    }

    /// Handles the end of a server's process, after which the server cannot act on anything.
    pub(super) fn process_ended(&mut self, place: usize) {
        let Some(session) = self.sessions.get(place) else { return };
        // Another session may have come into this place during this turn.
        if !is_readable(&session.ended) {
            return;
        }
        let number = session.number;
        for index in self.links_of(number) {
            self.stop_sending(index);
            // Its last packets; a link that a child process has open as well does not end by
            // itself.
            for _ in 0..TURN {
                if !self.clients.contains(index) {
                    break;
                }
                self.receive(index);
            }
            self.disconnect(index, ClosedBy::Peer);
        }
        let session = self.session(number);
        if let Some(session) = session
            && session.revocations.iter().any(is_readable)
        {
            let is_successor = session.is_successor;
            self.void(number, is_successor);
        }
        self.forget_sessions(number);
        self.try_again();
    }

    /// Returns a server, other than the successor itself, that may still act on the descriptors
    /// that it has left.
    pub(super) fn server_still_alive(&self, successor: usize) -> Option<Peer> {
        let client = self.clients.get(successor)?;
        let process = client.peer.map(|peer| peer.process);
        let at_work = |number| self.clients.iter().any(|(_, client)| client.is_at_work(number));
        let is_meant = |session: &Session| {
            let is_decided = session.has_yielded || session.is_void;
            !is_decided
                && Some(session.peer.process) != process
                && !at_work(session.number)
                && (session.is_successor || self.registrations.has_any_of(session.number))
        };
        self.sessions.iter().find(|(_, session)| is_meant(session)).map(|(_, found)| found.peer)
    }

    /// Whether the orphans of other servers may be handed over now. If not, the keeper tries
    /// again when a process has ended.
    pub(super) fn may_hand_over(&mut self, successor: usize) -> bool {
        if self.server_still_alive(successor).is_none() {
            return true;
        }
        let until = Instant::now() + PATIENCE;
        self.succession = Some(Succession { successor, before: None, until });
        false
    }

    /// Tries to hand over again, since a process has ended or the descriptors that it left are
    /// void.
    fn try_again(&mut self) {
        let waits = self.succession.take_if(|succession| succession.before.is_none());
        let Some(Succession { successor, until, .. }) = waits else { return };
        self.hand_over(successor);
        if let Some(succession) = &mut self.succession {
            succession.until = until;
        }
    }

    /// Decides about a server that has lost a link and whose process has not ended for a while. If
    /// the server is at work, it has given that link up and handles the descriptors of that link
    /// itself. If it has no control any more, that holds for all its descriptors.
    pub(super) fn resolve_doubt(&mut self, number: u64) {
        if self.clients.iter().any(|(_, client)| client.is_at_work(number)) {
            self.session(number).into_iter().for_each(|session| session.revocations.clear());
            return self.registrations.forget_orphans_of(number);
        }
        let Some(session) = self.session(number) else { return };
        if session.has_yielded || session.is_void {
            return;
        }
        let (peer, is_successor) = (session.peer, session.is_successor);
        self.void(number, is_successor);
        let session = self.session(number);
        if session.is_some_and(|session| session.links == 0) {
            self.forget_sessions(number);
        }
        if let Some(waits) = self.succession.take_if(|succession| succession.before.is_none()) {
            self.refuse_while_at_work(waits.successor, peer);
        }
    }

    /// Refuses a successor if the server before it has not yielded, or a process has not ended, in
    /// time.
    pub(super) fn end_succession(&mut self, now: Instant) {
        let Some(late) = self.succession.take_if(|succession| succession.until <= now) else {
            return;
        };
        let Some(before) = late.before else {
            if let Some(peer) = self.server_still_alive(late.successor) {
                self.refuse_while_at_work(late.successor, peer);
            }
            return;
        };
        let peer = self.clients.get(before).and_then(|client| client.peer);
        let other = peer.map_or("the other server".to_owned(), |peer| peer.to_string());
        self.refuse(late.successor, &format!("{other} does not yield; end it first"));
    }

    fn refuse_while_at_work(&mut self, successor: usize, peer: Peer) {
        let why =
            format!("{peer} has lost its link to this keeper and is still at work; end it first");
        self.refuse(successor, &why);
    }
}

impl Session {
    /// Checks that the session has as many links as it counts.
    #[cfg(test)]
    pub(super) fn check(&self, links: impl Iterator<Item = ClientKind>) {
        let own = |kind: &ClientKind| matches!(kind, ClientKind::Loop(number) | ClientKind::Control(number) if *number == self.number);
        assert_eq!(links.filter(own).count(), self.links, "session {}", self.number);
    }
}

impl Client {
    /// Whether it is the control of this server, and has not yielded.
    fn is_at_work(&self, number: u64) -> bool {
        self.kind == ClientKind::Control(number) && !self.has_finished
    }
}
