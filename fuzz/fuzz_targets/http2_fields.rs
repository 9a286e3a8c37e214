//! Arbitrary blocks of fields, one request each, on a connection of HTTP/2.
//!
//! `cargo +nightly fuzz run http2_fields`. A block begins with its length; the first byte says where
//! it is split into two frames. A connection that is parked between the requests must see the same
//! heads, and each head must be one that may be written again.

#![no_main]

use http::StatusCode;
use libfuzzer_sys::fuzz_target;
use superpoll_http1::{FieldName, FieldValue};
use superpoll_http2::{Config, Connection};

#[allow(dead_code)]
#[path = "../../crates/http2/tests/protocol/client.rs"]
mod client;

use client::{CONTINUATION, Driver, END_HEADERS, END_STREAM, HEADERS, Kept, WHOLE, frame};

/// Feeds a request, and answers it with its own fields.
fn exchange(driver: &mut Driver, id: u32, block: &[u8], split: Option<usize>) {
    match split {
        None => driver.feed(&frame(HEADERS, WHOLE, id, block)),
        Some(at) => {
            driver.feed(&frame(HEADERS, END_STREAM, id, &block[..at]));
            driver.feed(&frame(CONTINUATION, END_HEADERS, id, &block[at..]));
        }
    }
    let Some(Kept::Request(request)) = driver.kept.last().cloned() else { return };
    let key = driver.key(id);
    let mut head =
        driver.connection.respond(key, StatusCode::OK, true, &mut driver.out).expect("a stream");
    for (name, _) in &request.fields {
        let name = FieldName::new(name.as_bytes()).expect("a checked name");
        head.field(name, FieldValue::from_static("a"));
    }
    head.finish();
}

fuzz_target!(|bytes: &[u8]| {
    let Some((split, mut rest)) = bytes.split_first() else { return };
    let mut awake = Driver::begun(Config::DEFAULT);
    let mut parked = Driver::begun(Config::DEFAULT);
    let mut id = 1;
    while let Some((length, more)) = rest.split_first() {
        let (block, more) = more.split_at(usize::from(*length).min(more.len()));
        exchange(&mut awake, id, block, None);
        exchange(&mut parked, id, block, Some(usize::from(*split).min(block.len())));
        assert_eq!(awake.kept, parked.kept);
        assert_eq!(awake.out, parked.out);
        if matches!(awake.kept.last(), Some(Kept::Error(_))) {
            return;
        }
        let mut record = Vec::new();
        assert!(parked.connection.is_quiet());
        parked.connection.to_record(&mut record);
        let revived = Connection::from_record(Config::DEFAULT, &record);
        parked.connection = revived.expect("its own record");
        (rest, id) = (more, id + 2);
    }
});
