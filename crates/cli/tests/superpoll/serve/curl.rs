//! curl as the client of a folder.

use std::process::Command;

use crate::stage::{Server, Site, noise, run, tool};

/// Returns the output of curl: the response's body, or with `-i` its head as well.
fn curl(arguments: &[&str]) -> Option<String> {
    tool("curl")?;
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "60", "--path-as-is"]).args(arguments);
    Some(run(&mut command))
}

/// Returns the value of a field of a head.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(": ")?;
        found.eq_ignore_ascii_case(name).then(|| value.trim_end())
    })
}

fn status(head: &str) -> u16 {
    head.split(' ').nth(1).and_then(|status| status.trim().parse().ok()).unwrap_or(0)
}

#[test]
fn files_heads_ranges_conditions_and_missing_files() {
    if tool("curl").is_none() {
        return;
    }
    let site = Site::new();
    let server = Server::folder(&site.www(), &[]);
    let ask = |arguments: &[&str], path: &str| {
        let url = server.url(path);
        curl(&[arguments, &["-i", &url]].concat()).unwrap()
    };
    let small = ask(&[], "small");
    assert_eq!((status(&small), field(&small, "content-length")), (200, Some("10")));
    assert!(small.ends_with("\r\n\r\n0123456789"), "{small}");
    let tag = field(&small, "etag").unwrap().to_owned();
    let modified = field(&small, "last-modified").unwrap().to_owned();

    let head = ask(&["--head"], "small");
    assert_eq!((status(&head), field(&head, "content-length")), (200, Some("10")));
    assert!(head.ends_with("\r\n\r\n"), "{head}");

    for condition in [format!("If-None-Match: {tag}"), format!("If-Modified-Since: {modified}")] {
        let answer = ask(&["-H", &condition], "small");
        assert_eq!((status(&answer), field(&answer, "etag")), (304, Some(&*tag)), "{condition}");
    }
    assert_eq!(status(&ask(&["-H", "If-None-Match: \"another\""], "small")), 200);
    assert_eq!(status(&ask(&["-H", "If-Match: \"another\""], "small")), 412);

    for (range, expected, said) in [
        ("0-3", "0123", "bytes 0-3/10"),
        ("7-", "789", "bytes 7-9/10"),
        ("-2", "89", "bytes 8-9/10"),
        ("5-100", "56789", "bytes 5-9/10"),
    ] {
        let answer = ask(&["-r", range], "small");
        assert_eq!((status(&answer), field(&answer, "content-range")), (206, Some(said)));
        assert!(answer.ends_with(&format!("\r\n\r\n{expected}")), "{answer}");
    }
    let answer = ask(&["-r", "20-30"], "small");
    assert_eq!((status(&answer), field(&answer, "content-range")), (416, Some("bytes */10")));

    let index = ask(&[], "");
    assert_eq!(status(&index), 200);
    assert_eq!(field(&index, "content-type"), Some("text/html; charset=utf-8"));
    assert!(index.ends_with("<p>the index</p>\n"));
    let folder = ask(&[], "sub");
    assert!(matches!(status(&folder), 301 | 308), "{folder}");
    let followed = ask(&["-L", "-w", "%{url_effective}"], "sub");
    assert!(followed.ends_with(&format!("<p>below</p>\n{}", server.url("sub/"))), "{followed}");

    for path in ["nothing", "small/", "small/more"] {
        assert_eq!(status(&ask(&[], path)), 404, "{path}");
    }
    for path in ["../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "small%00"] {
        assert_eq!(status(&ask(&[], path)), 400, "{path}");
    }
    let refused = ask(&["-X", "DELETE"], "small");
    assert_eq!((status(&refused), field(&refused, "allow").is_some()), (405, true));
    server.finish();
}

#[test]
fn compressed_text_is_the_same_text() {
    if tool("curl").is_none() {
        return;
    }
    let site = Site::new();
    let text = std::fs::read_to_string(site.path("www/text.txt")).unwrap();
    let server = Server::folder(&site.www(), &[]);
    let url = server.url("text.txt");
    assert_eq!(curl(&[&url]).unwrap(), text);
    for encoding in ["gzip", "br"] {
        let asked = format!("Accept-Encoding: {encoding}");
        let received =
            curl(&["--compressed", "-H", &asked, "-w", "%{size_download}", &url]).unwrap();
        let size: usize = received.strip_prefix(&text).unwrap().parse().unwrap();
        assert!(size < text.len() / 10, "{encoding}: {size} bytes");
        let head = curl(&["-I", "-H", &asked, &url]).unwrap();
        assert_eq!(field(&head, "content-encoding"), Some(encoding));
        assert_eq!(field(&head, "vary"), Some("accept-encoding"));
    }
    server.finish();
}

#[test]
fn text_of_a_server_is_compressed_over_each_protocol() {
    if tool("curl").is_none() {
        return;
    }
    let site = Site::new();
    site.certificate();
    let text: String =
        (0..60_000_u32).map(|number| format!("{} ", number * number % 7919)).collect();
    site.write("www/long.txt", &text);
    let config = "
        [[listeners]]
        address = \"127.0.0.1:0\"
        tls = { certificate = \"cert.pem\", key = \"cert.key\" }
        [[listeners]]
        address = \"unix:origin\"
        [[hosts]]
        names = [\"localhost\"]
        [[hosts.routes]]
        path = \"/app\"
        rewrite = \"{below}\"
        proxy = { upstream = \"app\", host = \"origin\", compress = true }
        [[hosts]]
        names = [\"origin\"]
        [[hosts.routes]]
        files = { root = \"www\", compress = false }
        [upstreams.app]
        servers = [{ address = \"unix:origin\" }]";
    let server = Server::configured(&site.write("compress.toml", config), 2);
    let url = format!("https://localhost:{}/app/long.txt", server.at(0).port());
    let known = curl(&["--version"]).unwrap();
    let pem = site.path("cert.pem");
    for (encoding, library) in [("gzip", "zlib"), ("br", "brotli"), ("zstd", "zstd")] {
        if !known.contains(library) {
            println!("skipped: this curl has no {library}");
            continue;
        }
        let versions: [&[&str]; 3] = [&["--http1.0", "--no-alpn"], &["--http1.1"], &["--http2"]];
        for version in versions {
            let asked = format!("Accept-Encoding: {encoding}");
            let ways = ["--cacert", pem.to_str().unwrap(), "--compressed", "-H", &asked];
            let told = ["-w", "%{size_download} %header{content-encoding} %header{etag}", &url];
            let received = curl(&[version, &ways, &told].concat()).unwrap();
            let rest = received.strip_prefix(&text).expect("another text");
            let told: Vec<&str> = rest.split(' ').collect();
            let size: usize = told[0].parse().unwrap();
            assert!(size < text.len() * 2 / 3, "{encoding} {version:?}: {size} bytes");
            assert_eq!(told[1], encoding, "{version:?}");
            assert!(told[2].starts_with("W/\""), "{encoding} {version:?}: {rest}");
        }
    }
    server.finish();
}

#[test]
fn a_large_file_arrives_as_it_is_however_it_is_asked_for() {
    if tool("curl").is_none() {
        return;
    }
    let site = Site::new();
    let bytes = site.large();
    site.certificate();
    let text = "
        [[listeners]]
        address = \"127.0.0.1:0\"
        [[listeners]]
        address = \"127.0.0.1:0\"
        tls = { certificate = \"cert.pem\", key = \"cert.key\" }
        [[listeners]]
        address = \"unix:socket\"
        [[listeners]]
        address = \"127.0.0.1:0\"
        proxy_protocol = true
        [[hosts]]
        [[hosts.routes]]
        files = { root = \"www\" }";
    let server = Server::configured(&site.write("large.toml", text), 4);
    let (socket, pem) = (site.path("socket"), site.path("cert.pem"));
    let (socket, pem) = (socket.to_str().unwrap(), pem.to_str().unwrap());
    let port = server.at(1).port();
    let secure = format!("https://localhost:{port}/large");
    let (plain, proxied) = (server.url("large"), format!("{}large", server.fronts[3]));
    let out = site.path("received");
    let known = "--http2-prior-knowledge";
    let cases: [(&[&str], &str); 9] = [
        (&[&plain], "1.1"),
        (&["--unix-socket", socket, "http://localhost/large"], "1.1"),
        (&["--haproxy-protocol", &proxied], "1.1"),
        (&[known, &plain], "2"),
        (&[known, "--unix-socket", socket, "http://localhost/large"], "2"),
        (&[known, "--haproxy-protocol", &proxied], "2"),
        (&["--cacert", pem, "--http1.1", &secure], "1.1"),
        (&["--cacert", pem, "--http2", &secure], "2"),
        (&["--tls-max", "1.2", "--cacert", pem, "--http2", &secure], "2"),
    ];
    for (arguments, version) in cases {
        let ways = ["-o", out.to_str().unwrap(), "-w", "%{http_version} %{http_code}"];
        let told = curl(&[&ways, arguments].concat()).unwrap();
        assert_eq!(told, format!("{version} 200"), "{arguments:?}");
        assert!(std::fs::read(&out).unwrap() == bytes, "{arguments:?} received another file");
        std::fs::remove_file(&out).unwrap();
    }
    // In two parts: curl requests the part that it does not have.
    std::fs::write(&out, &bytes[..1 << 20]).unwrap();
    curl(&["-C", "-", "-o", out.to_str().unwrap(), &plain]).unwrap();
    assert!(std::fs::read(&out).unwrap() == bytes);
    server.finish();
    assert!(!site.path("socket").exists());
}

/// It speaks HTTP/2 without TLS to a server that it knows, many requests on one connection.
#[test]
fn nghttp_gets_files_without_encryption() {
    if tool("nghttp").is_none() {
        return;
    }
    let site = Site::new();
    let bytes = site.large();
    let server = Server::folder(&site.www(), &[]);
    let urls = ["small", "large", "missing"].map(|path| server.url(path));
    let mut command = Command::new("nghttp");
    let told = run(command.args(["--no-dep", "--null-out", "--stat"]).args(&urls));
    for (path, status) in [("/small", "200"), ("/large", "200"), ("/missing", "404")] {
        let line = told.lines().find(|line| line.ends_with(path)).unwrap_or_default();
        assert!(line.split_whitespace().any(|word| word == status), "{path}: {told}");
    }
    let mut command = Command::new("nghttp");
    let output = command.arg(&urls[1]).output().unwrap();
    assert!(output.status.success() && output.stdout == bytes);
    server.finish();
}

#[test]
fn hosts_redirects_uploads_and_limits() {
    if tool("curl").is_none() {
        return;
    }
    let site = Site::new();
    let text = "
        [[listeners]]
        address = \"127.0.0.1:0\"
        [[hosts]]
        names = [\"one.test\"]
        [[hosts.routes]]
        redirect = { to = \"https://other.test/\", status = 302 }
        [[hosts]]
        names = [\"two.test\"]
        [[hosts.routes]]
        path = \"/old\"
        redirect = { to = \"/sub/\" }
        [[hosts.routes]]
        files = { root = \"www\" }
        [[hosts.routes]]
        path = \"/c\"
        channel = { message_bytes = \"1KiB\" }
        [limits]
        body_bytes = \"4KiB\"
        header_bytes = \"8KiB\"";
    let server = Server::configured(&site.write("hosts.toml", text), 1);
    let port = server.at(0).port();
    let ask = |arguments: &[&str], host: &str, path: &str| {
        let to = format!("{host}:{port}:127.0.0.1");
        let url = format!("http://{host}:{port}{path}");
        curl(&[arguments, &["-i", "--resolve", &to, &url]].concat()).unwrap()
    };
    let answer = ask(&[], "one.test", "/some?a=b");
    assert_eq!(status(&answer), 302);
    assert!(field(&answer, "location").unwrap().starts_with("https://other.test/"));
    let answer = ask(&[], "two.test", "/old");
    assert_eq!(status(&answer), 308);
    assert!(ask(&["-L"], "two.test", "/old").ends_with("<p>below</p>\n"));
    assert!(ask(&[], "two.test", "/small").ends_with("0123456789"));
    assert!(matches!(status(&ask(&[], "three.test", "/small")), 404 | 421));

    let body = site.write("body", "");
    for (size, expected) in [(1024, 201), (1025, 413), (8192, 413), (1 << 20, 413)] {
        std::fs::write(&body, noise(size)).unwrap();
        for form in [&[][..], &["-H", "Transfer-Encoding: chunked"]] {
            let upload = format!("@{}", body.display());
            let answer = ask(
                &[form, &["-H", "Expect:", "--data-binary", &upload]].concat(),
                "two.test",
                "/c",
            );
            assert_eq!(status(&answer), expected, "{size} {form:?}: {answer}");
        }
    }
    let long = format!("X-Long: {}", "x".repeat(64 << 10));
    assert_eq!(status(&ask(&["-H", &long], "two.test", "/small")), 431);
    assert_eq!(status(&ask(&[], "two.test", "/small")), 200);
    server.finish();
}
