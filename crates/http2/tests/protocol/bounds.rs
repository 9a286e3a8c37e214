//! The bounds of a connection, each at its edge.

use http::StatusCode;
use superpoll_http2::limits::{
    EMPTY_DATA, FEW_CONTINUATIONS, MOST_EARLY_RESETS, MOST_ERRORS, MOST_REMEMBERED, MOST_UNSENT,
    MOST_USELESS, SMALL_DATA, USEFUL, WINDOW_OF_SMALL_DATA,
};
use superpoll_http2::{Config, ConnectionError, ErrorCode, Event, Limits, StreamError};

use crate::client::{
    ACK, CONTINUATION, DATA, Driver, END_HEADERS, END_STREAM, GET, HEADERS, Kept, PADDED, PING,
    PRIORITY, PRIORITY_UPDATE, RST_STREAM, SETTINGS, WHOLE, WINDOW_UPDATE, block, frame, frames,
    get, post, rst, settings, window_update, with,
};

/// Feeds frames of a number until the connection ends; the number before it does, and the reason.
fn feed_until_error(
    driver: &mut Driver,
    mut next: impl FnMut(u32) -> Vec<u8>,
) -> (u32, ConnectionError) {
    for number in 0..200_000 {
        driver.feed(&next(number));
        if let Some(Kept::Error(error)) = driver.kept.last() {
            return (number, *error);
        }
        driver.kept.clear();
    }
    panic!("no error");
}

#[test]
fn streams_beyond_the_most_are_refused() {
    let mut driver = Driver::begun(Config::DEFAULT);
    for number in 0..130 {
        driver.feed(&post(2 * number + 1));
    }
    assert_eq!(driver.connection.streams(), 128);
    let refused = |id| Kept::Refused(id, StreamError::TooManyStreams);
    assert_eq!(driver.kept[128..], [refused(257), refused(259)]);
    let frames = driver.frames();
    let codes: Vec<(u8, u32, u32)> =
        frames.iter().map(|frame| (frame.kind, frame.stream, frame.number(0))).collect();
    assert_eq!(codes, [(RST_STREAM, 257, 7), (RST_STREAM, 259, 7)]);
    // Another one has room when one has ended.
    driver.feed(&[rst(1), get(261)].concat());
    assert!(matches!(driver.kept.last(), Some(Kept::Request(next)) if next.id == 261));
    assert!(driver.keys.iter().all(|key| key.slot() < 128));
}

#[test]
fn streams_with_errors_are_counted() {
    // Refused heads, and streams that the client makes the server reset ("MadeYouReset").
    let refused = frame(HEADERS, WHOLE, 1, &block(&[]));
    let with_number = |mut bytes: Vec<u8>, id: u32| {
        bytes[5..9].copy_from_slice(&id.to_be_bytes());
        bytes
    };
    let mut driver = Driver::begun(Config::DEFAULT);
    let next = |number: u32| with_number(refused.clone(), 2 * number + 1);
    let all = u32::from(MOST_ERRORS);
    assert_eq!(feed_until_error(&mut driver, next), (all, ConnectionError::TooManyErrors));
    for made in [
        |id| window_update(id, 0),
        |id| window_update(id, 0x7fff_ffff),
        |id| frame(PRIORITY, 0, id, &[]),
        |id| frame(DATA, END_STREAM, id, b"a"),
        |id| frame(HEADERS, WHOLE, id, &block(&[(":path", "/")])),
    ] {
        let mut driver = Driver::begun(Config::DEFAULT);
        let next = |number: u32| [get(2 * number + 1), made(2 * number + 1)].concat();
        assert_eq!(feed_until_error(&mut driver, next), (all, ConnectionError::TooManyErrors));
    }
    // Data on streams that have ended.
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&[get(1), rst(1)].concat());
    let (number, error) = feed_until_error(&mut driver, |_| frame(DATA, 0, 1, b"a"));
    assert!(number <= all, "{number}: {error}");
}

#[test]
fn resets_before_a_response_are_counted() {
    let config = Config { streams: 10, ..Config::DEFAULT };
    let early = 10 + u32::from(MOST_EARLY_RESETS);
    let reset = |number: u32| [get(2 * number + 1), rst(2 * number + 1)].concat();
    let mut driver = Driver::begun(config);
    let expected = (early, ConnectionError::TooManyResets);
    assert_eq!(feed_until_error(&mut driver, reset), expected);
    // A response that was written to its end takes one back.
    let mut driver = Driver::begun(config);
    for number in 0..1000 {
        driver.feed(&[get(4 * number + 1), get(4 * number + 3), rst(4 * number + 3)].concat());
        let key = driver.key(4 * number + 1);
        driver.connection.respond(key, StatusCode::OK, true, &mut driver.out).unwrap().finish();
        assert!(!matches!(driver.kept.last(), Some(Kept::Error(_))), "{number}");
        driver.kept.clear();
    }
    // So a reset after the head is not one of them.
    let mut driver = Driver::begun(config);
    for number in 0..200 {
        driver.feed(&get(2 * number + 1));
        let key = driver.key(2 * number + 1);
        driver.connection.respond(key, StatusCode::OK, false, &mut driver.out).unwrap().finish();
        driver.feed(&rst(2 * number + 1));
    }
    assert!(!driver.kept.iter().any(|kept| matches!(kept, Kept::Error(_))));
}

#[test]
fn blocks_of_fields_are_bounded() {
    // Frames without bytes.
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&frame(HEADERS, END_STREAM, 1, &block(&GET)));
    let (number, error) = feed_until_error(&mut driver, |_| frame(CONTINUATION, 0, 1, &[]));
    assert_eq!((number as usize, error), (FEW_CONTINUATIONS, ConnectionError::BlockTooLong));
    // So many are fine, and a last one.
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&frame(HEADERS, END_STREAM, 1, &block(&GET)));
    for _ in 0..FEW_CONTINUATIONS {
        driver.feed(&frame(CONTINUATION, 0, 1, &[]));
    }
    driver.feed(&frame(CONTINUATION, END_HEADERS, 1, &block(&[("a", "b")])));
    let [Kept::Request(request)] = &driver.kept[..] else { panic!("{:?}", driver.kept) };
    assert_eq!(request.fields, [("a".to_owned(), "b".to_owned())]);
    // Many bytes.
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&frame(HEADERS, END_STREAM, 1, &[0; 16_384]));
    let (number, error) =
        feed_until_error(&mut driver, |_| frame(CONTINUATION, 0, 1, &[0; 16_384]));
    assert_eq!((number, error), (3, ConnectionError::BlockTooLong));
    // A larger limit needs more frames.
    let limits = Limits { head: 40 * 16_384, ..Limits::DEFAULT };
    let mut driver = Driver::begun(Config { limits, ..Config::DEFAULT });
    driver.feed(&frame(HEADERS, END_STREAM, 1, &block(&GET)));
    let (number, _) = feed_until_error(&mut driver, |_| frame(CONTINUATION, 0, 1, &[]));
    assert_eq!(number, 50);
}

/// An entry of nearly 4 KiB, and references to it of one byte each.
fn bomb(references: usize) -> Vec<u8> {
    let value = vec![b'a'; 4000];
    let head = block(&GET);
    let entry = [&[0x40, 1, b'x', 127, 0xa1, 0x1e][..], &value].concat();
    [head, entry, vec![0xbe; references]].concat()
}

#[test]
fn fields_are_bounded_after_they_are_decoded() {
    // Beyond the limit the stream is refused, and the table stays in step.
    let mut driver = Driver::begun(Config::DEFAULT);
    let indexed = [block(&GET), vec![0xbe]].concat();
    driver.feed(&frame(HEADERS, WHOLE, 1, &bomb(10)));
    driver.feed(&frame(HEADERS, WHOLE, 3, &indexed));
    let [Kept::Refused(1, error), Kept::Request(next)] = &driver.kept[..] else {
        panic!("{:?}", driver.kept)
    };
    assert_eq!((*error, next.fields[0].1.len()), (StreamError::HeadTooLarge, 4000));
    // Far beyond it the connection ends.
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&frame(HEADERS, WHOLE, 1, &bomb(16)));
    assert_eq!(driver.kept, [Kept::Error(ConnectionError::FieldsFarTooLarge)]);
    // An entry that is inserted beyond the limit is there afterwards.
    let mut driver = Driver::begun(Config::DEFAULT);
    let long = "b".repeat(9000);
    let late = [with(&GET, &[("a", &long), ("b", &long[..7200])]), vec![0x40, 1, b'y', 1, b'z']];
    driver.feed(&frame(HEADERS, WHOLE, 1, &late.concat()));
    driver.feed(&frame(HEADERS, WHOLE, 3, &indexed));
    let [Kept::Refused(1, _), Kept::Request(next)] = &driver.kept[..] else {
        panic!("{:?}", driver.kept)
    };
    assert_eq!(next.fields, [("y".to_owned(), "z".to_owned())]);
}

#[test]
fn frames_that_do_nothing_are_counted() {
    let all = u32::from(MOST_USELESS);
    for (bytes, points) in [
        (frame(DATA, 0, 1, &[]), EMPTY_DATA),
        (frame(DATA, PADDED, 1, &[2, 0, 0]), EMPTY_DATA),
        (frame(PRIORITY, 0, 1, &[0; 5]), 1),
        (frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1"), 1),
        (frame(PRIORITY_UPDATE, 0, 0, &[1; 500]), 1),
        (frame(0xbb, 0, 0, &[]), 1),
        (window_update(0, 1), 1),
        (window_update(1, 1), 1),
    ] {
        let mut driver = Driver::begun(Config::DEFAULT);
        driver.feed(&post(1));
        let (number, error) = feed_until_error(&mut driver, |_| bytes.clone());
        let expected = (all / u32::from(points), ConnectionError::TooManyUselessFrames);
        assert_eq!((number, error), expected, "{bytes:?}");
    }
    // Frames of a stream that has ended.
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&[get(1), rst(1)].concat());
    assert_eq!(feed_until_error(&mut driver, |_| window_update(1, 1)).0, all);
    // A client that opens windows for the data it gets may do that for ever.
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&get(1));
    let key = driver.key(1);
    driver.connection.respond(key, StatusCode::OK, false, &mut driver.out).unwrap().finish();
    for _ in 0..5 * MOST_USELESS {
        assert_eq!(driver.connection.data(key, b"a", false, &mut driver.out), Ok(1));
        for _ in 0..USEFUL / 2 {
            driver.feed(&[window_update(0, 1), window_update(1, 1)].concat());
        }
    }
    // And one that names priorities with its requests.
    for number in 1..2000 {
        let id = 2 * number + 1;
        driver.feed(&[frame(PRIORITY, 0, id, &[0; 5]), get(id)].concat());
        let key = driver.key(id);
        driver.connection.respond(key, StatusCode::OK, true, &mut driver.out).unwrap().finish();
    }
    assert!(!driver.kept.iter().any(|kept| matches!(kept, Kept::Error(_))));
}

#[test]
fn small_frames_that_wait_are_counted() {
    let most = Config::DEFAULT.connection_window / WINDOW_OF_SMALL_DATA;
    let small = frame(DATA, 0, 1, &[0; SMALL_DATA - 1]);
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&post(1));
    let expected = (most, ConnectionError::TooManySmallFrames);
    let one = frame(DATA, 0, 1, b"a");
    assert_eq!(feed_until_error(&mut driver, |_| one.clone()), expected);
    // Those that are released at once are as many as the client likes, whatever waits elsewhere.
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&[post(1), post(3), frame(DATA, 0, 3, b"a")].concat());
    let key = driver.key(1);
    for _ in 0..10 * most {
        driver.feed(&small);
        driver.connection.release(key, SMALL_DATA - 1, &mut driver.out);
    }
    assert!(!driver.kept.iter().any(|kept| matches!(kept, Kept::Error(_))));
    // And a stream that ends takes its own with it.
    let mut driver = Driver::begun(Config::DEFAULT);
    for number in 0..3 * most {
        let id = 2 * number + 1;
        driver.feed(&[post(id), frame(DATA, 0, id, b"a")].concat());
        let key = driver.key(id);
        let (connection, out) = (&mut driver.connection, &mut driver.out);
        connection.respond(key, StatusCode::OK, true, out).unwrap().finish();
        connection.reset(key, superpoll_http2::ErrorCode::NO_ERROR, out).unwrap();
    }
    assert!(!driver.kept.iter().any(|kept| matches!(kept, Kept::Error(_))));
}

#[test]
fn answers_that_are_not_sent_stop_the_reading() {
    for (bytes, answer) in [
        (frame(PING, 0, 0, &[7; 8]), 17),
        (settings(&[]), 9),
        (frame(HEADERS, WHOLE, 1, &block(&[])), 13),
    ] {
        let mut driver = Driver::begun(Config::DEFAULT);
        let (mut read, mut number) = (0, 0);
        let is_full = loop {
            let mut bytes = bytes.clone();
            if bytes[3] == HEADERS {
                number += 2;
                bytes[5..9].copy_from_slice(&(number - 1_u32).to_be_bytes());
            }
            let unsent = driver.out.len();
            let step =
                driver.connection.receive(&bytes, unsent, &mut driver.scratch, &mut driver.out);
            let step = step.unwrap();
            if matches!(step.event, Event::Full) {
                break step.used == 0;
            }
            read += 1;
            assert!(read < 1000);
        };
        assert!(is_full);
        assert!(driver.out.len() > MOST_UNSENT && driver.out.len() <= MOST_UNSENT + answer);
        // When some was sent, the next frame is read.
        driver.out.drain(..answer);
        let unsent = driver.out.len();
        let ping = frame(PING, ACK, 0, &[0; 8]);
        let step = driver.connection.receive(&ping, unsent, &mut driver.scratch, &mut driver.out);
        assert_eq!(step.unwrap().used, ping.len());
    }
    // Data of responses does not count.
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&get(1));
    let key = driver.key(1);
    driver.connection.respond(key, StatusCode::OK, false, &mut driver.out).unwrap().finish();
    driver.connection.data(key, &[0; 10_000], true, &mut driver.out).unwrap();
    let ping = frame(PING, 0, 0, &[0; 8]);
    let unsent = driver.out.len();
    let step = driver.connection.receive(&ping, unsent, &mut driver.scratch, &mut driver.out);
    assert_eq!(step.unwrap().used, ping.len());
}

#[test]
fn settings_are_applied_once_for_a_frame() {
    // Otherwise 16 KiB of settings change 128 windows 2,730 times.
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&get(1));
    let key = driver.key(1);
    driver.connection.respond(key, StatusCode::OK, false, &mut driver.out).unwrap().finish();
    let many: Vec<(u16, u32)> = (0..2730).map(|number| (4, number)).collect();
    driver.feed(&settings(&many));
    assert_eq!(driver.connection.capacity(key), 2729);
    assert_eq!(
        driver.frames().last().map(|frame| (frame.kind, frame.flags)),
        Some((SETTINGS, ACK))
    );
}

/// An upload that was answered early is sent up to its window before its client learns of that.
#[test]
fn the_rest_of_an_upload_is_no_flood_unless_it_comes_in_small_frames() {
    for (size, is_flood) in [(SMALL_DATA, false), (SMALL_DATA - 1, true)] {
        let mut driver = Driver::begun(Config::DEFAULT);
        driver.feed(&post(1));
        let key = driver.keys[0];
        let mut out = Vec::new();
        driver.connection.reset(key, ErrorCode::NO_ERROR, &mut out).unwrap();
        driver.kept.clear();
        for _ in 0..3 * MOST_USELESS {
            driver.feed(&frame(DATA, 0, 1, &vec![0; size]));
        }
        let is_error = matches!(driver.kept.last(), Some(Kept::Error(_)));
        assert_eq!(is_error, is_flood, "{size}");
    }
}

#[test]
fn the_streams_that_are_remembered_are_the_last_ones() {
    let mut driver = Driver::begun(Config::DEFAULT);
    let count = MOST_REMEMBERED as u32 + 1;
    for number in 0..count {
        driver.feed(&post(2 * number + 1));
        let key = driver.key(2 * number + 1);
        let code = superpoll_http2::ErrorCode::CANCEL;
        driver.connection.reset(key, code, &mut driver.out).unwrap();
    }
    driver.out.clear();
    // Late trailers of the first are an error, as it is forgotten; those of the others are not.
    for number in 1..count {
        driver.feed(&frame(HEADERS, WHOLE, 2 * number + 1, &block(&[("a", "b")])));
    }
    assert!(driver.frames().is_empty());
    driver.kept.clear();
    driver.feed(&frame(HEADERS, WHOLE, 1, &block(&[("a", "b")])));
    assert_eq!(driver.kept, [Kept::Error(ConnectionError::StreamReused)]);
}

/// A connection that is fed with bytes has no more memory for them than its bounds say.
#[test]
fn a_frame_in_pieces_is_collected_within_its_bound() {
    let mut driver = Driver::begun(Config::DEFAULT);
    let long = frame(HEADERS, WHOLE, 1, &with(&GET, &[("a", &"b".repeat(16_000))]));
    driver.feed_in(&long[..long.len() - 1], 1000);
    assert!(driver.kept.is_empty());
    driver.feed(&long[long.len() - 1..]);
    assert!(matches!(&driver.kept[..], [Kept::Request(_)]));
    let update = frame(WINDOW_UPDATE, 0, 0, &[0x80, 0, 0, 1]);
    driver.feed_in(&update, 1);
    assert!(frames(&driver.out).is_empty());
}
