//! Requests on connections whose other end the tests have.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::rc::Rc;

use futures_lite::future::zip;
use http::header::HOST;
use http::{HeaderMap, Request};
use proptest::prelude::*;
use superpoll_http1::{Asked, FieldValue, Method, Target, Writer};
use superpoll_rt::Runtime;

use super::*;
use crate::plain_stream::narrow;
use crate::transport::Upstream;
use crate::upstream::client::Apart;
use crate::upstream::outgoing::Outgoing;

/// Returns a request, whose body is sent behind the head, or as it comes.
fn post(body: &[u8], is_stream: bool) -> ServerRequest {
    let body = Bytes::copy_from_slice(body);
    if !is_stream || body.is_empty() {
        return ServerRequest::own(&Request::post("/a").header(HOST, "a").body(body).unwrap())
            .unwrap();
    }
    let (mut lines, target) = (Vec::new(), Target::new(Method::Post, "/a").unwrap());
    let writer = Writer::request(&mut lines, Method::Post, target, FieldValue::from_static("a"));
    let writer = writer.body(Framing::Length(body.len() as u64), After::Stays);
    let len = lines.len();
    let mut request = ServerRequest::new(lines, len, Asked::default(), Rc::default());
    request.send_as_it_comes(writer, Outgoing::Memory(body));
    request
}

async fn send(
    connection: &mut Http1Connection,
    request: &ServerRequest,
) -> Result<Response<Incoming>, (FailedAttempt, IsSent)> {
    let (additions, progress) = (Additions::default(), Progress::default());
    let (mut out, mut timer) = (Out::default(), LimitTimer::default());
    let (way, outcome) = ((request, &additions, &progress), (&mut out, &mut timer));
    let limit = Duration::from_secs(600);
    match ask((connection, false), way, &mut Apart::default(), outcome, limit).await {
        Ok(_) => {}
        Err(Missed::Failed(failed, is_sent)) => return Err((failed, is_sent)),
        Err(Missed::ClientGone | Missed::Unfit | Missed::NoWebSockets) => {
            panic!("it has no client of its own")
        }
    }
    match out.answer {
        Some(Answer::Given(response)) => Ok(response),
        _ => panic!("it has no client that takes lines"),
    }
}

/// Nothing of a request went to a server that is gone: it is sent to another one, whole.
#[test]
fn a_request_that_was_not_sent_is_sent_whole_to_another_server() {
    Runtime::new().unwrap().block_on(async {
        for (data, is_stream) in [(&b""[..], false), (b"abc", false), (b"abc", true)] {
            let (plain, theirs) = narrow();
            drop(theirs);
            let mut connection = Http1Connection::new(Upstream::Plain(plain));
            let request = post(data, is_stream);
            let sent = send(&mut connection, &request).await;
            assert!(!sent.err().unwrap().1);
            let (plain, mut theirs) = narrow();
            let mut connection = Http1Connection::new(Upstream::Plain(plain));
            let mut sent = pin!(send(&mut connection, &request));
            let pending = poll_fn(|cx| Poll::Ready(sent.as_mut().poll(cx).is_pending()));
            assert!(pending.await);
            let mut room = [0; 200];
            let count = theirs.read(&mut room).unwrap();
            assert!(room.starts_with(b"POST /a HTTP/1.1\r\nhost: a\r\n"));
            assert!(room[..count].ends_with(&[b"\r\n\r\n", data].concat()));
        }
    });
}

/// A server of HTTP/2 has not taken it, and the next one speaks HTTP/1.1.
#[test]
fn a_body_that_comes_back_is_sent_to_another_server() {
    Runtime::new().unwrap().block_on(async {
        let request = post(b"abc", true);
        let made = request.to_h2(true).unwrap();
        assert!(request.to_h2(true).is_none());
        request.put_back(Some(made.into_body()));
        let (plain, mut theirs) = narrow();
        let mut connection = Http1Connection::new(Upstream::Plain(plain));
        let mut sent = pin!(send(&mut connection, &request));
        assert!(poll_fn(|cx| Poll::Ready(sent.as_mut().poll(cx).is_pending())).await);
        let mut room = [0; 200];
        let count = theirs.read(&mut room).unwrap();
        assert!(room[..count].ends_with(b"\r\n\r\nabc"));
    });
}

/// Whether it may be sent again depends on whether something of it was sent.
#[test]
fn a_request_that_may_have_arrived_counts_as_sent() {
    Runtime::new().unwrap().block_on(async {
        for is_stream in [false, true] {
            let (plain, mut theirs) = narrow();
            let mut connection = Http1Connection::new(Upstream::Plain(plain));
            let request = post(b"abc", is_stream);
            let ended = async {
                let mut room = [0; 100];
                while theirs.read(&mut room).is_err() {
                    superpoll_rt::next_turn().await;
                }
                drop(theirs);
            };
            let (sent, ()) = zip(send(&mut connection, &request), ended).await;
            let (failed, is_sent) = sent.err().unwrap();
            assert!(is_sent && failed.may_go_on);
        }
    });
}

/// The server has answered and reads no more: it has seen a part of a request.
#[test]
fn a_connection_with_a_request_that_was_cut_is_not_used_again() {
    Runtime::new().unwrap().block_on(async {
        for is_stream in [true, false] {
            let (plain, mut theirs) = narrow();
            let mut connection = Http1Connection::new(Upstream::Plain(plain));
            let request = post(&[b'x'; 200_000], is_stream);
            let answer = async {
                let mut room = [0; 9000];
                while theirs.read(&mut room).is_err() {
                    superpoll_rt::next_turn().await;
                }
                // There is room for more of the request when the answer comes.
                while theirs.read(&mut room).is_ok() {}
                theirs.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
                theirs.shutdown(std::net::Shutdown::Read).unwrap();
            };
            let (sent, ()) = zip(send(&mut connection, &request), answer).await;
            assert_eq!(sent.ok().unwrap().status(), StatusCode::OK);
            poll_fn(|cx| connection.poll_unsent(cx)).await.unwrap_or_default();
            assert!(connection.has_read_all() && !connection.is_at_rest(), "{is_stream}");
        }
    });
}

/// The framing of a response.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Length,
    Chunks { size: usize, has_trailers: bool },
    UntilClose,
    NoContent,
}

fn shapes() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Length),
        (5..5000_usize, any::<bool>())
            .prop_map(|(size, has_trailers)| Shape::Chunks { size, has_trailers }),
        Just(Shape::UntilClose),
        Just(Shape::NoContent),
    ]
}

fn written(shape: Shape, data: &[u8], interim: usize) -> Vec<u8> {
    let mut bytes = b"HTTP/1.1 102 Processing\r\nX: y\r\n\r\n".repeat(interim);
    let mut text = |text: &str| bytes.extend_from_slice(text.as_bytes());
    match shape {
        Shape::Length => {
            text(&format!("HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: {}\r\n\r\n", data.len()));
            bytes.extend_from_slice(data);
        }
        Shape::Chunks { size, has_trailers } => {
            text("HTTP/1.1 200 OK\r\na:b\r\nTransfer-Encoding: chunked\r\n\r\n");
            for piece in data.chunks(size) {
                bytes.extend_from_slice(format!("{:x};x=y\r\n", piece.len()).as_bytes());
                bytes.extend_from_slice(piece);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n");
            bytes.extend_from_slice(if has_trailers { b"T: u\r\n\r\n" } else { b"\r\n" });
        }
        Shape::UntilClose => {
            text("HTTP/1.0 200 Fine\r\nA: b\r\n\r\n");
            bytes.extend_from_slice(data);
        }
        Shape::NoContent => text("HTTP/1.1 204 No Content\r\nA: b\r\n\r\n"),
    }
    bytes
}

/// Reads what has come, and writes a piece.
async fn serve(theirs: &mut UnixStream, pieces: &[&[u8]], seen: &mut Vec<u8>) {
    let mut room = [0; 9000];
    for piece in pieces {
        let mut at = 0;
        while at < piece.len() {
            while let Ok(count @ 1..) = theirs.read(&mut room) {
                seen.extend_from_slice(&room[..count]);
            }
            // An answer before the request would be no answer.
            if !seen.is_empty() {
                at += theirs.write(&piece[at..]).unwrap_or(0);
            }
            superpoll_rt::next_turn().await;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the pieces are in which a response comes, while the request is still sent or
    /// behind it: the body is the server's, and the server's request is ours.
    #[test]
    fn requests_and_responses_come_whole(
        upload in prop::collection::vec(any::<u8>(), 0..30_000),
        data in prop::collection::vec(any::<u8>(), 0..40_000),
        shape in shapes(),
        interim in 0..3_usize,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        is_stream in any::<bool>(),
    ) {
        let bytes = written(shape, &data, interim);
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        let pieces: Vec<&[u8]> = at.windows(2).map(|two| &bytes[two[0]..two[1]]).collect();
        Runtime::new().unwrap().block_on(async {
            let (plain, mut theirs) = narrow();
            let mut connection = Http1Connection::new(Upstream::Plain(plain));
            let mut seen = Vec::new();
            let ours = async {
                let request = post(&upload, is_stream);
                let sent = send(&mut connection, &request).await;
                let response = sent.ok().expect("there is a response");
                let (mut body, mut trailers) = (Vec::new(), HeaderMap::new());
                while let Some(frame) = poll_fn(|cx| connection.poll_body(cx)).await {
                    match frame.unwrap().into_data() {
                        Ok(piece) => body.extend_from_slice(&piece),
                        Err(frame) => trailers = frame.into_trailers().unwrap(),
                    }
                }
                (response, body, trailers)
            };
            let served = async {
                serve(&mut theirs, &pieces, &mut seen).await;
                if matches!(shape, Shape::UntilClose) {
                    theirs.shutdown(std::net::Shutdown::Write).unwrap();
                }
            };
            let ((response, body, trailers), ()) = zip(ours, served).await;
            let is_empty = matches!(shape, Shape::NoContent);
            assert_eq!(response.headers()["a"], "b");
            assert!(body == if is_empty { &[][..] } else { &data[..] });
            let has_trailers = matches!(shape, Shape::Chunks { has_trailers: true, .. });
            assert_eq!(trailers.contains_key("t"), has_trailers);
            // The rest of the request goes on, and then another request may follow.
            let mut room = [0; 9000];
            let head = format!("POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", upload.len());
            let whole = match upload.is_empty() {
                true => b"POST /a HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(),
                false => [head.as_bytes(), &upload].concat(),
            };
            while seen.len() < whole.len() {
                poll_fn(|cx| {
                    let _ = connection.poll_unsent(cx);
                    Poll::Ready(())
                })
                .await;
                superpoll_rt::next_turn().await;
                if let Ok(count) = theirs.read(&mut room) {
                    seen.extend_from_slice(&room[..count]);
                }
            }
            assert!(seen == whole, "{} of {} bytes", seen.len(), whole.len());
            let stays = !matches!(shape, Shape::UntilClose);
            let is_reusable = poll_fn(|cx| {
                let _ = connection.poll_unsent(cx);
                Poll::Ready((connection.is_at_rest(), connection.is_reusable(cx)))
            });
            assert_eq!(is_reusable.await, (stays, stays));
        });
    }
}
