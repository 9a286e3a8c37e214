//! Random frames of a client, against a simple model of both sides.
//!
//! ```text
//!   model of a stream: OPEN --its request ends--> HALF --its response ends--> gone
//!                       \ a reset by either side: gone
//! ```

use std::collections::BTreeMap;

use http::StatusCode;
use proptest::prelude::*;
use superpoll_http1::{FieldName, FieldValue};
use superpoll_http2::{Config, Connection, ErrorCode, NotWritten, Record, StreamKey};

use crate::client::{
    ACK, CONTINUATION, DATA, Driver, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, Kept, PADDED,
    PING, PRIORITY, PRIORITY_UPDATE, PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE,
    WITH_PRIORITY, frame, frames, preface, settings, window_update,
};

/// A number of cases; `SUPERPOLL_CASES` makes it another one.
pub(crate) fn cases(usual: u32) -> ProptestConfig {
    let cases = std::env::var("SUPERPOLL_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases.unwrap_or(usual))
    }
}

const CONFIG: Config =
    Config { streams: 6, connection_window: 80_000, stream_window: 70_000, ..Config::DEFAULT };

/// Parts of heads; the first is whole.
const BLOCKS: [&[u8]; 14] = [
    b"\x82\x87\x84\x41\x06a.test",
    b"\x83\x87\x44\x02/b\xbe",
    b"\x83\x86\x84\x01\x06b.test",
    b"\x82\x87\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
    b"\x40\x01x\x03abc",
    b"\x40\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf",
    b"\xbe",
    b"\xbf\xc0",
    b"\x60\x03a=b\x60\x03c=d",
    b"\x0f\x0d\x0210",
    b"\x20",
    b"\x3f\x45",
    b"\x00\x01X\x01y",
    b"\x00\x02te\x08trailers",
];

/// A step of a client.
#[derive(Clone, Debug)]
struct Move {
    kind: u8,
    /// Which stream, from the last one back.
    which: u32,
    blocks: Vec<usize>,
    length: usize,
    flags: u8,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let kind = prop_oneof![
        10 => Just(HEADERS),
        8 => Just(DATA),
        3 => Just(RST_STREAM),
        4 => Just(WINDOW_UPDATE),
        2 => Just(SETTINGS),
        1 => Just(PING),
        1 => Just(PRIORITY),
        1 => Just(PRIORITY_UPDATE),
        1 => Just(CONTINUATION),
        1 => Just(0xbb),
    ];
    let block = prop_oneof![8 => Just(0), 4 => 2..4_usize, 1 => Just(1), 1 => 10..12_usize];
    let rest = prop_oneof![
        12 => prop::sample::select(vec![4_usize, 5, 8, 9, 13]),
        3 => 6..8_usize,
        1 => 0..BLOCKS.len(),
    ];
    let rest = prop::collection::vec(rest, 0..3);
    let length = prop_oneof![3 => 0..30_usize, 1 => 0..16_384_usize];
    let which = prop_oneof![4 => Just(0_u32), 3 => Just(1), 2 => 2..5_u32];
    let one = (kind, which, block, rest, length, any::<u8>()).prop_map(
        |(kind, which, block, rest, length, flags)| {
            // A change of the table's size is followed by a head.
            let first = if block >= 10 { vec![block, 0] } else { vec![block] };
            let blocks = [first, rest].concat();
            Move { kind, which, blocks, length, flags }
        },
    );
    prop::collection::vec(one, 1..40)
}

/// Returns the bytes of the moves, frame by frame. Most are what a client may send.
fn bytes(moves: &[Move]) -> Vec<Vec<u8>> {
    let mut all = vec![preface(), frame(SETTINGS, ACK, 0, &[])];
    let mut next = 1_u32;
    for Move { kind, which, blocks, length, flags } in moves {
        let is_odd = *flags >= 0xfc;
        let is_idle = next == 1 && *kind != HEADERS && !is_odd;
        let kind = if is_idle { PING } else { *kind };
        // One of the last streams.
        let is_trailer = kind == HEADERS && *which >= 3 && next > 1;
        let back = if is_trailer { which - 3 } else { *which };
        let stream = next.saturating_sub(2 + 2 * back).max(1);
        let end = if flags & 1 > 0 { END_STREAM } else { 0 };
        let data = vec![0; *length];
        all.push(match kind {
            HEADERS => {
                let stream = if is_trailer { stream } else { next };
                next = next.max(stream + 2);
                let block: Vec<u8> = blocks.iter().flat_map(|at| BLOCKS[*at]).copied().collect();
                let (mut payload, mut more) = (Vec::new(), 0);
                if flags & 0x10 > 0 {
                    more |= PADDED;
                    payload.push(flags & 3);
                }
                if flags & 0x20 > 0 {
                    more |= WITH_PRIORITY;
                    payload.extend([0; 5]);
                }
                // Trailers have no pseudo-header fields as a rule.
                payload.extend(if *which >= 3 {
                    b"\x00\x01t\x01u".to_vec()
                } else {
                    block.clone()
                });
                let end = if is_trailer { END_STREAM } else { end };
                if more & PADDED > 0 {
                    payload.extend(vec![0; usize::from(flags & 3)]);
                }
                if flags & 0xc0 == 0xc0 && more & PADDED == 0 {
                    let half = (payload.len() / 2).max(5).min(payload.len());
                    let first = frame(HEADERS, end | more & !PADDED, stream, &payload[..half]);
                    let rest = &payload[half..];
                    [first, frame(CONTINUATION, END_HEADERS, stream, rest)].concat()
                } else {
                    frame(HEADERS, END_HEADERS | end | more, stream, &payload)
                }
            }
            DATA if flags & 0x10 > 0 => {
                let padding = flags >> 5;
                let payload = [vec![padding], data, vec![0; usize::from(padding)]].concat();
                let fits = payload.len() <= 16_384;
                frame(
                    DATA,
                    end | PADDED,
                    stream,
                    &payload[..if fits { payload.len() } else { 300 }],
                )
            }
            DATA => frame(DATA, end, stream, &data),
            RST_STREAM => frame(RST_STREAM, 0, stream, &[0, 0, 0, *flags]),
            WINDOW_UPDATE if flags & 2 > 0 => window_update(0, *length as u32 + 1),
            WINDOW_UPDATE if is_odd => window_update(stream, 0),
            WINDOW_UPDATE => window_update(stream, *length as u32 + 1),
            SETTINGS => settings(&[(4, *length as u32 * 4), (1, u32::from(*flags))]),
            PING => frame(PING, flags & 1, 0, &[*flags; 8]),
            PRIORITY => frame(PRIORITY, 0, stream, &[0; 5]),
            PRIORITY_UPDATE => {
                let value = [&stream.to_be_bytes()[..], b"u=", &[b'0' + flags % 10]].concat();
                frame(PRIORITY_UPDATE, 0, 0, &value)
            }
            CONTINUATION if is_odd => frame(CONTINUATION, END_HEADERS, stream, &[]),
            CONTINUATION if *flags >= 0xf0 => frame(PUSH_PROMISE, 0, stream, &[0; 4]),
            kind => frame(kind.max(0x20), *flags, *flags as u32, &data),
        });
    }
    all
}

/// A stream in the model.
#[derive(Clone, Copy, Debug)]
struct Modelled {
    key: StreamKey,
    request_is_over: bool,
    has_head: bool,
    /// The window for the response.
    window: i64,
}

/// A server that answers by the numbers of streams, and the model.
struct Player {
    driver: Driver,
    open: BTreeMap<u32, Modelled>,
    seen: usize,
    /// The windows of the client as the frames of both sides make them.
    window: i64,
    initial_window: i64,
    receive_window: i64,
    written: Vec<u8>,
    releases: bool,
}

impl Player {
    fn new(releases: bool) -> Player {
        Player {
            driver: Driver::new(CONFIG),
            open: BTreeMap::new(),
            seen: 0,
            window: 65_535,
            initial_window: 65_535,
            receive_window: 65_535,
            written: Vec::new(),
            releases,
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.driver.kept.last(), Some(Kept::Error(_)))
    }

    /// Feeds a frame in pieces, and plays the server.
    fn feed(&mut self, bytes: &[u8], piece: usize) {
        // What the client's own frames do to the windows, whether they are accepted or not.
        for sent in frames(bytes.strip_prefix(superpoll_http2::PREFACE).unwrap_or(bytes)) {
            match sent.kind {
                DATA => self.receive_window -= sent.payload.len() as i64,
                WINDOW_UPDATE if sent.stream == 0 => self.window += i64::from(sent.number(0)),
                WINDOW_UPDATE => {
                    if let Some(stream) = self.open.get_mut(&sent.stream) {
                        stream.window += i64::from(sent.number(0));
                    }
                }
                SETTINGS if !sent.payload.is_empty() => {
                    let change = i64::from(sent.number(2)) - self.initial_window;
                    self.initial_window += change;
                    self.open.values_mut().for_each(|stream| stream.window += change);
                }
                _ => {}
            }
        }
        self.driver.feed_in(bytes, piece);
        self.follow();
        if self.is_over() {
            return;
        }
        self.act();
        self.check();
    }

    /// Follows the events in the model.
    fn follow(&mut self) {
        // The last may still get more data.
        while let Some(kept) = self.driver.kept.get(self.seen) {
            match kept {
                Kept::Request(request) => {
                    let key = self.driver.key(request.id);
                    let stream = Modelled {
                        key,
                        request_is_over: request.is_over,
                        has_head: false,
                        window: self.initial_window,
                    };
                    assert!(self.open.values().all(|other| other.key.slot() != key.slot()));
                    assert!(self.open.insert(request.id, stream).is_none());
                }
                Kept::Data(id, _, is_over) => {
                    let stream = self.open.get_mut(id).expect("data of an open stream");
                    assert!(!stream.request_is_over);
                    stream.request_is_over = *is_over;
                }
                Kept::Trailers(id, _) => {
                    let stream = self.open.get_mut(id).expect("trailers of an open stream");
                    assert!(!std::mem::replace(&mut stream.request_is_over, true));
                }
                Kept::Reset(id, _) | Kept::Failed(id, _) => {
                    assert!(self.open.remove(id).is_some(), "{id} has ended twice");
                }
                _ => {}
            }
            self.seen += 1;
        }
        // A data event may be continued by the next piece.
        if let Some(Kept::Data(_, _, false)) = self.driver.kept.last() {
            self.driver.kept.push(Kept::Opened(Some(u32::MAX)));
            self.seen += 1;
        }
    }

    /// Plays the server: what it does depends on the number of a stream alone.
    fn act(&mut self) {
        let Driver { connection, out, .. } = &mut self.driver;
        for (id, stream) in &mut self.open {
            let (key, fate) = (stream.key, id / 2 % 5);
            // The last ones are released by their end alone.
            if self.releases && fate != 2 {
                connection.release(key, 50_000, out);
            }
            if !stream.has_head && (stream.request_is_over || fate == 1) {
                stream.has_head = true;
                let mut head = connection.respond(key, StatusCode::OK, false, out).unwrap();
                head.field(FieldName::from_static("x"), FieldValue::from_static("y"));
                head.finish();
                connection.set_ready(key, fate != 3);
                connection.set_held(key, fate == 3);
            }
        }
        // Some of each, so that windows stay in use.
        for _ in 0..3 {
            let Some((key, capacity)) = connection.next_writable() else { break };
            let fate = key.id() / 2 % 5;
            let is_over = fate != 2;
            let count = connection.data(key, &[7; 20_000], is_over, out).unwrap();
            assert_eq!(count, capacity);
            if fate == 4 {
                connection.reset(key, ErrorCode::CANCEL, out).unwrap();
            }
        }
    }

    /// Checks the frames that were written, and compares the connection with the model.
    fn check(&mut self) {
        let written = std::mem::take(&mut self.driver.out);
        for frame in frames(&written) {
            let Frame { kind, flags, stream, ref payload } = frame;
            let is_end = matches!(kind, DATA | HEADERS) && flags & END_STREAM > 0;
            match kind {
                DATA => {
                    let modelled = self.open.get_mut(&stream).expect("data on an open stream");
                    modelled.window -= payload.len() as i64;
                    self.window -= payload.len() as i64;
                    assert!(modelled.window >= 0 && self.window >= 0 || payload.is_empty());
                    assert!(payload.len() <= 16_384);
                }
                WINDOW_UPDATE if stream == 0 => self.receive_window += i64::from(frame.number(0)),
                RST_STREAM => drop(self.open.remove(&stream)),
                GOAWAY => panic!("no error was returned"),
                _ => {}
            }
            if is_end && self.open.get(&stream).is_some_and(|it| it.request_is_over) {
                self.open.remove(&stream);
            }
            // A response that ends before its request is reset in this game.
        }
        self.written.extend(written);
        let keys: Vec<StreamKey> = self.driver.connection.keys().collect();
        for key in keys {
            // One of which the response is over.
            if !self.open.contains_key(&key.id())
                || self.driver.connection.data(key, b"", false, &mut Vec::new()).is_err()
                    && self.open[&key.id()].has_head
            {
                let mut out = Vec::new();
                self.driver.connection.reset(key, ErrorCode::NO_ERROR, &mut out).unwrap();
                for frame in frames(&out).iter().filter(|frame| frame.kind == WINDOW_UPDATE) {
                    self.receive_window += i64::from(frame.number(0));
                }
                self.written.extend(out);
                self.open.remove(&key.id());
            }
        }
        let open: Vec<u32> = self.open.keys().copied().collect();
        let mut found: Vec<u32> = self.driver.connection.keys().map(StreamKey::id).collect();
        found.sort_unstable();
        assert_eq!((found, self.driver.connection.streams()), (open, self.open.len()));
        assert!(self.open.len() <= usize::from(CONFIG.streams));
        let most = i64::from(CONFIG.connection_window);
        assert!((0..=most).contains(&self.receive_window), "{}", self.receive_window);
        if self.open.is_empty() {
            // All that was held is given back, up to half of the window.
            assert!(self.receive_window > most / 2, "{}", self.receive_window);
        }
    }

    /// Replaces the connection by that of its record. Returns whether it was quiet.
    fn park(&mut self) -> bool {
        let is_quiet = !self.is_over() && self.driver.connection.is_quiet();
        if is_quiet {
            let mut record = Vec::new();
            self.driver.connection.to_record(&mut record);
            let connection = Connection::from_record(CONFIG, &record).unwrap();
            let mut again = Vec::new();
            connection.to_record(&mut again);
            assert_eq!(record, again);
            check_carried(&record);
            let keys: Vec<StreamKey> = connection.keys().collect();
            for key in keys {
                self.open.get_mut(&key.id()).unwrap().key = key;
                self.driver.keys.push(key);
            }
            self.driver.connection = connection;
        }
        is_quiet
    }

    fn outcome(self) -> (Vec<Kept>, Vec<u8>, Vec<u8>) {
        (self.driver.kept, self.written, self.driver.out)
    }
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn windows_hold_and_no_slot_leaks(moves in moves()) {
        let mut player = Player::new(true);
        for frame in bytes(&moves) {
            player.feed(&frame, usize::MAX);
            if player.is_over() {
                break;
            }
        }
    }

    #[test]
    fn outcomes_do_not_depend_on_pieces(moves in moves(), piece in 1..40_usize) {
        let run = |piece: usize| {
            let mut player = Player::new(false);
            for frame in bytes(&moves) {
                player.feed(&frame, piece);
                if player.is_over() {
                    break;
                }
            }
            player.outcome()
        };
        prop_assert_eq!(run(usize::MAX), run(piece));
    }

    #[test]
    fn a_connection_continues_as_if_it_had_not_been_parked(
        moves in moves(),
        parks in prop::collection::vec(any::<bool>(), 42),
    ) {
        let run = |parks: &[bool]| {
            let mut player = Player::new(true);
            for (frame, parks) in bytes(&moves).iter().zip(parks) {
                player.feed(frame, usize::MAX);
                if player.is_over() {
                    break;
                }
                if *parks {
                    player.park();
                }
            }
            player.outcome()
        };
        prop_assert_eq!(run(&parks), run(&[false; 42]));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut driver = Driver::begun(CONFIG);
        driver.feed(&bytes);
    }
}

/// A game in which most connections end at once, or none is ever parked, tests little.
#[test]
fn a_good_part_of_the_games_goes_on() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut whole, mut parked, mut requests, mut trailers) = (0, 0, 0, 0);
    for _ in 0..300 {
        let moves = moves().new_tree(&mut runner).unwrap().current();
        let mut player = Player::new(true);
        for frame in bytes(&moves) {
            player.feed(&frame, usize::MAX);
            if player.is_over() {
                break;
            }
            parked += u32::from(player.park());
        }
        whole += u32::from(!player.is_over());
        let kept = &player.driver.kept;
        requests += kept.iter().filter(|kept| matches!(kept, Kept::Request(_))).count();
        trailers += kept.iter().filter(|kept| matches!(kept, Kept::Trailers(..))).count();
    }
    let counts = (whole, parked, requests, trailers);
    assert!(whole > 30 && parked > 600 && requests > 500 && trailers > 10, "{counts:?}");
}

/// Data that is written by a record alone is what the connection writes, and leaves the record that
/// the connection has then.
fn check_carried(record: &[u8]) {
    let mut connection = Connection::from_record(CONFIG, record).unwrap();
    let mut carried = Record::from(Box::from(record));
    let keys: Vec<StreamKey> = connection.keys().collect();
    for (round, key) in keys.iter().chain(&keys).enumerate() {
        let (id, mut by_connection, mut by_record) = (key.id(), Vec::new(), Vec::new());
        let length = (97 * round + 1).min(connection.capacity(*key));
        if connection.data_head(*key, length, false, &mut by_connection).is_ok() {
            assert_eq!(carried.data_head(id, length, &mut by_record), Ok(()));
            assert_eq!(by_connection, by_record);
            let most = carried.capacity(id);
            assert_eq!(most.min(16 << 10), connection.capacity(*key));
            let before = carried.clone();
            let refused = carried.data_head(id, most + 1, &mut by_record);
            assert_eq!((refused, &carried), (Err(NotWritten::Window), &before));
        }
    }
    let mut after = Vec::new();
    connection.to_record(&mut after);
    assert_eq!(after, carried.as_ref());
    assert_eq!(carried.data_head(2, 0, &mut Vec::new()), Err(NotWritten::Gone));
}
