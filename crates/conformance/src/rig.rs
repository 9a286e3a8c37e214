//! A poller on the test bench: the operations of the suite, and a place to plant a bug.
//!
//! Checks and random sequences drive a [`Rig`], which passes each call on to the poller as it is.
//! A rig with a [`Fault`] misbehaves in exactly one way. That is how the suite is itself tested:
//! for each fault there is a check that fails, and passes once the fault is gone.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use superpoll::diagnostics::Stats;
use superpoll::{
    Error, Events, Interest, Key, Mode, Owned, Poller, Readiness, Registrar, Waker, Watch,
};

mod fault;

pub use fault::{FAULTS, Fault};

/// The events that a wait of a rig delivered.
pub type Batch = Vec<(Key, Readiness)>;

/// A registration as it was requested from the rig.
#[derive(Clone, Copy, Debug)]
struct Asked {
    key: Key,
    fd: RawFd,
    watch: Watch,
}

/// A poller with at most one planted bug.
pub struct Rig {
    poller: Poller,
    fault: Fault,
    events: Events,
    woken: bool,
    asked: Vec<Asked>,
    last: Batch,
    late: VecDeque<Key>,
    ended: Vec<(Key, RawFd)>,
    once: Vec<Key>,
    moves: u64,
    fired: bool,
    catches_up: bool,
}

impl std::fmt::Debug for Rig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rig").field("poller", &self.poller).field("fault", &self.fault).finish()
    }
}

fn without(readiness: Readiness, bit: Readiness) -> Readiness {
    let named = [
        (Readiness::READABLE, libc::POLLIN),
        (Readiness::WRITABLE, libc::POLLOUT),
        (Readiness::PRIORITY, libc::POLLPRI),
        (Readiness::READ_CLOSED, libc::POLLRDHUP),
        (Readiness::HANG_UP, libc::POLLHUP),
        (Readiness::ERROR, libc::POLLERR),
    ];
    let bits = named
        .into_iter()
        .filter(|&(name, _)| readiness.contains(name) && !bit.contains(name))
        .fold(0, |bits, (_, bit)| bits | bit);
    Readiness::from_poll_bits(bits)
}

impl Rig {
    /// Creates a rig with the poller as it is, or with a fault.
    pub fn new(poller: Poller, fault: Fault) -> Rig {
        Rig {
            poller,
            fault,
            events: Events::with_limit(64),
            woken: false,
            asked: Vec::new(),
            last: Vec::new(),
            late: VecDeque::new(),
            ended: Vec::new(),
            once: Vec::new(),
            moves: 0,
            fired: false,
            catches_up: false,
        }
    }

    /// Makes the rig ask its keeper which descriptors are ready before a wait that does not
    /// block long.
    #[must_use]
    pub fn catching_up(self) -> Rig {
        Rig { catches_up: true, ..self }
    }

    /// Makes the poller itself know of everything that is ready.
    pub fn catch_up(&mut self) {
        if self.catches_up {
            self.poller.flush();
        }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn bent(&self, watch: Watch) -> Watch {
        match (self.fault, watch.mode) {
            (Fault::EdgeAsLevel, Mode::Edge)
            | (Fault::AutoAsLevel, Mode::Auto)
            | (Fault::OneShotNotDisarmed, Mode::OneShot) => watch.mode(Mode::Level),
            (Fault::ReadClosedUnasked, Mode::Level | Mode::Edge | Mode::OneShot)
                if watch.interest.contains(Interest::READABLE) =>
            {
                Watch { interest: watch.interest | Interest::READ_CLOSED, ..watch }
            }
            _ => watch,
        }
    }

    fn note(&mut self, key: Key, fd: RawFd, watch: Watch) {
        self.asked.retain(|asked| asked.fd != fd);
        self.asked.push(Asked { key, fd, watch });
    }

    fn asked(&self, key: Key) -> Option<Asked> {
        self.asked.iter().find(|asked| asked.key == key).copied()
    }

    /// [`Poller::register`].
    ///
    /// # Errors
    ///
    /// The errors of [`Poller::register`].
    pub fn register(&mut self, fd: impl AsFd, watch: impl Into<Watch>) -> superpoll::Result<Key> {
        let (number, watch) = (fd.as_fd().as_raw_fd(), watch.into());
        if self.has(Fault::DuplicateReplaces)
            && let Some(old) = self.asked.iter().find(|asked| asked.fd == number)
        {
            self.poller.deregister(old.key)?;
        }
        let key = self.poller.register(fd, self.bent(watch))?;
        self.note(key, number, watch);
        Ok(key)
    }

    /// [`Poller::register_raw`].
    ///
    /// # Errors
    ///
    /// The errors of [`Poller::register_raw`].
    pub fn register_raw(&mut self, fd: RawFd, watch: impl Into<Watch>) -> superpoll::Result<Key> {
        let watch = watch.into();
        let key = self.poller.register_raw(fd, self.bent(watch))?;
        self.note(key, fd, watch);
        Ok(key)
    }

    /// [`Poller::own`].
    ///
    /// # Errors
    ///
    /// The errors of [`Poller::own`].
    pub fn own<T: AsFd>(
        &mut self,
        io: T,
        watch: impl Into<Watch>,
    ) -> Result<Owned<T>, superpoll::Rejected<T>> {
        let (number, watch) = (io.as_fd().as_raw_fd(), watch.into());
        let owned = self.poller.own(io, self.bent(watch))?;
        self.note(owned.key(), number, watch);
        Ok(owned)
    }

    /// Drops an owned descriptor: it is detached, then closed.
    pub fn close<T: AsFd>(&mut self, owned: Owned<T>) {
        let key = owned.key();
        self.forget(key);
        if self.has(Fault::CloseNotDetaching) {
            // A poller without ownership leaves this state to the kernel: the registration is still
            // in the table, and the number means nothing, or the next file.
            let fd = owned.as_fd().as_raw_fd();
            std::mem::forget(owned);
            crate::sys::close(fd);
            return;
        }
        drop(owned);
    }

    fn forget(&mut self, key: Key) {
        if let Some(asked) = self.asked(key) {
            self.ended.push((key, asked.fd));
        }
        self.asked.retain(|asked| asked.key != key);
    }

    /// [`Poller::disown`].
    pub fn disown<T: AsFd>(&mut self, owned: Owned<T>) -> T {
        self.forget(owned.key());
        self.poller.disown(owned)
    }

    /// [`Poller::modify`].
    ///
    /// # Errors
    ///
    /// The errors of [`Poller::modify`].
    pub fn modify(&mut self, key: Key, interest: Interest) -> superpoll::Result<()> {
        match self.asked(key) {
            Some(asked) => self.modify_watch(key, Watch { interest, ..asked.watch }),
            None if self.has(Fault::StaleKeyAccepted) => Ok(()),
            None => self.poller.modify(key, interest),
        }
    }

    /// [`Poller::modify_watch`].
    ///
    /// # Errors
    ///
    /// The errors of [`Poller::modify_watch`].
    pub fn modify_watch(&mut self, key: Key, watch: impl Into<Watch>) -> superpoll::Result<()> {
        let watch = watch.into();
        let Some(asked) = self.asked(key) else {
            let stale = self.poller.modify_watch(key, watch);
            return if self.has(Fault::StaleKeyAccepted) { Ok(()) } else { stale };
        };
        match self.fault {
            Fault::ModifyIgnored => return Ok(()),
            Fault::OneShotNotRearmed if watch.mode == Mode::OneShot => return Ok(()),
            Fault::DisarmLeavesHangUp if watch.interest.is_empty() => {
                // Like a poll array that disarms with `events = 0`.
                return self.poller.modify_watch(key, Watch::new(Interest::PRIORITY));
            }
            Fault::ModifyAdds => {
                let both = Watch { interest: asked.watch.interest | watch.interest, ..watch };
                self.note(key, asked.fd, both);
                return self.poller.modify_watch(key, both);
            }
            _ => {}
        }
        self.once.retain(|&other| other != key);
        self.poller.modify_watch(key, self.bent(watch))?;
        self.note(key, asked.fd, watch);
        Ok(())
    }

    /// [`Poller::deregister`].
    ///
    /// # Errors
    ///
    /// The errors of [`Poller::deregister`].
    pub fn deregister(&mut self, key: Key) -> superpoll::Result<()> {
        let known = self.asked(key).is_some();
        self.forget(key);
        if self.has(Fault::DeleteOvertaken) && known {
            self.late.push_back(key);
            return Ok(());
        }
        let outcome = self.poller.deregister(key);
        if outcome.is_err()
            && self.has(Fault::AbsentRemovesFirst)
            && let Some(first) = self.asked.first().copied()
        {
            let _ = self.poller.deregister(first.key);
        }
        if self.has(Fault::StaleKeyAccepted) { Ok(()) } else { outcome }
    }

    /// [`Poller::mark_ready`].
    ///
    /// # Errors
    ///
    /// The errors of [`Poller::mark_ready`].
    pub fn mark_ready(&mut self, key: Key, readiness: Readiness) -> superpoll::Result<()> {
        if self.has(Fault::ToldReadyForgotten) {
            return Ok(());
        }
        self.poller.mark_ready(key, readiness)
    }

    /// [`Poller::wait`] for at most `limit` events.
    ///
    /// # Errors
    ///
    /// The errors of [`Poller::wait`].
    pub fn wait(&mut self, limit: usize, timeout: Option<Duration>) -> superpoll::Result<Batch> {
        let (asked_limit, limit, timeout) =
            (limit, self.bent_limit(limit), self.bent_time(timeout));
        if self.events.limit() != limit {
            self.events = Events::with_limit(limit);
        }
        if timeout.is_some_and(|timeout| timeout < Duration::from_secs(1)) {
            self.catch_up();
        }
        self.poller.wait(&mut self.events, timeout)?;
        self.woken = self.events.woken();
        let mut batch: Batch =
            self.events.iter().map(|event| (event.key(), event.readiness())).collect();
        if self.fault != Fault::None {
            self.bend(&mut batch, asked_limit);
        }
        Ok(batch)
    }

    fn bent_limit(&self, limit: usize) -> usize {
        match self.fault {
            Fault::LimitIgnored | Fault::UnfairOrder | Fault::CutOffLost if limit > 0 => {
                limit.max(1024)
            }
            Fault::ZeroLimitAccepted => limit.max(1),
            _ => limit,
        }
    }

    fn bent_time(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        match (self.fault, timeout) {
            (Fault::EarlyReturn, Some(timeout)) => Some(timeout / 2),
            (Fault::SpuriousReturn, Some(timeout))
                if timeout >= Duration::from_millis(1) && !self.fired =>
            {
                self.fired = true;
                Some(Duration::ZERO)
            }
            _ => timeout,
        }
    }

    fn bend_priority(&self, batch: &mut Batch) {
        for event in batch.iter_mut() {
            let asked = self.asked(event.0).map_or(Interest::NONE, |asked| asked.watch.interest);
            let for_data = asked.contains(Interest::READABLE);
            if self.has(Fault::PriorityAloneMasked) && !for_data {
                event.1 = without(event.1, Readiness::PRIORITY);
            }
            let readable = event.1.contains(Readiness::READABLE);
            if self.has(Fault::PriorityInvented) && readable && asked.contains(Interest::PRIORITY) {
                event.1 |= Readiness::PRIORITY;
            }
        }
        batch.retain(|event| !event.1.is_empty());
    }

    /// Applies the rig's fault to a batch.
    fn bend(&mut self, batch: &mut Batch, limit: usize) {
        let drop_bit = |batch: &mut Batch, bit| {
            for event in batch.iter_mut() {
                event.1 = without(event.1, bit);
            }
            batch.retain(|event| !event.1.is_empty());
        };
        match self.fault {
            Fault::ReadClosedMasked => drop_bit(batch, Readiness::READ_CLOSED),
            Fault::PriorityAloneMasked | Fault::PriorityInvented => self.bend_priority(batch),
            Fault::HangUpDropped => drop_bit(batch, Readiness::HANG_UP),
            Fault::ErrorDropped => drop_bit(batch, Readiness::ERROR),
            Fault::WritableHidden => {
                for event in batch.iter_mut().filter(|event| event.1.contains(Readiness::READABLE))
                {
                    event.1 = without(event.1, Readiness::WRITABLE);
                }
            }
            Fault::LevelAsEdge | Fault::FilesReportedOnce | Fault::EdgeOnlyOnChange => {
                self.report_once(batch);
            }
            Fault::DeafInTrouble => {
                let troubles = |key| self.once.iter().filter(|&&other| other == key).count();
                batch.retain(|event| troubles(event.0) < 3);
                let trouble = |readiness: Readiness| {
                    readiness.contains(Readiness::ERROR) || readiness.contains(Readiness::HANG_UP)
                };
                self.once
                    .extend(batch.iter().filter(|event| trouble(event.1)).map(|event| event.0));
            }
            Fault::StaleEvent => {
                let gone = self.last.iter().find(|event| self.asked(event.0).is_none());
                batch.extend(gone.copied());
            }
            Fault::GenerationIgnored => {
                for asked in &self.asked {
                    let reused = self.ended.iter().position(|&(_, fd)| fd == asked.fd);
                    let old = reused.and_then(|place| {
                        let (key, _) = self.ended.swap_remove(place);
                        self.last.iter().find(|event| event.0 == key)
                    });
                    if let Some(&(_, readiness)) = old {
                        batch.push((asked.key, readiness));
                    }
                }
            }
            Fault::DeleteOvertaken => {
                while let Some(key) = self.late.pop_front() {
                    let _ = self.poller.deregister(key);
                }
            }
            Fault::EarlyWakeForgotten if batch.is_empty() => self.woken = false,
            Fault::LostWake => self.woken = false,
            Fault::WakeRepeated => {
                let woken = self.woken;
                self.woken |= self.fired;
                self.fired = woken;
            }
            Fault::UnfairOrder => {
                batch.sort_by_key(|event| event.0);
                batch.truncate(limit);
            }
            Fault::CutOffLost => batch.truncate(limit),
            Fault::EventTwice => batch.extend_from_within(..batch.len().min(1)),
            Fault::AwayLost => {
                let moves = self.poller.stats().moves_back;
                let lost = moves.saturating_sub(self.moves).min(batch.len() as u64);
                self.moves = moves;
                batch.drain(..lost as usize);
            }
            Fault::MoveLosesEdge => {
                let stats = self.poller.stats();
                let moves = stats.moves_to_hot + stats.moves_to_cold;
                if self.moves != moves && !batch.is_empty() {
                    batch.remove(0);
                    self.moves = moves;
                }
            }
            _ => {}
        }
        self.last.retain(|event| self.ended.iter().any(|&(key, _)| key == event.0));
        self.last.extend_from_slice(batch);
    }

    /// Reports registrations that stay ready only the first time.
    fn report_once(&mut self, batch: &mut Batch) {
        let ready: Vec<Key> = batch.iter().map(|event| event.0).collect();
        let affected = |asked: &Asked| match self.fault {
            Fault::FilesReportedOnce => {
                crate::sys::is_regular(asked.fd) && asked.watch.mode == Mode::Level
            }
            Fault::EdgeOnlyOnChange => asked.watch.mode == Mode::Edge,
            _ => asked.watch.mode == Mode::Level,
        };
        let bent: Vec<Key> =
            self.asked.iter().filter(|asked| affected(asked)).map(|asked| asked.key).collect();
        batch.retain(|event| !bent.contains(&event.0) || !self.once.contains(&event.0));
        if self.fault == Fault::EdgeOnlyOnChange {
            self.once.extend(ready);
        } else {
            self.once = ready;
        }
    }

    /// Whether the last wait returned because of a wake.
    pub fn woken(&self) -> bool {
        self.woken
    }

    /// Returns the refusals of the last wait.
    pub fn refusals(&self) -> &[(Key, Error)] {
        self.events.refusals()
    }

    /// [`Poller::waker`].
    ///
    /// # Errors
    ///
    /// The errors of [`Poller::waker`].
    pub fn waker(&mut self) -> superpoll::Result<Waker> {
        self.poller.waker()
    }

    /// [`Poller::registrar`].
    ///
    /// # Errors
    ///
    /// The errors of [`Poller::registrar`].
    pub fn registrar(&mut self) -> superpoll::Result<Registrar> {
        self.poller.registrar()
    }

    /// [`Poller::nest`].
    ///
    /// # Errors
    ///
    /// The errors of [`Poller::nest`].
    pub fn nest(&mut self) -> superpoll::Result<BorrowedFd<'_>> {
        self.poller.nest()
    }

    /// [`Poller::stats`].
    pub fn stats(&self) -> Stats {
        self.poller.stats()
    }

    /// Returns the poller itself, past any fault.
    pub fn poller(&mut self) -> &mut Poller {
        &mut self.poller
    }
}
