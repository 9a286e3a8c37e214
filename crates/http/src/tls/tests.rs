//! The records against rustls' client, and against a client that breaks the rules.

use std::sync::Arc;

use futures_rustls::rustls::crypto::{CryptoProvider, ring};
use futures_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use futures_rustls::rustls::{
    CipherSuite, ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection,
};
use proptest::prelude::*;

use super::handshake::{Handshake, prepare};
use super::parked::ParkedKeys;
use super::pool::{self, PooledKeys};
use super::records::{self, Alert, HEADER, Kind, MOST_TEXT, Record, Records, Violation};
use super::traffic_keys::telling;

mod cost;
mod model;
mod successor;

pub use successor::{Reader, left, writing};

/// A client of rustls, and the records of the server behind the handshake.
struct Pair {
    client: ClientConnection,
    server: Records,
    /// The bytes that the server has received.
    received: Vec<u8>,
}

/// Bytes from the client to the server, and the reverse.
fn configs(suite: CipherSuite, is_telling: bool) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let mut provider = ring::default_provider();
    provider.cipher_suites.retain(|one| one.suite() == suite);
    assert_eq!(provider.cipher_suites.len(), 1, "{suite:?}");
    let for_server = if is_telling { telling(provider.clone()) } else { provider.clone() };
    let provider: Arc<CryptoProvider> = Arc::new(provider);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .or_else(|_| {
            ClientConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(&[&futures_rustls::rustls::version::TLS12])
        })
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let mut server = ServerConfig::builder_with_provider(for_server.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    prepare(&mut server);
    (Arc::new(client), Arc::new(server))
}

pub(super) const SUITES: [CipherSuite; 6] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// Takes the first record off the bytes.
pub(super) fn split(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = records::length(bytes).unwrap()?;
    (bytes.len() >= length).then(|| {
        let rest = bytes.split_off(length);
        std::mem::replace(bytes, rest)
    })
}

pub(super) fn sent(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// Returns a client and a server whose handshake is over.
pub(super) fn shake_hands(suite: CipherSuite) -> (ClientConnection, Handshake) {
    shaken_hands(configs(suite, true))
}

/// Returns a client and a server of rustls alone, which cannot leave it.
pub(super) fn rustls_alone(suite: CipherSuite) -> (ClientConnection, ServerConnection) {
    let (client, handshake) = shaken_hands(configs(suite, false));
    (client, handshake.session)
}

fn shaken_hands(
    (client, server): (Arc<ClientConfig>, Arc<ServerConfig>),
) -> (ClientConnection, Handshake) {
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(client, name).unwrap();
    let mut handshake = Handshake::new(&server).unwrap();
    while handshake.session.is_handshaking() {
        let mut bytes = sent(&mut client);
        while !bytes.is_empty() {
            // The header of the first record has another version.
            bytes[2] = 3;
            let record = split(&mut bytes).unwrap();
            handshake.read_record(&record).unwrap();
        }
        let mut answer = Vec::new();
        while handshake.session.wants_write() {
            handshake.session.write_tls(&mut answer).unwrap();
        }
        let mut answer = &answer[..];
        while !answer.is_empty() {
            client.read_tls(&mut answer).unwrap();
            client.process_new_packets().unwrap();
        }
    }
    assert!(!client.is_handshaking());
    (client, handshake)
}

impl Pair {
    fn new(suite: CipherSuite) -> Pair {
        let (client, handshake) = shake_hands(suite);
        Pair { client, server: handshake.leave().unwrap(), received: Vec::new() }
    }

    /// Gives the server all bytes of the client, and the client the answers.
    fn bring_to_server(&mut self) {
        let mut bytes = sent(&mut self.client);
        let mut answers = Vec::new();
        while let Some(mut record) = split(&mut bytes) {
            if let Record::Data(place) = self.server.open(&mut record, &mut answers).unwrap() {
                self.received.extend_from_slice(&record[place]);
            }
        }
        assert!(bytes.is_empty());
        self.bring_to_client(&answers, b"");
        self.server.flushed();
    }

    /// Gives the client bytes, and checks the text in them.
    fn bring_to_client(&mut self, mut bytes: &[u8], text: &[u8]) {
        use std::io::Read;
        let mut found = Vec::new();
        while !bytes.is_empty() {
            self.client.read_tls(&mut bytes).unwrap();
            let state = self.client.process_new_packets().unwrap();
            let start = found.len();
            found.resize(start + state.plaintext_bytes_to_read(), 0);
            self.client.reader().read_exact(&mut found[start..]).unwrap();
        }
        assert!(found == text, "{} bytes instead of {}", found.len(), text.len());
    }

    fn park(&self) -> Box<ParkedKeys> {
        assert!(self.server.is_quiet());
        Box::new(ParkedKeys::from_records(&self.server))
    }

    /// Parks the server's side, seals messages there, and continues.
    fn through_the_parking_lot(&mut self, messages: &[&[u8]]) {
        let mut parked = self.park();
        assert!(parked.seal(&[&[7; MOST_TEXT + 1]]).is_none(), "it is too long for a record");
        let mut sealed = Vec::new();
        for message in messages {
            sealed.extend(parked.seal(&[message]).unwrap());
        }
        let (records, unsent) = parked.into_records();
        assert!(unsent.is_empty());
        self.server = records;
        self.bring_to_client(&sealed, &messages.concat());
    }
}

fn text(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|index| (index as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

#[test]
fn every_suite_goes_on_behind_the_handshake_and_through_the_parking_lot() {
    use std::io::Write;
    for suite in SUITES {
        let mut pair = Pair::new(suite);
        let mut expected = Vec::new();
        for (round, length) in [1, 4, 100, MOST_TEXT - 1, MOST_TEXT].into_iter().enumerate() {
            let text = text(length, round as u8);
            pair.client.writer().write_all(&text).unwrap();
            expected.extend_from_slice(&text);
            pair.bring_to_server();
            assert!(pair.received == expected, "{suite:?} {length}");
            let mut sealed = Vec::new();
            pair.server.sealer().seal_with_new_keys(&text, &mut sealed).unwrap();
            pair.bring_to_client(&sealed, &text);
            pair.through_the_parking_lot(&[b"one", &text, b"", &[7; MOST_TEXT]]);
        }
        pair.client.send_close_notify();
        let mut bytes = sent(&mut pair.client);
        let mut answers = Vec::new();
        assert_eq!(pair.server.open(&mut bytes, &mut answers), Ok(Record::Closed), "{suite:?}");
        assert!(answers.is_empty());
        pair.server.sealer().alert(Alert::CloseNotify, &mut answers).unwrap();
        pair.client.read_tls(&mut &answers[..]).unwrap();
        assert!(pair.client.process_new_packets().unwrap().peer_has_closed());
    }
}

/// A step of a random connection.
#[derive(Clone, Debug)]
enum Step {
    ClientSends(usize),
    ServerSends(usize),
    ClientChangesKeys,
    ServerChangesKeys,
    Park(Vec<usize>),
    /// Another server continues with the parked connection. So much of what this server had sealed
    /// there was written, in parts of 256, and this server may have come to rest before.
    Succeed(Vec<usize>, usize, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![0..100_usize, 16_300..16_500_usize];
    let record = prop_oneof![1..100_usize, 16_300..=MOST_TEXT];
    let step = prop_oneof![
        3 => length.clone().prop_map(Step::ClientSends),
        3 => length.clone().prop_map(Step::ServerSends),
        2 => Just(Step::ClientChangesKeys),
        2 => Just(Step::ServerChangesKeys),
        3 => prop::collection::vec(record.clone(), 0..3).prop_map(Step::Park),
        3 => (prop::collection::vec(record, 0..3), 0..=256_usize, any::<bool>())
            .prop_map(|(lengths, part, is_orderly)| Step::Succeed(lengths, part, is_orderly)),
    ];
    prop::collection::vec(step, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// rustls' client is the model: it accepts each record, and both sides have each byte once and
    /// in order, whatever the order of sending, changes of keys and stays in the parking lot.
    #[test]
    fn any_order_of_steps_is_right(suite in 0..SUITES.len(), steps in steps()) {
        use std::io::Write;
        let mut pair = Pair::new(SUITES[suite]);
        let is_tls13 = pair.server.directions().0.is_tls13;
        let mut expected = Vec::new();
        for (seed, step) in (0..).zip(steps) {
            match step {
                Step::ClientSends(length) => {
                    let text = text(length, seed);
                    pair.client.writer().write_all(&text).unwrap();
                    expected.extend_from_slice(&text);
                    pair.bring_to_server();
                    prop_assert!(pair.received == expected);
                }
                Step::ServerSends(length) => {
                    let (text, mut sealed) = (text(length, seed), Vec::new());
                    pair.server.sealer().seal_with_new_keys(&text, &mut sealed).unwrap();
                    pair.bring_to_client(&sealed, &text);
                }
                Step::ClientChangesKeys if is_tls13 => {
                    pair.client.refresh_traffic_keys().unwrap();
                    // One more would be too many without data.
                    pair.client.writer().write_all(b"!").unwrap();
                    expected.push(b'!');
                    pair.bring_to_server();
                }
                Step::ServerChangesKeys if is_tls13 => {
                    let mut sealed = Vec::new();
                    pair.server.sealer().update(&mut sealed).unwrap();
                    // rustls counts them, too.
                    pair.server.sealer().seal(b"?", &mut sealed).unwrap();
                    pair.bring_to_client(&sealed, b"?");
                }
                Step::ClientChangesKeys | Step::ServerChangesKeys => {}
                Step::Park(lengths) => {
                    let texts: Vec<Vec<u8>> =
                        lengths.iter().map(|&length| text(length, seed)).collect();
                    let texts: Vec<&[u8]> = texts.iter().map(|text| &text[..]).collect();
                    if !pair.server.must_change() {
                        pair.through_the_parking_lot(&texts);
                    }
                }
                Step::Succeed(lengths, part, is_orderly) => {
                    let texts: Vec<Vec<u8>> =
                        lengths.iter().map(|&length| text(length, seed)).collect();
                    pair.succeed(&texts, part, is_orderly);
                }
            }
        }
        prop_assert!(pair.received == expected);
    }
}

/// Returns the records of the server, and those of a client without rules.
pub(super) fn unruly(suite: CipherSuite) -> (Records, Records) {
    let pair = Pair::new(suite);
    let mirrored = Box::new(ParkedKeys::from_records(&pair.server)).mirrored();
    (pair.server, mirrored.into_records().0)
}

/// Seals a record of the client.
pub(super) fn sealed(client: &mut Records, kind: Kind, text: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    client.sealer().seal_one(kind, text, &mut record).unwrap();
    record
}

fn alert_of(outcome: Result<Record, Violation>) -> Option<Alert> {
    match outcome {
        Err(Violation::Broken(alert, _)) => Some(alert),
        Err(Violation::Told(_)) | Ok(_) => None,
    }
}

#[test]
fn a_record_that_is_not_genuine_is_refused() {
    for suite in SUITES {
        let (_, mut client) = unruly(suite);
        let record = sealed(&mut client, Kind::Data, b"hello");
        for index in HEADER..record.len() {
            let (mut server, mut client) = unruly(suite);
            let mut wrong = sealed(&mut client, Kind::Data, b"hello");
            wrong[index] ^= 0x10;
            let outcome = server.open(&mut wrong, &mut Vec::new());
            assert_eq!(alert_of(outcome), Some(Alert::BadRecordMac), "{suite:?} {index}");
            if index > HEADER + 2 {
                break;
            }
        }
        // A record that comes twice, and one that is left out.
        for is_twice in [true, false] {
            let (mut server, mut client) = unruly(suite);
            let one = sealed(&mut client, Kind::Data, b"one");
            let two = sealed(&mut client, Kind::Data, b"two");
            let mut answers = Vec::new();
            let (first, mut second) = if is_twice { (Some(one.clone()), one) } else { (None, two) };
            if let Some(mut first) = first {
                assert!(server.open(&mut first, &mut answers).is_ok());
            }
            let outcome = server.open(&mut second, &mut answers);
            assert_eq!(alert_of(outcome), Some(Alert::BadRecordMac), "{suite:?}");
        }
        let (mut server, _) = unruly(suite);
        for length in 0..24 {
            let mut short =
                [&[Kind::Data as u8, 3, 3, 0, length as u8][..], &vec![1; length]].concat();
            assert!(alert_of(server.open(&mut short, &mut Vec::new())).is_some(), "{length}");
        }
    }
}

/// A suite, records of a client, and the alert that the last of them gets.
type Case<'a> = (CipherSuite, Vec<(Kind, &'a [u8])>, Alert);

#[test]
fn floods_and_messages_out_of_place_end_the_connection_with_their_alert() {
    let (tls13, tls12) = (SUITES[1], SUITES[4]);
    let update: &[u8] = &[24, 0, 0, 1, 1];
    let empty = vec![(Kind::Data, &b""[..]); 33];
    let updates = vec![(Kind::Handshake, update); 33];
    let warnings = vec![(Kind::Alert, &[1, 90][..]); 5];
    let hello: (Kind, &[u8]) = (Kind::Handshake, &[1, 0, 0, 1, 0]);
    let cases: Vec<Case<'_>> = vec![
        (tls13, empty.clone(), Alert::UnexpectedMessage),
        (tls12, empty, Alert::UnexpectedMessage),
        (tls13, updates, Alert::UnexpectedMessage),
        (tls13, warnings.clone(), Alert::UnexpectedMessage),
        (tls12, warnings, Alert::UnexpectedMessage),
        (tls12, vec![hello, hello], Alert::UnexpectedMessage),
        (tls12, vec![(Kind::Handshake, &[0, 0, 0, 0])], Alert::UnexpectedMessage),
        (tls13, vec![hello], Alert::UnexpectedMessage),
        // A ticket from a client.
        (tls13, vec![(Kind::Handshake, &[4, 0, 0, 1, 0])], Alert::UnexpectedMessage),
        (tls13, vec![(Kind::Handshake, b"")], Alert::UnexpectedMessage),
        (tls13, vec![(Kind::Handshake, &[24, 0, 0, 1, 2])], Alert::IllegalParameter),
        // Something after a change of keys in the same record.
        (tls13, vec![(Kind::Handshake, &[24, 0, 0, 1, 0, 24])], Alert::UnexpectedMessage),
        (
            tls13,
            vec![(Kind::Handshake, &update[..2]), (Kind::Data, b"x")],
            Alert::UnexpectedMessage,
        ),
        (tls13, vec![(Kind::Alert, &[2])], Alert::DecodeError),
    ];
    for (suite, records, alert) in cases {
        let (mut server, mut client) = unruly(suite);
        let (last, first) = records.split_last().unwrap();
        let mut take = |client: &mut Records, (kind, text): (Kind, &[u8])| {
            let mut record = sealed(client, kind, text);
            if (kind, suite) == (Kind::Handshake, tls13) && text == update {
                client.sealer().change_keys();
            }
            let mut answers = Vec::new();
            let outcome = server.open(&mut record, &mut answers);
            server.flushed();
            (outcome, answers)
        };
        for one in first {
            assert!(take(&mut client, *one).0.is_ok(), "{suite:?} {records:?}");
        }
        let (outcome, _) = take(&mut client, *last);
        assert_eq!(alert_of(outcome), Some(alert), "{suite:?} {:?}", records.last());
    }
}

#[test]
fn records_of_the_wrong_form_are_refused() {
    for (header, alert) in [
        ([23, 3, 3, 0x41, 1], Alert::RecordOverflow),
        ([23, 3, 3, 0xff, 0xff], Alert::RecordOverflow),
        ([23, 2, 3, 0, 1], Alert::DecodeError),
        ([71, 69, 84, 32, 47], Alert::DecodeError),
        ([24, 3, 3, 0, 1], Alert::DecodeError),
    ] {
        let outcome = records::length(&header);
        assert_eq!(alert_of(outcome.map(|_| Record::Control)), Some(alert), "{header:?}");
    }
    assert_eq!(records::length(&[23, 3, 3, 0x41, 0]), Ok(Some(HEADER + MOST_TEXT + 256)));
    assert_eq!(records::length(&[23, 3, 3, 0x41]), Ok(None));
    for suite in SUITES {
        let (mut server, mut client) = unruly(suite);
        // A record that could end the handshake, and one that is not encrypted.
        for mut record in [vec![20, 3, 3, 0, 1, 1], vec![21, 3, 3, 0, 2, 2, 0]] {
            let outcome = server.open(&mut record, &mut Vec::new());
            assert!(alert_of(outcome).is_some(), "{suite:?}");
        }
        // A text of 2^14 + 1 bytes.
        let (mut server, _) = (unruly(suite).0, ());
        let mut record = sealed(&mut client, Kind::Data, &[1; MOST_TEXT + 1]);
        assert!(alert_of(server.open(&mut record, &mut Vec::new())).is_some());
    }
}

#[test]
fn a_change_of_keys_may_come_in_parts_and_is_answered_once_while_the_answer_waits() {
    let (mut server, mut client) = unruly(SUITES[0]);
    let mut answers = Vec::new();
    for part in [&[24_u8, 0][..], &[0, 1], &[1]] {
        assert!(answers.is_empty());
        let mut record = sealed(&mut client, Kind::Handshake, part);
        assert_eq!(server.open(&mut record, &mut answers), Ok(Record::Control));
        assert!(!server.is_quiet(), "half a message, or an answer that waits");
    }
    client.sealer().change_keys();
    let one = answers.len();
    assert!(one > 0);
    let mut record = sealed(&mut client, Kind::Handshake, &[24, 0, 0, 1, 1]);
    client.sealer().change_keys();
    assert_eq!(server.open(&mut record, &mut answers), Ok(Record::Control));
    assert_eq!(answers.len(), one);
    server.flushed();
    assert!(server.is_quiet());
    let mut record = sealed(&mut client, Kind::Data, b"goes on");
    let place = HEADER..HEADER + 7;
    assert_eq!(server.open(&mut record, &mut answers), Ok(Record::Data(place.clone())));
    assert_eq!(&record[place], b"goes on");
    // The answer is one that the client understands.
    assert_eq!(client.open(&mut answers, &mut Vec::new()), Ok(Record::Control));
}

#[test]
fn renegotiation_is_refused_once_with_a_warning() {
    let (mut server, mut client) = unruly(SUITES[3]);
    let mut answers = Vec::new();
    let mut record = sealed(&mut client, Kind::Handshake, &[1, 0, 0, 1, 0]);
    assert_eq!(server.open(&mut record, &mut answers), Ok(Record::Control));
    assert_eq!(client.open(&mut answers, &mut Vec::new()), Ok(Record::Control));
    let mut record = sealed(&mut client, Kind::Data, b"goes on");
    assert!(server.open(&mut record, &mut Vec::new()).is_ok());
}

#[test]
fn alerts_end_the_connection() {
    for (suite, text, outcome) in [
        (SUITES[0], [1, 0], Ok(Record::Closed)),
        (SUITES[3], [1, 0], Ok(Record::Closed)),
        (SUITES[0], [2, 42], Err(Violation::Told(42))),
        // TLS 1.3 has no warnings of this kind.
        (SUITES[0], [1, 42], Err(Violation::Told(42))),
        (SUITES[3], [1, 42], Ok(Record::Control)),
        (SUITES[3], [2, 42], Err(Violation::Told(42))),
    ] {
        let (mut server, mut client) = unruly(suite);
        let mut record = sealed(&mut client, Kind::Alert, &text);
        assert_eq!(server.open(&mut record, &mut Vec::new()), outcome, "{suite:?} {text:?}");
    }
}

#[test]
fn a_key_is_changed_long_before_it_has_sealed_too_much() {
    const MOST: u64 = 1 << 24;
    // Parked connections seal up to the last few.
    let pair = Pair::new(SUITES[0]);
    let mut parked = Box::new(ParkedKeys::from_records(&pair.server)).at(MOST - 20);
    assert!(parked.seal(&[b"1", b"2", b"3", b"4", b"5"]).is_none(), "room is kept");
    assert!(parked.seal(&[b"1", b"2", b"3", b"4"]).is_some());
    let (mut server, _) =
        Box::new(ParkedKeys::from_records(&pair.server)).at(MOST - (1 << 16) - 2).into_records();
    let mut mirrored = Box::new(ParkedKeys::from_records(&server)).mirrored().into_records().0;
    for number in 0..40_u8 {
        let mut sealed = Vec::new();
        server.sealer().seal_with_new_keys(&[number], &mut sealed).unwrap();
        let mut data = Vec::new();
        while let Some(mut record) = split(&mut sealed) {
            if let Record::Data(place) = mirrored.open(&mut record, &mut Vec::new()).unwrap() {
                data.extend_from_slice(&record[place]);
            }
        }
        assert_eq!(data, [number]);
    }
    assert_eq!(server.directions().1.state().1, 40 - 2, "the key has changed");
    // TLS 1.2 has no other key.
    let pair = Pair::new(SUITES[3]);
    let (mut server, _) =
        Box::new(ParkedKeys::from_records(&pair.server)).at(MOST - 1).into_records();
    assert!(server.is_quiet());
    assert!(server.sealer().seal_with_new_keys(b"last", &mut Vec::new()).is_ok());
    assert!(server.sealer().seal_with_new_keys(b"none", &mut Vec::new()).is_err());
}

#[test]
fn floods_are_counted_while_the_connection_is_parked_in_between() {
    let cases = [(SUITES[0], Kind::Data, &b""[..], 32), (SUITES[0], Kind::Alert, &[1, 90], 4)];
    let more = [(SUITES[4], Kind::Alert, &[1, 90][..], 4), (SUITES[4], Kind::Handshake, &[1], 1)];
    for (suite, kind, text, allowed) in cases.into_iter().chain(more) {
        let (mut server, mut client) = unruly(suite);
        for count in 0..=allowed {
            let mut record = sealed(&mut client, kind, text);
            let outcome = server.open(&mut record, &mut Vec::new());
            assert_eq!(outcome.is_ok(), count < allowed, "{suite:?} {kind:?} {count}");
            server = Box::new(ParkedKeys::from_records(&server)).into_records().0;
        }
    }
}

#[test]
fn nothing_is_answered_behind_the_end() {
    let (mut server, mut client) = unruly(SUITES[0]);
    let mut answers = Vec::new();
    server.sealer().alert(Alert::CloseNotify, &mut answers).unwrap();
    server.close();
    let end = answers.len();
    let mut record = sealed(&mut client, Kind::Handshake, &[24, 0, 0, 1, 1]);
    assert_eq!(server.open(&mut record, &mut answers), Ok(Record::Control));
    assert_eq!(answers.len(), end);
    let mut part = sealed(&mut client, Kind::Handshake, &[24]);
    client.sealer().change_keys();
    assert!(!server.has_part());
    // The client's key has changed with the first of them.
    assert!(server.open(&mut part, &mut answers).is_err());
}

#[test]
fn keys_keep_their_place_until_they_are_taken_and_the_last_frees_all() {
    let pair = Pair::new(SUITES[0]);
    let number = |number: u64| *Box::new(ParkedKeys::from_records(&pair.server)).at(number);
    assert_eq!(pool::blocks(), 0);
    let mut all: Vec<(u64, PooledKeys)> =
        (0..200).map(|one| (one, PooledKeys::new(number(one)))).collect();
    assert_eq!(pool::blocks(), 4);
    for round in 0..3_u64 {
        // Every third is dropped or taken out, and others take their places.
        let (gone, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(|(one, _)| one % 3 == round);
        for (one, keys) in gone {
            let found = keys.take().unwrap().into_records().0.directions().1.state().1;
            assert_eq!(found, one);
        }
        all = kept;
        let first = 1000 * (round + 1);
        all.extend((first..first + 50).map(|one| (one, PooledKeys::new(number(one)))));
        for (one, keys) in &mut all {
            assert!(
                keys.with(|keys| format!("{keys:?}").contains(&format!("tx_number: {one},")))
                    .unwrap()
            );
        }
        assert!(pool::blocks() <= 4);
    }
    drop(all);
    assert_eq!(pool::blocks(), 0);
}

#[test]
fn no_secret_is_shown() {
    let pair = Pair::new(SUITES[1]);
    let parked = Box::new(ParkedKeys::from_records(&pair.server));
    let (_, tx, _) = pair.server.directions();
    let shown = format!("{parked:?} {:?}", pair.server);
    let secret = format!("{:?}", &tx.state().0[..4]);
    assert!(!shown.contains(secret.trim_matches(['[', ']'])), "{shown}");
    assert!(size_of::<ParkedKeys>() <= 136);
}
