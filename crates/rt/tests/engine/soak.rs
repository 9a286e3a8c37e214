//! Everything at random for a while, on io_uring: registrations that come, change and go, more
//! arrivals than the ring has room for, reads that are given up. Nothing may be lost, and nothing
//! may be left over.
//!
//! Each part takes a second; `SUPERPOLL_SOAK_SECONDS=600 cargo test --release -p superpoll-rt
//! --test engine soak` takes ten minutes altogether. Left out where there is no io_uring.

use std::collections::HashMap;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use futures_lite::future::or;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll::batch::{Arrivals, BatchReader, Outcome};
use superpoll::{BackendKind, Events, Interest, Key, Mode, Poller, Watch};
use superpoll_rt::net::{TcpListener, TcpStream};
use superpoll_rt::{Runtime, spawn, time, yield_now};
use superpoll_test_support::alone;

/// More than the completions that a ring has room for.
const LINES: usize = 7000;

const NOW: Option<Duration> = Some(Duration::ZERO);

/// Returns how long a part takes.
fn part() -> Duration {
    let seconds = std::env::var("SUPERPOLL_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(3.0) / 3.0)
}

/// A generator of numbers, from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// Returns the number of open descriptors.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn nothing_is_lost_and_nothing_is_left() {
    alone(|| {
        if !BackendKind::Uring.is_available() {
            eprintln!("skipped: uring is not available here");
            return;
        }
        superpoll::limits::raise_descriptors().unwrap();
        let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        eprintln!("seed {seed}");
        type Part = fn(&mut Random) -> String;
        let parts: [(&str, Part); 3] =
            [("poller", poller), ("batch reader", batch_reader), ("runtime", runtime)];
        for (name, part) in parts {
            let before = descriptors();
            let done = part(&mut Random(seed));
            assert_eq!(descriptors(), before, "{name}: descriptors are left open");
            eprintln!("{name}: {done}");
        }
    });
}

/// One registered pipe.
struct Line {
    key: Key,
    reader: PipeReader,
    writer: PipeWriter,
    mode: Mode,
    armed: bool,
    unread: usize,
    /// Whether it was reported since the last arrival.
    told: bool,
}

fn open(poller: &mut Poller, random: &mut Random) -> Line {
    let (reader, writer) = pipe().unwrap();
    let mode = [Mode::Level, Mode::Edge, Mode::Auto, Mode::OneShot][random.below(4)];
    let key = poller.register(&reader, Watch::new(Interest::READABLE).mode(mode)).unwrap();
    Line { key, reader, writer, mode, armed: true, unread: 0, told: false }
}

/// Waits until there is nothing new, and reads a part of the reported bytes.
fn settle(
    poller: &mut Poller,
    events: &mut Events,
    lines: &mut [Line],
    places: &HashMap<Key, usize>,
    random: &mut Random,
) -> u64 {
    let mut count = 0;
    // Each level comes again until it is read; the caller checks the levels that are not read in
    // these rounds.
    for _ in 0..3 {
        loop {
            poller.wait(events, NOW).unwrap();
            assert!(events.refusals().is_empty(), "{:?}", events.refusals());
            for event in &*events {
                let line = &mut lines[places[&event.key()]];
                assert!(line.armed, "{:?} is reported, disarmed", event.key());
                assert!(
                    line.unread > 0 || line.mode == Mode::Auto,
                    "{:?} is reported without a byte",
                    line.mode
                );
                line.told = true;
                line.armed = line.mode != Mode::OneShot;
                count += 1;
                let reads = random.below(4) > 0;
                if reads && line.unread > 0 {
                    let mut bytes = vec![0; line.unread];
                    line.reader.read_exact(&mut bytes).unwrap();
                    line.unread = 0;
                }
            }
            if events.len() < events.limit() {
                break;
            }
        }
    }
    count
}

/// Registrations that come, change and go, with bursts of more arrivals than the ring takes.
fn poller(random: &mut Random) -> String {
    let mut poller = Poller::builder().backend(BackendKind::Uring).build().unwrap();
    let mut events = Events::with_limit(700);
    let most = usize::try_from(superpoll::limits::nofile().0).unwrap_or(usize::MAX) / 2 - 100;
    let mut lines: Vec<Line> = (0..most.min(LINES)).map(|_| open(&mut poller, random)).collect();
    let (mut reported, mut rounds, mut changes, mut bursts) = (0, 0u64, 0u64, 0u64);
    let end = Instant::now() + part();
    while Instant::now() < end {
        rounds += 1;
        let burst = rounds % 20 == 0;
        bursts += u64::from(burst);
        for line in &mut lines {
            if (burst || random.below(100) == 0) && line.unread < 4000 {
                line.writer.write_all(b"x").unwrap();
                line.unread += 1;
                line.told = false;
            }
        }
        for _ in 0..random.below(40) {
            changes += 1;
            let place = random.below(lines.len());
            let line = &mut lines[place];
            match random.below(5) {
                0 => {
                    poller.deregister(line.key).unwrap();
                    lines[place] = open(&mut poller, random);
                }
                1 => {
                    poller.deregister_for_close(line.key).unwrap();
                    lines[place] = open(&mut poller, random);
                }
                2 => {
                    poller.modify(line.key, Interest::NONE).unwrap();
                    line.armed = false;
                }
                _ => {
                    poller.modify(line.key, Interest::READABLE).unwrap();
                    line.armed = true;
                }
            }
            if random.below(10) == 0 {
                poller.flush();
            }
        }
        let places: HashMap<Key, usize> =
            lines.iter().enumerate().map(|(place, line)| (line.key, place)).collect();
        reported += settle(&mut poller, &mut events, &mut lines, &places, random);
        for line in &lines {
            let lost = line.armed && line.unread > 0 && !line.told;
            assert!(
                !lost,
                "round {rounds}: {:?}, {} unread, is not reported",
                line.mode, line.unread
            );
        }
    }
    let stats = poller.stats();
    assert_eq!(poller.len(), lines.len());
    for line in lines {
        poller.deregister(line.key).unwrap();
        let mut writer = line.writer;
        drop(line.reader);
        // The ring holds nothing back.
        assert_eq!(writer.write(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    }
    assert_eq!(poller.wait(&mut events, NOW).unwrap(), 0);
    assert_eq!((poller.len(), poller.stats().cold.len), (0, 0), "polls are left in the ring");
    format!(
        "{rounds} rounds, {reported} events, {changes} changes, {bursts} bursts; {}",
        stats.calls
    )
}

/// The bytes that a line has sent and received.
struct Stream {
    writer: Option<UnixStream>,
    sent: usize,
    got: usize,
    paused: bool,
}

fn byte(key: Key, place: usize) -> u8 {
    (key.to_bits() as usize * 31 + place * 7 + place / 256) as u8
}

/// Streams that come, pause and go, a few of them busy.
fn batch_reader(random: &mut Random) -> String {
    let mut reader: BatchReader<OwnedFd> = BatchReader::with_backend(BackendKind::Uring).unwrap();
    let mut arrivals = Arrivals::with_limit(300);
    let mut streams: HashMap<Key, Stream> = HashMap::new();
    let (mut bytes, mut ends, mut dropped) = (0u64, 0u64, 0u64);
    let end = Instant::now() + part();
    let mut finishing = false;
    let mut quiet = 0;
    while quiet < 3 {
        finishing |= Instant::now() >= end;
        while !finishing && streams.len() < 200 {
            let (ours, theirs) = UnixStream::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            let key = reader.register(ours.into()).map_err(|refused| refused.error).unwrap();
            let stream = Stream { writer: Some(theirs), sent: 0, got: 0, paused: false };
            assert!(streams.insert(key, stream).is_none(), "{key:?} twice");
        }
        let mut gone = Vec::new();
        for (&key, stream) in &mut streams {
            let busy = key.index() % 4 == 0;
            if let Some(writer) = &mut stream.writer {
                if busy || random.below(30) == 0 {
                    let most = if random.below(50) == 0 { 20_000 } else { 100 };
                    let places = stream.sent..stream.sent + 1 + random.below(most);
                    let chunk: Vec<u8> = places.map(|place| byte(key, place)).collect();
                    stream.sent += writer.write(&chunk).unwrap_or(0);
                }
                if finishing || random.below(500) == 0 {
                    stream.writer = None;
                }
            }
            match random.below(400) {
                0 if !finishing => gone.push(key),
                1 if !finishing => {
                    reader.pause(key).unwrap();
                    stream.paused = true;
                }
                2..8 => {
                    reader.resume(key).unwrap();
                    stream.paused = false;
                }
                _ if finishing && stream.paused => {
                    reader.resume(key).unwrap();
                    stream.paused = false;
                }
                _ => {}
            }
        }
        for key in gone {
            drop(reader.deregister(key).unwrap());
            streams.remove(&key);
            dropped += 1;
        }
        reader.wait(&mut arrivals, NOW).unwrap();
        quiet = if finishing && arrivals.is_empty() { quiet + 1 } else { 0 };
        for arrival in &arrivals {
            let key = arrival.key();
            let stream = streams.get_mut(&key).expect("an arrival on a stream that is gone");
            assert!(!stream.paused, "an arrival on a stream that is paused");
            match arrival.outcome() {
                Outcome::Bytes(chunk) => {
                    for &got in chunk {
                        assert_eq!(got, byte(key, stream.got), "{key:?}, place {}", stream.got);
                        stream.got += 1;
                    }
                    bytes += chunk.len() as u64;
                }
                Outcome::End => {
                    assert!(stream.writer.is_none() && stream.got == stream.sent, "{key:?}");
                    streams.remove(&key);
                    drop(reader.deregister(key).unwrap());
                    ends += 1;
                }
                other => panic!("{key:?}: {other:?}"),
            }
        }
    }
    assert!(streams.is_empty(), "{} streams have not ended", streams.len());
    assert!(reader.is_empty());
    let stats = reader.stats();
    assert_eq!((stats.hot.len, stats.cold.len), (0, 0), "polls or speculation are left");
    format!("{bytes} bytes, {ends} ends, {dropped} dropped; {}", stats.calls)
}

/// Connections whose reads are given up now and then, and which are dropped while operations are
/// under way.
fn runtime(random: &mut Random) -> String {
    let runtime = Runtime::builder().backend(BackendKind::Uring).build().unwrap();
    let end = Instant::now() + part();
    let mut served = 0u64;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                spawn(async move {
                    let mut buffer = [0; 700];
                    let mut turn = 0u32;
                    loop {
                        turn += 1;
                        let read = async { Some(stream.read(&mut buffer).await) };
                        let cancelled = async {
                            yield_now().await;
                            if !turn.is_multiple_of(3) {
                                std::future::pending::<()>().await;
                            }
                            None
                        };
                        match or(read, cancelled).await {
                            None => {}
                            Some(Ok(count @ 1..)) => {
                                match stream.write_all(&buffer[..count]).await {
                                    Ok(()) => {}
                                    Err(_) => return,
                                }
                            }
                            Some(_) => return,
                        }
                    }
                })
                .detach();
            }
        });
        // At least once, however late the first clients are.
        loop {
            let mut clients = Vec::new();
            for number in 0..40 {
                let seed = random.below(usize::MAX >> 33) as u64;
                clients.push(spawn(async move { client(address, number, seed).await }));
            }
            for client in clients {
                served += client.await.unwrap();
            }
            if Instant::now() >= end {
                break;
            }
        }
        server.abort();
    });
    let stats = runtime.stats().swap_remove(0);
    drop(runtime);
    format!("{served} requests; {}", stats.poller.calls)
}

/// Makes some requests, each answered with the same bytes. Returns how many.
async fn client(address: std::net::SocketAddr, number: u64, seed: u64) -> u64 {
    let mut random = Random(seed);
    let mut stream = TcpStream::connect(address).await.unwrap();
    let requests = 20 + random.below(30) as u64;
    for request in 0..requests {
        let text: Vec<u8> = (0..1 + random.below(600))
            .map(|place| (place as u64 + number * request) as u8)
            .collect();
        stream.write_all(&text).await.unwrap();
        if random.below(200) == 0 {
            // Gone without the answer.
            return request;
        }
        let mut answer = vec![0; text.len()];
        let read = async { stream.read_exact(&mut answer).await.unwrap() };
        time::timeout(Duration::from_secs(20), read).await.unwrap();
        assert_eq!(answer, text, "client {number}, request {request}");
    }
    requests
}
