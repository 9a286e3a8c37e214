//! tokio's `current_thread` runtime, whose wheel has a resolution of a millisecond.

use std::time::Instant;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, sleep_until};

use crate::error::{Doing, Result};
use crate::timers::load::{self, Late, Order, Plan, Taken};
use crate::timers::trial::Timers;

pub(super) fn start() -> Result<Box<dyn Timers>> {
    let runtime = Builder::new_current_thread().enable_time().build();
    Ok(Box::new(runtime.doing("starting tokio")?))
}

impl Timers for Runtime {
    fn take_back(&mut self, plan: &Plan, order: Order) -> Result<Taken> {
        // Otherwise tokio's budget would make a task that polls more than 128 timers wait without
        // setting a timer.
        let work = load::within(|| load::take_back(plan, order, sleep));
        Ok(self.block_on(tokio::task::unconstrained(work)))
    }

    fn let_end(&mut self, plan: &Plan) -> Result<Vec<Late>> {
        let start = |end: Instant| {
            tokio::spawn(async move {
                sleep_until(end.into()).await;
                load::lateness(end)
            })
        };
        self.block_on(load::let_end(plan, start))
    }
}
