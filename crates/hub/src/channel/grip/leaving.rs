//! Held connections that are parked: when they are due, and their state for a successor.
//!
//! A successor makes the bytes again that were written to a connection since it was left, from the
//! items that the log has. The log is that of all channels, and soon forgets the items of a
//! connection that gets few. So a connection that was written to is left again before half of the
//! log has come after that.

use std::collections::HashSet;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use superpoll_http::held::{HeldFor, HeldRecord};
use superpoll_rt::spawn;

use super::{app_socket, stream};
use crate::channel::form::Form;
use crate::channel::local_subscribers::{LocalSubscribers, SubscriberState};
use crate::channel::mailbox::EndReason;
use crate::channel::moment::Moment;

/// The most connections that are left again after a broadcast.
const LEFT_AT_ONCE: usize = 256;

impl LocalSubscribers {
    /// Notes that an item was written to a held connection that is parked.
    pub(in crate::channel) fn wrote_held(&self, index: usize, item: u64) {
        let mut is_queued = true;
        self.note_held(index, |times| {
            let now = Moment::now();
            (times.sent, times.news, times.is_written) = (now, now, true);
            is_queued = std::mem::replace(&mut times.is_queued, true);
        });
        if !is_queued {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            self.written.borrow_mut().push_back((item, index));
        }
    }

    /// Notes that all held connections have had these items.
    pub(in crate::channel) fn delivered_held(self: &Rc<LocalSubscribers>, items: Range<u64>) {
        self.delivered.set(items.end);
        let waiting = self.written.borrow().len();
        if waiting == 0 {
            return;
        }
        let quarter = (self.hub.options().history as u64 / 4).max(1);
        // As many as come to a quarter of the log, so that all are left before the next half.
        let count = items.end - items.start + 1;
        let quota = (waiting as u64).saturating_mul(count).div_ceil(quarter);
        let quota = usize::try_from(quota).unwrap_or(usize::MAX).max(LEFT_AT_ONCE);
        // The log forgets by the number of items, or by their bytes.
        let (first, is_half_full) = self.hub.oldest();
        let middle = if is_half_full { first + (items.end - first) / 2 } else { 0 };
        for _ in 0..quota {
            let next = self.written.borrow().front().copied();
            let is_due = |(item, _): &(u64, u32)| item + quarter <= items.end || *item <= middle;
            let Some((_, index)) = next.filter(is_due) else { return };
            self.written.borrow_mut().pop_front();
            self.note_held(index as usize, |times| times.is_queued = false);
            self.leave_again(index as usize);
        }
    }

    /// Leaves the state of a parked connection again, if it was written to.
    fn leave_again(self: &Rc<LocalSubscribers>, index: usize) {
        if !self.held_times(index).is_written {
            return;
        }
        let (key, form, pinged) = match self.subscribers.borrow().get(index) {
            Some(subscriber) => match &subscriber.delivery {
                SubscriberState::Parked { key, form, pinged } => (*key, *form, *pinged),
                SubscriberState::Carried(by) => {
                    let by = by.upgrade();
                    // It comes back with its state of now.
                    return spawn(async move { by.into_iter().for_each(|by| by.wake()) }).detach();
                }
                _ => return,
            },
            None => return,
        };
        if let Some(parked) = self.parking_lot.take(key) {
            self.clone().park_subscriber(index, parked, form, pinged);
        }
    }

    /// Notes that the state of a held connection was left as it is now.
    pub(in crate::channel) fn left_held(&self, index: usize) {
        self.note_held(index, |times| times.is_written = false);
    }

    /// Returns how long a held connection may be silent; `None`: for ever.
    pub(in crate::channel) fn held_due(&self, index: usize) -> Option<Duration> {
        let reader = self.reader(index)?;
        Some(stream::due(reader.held()?, self.held_times(index))?.0)
    }

    /// Returns how long a parked subscriber may be silent.
    pub(in crate::channel) fn silence_of(&self, index: usize, form: Form) -> Option<Duration> {
        match form {
            Form::Held => self.held_due(index),
            Form::HeldSocket => {
                let due = self.held_due(index).unwrap_or(Duration::MAX);
                Some(due.min(self.hub.silence()))
            }
            _ => Some(self.hub.silence()),
        }
    }

    /// Ends the held connections of routes other than these.
    pub(in crate::channel) fn dismiss_held(self: &Rc<LocalSubscribers>, kept: &HashSet<Arc<str>>) {
        for index in self.indices() {
            let reader = self.reader(index);
            let Some(held) = reader.as_ref().and_then(|reader| reader.held()) else { continue };
            if !kept.contains(&held.route) {
                self.end_one(index, EndReason::Changed);
            }
        }
    }

    /// Tells the application of a held connection that its client has gone, if it wants to know.
    pub(in crate::channel) fn held_gone(&self, held: &HeldRecord) {
        // A server that ends has not lost its clients.
        let Some(route) = self.route_of(held).filter(|_| !self.is_retired()) else { return };
        match &held.purpose {
            HeldFor::Stream { gone: Some(gone), host, .. } => {
                let (gone, host) = (gone.clone(), host.clone());
                let asked = route.clone();
                route.say_goodbye(Box::pin(async move { asked.tell_gone(&gone, &host).await }));
            }
            HeldFor::Socket { .. } => app_socket::tell_gone(route, held),
            _ => {}
        }
    }
}
