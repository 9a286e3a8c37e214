//! The turns of the publishers that wait for room in a channel, see `channel/publisher_queue.rs`.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::Hub;
use crate::channel::publisher_queue::{QUEUE_FACTOR, QueueFull};

/// A publisher's place in the line, given up on drop.
pub(in crate::channel) struct PublishTurn {
    hub: Arc<Hub>,
    ticket: Option<u64>,
}

impl PublishTurn {
    pub(in crate::channel) fn new(hub: &Arc<Hub>) -> PublishTurn {
        PublishTurn { hub: hub.clone(), ticket: None }
    }

    /// Ready when a message may be published, or when waiting is pointless. `bytes` is the memory
    /// that the publisher holds meanwhile.
    pub(in crate::channel) fn poll(
        &mut self,
        bytes: u64,
        cx: &Context<'_>,
    ) -> Poll<Result<(), QueueFull>> {
        self.hub.poll_turn(&mut self.ticket, bytes, cx)
    }
}

impl Drop for PublishTurn {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.hub.leave_queue(ticket);
        }
    }
}

impl Hub {
    /// Waits until the messages on their way to each engine are less than `queue_bytes`.
    ///
    /// Cancel safe: nothing is published, and publishers that wait behind this one move up.
    pub async fn room(self: &Arc<Hub>) {
        let mut turn = PublishTurn::new(self);
        // The memory that a program holds meanwhile is its own.
        let _ = poll_fn(|cx| turn.poll(0, cx)).await;
    }

    /// Whether a message may be published at once.
    pub(in crate::channel) fn has_room(&self) -> bool {
        let state = self.state();
        state.publisher_queue.is_empty() && state.has_room()
    }

    /// Ready when a publisher, the holder of that place in the line, may publish a message.
    fn poll_turn(
        &self,
        ticket: &mut Option<u64>,
        bytes: u64,
        cx: &Context<'_>,
    ) -> Poll<Result<(), QueueFull>> {
        let mut state = self.state();
        if state.is_closed || (state.publisher_queue.is_first(*ticket) && state.has_room()) {
            let next = ticket.take().and_then(|ticket| {
                state.publisher_queue.leave(ticket);
                state.publisher_queue.first()
            });
            drop(state);
            next.into_iter().for_each(Waker::wake);
            return Poll::Ready(Ok(()));
        }
        match *ticket {
            Some(ticket) => state.publisher_queue.remember(ticket, cx),
            None if state.publisher_queue.bytes() + bytes
                > state.options.queue_bytes.saturating_mul(QUEUE_FACTOR) =>
            {
                return Poll::Ready(Err(QueueFull));
            }
            None => *ticket = Some(state.publisher_queue.enter(bytes, cx)),
        }
        Poll::Pending
    }

    /// Gives up a place in the line.
    fn leave_queue(&self, ticket: u64) {
        let mut state = self.state();
        state.publisher_queue.leave(ticket);
        let next = state.publisher_queue.first();
        drop(state);
        next.into_iter().for_each(Waker::wake);
    }
}
