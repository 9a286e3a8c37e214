//! A server of a configuration, on a thread of its own.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use superpoll_gateway::channel::Hub;
use superpoll_gateway::serve::Server;
use superpoll_gateway::telemetry::counters::{Counter, EngineCounters};
use superpoll_gateway::{Address, Config, Event, Level};
use superpoll_rt::{BackendKind, Runtime, time};
use superpoll_test_support::http1::{read_body, read_chunk, read_head};
use superpoll_test_support::until;

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

/// An order of a test to its server.
enum Order {
    Change(Box<Config>),
    /// Lets time pass, and answers.
    Elapse(Duration, mpsc::Sender<()>),
    /// Begins to end.
    Drain,
    End,
}

pub(crate) struct Stage {
    pub addresses: Vec<Address>,
    pub engines: Vec<Arc<EngineCounters>>,
    /// The channel at `/c`.
    #[allow(dead_code, reason = "only the tests of channels have one")]
    pub channel: Option<Arc<Hub>>,
    orders: mpsc::Sender<Order>,
    thread: Option<JoinHandle<u64>>,
}

impl Stage {
    /// Starts a server with the configuration `text`.
    pub(crate) fn new(backend: BackendKind, workers: usize, text: &str) -> Stage {
        let config = Config::parse("test.toml", text).unwrap_or_else(|error| panic!("{error}"));
        let (told, heard) = mpsc::channel();
        let (orders, given) = mpsc::channel();
        let run = move || {
            let workers = NonZeroUsize::new(workers).unwrap();
            let runtime = Runtime::builder().backend(backend).workers(workers).build().unwrap();
            let report = |event: &Event| assert!(event.level() < Level::Error, "{event}");
            let mut server = Server::start(&runtime, &config, report).unwrap();
            let addresses: Vec<Address> = server.listening().cloned().collect();
            let channel = server.channel("", "/c");
            told.send((addresses, server.engines().to_vec(), channel)).unwrap();
            let left = runtime.try_block_on(async {
                loop {
                    match next(&given).await {
                        Order::Change(config) => server.change(&runtime, &config).unwrap(),
                        Order::Elapse(duration, done) => elapse(duration, &done).await,
                        Order::Drain => break,
                        Order::End => return 0,
                    }
                }
                server.stop();
                let drained = server.drained(PATIENCE);
                let ended = async {
                    loop {
                        match next(&given).await {
                            Order::Elapse(duration, done) => elapse(duration, &done).await,
                            Order::Change(_) | Order::Drain => {}
                            Order::End => return 0,
                        }
                    }
                };
                futures_lite::future::or(drained, ended).await
            });
            left.unwrap()
        };
        let thread = Some(std::thread::spawn(run));
        let (addresses, engines, channel) = heard.recv().expect("the server has started");
        Stage { addresses, engines, channel, orders, thread }
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

    /// The heads that were refused, by the reason.
    pub(crate) fn refused_heads(&self) -> BTreeMap<&'static str, u64> {
        let mut all = BTreeMap::new();
        for (why, count) in self.engines.iter().flat_map(|one| one.refused_heads.by_name()) {
            *all.entry(why).or_default() += count;
        }
        all.retain(|_, count| *count > 0);
        all
    }

    /// Waits until a counter has a value.
    pub(crate) fn until(&self, of: impl Fn(&EngineCounters) -> &Counter, value: u64) {
        let end = Instant::now() + PATIENCE;
        while self.count(&of) != value {
            assert!(Instant::now() < end, "{} is not {value}", self.count(&of));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// A server that has ended takes no orders.
    fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }

    pub(crate) fn change(&self, text: &str) {
        let config = Config::parse("test.toml", text).unwrap();
        self.order(Order::Change(Box::new(config)));
    }

    /// Lets this much time pass for the server, which has one engine: each of its timers that is
    /// due by then fires, in its turn, after everything that its clients have sent before.
    #[track_caller]
    pub(crate) fn elapse(&self, duration: Duration) {
        let (done, over) = mpsc::channel();
        self.order(Order::Elapse(duration, done));
        // A server ticks four times a second, and an hour of that takes seconds.
        let outcome = over.recv_timeout(6 * PATIENCE);
        assert_ne!(outcome, Err(mpsc::RecvTimeoutError::Timeout), "{duration:?} do not pass");
    }

    /// Lets time pass in steps until a condition holds, and returns how much has passed: at most
    /// `most`, by the clock of the server. What the last step has caused may take a moment.
    #[track_caller]
    pub(crate) fn elapse_until(
        &self,
        step: Duration,
        most: Duration,
        mut holds: impl FnMut() -> bool,
    ) -> Duration {
        let mut passed = Duration::ZERO;
        while !holds() {
            if passed >= most {
                until(&format!("it holds after {passed:?}"), holds);
                break;
            }
            self.elapse(step);
            passed += step;
        }
        passed
    }

    /// Begins to end.
    pub(crate) fn drain(&self) {
        self.order(Order::Drain);
    }

    /// Ends by itself, and returns how many connections were left.
    pub(crate) fn drained(mut self) -> u64 {
        self.drain();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.order(Order::End);
        if let Some(thread) = self.thread.take()
            && !std::thread::panicking()
        {
            thread.join().unwrap();
        }
    }
}

/// Returns the next order.
async fn next(orders: &mpsc::Receiver<Order>) -> Order {
    loop {
        match orders.try_recv() {
            Ok(order) => return order,
            Err(mpsc::TryRecvError::Empty) => time::sleep(Duration::from_millis(2)).await,
            Err(mpsc::TryRecvError::Disconnected) => return Order::End,
        }
    }
}

async fn elapse(duration: Duration, done: &mpsc::Sender<()>) {
    /// A server that drains may end before the time is over. Its clock runs on then, as what is
    /// still to end has time limits.
    struct Resumed;
    impl Drop for Resumed {
        fn drop(&mut self) {
            time::resume();
        }
    }
    time::pause();
    let resumed = Resumed;
    time::sleep(duration).await;
    drop(resumed);
    let _ = done.send(());
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
