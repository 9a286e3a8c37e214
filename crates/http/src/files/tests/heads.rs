//! The fields of requests, and of responses to them.

use super::*;

#[test]
fn statuses_and_bodies() {
    let world = world();
    let site = Site::open(options(world.path())).unwrap();
    let (old, new) = ("Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT");
    let first = ask(&site, "GET", "/a.txt", &[]);
    let etag = field(&first, "etag").to_owned();
    let modified = field(&first, "last-modified").to_owned();
    let weak = format!("W/{etag}");
    type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], u16, &'a [u8]);
    let cases: &[Case<'_>] = &[
        ("GET", "/a.txt", &[], 200, b"0123456789"),
        ("HEAD", "/a.txt", &[], 200, b""),
        ("HEAD", "/a.txt", &[("range", "bytes=0-1")], 200, b""),
        ("GET", "/inside", &[], 200, b"0123456789"),
        ("GET", "/page%20one.html", &[], 200, b"<p>"),
        ("GET", "/empty.bin", &[], 200, b""),
        ("GET", "/sub/", &[], 200, b"<h1>"),
        ("POST", "/a.txt", &[], 405, b"405 Method Not Allowed\n"),
        ("GET", "/sub", &[], 308, b"308 Permanent Redirect\n"),
        ("GET", "/none", &[], 404, b"404 Not Found\n"),
        ("GET", "/a.txt/", &[], 404, b"404 Not Found\n"),
        ("GET", "/a.txt/x", &[], 404, b"404 Not Found\n"),
        ("GET", "/", &[], 404, b"404 Not Found\n"),
        ("GET", "/.git/config", &[], 404, b"404 Not Found\n"),
        ("GET", "/a.txt", &[("range", "bytes=2-4")], 206, b"234"),
        ("GET", "/a.txt", &[("range", "bytes=-2")], 206, b"89"),
        ("GET", "/a.txt", &[("range", "bytes=10-")], 416, b"416 Range Not Satisfiable\n"),
        ("GET", "/a.txt", &[("range", "bytes=4-2")], 200, b"0123456789"),
        ("GET", "/a.txt", &[("if-none-match", &etag)], 304, b""),
        ("GET", "/a.txt", &[("if-none-match", &weak)], 304, b""),
        ("GET", "/a.txt", &[("if-none-match", "*")], 304, b""),
        (
            "GET",
            "/a.txt",
            &[("if-none-match", "\"x\""), ("if-modified-since", new)],
            200,
            b"0123456789",
        ),
        ("GET", "/a.txt", &[("if-modified-since", &modified)], 304, b""),
        ("GET", "/a.txt", &[("if-modified-since", old)], 200, b"0123456789"),
        ("GET", "/a.txt", &[("if-modified-since", "soon")], 200, b"0123456789"),
        ("GET", "/a.txt", &[("if-match", &etag)], 200, b"0123456789"),
        ("GET", "/a.txt", &[("if-match", &weak)], 412, b"412 Precondition Failed\n"),
        ("GET", "/a.txt", &[("if-match", &etag), ("if-unmodified-since", old)], 200, b"0123456789"),
        ("GET", "/a.txt", &[("if-match", &etag), ("if-none-match", &etag)], 304, b""),
        ("GET", "/a.txt", &[("if-unmodified-since", old)], 412, b"412 Precondition Failed\n"),
        ("GET", "/a.txt", &[("if-unmodified-since", &modified)], 200, b"0123456789"),
        ("GET", "/a.txt", &[("range", "bytes=0-0"), ("if-range", &etag)], 206, b"0"),
        ("GET", "/a.txt", &[("range", "bytes=0-0"), ("if-range", &weak)], 200, b"0123456789"),
        ("GET", "/a.txt", &[("range", "bytes=0-0"), ("if-range", old)], 200, b"0123456789"),
        ("GET", "/a.txt", &[("accept-encoding", "gzip")], 200, b"gzip"),
        ("GET", "/a.txt", &[("accept-encoding", "gzip, br")], 200, b"br"),
    ];
    for (method, path, fields, status, body) in cases {
        let response = ask(&site, method, path, fields);
        assert_eq!(response.status(), *status, "{method} {path} {fields:?}");
        assert_eq!(text(&response), *body, "{method} {path} {fields:?}");
        if *method != "HEAD" && *status != 304 {
            assert_eq!(field(&response, "content-length"), body.len().to_string(), "{path}");
        }
        assert_eq!(field(&response, "x-content-type-options"), "nosniff");
    }
}

#[test]
fn header_fields() {
    let world = world();
    let site = Site::open(options(world.path())).unwrap();
    for (method, path, fields, name, value) in [
        ("GET", "/a.txt", &[][..], "content-type", "text/plain; charset=utf-8"),
        ("GET", "/a.txt", &[], "accept-ranges", "bytes"),
        ("GET", "/a.txt", &[], "vary", "accept-encoding"),
        ("HEAD", "/a.txt", &[], "content-length", "10"),
        ("GET", "/empty.bin", &[], "content-type", "application/octet-stream"),
        ("GET", "/a.txt", &[("accept-encoding", "br")], "content-encoding", "br"),
        (
            "GET",
            "/a.txt",
            &[("accept-encoding", "br")],
            "content-type",
            "text/plain; charset=utf-8",
        ),
        (
            "GET",
            "/a.txt",
            &[("if-none-match", "*"), ("accept-encoding", "br")],
            "content-encoding",
            "",
        ),
        ("GET", "/a.txt", &[("range", "bytes=2-4")], "content-range", "bytes 2-4/10"),
        ("GET", "/a.txt", &[("range", "bytes=99-")], "content-range", "bytes */10"),
        ("PUT", "/a.txt", &[], "allow", "GET, HEAD"),
        ("GET", "/sub", &[], "location", "/sub/"),
        ("GET", "//sub", &[], "location", "/sub/"),
    ] {
        let response = ask(&site, method, path, fields);
        assert_eq!(field(&response, name), value, "{method} {path} {fields:?} {name}");
    }
}

#[test]
fn several_ranges_are_parts_of_one_body() {
    let world = world();
    let site = Site::open(options(world.path())).unwrap();
    let response = ask(&site, "GET", "/a.txt", &[("range", "bytes=7-8,0-1")]);
    assert_eq!(response.status(), 206);
    let (kind, boundary) = field(&response, "content-type").split_once("; boundary=").unwrap();
    assert_eq!(kind, "multipart/byteranges");
    let part = |range: &str, bytes: &str| {
        format!(
            "\r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes {range}/10\r\n\r\n{bytes}"
        )
    };
    let body = format!("{}{}\r\n--{boundary}--\r\n", part("7-8", "78"), part("0-1", "01"));
    assert_eq!(String::from_utf8(text(&response)).unwrap(), body);
    assert_eq!(field(&response, "content-length"), body.len().to_string());
}

#[test]
fn refusals_say_of_which_version_they_speak() {
    let world = world();
    let site = Site::open(options(world.path())).unwrap();
    let whole = ask(&site, "GET", "/a.txt", &[]);
    for (name, value, status) in
        [("if-match", "\"x\"", 412), ("range", "bytes=99-", 416), ("if-none-match", "*", 304)]
    {
        let refused = ask(&site, "GET", "/a.txt", &[(name, value)]);
        assert_eq!(refused.status(), status);
        for name in ["etag", "vary", "last-modified"] {
            assert_eq!(field(&refused, name), field(&whole, name), "{status} {name}");
        }
        assert_eq!(field(&refused, "accept-ranges"), "");
    }
}

#[test]
fn a_time_before_1970_is_no_date() {
    let world = world();
    let path = world.path().join("www/old.txt");
    std::fs::write(&path, b"old").unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH - Duration::from_secs(86_400);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    let site = Site::open(options(world.path())).unwrap();
    let date = "Thu, 01 Jan 1970 00:00:00 GMT";
    for fields in [&[][..], &[("if-modified-since", date)], &[("if-unmodified-since", date)]] {
        let response = ask(&site, "GET", "/old.txt", fields);
        assert_eq!((response.status().as_u16(), text(&response)), (200, b"old".to_vec()));
        assert_eq!(field(&response, "last-modified"), "");
        assert!(field(&response, "etag").starts_with('"'));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_ranges_make_more_than_the_file(
        ranges in prop::collection::vec((0..2_000_u64, prop::option::of(0..2_000_u64)), 1..40),
    ) {
        let world = world();
        let bytes = noise(1500);
        std::fs::write(world.path().join("www/r.bin"), &bytes).unwrap();
        let site = Site::open(options(world.path())).unwrap();
        let ranges: Vec<_> = ranges
            .iter()
            .map(|(start, end)| format!("{start}-{}", end.map(|end| end.to_string()).unwrap_or_default()))
            .collect();
        let range = format!("bytes={}", ranges.join(","));
        let response = ask(&site, "GET", "/r.bin", &[("range", &range)]);
        let most = bytes.len() + 17 * 200;
        prop_assert!(text(&response).len() <= most);
        match response.status().as_u16() {
            200 => prop_assert_eq!(text(&response), bytes),
            206 => prop_assert!(!text(&response).is_empty()),
            status => prop_assert_eq!(status, 416),
        }
    }
}

#[test]
fn the_demonstration_is_answered_as_files_are() {
    let demo = Embedded::demo().unwrap();
    let ask = |method: &str, path: &str, fields: &[(&str, &str)]| {
        let head = head(method, path, fields);
        let (parts, body) = block_on(demo.answer(Head::from(&head), path)).into_parts();
        let bytes = block_on(body.collect()).unwrap().to_bytes().to_vec();
        Response::from_parts(parts, bytes)
    };
    let page = ask("GET", "/", &[]);
    assert_eq!(
        (page.status().as_u16(), field(&page, "content-type")),
        (200, "text/html; charset=utf-8")
    );
    assert!(page.body().starts_with(b"<!doctype html>"));
    assert_eq!(page.body(), ask("GET", "/index.html", &[]).body());
    assert_eq!(ask("HEAD", "/", &[]).headers(), page.headers());
    let etag = field(&page, "etag");
    assert_eq!(ask("GET", "/", &[("if-none-match", etag)]).status(), 304);
    assert_eq!(ask("GET", "/", &[("range", "bytes=0-8")]).body(), b"<!doctype");
    for coding in ["br", "gzip"] {
        let packed = ask("GET", "/", &[("accept-encoding", coding)]);
        assert_eq!(field(&packed, "content-encoding"), coding);
        assert!(restored(&packed) == *page.body() && packed.body().len() < page.body().len() / 2);
    }
    for (method, path, status) in [
        ("GET", "/style.css", 200),
        ("GET", "/demo%2Ejs", 200),
        ("GET", "/favicon.svg", 200),
        ("GET", "/style.css/", 404),
        ("GET", "/none", 404),
        ("GET", "/../demo.js", 400),
        ("GET", "", 404),
        ("POST", "/", 405),
    ] {
        assert_eq!(ask(method, path, &[]).status(), status, "{method} {path}");
    }
    // The page needs nothing that it does not bring, and nothing from elsewhere.
    let text = std::str::from_utf8(page.body()).unwrap();
    for part in text.split(['"', '\'']) {
        assert!(!part.starts_with("http") && !part.starts_with("//"), "{part}");
        if part.starts_with('/') && !part.starts_with("/_superpoll/") && !part.contains(' ') {
            assert_eq!(ask("GET", part, &[]).status(), 200, "{part}");
        }
    }
}
