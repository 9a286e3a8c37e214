//! Operation sequences from arbitrary bytes, compared with the model kernel.
//!
//! `cargo +nightly fuzz run operations`. The first byte chooses the back-end; the rest are steps,
//! of three bytes each. Any difference from the model is a crash. A write to a pipe without readers
//! must fail rather than kill: Rust's own start-up sees to that, but libFuzzer brings its own
//! `main`.

#![no_main]

use std::cell::OnceCell;

use libfuzzer_sys::fuzz_target;
use superpoll_conformance::Bench;
use superpoll_conformance::bench::all;
use superpoll_conformance::sequence::{compare, decode};
use superpoll_conformance::subject::poller::RigEngine;
use superpoll_conformance::subject::real::Real;

thread_local! {
    static BENCHES: OnceCell<Vec<Bench>> = const { OnceCell::new() };
}

fuzz_target!(init: ignore_broken_pipes(), |bytes: &[u8]| run(bytes));

fn ignore_broken_pipes() {
    // SAFETY: no other thread runs yet, and ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

fn run(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    BENCHES.with(|benches| {
        let benches = benches.get_or_init(all);
        let bench = &benches[first as usize % benches.len()];
        let steps = decode(rest);
        let mut subject = Real::new(RigEngine::new(bench));
        if let Err(difference) = compare(&mut subject, bench.capabilities(), &steps) {
            panic!("{}: {difference}; the steps are {steps:#?}", bench.name());
        }
    });
}
