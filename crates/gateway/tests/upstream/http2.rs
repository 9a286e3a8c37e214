//! HTTP/2 on either side, and TLS.

use std::cell::Cell;
use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use futures_rustls::rustls::pki_types::pem::PemObject;
use futures_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use futures_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use futures_rustls::{TlsAcceptor, TlsConnector};
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::ext::Protocol;
use hyper::service::service_fn;
use superpoll_rt::hyper::{EngineExecutor, EngineTimer, FuturesIo};
use superpoll_rt::net::{TcpListener, TcpStream};
use superpoll_rt::{BackendKind, Runtime, spawn, time};

use crate::gateway::{Gateway, MOST, config, whole};
use crate::origin::{Client, Origin};

type Reply = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

/// Answers with the request's version, method and target in a field, and with its body and
/// trailers.
async fn answer(mut request: Request<Incoming>) -> Result<Response<Reply>, Infallible> {
    if let Some(protocol) = request.extensions().get::<Protocol>() {
        // It sends all bytes back.
        let told = format!("{} {} {}", request.method(), protocol.as_str(), request.uri());
        let has_key = request.headers().contains_key("sec-websocket-key");
        let upgrade = hyper::upgrade::on(&mut request);
        spawn(async {
            let stream = FuturesIo::new(upgrade.await.unwrap());
            let (reader, mut writer) = futures_lite::io::split(stream);
            let _ = futures_lite::io::copy(reader, &mut writer).await;
            let _ = writer.close().await;
        })
        .detach();
        let mut response = Response::new(Reply::default());
        response.headers_mut().insert("x-told", told.parse().unwrap());
        response.headers_mut().insert("x-key", has_key.to_string().parse().unwrap());
        return Ok(response);
    }
    let (head, body) = request.into_parts();
    if head.uri.path() == "/hold" {
        // It answers early, and reads no more without saying so.
        std::mem::forget(body);
        return Ok(Response::new(Full::new(Bytes::from("early")).boxed_unsync()));
    }
    let told = format!("{:?} {} {}", head.version, head.method, head.uri);
    let collected = body.collect().await.map(|body| (body.trailers().cloned(), body.to_bytes()));
    let (trailers, bytes) = collected.unwrap_or_default();
    let body = match trailers {
        None => Full::new(bytes).boxed_unsync(),
        // HTTP/1.1 has trailers only if the length is not given before.
        Some(trailers) => {
            let frames = [Frame::data(bytes), Frame::trailers(trailers)].map(Ok);
            StreamBody::new(futures_lite::stream::iter(frames)).boxed_unsync()
        }
    };
    let mut response = Response::new(body);
    if let Some(names) = head.headers.get("trailer") {
        response.headers_mut().insert("trailer", names.clone());
    }
    response.headers_mut().insert("x-told", told.parse().unwrap());
    if let Some(address) = head.headers.get("x-forwarded-for") {
        response.headers_mut().insert("x-for", address.clone());
    }
    Ok(response)
}

/// A server of hyper's that speaks HTTP/2, with TLS or without.
pub(crate) struct H2 {
    pub address: String,
    connections: Arc<AtomicUsize>,
    end: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// The moment at which a server ends a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Never,
    /// After each answer it announces that it takes no more requests.
    Politely,
    /// After each answer it closes the connection.
    AtOnce,
}

/// Serves a connection until the connection has to end.
async fn serve<I>(stream: I, ends: Ends)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + 'static,
{
    let answered = Rc::new(Cell::new(false));
    let marks = answered.clone();
    let service = service_fn(move |request| {
        let marks = marks.clone();
        async move {
            let response = answer(request).await;
            marks.set(true);
            response
        }
    });
    let mut builder = hyper::server::conn::http2::Builder::new(EngineExecutor);
    builder.timer(EngineTimer).enable_connect_protocol();
    let mut connection = std::pin::pin!(builder.serve_connection(stream, service));
    let mut last = None;
    std::future::poll_fn(|cx| {
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        match ends {
            Ends::Politely if answered.take() => {
                connection.as_mut().graceful_shutdown();
                cx.waker().wake_by_ref();
            }
            // The answer is on its way in a moment.
            Ends::AtOnce if answered.take() => last = Some(time::sleep(Duration::from_millis(5))),
            _ => {}
        }
        last.as_mut().map_or(Poll::Pending, |last| Pin::new(last).poll(cx))
    })
    .await;
}

impl H2 {
    pub(crate) fn start(tls: Option<TlsAcceptor>) -> H2 {
        H2::ending(tls, Ends::Never)
    }

    fn ending(tls: Option<TlsAcceptor>, ends: Ends) -> H2 {
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        let thread = thread::spawn(move || {
            let serve = async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap().to_string()).unwrap();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    count.fetch_add(1, Ordering::SeqCst);
                    let tls = tls.clone();
                    spawn(async move {
                        match tls {
                            None => serve(stream, ends).await,
                            Some(tls) => {
                                let Ok(stream) = tls.accept(stream).await else { return };
                                serve(FuturesIo::new(stream), ends).await;
                            }
                        }
                    })
                    .detach();
                }
            };
            let over = async {
                while ended.try_recv() != Err(mpsc::TryRecvError::Disconnected) {
                    time::sleep(Duration::from_millis(1)).await;
                }
            };
            Runtime::new().unwrap().block_on(futures_lite::future::or(serve, over));
        });
        H2 { address: told.recv().unwrap(), connections, end: Some(end), thread: Some(thread) }
    }
}

impl Drop for H2 {
    fn drop(&mut self) {
        self.end = None;
        let _ = self.thread.take().unwrap().join();
    }
}

/// Neither the connection's task nor the server's stream reads the rest of the upload.
#[test]
fn an_upload_that_outlives_its_response_has_a_limit() {
    let origin = H2::start(None);
    let text = config(&[&origin.address], "h2 = true", "")
        + "[timeouts]\nbody = \"60s\"\n[limits]\nbody_bytes = \"100MB\"\n";
    let gateway = Gateway::start(BackendKind::Epoll, &text);
    let mut client = Client::connect(&gateway.address);
    client.send("POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 50000000\r\n\r\n");
    let mut stream = client.stream.try_clone().unwrap();
    let writer = thread::spawn(move || {
        let _ = std::io::Write::write_all(&mut stream, &vec![b'x'; 50_000_000]);
    });
    assert_eq!(client.reply().text(), "early");
    // It is open: the server has read some, and might read more.
    let mut room = [0; 1000];
    client.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let waits = std::io::Read::read(&mut client.reader, &mut room);
    assert_eq!(waits.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    client.stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    gateway.elapse(Duration::from_secs(70));
    // It ends without a word, as the response was sent. What was not read of the upload resets it.
    let mut rest = Vec::new();
    let ended = std::io::Read::read_to_end(&mut client.reader, &mut rest);
    assert!(!ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
    assert_eq!(String::from_utf8_lossy(&rest), "");
    writer.join().unwrap();
}

/// Writes a certificate for `localhost` and its key.
pub(crate) fn certificate(folder: &Path) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
}

fn acceptor(folder: &Path) -> TlsAcceptor {
    let chain = vec![CertificateDer::from_pem_file(folder.join("cert.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).unwrap();
    let provider = Arc::new(futures_rustls::rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

#[test]
fn servers_may_speak_http2() {
    for backend in MOST {
        let origin = H2::start(None);
        let gateway = Gateway::start(backend, &config(&[&origin.address], "h2 = true", ""));
        let mut client = Client::connect(&gateway.address);
        for _ in 0..3 {
            let reply = client.get("/a?b");
            assert_eq!(reply.field("x-told").unwrap(), "HTTP/2.0 GET http://a.example/a?b");
            assert_eq!(reply.field("x-for").unwrap(), "127.0.0.1");
        }
        // As clients of HTTP/2 write it, and no reason to blame the server.
        for _ in 0..4 {
            let reply = client.get("/a<b`?c=>");
            assert_eq!((reply.status, reply.text()), (200, ""));
            let told = "HTTP/2.0 GET http://a.example/a%3Cb%60?c=%3E";
            assert_eq!(reply.field("x-told").unwrap(), told);
        }
        let body = "x".repeat(300_000);
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n{body}"));
        assert!(client.reply().text() == body);
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n");
        assert_eq!(client.reply().text(), "body");
        assert_eq!(origin.connections.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn trailers_pass_between_the_protocols() {
    for backend in MOST {
        let origin = H2::start(None);
        let gateway = Gateway::start(backend, &config(&[&origin.address], "h2 = true", ""));
        let mut client = Client::connect(&gateway.address);
        for _ in 0..2 {
            client.send(
                "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\n\
                 Transfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n4\r\nbody\r\n0\r\nx-sum: 5\r\n\r\n",
            );
            let reply = client.reply();
            assert_eq!(reply.text(), "body");
            // They came to the server, and back.
            assert_eq!(reply.trailers.to_ascii_lowercase(), "x-sum: 5\r\n", "{reply:?}");
        }
        assert_eq!(origin.connections.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn a_shared_connection_that_has_ended_is_replaced() {
    for backend in MOST {
        for ends in [Ends::Politely, Ends::AtOnce] {
            let origin = H2::ending(None, ends);
            let gateway = Gateway::start(backend, &config(&[&origin.address], "h2 = true", ""));
            let mut client = Client::connect(&gateway.address);
            for round in 1..=5 {
                assert_eq!(client.get("/").status, 200);
                // Whether its end is known yet when the next request comes is left to chance in
                // every other round.
                if round % 2 == 0 {
                    thread::sleep(Duration::from_millis(30));
                }
            }
            let connections = origin.connections.load(Ordering::SeqCst);
            assert!(connections > 1, "{connections} connections");
            assert_eq!(gateway.up(), [true]);
            assert!(gateway.told().is_empty(), "{:?}", gateway.told());
        }
    }
}

#[test]
fn servers_may_show_certificates() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let origin = H2::start(Some(acceptor(folder.path())));
    let ca = folder.path().join("cert.pem").display().to_string();
    let tls =
        |name: &str| format!("h2 = true\ntls = {{ ca = \"{ca}\", server_name = \"{name}\" }}");
    let text = config(&[&origin.address], &tls("localhost"), "");
    let gateway = Gateway::start(BackendKind::Adaptive, &text);
    let mut client = Client::connect(&gateway.address);
    for _ in 0..2 {
        let reply = client.get("/");
        assert_eq!(reply.field("x-told").unwrap(), "HTTP/2.0 GET https://a.example/");
    }
    assert_eq!(origin.connections.load(Ordering::SeqCst), 1);
    // A certificate for another name is not good enough.
    let text = config(&[&origin.address], &tls("other.example"), "");
    let gateway = Gateway::start(BackendKind::Adaptive, &text);
    assert_eq!(crate::origin::get(&gateway.address, "/").status, 502);
}

/// Returns a gateway with TLS before a server, and the way to it by HTTP/2.
fn front(backend: BackendKind, folder: &Path, address: &str) -> (Gateway, TlsConnector) {
    front_with(backend, folder, &format!("servers = [{{ address = \"{address}\" }}]"))
}

fn front_with(backend: BackendKind, folder: &Path, servers: &str) -> (Gateway, TlsConnector) {
    encrypted(backend, folder, &whole(servers, "", ""))
}

/// The same with a configuration, whose listener gets TLS.
pub(crate) fn encrypted(
    backend: BackendKind,
    folder: &Path,
    text: &str,
) -> (Gateway, TlsConnector) {
    let gateway = front_of(backend, folder, text);
    (gateway, TlsConnector::from(Arc::new(trusting(folder))))
}

/// Returns a gateway with TLS.
pub(crate) fn front_of(backend: BackendKind, folder: &Path, text: &str) -> Gateway {
    let at = folder.display();
    let text = text.replace(
        "address = \"127.0.0.1:0\"\n",
        &format!("address = \"127.0.0.1:0\"\ntls = {{ certificate = \"{at}/cert.pem\", key = \"{at}/key.pem\" }}\n"),
    );
    Gateway::start(backend, &text)
}

/// Returns how a client speaks HTTP/2 with it.
pub(crate) fn trusting(folder: &Path) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("cert.pem")).unwrap()).unwrap();
    let provider = Arc::new(futures_rustls::rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// Speaks HTTP/2 with a gateway.
pub(crate) async fn speak<B>(connector: &TlsConnector, address: &str) -> SendRequest<B>
where
    B: Body<Data = Bytes, Error = Infallible> + Unpin + 'static,
{
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = FuturesIo::new(connector.connect(name, stream).await.unwrap());
    let (sender, connection) =
        hyper::client::conn::http2::handshake(EngineExecutor, stream).await.unwrap();
    spawn(async { drop(connection.await) }).detach();
    sender
}

#[test]
fn clients_may_speak_http2() {
    for backend in MOST {
        let folder = tempfile::tempdir().unwrap();
        certificate(folder.path());
        let origin = Origin::echo();
        let (gateway, connector) = front(backend, folder.path(), &origin.address);
        let address = gateway.address.clone();
        let asks = async {
            let mut sender = speak(&connector, &address).await;
            for authority in ["u@a.example", "u:p@a.example", "a.example:x", "a.example:99999"] {
                let uri = format!("https://{authority}/");
                let request = Request::get(uri).body(Full::default()).unwrap();
                let response = sender.send_request(request).await.unwrap();
                assert_eq!(response.status(), 400, "{authority}");
            }
            // Two hosts are one too many (RFC 9113, section 8.3.1).
            let two = Request::get("https://a.example/").header("host", "b.example");
            let response = sender.send_request(two.body(Full::default()).unwrap()).await.unwrap();
            assert_eq!(response.status(), 400);
            for body in ["", "some"] {
                let request = Request::post("https://a.example/x?y")
                    .header("host", "a.example")
                    .header("te", "trailers")
                    .header("cookie", "sid=abc")
                    .header("cookie", "theme=dark")
                    .header("cookie", "csrf=\"a,b\"")
                    .body(Full::new(Bytes::from(body)))
                    .unwrap();
                let response = sender.send_request(request).await.unwrap();
                assert_eq!(response.status(), 200);
                let back = response.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(back, body);
            }
        };
        Runtime::new().unwrap().block_on(asks);
        let seen = origin.seen();
        assert_eq!(seen.len(), 2);
        for seen in seen {
            assert_eq!(seen.line(), "POST /x?y HTTP/1.1");
            assert_eq!(seen.field("host").unwrap(), "a.example");
            assert_eq!(seen.field("x-forwarded-proto").unwrap(), "https");
            // One field, as HTTP/1.1 has it.
            assert_eq!(seen.field("cookie").unwrap(), "sid=abc; theme=dark; csrf=\"a,b\"");
        }
    }
}

/// All are polled by one task, which has a number of operations before others have their turn.
#[test]
fn as_many_requests_at_a_time_as_a_connection_may_have_are_forwarded() {
    for backend in MOST {
        let folder = tempfile::tempdir().unwrap();
        certificate(folder.path());
        let origin = Origin::echo();
        let (gateway, connector) = front(backend, folder.path(), &origin.address);
        let address = gateway.address.clone();
        Runtime::new().unwrap().block_on(async {
            let sender = speak(&connector, &address).await;
            for _ in 0..3 {
                let asks: Vec<_> = (0..128)
                    .map(|number: u32| {
                        let mut sender = sender.clone();
                        spawn(async move {
                            let body = Bytes::from(number.to_string().repeat(100));
                            let request =
                                Request::post("https://a.example/").body(Full::new(body.clone()));
                            let response = sender.send_request(request.unwrap()).await.unwrap();
                            assert_eq!(response.status(), 200);
                            let back = response.into_body().collect().await.unwrap().to_bytes();
                            assert_eq!(back, body);
                        })
                    })
                    .collect();
                for ask in asks {
                    ask.await.unwrap();
                }
            }
        });
    }
}

/// They come whatever the length of the body is.
#[test]
fn trailers_behind_a_length_pass_through() {
    for backend in MOST {
        let folder = tempfile::tempdir().unwrap();
        certificate(folder.path());
        let origin = H2::start(None);
        let servers = format!("servers = [{{ address = \"{}\" }}]\nh2 = true", origin.address);
        let (gateway, connector) = front_with(backend, folder.path(), &servers);
        let address = gateway.address.clone();
        let asks = async {
            let mut sender = speak(&connector, &address).await;
            for method in ["POST", "PUT"] {
                let frames = [
                    Frame::data(Bytes::from("body")),
                    Frame::trailers(
                        [("x-sum".parse().unwrap(), "5".parse().unwrap())].into_iter().collect(),
                    ),
                ];
                let frames = futures_lite::stream::iter(frames.map(Ok::<_, Infallible>));
                let request = Request::builder()
                    .method(method)
                    .uri("https://a.example/")
                    .header("te", "trailers")
                    .header("content-length", "4")
                    .header("trailer", "x-sum")
                    .body(StreamBody::new(frames))
                    .unwrap();
                let response = sender.send_request(request).await.unwrap();
                let back = response.into_body().collect().await.unwrap();
                assert_eq!(back.trailers().unwrap()["x-sum"], "5", "{method}");
                assert_eq!(back.to_bytes(), "body");
            }
        };
        Runtime::new().unwrap().block_on(asks);
    }
}

/// Returns a frame of HTTP/2 (RFC 9113, section 4.1).
pub(crate) fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Returns the head of a request for `/` with a method, by fields of the static table (RFC 7541).
pub(crate) fn head_of(method: &str, length: Option<&str>) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let length = length.map(|length| [&[0x0f, 0x0d], &*text(length)].concat());
    [&[0x02], &*text(method), &[0x87, 0x84, 0x01], &*text("a.example"), &length.unwrap_or_default()]
        .concat()
}

/// A client takes an upload back without an error: the part that came is not stored as the whole.
#[test]
fn an_upload_that_is_reset_is_not_forwarded_as_whole() {
    for backend in MOST {
        let folder = tempfile::tempdir().unwrap();
        certificate(folder.path());
        let origin = Origin::echo();
        let (gateway, connector) = front(backend, folder.path(), &origin.address);
        let address = gateway.address.clone();
        let asks = async {
            let stream = TcpStream::connect(address.as_str()).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let mut stream = connector.connect(name, stream).await.unwrap();
            let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            bytes.extend(frame(4, 0, 0, &[]));
            // The first leaves a connection to the server, on which an upload could go at once.
            for last in [1, 7] {
                bytes.extend(frame(1, 5, last, &head_of("GET", None)));
                stream.write_all(&bytes).await.unwrap();
                loop {
                    let mut head = [0; 9];
                    stream.read_exact(&mut head).await.unwrap();
                    let length = usize::from(head[1]) << 8 | usize::from(head[2]);
                    stream.read_exact(&mut vec![0; length]).await.unwrap();
                    if (head[3], head[8]) == (1, last) {
                        break;
                    }
                }
                bytes.clear();
                for (stream, method) in [(3, "PUT"), (5, "POST")] {
                    bytes.extend(frame(1, 4, stream, &head_of(method, Some("10"))));
                    bytes.extend(frame(0, 0, stream, b"some"));
                    bytes.extend(frame(3, 0, stream, &[0; 4]));
                }
            }
        };
        Runtime::new().unwrap().block_on(asks);
        let lines: Vec<_> = origin.seen().iter().map(|seen| seen.line().to_owned()).collect();
        assert_eq!(lines, ["GET / HTTP/1.1"; 2]);
        assert_eq!(gateway.up(), [true]);
    }
}
