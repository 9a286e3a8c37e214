//! The bounds of an answer, checked on arbitrary bytes: for the fuzz target `dns_answer` and the
//! tests.
//!
//! A resolver, or a machine between, may send anything. Whatever it is, an answer that counts is
//! one to the question; its records are of the kind that was asked for, and are in its bytes; and
//! texts of it that reach the log or the configuration of servers are short and harmless.

use std::net::IpAddr;

use super::message::{Kind, Query, Record, Reply};
use superpoll_config::is_host_name;

/// The bytes of a question behind the header: its name, type and class.
const NAME: &str = "app.test";
const QUESTION: &[u8] = b"\x03app\x04test\0";
const ID: u16 = 7;

/// Reads bytes as an answer, and panics if a bound does not hold. The last two bits of `form`
/// choose the kind of the question; the next one says whether the bytes are a whole message, or the
/// part behind the question. Returns whether they answer the question.
pub(crate) fn check_answer(bytes: &[u8], form: u8) -> bool {
    let (kind, number) =
        [(Kind::V4, 1), (Kind::V6, 28), (Kind::Service, 33)][usize::from(form & 3) % 3];
    let query = Query { id: ID, name: NAME, kind };
    let message = match form & 4 {
        0 => bytes.to_vec(),
        _ => behind_question(bytes, number),
    };
    let Some(reply) = query.decode(&message) else { return false };
    assert_eq!(message[..2], ID.to_be_bytes());
    assert!(message[2] & 0x80 != 0, "a question is no answer");
    let count = usize::from(u16::from_be_bytes([message[6], message[7]]));
    match reply {
        Reply::Records(records, ttl) => {
            assert!((1..=count).contains(&records.len()) && ttl <= i32::MAX as u32);
            records.iter().for_each(|record| check_record(record, kind, &message));
        }
        Reply::Absent(ttl) => assert!(ttl.is_none_or(|ttl| ttl <= i32::MAX as u32)),
        Reply::Refused(why) => {
            assert!(why.len() < 40 && !why.contains(char::is_control), "{why:?}");
        }
        Reply::Truncated => assert!(message[2] & 0x02 != 0),
        Reply::FormatError => {}
    }
    true
}

/// Returns a message whose header has the counts of the first byte, and whose answers are the rest.
fn behind_question(bytes: &[u8], kind: u16) -> Vec<u8> {
    let (first, rest) = bytes.split_first().unwrap_or((&1, &[]));
    let mut message = ID.to_be_bytes().to_vec();
    message.extend([0x81, 0x80, 0, 1, 0, first & 15, 0, first >> 6, 0, first >> 4 & 3]);
    message.extend_from_slice(QUESTION);
    message.extend(kind.to_be_bytes());
    message.extend(1_u16.to_be_bytes());
    message.extend_from_slice(rest);
    message
}

fn check_record(record: &Record, kind: Kind, message: &[u8]) {
    let is_there = |bytes: &[u8]| message.windows(bytes.len()).any(|window| window == bytes);
    match (record, kind) {
        (Record::Address(IpAddr::V4(address)), Kind::V4) => assert!(is_there(&address.octets())),
        (Record::Address(IpAddr::V6(address)), Kind::V6) => assert!(is_there(&address.octets())),
        (Record::Service(service), Kind::Service) => {
            assert!(is_host_name(&service.target), "{service:?}");
            let [priority, weight, port] = [service.priority, service.weight, service.port];
            let numbers = [priority, weight, port].map(u16::to_be_bytes).concat();
            assert!(is_there(&numbers), "{service:?}");
        }
        _ => panic!("{record:?} was not asked for"),
    }
}
