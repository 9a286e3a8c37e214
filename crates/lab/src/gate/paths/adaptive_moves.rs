//! A load that keeps the adaptive back-end moving: some pipes are ready in each pass, and from time
//! to time other pipes take their turn.
//!
//! There are few enough pipes for the array to stay below the length at which its passes start
//! being timed.

use superpoll::diagnostics::Costs;
use superpoll::{BackendKind, Events, Interest, Poller};

use crate::error::Result;
use crate::gate::paths::work::{Pipe, Work, on, wrong};

const PIPES: usize = 24;

/// Pipes that are ready in a pass.
const READY: usize = 6;

/// After this many passes, two other pipes replace two of the ready ones.
const SHIFT_EVERY: u64 = 64;

pub(super) fn set_up() -> Result<Box<dyn Work>> {
    let builder = Poller::builder().backend(BackendKind::Adaptive).costs(Costs::ASSUMED);
    let mut poller = builder.build()?;
    let mut pipes = Vec::new();
    for _ in 0..PIPES {
        let pipe = Pipe::open()?;
        poller.register(&pipe.reader, Interest::READABLE)?;
        pipes.push(pipe);
    }
    let (mut events, mut passes) = (Events::with_limit(PIPES), 0);
    on(poller, move |poller, count| {
        for _ in 0..count {
            let first = 2 * (passes / SHIFT_EVERY) as usize;
            passes += 1;
            let ready = || (first..first + READY).map(|place| &pipes[place % PIPES]);
            ready().try_for_each(Pipe::write)?;
            poller.wait(&mut events, None)?;
            if events.len() != READY {
                return wrong("adaptive-moves", format!("{} events", events.len()));
            }
            ready().try_for_each(Pipe::read)?;
        }
        let stats = poller.stats();
        if passes > 2 * SHIFT_EVERY && stats.moves_to_hot.min(stats.moves_to_cold) == 0 {
            return wrong("adaptive-moves", "nothing has moved");
        }
        Ok(())
    })
}
