//! One descriptor of a batch reader, and its state.

use std::os::fd::AsFd;

use crate::backend::ReadCall;
use crate::interest::Interest;
use crate::key::Key;
use crate::policy::Account;
use crate::poller::Poller;
use crate::sys::call;

/// The interest in a source that is read: the end too, because it may come with the last bytes, and
/// a read that finds less than there was room for does not show it.
const READS: Interest = Interest::READABLE.with(Interest::READ_CLOSED);

/// The interest for reading a source with these ends.
pub(super) const fn reads(ends: Ends) -> Interest {
    match ends {
        Ends::Watched => READS.with(Interest::PRIORITY),
        _ => READS,
    }
}

/// How the reader learns whether a read that finds less than there was room for has left something.
/// On a socket a read ends at an urgent byte, on a Unix socket also where descriptors came along,
/// and on a pipe at the end of a packet (`O_DIRECT`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ends {
    /// The descriptor is reported again, by a level trigger.
    ToldAgain,
    /// An urgent byte is watched for, which costs nothing. Only TCP has no other reason.
    Watched,
    /// The kernel is asked whether the next byte is an urgent one, unless it has said with the read
    /// that there is nothing more. In a ring each arrival looks like an urgent one. This is TCP,
    /// too.
    AskedMark,
    /// The kernel is asked whether there is more, for all sources of a pass with one `poll`: a call
    /// for each costs as much as its read.
    Asked,
}

impl Ends {
    pub(super) fn of(poller: &Poller, is_tcp: bool) -> Ends {
        match poller.backend() {
            "uring" if is_tcp => Ends::AskedMark,
            "uring" => Ends::Asked,
            "epoll" | "adaptive" if is_tcp => Ends::Watched,
            _ => Ends::ToldAgain,
        }
    }
}

/// No place among the hot ones.
pub(super) const NOWHERE: u32 = u32::MAX;

/// A source that has had something this often without being watched has come to stay. It then
/// pays to look up its file for good, which costs about ten times the saving in one read.
pub(super) const STAYS: u8 = 16;

#[derive(Debug)]
pub(super) struct Source<T> {
    pub io: T,
    pub key: Key,
    pub account: Account,
    /// Whether it is read by `read(2)`; sockets are received from.
    pub call: ReadCall,
    /// A read by a call of its own is cheaper than one together with more, or is the only way.
    pub by_call: bool,
    /// The same holds if no more than this many are due.
    pub few: u8,
    /// How often the source had something while it was hot, up to [`STAYS`].
    pub hits: u8,
    /// The source's place among the hot ones.
    pub place: u32,
    /// The pass that made it hot.
    pub heated_in: u32,
    pub is_due: bool,
    /// The last pass that read it.
    pub read_in: u32,
    /// A read that finds less than there was room for does not show whether there is more
    /// (`SOCK_SEQPACKET`).
    pub in_records: bool,
    /// The other reasons for such a read.
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
    /// Whether a read that found less than there was room for may have left something, as far as
    /// that is known without [asking](Ends::Asked). Without `more` the kernel has answered for TCP
    /// that nothing is left.
    pub(super) fn may_have_left(&self, more: bool) -> bool {
        match self.ends {
            Ends::ToldAgain => false,
            Ends::Watched => self.has_mark,
            Ends::AskedMark => more && call::is_at_mark(&self.io),
            Ends::Asked => false,
        }
    }
}

impl<T> Source<T> {
    pub(super) fn is_hot(&self) -> bool {
        self.place != NOWHERE
    }

    /// Whether the source is read by a call of its own if this many are due.
    #[inline]
    pub(super) fn is_read_by_call(&self, due: usize) -> bool {
        self.by_call || due <= usize::from(self.few)
    }

    /// Returns the source's index if the readiness that was found makes it due.
    pub(super) fn becomes_due(&mut self) -> Option<u32> {
        let due = !(self.is_due || self.is_paused || self.is_over || self.is_hot());
        self.is_due |= due;
        due.then_some(self.key.index())
    }

    /// The interest with which the poller should watch it.
    pub(super) fn interest(&self) -> Interest {
        let reads = !(self.is_paused || self.is_over || self.is_hot());
        let reading = if reads { self::reads(self.ends) } else { Interest::NONE };
        if self.wants_room { reading | Interest::WRITABLE } else { reading }
    }
}
