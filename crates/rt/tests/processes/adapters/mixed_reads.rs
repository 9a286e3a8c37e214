//! One stream read through the traits of hyper, tokio and futures-io in turn, while some of the
//! reads are given up: each byte comes once and in order.

use std::future::{Future, poll_fn};
use std::io::Write;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::thread;

use superpoll_rt::net::{TcpListener, TcpStream};
use superpoll_rt::{BackendKind, Runtime, spawn, yield_now};

const CONNECTIONS: usize = 24;
const BYTES: usize = 30_000;

fn byte(connection: usize, place: usize) -> u8 {
    (place * 7 + place / 256 + connection) as u8
}

/// Polls one read of up to `room` bytes through one of the traits.
fn poll_read(
    stream: &mut TcpStream,
    cx: &mut Context<'_>,
    by: usize,
    room: &mut [u8],
) -> Poll<usize> {
    let stream = Pin::new(stream);
    let count = match by % 3 {
        0 => {
            let mut buffer = hyper::rt::ReadBuf::new(room);
            let outcome = ready!(hyper::rt::Read::poll_read(stream, cx, buffer.unfilled()));
            outcome.map(|()| buffer.filled().len())
        }
        1 => {
            let mut buffer = tokio::io::ReadBuf::new(room);
            let outcome = ready!(tokio::io::AsyncRead::poll_read(stream, cx, &mut buffer));
            outcome.map(|()| buffer.filled().len())
        }
        _ => ready!(futures_io::AsyncRead::poll_read(stream, cx, room)),
    };
    Poll::Ready(count.unwrap())
}

async fn receive(mut stream: TcpStream, connection: usize) {
    let (mut received, mut by) = (0, connection);
    while received < BYTES {
        let mut room = vec![0; 1 + (by * 37 + connection * 11) % 700];
        let given_up = by % 5 == 0;
        let count = {
            let mut waited = pin!(yield_now());
            let read = poll_fn(|cx| match poll_read(&mut stream, cx, by, &mut room) {
                Poll::Pending if given_up => waited.as_mut().poll(cx).map(|()| None),
                outcome => outcome.map(Some),
            });
            read.await
        };
        by += 1;
        let Some(count) = count else { continue };
        assert!(count > 0, "connection {connection} ends after {received}");
        for (n, &got) in (received..).zip(&room[..count]) {
            assert_eq!(got, byte(connection, n), "connection {connection}, byte {n}");
        }
        received += count;
    }
}

#[test]
fn bytes_come_once_and_in_order_whatever_trait_reads_them() {
    for backend in BackendKind::available() {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let mut clients: Vec<_> =
                (0..CONNECTIONS).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
            let mut tasks = Vec::new();
            for connection in 0..CONNECTIONS {
                let (stream, _) = listener.accept().await.unwrap();
                tasks.push(spawn(receive(stream, connection)));
            }
            let sender = thread::spawn(move || {
                // To all in turn, so that many are readable at a time.
                for from in (0..BYTES).step_by(500) {
                    for (connection, client) in clients.iter_mut().enumerate() {
                        let end = BYTES.min(from + 500);
                        let bytes: Vec<u8> = (from..end).map(|n| byte(connection, n)).collect();
                        client.write_all(&bytes).unwrap();
                    }
                }
            });
            for task in tasks {
                task.await.unwrap();
            }
            sender.join().unwrap();
        });
    }
}
