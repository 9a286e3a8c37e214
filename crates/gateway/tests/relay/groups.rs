//! Relays to the servers of an upstream, and to names.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use superpoll_gateway::Address;
use superpoll_rt::BackendKind;

use super::served::{Served, is_turned_away, says, serve};
use super::{LIMIT, accept, backends, read, rest, upstream, wait, wait_for};

fn text(listen: &str, servers: &[&Address], more: &str) -> String {
    let servers: Vec<String> =
        servers.iter().map(|address| format!("{{ address = \"{address}\" }}")).collect();
    format!(
        "[[listeners]]\naddress = \"{listen}\"\nrelay.upstream = \"db\"\n[upstreams.db]\n\
         servers = [{}]\n{more}",
        servers.join(", ")
    )
}

/// An address that refuses connections. Its port stays taken.
pub(super) fn refuses() -> (socket2::Socket, Address) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address.to_string().parse().unwrap())
}

/// Returns the letters of the servers that some connections get to.
fn letters(server: &Served, count: usize) -> String {
    let letter = |_| char::from(rest(&mut server.connect())[0]);
    (0..count).map(letter).collect()
}

#[test]
fn servers_take_turns_by_their_weight() {
    let (a, b) = (says(b'a'), says(b'b'));
    for backend in backends() {
        // One engine's turns are exact; a server of the tests has two.
        let server = serve(backend, &text("127.0.0.1:0", &[&a, &b], ""));
        let found = letters(&server, 40);
        assert!(found.contains('a') && found.contains('b'), "{backend:?}: {found}");
        let heavy = format!(
            "[[listeners]]\naddress = \"{}\"\nrelay.upstream = \"db\"\n[upstreams.db]\nservers = [\
             {{ address = \"{a}\", weight = 9 }}, {{ address = \"{b}\" }}]\n",
            server.addresses[0]
        );
        server.change(&heavy).unwrap();
        let found = letters(&server, 40);
        let of_a = found.matches('a').count();
        // Of each engine's turns at most one of ten is that of b, and one for the beginning.
        assert!((34..40).contains(&of_a), "{backend:?}: {found}");
        server.end();
    }
}

#[test]
fn one_client_has_one_server_by_its_hash() {
    let (a, b) = (says(b'a'), says(b'b'));
    let server = serve(BackendKind::Epoll, &text("127.0.0.1:0", &[&a, &b], "balance = \"hash\"\n"));
    let found = letters(&server, 20);
    assert!(["a".repeat(20), "b".repeat(20)].contains(&found), "{found}");
    // Addresses that a header tells count as those of clients.
    let listen = server.addresses[0].to_string();
    let more = "balance = \"hash\"\n".to_owned();
    let proxied = text(&listen, &[&a, &b], &more).replacen(
        "relay.upstream",
        "proxy_protocol = true\nrelay.upstream",
        1,
    );
    server.change(&proxied).unwrap();
    let of = |client: u8| {
        let mut stream = server.connect();
        let header = format!("PROXY TCP4 192.0.2.{client} 192.0.2.1 1111 2222\r\n");
        stream.write_all(header.as_bytes()).unwrap();
        rest(&mut stream)
    };
    let all: Vec<_> = (0..30).map(of).collect();
    assert!(all.contains(&b"a".to_vec()) && all.contains(&b"b".to_vec()), "{all:?}");
    assert_eq!((0..30).map(of).collect::<Vec<_>>(), all);
    server.end();
}

#[test]
fn the_server_with_the_fewest_connections_gets_the_next_one() {
    for backend in backends() {
        let ((one, a), (other, b)) = (upstream(), upstream());
        let more = "balance = \"least-connections\"\n";
        let server = serve(backend, &text("127.0.0.1:0", &[&a, &b], more));
        // Connections that stay: as many to each.
        let mut clients = Vec::new();
        let mut inside = [Vec::new(), Vec::new()];
        for listener in [&one, &other] {
            listener.set_nonblocking(true).unwrap();
        }
        let mut arrive = |clients: &mut Vec<TcpStream>| {
            clients.push(server.connect());
            let (index, stream) = wait_for(|| {
                let mut listeners = [&one, &other].into_iter().enumerate();
                listeners.find_map(|(index, listener)| Some((index, listener.accept().ok()?.0)))
            });
            inside[index].push(stream);
            [inside[0].len(), inside[1].len()]
        };
        for round in 1..=5 {
            arrive(&mut clients);
            assert_eq!(arrive(&mut clients), [round, round], "{backend:?}");
        }
        drop((clients, inside));
        server.end();
    }
}

#[test]
fn a_server_that_refuses_is_passed_over_and_nothing_is_lost() {
    for backend in backends() {
        let (_socket, refusing) = refuses();
        let (listener, good) = upstream();
        let more = "proxy_protocol = \"v1\"\n";
        let server = serve(backend, &text("127.0.0.1:0", &[&refusing, &good], more));
        for number in 0..8_u8 {
            let mut client = server.connect();
            client.write_all(&[number; 3000]).unwrap();
            let mut inside = accept(&listener);
            let mut header = Vec::new();
            while !header.ends_with(b"\r\n") {
                header.extend(read(&mut inside, 1));
            }
            assert!(header.starts_with(b"PROXY TCP4 127.0.0.1 127.0.0.1 "), "{backend:?}");
            assert_eq!(read(&mut inside, 3000), [number; 3000], "{backend:?}");
            inside.write_all(b"answer").unwrap();
            assert_eq!(read(&mut client, 6), b"answer", "{backend:?}");
        }
        let failures: Vec<String> = server.failures.try_iter().collect();
        let refused = format!("connecting to {refusing} of db: Connection refused");
        assert!(failures[0].starts_with(&refused), "{failures:?}");
        assert!(failures[0].ends_with("the next server is tried"), "{failures:?}");
        // Three failures in a row leave it out.
        let down = format!("the server {refusing} of db is down: 3 requests in a row");
        assert!(failures.iter().any(|text| text.starts_with(&down)), "{failures:?}");
        server.end();
    }
}

/// It answers for its connection, however short that was.
#[test]
fn a_server_that_resets_at_once_was_there() {
    for backend in backends() {
        let (socket, address) = refuses();
        let server = serve(backend, &text("127.0.0.1:0", &[&address], ""));
        // The client is closed when its fate is known.
        let refused = |count: usize| {
            for _ in 0..count {
                rest(&mut server.connect());
            }
        };
        refused(2);
        socket.listen(8).unwrap();
        let mut client = server.connect();
        let (inside, _) = socket.accept().unwrap();
        inside.set_linger(Some(Duration::ZERO)).unwrap();
        drop(inside);
        assert!(client.read(&mut [0]).is_err(), "{backend:?}: the client is reset");
        socket.shutdown(std::net::Shutdown::Both).unwrap();
        refused(2);
        let failures: Vec<String> = server.failures.try_iter().collect();
        assert!(!failures.iter().any(|text| text.contains("is down")), "{failures:?}");
        refused(1);
        let failure = wait_for(|| server.failures.try_iter().find(|it| it.contains("is down")));
        assert!(failure.contains("3 requests in a row"), "{failure}");
        server.end();
    }
}

#[test]
fn servers_that_accept_nothing_are_found_by_checks() {
    let (_socket, refusing) = refuses();
    let (a, count) = counting(b'a');
    let more = "health = { kind = \"connect\", interval = \"20ms\", rise = 1, fall = 1 }\n";
    let server = serve(BackendKind::Epoll, &text("127.0.0.1:0", &[&refusing, &a], more));
    let down = server.failures.recv_timeout(LIMIT).unwrap();
    assert!(down.contains(&format!("the server {refusing} of db is down: 1 checks")), "{down}");
    // The good one is checked as well.
    let before = count.load(Ordering::Relaxed);
    wait(|| count.load(Ordering::Relaxed) >= before + 3);
    assert_eq!(letters(&server, 10), "a".repeat(10));
    // No server is up.
    let (listen, _) = (server.addresses[0].to_string(), drop(_socket));
    let (_other, also_refusing) = refuses();
    server.change(&text(&listen, &[&also_refusing], more)).unwrap();
    wait(|| {
        assert!(is_turned_away(server.connect()));
        let failure = server.failures.recv_timeout(LIMIT).unwrap();
        failure.ends_with("no server is up; the client was closed")
    });
    // The group that is gone is checked no more. The upstream may still have earlier checks to
    // accept.
    let mut before = count.load(Ordering::Relaxed);
    wait(|| {
        thread::sleep(Duration::from_millis(200));
        let now = count.load(Ordering::Relaxed);
        std::mem::replace(&mut before, now) == now
    });
    server.end();
}

/// An upstream that counts its connections and answers each with a letter.
fn counting(letter: u8) -> (Address, Arc<AtomicU32>) {
    let (listener, address) = upstream();
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            counted.fetch_add(1, Ordering::Relaxed);
            // A check is gone by now.
            let _ = stream.and_then(|mut stream| stream.write_all(&[letter]));
        }
    });
    (address, count)
}

/// A listener of both families on one port, so that it does not matter what `localhost` means
/// first.
fn named() -> (Vec<TcpListener>, Address) {
    let first = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = first.local_addr().unwrap().port();
    let mut all = vec![first];
    all.extend(TcpListener::bind(("::1", port)));
    (all, format!("localhost:{port}").parse().unwrap())
}

#[test]
fn a_name_is_looked_up_by_connections() {
    for backend in backends() {
        let (listeners, to) = named();
        for listener in &listeners {
            listener.set_nonblocking(true).unwrap();
        }
        let text =
            |to: &str| format!("[[listeners]]\naddress = \"127.0.0.1:0\"\nrelay.to = \"{to}\"\n");
        let server = serve(backend, &text(&to.to_string()));
        for number in 0..20_u8 {
            let mut client = server.connect();
            client.write_all(&[number; 100]).unwrap();
            let (inside, _) =
                wait_for(|| listeners.iter().find_map(|listener| listener.accept().ok()));
            inside.set_nonblocking(false).unwrap();
            assert_eq!(read(&mut &inside, 100), [number; 100], "{backend:?}");
            if number == 10 {
                // The addresses are too old by now.
                thread::sleep(Duration::from_millis(1100));
            }
        }
        assert!(server.failures.try_recv().is_err(), "{backend:?}");
        server.end();
        // Many that come at once, before the name was ever looked up.
        let server = serve(backend, &text(&to.to_string()));
        let mut clients: Vec<TcpStream> = (0..30).map(|_| server.connect()).collect();
        for _ in &clients {
            let (mut inside, _) =
                wait_for(|| listeners.iter().find_map(|listener| listener.accept().ok()));
            inside.write_all(b"a").unwrap();
        }
        assert!(clients.iter_mut().all(|client| rest(client) == b"a"), "{backend:?}");
        drop(clients);
        server.end();
        // A name that nothing has is no reason not to start.
        let server = serve(backend, &text("no.such.name.invalid:1"));
        assert!(is_turned_away(server.connect()), "{backend:?}");
        let failure = server.failures.recv_timeout(LIMIT).unwrap();
        assert!(failure.starts_with("connecting to no.such.name.invalid:1: "), "{failure}");
        let clients: Vec<TcpStream> = (0..30).map(|_| server.connect()).collect();
        assert!(clients.into_iter().all(is_turned_away), "{backend:?}");
        server.end();
    }
}

/// Returns the counters of a server whose second listener is HTTP.
fn metrics(server: &Served) -> String {
    let mut client = TcpStream::connect(server.addresses[1].to_string()).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    client.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    String::from_utf8(rest(&mut client)).unwrap()
}

#[test]
fn relays_and_their_servers_have_metrics() {
    let (_socket, refusing) = refuses();
    let (listener, good) = upstream();
    let http = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[metrics]\npublic = true\n\
                [[hosts]]\nroutes = [{ redirect.to = \"/a\" }]\n";
    let server = serve(BackendKind::Epoll, &text("127.0.0.1:0", &[&refusing, &good], http));
    let (mut client, mut inside) = (server.connect(), accept(&listener));
    client.write_all(b"question").unwrap();
    assert_eq!(read(&mut inside, 8), b"question");
    let (second, also_inside) = (server.connect(), accept(&listener));
    let listen = server.addresses[0].to_string();
    let of =
        |name: &str, labels: &str, value: u32| format!("superpoll_{name}{{{labels}}} {value}\n");
    let (relay, member) =
        (format!("listener=\"{listen}\""), format!("upstream=\"db\",server=\"{good}\""));
    for expected in [
        of("relay_connections_total", &relay, 2),
        of("relay_connections_active", &relay, 2),
        of("relay_connections_broken_total", &relay, 0),
        of("relay_bytes_to_servers_total", &relay, 8),
        of("upstream_up", &member, 1),
        of("upstream_requests_total", &member, 2),
        of("upstream_requests_active", &member, 2),
        of("upstream_connections_opened_total", &member, 2),
    ] {
        // The engine that answers may not be the one that counts.
        wait(|| metrics(&server).contains(&expected));
    }
    drop((client, inside, second, also_inside));
    let idle = of("upstream_requests_active", &member, 0);
    wait(|| metrics(&server).contains(&idle));
    server.end();
}

#[test]
fn a_connection_outlives_its_upstream_and_ends_with_its_server() {
    for backend in backends() {
        let (listener, to) = upstream();
        let other = says(b'b');
        let server = serve(backend, &text("127.0.0.1:0", &[&to], ""));
        let listen = server.addresses[0].to_string();
        let (mut client, mut inside) = (server.connect(), accept(&listener));
        server.change(&text(&listen, &[&other], "")).unwrap();
        wait(|| rest(&mut server.connect()) == b"b");
        client.write_all(b"still here").unwrap();
        assert_eq!(read(&mut inside, 10), b"still here", "{backend:?}");
        drop(inside);
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "{backend:?}");
        drop(client);
        server.end();
    }
}
