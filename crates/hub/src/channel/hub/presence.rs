//! Counts the connections of users, and tells of those who come and go, see
//! `channel/presence.rs`.

use std::sync::{Arc, MutexGuard, Weak};
use std::task::Waker;
use std::time::Instant;

use superpoll_rt::time;

use super::{Hub, HubState};
use crate::broker::Unpublished;
use crate::channel::cursor::Cursor;
use crate::channel::history::Since;
use crate::channel::moment::Moment;
use crate::channel::presence::{Listed, Presence, User};

impl HubState {
    /// Tells of everyone whose state is not the one that was told, as far as there is room.
    pub(super) fn settle(&mut self, wakers: &mut Vec<Waker>) {
        // The log of several servers tells by itself.
        if !self.options.presence || self.is_closed || self.history.is_shared() {
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
            let channel: Weak<Hub> = Arc::downgrade(self);
            state.parts.unsettled.enter(channel);
        }
        let has_news = state.presence.as_mut().is_some_and(|it| it.next_untold().is_some());
        let is_open = state.options.presence && !state.is_closed;
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        if has_news
            && is_open
            && let Some(shared) = self.shared()
        {
            shared.attend();
        }
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

    /// Returns the first changes of users that the broker is to know, at most this many, and the
    /// number of users after them; `None` if the channel tells of none.
    pub(in crate::channel) fn changes(&self, most: usize) -> Option<(Vec<(User, bool)>, u64)> {
        let mut state = self.state();
        (state.options.presence && !state.is_closed).then_some(())?;
        Some(state.presence.as_mut().map_or_else(Default::default, |it| it.changes(most)))
    }

    /// Notes that the broker knows some changes, and whether it knows all users. Returns whether
    /// there is more to tell.
    pub(in crate::channel) fn are_known<'a>(
        &self,
        changes: impl Iterator<Item = (&'a Arc<str>, bool)>,
        is_complete: bool,
    ) -> bool {
        let mut state = self.state();
        let Some(presence) = &mut state.presence else { return false };
        changes.for_each(|(name, is_here)| presence.is_known(name, is_here));
        if !is_complete {
            presence.tell_again();
        }
        presence.next_untold().is_some()
    }

    /// Takes the members of the channel in whose place this one is.
    pub(in crate::channel) fn take_members(self: &Arc<Hub>, old: &Hub) {
        let Some(presence) = old.state().presence.take() else { return };
        let mut state = self.state();
        let mut presence = presence.moved(state.grace());
        if let (Some(records), Some(space)) = (state.history.records(), state.history.space()) {
            presence.record_in(records, space);
        }
        state.presence = Some(Box::new(presence));
        self.settle_and_wake(state, time::now());
    }

    /// Whether there are users who are here, or were told of.
    pub(in crate::channel) fn has_members(&self) -> bool {
        self.state().presence.as_ref().is_some_and(|presence| !presence.members.is_empty())
    }

    /// Returns the number of users who were told of, if the channel tells of users and has them
    /// alone.
    pub(in crate::channel) fn users(&self) -> Option<usize> {
        let state = self.state();
        (state.options.presence && !state.history.is_shared())
            .then(|| state.presence.as_ref().map_or(0, |it| it.told))
    }

    /// Returns the users who were told of, in the order of their names and after one of them;
    /// `None` if the channel counts no users.
    ///
    /// # Errors
    ///
    /// The broker that knows them does not answer.
    pub(in crate::channel) async fn members(
        &self,
        after: Option<&str>,
    ) -> Result<Option<Listed>, Unpublished> {
        if !self.options().presence {
            return Ok(None);
        }
        match self.shared() {
            Some(shared) => shared.members(after).await.map(Some),
            None => {
                let state = self.state();
                let last = state.history.last();
                let none = || Listed { last, ..Listed::default() };
                Ok(Some(state.presence.as_ref().map_or_else(none, |it| it.page(after, last))))
            }
        }
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
