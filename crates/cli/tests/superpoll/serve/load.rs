//! wrk and h2load for a second each: every request is answered, and answered well.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::stage::{Server, Site, backends, run, tool};

/// Returns the first number after `before` in a text.
fn number_after(text: &str, before: &str) -> Option<u64> {
    let rest = text.split(before).nth(1)?.trim_start();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Returns the number before a word.
fn number_before(text: &str, after: &str) -> Option<u64> {
    text.split(after).next()?.split_whitespace().last()?.parse().ok()
}

const TEXT: &str = "
    [[listeners]]
    address = \"127.0.0.1:0\"
    [[listeners]]
    address = \"127.0.0.1:0\"
    tls = { certificate = \"cert.pem\", key = \"cert.key\" }
    [[hosts]]
    [[hosts.routes]]
    files = { root = \"www\" }
    [[hosts.routes]]
    path = \"/p\"
    proxy = { upstream = \"self\", strip_path = true }
    [metrics]
    path = \"/metrics\"
    [server]
    workers = 2
";

/// Starts a server of the folder, which forwards `/p` to another server.
fn serve(site: &Site, origin: &Server, backend: &str) -> Server {
    site.certificate();
    let text = format!(
        "{TEXT}backend = \"{backend}\"\n[[upstreams.self.servers]]\naddress = \"{}\"\n",
        origin.at(0)
    );
    Server::configured(&site.write("load.toml", &text), 2)
}

/// Returns the sum of all counters whose name and labels start with `start`.
fn metric(server: &Server, start: &str) -> u64 {
    let mut stream = server.connect();
    let text = crate::stage::get(&mut stream, "/metrics");
    let values = text.lines().filter(|line| line.starts_with(start));
    values.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64).sum()
}

#[test]
fn wrk_gets_an_answer_to_every_request() {
    let Some(wrk) = tool("wrk") else { return };
    let site = Site::new();
    for backend in backends() {
        let origin = Server::folder(&site.www(), &["--backend", backend.name()]);
        let server = serve(&site, &origin, backend.name());
        let (mut all, mut under_way) = (0, 0);
        for (path, connections) in [("small", 64), ("text.txt", 16), ("p/small", 32)] {
            let (url, count) = (server.url(path), connections.to_string());
            let (mut requests, begun) = (0, Instant::now());
            // A second is enough, unless the machine is busy with something else.
            while requests <= 100 {
                assert!(begun.elapsed() < Duration::from_secs(60), "{path}: {requests} requests");
                let mut command = Command::new(&wrk);
                command.args(["-t", "1", "-c", &count, "-d", "1s", "--timeout", "30s", &url]);
                let told = run(&mut command);
                requests += number_before(&told, " requests in").unwrap_or(0);
                assert!(!told.contains("Non-2xx"), "{backend:?} {path}: {told}");
                assert!(!told.contains("Socket errors"), "{backend:?} {path}: {told}");
                // wrk does not wait for requests that are under way when its time is over.
                under_way += connections;
            }
            all += requests;
        }
        let counted = metric(&server, "superpoll_responses_total");
        assert!(counted >= all && counted <= all + under_way, "{counted} of {all}");
        server.finish();
        origin.finish();
    }
}

#[test]
fn h2load_gets_an_answer_to_every_request_by_each_protocol() {
    let Some(h2load) = tool("h2load") else { return };
    const MANY: u64 = 1000;
    let site = Site::new();
    for backend in backends() {
        let origin = Server::folder(&site.www(), &["--backend", backend.name()]);
        let server = serve(&site, &origin, backend.name());
        let many = MANY.to_string();
        let plain = &server.fronts[0];
        let secure = &server.fronts[1];
        let cases: [(&[&str], &str, &str); 6] = [
            (&["--h1"], plain, "small"),
            (&["--h1"], plain, "p/small"),
            (&["--npn-list=http/1.1"], secure, "small"),
            (&["-m", "16"], secure, "small"),
            (&["-m", "16"], secure, "p/small"),
            (&["-m", "4"], secure, "text.txt"),
        ];
        for (arguments, front, path) in cases {
            let mut command = Command::new(&h2load);
            command.args(["-n", &many, "-c", "16", "-t", "1"]).args(arguments);
            command.arg(format!("{front}{path}"));
            let told = run(&mut command);
            let context = format!("{backend:?} {arguments:?} {front}{path}: {told}");
            assert_eq!(number_after(&told, "status codes:"), Some(MANY), "{context}");
            assert!(told.contains(" 0 failed, 0 errored, 0 timeout"), "{context}");
            let protocol = if arguments.iter().any(|one| one.contains("1")) && arguments[0] != "-m"
            {
                "http/1.1"
            } else {
                "h2"
            };
            assert!(told.contains(&format!("Application protocol: {protocol}")), "{context}");
        }
        server.finish();
        origin.finish();
    }
}
