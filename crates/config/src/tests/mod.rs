//! Configurations, the values that are read from them, and their mistakes.

mod admin;
mod automatic;
mod broker;
mod example;
mod grip;
mod include;
mod logs;
mod matchers;
mod redirects;
mod relays;
mod respond;
mod rights;
mod rules;
mod tracing;
mod upstreams;
mod variables;

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use superpoll::backend::policy::{PolicyKind, Thresholds};

use super::*;

const WHOLE: &str = r#"
[[listeners]]
address = "127.0.0.1:8080"
[[listeners]]
address = "[::]:443"
tls = { certificate = "a.pem", key = "a.key" }
proxy_protocol = true
[[listeners]]
address = "/run/db.sock"
relay = { to = "10.0.0.1:5432" }

[[hosts]]
names = ["example.org", "*.Example.org"]
[[hosts.routes]]
files = { root = "/srv/www", index = ["a.html"], listing = true, max_age = "1h" }
[[hosts.routes]]
path = "/old"
redirect = { to = "/new", status = 301 }
[[hosts.routes]]
path = "/news"
channel = { slow = "drop-oldest", message_bytes = "1KiB", poll = "500ms" }
[[hosts.routes]]
path = "/api/"
proxy = { upstream = "app", strip_path = true }
[[hosts]]
[[hosts.routes]]
files = { root = "/srv/other" }

[upstreams.app]
servers = [{ address = "a:1", weight = 3 }, { address = "unix:b" }]
balance = "least-connections"
health = { path = "/up", interval = "1s" }

[timeouts]
idle = "1m 30s"
[limits]
header_bytes = "8KiB"
body_bytes = 1000
connections = 5
[access_log]
format = "json"
[metrics]
"#;

/// Returns the mistakes of a configuration with `text` in place of the part that it overrides.
fn blamed(text: &str) -> Vec<(usize, usize, String)> {
    match Config::parse("x", text) {
        Ok(_) => Vec::new(),
        Err(ConfigError::Wrong { mistakes, .. }) => mistakes
            .into_iter()
            .map(|mistake| (mistake.line, mistake.column, mistake.what))
            .collect(),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn keys_of_former_ways_are_warnings() {
    for lane in ["true", "false"] {
        for action in ["files = { root = \"/\"", "proxy = { upstream = \"app\""] {
            let text = format!(
                "listeners = [{{ address = \":1\" }}]\n\
                 hosts = [{{ routes = [{{ {action}, lane = {lane} }} }}] }}]\n\
                 [upstreams.app]\nservers = [{{ address = \":2\" }}]\n"
            );
            let warnings = Config::parse("x", &text).unwrap().warnings;
            assert!(
                warnings.iter().any(|warning| warning.to_string().contains("lane has no effect")),
                "{warnings:?}"
            );
        }
    }
}

#[test]
fn every_key_is_read() {
    let config = Config::parse("x", WHOLE).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.listeners.len(), 3);
    assert_eq!(config.listeners[1].tls.as_ref().unwrap().certificates[0].key, Path::new("a.key"));
    assert!(config.listeners[1].proxy_protocol && !config.listeners[0].proxy_protocol);
    assert_eq!(config.listeners[2].relay.as_ref().unwrap().to_string(), "10.0.0.1:5432");
    let host = &config.hosts[0];
    assert_eq!(host.names, ["example.org", "*.example.org"]);
    assert!(!host.default && config.hosts[1].default);
    let Action::Files(files) = &host.routes[0].action else { panic!("{host:?}") };
    assert!(files.listing && files.precompressed && !files.hidden);
    assert_eq!(files.max_age.unwrap().as_secs(), 3600);
    let redirect = Redirect { to: "/new".into(), status: 301 };
    assert_eq!(host.routes[1].action, Action::Redirect(redirect));
    let Action::Channel(channel) = &host.routes[2].action else { panic!("{host:?}") };
    assert_eq!((channel.slow, channel.message_bytes), (Slow::DropOldest, 1024));
    assert_eq!(channel.history, 100);
    let upstream = &config.upstreams["app"];
    assert_eq!(upstream.servers[0].weight.get(), 3);
    assert_eq!(upstream.servers[1].weight.get(), 1);
    assert_eq!(upstream.balance, Balance::LeastConnections);
    assert_eq!(upstream.health.as_ref().unwrap().timeout.as_secs(), 2);
    assert_eq!((config.timeouts.idle.as_secs(), config.timeouts.header.as_secs()), (90, 10));
    assert_eq!((config.limits.header_bytes, config.limits.body_bytes), (8192, 1000));
    assert_eq!(config.limits.connections.unwrap().get(), 5);
    let log = config.access_log.as_ref().unwrap();
    assert_eq!((log.format, log.path.as_path()), (LogFormat::Json, Path::new("stderr")));
    assert_eq!(config.metrics.as_ref().unwrap().path, "/metrics");
}

#[test]
fn hosts_and_routes_are_found() {
    let config = Config::parse("x", WHOLE).unwrap();
    let [named, other] = config.hosts.as_slice() else { panic!("{:?}", config.hosts) };
    for (name, host) in [
        ("example.org", named),
        ("EXAMPLE.org.:80", named),
        ("a.b.example.org:80", named),
        ("badexample.org", other),
        (".example.org", other),
        ("[::1]:80", other),
        ("", other),
    ] {
        assert_eq!(config.host(name), Some(host), "{name:?}");
    }
    for (path, route) in [
        ("/", "/"),
        ("/older", "/"),
        ("/old", "/old"),
        ("/old/x", "/old"),
        ("/api", "/"),
        ("/api/x", "/api/"),
    ] {
        assert_eq!(named.route(path).map(|route| route.path.as_str()), Some(route), "{path:?}");
    }
    assert_eq!(named.route("*"), None);
}

#[test]
fn the_built_in_configurations_serve() {
    let config = Config::demo();
    assert_eq!(config.listeners[0].address.to_string(), "127.0.0.1:8080");
    for name in ["localhost:8080", "a.localhost", "127.0.0.1:8080", "[::1]", "192.0.2.1", ""] {
        let host = config.host(name).unwrap_or_else(|| panic!("{name:?} is not served"));
        assert_eq!(host.route("/x").unwrap().action, Action::Demo);
    }
    assert_eq!(config.host("any"), None);
    let mut config = Config::folder("/srv");
    assert_eq!(config.host("nas.lan"), None);
    config.also_named("NAS.lan.").unwrap();
    assert!(config.also_named("nas.lan:80").unwrap_err().contains("it has a port"));
    let route = config.host("nas.lan").unwrap().route("/").unwrap();
    assert!(matches!(&route.action, Action::Files(files) if files.root == Path::new("/srv")));
}

/// A listener and a host in two lines, so that the next text begins in the third.
const SOUND: &str =
    "listeners = [{ address = \":1\" }]\nhosts = [{ routes = [{ files = { root = \"/\" } }] }]\n";

#[test]
fn each_mistake_has_its_place() {
    assert_eq!(blamed(SOUND), []);
    for (text, line, column, what) in [
        // Mistakes that TOML's parser finds.
        ("[limits", 3, 8, "unclosed table"),
        ("a = ", 3, 5, "string values must be quoted"),
        // Keys and types.
        (
            "nonsense = 1",
            3,
            1,
            "unknown key `nonsense`, expected one of `include`, `server`, `engine`, `listeners`",
        ),
        ("[limits]\nheader = 1", 4, 1, "unknown key `header`"),
        (
            "[babysitter]\nsitting = \"thread\"",
            3,
            2,
            "the key `babysitter` is called `keeper` now, and its key `sitting` is called `kind`",
        ),
        ("[keeper]\nsitting = \"thread\"", 4, 1, "the key `sitting` is called `kind` now"),
        ("access_log = 3", 3, 14, "invalid type: integer `3`, expected"),
        (
            "access_log = { format = \"xml\" }",
            3,
            25,
            "unknown variant `xml`, expected `combined` or `json`",
        ),
        ("[limits]\nconnections = 0", 4, 15, "expected a nonzero u32"),
        // Durations and sizes.
        ("[timeouts]\nidle = \"soon\"", 4, 8, "\"soon\" is no duration, expected one as \"30s\""),
        ("[timeouts]\nidle = \"0s\"", 4, 8, "is zero"),
        ("[timeouts]\nidle = \"99years\"", 4, 8, "longer than ten years"),
        ("[timeouts]\nidle = 30", 4, 8, "expected a duration as \"30s\""),
        (
            "[limits]\nbody_bytes = \"much\"",
            4,
            14,
            "\"much\" is no size, expected one as \"64KiB\"",
        ),
        ("[limits]\nbody_bytes = -1", 4, 14, "the size -1 is negative"),
        // Upstreams.
        ("[upstreams.a]", 3, 12, "the upstream \"a\" has no servers"),
        ("[upstreams.a]\nservers = [{ address = \"b\" }]", 4, 24, "\"b\" is no address"),
        ("[upstreams.a]\nservers = [{ address = \"b:0\" }]", 4, 24, "nothing connects to port 0"),
        ("[upstreams.a]\nservers = [{}]", 4, 12, "the server has no address"),
        (
            "[upstreams.a]\nservers = [{ address = \"b:1\" }, { address = \"b:1\" }]",
            4,
            45,
            "another server",
        ),
        (
            "[upstreams.a]\nservers = [{ address = \"b:1\" }]\nhealth = { path = \"up\" }",
            5,
            10,
            "no path of a URL",
        ),
        ("metrics = { path = \"metrics\" }", 3, 11, "no path of a URL"),
    ] {
        let found = blamed(&format!("{SOUND}{text}"));
        let [(at_line, at_column, said)] = found.as_slice() else { panic!("{text}: {found:?}") };
        assert!(said.contains(what) && !said.contains('\n'), "{text}: {said}");
        assert_eq!((*at_line, *at_column), (line, column), "{text}: {said}");
    }
}

#[test]
fn the_limit_of_unsent_bytes_is_one_that_the_kernel_takes() {
    let range = "expected 1KiB to 1GiB";
    for (action, value, what) in [
        ("channel", "0", range),
        ("channel", "\"1023B\"", "a socket cannot hold back 1023 bytes"),
        ("channel", "\"4GiB\"", range),
        ("channel", "true", "expected a size as \"64KiB\", or a number of bytes"),
        ("mercure", "\"1B\"", range),
    ] {
        let text = format!(
            "[[listeners]]\naddress = \":1\"\n[[hosts]]\n[[hosts.routes]]\n\
             path = \"/.well-known/mercure\"\n{action} = {{ unsent_bytes = {value} }}"
        );
        let found = blamed(&text);
        let [(6, 28, said)] = found.as_slice() else { panic!("{text}: {found:?}") };
        assert!(said.contains(what), "{text}: {said}");
    }
}

#[test]
fn listeners_hosts_and_routes_are_checked() {
    let host = "hosts = [{ routes = [{ files = { root = \"/\" } }] }]\n";
    let listener = "listeners = [{ address = \":1\" }]\n";
    for (before, text, line, column, what) in [
        ("", "", 1, 1, "no listener"),
        ("", listener, 1, 14, "nothing to serve"),
        (host, "listeners = [{}]", 2, 14, "the listener has no address"),
        (
            host,
            "listeners = [{ address = \":1\" }, { address = \":1\" }]",
            2,
            46,
            "another listener has the address :1",
        ),
        (
            host,
            "listeners = [{ address = \":1\", tls = { certificate = \"c\" } }]",
            2,
            38,
            "a certificate without a key",
        ),
        (
            host,
            "listeners = [{ address = \":1\", tls = { key = \"c\" } }]",
            2,
            38,
            "a key without a certificate",
        ),
        (host, "listeners = [{ address = \":1\", tls = {} }]", 2, 38, "tls without files"),
        (
            host,
            "[[listeners]]\naddress = \":1\"\n[[listeners.tls.certificates]]\ncertificate = \"c\"",
            4,
            1,
            "a certificate without a key",
        ),
        (
            host,
            "listeners = [{ address = \":1\", tls = { certificate = \"c\", key = \"k\", certificates = [{ certificate = \"c\", key = \"l\" }] } }]",
            2,
            38,
            "the certificate c is named twice",
        ),
        (
            host,
            "listeners = [{ address = \":1\", tls = { certificate = \"c\", key = \"k\", min_version = \"1.1\" } }]",
            2,
            84,
            "unknown variant `1.1`",
        ),
        (
            host,
            "listeners = [{ address = \":1\", tls = { certificate = \"c\", key = \"k\", client_certificates = \"optional\" } }]",
            2,
            92,
            "no authority vouches for",
        ),
        (
            listener,
            "[[hosts]]\nhttps = \"always\"\n[[hosts.routes]]\nfiles.root = \"/\"",
            3,
            9,
            "no listener of this host is encrypted",
        ),
        (
            listener,
            "[[hosts]]\nhsts = \"1d\"\n[[hosts.routes]]\nfiles.root = \"/\"",
            3,
            8,
            "expected https = \"always\"",
        ),
        (
            listener,
            "[[hosts]]\nlisteners = [\":2\"]\n[[hosts.routes]]\nfiles.root = \"/\"",
            3,
            14,
            "no listener of HTTP has the address :2, expected one of :1",
        ),
        (
            listener,
            "[[hosts]]\nlisteners = []\n[[hosts.routes]]\nfiles.root = \"/\"",
            3,
            13,
            "a host on no listener",
        ),
        (
            listener,
            "[[hosts]]\n[[hosts.routes]]\nredirect.to = \"https://{name}/\"",
            4,
            15,
            "{name} is no part of a request, expected {host}, {path} or {query}",
        ),
        ("", "listeners = [{ address = \":1\", relay = {} }]", 1, 40, "no other end"),
        (listener, "hosts = [{}]", 2, 10, "the host has no routes"),
        (listener, "[[hosts]]\nnames = [\"a\"]\n[[hosts.routes]]", 4, 1, "the route does nothing"),
        (
            listener,
            "[[hosts]]\n[[hosts.routes]]\nredirect = { to = \"/\" }\nfiles = { root = \"/\" }",
            5,
            9,
            "a second action",
        ),
        (listener, "[[hosts]]\n[[hosts.routes]]\nfiles = {}", 4, 9, "files without a folder"),
        (
            listener,
            "[[hosts]]\n[[hosts.routes]]\nfiles = { root = \"/\", index = [\"a/b\"] }",
            4,
            9,
            "no name of a file",
        ),
        (listener, "[[hosts]]\n[[hosts.routes]]\nredirect = {}", 4, 12, "to nowhere"),
        (listener, "[[hosts]]\n[[hosts.routes]]\nredirect = { to = \"\" }", 4, 19, "is no URL"),
        (
            listener,
            "[[hosts]]\n[[hosts.routes]]\nredirect = { to = \"/\", status = 200 }",
            4,
            33,
            "200 is no status",
        ),
        (
            listener,
            "[[hosts]]\n[[hosts.routes]]\nchannel = { origins = [\"elsewhere.example\"] }",
            4,
            23,
            "is no origin, expected",
        ),
        (
            listener,
            "[[hosts]]\n[[hosts.routes]]\nchannel = { publish_rate = \"20\" }",
            4,
            28,
            "\"20\" is no rate, expected one as \"20/s\", \"300/m\" or \"20/s burst 40\", of at most 1000000",
        ),
        (
            listener,
            "[[hosts]]\n[[hosts.routes]]\nchannel = { publish_rate = 20 }",
            4,
            28,
            "expected a rate as \"20/s\" or \"300/m\"",
        ),
        (listener, "[[hosts]]\n[[hosts.routes]]\nproxy = {}", 4, 9, "a proxy without an upstream"),
        (
            listener,
            "[[hosts]]\n[[hosts.routes]]\nproxy = { upstream = \"gone\" }",
            4,
            22,
            "the upstream \"gone\" is not defined, expected [upstreams.gone]",
        ),
        (
            listener,
            "[[hosts]]\n[[hosts.routes]]\npath = \"a\"\nfiles = { root = \"/\" }",
            4,
            8,
            "no path of a URL",
        ),
        (
            listener,
            "[[hosts]]\nroutes = [{ path = \"/a\", channel = {} }, { path = \"/a/\", channel = {} }]",
            3,
            51,
            "repeats that of another route",
        ),
        (
            listener,
            "[[hosts]]\nnames = [\"a\", \"A\"]\nroutes = [{ channel = {} }]",
            3,
            15,
            "the host name \"a\" repeats another",
        ),
        (
            listener,
            "[[hosts]]\nnames = [\"a*b\"]\nroutes = [{ channel = {} }]",
            3,
            10,
            "a wildcard stands at the start",
        ),
        (
            listener,
            "[[hosts]]\nnames = [\"a:80\"]\nroutes = [{ channel = {} }]",
            3,
            10,
            "it has a port",
        ),
        (
            listener,
            "[[hosts]]\nnames = [\"\"]\nroutes = [{ channel = {} }]",
            3,
            10,
            "expected letters",
        ),
        (
            listener,
            "[[hosts]]\nroutes = [{ channel = {} }]\n[[hosts]]\nroutes = [{ channel = {} }]",
            4,
            1,
            "a second default host, expected names, other listeners",
        ),
        (
            listener,
            "[[hosts]]\nlisteners = [\":1\"]\nroutes = [{ channel = {} }]\n\
             [[hosts]]\nnames = [\"a\"]\ndefault = true\nlisteners = [\":1\"]\nroutes = [{ channel = {} }]",
            7,
            11,
            "a second default host of :1, expected names, other listeners",
        ),
        (
            listener,
            "[[hosts]]\ndefault = false\nroutes = [{ channel = {} }]",
            3,
            11,
            "is the default host",
        ),
    ] {
        let found = blamed(&format!("{before}{text}"));
        let [(at_line, at_column, said)] = found.as_slice() else { panic!("{text}: {found:?}") };
        assert!(said.contains(what) && !said.contains('\n'), "{text}: {said}");
        assert_eq!((*at_line, *at_column), (line, column), "{text}: {said}");
    }
}

#[test]
fn all_mistakes_are_reported_once_and_in_order() {
    let text = r#"
[[listeners]]
address = "nowhere"
color = "red"
[[listeners]]
tls = 5
address = ":1"
[[hosts]]
names = ["a:1"]
[[hosts.routes]]
proxy = { upstream = "gone", retries = -1 }
[upstreams.app]
servers = [{ address = "x" }]
[timeouts]
idle = "é?"
drain = "x"
"#;
    let found = blamed(text);
    let places: Vec<_> = found.iter().map(|(line, column, _)| (*line, *column)).collect();
    let expected =
        [(3, 11), (4, 1), (6, 7), (9, 10), (11, 22), (11, 40), (13, 24), (15, 8), (16, 9)];
    assert_eq!(places, expected, "{found:#?}");
    let error = Config::parse("f.toml", text).unwrap_err().to_string();
    assert_eq!(error.lines().count(), expected.len());
    assert!(error.lines().all(|line| line.starts_with("f.toml:")));
}

#[test]
fn columns_count_characters() {
    let found = blamed(&format!("{SOUND}limits = {{ \"éé\" = 1, b = 2 }}"));
    assert_eq!((found[1].0, found[1].1), (3, 22), "{found:?}");
}

#[test]
fn unreachable_hosts_and_routes_are_reported() {
    let listener = "listeners = [{ address = \":1\" }]\n";
    let host = "hosts = [{ routes = [{ channel = {} }] }]\n";
    for (text, line, column, what) in [
        (
            format!(
                "listeners = [{{ address = \"0.0.0.0:80\" }}, {{ address = \"127.0.0.1:80\" }}]\n{host}"
            ),
            1,
            54,
            "127.0.0.1:80 cannot be listened on together with 0.0.0.0:80",
        ),
        (
            format!("listeners = [{{ address = \":1\", relay = {{ to = \":2\" }} }}]\n{host}"),
            2,
            10,
            "no listener serves the hosts",
        ),
        (
            format!(
                "{listener}hosts = [{{ routes = [{{ path = \"/metrics/\", channel = {{}} }}] }}]\n[metrics]\n"
            ),
            2,
            31,
            "\"/metrics/\" is that of the metrics",
        ),
        (
            format!(
                "{listener}hosts = [{{ routes = [{{ path = \"/_superpoll/x\", channel = {{}} }}] }}]\n"
            ),
            2,
            31,
            "is that of the live page, expected another, or page = false",
        ),
        (
            format!(
                "{listener}hosts = [{{ routes = [{{ path = \"/a/../b\", channel = {{}} }}] }}]\n"
            ),
            2,
            31,
            "is no path of a URL",
        ),
        (
            format!("{listener}{host}[server]\nbackend = \"fast\"\n"),
            4,
            11,
            "\"fast\" is no back-end, expected one of ",
        ),
        (
            format!("{listener}{host}[engine]\npolicy = \"busy\"\n"),
            4,
            10,
            "\"busy\" is no policy, expected \"adaptive\", \"idle-server\"",
        ),
        (
            format!("{listener}{host}[engine]\npolicy = \"hot_atr=0.5\"\n"),
            4,
            10,
            "is no policy, expected",
        ),
        (
            format!("{listener}{host}[engine]\npolicy = {{ hot_atr = 6.0 }}\n"),
            4,
            10,
            "setting hot_atr to 6: a ratio is a number from 0 to 1",
        ),
        (
            format!("{listener}{host}[engine]\npolicy = {{ hot_atr = 0.7 }}\n"),
            4,
            10,
            "hot_atr is at most cold_atr",
        ),
        (
            format!("{listener}{host}[engine]\npolicy = {{ warm = 0.7 }}\n"),
            4,
            12,
            "unknown key `warm`, expected one of `hot_atr`",
        ),
        (
            format!(
                "{listener}{host}[server]\nbackend = \"epoll\"\n[engine]\npolicy = \"idle-server\"\n"
            ),
            6,
            10,
            "the back-end epoll has no policy, expected backend = \"adaptive\"",
        ),
        (
            format!("{listener}{host}[engine]\ngather = \"2s\"\n"),
            4,
            10,
            "2s is too long, expected at most 1s",
        ),
        (format!("{listener}{host}[server]\nworkers = 0\n"), 4, 11, "expected 1 to 1024"),
        (format!("{listener}{host}[server]\nworkers = 1025\n"), 4, 11, "expected 1 to 1024"),
        (
            format!("listeners = [{{ address = \":1\", mode = \"0660\" }}]\n{host}"),
            1,
            39,
            "a TCP port has no permissions",
        ),
        (
            format!("listeners = [{{ address = \"/s\", mode = \"0999\" }}]\n{host}"),
            1,
            39,
            "\"0999\" are no permissions",
        ),
        (
            format!(
                "{listener}hosts = [{{ routes = [{{ files = {{ root = \"/\", gzip_level = 0 }} }}] }}]\n"
            ),
            2,
            32,
            "gzip has no level 0",
        ),
        (
            format!(
                "{listener}hosts = [{{ routes = [{{ files = {{ root = \"/\", brotli_level = 12 }} }}] }}]\n"
            ),
            2,
            32,
            "Brotli has no level 12",
        ),
        (
            format!(
                "{listener}hosts = [{{ routes = [{{ files = {{ root = \"/\", zstd_level = 0 }} }}] }}]\n"
            ),
            2,
            32,
            "Zstandard has no level 0",
        ),
    ] {
        let found = blamed(&text);
        let [(at_line, at_column, said)] = found.as_slice() else { panic!("{text}: {found:?}") };
        assert!(said.contains(what) && !said.contains('\n'), "{text}: {said}");
        assert_eq!((*at_line, *at_column), (line, column), "{text}: {said}");
    }
    let free = format!(
        "{listener}hosts = [{{ routes = [{{ path = \"/_superpoll\", channel = {{}} }}] }}]\nserver.page = false\n"
    );
    assert_eq!(blamed(&free), []);
}

#[test]
fn the_policy_has_a_name_or_thresholds() {
    let read = |policy: &str| {
        let text = format!(
            "[engine]\npolicy = {policy}\ngather = \"50us\"\n[[listeners]]\naddress = \":1\"\n\
             relay.to = \"127.0.0.1:2\"\n"
        );
        let engine = Config::parse("x", &text).unwrap().engine;
        assert_eq!(engine.gather, Duration::from_micros(50));
        engine.policy.unwrap()
    };
    for name in ["adaptive", "idle-server", "media-server"] {
        assert_eq!(read(&format!("{name:?}")).to_string(), name);
    }
    let thresholds = Thresholds::new(0.25, 0.6, 7).unwrap();
    assert_eq!(read("{ hot_atr = 0.25, hold = 7 }"), PolicyKind::Ratio(thresholds));
    assert_eq!(read("{}"), PolicyKind::Ratio(Thresholds::default()));
    assert_eq!(Config::default().engine, Engine { policy: None, gather: Duration::ZERO });
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,60}|([a-z]{1,3}|\\[|\\]|=|\"|'|\\{|\\}|,|\\.|\n| |[0-9]){0,60}") {
        let _ = Config::parse("x", &text);
    }

    #[test]
    fn no_change_to_a_valid_configuration_makes_it_panic(
        at in 0..WHOLE.len(),
        length in 0..40_usize,
        text in "[a-z0-9\\[\\]{}=\",.é\n ]{0,10}",
    ) {
        let end = (at + length).min(WHOLE.len());
        let changed = format!("{}{text}{}", &WHOLE[..at], &WHOLE[end..]);
        if let Err(ConfigError::Wrong { mistakes, .. }) = Config::parse("x", &changed) {
            prop_assert!(!mistakes.is_empty());
            let lines = changed.matches('\n').count() + 1;
            prop_assert!(mistakes.iter().all(|mistake| (1..=lines).contains(&mistake.line)));
            prop_assert!(mistakes.iter().all(|mistake| !mistake.what.contains('\n')));
        }
    }
}

#[test]
fn the_path_of_a_channel_has_no_braces_but_those_of_parameters() {
    for path in ["/{{a}}/{b}", "/a/{{b}}"] {
        let text = format!(
            "[[listeners]]\naddress = \":1\"\n[[hosts]]\n[[hosts.routes]]\n\
             path = {path:?}\nchannel = {{}}"
        );
        let found = blamed(&text);
        let [(5, 8, said)] = found.as_slice() else { panic!("{text}: {found:?}") };
        assert!(said.contains("has a brace, as no channel's name has, expected"), "{said}");
    }
}
