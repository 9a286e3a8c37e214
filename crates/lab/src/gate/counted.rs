//! System calls by our own counters, under the kernel's names.

use std::collections::BTreeMap;

use superpoll::Poller;
use superpoll_rt::Runtime;

use crate::relay::kernel_name;

/// Calls by name.
pub(super) type Counted = BTreeMap<String, u64>;

/// An engine that counts its system calls.
pub(super) trait Counts {
    /// Adds the calls that it has made.
    fn add_to(&self, calls: &mut Counted);
}

fn add(to: &mut Counted, calls: impl Iterator<Item = (&'static str, u64)>) {
    for (counter, count) in calls.filter(|&(_, count)| count > 0) {
        *to.entry(kernel_name(counter).to_owned()).or_default() += count;
    }
}

impl Counts for Poller {
    fn add_to(&self, calls: &mut Counted) {
        add(calls, self.stats().calls.by_name());
    }
}

impl Counts for [Poller; 2] {
    fn add_to(&self, calls: &mut Counted) {
        self.iter().for_each(|poller| poller.add_to(calls));
    }
}

/// The calls that its engines have made for their pollers and on their sockets, and the calls of
/// this process's relays on their sockets.
impl Counts for Runtime {
    fn add_to(&self, calls: &mut Counted) {
        for engine in self.stats() {
            add(calls, engine.poller.calls.by_name());
            add(calls, engine.calls.by_name());
        }
        add(calls, superpoll_gateway::relay::calls().by_name());
    }
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
        let mut calls = Counted::new();
        poller.add_to(&mut calls);
        assert_eq!((calls["epoll_wait"], calls["epoll_ctl"]), (1, 1), "{calls:?}");
    }
}
