//! The memory of encrypted connections on which nothing happens.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use futures_rustls::rustls::client::Resumption;
use futures_rustls::rustls::pki_types::ServerName;
use futures_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};
use superpoll_rt::BackendKind;

use super::streams::trust;
use super::{EVENTS, POLL, SOCKET};
use crate::clients::{address, text};
use crate::stage::{PATIENCE, Stage};
use crate::sys;
use superpoll_test_support::alone;

const BEFORE: usize = 150;
const COUNTED: usize = 500;

/// The most bytes of a parked connection.
const BOUND: usize = 700;

const KEEP_ALIVE: &str = "GET /nothing HTTP/1.1\r\nhost: a\r\n\r\n";

/// Connects and asks. What the client would need to go on is forgotten, so that it is not counted.
fn connect(stage: &Stage, config: &Arc<ClientConfig>, request: &str) -> TcpStream {
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(config.clone(), name).unwrap();
    let stream = TcpStream::connect(address(stage)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = StreamOwned::new(client, stream);
    stream.write_all(request.as_bytes()).unwrap();
    if request != POLL {
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
    }
    let StreamOwned { sock, .. } = stream;
    sock
}

#[test]
fn an_encrypted_connection_that_is_idle_costs_little() {
    alone(|| {
        let limit = superpoll::limits::raise_descriptors().unwrap();
        if limit < 3 * (BEFORE + COUNTED) as u64 {
            println!("skipped: {limit} descriptors are too few");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut config = trust(folder.path());
        config.alpn_protocols = Vec::new();
        config.resumption = Resumption::disabled();
        let config = Arc::new(config);
        let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let tls = format!("tls = {{ certificate = {cert:?}, key = {key:?} }}\n[timeouts]");
        for (kind, request) in [
            ("keep-alive", KEEP_ALIVE),
            ("long-poll", POLL),
            ("WebSocket", SOCKET),
            ("events", EVENTS),
        ] {
            let stage = Stage::new(BackendKind::Epoll, 1, &text("").replace("[timeouts]", &tls));
            let mut streams = Vec::with_capacity(BEFORE + COUNTED);
            let mut add = |count: usize| {
                for _ in 0..count {
                    streams.push(connect(&stage, &config, request));
                }
                stage.until(|engine| &engine.active, 0);
                stage.until(|engine| &engine.parked, streams.len() as u64);
            };
            add(BEFORE);
            let before = sys::bytes();
            add(COUNTED);
            let end = std::time::Instant::now() + PATIENCE;
            // The parking lot looks after memory once a second.
            let cost = loop {
                let cost = sys::bytes().saturating_sub(before) / COUNTED;
                if cost <= BOUND || std::time::Instant::now() > end {
                    break cost;
                }
                std::thread::sleep(std::time::Duration::from_millis(50));
            };
            println!("{kind}: {cost} bytes allocated");
            assert!(cost <= BOUND, "each {kind} costs {cost} bytes");
        }
    });
}
