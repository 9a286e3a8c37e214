//! Arbitrary bytes of a server of HTTP/1, read by the proxy's lane and by hyper.
//!
//! `cargo +nightly fuzz run lane_response`. The first byte says whether the request was HEAD, and
//! in which pieces the rest comes. If the lane takes the bytes, hyper must read the same response,
//! and find its end at the same byte.

#![no_main]

use libfuzzer_sys::fuzz_target;
use superpoll_http::fuzzing::compare_response;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    compare_response(rest, first & 1 == 1, usize::from(first >> 1));
});
