//! TLS, and the protocols that are agreed upon there.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use futures_rustls::rustls::pki_types::{CertificateDer, ServerName};
use futures_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use superpoll_gateway::Address;
use superpoll_rt::hyper::{EngineExecutor, FuturesIo};
use superpoll_rt::{Runtime, spawn};
use superpoll_test_support::find;

use crate::frames2::{DATA, Frame, Frames2, HEADERS, RST_STREAM, SETTINGS};
use crate::stage::{BACKENDS, Stage, folder};

/// A certificate in a folder of its own, and a client's configuration that trusts it.
pub(crate) struct Trust {
    folder: tempfile::TempDir,
    pub config: ClientConfig,
}

impl Trust {
    pub(crate) fn new(protocols: &[&[u8]]) -> Trust {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(made.cert.der().to_vec())).unwrap();
        let provider = Arc::new(futures_rustls::rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Trust { folder, config }
    }

    pub(crate) fn text(&self, site: &std::path::Path) -> String {
        let (cert, key) = (self.folder.path().join("cert.pem"), self.folder.path().join("key.pem"));
        format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
             tls = {{ certificate = {cert:?}, key = {key:?} }}\n\
             [timeouts]\npark = \"40ms\"\n\
             [[hosts]]\n[[hosts.routes]]\nfiles.root = {site:?}\n"
        )
    }
}

pub(crate) fn port(stage: &Stage) -> u16 {
    let Address::Tcp { port, .. } = stage.addresses[0] else { panic!("it is TCP") };
    port
}

#[test]
fn tls_with_http_1() {
    let folder = folder();
    let trust = Trust::new(&[b"http/1.1"]);
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &trust.text(folder.path()));
        let name = ServerName::try_from("localhost").unwrap();
        let client = ClientConnection::new(Arc::new(trust.config.clone()), name).unwrap();
        let stream = TcpStream::connect(("127.0.0.1", port(&stage))).unwrap();
        let mut stream = StreamOwned::new(client, stream);
        for _ in 0..2 {
            stream.write_all(b"GET /small.txt HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
            let mut read = Vec::new();
            while !read.ends_with(b"\r\n\r\nhello\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                read.push(byte[0]);
            }
            // Its keys are parked with it.
            stage.until(|engine| &engine.parked, 1);
        }
        // Plain text on the same port, and a client that hangs up within the handshake.
        let mut plain = stage.connect();
        plain.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let mut rest = Vec::new();
        let _ = plain.0.read_to_end(&mut rest);
        drop(stage.connect());
        stage.until(|engine| &engine.broken, 2);
        drop(stream);
        stage.until(|engine| &engine.active, 0);
        assert_eq!(stage.drained(), 0);
    }
}

#[test]
fn http_2_with_many_requests_at_a_time() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    for backend in BACKENDS {
        let stage = Stage::new(backend, 2, &trust.text(folder.path()));
        let address = ("127.0.0.1", port(&stage));
        let connector = futures_rustls::TlsConnector::from(Arc::new(trust.config.clone()));
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let stream = superpoll_rt::net::TcpStream::connect(address).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let stream = FuturesIo::new(connector.connect(name, stream).await.unwrap());
            let (sender, connection) =
                hyper::client::conn::http2::handshake(EngineExecutor, stream).await.unwrap();
            let connection = spawn(connection);
            let mut requests = Vec::new();
            for index in 0..50 {
                let path = if index % 10 == 0 { "large.bin" } else { "small.txt" };
                let request = hyper::Request::get(format!("https://localhost/{path}"));
                let request = request.body(Empty::<Bytes>::new()).unwrap();
                let mut sender = sender.clone();
                requests.push(spawn(async move {
                    let response = sender.send_request(request).await.unwrap();
                    response.into_body().collect().await.unwrap().to_bytes().len()
                }));
            }
            for (index, request) in requests.into_iter().enumerate() {
                let expected = if index % 10 == 0 { 16 << 20 } else { 6 };
                assert_eq!(request.await.unwrap(), expected);
            }
            // It is told to go away, and does when it has nothing under way.
            stage.drain();
            connection.await.unwrap().unwrap();
        });
        assert_eq!(stage.drained(), 0);
    }
}

/// The fields of a response to HEAD tell of a body, which is not sent.
#[test]
fn responses_to_head_have_no_body() {
    let folder = folder();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    let trust = Trust::new(&[b"h2"]);
    let text = trust.text(folder.path());
    let text = text.replace("files.root", "path = \"/f\"\nfiles.listing = true\nfiles.root");
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &text);
        let mut client = Frames2::connect(port(&stage), &trust.config, 65_535);
        client.send(&[Frame::new(SETTINGS, 1, 0, &[])]);
        let paths = ["/f/small.txt", "/f/missing", "/f/sub", "/f/sub/", "/f/small.txt", "/none"];
        for (stream, path) in (1..).step_by(2).zip(paths) {
            client.send(&[Frame::request(stream, "HEAD", path)]);
            let frame = loop {
                let frame = client.next().expect("a response comes");
                if frame.stream == stream {
                    break frame;
                }
            };
            assert_eq!((frame.kind, frame.flags & 1), (HEADERS, 1), "{backend:?} {path}");
        }
    }
}

#[test]
fn a_handshake_that_does_not_go_on_is_not_waited_for() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    let text = trust.text(folder.path()).replace("[timeouts]", "[timeouts]\nheader = \"600s\"");
    let stage = Stage::new(BACKENDS[2], 1, &text);
    let mut client = stage.connect();
    client.send(b"\x16\x03\x01\x02\x00");
    stage.elapse(Duration::from_secs(500));
    assert_eq!(stage.count(|engine| &engine.timed_out), 0);
    stage.elapse(Duration::from_secs(150));
    assert!(client.is_closed());
    stage.until(|engine| &engine.timed_out, 1);
}

/// A frame of the body waits for the client's window, and perhaps one more. The rest is never sent.
#[test]
fn a_response_that_its_client_resets_is_logged_without_the_bytes_that_were_not_sent() {
    let (folder, logs, trust) = (folder(), tempfile::tempdir().unwrap(), Trust::new(&[b"h2"]));
    std::fs::write(folder.path().join("some.txt"), vec![b'x'; 100_000]).unwrap();
    let log = logs.path().join("log");
    let more = format!("[access_log]\npath = {log:?}\nformat = \"json\"\n");
    for (round, backend) in BACKENDS.into_iter().enumerate() {
        let stage = Stage::new(backend, 1, &format!("{}{more}", trust.text(folder.path())));
        let mut client = Frames2::connect(port(&stage), &trust.config, 100);
        client.send(&[Frame::new(SETTINGS, 1, 0, &[]), Frame::get(1, "/some.txt")]);
        while client.next().expect("a part of the body comes").kind != DATA {}
        client.send(&[Frame::new(RST_STREAM, 0, 1, &[0, 0, 0, 8])]);
        let text = find(&format!("the line is there, {backend:?}"), || {
            let text = std::fs::read_to_string(&log).unwrap();
            Some(text).filter(|text| text.lines().count() > round)
        });
        let line: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!((&line["status"], &line["complete"]), (&200.into(), &false.into()), "{line}");
        assert!((100..=32_768).contains(&line["bytes"].as_u64().unwrap()), "{line}");
        drop(client);
        assert_eq!(stage.drained(), 0);
    }
}
