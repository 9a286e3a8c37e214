//! The runtimes, by name.

use superpoll_rt::time::{sleep, sleep_until};
use superpoll_rt::{BackendKind, Runtime, spawn};

use crate::error::{Error, Result};
use crate::server::subject::{self, Entry, rival};
use crate::timers::load::{self, Late, Order, Plan, Taken};

#[cfg(feature = "rivals-rt")]
use crate::timers::tokio;

/// A runtime with timers.
pub(crate) trait Timers {
    /// Sets timers that are far ahead and cancels them.
    fn take_back(&mut self, plan: &Plan, order: Order) -> Result<Taken>;

    /// Makes a task wait for each of some timers, and waits for all; returns how late each was.
    fn let_end(&mut self, plan: &Plan) -> Result<Vec<Late>>;
}

/// Starts a runtime.
pub(crate) type Start = fn() -> Result<Box<dyn Timers>>;

/// A runtime.
pub(crate) type Subject = subject::Subject<Start>;

/// All runtimes.
pub(crate) const ALL: &[Entry<Start>] = &[
    Entry::new("superpoll-rt", "our runtime, one engine", start),
    rival!("rivals-rt", "tokio", "tokio's current_thread runtime", tokio::start as Start),
];

/// Returns the requested runtimes, each once; all that are built in if none was requested.
pub(crate) fn chosen(names: Option<&str>) -> Result<Vec<Subject>> {
    Ok(subject::chosen(ALL, names, "no runtime with timers")?.0)
}

// Our runtime. The wheel is the same with every back-end; epoll is as precise as any.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timers::load::Ended;

    #[test]
    fn every_runtime_sets_takes_back_and_lets_end_every_timer() {
        for entry in chosen(None).unwrap() {
            let mut timers = (entry.start)().unwrap();
            for count in [1, 3, 700] {
                let plan = Plan::new(count, 1);
                for order in [Order::AsMade, Order::Shuffled, Order::OneByOne] {
                    let taken = timers.take_back(&plan, order).unwrap();
                    assert_eq!(taken.check(&plan), Ok(()), "{} {order:?}", entry.name);
                }
            }
            let plan = Plan::new(200, 2);
            let ended = Ended::new(1, timers.let_end(&plan).unwrap());
            assert_eq!(ended.check(&plan), Ok(()), "{}", entry.name);
        }
    }

    #[test]
    fn each_is_chosen_once_and_only_by_its_name() {
        let built_in = 1 + usize::from(cfg!(feature = "rivals-rt"));
        assert_eq!(chosen(None).unwrap().len(), built_in);
        assert_eq!(chosen(Some("superpoll-rt,all")).unwrap().len(), built_in);
        let error = chosen(Some("superpoll-rt,libuv")).unwrap_err().to_string();
        assert!(error.contains("\"libuv\"") && error.contains("superpoll-rt, tokio"), "{error}");
        if let Err(error) = chosen(Some("tokio")) {
            assert!(error.to_string().contains("--features rivals-rt"), "{error}");
        }
    }
}
