//! The ends of links, and the fate of the descriptors that were left on them.

use std::time::Instant;

use rustix::event::epoll;

use super::{Client, ClientKind, ClosedBy, Keeper, Succession};
use crate::event::KeeperEvent;
use crate::link::is_readable;

impl Keeper {
    /// Handles the announced end of a link: nothing is left on it.
    pub(super) fn handle_bye(&mut self, index: usize, kind: ClientKind) {
        self.registrations.forget_link(index);
        if let ClientKind::Control(session) = kind {
            let client = self.clients.get(index).filter(|client| !client.has_finished);
            if let Some(is_successor) = client.map(|client| client.is_successor) {
                self.void(session, is_successor);
                if self.handed_to.take_if(|successor| *successor == index).is_some() {
                    self.registrations.forget_handed_over();
                }
            }
        }
        if let Some(client) = self.clients.get_mut(index) {
            client.has_finished = true;
        }
        self.disconnect(index, ClosedBy::Peer);
    }

    /// Handles the end of a link.
    pub(super) fn disconnect(&mut self, index: usize, closed_by: ClosedBy) {
        self.stop_sending(index);
        let Some(mut client) = self.clients.try_remove(index) else { return };
        let _ = epoll::delete(self.registrations.epoll(), &client.link);
        let is_revoked = client.revocation.as_ref().is_some_and(is_readable);
        let is_kept = closed_by == ClosedBy::Peer && !is_revoked;
        if self.succession.as_ref().is_some_and(|succession| succession.successor == index) {
            self.succession = None;
        }
        match client.kind {
            ClientKind::Loop(session) => {
                let leaves = is_kept && self.registrations.count(index) > 0;
                if is_kept && !self.is_void(session) {
                    self.registrations.orphan_link(index);
                    if !client.has_finished {
                        self.doubtful.push((session, Instant::now() + self.options.grace));
                    }
                } else {
                    // The server watches these descriptors itself, or they are of no use to any
                    // other server.
                    self.registrations.forget_link(index);
                }
                self.leave_session(session, client.revocation.take().filter(|_| leaves));
            }
            ClientKind::Control(session) => {
                self.disconnect_control(index, session, &client, is_revoked, is_kept);
                let leaves = is_kept && !client.has_finished;
                self.leave_session(session, client.revocation.take().filter(|_| leaves));
            }
            ClientKind::Unknown | ClientKind::Thread => self.registrations.orphan_link(index),
        }
        if self.succession.as_ref().is_some_and(|succession| succession.before == Some(index))
            && let Some(Succession { successor, .. }) = self.succession.take()
        {
            self.hand_over(successor);
        }
    }

    /// Handles the end of a server's own link.
    fn disconnect_control(
        &mut self,
        index: usize,
        session: u64,
        client: &Client,
        is_revoked: bool,
        is_kept: bool,
    ) {
        self.registrations.orphan_link(index);
        let was_unsettled = self.handed_to.take_if(|successor| *successor == index).is_some();
        if was_unsettled && is_revoked {
            self.registrations.forget_handed_over();
        } else if was_unsettled {
            self.registrations.unmark_handed_over();
        }
        if is_kept {
            if !client.has_finished {
                // If the server has ended, its loops have sent their last packets as well.
                self.receive_from_session(session);
                self.doubtful.retain(|&(doubtful, _)| doubtful != session);
                self.doubtful.push((session, Instant::now() + self.options.grace));
            }
        } else if !client.has_finished {
            // The orphans that it was handed and has not settled are decided above: it may not have
            // got all of them.
            let is_its_own = is_revoked || !was_unsettled;
            self.void(session, client.is_successor && is_its_own);
        }
        if let Some(peer) = client.peer.filter(|_| !client.has_finished) {
            let orphans = self.registrations.orphans();
            (self.report)(&KeeperEvent::Lost { peer, orphans });
        }
    }
}
