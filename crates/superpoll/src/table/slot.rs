//! One registration.
//!
//! A slot keeps the caller's wish next to the kernel's last known watch, and a few flags for the
//! steps from one to the other.
//!
//! The life of a slot, by the flags that say whether the registration exists (`LIVE`) and whether
//! the kernel knows its descriptor (`APPLIED`), in its own set or with a keeper (`AWAY`):
//!
//! ```text
//!   vacant ── insert ──▶ LIVE ────── sync ─────▶ LIVE APPLIED ── leave ──▶ LIVE AWAY
//!     ▲                   │ ▲                      │    ▲                    │   │
//!     │                   │ └───── come_back ──────┼────┼────────────────────┘   │
//!     │                  end                      end  insert                   end
//!     │                   ▼                        ▼    │ (OLD_KEY)              ▼
//!     └──── release ─── ended ◀────── sync ─── APPLIED ─┘                      AWAY
//!                         ▲                                                      │
//!                         └────────────────────── sync ──────────────────────────┘
//! ```
//!
//! In a poll array a descriptor has a place, whether the kernel's set knows it as well or not. A
//! number that is registered again while its slot is still `AWAY` gets `OLD_KEY`, too.
//!
//! A slot with `CHANGED` is in the list of the next wait, whose `sync` makes the kernel agree. The
//! other flags refine these states:
//!
//! | flag | set by | cleared by | meaning |
//! |---|---|---|---|
//! | `CLOSED` | `end` | `insert` | its owner closed the descriptor, and the kernel forgets it by itself |
//! | `OLD_KEY` | `insert`, while the kernel knows the number | `set_applied`, `come_back` | the kernel watches it under the key before |
//! | `FOREIGN` | `insert` by a registrar | `release` | the key goes back to the registrars |
//! | `ALWAYS` | `sync`, for a regular file | `end` | no kernel is asked: it is always ready |
//! | `DUE` | `ALWAYS`, each change | its event | an always-ready edge is to be reported once more |
//! | `QUEUED` | an event beyond the limit | `sync`, or its turn | it is in the backlog |
//! | `FORCED` | an unwanted event | `sync` | a lazy change must reach the kernel now |
//! | `FAST` | `refresh_fast_path` | `refresh_fast_path` | its events need no second look |
//! | `PLACED` | a policy | `insert` | the policy has said where it starts |
//! | `OWNED` | `share` | `insert` | the descriptor stays open until the end |
//! | `EARLIER` | a ring whose numbers begin again | its next arming | its place is of an earlier round |
//!
//! Reports with an error or a hang-up are counted as well (`troubles`). From the third on that
//! state is thought to last, and in [`Mode::Auto`] the descriptor is watched by its edges.

use std::os::fd::RawFd;

use super::NOWHERE;
use crate::interest::{Interest, Mode, Watch};
use crate::policy::Account;

/// The number of reports with an error or a hang-up from which on that state is thought to last.
const LASTING: u8 = 3;

pub(super) const LIVE: u16 = 1;
pub(super) const CHANGED: u16 = 2;
pub(super) const APPLIED: u16 = 4;
pub(super) const CLOSED: u16 = 8;
pub(super) const ALWAYS: u16 = 16;
pub(super) const DUE: u16 = 32;
pub(super) const FOREIGN: u16 = 64;
pub(super) const FORCED: u16 = 128;
pub(super) const OLD_KEY: u16 = 256;
pub(super) const QUEUED: u16 = 512;
pub(super) const FAST: u16 = 1024;
pub(super) const PLACED: u16 = 2048;
pub(super) const AWAY: u16 = 4096;
pub(super) const EARLIER: u16 = 8192;
pub(super) const OWNED: u16 = 16384;

/// One registration, as a back-end sees it.
#[derive(Debug)]
pub struct Slot {
    pub(crate) account: Account,
    pub(super) fd: RawFd,
    pub(super) generation: u32,
    /// Where the back-end keeps the descriptor; only the back-end uses it. In a vacant slot, the
    /// link to the next one.
    pub(super) place: u32,
    /// The last wait that served it, among those that could not serve all.
    pub(crate) served: u32,
    pub(super) watch: Watch,
    pub(super) applied_interest: Interest,
    pub(super) applied_mode: Mode,
    pub(super) flags: u16,
    /// Reports with an error or a hang-up, up to [`LASTING`].
    pub(super) troubles: u8,
}

impl Slot {
    pub(super) fn vacant() -> Slot {
        Slot {
            account: Account::default(),
            fd: -1,
            generation: 0,
            place: NOWHERE,
            served: 0,
            watch: Watch::default(),
            applied_interest: Interest::NONE,
            applied_mode: Mode::Level,
            flags: 0,
            troubles: 0,
        }
    }

    pub(super) fn is(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn put(&mut self, flag: u16, on: bool) {
        if on { self.flags |= flag } else { self.flags &= !flag }
    }

    /// Whether its last registration has ended under the last of its keys.
    pub(super) fn is_worn(&self) -> bool {
        !self.is(LIVE) && self.generation == 0
    }

    /// The descriptor.
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// Whether the registration exists; a slot is not live if its registration ended and only the
    /// removal is still to reach the kernel.
    pub fn is_live(&self) -> bool {
        self.is(LIVE)
    }

    /// The watch that the caller wants. Empty interest for a registration that ended.
    pub fn watch(&self) -> Watch {
        self.watch
    }

    pub(crate) fn set_watch(&mut self, watch: Watch) {
        self.watch = watch;
        self.refresh_fast_path();
    }

    /// Its interest.
    #[inline]
    pub fn interest(&self) -> Interest {
        self.watch.interest
    }

    /// Interest and mode that were last applied in the kernel, if the kernel knows the descriptor.
    pub fn applied(&self) -> Option<(Interest, Mode)> {
        self.is(APPLIED).then_some((self.applied_interest, self.applied_mode))
    }

    /// Whether the back-end has restarted the numbers of its places since it gave this one.
    #[inline]
    pub(crate) fn is_of_earlier_round(&self) -> bool {
        self.is(EARLIER)
    }

    #[inline]
    pub(crate) fn set_of_earlier_round(&mut self, on: bool) {
        self.put(EARLIER, on);
    }

    /// Whether this mode was last applied in the kernel.
    pub(crate) fn has_mode(&self, mode: Mode) -> bool {
        self.applied_mode == mode
    }

    /// Notes whether the kernel reports exactly the caller's wish, in a mode that needs no upkeep,
    /// and nothing else watches the descriptor: then an event needs no second look. Must be called
    /// after each change of one of these inputs.
    #[inline]
    pub(super) fn refresh_fast_path(&mut self) {
        let plain = self.applied_interest == self.watch.interest
            && (self.applied_mode == self.watch.mode
                || (self.watch.mode == Mode::Auto && self.applied_mode == Mode::Level))
            && self.watch.mode != Mode::OneShot
            && !self.watch.interest.is_empty()
            && self.place == NOWHERE
            && self.is(LIVE);
        self.put(FAST, plain);
    }

    /// Notes the watch that was applied in the kernel; `None` if the kernel no longer knows the
    /// descriptor.
    pub fn set_applied(&mut self, applied: Option<(Interest, Mode)>) {
        self.put(APPLIED, applied.is_some());
        self.put(OLD_KEY, false);
        if let Some((interest, mode)) = applied {
            self.applied_interest = interest;
            self.applied_mode = mode;
        }
        self.refresh_fast_path();
    }

    /// Whether the kernel watches it under the key of a registration that has ended: a new
    /// registration took its descriptor number over.
    pub fn inherits_old_key(&self) -> bool {
        self.is(OLD_KEY)
    }

    /// Whether another watcher than the poller's own set has it: a keeper, or a cold set's own.
    pub fn is_away(&self) -> bool {
        self.is(AWAY)
    }

    /// Notes that another watcher watches it as wanted now, and that the poller's own set no longer
    /// knows the descriptor.
    pub fn leave(&mut self) {
        self.put(AWAY, true);
        (self.applied_interest, self.applied_mode) = (self.watch.interest, self.watch.mode);
    }

    /// Notes that the other watcher does not watch it any more, or will not.
    pub fn come_back(&mut self) {
        self.put(AWAY, false);
        if !self.is(APPLIED) {
            self.put(OLD_KEY, false);
        }
    }

    /// Whether the other watcher, if it [has it](Slot::is_away), watches it as the caller wants,
    /// under the key that it still has.
    pub fn is_left_as_wanted(&self) -> bool {
        !self.is(OLD_KEY)
            && !self.watch.interest.is_empty()
            && self.applied_interest == self.watch.interest
            && (self.applied_mode == self.watch.mode || self.watch.mode == Mode::Auto)
    }

    /// Whether a change of it may have to reach the kernel before the next wait.
    pub(crate) fn is_changed(&self) -> bool {
        self.is(CHANGED)
    }

    /// Whether the slot is in some list, for a change or an event, or its registration has ended.
    pub(crate) fn is_in_motion(&self) -> bool {
        self.flags & (CHANGED | CLOSED | ALWAYS | OLD_KEY | QUEUED | AWAY) != 0
    }

    /// Whether its owner closed the descriptor right after it was detached: the kernel forgets it
    /// by itself, and its number may already belong to another file.
    pub fn is_closed(&self) -> bool {
        self.is(CLOSED)
    }

    /// Whether a change must reach the kernel now, because an unwanted event was reported; the
    /// back-end that saw the event sets this.
    pub fn is_forced(&self) -> bool {
        self.is(FORCED)
    }

    pub(crate) fn set_forced(&mut self, on: bool) {
        self.put(FORCED, on);
    }

    /// Whether it is in the backlog for an event, and its watch was not applied again since.
    pub(crate) fn is_queued(&self) -> bool {
        self.is(QUEUED)
    }

    pub(crate) fn set_queued(&mut self, on: bool) {
        self.put(QUEUED, on);
    }

    /// Whether the kernel cannot watch it because it is always ready (a regular file).
    pub fn is_always_ready(&self) -> bool {
        self.is(ALWAYS)
    }

    pub(crate) fn set_always_ready(&mut self) {
        self.put(ALWAYS, true);
        self.put(DUE, true);
    }

    /// Whether an always-ready descriptor with an edge is still to be reported for its last
    /// change.
    pub(crate) fn is_due(&self) -> bool {
        self.is(DUE)
    }

    /// Notes a report with an error or a hang-up. Returns whether it must be watched by its edges
    /// from now on: in [`Mode::Auto`], once this state is thought to last. The caller has then had
    /// some chances to end that state, and a level would be reported in each wait.
    #[cold]
    pub(crate) fn note_trouble(&mut self) -> bool {
        self.troubles = (self.troubles + 1).min(LASTING);
        self.is_in_lasting_trouble()
    }

    /// Whether it must be watched by its edges because of an error or a hang-up that lasts.
    #[inline]
    pub(crate) fn is_in_lasting_trouble(&self) -> bool {
        self.troubles == LASTING && self.watch.mode == Mode::Auto
    }

    /// Notes a report without an error or a hang-up. Returns whether there have been as many of
    /// those as there were reports with one: then it may be watched by its level (again).
    #[inline]
    pub(crate) fn has_recovered(&mut self) -> bool {
        self.troubles == 0 || self.note_recovery()
    }

    #[cold]
    fn note_recovery(&mut self) -> bool {
        self.troubles -= 1;
        self.troubles == 0
    }

    /// Forgets the reports with an error or a hang-up.
    pub(crate) fn forget_troubles(&mut self) {
        self.troubles = 0;
    }

    /// Whether a policy has said where the registration starts.
    pub(crate) fn is_placed(&self) -> bool {
        self.is(PLACED)
    }

    pub(crate) fn set_placed(&mut self) {
        self.put(PLACED, true);
    }

    /// Whether the descriptor is known to stay open until the registration has ended.
    #[inline]
    pub(crate) fn is_owned(&self) -> bool {
        self.is(OWNED)
    }

    pub(crate) fn set_owned(&mut self) {
        self.put(OWNED, true);
    }

    pub(crate) fn set_due(&mut self, on: bool) {
        self.put(DUE, on);
    }

    /// Where the back-end keeps the descriptor, if it said so with [`set_place`](Slot::set_place).
    #[inline]
    pub fn place(&self) -> Option<usize> {
        (self.place != NOWHERE).then_some(self.place as usize)
    }

    /// For the back-end's own use; `None` when it no longer keeps the descriptor.
    #[inline]
    pub fn set_place(&mut self, place: Option<usize>) {
        self.place = place.map_or(NOWHERE, |place| place as u32);
        self.refresh_fast_path();
    }

    /// The placement policy's own state.
    pub fn account_mut(&mut self) -> &mut Account {
        &mut self.account
    }

    #[inline]
    pub(crate) fn disarm(&mut self) {
        self.watch.interest = Interest::NONE;
        self.refresh_fast_path();
    }
}
