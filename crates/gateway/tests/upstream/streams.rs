//! The layers below HTTP/1.1 and its neighbours: the Unix domain, the PROXY protocol, WebSocket,
//! and changes of the configuration.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use superpoll_gateway::Config;

use crate::gateway::{Gateway, MOST, all, config, wait, whole};
use crate::origin::{Client, Origin, echo, get};

#[test]
fn a_server_may_be_in_the_unix_domain() {
    for backend in all() {
        let folder = tempfile::tempdir().unwrap();
        let origin = Origin::unix(&folder.path().join("s"), echo);
        let gateway = Gateway::start(backend, &config(&[&origin.address], "", ""));
        let mut client = Client::connect(&gateway.address);
        for body in ["one", "two"] {
            client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n{body}"));
            assert_eq!(client.reply().text(), body);
        }
        assert_eq!(origin.connections(), 1);
    }
}

#[test]
fn the_proxy_header_goes_ahead_of_the_stream() {
    for backend in MOST {
        for (said, is_text) in [("true", true), ("\"v1\"", true), ("\"v2\"", false)] {
            let origin = Origin::echo();
            let option = format!("proxy_protocol = {said}");
            let gateway = Gateway::start(backend, &config(&[&origin.address], &option, ""));
            let mut clients: Vec<_> = (0..2).map(|_| Client::connect(&gateway.address)).collect();
            for client in &mut clients {
                for _ in 0..2 {
                    assert_eq!(client.get("/").status, 200);
                }
            }
            let seen = origin.seen();
            // Each client has a connection of its own, and keeps it.
            assert_eq!(seen.iter().map(|seen| seen.connection).collect::<Vec<_>>(), [0, 0, 1, 1]);
            for (client, seen) in clients.iter().zip([&seen[0], &seen[2]]) {
                let from = client.stream.local_addr().unwrap();
                let to: SocketAddr = gateway.address.parse().unwrap();
                if is_text {
                    let expected = format!(
                        "PROXY TCP4 {} {} {} {}\r\n",
                        from.ip(),
                        to.ip(),
                        from.port(),
                        to.port()
                    );
                    assert_eq!(String::from_utf8_lossy(&seen.before), expected);
                } else {
                    let mut expected =
                        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01".to_vec();
                    expected.extend(from.port().to_be_bytes());
                    expected.extend(to.port().to_be_bytes());
                    assert_eq!(seen.before, expected);
                }
            }
        }
    }
}

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

/// A server that agrees to any protocol and then sends the bytes that it gets back, until none
/// come.
fn upgrades() -> Origin {
    Origin::start(|line| {
        let seen = line.request()?;
        if seen.field("upgrade").is_none() {
            return line.answer("no upgrade");
        }
        line.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nhello")?;
        let mut room = [0; 4096];
        loop {
            match line.reader.read(&mut room)? {
                0 => break,
                count => line.send(&room[..count])?,
            }
        }
        line.send("bye")?;
        line.stream.end_writing();
        Ok(())
    })
}

#[test]
fn another_protocol_goes_through() {
    for backend in all() {
        let origin = upgrades();
        let gateway = Gateway::start(backend, &config(&[&origin.address], "", ""));
        let mut client = Client::connect(&gateway.address);
        // Bytes that come with the request belong to the other protocol already.
        client.send(format!("{UPGRADE}first"));
        let reply = client.head().unwrap();
        assert_eq!(reply.status, 101);
        assert_eq!(reply.field("upgrade").unwrap(), "websocket");
        assert_eq!(reply.field("connection").unwrap().to_ascii_lowercase(), "upgrade");
        assert_eq!(reply.field("sec-websocket-accept").unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let expect = |client: &mut Client, text: &[u8]| {
            let mut got = vec![0; text.len()];
            client.reader.read_exact(&mut got).unwrap();
            assert!(got == text);
        };
        expect(&mut client, b"hellofirst");
        for text in ["ping", "pong"] {
            client.send(text);
            expect(&mut client, text.as_bytes());
        }
        let large: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let mut stream = client.stream.try_clone().unwrap();
        let sent = large.clone();
        let sender = std::thread::spawn(move || stream.write_all(&sent).unwrap());
        expect(&mut client, &large);
        sender.join().unwrap();
        // The end of one direction leaves the other open.
        client.stream.shutdown(Shutdown::Write).unwrap();
        expect(&mut client, b"bye");
        assert!(client.is_closed());
        let seen = &origin.seen()[0];
        assert_eq!(seen.field("connection").unwrap(), "upgrade");
        assert_eq!(seen.field("upgrade").unwrap(), "websocket");
        assert_eq!(seen.field("sec-websocket-version").unwrap(), "13");
        // HTTP/2 is not spoken past the routes, and an upgrade may be refused.
        let mut client = Client::connect(&gateway.address);
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n");
        assert_eq!(client.reply().text(), "no upgrade");
        assert_eq!(origin.seen()[1].field("http2-settings"), None);
    }
}

#[test]
fn a_tunnel_on_which_nothing_moves_is_closed() {
    for backend in MOST {
        let gone = Arc::new(AtomicUsize::new(0));
        let count = gone.clone();
        let origin = Origin::start(move |line| {
            line.request()?;
            line.send(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            )?;
            let mut room = [0; 16];
            while let 1.. = line.reader.read(&mut room)? {
                line.send("x")?;
            }
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        let servers = format!("servers = [{{ address = \"{}\" }}]", origin.address);
        let text = whole(&servers, "", "[timeouts]\ntunnel = \"600s\"");
        let gateway = Gateway::start(backend, &text);
        let mut client = Client::connect(&gateway.address);
        client.send(UPGRADE);
        assert_eq!(client.head().unwrap().status, 101);
        // For longer than the limit some bytes move.
        for _ in 0..3 {
            client.send("x");
            client.reader.read_exact(&mut [0]).unwrap();
            gateway.elapse(Duration::from_secs(500));
            assert_eq!(gone.load(Ordering::SeqCst), 0, "{backend:?}");
        }
        gateway.elapse(Duration::from_secs(150));
        assert!(client.is_closed());
        wait(|| gone.load(Ordering::SeqCst) == 1);
    }
}

/// A server that changes the protocol whatever it is asked for: to the protocols of its path, each
/// in a field of its own.
fn changes() -> Origin {
    Origin::start(|line| {
        let seen = line.request()?;
        let path = seen.line().split(' ').nth(1).unwrap_or_default();
        let said = path.trim_start_matches('/').split(';');
        let fields = said.filter(|said| !said.is_empty());
        let fields: String = fields.map(|said| format!("Upgrade: {said}\r\n")).collect();
        let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n";
        line.send(format!("{head}{fields}\r\nsecret"))?;
        line.stream.read(&mut [0]).map(drop)
    })
}

#[test]
fn an_unrequested_upgrade_is_a_fault() {
    for backend in MOST {
        let origin = changes();
        let gateway = Gateway::start(backend, &config(&[&origin.address], "", ""));
        for (asked, answered, is_agreed) in [
            ("websocket", "websocket", true),
            ("websocket", "WebSocket", true),
            ("foo/1, websocket", "foo/1", true),
            ("foo/1", "foo/2", false),
            ("websocket", "foo", false),
            ("websocket", "websocket;foo", false),
            ("websocket", "websocket,foo", false),
            ("websocket", "", false),
            ("", "websocket", false),
            ("", "", false),
        ] {
            let asks = match asked {
                "" => String::new(),
                asked => format!("Connection: upgrade\r\nUpgrade: {asked}\r\n"),
            };
            let mut client = Client::connect(&gateway.address);
            client.send(format!("GET /{answered} HTTP/1.1\r\nHost: a\r\n{asks}\r\n"));
            let reply = client.head().unwrap();
            let expected = if is_agreed { 101 } else { 502 };
            assert_eq!(reply.status, expected, "{backend:?} {asked:?} {answered:?}");
            let said = is_agreed.then(|| answered.to_owned());
            assert_eq!(reply.field("upgrade"), said, "{backend:?} {asked:?} {answered:?}");
        }
    }
}

#[test]
fn connections_outlive_changes_that_leave_their_servers_alone() {
    for backend in MOST {
        let (a, b) = (Origin::named("a"), Origin::named("b"));
        let text = config(&[&a.address], "", "");
        let gateway = Gateway::start(backend, &text);
        let mut client = Client::connect(&gateway.address);
        assert_eq!(client.get("/").text(), "a");
        let change = |text: String| {
            gateway.call(move |runtime, server| {
                let config = Config::parse("test", &text).unwrap();
                server.change(runtime, &config).unwrap();
            });
        };
        change(format!(
            "{text}\n[upstreams.other]\nservers = [{{ address = \"{}\" }}]\n",
            b.address
        ));
        assert_eq!(client.get("/").text(), "a");
        assert_eq!(a.connections(), 1);
        change(config(&[&b.address], "", ""));
        assert_eq!(client.get("/").text(), "b");
        assert_eq!(get(&gateway.address, "/").text(), "b");
    }
}
