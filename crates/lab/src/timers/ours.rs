//! Our runtime. The wheel is the same with every back-end; epoll is as precise as any.

use std::time::Instant;

use superpoll_rt::time::{sleep, sleep_until};
use superpoll_rt::{BackendKind, Runtime, spawn};

use crate::error::{Error, Result};
use crate::sys::process;
use crate::timers::load::{self, Ended, Order, Plan, Taken};
use crate::timers::subject::Timers;

struct Ours {
    runtime: Runtime,
}

fn said(error: impl std::fmt::Display) -> Error {
    Error::usage(error.to_string())
}

pub(super) fn start() -> Result<Box<dyn Timers>> {
    let runtime = Runtime::builder().backend(BackendKind::Epoll).build().map_err(said)?;
    Ok(Box::new(Ours { runtime }))
}

impl Timers for Ours {
    fn take_back(&mut self, plan: &Plan, order: Order) -> Result<Taken> {
        let work = load::within(|| load::take_back(plan, order, sleep));
        self.runtime.block_on(work).map_err(said)
    }

    fn let_end(&mut self, plan: &Plan) -> Result<Ended> {
        let before = process::processor_time();
        let work = async {
            let start = Instant::now();
            let tasks: Vec<_> = plan
                .near
                .iter()
                .map(|&near| {
                    spawn(async move {
                        sleep_until(start + near).await;
                        load::lateness(start + near)
                    })
                })
                .collect();
            let mut found = Vec::with_capacity(tasks.len());
            for task in tasks {
                found.push(task.await.map_err(said)?);
            }
            Ok::<_, Error>(found)
        };
        let found = self.runtime.block_on(work).map_err(said)??;
        Ok(Ended::new(process::processor_time() - before, found))
    }
}
