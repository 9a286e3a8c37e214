//! A load that keeps the adaptive back-end moving: some pipes are ready in each pass, and from time
//! to time other pipes take their turn.
//!
//! There are few enough pipes for the array to stay below the length at which its passes start
//! being timed.

use std::os::fd::{AsRawFd, OwnedFd};

use superpoll::diagnostics::Costs;
use superpoll::{BackendKind, Events, Interest, Poller};

use crate::error::{Error, Result};
use crate::gate::counted::{self, Counted};
use crate::gate::paths::work::{Work, wrong};
use crate::sys::descriptor;

const PIPES: usize = 24;

/// Pipes that are ready in a pass.
const READY: usize = 6;

/// After this many passes, two other pipes replace two of the ready ones.
const SHIFT_EVERY: u64 = 64;

struct Moves {
    poller: Poller,
    pipes: Vec<(OwnedFd, OwnedFd)>,
    events: Events,
    passes: u64,
}

pub(super) fn set_up() -> Result<Box<dyn Work>> {
    let builder = Poller::builder().backend(BackendKind::Adaptive).costs(Costs::ASSUMED);
    let mut poller = builder.build()?;
    let mut pipes = Vec::new();
    for _ in 0..PIPES {
        let pipe = descriptor::pipe().map_err(|e| Error::system("opening a pipe", e))?;
        poller.register(&pipe.0, Interest::READABLE)?;
        pipes.push(pipe);
    }
    Ok(Box::new(Moves { poller, pipes, events: Events::with_limit(PIPES), passes: 0 }))
}

impl Moves {
    fn pass(&mut self) -> Result<()> {
        let first = 2 * (self.passes / SHIFT_EVERY) as usize;
        self.passes += 1;
        let ready = (first..first + READY).map(|place| place % PIPES);
        for place in ready.clone() {
            if !descriptor::write_byte(self.pipes[place].1.as_raw_fd(), b'o') {
                return Err(Error::last("writing to a pipe"));
            }
        }
        self.poller.wait(&mut self.events, None)?;
        if self.events.len() != READY {
            return wrong("adaptive-moves", format!("{} events", self.events.len()));
        }
        for place in ready {
            if descriptor::read_byte(self.pipes[place].0.as_raw_fd()) != Some(b'o') {
                return Err(Error::last("reading from a pipe"));
            }
        }
        Ok(())
    }
}

impl Work for Moves {
    fn operate(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            self.pass()?;
        }
        let stats = self.poller.stats();
        if self.passes > 2 * SHIFT_EVERY && stats.moves_to_hot.min(stats.moves_to_cold) == 0 {
            return wrong("adaptive-moves", "nothing has moved");
        }
        Ok(())
    }

    fn counted(&self) -> Counted {
        counted::of_poller(&self.poller)
    }
}
