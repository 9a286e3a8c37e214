//! The access log.

use std::fs;
use std::io::{PipeReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::stage::{
    Running, Server, Site, accept, backends, children, connect, free_port, get, lines as lines_of,
    signal, until, wait,
};
use crate::superpoll;

fn text(log: &str) -> String {
    format!(
        "[[listeners]]
        address = \"127.0.0.1:0\"
        [[hosts]]
        [[hosts.routes]]
        files = {{ root = \"www\" }}
        [metrics]
        path = \"/metrics\"
        [access_log]
        {log}"
    )
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn a_log_that_was_moved_away_is_begun_anew_and_no_line_is_lost() {
    let site = Site::new();
    let path = site.write("logs.toml", &text("path = \"log\"\nformat = \"json\""));
    let server = Server::configured(&path, 1);
    let (log, old) = (site.path("log"), site.path("log.1"));
    let mut stream = server.connect();
    get(&mut stream, "/small");
    get(&mut stream, "/nothing\"?a=b");
    until("the lines are written", || lines(&log).len() == 2);
    fs::rename(&log, &old).unwrap();
    get(&mut stream, "/sub/");
    server.signal("HUP");
    server.says("reloaded the configuration ");
    get(&mut stream, "/index.html");
    until("the new log has a line", || !lines(&log).is_empty());
    drop(stream);
    server.signal("TERM");
    assert!(server.ended().0.success());
    let all: Vec<Value> = [lines(&old), lines(&log)]
        .concat()
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let told: Vec<(&Value, &Value)> =
        all.iter().map(|line| (&line["target"], &line["status"])).collect();
    let expected = [("/small", 200), ("/nothing\"?a=b", 404), ("/sub/", 200), ("/index.html", 200)];
    let expected: Vec<(Value, Value)> =
        expected.map(|(target, status)| (json!(target), json!(status))).into();
    assert_eq!(told.len(), expected.len(), "{told:?}");
    for (found, wanted) in told.iter().zip(&expected) {
        assert_eq!((found.0, found.1), (&wanted.0, &wanted.1));
    }
    assert_eq!(all[0]["bytes"], json!(10));
    assert_eq!(lines(&log).len(), 1, "the new log has more than the later lines");
}

#[test]
fn a_log_is_reopened_while_a_download_keeps_the_server_from_ending() {
    let site = Site::new();
    let bytes = site.large();
    let server = Server::configured(&site.write("logs.toml", &text("path = \"log\"")), 1);
    let (log, old) = (site.path("log"), site.path("log.1"));
    let mut slow = server.connect();
    slow.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut received = vec![0; 1000];
    slow.read_exact(&mut received).unwrap();
    server.signal("TERM");
    server.says("draining: ");
    fs::rename(&log, &old).unwrap();
    server.signal("USR1");
    until("the log is reopened", || log.exists());
    slow.read_to_end(&mut received).unwrap();
    assert!(received.ends_with(&bytes));
    assert!(server.ended().0.success());
    assert_eq!((lines(&old).len(), lines(&log).len()), (0, 1));
}

#[test]
fn lines_on_standard_error_are_those_that_analysers_read() {
    let site = Site::new();
    let server = Server::configured(&site.write("logs.toml", &text("path = \"stderr\"")), 1);
    let mut stream = server.connect();
    get(&mut stream, "/small");
    drop(stream);
    server.signal("TERM");
    let (status, errors) = server.ended();
    assert!(status.success());
    let (start, rest) = errors.split_once(" [").unwrap();
    let (_, rest) = rest.split_once("] ").unwrap();
    assert_eq!(start, "127.0.0.1 - -", "{errors}");
    assert_eq!(rest, "\"GET /small HTTP/1.1\" 200 10 \"-\" \"-\"\n");
}

#[test]
fn a_full_disk_is_told_twice_and_no_request_is_harmed() {
    if !Path::new("/dev/full").exists() {
        eprintln!("skipped: there is no /dev/full");
        return;
    }
    let site = Site::new();
    for backend in backends() {
        let text =
            format!("{}\n[server]\nbackend = \"{}\"", text("path = \"/dev/full\""), backend.name());
        let server = Server::configured(&site.write("full.toml", &text), 1);
        let mut stream = server.connect();
        for _ in 0..3 {
            for _ in 0..500 {
                assert!(get(&mut stream, "/small").ends_with("0123456789"));
            }
            server.says("No space left on device");
        }
        drop(stream);
        server.signal("TERM");
        let (status, errors) = server.ended();
        assert!(status.success());
        // At the first failure, and at the end with all lines.
        assert_eq!(errors.lines().count(), 2, "{backend:?}: {errors}");
        assert!(errors.starts_with("superpoll: writing the access log /dev/full: No space"));
        assert!(errors.ends_with("; 1500 lines were lost in all\n"), "{errors}");
    }
}

/// Returns a configuration with a server at that port and a log of the gateway's own.
fn forwarding(port: u16, log: &str) -> String {
    format!(
        "[[listeners]]
        address = \"127.0.0.1:0\"
        [[hosts]]
        [[hosts.routes]]
        files = {{ root = \"www\" }}
        [[hosts.routes]]
        path = \"/api\"
        proxy = {{ upstream = \"app\" }}
        [upstreams.app]
        servers = [{{ address = \"127.0.0.1:{port}\" }}]
        [log]
        {log}"
    )
}

#[test]
fn each_server_event_is_logged_as_one_json_line() {
    let site = Site::new();
    let wanted = forwarding(free_port(), "path = \"own\"\nformat = \"json\"");
    let path = site.write("own.toml", &wanted);
    let server = Server::configured(&path, 1);
    let own = site.path("own");
    let has = |path: &Path, count| until("the line is there", || lines(path).len() == count);
    has(&own, 1);
    let mut stream = server.connect();
    for _ in 0..20 {
        assert!(get(&mut stream, "/api/x").starts_with("HTTP/1.1 502"));
    }
    // One line for the failures, one for the server being left out.
    has(&own, 3);
    site.write("own.toml", "nonsense = 1");
    server.signal("HUP");
    // The refusal, and that the log was reopened.
    has(&own, 5);
    site.write("own.toml", &wanted);
    fs::rename(&own, site.path("own.1")).unwrap();
    server.signal("HUP");
    has(&own, 1);
    drop(stream);
    server.signal("TERM");
    let (status, errors) = server.ended();
    assert!(status.success() && errors.is_empty(), "{errors}");
    let all = [lines(&site.path("own.1")), lines(&own)].concat();
    let all: Vec<Value> = all.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> =
        all.iter().map(|line| (line["event"].as_str().unwrap(), &line["level"])).collect();
    let expected = [
        ("serving", "info"),
        ("upstream-failed", "warning"),
        ("upstream-down", "warning"),
        ("reload-refused", "error"),
        ("log-reopened", "info"),
        ("reloaded", "notice"),
        ("draining", "notice"),
        ("ended", "notice"),
    ];
    let expected = expected.map(|(event, level)| (event, json!(level)));
    assert_eq!(told, expected.iter().map(|(event, level)| (*event, level)).collect::<Vec<_>>());
    assert_eq!((&all[1]["route"], &all[1]["reason"]), (&json!("/api"), &json!("refused")));
    assert_eq!((&all[1]["upstream"], &all[1]["status"]), (&json!("app"), &json!(502)));
    assert!(all.iter().all(|line| line["time"].as_str().unwrap().ends_with('Z')));
}

#[test]
fn a_full_disk_for_the_servers_own_log_is_told_twice() {
    if !Path::new("/dev/full").exists() {
        eprintln!("skipped: there is no /dev/full");
        return;
    }
    let site = Site::new();
    let text = forwarding(free_port(), "path = \"/dev/full\"");
    let server = Server::configured(&site.write("full.toml", &text), 1);
    server.says("superpoll: writing the log /dev/full: No space left on device");
    let mut stream = server.connect();
    for _ in 0..20 {
        assert!(get(&mut stream, "/api/x").starts_with("HTTP/1.1 502"));
        assert!(get(&mut stream, "/small").ends_with("0123456789"));
    }
    drop(stream);
    server.signal("TERM");
    let (status, errors) = server.ended();
    assert!(status.success());
    assert_eq!(errors.lines().count(), 2, "{errors}");
    assert!(errors.ends_with(" lines were lost in all\n"), "{errors}");
}

#[test]
fn a_request_that_its_client_did_not_wait_for_is_written_down() {
    let site = Site::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let log = "[access_log]\npath = \"log\"\nformat = \"json\"";
    let text = format!("{}\n{log}", forwarding(port, ""));
    let server = Server::configured(&site.write("gone.toml", &text), 1);
    let mut stream = server.connect();
    let requests =
        ["/small", "/api/x"].map(|path| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    stream.write_all(requests.concat().as_bytes()).unwrap();
    let held = accept(&silent);
    // A connection that is closed with bytes unread is reset.
    assert_eq!(stream.peek(&mut [0]).unwrap(), 1);
    drop(stream);
    let log = site.path("log");
    until("the lines are written", || lines(&log).len() == 2);
    let line: Value = serde_json::from_str(&lines(&log)[1]).unwrap();
    assert_eq!((&line["target"], &line["status"]), (&json!("/api/x"), &json!(499)));
    assert_eq!(line["complete"], json!(false));
    drop(held);
    server.finish();
}

/// Starts a server whose standard error is a full pipe. Returns its address and the ends of pipes
/// that have to stay open.
fn stuck(configuration: &Path) -> (Running, SocketAddr, (PipeReader, impl Sized + use<>)) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    let mut command = superpoll();
    command.args(["serve", "-c"]).arg(configuration).stdout(Stdio::piped()).stderr(writer);
    let mut server = Running(command.spawn().unwrap());
    let mut output = lines_of(server.0.stdout.take().unwrap());
    let front = output.next().unwrap();
    let address = front.split("://").nth(1).unwrap().trim_end_matches('/').parse().unwrap();
    (server, address, (reader, output))
}

/// As when the collector of logs is stalled while they are rotated.
#[test]
fn a_full_standard_error_holds_up_neither_reloads_nor_requests_nor_the_end() {
    let site = Site::new();
    let configure = |round: usize| {
        let text = text("path = \"stderr\"").replace("/metrics", &format!("/metrics{round}"));
        site.write("stuck.toml", &format!("{text}\n[server]\nworkers = 2"))
    };
    let (mut server, address, _pipes) = stuck(&configure(0));
    for round in 1..=3 {
        configure(round);
        signal(&server.0, "HUP");
        until("the configuration is in use on all engines", || {
            let has_changed = |_| {
                let mut stream = connect(address);
                get(&mut stream, &format!("/metrics{round}")).starts_with("HTTP/1.1 200")
            };
            (0..32).all(has_changed)
        });
    }
    signal(&server.0, "TERM");
    assert!(wait(&mut server.0).expect("it does not end").success());
}

#[test]
fn a_full_standard_error_holds_up_no_upgrade_of_several_processes() {
    let site = Site::new();
    let text = format!("{}\n[server]\nprocesses = 2", text("path = \"stderr\""));
    let (mut server, address, _pipes) = stuck(&site.write("stuck.toml", &text));
    let workers = || children(server.0.id());
    until("both workers are there", || workers().len() == 2);
    let before = workers();
    signal(&server.0, "USR2");
    until("both workers are others", || {
        let now = workers();
        now.len() == 2 && now.iter().all(|worker| !before.contains(worker))
    });
    assert!(get(&mut connect(address), "/small").ends_with("0123456789"));
    signal(&server.0, "TERM");
    assert!(wait(&mut server.0).expect("it does not end").success());
}
