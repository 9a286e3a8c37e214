//! The access log of relayed connections.

use std::io::Write;
use std::net::Shutdown;
use std::path::Path;
use std::time::Duration;

use futures_rustls::rustls::SupportedProtocolVersion;
use futures_rustls::rustls::version::TLS13;
use serde_json::Value;
use superpoll_gateway::config::{AccessLog, LogFormat};
use superpoll_gateway::relay::Options;
use superpoll_rt::BackendKind;

use super::groups::refuses;
use super::served::{is_turned_away, serve};
use super::tls::{Ending, Issued, Peer};
use super::{accept, backends, read, rest, start, upstream};

static NEW: [&SupportedProtocolVersion; 1] = [&TLS13];

/// Waits for this many lines.
fn lines(log: &Path, count: usize) -> Vec<String> {
    let lines = super::wait_for(|| {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    });
    assert_eq!(lines.len(), count, "{lines:?}");
    lines
}

fn last(log: &Path, count: usize) -> Value {
    serde_json::from_str(&lines(log, count)[count - 1]).unwrap()
}

#[test]
fn a_connection_is_a_line_at_its_end() {
    for backend in backends() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let (listener, to) = upstream();
        let access_log =
            AccessLog { path: log.clone(), format: LogFormat::Json, ..AccessLog::default() };
        let options = Options { access_log: Some(access_log), ..Options::default() };
        let relay = start(backend, "127.0.0.1:0", &to, options);
        let (mut client, mut server) = (relay.connect(), accept(&listener));
        client.write_all(b"question").unwrap();
        assert_eq!(read(&mut server, 8), b"question");
        server.write_all(b"the answer").unwrap();
        drop(server);
        assert_eq!(rest(&mut client), b"the answer");
        let address = client.local_addr().unwrap().to_string();
        client.shutdown(Shutdown::Write).unwrap();
        // The lines are gathered for a moment.
        relay.elapse(Duration::from_millis(300));
        let line = last(&log, 1);
        assert_eq!((&line["client"], &line["relay"]), (&address.into(), &"127.0.0.1:0".into()));
        assert_eq!(line["upstream_server"], to.to_string(), "{line}");
        assert_eq!((&line["bytes_in"], &line["bytes"]), (&8.into(), &10.into()), "{line}");
        assert_eq!((&line["complete"], line.get("broken_by")), (&true.into(), None), "{line}");
        assert!(line["seconds"].as_f64().unwrap() < 60.0);
        for absent in ["status", "method", "target", "upstream", "parked", "tls_version"] {
            assert!(line.get(absent).is_none(), "{line}");
        }
        // Either end may break.
        for (of_client, expected) in [(true, "client"), (false, "upstream")] {
            let (mut client, mut server) = (relay.connect(), accept(&listener));
            client.write_all(b"x").unwrap();
            assert_eq!(read(&mut server, 1), b"x");
            let breaks = if of_client { &client } else { &server };
            socket2::SockRef::from(breaks).set_linger(Some(Duration::ZERO)).unwrap();
            if of_client {
                drop(client)
            } else {
                drop(server)
            }
            relay.elapse(Duration::from_millis(300));
            let line = last(&log, 2 + usize::from(!of_client));
            assert_eq!((&line["complete"], &line["broken_by"]), (&false.into(), &expected.into()));
            assert_eq!(line["bytes_in"], 1, "{line}");
        }
        relay.counters();
    }
}

#[test]
fn an_upstream_that_refuses_is_named_and_idle_connections_time_out() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let access_log =
        AccessLog { path: log.clone(), format: LogFormat::Json, ..AccessLog::default() };
    let idle_timeout = Some(Duration::from_secs(60));
    let options = Options { access_log: Some(access_log), idle_timeout, ..Options::default() };
    let (listener, to) = upstream();
    let relay = start(BackendKind::Epoll, "127.0.0.1:0", &to, options.clone());
    let (mut client, mut server) = (relay.connect(), accept(&listener));
    client.write_all(b"x").unwrap();
    assert_eq!(read(&mut server, 1), b"x");
    relay.elapse(Duration::from_secs(65));
    let line = last(&log, 1);
    let found = (&line["broken_by"], &line["bytes_in"]);
    assert_eq!(found, (&"timeout".into(), &1.into()), "{line}");
    assert!(line["seconds"].as_f64().unwrap() >= 60.0, "{line}");
    drop((client, server));
    relay.counters();
    let (_socket, to) = refuses();
    let relay = start(BackendKind::Epoll, "127.0.0.1:0", &to, options);
    drop(rest(&mut relay.connect()));
    let line = last(&log, 2);
    assert_eq!((&line["broken_by"], &line["complete"]), (&"upstream".into(), &false.into()));
    assert_eq!((&line["upstream_server"], &line["bytes"]), (&to.to_string().into(), &0.into()));
    relay.counters();
}

#[test]
fn a_server_of_a_group_is_named_with_tls_and_the_name_that_was_asked_for() {
    for backend in backends() {
        let issued = Issued::new(&["a.test", "localhost"]);
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let (own, _) = issued.write(folder.path());
        let (listener, to) = upstream();
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\ntls = {{ {own} }}\nrelay.upstream = \"db\"\n\
             [upstreams.db]\nservers = [{{ address = \"{to}\" }}]\n\
             [access_log]\npath = {log:?}\nformat = \"json\"\nfields = [\"sni\", \"tls_version\", \
             \"upstream\", \"upstream_server\", \"upstream_tries\", \"bytes_in\", \"bytes\", \
             \"complete\", \"upstream_connect_seconds\"]\n"
        );
        let server = serve(backend, &text);
        let client = Peer::new(server.connect(), Some(issued.client(&NEW, "a.test", &[])));
        std::thread::scope(|scope| {
            scope.spawn(|| client.run(b"0123456789", &[9000], Ending::Clean));
            let mut inside = accept(&listener);
            assert_eq!(read(&mut inside, 10), b"0123456789");
            inside.write_all(b"abc").unwrap();
            inside.shutdown(Shutdown::Write).unwrap();
            assert_eq!(rest(&mut inside), b"");
        });
        let line = &lines(&log, 1)[0];
        let expected = format!(
            "{{\"sni\":\"a.test\",\"tls_version\":\"TLSv1.3\",\"upstream\":\"db\",\
             \"upstream_server\":\"{to}\",\"upstream_tries\":1,\"bytes_in\":10,\"bytes\":3,\
             \"complete\":true,\"upstream_connect_seconds\":"
        );
        assert!(line.starts_with(&expected), "{backend:?}: {line}");
        server.end();
    }
}

/// The header of the PROXY protocol names the client that counts.
#[test]
fn a_connection_that_a_limit_refuses_has_no_line() {
    const HEADER: &[u8] = b"PROXY TCP4 192.0.2.1 192.0.2.2 1111 2222\r\n";
    for backend in backends() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let (listener, to) = upstream();
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\nproxy_protocol = true\nrelay.to = \"{to}\"\n\
             [limits]\nconnections_per_client = 1\n\
             [access_log]\npath = {log:?}\nformat = \"json\"\n"
        );
        let server = serve(backend, &text);
        let mut client = server.connect();
        client.write_all(&[HEADER, b"hello"].concat()).unwrap();
        let mut inside = accept(&listener);
        assert_eq!(read(&mut inside, 5), b"hello");
        let mut refused = server.connect();
        refused.write_all(HEADER).unwrap();
        assert!(is_turned_away(refused), "{backend:?}");
        drop((client, inside));
        server.end();
        let line = last(&log, 1);
        assert_eq!(line["bytes_in"], 5, "{line}");
    }
}

/// A connection may last for days, and the log is rotated each night.
#[test]
fn a_connection_that_outlasts_a_rotation_is_in_the_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let (log, old) = (folder.path().join("log"), folder.path().join("log.1"));
    let (listener, to) = upstream();
    let text = |listen: &str| {
        format!(
            "[[listeners]]\naddress = \"{listen}\"\nrelay.to = \"{to}\"\n[access_log]\npath = {log:?}\n"
        )
    };
    let server = serve(BackendKind::Adaptive, &text("127.0.0.1:0"));
    let (client, inside) = (server.connect(), accept(&listener));
    std::fs::rename(&log, &old).unwrap();
    server.change(&text(&server.addresses[0].to_string())).unwrap();
    drop((client, inside));
    let expected = format!("] \"CONNECT {to} TCP\" 200 0 \"-\" \"-\"");
    assert!(lines(&log, 1)[0].ends_with(&expected));
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "");
    server.end();
}
