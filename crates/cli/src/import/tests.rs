//! Texts that are no configurations, and translations with their whole text.

use std::path::Path;

use super::{Format, import};

/// Writes a file and imports it.
fn imported(server: Format, text: &[u8]) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    imported_in(folder.path(), server, text)
}

fn imported_in(folder: &Path, server: Format, text: &[u8]) -> Result<String, String> {
    let file = folder.join("a.conf");
    std::fs::write(&file, text).unwrap();
    import(server, &file).map(|(text, _)| text).map_err(|error| error.to_string())
}

#[test]
fn random_texts_end_in_an_error_or_in_a_configuration() {
    let words = "server  location  listen  80  443 ssl  /  /a/  = /b  ~ \\.x$  ~* ^/(a|b)  root  \
        /srv  proxy_pass  http://a/  http://b:1/c  upstream  a  return  301  $uri  \
        try_files  @x  =404  {  }  {  }  ;  ;  ;  \n  \n  \"  '  `  \\  #  $  ${  import  \
        (a)  {$X:1}  *  handle  reverse_proxy  header  redir  @m  path  \0  \u{e9}  <<E  \
        server_name  x.test  http  deny  all  alias  rewrite  ^/(.*)$  /$1  permanent";
    let words: Vec<&str> = words.split("  ").collect();
    let mut state: u64 = 0x5eed;
    let mut next = |bound: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % bound
    };
    let mut accepted = 0;
    for round in 0..1500 {
        let mut text = Vec::new();
        for _ in 0..next(60) {
            match next(12) {
                0 => text.push(u8::try_from(next(256)).unwrap()),
                _ => text.extend(words[next(words.len())].bytes()),
            }
            text.push(b' ');
        }
        for server in [Format::Nginx, Format::Caddy] {
            // The output is parsed in there, as the last step.
            match imported(server, &text) {
                Ok(_) => accepted += 1,
                Err(error) => assert!(!error.is_empty(), "{round}"),
            }
        }
    }
    assert!(accepted > 50, "{accepted}");
}

#[test]
fn bad_texts_have_an_error_with_their_place() {
    let deep = "a {".repeat(40);
    let many = "a;\n".repeat(30_000);
    let large = " ".repeat(10 << 20);
    for (text, expected) in [
        ("server {\n listen 80;\n", "a.conf:1: the block is not closed"),
        ("a b\n", "a.conf:1: \"a b\" is not ended by \";\""),
        ("a;\n}\n", "a.conf:2: unexpected \"}\""),
        ("a \"b;\n", "a.conf:1: the quote is not closed"),
        ("a \"b\"c;", "a.conf:1: 'c' after a quote, expected a space"),
        ("\n;", "a.conf:2: unexpected \";\""),
        ("include a.conf;", "a.conf:1: "),
        (&deep, "a.conf:1: blocks are more than 32 deep"),
        (&many, "a.conf:20001: more than 20000 directives"),
        (&large, "cannot read "),
    ] {
        let error = imported(Format::Nginx, text.as_bytes()).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
    let error = imported(Format::Nginx, b"a;\nb \xff;").unwrap_err();
    assert_eq!(error, "a.conf:2: the text is not UTF-8 without NUL");
    let error = imported(Format::Caddy, b"a.test\nrespond \0").unwrap_err();
    assert_eq!(error, "a.conf:2: the text is not UTF-8 without NUL");
    for (text, expected) in [
        ("a.test {\n", "a.conf:1: the block is not closed"),
        ("a.test {\n}\n}\n", "a.conf:3: unexpected \"}\""),
        ("a.test {\n respond \"x\n}\n", "a.conf:2: the quote is not closed"),
        ("a.test {\n respond <<END\nx\n}\n", "a.conf:2: <<END has no end"),
        ("(a) {\n import a\n}\nx.test {\n import a\n}\n", "a.conf:2: snippets import one another"),
        ("x.test {\n import a.conf\n}\n", "a.conf:2: "),
    ] {
        let error = imported(Format::Caddy, text.as_bytes()).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn files_of_includes_are_read_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("sites")).unwrap();
    for (name, text) in [("b.conf", "return 204;"), ("a.conf", "server_name a.test;"), ("c", "x;")]
    {
        std::fs::write(folder.path().join("sites").join(name), text).unwrap();
    }
    let text = b"server { listen 80; include sites/*.conf; include none.conf; include no/*.conf; }";
    let text = imported_in(folder.path(), Format::Nginx, text).unwrap();
    for expected in [
        "names = [\"a.test\"] # sites/a.conf:1\n",
        "respond = { status = 204 } # sites/b.conf:1\n",
        "# a.conf:1: NOT IMPORTED \"include none.conf\": the file cannot be read\n",
        "# a.conf:1: \"include no/*.conf\": not needed: no file has such a name\n",
    ] {
        assert!(text.contains(expected), "{text}");
    }
}

/// Returns the routes of a server with these lines.
fn routes(lines: &str) -> String {
    let text = format!("server {{ listen 80; server_name a.test;\n{lines}\n}}");
    let text = imported(Format::Nginx, text.as_bytes()).unwrap();
    let (_, rest) = text.split_once("[[hosts.routes]]").unwrap();
    let end = rest.find("\n\n").unwrap_or(rest.len());
    let mut all = String::new();
    for line in rest[..end].lines().skip(1) {
        all.push_str(line.split(" # a.conf").next().unwrap());
        all.push('\n');
    }
    all
}

#[test]
fn locations_become_routes() {
    for (lines, expected) in [
        ("location / { return 404; }", "respond = { status = 404 }\n"),
        (
            "location /old { return 301 https://$host/new$is_args$args; }",
            "path = \"/old\"\nredirect = { to = \"https://{host}/new{query}\", status = 301 }\n",
        ),
        (
            "location = /x { return 200 'ok'; }",
            "path = \"/x\"\nmatch = { path_regex = \"^/x$\" }\nrespond = { status = 200, body = \"ok\" }\n",
        ),
        (
            "location ~* \\.PNG$ { deny all; }",
            "match = { path_regex = '(?i)\\.PNG$' }\nrespond = { status = 403 }\n",
        ),
        (
            "location /i/ { alias /srv/i/; expires 7d; autoindex on; }",
            "path = \"/i/\"\nfiles = { root = \"/srv/i\", max_age = \"7d\", listing = true }\n",
        ),
        (
            "location /i { root /srv; }",
            "path = \"/i\"\nrewrite = \"{path}\"\nfiles = { root = \"/srv\" }\n",
        ),
        (
            "location / { root /srv; try_files $uri /index.html; }",
            "files = { root = \"/srv\", fallback = \"/index.html\" }\n",
        ),
        (
            "location /api/ { proxy_set_header Host $host; proxy_pass http://127.0.0.1:1/; }",
            "path = \"/api/\"\n# a.conf:2: \"proxy_set_header Host $host\": not needed: servers get the host that \
             the client asked for\nproxy = { upstream = \"127-0-0-1-1\", strip_path = true }\n",
        ),
        (
            "location /a/ { proxy_set_header Host b.test; proxy_pass http://127.0.0.1:1/b/; }",
            "path = \"/a/\"\nrewrite = \"/b{below}\"\nproxy = { upstream = \"127-0-0-1-1\", host = \"b.test\" }\n",
        ),
        (
            "location / { allow 10.0.0.0/8; deny all; return 204; }",
            "respond = { status = 204 }\nallow = [\"10.0.0.0/8\"]\n",
        ),
        (
            "location = /a.php { root /srv; include fastcgi.conf; fastcgi_pass 127.0.0.1:1; }",
            "path = \"/a.php\"\nmatch = { path_regex = '^/a\\.php$' }\nrewrite = \"{path}\"\n\
             fastcgi = { upstream = \"127-0-0-1-1\", root = \"/srv\" }\n# a.conf:2: \"include \
             fastcgi.conf\": not needed: the parameters and types of this file are built in\n",
        ),
        (
            "location / { uwsgi_pass 127.0.0.1:1; }",
            "respond = { status = 501 }\n# a.conf:2: NOT IMPORTED \"uwsgi_pass 127.0.0.1:1\": an HTTP server of the \
             language, as gunicorn or uvicorn, behind proxy\n",
        ),
    ] {
        let mut found = routes(lines);
        // Rules that all routes have are those of the host.
        if lines.contains("allow") {
            found.push_str("allow = [\"10.0.0.0/8\"]\n");
        }
        assert_eq!(found, expected, "{lines}");
    }
}

#[test]
fn what_cannot_be_expressed_keeps_clients_out() {
    let closed = "deny = [\"0.0.0.0/0\", \"::/0\", \"unix\"]";
    for lines in [
        "location / { allow 10.0.0.1; deny 10.0.0.0/8; allow all; return 204; }",
        "location / { auth_basic a; return 204; }",
        "location / { auth_request /none; return 204; }",
        "location / { allow nonsense; deny all; return 204; }",
        "location / { root /srv; limit_except GET { deny all; } }",
    ] {
        let text = format!("server {{ listen 80; server_name a.test;\n{lines}\n}}");
        let text = imported(Format::Nginx, text.as_bytes()).unwrap();
        assert!(text.contains(closed) && text.contains("NOT IMPORTED"), "{lines}: {text}");
    }
    let text = b"a.test {\n@x not remote_ip 10.0.0.0/8\nabort @x\nrespond ok\n}\n";
    let text = imported(Format::Caddy, text).unwrap();
    assert!(text.contains(closed), "{text}");
}

/// Returns the lines of an output without their places, from one line to the next empty one.
fn part<'a>(output: &'a str, start: &str) -> Vec<&'a str> {
    let lines = output.lines().skip_while(|line| !line.starts_with(start));
    let plain = |line: &'a str| line.split(" # a.conf").next().unwrap();
    lines.take_while(|line| !line.is_empty()).map(plain).collect()
}

#[test]
fn grpc_pass_is_a_proxy_to_an_upstream_of_http2() {
    let text = "upstream app { server 10.0.0.1:1; }
        server { listen 80; server_name a.test;
        location /a/ { grpc_pass grpc://app; grpc_set_header Host $host; grpc_set_header X-A b;
            grpc_intercept_errors on; grpc_next_upstream off; grpc_hide_header X-B; }
        location /b/ { grpc_pass grpcs://app; grpc_ssl_name b.test; grpc_read_timeout 1h; }
        location /c/ { proxy_pass http://app; proxy_set_header Host $host; }
        location /d/ { grpc_pass http://app; }
        location /e/ { grpc_pass $e; } }";
    let output = imported(Format::Nginx, text.as_bytes()).unwrap();
    for (start, expected) in [
        (
            "path = \"/a/\"",
            &[
                "# a.conf:3: \"grpc_set_header Host $host\": not needed: servers get the host that the \
                 client asked for",
                "proxy = { upstream = \"app\", request_headers = { set = { x-a = \"b\" } }, \
                 replace_errors = true, retries = 0 }",
                "headers = { remove = [\"x-b\"] }",
            ][..],
        ),
        (
            "path = \"/b/\"",
            &[
                "# a.conf:5: \"grpc_pass grpcs://app\": servers have to prove who they are here, by \
                 the authorities of the system",
                "# a.conf:5: \"grpc_pass grpcs://app\": nginx sends this host unless \
                 grpc_set_header names another",
                "proxy = { upstream = \"app-h2-tls\", host = \"app\" }",
            ],
        ),
        ("path = \"/c/\"", &["proxy = { upstream = \"app-2\" }"]),
        (
            "path = \"/d/\"",
            &[
                "# a.conf:7: NOT IMPORTED \"grpc_pass http://app\": expected grpc://, grpcs:// and an \
                 address or upstream",
                "respond = { status = 501 }",
            ],
        ),
        (
            "path = \"/e/\"",
            &[
                "# a.conf:8: NOT IMPORTED \"grpc_pass $e\": an upstream is known when the server starts",
                "respond = { status = 501 }",
            ],
        ),
        ("[upstreams.app]", &["h2 = true"]),
        (
            "[upstreams.app-h2-tls]",
            &[
                "h2 = true",
                "tls = { ca = \"/etc/ssl/certs/ca-certificates.crt\", server_name = \"b.test\" }",
            ],
        ),
        ("[upstreams.app-2]", &[]),
        ("[timeouts]", &["response = \"1h\""]),
    ] {
        let found = part(&output, start);
        assert!(!found.is_empty(), "{start}: {output}");
        for line in expected {
            assert!(found.contains(line), "{start}: {line}: {output}");
        }
    }
    assert!(!part(&output, "[upstreams.app-2]").contains(&"h2 = true"), "{output}");
}

#[test]
fn a_map_of_server_names_becomes_the_routes_of_a_relay() {
    let relay = |map: &str, server: &str| {
        let text = format!(
            "stream {{ upstream apps {{ server 10.0.1.1:443; }}
            map $ssl_preread_server_name $name {{ {map} }}
            server {{ listen 443; {server} proxy_pass $name; }} }}"
        );
        imported(Format::Nginx, text.as_bytes()).unwrap()
    };
    let on = "ssl_preread on;";
    let output = relay(
        "hostnames; A.test 10.0.0.1:443; b.test 10.0.0.1:443; .c.test apps; default 10.0.0.9:443;",
        "ssl_preread on; proxy_timeout 10m; proxy_protocol on;",
    );
    let (_, below) = output.split_once("[[listeners]]").unwrap();
    let lines: Vec<&str> = below
        .lines()
        .map(|line| line.split(" # a.conf").next().unwrap())
        .take_while(|line| !line.starts_with("[upstreams"))
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(
        lines,
        [
            "address = \":443\"",
            "[listeners.relay]",
            "to = \"10.0.0.9:443\"",
            "idle = \"10m\"",
            "proxy_protocol = true",
            "[[listeners.relay.routes]]",
            "server_names = [\"a.test\", \"b.test\"]",
            "to = \"10.0.0.1:443\"",
            "[[listeners.relay.routes]]",
            "server_names = [\"c.test\", \"*.c.test\"]",
            "upstream = \"apps\"",
        ],
        "{output}"
    );
    assert!(!output.contains("NOT IMPORTED"), "{output}");
    // Clients of an expression do not come to the end for all others.
    for line in ["~^a", "a.*", "*.a.test", "1.2.3.4", "\"\""] {
        let output = relay(&format!("b.test apps; {line} 10.0.0.1:443; default 10.0.0.9:443;"), on);
        assert_eq!(part(&output, "[listeners.relay]").len(), 3, "{line}: {output}");
        assert!(output.contains("NOT IMPORTED \"default 10.0.0.9:443\""), "{line}: {output}");
        assert!(!output.contains("to = \"10"), "{line}: {output}");
        assert!(output.contains("server_names = [\"b.test\"]"), "{line}: {output}");
    }
    for (map, server) in [
        ("~^a 10.0.0.1:443;", on),
        ("default nowhere;", on),
        ("a.test 10.0.0.1:443;", ""),
        ("a.test 10.0.0.1:443;", "ssl_preread off;"),
    ] {
        let output = relay(map, server);
        assert!(!output.contains("listeners.relay"), "{map} {server}: {output}");
        assert!(output.contains("NOT IMPORTED \"server { "), "{map} {server}: {output}");
    }
}

/// Rows with lines of a site, or a whole Caddyfile, and the lines of the output after `> `, without
/// those of [`CADDY_FRAME`] and without their places. `+ ` stands for the start of a route, and
/// ` | ` for a line that begins with a key.
const CADDY: &str = include_str!("caddy/expected.txt");

/// Lines that the outputs of most rows have.
const CADDY_FRAME: &str = "
[[listeners]]
address = \":80\"
[[hosts]]
names = [\"a.test\"]
[upstreams.10-0-0-1-1]
servers = [{ address = \"10.0.0.1:1\" }]
[limits]
# Caddy has no limit of the bodies of requests; here body_bytes is 16 MiB.";

#[test]
fn directives_of_caddyfiles_become_lines() {
    let rows: Vec<&str> = CADDY.trim_end().split("\n\n").collect();
    assert!(rows.len() > 70, "{}", rows.len());
    let hash = "$2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG";
    for row in rows {
        let (expected, lines): (Vec<&str>, Vec<&str>) =
            row.lines().partition(|line| line.starts_with("> "));
        let lines = lines.join("\n").replace("HASH", hash);
        let is_whole =
            lines.starts_with('{') || lines.contains(".test {") || lines.contains("80 {");
        let text = if is_whole { lines } else { format!("http://a.test {{\n{lines}\n}}") };
        let output = imported(Format::Caddy, text.as_bytes()).unwrap();
        let plain = output.lines().map(|line| line.split(" # a.conf").next().unwrap());
        let mut found = String::new();
        for line in plain.filter(|line| CADDY_FRAME.lines().all(|frame| frame != *line)) {
            found.push_str(if line.starts_with(['#', '[']) { "\n" } else { " | " });
            found.push_str(line);
        }
        let found = found.replace("[[hosts.routes]]", "+").replace(hash, "HASH");
        let found = found.trim_start_matches(['\n', ' ', '|']);
        let expected: Vec<&str> = expected.iter().map(|line| &line[2..]).collect();
        assert!(!expected.is_empty(), "{row}");
        assert_eq!(found, expected.join("\n"), "{text}");
    }
}
