//! The adapters themselves: both directions, vectored writes, readers that lie, time limits.

use std::convert::Infallible;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use async_tungstenite::WebSocketStream;
use async_tungstenite::client_async;
use async_tungstenite::tungstenite::Message;
use async_tungstenite::tungstenite::handshake::server::create_response_with_body;
use async_tungstenite::tungstenite::protocol::Role;
use futures_lite::{AsyncReadExt, AsyncWriteExt, StreamExt};
use http_body_util::{Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Executor, Read, ReadBuf, Timer, Write};
use hyper::service::service_fn;
use hyper::{Request, Response};
use superpoll_rt::hyper::{EngineExecutor, EngineTimer, FuturesIo};
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::tokio::Compat;
use superpoll_rt::{BackendKind, Runtime, spawn, yield_now};

use super::example::noise;

fn pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().unwrap()
}

fn each(test: impl AsyncFn()) {
    for kind in BackendKind::available() {
        eprintln!("back-end {kind}");
        Runtime::builder().backend(kind).build().unwrap().block_on(test());
    }
}

/// A futures-io stream that gives and takes a few bytes at a time.
struct Morsels {
    given: Vec<u8>,
    taken: Vec<u8>,
    vectored: usize,
    closed: bool,
}

impl Morsels {
    fn new(given: &[u8]) -> Morsels {
        Morsels { given: given.to_vec(), taken: Vec::new(), vectored: 0, closed: false }
    }
}

impl futures_io::AsyncRead for Morsels {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let count = buffer.len().min(3).min(self.given.len());
        for (place, byte) in buffer.iter_mut().zip(self.given.drain(..count)) {
            *place = byte;
        }
        Poll::Ready(Ok(count))
    }
}

impl futures_io::AsyncWrite for Morsels {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = buffer.len().min(3);
        self.taken.extend(&buffer[..count]);
        Poll::Ready(Ok(count))
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.vectored += 1;
        for buffer in buffers {
            self.taken.extend(&**buffer);
        }
        Poll::Ready(Ok(buffers.iter().map(|buffer| buffer.len()).sum()))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_close(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.closed = true;
        Poll::Ready(Ok(()))
    }
}

/// A reader that says it has read more than there was room for.
struct Liar;

impl futures_io::AsyncRead for Liar {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buffer.len() + 1))
    }
}

fn cx() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

#[test]
fn a_wrapped_stream_has_hypers_traits() {
    let mut io = FuturesIo::new(Morsels::new(b"abcde"));
    let mut memory = [std::mem::MaybeUninit::uninit(); 8];
    let mut buffer = ReadBuf::uninit(&mut memory);
    for expected in [&b"abc"[..], b"abcde", b"abcde"] {
        assert!(Read::poll_read(Pin::new(&mut io), &mut cx(), buffer.unfilled()).is_ready());
        assert_eq!(buffer.filled(), expected);
    }
    let parts = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
    assert!(io.is_write_vectored());
    let written = Write::poll_write_vectored(Pin::new(&mut io), &mut cx(), &parts);
    assert!(matches!(written, Poll::Ready(Ok(4))));
    assert!(matches!(Write::poll_write(Pin::new(&mut io), &mut cx(), b"efgh"), Poll::Ready(Ok(3))));
    assert!(Write::poll_flush(Pin::new(&mut io), &mut cx()).is_ready());
    assert!(Write::poll_shutdown(Pin::new(&mut io), &mut cx()).is_ready());
    assert!(!io.get_mut().given.contains(&b'a'));
    assert!(io.get_ref().closed);
    assert!(!FuturesIo::new(Morsels::new(b"")).without_vectored_writes().is_write_vectored());
    let inner = io.into_inner();
    assert_eq!((&inner.taken[..], inner.vectored), (&b"abcdefg"[..], 1));
}

#[test]
#[should_panic(expected = "claims to have filled 9 bytes of a buffer of 8")]
fn a_reader_that_lies_to_hyper_is_caught() {
    let mut memory = [std::mem::MaybeUninit::uninit(); 8];
    let mut buffer = ReadBuf::uninit(&mut memory);
    let _ = Read::poll_read(Pin::new(&mut FuturesIo::new(Liar)), &mut cx(), buffer.unfilled());
}

#[test]
#[should_panic(expected = "filled must not become larger than initialized")]
fn a_reader_that_lies_to_tokio_is_caught() {
    let mut memory = [std::mem::MaybeUninit::uninit(); 8];
    let mut buffer = tokio::io::ReadBuf::uninit(&mut memory);
    let _ =
        tokio::io::AsyncRead::poll_read(Pin::new(&mut Compat::new(Liar)), &mut cx(), &mut buffer);
}

async fn read(io: &mut (impl Read + Unpin), buffer: &mut ReadBuf<'_>) {
    std::future::poll_fn(|cx| Read::poll_read(Pin::new(&mut *io), cx, buffer.unfilled()))
        .await
        .unwrap();
}

#[test]
fn a_full_buffer_reads_nothing_and_an_end_is_an_end() {
    each(async || {
        let (mut one, mut other) = pair();
        AsyncWriteExt::write_all(&mut one, b"abc").await.unwrap();
        let mut memory = [0; 2];
        let mut buffer = ReadBuf::new(&mut memory);
        for _ in 0..2 {
            read(&mut other, &mut buffer).await;
            assert_eq!(buffer.filled(), b"ab");
        }
        drop(one);
        let mut memory = [0; 2];
        let mut buffer = ReadBuf::new(&mut memory);
        for _ in 0..3 {
            read(&mut other, &mut buffer).await;
        }
        assert_eq!(buffer.filled(), b"c");
    });
}

#[test]
fn bytes_go_through_both_wrappers_and_back() {
    each(async || {
        let (one, other) = pair();
        let sent = noise(11, 500_000);
        let echo = spawn(async move {
            // futures-io, as tokio's, as futures-io's, as hyper's, as futures-io's.
            let inner = Compat::new(Compat::new(other));
            let mut stream = FuturesIo::new(FuturesIo::new(inner));
            let mut buffer = vec![0; 70_000];
            loop {
                let count = AsyncReadExt::read(&mut stream, &mut buffer).await.unwrap();
                if count == 0 {
                    return;
                }
                AsyncWriteExt::write_all(&mut stream, &buffer[..count]).await.unwrap();
            }
        });
        let (mut reader, mut writer) = futures_lite::io::split(one);
        let upload = {
            let sent = sent.clone();
            spawn(async move {
                AsyncWriteExt::write_all(&mut writer, &sent).await.unwrap();
                AsyncWriteExt::flush(&mut writer).await.unwrap();
            })
        };
        let mut received = vec![0; sent.len()];
        AsyncReadExt::read_exact(&mut reader, &mut received).await.unwrap();
        assert!(received == sent);
        upload.await.unwrap();
        drop(reader);
        echo.await.unwrap();
    });
}

#[test]
fn tokios_extensions_work_on_streams_and_wrapped_ones() {
    each(async || {
        let (mut one, other) = pair();
        tokio::io::AsyncWriteExt::write_u32(&mut one, 7).await.unwrap();
        let mut wrapped = Compat::new(other);
        assert_eq!(tokio::io::AsyncReadExt::read_u32(&mut wrapped).await.unwrap(), 7);
        let parts = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
        let written = tokio::io::AsyncWriteExt::write_vectored(&mut wrapped, &parts).await;
        assert_eq!(written.unwrap(), 4);
        let mut four = [0; 4];
        tokio::io::AsyncReadExt::read_exact(&mut one, &mut four).await.unwrap();
        assert_eq!(&four, b"abcd");

        let copied = spawn(async move {
            let mut taken = Vec::new();
            tokio::io::copy(&mut wrapped, &mut taken).await.unwrap();
            taken
        });
        let sent = noise(13, 300_000);
        tokio::io::AsyncWriteExt::write_all(&mut one, &sent).await.unwrap();
        drop(one);
        assert!(copied.await.unwrap() == sent);
    });
}

#[test]
fn the_executor_runs_futures_that_are_not_send() {
    each(async || {
        let value = Rc::new(std::cell::Cell::new(0));
        let seen = value.clone();
        EngineExecutor.execute(async move {
            yield_now().await;
            seen.set(7);
        });
        while Rc::strong_count(&value) > 1 {
            yield_now().await;
        }
        assert_eq!(value.get(), 7);
    });
}

#[test]
fn the_timer_waits_and_can_be_set_anew() {
    each(async || {
        let (start, short) = (Instant::now(), Duration::from_millis(2));
        EngineTimer.sleep(short).await;
        assert!(start.elapsed() >= short);
        EngineTimer.sleep_until(start + 2 * short).await;
        assert!(start.elapsed() >= 2 * short);

        let mut sleep = EngineTimer.sleep(Duration::from_secs(3600));
        assert!(futures_lite::future::poll_once(&mut sleep).await.is_none());
        let end = Instant::now() + short;
        EngineTimer.reset(&mut sleep, end);
        sleep.as_mut().await;
        assert!(Instant::now() >= end);
    });
}

/// Another timer's sleep is replaced, not mistaken for a sleep of this runtime.
#[test]
fn a_sleep_of_another_timer_is_replaced() {
    struct Never;
    impl Future for Never {
        type Output = ();
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }
    impl hyper::rt::Sleep for Never {}
    each(async || {
        let mut sleep: Pin<Box<dyn hyper::rt::Sleep>> = Box::pin(Never);
        EngineTimer.reset(&mut sleep, Instant::now());
        sleep.await;
    });
}

#[test]
fn a_client_that_sends_no_request_is_dropped_when_its_time_is_over() {
    each(async || {
        let (server, mut client) = pair();
        let service = service_fn(async |_: Request<Incoming>| {
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(EngineTimer)
            .header_read_timeout(Duration::from_millis(5))
            .serve_connection(server, service)
            .await;
        assert!(served.unwrap_err().is_timeout());
        let mut rest = Vec::new();
        AsyncReadExt::read_to_end(&mut client, &mut rest).await.unwrap();
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408 "), "{rest:?}");
    });
}

/// hyper does the handshake, and tungstenite the connection after it.
#[test]
fn a_connection_that_hyper_upgrades_is_a_websocket() {
    each(async || {
        let (server, client) = pair();
        let service = service_fn(async |mut request: Request<Incoming>| {
            let upgrade = hyper::upgrade::on(&mut request);
            spawn(async move {
                let stream = FuturesIo::new(upgrade.await.unwrap());
                let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
                while let Some(Ok(message)) = socket.next().await {
                    if message.is_text() {
                        socket.send(message).await.unwrap();
                    }
                }
            })
            .detach();
            let request = request.map(drop);
            create_response_with_body(&request, || Full::new(Bytes::new()))
        });
        let server = hyper::server::conn::http1::Builder::new().serve_connection(server, service);
        let server = spawn(server.with_upgrades());
        let (mut socket, _) = client_async("ws://localhost/", client).await.unwrap();
        for round in 0..10 {
            let message = Message::text(format!("round {round}"));
            socket.send(message.clone()).await.unwrap();
            assert_eq!(socket.next().await.unwrap().unwrap(), message);
        }
        socket.close(None).await.unwrap();
        server.await.unwrap().unwrap();
    });
}

/// A server's end in order: it answers the request at hand, and then closes.
#[test]
fn a_graceful_shutdown_answers_pending_requests() {
    each(async || {
        let (server, client) = pair();
        let asked = Rc::new(std::cell::Cell::new(false));
        let service = {
            let asked = asked.clone();
            service_fn(move |_: Request<Incoming>| {
                asked.set(true);
                async {
                    yield_now().await;
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("last"))))
                }
            })
        };
        let client = spawn(async move {
            let (mut requests, connection) =
                hyper::client::conn::http1::handshake(client).await.unwrap();
            spawn(connection).detach();
            let request = Request::get("/").header("host", "x").body(Empty::<Bytes>::new());
            requests.send_request(request.unwrap()).await.unwrap().status()
        });
        let mut server =
            pin!(hyper::server::conn::http1::Builder::new().serve_connection(server, service));
        std::future::poll_fn(|cx| {
            if asked.get() {
                return Poll::Ready(());
            }
            assert!(server.as_mut().poll(cx).is_pending());
            if asked.get() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        server.as_mut().graceful_shutdown();
        server.await.unwrap();
        assert_eq!(client.await.unwrap(), 200);
    });
}
