//! Each check of the contract, against every back-end and policy.

use std::sync::{PoisonError, RwLock};

use superpoll_conformance::{bench, checks};

/// The check that opens so many descriptors that the numbers of others get too large for `select`,
/// above all with a keeper in this process, which has a copy of each.
const MANY: &str = "memory_per_descriptor_is_small";

/// Keeps it apart from the checks of back-ends that need small numbers.
static NUMBERS: RwLock<()> = RwLock::new(());

fn against_all(name: &str) {
    let _many = (name == MANY).then(|| NUMBERS.write().unwrap_or_else(PoisonError::into_inner));
    let check = checks::find(name).unwrap();
    let mut failures = Vec::new();
    for bench in bench::all() {
        if !(check.applies)(&bench.capabilities()) {
            continue;
        }
        let needs_small = name != MANY && bench.capabilities().fd_limit.is_some();
        let _small = needs_small.then(|| NUMBERS.read().unwrap_or_else(PoisonError::into_inner));
        if let Err(problem) = (check.run)(&bench) {
            failures.push(format!("{}: {problem}", bench.name()));
        }
    }
    assert!(failures.is_empty(), "{name} fails on\n  {}", failures.join("\n  "));
}

macro_rules! tests {
    ($($name:ident)+) => {
        $(#[test] fn $name() { against_all(stringify!($name)); })+
    };
}

superpoll_conformance::each_check!(tests);
