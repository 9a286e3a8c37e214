//! Servers as processes.
//!
//! A process that is killed closes its lines before it is gone, in any order, and a process may lose its lines and live:
//! its descriptors were closed by mistake, or the babysitter refused a packet. Whether a server still acts on its
//! connections is a question to the kernel: a descriptor of the process (`pidfd_open(2)`, Linux 5.3) is readable once no
//! thread of it runs any more.
//!
//! What a server left is in one of these states:
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

use super::{Babysitter, Ending, Member, PATIENCE, PROCESSES, Succession, TURN, Whose};
use crate::line::{Peer, is_readable};
use crate::protocol::Role;

/// A server.
#[derive(Debug)]
pub(super) struct Session {
    number: u64,
    peer: Peer,
    /// Readable when the process has ended.
    ended: OwnedFd,
    lines: usize,
    /// Those of its lines that have ended: a server that finds out late that it has lost a line says so all the same.
    revocations: Vec<OwnedFd>,
    /// It was handed what others had left, if anything.
    is_heir: bool,
    has_yielded: bool,
    /// Nothing of it is for another server.
    is_void: bool,
}

/// A descriptor of the process at the other end of a line. If that process has ended, and another one has got its
/// number, nothing is handed over as long as that one lives; the line has ended then, and what was left on it is
/// forgotten after [`Options::grace`](super::Options::grace).
pub(super) fn identify(peer: Peer) -> io::Result<OwnedFd> {
    let process = Pid::from_raw(peer.process).ok_or(rustix::io::Errno::SRCH)?;
    Ok(rustix::process::pidfd_open(process, PidfdFlags::empty())?)
}

impl Babysitter {
    fn session(&mut self, number: u64) -> Option<&mut Session> {
        self.sessions.iter_mut().map(|(_, one)| one).find(|one| one.number == number)
    }

    /// A line says that it is one of a server's.
    pub(super) fn enroll(&mut self, index: usize, role: Role, number: u64) -> Result<(), String> {
        // A line between two threads has no process at its other end but this one.
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

    /// It is handed what others have left.
    pub(super) fn inherits(&mut self, number: u64) {
        self.session(number).into_iter().for_each(|session| session.is_heir = true);
    }

    /// It will not touch again what it has left.
    pub(super) fn has_yielded(&mut self, number: u64) {
        self.session(number).into_iter().for_each(|session| session.has_yielded = true);
    }

    /// Nothing that it has left, or will, is for another server.
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

    /// One of its lines has ended. Of what may not be handed over yet the session is remembered.
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

    /// Takes what its lines have to say.
    pub(super) fn hear_session(&mut self, number: u64) {
        self.lines_of(number).into_iter().for_each(|index| self.hear(index));
    }

    /// A server's process has ended, and with it all that it might still have done.
    pub(super) fn process_ended(&mut self, place: usize) {
        let Some(session) = self.sessions.get(place) else { return };
        // Another may have come into its place in this turn.
        if !is_readable(&session.ended) {
            return;
        }
        let number = session.number;
        for index in self.lines_of(number) {
            self.stop_sending(index);
            // What it said last; a line that a child of it has open does not end by itself.
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

    /// A server, other than the successor itself, that may still act on what it has left.
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

    /// Whether what others have left may be handed over now; if not, that is tried again when a process has ended.
    pub(super) fn may_hand_over(&mut self, successor: usize) -> bool {
        if self.still_alive(successor).is_none() {
            return true;
        }
        let until = Instant::now() + PATIENCE;
        self.succession = Some(Succession { successor, before: None, until });
        false
    }

    /// A process has ended, or what it left is void.
    fn try_again(&mut self) {
        let waits = self.succession.take_if(|succession| succession.before.is_none());
        let Some(Succession { successor, until, .. }) = waits else { return };
        self.hand_over(successor);
        if let Some(succession) = &mut self.succession {
            succession.until = until;
        }
    }

    /// A line of a server has ended, and its process has not for a while. If the server is at work, it has given that line
    /// up and has what was left on it in its own hands; if it has no control any more, that goes for all of it.
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

    /// A server has not yielded, or a process has not ended, in time.
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
        let why = format!(
            "{peer} has lost its line to this babysitter and is still at work; end it first"
        );
        self.refuse(successor, &why);
    }
}

impl Session {
    /// It has as many lines as it says.
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
