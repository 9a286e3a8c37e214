//! Streams with urgent bytes in random places, read with random room and given up at random: each
//! byte comes once and in order, and none waits for the next to arrive. On every back-end.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream as Client};
use std::thread;
use std::time::Duration;

use futures_lite::future::or;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use socket2::SockRef;
use superpoll_rt::net::TcpStream;
use superpoll_rt::{BackendKind, Runtime, spawn, time, yield_now};

const CONNECTIONS: u64 = 24;
const ROUNDS: usize = 12;

/// The longest time for all of it.
const LIMIT: Duration = Duration::from_secs(60);

/// A generator of random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

fn byte(connection: u64, place: usize) -> u8 {
    (place * 7 + place / 256 + connection as usize) as u8
}

/// Sends some bytes with an urgent one between them and waits until all have come, again and again:
/// another urgent byte before that would make a plain byte of this one. Returns how many were sent.
fn send(mut client: Client, connection: u64) -> io::Result<usize> {
    let mut random = Random(connection + 1);
    let mut sent = 0;
    for _ in 0..ROUNDS {
        let mut write = |client: &mut Client, length: usize| {
            let bytes: Vec<u8> = (sent..sent + length).map(|n| byte(connection, n)).collect();
            sent += length;
            client.write_all(&bytes)
        };
        write(&mut client, 1 + random.below(300))?;
        if random.below(4) > 0 {
            SockRef::from(&client).send_out_of_band(b"!")?;
        }
        write(&mut client, 1 + random.below(300))?;
        let mut told = [0; 4];
        while u32::from_le_bytes(told) as usize != sent {
            client.read_exact(&mut told)?;
        }
    }
    Ok(sent)
}

/// Reads until the end, tells the sender after each read, and returns how many bytes have come.
async fn receive(mut stream: TcpStream, connection: u64) -> io::Result<usize> {
    let mut random = Random(connection + 1000);
    let mut received = 0;
    loop {
        let mut room = vec![0; 1 + random.below(500)];
        let pause = random.below(3);
        let read = async { Some(stream.read(&mut room).await) };
        let given_up = async {
            match pause {
                0 => yield_now().await,
                1 => time::sleep(Duration::from_micros(50)).await,
                _ => std::future::pending().await,
            }
            None
        };
        let Some(count) = or(read, given_up).await else { continue };
        let count = count?;
        for (n, &got) in (received..).zip(&room[..count]) {
            assert_eq!(got, byte(connection, n), "connection {connection}, byte {n}");
        }
        received += count;
        if count == 0 {
            return Ok(received);
        }
        stream.write_all(&(received as u32).to_le_bytes()).await?;
    }
}

#[test]
fn streams_with_urgent_bytes_stay_whole_and_do_not_stall() {
    for backend in BackendKind::available() {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        let all = async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut pairs = Vec::new();
            for connection in 0..CONNECTIONS {
                let client = Client::connect(listener.local_addr().unwrap()).unwrap();
                client.set_nodelay(true).unwrap();
                let stream = TcpStream::from_std(listener.accept().unwrap().0).unwrap();
                let task = spawn(receive(stream, connection));
                pairs.push((task, thread::spawn(move || send(client, connection))));
            }
            for (task, thread) in pairs {
                let received = task.await.unwrap().unwrap();
                assert_eq!(received, thread.join().unwrap().unwrap());
            }
        };
        let run = time::timeout(LIMIT, all);
        runtime.block_on(async { run.await.unwrap_or_else(|_| panic!("{backend:?}: it stalls")) });
    }
}
