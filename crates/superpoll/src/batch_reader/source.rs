//! One descriptor of a batch reader, and what is known of it.

use crate::interest::Interest;
use crate::key::Key;
use crate::operation::Action;
use crate::policy::Account;

/// What is watched for reading: the end too, because it may come with the last bytes, and a read that finds less
/// than there was room for does not show it.
pub const READS: Interest = Interest::READABLE.with(Interest::READ_CLOSED);

/// No place among the hot ones.
pub const NOWHERE: u32 = u32::MAX;

/// One that has had something so often without being watched has come to stay: looking up its file for good, which
/// costs about ten times of what that saves in a read, pays then.
pub const STAYS: u8 = 16;

#[derive(Debug)]
pub struct Source<T> {
    pub io: T,
    pub key: Key,
    pub account: Account,
    pub action: Action,
    /// It is cheaper to read by a call of its own than together with others, or cannot be otherwise.
    pub by_call: bool,
    /// So it is if no more than so many are due.
    pub few: u8,
    /// How often it had something while it was hot, up to [`STAYS`].
    pub hits: u8,
    /// Its place among the hot ones.
    pub place: u32,
    /// The pass that made it hot.
    pub heated_in: u32,
    pub is_due: bool,
    /// The last pass that read it.
    pub read_in: u32,
    /// A read that finds less than there was room for says nothing about more (`SOCK_SEQPACKET`).
    pub in_records: bool,
    pub is_paused: bool,
    /// It was reported to be near its end: it is read until that comes.
    pub is_ending: bool,
    /// Its end or a failure was delivered.
    pub is_over: bool,
    pub wants_room: bool,
}

impl<T> Source<T> {
    pub fn is_hot(&self) -> bool {
        self.place != NOWHERE
    }

    /// Whether it is read by a call of its own if so many are due.
    #[inline]
    pub fn is_read_by_call(&self, due: usize) -> bool {
        self.by_call || due <= usize::from(self.few)
    }

    /// Its index, if it becomes due by what was found.
    pub fn becomes_due(&mut self) -> Option<u32> {
        let due = !(self.is_due || self.is_paused || self.is_over || self.is_hot());
        self.is_due |= due;
        due.then_some(self.key.index())
    }

    /// What the poller is to watch it for.
    pub fn interest(&self) -> Interest {
        let reads = !(self.is_paused || self.is_over || self.is_hot());
        let reading = if reads { READS } else { Interest::NONE };
        if self.wants_room { reading | Interest::WRITABLE } else { reading }
    }
}
