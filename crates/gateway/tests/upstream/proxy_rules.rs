//! The rules of routes that are proxied, with requests that take the lane and others.

use superpoll_rt::BackendKind;

use crate::gateway::{Gateway, MOST, way, whole};
use crate::origin::{Client, Origin, Reply, get};

/// The hash of `secret`.
const HASH: &str = "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";
const JOE: &str = "Authorization: Basic am9lOnNlY3JldA==\r\n";

/// A server whose answers have many fields; `/404` and `/500` have these statuses.
fn origin() -> Origin {
    Origin::start(|line| {
        loop {
            let seen = line.request()?;
            let status = match seen.line().split(' ').nth(1) {
                Some("/404") => "404 Not Found",
                Some("/500") => "500 Internal Server Error",
                _ => "200 OK",
            };
            line.send(format!(
                "HTTP/1.1 {status}\r\nServer: theirs\r\nX-Powered-By: them\r\nx-powered-by: more\r\n\
                 ETag: \"a\"\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\ntheirs"
            ))?;
        }
    })
}

/// A gateway with these keys of the proxy and of the route, whose regular requests take the lane or
/// not.
fn gateway(
    backend: BackendKind,
    server: &str,
    (proxy, route): (&str, &str),
    lane: bool,
) -> Gateway {
    let upstream = format!("servers = [{{ address = \"{server}\" }}]");
    Gateway::start(backend, &whole(&upstream, &format!("{proxy}{}", way(lane)), route))
}

fn count(gateway: &Gateway) -> u64 {
    gateway.call(|_, server| server.engines().iter().map(|one| one.lane.get()).sum())
}

fn ask(client: &mut Client, method: &str, path: &str, fields: &str) -> Reply {
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"));
    client.reply_to(method).unwrap()
}

/// The fields of a head in no order, without the time.
fn fields(head: &str) -> Vec<String> {
    let mut fields: Vec<String> = head.lines().skip(1).map(str::to_lowercase).collect();
    fields.retain(|field| !field.starts_with("date: "));
    fields.sort_unstable();
    fields
}

#[test]
fn fields_of_both_messages_are_changed() {
    let proxy = ", request_headers = { set = { X-Forwarded-Proto = \"https\", x-own = [\"1\", \"2\"] }, \
                 add = { accept = \"b\" }, remove = [\"Cookie\", \"X-Forwarded-Host\"] }";
    let route = "headers = { set = { Server = \"ours\" }, add = { Link = \"</a>\" }, remove = [\"X-Powered-By\"] }";
    for backend in MOST {
        let mut told = Vec::new();
        for lane in [true, false] {
            let origin = origin();
            let gateway = gateway(backend, &origin.address, (proxy, route), lane);
            let mut client = Client::connect(&gateway.address);
            for path in ["/9", "/404"] {
                let sent = "Cookie: a=b\r\nAccept: a\r\nX-Own: 0\r\nX-Other: o\r\n";
                let reply = ask(&mut client, "GET", path, sent);
                told.push(fields(&reply.head));
                let expected = [
                    "content-length: 6",
                    "content-type: text/plain",
                    "etag: \"a\"",
                    "link: </a>",
                    "server: ours",
                ];
                assert_eq!(fields(&reply.head), expected, "{backend:?} {lane}");
                assert_eq!(reply.text(), "theirs");
                let seen = origin.seen().pop().unwrap();
                let expected = [
                    "accept: a",
                    "accept: b",
                    "host: a.example",
                    "x-forwarded-for: 127.0.0.1",
                    "x-forwarded-proto: https",
                    "x-other: o",
                    "x-own: 1",
                    "x-own: 2",
                ];
                assert_eq!(fields(&seen.head), expected, "{backend:?} {lane}");
            }
            // A server's own answer has the fields as well.
            assert_eq!(ask(&mut client, "TRACE", "/9", "").status, 501);
            let own = ask(&mut client, "OPTIONS", "/9", "Max-Forwards: 0\r\n");
            assert_eq!(own.field("server").as_deref(), Some("ours"));
            assert_eq!(count(&gateway), if lane { 2 } else { 0 });
        }
    }
}

#[test]
fn errors_of_servers_keep_their_bodies_unless_they_are_to_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("5xx.html");
    std::fs::write(&page, "<p>sorry").unwrap();
    let route = format!("errors = {{ 404 = {page:?}, 5xx = {page:?} }}\nheaders.set.x = \"1\"");
    for backend in MOST {
        for (lane, replaces) in [(true, false), (false, false), (true, true), (false, true)] {
            let origin = origin();
            let proxy = format!(", replace_errors = {replaces}");
            let gateway = gateway(backend, &origin.address, (&proxy, &route), lane);
            let mut client = Client::connect(&gateway.address);
            for (path, status) in [("/404", 404), ("/500", 500), ("/9", 200)] {
                for method in ["GET", "HEAD"] {
                    let reply = ask(&mut client, method, path, "");
                    let is_page = replaces && status != 200;
                    let body = if is_page { "<p>sorry" } else { "theirs" };
                    let body = if method == "HEAD" { "" } else { body };
                    assert_eq!(
                        (reply.status, reply.text()),
                        (status, body),
                        "{lane} {replaces} {path}"
                    );
                    assert_eq!(reply.field("etag").is_some(), !is_page);
                    let kind = if is_page { "text/html; charset=utf-8" } else { "text/plain" };
                    assert_eq!(reply.field("content-type").as_deref(), Some(kind));
                    let length = if is_page { "8" } else { "6" };
                    assert_eq!(reply.field("content-length").as_deref(), Some(length));
                    assert_eq!(reply.field("x").as_deref(), Some("1"));
                }
            }
            assert_eq!(count(&gateway) > 0, lane);
        }
    }
}

/// Errors that the gateway finds itself have pages in any case.
#[test]
fn a_server_that_cannot_be_reached_gets_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("502.html");
    std::fs::write(&page, "<p>sorry").unwrap();
    let route = format!("errors.502 = {page:?}\nheaders.set.x = \"1\"");
    let broken = Origin::start(|line| {
        line.request()?;
        line.send("this is not HTTP\r\n\r\n")
    });
    let (_socket, refuses) = crate::origin::refuses();
    for backend in MOST {
        for lane in [true, false] {
            for server in [&refuses, &broken.address] {
                let gateway = gateway(backend, server, (", retries = 0", &route), lane);
                for method in ["GET", "POST", "HEAD"] {
                    let mut client = Client::connect(&gateway.address);
                    let reply = ask(&mut client, method, "/9", "");
                    let body = if method == "HEAD" { "" } else { "<p>sorry" };
                    assert_eq!(
                        (reply.status, reply.text()),
                        (502, body),
                        "{backend:?} {lane} {method}"
                    );
                    assert_eq!(reply.field("content-length").as_deref(), Some("8"));
                    assert_eq!(reply.field("x").as_deref(), Some("1"));
                }
            }
        }
    }
}

#[test]
fn no_request_without_a_password_reaches_a_server() {
    let users = format!("basic_auth.users = {{ joe = \"{HASH}\" }}\nbody_bytes = 10");
    for backend in MOST {
        for lane in [true, false] {
            let origin = origin();
            let gateway = gateway(backend, &origin.address, ("", &users), lane);
            let mut seen = 0;
            for round in 0..3 {
                let mut client = Client::connect(&gateway.address);
                for (fields, status) in [
                    ("", 401),
                    (JOE, 200),
                    ("", 401),
                    ("Authorization: Basic am9lOng=\r\n", 401),
                    (JOE, 200),
                    ("Connection: keep-alive\r\n", 401),
                    ("X_Own: irregular\r\n", 401),
                ] {
                    let reply = ask(&mut client, "GET", "/9", fields);
                    assert_eq!(reply.status, status, "{backend:?} {lane} {round} {fields}");
                    assert_eq!(reply.field("www-authenticate").is_some(), status == 401);
                    seen += usize::from(status == 200);
                    assert_eq!(origin.seen().len(), seen, "{backend:?} {lane} {round} {fields}");
                }
                let mut client = Client::connect(&gateway.address);
                let post = |length: usize| {
                    format!("{JOE}Content-Length: {length}\r\n\r\n{}", "x".repeat(length))
                };
                client.send(format!("POST /9 HTTP/1.1\r\nHost: a\r\n{}", post(10)));
                assert_eq!(client.reply().status, 200);
                seen += 1;
                client.send(format!("POST /9 HTTP/1.1\r\nHost: a\r\n{}", post(11)));
                assert_eq!(client.reply().status, 413);
                assert_eq!(origin.seen().len(), seen);
            }
            assert!(origin.seen().iter().all(|seen| seen.field("authorization").is_some()));
            assert_eq!(count(&gateway) > 0, lane, "{backend:?}");
        }
    }
}

#[test]
fn no_request_of_a_refused_address_reaches_a_server() {
    for backend in MOST {
        for lane in [true, false] {
            let origin = origin();
            for (route, status) in [
                ("deny = [\"127.0.0.0/8\"]", 403),
                ("allow = [\"10.0.0.0/8\"]", 403),
                ("allow = [\"127.0.0.1\"]", 200),
            ] {
                let gateway =
                    gateway(backend, &origin.address, (", trust_forwarded = true", route), lane);
                let mut client = Client::connect(&gateway.address);
                let before = origin.seen().len();
                for fields in ["", "X-Forwarded-For: 10.0.0.1\r\n", "TE: trailers\r\n"] {
                    assert_eq!(
                        ask(&mut client, "GET", "/9", fields).status,
                        status,
                        "{route} {lane}"
                    );
                }
                assert_eq!(origin.seen().len() - before, if status == 200 { 3 } else { 0 });
            }
        }
    }
}

#[test]
fn a_server_gets_the_rewritten_path() {
    for backend in MOST {
        for (path, rewrite, asked, expected) in [
            ("/", "/v2{path}", "/a/b?c=d", "/v2/a/b?c=d"),
            ("/api", "{below}", "/api/x%20y", "/x%20y"),
            ("/api", "{below}", "/api//evil.test/x", "/evil.test/x"),
            ("/blog/{slug}", "/posts?name={slug}{query}", "/blog/a&b?c=d", "/posts?name=a%26b&c=d"),
            ("/t/{*rest}", "/all/{rest}", "/t/a/b?c", "/all/a/b?c"),
            ("/t/{*rest}", "/all/{rest}", "/t/a/%2e%2e/%2e%2e/b", ""),
            ("/", "/in{path}", "/..%2fb", ""),
            ("/", "/in{path}", "/..;/b", ""),
        ] {
            let origin = Origin::named("x");
            let gateway = Gateway::start(
                backend,
                &format!(
                    "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\npath = \"{path}\"\n\
                     proxy.upstream = \"app\"\nrewrite = \"{rewrite}\"\n\
                     [upstreams.app]\nservers = [{{ address = \"{}\" }}]\n",
                    origin.address
                ),
            );
            // Several on a connection, since the first might take another way.
            let mut client = Client::connect(&gateway.address);
            for _ in 0..3 {
                let reply = ask(&mut client, "GET", asked, "");
                assert_eq!(reply.status, if expected.is_empty() { 400 } else { 200 }, "{asked}");
            }
            let seen = origin.seen();
            let lines = seen.iter().map(|seen| seen.line().split(' ').nth(1).unwrap());
            assert_eq!(count(&gateway), if expected.is_empty() { 0 } else { 3 });
            let expected = if expected.is_empty() { vec![] } else { vec![expected; 3] };
            assert_eq!(lines.collect::<Vec<_>>(), expected, "{backend:?} {rewrite} {asked}");
        }
    }
}

/// A target is routed by the bytes that its server gets, whatever is behind its path.
#[test]
fn an_odd_target_is_no_way_around_the_password_of_its_route() {
    for lane in [true, false] {
        let (origin, way) = (Origin::echo(), way(lane));
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n\
             [[hosts.routes]]\npath = \"/p\"\nproxy = {{ upstream = \"app\"{way} }}\n\
             [[hosts.routes]]\npath = \"/p/a|b\"\nproxy = {{ upstream = \"app\"{way} }}\n\
             basic_auth.users = {{ joe = \"{HASH}\" }}\n\
             [upstreams.app]\nservers = [{{ address = \"{}\" }}]\n",
            origin.address
        );
        let gateway = Gateway::start(MOST[0], &text);
        for target in ["/p/a|b/secret", "/p/a|b/secret?<", "/p/a|b?>", "/p/a|b/`"] {
            assert_eq!(get(&gateway.address, target).status, 401, "{lane} {target}");
        }
        assert_eq!(get(&gateway.address, "/p/a<b").status, 200);
        assert_eq!(origin.seen().len(), 1, "{lane}");
    }
}

/// Values with variables are made for each request, on its way to the server and back.
#[test]
fn values_have_variables() {
    let proxy = ", request_headers = { set = { x-real-ip = \"{client}\", \
                 x-seen = \"{method} {scheme}://{host}{uri} {path} {query}|{tls.cipher}\", \
                 x-none = \"{tls.version}\", x-json = '{\"a\": {}}' } }";
    let route = "rewrite = \"/new{path}\"\n\
                 headers = { set = { server = \"{host}\", x-at = \"{server_address}:{server_port}\" } }";
    for backend in MOST {
        for lane in [true, false] {
            let origin = Origin::echo();
            let gateway = gateway(backend, &origin.address, (proxy, route), lane);
            let mut client = Client::connect(&gateway.address);
            let sent = "X-Real-IP: 6.6.6.6\r\nX-Seen: a\r\nX-None: b\r\n";
            // The second one is given to the server as a map.
            for more in ["", "Max-Forwards: 3\r\n"] {
                let method = if more.is_empty() { "GET" } else { "OPTIONS" };
                let reply = ask(&mut client, method, "/a%20b?q=1", &format!("{sent}{more}"));
                assert_eq!(reply.status, 200);
                assert_eq!(reply.field("server").as_deref(), Some("a.example"));
                assert_eq!(reply.field("x-at").as_deref(), Some(&*gateway.address));
                let seen = origin.seen().pop().unwrap();
                assert!(seen.line().contains("/new/a%20b?q=1"), "{}", seen.line());
                assert_eq!(seen.field("x-real-ip").as_deref(), Some("127.0.0.1"));
                let expected = format!("{method} http://a.example/a%20b?q=1 /a%20b q=1|");
                assert_eq!(seen.field("x-seen"), Some(expected));
                assert_eq!(seen.field("x-none"), None);
                assert_eq!(seen.field("x-json").as_deref(), Some("{\"a\": {}}"));
            }
        }
    }
}

#[test]
fn places_on_a_server_are_those_of_its_clients() {
    let proxy = ", rewrite_location = { \"/\" = \"/app/\" }, rewrite_cookie_path = { \"/\" = \"/app/\" }, \
                 rewrite_cookie_domain = { \"app\" = \"a.example\" }";
    for lane in [true, false] {
        let origin = Origin::start(|line| {
            loop {
                line.request()?;
                line.send(
                    "HTTP/1.1 302 Found\r\nLocation: /login\r\nSet-Cookie: a=b; Path=/; Domain=app\r\n\
                     Set-Cookie: c=d\r\nContent-Length: 0\r\n\r\n",
                )?;
            }
        });
        let gateway = gateway(BackendKind::Epoll, &origin.address, (proxy, ""), lane);
        let reply = get(&gateway.address, "/");
        assert_eq!(reply.field("location").as_deref(), Some("/app/login"));
        let cookies = reply.head.to_lowercase();
        assert!(cookies.contains("set-cookie: a=b; path=/app/; domain=a.example"), "{cookies}");
        assert!(cookies.contains("set-cookie: c=d\r\n"), "{cookies}");
    }
}
