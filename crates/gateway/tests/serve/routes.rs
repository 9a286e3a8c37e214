//! Routes that are told apart by more than their paths (`match`).

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::path::Path;

use http::Request;
use superpoll_gateway::Config;
use superpoll_gateway::serve::explain::explain;

use crate::frames2::{DATA, Frame, Frames2, HEADERS};
use crate::http2::port;
use crate::stage::{BACKENDS, Client, PATIENCE, Stage};

/// The hash of `secret`.
const HASH: &str = "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";
/// joe:secret.
const JOE: &str = "Basic am9lOnNlY3JldA==";

/// Routes by their paths, the texts that they answer with, and their matchers.
const ROUTES: &[(&str, &str, &str)] = &[
    ("/", "root", ""),
    ("/", "root script", "extensions = [\"php\"]"),
    ("/a", "a", ""),
    ("/a", "a post", "methods = [\"POST\", \"PUT\"]"),
    ("/a", "a german", "query = { lang = \"de\" }, headers = { x-old = false }"),
    ("/a", "a json", "headers = { accept = \"application/json\" }"),
    ("/a/b", "a b post", "methods = [\"POST\"]"),
    ("/re", "re number", "path_regex = '^/re/\\d+$'"),
    ("/only", "only", "query = { x = true }"),
];

/// Returns the configuration with these routes.
fn routes() -> String {
    let mut text = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n".to_owned();
    for (path, body, matcher) in ROUTES {
        let matcher = match *matcher {
            "" => String::new(),
            matcher => format!("match = {{ {matcher} }}\n"),
        };
        text +=
            &format!("[[hosts.routes]]\npath = \"{path}\"\nrespond.body = \"{body}\"\n{matcher}");
    }
    text
}

type Fields = &'static [(&'static str, &'static str)];

/// Requests, and the texts of the routes that answer them.
const REQUESTS: &[(&str, &str, Fields, &str)] = &[
    ("GET", "/", &[], "root"),
    ("GET", "/x.php", &[], "root script"),
    ("GET", "/x.PHP?a.b", &[], "root script"),
    ("GET", "/x.php/y", &[], "root"),
    ("GET", "/a", &[], "a"),
    ("POST", "/a/x", &[], "a post"),
    ("PUT", "/a?lang=de", &[], "a post"),
    ("DELETE", "/a?lang=de", &[], "a german"),
    ("GET", "/a?x&lang=d%65", &[], "a german"),
    ("GET", "/a?lang=de", &[("x-old", "")], "a"),
    ("GET", "/a?lang=de", &[("x-old", ""), ("accept", "application/json")], "a json"),
    ("GET", "/a", &[("accept", "text/html"), ("accept", "application/json")], "a json"),
    ("GET", "/a", &[("accept", "application/json, text/html")], "a"),
    ("POST", "/a/b", &[], "a b post"),
    ("PUT", "/a/b/c", &[], "a post"),
    ("GET", "/a/b/c", &[], "a"),
    // The longer path counts more than the extension.
    ("GET", "/a/x.php", &[], "a"),
    ("GET", "/re/42", &[], "re number"),
    ("GET", "/re/x", &[], "root"),
    ("GET", "/re/42/", &[], "root"),
    ("GET", "/only?x", &[], "only"),
    ("GET", "/only", &[], "root"),
    // Another route would answer in the usual spelling.
    ("GET", "/x.ph%70", &[], "400 Bad Request\n"),
    ("POST", "//a/b", &[], "400 Bad Request\n"),
    ("GET", "/re/%34%32", &[], "400 Bad Request\n"),
];

#[test]
fn matchers_choose_the_route_by_http_1() {
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &routes());
        let mut client = stage.connect();
        for (method, target, fields, expected) in REQUESTS {
            let fields: String =
                fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            client.send(format!(
                "{method} {target} HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n{fields}\r\n"
            ));
            let body = client.answer().body;
            assert_eq!(String::from_utf8_lossy(&body), *expected, "{method} {target} {fields}");
        }
    }
}

#[test]
fn matchers_choose_the_route_by_http_2() {
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &routes());
        let stream = TcpStream::connect(("127.0.0.1", port(&stage))).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Frames2::begin(stream, 1 << 20);
        let mut expected = BTreeMap::new();
        for (index, (method, target, fields, body)) in REQUESTS.iter().enumerate() {
            let stream = u32::try_from(2 * index + 1).unwrap();
            let mut request = Frame::request(stream, method, target).by_http();
            for (name, value) in *fields {
                request = request.with(name, value);
            }
            client.send(&[request]);
            expected.insert(stream, (*body).to_owned());
        }
        let mut bodies = BTreeMap::new();
        while bodies.len() < expected.len() {
            let frame = client.next().expect("a frame");
            match frame.kind {
                DATA => {
                    let body = String::from_utf8(frame.payload).unwrap();
                    bodies.entry(frame.stream).or_insert_with(String::new).push_str(&body);
                }
                HEADERS => assert_eq!(frame.flags & 1, 0, "stream {} has a body", frame.stream),
                _ => {}
            }
        }
        assert_eq!(bodies, expected, "{backend:?}");
    }
}

#[test]
fn the_same_routes_are_explained() {
    let config = Config::parse("x", &routes()).unwrap();
    for (method, target, fields, expected) in REQUESTS {
        let mut request = Request::builder().method(*method).uri(format!("http://a{target}"));
        for (name, value) in *fields {
            request = request.header(*name, *value);
        }
        let said = explain(&config, &[], &request.body(()).unwrap());
        let last = said.lines().last().unwrap();
        if expected.starts_with("400") {
            let why = "in its usual spelling the path belongs to another route";
            assert_eq!(last, format!("answer    400 Bad Request: {why}"), "{said}");
            continue;
        }
        let index = ROUTES.iter().position(|(_, body, _)| body == expected).unwrap();
        let place = format!("{} (route {} of the host) answers", ROUTES[index].0, index + 1);
        let answers: Vec<&str> = said.lines().filter(|line| line.ends_with("answers")).collect();
        assert!(answers.len() == 1 && answers[0].ends_with(&place), "{method} {target}: {said}");
        let length = expected.len();
        assert_eq!(last, format!("respond   200 OK, with a body of {length} bytes"), "{said}");
    }
}

fn ask(client: &mut Client, target: &str, fields: &str) -> (u16, String) {
    client.send(format!("GET {target} HTTP/1.1\r\nhost: a\r\n{fields}\r\n"));
    let answer = client.answer();
    (answer.status, String::from_utf8(answer.body).unwrap())
}

/// A folder with a file for each user and number.
fn users() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("joe")).unwrap();
    std::fs::write(folder.path().join("joe/42.txt"), "joe's\n").unwrap();
    std::fs::write(folder.path().join("secret.txt"), "secret\n").unwrap();
    folder
}

fn rewriting(folder: &Path) -> String {
    let below = folder.join("joe");
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n\
         [[hosts.routes]]\npath = \"/u\"\nfiles.root = {folder:?}\nrewrite = \"/{{user}}/{{2}}.txt\"\n\
         match.path_regex = '^/u/(?<user>[a-z]+)/(\\d+)$'\n\
         [[hosts.routes]]\npath = \"/up\"\nfiles.root = {below:?}\nrewrite = \"/{{1}}\"\n\
         match.path_regex = '^/up/(.*)$'\n"
    )
}

#[test]
fn groups_of_the_expression_are_in_the_path_of_a_file() {
    let folder = users();
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &rewriting(folder.path()));
        let mut client = stage.connect();
        for _ in 0..2 {
            for (target, status, body) in [
                ("/u/joe/42", 200, "joe's\n"),
                ("/u/joe/43", 404, "404 Not Found\n"),
                ("/u/JOE/42", 404, "404 Not Found\n"),
                ("/up/42.txt", 200, "joe's\n"),
                ("/up/../secret.txt", 400, "400 Bad Request\n"),
                ("/up/%2e%2e/secret.txt", 400, "400 Bad Request\n"),
                ("/up/x/..%2f..%2fsecret.txt", 400, "400 Bad Request\n"),
            ] {
                assert_eq!(ask(&mut client, target, ""), (status, body.to_owned()), "{target}");
            }
        }
    }
}

#[test]
fn rules_are_those_of_the_route_that_fits_also_after_a_password_was_verified() {
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[metrics]\npublic = true\n[[hosts]]\n\
         [[hosts.routes]]\npath = \"/a\"\nrespond.body = \"open\"\n\
         [[hosts.routes]]\npath = \"/a\"\nrespond.body = \"locked\"\nbasic_auth.users.joe = \"{HASH}\"\n\
         match.headers.authorization = true\n\
         [[hosts.routes]]\npath = \"/a\"\nrespond.body = \"x\"\nmatch.query.x = true\nrate = \"1/m\"\n\
         [[hosts.routes]]\npath = \"/a\"\nrespond.body = \"y\"\nmatch.query.y = true\nrate = \"1/m\"\n"
    );
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &text);
        let mut client = stage.connect();
        let of_joe = format!("authorization: {JOE}\r\n");
        // The password is verified, and then known.
        for _ in 0..3 {
            assert_eq!(ask(&mut client, "/a?x&y", &of_joe), (200, "locked".to_owned()));
            assert_eq!(ask(&mut client, "/a", ""), (200, "open".to_owned()));
            assert_eq!(ask(&mut client, "/a", "authorization: Basic eA==\r\n").0, 401);
        }
        // Each route has a rate of its own, although the rates are the same.
        assert_eq!(ask(&mut client, "/a?x", ""), (200, "x".to_owned()));
        assert_eq!(ask(&mut client, "/a?y", ""), (200, "y".to_owned()));
        assert_eq!(ask(&mut client, "/a?x", "").0, 429);
        assert_eq!(ask(&mut client, "/a?y", "").0, 429);
        // In the metrics they count together, each reason once.
        let (_, metrics) = ask(&mut client, "/metrics", "");
        for (line, value) in [
            ("_requests_refused_total{host=\"\",route=\"/a\",reason=\"rate\"} ", "2"),
            ("_request_duration_seconds_count{host=\"\",route=\"/a\",class=\"2xx\"} ", "8"),
        ] {
            let all: Vec<&str> = metrics.lines().filter(|one| one.contains(line)).collect();
            assert!(all.len() == 1 && all[0].ends_with(&format!(" {value}")), "{all:?}\n{metrics}");
        }
    }
}

/// A subscriber of several channels does not get by a route with matchers at one of their paths.
#[test]
fn a_route_with_matchers_guards_a_channel_from_subscribers_of_others() {
    let text = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n\
                [[hosts.routes]]\npath = \"/a\"\nchannel.poll = \"1ms\"\n\
                [[hosts.routes]]\npath = \"/b\"\nchannel.poll = \"1ms\"\n\
                [[hosts.routes]]\npath = \"/b\"\nrespond.status = 403\nmatch.headers.x-key = false\n";
    let stage = Stage::new(BACKENDS[2], 1, text);
    for (target, fields, status) in [
        ("/b", "", 403),
        ("/a?also=/b", "", 400),
        ("/a?also=/b", "x-key: 1\r\n", 200),
        ("/b", "x-key: 1\r\n", 200),
    ] {
        let mut client = stage.connect();
        let events = "accept: text/event-stream\r\n";
        client.send(format!("GET {target} HTTP/1.1\r\nhost: a\r\n{events}{fields}\r\n"));
        assert_eq!(client.head_only().status, status, "{target} {fields}");
    }
}
