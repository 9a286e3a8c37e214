//! The streams of a connection, in slots (RFC 9113, section 5.1).
//!
//! ```text
//!            end of the request                end of the response
//!   OPEN ------------------------> REQUEST IS OVER -------------> free
//!     \                                                            ^
//!      \ end of the response                 end of the request    |
//!       +--------------------> RESPONSE IS OVER -------------------+
//! ```
//!
//! A reset by either side frees the slot from each state. The numbers of streams that were reset
//! here before their request was over are remembered, as frames for them may be under way.

use crate::limits::{FAIR_TURN, MOST_REMEMBERED};
use crate::priority::Priority;
use crate::window::{ReceiveWindow, SendWindow};

/// The name of a stream: its number, and its slot. Slots are small numbers that are used again;
/// a key of a stream that has ended names nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StreamKey {
    pub(crate) id: u32,
    pub(crate) slot: u16,
}

impl StreamKey {
    /// Returns the number that the client has given the stream.
    #[must_use]
    pub const fn id(self) -> u32 {
        self.id
    }

    /// Returns the slot, which is below the most streams at a time. No two open streams have the
    /// same one.
    #[must_use]
    pub const fn slot(self) -> usize {
        self.slot as usize
    }
}

/// The state of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// The slot has no stream.
    Free,
    Open,
    /// "Half-closed (remote)".
    RequestIsOver,
    /// "Half-closed (local)".
    ResponseIsOver,
}

/// A stream.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) state: State,
    /// The final head of the response was written.
    pub(crate) has_head: bool,
    /// The caller has something to write.
    pub(crate) is_ready: bool,
    /// The connection may be parked with this stream.
    pub(crate) is_held: bool,
    pub(crate) priority: Priority,
    pub(crate) send: SendWindow,
    pub(crate) receive: ReceiveWindow,
    /// The bytes that are left of the body's length.
    pub(crate) left: Option<u64>,
    /// The small frames whose data was not released.
    pub(crate) small_frames: u32,
    /// The turn in which the stream was the last to write.
    pub(crate) turn: u64,
}

impl Stream {
    /// Whether the client may send more of the request.
    pub(crate) fn is_receiving(&self) -> bool {
        matches!(self.state, State::Open | State::ResponseIsOver)
    }

    /// Whether more of the response may be written.
    pub(crate) fn is_sending(&self) -> bool {
        matches!(self.state, State::Open | State::RequestIsOver)
    }
}

/// The streams of a connection.
#[derive(Clone, Default, Debug)]
pub(crate) struct Streams {
    slots: Vec<Stream>,
    free: Vec<u16>,
    /// The streams that were reset here while the client may still send.
    remembered: Vec<u32>,
    pub(crate) turn: u64,
}

impl Streams {
    /// Returns the number of open streams.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the streams with their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (StreamKey, &Stream)> {
        let keyed = |(slot, stream): (usize, _)| (key(slot, stream), stream);
        self.slots.iter().enumerate().map(keyed).filter(|(_, it)| it.state != State::Free)
    }

    /// Returns the open streams.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.slots.iter_mut().filter(|stream| stream.state != State::Free)
    }

    #[inline]
    pub(crate) fn get(&mut self, key: StreamKey) -> Option<&mut Stream> {
        let is_it = |it: &&mut Stream| it.id == key.id && it.state != State::Free;
        self.slots.get_mut(usize::from(key.slot)).filter(is_it)
    }

    /// Returns the key of an open stream.
    pub(crate) fn find(&self, id: u32) -> Option<StreamKey> {
        self.iter().find(|(key, _)| key.id == id).map(|(key, _)| key)
    }

    /// Puts a stream into a slot. The caller has checked the number of streams.
    #[inline]
    pub(crate) fn insert(&mut self, stream: Stream) -> StreamKey {
        let slot = self.free.pop().map_or(self.slots.len(), usize::from);
        let key = key(slot, &stream);
        match self.slots.get_mut(slot) {
            Some(free) => *free = stream,
            None => self.slots.push(stream),
        }
        key
    }

    /// Frees the slot of a stream. `remembers` if the client may still send frames for it.
    #[inline]
    pub(crate) fn remove(&mut self, key: StreamKey, remembers: bool) {
        let Some(stream) = self.get(key) else { return };
        let is_receiving = stream.is_receiving();
        stream.state = State::Free;
        self.free.push(key.slot);
        if remembers && is_receiving {
            self.remember(key.id);
        }
        // Without this, a connection with one large burst would keep the memory.
        if self.free.len() == self.slots.len() {
            self.free.clear();
            self.slots.clear();
            self.slots.shrink_to(4);
            self.free.shrink_to(4);
        }
    }

    /// Remembers a stream that was reset or refused while the client may still send.
    pub(crate) fn remember(&mut self, id: u32) {
        if self.remembered.len() == MOST_REMEMBERED {
            self.remembered.remove(0);
        }
        self.remembered.push(id);
    }

    /// Whether a stream that was reset here may still get frames.
    pub(crate) fn remembers(&self, id: u32) -> bool {
        self.remembered.contains(&id)
    }

    /// Forgets a stream, as the client has ended it, too.
    pub(crate) fn forget(&mut self, id: u32) {
        self.remembered.retain(|other| *other != id);
    }

    pub(crate) fn remembered(&self) -> &[u32] {
        &self.remembered
    }

    /// Returns the stream whose turn it is to write: of those that are ready and have a window, the
    /// most urgent one, in the order of RFC 9218, section 10. One of [`FAIR_TURN`] turns is that of
    /// the stream that has waited longest, so none starves.
    pub(crate) fn next_writable(&mut self) -> Option<StreamKey> {
        let is_fair = self.turn % u64::from(FAIR_TURN) == u64::from(FAIR_TURN) - 1;
        let order = |it: &Stream| match (is_fair, it.priority.incremental) {
            (true, _) => (0, false, it.turn, it.id),
            (false, true) => (it.priority.urgency, true, it.turn, it.id),
            (false, false) => (it.priority.urgency, false, 0, it.id),
        };
        let is_writable =
            |it: &Stream| it.is_ready && it.is_sending() && it.has_head && it.send.left() > 0;
        let (key, _) =
            self.iter().filter(|(_, it)| is_writable(it)).min_by_key(|it| order(it.1))?;
        self.turn += 1;
        let turn = self.turn;
        self.get(key)?.turn = turn;
        Some(key)
    }
}

fn key(slot: usize, stream: &Stream) -> StreamKey {
    // There are at most as many slots as streams at a time.
    StreamKey { id: stream.id, slot: u16::try_from(slot).unwrap_or(u16::MAX) }
}
