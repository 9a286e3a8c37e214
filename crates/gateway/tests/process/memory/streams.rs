//! The memory that is held for streams of HTTP/2 whose responses are not taken.

use std::sync::Arc;
use std::time::Duration;

use futures_rustls::rustls::ClientConfig;
use futures_rustls::rustls::pki_types::CertificateDer;
use superpoll_gateway::Address;
use superpoll_rt::BackendKind;

use super::several::settled;
use crate::frames2::{Frame, Frames2, HEADERS, LARGEST};
use crate::stage::{Stage, folder};
use crate::sys;
use superpoll_test_support::alone;

const CONNECTIONS: usize = 3;
const STREAMS: usize = 100;

pub(crate) fn trust(folder: &std::path::Path) -> ClientConfig {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let mut roots = futures_rustls::rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(made.cert.der().to_vec())).unwrap();
    let provider = Arc::new(futures_rustls::rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// A request for a WebSocket (RFC 8441).
fn websocket(stream: u32, path: &str) -> Frame {
    let mut head = vec![0x87, 0x01, 1, b'a'];
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    // The method and the path by their names' indexes, the others by their names.
    for (index, value) in [(0x02, "CONNECT"), (0x04, path)] {
        head.extend([index, length(value)]);
        head.extend_from_slice(value.as_bytes());
    }
    for (name, value) in [(":protocol", "websocket"), ("sec-websocket-version", "13")] {
        head.extend([0, length(name)]);
        head.extend_from_slice(name.as_bytes());
        head.push(length(value));
        head.extend_from_slice(value.as_bytes());
    }
    Frame::new(HEADERS, 0b100, stream, &head)
}

/// Opens connections whose streams all send a request.
fn connect(
    port: u16,
    config: &ClientConfig,
    window: u32,
    request: impl Fn(u32) -> Frame,
) -> Vec<Frames2> {
    let connect = |_| {
        let mut client = Frames2::connect(port, config, window);
        let streams = (0..STREAMS).map(|index| 2 * u32::try_from(index).unwrap() + 1);
        client.send(&streams.map(&request).collect::<Vec<_>>());
        client
    };
    (0..CONNECTIONS).map(connect).collect()
}

/// Its subscriber is slow, and the channel leaves messages out for it.
#[test]
fn a_websocket_on_a_stream_that_is_not_read_holds_little() {
    alone(|| {
        let trusted = tempfile::tempdir().unwrap();
        let config = trust(trusted.path());
        let (cert, key) = (trusted.path().join("cert.pem"), trusted.path().join("key.pem"));
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         tls = {{ certificate = {cert:?}, key = {key:?} }}\n\
         [[hosts]]\n[[hosts.routes]]\npath = \"/c\"\n\
         channel = {{ slow = \"drop-oldest\", backlog_bytes = \"64KiB\", history = 1 }}\n"
        );
        let stage = Stage::new(BackendKind::Epoll, 1, &text);
        let Address::Tcp { port, .. } = stage.addresses[0] else { panic!("it is TCP") };
        let hub = stage.channel.clone().unwrap();
        // The bytes that hyper and h2 have, and those of the session: 64 KiB and a message.
        let message = 10_000;
        let bound = (112 << 10) + (64 << 10) + message;
        for window in [0, LARGEST] {
            let before = sys::bytes();
            let clients = connect(port, &config, window, |stream| websocket(stream, "/c"));
            crate::clients::until_subscribers(&stage, CONNECTIONS * STREAMS);
            for round in 0..40 {
                hub.publish(vec![b'a' + round; message]);
                std::thread::sleep(Duration::from_millis(10));
            }
            settled();
            let found = sys::bytes().saturating_sub(before) / (CONNECTIONS * STREAMS);
            println!("window {window}: {} KiB a WebSocket", found / 1024);
            assert!(found < bound, "window {window}: {} KiB a WebSocket", found / 1024);
            assert_eq!(hub.subscribers(), CONNECTIONS * STREAMS);
            drop(clients);
            stage.until(|engine| &engine.active, 0);
            stage.until(|engine| &engine.running, 0);
            crate::clients::until_subscribers(&stage, 0);
            settled();
            let left = sys::bytes().saturating_sub(before);
            assert!(left < 4 << 20, "{left} bytes are left");
        }
    });
}

#[test]
fn a_stream_that_is_not_read_holds_little() {
    alone(|| {
        let (folder, trusted) = (folder(), tempfile::tempdir().unwrap());
        let config = trust(trusted.path());
        let (cert, key) = (trusted.path().join("cert.pem"), trusted.path().join("key.pem"));
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         tls = {{ certificate = {cert:?}, key = {key:?} }}\n\
         [[hosts]]\n[[hosts.routes]]\nfiles.root = {:?}\n",
            folder.path()
        );
        let stage = Stage::new(BackendKind::Epoll, 1, &text);
        let Address::Tcp { port, .. } = stage.addresses[0] else { panic!("it is TCP") };
        // Without a window a stream holds one read of its file once; with the largest window it
        // also holds its part of the bytes that all streams of a connection share, and TLS has its
        // own bound.
        let each = 2 * 32 * 1024;
        for (window, bound) in [(0, each), (LARGEST, each + (2 << 20) / STREAMS)] {
            let before = sys::bytes();
            let clients = connect(port, &config, window, |stream| Frame::get(stream, "/large.bin"));
            stage.until(|engine| &engine.running, (CONNECTIONS * STREAMS) as u64);
            settled();
            let found = sys::bytes().saturating_sub(before) / (CONNECTIONS * STREAMS);
            println!("window {window}: {} KiB a stream", found / 1024);
            assert!(found < bound, "window {window}: {} KiB a stream", found / 1024);
            drop(clients);
            stage.until(|engine| &engine.active, 0);
            stage.until(|engine| &engine.running, 0);
            settled();
            let left = sys::bytes().saturating_sub(before);
            assert!(left < 4 << 20, "{left} bytes are left");
        }
    });
}
