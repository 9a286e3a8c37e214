//! The kernel's own `poll`, without a poller in between: the reference for the meaning of level.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};

use superpoll::{Interest, Mode, Readiness, Watch};

use super::real::Engine;
use super::{Ready, Tag};
use crate::sys;

/// Raw `poll`.
#[derive(Debug, Default)]
pub struct RawPoll {
    entries: BTreeMap<Tag, (OwnedFd, Watch)>,
}

impl Engine for RawPoll {
    fn name(&self) -> String {
        "raw poll".to_owned()
    }

    fn register(&mut self, tag: Tag, fd: OwnedFd, watch: Watch) -> Result<(), (OwnedFd, String)> {
        self.entries.insert(tag, (fd, watch));
        Ok(())
    }

    fn modify(&mut self, tag: Tag, watch: Watch) -> Result<(), String> {
        self.entries.get_mut(&tag).ok_or("not registered")?.1 = watch;
        Ok(())
    }

    fn deregister(&mut self, tag: Tag) -> Result<OwnedFd, String> {
        Ok(self.entries.remove(&tag).ok_or("not registered")?.0)
    }

    fn close(&mut self, tag: Tag) -> Result<(), String> {
        self.deregister(tag).map(drop)
    }

    fn wait(&mut self, _limit: usize, nap: bool) -> Result<Ready, String> {
        let armed: Vec<Tag> = self
            .entries
            .iter()
            .filter(|(_, (_, watch))| !watch.interest.is_empty())
            .map(|(&tag, _)| tag)
            .collect();
        let mut slots: Vec<libc::pollfd> = armed
            .iter()
            .map(|tag| {
                let (fd, watch) = &self.entries[tag];
                libc::pollfd { fd: fd.as_raw_fd(), events: watch.interest.poll_bits(), revents: 0 }
            })
            .collect();
        sys::poll(&mut slots, i32::from(nap)).map_err(|error| error.to_string())?;
        let mut ready = Ready::new();
        for (tag, slot) in armed.into_iter().zip(slots) {
            if slot.revents == 0 {
                continue;
            }
            ready.push((tag, Readiness::from_poll_bits(slot.revents)));
            if let Some((_, watch)) = self.entries.get_mut(&tag)
                && watch.mode == Mode::OneShot
            {
                watch.interest = Interest::NONE;
            }
        }
        Ok(ready)
    }

    fn has_limit(&self) -> bool {
        false
    }
}
