//! Relays that decrypt what comes from clients, encrypt what goes to upstreams, or both.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use futures_rustls::rustls::version::{TLS12, TLS13};
use futures_rustls::rustls::{Connection, SupportedProtocolVersion};
use superpoll_rt::BackendKind;

use super::served::{Served, is_turned_away, serve};
use super::tls::{Ending, Issued, Peer, Seen};
use super::{accept, backends, pattern, upstream};

static OLD: [&SupportedProtocolVersion; 1] = [&TLS12];
static NEW: [&SupportedProtocolVersion; 1] = [&TLS13];

/// A relay between ends of which some are encrypted.
struct Stage {
    issued: Issued,
    listener: TcpListener,
    server: Served,
    /// Whether the client and the upstream speak TLS.
    sealed: [bool; 2],
    folder: tempfile::TempDir,
}

impl Stage {
    fn new(backend: BackendKind, sealed: [bool; 2], more: &str) -> Stage {
        let issued = Issued::new(&["a.test", "localhost"]);
        let folder = tempfile::tempdir().unwrap();
        let (listener, to) = upstream();
        let text = Stage::text("127.0.0.1:0", &to.to_string(), &issued, &folder, sealed, more);
        let server = serve(backend, &text);
        Stage { issued, listener, server, sealed, folder }
    }

    fn text(
        listen: &str,
        to: &str,
        issued: &Issued,
        folder: &tempfile::TempDir,
        [client, upstream]: [bool; 2],
        more: &str,
    ) -> String {
        let (own, ca) = issued.write(folder.path());
        let tls = if client { format!("tls = {{ {own} }}\n") } else { String::new() };
        let of_upstream = match upstream {
            true => format!("tls = {{ {ca}, server_name = \"a.test\" }}\n"),
            false => String::new(),
        };
        format!(
            "[[listeners]]\naddress = \"{listen}\"\n{tls}relay.upstream = \"one\"\n{more}\n\
             [upstreams.one]\n{of_upstream}servers = [{{ address = \"{to}\" }}]\n"
        )
    }

    fn client(&self, versions: &'static [&SupportedProtocolVersion]) -> Peer {
        let tls = self.sealed[0].then(|| self.issued.client(versions, "a.test", &[]));
        Peer::new(self.server.connect(), tls)
    }

    fn inside(&self, versions: &'static [&SupportedProtocolVersion]) -> Peer {
        let tls: Option<Connection> = self.sealed[1].then(|| self.issued.server(versions, &[]));
        Peer::new(accept(&self.listener), tls)
    }
}

impl Stage {
    /// As [`inside`](Stage::inside); `None` if the client has gone and no connection comes.
    fn inside_unless(
        &self,
        versions: &'static [&SupportedProtocolVersion],
        has_gone: impl Fn() -> bool,
    ) -> Option<Peer> {
        self.listener.set_nonblocking(true).unwrap();
        let mut looks = 0;
        let socket = loop {
            match self.listener.accept() {
                Ok((socket, _)) => break socket,
                Err(_) if looks == 1000 => return None,
                Err(_) => {
                    looks += u32::from(has_gone());
                    thread::sleep(Duration::from_millis(1));
                }
            }
        };
        let tls = self.sealed[1].then(|| self.issued.server(versions, &[]));
        Some(Peer::new(socket, tls))
    }
}

/// Numbers of a fixed sequence.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % most
    }
}

/// Whether an end has seen a beginning of the other end's bytes, and no end in order but behind all
/// of them.
fn check(seen: &Seen, sent: &[u8], ending: Ending, is_sealed: bool, all_is_well: bool, what: &str) {
    assert!(sent.starts_with(&seen.bytes), "{what}: other bytes");
    let ends_in_order = ending == Ending::Clean || (ending == Ending::Truncated && !is_sealed);
    if seen.is_clean {
        assert!(ends_in_order, "{what}: an end in order after {} bytes", seen.bytes.len());
        assert_eq!(seen.bytes.len(), sent.len(), "{what}: an end before the last byte");
    } else {
        assert!(!all_is_well, "{what}: no end in order after {} bytes", seen.bytes.len());
    }
}

fn at_random(backend: BackendKind, sealed: [bool; 2], rounds: usize, seed: u64) {
    let stage = Stage::new(backend, sealed, "");
    let mut numbers = Numbers(seed);
    for round in 0..rounds {
        let versions: &'static [&SupportedProtocolVersion] = [&OLD[..], &NEW[..]][numbers.below(2)];
        let lengths = [0, 1, 5000, 40_000, 400_000];
        let mut sent = || {
            let most = lengths[numbers.below(5)];
            pattern(numbers.below(most + 1), round as u64)
        };
        let (up, down) = (sent(), sent());
        let mut pieces = || (0..4).map(|_| 1 + numbers.below(20_000)).collect::<Vec<_>>();
        let (up_pieces, down_pieces) = (pieces(), pieces());
        let endings =
            [Ending::Clean, Ending::Clean, Ending::Clean, Ending::Truncated, Ending::Reset];
        let (up_ending, down_ending) = (endings[numbers.below(5)], endings[numbers.below(5)]);
        let what = format!(
            "{backend:?} {sealed:?} {round} of {seed}: {} {up_ending:?}, {} {down_ending:?}",
            up.len(),
            down.len()
        );
        let client = stage.client(versions);
        // The upstream is connected to once the client's handshake is over.
        let (at_client, at_upstream) = thread::scope(|scope| {
            let at_client = scope.spawn(|| client.run(&up, &up_pieces, up_ending));
            let inside = stage.inside_unless(versions, || at_client.is_finished());
            let at_upstream = inside.map(|inside| inside.run(&down, &down_pieces, down_ending));
            (at_client.join().unwrap(), at_upstream)
        });
        let Some(at_upstream) = at_upstream else {
            // The client was gone before its handshake was over.
            assert!(sealed[0] && up_ending == Ending::Reset, "{what}");
            continue;
        };
        let is_good = |ending, is_sealed: bool| {
            ending == Ending::Clean || (ending == Ending::Truncated && !is_sealed)
        };
        let all_is_well = is_good(up_ending, sealed[0]) && is_good(down_ending, sealed[1]);
        if down_ending != Ending::Reset {
            check(&at_upstream, &up, up_ending, sealed[0], all_is_well, &format!("{what}, up"));
        }
        // A reset may overtake the end of the upstream's handshake. Then there was no connection,
        // and the client is closed as after any that fails.
        let may_have_failed =
            sealed[1] && down_ending == Ending::Reset && at_client.bytes.is_empty();
        if up_ending != Ending::Reset && !may_have_failed {
            check(&at_client, &down, down_ending, sealed[1], all_is_well, &format!("{what}, down"));
        }
    }
    stage.server.end();
}

#[test]
fn every_byte_and_every_end_passes_encryption_as_it_is() {
    for backend in backends() {
        let rounds = if backend == BackendKind::Adaptive { 60 } else { 8 };
        for (seed, sealed) in [[true, false], [false, true], [true, true]].into_iter().enumerate() {
            at_random(backend, sealed, rounds, seed as u64 + 7);
        }
    }
}

#[test]
fn an_end_without_notice_is_a_reset_and_one_with_notice_leaves_the_other_way_open() {
    for (sealed, ending, is_clean) in [
        ([true, false], Ending::Truncated, false),
        ([true, false], Ending::Clean, true),
        ([true, false], Ending::Reset, false),
        ([false, true], Ending::Truncated, true),
        ([false, true], Ending::Clean, true),
        ([false, true], Ending::Reset, false),
        ([true, true], Ending::Truncated, false),
        ([true, true], Ending::Clean, true),
    ] {
        for versions in [&OLD, &NEW] {
            let stage = Stage::new(BackendKind::Epoll, sealed, "");
            let client = stage.client(versions);
            let up = thread::spawn(move || client.run(b"question", &[3], ending));
            let Some(inside) = stage.inside_unless(versions, || up.is_finished()) else {
                // The reset has overtaken the handshake.
                assert_eq!(ending, Ending::Reset, "{sealed:?}");
                continue;
            };
            let seen = inside.run(b"", &[1], Ending::Clean);
            assert_eq!(seen.is_clean, is_clean, "{sealed:?} {ending:?}");
            assert!(!is_clean || seen.bytes == b"question", "{sealed:?} {ending:?}");
            up.join().unwrap();
            stage.server.end();
        }
    }
}

#[test]
fn protocols_are_agreed_on_at_both_ends_as_the_configuration_says() {
    let issued = Issued::new(&["a.test"]);
    let folder = tempfile::tempdir().unwrap();
    let (own, ca) = issued.write(folder.path());
    let (listener, to) = upstream();
    let text = |front: &str, back: &str| {
        format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\ntls = {{ {own}{front} }}\nrelay.upstream = \"one\"\n\
             [upstreams.one]\nservers = [{{ address = \"{to}\" }}]\n\
             tls = {{ {ca}, server_name = \"a.test\"{back} }}\n"
        )
    };
    for (front, back, offered, agreed, inside_agreed) in [
        ("", "", &["h2", "http/1.1"][..], Ok(None), None),
        (", alpn = [\"postgresql\"]", "", &["postgresql"], Ok(Some("postgresql")), None),
        (", alpn = [\"postgresql\"]", "", &["h2"], Err(()), None),
        (
            ", alpn = [\"b\", \"a\"]",
            ", alpn = [\"x\", \"y\"]",
            &["a", "b"],
            Ok(Some("b")),
            Some("y"),
        ),
    ] {
        let server = serve(BackendKind::Epoll, &text(front, back));
        let connection = issued.client(&NEW, "a.test", offered);
        let mut client = Peer::new(server.connect(), Some(connection));
        let found = client.protocol();
        let expected = agreed.map(|name| name.map(|name| name.as_bytes().to_vec()));
        assert_eq!(found.map_err(drop), expected, "{front}");
        if agreed.is_ok() {
            let mut inside = Peer::new(accept(&listener), Some(issued.server(&NEW, &["y", "z"])));
            let expected = inside_agreed.map(|name: &str| name.as_bytes().to_vec());
            assert_eq!(inside.protocol().unwrap(), expected, "{back}");
        }
        drop(client);
        server.end();
    }
}

#[test]
fn clients_without_a_handshake_and_servers_without_a_right_certificate_are_given_up() {
    for backend in backends() {
        let more = "[timeouts]\nheader = \"100ms\"\nconnect = \"10s\"";
        let stage = Stage::new(backend, [true, false], more);
        // It says nothing, and then something else.
        assert!(is_turned_away(stage.server.connect()), "{backend:?}");
        let other = stage.server.connect();
        std::io::Write::write_all(&mut &other, b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let _ = std::io::Read::read_to_end(&mut &other, &mut answer);
        assert!(answer.len() <= 7, "{backend:?}: an alert at most: {answer:?}");
        stage.listener.set_nonblocking(true).unwrap();
        assert!(stage.listener.accept().is_err(), "{backend:?}: the upstream heard of it");
        stage.server.end();

        let stage = Stage::new(backend, [false, true], more);
        let wrong = Issued::new(&["a.test"]);
        let client = stage.client(&NEW);
        let inside = Peer::new(accept(&stage.listener), Some(wrong.server(&NEW, &[])));
        let inside = thread::spawn(move || { inside }.protocol());
        let seen = client.run(b"secret", &[6], Ending::Clean);
        assert!(seen.bytes.is_empty(), "{backend:?}");
        assert!(inside.join().unwrap().is_err(), "{backend:?}");
        let failure = stage.server.failures.recv_timeout(super::LIMIT).unwrap();
        assert!(failure.contains("certificate"), "{failure}");
        assert!(failure.ends_with("the client was closed"), "{failure}");
        stage.server.end();
    }
}

#[test]
fn a_header_of_the_proxy_protocol_goes_ahead_of_the_handshake() {
    let stage = Stage::new(BackendKind::Epoll, [true, true], "relay.proxy_protocol = \"v1\"");
    let socket = stage.server.connect();
    let (from, port) = (socket.local_addr().unwrap().port(), socket.peer_addr().unwrap().port());
    let client = Peer::new(socket, Some(stage.issued.client(&NEW, "a.test", &[])));
    let client = thread::spawn(move || client.run(b"question", &[8], Ending::Clean));
    let mut inside = accept(&stage.listener);
    let expected = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {from} {port}\r\n");
    assert_eq!(super::read(&mut inside, expected.len()), expected.as_bytes());
    let inside = Peer::new(inside, Some(stage.issued.server(&NEW, &[])));
    let seen = inside.run(b"answer", &[6], Ending::Clean);
    assert_eq!(seen, Seen { bytes: b"question".to_vec(), is_clean: true });
    let seen = client.join().unwrap();
    assert_eq!(seen, Seen { bytes: b"answer".to_vec(), is_clean: true });
    stage.server.end();
}

#[test]
fn bytes_that_come_with_a_header_or_are_sent_with_one_go_first() {
    const HEADER: &[u8] = b"PROXY TCP4 192.0.2.1 192.0.2.2 1111 2222\r\n";
    // From a plain client, whose first bytes come together with its header.
    let stage = Stage::new(BackendKind::Epoll, [false, true], "proxy_protocol = true");
    let bytes = pattern(100_000, 3);
    let client = stage.client(&NEW);
    let sent = [HEADER, &bytes].concat();
    let client = thread::spawn(move || client.run(&sent, &[50_000], Ending::Clean));
    let seen = stage.inside(&NEW).run(b"answer", &[6], Ending::Clean);
    assert!(seen.is_clean && seen.bytes == bytes);
    assert_eq!(client.join().unwrap(), Seen { bytes: b"answer".to_vec(), is_clean: true });
    stage.server.end();

    // To a plain upstream, which is a single address.
    let issued = Issued::new(&["a.test"]);
    let folder = tempfile::tempdir().unwrap();
    let (own, _) = issued.write(folder.path());
    let (listener, to) = upstream();
    let server = serve(
        BackendKind::Epoll,
        &format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\nproxy_protocol = true\ntls = {{ {own} }}\n\
             relay = {{ to = \"{to}\", proxy_protocol = \"v1\" }}\n"
        ),
    );
    let mut socket = server.connect();
    std::io::Write::write_all(&mut socket, HEADER).unwrap();
    let client = Peer::new(socket, Some(issued.client(&NEW, "a.test", &[])));
    let sent = bytes.clone();
    let client = thread::spawn(move || client.run(&sent, &[50_000], Ending::Clean));
    let inside = Peer::new(accept(&listener), None);
    let seen = inside.run(b"answer", &[6], Ending::Clean);
    assert!(seen.is_clean && seen.bytes == [HEADER, &bytes].concat());
    assert_eq!(client.join().unwrap(), Seen { bytes: b"answer".to_vec(), is_clean: true });
    server.end();
}

#[test]
fn an_idle_pair_ends_without_the_sign_of_an_end_in_order() {
    let stage = Stage::new(BackendKind::Epoll, [true, true], "relay.idle = \"100ms\"");
    let mut client = stage.client(&NEW);
    client.protocol().unwrap();
    let mut inside = stage.inside(&NEW);
    inside.protocol().unwrap();
    // Neither stops sending before it has seen the end.
    let at_client = thread::spawn(move || client.wait());
    assert_eq!(inside.wait(), Seen { bytes: Vec::new(), is_clean: false });
    assert_eq!(at_client.join().unwrap(), Seen { bytes: Vec::new(), is_clean: false });
    stage.server.end();
}

#[test]
fn a_listener_begins_and_ceases_to_encrypt_without_losing_a_connection() {
    let stage = Stage::new(BackendKind::Epoll, [false, false], "");
    let (mut old, mut old_inside) = (stage.server.connect(), accept(&stage.listener));
    let (listen, to) =
        (stage.server.addresses[0].to_string(), stage.listener.local_addr().unwrap().to_string());
    let text = Stage::text(&listen, &to, &stage.issued, &stage.folder, [true, true], "");
    stage.server.change(&text).unwrap();
    let sealed = Stage { sealed: [true, true], ..stage };
    let client = sealed.client(&NEW);
    let client = thread::spawn(move || client.run(b"question", &[8], Ending::Clean));
    let seen = sealed.inside(&NEW).run(b"answer", &[6], Ending::Clean);
    assert_eq!(seen, Seen { bytes: b"question".to_vec(), is_clean: true });
    assert_eq!(client.join().unwrap().bytes, b"answer");
    std::io::Write::write_all(&mut old, b"still here").unwrap();
    assert_eq!(super::read(&mut old_inside, 10), b"still here");
    drop((old, old_inside));
    sealed.server.end();
}
