//! Readers of bodies, by named cases.

use superpoll_http1::{BodyReader, Framing, LONGEST_TRAILER, MOST_EXTRA, Progress, Refusal};

use crate::message::{Body, Pairs, read_body, read_request};

fn chunked(bytes: &[u8]) -> Result<Body, Refusal> {
    read_body(Framing::Chunked, bytes, usize::MAX, false)
}

fn pairs(pairs: &[(&str, &str)]) -> Pairs {
    pairs
        .iter()
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect()
}

#[test]
fn a_body_ends_where_its_length_says() {
    let mut reader = BodyReader::new(Framing::Length(5));
    let piece = reader.step(b"abc").unwrap();
    assert_eq!((piece.data, piece.used, piece.progress), (0..3, 3, Progress::More));
    assert_eq!((reader.run(), reader.is_over()), (2, false));
    assert_eq!(reader.clone().end(), Err(Refusal::Incomplete));
    let piece = reader.step(b"deGET / HTTP/1.1").unwrap();
    assert_eq!((piece.data, piece.used, piece.progress), (0..2, 2, Progress::Over));
    assert_eq!((reader.run(), reader.is_over(), reader.end()), (0, true, Ok(())));
    for framing in [Framing::None, Framing::Length(0)] {
        let mut reader = BodyReader::new(framing);
        assert!(reader.is_over());
        assert_eq!(reader.step(b"GET").unwrap().used, 0);
    }
}

#[test]
fn a_body_without_length_ends_with_its_connection() {
    let mut reader = BodyReader::new(Framing::UntilClose);
    assert_eq!(reader.step(b"0\r\n\r\n").unwrap().data, 0..5);
    assert!(!reader.is_over());
    assert_eq!((reader.end(), reader.is_over()), (Ok(()), true));
    let mut reader = BodyReader::new(Framing::Chunked);
    reader.step(b"3\r\nabc\r\n0\r\n").unwrap();
    assert_eq!(reader.end(), Err(Refusal::Incomplete));
}

#[test]
fn data_may_bypass_the_reader() {
    let mut reader = BodyReader::new(Framing::Chunked);
    assert_eq!((reader.run(), reader.skip(9)), (0, 0));
    assert_eq!(reader.step(b"a\r\n").unwrap().used, 3);
    assert_eq!((reader.run(), reader.skip(4), reader.skip(9), reader.run()), (10, 4, 6, 0));
    assert_eq!(reader.step(b"\r\n0\r\n\r\n").unwrap().progress, Progress::Over);
    let mut reader = BodyReader::new(Framing::Length(10));
    assert_eq!((reader.skip(11), reader.is_over()), (10, true));
}

/// CVE-2025-22871 and its like: bytes after a wrong end would be another message.
///
/// A planted bug that this catches: a line feed alone ends a line of chunks.
#[test]
fn a_line_feed_alone_ends_no_line_of_chunks() {
    for (body, expected) in [
        (&b"3\nabc\r\n0\r\n\r\n"[..], Refusal::ChunkLine),
        (b"3;a=b\nabc\r\n0\r\n\r\n", Refusal::ChunkLine),
        (b"3 \nabc\r\n0\r\n\r\n", Refusal::ChunkLine),
        (b"3;\nabc\r\n0\r\n\r\n", Refusal::ChunkLine),
        (b"3\r\nabc\n0\r\n\r\n", Refusal::ChunkEnd),
        (b"3\r\nabc\r\n0\n\r\n", Refusal::ChunkLine),
        (b"3\r\nabc\r\n0\r\n\n", Refusal::Trailer),
        (b"3\r\nabc\r\n0\r\nx: y\n\r\n", Refusal::Trailer),
        (b"3\r\nabc\r\n0\r\nx: y\r\n\n", Refusal::Trailer),
    ] {
        assert_eq!(chunked(body), Err(expected), "{}", body.escape_ascii());
    }
}

#[test]
fn chunks_are_read_strictly() {
    for body in [
        &b"3\r\nabc\r\n0\r\n\r\n"[..],
        b"3;a=b\r\nabc\r\n0\r\n\r\n",
        b"3 ; a=\"b\"\r\nabc\r\n0\r\n\r\n",
        b"3 \r\nabc\r\n0;x\r\n\r\n",
        b"0000000000000000003\r\nabc\r\n000\r\n\r\n",
        b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
    ] {
        let whole = [body, b"rest"].concat();
        let expected = Body { data: b"abc".to_vec(), end: Some(body.len()), ..Body::default() };
        assert_eq!(chunked(&whole), Ok(expected), "{}", body.escape_ascii());
    }
    for (body, expected) in [
        (&b"3;a\rb\r\nabc\r\n0\r\n\r\n"[..], Refusal::ChunkLine),
        (b"3;a\0b\r\nabc\r\n0\r\n\r\n", Refusal::ChunkExtension),
        (b"3 x\r\nabc\r\n0\r\n\r\n", Refusal::ChunkSize),
        (b"3 3\r\nabc\r\n0\r\n\r\n", Refusal::ChunkSize),
        (b" 3\r\nabc\r\n0\r\n\r\n", Refusal::ChunkSize),
        (b"+3\r\nabc\r\n0\r\n\r\n", Refusal::ChunkSize),
        (b"-3\r\nabc\r\n0\r\n\r\n", Refusal::ChunkSize),
        (b"0x3\r\nabc\r\n0\r\n\r\n", Refusal::ChunkSize),
        (b"\r\nabc\r\n0\r\n\r\n", Refusal::ChunkSize),
        (b";a\r\nabc\r\n0\r\n\r\n", Refusal::ChunkSize),
        (b"3\x0c\r\nabc\r\n0\r\n\r\n", Refusal::ChunkSize),
        (b"3\r\nabcXX0\r\n\r\n", Refusal::ChunkEnd),
        (b"3\r\nabc\r0\r\n\r\n", Refusal::ChunkEnd),
        (b"3\r\nabc0\r\n\r\n", Refusal::ChunkEnd),
        (b"3\r\nabc\r\n0\r\nx\r\n\r\n", Refusal::Trailer),
        (b"3\r\nabc\r\n0\r\nx : y\r\n\r\n", Refusal::Trailer),
        (b"3\r\nabc\r\n0\r\n: y\r\n\r\n", Refusal::Trailer),
        (b"3\r\nabc\r\n0\r\nx: y \x0c\r\n\r\n", Refusal::Trailer),
        (b"3\r\nabc\r\n0\r\nx: y\r\n z\r\n\r\n", Refusal::Trailer),
        (b"3\r\nabc\r\n0\r\r\n", Refusal::ChunkLine),
        (b"3\r\nabc\r\n0\r\n\r\r\n", Refusal::Trailer),
    ] {
        assert_eq!(chunked(body), Err(expected), "{}", body.escape_ascii());
    }
}

#[test]
fn extensions_and_trailers_are_bounded() {
    let extended = |length: usize, chunks: usize| {
        let chunk = format!("1;{}\r\na\r\n", "x".repeat(length));
        chunked(format!("{}0\r\n\r\n", chunk.repeat(chunks)).as_bytes()).map(|body| body.data.len())
    };
    // The semicolon counts as well.
    assert_eq!(extended(MOST_EXTRA - 1, 1), Ok(1));
    assert_eq!(extended(MOST_EXTRA, 1), Err(Refusal::ExtraTooLarge));
    assert_eq!(extended(100, 150), Ok(150));
    assert_eq!(extended(100, 200), Err(Refusal::ExtraTooLarge));
    // A long body may have as much of them as of data.
    let padded = "00000000a;padded\r\n0123456789\r\n".repeat(10_000);
    let body = chunked(format!("{padded}0\r\n\r\n").as_bytes());
    assert_eq!(body.map(|body| body.data.len()), Err(Refusal::ExtraTooLarge));
    let padded = "00a;padded\r\n0123456789\r\n".repeat(10_000);
    let body = chunked(format!("{padded}0\r\n\r\n").as_bytes());
    assert_eq!(body.map(|body| body.data.len()), Ok(100_000));
    let zeros = "0".repeat(MOST_EXTRA + 1);
    assert_eq!(chunked(zeros.as_bytes()), Err(Refusal::ExtraTooLarge));
    let trailers = |line: String, count: usize| {
        chunked(format!("0\r\n{}\r\n", line.repeat(count)).as_bytes())
            .map(|body| body.trailers.len())
    };
    assert_eq!(trailers("x: y\r\n".to_owned(), 100), Ok(100));
    assert_eq!(trailers("x: y\r\n".to_owned(), 101), Err(Refusal::ExtraTooLarge));
    let long = |length: usize| format!("x:{}\r\n", "y".repeat(length - 2));
    assert_eq!(trailers(long(LONGEST_TRAILER), 1), Ok(1));
    assert_eq!(trailers(long(LONGEST_TRAILER), 2), Err(Refusal::ExtraTooLarge));
    assert_eq!(trailers(long(LONGEST_TRAILER + 1), 1), Err(Refusal::ExtraTooLarge));
    let endless = format!("0\r\nx:{}", "y".repeat(LONGEST_TRAILER));
    assert_eq!(chunked(endless.as_bytes()), Err(Refusal::ExtraTooLarge));
}

/// A planted bug that this catches: a trailer is merged into the message, where it would change its
/// length, its host or the user it is of.
#[test]
fn no_trailer_is_merged() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX: 1\r\n\r\n";
    let body =
        "3\r\nabc\r\n0\r\nHost: b\r\nContent-Length: 9\r\nTransfer-Encoding: x\r\nX:  2\t\r\n\r\n";
    let bytes = format!("{head}{body}GET /b HTTP/1.1\r\n");
    let read = read_request(bytes.as_bytes(), &crate::message::WIDE).unwrap().unwrap();
    let expected = [("host", "a"), ("transfer-encoding", "chunked"), ("x", "1")];
    assert_eq!((read.host.as_deref(), &read.fields), (Some("a"), &pairs(&expected)));
    for piece in 1..body.len() {
        let seen = read_body(read.framing, &bytes.as_bytes()[read.len..], piece, false).unwrap();
        let trailers =
            [("host", "b"), ("content-length", "9"), ("transfer-encoding", "x"), ("x", "2")];
        assert_eq!((&seen.data[..], &seen.trailers), (&b"abc"[..], &pairs(&trailers)));
        assert_eq!(seen.end, Some(body.len()));
    }
}
