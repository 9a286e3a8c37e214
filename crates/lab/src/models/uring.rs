//! Registered with io_uring: a multishot poll for each descriptor, which reports again and again.
//!
//! A poll reports when data arrives and is silent about data that is there already, like an edge.
//! Each round's bytes are read to the last, so nothing more is needed. Where the kernel ends a poll
//! (when the queue of completions is full), its last report says so, and the loop arms it again.
//! Arming checks the present state, so events in between are not lost. In each call the kernel does
//! the deferred work of about twenty completions unless the caller waits for more; a loop that
//! cannot know how many will come waits for one, and so does this one.

use std::os::fd::RawFd;

use crate::channel::Pairs;
use crate::error::{Doing, Error, Result};
use crate::subject::{ReadLog, Subject};
use crate::sys::uring::{Event, Polls};

struct Uring<'a> {
    polls: Polls,
    readers: &'a [RawFd],
    events: Vec<Event>,
}

pub(super) fn build(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    Ok(Box::new(with_room(pairs, pairs.len())?))
}

/// Creates a queue for `completions` completions.
fn with_room(pairs: &Pairs, completions: usize) -> Result<Uring<'_>> {
    let completions = u32::try_from(completions).unwrap_or(u32::MAX >> 1);
    let failed = |doing: &str, e| Error::system(doing.to_owned(), e);
    let mut polls = Polls::new(pairs.len(), completions)
        .map_err(|e| failed("setting up an io_uring with deferred work (Linux 6.1)", e))?;
    for (pair, &fd) in pairs.readers().iter().enumerate() {
        polls.arm(pair, fd).map_err(|e| failed("arming a multishot poll", e))?;
    }
    polls.ring.submit().map_err(|e| failed("arming multishot polls", e))?;
    let events = Vec::with_capacity(pairs.len() * 2);
    Ok(Uring { polls, readers: pairs.readers(), events })
}

impl Subject for Uring<'_> {
    #[inline(always)]
    fn turn(&mut self, _active: &[u32], log: &mut ReadLog) -> Result<()> {
        self.events.clear();
        self.polls.wait(&mut self.events).doing("waiting in an io_uring")?;
        for event in &self.events {
            if let Some(code) = event.error {
                return Err(Error::system(
                    format!("polling descriptor {} in an io_uring", self.readers[event.number]),
                    std::io::Error::from_raw_os_error(code),
                ));
            }
            log.read(event.number, self.readers[event.number]);
            if !event.more {
                self.polls
                    .arm(event.number, self.readers[event.number])
                    .doing("arming a multishot poll again")?;
            }
        }
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        Some(self.polls.ring.calls)
    }

    fn overflows(&self) -> Option<u64> {
        Some(self.polls.ring.overflows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Kind;
    use crate::models::trial::refused;
    use crate::subject::tests::do_round;

    #[test]
    fn with_a_full_queue_every_byte_is_read_all_the_same() {
        for kind in Kind::ALL {
            let pairs = Pairs::open(kind, 40).unwrap();
            let mut subject = match with_room(&pairs, 2) {
                Ok(subject) => subject,
                Err(error) if refused(&error) => return,
                Err(error) => panic!("{error}"),
            };
            let mut log = ReadLog::new(pairs.len());
            for round in 0..30u8 {
                let active: Vec<u32> =
                    (0..40).filter(|pair| round % 2 == 0 || pair % 3 == 0).collect();
                do_round(&mut subject, &pairs, &active, round, &mut log);
            }
            // The network may be late, and then the completions come one at a time.
            assert!(kind == Kind::Tcp || subject.overflows().unwrap() > 0);
        }
    }
}
