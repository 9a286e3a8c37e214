//! Our adaptive poller in one thread, as users write their loop: a table addressed by the key's
//! index.

use std::os::fd::RawFd;

use superpoll::{BackendKind, Events, Interest, Poller, Watch};

use crate::error::{Error, Result};
use crate::sys::descriptor;
use crate::threads::counters::{Outcome, SharedCounters};
use crate::threads::subject::input::{Input, Reading};

struct Ours {
    poller: Poller,
    events: Events,
    /// By index of the key: the pair and its descriptor.
    table: Vec<(usize, RawFd)>,
    counters: SharedCounters,
}

pub(super) fn set_up<'a>(input: Input<'a>) -> Result<Box<dyn Reading + 'a>> {
    let mut poller = Poller::builder().backend(BackendKind::Adaptive).build()?;
    let mut table = vec![(0, -1); input.readers.len()];
    for (pair, handle) in input.handles.iter().enumerate() {
        let fd = input.readers[pair];
        descriptor::set_blocking(fd, false)
            .map_err(|e| Error::system(format!("having descriptor {fd} not block"), e))?;
        let place = poller.register(handle, Watch::new(Interest::READABLE))?.index() as usize;
        if place >= table.len() {
            table.resize(place + 1, (0, -1));
        }
        table[place] = (pair, fd);
    }
    poller.flush();
    let events = Events::with_limit(input.readers.len());
    Ok(Box::new(Ours { poller, events, table, counters: input.counters.clone() }))
}

impl Reading for Ours {
    fn read_on(mut self: Box<Self>) -> Result<()> {
        loop {
            self.poller.wait(&mut self.events, None)?;
            for event in &self.events {
                let (pair, fd) = self.table[event.key().index() as usize];
                if self.counters.read(pair, fd) == Outcome::Ended {
                    return Ok(());
                }
            }
            if let Some((_, error)) = self.events.refusals().first() {
                return Err(Error::usage(error.to_string()));
            }
        }
    }
}
