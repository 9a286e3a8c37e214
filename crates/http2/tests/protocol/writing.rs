//! Responses, windows, turns and the end of a connection.

use http::StatusCode;
use superpoll_http1::{FieldName, FieldValue};
use superpoll_http2::{
    Config, Connection, ErrorCode, Event, NotWritten, PreparedFields, Priority, Scratch, StreamKey,
};

use crate::client::{
    ACK, CONTINUATION, DATA, Driver, END_HEADERS, END_STREAM, GET, GOAWAY, HEADERS, Kept, PADDED,
    PING, POST, PRIORITY_UPDATE, SETTINGS, WHOLE, WINDOW_UPDATE, block, frame, get, post, preface,
    rst, settings, window_update, with,
};

const X: FieldName<'_> = FieldName::from_static("x");

fn value(text: &str) -> FieldValue<'_> {
    FieldValue::new(text.as_bytes()).unwrap()
}

/// A connection with a request whose response has begun.
fn responding(config: Config) -> (Driver, StreamKey) {
    let mut driver = Driver::begun(config);
    driver.feed(&get(1));
    let key = driver.key(1);
    driver.connection.respond(key, StatusCode::OK, false, &mut driver.out).unwrap().finish();
    driver.out.clear();
    (driver, key)
}

#[test]
fn the_server_says_its_settings_first() {
    let mut driver = Driver::new(Config { table: 0, ..Config::DEFAULT });
    let frames = driver.frames();
    let (kinds, payload): (Vec<u8>, &[u8]) =
        (frames.iter().map(|frame| frame.kind).collect(), &frames[0].payload);
    assert_eq!(kinds, [SETTINGS, WINDOW_UPDATE]);
    let pairs: Vec<(u16, u32)> = payload
        .chunks(6)
        .map(|one| {
            (
                u16::from_be_bytes([one[0], one[1]]),
                u32::from_be_bytes([one[2], one[3], one[4], one[5]]),
            )
        })
        .collect();
    let expected = [(1, 0), (3, 128), (4, 512 << 10), (6, 16 << 10), (8, 1), (9, 1)];
    assert_eq!(pairs, expected);
    assert_eq!(frames[1].number(0), (1 << 20) - 65_535);
    driver.feed(&preface());
    driver.feed(&frame(PING, 0, 0, b"abcdefgh"));
    let answers: Vec<(u8, u8, Vec<u8>)> =
        driver.frames().into_iter().map(|it| (it.kind, it.flags, it.payload)).collect();
    assert_eq!(answers, [(SETTINGS, ACK, vec![]), (PING, ACK, b"abcdefgh".to_vec())]);
}

#[test]
fn a_response_is_written_in_its_order() {
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&get(1));
    let (key, out) = (driver.key(1), &mut driver.out);
    let connection = &mut driver.connection;
    let order = Some(NotWritten::Order);
    assert_eq!(connection.data(key, b"a", false, out).err(), order);
    assert_eq!(connection.data(key, b"", true, out).err(), order);
    assert_eq!(connection.trailers(key, out).err(), order);
    assert!(out.is_empty());
    let early = StatusCode::from_u16(103).unwrap();
    let mut head = connection.interim(key, early, out).unwrap();
    head.field(FieldName::from_static("link"), value("</a>"));
    head.finish();
    // One that is not finished is not written.
    let length = out.len();
    connection.respond(key, StatusCode::OK, true, out).unwrap().field(X, value("y"));
    assert_eq!(out.len(), length);
    let mut prepared = PreparedFields::new();
    assert!(prepared.is_empty());
    prepared.push(X, value("prepared"));
    let mut head = connection.respond(key, StatusCode::IM_A_TEAPOT, false, out).unwrap();
    head.prepared(&prepared);
    head.field(FieldName::from_static("Date"), value("now"));
    head.field(FieldName::from_static("connection"), value("close"));
    head.finish();
    assert_eq!(connection.respond(key, StatusCode::OK, true, out).err(), order);
    assert_eq!(connection.interim(key, early, out).err(), order);
    assert_eq!(connection.data(key, b"ab", false, out), Ok(2));
    let mut trailers = connection.trailers(key, out).unwrap();
    trailers.field(X, value("trailer"));
    trailers.finish();
    let gone = Some(NotWritten::Gone);
    assert_eq!(connection.data(key, b"ab", true, out).err(), gone);
    assert_eq!(connection.trailers(key, out).err(), gone);
    assert_eq!(connection.reset(key, ErrorCode::CANCEL, out).err(), gone);
    let frames = driver.frames();
    let kinds: Vec<(u8, u8)> = frames.iter().map(|frame| (frame.kind, frame.flags)).collect();
    assert_eq!(
        kinds,
        [(HEADERS, END_HEADERS), (HEADERS, END_HEADERS), (DATA, 0), (HEADERS, WHOLE)]
    );
    assert_eq!(frames[0].payload, b"\x08\x03103\x0f\x1e\x04</a>");
    assert_eq!(frames[1].payload, b"\x08\x03418\x00\x01x\x08prepared\x00\x04date\x03now");
    assert_eq!(frames[3].payload, b"\x00\x01x\x07trailer");
    assert_eq!(driver.connection.streams(), 0);
}

#[test]
fn a_long_head_is_written_in_several_frames() {
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&get(1));
    let key = driver.key(1);
    let long = "a".repeat(30_000);
    let mut head = driver.connection.respond(key, StatusCode::OK, true, &mut driver.out).unwrap();
    head.field(X, value(&long));
    head.field(X, value(&long[..3000]));
    head.finish();
    let frames = driver.frames();
    let kinds: Vec<(u8, u8, usize)> =
        frames.iter().map(|frame| (frame.kind, frame.flags, frame.payload.len())).collect();
    let rest = 1 + 2 * 3 + 4 + 33_000 + 3 - 2 * 16_384;
    let expected = [
        (HEADERS, END_STREAM, 16_384),
        (CONTINUATION, 0, 16_384),
        (CONTINUATION, END_HEADERS, rest),
    ];
    assert_eq!(kinds, expected);
}

/// RFC 7541, section 4.2: a client that allows a smaller table is told that there is none, once.
#[test]
fn a_smaller_table_of_the_client_is_acknowledged_once() {
    for (sizes, is_needed) in [(&[4096_u32][..], false), (&[0, 4096], true), (&[100], true)] {
        let mut driver = Driver::begun(Config::DEFAULT);
        sizes.iter().for_each(|size| driver.feed(&settings(&[(1, *size)])));
        for id in [1, 3] {
            driver.feed(&get(id));
            driver.out.clear();
            let key = driver.key(id);
            // A head that is not written says nothing.
            drop(driver.connection.respond(key, StatusCode::OK, true, &mut driver.out).unwrap());
            let head = driver.connection.respond(key, StatusCode::OK, true, &mut driver.out);
            head.unwrap().finish();
            let expected: &[u8] = if is_needed && id == 1 { &[0x20, 0x88] } else { &[0x88] };
            assert_eq!(driver.frames()[0].payload, expected);
        }
    }
}

#[test]
fn data_is_bounded_by_both_windows() {
    let (mut driver, key) = responding(Config::DEFAULT);
    let big = vec![b'a'; 100_000];
    let mut sent = 0;
    let mut write = |driver: &mut Driver| {
        let mut written = 0;
        loop {
            let capacity = driver.connection.capacity(key);
            let count = driver.connection.data(key, &big, false, &mut driver.out).unwrap();
            assert_eq!(count, capacity.min(big.len()));
            assert!(count <= 16_384);
            written += count;
            if count == 0 {
                sent += written;
                return written;
            }
        }
    };
    assert_eq!(write(&mut driver), 65_535);
    assert_eq!(
        driver.connection.data_head(key, 1, false, &mut driver.out),
        Err(NotWritten::Window)
    );
    // The stream's window alone, and then that of the connection alone.
    driver.feed(&window_update(1, 10));
    assert_eq!((driver.kept.pop(), write(&mut driver)), (Some(Kept::Opened(Some(1))), 0));
    driver.feed(&window_update(0, 4));
    assert_eq!((driver.kept.pop(), write(&mut driver)), (Some(Kept::Opened(None)), 4));
    driver.feed(&window_update(0, 100));
    assert_eq!((driver.kept.pop(), write(&mut driver)), (Some(Kept::Opened(None)), 6));
    // A window that was open is no event.
    driver.feed(&window_update(0, 100));
    assert!(!matches!(driver.kept.last(), Some(Kept::Opened(_))));
    // A smaller initial window makes the stream's negative.
    driver.feed(&settings(&[(4, 65_535 - 50)]));
    driver.feed(&window_update(1, 50));
    assert_eq!(write(&mut driver), 0);
    assert!(!matches!(driver.kept.last(), Some(Kept::Opened(_))));
    driver.feed(&settings(&[(4, 65_535 - 49)]));
    assert_eq!((driver.kept.pop(), write(&mut driver)), (Some(Kept::Opened(None)), 1));
    let written: usize =
        driver.frames().iter().filter(|it| it.kind == DATA).map(|it| it.payload.len()).sum();
    assert_eq!(written, sent);
    // The end needs no window.
    assert_eq!(driver.connection.data(key, b"", true, &mut driver.out), Ok(0));
    assert_eq!(driver.frames()[0].flags, END_STREAM);
}

#[test]
fn windows_of_requests_are_opened_as_data_is_released() {
    let config = Config { connection_window: 100_000, stream_window: 70_000, ..Config::DEFAULT };
    let mut driver = Driver::begun(config);
    driver.feed(&post(1));
    let key = driver.key(1);
    for _ in 0..4 {
        driver.feed(&frame(DATA, PADDED, 1, &[[99].as_slice(), &[0; 10_099]].concat()));
    }
    // 40,000 bytes are held, and 400 of padding were released at once.
    assert!(driver.frames().is_empty());
    driver.connection.release(key, 34_599, &mut driver.out);
    assert!(driver.frames().is_empty());
    driver.connection.release(key, 1, &mut driver.out);
    let updates: Vec<(u32, u32)> =
        driver.frames().iter().map(|frame| (frame.stream, frame.number(0))).collect();
    assert_eq!(updates, [(1, 35_000)]);
    // More than is held counts as all of it.
    driver.connection.release(key, 1_000_000, &mut driver.out);
    driver.feed(&frame(DATA, 0, 1, &[0; 9_600]));
    driver.connection.release(key, 9_600, &mut driver.out);
    let updates: Vec<(u32, u32)> =
        driver.frames().iter().map(|frame| (frame.stream, frame.number(0))).collect();
    assert_eq!(updates, [(0, 50_000)]);
    // A stream that ends gives back what it held.
    driver.feed(&frame(DATA, END_STREAM, 1, &[0; 16_000]));
    driver.feed(&[rst(1), post(3)].concat());
    for _ in 0..2 {
        driver.feed(&frame(DATA, 0, 3, &[0; 16_000]));
    }
    driver.feed(&frame(DATA, END_STREAM, 3, &[0; 2_000]));
    driver.out.clear();
    let key = driver.key(3);
    driver.connection.reset(key, ErrorCode::NO_ERROR, &mut driver.out).unwrap();
    let last = driver.frames().pop().unwrap();
    assert_eq!((last.kind, last.stream, last.number(0)), (WINDOW_UPDATE, 0, 50_000));
}

#[test]
fn more_than_a_window_ends_its_stream_or_the_connection() {
    let config = Config { connection_window: 1 << 17, stream_window: 65_535, ..Config::DEFAULT };
    let mut driver = Driver::begun(config);
    let piece = |id: u32, length: usize| frame(DATA, 0, id, &vec![0; length]);
    let fill = |driver: &mut Driver, id: u32| {
        driver.feed(&post(id));
        (0..4).for_each(|_| driver.feed(&piece(id, 16_000)));
    };
    fill(&mut driver, 1);
    driver.feed(&piece(1, 1_535));
    assert!(matches!(driver.kept.last(), Some(Kept::Data(..))));
    driver.feed(&piece(1, 1));
    let exceeded = superpoll_http2::StreamError::StreamWindowExceeded;
    assert_eq!(driver.kept.last(), Some(&Kept::Failed(1, exceeded)));
    // Its data counts no more, so all of the connection's window is free.
    assert_eq!(driver.frames().pop().map(|frame| frame.number(0)), Some(65_536));
    fill(&mut driver, 3);
    fill(&mut driver, 5);
    driver.feed(&[post(7), piece(7, (1 << 17) - 128_000)].concat());
    assert!(matches!(driver.kept.last(), Some(Kept::Data(..))));
    driver.feed(&piece(7, 1));
    let error = superpoll_http2::ConnectionError::WindowExceeded;
    assert_eq!(driver.kept.last(), Some(&Kept::Error(error)));
    let key = driver.key(3);
    assert_eq!(
        driver.connection.reset(key, ErrorCode::CANCEL, &mut driver.out).err(),
        Some(NotWritten::Gone)
    );
}

/// The streams in the order of their turns.
fn turns(driver: &mut Driver, count: usize) -> Vec<u32> {
    (0..count).map_while(|_| driver.connection.next_writable().map(|(key, _)| key.id())).collect()
}

fn begin(driver: &mut Driver, id: u32, priority: Option<&str>) {
    let fields: Vec<(&str, &str)> = priority.map(|text| ("priority", text)).into_iter().collect();
    driver.feed(&frame(HEADERS, WHOLE, id, &with(&GET, &fields)));
    let key = driver.key(id);
    driver.connection.respond(key, StatusCode::OK, false, &mut driver.out).unwrap().finish();
    driver.connection.set_ready(key, true);
}

#[test]
fn streams_write_in_the_order_of_their_priorities() {
    // Without a word of the client, all share.
    let mut driver = Driver::begun(Config::DEFAULT);
    [1, 3, 5].into_iter().for_each(|id| begin(&mut driver, id, None));
    assert_eq!(turns(&mut driver, 7), [1, 3, 5, 1, 3, 5, 1]);
    // A more urgent one comes first, and those of one urgency follow each other; each eighth turn
    // is that of the stream that has waited longest.
    let mut driver = Driver::begun(Config::DEFAULT);
    for (id, priority) in [(1, "u=5"), (3, "u=1"), (5, "u=1"), (7, "u=1, i"), (9, "u=1,i")] {
        begin(&mut driver, id, Some(priority));
    }
    assert_eq!(turns(&mut driver, 16), [3, 3, 3, 3, 3, 3, 3, 1, 3, 3, 3, 3, 3, 3, 3, 5]);
    // One that is not ready, or has no window, is left out.
    let key = driver.key(3);
    driver.connection.set_ready(key, false);
    assert_eq!(turns(&mut driver, 2), [5, 5]);
    let key = driver.key(5);
    driver.connection.reset(key, ErrorCode::CANCEL, &mut driver.out).unwrap();
    assert_eq!(turns(&mut driver, 4), [7, 9, 7, 9]);
    // The client changes its mind.
    driver.feed(&frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=0"));
    assert_eq!(turns(&mut driver, 1), [1]);
    driver.feed(&settings(&[(4, 0)]));
    assert_eq!(driver.connection.next_writable(), None);
    // An early word holds for the stream that it is about.
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x03u=1"));
    begin(&mut driver, 1, Some("u=2"));
    begin(&mut driver, 3, Some("u=3"));
    assert_eq!(turns(&mut driver, 2), [3, 3]);
}

#[test]
fn priorities_are_read_leniently() {
    let of = |text: &str| {
        let Priority { urgency, incremental } = Priority::new(text.as_bytes());
        (urgency, incremental)
    };
    for (text, expected) in [
        ("", (3, false)),
        ("u=0", (0, false)),
        ("u=7, i", (7, true)),
        ("i=?1,u=2", (2, true)),
        ("i, i=?0", (3, false)),
        ("u=8", (3, false)),
        ("u=-1, i=1", (3, false)),
        ("u=1;a=b, i;c", (1, true)),
        ("U=1, x=\"u=2\"", (3, false)),
    ] {
        assert_eq!(of(text), expected, "{text}");
    }
    assert_eq!(Priority::default(), Priority { urgency: 3, incremental: true });
}

#[test]
fn requests_with_odd_but_good_heads_are_accepted() {
    let [method, scheme, path, authority] = GET;
    let accepted = |head: &[(&str, &str)]| {
        let mut driver = Driver::begun(Config::DEFAULT);
        driver.feed(&frame(HEADERS, WHOLE, 1, &block(head)));
        match driver.kept.pop() {
            Some(Kept::Request(request)) => request,
            other => panic!("{head:?}: {other:?}"),
        }
    };
    let request = accepted(&[path, authority, scheme, method]);
    assert_eq!((&*request.host, request.fields.len(), request.length), ("a.test", 0, None));
    let request = accepted(&[method, scheme, path, ("host", "b.test:80")]);
    assert_eq!((&*request.host, request.fields.len()), ("b.test:80", 1));
    let request = accepted(&[method, scheme, path, authority, ("host", "A.test")]);
    assert_eq!(request.host, "a.test");
    let request = accepted(&[(":method", "OPTIONS"), scheme, (":path", "*"), authority]);
    assert_eq!(request.target, "*");
    let request = accepted(&[(":method", "CONNECT"), (":authority", "a.test:443")]);
    assert_eq!((&*request.target, request.scheme), ("a.test:443", None));
    let websocket = [(":method", "CONNECT"), scheme, path, authority, (":protocol", "websocket")];
    let request = accepted(&websocket);
    assert_eq!((&*request.target, request.protocol.as_deref()), ("/", Some("websocket")));
    let mut driver = Driver::begun(Config { connect_protocol: false, ..Config::DEFAULT });
    driver.feed(&frame(HEADERS, WHOLE, 1, &block(&websocket)));
    let missing = superpoll_http2::StreamError::PseudoMissing;
    assert_eq!(driver.kept, [Kept::Refused(1, missing)]);
    let request = accepted(&[
        method,
        scheme,
        path,
        authority,
        ("te", "trailers"),
        ("expect", "100-Continue"),
    ]);
    assert_eq!(request.wants, (true, true));
    // Cookies become one, whatever is between them.
    let cookies = [("cookie", "a=b"), ("x", "y"), ("cookie", "c=d"), ("cookie", "")];
    let request = accepted(&[&GET[..], &cookies, &[("host", "a.test")]].concat());
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let fields = [pair("x", "y"), pair("host", "a.test"), pair("cookie", "a=b; c=d")];
    assert_eq!(request.fields, fields);
    // One stays where it is.
    let request = accepted(&[&GET[..], &cookies[..2]].concat());
    assert_eq!(request.fields, [pair("cookie", "a=b"), pair("x", "y")]);
    let mut driver = Driver::begun(Config::DEFAULT);
    let sized = with(&POST, &[("content-length", "3"), ("content-length", "03")]);
    driver.feed(&frame(HEADERS, END_HEADERS, 1, &sized));
    driver.feed(&frame(DATA, 0, 1, b"ab"));
    driver.feed(&frame(DATA, PADDED | END_STREAM, 1, b"\x02c\0\0"));
    assert_eq!(driver.kept[1], Kept::Data(1, b"abc".to_vec(), true));
}

#[test]
fn trailers_end_a_request() {
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&post(1));
    driver.feed(&frame(DATA, 0, 1, b"ab"));
    driver.feed(&frame(HEADERS, WHOLE, 1, &block(&[("grpc-status", "0")])));
    let trailers = vec![("grpc-status".to_owned(), "0".to_owned())];
    assert_eq!(
        driver.kept[1..],
        [Kept::Data(1, b"ab".to_vec(), false), Kept::Trailers(1, trailers)]
    );
    // The response may still come.
    let key = driver.key(1);
    driver.connection.respond(key, StatusCode::OK, true, &mut driver.out).unwrap().finish();
    assert_eq!(driver.connection.streams(), 0);
}

#[test]
fn a_request_may_go_on_after_its_response() {
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&post(1));
    let key = driver.key(1);
    driver.connection.respond(key, StatusCode::OK, true, &mut driver.out).unwrap().finish();
    driver.feed(&frame(DATA, 0, 1, b"ab"));
    driver.feed(&frame(DATA, END_STREAM, 1, b"c"));
    assert_eq!(driver.kept[1..], [Kept::Data(1, b"abc".to_vec(), true)]);
    assert_eq!(driver.connection.streams(), 0);
}

/// The caller resets a stream between two pieces of one frame.
#[test]
fn the_rest_of_a_frame_of_a_stream_that_was_reset_is_dropped() {
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&post(1));
    let bytes = frame(DATA, PADDED | END_STREAM, 1, &[&[3][..], b"abcdef", &[0; 3]].concat());
    driver.feed(&bytes[..12]);
    let key = driver.key(1);
    driver.connection.reset(key, ErrorCode::CANCEL, &mut driver.out).unwrap();
    driver.feed(&[&bytes[12..], &get(3)].concat());
    let kept = &driver.kept[1..];
    assert!(matches!(kept, [Kept::Data(1, data, false), Kept::Request(_)] if data == b"ab"));
}

#[test]
fn a_connection_ends_in_two_steps() {
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.feed(&get(1));
    let key = driver.key(1);
    driver.connection.begin_shutdown(&mut driver.out);
    driver.connection.begin_shutdown(&mut driver.out);
    let frames = driver.frames();
    assert_eq!(frames.iter().map(|it| it.kind).collect::<Vec<_>>(), [GOAWAY, PING]);
    assert_eq!((frames[0].number(0), frames[0].number(4)), (0x7fff_ffff, 0));
    // A request that was under way is accepted; another PING's answer says nothing.
    driver.feed(&[get(3), frame(PING, ACK, 0, &[0; 8])].concat());
    assert_eq!(driver.connection.streams(), 2);
    driver.feed(&frame(PING, ACK, 0, &frames[1].payload));
    let last = driver.frames().pop().unwrap();
    assert_eq!((last.kind, last.number(0), last.number(4)), (GOAWAY, 3, 0));
    // Further ones are dropped, with their bodies.
    driver.kept.clear();
    driver.feed(&[post(5), frame(DATA, 0, 5, b"abc"), frame(PING, 0, 0, &[0; 8])].concat());
    assert!(driver.kept.is_empty() && !driver.connection.is_over());
    assert_eq!(driver.frames().len(), 1);
    for key in [key, driver.key(3)] {
        driver.connection.respond(key, StatusCode::OK, true, &mut driver.out).unwrap().finish();
    }
    assert!(driver.connection.is_over());
    driver.connection.go_away(ErrorCode::CANCEL, &mut driver.out);
    assert_eq!(driver.frames().len(), 2);
    // In one step.
    let mut driver = Driver::begun(Config::DEFAULT);
    driver.connection.go_away(ErrorCode::ENHANCE_YOUR_CALM, &mut driver.out);
    assert!(driver.connection.is_over());
    driver.feed(&frame(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 2, b'a']));
    assert_eq!(driver.kept, [Kept::GoAway(ErrorCode::INTERNAL_ERROR)]);
}

#[test]
fn a_table_is_shrunk_when_the_client_agrees() {
    let mut driver = Driver::begun(Config::DEFAULT);
    let indexed = [block(&GET), vec![0x40, 1, b'x', 1, b'y']].concat();
    driver.feed(&frame(HEADERS, WHOLE, 1, &indexed));
    assert_eq!(driver.connection.table_bytes(), 34);
    assert!(driver.connection.set_table(0, &mut driver.out));
    assert!(!driver.connection.set_table(4096, &mut driver.out));
    let frames = driver.frames();
    assert_eq!((frames.len(), &frames[0].payload[..]), (1, &[0, 1, 0, 0, 0, 0][..]));
    // Until then the client may use it.
    driver.feed(&frame(HEADERS, WHOLE, 3, &[block(&GET), vec![0xbe]].concat()));
    driver.feed(&frame(SETTINGS, ACK, 0, &[]));
    assert_eq!(driver.connection.table_bytes(), 0);
    driver.feed(&frame(HEADERS, WHOLE, 5, &[vec![0x20], block(&GET)].concat()));
    assert_eq!((driver.kept.len(), driver.connection.table_bytes()), (3, 0));
    driver.feed(&frame(HEADERS, WHOLE, 7, &[0x3f, 0]));
    let error = superpoll_http2::ConnectionError::TableSize;
    assert_eq!(driver.kept.pop(), Some(Kept::Error(error)));
}

/// The example of a server in a few lines: each event of a request is answered from its head.
#[test]
fn a_head_may_be_used_while_the_response_is_written() {
    let (mut out, mut scratch) = (Vec::new(), Scratch::new());
    let mut connection = Connection::new(Config::DEFAULT, &mut out);
    let bytes = [preface(), get(1)].concat();
    let mut at = 0;
    while at < bytes.len() {
        let step = connection.receive(&bytes[at..], 0, &mut scratch, &mut out).unwrap();
        at += step.used;
        if let Event::Request { stream, head, .. } = step.event {
            let mut writer = connection.respond(stream, StatusCode::OK, true, &mut out).unwrap();
            writer.field(X, value(head.target.path()));
            writer.finish();
        }
    }
    assert!(out.ends_with(b"\x88\x00\x01x\x01/"));
}
