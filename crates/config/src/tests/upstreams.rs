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

const SECRET: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn servers_are_left_out_and_clients_come_back_as_configured() {
    let two = "{ address = \"a:80\" }, { address = \"b:80\" }";
    let plain = upstream(two, "").unwrap();
    let plain = &plain.upstreams["a"];
    assert_eq!((&plain.eject, &plain.sticky, plain.slow_start), (&None, &None, None));
    let rest = format!(
        "eject = {{ errors = 9, within = \"1m\", share = \"10 %\", for = \"2m\", most = \"100%\" }}\n\
         sticky = {{ cookie = \"srv\", secret = \"{SECRET}\", same_site = \"strict\", path = \"/a\", max_age = \"1h\" }}\n\
         slow_start = \"30s\""
    );
    let full = upstream(two, &rest).unwrap();
    let full = &full.upstreams["a"];
    let eject = full.eject.as_ref().unwrap();
    assert_eq!((eject.errors.get(), eject.within.as_secs()), (9, 60));
    assert_eq!((eject.share.hundredths(), eject.most.hundredths()), (10, 100));
    assert_eq!(eject.duration.as_secs(), 120);
    let sticky = full.sticky.as_ref().unwrap();
    assert_eq!((sticky.cookie.as_str(), sticky.secret.as_str()), ("srv", SECRET));
    assert_eq!((sticky.same_site, sticky.path.as_str()), (SameSite::Strict, "/a"));
    assert_eq!(sticky.max_age.unwrap().as_secs(), 3600);
    assert_eq!(full.slow_start.unwrap().as_secs(), 30);
    let short = upstream(two, "eject = {}").unwrap();
    assert_eq!(short.upstreams["a"].eject, Some(Ejection::default()));
}

#[test]
fn mistakes_of_the_rules_for_servers_are_refused() {
    let two = "{ address = \"a:80\" }, { address = \"b:80\" }";
    let sticky = |rest: &str| format!("sticky = {{ {rest} }}");
    let secret = format!("secret = \"{SECRET}\"");
    for (rest, what) in [
        ("eject = true".to_owned(), "invalid type: boolean `true`"),
        ("eject = { errors = 0 }".to_owned(), "expected a nonzero u32"),
        ("eject = { errors = 1001 }".to_owned(), "1001 errors, expected 1 to 1000"),
        ("eject = { share = \"0%\" }".to_owned(), "is no share, expected \"1%\" to \"100%\""),
        ("eject = { most = \"101%\" }".to_owned(), "is no share, expected \"1%\" to \"100%\""),
        ("eject = { most = \"+5%\" }".to_owned(), "is no share, expected \"1%\" to \"100%\""),
        ("eject = { most = 50 }".to_owned(), "expected a share as \"50%\""),
        ("eject = { for = \"30\" }".to_owned(), "is no duration, expected one as"),
        ("eject = { error = 5 }".to_owned(), "unknown key `error`"),
        (sticky(&secret), "sticky without a cookie, expected cookie = NAME"),
        (sticky("cookie = \"a\""), "sticky without a secret"),
        (
            sticky("cookie = \"a\", secret = \"short\""),
            "the secret has 5 bytes, expected at least 32",
        ),
        (sticky(&format!("cookie = \"a b\", {secret}")), "\"a b\" is no name of a cookie"),
        (sticky(&format!("cookie = \"\", {secret}")), "\"\" is no name of a cookie"),
        (sticky(&format!("cookie = \"a\", {secret}, path = \"/a;b\"")), "has a semicolon"),
        (sticky(&format!("cookie = \"a\", {secret}, path = \"a\"")), "is no path of a URL"),
        (sticky(&format!("cookie = \"a\", {secret}, same_site = \"no\"")), "unknown variant `no`"),
        (sticky(&format!("cookie = \"a\", {secret}, max_age = 5")), "expected a duration as"),
        ("slow_start = 30".to_owned(), "expected a duration as"),
        ("slow_start = \"0s\"".to_owned(), "the duration \"0s\" is zero"),
        (
            "balance = \"hash\"\nslow_start = \"30s\"".to_owned(),
            "expected slow_start only with another balance than \"hash\"",
        ),
        (
            "tls = { ca = \"a\", certificate = \"b\" }".to_owned(),
            "a certificate for the servers without its key, expected key = FILE next to it",
        ),
        (
            "tls = { ca = \"a\", key = \"b\" }".to_owned(),
            "a key without the certificate for the servers, expected certificate = FILE next to it",
        ),
    ] {
        let error = upstream(two, &rest).unwrap_err();
        assert!(error.contains(what) && !error.contains('\n'), "{error}");
        assert!(error.starts_with("test:"), "{error}");
    }
    let several = "eject = { errors = 0 }\nsticky = {}\nslow_start = \"x\"";
    assert_eq!(upstream(two, several).unwrap_err().lines().count(), 3);
    let warned = upstream("{ address = \"127.0.0.1:80\" }", "eject = {}").unwrap();
    let warnings: Vec<_> = warned.warnings.iter().map(ToString::to_string).collect();
    assert!(warnings.iter().any(|warning| warning.contains("eject has no effect")), "{warnings:?}");
}

fn scripts(keys: &str, upstream: &str) -> Result<Config, String> {
    let text = format!(
        "[[listeners]]\naddress = \":1\"\n[[hosts]]\n[[hosts.routes]]\n{keys}\n\
         [upstreams.a]\nservers = [{{ address = \"unix:php\" }}]\n{upstream}\n"
    );
    Config::parse("test", &text).map_err(|error| error.to_string())
}

#[test]
fn scripts_have_defaults_of_their_own() {
    let config = scripts("fastcgi = { upstream = \"a\", root = \"www\" }", "").unwrap();
    let usual = &config.upstreams["a"];
    assert_eq!((usual.fastcgi, usual.keep_alive, usual.idle.as_millis()), (true, 4, 200));
    let Action::FastCgi(fastcgi) = &config.hosts[0].routes[0].action else { panic!() };
    assert_eq!((&*fastcgi.index, &*fastcgi.split), ("index.php", ".php"));
    let set = scripts("fastcgi = { upstream = \"a\" }", "keep_alive = 9\nidle = \"3s\"").unwrap();
    let changed = &set.upstreams["a"];
    assert_eq!((changed.keep_alive, changed.idle.as_secs()), (9, 3));
    let both = "files = { root = \"www\", otherwise = \"fastcgi\" }\n\
                fastcgi = { upstream = \"a\", root = \"www\", send_files = { \"/p\" = \"x\" } }";
    let both = scripts(both, "").unwrap();
    let action = &both.hosts[0].routes[0].action;
    assert!(matches!(action, Action::FilesFirst(..)), "{action:?}");
    let folders: Vec<_> = action.folders().map(|folder| folder.to_str().unwrap()).collect();
    assert_eq!(folders, ["www", "www", "x"]);
    let plain = upstream("{ address = \"a:1\" }", "").unwrap();
    assert_eq!(plain.upstreams["a"].idle.as_secs(), 50);
}

#[test]
fn mistakes_of_scripts_are_refused() {
    let of = |keys: &str| format!("fastcgi = {{ upstream = \"a\"{keys} }}");
    let files = |otherwise: &str| format!("files = {{ root = \"w\", {otherwise} }}");
    let two = "fastcgi = { upstream = \"a\" }\n[[hosts.routes]]\npath = \"/b\"\n\
               proxy = { upstream = \"a\" }";
    for (keys, upstream, what) in [
        ("fastcgi = {}".to_owned(), "", "fastcgi without an upstream, expected upstream = NAME"),
        (of(", server_root = \"/a\""), "", "which is not there, expected root next to it"),
        (of(", index = \"a/b\""), "", "\"a/b\" is no name of a file, expected one as"),
        (of(", index = \"app.py\""), "", "\"app.py\" does not end with split, \".php\""),
        (
            format!("{}\n{}", files("otherwise = \"fastcgi\", index = [\"index.PHP\"]"), of("")),
            "",
            "\"index.PHP\" is a script, which is never sent, expected it as index of fastcgi",
        ),
        (
            format!("{}\n{}", files("otherwise = \"fastcgi\", listing = true"), of("")),
            "",
            "a folder has two answers, expected listing or otherwise",
        ),
        (of(", split = \"php\""), "", "\"php\" is no end of the names of scripts"),
        (of(", params = { \"A B\" = \"\" }"), "", "\"A B\" is no name of a parameter"),
        (of(", params = { HTTP_PROXY = \"\" }"), "", "\"HTTP_PROXY\" is no name of a parameter"),
        (of(", send_files = { p = \"x\" }"), "", "\"p\" is no path of a URL"),
        (of(""), "h2 = true", "speak FastCGI, expected no h2"),
        (of(""), "proxy_protocol = true", "speak FastCGI, expected no proxy_protocol"),
        (of(""), "tls = { ca = \"x\" }", "speak FastCGI, expected no tls"),
        (two.to_owned(), "", "is for FastCGI and for another protocol, expected one upstream for"),
        (files("otherwise = \"proxy\""), "", "has not files and proxy alone, expected proxy ="),
        (
            format!("{}\n{}", files("otherwise = \"proxy\""), of("")),
            "",
            "has not files and proxy alone",
        ),
        (
            format!("{}\n{}", files("otherwise = \"fastcgi\", fallback = \"/x\""), of("")),
            "",
            "a path without a file has two answers, expected fallback or otherwise",
        ),
        (format!("{}\n{}", files("max_age = \"1s\""), of("")), "", "a second action of one route"),
    ] {
        let error = scripts(&keys, upstream).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn mistakes_of_servers_that_decide_are_refused() {
    let of = |keys: &str| {
        let text = format!(
            "[[listeners]]\naddress = \":1\"\n[[hosts]]\n[[hosts.routes]]\nfiles = {{ root = \"w\" }}\n\
             auth_request = {{ {keys} }}\n[upstreams.a]\nservers = [{{ address = \"a:1\" }}]\n"
        );
        Config::parse("test", &text).map_err(|error| error.to_string())
    };
    let usual = of("upstream = \"a\", cache = \"1m\"").unwrap();
    let usual = usual.hosts[0].routes[0].rules.auth_request.clone().unwrap();
    assert_eq!((&*usual.path, usual.timeout.as_secs()), ("/", 5));
    assert_eq!(usual.cache_by, [http::header::COOKIE, http::header::AUTHORIZATION]);
    for (keys, what) in [
        ("path = \"/\"", "auth_request without an upstream, expected upstream = NAME"),
        ("upstream = \"b\"", "the upstream \"b\" is not defined, expected a"),
        ("upstream = \"a\", path = \"x\"", "\"x\" is no path of a URL"),
        ("upstream = \"a\", copy = [\"a b\"]", "\"a b\" is no name of a field"),
        ("upstream = \"a\", copy = [\"content-length\"]", "tells where a message ends"),
        ("upstream = \"a\", cache_by = [\"x\"]", "expected cache = DURATION next to cache_by"),
        ("upstream = \"a\", cache = \"2h\"", "would pass for so long, expected at most 1h"),
    ] {
        let error = of(keys).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
}
