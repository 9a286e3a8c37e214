//! An epoll set of the poller's own, and a babysitter for the registrations that have been idle in
//! it.
//!
//! After each wait a *hand* goes over a part of the table, so that it has been round once in a
//! quarter of the idle time, and picks the registrations that have been idle for long enough. They
//! leave together: the poller first tells the babysitter, then deletes each from its own set and
//! marks its slot *away*. In between both watch it, so nothing is lost. Only registrations that
//! this wait has examined leave. So a poller that has caught up with its babysitter
//! ([`Keeper::catch_up`]) sees with its next wait everything
//! that was ready. After a wait that a limit has cut off, no registration leaves, because the ready
//! ones that the wait did not report would lose their turn.
//!
//! The babysitter's line is in the poller's own set. When the babysitter says that a registration
//! *stirs*, the poller adds it to the set again, and the kernel looks at its state. Whether there
//! is an event, and how a one-shot registration goes on, is the kernel's decision as ever, and the
//! same wait delivers it. So only registrations that may be reported by their state leave:
//! level-triggered ones, one-shot ones that are armed, and those that leave the choice of trigger
//! to the poller. An edge that was reported already would be reported again on the way back.
//!
//! Only descriptors leave that report the same to every process that waits for them: sockets,
//! pipes, event counters and timers. A signalfd looks at the signals of the thread that asks, and
//! would be silent for good in a babysitter's epoll set.
//!
//! A change of a registration that is away, or its end, calls it back without a question: the
//! poller tells the babysitter to forget it, with the next wait or [`settle`](Keeper::settle). For
//! the rest it is as if the kernel had never known it. Messages that the babysitter has sent about
//! it meanwhile carry the number of a stay that is over, and are dropped.
//!
//! A loop that sleeps wakes up for the hand as long as some registration may leave one day.
//!
//! When the line ends, everything that is away comes back at once, and the poller goes on as
//! without a babysitter.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use superpoll_sit::{FULL, Line, Request, STATE};

use super::states::States;
use super::stays::{Stays, ticks};
use super::tuning::Tuning;
use super::{Change, Cold};
use crate::backend::{Babysitting, Context, Deadline, Epoll, Keeper, Memory, Status, Synced};
use crate::error::Result;
use crate::interest::Mode;
use crate::key::Key;
use crate::sys;

mod talk;
#[cfg(test)]
mod tests;

/// For how long a babysitter may leave its line full, or a question unanswered, before it counts as
/// lost.
const PATIENCE: Duration = Duration::from_secs(1);

/// The number of slots that the hand looks at after a wait.
const LOOKS: u32 = 4096;

/// The most packets that one wait takes from the line: more than a line holds.
const PACKETS: usize = 1024;

/// A list that was longer than this frees its memory.
const KEPT: usize = 1024;

/// The shortest time between two rounds of the hand while the loop sleeps.
const SHORTEST: Duration = Duration::from_millis(1);

/// How a babysitter is run.
pub(crate) trait Sitter: Send {
    /// Whether the babysitter is another process, which needs to be given the files.
    const TAKES_FILES: bool;

    /// Waits for its end. The line has ended.
    fn end(&mut self);

    /// Lets go of a babysitter that belongs to another process, whose child this process is.
    fn abandon(&mut self);
}

/// A cold set with a babysitter behind it.
#[derive(Debug)]
pub(crate) struct Babysat<S: Sitter> {
    epoll: Epoll,
    sitter: S,
    line: Option<Line>,
    lost: Option<io::Error>,
    stays: Stays,
    idle: Duration,
    batch: usize,
    stated_only: bool,
    away: usize,
    began: Instant,
    /// The process that owns the set: a child of a fork has a copy, but neither the thread nor a
    /// line of its own.
    process: u32,
    /// When the hand begins its next round; `None` as long as no registration may leave.
    due: Option<Instant>,
    /// Where the hand is; zero between two rounds.
    hand: u32,
    /// Whether the next round has any candidate.
    has_more: bool,
    candidates: Vec<u32>,
    /// Stays that are over and that the babysitter must still be told to end.
    over: Vec<u64>,
    states: States,
    packet: Vec<u8>,
    room: Vec<u8>,
    /// The number of questions that it was asked.
    questions: u64,
    /// Whether one more question is due, because the babysitter was given states.
    has_to_ask: bool,
    /// Whether the babysitter may still hold descriptors that are back here: it lets go of one
    /// after it has reported that the descriptor stirs, and when it learns that a stay is over.
    may_hold: bool,
}

impl<S: Sitter> Babysat<S> {
    pub(crate) fn new(sitter: S, line: Line, tuning: Tuning) -> Result<Babysat<S>> {
        let mut epoll = Epoll::new()?;
        epoll.watch_line(line.as_fd())?;
        Ok(Babysat {
            epoll,
            sitter,
            line: Some(line),
            lost: None,
            stays: Stays::new(tuning.idle, tuning.rule),
            idle: tuning.idle,
            batch: tuning.batch.clamp(1, FULL),
            stated_only: tuning.stated_only,
            away: 0,
            began: Instant::now(),
            process: std::process::id(),
            due: None,
            hand: 0,
            has_more: false,
            candidates: Vec::new(),
            over: Vec::new(),
            states: States::default(),
            packet: Vec::new(),
            room: Vec::new(),
            questions: 0,
            has_to_ask: false,
            may_hold: false,
        })
    }

    fn set_time(&mut self) -> Instant {
        let now = Instant::now();
        self.stays.set_time(ticks(now.duration_since(self.began)));
        now
    }

    /// A registration is in the poller's own set, and something about it is new.
    fn settle_in(&mut self, cx: &Context<'_>, index: u32) {
        if self.line.is_none() {
            return;
        }
        // The last wait may be long ago.
        let now = self.set_time();
        if self.due.is_none() {
            self.due = Some(self.next_round(now));
        }
        self.stays.touch(index, cx.table.key(index).generation(), false);
    }

    /// Notes that some registration may leave one day.
    fn expect_more(&mut self) {
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
    fn may_leave(&self, cx: &Context<'_>, index: u32) -> bool {
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
            && !self.stays.is_kept(index)
            && (!self.stated_only || self.states.get(index).is_some())
    }

    /// Whether the descriptor is of a kind that a babysitter sees as this thread would. Checked
    /// when a registration leaves for the first time.
    fn is_fit(&mut self, cx: &mut Context<'_>, index: u32) -> bool {
        if self.stays.is_fit(index) {
            return true;
        }
        let fd = cx.table.slot(index).fd();
        let is_fit = sys::descriptor::waits_alike_everywhere(&mut cx.stats.calls, fd);
        if is_fit {
            self.stays.set_fit(index);
        } else {
            self.stays.keep(index);
        }
        is_fit
    }

    /// Examines a part of the table, and gives the registrations away that are due.
    fn turn_hand(&mut self, cx: &mut Context<'_>) {
        let Some(due) = self.due else { return };
        let now = self.set_time();
        if self.hand == 0 {
            if now < due && !self.idle.is_zero() {
                return;
            }
            self.stays.end_period();
            // Candidates that waited for more to join them have waited for long enough.
            self.leave(cx, None);
            self.has_more = false;
        }
        if self.line.is_none() {
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
            if self.stays.is_due(index) {
                self.candidates.push(index);
            } else {
                self.has_more = true;
            }
        }
        if self.candidates.len() >= self.batch {
            self.leave(cx, None);
            if self.line.is_none() {
                return;
            }
        }
        if self.hand < slots {
            // The round goes on with the next wait, which must not sleep before that.
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
    fn leave(&mut self, cx: &mut Context<'_>, until: Option<Instant>) {
        let mut all = std::mem::take(&mut self.candidates);
        if until.is_none() {
            all.retain(|&index| self.may_leave(cx, index) && self.stays.is_due(index));
        }
        all.retain(|&index| self.is_fit(cx, index));
        // The babysitter must know which stays are over before their numbers may come again.
        let mut left = 0;
        while left < all.len() && self.tell_over(cx, until) {
            match self.send(cx, &all[left..], until) {
                Some(sent) => left += sent,
                None => break,
            }
        }
        // A file that another thread put under a registered number in that moment is recalled at
        // once.
        if self.line.is_some() {
            self.tell_over(cx, until);
        }
        self.has_more |= left < all.len();
        all.clear();
        all.shrink_to(KEPT);
        self.candidates = all;
        if self.has_to_ask && until.is_none() {
            self.ask_later(cx);
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
        if self.line.is_some() {
            self.over.push(self.stays.key(index));
        }
    }
}

impl<S: Sitter> Cold for Babysat<S> {
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
            self.settle_in(cx, index);
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
        mut on_active: impl FnMut(&mut Context<'_>, u32),
    ) -> io::Result<usize> {
        if self.line.is_some() {
            self.set_time();
        }
        let (mut all, mut answer, mut most) = (0, answer, PACKETS);
        loop {
            let watched = self.epoll.armed();
            let stays = &mut self.stays;
            let active = self.epoll.report(cx, alone, answer, |cx, index| {
                stays.touch(index, cx.table.key(index).generation(), true);
                on_active(cx, index);
            })?;
            all += active;
            self.stays.end_pass(watched, active);
            // A babysitter that talks without end is heard again with the next wait.
            if !self.epoll.take_stirred_line() || most == 0 {
                return Ok(all);
            }
            // All messages are heard before the kernel is asked, once, about the registrations that
            // came back.
            let heard = self.listen_to_all(cx, most);
            if heard == 0 {
                return Ok(all);
            }
            most -= heard;
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
        self.stays.begin_pass();
        if !self.over.is_empty() {
            self.tell_over(cx, None);
        }
        if self.has_to_ask {
            self.ask_later(cx);
        }
        deadline
    }

    fn end(&mut self, cx: &mut Context<'_>) {
        // A wait that was cut off says nothing of the registrations that it does not report.
        if self.line.is_some() && !cx.is_cut_off() {
            self.turn_hand(cx);
        }
    }

    fn keeper(&mut self) -> Option<&mut dyn Keeper> {
        Some(self)
    }

    fn add_keeper<'a>(&'a self, status: &mut Status<'a>) {
        status.lengths.away = self.away;
        status.holds_files = S::TAKES_FILES;
        status.keeper = match &self.lost {
            Some(why) => Babysitting::Lost(why),
            None if self.line.is_some() => Babysitting::Present,
            None => Babysitting::None,
        };
    }

    fn more_memory(&self) -> Memory {
        let lists = 4 * self.candidates.capacity() + 8 * self.over.capacity();
        Memory {
            own: self.stays.memory() + self.states.memory() + lists,
            mirrors: self.packet.capacity() + self.room.capacity(),
        }
    }
}

impl<S: Sitter> Keeper for Babysat<S> {
    fn leave_state(&mut self, key: Key, state: &[u8]) {
        if self.line.is_some() && S::TAKES_FILES {
            self.states.set(key.index(), &state[..state.len().min(STATE)]);
            self.expect_more();
        }
    }

    fn forget_state(&mut self, index: u32) {
        self.states.forget(index);
    }

    fn catch_up(&mut self, cx: &mut Context<'_>) {
        let is_through = self.away == 0 && self.over.is_empty() && !self.may_hold;
        if self.line.is_none() || is_through {
            return;
        }
        let until = Instant::now() + PATIENCE;
        self.set_time();
        self.tell_over(cx, Some(until));
        if let Err(error) = self.ask_and_hear(cx, until) {
            self.lose(cx, error);
        }
    }

    fn hand_over_all(&mut self, cx: &mut Context<'_>) {
        let (mut before, mut is_limited) = (usize::MAX, false);
        let mut until = Instant::now() + PATIENCE;
        while self.line.is_some() {
            let all: Vec<u32> =
                (0..cx.table.slots()).filter(|&index| self.may_leave(cx, index)).collect();
            // Messages under way arrive before more is sent, and registrations that stir come back.
            // Once no registration is left, or none could leave, the work is done, unless messages
            // under way of other registrations stood in the way.
            let now = Instant::now();
            if all.is_empty() {
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
            let limits = cx.stats.sitter_limit;
            self.leave(cx, Some(Instant::now() + PATIENCE));
            is_limited = cx.stats.sitter_limit > limits;
            self.catch_up(cx);
        }
    }

    fn settle(&mut self, cx: &mut Context<'_>) {
        if !S::TAKES_FILES || self.over.is_empty() {
            return;
        }
        let is_applied = self.tell_over(cx, Some(Instant::now() + PATIENCE));
        // The caller may write to the descriptor of a stay that is over next, and a successor must
        // not be given its earlier state. A babysitter that cannot be told so is given up, with
        // everything that it holds.
        if !is_applied && self.line.is_some() {
            self.lose(cx, talk::late());
        }
    }

    fn abandon(&mut self, cx: &mut Context<'_>) {
        self.sitter.abandon();
        self.line = None;
        self.epoll.drop_line();
        self.away = 0;
        for index in 0..cx.table.slots() {
            cx.table.slot_mut(index).come_back();
        }
        self.stop();
    }
}

impl<S: Sitter> Drop for Babysat<S> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return self.sitter.abandon();
        }
        if let Some(line) = self.line.take() {
            Request::Bye.encode_into(&mut self.packet);
            if line.send_until(Instant::now() + PATIENCE, &self.packet, &[]).is_err() {
                // A babysitter that does not take the message hears the end of the line, and that
                // it must keep nothing.
                line.revoke();
            }
        }
        self.sitter.end();
    }
}
