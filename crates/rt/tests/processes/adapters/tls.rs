//! rustls as a client of `tls_echo`, on a blocking socket and on this runtime.

use std::io::{Read, Write};
use std::rc::Rc;
use std::sync::Arc;

use futures_rustls::TlsConnector;
use futures_rustls::pki_types::pem::PemObject;
use futures_rustls::pki_types::{CertificateDer, ServerName};
use futures_rustls::rustls::crypto::ring;
use futures_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper::{Request, Version};
use superpoll_rt::hyper::{EngineExecutor, FuturesIo};
use superpoll_rt::{BackendKind, Runtime, spawn};

use super::example::{Example, noise};

/// A client's configuration that trusts the certificate in the text, if there is one, and offers a
/// protocol.
fn config(certificate: &str, protocol: &[u8]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(certificate.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    Arc::new(config)
}

fn localhost() -> ServerName<'static> {
    ServerName::try_from("localhost").unwrap()
}

#[test]
fn a_blocking_client_of_http_1_and_one_that_does_not_trust_us() {
    for kind in BackendKind::available() {
        let mut server = Example::start("tls_echo", kind);
        let certificate = server.output_until("-----END CERTIFICATE-----");

        let client = ClientConnection::new(config("", b"http/1.1"), localhost()).unwrap();
        let mut stream = StreamOwned::new(client, server.connect());
        let refusal = stream.write_all(b"x").unwrap_err().to_string();
        assert!(refusal.contains("certificate"), "{kind}: {refusal}");

        let client = ClientConnection::new(config(&certificate, b"http/1.1"), localhost()).unwrap();
        let mut stream = StreamOwned::new(client, server.connect());
        let sent = noise(5, 200_000);
        write!(
            stream,
            "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            sent.len()
        )
        .unwrap();
        stream.write_all(&sent).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{kind}");
        assert!(answer.ends_with(&sent), "{kind}: the body comes back");
    }
}

#[test]
fn many_clients_of_http_2_on_this_runtime() {
    for kind in BackendKind::available() {
        let mut server = Example::start("tls_echo", kind);
        let certificate = server.output_until("-----END CERTIFICATE-----");
        let server = Rc::new(server);
        let connector = TlsConnector::from(config(&certificate, b"h2"));
        let clients = async {
            let clients = (0..16).map(|number| {
                let (connector, server) = (connector.clone(), server.clone());
                spawn(async move {
                    let stream = server.connect_async().await;
                    let stream = connector.connect(localhost(), stream).await.unwrap();
                    let (mut requests, connection) =
                        http2::handshake(EngineExecutor, FuturesIo::new(stream)).await.unwrap();
                    spawn(connection).detach();
                    for len in [0, 1, 16 * 1024, 100_000] {
                        let sent = Bytes::from(noise(number, len));
                        let request = Request::post("https://localhost/");
                        let request = request.body(Full::new(sent.clone())).unwrap();
                        let answer = requests.send_request(request).await.unwrap();
                        assert_eq!(answer.version(), Version::HTTP_2);
                        let received = answer.into_body().collect().await.unwrap().to_bytes();
                        assert!(received == sent, "{kind}: {len} bytes of client {number}");
                    }
                })
            });
            for client in clients.collect::<Vec<_>>() {
                client.await.unwrap();
            }
        };
        Runtime::builder().backend(kind).build().unwrap().block_on(clients);
    }
}
