//! The statistics socket: the lines that clients get, the clients that are refused, and the cost to
//! the server.

use std::any::Any;
use std::io::{BufRead, BufReader, Read, Write};
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use superpoll_gateway::Config;
use superpoll_gateway::relay::{Options, Relay};
use superpoll_gateway::serve::Server;
use superpoll_gateway::telemetry::socket::{
    CLIENTS, CommandAnswer, CommandReply, Engine, Failure, SCHEMA, ServerPhase, Snapshot, Socket,
    SocketPath, Subject,
};
use superpoll_rt::{BackendKind, Handle, Runtime, time};
use tempfile::TempDir;

/// How long an event may take before it counts as never.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time after which an engine counts as silent.
const SILENCE: Duration = Duration::from_millis(500);

/// A server with a statistics socket, on a thread of its own.
struct Stage {
    _folder: TempDir,
    path: PathBuf,
    address: String,
    handle: Handle,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The subject, the address that it listens on, and the guard that keeps it running.
type Subjected = (Subject, String, Box<dyn Any>);

fn server(runtime: &Runtime) -> Subjected {
    let text = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\n\
                redirect = { to = \"/x\" }\n";
    let config = Config::parse("test.toml", text).unwrap();
    let server = Server::start(runtime, &config, |event| panic!("{event}")).unwrap();
    let address = server.listening().next().unwrap().to_string();
    (server.subject(), address, Box::new(server))
}

fn relay(runtime: &Runtime) -> Subjected {
    let upstream = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = upstream.local_addr().unwrap().to_string().parse().unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let report = |failure: &_| panic!("{failure}");
    let relay = Relay::start(runtime, &listen, &to, Options::default(), report).unwrap();
    (relay.subject(runtime), relay.listening().to_string(), Box::new((relay, upstream)))
}

impl Stage {
    fn new(backend: BackendKind, workers: usize) -> Stage {
        Stage::of(backend, workers, server)
    }

    fn of(
        backend: BackendKind,
        workers: usize,
        subject: impl FnOnce(&Runtime) -> Subjected + Send + 'static,
    ) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stats");
        let (at, end) = (SocketPath::At(path.clone()), Arc::new(AtomicBool::new(false)));
        let (sender, receiver) = mpsc::channel();
        let ends = end.clone();
        let run = move || {
            let workers = NonZeroUsize::new(workers).unwrap();
            let runtime = Runtime::builder().backend(backend).workers(workers).build().unwrap();
            let (subject, address, at_work) = subject(&runtime);
            let socket = Socket::bind(&at, false).unwrap().unwrap();
            let statistics = socket.open(subject).unwrap();
            sender.send((address, runtime.handle())).unwrap();
            let waits = async {
                while !ends.load(Ordering::Relaxed) {
                    time::sleep(Duration::from_millis(2)).await;
                }
            };
            runtime.block_on(waits);
            drop((statistics, at_work));
        };
        let thread = Some(std::thread::spawn(run));
        let (address, handle) = receiver.recv().unwrap();
        Stage { _folder: folder, path, address, handle, end, thread }
    }

    fn client(&self) -> Client {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(stream))
    }

    /// Ends it; the path must be free then.
    fn finish(mut self) {
        self.end.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        assert!(!self.path.exists());
    }
}

struct Client(BufReader<UnixStream>);

impl Client {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    fn snapshot(&mut self) -> Snapshot {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Returns the next snapshot that is as wanted. An engine that does not run for half a second
    /// is shown as silent, also where only this process was kept from running.
    fn snapshot_when(&mut self, is_wanted: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let end = Instant::now() + PATIENCE;
        loop {
            let snapshot = self.snapshot();
            if is_wanted(&snapshot) {
                return snapshot;
            }
            assert!(Instant::now() < end, "no snapshot was as wanted: {snapshot:?}");
        }
    }

    /// Returns the next line that is no snapshot.
    fn line_after_snapshots(&mut self) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let line = self.line();
            if serde_json::from_str::<Snapshot>(&line).is_err() {
                return line;
            }
            assert!(Instant::now() < end, "only snapshots come: {line}");
        }
    }

    fn say(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    fn asks(mut self, interval_ms: u64) -> Client {
        self.say(format!("{{\"interval_ms\":{interval_ms}}}\n").as_bytes());
        self
    }

    /// Returns the failure that the client gets in the end, after snapshots; nothing may follow.
    fn failure(&mut self) -> String {
        let line = self.line_after_snapshots();
        assert!(!line.is_empty(), "the connection ends without a message");
        let failure: Failure =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!((self.line().as_str(), failure.schema), ("", SCHEMA));
        failure.error
    }
}

/// Whether a snapshot has fresh figures of all engines.
fn all_answer(snapshot: &Snapshot, engines: usize) -> bool {
    snapshot.engines.len() == engines && snapshot.engines.iter().all(|engine| engine.answers)
}

/// The number of calls of a kind on sockets.
fn socket_calls(snapshot: &Snapshot, name: &str) -> u64 {
    snapshot.engines.iter().filter_map(|engine| engine.socket_calls.get(name)).sum()
}

fn get(address: &str) {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 308"), "{answer}");
}

#[test]
fn snapshots_come_at_once_and_then_as_asked_for_with_figures_that_go_up() {
    for backend in BackendKind::available() {
        eprintln!("back-end {backend}");
        let stage = Stage::new(backend, 2);
        assert_eq!(stage.path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let mut client = stage.client();
        let first = client.snapshot_when(|snapshot| all_answer(snapshot, 2));
        assert_eq!((first.schema, first.interval_ms), (SCHEMA, 1000));
        assert_eq!((first.program.as_str(), first.process), ("serve", std::process::id()));
        assert_eq!(first.backend, backend.name());
        for _ in 0..20 {
            get(&stage.address);
        }
        let mut client = client.asks(50);
        let later = client.snapshot_when(|later| {
            let responses = |of: &Engine| of.connections.unwrap().responses;
            let done: u64 = later.engines.iter().map(responses).sum();
            // The server closes a connection after its client has read the end of the response.
            let is_closed = later.connections == 0 && socket_calls(later, "close") >= 20;
            later.interval_ms == 50 && all_answer(later, 2) && done == 20 && is_closed
        });
        // Those of both engines are one route's.
        let traffic = later.traffic.as_ref().unwrap();
        let redirected = traffic.routes.iter().find(|route| route.path == "/").unwrap();
        assert_eq!(redirected.requests.responses, [0, 0, 20, 0, 0], "{traffic:?}");
        assert_eq!(traffic.total.durations.iter().sum::<u64>(), 20);
        assert_eq!((traffic.servers.len(), traffic.channels.count), (0, 0));
        let turns = |snapshot: &Snapshot| snapshot.engines.iter().map(|one| one.turns).sum::<u64>();
        assert!(turns(&later) > turns(&first) && later.uptime_ns > first.uptime_ns);
        // A ring accepts without such a call.
        let accepts = socket_calls(&later, "accept4");
        assert!(accepts >= 20 || backend == BackendKind::Uring, "{later:?}");
        for engine in &later.engines {
            assert!(engine.waits > 0 && !engine.poller_calls.is_empty());
            assert_eq!(engine.costs.is_empty(), backend != BackendKind::Adaptive, "{backend}");
            // A client is connected, so that turns are timed to the nanosecond.
            assert!(engine.slowest_lately.iter().any(|turn| turn.step_ns == 0), "{engine:?}");
        }
        drop(client);
        stage.finish();
    }
}

#[test]
fn a_relay_reports_no_connections_by_engine() {
    let stage = Stage::of(BackendKind::Adaptive, 1, relay);
    let _pair = std::net::TcpStream::connect(&stage.address).unwrap();
    let mut client = stage.client().asks(50);
    let snapshot =
        client.snapshot_when(|snapshot| snapshot.connections == 1 && all_answer(snapshot, 1));
    assert_eq!(snapshot.program, "proxy");
    assert_eq!(snapshot.engines[0].connections, None);
    assert_eq!(snapshot.traffic, None);
    stage.finish();
}

#[test]
fn a_line_that_says_something_else_is_answered_and_ends_the_connection() {
    let stage = Stage::new(BackendKind::Epoll, 1);
    let long = [b'x'; 1100];
    let many = b"{\"interval_ms\":60000}\n".repeat(40);
    let cases: [(&[u8], &str); 6] = [
        (b"{\"interval_ms\":49}\n", "the interval is 49 milliseconds, expected"),
        (b"{\"interval_ms\":60001}\n", "N from 50 to 60000"),
        (b"GET / HTTP/1.1\r\n", "the line cannot be read"),
        (b"\xff\xfe\n", "the line cannot be read"),
        (&long, "more than 1024 bytes"),
        (&many, "more than 32 lines"),
    ];
    for (line, said) in cases {
        let mut client = stage.client();
        client.say(line);
        let error = client.failure();
        assert!(error.contains(said), "{:?}: {error}", String::from_utf8_lossy(line));
    }
    // A part of a line is not a line, and a client that ends a direction ends both.
    let mut client = stage.client();
    client.say(b"{\"interval_ms\"");
    client.0.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = String::new();
    client.0.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("error"), "{rest}");
    stage.finish();
}

#[test]
fn there_are_so_many_clients_and_places_that_are_left_are_free_again() {
    let stage = Stage::new(BackendKind::Adaptive, 1);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| stage.client()).collect();
    for client in &mut clients {
        client.snapshot();
    }
    let mut late = stage.client();
    assert!(late.failure().contains("there are 8 clients already"));
    drop(clients.pop());
    let end = Instant::now() + PATIENCE;
    while serde_json::from_str::<Snapshot>(&stage.client().line()).is_err() {
        assert!(Instant::now() < end, "no place is free");
        std::thread::sleep(Duration::from_millis(10));
    }
    stage.finish();
}

#[test]
fn a_program_that_takes_no_commands_tells_its_state_and_refuses_the_rest() {
    let stage = Stage::new(BackendKind::Epoll, 2);
    let mut viewers: Vec<Client> = (0..CLIENTS).map(|_| stage.client()).collect();
    viewers.iter_mut().for_each(|viewer| drop(viewer.snapshot()));
    for (command, expected) in [
        ("{\"command\":\"reload\",\"protocol\":1}", "takes no commands"),
        ("{\"command\":\"dance\",\"protocol\":1}", "unknown variant `dance`"),
        ("{\"command\":\"reload\",\"protocol\":9}", "this server knows version 1"),
        ("{\"command\":\"status\"}", "expected \"protocol\": 1"),
    ] {
        // Whether or not all places are taken, and with snapshots before it or none.
        for _ in 0..2 {
            let mut client = stage.client();
            client.say(format!("{command}\n").as_bytes());
            let line = client.line_after_snapshots();
            let reply: CommandReply =
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            let CommandAnswer::Error(error) = &reply.answer else { panic!("{reply:?}") };
            assert!(error.contains(expected), "{command}: {error}");
            assert_eq!((reply.process, &*reply.program), (std::process::id(), "serve"));
            assert_eq!(client.line(), "");
            viewers.clear();
        }
    }
    let end = Instant::now() + PATIENCE;
    loop {
        let mut client = stage.client();
        client.snapshot();
        client.say(b"{\"command\":\"status\",\"protocol\":1}\n");
        let line = client.line_after_snapshots();
        let reply: CommandReply =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let CommandAnswer::Status(status) = reply.answer else { panic!("{line}") };
        assert_eq!(status.facts.state, ServerPhase::Serving);
        assert_eq!(client.line(), "");
        // The status leaves out an engine that has been silent since the question.
        if status.engines.len() == 2 {
            break;
        }
        assert!(Instant::now() < end, "not all engines are in the status: {line}");
    }
    stage.finish();
}

/// Of the clients that come when all places are taken, there are only so many, too.
#[test]
fn clients_for_commands_have_a_bound() {
    let stage = Stage::new(BackendKind::Epoll, 1);
    let mut viewers: Vec<Client> = (0..CLIENTS).map(|_| stage.client()).collect();
    viewers.iter_mut().for_each(|viewer| drop(viewer.snapshot()));
    // They send nothing, and are refused one after the other, or at once.
    let mut silent: Vec<Client> = (0..4 * CLIENTS).map(|_| stage.client()).collect();
    for client in &mut silent {
        assert!(client.failure().contains("there are 8 clients already"));
    }
    drop(viewers);
    stage.finish();
}

#[test]
fn a_client_that_does_not_read_is_dropped_and_costs_no_memory() {
    let stage = Stage::new(BackendKind::Epoll, 2);
    let mut slow: Vec<Client> = (0..CLIENTS).map(|_| stage.client().asks(50)).collect();
    // All places are taken until a client loses its place by not reading.
    let end = Instant::now() + PATIENCE;
    while serde_json::from_str::<Snapshot>(&stage.client().line()).is_err() {
        assert!(Instant::now() < end, "no client was dropped");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut ended = 0;
    for client in &mut slow {
        client.0.get_ref().set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut rest = Vec::new();
        ended += usize::from(client.0.read_to_end(&mut rest).is_ok());
        assert!(rest.len() < 1 << 20, "{} bytes waited for a client", rest.len());
    }
    assert!(ended > 0);
    stage.finish();
}

#[test]
fn an_engine_that_is_busy_is_shown_as_it_was() {
    let stage = Stage::new(BackendKind::Epoll, 2);
    let mut client = stage.client().asks(50);
    client.snapshot_when(|snapshot| all_answer(snapshot, 2));
    let (release, held) = mpsc::channel::<()>();
    let (hold, holds) = mpsc::channel();
    stage
        .handle
        .call_on(1, move || {
            hold.send(()).unwrap();
            let _ = held.recv();
        })
        .unwrap();
    holds.recv_timeout(PATIENCE).expect("the engine is called");
    let begun = Instant::now();
    let mut until = |answers: bool| {
        client.snapshot_when(|snapshot| {
            snapshot.engines[0].answers && snapshot.engines[1].answers == answers
        })
    };
    let mut busy = until(false);
    let still = loop {
        let next = until(false);
        // Snapshots before the hold may have been of a silent engine as well, one that ran again.
        if next.engines[1].at_ns == busy.engines[1].at_ns && begun.elapsed() > SILENCE {
            break next;
        }
        assert!(begun.elapsed() < PATIENCE, "its figures change while it is held: {next:?}");
        busy = next;
    };
    assert!(still.engines[0].at_ns > busy.engines[0].at_ns);
    release.send(()).unwrap();
    let again = until(true);
    assert!(again.engines[1].turns > busy.engines[1].turns);
    // The next engine that was asked after the hold shows how long it was.
    let told = until(true).engines[1].longest_turn_ns;
    assert!(u128::from(told) >= SILENCE.as_nanos(), "{told}");
    stage.finish();
}

#[test]
fn a_closed_socket_goes_and_its_clients_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stats");
    let runtime = Runtime::builder().backend(BackendKind::Epoll).build().unwrap();
    let (subject, _, _at_work) = server(&runtime);
    let socket = Socket::bind(&SocketPath::At(path.clone()), false).unwrap().unwrap();
    assert_eq!(socket.path(), path);
    let statistics = socket.open(subject).unwrap();
    let client = UnixStream::connect(&path).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let reads = std::thread::spawn(move || {
        let mut client = Client(BufReader::new(client)).asks(50);
        (0..4).for_each(|_| drop(client.snapshot()));
    });
    runtime.block_on(async {
        time::sleep(Duration::from_millis(20)).await;
        drop(statistics);
        assert!(!path.exists());
        while !reads.is_finished() {
            time::sleep(Duration::from_millis(5)).await;
        }
    });
    reads.join().unwrap();
    assert!(Socket::bind(&SocketPath::Off, false).unwrap().is_none());
}
