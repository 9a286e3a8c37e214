//! The statistics socket: the responses and streams that clients get, the clients that are refused,
//! and the cost to the server.

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
use superpoll_gateway::control::VIEWERS;
use superpoll_gateway::control::{
    ServerPhase, ServerStatus, Snapshot, Socket, SocketPath, Subject,
};
use superpoll_gateway::relay::{Options, Relay};
use superpoll_gateway::serve::Server;
use superpoll_gateway::telemetry::snapshot::{Engine, SCHEMA};
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

    fn connect(&self) -> Client {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(stream))
    }

    /// Sends a request.
    fn ask(&self, request: &str) -> Client {
        let mut client = self.connect();
        client.send(format!("{request} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes());
        client
    }

    /// Asks for snapshots.
    fn viewer(&self, interval_ms: u64) -> Client {
        let mut client = self.ask(&format!("GET /api/snapshots?interval_ms={interval_ms}"));
        assert_eq!(client.head(), 200);
        client
    }

    /// Connects as many viewers as there may be.
    fn viewers(&self) -> Vec<Client> {
        let mut viewers: Vec<Client> = (0..VIEWERS).map(|_| self.viewer(1000)).collect();
        viewers.iter_mut().for_each(|viewer| drop(viewer.snapshot()));
        viewers
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
    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    /// Reads the head of a response, which must be the last one, and returns the status.
    fn head(&mut self) -> u16 {
        let first = self.line();
        let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.unwrap_or_else(|| panic!("{first:?} is no status line"));
        let fields: Vec<String> =
            std::iter::repeat_with(|| self.line()).take_while(|line| line.len() > 2).collect();
        for expected in
            ["connection: close", concat!("server: superpoll/", env!("CARGO_PKG_VERSION"))]
        {
            assert!(
                status == 100 || fields.iter().any(|line| line.trim() == expected),
                "{fields:?}"
            );
        }
        status
    }

    /// Returns the status and the body of a response, after which nothing may follow.
    fn answer(&mut self) -> (u16, String) {
        let status = self.head();
        let mut body = String::new();
        self.0.read_to_string(&mut body).unwrap();
        (status, body)
    }

    /// Returns the status and the error of a response.
    fn refusal(&mut self) -> (u16, String) {
        let (status, body) = self.answer();
        let value: serde_json::Value =
            serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
        (status, value["error"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned())
    }

    /// Returns the next snapshot: a chunk, with a line.
    fn snapshot(&mut self) -> Snapshot {
        let size = usize::from_str_radix(self.line().trim(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        self.0.read_exact(&mut chunk).unwrap();
        let line = chunk.strip_suffix(b"}\n\r\n").unwrap_or_else(|| panic!("no line: {chunk:?}"));
        assert!(!line.contains(&b'\n'));
        serde_json::from_slice(&chunk).unwrap_or_else(|error| panic!("{error}: {chunk:?}"))
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
        let mut client = stage.ask("GET /api/snapshots");
        assert_eq!(client.head(), 200);
        let first = client.snapshot_when(|snapshot| all_answer(snapshot, 2));
        assert_eq!((first.schema, first.interval_ms), (SCHEMA, 1000));
        assert_eq!((first.program.as_str(), first.process), ("serve", std::process::id()));
        assert_eq!(first.backend, backend.name());
        for _ in 0..20 {
            get(&stage.address);
        }
        let mut client = stage.viewer(50);
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
    let mut client = stage.viewer(50);
    let snapshot =
        client.snapshot_when(|snapshot| snapshot.connections == 1 && all_answer(snapshot, 1));
    assert_eq!(snapshot.program, "proxy");
    assert_eq!(snapshot.engines[0].connections, None);
    assert_eq!(snapshot.traffic, None);
    stage.finish();
}

#[test]
fn other_bytes_than_a_request_are_answered_and_end_the_connection() {
    let stage = Stage::new(BackendKind::Epoll, 1);
    let field = [b"GET / HTTP/1.1\r\nhost: a\r\nx: ", &[b'x'; 9000][..]].concat();
    let patch = |length: usize, body: &str| {
        let head = "PATCH /api/upstreams/a/servers/b HTTP/1.1\r\nhost: a\r\ncontent-type: \
                    application/json\r\ncontent-length: ";
        format!("{head}{length}\r\n\r\n{body}").into_bytes()
    };
    let cases: [(&[u8], u16, &str); 9] = [
        // As versions before this protocol.
        (b"{\"interval_ms\":250}\n", 400, "speaks HTTP/1.1 here, and not lines of JSON"),
        (b"{\"command\":\"reload\",\"protocol\":1}\n", 400, "and not lines of JSON"),
        (b"\xff\xfe\r\n\r\n", 400, "expected HTTP/1.1"),
        (b"GET /api/status HTTP/1.1\r\n\r\n", 400, "expected HTTP/1.1"),
        (b"GET /api/status HTTP/2.0\r\nhost: a\r\n\r\n", 505, "expected HTTP/1.1"),
        (&field, 431, "expected HTTP/1.1"),
        (&patch(5000, &"x".repeat(5000)), 413, "more than 4096 bytes"),
        (&patch(1, "{"), 400, "cannot be read"),
        (b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n", 404, "listed at /"),
    ];
    for (bytes, status, said) in cases {
        let mut client = stage.connect();
        client.send(bytes);
        let (found, error) = client.refusal();
        let bytes = String::from_utf8_lossy(bytes);
        assert!(found == status && error.contains(said), "{bytes}: {found} {error}");
    }
    // A part of a request is no request.
    let mut client = stage.connect();
    client.send(b"GET /api/status HTT");
    client.0.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = String::new();
    client.0.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    stage.finish();
}

#[test]
fn a_request_may_come_in_pieces_with_a_body_in_chunks_and_of_an_old_version() {
    let stage = Stage::new(BackendKind::Epoll, 1);
    let mut client = stage.connect();
    for byte in b"POST /api/reload HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n" {
        client.send(&[*byte]);
    }
    client.send(b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n");
    assert_eq!(client.head(), 100);
    client.send(b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n");
    assert_eq!(client.refusal(), (503, "this program takes no commands".to_owned()));
    let mut client = stage.connect();
    client.send(b"GET /api/snapshots?interval_ms=50 HTTP/1.0\r\n\r\n");
    let mut line = String::new();
    while !line.starts_with('{') {
        line = client.line();
    }
    for line in [line, client.line()] {
        assert_eq!(serde_json::from_str::<Snapshot>(&line).unwrap().interval_ms, 50);
    }
    let mut client = stage.ask("HEAD /api/snapshots");
    assert_eq!(client.answer(), (200, String::new()));
    // A client that has ended its own direction is answered as well.
    let client = stage.ask("GET /api/snapshot");
    client.0.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    let (status, body) = { client }.answer();
    assert_eq!((status, serde_json::from_str::<Snapshot>(&body).unwrap().interval_ms), (200, 0));
    stage.finish();
}

/// The API is for any client of HTTP.
#[test]
fn curl_and_python_are_understood() {
    let stage = Stage::new(BackendKind::Epoll, 1);
    let path = stage.path.to_str().unwrap();
    let url = "http://localhost/api";
    let python = format!(
        "import http.client, socket\n\
         connection = http.client.HTTPConnection('localhost')\n\
         connection.sock = socket.socket(socket.AF_UNIX)\n\
         connection.sock.connect('{path}')\n\
         connection.request('GET', '/api/snapshots?interval_ms=50')\n\
         answer = connection.getresponse()\n\
         print(answer.status, answer.getheader('Content-Type'))\n\
         print(answer.readline().decode(), answer.readline().decode())\n"
    );
    let curl = ["--silent", "--show-error", "--unix-socket", path];
    let [status, change, stream] = [
        vec![format!("{url}/status")],
        ["-X", "PUT", "-H", "Content-Type: application/json", "-d", "{\"level\":\"info\"}"]
            .map(str::to_owned)
            .into_iter()
            .chain([format!("{url}/log")])
            .collect(),
        vec!["--max-time".to_owned(), "1".to_owned(), format!("{url}/snapshots?interval_ms=50")],
    ];
    for (program, first, rest, ends, said) in [
        (
            "curl",
            &curl[..],
            &status,
            true,
            &["\"state\": \"serving\"", "\"program\": \"serve\""][..],
        ),
        ("curl", &curl, &change, true, &["\"error\"", "no level"]),
        ("curl", &curl, &stream, false, &["\"interval_ms\":50", "}\n{\"schema\""]),
        (
            "python3",
            &["-c"],
            &vec![python],
            true,
            &["200 application/x-ndjson", "\"interval_ms\":50"],
        ),
    ] {
        let ran = std::process::Command::new(program).args(first).args(rest).output();
        let Ok(output) = ran else {
            eprintln!("skipped: {program} is not installed");
            continue;
        };
        let [told, errors] =
            [&output.stdout, &output.stderr].map(|one| String::from_utf8_lossy(one));
        assert_eq!(output.status.success(), ends, "{rest:?}: {told}{errors}");
        assert!(said.iter().all(|said| told.contains(said)), "{rest:?}: {told}{errors}");
    }
    stage.finish();
}

#[test]
fn there_are_so_many_viewers_and_places_that_are_left_are_free_again() {
    let stage = Stage::new(BackendKind::Adaptive, 1);
    let mut viewers = stage.viewers();
    let (status, error) = stage.ask("GET /api/snapshots").refusal();
    assert_eq!((status, error.contains("there are 8 viewers already")), (503, true), "{error}");
    drop(viewers.pop());
    let end = Instant::now() + PATIENCE;
    while stage.ask("GET /api/snapshots").head() == 503 {
        assert!(Instant::now() < end, "no place is free");
        std::thread::sleep(Duration::from_millis(10));
    }
    stage.finish();
}

#[test]
fn a_program_that_takes_no_commands_tells_its_state_and_refuses_the_rest() {
    let stage = Stage::new(BackendKind::Epoll, 2);
    let mut viewers = stage.viewers();
    for request in ["POST /api/reload", "POST /api/upgrade", "POST /api/drain?follow=true"] {
        // Whether or not all places are taken.
        for _ in 0..2 {
            let refused = stage.ask(request).refusal();
            assert_eq!(refused, (503, "this program takes no commands".to_owned()), "{request}");
            viewers.clear();
        }
    }
    let end = Instant::now() + PATIENCE;
    loop {
        let (status, body) = stage.ask("GET /api/status").answer();
        let read: ServerStatus =
            serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
        assert_eq!((status, read.facts.state), (200, ServerPhase::Serving));
        assert_eq!((read.snapshot.process, &*read.snapshot.program), (std::process::id(), "serve"));
        // The status leaves out an engine that has been silent since the question.
        if read.snapshot.engines.len() == 2 {
            break;
        }
        assert!(Instant::now() < end, "not all engines are in the status: {body}");
    }
    stage.finish();
}

/// Of the clients that come when all places are taken, there are only so many, too.
#[test]
fn clients_for_commands_have_a_bound() {
    let stage = Stage::new(BackendKind::Epoll, 1);
    let viewers = stage.viewers();
    // They send nothing, and are refused one after the other, or at once.
    let mut silent: Vec<Client> = (0..4 * VIEWERS).map(|_| stage.connect()).collect();
    for client in &mut silent {
        let (status, error) = client.refusal();
        let is_told = [8, 16].iter().any(|most| error.contains(&format!("{most} clients already")));
        assert_eq!((status, is_told), (503, true), "{error}");
    }
    drop(viewers);
    stage.finish();
}

#[test]
fn a_client_that_does_not_read_is_dropped_and_costs_no_memory() {
    let stage = Stage::new(BackendKind::Epoll, 2);
    let mut slow: Vec<Client> = (0..VIEWERS).map(|_| stage.viewer(50)).collect();
    // All places are taken until a client loses its place by not reading.
    let end = Instant::now() + PATIENCE;
    while stage.ask("GET /api/snapshots").head() == 503 {
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
    let mut client = stage.viewer(50);
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
    let mut client = UnixStream::connect(&path).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"GET /api/snapshots?interval_ms=50 HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let reads = std::thread::spawn(move || {
        let mut client = Client(BufReader::new(client));
        assert_eq!(client.head(), 200);
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
