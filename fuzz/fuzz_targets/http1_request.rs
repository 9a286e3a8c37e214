//! Arbitrary bytes of a client of HTTP/1, read by the codec and by hyper.
//!
//! `cargo +nightly fuzz run http1_request`. The first byte says in which pieces hyper gets the
//! rest. The codec must accept, refuse or wait as hyper does, except for intended differences, and
//! must read the same message.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/http1/tests/codec/message.rs"]
mod message;
#[allow(dead_code)]
#[path = "../../crates/http1/tests/codec/oracle.rs"]
mod oracle;

fuzz_target!(|bytes: &[u8]| {
    let Some((piece, rest)) = bytes.split_first() else { return };
    oracle::compare_request(rest, usize::from(*piece));
});
