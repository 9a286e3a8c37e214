//! Idle connections of HTTP/2 that outlive an upgrade or a crash of a server.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::succession::{Nursery, rounds};
use crate::stage::connect;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;

/// The flags of an end, of an answer, and of the end of a head.
const END: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// What a client does with its table of fields (RFC 7541).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Table {
    /// It has none.
    Unused,
    /// It uses one, and gives it up when it is asked.
    GivenUp,
    /// It uses one, and does not answer when it is asked to give it up.
    Kept,
}

/// A stream of bytes, encrypted or not.
trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

struct Client {
    stream: Box<dyn Stream>,
    is_encrypted: bool,
    next: u32,
    table: Table,
    /// The server allows a table.
    has_room: bool,
    /// It has a field of this client there.
    is_known: bool,
    /// What has to be said about the size of the table.
    sizes: Vec<u8>,
}

impl Client {
    fn encrypted(config: &Arc<ClientConfig>, at: SocketAddr, table: Table) -> Client {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(config.clone(), name).unwrap();
        Client::new(Box::new(StreamOwned::new(connection, connect(at))), true, table)
    }

    fn new(stream: Box<dyn Stream>, is_encrypted: bool, table: Table) -> Client {
        let (has_room, is_known, sizes) = (true, false, Vec::new());
        let mut client = Client { stream, is_encrypted, next: 1, table, has_room, is_known, sizes };
        client.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        client.send(SETTINGS, 0, 0, &[]);
        client
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend_from_slice(&[kind, flags]);
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.stream.write_all(&frame).unwrap();
    }

    /// Returns the next frame, and answers settings.
    fn receive(&mut self) -> (u8, u8, u32, Vec<u8>) {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).unwrap();
        let takes_table = payload == [0, 1, 0, 0, 0, 0];
        if kind == SETTINGS && flags & ACK == 0 && !(takes_table && self.table == Table::Kept) {
            self.send(SETTINGS, ACK, 0, &[]);
            match &payload[..] {
                _ if takes_table => {
                    (self.has_room, self.is_known, self.sizes) = (false, false, vec![0x20]);
                }
                [0, 1, 0, 0, 0x10, 0] => {
                    self.has_room = true;
                    self.sizes.extend_from_slice(&[0x3f, 0xe1, 0x1f]);
                }
                _ => {}
            }
        }
        (kind, flags, u32::from_be_bytes(head[5..].try_into().unwrap()), payload)
    }

    /// Gets a file, by a request with a field that the server should know.
    fn get(&mut self) {
        let mut head = std::mem::take(&mut self.sizes);
        let scheme = if self.is_encrypted { 0x87 } else { 0x86 };
        head.extend_from_slice(&[0x82, scheme, 0x01, 1, b'a', 0x04, 6]);
        head.extend_from_slice(b"/small");
        let has_table = self.table != Table::Unused && self.has_room;
        match (has_table, self.is_known) {
            (false, _) => {}
            // The newest entry of the table.
            (_, true) => head.push(0xbe),
            (_, false) => head.extend_from_slice(b"\x40\x0dif-none-match\x03\"x\""),
        }
        self.is_known = has_table;
        let stream = self.next;
        self.next += 2;
        self.send(HEADERS, END | END_HEADERS, stream, &head);
        let (mut body, mut is_successful) = (Vec::new(), false);
        loop {
            let (kind, flags, of, payload) = self.receive();
            match kind {
                HEADERS if of == stream => is_successful = payload.contains(&0x88),
                DATA if of == stream => body.extend_from_slice(&payload),
                _ => assert_eq!(of, 0, "a frame of type {kind}"),
            }
            if of == stream && flags & END > 0 {
                break;
            }
        }
        assert!(is_successful && body.ends_with(b"0123456789"));
    }

    /// Shows that the connection lives, without a request.
    fn ping(&mut self, round: u8) {
        self.send(PING, 0, 0, &[round; 8]);
        loop {
            if let (PING, ACK, 0, payload) = self.receive() {
                return assert_eq!(payload, [round; 8]);
            }
        }
    }
}

#[test]
fn idle_connections_of_http_2_go_on_through_many_upgrades_and_crashes() {
    let nursery = Nursery::encrypted();
    let mut server = nursery.server(&[]);
    let mut roots = RootCertStore::empty();
    let certificate = std::fs::read(nursery.site.path("cert.pem")).unwrap();
    roots.add(PemObject::from_pem_slice(&certificate).unwrap()).unwrap();
    let mut config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let (config, at) = (Arc::new(config), ([127, 0, 0, 1], nursery.tls.unwrap()).into());
    let kinds = [Table::Unused, Table::GivenUp, Table::Kept];
    let begin = |number: usize| match (number % 2, kinds[number % kinds.len()]) {
        (0, table) => Client::encrypted(&config, at, table),
        (_, table) => Client::new(Box::new(connect(nursery.at())), false, table),
    };
    let mut clients: Vec<Client> = (0..12).map(begin).collect();
    for client in &mut clients {
        client.get();
        client.get();
    }
    let all = clients.len();
    for round in 0..2 * rounds() {
        // Those that were asked to give up their tables answer only when they read.
        for client in clients.iter_mut().filter(|client| client.table == Table::GivenUp) {
            client.ping(1);
        }
        nursery.until_held(all);
        server = nursery.next(server, round % 2 == 0);
        server.says(&format!("took over {all} connections"));
        for (number, client) in clients.iter_mut().enumerate() {
            match (number + round) % 4 {
                0 => client.ping(u8::try_from(round).unwrap_or(u8::MAX)),
                1 => {}
                _ => client.get(),
            }
        }
    }
    for client in &mut clients {
        client.get();
    }
    server.signal("TERM");
    assert!(server.ended().0.success());
}
