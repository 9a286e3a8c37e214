//! `poll` and `ppoll`.

use std::io;
use std::time::Duration;

use crate::stats::Calls;
use crate::sys::wait_call::WaitCall;

/// One watched descriptor as the kernel reads and writes it.
pub(crate) type Slot = libc::pollfd;

/// A timeout in whole milliseconds, rounded up so that it is never early; `-1` without a limit.
#[inline]
pub(crate) fn round_up(timeout: Option<Duration>) -> libc::c_int {
    match timeout {
        None => -1,
        Some(timeout) => timeout
            .as_secs()
            .checked_mul(1000)
            .and_then(|whole| {
                whole.checked_add(u64::from(timeout.subsec_nanos().div_ceil(1_000_000)))
            })
            .and_then(|milliseconds| libc::c_int::try_from(milliseconds).ok())
            .unwrap_or(libc::c_int::MAX),
    }
}

/// Waits until the timeout (`None`: no limit); returns how many slots are ready.
#[inline(always)]
pub(crate) fn wait(
    calls: &mut Calls,
    slots: &mut [Slot],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    WaitCall::poll(calls, slots, timeout).issue()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_rounded_up_and_saturate() {
        assert_eq!(round_up(None), -1);
        assert_eq!(round_up(Some(Duration::ZERO)), 0);
        assert_eq!(round_up(Some(Duration::from_nanos(1))), 1);
        assert_eq!(round_up(Some(Duration::from_millis(1))), 1);
        assert_eq!(round_up(Some(Duration::from_nanos(1_000_001))), 2);
        assert_eq!(round_up(Some(Duration::MAX)), i32::MAX);
    }
}
