//! As many threads as processors, each with its own epoll set over its share of the descriptors,
//! like servers with worker threads. The shares are dealt out in turn, so that neighbours are on
//! different threads.

use std::thread::{Builder, JoinHandle};

use crate::error::{Doing, Result};
use crate::subject::Turn;
use crate::subject::raw_epoll::{LEVEL, RawEpoll};
use crate::threads::counters::SharedCounters;
use crate::threads::subject::input::{Input, Reading};
use crate::threads::subject::one_thread::do_not_block;

struct Pool {
    own: RawEpoll,
    counters: SharedCounters,
    others: Vec<JoinHandle<Result<()>>>,
}

pub(super) fn set_up<'a>(input: Input<'a>) -> Result<Box<dyn Reading + 'a>> {
    do_not_block(input)?;
    let workers = input.processors.clamp(1, input.pairs.len().max(1));
    let share =
        |worker| RawEpoll::over(input.pairs.readers(), LEVEL, |pair| pair % workers == worker);
    let mut others = Vec::with_capacity(workers - 1);
    for worker in 1..workers {
        let (mut share, counters) = (share(worker)?, input.counters.clone());
        let thread = Builder::new().spawn(move || read_all(&mut share, counters));
        others.push(thread.doing("starting a worker thread")?);
    }
    Ok(Box::new(Pool { own: share(0)?, counters: input.counters.clone(), others }))
}

fn read_all(share: &mut RawEpoll, mut counters: SharedCounters) -> Result<()> {
    while share.turn(&mut counters)? {}
    Ok(())
}

impl Reading for Pool {
    fn threads(&self) -> usize {
        self.others.len() + 1
    }

    fn read_on(mut self: Box<Self>) -> Result<()> {
        read_all(&mut self.own, self.counters)?;
        for thread in self.others {
            // A thread that panicked has printed a message, and its bytes are missing.
            thread.join().unwrap_or(Ok(()))?;
        }
        Ok(())
    }
}
