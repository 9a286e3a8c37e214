//! The requests of programs on this machine: they may see the live page and the metrics, and use
//! channels that are for them, unless the configuration opens these to all.
//!
//! These are for programs on this machine. That the socket's peer is here is not enough. A reverse
//! proxy or a tunnel on this machine connects from here for clients anywhere, and a browser here
//! asks for the page of any site whose name has been made to resolve to the loopback address (DNS
//! rebinding). So all of these conditions must hold:
//!
//! - the peer has a loopback address. A listener of the PROXY protocol has a proxy in front by
//!   definition, and one in the Unix domain nearly always; both are left out.
//! - the `Host` field, and the target where it has a host, name this machine: `localhost`, a name
//!   below it, or a loopback address. A page of another site has the name of that site there, which
//!   no script can change.
//! - no field is there that proxies add. Of HTTP/1.0 there are no such fields, and proxies speak it
//!   (nginx does by default) while browsers and Prometheus do not, so that its requests are left
//!   out.
//!
//! A relay on this machine that adds no field, such as a tunnel of ssh, cannot be told from a
//! program here; behind one, `page = false` is the way.

use http::Version;
use superpoll_config::Authority;

use crate::authority;
use crate::head::{Fields, Head};
use crate::peer::Peer;

/// Whether a request comes from a program on this machine, as far as can be told.
pub fn is_local<'a>(head: impl Into<Head<'a>>, peer: &Peer) -> bool {
    let head = head.into();
    is_direct(head, peer) && names_this_machine(head)
}

/// Whether a request comes from this machine and shows no trace of a proxy, whatever host it names.
pub fn is_direct<'a>(head: impl Into<Head<'a>>, peer: &Peer) -> bool {
    let head = head.into();
    is_here(peer) && head.version > Version::HTTP_10 && !is_forwarded(head.fields)
}

fn is_here(peer: &Peer) -> bool {
    let address = peer.client.map(|client| client.ip().to_canonical());
    !peer.is_proxied && address.is_some_and(|address| address.is_loopback())
}

/// Whether everything in the request that names a host names this machine.
fn names_this_machine(head: Head<'_>) -> bool {
    let is_own = |bytes: &[u8]| Authority::parse(bytes).is_some_and(|host| host.is_loopback());
    let Ok(field) = authority::field(head) else { return false };
    let target = head.authority.map(|target| is_own(target.as_bytes()));
    let field = field.map(is_own);
    (target.is_some() || field.is_some()) && target != Some(false) && field != Some(false)
}

/// Fields that proxies, tunnels and content delivery networks add. A name that ends with `*` stands
/// for all names that begin like it. Fields that programs on this machine send for their own
/// purposes, as for tracing (`traceparent`, `x-request-id`), are not included.
const ADDED: [&str; 43] = [
    "cdn-*",
    "cf-*",
    "client-ip",
    "cloudfront-*",
    "do-connecting-ip",
    "fastly-*",
    "fly-*",
    "forwarded",
    "forwarded-*",
    "front-end-https",
    "incap-client-ip",
    "ngrok-*",
    "proxy-*",
    "remote-*",
    "surrogate-capability",
    "tailscale-*",
    "true-client-ip",
    "via",
    "wl-proxy-client-ip",
    "x-amz-cf-id",
    "x-amzn-*",
    "x-appengine-*",
    "x-arr-*",
    "x-azure-*",
    "x-client-ip",
    "x-cloud-trace-context",
    "x-cluster-client-ip",
    "x-coming-from",
    "x-envoy-*",
    "x-fd-*",
    "x-forwarded*",
    "x-host",
    "x-nginx-*",
    "x-original-*",
    "x-originating-*",
    "x-proxy*",
    "x-real-*",
    "x-remote-*",
    "x-rewrite-url",
    "x-scheme",
    "x-true-client-ip",
    "x-url-scheme",
    "x-vercel-*",
];

/// Whether the fields show that a proxy has passed the request on.
fn is_forwarded(fields: Fields<'_>) -> bool {
    fields.has_name(|name| {
        ADDED.iter().any(|added| match added.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning.as_bytes()),
            None => name == added.as_bytes(),
        })
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use http::Request;

    use super::*;

    fn peer(client: Option<&str>) -> Peer {
        let client: Option<SocketAddr> = client.map(|client| client.parse().unwrap());
        Peer { client, local: None, is_encrypted: false, is_proxied: false, ..Peer::default() }
    }

    fn asked(uri: &str, fields: &[(&str, &str)]) -> Request<()> {
        let builder = Request::get(uri);
        let add = |builder: http::request::Builder, (name, value): &(&str, &str)| {
            builder.header(*name, *value)
        };
        fields.iter().fold(builder, add).body(()).unwrap()
    }

    #[test]
    fn a_program_on_this_machine_names_this_machine() {
        let here = peer(Some("127.0.0.1:9"));
        for (uri, fields, expected) in [
            ("/", &[("host", "localhost:8080")][..], true),
            ("/", &[("host", "127.0.0.1")], true),
            ("/", &[("host", "[::1]:1")], true),
            ("http://localhost/", &[("host", "localhost")], true),
            ("http://localhost/", &[], false),
            ("/", &[("host", "pub.test")], false),
            ("/", &[("host", "localhost.pub.test")], false),
            ("http://localhost/", &[("host", "pub.test")], false),
            ("http://pub.test/", &[("host", "localhost")], false),
            ("/", &[("host", "localhost"), ("host", "pub.test")], false),
            ("/", &[("host", "u@localhost")], false),
            ("/", &[("host", "localhost"), ("forwarded", "for=a")], false),
            ("/", &[("host", "localhost"), ("x-forwarded-for", "127.0.0.1")], false),
            ("/", &[("host", "localhost"), ("x-forwarded-proto", "https")], false),
            ("/", &[("host", "localhost"), ("x-real-ip", "127.0.0.1")], false),
            ("/", &[("host", "localhost"), ("via", "1.1 a")], false),
            ("/", &[("host", "localhost"), ("cf-connecting-ip", "1.1.1.1")], false),
            ("/", &[("host", "localhost"), ("x-request-id", "1")], true),
        ] {
            assert_eq!(is_local(&asked(uri, fields), &here), expected, "{uri} {fields:?}");
        }
        let mut old = asked("/", &[("host", "localhost")]);
        *old.version_mut() = Version::HTTP_10;
        assert!(!is_local(&old, &here));
    }

    #[test]
    fn any_trace_of_a_proxy_or_a_tunnel_closes_it() {
        let here = peer(Some("127.0.0.1:9"));
        for name in [
            "X-Cluster-Client-IP",
            "X-Envoy-External-Address",
            "X-Envoy-Internal",
            "X-Original-URL",
            "X-Original-Forwarded-For",
            "X-Original-Host",
            "True-Client-IP",
            "Fastly-Client-IP",
            "X-Client-IP",
            "X-ProxyUser-Ip",
            "Fly-Client-IP",
            "Fly-Request-Id",
            "X-Azure-ClientIP",
            "X-Azure-Ref",
            "X-Appengine-User-Ip",
            "X-Amzn-Trace-Id",
            "Cdn-Loop",
            "Via",
            "X-Cloud-Trace-Context",
            "ngrok-skip-browser-warning",
            "Tailscale-User-Login",
            "X-Forwarded-For",
            "X-Forwarded",
            "Forwarded",
            "CF-Ray",
            "X-Real-IP",
            "X-Url-Scheme",
        ] {
            let fields = [("host", "localhost"), (name, "")];
            assert!(!is_local(&asked("/", &fields), &here), "{name}");
        }
        // Fields that browsers, curl and Prometheus send of themselves.
        for name in [
            "accept",
            "accept-encoding",
            "authorization",
            "cache-control",
            "cookie",
            "dnt",
            "origin",
            "priority",
            "referer",
            "sec-fetch-site",
            "traceparent",
            "upgrade-insecure-requests",
            "user-agent",
            "x-prometheus-scrape-timeout-seconds",
            "x-request-id",
            "x-requested-with",
        ] {
            let fields = [("host", "localhost"), (name, "1")];
            assert!(is_local(&asked("/", &fields), &here), "{name}");
        }
        assert!(ADDED.is_sorted() && ADDED.iter().all(|name| *name == name.to_ascii_lowercase()));
    }

    #[test]
    fn only_a_direct_peer_with_a_loopback_address_is_here() {
        let request = asked("/", &[("host", "localhost")]);
        for (client, expected) in [
            (Some("127.0.0.1:9"), true),
            (Some("127.3.3.3:9"), true),
            (Some("[::1]:9"), true),
            (Some("[::ffff:127.0.0.1]:9"), true),
            (Some("10.0.0.1:9"), false),
            (Some("[fe80::1]:9"), false),
            (None, false),
        ] {
            assert_eq!(is_local(&request, &peer(client)), expected, "{client:?}");
        }
        let mut proxied = peer(Some("127.0.0.1:9"));
        proxied.is_proxied = true;
        assert!(!is_local(&request, &proxied));
    }
}
