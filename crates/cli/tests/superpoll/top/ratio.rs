//! The ratio of active connections as a user sees it, compared with what the clients did: a proxy,
//! and a server of several processes with keepers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;

use serde_json::Value;

use super::read_snapshot;
use crate::keep::crowd::{Received, Subscriber, publish};
use crate::stage::{Running, Server, Site, connect, free_port, get, response, run, signal, until};
use crate::{proxy, superpoll};

/// A server that sends all bytes back, in the case of HTTP after it has changed protocols.
fn echo(is_http: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // It ends with the test's process.
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                if is_http {
                    response(&mut stream);
                    let head = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                                upgrade: websocket\r\n\r\n";
                    stream.write_all(head.as_bytes()).unwrap();
                }
                let mut room = [0; 100];
                while let Ok(count @ 1..) = stream.read(&mut room) {
                    if stream.write_all(&room[..count]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn exchange(stream: &mut TcpStream) {
    stream.write_all(b"abc").unwrap();
    stream.read_exact(&mut [0; 3]).unwrap();
}

fn sum(snapshot: &Value, figure: &str) -> u64 {
    // Absent before a second has ended.
    snapshot["active_ratio"][figure].as_u64().unwrap_or(0)
}

/// Waits until all processes have ended the current second, and one in which no connection was
/// active and there were this many.
fn rest(stats: &Path, connections: usize) -> Value {
    let mut snapshot = read_snapshot(stats);
    let enough = sum(&snapshot, "connection_seconds") + 3 * connections as u64;
    until("a second without activity", || {
        snapshot = read_snapshot(stats);
        let last = &snapshot["active_ratio"]["last_second"];
        let is_at_rest = last["connections"] == connections as f64 && last["active"] == 0.0;
        is_at_rest && sum(&snapshot, "connection_seconds") >= enough
    });
    snapshot
}

/// Fails unless this many connections were active between two snapshots.
fn check(before: &Value, after: &Value, (expected, all): (usize, usize)) {
    let active = sum(after, "active_seconds") - sum(before, "active_seconds");
    // A second may end while a connection is in use, which then has two. Clients take turns, so
    // this happens to one connection at most.
    let seconds =
        (sum(after, "connection_seconds") - sum(before, "connection_seconds")).div_ceil(all as u64);
    let most = expected as u64 + (expected as u64 / 50).max(seconds);
    let ratio = &after["active_ratio"];
    assert!((expected as u64..=most).contains(&active), "{active}, expected {expected}: {ratio}");
}

#[test]
fn of_the_pairs_of_a_proxy() {
    let site = Site::new();
    let stats = site.path("stats");
    let (to, at) = (echo(false).to_string(), stats.to_str().unwrap());
    let arguments = ["--listen", "127.0.0.1:0", "--workers", "2", "--to", &to, "--stats", at];
    let (child, address) = proxy::start(&arguments);
    let mut child = Running(child);
    let address: SocketAddr = address.parse().unwrap();
    let mut clients: Vec<TcpStream> = (0..20).map(|_| connect(address)).collect();
    clients.iter_mut().for_each(exchange);
    let before = rest(&stats, 20);
    for clients in clients.chunks_mut(5) {
        clients.iter_mut().for_each(exchange);
        rest(&stats, 20);
    }
    let after = rest(&stats, 20);
    check(&before, &after, (20, 20));
    let told = run(superpoll().arg("status").arg(&stats));
    assert!(told.contains("ratio 0.00: 0 of 20 active"), "{told}");
    drop(clients);
    rest(&stats, 0);
    signal(&child.0, "TERM");
    assert!(child.0.wait().unwrap().success());
}

#[test]
fn of_several_processes_with_keepers_websockets_tunnels_and_relays() {
    const OF_EACH: usize = 20;
    const ALL: usize = 5 * OF_EACH;
    let site = Site::new();
    let (port, relay) = (free_port(), free_port());
    let text = format!(
        "[server]
        processes = 2
        workers = 1
        stats = \"stats\"
        [[listeners]]
        address = \"127.0.0.1:{port}\"
        [[listeners]]
        address = \"127.0.0.1:{relay}\"
        relay = {{ to = \"{}\" }}
        [upstreams.echo]
        servers = [{{ address = \"{}\" }}]
        [[hosts]]
        [[hosts.routes]]
        files = {{ root = \"www\" }}
        [[hosts.routes]]
        path = \"/echo\"
        proxy = {{ upstream = \"echo\" }}
        [[hosts.routes]]
        path = \"/news\"
        channel = {{ publish = \"anyone\", history = 10, poll = \"1h\" }}
        [timeouts]
        park = \"50ms\"
        idle = \"1h\"",
        echo(false),
        echo(true)
    );
    let mut command = superpoll();
    command.args(["serve", "-c"]).arg(site.write("server.toml", &text));
    command.arg("--keeper").arg(site.path("keeper"));
    let server = Server::of(command, 1);
    server.workers(2);
    let (stats, at) = (site.path("stats"), SocketAddr::from(([127, 0, 0, 1], port)));

    let visit = |stream: &mut TcpStream| {
        assert!(get(stream, "/small").ends_with("0123456789"));
    };
    let tunnel = |_| {
        let mut stream = connect(at);
        let head = "GET /echo HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                    sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        assert!(response(&mut stream).starts_with("HTTP/1.1 101 "));
        stream
    };
    let subscriber = |number| match number % 2 {
        0 => Subscriber::new(at),
        _ => Subscriber::events(at),
    };
    let mut visitors: Vec<TcpStream> = (0..OF_EACH).map(|_| connect(at)).collect();
    visitors.iter_mut().for_each(visit);
    let mut tunnels: Vec<TcpStream> = (0..OF_EACH).map(tunnel).collect();
    let mut relayed: Vec<TcpStream> =
        (0..OF_EACH).map(|_| connect(([127, 0, 0, 1], relay).into())).collect();
    tunnels.iter_mut().chain(&mut relayed).for_each(exchange);
    let mut subscribers: Vec<Subscriber> = (0..2 * OF_EACH).map(subscriber).collect();
    until("idle connections are left with the keepers", || {
        let snapshot = read_snapshot(&stats);
        let engines = snapshot["engines"].as_array().unwrap();
        let away = engines.iter().map(|engine| engine["connections"]["away"].as_u64().unwrap());
        away.sum::<u64>() >= 3 * OF_EACH as u64
    });

    let before = rest(&stats, ALL);
    for round in 0..4 {
        // A quarter of those that clients use, and all subscribers of the channel.
        let part = round * OF_EACH / 4..(round + 1) * OF_EACH / 4;
        visitors[part.clone()].iter_mut().for_each(visit);
        tunnels[part.clone()].iter_mut().chain(&mut relayed[part]).for_each(exchange);
        let message = format!("message {round}");
        assert!(publish(at, &message));
        for subscriber in &mut subscribers {
            while subscriber.receive() != Some(Received::Message(message.clone())) {}
        }
        rest(&stats, ALL);
    }
    let after = rest(&stats, ALL);
    // Those of the publisher count, too.
    check(&before, &after, (3 * OF_EACH + 4 * (2 * OF_EACH + 1), ALL));
    drop((visitors, tunnels, relayed, subscribers));
    rest(&stats, 0);
    server.finish_with(&["started a keeper at"; 2]);
}
