//! System calls by our own counters, under the kernel's names.

use std::collections::BTreeMap;

use superpoll::Poller;
use superpoll_rt::Runtime;

use crate::relay::kernel_name;

/// Calls by name.
pub(super) type Counted = BTreeMap<String, u64>;

fn add(to: &mut Counted, calls: impl Iterator<Item = (&'static str, u64)>) {
    for (counter, count) in calls.filter(|&(_, count)| count > 0) {
        *to.entry(kernel_name(counter).to_owned()).or_default() += count;
    }
}

/// The calls that a poller has made.
pub(super) fn of_poller(poller: &Poller) -> Counted {
    let mut calls = Counted::new();
    add(&mut calls, poller.stats().calls.by_name());
    calls
}

/// The calls that a runtime's engines have made for their pollers and on their sockets, and the
/// calls of this process's relays on their sockets.
pub(super) fn of_runtime(runtime: &Runtime) -> Counted {
    let mut calls = Counted::new();
    for engine in runtime.stats() {
        add(&mut calls, engine.poller.calls.by_name());
        add(&mut calls, engine.calls.by_name());
    }
    add(&mut calls, superpoll_gateway::relay::calls().by_name());
    calls
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use superpoll::{BackendKind, Events, Interest};

    use super::*;

    #[test]
    fn calls_have_the_names_that_strace_gives_them() {
        let mut poller = Poller::builder().backend(BackendKind::Epoll).build().unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        poller.register(&reader, Interest::READABLE).unwrap();
        poller.wait(&mut Events::with_limit(1), Some(Duration::ZERO)).unwrap();
        let calls = of_poller(&poller);
        assert_eq!((calls["epoll_wait"], calls["epoll_ctl"]), (1, 1), "{calls:?}");
    }
}
