//! The meaning of a read that gave less than was asked for, and of a write that took less than was
//! offered.
//!
//! The direction is drained as a rule, so that the next operation waits without having been tried.
//! Which bytes may have been left behind all the same, and how the engine learns of them, depends
//! on the descriptor and on the poller.

/// The state in which an operation leaves its descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IoState {
    /// There may be more.
    Ready,
    /// A stream gave less than was asked for, or took less than was offered: it is drained, or
    /// full. A read may have ended at an urgent byte instead: the engine
    /// [knows](ShortReads) of that byte.
    Drained,
    /// A pipe gave less than was asked for: it is drained, or that was a packet.
    DrainedOrPacket,
}

impl IoState {
    /// Returns the state after a stream operation that moved `done` of `requested` bytes.
    #[inline]
    pub(crate) fn after(done: usize, requested: usize) -> IoState {
        if is_short(done, requested) { IoState::Drained } else { IoState::Ready }
    }

    /// The same for a read of a pipe.
    #[inline]
    pub(crate) fn after_pipe_read(done: usize, requested: usize) -> IoState {
        if is_short(done, requested) { IoState::DrainedOrPacket } else { IoState::Ready }
    }
}

/// How an engine knows whether a read that gave less than was asked for has left bytes behind. A
/// read of a stream ends early at an urgent byte (TCP and Unix sockets), and a pipe gives packet by
/// packet if its writer asks for that (`O_DIRECT`). An edge says nothing about the remaining bytes
/// then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ShortReads {
    /// It need not know: the poller reports the remaining bytes again.
    Reported,
    /// [`Interest::PRIORITY`](superpoll::Interest::PRIORITY) is watched together with reading,
    /// which costs nothing, and reports an urgent byte. Pipes are watched with a level trigger.
    Watched,
    /// The poller cannot report an urgent byte: each arrival looks like one. So the engine asks the
    /// socket (`SIOCATMARK`), and reads a pipe until it would block.
    Checked,
}

impl ShortReads {
    pub(crate) fn of(backend: &str) -> ShortReads {
        match backend {
            "select" | "poll" => ShortReads::Reported,
            "uring" => ShortReads::Checked,
            _ => ShortReads::Watched,
        }
    }
}

/// The most bytes that one call moves (`MAX_RW_COUNT` of the kernel), and the most buffers that it
/// uses (`IOV_MAX`).
const MOST: (usize, usize) = (0x7fff_f000, 1024);

#[inline]
fn is_short(done: usize, requested: usize) -> bool {
    // Zero bytes mean the end, which stays.
    done > 0 && done < requested.min(MOST.0)
}

/// Returns the number of bytes asked for with several buffers, of this length each.
#[inline]
pub(crate) fn total_len(lengths: impl Iterator<Item = usize>) -> usize {
    lengths.take(MOST.1).fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_count_drains_and_the_end_does_not() {
        for (done, requested, after) in [
            (3, 10, IoState::Drained),
            (9, 10, IoState::Drained),
            (10, 10, IoState::Ready),
            (0, 10, IoState::Ready),
            (0, 0, IoState::Ready),
            // A single call moves no more than that.
            (MOST.0, usize::MAX, IoState::Ready),
            (MOST.0 - 1, usize::MAX, IoState::Drained),
        ] {
            assert_eq!(IoState::after(done, requested), after, "{done} of {requested}");
        }
        assert_eq!(total_len(std::iter::repeat_n(2, 1023)), 2046);
        assert_eq!(total_len(std::iter::repeat_n(2, 3000)), 2048);
    }
}
