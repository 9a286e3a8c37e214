//! Our runtime. The wheel is the same with every back-end; epoll is as precise as any.

use superpoll_rt::time::{sleep, sleep_until};
use superpoll_rt::{BackendKind, Runtime, spawn};

use crate::error::{Error, Result};
use crate::timers::load::{self, Late, Order, Plan, Taken};
use crate::timers::subject::Timers;

pub(super) fn start() -> Result<Box<dyn Timers>> {
    Ok(Box::new(Runtime::builder().backend(BackendKind::Epoll).build()?))
}

impl Timers for Runtime {
    fn take_back(&mut self, plan: &Plan, order: Order) -> Result<Taken> {
        self.try_block_on(load::within(|| load::take_back(plan, order, sleep))).map_err(Error::from)
    }

    fn let_end(&mut self, plan: &Plan) -> Result<Vec<Late>> {
        let start = |end| {
            spawn(async move {
                sleep_until(end).await;
                load::lateness(end)
            })
        };
        self.try_block_on(load::let_end(plan, start))?
    }
}
