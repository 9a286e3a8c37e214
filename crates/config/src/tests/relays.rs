//! Relays: their ends, routes, encryption and checks.

use std::time::Duration;

use super::super::*;
use super::blamed;

fn parsed(text: &str) -> Config {
    Config::parse("x", text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_relay_has_an_end_or_ends_by_name() {
    let config = parsed(
        r#"
[[listeners]]
address = ":5432"
relay = { upstream = "db", idle = "1h", proxy_protocol = "v2" }
[[listeners]]
address = ":443"
[listeners.relay]
to = "10.0.0.1:443"
[[listeners.relay.routes]]
server_names = ["A.example", "*.b.example"]
upstream = "db"
[[listeners.relay.routes]]
server_names = ["c.example"]
to = "unix:c.sock"
[[listeners]]
address = ":5433"
tls = { certificate = "c.pem", key = "c.key", alpn = ["postgresql"] }
relay = { to = ":5434" }
[upstreams.db]
servers = [{ address = "a:1" }, { address = "b:1", weight = 2 }]
health = { kind = "connect", interval = "1s" }
tls = { ca = "ca.pem", server_name = "db.example", alpn = ["postgresql"] }
"#,
    );
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    let relays: Vec<&Relay> =
        config.listeners.iter().map(|one| one.relay.as_ref().unwrap()).collect();
    assert_eq!(relays[0].to, Some(RelayEnd::Upstream("db".to_owned())));
    assert_eq!(relays[0].idle, Some(Duration::from_secs(3600)));
    assert_eq!(relays[0].to_string(), "the upstream db");
    assert_eq!(relays[1].routes[0].server_names, ["a.example", "*.b.example"]);
    let unix = RelayEnd::Address("unix:c.sock".parse().unwrap());
    assert_eq!(relays[1].routes[1].to, unix);
    assert_eq!(relays[1].to_string(), "10.0.0.1:443 or by server name");
    assert_eq!(config.listeners[2].tls.as_ref().unwrap().alpn, ["postgresql"]);
    let db = &config.upstreams["db"];
    assert_eq!(db.health.as_ref().unwrap().kind, HealthKind::Connect);
    assert_eq!(db.tls.as_ref().unwrap().alpn, ["postgresql"]);
    // Without an end of its own it serves known names alone.
    let only = "listeners = [{ address = \":1\", relay = { routes = [{ server_names = [\"a\"], to = \":2\" }] } }]";
    let config = parsed(only);
    let relay = config.listeners[0].relay.as_ref().unwrap();
    assert_eq!((&relay.to, relay.to_string().as_str()), (&None, "an end by server name"));
}

#[test]
fn names_for_certificates_are_those_of_the_relay_alone() {
    let config = parsed(
        r#"
[[listeners]]
address = ":443"
tls = { acme = "a@example.org", challenge = "http-01" }
[listeners.relay]
to = ":2"
names = ["DB.example.org"]
routes = [{ server_names = ["a.example.org"], to = ":3" }]
[[listeners]]
address = ":80"
[[hosts]]
names = ["www.example.org"]
routes = [{ files.root = "/" }]
"#,
    );
    let names = |index: usize| {
        let hosts = config.listeners[index].certified(&config.hosts);
        hosts.iter().flat_map(|host| host.names.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(0), ["db.example.org", "a.example.org"]);
    assert_eq!(names(1), ["www.example.org"]);
}

#[test]
fn mistakes_are_named_with_their_places() {
    let upstream = "[upstreams.db]\nservers = [{ address = \"a:1\" }]\n";
    let tls = "tls = { certificate = \"c\", key = \"k\" }\n";
    for (text, line, column, expected) in [
        (
            "relay = {}",
            3,
            9,
            "the relay has no other end, expected to = ADDRESS or upstream = NAME",
        ),
        ("relay = { to = \":2\", upstream = \"db\" }", 3, 33, "a second other end"),
        ("relay = { to = \":0\" }", 3, 16, "port 0 cannot be connected to"),
        ("relay = { upstream = \"dc\" }", 3, 22, "the upstream \"dc\" is not defined, expected db"),
        ("relay = { upstream = 1 }", 3, 22, "expected a string"),
        ("relay = { to = \":2\", idle = 5 }", 3, 29, "expected a duration as \"30s\""),
        ("relay = { to = \":2\", names = [\"a\"] }", 3, 30, "expected them only with tls"),
        ("relay = { route = [] }", 3, 11, "did you mean `routes`?"),
        ("relay = { routes = [{ to = \":2\" }] }", 3, 21, "the route has no names"),
        (
            "relay = { routes = [{ server_names = [\"a\"] }] }",
            3,
            21,
            "the route has no other end, expected to = ADDRESS or upstream = NAME",
        ),
        (
            "relay = { routes = [{ server_names = [\"a\", \"A\"], to = \":2\" }] }",
            3,
            44,
            "\"a\" is no server name: it repeats another",
        ),
        (
            "relay = { routes = [{ server_names = [\"10.0.0.1\"], to = \":2\" }] }",
            3,
            39,
            "clients ask for no address",
        ),
        (
            "relay = { routes = [{ server_names = [\"a.*\"], to = \":2\" }] }",
            3,
            39,
            "a wildcard stands at the start only",
        ),
        (
            "relay = { routes = [{ server_names = [\"a:443\"], to = \":2\" }] }",
            3,
            39,
            "it has a port",
        ),
        (
            "relay = { to = \":2\" }\ntls = { certificate = \"c\", key = \"k\", alpn = [\"\"] }",
            4,
            47,
            "\"\" is no protocol of ALPN, expected one as \"postgresql\"",
        ),
        (
            "relay = { to = \":2\", names = [\"a.example\"] }\ntls = { acme = \"\" }",
            4,
            16,
            "a relay without alpn cannot answer tls-alpn-01, expected challenge = \"http-01\" or alpn",
        ),
        (
            "relay = { to = \":2\" }\ntls = { acme = \"\", challenge = \"http-01\" }",
            4,
            16,
            "acme needs names of hosts",
        ),
    ] {
        let found = blamed(&format!("[[listeners]]\naddress = \":1\"\n{text}\n{upstream}"));
        let is_it = |(at_line, at, what): &(usize, usize, String)| {
            (*at_line, *at) == (line, column) && what.contains(expected)
        };
        assert!(found.iter().any(is_it), "{text}: {found:?}");
        assert_eq!(found.len(), 1, "{text}: {found:?}");
    }
    let host = "[[hosts]]\nroutes = [{ files.root = \"/\" }]\n";
    let alpn = tls.replace(" }", ", alpn = [\"h2\"] }");
    let found = blamed(&format!("[[listeners]]\naddress = \":1\"\n{alpn}{host}"));
    assert!(found[0].2.contains("expected alpn only with relay"), "{found:?}");
    let relay = "listeners = [{ address = \":1\", relay = { upstream = \"db\" } }]\n";
    for (text, expected) in [
        (
            "health = { kind = \"connect\", path = \"/up\" }",
            "expected path only with kind = \"http\"",
        ),
        ("health = { kind = \"ping\" }", "unknown variant `ping`, expected `http` or `connect`"),
        ("tls = { ca = \"c\", alpn = [1] }", "expected a string"),
    ] {
        let found = blamed(&format!("{relay}{upstream}{text}\n"));
        assert!(found.iter().any(|(.., what)| what.contains(expected)), "{text}: {found:?}");
    }
    // Several at once.
    let found = blamed("listeners = [{ address = \":1\", relay = { to = \":0\", idle = 1 } }]");
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn the_configurations_of_the_guide_are_right() {
    let guide = include_str!("../../../../docs/relay.md");
    let all = guide.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut count = 0;
    for text in all {
        let config = parsed(text);
        assert!(config.warnings.is_empty(), "{:?}", config.warnings);
        assert!(config.listeners.iter().all(|one| one.relay.is_some()), "{text}");
        count += 1;
    }
    assert_eq!(count, 4);
}
