//! Arbitrary bytes of a client of HTTP/1, read by the proxy's lane and by hyper.
//!
//! `cargo +nightly fuzz run lane_request`. The first byte says in which pieces hyper gets the rest.
//! If the lane takes the bytes, hyper must read the same request, and find its end at the same
//! byte.

#![no_main]

use libfuzzer_sys::fuzz_target;
use superpoll_http::fuzzing::compare_request;

fuzz_target!(|bytes: &[u8]| {
    let Some((piece, rest)) = bytes.split_first() else { return };
    compare_request(rest, usize::from(*piece));
});
