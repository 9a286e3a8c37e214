//! Upstream servers and the routes that forward to them.

use super::super::*;

#[test]
fn upstreams_say_how_they_are_spoken_to() {
    let with = |upstream: &str, proxy: &str| {
        let text = format!(
            "[[listeners]]\naddress = \":1\"\n[[hosts]]\n[[hosts.routes]]\n\
             proxy = {{ upstream = \"a\" {proxy} }}\n[timeouts]\nresponse = \"7s\"\n\
             [upstreams.a]\nservers = [{{ address = \"b:1\" }}]\n{upstream}\n"
        );
        Config::parse("test", &text).map_err(|error| error.to_string())
    };
    let plain = with("", "").unwrap();
    let upstream = &plain.upstreams["a"];
    assert_eq!((upstream.proxy_protocol, upstream.h2, &upstream.tls), (None, false, &None));
    assert_eq!(plain.timeouts.response.as_secs(), 7);
    for (said, version) in [
        ("true", Some(ProxyVersion::V1)),
        ("false", None),
        ("\"v1\"", Some(ProxyVersion::V1)),
        ("\"v2\"", Some(ProxyVersion::V2)),
    ] {
        let config = with(&format!("proxy_protocol = {said}"), "").unwrap();
        assert_eq!(config.upstreams["a"].proxy_protocol, version);
    }
    let full = with(
        "h2 = true\ntls = { ca = \"ca.pem\", server_name = \"b.example\" }",
        ", host = \"c.example\", trust_forwarded = true, abort_on_close = false",
    );
    let full = full.unwrap();
    let upstream = &full.upstreams["a"];
    assert!(upstream.h2);
    assert_eq!(upstream.tls.as_ref().unwrap().server_name.as_deref(), Some("b.example"));
    let Action::Proxy(proxy) = &full.hosts[0].routes[0].action else { panic!("{full:?}") };
    assert_eq!((proxy.host.as_deref(), proxy.trust_forwarded), (Some("c.example"), true));
    assert!(!proxy.abort_on_close, "it is true by default");
    for (upstream, proxy, what) in [
        ("proxy_protocol = \"v3\"", "", "\"v3\" is no version of the PROXY protocol"),
        ("proxy_protocol = 3", "", "expected true, false, \"v1\" or \"v2\""),
        ("tls = {}", "", "tls without certificates that vouch for the servers, expected ca = FILE"),
        ("tls = { ca = \"a\", server_name = \"b/c\" }", "", "\"b/c\" is no name of a server"),
        ("", ", host = \"a b\"", "\"a b\" is no host"),
        ("", ", host = \"a@b\"", "\"a@b\" is no host"),
    ] {
        let error = with(upstream, proxy).unwrap_err();
        assert!(error.contains(what) && !error.contains('\n'), "{error}");
    }
}

fn upstream(servers: &str, rest: &str) -> Result<Config, String> {
    let text = format!(
        "[[listeners]]\naddress = \":1\"\n[[hosts]]\n[[hosts.routes]]\n\
         proxy = {{ upstream = \"a\" }}\n[upstreams.a]\nservers = [{servers}]\n{rest}\n"
    );
    Config::parse("test", &text).map_err(|error| error.to_string())
}

#[test]
fn names_of_servers_are_looked_up_as_configured() {
    let servers = "{ address = \"srv:_http._tcp.example.org\" }, { address = \"localhost:80\" }, \
                   { address = \"a.LocalHost.:80\" }, { address = \"[::1]:80\" }, { address = \"app:80\" }";
    let plain = upstream(servers, "").unwrap();
    let plain = &plain.upstreams["a"];
    let looked_up: Vec<_> =
        plain.servers.iter().map(|server| server.address.is_looked_up()).collect();
    assert_eq!(looked_up, [true, false, false, false, true]);
    assert_eq!(plain.servers[0].address.to_string(), "srv:_http._tcp.example.org");
    assert_eq!(plain.dns, Dns::default());
    let dns = "dns = { resolver = [\"10.0.0.2\", \"[fd00::53]:5353\"], family = \"both\", \
               min_ttl = \"2s\", max_ttl = \"1m\", hold = \"1h\", timeout = \"500ms\" }";
    let full = upstream(servers, dns).unwrap();
    let dns = &full.upstreams["a"].dns;
    let resolvers: Vec<_> = dns.resolver.iter().flatten().map(ToString::to_string).collect();
    assert_eq!(resolvers, ["10.0.0.2:53", "[fd00::53]:5353"]);
    assert_eq!((dns.family, dns.min_ttl.as_secs(), dns.max_ttl.as_secs()), (Family::Both, 2, 60));
    assert_eq!((dns.hold.as_secs(), dns.timeout.unwrap().as_millis()), (3600, 500));
    let one = upstream(servers, "dns = { resolver = \"10.0.0.2:54\" }").unwrap();
    assert_eq!(one.upstreams["a"].dns.resolver.as_ref().unwrap()[0].port(), 54);
}

#[test]
fn mistakes_of_names_are_refused() {
    let named = "{ address = \"app:80\" }";
    for (servers, rest, what) in [
        (named, "dns = { resolver = \"ns.example.org\" }", "is no server of DNS, expected one as"),
        (named, "dns = { resolver = \"10.0.0.2:0\" }", "is no server of DNS, expected one as"),
        (named, "dns = { resolver = [] }", "0 servers of DNS, expected 1 to 8"),
        (named, "dns = { resolver = 53 }", "expected a server of DNS as"),
        (named, "dns = { family = \"ipv5\" }", "unknown variant `ipv5`"),
        (named, "dns = { min_ttl = 5 }", "expected a duration as"),
        (named, "dns = { hold = \"5x\" }", "is no duration, expected one as"),
        (named, "dns = { ttl = \"5s\" }", "unknown key `ttl`"),
        (
            named,
            "dns = { min_ttl = \"1h\" }",
            "min_ttl is 1h and max_ttl 5m, expected min_ttl to be at most max_ttl",
        ),
        ("{ address = \"srv:\" }", "", "\"\" is no name of a service, expected one as"),
        ("{ address = \"srv:_http._tcp.a b\" }", "", "is no name of a service"),
        ("{ address = \"srv:_http._tcp.a:80\" }", "", "is no name of a service"),
        (
            "{ address = \"srv:a.example\" }, { address = \"srv:a.example\" }",
            "",
            "another server of this upstream has the address srv:a.example",
        ),
    ] {
        let error = upstream(servers, rest).unwrap_err();
        assert!(error.contains(what) && !error.contains('\n'), "{error}");
        assert!(error.starts_with("test:"), "{error}");
    }
    let warned = upstream("{ address = \"127.0.0.1:80\" }", "dns = { hold = \"5s\" }").unwrap();
    let warnings: Vec<_> = warned.warnings.iter().map(ToString::to_string).collect();
    assert!(
        warnings.iter().any(|warning| warning.contains("so dns has no effect")),
        "{warnings:?}"
    );
}
