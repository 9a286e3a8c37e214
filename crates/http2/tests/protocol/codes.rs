//! Each malformed frame and head, with its code, at each split of its bytes.

use superpoll_http2::{Config, ConnectionError, ErrorCode, StreamError};

use crate::client::{
    ACK, CONTINUATION, DATA, Driver, END_HEADERS, END_STREAM, GET, GOAWAY, HEADERS, Kept, PADDED,
    PING, POST, PRIORITY, PRIORITY_UPDATE, PUSH_PROMISE, RST_STREAM, SETTINGS, WHOLE,
    WINDOW_UPDATE, WITH_PRIORITY, block, frame, frames, get, post, preface, rst, settings,
    window_update, with,
};

/// Feeds bytes after the preface at each split, with the same outcome. Returns it and the code of
/// the last frame of the server, if that ends the connection or a stream.
fn outcome(bytes: &[u8]) -> (Vec<Kept>, Option<ErrorCode>) {
    let all = [preface(), bytes.to_vec()].concat();
    let run = |first: usize, piece: usize| {
        let mut driver = Driver::new(Config::DEFAULT);
        driver.feed(&all[..first]);
        driver.feed_in(&all[first..], piece);
        (driver.kept, driver.out)
    };
    let whole = run(all.len(), 1);
    for first in 0..all.len().min(400) {
        assert_eq!(run(first, usize::MAX), whole, "split at {first}");
    }
    assert_eq!(run(0, 1), whole);
    let last = frames(&whole.1).pop();
    let code = last.and_then(|last| match last.kind {
        GOAWAY => Some(ErrorCode(last.number(4))),
        RST_STREAM => Some(ErrorCode(last.number(0))),
        _ => None,
    });
    (whole.0, code)
}

#[test]
fn each_connection_error_has_its_code() {
    use ConnectionError as E;
    let long = vec![0; 16_385];
    let is_long = |kind: u8| frame(kind, END_HEADERS, 1, &long);
    let huge = settings(&[(4, 0x7fff_ffff)]);
    let cases: Vec<(&str, Vec<u8>, E, ErrorCode)> = vec![
        (
            "long DATA",
            [post(1), is_long(DATA)].concat(),
            E::FrameTooLong,
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        ("long HEADERS", is_long(HEADERS), E::FrameTooLong, ErrorCode::FRAME_SIZE_ERROR),
        ("long unknown", is_long(0xbb), E::FrameTooLong, ErrorCode::FRAME_SIZE_ERROR),
        ("PING of 7", frame(PING, 0, 0, &[0; 7]), E::FrameSize, ErrorCode::FRAME_SIZE_ERROR),
        ("PING of 9", frame(PING, 0, 0, &[0; 9]), E::FrameSize, ErrorCode::FRAME_SIZE_ERROR),
        (
            "RST_STREAM of 3",
            [get(1), frame(RST_STREAM, 0, 1, &[0; 3])].concat(),
            E::FrameSize,
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        (
            "WINDOW_UPDATE of 5",
            frame(WINDOW_UPDATE, 0, 0, &[0; 5]),
            E::FrameSize,
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        (
            "SETTINGS of 7",
            frame(SETTINGS, 0, 0, &[0; 7]),
            E::FrameSize,
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        (
            "SETTINGS with ACK and more",
            frame(SETTINGS, ACK, 0, &[0; 6]),
            E::FrameSize,
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        ("GOAWAY of 7", frame(GOAWAY, 0, 0, &[0; 7]), E::FrameSize, ErrorCode::FRAME_SIZE_ERROR),
        (
            "PRIORITY_UPDATE of 3",
            frame(PRIORITY_UPDATE, 0, 0, &[0; 3]),
            E::FrameSize,
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        (
            "PRIORITY of 4 without a stream",
            frame(PRIORITY, 0, 1, &[0; 4]),
            E::FrameSize,
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        (
            "padded DATA of 0",
            [post(1), frame(DATA, PADDED, 1, &[])].concat(),
            E::FrameSize,
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        (
            "padded HEADERS of 0",
            frame(HEADERS, PADDED | WHOLE, 1, &[]),
            E::FrameSize,
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        (
            "HEADERS with half a priority",
            frame(HEADERS, WITH_PRIORITY | WHOLE, 1, &[0; 4]),
            E::FrameSize,
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        (
            "padding of all DATA",
            [post(1), frame(DATA, PADDED, 1, &[3, 0, 0])].concat(),
            E::Padding,
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "padding of all HEADERS",
            frame(HEADERS, PADDED | WHOLE, 1, &[3, 0, 0]),
            E::Padding,
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "PRIORITY of a stream that has not begun, and of itself",
            frame(PRIORITY, 0, 3, &[0, 0, 0, 3, 9]),
            E::OwnParent,
            ErrorCode::PROTOCOL_ERROR,
        ),
        ("DATA without a stream", frame(DATA, 0, 0, &[0]), E::StreamId, ErrorCode::PROTOCOL_ERROR),
        (
            "HEADERS without a stream",
            frame(HEADERS, WHOLE, 0, &block(&GET)),
            E::StreamId,
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "HEADERS of a server's stream",
            frame(HEADERS, WHOLE, 2, &block(&GET)),
            E::StreamId,
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "RST_STREAM without a stream",
            frame(RST_STREAM, 0, 0, &[0; 4]),
            E::StreamId,
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "RST_STREAM of a server's stream",
            frame(RST_STREAM, 0, 2, &[0; 4]),
            E::StreamId,
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "PRIORITY without a stream",
            frame(PRIORITY, 0, 0, &[0; 5]),
            E::StreamId,
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "SETTINGS of a stream",
            frame(SETTINGS, 0, 1, &[]),
            E::StreamId,
            ErrorCode::PROTOCOL_ERROR,
        ),
        ("PING of a stream", frame(PING, 0, 1, &[0; 8]), E::StreamId, ErrorCode::PROTOCOL_ERROR),
        (
            "GOAWAY of a stream",
            frame(GOAWAY, 0, 1, &[0; 8]),
            E::StreamId,
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "PRIORITY_UPDATE of a stream",
            frame(PRIORITY_UPDATE, 0, 1, &[0; 4]),
            E::StreamId,
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "PRIORITY_UPDATE for no stream",
            frame(PRIORITY_UPDATE, 0, 0, &[0; 4]),
            E::StreamId,
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "DATA on an idle stream",
            frame(DATA, 0, 1, &[0]),
            E::StreamIdle,
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "RST_STREAM on an idle stream",
            [get(1), rst(3)].concat(),
            E::StreamIdle,
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "WINDOW_UPDATE on an idle stream",
            window_update(1, 1),
            E::StreamIdle,
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "a stream below the last",
            [get(5), get(3)].concat(),
            E::StreamIdDecreases,
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "a stream that was reset",
            [get(1), rst(1), get(1)].concat(),
            E::StreamReused,
            ErrorCode::STREAM_CLOSED,
        ),
        (
            "PUSH_PROMISE",
            [get(1), frame(PUSH_PROMISE, END_HEADERS, 1, &[0; 4])].concat(),
            E::Push,
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "CONTINUATION alone",
            [get(1), frame(CONTINUATION, END_HEADERS, 1, &[])].concat(),
            E::BlockInterrupted,
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "CONTINUATION of another stream",
            [frame(HEADERS, 0, 1, &block(&GET)), frame(CONTINUATION, END_HEADERS, 3, &[])].concat(),
            E::BlockInterrupted,
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "PING within a block",
            [frame(HEADERS, 0, 1, &block(&GET)), frame(PING, 0, 0, &[0; 8])].concat(),
            E::BlockInterrupted,
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "an unknown frame within a block",
            [frame(HEADERS, 0, 1, &block(&GET)), frame(0xbb, 0, 0, &[])].concat(),
            E::BlockInterrupted,
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "index 0",
            frame(HEADERS, WHOLE, 1, &[0x80]),
            E::Compression,
            ErrorCode::COMPRESSION_ERROR,
        ),
        (
            "a block that is cut",
            frame(HEADERS, WHOLE, 1, &block(&GET)[..9]),
            E::Compression,
            ErrorCode::COMPRESSION_ERROR,
        ),
        (
            "a table of 4097",
            frame(HEADERS, WHOLE, 1, &[0x3f, 0xe2, 0x1f]),
            E::TableSize,
            ErrorCode::COMPRESSION_ERROR,
        ),
        ("push of 2", settings(&[(2, 2)]), E::SettingValue, ErrorCode::PROTOCOL_ERROR),
        ("frames of 16383", settings(&[(5, 16_383)]), E::SettingValue, ErrorCode::PROTOCOL_ERROR),
        ("frames of 2^24", settings(&[(5, 1 << 24)]), E::SettingValue, ErrorCode::PROTOCOL_ERROR),
        ("connect protocol of 2", settings(&[(8, 2)]), E::SettingValue, ErrorCode::PROTOCOL_ERROR),
        ("no priorities of 2", settings(&[(9, 2)]), E::SettingValue, ErrorCode::PROTOCOL_ERROR),
        (
            "a window of 2^31",
            settings(&[(4, 1 << 31)]),
            E::InitialWindow,
            ErrorCode::FLOW_CONTROL_ERROR,
        ),
        (
            "a window that becomes 2^31",
            [get(1), window_update(1, 1), huge].concat(),
            E::InitialWindow,
            ErrorCode::FLOW_CONTROL_ERROR,
        ),
        (
            "ACK of nothing",
            [frame(SETTINGS, ACK, 0, &[]), frame(SETTINGS, ACK, 0, &[])].concat(),
            E::Acknowledgement,
            ErrorCode::PROTOCOL_ERROR,
        ),
        ("an increment of 0", window_update(0, 0), E::WindowIncrement, ErrorCode::PROTOCOL_ERROR),
        (
            "a window over 2^31",
            window_update(0, 0x7fff_ffff),
            E::WindowOverflow,
            ErrorCode::FLOW_CONTROL_ERROR,
        ),
    ];
    for (name, bytes, error, code) in cases {
        assert_eq!(error.code(), code, "{name}");
        let (kept, last) = outcome(&bytes);
        assert_eq!((kept.last(), last), (Some(&Kept::Error(error)), Some(code)), "{name}");
    }
}

#[test]
fn a_connection_begins_with_preface_and_settings() {
    for (bytes, error) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), ConnectionError::Preface),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX".to_vec(), ConnectionError::Preface),
        ([superpoll_http2::PREFACE, &get(1)].concat(), ConnectionError::SettingsMissing),
        (
            [superpoll_http2::PREFACE, &frame(SETTINGS, ACK, 0, &[])].concat(),
            ConnectionError::SettingsMissing,
        ),
    ] {
        for piece in [1, usize::MAX] {
            let mut driver = Driver::new(Config::DEFAULT);
            driver.feed_in(&bytes, piece);
            assert_eq!(driver.kept, [Kept::Error(error)]);
            let last = driver.frames().pop().unwrap();
            assert_eq!((last.kind, last.number(4)), (GOAWAY, error.code().0));
            // It stays so.
            driver.kept.clear();
            driver.feed(&get(1));
            assert_eq!((driver.kept.clone(), driver.out.len()), (vec![Kept::Error(error)], 0));
        }
    }
}

#[test]
fn each_malformed_head_is_refused_alone() {
    use StreamError as E;
    let refusal = |head: &[(&str, &str)], flags: u8| {
        let (kept, code) = outcome(&[frame(HEADERS, flags, 1, &block(head)), get(3)].concat());
        // The next request is answered.
        assert!(matches!(&kept[..], [_, Kept::Request(next)] if next.id == 3), "{kept:?}");
        match &kept[0] {
            Kept::Refused(1, error) => (*error, code),
            other => panic!("{head:?}: {other:?}"),
        }
    };
    let [method, scheme, path, authority] = GET;
    let long = "a".repeat(9000);
    let cases: Vec<(Vec<(&str, &str)>, &str)> = vec![
        (vec![method, scheme, path, authority, method], "pseudo"),
        (vec![method, scheme, path, authority, ("a", "b"), (":protocol", "c")], "pseudo"),
        (vec![method, scheme, path, ("a", "b"), authority], "pseudo"),
        (vec![method, scheme, path, ("cookie", "b"), authority], "pseudo"),
        (vec![method, scheme, path, authority, (":status", "200")], "pseudo"),
        (vec![method, scheme, path, authority, (":other", "a")], "pseudo"),
        (vec![scheme, path, authority], "pseudo-missing"),
        (vec![method, path, authority], "pseudo-missing"),
        (vec![method, scheme, authority], "pseudo-missing"),
        (vec![method, scheme, path, authority, (":protocol", "websocket")], "pseudo-missing"),
        (vec![(":method", "CONNECT"), scheme, path, authority], "pseudo-missing"),
        (vec![(":method", "CONNECT"), scheme, authority, (":protocol", "x")], "pseudo-missing"),
        (vec![method, scheme, path], "host-missing"),
        (vec![method, scheme, path, ("host", "a"), ("host", "a")], "hosts-differ"),
        (vec![method, scheme, path, authority, ("host", "b.test")], "hosts-differ"),
        (vec![method, scheme, path, (":authority", "")], "host-invalid"),
        (vec![method, scheme, path, (":authority", "u@a")], "host-invalid"),
        (vec![(":method", "G T"), scheme, path, authority], "method"),
        (vec![(":method", ""), scheme, path, authority], "method"),
        (vec![method, (":scheme", "ht tp"), path, authority], "scheme"),
        (vec![method, (":scheme", "HTTP"), path, authority], "scheme"),
        (vec![method, scheme, (":path", ""), authority], "target"),
        (vec![method, scheme, (":path", "/a b"), authority], "target"),
        (vec![method, scheme, (":path", "/\u{1}"), authority], "target"),
        (vec![method, scheme, (":path", "/a#b"), authority], "fragment"),
        (vec![method, scheme, (":path", "a"), authority], "target-form"),
        (vec![method, scheme, (":path", "*"), authority], "target-form"),
        (vec![method, scheme, (":path", "https://a/"), authority], "target-form"),
        (vec![(":method", "CONNECT"), authority], "target-form"),
        (vec![method, scheme, path, authority, ("Upper", "a")], "field-name"),
        (vec![method, scheme, path, authority, ("a b", "a")], "field-name"),
        (vec![method, scheme, path, authority, ("", "a")], "field-name"),
        (vec![method, scheme, path, authority, ("a:", "a")], "field-name"),
        (vec![method, scheme, path, authority, ("a", "b\r\nc: d")], "field-value"),
        (vec![method, scheme, path, authority, ("a", "b\0")], "field-value"),
        (vec![method, scheme, path, authority, ("a", " b")], "field-value"),
        (vec![method, scheme, path, authority, ("a", "b\t")], "field-value"),
        (vec![method, scheme, path, authority, ("cookie", "a\r")], "field-value"),
        (vec![method, scheme, path, authority, ("cookie", "a"), ("cookie", "\n")], "field-value"),
        (vec![method, scheme, path, authority, ("cookie", "a"), ("cookie", " b")], "field-value"),
        (vec![method, scheme, path, authority, ("connection", "close")], "connection-field"),
        (vec![method, scheme, path, authority, ("keep-alive", "a")], "connection-field"),
        (vec![method, scheme, path, authority, ("proxy-connection", "a")], "connection-field"),
        (
            vec![method, scheme, path, authority, ("transfer-encoding", "chunked")],
            "connection-field",
        ),
        (vec![method, scheme, path, authority, ("upgrade", "a")], "connection-field"),
        (vec![method, scheme, path, authority, ("te", "gzip")], "connection-field"),
        (vec![method, scheme, path, authority, ("content-length", "1")], "body-length"),
        (vec![method, scheme, path, authority, ("content-length", "+0")], "body-length"),
        (
            vec![method, scheme, path, authority, ("content-length", "0"), ("content-length", "1")],
            "body-length",
        ),
        (vec![method, scheme, (":path", &long), authority], "target-too-long"),
        (
            vec![method, scheme, path, authority, ("a", &long), ("b", &long[..7200])],
            "head-too-large",
        ),
        (vec![method, scheme, path, authority, ("expect", "a")], "expectation"),
    ];
    for (head, name) in cases {
        for flags in [WHOLE, END_HEADERS] {
            // Without the end, a length of 1 is fine.
            if name == "body-length" && head[4].1 == "1" && flags == END_HEADERS {
                continue;
            }
            let (error, code) = refusal(&head, flags);
            assert_eq!(error.name(), name, "{head:?}");
            let status = match error {
                E::HeadTooLarge => Some(431),
                E::TargetTooLong => Some(414),
                E::Expectation => Some(417),
                E::HostsDiffer | E::Head(superpoll_http1::Refusal::HostInvalid) => Some(400),
                _ => None,
            };
            assert_eq!(error.status().map(|status| status.as_u16()), status);
            // A response without the end of its request is followed by a reset.
            let expected = (status.is_none() || flags == END_HEADERS).then_some(error.code());
            assert_eq!(code, expected, "{head:?}");
        }
    }
    let many: Vec<(String, String)> =
        (0..101).map(|number| (format!("n{number}"), String::new())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(refusal(&[&GET[..], &many].concat(), WHOLE), (E::TooManyFields, None));
    // Cookies beyond the limit have no place.
    let cookies = [("cookie", "a"), ("cookie", "b")];
    let head = [&GET[..], &many[..100], &cookies].concat();
    assert_eq!(refusal(&head, WHOLE), (E::TooManyFields, None));
}

#[test]
fn each_stream_error_resets_its_stream_alone() {
    use StreamError as E;
    let data = |flags: u8, text: &[u8]| frame(DATA, flags, 1, text);
    let sized =
        |text: &str| frame(HEADERS, END_HEADERS, 1, &with(&POST, &[("content-length", text)]));
    let trailers = |flags: u8, fields: &[(&str, &str)]| frame(HEADERS, flags, 1, &block(fields));
    for (name, bytes, error) in [
        ("DATA after the end", [get(1), data(0, b"a")].concat(), E::Ended),
        ("fields after the end", [get(1), trailers(WHOLE, &[])].concat(), E::Ended),
        ("too long a body", [sized("1"), data(0, b"ab")].concat(), E::BodyLength),
        (
            "too long a padded body",
            [sized("1"), frame(DATA, PADDED, 1, &[1, 0, 0, 0])].concat(),
            E::BodyLength,
        ),
        ("too short a body", [sized("2"), data(END_STREAM, b"a")].concat(), E::BodyLength),
        ("no body", [sized("2"), data(END_STREAM, b"")].concat(), E::BodyLength),
        (
            "too short a body before trailers",
            [sized("2"), trailers(WHOLE, &[("a", "b")])].concat(),
            E::BodyLength,
        ),
        (
            "trailers without the end",
            [post(1), trailers(END_HEADERS, &[("a", "b")])].concat(),
            E::Trailers,
        ),
        (
            "trailers with a status",
            [post(1), trailers(WHOLE, &[(":path", "/")])].concat(),
            E::Trailers,
        ),
        (
            "trailers with a bad name",
            [post(1), trailers(WHOLE, &[("A", "/")])].concat(),
            E::FieldName,
        ),
        (
            "trailers with a bad field",
            [post(1), trailers(WHOLE, &[("upgrade", "/")])].concat(),
            E::ConnectionField,
        ),
        ("an increment of 0", [get(1), window_update(1, 0)].concat(), E::StreamWindowIncrement),
        (
            "a window over 2^31",
            [get(1), window_update(1, 0x7fff_ffff)].concat(),
            E::StreamWindowOverflow,
        ),
        (
            "PRIORITY of itself",
            [get(1), frame(PRIORITY, 0, 1, &[0x80, 0, 0, 1, 9])].concat(),
            E::OwnParent,
        ),
        ("PRIORITY of 4", [get(1), frame(PRIORITY, 0, 1, &[0; 4])].concat(), E::PrioritySize),
    ] {
        let (kept, code) = outcome(&[bytes, get(3)].concat());
        let [_, Kept::Failed(1, found), Kept::Request(next)] = &kept[..] else {
            panic!("{name}: {kept:?}");
        };
        assert_eq!((*found, code, next.id), (error, Some(error.code()), 3), "{name}");
    }
}

#[test]
fn late_frames_of_streams_that_were_reset_are_ignored() {
    // The server has reset it for its length, and the client goes on.
    let head = frame(HEADERS, END_HEADERS, 1, &with(&POST, &[("content-length", "1")]));
    let late = [
        frame(DATA, 0, 1, b"ab"),
        frame(DATA, PADDED, 1, &[1, 0, 0]),
        window_update(1, 1),
        frame(PRIORITY, 0, 1, &[0; 5]),
        frame(HEADERS, WHOLE, 1, &block(&[("a", "b")])),
    ];
    let (kept, code) = outcome(&[head, late.concat(), get(3)].concat());
    assert!(matches!(&kept[..], [_, Kept::Failed(..), Kept::Request(_)]), "{kept:?}");
    assert_eq!(code, Some(ErrorCode::PROTOCOL_ERROR));
    // Frames that may come late from any client after the end of a stream.
    let (kept, code) = outcome(&[get(1), rst(1), rst(1), window_update(1, 9), get(3)].concat());
    assert!(matches!(&kept[..], [_, Kept::Reset(..), Kept::Request(_)]), "{kept:?}");
    assert_eq!(code, None);
    // After its own end the client sends no data.
    let (kept, code) = outcome(&[get(1), rst(1), frame(DATA, 0, 1, b"a")].concat());
    assert!(matches!(&kept[..], [_, Kept::Reset(..)]), "{kept:?}");
    assert_eq!(code, Some(ErrorCode::STREAM_CLOSED));
}

#[test]
fn unknown_frames_flags_and_settings_are_ignored() {
    let (kept, code) = outcome(
        &[
            frame(0xbb, 0xff, 7, &[1; 300]),
            settings(&[(0x77, 1), (6, 0), (3, 0), (2, 1), (8, 1), (9, 1)]),
            frame(PING, 0xfe, 0, &[0; 8]),
            frame(HEADERS, WHOLE | 0xc2, 1, &block(&GET)),
            frame(PRIORITY, 0, 9, &[0; 5]),
        ]
        .concat(),
    );
    assert!(matches!(&kept[..], [Kept::Request(_)]), "{kept:?}");
    assert_eq!(code, None);
}

#[test]
fn a_request_that_depends_on_itself_is_refused_alone() {
    let payload = [&[0, 0, 0, 1, 9], &block(&GET)[..]].concat();
    let (kept, code) =
        outcome(&[frame(HEADERS, WITH_PRIORITY | WHOLE, 1, &payload), get(3)].concat());
    let [Kept::Refused(1, found), Kept::Request(next)] = &kept[..] else { panic!("{kept:?}") };
    assert_eq!((*found, code, next.id), (StreamError::OwnParent, Some(found.code()), 3));
}
