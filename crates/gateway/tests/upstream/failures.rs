//! Servers and clients that go at any time.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use superpoll_rt::BackendKind;

use crate::gateway::{Gateway, MOST, all, config, wait, whole};
use crate::origin::{Client, Mute, Origin, Socket, get};

/// A server that does the same thing to each request, once it has read it.
fn does(
    what: impl Fn(&mut crate::origin::ServerConnection) -> std::io::Result<()> + Send + Sync + 'static,
) -> Origin {
    Origin::start(move |line| {
        line.request()?;
        what(line)
    })
}

fn one(origin: &Origin) -> String {
    config(&[&origin.address], "", "")
}

fn post(address: &str, body: &str) -> crate::origin::Reply {
    let mut client = Client::connect(address);
    let length = body.len();
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"));
    client.reply()
}

#[test]
fn a_stale_connection_is_replaced() {
    for backend in all() {
        // Each connection answers once and is closed without notice.
        let origin = does(|line| line.answer("x"));
        let gateway = Gateway::start(backend, &one(&origin));
        let mut client = Client::connect(&gateway.address);
        for _ in 0..20 {
            assert_eq!(client.get("/").text(), "x");
        }
        assert_eq!(origin.connections(), 20);
        assert_eq!(gateway.up(), [true]);
    }
}

#[test]
fn a_connection_closed_under_a_request_is_replaced_where_that_is_safe() {
    for backend in MOST {
        // The second request of a connection is read and not answered.
        let origin = Origin::start(|line| {
            line.request()?;
            line.answer("x")?;
            line.request().map(drop)
        });
        let gateway = Gateway::start(backend, &one(&origin));
        let mut client = Client::connect(&gateway.address);
        for _ in 0..3 {
            assert_eq!(client.get("/").text(), "x");
        }
        assert_eq!(origin.connections(), 3);
        // A request that was sent and may have been carried out is not repeated.
        assert_eq!(post(&gateway.address, "buy").status, 502);
        let seen = origin.seen();
        assert_eq!(seen.iter().filter(|seen| seen.line().starts_with("POST")).count(), 1);
    }
}

#[test]
fn a_retry_goes_to_another_server() {
    for backend in MOST {
        let bad = does(|_| Ok(()));
        let good = Origin::named("good");
        let gateway = Gateway::start(backend, &config(&[&bad.address, &good.address], "", ""));
        assert_eq!(get(&gateway.address, "/").text(), "good");
        assert_eq!((bad.seen().len(), good.seen().len()), (1, 1));
        // The body of an idempotent request is kept.
        let mut client = Client::connect(&gateway.address);
        for _ in 0..2 {
            client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
            assert_eq!(client.reply().text(), "good");
        }
        assert_eq!(bad.seen().last().unwrap().body, b"body");
        assert_eq!(good.seen().last().unwrap().body, b"body");
        // If the method is not idempotent, the client gets an error.
        let both = bad.seen().len() + good.seen().len();
        let replies: Vec<_> = (0..2).map(|_| post(&gateway.address, "x").status).collect();
        assert!(replies.contains(&502) && replies.contains(&200), "{replies:?}");
        assert_eq!(bad.seen().len() + good.seen().len(), both + 2);
    }
}

#[test]
fn unsent_requests_of_any_method_go_to_another_server() {
    let (_gone, address) = crate::origin::refuses();
    let good = Origin::echo();
    let gateway = Gateway::start(BackendKind::Epoll, &config(&[&address, &good.address], "", ""));
    for _ in 0..4 {
        assert_eq!(post(&gateway.address, "once").text(), "once");
    }
    assert_eq!(good.seen().len(), 4);
    let none = Gateway::start(
        BackendKind::Epoll,
        &config(&[&address, &good.address], "", ", retries = 0"),
    );
    let statuses: Vec<_> = (0..2).map(|_| get(&none.address, "/").status).collect();
    assert_eq!(statuses, [502, 200]);
}

#[test]
fn the_client_notices_a_server_that_breaks_off() {
    for backend in all() {
        // Before the head, within it, and with bytes that are no head.
        let starts: [&[u8]; 5] = [
            b"",
            b"HTTP/1.1 200 OK\r\ncontent-le",
            b"SSH-2.0-nothing\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        ];
        for start in starts {
            for resets in [false, true] {
                let origin = does(move |line| {
                    line.send(start)?;
                    if resets {
                        line.stream.reset();
                    }
                    Ok(())
                });
                let gateway = Gateway::start(backend, &one(&origin));
                let reply = get(&gateway.address, "/");
                assert_eq!(reply.status, 502, "{start:?} {resets}");
            }
        }
        // Within the body: the client sees that it is incomplete.
        let pieces: [&[u8]; 2] = [
            b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\nsome",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nsome\r\n",
        ];
        for piece in pieces {
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let ended = std::sync::Mutex::new(ended);
            let origin = does(move |line| {
                line.send(piece)?;
                let _ = ended.lock().unwrap().recv();
                line.stream.reset();
                Ok(())
            });
            let gateway = Gateway::start(backend, &one(&origin));
            let mut client = Client::connect(&gateway.address);
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.head().unwrap().status, 200);
            let mut start = [0; 4];
            client.reader.read_exact(&mut start).unwrap();
            drop(end);
            let mut rest = Vec::new();
            let _ = client.reader.read_to_end(&mut rest);
            assert!(!rest.ends_with(b"0\r\n\r\n"), "{rest:?}");
        }
    }
}

#[test]
fn slow_servers_are_given_up() {
    for backend in MOST {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = std::sync::Mutex::new(ended);
        let origin = does(move |line| {
            let _ = ended.lock().unwrap().recv();
            line.answer("late")
        });
        let servers = format!("servers = [{{ address = \"{}\" }}]", origin.address);
        let gateway =
            Gateway::start(backend, &whole(&servers, "", "[timeouts]\nresponse = \"30ms\""));
        assert_eq!(get(&gateway.address, "/").status, 504);
        // The server may not have read the request by then.
        wait(|| origin.seen().len() == 1);
        drop(end);
    }
}

#[test]
fn a_server_that_does_not_take_connections_is_given_up() {
    let mute = Mute::new();
    let good = Origin::echo();
    let server = |address: &str| format!("{{ address = \"{address}\" }}");
    for backend in MOST {
        let alone = format!("servers = [{}]", server(&mute.address));
        let limit = "[timeouts]\nconnect = \"40ms\"";
        let gateway = Gateway::start(backend, &whole(&alone, "", limit));
        assert_eq!(get(&gateway.address, "/").status, 504);
        let told = gateway.told();
        assert_eq!((told.len(), told[0].2.as_str()), (1, "timeout 504"), "{told:?}");
        assert!(told[0].1.contains("connecting: no answer in time"), "{told:?}");
        // Nothing was sent, so another server gets the request whatever it is.
        let both = format!("servers = [{}, {}]", server(&mute.address), server(&good.address));
        let gateway = Gateway::start(backend, &whole(&both, "", limit));
        for _ in 0..2 {
            assert_eq!(post(&gateway.address, "once").text(), "once");
        }
    }
}

#[test]
fn a_slow_body_is_given_up() {
    let origin = does(|line| {
        line.send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nsome")?;
        // Until the other end closes.
        line.stream.read(&mut [0]).map(drop)
    });
    let servers = format!("servers = [{{ address = \"{}\" }}]", origin.address);
    let gateway =
        Gateway::start(BackendKind::Adaptive, &whole(&servers, "", "[timeouts]\nbody = \"30ms\""));
    let mut client = Client::connect(&gateway.address);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().unwrap().status, 200);
    let mut rest = Vec::new();
    let _ = client.reader.read_to_end(&mut rest);
    assert_eq!(rest, b"some");
}

#[test]
fn uploads_are_limited_in_size_and_time() {
    for backend in MOST {
        let origin = Origin::echo();
        let servers = format!("servers = [{{ address = \"{}\" }}]", origin.address);
        let size = "[limits]\nbody_bytes = \"8KiB\"\n";
        let gateway = Gateway::start(backend, &whole(&servers, "", size));
        let mut client = Client::connect(&gateway.address);
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n");
        assert_eq!(client.reply().status, 413);
        let mut client = Client::connect(&gateway.address);
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = format!("1000\r\n{}\r\n", "x".repeat(4096));
        for _ in 0..3 {
            client.send(&chunk);
        }
        assert_eq!(client.reply().status, 413);
        assert_eq!(gateway.up(), [true]);
        let limits = format!("{size}[timeouts]\nbody = \"50ms\"");
        let gateway = Gateway::start(backend, &whole(&servers, "", &limits));
        for head in [
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nsome",
            "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nsome",
        ] {
            let mut client = Client::connect(&gateway.address);
            client.send(head);
            assert_eq!(client.reply().status, 408);
        }
        assert!(origin.seen().is_empty());
        assert_eq!(gateway.up(), [true]);
    }
}

#[test]
fn a_client_that_goes_takes_its_request_along() {
    for backend in MOST {
        let over = Arc::new(AtomicUsize::new(0));
        let count = over.clone();
        let origin = does(move |line| {
            line.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
            // Until no client reads any more.
            while line.send(format!("400\r\n{}\r\n", "x".repeat(1024))).is_ok() {}
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        let gateway = Gateway::start(backend, &one(&origin));
        let mut client = Client::connect(&gateway.address);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.head().unwrap().status, 200);
        drop(client);
        wait(|| over.load(Ordering::SeqCst) == 1);
        let active = gateway
            .call(|_, server| server.upstreams()["app"].members()[0].active.load(Ordering::SeqCst));
        assert_eq!(active, 0);
    }
}

/// A server that reads requests and never answers; it counts the clients that have gone meanwhile.
fn silent(gone: &Arc<AtomicUsize>) -> Origin {
    let gone = gone.clone();
    does(move |line| {
        // Until the other end closes.
        let read = line.stream.read(&mut [0]);
        if matches!(read, Ok(0)) {
            gone.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    })
}

#[test]
fn a_client_that_goes_while_its_server_is_silent_takes_its_request_along() {
    for backend in all() {
        let gone = Arc::new(AtomicUsize::new(0));
        let origin = silent(&gone);
        let servers = format!("servers = [{{ address = \"{}\" }}]", origin.address);
        let timeouts = "[timeouts]\npark = \"40ms\"\nresponse = \"1h\"";
        let gateway = Gateway::start(backend, &whole(&servers, "", timeouts));
        for (count, request) in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nsome",
        ]
        .iter()
        .enumerate()
        {
            let mut client = Client::connect(&gateway.address);
            client.send(request);
            wait(|| origin.seen().len() == count + 1);
            client.stream.reset();
            drop(client);
            wait(|| gone.load(Ordering::SeqCst) == count + 1);
        }
        wait(|| {
            gateway.call(|_, server| {
                let group = &server.upstreams()["app"];
                group.members()[0].active.load(Ordering::SeqCst) == 0 && server.connections() == 0
            })
        });
        // A client that goes is no evidence against the server.
        assert_eq!(gateway.up(), [true]);
    }
}

#[test]
fn a_half_closed_client_is_answered_where_configured() {
    for backend in all() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = std::sync::Mutex::new(ended);
        let origin = does(move |line| {
            let _ = ended.lock().unwrap().recv();
            line.answer("late")
        });
        let servers = format!("servers = [{{ address = \"{}\" }}]", origin.address);
        let timeouts = "[timeouts]\npark = \"20ms\"";
        let text = whole(&servers, ", abort_on_close = false", timeouts);
        let gateway = Gateway::start(backend, &text);
        let mut client = Client::connect(&gateway.address);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        wait(|| origin.seen().len() == 1);
        // Long enough for some checks whether it is still there.
        gateway.elapse(std::time::Duration::from_secs(1));
        drop(end);
        assert_eq!(client.reply().text(), "late");
    }
}

/// The end of the client's bytes, which is all that shows when a client goes.
#[test]
fn a_client_that_ends_its_side_takes_its_request_along_at_once() {
    for backend in all() {
        let gone = Arc::new(AtomicUsize::new(0));
        let seen = gone.clone();
        // Sends nothing at all, or the beginning of a response that never ends.
        let origin = Origin::start(move |line| {
            if line.request()?.line().contains("/stream") {
                line.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")?;
            }
            if matches!(line.stream.read(&mut [0]), Ok(0)) {
                seen.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        });
        let servers = format!("servers = [{{ address = \"{}\" }}]", origin.address);
        // Nothing else ends it in time.
        let timeouts = "[timeouts]\nresponse = \"1h\"\nbody = \"1h\"\nidle = \"1h\"";
        let gateway = Gateway::start(backend, &whole(&servers, "", timeouts));
        let requests = [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", false),
            ("GET / HTTP/1.0\r\nHost: a\r\n\r\n", false),
            ("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nsome", false),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nsome", false),
            ("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n", true),
        ];
        for (count, (request, answers)) in requests.into_iter().enumerate() {
            let mut client = Client::connect(&gateway.address);
            client.send(request);
            if answers {
                assert_eq!(client.head().unwrap().status, 200);
            } else {
                wait(|| origin.seen().len() > count);
            }
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
            wait(|| gone.load(Ordering::SeqCst) == count + 1);
            assert!(client.is_closed(), "{backend:?} {request:?}");
        }
        wait(|| gateway.call(|_, server| server.connections()) == 0);
        assert_eq!(gateway.up(), [true]);
    }
}

/// Bytes behind a request are another request, and the client that waits for its response is there.
#[test]
fn a_client_that_sends_its_next_request_early_is_answered() {
    for backend in all() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = std::sync::Mutex::new(ended);
        let origin = Origin::start(move |line| {
            loop {
                if line.request()?.line().contains("/slow") {
                    let _ = ended.lock().unwrap().recv();
                }
                line.answer("answer")?;
            }
        });
        let servers = format!("servers = [{{ address = \"{}\" }}]", origin.address);
        let gateway = Gateway::start(backend, &whole(&servers, "", ""));
        let mut client = Client::connect(&gateway.address);
        client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        wait(|| origin.seen().len() == 1);
        // In two pieces, together longer than the bytes that are read ahead.
        let early = format!("GET /next HTTP/1.1\r\nHost: a\r\nx: {}\r\n\r\n", "y".repeat(3000));
        for piece in [&early.as_bytes()[..100], &early.as_bytes()[100..]] {
            client.send(piece);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        end.send(()).unwrap();
        assert_eq!(client.reply().text(), "answer", "{backend:?}");
        assert_eq!(client.reply().text(), "answer", "{backend:?}");
        assert_eq!(client.get("/last").text(), "answer", "{backend:?}");
    }
}

#[test]
fn an_upload_that_breaks_off_is_not_a_request() {
    for backend in MOST {
        let origin = Origin::echo();
        let gateway = Gateway::start(backend, &one(&origin));
        let mut client = Client::connect(&gateway.address);
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 90000\r\n\r\nsome");
        wait(|| origin.connections() == 1);
        client.stream.flush().unwrap();
        drop(client);
        // The server has read its end, or will: the point is that no client waits for it.
        gateway.call(|_, _| ());
        assert_eq!(get(&gateway.address, "/").status, 200);
        assert!(origin.seen().iter().all(|seen| !seen.line().starts_with("POST")));
        assert_eq!(gateway.up(), [true]);
    }
}

#[test]
fn the_reasons_of_failed_requests_are_logged_at_a_limited_rate() {
    let (_gone, refusing) = crate::origin::refuses();
    let servers = |address: &str| format!("servers = [{{ address = \"{address}\" }}]");
    let closes = does(|_| Ok(()));
    let garbage = does(|line| line.send("SSH-2.0-nothing\r\n\r\n"));
    let silent = silent(&Arc::default());
    let short = does(|line| line.send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nsome"));
    let cases = [
        (refusing.as_str(), "refused 502", "connecting: Connection refused"),
        (closes.address.as_str(), "closed 502", "waiting for the response: "),
        (garbage.address.as_str(), "bad-head 502", "reading the head of the response: "),
        (silent.address.as_str(), "timeout 504", "it did not come within 50ms"),
        (short.address.as_str(), "body null", "passing the body of the response on: "),
    ];
    for backend in MOST {
        for (address, reason, words) in cases {
            // Only a server that never answers makes the gateway wait until its limit.
            let limit = if reason.starts_with("timeout") { "50ms" } else { "20s" };
            let timeouts = format!("[timeouts]\nresponse = \"{limit}\"");
            let text = whole(&servers(address), "", &timeouts);
            let gateway = Gateway::start(backend, &text);
            for _ in 0..8 {
                let mut client = Client::connect(&gateway.address);
                client.send("GET /secret HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
                let _ = client.reader.read_to_end(&mut Vec::new());
            }
            let told = gateway.told();
            let failed: Vec<_> =
                told.iter().filter(|(kind, ..)| *kind == "upstream-failed").collect();
            let [(_, message, said)] = failed.as_slice() else { panic!("{reason}: {told:?}") };
            assert_eq!(said, reason, "{message}");
            let expected = format!("forwarding a request below / to {address} of app: ");
            assert!(message.starts_with(&expected) && message.contains(words), "{message}");
            // The requests of clients may be secret.
            assert!(!message.contains("secret"), "{message}");
            let down = told.iter().filter(|(kind, ..)| *kind == "upstream-down").count();
            // A server that has sent a head has answered.
            assert_eq!(down, usize::from(!reason.starts_with("body")), "{told:?}");
        }
        // No server is up.
        let health = "health = { interval = \"10ms\", fall = 1 }";
        let gateway = Gateway::start(backend, &config(&[&refusing], health, ""));
        gateway.wait_for(&[false]);
        assert_eq!(get(&gateway.address, "/").status, 503);
        let told = gateway.told();
        let [(down, why, _), (failed, _, said)] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!((*down, *failed), ("upstream-down", "upstream-failed"));
        assert!(why.contains("1 checks in a row went wrong, the last one: connecting: "), "{why}");
        assert_eq!(said, "none-up 503");
    }
}

/// The server has answered before it has all of an upload, which breaks off: the answer breaks off
/// at once, and the server is not to blame.
#[test]
fn an_answer_ends_with_the_upload_that_breaks_off() {
    for backend in MOST {
        let origin = Origin::start(|line| {
            line.head()?;
            line.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")?;
            std::io::copy(&mut line.reader, &mut std::io::sink()).map(drop)
        });
        let servers = format!("servers = [{{ address = \"{}\" }}]", origin.address);
        // Longer than this test waits.
        let limits = "[limits]\nbody_bytes = \"8KiB\"\n[timeouts]\nbody = \"10m\"\n";
        let gateway = Gateway::start(backend, &whole(&servers, "", limits));
        let mut client = Client::connect(&gateway.address);
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
        assert_eq!(client.head().unwrap().status, 200);
        let chunk = format!("1000\r\n{}\r\n", "x".repeat(4096));
        for _ in 0..3 {
            client.send(&chunk);
        }
        let mut rest = Vec::new();
        let ended = client.reader.read_to_end(&mut rest).map_err(|error| error.kind());
        assert_ne!(ended.map(drop), Err(std::io::ErrorKind::WouldBlock), "{backend:?}");
        assert!(!rest.ends_with(b"0\r\n\r\n"), "{rest:?}");
        assert_eq!(gateway.up(), [true]);
        let failures = gateway.told().into_iter().filter(|(name, ..)| *name == "upstream-failed");
        assert_eq!(failures.count(), 0);
    }
}
