//! tokio's `current_thread` runtime, whose wheel has a resolution of a millisecond.

use std::time::Instant;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, sleep_until};

use crate::error::{Error, Result};
use crate::sys::process;
use crate::timers::load::{self, Ended, Order, Plan, Taken};
use crate::timers::subject::Timers;

struct Tokio {
    runtime: Runtime,
}

pub(super) fn start() -> Result<Box<dyn Timers>> {
    let runtime = Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| Error::system("starting tokio", error))?;
    Ok(Box::new(Tokio { runtime }))
}

impl Timers for Tokio {
    fn take_back(&mut self, plan: &Plan, order: Order) -> Result<Taken> {
        // Otherwise tokio's budget would make a task that polls more than 128 timers wait without
        // setting a timer.
        let work = load::within(|| load::take_back(plan, order, sleep));
        Ok(self.runtime.block_on(tokio::task::unconstrained(work)))
    }

    fn let_end(&mut self, plan: &Plan) -> Result<Ended> {
        let before = process::processor_time();
        let work = async {
            let start = Instant::now();
            let tasks: Vec<_> = plan
                .near
                .iter()
                .map(|&near| {
                    tokio::spawn(async move {
                        sleep_until((start + near).into()).await;
                        load::lateness(start + near)
                    })
                })
                .collect();
            let mut found = Vec::with_capacity(tasks.len());
            for task in tasks {
                found.push(task.await.map_err(|error| Error::usage(error.to_string()))?);
            }
            Ok::<_, Error>(found)
        };
        let found = self.runtime.block_on(work)?;
        Ok(Ended::new(process::processor_time() - before, found))
    }
}
