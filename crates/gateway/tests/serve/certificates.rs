//! The choice among certificates, their renewal, and the certificates of clients.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use futures_rustls::rustls::SupportedProtocolVersion;
use futures_rustls::rustls::version::{TLS12, TLS13};
use superpoll_rt::BackendKind;

use crate::stage::Stage;
use crate::tls::{Authority, TlsClient, stage};

static OLD: [&SupportedProtocolVersion; 1] = [&TLS12];
static NEW: [&SupportedProtocolVersion; 1] = [&TLS13];

#[test]
fn clients_get_the_certificate_of_the_name_that_they_ask_for() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("Test");
    let [first, wild, exact] =
        [&["first.test"][..], &["*.example.test"], &["a.example.test", "b.test"]]
            .map(|names| authority.issue(names, 2090));
    let files = [
        first.write(folder.path(), "first"),
        format!(
            "certificates = [{{ {} }}, {{ {} }}]",
            wild.write(folder.path(), "wild"),
            exact.write(folder.path(), "exact")
        ),
    ];
    let stage = stage(folder.path(), &files.join(", "));
    for (name, expected) in [
        ("first.test", &first),
        ("x.example.test", &wild),
        ("A.example.test", &exact),
        ("b.test", &exact),
        ("x.y.example.test", &first),
        ("example.test", &first),
        ("unknown.test", &first),
        // A client that connects to an address sends no name.
        ("127.0.0.1", &first),
    ] {
        for versions in [&OLD, &NEW] {
            let client = TlsClient { versions, ..TlsClient::new(name) };
            let (shown, answer) = client.get(&stage.addresses[0], "/hello.txt").unwrap();
            assert_eq!(shown, expected.der.to_vec(), "{name}");
            assert!(answer.ends_with("hello\n"), "{answer}");
        }
    }
}

#[test]
fn old_versions_are_refused_where_they_are_not_wanted() {
    for (minimum, old_works) in
        [("", true), ("min_version = \"1.2\", ", true), ("min_version = \"1.3\", ", false)]
    {
        let folder = tempfile::tempdir().unwrap();
        let own = Authority::new("Test").issue(&["a.test"], 2090);
        let stage = stage(folder.path(), &format!("{minimum}{}", own.write(folder.path(), "own")));
        let old = TlsClient { versions: &OLD, ..TlsClient::new("a.test") };
        let new = TlsClient { versions: &NEW, ..TlsClient::new("a.test") };
        assert_eq!(old.get(&stage.addresses[0], "/hello.txt").is_ok(), old_works, "{minimum}");
        assert!(new.get(&stage.addresses[0], "/hello.txt").is_ok(), "{minimum}");
    }
}

/// A server that answers each request with the head that it got.
fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            std::thread::spawn(move || {
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    if stream.read_line(&mut head).unwrap_or(0) == 0 {
                        return;
                    }
                }
                let length = head.len();
                let _ = write!(
                    stream.get_mut(),
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{head}"
                );
            });
        }
    });
    address
}

#[test]
fn certificates_of_clients_are_verified_and_told_to_servers() {
    let server = echo();
    let (authority, other) = (Authority::new("Clients"), Authority::new("Clients"));
    let good = authority.issue(&["ada.test"], 2090);
    let expired = authority.issue(&["ada.test"], 2002);
    let foreign = other.issue(&["ada.test"], 2090);
    for (rule, is_required) in [
        ("", true),
        ("client_certificates = \"required\", ", true),
        ("client_certificates = \"optional\", ", false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, &authority.pem).unwrap();
        let own = Authority::new("Test").issue(&["a.test"], 2090).write(folder.path(), "own");
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\ntls = {{ client_ca = {ca:?}, {rule}{own} }}\n\
             [upstreams.app]\nservers = [{{ address = {server:?} }}]\n\
             [[hosts]]\n[[hosts.routes]]\nproxy = {{ upstream = \"app\", trust_forwarded = true }}\n"
        );
        let stage = Stage::new(BackendKind::Adaptive, 1, &text);
        let forged = "GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close, client-cert\r\n\
                      client-cert: :AAAA:\r\nclient-cert-chain: :BBBB:\r\n\
                      x-client-subject: CN=root\r\nX_Client_Subject: CN=root\r\n\r\n";
        let ask = |shows| {
            let client = TlsClient { shows, ..TlsClient::new("a.test") };
            client.ask(&stage.addresses[0], forged).map(|(_, answer)| answer.to_lowercase())
        };
        let answer = ask(Some(&good)).unwrap();
        let encoded = data_encoding::BASE64.encode(&good.der);
        let expected = format!("\r\nclient-cert: :{encoded}:\r\n").to_lowercase();
        assert_eq!(answer.matches(&expected).count(), 1, "{answer}");
        let subject = "\r\nx-client-subject: cn=ada.test,o=example\\, inc.\r\n";
        assert_eq!(answer.matches(subject).count(), 1, "{answer}");
        assert!(
            !answer.contains("root") && !answer.contains("aaaa:\r") && !answer.contains("bbbb"),
            "{answer}"
        );
        for wrong in [&expired, &foreign] {
            let outcome = ask(Some(wrong));
            assert!(outcome.is_err(), "{rule}: {outcome:?}");
        }
        match ask(None) {
            Ok(answer) => {
                assert!(!is_required, "{answer}");
                assert!(answer.starts_with("http/1.1 200"), "{answer}");
                assert!(!answer.contains("client"), "{answer}");
            }
            Err(error) => assert!(is_required, "{error}"),
        }
    }
}

#[test]
fn new_files_are_used_without_a_reload_and_broken_ones_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let authority = Authority::new("Test");
    let issue = || authority.issue(&["a.test"], 2090);
    let (first, second, third) = (issue(), authority.issue(&["a.test"], 2091), issue());
    let stage = stage(root, &first.write(root, "own"));
    let client = TlsClient::new("a.test");
    let to = &stage.addresses[0];
    let shown = || client.get(to, "/hello.txt").unwrap().0;
    let metric = |name: &str| -> f64 {
        let (_, answer) = client.get(to, "/metrics").unwrap();
        let found = answer.lines().find_map(|line| line.strip_prefix(name));
        found.unwrap_or_else(|| panic!("{answer}")).trim().parse().unwrap()
    };
    let expiry = || metric("superpoll_tls_certificate_expiry_timestamp_seconds{name=\"a.test\"}");
    let failures = || metric("superpoll_tls_certificate_failures_total");
    assert_eq!(shown(), first.der.to_vec());
    assert_eq!((failures(), expiry()), (0.0, 3_818_361_600.0));
    // Written in place.
    let begun = Instant::now();
    second.write(root, "own");
    let took = begun.elapsed();
    // The files are looked at every two seconds, and one that is new is looked at again.
    let soon = |holds: &dyn Fn() -> bool| {
        stage.elapse_until(Duration::from_secs(1), Duration::from_secs(10), holds);
    };
    soon(&|| shown() == second.der.to_vec());
    assert_eq!(expiry(), 3_849_897_600.0);
    let failed = failures();
    // The server may have found the one file without the other.
    assert!(failed == 0.0 || took >= Duration::from_secs(1), "{failed} failures");
    // A key without its certificate.
    std::fs::write(root.join("own.key"), third.key.serialize_pem()).unwrap();
    soon(&|| failures() > failed);
    assert_eq!(shown(), second.der.to_vec());
    // Renamed over.
    std::fs::write(root.join("next.pem"), &third.pem).unwrap();
    std::fs::rename(root.join("next.pem"), root.join("own.pem")).unwrap();
    soon(&|| shown() == third.der.to_vec());
    assert_eq!(failures(), failed + 1.0);
}
