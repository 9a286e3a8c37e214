//! `poll(2)` in one thread, as its manual page shows it: one array, and a scan that stops after the
//! last ready entry.

use crate::error::{Error, Result};
use crate::sys::{descriptor, poll};
use crate::threads::counters::{Outcome, SharedCounters};
use crate::threads::subject::input::{Input, Reading};

struct RawPoll {
    set: Vec<libc::pollfd>,
    counters: SharedCounters,
}

pub(super) fn set_up<'a>(input: Input<'a>) -> Result<Box<dyn Reading + 'a>> {
    let mut set = Vec::with_capacity(input.readers.len());
    for &fd in input.readers {
        descriptor::set_blocking(fd, false)
            .map_err(|e| Error::system(format!("having descriptor {fd} not block"), e))?;
        set.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    }
    Ok(Box::new(RawPoll { set, counters: input.counters.clone() }))
}

impl Reading for RawPoll {
    fn read_on(mut self: Box<Self>) -> Result<()> {
        loop {
            let mut ready = poll::wait(&mut self.set);
            if ready < 0 {
                return Err(Error::last("poll"));
            }
            for (pair, entry) in self.set.iter().enumerate() {
                if entry.revents != 0 {
                    if self.counters.read(pair, entry.fd) == Outcome::Ended {
                        return Ok(());
                    }
                    ready -= 1;
                    if ready == 0 {
                        break;
                    }
                }
            }
        }
    }
}
