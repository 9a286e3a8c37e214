//! Clients whose tickets are from another server of the same name, which has offered early data.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use futures_rustls::rustls::crypto::ring;
use futures_rustls::rustls::pki_types::pem::PemObject;
use futures_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use futures_rustls::rustls::version::TLS13;
use futures_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

use crate::http2::port;
use crate::stage::{BACKENDS, PATIENCE, Stage, folder};
use crate::tls::{Authority, Issued};

/// The early data that the other server accepts.
const OFFERED: u32 = 16 << 10;

/// The early data that docs/https.md says is skipped.
const SKIPPED: usize = 4 << 10;

fn client_config(authority: &Authority) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.enable_early_data = true;
    Arc::new(config)
}

fn connect(config: &Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(config.clone(), ServerName::try_from("localhost").unwrap()).unwrap()
}

/// Gives the client tickets of another server.
fn visit_other(config: &Arc<ClientConfig>, issued: &Issued) {
    let key = PrivateKeyDer::from_pem_slice(issued.key.serialize_pem().as_bytes()).unwrap();
    let mut other = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![issued.der.clone()], key)
        .unwrap();
    other.max_early_data_size = OFFERED;
    let (mut client, mut server) =
        (connect(config), ServerConnection::new(Arc::new(other)).unwrap());
    for _ in 0..4 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().unwrap();
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
        }
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
}

#[test]
fn early_data_of_another_servers_ticket_is_skipped() {
    let folder = folder();
    let authority = Authority::new("an authority");
    let issued = authority.issue(&["localhost"], 2099);
    let tls = issued.write(folder.path(), "a");
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\ntls = {{ {tls} }}\n\
         [[hosts]]\n[[hosts.routes]]\nfiles.root = {:?}\n",
        folder.path()
    );
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &text);
        for size in [1, SKIPPED] {
            let config = client_config(&authority);
            visit_other(&config, &issued);
            let mut client = connect(&config);
            let mut early = client.early_data().expect("the ticket offers early data");
            let data = vec![b'x'; size];
            let mut sent = 0;
            while sent < size {
                let count = early.write(&data[sent..]).unwrap();
                assert_ne!(count, 0, "{size}");
                sent += count;
            }
            let stream = TcpStream::connect(("127.0.0.1", port(&stage))).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut stream = StreamOwned::new(client, stream);
            let request = "GET /small.txt HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            let read = stream.read_to_string(&mut answer);
            assert!(read.is_ok(), "{backend:?} {size} {read:?} {answer}");
            assert!(answer.starts_with("HTTP/1.1 200"), "{backend:?} {size} {answer}");
            assert!(answer.ends_with("\r\n\r\nhello\n"), "{answer}");
            assert!(!stream.conn.is_early_data_accepted());
        }
    }
}

/// The server's own tickets offer none, so that its clients do not send it in vain.
#[test]
fn own_tickets_offer_no_early_data() {
    let folder = folder();
    let authority = Authority::new("an authority");
    let tls = authority.issue(&["localhost"], 2099).write(folder.path(), "a");
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\ntls = {{ {tls} }}\n\
         [[hosts]]\n[[hosts.routes]]\nfiles.root = {:?}\n",
        folder.path()
    );
    let stage = Stage::new(BACKENDS[2], 1, &text);
    let config = client_config(&authority);
    let mut resumed = Vec::new();
    for _ in 0..2 {
        let mut client = connect(&config);
        assert!(client.early_data().is_none());
        let stream = TcpStream::connect(("127.0.0.1", port(&stage))).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut stream = StreamOwned::new(client, stream);
        stream
            .write_all(b"GET /small.txt HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        resumed.push(format!("{:?}", stream.conn.handshake_kind()));
    }
    assert_eq!(resumed, ["Some(Full)", "Some(Resumed)"]);
}
