//! Arbitrary bytes of a server of DNS, as an answer to a question for the servers of an upstream.
//!
//! `cargo +nightly fuzz run dns_answer`. The first byte chooses the kind of the question, and
//! whether the rest is a whole message or the records behind the question. An answer that counts is
//! one to the question, with records of the kind that was asked for, which are in the bytes;
//! aliases and texts have bounds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use superpoll_http::fuzzing::check_answer_of_dns;

fuzz_target!(|bytes: &[u8]| {
    let Some((form, rest)) = bytes.split_first() else { return };
    check_answer_of_dns(rest, *form);
});
