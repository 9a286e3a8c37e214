//! Servers as processes.
//!
//! A process that is killed closes its lines before it is gone, in any order. A process may also
//! lose its lines and live: its descriptors were closed by mistake, or the keeper refused a
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
//!    '----Bye, revoked, or its line refused--------------------> void: forgotten
//! ```

use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::process::{Pid, PidfdFlags};

use super::{Ending, Keeper, Member, PATIENCE, PROCESSES, Succession, TURN, Whose};
use crate::line::{Peer, is_readable};
use crate::protocol::Role;

/// A server and its process.
#[derive(Debug)]
pub(super) struct Session {
    number: u64,
    peer: Peer,
    /// A descriptor that is readable when the process has ended.
    ended: OwnedFd,
    lines: usize,
    /// The revocations of its lines that have ended: a server may find out late that it has lost a
    /// line, and revokes it all the same.
    revocations: Vec<OwnedFd>,
    /// Whether it was handed the orphans of other servers, if there were any.
    is_heir: bool,
    has_yielded: bool,
    /// Whether everything that it left is void, so that no other server may have it.
    is_void: bool,
}

/// Opens a descriptor of the process at the other end of a line. If that process has ended and
/// another one has got its number, nothing is handed over as long as the new process lives. The
/// line has ended then, and the descriptors that were left on it are forgotten after
/// [`Options::grace`](super::Options::grace).
pub(super) fn identify(peer: Peer) -> io::Result<OwnedFd> {
    let process = Pid::from_raw(peer.process).ok_or(rustix::io::Errno::SRCH)?;
    Ok(rustix::process::pidfd_open(process, PidfdFlags::empty())?)
}

impl Keeper {
    fn session(&mut self, number: u64) -> Option<&mut Session> {
        self.sessions.iter_mut().map(|(_, one)| one).find(|one| one.number == number)
    }

    /// Adds a line to the session of a server.
    pub(super) fn enroll(&mut self, index: usize, role: Role, number: u64) -> Result<(), String> {
        // A line between two threads has no process but this one at its other end.
        let Some(peer) = self.members.get(index).and_then(|member| member.peer) else {
            return Ok(());
        };
        if let Some(known) = self.session(number) {
            if known.peer.process != peer.process {
                return Err(format!("session {number:x} is that of {}", known.peer));
            }
            known.lines += 1;
            return Ok(());
        }
        let cannot = |error: io::Error| {
            format!("finding out when {peer} ends, as the {role:?} of a server: {error}")
        };
        let ended = (self.identify)(peer).map_err(cannot)?;
        let place = self.sessions.vacant_entry();
        let data = EventData::new_u64(PROCESSES | place.key() as u64);
        epoll::add(self.registrations.epoll(), &ended, data, EventFlags::IN)
            .map_err(|error| cannot(error.into()))?;
        place.insert(Session {
            number,
            peer,
            ended,
            lines: 1,
            revocations: Vec::new(),
            is_heir: false,
            has_yielded: false,
            is_void: false,
        });
        Ok(())
    }

    /// Notes that a server was handed the orphans of other servers.
    pub(super) fn inherits(&mut self, number: u64) {
        self.session(number).into_iter().for_each(|session| session.is_heir = true);
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

    /// Removes a line from its session. The session is remembered as long as its descriptors may
    /// not be handed over.
    pub(super) fn leave_session(&mut self, number: u64, revocation: Option<OwnedFd>) {
        let Some(session) = self.session(number) else { return };
        session.revocations.extend(revocation);
        session.lines -= session.lines.min(1);
        if session.lines > 0 {
            return;
        }
        let is_decided = session.has_yielded || session.is_void;
        if is_decided || !(session.is_heir || self.registrations.has_any_of(number)) {
            self.forget_sessions(number);
        }
    }

    fn forget_sessions(&mut self, number: u64) {
        self.sessions.retain(|_, session| session.number != number);
        self.doubtful.retain(|&(doubtful, _)| doubtful != number);
    }

    fn lines_of(&self, number: u64) -> Vec<usize> {
        let is_its_own = |member: &Member| matches!(member.whose, Whose::Loop(other) | Whose::Control(other) if other == number);
        let all = self.members.iter().filter(|(_, member)| is_its_own(member));
        all.map(|(index, _)| index).collect()
    }

    /// Handles the packets that have come on the lines of a server.
    pub(super) fn hear_session(&mut self, number: u64) {
        self.lines_of(number).into_iter().for_each(|index| self.hear(index));
    }

    /// Handles the end of a server's process, after which the server cannot act on anything.
    pub(super) fn process_ended(&mut self, place: usize) {
        let Some(session) = self.sessions.get(place) else { return };
        // Another session may have come into this place during this turn.
        if !is_readable(&session.ended) {
            return;
        }
        let number = session.number;
        for index in self.lines_of(number) {
            self.stop_sending(index);
            // Its last packets; a line that a child process has open as well does not end by
            // itself.
            for _ in 0..TURN {
                if !self.members.contains(index) {
                    break;
                }
                self.hear(index);
            }
            self.lose(index, Ending::Theirs);
        }
        let session = self.session(number);
        if let Some(session) = session
            && session.revocations.iter().any(is_readable)
        {
            let is_heir = session.is_heir;
            self.void(number, is_heir);
        }
        self.forget_sessions(number);
        self.try_again();
    }

    /// Returns a server, other than the successor itself, that may still act on the descriptors
    /// that it has left.
    pub(super) fn still_alive(&self, successor: usize) -> Option<Peer> {
        let member = self.members.get(successor)?;
        let process = member.peer.map(|peer| peer.process);
        let at_work = |number| self.members.iter().any(|(_, member)| member.is_at_work(number));
        let is_meant = |session: &Session| {
            let is_decided = session.has_yielded || session.is_void;
            !is_decided
                && Some(session.peer.process) != process
                && !at_work(session.number)
                && (session.is_heir || self.registrations.has_any_of(session.number))
        };
        self.sessions.iter().find(|(_, session)| is_meant(session)).map(|(_, found)| found.peer)
    }

    /// Whether the orphans of other servers may be handed over now. If not, the keeper tries
    /// again when a process has ended.
    pub(super) fn may_hand_over(&mut self, successor: usize) -> bool {
        if self.still_alive(successor).is_none() {
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

    /// Decides about a server that has lost a line and whose process has not ended for a while. If
    /// the server is at work, it has given that line up and handles the descriptors of that line
    /// itself. If it has no control any more, that holds for all its descriptors.
    pub(super) fn settle_doubt(&mut self, number: u64) {
        if self.members.iter().any(|(_, member)| member.is_at_work(number)) {
            self.session(number).into_iter().for_each(|session| session.revocations.clear());
            return self.registrations.forget_orphans_of(number);
        }
        let Some(session) = self.session(number) else { return };
        if session.has_yielded || session.is_void {
            return;
        }
        let (peer, is_heir) = (session.peer, session.is_heir);
        self.void(number, is_heir);
        let session = self.session(number);
        if session.is_some_and(|session| session.lines == 0) {
            self.forget_sessions(number);
        }
        if let Some(waits) = self.succession.take_if(|succession| succession.before.is_none()) {
            self.refuse_beside(waits.successor, peer);
        }
    }

    /// Refuses a successor if the server before it has not yielded, or a process has not ended, in
    /// time.
    pub(super) fn end_succession(&mut self, now: Instant) {
        let Some(late) = self.succession.take_if(|succession| succession.until <= now) else {
            return;
        };
        let Some(before) = late.before else {
            if let Some(peer) = self.still_alive(late.successor) {
                self.refuse_beside(late.successor, peer);
            }
            return;
        };
        let peer = self.members.get(before).and_then(|member| member.peer);
        let who = peer.map_or("the other server".to_owned(), |peer| peer.to_string());
        self.refuse(late.successor, &format!("{who} does not yield; end it first"));
    }

    fn refuse_beside(&mut self, successor: usize, peer: Peer) {
        let why =
            format!("{peer} has lost its line to this keeper and is still at work; end it first");
        self.refuse(successor, &why);
    }
}

impl Session {
    /// Checks that the session has as many lines as it counts.
    #[cfg(test)]
    pub(super) fn check(&self, lines: impl Iterator<Item = Whose>) {
        let own = |whose: &Whose| matches!(whose, Whose::Loop(number) | Whose::Control(number) if *number == self.number);
        assert_eq!(lines.filter(own).count(), self.lines, "session {}", self.number);
    }
}

impl Member {
    /// Whether it is the control of this server, and has not yielded.
    fn is_at_work(&self, number: u64) -> bool {
        self.whose == Whose::Control(number) && !self.is_through
    }
}
