//! A library's client of HTTP/2 whose requests have fields that it remembers and forgets, with
//! pauses in which the server drops its state, and without. The access log shows the fields as the
//! server has understood them.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures_io::{AsyncRead, AsyncWrite};
use futures_rustls::rustls::pki_types::ServerName;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use superpoll_rt::hyper::{EngineExecutor, FuturesIo};
use superpoll_rt::net::TcpStream;
use superpoll_rt::time::sleep;
use superpoll_rt::{BackendKind, Runtime, spawn};

use crate::http2::{Trust, port};
use crate::stage::{PATIENCE, Stage, folder};

/// The frame by which the server gives the table of fields back when it was woken.
const TABLE: &[u8] = &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0x10, 0];

/// How often the server has to be woken.
const WOKEN: u32 = 25;

/// Finds frames in what is read.
struct Watching<S> {
    stream: S,
    last: Vec<u8>,
    woken: Rc<Cell<u32>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watching<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_read(cx, room))?;
        self.last.extend_from_slice(&room[..count]);
        let found = self.last.windows(TABLE.len()).filter(|some| *some == TABLE).count();
        self.woken.set(self.woken.get() + u32::try_from(found).unwrap());
        let end = self.last.len().saturating_sub(TABLE.len() - 1);
        self.last.drain(..end);
        Poll::Ready(Ok(count))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watching<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(cx)
    }
}

/// A generator of numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[test]
fn fields_and_bodies_are_right_however_often_the_state_is_dropped() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    let log = folder.path().join("log");
    let text = trust.text(folder.path())
        + &format!(
            "[[hosts.routes]]\npath = \"/c\"\nchannel = {{ history = 1 }}\n[access_log]\npath = {log:?}\n"
        );
    let stage = Stage::new(BackendKind::Epoll, 1, &text);
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1;
    println!("seed {seed}");
    let connector = futures_rustls::TlsConnector::from(Arc::new(trust.config.clone()));
    let (woken, expected): (Rc<Cell<u32>>, Rc<RefCell<Vec<String>>>) = Default::default();
    Runtime::new().unwrap().block_on(async {
        let stream = TcpStream::connect(("127.0.0.1", port(&stage))).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        let stream = Watching { stream, last: Vec::new(), woken: woken.clone() };
        let (sender, connection) = hyper::client::conn::http2::Builder::new(EngineExecutor)
            // The server can be told of a window that is used up only if it is made larger again.
            .initial_connection_window_size(300_000)
            .initial_stream_window_size(100_000)
            .handshake(FuturesIo::new(stream))
            .await
            .unwrap();
        let connection = spawn(connection);
        let (mut random, end) = (Random(seed), Instant::now() + 6 * PATIENCE);
        let mut number = 0;
        while woken.get() < WOKEN {
            assert!(Instant::now() < end, "woken {} times", woken.get());
            let mut requests = Vec::new();
            for _ in 0..=random.below(5) {
                number += 1;
                // Few agents and many referers, so that some fields are forgotten.
                let agent = format!("agent-{}-{}", random.below(4), "a".repeat(60));
                let which = random.below(60);
                let referer = format!("https://a/{which}/{}", "r".repeat(which as usize * 3));
                let (path, length) = match random.below(10) {
                    0 => ("large.bin", 16 << 20),
                    1..4 => ("c", 0),
                    _ => ("small.txt", 6),
                };
                let url = format!("https://localhost/{path}?{number}");
                let is_post = path == "c";
                let body = if is_post { vec![b'x'; random.below(60_000) as usize] } else { vec![] };
                let request = hyper::Request::builder()
                    .method(if is_post { "POST" } else { "GET" })
                    .uri(url)
                    .header("user-agent", &agent)
                    .header("referer", &referer)
                    .body(Full::new(Bytes::from(body)))
                    .unwrap();
                let method = request.method().clone();
                let line = format!("\"{method} https://localhost/{path}?{number} HTTP/2.0\"");
                expected.borrow_mut().push(format!("{line}\t\"{referer}\" \"{agent}\""));
                let mut sender = sender.clone();
                requests.push(spawn(async move {
                    let response = sender.send_request(request).await.unwrap();
                    assert!(response.status().is_success(), "{}", response.status());
                    let body = response.into_body().collect().await.unwrap().to_bytes();
                    assert!(is_post || body.len() == length);
                }));
            }
            for request in requests {
                request.await.unwrap();
            }
            // It takes at least 40 ms until the server asks, and as long after the answer until it
            // drops its state.
            for _ in 0..2 {
                stage.elapse(Duration::from_millis(random.below(80)));
                sleep(Duration::from_millis(random.below(4))).await;
            }
        }
        stage.drain();
        connection.await.unwrap().unwrap();
    });
    assert_eq!(stage.drained(), 0);
    let log = std::fs::read_to_string(log).unwrap();
    let expected = expected.borrow();
    assert_eq!(log.lines().count(), expected.len());
    for expected in &*expected {
        let (request, fields) = expected.split_once('\t').unwrap();
        let line = log.lines().find(|line| line.contains(request)).expect(request);
        assert!(line.ends_with(fields), "{line} is not of {fields}");
    }
}
