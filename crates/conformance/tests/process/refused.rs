//! The whole contract where io_uring is refused, as it is in most containers: everything else works
//! as if it did not exist.

use std::os::fd::AsRawFd;

use superpoll::diagnostics::{Calls, Choice, Costs, Reason};
use superpoll::{BackendKind, Error, Events, Interest, Mode, Poller, Watch};
use superpoll_conformance::{bench, checks, sys};
use superpoll_test_support::Alone;

/// Has the error number with which io_uring is refused in a process.
const REFUSED: &str = "SUPERPOLL_CONFORMANCE_REFUSED";

#[test]
fn the_contract_holds_where_io_uring_is_refused() {
    for error in [libc::EPERM, libc::ENOSYS, libc::ENOMEM] {
        let this = std::env::var(REFUSED);
        if this.as_ref().is_ok_and(|this| *this != error.to_string()) {
            continue;
        }
        Alone::default().env(REFUSED, &error.to_string()).run(|| holds_without_io_uring(error));
    }
}

fn holds_without_io_uring(error: i32) {
    sys::refuse_io_uring(error).unwrap();
    assert!(!BackendKind::Uring.is_available());
    assert_eq!(Poller::new().unwrap().backend(), "adaptive");
    auto_is_adaptive_to_the_last_call();
    let benches = bench::all();
    assert!(benches.iter().all(|bench| bench.name() != "uring"));
    if error != libc::EPERM {
        // The errors differ only in the reason that is given.
        return;
    }
    let mut failures = Vec::new();
    for check in checks::CHECKS {
        for bench in &benches {
            if (check.applies)(&bench.capabilities())
                && let Err(problem) = (check.run)(bench)
            {
                failures.push(format!("{} on {}: {problem}", check.name, bench.name()));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Fewer descriptors than those of a pass that the adaptive back-end times. Otherwise their
/// placement would depend on the clock, and on the load of the machine.
const PIPES: usize = 15;

/// Prices at which descriptors move to the poll array. Measured prices depend on the load of the
/// machine.
fn costs() -> Costs {
    let mut costs = Costs::ASSUMED;
    costs.pass = 30.0;
    (costs.pipe.scan, costs.pipe.ready) = (1.0, 0.1);
    (costs.pipe.add, costs.pipe.modify) = (200.0, 100.0);
    costs
}

/// Returns the results of a poller under a load: its back-end, its system calls, its moves, and the
/// costs it places by.
fn work(kind: BackendKind) -> (&'static str, Calls, u64, Option<Costs>) {
    let costs = costs();
    let mut poller = Poller::builder().backend(kind).costs(costs).build().unwrap();
    let pipes: Vec<_> = (0..PIPES).map(|_| sys::pipe().unwrap()).collect();
    for (reader, _) in &pipes {
        poller.register(reader, Watch::new(Interest::READABLE).mode(Mode::Auto)).unwrap();
    }
    let mut events = Events::with_limit(pipes.len());
    // All pipes are active at times. In the other rounds one is active, a different one each time.
    for round in 0..100 {
        let one = round % PIPES;
        let active = if round % 25 == 0 { 0..PIPES } else { one..one + 1 };
        for (_, writer) in &pipes[active.clone()] {
            assert_eq!(sys::write(writer.as_raw_fd(), 1), Ok(1));
        }
        let mut read = 0;
        while read < active.len() {
            poller.wait(&mut events, None).unwrap();
            for event in &events {
                let reader = &pipes[event.key().index() as usize].0;
                read += usize::from(sys::read(reader.as_raw_fd(), 1).is_ok());
            }
        }
    }
    let stats = poller.stats();
    (poller.backend(), stats.calls, stats.moves_to_hot, poller.costs().copied())
}

fn auto_is_adaptive_to_the_last_call() {
    let choice = Choice::here();
    assert!(
        matches!(choice.reason, Reason::NoRing(Error::BackendUnavailable { .. })),
        "{choice:?}"
    );
    let (adaptive, auto) = (work(BackendKind::Adaptive), work(BackendKind::Auto));
    assert_eq!(adaptive, auto);
    assert!(auto.2 > 0, "nothing moves at these prices: {auto:?}");
    assert_eq!((auto.0, auto.1.io_uring_setup), ("adaptive", 0));
}
