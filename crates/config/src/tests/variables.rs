//! Variables of the environment, and suggestions.

use super::*;

const LISTENER: &str =
    "[[listeners]]\naddress = \"127.0.0.1:${SUPERPOLL_NONE:-8080}\"\n[[hosts]]\n";

fn parse(text: &str) -> Config {
    Config::parse("x", text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn variables_stand_for_values_of_each_kind() {
    let route = "[[hosts.routes]]\nfiles = { root = \"${SUPERPOLL_NONE:-/srv}/$${www}\", \
                 listing = \"${SUPERPOLL_NONE:-true}\", index = [\"${SUPERPOLL_NONE:-a}.html\"] }\n";
    let text = format!(
        "{LISTENER}{route}[server]\nworkers = \"${{SUPERPOLL_NONE:-3}}\"\n\
         [limits]\nheader_bytes = \"${{SUPERPOLL_NONE:-8}}KiB\"\nbody_bytes = \"${{SUPERPOLL_NONE:-1000}}\"\n"
    );
    let config = parse(&text);
    assert_eq!(config.listeners[0].address.to_string(), "127.0.0.1:8080");
    assert_eq!(config.server.workers, "3".parse().unwrap());
    assert_eq!(config.limits.body_bytes, 1000);
    let Action::Files(files) = &config.hosts[0].routes[0].action else { panic!("{config:?}") };
    assert_eq!(files.root, Path::new("/srv/${www}"));
    assert!(files.listing);
    assert_eq!(files.index, ["a.html"]);
    // A value is not looked at again, and a number in it remains a text where one is expected.
    let named = |name: &str| {
        let text = format!(
            "{LISTENER}names = [\"{name}\"]\n[[hosts.routes]]\nredirect = {{ to = \"/\" }}\n"
        );
        let text = text.replace("redirect = { to = \"/\" }", "files = { root = \"/\" }");
        parse(&text).hosts[0].names.clone()
    };
    assert_eq!(named("${SUPERPOLL_NONE:-12345}"), ["12345"]);
    let home = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let config = parse(&format!(
        "{LISTENER}[[hosts.routes]]\nfiles = {{ root = \"${{CARGO_MANIFEST_DIR}}\" }}\n"
    ));
    let Action::Files(files) = &config.hosts[0].routes[0].action else { panic!("{config:?}") };
    assert_eq!(files.root, Path::new(&home));
}

#[test]
fn wrong_variables_are_mistakes_at_their_place() {
    let route = "[[hosts.routes]]\nfiles = { root = \"/\" }\n";
    let text =
        format!("{LISTENER}{route}[server]\nworkers = \"${{SUPERPOLL_NONE}}\"\nstats = \"${{\"\n");
    let found = blamed(&text);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!((found[0].0, found[0].1), (7, 11));
    assert!(
        found[0].2.starts_with("the environment variable SUPERPOLL_NONE is not set"),
        "{found:?}"
    );
    assert_eq!((found[1].0, found[1].1), (8, 9));
    // What a variable leads to is checked as if it were written.
    for (workers, expected) in
        [("many", "expected 1 to 1024"), ("0", "expected 1 to 1024"), ("1.5", "floating point")]
    {
        let text =
            format!("{LISTENER}{route}[server]\nworkers = \"${{SUPERPOLL_NONE:-{workers}}}\"\n");
        let found = blamed(&text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].0, found[0].1), (7, 11), "{found:?}");
        assert!(found[0].2.contains(expected), "{found:?}");
    }
    // A string without variables is no number.
    let found = blamed(&format!("{LISTENER}{route}[limits]\nconnections = \"3\"\n"));
    assert!(found[0].2.contains("string \"3\""), "{found:?}");
}

#[test]
fn a_key_that_is_nearly_right_is_suggested() {
    for (text, expected) in [
        ("[server]\nworker = 2\n", "unknown key `worker`, did you mean `workers`? Expected one of"),
        ("[server]\nbackend = 2\nprocess = 1\n", "did you mean `processes`?"),
        ("[timeout]\nidle = \"1s\"\n", "unknown key `timeout`, did you mean `timeouts`?"),
        ("[upstreams.a]\nbalance = \"least-conections\"\n", "did you mean `least-connections`?"),
    ] {
        let found =
            blamed(&format!("{LISTENER}[[hosts.routes]]\nfiles = {{ root = \"/\" }}\n{text}"));
        assert!(found.iter().any(|(_, _, what)| what.contains(expected)), "{text}: {found:?}");
    }
}

#[test]
fn an_upstream_without_a_route_is_a_warning() {
    let route = "[[hosts.routes]]\nproxy = { upstream = \"used\" }\n";
    let upstream =
        |name: &str| format!("[upstreams.{name}]\nservers = [{{ address = \"a:1\" }}]\n");
    let text = format!("{LISTENER}{route}{}{}", upstream("used"), upstream("unused"));
    let warnings = parse(&text).warnings;
    assert_eq!(warnings, ["x:8:12: no route or relay forwards to the upstream \"unused\""]);
}
