//! Channels over encrypted connections and HTTP/2.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use futures_rustls::rustls::pki_types::pem::PemObject;
use futures_rustls::rustls::pki_types::{CertificateDer, ServerName};
use futures_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use superpoll_rt::hyper::{EngineExecutor, FuturesIo};
use superpoll_rt::{BackendKind, Runtime, spawn};
use tungstenite::Message;
use tungstenite::client::IntoClientRequest;
use tungstenite::protocol::frame::coding::CloseCode;

use crate::clients::{address, text, until_subscribers};
use crate::stage::{BACKENDS, PATIENCE, Stage, on_each_backend};

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A certificate in a folder of its own, and a client that trusts it.
pub(crate) struct Trust {
    folder: tempfile::TempDir,
    pub config: Arc<ClientConfig>,
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
        Trust { folder, config: Arc::new(config) }
    }

    /// Returns the setting of a listener that encrypts.
    pub(crate) fn tls(&self) -> String {
        let (cert, key) = (self.folder.path().join("cert.pem"), self.folder.path().join("key.pem"));
        format!("tls = {{ certificate = {cert:?}, key = {key:?} }}\n")
    }

    /// Returns the authorities that a client trusts.
    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        for one in CertificateDer::pem_file_iter(self.folder.path().join("cert.pem")).unwrap() {
            roots.add(one.unwrap()).unwrap();
        }
        roots
    }

    fn stage(&self, backend: BackendKind) -> Stage {
        self.stage_with(backend, "")
    }

    fn stage_with(&self, backend: BackendKind, timeouts: &str) -> Stage {
        let (cert, key) = (self.folder.path().join("cert.pem"), self.folder.path().join("key.pem"));
        let tls =
            format!("tls = {{ certificate = {cert:?}, key = {key:?} }}\n[timeouts]\n{timeouts}");
        Stage::new(backend, 1, &text("").replace("[timeouts]", &tls))
    }

    /// Returns a server with a configuration, in which `more` follows the routes.
    pub(crate) fn stage_of(&self, backend: BackendKind, text: &str, more: &str) -> Stage {
        let (cert, key) = (self.folder.path().join("cert.pem"), self.folder.path().join("key.pem"));
        let tls = format!("tls = {{ certificate = {cert:?}, key = {key:?} }}\n");
        let text = text.replace("[timeouts]\npark = \"40ms\"\n", &tls);
        Stage::new(backend, 1, &format!("{text}{more}"))
    }
}

#[test]
fn all_the_ways_work() {
    let trust = Trust::new(&[b"http/1.1"]);
    for backend in BACKENDS {
        let stage = trust.stage(backend);
        let connect = || -> Stream {
            let name = ServerName::try_from("localhost").unwrap();
            let client = ClientConnection::new(trust.config.clone(), name).unwrap();
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

/// A configuration of an encrypted channel on a host that tells browsers to stay with https.
fn strict(trust: &Trust, hsts: &str, route: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n{}[timeouts]\npark = \"40ms\"\n\
         [[hosts]]\nhttps = \"always\"\nhsts = \"{hsts}\"\n\
         [[hosts.routes]]\npath = \"/c\"\n{route}\nchannel = {{ publish = \"anyone\" }}\n",
        trust.tls()
    )
}

/// Reads the head of an answer, and as much of its body as it says.
fn answer(stream: &mut Stream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return head.to_owned();
            }
        }
        let mut room = [0; 4096];
        let count = stream.read(&mut room).unwrap();
        assert_ne!(count, 0, "{text}");
        bytes.extend_from_slice(&room[..count]);
    }
}

/// The value of `Strict-Transport-Security`, which is there at most once.
fn told(head: &str) -> Option<&str> {
    let mut told = head.lines().filter_map(|line| line.strip_prefix("strict-transport-security: "));
    let first = told.next();
    assert_eq!(told.next(), None, "{head}");
    first
}

/// Answers that the router does not see have the field, too.
#[test]
fn parked_subscribers_are_told_to_stay_with_https() {
    let trust = Trust::new(&[b"http/1.1"]);
    on_each_backend(|backend| {
        let stage = Stage::new(backend, 1, &strict(&trust, "1h", ""));
        let ask = |head: String| -> Stream {
            let name = ServerName::try_from("localhost").unwrap();
            let client = ClientConnection::new(trust.config.clone(), name).unwrap();
            let stream = TcpStream::connect(address(&stage)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut stream = StreamOwned::new(client, stream);
            stream.write_all(head.as_bytes()).unwrap();
            stream
        };
        let publish = || {
            let fields = "content-length: 1\r\n";
            let mut stream = ask(format!("POST /c HTTP/1.1\r\nhost: a.test\r\n{fields}\r\nx"));
            assert_eq!(told(&answer(&mut stream)), Some("max-age=3600"));
        };
        // Addresses and names of this machine have none.
        let hosts = [("a.test", Some("max-age=3600")), ("localhost", None), ("127.0.0.1", None)];
        let get = |host: &str, target: &str, fields: &str| {
            ask(format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n"))
        };
        let mut polls = hosts.map(|(host, _)| get(host, "/c", ""));
        stage.until(|engine| &engine.parked, 3);
        publish();
        for (poll, (host, expected)) in polls.iter_mut().zip(hosts) {
            let head = answer(poll);
            assert!(head.starts_with("http/1.1 200"), "{head}");
            assert_eq!(told(&head), expected, "{backend:?} {host}");
        }
        for (host, expected) in hosts {
            let mut poll = get(host, "/c?wait=50", "");
            until_subscribers(&stage, 1);
            stage.elapse(Duration::from_secs(60));
            let head = answer(&mut poll);
            assert!(head.starts_with("http/1.1 204"), "{head}");
            assert_eq!(told(&head), expected, "{backend:?} {host}");
            let head = answer(&mut get(host, "/c", "accept: text/event-stream\r\n"));
            assert!(head.contains("content-type: text/event-stream"), "{head}");
            assert_eq!(told(&head), expected, "{backend:?} {host}");
        }
        drop(polls);
        // The field is that of the configuration in which the request is answered.
        let changes = [
            ("2h", "", Some("max-age=7200")),
            ("3h", "headers.remove = [\"strict-transport-security\"]", None),
        ];
        for (hsts, route, expected) in changes {
            let mut poll = get("a.test", "/c", "");
            stage.until(|engine| &engine.parked, 1);
            stage.change(&strict(&trust, hsts, route));
            let end = std::time::Instant::now() + PATIENCE;
            while told(&answer(&mut get("a.test", "/c?after=0", ""))) != expected {
                assert!(std::time::Instant::now() < end);
            }
            let mut publisher =
                ask("POST /c HTTP/1.1\r\nhost: a.test\r\ncontent-length: 1\r\n\r\nx".to_owned());
            assert!(answer(&mut publisher).starts_with("http/1.1 201"));
            assert_eq!(told(&answer(&mut poll)), expected, "{backend:?}");
        }
    });
}

#[test]
fn between_two_requests_the_time_for_a_head_does_not_run() {
    let trust = Trust::new(&[b"http/1.1"]);
    let stage = trust.stage_with(BackendKind::Epoll, "header = \"60s\"\nidle = \"1h\"");
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(trust.config.clone(), name).unwrap();
    let stream = TcpStream::connect(address(&stage)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = StreamOwned::new(client, stream);
    for pause in [70, 0] {
        stream.write_all(b"POST /c HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello").unwrap();
        let mut room = [0; 4096];
        let count = stream.read(&mut room).unwrap();
        assert!(room[..count].starts_with(b"HTTP/1.1 201"), "{pause}");
        stage.elapse(Duration::from_secs(pause));
    }
}

/// Whether or not they say so.
#[test]
fn clients_that_have_gone_are_no_subscribers_any_more() {
    let trust = Trust::new(&[b"http/1.1"]);
    for backend in BACKENDS {
        let stage = trust.stage(backend);
        for (accept, says_so) in [
            ("*/*", true),
            ("*/*", false),
            ("text/event-stream", true),
            ("text/event-stream", false),
        ] {
            let name = ServerName::try_from("localhost").unwrap();
            let client = ClientConnection::new(trust.config.clone(), name).unwrap();
            let stream = TcpStream::connect(address(&stage)).unwrap();
            let mut stream = StreamOwned::new(client, stream);
            let request = format!("GET /c HTTP/1.1\r\nhost: a\r\naccept: {accept}\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            until_subscribers(&stage, 1);
            if says_so {
                stream.conn.send_close_notify();
                stream.flush().unwrap();
            } else {
                drop(stream);
            }
            until_subscribers(&stage, 0);
        }
    }
}

#[test]
fn http_2_waits_and_streams_on_one_connection() {
    let trust = Trust::new(&[b"h2"]);
    for backend in BACKENDS {
        let stage = trust.stage(backend);
        let runtime = Runtime::new().unwrap();
        let connector = futures_rustls::TlsConnector::from(trust.config.clone());
        let talk = async {
            let stream = superpoll_rt::net::TcpStream::connect(address(&stage)).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let stream = FuturesIo::new(connector.connect(name, stream).await.unwrap());
            let (sender, connection) =
                hyper::client::conn::http2::handshake(EngineExecutor, stream).await.unwrap();
            spawn(connection).detach();
            let ask = |method: &str, accept: &str, body: &'static str| {
                let request = hyper::Request::builder()
                    .method(method)
                    .uri("https://localhost/c")
                    .header("accept", accept)
                    .body(Full::new(Bytes::from_static(body.as_bytes())))
                    .unwrap();
                let mut sender = sender.clone();
                spawn(async move { sender.send_request(request).await.unwrap() })
            };
            let polls: Vec<_> = (0..10).map(|_| ask("GET", "*/*", "")).collect();
            let events = ask("GET", "text/event-stream", "").await.unwrap();
            let mut events = events.into_body();
            while stage.channel.as_ref().unwrap().subscribers() < 11 {
                superpoll_rt::yield_now().await;
            }
            assert_eq!(ask("POST", "*/*", "to all").await.unwrap().status(), 201);
            for poll in polls {
                let answer = poll.await.unwrap().into_body().collect().await.unwrap().to_bytes();
                let answer = String::from_utf8_lossy(&answer).into_owned();
                assert!(answer.contains(r#"{"id":1,"data":"to all"}"#), "{backend:?}: {answer}");
            }
            let mut read = String::new();
            while !read.ends_with("data: to all\n\n") {
                let data = events.frame().await.unwrap().unwrap().into_data().unwrap();
                read += std::str::from_utf8(&data).unwrap();
            }
            let last = ask("GET", "*/*", "");
            while stage.channel.as_ref().unwrap().subscribers() < 2 {
                superpoll_rt::yield_now().await;
            }
            stage.drain();
            assert_eq!(last.await.unwrap().status(), 204, "{backend:?}");
            let rest = events.collect().await.unwrap().to_bytes();
            assert_eq!(rest, "", "{backend:?}");
        };
        runtime.block_on(talk);
        assert_eq!(stage.drained(), 0, "{backend:?}");
    }
}
