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
