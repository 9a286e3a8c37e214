//! Several processes with keepers: idle connections outlive each of them, and their supervisor.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::keep::crowd::{Publisher, Subscriber, check, publish};
use crate::keep::succession::{AT_REST_SOON, rounds};
use crate::stage::{Server, Site, children, connect, free_port, get, has_ended, kill, until};
use crate::superpoll;

const PROCESSES: usize = 2;

/// Of each kind.
const CLIENTS: usize = 40;

struct Family {
    site: Site,
    port: u16,
}

impl Family {
    fn new() -> Family {
        let _ = superpoll::limits::raise_descriptors();
        let site = Site::new();
        let port = free_port();
        site.write(
            "server.toml",
            &format!(
                "[server]
                processes = {PROCESSES}
                [[listeners]]
                address = \"127.0.0.1:{port}\"
                [metrics]
                path = \"/metrics\"
                [[hosts]]
                [[hosts.routes]]
                files = {{ root = \"www\" }}
                [[hosts.routes]]
                path = \"/news\"
                channel = {{ publish = \"anyone\", history = 1000, poll = \"10m\" }}
                {AT_REST_SOON}"
            ),
        );
        Family { site, port }
    }

    fn at(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    fn start(&self) -> Server {
        let mut command = superpoll();
        command.args(["serve", "--stats", "off", "-c"]).arg(self.site.path("server.toml"));
        command.arg("--keeper").arg(self.site.path("keeper"));
        Server::of(command, 1)
    }

    /// Returns connections that have become idle, so that keepers watch them.
    fn idle(&self) -> Vec<TcpStream> {
        let connections = (0..CLIENTS).map(|_| {
            let mut stream = connect(self.at());
            assert!(get(&mut stream, "/small").ends_with("0123456789"));
            stream
        });
        let idle = connections.collect();
        self.until_away(CLIENTS);
        idle
    }

    /// Waits until keepers watch that many connections.
    fn until_away(&self, count: usize) {
        until("idle connections are left with the keepers", || {
            let told = get(&mut connect(self.at()), "/metrics");
            let lines = told.lines().filter(|line| line.starts_with("superpoll_connections_away{"));
            let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            counts.sum::<f64>() as usize >= count
        });
    }
}

/// Clients that have become idle.
struct Crowd {
    subscribers: Vec<Subscriber>,
    idle: Vec<TcpStream>,
}

impl Crowd {
    fn new(family: &Family) -> Crowd {
        let at = family.at();
        let by_turns = |index: usize| match index % 2 {
            0 => Subscriber::new(at),
            _ => Subscriber::events(at),
        };
        let subscribers = (0..CLIENTS).map(by_turns).collect();
        let idle = (0..CLIENTS).map(|_| {
            let mut stream = connect(at);
            assert!(get(&mut stream, "/small").ends_with("0123456789"));
            stream
        });
        let crowd = Crowd { subscribers, idle: idle.collect() };
        family.until_away(2 * CLIENTS);
        crowd
    }

    fn check(mut self, confirmed: &[String], doubtful: &[String]) {
        check(&mut self.subscribers, confirmed, doubtful);
        for stream in &mut self.idle {
            assert!(get(stream, "/small").ends_with("0123456789"));
        }
    }
}

#[test]
fn idle_connections_outlive_killed_workers_and_upgrades() {
    let family = Family::new();
    let server = family.start();
    let at = family.at();
    let crowd = Crowd::new(&family);
    // A signal for the server may be sent to its keepers as well.
    for worker in server.workers(PROCESSES) {
        let keepers = children(worker);
        assert_eq!(keepers.len(), 1);
        keepers.iter().for_each(|keeper| kill(*keeper, "USR2"));
    }
    let publisher = Publisher::start(at);
    let mut doubtful = Vec::new();
    for round in 0..2 * rounds() {
        let message = format!("round {round}");
        until("something is published", || publish(at, &message));
        doubtful.push(message);
        family.until_away(2 * CLIENTS);
        let before = server.workers(PROCESSES);
        if round % 2 == 0 {
            let victim = before[round / 2 % PROCESSES];
            kill(victim, "KILL");
            until("another worker is there", || {
                let now = children(server.child().id());
                now.iter().filter(|worker| !before.contains(worker)).count() >= 1
            });
        } else {
            server.signal("USR2");
            let times = 1 + round / 2;
            until("all workers are of the new program", || {
                server.errors().matches("all workers are of the new program").count() == times
            });
        }
        family.until_away(2 * CLIENTS);
    }
    let (confirmed, more) = publisher.end();
    doubtful.extend(more);
    println!("{} messages confirmed", confirmed.len());
    crowd.check(&confirmed, &doubtful);
    server.signal("TERM");
    let (status, errors) = server.ended();
    assert!(status.success(), "{status}: {errors}");
}

/// One that yields only drains, and may take long to end. Other servers take the keepers here and
/// end, as successors may before they serve.
#[test]
fn a_worker_that_yields_is_replaced_while_it_drains() {
    let family = Family::new();
    let server = family.start();
    // More than the kernel takes for a client that does not read: its worker waits for it.
    family.site.write("www/large", &"x".repeat(64 << 20));
    let mut slow = connect(family.at());
    slow.write_all(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    slow.read_exact(&mut [0]).unwrap();
    let before = server.workers(PROCESSES);
    let file = family.site.write(
        "other.toml",
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\n\
         files = { root = \"www\" }\n",
    );
    let others = (0..PROCESSES).map(|slot| {
        let mut command = superpoll();
        command.args(["serve", "--upgrade", "--stats", "off", "-c"]).arg(&file);
        command.arg("--keeper").arg(family.site.path(&format!("keeper.{slot}")));
        Server::of(command, 1)
    });
    for other in others.collect::<Vec<Server>>() {
        other.signal("KILL");
        other.ended();
    }
    until("other workers are there", || {
        let now = children(server.child().id());
        now.iter().filter(|worker| !before.contains(worker)).count() == PROCESSES
    });
    assert!(get(&mut connect(family.at()), "/small").ends_with("0123456789"));
    assert!(before.iter().any(|worker| !has_ended(*worker)));
    drop(slow);
    server.signal("TERM");
    let (status, errors) = server.ended();
    assert!(status.success(), "{status}: {errors}");
}

#[test]
fn idle_connections_outlive_a_supervisor_that_is_killed() {
    let family = Family::new();
    let first = family.start();
    let mut idle = family.idle();
    let workers = first.workers(PROCESSES);
    first.signal("KILL");
    // The workers have left their connections, and have ended.
    let (_, errors) = first.ended();
    assert_eq!(errors.matches("wait for the next one").count(), workers.len(), "{errors}");
    let second = family.start();
    for stream in &mut idle {
        assert!(get(stream, "/small").ends_with("0123456789"));
    }
    drop(idle);
    second.signal("TERM");
    assert!(second.ended().0.success());
}
