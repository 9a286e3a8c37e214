use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_rustls::rustls::pki_types::ServerName;
use futures_rustls::rustls::sign::CertifiedKey;
use futures_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection};
use superpoll_config::{Tls, TlsVersion};

use super::*;

fn pem(names: &[&str]) -> (String, String) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

fn certificate(names: &[&str]) -> Certificate {
    let (chain, key) = pem(names);
    Certificate::from_pem("test", &chain, &key).unwrap()
}

fn tls() -> Tls {
    Tls {
        certificates: Vec::new(),
        automatic: None,
        min_version: TlsVersion::Tls12,
        client: None,
        alpn: Vec::new(),
    }
}

fn is(found: Option<Arc<CertifiedKey>>, expected: &Certificate) -> bool {
    found.is_some_and(|found| found.cert == expected.key.cert)
}

#[test]
fn a_name_chooses_the_certificate() {
    let store = CertificateStore::new(None);
    assert!(store.select(Some("a.example")).is_none());
    let all: Vec<Certificate> = [
        &["first.example", "*.example"][..],
        &["a.example", "B.example"],
        &["*.a.example"],
        &["a.example"],
    ]
    .map(certificate)
    .into();
    for (index, one) in all.iter().enumerate() {
        store.install(&index.to_string(), one.clone());
    }
    for (name, expected) in [
        (None, 0),
        (Some("first.example"), 0),
        (Some("c.example"), 0),
        (Some("a.example"), 1),
        (Some("A.Example."), 1),
        (Some("b.example"), 1),
        (Some("x.a.example"), 2),
        (Some("x.y.a.example"), 0),
        (Some(".example"), 0),
        (Some("example"), 0),
        (Some("elsewhere.test"), 0),
        (Some("*.a.example"), 2),
        (Some(""), 0),
        (Some("."), 0),
    ] {
        assert!(is(store.select(name), &all[expected]), "{name:?}");
    }
    // A label stands for one certificate, at its place.
    let other = certificate(&["a.example"]);
    store.install("1", other.clone());
    assert!(is(store.select(Some("a.example")), &other));
    assert!(is(store.select(Some("b.example")), &all[0]));
    assert_eq!(store.states().len(), 4);
}

#[test]
fn facts_are_those_of_the_certificate() {
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let mut params = rcgen::CertificateParams::new(vec!["A.example".to_owned()]).unwrap();
    (params.not_before, params.not_after) =
        (rcgen::date_time_ymd(2001, 9, 9), rcgen::date_time_ymd(2065, 1, 24));
    let key = rcgen::KeyPair::generate().unwrap();
    let made = params.self_signed(&key).unwrap();
    let read = Certificate::from_pem("test", &made.pem(), &key.serialize_pem()).unwrap();
    assert_eq!(read.names(), ["a.example"]);
    assert_eq!((read.facts.not_before, read.not_after()), (at(999_993_600), at(2_999_980_800)));
    assert_eq!(read.refused_at(at(2_000_000_000)), None);
    let expired = read.refused_at(at(2_999_980_801)).unwrap().to_string();
    assert!(expired.starts_with("has expired on 2065-01-24T00:00:00Z"), "{expired}");
    let early = read.refused_at(at(999_993_599)).unwrap().to_string();
    assert!(early.contains("2001-09-09T00:00:00Z"), "{early}");
    // Certificates without an end have this date (RFC 5280, section 4.1.2.5).
    params.not_after = rcgen::date_time_ymd(9999, 12, 31);
    let made = params.self_signed(&key).unwrap();
    assert!(Certificate::from_pem("test", &made.pem(), &key.serialize_pem()).is_ok());
}

#[test]
fn wrong_files_are_named() {
    let ((chain, key), (_, other)) = (pem(&["a.example"]), pem(&["b.example"]));
    for (chain, key, what) in [
        (&*chain, &*other, "the key test does not belong to the certificate test"),
        ("", &key, "test has no certificate"),
        (&chain, "", "test has no private key"),
        (&chain, &chain, "test has no private key"),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            &key,
            "the certificate test cannot be used: ",
        ),
        (
            &chain,
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            "the key test cannot be used: ",
        ),
    ] {
        let error = Certificate::from_pem("test", chain, key).unwrap_err().to_string();
        assert!(error.starts_with(what) && !error.contains('\n'), "{error}");
    }
}

/// Does a handshake in memory. Returns the client's view of the certificate, and the protocol.
fn handshake(
    store: &Arc<CertificateStore>,
    name: &str,
    protocols: &[&[u8]],
) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let mut roots = RootCertStore::empty();
    for certificate in TRUSTED.with_borrow(Clone::clone) {
        roots.add(certificate).unwrap();
    }
    let provider = Arc::new(super::server_config::crypto_provider());
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let server = server_config(&tls(), false, store.clone(), &Arc::default()).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().ok()?;
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().ok()?;
        }
    }
    let group = client.negotiated_key_exchange_group().map(|group| group.name());
    assert_eq!(group, Some(provider.kx_groups[0].name()));
    let shown = client.peer_certificates().unwrap()[0].to_vec();
    Some((shown, client.alpn_protocol().map(<[u8]>::to_vec)))
}

thread_local! {
    static TRUSTED: std::cell::RefCell<Vec<futures_rustls::rustls::pki_types::CertificateDer<'static>>> =
        std::cell::RefCell::default();
}

fn trusted(names: &[&str]) -> Certificate {
    let certificate = certificate(names);
    TRUSTED.with_borrow_mut(|all| all.push(certificate.key.cert[0].clone()));
    certificate
}

#[test]
fn a_validation_sees_the_challenge_and_nothing_else() {
    let challenges: Arc<ChallengeCertificates> = Arc::default();
    let store = CertificateStore::new(Some(challenges.clone()));
    let (own, challenge) = (trusted(&["a.example"]), trusted(&["a.example"]));
    store.install("own", own.clone());
    let shown = |protocols: &[&[u8]]| handshake(&store, "a.example", protocols);
    let der = |one: &Certificate| one.key.cert[0].to_vec();
    assert_eq!(shown(&[ACME_TLS]), None);
    challenges.put("A.example", challenge.key.clone());
    let validated = Some((der(&challenge), Some(ACME_TLS.to_vec())));
    assert_eq!(shown(&[ACME_TLS]), validated);
    assert_eq!(shown(&[b"other", ACME_TLS]), validated);
    assert_eq!(shown(&[ACME_TLS, b"h2"]), Some((der(&own), Some(b"h2".to_vec()))));
    assert_eq!(shown(&[b"http/1.1"]), Some((der(&own), Some(b"http/1.1".to_vec()))));
    assert_eq!(shown(&[]), Some((der(&own), None)));
    assert_eq!(shown(&[b"other"]), None);
    challenges.remove("a.example");
    assert_eq!(shown(&[ACME_TLS]), None);
    // A listener without challenges does not speak the protocol.
    let plain = CertificateStore::new(None);
    plain.install("own", own.clone());
    assert_eq!(handshake(&plain, "a.example", &[ACME_TLS]), None);
}

#[test]
fn the_next_handshake_has_the_new_certificate() {
    let store = CertificateStore::new(None);
    assert_eq!(handshake(&store, "a.example", &[]), None);
    for _ in 0..2 {
        let own = trusted(&["a.example"]);
        store.install("a", own.clone());
        let (shown, _) = handshake(&store, "a.example", &[]).unwrap();
        assert_eq!(shown, own.key.cert[0].to_vec());
    }
}
