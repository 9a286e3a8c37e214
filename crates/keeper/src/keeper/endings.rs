//! The ends of lines, and the fate of the descriptors that were left on them.

use std::time::Instant;

use rustix::event::epoll;

use super::{Ending, Keeper, Member, Succession, Whose};
use crate::happening::Happening;
use crate::line::is_readable;

impl Keeper {
    /// Handles the announced end of a line: nothing is left on it.
    pub(super) fn part(&mut self, index: usize, whose: Whose) {
        self.registrations.forget_line(index);
        if let Whose::Control(session) = whose {
            let member = self.members.get(index).filter(|member| !member.is_through);
            if let Some(is_heir) = member.map(|member| member.is_heir) {
                self.void(session, is_heir);
                if self.handed_to.take_if(|successor| *successor == index).is_some() {
                    self.registrations.forget_handed_over();
                }
            }
        }
        if let Some(member) = self.members.get_mut(index) {
            member.is_through = true;
        }
        self.lose(index, Ending::Theirs);
    }

    /// Handles the end of a line.
    pub(super) fn lose(&mut self, index: usize, ending: Ending) {
        self.stop_sending(index);
        let Some(mut member) = self.members.try_remove(index) else { return };
        let _ = epoll::delete(self.registrations.epoll(), &member.line);
        let is_revoked = member.revocation.as_ref().is_some_and(is_readable);
        let is_kept = ending == Ending::Theirs && !is_revoked;
        if self.succession.as_ref().is_some_and(|succession| succession.successor == index) {
            self.succession = None;
        }
        match member.whose {
            Whose::Loop(session) => {
                let leaves = is_kept && self.registrations.count(index) > 0;
                if is_kept && !self.is_void(session) {
                    self.registrations.orphan_line(index);
                    if !member.is_through {
                        self.doubtful.push((session, Instant::now() + self.options.grace));
                    }
                } else {
                    // The server watches these descriptors itself, or they are of no use to any
                    // other server.
                    self.registrations.forget_line(index);
                }
                self.leave_session(session, member.revocation.take().filter(|_| leaves));
            }
            Whose::Control(session) => {
                self.lose_control(index, session, &member, is_revoked, is_kept);
                let leaves = is_kept && !member.is_through;
                self.leave_session(session, member.revocation.take().filter(|_| leaves));
            }
            Whose::Unknown | Whose::Thread => self.registrations.orphan_line(index),
        }
        if self.succession.as_ref().is_some_and(|succession| succession.before == Some(index))
            && let Some(Succession { successor, .. }) = self.succession.take()
        {
            self.hand_over(successor);
        }
    }

    /// Handles the end of a server's own line.
    fn lose_control(
        &mut self,
        index: usize,
        session: u64,
        member: &Member,
        is_revoked: bool,
        is_kept: bool,
    ) {
        self.registrations.orphan_line(index);
        let was_unsettled = self.handed_to.take_if(|successor| *successor == index).is_some();
        if was_unsettled && is_revoked {
            self.registrations.forget_handed_over();
        } else if was_unsettled {
            self.registrations.take_back();
        }
        if is_kept {
            if !member.is_through {
                // If the server has ended, its loops have sent their last packets as well.
                self.hear_session(session);
                self.doubtful.retain(|&(doubtful, _)| doubtful != session);
                self.doubtful.push((session, Instant::now() + self.options.grace));
            }
        } else if !member.is_through {
            // The orphans that it was handed and has not settled are decided above: it may not have
            // got all of them.
            let is_its_own = is_revoked || !was_unsettled;
            self.void(session, member.is_heir && is_its_own);
        }
        if let Some(peer) = member.peer.filter(|_| !member.is_through) {
            let orphans = self.registrations.orphans();
            (self.report)(&Happening::Lost { peer, orphans });
        }
    }
}
