//! Connections that applications hold.

use crate::model::{Action, Config};
use crate::rights::KeySource;

const KEY: &str = "a secret of at least thirty-two bytes";

fn text(proxy: &str, route: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:80\"\n[[hosts]]\n[[hosts.routes]]\n\
         proxy = {{ upstream = \"app\", grip = {proxy} }}\n\
         [[hosts.routes]]\npath = \"/publish\"\ngrip = {route}\n\
         [upstreams.app]\nservers = [{{ address = \"127.0.0.1:1\" }}]\n"
    )
}

fn mistake(text: &str) -> String {
    Config::parse("a.toml", text).unwrap_err().to_string()
}

#[test]
fn routes_with_one_key_have_one_log() {
    let own = format!("{{ key = {KEY:?} }}");
    let config = Config::parse("a.toml", &text(&own, &own)).unwrap();
    assert_eq!(config.grips().len(), 1);
    assert_eq!(config.grips()[0].key, KeySource::Text(KEY.to_owned()));
    assert!(config.grips()[0].log().grip);
    let routes = &config.hosts[0].routes;
    assert!(routes.iter().any(|route| matches!(route.action, Action::Grip(_))));
    let other = "{ key = \"env:GRIP_KEY\" }";
    let config = Config::parse("a.toml", &text(&own, other)).unwrap();
    assert_eq!(config.grips().len(), 2);
}

#[test]
fn mistakes_are_named_with_their_place() {
    let own = format!("{{ key = {KEY:?} }}");
    let public = "-----BEGIN PUBLIC KEY-----\\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\\n-----END PUBLIC KEY-----\\n";
    for (route, what) in [
        ("{}".to_owned(), "grip without a key, expected key = \"env:NAME\""),
        ("{ key = \"changeme\" }".to_owned(), "key is a secret of 8 bytes, expected at least 32"),
        (
            format!("{{ key = \"{public}\" }}"),
            "key is a public key, expected a secret to sign with",
        ),
        (
            format!("{{ key = {KEY:?}, broker = true }}"),
            "there is no broker, expected [broker] with url = ADDRESS",
        ),
        (format!("{{ key = {KEY:?}, keep = 1 }}"), "keep"),
    ] {
        let found = mistake(&text(&own, &route));
        assert!(found.contains(what), "{route}: {found}");
        assert!(found.starts_with("a.toml:8:"), "{found}");
    }
    let compressed = text(&own, &own).replacen("grip = ", "compress = true, grip = ", 1);
    let found = mistake(&compressed);
    let what = "a.toml:5:22: responses of a route with grip are not compressed";
    assert!(found.starts_with(what), "{found}");
    let broker = "[broker]\nurl = \"redis://localhost\"\n";
    let shared = format!("{{ key = {KEY:?}, broker = true }}");
    let found = mistake(&(text(&own, &shared) + broker));
    assert!(found.contains("other uses of this key say otherwise"), "{found}");
    assert!(Config::parse("a.toml", &(text(&shared, &shared) + broker)).is_ok());
}

#[test]
fn a_route_to_the_same_servers_without_grip_is_a_warning() {
    let own = format!("{{ key = {KEY:?} }}");
    let with = |route: &str| {
        let more = format!("[[hosts]]\nnames = [\"b.example\"]\n[[hosts.routes]]\n{route}\n");
        let text = text(&own, &own).replace("[upstreams.app]", &(more + "[upstreams.app]"));
        Config::parse("a.toml", &text).unwrap().warnings
    };
    let warnings = with("proxy = { upstream = \"app\" }");
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.starts_with("a.toml:12:22: other routes to \"app\" have grip"), "{warning}");
    for quiet in [
        format!("proxy = {{ upstream = \"app\", grip = {own} }}"),
        "proxy = { upstream = \"app\", request_headers = { remove = [\"Grip-Sig\"] } }".to_owned(),
        "proxy = { upstream = \"other\" }\n[upstreams.other]\n\
         servers = [{ address = \"127.0.0.1:2\" }]"
            .to_owned(),
    ] {
        assert_eq!(with(&quiet), [] as [String; 0], "{quiet}");
    }
}
