//! Files that are answered from their requests' heads, next to the same files by handlers.

use std::io::{BufRead, Read};

use crate::stage::{BACKENDS, Client, Stage};

/// A server of a folder.
fn serve(backend: superpoll_rt::BackendKind, folder: &std::path::Path) -> Stage {
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\npath = \"/f\"\n\
         files = {{ root = {folder:?}, max_age = \"60s\" }}\n"
    );
    Stage::new(backend, 1, &text)
}

/// The lines of a response's head in no order, without its time, and its body.
fn exchange(client: &mut Client, request: &str) -> (Vec<String>, Vec<u8>) {
    client.send(request);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let mut byte = [0];
        client.0.read_exact(&mut byte).unwrap();
        head.push(byte[0].into());
    }
    let mut lines: Vec<String> = head.trim_end().lines().map(str::to_lowercase).collect();
    assert_eq!(lines.iter().filter(|line| line.starts_with("date: ")).count(), 1, "{head}");
    lines.retain(|line| !line.starts_with("date: "));
    lines[1..].sort_unstable();
    let length = lines.iter().find_map(|line| line.strip_prefix("content-length: "));
    let has_none = request.starts_with("HEAD") || head.starts_with("HTTP/1.1 304");
    let length = length.filter(|_| !has_none).map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    client.0.read_exact(&mut body).unwrap();
    (lines, body)
}

/// Returns the same request with a body, which a handler answers therefore.
fn with_body(request: &str) -> String {
    let (head, _) = request.split_once("\r\n\r\n").unwrap();
    format!("{head}\r\nContent-Length: 1\r\n\r\nx")
}

/// Each request is answered from its head or not; the answer is the same.
#[test]
fn files_are_answered_as_by_handlers() {
    let folder = tempfile::tempdir().unwrap();
    let noise = |length: u32| -> Vec<u8> {
        (0..length).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect()
    };
    let text = "some text that compresses well, over and over\n".repeat(60);
    std::fs::write(folder.path().join("a.txt"), "hello\n").unwrap();
    std::fs::write(folder.path().join("none.bin"), "").unwrap();
    std::fs::write(folder.path().join("text.html"), text).unwrap();
    std::fs::write(folder.path().join("large.bin"), noise(200_000)).unwrap();
    std::fs::write(folder.path().join("index.html"), "<p>index").unwrap();
    let get = |path: &str, fields: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    for backend in BACKENDS {
        let (lane, handlers) = (serve(backend, folder.path()), serve(backend, folder.path()));
        // They are in memory once they were asked for.
        for path in ["/f/a.txt", "/f/none.bin", "/f/large.bin", "/f/text.html", "/f/"] {
            for fields in ["", "Accept-Encoding: gzip\r\n", "Accept-Encoding: br\r\n"] {
                exchange(&mut lane.connect(), &get(path, fields));
                exchange(&mut handlers.connect(), &with_body(&get(path, fields)));
            }
        }
        let since = "If-Modified-Since: Mon, 01 Jan 2035 00:00:00 GMT\r\n";
        for (request, passes) in [
            (get("/f/a.txt", ""), true),
            (get("/f/a.txt?query", "Accept: */*\r\nCookie: a\r\n"), true),
            (get("/f/none.bin", ""), true),
            (get("/f/", ""), true),
            (get("/f/text.html", ""), true),
            (get("/f/text.html", "Accept-Encoding: gzip, deflate, br;q=0.5\r\n"), true),
            (get("/f/text.html", "accept-encoding: x\r\naccept-encoding: br\r\n"), true),
            (get("/f/text.html", "Accept-Encoding: gzip;q=0, identity\r\n"), true),
            (get("/f/large.bin", ""), true),
            (get("/f/large.bin", "").replace("GET", "HEAD"), true),
            (get("/f/a.txt", "Range: bytes=1-2\r\n"), false),
            (get("/f/a.txt", ""), true),
            (get("/f/large.bin", "range: bytes=1000-150000\r\n"), false),
            (get("/f/a.txt", since), true),
            (get("/f/a.txt", since).replace("GET", "HEAD"), true),
            (get("/f/a.txt", "If-Unmodified-Since: Mon, 01 Jan 2001 00:00:00 GMT\r\n"), false),
            (get("/f/a.txt", "If-Match: x\r\n"), false),
            (get("/f/large.bin", "range: bytes=300000-\r\n"), false),
            (get("/f/a.txt", "IF-None-Match: \"x\"\r\n"), true),
            (get("/f/a.txt", "If-None-Match: *\r\n"), true),
            (get("/f/a.txt", ""), true),
            (get("/f/missing", ""), false),
            (get("/f/missing", "").replace("GET", "HEAD"), false),
            (get("/f/large.bin", ""), true),
            (get("/f", ""), false),
            (get("/other", ""), false),
            (get("/f/a.txt", "").replace("GET", "DELETE"), false),
            (get("/f/large.bin", ""), true),
        ] {
            // A handler looks at the file again when the last look is a while ago.
            for attempt in 0..100 {
                let (mut one, mut other) = (lane.connect(), handlers.connect());
                let before = lane.count(|engine| &engine.lane);
                let (ours, theirs) =
                    (exchange(&mut one, &request), exchange(&mut other, &with_body(&request)));
                assert_eq!(ours, theirs, "{backend:?} {request}");
                // It is counted behind the last byte, before the answer to a request behind.
                let behind = exchange(&mut one, &get("/missing", "")).0;
                assert_eq!(exchange(&mut other, &get("/missing", "")).0, behind);
                let has_passed = lane.count(|engine| &engine.lane) > before;
                assert!(passes || !has_passed, "{backend:?} {request}");
                if has_passed == passes {
                    break;
                }
                assert!(attempt < 99, "{backend:?} {request} never takes the lane");
            }
        }
        for (stage, is_lane) in [(&lane, true), (&handlers, false)] {
            let mut client = stage.connect();
            let request = get("/f/a.txt", "Connection: close\r\n");
            let request = if is_lane { request } else { with_body(&request) };
            assert!(exchange(&mut client, &request).0.contains(&"connection: close".to_owned()));
            assert!(client.is_closed());
        }
        assert_eq!(handlers.count(|engine| &engine.lane), 0);
        let counted = |stage: &Stage| {
            (stage.count(|engine| &engine.body_bytes), stage.count(|engine| &engine.responses[1]))
        };
        assert_eq!(counted(&lane), counted(&handlers), "{backend:?}");
    }
}

/// Reads the body of an answer; `None` if the connection ends before it does.
fn whole_body(client: &mut Client) -> Option<Vec<u8>> {
    let (mut line, mut length) = (String::new(), None);
    while line != "\r\n" {
        line.clear();
        client.0.read_line(&mut line).ok().filter(|count| *count > 0)?;
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok();
        }
    }
    let mut body = vec![0; length?];
    client.0.read_exact(&mut body).ok().map(|()| body)
}

/// A file that changes while its answers wait for a client that does not read. If it changes at the
/// very moment in which the kernel sends it, the connection ends.
#[test]
fn an_answer_has_one_version_of_a_file() {
    const LENGTH: usize = 200_000;
    const REQUESTS: usize = 60;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.bin");
    for backend in BACKENDS {
        std::fs::write(&path, vec![1; LENGTH]).unwrap();
        let lane = serve(backend, folder.path());
        let request = "GET /f/large.bin HTTP/1.1\r\nHost: a\r\n\r\n";
        exchange(&mut lane.connect(), request);
        let mut slow = lane.connect();
        slow.send(request.repeat(REQUESTS));
        let first = slow.answer();
        // The socket is full long before the last of them.
        std::fs::write(&path, vec![2; LENGTH]).unwrap();
        assert!(first.body.iter().all(|byte| *byte == 1));
        for number in 1..REQUESTS {
            let Some(body) = whole_body(&mut slow) else { break };
            // While it is written the file is shorter, or empty.
            if body.iter().any(|byte| *byte != body[0]) {
                // The kernel had sent the last piece before the change could be seen.
                assert!(whole_body(&mut slow).is_none(), "{backend:?} {number}");
                break;
            }
        }
        // A change is seen within a second.
        while exchange(&mut lane.connect(), request).1.len() != LENGTH {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// Heads and files follow one another without a gap, whatever room a client leaves in its socket.
#[test]
fn files_come_whole_to_a_client_that_reads_slowly() {
    const LENGTH: usize = 40_000;
    const REQUESTS: usize = 1_000;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("large.bin"), vec![b'~'; LENGTH]).unwrap();
    for is_lane in [true, false] {
        let stage = serve(superpoll_rt::BackendKind::Epoll, folder.path());
        let plain = "GET /f/large.bin HTTP/1.1\r\nHost: a\r\n\r\n";
        let request = if is_lane { plain.to_owned() } else { with_body(plain) };
        let usual = exchange(&mut stage.connect(), &request).0;
        for round in 0..4_usize {
            let mut slow = stage.connect();
            let mut sender = slow.0.get_ref().try_clone().unwrap();
            let request = request.clone();
            let sending = std::thread::spawn(move || {
                (0..REQUESTS).for_each(|_| {
                    std::io::Write::write_all(&mut sender, request.as_bytes()).unwrap();
                });
            });
            let (mut seen, mut room, mut at) = (Vec::new(), vec![0; 300_000], round * 77);
            for number in 0..REQUESTS {
                let whole = |seen: &[u8]| {
                    let end = seen.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
                    (seen.len() >= end + LENGTH).then_some(end)
                };
                let end = loop {
                    if let Some(end) = whole(&seen) {
                        break end;
                    }
                    at = at.wrapping_mul(31).wrapping_add(round + 17);
                    let most = 1 + at % [1_000, 9_001, 70_003, 300_000][round % 4];
                    let count = slow.0.read(&mut room[..most]).unwrap();
                    assert!(count > 0, "{is_lane} {number}");
                    seen.extend_from_slice(&room[..count]);
                };
                let head = String::from_utf8_lossy(&seen[..end]).to_lowercase();
                assert!(head.starts_with(&usual[0]), "{is_lane} {round} {number} {head:?}");
                let body = &seen[end..end + LENGTH];
                assert!(body.iter().all(|byte| *byte == b'~'), "{is_lane} {round} {number}");
                seen.drain(..end + LENGTH);
            }
            sending.join().unwrap();
        }
    }
}

/// A body that nobody asked for is not the next request.
#[test]
fn a_body_behind_the_request_for_a_file_is_read_over() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "hello\n").unwrap();
    std::fs::write(folder.path().join("b.txt"), "other\n").unwrap();
    let stage = serve(BACKENDS[0], folder.path());
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    // They are in memory once they were asked for.
    for path in ["/f/a.txt", "/f/b.txt"] {
        exchange(&mut stage.connect(), &get(path));
    }
    let inner = get("/f/b.txt");
    for fields in [
        format!("Content-Length: {}\r\n\r\n{inner}", inner.len()),
        format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{inner}\r\n0\r\n\r\n", inner.len()),
    ] {
        let mut client = stage.connect();
        let first = format!("GET /f/a.txt HTTP/1.1\r\nHost: a\r\n{fields}");
        assert_eq!(exchange(&mut client, &first).1, b"hello\n");
        // The answer to a request behind the body, if the connection stays, and not of one in it.
        client.send(get("/f/a.txt"));
        let mut rest = Vec::new();
        let _ = client.0.get_ref().shutdown(std::net::Shutdown::Write);
        let _ = client.0.read_to_end(&mut rest);
        assert!(!String::from_utf8_lossy(&rest).contains("other"), "{fields:?}");
    }
}
