//! Encrypted subscribers of another server.

use futures_lite::AsyncReadExt;
use superpoll_http::plain_stream::Plain;
use superpoll_http::tls::{KeysRecord, MOST_TEXT, ParkedKeys};
use superpoll_rt::time;

use super::*;

/// The suites, each with whether the other server came to rest: those of TLS 1.2 do not continue
/// otherwise.
const CASES: [(u8, bool); 4] = [(0, false), (1, true), (2, false), (3, true)];

/// Returns keys of a server for a successor, and those of its client.
fn keys_left(suite: u8) -> (KeysRecord, KeysRecord) {
    // The last suite is one of TLS 1.2: a key and an initialisation vector.
    let length = [32, 48, 32, 16 + 12][usize::from(suite)];
    let record = |[(tx, tx_number), (rx, rx_number)]: [(u8, u64); 2]| {
        // No key must change, and nothing was counted.
        let head = [suite, 0, 0, 0, 0];
        let numbers = [tx_number.to_le_bytes(), rx_number.to_le_bytes()].concat();
        let secrets = [vec![tx; length], vec![rx; length]].concat();
        KeysRecord::read(&[&head[..], &numbers, &secrets].concat()).unwrap()
    };
    let (server, client) = ((0x5e, 4), (0xc1, 7));
    (record([server, client]), record([client, server]))
}

/// Returns keys with which a server that was killed writes.
fn writing(record: &KeysRecord) -> ParkedKeys {
    ParkedKeys::adopt(record, 0, None, true).unwrap()
}

/// Reads records by a client's keys until there are as many bytes of text in them.
async fn text_of(client: &UnixStream, keys: &KeysRecord, count: usize) -> Vec<u8> {
    let socket = client.try_clone().unwrap();
    let plain = Plain::Unix(superpoll_rt::net::unix::UnixStream::from_std(socket).unwrap());
    let mut stream = ParkedKeys::adopt(keys, 0, None, true).unwrap().resume(plain);
    let mut found = Vec::new();
    while found.len() < count {
        let mut room = [0; 1024];
        match time::timeout(PATIENCE, stream.read(&mut room)).await {
            Ok(Ok(count @ 1..)) => found.extend_from_slice(&room[..count]),
            outcome => panic!("{outcome:?} after {found:?}"),
        }
    }
    found
}

/// Seals messages as a server does that sends them to a parked subscriber.
fn sealed(keys: &KeysRecord, form: Form, messages: &[Message]) -> Vec<u8> {
    let mut writing = writing(keys);
    let seal = |one: &Message| writing.seal(&[&encoded(form, std::slice::from_ref(one))]).unwrap();
    messages.iter().flat_map(seal).collect()
}

/// Whatever records, and parts of one, the last server had written when it was killed, its client
/// can open each record, and gets each message once, and new messages after them.
#[test]
fn a_successor_goes_on_behind_any_byte_of_any_record() {
    let options = Channel { history: 100, ..Channel::default() };
    Runtime::new().unwrap().block_on(async {
        let lot = parking_lot();
        for ((suite, is_orderly), form) in
            CASES.into_iter().flat_map(|case| FORMS.map(|form| (case, form)))
        {
            let (keys, reader) = keys_left(suite);
            for after in [0, 3] {
                let messages = messages(form);
                let after_it = &messages[usize::try_from(after).unwrap()..];
                let all = sealed(&keys, form, after_it);
                for count in 0..=all.len() + 1 {
                    let what = format!("{suite} {form:?} after {after}, {count} bytes");
                    let hub = Hub::restore("/c".into(), EPOCH, messages.clone());
                    hub.change(options.clone());
                    let subscribers = subscribers(&hub, &lot);
                    let (parked, client) = connection();
                    let written = count.min(all.len());
                    assert_eq!(parked.stream.write_raw(&all[..written]).unwrap(), written);
                    let (sent, keys) = (count as u64, Some(keys.clone()));
                    let left = LeftConnection { parked, sent, keys, is_orderly };
                    let (state, rights) = ((after, None, false), whole(form));
                    let outcome = subscribers.adopt(left, left_by(form, state, rights));
                    if count > all.len() {
                        assert!(outcome.is_none() && hub.subscribers() == 0, "{what}");
                        continue;
                    }
                    assert!(outcome.is_some(), "{what}");
                    publish(&hub, form, "next");
                    let next = message(form, 5, "next");
                    let expected = encoded(form, &[after_it, &[next]].concat());
                    let found = text_of(&client, &reader, expected.len()).await;
                    assert!(found == expected, "{what}: {found:?}");
                    let end = Instant::now() + PATIENCE;
                    while lot.parked() != 1 {
                        assert!(Instant::now() < end, "{what}");
                        yield_now().await;
                    }
                    drop(client);
                    while hub.subscribers() > 0 {
                        assert!(Instant::now() < end, "{what}");
                        yield_now().await;
                    }
                }
            }
        }
    });
}

/// As of others: messages that are not kept any more are counted by their records as well.
#[test]
fn a_successor_goes_on_behind_records_that_are_not_kept() {
    let options = Channel { history: 100, ..Channel::default() };
    Runtime::new().unwrap().block_on(async {
        let lot = parking_lot();
        for form in [Form::WebSocket, Form::Json, Form::Events] {
            let (keys, reader) = keys_left(0);
            let text = |id: u64| "line\n".repeat(id as usize * 7);
            let messages: Vec<Message> = (1..=8).map(|id| message(form, id, text(id))).collect();
            let offsets = |count: usize| {
                let mut offsets = Offsets::default();
                messages[..count].iter().for_each(|one| add(&mut offsets, one, SOURCE));
                offsets
            };
            let offset = offsets(2)[form.counted().unwrap()];
            let all = sealed(&keys, form, &messages[2..]);
            let not_kept = sealed(&keys, form, &messages[2..4]).len();
            for count in
                (1..=all.len() + 1).filter(|count| count % 7 == 0 || *count > all.len() - 3)
            {
                let kept = messages[4..].to_vec();
                let hub = Hub::restore_at("/c".into(), EPOCH, kept, offsets(4));
                hub.change(options.clone());
                let subscribers = subscribers(&hub, &lot);
                let (parked, client) = connection();
                let written = count.min(all.len());
                assert_eq!(parked.stream.write_raw(&all[..written]).unwrap(), written);
                let (sent, keys) = (count as u64, Some(keys.clone()));
                let left = LeftConnection { parked, sent, keys, is_orderly: false };
                let (state, rights) = ((2, Some(offset), false), whole(form));
                let outcome = subscribers.adopt(left, left_by(form, state, rights));
                if count < not_kept || count > all.len() {
                    assert!(outcome.is_none() && hub.subscribers() == 0, "{form:?} {count}");
                    continue;
                }
                assert!(outcome.is_some(), "{form:?} {count}");
                publish(&hub, form, "next");
                let next = message(form, 9, "next");
                let expected = encoded(form, &[&messages[2..], &[next]].concat());
                let found = text_of(&client, &reader, expected.len()).await;
                assert!(found == expected, "{form:?} {count}");
                drop(client);
                let end = Instant::now() + PATIENCE;
                while hub.subscribers() > 0 {
                    assert!(Instant::now() < end, "{form:?} {count}");
                    yield_now().await;
                }
            }
        }
    });
}

/// A subscriber that reads nothing for a while: its socket takes a part of some records. Each
/// message arrives once, whichever record that was.
#[test]
fn records_that_are_written_in_part_are_sent_once() {
    Runtime::new().unwrap().block_on(async {
        let lot = parking_lot();
        for ((suite, is_orderly), form) in
            CASES.into_iter().flat_map(|case| FORMS.map(|form| (case, form)))
        {
            let (keys, reader) = keys_left(suite);
            for length in [1000, 1500, 4000, 9000] {
                let what = format!("{suite} {form:?} {length}");
                let before = messages(form);
                let hub = Hub::restore("/c".into(), EPOCH, before.clone());
                let options = Channel { history: 100, ..Channel::default() };
                hub.change(options_for(form, &options));
                let subscribers = subscribers(&hub, &lot);
                let (server, client) = UnixStream::pair().unwrap();
                client.set_nonblocking(true).unwrap();
                socket2::SockRef::from(&server).set_send_buffer_size(1).unwrap();
                let (parked, keys) = (parked(server), Some(keys.clone()));
                let left = LeftConnection { parked, sent: 0, keys, is_orderly };
                let (state, rights) = ((before.len() as u64, None, false), whole(form));
                assert!(subscribers.adopt(left, left_by(form, state, rights)).is_some(), "{what}");
                let end = Instant::now() + PATIENCE;
                let all_parked = async |expected: usize| {
                    while lot.parked() != expected {
                        assert!(Instant::now() < end, "{what}");
                        yield_now().await;
                    }
                };
                all_parked(1).await;
                let texts = (0..8).map(|number| vec![b'a' + number; length]);
                let new: Vec<Message> =
                    (5..).zip(texts.clone()).map(|(id, text)| message(form, id, text)).collect();
                texts.for_each(|text| publish(&hub, form, text));
                // Its socket is full, so a task waits for room in it.
                all_parked(0).await;
                let expected = encoded(form, &new);
                let found = text_of(&client, &reader, expected.len()).await;
                assert!(found == expected, "{what}");
                drop(client);
                while hub.subscribers() > 0 {
                    assert!(Instant::now() < end, "{what}");
                    yield_now().await;
                }
            }
        }
    });
}

/// A message that is longer than a record is sent by a task, whose records no successor counts: so
/// none was sent while its subscriber's state was left.
#[test]
fn a_message_that_is_too_long_for_a_record_is_not_taken_for_one() {
    Runtime::new().unwrap().block_on(async {
        let lot = parking_lot();
        for form in FORMS {
            let (keys, reader) = keys_left(0);
            let messages = vec![message(form, 1, vec![b'x'; MOST_TEXT + 1])];
            let adopt = |sent: u64| {
                let hub = Hub::restore("/c".into(), EPOCH, messages.clone());
                hub.change(Channel { history: 100, ..Channel::default() });
                let subscribers = subscribers(&hub, &lot);
                let (parked, client) = connection();
                let keys = Some(keys.clone());
                let left = LeftConnection { parked, sent, keys, is_orderly: true };
                let (state, rights) = ((0, None, false), whole(form));
                let outcome = subscribers.adopt(left, left_by(form, state, rights));
                (outcome, client)
            };
            for sent in [1, 100, MOST_TEXT as u64 + 30, 2 * MOST_TEXT as u64] {
                assert!(adopt(sent).0.is_none(), "{form:?} {sent}");
            }
            let (outcome, client) = adopt(0);
            assert!(outcome.is_some());
            let expected = encoded(form, &messages);
            let found = text_of(&client, &reader, expected.len()).await;
            assert!(found == expected, "{form:?}");
        }
    });
}
