//! Bodies that take the lane come whole, and none is larger than it may be.

use std::io::{Read, Write};
use std::time::Duration;

use superpoll_rt::BackendKind;
use superpoll_test_support::connect_narrow;

use crate::gateway::{GIVEN, Gateway, all, config};
use crate::origin::{Client, Origin};

/// Bytes that depend on their place.
fn pattern(length: usize, seed: usize) -> Vec<u8> {
    let byte = |at: usize| (at.wrapping_mul(0x9e37_79b9).wrapping_add(seed * 7) >> 11) as u8;
    (0..length).map(byte).collect()
}

/// Long bodies are spliced: they come whole, however the server sends and the client reads, and one
/// that breaks off leaves nothing behind for the next.
#[test]
fn long_bodies_come_whole_and_alone() {
    const LENGTHS: [usize; 7] = [65_535, 65_536, 70_000, 81_919, 100_000, 1 << 20, 3_000_001];
    for backend in all() {
        // The path says which body, how much of it the server sends, and in which pieces.
        let origin = Origin::start(|line| {
            loop {
                let seen = line.request()?;
                let numbers: Vec<usize> =
                    seen.line().split(['/', ' ']).flat_map(str::parse).collect();
                let [length, seed, upto, piece] = numbers[..4] else { panic!("{}", seen.line()) };
                line.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"))?;
                let body = pattern(length.max(upto), seed);
                body[..upto].chunks(piece).try_for_each(|piece| line.send(piece))?;
                if upto < length {
                    return Ok(());
                }
            }
        });
        let gateway = Gateway::start(backend, &config(&[&origin.address], "", ""));
        let lane =
            || gateway.call(|_, server| server.engines().iter().map(|one| one.lane.get()).sum());
        let before: u64 = lane();
        let mut client = Client::connect(&gateway.address);
        for (seed, length) in LENGTHS.into_iter().enumerate() {
            for piece in [1_460, 50_000, 4 << 20] {
                client.send(format!(
                    "GET /{length}/{seed}/{length}/{piece}/ HTTP/1.1\r\nHost: a\r\n\r\n"
                ));
                let head = client.head().unwrap();
                assert_eq!(head.field("content-length").unwrap(), length.to_string());
                // A slow client, whose socket is full most of the time.
                let (mut body, mut room) = (Vec::new(), vec![0; 1 + (piece * 7) % 90_001]);
                while body.len() < length {
                    let most = room.len().min(length - body.len());
                    let count = client.reader.read(&mut room[..most]).unwrap();
                    assert!(count > 0, "{backend:?} {length} {piece}");
                    body.extend_from_slice(&room[..count]);
                }
                assert!(body == pattern(length, seed), "{backend:?} {length} {piece}");
            }
            // A server that breaks off, and a client that goes with bytes under way.
            for (upto, leaves) in [(length - 1, false), (length / 2, false), (length, true)] {
                let mut other = match leaves {
                    // One that goes has had no room for most of the body.
                    true => Client::of(connect_narrow(&*gateway.address, Some(4096))),
                    false => Client::connect(&gateway.address),
                };
                other.send(format!(
                    "GET /{length}/{}/{upto}/9000/ HTTP/1.1\r\nHost: a\r\n\r\n",
                    seed + 100
                ));
                other.head().unwrap();
                if leaves {
                    // Long enough, as a rule, for the lane to wait with bytes in its pipe.
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
                let mut body = Vec::new();
                let _ = other.reader.read_to_end(&mut body);
                assert!(body == pattern(length, seed + 100)[..upto], "{backend:?} {length} {upto}");
            }
            // Bytes behind the body are nobody's.
            let mut other = Client::connect(&gateway.address);
            let more = length + 50_000;
            other.send(format!("GET /{length}/{seed}/{more}/{more}/ HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert!(other.reply().body == pattern(length, seed), "{backend:?} {length} {more}");
            other.send("GET /10/1/10/10/ HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(other.reply().body, pattern(10, 1), "{backend:?} {length}");
        }
        assert!(lane() - before >= 3 * LENGTHS.len() as u64, "{backend:?}");
    }
}

/// The body of a request that is larger than it may be is refused, also if it does not say so
/// before.
#[test]
fn a_body_in_chunks_that_is_too_large_is_refused() {
    for proxy in [GIVEN, ""] {
        let origin = Origin::echo();
        let text = config(&[&origin.address], "", proxy) + "[limits]\nbody_bytes = 100\n";
        let gateway = Gateway::start(BackendKind::Epoll, &text);
        let mut client = Client::connect(&gateway.address);
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nc8\r\n{}\r\n0\r\n\r\n",
            "x".repeat(200)
        ));
        assert_eq!(client.reply().status, 413, "{proxy}");
        assert!(origin.seen().is_empty(), "{proxy}");
    }
}

/// Uploads come whole, however the client sends them, and what follows them is the next request.
#[test]
fn uploads_come_whole_and_alone() {
    const LENGTHS: [usize; 9] =
        [1, 1_000, 16_000, 16_384, 20_000, 65_536, 65_537, 200_000, 700_001];
    for backend in all() {
        let origin = Origin::start(|line| {
            loop {
                let seen = line.request()?;
                line.send(format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                    seen.body.len()
                ))?;
                line.send(&seen.body)?;
            }
        });
        let gateway = Gateway::start(backend, &config(&[&origin.address], "", ""));
        let lane =
            || gateway.call(|_, server| server.engines().iter().map(|one| one.lane.get()).sum());
        let (before, mut count): (u64, u64) = (lane(), 0);
        let mut client = Client::connect(&gateway.address);
        for (seed, length) in LENGTHS.into_iter().enumerate() {
            for (method, chunk) in [("POST", 0), ("PUT", 0), ("POST", 1_000), ("PUT", 30_000)] {
                for piece in [700, 20_000, 1 << 20] {
                    let body = pattern(length, seed + piece);
                    let mut sent = format!("{method} / HTTP/1.1\r\nHost: a\r\n").into_bytes();
                    match chunk {
                        0 => sent.extend(format!("Content-Length: {length}\r\n\r\n").bytes()),
                        _ => sent.extend(b"Transfer-Encoding: chunked\r\n\r\n"),
                    }
                    if chunk == 0 {
                        sent.extend(&body);
                    } else {
                        for data in body.chunks(chunk) {
                            sent.extend(format!("{:x}\r\n", data.len()).bytes());
                            sent.extend(data);
                            sent.extend(b"\r\n");
                        }
                        sent.extend(b"0\r\n\r\n");
                    }
                    sent.extend(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nnext");
                    let what = format!("{backend:?} {method} {length} {chunk} {piece}");
                    let mut writer = client.stream.try_clone().unwrap();
                    let pieces = std::thread::spawn(move || {
                        sent.chunks(piece).for_each(|piece| writer.write_all(piece).unwrap());
                    });
                    assert!(client.reply().body == body, "{what}");
                    assert_eq!(client.reply().text(), "next", "{what}");
                    pieces.join().unwrap();
                    count += 2;
                }
            }
        }
        assert_eq!(lane() - before, count, "{backend:?}");
    }
}

/// A server that answers at once reads nothing of the upload, which nobody else may read as a
/// request either.
#[test]
fn the_rest_of_an_upload_is_no_request() {
    for backend in all() {
        for is_chunked in [false, true] {
            let origin = Origin::start(move |line| {
                line.head()?;
                if !is_chunked {
                    return line.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst");
                }
                // While the head is passed on, its end is not known.
                line.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                line.send("5\r\nfirst\r\n")?;
                line.send("0\r\n\r\n")
            });
            let gateway = Gateway::start(backend, &config(&[&origin.address], "", ""));
            for fields in ["Content-Length: 100000", "Transfer-Encoding: chunked"] {
                let what = format!("{backend:?} {is_chunked} {fields}");
                let mut client = Client::connect(&gateway.address);
                client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
                let reply = client.reply();
                assert_eq!(reply.text(), "first", "{what}");
                if !is_chunked {
                    assert_eq!(reply.field("connection").as_deref(), Some("close"), "{what}");
                }
                // Its place in the upload is none of a chunk.
                let _ = client.stream.write_all(b"GET /second HTTP/1.1\r\nHost: a\r\n\r\n");
                let mut rest = Vec::new();
                let ended = client.reader.read_to_end(&mut rest).map_err(|error| error.kind());
                assert_ne!(ended.map(drop), Err(std::io::ErrorKind::WouldBlock), "{what}");
                assert_eq!(rest, b"", "{what}");
            }
            assert_eq!(origin.connections(), 2, "{backend:?} {is_chunked}");
        }
    }
}

/// An upload of which a server may have got something goes to no other one.
#[test]
fn an_upload_is_sent_once() {
    for backend in all() {
        let servers = [(); 2].map(|()| {
            Origin::start(|line| {
                let seen = line.head()?;
                // The connection is kept, and ends under the next request.
                if seen.line().starts_with("GET") {
                    return line.answer("first");
                }
                Ok(())
            })
        });
        let [one, other] = &servers;
        let text = config(&[&one.address, &other.address], "", "");
        let gateway = Gateway::start(backend, &text);
        for fields in ["Content-Length: 100000", "Transfer-Encoding: chunked"] {
            let before = one.connections() + other.connections();
            let mut client = Client::connect(&gateway.address);
            client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n5\r\nhello"));
            assert_eq!(client.reply().status, 502, "{backend:?} {fields}");
            assert_eq!(one.connections() + other.connections(), before + 1, "{backend:?} {fields}");
        }
    }
}
