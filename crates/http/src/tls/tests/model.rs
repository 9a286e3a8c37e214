//! Records of a client without rules, to the record layer and to rustls.
//!
//! Two connections have handshakes of their own and then get records with the same content, sealed
//! with their own keys, in the same order. Both servers must hand on the same data, answer with the
//! same messages and end at the same record, for the same reason and with the same alert.

use std::io::{Read, Write};

use futures_rustls::rustls::{Error, ServerConnection};
use proptest::prelude::*;

use super::super::records::{self, Alert, HEADER, Kind, MOST_TEXT, Record, Records, Violation};
use super::{SUITES, sealed, shake_hands, split, unruly};

/// Something that a client sends.
#[derive(Clone, Debug)]
enum Sent {
    /// A record of this kind, by its place in `KINDS`.
    Record(usize, Vec<u8>),
    /// Data of this length.
    Data(usize),
    /// A change of keys, right in all parts, which may ask for one.
    Update(bool),
    /// A record that is not encrypted.
    Plain(u8, Vec<u8>),
    /// A record with one wrong bit.
    Corrupt(usize, u8),
}

const KINDS: [Kind; 3] = [Kind::Alert, Kind::Handshake, Kind::Data];

/// The fate of a connection after a record.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Fate {
    GoesOn,
    Closed,
    /// By an alert of the client.
    Told,
    /// By this alert of the server. rustls sends none for some reasons.
    Broken(Option<Alert>),
}

/// The output of a server: data, the records of its answers as the client sees them, and the fate.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Outcome {
    data: Vec<u8>,
    answers: Vec<Result<Record, Violation>>,
    fate: Fate,
}

fn few() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..8)
}

fn one() -> impl Strategy<Value = Sent> {
    // Of the two levels, and user_canceled (90) as a warning: rustls goes by the level, which may
    // be ignored (RFC 8446, section 6).
    let level = 1..3_u8;
    let alert = prop_oneof![
        Just([1, 90]),
        (level.clone(), Just(0)).prop_map(|(level, number)| [level, number]),
        (level, any::<u8>()).prop_map(|(level, number)| if number == 90 {
            [1, 90]
        } else {
            [level, number]
        }),
    ];
    // Whole messages, or the beginning of one that has a place after a handshake: rustls collects
    // the parts of the others before it refuses them.
    let message = prop_oneof![
        Just(vec![0, 0, 0, 0]),
        Just([&[20, 0, 0, 12][..], &[0; 12]].concat()),
        Just(vec![24, 0, 0, 1, 2]),
        Just(vec![24, 0, 0, 1, 0, 24]),
        (1..5_usize).prop_map(|length| [24, 0, 0, 1][..length].to_vec()),
    ];
    prop_oneof![
        6 => prop_oneof![0..40_usize, MOST_TEXT - 2..MOST_TEXT + 2].prop_map(Sent::Data),
        4 => Just(Sent::Data(0)),
        4 => any::<bool>().prop_map(Sent::Update),
        2 => alert.prop_map(|alert| Sent::Record(0, alert.to_vec())),
        1 => few().prop_filter("an alert", |text| text.len() != 2)
            .prop_map(|text| Sent::Record(0, text)),
        2 => message.prop_map(|text| Sent::Record(1, text)),
        1 => (19..26_u8, few()).prop_map(|(kind, body)| Sent::Plain(kind, body)),
        1 => (any::<usize>(), 0..8_u8).prop_map(|(at, bit)| Sent::Corrupt(at, bit)),
    ]
}

/// Seals something with the keys of a client.
fn bytes(client: &mut Records, sent: &Sent) -> Vec<u8> {
    match sent {
        Sent::Record(kind, text) => sealed(client, KINDS[*kind], text),
        Sent::Data(length) => sealed(client, Kind::Data, &vec![7; *length]),
        Sent::Update(asks) => {
            let record = sealed(client, Kind::Handshake, &[24, 0, 0, 1, u8::from(*asks)]);
            client.sealer().change_keys();
            record
        }
        Sent::Plain(kind, body) => [&[*kind, 3, 3, 0, body.len() as u8][..], body].concat(),
        Sent::Corrupt(at, bit) => {
            let mut record = sealed(client, Kind::Data, b"text");
            let length = record.len() - HEADER;
            record[HEADER + at % length] ^= 1 << bit;
            record
        }
    }
}

/// Opens the answers of a server.
fn understood(client: &mut Records, mut answers: Vec<u8>) -> Vec<Result<Record, Violation>> {
    let mut all = Vec::new();
    while let Some(mut record) = split(&mut answers) {
        all.push(client.open(&mut record, &mut Vec::new()));
    }
    all
}

/// A server of ours and its client.
struct Own {
    server: Records,
    client: Records,
}

impl Own {
    fn take(&mut self, sent: &Sent) -> Outcome {
        let mut record = bytes(&mut self.client, sent);
        let (mut data, mut answers) = (Vec::new(), Vec::new());
        let outcome = records::length(&record)
            .and_then(|_| self.server.open(&mut record, &mut answers))
            .inspect(|opened| {
                if let Record::Data(place) = opened {
                    data.extend_from_slice(&record[place.clone()]);
                }
            });
        if outcome.is_ok() {
            self.server.sealer().seal(b"!", &mut answers).unwrap();
        }
        self.server.flushed();
        let fate = match outcome {
            Ok(Record::Closed) => Fate::Closed,
            Ok(_) => Fate::GoesOn,
            Err(Violation::Told(_)) => Fate::Told,
            Err(Violation::Broken(alert, _)) => Fate::Broken(Some(alert)),
        };
        Outcome { data, answers: understood(&mut self.client, answers), fate }
    }
}

/// A server of rustls and its client.
struct Rustls {
    server: ServerConnection,
    client: Records,
}

impl Rustls {
    fn take(&mut self, sent: &Sent) -> Outcome {
        let record = bytes(&mut self.client, sent);
        let (mut rest, mut data) = (&record[..], Vec::new());
        let mut outcome = Ok(false);
        while !rest.is_empty() && outcome == Ok(false) {
            self.server.read_tls(&mut rest).unwrap();
            outcome = self.server.process_new_packets().map(|state| {
                let start = data.len();
                data.resize(start + state.plaintext_bytes_to_read(), 0);
                self.server.reader().read_exact(&mut data[start..]).unwrap();
                state.peer_has_closed()
            });
        }
        if outcome.is_ok() {
            // rustls answers a change of keys when it has something to say.
            self.server.writer().write_all(b"!").unwrap();
        }
        let mut answers = Vec::new();
        while self.server.wants_write() {
            self.server.write_tls(&mut answers).unwrap();
        }
        let mut answers = understood(&mut self.client, answers);
        let fate = match outcome {
            Ok(true) => Fate::Closed,
            Ok(false) => Fate::GoesOn,
            Err(Error::AlertReceived(_)) => {
                // rustls answers some of these alerts.
                answers.clear();
                Fate::Told
            }
            Err(error) => match answers.pop() {
                None => Fate::Broken(None),
                Some(Err(Violation::Told(number))) => Fate::Broken(Some(named(number))),
                other => panic!("{error} with the answer {other:?}"),
            },
        };
        Outcome { data, answers, fate }
    }
}

fn named(number: u8) -> Alert {
    let all = [
        Alert::UnexpectedMessage,
        Alert::BadRecordMac,
        Alert::RecordOverflow,
        Alert::IllegalParameter,
        Alert::DecodeError,
        Alert::InternalError,
    ];
    let found = all.into_iter().find(|alert| *alert as u8 == number);
    found.unwrap_or_else(|| panic!("the alert {number}"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn a_client_without_rules_gets_what_rustls_gives_it(
        suite in 0..SUITES.len(),
        all in prop::collection::vec(one(), 1..60),
    ) {
        let (server, client) = unruly(SUITES[suite]);
        let mut own = Own { server, client };
        let (_, handshake) = shake_hands(SUITES[suite]);
        let (server, client) = handshake.and_client().unwrap();
        let mut rustls = Rustls { server, client };
        let is_tls13 = own.server.directions().0.is_tls13;
        let mut has_part = false;
        for (index, sent) in all.iter().enumerate() {
            // TLS 1.2 has no such message, and rustls waits for the rest of its parts.
            let is_update = match sent {
                Sent::Update(_) => true,
                Sent::Record(1, text) => text.first() == Some(&24),
                _ => false,
            };
            if is_update && !is_tls13 {
                continue;
            }
            if has_part && matches!(sent, Sent::Update(_) | Sent::Record(1, _)) {
                // A message that would be too long: rustls waits for its rest.
                prop_assert!(matches!(own.take(sent).fate, Fate::Broken(_)));
                break;
            }
            has_part = matches!(sent, Sent::Record(1, text) if text.len() < 5 && text[0] == 24);
            let (mut ours, mut theirs) = (own.take(sent), rustls.take(sent));
            // Of a record that is not encrypted there may be more than one thing to complain about.
            if let (Sent::Plain(..), Fate::Broken(alert)) = (sent, &mut theirs.fate) {
                *alert = None;
            }
            if let (Fate::Broken(alert), Fate::Broken(None)) = (&mut ours.fate, &theirs.fate) {
                *alert = None;
            }
            prop_assert_eq!(&ours, &theirs, "record {}, {:?}", index, sent);
            if ours.fate != Fate::GoesOn {
                break;
            }
        }
    }
}
