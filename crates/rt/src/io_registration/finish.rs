//! The end of an operation: what a read that gave less than requested, or a write that took less
//! than offered, means for the descriptor; [`short_reads`](crate::short_reads) says why.

use std::os::fd::BorrowedFd;

use superpoll::{Interest, call};

use super::{IoRegistration, PACKETS, URGENT};
use crate::engine::{self, Engine};
use crate::short_reads::{IoState, ShortReads};
use crate::sources::Direction;

impl IoRegistration {
    /// Returns the interest that is watched together with a direction in any case.
    #[inline]
    pub(super) fn urgent_interest(&self, engine: &Engine, direction: Direction) -> Interest {
        let is_stream = self.flags.get() & URGENT != 0;
        match direction {
            Direction::Read if is_stream && engine.short_reads == ShortReads::Watched => {
                Interest::PRIORITY
            }
            _ => Interest::NONE,
        }
    }

    /// Returns whether a read that gave less than was asked for may have left bytes that the source
    /// does not know about.
    #[inline]
    fn may_leave_more(&self, engine: &Engine, fd: BorrowedFd<'_>, after: IoState) -> bool {
        let is_packet = after == IoState::DrainedOrPacket;
        match engine.short_reads {
            ShortReads::Reported => false,
            ShortReads::Watched if is_packet => self.flags.get() & PACKETS == 0,
            ShortReads::Watched => {
                // Where the next wait has to begin to watch for a mark, the poller checks for
                // remaining bytes.
                self.set_flag(URGENT);
                false
            }
            ShortReads::Checked => is_packet || call::is_at_mark(fd),
        }
    }

    /// Notes that an operation was done.
    #[inline]
    pub(crate) fn finish(
        &self,
        fd: BorrowedFd<'_>,
        direction: Direction,
        tick: u32,
        after: IoState,
    ) {
        if after != IoState::Ready {
            engine::with(|engine| match self.key_on(engine) {
                Some(key) => {
                    let is_read = direction == Direction::Read;
                    let marks = is_read && self.may_leave_more(engine, fd, after);
                    engine.source(key, |source| {
                        if !(marks || is_read && source.has_mark()) {
                            source.mark_drained(direction, tick);
                        }
                    });
                }
                // The poller checks when it learns of the descriptor, and reports the remaining
                // bytes.
                None => self.drained.set(self.drained.get() | direction.bit()),
            });
        }
        if let Some(end) = &self.end {
            end.wake_peer(direction);
        }
    }
}
