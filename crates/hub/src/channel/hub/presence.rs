//! Counts subscribers in and out, and publishes the events that tell of them, see
//! `channel/presence.rs`.

use std::sync::Arc;
use std::task::Waker;

use serde::Serialize;

use super::{Hub, HubState};
use crate::channel::cursor::Cursor;
use crate::channel::history::Since;
use crate::channel::message::{Draft, Meta};
use crate::channel::presence::{Change, Presence};

/// The data of an event.
#[derive(Serialize)]
struct Data<'a> {
    subscribers: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<u64>,
}

impl HubState {
    /// Returns the number of subscribers that is told.
    fn number(&self) -> usize {
        let awaited = self.presence.as_ref().map_or(0, |presence| presence.awaited);
        self.queues.iter().map(|queue| queue.present).sum::<usize>() + awaited
    }

    /// Tells of a subscriber that has arrived or gone, or counts it as left out.
    fn tell(&mut self, change: Change, sub: Option<&str>) -> Vec<Waker> {
        let mut wakers = Vec::new();
        if self.options.presence && !self.is_closed && !self.try_tell(change, sub, &mut wakers) {
            self.presence.get_or_insert_default().left_out += 1;
        }
        wakers
    }

    /// Tells of the subscribers that were left out, if there are some and there is room.
    pub(super) fn tell_left_out(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let left_out = self.presence.as_ref().filter(|presence| presence.left_out > 0);
        if let Some(presence) = left_out
            && self.options.presence
            && !self.is_closed
        {
            let has_grown = self.number() > presence.told.unwrap_or(0);
            let change = if has_grown { Change::Join } else { Change::Leave };
            self.try_tell(change, None, &mut wakers);
        }
        wakers
    }

    /// Publishes an event; `false` if there is no room for it, or if the number of subscribers is
    /// not known yet.
    fn try_tell(&mut self, change: Change, sub: Option<&str>, wakers: &mut Vec<Waker>) -> bool {
        let number = self.number();
        let Presence { told, left_out, .. } = **self.presence.get_or_insert_default();
        if self.history.is_gathering() && told.is_none() {
            return false;
        }
        let left_out = Some(left_out).filter(|count| *count > 0);
        // Neither the fields nor the memory can refuse it.
        let json = serde_json::to_vec(&Data { subscribers: number, sub, left_out });
        let event = Some(change.event().to_owned());
        let meta = Some(Arc::new(Meta { event, ..Meta::default() }));
        let draft = Draft { data: json.unwrap_or_default().into(), is_text: true, meta };
        if !self.has_room() || !self.history.make_room(draft.cost()) {
            return false;
        }
        self.append(draft, wakers);
        let presence = self.presence.get_or_insert_default();
        (presence.told, presence.left_out) = (Some(number), 0);
        true
    }

    /// Awaits no more subscribers of the server before, and tells how many were lost.
    pub(super) fn finish_awaiting(&mut self) -> Vec<Waker> {
        let Some(mut presence) = self.presence.take().filter(|_| self.options.presence) else {
            return Vec::new();
        };
        presence.awaited = 0;
        let lost = presence.told.map_or(0, |told| told.abs_diff(self.number()));
        presence.left_out = presence.left_out.max(lost as u64);
        self.presence = Some(presence);
        self.tell_left_out()
    }
}

impl Hub {
    /// Counts a subscriber in as [`join`](Hub::join) does, and tells all subscribers.
    pub(in crate::channel) fn enter(
        &self,
        queue_id: u64,
        after: Option<Cursor>,
        sub: Option<&str>,
    ) -> Since {
        let mut state = self.state();
        state.count_in(queue_id);
        if let Some(queue) = state.queue(queue_id) {
            queue.present += 1;
        }
        // Its own event comes through the queue.
        let since = state.history.since(after, self.epoch());
        let wakers = state.tell(Change::Join, sub);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        since
    }

    /// Counts a subscriber in that continues from another server, and that was counted by
    /// [`join`](Hub::join).
    pub(in crate::channel) fn keep_present(&self, queue_id: u64) {
        let mut state = self.state();
        if let Some(queue) = state.queue(queue_id) {
            queue.present += 1;
        }
        if let Some(presence) = &mut state.presence {
            presence.awaited = presence.awaited.saturating_sub(1);
        }
    }

    /// Counts a subscriber out as [`leave`](Hub::leave) does, and tells the remaining subscribers
    /// unless all of them are about to go.
    pub(in crate::channel) fn exit(&self, queue_id: u64, sub: Option<&str>, is_told: bool) {
        let mut state = self.state();
        state.count_out(queue_id);
        if let Some(queue) = state.queue(queue_id) {
            queue.present = queue.present.saturating_sub(1);
        }
        let mut wakers = if is_told { state.tell(Change::Leave, sub) } else { Vec::new() };
        wakers.extend(state.next_publisher());
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests;
