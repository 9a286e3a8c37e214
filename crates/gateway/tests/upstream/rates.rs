//! The most requests of one client, with requests that take the lane and others.

use std::io::Write;

use superpoll_gateway::Config;
use superpoll_rt::BackendKind;

use crate::gateway::{Gateway, MOST, wait, way, whole};
use crate::origin::{Client, Origin, Reply};

fn text(server: &str, lane: bool, rest: &str) -> String {
    whole(&format!("servers = [{{ address = \"{server}\" }}]"), way(lane), rest)
}

fn ask(client: &mut Client, method: &str, path: &str, fields: &str) -> Reply {
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"));
    client.reply_to(method).unwrap()
}

fn lane_count(gateway: &Gateway) -> u64 {
    gateway.call(|_, server| server.engines().iter().map(|one| one.lane.get()).sum())
}

/// The number of requests, of this many, that are answered with 200; the others get 429.
fn admitted(gateway: &Gateway, path: &str, fields: &[&str], count: usize) -> usize {
    let mut admitted = 0;
    let mut client = Client::connect(&gateway.address);
    for number in 0..count {
        if number % 7 == 6 {
            client = Client::connect(&gateway.address);
        }
        let reply = ask(&mut client, "GET", path, fields[number % fields.len()]);
        let after = reply.field("retry-after").map(|after| after.parse::<u64>().unwrap());
        match reply.status {
            200 => admitted += 1,
            status => {
                assert_eq!(status, 429);
                assert!(after.is_some_and(|after| (1..=60).contains(&after)), "{after:?}");
            }
        }
    }
    admitted
}

#[test]
fn each_request_counts_once_either_way() {
    for backend in MOST {
        for lane in [true, false] {
            let origin = Origin::named("x");
            let rate = "rate = \"1/m burst 9\"";
            let gateway = Gateway::start(backend, &text(&origin.address, lane, rate));
            // The underscore makes a handler answer.
            let fields = ["", "X_Own: irregular\r\n", ""];
            assert_eq!(admitted(&gateway, "/", &fields, 30), 9, "{backend:?} {lane}");
            assert_eq!(origin.seen().len(), 9, "{backend:?} {lane}");
            assert_eq!(lane_count(&gateway) > 0, lane, "{backend:?}");
        }
    }
}

/// The lane looks at such a request several times.
#[test]
fn a_request_whose_body_comes_in_pieces_counts_once() {
    for lane in [true, false] {
        let origin = Origin::named("x");
        let rate = "rate = \"1/m burst 6\"";
        let gateway = Gateway::start(MOST[0], &text(&origin.address, lane, rate));
        for number in 0..8 {
            let mut client = Client::connect(&gateway.address);
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\n");
            for _ in 0..3 {
                std::thread::sleep(std::time::Duration::from_millis(5));
                // A refused request need not be read to its end.
                let _ = client.stream.write_all(b"0123456789");
            }
            assert_eq!(client.reply().status, if number < 6 { 200 } else { 429 }, "{lane}");
        }
    }
}

/// The lane hands a request over to a handler that no server can have.
#[test]
fn a_request_without_a_server_counts_once() {
    for lane in [true, false] {
        let (_socket, refuses) = crate::origin::refuses();
        let health = "health = { interval = \"10ms\", fall = 1 }";
        let upstream = format!("servers = [{{ address = \"{refuses}\" }}]\n{health}");
        let rate = "rate = \"1/m burst 4\"";
        let gateway = Gateway::start(MOST[0], &whole(&upstream, way(lane), rate));
        gateway.wait_for(&[false]);
        for number in 0..6 {
            let mut client = Client::connect(&gateway.address);
            let reply = ask(&mut client, "GET", "/", "");
            assert_eq!(reply.status, if number < 4 { 503 } else { 429 }, "{lane}");
        }
    }
}

#[test]
fn requests_count_by_a_field() {
    for lane in [true, false] {
        let origin = Origin::named("x");
        let rate = "rate = { limit = \"1/m burst 3\", by = \"header:X-Api-Key\" }";
        let gateway = Gateway::start(MOST[0], &text(&origin.address, lane, rate));
        for fields in ["X-Api-Key: a\r\n", "X-API-KEY: b\r\n", "", "x-api-key: c\r\n"] {
            assert_eq!(admitted(&gateway, "/", &[fields], 5), 3, "{lane} {fields}");
        }
        assert_eq!(origin.seen().len(), 12);
    }
}

/// A configuration of a host with a rate, and a route with one of its own.
fn two(server: &str, marker: u32) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\nnames = [\"b.example\"]\n\
         headers.set.x-marker = \"{marker}\"\n[[hosts.routes]]\nredirect.to = \"/x\"\n\
         [[hosts]]\nrate = \"1/m burst 8\"\n\
         [[hosts.routes]]\npath = \"/a\"\nproxy.upstream = \"app\"\nrate = \"1/m burst 5\"\n\
         [[hosts.routes]]\npath = \"/b\"\nproxy.upstream = \"app\"\n\
         [upstreams.app]\nservers = [{{ address = \"{server}\" }}]\n"
    )
}

#[test]
fn a_request_has_to_be_admitted_by_its_host_and_by_its_route() {
    for backend in MOST {
        let origin = Origin::named("x");
        let gateway = Gateway::start(backend, &two(&origin.address, 1));
        assert_eq!(admitted(&gateway, "/a", &[""], 7), 5);
        assert_eq!(admitted(&gateway, "/b", &[""], 7), 3);
        assert_eq!(admitted(&gateway, "/a", &[""], 2), 0);
        // So does a path without a route.
        let mut client = Client::connect(&gateway.address);
        assert_eq!(ask(&mut client, "GET", "/none", "").status, 429);
        assert_eq!(origin.seen().len(), 8);
    }
}

#[test]
fn a_configuration_with_the_same_rate_goes_on_counting() {
    let origin = Origin::named("x");
    let gateway = Gateway::start(BackendKind::Epoll, &two(&origin.address, 1));
    assert_eq!(admitted(&gateway, "/a", &[""], 7), 5);
    let next = Config::parse("next", &two(&origin.address, 2)).unwrap();
    gateway.call(move |runtime, server| server.change(runtime, &next).unwrap());
    wait(|| {
        let mut client = Client::connect(&gateway.address);
        client.send("GET / HTTP/1.1\r\nHost: b.example\r\n\r\n");
        client.reply().field("x-marker").as_deref() == Some("2")
    });
    assert_eq!(admitted(&gateway, "/a", &[""], 2), 0);
    assert_eq!(admitted(&gateway, "/b", &[""], 5), 3);
    // Another rate begins anew.
    let next = two(&origin.address, 3).replace("burst 5", "burst 6").replace("burst 8", "burst 9");
    let next = Config::parse("next", &next).unwrap();
    gateway.call(move |runtime, server| server.change(runtime, &next).unwrap());
    wait(|| admitted(&gateway, "/a", &[""], 1) == 1);
}
