//! The copy of a log that several servers read: messages come with their numbers, and the hub may
//! be replaced by another one.

use std::sync::Arc;
use std::task::Waker;

use super::Hub;
use crate::channel::budget::Budget;
use crate::channel::history::History;
use crate::channel::message::Draft;
use crate::channel::shared::SharedChannel;
use crate::config::Channel;

impl Hub {
    /// Creates the channel of a log whose messages follow the one with this number.
    pub(in crate::channel) fn of_log(
        name: Arc<str>,
        options: Arc<Channel>,
        budget: Arc<Budget>,
        (epoch, after): (u64, u64),
    ) -> Arc<Hub> {
        let mut history = History::new((name.clone(), epoch), Vec::new(), false, budget);
        history.begin_after(after);
        Hub::with(name, options, epoch, history)
    }

    /// Appends the message with the next number of a log, as far as there is room for it.
    ///
    /// `false` if the channel takes no more messages.
    pub(in crate::channel) fn apply(&self, draft: Draft) -> bool {
        let mut wakers = Vec::new();
        let mut state = self.state();
        let state_now = &mut *state;
        if state_now.is_closed {
            return false;
        }
        // Other servers have it in any case. If there is no room, it is not kept here.
        let has_room = state_now.history.make_room(draft.cost());
        let length = if has_room { state_now.options.history } else { 0 };
        state_now.append_and_keep(draft, length, &mut wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        true
    }

    /// Notes that another channel is in its place, and lets the engines move its subscribers there.
    pub(in crate::channel) fn replace(&self) {
        let mut wakers = Vec::new();
        let mut state = self.state();
        (state.is_closed, state.is_replaced) = (true, true);
        wakers.extend(state.publisher_queue.all());
        for queue in &mut state.queues {
            if queue.subscribers > 0 && !std::mem::replace(&mut queue.is_listed, true) {
                wakers.extend(queue.inbox.list(queue.id));
            }
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether it takes no more messages.
    pub(in crate::channel) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Whether another channel is in its place.
    pub(in crate::channel) fn is_replaced(&self) -> bool {
        self.state().is_replaced
    }

    /// Makes the messages those of a log that other servers have, too.
    pub(in crate::channel) fn share(&self, shared: Arc<SharedChannel>) {
        self.state().history.follow();
        // The second call for a channel would be with the same log.
        let _ = self.shared.set(shared);
    }

    /// Returns the log of its messages, if other servers have it as well.
    pub(in crate::channel) fn shared(&self) -> Option<&Arc<SharedChannel>> {
        self.shared.get()
    }
}
