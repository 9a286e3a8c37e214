//! WebSockets on streams of HTTP/2, of clients and of servers.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use futures_rustls::TlsConnector;
use futures_rustls::rustls::pki_types::CertificateDer;
use futures_rustls::rustls::pki_types::pem::PemObject;
use futures_rustls::rustls::{ClientConfig, RootCertStore};
use http_body_util::BodyExt;
use superpoll_rt::{BackendKind, Runtime, spawn, time};
use tungstenite::handshake::derive_accept_key;

use crate::gateway::{Gateway, MOST, config, whole};
use crate::http2::{H2, certificate, frame};
use crate::origin::{Client, Origin};
use crate::websocket2::{Bytes2, Connection2};

/// Talks HTTP/2 with a gateway to a server.
fn with(
    backend: BackendKind,
    address: &str,
    upstream: &str,
    rest: &str,
    talk: impl AsyncFnOnce(&Gateway, &mut Connection2),
) {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let at = folder.path().display();
    let servers = format!("servers = [{{ address = \"{address}\" }}]\n{upstream}");
    let text = whole(&servers, "", rest).replace(
        "address = \"127.0.0.1:0\"\n",
        &format!("address = \"127.0.0.1:0\"\ntls = {{ certificate = \"{at}/cert.pem\", key = \"{at}/key.pem\" }}\n"),
    );
    let gateway = Gateway::start(backend, &text);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.path().join("cert.pem")).unwrap()).unwrap();
    let provider = Arc::new(futures_rustls::rustls::crypto::ring::default_provider());
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![b"h2".to_vec()];
    let connector = TlsConnector::from(Arc::new(client));
    Runtime::new().unwrap().block_on(async {
        let mut connection = Connection2::new(&connector, &gateway.address, "/plain").await;
        let patience = std::time::Duration::from_secs(60);
        time::timeout(patience, talk(&gateway, &mut connection)).await.expect("it takes too long");
    });
}

/// A server that knows WebSockets: it greets, sends the bytes that it gets back until none come,
/// and then says so. What is at other paths is no WebSocket.
fn chat() -> Origin {
    Origin::start(|line| {
        let seen = line.request()?;
        let key = seen.field("sec-websocket-key").unwrap_or_default();
        let accept = match seen.line() {
            line if line.contains("/wrong") => "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".to_owned(),
            line if line.contains("/chat") => derive_accept_key(key.as_bytes()),
            plain if plain.contains("/denied") => {
                return line.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno\n");
            }
            _ => return line.answer("a page"),
        };
        line.send(format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Accept: {accept}\r\n\r\nhello"
        ))?;
        let mut room = [0; 4096];
        loop {
            match line.reader.read(&mut room)? {
                0 => break,
                count => line.send(&room[..count])?,
            }
        }
        line.send("bye")?;
        line.stream.end_writing();
        Ok(())
    })
}

/// Sends more than all windows and buffers on the way have room for, and ends the direction. Reads
/// in the meantime, after a greeting. Returns the bytes that were sent and those that were read.
async fn much_both_ways(stream: Bytes2, greeting: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut reader, mut writer) = futures_lite::io::split(stream);
    let mut greeted = vec![0; greeting.len()];
    reader.read_exact(&mut greeted).await.unwrap();
    assert_eq!(greeted, greeting);
    let large: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let sent = large.clone();
    let sends = spawn(async move {
        writer.write_all(&sent).await.unwrap();
        writer.close().await.unwrap();
    });
    let mut all = Vec::new();
    reader.read_to_end(&mut all).await.unwrap();
    sends.await.unwrap();
    (large, all)
}

#[test]
fn a_websocket_goes_through() {
    for backend in MOST {
        let origin = chat();
        with(backend, &origin.address, "", "", async |_, connection| {
            let fields = [
                ("sec-websocket-protocol", "chat"),
                ("origin", "https://localhost"),
                ("sec-websocket-key", "of the client, which means nothing here"),
            ];
            let (stream, response) = connection.open("/chat?room=1", &fields).await;
            assert_eq!(response.headers()["sec-websocket-protocol"], "chat");
            let (large, all) = much_both_ways(stream, b"hello").await;
            // The end of one direction leaves the other open.
            assert!(all == [&large[..], b"bye"].concat(), "{backend:?}: {} bytes", all.len());
            // The connection goes on.
            let page = connection.send("GET", "/page", &[], "").await;
            assert_eq!(page.into_body().collect().await.unwrap().to_bytes(), "a page");
        });
        let seen = origin.seen();
        let chat = seen.iter().find(|seen| seen.line().contains("/chat")).unwrap();
        assert_eq!(chat.line(), "GET /chat?room=1 HTTP/1.1");
        assert_eq!(chat.field("connection").unwrap(), "upgrade");
        assert_eq!(chat.field("upgrade").unwrap(), "websocket");
        assert_eq!(chat.field("sec-websocket-version").unwrap(), "13");
        assert_eq!(chat.field("host").unwrap(), "localhost");
        assert_eq!(chat.field("origin").unwrap(), "https://localhost");
        let key = chat.field("sec-websocket-key").unwrap();
        assert_eq!(key.len(), 24, "{key}");
    }
}

#[test]
fn a_server_may_refuse_and_may_not_know_websockets() {
    for backend in MOST {
        let origin = chat();
        with(backend, &origin.address, "", "", async |_, connection| {
            for (path, status) in [("/denied", 403), ("/page", 501), ("/wrong", 502)] {
                let version = [("sec-websocket-version", "13")];
                let response = connection.ask("websocket", path, &version).await;
                assert_eq!(response.status(), status, "{path}");
                response.into_body().collect().await.unwrap();
            }
            let (mut stream, _) = connection.open("/chat", &[]).await;
            let mut greeting = [0; 5];
            stream.read_exact(&mut greeting).await.unwrap();
        });
    }
}

#[test]
fn a_websocket_on_which_nothing_moves_is_closed() {
    let origin = chat();
    let rest = "[timeouts]\ntunnel = \"600s\"";
    with(BackendKind::Adaptive, &origin.address, "", rest, async |gateway, connection| {
        let (mut stream, _) = connection.open("/chat", &[]).await;
        let mut greeting = [0; 5];
        stream.read_exact(&mut greeting).await.unwrap();
        for _ in 0..2 {
            gateway.elapse(std::time::Duration::from_secs(500));
            stream.write_all(b"x").await.unwrap();
            stream.read_exact(&mut [0]).await.unwrap();
        }
        gateway.elapse(std::time::Duration::from_secs(650));
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all).await;
        assert_eq!((&greeting, all.len()), (b"hello", 0));
        // The connection goes on.
        assert_eq!(connection.send("GET", "/page", &[], "").await.status(), 200);
    });
}

/// A request for a WebSocket by HTTP/1.1, with the key of RFC 6455.
const HANDSHAKE: &str = "GET /chat?a HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[test]
fn a_server_of_http2_has_websockets_on_its_streams() {
    for backend in MOST {
        let server = H2::start(None);
        let gateway = Gateway::start(backend, &config(&[&server.address], "h2 = true", ""));
        for _ in 0..2 {
            let mut client = Client::connect(&gateway.address);
            client.send(HANDSHAKE);
            let reply = client.head().unwrap();
            let told = gateway.told();
            assert_eq!(reply.status, 101, "{reply:?} {told:?}");
            assert_eq!(
                reply.field("sec-websocket-accept").unwrap(),
                "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
            );
            assert_eq!(reply.field("upgrade").unwrap(), "websocket");
            let told = "CONNECT websocket http://a.example/chat?a";
            assert_eq!(reply.field("x-told").unwrap(), told);
            assert_eq!(reply.field("x-key").unwrap(), "false");
            client.send("some bytes");
            let mut room = [0; 10];
            client.reader.read_exact(&mut room).unwrap();
            assert_eq!(&room, b"some bytes");
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(client.reader.read(&mut room).unwrap(), 0);
        }
        // By HTTP/2 on both sides, with more than all windows on the way.
        with(backend, &server.address, "h2 = true", "", async |_, connection| {
            let (stream, _) = connection.open("/chat", &[]).await;
            let (large, all) = much_both_ways(stream, b"").await;
            assert!(all == large, "{backend:?}: {} bytes", all.len());
        });
    }
}

/// The log says why, and the server is not to blame.
#[test]
fn a_server_of_http2_may_allow_no_websockets() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let gateway = Gateway::start(BackendKind::Epoll, &config(&[&address], "h2 = true", ""));
    let mut client = Client::connect(&gateway.address);
    client.send(HANDSHAKE);
    let (mut server, _) = listener.accept().unwrap();
    server.write_all(&frame(4, 0, 0, &[])).unwrap();
    assert_eq!(client.reply().status, 502);
    let told = gateway.told();
    assert!(told[0].1.contains("SETTINGS_ENABLE_CONNECT_PROTOCOL"), "{told:?}");
    assert_eq!(gateway.up(), [true]);
}
