//! Channels over encrypted connections, which are not parked.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use futures_rustls::rustls::pki_types::{CertificateDer, ServerName};
use futures_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tungstenite::Message;
use tungstenite::client::IntoClientRequest;
use tungstenite::protocol::frame::coding::CloseCode;

use crate::clients::{address, text, until_subscribers};
use crate::stage::{BACKENDS, PATIENCE, Stage};

type Stream = StreamOwned<ClientConnection, TcpStream>;

#[test]
fn all_the_ways_work() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(made.cert.der().to_vec())).unwrap();
    let provider = Arc::new(futures_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    for backend in BACKENDS {
        let tls = format!("tls = {{ certificate = {cert:?}, key = {key:?} }}\n[timeouts]");
        let stage = Stage::new(backend, 1, &text("").replace("[timeouts]", &tls));
        let connect = || -> Stream {
            let name = ServerName::try_from("localhost").unwrap();
            let client = ClientConnection::new(config.clone(), name).unwrap();
            let stream = TcpStream::connect(address(&stage)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            StreamOwned::new(client, stream)
        };
        let request = "ws://localhost/c".into_client_request().unwrap();
        let (mut socket, _) = tungstenite::client::client(request, connect()).unwrap();
        let mut poll = connect();
        poll.write_all(b"GET /c HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        let mut events = connect();
        events
            .write_all(b"GET /c HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n\r\n")
            .unwrap();
        until_subscribers(&stage, 3);
        socket.send(Message::text("a secret")).unwrap();
        assert_eq!(socket.read().unwrap(), Message::text("a secret"), "{backend:?}");
        for stream in [&mut poll, &mut events] {
            let mut read = Vec::new();
            while !read.windows(8).any(|window| window == b"a secret") {
                let mut room = [0; 4096];
                let count = stream.read(&mut room).unwrap();
                assert_ne!(count, 0, "{backend:?}: {}", String::from_utf8_lossy(&read));
                read.extend_from_slice(&room[..count]);
            }
        }
        until_subscribers(&stage, 2);
        let large = "x".repeat(65_536);
        socket.send(Message::text(large.clone())).unwrap();
        assert_eq!(socket.read().unwrap(), Message::text(large), "{backend:?}");
        drop((poll, events));
        stage.drain();
        match socket.read() {
            Ok(Message::Close(Some(close))) => assert_eq!(close.code, CloseCode::Away),
            other => panic!("{backend:?}: {other:?}"),
        }
        while socket.read().is_ok() {}
        drop(socket);
        assert_eq!(stage.drained(), 0, "{backend:?}");
    }
}
