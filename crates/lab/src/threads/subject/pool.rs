//! As many threads as processors, each with its own epoll set over its share of the descriptors,
//! like servers with worker threads. The shares are dealt out in turn, so that neighbours are on
//! different threads.

use std::thread::{Builder, JoinHandle};

use super::raw_epoll::Loop;
use crate::error::{Error, Result};
use crate::threads::subject::input::{Input, Reading};

struct Pool {
    own: Loop,
    others: Vec<JoinHandle<Result<()>>>,
}

pub(super) fn set_up<'a>(input: Input<'a>) -> Result<Box<dyn Reading + 'a>> {
    let workers = input.processors.clamp(1, input.readers.len().max(1));
    let share = |worker: usize| Loop::over(input, |pair| pair % workers == worker);
    let mut others = Vec::with_capacity(workers - 1);
    for worker in 1..workers {
        let mut share = share(worker)?;
        let thread = Builder::new().spawn(move || share.turn());
        others.push(thread.map_err(|e| Error::system("starting a worker thread", e))?);
    }
    Ok(Box::new(Pool { own: share(0)?, others }))
}

impl Reading for Pool {
    fn threads(&self) -> usize {
        self.others.len() + 1
    }

    fn read_on(mut self: Box<Self>) -> Result<()> {
        self.own.turn()?;
        for thread in self.others {
            // A thread that panicked has printed a message, and its bytes are missing.
            thread.join().unwrap_or(Ok(()))?;
        }
        Ok(())
    }
}
