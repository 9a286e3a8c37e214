//! The bytes of the protocol: each message has one encoding, which belongs to the version.

use proptest::collection::vec;
use proptest::prelude::*;
use superpoll_keeper::{Notice, Record, Request, Role, Sums, VERSION, Watching};

/// A change of these bytes needs another [`VERSION`].
#[test]
fn the_bytes_of_this_version_are_these() {
    assert_eq!(VERSION, 3);
    let watching = Watching { key: 0x0102, events: 5, number: -1, state: b"st" };
    let record = Record { space: 1, id: 2, more: true, bytes: b"rec" };
    let requests: [(Request<'_>, &[u8]); 11] = [
        (Request::Hello { role: Role::Control, session: 7 }, b"\x01\x01\x07\0\0\0\0\0\0\0"),
        (
            Request::Watch(vec![watching]),
            b"\x02\x01\0\0\0\x02\x01\0\0\0\0\0\0\x05\0\0\0\xff\xff\xff\xff\x02\0\0\0st",
        ),
        (Request::Forget(vec![3]), b"\x03\x01\0\0\0\x03\0\0\0\0\0\0\0"),
        (Request::Sync(4), b"\x04\x04\0\0\0\0\0\0\0"),
        (Request::PutRecord(record), b"\x05\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\x03\0\0\0rec"),
        (
            Request::TrimRecords { space: 1, below: u64::MAX },
            b"\x06\x01\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
        ),
        (Request::ListHeld, b"\x07"),
        (Request::Adopt { upgrades: true }, b"\x08\x01"),
        (Request::Yielded, b"\x09"),
        (Request::Settled, b"\x0a"),
        (Request::Bye, b"\x0b"),
    ];
    for (request, bytes) in requests {
        assert_eq!(request.encode(), bytes, "{request:?}");
        assert_eq!(Request::decode(bytes).unwrap(), request);
        let mut packet = b"what was there".to_vec();
        request.encode_into(&mut packet);
        assert_eq!(packet, bytes, "{request:?}");
    }
    let sums = Sums { len: 1, watched: 2, active: 3 };
    let notices: [(Notice<'_>, &[u8]); 9] = [
        (Notice::Welcome { orphans: 9 }, b"\x81\x09\0\0\0\0\0\0\0"),
        (Notice::Refused("no"), b"\x82\x02\0\0\0no"),
        (Notice::Ready(vec![(1, 4)]), b"\x83\x01\0\0\0\x01\0\0\0\0\0\0\0\x04\0\0\0"),
        (Notice::Returned(vec![(1, 24)]), b"\x84\x01\0\0\0\x01\0\0\0\0\0\0\0\x18\0\0\0"),
        (
            Notice::Synced(4, sums),
            b"\x85\x04\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0",
        ),
        (Notice::Yield, b"\x86"),
        (Notice::Orphans(vec![b"st", b""]), b"\x87\x02\0\0\0\x02\0\0\0st\0\0\0\0"),
        (Notice::Record(record), b"\x88\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\x03\0\0\0rec"),
        (Notice::Done, b"\x89"),
    ];
    for (notice, bytes) in notices {
        assert_eq!(notice.encode(), bytes, "{notice:?}");
        assert_eq!(Notice::decode(bytes).unwrap(), notice);
    }
}

#[test]
fn a_packet_with_another_encoding_of_a_message_is_refused() {
    for packet in [
        // A message that does not exist, and a notice where a request is expected.
        &b""[..],
        b"\0",
        b"\x0c",
        b"\x86",
        // A byte after the message.
        b"\x07\0",
        // A role and a flag that do not exist.
        b"\x01\x02\x07\0\0\0\0\0\0\0",
        b"\x08\x02",
        // More entries than the packet has room for.
        b"\x02\xff\xff\xff\xff",
        b"\x03\x02\0\0\0\x03\0\0\0\0\0\0\0",
        // A state that is longer than the rest of the packet.
        b"\x02\x01\0\0\0\x02\x01\0\0\0\0\0\0\x05\0\0\0\xff\xff\xff\xff\x03\0\0\0st",
    ] {
        assert!(Request::decode(packet).is_err(), "{packet:?}");
    }
    assert!(Notice::decode(b"\x82\x01\0\0\0\xff").is_err(), "text is UTF-8");
    assert!(Notice::decode(b"\x0b").is_err(), "a request where a notice is expected");
}

/// The bytes, texts and lists that random messages borrow.
#[derive(Debug)]
struct Material {
    which: u8,
    numbers: [u64; 4],
    flag: bool,
    pairs: Vec<(u64, u32)>,
    bytes: Vec<Vec<u8>>,
    text: String,
}

prop_compose! {
    fn material()(
        which in 0..20u8,
        numbers in any::<[u64; 4]>(),
        flag in any::<bool>(),
        pairs in vec(any::<(u64, u32)>(), 0..40),
        bytes in vec(vec(any::<u8>(), 0..40), 1..10),
        text in ".{0,40}",
    ) -> Material {
        Material { which, numbers, flag, pairs, bytes, text }
    }
}

impl Material {
    fn record(&self) -> Record<'_> {
        let [space, id, ..] = self.numbers;
        Record { space, id, more: self.flag, bytes: &self.bytes[0] }
    }

    fn request(&self) -> Request<'_> {
        let [one, two, ..] = self.numbers;
        match self.which {
            0 => Request::Hello {
                role: if self.flag { Role::Control } else { Role::Loop },
                session: one,
            },
            1..=5 => {
                let both = self.pairs.iter().zip(&self.bytes);
                let watching = both.map(|(&(key, events), state)| Watching {
                    key,
                    events,
                    number: events.cast_signed(),
                    state,
                });
                Request::Watch(watching.collect())
            }
            6 | 7 => Request::Forget(self.pairs.iter().map(|&(key, _)| key).collect()),
            8 | 9 => Request::Sync(one),
            10 | 11 => Request::PutRecord(self.record()),
            12 | 13 => Request::TrimRecords { space: one, below: two },
            14 => Request::ListHeld,
            15 | 16 => Request::Adopt { upgrades: self.flag },
            17 => Request::Yielded,
            18 => Request::Settled,
            _ => Request::Bye,
        }
    }

    fn notice(&self) -> Notice<'_> {
        let [one, len, watched, active] = self.numbers;
        match self.which {
            0 | 1 => Notice::Welcome { orphans: one },
            2 | 3 => Notice::Refused(&self.text),
            4..=6 => Notice::Ready(self.pairs.clone()),
            7..=9 => {
                let all = self.pairs.iter().map(|&(key, error)| (key, error.cast_signed()));
                Notice::Returned(all.collect())
            }
            10 | 11 => Notice::Synced(one, Sums { len, watched, active }),
            12 => Notice::Yield,
            13..=16 => Notice::Orphans(self.bytes.iter().map(|state| &state[..]).collect()),
            17 | 18 => Notice::Record(self.record()),
            _ => Notice::Done,
        }
    }
}

/// Checks that no part of a packet, and no longer packet, is a message.
fn is_whole(packet: &[u8], is_message: impl Fn(&[u8]) -> bool) {
    for length in 0..packet.len() {
        assert!(!is_message(&packet[..length]), "{length} bytes of {packet:?}");
    }
    for more in [0, 1, 0xff] {
        let longer = [packet, &[more]].concat();
        assert!(!is_message(&longer), "{longer:?}");
    }
}

/// Checks that a packet is no message, or the one encoding of a message.
fn is_canonical(packet: &[u8]) {
    if let Ok(request) = Request::decode(packet) {
        assert_eq!(request.encode(), packet);
    }
    if let Ok(notice) = Notice::decode(packet) {
        assert_eq!(notice.encode(), packet);
    }
}

proptest! {
    #[test]
    fn a_message_arrives_as_it_was_sent_or_not_at_all(material in material()) {
        let request = material.request();
        let packet = request.encode();
        prop_assert_eq!(Request::decode(&packet).unwrap(), request);
        is_whole(&packet, |packet| Request::decode(packet).is_ok());

        let notice = material.notice();
        let packet = notice.encode();
        prop_assert_eq!(Notice::decode(&packet).unwrap(), notice);
        is_whole(&packet, |packet| Notice::decode(packet).is_ok());
    }

    #[test]
    fn a_damaged_message_is_refused_or_another_message(
        material in material(),
        damage in vec(any::<(prop::sample::Index, u8)>(), 1..4),
    ) {
        for mut packet in [material.request().encode(), material.notice().encode()] {
            for (at, byte) in &damage {
                let at = at.index(packet.len());
                packet[at] = *byte;
            }
            is_canonical(&packet);
        }
    }

    #[test]
    fn any_bytes_are_refused_or_a_message(
        tag in prop_oneof![0..13u8, 128..139u8],
        count in 0..4u8,
        bytes in vec(prop_oneof![Just(0), Just(1), any::<u8>()], 0..200),
    ) {
        is_canonical(&bytes);
        is_canonical(&[&[tag], &bytes[..]].concat());
        is_canonical(&[&[tag, count, 0, 0, 0], &bytes[..]].concat());
    }
}
