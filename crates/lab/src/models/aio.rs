//! Registered with Linux AIO: a request to poll each descriptor, which reports once.
//!
//! The loop submits reported requests again before it goes back to wait, all in one call. While it
//! waits, the kernel has a request for every descriptor, and a writer completes it.

use std::os::fd::RawFd;

use crate::channel::Pairs;
use crate::error::{Doing, Result};
use crate::subject::{ReadLog, Subject};
use crate::sys::aio::{Event, Polls};

struct Aio<'a> {
    polls: Polls,
    readers: &'a [RawFd],
    events: Vec<Event>,
}

pub(super) fn build(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let mut polls =
        Polls::new(pairs.readers()).doing(format_args!("io_setup for {} requests", pairs.len()))?;
    for pair in 0..pairs.len() {
        polls.arm(pair);
    }
    polls.submit().doing("submitting polls with io_submit")?;
    let events = vec![Event::default(); pairs.len()];
    Ok(Box::new(Aio { polls, readers: pairs.readers(), events }))
}

impl Subject for Aio<'_> {
    #[inline(always)]
    fn turn(&mut self, _active: &[u32], log: &mut ReadLog) -> Result<()> {
        let count = self.polls.wait(&mut self.events).doing("waiting with io_getevents")?;
        for event in &self.events[..count] {
            let pair = event.data as usize;
            log.read(pair, self.readers[pair]);
            self.polls.arm(pair);
        }
        self.polls.submit().doing("submitting polls again with io_submit")?;
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        Some(self.polls.calls())
    }
}
