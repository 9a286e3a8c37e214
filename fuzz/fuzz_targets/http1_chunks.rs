//! Arbitrary bytes of a body in chunks, read by the codec and by a reader that is as simple as the
//! standard.
//!
//! `cargo +nightly fuzz run http1_chunks`. The first byte says in which pieces the codec gets the
//! rest.

#![no_main]

use libfuzzer_sys::fuzz_target;
use superpoll_http1::{Framing, Refusal};

#[allow(dead_code)]
#[path = "../../crates/http1/tests/codec/message.rs"]
mod message;
#[path = "../../crates/http1/tests/codec/simple.rs"]
mod simple;

fuzz_target!(|bytes: &[u8]| {
    let Some((piece, rest)) = bytes.split_first() else { return };
    let piece = usize::from(*piece).max(1);
    let ours = message::read_body(Framing::Chunked, rest, piece, false);
    // The simple reader has no limits.
    if ours != Err(Refusal::ExtraTooLarge) {
        assert_eq!(ours.ok().filter(|body| body.end.is_some()), simple::simple_chunks(rest));
    }
});
