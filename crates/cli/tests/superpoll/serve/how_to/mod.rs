//! Each configuration of `docs/how-to`, at work.
//!
//! A test takes the configuration from the page, puts its own addresses and folders in, checks it
//! with `--check`, starts the server and does what the page says, by curl and other programs.

mod grip;
mod page;
mod stub;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Command;

use page::{Page, curl, status};
use stub::{Stub, field};

use crate::serve::peers::nginx;
use crate::serve::php::php;
use crate::stage::{
    Running, Server, Site, accept, connect, free_port, has_ended, kill, run, tool, until,
};

/// Starts the server of a page by HTTPS for localhost, and returns it with the arguments of curl
/// for that.
fn secure(page: &mut Page, asked: &str, names: &str) -> (Server, Vec<String>) {
    page.put(asked, "tls = { internal = true, storage = \"state\" }");
    page.put(names, "names = [\"site.localhost\"]");
    let server = page.start(2);
    let root = page.path("state/internal/root.pem").display().to_string();
    // The listener of HTTP is the first.
    let resolve = format!("site.localhost:{}:127.0.0.1", server.at(1).port());
    let plain = format!("site.localhost:{}:127.0.0.1", server.at(0).port());
    let arguments = ["--cacert", &root, "--resolve", &resolve, "--resolve", &plain];
    (server, arguments.map(str::to_owned).into())
}

fn strs(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

#[test]
fn every_page_is_listed_and_has_a_test() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/how-to");
    let list = std::fs::read_to_string(format!("{folder}/README.md")).unwrap();
    let tests = [include_str!("mod.rs"), include_str!("grip.rs")].concat();
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if name == "README.md" {
            continue;
        }
        assert!(list.contains(&format!("]({name})")), "README.md lacks {name}");
        assert!(tests.contains(&format!("Page::read(\"{name}\")")), "{name} has no test");
        count += 1;
    }
    assert!(count >= 10, "{count}");
}

#[test]
fn a_site() {
    let Some(_) = tool("curl") else { return };
    let mut page = Page::read("site.md");
    page.write("www/index.html", "the index\n");
    page.write("www/assets/app-1f2e.js", "run();\n");
    page.put("/var/www/example.org", "www");
    page.put("/var/log/superpoll/", "");
    let asked = "tls = { acme = \"you@example.org\" }";
    let (server, arguments) = secure(&mut page, asked, "names = [\"example.org\"]");
    let (http, https) = (server.at(0).port(), server.at(1).port());
    let (head, _) = curl(&format!("http://site.localhost:{http}/x?y"), &strs(&arguments));
    assert_eq!(status(&head), 308);
    assert!(head.contains(&format!("location: https://site.localhost:{https}/x?y")), "{head}");
    let at = |path: &str| curl(&format!("https://site.localhost:{https}{path}"), &strs(&arguments));
    let (head, body) = at("/");
    assert_eq!((status(&head), &*body), (200, "the index\n"));
    // Browsers are not told to insist on HTTPS for names of this machine.
    assert!(!head.contains("strict-transport-security"), "{head}");
    assert!(head.contains("cache-control: max-age=600"), "{head}");
    let (head, body) = at("/assets/app-1f2e.js");
    assert_eq!((status(&head), &*body), (200, "run();\n"));
    assert!(head.contains("cache-control: max-age=31536000"), "{head}");
    server.finish();
    assert_eq!(std::fs::read_to_string(page.path("access.log")).unwrap().lines().count(), 3);
}

#[test]
fn a_single_page_application() {
    let Some(_) = tool("curl") else { return };
    let mut page = Page::read("single-page-application.md");
    let api = Stub::named("from the API");
    page.write("dist/index.html", "the page\n");
    page.write("dist/assets/app-2.js", "run();\n");
    page.put("/srv/app/dist", "dist");
    page.put("127.0.0.1:3000", &api.address.to_string());
    let server = page.start(1);
    for path in ["/", "/orders/42"] {
        let (head, body) = curl(&server.url(path), &[]);
        assert_eq!((status(&head), &*body), (200, "the page\n"), "{path}");
        assert!(head.contains("content-security-policy: default-src 'self'"), "{head}");
    }
    assert_eq!(curl(&server.url("/assets/app-2.js"), &[]).1, "run();\n");
    let (head, _) = curl(&server.url("/assets/old-1.js"), &[]);
    assert_eq!(status(&head), 404);
    assert!(head.contains("referrer-policy: same-origin"), "{head}");
    assert_eq!(curl(&server.url("/api/orders"), &[]).1, "from the API");
    server.finish();
}

#[test]
fn an_internal_tool() {
    let (Some(_), Some(openssl)) = (tool("curl"), tool("openssl")) else { return };
    let mut page = Page::read("internal-tool.md");
    let app = Stub::named("the tool");
    let hash = run(Command::new(openssl).args(["passwd", "-6", "secret"]));
    page.write("users.htpasswd", &format!("joe:{hash}"));
    page.write("403.html", "not from here\n");
    page.put("127.0.0.1:3000", &app.address.to_string());
    let server = page.start(1);
    let (head, _) = curl(&server.url("/"), &[]);
    assert_eq!(status(&head), 401);
    assert!(head.contains("www-authenticate: basic realm=\"tool\""), "{head}");
    assert_eq!(status(&curl(&server.url("/"), &["--user", "joe:wrong"]).0), 401);
    for _ in 0..2 {
        let (head, body) = curl(&server.url("/"), &["--user", "joe:secret"]);
        assert_eq!((status(&head), &*body), (200, "the tool"));
    }
    let (head, body) = curl(&server.url("/figures"), &["--user", "joe:secret"]);
    assert_eq!((status(&head), &*body), (403, "not from here\n"));
    server.finish();
}

#[test]
fn django() {
    let Some(_) = tool("curl") else { return };
    let mut page = Page::read("django.md");
    let app = Stub::echo();
    page.write("static/app.css", "p {}\n");
    page.put("/srv/app/static", "static");
    page.put("127.0.0.1:8000", &app.address.to_string());
    let server = page.start(1);
    let forged = ["-H", "X-Forwarded-Proto: https", "-H", "X-Forwarded-Host: other.example"];
    let (head, seen) = curl(&server.url("/polls/?page=2"), &forged);
    assert_eq!(status(&head), 200);
    assert!(seen.starts_with("GET /polls/?page=2 HTTP/1.1\n"), "{seen}");
    assert_eq!(field(&seen, "x-forwarded-proto"), Some("http"));
    assert_eq!(field(&seen, "x-forwarded-host"), Some(&*server.at(0).to_string()));
    assert_eq!(field(&seen, "x-forwarded-for"), Some("127.0.0.1"));
    let (head, body) = curl(&server.url("/static/app.css"), &[]);
    assert_eq!((status(&head), &*body), (200, "p {}\n"));
    server.finish();
}

#[test]
fn rails() {
    let Some(_) = tool("curl") else { return };
    let mut page = Page::read("rails.md");
    let app = Stub::named("from Rails");
    page.write("assets/application.css", "p {}\n");
    page.put("/srv/app/public/assets", "assets");
    page.put("127.0.0.1:3000", &app.address.to_string());
    let server = page.start(1);
    assert_eq!(curl(&server.url("/"), &[]).1, "from Rails");
    assert_eq!(curl(&server.url("/assets/application.css"), &[]).1, "p {}\n");
    let url = format!("ws://{}/cable", server.at(0));
    let (mut socket, _) = tungstenite::connect(url).unwrap();
    socket.send("ping".into()).unwrap();
    assert_eq!(socket.read().unwrap().into_text().unwrap(), "ping");
    drop(socket);
    server.finish();
}

#[test]
fn wordpress() {
    let Some(_) = tool("curl") else { return };
    let mut page = Page::read("wordpress.md");
    let Some((fpm, socket)) = php(&page.path(""), 2) else { return };
    let of = |name: &str| {
        format!("<?php echo '{name} ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['HTTPS'] ?? 'off';")
    };
    page.write("wordpress/index.php", &of("index"));
    page.write("wordpress/wp-login.php", &of("login"));
    page.write("wordpress/wp-admin/index.php", &of("admin"));
    page.write("wordpress/wp-includes/a.css", "p {}\n");
    page.write("wordpress/wp-content/uploads/evil.php", &of("evil"));
    page.put("/srv/wordpress", "wordpress");
    page.put("/run/php/php-fpm.sock", &socket.display().to_string());
    let asked = "tls = { acme = \"you@example.org\" }";
    let (server, arguments) = secure(&mut page, asked, "names = [\"blog.example.org\"]");
    let https = server.at(1).port();
    let at = |path: &str| curl(&format!("https://site.localhost:{https}{path}"), &strs(&arguments));
    assert_eq!(at("/hello-world/?p=1").1, "index /hello-world/?p=1 on");
    assert_eq!(at("/wp-admin/").1, "admin /wp-admin/ on");
    assert_eq!(status(&at("/wp-admin").0), 308);
    assert_eq!(at("/wp-includes/a.css").1, "p {}\n");
    assert_eq!(at("/wp-login.php").1, "login /wp-login.php on");
    let (head, body) = at("/wp-content/uploads/evil.php");
    assert!(body.starts_with("<?php"), "{body}");
    assert!(head.contains("content-security-policy: script-src 'none'; sandbox"), "{head}");
    server.finish();
    drop(fpm);
}

#[test]
fn nextcloud() {
    let Some(_) = tool("curl") else { return };
    let mut page = Page::read("nextcloud.md");
    let Some((fpm, socket)) = php(&page.path(""), 2) else { return };
    let of = |name: &str| {
        format!(
            "<?php echo '{name} ', $_SERVER['PATH_INFO'] ?? '', ' ', $_SERVER['HTTPS'] ?? '', ' ', \
             $_SERVER['front_controller_active'] ?? '', ' ', strlen(file_get_contents('php://input'));"
        )
    };
    for script in ["index", "remote", "ocs/v2", "console"] {
        page.write(&format!("nextcloud/{script}.php"), &of(script));
    }
    page.write("nextcloud/core/a.mjs", "run();\n");
    page.write("nextcloud/data/nextcloud.log", "secret\n");
    page.put("/srv/nextcloud", "nextcloud");
    page.put("/run/php/php-fpm.sock", &socket.display().to_string());
    let asked = "tls = { acme = \"you@example.org\" }";
    let (server, arguments) = secure(&mut page, asked, "names = [\"cloud.example.org\"]");
    let https = server.at(1).port();
    let at = |path: &str, more: &[&str]| {
        let arguments = [&strs(&arguments)[..], more].concat();
        curl(&format!("https://site.localhost:{https}{path}"), &arguments)
    };
    assert_eq!(at("/apps/files/?dir=/", &[]).1, "index  on true 0");
    let sent = at("/remote.php/dav/files/ada/a%20b.txt", &["-X", "PUT", "-d", "body"]);
    assert_eq!(sent.1, "remote /dav/files/ada/a b.txt on true 4");
    assert_eq!(at("/ocs/v2.php/apps", &[]).1, "ocs/v2 /apps on true 0");
    let (head, body) = at("/core/a.mjs", &[]);
    assert!(head.contains("content-type: text/javascript"), "{head}");
    assert!(head.contains("x-robots-tag: noindex, nofollow"), "{head}");
    assert_eq!(body, "run();\n");
    let (head, _) = at("/.well-known/carddav", &[]);
    assert!(head.contains("301") && head.contains("location: /remote.php/dav/"), "{head}");
    for path in ["/data/nextcloud.log", "/console.php", "/config/config.php", "/occ"] {
        assert_eq!(status(&at(path, &[]).0), 404, "{path}");
    }
    server.finish();
    drop(fpm);
}

#[test]
fn mastodon() {
    let Some(_) = tool("curl") else { return };
    let mut page = Page::read("mastodon.md");
    let (web, streaming) = (Stub::named("from Puma"), Stub::named("a stream"));
    page.write("public/robots.txt", "robots\n");
    page.write("public/500.html", "we are sorry\n");
    page.write("public/packs/a-1.js", "run();\n");
    page.write("public/assets/a.css", "p {}\n");
    page.write("public/sw.js", "worker();\n");
    page.write("public/system/a.txt", "an upload\n");
    page.put("/home/mastodon/live/public", "public");
    page.put("127.0.0.1:3000", &web.address.to_string());
    page.put("127.0.0.1:4000", &streaming.address.to_string());
    let asked = "tls = { acme = \"you@example.org\" }";
    let (server, arguments) = secure(&mut page, asked, "names = [\"social.example.org\"]");
    let https = server.at(1).port();
    let at = |path: &str| curl(&format!("https://site.localhost:{https}{path}"), &strs(&arguments));
    assert_eq!(at("/").1, "from Puma");
    assert_eq!(at("/@ada/1").1, "from Puma");
    assert_eq!(at("/robots.txt").1, "robots\n");
    let (head, body) = at("/packs/a-1.js");
    assert!(head.contains("cache-control: max-age=2419200"), "{head}");
    assert_eq!(body, "run();\n");
    assert_eq!(status(&at("/packs/none.js").0), 404);
    assert_eq!(at("/sw.js").1, "worker();\n");
    assert!(at("/system/a.txt").0.contains("content-security-policy: default-src 'none'"));
    assert_eq!(at("/api/v1/streaming/health").1, "a stream");
    drop(web);
    let (head, body) = at("/about");
    assert_eq!((status(&head), &*body), (502, "we are sorry\n"));
    server.finish_with(&["forwarding a request ", "the server "]);
}

/// The certificate of a page that names one in two files.
fn certificate(page: &mut Page, files: &str) {
    let asked = format!("tls = {{ {files} }}");
    page.put(&asked, "tls = { internal = true, storage = \"state\" }");
}

#[test]
fn synapse() {
    let Some(_) = tool("curl") else { return };
    let mut page = Page::read("synapse.md");
    let synapse = Stub::echo();
    page.put("127.0.0.1:8008", &synapse.address.to_string());
    page.put("address = \":8448\"", "address = \"127.0.0.1:0\"");
    certificate(&mut page, "certificate = \"/etc/ssl/matrix.pem\", key = \"/etc/ssl/matrix.key\"");
    page.put("names = [\"example.org\"]", "names = [\"well.localhost\"]");
    page.put("names = [\"matrix.example.org\"]", "names = [\"site.localhost\"]");
    let server = page.start(2);
    let root = page.path("state/internal/root.pem").display().to_string();
    for listener in [0, 1] {
        let port = server.at(listener).port();
        let resolves = ["site", "well"].map(|name| format!("{name}.localhost:{port}:127.0.0.1"));
        let arguments = ["--cacert", &root, "--resolve", &resolves[0], "--resolve", &resolves[1]];
        let at = |host: &str, path: &str| {
            curl(&format!("https://{host}.localhost:{port}{path}"), &arguments)
        };
        let (_, seen) = at("site", "/_matrix/client/v3/rooms/%21a%2Fb%3Aexample.org");
        assert!(
            seen.starts_with("GET /_matrix/client/v3/rooms/%21a%2Fb%3Aexample.org HTTP"),
            "{seen}"
        );
        assert_eq!(field(&seen, "x-forwarded-proto"), Some("https"));
        assert_eq!(status(&at("site", "/_synapse/admin/v1").0), 404);
        let (head, body) = at("well", "/.well-known/matrix/server");
        assert_eq!(body, "{\"m.server\": \"matrix.example.org:443\"}");
        assert!(head.contains("content-type: application/json"), "{head}");
        assert!(head.contains("access-control-allow-origin: *"), "{head}");
    }
    server.finish();
}

#[test]
fn jitsi() {
    let Some(_) = tool("curl") else { return };
    let mut page = Page::read("jitsi.md");
    let (prosody, bridge) = (Stub::echo(), Stub::named("the bridge"));
    page.write("jitsi/index.html", "the page\n");
    page.write("jitsi/libs/external_api.min.js", "api();\n");
    page.write("jitsi/static/a.html", "static\n");
    page.write("etc/meet.example.org-config.js", "config = {};\n");
    certificate(
        &mut page,
        "certificate = \"/etc/jitsi/meet/meet.example.org.crt\", key = \"/etc/jitsi/meet/meet.example.org.key\"",
    );
    page.put("/usr/share/jitsi-meet", "jitsi");
    page.put("root = \"/etc/jitsi/meet\"", "root = \"etc\"");
    page.put("127.0.0.1:5280", &prosody.address.to_string());
    page.put("127.0.0.1:9090", &bridge.address.to_string());
    page.put("names = [\"meet.example.org\"]", "names = [\"site.localhost\"]");
    let server = page.start(2);
    let root = page.path("state/internal/root.pem").display().to_string();
    let port = server.at(1).port();
    let resolve = format!("site.localhost:{port}:127.0.0.1");
    let arguments = ["--cacert", &root, "--resolve", &resolve];
    let at = |path: &str| curl(&format!("https://site.localhost:{port}{path}"), &arguments);
    assert_eq!(at("/MyRoom").1, "the page\n");
    assert_eq!(at("/config.js").1, "config = {};\n");
    let (head, body) = at("/external_api.js");
    assert!(head.contains("access-control-allow-origin: *"), "{head}");
    assert_eq!(body, "api();\n");
    assert_eq!(at("/static/a.html").1, "static\n");
    assert!(at("/http-bind?room=a").1.starts_with("GET /http-bind?room=a HTTP"));
    assert_eq!(at("/colibri-ws/default-id/1").1, "the bridge");
    server.finish();
}

#[test]
fn grafana() {
    let Some(_) = tool("curl") else { return };
    let mut page = Page::read("grafana.md");
    let app = Stub::echo();
    page.write("www/index.html", "the site\n");
    certificate(
        &mut page,
        "certificate = \"/etc/ssl/example.org.pem\", key = \"/etc/ssl/example.org.key\"",
    );
    page.put("/var/www/example.org", "www");
    page.put("127.0.0.1:3000", &app.address.to_string());
    page.put("names = [\"example.org\"]", "names = [\"site.localhost\"]");
    let server = page.start(1);
    let root = page.path("state/internal/root.pem").display().to_string();
    let port = server.at(0).port();
    let resolve = format!("site.localhost:{port}:127.0.0.1");
    let arguments = ["--cacert", &root, "--resolve", &resolve];
    let at = |path: &str| curl(&format!("https://site.localhost:{port}{path}"), &arguments);
    assert_eq!(at("/").1, "the site\n");
    let (_, seen) = at("/grafana/d/1?orgId=1");
    assert!(seen.starts_with("GET /grafana/d/1?orgId=1 HTTP"), "{seen}");
    assert_eq!(field(&seen, "host"), Some(&*format!("site.localhost:{port}")));
    server.finish();
}

#[test]
fn gitlab() {
    let Some(_) = tool("curl") else { return };
    let mut page = Page::read("gitlab.md");
    let app = Stub::echo();
    page.write("public/502.html", "it starts\n");
    page.write("public/500.html", "sorry\n");
    certificate(
        &mut page,
        "certificate = \"/etc/gitlab/ssl/git.example.org.crt\", key = \"/etc/gitlab/ssl/git.example.org.key\"",
    );
    page.put("/opt/gitlab/embedded/service/gitlab-rails/public", "public");
    page.put("unix:/var/opt/gitlab/gitlab-workhorse/sockets/socket", &app.address.to_string());
    page.put("names = [\"git.example.org\"]", "names = [\"site.localhost\"]");
    let server = page.start(2);
    let root = page.path("state/internal/root.pem").display().to_string();
    let port = server.at(1).port();
    let resolve = format!("site.localhost:{port}:127.0.0.1");
    let arguments = ["--cacert", &root, "--resolve", &resolve];
    let at = |path: &str| curl(&format!("https://site.localhost:{port}{path}"), &arguments);
    assert!(at("/users/sign_in").1.starts_with("GET /users/sign_in HTTP"));
    let push = at("/group/project/git-receive-pack").1;
    assert!(push.starts_with("GET /group/project/git-receive-pack HTTP"), "{push}");
    drop(app);
    let (head, body) = at("/");
    assert_eq!((status(&head), &*body), (502, "it starts\n"));
    server.finish_with(&["forwarding a request ", "the server "]);
}

#[test]
fn node() {
    let Some(_) = tool("curl") else { return };
    let mut page = Page::read("node.md");
    let (one, two) = (Stub::named("one"), Stub::named("two"));
    page.put("127.0.0.1:3001", &one.address.to_string());
    page.put("127.0.0.1:3002", &two.address.to_string());
    let server = page.start(1);
    let mut seen: Vec<String> = (0..6).map(|_| curl(&server.url("/"), &[]).1).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen, ["one", "two"]);
    let is_up = |stub: &Stub| {
        let line =
            format!("superpoll_upstream_up{{upstream=\"node\",server=\"{}\"}}", stub.address);
        let (_, metrics) = curl(&server.url("/metrics"), &[]);
        let found = metrics.lines().find_map(|all| all.strip_prefix(&line)).unwrap().trim();
        found == "1"
    };
    assert!(is_up(&one) && is_up(&two));
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // The process that ends is replaced by nothing.
    let Stub { address, .. } = two;
    drop(two);
    assert_ne!(gone, address);
    for _ in 0..6 {
        assert_eq!(curl(&server.url("/"), &[]).1, "one");
    }
    server.finish_with(&["forwarding a request ", "the server "]);
}

#[test]
fn a_chat_with_a_login() {
    let Some(_) = tool("curl") else { return };
    let mut page = Page::read("chat.md");
    let app = Stub::start(|head| match field(head, "cookie") {
        Some("session=joe") => (200, "{\"user\":\"joe\",\"publish\":true}".to_owned()),
        _ if head.starts_with("GET /may-chat ") => (403, "log in first".to_owned()),
        _ => (200, "a page".to_owned()),
    });
    page.put("127.0.0.1:3000", &app.address.to_string());
    let server = page.start(1);
    let room = server.url("/rooms/42");
    assert_eq!(status(&curl(&room, &["--data", "hello"]).0), 403);
    let joe = ["-b", "session=joe"];
    let (head, _) = curl(&room, &[&joe[..], &["--data", "hello"]].concat());
    assert_eq!(status(&head), 201);
    let poll = format!("{room}?after=0&wait=0");
    let (head, body) = curl(&poll, &joe);
    assert_eq!(status(&head), 200);
    assert!(body.contains("\"data\":\"hello\""), "{body}");
    assert_eq!(status(&curl(&poll, &[]).0), 403);
    let (head, body) = curl(&server.url("/"), &[]);
    assert_eq!((status(&head), &*body), (200, "a page"));
    assert_eq!(status(&curl(&server.url("/_superpoll/client.js"), &[]).0), 200);
    server.finish_with(&["refused 127.0.0.1, 403 "]);
}

#[test]
fn behind_a_proxy() {
    let (Some(_), Some(program)) = (tool("curl"), tool("nginx")) else { return };
    let mut page = Page::read("behind-a-proxy.md");
    page.put("127.0.0.1:8080", "127.0.0.1:0");
    let server = page.start(1);
    let port = free_port();
    let http = page.block("nginx");
    for line in ["listen 80;", "http://127.0.0.1:8080;"] {
        assert!(http.contains(line), "{line} is not in {http}");
    }
    let at = server.at(0);
    let http = http
        .replace("listen 80;", &format!("listen 127.0.0.1:{port};"))
        .replace("127.0.0.1:8080", &at.to_string());
    let site = Site::new();
    let _proxy = nginx(&program, &site, port, &http);
    let room = format!("http://127.0.0.1:{port}/rooms/42");
    let origin = format!("Origin: http://127.0.0.1:{port}");
    let (head, _) = curl(&room, &["-H", &origin, "--data", "hello"]);
    assert_eq!(status(&head), 201, "{head}");
    let (_, body) = curl(&format!("{room}?after=0"), &["-H", &origin]);
    assert!(body.contains("\"data\":\"hello\""), "{body}");

    // A WebSocket and a stream of events get a message as soon as it is published.
    let ask = |fields: &str| {
        let mut stream = connect(([127, 0, 0, 1], port).into());
        let head = format!("GET /rooms/42 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{origin}\r\n");
        stream.write_all(format!("{head}{fields}\r\n").as_bytes()).unwrap();
        stream
    };
    let until_read = |stream: &mut TcpStream, text: &str| {
        let (mut read, mut room) = (Vec::new(), [0; 1024]);
        while !String::from_utf8_lossy(&read).contains(text) {
            let count = stream.read(&mut room).unwrap();
            assert_ne!(count, 0, "{text}: {}", String::from_utf8_lossy(&read));
            read.extend_from_slice(&room[..count]);
        }
    };
    let mut socket =
        ask("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n");
    until_read(&mut socket, " 101 ");
    let mut events = ask("Accept: text/event-stream\r\n");
    until_read(&mut events, "retry: 2000");
    assert_eq!(status(&curl(&room, &["-H", &origin, "--data", "at once"]).0), 201);
    until_read(&mut socket, "at once");
    until_read(&mut events, "data: at once");

    // Without the Host of the client, the page is one of another site, and the answer says why.
    let (head, body) = curl(&server.url("/rooms/42"), &["-H", &origin, "--data", "no"]);
    assert_eq!(status(&head), 403);
    assert!(body.contains(&format!("arrived for the host \"{at}\"")), "{body}");
    assert!(body.contains(&format!("is of \"http://127.0.0.1:{port}\"")), "{body}");
    server.finish();
}

#[test]
fn a_dashboard() {
    let (Some(_), Some(_), Some(bash)) = (tool("curl"), tool("openssl"), tool("bash")) else {
        return;
    };
    let mut page = Page::read("dashboard.md");
    page.write("www/index.html", "<p>Load</p>\n");
    page.put("/srv/dashboard", "www");
    let shell = |script: &str, key: &str| {
        run(Command::new(&bash).args(["-euo", "pipefail", "-c", script]).env("JWT_KEY", key))
    };
    let commands = page.commands("export JWT_KEY=");
    let (make_key, rest) = commands.split_once('\n').unwrap();
    let key = shell(&format!("{make_key}; echo $JWT_KEY"), "").trim().to_owned();
    assert_eq!(key.len(), 64);
    page.set("JWT_KEY", key.as_str());
    let server = page.start(1);
    assert!(rest.contains("http://127.0.0.1:8080/"), "{rest}");
    let rest = rest.replace("http://127.0.0.1:8080/", &server.fronts[0]);
    let answer = shell(&rest.replace("curl ", "curl -s --noproxy '*' "), &key);
    assert!(answer.contains("\"id\":1,"), "{answer}");
    let figures = server.url("/figures");
    assert_eq!(status(&curl(&figures, &["--data", "1"]).0), 401);
    let (_, body) = curl(&format!("{figures}?after=0&wait=0"), &[]);
    assert!(body.contains("{\\\"load\\\": 0.7}"), "{body}");
    assert_eq!(curl(&server.url("/"), &[]).1, "<p>Load</p>\n");
    server.finish_with(&["refused 127.0.0.1, 401 "]);
}

#[test]
fn postgresql_and_redis() {
    let mut page = Page::read("postgres-redis.md");
    let database = TcpListener::bind("127.0.0.1:0").unwrap();
    // Outside the kernel's range: another program listens there later on.
    let redis = TcpListener::bind(("127.0.0.1", free_port())).unwrap();
    page.put("127.0.0.1:6432", "127.0.0.1:0");
    page.put("unix:/run/superpoll/redis.sock", "unix:redis.sock");
    page.put("db.internal:5432", &database.local_addr().unwrap().to_string());
    let cache = redis.local_addr().unwrap();
    page.put("cache.internal:6379", &cache.to_string());
    let server = page.start(2);
    let address = server.fronts[0].split(',').next().unwrap().to_owned();
    let mut client = connect(address.parse().unwrap());
    client.write_all(b"query").unwrap();
    let mut end = accept(&database);
    let mut bytes = [0; 5];
    end.read_exact(&mut bytes).unwrap();
    end.write_all(&bytes).unwrap();
    client.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"query");
    drop((client, end));
    let socket = page.path("redis.sock");
    let (Some(program), Some(cli)) = (tool("redis-server"), tool("redis-cli")) else {
        let mut client = UnixStream::connect(&socket).unwrap();
        client.write_all(b"PING\r\n").unwrap();
        let mut bytes = [0; 6];
        accept(&redis).read_exact(&mut bytes).unwrap();
        drop(client);
        return server.finish();
    };
    drop(redis);
    let port = cache.port().to_string();
    let mut redis = Command::new(program);
    redis.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    let redis = redis.current_dir(page.path(".")).stdout(std::process::Stdio::null());
    let _redis = Running(redis.spawn().unwrap());
    let answers = |way: [&str; 2]| {
        Command::new(&cli).args(way).arg("ping").output().unwrap().stdout == b"PONG\n"
    };
    // A process that another test was starting may have had the listener before a while longer.
    until("Redis answers", || answers(["-p", &port]));
    assert!(answers(["-s", socket.to_str().unwrap()]));
    server.finish();
}

#[test]
fn from_nginx() {
    let Some(_) = tool("curl") else { return };
    let mut page = Page::read("from-nginx.md");
    let app = Stub::echo();
    let made = rcgen::generate_simple_self_signed(vec!["site.localhost".to_owned()]).unwrap();
    page.write("cert.pem", &made.cert.pem());
    page.write("cert.key", &made.signing_key.serialize_pem());
    page.write("static/a.txt", "a\n");
    page.put("/etc/ssl/example.org.pem", "cert.pem");
    page.put("/etc/ssl/example.org.key", "cert.key");
    page.put("/var/www/static", "static");
    page.put("/var/log/superpoll/", "");
    page.put("\"example.org\", \"www.example.org\"", "\"site.localhost\"");
    for address in ["127.0.0.1:3001", "127.0.0.1:3002"] {
        // Both are one, which has another name.
        let local = format!("127.0.0.1:{}", app.address.port());
        let other = format!("localhost:{}", app.address.port());
        page.put(address, if address.ends_with('1') { &local } else { &other });
    }
    let server = page.start(2);
    let (http, https) = (server.at(0).port(), server.at(1).port());
    let root = page.path("cert.pem").display().to_string();
    let resolve = format!("site.localhost:{https}:127.0.0.1");
    let plain = format!("site.localhost:{http}:127.0.0.1");
    let arguments = ["--cacert", &root, "--resolve", &resolve, "--resolve", &plain];
    assert_eq!(status(&curl(&format!("http://site.localhost:{http}/"), &arguments).0), 308);
    let at = |path: &str| curl(&format!("https://site.localhost:{https}{path}"), &arguments);
    assert_eq!(at("/static/a.txt").1, "a\n");
    let (head, seen) = at("/api/users?x=1");
    assert_eq!(status(&head), 200);
    assert!(seen.starts_with("GET /users?x=1 HTTP/1.1\n"), "{seen}");
    assert_eq!(field(&seen, "x-forwarded-proto"), Some("https"));
    let unknown = curl(&format!("http://127.0.0.1:{http}/"), &["-H", "Host: other.example"]);
    assert_eq!(status(&unknown.0), 421);
    server.finish();
}

#[test]
fn from_haproxy() {
    let Some(_) = tool("curl") else { return };
    let mut page = Page::read("from-haproxy.md");
    let (one, two, api) = (Stub::named("one"), Stub::named("two"), Stub::echo());
    page.put("10.0.0.1:8080", &one.address.to_string());
    page.put("10.0.0.2:8080", &two.address.to_string());
    page.put("10.0.1.1:8080", &api.address.to_string());
    let server = page.start(1);
    // Each worker deals for itself, and both servers get requests in any case.
    let mut seen: Vec<String> = (0..12).map(|_| curl(&server.url("/"), &[]).1).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen, ["one", "two"]);
    assert!(curl(&server.url("/api/x"), &[]).1.starts_with("GET /api/x HTTP/1.1\n"));
    server.finish();
}

#[test]
fn from_caddy() {
    let Some(_) = tool("curl") else { return };
    let mut page = Page::read("from-caddy.md");
    let api = Stub::echo();
    page.write("site/index.html", "the site\n");
    page.put("/srv/site", "site");
    page.set("API_PORT", api.address.port().to_string());
    let asked = "tls = { acme = \"${ACME_MAIL:-you@example.org}\" }";
    let (server, arguments) = secure(&mut page, asked, "names = [\"example.org\"]");
    let https = server.at(1).port();
    let at = |path: &str| curl(&format!("https://site.localhost:{https}{path}"), &strs(&arguments));
    assert_eq!(at("/").1, "the site\n");
    assert!(at("/api/x").1.starts_with("GET /x HTTP/1.1\n"));
    let (head, _) = at("/old?a=b");
    assert_eq!(status(&head), 308);
    assert!(head.contains("location: /new?a=b"), "{head}");
    server.finish();
}

#[test]
fn kubernetes() {
    let Some(_) = tool("curl") else { return };
    let mut page = Page::read("kubernetes.md");
    let app = Stub::named("the app");
    page.set("APP_ADDRESS", app.address.to_string());
    let server = page.start(1);
    assert_eq!(status(&curl(&server.url("/readyz"), &[]).0), 200);
    assert_eq!(curl(&server.url("/"), &[]).1, "the app");
    // As a Prometheus on another machine does.
    let (head, body) = curl(&server.url("/metrics"), &["-H", "Host: superpoll.svc"]);
    assert_eq!(status(&head), 200);
    assert!(body.contains("superpoll_http_request_duration_seconds_bucket"), "{body}");
    server.signal("TERM");
    let (ended, errors) = server.ended();
    assert!(ended.success(), "{errors}");
    // Both logs are on standard error, an object a line.
    let lines: Vec<serde_json::Value> =
        errors.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["target"] == "/readyz" && line["status"] == 200));
    assert!(lines.iter().any(|line| line["event"].is_string()), "{errors}");
}

#[test]
fn deploys_without_a_lost_connection() {
    let Some(_) = tool("curl") else { return };
    let mut page = Page::read("zero-downtime.md");
    page.write("site/index.html", "the site\n");
    page.put("/srv/site", "site");
    page.put("/run/superpoll/keeper.sock", "keeper.sock");
    // The next server listens at the same address.
    page.put("127.0.0.1:0", &format!("127.0.0.1:{}", free_port()));
    let server = page.start(1);
    assert_eq!(curl(&server.url("/"), &[]).1, "the site\n");
    let url = format!("ws://{}/news", server.at(0));
    let (mut socket, _) = tungstenite::connect(url).unwrap();
    let news = server.url("/news");
    assert_eq!(status(&curl(&news, &["--data", "before"]).0), 201);
    assert_eq!(socket.read().unwrap().into_text().unwrap(), "before");
    server.signal("USR2");
    server.says("is to take over");
    let said = server.errors();
    let next = said.split("process ").nth(1).unwrap().split(' ').next().unwrap();
    let next: u32 = next.parse().unwrap();
    // The first process ends once the next one has taken over.
    until("the first server has ended", || has_ended(server.child().id()));
    assert_eq!(status(&curl(&news, &["--data", "after"]).0), 201);
    let after = loop {
        let message = socket.read().unwrap();
        if message.is_text() {
            break message.into_text().unwrap();
        }
    };
    assert_eq!(after, "after");
    kill(next, "TERM");
    // Both have the same standard error.
    let (ended, errors) = server.ended();
    assert!(ended.success(), "{errors}");
}
