//! The compression of responses of servers, seen by a client that decodes them.

use std::io::{BufRead, Read, Write};
use std::sync::{Arc, Mutex, mpsc};

use superpoll_rt::BackendKind;

use crate::gateway::{Gateway, MOST, config};
use crate::origin::{Client, Origin, Reply};

const CODINGS: [&str; 3] = ["gzip", "br", "zstd"];

/// Text that does not repeat too soon.
fn text(length: usize) -> String {
    let words =
        (0..).map(|number: usize| format!("line {} of {}\n", number * number % 7919, number));
    let mut text = String::new();
    for word in words {
        if text.len() >= length {
            break;
        }
        text += &word;
    }
    text.truncate(length);
    text
}

fn compressing(backend: BackendKind, server: &str) -> Gateway {
    Gateway::start(backend, &config(&[server], "", ", compress = true"))
}

/// Responses that cannot be compressed are passed on from the lines of their heads.
#[test]
fn images_and_compressed_texts_are_passed_on_as_they_are() {
    for backend in MOST {
        let origin = Origin::start(|line| {
            loop {
                let seen = line.request()?;
                let fields = match seen.line().contains("image") {
                    true => "Content-Type: image/png",
                    false => "Content-Type: text/plain\r\nContent-Encoding: x",
                };
                let text = text(2000);
                line.send(format!(
                    "HTTP/1.1 200 OK\r\n{fields}\r\nContent-Length: 2000\r\n\r\n{text}"
                ))?;
            }
        });
        let gateway = compressing(backend, &origin.address);
        let mut client = Client::connect(&gateway.address);
        for path in ["/image", "/compressed"] {
            let reply =
                ask(&mut client, &format!("GET {path} HTTP/1.1"), "Accept-Encoding: gzip\r\n");
            assert_eq!((reply.text(), reply.field("vary")), (&*text(2000), None));
        }
        let passed: u64 =
            gateway.call(|_, server| server.engines().iter().map(|one| one.lane.get()).sum());
        assert_eq!(passed, 2);
    }
}

fn ask(client: &mut Client, line: &str, fields: &str) -> Reply {
    client.send(format!("{line}\r\nHost: a.example\r\n{fields}\r\n"));
    client.reply_to(line.split(' ').next().unwrap()).unwrap()
}

/// Decodes as much as there is; `false` if the coding was not ended.
fn decoded(bytes: &[u8], coding: &str) -> (Vec<u8>, bool) {
    let mut reader: Box<dyn Read + '_> = match coding {
        "gzip" => Box::new(flate2::bufread::GzDecoder::new(bytes)),
        "br" => Box::new(brotli::Decompressor::new(bytes, 4096)),
        "zstd" => Box::new(zstd::Decoder::new(bytes).unwrap()),
        other => panic!("{other}"),
    };
    let (mut out, mut room) = (Vec::new(), [0; 4096]);
    loop {
        match reader.read(&mut room) {
            Ok(0) => return (out, true),
            Ok(count) => out.write_all(&room[..count]).unwrap(),
            Err(_) => return (out, false),
        }
    }
}

/// A server of texts of the length that the path says, framed in one of three ways.
fn origin() -> Origin {
    Origin::start(|line| {
        loop {
            let seen = line.request()?;
            let path = seen.line().split(' ').nth(1).unwrap().to_owned();
            let (framing, length) = path[1..].split_once('/').unwrap();
            let text = text(length.parse().unwrap());
            let kind =
                "Content-Type: text/html; charset=utf-8\r\nETag: \"v1\"\r\nAccept-Ranges: bytes";
            match framing {
                "length" => {
                    let length = text.len();
                    line.send(format!(
                        "HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {length}\r\n\r\n"
                    ))?;
                    if !seen.line().starts_with("HEAD") {
                        line.send(text)?;
                    }
                }
                "chunks" => {
                    line.send(format!(
                        "HTTP/1.1 200 OK\r\n{kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
                    ))?;
                    for part in text.as_bytes().chunks(1000) {
                        line.send(format!("{:x}\r\n", part.len()))?;
                        line.send(part)?;
                        line.send("\r\n")?;
                    }
                    line.send("0\r\n\r\n")?;
                }
                _ => {
                    line.send(format!(
                        "HTTP/1.1 200 OK\r\n{kind}\r\nConnection: close\r\n\r\n{text}"
                    ))?;
                    return Ok(());
                }
            }
        }
    })
}

#[test]
fn texts_come_whole_in_each_coding() {
    for backend in MOST {
        let origin = origin();
        let gateway = compressing(backend, &origin.address);
        for coding in CODINGS {
            let mut client = Client::connect(&gateway.address);
            let accepts = format!("Accept-Encoding: {coding}\r\n");
            for framing in ["length", "chunks", "close"] {
                for length in [2000, 40_000, 300_000] {
                    let line = format!("GET /{framing}/{length} HTTP/1.1");
                    let reply = ask(&mut client, &line, &accepts);
                    let what = format!("{backend:?} {coding} {framing} {length}");
                    assert_eq!(reply.field("content-encoding").as_deref(), Some(coding), "{what}");
                    assert_eq!(reply.field("etag").as_deref(), Some("W/\"v1\""));
                    assert_eq!(reply.field("vary").as_deref(), Some("accept-encoding"));
                    assert_eq!(reply.field("accept-ranges"), None);
                    assert!(reply.body.len() < length * 2 / 3, "{what}: {}", reply.body.len());
                    let (body, is_ended) = decoded(&reply.body, coding);
                    assert!(is_ended && body == text(length).as_bytes(), "{what}");
                }
            }
            // Another client gets the text as it is, also by HTTP/1.0 and to a HEAD.
            let plain = ask(&mut client, "GET /length/40000 HTTP/1.1", "");
            assert_eq!(plain.field("content-encoding"), None);
            assert_eq!(plain.field("etag").as_deref(), Some("\"v1\""));
            assert_eq!(plain.field("vary").as_deref(), Some("accept-encoding"));
            assert_eq!(plain.text(), text(40_000));
            let head = ask(&mut client, "HEAD /length/40000 HTTP/1.1", &accepts);
            assert_eq!(head.field("content-encoding"), None);
            assert_eq!(head.field("content-length").as_deref(), Some("40000"));
            let old =
                ask(&mut Client::connect(&gateway.address), "GET /length/90000 HTTP/1.0", &accepts);
            assert_eq!(old.field("transfer-encoding"), None);
            let (body, is_ended) = decoded(&old.body, coding);
            assert!(is_ended && body == text(90_000).as_bytes());
        }
        let lane: u64 =
            gateway.call(|_, server| server.engines().iter().map(|one| one.lane.get()).sum());
        assert_eq!(lane, 0, "a body took the lane");
    }
}

/// Reads a chunk of a response.
fn chunk(client: &mut Client) -> Option<Vec<u8>> {
    let mut line = String::new();
    client.reader.read_line(&mut line).ok()?;
    let length = usize::from_str_radix(line.trim_end(), 16).ok()?;
    let mut chunk = vec![0; length + 2];
    client.reader.read_exact(&mut chunk).ok()?;
    chunk.truncate(length);
    Some(chunk)
}

#[test]
fn each_line_is_readable_before_the_server_sends_the_next() {
    for backend in MOST {
        for coding in CODINGS {
            let (tell, told) = mpsc::channel::<Option<String>>();
            let told = Arc::new(Mutex::new(told));
            let origin = Origin::start(move |line| {
                line.request()?;
                line.send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                while let Ok(Some(text)) = told.lock().unwrap().recv() {
                    line.send(format!("{:x}\r\n{text}\r\n", text.len()))?;
                }
                line.send("0\r\n\r\n")
            });
            let gateway = compressing(backend, &origin.address);
            let mut client = Client::connect(&gateway.address);
            client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n"));
            let head = client.head().unwrap();
            assert_eq!(head.field("content-encoding").as_deref(), Some(coding));
            let (mut sent, mut seen) = (String::new(), Vec::new());
            for number in 0..20 {
                let text = format!("{{\"number\":{number}}}\n");
                sent += &text;
                tell.send(Some(text)).unwrap();
                // The test hangs here if bytes are held back.
                while decoded(&seen, coding).0.len() < sent.len() {
                    seen.extend(chunk(&mut client).unwrap());
                }
            }
            tell.send(None).unwrap();
            loop {
                let more = chunk(&mut client).unwrap();
                if more.is_empty() {
                    break;
                }
                seen.extend(more);
            }
            assert_eq!(decoded(&seen, coding), (sent.into_bytes(), true));
        }
    }
}

#[test]
fn a_body_that_breaks_off_does_not_look_whole() {
    for backend in MOST {
        for coding in CODINGS {
            let origin = Origin::start(|line| {
                line.request()?;
                let text = text(50_000);
                line.send(format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 90000\r\n\r\n{text}"
                ))
            });
            let gateway = compressing(backend, &origin.address);
            let mut client = Client::connect(&gateway.address);
            client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n"));
            let head = client.head().unwrap();
            assert_eq!(head.field("content-encoding").as_deref(), Some(coding));
            let (mut seen, mut is_whole) = (Vec::new(), false);
            while let Some(more) = chunk(&mut client) {
                is_whole |= more.is_empty();
                seen.extend(more);
            }
            let (body, is_ended) = decoded(&seen, coding);
            assert!(!is_whole && !is_ended, "{coding}");
            assert!(text(50_000).as_bytes().starts_with(&body));
        }
    }
}

#[test]
fn server_sent_events_stay_as_they_are() {
    let origin = Origin::start(|line| {
        line.request()?;
        line.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        line.send("9\r\ndata: 1\n\n\r\n0\r\n\r\n")
    });
    let gateway = compressing(MOST[0], &origin.address);
    let mut client = Client::connect(&gateway.address);
    let reply = ask(&mut client, "GET / HTTP/1.1", "Accept-Encoding: gzip, br, zstd\r\n");
    assert_eq!((reply.field("content-encoding"), reply.field("vary")), (None, None));
    assert_eq!(reply.text(), "data: 1\n\n");
}
