//! A loop over events in one thread.

use crate::channel::Pairs;
use crate::error::{Doing, Result};
use crate::subject::Turn;
use crate::sys::descriptor;
use crate::threads::counters::SharedCounters;
use crate::threads::subject::input::{Input, Reading};

struct OneThread<L> {
    run: L,
    counters: SharedCounters,
}

pub(super) fn set_up<'a, L: Turn + 'a>(
    input: Input<'a>,
    build: impl FnOnce(&'a Pairs) -> Result<L>,
) -> Result<Box<dyn Reading + 'a>> {
    do_not_block(input)?;
    Ok(Box::new(OneThread { run: build(input.pairs)?, counters: input.counters.clone() }))
}

/// Has the readers not block, whatever the subject before has made of them.
pub(super) fn do_not_block(input: Input<'_>) -> Result<()> {
    input.pairs.readers().iter().try_for_each(|&fd| {
        descriptor::set_blocking(fd, false).doing(format_args!("having descriptor {fd} not block"))
    })
}

impl<L: Turn> Reading for OneThread<L> {
    fn read_on(mut self: Box<Self>) -> Result<()> {
        while self.run.turn(&mut self.counters)? {}
        Ok(())
    }
}
