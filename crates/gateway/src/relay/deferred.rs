//! Pairs whose sockets are not watched yet.
//!
//! To watch the two sockets of a pair costs two calls and, for each event, a part of the poller's
//! work. A pair that is one request and one response is over soon, and on a busy engine its wait is
//! shorter than a turn. So a waiting pair is put on a list. Once a turn, after the poller
//! was asked, one `poll(2)` looks at all sockets of the list. The pairs that can continue do so,
//! and each knows which of its sides are readable or have ended. All other pairs stay on the list.
//! A pair leaves the list and is watched
//!
//! - when the engine has nothing else to do, because an engine that has pairs on its list does not
//!   sleep;
//! - after a number of looks that cost as much as watching does. So a pair that turns out to be
//!   idle has cost at most twice the better choice.
//!
//! [`Deferral`] decides whether a pair gets on the list at all.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::rc::Rc;
use std::task::Waker;

use slab::Slab;
use superpoll_http::sys;
use superpoll_rt::{next_turn, spawn};

use super::calls::{Call, count};
use super::deferral::{After, Deferral};

/// The number of looks that a pair gets before it is watched: a look at two sockets costs about a
/// twelfth of adding them to epoll.
const LOOKS: u8 = 12;

/// The number of pairs from which on a look pays: it takes a wait that does not block, and a call
/// of its own, and a pair needs two or three looks. Watching a pair takes two calls.
const COMPANY: usize = 4;

/// The state of a socket that was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Seen {
    /// A read does not block.
    pub readable: bool,
    /// All bytes that will ever come are there to read, up to the end of the stream; see
    /// [`AsyncFd::has_eof`](superpoll_rt::AsyncFd::has_eof).
    pub has_eof: bool,
}

impl Seen {
    /// Interprets the kernel's answer.
    fn from_poll(reported: i16) -> Seen {
        let excluding = libc::POLLHUP | libc::POLLERR | libc::POLLPRI | libc::POLLNVAL;
        Seen {
            readable: reported != 0,
            has_eof: reported & libc::POLLRDHUP != 0 && reported & excluding == 0,
        }
    }
}

/// How a pair continues that was on the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The client and the upstream were found in these states, at least one of them readable.
    Seen([Seen; 2]),
    /// The pair watches its sockets from now on.
    Watch,
}

/// A pair on the list.
struct Entry {
    /// The client and the upstream; none where the direction from there has ended.
    sockets: [Option<RawFd>; 2],
    after: After,
    looks: u8,
    waker: Waker,
    outcome: Option<Outcome>,
}

/// The pairs of an engine that are not watched yet.
#[derive(Default)]
pub(super) struct DeferredPairs {
    entries: RefCell<Slab<Entry>>,
    /// The request to the kernel, kept for its room.
    request: RefCell<Vec<libc::pollfd>>,
    deferral: Deferral,
    /// Turns of pairs that have moved bytes, or come to an end.
    progress: Cell<u64>,
    /// The progress at the last look, or when the last pair was put on the list.
    seen: Cell<u64>,
    is_looking: Cell<bool>,
}

impl DeferredPairs {
    /// Notes that a pair had something to do.
    pub(super) fn note_progress(&self) {
        self.progress.set(self.progress.get() + 1);
    }

    /// Puts a pair on the list, where the first socket is the client's. `looks` are those that it
    /// had before. Returns `None` if the pair should rather be watched now.
    ///
    /// A pair has to drop its entry when it closes its sockets.
    pub(super) fn add(
        self: &Rc<Self>,
        sockets: [Option<BorrowedFd<'_>>; 2],
        after: After,
        looks: u8,
        waker: &Waker,
    ) -> Option<DeferredEntry> {
        if looks >= LOOKS || !self.deferral.admits(after) {
            return None;
        }
        let sockets = sockets.map(|socket| socket.map(|socket| socket.as_raw_fd()));
        let entry = Entry { sockets, after, looks, waker: waker.clone(), outcome: None };
        let key = self.entries.borrow_mut().insert(entry);
        self.seen.set(self.progress.get());
        if !self.is_looking.replace(true) {
            spawn(look_each_turn(self.clone())).detach();
        }
        Some(DeferredEntry { pairs: self.clone(), key })
    }

    /// Looks at all sockets of the list. Returns whether pairs are left that wait.
    fn look(&self) -> bool {
        let mut entries = self.entries.borrow_mut();
        let mut request = self.request.borrow_mut();
        request.clear();
        for (_, entry) in entries.iter().filter(|(_, entry)| entry.outcome.is_none()) {
            // A negative number is passed over.
            request.extend(entry.sockets.map(|socket| libc::pollfd {
                fd: socket.unwrap_or(-1),
                events: libc::POLLIN | libc::POLLRDHUP | libc::POLLPRI,
                revents: 0,
            }));
        }
        if request.is_empty() {
            return false;
        }
        count(Call::Poll);
        let failed = sys::poll_now(&mut request).is_err();
        let is_idle = self.progress.get() == self.seen.replace(self.progress.get());
        let pays = request.len() / 2 >= COMPANY;
        let mut found = request.chunks_exact(2);
        let (mut left, mut any) = (false, false);
        for (_, entry) in entries.iter_mut().filter(|(_, entry)| entry.outcome.is_none()) {
            let Some([client, upstream]) = found.next() else { break };
            entry.looks += 1;
            let seen = [client, upstream].map(|socket| Seen::from_poll(socket.revents));
            if !failed && seen.iter().any(|seen| seen.readable) {
                entry.outcome = Some(Outcome::Seen(seen));
                any = true;
            } else if failed || entry.looks >= LOOKS {
                entry.outcome = Some(Outcome::Watch);
            } else {
                left = true;
                continue;
            }
            self.deferral.record(entry.after, pays && entry.outcome != Some(Outcome::Watch));
            entry.waker.wake_by_ref();
        }
        if is_idle && !any {
            for (_, entry) in entries.iter_mut().filter(|(_, entry)| entry.outcome.is_none()) {
                entry.outcome = Some(Outcome::Watch);
                self.deferral.record(entry.after, false);
                entry.waker.wake_by_ref();
            }
            left = false;
        }
        left
    }
}

/// The place of a pair on the list, until it is dropped.
pub(super) struct DeferredEntry {
    pairs: Rc<DeferredPairs>,
    key: usize,
}

impl DeferredEntry {
    /// Returns how the pair continues, and how often it was looked at; `None` while it has to wait.
    pub(super) fn outcome(&self) -> Option<(Outcome, u8)> {
        let entries = self.pairs.entries.borrow();
        let Entry { outcome, looks, .. } = entries.get(self.key)?;
        Some(((*outcome)?, *looks))
    }
}

impl Drop for DeferredEntry {
    fn drop(&mut self) {
        let removed = self.pairs.entries.borrow_mut().try_remove(self.key);
        if let Some(Entry { outcome: None, after, .. }) = removed {
            self.pairs.deferral.record(after, false);
        }
    }
}

/// Looks at the list in each turn until no pair is left on it.
async fn look_each_turn(pairs: Rc<DeferredPairs>) {
    loop {
        next_turn().await;
        if !pairs.look() {
            pairs.is_looking.set(false);
            return;
        }
    }
}
