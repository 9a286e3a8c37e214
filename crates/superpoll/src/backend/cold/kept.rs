//! An epoll set of the poller's own, and a keeper for the registrations that have been idle in
//! it.
//!
//! After each wait a *hand* goes over a part of the table, so that it has been round once in a
//! quarter of the idle time, and picks the registrations that have been idle for long enough. They
//! leave together: the poller first tells the keeper, then deletes each from its own set and
//! marks its slot *away*. In between both watch it, so nothing is lost. Only registrations that
//! this wait has examined leave. So a poller that has caught up with its keeper
//! ([`KeeperClient::catch_up`]) sees with its next wait everything
//! that was ready. After a wait that a limit has cut off, no registration leaves, because the ready
//! ones that the wait did not report would lose their turn.
//!
//! The keeper's link is in the poller's own set. When the keeper reports a registration as *ready*,
//! the poller adds it to the set again, and the kernel looks at its state. Whether there is an
//! event, and how a one-shot registration continues, is the kernel's decision as ever, and the same
//! wait delivers it. So only registrations that may be reported by their state leave:
//! level-triggered ones, one-shot ones that are armed, and those that leave the choice of trigger
//! to the poller. An edge that was reported already would be reported again on the way back.
//!
//! Only descriptors leave that report the same to every process that waits for them: sockets,
//! pipes, event counters and timers. A signalfd looks at the signals of the thread that asks, and
//! would be silent for good in a keeper's epoll set.
//!
//! A change of a registration that is away, or its end, calls it back without a question: the
//! poller tells the keeper to forget it, with the next wait or
//! [`flush_recalls`](KeeperClient::flush_recalls). For the rest it is as if the kernel had never
//! known it. Messages that the keeper has sent about it meanwhile carry the number of a stay that
//! is over, and are dropped.
//!
//! A loop that sleeps wakes up for the hand as long as some registration may leave one day.
//!
//! When the link ends, everything that is away comes back at once, and the poller continues as
//! without a keeper.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use superpoll_keeper::{FULL, KeeperLink, Request, STATE};

use super::eviction::{Eviction, ticks};
use super::states::States;
use super::tuning::Tuning;
use super::{Change, Cold};
use crate::backend::{
    Context, Deadline, Epoll, KeeperClient, KeeperStatus, Memory, Status, Synced,
};
use crate::error::Result;
use crate::event::Readiness;
use crate::interest::Mode;
use crate::key::Key;
use crate::sys;

mod messages;
#[cfg(test)]
mod tests;

/// For how long a keeper may leave its link full, or a question unanswered, before it counts as
/// lost.
const PATIENCE: Duration = Duration::from_secs(1);

/// The number of slots that the hand looks at after a wait.
const LOOKS: u32 = 4096;

/// The most packets that one wait takes from the link: more than a link holds.
const PACKETS: usize = 1024;

/// A list that was longer than this frees its memory.
const SHRINK_ABOVE: usize = 1024;

/// The shortest time between two rounds of the hand while the loop sleeps.
const SHORTEST: Duration = Duration::from_millis(1);

/// How a keeper is run.
pub(crate) trait KeeperHandle: Send {
    /// Whether the keeper is another process, which needs to be given the files.
    const TAKES_FILES: bool;

    /// Waits for its end. The link has ended.
    fn join(&mut self);

    /// Lets go of a keeper that belongs to another process, whose child this process is.
    fn detach(&mut self);
}

/// A cold set with a keeper behind it.
#[derive(Debug)]
pub(crate) struct Kept<S: KeeperHandle> {
    epoll: Epoll,
    keeper: S,
    link: Option<KeeperLink>,
    lost: Option<io::Error>,
    eviction: Eviction,
    idle: Duration,
    batch: usize,
    only_with_state: bool,
    away: usize,
    began: Instant,
    /// The process that owns the set: a child of a fork has a copy, but neither the thread nor a
    /// link of its own.
    process: u32,
    /// When the hand begins its next round; `None` as long as no registration may leave.
    due: Option<Instant>,
    /// Where the hand is; zero between two rounds.
    hand: u32,
    /// Whether the next round has any candidate.
    has_more: bool,
    candidates: Vec<u32>,
    /// Stays that are over and that the keeper must still be told to end.
    recalled: Vec<u64>,
    states: States,
    packet: Vec<u8>,
    buffer: Vec<u8>,
    /// the number of `Sync` requests that were sent.
    syncs_sent: u64,
    /// Whether one more `Sync` is due, because the keeper was given states.
    needs_sync: bool,
    /// Whether the keeper may still hold descriptors that are back here: it lets go of one
    /// after it has reported the descriptor as ready, and when it learns that a stay is over.
    may_hold: bool,
}

impl<S: KeeperHandle> Kept<S> {
    pub(crate) fn new(keeper: S, link: KeeperLink, tuning: Tuning) -> Result<Kept<S>> {
        let mut epoll = Epoll::new()?;
        epoll.watch_link(link.as_fd(), Mode::Level)?;
        Ok(Kept {
            epoll,
            keeper,
            link: Some(link),
            lost: None,
            eviction: Eviction::new(tuning.idle, tuning.rule),
            idle: tuning.idle,
            batch: tuning.batch.clamp(1, FULL),
            only_with_state: tuning.only_with_state,
            away: 0,
            began: Instant::now(),
            process: std::process::id(),
            due: None,
            hand: 0,
            has_more: false,
            candidates: Vec::new(),
            recalled: Vec::new(),
            states: States::default(),
            packet: Vec::new(),
            buffer: Vec::new(),
            syncs_sent: 0,
            needs_sync: false,
            may_hold: false,
        })
    }

    fn set_time(&mut self) -> Instant {
        let now = Instant::now();
        self.eviction.set_time(ticks(now.duration_since(self.began)));
        now
    }

    /// A registration is in the poller's own set, and something about it is new.
    fn note_arrival(&mut self, cx: &Context<'_>, index: u32) {
        if self.link.is_none() {
            return;
        }
        // The last wait may be long ago.
        let now = self.set_time();
        if self.due.is_none() {
            self.due = Some(self.next_round(now));
        }
        self.eviction.touch(index, cx.table.key(index).generation(), false);
    }

    /// Notes that some registration may leave one day.
    fn schedule_round(&mut self) {
        if self.due.is_none() {
            let now = self.set_time();
            self.due = Some(self.next_round(now));
        }
    }

    fn next_round(&self, now: Instant) -> Instant {
        let period = self.idle / 4;
        if self.idle.is_zero() { now } else { now + period.max(SHORTEST) }
    }

    /// Whether a registration may be given away at all.
    fn may_move(&self, cx: &Context<'_>, index: u32) -> bool {
        let slot = cx.table.slot(index);
        let watch = slot.watch();
        let applied = slot.applied();
        slot.is_live()
            && !watch.interest.is_empty()
            && matches!(watch.mode, Mode::Level | Mode::Auto | Mode::OneShot)
            && applied.is_some_and(|(interest, mode)| {
                // A direction that is disabled lazily is not even asked for there.
                interest.contains(watch.interest)
                    && (mode == watch.mode || watch.mode == Mode::Auto)
            })
            && slot.place().is_none()
            && !slot.is_in_motion()
            && !self.eviction.is_pinned(index)
            && (!self.only_with_state || self.states.get(index).is_some())
    }

    /// Whether a registration may be given away because it is idle. A keeper reports an error or a
    /// hang-up that lasts as soon as it has the descriptor.
    fn may_leave(&self, cx: &Context<'_>, index: u32) -> bool {
        self.may_move(cx, index) && !cx.table.slot(index).is_in_lasting_trouble()
    }

    /// Whether the descriptor is of a kind that a keeper sees as this thread would. Checked
    /// when a registration leaves for the first time.
    fn is_eligible(&mut self, cx: &mut Context<'_>, index: u32) -> bool {
        if self.eviction.is_eligible(index) {
            return true;
        }
        let fd = cx.table.slot(index).fd();
        let is_eligible = sys::descriptor::waits_alike_everywhere(&mut cx.stats.calls, fd);
        if is_eligible {
            self.eviction.set_eligible(index);
        } else {
            self.eviction.pin(index);
        }
        is_eligible
    }

    /// Examines a part of the table, and gives the registrations away that are due.
    fn advance_hand(&mut self, cx: &mut Context<'_>) {
        let Some(due) = self.due else { return };
        let now = self.set_time();
        if self.hand == 0 {
            if now < due && !self.idle.is_zero() {
                return;
            }
            self.eviction.end_period();
            // Candidates that waited for more to join them have waited for long enough.
            self.move_candidates(cx, None);
            self.has_more = false;
        }
        if self.link.is_none() {
            return;
        }
        let slots = cx.table.slots();
        let end = self.hand.saturating_add(LOOKS).min(slots);
        while self.hand < end && self.candidates.len() < FULL {
            let index = self.hand;
            self.hand += 1;
            if !self.may_leave(cx, index) {
                // A registration that waits for its turn may leave after it.
                self.has_more |= cx.table.slot(index).is_queued();
                continue;
            }
            if self.eviction.is_due(index) {
                self.candidates.push(index);
            } else {
                self.has_more = true;
            }
        }
        if self.candidates.len() >= self.batch {
            self.move_candidates(cx, None);
            if self.link.is_none() {
                return;
            }
        }
        if self.hand < slots {
            // The round continues with the next wait, which must not sleep before that.
            self.due = Some(now);
            return;
        }
        self.hand = 0;
        self.has_more |= !self.candidates.is_empty();
        self.due = self.has_more.then(|| {
            let next = self.next_round(now);
            next.max(now + SHORTEST)
        });
    }

    /// Gives the candidates away; with a time, waits for room until then.
    fn move_candidates(&mut self, cx: &mut Context<'_>, until: Option<Instant>) {
        let mut all = std::mem::take(&mut self.candidates);
        if until.is_none() {
            all.retain(|&index| self.may_leave(cx, index) && self.eviction.is_due(index));
        }
        all.retain(|&index| self.is_eligible(cx, index));
        // The keeper must know which stays are over before their numbers may come again.
        let mut left = 0;
        while left < all.len() && self.send_recalls(cx, until) {
            match self.send_batch(cx, &all[left..], until) {
                Some(sent) => left += sent,
                None => break,
            }
        }
        // A file that another thread put under a registered number in that moment is recalled at
        // once.
        if self.link.is_some() {
            self.send_recalls(cx, until);
        }
        self.has_more |= left < all.len();
        all.clear();
        all.shrink_to(SHRINK_ABOVE);
        self.candidates = all;
        if self.needs_sync && until.is_none() {
            self.try_sync(cx);
        }
    }

    /// Takes a registration back that is about to change, or that has ended.
    fn recall(&mut self, cx: &mut Context<'_>, index: u32) {
        let slot = cx.table.slot_mut(index);
        if !slot.is_away() {
            return;
        }
        slot.come_back();
        self.away -= 1;
        self.states.forget_sent(index);
        if self.link.is_some() {
            self.recalled.push(self.eviction.key(index));
        }
    }
}

impl<S: KeeperHandle> Cold for Kept<S> {
    fn change(&mut self, cx: &mut Context<'_>, index: u32, change: Change) -> Result<Synced> {
        if matches!(change, Change::Agree) {
            let slot = cx.table.slot(index);
            let has_state = self.states.get(index).is_some();
            if !slot.is_live() {
                self.states.forget(index);
            } else if slot.is_away() && slot.is_left_as_wanted() && !has_state {
                return Ok(Synced::Unchanged);
            }
        }
        self.recall(cx, index);
        let outcome = self.epoll.change(cx, index, change);
        let is_here = match change {
            Change::Agree => cx.table.slot(index).applied().is_some(),
            Change::Watch(..) => true,
            Change::Park | Change::Forget => false,
        };
        if is_here {
            self.note_arrival(cx, index);
        }
        outcome
    }

    #[inline]
    fn set(&self) -> &Epoll {
        &self.epoll
    }

    #[inline]
    fn set_mut(&mut self) -> &mut Epoll {
        &mut self.epoll
    }

    fn report(
        &mut self,
        cx: &mut Context<'_>,
        alone: bool,
        answer: io::Result<usize>,
        mut on_active: impl FnMut(&mut Context<'_>, u32, Readiness),
    ) -> io::Result<usize> {
        if self.link.is_some() {
            self.set_time();
        }
        let (mut all, mut answer, mut most) = (0, answer, PACKETS);
        let mut has_recovered = false;
        loop {
            let watched = self.epoll.armed();
            let eviction = &mut self.eviction;
            let active = self.epoll.report(cx, alone, answer, |cx, index, found| {
                eviction.touch(index, cx.table.key(index).generation(), true);
                let was_in_trouble = cx.table.slot(index).is_in_lasting_trouble();
                on_active(cx, index, found);
                has_recovered |= was_in_trouble && !cx.table.slot(index).is_in_lasting_trouble();
            })?;
            if std::mem::take(&mut has_recovered) {
                self.schedule_round();
            }
            all += active;
            self.eviction.end_pass(watched, active);
            // A keeper that talks without end is read again with the next wait.
            if !self.epoll.take_link_event() || most == 0 {
                return Ok(all);
            }
            // All messages are read before the kernel is asked, once, about the registrations that
            // came back.
            let received = self.receive_all(cx, most);
            if received == 0 {
                return Ok(all);
            }
            most -= received;
            // Events that were delivered already may come up again.
            if !cx.events.list.is_empty() || !cx.delivery.backlog.is_empty() {
                cx.collect_all();
            }
            answer = self.epoll.wait_call(cx, Deadline::Now, alone).issue();
        }
    }

    fn begin(&mut self, cx: &mut Context<'_>, deadline: Deadline) -> Deadline {
        let deadline = match (deadline, self.due) {
            (Deadline::Now, _) | (_, None) => deadline,
            (Deadline::At(moment), Some(due)) => Deadline::At(moment.min(due)),
            (Deadline::Never, Some(due)) => Deadline::At(due),
        };
        self.eviction.begin_pass();
        if !self.recalled.is_empty() {
            self.send_recalls(cx, None);
        }
        if self.needs_sync {
            self.try_sync(cx);
        }
        deadline
    }

    fn end(&mut self, cx: &mut Context<'_>) {
        // A wait that was cut off says nothing of the registrations that it does not report.
        if self.link.is_some() && !cx.is_cut_off() {
            self.advance_hand(cx);
        }
    }

    fn keeper(&mut self) -> Option<&mut dyn KeeperClient> {
        Some(self)
    }

    fn add_keeper<'a>(&'a self, status: &mut Status<'a>) {
        status.lengths.away = self.away;
        status.holds_files = S::TAKES_FILES;
        status.keeper = match &self.lost {
            Some(why) => KeeperStatus::Lost(why),
            None if self.link.is_some() => KeeperStatus::Present,
            None => KeeperStatus::None,
        };
    }

    fn more_memory(&self) -> Memory {
        let lists = 4 * self.candidates.capacity() + 8 * self.recalled.capacity();
        Memory {
            own: self.eviction.memory() + self.states.memory() + lists,
            mirrors: self.packet.capacity() + self.buffer.capacity(),
        }
    }
}

impl<S: KeeperHandle> KeeperClient for Kept<S> {
    fn leave_state(&mut self, key: Key, state: &[u8]) {
        if self.link.is_some() && S::TAKES_FILES {
            self.states.set(key.index(), &state[..state.len().min(STATE)]);
            self.schedule_round();
        }
    }

    fn forget_state(&mut self, index: u32) {
        self.states.forget(index);
    }

    fn catch_up(&mut self, cx: &mut Context<'_>) {
        let is_through = self.away == 0 && self.recalled.is_empty() && !self.may_hold;
        if self.link.is_none() || is_through {
            return;
        }
        let until = Instant::now() + PATIENCE;
        self.set_time();
        self.send_recalls(cx, Some(until));
        if let Err(error) = self.sync_and_wait(cx, until) {
            self.disconnect(cx, error);
        }
    }

    fn move_all_to_keeper(&mut self, cx: &mut Context<'_>) {
        let (mut before, mut is_limited) = (usize::MAX, false);
        let mut until = Instant::now() + PATIENCE;
        while self.link.is_some() {
            let all: Vec<u32> =
                (0..cx.table.slots()).filter(|&index| self.may_move(cx, index)).collect();
            // Messages under way arrive before more is sent, and registrations that are ready come
            // back. Once no registration is left, or none could leave, the work is done, unless
            // messages under way of other registrations stood in the way.
            let now = Instant::now();
            if all.is_empty() {
                // It may still hold some that were taken back a moment ago.
                self.catch_up(cx);
                break;
            } else if all.len() < before {
                until = now + PATIENCE;
            } else if !is_limited || now >= until {
                break;
            } else {
                std::thread::sleep(SHORTEST);
            }
            before = all.len();
            self.candidates = all;
            let limits = cx.stats.keeper_limit;
            self.move_candidates(cx, Some(Instant::now() + PATIENCE));
            is_limited = cx.stats.keeper_limit > limits;
            self.catch_up(cx);
        }
    }

    fn flush_recalls(&mut self, cx: &mut Context<'_>) {
        if !S::TAKES_FILES || self.recalled.is_empty() {
            return;
        }
        let is_sent = self.send_recalls(cx, Some(Instant::now() + PATIENCE));
        // The caller may write to the descriptor of a stay that is over next, and a successor must
        // not be given its earlier state. A keeper that cannot be told so is given up, with
        // everything that it holds.
        if !is_sent && self.link.is_some() {
            self.disconnect(cx, messages::timed_out());
        }
    }

    fn detach(&mut self, cx: &mut Context<'_>) {
        self.keeper.detach();
        self.link = None;
        self.epoll.drop_link();
        self.away = 0;
        for index in 0..cx.table.slots() {
            cx.table.slot_mut(index).come_back();
        }
        self.stop();
    }
}

impl<S: KeeperHandle> Drop for Kept<S> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return self.keeper.detach();
        }
        if let Some(link) = self.link.take() {
            Request::Bye.encode_into(&mut self.packet);
            if link.send_until(Instant::now() + PATIENCE, &self.packet, &[]).is_err() {
                // A keeper that does not take the message learns from the end of the link, and from
                // the revocation, that it must keep nothing.
                link.revoke();
            }
        }
        self.keeper.join();
    }
}
