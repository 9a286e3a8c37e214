//! Always-on statistics: plain counters, no atomics on the waiting path.

use std::fmt;

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// System calls made by the poller, by name.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Calls { $($(#[$doc])* pub $name: u64,)* }

        impl Calls {
            /// Each call's name and count, in a fixed order.
            pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }

            /// The calls since `earlier`, a copy taken before.
            #[must_use]
            pub fn since(&self, earlier: &Calls) -> Calls {
                Calls { $($name: self.$name - earlier.$name,)* }
            }
        }
    };
}

calls! {
    /// `poll(2)`: zero or infinite timeout, or whole milliseconds.
    poll,
    /// `ppoll(2)`: nanosecond timeout.
    ppoll,
    /// `pselect6(2)`.
    select,
    /// `epoll_wait(2)`: zero or infinite timeout, or the fallback in milliseconds.
    epoll_wait,
    /// `epoll_pwait2(2)`: nanosecond timeout (Linux 5.11).
    epoll_pwait2,
    /// `epoll_ctl(2)` with `EPOLL_CTL_ADD`.
    epoll_ctl_add,
    /// `epoll_ctl(2)` with `EPOLL_CTL_MOD`.
    epoll_ctl_mod,
    /// `epoll_ctl(2)` with `EPOLL_CTL_DEL`.
    epoll_ctl_del,
    /// `epoll_create1(2)`.
    epoll_create,
    /// `io_uring_enter(2)`: changes and waits.
    io_uring_enter,
    /// `io_uring_setup(2)`.
    io_uring_setup,
    /// `io_uring_register(2)`.
    io_uring_register,
    /// `nanosleep(2)`, of a poller that [gathers](crate::Poller::gather).
    nanosleep,
    /// `read(2)` and `recvfrom(2)` in place of reads that were to be made together but were too
    /// few.
    read,
    /// `eventfd2(2)`, for the waker.
    eventfd,
    /// `read(2)` of the waker's eventfd.
    waker_read,
    /// `write(2)` to the waker's eventfd, from any thread.
    waker_write,
    /// `fcntl(2)`, checking a raw descriptor.
    fcntl,
    /// `fstat(2)`, or `readlink(2)` in `/proc`, learning a descriptor's kind.
    fstat,
    /// `getsockopt(2)`, learning a socket's family.
    getsockopt,
    /// `sendmsg(2)`, to a keeper.
    sendmsg,
    /// `recvmsg(2)`, from a keeper.
    recvmsg,
}

impl Calls {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.by_name().map(|(_, count)| count).sum()
    }

    /// The waits: `poll`, `ppoll`, `select`, `epoll_wait` and `epoll_pwait2`; and `io_uring_enter`,
    /// although some of these only submit changes.
    pub fn waits(&self) -> u64 {
        self.poll
            + self.ppoll
            + self.select
            + self.epoll_wait
            + self.epoll_pwait2
            + self.io_uring_enter
    }

    /// All `epoll_ctl` calls.
    pub fn epoll_ctl(&self) -> u64 {
        self.epoll_ctl_add + self.epoll_ctl_mod + self.epoll_ctl_del
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (name, count) in self.by_name().filter(|&(_, count)| count != 0) {
            if !first {
                f.write_str(" ")?;
            }
            write!(f, "{name}={count}")?;
            first = false;
        }
        Ok(())
    }
}

/// The activity of one set of the engine: the sums from which its active/total ratio follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetStats {
    /// Descriptors in the set now.
    pub len: usize,
    /// Sum over all passes of the descriptors that were in the set.
    pub watched: u64,
    /// Sum over all passes of the descriptors that were ready.
    pub active: u64,
}

impl SetStats {
    /// Active/total ratio over the life of the poller (or since a copy was subtracted); zero
    /// before the first pass.
    pub fn atr(&self) -> f64 {
        if self.watched == 0 { 0.0 } else { self.active as f64 / self.watched as f64 }
    }

    /// The sums since `earlier`, with the present length.
    #[must_use]
    pub fn since(&self, earlier: &SetStats) -> SetStats {
        SetStats {
            len: self.len,
            watched: self.watched - earlier.watched,
            active: self.active - earlier.active,
        }
    }
}

/// The poller's counters, from its creation on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Calls of [`Poller::wait`](crate::Poller::wait).
    pub waits: u64,
    /// System calls by name.
    pub calls: Calls,
    /// Changes that cost no `epoll_ctl` because they were undone, unchanged or merged.
    pub changes_saved: u64,
    /// Descriptors that `poll` or `select` was asked about, summed over its calls.
    pub slots_scanned: u64,
    /// Events delivered.
    pub events: u64,
    /// Events that the kernel reported and no registration wanted: a direction disabled lazily, or
    /// a descriptor that was disarmed.
    pub unwanted: u64,
    /// Events of registrations that had ended; dropped.
    pub stale: u64,
    /// Times the epoll set was built again because a duplicate of a closed descriptor kept its
    /// registration alive.
    pub rebuilds: u64,
    /// Registrations the kernel refused.
    pub refused: u64,
    /// Descriptors found closed behind the poller's back (`POLLNVAL`).
    pub invalid: u64,
    /// Moves from epoll to the poll array.
    pub moves_to_hot: u64,
    /// Moves from the poll array to epoll.
    pub moves_to_cold: u64,
    /// Times the poll array was compacted: waits after which descriptors in it that had gone idle
    /// went to epoll.
    pub compactions: u64,
    /// Times the poll array was handed to epoll because the loop went quiet.
    pub handoffs: u64,
    /// The poll array (of `poll`, `select` and `adaptive`).
    pub hot: SetStats,
    /// Descriptors that left for a keeper.
    pub moves_away: u64,
    /// Descriptors that came back because they were ready, or because the keeper could not have
    /// them, or was lost.
    pub moves_back: u64,
    /// Times that a keeper was lost, and everything came back.
    pub keeper_lost: u64,
    /// Times that no message could be sent to a keeper, because its link was full.
    pub keeper_full: u64,
    /// Times that descriptors could not leave, because as many of this user's were under way as may
    /// be (`ETOOMANYREFS`).
    pub keeper_limit: u64,
    /// The epoll set: of `epoll` and `adaptive`, and of descriptors with an error or a hang-up that
    /// lasts on `poll` and `select`.
    pub cold: SetStats,
    /// The keeper's set, as far as it has reported: its ratio counts those of its waits that
    /// found something.
    pub away: SetStats,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_summed_by_group_and_named() {
        let mut calls = Calls::default();
        assert_eq!(calls.to_string(), "");
        (calls.poll, calls.ppoll, calls.select) = (1, 20, 300);
        (calls.epoll_wait, calls.epoll_pwait2) = (4_000, 50_000);
        assert_eq!(calls.waits(), 54_321);
        (calls.epoll_ctl_add, calls.epoll_ctl_mod, calls.epoll_ctl_del) = (1, 20, 300);
        assert_eq!(calls.epoll_ctl(), 321);
        assert_eq!(calls.total(), 54_321 + 321);
        let later = Calls { poll: 5, waker_read: 2, ..calls };
        let since = later.since(&calls);
        assert_eq!((since.poll, since.waker_read, since.total()), (4, 2, 6));
        assert_eq!(since.to_string(), "poll=4 waker_read=2");
    }

    #[test]
    fn a_ratio_is_active_over_watched() {
        assert_eq!(SetStats::default().atr(), 0.0);
        let before = SetStats { len: 1, watched: 100, active: 10 };
        let after = SetStats { len: 7, watched: 300, active: 60 };
        assert_eq!(before.atr(), 0.1);
        assert_eq!(after.since(&before), SetStats { len: 7, watched: 200, active: 50 });
        assert_eq!(after.since(&before).atr(), 0.25);
    }
}
