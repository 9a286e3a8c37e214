//! The access log of forwarded requests.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Barrier};

use serde_json::Value;
use superpoll_rt::BackendKind;

use crate::gateway::{Gateway, LOG_PERIOD, MOST, wait, whole};
use crate::origin::{Client, Origin, get, refuses};

/// A gateway with a log, and the log.
struct Logged {
    gateway: Gateway,
    log: PathBuf,
    _folder: tempfile::TempDir,
}

impl Logged {
    fn new(backend: BackendKind, servers: &[&str], proxy: &str, more: &str) -> Logged {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let servers: Vec<_> =
            servers.iter().map(|address| format!("{{ address = \"{address}\" }}")).collect();
        let more = format!("{more}\n[access_log]\npath = {log:?}\nformat = \"json\"\n");
        let text = whole(&format!("servers = [{}]", servers.join(", ")), proxy, &more);
        Logged { gateway: Gateway::start(backend, &text), log, _folder: folder }
    }

    /// Waits for this many lines.
    fn lines(&self, count: usize) -> Vec<Value> {
        let read = || std::fs::read_to_string(&self.log).unwrap_or_default();
        self.gateway.elapse(LOG_PERIOD);
        wait(|| read().lines().count() >= count);
        let lines: Vec<Value> =
            read().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), count, "{lines:?}");
        lines
    }
}

fn seconds(line: &Value, field: &str) -> f64 {
    line[field].as_f64().unwrap_or_else(|| panic!("{field} in {line}"))
}

fn number(line: &Value, field: &str) -> u64 {
    line[field].as_u64().unwrap_or_else(|| panic!("{field} in {line}"))
}

#[test]
fn a_request_names_its_server_with_times_and_bytes() {
    for backend in MOST {
        let origin = Origin::echo();
        let logged = Logged::new(backend, &[&origin.address], "", "");
        let mut client = Client::connect(&logged.gateway.address);
        let heads = [
            "GET /a?b=c&token=hunter2 HTTP/1.1\r\nhost: a.example\r\nuser-agent: test\r\n\r\n",
            "POST /p HTTP/1.1\r\nhost: a.example\r\ncontent-length: 5\r\n\r\n",
            "PUT /p HTTP/1.1\r\nhost: a.example\r\ntransfer-encoding: chunked\r\n\r\n",
        ];
        for (head, body) in heads.iter().zip(["", "hello", "3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"]) {
            client.send(format!("{head}{body}"));
            assert_eq!(client.reply().status, 200);
        }
        let lines = logged.lines(3);
        for (index, line) in lines.iter().enumerate() {
            assert_eq!((&line["upstream"], &line["route"]), (&"app".into(), &"/".into()));
            assert_eq!(line["upstream_server"], *origin.address, "{line}");
            assert_eq!((number(line, "upstream_tries"), number(line, "upstream_status")), (1, 200));
            // The connection is opened for the first one.
            assert_eq!(line["upstream_reused"], index > 0, "{line}");
            assert_eq!(line.get("upstream_connect_seconds").is_some(), index == 0, "{line}");
            let times = [
                seconds(line, "upstream_first_byte_seconds"),
                seconds(line, "first_byte_seconds"),
                seconds(line, "seconds"),
            ];
            assert!(times.is_sorted() && times[2] < 60.0, "{line}");
            assert!(seconds(line, "upstream_seconds") <= times[2], "{line}");
            assert_eq!(number(line, "request_number"), index as u64 + 1);
            assert_eq!(number(line, "head_bytes_in"), heads[index].len() as u64);
            assert_eq!((&line["complete"], line.get("broken_by")), (&true.into(), None));
            for absent in ["tls_version", "user", "sni", "relay"] {
                assert!(line.get(absent).is_none(), "{line}");
            }
        }
        let bytes: Vec<_> =
            lines.iter().map(|line| (number(line, "bytes_in"), number(line, "bytes"))).collect();
        assert_eq!(bytes, [(0, 0), (5, 5), (4, 4)], "{backend:?}");
        assert_eq!(
            (&lines[0]["target"], &lines[0]["user_agent"]),
            (&"/a?b=c&token=***".into(), &"test".into())
        );
    }
}

#[test]
fn a_request_that_is_sent_again_names_the_server_that_has_answered() {
    for backend in MOST {
        let bad = Origin::start(|line| line.request().map(drop));
        let good = Origin::named("good");
        let servers = [&*bad.address, &*good.address];
        let logged = Logged::new(backend, &servers, "", "");
        for _ in 0..4 {
            assert_eq!(get(&logged.gateway.address, "/").text(), "good");
        }
        let lines = logged.lines(4);
        for line in &lines {
            assert_eq!(line["upstream_server"], *good.address, "{line}");
            assert_eq!((&line["status"], &line["upstream_status"]), (&200.into(), &200.into()));
        }
        // As many more as were sent to the other server.
        let tries: u64 = lines.iter().map(|line| number(line, "upstream_tries") - 1).sum();
        assert!(tries > 0 && tries == bad.seen().len() as u64, "{tries}: {lines:?}");
    }
}

#[test]
fn a_connection_that_is_replaced_is_no_other_try() {
    for backend in MOST {
        // The second request of a connection is read and not answered.
        let origin = Origin::start(|line| {
            line.request()?;
            line.answer("x")?;
            line.request().map(drop)
        });
        let logged = Logged::new(backend, &[&origin.address], "", "");
        let mut client = Client::connect(&logged.gateway.address);
        for _ in 0..2 {
            assert_eq!(client.get("/").text(), "x");
        }
        let lines = logged.lines(2);
        assert_eq!(
            (number(&lines[1], "upstream_tries"), &lines[1]["upstream_reused"]),
            (1, &false.into())
        );
        assert!(lines[1].get("upstream_connect_seconds").is_some(), "{lines:?}");
    }
}

#[test]
fn servers_that_are_not_reached_are_named() {
    let (_one, first) = refuses();
    let (_other, second) = refuses();
    for backend in MOST {
        let logged = Logged::new(backend, &[&first, &second], "", "");
        assert_eq!(get(&logged.gateway.address, "/").status, 502);
        let line = &logged.lines(1)[0];
        // The last one.
        assert_eq!((number(line, "upstream_tries"), number(line, "status")), (2, 502), "{line}");
        let server = line["upstream_server"].as_str().unwrap();
        assert!([&*first, &*second].contains(&server), "{line}");
        assert_eq!((&line["complete"], line.get("broken_by")), (&true.into(), None), "{line}");
        for absent in ["status", "connect_seconds", "first_byte_seconds"] {
            assert!(line.get(format!("upstream_{absent}")).is_none(), "{line}");
        }
    }
}

#[test]
fn the_side_that_breaks_a_response_off_is_told() {
    for backend in MOST {
        let has_come = Arc::new(Barrier::new(2));
        let waits = has_come.clone();
        let origin = Origin::start(move |line| {
            let seen = line.request()?;
            line.send("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nabc")?;
            match seen.line().contains("/server") {
                // Before the client has anything, it would be told.
                true => {
                    waits.wait();
                    Ok(())
                }
                // As long as there is somebody.
                false => line.reader.read(&mut [0]).map(drop),
            }
        });
        let logged = Logged::new(backend, &[&origin.address], "", "");
        for (path, count) in [("/server", 1), ("/client", 2)] {
            let mut client = Client::connect(&logged.gateway.address);
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert_eq!(client.head().unwrap().status, 200);
            let mut some = [0; 3];
            client.reader.read_exact(&mut some).unwrap();
            if path == "/client" {
                crate::origin::Socket::reset(&client.stream);
            } else {
                has_come.wait();
                assert!(client.is_closed());
            }
            drop(client);
            let lines = logged.lines(count);
            let line = lines.last().unwrap();
            let expected = if path == "/server" { "upstream" } else { "client" };
            assert_eq!(
                (&line["complete"], &line["broken_by"]),
                (&false.into(), &expected.into()),
                "{line}"
            );
            assert_eq!((number(line, "status"), number(line, "bytes")), (200, 3), "{line}");
        }
    }
}

/// The client has a whole response in its place.
#[test]
fn a_response_that_breaks_before_its_client_has_any_of_it_is_another_one() {
    for backend in MOST {
        let origin = Origin::start(|line| {
            line.request()?;
            line.send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n")
        });
        let logged = Logged::new(backend, &[&origin.address], "", "");
        let mut client = Client::connect(&logged.gateway.address);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let status = client.head().unwrap().status;
        if status == 200 {
            // A client that left now might be the first to break it off.
            assert!(client.is_closed());
        }
        drop(client);
        let line = &logged.lines(1)[0];
        // The head may have been passed on alone.
        let is_replaced = status == 502;
        assert_eq!(number(line, "status"), u64::from(status), "{line}");
        assert_eq!(line["complete"], is_replaced, "{line}");
        assert_eq!(line["broken_by"].as_str(), (!is_replaced).then_some("upstream"), "{line}");
        assert_eq!(number(line, "upstream_status"), 200);
    }
}

#[test]
fn an_upgraded_connection_is_one_line_at_its_end_with_the_bytes_of_both_directions() {
    for backend in MOST {
        let origin = Origin::start(|line| {
            line.request()?;
            line.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nhello")?;
            let mut room = [0; 4096];
            loop {
                match line.reader.read(&mut room)? {
                    0 => break,
                    count => line.send(&room[..count])?,
                }
            }
            line.stream.end_writing();
            Ok(())
        });
        let logged = Logged::new(backend, &[&origin.address], "", "");
        let mut client = Client::connect(&logged.gateway.address);
        client.send("GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
        assert_eq!(client.head().unwrap().status, 101);
        let large: Vec<u8> = (0..1_000_003_u32).map(|at| (at % 251) as u8).collect();
        let mut writer = client.stream.try_clone().unwrap();
        let sent = large.clone();
        let sends = std::thread::spawn(move || {
            writer.write_all(&sent).unwrap();
        });
        let mut all = vec![0; 5 + large.len()];
        client.reader.read_exact(&mut all).unwrap();
        sends.join().unwrap();
        // A request that has ended is there, and the tunnel is not yet.
        let mut other = Client::connect(&logged.gateway.address);
        other.send("GET /a b HTTP/1.1\r\n\r\n");
        assert_eq!(other.reply().status, 400);
        assert_eq!(number(&logged.lines(1)[0], "status"), 400);
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(client.is_closed());
        let lines = logged.lines(2);
        let line = &lines[1];
        assert_eq!(number(line, "status"), 101);
        assert_eq!(number(line, "bytes_in"), large.len() as u64, "{line}");
        assert_eq!(number(line, "bytes"), 5 + large.len() as u64, "{line}");
        assert_eq!((&line["complete"], line.get("broken_by")), (&true.into(), None));
        assert_eq!(line["upstream_server"], *origin.address);
        assert!(seconds(line, "first_byte_seconds") <= seconds(line, "upstream_seconds"));
    }
}

/// SHA-256 of `secret`.
const HASH: &str = "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";

#[test]
fn a_user_is_logged_once_the_password_was_right() {
    for backend in MOST {
        let origin = Origin::named("x");
        let users = format!("basic_auth.users = {{ joe = \"{HASH}\" }}");
        let logged = Logged::new(backend, &[&origin.address], "", &users);
        // base64 of joe:secret, twice, and of joe:wrong.
        for (credentials, status) in
            [("am9lOnNlY3JldA==", 200), ("am9lOnNlY3JldA==", 200), ("am9lOndyb25n", 401)]
        {
            let mut client = Client::connect(&logged.gateway.address);
            client.send(format!(
                "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {credentials}\r\n\r\n"
            ));
            assert_eq!(client.reply().status, status);
        }
        let lines = logged.lines(3);
        let users: Vec<_> = lines.iter().map(|line| line["user"].as_str()).collect();
        assert_eq!(users, [Some("joe"), Some("joe"), None], "{backend:?}");
        let all = std::fs::read_to_string(&logged.log).unwrap();
        assert!(!all.contains("am9l") && !all.contains("secret"), "{all}");
    }
}
