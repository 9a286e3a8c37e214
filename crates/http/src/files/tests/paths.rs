//! The paths that are found below a folder, and those that must not be.

use super::*;

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
        ("/./a.txt", 200),
        ("/%2e/a.txt", 200),
        ("/./.%2e/secret", 400),
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
    fn no_path_opens_a_file_outside_the_folder(
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

#[test]
fn only_regular_files_are_found() {
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
    // The superuser may read everything, so this thread becomes another user.
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
