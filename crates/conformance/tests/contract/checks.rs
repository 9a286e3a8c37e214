//! Each check of the contract, against every back-end and policy.

use superpoll_conformance::{bench, checks};

use crate::numbers;

/// The check that opens many descriptors.
const MANY: &str = "memory_per_descriptor_is_small";

fn against_all(name: &str) {
    let _many = (name == MANY).then(numbers::many);
    let check = checks::find(name).unwrap();
    let mut failures = Vec::new();
    for bench in bench::all() {
        if !(check.applies)(&bench.capabilities()) {
            continue;
        }
        let _small = if name == MANY { None } else { numbers::small(&bench) };
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
