//! Messages that several servers share.

use super::super::*;
use super::blamed;

fn text(broker: &str, action: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[broker]\n{broker}\n\
         [[hosts]]\n[[hosts.routes]]\n{action}\n"
    )
}

#[test]
fn a_broker_is_read_with_its_defaults() {
    let config =
        Config::parse("x", &text("url = \"redis://:pw@a/3\"", "channel = { broker = true }"));
    let broker = config.unwrap().broker.unwrap();
    assert_eq!(broker.url.to_string(), "redis://a:6379/3");
    assert_eq!((broker.prefix.as_str(), broker.replicas), ("superpoll:", 0));
    assert_eq!(broker.publish.as_secs(), 5);
    assert!(!format!("{broker:?}").contains("pw"));
}

#[test]
fn mistakes_about_a_broker_are_named_with_their_places() {
    let channel = "channel = { broker = true }";
    let hub = "path = \"/.well-known/mercure\"\nmercure = { broker = true, subscriptions = true }";
    for (broker, action, place, part) in [
        ("", channel, (3, 1), "no address, expected url"),
        ("url = \"a:6379\"", channel, (4, 7), "no URL"),
        ("url = \"rediss://a\"", channel, (4, 7), "expected ca = FILE"),
        ("url = \"redis://a\"\nca = \"x\"", channel, (5, 6), "only with rediss"),
        ("url = \"redis://a\"\nprefix = \"a{b\"", channel, (5, 10), "none of { }"),
        ("url = \"redis://a\"\npublish = \"2m\"", channel, (5, 11), "at most 60s"),
        ("url = \"redis://a\"", hub, (8, 22), "expected subscriptions or broker"),
    ] {
        let found = blamed(&text(broker, action));
        let [(line, column, what)] = &found[..] else { panic!("{broker} {action}: {found:?}") };
        assert_eq!((*line, *column), place, "{what}");
        assert!(what.contains(part), "{what}");
    }
    let alone = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\n\
                 channel = { broker = true }\n";
    let found = blamed(alone);
    assert!(found[0].2.contains("expected [broker] with url"), "{found:?}");
}
