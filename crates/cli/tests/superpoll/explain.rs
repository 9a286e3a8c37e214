//! The command `superpoll explain`.

use std::path::Path;
use std::process::Output;

use crate::superpoll;

const TEXT: &str = r#"
[[listeners]]
address = ":8080"
[[listeners]]
address = ":8443"
tls = "internal"
[[listeners]]
address = ":5432"
relay = { to = "127.0.0.1:5433" }
[metrics]
ready = "/ready"
[[hosts]]
names = ["example.org", "*.example.org"]
allow = ["10.0.0.0/8"]
rate = "100/s burst 500"
[[hosts.routes]]
files = { root = "www", fallback = "/index.html" }
[[hosts.routes]]
path = "/old"
redirect = { to = "https://{host}/new{path}{query}", status = 301 }
[[hosts.routes]]
path = "/api"
match = { methods = ["POST"], headers = { x-key = true } }
proxy = { upstream = "app", strip_path = true }
[[hosts.routes]]
path = "/api"
match = { query = { v = "2" } }
auth_request = { upstream = "app", path = "/may" }
proxy = { upstream = "app" }
rewrite = "/v2{path}"
[[hosts.routes]]
path = "/api"
match = { path_regex = '^/api/u/([a-z]+)$' }
files = { root = "www", otherwise = "proxy" }
proxy = { upstream = "app" }
rewrite = "/users/{1}"
basic_auth = { realm = "Users", users = { joe = "$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a" } }
[[hosts.routes]]
path = "/api"
respond = { status = 404, body = "no\n" }
rate = { limit = "5/m", by = "header:X-Key" }
deny = ["10.1.0.0/16", "unix"]
[[hosts.routes]]
path = "/rooms/{room}"
channel = {}
[[hosts]]
names = ["secure.test"]
https = "always"
routes = [{ respond = { status = 444 } }]
[upstreams.app]
servers = [{ address = "127.0.0.1:3000" }, { address = "127.0.0.1:3001" }]
"#;

fn ask(folder: &Path, text: &str, arguments: &[&str]) -> Output {
    std::fs::create_dir_all(folder.join("www")).unwrap();
    std::fs::write(folder.join("x.toml"), text).unwrap();
    let mut command = superpoll();
    command.current_dir(folder).env("STATE_DIRECTORY", folder);
    command.args(["explain", "-c", "x.toml"]).args(arguments).output().unwrap()
}

fn explained(folder: &Path, arguments: &[&str]) -> String {
    let output = ask(folder, TEXT, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_route_of_a_request_is_printed_with_the_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let plain = "listener  http://:8080/\n";
    let host = "host      example.org, *.example.org (x.toml:12)";
    let named = format!("{plain}{host}: it has the name example.org\n");
    let of_host = "rules     allow 10.0.0.0/8; rate 100/s burst 500 by client of the host\n";
    let no_post = "route     /api (x.toml:21) does not fit: the method is not POST\n";
    let no_key = "route     /api (x.toml:21) does not fit: there is no header x-key\n";
    let no_v2 = "route     /api (x.toml:25) does not fit: parameter v is not \"2\"\n";
    let no_user =
        "route     /api (x.toml:31) does not fit: the path does not match ^/api/u/([a-z]+)$\n";
    let servers = "at app (127.0.0.1:3000, 127.0.0.1:3001)\n";
    for (arguments, expected) in [
        (
            &["http://example.org:8080/a/b.css?x"][..],
            format!(
                "{named}route     / (x.toml:16) answers\n{of_host}\
                 files     www/a/b.css; if there is none, www/index.html\n"
            ),
        ),
        (
            &["http://sub.EXAMPLE.org:8080/"],
            format!(
                "{plain}{host}: it has the name *.example.org\nroute     / (x.toml:16) answers\n\
                 {of_host}files     www/, by index.html; if there is none, www/index.html\n"
            ),
        ),
        (
            &["http://example.org:8080/.env"],
            format!(
                "{named}route     / (x.toml:16) answers\n{of_host}\
                 files     404 Not Found: such a path is not looked for\n"
            ),
        ),
        (
            &["-X", "DELETE", "http://example.org:8080/a"],
            format!(
                "{named}route     / (x.toml:16) answers\n{of_host}\
                 answer    405 Method Not Allowed: files have GET and HEAD (www)\n"
            ),
        ),
        (
            &["http://example.org:8080/old/x?y"],
            format!(
                "{named}route     /old (x.toml:18) answers\n{of_host}\
                 redirect  301 to https://example.org/new/old/x?y\n"
            ),
        ),
        (
            &["-X", "POST", "-H", "X-Key: 1", "http://example.org:8080/api/a?b"],
            format!(
                "{named}route     /api (x.toml:21) answers\n{of_host}proxy     POST /a?b {servers}"
            ),
        ),
        (
            &["-X", "POST", "http://example.org:8080/api?v=2"],
            format!(
                "{named}{no_key}route     /api (x.toml:25) answers\n{of_host}\
                 rules     /may at app has to answer with 2xx, by auth_request of the route\n\
                 rewrite   /v2/api?v=2\nproxy     POST /v2/api?v=2 {servers}"
            ),
        ),
        (
            &["http://example.org:8080/api/u/joe"],
            format!(
                "{named}{no_post}{no_v2}route     /api (x.toml:31) answers\n{of_host}\
                 rules     password of \"Users\" of the route\nrewrite   /users/joe\n\
                 files     www/users/joe\nelse      if there is no such file:\n\
                 proxy     GET /users/joe {servers}"
            ),
        ),
        (
            &["http://example.org:8080/api/u/42"],
            format!(
                "{named}{no_post}{no_v2}{no_user}route     /api (x.toml:38) answers\n{of_host}\
                 rules     deny 10.1.0.0/16, unix; rate 5/m burst 1 by header:x-key of the route\n\
                 respond   404 Not Found, with a body of 3 bytes\n"
            ),
        ),
        (
            &["http://example.org:8080/./old"],
            format!(
                "{named}route     / (x.toml:16) answers\n{of_host}answer    400 Bad Request: in its \
                 usual spelling the path belongs to another route\n"
            ),
        ),
        (
            &["http://example.org:8080/rooms/1"],
            format!(
                "{named}route     /rooms/{{room}} (x.toml:43) answers\n{of_host}\
                 channel   /rooms/1\n"
            ),
        ),
        (
            &["http://secure.test:8080/x"],
            format!(
                "{plain}host      secure.test (x.toml:46): it has the name secure.test\n\
                 answer    308 to https://secure.test:8443/x (https = \"always\")\n"
            ),
        ),
        (
            &["-H", "Host: secure.test", "https://127.0.0.1:8443/x"],
            "listener  https://:8443/\nhost      secure.test (x.toml:46): it has the name \
             secure.test\nroute     / (x.toml:49) answers\n\
             respond   444: the connection is closed, or the stream is reset\n"
                .to_owned(),
        ),
        (
            &["https://other.test/"],
            "listener  https://:8443/, as there is not an encrypted one at port 443\n\
             answer    421 Misdirected Request: no host has the name here\n"
                .to_owned(),
        ),
        (
            &["http://example.org:8080/ready"],
            format!("{plain}answer    whether the server is ready ([metrics])\n"),
        ),
        (
            &["http://example.org:5432/"],
            "listener  :5432, relayed to 127.0.0.1:5433\n\
             answer    none: no listener speaks HTTP there\n"
                .to_owned(),
        ),
    ] {
        assert_eq!(explained(folder.path(), arguments), expected, "{arguments:?}");
    }
}

#[test]
fn mistakes_are_those_of_check() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = TEXT.replace("root = \"www\"", "root = \"no\"");
    let output = ask(folder.path(), &wrong, &["http://a/"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.stdout.is_empty() && output.status.code() == Some(1), "{said}");
    let mut check = superpoll();
    check.current_dir(folder.path()).env("STATE_DIRECTORY", folder.path());
    let checked = check.args(["serve", "--check", "-c", "x.toml"]).output().unwrap();
    assert_eq!(said, String::from_utf8(checked.stderr).unwrap());
    assert!(said.starts_with("superpoll: x.toml:17:9: cannot read the folder no"), "{said}");
    for (arguments, what) in [
        (&["/x"][..], "no URL of HTTP, expected one as http://example.org/path?query"),
        (&["ftp://a/"], "no URL of HTTP"),
        (&["http://a/", "-H", "x"], "no field, expected one as \"Accept: text/html\""),
        (&["http://a/", "-X", "a b"], "invalid HTTP method"),
        (&[], "required arguments were not provided"),
    ] {
        let output = ask(folder.path(), TEXT, arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(what), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
