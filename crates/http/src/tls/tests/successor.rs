//! Keys that are left for another server.

use super::super::parked::KeysRecord;
use super::super::parked::{Cut, ParkedKeys};
use super::super::records::{HEADER, Record, Records};
use super::{Pair, SUITES, split};

impl Pair {
    /// Leaves the server's side to another server, after some of the messages that are sealed
    /// where it is parked. The other server learns nothing but the number of bytes, and sends the
    /// rest.
    pub(super) fn succeed(&mut self, messages: &[Vec<u8>], part: usize, is_orderly: bool) {
        let mut parked = self.park();
        let record = KeysRecord::read(parked.record().unwrap().bytes()).unwrap();
        let mut sealed = Vec::new();
        for message in messages {
            // A key that must be changed seals nothing.
            sealed.extend(parked.seal(&[message]).unwrap_or_default());
        }
        let mut left = sealed.len() * part / 256;
        let written = &sealed[..left];
        let (mut whole, mut cut) = (0, None);
        for message in messages {
            let length = message.len() + record.overhead() as usize;
            match left.checked_sub(length) {
                _ if left == 0 => break,
                Some(rest) => (whole, left) = (whole + 1, rest),
                None => {
                    cut = Some(Cut { message, sent: left });
                    break;
                }
            }
        }
        let (begun, is_cut) = (whole + usize::from(cut.is_some()), cut.is_some());
        let keys = ParkedKeys::adopt(&record, whole as u64, cut, is_orderly).unwrap();
        assert_eq!(keys.has_unsent(), is_cut);
        let (records, unsent) = keys.into_records();
        self.server = records;
        self.bring_to_client(&[written, &unsent].concat(), &messages[..begun].concat());
        let rest = messages[begun..].concat();
        let mut sealed = Vec::new();
        if part.is_multiple_of(2) && !rest.is_empty() {
            let is_changed = self.server.must_change();
            self.server.sealer().seal_with_new_keys(&rest, &mut sealed).unwrap();
            // The first record says so, and it is written with the number that may be spent.
            assert!(!is_changed || sealed[..HEADER] == [23, 3, 3, 0, 22], "{:?}", &sealed[..5]);
            self.bring_to_client(&sealed, &rest);
        }
    }
}

/// Returns keys of a server for a successor, and the records of its client.
pub fn left(suite: usize) -> (KeysRecord, impl Fn() -> Reader) {
    let pair = Pair::new(SUITES[suite]);
    let record = pair.park().record().unwrap();
    let of_client = record.clone();
    let reader = move || {
        let keys = ParkedKeys::adopt(&of_client, 0, None, true).unwrap();
        Reader { records: Box::new(keys).mirrored().into_records().0, unread: Vec::new() }
    };
    (record, reader)
}

/// Returns keys with which a server that was killed writes.
pub fn writing(record: &KeysRecord) -> ParkedKeys {
    ParkedKeys::adopt(record, 0, None, true).unwrap()
}

/// The client's side of a connection.
pub struct Reader {
    records: Records,
    unread: Vec<u8>,
}

impl Reader {
    /// Opens the records in these bytes and those before; returns the text in them.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.unread.extend_from_slice(bytes);
        let mut text = Vec::new();
        while let Some(mut record) = split(&mut self.unread) {
            match self.records.open(&mut record, &mut Vec::new()).unwrap() {
                Record::Data(place) => text.extend_from_slice(&record[place]),
                Record::Control | Record::Closed => {}
            }
        }
        text
    }
}

#[test]
fn keys_for_a_successor_are_read_as_they_were_written() {
    for suite in 0..SUITES.len() {
        let (record, _) = left(suite);
        let bytes = record.bytes();
        assert!(bytes.len() <= 117, "{}", bytes.len());
        assert_eq!(KeysRecord::read(bytes).as_ref(), Some(&record));
        assert_eq!(record.outlives_crashes(), suite < 3);
        assert_eq!(format!("{record:?}"), format!("KeysRecord({})", bytes.len()));
        for length in 0..bytes.len() {
            assert_eq!(KeysRecord::read(&bytes[..length]), None);
        }
        for (place, wrong) in [(0, 6), (1, 4)] {
            let mut changed = bytes.to_vec();
            changed[place] = wrong;
            assert_eq!(KeysRecord::read(&changed), None);
        }
    }
}

/// A server that was killed may have been about to write, so nothing is written with its key but
/// the word that the key changes. A second successor finds no other bytes.
#[test]
fn keys_that_must_change_seal_nothing_before() {
    let (record, reader) = left(0);
    let mut keys = ParkedKeys::adopt(&record, 3, None, false).unwrap();
    assert!(keys.seal(&[b"message"]).is_none());
    let again = keys.record().unwrap();
    assert!(ParkedKeys::adopt(&again, 1, None, true).is_none());
    let cut = Some(Cut { message: b"message", sent: 1 });
    assert!(ParkedKeys::adopt(&again, 0, cut, true).is_none());
    assert!(ParkedKeys::adopt(&again, 0, None, true).unwrap().seal(&[b"message"]).is_none());
    // With the new key it seals as ever.
    let mut keys = ParkedKeys::adopt(&record, 0, None, false).unwrap();
    let said = keys.change_key().unwrap();
    assert_eq!(keys.change_key(), None);
    let sealed = keys.seal(&[b"message"]).unwrap();
    let mut reader = reader();
    assert_eq!(reader.read(&said), b"");
    assert_eq!(reader.read(&sealed), b"message");
    // A number that cannot be, and a record that is not as long.
    assert!(ParkedKeys::adopt(&record, u64::MAX, None, true).is_none());
    let cut = Some(Cut { message: b"message", sent: 1_000 });
    assert!(ParkedKeys::adopt(&record, 0, cut, true).is_none());
    // Between two records only.
    let cut = Some(Cut { message: b"message", sent: 1 });
    assert!(ParkedKeys::adopt(&record, 0, cut, true).unwrap().record().is_none());
}
