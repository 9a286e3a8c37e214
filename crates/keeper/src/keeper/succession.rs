//! One server after another.

use std::time::Instant;

use super::transfer::Transfer;
use super::{Client, ClientKind, Keeper, PATIENCE, Succession};
use crate::event::KeeperEvent;
use crate::protocol::{Notice, encode};

impl Keeper {
    /// Handles a server's request for the orphans of other servers.
    pub(super) fn adopt(&mut self, successor: usize, session: u64, upgrades: bool) {
        let other = self.clients.iter().find(|(index, client)| {
            let is_server = matches!(client.kind, ClientKind::Control(other) if other != session);
            is_server && *index != successor && !client.has_finished
        });
        let takes_over =
            |client: &Client| client.transfer.as_ref().is_some_and(|transfer| !transfer.shows);
        let is_busy = self.clients.iter().any(|(_, client)| takes_over(client));
        if self.succession.is_some() || is_busy {
            return self.refuse(successor, "another server is about to take over");
        }
        let Some((before, client)) = other else { return self.hand_over(successor) };
        let (peer, to) = (client.peer, self.clients.get(successor).and_then(|client| client.peer));
        if !upgrades {
            let other = peer.map_or("another server".to_owned(), |peer| peer.to_string());
            let why =
                format!("{other} is at work with this keeper; take over from it, or end it first");
            return self.refuse(successor, &why);
        }
        if let (Some(peer), Some(to)) = (peer, to) {
            (self.report)(&KeeperEvent::Yields { peer, to });
        }
        let until = Instant::now() + PATIENCE;
        self.succession = Some(Succession { successor, before: Some(before), until });
        self.send(before, encode(&Notice::Yield));
    }

    /// Handles a server that has left everything that it will, or has gone.
    pub(super) fn yielded(&mut self, index: usize) {
        let kind = self.clients.get(index).map(|client| client.kind);
        let Some(ClientKind::Control(session)) = kind else { return };
        if self.doubtful.iter().any(|&(doubtful, _)| doubtful == session) {
            self.resolve_doubt(session);
        }
        let Some(client) = self.clients.get_mut(index) else { return };
        client.has_finished = true;
        for (_, client) in &mut self.clients {
            client.has_finished |= client.kind == ClientKind::Loop(session);
        }
        // What it took back before it yielded must not go to another server. A packet on this link
        // may have overtaken those on the links of its loops.
        self.receive_from_loops(session);
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
        let held = Transfer::new(true, self.registrations.held(), Vec::new());
        self.begin_transfer(index, held);
    }

    /// Hands the orphans of other servers over, if none of those servers can act on them any more.
    pub(super) fn hand_over(&mut self, successor: usize) {
        if !self.may_hand_over(successor) {
            return;
        }
        self.records.drop_partial();
        let (all, records) = (self.registrations.mark_handed_over(), self.records.all());
        self.begin_transfer(successor, Transfer::new(false, all, records));
    }
}
