//! Counts the connections of users, and tells of those who come and go, see
//! `channel/presence.rs`.

use std::sync::{Arc, MutexGuard};
use std::task::Waker;
use std::time::Instant;

use serde_json::Value;
use superpoll_rt::time;

use super::{Hub, HubState};
use crate::channel::cursor::Cursor;
use crate::channel::history::Since;
use crate::channel::moment::Moment;
use crate::channel::presence::{Presence, User};

impl HubState {
    /// Tells of everyone whose state is not the one that was told, as far as there is room.
    pub(super) fn settle(&mut self, wakers: &mut Vec<Waker>) {
        if !self.options.presence || self.is_closed {
            return;
        }
        let Some(mut presence) = self.presence.take() else { return };
        while let Some((name, change)) = presence.next_untold() {
            let draft = presence.event(&name, change);
            if !self.has_room() || !self.history.make_room(draft.cost()) {
                break;
            }
            let id = self.append(draft, wakers);
            presence.was_told(change, id);
        }
        self.presence = Some(presence);
    }

    /// Returns the end of a grace that begins now.
    fn grace(&self) -> Moment {
        Moment::at(time::now() + self.options.presence_grace)
    }

    /// Gives those a grace whose connections to the server before are lost.
    pub(super) fn finish_awaiting(&mut self) {
        let until = self.grace();
        if let Some(presence) = &mut self.presence {
            presence.begin_graces(until);
        }
    }
}

impl Hub {
    /// Settles what can be settled now, and sees to it that the rest is looked at again.
    pub(super) fn settle_and_wake(
        self: &Arc<Hub>,
        mut state: MutexGuard<'_, HubState>,
        now: Instant,
    ) {
        let mut wakers = Vec::new();
        if let Some(presence) = &mut state.presence {
            presence.end_graces(now);
        }
        state.settle(&mut wakers);
        wakers.extend(state.next_publisher());
        if let Some(presence) = &mut state.presence
            && presence.is_unsettled()
            && !std::mem::replace(&mut presence.is_listed, true)
        {
            state.unsettled.enter(Arc::downgrade(self));
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Makes those leave whose grace is over.
    pub(in crate::channel) fn end_graces(self: &Arc<Hub>, now: Instant) {
        let mut state = self.state();
        if let Some(presence) = &mut state.presence {
            presence.is_listed = false;
        }
        self.settle_and_wake(state, now);
    }

    /// Counts a subscriber of a user in as [`join`](Hub::join) does.
    pub(in crate::channel) fn enter(
        self: &Arc<Hub>,
        queue_id: u64,
        after: Option<Cursor>,
        user: User,
    ) -> Since {
        let mut state = self.state();
        state.count_in(queue_id);
        // Its own event comes through the queue.
        let since = state.history.since(after, self.epoch());
        state.presence_mut().arrive(user);
        self.settle_and_wake(state, time::now());
        since
    }

    /// Notes the user of a subscriber that continues from another server, and that was counted by
    /// [`join`](Hub::join).
    pub(in crate::channel) fn keep_present(&self, name: &Arc<str>) {
        self.state().presence_mut().continue_with(name);
    }

    /// Counts a subscriber of a user out as [`leave`](Hub::leave) does. Whether the user has left
    /// is found out later, unless all subscribers are about to go.
    pub(in crate::channel) fn exit(self: &Arc<Hub>, queue_id: u64, name: &Arc<str>, is_told: bool) {
        let mut state = self.state();
        state.count_out(queue_id);
        let until = state.grace();
        if is_told
            && !state.is_closed
            && let Some(presence) = &mut state.presence
        {
            presence.depart(name, until);
        }
        self.settle_and_wake(state, time::now());
    }

    /// Whether there are users who are here, or were told of.
    pub(in crate::channel) fn has_members(&self) -> bool {
        self.state().presence.as_ref().is_some_and(|presence| !presence.members.is_empty())
    }

    /// Returns the number of users who were told of, if the channel tells of users.
    pub(in crate::channel) fn users(&self) -> Option<usize> {
        let state = self.state();
        state.options.presence.then(|| state.presence.as_ref().map_or(0, |it| it.told))
    }

    /// Returns the last message, the users who were told of up to it, in the order of their names
    /// and after one of them, and whether there are more; `None` if the channel counts no users.
    pub(in crate::channel) fn members(
        &self,
        after: Option<&str>,
    ) -> Option<(u64, Vec<Value>, bool)> {
        let state = self.state();
        let page = |presence: &Presence| presence.page(after);
        let (members, has_more) = state.presence.as_deref().map(page).unwrap_or_default();
        state.options.presence.then(|| (state.history.last(), members, has_more))
    }
}

impl HubState {
    /// Returns the members, which are recorded where the messages are.
    fn presence_mut(&mut self) -> &mut Presence {
        let history = &self.history;
        self.presence.get_or_insert_with(|| {
            let mut presence = Presence::default();
            if let (Some(records), Some(space)) = (history.records(), history.space()) {
                presence.continue_in(records, space);
            }
            Box::new(presence)
        })
    }
}

#[cfg(test)]
mod tests;
