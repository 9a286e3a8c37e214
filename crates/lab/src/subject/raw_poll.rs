//! `poll(2)` as its manual page shows it: one array, a blocking call, a walk that stops after the
//! last ready entry.

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::subject::work::{ReadLog, Subject};
use crate::sys::poll;

struct RawPoll {
    set: Vec<libc::pollfd>,
    waits: u64,
}

pub(super) fn build(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let entry = |&fd: &i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    Ok(Box::new(RawPoll { set: pairs.readers().iter().map(entry).collect(), waits: 0 }))
}

impl Subject for RawPoll {
    fn round(&mut self, active: &[u32], log: &mut ReadLog) -> Result<()> {
        while log.bytes() < active.len() {
            self.waits += 1;
            let mut ready = poll::wait(&mut self.set);
            if ready < 0 {
                return Err(Error::last("poll"));
            }
            for (pair, entry) in self.set.iter().enumerate() {
                if entry.revents != 0 {
                    log.read(pair, entry.fd);
                    ready -= 1;
                    if ready == 0 {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        Some(self.waits)
    }
}
