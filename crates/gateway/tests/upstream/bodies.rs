//! Bodies, both ways.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use superpoll_rt::BackendKind;

use crate::gateway::{GIVEN, Gateway, MOST, all, config, wait, whole};
use crate::origin::{Client, Origin};

/// The most bytes of a body.
const LARGEST: usize = 5_000_000;

/// Returns bytes without a pattern: those of a shorter body are the first of a longer one.
fn noise(length: usize) -> &'static [u8] {
    static NOISE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..LARGEST).map(|_| next()).collect()
    });
    &NOISE[..length]
}

#[test]
fn bodies_of_all_sizes_come_back() {
    for backend in all() {
        let origin = Origin::echo();
        let gateway = Gateway::start(backend, &config(&[&origin.address], "", ""));
        let mut client = Client::connect(&gateway.address);
        for length in [0, 1, 100, 8192, 65_536, 65_537, 1_000_000] {
            let body = noise(length);
            for method in ["POST", "PUT", "GET"] {
                client.send(format!(
                    "{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
                ));
                client.send(body);
                let reply = client.reply();
                assert!(reply.body == body, "{length}");
                assert_eq!(reply.field("x-server").unwrap(), "echo");
                // In pieces of other sizes.
                client.send(format!(
                    "{method} / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                ));
                for piece in body.chunks(50_000) {
                    client.send(format!("{:x}\r\n", piece.len()));
                    client.send(piece);
                    client.send("\r\n");
                }
                client.send("0\r\n\r\n");
                assert!(client.reply().body == body, "{length} in chunks");
            }
        }
        assert_eq!(origin.connections(), 1);
    }
}

#[test]
fn the_last_response_of_a_connection_comes_whole() {
    for backend in all() {
        let origin = Origin::start(|line| {
            loop {
                let seen = line.request()?;
                let length = seen.line().split(['/', ' ']).nth(2).unwrap().parse().unwrap();
                line.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"))?;
                line.send(noise(length))?;
            }
        });
        let gateway = Gateway::start(backend, &config(&[&origin.address], "", ""));
        for length in [0, 1, 200, 16_000, 17_000, 70_000, LARGEST] {
            for others in [0, 2] {
                let mut client = Client::connect(&gateway.address);
                for _ in 0..others {
                    client.send(format!("GET /{length} HTTP/1.1\r\nHost: a\r\n\r\n"));
                    assert!(client.reply().body == noise(length), "{backend:?} {length}");
                }
                client.send(format!(
                    "GET /{length} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
                ));
                assert!(client.reply().body == noise(length), "{backend:?} {length}, the last");
                assert!(client.is_closed(), "{backend:?} {length}");
            }
        }
    }
}

#[test]
fn chunks_come_as_they_are_sent() {
    for backend in all() {
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let gone = std::sync::Mutex::new(gone);
        let origin = Origin::start(move |line| {
            loop {
                line.request()?;
                line.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                for _ in 0..5 {
                    let _ = gone.lock().unwrap().recv();
                    line.send("4\r\nping\r\n")?;
                }
                line.send("0\r\n\r\n")?;
            }
        });
        let gateway = Gateway::start(backend, &config(&[&origin.address], "", ""));
        let mut client = Client::connect(&gateway.address);
        for _ in 0..2 {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.head().unwrap().field("transfer-encoding").unwrap(), "chunked");
            for _ in 0..5 {
                go.send(()).unwrap();
                let mut piece = [0; 9];
                client.reader.read_exact(&mut piece).unwrap();
                assert_eq!(&piece, b"4\r\nping\r\n");
            }
            let mut end = [0; 5];
            client.reader.read_exact(&mut end).unwrap();
            assert_eq!(&end, b"0\r\n\r\n");
        }
        assert_eq!(origin.connections(), 1);
    }
}

#[test]
fn a_body_that_ends_with_its_connection_is_passed_on() {
    for backend in MOST {
        let origin = Origin::start(|line| {
            line.request()?;
            line.send("HTTP/1.0 200 OK\r\n\r\nall of it")
        });
        let gateway = Gateway::start(backend, &config(&[&origin.address], "", ""));
        let mut client = Client::connect(&gateway.address);
        for _ in 0..3 {
            assert_eq!(client.get("/").text(), "all of it");
        }
        assert_eq!(origin.connections(), 3);
    }
}

/// It does not know chunks (RFC 9112, section 7.1).
#[test]
fn a_client_of_http_1_0_gets_no_chunks() {
    let origin = Origin::start(|line| {
        loop {
            line.request()?;
            line.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")?;
        }
    });
    let gateway = Gateway::start(MOST[0], &config(&[&origin.address], "", ""));
    for fields in ["", "Connection: keep-alive\r\n"] {
        let mut client = Client::connect(&gateway.address);
        client.send(format!("GET / HTTP/1.0\r\nHost: a\r\n{fields}\r\n"));
        let mut all = String::new();
        std::io::Read::read_to_string(&mut client.reader, &mut all).unwrap();
        let (head, body) = all.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
        assert!(!head.to_ascii_lowercase().contains("transfer-encoding"), "{head}");
        assert_eq!(body, "abc");
    }
}

/// A server that waits for the rest of an upload is not to blame for a client that takes its time.
#[test]
fn a_slow_upload_behind_the_beginning_of_an_answer_is_waited_for() {
    let origin = Origin::start(|line| {
        let mut seen = line.head()?;
        line.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")?;
        line.body(&mut seen)?;
        line.send("done")
    });
    let text = config(&[&origin.address], "", GIVEN) + "[timeouts]\nbody = \"100s\"\n";
    let gateway = Gateway::start(MOST[0], &text);
    let mut client = Client::connect(&gateway.address);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n");
    let reply = client.head().unwrap();
    assert_eq!(reply.status, 200);
    for _ in 0..4 {
        gateway.elapse(Duration::from_secs(50));
        client.send("x".repeat(10_000));
    }
    let mut body = [0; 4];
    std::io::Read::read_exact(&mut client.reader, &mut body).unwrap();
    assert_eq!(&body, b"done");
    assert!(gateway.up()[0]);
}

#[test]
fn responses_without_a_body_stay_without_one() {
    for backend in MOST {
        let origin = Origin::start(|line| {
            loop {
                let seen = line.request()?;
                match seen.line().split(' ').nth(1) {
                    Some("/204") => line.send("HTTP/1.1 204 No Content\r\n\r\n")?,
                    Some("/304") => line.send(
                        "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 7\r\n\r\n",
                    )?,
                    _ => line.send("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n")?,
                }
            }
        });
        let gateway = Gateway::start(backend, &config(&[&origin.address], "", ""));
        let mut client = Client::connect(&gateway.address);
        for (method, path, length) in
            [("GET", "/204", None), ("GET", "/304", None), ("HEAD", "/", Some("7"))]
        {
            client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            let reply = client.reply_to(method).unwrap();
            // With 304 it may be left out.
            assert_eq!(reply.field("content-length").as_deref(), length, "{path}");
            assert_eq!(reply.field("transfer-encoding"), None);
        }
        assert_eq!(origin.connections(), 1);
    }
}

#[test]
fn trailers_go_both_ways() {
    for backend in MOST {
        let origin = Origin::start(|line| {
            loop {
                line.request()?;
                line.send(
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n\
                     4\r\nbody\r\n0\r\nX-Sum: 5\r\n\r\n",
                )?;
            }
        });
        let gateway = Gateway::start(backend, &config(&[&origin.address], "", ""));
        let mut client = Client::connect(&gateway.address);
        client.send(
            "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\nTransfer-Encoding: chunked\r\nTrailer: x-count\r\n\r\n\
             4\r\nsent\r\n0\r\nX-Count: 9\r\n\r\n",
        );
        let reply = client.reply();
        assert_eq!(reply.text(), "body");
        assert_eq!(reply.trailers.to_ascii_lowercase(), "x-sum: 5\r\n");
        client.send(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x-count\r\n\r\n\
             0\r\nX-Count: 0\r\n\r\n",
        );
        assert_eq!(client.reply().text(), "body");
        for (seen, body, count) in [(0, "sent", "9"), (1, "", "0")] {
            let seen = &origin.seen()[seen];
            assert_eq!(seen.body, body.as_bytes());
            assert_eq!(seen.field("te").is_some(), !body.is_empty());
            assert_eq!(seen.trailers.to_ascii_lowercase(), format!("x-count: {count}\r\n"));
        }
    }
}

#[test]
fn a_client_may_wait_for_leave_to_send() {
    for backend in MOST {
        let origin = Origin::echo();
        let gateway = Gateway::start(backend, &config(&[&origin.address], "", ""));
        let mut client = Client::connect(&gateway.address);
        for method in ["POST", "PUT"] {
            client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"));
            assert_eq!(client.head().unwrap().status, 100);
            client.send("body");
            assert_eq!(client.reply().text(), "body");
        }
        assert!(origin.seen().iter().all(|seen| seen.field("expect").is_none()));
        // If no server would take the body, the client is not asked for it.
        drop(origin);
        let (_gone, address) = crate::origin::refuses();
        let gateway = Gateway::start(backend, &config(&[&address], "", ""));
        let mut client = Client::connect(&gateway.address);
        client.send(
            "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n",
        );
        assert_eq!(client.head().unwrap().status, 502);
    }
}

/// Returns how far a sender gets whose bytes are not taken: until it has stood still for a while.
fn stands_at(count: &AtomicUsize) -> usize {
    let mut last = count.load(Ordering::SeqCst);
    let mut same = 0;
    loop {
        thread::sleep(std::time::Duration::from_millis(10));
        let now = count.load(Ordering::SeqCst);
        same = if now == last && now > 0 { same + 1 } else { 0 };
        if same == 20 {
            return now;
        }
        last = now;
    }
}

/// Room in the kernel for each direction of a socket at this test's ends, so that what it holds for
/// the gateway's sockets decides.
const ROOM: usize = 1 << 17;

/// Returns more bytes than the buffers of one sending and one receiving socket of the gateway hold,
/// with those of this test's ends and the gateway's own. The kernel's maxima differ by an order of
/// magnitude: since Linux 6.16 a socket may receive 32 MiB ahead.
fn more_than_fits() -> usize {
    let most = |file: &str| -> usize {
        let text = std::fs::read_to_string(file).unwrap();
        text.split_whitespace().last().unwrap().parse().unwrap()
    };
    let kernel = most("/proc/sys/net/ipv4/tcp_rmem") + most("/proc/sys/net/ipv4/tcp_wmem");
    (kernel + (16 << 20)).next_multiple_of(PIECE)
}

/// Bytes that are sent at a time.
const PIECE: usize = 1 << 16;

/// A listener whose connections have [`ROOM`].
fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    limit(socket2::SockRef::from(&listener));
    listener
}

fn limit(socket: socket2::SockRef<'_>) {
    socket.set_recv_buffer_size(ROOM).unwrap();
    socket.set_send_buffer_size(ROOM).unwrap();
}

#[test]
fn an_upload_is_read_no_faster_than_the_server_takes_it() {
    let large = more_than_fits();
    for backend in MOST {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = sent.clone();
        let origin = Origin::at(listener(), move |line| {
            line.request()?;
            line.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {large}\r\n\r\n"))?;
            for _ in 0..large / PIECE {
                line.send([b'x'; PIECE])?;
                count.fetch_add(PIECE, Ordering::SeqCst);
            }
            Ok(())
        });
        let gateway = Gateway::start(backend, &config(&[&origin.address], "", ""));
        let mut client = Client::connect(&gateway.address);
        limit(socket2::SockRef::from(&client.stream));
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let stood = stands_at(&sent);
        assert!(stood < large, "all {stood} bytes are somewhere");
        assert_eq!(client.reply().body.len(), large);

        // And the other way.
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let gone = std::sync::Mutex::new(gone);
        let origin = Origin::at(listener(), move |line| {
            let mut seen = line.head()?;
            let _ = gone.lock().unwrap().recv();
            line.body(&mut seen)?;
            line.answer(&seen.body.len().to_string())
        });
        let servers = format!("servers = [{{ address = \"{}\" }}]", origin.address);
        let limits = format!("[limits]\nbody_bytes = \"{}MiB\"", (large >> 20) + 1);
        let gateway = Gateway::start(backend, &whole(&servers, "", &limits));
        let mut client = Client::connect(&gateway.address);
        limit(socket2::SockRef::from(&client.stream));
        let sent = Arc::new(AtomicUsize::new(0));
        let mut stream = client.stream.try_clone().unwrap();
        let count = sent.clone();
        let sender = thread::spawn(move || {
            write!(stream, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {large}\r\n\r\n")
                .unwrap();
            for _ in 0..large / PIECE {
                stream.write_all(&[b'x'; PIECE]).unwrap();
                count.fetch_add(PIECE, Ordering::SeqCst);
            }
        });
        let stood = stands_at(&sent);
        assert!(stood < large, "all {stood} bytes are somewhere");
        go.send(()).unwrap();
        assert_eq!(client.reply().text(), large.to_string());
        sender.join().unwrap();
    }
}

#[test]
fn an_answer_may_come_before_the_upload_is_over() {
    let origin = Origin::start(|line| {
        line.head()?;
        line.send("HTTP/1.1 403 No\r\ncontent-length: 2\r\n\r\nno")?;
        // Reads the bytes that come, so that the answer is not lost with a reset.
        line.reader.read_to_end(&mut Vec::new()).map(drop)
    });
    let gateway = Gateway::start(BackendKind::Adaptive, &config(&[&origin.address], "", ""));
    let mut client = Client::connect(&gateway.address);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nsome");
    let reply = client.reply();
    assert_eq!((reply.status, reply.text()), (403, "no"));
    wait(|| origin.connections() == 1);
}

/// A server may wait for a whole chunk before it reacts, and its client for that.
#[test]
fn each_chunk_of_an_upload_comes_with_its_end() {
    for lane in ["", GIVEN] {
        let (tell, told) = std::sync::mpsc::channel();
        let tell = std::sync::Mutex::new(tell);
        let origin = Origin::start(move |line| {
            line.head()?;
            let mut chunk = [0; 10];
            for _ in 0..2 {
                line.reader.read_exact(&mut chunk)?;
                tell.lock().unwrap().send(chunk).unwrap();
            }
            let mut end = [0; 5];
            line.reader.read_exact(&mut end)?;
            assert_eq!(&end, b"0\r\n\r\n");
            line.answer("done")
        });
        let gateway = Gateway::start(MOST[0], &config(&[&origin.address], "", lane));
        let mut client = Client::connect(&gateway.address);
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        for _ in 0..2 {
            client.send("5\r\nhello\r\n");
            assert_eq!(&told.recv_timeout(crate::gateway::LIMIT).unwrap(), b"5\r\nhello\r\n");
        }
        client.send("0\r\n\r\n");
        assert_eq!(client.reply().text(), "done");
    }
}
