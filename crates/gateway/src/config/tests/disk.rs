//! Files that cannot be read, and files that a configuration names.

use super::super::*;

#[test]
fn unreadable_files_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    let error = Config::read(&path).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot read the configuration /") && error.contains("No such file"),
        "{error}"
    );
    std::fs::write(&path, b"a\xff").unwrap();
    let error = Config::read(&path).unwrap_err().to_string();
    assert!(error.ends_with("byte 1 is not UTF-8"), "{error}");
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
    let config = Config::read(root.join("x.toml")).unwrap_or_else(|error| panic!("{error}"));
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
        let found = match Config::read(&path) {
            Ok(_) => Vec::new(),
            Err(ConfigError::Wrong { mistakes, .. }) => mistakes,
            Err(error) => panic!("{error}"),
        };
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
        match Config::read(&path) {
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
        let read = Config::read(&path);
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
    let config = Config::read(root.join("x.toml")).unwrap_or_else(|error| panic!("{error}"));
    let [warning] = &config.warnings[..] else { panic!("{:?}", config.warnings) };
    assert!(warning.contains("x.toml:3:23: the certificate "), "{warning}");
    assert!(warning.contains("a.pem has expired on 2002-01-01T00:00:00Z"), "{warning}");
}
