//! The fuzzer's way in: arbitrary bytes are operation sequences.

use superpoll_conformance::bench;
use superpoll_conformance::sequence::{compare, decode};
use superpoll_conformance::subject::poller::RigEngine;
use superpoll_conformance::subject::real::Real;

use crate::numbers;

/// Returns a number for each place (a linear congruential generator).
fn bytes(seed: u32, count: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn any_bytes_are_a_sequence_that_agrees_with_the_model() {
    for bench in bench::all() {
        let _small = numbers::small(&bench);
        for seed in 0..60 {
            let steps = decode(&bytes(seed, 3 * (seed as usize % 50)));
            let mut subject = Real::new(RigEngine::new(&bench));
            let outcome = compare(&mut subject, bench.capabilities(), &steps);
            assert_eq!(outcome, Ok(()), "{}, seed {seed}: {steps:?}", bench.name());
        }
    }
}

#[test]
fn a_rest_of_bytes_is_left_over() {
    assert_eq!(decode(&[]).len(), 1);
    assert_eq!(decode(&[0, 0]).len(), 1);
    assert_eq!(decode(&bytes(1, 7)).len(), 3);
}
