//! The rights of channels.

use super::super::*;
use super::blamed;

const SECRET: &str = "a secret of thirty-two bytes: 32";
const HOST: &str = "\n[[hosts]]\n[[hosts.routes]]\npath = \"/c\"\nchannel = ";
const APP: &str = "\n[upstreams.app]\nservers = [{ address = \"a:1\" }]\n";

fn with(address: &str, channel: &str) -> String {
    format!("[[listeners]]\naddress = \"{address}\"{HOST}{channel}{APP}")
}

#[test]
fn rights_are_read() {
    let channel = format!(
        "{{ publish = \"token\", subscribe = \"authorize\", \
         token = {{ key = \"{SECRET}\", audience = \"chat\", cookie = \"session\", leeway = \"1m\" }}, \
         authorize = {{ upstream = \"app\", path = \"/may\", timeout = \"2s\" }} }}"
    );
    let config = Config::parse("x", &with(":1", &channel)).unwrap();
    let Action::Channel(channel) = &config.hosts[0].routes[0].action else { panic!("{config:?}") };
    assert_eq!((channel.publish, channel.subscribe), (Some(Right::Token), Right::Authorize));
    let token = channel.token.as_ref().unwrap();
    assert_eq!(token.key, Some(KeySource::Text(SECRET.to_owned())));
    assert_eq!(
        (token.audience.as_deref(), token.cookie.as_deref()),
        (Some("chat"), Some("session"))
    );
    assert_eq!(token.leeway.as_secs(), 60);
    let authorize = channel.authorize.as_ref().unwrap();
    assert_eq!((&*authorize.upstream, &*authorize.path), ("app", "/may"));
    assert_eq!(authorize.timeout.as_secs(), 2);
    assert!(config.warnings.is_empty());
    assert!(!format!("{config:?}").contains(SECRET));
    for (text, expected) in [
        ("file:jwt.pem", KeySource::File("jwt.pem".into())),
        ("env:JWT_KEY", KeySource::Variable("JWT_KEY".to_owned())),
    ] {
        let channel = format!("{{ publish = \"token\", token = {{ key = \"{text}\" }} }}");
        // Without a file it is not looked for.
        let config = Config::parse("x", &with(":1", &channel)).unwrap();
        let Action::Channel(channel) = &config.hosts[0].routes[0].action else { panic!() };
        assert_eq!(channel.token.as_ref().unwrap().key, Some(expected));
    }
}

#[test]
fn mistakes_in_rights_have_their_places() {
    let key = format!("key = \"{SECRET}\"");
    for (channel, column, expected) in [
        ("{ publish = \"all\" }".to_owned(), 23, "unknown variant `all`"),
        ("{ publish = \"token\" }".to_owned(), 23, "\"token\" without a key"),
        ("{ subscribe = \"authorize\" }".to_owned(), 25, "\"authorize\" without a server"),
        (format!("{{ token = {{ {key} }} }}"), 21, "nobody needs a token here"),
        ("{ publish = \"token\", token = {} }".to_owned(), 40, "tokens without a key"),
        (
            "{ publish = \"token\", token = { key = \"short\" } }".to_owned(),
            48,
            "key is a secret of 5 bytes, expected at least 32",
        ),
        (
            format!("{{ publish = \"token\", token = {{ {key}, jwks = \"a\" }} }}"),
            91,
            "a set of keys in addition to a key",
        ),
        (
            format!("{{ publish = \"token\", token = {{ {key}, audience = \"\" }} }}"),
            95,
            "the audience is empty",
        ),
        (
            format!("{{ publish = \"token\", token = {{ {key}, cookie = \"a b\" }} }}"),
            93,
            "\"a b\" is no name of a cookie",
        ),
        (
            format!(
                "{{ publish = \"token\", origins = [\"*\"], token = {{ {key}, cookie = \"a\" }} }}"
            ),
            110,
            "browsers send a cookie for the pages of every site",
        ),
        ("{ authorize = { upstream = \"app\" } }".to_owned(), 25, "no client is asked about"),
        (
            "{ publish = \"authorize\", authorize = { upstream = \"no\" } }".to_owned(),
            61,
            "the upstream \"no\" is not defined, expected app",
        ),
        (
            "{ publish = \"authorize\", authorize = { path = \"/may\" } }".to_owned(),
            48,
            "no upstream to ask",
        ),
        (
            "{ publish = \"authorize\", authorize = { upstream = \"app\", path = \"may\" } }"
                .to_owned(),
            75,
            "\"may\" is no path of a URL",
        ),
        ("{ presence = true }".to_owned(), 24, "presence counts users, and nothing says who"),
        (
            "{ callbacks = { key = \"env:K\", events = [\"published\"] } }".to_owned(),
            25,
            "no upstream",
        ),
        (
            "{ callbacks = { upstream = \"app\", events = [\"published\"] } }".to_owned(),
            25,
            "requests without a signature",
        ),
        (
            "{ callbacks = { upstream = \"app\", key = \"short\", events = [\"published\"] } }"
                .to_owned(),
            51,
            "key is a secret of 5 bytes, expected at least 32",
        ),
        (
            format!("{{ callbacks = {{ upstream = \"app\", {key}, events = [\"left\"] }} }}"),
            96,
            "these events tell of users, whom the channel does not count",
        ),
        (
            format!("{{ callbacks = {{ upstream = \"app\", {key}, events = [] }} }}"),
            96,
            "nothing is to be told",
        ),
    ] {
        let found = blamed(&with("127.0.0.1:1", &channel));
        let [(line, at, what)] = found.as_slice() else { panic!("{channel}: {found:?}") };
        assert!(what.starts_with(expected), "{channel}: {what}");
        assert_eq!((*line, *at), (6, column), "{channel}: {what}");
        assert!(!what.contains(SECRET), "{what}");
    }
}

#[test]
fn a_channel_that_others_could_write_to_is_warned_of() {
    for (address, more, warned) in [
        ("127.0.0.1:1", "", false),
        ("[::1]:1", "", false),
        ("[::ffff:127.0.0.1]:1", "", false),
        ("localhost:1", "", false),
        ("127.0.0.1:1\"\nproxy_protocol = true\n#\"", "", true),
        (":1", "", true),
        ("0.0.0.0:1", "", true),
        ("chat.example:1", "", true),
        ("unix:chat", "", true),
        (":1\"\nrelay = { to = \"a:1\" }\n[[listeners]]\naddress = \"127.0.0.1:2", "", false),
        ("127.0.0.1:1\"\n[[listeners]]\naddress = \"192.0.2.1:1", "", true),
        (":1", "publish = \"anyone\"", false),
        (":1", "publish = \"nobody\"", false),
    ] {
        let text = with(address, &format!("{{ {more} }}"));
        let config = Config::parse("x.toml", &text).unwrap_or_else(|error| panic!("{error}"));
        let line = text.lines().position(|line| line.starts_with("channel")).unwrap() + 1;
        // Not each of them asks the upstream.
        let found = config
            .warnings
            .iter()
            .filter(|warning| !warning.contains("no route or relay forwards"));
        let found: Vec<_> = found.collect();
        assert_eq!(found.len(), usize::from(warned), "{address} {more}: {found:?}");
        if warned {
            let start = format!("x.toml:{line}:11: nobody may publish to /c on ");
            assert!(found[0].starts_with(&start), "{found:?}");
            assert!(found[0].contains("expected publish = \"token\""), "{found:?}");
        }
    }
    assert!(Config::demo().warnings.is_empty());
}
