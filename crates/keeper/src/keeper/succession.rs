//! One server after another.

use std::time::Instant;

use super::handing::Handing;
use super::{Keeper, Member, PATIENCE, Succession, Whose};
use crate::happening::Happening;
use crate::protocol::{Notice, encode};

impl Keeper {
    /// Handles a server's request for the orphans of other servers.
    pub(super) fn adopt(&mut self, successor: usize, session: u64, upgrades: bool) {
        let other = self.members.iter().find(|(index, member)| {
            let is_server = matches!(member.whose, Whose::Control(other) if other != session);
            is_server && *index != successor && !member.is_through
        });
        let takes_over =
            |member: &Member| member.handing.as_ref().is_some_and(|handing| !handing.shows);
        let is_busy = self.members.iter().any(|(_, member)| takes_over(member));
        if self.succession.is_some() || is_busy {
            return self.refuse(successor, "another server is about to take over");
        }
        let Some((before, member)) = other else { return self.hand_over(successor) };
        let (peer, to) = (member.peer, self.members.get(successor).and_then(|member| member.peer));
        if !upgrades {
            let who = peer.map_or("another server".to_owned(), |peer| peer.to_string());
            let why =
                format!("{who} is at work with this keeper; take over from it, or end it first");
            return self.refuse(successor, &why);
        }
        if let (Some(peer), Some(to)) = (peer, to) {
            (self.report)(&Happening::Yields { peer, to });
        }
        let until = Instant::now() + PATIENCE;
        self.succession = Some(Succession { successor, before: Some(before), until });
        self.say(before, encode(&Notice::Yield));
    }

    /// Handles a server that has left everything that it will, or has gone.
    pub(super) fn yielded(&mut self, index: usize) {
        let whose = self.members.get(index).map(|member| member.whose);
        let Some(Whose::Control(session)) = whose else { return };
        if self.doubtful.iter().any(|&(doubtful, _)| doubtful == session) {
            self.settle_doubt(session);
        }
        let Some(member) = self.members.get_mut(index) else { return };
        member.is_through = true;
        for (_, member) in &mut self.members {
            member.is_through |= member.whose == Whose::Loop(session);
        }
        self.has_yielded(session);
        self.registrations.orphan_session(session);
        if self.succession.as_ref().is_some_and(|succession| succession.before == Some(index))
            && let Some(Succession { successor, .. }) = self.succession.take()
        {
            self.hand_over(successor);
        }
    }

    /// Sends a server copies of the descriptors that are held.
    pub(super) fn show(&mut self, index: usize) {
        let held = Handing::new(true, self.registrations.held(), Vec::new());
        self.begin_handing(index, held);
    }

    /// Hands the orphans of other servers over, if none of those servers can act on them any more.
    pub(super) fn hand_over(&mut self, successor: usize) {
        if !self.may_hand_over(successor) {
            return;
        }
        let (all, records) = (self.registrations.hand_over(), self.records.all());
        self.begin_handing(successor, Handing::new(false, all, records));
    }
}
