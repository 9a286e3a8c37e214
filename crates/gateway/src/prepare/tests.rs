//! Files that a configuration names, and mistakes about them at their places.

use std::path::PathBuf;

use super::{Path, read};
use crate::config::{
    Action, Address, Config, ConfigError, Mistake, RelayEnd, Route, ServerAddress,
};

const HASH: &str = "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";
const BEFORE: &str = "[[listeners]]\naddress = \":1\"\n[[hosts]]\n";
const SECRET: &str = "a secret of thirty-two bytes: 32";
const HOST: &str = "\n[[hosts]]\n[[hosts.routes]]\npath = \"/c\"\nchannel = ";

/// The mistakes of a configuration in a file.
fn mistakes(path: &Path) -> Vec<Mistake> {
    match read(path) {
        Ok(_) => Vec::new(),
        Err(ConfigError::Wrong { mistakes }) => mistakes,
        Err(error) => panic!("{error}"),
    }
}

/// A certificate and its key in a folder.
fn with_certificate(folder: &Path) {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("a.pem"), pair.cert.pem()).unwrap();
    std::fs::write(folder.join("a.key"), pair.signing_key.serialize_pem()).unwrap();
}

#[test]
fn paths_are_relative_to_the_folder_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    with_certificate(root);
    std::fs::create_dir(root.join("www")).unwrap();
    let text = r#"
listeners = [
    { address = ":1", tls = { certificate = "a.pem", key = "a.key" } },
    { address = "unix:a.sock", relay = { to = "unix:sub/b.sock" } },
]
hosts = [{ routes = [{ files = { root = "www" } }, { path = "/x", files = { root = "/" } }] }]
log = { path = "own" }
access_log = { path = "log" }
[upstreams.app]
servers = [{ address = "unix:c.sock" }]
"#;
    std::fs::write(root.join("x.toml"), text).unwrap();
    let config = read(root.join("x.toml")).unwrap_or_else(|error| panic!("{error}"));
    let files = &config.listeners[0].tls.as_ref().unwrap().certificates[0];
    assert_eq!(
        (files.certificate.clone(), files.key.clone()),
        (root.join("a.pem"), root.join("a.key"))
    );
    assert_eq!(config.listeners[1].address, Address::Unix(root.join("a.sock")));
    let relay = config.listeners[1].relay.as_ref().unwrap();
    let to = RelayEnd::Address(Address::Unix(root.join("sub/b.sock")));
    assert_eq!(relay.to, Some(to));
    let root_of = |route: &Route| match &route.action {
        Action::Files(files) => files.root.clone(),
        other => panic!("{other:?}"),
    };
    let roots: Vec<_> = config.hosts[0].routes.iter().map(root_of).collect();
    assert_eq!(roots, [root.join("www"), PathBuf::from("/")]);
    assert_eq!(config.log.path, root.join("own"));
    assert_eq!(config.access_log.unwrap().path, root.join("log"));
    let server = &config.upstreams["app"].servers[0];
    assert_eq!(server.address, ServerAddress::Address(Address::Unix(root.join("c.sock"))));
    // Without a file they stay as they are, and need not exist.
    let config = Config::parse("x", text).unwrap();
    assert_eq!(config.listeners[0].tls.as_ref().unwrap().certificates[0].key, Path::new("a.key"));
}

#[test]
fn missing_files_are_reported_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    with_certificate(root);
    std::fs::create_dir(root.join("www")).unwrap();
    std::fs::write(root.join("empty"), b"").unwrap();
    std::fs::write(root.join("cut"), b"-----BEGIN CERTIFICATE-----\nAAAA\n").unwrap();
    std::fs::write(
        root.join("noise"),
        b"-----BEGIN CERTIFICATE-----\n\xff*\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    let other = rcgen::KeyPair::generate().unwrap();
    std::fs::write(root.join("b.key"), other.serialize_pem()).unwrap();
    let long = "s".repeat(100);
    for (certificate, key, files, socket, line, what) in [
        ("a.pem", "a.key", "www", "s", 0, ""),
        ("none", "a.key", "www", "s", 3, "cannot read the certificate"),
        ("empty", "a.key", "www", "s", 3, "empty has no certificate"),
        ("a.key", "a.key", "www", "s", 3, "a.key has no certificate"),
        ("cut", "a.key", "www", "s", 3, "is no PEM file of a certificate"),
        ("noise", "a.key", "www", "s", 3, "is no PEM file of a certificate"),
        ("a.pem", "none", "www", "s", 4, "cannot read the private key"),
        ("a.pem", "a.pem", "www", "s", 4, "a.pem has no private key"),
        ("a.pem", "b.key", "www", "s", 3, "b.key does not belong to the certificate"),
        ("a.pem", "a.key", "none", "s", 6, "cannot read the folder"),
        ("a.pem", "a.key", "a.pem", "s", 6, "cannot read the folder"),
        ("a.pem", "a.key", "www", &long, 8, "the path of the socket is"),
    ] {
        let text = format!(
            "[[listeners]]\naddress = \":1\"\ntls.certificate = {certificate:?}\ntls.key = {key:?}\n\
             [[hosts]]\nroutes = [{{ files = {{ root = {files:?} }} }}]\n\
             [[listeners]]\naddress = \"unix:{socket}\"\n"
        );
        let path = root.join("x.toml");
        std::fs::write(&path, text).unwrap();
        let found = mistakes(&path);
        if line == 0 {
            assert_eq!(found, []);
            continue;
        }
        let [mistake] = found.as_slice() else { panic!("{certificate} {key}: {found:?}") };
        assert_eq!(mistake.line, line, "{mistake:?}");
        assert!(mistake.what.contains(what) && !mistake.what.contains('\n'), "{mistake:?}");
    }
}

#[test]
fn a_route_for_one_file_is_told_to_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    std::fs::create_dir_all(root.join("www/v1.2")).unwrap();
    std::fs::write(root.join("www/sw.js"), "").unwrap();
    std::fs::write(root.join("www/app"), "").unwrap();
    let path = root.join("x.toml");
    for (route, more, is_wrong) in [
        ("/sw.js", "", true),
        ("/a/sw.js", "", true),
        ("/sw.js", ", rewrite = \"/sw.js\"", false),
        ("/sw.js/", "", false),
        ("/none.js", "", false),
        ("/v1.2", "", false),
        ("/app", "", false),
        ("/", "", false),
    ] {
        let text = format!(
            "[[listeners]]\naddress = \":1\"\n[[hosts]]\n\
             routes = [{{ path = \"{route}\", files = {{ root = \"www\" }}{more} }}]\n"
        );
        std::fs::write(&path, text).unwrap();
        match read(&path) {
            Ok(_) => assert!(!is_wrong, "{route}"),
            Err(ConfigError::Wrong { mistakes, .. }) => {
                let [mistake] = mistakes.as_slice() else { panic!("{route}: {mistakes:?}") };
                let column = "routes = [{ path = \"\", files = { root = ".len() + route.len() + 1;
                assert_eq!((mistake.line, mistake.column), (4, column), "{mistake:?}");
                assert!(mistake.what.contains("expected rewrite = \"/sw.js\""), "{mistake:?}");
                assert!(is_wrong, "{route}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_listener_whose_name_is_unknown_is_a_mistake_at_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.toml");
    for (host, is_known) in [("-", false), ("localhost", true), ("127.0.0.1", true), ("", true)] {
        let text = format!(
            "[[listeners]]\naddress = \"{host}:80\"\n[[hosts]]\nroutes = [{{ channel = {{}} }}]\n"
        );
        std::fs::write(&path, &text).unwrap();
        let read = read(&path);
        if is_known {
            assert!(read.is_ok(), "{read:?}");
            continue;
        }
        let error = read.unwrap_err().to_string();
        assert!(
            error.contains("x.toml:2:11: cannot look up the listener's address -:80: "),
            "{error}"
        );
        // A text without a file is not compared with this machine.
        assert!(Config::parse("x", &text).is_ok());
    }
}

#[test]
fn an_expired_certificate_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mut params = rcgen::CertificateParams::new(["a.example".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    std::fs::write(root.join("a.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(root.join("a.key"), key.serialize_pem()).unwrap();
    let text = "[[listeners]]\naddress = \":1\"\ntls = { certificate = \"a.pem\", key = \"a.key\" }\n\
                [[hosts]]\nroutes = [{ redirect.to = \"//b.example\" }]\n";
    std::fs::write(root.join("x.toml"), text).unwrap();
    let config = read(root.join("x.toml")).unwrap_or_else(|error| panic!("{error}"));
    let [warning] = &config.warnings[..] else { panic!("{:?}", config.warnings) };
    assert!(warning.contains("x.toml:3:23: the certificate "), "{warning}");
    assert!(warning.contains("a.pem has expired on 2002-01-01T00:00:00Z"), "{warning}");
}

#[test]
fn files_of_rules_are_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "{BEFORE}errors = {{ 404 = \"404.html\" }}\n[[hosts.routes]]\nredirect.to = \"/x\"\n\
         basic_auth.file = \"users\"\n"
    );
    let path = folder.path().join("x.toml");
    std::fs::write(&path, &text).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("x.toml:4:18: cannot read the page for errors "), "{error}");
    assert!(error.contains("x.toml:7:19: cannot read the users of "), "{error}");
    std::fs::write(folder.path().join("404.html"), "gone").unwrap();
    std::fs::write(folder.path().join("users"), format!("joe:{HASH}\nann:x\n")).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("/users:2: this is no known hash"), "{error}");
    std::fs::write(folder.path().join("users"), format!("joe:{HASH}\n")).unwrap();
    let config = read(&path).unwrap_or_else(|error| panic!("{error}"));
    let users = config.hosts[0].routes[0].rules.basic_auth.as_ref().unwrap();
    assert_eq!(users.file.as_ref().unwrap(), &folder.path().join("users"));
}

#[test]
fn key_files_that_cannot_be_used_are_reported_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let pair = rcgen::KeyPair::generate().unwrap();
    for (name, bytes) in [
        ("good.pem", pair.public_key_pem()),
        ("good.txt", format!("{SECRET}\n")),
        (
            "good.jwks",
            "{\"keys\":[{\"kty\":\"oct\",\"k\":\"".to_owned() + &"A".repeat(43) + "\"}]}",
        ),
        ("private.pem", pair.serialize_pem()),
        ("empty", String::new()),
        ("short", "short\r\n".to_owned()),
        ("large", "x".repeat((1 << 20) + 1)),
    ] {
        std::fs::write(root.join(name), bytes).unwrap();
    }
    for (token, what) in [
        ("key = \"file:good.pem\"", ""),
        ("key = \"file:good.txt\"", ""),
        ("jwks = \"good.jwks\"", ""),
        ("key = \"file:none\"", "cannot read the key"),
        ("key = \"file:.\"", "cannot read the key"),
        ("key = \"file:large\"", "it has more than 1 MiB"),
        ("key = \"file:empty\"", "empty is empty"),
        ("key = \"file:short\"", "short is a secret of 5 bytes"),
        ("key = \"file:private.pem\"", "private.pem is a private key"),
        ("key = \"file:good.jwks\"", "a set of keys is jwks = FILE"),
        ("key = \"env:SUPERPOLL_NO_SUCH_VARIABLE\"", "SUPERPOLL_NO_SUCH_VARIABLE is not set"),
        ("key = \"env:\"", "the variable  is not set"),
        ("jwks = \"good.txt\"", "is no set of keys"),
        ("jwks = \"none\"", "cannot read the set of keys"),
    ] {
        let text = format!(
            "[[listeners]]\naddress = \":1\"{HOST}{{ publish = \"token\" }}\n[hosts.routes.channel.token]\n"
        );
        let text =
            text.replace("channel = { publish = \"token\" }\n", "channel.publish = \"token\"\n");
        let text = text.replace("[hosts.routes.channel.token]\n", "channel.token.");
        let path = root.join("x.toml");
        std::fs::write(&path, format!("{text}{token}\n")).unwrap();
        let found = mistakes(&path);
        if what.is_empty() {
            assert_eq!(found, [], "{token}");
            continue;
        }
        let [mistake] = found.as_slice() else { panic!("{token}: {found:?}") };
        let column = "channel.token.".len() + token.find('"').unwrap() + 1;
        assert_eq!((mistake.line, mistake.column), (7, column), "{mistake:?}");
        assert!(mistake.what.contains(what) && !mistake.what.contains('\n'), "{mistake:?}");
    }
}

#[test]
fn a_build_without_redis_says_how_to_get_one_with_it() {
    assert_eq!(super::redis(true), Ok(()));
    let what = super::redis(false).unwrap_err();
    assert!(what.contains("expected no [broker]") && what.contains("--features redis"), "{what}");
}

#[test]
fn mistakes_of_the_text_and_of_the_files_are_reported_together_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.toml");
    let text = "[[listeners]]\naddress = \"-:80\"\nmode = \"0660\"\n[[hosts]]\n\
                routes = [{ files = { root = \"none\", gzip_level = 20 } }]\n\
                [log]\nlevel = \"loud\"\npath = \"none/log\"\n";
    std::fs::write(&path, text).unwrap();
    let found = mistakes(&path);
    let expected = [
        (2, 11, "cannot look up the listener's address"),
        (3, 8, "a TCP port has no permissions"),
        (5, 21, "gzip has no level 20"),
        (5, 21, "cannot read the folder"),
        (6, 1, "cannot write the log"),
        (7, 9, "\"loud\" is no level"),
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (mistake, (line, column, what)) in found.iter().zip(expected) {
        assert_eq!((mistake.line, mistake.column), (line, column), "{mistake:?}");
        assert!(mistake.what.starts_with(what), "{mistake:?}");
    }
}
