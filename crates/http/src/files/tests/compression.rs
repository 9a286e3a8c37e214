//! The files that are compressed, and the clients that get them.

use super::*;

#[test]
fn text_is_compressed_for_clients_that_accept_it() {
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
    write("third.css", &long.as_bytes()[..50_000]);
    write("third.css.zst", b"stored");
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
        (&site, "/medium.js", "zstd", "zstd"),
        (&site, "/medium.js", "identity;q=0, zstd", "zstd"),
        (&site, "/medium.js", "gzip, zstd", "zstd"),
        (&site, "/medium.js", "gzip, br, zstd", "br"),
        (&site, "/medium.js", "deflate", ""),
        (&site, "/long.txt", "gzip", "gzip"),
        (&site, "/long.txt", "br", "br"),
        (&site, "/short.txt", "gzip, br", ""),
        (&site, "/picture.png", "gzip, br", ""),
        (&site, "/noise.txt", "gzip, br, zstd", ""),
        (&site, "/third.css", "gzip, br, zstd", "zstd"),
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
        if (path == "/both.css" && coding == "gzip") || path == "/third.css" {
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
    // Compressed bytes count in the cache.
    let before = site.cache().bytes();
    ask(&site, "GET", "/medium.js", &[("accept-encoding", "br")]);
    assert_eq!(site.cache().bytes(), before);
    let after = ask(&site, "GET", "/noise.txt", &[("accept-encoding", "br")]);
    assert_eq!(field(&after, "content-encoding"), "");
}

#[test]
fn requests_during_compression_get_the_uncompressed_file() {
    let world = world();
    std::fs::write(world.path().join("www/b.txt"), "text ".repeat(10_000)).unwrap();
    let site = Site::open(options(world.path())).unwrap();
    let request = head("GET", "/b.txt", &[("accept-encoding", "gzip")]);
    let start = START;
    ask_at(&site, "GET", "/b.txt", &[], start);
    let coding = |response: Response<Body>| response.headers().contains_key("content-encoding");
    block_on(async {
        let mut first = Box::pin(site.answer_at(Head::from(&request), "/b.txt", start));
        if let Some(early) = futures_lite::future::poll_once(&mut first).await {
            // The thread was faster.
            assert!(coding(early));
            return;
        }
        assert!(!coding(site.answer_at(Head::from(&request), "/b.txt", start).await));
        assert!(coding(first.await));
        assert!(coding(site.answer_at(Head::from(&request), "/b.txt", start).await));
    });
    // A client that gives up does not keep other clients from it.
    std::fs::write(world.path().join("www/c.txt"), "text ".repeat(10_000)).unwrap();
    let request = head("GET", "/c.txt", &[("accept-encoding", "gzip")]);
    block_on(async {
        let mut first = Box::pin(site.answer_at(Head::from(&request), "/c.txt", start));
        let _ = futures_lite::future::poll_once(&mut first).await;
        drop(first);
        assert!(coding(site.answer_at(Head::from(&request), "/c.txt", start).await));
    });
}
