//! Relays that choose the upstream by the server name that clients ask for.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::thread;

use futures_rustls::rustls::SupportedProtocolVersion;
use futures_rustls::rustls::version::{TLS12, TLS13};
use superpoll_rt::BackendKind;

use super::served::{is_turned_away, says, serve};
use super::tls::{Ending, Issued, Peer, Seen};
use super::{LIMIT, accept, backends, pattern, read, upstream};

static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];

fn address(listener: &TcpListener) -> String {
    listener.local_addr().unwrap().to_string()
}

#[test]
fn the_name_chooses_the_upstream_which_gets_every_byte() {
    let issued = Issued::new(&["a.test", "x.b.test", "other.test"]);
    let [(a, _), (b, _), (rest_of, _)] = [upstream(), upstream(), upstream()];
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[listeners.relay]\nto = \"{}\"\n\
         routes = [{{ server_names = [\"A.test\"], upstream = \"a\" }}, \
         {{ server_names = [\"*.b.test\"], to = \"{}\" }}]\n\
         [upstreams.a]\nservers = [{{ address = \"{}\" }}]\n",
        address(&rest_of),
        address(&b),
        address(&a)
    );
    for backend in backends() {
        let server = serve(backend, &text);
        for (name, listener) in
            [("a.test", &a), ("x.b.test", &b), ("other.test", &rest_of), ("127.0.0.1", &rest_of)]
        {
            // A certificate for an address is not what this is about.
            let issued_here = Issued::new(&[name]);
            let issued = if name == "127.0.0.1" { &issued_here } else { &issued };
            let (up, down) = (pattern(60_000, 1), pattern(200_000, 2));
            let client = Peer::new(server.connect(), Some(issued.client(&BOTH, name, &["h2"])));
            let (at_client, at_upstream) = thread::scope(|scope| {
                let at_client = scope.spawn(|| client.run(&up, &[9000], Ending::Clean));
                let inside = Peer::new(accept(listener), Some(issued.server(&BOTH, &["h2"])));
                let at_upstream = inside.run(&down, &[9000], Ending::Clean);
                (at_client.join().unwrap(), at_upstream)
            });
            assert_eq!(at_client, Seen { bytes: down, is_clean: true }, "{backend:?} {name}");
            assert_eq!(at_upstream, Seen { bytes: up, is_clean: true }, "{backend:?} {name}");
        }
        // Whatever is no TLS goes on as it is.
        let mut client = server.connect();
        client.write_all(b"SSH-2.0-x\r\n").unwrap();
        assert_eq!(read(&mut accept(&rest_of), 11), b"SSH-2.0-x\r\n", "{backend:?}");
        drop(client);
        server.end();
    }
}

/// Returns the first bytes of a client that asks for a name.
fn hello(issued: &Issued, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    issued.client(&BOTH, name, &[]).write_tls(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_first_message_may_come_in_any_pieces_and_behind_a_header() {
    let issued = Issued::new(&["a.test"]);
    let (a, _) = upstream();
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\nproxy_protocol = true\n[listeners.relay]\n\
         proxy_protocol = \"v1\"\nroutes = [{{ server_names = [\"a.test\"], to = \"{}\" }}]\n",
        address(&a)
    );
    const HEADER: &[u8] = b"PROXY TCP4 192.0.2.1 192.0.2.2 1111 2222\r\n";
    for backend in backends() {
        let server = serve(backend, &text);
        for piece in [1, 7, 100, 100_000] {
            let bytes = [HEADER, &hello(&issued, "a.test"), b"and more of it"].concat();
            let mut client = server.connect();
            client.set_nodelay(true).unwrap();
            for part in bytes.chunks(piece) {
                client.write_all(part).unwrap();
            }
            let mut inside = accept(&a);
            assert!(read(&mut inside, bytes.len()) == bytes, "{backend:?} {piece}");
            inside.write_all(b"answer").unwrap();
            assert_eq!(read(&mut client, 6), b"answer", "{backend:?} {piece}");
        }
        server.end();
    }
}

#[test]
fn servers_behind_a_route_are_told_the_client() {
    let issued = Issued::new(&["a.test"]);
    let (listener, _) = upstream();
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[listeners.relay]\n\
         routes = [{{ server_names = [\"a.test\"], upstream = \"a\" }}]\n\
         [upstreams.a]\nproxy_protocol = \"v1\"\nservers = [{{ address = \"{}\" }}]\n",
        address(&listener)
    );
    for backend in backends() {
        let server = serve(backend, &text);
        let mut client = server.connect();
        let (from, to) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let greeting = hello(&issued, "a.test");
        client.write_all(&greeting).unwrap();
        let mut inside = accept(&listener);
        let header = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", from.port(), to.port());
        let expected = [header.as_bytes(), &greeting].concat();
        assert_eq!(read(&mut inside, expected.len()), expected, "{backend:?}");
        drop((client, inside));
        server.end();
    }
}

#[test]
fn clients_that_no_route_is_for_and_endless_messages_are_closed() {
    let issued = Issued::new(&["a.test"]);
    let (a, to) = upstream();
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[listeners.relay]\n\
         routes = [{{ server_names = [\"a.test\"], to = \"{to}\" }}]\n",
    );
    let impatient = format!("{text}[timeouts]\nheader = \"300ms\"\n");
    for backend in backends() {
        let server = serve(backend, &impatient);
        for bytes in [
            hello(&issued, "b.test"),
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            // Half a message, and nothing.
            hello(&issued, "a.test")[..20].to_vec(),
            Vec::new(),
        ] {
            let mut client = server.connect();
            client.write_all(&bytes).unwrap();
            assert!(is_turned_away(client), "{backend:?} {bytes:?}");
        }
        // A message of 64 KiB and more, in records of 1 KiB.
        let mut client = server.connect();
        client.set_write_timeout(Some(LIMIT)).unwrap();
        let write = |number: usize| {
            let mut record = vec![22, 3, 1, 4, 0];
            let start: &[u8] = if number == 0 { &[1, 1, 0, 0] } else { &[] };
            record.extend_from_slice(start);
            record.resize(5 + 1024, 0);
            client.write_all(&record).err()
        };
        let error = (0..65_536).find_map(write).expect("64 MiB are too much");
        assert_ne!(error.kind(), ErrorKind::WouldBlock, "{backend:?}: they are not refused");
        assert!(!client.read(&mut [0]).is_ok_and(|count| count > 0), "{backend:?}");
        server.end();
        let server = serve(backend, &text);
        let mut client = server.connect();
        let bytes = hello(&issued, "a.test");
        client.write_all(&bytes).unwrap();
        // None of the others has come so far.
        assert!(read(&mut accept(&a), bytes.len()) == bytes, "{backend:?}");
        drop(client);
        server.end();
    }
}

#[test]
fn a_relay_that_decrypts_chooses_by_the_name_as_well() {
    let issued = Issued::new(&["a.test", "b.test"]);
    let folder = tempfile::tempdir().unwrap();
    let (own, _) = issued.write(folder.path());
    let (a, b) = (says(b'a'), says(b'b'));
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\ntls = {{ {own} }}\n[listeners.relay]\nto = \"{b}\"\n\
         routes = [{{ server_names = [\"a.test\"], to = \"{a}\" }}]\n"
    );
    let server = serve(BackendKind::Epoll, &text);
    for (name, letter) in [("a.test", b"a"), ("b.test", b"b")] {
        let client = Peer::new(server.connect(), Some(issued.client(&BOTH, name, &[])));
        let seen = client.run(b"", &[1], Ending::Clean);
        assert_eq!(seen, Seen { bytes: letter.to_vec(), is_clean: true }, "{name}");
    }
    server.end();
}
