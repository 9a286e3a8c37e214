//! Streams of records.

use std::time::Duration;

use superpoll::batch::{Arrivals, Outcome};

use super::stage::{NOW, readers};
use super::sys::{records, send_record};

#[test]
fn an_empty_record_is_not_the_end() {
    for (name, mut reader) in readers() {
        let (ours, theirs) = records();
        let key = reader.register(ours).unwrap();
        let mut arrivals = Arrivals::with_limit(10);
        let mut got = Vec::new();
        for records in [&[&b"one"[..], b"", b"two"][..], &[b""], &[b"", b""], &[b"three", b""]] {
            for &record in records {
                send_record(&theirs, record);
            }
            for _ in 0..4 {
                reader.wait(&mut arrivals, NOW).unwrap();
                got.extend(arrivals.iter().map(|arrival| match arrival.outcome() {
                    Outcome::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                    other => format!("{other:?}"),
                }));
            }
        }
        assert_eq!(got, ["one", "two", "three"], "{name}");
        // Neither before the end nor when everything has come at once.
        for record in [&b"last"[..], b"", b"words"] {
            send_record(&theirs, record);
        }
        drop(theirs);
        got.clear();
        while got.last().is_none_or(|last| last != "End") {
            assert!(
                reader.wait(&mut arrivals, Some(Duration::from_secs(10))).unwrap() > 0,
                "{name}"
            );
            got.extend(arrivals.iter().map(|arrival| match arrival.outcome() {
                Outcome::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                other => format!("{other:?}"),
            }));
        }
        assert_eq!(got, ["last", "words", "End"], "{name}");
        assert!(reader.deregister(key).is_ok(), "{name}");
    }
}
