//! The runtimes, by name.

use crate::error::{Error, Result};
use crate::options;
use crate::timers::load::{Late, Order, Plan, Taken};
use crate::timers::ours;
#[cfg(feature = "rivals-rt")]
use crate::timers::tokio;

/// A runtime with timers.
pub(crate) trait Timers {
    /// Sets timers that are far ahead and cancels them.
    fn take_back(&mut self, plan: &Plan, order: Order) -> Result<Taken>;

    /// Makes a task wait for each of some timers, and waits for all; returns how late each was.
    fn let_end(&mut self, plan: &Plan) -> Result<Vec<Late>>;
}

type Start = fn() -> Result<Box<dyn Timers>>;

/// A runtime by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Its name in tables and records.
    pub name: &'static str,
    /// Its description, for lists.
    pub about: &'static str,
    /// Starts the runtime; none if it is not built in.
    start: Option<Start>,
}

const TOKIO: Entry = Entry {
    name: "tokio",
    about: "tokio's current_thread runtime",
    #[cfg(feature = "rivals-rt")]
    start: Some(tokio::start),
    #[cfg(not(feature = "rivals-rt"))]
    start: None,
};

/// All runtimes.
pub(crate) const ALL: &[Entry] = &[
    Entry { name: "superpoll-rt", about: "our runtime, one engine", start: Some(ours::start) },
    TOKIO,
];

impl Entry {
    /// Starts the runtime.
    pub(crate) fn start(&self) -> Result<Box<dyn Timers>> {
        match self.start {
            Some(start) => start(),
            None => Err(Error::usage(format!(
                "subject {} is not built in: build with --features rivals-rt",
                self.name
            ))),
        }
    }
}

/// Returns the requested runtimes, each once; all that are built in if none was requested.
pub(crate) fn chosen(names: Option<&str>) -> Result<Vec<Entry>> {
    let names = names.unwrap_or("all");
    let built_in = |entry: &Entry| entry.start.is_some();
    let chosen =
        options::named(names, ALL, |entry| entry.name, built_in, "no runtime with timers")?;
    match chosen.iter().find(|entry| entry.start.is_none()) {
        Some(absent) => absent.start().map(|_| Vec::new()),
        None => Ok(chosen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timers::load::Ended;

    #[test]
    fn every_runtime_sets_takes_back_and_lets_end_every_timer() {
        for entry in ALL.iter().filter(|entry| entry.start.is_some()) {
            let mut timers = entry.start().unwrap();
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
        let built_in = ALL.iter().filter(|entry| entry.start.is_some()).count();
        assert_eq!(chosen(None).unwrap().len(), built_in);
        assert_eq!(chosen(Some("superpoll-rt,all")).unwrap().len(), built_in);
        let error = chosen(Some("superpoll-rt,libuv")).unwrap_err().to_string();
        assert!(error.contains("\"libuv\"") && error.contains("superpoll-rt, tokio"), "{error}");
        if let Err(error) = chosen(Some("tokio")) {
            assert!(error.to_string().contains("--features rivals-rt"), "{error}");
        }
    }
}
