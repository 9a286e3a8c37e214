//! Clients that send garbage where a handshake is due, or behind it.
//!
//! rustls is the model. Its answer to the same bytes, without a socket and without the records that
//! we cut for it, is the answer that a client must get: the same kinds of records and the same
//! alert. Every answer is made of records of TLS, so no plaintext is among them, and behind each
//! test the server has none of the connections any more.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use futures_rustls::rustls::client::Resumption;
use futures_rustls::rustls::crypto::ring;
use futures_rustls::rustls::pki_types::pem::PemObject;
use futures_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use futures_rustls::rustls::version::{TLS12, TLS13};
use futures_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection,
    SupportedProtocolVersion,
};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
use superpoll_gateway::Address;
use superpoll_rt::BackendKind;

use crate::stage::{PATIENCE, Stage};

/// The versions of TLS of the clients.
const VERSIONS: [&[&SupportedProtocolVersion]; 3] = [&[&TLS13, &TLS12], &[&TLS13], &[&TLS12]];

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

/// A server, and rustls with the same parameters.
struct Front {
    stage: Stage,
    model: Arc<ServerConfig>,
    /// That of each client, by its versions.
    clients: [Arc<ClientConfig>; 3],
    _folder: tempfile::TempDir,
}

impl Front {
    /// Starts one with this time for a handshake.
    fn new(backend: BackendKind, header: &str) -> Front {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        std::fs::write(folder.path().join("small.txt"), "hello\n").unwrap();
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\ntls = {{ certificate = {cert:?}, key = {key:?} }}\n\
             [timeouts]\nheader = \"{header}\"\npark = \"20ms\"\n\
             [[hosts]]\n[[hosts.routes]]\nfiles.root = {:?}\n",
            folder.path()
        );
        let provider = Arc::new(ring::default_provider());
        let certificate = CertificateDer::from_pem_file(&cert).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let mut model = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], PrivateKeyDer::from_pem_file(&key).unwrap())
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
        let stage = Stage::new(backend, 1, &text);
        Front { stage, model: Arc::new(model), clients, _folder: folder }
    }

    fn connect(&self) -> TcpStream {
        let Address::Tcp { host, port } = &self.stage.addresses[0] else { panic!("it is TCP") };
        let stream = TcpStream::connect((host.as_deref().unwrap(), *port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Returns a client that has sent nothing yet.
    fn session(&self, versions: usize) -> ClientConnection {
        let name = ServerName::try_from("localhost").unwrap();
        ClientConnection::new(self.clients[versions].clone(), name).unwrap()
    }

    /// Returns the first bytes of a client, which are one record.
    fn hello(&self, versions: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.session(versions).write_tls(&mut bytes).unwrap();
        bytes
    }

    /// Sends the bytes in pieces and then the end, and returns the answer, which must be of TLS.
    fn answer(&self, pieces: &[&[u8]]) -> Vec<Answered> {
        let mut stream = self.connect();
        for piece in pieces {
            // The server may have closed the connection because of the pieces before.
            if stream.write_all(piece).is_err() {
                break;
            }
        }
        let _ = stream.shutdown(Shutdown::Write);
        answered(&read(&mut stream))
    }

    /// Returns the answer of the model.
    fn expected(&self, bytes: &[u8]) -> Vec<Answered> {
        let mut session = ServerConnection::new(self.model.clone()).unwrap();
        let (mut rest, mut answer) = (bytes, Vec::new());
        while !rest.is_empty() {
            let count = session.read_tls(&mut rest);
            if !matches!(count, Ok(1..)) || session.process_new_packets().is_err() {
                break;
            }
        }
        while session.wants_write() {
            session.write_tls(&mut answer).unwrap();
        }
        answered(&answer)
    }

    /// Checks that the server has no connection any more, serves the next and ends.
    fn finish(self) {
        self.stage.until(|engine| &engine.active, 0);
        self.stage.until(|engine| &engine.parked, 0);
        let mut stream = self.connect();
        let mut session = self.session(0);
        let request = b"GET /small.txt HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        session.writer().write_all(request).unwrap();
        let mut tls = futures_rustls::rustls::Stream::new(&mut session, &mut stream);
        let mut text = String::new();
        tls.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("hello\n"), "{text}");
        drop(stream);
        assert_eq!(self.stage.drained(), 0);
    }
}

/// A record of the server: its kind, and of an alert that is not encrypted its text.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Answered {
    kind: u8,
    alert: Option<[u8; 2]>,
}

/// Takes an answer apart, which must be of whole records.
fn answered(mut bytes: &[u8]) -> Vec<Answered> {
    let mut all = Vec::new();
    while let [kind, 3, 1..=3, high, low, rest @ ..] = bytes {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        assert!((20..=23).contains(kind) && length <= rest.len(), "no record: {bytes:?}");
        let alert = rest[..length].try_into().ok().filter(|_| *kind == ALERT);
        all.push(Answered { kind: *kind, alert });
        bytes = &rest[length..];
    }
    assert!(bytes.is_empty(), "no record: {:?}", String::from_utf8_lossy(bytes));
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

#[test]
fn a_hello_that_is_cut_at_any_byte_gets_no_answer() {
    for backend in [BackendKind::Epoll, BackendKind::Uring] {
        if !backend.is_available() {
            continue;
        }
        let front = Front::new(backend, "20s");
        for versions in 0..VERSIONS.len() {
            let hello = front.hello(versions);
            for length in 0..hello.len() {
                assert_eq!(front.answer(&[&hello[..length]]), [], "{length} bytes");
            }
            let whole = front.answer(&[&hello]);
            assert_eq!(whole[0].kind, HANDSHAKE, "{whole:?}");
        }
        front.finish();
    }
}

#[test]
fn a_hello_in_pieces_is_a_hello() {
    let front = Front::new(BackendKind::Adaptive, "20s");
    for versions in 0..VERSIONS.len() {
        let hello = front.hello(versions);
        let expected = front.expected(&hello);
        // In packets of one byte, and in records of one byte.
        assert_eq!(front.answer(&hello.chunks(1).collect::<Vec<_>>()), expected);
        let records: Vec<u8> =
            hello[5..].iter().flat_map(|byte| [HANDSHAKE, 3, 1, 0, 1, *byte]).collect();
        assert_eq!(front.expected(&records), expected);
        assert_eq!(front.answer(&[&records]), expected);
    }
    front.finish();
}

#[test]
fn records_and_messages_that_are_too_long_end_with_an_alert() {
    let front = Front::new(BackendKind::Adaptive, "20s");
    let record = |kind: u8, length: usize, body: usize| {
        let [high, low] = u16::try_from(length).unwrap().to_be_bytes();
        [&[kind, 3, 3, high, low][..], &vec![0; body]].concat()
    };
    for kind in [20, ALERT, HANDSHAKE, 23, 24, 0x47] {
        for length in [0, 1, 1 << 14, (1 << 14) + 1, (1 << 14) + 256, (1 << 14) + 257, 0xffff] {
            for body in [0, length / 2, length] {
                let bytes = record(kind, length, body);
                let expected = front.expected(&bytes);
                assert_eq!(front.answer(&[&bytes]), expected, "{kind} {length} {body}");
            }
        }
    }
    // A message that claims to be of 16 MiB, in records that do not end. A connection has to be
    // over long before.
    let mut stream = front.connect();
    let first = [&record(HANDSHAKE, 4, 0)[..], &[1, 0xff, 0xff, 0xff]].concat();
    let more = record(HANDSHAKE, 1 << 14, 1 << 14);
    let sent = std::iter::once(&first).chain(std::iter::repeat_n(&more, 1 << 10));
    let sent = sent.take_while(|bytes| stream.write_all(bytes).is_ok()).count();
    assert!(sent < 1 << 10, "it takes everything");
    drop(stream);
    // Records without content that do not end either: each kind ends, in some way.
    for kind in [20, HANDSHAKE] {
        let mut stream = front.connect();
        let flood = match kind {
            20 => [20, 3, 3, 0, 1, 1].repeat(1000),
            _ => [HANDSHAKE, 3, 3, 0, 0].repeat(1000),
        };
        let sent = (0..10_000).take_while(|_| stream.write_all(&flood).is_ok()).count();
        assert!(sent < 10_000, "it takes everything");
    }
    front.finish();
}

#[test]
fn requests_without_encryption_get_an_alert() {
    let front = Front::new(BackendKind::Adaptive, "20s");
    for text in
        ["GET / HTTP/1.1\r\nhost: a\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "SSH-2.0-x\r\n"]
    {
        let expected = front.expected(text.as_bytes());
        assert!(matches!(&expected[..], [Answered { alert: Some([2, _]), .. }]), "{expected:?}");
        assert_eq!(front.answer(&[text.as_bytes()]), expected);
        // In the middle of a handshake as well.
        let hello = front.hello(2);
        let all = [&hello, text.as_bytes()].concat();
        assert_eq!(front.answer(&[&all]), front.expected(&all));
    }
    front.finish();
}

#[test]
fn a_silent_client_is_closed_at_any_byte_of_its_hello() {
    let front = Front::new(BackendKind::Adaptive, "100ms");
    let hello = front.hello(0);
    let lengths: Vec<usize> = (0..hello.len()).collect();
    // Not all at once: tests of select that run beside this need small numbers of descriptors.
    for lengths in lengths.chunks(100) {
        let begin = |length: &usize| {
            let mut stream = front.connect();
            stream.write_all(&hello[..*length]).unwrap();
            stream
        };
        let mut waiting: Vec<TcpStream> = lengths.iter().map(begin).collect();
        for stream in &mut waiting {
            assert_eq!(answered(&read(stream)), []);
        }
    }
    front.stage.until(|engine| &engine.timed_out, hello.len() as u64);
    front.finish();
}

/// A change of the bytes of a client.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, u8),
    Repeat(Index, u8),
    Cut(Index),
    /// A record of this kind, with a right header.
    Record(Index, u8, Vec<u8>),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let range = |at: &Index, length: u8| {
            let at = at.index(bytes.len());
            at..(at + usize::from(length)).min(bytes.len())
        };
        match self {
            Change::Set(at, byte) => {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            Change::Flip(at, bit) => {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << (bit % 8);
            }
            Change::Insert(at, new) => {
                let at = at.index(bytes.len());
                bytes.splice(at..at, new.iter().copied());
            }
            Change::Remove(at, length) => {
                let range = range(at, *length);
                bytes.drain(range);
            }
            Change::Repeat(at, length) => {
                let range = range(at, *length);
                let again = bytes[range.clone()].to_vec();
                bytes.splice(range.end..range.end, again);
            }
            Change::Cut(at) => {
                let at = at.index(bytes.len());
                bytes.truncate(at);
            }
            Change::Record(at, kind, body) => {
                let at = match at.index(3) {
                    0 => 0,
                    1 => bytes.len(),
                    _ => at.index(bytes.len()),
                };
                let record = [&[*kind, 3, 3, 0, body.len() as u8][..], body].concat();
                bytes.splice(at..at, record);
            }
        }
    }
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let few = || prop::collection::vec(any::<u8>(), 0..20);
    let index = any::<Index>;
    let change = prop_oneof![
        4 => (index(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        4 => (index(), any::<u8>()).prop_map(|(at, bit)| Change::Flip(at, bit)),
        2 => (index(), few()).prop_map(|(at, new)| Change::Insert(at, new)),
        2 => (index(), any::<u8>()).prop_map(|(at, length)| Change::Remove(at, length)),
        2 => (index(), any::<u8>()).prop_map(|(at, length)| Change::Repeat(at, length)),
        1 => index().prop_map(Change::Cut),
        2 => (index(), 19..26_u8, few()).prop_map(|(at, kind, body)| Change::Record(at, kind, body)),
        2 => (index(), prop_oneof![Just([1, 0]), Just([2, 40]), any::<[u8; 2]>()])
            .prop_map(|(at, alert)| Change::Record(at, ALERT, alert.to_vec())),
    ];
    prop::collection::vec(change, 1..5)
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

/// Splits bytes at some places.
fn split<'a>(bytes: &'a [u8], places: &[Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = places.iter().map(|at| at.index(bytes.len() + 1)).collect();
    places.sort_unstable();
    let mut pieces = Vec::new();
    let mut start = 0;
    for end in places.into_iter().chain([bytes.len()]) {
        pieces.push(&bytes[start..end]);
        start = end;
    }
    pieces
}

#[test]
fn a_changed_hello_gets_the_answer_of_the_model() {
    let front = Front::new(BackendKind::Adaptive, "20s");
    let places = || prop::collection::vec(any::<Index>(), 0..4);
    let cases = (0..VERSIONS.len(), changes(), places());
    let test = |(versions, changes, places): (usize, Vec<Change>, Vec<Index>)| {
        let mut bytes = front.hello(versions);
        changes.iter().for_each(|change| change.apply(&mut bytes));
        prop_assert_eq!(front.answer(&split(&bytes, &places)), front.expected(&bytes));
        Ok(())
    };
    TestRunner::new(config(1500)).run(&cases, test).unwrap();
    let garbage = (prop::collection::vec(any::<u8>(), 0..600), places());
    let test = |(bytes, places): (Vec<u8>, Vec<Index>)| {
        prop_assert_eq!(front.answer(&split(&bytes, &places)), front.expected(&bytes));
        Ok(())
    };
    TestRunner::new(config(300)).run(&garbage, test).unwrap();
    front.finish();
}

/// A client that goes on with its handshake up to a moment.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// Its answer to the server's flight is sent in part.
    Answer(Index),
    /// The handshake is over.
    Behind,
    /// A request is answered, and the connection is parked.
    Parked,
}

#[test]
fn bytes_that_are_no_records_end_a_connection_at_any_moment_of_its_life() {
    let front = Front::new(BackendKind::Adaptive, "20s");
    let moment = prop_oneof![
        3 => any::<Index>().prop_map(Moment::Answer),
        2 => Just(Moment::Behind),
        1 => Just(Moment::Parked),
    ];
    let garbage = prop_oneof![
        2 => prop::collection::vec(any::<u8>(), 1..80),
        2 => (20..24_u8, prop::collection::vec(any::<u8>(), 0..60))
            .prop_map(|(kind, body)| [&[kind, 3, 3, 0, body.len() as u8][..], &body].concat()),
        1 => Just(b"GET /small.txt HTTP/1.1\r\nhost: a\r\n\r\n".to_vec()),
        1 => Just([&[23, 3, 3, 0x41, 1][..], &[0; (1 << 14) + 257]].concat()),
        1 => Just(vec![ALERT, 3, 3, 0, 2, 2, 0]),
    ];
    let test = |(versions, moment, garbage): (usize, Moment, Vec<u8>)| {
        let (mut session, mut stream) = (front.session(versions), front.connect());
        let mut sent = Vec::new();
        session.write_tls(&mut sent).unwrap();
        stream.write_all(&sent).unwrap();
        loop {
            session.read_tls(&mut stream).unwrap();
            session.process_new_packets().unwrap();
            sent.clear();
            while session.wants_write() {
                session.write_tls(&mut sent).unwrap();
            }
            if matches!(moment, Moment::Answer(_)) && !sent.is_empty() {
                break;
            }
            stream.write_all(&sent).unwrap();
            if !session.is_handshaking() {
                break;
            }
        }
        match moment {
            Moment::Answer(at) => stream.write_all(&sent[..at.index(sent.len())]).unwrap(),
            Moment::Behind => {}
            Moment::Parked => {
                let get = b"GET /small.txt HTTP/1.1\r\nhost: localhost\r\n\r\n";
                let mut tls = futures_rustls::rustls::Stream::new(&mut session, &mut stream);
                tls.write_all(get).unwrap();
                let mut text = Vec::new();
                while !text.ends_with(b"hello\n") {
                    let mut byte = [0];
                    tls.read_exact(&mut byte).unwrap();
                    text.push(byte[0]);
                }
                front.stage.until(|engine| &engine.parked, 1);
            }
        }
        // The server may have refused the first of these already.
        let _ = stream.write_all(&garbage);
        let _ = stream.shutdown(Shutdown::Write);
        // Tickets, an alert, the rest of the handshake: each in a record.
        answered(&read(&mut stream));
        front.stage.until(|engine| &engine.active, 0);
        front.stage.until(|engine| &engine.parked, 0);
        Ok(())
    };
    let cases = (0..VERSIONS.len(), moment, garbage);
    TestRunner::new(config(400)).run(&cases, test).unwrap();
    front.finish();
}
