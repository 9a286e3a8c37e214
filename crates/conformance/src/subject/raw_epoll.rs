//! The kernel's own `epoll`, without a poller in between: the reference for the meaning of edge,
//! one-shot and exclusive.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use superpoll::{Interest, Mode, Readiness, Watch};

use super::real::Engine;
use super::{Ready, Tag};
use crate::sys;

struct Entry {
    fd: OwnedFd,
    watch: Watch,
    told: Option<(Interest, Mode)>,
    /// The kernel refuses to watch it: a regular file.
    always: bool,
    /// Whether an always-ready file with an edge must be reported for its last change.
    due: bool,
}

/// Raw `epoll`.
pub struct RawEpoll {
    set: OwnedFd,
    entries: BTreeMap<Tag, Entry>,
}

impl std::fmt::Debug for RawEpoll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawEpoll").field("entries", &self.entries.len()).finish()
    }
}

impl RawEpoll {
    /// Creates an empty set.
    ///
    /// # Errors
    ///
    /// The errors of `epoll_create1(2)`.
    pub fn new() -> io::Result<RawEpoll> {
        Ok(RawEpoll { set: sys::epoll_create()?, entries: BTreeMap::new() })
    }

    fn control(&self, operation: i32, entry: &Entry, tag: Tag) -> io::Result<()> {
        let flags = match entry.watch.mode {
            Mode::Edge | Mode::Auto => libc::EPOLLET,
            Mode::OneShot => libc::EPOLLONESHOT,
            Mode::Exclusive => libc::EPOLLEXCLUSIVE,
            _ => 0,
        };
        let bits = entry.watch.interest.poll_bits() as u32 | flags as u32;
        sys::epoll_control(&self.set, operation, entry.fd.as_raw_fd(), bits, tag)
    }

    fn flush(&mut self) -> io::Result<()> {
        let tags: Vec<Tag> = self.entries.keys().copied().collect();
        for tag in tags {
            let Some(mut entry) = self.entries.remove(&tag) else { continue };
            let outcome = self.update_kernel(&mut entry, tag);
            self.entries.insert(tag, entry);
            outcome?;
        }
        Ok(())
    }

    fn update_kernel(&self, entry: &mut Entry, tag: Tag) -> io::Result<()> {
        let wanted = (entry.watch.interest, entry.watch.mode);
        if entry.told == Some(wanted) {
            return Ok(());
        }
        entry.due = true;
        let exclusive =
            wanted.1 == Mode::Exclusive || matches!(entry.told, Some((_, Mode::Exclusive)));
        if entry.told.is_some() && !entry.always && (exclusive || wanted.0.is_empty()) {
            // An exclusive registration cannot be modified, and one without interest is best not
            // watched.
            let _ = self.control(libc::EPOLL_CTL_DEL, entry, tag);
            entry.told = None;
        }
        if wanted.0.is_empty() {
            entry.told = None;
            return Ok(());
        }
        let known = entry.told.is_some();
        entry.told = Some(wanted);
        if entry.always {
            return Ok(());
        }
        let operation = if known { libc::EPOLL_CTL_MOD } else { libc::EPOLL_CTL_ADD };
        match self.control(operation, entry, tag) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                entry.always = true;
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn forget(&mut self, tag: Tag) -> Result<OwnedFd, String> {
        let entry = self.entries.remove(&tag).ok_or("not registered")?;
        if entry.told.is_some() && !entry.always {
            self.control(libc::EPOLL_CTL_DEL, &entry, tag).map_err(|error| error.to_string())?;
        }
        Ok(entry.fd)
    }
}

impl Engine for RawEpoll {
    fn name(&self) -> String {
        "raw epoll".to_owned()
    }

    fn register(&mut self, tag: Tag, fd: OwnedFd, watch: Watch) -> Result<(), (OwnedFd, String)> {
        self.entries.insert(tag, Entry { fd, watch, told: None, always: false, due: false });
        Ok(())
    }

    fn modify(&mut self, tag: Tag, watch: Watch) -> Result<(), String> {
        self.entries.get_mut(&tag).ok_or("not registered")?.watch = watch;
        Ok(())
    }

    fn deregister(&mut self, tag: Tag) -> Result<OwnedFd, String> {
        self.forget(tag)
    }

    fn close(&mut self, tag: Tag) -> Result<(), String> {
        self.forget(tag).map(drop)
    }

    fn wait(&mut self, limit: usize, nap: bool) -> Result<Ready, String> {
        let said = |error: io::Error| error.to_string();
        self.flush().map_err(said)?;
        let always = self.entries.values().any(|entry| entry.always);
        let milliseconds = i32::from(nap && !always);
        let found = sys::epoll_wait(&self.set, limit.max(256), milliseconds).map_err(said)?;
        let mut ready = Ready::new();
        for (tag, bits) in found {
            let Some(entry) = self.entries.get_mut(&tag) else {
                return Err(format!("an event for a removed registration: {tag}"));
            };
            ready.push((tag, Readiness::from_poll_bits(bits as i16)));
            if entry.watch.mode == Mode::OneShot {
                entry.watch.interest = Interest::NONE;
                // Still in the set, disarmed.
                entry.told = Some((Interest::NONE, Mode::OneShot));
            }
        }
        for (&tag, entry) in self.entries.iter_mut().filter(|(_, entry)| entry.always) {
            let wanted = entry.watch.interest & (Interest::READABLE | Interest::WRITABLE);
            let again = !matches!(entry.watch.mode, Mode::Edge | Mode::Auto);
            if !wanted.is_empty() && (again || entry.due) {
                ready.push((tag, Readiness::of(wanted)));
                entry.due = false;
                if entry.watch.mode == Mode::OneShot {
                    entry.watch.interest = Interest::NONE;
                    entry.told = Some((Interest::NONE, Mode::OneShot));
                }
            }
        }
        Ok(ready)
    }

    fn has_limit(&self) -> bool {
        false
    }
}
