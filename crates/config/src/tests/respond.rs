//! Answers that the configuration has.

use super::super::*;
use super::blamed;

fn with(respond: &str) -> String {
    format!("[[listeners]]\naddress = \":1\"\n[[hosts]]\n[[hosts.routes]]\nrespond = {respond}\n")
}

#[test]
fn answers_are_read() {
    let read = |respond: &str| {
        let config = Config::parse("x", &with(respond)).unwrap_or_else(|error| panic!("{error}"));
        match &config.hosts[0].routes[0].action {
            Action::Respond(respond) => respond.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(read("{}"), Respond { status: 200, body: None, headers: Vec::new() });
    let respond = read(
        "{ status = 503, body = \"\", headers = { Retry-After = \"5\", x = [\"1\", \"2\"] } }",
    );
    assert_eq!((respond.status, respond.body.as_deref()), (503, Some("")));
    let fields = respond.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let fields: Vec<_> = fields.collect();
    assert_eq!(fields, [("retry-after", &b"5"[..]), ("x", b"1"), ("x", b"2")]);
    let longest = "x".repeat(64 << 10);
    assert_eq!(read(&format!("{{ body = \"{longest}\" }}")).body, Some(longest));
    assert!(read("{ status = 444 }").is_silent() && !read("{ status = 443 }").is_silent());
    for status in [204, 205, 304] {
        assert!(!read(&format!("{{ status = {status}, body = \"\" }}")).has_body());
    }
}

#[test]
fn mistakes_of_answers_have_their_places() {
    let long = format!("{{ body = \"{}\" }}", "x".repeat((64 << 10) + 1));
    for (respond, column, what) in [
        ("{ status = 100 }", 22, "100 is no status of an answer, expected 200 to 599, or 444"),
        ("{ status = 600 }", 22, "600 is no status of an answer"),
        ("{ status = \"404\" }", 22, "expected u16"),
        ("{ status = 204, body = \"x\" }", 34, "the status 204 has no body, expected none"),
        ("{ status = 304, body = \"x\" }", 34, "the status 304 has no body"),
        ("{ status = 444, body = \"x\" }", 34, "the status 444 has no body"),
        (
            "{ status = 444, headers = { x = \"y\" } }",
            39,
            "444 closes the connection without an answer, expected no headers",
        ),
        (&long, 20, "the body has 65537 bytes, expected at most 65536, or files"),
        ("{ headers = { content-length = \"5\" } }", 25, "tells where a message ends"),
        ("{ headers = { x = \"y\", X = \"z\" } }", 25, "the field \"x\" is set twice"),
        (
            "{ headers = { X-Path = \"a {path}\" } }",
            34,
            "the same for all requests has no variables, expected them in headers of the route",
        ),
        ("{ headers = { \"a b\" = \"y\" } }", 25, "is no name of a field"),
        ("{ headers = { a = \"é\" } }", 29, "is no value of a field"),
        ("{ code = 404 }", 13, "unknown key `code`, expected one of `status`, `body`"),
    ] {
        let found = blamed(&with(respond));
        let [(line, at, said)] = found.as_slice() else { panic!("{respond}: {found:?}") };
        assert!(said.contains(what) && said.contains("expected"), "{respond}: {said}");
        assert_eq!((*line, *at), (5, column), "{respond}: {said}");
    }
    let text = format!("{}redirect.to = \"/\"\n", with("{}"));
    let found = blamed(&text);
    let what = "a second action of one route, expected one of files, redirect, respond, channel";
    assert!(found.len() == 1 && found[0].2.contains(what), "{found:?}");
    let text = format!("{}rewrite = \"/x\"\n", with("{}"));
    assert!(blamed(&text)[0].2.contains("a rewrite is for files and for servers"));
}
