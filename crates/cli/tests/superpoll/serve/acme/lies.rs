//! An authority that is down, slow, or lies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rcgen::{CertificateParams, KeyPair};

use crate::serve::acme::authority::{Authority, Deed, Lie, Request, Response};
use crate::serve::acme::client::shown;
use crate::stage::{Server, tool};

/// Lies about the answers at a path.
fn at(path: &'static str, lie: impl Fn(&mut Response) -> Deed + Send + Sync + 'static) -> Lie {
    Arc::new(move |request: &Request, response: &mut Response| {
        match request.path.trim_start_matches('/').split('/').next() == Some(path) {
            true => lie(response),
            false => Deed::Answer,
        }
    })
}

/// Returns the certificate of another key.
fn other(name: &str) -> String {
    let params = CertificateParams::new([name.to_owned()]).unwrap();
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
}

/// Checks that a server says this about an authority, and goes on.
fn check(what: &str, lie: Lie, expected: &str) {
    check_name("a.example.org", what, lie, expected);
}

fn check_name(name: &str, what: &str, lie: Lie, expected: &str) {
    let authority = Authority::start(lie);
    let server = Server::of(authority.command(name), 2);
    server.says(&format!("no certificate for {name} from https://localhost:"));
    let errors = server.errors();
    assert!(errors.contains(expected), "{what}: {errors}");
    assert_eq!(errors.lines().count(), 1, "{what}: {errors}");
    assert!(errors.len() < 2_000, "{what}: {} bytes of log", errors.len());
    assert!(errors.contains("the next attempt is in "), "{what}: {errors}");
    assert_eq!(shown(server.at(0), name), None, "{what}");
    let certificate = authority.store().join(format!("{name}.pem"));
    assert!(!certificate.exists(), "{what}: a certificate was stored");
    server.signal("TERM");
    assert!(server.ended().0.success(), "{what}");
}

#[test]
fn each_lie_is_named_in_one_line_and_changes_nothing() {
    let Some(_) = tool("openssl") else { return };
    let body = |text: &'static str| {
        move |response: &mut Response| {
            response.body = text.to_owned();
            Deed::Answer
        }
    };
    check("garbage", at("dir", body("garbage")), "(de)serialize JSON");
    check("an empty directory", at("dir", body("{}")), "(de)serialize JSON");
    check(
        "a page",
        at("dir", |response| {
            response.kind = "text/html";
            Deed::Answer
        }),
        "text/html",
    );
    check(
        "a redirect",
        at("dir", |response| {
            response.status = 302;
            response.lines = "Location: https://other.example/\r\n".to_owned();
            Deed::Answer
        }),
        "redirects to \"https://other.example/\"",
    );
    check("an endless body", at("dir", |_| Deed::Endless), "more than 262144 bytes");
    check("no answer", at("account", |_| Deed::Close), "the exchange with");
    check(
        "endless text in a problem",
        at("new", |response| {
            response.status = 403;
            response.kind = "application/problem+json";
            response.body =
                format!("{{\"type\": \"x\", \"detail\": \"{}\"}}", "a\\n".repeat(50_000));
            Deed::Answer
        }),
        "a a a",
    );
    check(
        "URLs without TLS",
        at("dir", |response| {
            response.body = response.body.replace("https:", "http:");
            Deed::Answer
        }),
        "does not begin with https:",
    );
    check(
        "a rate limit",
        at("new", |response| {
            response.status = 429;
            response.kind = "application/problem+json";
            response.lines = "Retry-After: 7200\r\n".to_owned();
            let kind = "urn:ietf:params:acme:error:rateLimited";
            response.body = format!("{{\"type\": \"{kind}\", \"detail\": \"too many\"}}");
            Deed::Answer
        }),
        "the next attempt is in 1h 59m",
    );
}

#[test]
fn certificates_that_are_of_no_use_are_refused() {
    let Some(_) = tool("openssl") else { return };
    let sends = |text: String| {
        at("certificate", move |response| {
            response.body.clone_from(&text);
            Deed::Answer
        })
    };
    check("no PEM", sends("garbage".to_owned()), "has no certificate");
    check("another key", sends(other("a.example.org")), "does not belong to");
    let honest: Lie = Arc::new(|_, _| Deed::Answer);
    check_name("wrong.example.org", "another name", honest.clone(), "is for the names \"other");
    check_name("ended.example.org", "an end", honest, "it has ended");
}

#[test]
fn an_authority_that_does_not_answer_is_given_up() {
    let Some(_) = tool("openssl") else { return };
    check("silence", at("dir", |_| Deed::Silence), "within 30");
}

#[test]
fn an_authority_that_cannot_prove_itself_is_not_talked_to() {
    let Some(_) = tool("openssl") else { return };
    let is_asked = Arc::new(AtomicBool::new(false));
    let asked = is_asked.clone();
    let authority = Authority::start(Arc::new(move |_, _| {
        asked.store(true, Ordering::Relaxed);
        Deed::Answer
    }));
    std::fs::write(authority.folder.path().join("ca.pem"), other("localhost")).unwrap();
    let server = Server::of(authority.command("a.example.org"), 2);
    server.says("no certificate for a.example.org");
    server.says("the TLS handshake with localhost");
    assert!(!is_asked.load(Ordering::Relaxed));
    server.signal("TERM");
    assert!(server.ended().0.success());
}

#[test]
fn a_renewal_that_fails_leaves_the_certificate_in_use() {
    let Some(_) = tool("openssl") else { return };
    let is_down = Arc::new(AtomicBool::new(false));
    let down = is_down.clone();
    let authority = Authority::start(Arc::new(move |request, response| {
        if request.path.starts_with("/renewal/") {
            // The next renewal is wanted at once, and will fail.
            down.store(true, Ordering::Relaxed);
            response.body = response.body.replace("2050", "2000");
        } else if down.load(Ordering::Relaxed) && request.path == "/new" {
            return Deed::Close;
        }
        Deed::Answer
    }));
    let server = Server::of(authority.command("a.example.org"), 2);
    server.says("got a certificate for a.example.org");
    let first = shown(server.at(0), "a.example.org").unwrap();
    server.says("no certificate for a.example.org");
    server.says("the certificate in use is valid until");
    assert!(is_down.load(Ordering::Relaxed));
    assert_eq!(shown(server.at(0), "a.example.org"), Some(first));
    server.signal("TERM");
    assert!(server.ended().0.success());
}
