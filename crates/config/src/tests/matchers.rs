//! Matchers of routes, and routes with the same path.

use super::super::*;
use super::blamed;

const BEFORE: &str = "[[listeners]]\naddress = \":1\"\n[[hosts]]\n";

fn with(text: &str) -> String {
    format!("{BEFORE}[[hosts.routes]]\nrespond = {{}}\nmatch = {text}\n")
}

fn routes(routes: &[(&str, &str)]) -> String {
    let route = |(path, rest): &(&str, &str)| {
        format!("[[hosts.routes]]\npath = \"{path}\"\nrespond = {{}}\n{rest}\n")
    };
    format!("{BEFORE}{}", routes.iter().map(route).collect::<String>())
}

#[test]
fn matchers_are_read() {
    let text = with(
        "{ methods = [\"GET\", \"M-SEARCH\"], query = { a = \"x y\", b = true, c = false }, \
         headers = { Accept = \"a/b\", x-a = true, x-b = false }, extensions = [\"css\", \"tar.gz\"], \
         path_regex = '^/u/(?<user>[a-z]+)/(\\d+)$' }",
    );
    let config = Config::parse("x", &text).unwrap_or_else(|error| panic!("{error}"));
    let matcher = config.hosts[0].routes[0].matcher.as_ref().unwrap();
    assert_eq!(matcher.methods, ["GET", "M-SEARCH"]);
    assert_eq!(matcher.extensions, ["css", "tar.gz"]);
    let texts = |expected: &Expected| match expected {
        Expected::Text(text) => text.clone(),
        other => format!("{other:?}"),
    };
    let query: Vec<_> = matcher.query.iter().map(|(name, it)| (&**name, texts(it))).collect();
    let expected = ["x y", "Present", "Absent"].map(str::to_owned);
    assert_eq!(query, ["a", "b", "c"].into_iter().zip(expected).collect::<Vec<_>>());
    let headers = matcher.headers.iter().map(|(name, it)| (name.as_str(), texts(it)));
    let expected = ["a/b", "Present", "Absent"].map(str::to_owned);
    let names = ["accept", "x-a", "x-b"].into_iter();
    assert_eq!(headers.collect::<Vec<_>>(), names.zip(expected).collect::<Vec<_>>());
    assert_eq!(matcher.path_regex.as_ref().unwrap().as_str(), "^/u/(?<user>[a-z]+)/(\\d+)$");
    assert!(
        Config::parse("x", &routes(&[("/", "")])).unwrap().hosts[0].routes[0].matcher.is_none()
    );
}

#[test]
fn mistakes_of_matchers_have_their_places() {
    let long = format!("{{ path_regex = \"{}\" }}", "x".repeat(10 << 20));
    for (text, column, what) in [
        ("{}", 9, "a match that all requests fit, expected methods, query, headers, extensions"),
        ("{ methods = [] }", 21, "a list that no request fits, expected a method"),
        ("{ methods = [\"get\"] }", 22, "\"get\" is no method, expected one in upper case as"),
        ("{ methods = [\"\"] }", 22, "\"\" is no method"),
        ("{ methods = \"GET\" }", 21, "expected a sequence"),
        ("{ extensions = [] }", 24, "a list that no request fits, expected an extension"),
        ("{ extensions = [\".css\"] }", 25, "expected one in lower case and without a dot"),
        ("{ extensions = [\"CSS\"] }", 25, "\"CSS\" is no extension"),
        ("{ extensions = [\"a/b\"] }", 25, "\"a/b\" is no extension"),
        ("{ extensions = [\"\"] }", 25, "\"\" is no extension"),
        ("{ headers = { \"a b\" = true } }", 23, "\"a b\" is no name of a field"),
        ("{ headers = { host = \"a\" } }", 23, "expected names in [[hosts]]"),
        ("{ headers = { x = \" a\" } }", 27, "no field has the value \" a\""),
        ("{ headers = { X = true, x = true } }", 33, "the field \"x\" is matched twice"),
        ("{ headers = { x = 1 } }", 27, "expected a text, true for any value, or false for none"),
        ("{ query = { x = [] } }", 25, "expected a text, true for any value, or false for none"),
        ("{ path_regex = \"(\" }", 24, "\"(\" is no regular expression: unclosed group, expected"),
        ("{ path_regex = \"(a{500}){500}\" }", 24, "takes more than 1 MiB of memory"),
        (&long, 24, "the expression has 10485760 bytes, expected at most 4096"),
        ("{ path = \"/\" }", 11, "unknown key `path`, expected one of `methods`, `query`"),
    ] {
        let found = blamed(&with(text));
        let shown = &text[..text.len().min(60)];
        let [(line, at, said)] = found.as_slice() else { panic!("{shown}: {found:?}") };
        assert!(said.contains(what) && said.contains("expected"), "{shown}: {said}");
        assert_eq!((*line, *at), (6, column), "{shown}: {said}");
    }
}

#[test]
fn a_path_is_repeated_only_where_matchers_tell_the_routes_apart() {
    let (get, put) = ("match.methods = [\"GET\"]", "match.methods = [\"PUT\"]");
    for paths in [
        &[("/a", get), ("/a", "")][..],
        &[("/a", ""), ("/a", get)],
        &[("/a", get), ("/a", put), ("/a", get)],
        &[("/", get), ("/", ""), ("/a", get)],
        &[("/{a}", "match.path_regex = \"x\"\nrewrite = \"/x\""), ("/a", "")],
    ] {
        let found = blamed(&routes(paths));
        // A route with an answer of its own has no rewrite, which is another mistake.
        let found = found.iter().filter(|(.., what)| !what.contains("rewrite"));
        assert_eq!(found.count(), 0, "{paths:?}");
    }
    let twice =
        "repeats that of another route of this host, expected each path once, or match in all";
    let spelling = "the path \"/a/\" is \"/a\" in another spelling, expected the same";
    for (paths, line, what) in [
        (&[("/a", ""), ("/a", "")][..], 9, twice),
        (&[("/a", ""), ("/a/", "")], 9, twice),
        (&[("/a", ""), ("/a", get), ("/a", "")], 13, twice),
        (&[("/a", get), ("/a", ""), ("/a", "")], 13, twice),
        (&[("/a", get), ("/a/", "")], 9, spelling),
        (&[("/a", ""), ("/a/", put)], 9, spelling),
    ] {
        let found = blamed(&routes(paths));
        let [(at, 8, said)] = found.as_slice() else { panic!("{paths:?}: {found:?}") };
        assert!(*at == line && said.contains(what), "{paths:?}: {at} {said}");
    }
    for action in ["channel", "mercure"] {
        let text = format!(
            "{BEFORE}[[hosts.routes]]\npath = \"/.well-known/mercure\"\n{action} = {{}}\nmatch = {{ methods = [\"GET\"] }}\n"
        );
        let found = blamed(&text);
        let [(7, 9, said)] = found.as_slice() else { panic!("{found:?}") };
        assert!(said.contains("a channel has all requests to its path, expected match in other"));
    }
    // The same pattern may come again, and another one that fits the same paths may not.
    let route = |path: &str, more: &str| {
        format!(
            "[[hosts.routes]]\npath = \"{path}\"\nrewrite = \"/x\"\nfiles.root = \"/\"\n{more}\n"
        )
    };
    let text = format!("{BEFORE}{}{}", route("/{a}", get), route("/{a}", ""));
    assert_eq!(blamed(&text), []);
    let text = format!("{BEFORE}{}{}", route("/{a}", get), route("/{b}", ""));
    let found = blamed(&text);
    assert!(
        found.len() == 1 && found[0].2.contains("is no pattern that can stand here"),
        "{found:?}"
    );
}

#[test]
fn groups_stand_in_rewrites() {
    let with = |rewrite: &str| {
        format!(
            "{BEFORE}[[hosts.routes]]\nfiles.root = \"/\"\nrewrite = \"{rewrite}\"\n\
             match.path_regex = '^/u/(?<user>[a-z]+)/(\\d+)$'\n"
        )
    };
    assert_eq!(blamed(&with("/{user}/{2}")), []);
    let found = blamed(&with("/{usr}"));
    let [(6, 11, said)] = found.as_slice() else { panic!("{found:?}") };
    let expected = "{usr} is no part of a request to this route, expected {path}, {below}, {query}, \
                    {user}, {2}";
    assert_eq!(said, expected);
    let found = blamed(&with("/{user}").replace("match", "#match"));
    assert!(found[0].2.contains("{user} is no part of a request to this route"), "{found:?}");
}

#[test]
fn redirects_to_routes_with_matchers_are_not_warned_of() {
    let text = |more: &str| {
        format!(
            "{BEFORE}[[hosts.routes]]\npath = \"/a\"\nredirect.to = \"/b\"\n{more}\n\
             [[hosts.routes]]\npath = \"/b\"\nredirect.to = \"/a\"\n"
        )
    };
    assert_eq!(Config::parse("x", &text("")).unwrap().warnings.len(), 2);
    let config = Config::parse("x", &text("match.methods = [\"GET\"]")).unwrap();
    assert_eq!(config.warnings, [] as [String; 0]);
    // A route with matchers next to the redirect may be the one that answers.
    let more = "[[hosts.routes]]\npath = \"/b\"\nrespond = {}\nmatch.methods = [\"GET\"]";
    assert_eq!(Config::parse("x", &text(more)).unwrap().warnings, [] as [String; 0]);
}

#[test]
fn the_configurations_of_the_guide_are_right() {
    let guide = include_str!("../../../../docs/routes.md");
    let all = guide.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let configs: Vec<Config> = all.map(|text| Config::parse("x", text).unwrap()).collect();
    assert!(configs.iter().all(|config| config.warnings.is_empty()), "{configs:?}");
    assert_eq!(configs.len(), 2);
    let host = configs[0].host("localhost").unwrap();
    assert_eq!(host.route("/api/x").unwrap().action.folders().count(), 0);
    let table = host.route_table();
    let paths = table.candidates("/u/joe/42").map(|route| &*route.path);
    assert_eq!(paths.collect::<Vec<_>>(), ["/u", "/u", "/", "/"]);
}
