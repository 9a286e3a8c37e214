//! The process of a server, which this one watches until its end.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use futures_lite::future::or;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use superpoll_rt::{AsyncFd, time};

/// The time between two looks at a process that cannot be watched.
const LOOK: Duration = Duration::from_millis(50);

/// A process, by its number. It is the same one even if the number is another process' later.
pub(crate) struct ServerProcess {
    pub number: u32,
    /// Readable when the process has ended; none before Linux 5.3.
    watched: Option<AsyncFd<OwnedFd>>,
}

/// Whether there is a process of that number.
pub(super) fn exists(number: u32) -> bool {
    Path::new(&format!("/proc/{number}")).exists()
}

/// Returns the number of a process' parent.
pub(super) fn parent(number: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name, in parentheses, may have blanks and parentheses itself.
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

impl ServerProcess {
    pub(crate) fn new(number: u32) -> ServerProcess {
        let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
        let watched = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        ServerProcess { number, watched: watched.map(AsyncFd::nonblocking) }
    }

    /// Waits until the process has ended.
    pub(crate) async fn ended(&self) {
        if let Some(watched) = &self.watched {
            while let Ok(ready) = watched.readable().await {
                // The first time it is only a guess.
                let mut asked = [PollFd::new(watched.get_ref(), PollFlags::IN)];
                let none = rustix::event::Timespec::default();
                if rustix::event::poll(&mut asked, Some(&none)).is_ok_and(|count| count > 0) {
                    return;
                }
                ready.clear();
            }
        }
        while exists(self.number) {
            time::sleep(LOOK).await;
        }
    }

    /// Whether the process ends within a time.
    pub(super) async fn ends_within(&self, patience: Duration) -> bool {
        let ends = async {
            self.ended().await;
            true
        };
        let waits = async {
            time::sleep(patience).await;
            false
        };
        or(ends, waits).await
    }
}
