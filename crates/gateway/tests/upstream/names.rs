//! Servers that are found by names, with a server of DNS whose answers change.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use superpoll_gateway::Config;
use superpoll_rt::BackendKind;

use crate::gateway::{Gateway, MOST, wait, whole};
use crate::nameserver::{FORMAT_ERROR, NameServer, Record, SERVER_FAILURE, a, aaaa, cname, srv};
use crate::origin::{Client, Origin, ServerConnection, get};

/// Servers at the same port of several addresses of this machine, each of which answers with the
/// last number of its address.
struct Machines {
    port: u16,
    origins: Vec<Origin>,
}

impl Machines {
    fn start(names: &[(u8, &'static str)]) -> Machines {
        let mut found = None;
        wait(|| {
            let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let port = probe.local_addr().unwrap().port();
            drop(probe);
            let start = |(last, name): &(u8, &'static str)| {
                Origin::try_on(&format!("127.9.0.{last}:{port}"), answers(name))
            };
            let origins: Result<_, _> = names.iter().map(start).collect();
            found = origins.ok().map(|origins| Machines { port, origins });
            found.is_some()
        });
        found.unwrap()
    }
}

/// A server that answers each request with a text.
fn answers(text: &'static str) -> impl Fn(&mut ServerConnection) -> io::Result<()> {
    move |line| loop {
        line.request()?;
        line.answer(text)?;
    }
}

/// Returns the servers that answer a number of requests.
fn answering(address: &str) -> BTreeSet<String> {
    (0..12).map(|_| get(address, "/").text().to_owned()).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// An upstream with a server, and a server of DNS that knows it.
fn upstream(address: &str, dns: &NameServer, rest: &str) -> String {
    let dns = format!(
        "dns = {{ resolver = \"{}\", min_ttl = \"10ms\", max_ttl = \"20ms\", timeout = \"10s\" {rest} }}",
        dns.address
    );
    format!("servers = [{{ address = \"{address}\" }}]\n{dns}")
}

fn zone_of(lasts: &[u8]) -> Vec<Record> {
    lasts.iter().map(|last| a("app.test", 30, [127, 9, 0, *last])).collect()
}

#[test]
fn all_addresses_of_a_name_are_servers_and_follow_its_changes() {
    for backend in MOST {
        let machines = Machines::start(&[(1, "one"), (2, "two"), (3, "three")]);
        let zone = Arc::new(Mutex::new(zone_of(&[1, 2])));
        let dns = NameServer::of_zone(zone.clone());
        let text = whole(&upstream(&format!("app.test:{}", machines.port), &dns, ""), "", "");
        let gateway = Gateway::start(backend, &text);
        // The first request waits until the name is known.
        assert_eq!(get(&gateway.address, "/").status, 200);
        assert_eq!(answering(&gateway.address), set(&["one", "two"]));
        // A client's connection outlives the change of the servers.
        let mut client = Client::connect(&gateway.address);
        assert_eq!(client.get("/").status, 200);
        *zone.lock().unwrap() = zone_of(&[2, 3]);
        wait(|| answering(&gateway.address) == set(&["two", "three"]));
        let one = machines.origins[0].connections();
        for _ in 0..10 {
            assert_eq!(client.get("/").status, 200);
        }
        assert_eq!(answering(&gateway.address), set(&["two", "three"]));
        assert_eq!(machines.origins[0].connections(), one);
        let told = gateway.told();
        let changed: Vec<_> = told.iter().filter(|event| event.0 == "upstream-changed").collect();
        assert_eq!(changed.len(), 2, "{told:?}");
        let what = format!("127.9.0.3:{0} came, and 127.9.0.1:{0} went", machines.port);
        assert!(changed[1].1.contains(&what), "{told:?}");
    }
}

#[test]
fn connections_to_a_server_that_is_gone_are_closed() {
    let machines = Machines::start(&[(1, "one"), (2, "two")]);
    let zone = Arc::new(Mutex::new(zone_of(&[1])));
    let dns = NameServer::of_zone(zone.clone());
    let text = whole(&upstream(&format!("app.test:{}", machines.port), &dns, ""), "", "");
    let gateway = Gateway::start(BackendKind::Epoll, &text);
    let mut client = Client::connect(&gateway.address);
    assert_eq!(client.get("/").text(), "one");
    let server = gateway.call(|_, server| server.upstreams()["app"].members()[0].clone());
    wait(|| server.idle.load(Ordering::SeqCst) == 1);
    *zone.lock().unwrap() = zone_of(&[2]);
    // No request has the connection while the server goes.
    let now = || gateway.call(|_, server| server.upstreams()["app"].members()[0].clone());
    wait(|| !Arc::ptr_eq(&now(), &server));
    assert_eq!(client.get("/").text(), "two");
    assert_eq!(server.idle.load(Ordering::SeqCst), 0);
}

#[test]
fn known_servers_stay_while_resolvers_fail_and_go_when_the_name_is_gone_for_long() {
    let machines = Machines::start(&[(1, "one")]);
    let port = machines.port;
    let state = Arc::new(AtomicU8::new(0));
    let now = state.clone();
    let dns = NameServer::start(move |asked| match now.load(Ordering::SeqCst) {
        0 => vec![asked.answer_of(&zone_of(&[1]))],
        1 => vec![asked.message(SERVER_FAILURE, 0, &[])],
        2 => vec![vec![0xff; 40], asked.message(SERVER_FAILURE, 0, &[])],
        _ => vec![asked.answer_of(&[])],
    });
    let name = format!("app.test:{port}");
    let text = whole(&upstream(&name, &dns, ", hold = \"100ms\""), "", "[metrics]\n");
    let gateway = Gateway::start(BackendKind::Epoll, &text);
    assert_eq!(get(&gateway.address, "/").text(), "one");
    for failing in [1, 2] {
        state.store(failing, Ordering::SeqCst);
        let before = dns.asked().len();
        wait(|| dns.asked().len() > before + 6);
        assert_eq!(get(&gateway.address, "/").text(), "one");
    }
    let told = gateway.told();
    let failed: Vec<_> = told.iter().filter(|event| event.0 == "upstream-lookup-failed").collect();
    assert_eq!(failed.len(), 1, "{told:?}");
    let what = "has answered ServerFailure; the known servers stay (1)";
    assert!(failed[0].1.ends_with(what), "{told:?}");
    // Another configuration of the upstream keeps what is known.
    let changed = text.replace("hold = \"100ms\"", "hold = \"200ms\"");
    let changed = Config::parse("test", &changed).unwrap();
    gateway.call(move |runtime, server| server.change(runtime, &changed)).unwrap();
    assert_eq!(get(&gateway.address, "/").text(), "one");
    let metrics = |name: &str| {
        let text = crate::metrics::metrics(&gateway);
        let found = text.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        found.unwrap_or_else(|| panic!("no {name}: {text}")).trim().parse::<f64>().unwrap()
    };
    let labels = format!("{{upstream=\"app\",name=\"app.test:{port}\"}}");
    wait(|| metrics(&format!("superpoll_upstream_lookup_failures_total{labels}")) >= 1.0);
    assert_eq!(metrics(&format!("superpoll_upstream_addresses{labels}")), 1.0);
    state.store(3, Ordering::SeqCst);
    wait(|| get(&gateway.address, "/").status == 503);
    state.store(0, Ordering::SeqCst);
    wait(|| get(&gateway.address, "/").status == 200);
    let told = gateway.told();
    assert!(told.iter().any(|event| event.0 == "upstream-lookup-works"), "{told:?}");
}

/// Returns a figure of the metrics.
fn figure(gateway: &Gateway, name: &str) -> f64 {
    let text = crate::metrics::metrics(gateway);
    let found = text.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
    found.unwrap_or_else(|| panic!("no {name}: {text}")).trim().parse().unwrap()
}

/// A family of addresses, or a target of a service, that cannot be looked up is a failure, though
/// there are other addresses.
#[test]
fn look_ups_that_fail_in_part_are_told_counted_and_repeated_more_rarely() {
    let machines = Machines::start(&[(1, "one"), (2, "two")]);
    let port = machines.port;
    for by_service in [false, true] {
        let broken = Arc::new(AtomicU8::new(1));
        let now = broken.clone();
        let dns = NameServer::start(move |asked| {
            let is_part = match by_service {
                true => asked.name == "s2.test",
                false => asked.kind == crate::nameserver::AAAA,
            };
            if is_part && now.load(Ordering::SeqCst) == 1 {
                return vec![asked.message(SERVER_FAILURE, 0, &[])];
            }
            let service =
                |last: u8| srv("_x._tcp.test", 30, [1, 1, port], &format!("s{last}.test"));
            let machine = |last: u8| a(&format!("s{last}.test"), 30, [127, 9, 0, last]);
            vec![asked.answer_of(&[
                a("app.test", 30, [127, 9, 0, 1]),
                service(1),
                service(2),
                machine(1),
                machine(2),
            ])]
        });
        let (name, family) = match by_service {
            true => ("srv:_x._tcp.test".to_owned(), ""),
            false => (format!("app.test:{port}"), ", family = \"both\""),
        };
        let upstream = upstream(&name, &dns, family).replace("\"20ms\"", "\"300ms\"");
        let gateway = Gateway::start(BackendKind::Epoll, &whole(&upstream, "", "[metrics]\n"));
        assert_eq!(answering(&gateway.address), set(&["one"]));
        let labels = format!("{{upstream=\"app\",name=\"{name}\"}}");
        let lookups = || figure(&gateway, &format!("superpoll_upstream_lookups_total{labels}"));
        let failures =
            || figure(&gateway, &format!("superpoll_upstream_lookup_failures_total{labels}"));
        wait(|| failures() >= 4.0);
        assert!(failures() <= lookups());
        let told = gateway.told();
        let failed: Vec<_> =
            told.iter().filter(|event| event.0 == "upstream-lookup-failed").collect();
        assert_eq!(failed.len(), 1, "{told:?}");
        assert!(
            failed[0].1.contains("ServerFailure; the known servers of that part stay"),
            "{told:?}"
        );
        broken.store(0, Ordering::SeqCst);
        wait(|| gateway.told().iter().any(|event| event.0 == "upstream-lookup-works"));
        if by_service {
            assert_eq!(answering(&gateway.address), set(&["one", "two"]));
        }
    }
}

#[test]
fn a_service_has_servers_by_priority_and_weight() {
    let machines = Machines::start(&[(1, "one"), (2, "two"), (3, "three")]);
    let port = machines.port;
    let service = move |last: u8, priority, weight| {
        srv("_http._tcp.test", 30, [priority, weight, port], &format!("s{last}.test"))
    };
    let machine = |last: u8| a(&format!("s{last}.test"), 30, [127, 9, 0, last]);
    let mut records = vec![machine(1), machine(2), machine(3)];
    records.extend([service(1, 10, 3), service(2, 10, 1), service(3, 20, 1)]);
    let zone = Arc::new(Mutex::new(records));
    let dns = NameServer::of_zone(zone.clone());
    let text = whole(&upstream("srv:_http._tcp.test", &dns, ""), "", "");
    let gateway = Gateway::start(BackendKind::Epoll, &text);
    let counts = |requests: usize| {
        let mut counts = [0; 3];
        for _ in 0..requests {
            let text = get(&gateway.address, "/").text().to_owned();
            counts[["one", "two", "three"].iter().position(|name| *name == text).unwrap()] += 1;
        }
        counts
    };
    assert_eq!(counts(20), [15, 5, 0]);
    // The servers of the next priority come when there is no other one.
    zone.lock().unwrap().retain(|record| record.1 == crate::nameserver::A || record.3[1] == 20);
    wait(|| counts(1) == [0, 0, 1]);
    assert_eq!(counts(10), [0, 0, 10]);
}

#[test]
fn the_next_priority_serves_while_the_first_one_is_down() {
    let machines = Machines::start(&[(3, "three")]);
    let (_closed, refuses) = crate::origin::refuses();
    let refuses: std::net::SocketAddr = refuses.parse().unwrap();
    let zone = vec![
        a("s1.test", 30, [127, 0, 0, 1]),
        a("s3.test", 30, [127, 9, 0, 3]),
        srv("_http._tcp.test", 30, [1, 1, refuses.port()], "s1.test"),
        srv("_http._tcp.test", 30, [2, 1, machines.port], "s3.test"),
    ];
    let dns = NameServer::of_zone(Arc::new(Mutex::new(zone)));
    let text = whole(&upstream("srv:_http._tcp.test", &dns, ""), "", "");
    let gateway = Gateway::start(BackendKind::Epoll, &text);
    for _ in 0..6 {
        assert_eq!(get(&gateway.address, "/").text(), "three");
    }
    assert_eq!(gateway.up(), [false, true]);
    let failures = gateway
        .call(|_, server| server.upstreams()["app"].members()[0].failures.load(Ordering::SeqCst));
    assert_eq!(failures, 3);
}

#[test]
fn checks_begin_and_end_with_the_servers_of_a_name() {
    let machines = Machines::start(&[(1, "one"), (2, "two")]);
    let zone = Arc::new(Mutex::new(zone_of(&[1])));
    let dns = NameServer::of_zone(zone.clone());
    let health = "\nhealth = { path = \"/health\", interval = \"10ms\", timeout = \"10s\" }";
    let name = format!("app.test:{}", machines.port);
    let text = whole(&format!("{}{health}", upstream(&name, &dns, "")), "", "");
    let gateway = Gateway::start(BackendKind::Epoll, &text);
    let checks = |number: usize| machines.origins[number].seen().len();
    wait(|| checks(0) > 2);
    assert_eq!(checks(1), 0);
    // Checks name the host by its name.
    let asked = machines.origins[0].seen()[0].field("host");
    assert_eq!(asked.as_deref(), Some(name.as_str()));
    *zone.lock().unwrap() = zone_of(&[2]);
    wait(|| checks(1) > 2);
    let list = gateway.call(|_, server| server.upstreams()["app"].members().len());
    assert_eq!(list, 1);
    // One check may have been under way.
    let ended = checks(0) + 1;
    let seen = checks(1);
    wait(|| checks(1) > seen + 10);
    assert!(checks(0) <= ended);
}

#[test]
fn answers_may_need_tcp_and_lead_through_aliases() {
    let machines = Machines::start(&[(1, "one")]);
    let dns = NameServer::start(|asked| {
        vec![match (asked.is_extended, asked.by_tcp) {
            (true, _) => asked.message(FORMAT_ERROR, 0, &[]),
            (false, false) => asked.truncated(),
            (false, true) => asked.answer(&[
                cname("app.test", 30, "one.test"),
                a("one.test", 30, [127, 9, 0, 1]),
                a("two.test", 30, [127, 9, 0, 2]),
            ]),
        }]
    });
    let text = whole(&upstream(&format!("app.test:{}", machines.port), &dns, ""), "", "");
    let gateway = Gateway::start(BackendKind::Adaptive, &text);
    assert_eq!(get(&gateway.address, "/").text(), "one");
    assert_eq!(gateway.up(), [true]);
}

#[test]
fn a_name_that_is_not_known_gets_503_and_no_request_waits_longer_than_for_a_connection() {
    let dns = NameServer::start(|_| Vec::new());
    let name = "app.test:80";
    let text = whole(&upstream(name, &dns, ""), "", "[timeouts]\nconnect = \"20ms\"\n");
    let gateway = Gateway::start(BackendKind::Epoll, &text);
    let reply = get(&gateway.address, "/");
    assert_eq!(reply.status, 503);
    assert!(reply.field("retry-after").is_some());
}

#[test]
fn both_families_are_servers_where_configured() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return eprintln!("skipped: this machine has no IPv6");
    }
    // Another program may have the same port of the other family.
    let mut found = None;
    wait(|| {
        let six = Origin::on("[::1]:0", answers("six"));
        let (_, port) = six.address.rsplit_once(':').unwrap();
        let port: u16 = port.parse().unwrap();
        let four = Origin::try_on(&format!("127.0.0.1:{port}"), answers("four"));
        found = four.ok().map(|four| (six, four, port));
        found.is_some()
    });
    let (six, four, port) = found.unwrap();
    let zone = vec![a("app.test", 30, [127, 0, 0, 1]), aaaa("app.test", 30, "::1")];
    let dns = NameServer::of_zone(Arc::new(Mutex::new(zone)));
    let name = format!("app.test:{port}");
    let of = |family: &str| {
        let text = whole(&upstream(&name, &dns, family), "", "");
        let gateway = Gateway::start(BackendKind::Epoll, &text);
        answering(&gateway.address)
    };
    assert_eq!(of(""), set(&["four"]));
    assert_eq!(of(", family = \"ipv6\""), set(&["six"]));
    assert_eq!(of(", family = \"both\""), set(&["four", "six"]));
    drop((six, four));
}
