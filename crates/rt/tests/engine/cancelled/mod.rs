//! Reads that are given up at random, of every kind and on every back-end: no byte may be lost,
//! doubled or out of order, and no read may wait for bytes that are there.
//!
//! The model of a stream is its position: each byte follows from its place, so every operation that
//! takes bytes is checked at once, and so is every operation that only peeks at them. A writer
//! sends in pieces, with pauses, urgent bytes, descriptors and packets between them where the
//! stream has such. A reader takes them with operations chosen at random, most of which it gives up
//! after a moment. An operation is a round: `SUPERPOLL_CANCELLED_ROUNDS=1000000 cargo test
//! --release -p superpoll-rt --test engine cancelled` makes that many in all, and
//! `SUPERPOLL_CANCELLED_SEED` repeats a run.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_lite::future::or;
use superpoll_rt::net::TcpListener;
use superpoll_rt::{BackendKind, Runtime, pipe, spawn, time, yield_now};

mod elsewhere;
mod planted;
mod streams;
mod writers;

use streams::{Op, Order, Subject};

/// How long an operation that is not given up may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Streams that are read at the same time.
const STREAMS: u64 = 8;

/// The most bytes of a stream that are written and not read.
const AHEAD: u64 = 2000;

/// A generator of numbers, from a seed.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    fn new(seed: u64) -> Random {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            random.below(2);
        }
        random
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The byte at a place of each stream.
fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn bytes(from: u64, count: u64) -> Vec<u8> {
    (from..from + count).map(byte).collect()
}

/// The state that the reader and the writer of a stream share.
#[derive(Default)]
struct Shared {
    read: Cell<u64>,
}

thread_local! {
    /// Whether nothing came for an operation that was not given up, though something was there.
    static STALLED: Cell<bool> = const { Cell::new(false) };
}

/// How soon an operation is given up.
#[derive(Clone, Copy, Debug)]
enum Patience {
    Turns(u64),
    Micros(u64),
    /// It is never given up, except at the limit of the test.
    Endless,
}

impl Patience {
    fn random(random: &mut Random) -> Patience {
        match random.below(8) {
            0..4 => Patience::Turns(random.below(4)),
            4 => Patience::Turns(random.below(40)),
            5 | 6 => Patience::Micros(random.below(400)),
            _ => Patience::Endless,
        }
    }

    /// Returns the outcome of an operation that is waited for with this patience.
    async fn of<T>(self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        let patience = async {
            match self {
                Patience::Turns(turns) => {
                    for _ in 0..turns {
                        yield_now().await;
                    }
                }
                Patience::Micros(micros) => time::sleep(Duration::from_micros(micros)).await,
                Patience::Endless => {
                    time::sleep(limit).await;
                    STALLED.set(true);
                }
            }
            None
        };
        or(async { Some(future.await) }, patience).await
    }
}

/// A reader and its position in its stream: how many bytes it has taken.
struct Reading<S> {
    subject: S,
    at: u64,
    operations: u64,
    few: [Op; 3],
    history: Vec<String>,
    random: Random,
}

impl<S: Subject> Reading<S> {
    fn new(subject: S, random: Random) -> Reading<S> {
        let (few, history) = ([Op::Read; 3], Vec::new());
        Reading { subject, at: 0, operations: 0, few, history, random }
    }

    /// An operation chosen at random.
    fn next_op(&mut self) -> Op {
        // A few of them for a while, in turn: errors appear between two operations.
        if self.operations.is_multiple_of(16) {
            self.few = std::array::from_fn(|_| self.random.of(&Op::ALL));
        }
        self.random.of(&self.few)
    }

    /// Carries out an operation on a stream that has so many bytes left, and checks what it has
    /// taken and seen. Returns whether it has taken any.
    async fn step(
        &mut self,
        op: Op,
        patience: Patience,
        left: u64,
        limit: Duration,
    ) -> Result<bool, String> {
        let length = self.random.of(&[1, 7, 100, 100, 4096]);
        let (mut taken, at) = (Vec::new(), self.at);
        let order = Order { op, length, patience, limit };
        let outcome = self.subject.act(order, &mut self.random, &mut taken).await;
        let line = format!("{op:?}({length}) {patience:?} at {at}: {} {outcome:?}", taken.len());
        self.history.push(line);
        self.operations += 1;
        let seen = match outcome {
            Ok(seen) => seen,
            Err(error) => return Err(self.failed(&error.to_string(), left)),
        };
        if STALLED.take() {
            return Err(self.failed("nothing came any more", left));
        }
        if taken != bytes(at, taken.len() as u64) {
            return Err(self.failed("wrong bytes", left));
        }
        self.at += taken.len() as u64;
        if seen != bytes(self.at, seen.len() as u64) {
            return Err(self.failed("the bytes seen differ from the bytes sent", left));
        }
        Ok(!taken.is_empty())
    }

    fn failed(&self, what: &str, left: u64) -> String {
        let last = &self.history[self.history.len().saturating_sub(8)..];
        let Reading { at, operations, .. } = self;
        format!("{what} at {at} with {left} left after {operations} operations: {last:#?}")
    }

    /// Makes sure that nothing comes behind the last byte.
    async fn end(&mut self, limit: Duration) -> Result<(), String> {
        match self.subject.ends(limit).await {
            Ok(0) => Ok(()),
            outcome => Err(format!("behind the last byte came {outcome:?}")),
        }
    }
}

/// Reads a stream to its end; returns the number of operations.
async fn read(
    subject: impl Subject,
    shared: Rc<Shared>,
    total: u64,
    random: Random,
    limit: Duration,
) -> Result<u64, String> {
    let mut reading = Reading::new(subject, random);
    while reading.at < total {
        let op = reading.next_op();
        let patience = Patience::random(&mut reading.random);
        let has_taken = reading.step(op, patience, total - reading.at, limit).await?;
        shared.read.set(reading.at);
        if !has_taken {
            yield_now().await;
        }
    }
    reading.end(limit).await?;
    Ok(reading.operations)
}

/// Streams of all kinds, each written and read to its end; returns the number of operations.
fn stage(backend: BackendKind, seed: u64) -> u64 {
    let runtime = Runtime::builder().backend(backend).build().unwrap();
    let stage = async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut random = Random::new(seed);
        let (mut readers, mut writers) = (Vec::new(), Vec::new());
        let began = Instant::now();
        for number in 0..STREAMS {
            let total = 500 + random.below(4000);
            let shared = Rc::new(Shared::default());
            let (mine, theirs) =
                (Random::new(random.below(1 << 40)), Random::new(random.below(1 << 40)));
            macro_rules! pair {
                ($reader:expr, $writer:expr) => {{
                    let (reader, writer) = ($reader, $writer);
                    let known = shared.clone();
                    writers.push(spawn(async move {
                        writers::write(writer, known, began, total, theirs).await
                    }));
                    readers
                        .push(spawn(async move { read(reader, shared, total, mine, LIMIT).await }));
                }};
            }
            // Mostly TCP, which has the most kinds of reads.
            match if number < 5 { 0 } else { random.below(4) } {
                0 => {
                    let address = listener.local_addr().unwrap();
                    let client = superpoll_rt::net::TcpStream::connect(address).await.unwrap();
                    let (server, _) = listener.accept().await.unwrap();
                    pair!(streams::Of(Some(server)), client);
                }
                1 => {
                    let (one, other) = superpoll_rt::net::unix::UnixStream::pair().unwrap();
                    pair!(streams::Of(Some(one)), other);
                }
                2 => {
                    let (reader, writer) = pipe::pipe().unwrap();
                    pair!(streams::Piped { reader, in_packets: false }, writer);
                }
                _ => {
                    let (reader, writer) = writers::packets();
                    pair!(streams::Piped { reader, in_packets: true }, writer);
                }
            }
        }
        let mut operations = 0;
        for reader in readers {
            match reader.await {
                Ok(Ok(count)) => operations += count,
                Ok(Err(error)) => panic!("{backend:?}, SUPERPOLL_CANCELLED_SEED={seed}: {error}"),
                Err(error) => panic!("{backend:?}, SUPERPOLL_CANCELLED_SEED={seed}: {error}"),
            }
        }
        for writer in writers {
            writer.await.unwrap();
        }
        operations
    };
    runtime.block_on(stage)
}

#[test]
fn no_byte_is_lost_doubled_or_out_of_order_when_reads_are_cancelled() {
    let rounds = number("SUPERPOLL_CANCELLED_ROUNDS").unwrap_or(60_000);
    let first = number("SUPERPOLL_CANCELLED_SEED");
    let seed = first.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    let backends = BackendKind::available();
    for &backend in &backends {
        let (mut done, mut stages) = (0, 0);
        while done < rounds / backends.len() as u64 {
            done += stage(backend, seed.wrapping_add(stages));
            stages += 1;
        }
        eprintln!("{backend:?}: {done} operations in {stages} stages from seed {seed}, 0 bad");
    }
}
