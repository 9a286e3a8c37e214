//! `poll` and `ppoll`.

use std::io;
use std::time::{Duration, Instant};

use crate::stats::Calls;
use crate::sys::limits;
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

/// How often slots are looked at that are too many for one call.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until the timeout (`None`: no limit); returns how many slots are ready.
#[inline(always)]
pub(crate) fn wait(
    calls: &mut Calls,
    slots: &mut [Slot],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let answer = WaitCall::poll(calls, slots, timeout).issue();
    answer.or_else(|error| wait_in_parts(calls, slots, timeout, error))
}

/// Waits for slots after a call for all of them has failed.
///
/// `poll(2)` refuses more slots than the process may have descriptors (`EINVAL`), open or not. A
/// limit that is lowered while a process runs (`prlimit(2)`) closes nothing, so that there can be
/// more slots than that. They are looked at part by part then, at most [`PAUSE`] late.
///
/// # Errors
///
/// Any other error of the call, and that of a limit of zero.
#[cold]
pub(crate) fn wait_in_parts(
    calls: &mut Calls,
    slots: &mut [Slot],
    timeout: Option<Duration>,
    error: io::Error,
) -> io::Result<usize> {
    let limit = usize::try_from(limits::nofile().0).unwrap_or(usize::MAX);
    if error.raw_os_error() != Some(libc::EINVAL) || slots.len() <= limit || limit == 0 {
        return Err(error);
    }
    let begun = Instant::now();
    loop {
        let mut ready = 0;
        for part in slots.chunks_mut(limit) {
            ready += WaitCall::poll(calls, part, Some(Duration::ZERO)).issue()?;
        }
        let left = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
        if ready > 0 || left.is_some_and(|left| left.is_zero()) {
            return Ok(ready);
        }
        std::thread::sleep(left.map_or(PAUSE, |left| left.min(PAUSE)));
    }
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
