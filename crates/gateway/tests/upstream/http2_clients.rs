//! Clients of HTTP/2 before servers of HTTP/1.

use std::convert::Infallible;

use bytes::Bytes;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use futures_rustls::rustls::pki_types::ServerName;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::client::conn::http2::{SendRequest, handshake};
use superpoll_rt::hyper::{EngineExecutor, FuturesIo};
use superpoll_rt::net::TcpStream;
use superpoll_rt::{BackendKind, Runtime, spawn};

use crate::gateway::{GIVEN, Gateway, MOST, config, whole};
use crate::http2::{certificate, encrypted, frame, head_of, speak};
use crate::origin::{Origin, Seen, ServerConnection};

type Sent = UnsyncBoxBody<Bytes, Infallible>;

/// The answer to a request: its status and fields, and the data and trailers of its body.
type Answered = (StatusCode, HeaderMap, Bytes, Option<HeaderMap>);

fn body(text: impl Into<Bytes>) -> Sent {
    Full::new(text.into()).boxed_unsync()
}

/// Returns a body with trailers, whose length is not known.
fn with_trailers(text: &'static str) -> Sent {
    let trailers = [("x-sum".parse().unwrap(), "5".parse().unwrap())].into_iter().collect();
    let frames = [Frame::data(Bytes::from(text)), Frame::trailers(trailers)].map(Ok);
    StreamBody::new(futures_lite::stream::iter(frames)).boxed_unsync()
}

async fn ask(
    sender: &mut SendRequest<Sent>,
    (method, path): (Method, &str),
    fields: &[(&str, &str)],
    body: Sent,
) -> Answered {
    let mut request = Request::builder().method(method).uri(format!("https://a.example{path}"));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let response = sender.send_request(request.body(body).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap();
    let trailers = body.trailers().cloned();
    (head.status, head.headers, body.to_bytes(), trailers)
}

/// Starts a gateway with a configuration, and asks it by HTTP/2.
fn with_client(
    backend: BackendKind,
    text: &str,
    asks: impl AsyncFnOnce(&mut SendRequest<Sent>),
) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let (gateway, connector) = encrypted(backend, folder.path(), text);
    let address = gateway.address.clone();
    Runtime::new().unwrap().block_on(async {
        let mut sender = speak(&connector, &address).await;
        asks(&mut sender).await;
    });
    gateway
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect()
}

/// Answers in the form that the path names.
fn shapes(line: &mut ServerConnection) -> std::io::Result<()> {
    loop {
        let seen = line.request()?;
        let path = seen.line().split(' ').nth(1).unwrap().to_owned();
        let fields = "Date: 1\r\nDate: 2\r\nConnection: x-own\r\nX-Own: 1\r\nX-Other: o\r\n";
        let ok = format!("HTTP/1.1 200 OK\r\n{fields}");
        match &*path {
            "/long" => {
                line.send(format!("{ok}Content-Length: 1000000\r\n\r\n"))?;
                line.send(pattern(1_000_000))?;
            }
            "/chunks" => {
                line.send(format!(
                    "{ok}Transfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n4\r\nbo"
                ))?;
                line.send("dy\r\n0\r\nX-Sum: 5\r\n\r\n")?;
            }
            "/end" => {
                line.send(format!("{ok}Connection: close\r\n\r\nto the end"))?;
                return Ok(());
            }
            "/204" => line.send(format!("HTTP/1.1 204 No Content\r\n{fields}\r\n"))?,
            "/304" => {
                let length = "Content-Length: 9\r\nETag: \"a\"\r\n\r\n";
                line.send(format!("HTTP/1.1 304 Not Modified\r\n{fields}{length}"))?;
            }
            _ => {
                let text = if seen.line().starts_with("HEAD") { "" } else { "short" };
                line.send(format!("{ok}Content-Length: 5\r\nContent-Length: 5\r\n\r\n{text}"))?;
            }
        }
    }
}

#[test]
fn responses_of_all_forms_reach_clients_of_http2() {
    for backend in MOST {
        for proxy in ["", GIVEN] {
            let origin = Origin::start(shapes);
            let text = config(&[&origin.address], "", proxy);
            with_client(backend, &text, async |sender| {
                let long = pattern(1_000_000);
                let (get, head) = (Method::GET, Method::HEAD);
                for (method, path, status, length, data) in [
                    (&get, "/", 200, Some("5"), &b"short"[..]),
                    (&head, "/", 200, Some("5"), b""),
                    (&get, "/204", 204, None, b""),
                    (&get, "/304", 304, Some("9"), b""),
                    (&get, "/chunks", 200, None, b"body"),
                    (&get, "/end", 200, None, b"to the end"),
                    (&get, "/long", 200, Some("1000000"), &long),
                    (&get, "/", 200, Some("5"), b"short"),
                ] {
                    let asked = (method.clone(), path);
                    let fields = [("te", "trailers")];
                    let answered = ask(sender, asked, &fields, body("")).await;
                    let (found, fields, came, trailers) = answered;
                    assert_eq!(found, status, "{path}");
                    assert!(came == data, "{path}: {} bytes", came.len());
                    let told = fields.get("content-length").map(|it| it.to_str().unwrap());
                    // A body that has come whole has a length, whoever has counted it.
                    let is_same = told == length || (path == "/end" && told == Some("10"));
                    assert!(is_same, "{path}: {told:?}");
                    let all = |name| fields.get_all(name).into_iter().collect::<Vec<_>>();
                    assert_eq!(all("date"), ["1"], "{path}");
                    assert_eq!(all("x-other"), ["o"], "{path}");
                    let is_chunked = path == "/chunks";
                    assert_eq!(fields.contains_key("trailer"), is_chunked);
                    assert_eq!(trailers.map(|it| it["x-sum"].clone()).is_some(), is_chunked);
                    let of_connection = ["connection", "x-own", "transfer-encoding"];
                    assert!(!of_connection.iter().any(|name| fields.contains_key(*name)));
                }
            });
            let seen = origin.seen();
            assert_eq!(seen[0].line(), "GET / HTTP/1.1");
            assert_eq!(seen[0].field("host").unwrap(), "a.example");
            assert_eq!(seen[0].field("te").unwrap(), "trailers");
            assert_eq!(seen[0].field("connection").unwrap(), "te");
        }
    }
}

#[test]
fn bodies_of_requests_of_http2_reach_servers() {
    for backend in MOST {
        let origin = Origin::echo();
        let text = config(&[&origin.address], "", "") + "[limits]\nbody_bytes = \"1MB\"\n";
        let gateway = with_client(backend, &text, async |sender| {
            let long = Bytes::from(pattern(900_000));
            for data in [Bytes::from("some"), long.clone()] {
                let asked = (Method::PUT, "/known");
                let answered = ask(sender, asked, &[], body(data.clone())).await;
                assert!(answered.2 == data);
            }
            // The length is not known, and fields follow.
            let asked = (Method::POST, "/unknown");
            let answered = ask(sender, asked, &[("trailer", "x-sum")], with_trailers("some")).await;
            assert_eq!(answered.2, "some");
            // A length leaves no place for fields in HTTP/1.
            let fields = [("trailer", "x-sum"), ("content-length", "4")];
            let answered =
                ask(sender, (Method::POST, "/length"), &fields, with_trailers("some")).await;
            assert_eq!(answered.2, "some");
            let fields = [("expect", "100-continue")];
            let answered = ask(sender, (Method::POST, "/waits"), &fields, body("some")).await;
            assert_eq!(answered.2, "some");
            let answered = ask(sender, (Method::POST, "/none"), &[], body("")).await;
            assert_eq!((answered.0, answered.2.len()), (StatusCode::OK, 0));
            let large = body(vec![b'x'; 1_000_001]);
            assert_eq!(ask(sender, (Method::PUT, "/large"), &[], large).await.0, 413);
        });
        let seen = origin.seen();
        let of = |path: &str| -> Vec<&Seen> {
            seen.iter().filter(|seen| seen.line().contains(path)).collect()
        };
        assert_eq!(of("/known").len(), 2);
        assert_eq!(of("/known")[1].field("content-length").unwrap(), "900000");
        assert_eq!(of("/unknown")[0].field("transfer-encoding").unwrap(), "chunked");
        assert_eq!(of("/unknown")[0].trailers.to_ascii_lowercase(), "x-sum: 5\r\n");
        assert_eq!((of("/length")[0].trailers.len(), &*of("/length")[0].body), (0, &b"some"[..]));
        assert_eq!(of("/waits")[0].field("expect"), None);
        assert!(of("/large").is_empty());
        assert_eq!(gateway.up(), [true]);
    }
}

/// The rest of the upload is not read, and the connection stays for other requests.
#[test]
fn an_upload_of_http2_may_be_answered_early() {
    for backend in MOST {
        let origin = Origin::start(|line| {
            line.head()?;
            line.answer("early")?;
            // The gateway ends the connection.
            let _ = std::io::copy(&mut line.reader, &mut std::io::sink());
            Ok(())
        });
        let text = config(&[&origin.address], "", "");
        let gateway = with_client(backend, &text, async |sender| {
            for round in 0..3 {
                let asked = (Method::POST, "/early");
                // It never ends.
                let data = futures_lite::stream::repeat_with(|| {
                    Ok(Frame::data(Bytes::from_static(&[b'x'; 1000])))
                });
                let answered = ask(sender, asked, &[], StreamBody::new(data).boxed_unsync()).await;
                assert_eq!((answered.0, &*answered.2), (StatusCode::OK, &b"early"[..]), "{round}");
            }
        });
        assert_eq!(gateway.up(), [true]);
    }
}

/// The server closes a connection when its second request is there.
#[test]
fn a_request_of_http2_is_sent_again_where_its_connection_was_closed() {
    for backend in MOST {
        let origin = Origin::start(|line| {
            line.request()?;
            line.answer("first")?;
            line.head().map(drop)
        });
        let text = config(&[&origin.address], "", ", retries = 0");
        let gateway = with_client(backend, &text, async |sender| {
            for round in 0..4 {
                let answered = ask(sender, (Method::PUT, "/"), &[], body("small")).await;
                assert_eq!((answered.0, &*answered.2), (StatusCode::OK, &b"first"[..]), "{round}");
            }
        });
        let seen = origin.seen();
        assert_eq!((seen.len(), origin.connections()), (4, 4));
        assert!(seen.iter().all(|seen| seen.body == b"small"));
        assert_eq!(gateway.up(), [true]);
    }
}

#[test]
fn responses_to_clients_of_http2_change_by_the_rules_of_their_route() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("404.html");
    std::fs::write(&page, "<p>sorry").unwrap();
    for backend in MOST {
        let origin = Origin::start(|line| {
            loop {
                let seen = line.request()?;
                let status = if seen.line().contains("/none") { "404 None" } else { "200 OK" };
                let text = "theirs ".repeat(300);
                let fields = format!(
                    "Content-Type: text/plain\r\nX-Gone: 1\r\nContent-Length: {}",
                    text.len()
                );
                line.send(format!("HTTP/1.1 {status}\r\n{fields}\r\n\r\n{text}"))?;
            }
        });
        let servers = format!("servers = [{{ address = \"{}\" }}]", origin.address);
        let proxy = ", replace_errors = true, compress = true, strip_path = true";
        let route = format!(
            "path = \"/app\"\nerrors.404 = {page:?}\nheaders = {{ set = {{ X-New = \"2\" }}, remove = [\"X-Gone\"] }}"
        );
        with_client(backend, &whole(&servers, proxy, &route), async |sender| {
            let codings = [("accept-encoding", "gzip")];
            let answered = ask(sender, (Method::GET, "/app/none"), &codings, body("")).await;
            assert_eq!((answered.0, &*answered.2), (StatusCode::NOT_FOUND, &b"<p>sorry"[..]));
            assert_eq!(answered.1["x-new"], "2");
            let answered = ask(sender, (Method::GET, "/app/a?b"), &codings, body("")).await;
            assert_eq!(answered.0, 200);
            assert_eq!(answered.1["content-encoding"], "gzip");
            assert!(answered.2.len() < 200, "{}", answered.2.len());
            assert_eq!(answered.1["x-new"], "2");
            assert!(!answered.1.contains_key("x-gone"));
            let answered = ask(sender, (Method::GET, "/app/a?b"), &[], body("")).await;
            assert_eq!(answered.2.len(), 2100);
            // They are answered here.
            let hops = [("max-forwards", "0")];
            let answered = ask(sender, (Method::OPTIONS, "/app/a"), &hops, body("")).await;
            assert_eq!(answered.0, 200);
            assert_eq!(ask(sender, (Method::GET, "/app/../a"), &[], body("")).await.0, 400);
        });
        let lines: Vec<_> = origin.seen().iter().map(|seen| seen.line().to_owned()).collect();
        assert_eq!(lines, ["GET /none HTTP/1.1", "GET /a?b HTTP/1.1", "GET /a?b HTTP/1.1"]);
        assert_eq!(origin.seen()[0].field("x-forwarded-prefix").unwrap(), "/app");
    }
}

/// The server learns that the request was not encrypted.
#[test]
fn clients_of_http2_without_tls_are_forwarded() {
    for backend in MOST {
        let origin = Origin::start(|line| {
            loop {
                line.request()?;
                line.answer("got")?;
            }
        });
        let gateway = Gateway::start(backend, &config(&[&origin.address], "", ""));
        Runtime::new().unwrap().block_on(async {
            let stream = TcpStream::connect(gateway.address.as_str()).await.unwrap();
            let (mut sender, connection) =
                handshake(EngineExecutor, FuturesIo::new(stream)).await.unwrap();
            spawn(async { drop(connection.await) }).detach();
            let request = Request::post("http://a.example/a").body(body("sent")).unwrap();
            let response = sender.send_request(request).await.unwrap();
            assert_eq!(response.status(), 200, "{backend:?}");
            assert_eq!(response.collect().await.unwrap().to_bytes(), "got");
        });
        let seen = &origin.seen()[0];
        assert_eq!(seen.field("x-forwarded-proto").as_deref(), Some("http"), "{backend:?}");
        assert_eq!(seen.body, b"sent");
    }
}

/// Each comes in a frame of its own before the final response.
#[test]
fn interim_responses_reach_clients_of_http2() {
    for backend in MOST {
        let origin = Origin::start(|line| {
            loop {
                line.request()?;
                line.send("HTTP/1.1 100 Continue\r\n\r\n")?;
                for link in ["</first>", "</second>"] {
                    line.send(format!("HTTP/1.1 103 Early Hints\r\nLink: {link}\r\n\r\n"))?;
                }
                line.answer("final")?;
            }
        });
        let folder = tempfile::tempdir().unwrap();
        certificate(folder.path());
        let text = config(&[&origin.address], "", "");
        let (gateway, connector) = encrypted(backend, folder.path(), &text);
        let heads = Runtime::new().unwrap().block_on(async {
            let stream = TcpStream::connect(gateway.address.as_str()).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let mut stream = connector.connect(name, stream).await.unwrap();
            let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            bytes.extend(frame(4, 0, 0, &[]));
            bytes.extend(frame(1, 5, 1, &head_of("GET", None)));
            stream.write_all(&bytes).await.unwrap();
            let mut heads = Vec::new();
            loop {
                let mut head = [0; 9];
                stream.read_exact(&mut head).await.unwrap();
                let length = usize::from(head[1]) << 8 | usize::from(head[2]);
                let mut payload = vec![0; length];
                stream.read_exact(&mut payload).await.unwrap();
                match (head[3], head[8]) {
                    (1, 1) => heads.push(payload),
                    (0, 1) => {
                        assert_eq!(payload, b"final");
                        break heads;
                    }
                    _ => {}
                }
            }
        });
        let has = |at: usize, text: &str| {
            heads[at].windows(text.len()).any(|part| part == text.as_bytes())
        };
        assert_eq!(heads.len(), 3, "{heads:?}");
        assert!(has(0, "103") && has(0, "</first>"), "{heads:?}");
        assert!(has(1, "103") && has(1, "</second>"), "{heads:?}");
        assert!(!has(2, "103"), "{heads:?}");
    }
}
