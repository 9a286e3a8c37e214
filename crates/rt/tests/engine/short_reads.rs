//! Reads that give less than was asked for and still leave bytes behind: the rest is read without
//! waiting for more. On every back-end, for each way to read.

use std::io::{self, IoSliceMut, Write};
use std::net::{TcpListener, TcpStream as Std};
use std::time::Duration;

use futures_lite::AsyncReadExt;
use futures_lite::future::zip;
use socket2::SockRef;
use superpoll_conformance::sys;
use superpoll_rt::net::TcpStream;
use superpoll_rt::transfer::splice;
use superpoll_rt::{AsyncFd, BackendKind, Runtime, pipe, time};

/// The longest time for reading bytes that are there.
const LIMIT: Duration = Duration::from_secs(30);

fn on_each(test: impl AsyncFn(BackendKind)) {
    for backend in BackendKind::available() {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        let run = time::timeout(LIMIT, test(backend));
        runtime.block_on(async { run.await.unwrap_or_else(|_| panic!("{backend:?}: it stalls")) });
    }
}

/// A connection on which a read has waited before.
async fn connection() -> (Std, Std) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Std::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    (listener.accept().unwrap().0, client)
}

/// Sends bytes with an urgent one between them, when a task waits for them.
async fn send(mut client: &Std) {
    time::sleep(Duration::from_millis(1)).await;
    client.write_all(b"abc").unwrap();
    SockRef::from(client).send_out_of_band(b"!").unwrap();
    client.write_all(b"def").unwrap();
}

async fn all(mut read: impl AsyncFnMut(&mut [u8]) -> io::Result<usize>, client: &Std) -> Vec<u8> {
    let (mut all, mut room) = (Vec::new(), [0; 100]);
    let (count, ()) = zip(read(&mut room), send(client)).await;
    all.extend_from_slice(&room[..count.unwrap()]);
    while all.len() < 6 {
        let count = read(&mut room).await.unwrap();
        assert!(count > 0);
        all.extend_from_slice(&room[..count]);
    }
    all
}

#[test]
fn bytes_behind_an_urgent_byte_are_read_in_every_way() {
    on_each(async |backend| {
        let tcp = async || {
            let (server, client) = connection().await;
            (TcpStream::from_std(server).unwrap(), client)
        };
        for _ in 0..3 {
            let (mut stream, client) = tcp().await;
            let read = async |room: &mut [u8]| stream.read(room).await;
            assert_eq!(all(read, &client).await, b"abcdef", "{backend:?}, read");

            let (mut stream, client) = tcp().await;
            let read =
                async |room: &mut [u8]| stream.read_vectored(&mut [IoSliceMut::new(room)]).await;
            assert_eq!(all(read, &client).await, b"abcdef", "{backend:?}, vectored");

            let (stream, client) = tcp().await;
            let (mut reader, writer) = pipe::pipe().unwrap();
            let read = async |room: &mut [u8]| {
                let moved = splice(&stream, &writer, room.len()).await?;
                reader.read_exact(&mut room[..moved]).await.map(|()| moved)
            };
            assert_eq!(all(read, &client).await, b"abcdef", "{backend:?}, splice");

            let (server, client) = connection().await;
            let mut plain = AsyncFd::new(server).unwrap();
            let read = async |room: &mut [u8]| plain.read(room).await;
            assert_eq!(all(read, &client).await, b"abcdef", "{backend:?}, any descriptor");
        }
    });
}

#[test]
fn packets_of_a_pipe_are_read_one_after_the_other() {
    on_each(async |backend| {
        for known in [true, false] {
            let (reader, writer) = sys::packet_pipe().unwrap();
            let mut writer = std::fs::File::from(writer);
            let mut reader = match known {
                true => pipe::reader_from(reader).unwrap(),
                false => AsyncFd::new(io::PipeReader::from(reader)).unwrap(),
            };
            let mut room = [0; 100];
            let send = async {
                time::sleep(Duration::from_millis(1)).await;
                writer.write_all(b"abc").unwrap();
                writer.write_all(b"def").unwrap();
            };
            let (count, ()) = zip(reader.read(&mut room), send).await;
            assert_eq!(room[..count.unwrap()], *b"abc", "{backend:?}");
            assert_eq!(reader.read(&mut room).await.unwrap(), 3, "{backend:?}");
        }
    });
}

#[test]
fn more_buffers_than_the_kernel_uses_do_not_mean_drained() {
    on_each(async |_| {
        let (server, mut client) = connection().await;
        let mut stream = TcpStream::from_std(server).unwrap();
        let mut rooms = vec![[0; 1]; 2000];
        let send = async {
            time::sleep(Duration::from_millis(1)).await;
            client.write_all(&[7; 2000]).unwrap();
        };
        let mut parts: Vec<_> = rooms.iter_mut().map(|room| IoSliceMut::new(room)).collect();
        let (first, ()) = zip(stream.read_vectored(&mut parts), send).await;
        assert_eq!(first.unwrap(), 1024);
        let mut parts: Vec<_> = rooms.iter_mut().map(|room| IoSliceMut::new(room)).collect();
        assert_eq!(stream.read_vectored(&mut parts).await.unwrap(), 976);
    });
}
