//! The rules of routes and hosts.

use std::path::PathBuf;
use std::sync::Arc;

use http::HeaderName;

use super::super::*;
use super::blamed;

const HASH: &str = "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";
const BEFORE: &str = "[[listeners]]\naddress = \":1\"\n[[hosts]]\n";

fn names(names: &[&'static str]) -> Vec<HeaderName> {
    names.iter().map(|name| HeaderName::from_static(name)).collect()
}

/// Checks that each of these mistakes, by its line, is among those that were found.
fn check_all(found: &[(usize, usize, String)], expected: &[(usize, &str)]) {
    for (line, what) in expected {
        let is_it = |(at, _, said): &&(usize, usize, String)| at == line && said.contains(what);
        let said = found.iter().find(is_it);
        assert!(
            said.is_some_and(|(.., said)| said.contains("expected")),
            "{line}: {what}\n{found:#?}"
        );
    }
}

#[test]
fn trusted_proxies_are_networks_or_this_machine() {
    let server = |text: &str| format!("{BEFORE}routes = [{{ channel = {{}} }}]\n[server]\n{text}");
    let read = |text: &str| {
        let config = Config::parse("x", &server(text)).unwrap_or_else(|error| panic!("{error}"));
        config.server.trusted_proxies
    };
    let ranges = |texts: &[&str]| -> Vec<ClientRange> {
        texts.iter().map(|text| ClientRange::parse(text).unwrap()).collect()
    };
    assert_eq!(read(""), []);
    assert_eq!(read("trusted_proxies = []"), []);
    assert_eq!(
        read("trusted_proxies = [\"10.0.0.0/8\", \"local\", \"2001:db8::/32\"]"),
        ranges(&["10.0.0.0/8", "127.0.0.0/8", "::1", "unix", "2001:db8::/32"])
    );
    for (text, column, what) in [
        ("trusted_proxies = \"local\"", 19, "expected a sequence"),
        ("trusted_proxies = [1]", 20, "expected a string"),
        ("trusted_proxies = [\"10.0.0.1/8\"]", 20, "expected \"10.0.0.0/8\""),
        ("trusted_proxies = [\"::1\", \"proxy\"]", 27, "or \"local\" for the proxies of this"),
        ("trusted_proxies = [\"0.0.0.0/0\"]", 20, "trusts every client to name another client"),
        ("trusted_proxies = [\"::/0\"]", 20, "trusts every client to name another client"),
    ] {
        let found = blamed(&server(text));
        let [(line, at, said)] = found.as_slice() else { panic!("{text}: {found:?}") };
        assert_eq!((*line, *at), (6, column), "{text}: {said}");
        assert!(said.contains(what) && said.contains("expected"), "{text}: {said}");
    }
}

#[test]
fn types_of_files_are_checked() {
    let files =
        |text: &str| format!("{BEFORE}routes = [{{ files = {{ root = \"www\", {text} }} }}]\n");
    let text = files("charset = \"off\", types = { geojson = \"application/geo+json\" }");
    let config = Config::parse("x", &text).unwrap_or_else(|error| panic!("{error}"));
    let Action::Files(read) = &config.hosts[0].routes[0].action else { panic!() };
    assert_eq!((&*read.charset, &*read.types["geojson"]), ("off", "application/geo+json"));
    for (text, column, what) in [
        ("charset = \"\"", 47, "\"\" is no name of a character encoding"),
        ("charset = \"a b\"", 47, "expected one as \"utf-8\", or \"off\""),
        ("charset = \"a\\r\\nb: c\"", 47, "is no name of a character encoding"),
        ("charset = false", 47, "expected a string"),
        ("types = \"a/b\"", 45, "expected a map"),
        ("types = { txt = 1 }", 53, "expected a string"),
        (
            "types = { \".txt\" = \"text/plain\" }",
            56,
            "expected one in lower case and without a dot",
        ),
        ("types = { TXT = \"text/plain\" }", 53, "\"TXT\" is no extension"),
        ("types = { txt = \"text\" }", 53, "\"text\" is no media type"),
        ("types = { txt = \"text/plain\\r\\na: b\" }", 53, "is no media type"),
    ] {
        let found = blamed(&files(text));
        let [(line, at, said)] = found.as_slice() else { panic!("{text}: {found:?}") };
        assert_eq!((*line, *at), (4, column), "{text}: {said}");
        assert!(said.contains(what) && said.contains("expected"), "{text}: {said}");
    }
}

#[test]
fn rules_are_read() {
    let text = format!(
        "{BEFORE}headers = {{ set = {{ X-A = \"1\", b = [\"2\", \"3\"] }}, add = {{ c = \"4\" }}, remove = [\"Server\"] }}\n\
         errors = {{ 404 = \"404.html\", 5xx = \"50x.html\" }}\n\
         [[hosts.routes]]\nfiles = {{ root = \"www\", fallback = \"/index.html\" }}\n\
         allow = [\"10.0.0.0/8\", \"::1\", \"unix\"]\ndeny = [\"10.1.0.0/16\"]\nbody_bytes = \"1KiB\"\n\
         basic_auth = {{ users = {{ joe = \"{HASH}\" }}, file = \"users\" }}\n\
         [[hosts.routes]]\npath = \"/api\"\n[hosts.routes.proxy]\nupstream = \"app\"\nreplace_errors = true\n\
         request_headers.remove = [\"authorization\"]\n\
         [upstreams.app]\nservers = [{{ address = \"a:1\" }}]\n"
    );
    let config = Config::parse("x", &text).unwrap_or_else(|error| panic!("{error}"));
    let host = &config.hosts[0];
    assert_eq!(host.headers.removed, names(&["server", "x-a", "b"]));
    let added =
        host.headers.added.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
    assert_eq!(added.collect::<Vec<_>>(), [("x-a", "1"), ("b", "2"), ("b", "3"), ("c", "4")]);
    let pages: Vec<_> = host.errors.iter().collect();
    assert_eq!(
        pages,
        [
            (&ErrorKind::Status(404), &PathBuf::from("404.html")),
            (&ErrorKind::Class(5), &PathBuf::from("50x.html")),
        ]
    );
    let Route { action: Action::Files(files), rules, .. } = &host.routes[0] else { panic!() };
    assert_eq!(files.fallback.as_deref(), Some("/index.html"));
    assert_eq!((rules.access.allow.len(), rules.access.deny.len()), (3, 1));
    assert_eq!((rules.body_bytes, rules.headers.is_empty()), (Some(1024), true));
    let users = rules.basic_auth.as_ref().unwrap();
    assert_eq!((&*users.realm, users.users["joe"].verify(b"secret")), ("Restricted", true));
    assert!(!format!("{config:?}").contains("salt"));
    let Action::Proxy(proxy) = &host.routes[1].action else { panic!() };
    assert!(proxy.replace_errors);
    assert_eq!(proxy.request_headers.removed, names(&["authorization"]));
}

#[test]
fn mistakes_in_rules_have_their_places() {
    let many = format!(
        "{BEFORE}headers.set = {{ content-length = \"1\", \"a b\" = \"2\", c = \"\\n\", d = \" e\", f = [] }}\n\
         headers.remove = [\"Connection\", \"sec-websocket-accept\", \"ok\"]\n\
         headers.add = {{ Transfer_Encoding = \"x\", date = \"x\", h = 1 }}\n\
         errors = {{ 200 = \"a\", 3xx = \"b\", nope = \"c\" }}\n\
         [[hosts.routes]]\nfiles = {{ root = \"a\", fallback = \"index.html\" }}\n\
         headers = {{ set = {{ A = \"1\", a = \"2\", b = \"3\" }}, remove = [\"B\"] }}\n\
         allow = []\ndeny = [\"10.0.0.1/8\", \"x\"]\n\
         [hosts.routes.basic_auth]\nrealm = \"\\u00e9\"\n\
         users = {{ \"a:b\" = \"{HASH}\", c = \"secret\", d = \"$apr1$x$y\" }}\n\
         [[hosts.routes]]\npath = \"/c\"\nchannel = {{}}\nerrors = {{ 404 = \"x\" }}\nbasic_auth = {{}}\n\
         [[hosts.routes]]\npath = \"/p\"\nproxy = {{ upstream = \"app\", request_headers = {{ set = {{ host = \"x\" }} }} }}\n\
         [upstreams.app]\nservers = [{{ address = \"a:1\" }}]\n"
    );
    let found = blamed(&many);
    let expected = [
        (4, "\"content-length\" tells where a message ends"),
        (4, "\"a b\" is no name of a field"),
        (4, "\"\\n\" is no value of a field"),
        (4, "\" e\" is no value of a field"),
        (4, "invalid length 0"),
        (5, "\"Connection\" belongs to a connection"),
        (5, "\"sec-websocket-accept\" belongs to the handshake"),
        (6, "\"Transfer_Encoding\" tells where a message ends"),
        (6, "\"date\" is the time"),
        (6, "invalid type: integer `1`"),
        (7, "\"200\" is no error"),
        (7, "\"3xx\" is no error"),
        (7, "\"nope\" is no error"),
        (9, "\"index.html\" is no path"),
        (10, "\"a\" is set twice"),
        (10, "\"b\" is removed and set"),
        (11, "a list of no clients"),
        (12, "\"10.0.0.1/8\" is an address in a network, expected \"10.0.0.0/8\""),
        (12, "\"x\" is no network"),
        (14, "is no name of an area"),
        (15, "\"a:b\" is no name of a user"),
        (15, "no known hash"),
        (15, "MD5 is too weak"),
        (19, "clients of channels read why"),
        (20, "there are no users"),
        (23, "\"host\" has a key of its own"),
    ];
    check_all(&found, &expected);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    assert!(!format!("{found:?}").contains("secret"));
}

#[test]
fn rules_for_clients_are_read() {
    let text = format!(
        "{BEFORE}allow = [\"10.0.0.0/8\"]\nrate = \"100/s\"\nbasic_auth = {{ users = {{ joe = \"{HASH}\" }} }}\n\
         [[hosts.routes]]\nredirect.to = \"/x\"\nrate = \"20/s burst 40\"\n\
         [[hosts.routes]]\npath = \"/b\"\nredirect.to = \"/x\"\nbasic_auth = false\n\
         rate = {{ limit = \"5/m\", by = \"header:X-Api-Key\" }}\n\
         [[hosts.routes]]\npath = \"/c\"\nredirect.to = \"/x\"\n\
         basic_auth = {{ users = {{ ann = \"{HASH}\" }}, failures = \"5/m\" }}\n\
         [[hosts.routes]]\npath = \"/d\"\nredirect.to = \"/x\"\n\
         basic_auth = {{ users = {{ ann = \"{HASH}\" }}, failures = \"off\" }}\n"
    );
    let config = Config::parse("x", &text).unwrap_or_else(|error| panic!("{error}"));
    let host = &config.hosts[0];
    assert_eq!((host.access.allow.len(), host.access.deny.len()), (1, 0));
    let rate = |rate, by| Some(RequestRate { rate: Rate::parse(rate).unwrap(), by });
    assert_eq!(host.rate, rate("100/s", RateKey::Client));
    let rules: Vec<_> = host.routes.iter().map(|route| &route.rules).collect();
    assert_eq!(rules[0].rate, rate("20/s burst 40", RateKey::Client));
    let key = RateKey::Header(HeaderName::from_static("x-api-key"));
    assert_eq!(rules[1].rate, rate("5/m", key));
    assert_eq!(rules[2].rate, None);
    // A route has the users of its host, others, or none.
    let users = host.basic_auth.as_ref().unwrap();
    assert!(Arc::ptr_eq(users, rules[0].basic_auth.as_ref().unwrap()));
    assert!(rules[1].basic_auth.is_none());
    let own = |rules: &Rules| rules.basic_auth.as_ref().unwrap().clone();
    assert!(own(rules[2]).users.contains_key("ann") && !own(rules[2]).users.contains_key("joe"));
    assert_eq!((users.failures, users.spares_local), (Rate::parse("20/m burst 20"), true));
    assert_eq!((own(rules[2]).failures, own(rules[2]).spares_local), (Rate::parse("5/m"), false));
    assert_eq!(own(rules[3]).failures, None);
}

#[test]
fn mistakes_in_rules_for_clients_have_their_places() {
    let text = format!(
        "{BEFORE}allow = [\"x\"]\nrate = \"20\"\nbasic_auth = false\n\
         [[hosts.routes]]\nredirect.to = \"/x\"\nrate = 20\nbasic_auth = true\n\
         [[hosts.routes]]\npath = \"/b\"\nredirect.to = \"/x\"\nbasic_auth = false\n\
         rate = {{ limit = \"20/h\", by = \"X-Api-Key\" }}\n\
         [[hosts.routes]]\npath = \"/c\"\nredirect.to = \"/x\"\nrate = {{ by = \"header:a b\" }}\n\
         [hosts.routes.basic_auth]\nusers = {{ joe = \"{HASH}\" }}\nfailures = \"never\"\n\
         [[hosts.routes]]\npath = \"/d\"\nredirect.to = \"/x\"\nrate = {{ limit = \"1/s\", per = \"ip\" }}\n\
         [[hosts.routes]]\npath = \"/e\"\nredirect.to = \"/x\"\nrate = \"1/s burst 0\"\n"
    );
    let found = blamed(&text);
    let expected = [
        (4, "\"x\" is no network"),
        (5, "\"20\" is no rate"),
        (6, "no password is asked for anyway"),
        (9, "integer `20`"),
        (10, "boolean `true`"),
        (14, "no password is asked for anyway"),
        (15, "\"20/h\" is no rate"),
        (15, "\"X-Api-Key\" does not say whose requests"),
        (19, "a rate without a limit"),
        (19, "\"header:a b\" does not say whose requests"),
        (22, "\"never\" is no rate"),
        (26, "unknown key `per`"),
        (30, "\"1/s burst 0\" is no rate"),
    ];
    check_all(&found, &expected);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn passwords_in_plain_text_are_warned_of() {
    let users = format!("basic_auth = {{ users = {{ joe = \"{HASH}\" }} }}\n");
    let tls = "tls = { certificate = \"a.pem\", key = \"a.key\" }\n";
    let text = |listener: &str, host: &str, route: &str| {
        format!(
            "[[listeners]]\naddress = \"127.0.0.1:80\"\n[[listeners]]\n{listener}\n[[hosts]]\n{host}\n\
             [[hosts.routes]]\nredirect.to = \"https://x/\"\n{route}"
        )
    };
    for (listener, host, route, place) in [
        ("address = \"10.0.0.1:80\"", "", &*users, "x:9:14"),
        ("address = \":80\"", &users, "", "x:6:14"),
        ("address = \":80\"\nproxy_protocol = true", "", &users, ""),
        ("address = \"unix:a.sock\"", "", &users, ""),
        ("address = \"[::1]:80\"", "", &users, ""),
        (&format!("address = \":80\"\n{tls}"), "", &users, ""),
        (&format!("address = \":81\"\n{tls}"), "listeners = [\":81\"]", &users, ""),
        ("address = \":81\"", "listeners = [\"127.0.0.1:80\"]", &users, ""),
        ("address = \":81\"", "", "", ""),
    ] {
        let overlaps = listener.starts_with("address = \":80\"");
        let whole = text(listener, host, route);
        let whole = if overlaps { whole.replace("127.0.0.1:80", "127.0.0.1:1") } else { whole };
        let config = Config::parse("x", &whole).unwrap_or_else(|error| panic!("{error}"));
        match place {
            "" => assert_eq!(config.warnings, [""; 0], "{whole}"),
            place => {
                let [warning] = &config.warnings[..] else { panic!("{:?}", config.warnings) };
                let what = format!("{place}: passwords are sent in plain text to ");
                assert!(warning.starts_with(&what), "{warning}");
            }
        }
    }
    let always = format!(
        "[[listeners]]\naddress = \":80\"\n[[listeners]]\naddress = \":443\"\n{tls}[[hosts]]\n{users}\
         https = \"always\"\n[[hosts.routes]]\nredirect.to = \"https://x/\"\n"
    );
    assert_eq!(Config::parse("x", &always).unwrap().warnings, [""; 0]);
}

#[test]
fn rewrites_are_checked() {
    let text = |routes: &str| {
        format!("{BEFORE}{routes}[upstreams.app]\nservers = [{{ address = \"a:1\" }}]\n")
    };
    let right = text(
        "[[hosts.routes]]\npath = \"/blog/{slug}\"\nfiles.root = \"a\"\nrewrite = \"/posts/{slug}.html\"\n\
         [[hosts.routes]]\nproxy.upstream = \"app\"\nrewrite = \"/v2{path}?{query}\"\n",
    );
    let config = Config::parse("x", &right).unwrap_or_else(|error| panic!("{error}"));
    let rewrites = config.hosts[0].routes.iter().map(|route| route.rules.rewrite.as_deref());
    let expected = [Some("/posts/{slug}.html"), Some("/v2{path}?{query}")];
    assert_eq!(rewrites.collect::<Vec<_>>(), expected);
    let wrong = text(
        "[[hosts.routes]]\npath = \"/a/{x}\"\nfiles.root = \"a\"\n\
         [[hosts.routes]]\npath = \"/b\"\nfiles.root = \"a\"\nrewrite = \"b\"\n\
         [[hosts.routes]]\npath = \"/c\"\nredirect.to = \"/x\"\nrewrite = \"/b\"\n\
         [[hosts.routes]]\npath = \"/d\"\nchannel = {}\nrewrite = \"/b\"\n\
         [[hosts.routes]]\npath = \"/e\"\nproxy = { upstream = \"app\", strip_path = true }\nrewrite = \"/b\"\n\
         [[hosts.routes]]\npath = \"/f/{x}\"\nproxy.upstream = \"app\"\nrewrite = \"/b/{y}\"\n\
         [[hosts.routes]]\npath = \"/g/{x\"\nproxy.upstream = \"app\"\nrewrite = \"/b/{path}\"\n\
         [[hosts.routes]]\npath = \"/h\"\nfiles.root = \"a\"\nrewrite = [\"/b\"]\n",
    );
    let found = blamed(&wrong);
    let expected = [
        (5, "has parameters, expected them only for a channel, or with rewrite"),
        (10, "\"b\" is no path"),
        (14, "a rewrite is for files and for servers"),
        (18, "a rewrite is for files and for servers"),
        (22, "strip_path takes a part"),
        (26, "{y} is no part of a request to this route, expected {path}, {below}, {query}, {x}"),
        (28, "is no pattern"),
        (34, "expected a string"),
    ];
    check_all(&found, &expected);
    // A pattern that is none is a mistake of the rewrite as well.
    assert!(found.len() <= expected.len() + 1, "{found:#?}");
}
