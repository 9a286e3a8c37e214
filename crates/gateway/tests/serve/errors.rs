//! Errors that a program can tell apart: the file or setting, and the kind of the mistake.

use std::error::Error as _;
use std::io;
use std::path::Path;

use superpoll_gateway::Config;
use superpoll_gateway::causes::{
    AuthoritiesError, AutomaticError, CertificateError, ClientTlsError, KeyError, KeyPlace,
    LineError, PasswordHashError, PemKind, RulesError, TokenKeyError, UsersErrorKind,
};
use superpoll_gateway::serve::{Error, Server};

/// Checks a configuration whose files are in a folder, `AT`, with more of the listener, of the
/// route and at the end.
fn check(folder: &Path, listener: &str, route: &str, more: &str) -> Error {
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n{listener}\n\
         [[hosts]]\nnames = [\"a.example\"]\n[[hosts.routes]]\npath = \"/c\"\n{route}\n{more}"
    );
    let text = text.replace("AT/", &format!("{}/", folder.display()));
    let config = Config::parse("test.toml", &text);
    Server::check(&config.unwrap_or_else(|error| panic!("{error}"))).unwrap_err()
}

/// Returns the last of the errors that caused another, if it is the kernel's.
fn kernel_error(error: &Error) -> Option<io::ErrorKind> {
    let mut last = error.source()?;
    while let Some(source) = last.source() {
        last = source;
    }
    last.downcast_ref::<io::Error>().map(io::Error::kind)
}

#[test]
fn a_program_learns_which_file_is_wrong_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let write = |name: &str, text: &str| std::fs::write(at.join(name), text).unwrap();
    let channel = "channel = {}";

    let users = format!("{channel}\nbasic_auth.file = \"AT/users\"");
    let error = check(at, "", &users, "");
    let Error::Rules(RulesError::Users(found)) = &error else { panic!("{error:?}") };
    assert!(matches!(found.kind, UsersErrorKind::Read(_)) && found.path == at.join("users"));
    assert_eq!(kernel_error(&error), Some(io::ErrorKind::NotFound));
    write("users", "# of old\njoe:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n");
    let error = check(at, "", &users, "");
    let Error::Rules(RulesError::Users(found)) = &error else { panic!("{error:?}") };
    let UsersErrorKind::Lines(lines) = &found.kind else { panic!("{error:?}") };
    let [(2, LineError::Hash(PasswordHashError::Weak("SHA-1")))] = lines[..] else {
        panic!("{error:?}")
    };

    let redirect = "redirect.to = \"/\"\nerrors = { 404 = \"AT/page.html\" }";
    let error = check(at, "", redirect, "");
    let Error::Rules(RulesError::Page(page)) = &error else { panic!("{error:?}") };
    assert_eq!(page.path, at.join("page.html"));
    assert_eq!(kernel_error(&error), Some(io::ErrorKind::NotFound));

    let token = "channel = { subscribe = \"token\", token = { key = \"file:AT/key\" } }";
    let error = check(at, "", token, "");
    assert_eq!(kernel_error(&error), Some(io::ErrorKind::NotFound));
    write("key", "-----BEGIN PRIVATE KEY-----\n");
    let error = check(at, "", token, "");
    let Error::ChannelKey(found) = &error else { panic!("{error:?}") };
    assert_eq!(found.path, "/c");
    let KeyError::Key { place: KeyPlace::File(path), source } = &found.source else {
        panic!("{error:?}")
    };
    assert!(*path == at.join("key") && matches!(source, TokenKeyError::WrongKind(_)), "{error:?}");

    let proxy = "proxy.upstream = \"up\"";
    let upstream =
        "[upstreams.up]\nservers = [{ address = \"127.0.0.1:1\" }]\ntls = { ca = \"AT/ca.pem\" }\n";
    let error = check(at, "", proxy, upstream);
    assert_eq!(kernel_error(&error), Some(io::ErrorKind::NotFound));
    write("ca.pem", "");
    let error = check(at, "", proxy, upstream);
    let Error::Upstream { name, source: ClientTlsError::Authorities { path, source } } = &error
    else {
        panic!("{error:?}")
    };
    assert!(name == "up" && *path == at.join("ca.pem"), "{error:?}");
    assert!(matches!(source, AuthoritiesError::Empty), "{error:?}");

    let tls = "tls = { certificate = \"AT/cert.pem\", key = \"AT/key.pem\" }";
    let error = check(at, tls, channel, "");
    let Error::Certificate(CertificateError::Read { kind, path, .. }) = &error else {
        panic!("{error:?}")
    };
    assert!(*kind == PemKind::Certificate && *path == at.join("cert.pem"), "{error:?}");
    assert_eq!(kernel_error(&error), Some(io::ErrorKind::NotFound));

    let acme = "tls = { acme = \"\", directory_ca = \"AT/ca.pem\" }";
    let error = check(at, acme, channel, "");
    let Error::AutomaticCertificates(AutomaticError::DirectoryCa { source, .. }) = &error else {
        panic!("{error:?}")
    };
    assert!(matches!(source, AuthoritiesError::Empty), "{error:?}");
}
