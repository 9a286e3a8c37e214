//! The facilities of this machine: limits, calls of newer kernels, and which back-ends work.

use std::io::Write;
use std::time::Duration;

use superpoll::{BackendKind, Events, Interest, Poller};

use crate::sys;

/// This thread's timer slack in nanoseconds: by how much a timeout may end late.
pub fn timer_slack() -> Option<u64> {
    rustix::thread::current_timer_slack().ok()
}

/// How many descriptors a user may have in epoll sets.
pub fn epoll_watches() -> Option<u64> {
    crate::environment::line("/proc/sys/fs/epoll/max_user_watches")?.parse().ok()
}

/// The sysctl that switches io_uring off: 0 leaves it on, 1 switches it off for processes without
/// privileges, 2 for all. `None` where there is no such sysctl (before Linux 6.6).
pub fn io_uring_disabled() -> Option<u64> {
    crate::environment::line("/proc/sys/kernel/io_uring_disabled")?.parse().ok()
}

/// Tries a wait on epoll with a timeout in nanoseconds (`epoll_pwait2`, from Linux 5.11).
///
/// # Errors
///
/// The kernel's.
pub fn epoll_pwait2() -> std::io::Result<()> {
    sys::try_pwait2(&rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?)
}

/// Makes a back-end watch a pipe and report a byte that is written to it. Returns a limit of the
/// back-end on this machine, if there is one.
///
/// # Errors
///
/// The reason why the back-end does not work.
pub fn backend(kind: BackendKind) -> Result<Option<String>, String> {
    let said = |error: superpoll::Error| error.to_string();
    let mut poller = Poller::builder().backend(kind).build().map_err(said)?;
    let (reader, mut writer) = std::io::pipe().map_err(|error| format!("no pipe: {error}"))?;
    let key = poller.register(&reader, Interest::READABLE).map_err(said)?;
    let mut events = Events::with_limit(4);
    poller.wait(&mut events, Some(Duration::ZERO)).map_err(said)?;
    if let Some((_, error)) = events.refusals().first() {
        return Err(error.to_string());
    }
    if !events.is_empty() {
        return Err("it reports an empty pipe as ready".to_owned());
    }
    writer.write_all(b"x").map_err(|error| format!("no write to a pipe: {error}"))?;
    poller.wait(&mut events, Some(Duration::from_secs(1))).map_err(said)?;
    match events.iter().next() {
        Some(event) if event.key() == key && event.is_readable() => {}
        _ => return Err("it does not report a byte in a pipe".to_owned()),
    }
    let (_, hard) = superpoll::limits::nofile();
    Ok((kind == BackendKind::Select && hard > 1024)
        .then(|| format!("only descriptors 0 to 1023 of the {hard} this process may open")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_ends_that_conformance_relies_on_work_here() {
        for kind in BackendKind::ALL {
            let limits = backend(kind).unwrap();
            assert!(limits.is_none() || kind == BackendKind::Select);
        }
        assert!(timer_slack().is_some_and(|slack| slack > 0));
    }
}
