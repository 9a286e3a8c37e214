//! A wait of the batch reader: reads before it, reads after it.
//!
//! A wait goes in passes: one pass if something came, more otherwise. A pass reads the sources that
//! the last pass left due and the hot ones. Then it asks the poller, which carries out the queued
//! reads, and reads the sources that the poller has reported. In a pass each source is read at most
//! once.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use super::BatchReader;
use super::arrivals::{Arrival, Arrivals, Outcome};
use super::source::{Ends, NOWHERE, STAYS};
use super::speculation::Speculation;
use crate::backend::{BatchedRead, Deadline, ReadCall};
use crate::error::{Error, Result};
use crate::event::Readiness;
use crate::key::Key;
use crate::sys::poll::{self, Slot};
use crate::sys::{call, descriptor, forks};

/// The most buffers that are kept for later reads.
const KEPT: usize = 1024;

impl<T: AsFd> BatchReader<T> {
    /// Waits until something has arrived, a waker is used, or the timeout is over (`None`: no
    /// timeout), and replaces the contents of `arrivals`, with bytes of each descriptor at most
    /// once. Returns how many arrivals there are: zero only after the timeout, a wake
    /// ([`Arrivals::woken`]) or a refusal ([`Arrivals::refusals`]).
    ///
    /// # Errors
    ///
    /// [`Error::ZeroLimit`], or [`Error::System`] if the system call fails; sources that were not
    /// read are read later.
    pub fn wait(&mut self, arrivals: &mut Arrivals, timeout: Option<Duration>) -> Result<usize> {
        self.empty(arrivals);
        if arrivals.limit == 0 {
            return Err(Error::ZeroLimit);
        }
        if self.forks != forks::count() {
            return Err(Error::system("waiting", None, forks::error()));
        }
        self.events.set_limit(arrivals.limit);
        let deadline = Deadline::after(timeout);
        loop {
            self.passes = self.passes.wrapping_add(1);
            let reported = self.roomy.len().min(arrivals.limit);
            let writable = |key| Arrival { key, outcome: Outcome::Writable };
            arrivals.list.extend(self.roomy.drain(..reported).map(writable));
            let reads = self.begin_reads(arrivals);
            let blocks = !reads && arrivals.list.is_empty() && self.due.is_empty();
            let timeout = if blocks { deadline.left() } else { Some(Duration::ZERO) };
            let outcome = self.poller.wait(&mut self.events, timeout);
            self.end_reads(arrivals);
            match outcome {
                Ok(_) => self.take_events(arrivals),
                // Bytes that were read before the failure are not lost with it.
                Err(_) if !arrivals.list.is_empty() => {}
                Err(error) => return Err(error),
            }
            if !self.due.is_empty() {
                self.read_reported(arrivals);
            }
            if !self.doubted.is_empty() {
                self.ask_for_rest();
            }
            self.review();
            if !arrivals.list.is_empty() || arrivals.woken || !arrivals.refusals.is_empty() {
                return Ok(arrivals.list.len());
            }
            if !(self.due.is_empty() && self.roomy.is_empty()) {
                continue;
            }
            if deadline.is_over() {
                return Ok(0);
            }
            self.cool_all();
        }
    }

    /// Gives the memory of the last arrivals back to the pool.
    fn empty(&mut self, arrivals: &mut Arrivals) {
        for arrival in arrivals.list.drain(..) {
            if let Outcome::Bytes(buffer) = arrival.outcome {
                recycle(&mut self.pool, self.size, buffer);
            }
        }
        arrivals.refusals.clear();
        arrivals.woken = false;
    }

    /// Makes or queues the reads that are due before this wait, and those of hot sources. Returns
    /// whether there were any.
    fn begin_reads(&mut self, arrivals: &mut Arrivals) -> bool {
        let room = arrivals.limit - arrivals.list.len();
        let hot = self.hot();
        let (half, due) = (room / 2, self.due.len());
        self.turn = !self.turn;
        // An odd place goes to the due and the hot sources in turn.
        let half = half + usize::from(self.turn) * (room - 2 * half);
        let for_hot =
            if hot + due <= room { hot } else { half.max(room.saturating_sub(due)).min(hot) };
        let for_due = (room - for_hot).min(due);
        self.read_due(arrivals, for_due);
        if for_hot == hot && self.speculation.as_ref().is_some_and(Speculation::looks) {
            self.read_found(arrivals);
        } else {
            for _ in 0..for_hot {
                if let Some(index) = self.speculation.as_mut().and_then(Speculation::next) {
                    self.read_hot(arrivals, index);
                }
            }
        }
        for_due + for_hot > 0
    }

    /// Makes or queues the reads of those hot sources that have something.
    fn read_found(&mut self, arrivals: &mut Arrivals) {
        let Some(speculation) = &mut self.speculation else { return };
        let mut found = std::mem::take(&mut self.found);
        speculation.look_at_all(self.poller.calls(), &mut found);
        for index in found.drain(..) {
            self.read_hot(arrivals, index);
        }
        self.found = found;
    }

    /// Makes or queues the read of a hot source, unless the source has a turn of its own.
    #[inline]
    fn read_hot(&mut self, arrivals: &mut Arrivals, index: u32) {
        if !self.had_its_turn(index) && !self.is_due(index) {
            self.read(arrivals, index, usize::MAX);
        }
    }

    /// How many sources are read without being watched.
    fn hot(&self) -> usize {
        self.speculation.as_ref().map_or(0, Speculation::len)
    }

    /// Reads the sources that this wait has reported, unless they can be left for the next wait,
    /// whose call is made anyway. With hot sources they cannot be left: the hot ones would be read
    /// once more, too early.
    fn read_reported(&mut self, arrivals: &mut Arrivals) {
        let due = self.due.len();
        let first = self.due.front().and_then(|&index| self.sources[index as usize].as_ref());
        let together = first.is_some_and(|source| !source.is_read_by_call(due));
        if together && self.hot() == 0 && !arrivals.list.is_empty() {
            return;
        }
        let room = arrivals.limit - arrivals.list.len();
        let queued = self.read_due(arrivals, room.min(self.due.len()));
        if queued {
            // A failure comes again with the next wait. Bytes that were read before it are not
            // lost.
            let outcome = self.poller.wait(&mut self.events, Some(Duration::ZERO));
            self.end_reads(arrivals);
            if outcome.is_ok() {
                self.take_events(arrivals);
            }
        }
    }

    /// Makes or queues this many of the reads that are due. Returns whether some were queued.
    fn read_due(&mut self, arrivals: &mut Arrivals, most: usize) -> bool {
        let due = self.due.len();
        let mut queued = false;
        for _ in 0..most {
            if let Some(index) = self.due.pop_front() {
                if self.had_its_turn(index) {
                    self.due.push_back(index);
                } else {
                    queued |= self.read(arrivals, index, due);
                }
            }
        }
        queued
    }

    /// Whether a source was read in this pass.
    fn had_its_turn(&self, index: u32) -> bool {
        self.sources[index as usize].as_ref().is_some_and(|source| source.read_in == self.passes)
    }

    /// Whether a source is read in the order of reports, like a source that was reported just
    /// before it became hot.
    fn is_due(&self, index: u32) -> bool {
        self.sources[index as usize].as_ref().is_some_and(|source| source.is_due)
    }

    /// Reads a source, one of this many that are due, by a call of its own or with the next wait.
    /// Returns whether the read waits for the next wait.
    #[inline]
    fn read(&mut self, arrivals: &mut Arrivals, index: u32, due: usize) -> bool {
        let Some(Some(source)) = self.sources.get_mut(index as usize) else { return false };
        source.is_due = false;
        source.read_in = self.passes;
        let mut buffer = self.pool.pop().unwrap_or_else(|| Vec::with_capacity(self.size));
        let (key, call) = (source.key, source.call);
        if !source.is_read_by_call(due)
            && let Some(reads) = self.poller.batch_reads()
        {
            reads.start(key, source.io.as_fd().as_raw_fd(), call, buffer);
            return true;
        }
        let outcome = match call {
            ReadCall::Read => call::read_to_vec(&source.io, &mut buffer),
            ReadCall::Receive => call::receive_to_vec(&source.io, &mut buffer),
        };
        // The call does not tell whether there is more.
        self.was_read(arrivals, key, buffer, outcome, true);
        false
    }

    /// Takes the results of the queued reads.
    fn end_reads(&mut self, arrivals: &mut Arrivals) {
        if self.events.reads.is_empty() {
            return;
        }
        let mut list = std::mem::take(&mut self.events.reads);
        arrivals.list.reserve(list.len());
        for BatchedRead { key, outcome, room, more } in list.drain(..) {
            self.was_read(arrivals, key, room, outcome, more);
        }
        self.events.reads = list;
    }

    /// Takes the result of a read.
    #[inline]
    fn was_read(
        &mut self,
        arrivals: &mut Arrivals,
        key: Key,
        buffer: Vec<u8>,
        outcome: io::Result<usize>,
        more: bool,
    ) {
        let count = match outcome {
            Ok(count) if count > 0 => count,
            outcome => return self.found_no_bytes(arrivals, key, buffer, outcome),
        };
        let len = self.len;
        let Some(Some(source)) = self.sources.get_mut(key.index() as usize) else { return };
        if source.key != key {
            return;
        }
        if source.is_hot()
            && let Some(speculation) = &mut self.speculation
        {
            speculation.was_hit(&mut source.account, len);
            if source.hits < STAYS {
                source.hits += 1;
                if source.hits == STAYS && !source.by_call {
                    self.stays(key.index());
                }
            }
        } else if count == buffer.capacity()
            || source.in_records
            || source.is_ending
            || source.may_have_left(more)
        {
            self.due.extend(source.becomes_due());
        } else if source.ends == Ends::Asked {
            self.doubted.push(key.index());
        }
        arrivals.list.push(Arrival { key, outcome: Outcome::Bytes(buffer) });
    }

    /// Asks the kernel which of the sources that gave less than there was room for have more. If
    /// the call fails all of them are read again.
    fn ask_for_rest(&mut self) {
        self.probe.clear();
        for &index in &self.doubted {
            let source = self.sources[index as usize].as_ref();
            let fd = source.map_or(-1, |source| source.io.as_fd().as_raw_fd());
            self.probe.push(Slot { fd, events: libc::POLLIN, revents: 0 });
        }
        let calls = self.poller.calls();
        let failed = poll::wait(calls, &mut self.probe, Deadline::Now.left()).is_err();
        for (index, slot) in self.doubted.drain(..).zip(&self.probe) {
            if (failed || slot.revents != 0)
                && let Some(Some(source)) = self.sources.get_mut(index as usize)
            {
                self.due.extend(source.becomes_due());
            }
        }
    }

    /// Notes that a source is read in most waits, and will be.
    #[cold]
    pub(super) fn stays(&mut self, index: u32) {
        if let (Some(Some(source)), Some(reads)) =
            (self.sources.get(index as usize), self.poller.batch_reads())
        {
            reads.keep_file(index, source.io.as_fd().as_raw_fd());
        }
    }

    /// Takes the result of a read that brought no bytes: nothing, an empty record, the end, or a
    /// failure.
    fn found_no_bytes(
        &mut self,
        arrivals: &mut Arrivals,
        key: Key,
        buffer: Vec<u8>,
        outcome: io::Result<usize>,
    ) {
        recycle(&mut self.pool, self.size, buffer);
        let Ok(source) = self.source_mut(key) else { return };
        let outcome = match outcome {
            Ok(_) if source.in_records && !descriptor::has_ended(source.io.as_fd()) => {
                let due = source.becomes_due();
                self.due.extend(due);
                return;
            }
            Ok(_) => Outcome::End,
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => {
                    source.has_mark = false;
                    return;
                }
                // It was not carried out: a signal, or the ring was another thread's.
                Some(libc::EINTR | libc::ECANCELED) => {
                    let due = source.becomes_due();
                    self.due.extend(due);
                    return;
                }
                _ => Outcome::Failed(error),
            },
        };
        source.is_over = true;
        arrivals.list.push(Arrival { key, outcome });
        self.cool(key.index(), false);
        self.watch(key.index());
    }

    /// Takes the poller's events.
    fn take_events(&mut self, arrivals: &mut Arrivals) {
        arrivals.woken |= self.events.woken();
        if !self.events.refusals().is_empty() {
            self.take_refusals(arrivals);
        }
        for place in 0..self.events.len() {
            let Some(&event) = self.events.iter().as_slice().get(place) else { return };
            let index = event.key().index();
            let len = self.len;
            let Some(Some(source)) = self.sources.get_mut(index as usize) else { continue };
            let mut heats = false;
            let readable = event.readiness() != Readiness::WRITABLE;
            source.has_mark |= event.is_priority();
            source.is_ending |= event.is_read_closed() || event.is_hang_up() || event.is_error();
            if readable && let Some(index) = source.becomes_due() {
                self.due.push_back(index);
                heats = self
                    .speculation
                    .as_mut()
                    .is_some_and(|speculation| speculation.was_reported(&mut source.account, len));
            }
            if source.wants_room && (event.is_writable() || event.is_error() || event.is_hang_up())
            {
                source.wants_room = false;
                self.roomy.push(event.key());
                self.watch(index);
            }
            if heats {
                self.heat(index);
            }
        }
    }

    /// Puts a descriptor aside that the kernel would not watch: the poller may give its index to
    /// another registration.
    #[cold]
    fn take_refusals(&mut self, arrivals: &mut Arrivals) {
        for (key, error) in self.events.take_refusals() {
            if let Some(source) = self.take(key) {
                self.refused.push((key, source.io));
            }
            arrivals.refusals.push((key, error));
        }
    }

    /// Sets the poller's interest in a source to the present one.
    pub(super) fn watch(&mut self, index: u32) {
        if let Some(Some(source)) = self.sources.get(index as usize) {
            let interest = source.interest();
            // A refused source is known here only.
            let _ = self.poller.modify(source.key, interest);
        }
    }

    /// Reads a source without watching it from now on.
    fn heat(&mut self, index: u32) {
        let len = self.len;
        let (Some(Some(source)), Some(speculation)) =
            (self.sources.get_mut(index as usize), &mut self.speculation)
        else {
            return;
        };
        let fd = source.io.as_fd().as_raw_fd();
        source.place = speculation.enter(index, fd, &mut source.account, len);
        source.heated_in = self.passes;
        self.watch(index);
    }

    /// Watches a source from now on, if it was not watched. The kernel looks at it again, unless
    /// the kernel has not learnt yet that the source was to rest: then nothing would report the
    /// bytes left in it, and it is read once more.
    pub(super) fn cool(&mut self, index: u32, quiet: bool) {
        let (Some(Some(source)), Some(speculation)) =
            (self.sources.get_mut(index as usize), &mut self.speculation)
        else {
            return;
        };
        if !source.is_hot() {
            return;
        }
        let place = std::mem::replace(&mut source.place, NOWHERE);
        let successor = speculation.leave(place, &mut source.account, quiet);
        if let Some(successor) = successor
            && let Some(Some(source)) = self.sources.get_mut(successor as usize)
        {
            source.place = place;
        }
        let passes = self.passes;
        if let Some(Some(source)) = self.sources.get_mut(index as usize)
            && source.heated_in == passes
        {
            self.due.extend(source.becomes_due());
        }
        self.watch(index);
    }

    /// Watches all hot sources before a wait that blocks: nothing wakes it for sources that are not
    /// watched.
    fn cool_all(&mut self) {
        while let Some(index) = self.speculation.as_ref().and_then(Speculation::last) {
            self.cool(index, true);
        }
    }

    /// Considers some of the hot sources, in turn.
    fn review(&mut self) {
        let len = self.len;
        let Some(speculation) = &mut self.speculation else { return };
        for _ in 0..speculation.pass(len) {
            let Some(speculation) = &mut self.speculation else { return };
            let Some(index) = speculation.candidate() else { return };
            let Some(Some(source)) = self.sources.get_mut(index as usize) else { return };
            if speculation.has_lost(&mut source.account, len) {
                self.cool(index, false);
            }
        }
    }
}

/// Keeps memory for later reads, if it is of the pool's size and the pool is not full.
fn recycle(pool: &mut Vec<Vec<u8>>, size: usize, buffer: Vec<u8>) {
    if buffer.capacity() == size && pool.len() < KEPT {
        pool.push(buffer);
    }
}
