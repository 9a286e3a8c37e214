//! A thread for each descriptor, asleep in a read. There is no poller at all: the kernel's
//! scheduler is the dispatcher.

use std::thread::{Builder, JoinHandle};

use crate::error::{Doing, Error, Result};
use crate::sys::{descriptor, process};
use crate::threads::counters::Outcome;
use crate::threads::subject::input::{Input, Reading};

/// Address space for a stack. Only the pages that are touched take memory: two or three.
const STACK: usize = 64 * 1024;

struct ThreadEach {
    threads: Vec<JoinHandle<()>>,
}

pub(super) fn set_up<'a>(input: Input<'a>) -> Result<Box<dyn Reading + 'a>> {
    let mut threads = Vec::with_capacity(input.pairs.readers().len());
    for (pair, &fd) in input.pairs.readers().iter().enumerate() {
        descriptor::set_blocking(fd, true).doing(format_args!("having descriptor {fd} block"))?;
        let counters = input.counters.clone();
        let read = move || {
            counters.arrive();
            while counters.read(pair, fd) != Outcome::Ended {}
        };
        let thread = Builder::new().stack_size(STACK).spawn(read).map_err(|source| {
            input.counters.limited_to(pair as u64);
            Error::system(
                format!("starting thread {} of {}", pair + 1, input.pairs.readers().len()),
                source,
            )
        })?;
        threads.push(thread);
    }
    while input.counters.arrived() < threads.len() as u64 {
        process::sleep(200_000);
    }
    Ok(Box::new(ThreadEach { threads }))
}

impl Reading for ThreadEach {
    fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    fn read_on(self: Box<Self>) -> Result<()> {
        for thread in self.threads {
            // A thread that panicked has printed a message, and its bytes are missing.
            let _ = thread.join();
        }
        Ok(())
    }
}
