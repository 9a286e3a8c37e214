//! A wait that finds one event, and the read that follows.

use std::os::fd::{AsRawFd, OwnedFd};

use superpoll::diagnostics::Costs;
use superpoll::{BackendKind, Events, Interest, Key, Poller};

use crate::error::{Error, Result};
use crate::gate::counted::{self, Counted};
use crate::gate::paths::work::{Work, wrong};
use crate::sys::descriptor;

/// Pipes that are watched.
const PIPES: usize = 8;

struct Wait {
    poller: Poller,
    pipes: Vec<(Key, OwnedFd, OwnedFd)>,
    events: Events,
    next: usize,
}

pub(super) fn set_up(kind: BackendKind) -> Result<Box<dyn Work>> {
    let mut poller = Poller::builder().backend(kind).costs(Costs::ASSUMED).build()?;
    let mut pipes = Vec::new();
    for _ in 0..PIPES {
        let (reader, writer) =
            descriptor::pipe().map_err(|e| Error::system("opening a pipe", e))?;
        let key = poller.register(&reader, Interest::READABLE)?;
        pipes.push((key, reader, writer));
    }
    Ok(Box::new(Wait { poller, pipes, events: Events::with_limit(PIPES), next: 0 }))
}

impl Work for Wait {
    fn operate(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            let (key, reader, writer) = &self.pipes[self.next];
            self.next = (self.next + 1) % PIPES;
            if !descriptor::write_byte(writer.as_raw_fd(), b'o') {
                return Err(Error::last("writing to a pipe"));
            }
            self.poller.wait(&mut self.events, None)?;
            let mut events = self.events.iter();
            let found = events.next().map(superpoll::Event::key);
            if found != Some(*key) || events.next().is_some() {
                return wrong("wait", format!("{:?} instead of {key:?}", self.events));
            }
            if descriptor::read_byte(reader.as_raw_fd()) != Some(b'o') {
                return Err(Error::last("reading from a pipe"));
            }
        }
        Ok(())
    }

    fn counted(&self) -> Counted {
        counted::of_poller(&self.poller)
    }
}
