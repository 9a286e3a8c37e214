//! Streams that become readable together while a read of each was given up: an engine that can
//! reads ahead of all.

use std::io::{self, Write};
use std::thread;
use std::time::Instant;

use socket2::SockRef;
use superpoll_rt::net::{TcpListener, TcpStream};
use superpoll_rt::{BackendKind, Runtime, yield_now};

use crate::streams::{Of, Op};
use crate::{LIMIT, Patience, Random, Reading, bytes};

/// Streams of a stage.
const STREAMS: u64 = 16;

/// Bursts of a stage.
const BURSTS: u64 = 32;

/// The most bytes that a stream gets in a burst.
const MOST: u64 = 400;

/// Reads that still wait when they are given up. Those of `hyper` and `tokio` are not read ahead.
const BEGUN: [Op; 6] = [Op::Poll, Op::Poll, Op::Poll, Op::Poll, Op::Hyper, Op::Tokio];

/// A stream, its writer, and how many bytes were written.
struct Stream {
    reading: Reading<Of<TcpStream>>,
    client: std::net::TcpStream,
    written: u64,
}

impl Stream {
    async fn new(listener: &TcpListener, random: &mut Random) -> io::Result<Stream> {
        let client = std::net::TcpStream::connect(listener.local_addr()?)?;
        client.set_nodelay(true)?;
        let subject = Of(Some(listener.accept().await?.0));
        let reading = Reading::new(subject, Random::new(random.below(1 << 40)));
        Ok(Stream { reading, client, written: 0 })
    }

    async fn step(&mut self, op: Op, patience: Patience) -> Result<bool, String> {
        let left = self.written - self.reading.at;
        self.reading.step(op, patience, left, LIMIT).await
    }

    /// Writes, and returns when the bytes have arrived.
    fn write(&mut self, count: u64) -> io::Result<()> {
        self.client.write_all(&bytes(self.written, count))?;
        self.written += count;
        let stream = self.reading.subject.0.as_ref().expect("it is put back after each operation");
        let socket = SockRef::from(stream);
        let end = Instant::now() + LIMIT;
        while let Err(error) = socket.peek(&mut [std::mem::MaybeUninit::uninit()]) {
            if error.kind() != io::ErrorKind::WouldBlock || Instant::now() > end {
                return Err(error);
            }
            thread::yield_now();
        }
        Ok(())
    }

    /// Takes all that was written, with operations chosen at random.
    async fn drain(&mut self) -> Result<(), String> {
        while self.reading.at < self.written {
            let op = self.reading.next_op();
            let patience = Patience::random(&mut self.reading.random);
            self.step(op, patience).await?;
        }
        Ok(())
    }
}

/// One burst: reads begin and are given up, bytes arrive, and operations chosen at random take
/// them.
async fn burst(streams: &mut [Stream], random: &mut Random) -> Result<(), String> {
    for stream in &mut *streams {
        let op = random.of(&BEGUN);
        stream.step(op, Patience::Turns(0)).await?;
    }
    yield_now().await;
    for stream in &mut *streams {
        let count = 1 + random.below(MOST);
        stream.write(count).map_err(|error| error.to_string())?;
    }
    // The first turn reports the bytes, and the second one reads them.
    for _ in 0..random.below(5) {
        yield_now().await;
    }
    let first = random.below(STREAMS) as usize;
    for place in 0..streams.len() {
        streams[(first + place) % streams.len()].drain().await?;
    }
    Ok(())
}

/// A stage of bursts; returns the number of operations, and of reads that the engine has made.
pub(crate) fn stage(backend: BackendKind, seed: u64) -> (u64, u64) {
    let runtime = Runtime::builder().backend(backend).build().unwrap();
    let stage = async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut random = Random::new(seed);
        let mut streams = Vec::new();
        for _ in 0..STREAMS {
            streams.push(Stream::new(&listener, &mut random).await.unwrap());
        }
        for _ in 0..BURSTS {
            burst(&mut streams, &mut random).await?;
        }
        let mut operations = 0;
        for Stream { mut reading, client, .. } in streams {
            drop(client);
            reading.end(LIMIT).await?;
            operations += reading.operations;
        }
        Ok::<u64, String>(operations)
    };
    match runtime.block_on(stage) {
        Ok(operations) => (operations, runtime.stats()[0].reads_ahead),
        Err(error) => panic!("{backend:?}, bursts, SUPERPOLL_CANCELLED_SEED={seed}: {error}"),
    }
}
