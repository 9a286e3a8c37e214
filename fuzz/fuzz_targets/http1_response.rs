//! Arbitrary bytes of a server of HTTP/1, read by the codec and by hyper.
//!
//! `cargo +nightly fuzz run http1_response`. The first byte says to which request the bytes are the
//! response, whether the connection ends after them, and in which pieces hyper gets them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use superpoll_http1::Asked;

#[allow(dead_code)]
#[path = "../../crates/http1/tests/codec/message.rs"]
mod message;
#[allow(dead_code)]
#[path = "../../crates/http1/tests/codec/oracle.rs"]
mod oracle;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let asked = match first & 3 {
        1 => Asked { is_head: true, ..Asked::default() },
        2 => Asked { is_connect: true, ..Asked::default() },
        3 => Asked { has_upgrade: true, ..Asked::default() },
        _ => Asked::default(),
    };
    oracle::compare_response(rest, asked, first & 4 != 0, usize::from(first >> 3));
});
