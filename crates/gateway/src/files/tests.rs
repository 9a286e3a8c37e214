use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use futures_lite::future::block_on;
use http::{Request, request};
use http_body_util::BodyExt;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::config::Files;

type Answer = Response<Vec<u8>>;

/// When the tests begin by their own clock.
const START: Duration = Duration::from_secs(1000);

const SECRET: &[u8] = b"outside";

/// A folder `www` with files, beside a secret that symbolic links lead to.
fn world() -> TempDir {
    let world = tempfile::tempdir().unwrap();
    let root = world.path().join("www");
    std::fs::create_dir_all(root.join("sub/empty")).unwrap();
    std::fs::create_dir(root.join(".git")).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(root.join(name), bytes).unwrap();
    write("a.txt", b"0123456789");
    write("a.txt.gz", b"gzip");
    write("a.txt.br", b"br");
    write("empty.bin", b"");
    write("page one.html", b"<p>");
    write("sub/index.html", b"<h1>");
    write("sub/empty/<&>.js", b"1");
    write(".git/config", b"hidden");
    std::fs::write(world.path().join("secret"), SECRET).unwrap();
    symlink("../secret", root.join("out")).unwrap();
    symlink(world.path().join("secret"), root.join("absolute")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("a.txt", root.join("inside")).unwrap();
    world
}

fn options(world: &Path) -> Files {
    Files { root: world.join("www"), ..Files::default() }
}

fn head(method: &str, path: &str, fields: &[(&str, &str)]) -> request::Parts {
    let mut request = Request::builder().method(method).uri("/");
    if let Ok(uri) = path.parse::<http::Uri>() {
        request = request.uri(uri);
    }
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

/// The answer with its whole body, whose length is what the head says.
fn ask_at(site: &Site, method: &str, path: &str, fields: &[(&str, &str)], now: Duration) -> Answer {
    let head = head(method, path, fields);
    let (parts, body) = block_on(site.answer_at(&head, path, now)).into_parts();
    let expected = http_body::Body::size_hint(&body).exact().unwrap();
    let bytes = block_on(body.collect()).unwrap().to_bytes().to_vec();
    assert_eq!(bytes.len() as u64, expected);
    Response::from_parts(parts, bytes)
}

fn ask(site: &Site, method: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
    ask_at(site, method, path, fields, START)
}

fn text(response: &Answer) -> Vec<u8> {
    response.body().clone()
}

fn field<'a>(response: &'a Answer, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

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
fn a_listing_is_made_only_where_it_is_wanted_and_escapes_names() {
    let world = world();
    let site = Site::open(options(world.path())).unwrap();
    assert_eq!(ask(&site, "GET", "/sub/empty/", &[]).status(), 404);
    let site = Site::open(Files { listing: true, ..options(world.path()) }).unwrap();
    let page = String::from_utf8(text(&ask(&site, "GET", "/sub/empty/", &[]))).unwrap();
    assert!(page.contains("<a href=\"%3C%26%3E%2Ejs\">&lt;&amp;&gt;.js</a>"), "{page}");
    let page = String::from_utf8(text(&ask(&site, "GET", "/", &[]))).unwrap();
    assert!(page.contains("sub/</a>") && !page.contains(".git"), "{page}");
}

#[test]
fn no_path_of_the_corpus_gets_out() {
    let world = world();
    let kernel = Site::new(Folder::open(world.path().join("www")).unwrap(), options(world.path()));
    let walking = Folder::open(world.path().join("www")).unwrap().without_openat2();
    let walking = Site::new(walking, options(world.path()));
    for (path, status) in [
        ("/../secret", 400),
        ("/sub/../../secret", 400),
        ("/%2e%2e/secret", 400),
        ("/..%2fsecret", 400),
        ("/..%5csecret", 400),
        ("/..\\secret", 400),
        ("/a.txt%00.html", 400),
        ("/%", 400),
        ("/%zz", 400),
        ("/%ff", 400),
        ("/./a.txt", 400),
        ("secret", 400),
        ("", 308),
        ("*", 400),
        ("/%252e%252e/secret", 404),
        ("//etc/passwd", 404),
        ("/out", 404),
        ("/absolute", 404),
        ("/up/secret", 404),
        ("/up/www/a.txt", 404),
    ] {
        for site in [&kernel, &walking] {
            let response = ask(site, "GET", path, &[]);
            assert_eq!(response.status(), status, "{path}");
            assert_ne!(text(&response), SECRET, "{path}");
        }
    }
    assert_eq!(ask(&walking, "GET", "/sub/", &[]).status(), 200);
    assert_eq!(ask(&walking, "GET", "/inside", &[]).status(), 404);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_path_opens_what_is_outside(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "/", "..", ".", "%2e", "%2f", "%5c", "\\", "%00", "secret", "out", "up", "www", "absolute", "sub",
                "a.txt", "%", "é",
            ]),
            0..10,
        ),
        walks in any::<bool>(),
    ) {
        let world = world();
        let root = world.path().join("www");
        let mut folder = Folder::open(&root).unwrap();
        if walks {
            folder = folder.without_openat2();
        }
        let path = parts.concat();
        if let Ok(file) = folder.open_below(&path) {
            use std::os::fd::AsRawFd;

            let real = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
            prop_assert!(real.starts_with(root.canonicalize().unwrap()), "{path}: {}", real.display());
        }
        let site = Site::new(folder, Files { hidden: true, listing: true, ..options(world.path()) });
        prop_assert_ne!(text(&ask(&site, "GET", &format!("/{path}"), &[])), SECRET);
    }
}

/// Bytes that repeat nowhere.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Long ago, so that nobody has to take it for a file that may change without another stamp.
const AGO: Duration = Duration::from_secs(5);

#[test]
fn what_is_cached_is_asked_for_again_after_a_second() {
    let world = world();
    let file = world.path().join("www/a.txt");
    let site = Site::open(options(world.path())).unwrap();
    let start = START;
    let body = |path: &str, now| text(&ask_at(&site, "GET", path, &[], now));
    assert_eq!(body("/a.txt", start), b"0123456789");
    assert!(site.cache().contains("/a.txt"));
    // The same length, and the same time of change, as far as a program can set it.
    let times = std::fs::metadata(&file).unwrap().modified().unwrap();
    std::fs::write(&file, b"9876543210").unwrap();
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(times).unwrap();
    assert_eq!(body("/a.txt", start + Duration::from_millis(999)), b"0123456789");
    assert_eq!(body("/a.txt", start + AGO), b"9876543210");
    // Deleted, and its place taken by a folder.
    std::fs::remove_file(&file).unwrap();
    assert_eq!(ask_at(&site, "GET", "/a.txt", &[], start + AGO).status(), 200);
    assert_eq!(ask_at(&site, "GET", "/a.txt", &[], start + 2 * AGO).status(), 404);
    assert!(!site.cache().contains("/a.txt"));
    std::fs::create_dir(&file).unwrap();
    assert_eq!(ask_at(&site, "GET", "/a.txt", &[], start + 2 * AGO).status(), 308);
}

#[test]
fn a_sibling_and_an_index_that_come_later_are_found() {
    let world = world();
    let root = world.path().join("www");
    let site = Site::open(Files {
        index: vec!["a.html".into(), "index.html".into()],
        ..options(world.path())
    })
    .unwrap();
    let start = START;
    let gzip = &[("accept-encoding", "gzip")];
    assert_eq!(text(&ask_at(&site, "GET", "/sub/", gzip, start)), b"<h1>");
    std::fs::write(root.join("sub/index.html.gz"), b"packed").unwrap();
    assert_eq!(text(&ask_at(&site, "GET", "/sub/", gzip, start + AGO)), b"packed");
    std::fs::write(root.join("sub/a.html"), b"first").unwrap();
    assert_eq!(text(&ask_at(&site, "GET", "/sub/", gzip, start + 2 * AGO)), b"first");
}

#[test]
fn of_several_ways_to_write_a_path_one_is_cached() {
    let world = world();
    let site = Site::open(options(world.path())).unwrap();
    for path in ["/%61.txt", "//a.txt", "/a%2Etxt", "/none"] {
        ask(&site, "GET", path, &[]);
        assert!(!site.cache().contains(path), "{path}");
    }
    assert_eq!(site.cache().bytes(), 0);
    assert_eq!(text(&ask(&site, "GET", "//%61.txt", &[])), b"0123456789");
}

#[test]
fn a_large_file_is_read_while_it_is_sent() {
    let world = world();
    let file = world.path().join("www/large.bin");
    let bytes = noise(1_000_003);
    std::fs::write(&file, &bytes).unwrap();
    let site = Site::open(options(world.path())).unwrap();
    let start = START;
    for _ in 0..2 {
        assert!(text(&ask_at(&site, "GET", "/large.bin", &[], start)) == bytes);
        assert_eq!(text(&ask_at(&site, "HEAD", "/large.bin", &[], start)), b"");
        let part = ask_at(&site, "GET", "/large.bin", &[("range", "bytes=300000-900000")], start);
        assert_eq!(part.status(), 206);
        assert!(text(&part) == bytes[300_000..=900_000]);
        let parts = &[("range", "bytes=999999-, 0-199999")];
        let parts = text(&ask_at(&site, "GET", "/large.bin", parts, start));
        let find = |part: &[u8]| parts.windows(part.len()).any(|window| window == part);
        assert!(find(&bytes[999_999..]) && find(&bytes[..200_000]));
    }
    // Nobody holds it open.
    let is_it = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| std::fs::read_link(entry.path()).is_ok_and(|path| path == file))
    };
    assert!(!std::fs::read_dir("/proc/self/fd").unwrap().any(is_it));
    // Another takes its place, and is seen at once as there is nothing of it in memory.
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, &bytes[..500_000]).unwrap();
    assert!(text(&ask_at(&site, "GET", "/large.bin", &[], start)) == bytes[..500_000]);
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_ends_in_an_error() {
    let world = world();
    let file = world.path().join("www/large.bin");
    std::fs::write(&file, noise(1_000_000)).unwrap();
    let site = Site::open(options(world.path())).unwrap();
    let request = head("GET", "/large.bin", &[]);
    let mut body = block_on(site.answer(&request, "/large.bin")).into_body();
    let first = block_on(body.frame()).unwrap().unwrap().into_data().unwrap();
    std::fs::File::options().write(true).open(&file).unwrap().set_len(200_000).unwrap();
    let mut length = first.len();
    let error = loop {
        match block_on(body.frame()) {
            Some(Ok(frame)) => length += frame.into_data().unwrap().len(),
            Some(Err(error)) => break error,
            None => panic!("it ended as if it were whole"),
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(length, 200_000);
    assert!(block_on(body.frame()).is_none());
}

fn restored(response: &Answer) -> Vec<u8> {
    use std::io::Read;

    let mut out = Vec::new();
    let body = response.body().as_slice();
    match field(response, "content-encoding") {
        "gzip" => flate2::read::GzDecoder::new(body).read_to_end(&mut out).unwrap(),
        "br" => brotli::Decompressor::new(body, 4096).read_to_end(&mut out).unwrap(),
        "" => return body.to_vec(),
        other => panic!("{other}"),
    };
    out
}

#[test]
fn text_is_compressed_for_who_takes_it() {
    let world = world();
    let root = world.path().join("www");
    let long: String = (0..100_000).map(|number| format!("{number} ")).collect();
    let write = |name: &str, bytes: &[u8]| std::fs::write(root.join(name), bytes).unwrap();
    write("long.txt", long.as_bytes());
    write("medium.js", &long.as_bytes()[..50_000]);
    write("short.txt", &long.as_bytes()[..1000]);
    write("picture.png", &long.as_bytes()[..50_000]);
    write("noise.txt", &noise(5000));
    write("both.css", &long.as_bytes()[..50_000]);
    write("both.css.gz", b"stored");
    let site = Site::open(options(world.path())).unwrap();
    let none = Site::open(Files { compress: false, ..options(world.path()) }).unwrap();
    let tiny = Site::open(Files { cache_bytes: 100_000, ..options(world.path()) }).unwrap();
    let off = Site::open(Files { cache_bytes: 0, ..options(world.path()) }).unwrap();
    for (site, path, accepted, coding) in [
        (&site, "/medium.js", "gzip", "gzip"),
        (&site, "/medium.js", "gzip, br", "br"),
        (&site, "/medium.js", "br;q=0.1, gzip;q=0.2", "gzip"),
        (&site, "/medium.js", "gzip;q=0", ""),
        (&site, "/medium.js", "identity", ""),
        (&site, "/medium.js", "zstd", ""),
        (&site, "/medium.js", "identity;q=0, zstd", ""),
        (&site, "/long.txt", "gzip", "gzip"),
        (&site, "/long.txt", "br", "br"),
        (&site, "/short.txt", "gzip, br", ""),
        (&site, "/picture.png", "gzip, br", ""),
        (&site, "/noise.txt", "gzip, br", ""),
        (&site, "/both.css", "gzip, br", "gzip"),
        (&site, "/both.css", "gzip;q=0.9, br", "br"),
        (&none, "/medium.js", "gzip, br", ""),
        (&none, "/both.css", "gzip, br", "gzip"),
        (&tiny, "/long.txt", "gzip", ""),
        (&off, "/medium.js", "gzip", ""),
    ] {
        let fields = &[("accept-encoding", accepted)];
        let first = ask(site, "GET", path, fields);
        assert_eq!(field(&first, "content-encoding"), coding, "{path} {accepted}");
        if path == "/both.css" && coding == "gzip" {
            assert_eq!(text(&first), b"stored");
            continue;
        }
        let whole = std::fs::read(root.join(&path[1..])).unwrap();
        assert!(restored(&first) == whole, "{path} {accepted}");
        let second = ask(site, "HEAD", path, fields);
        assert_eq!(first.headers(), second.headers(), "{path} {accepted}");
        assert_eq!(field(&first, "content-length"), first.body().len().to_string());
        assert!(first.body().len() <= whole.len());
        let etag = field(&first, "etag");
        if coding.is_empty() {
            assert!(etag.starts_with('"'), "{etag}");
        } else {
            assert!(etag.starts_with("W/\"") && etag.ends_with(&format!("-{coding}\"")), "{etag}");
            assert_eq!(field(&first, "vary"), "accept-encoding");
            assert_eq!(field(&first, "accept-ranges"), "");
        }
        let known =
            ask(site, "GET", path, &[("accept-encoding", accepted), ("if-none-match", etag)]);
        assert_eq!(known.status(), 304);
        assert_eq!(field(&known, "etag"), etag);
        assert_eq!(field(&known, "vary"), field(&first, "vary"));
    }
    let part =
        ask(&site, "GET", "/medium.js", &[("accept-encoding", "br"), ("range", "bytes=1-3")]);
    assert_eq!((part.status(), text(&part)), (StatusCode::PARTIAL_CONTENT, b" 1 ".to_vec()));
    assert_eq!(field(&part, "content-encoding"), "");
    let plain = ask(&site, "GET", "/medium.js", &[]);
    assert_eq!((field(&plain, "content-encoding"), field(&plain, "vary")), ("", "accept-encoding"));
    // What was compressed counts in the cache.
    let before = site.cache().bytes();
    ask(&site, "GET", "/medium.js", &[("accept-encoding", "br")]);
    assert_eq!(site.cache().bytes(), before);
    let after = ask(&site, "GET", "/noise.txt", &[("accept-encoding", "br")]);
    assert_eq!(field(&after, "content-encoding"), "");
}

#[test]
fn who_comes_while_it_is_compressed_gets_the_file_as_it_is() {
    let world = world();
    std::fs::write(world.path().join("www/b.txt"), "text ".repeat(10_000)).unwrap();
    let site = Site::open(options(world.path())).unwrap();
    let request = head("GET", "/b.txt", &[("accept-encoding", "gzip")]);
    let start = START;
    ask_at(&site, "GET", "/b.txt", &[], start);
    let coding = |response: Response<Body>| response.headers().contains_key("content-encoding");
    block_on(async {
        let mut first = Box::pin(site.answer_at(&request, "/b.txt", start));
        if let Some(early) = futures_lite::future::poll_once(&mut first).await {
            // The thread was faster.
            assert!(coding(early));
            return;
        }
        assert!(!coding(site.answer_at(&request, "/b.txt", start).await));
        assert!(coding(first.await));
        assert!(coding(site.answer_at(&request, "/b.txt", start).await));
    });
    // Who gives up does not keep others from it.
    std::fs::write(world.path().join("www/c.txt"), "text ".repeat(10_000)).unwrap();
    let request = head("GET", "/c.txt", &[("accept-encoding", "gzip")]);
    block_on(async {
        let mut first = Box::pin(site.answer_at(&request, "/c.txt", start));
        let _ = futures_lite::future::poll_once(&mut first).await;
        drop(first);
        assert!(coding(site.answer_at(&request, "/c.txt", start).await));
    });
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

#[test]
fn what_is_no_regular_file_is_not_there() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    let world = world();
    let root = world.path().join("www");
    mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("two", root.join("one")).unwrap();
    symlink("one", root.join("two")).unwrap();
    symlink("gone", root.join("dangling")).unwrap();
    symlink("/dev/zero", root.join("zero")).unwrap();
    symlink(".", root.join("self")).unwrap();
    // The null device, where the tests may make one.
    let null = (1 << 8) | 3;
    let is_made = mknodat(CWD, root.join("null"), FileType::CharacterDevice, Mode::RUSR, null);
    if let Err(error) = is_made {
        println!("no device made for the test: {error}");
    }
    std::fs::write(root.join("é ☃.txt"), b"unicode").unwrap();
    use std::os::unix::ffi::OsStrExt;
    std::fs::write(root.join(std::ffi::OsStr::from_bytes(b"\xff.txt")), b"bytes").unwrap();
    let long = format!("/{}", "n".repeat(255));
    let too_long = format!("/{}", "n".repeat(256));
    let deep = "/self".repeat(2000);
    for walks in [false, true] {
        let mut folder = Folder::open(&root).unwrap();
        if walks {
            folder = folder.without_openat2();
        }
        let site = Site::new(folder, Files { listing: true, ..options(world.path()) });
        for (path, status) in [
            ("/fifo", 404),
            ("/socket", 404),
            ("/null", 404),
            ("/zero", 404),
            ("/loop", 404),
            ("/one", 404),
            ("/dangling", 404),
            ("/a.txt/", 404),
            ("/a.txt/..", 400),
            ("//a.txt", 200),
            ("/sub//index.html", 200),
            ("/%C3%A9%20%E2%98%83.txt", 200),
            ("/%c3%a9 ☃.txt", 200),
            ("/%FF.txt", 400),
            (&long, 404),
            (&too_long, 404),
            (&deep, 404),
        ] {
            let shown = &path[..path.len().min(20)];
            assert_eq!(ask(&site, "GET", path, &[]).status(), status, "{shown} {walks}");
        }
        let page = String::from_utf8(text(&ask(&site, "GET", "/", &[]))).unwrap();
        assert!(page.contains("é ☃.txt") && !page.contains("bytes"));
    }
}

#[test]
fn a_file_that_may_not_be_read_is_forbidden() {
    use std::os::unix::fs::PermissionsExt;

    let world = world();
    let root = world.path().join("www");
    for (path, mode) in [(root.join("a.txt"), 0o000), (root.join("sub"), 0o600)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    for path in [world.path(), &root] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    // The superuser may read everything, so this thread becomes somebody else.
    let thread = std::thread::spawn(move || {
        if rustix::process::geteuid().is_root() {
            let nobody = rustix::process::Uid::from_raw(65_534);
            if let Err(error) = rustix::thread::set_thread_res_uid(nobody, nobody, nobody) {
                println!("skipped: this process is root and cannot become another: {error}");
                return;
            }
        }
        let folder = Folder::open(&root).unwrap().without_threads();
        let site = Site::new(folder, Files { root, ..Files::default() });
        assert_eq!(ask(&site, "GET", "/a.txt", &[]).status(), 403);
        assert_eq!(ask(&site, "GET", "/sub/index.html", &[]).status(), 403);
        assert_eq!(ask(&site, "GET", "/page%20one.html", &[]).status(), 200);
    });
    thread.join().unwrap();
    let readable = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(world.path().join("www/sub"), readable).unwrap();
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
        let (parts, body) = block_on(demo.answer(&head, path)).into_parts();
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
