//! hyper's client on this runtime as a client of `http_echo`, and bad clients of the server.

use std::io::{Read, Write};
use std::rc::Rc;

use futures_lite::stream;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::client::conn::{http1, http2};
use hyper::{Method, Request, StatusCode, Version};
use superpoll_rt::hyper::{EngineExecutor, EngineTimer};
use superpoll_rt::{BackendKind, Runtime, spawn};

use super::example::{Example, noise, run_to_end};

const CONNECTIONS: u64 = 64;
const REQUESTS: u64 = 20;

fn post(body: Bytes) -> Request<Full<Bytes>> {
    let request = Request::post("http://echo/").header("host", "echo");
    request.body(Full::new(body)).unwrap()
}

/// A body that differs from request to request, from nothing to more than a socket takes at a time.
fn body(connection: u64, request: u64) -> Bytes {
    let len = match request % 10 {
        0 => 0,
        9 => 40_000,
        other => other as usize * 311,
    };
    noise(connection * REQUESTS + request, len).into()
}

#[test]
fn many_connections_with_many_requests_each_on_each_back_end() {
    for kind in BackendKind::available() {
        let server = Rc::new(Example::start("http_echo", kind));
        let runtime = Runtime::builder().backend(kind).build().unwrap();
        let clients = async {
            let clients = (0..CONNECTIONS).map(|number| {
                let server = server.clone();
                spawn(async move {
                    let stream = server.connect_async().await;
                    let (mut requests, connection) = http1::handshake(stream).await.unwrap();
                    let connection = spawn(connection);
                    for request in 0..REQUESTS {
                        let sent = body(number, request);
                        let answer = requests.send_request(post(sent.clone())).await.unwrap();
                        assert_eq!(answer.status(), StatusCode::OK);
                        let received = answer.into_body().collect().await.unwrap().to_bytes();
                        assert!(received == sent, "{kind}: request {request} of {number}");
                    }
                    drop(requests);
                    connection.await.unwrap().unwrap();
                })
            });
            for client in clients.collect::<Vec<_>>() {
                client.await.unwrap();
            }
        };
        runtime.block_on(clients);
    }
}

#[test]
fn many_streams_of_one_http_2_connection_on_each_back_end() {
    for kind in BackendKind::available() {
        let server = Example::start("http_echo", kind);
        let runtime = Runtime::builder().backend(kind).build().unwrap();
        let client = async {
            let (requests, connection) = http2::Builder::new(EngineExecutor)
                .timer(EngineTimer)
                .keep_alive_interval(std::time::Duration::from_secs(10))
                .handshake(server.connect_async().await)
                .await
                .unwrap();
            let connection = spawn(connection);
            let streams = (0..CONNECTIONS).map(|number| {
                let mut requests = requests.clone();
                spawn(async move {
                    for request in 0..REQUESTS / 4 {
                        let sent = body(number, request * 9);
                        requests.ready().await.unwrap();
                        let answer = requests.send_request(post(sent.clone())).await.unwrap();
                        assert_eq!(answer.version(), Version::HTTP_2);
                        let received = answer.into_body().collect().await.unwrap().to_bytes();
                        assert!(received == sent, "{kind}: request {request} of {number}");
                    }
                })
            });
            for stream in streams.collect::<Vec<_>>() {
                stream.await.unwrap();
            }
            drop(requests);
            connection.await.unwrap().unwrap();
        };
        runtime.block_on(client);
    }
}

/// The server sends back the bytes that have come while more are coming: it keeps no body.
#[test]
fn a_body_is_echoed_before_its_end() {
    const PART: usize = 64 * 1024;
    let server = Example::start("http_echo", BackendKind::Adaptive);
    Runtime::new().unwrap().block_on(async {
        let (mut requests, connection) =
            http1::handshake(server.connect_async().await).await.unwrap();
        spawn(connection).detach();
        let (parts, upload) = async_parts();
        let request = Request::builder().method(Method::POST).uri("/").header("host", "echo");
        parts.send(noise(0, PART)).await;
        let answer = requests.send_request(request.body(upload).unwrap()).await.unwrap();
        let mut answer = answer.into_body();
        for number in 0..64 {
            let expected = noise(number, PART);
            let mut received = Vec::new();
            while received.len() < PART {
                let frame = answer.frame().await.unwrap().unwrap();
                received.extend(frame.into_data().unwrap());
            }
            assert!(received == expected, "part {number}");
            parts.send(noise(number + 1, PART)).await;
        }
        drop(parts);
        // The last part has not been asked for yet.
        let rest = answer.collect().await.unwrap().to_bytes();
        assert!(rest == noise(64, PART));
    });
}

/// A request's body that is fed part by part.
struct Parts(Rc<std::cell::RefCell<Fed>>);

#[derive(Default)]
struct Fed {
    part: Option<Vec<u8>>,
    ended: bool,
    waker: Option<std::task::Waker>,
}

impl Parts {
    async fn send(&self, part: Vec<u8>) {
        let mut fed = self.0.borrow_mut();
        assert!(fed.part.replace(part).is_none(), "a part is taken before the next is sent");
        fed.waker.take().into_iter().for_each(std::task::Waker::wake);
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        let mut fed = self.0.borrow_mut();
        fed.ended = true;
        fed.waker.take().into_iter().for_each(std::task::Waker::wake);
    }
}

type Upload = StreamBody<
    std::pin::Pin<Box<dyn stream::Stream<Item = Result<Frame<Bytes>, std::convert::Infallible>>>>,
>;

fn async_parts() -> (Parts, Upload) {
    let fed = Rc::new(std::cell::RefCell::new(Fed::default()));
    let parts = Parts(fed.clone());
    let upload = stream::poll_fn(move |cx| {
        let mut fed = fed.borrow_mut();
        if let Some(part) = fed.part.take() {
            return std::task::Poll::Ready(Some(Ok(Frame::data(part.into()))));
        }
        if fed.ended {
            return std::task::Poll::Ready(None);
        }
        fed.waker = Some(cx.waker().clone());
        std::task::Poll::Pending
    });
    (parts, StreamBody::new(Box::pin(upload)))
}

/// A client that waits for permission to send its body gets it, rather than an answer whose body is
/// still to come.
#[test]
fn a_client_that_expects_100_continue_gets_it_before_the_answer() {
    for kind in BackendKind::available() {
        let server = Example::start("http_echo", kind);
        let mut client = server.connect();
        let head = "POST / HTTP/1.1\r\nhost: echo\r\nconnection: close\r\n\
                    content-length: 4\r\nexpect: 100-continue\r\n\r\n";
        client.write_all(head.as_bytes()).unwrap();
        let mut told = [0; 25];
        client.read_exact(&mut told).unwrap();
        assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n", "{kind}");
        client.write_all(b"body").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nbody"),
            "{kind}: {answer}"
        );
    }
}

#[test]
fn a_client_that_sends_nonsense_or_leaves_harms_no_other_client() {
    for kind in BackendKind::available() {
        let mut server = Example::start("http_echo", kind);
        let mut answer = String::new();
        let mut nonsense = server.connect();
        nonsense.write_all(b"\x16\x03\x01 what is this\r\n\r\n").unwrap();
        nonsense.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{kind}: {answer:?}");

        let mut half = server.connect();
        half.write_all(b"POST / HTTP/1.1\r\nhost: echo\r\ncontent-length: 100\r\n\r\nhalf")
            .unwrap();
        drop(half);
        // As long as the HTTP/2 preface, but different.
        let mut almost = server.connect();
        almost.write_all(b"PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n").unwrap();
        drop(almost);
        drop(server.connect());

        let client = async {
            let stream = server.connect_async().await;
            let (mut requests, connection) = http1::handshake(stream).await.unwrap();
            spawn(connection).detach();
            let request = Request::get("/").header("host", "echo").body(Empty::<Bytes>::new());
            let answer = requests.send_request(request.unwrap()).await.unwrap();
            assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "OK");
        };
        Runtime::builder().backend(kind).build().unwrap().block_on(client);
        server.assert_alive();
    }
}

/// The request that has begun is answered in full, the quiet connections are closed, and the server
/// ends with status 0.
#[test]
fn a_signal_ends_it_in_order() {
    for (kind, signal) in
        BackendKind::available().into_iter().zip(["INT", "TERM"].into_iter().cycle())
    {
        let mut server = Example::start("http_echo", kind);
        let mut answer = [0; 1024];

        let mut quiet = server.connect();
        quiet.write_all(b"GET / HTTP/1.1\r\nhost: echo\r\n\r\n").unwrap();
        assert_ne!(quiet.read(&mut answer).unwrap(), 0);
        let mut silent = server.connect();
        let mut busy = server.connect();
        busy.write_all(b"POST / HTTP/1.1\r\nhost: echo\r\ncontent-length: 8\r\n\r\nhalf").unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"half") {
            let count = busy.read(&mut answer).unwrap();
            assert_ne!(count, 0, "{kind}: the first half is echoed");
            received.extend(&answer[..count]);
        }

        server.signal(signal);
        assert_eq!(quiet.read_to_end(&mut Vec::new()).unwrap(), 0, "{kind}: closed");
        assert_eq!(silent.read_to_end(&mut Vec::new()).unwrap(), 0, "{kind}: closed");
        busy.write_all(b"more").unwrap();
        busy.read_to_end(&mut received).unwrap();
        assert!(received.ends_with(b"halfmore"), "{kind}: {}", received.escape_ascii());
        assert_eq!(server.wait().code(), Some(0), "{kind}");
    }
}

#[test]
fn a_client_uses_its_connections_again() {
    run_to_end("http_client");
}

#[test]
fn a_server_ends_in_order() {
    run_to_end("graceful_shutdown");
}
