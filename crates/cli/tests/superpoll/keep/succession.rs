//! One server after another, with the same connections.

use std::collections::HashSet;
use std::fmt::Debug;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::keep::crowd::{Publisher, Received, Subscriber, check, publish};
use crate::stage::{
    Running, Server, Site, connect, free_port, get, has_ended, response, signal, until,
};
use crate::superpoll;

/// Connections become idle soon, and may stay.
pub(crate) const AT_REST_SOON: &str = "[timeouts]\npark = \"50ms\"\nidle = \"10m\"\n";

/// A keeper in a process of its own, and the settings of servers with it.
pub(crate) struct Nursery {
    pub site: Site,
    pub port: u16,
    /// The port of the encrypted listener, if there is one.
    pub tls: Option<u16>,
    /// The channel's options.
    channel: String,
    keeper: Running,
}

impl Nursery {
    /// Creates one whose connections become idle soon.
    pub(crate) fn new(options: &str) -> Nursery {
        Nursery::with(&format!("{AT_REST_SOON}{options}"))
    }

    pub(crate) fn with(options: &str) -> Nursery {
        Nursery::keeping(1000, options)
    }

    /// Creates one with a channel that keeps this many messages.
    fn keeping(history: usize, options: &str) -> Nursery {
        Nursery::writing_to(Stdio::null(), history, options)
    }

    /// Creates one whose channel has further options.
    pub(crate) fn with_channel(channel: &str, options: &str) -> Nursery {
        Nursery::of(Stdio::null(), channel, options, false)
    }

    /// With a keeper that has this standard error.
    pub(crate) fn writing_to(errors: Stdio, history: usize, options: &str) -> Nursery {
        // Signs of life would take subscribers from the keeper for a moment.
        let channel = format!("publish = \"anyone\", history = {history}, poll = \"10m\"");
        Nursery::of(errors, &channel, options, false)
    }

    /// With a second listener, which is encrypted. Its connections go on in other servers, too.
    pub(crate) fn encrypted(options: &str) -> Nursery {
        let channel = "publish = \"anyone\", history = 1000, poll = \"10m\"";
        let options = format!("{AT_REST_SOON}[keeper]\ntls = true\n{options}");
        Nursery::of(Stdio::null(), channel, &options, true)
    }

    fn of(errors: Stdio, channel: &str, options: &str, is_encrypted: bool) -> Nursery {
        // Users other than the superuser have 1024 descriptors as a rule, and may have more.
        let _ = superpoll::limits::raise_descriptors();
        let site = Site::new();
        let port = free_port();
        let tls = is_encrypted.then(free_port);
        site.certificate();
        let socket = site.path("keeper");
        let mut command = superpoll();
        // The tests count its descriptors.
        command.arg("keep").arg("--dumpable").arg("--listen").arg(&socket);
        command.stdout(Stdio::null()).stderr(errors);
        let keeper = Running(command.spawn().unwrap());
        until("the keeper listens", || socket.exists());
        let nursery = Nursery { site, port, tls, channel: channel.to_owned(), keeper };
        nursery.configure(options);
        nursery
    }

    /// Writes the configuration.
    pub(crate) fn configure(&self, options: &str) {
        let (port, channel) = (self.port, &self.channel);
        let encrypted = self.tls.map_or_else(String::new, |port| {
            format!(
                "[[listeners]]
                address = \"127.0.0.1:{port}\"
                tls = {{ certificate = \"cert.pem\", key = \"cert.key\" }}"
            )
        });
        self.site.write(
            "server.toml",
            &format!(
                "[server]
                workers = 2
                [[listeners]]
                address = \"127.0.0.1:{port}\"
                {encrypted}
                [[hosts]]
                [[hosts.routes]]
                path = \"/\"
                files = {{ root = \"www\" }}
                [[hosts.routes]]
                path = \"/news\"
                channel = {{ {channel} }}
                [[hosts.routes]]
                path = \"/rooms/{{room}}\"
                channel = {{ {channel}, idle = \"1s\" }}
                [[hosts.routes]]
                path = \"/notes/{{note}}\"
                channel = {{ {channel} }}
                {options}"
            ),
        );
    }

    pub(crate) fn at(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = superpoll();
        command.args(["serve", "-c"]).arg(self.site.path("server.toml"));
        command.arg("--keeper").arg(self.site.path("keeper")).args(arguments);
        command
    }

    pub(crate) fn server(&self, arguments: &[&str]) -> Server {
        Server::of(self.command(arguments), 1 + usize::from(self.tls.is_some()))
    }

    /// Starts the server that takes over from another one, by an upgrade or after its crash.
    pub(crate) fn next(&self, server: Server, upgrades: bool) -> Server {
        if upgrades {
            let next = self.server(&["--upgrade"]);
            assert!(server.ended().0.success());
            return next;
        }
        server.signal("KILL");
        drop(server.ended());
        self.server(&[])
    }

    pub(crate) fn keeper(&self) -> &Child {
        &self.keeper.0
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.keeper.0.try_wait().unwrap().is_some()
    }

    /// The keeper's folder in `/proc`.
    fn process(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.keeper.0.id()))
    }

    /// Returns the number of TCP sockets that the keeper has, listeners included.
    pub(crate) fn held(&self) -> usize {
        let process = self.process();
        let table = fs::read_to_string(process.join("net/tcp")).unwrap();
        let inodes: HashSet<&str> =
            table.lines().filter_map(|line| line.split_whitespace().nth(9)).collect();
        let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let is_tcp = |file: &fs::DirEntry| {
            let target = fs::read_link(file.path()).unwrap_or_default();
            let target = target.to_string_lossy().into_owned();
            let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
            inode.is_some_and(|inode| inodes.contains(inode))
        };
        files.filter(is_tcp).count()
    }

    /// Whether the keeper has the server's listeners and this many connections.
    pub(crate) fn holds(&self, count: usize) -> bool {
        let least = count + 1 + usize::from(self.tls.is_some());
        // The table of sockets is long, and names of descriptors are read quickly.
        let descriptors = fs::read_dir(self.process().join("fd")).map_or(0, Iterator::count);
        descriptors >= least && self.held() >= least
    }

    /// Waits until that is so.
    pub(crate) fn until_held(&self, count: usize) {
        until("idle connections are left with the keeper", || self.holds(count));
    }
}

/// Clients that have become idle.
struct Crowd {
    subscribers: Vec<Subscriber>,
    idle: Vec<TcpStream>,
}

impl Crowd {
    fn new(nursery: &Nursery, count: usize) -> Crowd {
        let at = nursery.at();
        let idle = (0..count).map(|_| {
            let mut stream = connect(at);
            assert!(get(&mut stream, "/small").ends_with("0123456789"));
            stream
        });
        let idle: Vec<TcpStream> = idle.collect();
        let by_turns = |index: usize| match index % 2 {
            0 => Subscriber::new(at),
            _ => Subscriber::events(at),
        };
        let subscribers = (0..count).map(by_turns).collect();
        nursery.until_held(2 * count);
        Crowd { subscribers, idle }
    }

    /// Checks what the subscribers have heard, and that the others are served.
    fn check(mut self, confirmed: &[String], doubtful: &[String]) {
        check(&mut self.subscribers, confirmed, doubtful);
        for stream in &mut self.idle {
            assert!(get(stream, "/small").ends_with("0123456789"));
        }
    }
}

#[test]
fn thousands_of_idle_connections_live_through_an_upgrade_and_a_crash() {
    // More than the 1024 descriptors that a process has at first.
    const EACH: usize = 1200;
    if superpoll::limits::nofile().1 < 4096 {
        return eprintln!("skipped: fewer than 4096 descriptors are allowed (ulimit -Hn)");
    }
    let nursery = Nursery::new("");
    let first = nursery.server(&[]);
    let crowd = Crowd::new(&nursery, EACH);
    let publisher = Publisher::start(nursery.at());
    until("something is published", || publish(nursery.at(), "before"));

    let second = nursery.server(&["--upgrade"]);
    let (status, said) = first.ended();
    assert!(status.success() && said.contains("another server takes over"), "{status}: {said}");
    until("something is published", || publish(nursery.at(), "between"));
    second.says("took over");
    // A subscriber that received a message it had missed is left with the keeper when it is
    // idle again.
    nursery.until_held(2 * EACH);

    second.signal("KILL");
    drop(second.ended());
    let third = nursery.server(&[]);
    until("something is published", || publish(nursery.at(), "after"));
    third.says("took over");
    let (confirmed, doubtful) = publisher.end();
    let mut doubtful = doubtful;
    doubtful.extend(["before", "between", "after"].map(str::to_owned));
    assert!(confirmed.len() > 3, "{confirmed:?}");
    crowd.check(&confirmed, &doubtful);
    third.signal("TERM");
    let (status, said) = third.ended();
    assert!(status.success(), "{said}");
}

#[test]
fn no_subscriber_misses_a_message_in_an_upgrade_even_with_a_short_history() {
    let nursery = Nursery::keeping(1, AT_REST_SOON);
    let first = nursery.server(&[]);
    let crowd = Crowd::new(&nursery, 1000);
    let publisher = Publisher::start(nursery.at());
    until("something is published", || publish(nursery.at(), "before"));
    let second = nursery.server(&["--upgrade"]);
    assert!(first.ended().0.success());
    second.says("took over");
    until("something is published", || publish(nursery.at(), "after"));
    let (confirmed, mut doubtful) = publisher.end();
    doubtful.extend(["before", "after"].map(str::to_owned));
    assert!(confirmed.len() > 3, "{confirmed:?}");
    crowd.check(&confirmed, &doubtful);
    second.signal("TERM");
    assert!(second.ended().0.success());
}

/// How many upgrades there are, and how many crashes.
pub(crate) fn rounds() -> usize {
    let rounds = std::env::var("SUPERPOLL_KEEP_ROUNDS");
    rounds.ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3)
}

#[test]
fn subscribers_go_on_through_many_upgrades_and_crashes() {
    subscribers_go_on(&Nursery::new(""));
}

/// Publishes all along, while one server follows another.
pub(crate) fn subscribers_go_on(nursery: &Nursery) {
    const SUBSCRIBERS: usize = 40;
    let mut server = nursery.server(&[]);
    let crowd = Crowd::new(nursery, SUBSCRIBERS);
    let publisher = Publisher::start(nursery.at());
    let mut doubtful = Vec::new();
    for round in 0..2 * rounds() {
        let message = format!("round {round}");
        until("something is published", || publish(nursery.at(), &message));
        doubtful.push(message);
        nursery.until_held(2 * SUBSCRIBERS);
        let next = nursery.next(server, round % 2 == 0);
        next.says(&format!("took over {} connections", 2 * SUBSCRIBERS));
        server = next;
    }
    until("something is published", || publish(nursery.at(), "after"));
    doubtful.push("after".to_owned());
    let (confirmed, more) = publisher.end();
    doubtful.extend(more);
    println!("{} messages confirmed", confirmed.len());
    crowd.check(&confirmed, &doubtful);
    server.signal("TERM");
    assert!(server.ended().0.success());
}

/// While a sign of life is written, a subscriber is not with the keeper, nor in the second after
/// that. A server that is killed then takes the subscriber along, so rounds are counted in which it
/// does not.
#[test]
fn a_sign_of_life_is_not_taken_for_a_message() {
    let channel = "publish = \"anyone\", history = 1000, poll = \"8s\"";
    let nursery = Nursery::with_channel(channel, AT_REST_SOON);
    let mut server = nursery.server(&[]);
    let at = nursery.at();
    let mut subscribers = [Subscriber::events(at), Subscriber::events(at)];
    let mut good = 0;
    for round in 0..30 {
        for subscriber in &mut subscribers {
            assert_eq!(subscriber.receive(), Some(Received::SignOfLife), "round {round}");
        }
        nursery.until_held(2);
        // One message before the server is killed, and one after that.
        assert!(publish(at, "before"));
        server.signal("KILL");
        drop(server.ended());
        server = nursery.server(&[]);
        assert!(publish(at, "after"));
        let mut survives = true;
        for subscriber in &mut subscribers {
            let mut expected = ["before", "after"].into_iter().peekable();
            while let Some(text) = expected.peek() {
                match subscriber.receive() {
                    Some(Received::Message(message)) => {
                        assert_eq!(message, *text, "round {round}");
                        expected.next();
                    }
                    Some(Received::SignOfLife) => {}
                    None => {
                        survives = false;
                        *subscriber = Subscriber::events(at);
                        break;
                    }
                }
            }
        }
        good += usize::from(survives);
        if good == 2 {
            break;
        }
    }
    assert_eq!(good, 2);
    server.signal("TERM");
    assert!(server.ended().0.success());
}

#[test]
fn a_signal_starts_the_next_server() {
    let nursery = Nursery::new("");
    let first = nursery.server(&[]);
    let mut client = connect(nursery.at());
    get(&mut client, "/small");
    nursery.until_held(1);
    first.signal("USR2");
    first.says("is to take over");
    let said = first.errors();
    let number = said.split("process ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    first.says("another server takes over");
    assert!(get(&mut client, "/small").ends_with("0123456789"));
    let status = Command::new("kill").args(["-TERM", &number]).status().unwrap();
    assert!(status.success());
    let (status, said) = first.ended();
    assert!(status.success(), "{said}");
    until("the second one has ended", || has_ended(number.parse().unwrap()));
}

#[test]
fn a_long_poll_is_answered_by_the_next_server() {
    let nursery = Nursery::new("");
    let first = nursery.server(&[]);
    let ask = || {
        let mut client = connect(nursery.at());
        client.write_all(b"GET /news HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        client
    };
    let mut clients: Vec<TcpStream> = (0..20).map(|_| ask()).collect();
    nursery.until_held(20);
    first.signal("KILL");
    drop(first.ended());
    let second = nursery.server(&[]);
    assert!(publish(nursery.at(), "from the second"));
    for client in &mut clients {
        let answer = response(client);
        assert!(answer.contains("\"data\":\"from the second\""), "{answer}");
        // The connection goes on.
        assert!(get(client, "/small").ends_with("0123456789"));
    }
    second.signal("TERM");
    assert!(second.ended().0.success());
}

#[test]
fn a_server_that_ends_as_it_was_asked_to_leaves_nothing() {
    let nursery = Nursery::new("");
    let server = nursery.server(&[]);
    let mut client = connect(nursery.at());
    get(&mut client, "/small");
    nursery.until_held(1);
    server.signal("TERM");
    let (status, said) = server.ended();
    assert!(status.success(), "{said}");
    until("nothing is held", || nursery.held() == 0);
    assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
    assert!(TcpStream::connect(nursery.at()).is_err());
}

#[test]
fn a_server_goes_on_without_its_keeper_and_reports_it() {
    let nursery = Nursery::new("");
    let server = nursery.server(&[]);
    let mut idle: Vec<TcpStream> = (0..50).map(|_| connect(nursery.at())).collect();
    for client in &mut idle {
        get(client, "/small");
    }
    let mut subscriber = Subscriber::new(nursery.at());
    nursery.until_held(51);
    signal(nursery.keeper(), "KILL");
    server.says("the keeper is lost");
    for client in &mut idle {
        assert!(get(client, "/small").ends_with("0123456789"));
    }
    assert!(publish(nursery.at(), "still here") && publish(nursery.at(), crate::keep::crowd::END));
    assert_eq!(subscriber.messages(), ["still here"]);
    server.signal("TERM");
    assert!(server.ended().0.success());
}

/// Sends requests again and again. Returns the number of answers, or an error that names a lost
/// request. A client that is told that the connection ends connects again.
fn ask_on(at: SocketAddr, ends: &AtomicBool, pause: Duration) -> Result<usize, String> {
    let mut stream = connect(at);
    let mut count = 0;
    while !ends.load(Ordering::Relaxed) {
        let request = "GET /small HTTP/1.1\r\nHost: a\r\n\r\n";
        let failed = |what: &dyn Debug| format!("{what:?} after {count} answers");
        stream.write_all(request.as_bytes()).map_err(|error| failed(&error))?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"0123456789") {
            let mut room = [0; 4096];
            match stream.read(&mut room) {
                Ok(0) => return Err(failed(&"the end")),
                Ok(read) => answer.extend_from_slice(&room[..read]),
                Err(error) => return Err(failed(&error)),
            }
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        count += 1;
        if answer.to_ascii_lowercase().contains("connection: close") {
            stream = connect(at);
        }
        thread::sleep(pause);
    }
    Ok(count)
}

#[test]
fn requests_during_an_upgrade_are_answered() {
    // With the default time-outs of a server.
    let nursery = Nursery::with("");
    let first = nursery.server(&[]);
    let (at, ends) = (nursery.at(), Arc::new(AtomicBool::new(false)));
    let clients: Vec<_> = (0..60)
        .map(|number| {
            let ends = ends.clone();
            // Some clients come again at once, the rest have been left with the keeper by then.
            let pause = Duration::from_millis([1, 7, 40, 300, 1700][number % 5]);
            thread::spawn(move || ask_on(at, &ends, pause))
        })
        .collect();
    thread::sleep(Duration::from_secs(2));
    let second = nursery.server(&["--upgrade"]);
    thread::sleep(Duration::from_secs(1));
    let third = nursery.server(&["--upgrade"]);
    thread::sleep(Duration::from_secs(1));
    ends.store(true, Ordering::Relaxed);
    let outcomes: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    let failed: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert!(failed.is_empty(), "{} of {}: {failed:?}", failed.len(), outcomes.len());
    for server in [first, second] {
        assert!(server.ended().0.success());
    }
    third.signal("TERM");
    assert!(third.ended().0.success());
}

/// What is left of a subscriber names the last message that it was sent then. Messages that came
/// since have to be known to the next server, however many there were.
#[test]
fn a_subscriber_goes_on_after_more_messages_than_the_history_keeps() {
    for ending in ["--upgrade", "KILL"] {
        let nursery = Nursery::keeping(10, AT_REST_SOON);
        let server = nursery.server(&[]);
        let mut subscribers = [Subscriber::new(nursery.at()), Subscriber::events(nursery.at())];
        nursery.until_held(2);
        for number in 0..100 {
            let message = number.to_string();
            assert!(publish(nursery.at(), &message));
            for subscriber in &mut subscribers {
                assert_eq!(subscriber.receive(), Some(Received::Message(message.clone())));
            }
        }
        let next = if ending == "KILL" {
            server.signal("KILL");
            drop(server.ended());
            nursery.server(&[])
        } else {
            let next = nursery.server(&[ending]);
            assert!(server.ended().0.success());
            next
        };
        next.says("took over 2 connections");
        assert!(publish(nursery.at(), "after"));
        for subscriber in &mut subscribers {
            let after = Received::Message("after".to_owned());
            assert_eq!(subscriber.receive(), Some(after), "{ending}");
        }
    }
}
