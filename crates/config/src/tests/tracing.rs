//! How requests are followed.

use super::super::*;
use super::blamed;

fn tracing(text: &str) -> Tracing {
    let rest = "[[listeners]]\naddress = \":1\"\nrelay = { to = \":2\" }\n";
    let config = Config::parse("test", &format!("{rest}[tracing]\n{text}\n"));
    config.unwrap_or_else(|error| panic!("{text}: {error}")).tracing
}

#[test]
fn nothing_is_followed_unless_the_configuration_says_so() {
    for off in ["", "request_id = false", "request_id = false\ntrace = false"] {
        assert_eq!(tracing(off), Tracing::default());
        assert!(!tracing(off).is_on());
    }
    let ids = tracing("request_id = true").request_id.unwrap();
    assert_eq!((ids.field.as_str(), ids.respond, ids.trust.len()), ("x-request-id", true, 0));
    assert_eq!(Some(&ids), tracing("request_id = {}").request_id.as_ref());
    let ids = "field = \"X-Correlation-Id\", respond = false, trust = [\"10.0.0.0/8\", \"unix\"]";
    let ids = tracing(&format!("request_id = {{ {ids} }}")).request_id.unwrap();
    assert_eq!((ids.field.as_str(), ids.respond, ids.trust.len()), ("x-correlation-id", false, 2));
    let trace = tracing("trace = true").trace.unwrap();
    assert_eq!((trace.sample.hundredths(), trace.trust), (100, None));
    let trace = tracing("trace = { sample = \"5%\", trust = [] }").trace.unwrap();
    assert_eq!((trace.sample.hundredths(), trace.trust), (5, Some(Vec::new())));
    for name in ["edge-1", "example.org", "[::1]:8080"] {
        assert_eq!(tracing(&format!("via = {name:?}")).via.as_deref(), Some(name));
    }
}

/// The page about it has configurations that are valid.
#[test]
fn the_examples_of_the_page_are_valid() {
    let page = include_str!("../../../../docs/tracing.md");
    let examples: Vec<&str> = page
        .split("```toml\n[tracing")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(examples.len() >= 4 && examples.len() == page.matches("```toml").count());
    for example in examples {
        let text = format!(
            "[[listeners]]\naddress = \":1\"\nrelay = {{ to = \":2\" }}\n[tracing{example}"
        );
        let config = Config::parse("test", &text).unwrap_or_else(|error| panic!("{error}"));
        assert!(config.tracing.is_on(), "{example}");
    }
}

#[test]
fn each_mistake_is_told_with_its_place() {
    let long = format!("via = \"{}\"", "a".repeat(129));
    for (text, line, column, what) in [
        ("request_id = 1", 2, 14, "expected true, false or a table with the settings"),
        ("request_id = \"uuid\"", 2, 14, "expected true, false or a table with the settings"),
        ("request_id = { respond = 1 }", 2, 26, "expected a boolean"),
        (
            "request_id = { fields = \"a\" }",
            2,
            16,
            "did you mean `field`? Expected one of `field`, `respond`, `trust`",
        ),
        ("request_id = { field = \"a b\" }", 2, 24, "\"a b\" is no name of a field"),
        ("request_id = { field = \"Host\" }", 2, 24, "the field \"Host\" has a key of its own"),
        ("request_id = { field = \"Content-Length\" }", 2, 24, "tells where a message ends"),
        ("request_id = { field = \"Via\" }", 2, 24, "the field \"Via\" has another meaning"),
        ("request_id = { field = \"X_Forwarded_For\" }", 2, 24, "has another meaning"),
        ("request_id = { field = \"Cookie\" }", 2, 24, "has another meaning"),
        ("request_id = { trust = \"10.0.0.0/8\" }", 2, 24, "expected a sequence"),
        ("request_id = { trust = [\"10.0.0.1/8\"] }", 2, 25, "expected \"10.0.0.0/8\""),
        ("request_id = { trust = [\"all\"] }", 2, 25, "\"all\" is no network"),
        ("trace = \"on\"", 2, 9, "expected true, false or a table with the settings"),
        ("trace = { sample = \"0%\" }", 2, 20, "expected \"1%\" to \"100%\""),
        ("trace = { sample = 0.5 }", 2, 20, "expected a share as \"50%\""),
        ("trace = { trust = [\"x\"] }", 2, 20, "\"x\" is no network"),
        ("via = true", 2, 7, "expected a string"),
        ("via = \"\"", 2, 7, "\"\" is no name of a server in Via"),
        ("via = \"my server\"", 2, 7, "without spaces"),
        ("via = \"a,b\"", 2, 7, "is no name of a server in Via"),
        ("via = \"a(b)\"", 2, 7, "is no name of a server in Via"),
        ("via = \"a\\nb\"", 2, 7, "is no name of a server in Via"),
        (&long, 2, 7, "of at most 128 characters"),
        ("ids = true", 2, 1, "expected one of `request_id`, `trace`, `via`"),
    ] {
        let found = blamed(&format!(
            "[tracing]\n{text}\n[[listeners]]\naddress = \":1\"\nrelay = {{ to = \":2\" }}\n"
        ));
        let [(at_line, at_column, told)] = &found[..] else { panic!("{text}: {found:?}") };
        assert!(told.contains(what), "{text}: {told}");
        assert_eq!((*at_line, *at_column), (line, column), "{text}: {told}");
    }
    // All of them at once.
    let found = blamed(
        "[tracing]\nvia = \"a b\"\nrequest_id = { field = \"via\", trust = [\"x\"] }\ntrace = 1\n\
         [[listeners]]\naddress = \":1\"\nrelay = { to = \":2\" }\n",
    );
    assert_eq!(found.len(), 4, "{found:?}");
}
