//! Clients behind a trusted proxy.

use crate::gateway::{Gateway, MOST, way, whole};
use crate::origin::{Client, Origin, Reply};

const TRUSTED: &str = "[server]\ntrusted_proxies = [\"local\", \"10.0.0.0/8\"]\n";

fn origin() -> Origin {
    Origin::start(|line| {
        loop {
            line.request()?;
            line.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
        }
    })
}

fn gateway(backend: superpoll_rt::BackendKind, server: &str, route: &str, text: &str) -> Gateway {
    let upstream = format!("servers = [{{ address = \"{server}\" }}]");
    let (proxy, route) = route.split_once('|').unwrap();
    Gateway::start(backend, &format!("{text}{}", whole(&upstream, proxy, route)))
}

fn ask(client: &mut Client, fields: &str) -> Reply {
    client.send(format!("GET /9 HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"));
    client.reply_to("GET").unwrap()
}

fn lane(gateway: &Gateway) -> u64 {
    gateway.call(|_, server| server.engines().iter().map(|one| one.lane.get()).sum())
}

/// One connection carries the requests of many clients.
#[test]
fn rules_are_for_the_client_of_each_request() {
    for backend in MOST {
        for is_fast in [true, false] {
            let route = |rules: &str| format!("{}|{rules}", way(is_fast));
            let origin = origin();
            let rules = route("deny = [\"203.0.113.7\", \"127.0.0.0/8\"]");
            let gateway = gateway(backend, &origin.address, &rules, TRUSTED);
            let mut client = Client::connect(&gateway.address);
            for (fields, status) in [
                ("X-Forwarded-For: 203.0.113.6\r\n", 200),
                ("X-Forwarded-For: 203.0.113.7\r\n", 403),
                ("X-Forwarded-For: 203.0.113.7, 203.0.113.6\r\n", 200),
                ("X-Forwarded-For: 203.0.113.6, 203.0.113.7, 10.0.0.1\r\n", 403),
                ("X-Forwarded-For: 203.0.113.6\r\nX-Forwarded-For: 203.0.113.7\r\n", 403),
                ("Forwarded: for=\"203.0.113.6:1\"\r\n", 200),
                ("Forwarded: for=203.0.113.7\r\n", 403),
                ("Forwarded: for=203.0.113.6\r\nX-Forwarded-For: 203.0.113.7\r\n", 403),
                ("X-Forwarded-For: unknown\r\n", 403),
                ("", 403),
                ("X-Forwarded-For: 203.0.113.6\r\n", 200),
            ] {
                assert_eq!(ask(&mut client, fields).status, status, "{is_fast} {fields}");
            }
            let allowed = 4;
            assert_eq!(origin.seen().len(), allowed);
            assert_eq!(lane(&gateway) > 0, is_fast);
        }
    }
}

#[test]
fn rates_count_each_client_of_a_trusted_proxy() {
    for trusted in [true, false] {
        for is_fast in [true, false] {
            let origin = origin();
            let rules = format!("{}|rate = \"1/m\"", way(is_fast));
            let text = if trusted { TRUSTED } else { "" };
            let gateway = gateway(MOST[0], &origin.address, &rules, text);
            let mut client = Client::connect(&gateway.address);
            for (number, again) in [(1, false), (2, false), (1, true), (3, false), (2, true)] {
                // The client forges the part before.
                let fields =
                    format!("X-Forwarded-For: 198.51.100.{number}, 203.0.113.{number}\r\n");
                let is_refused = if trusted { again } else { number != 1 || again };
                let expected = if is_refused { 429 } else { 200 };
                assert_eq!(
                    ask(&mut client, &fields).status,
                    expected,
                    "{trusted} {is_fast} {number}"
                );
            }
        }
    }
}

/// A server is told all proxies, and the certificate or the protocol of none but this server.
#[test]
fn servers_are_told_the_way_through_a_trusted_proxy() {
    let sent = "X-Forwarded-For: 203.0.113.6\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: b.example\r\nClient-Cert: forged\r\n";
    for is_fast in [true, false] {
        for (text, expected) in [
            (
                TRUSTED,
                [
                    "x-forwarded-for: 203.0.113.6, 127.0.0.1",
                    "x-forwarded-host: b.example",
                    "x-forwarded-proto: https",
                ],
            ),
            (
                "",
                [
                    "x-forwarded-for: 127.0.0.1",
                    "x-forwarded-host: a.example",
                    "x-forwarded-proto: http",
                ],
            ),
        ] {
            let origin = origin();
            let gateway = gateway(MOST[0], &origin.address, &format!("{}|", way(is_fast)), text);
            let mut client = Client::connect(&gateway.address);
            for _ in 0..2 {
                assert_eq!(ask(&mut client, sent).status, 200);
                let head = origin.seen().pop().unwrap().head.to_lowercase();
                let mut fields: Vec<&str> = head
                    .lines()
                    .filter(|line| line.starts_with("x-") || line.starts_with("client-"))
                    .collect();
                fields.sort_unstable();
                assert_eq!(fields, expected, "{is_fast} {head}");
            }
            assert_eq!(lane(&gateway) > 0, is_fast);
        }
    }
}
