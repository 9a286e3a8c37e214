//! Arbitrary bytes of a client and of a server of HTTP/1, read, written and read again.
//!
//! `cargo +nightly fuzz run http1_again`. The first byte says which of both they are, and to which
//! request they are the response.

#![no_main]

use libfuzzer_sys::fuzz_target;
use superpoll_http1::Asked;

#[path = "../../crates/http1/tests/codec/again.rs"]
mod again;
#[allow(dead_code)]
#[path = "../../crates/http1/tests/codec/message.rs"]
mod message;
#[allow(dead_code)]
#[path = "../../crates/http1/tests/codec/oracle.rs"]
mod oracle;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    match first & 3 {
        0 => again::assert_request_again(rest),
        1 => again::assert_response_again(rest, Asked { is_head: true, ..Asked::default() }),
        2 => again::assert_response_again(rest, Asked { is_connect: true, ..Asked::default() }),
        _ => again::assert_response_again(rest, Asked::default()),
    }
});
