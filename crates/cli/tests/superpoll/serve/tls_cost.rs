//! The processor time that a server needs for a handshake, of two builds of the command: an
//! experiment, not a test.
//!
//!     SUPERPOLL_BUILDS=BEFORE,AFTER cargo test -p superpoll-cli --test superpoll \
//!         serve::tls_cost -- --ignored --nocapture
//!
//! names the two programs. Their servers take turns on the first processor, and the client is on
//! another one. A connection is a handshake and its end; with a request there is an
//! answer of 10 bytes as well.

use std::io::{Read, Write};
use std::process::Command;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned,
    SupportedProtocolVersion,
};

use crate::stage::{Server, Site, connect, run};

const ROUNDS: usize = 121;
const CONNECTIONS: usize = 100;

const TEXT: &str = "
    [[listeners]]
    address = \"127.0.0.1:0\"
    tls = { certificate = \"cert.pem\", key = \"cert.key\" }
    [[hosts]]
    [[hosts.routes]]
    files = { root = \"www\" }";

/// Returns nanoseconds of all threads of a process.
fn processor_time(server: &Server) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.child().id())).unwrap();
    let time = |task: std::io::Result<std::fs::DirEntry>| -> u64 {
        let text = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    };
    tasks.map(time).sum()
}

#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    version: &'static SupportedProtocolVersion,
    is_resumed: bool,
    has_request: bool,
}

/// Makes a connection.
fn one(server: &Server, config: &Arc<ClientConfig>, kind: Kind) -> HandshakeKind {
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(config.clone(), name).unwrap();
    let socket = connect(server.at(0));
    socket.set_nodelay(true).unwrap();
    let mut stream = StreamOwned::new(client, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).unwrap();
    }
    let request: &[u8] = b"GET /small HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    if kind.has_request {
        stream.write_all(request).unwrap();
    }
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    // To the end: tickets, and the answer.
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(answer.ends_with(b"0123456789"), kind.has_request);
    stream.conn.handshake_kind().unwrap()
}

/// Returns the microseconds of processor time for a connection.
fn cost(server: &Server, config: &Arc<ClientConfig>, kind: Kind) -> f64 {
    one(server, config, kind);
    let before = processor_time(server);
    for _ in 0..CONNECTIONS {
        let found = one(server, config, kind);
        assert_eq!(found == HandshakeKind::Resumed, kind.is_resumed, "{}", kind.name);
    }
    (processor_time(server) - before) as f64 / 1000.0 / CONNECTIONS as f64
}

/// Returns the value below which a part of the values is.
fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(part * (values.len() - 1) as f64).round() as usize]
}

#[test]
#[ignore = "an experiment, for release builds"]
fn handshakes_of_two_builds() {
    let Ok(builds) = std::env::var("SUPERPOLL_BUILDS") else {
        println!("skipped: SUPERPOLL_BUILDS names no two programs");
        return;
    };
    let builds: Vec<&str> = builds.split(',').collect();
    let site = Site::new();
    site.certificate();
    let path = site.write("server.toml", TEXT);
    let servers: Vec<Server> = builds
        .iter()
        .map(|build| {
            let mut command = Command::new("taskset");
            command.args(["-c", "0", build, "serve", "-c"]).arg(&path);
            Server::of(command, 1)
        })
        .collect();
    run(Command::new("taskset").args(["-a", "-c", "-p", "1", &std::process::id().to_string()]));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(site.path("cert.pem")).unwrap()).unwrap();
    println!(
        "connection: us of {}, lowest decile; ratio of these; median of the",
        builds.join(", of ")
    );
    println!("ratios of rounds, with their middle 80 %");
    let kinds =
        [(&TLS13, "TLS 1.3"), (&TLS12, "TLS 1.2")].into_iter().flat_map(|(version, name)| {
            let forms = [(false, false), (true, false), (false, true), (true, true)];
            forms.map(|(is_resumed, has_request)| Kind { name, version, is_resumed, has_request })
        });
    for kind in kinds {
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[kind.version])
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if !kind.is_resumed {
            config.resumption = rustls::client::Resumption::disabled();
        }
        // Each server has tickets of its own.
        let configs: Vec<Arc<ClientConfig>> = servers
            .iter()
            .map(|_| {
                let mut config = config.clone();
                if kind.is_resumed {
                    config.resumption = rustls::client::Resumption::in_memory_sessions(8);
                }
                Arc::new(config)
            })
            .collect();
        let mut costs = [const { Vec::new() }; 2];
        for (server, config) in servers.iter().zip(&configs) {
            one(server, config, kind);
        }
        for round in 0..ROUNDS {
            for turn in 0..2 {
                let index = (round + turn) % 2;
                costs[index].push(cost(&servers[index], &configs[index], kind));
            }
        }
        let [mut before, mut after] = costs;
        let mut ratios: Vec<f64> = after.iter().zip(&before).map(|(a, b)| a / b).collect();
        let (before, after) = (quantile(&mut before, 0.1), quantile(&mut after, 0.1));
        let [low, median, high] = [0.1, 0.5, 0.9].map(|part| quantile(&mut ratios, part));
        println!(
            "{}, {}, {}: {before:.1}, {after:.1}; {:.3}; {median:.3} ({low:.3} to {high:.3})",
            kind.name,
            if kind.is_resumed { "resumed" } else { "full" },
            if kind.has_request { "with a request" } else { "alone" },
            after / before
        );
    }
    servers.into_iter().for_each(Server::finish);
}
