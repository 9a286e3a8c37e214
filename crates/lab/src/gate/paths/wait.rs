//! A wait that finds one event, and the read that follows.

use superpoll::diagnostics::Costs;
use superpoll::{BackendKind, Events, Interest, Poller};

use crate::error::Result;
use crate::gate::paths::work::{Pipe, Work, on, wrong};

/// Pipes that are watched.
const PIPES: usize = 8;

pub(super) fn set_up(kind: BackendKind) -> Result<Box<dyn Work>> {
    let mut poller = Poller::builder().backend(kind).costs(Costs::ASSUMED).build()?;
    let mut pipes = Vec::new();
    for _ in 0..PIPES {
        let pipe = Pipe::open()?;
        let key = poller.register(&pipe.reader, Interest::READABLE)?;
        pipes.push((key, pipe));
    }
    let (mut events, mut next) = (Events::with_limit(PIPES), 0);
    on(poller, move |poller, count| {
        for _ in 0..count {
            let (key, pipe) = &pipes[next];
            next = (next + 1) % PIPES;
            pipe.write()?;
            poller.wait(&mut events, None)?;
            let mut found = events.iter().map(superpoll::Event::key);
            if found.next() != Some(*key) || found.next().is_some() {
                return wrong("wait", format!("{events:?} instead of {key:?}"));
            }
            pipe.read()?;
        }
        Ok(())
    })
}
