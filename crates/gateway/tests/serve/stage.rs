//! A server of a configuration, on a thread of its own.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use superpoll_gateway::channel::Hub;
use superpoll_gateway::serve::Server;
use superpoll_gateway::telemetry::counters::{Counter, EngineCounters};
use superpoll_gateway::{Address, Config, Event, Level};
use superpoll_rt::{BackendKind, Runtime, time};
use superpoll_test_support::http1::{read_body, read_chunk, read_head};

/// The back-ends that every test runs on; `SUPERPOLL_BACKEND` has no effect here.
pub(crate) const BACKENDS: [BackendKind; 5] = [
    BackendKind::Select,
    BackendKind::Poll,
    BackendKind::Epoll,
    BackendKind::Adaptive,
    BackendKind::Uring,
];

/// Runs a test that mostly waits on each back-end, all at the same time.
#[allow(dead_code, reason = "only the tests of channels wait so long")]
pub(crate) fn on_each_backend(test: impl Fn(BackendKind) + Sync) {
    std::thread::scope(|scope| {
        for backend in BACKENDS {
            let test = &test;
            let name = format!("{backend:?}");
            std::thread::Builder::new()
                .name(name)
                .spawn_scoped(scope, move || test(backend))
                .unwrap();
        }
    });
}

/// How long an event may take before it counts as never.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

const GO_ON: u8 = 0;
const DRAIN: u8 = 1;
const END: u8 = 2;

pub(crate) struct Stage {
    pub addresses: Vec<Address>,
    pub engines: Vec<Arc<EngineCounters>>,
    /// The channel at `/c`.
    #[allow(dead_code, reason = "only the tests of channels have one")]
    pub channel: Option<Arc<Hub>>,
    state: Arc<AtomicU8>,
    changes: mpsc::Sender<Config>,
    thread: Option<JoinHandle<u64>>,
}

impl Stage {
    /// Starts a server with the configuration `text`.
    pub(crate) fn new(backend: BackendKind, workers: usize, text: &str) -> Stage {
        let config = Config::parse("test.toml", text).unwrap_or_else(|error| panic!("{error}"));
        let (told, heard) = mpsc::channel();
        let (changes, changed) = mpsc::channel::<Config>();
        let state = Arc::new(AtomicU8::new(GO_ON));
        let seen = state.clone();
        let run = move || {
            let workers = NonZeroUsize::new(workers).unwrap();
            let runtime = Runtime::builder().backend(backend).workers(workers).build().unwrap();
            let report = |event: &Event| assert!(event.level() < Level::Error, "{event}");
            let mut server = Server::start(&runtime, &config, report).unwrap();
            let addresses: Vec<Address> = server.listening().cloned().collect();
            let channel = server.channel("", "/c");
            told.send((addresses, server.engines().to_vec(), channel)).unwrap();
            let left = runtime.try_block_on(async {
                while seen.load(Ordering::Relaxed) == GO_ON {
                    if let Ok(config) = changed.try_recv() {
                        server.change(&runtime, &config).unwrap();
                    }
                    time::sleep(Duration::from_millis(2)).await;
                }
                server.stop();
                let drained = server.drained(PATIENCE);
                let ended = async {
                    while seen.load(Ordering::Relaxed) != END {
                        time::sleep(Duration::from_millis(2)).await;
                    }
                    0
                };
                futures_lite::future::or(drained, ended).await
            });
            left.unwrap()
        };
        let thread = Some(std::thread::spawn(run));
        let (addresses, engines, channel) = heard.recv().expect("the server has started");
        Stage { addresses, engines, channel, state, changes, thread }
    }

    /// A server of the files below `folder` with short timeouts.
    pub(crate) fn of_files(
        backend: BackendKind,
        workers: usize,
        folder: &std::path::Path,
    ) -> Stage {
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
             [timeouts]\npark = \"40ms\"\n\
             [[hosts]]\n[[hosts.routes]]\nfiles.root = {folder:?}\n"
        );
        Stage::new(backend, workers, &text)
    }

    pub(crate) fn connect(&self) -> Client {
        let Address::Tcp { host, port } = &self.addresses[0] else { panic!("it is TCP") };
        let stream = TcpStream::connect((host.as_deref().unwrap(), *port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(stream))
    }

    /// The sum of a counter over all engines.
    pub(crate) fn count(&self, of: impl Fn(&EngineCounters) -> &Counter) -> u64 {
        self.engines.iter().map(|engine| of(engine).get()).sum()
    }

    /// Waits until a counter has a value.
    pub(crate) fn until(&self, of: impl Fn(&EngineCounters) -> &Counter, value: u64) {
        let end = Instant::now() + PATIENCE;
        while self.count(&of) != value {
            assert!(Instant::now() < end, "{} is not {value}", self.count(&of));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn change(&self, text: &str) {
        self.changes.send(Config::parse("test.toml", text).unwrap()).unwrap();
    }

    /// Begins to end.
    pub(crate) fn drain(&self) {
        self.state.store(DRAIN, Ordering::Relaxed);
    }

    /// Ends by itself, and returns how many connections were left.
    pub(crate) fn drained(mut self) -> u64 {
        self.drain();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.state.store(END, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && !std::thread::panicking()
        {
            thread.join().unwrap();
        }
    }
}

/// A client that speaks HTTP/1 by hand.
pub(crate) struct Client(pub BufReader<TcpStream>);

#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Client {
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// Reads a response to HEAD, which has no body.
    pub(crate) fn head_only(&mut self) -> Answer {
        let head = read_head(&mut self.0).expect("a head") + "\r\n";
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body: Vec::new() }
    }

    /// Reads a response whose body has a length, or comes in chunks.
    pub(crate) fn answer(&mut self) -> Answer {
        let mut answer = self.head_only();
        if let Some((body, _)) = read_body(&mut self.0, &answer.head).expect("a body") {
            answer.body = body;
        }
        answer
    }

    /// Reads a chunk; false if it is the last one, which is empty.
    #[allow(dead_code, reason = "only the tests of channels read chunk by chunk")]
    pub(crate) fn chunk(&mut self, to: &mut Vec<u8>) -> bool {
        read_chunk(&mut self.0, to).expect("a chunk").is_none()
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n"));
        self.answer()
    }

    /// Whether the server has closed it, without another byte.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0) | Err(_))
    }
}

/// A folder with a small and a large file.
pub(crate) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("small.txt"), "hello\n").unwrap();
    std::fs::write(folder.path().join("large.bin"), vec![7; 16 << 20]).unwrap();
    folder
}
