//! Arbitrary bytes of a client of HTTP/2, after its preface.
//!
//! `cargo +nightly fuzz run http2_connection`. The first byte says in which pieces the bytes
//! arrive. The events and answers must be those of all bytes at once, and a quiet connection that
//! of its record.

#![no_main]

use libfuzzer_sys::fuzz_target;
use superpoll_http2::{Config, Connection, StreamKey};

#[allow(dead_code)]
#[path = "../../crates/http2/tests/protocol/client.rs"]
mod client;

use client::Driver;

fuzz_target!(|bytes: &[u8]| {
    let Some((piece, rest)) = bytes.split_first() else { return };
    let run = |piece: usize| {
        let mut driver = Driver::begun(Config::DEFAULT);
        driver.feed_in(rest, piece);
        driver
    };
    let (whole, pieces) = (run(usize::MAX), run(usize::from(*piece).max(1)));
    assert_eq!((&whole.kept, &whole.out), (&pieces.kept, &pieces.out));
    client::frames(&whole.out);
    let mut connection = whole.connection;
    let keys: Vec<StreamKey> = connection.keys().collect();
    keys.into_iter().for_each(|key| connection.set_held(key, true));
    if connection.is_quiet() {
        let (mut record, mut again) = (Vec::new(), Vec::new());
        connection.to_record(&mut record);
        let revived = Connection::from_record(Config::DEFAULT, &record).expect("its own record");
        revived.to_record(&mut again);
        assert_eq!(record, again);
    }
});
