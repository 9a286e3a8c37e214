//! One server after another.

use std::io;
use std::time::{Duration, Instant};

use super::{Babysitter, Member, PATIENCE, Succession, Whose};
use crate::happening::Happening;
use crate::line::{Line, is_limit};
use crate::protocol::{FULL, Notice, PACKET, encode};
use crate::records::{Records, parts};
use crate::registrations::Registrations;

impl Babysitter {
    /// A server asks for what others have left.
    pub(super) fn adopt(&mut self, successor: usize, session: u64, upgrades: bool) {
        let other = self.members.iter().find(|(index, member)| {
            let is_server = matches!(member.whose, Whose::Control(other) if other != session);
            is_server && *index != successor && !member.is_through
        });
        let Some((before, member)) = other else { return self.hand_over(successor) };
        let (peer, to) = (member.peer, self.members.get(successor).and_then(|member| member.peer));
        if self.succession.is_some() {
            return self.refuse(successor, "another server is about to take over");
        }
        if !upgrades {
            let who = peer.map_or("another server".to_owned(), |peer| peer.to_string());
            let why = format!(
                "{who} is at work with this babysitter; take over from it, or end it first"
            );
            return self.refuse(successor, &why);
        }
        if let (Some(peer), Some(to)) = (peer, to) {
            (self.report)(&Happening::Yields { peer, to });
        }
        let until = Instant::now() + PATIENCE;
        self.succession = Some(Succession { successor, before, until });
        self.say(before, encode(&Notice::Yield));
    }

    /// A server has left what it will, or has gone.
    pub(super) fn yielded(&mut self, index: usize) {
        let whose = self.members.get(index).map(|member| member.whose);
        let Some(Whose::Control(session)) = whose else { return };
        if self.doubtful.iter().any(|&(doubtful, _)| doubtful == session) {
            self.settle_doubt(session);
        }
        let Some(member) = self.members.get_mut(index) else { return };
        member.is_through = true;
        for (_, member) in &mut self.members {
            if member.whose == Whose::Loop(session) {
                (member.is_through, member.sums.len) = (true, 0);
            }
        }
        self.registrations.orphan_session(session);
        if self.succession.as_ref().is_some_and(|succession| succession.before == index)
            && let Some(Succession { successor, .. }) = self.succession.take()
        {
            self.hand_over(successor);
        }
    }

    /// A line of a server's loop has ended. If that server is at work all the same, it has given the line up, and
    /// has what was left on it in its own hands.
    pub(super) fn settle_doubt(&mut self, session: u64) {
        let is_at_work =
            |member: &Member| member.whose == Whose::Control(session) && !member.is_through;
        if self.members.iter().any(|(_, member)| is_at_work(member)) {
            self.registrations.forget_orphans_of(session);
        }
    }

    /// A server asks for copies of what is held.
    pub(super) fn show(&mut self, index: usize) {
        let Some(member) = self.members.get(index) else { return };
        let until = Instant::now() + PATIENCE;
        let (all, none) = (self.registrations.held(), Records::default());
        if let Err(error) = Babysitter::hand(&member.line, &self.registrations, &none, &all, until)
        {
            self.refuse(index, &format!("handing over what is held: {error}"));
        }
    }

    /// Hands over what others have left. That is the one thing during which others wait.
    pub(super) fn hand_over(&mut self, successor: usize) {
        let Some(member) = self.members.get_mut(successor) else { return };
        member.is_heir = true;
        let until = Instant::now() + PATIENCE;
        let all = self.registrations.hand_over();
        let outcome =
            Babysitter::hand(&member.line, &self.registrations, &self.records, &all, until);
        let peer = member.peer;
        match (outcome, peer) {
            (Ok(()), Some(peer)) => {
                self.handed_to = Some(successor);
                let (descriptors, records) = (all.len(), self.records.len());
                (self.report)(&Happening::HandedOver { peer, descriptors, records });
            }
            (Ok(()), None) => {}
            (Err(error), _) => {
                self.registrations.take_back();
                self.refuse(successor, &format!("handing over what others have left: {error}"));
            }
        }
    }

    fn hand(
        line: &Line,
        registrations: &Registrations,
        records: &Records,
        all: &[usize],
        until: Instant,
    ) -> io::Result<()> {
        let mut rest = all;
        while !rest.is_empty() {
            let (mut descriptors, mut states, mut bytes, mut taken) = (vec![], vec![], 0, 0);
            for &index in rest.iter().take(FULL) {
                let Some((descriptor, state)) = registrations.look(index) else {
                    taken += 1;
                    continue;
                };
                bytes += state.len() + 8;
                if bytes > PACKET / 2 && !states.is_empty() {
                    break;
                }
                descriptors.push(descriptor);
                states.push(state);
                taken += 1;
            }
            rest = &rest[taken..];
            let packet = encode(&Notice::Left(states));
            loop {
                match line.send_until(until, &packet, &descriptors) {
                    // Of those that are on their way nothing tells when they have arrived.
                    Err(error) if is_limit(&error) && Instant::now() < until => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    outcome => break outcome?,
                }
            }
        }
        for (space, id, bytes) in records.iter() {
            for record in parts(space, id, bytes) {
                line.send_until(until, &encode(&Notice::Kept(record)), &[])?;
            }
        }
        line.send_until(until, &encode(&Notice::Done), &[])
    }
}
