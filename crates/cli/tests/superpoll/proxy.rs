//! The built command `superpoll proxy`, from the outside.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use superpoll::BackendKind;

use crate::stage::{PATIENCE, accept, connect, lines, ticks, until, until_readable, wait};
use crate::superpoll;
use superpoll_test_support::program::program;

const BACKENDS: [BackendKind; 5] = [
    BackendKind::Select,
    BackendKind::Poll,
    BackendKind::Epoll,
    BackendKind::Adaptive,
    BackendKind::Uring,
];

fn command(arguments: &[&str]) -> Command {
    let mut command = superpoll();
    command.arg("proxy").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts the relay and reads the address on which it listens.
pub(crate) fn start(arguments: &[&str]) -> (Child, String) {
    listening(command(arguments))
}

/// The same for a command that ends in it.
fn listening(mut command: Command) -> (Child, String) {
    let mut child = command.spawn().unwrap();
    until_readable(child.stdout.as_ref().unwrap(), "it listens or ends");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.split(' ').nth(3).unwrap_or_else(|| panic!("it wrote {line:?}")).to_owned();
    (child, address)
}

/// Connects to the relay.
fn client(address: &str) -> TcpStream {
    connect(address.parse().unwrap())
}

/// Reads the first byte of a client; `None` if the relay closes the connection.
fn first_byte(client: &mut TcpStream) -> Option<u8> {
    let mut room = [0];
    match client.read(&mut room) {
        Ok(count) => (count == 1).then_some(room[0]),
        Err(error) => {
            assert!(!is_wait(&error), "a client is neither relayed nor closed");
            None
        }
    }
}

/// An address that refuses connections. As long as the socket exists, nothing else can listen
/// there.
fn refuses() -> (Socket, String) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap().to_string();
    (socket, address)
}

fn terminate(child: &Child) {
    let number = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &number]).status().unwrap().success());
}

/// Whether a process listens at an address of this machine. Unlike a connection, this costs the
/// process nothing.
fn listens(address: &str) -> bool {
    let (_, port) = address.rsplit_once(':').unwrap();
    let local = format!(":{:04X}", port.parse::<u16>().unwrap());
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    // The fields are a number, the local address, the other address and the state, of which 0A is
    // listening.
    sockets.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[1].ends_with(&local) && fields[3] == "0A"
    })
}

#[test]
fn five_hundred_connections_and_an_end_that_waits_for_the_last() {
    const MANY: usize = 500;
    for backend in BACKENDS.into_iter().filter(|backend| backend.is_available()) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap().to_string();
        // 500 pairs are more than select can number.
        let many = if backend == BackendKind::Select { MANY / 2 } else { MANY };
        let (child, address) = start(&[
            "--listen",
            "127.0.0.1:0",
            "--to",
            &to,
            "--backend",
            backend.name(),
            "--workers",
            "2",
        ]);
        let mut pairs = Vec::new();
        for _ in 0..many {
            let client = client(&address);
            pairs.push((client, accept(&listener)));
        }
        // The relay decides which client belongs to which server.
        for (number, (client, _)) in pairs.iter_mut().enumerate() {
            client.write_all(&(number as u32).to_le_bytes()).unwrap();
        }
        for (_, server) in &mut pairs {
            let mut bytes = [0; 4];
            server.read_exact(&mut bytes).unwrap();
            server.write_all(&bytes).unwrap();
        }
        for (number, (client, _)) in pairs.iter_mut().enumerate() {
            let mut bytes = [0; 4];
            client.read_exact(&mut bytes).unwrap();
            assert_eq!(u32::from_le_bytes(bytes), number as u32);
        }
        terminate(&child);
        // It listens no more, and existing connections go on.
        until("it listens no more", || !listens(&address));
        for (client, _) in &mut pairs {
            client.write_all(b"last").unwrap();
        }
        for (_, server) in &mut pairs {
            let mut bytes = [0; 4];
            server.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"last");
        }
        drop(pairs);
        // All of them were accepted before.
        let expected = format!("superpoll: draining: {many} connections\nsuperpoll: ended\n");
        assert_eq!(all_errors(child), expected, "{backend:?}");
    }
}

#[test]
fn a_refusing_upstream_is_logged_and_a_wrong_address_is_refused_in_one_line() {
    let (_refusing, refusing) = refuses();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let used = listener.local_addr().unwrap().to_string();
    let (child, address) = start(&["--listen", "127.0.0.1:0", "--to", &refusing]);
    for _ in 0..2 {
        assert_eq!(first_byte(&mut client(&address)), None);
    }
    terminate(&child);
    let errors = errors(child);
    // The second one is counted, unless more than a second has passed.
    assert!((2..=3).contains(&errors.lines().count()), "{errors}");
    assert!(errors.contains(&format!("connecting to {refusing}: Connection refused")), "{errors}");
    let summary = "superpoll: 2 clients were closed because the upstream could not be reached";
    assert_eq!(errors.lines().last(), Some(summary));

    for (listen, to, reason) in [
        (&*used, "127.0.0.1:1", "in use"),
        ("unix:/no/such/folder/a", "127.0.0.1:1", "No such file"),
        ("127.0.0.1:0", "127.0.0.1:0", "port 0"),
        ("localhost", "127.0.0.1:1", "no address"),
    ] {
        let output = command(&["--listen", listen, "--to", to]).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.contains(reason), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

/// Returns the rest of its standard error, when it has ended, without the lines about its end.
fn errors(child: Child) -> String {
    let errors = all_errors(child);
    let mut lines: Vec<&str> = errors.lines().collect();
    assert_eq!(lines.pop(), Some("superpoll: ended"), "{errors}");
    let draining = lines.iter().position(|line| line.starts_with("superpoll: draining: "));
    lines.remove(draining.unwrap_or_else(|| panic!("{errors}")));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Returns the rest of its standard error, when it has ended.
fn all_errors(mut child: Child) -> String {
    let status = wait(&mut child);
    if status.is_none() {
        // Its errors end with it.
        child.kill().unwrap();
    }
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    let status = status.unwrap_or_else(|| panic!("it does not end: {errors}"));
    assert!(status.success(), "{errors}");
    errors
}

#[test]
fn out_of_descriptors_new_clients_are_closed_old_pairs_go_on_and_nothing_spins() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    for backend in BACKENDS.into_iter().filter(|backend| backend.is_available()) {
        let mut limited = program("sh");
        limited.args(["-c", "ulimit -n 40; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_superpoll")]);
        limited.args([
            "proxy",
            "--listen",
            "127.0.0.1:0",
            "--to",
            &to,
            "--backend",
            backend.name(),
        ]);
        limited.stdout(Stdio::piped()).stderr(Stdio::piped());
        let (child, address) = listening(limited);
        let mut pairs = Vec::new();
        let mut closed = 0;
        for _ in 0..60 {
            match reach(&listener, &address) {
                Some(pair) => pairs.push(pair),
                None => closed += 1,
            }
        }
        assert!(closed > 20 && pairs.len() >= 5, "{backend:?}: {closed} closed");
        let before = ticks(&child);
        thread::sleep(Duration::from_millis(500));
        assert!(ticks(&child) - before < 25, "{backend:?} spins");
        for (client, server) in &mut pairs {
            client.write_all(b"still here").unwrap();
            let mut bytes = [0; 10];
            server.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"still here", "{backend:?}");
        }
        // With room, new clients are accepted again.
        drop(pairs);
        until("there is room for new clients", || reach(&listener, &address).is_some());
        terminate(&child);
        let errors = errors(child);
        let count = errors.lines().count();
        assert!((1..20).contains(&count), "{backend:?}: {count} lines for {closed}: {errors}");
        assert!(errors.contains("descriptor") || errors.contains("open files"), "{errors}");
    }
}

/// Connects through the relay; `None` if it closes the client.
fn reach(listener: &TcpListener, address: &str) -> Option<(TcpStream, TcpStream)> {
    let mut client = client(address);
    client.set_nonblocking(true).unwrap();
    listener.set_nonblocking(true).unwrap();
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "a client is neither relayed nor closed");
        if let Ok((server, _)) = listener.accept() {
            server.set_nonblocking(false).unwrap();
            server.set_read_timeout(Some(PATIENCE)).unwrap();
            client.set_nonblocking(false).unwrap();
            return Some((client, server));
        }
        if !matches!(client.read(&mut [0]), Err(error) if is_wait(&error)) {
            return None;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn is_wait(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::WouldBlock
}

#[test]
fn a_client_that_vanishes_in_the_middle_of_bulk_ends_its_own_pair_only() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    for backend in BACKENDS.into_iter().filter(|backend| backend.is_available()) {
        let (child, address) =
            start(&["--listen", "127.0.0.1:0", "--to", &to, "--backend", backend.name()]);
        for half_closed in [true, false] {
            let mut client = client(&address);
            let mut server = accept(&listener);
            server.set_write_timeout(Some(PATIENCE)).unwrap();
            client.write_all(b"all").unwrap();
            if half_closed {
                // The kernel's error to a writer after this raises a signal, too.
                client.shutdown(std::net::Shutdown::Write).unwrap();
            }
            let sending = thread::spawn(move || {
                let bytes = vec![0; 1 << 20];
                loop {
                    if let Err(error) = server.write_all(&bytes) {
                        return error;
                    }
                }
            });
            client.read_exact(&mut vec![0; 4 << 20]).unwrap();
            drop(client);
            let error = sending.join().unwrap();
            assert!(!is_wait(&error), "the pair of a client that is gone does not end");
        }
        let mut client = client(&address);
        client.write_all(b"and on").unwrap();
        let mut bytes = [0; 6];
        accept(&listener).read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"and on", "{backend:?}");
        drop(client);
        terminate(&child);
        assert_eq!(errors(child), "", "{backend:?}");
    }
}

/// Returns the memory of a process that is not backed by a file, in bytes.
fn memory(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn an_idle_pair_takes_little_memory() {
    const MANY: usize = 1500;
    // Pages are counted, not bytes, and tables grow by half.
    const MOST: u64 = 1280;
    if superpoll::limits::raise_descriptors().unwrap() < 4 * MANY as u64 {
        eprintln!("skipped: {} descriptors are too few", superpoll::limits::nofile().0);
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let (mut child, address) = start(&["--listen", "127.0.0.1:0", "--to", &to]);
    let pair = || {
        let mut client = client(&address);
        client.write_all(b"hello").unwrap();
        let mut server = accept(&listener);
        server.read_exact(&mut [0; 5]).unwrap();
        server.write_all(b"hello").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
        (client, server)
    };
    let warm: Vec<_> = (0..100).map(|_| pair()).collect();
    let before = memory(&child);
    let idle: Vec<_> = (0..MANY).map(|_| pair()).collect();
    let each = (memory(&child) - before) / MANY as u64;
    assert!(each <= MOST, "{each} bytes for an idle pair");
    drop((warm, idle));
    terminate(&child);
    assert!(wait(&mut child).expect("it ends").success());
}

/// An upstream that answers each connection with a letter and waits for its end.
fn says(letter: u8) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || {
                let mut stream = stream.unwrap();
                // A check is gone by now.
                let _ = stream.write_all(&[letter]);
                let _ = stream.read(&mut [0]);
            });
        }
    });
    address
}

#[test]
fn several_servers_take_turns_and_one_that_refuses_is_found_by_checks() {
    let (a, b) = (says(b'a'), says(b'b'));
    let (_refusing, refusing) = refuses();
    // Each worker has turns of its own.
    let listen = ["--listen", "127.0.0.1:0", "--workers", "1"];
    let letters = |address: &str| -> String {
        let letter = |_| char::from(first_byte(&mut client(address)).expect("a letter"));
        (0..8).map(letter).collect()
    };
    let (child, address) = start(&[&listen[..], &["--to", &a, "--to", &b]].concat());
    assert!(["abababab", "babababa"].contains(&&*letters(&address)));
    terminate(&child);
    assert_eq!(errors(child), "");

    let servers = ["--to", &refusing, "--to", &a, "--health", "0.02", "--balance", "hash"];
    let (mut child, address) = start(&[&listen[..], &servers].concat());
    let mut log = lines(child.stderr.take().unwrap());
    let line = log.find(|line| line.contains("is down")).expect("a server that is down");
    let expected = format!("superpoll: the server {refusing} of the proxy is down: 3 checks");
    assert!(line.starts_with(&expected), "{line}");
    assert_eq!(letters(&address), "aaaaaaaa");
    terminate(&child);
    assert!(wait(&mut child).expect("it ends").success());

    for (arguments, reason) in [
        (&["--to", "a:1", "--to", "a:1"][..], "a:1 is given twice"),
        (&["--to", "a:1", "--to", "a:0"], "port 0 cannot be connected to"),
        (&["--to", "a:1", "--balance", "random"], "write round-robin, least-connections or hash"),
        (&["--to", "a:1", "--health", "0"], "it must be more than zero"),
        (&["--to", "a:1", "--connections-per-client", "0"], "zero"),
        (&[], "--to <ADDRESS>"),
    ] {
        let output = command(&[&listen[..], arguments].concat()).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.contains(reason), "{arguments:?}: {errors}");
    }
}

#[test]
fn a_client_has_no_more_connections_than_it_may_have() {
    let a = says(b'a');
    let (child, address) =
        start(&["--listen", "127.0.0.1:0", "--to", &a, "--connections-per-client", "2"]);
    let admitted = || {
        let mut client = client(&address);
        first_byte(&mut client).map(|_| client)
    };
    let (first, second) = (admitted(), admitted());
    assert!(first.is_some() && second.is_some() && admitted().is_none() && admitted().is_none());
    drop(first);
    let mut third = None;
    until("the end of the first one is noticed", || {
        third = admitted();
        third.is_some()
    });
    drop((second, third));
    terminate(&child);
    let errors = errors(child);
    let expected = "clients were closed because their address had as many as it may have";
    assert!(errors.lines().last().is_some_and(|line| line.ends_with(expected)), "{errors}");
}

#[test]
fn the_access_log_has_each_connection_when_the_proxy_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let path = log.to_str().unwrap();
    let (mut child, address) =
        start(&["--listen", "127.0.0.1:0", "--to", &to, "--access-log", path, "--workers", "2"]);
    let mut client = client(&address);
    let mut server = accept(&listener);
    client.write_all(b"question").unwrap();
    let mut question = [0; 8];
    server.read_exact(&mut question).unwrap();
    drop(server);
    assert_eq!(client.read_to_end(&mut Vec::new()).unwrap(), 0);
    drop(client);
    terminate(&child);
    assert!(wait(&mut child).expect("it ends").success());
    let text = std::fs::read_to_string(&log).unwrap();
    let line: serde_json::Value = serde_json::from_str(text.trim_end()).unwrap();
    assert_eq!((&line["upstream_server"], &line["bytes_in"]), (&to.into(), &8.into()), "{line}");
    assert_eq!(line["complete"], true, "{line}");
    let mut refused = command(&["--listen", "127.0.0.1:0", "--to", "127.0.0.1:1"]);
    let output = refused.args(["--access-log", "/no/such/folder/log"]).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        errors.contains("opening the access log /no/such/folder/log: No such file"),
        "{errors}"
    );
}
