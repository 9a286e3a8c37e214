//! A client of WebSockets on streams of HTTP/2 (RFC 8441).

use bytes::Bytes;
use futures_rustls::TlsConnector;
use futures_rustls::rustls::pki_types::ServerName;
use http_body_util::Full;
use hyper::Response;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::ext::Protocol;
use hyper::upgrade::Upgraded;
use superpoll_rt::hyper::{EngineExecutor, FuturesIo};
use superpoll_rt::net::TcpStream;
use superpoll_rt::spawn;

/// The windows of the client's streams, and of its connection.
const WINDOW: u32 = 65_535;

/// One connection of HTTP/2.
pub(crate) struct Connection2 {
    pub sender: SendRequest<Full<Bytes>>,
    authority: String,
}

/// The bytes of a WebSocket.
pub(crate) type Bytes2 = FuturesIo<Upgraded>;

impl Connection2 {
    /// Connects, and makes sure that the server's settings have come.
    pub(crate) async fn new(connector: &TlsConnector, address: &str, path: &str) -> Connection2 {
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = FuturesIo::new(connector.connect(name, stream).await.unwrap());
        let (sender, connection) = http2::Builder::new(EngineExecutor)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(1 << 24)
            .handshake(stream)
            .await
            .unwrap();
        spawn(connection).detach();
        let mut connection = Connection2 { sender, authority: "localhost".to_owned() };
        connection.send("HEAD", path, &[], "").await;
        connection
    }

    /// Sends a request.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &'static str,
    ) -> Response<Incoming> {
        let uri = format!("https://{}{path}", self.authority);
        let mut request = hyper::Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap();
        self.sender.send_request(request).await.unwrap()
    }

    /// Asks for a stream of a protocol.
    pub(crate) async fn ask(
        &mut self,
        protocol: &'static str,
        path: &str,
        fields: &[(&str, &str)],
    ) -> Response<Incoming> {
        let uri = format!("https://{}{path}", self.authority);
        let mut request = hyper::Request::builder().method("CONNECT").uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Full::default()).unwrap();
        request.extensions_mut().insert(Protocol::from_static(protocol));
        self.sender.send_request(request).await.unwrap()
    }

    /// Opens a WebSocket, which must be accepted. Returns the response as well.
    pub(crate) async fn open(
        &mut self,
        path: &str,
        fields: &[(&str, &str)],
    ) -> (Bytes2, Response<()>) {
        let fields = [&[("sec-websocket-version", "13")], fields].concat();
        let mut response = self.ask("websocket", path, &fields).await;
        assert_eq!(response.status(), 200, "{response:?}");
        for name in ["connection", "upgrade", "sec-websocket-accept", "content-length"] {
            assert!(response.headers().get(name).is_none(), "{response:?}");
        }
        let io = hyper::upgrade::on(&mut response).await.unwrap();
        (FuturesIo::new(io), response.map(drop))
    }
}
