//! The metrics, as Prometheus reads them.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::stage::{Server, Site, get, tool};

const TEXT: &str = "
    [[listeners]]
    address = \"127.0.0.1:0\"
    [metrics]
    [[hosts]]
    [[hosts.routes]]
    files = { root = \"www\" }
    [[hosts.routes]]
    path = \"/c\"
    channel = { publish = \"anyone\" }
    [[hosts.routes]]
    path = \"/app\"
    proxy = { upstream = \"app\" }
    [upstreams.app]
    servers = [{ address = \"127.0.0.1:9\" }]
";

/// Parses names, labels and values of the exposition format, which must be well-formed.
fn parse(body: &str) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    let mut kinds = BTreeMap::new();
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let parts: Vec<&str> = comment.splitn(3, ' ').collect();
            assert!(matches!(parts[0], "HELP" | "TYPE"), "{line}");
            if parts[0] == "TYPE" {
                kinds.insert(parts[1].to_owned(), parts[2].to_owned());
            }
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line:?} has no value"));
        let family = name.split('{').next().unwrap();
        let is_known = kinds.keys().any(|kind| family.starts_with(kind.as_str()));
        assert!(is_known, "{line} has no type");
        let is_own = ["superpoll_", "process_"].iter().any(|first| family.starts_with(first));
        assert!(is_own, "{line}");
        assert!(found.insert(name.to_owned(), value).is_none(), "{name} occurs twice");
    }
    assert!(body.ends_with('\n'), "{body}");
    found
}

#[test]
fn the_counters_count() {
    let site = Site::new();
    let server = Server::configured(&site.write("metrics.toml", TEXT), 1);
    let mut stream = server.connect();
    let mut scrape = || {
        let answer = get(&mut stream, "/metrics");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
        parse(body)
    };
    let sum = |all: &BTreeMap<String, f64>, name: &str, label: &str| -> f64 {
        let fits = |found: &&String| found.starts_with(name) && found.contains(label);
        let found: Vec<&String> = all.keys().filter(fits).collect();
        assert!(!found.is_empty(), "there is no {name} with {label} in {:?}", all.keys());
        found.into_iter().map(|name| all[name]).sum()
    };
    let before = scrape();
    let mut other = server.connect();
    for _ in 0..7 {
        get(&mut other, "/small");
    }
    for _ in 0..3 {
        get(&mut other, "/nothing");
    }
    let after = scrape();
    let grown = |name, label| sum(&after, name, label) - sum(&before, name, label);
    assert_eq!(grown("superpoll_responses_total", "class=\"4xx\""), 3.0);
    // The first request for the metrics is one of the good answers.
    assert_eq!(grown("superpoll_responses_total", "class=\"2xx\""), 8.0);
    let requests = "superpoll_http_request_duration_seconds_count";
    assert_eq!(sum(&after, requests, "route=\"/\",class=\"2xx\""), 7.0);
    assert_eq!(sum(&after, requests, "route=\"/\",class=\"4xx\""), 3.0);
    // The metrics belong to no route.
    assert_eq!(sum(&after, requests, "route=\"\",class=\"2xx\""), 1.0);
    for (name, value) in &after {
        if name.contains("_total") {
            assert!(before.get(name).is_none_or(|before| before <= value), "{name} went back");
        }
    }
    drop((stream, other));
    server.finish();
}

#[test]
fn promtool_has_nothing_to_say_about_them() {
    let Some(promtool) = tool("promtool") else { return };
    let site = Site::new();
    let server = Server::configured(&site.write("metrics.toml", TEXT), 1);
    let mut stream = server.connect();
    for path in ["/small", "/c?after=0&wait=0", "/app"] {
        get(&mut stream, path);
    }
    let answer = get(&mut stream, "/metrics");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let mut check = Command::new(promtool);
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut check = check.stderr(Stdio::piped()).spawn().unwrap();
    check.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", said.escape_ascii());
    drop(stream);
    // Nothing listens at the address of the upstream.
    server.finish_with(&["forwarding a request ", "the server "]);
}
