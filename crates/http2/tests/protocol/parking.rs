//! Records: their size, connections that are not parked, and malformed records.

use http::StatusCode;
use superpoll_http1::{FieldName, FieldValue};
use superpoll_http2::{Config, Connection, InvalidRecord};

use crate::client::{
    ACK, CONTINUATION, DATA, Driver, END_HEADERS, END_STREAM, GET, HEADERS, Kept, PING, SETTINGS,
    WHOLE, block, frame, get, post, preface, settings, window_update,
};

fn record(driver: &Driver) -> Vec<u8> {
    let mut record = Vec::new();
    driver.connection.to_record(&mut record);
    record
}

/// Parks and revives a connection.
fn park(driver: &mut Driver) {
    assert!(driver.connection.is_quiet());
    let record = record(driver);
    driver.connection = Connection::from_record(Config::DEFAULT, &record).unwrap();
    driver.keys = driver.connection.keys().collect();
}

#[test]
fn a_connection_that_is_not_quiet_is_not_parked() {
    let mut driver = Driver::new(Config::DEFAULT);
    let all = preface();
    for byte in &all {
        assert!(!driver.connection.is_quiet());
        driver.feed(&[*byte]);
    }
    assert!(driver.connection.is_quiet());
    // Within a frame, a frame's head, a payload that is not looked at, and a block of fields.
    let head = frame(HEADERS, END_STREAM, 1, &block(&GET));
    let rest = frame(CONTINUATION, END_HEADERS, 1, &[]);
    for bytes in [frame(PING, 0, 0, &[0; 8]), frame(0xbb, 0, 0, &[0; 8]), [head, rest].concat()] {
        for byte in &bytes[..bytes.len() - 1] {
            driver.feed(&[*byte]);
            assert!(!driver.connection.is_quiet());
        }
        driver.feed(&bytes[bytes.len() - 1..]);
    }
    // A stream is parked only if it is held, has nothing to write and holds no data.
    let key = driver.key(1);
    let quiet = |driver: &Driver| driver.connection.is_quiet();
    assert!(!quiet(&driver));
    driver.connection.set_held(key, true);
    assert!(quiet(&driver));
    driver.connection.set_ready(key, true);
    assert!(!quiet(&driver));
    driver.connection.set_ready(key, false);
    driver.feed(&post(3));
    let key = driver.key(3);
    driver.connection.set_held(key, true);
    assert!(quiet(&driver));
    driver.feed(&frame(DATA, 0, 3, b"abc"));
    assert!(!quiet(&driver));
    driver.connection.release(key, 3, &mut driver.out);
    assert!(quiet(&driver));
    driver.connection.begin_shutdown(&mut driver.out);
    assert!(!quiet(&driver));
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&window_update(0, 0));
    assert!(matches!(driver.kept[..], [Kept::Error(_)]) && !driver.connection.is_quiet());
}

#[test]
fn a_record_is_small() {
    let mut driver = Driver::begun(Config::DEFAULT);
    let empty = record(&driver).len();
    assert!(empty <= 48, "{empty}");
    // One that is not parked has no buffer, either.
    assert!(size_of::<Connection>() <= 500, "{}", size_of::<Connection>());
    // 9 bytes for each subscriber.
    for id in [1, 3] {
        driver.feed(&get(id));
        let key = driver.key(id);
        let head = driver.connection.respond(key, StatusCode::OK, false, &mut driver.out);
        head.unwrap().finish();
        driver.connection.set_held(key, true);
    }
    assert_eq!(record(&driver).len(), empty + 2 * 9);
    // The table has at most 4 KiB.
    for number in 0..200 {
        let name = format!("{number:03}");
        let entry = [&[0x40, 3][..], name.as_bytes(), &[3], name.as_bytes()].concat();
        let fields = [block(&GET), entry].concat();
        driver.feed(&frame(HEADERS, WHOLE, 2 * number + 5, &fields));
        let key = driver.key(2 * number + 5);
        let head = driver.connection.respond(key, StatusCode::OK, true, &mut driver.out);
        head.unwrap().finish();
    }
    let full = record(&driver).len();
    assert!(driver.connection.table_bytes() > 4000 && full < empty + 18 + 4096, "{full}");
}

/// A subscriber: frames come while its connection is parked, and it gets a message after that.
#[test]
fn a_parked_connection_handles_frames_and_its_stream_continues() {
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&frame(HEADERS, WHOLE, 1, &[block(&GET), vec![0x40, 1, b'x', 1, b'y']].concat()));
    let key = driver.key(1);
    driver.connection.respond(key, StatusCode::OK, false, &mut driver.out).unwrap().finish();
    assert_eq!(driver.connection.data(key, &[b'a'; 535], false, &mut driver.out), Ok(535));
    driver.connection.set_held(key, true);
    driver.out.clear();
    for (bytes, answers) in [
        (frame(PING, 0, 0, &[7; 8]), vec![(PING, ACK)]),
        (settings(&[(4, 100_000), (1, 0)]), vec![(SETTINGS, ACK)]),
        (window_update(1, 10), vec![]),
        (window_update(0, 10), vec![]),
    ] {
        park(&mut driver);
        driver.feed(&bytes);
        let frames = driver.frames();
        let found: Vec<(u8, u8)> = frames.iter().map(|frame| (frame.kind, frame.flags)).collect();
        assert_eq!(found, answers);
    }
    park(&mut driver);
    let key = driver.key(1);
    // The window of the connection is the smaller one: 65,535 - 535 + 10.
    let mut sent = 0;
    while let Ok(count @ 1..) = driver.connection.data(key, &[0; 70_000], false, &mut driver.out) {
        sent += count;
    }
    assert_eq!(sent, 65_010);
    driver.out.clear();
    let mut trailers = driver.connection.trailers(key, &mut driver.out).unwrap();
    trailers.field(FieldName::from_static("x"), FieldValue::from_static("y"));
    trailers.finish();
    // The client's smaller table is acknowledged in the first block after it.
    assert_eq!(driver.frames()[0].payload, b"\x20\x00\x01x\x01y");
    // The client's own table has stayed.
    park(&mut driver);
    driver.feed(&frame(HEADERS, WHOLE, 3, &[block(&GET), vec![0xbe]].concat()));
    let Some(Kept::Request(request)) = driver.kept.last() else { panic!("{:?}", driver.kept) };
    assert_eq!(request.fields, [("x".to_owned(), "y".to_owned())]);
}

#[test]
fn malformed_records_are_refused() {
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&frame(HEADERS, WHOLE, 1, &[block(&GET), vec![0x40, 1, b'x', 1, b'y']].concat()));
    driver.feed(&post(3));
    for id in [1, 3] {
        let key = driver.key(id);
        driver.connection.set_held(key, true);
    }
    let record = record(&driver);
    for end in 0..record.len() {
        let cut = Connection::from_record(Config::DEFAULT, &record[..end]);
        // The last entry of the table may be cut off whole.
        assert!(cut.is_err() || end == record.len() - 6, "{end}");
    }
    for at in 0..record.len() {
        for value in 0..=255 {
            let mut changed = record.clone();
            changed[at] = value;
            // It is refused, or some connection that does not panic.
            let Ok(mut connection) = Connection::from_record(Config::DEFAULT, &changed) else {
                continue;
            };
            let (mut scratch, mut out) = (superpoll_http2::Scratch::new(), Vec::new());
            let bytes = [get(9), frame(DATA, 0, 3, b"abc"), window_update(0, 9)].concat();
            let mut rest = &bytes[..];
            while let Ok(step) = connection.receive(rest, 0, &mut scratch, &mut out) {
                rest = &rest[step.used..];
                if rest.is_empty() {
                    break;
                }
            }
        }
    }
    let version = [&[9], &record[1..]].concat();
    let refused = Connection::from_record(Config::DEFAULT, &version).err();
    assert_eq!(refused, Some(InvalidRecord));
    assert!(Connection::from_record(Config::DEFAULT, &record).is_ok());
    let few = Config { streams: 1, ..Config::DEFAULT };
    assert!(Connection::from_record(few, &record).is_err());
}
