//! Upstream servers when the process of the gateway has no descriptor left.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use superpoll_gateway::upstream::GroupServer;
use superpoll_rt::BackendKind;
use superpoll_test_support::alone;

use crate::gateway::{Gateway, LIMIT, MOST, wait, way, whole};

/// The most descriptors of the process while it lacks some.
const FEW: u64 = 200;

/// The same while it has none left: the lowest numbers, which this test keeps open. It is no
/// smaller number, since `poll(2)` takes no more entries than a process may have descriptors.
const LOWEST: u64 = 64;

/// Starts a server of HTTP in this process, which lacks descriptors as the gateway does, and goes
/// on when there are some. It runs to the end of the process.
fn origin() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        loop {
            match listener.accept() {
                Ok((stream, _)) => drop(thread::spawn(move || answer(&stream))),
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
    });
    address
}

/// Answers each request of a connection, by one descriptor.
fn answer(stream: &TcpStream) {
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(line)) = lines.next() {
        let mut stream = stream;
        if line.is_empty()
            && stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_err()
        {
            return;
        }
    }
}

/// A client, by one descriptor.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: &str) -> Client {
        Client::on(TcpStream::connect(address).unwrap())
    }

    fn on(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Client(BufReader::new(stream))
    }

    /// Returns the status of the response to a request without a body, if there is one.
    fn status(&mut self, method: &str) -> Option<u16> {
        self.status_of(method, "/")
    }

    fn status_of(&mut self, method: &str, path: &str) -> Option<u16> {
        self.ask(method, path).map(|(status, _)| status)
    }

    /// Returns the status and the field `Retry-After`.
    fn ask(&mut self, method: &str, path: &str) -> Option<(u16, Option<String>)> {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        self.0.get_mut().write_all(head.as_bytes()).ok()?;
        let (mut status, mut length, mut retry_after) = (0, 0, None);
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().unwrap();
            } else if let Some(rest) = line.strip_prefix("content-length:") {
                length = rest.trim().parse().unwrap();
            } else if let Some(rest) = line.strip_prefix("retry-after:") {
                retry_after = Some(rest.trim().to_owned());
            } else if line.is_empty() {
                break;
            }
        }
        self.0.read_exact(&mut vec![0; length]).ok()?;
        Some((status, retry_after))
    }
}

/// The counts of the two servers of a group.
fn counts(gateway: &Gateway, group: &'static str, of: fn(&GroupServer) -> &AtomicU64) -> [u64; 2] {
    gateway.call(move |_, server| {
        let members = server.upstreams()[group].members();
        [0, 1].map(|index| of(&members[index]).load(Ordering::Relaxed))
    })
}

/// The configuration of a group of two servers.
fn group(servers: [&str; 2], more: &str) -> String {
    let [one, other] = servers;
    format!("servers = [{{ address = \"{one}\" }}, {{ address = \"{other}\" }}]\n{more}")
}

fn requests(lane: bool, backend: BackendKind) {
    let (one, other) = (origin(), origin());
    let health = "health = { interval = \"100ms\", fall = 2 }";
    let cold = format!(
        "[[hosts.routes]]\npath = \"/cold/\"\nproxy = {{ upstream = \"cold\"{} }}",
        way(lane)
    );
    let text = [
        whole(&group([&one, &other], health), way(lane), &cold),
        format!("[upstreams.cold]\n{}\n", group([&one, &other], health)),
    ];
    let text = text.concat();
    let gateway = Gateway::start(backend, &text);
    let mut client = Client::connect(&gateway.address);
    // One server has a connection that is kept, the other one has none. In the other group, neither
    // has one.
    assert_eq!(client.status("GET"), Some(200));
    let limit = getrlimit(Resource::Nofile);
    // Descriptors that are open stay open.
    setrlimit(Resource::Nofile, Rlimit { current: Some(LOWEST), ..limit }).unwrap();
    wait(|| {
        let unchecked = ["app", "cold"].map(|group| counts(&gateway, group, |one| &one.unchecked));
        unchecked.iter().flatten().all(|count| *count >= 5) || gateway.up() != [true, true]
    });
    assert_eq!(gateway.up(), [true, true], "{:?}", gateway.told());
    for (path, expected, retry_after) in [("/", 200, None), ("/cold/", 503, Some("1"))] {
        for turn in 0..20 {
            let method = if turn % 4 < 2 { "GET" } else { "POST" };
            let answer = client.ask(method, path).unwrap();
            assert_eq!((answer.0, answer.1.as_deref()), (expected, retry_after), "{path} {turn}");
        }
    }
    assert_eq!(gateway.up(), [true, true]);
    for group in ["app", "cold"] {
        assert_eq!(counts(&gateway, group, |server| &server.failures), [0, 0]);
    }
    // Every other one has first been given to the server without a connection.
    assert_eq!(counts(&gateway, "app", |server| &server.retries).iter().sum::<u64>(), 10);
    assert_eq!(counts(&gateway, "cold", |server| &server.retries), [0, 0]);
    setrlimit(Resource::Nofile, limit).unwrap();
    for _ in 0..10 {
        assert_eq!(client.status("GET"), Some(200));
    }
    let told = gateway.told();
    let of = |kind: &str| told.iter().filter(|(name, ..)| *name == kind).collect::<Vec<_>>();
    assert!(of("upstream-down").is_empty() && of("upstream-up").is_empty(), "{told:?}");
    let (unchecked, failed) = (of("upstream-unchecked"), of("upstream-failed"));
    assert!(unchecked[0].1.contains("ulimit -n"), "{told:?}");
    assert!(failed.iter().all(|(_, text, _)| text.contains("ulimit -n")), "{told:?}");
    let answered = failed.iter().find(|(_, text, _)| text.contains("the client gets 503"));
    assert_eq!(answered.unwrap_or_else(|| panic!("{told:?}")).2, "own-lack 503");
}

/// The connections that are kept to a server leave descriptors for others, whatever `keep_alive`
/// says.
fn kept(lane: bool, backend: BackendKind) {
    const CLIENTS: usize = 60;
    const DESCRIPTORS: u64 = 400;
    let together = Arc::new(Barrier::new(CLIENTS));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let together = together.clone();
            // Requests are answered when there are as many of them as clients.
            thread::spawn(move || {
                together.wait();
                answer(&stream);
            });
        }
    });
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), ..limit }).unwrap();
    let text =
        whole(&format!("servers = [{{ address = \"{one}\" }}]\nkeep_alive = 1000"), way(lane), "");
    let gateway = Gateway::start(backend, &text);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = Client::connect(&gateway.address);
            thread::spawn(move || {
                assert_eq!(client.status("GET"), Some(200));
                client
            })
        })
        .collect();
    let mut clients: Vec<Client> =
        clients.into_iter().map(|client| client.join().unwrap()).collect();
    let idle = || {
        gateway
            .call(|_, server| server.upstreams()["app"].members()[0].idle.load(Ordering::Relaxed))
    };
    // Each client has its answer before its connection to the server is kept, or is not.
    let most = DESCRIPTORS / 8;
    wait(|| idle() == most);
    // Those that are kept serve further requests, and stay as many.
    for client in &mut clients[..10] {
        assert_eq!(client.status("GET"), Some(200));
    }
    wait(|| idle() == most);
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// Opens files until there is room for the two ends of a client's connection, and for no other.
fn leave_two(files: &mut Vec<File>) {
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    files.truncate(files.len().saturating_sub(2));
}

fn relayed(backend: BackendKind) {
    const SOON: Duration = Duration::from_secs(1);
    let (one, other) = (origin(), origin());
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\nrelay.upstream = \"app\"\n[upstreams.app]\n\
         servers = [{{ address = \"{one}\" }}, {{ address = \"{other}\" }}]\n"
    );
    let gateway = Gateway::start(backend, &text);
    assert_eq!(Client::connect(&gateway.address).status("GET"), Some(200));
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(FEW), ..limit }).unwrap();
    let (mut files, mut closed) = (Vec::new(), 0);
    // Descriptors that other threads take or close meanwhile change the outcome of single turns.
    wait(|| {
        leave_two(&mut files);
        if let Ok(stream) = TcpStream::connect(&gateway.address) {
            // If there was room for a third one, the server has none to accept with, and the client
            // would wait for ever.
            stream.set_read_timeout(Some(SOON)).unwrap();
            let begun = Instant::now();
            let is_served = Client(BufReader::new(stream)).status("GET").is_some();
            closed += u32::from(!is_served && begun.elapsed() < SOON);
        }
        closed >= 20
    });
    assert_eq!(gateway.up(), [true, true], "{:?}", gateway.told());
    assert_eq!(counts(&gateway, "app", |server| &server.failures), [0, 0]);
    setrlimit(Resource::Nofile, limit).unwrap();
    drop(files);
    for _ in 0..4 {
        assert_eq!(Client::connect(&gateway.address).status("GET"), Some(200));
    }
    let told = gateway.told();
    let is_told = |text: &str| {
        text.contains("connecting to") && text.contains("ulimit -n; the client was closed")
    };
    assert!(told.iter().any(|(_, text, _)| is_told(text)), "{told:?}");
}

#[test]
fn without_descriptors_servers_stay_up_and_their_connections_are_used() {
    alone(|| {
        let is_low = |file: &File| u64::try_from(file.as_raw_fd()).unwrap() < LOWEST;
        let open = || File::open("/dev/null").unwrap();
        let _lowest: Vec<File> = std::iter::repeat_with(open).take_while(is_low).collect();
        for backend in MOST {
            requests(true, backend);
            requests(false, backend);
            kept(true, backend);
            kept(false, backend);
            relayed(backend);
        }
    });
}
