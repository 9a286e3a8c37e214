use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use http::Request;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

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

fn ask(site: &Site, method: &str, path: &str, fields: &[(&str, &str)]) -> Response<Body> {
    let mut request = Request::builder().method(method).uri("/");
    if let Ok(uri) = path.parse::<http::Uri>() {
        request = request.uri(uri);
    }
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    site.respond(&request.body(()).unwrap().into_parts().0, path)
}

fn text(response: &Response<Body>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in response.body() {
        match piece {
            Piece::Memory(memory) => bytes.extend(memory),
            Piece::File(file, range) => {
                let mut part = vec![0; usize::try_from(piece.length()).unwrap()];
                file.read_exact_at(&mut part, range.start).unwrap();
                bytes.extend(part);
            }
        }
    }
    bytes
}

fn field<'a>(response: &'a Response<Body>, name: &str) -> &'a str {
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
        ("", 400),
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
