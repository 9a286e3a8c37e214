//! The contents that are kept in memory, and those that are read while they are sent.

use super::*;

#[test]
fn cached_files_are_checked_again_after_a_second() {
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
    // No descriptor is open.
    let is_it = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| std::fs::read_link(entry.path()).is_ok_and(|path| path == file))
    };
    assert!(!std::fs::read_dir("/proc/self/fd").unwrap().any(is_it));
    // Another file takes its place, and is seen at once as none of it is in memory.
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
    let mut body = block_on(site.answer(Head::from(&request), "/large.bin")).into_body();
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
