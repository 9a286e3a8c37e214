//! The rights of channels, as an operator meets them.

use std::fs;
use std::io::Write;
use std::process::Command;

use serde_json::Value;

use crate::stage::{Server, Site, response, until};
use crate::superpoll;
use superpoll_test_support::tokens::{SECRET, token};

fn text(listener: &str, channel: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"{listener}\"\n[[hosts]]\n[[hosts.routes]]\npath = \"/news\"\n\
         channel = {{ {channel} }}\n[access_log]\npath = \"access\"\nformat = \"json\"\n\
         [log]\npath = \"events\"\nformat = \"json\"\n"
    )
}

/// Publishes, and returns the answer.
fn post(server: &Server, target: &str, fields: &str) -> String {
    let mut stream = server.connect();
    let head =
        format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n{fields}\r\nhi");
    stream.write_all(head.as_bytes()).unwrap();
    response(&mut stream)
}

fn check(site: &Site, name: &str, variables: &[(&str, &str)]) -> (bool, String, String) {
    let mut command = superpoll();
    command.args(["serve", "--check", "-c", name]).current_dir(site.path("."));
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

fn started(site: &Site, name: &str, variables: &[(&str, &str)]) -> Server {
    let mut command = superpoll();
    command.args(["serve", "-c", name]).current_dir(site.path("."));
    command.envs(variables.iter().copied());
    Server::of(command, 1)
}

#[test]
fn an_open_channel_is_warned_of_and_closed_to_publishers() {
    let site = Site::new();
    site.write("open.toml", &text("0.0.0.0:0", ""));
    let (is_right, told, warned) = check(&site, "open.toml", &[]);
    assert!(is_right);
    assert_eq!(told, "superpoll: the configuration is right\n");
    let start = "superpoll: open.toml:6:11: nobody may publish to /news on 0.0.0.0:0 until";
    assert!(warned.starts_with(start) && warned.lines().count() == 1, "{warned}");
    let server = started(&site, "open.toml", &[]);
    let answer = post(&server, "/news", "");
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(answer.contains("{\"error\":\"publishing to /news is closed here"), "{answer}");
    // Once for many.
    for _ in 0..20 {
        post(&server, "/news", "");
    }
    server.finish_silently();
    let events = fs::read_to_string(site.path("events")).unwrap();
    let events: Vec<Value> =
        events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |name: &str| events.iter().filter(|event| event["event"] == name).collect::<Vec<_>>();
    let [warning] = of("configuration-warning")[..] else { panic!("{events:?}") };
    assert!(warning["message"].as_str().unwrap().starts_with("open.toml:6:11: "), "{warning}");
    let refused = of("channel-refused");
    assert!(!refused.is_empty() && refused.len() < 20, "{refused:?}");
    assert_eq!((&refused[0]["channel"], &refused[0]["use"]), (&"/news".into(), &"publish".into()));
}

#[test]
fn the_demonstration_is_open_wherever_it_listens() {
    for listener in ["127.0.0.1:0", "0.0.0.0:0"] {
        let server = Server::start(&["--listen", listener]);
        let answer = post(&server, "/demo/chat", "");
        assert!(answer.starts_with("HTTP/1.1 201 "), "{listener}: {answer}");
        server.finish();
    }
}

#[test]
fn a_key_comes_from_the_environment() {
    let site = Site::new();
    let channel = "publish = \"token\", token = { key = \"env:CHAT_KEY\" }";
    site.write("token.toml", &text("0.0.0.0:0", channel));
    for (value, what) in [
        (None, "the variable CHAT_KEY is not set in the environment"),
        (Some(""), "the variable CHAT_KEY is empty"),
        (Some("hunter2"), "the variable CHAT_KEY is a secret of 7 bytes"),
    ] {
        let variables: Vec<(&str, &str)> =
            value.map(|value| ("CHAT_KEY", value)).into_iter().collect();
        let (is_right, _, error) = check(&site, "token.toml", &variables);
        let start = format!("superpoll: token.toml:6:48: {what}");
        assert!(!is_right && error.starts_with(&start), "{error}");
        assert!(!error.contains("hunter2") && error.lines().count() == 1, "{error}");
    }
    let variables = [("CHAT_KEY", SECRET)];
    let (is_right, _, warned) = check(&site, "token.toml", &variables);
    assert!(is_right && warned.is_empty(), "{warned}");
    let server = started(&site, "token.toml", &variables);
    let good = token(&[], &["/news"], 600);
    let answer = post(&server, "/news", &format!("Authorization: Bearer {good}\r\n"));
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    let answer = post(&server, "/news", "");
    assert!(answer.contains("{\"error\":\"publishing needs a token with /news\"}"), "{answer}");
    let answer = post(&server, &format!("/news?after=1&token={good}"), "");
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    let bad = good.replace('.', ".x");
    assert!(post(&server, &format!("/news?token={bad}"), "").starts_with("HTTP/1.1 401 "));
    until("all is logged", || {
        fs::read_to_string(site.path("access")).unwrap_or_default().lines().count() == 4
    });
    server.finish_silently();
    let logs =
        [site.path("access"), site.path("events")].map(|path| fs::read_to_string(path).unwrap());
    for part in good.split('.') {
        assert!(logs.iter().all(|log| !log.contains(part)), "{logs:?}");
    }
    assert!(logs[0].contains("\"target\":\"/news?after=1&token=***\""), "{}", logs[0]);
}

#[test]
fn a_broken_key_keeps_the_configuration_that_there_is() {
    let site = Site::new();
    let channel = "publish = \"token\", token = { key = \"file:key\" }";
    site.write("token.toml", &text("127.0.0.1:0", channel));
    site.write("key", &format!("{SECRET}\n"));
    let server = started(&site, "token.toml", &[]);
    let good = format!("Authorization: Bearer {}\r\n", token(&[], &["/news"], 600));
    assert!(post(&server, "/news", &good).starts_with("HTTP/1.1 201 "));
    let events = || fs::read_to_string(site.path("events")).unwrap();
    for (key, what) in [("short", "is a secret of 5 bytes"), ("", "is empty")] {
        site.write("key", key);
        server.signal("HUP");
        until("the configuration is refused", || events().contains(what));
        assert!(events().contains("token.toml:6:48: "), "{}", events());
        assert!(post(&server, "/news", &good).starts_with("HTTP/1.1 201 "));
    }
    // Another key is another matter: the old token is not good any more.
    site.write("key", "another secret of thirty-two bytes");
    server.signal("HUP");
    until("it is reloaded", || events().contains("reloaded the configuration"));
    assert!(post(&server, "/news", &good).starts_with("HTTP/1.1 401 "));
    server.finish_silently();
}

#[test]
fn openssl_makes_keys_that_are_right() {
    let Some(openssl) = crate::stage::tool("openssl") else {
        return eprintln!("skipped: there is no openssl");
    };
    let site = Site::new();
    for (arguments, is_right) in [
        (&["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"][..], true),
        (&["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"], true),
        (&["-algorithm", "ED25519"], true),
        (&["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"], false),
    ] {
        let run = |arguments: &[&str]| {
            let output =
                Command::new(&openssl).args(arguments).current_dir(site.path(".")).output();
            let output = output.unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        run(&[&["genpkey", "-out", "private.pem"], arguments].concat());
        run(&["pkey", "-in", "private.pem", "-pubout", "-out", "public.pem"]);
        for (name, expected) in [("public.pem", is_right), ("private.pem", false)] {
            let channel = format!("publish = \"token\", token = {{ key = \"file:{name}\" }}");
            site.write("token.toml", &text("127.0.0.1:0", &channel));
            let (found, _, error) = check(&site, "token.toml", &[]);
            assert_eq!(found, expected, "{arguments:?} {name}: {error}");
        }
    }
}
