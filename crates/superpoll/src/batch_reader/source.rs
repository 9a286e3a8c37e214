//! One descriptor of a batch reader, and what is known of it.

use std::os::fd::AsFd;

use crate::interest::Interest;
use crate::key::Key;
use crate::operation::Action;
use crate::policy::Account;
use crate::poller::Poller;
use crate::sys::{call, descriptor};

/// What is watched for reading: the end too, because it may come with the last bytes, and a read that finds less
/// than there was room for does not show it.
const READS: Interest = Interest::READABLE.with(Interest::READ_CLOSED);

/// What is watched for reading a source.
pub const fn reads(ends: Ends) -> Interest {
    match ends {
        Ends::Watched => READS.with(Interest::PRIORITY),
        _ => READS,
    }
}

/// How it is known whether a read that finds less than there was room for has left something: of a socket it ends at an
/// urgent byte, of a Unix socket where descriptors came along too, and of a pipe at the end of a packet (`O_DIRECT`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ends {
    /// It is reported again, by a level trigger.
    ToldAgain,
    /// An urgent byte is watched for, which costs nothing. Only TCP has no other reason.
    Watched,
    /// The kernel is asked whether the next byte is an urgent one, unless it has said with the read that there is nothing
    /// more. In a ring each arrival looks like an urgent one. This is TCP, too.
    AskedMark,
    /// The kernel is asked how much there is.
    Asked,
}

impl Ends {
    pub fn of(poller: &Poller, is_tcp: bool) -> Ends {
        match poller.backend() {
            "uring" if is_tcp => Ends::AskedMark,
            "uring" => Ends::Asked,
            "epoll" | "adaptive" if is_tcp => Ends::Watched,
            _ => Ends::ToldAgain,
        }
    }
}

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
    /// What else such a read may mean.
    pub ends: Ends,
    /// An urgent byte was reported, and no read has found nothing since.
    pub has_mark: bool,
    pub is_paused: bool,
    /// It was reported to be near its end: it is read until that comes.
    pub is_ending: bool,
    /// Its end or a failure was delivered.
    pub is_over: bool,
    pub wants_room: bool,
}

impl<T: AsFd> Source<T> {
    /// Whether a read that found less than there was room for may have left something. Without `more` the kernel says
    /// of TCP that it has not.
    pub fn may_have_left(&self, more: bool) -> bool {
        match self.ends {
            Ends::ToldAgain => false,
            Ends::Watched => self.has_mark,
            Ends::AskedMark => more && call::is_at_mark(&self.io),
            Ends::Asked => descriptor::unread(self.io.as_fd()) > 0,
        }
    }
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
        let reading = if reads { self::reads(self.ends) } else { Interest::NONE };
        if self.wants_room { reading | Interest::WRITABLE } else { reading }
    }
}
