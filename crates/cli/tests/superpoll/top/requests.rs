//! Figures of requests, servers and channels: in snapshots, in text, and over several processes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use serde_json::{Value, json};

use super::{read_snapshot, top};
use crate::stage::{PATIENCE, Server, Site, connect, free_port, get, response, run, speak, until};

/// A server that answers each request, on a connection for each, with this status.
fn upstream(status: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // It ends with the test's process.
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut room = [0; 4096];
                if stream.read(&mut room).is_ok_and(|count| count > 0) {
                    let head = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n");
                    let _ =
                        stream.write_all(format!("{head}connection: close\r\n\r\nok").as_bytes());
                }
            });
        }
    });
    address
}

/// Writes a configuration with a site, a proxy and channels.
fn configure(site: &Site, server: &str, port: u16) -> std::path::PathBuf {
    let (good, dead) = (upstream("200 OK"), format!("127.0.0.1:{}", free_port()));
    let text = format!(
        "[server]
        stats = \"stats\"
        {server}
        [[listeners]]
        address = \"127.0.0.1:{port}\"
        [upstreams.app]
        servers = [{{ address = \"{good}\" }}, {{ address = \"{dead}\" }}]
        [upstreams.broken]
        servers = [{{ address = \"{}\" }}]
        [[hosts]]
        [[hosts.routes]]
        files = {{ root = \"www\" }}
        [[hosts.routes]]
        path = \"/app\"
        proxy = {{ upstream = \"app\" }}
        [[hosts.routes]]
        path = \"/broken\"
        proxy = {{ upstream = \"broken\" }}
        [[hosts.routes]]
        path = \"/unused\"
        redirect = {{ to = \"/\" }}
        [[hosts.routes]]
        path = \"/rooms/{{room}}\"
        channel = {{ publish = \"anyone\", history = 10 }}",
        upstream("503 Service Unavailable"),
    );
    site.write("server.toml", &text)
}

fn publish(at: SocketAddr, path: &str, message: &str) {
    let mut stream = connect(at);
    let length = message.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n");
    stream.write_all(format!("{head}Connection: close\r\n\r\n{message}").as_bytes()).unwrap();
    let told = response(&mut stream);
    assert!(told.starts_with("HTTP/1.1 201"), "{told}");
}

/// Subscribes by server-sent events.
fn subscribe(at: SocketAddr, path: &str) -> TcpStream {
    let mut stream = connect(at);
    let head = "HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
    stream.write_all(format!("GET {path} {head}").as_bytes()).unwrap();
    let mut told = Vec::new();
    while !told.windows(4).any(|part| part == b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        told.extend(byte);
    }
    assert!(told.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&told));
    stream
}

fn route<'a>(snapshot: &'a Value, path: &str) -> &'a Value {
    let routes = snapshot["traffic"]["routes"].as_array().unwrap();
    let found = routes.iter().find(|route| route["path"] == path);
    &found.unwrap_or_else(|| panic!("{path} in {snapshot}"))["requests"]
}

/// Makes requests, and compares the figures of a server with them.
fn check(at: SocketAddr, stats: &Path) -> Value {
    for _ in 0..10 {
        assert!(get(&mut connect(at), "/small").ends_with("0123456789"));
        assert!(get(&mut connect(at), "/missing").starts_with("HTTP/1.1 404"));
        assert!(get(&mut connect(at), "/app").starts_with("HTTP/1.1 200"));
        assert!(get(&mut connect(at), "/broken").starts_with("HTTP/1.1 503"));
    }
    let subscribers: Vec<TcpStream> = ["/rooms/a", "/rooms/a", "/rooms/%E2%80%AE%3Cscript%3E"]
        .map(|path| subscribe(at, path))
        .into();
    for number in 0..5 {
        publish(at, "/rooms/a", &format!("message {number}"));
    }
    let sum = |snapshot: &Value, of: &str| snapshot["traffic"]["channels"]["total"][of].as_u64();
    let mut snapshot = Value::Null;
    until("all messages are given to subscribers", || {
        snapshot = read_snapshot(stats);
        sum(&snapshot, "delivered") == Some(10)
    });
    assert_eq!(route(&snapshot, "/")["responses"], json!([0, 10, 0, 10, 0]), "{snapshot}");
    assert_eq!(route(&snapshot, "/broken")["responses"], json!([0, 0, 0, 0, 10]));
    assert_eq!(route(&snapshot, "/app")["responses"], json!([0, 10, 0, 0, 0]));
    assert_eq!(route(&snapshot, "/unused")["responses"], json!([0, 0, 0, 0, 0]));
    let traffic = &snapshot["traffic"];
    let bounds = traffic["bounds_ns"].as_array().unwrap().len();
    let buckets = route(&snapshot, "/")["durations"].as_array().unwrap();
    assert_eq!(buckets.len(), bounds + 1);
    assert_eq!(buckets.iter().map(|count| count.as_u64().unwrap()).sum::<u64>(), 20);
    let servers = traffic["servers"].as_array().unwrap();
    assert_eq!(servers.len(), 3, "{traffic}");
    let of = |name: &str, figure: &str| -> u64 {
        let of = servers.iter().filter(|server| server["upstream"] == name);
        of.map(|server| server[figure].as_u64().unwrap()).sum()
    };
    // Requests that the dead server refused were sent to the other one.
    assert_eq!(of("app", "requests") - of("app", "failures"), 10, "{traffic}");
    assert!(of("app", "failures") > 0 && of("app", "failures") == of("app", "retries"));
    assert_eq!(
        (of("broken", "requests"), of("broken", "failures"), of("app", "active")),
        (10, 0, 0)
    );
    let channels = &traffic["channels"];
    assert_eq!((&channels["count"], sum(&snapshot, "subscribers")), (&json!(2), Some(3)));
    let busiest = &channels["top"][0];
    assert_eq!(
        (&busiest["name"], &busiest["messages"]["subscribers"]),
        (&json!("/rooms/a"), &json!(2))
    );
    assert_eq!(sum(&snapshot, "published"), Some(5), "{channels}");
    drop(subscribers);
    snapshot
}

#[test]
fn snapshots_and_text_have_routes_servers_and_channels() {
    let site = Site::new();
    let server = Server::configured(&configure(&site, "workers = 2", 0), 1);
    let path = site.path("stats");
    let at = server.at(0);
    let snapshot = check(at, &path);
    assert_eq!(snapshot["schema"], 1);
    until("subscribers that have gone are not counted", || {
        read_snapshot(&path)["traffic"]["channels"]["total"]["subscribers"] == 0
    });
    let text = run(top(&["--once", "--interval", "0.2"]).arg(&path));
    for part in [
        "requests  all routes: ",
        "route     /app: 10 (0.0/s), p50 -, p99 -, 4xx 0 (0.0/s), 5xx 0 (0.0/s)\n",
        "route     /broken: 10 (0.0/s), p50 -, p99 -, 4xx 0 (0.0/s), 5xx 10 (0.0/s)\n",
        "server    broken 127.0.0.1:",
        "channels  all 2 channels: 0 subscribers, published 5 (0.0/s), delivered 10 (0.0/s), dropped 0",
        // A character that would change the order of those behind it is escaped.
        "channel   /rooms/a: 0 subscribers, ",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    assert!(!text.contains("/unused") && !text.contains('\u{202e}'), "{text}");
    let json = run(top(&["--once", "--json"]).arg(&path));
    assert!(json.contains("/rooms/\\u202e<script>") && !json.contains('\u{202e}'), "{json}");
    server.finish_with(&["forwarding a request", "the server 127.0.0.1"]);
}

#[test]
fn processes_are_one_server_whose_counts_are_summed_and_never_burst() {
    let site = Site::new();
    let port = free_port();
    let server = Server::configured(&configure(&site, "processes = 3", port), 1);
    let mut workers = server.workers(3);
    let path = site.path("stats");
    until("all workers are counted", || {
        read_snapshot(&path)["engines"].as_array().is_some_and(|engines| engines.len() == 3)
    });
    let at = server.at(0);
    let snapshot = check(at, &path);
    let servers = snapshot["traffic"]["servers"].as_array().unwrap();
    assert!(servers.iter().all(|server| server["processes"] == 3), "{servers:?}");
    // A worker that is stopped does not answer. Its counts stay, and come back as no burst.
    let mut viewer = UnixStream::connect(&path).unwrap();
    viewer.set_read_timeout(Some(PATIENCE)).unwrap();
    viewer.write_all(b"GET /api/snapshots?interval_ms=50 HTTP/1.0\r\n\r\n").unwrap();
    let mut viewer = BufReader::new(viewer);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        assert!(viewer.read_line(&mut line).unwrap() > 0);
    }
    let mut is_complete = false;
    let mut look = || {
        let mut line = String::new();
        viewer.read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        let workers = told["engines"].as_array().unwrap().len();
        is_complete |= workers == 3;
        if is_complete {
            assert_eq!(route(&told, "/broken")["responses"], json!([0, 0, 0, 0, 10]), "{told}");
        }
        workers
    };
    until("all workers answer this viewer", || look() == 3);
    let stopped = workers.remove(0);
    crate::stage::kill(stopped, "STOP");
    until("one does not answer", || look() < 3);
    look();
    crate::stage::kill(stopped, "CONT");
    until("it answers again", || look() == 3);
    server.finish_with(&["forwarding a request", "the server 127.0.0.1"]);
}

#[test]
fn a_server_of_an_earlier_version_is_shown_without_figures_of_requests() {
    let site = Site::new();
    let path = site.path("stats");
    let server = Server::folder(&site.www(), &["--stats", path.to_str().unwrap()]);
    let mut snapshot = read_snapshot(&path);
    server.finish();
    assert!(snapshot.as_object_mut().unwrap().remove("traffic").is_some());
    // A later one may have fields that this one does not know.
    for later in [false, true] {
        if later {
            snapshot["traffic"] = json!({ "bounds_ns": [], "more": 1 });
        }
        let path = site.path("other");
        let head = "HTTP/1.1 200 OK\r\nserver: superpoll/0.0.9\r\n\r\n";
        let speaks = speak(&path, [format!("{head}{snapshot}\n{snapshot}\n")]);
        let mut command = top(&["--once", "--interval", "0.05"]);
        let output = command.arg(&path).output().unwrap();
        speaks.join().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        match later {
            false => {
                assert!(text.contains("engine 0") && !text.contains("requests  all"), "{text}")
            }
            true => {
                assert!(errors.contains("cannot be read: missing field"), "{errors}");
                assert_eq!(errors.lines().count(), 1, "{errors}");
            }
        }
    }
}
