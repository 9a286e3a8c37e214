//! The events that a caller wants for a descriptor, and how often.
//!
//! Three small values describe a registration: [`Interest`] (which directions), [`Mode`] (which
//! trigger) and [`Hint`] (the caller's knowledge of how busy the descriptor will be). A [`Watch`]
//! is the three together.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Sub};

/// The directions of a descriptor a caller wants events for; a set of bits.
///
/// Hang-up and error are not in the set: they are delivered for every descriptor whose interest
/// is not empty, as `poll(2)` and `epoll_ctl(2)` do. An empty interest means *disarmed*: the
/// descriptor stays registered and delivers nothing at all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Interest(u8);

impl Interest {
    /// Nothing: registered, but disarmed.
    pub const NONE: Interest = Interest(0);
    /// Data can be read, a connection can be accepted, or the end of the stream is reached
    /// (`POLLIN`).
    pub const READABLE: Interest = Interest(1);
    /// A write would not block (`POLLOUT`).
    pub const WRITABLE: Interest = Interest(2);
    /// Exceptional condition, such as TCP out-of-band data (`POLLPRI`).
    pub const PRIORITY: Interest = Interest(4);
    /// The peer closed its writing half (`POLLRDHUP`, Linux 2.6.17).
    pub const READ_CLOSED: Interest = Interest(8);

    /// Every direction.
    pub const ALL: Interest = Interest(15);

    /// Whether the set is empty, which means disarmed.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether every direction of `other` is in this set.
    pub const fn contains(self, other: Interest) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any direction of `other` is in this set.
    pub const fn intersects(self, other: Interest) -> bool {
        self.0 & other.0 != 0
    }

    /// The union; usable in constants, unlike `|`.
    pub const fn with(self, other: Interest) -> Interest {
        Interest(self.0 | other.0)
    }

    /// The set as the `POLL*` bits that `poll(2)` and `epoll_ctl(2)` share.
    pub const fn poll_bits(self) -> i16 {
        let mut bits = 0;
        if self.contains(Interest::READABLE) {
            bits |= libc::POLLIN;
        }
        if self.contains(Interest::WRITABLE) {
            bits |= libc::POLLOUT;
        }
        if self.contains(Interest::PRIORITY) {
            bits |= libc::POLLPRI;
        }
        if self.contains(Interest::READ_CLOSED) {
            bits |= libc::POLLRDHUP;
        }
        bits
    }
}

impl BitOr for Interest {
    type Output = Interest;
    fn bitor(self, other: Interest) -> Interest {
        self.with(other)
    }
}

impl BitOrAssign for Interest {
    fn bitor_assign(&mut self, other: Interest) {
        *self = self.with(other);
    }
}

impl BitAnd for Interest {
    type Output = Interest;
    fn bitand(self, other: Interest) -> Interest {
        Interest(self.0 & other.0)
    }
}

impl Sub for Interest {
    type Output = Interest;
    fn sub(self, other: Interest) -> Interest {
        Interest(self.0 & !other.0)
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Interest::READABLE, "READABLE"),
            (Interest::WRITABLE, "WRITABLE"),
            (Interest::PRIORITY, "PRIORITY"),
            (Interest::READ_CLOSED, "READ_CLOSED"),
        ];
        if self.is_empty() {
            return f.write_str("NONE");
        }
        let mut first = true;
        for (bit, name) in names {
            if self.contains(bit) {
                if !first {
                    f.write_str(" | ")?;
                }
                f.write_str(name)?;
                first = false;
            }
        }
        Ok(())
    }
}

/// When a ready descriptor is reported.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Mode {
    /// In every wait for as long as it is ready (the default).
    #[default]
    Level,
    /// Once for each arrival, as `EPOLLET`: the caller reads or writes until `EAGAIN`. A short
    /// count says as much of a write, but not of a read, which ends early at an urgent byte of TCP,
    /// at descriptors that came along, or at the end of a packet of a pipe. Only back-ends that can
    /// tell an arrival from a state offer it (`epoll` and `adaptive`, which then keeps the
    /// descriptor in epoll); the remaining back-ends refuse it.
    Edge,
    /// Once, after which the interest is [`Interest::NONE`] until it is modified again.
    OneShot,
    /// As `Level`, but of several pollers watching the same open file only some are woken
    /// (`EPOLLEXCLUSIVE`, Linux 4.5). Needs a back-end on epoll. It may not be combined with
    /// [`Interest::PRIORITY`] or [`Interest::READ_CLOSED`], which the kernel refuses with
    /// `EINVAL`.
    Exclusive,
    /// The back-end chooses the cheapest trigger: every arrival is reported at least once, as with
    /// `Edge`, and a descriptor that stays ready may be reported again, as with `Level`; with
    /// `uring` so may an arrival that the caller has read already, together with an earlier one. An
    /// error or a hang-up that lasts is reported a few times at most, and then only together with
    /// the next arrival. The caller drains, as for `Edge`, and tolerates repeats. The right mode
    /// for a runtime that remembers readiness itself; every back-end offers it.
    Auto,
}

/// The caller's knowledge of a new descriptor; it chooses where `adaptive` starts it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Hint {
    /// Nothing is known (the default): starts idle and earns its place.
    #[default]
    None,
    /// Expected to be ready in most waits: starts in the poll array.
    Busy,
    /// Expected to be quiet: starts in epoll.
    Idle,
}

/// A whole registration request: interest, mode and hint.
///
/// An [`Interest`] converts into a level-triggered watch without a hint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Watch {
    /// The directions wanted.
    pub interest: Interest,
    /// The trigger.
    pub mode: Mode,
    /// Where to start.
    pub hint: Hint,
}

impl Watch {
    /// A level-triggered watch without a hint.
    pub const fn new(interest: Interest) -> Watch {
        Watch { interest, mode: Mode::Level, hint: Hint::None }
    }

    /// The same watch with another trigger.
    #[must_use]
    pub const fn mode(self, mode: Mode) -> Watch {
        Watch { mode, ..self }
    }

    /// The same watch with another hint.
    #[must_use]
    pub const fn hint(self, hint: Hint) -> Watch {
        Watch { hint, ..self }
    }
}

impl From<Interest> for Watch {
    fn from(interest: Interest) -> Watch {
        Watch::new(interest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poll_bits_name_each_direction() {
        assert_eq!(Interest::NONE.poll_bits(), 0);
        assert_eq!(Interest::READABLE.poll_bits(), libc::POLLIN);
        assert_eq!(Interest::WRITABLE.poll_bits(), libc::POLLOUT);
        assert_eq!(Interest::PRIORITY.poll_bits(), libc::POLLPRI);
        assert_eq!(Interest::READ_CLOSED.poll_bits(), libc::POLLRDHUP);
    }

    #[test]
    fn set_operations() {
        let rw = Interest::READABLE | Interest::WRITABLE;
        assert!(rw.contains(Interest::READABLE) && !rw.contains(Interest::ALL));
        assert!(rw.intersects(Interest::ALL) && !rw.intersects(Interest::PRIORITY));
        assert_eq!(rw | Interest::READABLE, rw);
        assert_eq!(rw - Interest::READABLE, Interest::WRITABLE);
        assert_eq!(rw & Interest::READABLE, Interest::READABLE);
        let mut all = rw;
        all |= Interest::PRIORITY | Interest::READ_CLOSED;
        assert_eq!(all, Interest::ALL);
        assert_eq!(format!("{:?}", rw), "READABLE | WRITABLE");
        assert_eq!(format!("{:?}", Interest::NONE), "NONE");
    }
}
