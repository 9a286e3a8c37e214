//! Ids of requests, traces and `Via` on the way to a server and back.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use superpoll_gateway::{Config, Event};
use superpoll_rt::BackendKind;

use crate::gateway::{GIVEN, Gateway, LOG_PERIOD, MOST, config, wait, whole};
use crate::http2::certificate;
use crate::origin::{Client, Origin, Reply, Seen, get, refuses};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A configuration that follows requests.
fn following(server: &str, proxy: &str, tracing: &str) -> String {
    format!("{}\n[tracing]\n{tracing}\n", config(&[server], "", proxy))
}

fn is_new(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Sends a request with some fields by the lane, and by a handler on another connection.
fn both(proxy: &str, tracing: &str, fields: &str, answer: &'static str) -> [(Seen, Reply); 2] {
    ["", GIVEN].map(|lane| {
        let origin = Origin::start(move |line| {
            loop {
                line.request()?;
                line.send(answer)?;
            }
        });
        let text = following(&origin.address, &format!("{proxy}{lane}"), tracing);
        let gateway = Gateway::start(BackendKind::Epoll, &text);
        let mut client = Client::connect(&gateway.address);
        client.send(format!("GET /a HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"));
        let reply = client.reply();
        let passed: u64 =
            gateway.call(|_, server| server.engines().iter().map(|one| one.lane.get()).sum());
        assert_eq!(passed, u64::from(lane.is_empty()), "{proxy} {tracing} {fields}");
        let mut seen = origin.seen();
        assert_eq!(seen.len(), 1);
        (seen.remove(0), reply)
    })
}

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";

/// The lines of a head in no order, in lower case; new ids and parents have one form.
fn normal(head: &str) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for line in head.lines().skip(1) {
        let (name, value) = line.split_once(':').unwrap();
        let (name, value) = (name.to_ascii_lowercase(), value.trim());
        let value = match &*name {
            "date" => continue,
            "x-request-id" if is_new(value) => "NEW".to_owned(),
            "traceparent" if value.len() == PARENT.len() => {
                let is_known = value[3..35] == *TRACE;
                format!("{} {}", if is_known { TRACE } else { "NEW" }, &value[53..])
            }
            _ => value.to_owned(),
        };
        // The same line twice is another one.
        let mut line = format!("{name}: {value}");
        while !lines.insert(line.clone()) {
            line.push_str(" (again)");
        }
    }
    lines
}

#[test]
fn fields_of_clients_are_passed_on_as_they_are_by_default() {
    let fields = format!(
        "traceparent: {PARENT}\r\nTracestate: a=b, c=d\r\ntracestate: e=f\r\nX-Request-Id: mine\r\n\
         Via: 1.0 a (x), 1.1 gate\r\nbaggage: k=v\r\n"
    );
    for (seen, reply) in both("", "", &fields, ANSWER) {
        for (name, value) in [
            ("traceparent", PARENT),
            ("tracestate", "a=b, c=d|e=f"),
            ("x-request-id", "mine"),
            ("via", "1.0 a (x), 1.1 gate"),
            ("baggage", "k=v"),
        ] {
            assert_eq!(seen.field(name).as_deref(), Some(value), "{name}");
        }
        assert_eq!((reply.field("via"), reply.field("x-request-id")), (None, None));
    }
    // What is not valid is none of this server's business then.
    for (seen, _) in both("", "", "traceparent: x\r\ntracestate: y\r\n", ANSWER) {
        assert_eq!(seen.field("traceparent").as_deref(), Some("x"));
        assert_eq!(seen.field("tracestate").as_deref(), Some("y"));
    }
}

#[test]
fn both_ways_add_the_same_fields() {
    const SERVERS: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-Request-Id: the server's\r\n\
                           Via: 1.1 cache\r\nX-Own: 1\r\n\r\nabc";
    let all = format!(
        "X-Request-Id: mine\r\nx-request-id: mine\r\ntraceparent: {PARENT}\r\ntracestate: a=b\r\n\
         Via: 1.0 a\r\nX-Own: 2\r\n"
    );
    let invalid = "traceparent: 00-0\r\ntracestate: a=b\r\nX-Request-Id: a b\r\n".to_owned();
    let mine = "X-Request-Id: mine\r\n".to_owned();
    let everyone = "request_id = { trust = [\"0.0.0.0/0\"] }\ntrace = true\nvia = \"gate\"";
    let mut outcomes = BTreeSet::new();
    for tracing in [
        "request_id = true",
        "request_id = { respond = false }\nvia = \"gate\"",
        "trace = true",
        "via = \"gate\"",
        everyone,
    ] {
        for proxy in [
            "",
            ", trust_forwarded = true",
            ", request_headers = { set = { via = \"own\", x-request-id = \"own\" } }",
            ", request_headers = { remove = [\"via\", \"traceparent\"], add = { x-request-id = \"2\" } }",
        ] {
            for fields in [&String::new(), &all, &invalid, &mine] {
                let [lane, given] = both(proxy, tracing, fields, SERVERS);
                let context = format!("{tracing} {proxy} {fields}");
                assert_eq!(normal(&lane.0.head), normal(&given.0.head), "{context}");
                assert_eq!(normal(&lane.1.head), normal(&given.1.head), "{context}");
                outcomes.insert(format!("{:?}", (normal(&lane.0.head), normal(&lane.1.head))));
            }
        }
    }
    assert!(outcomes.len() > 30, "{} outcomes differ", outcomes.len());
}

/// The rules for fields of responses are the same by the lane, too.
#[test]
fn the_id_comes_behind_the_rules_for_responses() {
    const SERVERS: &str =
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-Request-Id: old\r\nVia: 1.1 a\r\n\r\nabc";
    for (rules, via) in [
        ("set = { x-request-id = \"fixed\", via = \"fixed\" }", Some("fixed")),
        ("remove = [\"x-request-id\", \"via\"]", None),
        ("add = { x-request-id = \"more\" }", Some("1.1 a|1.1 gate")),
    ] {
        for lane in ["", GIVEN] {
            let origin = Origin::start(|line| {
                loop {
                    line.request()?;
                    line.send(SERVERS)?;
                }
            });
            let text = following(&origin.address, lane, "request_id = true\nvia = \"gate\"");
            let text = text
                .replace("[[hosts.routes]]", &format!("headers = {{ {rules} }}\n[[hosts.routes]]"));
            let gateway = Gateway::start(BackendKind::Epoll, &text);
            let reply = get(&gateway.address, "/a");
            let id = reply.field("x-request-id").unwrap();
            assert!(is_new(&id), "{rules} {lane} {id}");
            assert_eq!(origin.seen()[0].field("x-request-id"), Some(id), "{rules} {lane}");
            assert_eq!(reply.field("via").as_deref(), via, "{rules} {lane}");
        }
    }
}

#[test]
fn a_server_gets_the_id_of_the_response_and_each_request_has_another() {
    for lane in ["", GIVEN] {
        for backend in MOST {
            let origin = Origin::named("x");
            let text = following(&origin.address, lane, "request_id = true\ntrace = true");
            let gateway = Gateway::start(backend, &text);
            let mut client = Client::connect(&gateway.address);
            let mut ids = BTreeSet::new();
            for number in 0..20 {
                // A client cannot choose it.
                client.send("GET /a HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\n\r\n");
                let id = client.reply().field("x-request-id").unwrap();
                let seen = origin.seen();
                assert_eq!(seen.len(), number + 1);
                assert_eq!(seen[number].field("x-request-id"), Some(id.clone()));
                assert!(seen[number].field("traceparent").unwrap().ends_with("-01"));
                assert!(is_new(&id) && ids.insert(id), "{ids:?}");
            }
        }
    }
}

#[test]
fn a_trace_goes_on_with_this_server_as_the_parent() {
    let fields = format!("traceparent: {PARENT}\r\ntracestate: a=b\r\n");
    for (seen, _) in both("", "trace = true", &fields, ANSWER) {
        let sent = seen.field("traceparent").unwrap();
        assert!(sent.starts_with(&format!("00-{TRACE}-")) && sent.ends_with("-01"), "{sent}");
        assert!(sent.len() == PARENT.len() && sent != PARENT, "{sent}");
        assert_eq!(seen.field("tracestate").as_deref(), Some("a=b"));
    }
    for fields in ["traceparent: 00-1\r\ntracestate: a=b\r\n", "tracestate: a=b\r\n"] {
        for (seen, _) in both("", "trace = true", fields, ANSWER) {
            let sent = seen.field("traceparent").unwrap();
            assert!(sent.len() == PARENT.len() && !sent.contains('|'), "{sent}");
            assert_eq!(seen.field("tracestate"), None);
        }
    }
}

/// The id of a failed request is in the response, and in the event about it.
#[test]
fn failures_tell_the_id_of_their_request() {
    for lane in ["", GIVEN] {
        let (_socket, address) = refuses();
        let text = following(&address, lane, "request_id = true\ntrace = true\nvia = \"gate\"");
        let gateway = Gateway::start(BackendKind::Epoll, &text);
        let mut client = Client::connect(&gateway.address);
        client.send(format!("GET /a HTTP/1.1\r\nHost: a\r\ntraceparent: {PARENT}\r\n\r\n"));
        let reply = client.reply();
        assert_eq!((reply.status, reply.field("via")), (502, None), "no server has answered");
        let id = reply.field("x-request-id").unwrap();
        let failed = gateway.events_of("upstream-failed");
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert_eq!(field(&failed[0], "request_id").as_deref(), Some(&*id));
        assert_eq!(field(&failed[0], "trace_id").as_deref(), Some(TRACE));
        let text = failed[0].to_string();
        assert!(text.ends_with(&format!("the client gets 502 (request {id})")), "{text}");
    }
    // A body that breaks off, and a group without a server.
    for lane in ["", GIVEN] {
        let origin = Origin::start(|line| {
            line.request()?;
            line.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")?;
            line.send([b'x'; 100_000])
        });
        let text = following(&origin.address, lane, "request_id = true");
        let gateway = Gateway::start(BackendKind::Epoll, &text);
        let mut client = Client::connect(&gateway.address);
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        let id = client.head().unwrap().field("x-request-id").unwrap();
        drop(client.reply_to("HEAD"));
        wait(|| !gateway.events_of("upstream-failed").is_empty());
        let failed = gateway.events_of("upstream-failed");
        assert_eq!(field(&failed[0], "request_id"), Some(id));
        assert_eq!(field(&failed[0], "trace_id"), None);
    }
}

fn field(event: &Event, name: &str) -> Option<String> {
    let found = event.fields().iter().find(|(key, _)| *key == name);
    found.and_then(|(_, value)| value.as_str()).map(str::to_owned)
}

/// The access log has the id that the response has, and that the server has got.
#[test]
fn the_access_log_has_the_id_that_counts() {
    for lane in ["", GIVEN] {
        for (trusts, sent, is_kept) in [
            (", trust_forwarded = true", "mine-1", true),
            (", trust_forwarded = true", "\"}\u{1b}[2J", false),
            ("", "mine-1", false),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("log");
            let origin = Origin::named("x");
            let tracing = "request_id = true\ntrace = true";
            let text = following(&origin.address, &format!("{trusts}{lane}"), tracing);
            let log = format!("[access_log]\npath = {path:?}\nformat = \"json\"\n");
            let gateway = Gateway::start(BackendKind::Epoll, &format!("{text}{log}"));
            let mut client = Client::connect(&gateway.address);
            client.send(format!(
                "GET /a HTTP/1.1\r\nHost: a\r\nX-Request-Id: {sent}\r\ntraceparent: {PARENT}\r\n\r\n"
            ));
            let reply = client.reply();
            let read = || std::fs::read_to_string(&path).unwrap_or_default();
            // A byte that no field may have is refused before the request is understood.
            let has_id = reply.status == 200;
            assert_eq!(has_id, !sent.contains('\u{1b}'));
            gateway.elapse(LOG_PERIOD);
            wait(|| read().ends_with('\n'));
            let line: serde_json::Value = serde_json::from_str(&read()).unwrap();
            if !has_id {
                assert_eq!((line.get("request_id"), line.get("trace_id")), (None, None));
                continue;
            }
            let id = reply.field("x-request-id").unwrap();
            assert_eq!(id == sent, is_kept, "{id}");
            assert_eq!(
                (&line["request_id"], &line["trace_id"]),
                (&id.clone().into(), &TRACE.into())
            );
            assert_eq!(origin.seen()[0].field("x-request-id"), Some(id));
        }
    }
}

/// Two gateways, each of which is the server of the other.
#[test]
fn a_loop_is_found_and_told() {
    for lane in ["", GIVEN] {
        // The first one does not know the address of the second one yet.
        let (_socket, nowhere) = refuses();
        let of = |server: &str, via: &str| {
            following(server, lane, &format!("via = {via:?}\nrequest_id = true"))
        };
        let first = Gateway::start(BackendKind::Epoll, &of(&nowhere, "gate"));
        let second = Gateway::start(BackendKind::Epoll, &of(&first.address, "gate.example"));
        let text = of(&second.address, "gate");
        first.call(move |runtime, server| {
            server.change(runtime, &Config::parse("test", &text).unwrap()).unwrap();
        });
        let reply = get(&first.address, "/a");
        assert_eq!(reply.status, 508, "{lane}");
        // The second gateway has passed the answer of the first one on.
        assert_eq!(reply.field("via").as_deref(), Some("1.1 gate.example|1.1 gate"));
        let told = first.events_of("request-loop");
        assert_eq!(told.len(), 1, "{told:?}");
        let text = told[0].to_string();
        assert!(text.contains("its Via names this server (gate); the client gets 508"), "{text}");
        assert_eq!(field(&told[0], "upstream").as_deref(), Some("app"));
        assert!(second.events_of("request-loop").is_empty());
        // Another server whose name begins like this one's is no loop.
        let origin = Origin::named("x");
        let gateway = Gateway::start(BackendKind::Epoll, &of(&origin.address, "gate"));
        let mut client = Client::connect(&gateway.address);
        client.send(
            "GET /a HTTP/1.1\r\nHost: a\r\nVia: 1.1 gate.example, 1.1 a-gate, 1.1 b (1.1 gate)\r\n\r\n",
        );
        assert_eq!(client.reply().status, 200);
        let seen = origin.seen()[0].field("via").unwrap();
        assert_eq!(seen, "1.1 gate.example, 1.1 a-gate, 1.1 b (1.1 gate)|1.1 gate");
    }
}

/// A request that is sent again is the same request.
#[test]
fn a_retry_has_the_same_id() {
    for lane in ["", GIVEN] {
        let asked: Arc<AtomicUsize> = Arc::default();
        let ids: Arc<Mutex<Vec<String>>> = Arc::default();
        let serve = || {
            let (asked, ids) = (asked.clone(), ids.clone());
            move |line: &mut crate::origin::ServerConnection| {
                let seen = line.head()?;
                ids.lock().unwrap().push(seen.field("x-request-id").unwrap());
                match asked.fetch_add(1, Ordering::SeqCst) {
                    // It closes the connection without an answer.
                    0 => Ok(()),
                    _ => line.answer("x"),
                }
            }
        };
        let servers = [Origin::start(serve()), Origin::start(serve())];
        let addresses = servers.each_ref().map(|server| &*server.address);
        let text = format!("{}\n[tracing]\nrequest_id = true\n", config(&addresses, "", lane));
        let gateway = Gateway::start(BackendKind::Epoll, &text);
        let reply = get(&gateway.address, "/a");
        let id = reply.field("x-request-id").unwrap();
        assert_eq!(*ids.lock().unwrap(), [id.clone(), id]);
    }
}

/// The response to a request of a protocol with a handshake.
#[test]
fn a_handshake_has_an_id() {
    let origin = Origin::start(|line| {
        line.request()?;
        line.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: own\r\n\r\n",
        )?;
        let mut byte = [0];
        std::io::Read::read_exact(&mut line.reader, &mut byte)?;
        line.send(byte)
    });
    let text = following(&origin.address, "", "request_id = true\nvia = \"gate\"");
    let gateway = Gateway::start(BackendKind::Epoll, &text);
    let mut client = Client::connect(&gateway.address);
    client.send("GET /a HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: own\r\n\r\n");
    let reply = client.head().unwrap();
    assert_eq!((reply.status, reply.field("via").as_deref()), (101, Some("1.1 gate")));
    let seen = &origin.seen()[0];
    assert_eq!(seen.field("x-request-id"), reply.field("x-request-id"));
    assert!(is_new(&seen.field("x-request-id").unwrap()));
    client.send("x");
    let mut byte = [0];
    std::io::Read::read_exact(&mut client.reader, &mut byte).unwrap();
    assert_eq!(byte, *b"x");
}

/// Unusual responses get the same fields, once.
#[test]
fn unusual_responses_have_the_fields_once() {
    const ANSWERS: [&str; 2] = [
        "HTTP/1.0 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nabc",
        "HTTP/1.1 200 OK\nContent-Length: 3\n\nabc",
    ];
    for (answer, via) in ANSWERS.into_iter().zip(["1.0 gate", "1.1 gate"]) {
        for lane in ["", GIVEN] {
            let origin = Origin::start(move |line| {
                line.request()?;
                line.send(answer)
            });
            let text = following(&origin.address, lane, "request_id = true\nvia = \"gate\"");
            let gateway = Gateway::start(BackendKind::Epoll, &text);
            let reply = get(&gateway.address, "/a");
            assert_eq!(reply.status, 200);
            assert_eq!(reply.field("via").as_deref(), Some(via), "{answer:?} {lane}");
            assert_eq!(reply.field("x-request-id"), origin.seen()[0].field("x-request-id"));
        }
    }
}

/// Clients of HTTP/1.0 and servers of HTTP/2 are named by their versions.
#[test]
fn via_tells_the_version_of_each_message() {
    let origin = Origin::named("x");
    let gateway =
        Gateway::start(BackendKind::Epoll, &following(&origin.address, "", "via = \"gate\""));
    let mut client = Client::connect(&gateway.address);
    client.send("GET /a HTTP/1.0\r\nHost: a\r\n\r\n");
    let reply = client.reply();
    assert_eq!(origin.seen()[0].field("via").as_deref(), Some("1.0 gate"));
    assert_eq!(reply.field("via").as_deref(), Some("1.1 gate"));
}

/// A server of HTTP/2 that is another gateway: the fields are the same there.
#[test]
fn servers_of_http_2_get_the_fields() {
    let origin = Origin::named("x");
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let at = folder.path().display();
    let tracing = "via = \"inner\"\nrequest_id = { trust = [\"127.0.0.1\"] }";
    let text = following(&origin.address, "", tracing).replace(
        "address = \"127.0.0.1:0\"\n",
        &format!("address = \"127.0.0.1:0\"\ntls = {{ certificate = \"{at}/cert.pem\", key = \"{at}/key.pem\" }}\n"),
    );
    let inner = Gateway::start(BackendKind::Epoll, &text);
    let servers = format!(
        "servers = [{{ address = \"{}\" }}]\nh2 = true\n\
         tls = {{ ca = \"{at}/cert.pem\", server_name = \"localhost\" }}",
        inner.address
    );
    for (tracing, via) in [
        ("", "2.0 inner"),
        ("trace = true\nrequest_id = true\nvia = \"outer\"", "1.1 outer|2.0 inner"),
    ] {
        let text = format!("{}\n[tracing]\n{tracing}\n", whole(&servers, "", ""));
        let outer = Gateway::start(BackendKind::Epoll, &text);
        let mut client = Client::connect(&outer.address);
        client.send(format!(
            "GET /a HTTP/1.1\r\nHost: a\r\ntraceparent: {PARENT}\r\ntracestate: a=b\r\n\r\n"
        ));
        let reply = client.reply();
        assert_eq!(reply.status, 200);
        let seen = origin.seen().pop().unwrap();
        assert_eq!(seen.field("via").as_deref(), Some(via));
        assert_eq!(seen.field("x-request-id"), reply.field("x-request-id"));
        assert_eq!(seen.field("tracestate").as_deref(), Some("a=b"));
        let parent = seen.field("traceparent").unwrap();
        assert_eq!(parent == PARENT, tracing.is_empty());
        assert_eq!(&parent[3..35], TRACE);
        let answered = if tracing.is_empty() { "1.1 inner" } else { "1.1 inner|2.0 outer" };
        assert_eq!(reply.field("via").as_deref(), Some(answered));
    }
}
