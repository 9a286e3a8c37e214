//! The certificate that the gateway shows to servers.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_rustls::rustls::crypto::ring;
use futures_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use futures_rustls::rustls::server::WebPkiClientVerifier;
use futures_rustls::rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use superpoll_rt::BackendKind;

use crate::gateway::{Gateway, wait, whole};
use crate::origin::get;

/// An authority for servers and clients.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn issue(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap(), key)
    }

    fn write(&self, folder: &Path, name: &str) {
        let (certificate, key) = self.issue(name);
        std::fs::write(folder.join("client.pem"), certificate.pem()).unwrap();
        std::fs::write(folder.join("client.key"), key.serialize_pem()).unwrap();
    }

    /// Starts a server that demands a certificate of this authority, and answers with the length of
    /// the certificate's name and the name.
    fn serve(&self) -> String {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.as_ref().der().clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let (certificate, key) = self.issue("server.example");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let config = config.clone();
                thread::spawn(move || answer(config, stream));
            }
        });
        address
    }
}

/// Answers one request with the name in the client's certificate.
fn answer(config: Arc<ServerConfig>, stream: std::net::TcpStream) -> io::Result<()> {
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut reader = BufReader::new(StreamOwned::new(connection, stream));
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let stream = reader.get_mut();
    let shown = stream.conn.peer_certificates().map_or(&[][..], |chain| chain[0].as_ref());
    let has = |name: &str| shown.windows(name.len()).any(|bytes| bytes == name.as_bytes());
    let name = ["one.example", "two.example"].into_iter().find(|name| has(name)).unwrap_or("none");
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{name}",
        name.len()
    )?;
    stream.flush()?;
    stream.conn.send_close_notify();
    stream.flush()
}

#[test]
fn servers_are_shown_a_certificate_that_follows_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let authority = Authority::new();
    std::fs::write(root.join("ca.pem"), authority.0.as_ref().pem()).unwrap();
    authority.write(root, "one.example");
    let address = authority.serve();
    let upstream = |identity: bool| {
        let path = |name: &str| root.join(name).display().to_string();
        let identity = match identity {
            true => {
                format!(
                    ", certificate = \"{}\", key = \"{}\"",
                    path("client.pem"),
                    path("client.key")
                )
            }
            false => String::new(),
        };
        format!(
            "servers = [{{ address = \"{address}\" }}]\n\
             tls = {{ ca = \"{}\", server_name = \"server.example\"{identity} }}",
            path("ca.pem")
        )
    };
    let without = Gateway::start(BackendKind::Epoll, &whole(&upstream(false), "", ""));
    assert_eq!(get(&without.address, "/").status, 502);
    let gateway = Gateway::start(BackendKind::Epoll, &whole(&upstream(true), "", ""));
    assert_eq!(get(&gateway.address, "/").text(), "one.example");
    authority.write(root, "two.example");
    let later = |holds: &dyn Fn() -> bool| {
        gateway.elapse(Duration::from_secs(1));
        holds()
    };
    wait(|| later(&|| get(&gateway.address, "/").text() == "two.example"));
    let told = gateway.told();
    assert!(told.iter().any(|event| event.0 == "certificate-loaded"), "{told:?}");
    // A key that is not that of the certificate is not used.
    std::fs::write(root.join("client.key"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
    wait(|| later(&|| gateway.told().iter().any(|event| event.0 == "certificate-failed")));
    assert_eq!(get(&gateway.address, "/").text(), "two.example");
}
