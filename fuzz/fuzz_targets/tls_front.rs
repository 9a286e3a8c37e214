//! Arbitrary bytes of a client of TLS, to a server on the loopback interface, compared with rustls.
//!
//! `cargo +nightly fuzz run tls_front`. The first byte chooses the versions of the client and how
//! the rest is used: as the first bytes of a connection, as changes of a client's first message (a
//! place and a byte, in three bytes), or as the bytes behind a handshake. Before a handshake the
//! server's answer must have the records and the alerts of rustls' answer to the same bytes. Every
//! answer is made of records, and the connection is gone when it ends.

#![no_main]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, mpsc};
use std::time::{Duration, Instant};

use futures_rustls::rustls::client::Resumption;
use futures_rustls::rustls::crypto::ring;
use futures_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use futures_rustls::rustls::version::{TLS12, TLS13};
use futures_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection,
    SupportedProtocolVersion,
};
use libfuzzer_sys::fuzz_target;
use superpoll_gateway::serve::Server;
use superpoll_gateway::telemetry::counters::EngineCounters;
use superpoll_gateway::{Address, Config};
use superpoll_rt::Runtime;

const VERSIONS: [&[&SupportedProtocolVersion]; 3] = [&[&TLS13, &TLS12], &[&TLS13], &[&TLS12]];
const PATIENCE: Duration = Duration::from_secs(20);

/// A server that never ends, rustls with the same parameters, and clients.
struct Front {
    port: u16,
    counters: Arc<EngineCounters>,
    model: Arc<ServerConfig>,
    clients: [Arc<ClientConfig>; 3],
}

static FRONT: LazyLock<Front> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\ntls = {{ certificate = {cert:?}, key = {key:?} }}\n\
         [[hosts]]\n[[hosts.routes]]\nfiles.root = {:?}\n",
        folder.path()
    );
    let provider = Arc::new(ring::default_provider());
    let certificate: CertificateDer<'static> = made.cert.der().clone();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let mut model = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    model.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let clients = VERSIONS.map(|versions| {
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        client.alpn_protocols = vec![b"http/1.1".to_vec()];
        // The model knows no sessions.
        client.resumption = Resumption::disabled();
        Arc::new(client)
    });
    let (told, heard) = mpsc::channel();
    std::thread::spawn(move || {
        let config = Config::parse("fuzz.toml", &text).unwrap();
        let runtime = Runtime::builder().build().unwrap();
        let server = Server::start(&runtime, &config, |_| {}).unwrap();
        let Some(Address::Tcp { port, .. }) = server.listening().next() else { unreachable!() };
        told.send((*port, server.engines()[0].clone())).unwrap();
        let _: Result<(), _> = runtime.try_block_on(std::future::pending());
        drop(folder);
    });
    let (port, counters) = heard.recv().unwrap();
    Front { port, counters, model: Arc::new(model), clients }
});

fuzz_target!(init: ignore_broken_pipes(), |bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let front = &*FRONT;
    let client = &front.clients[usize::from(first / 4) % VERSIONS.len()];
    let name = ServerName::try_from("localhost").unwrap();
    let mut session = ClientConnection::new(client.clone(), name).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", front.port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    match first % 4 {
        0 | 1 => {
            let mut sent = rest.to_vec();
            if first % 4 == 1 {
                sent.clear();
                session.write_tls(&mut sent).unwrap();
                for change in rest.chunks_exact(3) {
                    let at = usize::from(u16::from_be_bytes([change[0], change[1]]));
                    let at = at % sent.len();
                    sent[at] = change[2];
                }
            }
            let _ = stream.write_all(&sent);
            let _ = stream.shutdown(Shutdown::Write);
            let answer = records(&read(&mut stream));
            // The server has a key exchange, X25519MLKEM768, that the model does not have.
            if !sent.windows(2).any(|pair| pair == [0x11, 0xec]) {
                assert_eq!(answer, records(&front.expected(&sent)));
            }
        }
        _ => {
            while session.is_handshaking() {
                session.complete_io(&mut stream).unwrap();
            }
            let _ = stream.write_all(rest);
            let _ = stream.shutdown(Shutdown::Write);
            records(&read(&mut stream));
        }
    }
    drop(stream);
    front.until_gone();
});

fn ignore_broken_pipes() {
    // SAFETY: no other thread runs yet, and ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

impl Front {
    /// Returns the answer of rustls.
    fn expected(&self, mut bytes: &[u8]) -> Vec<u8> {
        let mut session = ServerConnection::new(self.model.clone()).unwrap();
        while !bytes.is_empty() {
            let count = session.read_tls(&mut bytes);
            if !matches!(count, Ok(1..)) || session.process_new_packets().is_err() {
                break;
            }
        }
        let mut answer = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut answer).unwrap();
        }
        answer
    }

    /// Waits until the server has no connection, and has ended all that it has accepted.
    fn until_gone(&self) {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
        let end = Instant::now() + PATIENCE;
        while self.counters.active.get() + self.counters.parked.get() > 0
            || self.counters.accepted.get() < count
        {
            assert!(Instant::now() < end, "the connection does not end");
            std::thread::yield_now();
        }
    }
}

/// Takes an answer apart: the kinds of its records, and the alerts.
fn records(mut bytes: &[u8]) -> Vec<(u8, Option<[u8; 2]>)> {
    let mut all = Vec::new();
    while let [kind @ 20..=23, 3, 1..=3, high, low, rest @ ..] = bytes {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        assert!(length <= rest.len(), "half a record: {bytes:?}");
        all.push((*kind, rest[..length].try_into().ok().filter(|_| *kind == 21)));
        bytes = &rest[length..];
    }
    assert!(bytes.is_empty(), "no record: {bytes:?}");
    all
}

/// Reads to the end, or to a reset: the server may close a connection before it has read
/// everything.
fn read(stream: &mut TcpStream) -> Vec<u8> {
    let (mut bytes, mut room) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut room) {
            Ok(0) => return bytes,
            Ok(count) => bytes.extend_from_slice(&room[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return bytes,
            Err(error) => panic!("{error} behind {bytes:?}"),
        }
    }
}
